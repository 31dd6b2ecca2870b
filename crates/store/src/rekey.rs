//! Re-keying: all sealed secrets are sealed again by the current key, a few rows at a time, while
//! calls run. A secret that cannot be opened stays as it is and is counted.

use std::collections::BTreeMap;

use crate::db::{clean, on_reader, on_writer};
use crate::row::row;
use crate::vault::{SealedSecret, Vault, VaultError};
use crate::{
    Store, StoreError, acme, alert_settings, data_keys, factors, mcp_grants, stored_config,
};

/// Rows per query.
const ROWS_PER_QUERY: i64 = 100;

/// The result of a re-keying.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RekeyCounts {
    /// Number of rows sealed again.
    pub sealed: u64,
    /// Number of rows that could not be opened.
    pub left: u64,
}

/// A table with sealed rows and its statements.
struct SealedTable {
    old: &'static str,
    reseal: &'static str,
    label: fn(&str, &str, &str) -> String,
}

const SEALED_TABLES: [SealedTable; 9] = [
    SealedTable {
        old: "SELECT id, provider_id AS owner, place, sealed AS bytes, sealed_by FROM credentials \
            WHERE sealed_by <> $1 AND id > $2 ORDER BY id LIMIT $3",
        reseal: "UPDATE credentials SET sealed = $3, sealed_by = $4 WHERE id = $1 AND sealed = $2",
        label: stored_config::label,
    },
    SealedTable {
        old: "SELECT id, account_id AS owner, '' AS place, secret AS bytes, sealed_by FROM factors \
            WHERE kind = 'totp' AND (sealed_by IS NULL OR sealed_by <> $1) AND id > $2 \
            ORDER BY id LIMIT $3",
        reseal: "UPDATE factors SET secret = $3, sealed_by = $4 WHERE id = $1 AND secret = $2",
        label: |id, owner, _| factors::label(id, owner),
    },
    SealedTable {
        old: "SELECT id, '' AS owner, '' AS place, sealed AS bytes, sealed_by FROM data_keys \
            WHERE sealed_by <> $1 AND id > $2 ORDER BY id LIMIT $3",
        reseal: "UPDATE data_keys SET sealed = $3, sealed_by = $4 WHERE id = $1 AND sealed = $2",
        label: |id, _, _| data_keys::label(id),
    },
    SealedTable {
        old: "SELECT id, server AS owner, owner AS place, sealed AS bytes, sealed_by \
            FROM mcp_grants WHERE sealed_by <> $1 AND id > $2 ORDER BY id LIMIT $3",
        reseal: "UPDATE mcp_grants SET sealed = $3, sealed_by = $4 WHERE id = $1 AND sealed = $2",
        label: mcp_grants::label,
    },
    SealedTable {
        old: "SELECT server AS id, issuer AS owner, '' AS place, sealed AS bytes, sealed_by \
            FROM mcp_clients WHERE sealed_by <> $1 AND server > $2 ORDER BY server LIMIT $3",
        reseal: "UPDATE mcp_clients SET sealed = $3, sealed_by = $4 \
            WHERE server = $1 AND sealed = $2",
        label: |id, owner, _| mcp_grants::client_label(id, owner),
    },
    SealedTable {
        old: "SELECT id, '' AS owner, '' AS place, sealed AS bytes, sealed_by FROM acme_accounts \
            WHERE sealed_by <> $1 AND id > $2 ORDER BY id LIMIT $3",
        reseal: "UPDATE acme_accounts SET sealed = $3, sealed_by = $4 WHERE id = $1 AND sealed = $2",
        label: |id, _, _| acme::account_label(id),
    },
    SealedTable {
        old: "SELECT id, '' AS owner, '' AS place, sealed AS bytes, sealed_by \
            FROM acme_certificates WHERE sealed_by <> $1 AND id > $2 ORDER BY id LIMIT $3",
        reseal: "UPDATE acme_certificates SET sealed = $3, sealed_by = $4 \
            WHERE id = $1 AND sealed = $2",
        label: |id, _, _| acme::certificate_label(id),
    },
    SealedTable {
        old: "SELECT account_id AS id, '' AS owner, '' AS place, sealed AS bytes, sealed_by \
            FROM alert_settings WHERE sealed_by <> $1 AND account_id > $2 ORDER BY account_id LIMIT $3",
        reseal: "UPDATE alert_settings SET sealed = $3, sealed_by = $4 \
            WHERE account_id = $1 AND sealed = $2",
        label: |id, _, _| alert_settings::webhook_label(id),
    },
    SealedTable {
        old: "SELECT id, '' AS owner, '' AS place, sealed AS bytes, sealed_by \
            FROM gateway_alert_settings WHERE sealed_by <> $1 AND id > $2 ORDER BY id LIMIT $3",
        reseal: "UPDATE gateway_alert_settings SET sealed = $3, sealed_by = $4 \
            WHERE id = $1 AND sealed = $2",
        label: |id, _, _| alert_settings::webhook_label(id),
    },
];
const COUNT: &str = "SELECT sealed_by, COUNT(*) FROM \
    (SELECT sealed_by FROM credentials UNION ALL SELECT sealed_by FROM data_keys UNION ALL \
     SELECT sealed_by FROM mcp_grants UNION ALL SELECT sealed_by FROM mcp_clients UNION ALL \
     SELECT sealed_by FROM acme_accounts UNION ALL \
     SELECT sealed_by FROM acme_certificates WHERE sealed_by IS NOT NULL UNION ALL \
     SELECT sealed_by FROM alert_settings WHERE sealed_by IS NOT NULL UNION ALL \
     SELECT sealed_by FROM gateway_alert_settings WHERE sealed_by IS NOT NULL UNION ALL \
     SELECT sealed_by FROM factors WHERE sealed_by IS NOT NULL) AS sealed \
    GROUP BY sealed_by ORDER BY sealed_by";

row! {
    struct SealedRow {
        id: String,
        owner: String,
        place: String,
        bytes: Vec<u8>,
        /// `None` for a secret that is not sealed yet.
        sealed_by: Option<String>,
    }
}

impl Store {
    /// Returns the number of rows sealed by each key.
    pub async fn sealed(&self) -> Result<BTreeMap<String, i64>, StoreError> {
        let counts: Vec<(String, i64)> = on_reader!(&self.db, pool => {
            sqlx::query_as(COUNT).fetch_all(pool).await?
        });
        Ok(counts.into_iter().collect())
    }

    /// Returns true if other machines may use this database.
    pub const fn is_shared(&self) -> bool {
        match &self.db {
            crate::db::Db::Sqlite(_) => false,
            crate::db::Db::Pg(_) => true,
        }
    }
}

impl Vault {
    /// Seals all secrets again: by a new key if this gateway manages the keys, otherwise by the
    /// operator's first key. Bodies are sealed by data keys, which are secrets here, so that none is
    /// rewritten. Managed keys that no row needs are deleted.
    pub async fn rekey(&self, store: &Store) -> Result<RekeyCounts, VaultError> {
        let _turn = self.turn.lock().await;
        self.add_first_key().await?;
        let mut done = RekeyCounts::default();
        for table in &SEALED_TABLES {
            self.reseal(store, table, &mut done).await?;
        }
        store.renew_data_key().await?;
        let needed = store.sealed().await?;
        self.retire(|id| needed.contains_key(id)).await?;
        Ok(done)
    }

    async fn reseal(
        &self,
        store: &Store,
        table: &SealedTable,
        done: &mut RekeyCounts,
    ) -> Result<(), VaultError> {
        let mut last = String::new();
        loop {
            let sealer = self.sealer().await?;
            let rows: Vec<SealedRow> = on_reader!(&store.db, pool => {
                sqlx::query_as(table.old).bind(sealer.by()).bind(&last).bind(ROWS_PER_QUERY)
                    .fetch_all(pool).await.map_err(StoreError::from)?
            });
            let Some(end) = rows.last() else { return Ok(()) };
            last = end.id.clone();
            for SealedRow { id, owner, place, bytes, sealed_by } in rows {
                let label = (table.label)(&id, &owner, &place);
                let open = match sealed_by {
                    None => Ok(bytes.clone()),
                    Some(by) => self.open(&label, &SealedSecret { by, bytes: bytes.clone() }),
                };
                let Ok(open) = open else {
                    done.left += 1;
                    continue;
                };
                let new = sealer.seal(&label, &open)?;
                let changed = on_writer!(&store.db, pool => {
                    sqlx::query(table.reseal)
                        .bind(clean(&id)).bind(&bytes).bind(&new.bytes).bind(&new.by)
                        .execute(pool).await.map_err(StoreError::from)?.rows_affected()
                });
                done.sealed += changed;
            }
        }
    }
}

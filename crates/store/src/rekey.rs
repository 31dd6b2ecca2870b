//! Re-keying: everything that is sealed is sealed anew by the current key, a few rows at a time, while
//! calls run. What cannot be opened stays as it is and is counted.

use std::collections::BTreeMap;

use sqlx::FromRow;

use crate::db::{clean, on_reader, on_writer};
use crate::vault::{Sealed, Vault, VaultError};
use crate::{Store, StoreError, configured, factors};

/// How many rows are read at once.
const BATCH: i64 = 100;

/// What a re-keying did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rekeyed {
    /// Rows that were sealed anew.
    pub sealed: u64,
    /// Rows that could not be opened.
    pub left: u64,
}

/// A table with sealed rows, and its statements.
struct Table {
    old: &'static str,
    reseal: &'static str,
    label: fn(&str, &str, &str) -> String,
}

const TABLES: [Table; 2] = [
    Table {
        old: "SELECT id, provider_id AS owner, place, sealed AS bytes, sealed_by FROM credentials \
            WHERE sealed_by <> $1 AND id > $2 ORDER BY id LIMIT $3",
        reseal: "UPDATE credentials SET sealed = $3, sealed_by = $4 WHERE id = $1 AND sealed = $2",
        label: configured::label,
    },
    Table {
        old: "SELECT id, account_id AS owner, '' AS place, secret AS bytes, sealed_by FROM factors \
            WHERE kind = 'totp' AND (sealed_by IS NULL OR sealed_by <> $1) AND id > $2 \
            ORDER BY id LIMIT $3",
        reseal: "UPDATE factors SET secret = $3, sealed_by = $4 WHERE id = $1 AND secret = $2",
        label: |id, owner, _| factors::label(id, owner),
    },
];
const COUNT: &str = "SELECT sealed_by, COUNT(*) FROM \
    (SELECT sealed_by FROM credentials UNION ALL \
     SELECT sealed_by FROM factors WHERE sealed_by IS NOT NULL) AS sealed \
    GROUP BY sealed_by ORDER BY sealed_by";

#[derive(FromRow)]
struct Row {
    id: String,
    owner: String,
    place: String,
    bytes: Vec<u8>,
    /// Nothing where it lies open still.
    sealed_by: Option<String>,
}

impl Store {
    /// How many rows each key has sealed.
    pub async fn sealed(&self) -> Result<BTreeMap<String, i64>, StoreError> {
        let counts: Vec<(String, i64)> = on_reader!(&self.db, pool => {
            sqlx::query_as(COUNT).fetch_all(pool).await?
        });
        Ok(counts.into_iter().collect())
    }

    /// Whether other machines may use this database.
    pub const fn is_shared(&self) -> bool {
        match &self.db {
            crate::db::Db::Sqlite { .. } => false,
            crate::db::Db::Pg(_) => true,
        }
    }
}

impl Vault {
    /// Seals everything anew: under a new key if the keys are our own, else under the first that the
    /// operator gives. Keys of our own that seal nothing any more are forgotten.
    pub async fn rekey(&self, store: &Store) -> Result<Rekeyed, VaultError> {
        let _turn = self.turn.lock().await;
        self.turn_over().await?;
        let mut done = Rekeyed::default();
        for table in &TABLES {
            self.reseal(store, table, &mut done).await?;
        }
        let needed = store.sealed().await?;
        self.retire(|id| needed.contains_key(id)).await?;
        Ok(done)
    }

    async fn reseal(
        &self,
        store: &Store,
        table: &Table,
        done: &mut Rekeyed,
    ) -> Result<(), VaultError> {
        let mut last = String::new();
        loop {
            let sealer = self.sealer().await?;
            let rows: Vec<Row> = on_reader!(&store.db, pool => {
                sqlx::query_as(table.old).bind(sealer.by()).bind(&last).bind(BATCH)
                    .fetch_all(pool).await.map_err(StoreError::from)?
            });
            let Some(end) = rows.last() else { return Ok(()) };
            last = end.id.clone();
            for Row { id, owner, place, bytes, sealed_by } in rows {
                let label = (table.label)(&id, &owner, &place);
                let open = match sealed_by {
                    None => Ok(bytes.clone()),
                    Some(by) => self.open(&label, &Sealed { by, bytes: bytes.clone() }),
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

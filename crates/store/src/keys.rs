//! API keys with their limits. Only a keyed hash of the secret is stored.
//!
//! Every edit of a key increases its `changed`, even when the editor's clock is behind, so that
//! other nodes that poll for changes find it. Spending is not an edit.

use canon::{Micros, Money};
use ledger::BudgetPeriod;
use sqlx::QueryBuilder;

use crate::audited_change::in_change;
use crate::db::{clean, from_json, on_reader, to_json, unknown_word};
use crate::row::row;
use crate::{
    AuditedChange, BudgetTerms, KeyBounds, KeyGrants, KeyScope, RateLimits, Store, StoreError,
};

/// Ids of one statement.
const MAX_IDS: usize = 500;

/// The life of an admin key whose maker names none.
const ADMIN_KEY_LIFE: Micros = Micros::from_days(30);

/// An API key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRecord {
    /// Public id, part of the key's text.
    pub id: String,
    /// The account that owns it.
    pub account_id: String,
    /// The account that created it, if that is known.
    pub created_by: Option<String>,
    /// Name given by its owner.
    pub name: String,
    /// The program that it was made for by signing in; `None` for other keys.
    pub surface: Option<String>,
    /// The purpose it was made for.
    pub scope: KeyScope,
    /// The part of its scope that it may use.
    pub grants: KeyGrants,
    /// Keyed hash of the secret.
    pub hash: Vec<u8>,
    /// Hash before the last rotation.
    pub old_hash: Option<Vec<u8>>,
    /// When the old hash expires.
    pub old_until: Option<Micros>,
    /// Limit of the spending over all time; `None` is no limit.
    pub cap: Option<Money>,
    /// Money spent: always the sum of its ledger rows.
    pub spent: Money,
    /// Limit of the spending in every period.
    pub budget: Option<BudgetTerms>,
    /// Permitted models; empty permits all.
    pub models: Vec<String>,
    /// When it expires.
    pub expires: Option<Micros>,
    /// Time of revocation.
    pub revoked: Option<Micros>,
    /// Rate limits.
    pub limits: RateLimits,
    /// Permitted client addresses; empty permits all.
    pub ips: Vec<String>,
    /// Limits that an administrator set and that others do not raise.
    pub bounds: KeyBounds,
    /// Time of creation.
    pub created: Micros,
    /// Time of the last edit.
    pub changed: Micros,
    /// End of its latest settled call.
    pub last_used: Option<Micros>,
}

impl KeyRecord {
    /// The scope and its part, as users write it.
    pub fn scope_text(&self) -> String {
        self.grants.scope_text(self.scope)
    }

    /// Makes a new record one for administration. It has no money to spend, so that a route that
    /// forgot to look at the scope would still spend nothing, and it ends after 30 days unless its
    /// maker named a time.
    pub fn make_admin(&mut self, now: Micros) {
        self.scope = KeyScope::Admin;
        self.cap = Some(Money::ZERO);
        self.expires = self.expires.or(Some(now + ADMIN_KEY_LIFE));
    }
}

row! {
    pub(crate) struct KeyRow {
        id: String,
        account_id: String,
        made_by: Option<String>,
        name: String,
        surface: Option<String>,
        scope: String,
        grants: Option<String>,
        hash: Vec<u8>,
        old_hash: Option<Vec<u8>>,
        old_until: Option<Micros>,
        cap: Option<Money>,
        spent: Money,
        models: String,
        expires: Option<Micros>,
        revoked: Option<Micros>,
        rpm: Option<u32>,
        tpm: Option<u32>,
        concurrency: Option<u32>,
        ips: String,
        bounds: Option<String>,
        budget: Option<Money>,
        budget_period: Option<String>,
        created: Micros,
        changed: Micros,
        last_used: Option<Micros>,
    }
}

/// Combines the two columns of a budget, of which either both or none are set.
pub(crate) fn budget(
    most: Option<Money>,
    period: Option<String>,
) -> Result<Option<BudgetTerms>, sqlx::Error> {
    let (Some(most), Some(word)) = (most, period) else { return Ok(None) };
    let period = BudgetPeriod::by_word(&word).ok_or_else(|| unknown_word(&word))?;
    Ok(Some(BudgetTerms { limit: most, period }))
}

impl TryFrom<KeyRow> for KeyRecord {
    type Error = sqlx::Error;

    fn try_from(row: KeyRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            id: row.id,
            account_id: row.account_id,
            created_by: row.made_by,
            name: row.name,
            surface: row.surface,
            scope: KeyScope::by_word(&row.scope).ok_or_else(|| unknown_word(&row.scope))?,
            grants: KeyGrants::from_text(row.grants.as_deref())?,
            hash: row.hash,
            old_hash: row.old_hash,
            old_until: row.old_until,
            cap: row.cap,
            spent: row.spent,
            budget: budget(row.budget, row.budget_period)?,
            models: from_json(&row.models)?,
            expires: row.expires,
            revoked: row.revoked,
            limits: RateLimits { rpm: row.rpm, tpm: row.tpm, concurrency: row.concurrency },
            ips: from_json(&row.ips)?,
            bounds: KeyBounds::from_text(row.bounds.as_deref())?,
            created: row.created,
            changed: row.changed,
            last_used: row.last_used,
        })
    }
}

/// The columns of `KeyRow`.
macro_rules! key_columns {
    () => {
        "id, account_id, name, hash, old_hash, old_until, cap, spent, models, expires, revoked, \
         rpm, tpm, concurrency, ips, budget, budget_period, created, changed, last_used, made_by, \
         scope, bounds, grants, surface"
    };
}

/// Selects these columns. A key of a locked account is read as revoked, and so is a key for which a
/// person signed in who is locked, whoever pays for it.
macro_rules! key_selection {
    () => {
        "SELECT id, account_id, name, hash, old_hash, old_until, cap, spent, models, expires, \
         COALESCE(revoked, (SELECT MAX(a.changed) FROM accounts a WHERE a.disabled \
         AND (a.id = keys.account_id OR (keys.surface IS NOT NULL AND a.id = keys.made_by)))) \
         AS revoked, rpm, tpm, concurrency, ips, budget, budget_period, created, \
         changed, last_used, made_by, scope, bounds, grants, surface FROM keys"
    };
}

pub(crate) use {key_columns, key_selection};

/// Sets `changed` for an edit at the time `$2`.
macro_rules! next_changed {
    () => {
        "changed = CASE WHEN changed < $2 THEN $2 ELSE changed + 1 END"
    };
}

const ADD: &str = concat!(
    "INSERT INTO keys (",
    key_columns!(),
    ") VALUES ($1, $2, $3, $4, $5, $6, $7, 0, $8, $9, $10, $11, $12, $13, $14, $15, $16, \
     $17, $18, NULL, $19, $20, $21, $22, $23)"
);
const GET: &str = concat!(key_selection!(), " WHERE id = $1");
const ALL: &str = concat!(key_selection!(), " ORDER BY created, id");
const OF: &str = concat!(key_selection!(), " WHERE account_id = $1 ORDER BY created, id");
const SIGNED_IN: &str =
    concat!(key_selection!(), " WHERE surface IS NOT NULL AND revoked IS NULL AND made_by IN (");
const MADE_BY: &str = concat!(key_selection!(), " WHERE made_by = $1 ORDER BY created, id");
const CHANGED_SINCE: &str = concat!(key_selection!(), " WHERE changed >= $1 ORDER BY changed, id");
const REVOKE: &str = concat!(
    "UPDATE keys SET revoked = $2, ",
    next_changed!(),
    " WHERE id = $1 AND revoked IS NULL"
);
const ROTATE: &str = concat!(
    "UPDATE keys SET old_hash = hash, hash = $3, old_until = $4, ",
    next_changed!(),
    " WHERE id = $1 AND revoked IS NULL"
);
const REHASH: &str =
    concat!("UPDATE keys SET hash = $3, ", next_changed!(), " WHERE id = $1 AND hash = $4");
const UPDATE: &str = concat!(
    "UPDATE keys SET name = $3, cap = $4, models = $5, expires = $6, rpm = $7, tpm = $8, \
     concurrency = $9, ips = $10, budget = $11, budget_period = $12, bounds = $13, ",
    next_changed!(),
    " WHERE id = $1"
);

pub(crate) fn records(rows: Vec<KeyRow>) -> Result<Vec<KeyRecord>, StoreError> {
    Ok(rows.into_iter().map(KeyRecord::try_from).collect::<Result<_, _>>()?)
}

impl Store {
    /// Returns the key with that public id.
    pub async fn key(&self, id: &str) -> Result<Option<KeyRecord>, StoreError> {
        let row: Option<KeyRow> = on_reader!(&self.db, pool => {
            sqlx::query_as(GET).bind(clean(id)).fetch_optional(pool).await?
        });
        Ok(row.map(KeyRecord::try_from).transpose()?)
    }

    /// Returns every key, the oldest first.
    pub async fn keys(&self) -> Result<Vec<KeyRecord>, StoreError> {
        records(on_reader!(&self.db, pool => sqlx::query_as(ALL).fetch_all(pool).await?))
    }

    /// Returns the keys of an account, the oldest first.
    pub async fn keys_of(&self, account_id: &str) -> Result<Vec<KeyRecord>, StoreError> {
        records(on_reader!(&self.db, pool => {
            sqlx::query_as(OF).bind(clean(account_id)).fetch_all(pool).await?
        }))
    }

    /// Returns the keys that an account created, for itself or others, the oldest first.
    pub async fn keys_created_by(&self, account_id: &str) -> Result<Vec<KeyRecord>, StoreError> {
        records(on_reader!(&self.db, pool => {
            sqlx::query_as(MADE_BY).bind(clean(account_id)).fetch_all(pool).await?
        }))
    }

    /// Returns the keys for which these people signed in and that are not revoked, the oldest first.
    pub async fn keys_signed_in_by(
        &self,
        account_ids: &[&str],
    ) -> Result<Vec<KeyRecord>, StoreError> {
        let mut keys = Vec::new();
        for ids in account_ids.chunks(MAX_IDS) {
            let found = records(on_reader!(&self.db, pool: Kind => {
                let mut query = QueryBuilder::<Kind>::new(SIGNED_IN);
                let mut list = query.separated(", ");
                for id in ids {
                    list.push_bind(clean(id));
                }
                query.push(") ORDER BY created, id");
                query.build_query_as().fetch_all(pool).await?
            }))?;
            keys.extend(found);
        }
        Ok(keys)
    }

    /// Returns the keys that were created or edited at that time or later, in the order of their
    /// edits.
    ///
    /// Times come from the clocks of the editors, so the caller must subtract their possible
    /// difference.
    pub async fn keys_changed_since(&self, since: Micros) -> Result<Vec<KeyRecord>, StoreError> {
        records(on_reader!(&self.db, pool => {
            sqlx::query_as(CHANGED_SINCE).bind(since.get()).fetch_all(pool).await?
        }))
    }
}

impl AuditedChange {
    /// Adds a key. Its spending and last use start empty; only [`Store::post`] changes them.
    pub async fn add_key(&mut self, key: &KeyRecord) -> Result<(), StoreError> {
        in_change!(self, tx => {
            sqlx::query(ADD)
                .bind(clean(&key.id))
                .bind(clean(&key.account_id))
                .bind(clean(&key.name))
                .bind(&key.hash)
                .bind(key.old_hash.as_deref())
                .bind(key.old_until.map(Micros::get))
                .bind(key.cap.map(Money::as_nanos))
                .bind(to_json(&key.models))
                .bind(key.expires.map(Micros::get))
                .bind(key.revoked.map(Micros::get))
                .bind(key.limits.rpm.map(i64::from))
                .bind(key.limits.tpm.map(i64::from))
                .bind(key.limits.concurrency.map(i64::from))
                .bind(to_json(&key.ips))
                .bind(key.budget.map(|budget| budget.limit.as_nanos()))
                .bind(key.budget.map(|budget| budget.period.word()))
                .bind(key.created.get())
                .bind(key.changed.get())
                .bind(key.created_by.as_deref().map(clean))
                .bind(key.scope.word())
                .bind(key.bounds.to_text())
                .bind(key.grants.to_text())
                .bind(key.surface.as_deref().map(clean))
                .execute(&mut *tx)
                .await
                .map_err(StoreError::naming("key id", "account"))?;
        });
        Ok(())
    }

    /// Revokes a key. Returns false if there is no such key or it is revoked already.
    pub async fn revoke_key(&mut self, id: &str, at: Micros) -> Result<bool, StoreError> {
        Ok(in_change!(self, tx => {
            sqlx::query(REVOKE).bind(clean(id)).bind(at.get()).execute(&mut *tx).await?.rows_affected()
        }) > 0)
    }

    /// Replaces the secret of a key. The previous secret stays valid until `old_until`. Returns
    /// false if there is no such key or it is revoked.
    pub async fn rotate_key(
        &mut self,
        id: &str,
        new_hash: &[u8],
        old_until: Micros,
        at: Micros,
    ) -> Result<bool, StoreError> {
        Ok(in_change!(self, tx => {
            sqlx::query(ROTATE)
                .bind(clean(id))
                .bind(at.get())
                .bind(new_hash)
                .bind(old_until.get())
                .execute(&mut *tx)
                .await?
                .rows_affected()
        }) > 0)
    }

    /// Replaces a stored hash by another one of the same secret. Returns false if the key no longer
    /// has it.
    pub async fn rehash_key(
        &mut self,
        id: &str,
        old: &[u8],
        new: &[u8],
        at: Micros,
    ) -> Result<bool, StoreError> {
        Ok(in_change!(self, tx => {
            sqlx::query(REHASH)
                .bind(clean(id))
                .bind(at.get())
                .bind(new)
                .bind(old)
                .execute(&mut *tx)
                .await?
                .rows_affected()
        }) > 0)
    }

    /// Writes the fields that an owner edits: name, cap, budget, models, expiry, limits, addresses,
    /// and the bounds of these.
    /// `changed` is the time of the edit. Returns false if there is no such key.
    ///
    /// Other fields of the record, the scope and its part included, are ignored, so that an edit made from an old copy does not
    /// revert a revocation, a rotation or any spending.
    pub async fn update_key(&mut self, key: &KeyRecord) -> Result<bool, StoreError> {
        Ok(in_change!(self, tx => {
            sqlx::query(UPDATE)
                .bind(clean(&key.id))
                .bind(key.changed.get())
                .bind(clean(&key.name))
                .bind(key.cap.map(Money::as_nanos))
                .bind(to_json(&key.models))
                .bind(key.expires.map(Micros::get))
                .bind(key.limits.rpm.map(i64::from))
                .bind(key.limits.tpm.map(i64::from))
                .bind(key.limits.concurrency.map(i64::from))
                .bind(to_json(&key.ips))
                .bind(key.budget.map(|budget| budget.limit.as_nanos()))
                .bind(key.budget.map(|budget| budget.period.word()))
                .bind(key.bounds.to_text())
                .execute(&mut *tx)
                .await?
                .rows_affected()
        }) > 0)
    }
}

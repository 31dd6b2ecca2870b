//! API keys: who may spend how much on what. Only a keyed hash of the secret is stored.
//!
//! Every edit of a key moves its `changed` forward, even when the editor's clock is behind, so that
//! other nodes that ask for what changed find it. Spending does not count as an edit.

use canon::Money;
use ledger::{Micros, Period};
use sqlx::FromRow;

use crate::db::{clean, from_json, number, on_reader, on_writer, to_json, unknown_word};
use crate::{BudgetTerms, Limits, Store, StoreError};

/// The life of an admin key whose maker names none.
const ADMIN_KEY_LIFE: Micros = 30 * 24 * 3_600 * 1_000_000;

/// The purpose a key was made for. It never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyScope {
    /// Calls of models. Administration is refused.
    Call,
    /// Administration, with the rights of the key's account. Calls are refused.
    Admin,
}

impl KeyScope {
    /// Every scope.
    pub const ALL: [Self; 2] = [Self::Call, Self::Admin];

    /// The word in records, JSON and flags.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Admin => "admin",
        }
    }

    /// The scope with that word.
    pub fn by_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.word() == word)
    }
}

/// A key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRecord {
    /// The public id, part of the key's text.
    pub id: String,
    /// Whose key it is.
    pub account_id: String,
    /// Which account made it, where that is known.
    pub made_by: Option<String>,
    /// What its owner calls it.
    pub name: String,
    /// The purpose it was made for.
    pub scope: KeyScope,
    /// The keyed hash of the secret.
    pub hash: Vec<u8>,
    /// The hash before the last rotation.
    pub old_hash: Option<Vec<u8>>,
    /// Until when the old hash is good.
    pub old_until: Option<Micros>,
    /// What it may spend in all; `None` is unlimited.
    pub cap: Option<Money>,
    /// What it has spent: always the sum of its ledger rows.
    pub spent: Money,
    /// What it may spend in every period, besides.
    pub budget: Option<BudgetTerms>,
    /// The models it may use; empty is all.
    pub models: Vec<String>,
    /// When it ends.
    pub expires: Option<Micros>,
    /// When it was revoked.
    pub revoked: Option<Micros>,
    /// How fast it may be used.
    pub limits: Limits,
    /// Where it may be used from; empty is anywhere.
    pub ips: Vec<String>,
    /// When it was made.
    pub created: Micros,
    /// When it was last edited.
    pub changed: Micros,
    /// When its latest settled call ended.
    pub last_used: Option<Micros>,
}

impl KeyRecord {
    /// Makes a new record one for administration. It has no money to spend, so that a route that
    /// forgot to look at the scope would still spend nothing, and it ends after 30 days unless its
    /// maker named a time.
    pub fn make_admin(&mut self, now: Micros) {
        self.scope = KeyScope::Admin;
        self.cap = Some(Money::ZERO);
        self.expires = self.expires.or(Some(now.saturating_add(ADMIN_KEY_LIFE)));
    }
}

/// A key as a row.
#[derive(FromRow)]
struct KeyRow {
    id: String,
    account_id: String,
    made_by: Option<String>,
    name: String,
    scope: String,
    hash: Vec<u8>,
    old_hash: Option<Vec<u8>>,
    old_until: Option<Micros>,
    cap: Option<i64>,
    spent: i64,
    models: String,
    expires: Option<Micros>,
    revoked: Option<Micros>,
    rpm: Option<i64>,
    tpm: Option<i64>,
    concurrency: Option<i64>,
    ips: String,
    budget: Option<i64>,
    budget_period: Option<String>,
    created: Micros,
    changed: Micros,
    last_used: Option<Micros>,
}

/// The two columns of a budget, of which there are both or none.
fn budget(most: Option<i64>, period: Option<String>) -> Result<Option<BudgetTerms>, sqlx::Error> {
    let (Some(most), Some(word)) = (most, period) else { return Ok(None) };
    let period = Period::by_word(&word).ok_or_else(|| unknown_word(&word))?;
    Ok(Some(BudgetTerms { most: Money::nanos(most), period }))
}

impl TryFrom<KeyRow> for KeyRecord {
    type Error = sqlx::Error;

    fn try_from(row: KeyRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            id: row.id,
            account_id: row.account_id,
            made_by: row.made_by,
            name: row.name,
            scope: KeyScope::by_word(&row.scope).ok_or_else(|| unknown_word(&row.scope))?,
            hash: row.hash,
            old_hash: row.old_hash,
            old_until: row.old_until,
            cap: row.cap.map(Money::nanos),
            spent: Money::nanos(row.spent),
            budget: budget(row.budget, row.budget_period)?,
            models: from_json(&row.models)?,
            expires: row.expires,
            revoked: row.revoked,
            limits: Limits {
                rpm: row.rpm.map(number).transpose()?,
                tpm: row.tpm.map(number).transpose()?,
                concurrency: row.concurrency.map(number).transpose()?,
            },
            ips: from_json(&row.ips)?,
            created: row.created,
            changed: row.changed,
            last_used: row.last_used,
        })
    }
}

/// The columns of [`KeyRow`].
macro_rules! key_columns {
    () => {
        "id, account_id, name, hash, old_hash, old_until, cap, spent, models, expires, revoked, \
         rpm, tpm, concurrency, ips, budget, budget_period, created, changed, last_used, made_by, \
         scope"
    };
}

/// The same to read them: a key of an account that is locked out counts as revoked, for as long as
/// it is.
macro_rules! key_selection {
    () => {
        "SELECT id, account_id, name, hash, old_hash, old_until, cap, spent, models, expires, \
         COALESCE(revoked, (SELECT a.changed FROM accounts a WHERE a.id = keys.account_id \
         AND a.disabled)) AS revoked, rpm, tpm, concurrency, ips, budget, budget_period, created, \
         changed, last_used, made_by, scope FROM keys"
    };
}

/// What `changed` becomes by an edit at the time `$2`.
macro_rules! moved_on {
    () => {
        "changed = CASE WHEN changed < $2 THEN $2 ELSE changed + 1 END"
    };
}

const ADD: &str = concat!(
    "INSERT INTO keys (",
    key_columns!(),
    ") VALUES ($1, $2, $3, $4, $5, $6, $7, 0, $8, $9, $10, $11, $12, $13, $14, $15, $16, \
     $17, $18, NULL, $19, $20)"
);
const GET: &str = concat!(key_selection!(), " WHERE id = $1");
const ALL: &str = concat!(key_selection!(), " ORDER BY created, id");
const OF: &str = concat!(key_selection!(), " WHERE account_id = $1 ORDER BY created, id");
const MADE_BY: &str = concat!(key_selection!(), " WHERE made_by = $1 ORDER BY created, id");
const CHANGED_SINCE: &str = concat!(key_selection!(), " WHERE changed >= $1 ORDER BY changed, id");
const REVOKE: &str =
    concat!("UPDATE keys SET revoked = $2, ", moved_on!(), " WHERE id = $1 AND revoked IS NULL");
const ROTATE: &str = concat!(
    "UPDATE keys SET old_hash = hash, hash = $3, old_until = $4, ",
    moved_on!(),
    " WHERE id = $1 AND revoked IS NULL"
);
const UPDATE: &str = concat!(
    "UPDATE keys SET name = $3, cap = $4, models = $5, expires = $6, rpm = $7, tpm = $8, \
     concurrency = $9, ips = $10, budget = $11, budget_period = $12, ",
    moved_on!(),
    " WHERE id = $1"
);

fn records(rows: Vec<KeyRow>) -> Result<Vec<KeyRecord>, StoreError> {
    Ok(rows.into_iter().map(KeyRecord::try_from).collect::<Result<_, _>>()?)
}

impl Store {
    /// Adds a key. It has spent nothing and was never used, whatever the record says: only
    /// [`Store::post`] moves these two.
    pub async fn add_key(&self, key: &KeyRecord) -> Result<(), StoreError> {
        on_writer!(&self.db, pool => {
            sqlx::query(ADD)
                .bind(clean(&key.id))
                .bind(clean(&key.account_id))
                .bind(clean(&key.name))
                .bind(&key.hash)
                .bind(key.old_hash.as_deref())
                .bind(key.old_until)
                .bind(key.cap.map(Money::as_nanos))
                .bind(to_json(&key.models))
                .bind(key.expires)
                .bind(key.revoked)
                .bind(key.limits.rpm.map(i64::from))
                .bind(key.limits.tpm.map(i64::from))
                .bind(key.limits.concurrency.map(i64::from))
                .bind(to_json(&key.ips))
                .bind(key.budget.map(|budget| budget.most.as_nanos()))
                .bind(key.budget.map(|budget| budget.period.word()))
                .bind(key.created)
                .bind(key.changed)
                .bind(key.made_by.as_deref().map(clean))
                .bind(key.scope.word())
                .execute(pool)
                .await
                .map_err(StoreError::naming("key id", "account"))?;
        });
        Ok(())
    }

    /// The key with that public id.
    pub async fn key(&self, id: &str) -> Result<Option<KeyRecord>, StoreError> {
        let row: Option<KeyRow> = on_reader!(&self.db, pool => {
            sqlx::query_as(GET).bind(clean(id)).fetch_optional(pool).await?
        });
        Ok(row.map(KeyRecord::try_from).transpose()?)
    }

    /// Every key, the oldest first.
    pub async fn keys(&self) -> Result<Vec<KeyRecord>, StoreError> {
        records(on_reader!(&self.db, pool => sqlx::query_as(ALL).fetch_all(pool).await?))
    }

    /// An account's keys, the oldest first.
    pub async fn keys_of(&self, account_id: &str) -> Result<Vec<KeyRecord>, StoreError> {
        records(on_reader!(&self.db, pool => {
            sqlx::query_as(OF).bind(clean(account_id)).fetch_all(pool).await?
        }))
    }

    /// The keys somebody made, whomever they belong to, the oldest first.
    pub async fn keys_made_by(&self, account_id: &str) -> Result<Vec<KeyRecord>, StoreError> {
        records(on_reader!(&self.db, pool => {
            sqlx::query_as(MADE_BY).bind(clean(account_id)).fetch_all(pool).await?
        }))
    }

    /// The keys made or edited at that time or later, in the order of their edits.
    ///
    /// Times come from the editors' clocks: ask with an overlap of as much as these may differ.
    pub async fn keys_changed_since(&self, since: Micros) -> Result<Vec<KeyRecord>, StoreError> {
        records(on_reader!(&self.db, pool => {
            sqlx::query_as(CHANGED_SINCE).bind(since).fetch_all(pool).await?
        }))
    }

    /// Revokes a key. False when there is none or it was revoked before: the first time stands.
    pub async fn revoke_key(&self, id: &str, at: Micros) -> Result<bool, StoreError> {
        Ok(on_writer!(&self.db, pool => {
            sqlx::query(REVOKE).bind(clean(id)).bind(at).execute(pool).await?.rows_affected()
        }) > 0)
    }

    /// Gives a key another secret; the one before stays good until `old_until`, any older one does
    /// not. False when there is no such key or it is revoked.
    pub async fn rotate_key(
        &self,
        id: &str,
        new_hash: &[u8],
        old_until: Micros,
        at: Micros,
    ) -> Result<bool, StoreError> {
        Ok(on_writer!(&self.db, pool => {
            sqlx::query(ROTATE)
                .bind(clean(id))
                .bind(at)
                .bind(new_hash)
                .bind(old_until)
                .execute(pool)
                .await?
                .rows_affected()
        }) > 0)
    }

    /// Writes what an owner edits: name, cap, budget, models, expiry, limits, addresses. `changed` is the
    /// time of the edit. False when there is no such key.
    ///
    /// Everything else in the record is ignored, the scope included, so that an edit made from an old copy undoes
    /// neither a revocation nor a rotation nor any spending.
    pub async fn update_key(&self, key: &KeyRecord) -> Result<bool, StoreError> {
        Ok(on_writer!(&self.db, pool => {
            sqlx::query(UPDATE)
                .bind(clean(&key.id))
                .bind(key.changed)
                .bind(clean(&key.name))
                .bind(key.cap.map(Money::as_nanos))
                .bind(to_json(&key.models))
                .bind(key.expires)
                .bind(key.limits.rpm.map(i64::from))
                .bind(key.limits.tpm.map(i64::from))
                .bind(key.limits.concurrency.map(i64::from))
                .bind(to_json(&key.ips))
                .bind(key.budget.map(|budget| budget.most.as_nanos()))
                .bind(key.budget.map(|budget| budget.period.word()))
                .execute(pool)
                .await?
                .rows_affected()
        }) > 0)
    }
}

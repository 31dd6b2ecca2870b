//! Leases: slices of a cap, each subtracted for one node before that node may spend it.
//!
//! Every change begins by locking the key's row, and only then touches leases, entries and holds:
//! whoever works on one key waits in one line, and two who work on several, in the order of the
//! ids, cannot block each other. Times are of the database's own clock.

use canon::Money;
use ledger::{
    ALIVE, Ask, Exposed, GiveBack, Granted, KeyStanding, LEASE, LeaseNow, Node, OpenCall, Report,
    Tidings, Token, WANTED, slice,
};
use sqlx::QueryBuilder;

use crate::account_caps::{LOCK_ACCOUNT, LockedAccount, SUM, WANT_ACCOUNT};
use crate::db::{clean, in_transaction, on_reader};
use crate::{Store, StoreError};

/// Rows per statement.
const ROWS: usize = 100;

pub(crate) const LOCK_KEY: &str = "UPDATE keys SET leased = leased WHERE id = $1 \
    RETURNING cap, spent, leased, wanted, (SELECT now FROM store_clock)";
pub(crate) const UNLEASE: &str = "UPDATE keys SET leased = leased - $2 WHERE id = $1";
const EPOCH: &str = "SELECT epoch FROM nodes WHERE id = $1";
const LIVE: &str = "SELECT COUNT(*) FROM nodes WHERE seen > (SELECT now FROM store_clock) - $1";
// A sum of BIGINTs is no BIGINT in PostgreSQL.
const MINE: &str = "SELECT CAST(COALESCE(SUM(amount), 0) AS BIGINT) FROM leases \
    WHERE key_id = $1 AND node_id = $2";
/// The condition that keeps a cap, the key's and its account's: one write, on one row.
const RESERVE: &str = "UPDATE keys SET leased = leased + $2 \
    WHERE id = $1 AND (cap IS NULL OR spent + leased + $2 <= cap) \
    AND NOT EXISTS (SELECT 1 FROM account_caps a WHERE a.account_id = keys.account_id \
    AND a.cap < $2 + (SELECT SUM(k.spent + k.leased) FROM keys k \
    WHERE k.account_id = a.account_id))";
const ADD: &str = "INSERT INTO leases \
    (key_id, node_id, amount, version, expires, exposed, told, closed) \
    VALUES ($1, $2, $3, 1, (SELECT now FROM store_clock) + $4, $5, $6, 0) \
    ON CONFLICT (key_id, node_id) WHERE closed = 0 DO UPDATE SET \
    amount = leases.amount + excluded.amount, version = leases.version + 1, \
    expires = excluded.expires, exposed = CASE WHEN leases.told < excluded.told \
    THEN excluded.exposed ELSE leases.exposed END, told = CASE WHEN leases.told < excluded.told \
    THEN excluded.told ELSE leases.told END RETURNING token, version";
const WANT: &str = "UPDATE keys SET wanted = (SELECT now FROM store_clock) + $2 WHERE id = $1";
const SEEN: &str = "UPDATE nodes SET seen = (SELECT now FROM store_clock) \
    WHERE id = $1 AND epoch = $2";
const RENEW: &str = "UPDATE leases SET expires = (SELECT now FROM store_clock) + $2 \
    WHERE node_id = $1 AND closed = 0";
const EXPOSE: &str = "UPDATE leases SET exposed = $2, told = $3 \
    WHERE token = $1 AND told < $3 AND closed = 0";
const LEASES: &str = "SELECT l.token, l.version, l.key_id, l.amount, l.closed, k.cap, k.spent, \
    k.leased, k.wanted, (SELECT now FROM store_clock), a.cap, COALESCE(a.wanted, 0), \
    CASE WHEN a.cap IS NULL THEN 0 ELSE (SELECT CAST(SUM(o.spent + o.leased) AS BIGINT) \
    FROM keys o WHERE o.account_id = k.account_id) END \
    FROM leases l JOIN keys k ON k.id = l.key_id \
    LEFT JOIN account_caps a ON a.account_id = k.account_id \
    WHERE l.node_id = $1 ORDER BY l.key_id";
const KEY_OF: &str = "SELECT key_id FROM leases WHERE token = $1";
const AT_VERSION: &str = "SELECT amount FROM leases WHERE token = $1 AND version = $2";
const KEEP: &str = "UPDATE leases SET amount = $2 WHERE token = $1";
const CLOSE: &str = "DELETE FROM leases WHERE token = $1";
const STANDING: &str = "SELECT cap, spent, (SELECT CAST(COALESCE(SUM(amount), 0) AS BIGINT) \
    FROM holds WHERE key_id = $1 AND node_id <> $2) FROM keys WHERE id = $1";
pub(crate) const TOTALS: &str = "SELECT k.id, k.cap, k.spent, k.leased, COALESCE(l.amount, 0) FROM keys k \
    LEFT JOIN (SELECT key_id, CAST(SUM(amount) AS BIGINT) AS amount FROM leases GROUP BY key_id) l \
    ON l.key_id = k.id WHERE k.leased <> 0 OR l.amount <> 0 OR k.cap IS NOT NULL ORDER BY 1";

/// What a key's leases add up to, beside what the key says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseTotal {
    /// The key.
    pub key_id: String,
    /// What it may spend in all.
    pub cap: Option<Money>,
    /// What it has spent.
    pub spent: Money,
    /// What it says is leased.
    pub leased: Money,
    /// What its leases add up to.
    pub leases: Money,
}

/// How many keys of an account count as sharing its money, at the most: few are busy at a time.
const MOST_SHARERS: i64 = 4;

/// How the account of a key stands.
struct Above {
    account_id: String,
    left: i64,
    leased: i64,
    keys: i64,
    wanted: i64,
}

/// How a key's row stood when it was locked: cap, spent, leased, wanted, the time.
pub(crate) type Locked = (Option<i64>, i64, i64, i64, i64);

impl Store {
    /// Adds to a node's lease of a key; `None` when the node is not who it says.
    pub(crate) async fn lease(&self, ask: &Ask) -> Result<Option<Granted>, StoreError> {
        let key_id = clean(&ask.key_id);
        let granted = in_transaction!(&self.db, tx: Kind => {
            let locked: Option<Locked> =
                sqlx::query_as(LOCK_KEY).bind(&key_id).fetch_optional(&mut *tx).await?;
            let Some((cap, spent, leased, wanted, now)) = locked else {
                return Err(StoreError::Missing("key"));
            };
            let account: Option<LockedAccount> =
                sqlx::query_as(LOCK_ACCOUNT).bind(&key_id).fetch_optional(&mut *tx).await?;
            let account = match account {
                Some((account_id, Some(cap), wanted)) => {
                    let (spent, leased, keys): (i64, i64, i64) =
                        sqlx::query_as(SUM).bind(&account_id).fetch_one(&mut *tx).await?;
                    let left = cap.saturating_sub(spent).saturating_sub(leased);
                    Some(Above { account_id, left, leased, keys, wanted })
                }
                Some((_, None, _)) | None => None,
            };
            if cap.is_none() && account.is_none() {
                return Ok(Some(Granted::Unlimited));
            }
            let Node { id, epoch } = &ask.node;
            let entered: Option<i64> =
                sqlx::query_scalar(EPOCH).bind(id).fetch_optional(&mut *tx).await?;
            if entered != Some(*epoch) {
                return Ok(None);
            }
            let nodes: i64 = sqlx::query_scalar(LIVE).bind(ALIVE).fetch_one(&mut *tx).await?;
            let nodes = u32::try_from(nodes).unwrap_or(u32::MAX);
            let own = cap.map(|cap| cap.saturating_sub(spent).saturating_sub(leased));
            let left = own.into_iter().chain(account.as_ref().map(|above| above.left)).min();
            let left = left.unwrap_or_default();
            // The keys of an account share its money like nodes share a key's.
            let keys = account.as_ref().map_or(1, |above| above.keys.clamp(1, MOST_SHARERS));
            let sharers = nodes.saturating_mul(u32::try_from(keys).unwrap_or(1));
            let wanted = wanted.max(account.as_ref().map_or(0, |above| above.wanted)) > now;
            match slice(ask, Money::nanos(left), sharers, wanted) {
                Some(amount) => {
                    let reserved = sqlx::query(RESERVE).bind(&key_id).bind(amount.as_nanos());
                    if reserved.execute(&mut *tx).await?.rows_affected() != 1 {
                        return Err(StoreError::Other("a lease would pass its cap".to_owned()));
                    }
                    let (token, version): (i64, i64) = sqlx::query_as(ADD)
                        .bind(&key_id)
                        .bind(id)
                        .bind(amount.as_nanos())
                        .bind(LEASE)
                        .bind(ask.exposed.as_nanos())
                        .bind(ask.seq)
                        .fetch_one(&mut *tx)
                        .await?;
                    Granted::Lease { token, version, amount }
                }
                None => {
                    let mine: i64 = sqlx::query_scalar(MINE)
                        .bind(&key_id)
                        .bind(id)
                        .fetch_one(&mut *tx)
                        .await?;
                    let all = account.as_ref().map_or(leased, |above| above.leased.max(leased));
                    let elsewhere = all.saturating_sub(mine);
                    if elsewhere > 0 && !ask.ahead {
                        sqlx::query(WANT).bind(&key_id).bind(WANTED).execute(&mut *tx).await?;
                        if let Some(Above { account_id, .. }) = &account {
                            let want = sqlx::query(WANT_ACCOUNT).bind(account_id).bind(WANTED);
                            want.execute(&mut *tx).await?;
                        }
                    }
                    Granted::Short {
                        left: Money::nanos(left.max(0)),
                        elsewhere: Money::nanos(elsewhere),
                    }
                }
            }
        });
        Ok(Some(granted))
    }

    /// Takes a node's word and renews its leases; `None` when the node is not who it says.
    pub(crate) async fn hear(&self, report: &Report) -> Result<Option<Tidings>, StoreError> {
        let Report { node: Node { id, epoch }, calls, exposed, seq } = report;
        let mut rows = calls
            .iter()
            .map(|call| Ok((call, serde_json::to_string(call)?)))
            .collect::<Result<Vec<(&OpenCall, String)>, serde_json::Error>>()
            .map_err(|e| StoreError::Other(e.to_string()))?;
        rows.sort_by(|(a, _), (b, _)| a.held.request_id.cmp(&b.held.request_id));
        let mut exposed = exposed.clone();
        exposed.sort_by_key(|exposed| exposed.token);
        type Row =
            (Token, i64, String, i64, i64, Option<i64>, i64, i64, i64, i64, Option<i64>, i64, i64);
        let (leases, nodes): (Vec<Row>, i64) = in_transaction!(&self.db, tx: Kind => {
            let seen = sqlx::query(SEEN).bind(id).bind(epoch).execute(&mut *tx).await?;
            if seen.rows_affected() != 1 {
                return Ok(None);
            }
            sqlx::query(RENEW).bind(id).bind(LEASE).execute(&mut *tx).await?;
            for Exposed { token, amount } in &exposed {
                let expose = sqlx::query(EXPOSE).bind(token).bind(amount.as_nanos()).bind(seq);
                expose.execute(&mut *tx).await?;
            }
            for chunk in rows.chunks(ROWS) {
                let mut query = QueryBuilder::<Kind>::new(
                    "INSERT INTO holds (request_id, node_id, key_id, lease, amount, body) ",
                );
                query.push_values(chunk, |mut row, (call, body)| {
                    row.push_bind(clean(&call.held.request_id).into_owned())
                        .push_bind(id.clone())
                        .push_bind(clean(&call.held.key_id).into_owned())
                        .push_bind(call.held.lease)
                        .push_bind(call.held.amount.as_nanos())
                        .push_bind(clean(body).into_owned());
                });
                query.push(" ON CONFLICT (request_id) DO UPDATE SET body = excluded.body");
                query.build().persistent(false).execute(&mut *tx).await?;
            }
            let leases = sqlx::query_as(LEASES).bind(id).fetch_all(&mut *tx).await?;
            (leases, sqlx::query_scalar(LIVE).bind(ALIVE).fetch_one(&mut *tx).await?)
        });
        let leases = leases.into_iter().map(|row| {
            let (token, version, key_id, amount, closed, cap, spent, leased, wanted, now, a, b, c) =
                row;
            let (account_cap, account_wanted, account_sum) = (a, b, c);
            // A cap that was lowered below what is spent and leased wants everything back, and so
            // does one that is no more.
            let none = cap.is_none() && account_cap.is_none();
            let above = none
                || cap.is_some_and(|cap| spent.saturating_add(leased) > cap)
                || account_cap.is_some_and(|cap| account_sum > cap);
            let wanted = wanted.max(account_wanted) > now || above;
            let (amount, closed) = (Money::nanos(amount), closed != 0);
            LeaseNow { token, version, key_id, amount, wanted, closed }
        });
        let nodes = u32::try_from(nodes).unwrap_or(u32::MAX);
        Ok(Some(Tidings { nodes, leases: leases.collect() }))
    }

    /// Takes back what a node does not need of a lease.
    pub(crate) async fn unlease(&self, back: &GiveBack) -> Result<(), StoreError> {
        let GiveBack { token, version, keep } = *back;
        in_transaction!(&self.db, tx: Kind => {
            let key_id: Option<String> =
                sqlx::query_scalar(KEY_OF).bind(token).fetch_optional(&mut *tx).await?;
            let Some(key_id) = key_id else { return Ok(()) };
            let _: Option<Locked> =
                sqlx::query_as(LOCK_KEY).bind(&key_id).fetch_optional(&mut *tx).await?;
            let amount: Option<i64> = sqlx::query_scalar(AT_VERSION)
                .bind(token)
                .bind(version)
                .fetch_optional(&mut *tx)
                .await?;
            let Some(amount) = amount else { return Ok(()) };
            let back = amount.saturating_sub(keep.as_nanos());
            if back > 0 {
                sqlx::query(UNLEASE).bind(&key_id).bind(back).execute(&mut *tx).await?;
            }
            if keep <= Money::ZERO {
                sqlx::query(CLOSE).bind(token).execute(&mut *tx).await?;
            } else if back > 0 {
                sqlx::query(KEEP).bind(token).bind(keep.as_nanos()).execute(&mut *tx).await?;
            }
        });
        Ok(())
    }

    /// How a key stands, but for what that node has set aside.
    pub(crate) async fn key_standing(
        &self,
        key_id: &str,
        node: &Node,
    ) -> Result<Option<KeyStanding>, StoreError> {
        let row: Option<(Option<i64>, i64, i64)> = on_reader!(&self.db, pool => {
            sqlx::query_as(STANDING).bind(clean(key_id)).bind(&node.id).fetch_optional(pool).await?
        });
        Ok(row.map(|(cap, spent, elsewhere)| KeyStanding {
            cap: cap.map(Money::nanos),
            spent: Money::nanos(spent),
            held_elsewhere: Money::nanos(elsewhere),
        }))
    }

    /// What the leases of every capped or leased key add up to, beside what the key says, all of
    /// one instant.
    pub async fn lease_totals(&self) -> Result<Vec<LeaseTotal>, StoreError> {
        let rows: Vec<(String, Option<i64>, i64, i64, i64)> =
            on_reader!(&self.db, pool => sqlx::query_as(TOTALS).fetch_all(pool).await?);
        let totals = rows.into_iter().map(|(key_id, cap, spent, leased, leases)| LeaseTotal {
            key_id,
            cap: cap.map(Money::nanos),
            spent: Money::nanos(spent),
            leased: Money::nanos(leased),
            leases: Money::nanos(leases),
        });
        Ok(totals.collect())
    }
}

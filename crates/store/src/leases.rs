//! Leases: slices of a cap, each subtracted for one node before that node may spend it.
//!
//! Every transaction first locks the key's row, and only then touches leases, entries and holds. So
//! transactions on one key run one after the other, and transactions on several keys, which lock
//! them in the order of their ids, cannot deadlock. Times are those of the database's clock.

use canon::{Micros, Money};
use ledger::{
    ALIVE_WINDOW, BudgetPeriod, BudgetStatus, HeartbeatReply, HeartbeatReport, KeyStatus,
    LEASE_DURATION, LeaseGrant, LeaseRequest, LeaseReturn, LeaseState, MoneyBounds, Node, OpenCall,
    RECALL_WINDOW, SpendStatus, UnleasedCost, UnreportedSpend, lease_slice,
};
use sqlx::QueryBuilder;

use crate::account_caps::{AccountSums, LOCK_ACCOUNT, LockedAccount, SUM, WANT_ACCOUNT};
use crate::db::{clean, in_transaction, on_reader};
use crate::keys::budget;
use crate::lease_bounds::{LEASES, LOCK_KEY, LeaseRow, LimitedAccount, LockedKey, SPENT_BETWEEN};
use crate::rollup::Scope;
use crate::row::row;
use crate::{BudgetTerms, Store, StoreError};

/// Rows per statement.
const ROWS_PER_STATEMENT: usize = 100;

pub(crate) const UNLEASE: &str = "UPDATE keys SET leased = leased - $2 WHERE id = $1";
const EPOCH: &str = "SELECT epoch FROM nodes WHERE id = $1";
const LIVE_NODES: &str =
    "SELECT COUNT(*) FROM nodes WHERE seen > (SELECT now FROM store_clock) - $1";
// PostgreSQL returns NUMERIC for a sum of BIGINTs.
const LEASED_TO_NODE: &str = "SELECT CAST(COALESCE(SUM(amount), 0) AS BIGINT) FROM leases \
    WHERE key_id = $1 AND node_id = $2";
/// The condition that keeps the caps of the key and its account, in one write on one row. Budgets are
/// kept by the locks on both rows: until the end of the transaction others can only turn leased money
/// into spent money.
const RESERVE: &str = "UPDATE keys SET leased = leased + $2 \
    WHERE id = $1 AND (cap IS NULL OR spent + leased + $2 <= cap) \
    AND NOT EXISTS (SELECT 1 FROM account_caps a WHERE a.account_id = keys.account_id \
    AND a.cap < $2 + (SELECT SUM(k.spent + k.leased) FROM keys k \
    WHERE k.account_id = a.account_id))";
const ADD: &str = "INSERT INTO leases \
    (token, key_id, node_id, amount, version, expires, exposed, told, closed) \
    VALUES ((SELECT token FROM lease_token), $1, $2, $3, 1, (SELECT now FROM store_clock) + $4, $5, $6, 0) \
    ON CONFLICT (key_id, node_id) WHERE closed = 0 DO UPDATE SET \
    amount = leases.amount + excluded.amount, version = leases.version + 1, \
    expires = excluded.expires, exposed = CASE WHEN leases.told < excluded.told \
    THEN excluded.exposed ELSE leases.exposed END, told = CASE WHEN leases.told < excluded.told \
    THEN excluded.told ELSE leases.told END RETURNING token, version";
/// Money of calls without a lease that other nodes have reported, of a key and of its account.
const UNLEASED_ELSEWHERE: &str = "SELECT \
    CAST(COALESCE(SUM(CASE WHEN h.key_id = $1 THEN h.amount ELSE 0 END), 0) AS BIGINT), \
    CAST(COALESCE(SUM(h.amount), 0) AS BIGINT) FROM holds h JOIN keys o ON o.id = h.key_id \
    WHERE h.lease IS NULL AND h.node_id <> $2 \
    AND o.account_id = (SELECT account_id FROM keys WHERE id = $1)";
const WANT: &str = "UPDATE keys SET wanted = (SELECT now FROM store_clock) + $2 WHERE id = $1";
const SEEN: &str = "UPDATE nodes SET seen = (SELECT now FROM store_clock) \
    WHERE id = $1 AND epoch = $2";
const RENEW: &str = "UPDATE leases SET expires = (SELECT now FROM store_clock) + $2 \
    WHERE node_id = $1 AND closed = 0";
const EXPOSE: &str = "UPDATE leases SET exposed = $2, told = $3 \
    WHERE token = $1 AND told < $3 AND closed = 0";
const KEY_OF: &str = "SELECT key_id FROM leases WHERE token = $1";
const AT_VERSION: &str = "SELECT amount FROM leases WHERE token = $1 AND version = $2";
const KEEP: &str = "UPDATE leases SET amount = $2 WHERE token = $1";
const CLOSE: &str = "DELETE FROM leases WHERE token = $1";
const STANDING: &str = "SELECT k.cap, k.spent, k.account_id, k.budget, k.budget_period, \
    a.budget AS account_budget, a.budget_period AS account_period, \
    (SELECT now FROM store_clock) AS now, \
    (SELECT CAST(COALESCE(SUM(amount), 0) AS BIGINT) \
    FROM holds WHERE key_id = $1 AND node_id <> $2) AS elsewhere, \
    (SELECT CAST(COALESCE(SUM(h.amount), 0) AS BIGINT) FROM holds h JOIN keys o ON o.id = h.key_id \
    WHERE o.account_id = k.account_id AND h.node_id <> $2) AS account_elsewhere \
    FROM keys k LEFT JOIN account_caps a ON a.account_id = k.account_id WHERE k.id = $1";
pub(crate) const TOTALS: &str = "SELECT k.id, k.cap, k.spent, k.leased, \
    COALESCE(l.amount, 0) AS leases FROM keys k \
    LEFT JOIN (SELECT key_id, CAST(SUM(amount) AS BIGINT) AS amount FROM leases GROUP BY key_id) l \
    ON l.key_id = k.id WHERE k.leased <> 0 OR l.amount <> 0 OR k.cap IS NOT NULL ORDER BY 1";

row! {
    /// Sum of a key's leases, with the amount in the key's record.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct LeaseTotal {
        /// The key.
        pub key_id: String as "id",
        /// Limit of the spending.
        pub cap: Option<Money>,
        /// Money spent.
        pub spent: Money,
        /// Leased money in the key's record.
        pub leased: Money,
        /// Sum of its leases.
        pub leases: Money,
    }
}

/// Maximum number of keys that count as sharing an account's money. Few keys are busy at a time.
const MAX_SHARING_KEYS: i64 = 4;

row! {
    struct StandingRow {
        cap: Option<Money>,
        spent: Money,
        account_id: String,
        budget: Option<Money>,
        budget_period: Option<String>,
        account_budget: Option<Money>,
        account_period: Option<String>,
        now: Micros,
        elsewhere: Money,
        account_elsewhere: Money,
    }
}

impl Store {
    /// Adds to a node's lease of a key. Returns `None` if another process has the node's name.
    pub(crate) async fn grant_lease(
        &self,
        request: &LeaseRequest,
    ) -> Result<Option<LeaseGrant>, StoreError> {
        let key_id = clean(&request.key_id);
        let granted = in_transaction!(&self.db, tx: Kind => {
            let locked: Option<LockedKey> =
                sqlx::query_as(LOCK_KEY).bind(&key_id).fetch_optional(&mut *tx).await?;
            let Some(key) = locked else {
                return Err(StoreError::Missing("key"));
            };
            let account: Option<LockedAccount> =
                sqlx::query_as(LOCK_ACCOUNT).bind(&key_id).fetch_optional(&mut *tx).await?;
            let account = match account.filter(LockedAccount::is_limited) {
                Some(account) => {
                    let since = account.budget()?.map(|terms| terms.period.counted_since(key.now));
                    let sums: AccountSums = sqlx::query_as(SUM)
                        .bind(&account.account_id)
                        .bind(since.unwrap_or(Micros::MAX).get())
                        .fetch_one(&mut *tx)
                        .await?;
                    Some(LimitedAccount { account, sums })
                }
                None => None,
            };
            let key_budget = match key.budget()? {
                Some(terms) => {
                    let since = terms.period.counted_since(key.now);
                    let spent: i64 = sqlx::query_scalar(SPENT_BETWEEN)
                        .bind(Scope::KeySum.word())
                        .bind(&key_id)
                        .bind(since.get())
                        .bind(i64::MAX)
                        .fetch_one(&mut *tx)
                        .await?;
                    Some(key.budget_state(terms, Money::from_nanos(spent), key.leased))
                }
                None => None,
            };
            let account_budget = match &account {
                Some(LimitedAccount { account, sums }) => account
                    .budget()?
                    .map(|terms| key.budget_state(terms, sums.budget_spent, sums.leased)),
                None => None,
            };
            let bounds = MoneyBounds {
                key_cap: key.cap_state(),
                account_cap: account.as_ref().and_then(LimitedAccount::cap_state),
                key_budget,
                account_budget,
            };
            let (of_key, of_account): (i64, i64) = sqlx::query_as(UNLEASED_ELSEWHERE)
                .bind(&key_id)
                .bind(&request.node.id)
                .fetch_one(&mut *tx)
                .await?;
            let unleased = request.unleased.plus(UnleasedCost {
                key: Money::from_nanos(of_key),
                account: Money::from_nanos(of_account),
            });
            let Some(left) = bounds.left_to_lease(&unleased) else {
                return Ok(Some(LeaseGrant::Unlimited));
            };
            let Node { id, epoch } = &request.node;
            let entered: Option<i64> =
                sqlx::query_scalar(EPOCH).bind(id).fetch_optional(&mut *tx).await?;
            if entered != Some(*epoch) {
                return Ok(None);
            }
            let nodes = sqlx::query_scalar(LIVE_NODES).bind(ALIVE_WINDOW.get());
            let nodes: i64 = nodes.fetch_one(&mut *tx).await?;
            let nodes = u32::try_from(nodes).unwrap_or(u32::MAX);
            // The keys of an account share its money as nodes share a key's money.
            let keys = account.as_ref().map_or(1, |above| above.sums.keys.clamp(1, MAX_SHARING_KEYS));
            let sharers = nodes.saturating_mul(u32::try_from(keys).unwrap_or(1));
            let asked = account.as_ref().map_or(Micros::ZERO, |above| above.account.wanted);
            let wanted = asked.max(key.wanted) > key.now;
            match lease_slice(request, left, sharers, wanted) {
                Some(amount) => {
                    let reserved = sqlx::query(RESERVE).bind(&key_id).bind(amount.as_nanos());
                    if reserved.execute(&mut *tx).await?.rows_affected() != 1 {
                        return Err(StoreError::Other("a lease would exceed its cap".to_owned()));
                    }
                    let (token, version): (i64, i64) = sqlx::query_as(ADD)
                        .bind(&key_id)
                        .bind(id)
                        .bind(amount.as_nanos())
                        .bind(LEASE_DURATION.get())
                        .bind(request.unreported.as_nanos())
                        .bind(request.seq)
                        .fetch_one(&mut *tx)
                        .await?;
                    LeaseGrant::Lease { token, version, amount }
                }
                None => {
                    let mine: i64 = sqlx::query_scalar(LEASED_TO_NODE)
                        .bind(&key_id)
                        .bind(id)
                        .fetch_one(&mut *tx)
                        .await?;
                    let all = account.as_ref().map_or(Money::ZERO, |above| above.sums.leased);
                    let elsewhere = all.max(key.leased).saturating_sub(Money::from_nanos(mine));
                    if elsewhere > Money::ZERO && !request.ahead {
                        let until = RECALL_WINDOW.get();
                        sqlx::query(WANT).bind(&key_id).bind(until).execute(&mut *tx).await?;
                        if let Some(LimitedAccount { account, .. }) = &account {
                            let want = sqlx::query(WANT_ACCOUNT).bind(&account.account_id).bind(until);
                            want.execute(&mut *tx).await?;
                        }
                    }
                    LeaseGrant::Short(bounds)
                }
            }
        });
        Ok(Some(granted))
    }

    /// Records a heartbeat and renews the node's leases. Returns `None` if another process has the
    /// node's name.
    pub(crate) async fn record_heartbeat(
        &self,
        report: &HeartbeatReport,
    ) -> Result<Option<HeartbeatReply>, StoreError> {
        let HeartbeatReport { node: Node { id, epoch }, calls, unreported, seq } = report;
        let mut rows = calls
            .iter()
            .map(|call| Ok((call, serde_json::to_string(call)?)))
            .collect::<Result<Vec<(&OpenCall, String)>, serde_json::Error>>()
            .map_err(|e| StoreError::Other(e.to_string()))?;
        rows.sort_by(|(a, _), (b, _)| a.held.request_id.cmp(&b.held.request_id));
        let mut unreported = unreported.clone();
        unreported.sort_by_key(|spend| spend.token);
        let (now, leases, nodes): (i64, Vec<LeaseRow>, i64) = in_transaction!(&self.db, tx: Kind => {
            let seen = sqlx::query(SEEN).bind(id).bind(epoch).execute(&mut *tx).await?;
            if seen.rows_affected() != 1 {
                return Ok(None);
            }
            sqlx::query(RENEW).bind(id).bind(LEASE_DURATION.get()).execute(&mut *tx).await?;
            for UnreportedSpend { token, amount } in &unreported {
                let expose = sqlx::query(EXPOSE).bind(token).bind(amount.as_nanos()).bind(seq);
                expose.execute(&mut *tx).await?;
            }
            for chunk in rows.chunks(ROWS_PER_STATEMENT) {
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
            let now: i64 =
                sqlx::query_scalar("SELECT now FROM store_clock").fetch_one(&mut *tx).await?;
            let mut leases = sqlx::query_as(LEASES).bind(id);
            for period in BudgetPeriod::ALL {
                leases = leases.bind(period.counted_since(Micros::new(now)).get());
            }
            let leases = leases.fetch_all(&mut *tx).await?;
            let nodes = sqlx::query_scalar(LIVE_NODES).bind(ALIVE_WINDOW.get());
            (now, leases, nodes.fetch_one(&mut *tx).await?)
        });
        let nodes = u32::try_from(nodes).unwrap_or(u32::MAX);
        Ok(Some(HeartbeatReply {
            now: Micros::new(now),
            nodes,
            leases: leases.into_iter().map(LeaseState::from).collect(),
        }))
    }

    /// Takes back money of a lease.
    pub(crate) async fn return_lease(&self, back: &LeaseReturn) -> Result<(), StoreError> {
        let LeaseReturn { token, version, keep } = *back;
        in_transaction!(&self.db, tx: Kind => {
            let key_id: Option<String> =
                sqlx::query_scalar(KEY_OF).bind(token).fetch_optional(&mut *tx).await?;
            let Some(key_id) = key_id else { return Ok(()) };
            let _: Option<LockedKey> =
                sqlx::query_as(LOCK_KEY).bind(&key_id).fetch_optional(&mut *tx).await?;
            let amount: Option<i64> = sqlx::query_scalar(AT_VERSION)
                .bind(token)
                .bind(version)
                .fetch_optional(&mut *tx)
                .await?;
            let Some(amount) = amount else { return Ok(()) };
            let back = Money::from_nanos(amount).saturating_sub(keep);
            if back > Money::ZERO {
                sqlx::query(UNLEASE).bind(&key_id).bind(back.as_nanos()).execute(&mut *tx).await?;
            }
            if keep <= Money::ZERO {
                sqlx::query(CLOSE).bind(token).execute(&mut *tx).await?;
            } else if back > Money::ZERO {
                sqlx::query(KEEP).bind(token).bind(keep.as_nanos()).execute(&mut *tx).await?;
            }
        });
        Ok(())
    }

    /// Returns the spending of a key, without the holds of that node.
    pub(crate) async fn key_spending(
        &self,
        key_id: &str,
        node: &Node,
    ) -> Result<Option<KeyStatus>, StoreError> {
        let row: Option<StandingRow> = on_reader!(&self.db, pool => {
            sqlx::query_as(STANDING).bind(clean(key_id)).bind(&node.id).fetch_optional(pool).await?
        });
        let Some(row) = row else { return Ok(None) };
        let StandingRow { cap, spent, now, elsewhere, account_elsewhere, .. } = row;
        let mut status =
            KeyStatus { cap, spent, held_elsewhere: elsewhere, budget: None, account_budget: None };
        let state = |terms: BudgetTerms, spent, held| BudgetStatus {
            money: SpendStatus { cap: Some(terms.limit), spent, held },
            period: terms.period,
            resets: terms.period.end(now),
        };
        if let Some(terms) = budget(row.budget, row.budget_period)? {
            let (_, spent) = self.spent_in(key_id, terms.period, now).await?;
            status.budget = Some(state(terms, spent, Money::ZERO));
        }
        if let Some(terms) = budget(row.account_budget, row.account_period)? {
            let (_, spent) = self.account_spent_in(&row.account_id, terms.period, now).await?;
            status.account_budget = Some(state(terms, spent, account_elsewhere));
        }
        Ok(Some(status))
    }

    /// Returns the sum of the leases of every capped or leased key, read in one statement.
    pub async fn lease_totals(&self) -> Result<Vec<LeaseTotal>, StoreError> {
        Ok(on_reader!(&self.db, pool => sqlx::query_as(TOTALS).fetch_all(pool).await?))
    }
}

//! Erasure of the personal data of an account. Its id, its keys and its sums stay, because money depends on them.
//!
//! The first step locks the account, revokes its keys, erases its names and notes the erasure, in one audited
//! change. The rest follows in small transactions: stored bodies, addresses in the audit log, and the sessions
//! that callers named in their calls. A process that is killed meanwhile leaves the note, and the next sweep of
//! any node goes on.

use std::collections::BTreeMap;

use canon::{Micros, SharedText};
use ledger::{CallTags, LedgerEntry};
use sqlx::AssertSqlSafe;

use crate::audited_change::in_change;
use crate::block_decoding::decode_calls;
use crate::call_block::encode_calls;
use crate::call_sessions::{SessionTotals, add_sessions};
use crate::call_writes::OwnerKind;
use crate::compact_text::compact;
use crate::corrections::{overlay, read_body, read_corrections};
use crate::db::{Db, clean, in_transaction, on_reader, on_writer};
use crate::entries::OWNED;
use crate::erased_names::{address_of, names_address};
use crate::scim_users::TOUCH_GROUPS;
use crate::sqlite_pools::OVERWRITE_IN_PLACE;
use crate::{Account, AuditedChange, Store, StoreError};

/// Rows that one transaction deletes, and blocks that one transaction rewrites.
const BATCH_ROWS: i64 = 200;
const BATCH_BLOCKS: i64 = 50;
/// Lines of the audit log that one transaction looks at.
const BATCH_LINES: i64 = 5_000;

/// Numbers of rows by table.
pub type ErasedCounts = BTreeMap<&'static str, u64>;

/// An erasure that was begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErasurePlan {
    /// The account.
    pub account_id: String,
    /// The time of the first step.
    pub begun: Micros,
    /// The time at which nothing was left; `None` before.
    pub done: Option<Micros>,
}

/// The keys of the account, and those of programs that its person signed in for others.
macro_rules! own_keys {
    () => {
        "(account_id = $1 OR (surface IS NOT NULL AND made_by = $1))"
    };
}

/// Rows of an account, by table. Keys are not deleted, but lose their names.
const COUNTS: [(&str, &str); 20] = [
    ("sessions", "SELECT COUNT(*) FROM sessions WHERE account_id = $1"),
    ("known_devices", "SELECT COUNT(*) FROM known_devices WHERE account_id = $1"),
    ("links", "SELECT COUNT(*) FROM links WHERE account_id = $1"),
    ("identities", "SELECT COUNT(*) FROM identities WHERE account_id = $1"),
    ("factors", "SELECT COUNT(*) FROM factors WHERE account_id = $1"),
    ("members", "SELECT COUNT(*) FROM members WHERE account_id = $1"),
    ("mcp_grants", "SELECT COUNT(*) FROM mcp_grants WHERE account_id = $1"),
    ("scim_users", "SELECT COUNT(*) FROM scim_users WHERE account_id = $1"),
    ("alert_settings", "SELECT COUNT(*) FROM alert_settings WHERE account_id = $1"),
    ("alerts", "SELECT COUNT(*) FROM all_alerts WHERE account_id = $1"),
    ("keys", concat!("SELECT COUNT(*) FROM keys WHERE ", own_keys!())),
    (
        "refresh_tokens",
        concat!(
            "SELECT COUNT(*) FROM refresh_tokens WHERE key_id IN (SELECT id FROM keys WHERE ",
            own_keys!(),
            ")"
        ),
    ),
    ("stored_answers", "SELECT COUNT(*) FROM kept WHERE account_id = $1"),
    ("idempotent_replies", "SELECT COUNT(*) FROM idempotent WHERE account_id = $1"),
    ("tasks", "SELECT COUNT(*) FROM tasks WHERE account_id = $1"),
    ("cached_contents", "SELECT COUNT(*) FROM cached_contents WHERE account_id = $1"),
    ("conversations", "SELECT COUNT(*) FROM conversations WHERE account_id = $1"),
    ("provider_objects", "SELECT COUNT(*) FROM provider_objects WHERE account_id = $1"),
    ("call_sessions", "SELECT COUNT(*) FROM call_sessions WHERE account_id = $1"),
    (
        "audit_lines",
        "SELECT COUNT(*) FROM audits WHERE (actor = $1 OR subject = $1) \
         AND (address IS NOT NULL OR agent IS NOT NULL OR detail <> '')",
    ),
];

/// Deletions of the first step.
const DROP_SIGN_INS: [(&str, &str); 13] = [
    ("sessions", "DELETE FROM sessions WHERE account_id = $1"),
    ("known_devices", "DELETE FROM known_devices WHERE account_id = $1"),
    ("links", "DELETE FROM links WHERE account_id = $1"),
    ("identities", "DELETE FROM identities WHERE account_id = $1"),
    ("factors", "DELETE FROM factors WHERE account_id = $1"),
    ("members", "DELETE FROM members WHERE account_id = $1"),
    ("mcp_grants", "DELETE FROM mcp_grants WHERE account_id = $1"),
    // With its addresses and its memberships of groups.
    ("scim_users", "DELETE FROM scim_users WHERE account_id = $1"),
    ("alert_settings", "DELETE FROM alert_settings WHERE account_id = $1"),
    ("alerts", "DELETE FROM alerts WHERE account_id = $1"),
    ("alert_events", "DELETE FROM alert_events WHERE account_id = $1"),
    (
        "refresh_tokens",
        concat!(
            "DELETE FROM refresh_tokens WHERE key_id IN (SELECT id FROM keys WHERE ",
            own_keys!(),
            ")"
        ),
    ),
    ("logins", "DELETE FROM logins WHERE account_id = $1"),
];
/// Invitations and challenges with an address.
const NAMING_LINKS: &str =
    "SELECT hash, data FROM links WHERE account_id IS NULL AND data LIKE '%@%'";
const DROP_LINK: &str = "DELETE FROM links WHERE hash = $1";
const ERASE_KEYS: &str = concat!(
    "UPDATE keys SET name = 'erased', ips = '[]', revoked = COALESCE(revoked, $2), \
     changed = CASE WHEN changed < $2 THEN $2 ELSE changed + 1 END WHERE ",
    own_keys!()
);
const ERASE_ACCOUNT: &str = "UPDATE accounts SET username = $2, email = NULL, password_hash = NULL, \
    disabled = $3, changed = $4 WHERE id = $1 AND kind = 'person'";
const BEGIN: &str = "INSERT INTO erasures (account_id, begun) VALUES ($1, $2) \
    ON CONFLICT (account_id) DO UPDATE SET done = NULL";

/// Deletions of bodies, some rows at a time.
const DROP_BODIES: [(&str, &str); 6] = [
    (
        "stored_answers",
        "DELETE FROM kept WHERE id IN (SELECT id FROM kept WHERE account_id = $1 LIMIT $2)",
    ),
    (
        "idempotent_replies",
        "DELETE FROM idempotent WHERE account_id = $1 AND name IN \
         (SELECT name FROM idempotent WHERE account_id = $1 LIMIT $2)",
    ),
    (
        "cached_contents",
        "DELETE FROM cached_contents WHERE id IN \
         (SELECT id FROM cached_contents WHERE account_id = $1 LIMIT $2)",
    ),
    (
        "conversations",
        "DELETE FROM conversations WHERE id IN \
         (SELECT id FROM conversations WHERE account_id = $1 LIMIT $2)",
    ),
    (
        "provider_objects",
        "DELETE FROM provider_objects WHERE account_id = $1 AND hash IN \
         (SELECT hash FROM provider_objects WHERE account_id = $1 LIMIT $2)",
    ),
    (
        "tasks",
        "DELETE FROM tasks WHERE id IN (SELECT id FROM tasks WHERE account_id = $1 LIMIT $2)",
    ),
];
/// Addresses and user agents of the person, and of strangers who tried to sign in as the person. Details of lines
/// about the account and its keys name what was erased.
const ERASE_LINES: &str = concat!(
    "UPDATE audits SET \
     address = CASE WHEN actor IN ($1, 'anonymous') THEN NULL ELSE address END, \
     agent = CASE WHEN actor IN ($1, 'anonymous') THEN NULL ELSE agent END, \
     detail = CASE WHEN action = 'account.erase' THEN detail WHEN subject = $1 \
     OR subject IN (SELECT id FROM keys WHERE ",
    own_keys!(),
    ") THEN '' ELSE detail END \
     WHERE id > $2 AND id <= $3 AND (actor = $1 OR subject = $1 \
     OR subject IN (SELECT id FROM keys WHERE ",
    own_keys!(),
    "))"
);
const DROP_SUMS: [&str; 2] = [
    "DELETE FROM call_sessions WHERE account_id = $1 AND calls = COALESCE((SELECT a.calls \
     FROM archived_sessions a WHERE a.session = call_sessions.session \
     AND a.key_id = call_sessions.key_id AND a.model = call_sessions.model \
     AND a.lane = call_sessions.lane), 0)",
    "DELETE FROM archived_sessions WHERE account_id = $1 AND NOT EXISTS (SELECT 1 FROM call_sessions c \
     WHERE c.session = archived_sessions.session AND c.key_id = archived_sessions.key_id \
     AND c.model = archived_sessions.model AND c.lane = archived_sessions.lane)",
];

impl AuditedChange {
    /// Erases the names and the ways to sign in of an account, locks it, revokes its keys and notes that the rest
    /// is to be erased. Returns the numbers of rows.
    pub async fn erase_account(
        &mut self,
        account: &Account,
        at: Micros,
    ) -> Result<ErasedCounts, StoreError> {
        let mut counts = ErasedCounts::new();
        let id = clean(&account.id);
        in_change!(self, tx => {
            sqlx::query(TOUCH_GROUPS).bind(&*id).bind(at.get()).execute(&mut *tx).await?;
            for (table, statement) in DROP_SIGN_INS {
                let dropped = sqlx::query(statement).bind(&*id).execute(&mut *tx).await?;
                counts.insert(table, dropped.rows_affected());
            }
            if let Some(address) = address_of(account) {
                let links: Vec<(Vec<u8>, String)> =
                    sqlx::query_as(NAMING_LINKS).fetch_all(&mut *tx).await?;
                for (hash, _) in links.iter().filter(|(_, data)| names_address(data, &address)) {
                    let dropped = sqlx::query(DROP_LINK).bind(hash).execute(&mut *tx).await?;
                    *counts.entry("links").or_default() += dropped.rows_affected();
                }
            }
            let keys = sqlx::query(ERASE_KEYS).bind(&*id).bind(at.get()).execute(&mut *tx).await?;
            counts.insert("keys", keys.rows_affected());
            sqlx::query(ERASE_ACCOUNT)
                .bind(&*id)
                .bind(format!("erased-{id}"))
                .bind(true)
                .bind(at.get())
                .execute(&mut *tx)
                .await?;
            sqlx::query(BEGIN).bind(&*id).bind(at.get()).execute(&mut *tx).await?;
        });
        Ok(counts)
    }
}

impl Store {
    /// Returns the numbers of rows of an account that an erasure would delete or change.
    pub async fn erasure_counts(&self, account_id: &str) -> Result<ErasedCounts, StoreError> {
        let mut counts = ErasedCounts::new();
        for (table, statement) in COUNTS {
            let count: i64 = on_reader!(&self.db, pool => {
                sqlx::query_scalar(statement).bind(clean(account_id)).fetch_one(pool).await?
            });
            counts.insert(table, count.unsigned_abs());
        }
        Ok(counts)
    }

    /// Returns the erasures that are not done, or were done at that time or later.
    pub async fn erasures(&self, since: Micros) -> Result<Vec<ErasurePlan>, StoreError> {
        let rows: Vec<(String, i64, Option<i64>)> = on_reader!(&self.db, pool => {
            let plans = "SELECT account_id, begun, done FROM erasures WHERE done IS NULL OR done >= $1";
            sqlx::query_as(plans).bind(since.get()).fetch_all(pool).await?
        });
        let plan = |(account_id, begun, done): (String, i64, Option<i64>)| ErasurePlan {
            account_id,
            begun: Micros::new(begun),
            done: done.map(Micros::new),
        };
        Ok(rows.into_iter().map(plan).collect())
    }

    /// Makes SQLite overwrite whole pages that it frees too, or stops that
    /// (<https://www.sqlite.org/pragma.html#pragma_secure_delete>). Rows within pages are always overwritten. The end
    /// also empties the write-ahead log, as far as no reader needs it. PostgreSQL overwrites deleted rows after its
    /// next vacuum.
    pub async fn overwrite_deleted(&self, is_on: bool) -> Result<(), StoreError> {
        let Db::Sqlite(database) = &self.db else { return Ok(()) };
        let writer = database.writer().await?;
        let mode = if is_on { "ON" } else { OVERWRITE_IN_PLACE };
        let pragma = AssertSqlSafe(format!("PRAGMA secure_delete = {mode}"));
        sqlx::query(pragma).fetch_all(&writer).await?;
        if !is_on {
            sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").fetch_all(&writer).await?;
        }
        Ok(())
    }

    /// Erases the rest of an account, whose first step is done. It may be repeated: later passes find what calls
    /// left that were still running. The caller deletes files before, and holds the turn of retention, because
    /// blocks of calls must not be archived meanwhile.
    pub async fn erase_rest(
        &self,
        account_id: &str,
        at: Micros,
    ) -> Result<ErasedCounts, StoreError> {
        let mut counts = ErasedCounts::new();
        for (table, statement) in DROP_BODIES {
            loop {
                let dropped = on_writer!(&self.db, pool => {
                    let drop = sqlx::query(statement).bind(clean(account_id)).bind(BATCH_ROWS);
                    drop.execute(pool).await?.rows_affected()
                });
                *counts.entry(table).or_default() += dropped;
                if dropped == 0 {
                    break;
                }
            }
        }
        let last = self.last_audit_id().await?;
        let mut from = 0;
        while from < last {
            let to = from.saturating_add(BATCH_LINES);
            let lines = on_writer!(&self.db, pool => {
                let lines = sqlx::query(ERASE_LINES).bind(clean(account_id)).bind(from).bind(to);
                lines.execute(pool).await?.rows_affected()
            });
            *counts.entry("audit_lines").or_default() += lines;
            from = to;
        }
        let sessions: i64 = on_reader!(&self.db, pool => {
            let sessions = "SELECT COUNT(*) FROM call_sessions WHERE account_id = $1";
            sqlx::query_scalar(sessions).bind(clean(account_id)).fetch_one(pool).await?
        });
        let calls = self.erase_call_labels(account_id).await?;
        if calls > 0 {
            counts.insert("calls", calls);
        }
        if sessions > 0 {
            counts.insert("call_sessions", sessions.unsigned_abs());
        }
        on_writer!(&self.db, pool => {
            let done = "UPDATE erasures SET done = $2 WHERE account_id = $1 AND done IS NULL";
            sqlx::query(done).bind(clean(account_id)).bind(at.get()).execute(pool).await?;
        });
        Ok(counts)
    }

    /// Erases the sessions, end users and tags that callers named in the calls of an account, and the sums of the
    /// sessions. Returns the number of calls.
    async fn erase_call_labels(&self, account_id: &str) -> Result<u64, StoreError> {
        let mut erased = 0;
        let (mut ended, mut block) = (i64::MIN, i64::MIN);
        loop {
            let page: Vec<(i64, i64, Vec<u8>)> = on_reader!(&self.db, pool => {
                let page = sqlx::query_as(OWNED).bind(OwnerKind::Account.number());
                let page = page.bind(compact(&clean(account_id))).bind(ended).bind(block);
                page.bind(BATCH_BLOCKS).fetch_all(pool).await?
            });
            let Some((last_ended, last_block, _)) = page.last() else { break };
            (ended, block) = (*last_ended, *last_block);
            let has_labels = |body: &Vec<u8>| -> Result<bool, sqlx::Error> {
                Ok(decode_calls(body)?.iter().any(|call| is_named(call, account_id)))
            };
            let mut blocks = Vec::new();
            for (_, id, body) in &page {
                if has_labels(body)? {
                    blocks.push(*id);
                }
            }
            erased += self.rewrite_blocks(account_id, &blocks).await?;
        }
        in_transaction!(&self.db, tx: Kind => {
            for statement in DROP_SUMS {
                sqlx::query(statement).bind(clean(account_id)).execute(&mut *tx).await?;
            }
        });
        Ok(erased)
    }

    /// Rewrites blocks, and the corrections of their calls, without what callers of an account named.
    async fn rewrite_blocks(&self, account_id: &str, ids: &[i64]) -> Result<u64, StoreError> {
        let mut erased = 0;
        if ids.is_empty() {
            return Ok(0);
        }
        in_transaction!(&self.db, tx: Kind => {
            let mut sums = crate::call_sessions::SessionSums::new();
            let mut now: Vec<LedgerEntry> = Vec::new();
            for id in ids {
                let body = sqlx::query_scalar("SELECT body FROM call_blocks WHERE id = $1").bind(id);
                let body: Option<Vec<u8>> = body.fetch_optional(&mut *tx).await?;
                let Some(body) = body else { continue };
                let mut calls = decode_calls(&body)?;
                let mut own: Vec<LedgerEntry> =
                    calls.iter().filter(|call| is_named(call, account_id)).cloned().collect();
                let corrections = read_corrections!(Kind, &mut *tx, own);
                overlay(&mut own, corrections)?;
                now.append(&mut own);
                for call in calls.iter_mut().filter(|call| is_named(call, account_id)) {
                    *call = without_labels(std::mem::take(call));
                    erased += 1;
                }
                let calls: Vec<&LedgerEntry> = calls.iter().collect();
                sqlx::query("INSERT INTO erased_blocks (block) VALUES ($1)")
                    .bind(id)
                    .execute(&mut *tx)
                    .await?;
                sqlx::query("UPDATE call_blocks SET body = $2 WHERE id = $1")
                    .bind(id)
                    .bind(encode_calls(&calls))
                    .execute(&mut *tx)
                    .await?;
            }
            for call in &now {
                if !call.session.is_empty() {
                    let LedgerEntry { session, key_id, model, lane, account_id, .. } = call;
                    let key = [session, key_id, model, lane, account_id].map(|text| clean(text));
                    let totals = SessionTotals::of_call(call).negated();
                    sums.entry(key).or_default().add(&totals);
                }
                let corrections = "SELECT number, body FROM corrections WHERE request_id = $1";
                let corrections: Vec<(i64, String)> = sqlx::query_as(corrections)
                    .bind(clean(&call.request_id))
                    .fetch_all(&mut *tx)
                    .await?;
                if corrections.is_empty() {
                    continue;
                }
                sqlx::query("INSERT INTO erased_corrections (request_id) VALUES ($1)")
                    .bind(clean(&call.request_id))
                    .execute(&mut *tx)
                    .await?;
                for (number, body) in corrections {
                    let later = without_labels(read_body(&body)?);
                    let body = serde_json::to_string(&later).map_err(|e| {
                        StoreError::Other(format!("a correction cannot be encoded: {e}"))
                    })?;
                    let update = "UPDATE corrections SET body = $3 WHERE request_id = $1 AND number = $2";
                    sqlx::query(update)
                        .bind(clean(&call.request_id))
                        .bind(number)
                        .bind(body)
                        .execute(&mut *tx)
                        .await?;
                }
            }
            sqlx::query("DELETE FROM erased_blocks").execute(&mut *tx).await?;
            sqlx::query("DELETE FROM erased_corrections").execute(&mut *tx).await?;
            add_sessions!(Kind, tx, sums);
        });
        Ok(erased)
    }
}

/// Returns true for a call of the account in which its caller named a session, an end user or tags.
fn is_named(call: &LedgerEntry, account_id: &str) -> bool {
    let LedgerEntry { session, end_user, tags, .. } = call;
    let is_labelled = !session.is_empty() || !end_user.is_empty() || !tags.is_empty();
    is_labelled && *call.account_id == *account_id
}

/// Returns the call without what its caller named.
fn without_labels(call: LedgerEntry) -> LedgerEntry {
    let (session, end_user) = (SharedText::default(), SharedText::default());
    LedgerEntry { session, end_user, tags: CallTags::default(), ..call }
}

//! Rows of calls from before they were stored in blocks. Opening a database moves them.

use canon::{Micros, Money, SharedText, Usage};
use ledger::{CallOutcome, CallTags, EndedBy, LedgerEntry, SettlementKnowledge};

use crate::StoreError;
use crate::call_writes::{choose_numbers, insert_calls};
use crate::db::{Db, from_json, in_transaction, on_writer, unknown_word};
use crate::row::row;

/// Rows that one transaction moves.
const MOVED_ROWS: i64 = 5_000;

row! {
    struct EntryRow {
        request_id: String,
        key_id: String,
        account_id: String,
        started: Micros,
        ended: Micros,
        first_byte_us: Option<Micros>,
        dialect: String,
        model: String,
        lane: String,
        attempts: u32,
        stream: bool,
        status: u16,
        outcome: String,
        input: u64,
        cache_read: u64,
        cache_write: u64,
        cache_write_long: u64,
        input_audio: u64,
        input_image: u64,
        output: u64,
        thinking: u64,
        output_audio: u64,
        output_image: u64,
        searches: u64,
        estimated: bool,
        cost: Money,
        borne: Money,
        price_version: String,
        losses: String,
        failed: String,
        held: Option<Money>,
        images: u64,
        seconds: u64,
        service: String,
        ended_by: String,
        charges: String,
        told: String,
        reasons: String,
        knowledge: Option<i64>,
    }
}

impl TryFrom<EntryRow> for LedgerEntry {
    type Error = sqlx::Error;

    fn try_from(row: EntryRow) -> Result<Self, sqlx::Error> {
        let outcome =
            CallOutcome::by_word(&row.outcome).ok_or_else(|| unknown_word(&row.outcome))?;
        Ok(Self {
            request_id: row.request_id.into(),
            key_id: row.key_id.into(),
            account_id: row.account_id.into(),
            started: row.started,
            ended: row.ended,
            first_byte_us: row.first_byte_us,
            dialect: row.dialect.into(),
            model: row.model.into(),
            lane: row.lane.into(),
            attempts: row.attempts,
            stream: row.stream,
            status: row.status,
            outcome,
            // Rows from before the column was added have an empty word.
            ended_by: match row.ended_by.as_str() {
                "" => outcome.usual_end(),
                word => EndedBy::by_word(word).ok_or_else(|| unknown_word(word))?,
            },
            usage: Usage {
                input: row.input,
                cache_read: row.cache_read,
                cache_write: row.cache_write,
                cache_write_long: row.cache_write_long,
                input_audio: row.input_audio,
                input_image: row.input_image,
                // Not stored, because it is billed as text.
                input_video: 0,
                output: row.output,
                thinking: row.thinking,
                output_audio: row.output_audio,
                output_image: row.output_image,
                searches: row.searches,
                images: row.images,
                seconds: row.seconds,
                // Uses of tools stand in the charges.
                ..Usage::default()
            },
            estimated: row.estimated,
            cost: row.cost,
            absorbed: row.borne,
            price_version: row.price_version.into(),
            losses: from_json(&row.losses)?,
            failed: from_json(&row.failed)?,
            held: row.held,
            service: row.service.into(),
            charges: from_json(&row.charges)?,
            told: match row.told.as_str() {
                "" => None,
                told => {
                    Some(serde_json::from_str(told).map_err(|e| sqlx::Error::Decode(e.into()))?)
                }
            },
            reasons: from_json(&row.reasons)?,
            // Rows from before the column was added have none.
            knowledge: match (row.knowledge, outcome) {
                (Some(rank), _) => SettlementKnowledge::by_rank(rank)
                    .ok_or_else(|| unknown_word(&rank.to_string()))?,
                (None, CallOutcome::Recovered) => SettlementKnowledge::Reported,
                (
                    None,
                    CallOutcome::Done
                    | CallOutcome::CallerLeft
                    | CallOutcome::BrokeOff
                    | CallOutcome::Failed,
                ) => SettlementKnowledge::Settled,
            },
            session: SharedText::default(),
            end_user: SharedText::default(),
            tags: CallTags::default(),
            error: None,
        })
    }
}

const ANY: &str = "SELECT COUNT(*) FROM (SELECT 1 FROM old_entries LIMIT 1) one";
// Another node may move rows at the same time.
const LOCK: &str = "LOCK TABLE old_entries IN EXCLUSIVE MODE";
const FIRST: &str = "SELECT request_id, key_id, account_id, started, ended, first_byte_us, dialect, \
    model, lane, attempts, stream, status, outcome, input, cache_read, cache_write, \
    cache_write_long, input_audio, input_image, output, thinking, output_audio, output_image, \
    searches, estimated, cost, borne, price_version, losses, failed, held, images, seconds, service, \
    ended_by, charges, told, reasons, knowledge FROM old_entries ORDER BY ended, request_id LIMIT $1";
const FORGET: &str = "DELETE FROM old_entries WHERE (ended, request_id) <= ($1, $2)";

/// Moves all rows into blocks. A process that is killed meanwhile goes on at its next start; no call can
/// be posted before, so none is posted twice.
pub(crate) async fn move_old_entries(db: &Db) -> Result<(), StoreError> {
    // On the connection that is open already.
    let any: i64 = on_writer!(db, pool => sqlx::query_scalar(ANY).fetch_one(pool).await?);
    if any == 0 {
        return Ok(());
    }
    tracing::info!("calls are moved into their new form, which takes up to a minute for a million");
    let mut moved = 0_usize;
    loop {
        let count = in_transaction!(db, tx: Kind => {
            if matches!(db, Db::Pg(_)) {
                sqlx::query(LOCK).execute(&mut *tx).await?;
            }
            let rows: Vec<EntryRow> =
                sqlx::query_as(FIRST).bind(MOVED_ROWS).fetch_all(&mut *tx).await?;
            let calls = rows.into_iter().map(LedgerEntry::try_from);
            let calls = calls.collect::<Result<Vec<LedgerEntry>, _>>()?;
            if let Some(last) = calls.last() {
                let calls: Vec<&LedgerEntry> = calls.iter().collect();
                let numbers = choose_numbers!(Kind, tx, &calls);
                let new = insert_calls!(Kind, tx, &calls, &numbers);
                if new != calls.len() as u64 {
                    return Err(StoreError::Other("a call is stored in both forms".to_owned()));
                }
                let forget = sqlx::query(FORGET).bind(last.ended.get()).bind(&*last.request_id);
                forget.execute(&mut *tx).await?;
            }
            calls.len()
        });
        moved += count;
        if count == 0 {
            tracing::info!("{moved} calls are moved");
            return Ok(());
        }
    }
}

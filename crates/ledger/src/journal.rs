//! The journal's records and what they say after a crash.
//!
//! A record is its length, a checksum and its fields by name, in MessagePack; earlier versions wrote
//! JSON, which is read too. A torn or damaged record ends its segment: what stands behind it was
//! never acknowledged to anyone.

use canon::{Money, Usage};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use crate::{Disk, Entry, Micros, Outcome, Settled, Token};

/// Something went wrong with the journal.
#[derive(Debug)]
pub struct JournalError(pub io::Error);

impl std::fmt::Display for JournalError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the journal cannot be used: {}", self.0)
    }
}

impl std::error::Error for JournalError {}

/// Failures of the journal since the start, for the log and the metrics. Many of them have no
/// caller to report to: a call that is settled stays settled when its record cannot be written.
#[derive(Debug, Default)]
pub struct JournalErrors(Mutex<(u64, String)>);

impl JournalErrors {
    /// Counts a failure and keeps its text.
    pub fn note(&self, error: &io::Error) {
        let mut state = self.0.lock();
        state.0 = state.0.saturating_add(1);
        state.1 = error.to_string();
    }

    /// The number of failures so far, and the text of the last one.
    pub fn so_far(&self) -> (u64, String) {
        self.0.lock().clone()
    }
}

/// What is known of a call when its money is set aside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The call's id.
    pub request_id: String,
    /// The key that pays.
    pub key_id: String,
    /// The account behind the key.
    pub account_id: String,
    /// When it was admitted.
    pub at: Micros,
    /// What is set aside.
    pub amount: Money,
    /// The format the caller speaks.
    pub dialect: String,
    /// The model asked for.
    pub model: String,
    /// Whether it is streamed.
    pub stream: bool,
    /// The price list in force.
    pub price_version: String,
    /// The lease the money comes from; none for a key without a cap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Token>,
}

/// How far a running call has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reached {
    /// The call's id.
    pub request_id: String,
    /// When.
    pub at: Micros,
    /// The lane that answers.
    pub lane: String,
    /// What was used so far, as far as is known.
    pub usage: Usage,
    /// What that costs.
    pub cost: Money,
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Record {
    /// Money was set aside.
    Held(Held),
    /// A call has come this far.
    Reached(Reached),
    /// A call was settled.
    Settled(Entry),
}

/// A record as it is written, without owning it. Reads back as [`Record`].
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Written<'a> {
    Held(&'a Held),
    Reached(&'a Reached),
    Settled(&'a Entry),
}

const HEAD: usize = 8;

/// A record as bytes.
pub(crate) fn frame(record: &Written<'_>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(768);
    bytes.resize(HEAD, 0);
    // Only what does not know its own length could fail to be written: there is none in a record.
    if rmp_serde::encode::write_named(&mut bytes, record).is_err() {
        return Vec::new();
    }
    let payload = bytes.get(HEAD..).unwrap_or_default();
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_le_bytes();
    let sum = crc32fast::hash(payload).to_le_bytes();
    for (slot, byte) in bytes.iter_mut().zip(length.into_iter().chain(sum)) {
        *slot = byte;
    }
    bytes
}

/// The records of a segment, and how many bytes at its end are torn.
pub(crate) fn records(bytes: &[u8]) -> (Vec<Record>, usize) {
    let mut records = Vec::new();
    let mut rest = bytes;
    while let Some((record, behind)) = next(rest) {
        records.push(record);
        rest = behind;
    }
    (records, rest.len())
}

fn next(bytes: &[u8]) -> Option<(Record, &[u8])> {
    let length = u32::from_le_bytes(*bytes.first_chunk::<4>()?) as usize;
    let sum = u32::from_le_bytes(*bytes.get(4..)?.first_chunk::<4>()?);
    let payload = bytes.get(HEAD..HEAD.checked_add(length)?)?;
    if crc32fast::hash(payload) != sum {
        return None;
    }
    // No record in MessagePack begins with the byte that every one in JSON begins with.
    let record = match payload.first()? {
        b'{' => serde_json::from_slice(payload).ok()?,
        _ => rmp_serde::from_slice(payload).ok()?,
    };
    Some((record, bytes.get(HEAD + length..)?))
}

/// What a journal says after a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Every call that was settled, or is settled now because the gateway died while it ran.
    pub settled: Vec<Settled>,
    /// How many calls were running when the gateway died.
    pub interrupted: usize,
    /// Bytes at the ends of segments that were torn or damaged.
    pub torn: usize,
}

/// A call that runs, as others have to know it to settle it should this node die.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenCall {
    /// What was set aside.
    pub held: Held,
    /// How far it has come.
    pub reached: Option<Reached>,
}

impl OpenCall {
    /// The entry of a call that was running when the gateway died: it pays for what had arrived.
    pub fn settle(self, now: Micros) -> Entry {
        let Held {
            request_id,
            key_id,
            account_id,
            at,
            amount,
            dialect,
            model,
            stream,
            price_version,
            lease: _,
        } = self.held;
        let (lane, usage, cost) = match self.reached {
            Some(Reached { lane, usage, cost, .. }) => {
                (lane, usage, cost.max(Money::ZERO).min(amount))
            }
            None => (String::new(), Usage::default(), Money::ZERO),
        };
        Entry {
            request_id,
            key_id,
            account_id,
            started: at,
            ended: now,
            first_byte_us: None,
            dialect,
            model,
            lane,
            attempts: 1,
            failed: Vec::new(),
            stream,
            status: 503,
            outcome: Outcome::Recovered,
            usage,
            estimated: true,
            cost,
            held: Some(amount),
            borne: Money::ZERO,
            price_version,
            losses: Vec::new(),
            ended_by: Outcome::Recovered.usual_end(),
            service: String::new(),
            charges: Vec::new(),
        }
    }
}

/// Reads every segment and settles what was left open.
pub(crate) fn recover(disk: &dyn Disk, now: Micros) -> io::Result<Recovered> {
    let mut found = Recovered::default();
    let mut open: HashMap<String, OpenCall> = HashMap::new();
    for segment in disk.segments()? {
        let (records, torn) = records(&disk.read(segment)?);
        found.torn += torn;
        for record in records {
            match record {
                Record::Held(held) => {
                    let call = OpenCall { held, reached: None };
                    open.insert(call.held.request_id.clone(), call);
                }
                Record::Reached(reached) => {
                    if let Some(call) = open.get_mut(&reached.request_id) {
                        call.reached = Some(reached);
                    }
                }
                Record::Settled(entry) => {
                    let lease = open.remove(&entry.request_id).and_then(|call| call.held.lease);
                    found.settled.push(Settled { entry: Arc::new(entry), lease, shown: true });
                }
            }
        }
    }
    found.interrupted = open.len();
    let mut left: Vec<OpenCall> = open.into_values().collect();
    left.sort_by(|a, b| (a.held.at, &a.held.request_id).cmp(&(b.held.at, &b.held.request_id)));
    found.settled.extend(left.into_iter().map(|call| {
        let lease = call.held.lease;
        Settled { entry: Arc::new(call.settle(now)), lease, shown: true }
    }));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held() -> Held {
        Held {
            request_id: "req-1".to_owned(),
            key_id: "k\u{0}\"ö".to_owned(),
            account_id: String::new(),
            at: i64::MIN,
            amount: Money::nanos(i64::MAX),
            dialect: "chat".to_owned(),
            model: "m".repeat(70_000),
            stream: true,
            price_version: "v".to_owned(),
            lease: None,
        }
    }

    fn all() -> Vec<Record> {
        let usage = Usage { input: u64::MAX, output: 300, ..Usage::default() };
        let reached = Reached {
            request_id: "req-1".to_owned(),
            at: 1,
            lane: "p/m".to_owned(),
            usage,
            cost: Money::nanos(-1),
        };
        let open = OpenCall { held: held(), reached: Some(reached.clone()) };
        let mut entry = open.settle(7);
        entry.failed = vec![crate::Try { status: Some(503), ..crate::Try::default() }];
        entry.losses = vec!["part.seal".to_owned()];
        entry.first_byte_us = Some(0);
        let plain = OpenCall { held: held(), reached: None }.settle(7);
        let settled = [entry, plain].map(Record::Settled);
        [Record::Held(held()), Record::Reached(reached)].into_iter().chain(settled).collect()
    }

    fn written(record: &Record) -> Vec<u8> {
        match record {
            Record::Held(held) => frame(&Written::Held(held)),
            Record::Reached(reached) => frame(&Written::Reached(reached)),
            Record::Settled(entry) => frame(&Written::Settled(entry)),
        }
    }

    /// A record as it was written when the journal spoke JSON.
    fn in_json(record: &Record) -> Vec<u8> {
        let payload = serde_json::to_vec(record).unwrap_or_default();
        let length = u32::try_from(payload.len()).unwrap_or_default().to_le_bytes();
        let sum = crc32fast::hash(&payload).to_le_bytes();
        [&length[..], &sum, &payload].concat()
    }

    #[test]
    fn what_is_written_is_read_and_so_is_what_was_written_before() {
        let all = all();
        let now: Vec<u8> = all.iter().flat_map(written).collect();
        assert_eq!(records(&now), (all.clone(), 0));
        let mixed: Vec<u8> =
            all.iter().flat_map(|one| [in_json(one), written(one)].concat()).collect();
        let twice: Vec<Record> = all.iter().flat_map(|one| [one.clone(), one.clone()]).collect();
        assert_eq!(records(&mixed), (twice, 0));
    }

    #[test]
    fn a_record_cut_or_changed_anywhere_is_the_end() {
        let whole = written(&Record::Held(Held { model: "m".to_owned(), ..held() }));
        for at in 0..whole.len() {
            let cut = whole.get(..at).unwrap_or_default();
            assert_eq!(records(cut), (vec![], at));
            let mut changed = whole.clone();
            if let Some(byte) = changed.get_mut(at) {
                *byte ^= 0x10;
            }
            assert_eq!(records(&changed), (vec![], whole.len()));
        }
    }
}

//! Records of the journal, and recovery from them after a crash.
//!
//! A record is framed by its length and a CRC-32 checksum. [`crate::record_encoding`] describes its bytes.
//! Earlier versions wrote all records as MessagePack or JSON, which is still read.
//! [`crate::segment_scan`] reads them.

use canon::{Micros, TimeHistogram};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use crate::disk::segment_name;
use crate::record_encoding::encode;
use crate::segment_manifest::SegmentManifest;
use crate::segment_scan::{SegmentScan, scan};
use crate::{
    DamagedSpan, Disk, HoldRecord, LedgerEntry, OpenCall, ProgressRecord, SettledCall,
    SettlementKnowledge,
};

/// The journal cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("the journal cannot be used: {0}")]
pub struct JournalError(pub io::Error);

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

    /// Returns the number of failures so far, and the text of the last one.
    pub fn so_far(&self) -> (u64, String) {
        self.0.lock().clone()
    }
}

/// Durations of accesses to the disk of the journal.
#[derive(Debug)]
pub struct JournalTimes {
    /// Writes of batches of records.
    pub write: TimeHistogram,
    /// Waits until a segment survives a crash of the machine.
    pub sync: TimeHistogram,
}

impl Default for JournalTimes {
    fn default() -> Self {
        Self { write: TimeHistogram::for_storage(), sync: TimeHistogram::for_storage() }
    }
}

/// One record. The variant names are part of the file format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JournalRecord {
    /// Money was reserved.
    Held(HoldRecord),
    /// A call has made progress.
    Reached(ProgressRecord),
    /// A call was settled.
    Settled(LedgerEntry),
    /// A reservation was taken back before its call began.
    Voided {
        /// The call's id.
        request_id: String,
    },
    /// The process was alive and had running calls.
    Alive {
        /// The moment.
        at: Micros,
    },
}

/// A borrowed record, for writing. It is read back as [`JournalRecord`].
pub(crate) enum Written<'a> {
    Held(&'a HoldRecord),
    Reached(&'a ProgressRecord),
    /// An entry without texts has those of its hold.
    Settled {
        entry: &'a LedgerEntry,
        held: Option<&'a HoldRecord>,
    },
    Voided(&'a str),
    Alive(Micros),
}

impl<'a> Written<'a> {
    /// The record of an entry with all its texts.
    pub(crate) const fn settled(entry: &'a LedgerEntry) -> Self {
        Self::Settled { entry, held: None }
    }
}

/// Length and checksum, four bytes each, little-endian.
pub(crate) const FRAME_HEADER_BYTES: usize = 8;
/// Size up to which the buffer of a thread is kept.
const MAX_KEPT_BYTES: usize = 16 << 10;

thread_local! {
    /// Buffer in which a thread encodes its records.
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Encodes a record with its frame and hands the bytes to `append`.
pub(crate) fn framed<T>(record: &Written<'_>, append: impl FnOnce(&[u8]) -> T) -> T {
    let mut bytes = BUFFER.take();
    bytes.clear();
    bytes.extend_from_slice(&[0; FRAME_HEADER_BYTES]);
    encode(record, &mut bytes);
    let payload = bytes.get(FRAME_HEADER_BYTES..).unwrap_or_default();
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    let sum = crc32fast::hash(payload);
    if let Some(header) = bytes.first_chunk_mut::<FRAME_HEADER_BYTES>() {
        *header = (u64::from(sum) << u32::BITS | u64::from(length)).to_le_bytes();
    }
    let appended = append(&bytes);
    if bytes.capacity() <= MAX_KEPT_BYTES {
        BUFFER.set(bytes);
    }
    appended
}

/// Calls that were found in the journal after a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveredCalls {
    /// Calls that were settled before the crash, and calls that recovery settled.
    pub settled: Vec<SettledCall>,
    /// Number of calls that were running when the process died.
    pub interrupted: usize,
    /// Number of bytes at the ends of segments of records that were not written completely.
    pub torn: usize,
    /// Damaged segments.
    pub damage: Vec<SegmentDamage>,
}

/// A damaged segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentDamage {
    /// Number of the segment.
    pub segment: u64,
    /// Name of its file.
    pub file: String,
    /// Bytes that are no record.
    pub spans: Vec<DamagedSpan>,
}

/// Reads every segment and settles the calls that were left open.
pub(crate) fn recover(disk: &dyn Disk, now: Micros) -> io::Result<RecoveredCalls> {
    let mut found = RecoveredCalls::default();
    let mut open: HashMap<String, OpenCall> = HashMap::new();
    // The last moment at which the process was alive.
    let mut died_at = None;
    // Before the segments, because a running process writes to them.
    let manifest = SegmentManifest::read(disk)?;
    let segments = disk.segments()?;
    found.damage = missing_segments(disk, &manifest, &segments)?;
    for segment in segments {
        let bytes = disk.read(segment)?;
        let SegmentScan { records, damage, torn } =
            scan(&bytes).require(bytes.len(), manifest.required(segment));
        found.torn += torn;
        if !damage.is_empty() {
            let file = segment_name(segment);
            found.damage.push(SegmentDamage { segment, file, spans: damage });
        }
        for record in records {
            match record {
                JournalRecord::Held(held) => {
                    died_at = Some(held.at);
                    let call = OpenCall { held, reached: None };
                    open.insert(call.held.request_id.to_string(), call);
                }
                JournalRecord::Reached(reached) => {
                    died_at = Some(reached.at);
                    if let Some(call) = open.get_mut(&reached.request_id) {
                        call.reached = Some(reached);
                    }
                }
                JournalRecord::Voided { request_id } => drop(open.remove(&request_id)),
                JournalRecord::Alive { at } => died_at = Some(at),
                JournalRecord::Settled(entry) => {
                    died_at = Some(entry.ended);
                    let lease =
                        open.remove(entry.request_id.as_str()).and_then(|call| call.held.lease);
                    found.settled.push(SettledCall { entry: Arc::new(entry), lease, shown: true });
                }
            }
        }
    }
    if !found.damage.is_empty() {
        // A running process takes a segment from the manifest before it deletes it.
        let later = SegmentManifest::read(disk)?;
        let is_deleted = |one: u64| manifest.required(one) > 0 && later.required(one) == 0;
        found.damage.retain(|damage| !is_deleted(damage.segment));
    }
    found.interrupted = open.len();
    let mut left: Vec<OpenCall> = open.into_values().collect();
    left.sort_by(|a, b| (a.held.at, &a.held.request_id).cmp(&(b.held.at, &b.held.request_id)));
    found.settled.extend(left.into_iter().map(|call| {
        let lease = call.held.lease;
        let entry = Arc::new(call.settle(now, died_at, SettlementKnowledge::Journal));
        SettledCall { entry, lease, shown: true }
    }));
    Ok(found)
}

/// Returns the settled calls among some records. Calls that a process left open were settled by its
/// successor, which wrote a record of that.
pub(crate) fn settled_entries(records: Vec<JournalRecord>) -> impl Iterator<Item = LedgerEntry> {
    records.into_iter().filter_map(|record| match record {
        JournalRecord::Settled(entry) => Some(entry),
        JournalRecord::Held(_)
        | JournalRecord::Reached(_)
        | JournalRecord::Voided { .. }
        | JournalRecord::Alive { .. } => None,
    })
}

/// Returns the segments of the manifest whose files are gone.
fn missing_segments(
    disk: &dyn Disk,
    manifest: &SegmentManifest,
    segments: &[u64],
) -> io::Result<Vec<SegmentDamage>> {
    let (retired, aside) = (disk.retired()?, disk.numbers_aside()?);
    let is_there = |segment: &u64| [segments, &retired, &aside].iter().any(|s| s.contains(segment));
    let missing = manifest.segments().filter(|segment| !is_there(segment));
    let damage = missing.map(|segment| {
        let spans = vec![DamagedSpan { offset: 0, bytes: manifest.required(segment) }];
        SegmentDamage { segment, file: segment_name(segment), spans }
    });
    // One without a record is deleted.
    Ok(damage.filter(|damage| manifest.required(damage.segment) > 0).collect())
}

#[cfg(test)]
mod tests {
    use canon::{Money, Usage};

    use super::*;

    fn held() -> HoldRecord {
        HoldRecord {
            request_id: "req-1".into(),
            key_id: "k\u{0}\"ö".into(),
            account_id: "".into(),
            at: Micros::new(i64::MIN),
            amount: Money::from_nanos(i64::MAX),
            dialect: "chat".into(),
            model: "m".repeat(70_000).into(),
            stream: true,
            price_version: "v".into(),
            lease: None,
            lane: "p/m".into(),
            start_cost: Money::from_nanos(70_000),
            cost_per_second: Money::from_nanos(-1),
            session: "s-1".into(),
            end_user: "somebody".into(),
            tags: [("team", "blue")].into_iter().collect(),
        }
    }

    fn all() -> Vec<JournalRecord> {
        let usage = Usage { input: u64::MAX, output: 300, ..Usage::default() };
        let reached = ProgressRecord {
            request_id: "req-1".to_owned(),
            at: Micros::new(1),
            lane: "p/m".to_owned(),
            usage,
            cost: Money::from_nanos(-1),
            attempt: None,
        };
        let later = crate::LaterAttempt {
            at: Micros::new(-70_000),
            absorbed: Money::from_nanos(300),
            failed: vec![crate::FailedAttempt::default()],
            ..crate::LaterAttempt::default()
        };
        let second = ProgressRecord { attempt: Some(Box::new(later)), ..reached.clone() };
        let open = OpenCall { held: held(), reached: Some(reached.clone()) };
        let mut entry = open.settle(Micros::new(7), None, SettlementKnowledge::Journal);
        entry.failed =
            vec![crate::FailedAttempt { status: Some(503), ..crate::FailedAttempt::default() }];
        entry.losses = vec!["part.seal".to_owned()];
        entry.first_byte_us = Some(Micros::ZERO);
        let plain = OpenCall { held: held(), reached: None };
        let plain = plain.settle(Micros::new(7), None, SettlementKnowledge::Settled);
        let settled = [entry, plain].map(JournalRecord::Settled);
        let voided = JournalRecord::Voided { request_id: "req-1".to_owned() };
        let alive = JournalRecord::Alive { at: Micros::new(1 << 40) };
        let reached = [reached, second].map(JournalRecord::Reached);
        [JournalRecord::Held(held()), voided, alive]
            .into_iter()
            .chain(reached)
            .chain(settled)
            .collect()
    }

    fn written(record: &JournalRecord) -> Vec<u8> {
        let record = match record {
            JournalRecord::Held(held) => Written::Held(held),
            JournalRecord::Reached(reached) => Written::Reached(reached),
            JournalRecord::Settled(entry) => Written::settled(entry),
            JournalRecord::Voided { request_id } => Written::Voided(request_id),
            JournalRecord::Alive { at } => Written::Alive(*at),
        };
        framed(&record, <[u8]>::to_vec)
    }

    /// Encodes a record in the formats of earlier versions.
    fn written_before(record: &JournalRecord) -> Vec<u8> {
        let json = serde_json::to_vec(record).unwrap_or_default();
        let message_pack = rmp_serde::to_vec_named(record).unwrap_or_default();
        [with_header(&json), with_header(&message_pack)].concat()
    }

    fn with_header(payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap_or_default().to_le_bytes();
        let sum = crc32fast::hash(payload).to_le_bytes();
        [&length[..], &sum, payload].concat()
    }

    #[test]
    fn records_of_all_formats_are_read_back() {
        let all = all();
        let now: Vec<u8> = all.iter().flat_map(written).collect();
        assert_eq!(scan(&now), SegmentScan { records: all.clone(), ..SegmentScan::default() });
        let mixed: Vec<u8> =
            all.iter().flat_map(|one| [written_before(one), written(one)].concat()).collect();
        let records: Vec<JournalRecord> =
            all.iter().flat_map(|one| [one.clone(), one.clone(), one.clone()]).collect();
        assert_eq!(scan(&mixed), SegmentScan { records, ..SegmentScan::default() });
    }
}

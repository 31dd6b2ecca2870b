//! Reading the records of a segment, also of one that is damaged.
//!
//! A crash may leave half a record at the end of a segment, which is normal: the record was not
//! confirmed, and the manifest does not count it. Everything else that is no record is damage, for example a flipped bit. Reading goes on
//! at the next good record, so that damage costs the records it touches and no others.

use crate::JournalRecord;
use crate::journal::FRAME_HEADER_BYTES;
use crate::record_encoding::{
    COMPACT_MARK, HOLD_LAYOUT, SESSION_HOLD_LAYOUT, SETTLEMENT_LAYOUT, decode,
};

/// Largest record that is looked for behind damage.
const MAX_SOUGHT_BYTES: usize = 1 << 20;
/// Number of records behind damage at which the damaged record may end. A wrong length is thereby
/// told from wrong content.
const MAX_SOUGHT_ENDS: usize = 16;

/// Bytes of a segment that are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DamagedSpan {
    /// The first of them.
    pub offset: usize,
    /// Their number.
    pub bytes: usize,
}

/// Content of a segment.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SegmentScan {
    pub(crate) records: Vec<JournalRecord>,
    pub(crate) damage: Vec<DamagedSpan>,
    /// Number of bytes of a record at the end that was not written completely.
    pub(crate) torn: usize,
}

impl SegmentScan {
    /// Turns an end that was not written completely into damage, as far as the manifest has more bytes.
    /// The segment has so many.
    pub(crate) fn require(mut self, length: usize, required: usize) -> Self {
        let whole = length.saturating_sub(self.torn);
        if whole < required {
            self.damage.push(DamagedSpan { offset: whole, bytes: required.saturating_sub(whole) });
            self.torn = length.saturating_sub(required);
        }
        self
    }
}

/// Bytes that cannot be read as a record.
enum UnreadableBytes {
    /// A record that was not written completely.
    Torn,
    /// Damage up to the offset `next`. The record is known if only its length is wrong.
    Damaged { record: Option<JournalRecord>, next: usize },
}

/// Reads a segment.
pub(crate) fn scan(bytes: &[u8]) -> SegmentScan {
    let mut found = SegmentScan::default();
    let mut at = 0;
    while at < bytes.len() {
        if let Some((record, end)) = record_at(bytes, at) {
            found.records.push(record);
            at = end;
            continue;
        }
        match unreadable_at(bytes, at) {
            UnreadableBytes::Torn => {
                found.torn = bytes.len().saturating_sub(at);
                break;
            }
            UnreadableBytes::Damaged { record, next } => {
                found.records.extend(record);
                found.damage.push(DamagedSpan { offset: at, bytes: next.saturating_sub(at) });
                at = next;
            }
        }
    }
    found
}

/// Returns length and checksum of the frame at that offset.
fn header_at(bytes: &[u8], at: usize) -> Option<(usize, u32)> {
    let header = bytes.get(at..)?.first_chunk::<FRAME_HEADER_BYTES>()?;
    let length = u32::from_le_bytes(*header.first_chunk()?) as usize;
    Some((length, u32::from_le_bytes(*header.last_chunk()?)))
}

/// Returns the end of the frame at that offset, if it is within the segment.
fn end_of(bytes: &[u8], at: usize) -> Option<usize> {
    let (length, _) = header_at(bytes, at)?;
    let end = at.checked_add(FRAME_HEADER_BYTES)?.checked_add(length)?;
    (end <= bytes.len()).then_some(end)
}

/// Returns the record at that offset and its end.
fn record_at(bytes: &[u8], at: usize) -> Option<(JournalRecord, usize)> {
    let end = end_of(bytes, at)?;
    Some((record_between(bytes, at, end)?, end))
}

/// Returns the record of the frame at that offset as if it ended there.
fn record_between(bytes: &[u8], at: usize, end: usize) -> Option<JournalRecord> {
    let (_, sum) = header_at(bytes, at)?;
    let payload = bytes.get(at.checked_add(FRAME_HEADER_BYTES)?..end)?;
    if crc32fast::hash(payload) != sum {
        return None;
    }
    // Every JSON record begins with a brace, and no MessagePack record does.
    match payload.first()? {
        &COMPACT_MARK => decode(payload),
        b'{' => serde_json::from_slice(payload).ok(),
        _ => rmp_serde::from_slice(payload).ok(),
    }
}

/// Returns true if a record may begin at that offset: a known layout, or an object or a map of one short
/// text.
fn may_begin_at(bytes: &[u8], at: usize) -> bool {
    let payload = bytes.get(at.saturating_add(FRAME_HEADER_BYTES)..).unwrap_or_default();
    matches!(
        payload,
        [COMPACT_MARK, HOLD_LAYOUT | SESSION_HOLD_LAYOUT | SETTLEMENT_LAYOUT, ..]
            | [0x81, 0xa1..=0xbf, ..]
            | [b'{', b'"', ..]
    ) && header_at(bytes, at).is_some_and(|(length, _)| length <= MAX_SOUGHT_BYTES)
}

/// Looks at bytes that are no record.
///
/// The checksum is asked first: it tells the end of a record whose length is wrong. Then the length
/// is believed, if it ends where a record begins. A record that is merely found inside the damage
/// comes last, because a caller may have written its bytes into a text of the damaged record.
fn unreadable_at(bytes: &[u8], at: usize) -> UnreadableBytes {
    let rest = bytes.get(at..).unwrap_or_default();
    // A crash of the machine may leave a file longer than its data.
    if rest.iter().all(|byte| *byte == 0) {
        return UnreadableBytes::Torn;
    }
    let later = at.saturating_add(1)..bytes.len();
    let begins =
        later.filter(|next| may_begin_at(bytes, *next) && record_at(bytes, *next).is_some());
    let begins: Vec<usize> = begins.take(MAX_SOUGHT_ENDS).collect();
    for next in begins.iter().copied().chain([bytes.len()]) {
        if let Some(record) = record_between(bytes, at, next) {
            return UnreadableBytes::Damaged { record: Some(record), next };
        }
    }
    let end = end_of(bytes, at);
    if let Some(next) = end
        && (next == bytes.len() || record_at(bytes, next).is_some())
    {
        return UnreadableBytes::Damaged { record: None, next };
    }
    match begins.first() {
        Some(next) => UnreadableBytes::Damaged { record: None, next: *next },
        None if end.is_none() => UnreadableBytes::Torn,
        None => UnreadableBytes::Damaged { record: None, next: bytes.len() },
    }
}

#[cfg(test)]
mod tests {
    use canon::{Micros, Money};

    use super::*;
    use crate::journal::{Written, framed};
    use crate::{HoldRecord, OpenCall, SettlementKnowledge};

    fn held(id: usize) -> HoldRecord {
        HoldRecord {
            request_id: format!("req-{id}").into(),
            key_id: "k".into(),
            account_id: "a".into(),
            at: Micros::new(7),
            amount: Money::from_nanos(100),
            dialect: "chat".into(),
            model: "m".into(),
            stream: false,
            price_version: "v".into(),
            lease: Some(9),
            // Each form of a hold.
            session: if id % 3 == 1 { "s" } else { "" }.into(),
            end_user: if id % 3 == 2 { "somebody" } else { "" }.into(),
            ..HoldRecord::default()
        }
    }

    /// Records of some calls, each held and settled.
    fn written(calls: usize) -> Vec<Vec<u8>> {
        let calls = (0..calls).map(|id| {
            let entry = OpenCall { held: held(id), reached: None };
            let entry = entry.settle(Micros::new(8), None, SettlementKnowledge::Journal);
            [Written::Held(&held(id)), Written::settled(&entry)]
                .map(|record| framed(&record, <[u8]>::to_vec))
        });
        calls.flatten().collect()
    }

    #[test]
    fn a_flipped_bit_costs_at_most_the_record_it_is_in_and_is_reported() {
        let frames = written(3);
        let whole = frames.concat();
        let all = scan(&whole).records;
        assert_eq!((all.len(), scan(&whole).damage.len()), (6, 0));
        let starts: Vec<usize> = frames
            .iter()
            .scan(0, |end, frame| {
                let start = *end;
                *end += frame.len();
                Some(start)
            })
            .collect();
        for bit in 0..whole.len() * 8 {
            let mut changed = whole.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let found = scan(&changed);
            let hit = starts.partition_point(|start| *start <= bit / 8) - 1;
            let mut others = all.clone();
            others.remove(hit);
            assert!(found.records == all || found.records == others, "bit {bit}");
            let span = DamagedSpan { offset: starts[hit], bytes: frames[hit].len() };
            assert_eq!((found.damage, found.torn), (vec![span], 0), "bit {bit}");
        }
    }

    #[test]
    fn lost_and_overwritten_bytes_cost_the_records_they_touch() {
        let frames = written(15);
        let (first, last) = (frames[..10].concat(), frames[20..].concat());
        let all = scan(&frames.concat()).records;
        for noise in [vec![], vec![0; 4_096], vec![0xff; 999], b"{\"held\":".repeat(50)] {
            let tail = &frames[19][5..];
            let bytes = [&first[..], &noise, tail, &last].concat();
            let found = scan(&bytes);
            assert_eq!(found.records, [&all[..10], &all[20..]].concat());
            assert_eq!((found.damage.len(), found.torn), (1, 0));
        }
    }

    #[test]
    fn half_a_record_at_the_end_is_no_damage() {
        let frames = written(1);
        let whole = frames[..2].concat();
        for length in 0..whole.len() {
            let found = scan(&whole[..length]);
            let records = usize::from(length >= frames[0].len());
            assert_eq!((found.records.len(), found.damage.len()), (records, 0));
            assert_eq!(found.torn, length - records * frames[0].len());
            // A file may be longer than its data.
            let longer = scan(&[&frames[0][..], &vec![0; length]].concat());
            assert_eq!((longer.damage.len(), longer.torn), (0, length));
        }
    }
}

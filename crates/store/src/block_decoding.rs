//! Decoding of the calls of a block, all or selected ones.

use std::cell::OnceCell;
use std::collections::BTreeSet;

use canon::{Charge, Micros, Money, Price, PriceDimension, SharedText, Usage};
use ledger::{
    CallError, CallOutcome, CallTags, ChargeReason, EndedBy, LedgerEntry, SettlementKnowledge,
};
use serde::Deserialize as _;
use serde::de::IntoDeserializer as _;
use serde::de::value::Error as WordError;

use crate::call_block::{
    CHARGES, COUNTS, END_USER, ERROR, ESTIMATED, FAILED, FIRST_BYTE, HELD, KNOWN_FLAGS, LOSSES,
    REASONS, SESSION, STREAM, TAGS, TOLD, VERSION,
};
use crate::call_writes::OwnerKind;
use crate::compact_text::{compact, expand};
use crate::db::{from_json, unknown_word};

/// Returns the usage with these counts.
fn usage(counts: [u64; COUNTS]) -> Usage {
    let [
        input,
        cache_read,
        cache_write,
        cache_write_long,
        input_audio,
        input_image,
        output,
        thinking,
        output_audio,
        output_image,
        searches,
        images,
        seconds,
    ] = counts;
    Usage {
        input,
        cache_read,
        cache_write,
        cache_write_long,
        input_audio,
        input_image,
        output,
        thinking,
        output_audio,
        output_image,
        searches,
        images,
        seconds,
        ..Usage::default()
    }
}

/// The error for a block that no version of the program writes.
fn damaged() -> sqlx::Error {
    sqlx::Error::Decode("a block of calls is damaged".into())
}

/// The texts of a block, of which those of selected calls are expanded, each once.
struct BlockTexts<'a>(Vec<(&'a [u8], OnceCell<String>)>);

impl BlockTexts<'_> {
    fn get(&self, place: usize) -> Result<&str, sqlx::Error> {
        let (bytes, text) = self.0.get(place).ok_or_else(damaged)?;
        match text.get() {
            Some(text) => Ok(text),
            None => {
                let expanded = expand(bytes).ok_or_else(damaged)?;
                Ok(text.get_or_init(|| expanded))
            }
        }
    }

    fn place_of(&self, text: &str) -> Option<usize> {
        let wanted = compact(text);
        self.0.iter().position(|(bytes, _)| *bytes == wanted)
    }
}

/// The rest of a block.
struct BlockReader<'a>(&'a [u8]);

impl<'a> BlockReader<'a> {
    fn byte(&mut self) -> Result<u8, sqlx::Error> {
        let (byte, rest) = self.0.split_first().ok_or_else(damaged)?;
        self.0 = rest;
        Ok(*byte)
    }

    fn uint(&mut self) -> Result<u64, sqlx::Error> {
        let mut value = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(damaged())
    }

    fn int(&mut self) -> Result<i64, sqlx::Error> {
        let value = self.uint()?;
        Ok((value >> 1).cast_signed() ^ (value & 1).cast_signed().wrapping_neg())
    }

    fn narrow<T: TryFrom<u64>>(&mut self) -> Result<T, sqlx::Error> {
        T::try_from(self.uint()?).map_err(|_| damaged())
    }

    fn bytes(&mut self) -> Result<&'a [u8], sqlx::Error> {
        let length = self.narrow()?;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or_else(damaged)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn json<T: serde::de::DeserializeOwned>(&mut self) -> Result<Vec<T>, sqlx::Error> {
        from_json(std::str::from_utf8(self.bytes()?).map_err(|_| damaged())?)
    }

    fn text<'t>(&mut self, texts: &'t BlockTexts<'_>) -> Result<&'t str, sqlx::Error> {
        texts.get(self.narrow()?)
    }

    /// Reads a list. Its length is not believed: every item takes a byte at least.
    fn list<T>(
        &mut self,
        item: impl Fn(&mut Self) -> Result<T, sqlx::Error>,
    ) -> Result<Vec<T>, sqlx::Error> {
        let length: usize = self.narrow()?;
        if length > self.0.len() {
            return Err(damaged());
        }
        (0..length).map(|_| item(self)).collect()
    }

    /// Reads a call unless it is not selected.
    fn call(
        &mut self,
        texts: &BlockTexts<'_>,
        ended: Micros,
        selection: &PlacedSelection<'_>,
    ) -> Result<Option<LedgerEntry>, sqlx::Error> {
        let id = self.bytes()?;
        let places: [usize; 3] = [self.narrow()?, self.narrow()?, self.narrow()?];
        if !selection.has(id, places) {
            return Ok(None);
        }
        let request_id = SharedText::from(expand(id).ok_or_else(damaged)?);
        let owner = |place: usize| texts.get(place).map(SharedText::from);
        let [key_id, account_id, model] = places;
        let (key_id, account_id, model) = (owner(key_id)?, owner(account_id)?, owner(model)?);
        let mut text = || self.text(texts).map(SharedText::from);
        let (dialect, lane) = (text()?, text()?);
        let (price_version, service) = (text()?, text()?);
        let outcome = self.text(texts)?;
        let outcome = CallOutcome::by_word(outcome).ok_or_else(|| unknown_word(outcome))?;
        let ended_by = self.text(texts)?;
        let ended_by = EndedBy::by_word(ended_by).ok_or_else(|| unknown_word(ended_by))?;
        let flags = self.uint()?;
        let has = |flag: u64| flags & flag != 0;
        let knowledge = SettlementKnowledge::by_rank(self.narrow()?).ok_or_else(damaged)?;
        let started = ended.get().wrapping_sub(self.int()?);
        let first_byte_us = if has(FIRST_BYTE) { Some(Micros::new(self.int()?)) } else { None };
        let (attempts, status) = (self.narrow()?, self.narrow()?);
        let set = self.uint()?;
        let mut counts = [0; COUNTS];
        for (place, count) in counts.iter_mut().enumerate() {
            if set & 1 << place != 0 {
                *count = self.uint()?;
            }
        }
        let call = LedgerEntry {
            request_id,
            key_id,
            account_id,
            started: Micros::new(started),
            ended,
            first_byte_us,
            dialect,
            model,
            lane,
            attempts,
            stream: has(STREAM),
            status,
            outcome,
            ended_by,
            usage: usage(counts),
            estimated: has(ESTIMATED),
            cost: Money::from_nanos(self.int()?),
            absorbed: Money::from_nanos(self.int()?),
            held: if has(HELD) { Some(Money::from_nanos(self.int()?)) } else { None },
            price_version,
            service,
            charges: if has(CHARGES) { self.list(|rest| rest.charge(texts))? } else { Vec::new() },
            losses: if has(LOSSES) {
                self.list(|rest| rest.text(texts).map(str::to_owned))?
            } else {
                Vec::new()
            },
            failed: if has(FAILED) { self.json()? } else { Vec::new() },
            told: if has(TOLD) { self.json()?.pop().map(Box::new) } else { None },
            reasons: if has(REASONS) { self.list(|rest| rest.reason(texts))? } else { Vec::new() },
            knowledge,
            session: if has(SESSION) { self.text(texts)?.into() } else { SharedText::default() },
            error: if has(ERROR) { Some(Box::new(self.error(texts)?)) } else { None },
            end_user: if has(END_USER) { self.text(texts)?.into() } else { SharedText::default() },
            tags: if has(TAGS) {
                CallTags::from_text(self.text(texts)?)
            } else {
                CallTags::default()
            },
        };
        // A later version may have written fields that this one does not know.
        if self.0.is_empty() || flags > KNOWN_FLAGS { Ok(Some(call)) } else { Err(damaged()) }
    }

    fn charge(&mut self, texts: &BlockTexts<'_>) -> Result<Charge, sqlx::Error> {
        let word = self.text(texts)?;
        let dimension = PriceDimension::deserialize(word.into_deserializer())
            .map_err(|_: WordError| unknown_word(word))?;
        Ok(Charge { dimension, count: self.uint()?, price: Price::from_picos(self.int()?) })
    }

    fn error(&mut self, texts: &BlockTexts<'_>) -> Result<CallError, sqlx::Error> {
        let mut text = || self.text(texts).map(str::to_owned);
        Ok(CallError { code: text()?, field: text()?, message: text()? })
    }

    fn reason(&mut self, texts: &BlockTexts<'_>) -> Result<ChargeReason, sqlx::Error> {
        let word = self.text(texts)?;
        let reason = ChargeReason::ALL.into_iter().find(|reason| reason.word() == word);
        reason.ok_or_else(|| unknown_word(word))
    }
}

/// Calls to decode; `None` and an empty list are no condition.
#[derive(Default)]
pub(crate) struct CallSelection<'a> {
    /// Calls with one of these ids, in compact form.
    pub(crate) ids: Option<&'a BTreeSet<Vec<u8>>>,
    /// Calls of all of these owners.
    pub(crate) owners: Vec<(OwnerKind, &'a str)>,
    /// Calls that ended at this time or later.
    pub(crate) since: Option<Micros>,
    /// Calls that ended at this time or earlier.
    pub(crate) until: Option<Micros>,
}

/// The same with the places of the owners among the texts of a block.
struct PlacedSelection<'a> {
    ids: Option<&'a BTreeSet<Vec<u8>>>,
    owners: [Option<usize>; 3],
}

impl PlacedSelection<'_> {
    fn has(&self, id: &[u8], places: [usize; 3]) -> bool {
        let mut owners = self.owners.into_iter().zip(places);
        owners.all(|(wanted, place)| wanted.is_none_or(|wanted| wanted == place))
            && self.ids.is_none_or(|ids| ids.contains(id))
    }
}

/// Decodes the selected calls of a block, in the order in which they were encoded.
pub(crate) fn decode_selected(
    block: &[u8],
    selection: &CallSelection<'_>,
) -> Result<Vec<LedgerEntry>, sqlx::Error> {
    let CallSelection { ids, owners, since, until } = selection;
    let mut rest = BlockReader(block);
    if rest.byte()? != VERSION {
        return Err(damaged());
    }
    let texts = BlockTexts(rest.list(|rest| Ok((rest.bytes()?, OnceCell::new())))?);
    let mut placed = PlacedSelection { ids: *ids, owners: [None; 3] };
    for (kind, owner) in owners {
        let Some(place) = texts.place_of(owner) else { return Ok(Vec::new()) };
        let [key, account, model] = &mut placed.owners;
        let slot = match kind {
            OwnerKind::Key => key,
            OwnerKind::Account => account,
            OwnerKind::Model => model,
        };
        *slot = Some(place);
    }
    let count: usize = rest.narrow()?;
    let (mut calls, mut before) = (Vec::new(), 0_i64);
    for _ in 0..count {
        let mut one = BlockReader(rest.bytes()?);
        before = before.wrapping_add(one.int()?);
        let ended = Micros::new(before);
        let is_within =
            since.is_none_or(|since| ended >= since) && until.is_none_or(|until| ended <= until);
        if is_within && let Some(call) = one.call(&texts, ended, &placed)? {
            calls.push(call);
        }
    }
    if rest.0.is_empty() { Ok(calls) } else { Err(damaged()) }
}

/// Decodes all calls of a block.
pub(crate) fn decode_calls(block: &[u8]) -> Result<Vec<LedgerEntry>, sqlx::Error> {
    decode_selected(block, &CallSelection::default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call_block::encode_calls;
    use ledger::FailedAttempt;

    fn calls() -> Vec<LedgerEntry> {
        let charge = |count| Charge {
            dimension: PriceDimension::CachedInput,
            count,
            price: Price::from_picos(i64::MIN),
        };
        let plain = LedgerEntry {
            request_id: "req_0065f0a1b2c3d0123456789abcdef".into(),
            key_id: "0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b".into(),
            started: Micros::new(1_782_864_000_000_000),
            ended: Micros::new(1_782_864_000_900_000),
            ..LedgerEntry::default()
        };
        let full = LedgerEntry {
            request_id: "ä".repeat(300).into(),
            account_id: "an account".into(),
            started: Micros::new(i64::MAX),
            ended: Micros::new(i64::MIN),
            first_byte_us: Some(Micros::new(-1)),
            model: "model".into(),
            lane: "lane".into(),
            attempts: u32::MAX,
            failed: vec![FailedAttempt { lane: "a\0b".into(), ..FailedAttempt::default() }],
            stream: true,
            status: u16::MAX,
            outcome: CallOutcome::Recovered,
            ended_by: EndedBy::Deadline,
            usage: usage(std::array::from_fn(|place| u64::MAX - place as u64)),
            estimated: true,
            cost: Money::from_nanos(-5),
            held: Some(Money::MAX),
            absorbed: Money::from_nanos(i64::MIN),
            session: "a session".into(),
            end_user: "somebody".into(),
            tags: [("team", "blue"), ("beta", "")].into_iter().collect(),
            service: "flex".into(),
            charges: vec![charge(0), charge(u64::MAX)],
            losses: vec!["model".to_owned(), "other".to_owned()],
            told: Some(Box::new(Usage { input_video: 3, ..Usage::default() })),
            reasons: ChargeReason::ALL.to_vec(),
            knowledge: SettlementKnowledge::Reported,
            error: Some(Box::new(CallError::new("lane", "a field", "a message"))),
            ..plain.clone()
        };
        vec![plain.clone(), full.clone(), LedgerEntry::default(), full, plain]
    }

    #[test]
    fn calls_are_read_as_they_were_written() {
        let calls = calls();
        for count in 0..=calls.len() {
            let some: Vec<&LedgerEntry> = calls.iter().take(count).collect();
            let read = decode_calls(&encode_calls(&some)).unwrap();
            assert!(read.iter().eq(some.iter().copied()), "{read:?}");
        }
    }

    #[test]
    fn a_damaged_block_is_refused_and_never_panics() {
        let calls = calls();
        let block = encode_calls(&calls.iter().collect::<Vec<_>>());
        for length in 0..block.len() {
            assert!(decode_calls(block.get(..length).unwrap()).is_err(), "{length}");
        }
        for place in 0..block.len() {
            for value in [0, 0x7f, 0x80, 0xff] {
                let mut block = block.clone();
                *block.get_mut(place).unwrap() = value;
                let _ = decode_calls(&block);
            }
        }
        let longer = [block.as_slice(), &[0]].concat();
        assert!(decode_calls(&longer).is_err());
    }

    #[test]
    fn what_a_later_version_added_to_a_call_is_skipped() {
        let call = calls().remove(1);
        let quiet = LedgerEntry { stream: false, ..call.clone() };
        let [mut block, other] = [&call, &quiet].map(|call| encode_calls(&[call]));
        // The lowest flag differs, and the next byte has the highest ones.
        let place = block.iter().zip(&other).position(|(one, other)| one != other).unwrap();
        *block.get_mut(place + 1).unwrap() |= 0x10;
        assert_eq!(decode_calls(&block).unwrap(), [call]);
    }

    #[test]
    fn selected_calls_are_those_that_match() {
        let mut calls = calls();
        for (number, call) in calls.iter_mut().enumerate() {
            call.ended = Micros::new(number as i64 * 10);
        }
        let block = encode_calls(&calls.iter().collect::<Vec<_>>());
        let check = |selection: CallSelection<'_>, places: &[usize]| {
            let read = decode_selected(&block, &selection).unwrap();
            let wanted: Vec<LedgerEntry> =
                places.iter().filter_map(|place| calls.get(*place)).cloned().collect();
            assert_eq!(read, wanted);
        };
        let owners = |owners: &[(OwnerKind, &'static str)]| CallSelection {
            owners: owners.to_vec(),
            ..CallSelection::default()
        };
        check(CallSelection::default(), &[0, 1, 2, 3, 4]);
        check(owners(&[(OwnerKind::Model, "model")]), &[1, 3]);
        check(owners(&[(OwnerKind::Model, "")]), &[0, 2, 4]);
        check(owners(&[(OwnerKind::Model, ""), (OwnerKind::Key, "")]), &[2]);
        check(owners(&[(OwnerKind::Account, "an account"), (OwnerKind::Model, "model")]), &[1, 3]);
        check(owners(&[(OwnerKind::Account, "model")]), &[]);
        check(owners(&[(OwnerKind::Key, "unknown")]), &[]);
        let time = |at| Some(Micros::new(at));
        let within = |since, until| CallSelection { since, until, ..CallSelection::default() };
        check(within(time(10), time(30)), &[1, 2, 3]);
        check(within(time(31), None), &[4]);
        check(within(None, time(9)), &[0]);
        let ids = BTreeSet::from([compact(""), compact("unknown")]);
        check(CallSelection { ids: Some(&ids), ..CallSelection::default() }, &[2]);
    }

    #[test]
    fn repeated_texts_take_a_byte_each() {
        let call = calls().remove(0);
        let size = |count| encode_calls(&vec![&call; count]).len();
        assert_eq!(size(101) - size(100), size(51) - size(50));
        assert!(size(101) - size(100) < 49, "{}", size(101) - size(100));
    }
}

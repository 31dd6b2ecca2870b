//! Calls in compact form: those of a batch in one sequence of bytes, in which every repeated text occurs
//! once.
//!
//! A block begins with its version, the texts and the number of calls. A number is an unsigned LEB128
//! (<https://dwarfstd.org/doc/DWARF5.pdf>, section 7.6); one with a sign is mapped to it as in Protocol
//! Buffers (<https://protobuf.dev/programming-guides/encoding/#signed-ints>). Words stand for the values
//! of enums, so that a block can be read whatever order the program gives them later.

use std::borrow::Cow;
use std::collections::HashMap;

use canon::{Charge, Micros, Money, Price, PriceDimension, Usage};
use ledger::{CallOutcome, ChargeReason, EndedBy, LedgerEntry, SettlementKnowledge};
use serde::Deserialize as _;
use serde::de::IntoDeserializer as _;
use serde::de::value::Error as WordError;

use crate::compact_text::{compact, expand};
use crate::db::{clean, from_json, to_json, unknown_word};

const VERSION: u8 = 1;

const STREAM: u64 = 1;
const ESTIMATED: u64 = 1 << 1;
const FIRST_BYTE: u64 = 1 << 2;
const HELD: u64 = 1 << 3;
const CHARGES: u64 = 1 << 4;
const LOSSES: u64 = 1 << 5;
const FAILED: u64 = 1 << 6;
const TOLD: u64 = 1 << 7;
const REASONS: u64 = 1 << 8;

/// Number of texts that every call has.
const TEXT_COLUMNS: usize = 9;
/// Number of stored counts of a call.
const COUNTS: usize = 13;

/// Returns the stored counts. Uses of tools stand in the charges, and video is billed as text.
const fn counts(usage: &Usage) -> [u64; COUNTS] {
    [
        usage.input,
        usage.cache_read,
        usage.cache_write,
        usage.cache_write_long,
        usage.input_audio,
        usage.input_image,
        usage.output,
        usage.thinking,
        usage.output_audio,
        usage.output_image,
        usage.searches,
        usage.images,
        usage.seconds,
    ]
}

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

/// The texts of a block, each once.
#[derive(Default)]
struct TextTable<'a> {
    places: HashMap<Cow<'a, str>, u64>,
    bytes: Vec<u8>,
    /// Text by column of the call before, which is often the same, and the number of its place.
    last: [(&'a str, u64); TEXT_COLUMNS],
}

impl<'a> TextTable<'a> {
    fn place(&mut self, text: Cow<'a, str>) -> u64 {
        let next = self.places.len() as u64;
        *self.places.entry(text).or_insert_with_key(|text| {
            let text = compact(text);
            push_uint(&mut self.bytes, text.len() as u64);
            self.bytes.extend_from_slice(&text);
            next
        })
    }

    /// Returns the place of a text of a column.
    fn place_in(&mut self, column: usize, text: &'a str) -> u64 {
        match self.last.get(column) {
            Some((last, place)) if *last == text && *place > 0 => *place - 1,
            _ => {
                let place = self.place(clean(text));
                if let Some(last) = self.last.get_mut(column) {
                    *last = (text, place + 1);
                }
                place
            }
        }
    }
}

fn push_uint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn push_int(bytes: &mut Vec<u8>, value: i64) {
    push_uint(bytes, (value.wrapping_shl(1) ^ (value >> 63)).cast_unsigned());
}

fn push_bytes(bytes: &mut Vec<u8>, value: &[u8]) {
    push_uint(bytes, value.len() as u64);
    bytes.extend_from_slice(value);
}

/// Encodes calls.
pub(crate) fn encode_calls(calls: &[&LedgerEntry]) -> Vec<u8> {
    let mut texts = TextTable::default();
    let mut bytes = Vec::with_capacity(96 * calls.len());
    let mut before = Micros::ZERO;
    for call in calls {
        push_call(&mut bytes, call, &mut texts, before);
        before = call.ended;
    }
    let mut block = Vec::with_capacity(bytes.len() + texts.bytes.len() + 16);
    block.push(VERSION);
    push_uint(&mut block, texts.places.len() as u64);
    block.extend_from_slice(&texts.bytes);
    push_uint(&mut block, calls.len() as u64);
    block.extend_from_slice(&bytes);
    block
}

fn push_call<'a>(
    bytes: &mut Vec<u8>,
    call: &'a LedgerEntry,
    texts: &mut TextTable<'a>,
    before: Micros,
) {
    let LedgerEntry {
        request_id,
        key_id,
        account_id,
        started,
        ended,
        first_byte_us,
        dialect,
        model,
        lane,
        attempts,
        failed,
        stream,
        status,
        outcome,
        ended_by,
        usage,
        estimated,
        cost,
        held,
        absorbed,
        price_version,
        service,
        charges,
        losses,
        told,
        reasons,
        knowledge,
    } = call;
    let flags = [
        (STREAM, *stream),
        (ESTIMATED, *estimated),
        (FIRST_BYTE, first_byte_us.is_some()),
        (HELD, held.is_some()),
        (CHARGES, !charges.is_empty()),
        (LOSSES, !losses.is_empty()),
        (FAILED, !failed.is_empty()),
        (TOLD, told.is_some()),
        (REASONS, !reasons.is_empty()),
    ];
    let flags = flags.into_iter().filter(|(_, is_set)| *is_set);
    push_uint(bytes, flags.fold(0, |all, (flag, _)| all | flag));
    push_bytes(bytes, &compact(&clean(request_id)));
    let columns: [&str; TEXT_COLUMNS] = [
        key_id,
        account_id,
        dialect,
        model,
        lane,
        price_version,
        service,
        outcome.word(),
        ended_by.word(),
    ];
    for (column, text) in columns.into_iter().enumerate() {
        let place = texts.place_in(column, text);
        push_uint(bytes, place);
    }
    push_uint(bytes, knowledge.rank().cast_unsigned());
    push_int(bytes, ended.get().wrapping_sub(before.get()));
    push_int(bytes, ended.get().wrapping_sub(started.get()));
    if let Some(time) = first_byte_us {
        push_int(bytes, time.get());
    }
    push_uint(bytes, u64::from(*attempts));
    push_uint(bytes, u64::from(*status));
    let counts = counts(usage);
    let is_set = counts.iter().enumerate().filter(|(_, count)| **count > 0);
    push_uint(bytes, is_set.fold(0, |all, (place, _)| all | 1 << place));
    counts.into_iter().filter(|count| *count > 0).for_each(|count| push_uint(bytes, count));
    push_int(bytes, cost.as_nanos());
    push_int(bytes, absorbed.as_nanos());
    if let Some(held) = held {
        push_int(bytes, held.as_nanos());
    }
    if !charges.is_empty() {
        push_uint(bytes, charges.len() as u64);
    }
    for Charge { dimension, count, price } in charges {
        let place = texts.place(Cow::Borrowed(dimension.as_str()));
        push_uint(bytes, place);
        push_uint(bytes, *count);
        push_int(bytes, price.as_picos());
    }
    if !losses.is_empty() {
        push_uint(bytes, losses.len() as u64);
    }
    for loss in losses {
        let place = texts.place(Cow::Borrowed(loss));
        push_uint(bytes, place);
    }
    if !failed.is_empty() {
        push_bytes(bytes, to_json(failed).as_bytes());
    }
    if let Some(told) = told {
        push_bytes(bytes, to_json(std::slice::from_ref(told)).as_bytes());
    }
    if !reasons.is_empty() {
        push_uint(bytes, reasons.len() as u64);
    }
    for reason in reasons {
        let place = texts.place(Cow::Borrowed(reason.word()));
        push_uint(bytes, place);
    }
}

/// The error for a block that no version of the program writes.
fn damaged() -> sqlx::Error {
    sqlx::Error::Decode("a block of calls is damaged".into())
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

    fn text<'t>(&mut self, texts: &'t [String]) -> Result<&'t str, sqlx::Error> {
        let place: usize = self.narrow()?;
        texts.get(place).map(String::as_str).ok_or_else(damaged)
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

    fn call(&mut self, texts: &[String], before: Micros) -> Result<LedgerEntry, sqlx::Error> {
        let flags = self.uint()?;
        let has = |flag: u64| flags & flag != 0;
        let request_id = expand(self.bytes()?).ok_or_else(damaged)?;
        let mut text = || self.text(texts).map(str::to_owned);
        let (key_id, account_id, dialect) = (text()?, text()?, text()?);
        let (model, lane) = (text()?, text()?);
        let (price_version, service) = (text()?, text()?);
        let outcome = self.text(texts)?;
        let outcome = CallOutcome::by_word(outcome).ok_or_else(|| unknown_word(outcome))?;
        let ended_by = self.text(texts)?;
        let ended_by = EndedBy::by_word(ended_by).ok_or_else(|| unknown_word(ended_by))?;
        let knowledge = SettlementKnowledge::by_rank(self.narrow()?).ok_or_else(damaged)?;
        let ended = before.get().wrapping_add(self.int()?);
        let started = ended.wrapping_sub(self.int()?);
        let first_byte_us = if has(FIRST_BYTE) { Some(Micros::new(self.int()?)) } else { None };
        let (attempts, status) = (self.narrow()?, self.narrow()?);
        let set = self.uint()?;
        let mut counts = [0; COUNTS];
        for (place, count) in counts.iter_mut().enumerate() {
            if set & 1 << place != 0 {
                *count = self.uint()?;
            }
        }
        Ok(LedgerEntry {
            request_id,
            key_id,
            account_id,
            started: Micros::new(started),
            ended: Micros::new(ended),
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
        })
    }

    fn charge(&mut self, texts: &[String]) -> Result<Charge, sqlx::Error> {
        let word = self.text(texts)?;
        let dimension = PriceDimension::deserialize(word.into_deserializer())
            .map_err(|_: WordError| unknown_word(word))?;
        Ok(Charge { dimension, count: self.uint()?, price: Price::from_picos(self.int()?) })
    }

    fn reason(&mut self, texts: &[String]) -> Result<ChargeReason, sqlx::Error> {
        let word = self.text(texts)?;
        let reason = ChargeReason::ALL.into_iter().find(|reason| reason.word() == word);
        reason.ok_or_else(|| unknown_word(word))
    }
}

/// Decodes the calls of a block, in the order in which they were encoded.
pub(crate) fn decode_calls(block: &[u8]) -> Result<Vec<LedgerEntry>, sqlx::Error> {
    let mut rest = BlockReader(block);
    if rest.byte()? != VERSION {
        return Err(damaged());
    }
    let texts = rest.list(|rest| expand(rest.bytes()?).ok_or_else(damaged))?;
    let count: usize = rest.narrow()?;
    let (mut calls, mut before) = (Vec::with_capacity(count.min(rest.0.len())), Micros::ZERO);
    for _ in 0..count {
        let call = rest.call(&texts, before)?;
        before = call.ended;
        calls.push(call);
    }
    if rest.0.is_empty() { Ok(calls) } else { Err(damaged()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger::FailedAttempt;

    fn calls() -> Vec<LedgerEntry> {
        let charge = |count| Charge {
            dimension: PriceDimension::CachedInput,
            count,
            price: Price::from_picos(i64::MIN),
        };
        let plain = LedgerEntry {
            request_id: "req_0065f0a1b2c3d0123456789abcdef".to_owned(),
            key_id: "0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b".to_owned(),
            started: Micros::new(1_782_864_000_000_000),
            ended: Micros::new(1_782_864_000_900_000),
            ..LedgerEntry::default()
        };
        let full = LedgerEntry {
            request_id: "ä".repeat(300),
            account_id: "an account".to_owned(),
            started: Micros::new(i64::MAX),
            ended: Micros::new(i64::MIN),
            first_byte_us: Some(Micros::new(-1)),
            model: "model".to_owned(),
            lane: "lane".to_owned(),
            attempts: u32::MAX,
            failed: vec![FailedAttempt { lane: "a\0b".to_owned(), ..FailedAttempt::default() }],
            stream: true,
            status: u16::MAX,
            outcome: CallOutcome::Recovered,
            ended_by: EndedBy::Deadline,
            usage: usage(std::array::from_fn(|place| u64::MAX - place as u64)),
            estimated: true,
            cost: Money::from_nanos(-5),
            held: Some(Money::MAX),
            absorbed: Money::from_nanos(i64::MIN),
            service: "flex".to_owned(),
            charges: vec![charge(0), charge(u64::MAX)],
            losses: vec!["model".to_owned(), "other".to_owned()],
            told: Some(Box::new(Usage { input_video: 3, ..Usage::default() })),
            reasons: ChargeReason::ALL.to_vec(),
            knowledge: SettlementKnowledge::Reported,
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
    fn repeated_texts_take_a_byte_each() {
        let call = calls().remove(0);
        let size = |count| encode_calls(&vec![&call; count]).len();
        assert_eq!(size(101) - size(100), size(51) - size(50));
        assert!(size(101) - size(100) < 48, "{}", size(101) - size(100));
    }
}

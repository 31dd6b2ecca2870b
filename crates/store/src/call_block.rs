//! Calls in compact form: those of a batch in one sequence of bytes, in which every repeated text occurs
//! once.
//!
//! A block begins with its version, the texts and the number of calls. A call begins with its length and the
//! fields by which it is selected, so that others are skipped. A number is an unsigned LEB128
//! (<https://dwarfstd.org/doc/DWARF5.pdf>, section 7.6); one with a sign is mapped to it as in Protocol
//! Buffers (<https://protobuf.dev/programming-guides/encoding/#signed-ints>). Words stand for the values
//! of enums, so that a block can be read whatever order the program gives them later.

use std::borrow::Cow;

use canon::{Charge, Micros, Usage};
use ledger::{CallError, LedgerEntry};

use crate::compact_text::{compact, packed_id};
use crate::db::{clean, to_json};
use crate::text_hash::TextMap;

pub(crate) const VERSION: u8 = 1;

pub(crate) const STREAM: u64 = 1;
pub(crate) const ESTIMATED: u64 = 1 << 1;
pub(crate) const FIRST_BYTE: u64 = 1 << 2;
pub(crate) const HELD: u64 = 1 << 3;
pub(crate) const CHARGES: u64 = 1 << 4;
pub(crate) const LOSSES: u64 = 1 << 5;
pub(crate) const FAILED: u64 = 1 << 6;
pub(crate) const TOLD: u64 = 1 << 7;
pub(crate) const REASONS: u64 = 1 << 8;
pub(crate) const SESSION: u64 = 1 << 9;
pub(crate) const ERROR: u64 = 1 << 10;
pub(crate) const END_USER: u64 = 1 << 11;
pub(crate) const TAGS: u64 = 1 << 12;
/// Flags that this version knows. Later ones have their fields behind those of the earlier ones.
pub(crate) const KNOWN_FLAGS: u64 = (TAGS << 1) - 1;

/// Number of texts that every call has.
const TEXT_COLUMNS: usize = 9;
/// Number of charges whose dimension is compared with that of the call before.
const CHARGE_COLUMNS: usize = 6;
/// Number of stored counts of a call.
pub(crate) const COUNTS: usize = 13;

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

/// The texts of a block, each once.
#[derive(Default)]
struct TextTable<'a> {
    places: TextMap<Cow<'a, str>, u64>,
    bytes: Vec<u8>,
    /// Text by column of the call before, which is often the same, and the number of its place.
    last: [(&'a str, u64); TEXT_COLUMNS + CHARGE_COLUMNS],
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
    let (mut before, mut one) = (Micros::ZERO, Vec::with_capacity(256));
    for call in calls {
        one.clear();
        push_call(&mut one, call, &mut texts, before);
        push_bytes(&mut bytes, &one);
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
        session,
        end_user,
        tags,
        error,
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
        (SESSION, !session.is_empty()),
        (ERROR, error.is_some()),
        (END_USER, !end_user.is_empty()),
        (TAGS, !tags.is_empty()),
    ];
    push_int(bytes, ended.get().wrapping_sub(before.get()));
    match packed_id(request_id) {
        Some(id) => push_bytes(bytes, &id),
        None => push_bytes(bytes, &compact(&clean(request_id))),
    }
    let columns: [&str; TEXT_COLUMNS] = [
        key_id,
        account_id,
        model,
        dialect,
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
    let flags = flags.into_iter().filter(|(_, is_set)| *is_set);
    push_uint(bytes, flags.fold(0, |all, (flag, _)| all | flag));
    push_uint(bytes, knowledge.rank().cast_unsigned());
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
    for (number, Charge { dimension, count, price }) in charges.iter().enumerate() {
        let place = texts.place_in(TEXT_COLUMNS + number, dimension.as_str());
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
    if !session.is_empty() {
        let place = texts.place(clean(session));
        push_uint(bytes, place);
    }
    if let Some(error) = error {
        let CallError { code, field, message } = &**error;
        for text in [code, field, message] {
            let place = texts.place(clean(text));
            push_uint(bytes, place);
        }
    }
    for text in [end_user.as_str(), tags.as_text()] {
        if !text.is_empty() {
            let place = texts.place(clean(text));
            push_uint(bytes, place);
        }
    }
}

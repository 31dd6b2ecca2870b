//! Bytes of the journal's records.
//!
//! Every call writes a hold and a settlement, so these two have a compact form: [`COMPACT_MARK`], the
//! number of their layout, fields of fixed width in little-endian order, and the lengths of several texts
//! before the texts. Words stand for the values of enums, so that a record can be read whatever order the program
//! gives them later. A layout never changes: another one has another number.
//!
//! The other records are rare, among them holds with an end user or tags. They are MessagePack with the names of their fields
//! (<https://github.com/msgpack/msgpack/blob/master/spec.md>), as all records of earlier versions are.

use canon::{Charge, Micros, Money, Price, PriceDimension, SharedText, ToolUses, Usage};
use serde::de::IntoDeserializer as _;
use serde::de::value::{Error as WordError, StrDeserializer};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

use crate::journal::Written;
use crate::{
    CallError, CallOutcome, CallTags, ChargeReason, EndedBy, FailedAttempt, HoldRecord,
    JournalRecord, LedgerEntry, SettlementKnowledge,
};

/// First byte of a compact record. MessagePack never uses it, and JSON does not either.
pub(crate) const COMPACT_MARK: u8 = 0xc1;
/// Layouts of compact records.
pub(crate) const HOLD_LAYOUT: u8 = 1;
pub(crate) const SETTLEMENT_LAYOUT: u8 = 2;
/// A hold with the session behind it.
pub(crate) const SESSION_HOLD_LAYOUT: u8 = 3;

const STREAM: u16 = 1;
const ESTIMATED: u16 = 1 << 1;
const LEASE: u16 = 1 << 2;
const FIRST_BYTE: u16 = 1 << 3;
const HELD: u16 = 1 << 4;
const RARE_FIELDS: u16 = 1 << 5;
const BILL: u16 = 1 << 6;

/// Number of counts in a usage.
const COUNTS: usize = 18;

/// Fields of a settlement that few calls have.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct RareFields<'a> {
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    failed: Cow<'a, [FailedAttempt]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    told: Option<Cow<'a, Usage>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    reasons: Cow<'a, [ChargeReason]>,
    #[serde(skip_serializing_if = "SettlementKnowledge::is_final")]
    knowledge: SettlementKnowledge,
    #[serde(skip_serializing_if = "str::is_empty")]
    session: Cow<'a, str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    end_user: Cow<'a, str>,
    #[serde(skip_serializing_if = "CallTags::is_empty")]
    tags: CallTags,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Cow<'a, CallError>>,
}

/// Appends a record.
pub(crate) fn encode(record: &Written<'_>, out: &mut Vec<u8>) {
    let rare = match record {
        // Earlier versions read the names of fields and pass over those that they do not know.
        Written::Held(held) if !held.end_user.is_empty() || !held.tags.is_empty() => {
            JournalRecord::Held((*held).clone())
        }
        Written::Held(held) => return push_hold(out, held),
        Written::Settled { entry, held } => return push_settlement(out, entry, *held),
        Written::Reached(reached) => JournalRecord::Reached((*reached).clone()),
        Written::Voided(id) => JournalRecord::Voided { request_id: (*id).to_owned() },
        Written::Alive(at) => JournalRecord::Alive { at: *at },
    };
    // A map with text keys can be encoded, and a `Vec` takes all bytes.
    let _ = rmp_serde::encode::write_named(out, &rare);
}

fn push_hold(out: &mut Vec<u8>, held: &HoldRecord) {
    let HoldRecord {
        request_id,
        key_id,
        account_id,
        at,
        amount,
        dialect,
        model,
        stream,
        price_version,
        lease,
        lane,
        start_cost,
        cost_per_second,
        session,
        end_user: _,
        tags: _,
    } = held;
    let layout = if session.is_empty() { HOLD_LAYOUT } else { SESSION_HOLD_LAYOUT };
    let flags = flag(STREAM, *stream) | flag(LEASE, lease.is_some());
    let [low, high] = flags.to_le_bytes();
    out.extend_from_slice(&[COMPACT_MARK, layout, low, high]);
    push_ints(
        out,
        [
            at.get(),
            amount.as_nanos(),
            start_cost.as_nanos(),
            cost_per_second.as_nanos(),
            lease.unwrap_or_default(),
        ],
    );
    push_texts(out, [request_id, key_id, account_id, dialect, model, price_version, lane]);
    if !session.is_empty() {
        push_texts(out, [session]);
    }
}

fn push_settlement(out: &mut Vec<u8>, entry: &LedgerEntry, held: Option<&HoldRecord>) {
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
        held: held_amount,
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
    } = entry;
    let session = or_held(session, held, |held| &held.session);
    let end_user = or_held(end_user, held, |held| &held.end_user);
    let tags = held.map(|held| &held.tags).filter(|_| tags.is_empty()).unwrap_or(tags);
    let has_rare = !failed.is_empty()
        || told.is_some()
        || !reasons.is_empty()
        || !knowledge.is_final()
        || !session.is_empty()
        || !end_user.is_empty()
        || !tags.is_empty()
        || error.is_some();
    let flags = flag(STREAM, *stream)
        | flag(ESTIMATED, *estimated)
        | flag(FIRST_BYTE, first_byte_us.is_some())
        | flag(HELD, held_amount.is_some())
        | flag(RARE_FIELDS, has_rare)
        | flag(BILL, usage.bill.is_some());
    let [low, high] = flags.to_le_bytes();
    out.extend_from_slice(&[COMPACT_MARK, SETTLEMENT_LAYOUT, low, high]);
    push_ints(
        out,
        [
            started.get(),
            ended.get(),
            first_byte_us.unwrap_or_default().get(),
            cost.as_nanos(),
            held_amount.unwrap_or_default().as_nanos(),
            absorbed.as_nanos(),
            i64::from(*attempts) << u16::BITS | i64::from(*status),
        ],
    );
    let texts: [&str; 10] = [
        or_held(request_id, held, |held| &held.request_id),
        or_held(key_id, held, |held| &held.key_id),
        or_held(account_id, held, |held| &held.account_id),
        or_held(dialect, held, |held| &held.dialect),
        or_held(model, held, |held| &held.model),
        or_held(price_version, held, |held| &held.price_version),
        lane,
        service,
        outcome.word(),
        ended_by.word(),
    ];
    push_texts(out, texts);
    push_usage(out, usage);
    push_length(out, charges.len());
    for Charge { dimension, count, price } in charges {
        push_ints(out, [count.cast_signed(), price.as_picos()]);
        push_texts(out, [dimension.as_str()]);
    }
    push_length(out, losses.len());
    for loss in losses {
        push_texts(out, [loss]);
    }
    if has_rare {
        let rare = RareFields {
            failed: Cow::Borrowed(failed),
            told: told.as_deref().map(Cow::Borrowed),
            reasons: Cow::Borrowed(reasons),
            knowledge: *knowledge,
            session: Cow::Borrowed(session),
            end_user: Cow::Borrowed(end_user),
            tags: tags.clone(),
            error: error.as_deref().map(Cow::Borrowed),
        };
        // A map with text keys can be encoded, and a `Vec` takes all bytes.
        let _ = rmp_serde::encode::write_named(out, &rare);
    }
}

/// Returns a text of the entry, or that of its hold if the entry has none.
fn or_held<'a>(
    own: &'a str,
    held: Option<&'a HoldRecord>,
    of_hold: impl Fn(&'a HoldRecord) -> &'a SharedText,
) -> &'a str {
    match held {
        Some(held) if own.is_empty() => of_hold(held),
        Some(_) | None => own,
    }
}

const fn flag(bit: u16, is_set: bool) -> u16 {
    if is_set { bit } else { 0 }
}

fn push_ints<const N: usize>(out: &mut Vec<u8>, values: [i64; N]) {
    out.extend_from_slice(values.map(i64::to_le_bytes).as_flattened());
}

fn push_length(out: &mut Vec<u8>, length: usize) {
    out.extend_from_slice(&length_bytes(length));
}

fn length_bytes(length: usize) -> [u8; 4] {
    u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes()
}

fn push_texts<const N: usize>(out: &mut Vec<u8>, texts: [&str; N]) {
    out.extend_from_slice(texts.map(|text| length_bytes(text.len())).as_flattened());
    for text in texts {
        out.extend_from_slice(text.as_bytes());
    }
}

/// Appends the counts up to the last one that is not zero, behind their number.
fn push_usage(out: &mut Vec<u8>, usage: &Usage) {
    let counts = counts(usage);
    let used = counts.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
    push_length(out, used);
    let bytes = counts.map(u64::to_le_bytes);
    out.extend_from_slice(bytes.get(..used).unwrap_or_default().as_flattened());
    if let Some(bill) = usage.bill {
        push_ints(out, [bill.as_nanos()]);
    }
}

/// Returns the counts, the usual ones first.
const fn counts(usage: &Usage) -> [u64; COUNTS] {
    let Usage {
        input,
        cache_read,
        cache_write,
        cache_write_long,
        input_audio,
        input_image,
        input_video,
        output,
        thinking,
        output_audio,
        output_image,
        searches,
        images,
        seconds,
        cache_storage,
        tools: ToolUses { file_searches, code_runs, image_tokens },
        search_context: _,
        bill: _,
    } = *usage;
    [
        input,
        output,
        cache_read,
        thinking,
        cache_write,
        cache_write_long,
        input_audio,
        input_image,
        input_video,
        output_audio,
        output_image,
        searches,
        images,
        seconds,
        cache_storage,
        file_searches,
        code_runs,
        image_tokens,
    ]
}

/// Reads a compact record; `None` if the bytes are none.
pub(crate) fn decode(bytes: &[u8]) -> Option<JournalRecord> {
    let (head, rest) = bytes.split_first_chunk::<4>()?;
    let [COMPACT_MARK, layout, low, high] = *head else { return None };
    let (mut reader, flags) = (CompactReader(rest), u16::from_le_bytes([low, high]));
    match layout {
        HOLD_LAYOUT => {
            let held = reader.hold(flags)?;
            reader.0.is_empty().then_some(JournalRecord::Held(held))
        }
        SESSION_HOLD_LAYOUT => {
            let held = reader.hold(flags)?;
            let [session] = reader.texts()?;
            let held = HoldRecord { session: session.into(), ..held };
            reader.0.is_empty().then_some(JournalRecord::Held(held))
        }
        SETTLEMENT_LAYOUT => reader.settlement(flags).map(JournalRecord::Settled),
        _ => None,
    }
}

/// The rest of a compact record.
struct CompactReader<'a>(&'a [u8]);

impl<'a> CompactReader<'a> {
    fn hold(&mut self, flags: u16) -> Option<HoldRecord> {
        let [at, amount, start_cost, cost_per_second, lease] = self.ints()?;
        let [request_id, key_id, account_id, dialect, model, price_version, lane] =
            self.texts()?.map(SharedText::from);
        Some(HoldRecord {
            at: Micros::new(at),
            amount: Money::from_nanos(amount),
            start_cost: Money::from_nanos(start_cost),
            cost_per_second: Money::from_nanos(cost_per_second),
            lease: (flags & LEASE != 0).then_some(lease),
            stream: flags & STREAM != 0,
            request_id,
            key_id,
            account_id,
            dialect,
            model,
            price_version,
            lane,
            session: SharedText::default(),
            end_user: SharedText::default(),
            tags: CallTags::default(),
        })
    }

    /// Reads a settlement, to the end of the record.
    fn settlement(&mut self, flags: u16) -> Option<LedgerEntry> {
        let [started, ended, first_byte, cost, held, absorbed, attempts] = self.ints()?;
        let [
            request_id,
            key_id,
            account_id,
            dialect,
            model,
            price_version,
            lane,
            service,
            outcome,
            ended_by,
        ] = self.texts()?;
        let mut entry = LedgerEntry {
            started: Micros::new(started),
            ended: Micros::new(ended),
            first_byte_us: (flags & FIRST_BYTE != 0).then_some(Micros::new(first_byte)),
            stream: flags & STREAM != 0,
            estimated: flags & ESTIMATED != 0,
            cost: Money::from_nanos(cost),
            held: (flags & HELD != 0).then_some(Money::from_nanos(held)),
            absorbed: Money::from_nanos(absorbed),
            attempts: u32::try_from(attempts >> u16::BITS).ok()?,
            status: u16::try_from(attempts & i64::from(u16::MAX)).ok()?,
            request_id: request_id.into(),
            key_id: key_id.into(),
            account_id: account_id.into(),
            dialect: dialect.into(),
            model: model.into(),
            price_version: price_version.into(),
            lane: lane.into(),
            service: service.into(),
            outcome: CallOutcome::by_word(outcome)?,
            ended_by: EndedBy::by_word(ended_by)?,
            usage: self.usage(flags)?,
            ..LedgerEntry::default()
        };
        for _ in 0..self.length()? {
            entry.charges.push(self.charge()?);
        }
        for _ in 0..self.length()? {
            let [loss] = self.texts()?;
            entry.losses.push(loss.to_owned());
        }
        if flags & RARE_FIELDS == 0 {
            return self.0.is_empty().then_some(entry);
        }
        let RareFields { failed, told, reasons, knowledge, session, end_user, tags, error } =
            rmp_serde::from_slice(std::mem::take(&mut self.0)).ok()?;
        entry.failed = failed.into_owned();
        entry.told = told.map(|told| Box::new(told.into_owned()));
        entry.reasons = reasons.into_owned();
        entry.knowledge = knowledge;
        entry.session = session.as_ref().into();
        entry.end_user = end_user.as_ref().into();
        entry.tags = tags;
        entry.error = error.map(|error| Box::new(error.into_owned()));
        Some(entry)
    }

    fn charge(&mut self) -> Option<Charge> {
        let [count, price] = self.ints()?;
        let [word] = self.texts()?;
        let word: StrDeserializer<'_, WordError> = word.into_deserializer();
        let dimension = PriceDimension::deserialize(word).ok()?;
        Some(Charge { dimension, count: count.cast_unsigned(), price: Price::from_picos(price) })
    }

    fn usage(&mut self, flags: u16) -> Option<Usage> {
        let used = self.length()?;
        let mut read = [0; COUNTS];
        for count in read.get_mut(..used)? {
            let [value] = self.ints()?;
            *count = value.cast_unsigned();
        }
        let [
            input,
            output,
            cache_read,
            thinking,
            cache_write,
            cache_write_long,
            input_audio,
            input_image,
            input_video,
            output_audio,
            output_image,
            searches,
            images,
            seconds,
            cache_storage,
            file_searches,
            code_runs,
            image_tokens,
        ] = read;
        let bill = if flags & BILL == 0 { None } else { Some(self.ints::<1>()?) };
        Some(Usage {
            input,
            output,
            cache_read,
            cache_write,
            cache_write_long,
            input_audio,
            input_image,
            input_video,
            thinking,
            output_audio,
            output_image,
            searches,
            images,
            seconds,
            cache_storage,
            tools: ToolUses { file_searches, code_runs, image_tokens },
            bill: bill.map(|[nanos]| Money::from_nanos(nanos)),
            ..Usage::default()
        })
    }

    fn ints<const N: usize>(&mut self) -> Option<[i64; N]> {
        let mut values = [0; N];
        for value in &mut values {
            let (bytes, rest) = self.0.split_first_chunk()?;
            (*value, self.0) = (i64::from_le_bytes(*bytes), rest);
        }
        Some(values)
    }

    fn length(&mut self) -> Option<usize> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        usize::try_from(u32::from_le_bytes(*bytes)).ok()
    }

    fn texts<const N: usize>(&mut self) -> Option<[&'a str; N]> {
        let mut lengths = [0; N];
        for length in &mut lengths {
            *length = self.length()?;
        }
        let mut texts = [""; N];
        for (text, length) in texts.iter_mut().zip(lengths) {
            let (bytes, rest) = self.0.split_at_checked(length)?;
            self.0 = rest;
            *text = std::str::from_utf8(bytes).ok()?;
        }
        Some(texts)
    }
}

#[cfg(test)]
mod tests;

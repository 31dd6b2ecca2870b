//! MessagePack of the journal's records
//! (<https://github.com/msgpack/msgpack/blob/master/spec.md>).
//!
//! Every call writes two records, so they are written by hand: the same bytes as those of
//! `rmp_serde::encode::write_named`, at a third of the work. Records are read by their
//! `Deserialize`.

use canon::{Charge, Money, ToolUses, Usage};

use crate::journal::Written;
use crate::{FailedAttempt, HoldRecord, LaterAttempt, LedgerEntry, ProgressRecord};

const NIL: u8 = 0xc0;

/// Appends a record: a map with the name of its variant as the only key.
pub(crate) fn encode(record: &Written<'_>, out: &mut Vec<u8>) {
    let mut writer = RecordWriter(out);
    writer.map(1);
    match record {
        Written::Held(held) => {
            writer.text("held");
            writer.hold(held);
        }
        Written::Reached(reached) => {
            writer.text("reached");
            writer.progress(reached);
        }
        Written::Settled(entry) => {
            writer.text("settled");
            writer.entry(entry);
        }
        Written::Voided(request_id) => {
            writer.text("voided");
            writer.map(1);
            writer.text_field("request_id", request_id);
        }
        Written::Alive(at) => {
            writer.text("alive");
            writer.map(1);
            writer.int_field("at", at.get());
        }
    }
}

struct RecordWriter<'a>(&'a mut Vec<u8>);

impl RecordWriter<'_> {
    fn hold(&mut self, held: &HoldRecord) {
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
        } = held;
        let optional = [
            lease.is_some(),
            !lane.is_empty(),
            *start_cost != Money::ZERO,
            *cost_per_second != Money::ZERO,
        ];
        self.map(9 + optional.into_iter().filter(|is_written| *is_written).count());
        self.text_field("request_id", request_id);
        self.text_field("key_id", key_id);
        self.text_field("account_id", account_id);
        self.int_field("at", at.get());
        self.int_field("amount", amount.as_nanos());
        self.text_field("dialect", dialect);
        self.text_field("model", model);
        self.bool_field("stream", *stream);
        self.text_field("price_version", price_version);
        if let Some(lease) = lease {
            self.int_field("lease", *lease);
        }
        if !lane.is_empty() {
            self.text_field("lane", lane);
        }
        if *start_cost != Money::ZERO {
            self.int_field("start_cost", start_cost.as_nanos());
        }
        if *cost_per_second != Money::ZERO {
            self.int_field("cost_per_second", cost_per_second.as_nanos());
        }
    }

    fn progress(&mut self, reached: &ProgressRecord) {
        let ProgressRecord { request_id, at, lane, usage, cost, attempt } = reached;
        self.map(5 + usize::from(attempt.is_some()));
        self.text_field("request_id", request_id);
        self.int_field("at", at.get());
        self.text_field("lane", lane);
        self.text("usage");
        self.usage(usage);
        self.int_field("cost", cost.as_nanos());
        if let Some(attempt) = attempt {
            self.text("attempt");
            self.later_attempt(attempt);
        }
    }

    fn later_attempt(&mut self, attempt: &LaterAttempt) {
        let LaterAttempt { at, start_cost, cost_per_second, price_version, absorbed, failed } =
            attempt;
        self.map(6);
        self.int_field("at", at.get());
        self.int_field("start_cost", start_cost.as_nanos());
        self.int_field("cost_per_second", cost_per_second.as_nanos());
        self.text_field("price_version", price_version);
        self.int_field("absorbed", absorbed.as_nanos());
        self.text("failed");
        self.array(failed.len());
        failed.iter().for_each(|attempt| self.failed_attempt(attempt));
    }

    fn entry(&mut self, entry: &LedgerEntry) {
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
        } = entry;
        let optional = [
            !failed.is_empty(),
            held.is_some(),
            !service.is_empty(),
            !charges.is_empty(),
            told.is_some(),
            !reasons.is_empty(),
            !knowledge.is_final(),
        ];
        self.map(20 + optional.into_iter().filter(|is_written| *is_written).count());
        self.text_field("request_id", request_id);
        self.text_field("key_id", key_id);
        self.text_field("account_id", account_id);
        self.int_field("started", started.get());
        self.int_field("ended", ended.get());
        self.text("first_byte_us");
        match first_byte_us {
            Some(time) => self.int(time.get()),
            None => self.byte(NIL),
        }
        self.text_field("dialect", dialect);
        self.text_field("model", model);
        self.text_field("lane", lane);
        self.uint_field("attempts", u64::from(*attempts));
        if !failed.is_empty() {
            self.text("failed");
            self.array(failed.len());
            failed.iter().for_each(|attempt| self.failed_attempt(attempt));
        }
        self.bool_field("stream", *stream);
        self.uint_field("status", u64::from(*status));
        self.text_field("outcome", outcome.word());
        self.text_field("ended_by", ended_by.word());
        self.text("usage");
        self.usage(usage);
        self.bool_field("estimated", *estimated);
        self.int_field("cost", cost.as_nanos());
        if let Some(held) = held {
            self.int_field("held", held.as_nanos());
        }
        self.int_field("borne", absorbed.as_nanos());
        self.text_field("price_version", price_version);
        if !service.is_empty() {
            self.text_field("service", service);
        }
        if !charges.is_empty() {
            self.text("charges");
            self.array(charges.len());
            charges.iter().for_each(|charge| self.charge(charge));
        }
        self.text("losses");
        self.array(losses.len());
        losses.iter().for_each(|loss| self.text(loss));
        if let Some(told) = told {
            self.text("told");
            self.usage(told);
        }
        if !reasons.is_empty() {
            self.text("reasons");
            self.array(reasons.len());
            reasons.iter().for_each(|reason| self.text(reason.word()));
        }
        if !knowledge.is_final() {
            self.text_field("knowledge", knowledge.word());
        }
    }

    fn failed_attempt(&mut self, attempt: &FailedAttempt) {
        let FailedAttempt { lane, outcome, status, ms } = attempt;
        self.map(4);
        self.text_field("lane", lane);
        self.text_field("outcome", outcome);
        self.text("status");
        match status {
            Some(status) => self.uint(u64::from(*status)),
            None => self.byte(NIL),
        }
        self.uint_field("ms", *ms);
    }

    fn usage(&mut self, usage: &Usage) {
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
            tools,
            search_context: _,
            bill,
        } = *usage;
        let rare = [cache_storage > 0, !tools.is_none(), bill.is_some()];
        self.map(14 + rare.into_iter().filter(|is_set| *is_set).count());
        self.uint_field("input", input);
        self.uint_field("cache_read", cache_read);
        self.uint_field("cache_write", cache_write);
        self.uint_field("cache_write_long", cache_write_long);
        self.uint_field("input_audio", input_audio);
        self.uint_field("input_image", input_image);
        self.uint_field("input_video", input_video);
        self.uint_field("output", output);
        self.uint_field("thinking", thinking);
        self.uint_field("output_audio", output_audio);
        self.uint_field("output_image", output_image);
        self.uint_field("searches", searches);
        self.uint_field("images", images);
        self.uint_field("seconds", seconds);
        if cache_storage > 0 {
            self.uint_field("cache_storage", cache_storage);
        }
        if !tools.is_none() {
            let ToolUses { file_searches, code_runs, image_tokens } = tools;
            self.text("tools");
            self.map(3);
            self.uint_field("file_searches", file_searches);
            self.uint_field("code_runs", code_runs);
            self.uint_field("image_tokens", image_tokens);
        }
        if let Some(bill) = bill {
            self.int_field("bill", bill.as_nanos());
        }
    }

    fn charge(&mut self, charge: &Charge) {
        let Charge { dimension, count, price } = charge;
        self.map(3);
        self.text_field("of", dimension.as_str());
        self.uint_field("count", *count);
        self.int_field("price", price.as_picos());
    }

    // The names are constants: inlined, their lengths are known to the compiler.
    #[inline]
    fn text_field(&mut self, name: &str, value: &str) {
        self.text(name);
        self.text(value);
    }

    #[inline]
    fn int_field(&mut self, name: &str, value: i64) {
        self.text(name);
        self.int(value);
    }

    #[inline]
    fn uint_field(&mut self, name: &str, value: u64) {
        self.text(name);
        self.uint(value);
    }

    #[inline]
    fn bool_field(&mut self, name: &str, value: bool) {
        self.text(name);
        self.byte(0xc2 | u8::from(value));
    }

    #[inline]
    fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    #[inline]
    fn marked<const N: usize>(&mut self, mark: u8, bytes: [u8; N]) {
        self.0.push(mark);
        self.0.extend_from_slice(&bytes);
    }

    #[inline]
    fn text(&mut self, text: &str) {
        match text.len() {
            length @ ..32 => self.byte(0xa0 | low_byte(length)),
            length => self.long_text_mark(length),
        }
        self.0.extend_from_slice(text.as_bytes());
    }

    #[cold]
    fn long_text_mark(&mut self, length: usize) {
        match length {
            ..0x100 => self.marked(0xd9, [low_byte(length)]),
            0x100..0x1_0000 => self.marked(0xda, low_word(length).to_be_bytes()),
            _ => self.marked(0xdb, low_double(length).to_be_bytes()),
        }
    }

    #[inline]
    fn map(&mut self, length: usize) {
        match length {
            ..16 => self.byte(0x80 | low_byte(length)),
            _ => self.marked(0xde, low_word(length).to_be_bytes()),
        }
    }

    fn array(&mut self, length: usize) {
        match length {
            ..16 => self.byte(0x90 | low_byte(length)),
            16..0x1_0000 => self.marked(0xdc, low_word(length).to_be_bytes()),
            _ => self.marked(0xdd, low_double(length).to_be_bytes()),
        }
    }

    /// Writes a number in its shortest form. One that is not negative has the form without a sign.
    fn int(&mut self, value: i64) {
        if let Ok(value) = u64::try_from(value) {
            return self.uint(value);
        }
        if value >= -32 {
            self.byte(value.to_be_bytes()[7]);
        } else if let Ok(value) = i8::try_from(value) {
            self.marked(0xd0, value.to_be_bytes());
        } else if let Ok(value) = i16::try_from(value) {
            self.marked(0xd1, value.to_be_bytes());
        } else if let Ok(value) = i32::try_from(value) {
            self.marked(0xd2, value.to_be_bytes());
        } else {
            self.marked(0xd3, value.to_be_bytes());
        }
    }

    #[inline]
    fn uint(&mut self, value: u64) {
        match u8::try_from(value) {
            Ok(value @ ..0x80) => self.byte(value),
            Ok(value) => self.marked(0xcc, [value]),
            Err(_) => self.large_uint(value),
        }
    }

    fn large_uint(&mut self, value: u64) {
        if let Ok(value) = u16::try_from(value) {
            self.marked(0xcd, value.to_be_bytes());
        } else if let Ok(value) = u32::try_from(value) {
            self.marked(0xce, value.to_be_bytes());
        } else {
            self.marked(0xcf, value.to_be_bytes());
        }
    }
}

fn low_byte(length: usize) -> u8 {
    u8::try_from(length).unwrap_or(u8::MAX)
}

fn low_word(length: usize) -> u16 {
    u16::try_from(length).unwrap_or(u16::MAX)
}

fn low_double(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CallOutcome, ChargeReason, EndedBy, JournalRecord, SettlementKnowledge};
    use canon::{Micros, Price, PriceDimension};

    /// Lengths and amounts on both sides of every change of form.
    const SIZES: [u64; 12] = [0, 15, 16, 31, 32, 127, 128, 255, 256, 65_535, 65_536, u64::MAX];

    fn same_as_serde(record: &Written<'_>) {
        let mut bytes = Vec::new();
        encode(record, &mut bytes);
        let want = match record {
            Written::Held(held) => rmp_serde::encode::to_vec_named(&named("held", held)),
            Written::Reached(reached) => {
                rmp_serde::encode::to_vec_named(&named("reached", reached))
            }
            Written::Settled(entry) => rmp_serde::encode::to_vec_named(&named("settled", entry)),
            Written::Voided(request_id) => {
                let request_id = (*request_id).to_owned();
                rmp_serde::encode::to_vec_named(&JournalRecord::Voided { request_id })
            }
            Written::Alive(at) => {
                rmp_serde::encode::to_vec_named(&JournalRecord::Alive { at: *at })
            }
        };
        assert_eq!(bytes, want.unwrap());
    }

    fn named<T>(name: &str, record: T) -> std::collections::BTreeMap<String, T> {
        [(name.to_owned(), record)].into()
    }

    #[test]
    fn bytes_are_those_of_serde() {
        for size in SIZES {
            let text = "ä".repeat(usize::try_from(size).unwrap().min(70_000) / 2);
            let int = i64::try_from(size).unwrap_or(i64::MAX);
            for int in [int, -int, -int - 1, 33 - int] {
                let held = HoldRecord {
                    request_id: text.clone(),
                    key_id: "k".to_owned(),
                    account_id: String::new(),
                    at: Micros::new(int),
                    amount: Money::from_nanos(int),
                    dialect: "chat".to_owned(),
                    model: text.clone(),
                    stream: size % 2 == 0,
                    price_version: "v".to_owned(),
                    lease: (size > 100).then_some(int),
                    lane: if size > 15 { text.clone() } else { String::new() },
                    start_cost: Money::from_nanos(int),
                    cost_per_second: Money::from_nanos(if size > 31 { int } else { 0 }),
                };
                same_as_serde(&Written::Held(&held));
                same_as_serde(&Written::Voided(&text));
                same_as_serde(&Written::Alive(Micros::new(int)));
                let tools = ToolUses { code_runs: size, ..ToolUses::default() };
                let usage = Usage {
                    input: size,
                    cache_write: size,
                    seconds: size,
                    cache_storage: size,
                    tools,
                    bill: (size > 15).then_some(Money::from_nanos(int)),
                    ..Usage::default()
                };
                let reached = ProgressRecord {
                    request_id: text.clone(),
                    at: Micros::new(int),
                    lane: text.clone(),
                    usage,
                    cost: Money::from_nanos(int),
                    attempt: None,
                };
                same_as_serde(&Written::Reached(&reached));
                let attempt = LaterAttempt {
                    at: Micros::new(int),
                    start_cost: Money::from_nanos(int),
                    price_version: text.clone(),
                    absorbed: Money::from_nanos(int),
                    failed: vec![FailedAttempt::default(); usize::from(size > 31) * 20],
                    ..LaterAttempt::default()
                };
                let attempt = Some(Box::new(attempt));
                same_as_serde(&Written::Reached(&ProgressRecord { attempt, ..reached }));
            }
        }
    }

    #[test]
    fn entries_are_those_of_serde() {
        same_as_serde(&Written::Settled(&LedgerEntry::default()));
        for count in [1, 15, 16, 70_000] {
            let dimension = PriceDimension::CacheWriteLong;
            let charge = Charge { dimension, count: 300, price: Price::from_picos(-7) };
            let attempt =
                FailedAttempt { status: Some(503), ms: 1 << 40, ..FailedAttempt::default() };
            let entry = LedgerEntry {
                request_id: "r".repeat(40),
                first_byte_us: Some(Micros::new(70_000)),
                attempts: u32::MAX,
                failed: vec![attempt.clone(), FailedAttempt { status: None, ..attempt }],
                status: 200,
                held: Some(Money::from_nanos(1)),
                absorbed: Money::from_nanos(-1),
                service: "flex".to_owned(),
                charges: vec![charge; count],
                losses: vec!["part.seal".to_owned(); count],
                told: Some(Box::new(Usage { output: 1 << 40, ..Usage::default() })),
                reasons: ChargeReason::ALL.to_vec(),
                ..LedgerEntry::default()
            };
            same_as_serde(&Written::Settled(&entry));
        }
        for outcome in CallOutcome::ALL {
            same_as_serde(&Written::Settled(&LedgerEntry { outcome, ..LedgerEntry::default() }));
        }
        for knowledge in SettlementKnowledge::ALL {
            same_as_serde(&Written::Settled(&LedgerEntry { knowledge, ..LedgerEntry::default() }));
        }
        for ended_by in EndedBy::ALL {
            same_as_serde(&Written::Settled(&LedgerEntry { ended_by, ..LedgerEntry::default() }));
        }
    }
}

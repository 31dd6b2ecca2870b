//! Law: a record that is written is read back unchanged.

use super::*;
use crate::ProgressRecord;
use proptest::prelude::*;

fn read_back(record: &Written<'_>) -> Option<JournalRecord> {
    let mut bytes = Vec::new();
    encode(record, &mut bytes);
    match bytes.first() {
        Some(&COMPACT_MARK) => decode(&bytes),
        Some(_) | None => rmp_serde::from_slice(&bytes).ok(),
    }
}

fn read_settlement(entry: &LedgerEntry) -> Option<JournalRecord> {
    read_back(&Written::Settled { entry, held: None })
}

/// Texts on both sides of every change of form.
fn text() -> BoxedStrategy<String> {
    prop_oneof!["\\PC{0,40}", (250_usize..260).prop_map(|length| "x".repeat(length))].boxed()
}

fn count() -> BoxedStrategy<u64> {
    prop_oneof![3 => Just(0), 2 => 1_u64..100_000, 1 => any::<u64>()].boxed()
}

fn amount() -> impl Strategy<Value = Money> {
    any::<i64>().prop_map(Money::from_nanos)
}

fn usage() -> BoxedStrategy<Usage> {
    let counts = prop::collection::vec(count(), COUNTS);
    let usage = (counts, proptest::option::of(amount())).prop_map(|(counts, bill)| {
        let count = |place: usize| counts.get(place).copied().unwrap_or_default();
        Usage {
            input: count(0),
            output: count(1),
            cache_read: count(2),
            cache_write: count(3),
            cache_write_long: count(4),
            input_audio: count(5),
            input_image: count(6),
            input_video: count(7),
            thinking: count(8),
            output_audio: count(9),
            output_image: count(10),
            searches: count(11),
            images: count(12),
            seconds: count(13),
            cache_storage: count(14),
            tools: ToolUses {
                file_searches: count(15),
                code_runs: count(16),
                image_tokens: count(17),
            },
            bill,
            ..Usage::default()
        }
    });
    usage.boxed()
}

fn charge() -> impl Strategy<Value = Charge> {
    let dimensions = [PriceDimension::Input, PriceDimension::CacheStorage, PriceDimension::Output];
    (prop::sample::select(dimensions.to_vec()), count(), any::<i64>()).prop_map(
        |(dimension, count, price)| Charge { dimension, count, price: Price::from_picos(price) },
    )
}

fn failed_attempt() -> impl Strategy<Value = FailedAttempt> {
    (text(), text(), proptest::option::of(any::<u16>()), count())
        .prop_map(|(lane, outcome, status, ms)| FailedAttempt { lane, outcome, status, ms })
}

fn tags() -> BoxedStrategy<CallTags> {
    let pairs = prop::collection::vec((text(), text()), 0..3);
    pairs.prop_map(|pairs| pairs.into_iter().collect()).boxed()
}

fn texts() -> BoxedStrategy<Vec<String>> {
    prop::collection::vec(text(), 8).boxed()
}

prop_compose! {
    /// The fields that few entries have.
    fn rare_entry()(
        knowledge in prop::sample::select(SettlementKnowledge::ALL.to_vec()),
        told in proptest::option::of(usage().prop_map(Box::new)),
        failed in prop::collection::vec(failed_attempt(), 0..3),
        reasons in prop::sample::subsequence(ChargeReason::ALL.to_vec(), 0..4),
        (session, end_user) in ("\\PC{0,3}", "\\PC{0,3}"),
        tags in tags(),
        error in proptest::option::of((text(), text(), text())),
    ) -> LedgerEntry {
        let (session, end_user) = (session.into(), end_user.into());
        let error = error
            .map(|(code, field, message)| Box::new(CallError { code, field, message }));
        LedgerEntry { knowledge, told, failed, reasons, session, end_user, tags, error, ..LedgerEntry::default() }
    }
}

prop_compose! {
    fn plain_entry()(
        texts in texts(),
        numbers in prop::collection::vec(any::<i64>(), 6),
        (has_first_byte, has_hold, stream, estimated) in any::<(bool, bool, bool, bool)>(),
        (attempts, status) in any::<(u32, u16)>(),
        usage in usage(),
        charges in prop::collection::vec(charge(), 0..4),
    ) -> LedgerEntry {
        let text = |place: usize| texts.get(place).cloned().unwrap_or_default();
        let number = |place: usize| numbers.get(place).copied().unwrap_or_default();
        LedgerEntry {
            request_id: text(0).into(),
            key_id: text(1).into(),
            account_id: text(2).into(),
            dialect: text(3).into(),
            model: text(4).into(),
            price_version: text(5).into(),
            lane: text(6).into(),
            service: text(7).into(),
            losses: texts.iter().take(texts.len() % 3).cloned().collect(),
            started: Micros::new(number(0)),
            ended: Micros::new(number(1)),
            first_byte_us: has_first_byte.then_some(Micros::new(number(2))),
            cost: Money::from_nanos(number(3)),
            held: has_hold.then_some(Money::from_nanos(number(4))),
            absorbed: Money::from_nanos(number(5)),
            stream,
            estimated,
            attempts,
            status,
            usage,
            charges,
            ..LedgerEntry::default()
        }
    }
}

fn entry() -> BoxedStrategy<LedgerEntry> {
    let with_rare = (plain_entry().boxed(), rare_entry().boxed()).prop_map(|(plain, rare)| {
        let LedgerEntry {
            knowledge, told, failed, reasons, session, end_user, tags, error, ..
        } = rare;
        LedgerEntry { knowledge, told, failed, reasons, session, end_user, tags, error, ..plain }
    });
    prop_oneof![plain_entry().boxed(), with_rare.boxed()].boxed()
}

prop_compose! {
    fn hold()(
        texts in texts(),
        (at, amount, start_cost, cost_per_second) in any::<(i64, i64, i64, i64)>(),
        lease in proptest::option::of(any::<i64>()),
        stream: bool,
        (session, end_user) in ("\\PC{0,3}", "\\PC{0,3}"),
        tags in tags(),
    ) -> HoldRecord {
        let text = |place: usize| texts.get(place).cloned().unwrap_or_default();
        HoldRecord {
            request_id: text(0).into(),
            key_id: text(1).into(),
            account_id: text(2).into(),
            dialect: text(3).into(),
            model: text(4).into(),
            price_version: text(5).into(),
            lane: text(6).into(),
            at: Micros::new(at),
            amount: Money::from_nanos(amount),
            start_cost: Money::from_nanos(start_cost),
            cost_per_second: Money::from_nanos(cost_per_second),
            lease,
            stream,
            session: session.into(),
            end_user: end_user.into(),
            tags,
        }
    }
}

proptest! {
    #[test]
    fn records_are_read_back(held in hold(), entry in entry()) {
        prop_assert_eq!(read_back(&Written::Held(&held)), Some(JournalRecord::Held(held)));
        prop_assert_eq!(read_settlement(&entry), Some(JournalRecord::Settled(entry)));
    }

    /// A settlement has the texts of its hold wherever it has none of its own.
    #[test]
    fn a_settlement_without_texts_has_those_of_its_hold(held in hold(), entry in entry()) {
        let bare = LedgerEntry {
            request_id: "".into(),
            key_id: "".into(),
            account_id: "".into(),
            dialect: "".into(),
            model: "".into(),
            ..entry.clone()
        };
        let read = read_back(&Written::Settled { entry: &bare, held: Some(&held) });
        let mut completed = bare;
        completed.complete(held);
        prop_assert_eq!(read, Some(JournalRecord::Settled(completed)));
    }

    /// Bytes that are no record are refused, and never more is read than there is.
    #[test]
    fn half_records_are_refused(held in hold(), entry in entry(), cut: prop::sample::Index) {
        for record in [Written::Held(&held), Written::Settled { entry: &entry, held: None }] {
            let mut bytes = Vec::new();
            encode(&record, &mut bytes);
            bytes.truncate(cut.index(bytes.len()));
            prop_assert_eq!(decode(&bytes), None);
        }
    }
}

#[test]
fn every_word_and_long_lists_are_read_back() {
    for outcome in CallOutcome::ALL {
        for ended_by in EndedBy::ALL {
            let entry = LedgerEntry { outcome, ended_by, ..LedgerEntry::default() };
            assert_eq!(read_settlement(&entry), Some(JournalRecord::Settled(entry)));
        }
    }
    for count in [254, 255, 256, 70_000] {
        let charge = Charge { dimension: PriceDimension::Image, count: 7, price: Price::FREE };
        let entry = LedgerEntry {
            charges: vec![charge; count],
            losses: vec!["part.seal".to_owned(); count],
            model: "m".repeat(count).into(),
            ..LedgerEntry::default()
        };
        assert_eq!(read_settlement(&entry), Some(JournalRecord::Settled(entry)));
    }
}

#[test]
fn rare_records_are_read_back() {
    let reached = ProgressRecord { request_id: "r".to_owned(), ..ProgressRecord::default() };
    let read = read_back(&Written::Reached(&reached));
    assert_eq!(read, Some(JournalRecord::Reached(reached)));
    let request_id = "r".to_owned();
    assert_eq!(read_back(&Written::Voided("r")), Some(JournalRecord::Voided { request_id }));
    let at = Micros::new(7);
    assert_eq!(read_back(&Written::Alive(at)), Some(JournalRecord::Alive { at }));
}

/// Bytes of a gateway from before sessions: a hold of layout 1, and its settlement of layout 2. They are
/// written out, so that a change of the layouts fails here although writer and reader still agree.
#[test]
fn records_from_before_sessions_are_read() {
    let held = HoldRecord {
        request_id: "req_1".into(),
        key_id: "k".into(),
        account_id: "a".into(),
        at: Micros::new(1),
        amount: Money::from_nanos(2),
        dialect: "chat".into(),
        model: "m".into(),
        stream: true,
        price_version: "p".into(),
        lease: Some(5),
        lane: "x/y".into(),
        start_cost: Money::from_nanos(3),
        cost_per_second: Money::from_nanos(4),
        session: SharedText::default(),
        end_user: SharedText::default(),
        tags: CallTags::default(),
    };
    let entry =
        LedgerEntry { key_id: "k".into(), request_id: "req_1".into(), ..LedgerEntry::default() };
    let hold = "c1010500\
        01000000000000000200000000000000030000000000000004000000000000000500000000000000\
        05000000010000000100000004000000010000000100000003000000\
        7265715f31 6b 61 63686174 6d 70 782f79";
    let settlement = "c1020000\
        0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000\
        0000000000000000000000000500000001000000000000000000000000000000000000000000000000000000\
        0600000008000000 7265715f31 6b 6661696c6564 70726f7669646572 000000000000000000000000";
    assert_eq!(decode(&from_hex(hold)), Some(JournalRecord::Held(held.clone())));
    assert_eq!(decode(&from_hex(settlement)), Some(JournalRecord::Settled(entry.clone())));
    // Records without a session are still written so, and earlier versions read them.
    let mut written = Vec::new();
    encode(&Written::Held(&held), &mut written);
    assert_eq!(written, from_hex(hold));
    written.clear();
    encode(&Written::Settled { entry: &entry, held: None }, &mut written);
    assert_eq!(written, from_hex(settlement));
}

fn from_hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits
        .chunks(2)
        .map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit) as u8)
        .collect()
}

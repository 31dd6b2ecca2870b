//! Sample accounts, keys and entries, fixed and arbitrary ones.

use canon::{Charge, Micros, Money, Price, PriceDimension, Usage};
use ledger::{
    BudgetPeriod, CallError, CallOutcome, ChargeReason, EndedBy, FailedAttempt, LedgerEntry,
    SettlementKnowledge,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use store::{Account, AccountRole, BudgetTerms, KeyRecord, KeyScope, RateLimits, Store};
use uuid::Uuid;

/// Checks a property within the runtime of a test.
pub(crate) fn check<S: Strategy, F: Future<Output = ()>>(
    cases: u32,
    strategy: S,
    property: impl Fn(S::Value) -> F,
) {
    let handle = tokio::runtime::Handle::current();
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    TestRunner::new(config)
        .run(&strategy, |value| {
            tokio::task::block_in_place(|| handle.block_on(property(value)));
            Ok(())
        })
        .unwrap();
}

pub(crate) fn id() -> String {
    Uuid::now_v7().to_string()
}

pub(crate) fn account(username: &str) -> Account {
    Account {
        id: id(),
        username: username.to_owned(),
        email: None,
        role: AccountRole::Member,
        password_hash: None,
        disabled: false,
        created: Micros::new(1),
        changed: Micros::new(1),
    }
}

pub(crate) fn key(account_id: &str) -> KeyRecord {
    KeyRecord {
        id: id(),
        account_id: account_id.to_owned(),
        created_by: Some(account_id.to_owned()),
        name: "a key".to_owned(),
        scope: KeyScope::Call,
        grants: store::KeyGrants::default(),
        hash: vec![1, 2, 3],
        old_hash: None,
        surface: None,
        old_until: None,
        cap: None,
        spent: Money::ZERO,
        budget: None,
        models: vec![],
        expires: None,
        revoked: None,
        limits: RateLimits::default(),
        ips: vec![],
        bounds: store::KeyBounds::default(),
        created: Micros::new(1),
        changed: Micros::new(1),
        last_used: None,
    }
}

/// Adds an account with a key.
pub(crate) async fn some_key(store: &Store) -> KeyRecord {
    let account = account(&id());
    store.add_account(&account).await.unwrap();
    let key = key(&account.id);
    store.add_key(&key).await.unwrap();
    key
}

/// Returns the entry of a call with that id, paid by that key.
pub(crate) fn entry(request_id: &str, key: &KeyRecord, cost: i64, ended: i64) -> LedgerEntry {
    LedgerEntry {
        request_id: request_id.into(),
        key_id: key.id.clone().into(),
        account_id: key.account_id.clone().into(),
        started: Micros::new(ended - 10),
        ended: Micros::new(ended),
        first_byte_us: Some(Micros::new(5)),
        dialect: "chat".into(),
        model: "demo-chat".into(),
        lane: "demo/chat".into(),
        attempts: 1,
        failed: Vec::new(),
        stream: true,
        status: 200,
        outcome: CallOutcome::Done,
        usage: Usage { input: 10, output: 20, ..Usage::default() },
        estimated: false,
        cost: Money::from_nanos(cost),
        held: Some(Money::from_nanos(cost)),
        absorbed: Money::ZERO,
        price_version: "1".into(),
        losses: vec![],
        ..LedgerEntry::default()
    }
}

fn count() -> impl Strategy<Value = u64> {
    prop_oneof![0..1000_u64, Just(i64::MAX as u64)]
}

/// Any text a caller may send, including NUL.
pub(crate) fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z/:.-]{0,20}", any::<String>(), Just("\0a\0".to_owned()), "['\";$\\\\]{1,5}"]
}

prop_compose! {
    fn usage()(
        input in count(), cache_read in count(), cache_write in count(),
        cache_write_long in count(), input_audio in count(), input_image in count(),
        output in count(), thinking in count(), output_audio in count(), output_image in count(),
        searches in count(), images in count(), seconds in count(),
    ) -> Usage {
        Usage {
            input, cache_read, cache_write, cache_write_long, input_audio, input_image,
            input_video: 0, output,
            thinking, output_audio, output_image, searches, images, seconds,
            ..Usage::default()
        }
    }
}

prop_compose! {
    fn charge()(
        of in prop::sample::select(vec![PriceDimension::Input, PriceDimension::CachedInput, PriceDimension::Image]),
        count: u64, price in 0..i64::MAX,
    ) -> Charge {
        Charge { dimension: of, count, price: Price::from_picos(price) }
    }
}

prop_compose! {
    fn any_try()(lane in text(), outcome in text(), status: Option<u16>, ms: u64) -> FailedAttempt {
        FailedAttempt { lane, outcome, status, ms }
    }
}

prop_compose! {
    /// Any entry.
    pub(crate) fn any_entry()(
        ids in (text(), text()),
        times in any::<(i64, i64, Option<i64>)>(),
        words in (text(), text(), text(), text(), text()).boxed(),
        attempts: u32, stream: bool, status: u16, estimated: bool,
        outcome in prop::sample::select(CallOutcome::ALL.to_vec()),
        // On the heap, because the stack of a test is small.
        usage in usage().boxed(),
        cost in 0..1_000_000_000_i64, borne: i64,
        losses in prop::collection::vec(text(), 0..3),
        failed in prop::collection::vec(any_try(), 0..3), held: Option<i64>,
        service in text(), charges in prop::collection::vec(charge(), 0..3),
        ended_by in prop::sample::select(EndedBy::ALL.to_vec()),
        told in prop::option::of(count()), reasons in prop::sample::subsequence(ChargeReason::ALL.to_vec(), 0..4),
        knowledge in prop::sample::select(SettlementKnowledge::ALL.to_vec()),
        error in prop::option::of((text(), text(), text())).boxed(),
        labels in (text(), prop::collection::vec((text(), text()), 0..3)).boxed(),
    ) -> LedgerEntry {
        LedgerEntry {
            request_id: id().into(), key_id: ids.0.into(), account_id: ids.1.into(),
            started: Micros::new(times.0), ended: Micros::new(times.1), first_byte_us: times.2.map(Micros::new),
            dialect: words.0.into(), model: words.1.into(), lane: words.2.into(), attempts, stream, status, outcome,
            usage, estimated, cost: Money::from_nanos(cost), absorbed: Money::from_nanos(borne),
            price_version: words.3.into(), losses, failed, held: held.map(Money::from_nanos), service: service.into(), charges, ended_by,
            told: told.map(|output| Box::new(Usage { output, ..Usage::default() })), reasons, knowledge,
            session: words.4.into(), end_user: labels.0.into(), tags: labels.1.into_iter().collect(),
            error: error.map(|(code, field, message)| Box::new(CallError { code, field, message })),
        }
    }
}

prop_compose! {
    /// Any key of that account.
    pub(crate) fn any_key(account_id: String)(
        name in "\\PC{0,20}",
        hash: Vec<u8>, old_hash: Option<Vec<u8>>, old_until: Option<i64>, cap: Option<i64>,
        models in prop::collection::vec(text(), 0..3),
        expires: Option<i64>, revoked: Option<i64>, limits: (Option<u32>, Option<u32>, Option<u32>),
        ips in prop::collection::vec(text(), 0..3),
        budget in prop::option::of((any::<i64>(), prop::sample::select(BudgetPeriod::ALL.to_vec()))),
        created: i64, changed in 0..i64::MAX, made_by in prop::option::of("\\PC{0,20}"),
        scope in prop::sample::select(KeyScope::ALL.to_vec()),
        surface in prop::option::of("\\PC{0,20}"),
    ) -> KeyRecord {
        let (rpm, tpm, concurrency) = limits;
        let expires = match scope {
            KeyScope::Call => expires,
            KeyScope::Admin => expires.or(Some(1)),
        };
        KeyRecord {
            id: id(), account_id: account_id.clone(), created_by: made_by, name, surface, scope, grants: store::KeyGrants::default(), hash, old_hash, old_until: old_until.map(Micros::new),
            cap: cap.map(Money::from_nanos), spent: Money::ZERO,
            budget: budget.map(|(most, period)| BudgetTerms { limit: Money::from_nanos(most), period }),
            models, expires: expires.map(Micros::new), revoked: revoked.map(Micros::new),
            limits: RateLimits { rpm, tpm, concurrency }, ips, bounds: store::KeyBounds::default(), created: Micros::new(created), changed: Micros::new(changed), last_used: None,
        }
    }
}

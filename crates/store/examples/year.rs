//! Posts a year of calls as a gateway does, and measures the queries of pages: `cargo run -p store
//! --example year -- sqlite:year.db 2000000`.

#![allow(
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "a tool that prints figures, with lists of its own making"
)]

use std::time::{Duration, Instant};

use canon::{Micros, Money, Usage};
use ledger::{CallOutcome, LedgerEntry};
use store::{
    Account, AccountRole, CallFilter, EntryFilter, GroupBy, GroupOrder, KeyRecord, KeyScope,
    RateLimits, StatusFilter, Store, StoreError, SumGroup, UsageFilter, UsageReport, UsageRequest,
    UsageStep,
};

const DAY: Micros = Micros::from_days(1);
const YEAR: Micros = Micros::from_days(365);
/// End of the year: 2026-11-15.
const END: Micros = Micros::from_days(20_772);
const ACCOUNTS: u64 = 200;
const KEYS: u64 = 1_000;
const MODELS: u64 = 30;
/// Number of models with two lanes.
const TWICE: u64 = 10;
/// Maximum number of models that a key uses.
const OF_A_KEY: u64 = 4;
/// HTTP statuses and their frequencies in thousandths.
const STATUSES: [(u16, u64); 6] = [(200, 950), (429, 25), (400, 12), (503, 7), (504, 4), (499, 2)];
const BATCH: u64 = 2_000;
/// Repetitions of each query, of which the median is printed.
const TIMES: usize = 9;

/// Returns a pseudo-random number below the limit.
fn chance(number: u64, below: u64) -> u64 {
    let mut word = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (word ^ (word >> 31)) % below
}

/// Returns a number below `of` with a Zipf-like distribution: the second is half as frequent as the
/// first.
fn rank(number: u64, of: u64) -> u64 {
    let part = chance(number, 1 << 32) as f64 / (1_u64 << 32) as f64;
    (((of + 1) as f64).powf(part) as u64).clamp(1, of) - 1
}

async fn keys(store: &Store) -> Result<Vec<KeyRecord>, StoreError> {
    for number in 0..ACCOUNTS {
        let account = Account {
            id: format!("account-{number}"),
            username: format!("user{number}"),
            email: None,
            role: AccountRole::Member,
            password_hash: None,
            disabled: false,
            created: Micros::new(1),
            changed: Micros::new(1),
        };
        store.add_account(&account).await?;
    }
    let mut keys = Vec::new();
    for number in 0..KEYS {
        let key = KeyRecord {
            id: format!("key-{number}"),
            account_id: format!("account-{}", rank(number ^ 99, ACCOUNTS)),
            created_by: None,
            name: "a key".to_owned(),
            scope: KeyScope::Call,
            grants: store::KeyGrants::default(),
            hash: number.to_be_bytes().to_vec(),
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
        };
        store.add_key(&key).await?;
        keys.push(key);
    }
    Ok(keys)
}

fn call(number: u64, of: u64, keys: &[KeyRecord]) -> LedgerEntry {
    let started = END - YEAR
        + Micros::new((i128::from(YEAR.get()) * i128::from(number) / i128::from(of)) as i64);
    // A few keys and models have most of the calls.
    let which = rank(number, KEYS);
    let key = &keys[which as usize];
    let model = rank(which * OF_A_KEY + rank(number ^ 7, OF_A_KEY), MODELS);
    let other_lane = model < TWICE && chance(number ^ 4, 4) == 0;
    let took = 300_000 + chance(number ^ 1, 9_000_000) as i64;
    let mut place = chance(number ^ 2, 1_000);
    let mut statuses = STATUSES.into_iter();
    let status = loop {
        match statuses.next() {
            Some((_, share)) if place >= share => place -= share,
            Some((status, _)) => break status,
            None => break 200,
        }
    };
    let failed = status != 200;
    let output = if failed { 0 } else { 20 + chance(number ^ 3, 900) };
    let cost = output as i64 * 15_000;
    LedgerEntry {
        request_id: format!("req_{:013x}{number:016x}", started.get()).into(),
        key_id: key.id.clone().into(),
        account_id: key.account_id.clone().into(),
        started,
        ended: started + Micros::new(took),
        first_byte_us: (!failed).then_some(Micros::new(took / 4)),
        dialect: "chat".into(),
        model: format!("model-{model}").into(),
        lane: format!("provider-{}/model-{model}", if other_lane { 6 } else { model % 6 }).into(),
        attempts: 1,
        failed: vec![],
        stream: number.is_multiple_of(2),
        status,
        outcome: if failed { CallOutcome::Failed } else { CallOutcome::Done },
        usage: Usage { input: output * 3, output, ..Usage::default() },
        estimated: false,
        cost: Money::from_nanos(cost),
        held: Some(Money::from_nanos(cost * 2)),
        absorbed: Money::ZERO,
        price_version: "p-1".into(),
        ..LedgerEntry::default()
    }
}

/// Repeats a query and prints the median time and the number of rows.
async fn ask<T, F: Future<Output = Result<T, StoreError>>>(
    about: &str,
    size: impl Fn(&T) -> usize,
    question: impl Fn() -> F,
) -> Result<(), StoreError> {
    let mut times = Vec::new();
    let mut rows = 0;
    let before = processor_time();
    for _ in 0..TIMES {
        let begun = Instant::now();
        rows = size(&question().await?);
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    let (middle, worst) = (times[TIMES / 2], times[TIMES - 1]);
    let own = (processor_time() - before) / TIMES as u32;
    println!(
        "{:>9.2} ms  {:>9.2} ms  {:>9.2} ms  {rows:>6}  {about}",
        millis(middle),
        millis(worst),
        millis(own)
    );
    Ok(())
}

/// Returns the processor time of this process. With SQLite that is the whole cost of a query.
fn processor_time() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let told = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("schedstat")).ok());
    Duration::from_nanos(told.filter_map(|told| told.split(' ').next()?.parse::<u64>().ok()).sum())
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}

async fn fill(store: &Store, calls: u64) -> Result<(), StoreError> {
    let keys = keys(store).await?;
    let begun = Instant::now();
    let mut number = 0;
    while number < calls {
        let end = calls.min(number + BATCH);
        let batch: Vec<LedgerEntry> =
            (number..end).map(|number| call(number, calls, &keys)).collect();
        store.post(&batch).await?;
        number = end;
    }
    let took = begun.elapsed().as_secs_f64();
    let own = processor_time().as_secs_f64() * 1e6 / calls as f64;
    println!(
        "{calls} calls posted in {took:.0} s, {:.0} a second, {own:.1} µs of this process's own each",
        calls as f64 / took
    );
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, calls] = arguments.as_slice() else {
        return Err("usage: year STORE-URL CALLS".into());
    };
    let calls: u64 = calls.parse()?;
    let store = Store::open(url).await?;
    // An existing database is only queried.
    if store.account_count().await? == 0 {
        fill(&store, calls).await?;
    }

    println!("   middle       worst     processor      rows");
    let year = END - YEAR..END;
    let all = CallFilter::default();
    let account = CallFilter { account_id: Some("account-0".to_owned()), ..CallFilter::default() };
    let key = CallFilter { key_id: Some("key-0".to_owned()), ..CallFilter::default() };
    let model = CallFilter { model: Some("model-0".to_owned()), ..CallFilter::default() };
    let lane = CallFilter { lane: Some("provider-1/model-1".to_owned()), ..CallFilter::default() };
    let status = CallFilter { status: Some(StatusFilter::Is(200)), ..CallFilter::default() };
    let of_account = CallFilter { model: model.model.clone(), ..account.clone() };
    // The console queries by month, programs by day unless they choose another step.
    for step in [UsageStep::Month, UsageStep::Day] {
        for (whose, filter) in [
            ("everyone", &all),
            ("an account", &account),
            ("a key", &key),
            ("a model", &model),
            ("a lane", &lane),
            ("a status", &status),
            ("an account and a model", &of_account),
        ] {
            for by in GroupBy::ALL {
                let wish = UsageRequest {
                    range: year.clone(),
                    steps: step.begins(&year),
                    by,
                    tag: None,
                    rank: GroupOrder::Cost,
                    filter: filter.clone(),
                    listed: 25,
                    with_series: 8,
                };
                let about = format!("the year of {whose} by {} and {}", step.word(), by.word());
                let points = |view: &UsageReport| view.series.len() + view.others.len();
                ask(&about, points, || store.usage_view(&wish)).await?;
            }
        }
    }
    let sums = UsageFilter::default();
    ask("how fast everyone's calls were, by day of the year", Vec::len, || {
        store.latencies_over(year.clone(), UsageStep::Day, None, &sums)
    })
    .await?;
    let week = END - 7 * DAY..END;
    ask("a week of everyone by hour and status", Vec::len, || {
        store.usage_over(week.clone(), UsageStep::Hour, Some(SumGroup::Status), &sums)
    })
    .await?;
    let back = EntryFilter { since: Some(END - YEAR / 3), ..EntryFilter::default() };
    let some = store.export_of(&back, None, 1).await?;
    let some = some.first().map_or("", |entry| &entry.request_id);
    ask("one call", |call: &Option<LedgerEntry>| usize::from(call.is_some()), || store.entry(some))
        .await?;
    let newest = EntryFilter::default();
    let rare = CallFilter { model: Some("model-11".to_owned()), ..CallFilter::default() };
    let filters = [
        ("everyone's", newest.clone()),
        ("an account's", EntryFilter::from(account.clone())),
        ("a key's", EntryFilter::from(key.clone())),
        ("a rare model's", EntryFilter::from(rare)),
        (
            "half a year back",
            EntryFilter { before: Some((END - YEAR / 2, String::new())), ..newest },
        ),
    ];
    for (whose, filter) in &filters {
        ask(&format!("fifty newest calls, {whose}"), Vec::len, || store.entries(filter, 50))
            .await?;
    }
    let begun = Instant::now();
    let (proofs, calls) = store.verify().await?;
    let holds = proofs.iter().all(|proof| proof.violations.is_empty());
    println!(
        "{:>9.0} ms  eight invariants over {calls} calls hold: {holds}",
        millis(begun.elapsed())
    );
    store.close().await;
    if holds { Ok(()) } else { Err(format!("{proofs:?}").into()) }
}

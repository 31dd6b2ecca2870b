//! A year of calls in a database, posted as a gateway posts them, and how long it takes to ask what
//! pages ask: `cargo run -p store --example year -- sqlite:year.db 2000000`.

#![allow(
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "a tool that prints figures, with lists of its own making"
)]

use std::time::{Duration, Instant};

use canon::{Money, Usage};
use ledger::{Entry, Outcome};
use store::{
    Account, By, EntryFilter, KeyRecord, Limits, Micros, Rank, Role, Step, Store, StoreError,
    UsageFilter,
};

const DAY: Micros = 86_400_000_000;
const YEAR: Micros = 365 * DAY;
/// The end of the year: the 15th of November 2026.
const END: Micros = 20_772 * DAY;
const ACCOUNTS: u64 = 25;
const KEYS: u64 = 250;
const MODELS: u64 = 12;
const BATCH: u64 = 2_000;
/// How often a question is asked; the middle of the times is told.
const TIMES: usize = 9;

/// Something between nothing and that, different for every number.
fn chance(number: u64, below: u64) -> u64 {
    let mut word = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (word ^ (word >> 31)) % below
}

async fn keys(store: &Store) -> Result<Vec<KeyRecord>, StoreError> {
    for number in 0..ACCOUNTS {
        let account = Account {
            id: format!("account-{number}"),
            username: format!("user{number}"),
            email: None,
            role: Role::Member,
            password_hash: None,
            disabled: false,
            created: 1,
            changed: 1,
        };
        store.add_account(&account).await?;
    }
    let mut keys = Vec::new();
    for number in 0..KEYS {
        let key = KeyRecord {
            id: format!("key-{number}"),
            account_id: format!("account-{}", number % ACCOUNTS),
            made_by: None,
            name: "a key".to_owned(),
            hash: number.to_be_bytes().to_vec(),
            old_hash: None,
            old_until: None,
            cap: None,
            spent: Money::ZERO,
            budget: None,
            models: vec![],
            expires: None,
            revoked: None,
            limits: Limits::default(),
            ips: vec![],
            created: 1,
            changed: 1,
            last_used: None,
        };
        store.add_key(&key).await?;
        keys.push(key);
    }
    Ok(keys)
}

fn call(number: u64, of: u64, keys: &[KeyRecord]) -> Entry {
    let started = END - YEAR + (i128::from(YEAR) * i128::from(number) / i128::from(of)) as i64;
    // Few keys and models have most of the calls.
    let key = &keys[chance(number, chance(!number, KEYS) + 1) as usize];
    let model = chance(number ^ 7, chance(number ^ 9, MODELS) + 1);
    let took = 300_000 + chance(number ^ 1, 9_000_000) as i64;
    let failed = chance(number ^ 2, 50) == 0;
    let output = if failed { 0 } else { 20 + chance(number ^ 3, 900) };
    let cost = output as i64 * 15_000;
    Entry {
        request_id: format!("req_{started:013x}{number:016x}"),
        key_id: key.id.clone(),
        account_id: key.account_id.clone(),
        started,
        ended: started + took,
        first_byte_us: (!failed).then_some(took / 4),
        dialect: "chat".to_owned(),
        model: format!("model-{model}"),
        lane: format!("provider-{}/model-{model}", chance(number ^ 4, 2)),
        attempts: 1,
        failed: vec![],
        stream: number.is_multiple_of(2),
        status: if failed { 503 } else { 200 },
        outcome: if failed { Outcome::Failed } else { Outcome::Done },
        usage: Usage { input: output * 3, output, ..Usage::default() },
        estimated: false,
        cost: Money::nanos(cost),
        held: Some(Money::nanos(cost * 2)),
        borne: Money::ZERO,
        price_version: "p-1".to_owned(),
        ..Entry::default()
    }
}

/// Asks several times; tells the middle of the times, and what came of it.
async fn ask<T, F: Future<Output = Result<T, StoreError>>>(
    about: &str,
    size: impl Fn(&T) -> usize,
    question: impl Fn() -> F,
) -> Result<(), StoreError> {
    let mut times = Vec::new();
    let mut rows = 0;
    for _ in 0..TIMES {
        let begun = Instant::now();
        rows = size(&question().await?);
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    let (middle, worst) = (times[TIMES / 2], times[TIMES - 1]);
    println!("{:>9.2} ms  {:>9.2} ms  {rows:>6}  {about}", millis(middle), millis(worst));
    Ok(())
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
        let batch: Vec<Entry> = (number..end).map(|number| call(number, calls, &keys)).collect();
        store.post(&batch).await?;
        number = end;
    }
    let took = begun.elapsed().as_secs_f64();
    println!("{calls} calls posted in {took:.0} s, {:.0} a second", calls as f64 / took);
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
    // What is there already is only asked about.
    if store.account_count().await? == 0 {
        fill(&store, calls).await?;
    }

    println!("   middle       worst        rows");
    let year = END - YEAR..END;
    let all = UsageFilter::default();
    let account =
        UsageFilter { account_id: Some("account-3".to_owned()), ..UsageFilter::default() };
    let key = UsageFilter { key_id: Some("key-3".to_owned()), ..UsageFilter::default() };
    for (whose, filter) in [("everyone", &all), ("an account", &account), ("a key", &key)] {
        for (step, by) in [(Step::Day, Some(By::Model)), (Step::Day, None), (Step::Month, None)] {
            let apart = by.map_or("", |_| " by model");
            let about = format!("the year of {whose} by {}{apart}", step.word());
            ask(&about, Vec::len, || store.usage_over(year.clone(), step, by, filter)).await?;
        }
    }
    ask("how fast everyone's calls were, by day of the year", Vec::len, || {
        store.pace_over(year.clone(), Step::Day, None, &all)
    })
    .await?;
    let week = END - 7 * DAY..END;
    ask("a week of everyone by hour and status", Vec::len, || {
        store.usage_over(week.clone(), Step::Hour, Some(By::Status), &all)
    })
    .await?;
    for (by, filter) in
        [(By::Key, &all), (By::Account, &all), (By::Lane, &all), (By::Key, &account)]
    {
        let whose = filter.account_id.as_deref().unwrap_or("everyone");
        ask(&format!("the first ten of the year by {}, of {whose}", by.word()), Vec::len, || {
            store.top(year.clone(), by, Rank::Cost, filter, 10)
        })
        .await?;
    }
    let back = EntryFilter { since: Some(END - YEAR / 3), ..EntryFilter::default() };
    let some = store.export_of(&back, None, 1).await?;
    let some = some.first().map_or("", |entry| &entry.request_id);
    ask("one call", |call: &Option<Entry>| usize::from(call.is_some()), || store.entry(some))
        .await?;
    let newest = EntryFilter::default();
    let filters = [
        ("everyone's", newest.clone()),
        ("an account's", EntryFilter { account_id: account.account_id.clone(), ..newest.clone() }),
        ("a key's", EntryFilter { key_id: key.key_id.clone(), ..newest.clone() }),
        ("a rare model's", EntryFilter { model: Some("model-11".to_owned()), ..newest.clone() }),
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
    let (proofs, calls) = store.prove().await?;
    let holds = proofs.iter().all(|proof| proof.broken.is_empty());
    println!("{:>9.0} ms  eight laws over {calls} calls hold: {holds}", millis(begun.elapsed()));
    store.close().await;
    if holds { Ok(()) } else { Err(format!("{proofs:?}").into()) }
}

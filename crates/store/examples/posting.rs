//! Measures what posting a call costs: processor time by thread and bytes in the database, then the
//! pages of calls and of usage with their query plans: `cargo run -p store --profile release --example
//! posting -- sqlite:posting.db CALLS KEYS BATCH`. The database must be new.

#![allow(
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "a tool that prints figures, with lists of its own making"
)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use canon::{Charge, Micros, Money, Price, PriceDimension, Usage};
use ledger::{CallOutcome, LedgerEntry};
use sqlx::{AssertSqlSafe, Connection as _, Row as _};
use store::{
    Account, AccountRole, CallFilter, EntryFilter, GroupBy, GroupOrder, KeyRecord, KeyScope,
    RateLimits, Store, StoreError, UsageReport, UsageRequest, UsageStep,
};
use tracing::field::{Field, Visit};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use uuid::Uuid;

const MODELS: usize = 8;
const BEGIN: Micros = Micros::from_days(20_772);
/// Calls of one second, as of a busy gateway.
const CALLS_PER_SECOND: i64 = 5_000;
const REPETITIONS: usize = 9;

/// Statements that the driver reported.
#[derive(Clone, Default)]
struct Statements(Arc<Mutex<Vec<String>>>);

impl Statements {
    fn take(&self) -> Vec<String> {
        self.0.lock().map(|mut told| std::mem::take(&mut *told)).unwrap_or_default()
    }
}

impl<S: tracing::Subscriber> Layer<S> for Statements {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        if event.metadata().target() == "sqlx::query" {
            event.record(&mut StatementText(self, String::new()));
        }
    }
}

/// The text of a statement; a short one is reported as its summary only.
struct StatementText<'a>(&'a Statements, String);

impl Visit for StatementText<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "summary" | "db.statement" if value.len() > self.1.len() => {
                value.clone_into(&mut self.1)
            }
            _ => {}
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}

impl Drop for StatementText<'_> {
    fn drop(&mut self) {
        if let Ok(mut told) = self.0.0.lock() {
            told.push(std::mem::take(&mut self.1));
        }
    }
}

/// Returns the processor time of the threads of this process by their name.
fn processor_time() -> BTreeMap<String, Duration> {
    let mut times: BTreeMap<String, Duration> = BTreeMap::new();
    for task in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let read = |file| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let name = if read("comm").starts_with("sqlx") { "database" } else { "runtime" };
        let time = read("schedstat").split(' ').next().and_then(|time| time.parse().ok());
        *times.entry(name.to_owned()).or_default() +=
            Duration::from_nanos(time.unwrap_or_default());
    }
    times
}

async fn add_keys(store: &Store, count: usize) -> Result<Vec<KeyRecord>, StoreError> {
    let mut keys = Vec::new();
    for number in 0..count {
        let account = Account {
            id: Uuid::now_v7().to_string(),
            username: format!("user{number}"),
            email: None,
            role: AccountRole::Member,
            password_hash: None,
            disabled: false,
            created: Micros::new(1),
            changed: Micros::new(1),
        };
        store.add_account(&account).await?;
        let key = KeyRecord {
            id: Uuid::now_v7().to_string(),
            account_id: account.id,
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

fn call(number: usize, keys: &[KeyRecord]) -> LedgerEntry {
    // A multiplicative hash spreads keys, models and durations.
    let chance = |salt: usize, below: usize| {
        ((number + salt).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) % below
    };
    let key = &keys[chance(1, keys.len())];
    let model = chance(2, MODELS);
    let ended = BEGIN + Micros::new(number as i64 * 1_000_000 / CALLS_PER_SECOND);
    let took = Micros::new(300_000 + chance(3, 4_000_000) as i64);
    let started = ended - took;
    // As `relay::RequestIds` makes them.
    let word = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let output = 20 + chance(4, 900) as u64;
    let cost = Money::from_nanos(output as i64 * 15_000);
    let charge =
        |dimension, count, price| Charge { dimension, count, price: Price::from_picos(price) };
    LedgerEntry {
        request_id: format!("req_{:013x}{word:016x}", started.get()).into(),
        key_id: key.id.clone().into(),
        account_id: key.account_id.clone().into(),
        started,
        ended,
        first_byte_us: Some(Micros::new(took.get() / 4)),
        dialect: "chat".into(),
        model: format!("model-{model}").into(),
        lane: format!("provider-{}/model-{model}", model % 3).into(),
        attempts: 1,
        stream: number.is_multiple_of(2),
        status: 200,
        outcome: CallOutcome::Done,
        usage: Usage { input: output * 3, cache_read: output, output, ..Usage::default() },
        cost,
        held: Some(Money::from_nanos(60_000_000)),
        price_version: "c0ffee12".into(),
        charges: vec![
            charge(PriceDimension::Input, output * 2, 2_500_000),
            charge(PriceDimension::CachedInput, output, 1_250_000),
            charge(PriceDimension::Output, output, 10_000_000),
        ],
        ..LedgerEntry::default()
    }
}

async fn post(
    store: &Store,
    calls: usize,
    keys: &[KeyRecord],
    batch: usize,
) -> Result<(), StoreError> {
    let (mut spent, mut number) = (BTreeMap::<String, Duration>::new(), 0);
    let begun = Instant::now();
    while number < calls {
        let end = calls.min(number + batch);
        let entries: Vec<LedgerEntry> = (number..end).map(|number| call(number, keys)).collect();
        let before = processor_time();
        store.post(&entries).await?;
        for (name, after) in processor_time() {
            let before = before.get(&name).copied().unwrap_or_default();
            *spent.entry(name).or_default() += after - before;
        }
        number = end;
    }
    println!("{calls} calls in batches of {batch}, {} keys, {:?}", keys.len(), begun.elapsed());
    for (name, time) in spent {
        println!(
            "{:>9.2} µs per call, threads of the {name}",
            time.as_secs_f64() * 1e6 / calls as f64
        );
    }
    Ok(())
}

/// Prints the median time of a query, its rows and the plans of its statements.
async fn ask<T, F: Future<Output = Result<T, StoreError>>>(
    (url, statements): (&str, &Statements),
    about: &str,
    size: impl Fn(&T) -> usize,
    question: impl Fn() -> F,
) -> Result<(), Box<dyn std::error::Error>> {
    let (mut times, mut rows) = (Vec::new(), 0);
    for _ in 0..REPETITIONS {
        statements.take();
        let begun = Instant::now();
        rows = size(&question().await?);
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    println!("{:>9.2} ms  {rows:>5} rows  {about}", times[REPETITIONS / 2].as_secs_f64() * 1e3);
    if !url.starts_with("sqlite:") {
        return Ok(());
    }
    let mut texts = statements.take();
    texts.sort();
    texts.dedup();
    let mut connection = sqlx::SqliteConnection::connect(url).await?;
    for text in texts.iter().filter(|text| text.trim_start().starts_with("SELECT")) {
        let plan = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {text}"));
        for row in sqlx::query(plan).fetch_all(&mut connection).await? {
            println!("{:>14}{}", "", row.try_get::<String, _>("detail")?);
        }
    }
    connection.close().await?;
    Ok(())
}

async fn bytes(url: &str) -> Result<u64, Box<dyn std::error::Error>> {
    let path = url.trim_start_matches("sqlite:");
    if path != url {
        return Ok(std::fs::metadata(path)?.len());
    }
    let mut connection = sqlx::PgConnection::connect(url).await?;
    let size = "SELECT pg_database_size(current_database())";
    let size: i64 = sqlx::query_scalar(size).fetch_one(&mut connection).await?;
    connection.close().await?;
    Ok(u64::try_from(size)?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, calls, keys, batch] = arguments.as_slice() else {
        return Err("usage: posting STORE-URL CALLS KEYS BATCH".into());
    };
    let (calls, keys, batch): (usize, usize, usize) =
        (calls.parse()?, keys.parse()?, batch.parse()?);
    let store = Store::open(url).await?;
    let keys = add_keys(&store, keys).await?;
    store.close().await;
    let empty = bytes(url).await?;
    let store = Store::open(url).await?;
    post(&store, calls, &keys, batch).await?;
    store.close().await;
    println!("{:>9.1} bytes per call", (bytes(url).await? - empty) as f64 / calls as f64);

    let statements = Statements::default();
    tracing::subscriber::set_global_default(
        tracing_subscriber::registry().with(statements.clone()),
    )?;
    let store = Store::open(url).await?;
    let on = (url.as_str(), &statements);
    let last = call(calls - 1, &keys);
    let some = call(calls / 2, &keys);
    ask(
        on,
        "one call",
        |call: &Option<_>| usize::from(call.is_some()),
        || store.entry(&some.request_id),
    )
    .await?;
    let newest = EntryFilter::default();
    let all = CallFilter::default();
    let of_key = CallFilter { key_id: Some(last.key_id.to_string()), ..all.clone() };
    let of_account = CallFilter { account_id: Some(last.account_id.to_string()), ..all.clone() };
    let of_model = CallFilter { model: Some(last.model.to_string()), ..all.clone() };
    for (about, filter) in [
        ("newest calls", newest.clone()),
        ("calls of a key", EntryFilter::from(of_key.clone())),
        ("calls of an account", EntryFilter::from(of_account)),
        ("calls of a model", EntryFilter::from(of_model.clone())),
        (
            "calls before the middle",
            EntryFilter { before: Some((some.ended, some.request_id.to_string())), ..newest },
        ),
    ] {
        ask(on, about, Vec::len, || store.entries(&filter, 50)).await?;
    }
    let after = Some((some.ended, some.request_id.to_string()));
    ask(on, "a page of an export", Vec::len, || store.export(after.clone(), 1_000)).await?;
    for (about, filter) in
        [("usage of everyone", all), ("usage of a key", of_key), ("usage of a model", of_model)]
    {
        let range = BEGIN - Micros::from_days(30)..UsageStep::Hour.end(last.ended);
        let wish = UsageRequest {
            steps: UsageStep::Day.begins(&range),
            range,
            tag: None,
            by: GroupBy::Model,
            rank: GroupOrder::Cost,
            filter,
            listed: 25,
            with_series: 8,
        };
        ask(on, about, |report: &UsageReport| report.top.len(), || store.usage_view(&wish)).await?;
    }
    let begun = Instant::now();
    let (proofs, posted) = store.verify().await?;
    let is_sound = proofs.iter().all(|proof| proof.violations.is_empty());
    println!(
        "{:>9.0} ms  verified {posted} calls, sound: {is_sound}",
        begun.elapsed().as_secs_f64() * 1e3
    );
    store.close().await;
    if is_sound { Ok(()) } else { Err(format!("{proofs:?}").into()) }
}

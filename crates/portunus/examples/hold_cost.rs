//! Measures the bookkeeping of one call in processor microseconds: bounding the cost by the price
//! lists of its lanes, reserving and journalling it, pricing the answer, settling and posting it.
//! It writes to a real disk in the given folder, with some calls at once, and counts the time of the
//! writer thread too. `cargo xtask bench` runs it: `cargo run --profile dist -p portunus --example
//! hold_cost -- FOLDER [CALLS_AT_ONCE]`

#![expect(clippy::print_stdout, reason = "the result goes to standard output")]

use std::path::PathBuf;
use std::sync::Arc;

use canon::{Micros, Money, Usage};
use catalog::{BilledUnits, ModelDirectory, ModelPrices};
use ledger::{
    CallOutcome, FileDisk, HoldRecord, KeyBalance, LedgerEntry, MAX_BATCH_CALLS, OpenCalls,
    SystemClock,
};

const CALLS: u32 = 200_000;
/// Calls that run at once by default.
const CALLS_AT_ONCE: u32 = 16;
/// Lanes of a call. Any of them may answer, so each price list is read.
const LANES: usize = 2;
/// Output tokens of the longest and of the shortest useful answer.
const OUTPUT: [u64; 2] = [32_768, 16];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args_os().nth(1).map(PathBuf::from).ok_or("which folder?")?;
    let disk = FileDisk::open(&folder)?;
    let opened =
        OpenCalls::open(Arc::new(SystemClock), Arc::new(disk)).map_err(|e| e.to_string())?;
    let book = opened.book;
    let purse = KeyBalance::new("key_0123456789abcdef", None, Money::ZERO);
    let prices = dearest_list().ok_or("the directory has no prices")?;
    let lanes: Vec<&ModelPrices> = std::iter::repeat_n(&*prices, LANES).collect();
    let units = BilledUnits { seconds: 603, ..BilledUnits::default() };
    let at_once = std::env::args().nth(2).map_or(Ok(CALLS_AT_ONCE), |count| count.parse())?;
    book.start_writer().map_err(|e| e.to_string())?;
    let serve = async |call: u32| -> Result<(), Box<dyn std::error::Error>> {
        let held = held(call);
        let request_id = held.request_id.clone();
        // Varies the input length, so that no result can be cached.
        let input = 1_000 + u64::from(call % 1_000);
        let [full, least] = OUTPUT.map(|output| {
            let bounds = lanes.iter().map(|prices| prices.max_cost_with(input, output, &units));
            bounds.max().unwrap_or_default()
        });
        let pending =
            book.hold(&purse, Arc::new(held), full, least).map_err(|e| format!("{e:?}"))?;
        let ticket = pending.written().await?;
        let mut entry = entry(request_id);
        entry.cost = prices.cost_with(&entry.usage, &units).min(full);
        ticket.settle(entry).await?;
        if book.unposted_count() >= MAX_BATCH_CALLS {
            let batch = book.take_batch(MAX_BATCH_CALLS);
            book.posted(batch);
            book.maintain_journal().map_err(|e| e.to_string())?;
        }
        Ok(())
    };
    let serve_all = async |first: u32| -> Result<(), Box<dyn std::error::Error>> {
        for call in (first..CALLS).step_by(at_once as usize) {
            serve(call).await?;
        }
        Ok(())
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let begin = processor_time()?;
    runtime.block_on(futures_util::future::try_join_all((0..at_once).map(serve_all)))?;
    println!("{:.3}", (processor_time()? - begin) / 1e3 / f64::from(CALLS));
    Ok(())
}

/// Returns the longest price list of the directory.
fn dearest_list() -> Option<Arc<ModelPrices>> {
    let models = ModelDirectory::embedded().models().filter_map(|entry| entry.served_by(|_| true));
    models.map(|model| model.prices).max_by_key(|prices| format!("{prices:?}").len())
}

/// Returns the processor time of this process in nanoseconds, from `/proc/self/task/*/schedstat`
/// (<https://docs.kernel.org/scheduler/sched-stats.html>).
fn processor_time() -> Result<f64, Box<dyn std::error::Error>> {
    let mut sum = 0.0;
    for thread in std::fs::read_dir("/proc/self/task")? {
        let told = std::fs::read_to_string(thread?.path().join("schedstat"))?;
        sum += told.split(' ').next().unwrap_or_default().parse::<f64>()?;
    }
    Ok(sum)
}

fn held(call: u32) -> HoldRecord {
    HoldRecord {
        request_id: format!("req_{:029x}", u64::from(call).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        key_id: "key_0123456789abcdef".to_owned(),
        account_id: "acc_0123456789abcdef".to_owned(),
        at: Micros::ZERO,
        amount: Money::ZERO,
        dialect: "chat".to_owned(),
        model: "some-model".to_owned(),
        stream: false,
        price_version: "2026-01-01".to_owned(),
        lease: None,
        ..HoldRecord::default()
    }
}

fn entry(request_id: String) -> LedgerEntry {
    LedgerEntry {
        request_id,
        key_id: "key_0123456789abcdef".to_owned(),
        account_id: "acc_0123456789abcdef".to_owned(),
        first_byte_us: Some(Micros::new(1_234)),
        dialect: "chat".to_owned(),
        model: "some-model".to_owned(),
        lane: "provider/some-model".to_owned(),
        attempts: 1,
        status: 200,
        outcome: CallOutcome::Done,
        usage: Usage { input: 250, output: 150, ..Usage::default() },
        cost: Money::from_nanos(550_000),
        price_version: "2026-01-01".to_owned(),
        ..LedgerEntry::default()
    }
}

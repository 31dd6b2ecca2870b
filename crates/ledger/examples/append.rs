//! Measures holds with a journal on a real disk, from several threads at once:
//! `cargo run --release -p ledger --example append -- FOLDER THREADS`.

#![allow(clippy::print_stdout, reason = "a tool that prints figures")]
use canon::{Micros, Money};

use ledger::{Clock, FileDisk, HoldRecord, KeyBalance, LedgerEntry, OpenCalls, SystemClock};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

const CALLS: u32 = 100_000;

fn held(request_id: String) -> Arc<HoldRecord> {
    Arc::new(HoldRecord {
        request_id,
        key_id: "key_0123456789".to_owned(),
        account_id: "0198a5f0-0000-7000-8000-000000000000".to_owned(),
        at: Micros::ZERO,
        amount: Money::ZERO,
        dialect: "chat".to_owned(),
        model: "some-model-name".to_owned(),
        stream: true,
        price_version: "0123456789abcdef".to_owned(),
        lease: None,
    })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, threads] = arguments.as_slice() else {
        return Err("usage: append FOLDER THREADS".into());
    };
    let threads: u32 = threads.parse()?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let book = OpenCalls::open(clock, Arc::new(FileDisk::open(Path::new(folder))?))?.book;
    let one = Money::from_nanos(1);
    let begun = Instant::now();
    let mut times: Vec<u128> = std::thread::scope(|scope| {
        let workers = (0..threads).map(|thread| {
            let book = &book;
            scope.spawn(move || {
                let purse = KeyBalance::new("key_0123456789", None, Money::ZERO);
                let calls = (0..CALLS / threads).filter_map(|call| {
                    let held = held(format!("req_{thread:08}_{call:016}"));
                    let begun = Instant::now();
                    let ticket = book.hold(&purse, held, one, one).ok()?;
                    let took = begun.elapsed().as_nanos();
                    ticket.settle(LedgerEntry::default());
                    Some(took)
                });
                calls.collect::<Vec<u128>>()
            })
        });
        let workers: Vec<_> = workers.collect();
        workers.into_iter().filter_map(|worker| worker.join().ok()).flatten().collect()
    });
    let all = begun.elapsed().as_secs_f64();
    times.sort_unstable();
    let at = |share: usize| times.get(times.len() * share / 1_000).copied().unwrap_or_default();
    println!(
        "{threads} threads: {:.0} calls/s; a hold takes {} ns (median), {} ns (99 %), {} ns (99.9 %); \
         {} failures",
        f64::from(CALLS) / all,
        at(500),
        at(990),
        at(999),
        book.errors().so_far().0
    );
    Ok(())
}

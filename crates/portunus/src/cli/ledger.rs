//! `portunus ledger`: prove that the books balance, or export them.

use clap::Subcommand;
use serde_json::json;
use std::process::ExitCode;
use store::{AccountTotal, LeaseTotal, Store};

use super::{Common, say};
use crate::app::open_store;
use crate::surfaces::write_entry;

const PAGE: u32 = 1_000;

#[derive(Debug, Subcommand)]
pub(super) enum Ledger {
    /// Check every invariant; exit 0 only if all hold
    Verify,
    /// Write every settled call as a line of JSON
    Export,
}

pub(super) async fn run(common: &Common, command: Ledger) -> anyhow::Result<ExitCode> {
    let config = common.load()?;
    let store = open_store(&config).await?;
    let outcome = match command {
        Ledger::Verify => verify(common, &store).await,
        Ledger::Export => export(&store).await,
    };
    store.close().await;
    outcome
}

/// What each key has spent must be the sum of its calls, what it leased the sum of its leases, and
/// both together may not be above its cap.
async fn verify(common: &Common, store: &Store) -> anyhow::Result<ExitCode> {
    let keys = store.keys().await?;
    let totals = store.totals().await?;
    let mut broken = Vec::new();
    for total in &totals {
        if total.cost != total.spent {
            broken.push(format!(
                "key {}: its calls cost {} USD, but {} USD are booked as spent",
                total.key_id, total.cost, total.spent
            ));
        }
    }
    for LeaseTotal { key_id, cap, spent, leased, leases } in store.lease_totals().await? {
        if leased != leases {
            broken.push(format!(
                "key {key_id}: its leases hold {leases} USD, but {leased} USD are booked as leased"
            ));
        }
        if cap.is_some_and(|cap| spent.saturating_add(leased) > cap) {
            broken.push(format!(
                "key {key_id}: {spent} USD are spent and {leased} USD leased, above its cap"
            ));
        }
    }
    for AccountTotal { account_id, cap, spent, leased } in store.account_totals().await? {
        if cap.is_some_and(|cap| spent.saturating_add(leased) > cap) {
            broken.push(format!(
                "account {account_id}: {spent} USD are spent and {leased} USD leased, above its cap"
            ));
        }
    }
    let rows: i64 = totals.iter().map(|total| total.rows).sum();
    if common.json {
        say(&json!({ "ok": broken.is_empty(), "keys": keys.len(), "calls": rows, "broken": broken })
            .to_string());
    } else {
        for line in &broken {
            say(line);
        }
        let verdict =
            if broken.is_empty() { "the books balance" } else { "the books do not balance" };
        say(&format!("{verdict}: {} keys, {rows} calls", keys.len()));
    }
    Ok(if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn export(store: &Store) -> anyhow::Result<ExitCode> {
    let mut after = None;
    loop {
        let entries = store.export(after, PAGE).await?;
        let Some(last) = entries.last() else { return Ok(ExitCode::SUCCESS) };
        after = Some((last.ended, last.request_id.clone()));
        for entry in &entries {
            say(&write_entry(entry).to_string());
        }
    }
}

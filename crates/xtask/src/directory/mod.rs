//! `cargo xtask directory`: checks the model directory, lists old facts, and compares its prices with
//! public tables that are given as files.

mod genai_table;
mod known_differences;
mod litellm_table;
mod price_table;

use anyhow::{Context as _, Result};
use catalog::ModelDirectory;
use clap::Args;
use serde_json::Value;
use std::path::{Path, PathBuf};

use known_differences::KnownDifference;
use price_table::{PriceDifference, PublicTable, compare};

/// Options of the command.
#[derive(Debug, Args)]
pub(crate) struct DirectoryArgs {
    /// List models whose facts are older than this number of days
    #[arg(long, value_name = "DAYS")]
    stale: Option<i64>,
    /// Compare with `model_prices_and_context_window.json` of LiteLLM
    #[arg(long, value_name = "FILE")]
    litellm: Option<PathBuf>,
    /// Compare with `data.json` of genai-prices
    #[arg(long, value_name = "FILE")]
    genai_prices: Option<PathBuf>,
    /// Fail on old facts, retired models, and prices that differ without a known reason too
    #[arg(long)]
    strict: bool,
}

/// Runs the checks. Returns false if the directory breaks a rule, or, if strict, if anything is listed.
pub(crate) fn run(args: &DirectoryArgs) -> Result<bool> {
    let directory = ModelDirectory::embedded();
    let now = jiff::Timestamp::now();
    let today = day(now);
    let models = directory.models().count();
    anyhow::ensure!(models > 0, "the data files cannot be read; see cargo test -p catalog");
    let findings = directory.findings(&today);
    for finding in &findings {
        println!("wrong    {finding}");
    }
    let mut listed = 0;
    for entry in directory.retired(&today) {
        listed += 1;
        println!("retired  {}: {}", entry.id, entry.retires.as_deref().unwrap_or_default());
    }
    if let Some(days) = args.stale {
        let limit = day(now - jiff::SignedDuration::from_hours(24 * days));
        let mut old: Vec<_> = directory.models().filter(|entry| entry.as_of < limit).collect();
        old.sort_by(|a, b| (&a.as_of, &a.id).cmp(&(&b.as_of, &b.id)));
        for entry in &old {
            println!("old      {}  {}/{}", entry.as_of, entry.provider, entry.id);
        }
        listed += old.len();
        println!("{} of {models} models have facts from before {limit}", old.len());
    }
    let known = known_differences::read()?;
    if let Some(file) = &args.litellm {
        let table = litellm_table::read(&read_json(file)?)?;
        listed += report("LiteLLM", &table, directory, &known);
    }
    if let Some(file) = &args.genai_prices {
        let table = genai_table::read(&read_json(file)?, &today)?;
        listed += report("genai-prices", &table, directory, &known);
    }
    println!("directory: {models} models, {} rules broken", findings.len());
    Ok(findings.is_empty() && (listed == 0 || !args.strict))
}

fn day(at: jiff::Timestamp) -> String {
    at.to_string().chars().take(10).collect()
}

fn read_json(file: &Path) -> Result<Value> {
    let text = std::fs::read(file).with_context(|| format!("{} cannot be read", file.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("{} is not JSON", file.display()))
}

/// Prints the differences to a table. Returns the number of those without a known reason, and of reasons
/// that explain none any more.
fn report(
    name: &str,
    table: &impl PublicTable,
    directory: &ModelDirectory,
    known: &[KnownDifference],
) -> usize {
    let (compared, differences) = compare(directory, table);
    let explains = |known: &KnownDifference, row: &PriceDifference| known.explains(name, row);
    let is_new = |row: &&PriceDifference| !known.iter().any(|known| explains(known, row));
    let unknown: Vec<_> = differences.iter().filter(is_new).collect();
    let width = unknown.iter().map(|row| row.lane.len()).max().unwrap_or(0).max(5);
    println!(
        "\n{:width$}  {:28}  {:>12}  {:>12}  {name}'s entry",
        "lane", "price", "ours", "theirs"
    );
    for PriceDifference { lane, price, ours, theirs, entry } in &unknown {
        println!("{lane:width$}  {price:28}  {ours:>12}  {theirs:>12}  {entry}");
    }
    let mut idle = 0;
    for one in known.iter().filter(|one| one.is_of(name)) {
        match differences.iter().filter(|row| explains(one, row)).count() {
            0 => {
                idle += 1;
                println!("idle     {}: {}", one.lanes.join(", "), one.reason);
            }
            count => println!("known    {count:3} of {}: {}", one.lanes.join(", "), one.reason),
        }
    }
    let explained = differences.len() - unknown.len();
    println!(
        "{name}: {compared} lanes compared, {} prices differ, {explained} for known reasons\n",
        differences.len()
    );
    unknown.len() + idle
}

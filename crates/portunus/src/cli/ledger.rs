//! `portunus ledger`: verifies or exports the ledger.

use anyhow::Context as _;
use canon::Micros;
use clap::{Args, Subcommand, ValueEnum};
use console::csv_line;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use ledger::{Clock as _, JournalInspection, LedgerEntry, SystemClock};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use store::{EntryFilter, InvariantCheck, Store, StoreError};

use super::common::{CommonArgs, print_line};
use crate::app::open_store;
use api::export_json;

const EXPORT_PAGE_ROWS: u32 = 1_000;

#[derive(Debug, Subcommand)]
pub(super) enum LedgerCommand {
    /// Check the eight invariants of the ledger; exit 0 only if all hold. Also lists what the journal of
    /// this node has and the database lacks
    Verify,
    /// Export settled calls, oldest first
    Export(ExportArgs),
}

/// Selection of calls to export; everything by default.
#[derive(Debug, Args)]
pub(super) struct ExportArgs {
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: ExportFormat,
    /// Only calls that ended at or after this time: 2026-11-01 or 2026-11-01T08:00:00Z
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    from: Option<Micros>,
    /// Only calls that ended before this time
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    to: Option<Micros>,
    /// Only calls of the key with this id
    #[arg(long, value_name = "ID")]
    key: Option<String>,
    /// Only calls of this model
    #[arg(long)]
    model: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum ExportFormat {
    /// One JSON object per line
    #[default]
    Json,
    /// CSV with a header row
    Csv,
}

/// Parses an instant, or a date, which starts at midnight UTC.
pub(super) fn parse_time(text: &str) -> Result<Micros, String> {
    let instant = match text.parse::<Timestamp>() {
        Ok(instant) => Ok(instant),
        Err(why) => match text.parse::<Date>() {
            Ok(day) => day.to_zoned(TimeZone::UTC).map(|zoned| zoned.timestamp()),
            Err(_) => Err(why),
        },
    };
    instant.map(|at| Micros::new(at.as_microsecond())).map_err(|why| why.to_string())
}

pub(super) async fn run(common: &CommonArgs, command: LedgerCommand) -> anyhow::Result<ExitCode> {
    let config = common.load()?;
    let store = open_store(&config).await?;
    let outcome = match command {
        LedgerCommand::Verify => verify(common, &config.data_folder, &store).await,
        LedgerCommand::Export(args) => export(&store, args).await,
    };
    store.close().await;
    outcome
}

/// Calls of the node's journal that the database lacks. They are no violation: a running gateway
/// posts them within seconds, a stopped one at its next start.
struct UnpostedCalls {
    settled: Vec<String>,
    open: Vec<String>,
    torn_bytes: usize,
}

impl UnpostedCalls {
    async fn find(data_folder: &Path, store: &Store) -> anyhow::Result<Self> {
        let journal = data_folder.join("journal");
        let journal = JournalInspection::read(&journal, SystemClock.now())
            .context("the journal cannot be read")?;
        // The store is asked after the journal was read, so a call posted in between counts as posted.
        let missing = async |calls: Vec<Arc<LedgerEntry>>| {
            let mut missing = Vec::new();
            for call in calls {
                if store.entry(&call.request_id).await?.is_none() {
                    missing.push(call.request_id.clone());
                }
            }
            Ok::<_, StoreError>(missing)
        };
        Ok(Self {
            settled: missing(journal.settled).await?,
            open: missing(journal.open).await?,
            torn_bytes: journal.torn_bytes,
        })
    }
}

async fn verify(
    common: &CommonArgs,
    data_folder: &Path,
    store: &Store,
) -> anyhow::Result<ExitCode> {
    let UnpostedCalls { settled, open, torn_bytes } =
        UnpostedCalls::find(data_folder, store).await?;
    let keys = store.keys().await?.len();
    let (proofs, calls) = store.verify().await?;
    let holds = proofs.iter().all(|proof| proof.violations.is_empty());
    if common.json {
        let laws: Vec<Value> = proofs
            .iter()
            .map(|InvariantCheck { law, name, statement: says, violations: broken }| {
                json!({
                    "law": law, "name": name, "says": says, "ok": broken.is_empty(),
                    "broken": broken,
                })
            })
            .collect();
        let broken: Vec<&String> = proofs.iter().flat_map(|proof| &proof.violations).collect();
        print_line(
            &json!({
                "ok": holds, "keys": keys, "calls": calls, "broken": broken, "laws": laws,
                "journal": { "unposted": settled, "open": open, "torn_bytes": torn_bytes },
            })
            .to_string(),
        );
    } else {
        for InvariantCheck { law, name, statement: says, violations: broken } in &proofs {
            let result = if broken.is_empty() { "holds" } else { "BROKEN" };
            print_line(&format!("{law} {result:<6} {name}: {says}"));
            for line in broken {
                print_line(&format!("          {line}"));
            }
        }
        print_line(&format!(
            "journal: {} settled calls that the database lacks, {} open calls, {torn_bytes} torn bytes",
            settled.len(),
            open.len()
        ));
        for id in settled {
            print_line(&format!("          {id} is settled and not in the database"));
        }
        for id in open {
            print_line(&format!("          {id} runs, or was running when its gateway ended"));
        }
        let verdict = if holds { "the books balance" } else { "the books do not balance" };
        print_line(&format!("{verdict}: {keys} keys, {calls} calls"));
    }
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Exports page by page, so that only one page is in memory.
async fn export(store: &Store, args: ExportArgs) -> anyhow::Result<ExitCode> {
    let ExportArgs { format, from, to, key, model } = args;
    let filter =
        EntryFilter { key_id: key, model, since: from, until: to, ..EntryFilter::default() };
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut after = None;
    let mut line = String::new();
    if matches!(format, ExportFormat::Csv) {
        line =
            csv_line(csv_cells(&export_json(&LedgerEntry::default(), &[])).map(|(name, _)| name));
    }
    loop {
        // A closed pipe is not an error.
        if out.write_all(line.as_bytes()).is_err() {
            return Ok(ExitCode::SUCCESS);
        }
        line.clear();
        let entries = store.export_of(&filter, after, EXPORT_PAGE_ROWS).await?;
        let Some(last) = entries.last() else { break };
        after = Some((last.ended, last.request_id.clone()));
        let postings = store.postings_of(&entries).await?;
        for entry in &entries {
            let postings = postings.get(&entry.request_id).map(Vec::as_slice).unwrap_or_default();
            let entry_json = export_json(entry, postings);
            match format {
                // Writing to a `String` cannot fail.
                ExportFormat::Json => drop(writeln!(line, "{entry_json}")),
                ExportFormat::Csv => {
                    line.push_str(&csv_line(csv_cells(&entry_json).map(|(_, value)| value)))
                }
            }
        }
    }
    let _ = out.flush();
    Ok(ExitCode::SUCCESS)
}

/// Flattens the JSON of a call into columns. Nested fields get the name of their parent as prefix;
/// lists stay JSON.
fn csv_cells(entry_json: &Value) -> impl Iterator<Item = (String, String)> {
    let mut cells = Vec::new();
    let facts = entry_json.as_object().into_iter().flatten();
    for (name, value) in facts {
        match value {
            Value::Object(parts) => {
                for (part, value) in parts {
                    cells.push((format!("{name}_{part}"), csv_cell(value)));
                }
            }
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_) => cells.push((name.clone(), csv_cell(value))),
        }
    }
    cells.into_iter()
}

fn csv_cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_days_or_instants() {
        assert_eq!(parse_time("1970-01-02"), Ok(Micros::from_days(1)));
        assert_eq!(parse_time("1970-01-01T00:00:01.5Z"), Ok(Micros::from_millis(1_500)));
        assert_eq!(parse_time("1970-01-01T01:00:00+01:00"), Ok(Micros::ZERO));
        assert!(parse_time("yesterday").is_err());
    }

    #[test]
    fn csv_cells_are_quoted() {
        let entry_json = json!({ "a": 1, "b": { "c": "x,y", "d": null }, "e": ["\"q\"\n"] });
        let names = csv_line(csv_cells(&entry_json).map(|(name, _)| name));
        assert_eq!(names, "a,b_c,b_d,e\r\n");
        let values = csv_line(csv_cells(&entry_json).map(|(_, value)| value));
        assert_eq!(values, "1,\"x,y\",,\"[\"\"\\\"\"q\\\"\"\\n\"\"]\"\r\n");
    }
}

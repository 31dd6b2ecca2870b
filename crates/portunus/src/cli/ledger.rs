//! `portunus ledger`: verifies or exports the ledger.

use anyhow::Context as _;
use canon::Micros;
use clap::{Args, Subcommand, ValueEnum};
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use ledger::{
    Clock as _, DamagedSpan, JournalInspection, LedgerEntry, SegmentDamage, SettledCall,
    StoreRollback, SystemClock, damaged_files,
};
use relay::NodeFolder;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use store::{CallFilter, EntryFilter, InvariantCheck, Store, StoreError};

use super::common::{CommonArgs, close_accounts, open_accounts, open_existing, refuse_other_store};
use super::output::{print_bytes, print_line};
use super::reconcile::{ReconcileArgs, reconcile};
use crate::call_csv::{call_header, call_line};
use admin::Actor;
use api::export_json;
use config::Config;

const EXPORT_PAGE_ROWS: u32 = 1_000;

#[derive(Debug, Subcommand)]
pub(super) enum LedgerCommand {
    /// Check the eight invariants of the ledger; exit 0 only if all hold and the journal of this node is
    /// undamaged. Also lists what that journal has and the database lacks
    Verify,
    /// Export settled calls, oldest first
    Export(ExportArgs),
    /// Compare a provider's own bill with the books, by day and model; exit 1 if they differ
    Reconcile(ReconcileArgs),
    /// Give up a node that will not come back: settle its calls from their last report and free its money
    ForgetNode {
        /// Name of the node, as the system page of the console lists it
        id: String,
    },
    /// Accept that the database went back to an earlier state, which `verify` reports
    AcceptRollback,
    /// Accept the loss in a damaged file of this node's journal, which `verify` names
    AcceptDamage {
        /// Name of the file, for example 000000000007.journal.damaged
        file: String,
    },
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
    let store = open_existing(&config).await?;
    let outcome = match command {
        LedgerCommand::Verify => verify_own(common, &config, &store).await,
        LedgerCommand::Export(args) => export(&store, args).await,
        LedgerCommand::Reconcile(args) => reconcile(common, &store, &args).await,
        LedgerCommand::ForgetNode { id } => forget_node(&config, &id).await,
        LedgerCommand::AcceptRollback => accept_rollback(&config).await,
        LedgerCommand::AcceptDamage { file } => accept_damage(&config, &file).await,
    };
    store.close().await;
    outcome
}

/// Proves the books of the database to which the calls of this data folder were posted.
async fn verify_own(
    common: &CommonArgs,
    config: &Config,
    store: &Store,
) -> anyhow::Result<ExitCode> {
    refuse_other_store(config, store).await?;
    verify(common, &config.data_folder, store).await
}

/// Gives up a node that will not come back.
async fn forget_node(config: &Config, id: &str) -> anyhow::Result<ExitCode> {
    let accounts = open_accounts(config).await?;
    let forgotten = accounts.forget_node(&Actor::Operator, id).await;
    close_accounts(config, &accounts, false).await?;
    forgotten?;
    print_line(&format!("the node {id} is forgotten, and its money is free"));
    Ok(ExitCode::SUCCESS)
}

/// Accepts that the database went back.
async fn accept_rollback(config: &Config) -> anyhow::Result<ExitCode> {
    let accounts = open_accounts(config).await?;
    let accepted = accounts.accept_rollbacks(&Actor::Operator).await;
    close_accounts(config, &accounts, false).await?;
    accepted?;
    print_line("accepted: the database went back to an earlier state");
    Ok(ExitCode::SUCCESS)
}

/// Accepts the loss in a damaged file of the journal.
async fn accept_damage(config: &Config, file: &str) -> anyhow::Result<ExitCode> {
    let accounts = open_accounts(config).await?;
    let folder = folder_of_damage(config, file);
    let accepted = accounts.accept_journal_damage(&Actor::Operator, &folder, file).await;
    close_accounts(config, &accounts, false).await?;
    accepted?;
    print_line(&format!("the loss in {file} is accepted; the file stays in {}", folder.display()));
    Ok(ExitCode::SUCCESS)
}

/// Returns the folder of the journal that has a damaged file of that name, or the first folder.
fn folder_of_damage(config: &Config, file: &str) -> PathBuf {
    let has_file = |folder: &PathBuf| {
        damaged_files(folder).is_ok_and(|files| files.iter().any(|name| name == file))
    };
    let mut folders = NodeFolder::existing(&config.data_folder).map(|node| node.journal());
    let found = folders.find(has_file);
    found.unwrap_or_else(|| NodeFolder::first(&config.data_folder).journal())
}

/// Reads all journals of a data folder as one.
fn inspect_journals(data_folder: &Path) -> anyhow::Result<JournalInspection> {
    let mut all = JournalInspection::default();
    for node in NodeFolder::existing(data_folder) {
        let JournalInspection { settled, open, torn_bytes, damage } =
            JournalInspection::read(&node.journal(), SystemClock.now())
                .context("the journal cannot be read")?;
        all.settled.extend(settled);
        all.open.extend(open);
        all.torn_bytes += torn_bytes;
        all.damage.extend(damage);
    }
    Ok(all)
}

/// Calls of the node's journal that the database lacks. They are no violation: a running gateway
/// posts them within seconds, a stopped one at its next start.
struct UnpostedCalls {
    settled: Vec<String>,
    open: Vec<String>,
    torn_bytes: usize,
    damage: Vec<SegmentDamage>,
}

impl UnpostedCalls {
    async fn find(data_folder: &Path, store: &Store) -> anyhow::Result<Self> {
        let journal = inspect_journals(data_folder)?;
        // The store is asked after the journal was read, so a call posted in between counts as posted.
        let missing = async |calls: Vec<SettledCall>| {
            let mut missing = Vec::new();
            for SettledCall { entry, .. } in calls {
                if !store.is_recorded(&entry).await? {
                    missing.push(entry.request_id.to_string());
                }
            }
            Ok::<_, StoreError>(missing)
        };
        Ok(Self {
            settled: missing(journal.settled).await?,
            open: missing(journal.open).await?,
            torn_bytes: journal.torn_bytes,
            damage: journal.damage,
        })
    }
}

pub(super) async fn verify(
    common: &CommonArgs,
    data_folder: &Path,
    store: &Store,
) -> anyhow::Result<ExitCode> {
    let UnpostedCalls { settled, open, torn_bytes, damage } =
        UnpostedCalls::find(data_folder, store).await?;
    let keys = store.keys().await?.len();
    let (proofs, calls) = store.verify().await?;
    let holds = proofs.iter().all(|proof| proof.violations.is_empty());
    let rollbacks = store.rollbacks().await?;
    let is_sound = holds && damage.is_empty() && rollbacks.is_empty();
    if common.json {
        let laws: Vec<Value> = proofs
            .iter()
            .map(|InvariantCheck { law, name, statement: says, violations: broken, notes }| {
                json!({
                    "law": law, "name": name, "says": says, "ok": broken.is_empty(),
                    "broken": broken, "notes": notes,
                })
            })
            .collect();
        let broken: Vec<&String> = proofs.iter().flat_map(|proof| &proof.violations).collect();
        print_line(
            &json!({
                "ok": is_sound, "keys": keys, "calls": calls, "broken": broken, "laws": laws,
                "journal": { "unposted": settled, "open": open, "torn_bytes": torn_bytes },
                "damaged": damage.iter().map(damage_json).collect::<Vec<Value>>(),
                "rollbacks": rollbacks.iter().map(rollback_json).collect::<Vec<Value>>(),
            })
            .to_string(),
        );
    } else {
        for InvariantCheck { law, name, statement: says, violations: broken, notes } in &proofs {
            let result = if broken.is_empty() { "holds" } else { "BROKEN" };
            print_line(&format!("{law} {result:<6} {name}: {says}"));
            for line in broken.iter().chain(notes) {
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
        for SegmentDamage { file, spans, .. } in &damage {
            print_line(&format!("          {file} is damaged: calls may be missing"));
            for DamagedSpan { offset, bytes } in spans {
                print_line(&format!("          {bytes} bytes at byte {offset} cannot be read"));
            }
        }
        for (node, StoreRollback { missing, reposted }) in &rollbacks {
            print_line(&format!(
                "database: it went back to an earlier state; {missing} calls of the node {node} were \
                 missing, {reposted} were posted again"
            ));
        }
        let verdict = match (holds, damage.is_empty(), rollbacks.is_empty()) {
            (false, ..) => "the books do not balance",
            (true, false, _) => "the journal is damaged",
            (true, true, false) => "the database went back",
            (true, true, true) => "the books balance",
        };
        print_line(&format!("{verdict}: {keys} keys, {calls} calls"));
    }
    Ok(if is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn rollback_json((node, rollback): &(String, StoreRollback)) -> Value {
    let StoreRollback { missing, reposted } = rollback;
    json!({ "node": node, "missing": missing, "reposted": reposted })
}

fn damage_json(damage: &SegmentDamage) -> Value {
    let spans = damage
        .spans
        .iter()
        .map(|DamagedSpan { offset, bytes }| json!({ "offset": offset, "bytes": bytes }));
    json!({ "file": damage.file, "spans": spans.collect::<Vec<Value>>() })
}

/// Exports page by page, so that only one page is in memory.
async fn export(store: &Store, args: ExportArgs) -> anyhow::Result<ExitCode> {
    let ExportArgs { format, from, to, key, model } = args;
    let calls = CallFilter { key_id: key, model, ..CallFilter::default() };
    let filter = EntryFilter { since: from, until: to, ..EntryFilter::from(calls) };
    let mut after = None;
    let mut line = String::new();
    if matches!(format, ExportFormat::Csv) {
        line = call_header(&export_json(&LedgerEntry::default(), &[]));
    }
    loop {
        if !print_bytes(line.as_bytes()) {
            return Ok(ExitCode::SUCCESS);
        }
        line.clear();
        let entries = store.export_of(&filter, after, EXPORT_PAGE_ROWS).await?;
        let Some(last) = entries.last() else { break };
        after = Some((last.ended, last.request_id.to_string()));
        let postings = store.postings_of(&entries).await?;
        for entry in &entries {
            let postings = postings.get(&*entry.request_id).map(Vec::as_slice).unwrap_or_default();
            let entry_json = export_json(entry, postings);
            match format {
                // Writing to a `String` cannot fail.
                ExportFormat::Json => drop(writeln!(line, "{entry_json}")),
                ExportFormat::Csv => line.push_str(&call_line(&entry_json)),
            }
        }
    }
    Ok(ExitCode::SUCCESS)
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
}

//! `portunus audit`: prints, exports and follows the audit log.

use admin::AuditEntry;
use canon::Micros;
use clap::{Args, ValueEnum};
use console::{audit_csv_header, audit_csv_line};
use ledger::{Clock as _, SystemClock};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;
use store::{AuditFilter, Store};

use super::common::{CommonArgs, open_existing};
use super::ledger::parse_time;
use super::output::print_bytes;

const PAGE_ROWS: u32 = 1_000;
/// Pause between two looks for new lines.
const FOLLOW_PERIOD: Duration = Duration::from_millis(500);
/// Age of a line at which no earlier one can appear any more.
const SETTLING_TIME: Micros = Micros::from_secs(1);

/// Selection of changes; everything by default.
#[derive(Debug, Args)]
pub(super) struct AuditArgs {
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: AuditFormat,
    /// Only changes at or after this time: 2026-11-01 or 2026-11-01T08:00:00Z
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    since: Option<Micros>,
    /// Only changes before this time
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with = "follow")]
    until: Option<Micros>,
    /// Only changes by this account (username, address or id) or by "command line"
    #[arg(long, value_name = "WHO")]
    actor: Option<String>,
    /// Only this action (key.revoke), or all actions on a kind of object (key)
    #[arg(long)]
    action: Option<String>,
    /// Keep printing new changes until interrupted
    #[arg(long)]
    follow: bool,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum AuditFormat {
    /// One line per change, for people
    #[default]
    Text,
    /// One JSON object per line
    Json,
    /// CSV with a header row
    Csv,
}

pub(super) async fn run(common: &CommonArgs, args: AuditArgs) -> anyhow::Result<ExitCode> {
    let config = common.load()?;
    let store = open_existing(&config).await?;
    let format = if common.json { AuditFormat::Json } else { args.format };
    let printed = print(&store, args, format).await;
    store.close().await;
    printed.map(|()| ExitCode::SUCCESS)
}

/// Prints page by page, oldest first, so that only one page is in memory.
async fn print(store: &Store, args: AuditArgs, format: AuditFormat) -> anyhow::Result<()> {
    let AuditArgs { format: _, since, until, actor, action, follow } = args;
    // The text itself too: an account can have the name of a command or the id of another account.
    let mut actors = Vec::new();
    if let Some(text) = actor {
        actors.extend(store.account_by_login(&text).await?.map(|account| account.id));
        actors.push(text);
    }
    let mut filter = AuditFilter { actors, action, since, until, before: None, after: Some(0) };
    let mut text = match format {
        AuditFormat::Csv => audit_csv_header(),
        AuditFormat::Text | AuditFormat::Json => String::new(),
    };
    loop {
        if follow {
            filter.until = Some(SystemClock.now() - SETTLING_TIME);
        }
        let lines = store.audits_of(&filter, PAGE_ROWS).await?;
        let last = lines.last().map(|line| line.id);
        let names = if last.is_some() { names(store).await? } else { HashMap::new() };
        for line in lines {
            let entry = AuditEntry::from(line);
            match format {
                AuditFormat::Csv => text.push_str(&audit_csv_line(&entry, &names)),
                // Writing to a `String` cannot fail.
                AuditFormat::Json => drop(writeln!(text, "{}", serde_json::to_string(&entry)?)),
                AuditFormat::Text => drop(writeln!(text, "{}", text_line(&entry, &names))),
            }
        }
        if !print_bytes(text.as_bytes()) {
            return Ok(());
        }
        text.clear();
        match last {
            Some(id) => filter.after = Some(id),
            None if follow => tokio::time::sleep(FOLLOW_PERIOD).await,
            None => return Ok(()),
        }
    }
}

/// Names of accounts and keys by id.
async fn names(store: &Store) -> anyhow::Result<HashMap<String, String>> {
    let accounts = store.accounts().await?.into_iter().map(|one| (one.id, one.username));
    let keys = store.keys().await?.into_iter().map(|key| (key.id, key.name));
    Ok(accounts.chain(keys).collect())
}

/// One change for people. Control characters are escaped, so that no name moves the cursor.
fn text_line(entry: &AuditEntry, names: &HashMap<String, String>) -> String {
    let AuditEntry { at, actor, action, subject, detail, key_id, address, agent } = entry;
    let name = |id: &String| names.get(id).unwrap_or(id).clone();
    let time = jiff::Timestamp::from_microsecond(at.get()).map(|at| format!("{at:.0}"));
    let mut line = format!("{}  {}", time.unwrap_or_default(), name(actor));
    if let Some(key) = key_id {
        let _ = write!(line, " (key {key})");
    }
    let _ = write!(line, "  {action}");
    for more in [&name(subject), detail] {
        if !more.is_empty() {
            let _ = write!(line, "  {more}");
        }
    }
    if let Some(address) = address {
        let _ = write!(line, "  from {address}");
    }
    if let Some(agent) = agent {
        let _ = write!(line, " with {agent}");
    }
    let escaped = line.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c });
    escaped.collect()
}

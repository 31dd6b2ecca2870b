//! `portunus archive`: moves old calls into files by hand, and verifies the files.

use canon::Micros;
use clap::{Args, Subcommand};
use ledger::{Clock as _, SystemClock};
use serde_json::json;
use std::process::ExitCode;
use store::{ClusterTurn, Store, UsageStep};

use super::common::{CommonArgs, confirm, open_existing};
use super::ledger::parse_time;
use super::output::print_line;
use crate::archive::{ArchiveFindings, ArchivedTotals, CallArchiver, verify_archive};
use config::{ArchivePlace, Config};

/// Range of calls that leave the database.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct ArchiveArgs {
    #[command(subcommand)]
    command: Option<ArchiveCommand>,
    /// Only calls that ended at or after this time: 2026-11-01 or 2026-11-01T08:00:00Z
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    from: Option<Micros>,
    /// Only calls that ended before this time; by default, those older than `retention.calls`
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    until: Option<Micros>,
    /// Folder (file:…) or bucket (s3://…) of the files, instead of `retention.archive`
    #[arg(long, value_name = "PLACE")]
    to: Option<String>,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, Subcommand)]
enum ArchiveCommand {
    /// Compare every file with its manifest and with the database; exit 0 only if all agree
    Verify {
        /// Folder (file:…) or bucket (s3://…) of the files, instead of `retention.archive`
        #[arg(long, value_name = "PLACE")]
        to: Option<String>,
    },
}

pub(super) async fn run(common: &CommonArgs, args: ArchiveArgs) -> anyhow::Result<ExitCode> {
    let config = common.load()?;
    let ArchiveArgs { command, from, until, to, yes } = args;
    match command {
        Some(ArchiveCommand::Verify { to }) => {
            let place = open_place(&config, to.as_deref())?;
            let store = open_existing(&config).await?;
            let verified = verify(common, &store, place.as_ref()).await;
            store.close().await;
            verified
        }
        None => {
            let place = open_place(&config, to.as_deref())?;
            let range = from.unwrap_or(Micros::new(i64::MIN))..end_of_range(&config, until)?;
            anyhow::ensure!(range.start < range.end, "`--until` must be after `--from`");
            let target = place.as_ref().map_or("no file, for ever", |place| place.url.as_str());
            if !yes && !confirm(&format!("The calls of this range leave the database: {target}."))?
            {
                return Ok(ExitCode::FAILURE);
            }
            let store = open_existing(&config).await?;
            let process = format!("command line {}", uuid::Uuid::now_v7());
            let archiver = CallArchiver { store: &store, place: place.as_ref(), process: &process };
            let archived = archive(common, &archiver, range).await;
            store.close().await;
            archived
        }
    }
}

/// Opens the named place, or the configured one.
fn open_place(config: &Config, to: Option<&str>) -> anyhow::Result<Option<ArchivePlace>> {
    match to {
        Some(_) => {
            let place = config.retention.open_archive(to, &|name| std::env::var(name).ok());
            place.map_err(|error| anyhow::anyhow!("--to: {}", error.reason))
        }
        None => Ok(config.retention.archive.clone()),
    }
}

fn end_of_range(config: &Config, until: Option<Micros>) -> anyhow::Result<Micros> {
    let kept = config.retention.calls.map(Micros::from);
    let old = kept.map(|kept| UsageStep::Day.begin(SystemClock.now().saturating_sub(kept)));
    until.or(old).ok_or_else(|| {
        anyhow::anyhow!("name the end of the range with --until, or set `retention.calls`")
    })
}

async fn archive(
    common: &CommonArgs,
    archiver: &CallArchiver<'_>,
    range: std::ops::Range<Micros>,
) -> anyhow::Result<ExitCode> {
    // A process that was killed keeps its turn for half a minute.
    anyhow::ensure!(
        archiver.store.wait_for_turn(ClusterTurn::Retention, archiver.process).await?,
        "another process archives or erases at the moment; try again in a few minutes"
    );
    let ArchivedTotals { parts, calls, cost } = archiver.in_turn(archiver.archive(range)).await?;
    while archiver.store.return_space().await? > 0 {}
    if common.json {
        let object = json!({ "parts": parts, "calls": calls, "cost_usd": cost.to_string() });
        print_line(&object.to_string());
    } else {
        print_line(&format!("{calls} calls for {cost} USD left the database, in {parts} parts"));
    }
    Ok(ExitCode::SUCCESS)
}

async fn verify(
    common: &CommonArgs,
    store: &Store,
    place: Option<&ArchivePlace>,
) -> anyhow::Result<ExitCode> {
    let findings = verify_archive(store, place).await?;
    let ArchiveFindings { files, calls, cost, deleted, problems, notes } = findings;
    if common.json {
        let object = json!({
            "ok": problems.is_empty(), "files": files, "calls": calls, "cost_usd": cost.to_string(),
            "deleted_without_file": deleted, "problems": problems, "notes": notes,
        });
        print_line(&object.to_string());
    } else {
        for line in problems.iter().chain(&notes) {
            print_line(&format!("          {line}"));
        }
        let verdict =
            if problems.is_empty() { "the archive is complete" } else { "the archive is DAMAGED" };
        print_line(&format!(
            "{verdict}: {files} files, {calls} calls for {cost} USD; {deleted} calls were deleted without a file"
        ));
    }
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

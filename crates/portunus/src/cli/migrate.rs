//! `portunus migrate`: the schema of the database, and how an upgrade changes it.

use clap::Args;
use serde_json::{Value, json};
use std::process::ExitCode;
use store::{MigrationKind, PendingMigration, SchemaState, Store};

use super::common::CommonArgs;
use super::output::print_line;
use crate::app::open_store;

/// Exit code of a check that found migrations with which running nodes go on.
const WOULD_EXPAND: u8 = 3;
/// Exit code of a check that found migrations with which nodes of an earlier version may fail.
const WOULD_CONTRACT: u8 = 4;

/// Options of the migration.
#[derive(Debug, Args)]
pub(super) struct MigrateArgs {
    /// Print the migrations that would run, and change nothing. Exit codes: 0 none would run, 3 nodes of
    /// the version before go on meanwhile, 4 they have to be stopped first
    #[arg(long)]
    check: bool,
}

pub(super) async fn migrate(common: &CommonArgs, args: &MigrateArgs) -> anyhow::Result<ExitCode> {
    let config = common.load()?;
    let state = Store::schema_state(&config.store_url).await?;
    if args.check {
        let (code, verdict) = judge(&state);
        print_state(common.json, &state, verdict);
        return Ok(ExitCode::from(code));
    }
    open_store(&config).await?.close().await;
    if common.json {
        let applied: Vec<i64> = state.pending.iter().map(|one| one.version).collect();
        print_line(&json!({ "schema": state.known, "applied": applied }).to_string());
    } else {
        for PendingMigration { version, description, .. } in &state.pending {
            print_line(&format!("migration {version} ({description}) is applied"));
        }
        print_line("the database is up to date");
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the exit code of a check and a sentence for people.
fn judge(state: &SchemaState) -> (u8, &'static str) {
    if state.pending.is_empty() {
        (0, "the database is up to date")
    } else if state.found.is_none() {
        (WOULD_EXPAND, "the database is empty and would be set up")
    } else if state.is_compatible() {
        (WOULD_EXPAND, "nodes of the version before go on: upgrade one node after the other")
    } else {
        (
            WOULD_CONTRACT,
            "nodes of the version before may fail: stop all of them before the upgrade",
        )
    }
}

fn print_state(is_json: bool, state: &SchemaState, verdict: &str) {
    let SchemaState { found, known, pending, live_nodes } = state;
    let word = |kind: MigrationKind| match kind {
        MigrationKind::Expand => "expand",
        MigrationKind::Contract => "contract",
    };
    if is_json {
        let row = |one: &PendingMigration| {
            json!({
                "version": one.version, "description": one.description, "kind": word(one.kind),
            })
        };
        let pending: Vec<Value> = pending.iter().map(row).collect();
        let state = json!({
            "database_schema": found, "known_schema": known, "pending": pending,
            "live_nodes": live_nodes, "compatible": state.is_compatible(), "verdict": verdict,
        });
        print_line(&state.to_string());
        return;
    }
    let found = found.map_or_else(|| "no schema".to_owned(), |found| format!("schema {found}"));
    print_line(&format!("the database has {found}; this program knows schema {known}"));
    for PendingMigration { version, description, kind } in pending {
        print_line(&format!("migration {version} ({description}) would run: {}", word(*kind)));
    }
    if *live_nodes > 0 {
        print_line(&format!("{live_nodes} nodes use the database now"));
    }
    print_line(verdict);
}

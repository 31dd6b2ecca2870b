//! `portunus forget`: erases the personal data of an account. It works beside a running gateway.

use admin::{AccountAdmin, Actor};
use clap::Args;
use config::Config;
use relay::FileStore;
use serde_json::{Value, json};
use std::process::ExitCode;
use std::sync::Arc;
use store::{Account, ErasedCounts};

use super::common::{CommonArgs, close_accounts, confirm, open_accounts, without_field};
use super::output::print_line;
use crate::app::{key_pepper, open_vault};

/// Begin of the username of an erased account.
const ERASED_NAME: &str = "erased-";

#[derive(Debug, Args)]
pub(super) struct ForgetArgs {
    /// Username, e-mail address or id of the account
    account: String,
    /// Only count the rows of each table
    #[arg(long)]
    dry_run: bool,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
}

pub(super) async fn run(common: &CommonArgs, args: ForgetArgs) -> anyhow::Result<ExitCode> {
    let config = common.load()?;
    let mut accounts = open_accounts(&config).await?;
    // Results of tasks are opened, because they name files.
    let vault = Arc::new(open_vault(&config, &accounts.store));
    accounts.store = accounts.store.with_vault(vault);
    let outcome = forget(common, &config, &accounts, args).await;
    close_accounts(&config, &accounts, outcome.is_ok()).await?;
    outcome
}

async fn forget(
    common: &CommonArgs,
    config: &Config,
    accounts: &AccountAdmin,
    args: ForgetArgs,
) -> anyhow::Result<ExitCode> {
    let ForgetArgs { account: name, dry_run, yes } = args;
    let account = find(accounts, &name).await?;
    let preview = accounts.erasure_preview(&Actor::Operator, &account.id).await;
    let (account, counts) = preview.map_err(without_field)?;
    if dry_run {
        print(common, &account, &counts, true);
        return Ok(ExitCode::SUCCESS);
    }
    let question = format!(
        "The personal data of {} ({}) are erased for ever, and its keys are revoked. Its sums stay.",
        account.username, account.id
    );
    if !yes && !confirm(&question)? {
        return Ok(ExitCode::FAILURE);
    }
    let pepper = key_pepper(config, &accounts.store).await?;
    let clock = Arc::clone(&accounts.clock);
    let files = FileStore::open(config, &pepper, clock, accounts.store.clone())?;
    let erased = accounts.erase_account(&Actor::Operator, &account.id, &files).await;
    print(common, &account, &erased.map_err(without_field)?, false);
    Ok(ExitCode::SUCCESS)
}

async fn find(accounts: &AccountAdmin, name: &str) -> anyhow::Result<Account> {
    let found = match accounts.store.account_by_login(name).await? {
        Some(account) => Some(account),
        // The name that an erasure leaves has the id.
        None => accounts.store.account(name.strip_prefix(ERASED_NAME).unwrap_or(name)).await?,
    };
    found.ok_or_else(|| anyhow::anyhow!("there is no account `{name}`; see portunus users list"))
}

fn print(common: &CommonArgs, account: &Account, counts: &ErasedCounts, is_dry: bool) {
    if common.json {
        let tables: serde_json::Map<String, Value> =
            counts.iter().map(|(table, count)| ((*table).to_owned(), json!(count))).collect();
        print_line(&json!({ "id": account.id, "dry_run": is_dry, "rows": tables }).to_string());
        return;
    }
    for (table, count) in counts.iter().filter(|(_, count)| **count > 0) {
        print_line(&format!("{table:20}  {count}"));
    }
    let verdict = if is_dry { "would be erased; nothing was changed" } else { "is erased" };
    print_line(&format!("The account {} {verdict}.", account.id));
}

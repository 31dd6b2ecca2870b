//! `portunus keys account`: terms of all keys of an account or team together.

use access::keys::budget_json;
use admin::{AccountAdmin, Actor, ReadVersion, TeamChange, TermsView};
use clap::{ArgGroup, Args};
use serde_json::json;
use std::process::ExitCode;
use store::{AccountTerms, BudgetTerms, KeyOwner, ObjectSharing, RateLimits};

use super::common::CommonArgs;
use super::keys::{
    BudgetArg, NONE_WORD, RateLimitArgs, find_account, parse_budget, require_not_negative,
};
use super::output::print_line;

/// Change of an account's terms. Options that are not given stay unchanged.
#[derive(Clone, Debug, Args)]
#[command(group(ArgGroup::new("money").args(["unlimited", "cap"])))]
pub(super) struct TermsArgs {
    /// No spending cap
    #[arg(long)]
    unlimited: bool,
    /// Spending cap in USD
    #[arg(long, value_name = "USD")]
    cap: Option<canon::Money>,
    /// Spending limit per day, week or month (UTC), or `none`
    #[arg(long, value_name = "USD/day", value_parser = parse_budget)]
    budget: Option<BudgetArg>,
    /// Owner of stored answers, tasks, replays and receipts: the `key` that made them, or `account`
    /// for all its keys
    #[arg(long, value_name = "OWNER", value_parser = parse_share)]
    share: Option<ObjectSharing>,
    /// Allow only these models, or `all`
    #[arg(long, value_delimiter = ',', value_name = "A,B")]
    models: Vec<String>,
    #[command(flatten)]
    pace: RateLimitArgs,
}

fn parse_share(text: &str) -> Result<ObjectSharing, String> {
    ObjectSharing::by_word(text).ok_or_else(|| "write `key` or `account`".to_owned())
}

impl TermsArgs {
    /// Returns the list of models that was given.
    fn models(&self) -> Option<Vec<String>> {
        let listed = self.models.iter().filter(|model| *model != "all").cloned();
        (!self.models.is_empty()).then(|| listed.collect())
    }

    const fn is_none(&self) -> bool {
        let Self { unlimited, cap, budget, share, models, pace } = self;
        !*unlimited
            && cap.is_none()
            && budget.is_none()
            && share.is_none()
            && models.is_empty()
            && pace.is_none()
    }
}

pub(super) async fn run(
    common: &CommonArgs,
    admin: &AccountAdmin,
    name: Option<&str>,
    change: &TermsArgs,
) -> anyhow::Result<ExitCode> {
    require_not_negative(change.cap)?;
    let store = &admin.store;
    let accounts = match name {
        Some(name) => vec![find_account(store, name).await?],
        None if change.is_none() => store.owners().await?,
        None => anyhow::bail!("name the account to be changed"),
    };
    for account in accounts {
        let view = match &account {
            KeyOwner::Person(person) => set_account_terms(admin, &person.id, change).await?,
            KeyOwner::Team(team) => set_team_terms(admin, &team.id, change).await?,
        };
        show_account(common, account.name(), &view);
    }
    Ok(ExitCode::SUCCESS)
}

async fn set_account_terms(
    admin: &AccountAdmin,
    id: &str,
    change: &TermsArgs,
) -> anyhow::Result<TermsView> {
    let TermsView { mut terms, mut limits, .. } = admin.account_terms(&Actor::Operator, id).await?;
    change.pace.apply(&mut limits);
    terms.cap = if change.unlimited { None } else { change.cap.or(terms.cap) };
    if let Some(BudgetArg(budget)) = change.budget {
        terms.budget = budget;
    }
    terms.share = change.share.unwrap_or(terms.share);
    terms.models = change.models().unwrap_or(terms.models);
    let read = ReadVersion::default();
    Ok(admin.set_account_terms(&Actor::Operator, id, read, terms, limits).await?)
}

async fn set_team_terms(
    admin: &AccountAdmin,
    id: &str,
    change: &TermsArgs,
) -> anyhow::Result<TermsView> {
    let mut limits = admin.team(&Actor::Operator, id).await?.terms.limits;
    change.pace.apply(&mut limits);
    let change = TeamChange {
        cap: if change.unlimited { Some(None) } else { change.cap.map(Some) },
        budget: change.budget.map(|BudgetArg(budget)| budget),
        limits: Some(limits),
        share: change.share,
        models: change.models(),
        ..TeamChange::default()
    };
    let read = ReadVersion::default();
    Ok(admin.change_team(&Actor::Operator, id, read, change).await?.terms)
}

fn show_account(common: &CommonArgs, name: &str, view: &TermsView) {
    let RateLimits { rpm, tpm, concurrency } = view.limits;
    let AccountTerms { cap, budget, share, models } = &view.terms;
    let spent = view.spent;
    if common.json {
        let object = json!({
            "account": name,
            "cap_usd": cap.map(|cap| cap.to_string()),
            "spent_usd": spent.to_string(),
            "budget": budget.map(budget_json),
            "limits": { "rpm": rpm, "tpm": tpm, "concurrency": concurrency },
            "share": share.word(),
            "models": models,
        });
        return print_line(&object.to_string());
    }
    let limit_text =
        |limit: Option<u32>| limit.map_or(NONE_WORD.to_owned(), |limit| limit.to_string());
    let cap = cap.map_or_else(|| "without a cap".to_owned(), |cap| format!("of {cap} USD"));
    let budget = budget.map_or_else(String::new, |BudgetTerms { limit: amount, period }| {
        format!(", {amount} USD per {}", period.word())
    });
    let share = match share {
        ObjectSharing::Key => "",
        ObjectSharing::Account => ", keys share their objects",
    };
    let models = match models.is_empty() {
        true => String::new(),
        false => format!(", only the models {}", models.join(", ")),
    };
    print_line(&format!(
        "{name}: {spent} USD spent {cap}{budget}, {} requests per minute, {} tokens per minute, {} \
         calls at once{share}{models}",
        limit_text(rpm),
        limit_text(tpm),
        limit_text(concurrency)
    ));
}

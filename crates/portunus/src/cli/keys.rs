//! `portunus keys`: create, list, change, revoke and rotate API keys. A running gateway applies
//! changes within a second.

use canon::Micros;
use clap::error::ErrorKind;
use clap::{ArgGroup, Args, CommandFactory as _, Subcommand};
use ledger::{BudgetPeriod, Clock as _, SystemClock};
use serde_json::{Value, json};
use std::process::ExitCode;
use store::{
    AccountRole, AdminPart, BudgetTerms, KeyGrants, KeyOwner, KeyScope, RateLimits, Store,
};

use super::account_terms::{self, TermsArgs};
use super::common::{CommonArgs, close_accounts, open_accounts};
use super::output::{print_line, print_secret};
use access::keys::{key_json, key_state};
use admin::{AccountAdmin, Actor, IssuedKey, KeyChange, KeyDraft, ReadVersion};
use config::IpRange;
use config::parse_duration;

#[derive(Debug, Subcommand)]
pub(super) enum KeysCommand {
    /// Create a key; its value is shown once
    #[command(group(ArgGroup::new("money").args(["unlimited", "cap"])))]
    Create {
        /// Name of the key
        #[arg(long)]
        name: String,
        /// `call` for models, `read` for usage, answers and tasks only, `admin` for /api/admin and
        /// /metrics, or parts of it such as `admin:keys,admin:usage`; an admin key cannot make
        /// calls
        #[arg(long, value_name = "SCOPE", default_value = "call", value_parser = parse_scope)]
        scope: ScopeArg,
        /// No spending cap
        #[arg(long)]
        unlimited: bool,
        /// Spending cap in USD; a key for calls needs this or --unlimited
        #[arg(long, value_name = "USD")]
        cap: Option<canon::Money>,
        /// Allow only these models
        #[arg(long, value_delimiter = ',', value_name = "A,B")]
        models: Vec<String>,
        /// Lifetime, such as 30d; the default is unlimited, or 30d for an admin key
        #[arg(long, value_name = "TIME")]
        expires: Option<String>,
        /// Account or team that owns the key; the default is the gateway's owner
        #[arg(long, value_name = "NAME")]
        account: Option<String>,
        #[command(flatten)]
        terms: KeyLimitArgs,
    },
    /// Change a key; options that are not given stay unchanged
    #[command(group(ArgGroup::new("money").args(["unlimited", "cap"])))]
    Set {
        /// Id of the key
        id: String,
        /// Name of the key
        #[arg(long)]
        name: Option<String>,
        /// No spending cap
        #[arg(long)]
        unlimited: bool,
        /// Spending cap in USD
        #[arg(long, value_name = "USD")]
        cap: Option<canon::Money>,
        /// Allow only these models, or `all`
        #[arg(long, value_delimiter = ',', value_name = "A,B")]
        models: Vec<String>,
        /// Lifetime from now, such as 30d, or `never`
        #[arg(long, value_name = "TIME")]
        expires: Option<String>,
        #[command(flatten)]
        terms: KeyLimitArgs,
    },
    /// Show or change the shared limits of all keys of an account or team
    Account {
        /// Name of the account or team; without it, all are listed
        name: Option<String>,
        #[command(flatten)]
        change: TermsArgs,
    },
    /// List all keys
    List,
    /// Revoke a key at once
    Revoke {
        /// Id of the key
        id: String,
    },
    /// Replace the value of a key; the old value works on for a while
    Rotate {
        /// Id of the key
        id: String,
        /// Time the old value works on
        #[arg(long, value_name = "TIME", default_value = "24h")]
        overlap: String,
    },
}

/// Rate limits; `none` removes one.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct RateLimitArgs {
    /// Requests per minute, or `none`
    #[arg(long, value_name = "N", value_parser = parse_limit)]
    rpm: Option<LimitArg>,
    /// Tokens per minute, or `none`
    #[arg(long, value_name = "N", value_parser = parse_limit)]
    tpm: Option<LimitArg>,
    /// Concurrent calls, or `none`
    #[arg(long, value_name = "N", value_parser = parse_limit)]
    concurrency: Option<LimitArg>,
}

/// Limits of a key besides its spending cap.
#[derive(Clone, Debug, Args)]
pub(super) struct KeyLimitArgs {
    #[command(flatten)]
    pace: RateLimitArgs,
    /// Allow only these addresses and networks, such as 10.0.0.0/8, or `none` for all
    #[arg(long, value_delimiter = ',', value_name = "A,B", value_parser = parse_network)]
    ips: Vec<String>,
    /// Spending limit per day, week or month (UTC), or `none`
    #[arg(long, value_name = "USD/day", value_parser = parse_budget)]
    budget: Option<BudgetArg>,
}

/// A limit, or `none`.
#[derive(Clone, Copy, Debug)]
struct LimitArg(Option<u32>);

/// A budget, or `none`.
#[derive(Clone, Copy, Debug)]
pub(super) struct BudgetArg(pub(super) Option<BudgetTerms>);

pub(super) const NONE_WORD: &str = "none";
const KEY_CANNOT_SPEND: &str = "a key of this scope cannot spend: leave out --cap and --unlimited";

/// A scope and the part of it that a key may use.
#[derive(Clone, Debug)]
pub(super) struct ScopeArg {
    scope: KeyScope,
    grants: KeyGrants,
}

impl ScopeArg {
    /// Returns true if a key of this scope can spend.
    fn spends(&self) -> bool {
        self.scope == KeyScope::Call && self.grants == KeyGrants::All
    }
}

fn parse_scope(text: &str) -> Result<ScopeArg, String> {
    let parts = AdminPart::ALL.map(|part| format!("`admin:{}`", part.word())).join(", ");
    let (scope, grants) = KeyScope::parse(text)
        .ok_or_else(|| format!("write `call`, `read`, `admin`, or parts of it: {parts}"))?;
    Ok(ScopeArg { scope, grants })
}

fn parse_limit(text: &str) -> Result<LimitArg, String> {
    match text.parse() {
        _ if text == NONE_WORD => Ok(LimitArg(None)),
        Ok(number) if number > 0 => Ok(LimitArg(Some(number))),
        Ok(_) | Err(_) => Err("write a whole number above zero, or `none`".to_owned()),
    }
}

fn parse_network(text: &str) -> Result<String, String> {
    if text != NONE_WORD {
        IpRange::parse(text)?;
    }
    Ok(text.trim().to_owned())
}

pub(super) fn parse_budget(text: &str) -> Result<BudgetArg, String> {
    if text == NONE_WORD {
        return Ok(BudgetArg(None));
    }
    let wrong =
        || "write an amount and a period, such as 5.00/day, 20/week or 100/month".to_owned();
    let (amount, period) = text.split_once('/').ok_or_else(wrong)?;
    let amount: canon::Money = amount.parse().map_err(|_| wrong())?;
    let period = BudgetPeriod::by_word(period).ok_or_else(wrong)?;
    if amount.is_negative() {
        return Err("must not be below zero".to_owned());
    }
    Ok(BudgetArg(Some(BudgetTerms { limit: amount, period })))
}

impl RateLimitArgs {
    /// Returns true if no limit was given.
    pub(super) const fn is_none(&self) -> bool {
        let Self { rpm, tpm, concurrency } = self;
        rpm.is_none() && tpm.is_none() && concurrency.is_none()
    }

    /// Changes the limits that were given.
    pub(super) fn apply(self, limits: &mut RateLimits) {
        let Self { rpm, tpm, concurrency } = self;
        for (given, own) in
            [(rpm, &mut limits.rpm), (tpm, &mut limits.tpm), (concurrency, &mut limits.concurrency)]
        {
            if let Some(LimitArg(limit)) = given {
                *own = limit;
            }
        }
    }
}

pub(super) async fn run(common: &CommonArgs, command: KeysCommand) -> anyhow::Result<ExitCode> {
    if let KeysCommand::Create { scope, unlimited: false, cap: None, .. } = &command
        && scope.spends()
    {
        let say = "a key for calls needs --cap <USD> or --unlimited";
        let wrong = super::CliArguments::command().error(ErrorKind::MissingRequiredArgument, say);
        return Ok(super::print_usage(&wrong));
    }
    let config = common.load()?;
    let admin = open_accounts(&config).await?;
    let outcome = run_command(common, &admin, command).await;
    close_accounts(&config, &admin, outcome.is_ok()).await?;
    outcome
}

async fn run_command(
    common: &CommonArgs,
    admin: &AccountAdmin,
    command: KeysCommand,
) -> anyhow::Result<ExitCode> {
    match command {
        KeysCommand::Create { name, scope, unlimited, cap, models, expires, account, terms } => {
            require_not_negative(cap)?;
            if !scope.spends() {
                let spends = unlimited || cap.is_some_and(|cap| cap != canon::Money::ZERO);
                anyhow::ensure!(!spends, KEY_CANNOT_SPEND);
            }
            let KeyLimitArgs { pace, ips, budget } = terms;
            let mut limits = RateLimits::default();
            pace.apply(&mut limits);
            let ScopeArg { scope, grants } = scope;
            let draft = KeyDraft {
                scope,
                grants,
                name,
                cap,
                models,
                expires: expires.as_deref().map(time_from_now).transpose()?,
                limits,
                ips: ips.into_iter().filter(|text| text != NONE_WORD).collect(),
                budget: budget.and_then(|BudgetArg(budget)| budget),
            };
            create(common, admin, account.as_deref(), draft).await
        }
        KeysCommand::Set { id, name, unlimited, cap, models, expires, terms } => {
            require_not_negative(cap)?;
            let Some(record) = admin.store.key(&id).await? else {
                anyhow::bail!("there is no key `{id}` to change; see portunus keys list");
            };
            if record.scope == KeyScope::Admin {
                let spends = unlimited || cap.is_some_and(|cap| cap != canon::Money::ZERO);
                anyhow::ensure!(!spends, KEY_CANNOT_SPEND);
                let never = expires.as_deref() == Some("never");
                anyhow::ensure!(!never, "--expires: an admin key must have an end");
            }
            let KeyLimitArgs { pace, ips, budget } = terms;
            let mut limits = record.limits;
            pace.apply(&mut limits);
            let change = KeyChange {
                name,
                cap: if unlimited { Some(None) } else { cap.map(Some) },
                models: (!models.is_empty())
                    .then(|| models.into_iter().filter(|model| model != "all").collect()),
                expires: match expires.as_deref() {
                    None => None,
                    Some("never") => Some(None),
                    Some(time) => Some(Some(time_from_now(time)?)),
                },
                limits: Some(limits),
                ips: (!ips.is_empty())
                    .then(|| ips.into_iter().filter(|text| text != NONE_WORD).collect()),
                budget: budget.map(|BudgetArg(budget)| budget),
            };
            set_key(common, admin, &id, change).await
        }
        KeysCommand::Account { name, change } => {
            account_terms::run(common, admin, name.as_deref(), &change).await
        }
        KeysCommand::List => list(common, &admin.store).await,
        KeysCommand::Revoke { id } => revoke(common, admin, &id).await,
        KeysCommand::Rotate { id, overlap } => rotate(common, admin, &id, &overlap).await,
    }
}

async fn set_key(
    common: &CommonArgs,
    admin: &AccountAdmin,
    id: &str,
    change: KeyChange,
) -> anyhow::Result<ExitCode> {
    let record = admin.change_key(&Actor::Operator, id, ReadVersion::default(), change).await?;
    if common.json {
        print_line(&key_json(&record, SystemClock.now()).to_string());
    } else {
        print_line(&format!(
            "The key {} is changed; running gateways apply it within seconds.",
            record.id
        ));
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn find_account(store: &Store, name: &str) -> anyhow::Result<KeyOwner> {
    let found = store.owner_by_name(name).await?;
    found.ok_or_else(|| anyhow::anyhow!("there is no account and no team `{name}`"))
}

pub(super) fn require_not_negative(cap: Option<canon::Money>) -> anyhow::Result<()> {
    if cap.is_some_and(canon::Money::is_negative) {
        anyhow::bail!("--cap must not be below zero");
    }
    Ok(())
}

/// Returns the time that is this far from now.
fn time_from_now(text: &str) -> anyhow::Result<Micros> {
    let time = parse_duration(text)?;
    Ok(SystemClock.now() + Micros::from(time))
}

async fn create(
    common: &CommonArgs,
    admin: &AccountAdmin,
    account: Option<&str>,
    draft: KeyDraft,
) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(!draft.name.trim().is_empty(), "--name must not be empty");
    let owner = admin.owner_or_create(&Actor::Operator).await?;
    let account = match account {
        Some(name) => find_account(&admin.store, name).await?,
        None => KeyOwner::Person(owner),
    };
    let named_end = draft.expires.is_some();
    if draft.scope == KeyScope::Admin {
        require_administrator(&account)?;
    }
    let IssuedKey { record, secret: text } =
        admin.create_key(&Actor::Operator, &account, draft).await?;
    let id = &record.id;
    let remedy = format!(
        "the key {id} exists and nobody has its value: revoke it with `portunus keys revoke {id}`"
    );
    if common.json {
        let mut shown = key_json(&record, SystemClock.now());
        if let Some(shown) = shown.as_object_mut() {
            shown.insert("key".to_owned(), Value::from(text));
        }
        print_secret(&shown.to_string(), &remedy);
    } else {
        let line = format!("{text}\n\nThis is the only time the key `{}` is shown.", record.name);
        print_secret(&line, &remedy);
        match record.scope {
            KeyScope::Call => {}
            KeyScope::Admin => {
                let end = if named_end {
                    ""
                } else {
                    " It ends in 30 days, since --expires was not given."
                };
                print_line(&format!("It administrates and cannot make calls.{end}"));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Refuses an admin key for an account that does not administrate.
fn require_administrator(owner: &KeyOwner) -> anyhow::Result<()> {
    let may = match owner {
        KeyOwner::Person(account) => match account.role {
            AccountRole::Owner | AccountRole::Admin => true,
            AccountRole::Member | AccountRole::Viewer => false,
        },
        KeyOwner::Team(_) => false,
    };
    anyhow::ensure!(may, "--scope admin: `{}` does not administrate", owner.name());
    Ok(())
}

async fn list(common: &CommonArgs, store: &Store) -> anyhow::Result<ExitCode> {
    let keys = store.keys().await?;
    if common.json {
        for key in &keys {
            print_line(&key_json(key, SystemClock.now()).to_string());
        }
        return Ok(ExitCode::SUCCESS);
    }
    if keys.is_empty() {
        print_line(
            "There are no keys. Create one with: portunus keys create --name NAME --unlimited",
        );
    } else {
        print_line(&format!(
            "{:12}  {:8}  {:5}  {:>14}  {:>14}  name",
            "id", "state", "scope", "spent $", "cap $"
        ));
    }
    for key in &keys {
        print_line(&format!(
            "{:12}  {:8}  {:5}  {:>14}  {:>14}  {}",
            key.id,
            key_state(key, SystemClock.now()),
            key.scope_text(),
            key.spent,
            key.cap.map_or_else(|| "unlimited".to_owned(), |cap| cap.to_string()),
            key.name
        ));
    }
    Ok(ExitCode::SUCCESS)
}

async fn revoke(common: &CommonArgs, admin: &AccountAdmin, id: &str) -> anyhow::Result<ExitCode> {
    let known = admin.store.key(id).await?.filter(|key| key.revoked.is_none());
    if known.is_none() {
        anyhow::bail!("there is no key `{id}` to revoke; see portunus keys list");
    }
    admin.revoke_key(&Actor::Operator, id, ReadVersion::default()).await?;
    if common.json {
        print_line(&json!({ "id": id, "revoked": true }).to_string());
    } else {
        print_line(&format!("The key {id} is revoked; running gateways refuse it within seconds."));
    }
    Ok(ExitCode::SUCCESS)
}

async fn rotate(
    common: &CommonArgs,
    admin: &AccountAdmin,
    id: &str,
    overlap: &str,
) -> anyhow::Result<ExitCode> {
    let until = time_from_now(overlap)?;
    let known = admin.store.key(id).await?.filter(|key| key.revoked.is_none());
    if known.is_none() {
        anyhow::bail!("there is no key `{id}` to rotate; see portunus keys list");
    }
    let IssuedKey { record, secret: text } = admin.rotate_key(&Actor::Operator, id, until).await?;
    let remedy = format!(
        "the key {id} has a new value that nobody has, and the old one works on for {overlap}: rotate it again"
    );
    if common.json {
        let shown = json!({ "id": id, "name": record.name, "key": text });
        print_secret(&shown.to_string(), &remedy);
    } else {
        print_secret(&format!("{text}\n\nThe old value works on for {overlap}."), &remedy);
    }
    Ok(ExitCode::SUCCESS)
}

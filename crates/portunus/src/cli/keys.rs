//! `portunus keys`: make, list, change, revoke and rotate API keys. A running gateway learns within a
//! second.

use clap::error::ErrorKind;
use clap::{ArgGroup, Args, CommandFactory as _, Subcommand};
use ledger::{Clock, BudgetPeriod, SystemClock};
use serde_json::{Value, json};
use std::process::ExitCode;
use std::sync::Arc;
use store::{AccountTerms, BudgetTerms, KeyScope, RateLimits, KeyOwner, AccountRole, Store};
use tokio_util::task::TaskTracker;

use super::{Common, say};
use admin::{AccountAdmin, Actor, KeyChange, KeyDraft, ReadVersion, ShownKey};

use crate::app::{open_store, owner_of, pepper};
use access::keys::{KeyRing, described, described_budget, state};
use access::limits::Shared;
use config::Net;
use config::duration;

#[derive(Debug, Subcommand)]
pub(super) enum Keys {
    /// Make a key; its value is shown once
    #[command(group(ArgGroup::new("money").args(["unlimited", "cap"])))]
    Create {
        /// What it is for
        #[arg(long)]
        name: String,
        /// `call` for models, or `admin` for /api/admin and /metrics; an admin key makes no calls
        #[arg(long, value_name = "SCOPE", default_value = "call", value_parser = scope)]
        scope: KeyScope,
        /// Without a spending cap
        #[arg(long)]
        unlimited: bool,
        /// The most it may spend, in USD; a key for calls needs this or --unlimited
        #[arg(long, value_name = "USD")]
        cap: Option<canon::Money>,
        /// Only these models
        #[arg(long, value_delimiter = ',', value_name = "A,B")]
        models: Vec<String>,
        /// How long it lives, such as 30d; an admin key lives 30d if not given
        #[arg(long, value_name = "TIME")]
        expires: Option<String>,
        /// The account or team it belongs to; the owner's, if not given
        #[arg(long, value_name = "NAME")]
        account: Option<String>,
        #[command(flatten)]
        terms: Terms,
    },
    /// Change what a key may do; what is not named stays as it is
    #[command(group(ArgGroup::new("money").args(["unlimited", "cap"])))]
    Set {
        /// The key's id
        id: String,
        /// What it is for
        #[arg(long)]
        name: Option<String>,
        /// Without a spending cap
        #[arg(long)]
        unlimited: bool,
        /// The most it may spend, in USD
        #[arg(long, value_name = "USD")]
        cap: Option<canon::Money>,
        /// Only these models, or `all`
        #[arg(long, value_delimiter = ',', value_name = "A,B")]
        models: Vec<String>,
        /// How long it lives from now, such as 30d, or `never`
        #[arg(long, value_name = "TIME")]
        expires: Option<String>,
        #[command(flatten)]
        terms: Terms,
    },
    /// Show or change what all keys of an account or a team together may do
    #[command(group(ArgGroup::new("money").args(["unlimited", "cap"])))]
    Account {
        /// The name of the account or team; without one, all are shown
        name: Option<String>,
        /// Without a spending cap
        #[arg(long)]
        unlimited: bool,
        /// The most they may spend, in USD
        #[arg(long, value_name = "USD")]
        cap: Option<canon::Money>,
        /// The most they may spend in every day, week or month (UTC), or `none`
        #[arg(long, value_name = "USD/day", value_parser = budget)]
        budget: Option<Budget>,
        #[command(flatten)]
        pace: PaceTerms,
    },
    /// List all keys
    List,
    /// End a key at once
    Revoke {
        /// The key's id
        id: String,
    },
    /// Give a key a new value; the old one works on for a while
    Rotate {
        /// The key's id
        id: String,
        /// How long the old value works on
        #[arg(long, value_name = "TIME", default_value = "24h")]
        overlap: String,
    },
}

/// How fast, each with `none` for no limit.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct PaceTerms {
    /// Requests per minute, or `none`
    #[arg(long, value_name = "N", value_parser = limit)]
    rpm: Option<Limit>,
    /// Tokens per minute, or `none`
    #[arg(long, value_name = "N", value_parser = limit)]
    tpm: Option<Limit>,
    /// Calls at the same time, or `none`
    #[arg(long, value_name = "N", value_parser = limit)]
    concurrency: Option<Limit>,
}

/// What a key may do besides spending in all.
#[derive(Clone, Debug, Args)]
pub(super) struct Terms {
    #[command(flatten)]
    pace: PaceTerms,
    /// Only from these addresses and networks, such as 10.0.0.0/8, or `none` for anywhere
    #[arg(long, value_delimiter = ',', value_name = "A,B", value_parser = place)]
    ips: Vec<String>,
    /// The most it may spend in every day, week or month (UTC), or `none`
    #[arg(long, value_name = "USD/day", value_parser = budget)]
    budget: Option<Budget>,
}

/// A limit, or none.
#[derive(Clone, Copy, Debug)]
struct Limit(Option<u32>);

/// A budget, or none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget(Option<BudgetTerms>);

const NONE: &str = "none";
const CANNOT_SPEND: &str = "an admin key cannot spend: leave out --cap and --unlimited";

fn scope(text: &str) -> Result<KeyScope, String> {
    KeyScope::by_word(text).ok_or_else(|| "write `call` or `admin`".to_owned())
}

fn limit(text: &str) -> Result<Limit, String> {
    match text.parse() {
        _ if text == NONE => Ok(Limit(None)),
        Ok(number) if number > 0 => Ok(Limit(Some(number))),
        Ok(_) | Err(_) => Err("write a whole number above zero, or `none`".to_owned()),
    }
}

fn place(text: &str) -> Result<String, String> {
    if text != NONE {
        Net::read(text)?;
    }
    Ok(text.trim().to_owned())
}

fn budget(text: &str) -> Result<Budget, String> {
    if text == NONE {
        return Ok(Budget(None));
    }
    let wrong =
        || "write an amount and a period, such as 5.00/day, 20/week or 100/month".to_owned();
    let (most, period) = text.split_once('/').ok_or_else(wrong)?;
    let most: canon::Money = most.parse().map_err(|_| wrong())?;
    let period = BudgetPeriod::by_word(period).ok_or_else(wrong)?;
    if most.is_negative() {
        return Err("must not be below zero".to_owned());
    }
    Ok(Budget(Some(BudgetTerms { limit: most, period })))
}

impl PaceTerms {
    /// Changes what is named.
    fn apply(self, limits: &mut RateLimits) {
        let Self { rpm, tpm, concurrency } = self;
        for (wanted, own) in
            [(rpm, &mut limits.rpm), (tpm, &mut limits.tpm), (concurrency, &mut limits.concurrency)]
        {
            if let Some(Limit(limit)) = wanted {
                *own = limit;
            }
        }
    }
}

pub(super) async fn run(common: &Common, command: Keys) -> anyhow::Result<ExitCode> {
    if let Keys::Create { scope: KeyScope::Call, unlimited: false, cap: None, .. } = command {
        let say = "a key for calls needs --cap <USD> or --unlimited";
        let wrong = super::Arguments::command().error(ErrorKind::MissingRequiredArgument, say);
        let _ = wrong.print();
        return Ok(ExitCode::from(2));
    }
    let config = common.load()?;
    let store = open_store(&config).await?;
    let pepper = pepper(&config, &store).await?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let admin = AccountAdmin {
        keys: Arc::new(KeyRing::load(store.clone(), Arc::clone(&clock), &pepper).await?),
        store,
        clock,
        shared: None,
        tasks: TaskTracker::new(),
    };
    let outcome = perform(common, &admin, command).await;
    admin.store.close().await;
    if let Some(valkey) = config.valkey.as_ref().filter(|_| outcome.is_ok()) {
        // Running gateways hear of it at once instead of within a second.
        Shared::open(valkey, "cli".to_owned(), Arc::new(SystemClock))?.tell_news().await;
    }
    outcome
}

async fn perform(common: &Common, admin: &AccountAdmin, command: Keys) -> anyhow::Result<ExitCode> {
    match command {
        Keys::Create { name, scope, unlimited, cap, models, expires, account, terms } => {
            not_negative(cap)?;
            if scope == KeyScope::Admin {
                let spends = unlimited || cap.is_some_and(|cap| cap != canon::Money::ZERO);
                anyhow::ensure!(!spends, CANNOT_SPEND);
            }
            let Terms { pace, ips, budget } = terms;
            let mut limits = RateLimits::default();
            pace.apply(&mut limits);
            let draft = KeyDraft {
                scope,
                name,
                cap,
                models,
                expires: expires.as_deref().map(later).transpose()?,
                limits,
                ips: ips.into_iter().filter(|text| text != NONE).collect(),
                budget: budget.and_then(|Budget(budget)| budget),
            };
            create(common, admin, account.as_deref(), draft).await
        }
        Keys::Set { id, name, unlimited, cap, models, expires, terms } => {
            not_negative(cap)?;
            let Some(record) = admin.store.key(&id).await? else {
                anyhow::bail!("there is no key `{id}` to change; see portunus keys list");
            };
            if record.scope == KeyScope::Admin {
                let spends = unlimited || cap.is_some_and(|cap| cap != canon::Money::ZERO);
                anyhow::ensure!(!spends, CANNOT_SPEND);
                let never = expires.as_deref() == Some("never");
                anyhow::ensure!(!never, "--expires: an admin key must have an end");
            }
            let Terms { pace, ips, budget } = terms;
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
                    Some(time) => Some(Some(later(time)?)),
                },
                limits: Some(limits),
                ips: (!ips.is_empty())
                    .then(|| ips.into_iter().filter(|text| text != NONE).collect()),
                budget: budget.map(|Budget(budget)| budget),
            };
            set(common, admin, &id, change).await
        }
        Keys::Account { name, unlimited, cap, budget, pace } => {
            let change = Change { unlimited, cap, budget, pace };
            account(common, &admin.store, name.as_deref(), &change).await
        }
        Keys::List => list(common, &admin.store).await,
        Keys::Revoke { id } => revoke(common, admin, &id).await,
        Keys::Rotate { id, overlap } => rotate(common, admin, &id, &overlap).await,
    }
}

async fn set(
    common: &Common,
    admin: &AccountAdmin,
    id: &str,
    change: KeyChange,
) -> anyhow::Result<ExitCode> {
    let record = admin.change_key(&Actor::Operator, id, ReadVersion::default(), change).await?;
    if common.json {
        say(&described(&record, SystemClock.now()).to_string());
    } else {
        say(&format!("The key {} is changed; running gateways know within seconds.", record.id));
    }
    Ok(ExitCode::SUCCESS)
}

/// What is to be changed of an account.
struct Change {
    unlimited: bool,
    cap: Option<canon::Money>,
    budget: Option<Budget>,
    pace: PaceTerms,
}

impl Change {
    const fn is_none(&self) -> bool {
        let Self { unlimited, cap, budget, pace: PaceTerms { rpm, tpm, concurrency } } = self;
        !*unlimited
            && cap.is_none()
            && budget.is_none()
            && rpm.is_none()
            && tpm.is_none()
            && concurrency.is_none()
    }
}

async fn account(
    common: &Common,
    store: &Store,
    name: Option<&str>,
    change: &Change,
) -> anyhow::Result<ExitCode> {
    not_negative(change.cap)?;
    let accounts = match name {
        Some(name) => vec![find_account(store, name).await?],
        None if change.is_none() => store.owners().await?,
        None => anyhow::bail!("name the account that is to be changed"),
    };
    let (all_limits, all_terms) = (store.account_limits().await?, store.account_terms().await?);
    for account in accounts {
        let id = account.id();
        let limits = all_limits.iter().find(|(own, _)| own == id);
        let mut limits = limits.map(|(_, limits)| *limits).unwrap_or_default();
        let terms = all_terms.iter().find(|(own, _)| own == id);
        let mut terms = terms.map(|(_, terms)| *terms).unwrap_or_default();
        let before = (limits, terms);
        change.pace.apply(&mut limits);
        terms.cap = if change.unlimited { None } else { change.cap.or(terms.cap) };
        if let Some(Budget(budget)) = change.budget {
            terms.budget = budget;
        }
        if limits != before.0 {
            store.set_account_limits(id, limits).await?;
        }
        if terms != before.1 {
            store.set_account_terms(id, terms).await?;
        }
        if (limits, terms) != before {
            let (now, detail) = (SystemClock.now(), terms.to_string());
            store.add_audit(now, "command line", "account.terms", id, &detail).await?;
        }
        let (spent, _) = store.account_spending(id).await?;
        show_account(common, account.name(), limits, terms, spent);
    }
    Ok(ExitCode::SUCCESS)
}

fn show_account(
    common: &Common,
    name: &str,
    limits: RateLimits,
    terms: AccountTerms,
    spent: canon::Money,
) {
    let RateLimits { rpm, tpm, concurrency } = limits;
    let AccountTerms { cap, budget } = terms;
    if common.json {
        let told = json!({
            "account": name,
            "cap_usd": cap.map(|cap| cap.to_string()),
            "spent_usd": spent.to_string(),
            "budget": budget.map(described_budget),
            "limits": { "rpm": rpm, "tpm": tpm, "concurrency": concurrency },
        });
        return say(&told.to_string());
    }
    let told = |limit: Option<u32>| limit.map_or(NONE.to_owned(), |limit| limit.to_string());
    let cap = cap.map_or_else(|| "without a cap".to_owned(), |cap| format!("of {cap} USD"));
    let budget = budget.map_or_else(String::new, |BudgetTerms { limit: most, period }| {
        format!(", {most} USD per {}", period.word())
    });
    say(&format!(
        "{name}: {spent} USD spent {cap}{budget}, {} requests per minute, {} tokens per minute, {} \
         calls at once",
        told(rpm),
        told(tpm),
        told(concurrency)
    ));
}

async fn find_account(store: &Store, name: &str) -> anyhow::Result<KeyOwner> {
    let found = store.owner_by_name(name).await?;
    found.ok_or_else(|| anyhow::anyhow!("there is no account and no team `{name}`"))
}

fn not_negative(cap: Option<canon::Money>) -> anyhow::Result<()> {
    if cap.is_some_and(canon::Money::is_negative) {
        anyhow::bail!("--cap must not be below zero");
    }
    Ok(())
}

/// The time that long from now.
fn later(text: &str) -> anyhow::Result<i64> {
    let time = duration(text).map_err(|why| anyhow::anyhow!(why))?;
    Ok(SystemClock.now().saturating_add(i64::try_from(time.as_micros()).unwrap_or(i64::MAX)))
}

async fn create(
    common: &Common,
    admin: &AccountAdmin,
    account: Option<&str>,
    draft: KeyDraft,
) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(!draft.name.trim().is_empty(), "--name must not be empty");
    let owner = owner_of(&admin.store, SystemClock.now()).await?;
    let account = match account {
        Some(name) => find_account(&admin.store, name).await?,
        None => KeyOwner::Person(owner),
    };
    let named_end = draft.expires.is_some();
    if draft.scope == KeyScope::Admin {
        may_administrate(&account)?;
    }
    let ShownKey { record, text } = admin.create_key(&Actor::Operator, &account, draft).await?;
    if common.json {
        let mut shown = described(&record, SystemClock.now());
        if let Some(shown) = shown.as_object_mut() {
            shown.insert("key".to_owned(), Value::from(text));
        }
        say(&shown.to_string());
    } else {
        say(&format!("{text}\n\nThis is the only time the key `{}` is shown.", record.name));
        match record.scope {
            KeyScope::Call => {}
            KeyScope::Admin => {
                let end = if named_end {
                    ""
                } else {
                    " It ends in 30 days, since --expires was not given."
                };
                say(&format!("It administrates and cannot make calls.{end}"));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Refuses an admin key for an account without the right to administrate.
fn may_administrate(owner: &KeyOwner) -> anyhow::Result<()> {
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

async fn list(common: &Common, store: &Store) -> anyhow::Result<ExitCode> {
    let keys = store.keys().await?;
    if common.json {
        for key in &keys {
            say(&described(key, SystemClock.now()).to_string());
        }
        return Ok(ExitCode::SUCCESS);
    }
    if keys.is_empty() {
        say("There are no keys. Make one with: portunus keys create --name NAME --unlimited");
    } else {
        say(&format!(
            "{:12}  {:8}  {:5}  {:>14}  {:>14}  name",
            "id", "state", "scope", "spent $", "cap $"
        ));
    }
    for key in &keys {
        say(&format!(
            "{:12}  {:8}  {:5}  {:>14}  {:>14}  {}",
            key.id,
            state(key, SystemClock.now()),
            key.scope.word(),
            key.spent,
            key.cap.map_or_else(|| "unlimited".to_owned(), |cap| cap.to_string()),
            key.name
        ));
    }
    Ok(ExitCode::SUCCESS)
}

async fn revoke(common: &Common, admin: &AccountAdmin, id: &str) -> anyhow::Result<ExitCode> {
    let known = admin.store.key(id).await?.filter(|key| key.revoked.is_none());
    if known.is_none() {
        anyhow::bail!("there is no key `{id}` to revoke; see portunus keys list");
    }
    admin.revoke_key(&Actor::Operator, id, ReadVersion::default()).await?;
    if common.json {
        say(&json!({ "id": id, "revoked": true }).to_string());
    } else {
        say(&format!("The key {id} is revoked; running gateways refuse it within seconds."));
    }
    Ok(ExitCode::SUCCESS)
}

async fn rotate(
    common: &Common,
    admin: &AccountAdmin,
    id: &str,
    overlap: &str,
) -> anyhow::Result<ExitCode> {
    let until = later(overlap)?;
    let known = admin.store.key(id).await?.filter(|key| key.revoked.is_none());
    if known.is_none() {
        anyhow::bail!("there is no key `{id}` to rotate; see portunus keys list");
    }
    let ShownKey { record, text } = admin.rotate_key(&Actor::Operator, id, until).await?;
    if common.json {
        say(&json!({ "id": id, "name": record.name, "key": text }).to_string());
    } else {
        say(&format!("{text}\n\nThe old value works on for {overlap}."));
    }
    Ok(ExitCode::SUCCESS)
}

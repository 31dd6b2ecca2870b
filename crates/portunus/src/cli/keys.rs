//! `portunus keys`: make, list, change, revoke and rotate API keys. A running gateway learns within a
//! second.

use clap::{ArgGroup, Args, Subcommand};
use ledger::{Clock as _, Period, SystemClock};
use serde_json::{Value, json};
use std::process::ExitCode;
use std::sync::Arc;
use store::{AccountTerms, BudgetTerms, KeyRecord, Limits, Owner, Store};

use super::{Common, say};
use admin::NewKey;

use crate::app::{open_store, owner_of, pepper};
use access::keys::{KeyRing, NewToken, hash, state, told, told_budget};
use access::limits::Shared;
use config::Net;
use config::duration;

#[derive(Debug, Subcommand)]
pub(super) enum Keys {
    /// Make a key; its value is shown once
    #[command(group(ArgGroup::new("money").required(true).args(["unlimited", "cap"])))]
    Create {
        /// What it is for
        #[arg(long)]
        name: String,
        /// Without a spending cap
        #[arg(long)]
        unlimited: bool,
        /// The most it may spend, in USD
        #[arg(long, value_name = "USD")]
        cap: Option<canon::Money>,
        /// Only these models
        #[arg(long, value_delimiter = ',', value_name = "A,B")]
        models: Vec<String>,
        /// How long it lives, such as 30d
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
    let period = Period::by_word(period).ok_or_else(wrong)?;
    if most.is_negative() {
        return Err("must not be below zero".to_owned());
    }
    Ok(Budget(Some(BudgetTerms { most, period })))
}

impl PaceTerms {
    /// Changes what is named.
    fn apply(self, limits: &mut Limits) {
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

impl Terms {
    /// Changes what is named.
    fn apply(self, record: &mut KeyRecord) {
        let Self { pace, ips, budget } = self;
        pace.apply(&mut record.limits);
        if !ips.is_empty() {
            record.ips = ips.into_iter().filter(|text| text != NONE).collect();
        }
        if let Some(Budget(budget)) = budget {
            record.budget = budget;
        }
    }
}

pub(super) async fn run(common: &Common, command: Keys) -> anyhow::Result<ExitCode> {
    let config = common.load()?;
    let store = open_store(&config).await?;
    let pepper = pepper(&config, &store).await?;
    let outcome = match command {
        Keys::Create { name, unlimited: _, cap, models, expires, account, terms } => {
            let key =
                NewKey { name, cap, models, expires: expires.as_deref().map(later).transpose()? };
            create(common, &store, &pepper, key, account.as_deref(), terms).await
        }
        Keys::Set { id, name, unlimited, cap, models, expires, terms } => {
            let Some(mut record) = store.key(&id).await? else {
                anyhow::bail!("there is no key `{id}` to change; see portunus keys list");
            };
            record.name = name.unwrap_or(record.name);
            record.cap = if unlimited { None } else { cap.or(record.cap) };
            if !models.is_empty() {
                record.models = models.into_iter().filter(|model| model != "all").collect();
            }
            match expires.as_deref() {
                None => {}
                Some("never") => record.expires = None,
                Some(time) => record.expires = Some(later(time)?),
            }
            terms.apply(&mut record);
            set(common, &store, record).await
        }
        Keys::Account { name, unlimited, cap, budget, pace } => {
            let change = Change { unlimited, cap, budget, pace };
            account(common, &store, name.as_deref(), &change).await
        }
        Keys::List => list(common, &store).await,
        Keys::Revoke { id } => revoke(common, &store, &id).await,
        Keys::Rotate { id, overlap } => rotate(common, &store, &pepper, &id, &overlap).await,
    };
    store.close().await;
    if let Some(valkey) = config.valkey.as_ref().filter(|_| outcome.is_ok()) {
        // Running gateways hear of it at once instead of within a second.
        Shared::open(valkey, "cli".to_owned(), Arc::new(SystemClock))?.tell_news().await;
    }
    outcome
}

async fn set(common: &Common, store: &Store, mut record: KeyRecord) -> anyhow::Result<ExitCode> {
    not_negative(record.cap)?;
    record.changed = SystemClock.now();
    store.update_key(&record).await?;
    if common.json {
        say(&told(&record, SystemClock.now()).to_string());
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
    limits: Limits,
    terms: AccountTerms,
    spent: canon::Money,
) {
    let Limits { rpm, tpm, concurrency } = limits;
    let AccountTerms { cap, budget } = terms;
    if common.json {
        let told = json!({
            "account": name,
            "cap_usd": cap.map(|cap| cap.to_string()),
            "spent_usd": spent.to_string(),
            "budget": budget.map(told_budget),
            "limits": { "rpm": rpm, "tpm": tpm, "concurrency": concurrency },
        });
        return say(&told.to_string());
    }
    let told = |limit: Option<u32>| limit.map_or(NONE.to_owned(), |limit| limit.to_string());
    let cap = cap.map_or_else(|| "without a cap".to_owned(), |cap| format!("of {cap} USD"));
    let budget = budget.map_or_else(String::new, |BudgetTerms { most, period }| {
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

async fn find_account(store: &Store, name: &str) -> anyhow::Result<Owner> {
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
    store: &Store,
    pepper: &str,
    key: NewKey,
    account: Option<&str>,
    terms: Terms,
) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(!key.name.trim().is_empty(), "--name must not be empty");
    not_negative(key.cap)?;
    let now = SystemClock.now();
    let owner = owner_of(store, now).await?;
    let ring = KeyRing::load(store.clone(), Arc::new(SystemClock), pepper).await?;
    let account = match account {
        Some(name) => find_account(store, name).await?,
        None => Owner::Person(owner),
    };
    let (mut record, text) = key.make(account.id(), &ring, now)?;
    terms.apply(&mut record);
    store.add_key(&record).await?;
    if common.json {
        let mut shown = told(&record, SystemClock.now());
        if let Some(shown) = shown.as_object_mut() {
            shown.insert("key".to_owned(), Value::from(text));
        }
        say(&shown.to_string());
    } else {
        say(&format!("{text}\n\nThis is the only time the key `{}` is shown.", record.name));
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(common: &Common, store: &Store) -> anyhow::Result<ExitCode> {
    let keys = store.keys().await?;
    if common.json {
        for key in &keys {
            say(&told(key, SystemClock.now()).to_string());
        }
        return Ok(ExitCode::SUCCESS);
    }
    if keys.is_empty() {
        say("There are no keys. Make one with: portunus keys create --name NAME --unlimited");
    } else {
        say(&format!("{:12}  {:8}  {:>14}  {:>14}  name", "id", "state", "spent $", "cap $"));
    }
    for key in &keys {
        say(&format!(
            "{:12}  {:8}  {:>14}  {:>14}  {}",
            key.id,
            state(key, SystemClock.now()),
            key.spent,
            key.cap.map_or_else(|| "unlimited".to_owned(), |cap| cap.to_string()),
            key.name
        ));
    }
    Ok(ExitCode::SUCCESS)
}

async fn revoke(common: &Common, store: &Store, id: &str) -> anyhow::Result<ExitCode> {
    if !store.revoke_key(id, SystemClock.now()).await? {
        anyhow::bail!("there is no key `{id}` to revoke; see portunus keys list");
    }
    if common.json {
        say(&json!({ "id": id, "revoked": true }).to_string());
    } else {
        say(&format!("The key {id} is revoked; running gateways refuse it within seconds."));
    }
    Ok(ExitCode::SUCCESS)
}

async fn rotate(
    common: &Common,
    store: &Store,
    pepper: &str,
    id: &str,
    overlap: &str,
) -> anyhow::Result<ExitCode> {
    let until = later(overlap)?;
    let ring = KeyRing::load(store.clone(), Arc::new(SystemClock), pepper).await?;
    let token = NewToken::with_id(id.to_owned())?;
    let new = hash(ring.pepper(), &token.text);
    if !store.rotate_key(id, &new, until, SystemClock.now()).await? {
        anyhow::bail!("there is no key `{id}` to rotate; see portunus keys list");
    }
    if common.json {
        let record = store.key(id).await?;
        let name = record.map(|record| record.name);
        say(&json!({ "id": id, "name": name, "key": token.text }).to_string());
    } else {
        say(&format!("{}\n\nThe old value works on for {overlap}.", token.text));
    }
    Ok(ExitCode::SUCCESS)
}

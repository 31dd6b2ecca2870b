//! `portunus keys`: make, list, revoke and rotate API keys. A running gateway learns within a second.

use clap::{ArgGroup, Subcommand};
use ledger::{Clock as _, SystemClock};
use serde_json::{Value, json};
use std::process::ExitCode;
use std::sync::Arc;
use store::{KeyRecord, Store};

use super::{Common, say};
use crate::app::{NewKey, open_store, owner_account, pepper};
use crate::config::duration;
use crate::keys::{KeyRing, NewToken, hash};

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

pub(super) async fn run(common: &Common, command: Keys) -> anyhow::Result<ExitCode> {
    let config = common.load()?;
    let store = open_store(&config).await?;
    let pepper = pepper(&config, &store).await?;
    let outcome = match command {
        Keys::Create { name, unlimited: _, cap, models, expires } => {
            let key =
                NewKey { name, cap, models, expires: expires.as_deref().map(later).transpose()? };
            create(common, &store, &pepper, key).await
        }
        Keys::List => list(common, &store).await,
        Keys::Revoke { id } => revoke(common, &store, &id).await,
        Keys::Rotate { id, overlap } => rotate(common, &store, &pepper, &id, &overlap).await,
    };
    store.close().await;
    outcome
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
) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(!key.name.trim().is_empty(), "--name must not be empty");
    if key.cap.is_some_and(canon::Money::is_negative) {
        anyhow::bail!("--cap must not be below zero");
    }
    let now = SystemClock.now();
    let owner = match store.accounts().await?.into_iter().find(|a| a.role == store::Role::Owner) {
        Some(owner) => owner,
        None => {
            let owner = owner_account(now);
            store.add_account(&owner).await?;
            store.put_setting(crate::app::SETUP, &crate::keys::word(32)?).await?;
            owner
        }
    };
    let ring = KeyRing::load(store.clone(), Arc::new(SystemClock), pepper).await?;
    let (record, text) = key.make(&owner.id, &ring, now)?;
    store.add_key(&record).await?;
    if common.json {
        let mut shown = show(&record);
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
            say(&show(key).to_string());
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
            state(key),
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

fn state(key: &KeyRecord) -> &'static str {
    if key.revoked.is_some() {
        "revoked"
    } else if key.expires.is_some_and(|expires| expires <= SystemClock.now()) {
        "expired"
    } else {
        "live"
    }
}

fn show(key: &KeyRecord) -> Value {
    let time = |micros: i64| jiff::Timestamp::from_microsecond(micros).map(|t| t.to_string()).ok();
    json!({
        "id": key.id,
        "name": key.name,
        "state": state(key),
        "cap_usd": key.cap.map(|cap| cap.to_string()),
        "spent_usd": key.spent.to_string(),
        "models": key.models,
        "expires_at": key.expires.and_then(time),
        "created_at": time(key.created),
        "last_used_at": key.last_used.and_then(time),
    })
}

//! `portunus scim`: tokens with which identity providers manage people. It works beside a running gateway.

use admin::{AccountAdmin, Actor, IssuedScimToken};
use canon::Micros;
use clap::Subcommand;
use config::{Config, parse_duration};
use serde_json::{Value, json};
use std::process::ExitCode;
use std::time::Duration;
use store::ScimToken;

use super::common::{CommonArgs, close_accounts, open_accounts, without_field};
use super::output::{print_line, print_secret};

#[derive(Debug, Subcommand)]
pub(super) enum ScimCommand {
    /// Create, list and revoke tokens of identity providers
    #[command(subcommand)]
    Token(TokenCommand),
}

#[derive(Debug, Subcommand)]
pub(super) enum TokenCommand {
    /// Create a token; its value is shown once. A provider has at most two at a time
    Create {
        /// Name of the identity provider in the configuration
        #[arg(long, value_name = "NAME")]
        identity: String,
        /// Lifetime, such as 365d; the default is unlimited
        #[arg(long, value_name = "TIME", value_parser = parse_duration)]
        expires: Option<Duration>,
    },
    /// List all tokens, without their values
    List,
    /// Revoke a token at once
    Revoke {
        /// Id of the token
        id: String,
    },
}

pub(super) async fn run(common: &CommonArgs, command: ScimCommand) -> anyhow::Result<ExitCode> {
    let ScimCommand::Token(command) = command;
    let config = common.load()?;
    let accounts = open_accounts(&config).await?;
    let outcome = match command {
        TokenCommand::Create { identity, expires } => {
            create(common, &config, &accounts, &identity, expires).await
        }
        TokenCommand::List => list(common, &accounts).await,
        TokenCommand::Revoke { id } => revoke(common, &accounts, &id).await,
    };
    close_accounts(&config, &accounts, false).await?;
    outcome.map(|()| ExitCode::SUCCESS)
}

async fn create(
    common: &CommonArgs,
    config: &Config,
    accounts: &AccountAdmin,
    identity: &str,
    expires: Option<Duration>,
) -> anyhow::Result<()> {
    let provider = config.identity_providers.iter().find(|provider| provider.name == identity);
    let provider = provider.ok_or_else(|| {
        anyhow::anyhow!("there is no `[identity.{identity}]` in the configuration")
    })?;
    let expires = expires.map(|life| accounts.now() + Micros::from(life));
    let created = accounts.create_scim_token(&Actor::Operator, provider, expires).await;
    let IssuedScimToken { token, secret } = created.map_err(without_field)?;
    let base = format!("{}/scim/v2", config.public_url);
    let id = &token.id;
    let remedy = format!(
        "the token {id} exists and nobody has it: revoke it with `portunus scim token revoke {id}`"
    );
    if common.json {
        let mut object = token_json(&token);
        if let Value::Object(fields) = &mut object {
            fields.insert("token".to_owned(), Value::from(secret));
            fields.insert("base_url".to_owned(), Value::from(base));
        }
        print_secret(&object.to_string(), &remedy);
    } else {
        let line = format!(
            "{secret}\n\nThis token is shown once. Give it to {identity} together with the address {base}."
        );
        print_secret(&line, &remedy);
    }
    Ok(())
}

async fn list(common: &CommonArgs, accounts: &AccountAdmin) -> anyhow::Result<()> {
    let tokens = accounts.scim_tokens(&Actor::Operator).await?;
    if !common.json {
        print_line(&format!("{:12}  {:16}  {:27}  {}", "id", "identity", "expires", "last used"));
    }
    for token in &tokens {
        if common.json {
            print_line(&token_json(token).to_string());
            continue;
        }
        print_line(&format!(
            "{:12}  {:16}  {:27}  {}",
            token.id,
            token.identity,
            token.expires.and_then(time).unwrap_or_else(|| "never".to_owned()),
            token.last_used.and_then(time).unwrap_or_else(|| "never".to_owned()),
        ));
    }
    Ok(())
}

async fn revoke(common: &CommonArgs, accounts: &AccountAdmin, id: &str) -> anyhow::Result<()> {
    accounts.revoke_scim_token(&Actor::Operator, id).await.map_err(without_field)?;
    if common.json {
        print_line(&json!({ "id": id, "revoked": true }).to_string());
    } else {
        print_line(&format!("The token {id} is revoked."));
    }
    Ok(())
}

fn time(at: Micros) -> Option<String> {
    jiff::Timestamp::from_microsecond(at.get()).map(|time| time.to_string()).ok()
}

fn token_json(token: &ScimToken) -> Value {
    json!({
        "id": token.id,
        "identity": token.identity,
        "created_by": token.created_by,
        "created_at": time(token.created),
        "expires_at": token.expires.and_then(time),
        "last_used_at": token.last_used.and_then(time),
    })
}

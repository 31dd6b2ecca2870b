//! `portunus users`: create, list and lock accounts, and issue links. It works beside a running
//! gateway, which reads accounts with every page.

use clap::Subcommand;
use ledger::{Clock as _, SystemClock};
use serde_json::{Value, json};
use std::io::Read as _;
use std::process::ExitCode;
use store::{Account, AccountRole, Store};

use super::common::{CommonArgs, print_line};
use crate::app::{open_store, owner_or_create};
use config::Config;

#[derive(Debug, Subcommand)]
pub(super) enum UsersCommand {
    /// Create an account; without a password, a link to choose one is printed
    Create {
        /// Username to sign in with
        name: String,
        /// E-mail address to sign in with and to write to
        #[arg(long, value_name = "ADDRESS")]
        email: Option<String>,
        /// Role: owner, admin, member or viewer
        #[arg(long, default_value = "member", value_parser = parse_role)]
        role: AccountRole,
        /// Read the password from standard input
        #[arg(long)]
        password_stdin: bool,
    },
    /// Print a link with which a person creates an account
    Invite {
        /// E-mail address of the account
        #[arg(long, value_name = "ADDRESS")]
        email: Option<String>,
        /// Role: owner, admin, member or viewer
        #[arg(long, default_value = "member", value_parser = parse_role)]
        role: AccountRole,
    },
    /// List all accounts
    List,
    /// Print a link with which an account chooses a new password; it works once, for 30 minutes
    ResetPassword {
        /// Username or e-mail address of the account
        name: String,
    },
    /// Lock an account and end its sessions
    Disable {
        /// Username or e-mail address of the account
        name: String,
        /// Revoke its keys for good; without this, they are suspended
        #[arg(long)]
        keys: bool,
    },
    /// Unlock an account
    Enable {
        /// Username or e-mail address of the account
        name: String,
    },
}

fn parse_role(word: &str) -> Result<AccountRole, String> {
    AccountRole::by_word(word).ok_or_else(|| "write owner, admin, member or viewer".to_owned())
}

pub(super) async fn run(common: &CommonArgs, command: UsersCommand) -> anyhow::Result<ExitCode> {
    let config = common.load()?;
    let store = open_store(&config).await?;
    let users = UserAdmin { common, config: &config, store: &store };
    let outcome = match command {
        UsersCommand::Create { name, email, role, password_stdin } => {
            users.create(&name, email, role, password_stdin).await
        }
        UsersCommand::Invite { email, role } => users.invite(email.as_deref(), role).await,
        UsersCommand::List => users.list().await,
        UsersCommand::ResetPassword { name } => users.reset_password(&name).await,
        UsersCommand::Disable { name, keys } => users.disable(&name, keys).await,
        UsersCommand::Enable { name } => users.enable(&name).await,
    };
    store.close().await;
    outcome.map(|()| ExitCode::SUCCESS)
}

struct UserAdmin<'a> {
    common: &'a CommonArgs,
    config: &'a Config,
    store: &'a Store,
}

impl UserAdmin<'_> {
    /// Prints a line for people, or an object with `--json`.
    fn print(&self, line: &str, object: &Value) {
        if self.common.json { print_line(&object.to_string()) } else { print_line(line) }
    }

    async fn write_audit(&self, action: &str, subject: &str, detail: &str) -> anyhow::Result<()> {
        let now = SystemClock.now();
        Ok(self.store.add_audit(now, "command line", action, subject, detail).await?)
    }

    async fn find(&self, name: &str) -> anyhow::Result<Account> {
        let found = self.store.account_by_login(name).await?;
        found
            .ok_or_else(|| anyhow::anyhow!("there is no account `{name}`; see portunus users list"))
    }

    fn link(&self, path: &str) -> String {
        format!("{}{path}", self.config.public_url)
    }

    async fn create(
        &self,
        name: &str,
        email: Option<String>,
        role: AccountRole,
        with_password: bool,
    ) -> anyhow::Result<()> {
        if let Some(why) = admin::account_names_error(name, email.as_deref()) {
            anyhow::bail!(why);
        }
        let hash = if with_password {
            let names = [name, email.as_deref().unwrap_or_default()];
            let hash = admin::hash_password(&read_password()?, &names);
            Some(hash.map_err(|why| anyhow::anyhow!("the password: {why}"))?)
        } else {
            None
        };
        let now = SystemClock.now();
        // The owner must exist first: the first start creates it only while there is no account.
        owner_or_create(self.store, now).await?;
        let account = Account {
            id: uuid::Uuid::now_v7().to_string(),
            username: name.to_owned(),
            email,
            role,
            password_hash: hash,
            disabled: false,
            created: now,
            changed: now,
        };
        self.store.add_account(&account).await?;
        self.write_audit("account.create", &account.id, role.word()).await?;
        let mut object = account_json(&account);
        let mut line = format!("The account {name} is created.");
        if account.password_hash.is_none() {
            let path = admin::reset_link(self.store, &account, now).await;
            let link = self.link(&path.map_err(|why| anyhow::anyhow!(why))?);
            line = format!(
                "{link}\n\n{line} The link lets its owner choose a password, once, \
                            within half an hour."
            );
            if let Some(object) = object.as_object_mut() {
                object.insert("link".to_owned(), Value::from(link));
            }
        }
        self.print(&line, &object);
        Ok(())
    }

    async fn invite(&self, email: Option<&str>, role: AccountRole) -> anyhow::Result<()> {
        if let Some(why) = admin::account_names_error("somebody", email) {
            anyhow::bail!(why);
        }
        let path = admin::invite_link(self.store, role, email, SystemClock.now()).await;
        let link = self.link(&path.map_err(|why| anyhow::anyhow!(why))?);
        self.write_audit("account.invite", email.unwrap_or_default(), role.word()).await?;
        let line = format!("{link}\n\nThe link makes one account, within a week.");
        self.print(&line, &json!({ "link": link, "role": role.word(), "email": email }));
        Ok(())
    }

    async fn list(&self) -> anyhow::Result<()> {
        let accounts = self.store.accounts().await?;
        if !self.common.json {
            print_line(&format!("{:20}  {:8}  {:11}  {}", "name", "role", "state", "e-mail"));
        }
        for account in &accounts {
            let line = format!(
                "{:20}  {:8}  {:11}  {}",
                account.username,
                account.role.word(),
                account_state(account),
                account.email.as_deref().unwrap_or("-")
            );
            self.print(&line, &account_json(account));
        }
        Ok(())
    }

    async fn reset_password(&self, name: &str) -> anyhow::Result<()> {
        let account = self.find(name).await?;
        if account.disabled {
            anyhow::bail!("the account `{name}` is locked; unlock it with: users enable");
        }
        let path = admin::reset_link(self.store, &account, SystemClock.now()).await;
        let link = self.link(&path.map_err(|why| anyhow::anyhow!(why))?);
        self.write_audit("account.reset_link", &account.id, "").await?;
        let line = format!(
            "{link}\n\nThe link lets {} choose another password, once, within half an hour.",
            account.username
        );
        self.print(&line, &json!({ "id": account.id, "name": account.username, "link": link }));
        Ok(())
    }

    async fn disable(&self, name: &str, keys: bool) -> anyhow::Result<()> {
        let account = self.find(name).await?;
        let others = self.store.accounts().await?;
        let owns = |other: &Account| {
            other.role == AccountRole::Owner && !other.disabled && other.id != account.id
        };
        if account.role == AccountRole::Owner && !others.iter().any(owns) {
            anyhow::bail!("`{name}` is the only owner; create another one first");
        }
        let now = SystemClock.now();
        self.store.set_disabled(&account.id, true, now).await?;
        let mut revoked = 0;
        if keys {
            for key in self.store.keys_of(&account.id).await? {
                revoked += u32::from(self.store.revoke_key(&key.id, now).await?);
            }
        }
        self.write_audit("account.disable", &account.id, "").await?;
        // The person who created a key may still have its value.
        let mut shared = self.store.keys_created_by(&account.id).await?;
        shared.retain(|key| key.account_id != account.id && key.revoked.is_none());
        let shared: Vec<&str> = shared.iter().map(|key| key.id.as_str()).collect();
        let mut line = format!(
            "The account {} is locked. {}",
            account.username,
            if keys {
                format!("{revoked} of its keys are revoked.")
            } else {
                "Its keys are suspended meanwhile; --keys revokes them for good.".to_owned()
            }
        );
        if !shared.is_empty() {
            let ids = shared.join(", ");
            line = format!(
                "{line} Keys it created for others, such as its teams, stay: {ids}; end one with: \
                 keys revoke ID"
            );
        }
        let object = json!({
            "id": account.id, "disabled": true, "keys_revoked": revoked, "keys_made_for_others": shared,
        });
        self.print(&line, &object);
        Ok(())
    }

    async fn enable(&self, name: &str) -> anyhow::Result<()> {
        let account = self.find(name).await?;
        self.store.set_disabled(&account.id, false, SystemClock.now()).await?;
        self.write_audit("account.enable", &account.id, "").await?;
        let line = format!("The account {} may sign in again.", account.username);
        self.print(&line, &json!({ "id": account.id, "disabled": false }));
        Ok(())
    }
}

/// Reads the password from standard input, because arguments are visible to every user of the
/// machine.
fn read_password() -> anyhow::Result<String> {
    let mut text = String::new();
    std::io::stdin().take(4_096).read_to_string(&mut text)?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

fn account_state(account: &Account) -> &'static str {
    if account.disabled {
        "locked"
    } else if account.password_hash.is_none() {
        "no password"
    } else {
        "active"
    }
}

fn account_json(account: &Account) -> Value {
    let time = |micros: i64| jiff::Timestamp::from_microsecond(micros).map(|t| t.to_string()).ok();
    json!({
        "id": account.id,
        "name": account.username,
        "email": account.email,
        "role": account.role.word(),
        "state": account_state(account),
        "created_at": time(account.created),
    })
}

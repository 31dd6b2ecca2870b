//! `portunus users`: create, list and lock accounts, and issue links. It works beside a running
//! gateway, which reads accounts with every page.

use admin::{
    AccountAdmin, AccountChange, AccountDraft, Actor, AdminError, CreatedAccount, InviteDraft,
    NewPassword, ReadVersion,
};
use canon::Micros;
use clap::Subcommand;
use config::Config;
use serde_json::{Value, json};
use std::io::Read as _;
use std::process::ExitCode;
use store::{Account, AccountRole};

use super::common::{CommonArgs, close_accounts, open_accounts, without_field};
use super::output::{print_line, print_secret};

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
    let accounts = open_accounts(&config).await?;
    let users = UserAdmin { common, config: &config, accounts: &accounts };
    let outcome = match command {
        UsersCommand::Create { name, email, role, password_stdin } => {
            users.create(&name, email, role, password_stdin).await
        }
        UsersCommand::Invite { email, role } => users.invite(email, role).await,
        UsersCommand::List => users.list().await,
        UsersCommand::ResetPassword { name } => users.reset_password(&name).await,
        UsersCommand::Disable { name, keys } => users.disable(&name, keys).await,
        UsersCommand::Enable { name } => users.enable(&name).await,
    };
    close_accounts(&config, &accounts, outcome.is_ok()).await?;
    outcome.map(|()| ExitCode::SUCCESS)
}

struct UserAdmin<'a> {
    common: &'a CommonArgs,
    config: &'a Config,
    accounts: &'a AccountAdmin,
}

impl UserAdmin<'_> {
    /// Prints a line for people, or an object with `--json`.
    fn print(&self, line: &str, object: &Value) {
        if self.common.json { print_line(&object.to_string()) } else { print_line(line) }
    }

    /// Prints what is shown once, see [`print_secret`].
    fn print_once(&self, line: &str, object: &Value, remedy: &str) {
        if self.common.json {
            print_secret(&object.to_string(), remedy);
        } else {
            print_secret(line, remedy);
        }
    }

    async fn find(&self, name: &str) -> anyhow::Result<Account> {
        let found = self.accounts.store.account_by_login(name).await?;
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
        let password = if with_password {
            let names = [name, email.as_deref().unwrap_or_default()];
            let password = NewPassword::check(&read_password()?, &names);
            let password = password.map_err(|why| anyhow::anyhow!("the password: {why}"))?;
            Some(password.hash().map_err(|error| anyhow::anyhow!("the password: {error}"))?)
        } else {
            None
        };
        // The owner must exist first: the first start creates it only while there is no account.
        self.accounts.owner_or_create(&Actor::Operator).await?;
        let draft = AccountDraft { username: name.to_owned(), email, role, password };
        let created = self.accounts.create_account(&Actor::Operator, draft).await;
        let CreatedAccount { account, link } = created.map_err(without_field)?;
        let mut object = account_json(&account);
        let mut line = format!("The account {name} is created.");
        if let Some(path) = link {
            let link = self.link(&path);
            line = format!(
                "{link}\n\n{line} The link lets its owner choose a password, once, \
                            within half an hour."
            );
            if let Some(object) = object.as_object_mut() {
                object.insert("link".to_owned(), Value::from(link));
            }
        }
        let remedy = format!(
            "the account {name} exists: make a link for it with `portunus users reset-password {name}`"
        );
        self.print_once(&line, &object, &remedy);
        Ok(())
    }

    async fn invite(&self, email: Option<String>, role: AccountRole) -> anyhow::Result<()> {
        let draft = InviteDraft { email: email.clone(), role, team: None };
        let path = self.accounts.invite(&Actor::Operator, draft).await;
        let link = self.link(&path.map_err(without_field)?);
        let line = format!("{link}\n\nThe link makes one account, within a week.");
        let object = json!({ "link": link, "role": role.word(), "email": email });
        self.print_once(
            &line,
            &object,
            "the invitation exists and nobody has its link: make another",
        );
        Ok(())
    }

    async fn list(&self) -> anyhow::Result<()> {
        let accounts = self.accounts.users(&Actor::Operator).await?;
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
        let path = self.accounts.issue_password_link(&Actor::Operator, &account.id).await;
        let link = self.link(&path.map_err(without_field)?);
        let line = format!(
            "{link}\n\nThe link lets {} choose another password, once, within half an hour.",
            account.username
        );
        let object = json!({ "id": account.id, "name": account.username, "link": link });
        self.print_once(&line, &object, "the link exists and nobody has it: make another");
        Ok(())
    }

    async fn disable(&self, name: &str, keys: bool) -> anyhow::Result<()> {
        let account = self.find(name).await?;
        self.lock(&account, name, true).await?;
        let store = &self.accounts.store;
        let mut revoked = 0;
        if keys {
            let mut own = store.keys_of(&account.id).await?;
            // A program signed in with the account, and is its alone, whoever pays.
            let signed_in = store.keys_created_by(&account.id).await?.into_iter();
            own.extend(
                signed_in.filter(|key| key.surface.is_some() && key.account_id != account.id),
            );
            // Keys of a locked account are read as revoked, so that does not tell which are so for good.
            for key in &own {
                let read = ReadVersion::default();
                self.accounts.revoke_key(&Actor::Operator, &key.id, read).await?;
                revoked += 1;
            }
        }
        // The person who created a key may still have its value.
        let mut shared = store.keys_created_by(&account.id).await?;
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

    /// Locks or unlocks an account. The operator may do that with all but the only owner.
    async fn lock(&self, account: &Account, name: &str, disabled: bool) -> anyhow::Result<()> {
        let change = AccountChange { disabled: Some(disabled), ..AccountChange::default() };
        let read = ReadVersion::default();
        let changed = self.accounts.change_account(&Actor::Operator, &account.id, read, change);
        match changed.await {
            Ok(_) => Ok(()),
            Err(AdminError::Forbidden(_)) => {
                anyhow::bail!("`{name}` is the only owner; create another one first")
            }
            Err(error) => Err(without_field(error)),
        }
    }

    async fn enable(&self, name: &str) -> anyhow::Result<()> {
        let account = self.find(name).await?;
        self.lock(&account, name, false).await?;
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
    let time = |at: Micros| jiff::Timestamp::from_microsecond(at.get()).map(|t| t.to_string()).ok();
    json!({
        "id": account.id,
        "name": account.username,
        "email": account.email,
        "role": account.role.word(),
        "state": account_state(account),
        "created_at": time(account.created),
    })
}

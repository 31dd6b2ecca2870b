//! Accounts of people: create, change the role, lock, issue a link to choose a password, end
//! sessions.

use serde_json::{Value, json};
use store::{
    Account, AccountRole, AccountTerms, AuditedChange, KeyRecord, LinkPurpose, PersonChange,
};

use crate::account_admin::AccountAdmin;
use crate::actor::Actor;
use crate::error::AdminError;
use crate::names;
use crate::one_time_link::{LINK_LIFETIMES, LinkData, link_path};
use crate::password::HashedPassword;
use crate::rights::{require_may_administrate, require_may_grant};
use crate::time_text::rfc3339;
use crate::version::ReadVersion;

/// An account to be created by an administrator.
pub struct AccountDraft {
    /// Name to sign in with.
    pub username: String,
    /// Address to sign in with and to write to.
    pub email: Option<String>,
    /// Rights in the gateway.
    pub role: AccountRole,
    /// Without a password, the account gets a link to choose one.
    pub password: Option<HashedPassword>,
}

/// A change of an account by an administrator. A field that is `None` stays as it is.
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "the fields are those of `Account`")]
pub struct AccountChange {
    pub role: Option<AccountRole>,
    pub disabled: Option<bool>,
}

/// A new account.
#[derive(Debug)]
pub struct CreatedAccount {
    /// The account as it is stored.
    pub account: Account,
    /// Path of the link with which the account chooses a password; `None` if it has one.
    pub link: Option<String>,
}

/// Describes an account for administrators. Its version is computed from this object.
pub fn user_json(account: &Account) -> Value {
    json!({
        "id": account.id,
        "name": account.username,
        "email": account.email,
        "role": account.role.word(),
        "disabled": account.disabled,
        "has_password": account.password_hash.is_some(),
        "created_at": rfc3339(account.created),
    })
}

impl AccountAdmin {
    /// Returns the accounts of all people, for administrators.
    pub async fn users(&self, actor: &Actor) -> Result<Vec<Account>, AdminError> {
        actor.require_admin()?;
        Ok(self.store.accounts().await?)
    }

    /// Returns the account of a person, for administrators.
    pub async fn user(&self, actor: &Actor, id: &str) -> Result<Account, AdminError> {
        actor.require_admin()?;
        self.store.account(id).await?.ok_or(AdminError::NotFound("user"))
    }

    /// Returns an account that the actor may administrate.
    pub(crate) async fn user_for_change(
        &self,
        actor: &Actor,
        id: &str,
    ) -> Result<Account, AdminError> {
        let account = self.user(actor, id).await?;
        require_may_administrate(actor, &account)?;
        Ok(account)
    }

    /// Creates an account for another person.
    pub async fn create_account(
        &self,
        actor: &Actor,
        draft: AccountDraft,
    ) -> Result<CreatedAccount, AdminError> {
        let AccountDraft { username, email, role, password } = draft;
        require_may_grant(actor, role)?;
        if let Some(why) = names::account_names_error(&username, email.as_deref()) {
            return Err(AdminError::invalid("name", why));
        }
        let account = self.new_account(username, email, role, password.as_ref());
        let mut change = self.store.begin_change().await?;
        change.add_account_with_terms(&account, &AccountTerms::default()).await?;
        let link = match password {
            Some(_) => None,
            None => Some(self.add_password_link(&mut change, &account).await?),
        };
        let note = ["account.create", &account.id, role.word()];
        self.commit(change, actor, &[note]).await?;
        Ok(CreatedAccount { account, link })
    }

    /// Changes the role of an account, locks it or unlocks it. Locking ends its sessions and stops
    /// its keys. The last owner stays one and stays unlocked.
    pub async fn change_account(
        &self,
        actor: &Actor,
        id: &str,
        read: ReadVersion<'_>,
        change: AccountChange,
    ) -> Result<Account, AdminError> {
        let mut store_change = self.store.begin_change().await?;
        let account = self.user_for_change(actor, id).await?;
        read.check(&user_json(&account))?;
        let role = change.role.filter(|role| *role != account.role);
        let disabled = change.disabled.filter(|disabled| *disabled != account.disabled);
        if let Some(role) = role {
            require_may_grant(actor, role)?;
        }
        let mut notes = Vec::new();
        if let Some(role) = role {
            notes.push(["account.role", &account.id, role.word()]);
        }
        if let Some(disabled) = disabled {
            let action = if disabled { "account.disable" } else { "account.enable" };
            notes.push([action, &account.id, ""]);
        }
        if !notes.is_empty() {
            match store_change.change_person(&account.id, role, disabled, self.now()).await? {
                PersonChange::Done => self.commit(store_change, actor, &notes).await?,
                PersonChange::Missing => return Err(AdminError::NotFound("user")),
                PersonChange::LastOwner => {
                    return Err(AdminError::forbidden(
                        "this is the only owner; create another one first",
                    ));
                }
            }
        }
        if disabled.is_some() {
            self.reload_keys_of(&account.id).await?;
        }
        self.store.account(&account.id).await?.ok_or(AdminError::NotFound("user"))
    }

    /// Creates a link with which an account chooses a new password, and returns its path.
    pub async fn issue_password_link(&self, actor: &Actor, id: &str) -> Result<String, AdminError> {
        let account = self.user_for_change(actor, id).await?;
        // A key that signed in as its own account or as an owner would outlive its end.
        let own = |key: &KeyRecord| key.account_id == account.id;
        if actor.key().is_some_and(|key| own(key) || account.role == AccountRole::Owner) {
            return Err(AdminError::forbidden(
                "a key cannot issue a password link for its own account or for an owner; use the \
                 console or `portunus users reset`",
            ));
        }
        if account.disabled {
            return Err(AdminError::invalid("", "the account is locked"));
        }
        let mut change = self.store.begin_change().await?;
        let path = self.add_password_link(&mut change, &account).await?;
        self.commit(change, actor, &[["account.reset_link", &account.id, ""]]).await?;
        Ok(path)
    }

    /// Adds a link to choose a password, and returns its path. The caller hands it to the account
    /// alone.
    async fn add_password_link(
        &self,
        change: &mut AuditedChange,
        account: &Account,
    ) -> Result<String, AdminError> {
        let (id, data) = (Some(account.id.as_str()), LinkData::default());
        let (link, token) =
            self.prepare_link(LinkPurpose::Reset, id, &data, LINK_LIFETIMES.reset)?;
        change.add_link(&link).await?;
        Ok(link_path(&token))
    }

    /// Ends every session of an account and returns their number. People end their own sessions,
    /// administrators those of accounts they may change.
    pub async fn end_sessions(&self, actor: &Actor, id: &str) -> Result<u64, AdminError> {
        let own = actor.require_person().is_ok_and(|account| account.id == id);
        if !own {
            self.user_for_change(actor, id).await?;
        }
        let mut change = self.store.begin_change().await?;
        let ended = change.drop_sessions_of(id).await?;
        self.commit(change, actor, &[["session.end_all", id, ""]]).await?;
        Ok(ended)
    }

    /// Returns an account that is not stored yet.
    pub(crate) fn new_account(
        &self,
        username: String,
        email: Option<String>,
        role: AccountRole,
        password: Option<&HashedPassword>,
    ) -> Account {
        let now = self.now();
        Account {
            id: uuid::Uuid::now_v7().to_string(),
            username,
            email,
            role,
            password_hash: password.map(|hash| hash.as_str().to_owned()),
            disabled: false,
            created: now,
            changed: now,
        }
    }

    /// Puts the keys of a locked or unlocked owner into this node's cache, so that the change
    /// applies at once. So are the keys of teams that the person signed in for.
    pub(crate) async fn reload_keys_of(&self, owner_id: &str) -> Result<(), AdminError> {
        for key in self.store.keys_of(owner_id).await? {
            self.key_changed(key);
        }
        let signed_in = self.store.keys_created_by(owner_id).await?;
        for key in signed_in.into_iter().filter(|key| key.surface.is_some()) {
            self.key_changed(key);
        }
        Ok(())
    }
}

//! A person's own account: password, e-mail address, linked identities, sign-in records.
//!
//! These functions take the account from the actor, so that nobody changes the ways into another
//! person's account. A link that was mailed to the account gives the same right.

use store::{Account, Link, LinkPurpose, StoreError};

use crate::account_admin::AccountAdmin;
use crate::actor::Actor;
use crate::error::AdminError;
use crate::factors::is_second_factor;
use crate::names;
use crate::one_time_link::{LINK_LIFETIMES, LinkData, link_data};
use crate::password::HashedPassword;
use crate::signup::IdentityClaims;

impl AccountAdmin {
    /// Changes the person's own password. All sessions of the account end.
    pub async fn change_own_password(
        &self,
        actor: &Actor,
        password: &HashedPassword,
    ) -> Result<(), AdminError> {
        let account = actor.require_person()?;
        let mut change = self.store.begin_change().await?;
        change.set_password(&account.id, Some(password.as_str()), self.now()).await?;
        Ok(self.commit(change, actor, &[["account.password", &account.id, ""]]).await?)
    }

    /// Creates a link to choose a password for an account that asked for it by mail, and returns
    /// its path. The caller sends it to the address of the account.
    pub async fn mail_password_link(&self, account: &Account) -> Result<String, AdminError> {
        if account.disabled || account.email.is_none() {
            return Err(AdminError::invalid("", "the account cannot receive a link"));
        }
        let (id, data) = (Some(account.id.as_str()), LinkData::default());
        let link = self.prepare_link(LinkPurpose::Reset, id, &data, LINK_LIFETIMES.reset)?;
        self.store_mailed_link(link).await
    }

    /// Sets the password of the account a link was issued for. The link is used up, and all
    /// sessions of the account end.
    pub async fn set_password_by_link(
        &self,
        link: &Link,
        password: &HashedPassword,
    ) -> Result<Account, AdminError> {
        let account = self.account_of_link(link, LinkPurpose::Reset).await?;
        let mut change = self.store.begin_change().await?;
        self.consume_link(&mut change, link).await?;
        change.set_password(&account.id, Some(password.as_str()), self.now()).await?;
        let actor = Actor::Person(account.clone());
        let note = ["account.password", &account.id, "by link"];
        self.commit(change, &actor, &[note]).await?;
        Ok(account)
    }

    /// Creates a link that confirms an address for the person's own account, and returns its path.
    /// Earlier links of the account expire. The caller sends it to that address.
    pub async fn mail_email_link(&self, actor: &Actor, email: &str) -> Result<String, AdminError> {
        let account = actor.require_person()?;
        if !names::is_email_address(email) {
            let message = "This does not look like an e-mail address.";
            return Err(AdminError::invalid("email", message));
        }
        self.store.drop_links_of(&account.id, LinkPurpose::Email).await?;
        let data = LinkData { email: Some(email.to_owned()), ..LinkData::default() };
        let id = Some(account.id.as_str());
        let link = self.prepare_link(LinkPurpose::Email, id, &data, LINK_LIFETIMES.email)?;
        self.store_mailed_link(link).await
    }

    /// Gives the account the address a link was sent to. Returns the account as it was before.
    pub async fn confirm_email(&self, link: &Link) -> Result<Account, AdminError> {
        let account = self.account_of_link(link, LinkPurpose::Email).await?;
        let email = link_data(link).email.ok_or(AdminError::NotFound("link"))?;
        let mut change = self.store.begin_change().await?;
        self.consume_link(&mut change, link).await?;
        let (id, username) = (&account.id, &account.username);
        match change.rename_account(id, username, Some(&email), self.now()).await {
            Ok(_) => {}
            // Another account confirmed the address in the meantime.
            Err(StoreError::Conflict(_)) => return Err(AdminError::NotFound("link")),
            Err(error) => return Err(error.into()),
        }
        let actor = Actor::Person(account.clone());
        self.commit(change, &actor, &[["account.email", id, ""]]).await?;
        Ok(account)
    }

    /// Returns the account a link was issued for. A locked account counts as missing.
    pub async fn account_of_link(
        &self,
        link: &Link,
        purpose: LinkPurpose,
    ) -> Result<Account, AdminError> {
        let id = link.account_id.as_deref().filter(|_| link.purpose == purpose);
        let account = self.store.account(id.ok_or(AdminError::NotFound("link"))?).await?;
        account.filter(|account| !account.disabled).ok_or(AdminError::NotFound("link"))
    }

    /// Links an identity to the person's own account. Linking it again changes nothing.
    pub async fn add_identity(
        &self,
        actor: &Actor,
        person: &IdentityClaims,
    ) -> Result<(), AdminError> {
        let account = actor.require_person()?;
        let mut change = self.store.begin_change().await?;
        match change.add_identity(&person.identity_of(&account.id, self.now())).await {
            Ok(()) => {
                let note = ["identity.add", &account.id, &person.issuer];
                Ok(self.commit(change, actor, &[note]).await?)
            }
            Err(StoreError::Conflict(_)) => {
                drop(change);
                let owner = self.store.account_by_identity(&person.issuer, &person.subject).await?;
                if owner.is_some_and(|owner| owner.id == account.id) {
                    return Ok(());
                }
                Err(AdminError::forbidden("This identity belongs to another account here."))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Removes the link between the person's own account and an identity. The last way to sign in
    /// stays.
    pub async fn remove_identity(
        &self,
        actor: &Actor,
        issuer: &str,
        subject: &str,
    ) -> Result<(), AdminError> {
        let account = actor.require_person()?;
        let mut change = self.store.begin_change().await?;
        let identities = self.store.identities_of(&account.id).await?;
        let factors = self.store.factors_of(&account.id).await?;
        let another_way = account.password_hash.is_some()
            || identities.len() > 1
            || factors.iter().any(|factor| is_second_factor(factor.kind));
        if !another_way {
            let message = "This is your only way to sign in. Set a password first.";
            return Err(AdminError::invalid("", message));
        }
        if change.drop_identity(&account.id, issuer, subject).await? {
            self.commit(change, actor, &[["identity.remove", &account.id, issuer]]).await?;
        }
        Ok(())
    }

    /// Records that a person signs in, with the method. The session starts afterwards.
    pub async fn record_sign_in(&self, account: &Account, method: &str) -> Result<(), AdminError> {
        let actor = Actor::Person(account.clone());
        Ok(self.record_event(&actor, ["session.start", &account.id, method]).await?)
    }

    /// Records that a signed-in person failed to prove the identity again, with the method.
    pub async fn record_refused_proof(
        &self,
        account: &Account,
        method: &str,
    ) -> Result<(), AdminError> {
        let actor = Actor::Person(account.clone());
        Ok(self.record_event(&actor, ["session.refuse", &account.id, method]).await?)
    }

    /// Records that a signed-in person proves the identity again, with the method. The proof counts
    /// afterwards.
    pub async fn record_proof(&self, account: &Account, method: &str) -> Result<(), AdminError> {
        let actor = Actor::Person(account.clone());
        Ok(self.record_event(&actor, ["session.prove", &account.id, method]).await?)
    }
}

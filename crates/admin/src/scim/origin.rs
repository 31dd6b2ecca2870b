//! Account of a person whom a provider creates: a new one, or that of the same person.

use config::GroupMapping;
use store::{Account, AccountRole, StoreError};

use super::drafts::ScimUserDraft;
use super::problem::{ScimErrorKind, ScimProblem};
use super::tokens::ScimClient;
use crate::account_admin::AccountAdmin;
use crate::error::AdminError;
use crate::names::plain_username;
use crate::rights::is_gateway_admin;
use crate::signup::{MAX_NAME_ATTEMPTS, numbered_username};

/// Account of a person whom a provider creates.
pub(super) enum ScimOrigin {
    /// There is none yet.
    New(Account),
    /// The person was here before, or signed in through the provider.
    Known {
        account: Account,
        /// Last state that the provider gave the person, if it deleted the person.
        was_active: Option<bool>,
    },
    /// There is none yet, and a locked account of another former person has its address.
    Successor { account: Account, former: Account },
}

impl AccountAdmin {
    /// Finds the account of a person whom the provider creates.
    ///
    /// The id of the person at the provider comes first: an account that is found by its address alone could leave
    /// another one of the same person open when the provider locks the person.
    pub(super) async fn scim_origin(
        &self,
        client: &ScimClient,
        draft: &ScimUserDraft,
        email: Option<&str>,
    ) -> Result<ScimOrigin, ScimProblem> {
        let (identity, external_id) = (client.identity(), draft.external_id.as_deref());
        if let Some(account) = self.account_of_external_id(client, external_id).await? {
            if self.store.scim_manager(&account.id).await?.is_some() {
                return Err(external_id_taken());
            }
            return self.known_person(client, account).await;
        }
        let former = self.store.former_scim_user(identity, &draft.user_name, external_id).await?;
        if let Some((id, former_id)) = former
            && let Some(account) = self.store.account(&id).await?
        {
            let is_same_id = external_id.is_some() && former_id.as_deref() == external_id;
            if is_same_id || !self.signs_in_as_another(client, &account, external_id).await? {
                return self.known_person(client, account).await;
            }
        }
        let holder = match email {
            Some(email) => self.store.account_by_login(email).await?,
            None => None,
        };
        let Some(holder) = holder else {
            return Ok(ScimOrigin::New(self.provisioned(client, draft, email).await?));
        };
        if self.store.former_scim_state(identity, &holder.id).await?.is_some() {
            if !holder.disabled || is_gateway_admin(&holder) {
                let why = "`emails`: an account whose person this provider deleted has this address, and it is in use \
                           again or an administrator's. Give it another address, or lock it if it is no \
                           administrator's, and retry";
                return Err(ScimProblem::new(ScimErrorKind::Uniqueness, why));
            }
            let account = self.provisioned(client, draft, email).await?;
            return Ok(ScimOrigin::Successor { account, former: holder });
        }
        let identities = self.store.identities_of(&holder.id).await?;
        let signed_in = identities.iter().any(|one| one.issuer == client.provider.issuer);
        if !signed_in || self.store.scim_manager(&holder.id).await?.is_some() {
            let why = format!(
                "`emails`: another account has this address. If it is the same person, let the person sign in with \
                 the identity provider `{identity}` once, or link it in the console under “Your account”, and retry"
            );
            return Err(ScimProblem::new(ScimErrorKind::Uniqueness, why));
        }
        if self.signs_in_as_another(client, &holder, external_id).await? {
            let why = format!(
                "`externalId`: the account with this address belongs to a person of `{identity}` with another id. If \
                 it is the same person, map the subject of sign-ins to `externalId` (Microsoft Entra ID: `objectId`), \
                 let the person sign in once, and retry. If not, give the account another address"
            );
            return Err(ScimProblem::new(ScimErrorKind::Uniqueness, why));
        }
        self.known_person(client, holder).await
    }

    /// Refuses the id of a person who signs in to another account.
    pub(super) async fn require_own_external_id(
        &self,
        client: &ScimClient,
        account_id: &str,
        external_id: Option<&str>,
    ) -> Result<(), ScimProblem> {
        match self.account_of_external_id(client, external_id).await? {
            Some(other) if other.id != account_id => Err(external_id_taken()),
            Some(_) | None => Ok(()),
        }
    }

    /// Returns the account to which the person with that id signs in through the provider.
    async fn account_of_external_id(
        &self,
        client: &ScimClient,
        external_id: Option<&str>,
    ) -> Result<Option<Account>, ScimProblem> {
        let Some(id) = external_id else { return Ok(None) };
        Ok(self.store.account_by_provider_id(&client.provider.issuer, id).await?)
    }

    /// Returns true if people sign in to the account through the provider, and none of them has that id.
    async fn signs_in_as_another(
        &self,
        client: &ScimClient,
        account: &Account,
        external_id: Option<&str>,
    ) -> Result<bool, ScimProblem> {
        let Some(id) = external_id else { return Ok(false) };
        let mut identities = self.store.identities_of(&account.id).await?;
        identities.retain(|one| one.issuer == client.provider.issuer);
        let is_own =
            identities.iter().any(|one| one.subject == id || one.object_id.as_deref() == Some(id));
        Ok(!identities.is_empty() && !is_own)
    }

    async fn known_person(
        &self,
        client: &ScimClient,
        account: Account,
    ) -> Result<ScimOrigin, ScimProblem> {
        let was_active = self.store.former_scim_state(client.identity(), &account.id).await?;
        Ok(ScimOrigin::Known { account, was_active })
    }

    /// Returns an account for a person that has none, under a free username.
    async fn provisioned(
        &self,
        client: &ScimClient,
        draft: &ScimUserDraft,
        email: Option<&str>,
    ) -> Result<Account, ScimProblem> {
        let base = plain_username(&draft.user_name);
        for attempt in 0..MAX_NAME_ATTEMPTS {
            let username = numbered_username(&base, attempt)?;
            if self.store.owner_by_name(&username).await?.is_some() {
                continue;
            }
            let role = self.provisioned_role(client).await?;
            let mut account = self.new_account(username, email.map(str::to_owned), role, None);
            account.disabled = !draft.active;
            return Ok(account);
        }
        let why = format!("no free username after {MAX_NAME_ATTEMPTS} attempts");
        Err(AdminError::Internal(why).into())
    }

    /// Role of a person in no group.
    async fn provisioned_role(&self, client: &ScimClient) -> Result<AccountRole, StoreError> {
        let mapping = client.provider.groups.as_ref();
        match client.provider.default_role {
            Some(role) => Ok(role),
            None if mapping.is_some_and(GroupMapping::gives_roles) => Ok(AccountRole::Viewer),
            None => self.sign_up_default_role().await,
        }
    }
}

fn external_id_taken() -> ScimProblem {
    let why = "`externalId`: the person with this id signs in to another account, which is another user. Change or \
               delete that user, or unlink its identity in the console under “Your account”, and retry";
    ScimProblem::new(ScimErrorKind::Uniqueness, why)
}

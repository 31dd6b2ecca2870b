//! Sign-in of people whom their identity provider created with SCIM.

use config::IdentityProvider;
use store::{Account, Identity, ScimUserCondition};

use crate::account_admin::AccountAdmin;
use crate::actor::Actor;
use crate::error::AdminError;
use crate::signup::IdentityClaims;

impl AccountAdmin {
    /// Links a person who signs in for the first time to the account that the same provider created with SCIM, and
    /// returns it. A locked account is returned without a link.
    ///
    /// The person is recognised by the id at the provider, or by an address that the provider has verified. An
    /// `externalId` that is neither the subject nor the object id refuses nobody, because a provider may send another
    /// attribute as `externalId`. An account to which somebody signs in through this provider already is not claimed.
    /// Another provider cannot claim it, because its people are looked up under its own name.
    pub async fn claim_provisioned(
        &self,
        provider: &IdentityProvider,
        person: &IdentityClaims,
    ) -> Result<Option<Account>, AdminError> {
        let mut change = self.store.begin_change().await?;
        let Some(account) = self.provisioned_account(provider, person).await? else {
            return Ok(None);
        };
        if account.disabled {
            return Ok(Some(account));
        }
        let identities = self.store.identities_of(&account.id).await?;
        if identities.iter().any(|identity| identity.issuer == person.issuer) {
            // Another person of this provider has the account.
            return Ok(None);
        }
        change.add_identity(&person.identity_of(&account.id, self.now())).await?;
        let note = ["identity.add", &account.id, &person.issuer];
        self.commit(change, &Actor::Person(account.clone()), &[note]).await?;
        Ok(Some(account))
    }

    /// Notes the id of a person in the provider's directory, by which SCIM may name the person. Sign-ins of earlier
    /// versions did not store it.
    pub async fn note_object_id(
        &self,
        account: &Account,
        person: &IdentityClaims,
    ) -> Result<(), AdminError> {
        let Some(object_id) = &person.object_id else { return Ok(()) };
        let identities = self.store.identities_of(&account.id).await?;
        let is_own = |one: &&Identity| one.issuer == person.issuer && one.subject == person.subject;
        let known = identities.iter().find(is_own).and_then(|one| one.object_id.as_ref());
        if known == Some(object_id) {
            return Ok(());
        }
        let mut change = self.store.begin_change().await?;
        change.set_object_id(&person.issuer, &person.subject, object_id).await?;
        Ok(self.commit_sign_in_step(change).await?)
    }

    async fn provisioned_account(
        &self,
        provider: &IdentityProvider,
        person: &IdentityClaims,
    ) -> Result<Option<Account>, AdminError> {
        let ids = [Some(&person.subject), person.object_id.as_ref()];
        let ids = ids.into_iter().flatten().map(|id| ScimUserCondition::ExternalId(id.clone()));
        let mut conditions: Vec<ScimUserCondition> = ids.collect();
        if let Some(email) = person.email.as_ref().filter(|_| person.email_verified) {
            conditions.push(ScimUserCondition::Address(email.clone(), None));
            conditions.push(ScimUserCondition::UserName(email.clone()));
        }
        for condition in conditions {
            let found = self.store.scim_users(&provider.name, &[condition], 0, 2).await?;
            // Two people with one address are not told apart by it.
            if let [user] = found.as_slice() {
                return Ok(self.store.account(&user.account_id).await?);
            }
        }
        Ok(None)
    }

    /// Returns the groups of an account that its provider manages; `None` if the provider does not manage the account
    /// or sends no groups with SCIM.
    pub(crate) async fn provisioned_groups(
        &self,
        provider: &IdentityProvider,
        account_id: &str,
    ) -> Result<Option<Vec<String>>, AdminError> {
        if self.store.scim_user(&provider.name, account_id).await?.is_none()
            || self.store.scim_group_count(&provider.name, &[]).await? == 0
        {
            return Ok(None);
        }
        let mut names = Vec::new();
        for group in self.store.scim_groups_of(account_id).await? {
            names.push(group.display_name);
            names.extend(group.external_id);
        }
        Ok(Some(names))
    }
}

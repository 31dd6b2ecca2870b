//! Sign-in of people whom their identity provider created with SCIM.

use config::IdentityProvider;
use store::{Account, ScimUserCondition};

use crate::account_admin::AccountAdmin;
use crate::actor::Actor;
use crate::error::AdminError;
use crate::signup::IdentityClaims;

impl AccountAdmin {
    /// Links a person who signs in for the first time to the account that the same provider created with SCIM, and
    /// returns it. A locked account is returned without a link.
    ///
    /// The person is recognised by the id at the provider, or by an address that the provider has verified. Another
    /// provider cannot claim the account, because its people are looked up under its own name.
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

//! People of an identity provider: create, change, deactivate, delete.

use canon::Micros;
use config::GroupMapping;
use store::{
    Account, AccountRole, AuditedChange, PersonChange, ScimUser, ScimUserCondition, StoreError,
};

use super::drafts::ScimUserDraft;
use super::problem::{ScimErrorKind, ScimProblem};
use super::tokens::ScimClient;
use crate::account_admin::AccountAdmin;
use crate::error::AdminError;
use crate::identity_groups::GroupEffects;
use crate::names::plain_username;
use crate::rights::is_gateway_admin;
use crate::signup::{MAX_NAME_ATTEMPTS, numbered_username};

/// Account of a person whom a provider creates.
enum ScimOrigin {
    /// There is none yet.
    New(Account),
    /// The person was here before, or signed in through the provider.
    Known(Account),
    /// There is none yet, and a locked account of another former person has its address.
    Successor(Account, Account),
}

impl AccountAdmin {
    /// Returns people of the provider that meet the conditions, and the number of all that do.
    pub async fn scim_user_page(
        &self,
        client: &ScimClient,
        conditions: &[ScimUserCondition],
        skip: i64,
        limit: i64,
    ) -> Result<(Vec<ScimUser>, i64), ScimProblem> {
        let total = self.store.scim_user_count(client.identity(), conditions).await?;
        let users = match limit {
            0 => Vec::new(),
            _ => self.store.scim_users(client.identity(), conditions, skip, limit).await?,
        };
        Ok((users, total))
    }

    /// Returns a person of the provider.
    pub async fn scim_user(&self, client: &ScimClient, id: &str) -> Result<ScimUser, ScimProblem> {
        let found = self.store.scim_user(client.identity(), id).await?;
        found.ok_or_else(|| ScimProblem::not_found("user"))
    }

    /// Creates a person of the provider. A person whom the provider deleted before, or who signed in through it, gets
    /// the same account again.
    pub async fn create_scim_user(
        &self,
        client: &ScimClient,
        draft: &ScimUserDraft,
    ) -> Result<ScimUser, ScimProblem> {
        draft.check()?;
        let mut change = self.store.begin_change().await?;
        self.require_free_name(client, &draft.user_name).await?;
        let email = draft.login_email();
        let origin = self.scim_origin(client, draft, email.as_deref()).await?;
        let terms = self.sign_up_default_terms().await?;
        let mut effects = GroupEffects::default();
        let account = match &origin {
            ScimOrigin::New(account) => account,
            ScimOrigin::Successor(account, former) => {
                let (id, name) = (&former.id, &former.username);
                change.rename_account(id, name, None, self.now()).await?;
                effects.notes.push(note("account.rename", id, "address given to a successor"));
                account
            }
            ScimOrigin::Known(account) => {
                if account.email != email && !is_gateway_admin(account) {
                    let (id, name) = (&account.id, &account.username);
                    change.rename_account(id, name, email.as_deref(), self.now()).await?;
                }
                self.set_active(&mut change, account, draft.active, &mut effects).await?;
                account
            }
        };
        match &origin {
            ScimOrigin::New(_) | ScimOrigin::Successor(..) => {
                change.add_account_with_terms(account, &terms).await?;
                effects.notes.push(note("account.create", &account.id, account.role.word()));
            }
            ScimOrigin::Known(_) => {}
        }
        let user = stored_user(client, account, draft, self.now());
        change.put_scim_user(&user, &draft.addresses()).await?;
        effects.notes.push(note("scim.create_user", &account.id, client.identity()));
        self.commit_effects(change, &client.actor(), effects).await?;
        self.reload_keys_of(&account.id).await?;
        self.scim_user(client, &account.id).await
    }

    /// Changes a person of the provider. `edit` gets the person as it is when no other change runs. A person who
    /// becomes inactive is signed out everywhere and its keys stop; both is reverted by the opposite change.
    pub async fn change_scim_user(
        &self,
        client: &ScimClient,
        id: &str,
        is_read: impl FnOnce(&ScimUser) -> Result<(), ScimProblem>,
        edit: impl FnOnce(&mut ScimUserDraft) -> Result<(), ScimProblem>,
    ) -> Result<ScimUser, ScimProblem> {
        let mut change = self.store.begin_change().await?;
        let user = self.scim_user(client, id).await?;
        is_read(&user)?;
        let before = ScimUserDraft::from(&user);
        let mut draft = before.clone();
        edit(&mut draft)?;
        draft.check()?;
        let differences = draft.differences(&before);
        if differences.is_empty() {
            return Ok(user);
        }
        if draft.user_name.to_lowercase() != before.user_name.to_lowercase() {
            self.require_free_name(client, &draft.user_name).await?;
        }
        let account = self.store.account(id).await?.ok_or(AdminError::NotFound("user"))?;
        let (email, now) = (draft.login_email(), later_than(user.changed, self.now()));
        let mut effects = GroupEffects::default();
        // A link to reset the password of an administrator must not go to an address that a token can choose.
        if email != before.login_email() && email != account.email && !is_gateway_admin(&account) {
            change.rename_account(id, &account.username, email.as_deref(), now).await?;
        }
        self.set_active(&mut change, &account, draft.active, &mut effects).await?;
        let changed =
            ScimUser { created: user.created, ..stored_user(client, &account, &draft, now) };
        change.put_scim_user(&changed, &draft.addresses()).await?;
        effects.notes.push(note("scim.change_user", id, &differences.join(", ")));
        self.commit_effects(change, &client.actor(), effects).await?;
        if draft.active != before.active {
            self.reload_keys_of(id).await?;
        }
        self.scim_user(client, id).await
    }

    /// Deletes a person of the provider: the account is locked, its keys stop, and the provider no longer sees it.
    /// Calls, costs and the account itself stay, because money depends on them.
    pub async fn delete_scim_user(
        &self,
        client: &ScimClient,
        id: &str,
        is_read: impl FnOnce(&ScimUser) -> Result<(), ScimProblem>,
    ) -> Result<(), ScimProblem> {
        let mut change = self.store.begin_change().await?;
        let user = self.scim_user(client, id).await?;
        is_read(&user)?;
        let account = self.store.account(id).await?.ok_or(AdminError::NotFound("user"))?;
        let mut effects = GroupEffects::default();
        let is_grouped = !self.store.scim_groups_of(id).await?.is_empty();
        let plan = match &client.provider.groups {
            Some(mapping) if is_grouped => {
                let mapped = self.mapped_teams(&client.provider, mapping).await?;
                let standing = self.store.scim_standings(&[id.to_owned()]).await?.pop();
                let seats = standing.map(|standing| standing.seats).unwrap_or_default();
                Some(self.plan_groups(&mapped, &[], account.clone(), &seats).await?)
            }
            Some(_) | None => None,
        };
        self.set_active(&mut change, &account, false, &mut effects).await?;
        if let Some(plan) = &plan {
            self.write_groups(&mut change, &client.provider, plan, &mut effects).await?;
        }
        change.delete_scim_user(id, later_than(user.changed, self.now())).await?;
        effects.notes.push(note("scim.delete_user", id, client.identity()));
        self.commit_effects(change, &client.actor(), effects).await?;
        Ok(self.reload_keys_of(id).await?)
    }

    /// Refuses the name of another person of the provider.
    async fn require_free_name(&self, client: &ScimClient, name: &str) -> Result<(), ScimProblem> {
        let condition = [ScimUserCondition::UserName(name.to_owned())];
        if self.store.scim_user_count(client.identity(), &condition).await? > 0 {
            let why = "`userName`: another user has this name; names are compared without case";
            return Err(ScimProblem::new(ScimErrorKind::Uniqueness, why));
        }
        Ok(())
    }

    /// Finds the account of a person whom the provider creates.
    async fn scim_origin(
        &self,
        client: &ScimClient,
        draft: &ScimUserDraft,
        email: Option<&str>,
    ) -> Result<ScimOrigin, ScimProblem> {
        let (identity, external_id) = (client.identity(), draft.external_id.as_deref());
        let former = self.store.former_scim_user(identity, &draft.user_name, external_id).await?;
        if let Some(id) = former
            && let Some(account) = self.store.account(&id).await?
        {
            return Ok(ScimOrigin::Known(account));
        }
        let holder = match email {
            Some(email) => self.store.account_by_login(email).await?,
            None => None,
        };
        let Some(holder) = holder else {
            return Ok(ScimOrigin::New(self.provisioned(client, draft, email).await?));
        };
        if self.store.was_scim_user(identity, &holder.id).await? {
            let account = self.provisioned(client, draft, email).await?;
            return Ok(ScimOrigin::Successor(account, holder));
        }
        let identities = self.store.identities_of(&holder.id).await?;
        let signed_in = identities.iter().any(|one| one.issuer == client.provider.issuer);
        if signed_in && self.store.scim_manager(&holder.id).await?.is_none() {
            return Ok(ScimOrigin::Known(holder));
        }
        let why = format!(
            "`emails`: another account has this address. If it is the same person, let the person sign in with \
             the identity provider `{identity}` once, or link it in the console under “Your account”, and retry"
        );
        Err(ScimProblem::new(ScimErrorKind::Uniqueness, why))
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

    /// Locks or unlocks an account, unless it is the only owner.
    async fn set_active(
        &self,
        change: &mut AuditedChange,
        account: &Account,
        is_active: bool,
        effects: &mut GroupEffects,
    ) -> Result<(), ScimProblem> {
        if account.disabled != is_active {
            return Ok(());
        }
        match change.change_person(&account.id, None, Some(!is_active), self.now()).await? {
            PersonChange::Done => {
                let action = if is_active { "account.enable" } else { "account.disable" };
                effects.notes.push(note(action, &account.id, ""));
                Ok(())
            }
            PersonChange::Missing => Err(ScimProblem::not_found("user")),
            PersonChange::LastOwner => Err(ScimProblem::last_owner()),
        }
    }
}

/// Returns a line of the audit log.
pub(super) fn note(action: &str, subject: &str, detail: &str) -> [String; 3] {
    [action.to_owned(), subject.to_owned(), detail.to_owned()]
}

/// Returns the time of a change, which is later than that of the change before.
pub(super) fn later_than(before: Micros, now: Micros) -> Micros {
    now.max(before + Micros::new(1))
}

fn stored_user(
    client: &ScimClient,
    account: &Account,
    draft: &ScimUserDraft,
    now: Micros,
) -> ScimUser {
    ScimUser {
        account_id: account.id.clone(),
        identity: client.identity().to_owned(),
        user_name: draft.user_name.clone(),
        external_id: draft.external_id.clone(),
        display_name: draft.display_name.clone(),
        profile: draft.profile(),
        disabled: !draft.active,
        created: now,
        changed: now,
    }
}

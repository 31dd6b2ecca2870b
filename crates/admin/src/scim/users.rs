//! People of an identity provider: create, change, deactivate, delete.

use canon::Micros;
use store::{
    Account, AccountRole, AuditedChange, FactorKind, PersonChange, ScimGroup, ScimUser,
    ScimUserCondition, StoreError,
};

use super::drafts::ScimUserDraft;
use super::origin::ScimOrigin;
use super::problem::{ScimErrorKind, ScimProblem};
use super::tokens::ScimClient;
use crate::account_admin::AccountAdmin;
use crate::error::AdminError;
use crate::identity_groups::{GroupEffects, GroupStanding};
use crate::rights::is_gateway_admin;

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
    /// the same account again. It is unlocked only if the provider had locked it.
    pub async fn create_scim_user(
        &self,
        client: &ScimClient,
        draft: &ScimUserDraft,
    ) -> Result<ScimUser, ScimProblem> {
        draft.check()?;
        let mut change = self.begin_scim_change(client).await?;
        self.require_free_name(client, &draft.user_name).await?;
        let email = draft.login_email();
        let origin = self.scim_origin(client, draft, email.as_deref()).await?;
        let terms = self.sign_up_default_terms().await?;
        let mut effects = GroupEffects::default();
        let account = match &origin {
            ScimOrigin::New(account) => account,
            ScimOrigin::Successor { account, former } => {
                let (id, name) = (&former.id, &former.username);
                change.rename_account(id, name, None, self.now()).await?;
                effects.notes.push(note("account.rename", id, "address given to a successor"));
                account
            }
            ScimOrigin::Known { account, was_active } => {
                let lock = self.lock_change(account, *was_active, draft.active).await?;
                if account.email != email && !is_gateway_admin(account) {
                    let (address, now) = (email.as_deref(), self.now());
                    self.set_address(&mut change, account, address, now, &mut effects).await?;
                }
                self.set_lock(&mut change, account, lock, &mut effects).await?;
                account
            }
        };
        match &origin {
            ScimOrigin::New(_) | ScimOrigin::Successor { .. } => {
                change.add_account_with_terms(account, &terms).await?;
                effects.notes.push(note("account.create", &account.id, account.role.word()));
            }
            ScimOrigin::Known { .. } => {}
        }
        let user = stored_user(client, account, draft, self.now());
        change.put_scim_user(&user, &draft.addresses()).await?;
        effects.notes.push(note("scim.create_user", &account.id, client.identity()));
        self.commit_effects(change, &client.actor(), effects).await?;
        self.reload_keys_of(&account.id).await?;
        self.scim_user(client, &account.id).await
    }

    /// Changes a person of the provider. `edit` gets the person as it is when no other change runs. A person who
    /// becomes inactive is signed out everywhere and its keys stop. The opposite change unlocks the account.
    pub async fn change_scim_user(
        &self,
        client: &ScimClient,
        id: &str,
        is_read: impl FnOnce(&ScimUser, &[ScimGroup]) -> Result<(), ScimProblem>,
        edit: impl FnOnce(&mut ScimUserDraft) -> Result<(), ScimProblem>,
    ) -> Result<ScimUser, ScimProblem> {
        let mut change = self.begin_scim_change(client).await?;
        let user = self.scim_user(client, id).await?;
        is_read(&user, &self.store.scim_groups_of(id).await?)?;
        let before = ScimUserDraft::from(&user);
        let mut draft = before.clone();
        edit(&mut draft)?;
        draft.check()?;
        let account = self.store.account(id).await?.ok_or(AdminError::NotFound("user"))?;
        let lock = self.lock_change(&account, Some(before.active), draft.active).await?;
        let differences = draft.differences(&before);
        if differences.is_empty() && lock.is_none() {
            return Ok(user);
        }
        if draft.user_name.to_lowercase() != before.user_name.to_lowercase() {
            self.require_free_name(client, &draft.user_name).await?;
        }
        if draft.external_id != before.external_id {
            self.require_own_external_id(client, id, draft.external_id.as_deref()).await?;
        }
        let (email, now) = (draft.login_email(), later_than(user.changed, self.now()));
        let mut effects = GroupEffects::default();
        // A link to reset the password of an administrator must not go to an address that a token can choose.
        if email != before.login_email() && email != account.email && !is_gateway_admin(&account) {
            let address = email.as_deref();
            self.set_address(&mut change, &account, address, now, &mut effects).await?;
        }
        self.set_lock(&mut change, &account, lock, &mut effects).await?;
        let changed =
            ScimUser { created: user.created, ..stored_user(client, &account, &draft, now) };
        change.put_scim_user(&changed, &draft.addresses()).await?;
        effects.notes.push(note("scim.change_user", id, &differences.join(", ")));
        self.commit_effects(change, &client.actor(), effects).await?;
        if lock.is_some() {
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
        is_read: impl FnOnce(&ScimUser, &[ScimGroup]) -> Result<(), ScimProblem>,
    ) -> Result<(), ScimProblem> {
        let mut change = self.begin_scim_change(client).await?;
        let user = self.scim_user(client, id).await?;
        is_read(&user, &self.store.scim_groups_of(id).await?)?;
        let account = self.store.account(id).await?.ok_or(AdminError::NotFound("user"))?;
        let mut effects = GroupEffects::default();
        let lock = self.lock_change(&account, None, false).await?;
        // Its rights may come from groups that a sign-in named.
        let plans = match &client.provider.groups {
            Some(mapping) => {
                let mapped = self.mapped_teams(&client.provider, mapping).await?;
                let standing = self.store.scim_standings(&[id.to_owned()]).await?.pop();
                let seats = standing.map(|standing| standing.seats).unwrap_or_default();
                let standing =
                    GroupStanding { account: account.clone(), groups: Vec::new(), seats };
                self.plan_groups(&mapped, vec![standing]).await?
            }
            None => Vec::new(),
        };
        self.set_lock(&mut change, &account, lock, &mut effects).await?;
        self.write_groups(&mut change, &client.provider, &plans, &mut effects).await?;
        // The lock of an operator stays when the person comes back.
        let active = user.active && account.disabled;
        change.delete_scim_user(id, active, later_than(user.changed, self.now())).await?;
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

    /// Returns the lock that an account gets from the state of its person: locked if the person is inactive, unlocked
    /// if the provider makes an inactive person active. So the lock of an operator stays when a provider repeats that
    /// the person is active. Refuses to lock the only owner who can sign in. Nothing is written.
    async fn lock_change(
        &self,
        account: &Account,
        was_active: Option<bool>,
        is_active: bool,
    ) -> Result<Option<AccountLock>, ScimProblem> {
        if is_active {
            let is_unlocked = account.disabled && was_active == Some(false);
            return Ok(is_unlocked.then_some(AccountLock::Unlocked));
        }
        if account.disabled {
            return Ok(None);
        }
        if account.role == AccountRole::Owner && !self.has_other_owner(&account.id).await? {
            return Err(ScimProblem::last_owner());
        }
        Ok(Some(AccountLock::Locked))
    }

    /// Returns true if another owner can sign in. The owner of a first start has no way to do so until somebody uses
    /// the set-up token.
    pub(crate) async fn has_other_owner(&self, account_id: &str) -> Result<bool, StoreError> {
        for other in self.store.owner_accounts().await? {
            if other.disabled || other.id == account_id {
                continue;
            }
            if other.password_hash.is_some()
                || !self.store.identities_of(&other.id).await?.is_empty()
            {
                return Ok(true);
            }
            let factors = self.store.factors_of(&other.id).await?;
            if factors.iter().any(|factor| factor.kind == FactorKind::Passkey) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Locks or unlocks an account, unless it is the only owner.
    async fn set_lock(
        &self,
        change: &mut AuditedChange,
        account: &Account,
        lock: Option<AccountLock>,
        effects: &mut GroupEffects,
    ) -> Result<(), ScimProblem> {
        let (disabled, action) = match lock {
            Some(AccountLock::Locked) => (true, "account.disable"),
            Some(AccountLock::Unlocked) => (false, "account.enable"),
            None => return Ok(()),
        };
        match change.change_person(&account.id, None, Some(disabled), self.now()).await? {
            PersonChange::Done => {
                effects.notes.push(note(action, &account.id, ""));
                Ok(())
            }
            PersonChange::Missing => Err(ScimProblem::not_found("user")),
            PersonChange::LastOwner => Err(ScimProblem::last_owner()),
        }
    }

    /// Changes the address of an account.
    async fn set_address(
        &self,
        change: &mut AuditedChange,
        account: &Account,
        email: Option<&str>,
        now: Micros,
        effects: &mut GroupEffects,
    ) -> Result<(), ScimProblem> {
        change.rename_account(&account.id, &account.username, email, now).await?;
        effects.notes.push(note("account.email", &account.id, "given by the provider"));
        Ok(())
    }
}

/// New lock of an account.
#[derive(Clone, Copy)]
enum AccountLock {
    Locked,
    Unlocked,
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
        active: draft.active,
        disabled: account.disabled,
        created: now,
        changed: now,
    }
}

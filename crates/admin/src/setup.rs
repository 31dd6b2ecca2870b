//! First start and set-up: the account that owns the gateway.

use access::keys::random_letters;
use store::{
    Account, AccountRole, AccountTerms, AuditedChange, KeyOwner, KeyScope, RateLimits, StoreError,
};

use crate::account_admin::AccountAdmin;
use crate::actor::Actor;
use crate::error::AdminError;
use crate::keys::{IssuedKey, KeyDraft};
use crate::password::HashedPassword;
use crate::{names, random};

/// Setting that holds the one-time set-up token until it is used.
pub const SETUP_TOKEN_SETTING: &str = "setup_token";
const SETUP_TOKEN_CHARS: usize = 32;

/// Values of the set-up page.
pub struct OwnerClaim<'a> {
    /// Name to sign in with.
    pub username: &'a str,
    /// E-mail address; empty for none.
    pub email: &'a str,
    /// True if the address is stored after its confirmation only.
    pub confirms_email: bool,
    /// Password to sign in with.
    pub password: HashedPassword,
}

impl AccountAdmin {
    /// Creates the owner's account, the set-up token and a first key, if there is no account yet.
    /// Another node that starts at the same time creates it only once.
    pub async fn first_start(&self) -> Result<Option<IssuedKey>, AdminError> {
        if self.store.account_count().await? > 0 {
            return Ok(None);
        }
        let owner = match self.create_owner(&Actor::FirstStart).await {
            Ok(owner) => owner,
            Err(AdminError::Store(StoreError::Conflict(_))) => return Ok(None),
            Err(error) => return Err(error),
        };
        let draft = KeyDraft {
            scope: KeyScope::Call,
            grants: store::KeyGrants::default(),
            name: "first key".to_owned(),
            cap: None,
            models: Vec::new(),
            expires: None,
            limits: RateLimits::default(),
            ips: Vec::new(),
            budget: None,
        };
        let owner = KeyOwner::Person(owner);
        self.create_key(&Actor::FirstStart, &owner, draft).await.map(Some)
    }

    /// Returns the gateway's owner. If there is none, it is created together with the set-up
    /// token. The command line needs it before the first start, which creates an owner only while
    /// there is no account.
    pub async fn owner_or_create(&self, actor: &Actor) -> Result<Account, AdminError> {
        match actor {
            Actor::FirstStart | Actor::Operator => {}
            Actor::Person(_) | Actor::Key { .. } | Actor::Provisioner { .. } => {
                return Err(AdminError::forbidden("only the operator creates the owner"));
            }
        }
        if let Some(owner) = self.find_owner().await? {
            return Ok(owner);
        }
        match self.create_owner(actor).await {
            // The first start of a gateway created it in the meantime.
            Err(AdminError::Store(StoreError::Conflict(what))) => {
                let conflict = AdminError::Store(StoreError::Conflict(what));
                self.find_owner().await?.ok_or(conflict)
            }
            created => created,
        }
    }

    async fn find_owner(&self) -> Result<Option<Account>, AdminError> {
        let accounts = self.store.accounts().await?;
        Ok(accounts.into_iter().find(|account| account.role == AccountRole::Owner))
    }

    /// Creates the account that owns a new gateway. It has no password until the set-up token is
    /// used.
    async fn create_owner(&self, actor: &Actor) -> Result<Account, AdminError> {
        let owner = self.new_account("owner".to_owned(), None, AccountRole::Owner, None);
        let token = random_letters(SETUP_TOKEN_CHARS)
            .map_err(|error| AdminError::Internal(error.to_string()))?;
        let mut change = self.store.begin_change().await?;
        change.add_account_with_terms(&owner, &AccountTerms::default()).await?;
        change.put_setting(SETUP_TOKEN_SETTING, &token).await?;
        let note = ["account.create", &owner.id, owner.role.word()];
        self.commit(change, actor, &[note]).await?;
        Ok(owner)
    }

    /// Gives the owner's account to the holder of the set-up token, which is used up.
    pub async fn claim_owner(
        &self,
        token: &str,
        claim: OwnerClaim<'_>,
    ) -> Result<Account, AdminError> {
        if let Some(why) = names::username_error(claim.username) {
            return Err(AdminError::invalid("username", why));
        }
        if !claim.email.is_empty() && !names::is_email_address(claim.email) {
            let message = "This does not look like an e-mail address.";
            return Err(AdminError::invalid("email", message));
        }
        let mut change = self.store.begin_change().await?;
        let owner = self.unclaimed_owner().await?;
        for (field, login) in [("username", claim.username), ("email", claim.email)] {
            let taken = self.store.account_by_login(login).await?;
            if !login.is_empty() && taken.is_some_and(|account| account.id != owner.id) {
                return Err(AdminError::invalid(field, "This is taken by another account."));
            }
        }
        // After a failure the change is dropped, and the token keeps working.
        match change.take_setting(SETUP_TOKEN_SETTING).await? {
            Some(stored) if random::constant_time_eq(&stored, token) => {}
            Some(_) | None => return Err(AdminError::NotFound("set-up token")),
        }
        let account = match self.store_claim(&mut change, owner, &claim).await {
            Ok(account) => account,
            Err(StoreError::Conflict(_)) => {
                let message = "This username or e-mail address is taken.";
                return Err(AdminError::invalid("username", message));
            }
            Err(error) => return Err(error.into()),
        };
        let actor = Actor::Person(account.clone());
        self.commit(change, &actor, &[["account.setup", &account.id, ""]]).await?;
        Ok(account)
    }

    async fn unclaimed_owner(&self) -> Result<Account, AdminError> {
        let unclaimed = |account: &Account| {
            account.role == AccountRole::Owner && account.password_hash.is_none()
        };
        let found = self.store.accounts().await?.into_iter().find(unclaimed);
        found.ok_or(AdminError::NotFound("set-up token"))
    }

    async fn store_claim(
        &self,
        change: &mut AuditedChange,
        owner: Account,
        claim: &OwnerClaim<'_>,
    ) -> Result<Account, StoreError> {
        let stored = !claim.email.is_empty() && !claim.confirms_email;
        let (username, email) = (claim.username, stored.then_some(claim.email));
        let now = self.now();
        let renamed = change.rename_account(&owner.id, username, email, now).await?;
        let hash = Some(claim.password.as_str());
        if !renamed || !change.set_password(&owner.id, hash, now).await? {
            return Err(StoreError::Missing("account"));
        }
        Ok(Account { username: username.to_owned(), email: email.map(str::to_owned), ..owner })
    }
}

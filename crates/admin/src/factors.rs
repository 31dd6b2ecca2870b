//! Second factors of a person's own account: authenticator app, passkeys, recovery codes.
//!
//! The store holds the secrets of authenticator apps sealed. Secrets stored before the vault
//! existed are sealed when they are next used.

use store::{Account, Factor, FactorKind, SealedSecret, StoreError, Vault, VaultError};

use crate::account_admin::AccountAdmin;
use crate::actor::Actor;
use crate::error::AdminError;
use crate::names::has_hidden_characters;

/// Maximum number of passkeys of an account.
pub const MAX_PASSKEYS: usize = 20;
/// Maximum length of a passkey's name.
const MAX_PASSKEY_NAME_CHARS: usize = 60;

/// A passkey whose registration was verified.
pub struct VerifiedPasskey {
    /// Credential id.
    pub id: String,
    /// Public key as it is stored.
    pub key: Vec<u8>,
}

/// Returns true if a factor of this kind makes the password alone insufficient.
pub const fn is_second_factor(kind: FactorKind) -> bool {
    match kind {
        FactorKind::Totp | FactorKind::Passkey => true,
        FactorKind::Recovery => false,
    }
}

/// Returns the rule the name of a passkey breaks, if any.
pub fn passkey_name_error(name: &str) -> Option<String> {
    let wrong = name.is_empty()
        || name.chars().count() > MAX_PASSKEY_NAME_CHARS
        || has_hidden_characters(name);
    wrong.then(|| format!("A name of 1 to {MAX_PASSKEY_NAME_CHARS} characters, please."))
}

impl AccountAdmin {
    /// Adds an authenticator app to the person's own account. `step` is the time step of the code
    /// that proved it, and is used up. The account needs a password and has one app at most.
    pub async fn add_totp(
        &self,
        actor: &Actor,
        vault: &Vault,
        secret: Vec<u8>,
        step: i64,
    ) -> Result<(), AdminError> {
        let account = actor.require_person()?;
        let mut change = self.store.begin_change().await?;
        let factors = self.store.factors_of(&account.id).await?;
        let has_totp = factors.iter().any(|factor| factor.kind == FactorKind::Totp);
        if account.password_hash.is_none() || has_totp {
            let message = "This account cannot have an app with codes, or has one already.";
            return Err(AdminError::invalid("", message));
        }
        let id = uuid::Uuid::now_v7().to_string();
        let mut factor = self.new_factor(account, FactorKind::Totp, id);
        (factor.name, factor.counter) = ("App".to_owned(), step);
        let sealer = vault.sealer().await.map_err(vault_error)?;
        let sealed = sealer.seal(&factor.label(), &secret).map_err(vault_error)?;
        (factor.secret, factor.sealed_by) = (sealed.bytes, Some(sealed.by));
        change.add_factor(&factor).await?;
        Ok(self.commit(change, actor, &[["factor.add", &factor.id, "totp"]]).await?)
    }

    /// Adds a passkey to the person's own account. Returns true if it is the first second factor.
    pub async fn add_passkey(
        &self,
        actor: &Actor,
        name: &str,
        passkey: VerifiedPasskey,
    ) -> Result<bool, AdminError> {
        let account = actor.require_person()?;
        if let Some(why) = passkey_name_error(name) {
            return Err(AdminError::invalid("name", why));
        }
        let mut change = self.store.begin_change().await?;
        let factors = self.store.factors_of(&account.id).await?;
        let passkeys = factors.iter().filter(|factor| factor.kind == FactorKind::Passkey);
        if passkeys.count() >= MAX_PASSKEYS {
            let message = "An account may have twenty passkeys. Remove one first.";
            return Err(AdminError::invalid("", message));
        }
        let mut factor = self.new_factor(account, FactorKind::Passkey, passkey.id);
        (factor.name, factor.secret) = (name.to_owned(), passkey.key);
        match change.add_factor(&factor).await {
            Ok(()) => {}
            Err(StoreError::Conflict(_)) => {
                return Err(AdminError::invalid("", "This passkey is known already."));
            }
            Err(error) => return Err(error.into()),
        }
        self.commit(change, actor, &[["factor.add", &factor.id, "passkey"]]).await?;
        Ok(!factors.iter().any(|factor| is_second_factor(factor.kind)))
    }

    /// Replaces the recovery codes of the person's own account, given as digests. Codes without a
    /// second factor would be a forgotten way in, so the account needs one.
    pub async fn replace_recovery_codes(
        &self,
        actor: &Actor,
        digests: Vec<Vec<u8>>,
    ) -> Result<(), AdminError> {
        let account = actor.require_person()?;
        let mut change = self.store.begin_change().await?;
        let factors = self.store.factors_of(&account.id).await?;
        if !factors.iter().any(|factor| is_second_factor(factor.kind)) {
            return Err(AdminError::invalid("", "This account has no second factor."));
        }
        let codes = digests.into_iter().map(|digest| {
            let id = uuid::Uuid::now_v7().to_string();
            let factor = self.new_factor(account, FactorKind::Recovery, id);
            Factor { secret: digest, ..factor }
        });
        let codes: Vec<Factor> = codes.collect();
        change.replace_factors(&account.id, FactorKind::Recovery, &codes).await?;
        Ok(self.commit(change, actor, &[["factor.recovery", &account.id, ""]]).await?)
    }

    /// Removes a factor of the person's own account. The recovery codes go with the last second
    /// factor.
    pub async fn remove_factor(&self, actor: &Actor, id: &str) -> Result<(), AdminError> {
        let account = actor.require_person()?;
        let mut change = self.store.begin_change().await?;
        let factors = self.store.factors_of(&account.id).await?;
        if !factors.iter().any(|factor| factor.id == id) {
            return Err(AdminError::NotFound("factor"));
        }
        let mut left = factors.iter().filter(|factor| factor.id != id);
        let is_last = !left.any(|factor| is_second_factor(factor.kind));
        if is_last && self.needs_second_factor(account).await? {
            let message = "Your role needs a second factor. Add another one first.";
            return Err(AdminError::invalid("", message));
        }
        change.drop_factor(&account.id, id).await?;
        if is_last {
            change.replace_factors(&account.id, FactorKind::Recovery, &[]).await?;
        }
        Ok(self.commit(change, actor, &[["factor.remove", id, ""]]).await?)
    }

    /// Uses up a recovery code during a sign-in. Returns false if another request was first.
    pub async fn use_recovery_code(
        &self,
        account: &Account,
        factor_id: &str,
    ) -> Result<bool, AdminError> {
        Ok(self.store.drop_factor(&account.id, factor_id).await?)
    }

    /// Seals the secret of an authenticator app that is still stored in plain. The app keeps
    /// working if this fails.
    pub async fn seal_totp_if_plain(&self, vault: &Vault, factor: &Factor) {
        if factor.sealed_by.is_some() {
            return;
        }
        let sealing = async {
            let sealer = vault.sealer().await?;
            let sealed = sealer.seal(&factor.label(), &factor.secret)?;
            self.store.seal_factor(&factor.id, &sealed).await?;
            Ok::<(), VaultError>(())
        };
        if let Err(why) = sealing.await {
            let id = &factor.id;
            tracing::warn!(factor.id = %id, "cannot seal the secret of an authenticator app: {why}");
        }
    }

    fn new_factor(&self, account: &Account, kind: FactorKind, id: String) -> Factor {
        Factor {
            id,
            account_id: account.id.clone(),
            kind,
            name: String::new(),
            secret: Vec::new(),
            sealed_by: None,
            counter: 0,
            created: self.now(),
            used: None,
        }
    }
}

/// Opens the secret of an authenticator app. Returns `None` if this node lacks the key.
pub fn open_totp_secret(vault: &Vault, factor: &Factor) -> Option<Vec<u8>> {
    let Some(by) = factor.sealed_by.clone() else { return Some(factor.secret.clone()) };
    let sealed = SealedSecret { by, bytes: factor.secret.clone() };
    match vault.open(&factor.label(), &sealed) {
        Ok(secret) => Some(secret),
        Err(why) => {
            let id = &factor.id;
            tracing::error!(factor.id = %id, "cannot open the secret of an authenticator app: {why}");
            None
        }
    }
}

fn vault_error(why: VaultError) -> AdminError {
    tracing::error!("cannot store the secret of an authenticator app: {why}");
    AdminError::invalid(
        "",
        "This gateway has no key to keep such secrets with. Ask its operator to set `vault` of \
         `[server]`, or use a passkey.",
    )
}

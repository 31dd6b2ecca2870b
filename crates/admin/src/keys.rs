//! API keys: create, change, rotate, revoke.

use access::keys::{NewKeyToken, hash_token, key_settings_json};
use canon::{Micros, Money};
use config::IpRange;
use store::{
    AccountRole, BudgetTerms, KeyBounds, KeyGrants, KeyOwner, KeyRecord, KeyScope, RateLimits,
};

use crate::account_admin::AccountAdmin;
use crate::actor::Actor;
use crate::error::AdminError;
use crate::key_bounds::{BoundRole, bind_sent, limits_of, networks_within, require_within};
use crate::names;
use crate::rights::{TeamAction, may_change, may_in_team, not_permitted};
use crate::time_text::rfc3339;
use crate::version::{ReadVersion, version_of};

/// Maximum number of active keys a person may create for one owner.
pub const MAX_KEYS: usize = 100;
/// Maximum length of a key's name.
pub(crate) const MAX_NAME_BYTES: usize = 200;

/// A key to be created.
#[derive(Clone, Debug)]
pub struct KeyDraft {
    /// The purpose it is made for. It never changes.
    pub scope: KeyScope,
    /// The part of the scope that it may use.
    pub grants: KeyGrants,
    /// Name shown in lists.
    pub name: String,
    /// Spending cap; `None` is unlimited. Ignored for an admin key, which spends nothing.
    pub cap: Option<Money>,
    /// Models the key may use; empty allows all.
    pub models: Vec<String>,
    /// Expiry time. An admin key without one expires after 30 days.
    pub expires: Option<Micros>,
    /// Its rate limits.
    pub limits: RateLimits,
    /// Addresses and networks the key may be used from; empty allows all.
    pub ips: Vec<String>,
    /// Spending limit per period.
    pub budget: Option<BudgetTerms>,
}

impl KeyDraft {
    /// A key for calls without limits of its own.
    pub fn for_calls(name: String) -> Self {
        Self {
            scope: KeyScope::Call,
            grants: KeyGrants::default(),
            name,
            cap: None,
            models: Vec::new(),
            expires: None,
            limits: RateLimits::default(),
            ips: Vec::new(),
            budget: None,
        }
    }

    /// Returns the record of a key for calls with that id and hash.
    pub(crate) fn into_record(
        self,
        actor: &Actor,
        owner: &KeyOwner,
        id: String,
        hash: Vec<u8>,
        now: Micros,
    ) -> KeyRecord {
        let Self { scope: _, grants, name, cap, models, expires, limits, ips, budget } = self;
        KeyRecord {
            id,
            account_id: owner.id().to_owned(),
            created_by: actor.account().map(|account| account.id.clone()),
            name,
            surface: None,
            scope: KeyScope::Call,
            grants,
            hash,
            old_hash: None,
            old_until: None,
            cap,
            spent: Money::ZERO,
            budget,
            models,
            expires,
            revoked: None,
            limits,
            ips,
            bounds: KeyBounds::default(),
            created: now,
            changed: now,
            last_used: None,
        }
    }
}

/// A change of a key. A field that is `None` stays as it is.
#[derive(Clone, Debug, Default)]
#[expect(missing_docs, reason = "the fields are those of `KeyDraft`")]
pub struct KeyChange {
    pub name: Option<String>,
    pub cap: Option<Option<Money>>,
    pub models: Option<Vec<String>>,
    pub expires: Option<Option<Micros>>,
    pub limits: Option<RateLimits>,
    pub ips: Option<Vec<String>>,
    pub budget: Option<Option<BudgetTerms>>,
}

/// A key together with its secret. The secret is shown once and stored only as a hash.
#[derive(Debug)]
pub struct IssuedKey {
    /// The key as it is stored.
    pub record: KeyRecord,
    /// Text of the key.
    pub secret: String,
}

/// Returns the version of a key, for [`ReadVersion`]. Calls do not change it.
pub fn key_version(record: &KeyRecord) -> String {
    version_of(&key_settings_json(record))
}

impl AccountAdmin {
    /// Creates a key that belongs to an account or a team.
    pub async fn create_key(
        &self,
        actor: &Actor,
        owner: &KeyOwner,
        draft: KeyDraft,
    ) -> Result<IssuedKey, AdminError> {
        let mut change = self.store.begin_change().await?;
        self.require_may_create_keys(actor, owner).await?;
        let now = self.now();
        let token = NewKeyToken::generate(draft.scope);
        let token = token.map_err(|e| AdminError::Internal(e.to_string()))?;
        let (scope, expires) = (draft.scope, draft.expires);
        let hash = hash_token(self.keys.pepper(), &token.text);
        let mut record = draft.into_record(actor, owner, token.id, hash, now);
        match scope {
            KeyScope::Call if record.grants == KeyGrants::Read => record.cap = Some(Money::ZERO),
            KeyScope::Call => {}
            KeyScope::Admin => {
                require_admin_owner(owner)?;
                record.make_admin(now);
                if expires.is_none() {
                    // A default lifetime must not outlive the key that asks for it.
                    let end = actor.key().and_then(|key| key.expires);
                    record.expires = record.expires.min(end.or(record.expires));
                }
                require_may_issue_admin_key(actor, &record)?;
            }
        }
        match BoundRole::of(actor, owner) {
            BoundRole::Sets => record.bounds = limits_of(&record),
            BoundRole::Obeys | BoundRole::Free => {}
        }
        validate(&record)?;
        change.add_key(&record).await?;
        self.commit(change, actor, &[["key.create", &record.id, &record.name]]).await?;
        self.key_changed(record.clone());
        Ok(IssuedKey { record, secret: token.text })
    }

    /// Changes a key. Its scope and its owner stay the same.
    pub async fn change_key(
        &self,
        actor: &Actor,
        id: &str,
        read: ReadVersion<'_>,
        change: KeyChange,
    ) -> Result<KeyRecord, AdminError> {
        let mut store_change = self.store.begin_change().await?;
        let mut record = self.key_for_change(actor, id).await?;
        if actor.key().is_some_and(|key| key.id == record.id) {
            return Err(AdminError::forbidden(
                "a key cannot change itself; use the console or `portunus keys set`",
            ));
        }
        read.check(&key_settings_json(&record))?;
        let end = record.expires;
        let sent = change.clone();
        let KeyChange { name, cap, models, expires, limits, ips, budget } = change;
        record.name = name.unwrap_or(record.name);
        record.cap = cap.unwrap_or(record.cap);
        record.models = models.unwrap_or(record.models);
        record.expires = expires.unwrap_or(record.expires);
        record.limits = limits.unwrap_or(record.limits);
        record.ips = ips.unwrap_or(record.ips);
        record.budget = budget.unwrap_or(record.budget);
        match record.scope {
            KeyScope::Call => {}
            KeyScope::Admin => {
                // An admin key has a cap of zero, so `null` means zero.
                record.cap = record.cap.or(Some(Money::ZERO));
                // A key that could widen the addresses of another admin key would outlive itself
                // with it. `validate` refuses an admin key without an end below.
                let extended = record.expires > end;
                if record.expires.is_some() && (extended || actor.key().is_some()) {
                    require_may_issue_admin_key(actor, &record)?;
                }
            }
        }
        validate(&record)?;
        let owner = self.store.owner(&record.account_id).await?;
        match BoundRole::of(actor, &owner.ok_or(AdminError::NotFound("key"))?) {
            BoundRole::Sets => bind_sent(&mut record, &sent),
            BoundRole::Obeys => require_within(&limits_of(&record), &record.bounds)?,
            BoundRole::Free => {}
        }
        record.changed = self.now();
        store_change.update_key(&record).await?;
        self.commit(store_change, actor, &[["key.change", &record.id, &record.name]]).await?;
        self.reload_key(&record.id).await
    }

    /// Replaces the secret of a key. The old secret works until `old_until`.
    ///
    /// A key has one old secret at most. While one works that an earlier rotation promised to keep,
    /// another rotation is refused, unless it ends all earlier secrets at once.
    pub async fn rotate_key(
        &self,
        actor: &Actor,
        id: &str,
        old_until: Micros,
    ) -> Result<IssuedKey, AdminError> {
        let mut change = self.store.begin_change().await?;
        let record = self.key_for_change(actor, id).await?;
        match record.scope {
            // A new secret is equivalent to a new admin key, unless the key rotates itself.
            KeyScope::Admin if actor.key().is_none_or(|key| key.id != record.id) => {
                require_may_issue_admin_key(actor, &record)?;
            }
            KeyScope::Admin | KeyScope::Call => {}
        }
        let now = self.now();
        let promised = record.old_until.filter(|end| *end > now && old_until > now);
        if let (Some(promised), None) = (promised, record.revoked) {
            return Err(AdminError::Conflict(format!(
                "the key was rotated before, and its previous value works until {}; wait for that, \
                 or rotate with no overlap, which ends both values at once",
                rfc3339(promised).unwrap_or_default()
            )));
        }
        let token = NewKeyToken::with_id(record.id.clone(), record.scope);
        let token = token.map_err(|e| AdminError::Internal(e.to_string()))?;
        let new = hash_token(self.keys.pepper(), &token.text);
        if !change.rotate_key(&record.id, &new, old_until, now).await? {
            return Err(AdminError::invalid("", "the key is revoked"));
        }
        self.commit(change, actor, &[["key.rotate", &record.id, &record.name]]).await?;
        Ok(IssuedKey { record: self.reload_key(&record.id).await?, secret: token.text })
    }

    /// Revokes a key at once. Revoking a revoked key changes nothing.
    pub async fn revoke_key(
        &self,
        actor: &Actor,
        id: &str,
        read: ReadVersion<'_>,
    ) -> Result<KeyRecord, AdminError> {
        let mut change = self.store.begin_change().await?;
        let record = self.key_for_change(actor, id).await?;
        read.check(&key_settings_json(&record))?;
        if change.revoke_key(&record.id, self.now()).await? {
            self.commit(change, actor, &[["key.revoke", &record.id, &record.name]]).await?;
        } else {
            drop(change);
        }
        self.reload_key(&record.id).await
    }

    /// Returns a key that the actor may change.
    pub async fn key_for_change(&self, actor: &Actor, id: &str) -> Result<KeyRecord, AdminError> {
        let record = self.store.key(id).await?.ok_or(AdminError::NotFound("key"))?;
        let owner = self.store.owner(&record.account_id).await?;
        let owner = owner.ok_or(AdminError::NotFound("key"))?;
        let Some(account) = actor.account() else {
            return if actor.is_admin() { Ok(record) } else { Err(not_permitted()) };
        };
        let may = match &owner {
            KeyOwner::Person(other) => may_change(account, other),
            KeyOwner::Team(team) => {
                let own = record.created_by.as_ref() == Some(&account.id);
                let action =
                    if own { TeamAction::ChangeOwnKey } else { TeamAction::ChangeOtherKey };
                may_in_team(account, team, self.team_role(&account.id, &team.id).await?, action)
            }
        };
        if may { Ok(record) } else { Err(not_permitted()) }
    }

    /// Returns true if the actor may create keys for this owner.
    pub(crate) async fn may_create_keys(
        &self,
        actor: &Actor,
        owner: &KeyOwner,
    ) -> Result<bool, AdminError> {
        let Some(account) = actor.account() else { return Ok(actor.is_admin()) };
        Ok(match owner {
            KeyOwner::Person(other) => may_change(account, other),
            KeyOwner::Team(team) => {
                let role = self.team_role(&account.id, &team.id).await?;
                may_in_team(account, team, role, TeamAction::CreateKeys)
            }
        })
    }

    /// Refuses an actor that may not create keys for this owner, or that has created too many.
    pub(crate) async fn require_may_create_keys(
        &self,
        actor: &Actor,
        owner: &KeyOwner,
    ) -> Result<(), AdminError> {
        self.require_may_add_keys(actor, owner, 0).await
    }

    /// The same, if that many keys of the owner are about to be revoked.
    pub(crate) async fn require_may_add_keys(
        &self,
        actor: &Actor,
        owner: &KeyOwner,
        ending: usize,
    ) -> Result<(), AdminError> {
        if !self.may_create_keys(actor, owner).await? {
            return Err(not_permitted());
        }
        match actor {
            Actor::FirstStart | Actor::Operator | Actor::Key { .. } | Actor::Provisioner { .. } => {
                Ok(())
            }
            Actor::Person(_) => {
                let own = self.store.keys_of(owner.id()).await?;
                let live = own.iter().filter(|key| key.revoked.is_none()).count();
                if live < MAX_KEYS + ending {
                    return Ok(());
                }
                let message = format!("An account may have {MAX_KEYS} keys. Revoke one first.");
                Err(AdminError::invalid("name", message))
            }
        }
    }

    pub(crate) async fn team_role(
        &self,
        account_id: &str,
        team_id: &str,
    ) -> Result<Option<store::TeamRole>, AdminError> {
        let memberships = self.store.memberships_of(account_id).await?;
        Ok(memberships.iter().find(|one| one.team.id == team_id).map(|one| one.role))
    }

    /// Reads a changed key back from the store and puts it into this node's cache.
    pub(crate) async fn reload_key(&self, id: &str) -> Result<KeyRecord, AdminError> {
        let record = self.store.key(id).await?.ok_or(AdminError::NotFound("key"))?;
        self.key_changed(record.clone());
        Ok(record)
    }
}

/// Checks the rules that hold for every key.
pub(crate) fn validate(record: &KeyRecord) -> Result<(), AdminError> {
    if record.name.trim().is_empty() || record.name.len() > MAX_NAME_BYTES {
        return Err(AdminError::invalid("name", "must have 1 to 200 bytes"));
    }
    names::require_visible("name", &record.name)?;
    if record.cap.is_some_and(Money::is_negative) {
        return Err(AdminError::invalid("cap_usd", "must not be below zero"));
    }
    if record.budget.is_some_and(|budget| budget.limit.is_negative()) {
        return Err(AdminError::invalid("budget.most_usd", "must not be below zero"));
    }
    for text in &record.ips {
        IpRange::parse(text).map_err(|why| AdminError::invalid("ips", why))?;
    }
    let fits = match (record.scope, &record.grants) {
        (KeyScope::Call | KeyScope::Admin, KeyGrants::All)
        | (KeyScope::Call, KeyGrants::Read)
        | (KeyScope::Admin, KeyGrants::Parts(_)) => true,
        (KeyScope::Call, KeyGrants::Parts(_)) | (KeyScope::Admin, KeyGrants::Read) => false,
    };
    if !fits {
        return Err(AdminError::invalid("scope", "is not a part of one scope"));
    }
    match record.scope {
        KeyScope::Call => Ok(()),
        KeyScope::Admin if record.cap != Some(Money::ZERO) => {
            Err(AdminError::invalid("cap_usd", "an admin key cannot spend"))
        }
        KeyScope::Admin if record.expires.is_none() => {
            Err(AdminError::invalid("expires_in", "an admin key must have an end"))
        }
        KeyScope::Admin => Ok(()),
    }
}

/// Refuses to issue or extend an admin key for an actor that has no right to one.
///
/// A key issues no admin key that outlives it. Otherwise two admin keys could extend each other for
/// ever.
fn require_may_issue_admin_key(actor: &Actor, issued: &KeyRecord) -> Result<(), AdminError> {
    let Actor::Key { account, record } = actor else { return actor.require_admin() };
    match account.role {
        AccountRole::Owner => {}
        AccountRole::Admin | AccountRole::Member | AccountRole::Viewer => {
            return Err(AdminError::forbidden(
                "only an owner creates admin keys here; use the console or \
                 `portunus keys create --scope admin`",
            ));
        }
    }
    if record.expires.is_some_and(|end| issued.expires.is_none_or(|issued| issued > end)) {
        return Err(AdminError::forbidden("an admin key cannot issue one that outlives it"));
    }
    if !record.grants.covers(&issued.grants) {
        return Err(AdminError::forbidden("an admin key cannot issue one that may do more"));
    }
    if !networks_within(&issued.ips, &record.ips) {
        return Err(AdminError::forbidden(
            "an admin key that works from some addresses cannot issue one for others",
        ));
    }
    Ok(())
}

/// Refuses an admin key for an account that does not administrate.
fn require_admin_owner(owner: &KeyOwner) -> Result<(), AdminError> {
    match owner {
        KeyOwner::Person(account) => match account.role {
            AccountRole::Owner | AccountRole::Admin => Ok(()),
            AccountRole::Member | AccountRole::Viewer => {
                Err(AdminError::invalid("scope", "this account does not administrate"))
            }
        },
        KeyOwner::Team(_) => Err(AdminError::invalid("scope", "a team does not administrate")),
    }
}

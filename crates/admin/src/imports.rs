//! Accounts, teams and keys of another gateway.
//!
//! Ids are derived from those of the other gateway, so that an object that was imported before is found
//! and left as it is. Each object is one change: a key together with its spending to date, a team together
//! with its members.

use access::keys::{KeyRehash, hash_token, letters_from, random_letters};
use aws_lc_rs::hmac;
use canon::{Micros, Money};
use ledger::{BudgetPeriod, CallOutcome, LedgerEntry};
use store::{AccountRole, AccountTerms, KeyOwner, MemberChange, RateLimits, Team, TeamRole};

use crate::account_admin::AccountAdmin;
use crate::account_terms::{limits_text, validate as validate_terms};
use crate::actor::Actor;
use crate::error::AdminError;
use crate::key_bounds::limits_of;
use crate::keys::{KeyDraft, validate as validate_key};
use crate::names;

/// Letters of the public id of a key.
const KEY_ID_LETTERS: usize = 12;
/// Format and model of the entries that sum up earlier calls.
const OPENING_WORD: &str = "imported";

/// A person of another gateway.
#[derive(Clone, Debug)]
pub struct ImportedAccount {
    /// Id of [`AccountAdmin::imported_id`].
    pub id: String,
    /// Name to sign in with.
    pub username: String,
    /// Address to sign in with and to write to.
    pub email: Option<String>,
    /// Rights in the gateway.
    pub role: AccountRole,
    /// True if the account is locked.
    pub disabled: bool,
    /// Spending terms of all keys together.
    pub terms: AccountTerms,
    /// Rate limits of all keys together.
    pub limits: RateLimits,
}

/// A team of another gateway.
#[derive(Clone, Debug)]
pub struct ImportedTeam {
    /// Id of [`AccountAdmin::imported_id`].
    pub id: String,
    /// Its name.
    pub name: String,
    /// True if the team is closed.
    pub disabled: bool,
    /// Spending terms of all keys together.
    pub terms: AccountTerms,
    /// Rate limits of all keys together.
    pub limits: RateLimits,
    /// Ids and roles of its members.
    pub members: Vec<(String, TeamRole)>,
}

/// Spending of a key before the import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpeningSpend {
    /// Before the current day, week and month.
    pub earlier: Money,
    /// In the current period of a budget.
    pub current: Money,
}

impl OpeningSpend {
    /// Returns the whole spending.
    pub const fn total(self) -> Money {
        self.earlier.saturating_add(self.current)
    }
}

/// A key of another gateway, for calls.
#[derive(Clone, Debug)]
pub struct ImportedKey {
    /// Id of [`AccountAdmin::imported_key_id`].
    pub id: String,
    /// Account or team that owns it.
    pub owner_id: String,
    /// Account that created it, if that is known.
    pub created_by: Option<String>,
    /// Name, limits and expiry.
    pub draft: KeyDraft,
    /// Stored hash of its text; `None` for one that nobody has.
    pub hash: Option<Vec<u8>>,
    /// Stored hash of its text before a rotation, and the end of it.
    pub old_hash: Option<(Vec<u8>, Micros)>,
    /// True if it may not be used.
    pub blocked: bool,
    /// Spending to date.
    pub spend: OpeningSpend,
    /// Lane that the spending is shown with.
    pub lane: String,
}

/// Effect of an import on one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportEffect {
    /// The object was made.
    Made,
    /// The object is here from an earlier import, and was left as it is.
    Known,
}

impl AccountAdmin {
    /// Returns the id of an account or a team of another gateway.
    pub fn imported_id(&self, subject: &str) -> String {
        let mut bytes = [0; 16];
        fill_derived(self.keys.pepper(), subject, 0, &mut bytes);
        uuid::Builder::from_custom_bytes(bytes).into_uuid().to_string()
    }

    /// Returns the id of a key of another gateway.
    pub fn imported_key_id(&self, subject: &str) -> String {
        let mut round = 0;
        let letters = letters_from(KEY_ID_LETTERS, |bytes| {
            round += 1;
            fill_derived(self.keys.pepper(), subject, round, bytes);
            Ok::<(), std::convert::Infallible>(())
        });
        let Ok(letters) = letters;
        letters
    }

    /// Adds an account of another gateway. It has no password.
    pub async fn import_account(
        &self,
        actor: &Actor,
        imported: ImportedAccount,
    ) -> Result<ImportEffect, AdminError> {
        require_operator(actor)?;
        let ImportedAccount { id, username, email, role, disabled, terms, limits } = imported;
        let mut change = self.store.begin_change().await?;
        if self.store.owner(&id).await?.is_some() {
            return Ok(ImportEffect::Known);
        }
        if let Some(why) = names::account_names_error(&username, email.as_deref()) {
            return Err(AdminError::invalid("name", why));
        }
        validate_terms(&terms, limits)?;
        let mut account = self.new_account(username, email, role, None);
        (account.id, account.disabled) = (id, disabled);
        change.add_account_with_terms(&account, &terms).await?;
        if limits != RateLimits::default() {
            change.set_account_limits(&account.id, limits).await?;
        }
        let detail = terms_detail(role.word(), &terms, limits);
        self.commit(change, actor, &[["account.import", &account.id, &detail]]).await?;
        Ok(ImportEffect::Made)
    }

    /// Adds a team of another gateway with its members. A member without an account here is left out.
    pub async fn import_team(
        &self,
        actor: &Actor,
        imported: ImportedTeam,
    ) -> Result<ImportEffect, AdminError> {
        require_operator(actor)?;
        let ImportedTeam { id, name, disabled, terms, limits, members } = imported;
        let mut change = self.store.begin_change().await?;
        if self.store.owner(&id).await?.is_some() {
            return Ok(ImportEffect::Known);
        }
        if let Some(why) = names::team_name_error(&name) {
            return Err(AdminError::invalid("name", why));
        }
        validate_terms(&terms, limits)?;
        let now = self.now();
        let team = Team { id, name, disabled, created: now, changed: now };
        change.add_team_with_terms(&team, &terms).await?;
        if limits != RateLimits::default() {
            change.set_account_limits(&team.id, limits).await?;
        }
        let detail = terms_detail(&team.name, &terms, limits);
        let mut seats = Vec::new();
        for (account_id, role) in &members {
            match change.set_member(&team.id, account_id, Some(*role), true, now).await? {
                MemberChange::Done => seats.push(format!("{account_id} {}", role.word())),
                MemberChange::Missing | MemberChange::LastManager => {}
            }
        }
        let mut notes = vec![["team.import", &team.id, &detail]];
        notes.extend(seats.iter().map(|seat| ["team.member", &team.id, seat.as_str()]));
        self.commit(change, actor, &notes).await?;
        Ok(ImportEffect::Made)
    }

    /// Adds a key of another gateway together with its spending to date.
    pub async fn import_key(
        &self,
        actor: &Actor,
        imported: ImportedKey,
    ) -> Result<ImportEffect, AdminError> {
        require_operator(actor)?;
        let ImportedKey { id, owner_id, created_by, draft, hash, old_hash, blocked, spend, lane } =
            imported;
        let mut change = self.store.begin_change().await?;
        if self.store.key(&id).await?.is_some() {
            return Ok(ImportEffect::Known);
        }
        let owner = self.store.owner(&owner_id).await?.ok_or(AdminError::NotFound("account"))?;
        let now = self.now();
        let hash = match hash {
            Some(hash) => hash,
            None => self.unknown_hash()?,
        };
        let mut record = draft.into_record(actor, &owner, id, hash, now);
        record.created_by = created_by;
        record.revoked = blocked.then_some(now);
        if let Some((hash, until)) = old_hash {
            (record.old_hash, record.old_until) = (Some(hash), Some(until));
        }
        record.bounds = limits_of(&record);
        validate_key(&record)?;
        change.add_key(&record).await?;
        let entries = opening_entries(&record.id, &owner, spend, &lane, now);
        change.add_opening_spend(&entries).await?;
        let detail = format!("{}, {} USD spent before", record.name, spend.total());
        self.commit(change, actor, &[["key.import", &record.id, &detail]]).await?;
        Ok(ImportEffect::Made)
    }

    /// Returns a hash that no text has.
    fn unknown_hash(&self) -> Result<Vec<u8>, AdminError> {
        let text = random_letters(64).map_err(|e| AdminError::Internal(e.to_string()))?;
        Ok(hash_token(self.keys.pepper(), &text))
    }

    /// Stores keyed hashes of imported keys whose text a call told.
    pub async fn store_key_rehashes(&self, rehashes: Vec<KeyRehash>) -> Result<(), AdminError> {
        for KeyRehash { key_id, plain, keyed } in rehashes {
            let mut change = self.store.begin_change().await?;
            if change.rehash_key(&key_id, &plain, &keyed, self.now()).await? {
                self.commit_by_gateway(change, ["key.rehash", &key_id, ""]).await?;
                self.reload_key(&key_id).await?;
            }
        }
        Ok(())
    }
}

/// Fills bytes with pseudo-random ones of the subject. The pepper keeps an id from telling the hash
/// of a key.
fn fill_derived(pepper: &hmac::Key, subject: &str, round: u8, bytes: &mut [u8]) {
    for (number, part) in (0_u8..).zip(bytes.chunks_mut(32)) {
        let mut context = hmac::Context::with_key(pepper);
        context.update(b"imported object\0");
        context.update(&[round, number]);
        context.update(subject.as_bytes());
        let tag = context.sign();
        for (byte, derived) in part.iter_mut().zip(tag.as_ref()) {
            *byte = *derived;
        }
    }
}

fn require_operator(actor: &Actor) -> Result<(), AdminError> {
    match actor {
        Actor::Operator => Ok(()),
        Actor::FirstStart | Actor::Person(_) | Actor::Key { .. } | Actor::Provisioner { .. } => {
            Err(AdminError::forbidden("only the operator imports"))
        }
    }
}

fn terms_detail(word: &str, terms: &AccountTerms, limits: RateLimits) -> String {
    format!("{word}, {terms}, {}", limits_text(limits))
}

/// Returns the entries of the ledger that stand for earlier calls: one before all current periods, and
/// one at the begin of this day, which every current period counts.
fn opening_entries(
    key_id: &str,
    owner: &KeyOwner,
    spend: OpeningSpend,
    lane: &str,
    now: Micros,
) -> Vec<LedgerEntry> {
    let begin = |period: BudgetPeriod| period.bounds(now).0;
    let periods = BudgetPeriod::ALL.map(begin);
    let before = periods.into_iter().min().unwrap_or(now) - Micros::from_days(1);
    let parts =
        [("earlier", spend.earlier, before), ("current", spend.current, begin(BudgetPeriod::Day))];
    let parts = parts.into_iter().filter(|(_, cost, _)| *cost > Money::ZERO);
    let entries = parts.map(|(word, cost, at)| LedgerEntry {
        request_id: format!("imported-{key_id}-{word}").into(),
        key_id: key_id.into(),
        account_id: owner.id().into(),
        started: at,
        ended: at,
        dialect: OPENING_WORD.into(),
        model: OPENING_WORD.into(),
        lane: lane.into(),
        attempts: 1,
        status: 200,
        outcome: CallOutcome::Done,
        cost,
        held: Some(cost),
        price_version: OPENING_WORD.into(),
        ..LedgerEntry::default()
    });
    entries.collect()
}

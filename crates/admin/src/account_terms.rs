//! Spending terms and rate limits of an account or a team.

use access::keys::budget_json;
use canon::Money;
use serde_json::{Value, json};
use store::{AccountTerms, KeyBounds, KeyOwner, RateLimits};

use crate::account_admin::AccountAdmin;
use crate::actor::Actor;
use crate::error::AdminError;
use crate::key_bounds::{BoundRole, require_within};
use crate::version::{ReadVersion, version_of};

/// Maximum number of models in a list.
const MAX_MODELS: usize = 200;

/// Spending terms and rate limits of an account.
#[derive(Clone, Debug)]
pub struct TermsView {
    /// Id of the account.
    pub id: String,
    /// Spending terms of all keys together.
    pub terms: AccountTerms,
    /// Rate limits of all keys together.
    pub limits: RateLimits,
    /// Money spent.
    pub spent: Money,
}

impl TermsView {
    /// The part that only administration changes. The version is computed from it.
    pub fn stable_json(&self) -> Value {
        json!({
            "id": self.id,
            "cap_usd": self.terms.cap.map(|cap| cap.to_string()),
            "budget": self.terms.budget.map(budget_json),
            "limits": limits_json(self.limits),
            "share": self.terms.share.word(),
            "models": self.terms.models,
        })
    }

    /// The whole description.
    pub fn to_json(&self) -> Value {
        with_field(self.stable_json(), "spent_usd", self.spent.to_string())
    }

    /// Version of the terms, for [`ReadVersion`].
    pub fn version(&self) -> String {
        version_of(&self.stable_json())
    }
}

pub(crate) fn limits_json(limits: RateLimits) -> Value {
    let RateLimits { rpm, tpm, concurrency } = limits;
    json!({ "rpm": rpm, "tpm": tpm, "concurrency": concurrency })
}

/// Describes rate limits for the audit log.
pub(crate) fn limits_text(limits: RateLimits) -> String {
    let RateLimits { rpm, tpm, concurrency } = limits;
    let all = [("rpm", rpm), ("tpm", tpm), ("concurrency", concurrency)];
    let set = all.iter().filter_map(|(name, limit)| limit.map(|limit| format!("{name} {limit}")));
    let texts: Vec<String> = set.collect();
    if texts.is_empty() { "no rate limits".to_owned() } else { texts.join(", ") }
}

pub(crate) fn with_field(mut object: Value, name: &str, value: impl Into<Value>) -> Value {
    if let Value::Object(fields) = &mut object {
        fields.insert(name.to_owned(), value.into());
    }
    object
}

/// Returns the value of an account, or the default.
pub(crate) fn value_of<T: Clone + Default>(all: &[(String, T)], id: &str) -> T {
    all.iter().find(|(own, _)| own == id).map(|(_, found)| found.clone()).unwrap_or_default()
}

impl AccountAdmin {
    /// Returns the terms of an account, for administrators.
    pub async fn account_terms(&self, actor: &Actor, id: &str) -> Result<TermsView, AdminError> {
        let account = self.user(actor, id).await?;
        self.load_terms(&account.id).await
    }

    /// Replaces the terms of an account.
    pub async fn set_account_terms(
        &self,
        actor: &Actor,
        id: &str,
        read: ReadVersion<'_>,
        terms: AccountTerms,
        limits: RateLimits,
    ) -> Result<TermsView, AdminError> {
        let mut change = self.store.begin_change().await?;
        let account = self.user_for_change(actor, id).await?;
        let before = self.load_terms(&account.id).await?;
        read.check(&before.stable_json())?;
        validate(&terms, limits)?;
        match BoundRole::of(actor, &KeyOwner::Person(account.clone())) {
            BoundRole::Sets | BoundRole::Free => {}
            BoundRole::Obeys => {
                let bounds = bounds_of(&before.terms, before.limits);
                require_within(&bounds_of(&terms, limits), &bounds)?;
            }
        }
        let (terms_text, limits_text) = (terms.to_string(), limits_text(limits));
        let mut notes = Vec::new();
        if terms != before.terms {
            change.set_account_terms(&account.id, &terms).await?;
            notes.push(["account.terms", &account.id, &terms_text]);
        }
        if limits != before.limits {
            change.set_account_limits(&account.id, limits).await?;
            notes.push(["account.limits", &account.id, &limits_text]);
        }
        if !notes.is_empty() {
            self.commit(change, actor, &notes).await?;
        }
        self.load_terms(&account.id).await
    }

    /// Refuses terms of a team that are wider than those of the administrator who sets them, who
    /// could otherwise leave the own limits with a key of that team.
    pub(crate) async fn require_within_own_terms(
        &self,
        actor: &Actor,
        team: &TermsView,
    ) -> Result<(), AdminError> {
        let Some(account) = actor.account() else { return Ok(()) };
        match BoundRole::of(actor, &KeyOwner::Person(account.clone())) {
            BoundRole::Sets | BoundRole::Free => Ok(()),
            BoundRole::Obeys => {
                let own = self.load_terms(&account.id).await?;
                let own = bounds_of(&own.terms, own.limits);
                require_within(&bounds_of(&team.terms, team.limits), &own)
            }
        }
    }

    /// Loads the terms of an account or a team.
    pub(crate) async fn load_terms(&self, id: &str) -> Result<TermsView, AdminError> {
        let terms = value_of(&self.store.account_terms().await?, id);
        let limits = value_of(&self.store.account_limits().await?, id);
        let (spent, _) = self.store.account_spending(id).await?;
        Ok(TermsView { id: id.to_owned(), terms, limits, spent })
    }
}

/// The limits of an account or a team in the form in which limits are compared.
fn bounds_of(terms: &AccountTerms, limits: RateLimits) -> KeyBounds {
    let AccountTerms { cap, budget, share: _, models } = terms;
    let (cap, budget, models) = (*cap, *budget, models.clone());
    KeyBounds { cap, budget, models, limits, ..KeyBounds::default() }
}

/// Checks the rules that hold for all terms.
pub(crate) fn validate(terms: &AccountTerms, limits: RateLimits) -> Result<(), AdminError> {
    if terms.cap.is_some_and(Money::is_negative) {
        return Err(AdminError::invalid("cap_usd", "must not be below zero"));
    }
    if terms.budget.is_some_and(|budget| budget.limit.is_negative()) {
        return Err(AdminError::invalid("budget.most_usd", "must not be below zero"));
    }
    if terms.models.len() > MAX_MODELS || terms.models.iter().any(String::is_empty) {
        return Err(AdminError::invalid("models", "must be up to 200 ids of models"));
    }
    let RateLimits { rpm, tpm, concurrency } = limits;
    let limits = [("limits.rpm", rpm), ("limits.tpm", tpm), ("limits.concurrency", concurrency)];
    match limits.into_iter().find(|(_, limit)| *limit == Some(0)) {
        Some((field, _)) => {
            Err(AdminError::invalid(field, "must be above zero; leave it out for no limit"))
        }
        None => Ok(()),
    }
}

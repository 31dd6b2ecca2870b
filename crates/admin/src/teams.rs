//! Teams: create, change, close.

use access::keys::budget_json;
use canon::Money;
use serde_json::{Value, json};
use store::{AccountTerms, BudgetTerms, ObjectSharing, RateLimits, Team, TeamMember};

use crate::account_admin::AccountAdmin;
use crate::account_terms::{TermsView, limits_json, limits_text, validate, value_of, with_field};
use crate::actor::Actor;
use crate::error::AdminError;
use crate::names;
use crate::rights::TeamAction;
use crate::time_text::rfc3339;
use crate::version::ReadVersion;

/// A new team or a change of one. A field that is `None` stays as it is.
#[derive(Clone, Debug, Default)]
#[expect(missing_docs, reason = "the fields are those of `Team`, `AccountTerms` and `RateLimits`")]
pub struct TeamChange {
    pub name: Option<String>,
    pub disabled: Option<bool>,
    pub cap: Option<Option<Money>>,
    pub budget: Option<Option<BudgetTerms>>,
    pub limits: Option<RateLimits>,
    pub share: Option<ObjectSharing>,
    pub models: Option<Vec<String>>,
}

/// A team with everything that can be changed about it.
#[derive(Clone, Debug)]
pub struct TeamView {
    /// The team.
    pub team: Team,
    /// Its members.
    pub members: Vec<TeamMember>,
    /// Its spending terms and rate limits.
    pub terms: TermsView,
}

/// A team in a list.
#[derive(Clone, Debug)]
pub struct TeamSummary {
    /// The team.
    pub team: Team,
    /// Number of its members.
    pub member_count: u32,
    /// Its spending terms and rate limits.
    pub terms: TermsView,
}

impl TeamView {
    /// The part that only administration changes. The version is computed from it. Calls change
    /// the spent amount, but not the team.
    pub fn stable_json(&self) -> Value {
        let members = self.members.iter().map(|TeamMember { account, role, since }| {
            json!({
                "account_id": account.id,
                "name": account.username,
                "role": role.word(),
                "disabled": account.disabled,
                "since": rfc3339(*since),
            })
        });
        with_field(team_json(&self.team, &self.terms), "members", members.collect::<Value>())
    }

    /// The whole description.
    pub fn to_json(&self) -> Value {
        with_field(self.stable_json(), "spent_usd", self.terms.spent.to_string())
    }
}

impl TeamSummary {
    /// The whole description.
    pub fn to_json(&self) -> Value {
        let object = team_json(&self.team, &self.terms);
        let object = with_field(object, "spent_usd", self.terms.spent.to_string());
        with_field(object, "member_count", self.member_count)
    }
}

/// JSON of the part of a team that can be changed.
fn team_json(team: &Team, terms: &TermsView) -> Value {
    let AccountTerms { cap, budget, share, models } = &terms.terms;
    json!({
        "id": team.id,
        "name": team.name,
        "disabled": team.disabled,
        "cap_usd": cap.map(|cap| cap.to_string()),
        "budget": budget.map(budget_json),
        "limits": limits_json(terms.limits),
        "share": share.word(),
        "models": models,
        "created_at": rfc3339(team.created),
    })
}

impl TeamChange {
    /// Applies the change to a team and its terms.
    fn apply(self, team: &mut Team, terms: &mut TermsView) -> Result<(), AdminError> {
        let Self { name, disabled, cap, budget, limits, share, models } = self;
        if let Some(name) = name {
            if let Some(why) = names::team_name_error(&name) {
                return Err(AdminError::invalid("name", why));
            }
            team.name = name;
        }
        team.disabled = disabled.unwrap_or(team.disabled);
        terms.terms.cap = cap.unwrap_or(terms.terms.cap);
        terms.terms.budget = budget.unwrap_or(terms.terms.budget);
        terms.terms.share = share.unwrap_or(terms.terms.share);
        if let Some(models) = models {
            terms.terms.models = models;
        }
        terms.limits = limits.unwrap_or(terms.limits);
        validate(&terms.terms, terms.limits)
    }
}

/// Describes changed terms for the audit log; `None` if they are the same.
fn changed_terms(before: &TermsView, after: &TermsView) -> Option<String> {
    let terms = (after.terms != before.terms).then(|| after.terms.to_string());
    let limits = (after.limits != before.limits).then(|| limits_text(after.limits));
    let changes: Vec<String> = terms.into_iter().chain(limits).collect();
    (!changes.is_empty()).then(|| changes.join(", "))
}

impl AccountAdmin {
    /// Returns all teams, for administrators.
    pub async fn teams(&self, actor: &Actor) -> Result<Vec<TeamSummary>, AdminError> {
        actor.require_admin()?;
        let terms = self.store.account_terms().await?;
        let limits = self.store.account_limits().await?;
        let teams = self.store.teams().await?.into_iter().map(|total| TeamSummary {
            member_count: total.members,
            terms: TermsView {
                id: total.team.id.clone(),
                terms: value_of(&terms, &total.team.id),
                limits: value_of(&limits, &total.team.id),
                spent: total.spent,
            },
            team: total.team,
        });
        Ok(teams.collect())
    }

    /// Returns a team, for administrators and its members.
    pub async fn team(&self, actor: &Actor, id: &str) -> Result<TeamView, AdminError> {
        self.team_for(actor, id, TeamAction::View).await
    }

    /// Creates a team. A team has its own cap, so only administrators create one: a member could
    /// spend past his own cap with it.
    pub async fn create_team(
        &self,
        actor: &Actor,
        change: TeamChange,
    ) -> Result<TeamView, AdminError> {
        actor.require_admin()?;
        if change.name.is_none() {
            return Err(AdminError::invalid("name", "is required"));
        }
        let now = self.now();
        let id = uuid::Uuid::now_v7().to_string();
        let mut team = Team {
            id: id.clone(),
            name: String::new(),
            disabled: false,
            created: now,
            changed: now,
        };
        let blank = TermsView {
            id,
            terms: AccountTerms::default(),
            limits: RateLimits::default(),
            spent: Money::ZERO,
        };
        let mut terms = blank.clone();
        change.apply(&mut team, &mut terms)?;
        self.require_within_own_terms(actor, &terms).await?;
        let mut store_change = self.store.begin_change().await?;
        store_change.add_team_with_terms(&team, &terms.terms).await?;
        if terms.limits != blank.limits {
            store_change.set_account_limits(&team.id, terms.limits).await?;
        }
        let detail = changed_terms(&blank, &terms);
        let mut notes = vec![["team.create", &team.id, &team.name]];
        notes.extend(detail.as_deref().map(|detail| ["team.terms", &team.id, detail]));
        self.commit(store_change, actor, &notes).await?;
        self.load_team(&team.id).await
    }

    /// Changes a team, closes it or opens it again. Closing applies to its keys at once.
    pub async fn change_team(
        &self,
        actor: &Actor,
        id: &str,
        read: ReadVersion<'_>,
        change: TeamChange,
    ) -> Result<TeamView, AdminError> {
        actor.require_admin()?;
        let mut store_change = self.store.begin_change().await?;
        let before = self.load_team(id).await?;
        read.check(&before.stable_json())?;
        let (mut team, mut terms) = (before.team.clone(), before.terms.clone());
        change.apply(&mut team, &mut terms)?;
        if changed_terms(&before.terms, &terms).is_some() {
            self.require_within_own_terms(actor, &terms).await?;
        }
        let mut notes = Vec::new();
        if team.name != before.team.name {
            store_change.rename_account(id, &team.name, None, self.now()).await?;
            notes.push(["team.rename", id, &team.name]);
        }
        if terms.terms != before.terms.terms {
            store_change.set_account_terms(id, &terms.terms).await?;
        }
        if terms.limits != before.terms.limits {
            store_change.set_account_limits(id, terms.limits).await?;
        }
        let detail = changed_terms(&before.terms, &terms);
        notes.extend(detail.as_deref().map(|detail| ["team.terms", id, detail]));
        let toggled = team.disabled != before.team.disabled;
        if toggled {
            store_change.set_disabled(id, team.disabled, self.now()).await?;
            let action = if team.disabled { "team.disable" } else { "team.enable" };
            notes.push([action, id, &before.team.name]);
        }
        if !notes.is_empty() {
            self.commit(store_change, actor, &notes).await?;
        }
        if toggled {
            self.reload_keys_of(id).await?;
        }
        self.load_team(id).await
    }

    pub(crate) async fn load_team(&self, id: &str) -> Result<TeamView, AdminError> {
        let team = self.store.team(id).await?.ok_or(AdminError::NotFound("team"))?;
        let members = self.store.members(&team.id).await?;
        Ok(TeamView { terms: self.load_terms(&team.id).await?, members, team })
    }
}

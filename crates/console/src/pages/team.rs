//! One team: members, keys, spending terms.

use std::cmp::Reverse;
use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use canon::Money;
use http::StatusCode;
use ledger::BudgetPeriod;
use maud::{Markup, html};
use store::{AccountTerms, BudgetTerms, KeyStanding, RateLimits, StoreError, Team};

use super::key_form::{self, MAX_FIELD_BYTES};
use super::key_list::{self, KeyOwners, KeyTable, spent_of_cap};
use super::{members, teams};
use crate::display;
use crate::form::{FieldErrors, FormFields, FormInput};
use crate::layout::{Layout, page};
use crate::page_error::PageError;
use crate::redirect::redirect_to;
use crate::session::SignedInUser;
use crate::shared_fields::{error_summary, read_share, read_version, share_field, version_field};
use crate::state::ConsoleState;
use crate::viewer_time::ViewerClock;
use admin::{
    AdminError, ReadVersion, TeamAction, TeamChange, TeamView, TermsView, names, version_of,
};

/// Keys on the page. The others are in the list of keys.
const MAX_SHOWN_KEYS: usize = 25;
const NAME_TAKEN: &str = "This name is taken by a team or somebody's account.";

pub(super) fn page_path(team: &Team) -> String {
    format!("{}/{}", teams::PAGE_PATH, crate::urls::escape_value(&team.id))
}

/// Badge with the team's state.
pub(super) fn state_badge(team: &Team) -> Markup {
    html! {
        @if team.disabled { span.badge.off { "Closed" } }
        @else { span.badge.good { "Open" } }
    }
}

/// Name, spending terms and limits of a team.
pub(super) struct TeamTerms {
    pub(super) name: String,
    spending: AccountTerms,
    limits: RateLimits,
}

impl TeamTerms {
    /// Reads the form and adds errors to the list.
    pub(super) fn read(fields: &FormFields, errors: &mut FieldErrors) -> Result<Self, PageError> {
        let text = |field| fields.get_single(field, MAX_FIELD_BYTES);
        let name = text("name")?.to_owned();
        if let Some(why) = names::team_name_error(&name) {
            errors.add("name", why);
        }
        let cap = text("cap")?;
        let cap = key_form::parse_cap(cap, cap.is_empty());
        let budget = key_form::parse_budget(text("budget")?, text("budget_period")?);
        let limit = |field| text(field).map(key_form::parse_limit);
        let (rpm, tpm, concurrency) = (limit("rpm")?, limit("tpm")?, limit("concurrency")?);
        Ok(Self {
            name,
            spending: AccountTerms {
                cap: ok_or_error("cap", cap, errors),
                budget: ok_or_error("budget", budget, errors),
                share: read_share(fields),
                models: key_form::parse_list(fields.get("models")),
            },
            limits: RateLimits {
                rpm: ok_or_error("rpm", rpm, errors),
                tpm: ok_or_error("tpm", tpm, errors),
                concurrency: ok_or_error("concurrency", concurrency, errors),
            },
        })
    }

    /// Terms of a team as they are stored.
    fn of(view: &TeamView) -> Self {
        let TermsView { terms, limits, .. } = view.terms.clone();
        Self { name: view.team.name.clone(), spending: terms, limits }
    }

    pub(super) fn into_change(self) -> TeamChange {
        TeamChange {
            name: Some(self.name),
            disabled: None,
            cap: Some(self.spending.cap),
            budget: Some(self.spending.budget),
            limits: Some(self.limits),
            share: Some(self.spending.share),
            models: Some(self.spending.models),
        }
    }

    fn fields(&self) -> FormFields {
        let number = |n: Option<u32>| n.map_or_else(String::new, |n| n.to_string());
        let AccountTerms { cap, budget, share, models } = &self.spending;
        let RateLimits { rpm, tpm, concurrency } = self.limits;
        FormFields::prefilled(vec![
            ("name", self.name.clone()),
            ("cap", cap.map_or_else(String::new, key_form::plain_amount)),
            ("budget", budget.map_or_else(String::new, |b| key_form::plain_amount(b.limit))),
            ("budget_period", budget.map_or("", |b| b.period.word()).to_owned()),
            ("rpm", number(rpm)),
            ("tpm", number(tpm)),
            ("concurrency", number(concurrency)),
            ("share", share.word().to_owned()),
            ("models", models.join("\n")),
        ])
    }
}

fn ok_or_error<T>(
    field: &'static str,
    read: Result<Option<T>, &'static str>,
    errors: &mut FieldErrors,
) -> Option<T> {
    read.unwrap_or_else(|why| {
        errors.add(field, why);
        None
    })
}

/// Form of a team's terms.
pub(super) fn terms_form(fields: &FormFields, errors: &FieldErrors) -> Markup {
    html! {
        (FormInput {
            name: "name",
            label: "Name",
            value: fields.get("name"),
            required: true,
            ..FormInput::default()
        }.render(errors))
        (FormInput {
            name: "cap",
            label: "Spending cap in US dollars",
            value: fields.get("cap"),
            input_mode: Some("decimal"),
            help: Some("All keys of the team together never pass it. Leave empty for no cap."),
            ..FormInput::default()
        }.render(errors))
        (key_form::limit_fields(fields, errors))
        (key_form::list_field("models", "Models", "One id per line. Leave empty to allow every model.",
            fields, errors))
        (share_field(fields))
    }
}

/// Returns the team named in the path, if the user may see it.
pub(super) async fn find(
    state: &ConsoleState,
    user: &SignedInUser,
    id: Result<Path<String>, PathRejection>,
) -> Result<Team, PageError> {
    let Path(id) = id.map_err(|_| PageError::NotFound)?;
    user.find_team(state, &id).await
}

/// `GET /console/teams/{id}`
pub(crate) async fn show(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, PageError> {
    let team = find(&state, &user, id).await?;
    let (fields, errors) = (FormFields::default(), FieldErrors::default());
    render_page(&state, user, team, StatusCode::OK, &fields, &errors).await
}

/// `POST /console/teams/{id}`: changes name and terms.
pub(crate) async fn change(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    id: Result<Path<String>, PathRejection>,
    fields: FormFields,
) -> Result<Response, PageError> {
    let team = find(&state, &user, id).await?;
    if !user.may_in(&team, TeamAction::ManageTerms) {
        return Err(PageError::Forbidden);
    }
    let mut errors = FieldErrors::default();
    let terms = TeamTerms::read(&fields, &mut errors)?;
    if errors.is_empty() {
        let (actor, read) = (user.actor(), read_version(&fields));
        let changed =
            state.host.accounts().change_team(&actor, &team.id, read, terms.into_change()).await;
        match changed {
            Ok(_) => return Ok(redirect_to(&page_path(&team))),
            Err(error) => add_refusal(&mut errors, error)?,
        }
    }
    render_page(&state, user, team, StatusCode::BAD_REQUEST, &fields, &errors).await
}

/// Adds the reason for which a team was refused to the form.
pub(super) fn add_refusal(errors: &mut FieldErrors, error: AdminError) -> Result<(), PageError> {
    match error {
        AdminError::Invalid { field, message } => errors.add_api_field(&field, message),
        AdminError::Store(StoreError::Conflict(_)) => errors.add("name", NAME_TAKEN),
        AdminError::Stale => errors.add("", error.to_string()),
        error => return Err(error.into()),
    }
    Ok(())
}

/// `POST /console/teams/{id}/close`
pub(crate) async fn close(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, PageError> {
    set_disabled(&state, &user, id, true).await
}

/// `POST /console/teams/{id}/open`
pub(crate) async fn open(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, PageError> {
    set_disabled(&state, &user, id, false).await
}

async fn set_disabled(
    state: &ConsoleState,
    user: &SignedInUser,
    id: Result<Path<String>, PathRejection>,
    disabled: bool,
) -> Result<Response, PageError> {
    let team = find(state, user, id).await?;
    let change = TeamChange { disabled: Some(disabled), ..TeamChange::default() };
    let (actor, read) = (user.actor(), ReadVersion::default());
    state.host.accounts().change_team(&actor, &team.id, read, change).await?;
    Ok(redirect_to(&page_path(&team)))
}

/// Renders the page, with the errors of a rejected form.
pub(super) async fn render_page(
    state: &ConsoleState,
    mut user: SignedInUser,
    team: Team,
    status: StatusCode,
    fields: &FormFields,
    errors: &FieldErrors,
) -> Result<Response, PageError> {
    // A team's page always acts for that team.
    user.team = Some(team.clone());
    let clock = &user.clock(state);
    let view = state.host.accounts().team(&user.actor(), &team.id).await?;
    let mut keys = state.store.keys_of(&team.id).await?;
    keys.sort_by_key(|key| (KeyStanding::of(key, clock.now), Reverse(key.created)));
    let terms = TeamTerms::of(&view);
    let lately = match terms.spending.budget {
        Some(budget) => {
            let (_, sum) = state.store.account_spent_in(&team.id, budget.period, clock.now).await?;
            let (begun, _) = budget.period.bounds(clock.now);
            Some((sum, budget, budget.period.forecast(begun, clock.now, sum)))
        }
        None => None,
    };
    let shown = keys.get(..MAX_SHOWN_KEYS).unwrap_or(&keys);
    let key_owners = KeyOwners::load(state, &user, shown).await?;
    let own = terms.fields();
    let filled = if fields.contains("cap") { fields } else { &own };
    let body = html! {
        p.crumbs { a href=(teams::PAGE_PATH) { "Teams" } " / " bdi { (team.name) } }
        div.title {
            h1 { bdi { (team.name) } " " (state_badge(&team)) }
            div.actions {
                a.button.quiet href=(user.path_for("/console/activity")) { "Activity" }
                @if user.may_create_keys() {
                    a.button href=(user.path_for("/console/keys/new")) { "New key" }
                }
            }
        }
        (spend_figures(view.terms.spent, terms.spending.cap, lately, terms.limits, clock))
        section {
            h2 { "Members" }
            (members::table(&team, &view.members, &keys, &user, clock))
        }
        section {
            h2 { "Keys" }
            @if keys.is_empty() {
                div.empty { h3 { "No keys yet" } p { "Keys made for the team are listed here." } }
            } @else {
                (KeyTable { user: &user, owners: &key_owners, clock }.render(shown))
                @if shown.len() < keys.len() {
                    p { a href=(user.path_for(key_list::PAGE_PATH)) { "All " (keys.len()) " keys" } }
                }
            }
        }
        div.columns {
            @if user.may_in(&team, TeamAction::ManageMembers) {
                section.card { (members::add_form(&team, &user, fields, errors)) }
            }
            @if user.may_in(&team, TeamAction::ManageTerms) {
                section.card {
                    h2 { "Name, cap and limits" }
                    @if fields.contains("cap") { (error_summary(errors)) }
                    form method="post" action=(page_path(&team)) {
                        (version_field(&version_of(&view.stable_json())))
                        (terms_form(filled, errors))
                        button.button type="submit" { "Save" }
                    }
                    (close_or_open_form(&team))
                }
            }
        }
    };
    Ok(page(status, &Layout::signed_in(&team.name, &user).with_nav(teams::PAGE_PATH), &body))
}

fn spend_figures(
    total: Money,
    cap: Option<Money>,
    lately: Option<(Money, BudgetTerms, Option<Money>)>,
    limits: RateLimits,
    clock: &ViewerClock,
) -> Markup {
    let RateLimits { rpm, tpm, concurrency } = limits;
    let limits =
        [(rpm, "Requests per minute"), (tpm, "Tokens per minute"), (concurrency, "Calls at once")];
    html! {
        dl.figures {
            div { dt { "Total spend" } dd.spent { (spent_of_cap(total, cap)) } }
            @if let Some((sum, BudgetTerms { limit, period }, forecast)) = lately {
                div {
                    dt { (period_label(period)) }
                    dd.spent { (spent_of_cap(sum, Some(limit))) }
                    dd.change { "begins anew " (clock.zone.timestamp(period.end(clock.now))) }
                }
                @if let Some(forecast) = forecast {
                    div { dt { "At this pace" } dd { (display::money(forecast)) } }
                }
            }
            @for (limit, title) in limits {
                @if let Some(limit) = limit {
                    div { dt { (title) } dd { (display::count(u64::from(limit))) } }
                }
            }
        }
    }
}

const fn period_label(period: BudgetPeriod) -> &'static str {
    match period {
        BudgetPeriod::Day => "Spent today",
        BudgetPeriod::Week => "Spent this week",
        BudgetPeriod::Month => "Spent this month",
    }
}

/// Form that closes or reopens a team.
fn close_or_open_form(team: &Team) -> Markup {
    html! {
        @if team.disabled {
            form method="post" action={ (page_path(team)) "/open" } {
                p.help { "The team is closed: its keys do not work." }
                button.button.quiet type="submit" { "Open the team again" }
            }
        } @else {
            form method="post" action={ (page_path(team)) "/close" } {
                p.help { "Closing the team stops its keys at once, running streams included. What it "
                    "spent stays on the books, and it can be opened again." }
                button.button.harm type="submit" { "Close the team" }
            }
        }
    }
}

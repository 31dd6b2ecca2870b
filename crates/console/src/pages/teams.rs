//! List of teams, and creation of a team.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use maud::{Markup, html};
use store::{AccountTerms, TeamTotal};

use super::key_list::spent_of_cap;
use super::team::{self, TeamTerms};
use crate::form::{FieldErrors, FormFields, QueryFields};
use crate::layout::{Layout, page};
use crate::list_view::{ListView, ORDER, TEXT};
use crate::page_error::PageError;
use crate::redirect::redirect_to;
use crate::session::SignedInUser;
use crate::shared_fields::error_summary;
use crate::state::ConsoleState;

pub(super) const PAGE_PATH: &str = "/console/teams";

/// `GET /console/teams`
pub(crate) async fn show(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    QueryFields(query): QueryFields,
) -> Result<Response, PageError> {
    let (fields, errors) = (FormFields::default(), FieldErrors::default());
    list(&state, &user, StatusCode::OK, &query, (&fields, &errors)).await
}

/// `POST /console/teams`
pub(crate) async fn create(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    fields: FormFields,
) -> Result<Response, PageError> {
    // A team has its own cap, so creating teams would bypass the user's cap.
    if !user.is_administrator() {
        return Err(PageError::Forbidden);
    }
    let (none, mut errors) = (FormFields::default(), FieldErrors::default());
    let terms = TeamTerms::read(&fields, &mut errors)?;
    if !errors.is_empty() {
        return list(&state, &user, StatusCode::BAD_REQUEST, &none, (&fields, &errors)).await;
    }
    match state.host.accounts().create_team(&user.actor(), terms.into_change()).await {
        Ok(view) => Ok(redirect_to(&team::page_path(&view.team))),
        Err(error) => {
            team::add_refusal(&mut errors, error)?;
            list(&state, &user, StatusCode::BAD_REQUEST, &none, (&fields, &errors)).await
        }
    }
}

async fn list(
    state: &ConsoleState,
    user: &SignedInUser,
    status: StatusCode,
    query: &FormFields,
    (fields, errors): (&FormFields, &FieldErrors),
) -> Result<Response, PageError> {
    let view = ListView { path: PAGE_PATH, query, parameters: &[TEXT, ORDER] };
    let mut teams = state.store.teams().await?;
    teams.retain(|total| user.is_administrator() || user.role_in(&total.team.id).is_some());
    let is_none = teams.is_empty();
    if let Some(text) = view.text()? {
        let text = text.to_lowercase();
        teams.retain(|total| total.team.name.to_lowercase().contains(&text));
    }
    let order = TeamOrder::by_word(query.get(ORDER));
    order.sort(&mut teams);
    let total = teams.len() as u64;
    if let Some(last) = view.last_page(total) {
        return Ok(redirect_to(&last));
    }
    let (before, rows) = view.rows();
    let shown = teams.into_iter().skip(usize::try_from(before).unwrap_or(usize::MAX));
    let teams: Vec<TeamTotal> = shown.take(rows as usize).collect();
    let terms: HashMap<_, _> = state.store.account_terms().await?.into_iter().collect();
    let body = html! {
        div.title { h1 { "Teams" } }
        @if is_none {
            div.empty {
                h2 { "No teams" }
                p { "Members of a team share its keys, its cap and its budget. "
                    @if user.is_administrator() { "Make the first one below." }
                    @else { "You belong to none; a team manager can add you." } }
            }
        } @else {
            (view.search_form("Name", &TeamOrder::ALL.map(|one| (one.word(), one.label())), order.word()))
            @if teams.is_empty() {
                div.empty {
                    h2 { "No matching teams" }
                    p { "Another search shows more. " a href=(PAGE_PATH) { "Show all teams" } }
                }
            } @else {
                (table(&view, order, &teams, &terms, user))
                (view.pager("Pages of teams", total))
            }
        }
        @if user.is_administrator() {
            section.card {
                h2 { "New team" }
                (error_summary(errors))
                form method="post" action=(PAGE_PATH) {
                    (team::terms_form(fields, errors))
                    button.button type="submit" { "Create the team" }
                }
            }
        }
    };
    Ok(page(status, &Layout::signed_in("Teams", user).with_nav(PAGE_PATH), &body))
}

/// The order of the list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TeamOrder {
    Name,
    Spent,
    Members,
    Created,
}

impl TeamOrder {
    const ALL: [Self; 4] = [Self::Name, Self::Spent, Self::Members, Self::Created];

    const fn word(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Spent => "spent",
            Self::Members => "members",
            Self::Created => "created",
        }
    }

    const fn label(self) -> &'static str {
        match self {
            Self::Name => "Name",
            Self::Spent => "Spent",
            Self::Members => "Members",
            Self::Created => "Newest",
        }
    }

    fn by_word(word: &str) -> Self {
        Self::ALL.into_iter().find(|order| order.word() == word).unwrap_or(Self::Name)
    }

    fn sort(self, teams: &mut [TeamTotal]) {
        // The newest first among equals.
        teams.reverse();
        match self {
            Self::Name => teams.sort_by_cached_key(|total| total.team.name.to_lowercase()),
            Self::Spent => teams.sort_by_key(|total| Reverse(total.spent)),
            Self::Members => teams.sort_by_key(|total| Reverse(total.members)),
            Self::Created => {}
        }
    }
}

fn table(
    view: &ListView<'_>,
    order: TeamOrder,
    teams: &[TeamTotal],
    terms: &HashMap<String, AccountTerms>,
    user: &SignedInUser,
) -> Markup {
    let heading = |of: TeamOrder| view.heading(of.word(), of.label(), order == of);
    html! {
        div.sheet {
            table.list {
                thead { tr {
                    (heading(TeamOrder::Name))
                    (heading(TeamOrder::Spent))
                    (heading(TeamOrder::Members))
                    th scope="col" { "Your role" }
                    th scope="col" { "State" }
                } }
                tbody {
                    @for total in teams {
                        @let TeamTotal { team, spent: all, members } = total;
                        tr.off[team.disabled] {
                            th scope="row" { a href=(team::page_path(team)) { bdi { (team.name) } } }
                            td.spent data-label="Spent" {
                                (spent_of_cap(*all, terms.get(&team.id).and_then(|terms| terms.cap)))
                            }
                            td data-label="Members" { (members) }
                            td data-label="Your role" {
                                @match user.role_in(&team.id) {
                                    Some(role) => (role.word()),
                                    None => span.muted { "none" },
                                }
                            }
                            td data-label="State" { (team::state_badge(team)) }
                        }
                    }
                }
            }
        }
    }
}

//! List of teams, and creation of a team.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use maud::{Markup, html};
use store::{AccountTerms, TeamTotal};

use super::overview::spent_of_cap;
use super::team::{self, TeamTerms};
use crate::form::{FieldErrors, FormFields};
use crate::layout::{Layout, page};
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
) -> Result<Response, PageError> {
    list(&state, &user, StatusCode::OK, &FormFields::default(), &FieldErrors::default()).await
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
    let mut errors = FieldErrors::default();
    let terms = TeamTerms::read(&fields, &mut errors)?;
    if !errors.is_empty() {
        return list(&state, &user, StatusCode::BAD_REQUEST, &fields, &errors).await;
    }
    match state.host.accounts().create_team(&user.actor(), terms.into_change()).await {
        Ok(view) => Ok(redirect_to(&team::page_path(&view.team))),
        Err(error) => {
            team::add_refusal(&mut errors, error)?;
            list(&state, &user, StatusCode::BAD_REQUEST, &fields, &errors).await
        }
    }
}

async fn list(
    state: &ConsoleState,
    user: &SignedInUser,
    status: StatusCode,
    fields: &FormFields,
    errors: &FieldErrors,
) -> Result<Response, PageError> {
    let mut teams = state.store.teams().await?;
    teams.retain(|total| user.is_administrator() || user.role_in(&total.team.id).is_some());
    let terms: HashMap<_, _> = state.store.account_terms().await?.into_iter().collect();
    let body = html! {
        div.title { h1 { "Teams" } }
        @if teams.is_empty() {
            div.empty {
                h2 { "No teams" }
                p { "Members of a team share its keys, its cap and its budget. "
                    @if user.is_administrator() { "Make the first one below." }
                    @else { "You belong to none; a team manager can add you." } }
            }
        } @else {
            (table(&teams, &terms, user))
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

fn table(
    teams: &[TeamTotal],
    terms: &HashMap<String, AccountTerms>,
    user: &SignedInUser,
) -> Markup {
    html! {
        div.sheet {
            table.list {
                thead { tr {
                    th scope="col" { "Name" }
                    th scope="col" { "Spent" }
                    th.num scope="col" { "Members" }
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
                            td.num data-label="Members" { (members) }
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

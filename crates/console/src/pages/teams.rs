//! List of teams, and creation of a team.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use maud::{Markup, html};
use store::{AccountTerms, StoreError, Team, TeamTotal};

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
    State(desk): State<Arc<ConsoleState>>,
    signed: SignedInUser,
) -> Result<Response, PageError> {
    list(&desk, &signed, StatusCode::OK, &FormFields::default(), &FieldErrors::default()).await
}

/// `POST /console/teams`
pub(crate) async fn create(
    State(desk): State<Arc<ConsoleState>>,
    signed: SignedInUser,
    fields: FormFields,
) -> Result<Response, PageError> {
    // A team has its own cap, so creating teams would bypass the user's cap.
    if !signed.is_administrator() {
        return Err(PageError::Forbidden);
    }
    let mut wrongs = FieldErrors::default();
    let terms = TeamTerms::read(&fields, &mut wrongs)?;
    if !wrongs.is_empty() {
        return list(&desk, &signed, StatusCode::BAD_REQUEST, &fields, &wrongs).await;
    }
    let now = desk.now();
    let made = Team {
        id: uuid::Uuid::now_v7().to_string(),
        name: terms.name.clone(),
        disabled: false,
        created: now,
        changed: now,
    };
    match desk.store.add_team(&made).await {
        Ok(()) => {}
        Err(StoreError::Conflict(_)) => {
            wrongs.add("name", team::NAME_TAKEN);
            return list(&desk, &signed, StatusCode::BAD_REQUEST, &fields, &wrongs).await;
        }
        Err(error) => return Err(error.into()),
    }
    desk.audit(&signed.account.id, "team.create", &made.id, &made.name).await;
    terms.apply(&desk, &signed, &made).await?;
    Ok(redirect_to(&team::page_path(&made)))
}

async fn list(
    desk: &ConsoleState,
    signed: &SignedInUser,
    status: StatusCode,
    fields: &FormFields,
    wrongs: &FieldErrors,
) -> Result<Response, PageError> {
    let mut teams = desk.store.teams().await?;
    teams.retain(|total| signed.is_administrator() || signed.role_in(&total.team.id).is_some());
    let terms: HashMap<_, _> = desk.store.account_terms().await?.into_iter().collect();
    let body = html! {
        div.title { h1 { "Teams" } }
        @if teams.is_empty() {
            div.empty {
                h2 { "No teams" }
                p { "Members of a team share its keys, its cap and its budget. "
                    @if signed.is_administrator() { "Make the first one below." }
                    @else { "You belong to none; a team manager can add you." } }
            }
        } @else {
            (table(&teams, &terms, signed))
        }
        @if signed.is_administrator() {
            section.card {
                h2 { "New team" }
                (error_summary(wrongs))
                form method="post" action=(PAGE_PATH) {
                    (team::terms_form(fields, wrongs))
                    button.button type="submit" { "Create the team" }
                }
            }
        }
    };
    Ok(page(status, &Layout::signed_in("Teams", signed).with_nav(PAGE_PATH), &body))
}

fn table(
    teams: &[TeamTotal],
    terms: &HashMap<String, AccountTerms>,
    signed: &SignedInUser,
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
                                @match signed.role_in(&team.id) {
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

//! The teams somebody belongs to, or all of them, and making one.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use maud::{Markup, html};
use store::{AccountTerms, StoreError, Team, TeamTotal};

use super::overview::spent;
use super::team::{self, Terms};
use crate::desk::Desk;
use crate::fields::another_look;
use crate::form::{Fields, Wrongs};
use crate::session::Signed;
use crate::shell::{Shell, page, sent_to};
use crate::trouble::Trouble;

pub(super) const HERE: &str = "/console/teams";

/// `GET /console/teams`
pub(crate) async fn show(
    State(desk): State<Arc<Desk>>,
    signed: Signed,
) -> Result<Response, Trouble> {
    list(&desk, &signed, StatusCode::OK, &Fields::default(), &Wrongs::default()).await
}

/// `POST /console/teams`
pub(crate) async fn create(
    State(desk): State<Arc<Desk>>,
    signed: Signed,
    fields: Fields,
) -> Result<Response, Trouble> {
    // A team has money of its own: whoever could make one would have no cap.
    if !signed.administers() {
        return Err(Trouble::Forbidden);
    }
    let mut wrongs = Wrongs::default();
    let terms = Terms::read(&fields, &mut wrongs)?;
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
            wrongs.add("name", team::TAKEN);
            return list(&desk, &signed, StatusCode::BAD_REQUEST, &fields, &wrongs).await;
        }
        Err(error) => return Err(error.into()),
    }
    desk.note(&signed.account.id, "team.create", &made.id, &made.name).await;
    terms.set(&desk, &signed, &made).await?;
    Ok(sent_to(&team::address(&made)))
}

async fn list(
    desk: &Desk,
    signed: &Signed,
    status: StatusCode,
    fields: &Fields,
    wrongs: &Wrongs,
) -> Result<Response, Trouble> {
    let mut teams = desk.store.teams().await?;
    teams.retain(|total| signed.administers() || signed.seat_in(&total.team.id).is_some());
    let terms: HashMap<_, _> = desk.store.account_terms().await?.into_iter().collect();
    let body = html! {
        div.title { h1 { "Teams" } }
        @if teams.is_empty() {
            div.empty {
                h2 { "No teams" }
                p { "Members of a team share its keys, its cap and its budget. "
                    @if signed.administers() { "Make the first one below." }
                    @else { "You belong to none; whoever manages one can add you." } }
            }
        } @else {
            (table(&teams, &terms, signed))
        }
        @if signed.administers() {
            section.card {
                h2 { "New team" }
                (another_look(wrongs))
                form method="post" action=(HERE) {
                    (team::terms_form(fields, wrongs))
                    button.button type="submit" { "Create the team" }
                }
            }
        }
    };
    Ok(page(status, &Shell::signed("Teams", signed).at(HERE), &body))
}

fn table(teams: &[TeamTotal], terms: &HashMap<String, AccountTerms>, signed: &Signed) -> Markup {
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
                            th scope="row" { a href=(team::address(team)) { bdi { (team.name) } } }
                            td.spent data-label="Spent" {
                                (spent(*all, terms.get(&team.id).and_then(|terms| terms.cap)))
                            }
                            td.num data-label="Members" { (members) }
                            td data-label="Your role" {
                                @match signed.seat_in(&team.id) {
                                    Some(role) => (role.word()),
                                    None => span.muted { "none" },
                                }
                            }
                            td data-label="State" { (team::state(team)) }
                        }
                    }
                }
            }
        }
    }
}

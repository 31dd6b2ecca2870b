//! Sessions that callers name, such as those of coding agents, and what they cost.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use canon::Micros;
use maud::{Markup, html};
use store::{ObjectOwner, SessionPart, SessionTotals};

use crate::display;
use crate::form::QueryFields;
use crate::layout::{Layout, ok_page};
use crate::page_error::PageError;
use crate::session::SignedInUser;
use crate::state::ConsoleState;
use crate::urls;
use crate::viewer_time::ViewerClock;

const MAX_SESSION_BYTES: usize = 256;
const MAX_LISTED: u32 = 100;
const LISTED_TIME: Micros = Micros::from_days(30);

/// `GET /console/sessions`: the list, or the session of the parameter `id`.
pub(crate) async fn show(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    QueryFields(query): QueryFields,
) -> Result<Response, PageError> {
    let owner = (!user.sees_all()).then(|| ObjectOwner::account(user.owner_id()));
    let id = query.get_trimmed("id", MAX_SESSION_BYTES)?;
    let body = if id.is_empty() {
        let clock = user.clock(&state);
        let since = clock.now - LISTED_TIME;
        let sessions = state.store.sessions_since(owner.as_ref(), since, MAX_LISTED).await?;
        list(&sessions, &user, &clock)
    } else {
        let parts = state.store.session_parts(owner.as_ref(), id).await?;
        if parts.is_empty() {
            return Err(PageError::NotFound);
        }
        one(id, &parts, &user)
    };
    Ok(ok_page(&Layout::signed_in("Sessions", &user).with_nav("/console/sessions"), &body))
}

fn list(sessions: &[SessionPart], user: &SignedInUser, clock: &ViewerClock) -> Markup {
    html! {
        div.title { h1 { "Sessions" } }
        p.muted { "Sessions of the last 30 days, as coding agents and other callers name them." }
        @if sessions.is_empty() {
            div.empty {
                h2 { "No sessions" }
                p { "Agents name their session in each call. Other callers send the header " code { "x-portunus-session" } "." }
            }
        } @else {
            div.sheet {
                table.list {
                    thead { tr {
                        th scope="col" { "Last call" }
                        th scope="col" { "Session" }
                        (number_heads())
                    } }
                    tbody {
                        @for SessionPart { session, totals, .. } in sessions {
                            tr {
                                td data-label="Last call" { (clock.relative_time(totals.ended)) }
                                td data-label="Session" {
                                    @let page = format!("/console/sessions?id={}", urls::escape_value(session));
                                    a.id href=(user.path_for(&page)) { bdi { (session) } }
                                }
                                (number_cells(totals))
                            }
                        }
                    }
                }
            }
        }
    }
}

fn one(id: &str, parts: &[SessionPart], user: &SignedInUser) -> Markup {
    let mut all = SessionTotals::default();
    parts.iter().for_each(|part| all.add(&part.totals));
    html! {
        p.crumbs { a href=(user.path_for("/console/sessions")) { "Sessions" } " / session" }
        div.title.close { h1.id { bdi { (id) } } }
        dl.facts {
            div { dt { "Cost" } dd { (display::money(all.cost)) " " span.muted.small { "$" (all.cost) } } }
            div { dt { "Calls" } dd { (display::count(all.calls.unsigned_abs())) } }
            div { dt { "Began" } dd { (user.zone.timestamp(all.begun)) } }
            div { dt { "Last call" } dd { (user.zone.timestamp(all.ended)) } }
            div { dt { "Prompt from caches" } dd { (display::count(all.cache_read.unsigned_abs())) " tokens" } }
        }
        div.sheet {
            table.list {
                thead { tr {
                    th scope="col" { "Model" }
                    th scope="col" { "Lane" }
                    (number_heads())
                } }
                tbody {
                    @for SessionPart { model, lane, totals, .. } in parts {
                        tr {
                            td data-label="Model" { bdi { (model) } }
                            td data-label="Lane" {
                                @if lane.is_empty() { span.muted { "none" } } @else { bdi { (lane) } }
                            }
                            (number_cells(totals))
                        }
                    }
                }
            }
        }
    }
}

fn number_heads() -> Markup {
    html! {
        th.num scope="col" { "Calls" }
        th.num scope="col" { "Tokens" }
        th.num scope="col" { "Cost" }
    }
}

fn number_cells(totals: &SessionTotals) -> Markup {
    let tokens = totals.input.saturating_add(totals.output).unsigned_abs();
    html! {
        td.num data-label="Calls" { (display::count(totals.calls.unsigned_abs())) }
        td.num data-label="Tokens" { (display::count(tokens)) }
        td.num data-label="Cost" { (display::money(totals.cost)) }
    }
}

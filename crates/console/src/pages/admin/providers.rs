//! List of providers with their lanes and the health of each lane.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use store::GroupBy;

use super::recent_usage::{CallSum, RecentUsage, UsageOrder, sort};
use crate::display;
use crate::form::QueryFields;
use crate::layout::{Layout, ok_page};
use crate::list_view::{ListView, ORDER, TEXT};
use crate::page_error::PageError;
use crate::redirect::redirect_to;
use crate::session::SignedInUser;
use crate::state::ConsoleState;
use crate::urls;
use admin::{EntrySource, LaneView, ProviderDetail};

pub(super) const PAGE_PATH: &str = "/console/providers";
const MAX_LISTED_LANES: usize = 12;
const STATE: &str = "state";
const PARAMETERS: [&str; 3] = [TEXT, ORDER, STATE];

/// The parts of the list.
const STATES: [(&str, &str); 3] = [("", "All"), ("trouble", "With troubles"), ("good", "Without")];

/// `GET /console/providers`
pub(crate) async fn show(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    QueryFields(query): QueryFields,
) -> Result<Response, PageError> {
    let view = ListView { path: PAGE_PATH, query: &query, parameters: &PARAMETERS };
    let words = view.text()?.unwrap_or_default().to_lowercase();
    let chosen = query.get(STATE);
    if !STATES.iter().any(|(word, _)| *word == chosen) {
        return Err(PageError::BadRequest("The state of providers is not known."));
    }
    let order = UsageOrder::by_word(query.get(ORDER)).unwrap_or_default();
    let providers = state.host.admin().providers(&user.actor())?;
    let usage = RecentUsage::load(&state, GroupBy::Provider).await?;
    let fits = |detail: &&ProviderDetail| {
        let ProviderDetail { provider, lanes, .. } = detail;
        let lanes = lanes.iter().map(|lane| &*lane.lane).collect::<Vec<_>>().join(" ");
        let name = format!("{} {} {lanes}", provider.id, provider.speaks.join(" "));
        let name = name.to_lowercase();
        words.split_whitespace().all(|word| name.contains(word))
    };
    let found: Vec<&ProviderDetail> = providers.iter().filter(fits).collect();
    let of_state = |word: &str| {
        let word = word.to_owned();
        found.iter().copied().filter(move |detail| match &*word {
            "" => true,
            word => has_trouble(detail) == (word == "trouble"),
        })
    };
    let mut rows: Vec<(&ProviderDetail, CallSum)> =
        of_state(chosen).map(|detail| (detail, usage.of([&*detail.provider.id]))).collect();
    sort(&mut rows, order);
    let total = rows.len() as u64;
    if let Some(last) = view.last_page(total) {
        return Ok(redirect_to(&last));
    }
    let body = html! {
        div.title {
            h1 { "Providers" }
            div.actions { a.button href={ (PAGE_PATH) "/new" } { "Add a provider" } }
        }
        @if !providers.is_empty() {
            (view.search_form("Provider, format or model", &UsageOrder::LABELS, order.word()))
        }
        (super::live_toggle("providers", "Lane states refresh automatically."))
        div.stack #providers {
            @if providers.is_empty() {
                div.empty {
                    h2 { "No providers yet" }
                    p { "Add one with a credential of yours, and its models are there." }
                }
            } @else {
                (view.parts("States of providers", STATE, STATES.map(|(word, title)| {
                    (word, title, of_state(word).count() as u64)
                })))
                @if rows.is_empty() {
                    div.empty {
                        h2 { "No such provider" }
                        p { "Another search or state shows more. " a href=(PAGE_PATH) { "Show all providers" } }
                    }
                }
            }
            @for (provider, sum) in view.page_of(&rows) {
                (card(provider, *sum))
            }
            (view.pager("Pages of providers", total))
        }
    };
    Ok(ok_page(&Layout::signed_in("Providers", &user.account).with_nav(PAGE_PATH), &body))
}

/// Returns true if a part of a provider does not serve now, or its settings are wrong.
fn has_trouble(detail: &ProviderDetail) -> bool {
    let ProviderDetail { provider, lanes, credential_troubles } = detail;
    provider.trouble.is_some()
        || !credential_troubles.is_empty()
        || lanes.iter().any(|lane| lane.standing != "good")
}

pub(super) fn page_of(id: &str) -> String {
    format!("{PAGE_PATH}/{}", urls::escape_value(id))
}

fn card(detail: &ProviderDetail, sum: CallSum) -> Markup {
    let ProviderDetail { provider, lanes, credential_troubles } = detail;
    let id = &provider.id;
    html! {
        section.sheet.provider-card {
            header {
                h2 { a href=(page_of(id)) { bdi { (id) } } }
                (source_badge(provider.source))
                span.muted.small {
                    (provider.speaks.join(", "))
                    " · " (display::plural(provider.credentials.len(), "credential", "credentials"))
                    " · " (sum.line())
                }
            }
            @if let Some(why) = &provider.trouble {
                p.objection role="alert" { (why) }
            }
            @for trouble in credential_troubles {
                p.objection role="alert" { (trouble.why) }
            }
            (lane_table(lanes, MAX_LISTED_LANES))
            @let more = lanes.len().saturating_sub(MAX_LISTED_LANES);
            @if more > 0 {
                p.inset.small {
                    a href=(page_of(id)) { (display::plural(more, "more lane", "more lanes")) }
                }
            }
        }
    }
}

/// Badge that shows where an object is configured.
pub(super) fn source_badge(source: EntrySource) -> Markup {
    let word = match source {
        EntrySource::File => "in the file",
        EntrySource::Environment => "by a variable",
        EntrySource::Stored => "in the console",
        EntrySource::BuiltIn => "built in",
    };
    html! { span.badge.off { (word) } }
}

/// Table of lanes, unhealthy ones first.
pub(super) fn lane_table(lanes: &[LaneView], most: usize) -> Markup {
    let mut shown: Vec<&LaneView> = lanes.iter().collect();
    shown.sort_by_key(|lane| lane.standing == "good");
    html! {
        @if lanes.is_empty() {
            p.muted.small.inset { "No model is served by it yet." }
        } @else {
            table.list.lanes {
                thead { tr {
                    th scope="col" { "Lane" }
                    th scope="col" { "State" }
                    th.num scope="col" { "Latency" }
                    th.num scope="col" { "Running" }
                    th scope="col" { "Last failure" }
                } }
                tbody {
                    @for lane in shown.into_iter().take(most) { (lane_row(lane)) }
                }
            }
        }
    }
}

fn lane_row(lane: &LaneView) -> Markup {
    // Credentials are counted from zero; a single one needs no number.
    let credential = (lane.credential > 0).then(|| format!("no. {}", lane.credential + 1));
    html! {
        tr {
            th scope="row" {
                bdi.id { (lane.lane) }
                @if let Some(credential) = credential { span.muted.small { " · " (credential) } }
            }
            td data-label="State" { (health_badge(lane.standing)) }
            td.num data-label="Latency" {
                @match lane.latency_ms { Some(ms) => { (ms) " ms" }, None => "–" }
            }
            td.num data-label="Running" { (lane.pending) }
            td data-label="Last failure" {
                @match lane.last_failure {
                    None => span.muted { "none" },
                    Some(why) => {
                        (why)
                        @if lane.failures > 1 {
                            span.muted.small { " · " (lane.failures) " in a row" }
                        }
                    }
                }
            }
        }
    }
}

/// Badge with a coloured dot.
fn health_badge(word: &str) -> Markup {
    let (class, label) = match word {
        "good" => ("good", "good"),
        "probing" => ("warn", "probing"),
        "busy" => ("warn", "busy"),
        "cooling_down" => ("bad", "cooling down"),
        "refused" => ("bad", "refused"),
        other => ("off", other),
    };
    html! { span.health.(class) { (label) } }
}

//! List of providers with their lanes and the health of each lane.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};

use crate::display;
use crate::layout::{Layout, ok_page};
use crate::page_error::PageError;
use crate::session::SignedInUser;
use crate::state::ConsoleState;
use crate::urls;
use admin::{EntrySource, LaneView, ProviderDetail};

pub(super) const PAGE_PATH: &str = "/console/providers";
const MAX_LISTED_LANES: usize = 12;

/// `GET /console/providers`
pub(crate) async fn show(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
) -> Result<Response, PageError> {
    let providers = state.host.admin().providers(&user.actor())?;
    let body = html! {
        div.title {
            h1 { "Providers" }
            div.actions { a.button href={ (PAGE_PATH) "/new" } { "Add a provider" } }
        }
        (super::live_toggle("providers", "Lane states refresh automatically."))
        div.stack #providers {
            @if providers.is_empty() {
                div.empty {
                    h2 { "No providers yet" }
                    p { "Add one with a credential of yours, and its models are there." }
                }
            }
            @for provider in &providers {
                (card(provider))
            }
        }
    };
    Ok(ok_page(&Layout::signed_in("Providers", &user.account).with_nav(PAGE_PATH), &body))
}

pub(super) fn page_of(id: &str) -> String {
    format!("{PAGE_PATH}/{}", urls::escape_value(id))
}

fn card(detail: &ProviderDetail) -> Markup {
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

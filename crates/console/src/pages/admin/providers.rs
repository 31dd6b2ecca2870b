//! List of providers with their lanes and the health of each lane.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use serde_json::Value;

use crate::admin_client::{AdminClient, count, list, text, texts};
use crate::display;
use crate::layout::{Layout, ok_page};
use crate::page_error::PageError;
use crate::session::SignedInUser;
use crate::state::ConsoleState;
use crate::urls;

pub(super) const PAGE_PATH: &str = "/console/providers";
const MAX_LISTED_LANES: usize = 12;

/// `GET /console/providers`
pub(crate) async fn show(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
) -> Result<Response, PageError> {
    let reply = AdminClient::new(&state, &user).get("/providers").await?.value;
    let providers = list(&reply, "data");
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
            @for provider in providers {
                (card(provider))
            }
        }
    };
    Ok(ok_page(&Layout::signed_in("Providers", &user.account).with_nav(PAGE_PATH), &body))
}

pub(super) fn page_of(id: &str) -> String {
    format!("{PAGE_PATH}/{}", urls::escape_value(id))
}

fn card(provider: &Value) -> Markup {
    let id = text(provider, "id");
    let credentials = list(provider, "credentials");
    html! {
        section.sheet.provider-card {
            header {
                h2 { a href=(page_of(id)) { bdi { (id) } } }
                (source_badge(provider))
                span.muted.small {
                    (texts(provider, "speaks").join(", "))
                    @if provider.get("credentials").is_some() {
                        " · " (display::plural(credentials.len(), "credential", "credentials"))
                    }
                }
            }
            @if let Some(why) = provider.get("trouble").and_then(Value::as_str) {
                p.objection role="alert" { (why) }
            }
            (lane_table(list(provider, "lanes"), MAX_LISTED_LANES))
            @let more = list(provider, "lanes").len().saturating_sub(MAX_LISTED_LANES);
            @if more > 0 {
                p.inset.small {
                    a href=(page_of(id)) { (display::plural(more, "more lane", "more lanes")) }
                }
            }
        }
    }
}

/// Badge that shows where an object is configured.
pub(super) fn source_badge(thing: &Value) -> Markup {
    let word = match text(thing, "source") {
        "" => return html! {},
        "file" => "in the file",
        "environment" => "by a variable",
        "stored" => "in the console",
        "built-in" | "directory" => "built in",
        other => other,
    };
    html! { span.badge.off { (word) } }
}

/// Table of lanes, unhealthy ones first.
pub(super) fn lane_table(lanes: &[Value], most: usize) -> Markup {
    let mut shown: Vec<&Value> = lanes.iter().collect();
    shown.sort_by_key(|lane| text(lane, "standing") == "good");
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

fn lane_row(lane: &Value) -> Markup {
    let credential = match lane.get("credential") {
        Some(Value::String(name)) => Some(name.clone()),
        // Credentials are counted from zero; a single one needs no number.
        Some(Value::Number(n)) if n.as_u64() > Some(0) => {
            n.as_u64().map(|n| format!("no. {}", n + 1))
        }
        _ => None,
    };
    html! {
        tr {
            th scope="row" {
                bdi.id { (text(lane, "lane")) }
                @if let Some(credential) = credential { span.muted.small { " · " (credential) } }
            }
            td data-label="State" { (health_badge(text(lane, "standing"))) }
            td.num data-label="Latency" {
                @match count(lane, "latency_ms") { Some(ms) => { (ms) " ms" }, None => "–" }
            }
            td.num data-label="Running" { (count(lane, "pending").unwrap_or_default()) }
            td data-label="Last failure" {
                @match text(lane, "last_failure") {
                    "" => span.muted { "none" },
                    why => {
                        (why)
                        @if let Some(row @ 2..) = count(lane, "failures") {
                            span.muted.small { " · " (row) " in a row" }
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

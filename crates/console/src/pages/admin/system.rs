//! System page: health of the gateway's parts.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use serde_json::Value;

use crate::admin_client::{AdminClient, count, list, text};
use crate::display;
use crate::layout::{Layout, ok_page};
use crate::page_error::PageError;
use crate::session::SignedInUser;
use crate::state::ConsoleState;

const PAGE_PATH: &str = "/console/system";

/// `GET /console/system`
pub(crate) async fn show(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
) -> Result<Response, PageError> {
    let client = AdminClient::new(&state, &user);
    let health = client.get("/health").await?.value;
    let vault = client.find("/vault").await?.map(|reply| text(&reply.value, "trouble").to_owned());
    let body = html! {
        div.title {
            h1 { "System" }
            (super::live_toggle("system", "The page refreshes automatically."))
        }
        div.stack #system {
            @for issue in list(&health, "troubles") {
                p.objection role="alert" { (text(issue, "what")) ": " (text(issue, "why")) }
            }
            (figures(&health))
            div.columns {
                section { h2 { "Parts" } (parts(&health, vault.as_deref())) }
                section { h2 { "Nodes" } (nodes(&health)) }
            }
        }
    };
    Ok(ok_page(&Layout::signed_in("System", &user.account).with_nav(PAGE_PATH), &body))
}

fn number(health: &Value, name: &str) -> String {
    count(health, name).map_or_else(|| "–".to_owned(), display::count)
}

fn bytes(of: Option<u64>) -> String {
    of.map_or_else(|| "–".to_owned(), display::bytes)
}

fn figures(health: &Value) -> Markup {
    let lanes = health.get("lanes").unwrap_or(&Value::Null);
    html! {
        dl.figures {
            div { dt { "Version" } dd { (text(health, "version")) } }
            div { dt { "Uptime" } dd { (display::uptime(count(health, "uptime_s").unwrap_or_default())) } }
            div { dt { "Running calls" } dd { (number(health, "running")) } }
            div { dt { "Connections" } dd { (number(health, "connections")) } }
            div { dt { "Healthy lanes" } dd { (number(lanes, "good")) " of " (number(lanes, "all")) } }
            div { dt { "Memory" } dd { (bytes(count(health, "memory_bytes"))) } }
        }
    }
}

/// Badge with a coloured dot.
fn state_badge(well: bool, word: &str) -> Markup {
    html! { span.badge.good[well].bad[!well] { (word) } }
}

fn parts(health: &Value, vault: Option<&str>) -> Markup {
    let none = Value::Null;
    let yes = |name: &str| health.get(name).and_then(Value::as_bool).unwrap_or_default();
    let database = health.get("database").unwrap_or(&none);
    let journal = health.get("journal").unwrap_or(&none);
    let valkey = health.get("valkey").filter(|valkey| !valkey.is_null());
    let reached = |valkey: &Value| valkey.get("reachable").and_then(Value::as_bool) == Some(true);
    html! {
        dl.facts {
            div { dt { "Accepts new calls" } dd { (state_badge(yes("ready"), if yes("ready") { "yes" } else { "no" })) } }
            div { dt { "Store" } dd {
                (text(database, "kind")) " "
                (state_badge(yes("store"), if yes("store") { "answers" } else { "does not answer" }))
            } }
            div { dt { "Valkey" } dd {
                @match valkey {
                    Some(valkey) if reached(valkey) => (state_badge(true, "answers")),
                    Some(_) => (state_badge(false, "does not answer")),
                    None => span.muted { "not configured" },
                }
            } }
            div { dt { "Journal" } dd {
                (bytes(count(journal, "bytes"))) ", "
                (number(journal, "unposted")) " settled calls not in the store yet"
            } }
            div { dt { "Mail" } dd {
                @if yes("mail") { "configured" } @else { span.muted { "not configured" } }
            } }
            div { dt { "Files" } dd {
                @match text(health, "files") {
                    "s3" => "a bucket",
                    "file" => "a folder",
                    other => (other),
                }
            } }
            div { dt { "Vault" } dd {
                @match vault {
                    Some("") => (state_badge(true, "open")),
                    Some(why) => { (state_badge(false, "shut")) " " (why) },
                    None => span.muted { "none" },
                }
            } }
        }
    }
}

fn nodes(health: &Value) -> Markup {
    let nodes = list(health, "nodes");
    html! {
        @if nodes.is_empty() {
            div.empty { h3 { "No nodes to see" } p { "The store does not answer at the moment." } }
        } @else {
            ul.factors {
                @for node in nodes {
                    @let alive = node.get("alive").and_then(Value::as_bool).unwrap_or_default();
                    @let this = node.get("this").and_then(Value::as_bool).unwrap_or_default();
                    li {
                        div {
                            span.id { (text(node, "id")) }
                            @if this { span.small.muted { "this one" } }
                            @else if !alive {
                                span.small.muted {
                                    "no heartbeat for "
                                    (display::uptime(count(node, "silent_ms").unwrap_or_default() / 1_000))
                                }
                            }
                        }
                        (state_badge(alive, if alive { "alive" } else { "gone" }))
                    }
                }
            }
        }
    }
}

//! System page: health of the gateway's parts.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};

use crate::display;
use crate::layout::{Layout, ok_page};
use crate::page_error::PageError;
use crate::session::SignedInUser;
use crate::state::ConsoleState;
use admin::{ClusterNode, NodeHealth};

const PAGE_PATH: &str = "/console/system";

/// `GET /console/system`
pub(crate) async fn show(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
) -> Result<Response, PageError> {
    let (admin, actor) = (state.host.admin(), user.actor());
    let health = admin.node_health(&actor).await?;
    let vault = admin.vault_status(&actor).await?;
    let body = html! {
        div.title {
            h1 { "System" }
            (super::live_toggle("system", "The page refreshes automatically."))
        }
        div.stack #system {
            @for issue in &health.troubles {
                p.objection role="alert" { (issue.what) ": " (issue.why) }
            }
            (figures(&health))
            div.columns {
                section { h2 { "Parts" } (parts(&health, vault.trouble.as_deref())) }
                section { h2 { "Nodes" } (nodes(&health.nodes)) }
            }
        }
    };
    Ok(ok_page(&Layout::signed_in("System", &user.account).with_nav(PAGE_PATH), &body))
}

fn number(of: usize) -> String {
    display::count(of as u64)
}

fn bytes(of: Option<u64>) -> String {
    of.map_or_else(|| "–".to_owned(), display::bytes)
}

fn figures(health: &NodeHealth) -> Markup {
    html! {
        dl.figures {
            div { dt { "Version" } dd { (health.version) } }
            div { dt { "Uptime" } dd { (display::uptime(health.uptime_s)) } }
            div { dt { "Running calls" } dd { (number(health.running)) } }
            div { dt { "Connections" } dd { (number(health.connections)) } }
            div { dt { "Healthy lanes" } dd { (number(health.lanes.good)) " of " (number(health.lanes.all)) } }
            div { dt { "Memory" } dd { (bytes(health.memory_bytes)) } }
        }
    }
}

/// Badge with a coloured dot.
fn state_badge(well: bool, word: &str) -> Markup {
    html! { span.badge.good[well].bad[!well] { (word) } }
}

fn parts(health: &NodeHealth, vault: Option<&str>) -> Markup {
    let NodeHealth { ready, store, database, journal, .. } = health;
    html! {
        dl.facts {
            div { dt { "Accepts new calls" } dd { (state_badge(*ready, if *ready { "yes" } else { "no" })) } }
            div { dt { "Store" } dd {
                (database.kind) " "
                (state_badge(*store, if *store { "answers" } else { "does not answer" }))
            } }
            div { dt { "Valkey" } dd {
                @match &health.valkey {
                    Some(valkey) if valkey.reachable => (state_badge(true, "answers")),
                    Some(_) => (state_badge(false, "does not answer")),
                    None => span.muted { "not configured" },
                }
            } }
            div { dt { "Journal" } dd {
                (bytes(journal.bytes)) ", "
                (number(journal.unposted)) " settled calls not in the store yet"
            } }
            div { dt { "Mail" } dd {
                @if health.mail { "configured" } @else { span.muted { "not configured" } }
            } }
            div { dt { "Files" } dd {
                @match health.files.as_str() {
                    "s3" => "a bucket",
                    "file" => "a folder",
                    other => (other),
                }
            } }
            div { dt { "Vault" } dd {
                @match vault {
                    None => (state_badge(true, "open")),
                    Some(why) => { (state_badge(false, "shut")) " " (why) },
                }
            } }
        }
    }
}

fn nodes(nodes: &[ClusterNode]) -> Markup {
    html! {
        @if nodes.is_empty() {
            div.empty { h3 { "No nodes to see" } p { "The store does not answer at the moment." } }
        } @else {
            ul.factors {
                @for node in nodes {
                    @let alive = node.alive;
                    li {
                        div {
                            span.id { (node.id) }
                            @if node.this { span.small.muted { "this one" } }
                            @else if !alive {
                                span.small.muted {
                                    "no heartbeat for "
                                    (display::uptime(u64::try_from(node.silent_ms / 1_000).unwrap_or_default()))
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

#[cfg(test)]
mod tests {
    use super::*;
    use admin::{DatabaseHealth, JournalHealth, LaneCounts, ValkeyHealth};

    fn node(id: &str, this: bool, silent_ms: i64, alive: bool) -> ClusterNode {
        ClusterNode { this, id: id.to_owned(), silent_ms, alive }
    }

    #[test]
    fn unhealthy_parts_are_shown() {
        let health = NodeHealth {
            version: "9.9",
            ready: false,
            uptime_s: 7_300,
            store: false,
            database: DatabaseHealth { kind: "PostgreSQL", silent_ms: 4 },
            node: "node-a".to_owned(),
            nodes: vec![node("node-a", true, 2, true), node("node-b", false, 90_000, false)],
            valkey: Some(ValkeyHealth { reachable: false }),
            journal: JournalHealth { bytes: Some(2_048), unposted: 12 },
            memory_bytes: None,
            connections: 3,
            running: 2,
            mail: false,
            files: "s3".to_owned(),
            lanes: LaneCounts { all: 5, good: 4 },
            checks: Vec::new(),
            troubles: Vec::new(),
        };
        let parts = parts(&health, Some("its <key> is missing")).into_string();
        for seen in [
            "<span class=\"badge bad\">no</span>",
            "PostgreSQL <span class=\"badge bad\">does not answer</span>",
            "<dt>Valkey</dt><dd><span class=\"badge bad\">does not answer</span>",
            "2.0 KiB, 12 settled calls not in the store yet",
            "<dt>Mail</dt><dd><span class=\"muted\">not configured</span>",
            "a bucket",
            "<span class=\"badge bad\">shut</span> its &lt;key&gt; is missing",
        ] {
            assert!(parts.contains(seen), "{seen}: {parts}");
        }
        let figures = figures(&health).into_string();
        for seen in ["9.9", "2 h 1 min", "4 of 5", "<dt>Memory</dt><dd>–</dd>"] {
            assert!(figures.contains(seen), "{seen}: {figures}");
        }
        let shown = nodes(&health.nodes).into_string();
        for seen in ["node-a", "this one", "no heartbeat for 90 s", "gone"] {
            assert!(shown.contains(seen), "{seen}: {shown}");
        }
        assert!(nodes(&[]).into_string().contains("The store does not answer at the moment."));
    }
}

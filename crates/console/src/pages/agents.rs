//! Settings with which coding agents use the gateway.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use maud::html;

use crate::agent_settings::agent_settings;
use crate::layout::{Layout, ok_page};
use crate::page_error::PageError;
use crate::session::SignedInUser;
use crate::state::ConsoleState;

/// `GET /console/agents`
pub(crate) async fn show(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
) -> Result<Response, PageError> {
    let origin = state.host.public_url();
    let agents = state.with_catalog(|catalog| agent_settings(&origin, catalog, None));
    let body = html! {
        div.title {
            h1 { "Agents" }
            div.actions { a.button.quiet href=(user.path_for("/console/keys")) { "Keys" } }
        }
        p.muted { "Settings for coding agents. Replace the key by one of yours; any chat model works with any agent." }
        @for agent in &agents {
            section {
                h2 { (agent.agent) }
                @for (number, (place, text)) in agent.steps.iter().enumerate() {
                    @let id = format!("{}-{number}", agent.word);
                    p { code { (place) } " " button.copy type="button" hidden data-copy=(id) { "Copy" } }
                    pre id=(id) { (text) }
                }
            }
        }
    };
    Ok(ok_page(&Layout::signed_in("Agents", &user).with_nav("/console/agents"), &body))
}

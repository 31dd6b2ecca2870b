//! Managed settings that agents fetch: those of the gateway, and those of each team.

use std::sync::Arc;

use admin::parse_managed_settings;
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use maud::html;
use store::Team;

use super::text_area;
use crate::form::{FieldErrors, FormFields, QueryFields};
use crate::layout::{Layout, page};
use crate::page_error::PageError;
use crate::redirect::redirect_to;
use crate::refusal::FormRefusal;
use crate::session::SignedInUser;
use crate::shared_fields::error_summary;
use crate::state::ConsoleState;
use crate::urls;

const PAGE_PATH: &str = "/console/managed-settings";
const HELP: &str = "JSON, as in managed-settings.json. Agents that signed in fetch it within the hour. \
    Empty for none.";

/// `GET /console/managed-settings`, with `?team=` for those of a team.
pub(crate) async fn show(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    QueryFields(query): QueryFields,
) -> Result<Response, PageError> {
    let team = chosen_team(&state, &user, &query).await?;
    let id = team.as_ref().map(|team| team.id.as_str());
    let stored = state.host.accounts().managed_settings(&user.actor(), id).await?;
    let text = match &stored {
        Some(stored) => serde_json::to_string_pretty(&stored.settings).unwrap_or_default(),
        None => String::new(),
    };
    let saved = query.get("told") == "saved";
    form(&state, &user, StatusCode::OK, (team.as_ref(), &text), (&FieldErrors::default(), saved))
        .await
}

/// The team in the query or the form. Only administrators come this far.
async fn chosen_team(
    state: &ConsoleState,
    user: &SignedInUser,
    fields: &FormFields,
) -> Result<Option<Team>, PageError> {
    user.actor().require_admin()?;
    match fields.get_single("team", 100)? {
        "" => Ok(None),
        id => Ok(Some(user.find_team(state, id).await?)),
    }
}

/// `POST /console/managed-settings`
pub(crate) async fn change(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    fields: FormFields,
) -> Result<Response, PageError> {
    let team = chosen_team(&state, &user, &fields).await?;
    let id = team.as_ref().map(|team| team.id.as_str());
    let text = fields.get("settings").trim();
    let accounts = state.host.accounts();
    let settings = match text {
        "" => Ok(None),
        text => parse_managed_settings(text).map(Some),
    };
    let done = match settings {
        Ok(settings) => accounts.set_managed_settings(&user.actor(), id, settings).await.map(drop),
        Err(error) => Err(error),
    };
    match done {
        Ok(()) => {
            let team = id.map(|id| format!("&team={}", urls::escape_value(id)));
            Ok(redirect_to(&format!("{PAGE_PATH}?told=saved{}", team.unwrap_or_default())))
        }
        Err(error) => {
            let refusal = FormRefusal::try_from(error)?;
            let errors = refusal.field_errors(&["settings"]);
            form(&state, &user, refusal.status, (team.as_ref(), text), (&errors, false)).await
        }
    }
}

async fn form(
    state: &ConsoleState,
    user: &SignedInUser,
    status: StatusCode,
    (team, text): (Option<&Team>, &str),
    (errors, saved): (&FieldErrors, bool),
) -> Result<Response, PageError> {
    let teams = state.host.accounts().teams(&user.actor()).await?;
    let here = |id: Option<&str>| (team.map(|team| team.id.as_str()) == id).then_some("page");
    let body = html! {
        div.title { h1 { "Managed settings" } }
        @if saved { p.told role="status" { "Saved." } }
        (error_summary(errors))
        nav.choices aria-label="Whose settings" {
            a href=(PAGE_PATH) aria-current=[here(None)] { "The gateway" }
            @for one in &teams {
                " " a href={ (PAGE_PATH) "?team=" (urls::escape_value(&one.team.id)) }
                    aria-current=[here(Some(&one.team.id))] { bdi { (one.team.name) } }
            }
        }
        section.card.broad {
            p { @match team {
                Some(team) => { "For agents of the team " strong { bdi { (team.name) } }
                    ", in place of those of the gateway." }
                None => { "For all agents that signed in, except those of teams with their own." }
            } }
            form method="post" action=(PAGE_PATH) {
                input type="hidden" name="team" value=(team.map_or("", |team| &team.id));
                (text_area(("settings", "Settings of Claude Code"), text, HELP, errors))
                button.button type="submit" { "Save" }
            }
        }
    };
    let layout = Layout::signed_in("Managed settings", &user.account);
    Ok(page(status, &layout.with_nav("/console/settings"), &body))
}

//! The time zone in which pages show times to the user.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use maud::{Markup, html};

use super::{PAGE_PATH, render_page};
use crate::cookies;
use crate::form::{FieldErrors, FormFields, FormInput};
use crate::page_error::PageError;
use crate::redirect::redirect_to;
use crate::session::SignedInUser;
use crate::state::ConsoleState;
use crate::viewer_time::{MAX_ZONE_BYTES, ViewerZone, ZONE_PARAMETER};

const LIST: &str = "zones";

/// `POST /console/account/zone`: keeps the choice in this browser.
pub(crate) async fn choose(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    fields: FormFields,
) -> Result<Response, PageError> {
    let name = fields.get_trimmed(ZONE_PARAMETER, MAX_ZONE_BYTES)?;
    let zone = ViewerZone::by_name(name);
    if zone.is_none() && !name.is_empty() {
        let mut errors = FieldErrors::default();
        errors.add(ZONE_PARAMETER, "Choose a zone of the list, such as Europe/Berlin, or nothing.");
        let status = StatusCode::BAD_REQUEST;
        return render_page(&state, &user, status, &fields, &errors, None).await;
    }
    let mut response = redirect_to(&format!("{PAGE_PATH}?told=zone"));
    cookies::choose_zone(&state, &mut response, zone.as_ref());
    Ok(response)
}

/// Renders the choice.
pub(super) fn zone_form(user: &SignedInUser, fields: &FormFields, errors: &FieldErrors) -> Markup {
    let shown = user.zone.name();
    let chosen = if user.has_chosen_zone { shown } else { "" };
    let value = if fields.contains(ZONE_PARAMETER) { fields.get(ZONE_PARAMETER) } else { chosen };
    html! {
        h2 { "Time zone" }
        p.muted { "Pages show times and days of " strong { (shown) } "." }
        form method="post" action={ (PAGE_PATH) "/zone" } {
            (FormInput {
                name: ZONE_PARAMETER,
                label: "Zone in this browser",
                value,
                list: Some(LIST),
                help: Some("UTC, or a place such as Europe/Berlin. Leave empty for the zone that the browser tells."),
                ..FormInput::default()
            }.render(errors))
            datalist id=(LIST) {
                @for name in ViewerZone::names() { option value=(name) {} }
            }
            button.button.quiet type="submit" { "Save the zone" }
        }
    }
}

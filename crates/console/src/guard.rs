//! Guards of routes. They run before any handler.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::Method;

use crate::page_error::PageError;
use crate::redirect::{redirect_to, see_other};
use crate::state::ConsoleState;
use crate::{acting_for, session, urls};
use admin::random;

/// Setting that holds the one-time setup token.
pub(crate) const SETUP_TOKEN_SETTING: &str = "setup_token";

/// Admits signed-in users; redirects others to the sign-in page.
pub(crate) async fn require_session(
    State(desk): State<Arc<ConsoleState>>,
    mut request: Request,
    next: Next,
) -> Response {
    match session::find_session(&desk, request.headers()).await {
        Ok(Some(mut signed)) => {
            match acting_for::team_from_query(&desk, &signed, request.uri()).await {
                Ok(team) => {
                    signed.team = team;
                    request.extensions_mut().insert(signed);
                    next.run(request).await
                }
                Err(trouble) => trouble.into_response(),
            }
        }
        Ok(None) => redirect_to_login(&request),
        Err(trouble) => trouble.into_response(),
    }
}

/// Redirects to the sign-in page, which returns to the requested page afterwards.
fn redirect_to_login(request: &Request) -> Response {
    let wanted = request.uri().path_and_query().map_or("", |path| path.as_str());
    match urls::console_path(wanted) {
        Some(next) if *request.method() == Method::GET && next != "/console" => {
            redirect_to(&format!("/login?next={}", urls::escape_value(next)))
        }
        _ => see_other("/login"),
    }
}

/// Admits requests with the one-time setup token, as long as one exists.
pub(crate) async fn require_setup_token(
    State(desk): State<Arc<ConsoleState>>,
    Path(place): Path<HashMap<String, String>>,
    request: Request,
    next: Next,
) -> Response {
    let given = place.get("token").map_or("", String::as_str);
    match desk.store.setting(SETUP_TOKEN_SETTING).await {
        Ok(Some(word)) if random::constant_time_eq(&word, given) => next.run(request).await,
        Ok(_) => PageError::NotFound.into_response(),
        Err(error) => PageError::from(error).into_response(),
    }
}

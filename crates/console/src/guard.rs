//! Guards of routes. They run before any handler.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::{Body, HttpBody as _, to_bytes};
use axum::extract::{ConnectInfo, Path, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use canon::ErrorKind;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};

use crate::form::{INVALID_FORM, MAX_FORM_BYTES};
use crate::page_error::PageError;
use crate::pages::account::prove;
use crate::redirect::{redirect_to, see_other};
use crate::session::SignedInUser;
use crate::state::ConsoleState;
use crate::{acting_for, session, urls};
use admin::{RequestOrigin, SETUP_TOKEN_SETTING, random};

/// Pages that people without a required second factor can use.
const ACCOUNT_PATH: &str = "/console/account";
/// Content type of forms.
const FORM_TYPE: &str = "application/x-www-form-urlencoded";
const SIGN_OUT_PATH: &str = "/logout";

/// Reads the whole form before anything else, and completes the work even if the browser
/// disconnects.
///
/// A session that ends while its form is on the way must not act any more, so guards run after the
/// form was read. A change must not stop between its commit and the update of this node's caches, so
/// the work is a task of its own.
pub(crate) async fn complete_forms(
    State(state): State<Arc<ConsoleState>>,
    request: Request,
    next: Next,
) -> Response {
    let (parts, body) = request.into_parts();
    // A sender that waits to be asked is not asked for a form that is refused.
    if let Err(error) = check_form_head(&parts.headers, &body) {
        return error.into_response();
    }
    let form = match to_bytes(body, MAX_FORM_BYTES).await {
        Ok(form) => form,
        Err(error) => return form_error(&error).into_response(),
    };
    let work = next.run(Request::from_parts(parts, Body::from(form)));
    let done = state.host.accounts().tasks.spawn(work).await;
    done.unwrap_or_else(|_| PageError::Internal.into_response())
}

/// Refuses a form by its declared length or type.
fn check_form_head(headers: &HeaderMap, body: &Body) -> Result<(), PageError> {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let length = text(CONTENT_LENGTH).and_then(|length| length.parse().ok());
    if length.is_some_and(|length: usize| length > MAX_FORM_BYTES) {
        return Err(PageError::FormTooLarge);
    }
    let kind = text(CONTENT_TYPE).unwrap_or_default().split(';').next().unwrap_or_default().trim();
    if FORM_TYPE.eq_ignore_ascii_case(kind) || body.is_end_stream() {
        Ok(())
    } else {
        Err(PageError::NotAForm)
    }
}

/// Returns the error of a form that could not be read.
fn form_error(error: &axum::Error) -> PageError {
    match transport::body_error(error, MAX_FORM_BYTES).kind() {
        ErrorKind::RequestTimeout => PageError::Stalled,
        ErrorKind::BodyTooLarge => PageError::FormTooLarge,
        _ => PageError::BadRequest(INVALID_FORM),
    }
}

/// Binds the origin of the request to the task, for the audit log.
pub(crate) async fn with_origin(request: Request, next: Next) -> Response {
    let info = request.extensions().get::<ConnectInfo<SocketAddr>>();
    let origin = RequestOrigin::new(info.map(|info| info.0.ip()), request.headers());
    origin.scope(next.run(request)).await
}

/// Admits signed-in users; redirects others to the sign-in page.
pub(crate) async fn require_session(
    State(state): State<Arc<ConsoleState>>,
    mut request: Request,
    next: Next,
) -> Response {
    match session::find_session(&state, request.headers()).await {
        Ok(Some(mut user)) => {
            match acting_for::team_from_query(&state, &user, request.uri()).await {
                Ok(team) => {
                    let path = request.uri().path();
                    if let Some(refusal) = ask_for_second_factor(&state, &user, path).await {
                        return refusal;
                    }
                    user.team = team;
                    request.extensions_mut().insert(user);
                    next.run(request).await
                }
                Err(error) => error.into_response(),
            }
        }
        Ok(None) => redirect_to_login(&request),
        Err(error) => error.into_response(),
    }
}

/// Admits signed-in users with a recent proof; others go to the page that asks for one, and from
/// there to the page of the form, which has `depth` path segments.
pub(crate) async fn require_proof(
    State((state, depth)): State<(Arc<ConsoleState>, usize)>,
    user: SignedInUser,
    request: Request,
    next: Next,
) -> Response {
    let page: Vec<&str> = request.uri().path().split('/').take(depth).collect();
    match prove::require_proof(&state, &user, &page.join("/")).await {
        Ok(None) => next.run(request).await,
        Ok(Some(redirect)) => redirect,
        Err(error) => error.into_response(),
    }
}

/// Sends people whose role needs a second factor, and who have none, to their own account. Nothing
/// else is open to them.
async fn ask_for_second_factor(
    state: &ConsoleState,
    user: &SignedInUser,
    path: &str,
) -> Option<Response> {
    if path == SIGN_OUT_PATH || path == ACCOUNT_PATH || path.starts_with("/console/account/") {
        return None;
    }
    match state.host.accounts().lacks_second_factor(&user.account).await {
        Ok(false) => None,
        Ok(true) => Some(see_other("/console/account?told=second")),
        Err(error) => Some(PageError::from(error).into_response()),
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
    State(state): State<Arc<ConsoleState>>,
    Path(parameters): Path<HashMap<String, String>>,
    request: Request,
    next: Next,
) -> Response {
    let given = parameters.get("token").map_or("", String::as_str);
    match state.store.setting(SETUP_TOKEN_SETTING).await {
        Ok(Some(token)) if random::constant_time_eq(&token, given) => next.run(request).await,
        Ok(_) => PageError::NotFound.into_response(),
        Err(error) => PageError::from(error).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sender that waits to be asked is refused by its head.
    #[test]
    fn only_forms_are_asked_for() {
        for (kind, is_taken) in [
            ("application/x-www-form-urlencoded; charset=utf-8", true),
            ("Application/X-WWW-Form-Urlencoded", true),
            ("application/json", false),
            ("text/plain", false),
        ] {
            let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]);
            let got = check_form_head(&headers, &Body::from("{}"));
            assert_eq!(got.is_ok(), is_taken, "{kind}");
            assert!(is_taken || matches!(got, Err(PageError::NotAForm)), "{kind}");
        }
    }
}

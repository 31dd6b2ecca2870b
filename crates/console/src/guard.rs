//! The guards of routes: nothing behind them runs before they agree.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::Method;

use crate::desk::Desk;
use crate::shell::{see_other, sent_to};
use crate::trouble::Trouble;
use crate::{acting, address, session};
use admin::random;

/// The store's name for the one-time set-up word.
pub(crate) const SETUP: &str = "setup_token";

/// Lets people through who are signed in; others go to the sign-in page.
pub(crate) async fn session(
    State(desk): State<Arc<Desk>>,
    mut request: Request,
    next: Next,
) -> Response {
    match session::find(&desk, request.headers()).await {
        Ok(Some(mut signed)) => match acting::chosen(&desk, &signed, request.uri()).await {
            Ok(team) => {
                signed.team = team;
                request.extensions_mut().insert(signed);
                next.run(request).await
            }
            Err(trouble) => trouble.into_response(),
        },
        Ok(None) => to_login(&request),
        Err(trouble) => trouble.into_response(),
    }
}

/// The way to the sign-in page, which knows where to go on from there.
fn to_login(request: &Request) -> Response {
    let wanted = request.uri().path_and_query().map_or("", |path| path.as_str());
    match address::inside(wanted) {
        Some(next) if *request.method() == Method::GET && next != "/console" => {
            sent_to(&format!("/login?next={}", address::value(next)))
        }
        _ => see_other("/login"),
    }
}

/// Lets people through whose address holds the one-time set-up word, while there is one.
pub(crate) async fn setup(
    State(desk): State<Arc<Desk>>,
    Path(place): Path<HashMap<String, String>>,
    request: Request,
    next: Next,
) -> Response {
    let given = place.get("token").map_or("", String::as_str);
    match desk.store.setting(SETUP).await {
        Ok(Some(word)) if random::same(&word, given) => next.run(request).await,
        Ok(_) => Trouble::NotFound.into_response(),
        Err(error) => Trouble::from(error).into_response(),
    }
}

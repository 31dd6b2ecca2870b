//! The guards of routes: nothing behind them runs before they agree.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::desk::Desk;
use crate::shell::see_other;
use crate::trouble::Trouble;
use crate::{random, session};

/// The store's name for the one-time set-up word.
pub(crate) const SETUP: &str = "setup_token";

/// Lets people through who are signed in; others go to the sign-in page.
pub(crate) async fn session(
    State(desk): State<Arc<Desk>>,
    mut request: Request,
    next: Next,
) -> Response {
    match session::find(&desk, request.headers()).await {
        Ok(Some(signed)) => {
            request.extensions_mut().insert(signed);
            next.run(request).await
        }
        Ok(None) => see_other("/login"),
        Err(trouble) => trouble.into_response(),
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

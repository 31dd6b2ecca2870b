//! The life of one call, on one screen. The file names are the steps.
//!
//! `peek → route → admit → attempt (prepare, send, receive) → pump → settle`

mod admit;
mod attempt;
mod call;
mod dry_run;
mod embed;
mod prepare;
mod pump;
mod road;
mod route;
mod seals;
mod settle;
mod whole;

pub(crate) use call::Call;
pub(crate) use embed::embed;
pub(crate) use pump::event_stream;
pub(crate) use road::stamp;
pub(crate) use route::{find as find_route, find_kind};
pub(crate) use seals::SealKeep;

use axum::response::Response;
use canon::Fault;

/// Serves one call, from the caller's bytes to the provider's answer in the caller's format.
pub(crate) async fn serve(call: Call) -> Result<Response, Fault> {
    let peek = call.dialect.peek(&call.target, &call.body)?;
    let route = route::find(&call, &peek)?;
    if call.dry_run {
        return dry_run::answer(&call, &peek, &route);
    }
    let admitted = admit::admit(&call, &peek, &route).await?;
    admit::secure(&call).await?;
    attempt::attempt(call, peek, &route, admitted).await
}

//! The life of one call, on one screen. The file names are the steps.
//!
//! `peek → route → admit → attempt (fetch, prepare, send, receive) → pump → settle`

mod admit;
mod attempt;
mod call;
mod dry_run;
mod embed;
mod engine;
mod error_format;
mod fetch;
pub mod files;
mod fit;
mod funds;
mod images;
mod journey;
mod json;
mod prepare;
mod pump;
mod request_id;
mod road;
mod route;
mod seals;
mod send;
mod settle;
pub mod tokens;
mod whole;
mod wishes;

pub use call::{Call, CallRequest, Takes};
pub use embed::embed;
pub use engine::{Engine, EngineParts};
pub use error_format::{Voice, allow, is_native_client};
pub use files::Files;
pub use funds::{Funds, node_name, write_name};
pub use images::{ImageOutcome, ImageTask, Painted, paint, picture};
pub use json::json;
pub use pump::event_stream;
pub use request_id::{Ids, RequestId};
pub use road::stamp;
pub use route::{find as find_route, unknown_model};
pub use seals::SealKeep;

use axum::response::Response;
use canon::ApiError;
use std::sync::Arc;

/// Serves one call, from the caller's bytes to the provider's answer in the caller's format.
pub async fn serve(call: Call) -> Result<Response, ApiError> {
    let call = Arc::new(call);
    let (peek, route, named) = call.at_length(|| {
        let peek = call.dialect.read_facts(&call.target, &call.body)?;
        let route = route::find(&call, &peek)?;
        let named = fetch::Named::look(&call, peek.only_text)?;
        Ok::<_, ApiError>((peek, route, named))
    })?;
    if call.dry_run {
        return call.at_length(|| dry_run::answer(&call, &peek, &route, &named));
    }
    admit::pace(&call, &peek).await?;
    let admitted = admit::admit(&call, &peek, &route, &named).await?;
    admit::secure(&call).await?;
    attempt::attempt(&call, &peek, &route, admitted, named).await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Futures are moved from step to step as a whole, so that what is rare and large in one has
    /// to be boxed.
    #[test]
    fn the_future_of_a_call_is_small() {
        fn size<A, F: Future>(_: impl Fn(A) -> F) -> usize {
            size_of::<F>()
        }
        let serve = size(serve);
        assert!(serve <= 8 << 10, "{serve}");
    }
}

//! One call from request to settlement. The modules are the steps.
//!
//! `facts → route → admit → attempt (media_refs, prepare, adapt, send) → reply (stream_pipeline,
//! streamed_reply) → settle`

mod adapt;
mod admit;
mod attempt;
mod cache_use;
mod call;
mod call_head;
mod call_options;
mod call_texts;
mod caller_labels;
mod caller_task;
mod closed_call;
mod compressed_body;
mod dry_run;
mod embeddings;
mod engine;
mod envelope_keys;
mod error_format;
mod fan_out;
mod fence;
pub mod file_store;
mod funds;
mod images;
mod inline_media;
mod large_work;
mod loss_header;
pub mod mcp;
mod media_refs;
mod node_folder;
mod object_book;
mod prepare;
mod provider_cache;
mod refusals;
mod reply;
mod request_id;
mod retry_plan;
mod route;
mod send;
mod session;
mod session_id;
mod settle;
mod signature_cache;
mod sizing;
mod stream_pipeline;
mod streamed_body;
mod streamed_reply;
mod token_count;
pub mod token_estimate;
mod value_count;
mod work_budget;

pub use cache_use::{CacheUse, ProviderCache};
pub use call::{BodyKind, Call, CallRequest, OwnPaths, start_trace};
pub use call_head::CallHead;
pub use caller_task::run_for_caller;
pub use embeddings::serve_embeddings;
pub use engine::{Engine, EngineParts};
pub use envelope_keys::EnvelopeKeys;
pub use error_format::{ErrorFormat, log_error, with_allow_header};
pub use fence::check_references;
pub use file_store::FileStore;
pub use funds::{MAX_STORE_SILENCE, NodeFunds};
pub use images::{ImageOutcome, ImageResult, ImageTask, generate_images, serve_images};
pub use large_work::{HeavyWork, HeavyWorkUse, WorkOutcome, WorkPermit};
pub use node_folder::NodeFolder;
pub use object_book::ObjectBook;
pub use provider_cache::{NewProviderCache, delete_provider_cache, make_provider_cache};
pub use reply::{event_stream, json_response};
pub use request_id::{RequestId, RequestIds};
pub use route::{find as find_route, unknown_model};
pub use session_id::caller_id;
pub use signature_cache::SignatureCache;
pub use token_count::{ProviderCount, count_at_provider};

use canon::{ApiError, boxed};
use futures_util::future::BoxFuture;
use std::sync::Arc;
use transport::ServerReply;

/// Serves one chat call: from the caller's bytes to the provider's reply in the caller's format.
///
/// Boxed here: the compiler generates the code of a future in the crate that boxes or polls it, by
/// the settings of that crate.
pub fn serve(call: Box<Call>) -> BoxFuture<'static, Result<ServerReply, ApiError>> {
    let call: Arc<Call> = Arc::from(call);
    Box::into_pin(boxed(|| async move {
        let served = run_call(Arc::clone(&call)).await;
        served.map_err(|error| call.with_own_paths(error))
    }))
}

/// Serves one turn of an answer that has several.
fn serve_turn(turn: Box<Call>) -> BoxFuture<'static, Result<ServerReply, ApiError>> {
    Box::pin(run_call(Arc::from(turn)))
}

/// Refuses a call that is not sent as it is, or that its key cannot pay. Reserves nothing.
async fn check_call_funds(call: &Call) -> Result<(), ApiError> {
    let check = || {
        let facts = call.parse()?;
        call.forget_chat();
        let route = route::find(call, &facts)?;
        let named = fence::named_objects(call, &facts.outline)?;
        let media = media_refs::MediaRefs::find_in(call, &facts, &named, &route.lanes)?;
        Ok::<_, ApiError>((facts, route, media))
    };
    let (facts, route, media) = call.work_permit().await.run(check).await?;
    admit::check_least_funds(call, &facts, &route, &media).await
}

async fn run_call(call: Arc<Call>) -> Result<ServerReply, ApiError> {
    let parsed = call
        .work_permit()
        .await
        .run(|| {
            let facts = call.parse()?;
            if mcp::turns::are_needed(&call, &facts) {
                // A need that no lane meets is refused at the caller's own field, before a server is asked.
                route::find(&call, &facts)?;
                call.forget_chat();
                return Ok(None);
            }
            let route = route::find(&call, &facts)?;
            let named = fence::named_objects(&call, &facts.outline)?;
            let media = media_refs::MediaRefs::find_in(&call, &facts, &named, &route.lanes)?;
            dry_run::check_refusals(&call, &facts, &route, &media)?;
            Ok::<_, ApiError>(Some((facts, route, named, media)))
        })
        .await?;
    let Some((mut facts, route, named, media)) = parsed else {
        // Boxed because it is rare: the future of every call would grow by its size.
        return Box::pin(mcp::turns::serve(call)).await;
    };
    if !named.is_empty() {
        sizing::note_objects(&mut facts, &named);
        // Boxed because it is rare: the future of every call would grow by its size.
        facts.foreign_objects = Box::pin(fence::foreign_objects(&call, &route, named)).await?;
    }
    if call.options.dry_run {
        return call
            .work_permit()
            .await
            .run(|| dry_run::dry_run(&call, &facts, &route, &media))
            .await
            .map(ServerReply::from);
    }
    admit::check_token_rate(&call, &facts).await?;
    let admitted = admit::admit(&call, &facts, &route, &media).await?;
    attempt::attempt(&call, &facts, &route, admitted, media).await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Futures are allocated as a whole, so rare and large parts must be boxed.
    #[test]
    fn serve_future_is_small() {
        fn size<A, F: Future>(_: impl Fn(A) -> F) -> usize {
            size_of::<F>()
        }
        let serve = size(run_call);
        assert!(serve <= 8 << 10, "{serve}");
    }
}

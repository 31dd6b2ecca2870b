//! `POST /v1beta/models/{model}:{operator}`, and the same operators under `/v1/models`:
//! <https://ai.google.dev/api/generate-content>.

use axum::response::Response;
use canon::{ApiError, ErrorKind};
use config::Config;
use dialects::RequestTarget;
use dialects::embeddings::EmbeddingEndpoint;
use dialects::native::{self, CachedPrefix, NativeDialect};
use serde_json::json;
use std::sync::Arc;

use super::query::{percent_decode, query_pairs};
use crate::request::ApiRequest;
use crate::state::ApiState;
use crate::token_count::InputTokens;
use crate::{cached_contents, embeddings, token_count};
use relay::{self, Call};
use transport::ServerReply;

pub(super) async fn call(incoming: ApiRequest) -> Result<ServerReply, ApiError> {
    let path = incoming.request.path();
    let rest = percent_decode(path.split_once("/models/").map_or("", |(_, rest)| rest));
    // A model id may contain colons, so the operator follows the last one.
    let Some((model, operator)) = rest.rsplit_once(':') else {
        return Err(ApiError::new(
            ErrorKind::UnknownPath,
            "the path must end with `:` and an operator",
        ));
    };
    let model = model_id(&incoming.state.config(), model);
    let alt = query_pairs(incoming.request.query());
    let alt = alt.iter().find(|(name, _)| name == "alt").map(|(_, value)| value.as_str());
    let events = match alt {
        Some("sse") => true,
        None | Some("" | "json") => false,
        Some(_) => return Err(ApiError::invalid("alt", "`alt` must be `sse` or left out")),
    };
    let target = |stream: bool| {
        let array = stream && !events;
        RequestTarget {
            model: Some(model.clone()),
            stream,
            json_array: array,
            ..RequestTarget::default()
        }
    };
    match operator {
        "generateContent" if events => {
            Err(ApiError::invalid("alt", "`alt=sse` belongs to `streamGenerateContent`"))
        }
        "generateContent" | "streamGenerateContent" => {
            let (state, target) =
                (Arc::clone(&incoming.state), target(operator == "streamGenerateContent"));
            let call = Call::read(incoming.into_call(), &NativeDialect, target).await?;
            match cached_contents::may_name_cache(&call.body) {
                // Boxed because it is rare: the future of every call would grow by its size.
                true => Box::pin(generate_with_cache(state, call)).await,
                false => relay::serve(call).await,
            }
        }
        "countTokens" => {
            let state = Arc::clone(&incoming.state);
            let call = Call::read(incoming.into_call(), &NativeDialect, target(false)).await?;
            count_tokens(&state, call).await.map(ServerReply::from)
        }
        "embedContent" | "batchEmbedContents" if events => {
            Err(ApiError::invalid("alt", "`alt=sse` belongs to `streamGenerateContent`"))
        }
        "embedContent" => {
            embeddings::create_native(incoming, target(false), EmbeddingEndpoint::EmbedContent)
                .await
                .map(ServerReply::from)
        }
        "batchEmbedContents" => embeddings::create_native(
            incoming,
            target(false),
            EmbeddingEndpoint::BatchEmbedContents,
        )
        .await
        .map(ServerReply::from),
        _ => {
            let shown: String = operator.chars().take(64).collect();
            Err(ApiError::new(ErrorKind::UnknownPath, format!("there is no operator `{shown}`")))
        }
    }
}

/// Returns the id of the model that a path names. Clients may write the name of the collection twice, and
/// official ones leave it out of an id that begins with it.
fn model_id(config: &Config, named: &str) -> String {
    let is_known = |id: &str| config.routes.contains_key(id);
    let bare = named.strip_prefix("models/").unwrap_or(named);
    let whole = || Some(format!("models/{named}")).filter(|id| is_known(id));
    let short = [named, bare].into_iter().find(|id| is_known(id)).map(str::to_owned);
    short.or_else(whole).unwrap_or_else(|| bare.to_owned())
}

/// Serves a request that may name cached content.
async fn generate_with_cache(
    state: Arc<ApiState>,
    mut call: Box<Call>,
) -> Result<ServerReply, ApiError> {
    let content = cached_contents::expand(&state, &mut call).await?;
    let prefix = content.prefix;
    call.own_paths = Some(Arc::new(move |error| prefix.restore_path(error)));
    let answer = relay::serve(call).await;
    content.forget_lost_copy(&state).await;
    answer
}

/// Counts tokens: <https://ai.google.dev/api/tokens>. The body is `{contents}`, or a whole request
/// under `generateContentRequest`.
async fn count_tokens(state: &ApiState, mut call: Box<Call>) -> Result<Response, ApiError> {
    let wrapped = call.work_permit().await.run(|| native::wrapped_request(&call.body)).await?;
    let wrapper = wrapped.as_ref().map(|_| native::COUNTED_REQUEST);
    if let Some(request) = wrapped {
        call.body = request;
    }
    let counted = count_expanded(state, &mut call).await.map_err(|error| match wrapper {
        Some(name) => inside_field(name, error),
        None => error,
    })?;
    let body = json!({
        "totalTokens": counted.tokens,
        "promptTokensDetails": [{ "modality": "TEXT", "tokenCount": counted.tokens }],
    });
    Ok(counted.answer(&body))
}

/// Counts a request together with the cached content that it names.
async fn count_expanded(state: &ApiState, call: &mut Call) -> Result<InputTokens, ApiError> {
    let prefix = match cached_contents::may_name_cache(&call.body) {
        true => Box::pin(cached_contents::expand(state, call)).await?.prefix,
        false => CachedPrefix::default(),
    };
    token_count::count_tokens(call).await.map_err(|error| prefix.restore_path(error))
}

/// Returns the error of an object with the path of the field that holds the object.
fn inside_field(name: &str, error: ApiError) -> ApiError {
    match error.param().map(str::to_owned) {
        Some(path) if matches!(error.kind(), ErrorKind::InvalidRequest | ErrorKind::NotFound) => {
            let whole = format!("{name}.{path}");
            let message = error.message().replace(&format!("`{path}`"), &format!("`{whole}`"));
            error.with_message(message).with_param(whole)
        }
        Some(_) | None => error,
    }
}

/// Refuses file uploads: the gateway has no file storage for callers.
pub(super) async fn upload(_incoming: ApiRequest) -> Result<Response, ApiError> {
    Err(ApiError::invalid(
        "",
        "file uploads are unsupported: send the media as `inlineData`, or as `fileData` with a \
         public https address",
    ))
}

//! Token counts of requests: by a provider that can count, or computed here.

use axum::response::Response;
use bytes::Bytes;
use canon::ApiError;
use dialects::{ParsedRequest, RequestUse};
use http::header::HeaderValue;
use serde_json::Value;

use relay::Call;
use relay::token_estimate;

/// Number of input tokens, either exact or estimated.
pub(super) struct InputTokens {
    pub(super) tokens: u64,
    exact: bool,
    /// Answer of a provider of the caller's format.
    provider_answer: Option<Bytes>,
}

impl InputTokens {
    /// Response in the format's own shape: the provider's answer, or else `body`. The header
    /// `x-portunus-count` tells exact from estimated.
    pub(super) fn answer(self, body: &Value) -> Response {
        let body = self.provider_answer.unwrap_or_else(|| Bytes::from(body.to_string()));
        let mut response = relay::json_response(body);
        let worth = if self.exact { "exact" } else { "estimate" };
        response.headers_mut().insert("x-portunus-count", HeaderValue::from_static(worth));
        response
    }
}

/// Counts the request of a call in the caller's format.
pub(super) async fn count_tokens(call: &Call) -> Result<InputTokens, ApiError> {
    let parse = || call.dialect.parse(&call.target, &call.body, RequestUse::Count);
    let ParsedRequest { facts, chat } = call.work_permit().await.run(parse).await?;
    let (mut facts, chat) = (facts.unwrap_or_default(), chat.unwrap_or_default());
    let route = relay::find_route(call, &facts)?;
    relay::check_references(call, &mut facts, &route).await?;
    if route.lanes.first().is_some_and(|lane| lane.provider.name == "demo") {
        let tokens = call.work_permit().await.run(|| demo::count_input(&chat)).await;
        return Ok(InputTokens { tokens, exact: true, provider_answer: None });
    }
    if let Some(count) = relay::count_at_provider(call, &facts, &route).await {
        let (tokens, provider_answer) = (count.tokens, count.answer);
        return Ok(InputTokens { tokens, exact: true, provider_answer });
    }
    let tokens = call.work_permit().await.run(|| token_estimate::estimate_request(&chat)).await;
    Ok(InputTokens { tokens, exact: false, provider_answer: None })
}

//! Token counts of requests, computed here without asking a provider.

use axum::response::Response;
use canon::ApiError;
use dialects::RequestFacts;
use http::header::HeaderValue;
use serde_json::Value;

use relay::Call;
use relay::token_estimate;

/// Number of input tokens, either exact or estimated.
pub(super) struct InputTokens {
    pub(super) tokens: u64,
    exact: bool,
}

impl InputTokens {
    /// Response in the format's own shape. The header `x-portunus-count` tells exact from
    /// estimated.
    pub(super) fn answer(&self, body: &Value) -> Response {
        let mut response = relay::json_response(body.to_string());
        let worth = if self.exact { "exact" } else { "estimate" };
        response.headers_mut().insert("x-portunus-count", HeaderValue::from_static(worth));
        response
    }
}

/// Counts a request in the caller's format.
pub(super) fn count_tokens(call: &Call, body: &[u8]) -> Result<InputTokens, ApiError> {
    let chat = call.run_blocking(|| {
        let chat = call.dialect.read_request(&call.target, body)?;
        call.dialect.check_count(&call.target, body).map(|()| chat)
    })?;
    let facts = RequestFacts { model: chat.model.clone(), ..RequestFacts::default() };
    let route = relay::find_route(call, &facts)?;
    let ours = route.lanes.first().is_some_and(|lane| lane.provider.name == "demo");
    let tokens = call.run_blocking(|| match ours {
        true => demo::count_input(&chat),
        false => token_estimate::estimate_request(&chat),
    });
    Ok(InputTokens { tokens, exact: ours })
}

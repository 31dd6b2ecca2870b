//! How many tokens a request has, told here without asking a provider.

use axum::response::Response;
use canon::ApiError;
use dialects::RequestFacts;
use http::header::HeaderValue;
use serde_json::Value;

use relay::Call;
use relay::tokens;

/// A count, and whether it is the model's own or an estimate.
pub(super) struct Counted {
    pub(super) tokens: u64,
    exact: bool,
}

impl Counted {
    /// The count in a format's own shape, with a header that says what it is worth.
    pub(super) fn answer(&self, body: &Value) -> Response {
        let mut response = relay::json(body.to_string());
        let worth = if self.exact { "exact" } else { "estimate" };
        response.headers_mut().insert("x-portunus-count", HeaderValue::from_static(worth));
        response
    }
}

/// Counts a request in the caller's format.
pub(super) fn count(call: &Call, body: &[u8]) -> Result<Counted, ApiError> {
    let chat = call.at_length(|| call.dialect.read_request(&call.target, body))?;
    let peek = RequestFacts { model: chat.model.clone(), ..RequestFacts::default() };
    let route = relay::find_route(call, &peek)?;
    let ours = route.lanes.first().is_some_and(|lane| lane.provider.name == "demo");
    let tokens = if ours { demo::count_input(&chat) } else { tokens::of_chat(&chat) };
    Ok(Counted { tokens, exact: ours })
}

//! Events that the gateway sends over a WebSocket: those of the stream, and errors.

use bytes::Bytes;
use canon::ApiError;
use dialects::Dialect as _;
use dialects::responses::ResponsesDialect;
use serde_json::{Map, Value, json};

use crate::json_object::{parse_object, set_fields};

/// Adds fields to an event, which is a JSON object. The rest keeps its bytes.
pub(super) fn with_fields(event: Bytes, fields: &Map<String, Value>) -> Bytes {
    if fields.is_empty() {
        return event;
    }
    let text = event.trim_ascii_end();
    let Some(inside) = text.strip_suffix(b"}") else { return event };
    let added = Value::from(fields.clone()).to_string();
    let added = added.strip_prefix('{').unwrap_or_default();
    let comma: &[u8] = if inside.trim_ascii_end().ends_with(b"{") { b"" } else { b"," };
    [inside, comma, added.as_bytes()].concat().into()
}

/// Returns the field that names the stream of an event.
pub(super) fn stream_field(stream_id: Option<&str>) -> Map<String, Value> {
    stream_id.map(|id| ("stream_id".to_owned(), Value::from(id))).into_iter().collect()
}

/// Returns an error as an event, and logs it.
pub(super) fn error_event(error: &ApiError, request_id: &str, stream_id: Option<&str>) -> Bytes {
    let (status, body) = ResponsesDialect.write_error(error, request_id);
    relay::log_error(error, status, request_id);
    let mut event = Map::new();
    event.insert("type".to_owned(), "error".into());
    event.insert("status".to_owned(), status.into());
    event.insert("error".to_owned(), parse_object(body).shift_remove("error").unwrap_or_default());
    // Clients read the time to wait from here, as from the headers of a response.
    if let Some(wait) = error.retry_after().filter(|_| error.is_retryable()) {
        let seconds = wait.as_millis().div_ceil(1_000).max(1).to_string();
        event.insert("headers".to_owned(), json!({ "retry-after": seconds }));
    }
    event.extend(stream_field(stream_id));
    Value::from(event).to_string().into()
}

/// Returns the event with this number, which ends a response that began with the event `first`.
pub(super) fn failed_event(first: &[u8], error: Value, number: u64) -> Bytes {
    let begun = parse_object(first).shift_remove("response").unwrap_or_default();
    let mut response = begun.as_object().cloned().unwrap_or_default();
    set_fields(&mut response, [("status", json!("failed")), ("error", error)]);
    let event =
        json!({ "type": "response.failed", "sequence_number": number, "response": response });
    event.to_string().into()
}

/// Returns the event that gives the input of `response.steer` back. Both values are JSON.
pub(super) fn steer_failed(previous_response_id: &str, input: &str) -> Bytes {
    let error = json!({
        "type": "invalid_request_error",
        "code": "steering_not_supported",
        "message": "a running response cannot be steered here; send the input with the next \
                    `response.create`",
    });
    let event = format!(
        "{{\"type\":\"response.steer.failed\",\"sequence_number\":0,\"error\":{error},\"steer\":\
         {{\"previous_response_id\":{previous_response_id},\"input\":{input}}}}}"
    );
    event.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_added_to_the_bytes_of_an_event() {
        let fields = stream_field(Some("a"));
        let added = |text: &'static str| with_fields(Bytes::from_static(text.as_bytes()), &fields);
        assert_eq!(added(r#"{"x": 1.0}"#), r#"{"x": 1.0,"stream_id":"a"}"#);
        assert_eq!(added("{ } "), r#"{ "stream_id":"a"}"#);
        assert_eq!(with_fields(Bytes::from_static(b"{}"), &stream_field(None)), "{}");
    }
}

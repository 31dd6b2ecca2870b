//! Events that a client sends over a WebSocket.
//! See <https://developers.openai.com/api/docs/guides/websocket-mode>.

use bytes::Bytes;
use canon::ApiError;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

/// Longest name of a stream.
const MAX_STREAM_ID_BYTES: usize = 256;

/// An event of a client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ClientEvent {
    /// Create a response.
    Create(CreateEvent),
    /// Add input to a running response.
    Steer {
        /// Id of the response, as JSON.
        previous_response_id: String,
        /// The input, as JSON.
        input: String,
    },
}

/// Request for a response.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CreateEvent {
    /// Stream that the response belongs to; `None` for the one without a name.
    pub(super) stream_id: Option<String>,
    /// False if the model is not to be asked.
    pub(super) generates: bool,
    /// Body of the same request over HTTP, with `stream`.
    pub(super) body: Bytes,
}

/// An event that is refused, with its stream if that is known.
#[derive(Debug)]
pub(super) struct RefusedEvent {
    pub(super) stream_id: Option<String>,
    pub(super) error: ApiError,
}

/// Fields of an object in their order, as they were sent.
struct RawFields<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for RawFields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldVisitor;

        impl<'de> Visitor<'de> for FieldVisitor {
            type Value = RawFields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry::<String, &'de RawValue>()? {
                    fields.push(field);
                }
                Ok(RawFields(fields))
            }
        }

        deserializer.deserialize_map(FieldVisitor)
    }
}

impl<'a> RawFields<'a> {
    /// Returns the value of a field that is not null. A field that is sent twice is refused: the reader
    /// of the body might take the other one.
    fn value(&self, name: &str) -> Result<Option<&'a RawValue>, ApiError> {
        let mut found = self.0.iter().filter(|(own, _)| own == name).map(|(_, raw)| *raw);
        let value = found.next();
        if found.next().is_some() {
            return Err(ApiError::invalid(name, format!("`{name}` was sent twice")));
        }
        Ok(value.filter(|raw| raw.get() != "null"))
    }

    fn text(&self, name: &str) -> Result<Option<String>, ApiError> {
        let wrong = |_| ApiError::invalid(name, format!("`{name}` must be a string"));
        let value = self.value(name)?;
        value.map(|raw| dialects::json::read(raw.get()).map_err(wrong)).transpose()
    }

    fn flag(&self, name: &str) -> Result<Option<bool>, ApiError> {
        let wrong = |_| ApiError::invalid(name, format!("`{name}` must be true or false"));
        let value = self.value(name)?;
        value.map(|raw| dialects::json::read(raw.get()).map_err(wrong)).transpose()
    }

    /// Writes the body of the request over HTTP. Values keep the caller's bytes.
    fn write_body(&self) -> Bytes {
        let length: usize = self.0.iter().map(|(name, raw)| name.len() + raw.get().len() + 8).sum();
        let mut body = Vec::with_capacity(length + 16);
        body.push(b'{');
        for (name, raw) in &self.0 {
            if matches!(name.as_str(), "type" | "stream" | "stream_id" | "generate" | "background")
            {
                continue;
            }
            body.extend_from_slice(&dialects::json::to_json_string(name));
            body.push(b':');
            body.extend_from_slice(raw.get().as_bytes());
            body.push(b',');
        }
        body.extend_from_slice(b"\"stream\":true}");
        body.into()
    }
}

/// Reads an event.
pub(super) fn read_event(text: &[u8]) -> Result<ClientEvent, RefusedEvent> {
    let refused = |error| RefusedEvent { stream_id: None, error };
    let fields: RawFields<'_> = dialects::json::read_bytes(text).map_err(|error| {
        refused(ApiError::invalid("", format!("the message is not a JSON object: {error}")))
    })?;
    let stream_id = fields.text("stream_id").map_err(refused)?;
    if stream_id.as_deref().is_some_and(|id| !is_stream_id(id)) {
        let message = "`stream_id` must be 1 to 256 letters, digits, underscores, hyphens or dots";
        return Err(refused(
            ApiError::invalid("stream_id", message).with_code("invalid_stream_id"),
        ));
    }
    let kind = fields.text("type").map_err(refused)?;
    let event = match kind.as_deref() {
        Some("response.create") => read_create(&fields, stream_id.clone()),
        Some("response.steer") => read_steer(&fields),
        _ => Err(ApiError::invalid("type", "`type` must be `response.create` or `response.steer`")),
    };
    event.map_err(|error| RefusedEvent { stream_id, error })
}

fn read_create(fields: &RawFields<'_>, stream_id: Option<String>) -> Result<ClientEvent, ApiError> {
    if fields.flag("background")? == Some(true) {
        let message = "`background` is not available over a WebSocket; send POST /v1/responses";
        return Err(ApiError::invalid("background", message));
    }
    fields.flag("stream")?;
    let generates = fields.flag("generate")?.unwrap_or(true);
    Ok(ClientEvent::Create(CreateEvent { stream_id, generates, body: fields.write_body() }))
}

fn read_steer(fields: &RawFields<'_>) -> Result<ClientEvent, ApiError> {
    let missing = |name: &str| ApiError::invalid(name, format!("`{name}` is missing"));
    let name = "previous_response_id";
    let id = fields.text(name)?.ok_or_else(|| missing(name))?;
    let input = fields.value("input")?.ok_or_else(|| missing("input"))?;
    let previous_response_id =
        String::from_utf8_lossy(&dialects::json::to_json_string(&id)).into_owned();
    Ok(ClientEvent::Steer { previous_response_id, input: input.get().to_owned() })
}

fn is_stream_id(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    (1..=MAX_STREAM_ID_BYTES).contains(&text.len()) && text.bytes().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create(text: &str) -> CreateEvent {
        match read_event(text.as_bytes()) {
            Ok(ClientEvent::Create(create)) => create,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_create_is_the_body_of_a_post() {
        let text = r#"{"type":"response.create","model":"m", "input":[ {"a" : 1.50} ],"stream":false,
            "stream_id":"a.b-c_1","generate":null,"background":false,"x\"y":"\u00e9"}"#;
        let event = create(text);
        assert_eq!(event.stream_id.as_deref(), Some("a.b-c_1"));
        assert!(event.generates);
        let body = r#"{"model":"m","input":[ {"a" : 1.50} ],"x\"y":"\u00e9","stream":true}"#;
        assert_eq!(std::str::from_utf8(&event.body).unwrap(), body);
        assert!(!create(r#"{"generate":false,"type":"response.create"}"#).generates);
    }

    #[test]
    fn a_refused_event_names_its_field_and_its_stream() {
        let long = "x".repeat(257);
        let cases = [
            (String::new(), None, None),
            ("[]".into(), None, None),
            ("{}".into(), Some("type"), None),
            (r#"{"type":"session.update"}"#.into(), Some("type"), None),
            (r#"{"type":"response.create","stream_id":""}"#.into(), Some("stream_id"), None),
            (r#"{"type":"response.create","stream_id":"a b"}"#.into(), Some("stream_id"), None),
            (r#"{"type":"response.create","stream_id":7}"#.into(), Some("stream_id"), None),
            (
                format!(r#"{{"type":"response.create","stream_id":"{long}"}}"#),
                Some("stream_id"),
                None,
            ),
            (
                r#"{"type":"response.create","stream_id":"a","background":true}"#.into(),
                Some("background"),
                Some("a"),
            ),
            (
                r#"{"type":"response.create","stream_id":"a","generate":"no"}"#.into(),
                Some("generate"),
                Some("a"),
            ),
            (
                r#"{"type":"response.create","generate":true,"generate":false}"#.into(),
                Some("generate"),
                None,
            ),
            (r#"{"type":"response.steer","input":"x"}"#.into(), Some("previous_response_id"), None),
            (r#"{"type":"response.steer","previous_response_id":"r"}"#.into(), Some("input"), None),
        ];
        for (text, param, stream_id) in cases {
            let refused = read_event(text.as_bytes()).unwrap_err();
            assert_eq!(refused.error.param(), param, "{text}");
            assert_eq!(refused.stream_id.as_deref(), stream_id, "{text}");
        }
    }
}

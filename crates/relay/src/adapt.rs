//! Adapts a request to one provider: its path, its field names, its unsupported fields.
//!
//! This step follows both pass-through and translation. It edits the bytes that are about to be
//! sent.

use bytes::Bytes;
use canon::{ApiError, Loss, Lossy, WireFormat};
use catalog::{Endpoints, FieldQuirks};
use dialects::ProviderRequest;
use dialects::json::{self, BodyEdit, BodySegments};
use http::HeaderMap;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::ops::Range;

/// Characters left unescaped in a path segment. A model name is always one segment.
const PATH_SEGMENT: AsciiSet =
    NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'@');

/// Adapts a request to the endpoints and quirks of a provider. `caller_headers` are those
/// that belong to the body.
pub(super) fn adapt(
    endpoints: &Endpoints,
    origin: WireFormat,
    model: &str,
    stream: bool,
    caller_headers: Option<&HeaderMap>,
    outgoing: ProviderRequest,
) -> Result<Lossy<ProviderRequest>, ApiError> {
    let mut outgoing = set_path(endpoints, origin, model, stream, outgoing);
    let quirks = endpoints.quirks(origin).filter(|quirks| quirks.edits_bodies());
    let Some(quirks) = quirks else { return Ok((outgoing, Vec::new())) };
    let (body, losses) = edit_body(quirks, caller_headers, outgoing.body)?;
    outgoing.body = body;
    Ok((outgoing, losses))
}

/// Removes fields that are meant for the gateway.
pub(super) fn remove_fields(
    fields: &[&str],
    outgoing: ProviderRequest,
) -> Result<ProviderRequest, ApiError> {
    let needless = fields.iter().map(|name| (*name).to_owned()).collect();
    let quirks = FieldQuirks { needless, ..FieldQuirks::default() };
    let (body, _) = edit_body(&quirks, None, outgoing.body)?;
    Ok(ProviderRequest { body, ..outgoing })
}

/// Replaces the path by the provider's own.
pub(super) fn set_path(
    endpoints: &Endpoints,
    origin: WireFormat,
    model: &str,
    stream: bool,
    mut outgoing: ProviderRequest,
) -> ProviderRequest {
    let Some(template) = endpoints.path(origin) else { return outgoing };
    let template = if stream { &template.stream } else { &template.whole };
    let (default_path, query) = match outgoing.path.split_once('?') {
        Some((default_path, query)) => (default_path, Some(query)),
        None => (outgoing.path.as_str(), None),
    };
    let op = default_path.rsplit_once(':').map_or("", |(_, op)| op);
    // Segments of dots are resolved by URL parsers, even percent-encoded
    // (<https://url.spec.whatwg.org/#double-dot-path-segment>). No model has that name.
    let is_dots = model.chars().all(|c| c == '.');
    let model =
        if is_dots { "_".into() } else { utf8_percent_encode(model, &PATH_SEGMENT).to_string() };
    let mut path = template.replace("{model}", &model).replace("{op}", op);
    // The embeddings endpoint is a sibling of the chat completions endpoint.
    if default_path.ends_with("/embeddings") {
        path = path.replacen("/chat/completions", "/embeddings", 1);
    }
    // The edits endpoint is a sibling of the generations endpoint.
    if default_path.ends_with("/images/edits") {
        path = path.replacen("/images/generations", "/images/edits", 1);
    }
    if let Some(query) = query {
        path.push(if path.contains('?') { '&' } else { '?' });
        path.push_str(query);
    }
    outgoing.path = path;
    outgoing
}

/// Sets the path of a counting request. Returns `None` if the provider serves the format at a path
/// of its own that has no counting endpoint.
pub(super) fn set_count_path(
    endpoints: &Endpoints,
    origin: WireFormat,
    model: &str,
    mut outgoing: ProviderRequest,
) -> Option<ProviderRequest> {
    let Some(template) = endpoints.path(origin) else { return Some(outgoing) };
    if template.whole.contains("{op}") {
        return Some(set_path(endpoints, origin, model, false, outgoing));
    }
    // The counting endpoint stands below the endpoint of calls.
    let (call_path, name) = outgoing.path.rsplit_once('/')?;
    let (_, resource) = call_path.rsplit_once('/')?;
    let (path, query) = match template.whole.split_once('?') {
        Some((path, query)) => (path, format!("?{query}")),
        None => (template.whole.as_str(), String::new()),
    };
    let (_, last) = path.rsplit_once('/')?;
    if last != resource {
        return None;
    }
    outgoing.path = format!("{path}/{name}{query}");
    Some(outgoing)
}

/// A field of the body with the positions of its name and value.
struct BodyField<'a> {
    name: String,
    key: Range<usize>,
    value: &'a RawValue,
    end: usize,
}

/// Names and values of an object in order.
struct BodyFields<'a>(Vec<(&'a RawValue, &'a RawValue)>);

impl<'de> Deserialize<'de> for BodyFields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldsVisitor;
        impl<'de> Visitor<'de> for FieldsVisitor {
            type Value = BodyFields<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<BodyFields<'de>, A::Error> {
                let mut fields = Vec::new();
                while let Some(entry) = map.next_entry::<&RawValue, &RawValue>()? {
                    fields.push(entry);
                }
                Ok(BodyFields(fields))
            }
        }
        deserializer.deserialize_map(FieldsVisitor)
    }
}

fn edit_body(
    quirks: &FieldQuirks,
    caller_headers: Option<&HeaderMap>,
    body: BodySegments,
) -> Result<Lossy<BodySegments>, ApiError> {
    let FieldQuirks {
        renames,
        refuses,
        needless,
        sets,
        roles,
        headers,
        cache_field: _,
        client_tools: _,
    } = quirks;
    let mut segments = body.into_segments();
    let body = match (segments.pop(), segments.is_empty()) {
        (Some(only), true) => only,
        (last, _) => {
            segments.extend(last);
            Bytes::from(segments.concat())
        }
    };
    let defect = |why: &dyn std::fmt::Display| {
        ApiError::internal(format!("a provider request cannot be parsed: {why}"))
    };
    let text = std::str::from_utf8(&body).map_err(|e| defect(&e))?;
    let BodyFields(entries) = json::read(text).map_err(|e| defect(&e))?;
    let mut fields = Vec::with_capacity(entries.len());
    for (key, value) in entries {
        let name: String = json::read(key.get()).map_err(|e| defect(&e))?;
        let key = json::range_of(text, key);
        fields.push(BodyField { name, key, value, end: json::range_of(text, value).end });
    }
    let has = |name: &str| fields.iter().any(|field| field.name == name);

    let mut edits = Vec::new();
    let mut losses = Vec::new();
    let mut added: Vec<String> = Vec::new();
    for (field, value) in sets.iter().filter(|(field, _)| !has(field)) {
        added.push(format!("{}:{}", json_string(field), json_string(value)));
    }
    for (header, field) in headers.iter().filter(|(_, field)| !has(field)) {
        let header_value =
            caller_headers.and_then(|caller_headers| caller_headers.get(header)?.to_str().ok());
        let values: Vec<&str> =
            header_value.unwrap_or_default().split(',').map(str::trim).collect();
        let values: Vec<String> =
            values.iter().filter(|w| !w.is_empty()).map(|w| json_string(w)).collect();
        if !values.is_empty() {
            added.push(format!("{}:[{}]", json_string(field), values.join(",")));
        }
    }
    // A field that receives a renamed name replaces the field of that name. Computed once, because
    // a body may repeat a name any number of times.
    let replaced: Vec<&String> =
        renames.iter().filter(|(from, _)| has(from)).map(|(_, to)| to).collect();
    let is_removed = |field: &BodyField<'_>| {
        replaced.contains(&&field.name)
            || refuses.contains(&field.name)
            || needless.contains(&field.name)
    };
    let kept_count = fields.iter().filter(|field| !is_removed(field)).count();
    let start = text.find('{').map_or(0, |at| at + 1);
    if !added.is_empty() {
        let comma = if kept_count > 0 { "," } else { "" };
        let replacement = Bytes::from(format!("{}{comma}", added.join(",")));
        edits.push(BodyEdit { range: start..start, replacement });
    }
    let mut kept_before = false;
    let mut last_end = start;
    for (at, field) in fields.iter().enumerate() {
        if is_removed(field) {
            // `false` and `null` request nothing, so removing them is no loss.
            let is_requested = !matches!(field.value.get(), "false" | "null");
            if is_requested && refuses.contains(&field.name) {
                losses.push(Loss::new(&*field.name, "this provider does not take it"));
            }
            // The comma before the field is removed with it, or the next one for leading fields.
            let next = fields.get(at + 1).map_or(field.end, |next| next.key.start);
            let range = if kept_before { last_end..field.end } else { field.key.start..next };
            edits.push(BodyEdit { range, replacement: Bytes::new() });
        } else {
            kept_before = true;
            if let Some(name) = renames.get(&field.name) {
                edits.push(BodyEdit {
                    range: field.key.clone(),
                    replacement: json::to_json_string(name),
                });
            }
            if field.name == "messages" && !roles.is_empty() {
                edits.extend(rename_roles(text, field.value, roles));
            }
        }
        last_end = field.end;
    }
    Ok((BodySegments::with_edits(&body, edits), losses))
}

/// Returns edits that replace message roles by those the provider knows.
fn rename_roles(
    text: &str,
    messages: &RawValue,
    roles: &std::collections::BTreeMap<String, String>,
) -> Vec<BodyEdit> {
    #[derive(serde::Deserialize)]
    struct MessageRole<'a> {
        #[serde(borrow, default)]
        role: Option<&'a RawValue>,
    }
    if !roles.keys().any(|role| messages.get().contains(role.as_str())) {
        return Vec::new();
    }
    let Ok(messages) = json::read::<Vec<MessageRole<'_>>>(messages.get()) else {
        return Vec::new();
    };
    let titles = messages.iter().filter_map(|message| message.role);
    let edit = |role: &RawValue| {
        let word: String = json::read(role.get()).ok()?;
        let replacement = json::to_json_string(roles.get(&word)?);
        Some(BodyEdit { range: json::range_of(text, role), replacement })
    };
    titles.filter_map(edit).collect()
}

fn json_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use catalog::EndpointPath;

    fn quirks(text: &str) -> FieldQuirks {
        toml::from_str(text).unwrap()
    }

    fn fitted(text: &str, before: &str) -> (String, Vec<String>) {
        let mut headers = HeaderMap::new();
        headers.insert("x-more", "a, b".parse().unwrap());
        let whole = BodySegments::single(before.to_owned());
        let (after, losses) = edit_body(&quirks(text), Some(&headers), whole).unwrap();
        let after = String::from_utf8(after.to_vec()).unwrap();
        assert!(serde_json::from_str::<serde_json::Value>(&after).is_ok(), "{after}");
        (after, losses.into_iter().map(|loss| loss.path).collect())
    }

    #[test]
    fn other_bytes_stay_unchanged() {
        let before = r#"{ "model" : "m","store":true , "a":[ 1 ], "max_new":7,"z":null }"#;
        let text = "renames = { max_new = \"max_old\" }\nrefuses = [\"store\"]";
        let (after, losses) = fitted(text, before);
        assert_eq!(after, r#"{ "model" : "m" , "a":[ 1 ], "max_old":7,"z":null }"#);
        assert_eq!(losses, ["store"]);
        assert_eq!(fitted("", before).0, before);
    }

    #[test]
    fn fields_are_removed_at_any_position() {
        let all = ["model", "a", "stream", "b", "c"];
        for set in 0_u32..32 {
            let gone: Vec<&str> = all
                .iter()
                .enumerate()
                .filter(|(at, _)| set >> at & 1 == 1)
                .map(|(_, f)| *f)
                .collect();
            let fields: Vec<String> = all.iter().map(|field| format!("\"{field}\" : 1")).collect();
            let before = format!("{{ {} }}", fields.join(" , "));
            let list: Vec<String> = gone.iter().map(|field| format!("\"{field}\"")).collect();
            for sets in ["", "sets = { v = \"1\" }"] {
                let text = format!("needless = [{}]\n{sets}", list.join(","));
                let (after, losses) = fitted(&text, &before);
                let after: serde_json::Map<String, serde_json::Value> =
                    serde_json::from_str(&after).unwrap();
                let left: Vec<&str> =
                    after.keys().map(String::as_str).filter(|k| *k != "v").collect();
                let kept: Vec<&str> = all.iter().copied().filter(|f| !gone.contains(f)).collect();
                assert_eq!(left, kept, "{gone:?}");
                assert_eq!(after.contains_key("v"), !sets.is_empty());
                assert!(losses.is_empty());
            }
        }
    }

    #[test]
    fn renamed_field_replaces_existing_one() {
        let text = "renames = { max_completion_tokens = \"max_tokens\" }";
        let (after, _) = fitted(text, r#"{"max_tokens":9,"max_completion_tokens":3,"x":1}"#);
        assert_eq!(after, r#"{"max_tokens":3,"x":1}"#);
        assert_eq!(fitted(text, r#"{"max_tokens":9}"#).0, r#"{"max_tokens":9}"#);
    }

    #[test]
    fn false_and_null_are_no_loss() {
        let (after, losses) =
            fitted("refuses = [\"store\", \"user\"]", r#"{"store":false,"user":null}"#);
        assert_eq!((after.as_str(), losses.len()), ("{}", 0));
    }

    #[test]
    fn headers_become_fields_and_roles_change() {
        let text = "headers = { x-more = \"more\", x-absent = \"absent\" }\n\
                    roles = { developer = \"system\" }";
        let before = r#"{"messages":[{"role":"developer","content":"developer"},{"content":[],"role" : "user"}]}"#;
        let after = r#"{"more":["a","b"],"messages":[{"role":"system","content":"developer"},{"content":[],"role" : "user"}]}"#;
        assert_eq!(fitted(text, before).0, after);
        assert_eq!(fitted(text, r#"{"more":1}"#).0, r#"{"more":1}"#);
    }

    #[test]
    fn counting_endpoint_stands_below_the_providers_own_path() {
        let paths = |whole: &str| Endpoints {
            paths: vec![
                (WireFormat::Messages, EndpointPath { whole: whole.into(), stream: "/s".into() }),
                (
                    WireFormat::Native,
                    EndpointPath { whole: "/p/{model}:{op}".into(), stream: "/s".into() },
                ),
            ],
            ..Endpoints::default()
        };
        let count = |endpoints: &Endpoints, origin, path: &str| {
            let outgoing = ProviderRequest { path: path.into(), body: BodySegments::single("{}") };
            set_count_path(endpoints, origin, "g", outgoing).map(|outgoing| outgoing.path)
        };
        let usual = "/v1/messages/count_tokens";
        let messages = |whole: &str| count(&paths(whole), WireFormat::Messages, usual);
        assert_eq!(messages("/a/v1/messages").as_deref(), Some("/a/v1/messages/count_tokens"));
        assert_eq!(messages("/messages?v=1").as_deref(), Some("/messages/count_tokens?v=1"));
        assert_eq!(messages("/model/{model}/invoke"), None);
        assert_eq!(messages("/models/{model}:rawPredict"), None);
        let path = "/v1beta/models/g:countTokens";
        let native = count(&paths("/x"), WireFormat::Native, path);
        assert_eq!(native.as_deref(), Some("/p/g:countTokens"));
        let default = count(&Endpoints::default(), WireFormat::Messages, usual);
        assert_eq!(default.as_deref(), Some(usual));
    }

    #[test]
    fn path_is_replaced_by_the_providers_own() {
        let path =
            |whole: &str, stream: &str| EndpointPath { whole: whole.into(), stream: stream.into() };
        let endpoints = Endpoints {
            paths: vec![
                (WireFormat::Native, path("/p/{model}:{op}", "/p/{model}:{op}")),
                (WireFormat::Messages, path("/model/{model}/invoke", "/model/{model}/stream")),
                (WireFormat::Chat, path("/v4/chat/completions?v=1", "/v4/chat/completions?v=1")),
            ],
            ..Endpoints::default()
        };
        let cases = [
            (
                WireFormat::Native,
                "/v1beta/models/g:streamGenerateContent?alt=sse",
                true,
                "g",
                "/p/g:streamGenerateContent?alt=sse",
            ),
            (WireFormat::Messages, "/v1/messages", false, "a.b-v1:0", "/model/a.b-v1%3A0/invoke"),
            (WireFormat::Messages, "/v1/messages", true, "arn:x/y", "/model/arn%3Ax%2Fy/stream"),
            (WireFormat::Messages, "/v1/messages", true, "..", "/model/_/stream"),
            (WireFormat::Chat, "/v1/chat/completions", true, "m", "/v4/chat/completions?v=1"),
            (WireFormat::Chat, "/v1/embeddings", false, "m", "/v4/embeddings?v=1"),
            (WireFormat::Responses, "/v1/responses", false, "m", "/v1/responses"),
        ];
        for (origin, default_path, stream, model, template) in cases {
            let outgoing =
                ProviderRequest { path: default_path.into(), body: BodySegments::single("{}") };
            let (fitted, losses) =
                adapt(&endpoints, origin, model, stream, None, outgoing).unwrap();
            assert_eq!(fitted.path, template);
            assert!(losses.is_empty());
        }
    }
}

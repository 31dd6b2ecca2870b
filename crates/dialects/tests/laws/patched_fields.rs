//! A field that a lane writes into the caller's body stands there once, whatever stood there before.

use ::bytes::Bytes;
use canon::WireFormat;
use dialects::{LaneSettings, RequestTarget};
use serde_json::{Value, json};

use crate::cases::LANE;

/// The limit that the money of the caller allows.
const LIMIT: u64 = 7;

/// Returns a name whose first letter is escaped.
fn escaped(name: &str) -> String {
    let mut letters = name.chars();
    format!("\\u{:04x}{}", u32::from(letters.next().unwrap()), letters.as_str())
}

/// Bodies with each spelling of a field, and the pointer to the value that the lane must have written.
fn bodies() -> Vec<(WireFormat, String, &'static str)> {
    let chat = |fields: &str| {
        format!(r#"{{"model":"x",{fields}"messages":[{{"role":"user","content":"Hi"}}]}}"#)
    };
    let responses = |fields: &str| format!(r#"{{"model":"x",{fields}"input":"Hi"}}"#);
    let native = |fields: &str| {
        format!(r#"{{{fields}"contents":[{{"role":"user","parts":[{{"text":"Hi"}}]}}]}}"#)
    };
    let config = |fields: &str| native(&format!(r#""generationConfig":{{{fields}}},"#));
    let spelled = |name: &str, body: &dyn Fn(&str) -> String| {
        let escaped = escaped(name);
        [
            String::new(),
            format!(r#""{name}":null,"#),
            format!(r#""{name}" : null , "#),
            format!(r#""{escaped}":null,"#),
            format!(r#""{name}":500,"#),
            format!(r#""{escaped}":500,"#),
        ]
        .map(|field| body(&field))
    };
    let unlisted = |field: String| field.replace(",}", "}").replace(", }", "}");
    let mut all = Vec::new();
    let limit = "/max_completion_tokens";
    all.extend(spelled("max_completion_tokens", &chat).map(|b| (WireFormat::Chat, b, limit)));
    let limit = "/max_output_tokens";
    all.extend(spelled("max_output_tokens", &responses).map(|b| (WireFormat::Responses, b, limit)));
    let limit = "/generationConfig/maxOutputTokens";
    let inside = |field: &str| unlisted(config(field));
    all.extend(spelled("maxOutputTokens", &inside).map(|b| (WireFormat::Native, b, limit)));
    all.push((WireFormat::Native, native(r#""generationConfig":null,"#), limit));
    all.push((WireFormat::Native, native(""), limit));
    all
}

/// Returns the body that a lane of the same format gets.
fn sent(format: WireFormat, body: &str) -> String {
    let dialect = dialects::get(format).unwrap();
    let target = RequestTarget { model: Some("x".to_owned()), ..RequestTarget::default() };
    let facts = dialect.read_facts(&target, body.as_bytes()).unwrap();
    let lane = LaneSettings { max_payable_output: Some(LIMIT), ..LANE };
    let request = dialect.patch(&Bytes::copy_from_slice(body.as_bytes()), &facts, &lane);
    String::from_utf8(request.body.to_vec()).unwrap()
}

/// Returns how often a name stands in a text, with or without an escaped first letter.
fn count(text: &str, pointer: &str) -> usize {
    let name = pointer.rsplit('/').next().unwrap();
    let escaped = escaped(name);
    text.matches(&format!("\"{name}\"")).count() + text.matches(&escaped).count()
}

#[test]
fn a_lowered_limit_stands_in_the_body_once() {
    for (format, body, pointer) in bodies() {
        let sent = sent(format, &body);
        let value: Value = serde_json::from_str(&sent).unwrap_or_else(|e| panic!("{sent}: {e}"));
        assert_eq!(value.pointer(pointer), Some(&json!(LIMIT)), "{body} became {sent}");
        assert_eq!(count(&sent, pointer), 1, "{body} became {sent}");
    }
}

#[test]
fn usage_of_a_chat_stream_is_asked_for_once() {
    for options in [
        "",
        r#""stream_options":null,"#,
        r#""stream\u005foptions" : null ,"#,
        r#""stream_options":{},"#,
        r#""stream_options":{"include_usage":false},"#,
        r#""stream_options":{"include_usage":null},"#,
    ] {
        let body = format!(
            r#"{{"model":"x",{options}"stream":true,"messages":[{{"role":"user","content":"Hi"}}]}}"#
        );
        let sent = sent(WireFormat::Chat, &body);
        let value: Value = serde_json::from_str(&sent).unwrap();
        assert_eq!(value["stream_options"], json!({"include_usage": true}), "{sent}");
        assert_eq!(sent.matches("options\"").count(), 1, "{sent}");
    }
}

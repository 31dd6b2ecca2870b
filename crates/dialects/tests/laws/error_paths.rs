//! Errors of a lane come back with the path of the caller's own request.

use canon::{ApiError, WireFormat};
use dialects::{RefusedRequest, with_caller_paths};
use serde_json::{Value, json};

use crate::cases::{LANE, pairs, requests, target};

/// Returns every text of a request and its path.
fn texts(value: &Value, path: &str, found: &mut Vec<(String, String)>) {
    match value {
        Value::String(text) => found.push((path.to_owned(), text.clone())),
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                texts(item, &format!("{path}[{at}]"), found);
            }
        }
        Value::Object(fields) => {
            for (key, field) in fields {
                let dot = if path.is_empty() { "" } else { "." };
                texts(field, &format!("{path}{dot}{key}"), found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn value_at<'v>(body: &'v Value, path: &str) -> Option<&'v Value> {
    let mut steps = path.split(['.', '[', ']']).filter(|step| !step.is_empty());
    steps.try_fold(body, |value, step| match step.parse::<usize>() {
        Ok(at) => value.get(at),
        Err(_) => value.get(step),
    })
}

fn conversation(format: WireFormat) -> &'static [&'static str] {
    match format {
        WireFormat::Chat => &["messages"],
        WireFormat::Messages => &["messages", "system"],
        WireFormat::Responses => &["input", "instructions"],
        WireFormat::Native => &["contents", "systemInstruction", "system_instruction"],
        WireFormat::Images => &[],
    }
}

#[test]
fn a_refused_text_is_named_where_the_caller_wrote_it() {
    let mut checked = 0;
    for (from, to) in pairs() {
        for (name, body) in requests(from) {
            let case = format!("{} -> {}: {name}", from.origin(), to.origin());
            let chat = from.read_request(&target(), &body).expect(&case);
            let Ok((sent, _)) = to.write_request(&chat, &LANE) else { continue };
            let sent = sent.body.to_vec();
            let own: Value = serde_json::from_slice(&body).unwrap();
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            texts(&own, "", &mut ours);
            texts(&serde_json::from_slice(&sent).unwrap(), "", &mut theirs);
            let under = |format, path: &str| {
                conversation(format).iter().any(|root| path.split(['.', '[']).next() == Some(root))
            };
            for (path, text) in theirs.iter().filter(|(path, _)| under(to.origin(), path)) {
                let same = ours.iter().filter(|(_, own)| own == text).count();
                let unique = same == 1 && theirs.iter().filter(|(_, own)| own == text).count() == 1;
                if !unique || path.ends_with(".role") || path.ends_with(".type") {
                    continue;
                }
                let error = ApiError::invalid(path.clone(), format!("Invalid '{path}'."));
                let refused = RefusedRequest::Body(to.origin(), &sent);
                let error = with_caller_paths(error, refused, from.origin(), &body);
                let param = error.param().unwrap_or_else(|| panic!("{case}: {path} is lost"));
                assert_eq!(value_at(&own, param), Some(&json!(text)), "{case}: {path} as {param}");
                assert_eq!(error.message(), format!("Invalid '{param}'."), "{case}");
                checked += 1;
            }
        }
    }
    assert!(checked > 500, "only {checked} texts were compared");
}

fn chat_body() -> Value {
    json!({
        "model": "m", "max_tokens": 9, "stop": ["x"],
        "tools": [
            {"type": "function", "function": {"name": "a", "parameters": {"type": "object"}}},
            {"type": "function", "function": {"name": "b", "parameters": {"type": "object"}}},
        ],
        "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema":
            {"type": "object", "properties": {"k": {"type": "string"}}}}},
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "first"},
            {"role": "user", "content": [
                {"type": "text", "text": "same"},
                {"type": "text", "text": "same"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
            ]},
        ],
    })
}

/// Maps an error of a lane to the caller of a chat request.
fn to_chat(format: WireFormat, path: &str, message: &str) -> (Option<String>, String) {
    let body = chat_body().to_string().into_bytes();
    let chat = dialects::get(WireFormat::Chat).unwrap().read_request(&target(), &body).unwrap();
    let lane = dialects::get(format).unwrap();
    let (sent, _) = lane.write_request(&chat, &LANE).unwrap();
    let sent = sent.body.to_vec();
    let refused = RefusedRequest::Body(format, &sent);
    let error = with_caller_paths(
        ApiError::invalid(path, message.to_owned()),
        refused,
        WireFormat::Chat,
        &body,
    );
    (error.param().map(str::to_owned), error.message().to_owned())
}

#[test]
fn every_notation_of_a_provider_is_understood() {
    let image = "messages[2].content[2]";
    for (format, path, own) in [
        // The two user messages are one turn of these formats.
        (WireFormat::Native, "contents[0].parts[3].inlineData.mimeType", image),
        (WireFormat::Native, "contents[0].parts[3].inline_data.mime_type", image),
        (WireFormat::Native, "GenerateContentRequest.contents[0].parts[3]", image),
        (WireFormat::Messages, "messages.0.content.3.image.source.base64.media_type", image),
        (WireFormat::Messages, "messages.0.content.2.text", "messages[2].content[1].text"),
        (WireFormat::Messages, "system", "messages[0].content"),
        (WireFormat::Responses, "input", "messages"),
        (
            WireFormat::Responses,
            "input[1].content[2].image_url",
            "messages[2].content[2].image_url.url",
        ),
        (WireFormat::Native, "tools[0].functionDeclarations[1].parameters", "tools[1]"),
        (WireFormat::Messages, "tools.1.custom.input_schema", "tools[1]"),
        (WireFormat::Native, "generationConfig.maxOutputTokens", "max_tokens"),
        (WireFormat::Native, "generation_config.stop_sequences[0]", "stop[0]"),
        (WireFormat::Responses, "max_output_tokens", "max_tokens"),
        (WireFormat::Responses, "reasoning.effort", "reasoning_effort"),
        (
            WireFormat::Responses,
            "text.format.schema.properties.k",
            "response_format.json_schema.schema.properties.k",
        ),
        (WireFormat::Responses, "text.format.name", "response_format.json_schema.name"),
        (WireFormat::Responses, "text.format", "response_format"),
    ] {
        let (param, _) = to_chat(format, path, "");
        assert_eq!(param.as_deref(), Some(own), "{format} {path}");
    }
    // A field that the caller's format does not have is not a path of the caller.
    assert_eq!(to_chat(WireFormat::Responses, "truncation", "").0, None);
}

#[test]
fn paths_in_a_message_are_translated_and_words_are_not() {
    for (format, message, own, param) in [
        (
            WireFormat::Messages,
            "messages.0.content.3.image.source: Could not process image",
            "messages[2].content[2]: Could not process image",
            Some("messages[2].content[2]"),
        ),
        (
            WireFormat::Messages,
            "messages: too many messages of the system",
            "messages: too many messages of the system",
            Some("messages"),
        ),
        (
            WireFormat::Native,
            "* GenerateContentRequest.contents[0].parts[3].inline_data: contents are bad.",
            "* messages[2].content[2]: contents are bad.",
            Some("messages[2].content[2]"),
        ),
        (
            WireFormat::Responses,
            "Unsupported value: 'reasoning.effort' does not support 'high' in v1.5.",
            "Unsupported value: 'reasoning_effort' does not support 'high' in v1.5.",
            Some("reasoning_effort"),
        ),
        (
            WireFormat::Native,
            "Request contains an invalid argument.",
            "Request contains an invalid argument.",
            None,
        ),
    ] {
        let (found, text) = to_chat(format, "", message);
        assert_eq!((text.as_str(), found.as_deref()), (own, param), "{format} {message}");
    }
}

#[test]
fn a_part_that_a_lane_cannot_take_is_named_in_the_callers_notation() {
    for (format, body, own) in [
        (
            WireFormat::Chat,
            json!({"model": "m", "messages": [{"role": "user", "content": [
                {"type": "text", "text": "x"},
                {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}]}]}),
            "messages[0].content[1]",
        ),
        (
            WireFormat::Responses,
            json!({"model": "m", "input": [{"role": "user", "content": [
                {"type": "input_text", "text": "x"},
                {"type": "input_image", "image_url": "data:image/heic;base64,AAAA"}]}]}),
            "input[0].content[1]",
        ),
        (
            WireFormat::Native,
            json!({"contents": [{"parts": [{"text": "x"},
                {"inlineData": {"mimeType": "video/mp4", "data": "AAAA"}}]}]}),
            "contents[0].parts[1]",
        ),
    ] {
        let body = body.to_string().into_bytes();
        let chat = dialects::get(format).unwrap().read_request(&target(), &body).unwrap();
        let lane = dialects::get(WireFormat::Messages).unwrap();
        let error = dialects::check_media(&chat, lane).unwrap_err();
        let error = with_caller_paths(error, RefusedRequest::Parsed(&chat), format, &body);
        assert_eq!(error.param(), Some(own), "{format}");
    }
}

//! Arguments and results of tools keep their numbers and stay on one line of a stream.

use super::*;

/// A number that no machine type holds.
const LONG: &str = "123456789012345678901234567890";

#[test]
fn arguments_and_results_keep_their_numbers() {
    let body = format!(
        r#"{{"contents": [
            {{"role": "user", "parts": [{{"text": "go"}}]}},
            {{"role": "model", "parts": [{{"functionCall": {{"name": "f", "args": {{"n": {LONG}}}}}}}]}},
            {{"role": "user", "parts": [{{"functionResponse":
                {{"name": "f", "response": {{"n": {LONG}, "cut": "\ud800"}}}}}}]}}]}}"#
    );
    let chat = NativeDialect.read_request(&target(false), body.as_bytes()).unwrap();
    let texts: Vec<String> = chat
        .turns
        .iter()
        .flat_map(|turn| &turn.parts)
        .filter_map(|part| match &part.kind {
            PartKind::ToolCall(call) => Some(call.arguments.clone()),
            PartKind::ToolResult(result) => Some(result.as_text()),
            _ => None,
        })
        .collect();
    let expected = [format!(r#"{{"n":{LONG}}}"#), format!(r#"{{"n":{LONG},"cut":"\ud800"}}"#)];
    assert_eq!(texts, expected);
    let (out, _) = NativeDialect.write_request(&chat, &lane()).unwrap();
    assert_eq!(String::from_utf8(out.body.to_vec()).unwrap().matches(LONG).count(), 2);
}

#[test]
fn arguments_on_several_lines_are_one_line_of_a_stream() {
    let call = ToolCall {
        id: "call_1".to_owned(),
        name: "f".to_owned(),
        arguments: format!("{{\r\n  \"n\": {LONG}\n}}"),
        custom: false,
    };
    let mut reply = foreign_answer();
    reply.candidates[0].parts = vec![Part::new(PartKind::ToolCall(call))];
    let out = String::from_utf8(stream(reply, &ChatRequest::default())).unwrap();
    let mut lines = out.lines().filter(|line| !line.is_empty());
    assert!(lines.all(|line| line.starts_with("data: {") && line.ends_with('}')), "{out}");
    assert!(out.contains(LONG), "{out}");
}

//! Tests of the rules of the responses format.

use bytes::Bytes;

use super::*;
use crate::json::BodySegments;
use crate::responses::ResponsesDialect;
use crate::{Dialect as _, RequestTarget};

fn read_facts(body: &[u8]) -> Result<RequestFacts, ApiError> {
    ResponsesDialect.read_facts(&RequestTarget::default(), body)
}

fn refused(body: &str) -> (String, String) {
    let fault = read_facts(body.as_bytes()).expect_err(body);
    (fault.param().unwrap_or_default().to_owned(), fault.message().to_owned())
}

/// Returns a valid request with that field added.
fn with(field: &str) -> String {
    format!(r#"{{"model":"m","input":"x",{field}}}"#)
}

fn with_items(items: &str) -> String {
    format!(r#"{{"model":"m","input":[{items}]}}"#)
}

#[test]
fn names_of_objects_are_texts() {
    assert_eq!(refused(&with(r#""conversation":5"#)).0, "conversation");
    assert_eq!(refused(&with_items(r#"{"type":"item_reference"}"#)).0, "input[0].id");
}

#[test]
fn media_arguments_and_metadata_are_checked() {
    let part = |part: &str| with_items(&format!(r#"{{"role":"user","content":[{part}]}}"#));
    for (body, path) in [
        (
            part(r#"{"type":"input_image","image_url":"data:text/html;base64,AAAA"}"#),
            "input[0].content[0].image_url",
        ),
        (
            part(r#"{"type":"input_image","image_url":"data:image/png;base64,?"}"#),
            "input[0].content[0].image_url",
        ),
        (part(r#"{"type":"input_file","file_data":"no base64"}"#), "input[0].content[0].file_data"),
        (part(r#"{"type":"input_file","file_url":"ftp://x"}"#), "input[0].content[0].file_url"),
        (
            part(r#"{"type":"input_audio","input_audio":{}}"#),
            "input[0].content[0].input_audio.data",
        ),
        (
            with_items(r#"{"type":"function_call","call_id":"c","name":"f","arguments":{}}"#),
            "input[0].arguments",
        ),
        (
            with_items(r#"{"type":"custom_tool_call","call_id":"c","name":"f","input":5}"#),
            "input[0].input",
        ),
        (with(&format!(r#""metadata":{{"k":"{}"}}"#, "v".repeat(513))), "metadata"),
        (with(r#""service_tier":5"#), "service_tier"),
        (
            with(r#""tools":[{"type":"function","name":"a","parameters":"x"}]"#),
            "tools[0].parameters",
        ),
    ] {
        let (found, why) = refused(&body);
        assert_eq!(found, path, "{body}: {why}");
        assert!(!why.contains("View"), "{body}: {why}");
    }
}

fn with_parts(parts: &str) -> String {
    with_items(&format!(r#"{{"role":"user","content":[{parts}]}}"#))
}

#[test]
fn reads_the_request_facts() {
    let body = with(r#""stream":true,"max_output_tokens":77"#);
    let facts = read_facts(body.as_bytes()).unwrap();
    assert_eq!((facts.model.as_str(), facts.stream, facts.wants_usage), ("m", true, true));
    assert_eq!((facts.max_output_tokens, facts.candidates), (Some(77), 1));
    assert_eq!(&body.as_bytes()[facts.patch_points.model.unwrap()], br#""m""#);
    assert_eq!(&body.as_bytes()[facts.patch_points.limit.unwrap()], b"77");
}

#[test]
fn errors_name_the_invalid_field() {
    let call = r#"{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}"#;
    let answer = r#"{"type":"function_call_output","call_id":"c","output":"1"}"#;
    let tools = r#""tools":[{"type":"function","name":"a"}]"#;
    let many = vec![r#"{"role":"user","content":"x"}"#; 10_001].join(",");
    let long = "x".repeat(10_000);
    let cases = [
        (r#"{"input":"x"}"#.to_owned(), "model"),
        (r#"{"model":5,"input":"x"}"#.to_owned(), "model"),
        (r#"{"model":"","input":"x"}"#.to_owned(), "model"),
        (r#"{"model":"m"}"#.to_owned(), "input"),
        (r#"{"model":"m","input":null}"#.to_owned(), "input"),
        (r#"{"model":"m","input":5}"#.to_owned(), "input"),
        (r#"{"model":"m","input":{}}"#.to_owned(), "input"),
        (with_items(""), "input"),
        (with_items(&many), "input"),
        (with_items("5"), "input[0]"),
        (with_items("{}"), "input[0].role"),
        (with_items(r#"{"type":"message","content":"x"}"#), "input[0].role"),
        (with_items(r#"{"role":"root","content":"x"}"#), "input[0].role"),
        (with_items(r#"{"role":"user"}"#), "input[0].content"),
        (with_items(r#"{"role":"user","content":5}"#), "input[0].content"),
        (with_items(r#"{"role":"user","content":{}}"#), "input[0].content"),
        (with_parts("\"x\""), "input[0].content[0]"),
        (with_parts("{}"), "input[0].content[0].type"),
        (with_parts(r#"{"type":"input_text"}"#), "input[0].content[0].text"),
        (with_parts(r#"{"type":"input_text","text":5}"#), "input[0].content[0].text"),
        (with_parts(r#"{"type":"input_image"}"#), "input[0].content[0].image_url"),
        (
            with_parts(r#"{"type":"input_image","image_url":"ftp://x"}"#),
            "input[0].content[0].image_url",
        ),
        (
            with_parts(r#"{"type":"input_image","image_url":{"url":"x"}}"#),
            "input[0].content[0].image_url",
        ),
        (with_parts(r#"{"type":"input_file"}"#), "input[0].content[0].file_data"),
        (
            with_parts(r#"{"type":"input_file","file_url":"file:///x"}"#),
            "input[0].content[0].file_url",
        ),
        (with_items(r#"{"type":"function_call","name":"f"}"#), "input[0].call_id"),
        (with_items(r#"{"type":"function_call","call_id":"c"}"#), "input[0].name"),
        (with_items(r#"{"type":"function_call_output","output":"1"}"#), "input[0].call_id"),
        (
            with_items(&format!(r#"{call},{{"type":"function_call_output","call_id":"c"}}"#)),
            "input[1].output",
        ),
        (with_items(answer), "input[0].call_id"),
        (with_items(&answer.replace("function_call", "custom_tool_call")), "input[0].call_id"),
        (with_items(&format!("{call},{answer},{answer}")), "input[2].call_id"),
        (with(r#""previous_response_id":"r","conversation":"c""#), "conversation"),
        (with(r#""max_output_tokens":0"#), "max_output_tokens"),
        (with(r#""max_output_tokens":-1"#), "max_output_tokens"),
        (with(r#""max_output_tokens":15"#), "max_output_tokens"),
        (with(r#""max_output_tokens":16.5"#), "max_output_tokens"),
        (with(r#""max_output_tokens":9223372036854775808"#), "max_output_tokens"),
        (with(r#""max_tool_calls":-1"#), "max_tool_calls"),
        (with(r#""max_tool_calls":1000000"#), "max_tool_calls"),
        (with(r#""temperature":9"#), "temperature"),
        (with(r#""temperature":"1""#), "temperature"),
        (with(r#""top_p":1.1"#), "top_p"),
        (with(r#""top_logprobs":21"#), "top_logprobs"),
        (with(r#""stream":"true""#), "stream"),
        (with(r#""store":1"#), "store"),
        (with(r#""background":"no""#), "background"),
        (with(r#""instructions":5"#), "instructions"),
        (with(r#""parallel_tool_calls":"yes""#), "parallel_tool_calls"),
        (with(r#""tools":[{"name":"a"}]"#), "tools[0].type"),
        (with(r#""tools":[{"type":"function"}]"#), "tools[0].name"),
        (with(r#""tools":[{"type":"custom","name":""}]"#), "tools[0].name"),
        (
            with(r#""tools":[{"type":"function","name":"a","parameters":[]}]"#),
            "tools[0].parameters",
        ),
        (
            with(r#""tools":[{"type":"function","name":"a"},{"type":"custom","name":"a"}]"#),
            "tools[1].name",
        ),
        (
            with(r#""tools":[{"type":"namespace","name":"n","tools":[{"type":"function"}]}]"#),
            "tools[0].tools[0].name",
        ),
        (with(r#""tool_choice":"maybe""#), "tool_choice"),
        (with(r#""tool_choice":"required""#), "tool_choice"),
        (with(r#""tool_choice":5"#), "tool_choice"),
        (
            with(&format!(r#"{tools},"tool_choice":{{"type":"function","name":"b"}}"#)),
            "tool_choice",
        ),
        (with(&format!(r#"{tools},"tool_choice":{{"type":"function"}}"#)), "tool_choice"),
        (
            with(&format!(
                r#"{tools},"tool_choice":{{"type":"allowed_tools","mode":"x","tools":[]}}"#
            )),
            "tool_choice.mode",
        ),
        (with(&format!(r#"{tools},"tool_choice":{{"type":"tool_search"}}"#)), "tool_choice"),
        (with(r#""tool_choice":{"type":"web_search_preview"}"#), "tool_choice"),
        (
            with(&format!(r#"{tools},"tool_choice":{{"type":"mcp","server_label":"s"}}"#)),
            "tool_choice",
        ),
        (
            with(&format!(
                r#"{tools},"tool_choice":{{"type":"allowed_tools","mode":"auto","tools":[{{"type":"shell"}}]}}"#
            )),
            "tool_choice",
        ),
        (with(r#""reasoning":{"effort":"max++"}"#), "reasoning.effort"),
        (with(r#""reasoning":{"summary":5}"#), "reasoning.summary"),
        (with(r#""reasoning":{"summary":"long"}"#), "reasoning.summary"),
        (with(r#""reasoning":"high""#), "reasoning"),
        (with(r#""text":{"verbosity":"huge"}"#), "text.verbosity"),
        (with(r#""text":{"format":{"type":"json_schema","schema":{}}}"#), "text.format.name"),
        (with(r#""text":{"format":{"type":"json_schema","name":"n"}}"#), "text.format.schema"),
        (with(r#""text":{"format":{"type":"xml"}}"#), "text.format.type"),
        (with(r#""include":["secrets"]"#), "include[0]"),
        (with(r#""include":"secrets""#), "include"),
        (with(r#""truncation":"both""#), "truncation"),
        (with(&format!(r#""safety_identifier":"{long}""#)), "safety_identifier"),
        (with(&format!(r#""prompt_cache_key":"{long}""#)), "prompt_cache_key"),
        (with(r#""metadata":{"a":{"b":"c"}}"#), "metadata"),
        (with(r#""model":"again""#), "model"),
        (with(r#""temperature":1e400"#), "temperature"),
        // The field that tells the kind may come last.
        (with_parts(r#"{"image_url":5,"type":"input_image"}"#), "input[0].content[0].image_url"),
        (
            with_items(
                r#"{"content":[{"text":5,"type":"input_text"}],"role":"user","type":"message"}"#,
            ),
            "input[0].content[0].text",
        ),
        (
            with_items(r#"{"type":"additional_tools","tools":[{"type":"custom"}]}"#),
            "input[0].tools[0].name",
        ),
        (with(r#""prompt":{}"#), "prompt.id"),
    ];
    for (body, path) in cases {
        let (found, say) = refused(&body);
        assert_eq!(found, path, "{body}: {say}");
        assert!(path.is_empty() || !say.contains(" at line "), "{body}: {say}");
        assert!(!say.contains("View") && !say.contains('\u{1}'), "{body}: {say}");
    }
}

#[test]
fn rejects_a_body_that_is_not_an_object() {
    for body in ["", " ", "null", "42", "\"x\"", "[]", "{", "{\"a\":1,}", "{}{}", "{} x"] {
        refused(body);
    }
    assert!(read_facts(b"{\"model\":\"\xe9\"}").is_err());
    refused(&with_items(r#"{"role":"user","content":"\ud800"}"#));
}

#[test]
fn accepts_unknown_items_and_tools() {
    let answer = r#"{"type":"function_call_output","call_id":"c","output":[]}"#;
    for body in [
        with(r#""stream":null,"tools":null,"reasoning":null,"text":null"#),
        with(r#""unknown":{"a":[1]},"tools":[{"type":"brand_new"}]"#),
        with(r#""tool_choice":{"type":"brand_new"}"#),
        with(r#""tools":[{"type":"tool_search"}],"tool_choice":{"type":"tool_search"}"#),
        with(r#""tools":[{"type":"web_search"}],"tool_choice":{"type":"web_search_preview"}"#),
        with(r#""tools":[{"type":"computer"}],"tool_choice":{"type":"computer_use_preview"}"#),
        with(
            r#""tools":[{"type":"code_interpreter"}],"tool_choice":{"type":"code_interpreter"}"#,
        ),
        with(
            r#""tools":[{"type":"namespace","name":"n","tools":[{"type":"mcp","server_label":"s"}]}],"tool_choice":{"type":"mcp"}"#,
        ),
        r#"{"model":"m","prompt":{"id":"p"},"tool_choice":{"type":"file_search"}}"#.to_owned(),
        r#"{"model":"m","input":[{"type":"additional_tools","tools":[{"type":"shell"}]}],"tool_choice":{"type":"shell"}}"#.to_owned(),
        with_items(r#"{"type":"brand_new","content":[5,"x"],"output":7}"#),
        with_parts(r#"{"type":"brand_new","text":{}}"#),
        r#"{"model":"m","prompt":{"id":"p"}}"#.to_owned(),
        format!(r#"{{"model":"m","previous_response_id":"r","input":[{answer}]}}"#),
        format!(r#"{{"model":"m","conversation":{{"id":"c"}},"input":[{answer}]}}"#),
        with_items(&format!(r#"{{"type":"item_reference","id":"fc_1"}},{answer}"#)),
    ] {
        assert!(read_facts(body.as_bytes()).is_ok(), "{body}: {:?}", read_facts(body.as_bytes()));
    }
}

#[test]
fn removes_items_with_gateway_envelopes() {
    let signature = canon::Signature::new(canon::WireFormat::Native, "c2ln");
    let ours = serde_json::Value::from(signatures::empty_item(None).set(
        "encrypted_content",
        signatures::SignaturePlace::Call("c".to_owned()).write(&signature),
    ));
    let ours = ours.to_string();
    let user = r#"{"role":"user","content":"x"}"#;
    for (items, left) in [
        (format!("{user} , {ours}"), user.to_owned()),
        (format!("{ours} , {user}"), user.to_owned()),
        (format!("{ours},{ours} ,{user}"), user.to_owned()),
        (format!("{user},{ours},{ours},{user},{ours}"), format!("{user},{user}")),
        (ours.clone(), String::new()),
    ] {
        let body = Bytes::from(with_items(&items));
        let facts = read_facts(&body).unwrap();
        let patched = BodySegments::with_edits(&body, facts.edits).to_vec();
        assert_eq!(String::from_utf8(patched).unwrap(), with_items(&left), "{items}");
    }
}

#[test]
fn searches_inside_of_groups_and_of_the_conversation_are_counted() {
    for body in [
        r#"{"model":"m","input":"x","tools":[{"type":"namespace","name":"n","description":"d","tools":[{"type":"web_search"}]}]}"#,
        r#"{"model":"m","input":[{"role":"user","content":"x"},{"type":"additional_tools","tools":[{"type":"web_search"}]}]}"#,
        r#"{"model":"m","input":"x","tools":[{"type":"web_search"}]}"#,
    ] {
        let facts = ResponsesDialect.read_facts(&RequestTarget::default(), body.as_bytes());
        assert!(facts.unwrap().hosted_tools.searches > 0, "{body}");
    }
    let twice =
        r#"{"model":"m","input":"x","tools":[{"type":"function","name":"f","type":"web_search"}]}"#;
    let error = ResponsesDialect.read_facts(&RequestTarget::default(), twice.as_bytes());
    assert_eq!(error.unwrap_err().param(), Some("tools[0].type"));
}

#[test]
fn a_list_that_is_too_long_is_refused_before_its_end_is_read() {
    let (item, part) = (r#"{"role":"user","content":"x"}"#, r#"{"type":"input_text","text":"x"}"#);
    let result = r#"{"type":"function_call_output","call_id":"c","output":["#;
    for (start, item, most, name) in [
        (r#"{"input":["#, item, 10_000, "input"),
        (
            r#"{"input":[{"type":"message","role":"user","content":["#,
            part,
            10_000,
            "input[0].content",
        ),
        (&format!(r#"{{"input":[{result}"#), part, 10_000, "input[0].output"),
        (r#"{"include":["#, r#""file_search_call.results""#, 32, "include"),
    ] {
        let items = vec![item; most + 1].join(",");
        let (path, message) = refused(&format!("{start}{items},}}"));
        assert_eq!(
            (path.as_str(), message),
            (name, format!("`{name}` must have at most {most} items"))
        );
    }
}

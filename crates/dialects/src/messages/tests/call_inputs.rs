//! The input of a call keeps its bytes, also in a reply that is not streamed.

use canon::{ChatRequest, into_events};

use super::{MessagesDialect, answer_of, call, events, frames, stamp, streamed};
use crate::Dialect as _;
use crate::value_count::MAX_REQUEST_VALUES;

#[test]
fn numbers_of_any_length_keep_their_digits() {
    let input =
        r#"{"id":123456789012345678901234567890,"b":0.1000000000000000055511151231257827,"a":1E2}"#;
    let reply = answer_of(vec![call("lookup", input)]);
    let (whole, _) = MessagesDialect.write_reply(reply.clone(), &ChatRequest::default(), &stamp());
    let whole = String::from_utf8(whole).unwrap();
    assert!(whole.contains(&format!(r#""input":{input}"#)), "{whole}");

    let (stream, _) = streamed(into_events(reply));
    let pieces: Vec<String> = frames(&[&stream])
        .iter()
        .filter_map(|frame| {
            let event: serde_json::Value = serde_json::from_slice(&frame.data).unwrap();
            event["delta"]["partial_json"].as_str().map(str::to_owned)
        })
        .collect();
    assert_eq!(pieces.concat(), input);
}

#[test]
fn the_input_of_a_providers_own_tool_has_bounded_values() {
    let stream = |values: usize| {
        let pieces = vec![format!("{}0", "0,".repeat(values / 8 - 1)); 8];
        let start = r#"{"type":"message_start","message":{"id":"m","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":1}}}"#;
        let block = r#"{"type":"content_block_start","index":0,"content_block":{"type":"server_tool_use","id":"s","name":"own","input":{}}}"#;
        let end = r#"{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":1}}"#;
        let input = ["{\"a\":[".to_owned(), pieces.join(","), "]}".to_owned()];
        let deltas = input.map(|json| {
            serde_json::json!({"type": "content_block_delta", "index": 0,
                "delta": {"type": "input_json_delta", "partial_json": json}})
            .to_string()
        });
        let stop = r#"{"type":"content_block_stop","index":0}"#.to_owned();
        let last = r#"{"type":"message_stop"}"#.to_owned();
        let all = [start.to_owned(), block.to_owned()].into_iter().chain(deltas);
        let all = all.chain([stop, end.to_owned(), last]);
        all.map(|event| format!("data: {event}\n\n")).collect::<String>()
    };
    assert!(events(&frames(&[stream(800).as_bytes()])).is_ok());
    let error = events(&frames(&[stream(MAX_REQUEST_VALUES).as_bytes()])).unwrap_err();
    assert_eq!(error.kind(), canon::ErrorKind::Interrupted, "{error}");
}

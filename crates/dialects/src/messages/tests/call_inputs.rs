//! The input of a call keeps its bytes, also in a reply that is not streamed.

use canon::{ChatRequest, into_events};

use super::{MessagesDialect, answer_of, call, frames, stamp, streamed};
use crate::Dialect as _;

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

//! Endings: a turn that failed, was cut or ended for an unknown reason is never a finished one.

use canon::{ChatReply, ErrorKind, FinishReason, WireFormat, into_events};
use dialects::{Dialect, failed_turn};
use serde_json::{Value, json};

use crate::cases::{events, fold, full_request, stamp, stream};

/// Words of each format that do not end a turn successfully: failures, cuts, and words that no
/// version of the format has yet.
fn words(format: WireFormat) -> &'static [&'static str] {
    match format {
        WireFormat::Chat => &["length", "content_filter", "error", "brand_new"],
        WireFormat::Responses => &["max_output_tokens", "content_filter", "brand_new"],
        WireFormat::Messages => {
            &["max_tokens", "model_context_window_exceeded", "pause_turn", "refusal", "brand_new"]
        }
        WireFormat::Native => &[
            "MAX_TOKENS",
            "SAFETY",
            "RECITATION",
            "LANGUAGE",
            "OTHER",
            "BLOCKLIST",
            "PROHIBITED_CONTENT",
            "SPII",
            "MALFORMED_FUNCTION_CALL",
            "IMAGE_SAFETY",
            "IMAGE_PROHIBITED_CONTENT",
            "IMAGE_RECITATION",
            "IMAGE_OTHER",
            "NO_IMAGE",
            "UNEXPECTED_TOOL_CALL",
            "TOO_MANY_TOOL_CALLS",
            "MISSING_THOUGHT_SIGNATURE",
            "MALFORMED_RESPONSE",
            "MODEL_ARMOR",
            "CONTINUATION",
            "FINISH_REASON_UNSPECIFIED",
            "BRAND_NEW",
        ],
        WireFormat::Images => &[],
    }
}

/// A whole reply and a stream that say a few words and end with that reason.
fn answer(format: WireFormat, word: &str) -> (Value, Vec<(&'static str, Value)>) {
    match format {
        WireFormat::Chat => {
            let choice = |name: &str, inner: Value, end: Value| {
                json!({"id": "c", "model": "m", "choices":
                    [{"index": 0, name: inner, "finish_reason": end}]})
            };
            let said = json!({"role": "assistant", "content": "Half a"});
            (
                choice("message", said.clone(), json!(word)),
                vec![
                    ("", choice("delta", said, Value::Null)),
                    ("", choice("delta", json!({}), json!(word))),
                ],
            )
        }
        WireFormat::Responses => {
            let part = json!({"type": "output_text", "text": "Half a", "annotations": []});
            let item = json!({"type": "message", "id": "i", "role": "assistant",
                              "status": "incomplete", "content": [part]});
            let whole = json!({"id": "r", "object": "response", "status": "incomplete",
                "model": "m", "incomplete_details": {"reason": word}, "output": [item]});
            let last = json!({"type": "response.incomplete", "response": whole});
            (whole, vec![("response.incomplete", last)])
        }
        WireFormat::Messages => {
            let block = json!({"type": "text", "text": "Half a"});
            let whole = json!({"id": "m", "type": "message", "role": "assistant", "model": "m",
                "content": [block], "stop_reason": word, "stop_sequence": null,
                "usage": {"input_tokens": 1, "output_tokens": 1}});
            let start = json!({"type": "message_start", "message": {"id": "m", "model": "m"}});
            let block = json!({"type": "content_block_start", "index": 0, "content_block": block});
            let delta = json!({"type": "message_delta", "delta": {"stop_reason": word}});
            let events = vec![
                ("message_start", start),
                ("content_block_start", block),
                ("content_block_stop", json!({"type": "content_block_stop", "index": 0})),
                ("message_delta", delta),
                ("message_stop", json!({"type": "message_stop"})),
            ];
            (whole, events)
        }
        WireFormat::Native => {
            let content = json!({"role": "model", "parts": [{"text": "Half a"}]});
            let whole = json!({"candidates":
                [{"index": 0, "content": content, "finishReason": word}]});
            (whole.clone(), vec![("", whole)])
        }
        WireFormat::Images => (Value::Null, Vec::new()),
    }
}

pub(crate) fn sse(events: &[(&str, Value)]) -> Vec<u8> {
    let event = |(name, data): &(&str, Value)| match *name {
        "" => format!("data: {data}\n\n"),
        name => format!("event: {name}\ndata: {data}\n\n"),
    };
    events.iter().map(event).collect::<String>().into_bytes()
}

/// Returns true if a turn with that reason is a complete one for its caller.
const fn is_finish(reason: FinishReason) -> bool {
    match reason {
        FinishReason::Stop | FinishReason::StopSequence | FinishReason::ToolCalls => true,
        FinishReason::Length
        | FinishReason::ContentFilter
        | FinishReason::PromptBlocked
        | FinishReason::Paused
        | FinishReason::Malformed
        | FinishReason::Other => false,
    }
}

fn reason(reply: &ChatReply) -> FinishReason {
    reply.candidates[0].finish.as_ref().unwrap().reason
}

#[test]
fn no_cut_failed_or_unknown_turn_is_a_finish_in_any_format() {
    for provider in dialects::all() {
        for word in words(provider.origin()) {
            let (whole, pieces) = answer(provider.origin(), word);
            let case = format!("{} {word}", provider.origin());
            let whole = provider.read_reply(whole.to_string().as_bytes()).expect(&case);
            let folded = fold(events(provider, &sse(&pieces), &case));
            assert_eq!(reason(&whole), reason(&folded), "{case}");
            for caller in dialects::all() {
                let case = format!("{case} for {}", caller.origin());
                let finish = whole.candidates[0].finish.as_ref().unwrap();
                if let Some(error) = failed_turn(finish, caller.origin()) {
                    assert_ne!(caller.origin(), provider.origin(), "{case}");
                    assert_eq!(error.kind(), ErrorKind::Interrupted, "{case}");
                    assert!(error.message().contains(word), "{case}: {error}");
                    continue;
                }
                let (body, losses) = caller.write_reply(whole.clone(), &full_request(), &stamp());
                let written = caller.read_reply(&body).expect(&case);
                assert!(!is_finish(reason(&written)), "{case}: {:?}", reason(&written));
                let (body, streamed) = stream(caller, &full_request(), into_events(folded.clone()));
                let again = fold(events(caller, &body, &case));
                assert_eq!(reason(&again), reason(&written), "{case}");
                let told = |list: &[canon::Loss]| list.iter().any(|loss| loss.path == "finish");
                assert_eq!(told(&losses), told(&streamed), "{case}");
                let exact = reason(&written) == finish.reason;
                assert!(
                    exact || told(&losses) || finish.reason == FinishReason::Malformed,
                    "{case}"
                );
            }
        }
    }
}

#[test]
fn failed_turns_are_errors_where_the_format_has_no_word() {
    let failures =
        ["OTHER", "MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS"];
    for word in failures {
        let (whole, _) = answer(WireFormat::Native, word);
        let native = dialects::get(WireFormat::Native).unwrap();
        let reply = native.read_reply(whole.to_string().as_bytes()).unwrap();
        let finish = reply.candidates[0].finish.as_ref().unwrap();
        for caller in [WireFormat::Chat, WireFormat::Messages, WireFormat::Responses] {
            assert!(failed_turn(finish, caller).is_some(), "{word} for {caller}");
        }
        assert!(failed_turn(finish, WireFormat::Native).is_none(), "{word}");
    }
}

#[test]
fn words_of_chat_imitations_are_read() {
    let chat = dialects::get(WireFormat::Chat).unwrap();
    for (word, want) in [
        ("eos", FinishReason::Stop),
        ("end_turn", FinishReason::Stop),
        ("max_tokens", FinishReason::Length),
        ("tool_use", FinishReason::ToolCalls),
        ("abort", FinishReason::Malformed),
    ] {
        let (whole, _) = answer(WireFormat::Chat, word);
        let reply = chat.read_reply(whole.to_string().as_bytes()).unwrap();
        assert_eq!(reason(&reply), want, "{word}");
    }
}

#[test]
fn every_refused_prompt_is_one_kind_of_error() {
    let openai = |code: &str| json!({"error": {"message": "no", "type": "invalid_request_error", "code": code}});
    for format in [WireFormat::Chat, WireFormat::Responses] {
        let dialect: &dyn Dialect = dialects::get(format).unwrap();
        for code in [
            "content_filter",
            "content_policy_violation",
            "moderation_blocked",
            "invalid_prompt",
            "bio_policy",
            "image_content_policy_violation",
            "data_inspection_failed",
        ] {
            let error = dialect.read_error(400, openai(code).to_string().as_bytes());
            assert_eq!(error.kind(), ErrorKind::ContentPolicy, "{format} {code}");
        }
    }
    let messages = dialects::get(WireFormat::Messages).unwrap();
    let body = json!({"type": "error", "error": {"type": "invalid_request_error",
        "message": "Output blocked by content filtering policy"}});
    let error = messages.read_error(400, body.to_string().as_bytes());
    assert_eq!(error.kind(), ErrorKind::ContentPolicy);
}

//! Streams with broken events: an error, or a repaired event, never silence.

use ::bytes::Bytes;
use canon::{ErrorKind, PartKind, WireFormat};
use dialects::{Dialect, FrameAction, RequestFacts, StreamFrame};
use serde_json::{Value, json};

use crate::cases::{answers, events, fold, frames, full_request, stream, texts};
use crate::endings::sse;

/// Returns the error of a stream, if it has one.
fn error(dialect: &dyn Dialect, stream: &[u8]) -> Option<canon::ApiError> {
    let mut reader = dialect.stream_reader();
    let mut out = Vec::new();
    for frame in frames(&[stream]) {
        if let Err(error) = reader.push(&frame, &mut out) {
            return Some(error);
        }
    }
    reader.finish(&mut out).err()
}

#[test]
fn every_cut_event_is_an_error_on_both_roads() {
    for dialect in dialects::all() {
        for answer in answers(dialect) {
            for (at, frame) in frames(&[&answer.stream]).into_iter().enumerate() {
                if !frame.data.starts_with(b"{") {
                    continue;
                }
                let case = format!("{}/{} event {at}", dialect.origin(), answer.name);
                for keep in [frame.data.len() - 1, frame.data.len() / 2] {
                    let data = Bytes::copy_from_slice(&frame.data[..keep]);
                    let cut = StreamFrame { event: frame.event.clone(), data };
                    let mut meter = dialect.stream_meter(&RequestFacts {
                        stream: true,
                        candidates: 1,
                        ..RequestFacts::default()
                    });
                    let FrameAction::Error(error) = meter.observe(&cut) else {
                        panic!("{case}: a cut event is passed on");
                    };
                    assert_eq!(error.kind(), ErrorKind::Interrupted, "{case}");
                    let read = dialect.stream_reader().push(&cut, &mut Vec::new());
                    assert!(read.is_err(), "{case}: a cut event is read");
                }
            }
        }
    }
}

#[test]
fn pieces_that_are_no_objects_are_an_error_on_both_roads() {
    for dialect in dialects::all() {
        for data in ["[]", "null", "7", "\"text\"", "{", "[{}]", "garbled"] {
            let case = format!("{} {data}", dialect.origin());
            let frame = StreamFrame::data(data);
            let mut meter = dialect.stream_meter(&RequestFacts {
                stream: true,
                candidates: 1,
                ..RequestFacts::default()
            });
            assert!(matches!(meter.observe(&frame), FrameAction::Error(_)), "{case}");
            assert!(dialect.stream_reader().push(&frame, &mut Vec::new()).is_err(), "{case}");
        }
    }
}

#[test]
fn responses_events_out_of_order_are_repaired_or_an_error() {
    let dialect = dialects::get(WireFormat::Responses).unwrap();
    let item = |text: &str| {
        let part = json!({"type": "output_text", "text": text, "annotations": []});
        json!({"type": "message", "id": "i", "role": "assistant", "content": [part]})
    };
    let event = |kind: &'static str, rest: Value| {
        let mut event = json!({"type": kind, "output_index": 0, "content_index": 0});
        event.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        (kind, event)
    };
    let whole = json!({"id": "r", "status": "completed", "output": [item("All of it.")]});
    let proper = [
        event("response.created", json!({"response": {"id": "r"}})),
        event("response.output_item.added", json!({"item": item("")})),
        event("response.output_text.delta", json!({"delta": "All of it."})),
        event("response.output_item.done", json!({"item": item("All of it.")})),
        event("response.completed", json!({"response": whole})),
    ];
    for first in 0..proper.len() {
        for second in 0..proper.len() {
            let mut pieces = proper.to_vec();
            pieces.swap(first, second);
            for gone in 0..=pieces.len() {
                let mut pieces = pieces.clone();
                if gone < pieces.len() {
                    pieces.remove(gone);
                }
                let case = format!("{first} for {second} without {gone}");
                let stream = sse(&pieces);
                if error(dialect, &stream).is_none() {
                    assert_eq!(text(dialect, &stream, &case), "All of it.", "{case}");
                }
            }
        }
    }
}

fn text(dialect: &dyn Dialect, stream: &[u8], case: &str) -> String {
    let reply = fold(events(dialect, stream, case));
    let texts = reply.candidates[0].parts.iter().map(|part| match &part.kind {
        PartKind::Text { text, .. } => text.as_str(),
        _ => "",
    });
    texts.collect()
}

#[test]
fn messages_events_out_of_order_are_repaired_or_an_error() {
    let dialect = dialects::get(WireFormat::Messages).unwrap();
    let start = ("message_start", json!({"type": "message_start", "message": {"id": "m"}}));
    let open = (
        "content_block_start",
        json!({"type": "content_block_start", "index": 0,
               "content_block": {"type": "text", "text": ""}}),
    );
    let delta = (
        "content_block_delta",
        json!({"type": "content_block_delta", "index": 0,
               "delta": {"type": "text_delta", "text": "All of it."}}),
    );
    let close = ("content_block_stop", json!({"type": "content_block_stop", "index": 0}));
    let end =
        ("message_delta", json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}));
    let stop = ("message_stop", json!({"type": "message_stop"}));
    let proper = [start, open, delta, close, end, stop];
    let mut orders: Vec<Vec<usize>> = vec![vec![]];
    for place in 0..proper.len() {
        orders = orders
            .into_iter()
            .flat_map(|order| {
                (0..=order.len()).map(move |at| {
                    let mut order = order.clone();
                    order.insert(at, place);
                    order
                })
            })
            .collect();
    }
    // Any one event may be missing as well.
    let missing =
        (0..proper.len()).map(|gone| (0..proper.len()).filter(|at| *at != gone).collect());
    orders.extend(missing.collect::<Vec<Vec<usize>>>());
    for order in orders {
        // Everything after the last event is ignored in every format.
        if order.last() != Some(&5) && order.contains(&5) {
            continue;
        }
        let pieces: Vec<(&str, Value)> = order.iter().map(|at| proper[*at].clone()).collect();
        let stream = sse(&pieces);
        if error(dialect, &stream).is_none() && order.contains(&2) {
            assert_eq!(text(dialect, &stream, &format!("{order:?}")), "All of it.", "{order:?}");
        }
    }
}

#[test]
fn arguments_of_a_call_that_never_started_are_an_error() {
    let dialect = dialects::get(WireFormat::Messages).unwrap();
    let delta = json!({"type": "content_block_delta", "index": 0,
        "delta": {"type": "input_json_delta", "partial_json": "{}"}});
    assert!(error(dialect, &sse(&[("content_block_delta", delta)])).is_some());
    let dialect = dialects::get(WireFormat::Responses).unwrap();
    let delta = json!({"type": "response.function_call_arguments.delta", "output_index": 0,
        "delta": "{}"});
    let whole = json!({"id": "r", "status": "completed", "output": []});
    let last = json!({"type": "response.completed", "response": whole});
    let stream = [("response.function_call_arguments.delta", delta), ("response.completed", last)];
    assert!(error(dialect, &sse(&stream)).is_some());
}

#[test]
fn chat_output_after_its_end_is_an_error() {
    let dialect = dialects::get(WireFormat::Chat).unwrap();
    let chunk = |delta: Value, end: Value| {
        ("", json!({"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": end}]}))
    };
    let said = chunk(json!({"content": "one"}), Value::Null);
    let end = chunk(json!({}), json!("stop"));
    assert!(error(dialect, &sse(&[said.clone(), end.clone()])).is_none());
    assert!(error(dialect, &sse(&[said.clone(), end.clone(), end.clone()])).is_none());
    assert!(error(dialect, &sse(&[said.clone(), end, said])).is_some());
}

/// llama.cpp sends no output index, and a character that its model split comes as two broken halves
/// in the deltas and as a whole in the last event.
#[test]
fn responses_without_output_index_arrive_in_pieces() {
    let dialect = dialects::get(WireFormat::Responses).unwrap();
    let part = json!({"type": "output_text", "text": "A \u{fffd}", "annotations": []});
    let item = json!({"type": "message", "id": "i", "role": "assistant", "content": [part]});
    let delta = |text: &str| {
        ("", json!({"type": "response.output_text.delta", "item_id": "i", "delta": text}))
    };
    let added = json!({"type": "response.output_item.added",
        "item": {"type": "message", "id": "i", "content": []}});
    let call = |id: &str, arguments: &str| json!({"type": "function_call", "call_id": id, "name": "look", "arguments": arguments});
    let starts =
        |id: &str| ("", json!({"type": "response.output_item.added", "item": call(id, "")}));
    let argues = |id: &str| {
        (
            "",
            json!({"type": "response.function_call_arguments.delta", "item_id": id,
                    "delta": "{\"a\":1}"}),
        )
    };
    let (one, two) = (call("fc_1", "{\"a\":1}"), call("fc_2", "{\"a\":1}"));
    let whole = json!({"id": "r", "status": "completed", "output": [item, one, two]});
    let stream = [
        ("", json!({"type": "response.created", "response": {"id": "r"}})),
        ("", added),
        delta("A "),
        delta("\u{fffd}\u{fffd}"),
        starts("fc_1"),
        argues("fc_1"),
        starts("fc_2"),
        argues("fc_2"),
        ("", json!({"type": "response.output_item.done", "item": item})),
        ("", json!({"type": "response.output_item.done", "item": one})),
        ("", json!({"type": "response.output_item.done", "item": two})),
        ("", json!({"type": "response.completed", "response": whole})),
    ];
    let mut reader = dialect.stream_reader();
    let mut early = Vec::new();
    for frame in frames(&[&sse(&stream[..4])]) {
        reader.push(&frame, &mut early).unwrap();
    }
    assert!(early.iter().any(|event| matches!(event, canon::Event::PartDelta(..))), "{early:?}");
    assert_eq!(text(dialect, &sse(&stream), "no index"), "A \u{fffd}\u{fffd}");
    let parts = &fold(events(dialect, &sse(&stream), "no index")).candidates[0].parts;
    let calls = parts.iter().filter_map(|part| match &part.kind {
        PartKind::ToolCall(call) => Some((call.id.as_str(), call.arguments.as_str())),
        _ => None,
    });
    let want = [("fc_1", "{\"a\":1}"), ("fc_2", "{\"a\":1}")];
    assert_eq!(calls.collect::<Vec<_>>(), want, "{parts:?}");
}

#[test]
fn an_empty_signature_is_none() {
    let dialect = dialects::get(WireFormat::Chat).unwrap();
    let chunk = |delta: Value, end: Value| {
        ("", json!({"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": end}]}))
    };
    let detail = |text: &str, signature: &str| {
        json!({"reasoning_details": [{"type": "reasoning.text", "text": text,
            "signature": signature, "format": "anthropic-claude-v1", "index": 0}]})
    };
    let stream = sse(&[
        chunk(detail("", ""), Value::Null),
        chunk(detail("Hm", ""), Value::Null),
        chunk(detail("", "c2ln"), Value::Null),
        chunk(json!({"content": "Yes."}), Value::Null),
        chunk(json!({}), json!("stop")),
    ]);
    let reply = fold(events(dialect, &stream, "empty signature"));
    let parts = &reply.candidates[0].parts;
    assert_eq!(parts.len(), 2, "{parts:?}");
    assert!(parts[0].signature.is_some());
}

#[test]
fn citations_survive_a_signature_that_comes_after_the_text() {
    let chat = dialects::get(WireFormat::Chat).unwrap();
    let chunk = |delta: Value, end: Value| {
        ("", json!({"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": end}]}))
    };
    let detail = json!({"reasoning_details": [{"type": "reasoning.text", "text": "",
        "signature": "c2ln", "index": 0}]});
    let note = json!({"annotations": [{"type": "url_citation", "url_citation":
        {"url": "https://a.example", "title": "A", "start_index": 0, "end_index": 3}}]});
    let stream = sse(&[
        chunk(json!({"content": "Yes"}), Value::Null),
        chunk(detail, Value::Null),
        chunk(note, Value::Null),
        chunk(json!({}), json!("stop")),
    ]);
    let native = dialects::get(WireFormat::Native).unwrap();
    let grounding = json!({"groundingChunks": [{"web": {"uri": "https://a.example", "title": "A"}}],
        "groundingSupports": [{"segment": {"startIndex": 0, "endIndex": 3, "text": "Yes"},
                               "groundingChunkIndices": [0]},
                              {"segment": {"startIndex": 5, "endIndex": 7, "text": "it"},
                               "groundingChunkIndices": [0]}]});
    let piece = |part: Value| json!({"candidates": [{"index": 0, "content": {"parts": [part]}}]});
    let last = json!({"candidates": [{"index": 0, "content":
        {"parts": [{"text": "it is.", "thoughtSignature": "c2ln"}]},
        "finishReason": "STOP", "groundingMetadata": grounding}]});
    let split =
        sse(&[("", piece(json!({"text": "Yes"}))), ("", piece(json!({"text": ", "}))), ("", last)]);
    for (dialect, stream, count) in [(chat, stream, 1), (native, split, 2)] {
        let case = dialect.origin().to_string();
        let reply = fold(events(dialect, &stream, &case));
        let parts = &reply.candidates[0].parts;
        let cited: usize = parts
            .iter()
            .map(|part| match &part.kind {
                PartKind::Text { text, citations } => {
                    for citation in citations {
                        let (_, end) = citation.span.unwrap();
                        assert!(end <= text.chars().count(), "{case}: {parts:?}");
                    }
                    citations.len()
                }
                _ => 0,
            })
            .sum();
        assert_eq!(cited, count, "{case}: {parts:?}");
    }
}

/// The last chunk of a native stream with built-in tools counts less than an earlier one.
#[test]
fn the_last_usage_of_a_stream_is_that_of_the_whole_reply() {
    let native = dialects::get(WireFormat::Native).unwrap();
    let piece = |finish: Value, usage: Value| {
        let content = json!({"role": "model", "parts": [{"text": "Hi"}]});
        (
            "",
            json!({"candidates": [{"index": 0, "content": content, "finishReason": finish}],
                    "usageMetadata": usage}),
        )
    };
    let early =
        json!({"promptTokenCount": 9, "candidatesTokenCount": 15, "thoughtsTokenCount": 78});
    let last = json!({"promptTokenCount": 87, "thoughtsTokenCount": 78, "totalTokenCount": 165});
    let stream = sse(&[piece(Value::Null, early), piece(json!("STOP"), last)]);
    let read = events(native, &stream, "usage");
    let whole = fold(read.clone());
    let mut meter = dialects::ReplyMeter::default();
    for event in &read {
        meter.add_event(event);
    }
    assert_eq!(meter.usage, whole.usage);
    for caller in dialects::all() {
        let chat = full_request();
        let (body, _) = caller.write_reply(whole.clone(), &chat, &crate::cases::stamp());
        let (out, _) = crate::cases::stream(caller, &chat, read.clone());
        let streamed = fold(events(caller, &out, "usage"));
        let usage = caller.read_reply(&body).unwrap().usage;
        assert_eq!(streamed.usage, usage, "{}", caller.origin());
        assert_eq!(usage.map(|usage| usage.output), Some(78), "{}", caller.origin());
    }
}

/// Some recorded streams end with a text that their deltas do not have, for example shortened ones.
#[test]
fn a_final_text_that_differs_from_its_deltas_is_told() {
    let stream_of = |last: &str| {
        let part = json!({"type": "output_text", "text": last, "annotations": []});
        let item = json!({"type": "message", "id": "m", "role": "assistant",
            "status": "completed", "content": [part]});
        let delta = |text: &str| {
            json!({"type": "response.output_text.delta", "output_index": 0, "content_index": 0,
                   "item_id": "m", "delta": text})
        };
        let response = json!({"id": "r", "status": "completed", "output": [item]});
        [
            json!({"type": "response.created", "response": {"id": "r", "output": []}}),
            delta("It ran"),
            delta(" well."),
            json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
            json!({"type": "response.completed", "response": response}),
        ]
        .map(|event| format!("data: {event}\n\n"))
        .concat()
    };
    let responses = dialects::get(WireFormat::Responses).unwrap();
    for caller in dialects::all().filter(|caller| caller.origin() != WireFormat::Responses) {
        for (last, told) in [
            ("It ran well.", false),
            ("It ran well. And more.", false),
            ("It ran in the container.", true),
        ] {
            let list = events(responses, stream_of(last).as_bytes(), last);
            let (out, losses) = stream(caller, &full_request(), list);
            let is_told = losses.iter().any(|loss| loss.path == "part.final_text");
            assert_eq!(is_told, told, "{} {last}", caller.origin());
            let reply = fold(events(caller, &out, last));
            let mut said = String::new();
            texts(&reply.candidates[0].parts, &mut said);
            assert_eq!(said.trim(), if told { "It ran well." } else { last });
        }
    }
}

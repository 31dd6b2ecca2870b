//! Properties of a single format.

use ::bytes::Bytes;
use canon::{ChatReply, CodeExecution, CodeResult, ExtraFields, PartKind, WebSearch, into_events};
use dialects::{FrameAction, LaneSettings, ReplyMeter, ReplyStamp, RequestFacts, RequestUse};

use crate::cases::{
    answers, assert_grammar, events, fold, frames, full_request, joined, requests, stamp,
    stream_as, target,
};

#[test]
fn request_round_trips_without_loss() {
    for dialect in dialects::all() {
        for (name, body) in requests(dialect) {
            let case = format!("{}/{name}", dialect.origin());
            let chat = dialect.read_request(&target(), &body).expect(&case);
            let lane = LaneSettings {
                model: &chat.model,
                max_payable_output: None,
                model_max_output: None,
                thinking_range: None,
                cache_field: Some(canon::CacheField::PromptCacheBreakpoint),
                client_tools: &[canon::ToolKind::Custom],
            };
            let (out, losses) = dialect.write_request(&chat, &lane).expect(&case);
            assert_eq!(losses, [], "{case}");
            let written = out.body.to_vec();
            let shown = String::from_utf8_lossy(&written);
            assert!(!shown.contains("\"portunus."), "{case}: an internal note is written\n{shown}");
            let again = dialect.read_request(&target(), &written).expect(&case);
            assert_eq!(again, chat, "{case}\n{shown}");
        }
    }
}

#[test]
fn one_parse_gives_the_facts_and_the_request() {
    for dialect in dialects::all() {
        for (name, body) in requests(dialect) {
            let case = format!("{}/{name}", dialect.origin());
            let Ok(facts) = dialect.read_facts(&target(), &body) else { continue };
            let chat = dialect.read_request(&target(), &body).expect(&case);
            for wants_chat in [true, false] {
                let wanted = |_: &str| wants_chat;
                let both = dialect.parse(&target(), &body, RequestUse::Both(&wanted)).expect(&case);
                assert_eq!(both.facts.as_ref(), Some(&facts), "{case}");
                assert_eq!(both.chat.as_deref(), Some(&chat).filter(|_| wants_chat), "{case}");
            }
        }
    }
}

#[test]
fn a_reply_that_was_read_is_metered_like_its_bytes() {
    for dialect in dialects::all() {
        for answer in answers(dialect) {
            let (case, body) = (format!("{}/{}", dialect.origin(), answer.name), answer.whole);
            let bytes = dialect.meter_reply(&body).expect(&case);
            let read = ReplyMeter::of_reply(&dialect.read_reply(&body).expect(&case));
            assert_eq!(read.usage, bytes.usage, "{case}");
            assert_eq!(read.is_finished, bytes.is_finished, "{case}");
            assert_eq!(read.service_tier, bytes.service_tier, "{case}");
            if bytes.usage.is_none() {
                assert_eq!(read.output_bytes == 0, bytes.output_bytes == 0, "{case}");
            }
        }
    }
}

#[test]
fn pass_through_keeps_the_callers_bytes() {
    for dialect in dialects::all() {
        for (name, body) in requests(dialect) {
            let case = format!("{}/{name}", dialect.origin());
            let peek = dialect.read_facts(&target(), &body);
            let peek = peek.unwrap_or_else(|e| panic!("{case}: {e}"));
            assert!(peek.losses.is_empty(), "{case}: {:?}", peek.losses);
            let lane = LaneSettings {
                model: &peek.model,
                max_payable_output: None,
                model_max_output: None,
                thinking_range: None,
                cache_field: Some(canon::CacheField::PromptCacheBreakpoint),
                client_tools: &[canon::ToolKind::Custom],
            };
            let body = Bytes::from(body);
            assert_eq!(dialect.patch(&body, &peek, &lane).body.to_vec(), body, "{case}");
        }
    }
}

#[test]
fn pass_through_repeats_every_frame_and_counts_like_the_reader() {
    for dialect in dialects::all() {
        for answer in answers(dialect) {
            let case = format!("{}/{}", dialect.origin(), answer.name);
            let reply = dialect.read_reply(&answer.whole).expect(&case);
            let candidates = u32::try_from(reply.candidates.len()).unwrap();
            let mut sniffer = dialect.stream_meter(&RequestFacts {
                stream: true,
                wants_usage: true,
                candidates: candidates.max(1),
                ..RequestFacts::default()
            });
            let pieces = frames(&[&answer.stream]);
            let mut out = Vec::new();
            for piece in &pieces {
                match sniffer.observe(piece) {
                    FrameAction::Forward | FrameAction::Last => sniffer.write(piece, &mut out),
                    FrameAction::Drop => panic!("{case}: a frame was dropped"),
                    FrameAction::Error(fault) => panic!("{case}: {fault}"),
                }
            }
            // `completed` tests what is added to sparse events.
            let written = frames(&[&out]);
            assert_eq!(written.len(), pieces.len(), "{case}");
            for (written, piece) in written.iter().zip(&pieces) {
                let same = written.data == piece.data || written.data.len() > piece.data.len();
                assert!(same && written.event == piece.event, "{case}: {written:?}\n{piece:?}");
            }
            assert_eq!((sniffer.totals().usage, sniffer.totals().is_finished), (reply.usage, true));
            let said = dialect.meter_reply(&answer.whole).expect(&case);
            assert_eq!((said.usage, said.is_finished), (reply.usage, true), "{case}");
        }
    }
}

#[test]
fn stream_folds_into_the_whole_reply() {
    for dialect in dialects::all() {
        for answer in answers(dialect) {
            let case = format!("{}/{}", dialect.origin(), answer.name);
            let whole = dialect.read_reply(&answer.whole).expect(&case);
            assert_eq!(fold(events(dialect, &answer.stream, &case)), whole, "{case}");
            assert_grammar(&into_events(whole), &case);
        }
    }
}

#[test]
fn frames_do_not_depend_on_byte_boundaries() {
    for dialect in dialects::all() {
        for answer in answers(dialect) {
            let case = format!("{}/{}", dialect.origin(), answer.name);
            let whole = frames(&[&answer.stream]);
            // Readers see only frames, so the same frames give the same reply.
            let some = |at: &usize| answer.stream.len() < 2_000 || at % 7 == answer.name.len() % 7;
            for at in (0..=answer.stream.len()).filter(some) {
                let (front, back) = answer.stream.split_at(at);
                assert_eq!(frames(&[front, back]), whole, "{case} cut at {at}");
            }
            let bytes: Vec<&[u8]> = answer.stream.chunks(1).collect();
            assert_eq!(frames(&bytes), whole, "{case} byte by byte");
        }
    }
}

/// Keeps what must survive: everything but the reply's own id and counts without a field.
fn comparable(reply: &ChatReply) -> ChatReply {
    let mut usage = reply.usage;
    if let Some(usage) = &mut usage {
        usage.searches = 0;
    }
    ChatReply { id: None, model: None, usage, extras: ExtraFields::new(), ..reply.clone() }
}

/// Also removes signatures and extras. A stream that begins a part before its signature arrives may
/// wrap the signature, which `seals` tests, and need not carry fields that only its own provider
/// reports early.
fn bare(reply: &ChatReply) -> ChatReply {
    let mut reply = joined(comparable(reply));
    for candidate in &mut reply.candidates {
        candidate.extras = ExtraFields::new();
        for part in &mut candidate.parts {
            (part.signature, part.extras) = (None, ExtraFields::new());
            if let PartKind::CodeExecution(CodeExecution { id, .. })
            | PartKind::CodeResult(CodeResult { id, .. })
            | PartKind::WebSearch(WebSearch { id, .. }) = &mut part.kind
            {
                *id = None;
            }
            if let PartKind::WebSearch(WebSearch { queries, .. }) = &mut part.kind {
                queries.retain(|query| !query.is_empty());
            }
        }
    }
    reply
}

#[test]
fn reply_round_trips_whole_and_streamed() {
    for dialect in dialects::all() {
        for answer in answers(dialect) {
            let me = dialect.origin();
            let case = format!("{me}/{}", answer.name);
            let reply = dialect.read_reply(&answer.whole).expect(&case);
            // Made-up ids depend on the id of the reply.
            let stamp = ReplyStamp { id: reply.id.clone().unwrap_or_default(), ..stamp() };
            let (written, losses) = dialect.write_reply(reply.clone(), &full_request(), &stamp);
            assert_eq!(losses, [], "{case}");
            let shown = String::from_utf8_lossy(&written);
            assert!(!shown.contains("\"portunus."), "{case}: an internal note is written\n{shown}");
            let again = dialect.read_reply(&written).expect(&case);
            assert_eq!(comparable(&again), comparable(&reply), "{case}");
            let kept = again.extras.for_format(me);
            for (name, value) in reply.extras.for_format(me).into_iter().flatten() {
                let found = kept.and_then(|kept| kept.get(name));
                if let (Some(serde_json::Value::Object(was)), Some(is)) = (Some(value), found) {
                    for (inner, value) in was {
                        assert_eq!(is.get(inner), Some(value), "{case}: {name}.{inner}");
                    }
                    continue;
                }
                assert_eq!(found, Some(value), "{case}: {name}");
            }
            // Providers report the prompt tokens first; some streams have a field for them only
            // there.
            let mut pieces = into_events(reply.clone());
            pieces.insert(1, pieces.last().unwrap().clone());
            let (streamed, losses) = stream_as(dialect, &full_request(), pieces, &stamp);
            assert_eq!(losses, [], "{case}");
            let streamed = fold(events(dialect, &streamed, &case));
            assert_eq!(bare(&streamed), bare(&reply), "{case} streamed");
        }
    }
}

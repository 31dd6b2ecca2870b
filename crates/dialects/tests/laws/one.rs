//! What is true within one format.

use ::bytes::Bytes;
use canon::{Code, CodeOutcome, Extras, Kind, Reply, Search, unfold};
use dialects::{Lane, Peek, Stamp, Verdict};

use crate::cases::{
    answers, curious, events, fold, frames, joined, lawful, requests, stamp, stream_as, target,
};

/// Requests a format reads but refuses to pass on: files belong to whoever holds the key.
const REFUSED: [(&str, &str); 1] = [("responses", "media")];

#[test]
fn a_request_comes_back_as_it_was_without_a_loss() {
    for dialect in dialects::all() {
        for (name, body) in requests(dialect) {
            let case = format!("{}/{name}", dialect.origin());
            let chat = dialect.read_request(&target(), &body).expect(&case);
            let lane = Lane { model: &chat.model, limit: None, max_output: None, steering: None };
            let (out, losses) = dialect.write_request(&chat, &lane).expect(&case);
            assert_eq!(losses, [], "{case}");
            let written = out.body.to_vec();
            let shown = String::from_utf8_lossy(&written);
            assert!(!shown.contains("\"portunus."), "{case}: a note of ours leaves\n{shown}");
            let again = dialect.read_request(&target(), &written).expect(&case);
            assert_eq!(again, chat, "{case}\n{shown}");
        }
    }
}

#[test]
fn a_passage_leaves_the_callers_bytes_alone() {
    for dialect in dialects::all() {
        for (name, body) in requests(dialect) {
            let case = format!("{}/{name}", dialect.origin());
            let peek = dialect.peek(&target(), &body);
            if REFUSED.contains(&(dialect.origin().name(), &name)) {
                assert!(peek.is_err(), "{case}");
                continue;
            }
            let peek = peek.unwrap_or_else(|e| panic!("{case}: {e}"));
            assert!(peek.losses.is_empty(), "{case}: {:?}", peek.losses);
            let lane = Lane { model: &peek.model, limit: None, max_output: None, steering: None };
            let body = Bytes::from(body);
            assert_eq!(dialect.patch(&body, &peek, &lane).body.to_vec(), body, "{case}");
        }
    }
}

#[test]
fn a_passage_repeats_every_piece_and_counts_like_the_reader() {
    for dialect in dialects::all() {
        for answer in answers(dialect) {
            let case = format!("{}/{}", dialect.origin(), answer.name);
            let reply = dialect.read_reply(&answer.whole).expect(&case);
            let candidates = u32::try_from(reply.candidates.len()).unwrap();
            let mut sniffer = dialect.sniffer(&Peek {
                stream: true,
                wants_usage: true,
                candidates: candidates.max(1),
                ..Peek::default()
            });
            let pieces = frames(&[&answer.stream]);
            let mut out = Vec::new();
            for piece in &pieces {
                match sniffer.frame(piece) {
                    Verdict::Forward | Verdict::Last => sniffer.write(piece, &mut out),
                    Verdict::Swallow => panic!("{case}: a piece was kept back"),
                    Verdict::Fault(fault) => panic!("{case}: {fault}"),
                }
            }
            assert_eq!(frames(&[&out]), pieces, "{case}");
            assert_eq!((sniffer.said().usage, sniffer.said().finished), (reply.usage, true));
            let said = dialect.sniff_reply(&answer.whole).expect(&case);
            assert_eq!((said.usage, said.finished), (reply.usage, true), "{case}");
        }
    }
}

#[test]
fn a_stream_folds_into_the_whole_answer() {
    for dialect in dialects::all() {
        for answer in answers(dialect) {
            let case = format!("{}/{}", dialect.origin(), answer.name);
            let whole = dialect.read_reply(&answer.whole).expect(&case);
            assert_eq!(fold(events(dialect, &answer.stream, &case)), whole, "{case}");
            lawful(&unfold(whole), &case);
        }
    }
}

#[test]
fn cutting_the_bytes_anywhere_changes_nothing() {
    for dialect in dialects::all() {
        for answer in answers(dialect) {
            let case = format!("{}/{}", dialect.origin(), answer.name);
            let whole = frames(&[&answer.stream]);
            // Readers see nothing but frames, so the same frames are the same answer.
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

/// What must survive: all but the name of the answer, which is ours, and counts with no place.
fn said(reply: &Reply) -> Reply {
    let mut usage = reply.usage;
    if let Some(usage) = &mut usage {
        usage.searches = 0;
    }
    Reply { id: None, model: None, usage, extras: Extras::none(), ..reply.clone() }
}

/// The same without seals and extras: a stream that opens a part before it knows its seal may
/// wrap it, which `seals` looks at, and need not tell what only its own provider tells early.
fn bare(reply: &Reply) -> Reply {
    let mut reply = joined(said(reply));
    for candidate in &mut reply.candidates {
        candidate.extras = Extras::none();
        for part in &mut candidate.parts {
            (part.seal, part.extras) = (None, Extras::none());
            if let Kind::Code(Code { id, .. })
            | Kind::CodeOutcome(CodeOutcome { id, .. })
            | Kind::Search(Search { id, .. }) = &mut part.kind
            {
                *id = None;
            }
            if let Kind::Search(Search { queries, .. }) = &mut part.kind {
                queries.retain(|query| !query.is_empty());
            }
        }
    }
    reply
}

#[test]
fn an_answer_comes_back_as_it_was_whole_and_streamed() {
    for dialect in dialects::all() {
        for answer in answers(dialect) {
            let me = dialect.origin();
            let case = format!("{me}/{}", answer.name);
            let reply = dialect.read_reply(&answer.whole).expect(&case);
            // Ids that a reader invents hang on the id of the answer.
            let stamp = Stamp { id: reply.id.clone().unwrap_or_default(), ..stamp() };
            let (written, losses) = dialect.write_reply(reply.clone(), &curious(), &stamp);
            assert_eq!(losses, [], "{case}");
            let shown = String::from_utf8_lossy(&written);
            assert!(!shown.contains("\"portunus."), "{case}: a note of ours leaves\n{shown}");
            let again = dialect.read_reply(&written).expect(&case);
            assert_eq!(said(&again), said(&reply), "{case}");
            let kept = again.extras.for_origin(me);
            for (name, value) in reply.extras.for_origin(me).into_iter().flatten() {
                let found = kept.and_then(|kept| kept.get(name));
                if let (Some(serde_json::Value::Object(was)), Some(is)) = (Some(value), found) {
                    for (inner, value) in was {
                        assert_eq!(is.get(inner), Some(value), "{case}: {name}.{inner}");
                    }
                    continue;
                }
                assert_eq!(found, Some(value), "{case}: {name}");
            }
            // Providers count the prompt first; some streams have a place for it only there.
            let mut pieces = unfold(reply.clone());
            pieces.insert(1, pieces.last().unwrap().clone());
            let (streamed, losses) = stream_as(dialect, &curious(), pieces, &stamp);
            assert_eq!(losses, [], "{case}");
            let streamed = fold(events(dialect, &streamed, &case));
            assert_eq!(bare(&streamed), bare(&reply), "{case} streamed");
        }
    }
}

//! Properties of every ordered pair of formats, the caller's and the provider's. The golden lists,
//! one file per pair, hold the losses in both directions.

use canon::{
    ChatReply, ChatRequest, ExtraFields, Loss, PartKind, StopEnforcer, Tool, WireFormat,
    into_events,
};
use dialects::Dialect;
use serde_json::Value;
use std::collections::BTreeSet;

use crate::cases::{
    LANE, answers, events, fold, frames, full_request, here, joined, pairs, requests, stamp,
    stream, target, texts,
};
use crate::clients::{from_stream, next_request};

/// One loss of a pair.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LossLine {
    /// `request` or `answer`.
    pub(crate) way: &'static str,
    pub(crate) case: String,
    pub(crate) what: String,
    pub(crate) why: String,
}

/// Stands for a loss if the whole request is refused.
pub(crate) const REFUSED: &str = "(refused)";

/// Returns all losses of a pair over all fixtures, in order.
pub(crate) fn lost(from: &dyn Dialect, to: &dyn Dialect) -> Vec<LossLine> {
    let mut lines = Vec::new();
    for (case, body) in requests(from) {
        let mut chat = from.read_request(&target(), &body).unwrap();
        // Settings that the gateway enforces itself are not lost.
        let _ = StopEnforcer::take_from(
            &mut chat,
            None,
            from.traits().stop_support,
            (to.origin(), to.traits().stop_support),
        );
        let losses = match to.write_request(&chat, &LANE) {
            Ok((_, losses)) => losses,
            Err(fault) => vec![Loss::new(REFUSED, fault.message())],
        };
        note("request", &case, losses, &mut lines);
    }
    for answer in answers(to) {
        let reply = to.read_reply(&answer.whole).unwrap();
        let (_, losses) = from.write_reply(reply, &full_request(), &stamp());
        note("answer", &answer.name, losses, &mut lines);
    }
    lines
}

fn note(way: &'static str, case: &str, losses: Vec<Loss>, lines: &mut Vec<LossLine>) {
    let mut found: Vec<LossLine> = losses
        .into_iter()
        .map(|Loss { path: what, reason: why, .. }| LossLine {
            way,
            case: case.to_owned(),
            what,
            why,
        })
        .collect();
    found.sort();
    lines.extend(found);
}

#[test]
fn losses_of_every_pair_match_the_golden_lists() {
    let bless = std::env::var_os("BLESS").is_some();
    let mut stale = Vec::new();
    for (from, to) in pairs() {
        let name = format!("{}-{}.txt", from.origin(), to.origin());
        let lines = lost(from, to);
        let text: String = lines
            .iter()
            .map(|LossLine { way, case, what, why }| format!("{way} {case}: {what}: {why}\n"))
            .collect();
        let path = here().join("golden").join(&name);
        if bless {
            std::fs::write(&path, text).unwrap();
            continue;
        }
        let golden = std::fs::read_to_string(&path).unwrap_or_default();
        let (was, is): (BTreeSet<&str>, BTreeSet<&str>) =
            (golden.lines().collect(), text.lines().collect());
        stale.extend(was.difference(&is).map(|line| format!("{name}: no longer: {line}")));
        stale.extend(is.difference(&was).map(|line| format!("{name}: new: {line}")));
    }
    let list = stale.join("\n");
    assert!(stale.is_empty(), "{list}\nlook at each; if all are right: `cargo xtask losses`");
}

#[test]
fn every_request_is_valid_in_every_other_format() {
    let mut wrong = Vec::new();
    for (from, to) in pairs() {
        for (name, body) in requests(from) {
            let case = format!("{}/{name} for {}", from.origin(), to.origin());
            let chat = from.read_request(&target(), &body).unwrap();
            let Ok((out, losses)) = to.write_request(&chat, &LANE) else { continue };
            let written = out.body.to_vec();
            let shown = String::from_utf8_lossy(&written);
            // A conversation that continues a stored reply is assembled before it is written.
            if chat.state.previous_response.is_some() {
                continue;
            }
            if let Err(fault) = to.read_facts(&target(), &written) {
                wrong.push(format!("{case}: {fault}\n{shown}"));
                continue;
            }
            let again = to.read_request(&target(), &written).expect(&case);
            if let Some(name) = unreported_field(&chat, to.origin(), &losses) {
                wrong.push(format!("{case}: the loss of {name} is not reported"));
            }
            assert_texts_kept(&chat, &again, &losses, &format!("{case}\n{shown}"));
            // A request that was adapted to a format stays unchanged in it.
            let (twice, more) = to.write_request(&again, &LANE).expect(&case);
            if !more.is_empty() {
                wrong.push(format!("{case}: the second translation loses more: {more:?}"));
            }
            let twice = to.read_request(&target(), &twice.body.to_vec()).expect(&case);
            if twice != again {
                wrong.push(format!("{case}\n{shown}\n{twice:?}\n{again:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// Returns a field of a turn, part or tool that only the caller's format has and that no loss
/// names.
fn unreported_field(chat: &ChatRequest, to: WireFormat, losses: &[Loss]) -> Option<String> {
    let turns = chat.turns.iter().map(|turn| ("turn", &turn.extras));
    let parts = chat.turns.iter().flat_map(|turn| &turn.parts);
    let parts = parts.map(|part| ("part", &part.extras));
    let tools = chat.tools.iter().filter_map(|tool| match tool {
        Tool::Function(tool) => Some(("tools", &tool.extras)),
        Tool::WebSearch(tool) => Some(("tools", &tool.extras)),
        Tool::Custom { extras, .. } | Tool::CodeExecution(extras) | Tool::UrlFetch(extras) => {
            Some(("tools", extras))
        }
        Tool::Client(_) | Tool::Foreign { .. } => None,
    });
    let mut names = turns.chain(parts).chain(tools).flat_map(|(of, extras)| {
        let names = extras.foreign_to(to).filter(|name| {
            // Names and ids of another format are not losses.
            !["id", "name", "status", "type"].contains(name)
        });
        names.map(move |name| format!("{of}.{name}"))
    });
    // The loss of a whole part or tool includes its fields.
    let named = |name: &str| {
        let of = name.split('.').next().unwrap_or(name);
        losses.iter().any(|loss| loss.path == name || loss.path == of)
            || losses.iter().any(|loss| loss.path.starts_with("part.search") && of == "part")
            || losses.iter().any(|loss| loss.path.starts_with("thought") && of == "part")
            || losses.iter().any(|loss| loss.path.starts_with("tools.") && of == "tools")
    };
    names.find(|name| !named(name))
}

/// Asserts that every text of `was` is in `is`, unless a loss names it.
pub(crate) fn assert_texts_kept(was: &ChatRequest, is: &ChatRequest, losses: &[Loss], case: &str) {
    let excused = losses.iter().any(|loss| {
        loss.path == "part" || loss.path.starts_with("turn.media") || loss.path == "system.parts"
    });
    let mut all = String::new();
    is.turns.iter().for_each(|turn| texts(&turn.parts, &mut all));
    for turn in &was.turns {
        for part in &turn.parts {
            let mut text = String::new();
            texts(std::slice::from_ref(part), &mut text);
            // Results that are JSON may be formatted differently.
            let text = text.trim();
            let object = matches!(&part.kind, PartKind::ToolResult(r) if r.object.is_some());
            let found = all.contains(text) || object || text.starts_with(['{', '[']);
            assert!(found || excused, "{case}\nlost: {text:?}\nleft: {all:?}");
        }
    }
}

/// Reduces a reply to what the caller can see.
fn visible(reply: ChatReply) -> ChatReply {
    let mut reply = joined(reply);
    reply.extras = ExtraFields::new();
    for candidate in &mut reply.candidates {
        for part in &mut candidate.parts {
            part.signature = None;
            part.extras = ExtraFields::new();
        }
        // A part that only carries a signature may stand elsewhere; `seals` tests where.
        candidate.parts.retain(|part| match &part.kind {
            PartKind::Text { text, .. } => !text.is_empty(),
            PartKind::Thought(thought) => !thought.text.is_empty(),
            _ => true,
        });
    }
    reply
}

#[test]
fn every_reply_is_the_same_whole_and_streamed() {
    let mut wrong = Vec::new();
    for (from, to) in pairs() {
        for answer in answers(to) {
            let case = format!("{}/{} for {}", to.origin(), answer.name, from.origin());
            let reply = to.read_reply(&answer.whole).unwrap();
            let (whole, losses) = from.write_reply(reply.clone(), &full_request(), &stamp());
            let expected = visible(from.read_reply(&whole).expect(&case));
            for (how, pieces) in [
                ("in the provider's chunks", events(to, &answer.stream, &case)),
                ("in the largest chunks", into_events(reply)),
            ] {
                let (out, late) = stream(from, &full_request(), pieces);
                for frame in frames(&[&out]) {
                    let json = serde_json::from_slice::<Value>(&frame.data);
                    assert!(json.is_ok() || &frame.data[..] == b"[DONE]", "{case} {how}");
                }
                // The official client accepts it and can send it back.
                for history in from_stream(from.origin(), &out) {
                    next_request(from.origin(), &history);
                }
                let got = visible(fold(events(from, &out, &case)));
                if got != expected {
                    let out = String::from_utf8_lossy(&out);
                    wrong.push(format!("{case} {how}\n{out}\n{got:?}\n{expected:?}"));
                }
                let names = |losses: &[Loss]| -> BTreeSet<String> {
                    losses.iter().map(|loss| loss.path.clone()).collect()
                };
                if names(&late) != names(&losses) {
                    wrong.push(format!("{case} {how}: streamed {late:?}\nwhole {losses:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// The signatures of a reply in their order, each with the part that carries it.
fn signature_order(reply: ChatReply) -> Vec<(String, String)> {
    let parts = joined(reply).candidates.into_iter().flat_map(|candidate| candidate.parts);
    let signed = parts.filter(|part| part.signature.is_some());
    signed.map(|part| (format!("{:?}", part.kind), format!("{:?}", part.signature))).collect()
}

#[test]
fn signatures_stand_in_the_same_order_whole_and_streamed() {
    let mut wrong = Vec::new();
    // A messages stream cannot know that a signed text is the last one, and nothing may follow that.
    for (from, to) in pairs().into_iter().filter(|(from, _)| from.origin() != WireFormat::Messages)
    {
        for answer in answers(to) {
            let case = format!("{}/{} for {}", to.origin(), answer.name, from.origin());
            let reply = to.read_reply(&answer.whole).unwrap();
            let (whole, _) = from.write_reply(reply.clone(), &full_request(), &stamp());
            let expected = signature_order(from.read_reply(&whole).expect(&case));
            for (how, pieces) in [
                ("in the provider's chunks", events(to, &answer.stream, &case)),
                ("in the largest chunks", into_events(reply)),
            ] {
                let (out, _) = stream(from, &full_request(), pieces);
                let got = signature_order(fold(events(from, &out, &case)));
                if got != expected {
                    let out = String::from_utf8_lossy(&out);
                    let whole = String::from_utf8_lossy(&whole);
                    wrong.push(format!("{case} {how}\n{out}\n{whole}\n{got:#?}\n{expected:#?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

//! Every signature returns to its provider: a caller of another format gets the reply, sends it
//! back as its official client does, and the provider receives every signature byte for byte on its
//! own part.
//!
//! Each run creates new signatures, all different. Code of this file, not of the translation, reads
//! what a provider receives, so that two matching bugs cannot hide each other.

use ::bytes::Bytes;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use canon::{ChatRequest, Event, PartKind, Role, WireFormat, into_events};
use dialects::signature_cache::{self, CachedSignatures};
use dialects::{Dialect, LaneSettings};
use serde_json::Value;
use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};

use crate::cases::{
    Answer, LANE, answers, events, full_request, here, pairs, stamp, stream, target,
};
use crate::clients::{from_stream, from_whole, list, next_request, text};

/// A signed part in a provider's format, and its signature.
type SignedPart = (String, String);

/// Returns the signed parts of a reply's first candidate.
fn signed_parts_of_reply(format: WireFormat, body: &[u8]) -> Vec<SignedPart> {
    let body: Value = serde_json::from_slice(body).unwrap();
    match format {
        WireFormat::Chat => in_message(&body["choices"][0]["message"]),
        WireFormat::Messages => in_blocks(&body["content"]),
        WireFormat::Responses => in_items(&body["output"]),
        WireFormat::Native => in_parts(&body["candidates"][0]["content"]["parts"]),
        WireFormat::Images => Vec::new(),
    }
}

/// Returns the signed parts of a request, over all turns.
fn signed_parts_of_request(format: WireFormat, body: &[u8]) -> Vec<SignedPart> {
    let body: Value = serde_json::from_slice(body).unwrap();
    match format {
        WireFormat::Chat => list(&body["messages"]).iter().flat_map(in_message).collect(),
        WireFormat::Messages => {
            list(&body["messages"]).iter().flat_map(|turn| in_blocks(&turn["content"])).collect()
        }
        WireFormat::Responses => in_items(&body["input"]),
        WireFormat::Native => {
            list(&body["contents"]).iter().flat_map(|turn| in_parts(&turn["parts"])).collect()
        }
        WireFormat::Images => Vec::new(),
    }
}

fn in_message(message: &Value) -> Vec<SignedPart> {
    let details = list(&message["reasoning_details"]).iter().filter_map(|entry| {
        let token = entry.get("signature").or_else(|| entry.get("data"))?.as_str()?;
        let named = ["type", "format", "id", "text"].map(|name| text(entry, name));
        Some((named.join(" "), token.to_owned()))
    });
    let calls = list(&message["tool_calls"]).iter().filter_map(|call| {
        let token = call["extra_content"]["google"]["thought_signature"].as_str()?;
        Some((format!("call {} {}", text(call, "id"), call["function"]), token.to_owned()))
    });
    details.chain(calls).collect()
}

fn in_blocks(blocks: &Value) -> Vec<SignedPart> {
    let sealed = list(blocks).iter().filter_map(|block| match text(block, "type") {
        "thinking" => {
            Some((format!("thinking {}", text(block, "thinking")), text(block, "signature")))
        }
        "redacted_thinking" => Some(("redacted".to_owned(), text(block, "data"))),
        _ => None,
    });
    sealed.map(|(part, token)| (part, token.to_owned())).collect()
}

fn in_items(items: &Value) -> Vec<SignedPart> {
    let items = list(items).iter().filter(|item| item["type"] == "reasoning");
    items
        .filter_map(|item| {
            let token = item["encrypted_content"].as_str()?;
            let said: Vec<&str> = list(&item["summary"]).iter().map(|s| text(s, "text")).collect();
            Some((format!("{} {}", text(item, "id"), said.join("\n\n")), token.to_owned()))
        })
        .collect()
}

fn in_parts(parts: &Value) -> Vec<SignedPart> {
    let sealed = list(parts).iter().filter_map(|part| {
        let mut part = part.as_object()?.clone();
        let token = part.shift_remove("thoughtSignature")?.as_str()?.to_owned();
        for kind in ["functionCall", "executableCode"] {
            // Ids are the gateway's where a provider has none.
            if let Some(inner) = part.get_mut(kind).and_then(Value::as_object_mut) {
                inner.shift_remove("id");
            }
        }
        Some((Value::Object(part).to_string(), token))
    });
    sealed.collect()
}

/// Returns the same reply with new signatures.
fn with_new_signatures(
    format: WireFormat,
    answer: &Answer,
    nonce: &str,
) -> (Answer, Vec<SignedPart>) {
    let (mut whole, mut stream) = (
        String::from_utf8(answer.whole.clone()).unwrap(),
        String::from_utf8(answer.stream.clone()).unwrap(),
    );
    for (at, (_, token)) in signed_parts_of_reply(format, &answer.whole).into_iter().enumerate() {
        let fresh = STANDARD.encode(format!("{nonce}?>{at}~{}", answer.name));
        whole = whole.replace(&format!("\"{token}\""), &format!("\"{fresh}\""));
        stream = stream.replace(&format!("\"{token}\""), &format!("\"{fresh}\""));
    }
    let (whole, stream) = (whole.into_bytes(), stream.into_bytes());
    let sealed = signed_parts_of_reply(format, &whole);
    (Answer { name: answer.name.clone(), whole, stream }, sealed)
}

/// Returns the histories that the caller's clients build from the reply, whole and streamed, and
/// the losses.
fn histories(
    caller: &dyn Dialect,
    provider: &dyn Dialect,
    answer: &Answer,
    chat: &ChatRequest,
) -> Vec<(&'static str, Vec<Value>, Vec<String>)> {
    let me = caller.origin();
    let names = |losses: Vec<canon::Loss>| losses.into_iter().map(|l| l.path).collect::<Vec<_>>();
    let reply = provider.read_reply(&answer.whole).unwrap();
    let (whole, losses) = caller.write_reply(reply.clone(), chat, &stamp());
    let losses = names(losses);
    let mut all: Vec<_> = from_whole(me, &whole)
        .into_iter()
        .map(|history| ("whole", history, losses.clone()))
        .collect();
    let pieces: [(&str, Vec<Event>); 2] = [
        ("streamed", events(provider, &answer.stream, &answer.name)),
        ("streamed in large pieces", into_events(reply)),
    ];
    for (how, pieces) in pieces {
        let (out, losses) = stream(caller, chat, pieces);
        let losses = names(losses);
        for history in from_stream(me, &out) {
            all.push((how, history, losses.clone()));
        }
    }
    all
}

/// Reads the next request of a caller with that history.
fn read_next_request(caller: &dyn Dialect, history: &[Value], case: &str) -> ChatRequest {
    let body = next_request(caller.origin(), history);
    let shown = String::from_utf8_lossy(&body);
    if let Err(fault) = caller.read_facts(&target(), &body) {
        panic!("{case}: {fault}\n{shown}");
    }
    caller.read_request(&target(), &body).unwrap_or_else(|e| panic!("{case}: {e}\n{shown}"))
}

/// Returns the signatures that the gateway keeps of the reply, by key.
fn kept(
    caller: WireFormat,
    provider: &dyn Dialect,
    answer: &Answer,
) -> Vec<(String, CachedSignatures)> {
    let reply = provider.read_reply(&answer.whole).unwrap();
    let mut all = Vec::new();
    signature_cache::collect_signatures(&reply.candidates[0].parts, caller, |name, kept| {
        all.push((format!("{name:?}"), kept));
    });
    all
}

/// Restores kept signatures in the conversation.
fn restore(chat: &mut ChatRequest, provider: WireFormat, kept: &[(String, CachedSignatures)]) {
    for turn in chat.turns.iter_mut().filter(|turn| turn.role == Role::Assistant) {
        signature_cache::restore_signatures(&mut turn.parts, provider, |name| {
            let name = format!("{name:?}");
            kept.iter().find(|(other, _)| *other == name).map(|(_, kept)| kept.clone())
        });
    }
}

/// Returns every signed reply of the provider, with new signatures.
fn signed_replies(provider: &dyn Dialect) -> Vec<(Answer, Vec<SignedPart>)> {
    let nonce = format!("{:016x}", RandomState::new().hash_one(provider.origin().as_str()));
    let all = answers(provider);
    let all = all.iter().map(|answer| with_new_signatures(provider.origin(), answer, &nonce));
    let found: Vec<_> = all.filter(|(_, sealed)| !sealed.is_empty()).collect();
    let with_call = found.iter().any(|(answer, sealed)| {
        let reply = provider.read_reply(&answer.whole).unwrap();
        let parts = &reply.candidates[0].parts;
        let thinks = parts.iter().any(|part| matches!(part.kind, PartKind::Thought(_)));
        let calls = parts.iter().any(|part| matches!(part.kind, PartKind::ToolCall(_)));
        assert!(sealed.iter().all(|(_, token)| token.len() > 20), "{}", answer.name);
        thinks && calls
    });
    assert!(with_call, "{}: no signed reply with thinking and a tool call", provider.origin());
    found
}

#[test]
fn every_signature_returns_byte_for_byte_on_its_own_part() {
    let (mut wrong, mut missing) = (Vec::new(), Vec::new());
    for (caller, provider) in pairs() {
        for (answer, sealed) in signed_replies(provider) {
            for (how, history, lost) in histories(caller, provider, &answer, &full_request()) {
                let (from, to) = (caller.origin(), provider.origin());
                let case = format!("{from}-{to} {} {how}", answer.name);
                let mut chat = read_next_request(caller, &history, &case);
                restore(&mut chat, to, &kept(from, provider, &answer));
                let (out, losses) = provider.write_request(&chat, &LANE).unwrap();
                let body = out.body.to_vec();
                let shown = String::from_utf8_lossy(&body);
                if let Err(fault) = provider.read_facts(&target(), &body) {
                    wrong.push(format!("{case}: {fault}\n{shown}"));
                }
                let back = signed_parts_of_request(to, &body);
                if back == sealed {
                    continue;
                }
                let gone: Vec<&SignedPart> =
                    sealed.iter().filter(|one| !back.contains(one)).collect();
                let made_up: Vec<&SignedPart> =
                    back.iter().filter(|one| !sealed.contains(one)).collect();
                let known = lost.iter().chain(losses.iter().map(|loss| &loss.path));
                let named = known.clone().any(|what| {
                    what.contains("seal") || what.contains("part") || what.contains("media")
                });
                if gone.is_empty() || !made_up.is_empty() || !named {
                    let known: Vec<&String> = known.collect();
                    let history = Value::Array(history);
                    wrong.push(format!(
                        "{case}\nwas {sealed:?}\nis  {back:?}\nlost {known:?}\n{history}\n{shown}"
                    ));
                }
                for (part, _) in gone {
                    missing.push(format!("{case}: {}", part.chars().take(60).collect::<String>()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    missing.sort();
    missing.dedup();
    let missing: String = missing.iter().map(|line| format!("{line}\n")).collect();
    let path = here().join("golden/seals.txt");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &missing).unwrap();
    }
    assert_eq!(missing, std::fs::read_to_string(&path).unwrap_or_default());
}

#[test]
fn signatures_return_from_chat_clients_that_drop_unknown_fields() {
    let caller = dialects::get(WireFormat::Chat).unwrap();
    let mut seen = [0, 0];
    for (_, provider) in pairs().into_iter().filter(|(from, _)| from.origin() == WireFormat::Chat) {
        for (answer, sealed) in signed_replies(provider) {
            let reply = provider.read_reply(&answer.whole).unwrap();
            let parts = &reply.candidates[0].parts;
            let calls = parts.iter().any(|part| matches!(part.kind, PartKind::ToolCall(_)));
            let texts = parts.iter().any(|p| p.signature.is_some() && p.as_text().is_some());
            let all_kept = parts.iter().filter(|part| part.signature.is_some()).all(|part| {
                matches!(part.kind, PartKind::Text { .. })
                    || (calls && matches!(part.kind, PartKind::Thought(_) | PartKind::ToolCall(_)))
            });
            if !all_kept {
                continue;
            }
            seen[0] += usize::from(calls);
            seen[1] += usize::from(texts);
            for (how, mut history, _) in histories(caller, provider, &answer, &full_request()) {
                for message in &mut history {
                    let message = message.as_object_mut().unwrap();
                    message.retain(|name, _| {
                        matches!(name.as_str(), "role" | "content" | "tool_calls")
                    });
                    let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut);
                    for call in calls.into_iter().flatten() {
                        call.as_object_mut().unwrap().shift_remove("extra_content");
                    }
                }
                let to = provider.origin();
                let case = format!("{to} {} {how}", answer.name);
                let mut chat = read_next_request(caller, &history, &case);
                restore(&mut chat, to, &kept(WireFormat::Chat, provider, &answer));
                let (out, _) = provider.write_request(&chat, &LANE).unwrap();
                assert_eq!(signed_parts_of_request(to, &out.body.to_vec()), sealed, "{case}");
            }
        }
    }
    assert!(seen.iter().all(|count| *count > 2), "{seen:?}");
}

#[test]
fn signatures_return_when_thinking_is_hidden() {
    let mut wrong = Vec::new();
    let mut hidden = full_request();
    hidden.thinking.display = Some(canon::ThinkingDisplay::Hidden);
    for (caller, provider) in pairs() {
        for (answer, sealed) in signed_replies(provider) {
            for (how, history, lost) in histories(caller, provider, &answer, &hidden) {
                let case =
                    format!("{}-{} {} {how}", caller.origin(), provider.origin(), answer.name);
                let mut chat = read_next_request(caller, &history, &case);
                let (from, to) = (caller.origin(), provider.origin());
                restore(&mut chat, to, &kept(from, provider, &answer));
                let (out, losses) = provider.write_request(&chat, &LANE).unwrap();
                let back = signed_parts_of_request(provider.origin(), &out.body.to_vec());
                // Hidden thinking has no text, so only the signatures are compared.
                let count = |list: &[SignedPart]| -> BTreeMap<String, usize> {
                    list.iter().fold(BTreeMap::new(), |mut all, (_, token)| {
                        *all.entry(token.clone()).or_default() += 1;
                        all
                    })
                };
                let known = lost.iter().chain(losses.iter().map(|loss| &loss.path));
                let named = known.clone().any(|what| {
                    what.contains("seal") || what.contains("part") || what.contains("media")
                });
                if count(&back) != count(&sealed) && !named {
                    wrong.push(format!("{case}\nwas {sealed:?}\nis  {back:?}\n{history:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn signature_reaches_only_its_own_provider() {
    for (caller, provider) in pairs() {
        for (answer, sealed) in signed_replies(provider) {
            for (how, history, _) in histories(caller, provider, &answer, &full_request()) {
                let case = format!("{} {} {how}", caller.origin(), answer.name);
                let chat = read_next_request(caller, &history, &case);
                for other in dialects::all().filter(|d| d.origin() != provider.origin()) {
                    let (out, _) = other.write_request(&chat, &LANE).unwrap();
                    let body = String::from_utf8(out.body.to_vec()).unwrap();
                    for (part, token) in &sealed {
                        // Google's chat-compatible API has a field for native signatures on calls.
                        let google = [provider.origin(), other.origin()]
                            .iter()
                            .all(|origin| [WireFormat::Chat, WireFormat::Native].contains(origin));
                        let is_own_field = google
                            && ["thought_signature", "thoughtSignature"]
                                .iter()
                                .any(|name| body.contains(&format!("\"{name}\":\"{token}\"")));
                        assert!(
                            is_own_field || !body.contains(token),
                            "{case}: {} gets the signature of {part}\n{body}",
                            other.origin()
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn pass_through_reports_what_it_removes() {
    let mut reported = 0;
    for (caller, provider) in pairs() {
        for (answer, _) in signed_replies(provider) {
            for (how, history, _) in histories(caller, provider, &answer, &full_request()) {
                let case = format!("{}: {} {how}", caller.origin(), answer.name);
                let body = Bytes::from(next_request(caller.origin(), &history));
                let peek =
                    caller.read_facts(&target(), &body).unwrap_or_else(|e| panic!("{case}: {e}"));
                let lane = LaneSettings {
                    model: &peek.model,
                    max_payable_output: None,
                    model_max_output: None,
                    thinking_range: None,
                    cache_field: Some(canon::CacheField::PromptCacheBreakpoint),
                    client_tools: &[canon::ToolKind::Custom],
                };
                let sent = caller.patch(&body, &peek, &lane).body.to_vec();
                assert_eq!(sent != body, !peek.losses.is_empty(), "{case}: {:?}", peek.losses);
                // A translation into the same format drops the same content.
                let chat = caller.read_request(&target(), &body).unwrap();
                let (_, losses) = caller.write_request(&chat, &lane).unwrap();
                for loss in peek.losses.iter() {
                    reported += 1;
                    let same = losses.iter().any(|other| other.path.starts_with(&loss.path));
                    assert!(same || loss.path.starts_with("part"), "{case}: {loss}: {losses:?}");
                }
            }
        }
    }
    assert!(reported > 20, "{reported}");
}

/// Replaces every envelope in a history and returns their number.
fn change_envelopes(value: &mut Value, change: &dyn Fn(&str) -> String) -> usize {
    match value {
        Value::String(text) if text.starts_with("pttQVD") => {
            *text = change(text);
            1
        }
        Value::Array(list) => list.iter_mut().map(|item| change_envelopes(item, change)).sum(),
        Value::Object(map) => map.values_mut().map(|item| change_envelopes(item, change)).sum(),
        _ => 0,
    }
}

/// Changes the letter at that place to another one of the same alphabet.
fn change_letter(token: &str, place: usize) -> String {
    let other = if token.as_bytes().get(place) == Some(&b'A') { "B" } else { "A" };
    let mut token = token.to_owned();
    token.replace_range(place..=place, other);
    token
}

#[test]
fn no_provider_gets_the_signature_of_a_changed_envelope() {
    // The last envelope is one of the version before, which everybody could make.
    let changes: [&dyn Fn(&str) -> String; 5] = [
        &|token| change_letter(token, 7),
        &|token| change_letter(token, 14),
        &|token| change_letter(token, token.len() - 6),
        &|token| token.chars().take(token.len() / 8 * 4).collect(),
        &|_| "pttQVDFtUCrvrmFiY2RlZmdo".to_owned(),
    ];
    let mut seen = BTreeMap::new();
    for (caller, provider) in pairs() {
        for (answer, sealed) in signed_replies(provider) {
            for (how, history, _) in histories(caller, provider, &answer, &full_request()) {
                // Signatures of the caller's own format travel as they are, in either alphabet.
                let shown = Value::Array(history.clone()).to_string();
                let shown = shown.replace('-', "+").replace('_', "/");
                let wrapped = sealed.iter().filter(|(_, token)| !shown.contains(token));
                for (nth, change) in changes.iter().enumerate() {
                    let mut history = Value::Array(history.clone());
                    if change_envelopes(&mut history, change) == 0 {
                        continue;
                    }
                    *seen.entry(caller.origin().as_str()).or_insert(0) += 1;
                    let history = list(&history);
                    let case = format!(
                        "{}-{} {} {how}, change {nth}",
                        caller.origin(),
                        provider.origin(),
                        answer.name
                    );
                    let chat = read_next_request(caller, history, &case);
                    for lane in dialects::all() {
                        let (out, losses) = lane.write_request(&chat, &LANE).unwrap();
                        let body = String::from_utf8(out.body.to_vec()).unwrap();
                        let leaked = wrapped.clone().find(|(_, token)| body.contains(token));
                        assert_eq!(leaked, None, "{case} to {}: {body}", lane.origin());
                        assert!(!body.contains("pttQVD"), "{case} to {}: {body}", lane.origin());
                        assert!(!losses.is_empty(), "{case} to {}", lane.origin());
                    }
                    let body = Bytes::from(next_request(caller.origin(), history));
                    let facts = caller.read_facts(&target(), &body).unwrap();
                    let sent = caller.patch(&body, &facts, &LANE).body.to_vec();
                    let sent = String::from_utf8(sent).unwrap();
                    assert!(!sent.contains("pttQVD"), "{case} unchanged: {sent}");
                    assert!(!facts.losses.is_empty(), "{case} unchanged");
                }
            }
        }
    }
    assert!(seen.len() == 3 && seen.values().all(|count| *count > 20), "{seen:?}");
}

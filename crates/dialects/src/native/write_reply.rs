//! Writes a whole native reply.

use canon::{
    ChatReply, ExtraFields, Finish, FinishReason, Logprob, Losses, Lossy, Part, PartKind,
    ReplyCandidate, Signature, ThinkingDisplay, Thought, TokenLogprob, ToolCall, Usage,
};
use serde_json::Value;

use super::names::ORIGIN;
use super::own::{dotted_extras, enum_text, grounding, timestamp};
use super::{signatures, usage, write_part};
use crate::ReplyStamp;
use crate::endings;
use crate::fields::{ObjectWriter, note_search_fields, note_stop_text, number};
use crate::prompt_blocks;
use crate::service_tier;

/// Writes a reply to the caller of `chat`.
pub(super) fn write(
    reply: ChatReply,
    chat: &canon::ChatRequest,
    stamp: &ReplyStamp,
) -> Lossy<Vec<u8>> {
    let ChatReply { id: _, model, created, candidates, usage, extras } = reply;
    let mut losses = Losses::new();
    service_tier::note_reply_extras(&extras, ORIGIN, &mut losses);
    let mut feedback = extras.get(ORIGIN, "promptFeedback").cloned();
    let mut list: Vec<Value> = Vec::new();
    for candidate in candidates {
        match block_reason(&candidate) {
            Some(word) => {
                feedback.get_or_insert_with(|| ObjectWriter::new().set("blockReason", word).into());
            }
            None => list.push(write_candidate(candidate, chat, &mut losses)),
        }
    }
    complete_candidates(&mut list, usage.as_ref());
    let usage = usage.unwrap_or_default();
    note_uncounted_searches(&usage, &list, &mut losses);
    let body = ObjectWriter::new()
        .set("candidates", list)
        .set_some("promptFeedback", feedback)
        .set("usageMetadata", usage::write_usage(&usage, &extras, &mut losses))
        .set("modelVersion", model.as_deref().unwrap_or(&chat.model))
        .set("createTime", timestamp::write(created.unwrap_or(stamp.created)))
        .set("responseId", stamp.id.as_str());
    let body = dotted_extras::restore(body, &extras, "");
    (body.to_json(), losses.into_vec())
}

/// Adds the documented fields that no other format has: an empty list of ratings, and the tokens of
/// a candidate if it is the only one.
pub(super) fn complete_candidates(candidates: &mut [Value], usage: Option<&Usage>) {
    let tokens = usage.map(|usage| usage.output.saturating_sub(usage.thinking));
    let tokens = tokens.filter(|_| candidates.len() == 1);
    for fields in candidates.iter_mut().filter_map(Value::as_object_mut) {
        fields.entry("safetyRatings").or_insert_with(|| Value::Array(Vec::new()));
        if let Some(tokens) = tokens {
            fields.entry("tokenCount").or_insert_with(|| Value::from(tokens));
        }
    }
}

/// Notes searches whose queries no candidate shows.
pub(super) fn note_uncounted_searches(usage: &Usage, candidates: &[Value], losses: &mut Losses) {
    let grounded = candidates.iter().any(|one| one.get("groundingMetadata").is_some());
    losses.add_if(
        usage.searches > 0 && !grounded,
        "usage.searches",
        "the native format counts searches by their queries only",
    );
}

/// Returns true if the caller asked to see the thinking.
pub(super) fn shows_thinking(chat: &canon::ChatRequest) -> bool {
    matches!(
        chat.thinking.display,
        Some(ThinkingDisplay::Auto | ThinkingDisplay::Concise | ThinkingDisplay::Detailed)
    )
}

/// Returns the reason why the prompt was blocked; `None` if there is output.
fn block_reason(candidate: &ReplyCandidate) -> Option<String> {
    let finish = candidate.finish.as_ref()?;
    (finish.reason == FinishReason::PromptBlocked && candidate.parts.is_empty())
        .then(|| block_word(finish))
}

/// Returns the block reason to write.
pub(super) fn block_word(finish: &Finish) -> String {
    let Finish { raw, .. } = finish;
    let translated = || {
        let code = canon::WireFormat::ALL.iter().find_map(|format| raw.for_format(*format));
        code.and_then(prompt_blocks::block_reason).unwrap_or(prompt_blocks::OTHER_BLOCK)
    };
    raw.for_format(ORIGIN).unwrap_or_else(translated).to_owned()
}

fn write_candidate(
    candidate: ReplyCandidate,
    chat: &canon::ChatRequest,
    losses: &mut Losses,
) -> Value {
    let ReplyCandidate { index, parts, finish, logprobs, extras } = candidate;
    let mut pending = PendingSignatures::new(shows_thinking(chat));
    let mut written: Vec<Value> = Vec::new();
    let mut shown: Vec<Part> = Vec::new();
    let mut malformed = false;
    let bare = enum_text::is_requested(chat);
    for mut part in parts {
        if let PartKind::Text { text, .. } = &mut part.kind
            && bare
        {
            *text = enum_text::bare_value(text);
        }
        if let PartKind::ToolCall(call) = &part.kind
            && is_broken(call)
        {
            malformed = true;
            losses.add("tool_call.arguments", "the arguments are not a JSON object");
            continue;
        }
        let before = written.len();
        written.extend(pending.write(&part, losses).into_iter().map(Value::from));
        // Source positions count only the parts that were written.
        let silent = matches!(part.kind, PartKind::WebSearch(_));
        if written.len() > before || silent {
            shown.push(part);
        }
    }
    written.extend(pending.rest().into_iter().map(Value::from));
    let content = ObjectWriter::new().set("parts", written).set("role", "model");
    let object = ObjectWriter::new().set("content", content);
    let object = object.set_some("finishReason", finish_word(finish.as_ref(), malformed, losses));
    let object = object.set("index", index);
    finish_candidate(object, &shown, &logprobs, chat, &extras, losses)
}

/// Writes the fields beside the parts of a complete candidate.
pub(super) fn finish_candidate(
    object: ObjectWriter,
    parts: &[Part],
    logprobs: &[Logprob],
    chat: &canon::ChatRequest,
    extras: &ExtraFields,
    losses: &mut Losses,
) -> Value {
    service_tier::note_reply_extras(extras, ORIGIN, losses);
    let sources = match extras.get(ORIGIN, "groundingMetadata") {
        Some(own) => Some(own.clone()),
        // Citations of this format stand in `citationMetadata` unchanged.
        None if extras.get(ORIGIN, "citationMetadata").is_some() => None,
        None => grounding::write(parts, losses),
    };
    let object = object.set_some("groundingMetadata", sources);
    let asked = chat.sampling.logprobs.is_some() && !logprobs.is_empty();
    let object = if asked { write_logprobs(object, logprobs) } else { object };
    dotted_extras::restore(object, extras, "").into()
}

/// Returns the finish reason to write. A reason that came from this format stays unchanged.
pub(super) fn finish_word(
    finish: Option<&Finish>,
    malformed: bool,
    losses: &mut Losses,
) -> Option<String> {
    note_stop_text(finish, ORIGIN, losses);
    let Finish { reason: why, raw, stop_sequence: _ } = finish?;
    if malformed {
        return Some("MALFORMED_FUNCTION_CALL".to_owned());
    }
    match raw.for_format(ORIGIN) {
        Some(own) if *why != FinishReason::PromptBlocked => Some(own.to_owned()),
        _ => Some(endings::write_or_truncated(ORIGIN, *why, losses).to_owned()),
    }
}

/// Returns true if the arguments of a call are not a JSON object. The format cannot carry them.
pub(super) fn is_broken(call: &ToolCall) -> bool {
    let arguments = call.arguments.trim();
    !call.custom
        && !arguments.is_empty()
        && !matches!(serde_json::from_str(arguments), Ok(Value::Object(_)))
}

/// Signatures of thoughts that wait for a part to carry them.
pub(super) struct PendingSignatures {
    show: bool,
    pending: Vec<PendingSignature>,
}

struct PendingSignature {
    seal: Signature,
    redacted: bool,
    sent: bool,
}

impl PendingSignatures {
    pub(super) const fn new(show: bool) -> Self {
        Self { show, pending: Vec::new() }
    }

    /// Returns true if thoughts are shown to the caller.
    pub(super) const fn shows_thinking(&self) -> bool {
        self.show
    }

    /// Adds the signature of a thought. A signature of this format on a shown thought needs no
    /// other carrier.
    pub(super) fn add(&mut self, seal: &Signature, redacted: bool, shown: bool) {
        if shown && seal.origin() == ORIGIN {
            return;
        }
        self.pending.push(PendingSignature { seal: seal.clone(), redacted, sent: shown });
    }

    /// Returns the carriers before a text: all signatures but the last on empty texts, and the last
    /// one for the text itself.
    pub(super) fn for_text(&mut self) -> (Vec<ObjectWriter>, Option<String>) {
        let mut tokens: Vec<String> = Vec::new();
        for pending in self.pending.iter_mut().filter(|pending| !pending.sent) {
            pending.sent = true;
            tokens.push(signatures::write_hidden(&pending.seal, pending.redacted));
        }
        let last = tokens.pop();
        (tokens.iter().map(|token| carrier(token)).collect(), last)
    }

    /// Returns the carriers before a call. The call carries the last signature even if it was sent
    /// before, because some clients keep signatures only on calls.
    pub(super) fn for_call(&mut self) -> (Vec<ObjectWriter>, Option<String>) {
        let mut pending = std::mem::take(&mut self.pending);
        let last = pending.pop().map(|last| signatures::write_hidden(&last.seal, last.redacted));
        let carriers = pending
            .iter()
            .filter(|pending| !pending.sent)
            .map(|pending| carrier(&signatures::write_hidden(&pending.seal, pending.redacted)))
            .collect();
        (carriers, last)
    }

    /// Returns carriers for signatures that no part carried.
    pub(super) fn rest(&mut self) -> Vec<ObjectWriter> {
        let (mut carriers, last) = self.for_text();
        carriers.extend(last.map(|token| carrier(&token)));
        carriers
    }

    /// Writes a part as the caller sees it, preceded by the carriers it needs.
    pub(super) fn write(&mut self, part: &Part, losses: &mut Losses) -> Vec<ObjectWriter> {
        match &part.kind {
            PartKind::Thought(Thought { text, redacted }) => {
                let shown = self.show && !text.is_empty();
                if let Some(seal) = &part.signature {
                    self.add(seal, *redacted, shown);
                }
                if shown {
                    write_part::reply_part(part, losses).into_iter().collect()
                } else {
                    Vec::new()
                }
            }
            PartKind::Text { text, .. } if text.is_empty() && part.signature.is_none() => {
                Vec::new()
            }
            PartKind::Text { .. } | PartKind::ToolCall(_) => {
                let (mut objects, last) = match &part.kind {
                    PartKind::ToolCall(_) => self.for_call(),
                    _ => self.for_text(),
                };
                let token = match (last, &part.signature) {
                    (Some(token), Some(_)) => {
                        objects.push(carrier(&token));
                        None
                    }
                    (token, _) => token,
                };
                let object = write_part::reply_part(part, losses);
                objects.extend(object.map(|object| object.set_some("thoughtSignature", token)));
                objects
            }
            // Its sources stand beside the parts.
            PartKind::WebSearch(_) => {
                note_search_fields(&part.extras, ORIGIN, losses);
                Vec::new()
            }
            PartKind::Refusal(_)
            | PartKind::Media(_)
            | PartKind::ToolResult(_)
            | PartKind::CodeExecution(_)
            | PartKind::CodeResult(_)
            | PartKind::Foreign { .. } => {
                write_part::reply_part(part, losses).into_iter().collect()
            }
        }
    }
}

/// Returns an empty text that only carries a signature.
pub(super) fn carrier(token: &str) -> ObjectWriter {
    ObjectWriter::new().set("text", "").set("thoughtSignature", token)
}

/// Writes the log probabilities of the tokens and their mean.
fn write_logprobs(object: ObjectWriter, list: &[Logprob]) -> ObjectWriter {
    let chance = |chance: &TokenLogprob| -> Value {
        let TokenLogprob { token, id, logprob, bytes: _ } = chance;
        ObjectWriter::new()
            .set("token", token.as_str())
            .set_some("tokenId", *id)
            .set("logProbability", number(*logprob))
            .into()
    };
    let chosen: Vec<Value> = list.iter().map(|token| chance(&token.chosen)).collect();
    let top: Vec<Value> = list
        .iter()
        .map(|token| {
            let all: Vec<Value> = token.top.iter().map(chance).collect();
            ObjectWriter::new().set("candidates", all).into()
        })
        .collect();
    let sum: f64 = list.iter().map(|token| token.chosen.logprob).sum();
    #[expect(clippy::cast_precision_loss, reason = "no answer has 2^53 tokens")]
    let mean = sum / list.len() as f64;
    let result = ObjectWriter::new().set("chosenCandidates", chosen).set("topCandidates", top);
    object.set("avgLogprobs", number(mean)).set("logprobsResult", result)
}

//! Writes native replies. A whole reply and the last chunk of a stream have the same fields.

use canon::{
    ChatReply, ExtraFields, Finish, FinishReason, Logprob, Losses, Lossy, Part, PartKind,
    Signature, ThinkingDisplay, Thought, TokenLogprob, Usage,
};
use serde_json::Value;

use super::names::ORIGIN;
use super::own::{dotted_extras, enum_text, grounding, timestamp};
use super::{signatures, usage, write_content};
use crate::ReplyStamp;
use crate::endings;
use crate::fields::{ObjectWriter, note_search_fields, note_stop_text, number};
use crate::prompt_blocks;
use crate::service_tier;
use crate::write_json::{ObjectText, WriteJson};

/// Writes a reply to the caller of `chat`.
pub(super) fn write(
    reply: ChatReply,
    chat: &canon::ChatRequest,
    stamp: &ReplyStamp,
) -> Lossy<Vec<u8>> {
    let ChatReply { id: _, model, created, candidates, usage, extras } = reply;
    let mut losses = Losses::new();
    service_tier::note_reply_extras(&extras, ORIGIN, &mut losses);
    let mut body = NativeReplyFields { usage, extras, ..NativeReplyFields::new(chat, stamp) };
    body.start(model, created);
    let options = NativeReplyOptions::of(chat);
    let candidates = candidates.into_iter().map(|candidate| {
        let mut writer = NativeCandidateWriter::new(candidate.index, options);
        let parts = candidate.parts.into_iter();
        let mut parts: Vec<_> = parts.flat_map(|part| writer.write(part, &mut losses)).collect();
        parts.extend(writer.write_rest());
        service_tier::note_reply_extras(&candidate.extras, ORIGIN, &mut losses);
        writer.finish = candidate.finish;
        writer.logprobs = candidate.logprobs;
        writer.extras = candidate.extras;
        (writer, parts)
    });
    let candidates = candidates.collect();
    let body = body.write(candidates, &mut losses);
    (body.into_json(), losses.into_vec())
}

/// The parts of a request that affect its reply.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NativeReplyOptions {
    /// True if the caller asked to see the thinking.
    pub(super) shows_thinking: bool,
    /// True if the reply is one bare value of an enum.
    pub(super) is_bare: bool,
    wants_logprobs: bool,
}

impl NativeReplyOptions {
    pub(super) fn of(chat: &canon::ChatRequest) -> Self {
        let display = chat.thinking.display;
        Self {
            shows_thinking: display.is_some_and(|shown| shown != ThinkingDisplay::Hidden),
            is_bare: enum_text::is_requested(&chat.extras),
            wants_logprobs: chat.sampling.logprobs.is_some(),
        }
    }
}

/// Fields of a reply besides its candidates.
#[derive(Default)]
pub(super) struct NativeReplyFields {
    id: String,
    created: i64,
    model: String,
    pub(super) usage: Option<Usage>,
    pub(super) extras: ExtraFields,
}

impl NativeReplyFields {
    pub(super) fn new(chat: &canon::ChatRequest, stamp: &ReplyStamp) -> Self {
        Self {
            id: stamp.id.clone(),
            created: stamp.created,
            model: chat.model.clone(),
            ..Self::default()
        }
    }

    /// Takes the model and the time that the provider reports.
    pub(super) fn start(&mut self, model: Option<String>, created: Option<i64>) {
        self.model = model.unwrap_or_else(|| std::mem::take(&mut self.model));
        self.created = created.unwrap_or(self.created);
    }

    /// Adds the fields that every chunk has.
    pub(super) fn write_header(&self, object: ObjectWriter) -> ObjectWriter {
        object
            .set("modelVersion", self.model.as_str())
            .set("createTime", timestamp::write(self.created))
            .set("responseId", self.id.as_str())
    }

    /// Writes the whole object. A candidate without output whose prompt was blocked becomes the
    /// feedback.
    pub(super) fn write(
        &self,
        candidates: Vec<(NativeCandidateWriter, Vec<impl WriteJson>)>,
        losses: &mut Losses,
    ) -> ObjectWriter {
        let (blocked, candidates): (Vec<_>, Vec<_>) =
            candidates.into_iter().partition(|(own, parts)| own.is_blocked() && parts.is_empty());
        let finish = blocked.first().and_then(|(writer, _)| writer.finish.as_ref());
        let reason = |finish| ObjectWriter::new().set("blockReason", block_word(finish)).into();
        let feedback = self.extras.get(ORIGIN, "promptFeedback").cloned();
        let feedback = feedback.or_else(|| finish.map(reason));
        let usage = self.usage.unwrap_or_default();
        // The tokens of a candidate are known if it is the only one.
        let tokens = self.usage.map(|usage| usage.output.saturating_sub(usage.thinking));
        let tokens = tokens.filter(|_| candidates.len() == 1);
        let mut is_grounded = false;
        let mut list = Vec::with_capacity(candidates.len());
        for (writer, parts) in candidates {
            let sources = writer.write_sources(losses);
            is_grounded |= sources.is_some();
            list.push(writer.write_object(parts, sources, tokens, losses));
        }
        let why = "the native format counts searches by their queries only";
        losses.add_if(usage.searches > 0 && !is_grounded, "usage.searches", why);
        let body = ObjectWriter::new()
            .set("candidates", list)
            .set_some("promptFeedback", feedback)
            .set("usageMetadata", usage::write_usage(&usage, &self.extras, losses));
        dotted_extras::restore(self.write_header(body), &self.extras, "")
    }
}

/// Returns the block reason to write.
fn block_word(finish: &Finish) -> String {
    let Finish { raw, .. } = finish;
    let translated = || {
        let code = canon::WireFormat::ALL.iter().find_map(|format| raw.for_format(*format));
        code.and_then(prompt_blocks::block_reason).unwrap_or(prompt_blocks::OTHER_BLOCK)
    };
    raw.for_format(ORIGIN).unwrap_or_else(translated).to_owned()
}

/// Writes one candidate.
#[derive(Default)]
pub(super) struct NativeCandidateWriter {
    index: u32,
    pub(super) options: NativeReplyOptions,
    /// Signatures of thoughts that wait for a part to carry them.
    pending: Vec<PendingSignature>,
    /// The parts the caller saw, to write the sources at the end.
    pub(super) shown: Vec<Part>,
    is_malformed: bool,
    pub(super) finish: Option<Finish>,
    pub(super) logprobs: Vec<Logprob>,
    pub(super) extras: ExtraFields,
}

struct PendingSignature {
    seal: Signature,
    redacted: bool,
    sent: bool,
}

impl NativeCandidateWriter {
    pub(super) fn new(index: u32, options: NativeReplyOptions) -> Self {
        Self { index, options, ..Self::default() }
    }

    fn is_blocked(&self) -> bool {
        let reason = self.finish.as_ref().map(|finish| finish.reason);
        reason == Some(FinishReason::PromptBlocked) && self.shown.is_empty()
    }

    /// Adds the signature of a thought. A signature of this format on a shown thought needs no
    /// other carrier.
    pub(super) fn add_signature(&mut self, seal: &Signature, redacted: bool, shown: bool) {
        if !shown || seal.origin() != ORIGIN {
            self.pending.push(PendingSignature { seal: seal.clone(), redacted, sent: shown });
        }
    }

    /// Returns the carriers before a text or a call: all signatures but the last on empty texts,
    /// and the last one for the part itself. A call carries the last signature even if it was sent
    /// before, because some clients keep signatures only on calls.
    pub(super) fn write_before(&mut self, is_call: bool) -> (Vec<ObjectWriter>, Option<String>) {
        let count = self.pending.len();
        let mut tokens = Vec::new();
        for (at, pending) in self.pending.iter_mut().enumerate() {
            if !pending.sent || (is_call && at + 1 == count) {
                tokens.push(signatures::write_hidden(&pending.seal, pending.redacted));
            }
            pending.sent = true;
        }
        if is_call {
            self.pending.clear();
        }
        let last = tokens.pop();
        (tokens.iter().map(|token| carrier(token)).collect(), last)
    }

    /// Returns carriers for signatures that no part carried.
    pub(super) fn write_rest(&mut self) -> Vec<ObjectWriter> {
        let (mut carriers, last) = self.write_before(false);
        carriers.extend(last.map(|token| carrier(&token)));
        carriers
    }

    /// Writes a part as the caller sees it, preceded by the carriers it needs.
    pub(super) fn write(&mut self, mut part: Part, losses: &mut Losses) -> Vec<ObjectWriter> {
        let (mut objects, token) = match &mut part.kind {
            PartKind::Thought(Thought { text, redacted }) => {
                let is_shown = self.options.shows_thinking && !text.is_empty();
                if let Some(seal) = &part.signature {
                    self.add_signature(seal, *redacted, is_shown);
                }
                if !is_shown {
                    return Vec::new();
                }
                (Vec::new(), None)
            }
            PartKind::Text { text, .. } => {
                if self.options.is_bare {
                    *text = enum_text::bare_value(text);
                }
                if text.is_empty() && part.signature.is_none() {
                    return Vec::new();
                }
                self.write_before(false)
            }
            // The format cannot carry them.
            PartKind::ToolCall(call) if !call.custom && !ObjectText::of_call(call).is_object => {
                self.is_malformed = true;
                losses.add("tool_call.arguments", "the arguments are not a JSON object");
                return Vec::new();
            }
            PartKind::ToolCall(_) => self.write_before(true),
            // Its sources stand beside the parts.
            PartKind::WebSearch(_) => {
                note_search_fields(&part.extras, ORIGIN, losses);
                self.shown.push(part);
                return Vec::new();
            }
            PartKind::Refusal(_)
            | PartKind::Media(_)
            | PartKind::ToolResult(_)
            | PartKind::CodeExecution(_)
            | PartKind::CodeResult(_)
            | PartKind::Foreign { .. } => (Vec::new(), None),
        };
        let token = match (token, &part.signature) {
            (Some(token), Some(_)) => {
                objects.push(carrier(&token));
                None
            }
            (token, _) => token,
        };
        // Source positions count only the parts that were written.
        if let Some(object) = write_content::reply_part(&part, losses) {
            objects.push(object.set_some("thoughtSignature", token));
            self.shown.push(part);
        }
        objects
    }

    fn write_sources(&self, losses: &mut Losses) -> Option<Value> {
        match self.extras.get(ORIGIN, "groundingMetadata") {
            Some(own) => Some(own.clone()),
            // Citations of this format stand in `citationMetadata` unchanged.
            None if self.extras.get(ORIGIN, "citationMetadata").is_some() => None,
            None => grounding::write(&self.shown, losses),
        }
    }

    fn write_object(
        self,
        parts: Vec<impl WriteJson>,
        sources: Option<Value>,
        tokens: Option<u64>,
        losses: &mut Losses,
    ) -> ObjectWriter {
        let content = ObjectWriter::new().set("parts", parts).set("role", "model");
        let mut object = ObjectWriter::new()
            .set("content", content)
            .set_some("finishReason", self.finish_word(losses))
            .set("index", self.index)
            .set_some("groundingMetadata", sources);
        if self.options.wants_logprobs && !self.logprobs.is_empty() {
            object = write_logprobs(object, &self.logprobs);
        }
        // Documented fields that no other format has.
        let object = dotted_extras::restore(object, &self.extras, "")
            .with_default("safetyRatings", Value::Array(Vec::new()));
        match tokens {
            Some(tokens) => object.with_default("tokenCount", tokens),
            None => object,
        }
    }

    /// Returns the finish reason to write. A reason that came from this format stays unchanged.
    fn finish_word(&self, losses: &mut Losses) -> Option<String> {
        note_stop_text(self.finish.as_ref(), ORIGIN, losses);
        let Finish { reason: why, raw, stop_sequence: _ } = self.finish.as_ref()?;
        if self.is_malformed {
            return Some("MALFORMED_FUNCTION_CALL".to_owned());
        }
        match raw.for_format(ORIGIN) {
            Some(own) if *why != FinishReason::PromptBlocked => Some(own.to_owned()),
            _ => Some(endings::write_or_truncated(ORIGIN, *why, losses).to_owned()),
        }
    }
}

/// Returns an empty text that only carries a signature.
pub(super) fn carrier(token: &str) -> ObjectWriter {
    ObjectWriter::new().set("text", "").set("thoughtSignature", token)
}

/// Writes the log probabilities of the tokens and their mean.
fn write_logprobs(object: ObjectWriter, list: &[Logprob]) -> ObjectWriter {
    let chance = |chance: &TokenLogprob| {
        let TokenLogprob { token, id, logprob, bytes: _ } = chance;
        ObjectWriter::new()
            .set("token", token.as_str())
            .set_some("tokenId", *id)
            .set("logProbability", number(*logprob))
    };
    let chosen: Vec<_> = list.iter().map(|token| chance(&token.chosen)).collect();
    let top = |token: &Logprob| token.top.iter().map(chance).collect::<Vec<_>>();
    let top: Vec<_> =
        list.iter().map(|token| ObjectWriter::new().set("candidates", top(token))).collect();
    let sum: f64 = list.iter().map(|token| token.chosen.logprob).sum();
    #[expect(clippy::cast_precision_loss, reason = "no answer has 2^53 tokens")]
    let mean = sum / list.len() as f64;
    let result = ObjectWriter::new().set("chosenCandidates", chosen).set("topCandidates", top);
    object.set("avgLogprobs", number(mean)).set("logprobsResult", result)
}

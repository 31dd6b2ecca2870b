//! Writes a whole chat completion from canon.

use canon::{
    ChatReply, Citation, Finish, FinishReason, Logprob, Losses, Lossy, Media, MediaKind, Part,
    PartKind, ReplyCandidate, Usage,
};
use serde_json::Value;

use super::names::{
    IMAGES_FIELD, MESSAGE_EXTRA, NO_MEDIA_FIELD, NO_SEARCH_FIELD, NO_SIGNATURE_FIELD, ORIGIN,
    REASONING_DETAILS,
};
use super::own::audio;
use super::{signatures, usage, write_content};
use crate::endings;
use crate::fields::{ObjectWriter, note_citation, note_foreign_fields, note_stop_text};
use crate::openai_values::{self, write_url};
use crate::service_tier::{self, TIER_FIELD};
use crate::{ReplyStamp, signed_span};

/// Writes a reply to the given request.
pub(super) fn write(
    reply: ChatReply,
    chat: &canon::ChatRequest,
    stamp: &ReplyStamp,
) -> Lossy<Vec<u8>> {
    let ChatReply { id: _, model: _, created, candidates, usage, extras } = reply;
    let mut losses = Losses::new();
    let tier = service_tier::note_reply_extras(&extras, ORIGIN, &mut losses);
    let usage = usage.unwrap_or_default();
    let parts = candidates.iter().flat_map(|candidate| &candidate.parts);
    let text_bytes: usize = parts.filter_map(Part::as_text).map(str::len).sum();
    // Most replies without their text are shorter.
    let body = ObjectWriter::with_room(text_bytes + 768)
        .set("id", ["chatcmpl-", &stamp.id].concat())
        .set("object", "chat.completion")
        .set("created", created.unwrap_or(stamp.created))
        .set("model", chat.model.as_str())
        .nest_each("choices", candidates, |object, candidate| {
            choice(object, candidate, chat, &mut losses)
        })
        .nest("usage", |object| usage::write_usage(object, &usage))
        .set_some(TIER_FIELD, tier)
        .with_extras(&extras, ORIGIN);
    note_searches(&usage, &mut losses);
    (body.into_json(), losses.into_vec())
}

/// Notes searches, which the usage of this format does not count.
pub(super) fn note_searches(usage: &Usage, losses: &mut Losses) {
    losses.add_if(usage.searches > 0, "usage.searches", "the chat format counts no searches");
}

fn choice(
    object: ObjectWriter,
    candidate: ReplyCandidate,
    chat: &canon::ChatRequest,
    losses: &mut Losses,
) -> ObjectWriter {
    let ReplyCandidate { index, mut parts, finish, logprobs, extras } = candidate;
    service_tier::note_reply_extras(&extras, ORIGIN, losses);
    note_stop_text(finish.as_ref(), ORIGIN, losses);
    let mut message = ChatMessageBuilder::default();
    for part in &mut parts {
        message.add(part, losses);
    }
    let refused = message.text.is_none() && message.refusal.is_some();
    let logprobs = chat.sampling.logprobs.map(|_| write_logprobs(&logprobs, refused));
    object
        .set("index", index)
        .nest("message", |object| {
            message.write(object).with_object(extras.get(ORIGIN, MESSAGE_EXTRA))
        })
        .set("logprobs", logprobs)
        .set("finish_reason", finish_reason(finish.as_ref(), losses))
        .with_extras(&extras, ORIGIN)
}

/// Returns the `finish_reason`. A reason that this format cannot express keeps the provider's word
/// if the provider speaks chat.
pub(super) fn finish_reason<'f>(
    finish: Option<&'f Finish>,
    losses: &mut Losses,
) -> Option<&'f str> {
    let Finish { reason, raw, stop_sequence: _ } = finish?;
    let is_unknown = matches!(reason, FinishReason::Other | FinishReason::Malformed);
    let own = raw.for_format(ORIGIN).filter(|_| is_unknown);
    own.or_else(|| Some(endings::write_or_truncated(ORIGIN, *reason, losses)))
}

/// Collects the parts of a message. This format has one text per message, not a list.
#[derive(Default)]
struct ChatMessageBuilder {
    text: Option<String>,
    refusal: Option<String>,
    thoughts: String,
    details: Vec<ObjectWriter>,
    calls: Vec<ObjectWriter>,
    annotations: Vec<ObjectWriter>,
    images: Vec<ObjectWriter>,
    audio: Option<ObjectWriter>,
}

impl ChatMessageBuilder {
    /// Adds a part. The text of the first one is moved.
    fn add(&mut self, part: &mut Part, losses: &mut Losses) {
        note_foreign_fields(&part.extras, ORIGIN, "part", losses);
        let signature = part.signature.as_ref();
        let returned = matches!(
            part.kind,
            PartKind::Text { .. } | PartKind::Thought(_) | PartKind::ToolCall(_)
        );
        losses.add_if(signature.is_some() && !returned, "reply.seal", NO_SIGNATURE_FIELD);
        if let PartKind::Text { text, citations } = &mut part.kind
            && citations.is_empty()
            && signature.is_none()
            && self.text.is_none()
        {
            self.text = Some(std::mem::take(text));
            return;
        }
        match &part.kind {
            PartKind::Text { text, citations } => {
                if !citations.is_empty() || signature.is_some() {
                    let offset = self.text.as_deref().unwrap_or_default().chars().count();
                    self.annotations
                        .extend(citations.iter().filter_map(|c| write_citation(c, offset, losses)));
                    let span = signed_span::span_name(offset, text.chars().count());
                    self.add_signature(signature, &span);
                }
                self.text.get_or_insert_default().push_str(text);
            }
            PartKind::Refusal(text) => self.refusal.get_or_insert_default().push_str(text),
            PartKind::Thought(thought) => {
                self.thoughts.push_str(&thought.text);
                if !thought.text.is_empty() || signature.is_some() {
                    self.details.push(signatures::write_detail(part, thought, self.details.len()));
                }
            }
            PartKind::ToolCall(call) => {
                self.calls.push(write_content::write_call(call, part));
                let separate = signature
                    .filter(|signature| signatures::write_call_signature(signature).is_none());
                self.add_signature(separate, &call.id);
            }
            PartKind::Media(media) => match (write_image(media), audio::write(media)) {
                (Some(image), _) => self.images.push(image),
                (None, Some(audio)) if self.audio.is_none() => self.audio = Some(audio),
                (None, _) => losses.add("reply.media", NO_MEDIA_FIELD),
            },
            PartKind::CodeExecution(_) | PartKind::CodeResult(_) => {
                self.add_block(&openai_values::code_block(&part.kind));
            }
            PartKind::WebSearch(_) => losses.add("reply.search", NO_SEARCH_FIELD),
            PartKind::ToolResult(_) | PartKind::Foreign { .. } => {
                losses.add("reply.part", "a part only the provider's format has");
            }
        }
    }

    fn add_signature(&mut self, signature: Option<&canon::Signature>, id: &str) {
        if let Some(signature) = signature {
            self.details.push(signatures::write_part_signature(signature, id, self.details.len()));
        }
    }

    fn add_block(&mut self, text: &str) {
        let all = self.text.get_or_insert_default();
        if !all.is_empty() && !all.ends_with('\n') {
            all.push('\n');
        }
        all.push_str(text);
        all.push('\n');
    }

    fn write(self, object: ObjectWriter) -> ObjectWriter {
        let Self { text, refusal, thoughts, details, calls, annotations, images, audio } = self;
        object
            .set("role", "assistant")
            .set("content", text)
            .set("refusal", refusal)
            .set_some("reasoning_content", (!thoughts.is_empty()).then_some(thoughts))
            .set_some(REASONING_DETAILS, (!details.is_empty()).then_some(details))
            .set("annotations", annotations)
            .set_some(IMAGES_FIELD, (!images.is_empty()).then_some(images))
            .set_some("audio", audio)
            .set_some("tool_calls", (!calls.is_empty()).then_some(calls))
    }
}

/// Writes a citation. `offset` is the first character of its text in the message.
pub(super) fn write_citation(
    citation: &Citation,
    offset: usize,
    losses: &mut Losses,
) -> Option<ObjectWriter> {
    let Citation { url, title, quote, span, extras } = citation;
    if extras.get(ORIGIN, "type").is_some() {
        return Some(ObjectWriter::new().with_extras(extras, ORIGIN));
    }
    if note_citation(citation, ORIGIN, losses) {
        return None;
    }
    let (start, end) = span.unwrap_or((0, 0));
    let inner = ObjectWriter::new()
        .set("url", url.as_deref().unwrap_or_default())
        .set("title", title.as_deref().unwrap_or_default())
        .set("start_index", start + offset)
        .set("end_index", end + offset)
        .set_some("content", quote.as_deref());
    Some(ObjectWriter::typed("url_citation").set("url_citation", inner))
}

/// Writes a generated image. `None` for other media.
pub(super) fn write_image(media: &Media) -> Option<ObjectWriter> {
    let url = write_url(&media.source).filter(|_| media.kind == MediaKind::Image)?;
    let inner = ObjectWriter::new().set("url", url);
    Some(ObjectWriter::typed("image_url").set("image_url", inner))
}

/// Returns the field of a text or of a refusal, in a message and in the log probabilities.
pub(super) const fn text_field(refused: bool) -> &'static str {
    if refused { "refusal" } else { "content" }
}

/// Log probabilities of the tokens of a text or of a refusal.
pub(super) fn write_logprobs(list: &[Logprob], refused: bool) -> ObjectWriter {
    let list = openai_values::write_logprobs(list, true);
    ObjectWriter::new().set(text_field(refused), list).set(text_field(!refused), Value::Null)
}

//! Writes a whole chat completion from canon.

use canon::{
    ChatReply, Citation, ExtraFields, Finish, FinishReason, Logprob, Losses, Lossy, Media,
    MediaSource, Part, PartKind, ReplyCandidate, Thought, Usage,
};
use serde_json::Value;

use super::names::{MESSAGE_EXTRA, NO_MEDIA_FIELD, NO_SIGNATURE_FIELD, ORIGIN};
use super::own::audio;
use super::{signatures, usage, write_content};
use crate::endings;
use crate::fields::{ObjectWriter, note_citation, note_foreign_fields, note_stop_text};
use crate::openai_values;
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
    let choices: Vec<ObjectWriter> =
        candidates.into_iter().map(|candidate| choice(candidate, chat, &mut losses)).collect();
    let usage = usage.unwrap_or_default();
    note_searches(&usage, &mut losses);
    let body = ObjectWriter::new()
        .set("id", ["chatcmpl-", &stamp.id].concat())
        .set("object", "chat.completion")
        .set("created", created.unwrap_or(stamp.created))
        .set("model", chat.model.as_str())
        .set("choices", choices)
        .set("usage", usage::write_usage(&usage))
        .set_some(TIER_FIELD, tier)
        .with_extras(&extras, ORIGIN);
    (body.to_json(), losses.into_vec())
}

/// Notes searches, which the usage of this format does not count.
pub(super) fn note_searches(usage: &Usage, losses: &mut Losses) {
    losses.add_if(usage.searches > 0, "usage.searches", "the chat format counts no searches");
}

fn choice(
    candidate: ReplyCandidate,
    chat: &canon::ChatRequest,
    losses: &mut Losses,
) -> ObjectWriter {
    let ReplyCandidate { index, parts, finish, logprobs, extras } = candidate;
    service_tier::note_reply_extras(&extras, ORIGIN, losses);
    note_stop_text(finish.as_ref(), ORIGIN, losses);
    let mut message = ChatMessageBuilder::default();
    for part in &parts {
        message.add(part, losses);
    }
    let rest = extras.get(ORIGIN, MESSAGE_EXTRA).and_then(Value::as_object).cloned();
    let rest = ExtraFields::from_fields(ORIGIN, rest.unwrap_or_default());
    let requested = chat.sampling.logprobs.is_some();
    let refused = message.text.is_none() && message.refusal.is_some();
    let logprobs = if requested { write_logprobs(&logprobs, refused) } else { Value::Null };
    ObjectWriter::new()
        .set("index", index)
        .set("message", message.into_message().with_extras(&rest, ORIGIN))
        .set("logprobs", logprobs)
        .set("finish_reason", finish_reason(finish.as_ref(), losses))
        .with_extras(&extras, ORIGIN)
}

/// Returns the `finish_reason`. A reason that this format cannot express keeps the provider's word
/// if the provider speaks chat.
pub(super) fn finish_reason(finish: Option<&Finish>, losses: &mut Losses) -> Value {
    let Some(Finish { reason, raw, stop_sequence: _ }) = finish else { return Value::Null };
    let own = matches!(reason, FinishReason::Other | FinishReason::Malformed)
        .then(|| raw.for_format(ORIGIN))
        .flatten();
    Value::from(own.unwrap_or_else(|| endings::write_or_truncated(ORIGIN, *reason, losses)))
}

/// Collects the parts of a message. This format has one text per message, not a list.
#[derive(Default)]
struct ChatMessageBuilder {
    text: Option<String>,
    refusal: Option<String>,
    thoughts: String,
    details: Vec<Value>,
    calls: Vec<ObjectWriter>,
    annotations: Vec<Value>,
    images: Vec<Value>,
    audio: Option<Value>,
}

impl ChatMessageBuilder {
    fn add(&mut self, part: &Part, losses: &mut Losses) {
        note_foreign_fields(&part.extras, ORIGIN, "part", losses);
        let signature = part.signature.as_ref();
        let returned = matches!(
            part.kind,
            PartKind::Text { .. } | PartKind::Thought(_) | PartKind::ToolCall(_)
        );
        losses.add_if(signature.is_some() && !returned, "reply.seal", NO_SIGNATURE_FIELD);
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
                let Thought { text, redacted: _ } = thought;
                self.thoughts.push_str(text);
                if text.is_empty() && signature.is_none() {
                    return;
                }
                self.details.push(signatures::write_detail(part, thought, self.details.len()));
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
            PartKind::CodeExecution(code) => {
                self.add_block(&openai_values::code_block(&code.language, &code.code))
            }
            PartKind::CodeResult(outcome) => {
                self.add_block(&openai_values::code_block("", &outcome.output))
            }
            PartKind::WebSearch(_) => {
                losses.add("reply.search", "the chat format shows citations but no search queries");
            }
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

    fn into_message(self) -> ObjectWriter {
        let Self { text, refusal, thoughts, details, calls, annotations, images, audio } = self;
        let mentioned = (!thoughts.is_empty()).then_some(thoughts);
        ObjectWriter::new()
            .set("role", "assistant")
            .set("content", text)
            .set("refusal", refusal)
            .set_some("reasoning_content", mentioned)
            .set_some("reasoning_details", (!details.is_empty()).then_some(details))
            .set("annotations", annotations)
            .set_some("images", (!images.is_empty()).then_some(images))
            .set_some("audio", audio)
            .set_some("tool_calls", (!calls.is_empty()).then_some(calls))
    }
}

/// Writes a citation. `offset` is the first character of its text in the message.
pub(super) fn write_citation(
    citation: &Citation,
    offset: usize,
    losses: &mut Losses,
) -> Option<Value> {
    let Citation { url, title, quote, span, extras } = citation;
    if extras.get(ORIGIN, "type").is_some() {
        return Some(ObjectWriter::new().with_extras(extras, ORIGIN).into());
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
    Some(ObjectWriter::new().set("type", "url_citation").set("url_citation", inner).into())
}

/// Writes a generated image. `None` for other media.
pub(super) fn write_image(media: &Media) -> Option<Value> {
    let url = match (&media.kind, &media.source) {
        (canon::MediaKind::Image, MediaSource::Inline { mime, data }) => {
            format!("data:{mime};base64,{data}")
        }
        (canon::MediaKind::Image, MediaSource::Url { url, .. }) => url.clone(),
        _ => return None,
    };
    let inner = ObjectWriter::new().set("url", url);
    Some(ObjectWriter::new().set("type", "image_url").set("image_url", inner).into())
}

/// Log probabilities of the tokens of a text or of a refusal.
pub(super) fn write_logprobs(list: &[Logprob], refused: bool) -> Value {
    let list = openai_values::write_logprobs(list, true);
    let (own, other) = if refused { ("refusal", "content") } else { ("content", "refusal") };
    ObjectWriter::new().set(own, list).set(other, Value::Null).into()
}

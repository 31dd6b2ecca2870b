//! Writes chat chunks from events.

use canon::{Event, Loss, Losses, Part, PartDelta, PartIndex, PartKind, PartStart, Thought, Usage};
use serde_json::Value;
use std::collections::BTreeMap;

use super::names::{MESSAGE_EXTRA, NO_MEDIA_FIELD, NO_SIGNATURE_FIELD, ORIGIN};
use super::own::audio;
use super::{fault, signatures, usage, write_reply};
use crate::fields::{ObjectWriter, note_foreign_field, note_foreign_fields, note_stop_text};
use crate::openai_values;
use crate::service_tier;
use crate::{ReplyStamp, StreamWriter, json, signed_span};

/// Stream writer. Order: the role, the content, the finish reason, the usage if requested,
/// `[DONE]`.
pub(super) struct ChatStreamWriter {
    id: String,
    /// Model name as JSON.
    model: String,
    /// Beginning of a chunk up to `choices`. It stays the same for the whole stream.
    chunk_prefix: String,
    /// Bytes around a text of the candidate that was written last.
    text_frame: Option<TextFrame>,
    wants_usage: bool,
    wants_logprobs: bool,
    usage: Option<Usage>,
    /// Service tier, once known.
    tier: Option<&'static str>,
    parts: BTreeMap<PartIndex, ChatPartState>,
    candidates: BTreeMap<u32, ChatCandidateOutput>,
    failed: bool,
    losses: Losses,
}

/// A chunk with a text: the bytes before and after it.
struct TextFrame {
    candidate: u32,
    before: Vec<u8>,
    after: Vec<u8>,
}

/// State of the part in a slot.
enum ChatPartState {
    Text { offset: usize, signature: Option<canon::Signature> },
    Refusal,
    Thought { index: usize, signed: bool },
    Call { index: usize, id: String, custom: bool },
    Whole { thought: Option<Box<(Part, usize)>> },
}

/// Output of one candidate so far.
#[derive(Default)]
struct ChatCandidateOutput {
    started: bool,
    chars: usize,
    /// True if the text so far does not end with a newline.
    midline: bool,
    calls: usize,
    details: usize,
    /// SDKs identify entries of a streamed list by `index`.
    annotations: usize,
    images: usize,
    /// True if audio was written. A message holds only one clip.
    has_audio: bool,
    /// Signatures of text spans. They are written before the next call or at the end, so that they
    /// do not split the text.
    text_signatures: Vec<(String, canon::Signature)>,
}

/// Returns the entry with the next `index` of its list.
fn with_index(mut entry: Value, count: &mut usize) -> Value {
    if let Value::Object(fields) = &mut entry {
        fields.insert("index".to_owned(), Value::from(*count));
    }
    *count += 1;
    entry
}

fn chunk_prefix(id: &str, created: i64, model: &str) -> String {
    format!(
        "data: {{\"id\":\"chatcmpl-{id}\",\"object\":\"chat.completion.chunk\",\
         \"created\":{created},\"model\":{model}"
    )
}

impl ChatStreamWriter {
    pub(super) fn new(chat: &canon::ChatRequest, stamp: &ReplyStamp) -> Self {
        let options = chat.extras.get(ORIGIN, "stream_options");
        let wants_usage = options
            .and_then(|options| options.get("include_usage"))
            .and_then(Value::as_bool)
            .unwrap_or(false);
        let model = Value::from(chat.model.as_str()).to_string();
        Self {
            id: stamp.id.clone(),
            chunk_prefix: chunk_prefix(&stamp.id, stamp.created, &model),
            model,
            text_frame: None,
            wants_usage,
            wants_logprobs: chat.sampling.logprobs.is_some(),
            usage: None,
            tier: None,
            parts: BTreeMap::new(),
            candidates: BTreeMap::new(),
            failed: false,
            losses: Losses::new(),
        }
    }

    /// Writes the beginning of a chunk up to `choices`.
    fn open_chunk(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.chunk_prefix.as_bytes());
        if let Some(tier) = self.tier {
            out.extend_from_slice(format!(",\"service_tier\":\"{tier}\"").as_bytes());
        }
        out.extend_from_slice(b",\"choices\":[");
    }

    fn close_chunk(&self, usage: Option<&Usage>, out: &mut Vec<u8>) {
        out.push(b']');
        match usage {
            _ if !self.wants_usage => {}
            None => out.extend_from_slice(b",\"usage\":null"),
            Some(usage) => {
                out.extend_from_slice(b",\"usage\":");
                out.extend_from_slice(&usage::write_usage(usage).to_json());
            }
        }
        out.extend_from_slice(b"}\n\n");
    }

    fn delta(&mut self, candidate: u32, delta: &str, logprobs: Option<&Value>, out: &mut Vec<u8>) {
        self.begin(candidate, out);
        self.raw_delta(candidate, delta, logprobs, "null", out);
    }

    fn raw_delta(
        &self,
        candidate: u32,
        delta: &str,
        logprobs: Option<&Value>,
        finish: &str,
        out: &mut Vec<u8>,
    ) {
        self.open_choice(candidate, out);
        out.extend_from_slice(delta.as_bytes());
        self.close_choice(logprobs, finish, out);
    }

    /// Writes the beginning of a chunk up to `delta` of its only choice.
    fn open_choice(&self, candidate: u32, out: &mut Vec<u8>) {
        self.open_chunk(out);
        out.extend_from_slice(b"{\"index\":");
        json::write_value(&candidate, out);
        out.extend_from_slice(b",\"delta\":");
    }

    fn close_choice(&self, logprobs: Option<&Value>, finish: &str, out: &mut Vec<u8>) {
        out.extend_from_slice(b",\"logprobs\":");
        match logprobs {
            None => out.extend_from_slice(b"null"),
            Some(list) => json::write_value(list, out),
        }
        out.extend_from_slice(b",\"finish_reason\":");
        out.extend_from_slice(finish.as_bytes());
        out.push(b'}');
        self.close_chunk(None, out);
    }

    /// Writes the first chunk of a candidate. SDKs need it before any other.
    fn begin(&mut self, candidate: u32, out: &mut Vec<u8>) {
        let state = self.candidates.entry(candidate).or_default();
        if !state.started {
            state.started = true;
            let delta = "{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null}";
            self.raw_delta(candidate, delta, None, "null", out);
        }
    }

    fn open(&mut self, place: PartIndex, opening: PartStart, out: &mut Vec<u8>) {
        self.begin(place.candidate, out);
        if matches!(opening, PartStart::ToolCall { .. }) {
            self.write_text_signatures(place.candidate, out);
        }
        let state = self.candidates.entry(place.candidate).or_default();
        let slot = match opening {
            PartStart::Text => ChatPartState::Text { offset: state.chars, signature: None },
            PartStart::Refusal => ChatPartState::Refusal,
            PartStart::Thought => {
                state.details += 1;
                ChatPartState::Thought { index: state.details - 1, signed: false }
            }
            PartStart::ToolCall { id, name, custom } => {
                let index = state.calls;
                state.calls += 1;
                let (kind, text) =
                    if custom { ("custom", "input") } else { ("function", "arguments") };
                let inner = ObjectWriter::new().set("name", name).set(text, "");
                let call = ObjectWriter::new().set("index", index).set("id", id.as_str());
                let call: Value = call.set("type", kind).set(kind, inner).into();
                self.delta(place.candidate, &format!("{{\"tool_calls\":[{call}]}}"), None, out);
                ChatPartState::Call { index, id, custom }
            }
            PartStart::Complete(part) => self.write_whole(place, *part, out),
        };
        self.parts.insert(place, slot);
    }

    /// Writes a part that arrives in one event.
    fn write_whole(&mut self, place: PartIndex, part: Part, out: &mut Vec<u8>) -> ChatPartState {
        note_foreign_fields(&part.extras, ORIGIN, "part", &mut self.losses);
        let none = ChatPartState::Whole { thought: None };
        let text = match &part.kind {
            PartKind::Text { text, .. } => text.clone(),
            PartKind::CodeExecution(code) => {
                self.own_lines(place, &openai_values::code_block(&code.language, &code.code))
            }
            PartKind::CodeResult(outcome) => {
                self.own_lines(place, &openai_values::code_block("", &outcome.output))
            }
            PartKind::Thought(_) => {
                // The signature follows later, so the thought is written when the part closes.
                let state = self.candidates.entry(place.candidate).or_default();
                state.details += 1;
                let index = state.details - 1;
                return ChatPartState::Whole { thought: Some(Box::new((part, index))) };
            }
            PartKind::Media(media) => {
                let state = self.candidates.entry(place.candidate).or_default();
                match (write_reply::write_image(media), audio::write(media)) {
                    (None, Some(audio)) if !state.has_audio => {
                        state.has_audio = true;
                        let delta = format!("{{\"audio\":{audio}}}");
                        self.delta(place.candidate, &delta, None, out);
                    }
                    (Some(image), _) => {
                        let image = with_index(image, &mut state.images);
                        let delta = format!("{{\"images\":[{image}]}}");
                        self.delta(place.candidate, &delta, None, out);
                    }
                    (None, _) => self.losses.add("reply.media", NO_MEDIA_FIELD),
                }
                return none;
            }
            PartKind::WebSearch(_) => {
                self.losses
                    .add("reply.search", "the chat format shows citations but no search queries");
                return none;
            }
            PartKind::Refusal(_)
            | PartKind::ToolCall(_)
            | PartKind::ToolResult(_)
            | PartKind::Foreign { .. } => {
                self.losses.add("reply.part", "a part only the provider's format has");
                return none;
            }
        };
        self.write_text(place, &text, out);
        none
    }

    /// Formats a text on lines of its own.
    fn own_lines(&mut self, place: PartIndex, text: &str) -> String {
        let midline = self.candidates.entry(place.candidate).or_default().midline;
        format!("{}{text}\n", if midline { "\n" } else { "" })
    }

    fn write_text(&mut self, place: PartIndex, text: &str, out: &mut Vec<u8>) {
        self.begin(place.candidate, out);
        let state = self.candidates.entry(place.candidate).or_default();
        state.chars += text.chars().count();
        if !text.is_empty() {
            state.midline = !text.ends_with('\n');
        }
        // Hot path, once per token: what surrounds the text is written once.
        if self.text_frame.as_ref().is_none_or(|frame| frame.candidate != place.candidate) {
            let (mut before, mut after) = (Vec::new(), b"}".to_vec());
            self.open_choice(place.candidate, &mut before);
            before.extend_from_slice(b"{\"content\":");
            self.close_choice(None, "null", &mut after);
            self.text_frame = Some(TextFrame { candidate: place.candidate, before, after });
        }
        if let Some(TextFrame { before, after, .. }) = &self.text_frame {
            out.reserve(before.len() + text.len() + 2 + after.len());
            out.extend_from_slice(before);
            json::write_string(text, out);
            out.extend_from_slice(after);
        }
    }

    fn add_growth(&mut self, place: PartIndex, growth: PartDelta, out: &mut Vec<u8>) {
        let delta = match (growth, self.parts.get(&place)) {
            (PartDelta::Text(text), Some(ChatPartState::Text { .. })) => {
                self.write_text(place, &text, out);
                return;
            }
            (PartDelta::Text(text), Some(ChatPartState::Refusal)) => {
                format!("{{\"refusal\":{}}}", Value::from(text))
            }
            (PartDelta::Text(text), Some(ChatPartState::Thought { index, .. })) => {
                let details = signatures::text_delta(&text, *index);
                let text = Value::from(text);
                format!("{{\"reasoning_content\":{text},\"reasoning_details\":{details}}}")
            }
            (PartDelta::Text(text), Some(ChatPartState::Call { index, custom, .. })) => {
                let text = Value::from(text);
                let inner = if *custom {
                    format!("\"custom\":{{\"input\":{text}}}")
                } else {
                    format!("\"function\":{{\"arguments\":{text}}}")
                };
                format!("{{\"tool_calls\":[{{\"index\":{index},{inner}}}]}}")
            }
            (PartDelta::Citation(citation), Some(ChatPartState::Text { offset, .. })) => {
                let note = write_reply::write_citation(&citation, *offset, &mut self.losses);
                let Some(note) = note else { return };
                let state = self.candidates.entry(place.candidate).or_default();
                let note = with_index(note, &mut state.annotations);
                format!("{{\"annotations\":[{note}]}}")
            }
            (PartDelta::Logprobs(list), state) => {
                let refused = matches!(state, Some(ChatPartState::Refusal));
                let delta = if refused { "{\"refusal\":\"\"}" } else { "{\"content\":\"\"}" };
                if self.wants_logprobs {
                    let list = write_reply::write_logprobs(&list, refused);
                    self.delta(place.candidate, delta, Some(&list), out);
                }
                return;
            }
            (PartDelta::Extra { origin, name, value }, _) => {
                if origin != ORIGIN {
                    note_foreign_field(&name, &value, "part", &mut self.losses);
                }
                return;
            }
            (PartDelta::Text(_) | PartDelta::Citation(_), _) => return,
        };
        self.delta(place.candidate, &delta, None, out);
    }

    fn add_signature(&mut self, place: PartIndex, signature: &canon::Signature, out: &mut Vec<u8>) {
        let delta = match self.parts.get_mut(&place) {
            Some(ChatPartState::Thought { index, signed }) => {
                *signed = true;
                format!(
                    "{{\"reasoning_details\":{}}}",
                    signatures::signature_delta(signature, *index)
                )
            }
            Some(ChatPartState::Whole { thought: Some(thought) }) => {
                thought.0.signature = Some(signature.clone());
                return;
            }
            Some(ChatPartState::Call { index, id, custom }) => {
                match signatures::write_call_signature(signature) {
                    Some(extra) => {
                        let extra = Value::from(extra);
                        // SDKs read `function` of each delta, so it is always present.
                        let inner = if *custom {
                            "\"custom\":{\"input\":\"\"}"
                        } else {
                            "\"function\":{\"arguments\":\"\"}"
                        };
                        format!(
                            "{{\"tool_calls\":[{{\"index\":{index},{inner},\"extra_content\":{extra}}}]}}"
                        )
                    }
                    None => {
                        let state = self.candidates.entry(place.candidate).or_default();
                        state.details += 1;
                        let detail =
                            signatures::write_part_signature(signature, id, state.details - 1);
                        format!("{{\"reasoning_details\":[{detail}]}}")
                    }
                }
            }
            // Written at the end, when the whole text is known.
            Some(ChatPartState::Text { signature: stored, .. }) => {
                *stored = Some(signature.clone());
                return;
            }
            Some(ChatPartState::Refusal | ChatPartState::Whole { thought: None }) | None => {
                self.losses.add("reply.seal", NO_SIGNATURE_FIELD);
                return;
            }
        };
        self.delta(place.candidate, &delta, None, out);
    }

    /// Writes the signatures of the text that was sent.
    fn write_text_signatures(&mut self, candidate: u32, out: &mut Vec<u8>) {
        let state = self.candidates.entry(candidate).or_default();
        let (first, signatures) = (state.details, std::mem::take(&mut state.text_signatures));
        state.details += signatures.len();
        for (index, (id, signature)) in (first..).zip(signatures) {
            let detail = signatures::write_part_signature(&signature, &id, index);
            self.delta(candidate, &format!("{{\"reasoning_details\":[{detail}]}}"), None, out);
        }
    }

    fn close(&mut self, place: PartIndex, out: &mut Vec<u8>) {
        let delta = match self.parts.remove(&place) {
            Some(ChatPartState::Whole { thought: Some(thought) }) => {
                let (part, index) = *thought;
                let PartKind::Thought(thought) = &part.kind else { return };
                let Thought { text, redacted: _ } = thought;
                let detail = signatures::write_detail(&part, thought, index);
                let shown = if text.is_empty() {
                    String::new()
                } else {
                    format!("\"reasoning_content\":{},", Value::from(text.as_str()))
                };
                format!("{{{shown}\"reasoning_details\":[{detail}]}}")
            }
            Some(ChatPartState::Text { offset, signature: Some(signature) }) => {
                let state = self.candidates.entry(place.candidate).or_default();
                let id = signed_span::span_name(offset, state.chars.saturating_sub(offset));
                state.text_signatures.push((id, signature));
                return;
            }
            Some(
                ChatPartState::Text { signature: None, .. }
                | ChatPartState::Thought { .. }
                | ChatPartState::Refusal
                | ChatPartState::Call { .. }
                | ChatPartState::Whole { thought: None },
            )
            | None => return,
        };
        self.delta(place.candidate, &delta, None, out);
    }
}

impl StreamWriter for ChatStreamWriter {
    fn push(&mut self, event: Event, out: &mut Vec<u8>) {
        match event {
            Event::Start { created, .. } => {
                if let Some(created) = created {
                    self.chunk_prefix = chunk_prefix(&self.id, created, &self.model);
                    self.text_frame = None;
                }
                self.begin(0, out);
            }
            Event::PartStart(place, opening) => self.open(place, opening, out),
            Event::PartDelta(place, growth) => self.add_growth(place, growth, out),
            Event::PartSignature(place, signature) => self.add_signature(place, &signature, out),
            Event::PartEnd(place) => self.close(place, out),
            Event::Usage(usage) => {
                write_reply::note_searches(&usage, &mut self.losses);
                self.usage = Some(usage);
            }
            Event::Extra { origin: ORIGIN, candidate, name, value } => {
                if name == MESSAGE_EXTRA {
                    self.delta(candidate.unwrap_or_default(), &value.to_string(), None, out);
                }
            }
            Event::Extra { origin, name, value, .. } => {
                let tier =
                    service_tier::note_reply_field(origin, &name, &value, ORIGIN, &mut self.losses);
                self.tier = tier.or(self.tier);
                self.text_frame = None;
            }
            Event::Finish { candidate, finish } => {
                self.begin(candidate, out);
                self.write_text_signatures(candidate, out);
                note_stop_text(Some(&finish), ORIGIN, &mut self.losses);
                let word = write_reply::finish_reason(Some(&finish), &mut self.losses).to_string();
                self.raw_delta(candidate, "{}", None, &word, out);
            }
            Event::Error(fault) => {
                self.failed = true;
                let (_, body) = fault::write(&fault);
                out.extend_from_slice(b"data: ");
                out.extend_from_slice(&body);
                out.extend_from_slice(b"\n\n");
            }
        }
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Vec<Loss> {
        if !self.failed {
            if self.wants_usage {
                let usage = self.usage.unwrap_or_default();
                self.open_chunk(out);
                self.close_chunk(Some(&usage), out);
            }
            out.extend_from_slice(b"data: [DONE]\n\n");
        }
        std::mem::take(&mut self.losses).into_vec()
    }
}

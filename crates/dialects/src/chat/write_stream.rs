//! Writes chat chunks from events.

use canon::{
    Event, Loss, Losses, Part, PartDelta, PartIndex, PartKind, PartStart, Signature, Usage,
};
use serde_json::Value;
use std::collections::BTreeMap;

use super::names::{
    IMAGES_FIELD, MESSAGE_EXTRA, NO_MEDIA_FIELD, NO_SEARCH_FIELD, NO_SIGNATURE_FIELD, ORIGIN,
    REASONING_DETAILS,
};
use super::own::audio;
use super::{fault, signatures, usage, write_reply};
use crate::fields::{ObjectWriter, note_foreign_field, note_foreign_fields, note_stop_text};
use crate::openai_values::code_block;
use crate::service_tier;
use crate::text::char_count;
use crate::text_run::TextFrame;
use crate::write_json::WriteJson;
use crate::{ReplyStamp, StreamFrame, StreamWriter, TextRun, json, signed_span};

/// Stream writer. Order: the role, the content, the finish reason, the usage if requested,
/// `[DONE]`.
#[derive(Default)]
pub(super) struct ChatStreamWriter {
    id: String,
    created: i64,
    /// Model name as JSON.
    model: String,
    /// Service tier, once known.
    tier: Option<&'static str>,
    /// Beginning of a chunk up to `choices`.
    chunk_prefix: String,
    /// The candidate whose text was written last, and the bytes around its texts.
    text_frame: Option<(u32, TextFrame)>,
    wants_usage: bool,
    wants_logprobs: bool,
    usage: Usage,
    parts: BTreeMap<PartIndex, ChatPartState>,
    candidates: BTreeMap<u32, ChatCandidateOutput>,
    failed: bool,
    losses: Losses,
}

/// State of the part in a slot. The signature of a whole thought follows the thought, so that it is
/// kept with its index until it is closed.
enum ChatPartState {
    Text { offset: usize, signature: Option<Signature> },
    Refusal,
    Thought { index: usize },
    WholeThought(Box<(Part, usize)>),
    Call { index: usize, id: String, custom: bool },
    Written,
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
    text_signatures: Vec<(String, Signature)>,
}

/// Returns the next index of a list.
const fn next(count: &mut usize) -> usize {
    *count += 1;
    *count - 1
}

/// Returns the delta that adds an entry to a list.
fn entry(list: &'static str, entry: ObjectWriter) -> ObjectWriter {
    ObjectWriter::new().set(list, vec![entry])
}

/// Returns an addition to the text of a call.
fn call_piece(index: usize, custom: bool, text: &str) -> ObjectWriter {
    let (kind, field) = call_fields(custom);
    ObjectWriter::new().set("index", index).set(kind, ObjectWriter::new().set(field, text))
}

/// Returns the type of a call, and the field for its text.
const fn call_fields(custom: bool) -> (&'static str, &'static str) {
    if custom { ("custom", "input") } else { ("function", "arguments") }
}

impl ChatStreamWriter {
    pub(super) fn new(chat: &canon::ChatRequest, stamp: &ReplyStamp) -> Self {
        let options = chat.extras.get(ORIGIN, "stream_options");
        let wants_usage = options.and_then(|options| options.get("include_usage")?.as_bool());
        let mut writer = Self {
            id: stamp.id.clone(),
            created: stamp.created,
            model: Value::from(chat.model.as_str()).to_string(),
            wants_usage: wants_usage.unwrap_or(false),
            wants_logprobs: chat.sampling.logprobs.is_some(),
            ..Self::default()
        };
        writer.set_prefix();
        writer
    }

    /// Sets the beginning of the chunks that follow.
    fn set_prefix(&mut self) {
        let (before_tier, after_tier) = match self.tier {
            Some(_) => (",\"service_tier\":\"", "\""),
            None => ("", ""),
        };
        let prefix = [
            "data: {\"id\":\"chatcmpl-",
            &self.id,
            "\",\"object\":\"chat.completion.chunk\",\"created\":",
            &self.created.to_string(),
            ",\"model\":",
            &self.model,
            before_tier,
            self.tier.unwrap_or_default(),
            after_tier,
            ",\"choices\":[",
        ];
        self.chunk_prefix = prefix.concat();
        self.text_frame = None;
    }

    fn close_chunk(&self, usage: Option<&Usage>, out: &mut Vec<u8>) {
        out.push(b']');
        if self.wants_usage {
            out.extend_from_slice(b",\"usage\":");
            usage.map(|usage| usage::write_usage(ObjectWriter::new(), usage)).write_json(out);
        }
        out.extend_from_slice(b"}\n\n");
    }

    fn delta(&mut self, candidate: u32, delta: &impl WriteJson, out: &mut Vec<u8>) {
        self.begin(candidate, out);
        self.write_choice(candidate, delta, None, None, out);
    }

    fn write_choice(
        &self,
        candidate: u32,
        delta: &impl WriteJson,
        logprobs: Option<ObjectWriter>,
        finish: Option<&str>,
        out: &mut Vec<u8>,
    ) {
        self.open_choice(candidate, out);
        delta.write_json(out);
        self.close_choice(logprobs, finish, out);
    }

    /// Writes the beginning of a chunk up to `delta` of its only choice.
    fn open_choice(&self, candidate: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(self.chunk_prefix.as_bytes());
        out.extend_from_slice(b"{\"index\":");
        json::write_value(&candidate, out);
        out.extend_from_slice(b",\"delta\":");
    }

    fn close_choice(
        &self,
        logprobs: Option<ObjectWriter>,
        finish: Option<&str>,
        out: &mut Vec<u8>,
    ) {
        out.extend_from_slice(b",\"logprobs\":");
        logprobs.write_json(out);
        out.extend_from_slice(b",\"finish_reason\":");
        finish.write_json(out);
        out.push(b'}');
        self.close_chunk(None, out);
    }

    /// Writes the first chunk of a candidate. SDKs need it before any other.
    fn begin(&mut self, candidate: u32, out: &mut Vec<u8>) {
        let state = self.candidates.entry(candidate).or_default();
        if !std::mem::replace(&mut state.started, true) {
            let delta = ObjectWriter::new().set("role", "assistant").set("content", "");
            self.write_choice(candidate, &delta.set("refusal", Value::Null), None, None, out);
        }
    }

    fn open(&mut self, place: PartIndex, opening: PartStart, out: &mut Vec<u8>) {
        self.begin(place.candidate, out);
        let state = self.candidates.entry(place.candidate).or_default();
        let slot = match opening {
            PartStart::Text => ChatPartState::Text { offset: state.chars, signature: None },
            PartStart::Refusal => ChatPartState::Refusal,
            PartStart::Thought => ChatPartState::Thought { index: next(&mut state.details) },
            PartStart::ToolCall { id, name, custom } => {
                let index = next(&mut state.calls);
                self.write_text_signatures(place.candidate, out);
                let (kind, text) = call_fields(custom);
                let inner = ObjectWriter::new().set("name", name).set(text, "");
                let call = ObjectWriter::new().set("index", index).set("id", id.as_str());
                let call = call.set("type", kind).set(kind, inner);
                self.delta(place.candidate, &entry("tool_calls", call), out);
                ChatPartState::Call { index, id, custom }
            }
            PartStart::Complete(part) => self.write_whole(place, *part, out),
        };
        self.parts.insert(place, slot);
    }

    /// Writes a part that arrives in one event.
    fn write_whole(&mut self, place: PartIndex, part: Part, out: &mut Vec<u8>) -> ChatPartState {
        note_foreign_fields(&part.extras, ORIGIN, "part", &mut self.losses);
        let state = self.candidates.entry(place.candidate).or_default();
        let line_break = if state.midline { "\n" } else { "" };
        match &part.kind {
            PartKind::Text { text, .. } => self.write_text(place, text, out),
            PartKind::CodeExecution(_) | PartKind::CodeResult(_) => {
                let block = code_block(&part.kind);
                self.write_text(place, &format!("{line_break}{block}\n"), out);
            }
            PartKind::Thought(_) => {
                let index = next(&mut state.details);
                return ChatPartState::WholeThought(Box::new((part, index)));
            }
            PartKind::Media(media) => {
                match (write_reply::write_image(media), audio::write(media)) {
                    (Some(image), _) => {
                        let image = image.set("index", next(&mut state.images));
                        self.delta(place.candidate, &entry(IMAGES_FIELD, image), out);
                    }
                    (None, Some(audio)) if !state.has_audio => {
                        state.has_audio = true;
                        self.delta(place.candidate, &ObjectWriter::new().set("audio", audio), out);
                    }
                    (None, _) => self.losses.add("reply.media", NO_MEDIA_FIELD),
                }
            }
            PartKind::WebSearch(_) => self.losses.add("reply.search", NO_SEARCH_FIELD),
            PartKind::Refusal(_)
            | PartKind::ToolCall(_)
            | PartKind::ToolResult(_)
            | PartKind::Foreign { .. } => {
                self.losses.add("reply.part", "a part only the provider's format has");
            }
        }
        ChatPartState::Written
    }

    fn write_text(&mut self, place: PartIndex, text: &str, out: &mut Vec<u8>) {
        let is_midline = if text.is_empty() { None } else { Some(!text.ends_with('\n')) };
        self.note_text(place.candidate, char_count(text), is_midline, out);
        if let Some((_, frame)) = &self.text_frame {
            out.reserve(frame.between().len() + text.len());
            out.extend_from_slice(frame.before());
            json::write_in_string(text, out);
            out.extend_from_slice(frame.after());
        }
    }

    /// Prepares the output of texts with so many characters.
    fn note_text(
        &mut self,
        candidate: u32,
        chars: usize,
        is_midline: Option<bool>,
        out: &mut Vec<u8>,
    ) {
        // A candidate with a frame has begun.
        let has_frame = self.text_frame.as_ref().is_some_and(|(owner, _)| *owner == candidate);
        if !has_frame {
            self.begin(candidate, out);
        }
        let state = self.candidates.entry(candidate).or_default();
        state.chars += chars;
        state.midline = is_midline.unwrap_or(state.midline);
        // Hot path, once per token: what surrounds the text is written once.
        if !has_frame {
            let (mut before, mut after) = (Vec::new(), b"\"}".to_vec());
            self.open_choice(candidate, &mut before);
            before.extend_from_slice(b"{\"content\":\"");
            self.close_choice(None, None, &mut after);
            self.text_frame = Some((candidate, TextFrame::new(&[&before], &[&after])));
        }
    }

    fn add_growth(&mut self, place: PartIndex, growth: PartDelta, out: &mut Vec<u8>) {
        let delta = match (growth, self.parts.get(&place)) {
            (PartDelta::Text(text), Some(ChatPartState::Text { .. })) => {
                return self.write_text(place, &text, out);
            }
            (PartDelta::Text(text), Some(ChatPartState::Refusal)) => {
                ObjectWriter::new().set("refusal", text)
            }
            (PartDelta::Text(text), Some(ChatPartState::Thought { index })) => {
                let detail = signatures::text_delta(&text, *index);
                let delta = ObjectWriter::new().set("reasoning_content", text);
                delta.set(REASONING_DETAILS, vec![detail])
            }
            (PartDelta::Text(text), Some(ChatPartState::Call { index, custom, .. })) => {
                entry("tool_calls", call_piece(*index, *custom, &text))
            }
            (PartDelta::Citation(citation), Some(ChatPartState::Text { offset, .. })) => {
                let note = write_reply::write_citation(&citation, *offset, &mut self.losses);
                let Some(note) = note else { return };
                let state = self.candidates.entry(place.candidate).or_default();
                entry("annotations", note.set("index", next(&mut state.annotations)))
            }
            (PartDelta::Logprobs(list), state) => {
                let refused = matches!(state, Some(ChatPartState::Refusal));
                if self.wants_logprobs {
                    self.begin(place.candidate, out);
                    let delta = ObjectWriter::new().set(write_reply::text_field(refused), "");
                    let list = write_reply::write_logprobs(&list, refused);
                    self.write_choice(place.candidate, &delta, Some(list), None, out);
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
        self.delta(place.candidate, &delta, out);
    }

    fn add_signature(&mut self, place: PartIndex, signature: Signature, out: &mut Vec<u8>) {
        let delta = match self.parts.get_mut(&place) {
            Some(ChatPartState::Thought { index }) => {
                entry(REASONING_DETAILS, signatures::signature_delta(&signature, *index))
            }
            Some(ChatPartState::WholeThought(thought)) => {
                thought.0.signature = Some(signature);
                return;
            }
            Some(ChatPartState::Call { index, id, custom }) => {
                match signatures::write_call_signature(&signature) {
                    // SDKs read `function` of each delta, so it is always present.
                    Some(extra) => {
                        let call = call_piece(*index, *custom, "").set("extra_content", extra);
                        entry("tool_calls", call)
                    }
                    None => {
                        let state = self.candidates.entry(place.candidate).or_default();
                        let index = next(&mut state.details);
                        let detail = signatures::write_part_signature(&signature, id, index);
                        entry(REASONING_DETAILS, detail)
                    }
                }
            }
            // Written at the end, when the whole text is known.
            Some(ChatPartState::Text { signature: stored, .. }) => {
                *stored = Some(signature);
                return;
            }
            Some(ChatPartState::Refusal | ChatPartState::Written) | None => {
                return self.losses.add("reply.seal", NO_SIGNATURE_FIELD);
            }
        };
        self.delta(place.candidate, &delta, out);
    }

    /// Writes the signatures of the text that was sent.
    fn write_text_signatures(&mut self, candidate: u32, out: &mut Vec<u8>) {
        let state = self.candidates.entry(candidate).or_default();
        let (first, signatures) = (state.details, std::mem::take(&mut state.text_signatures));
        state.details += signatures.len();
        for (index, (id, signature)) in (first..).zip(signatures) {
            let detail = signatures::write_part_signature(&signature, &id, index);
            self.delta(candidate, &entry(REASONING_DETAILS, detail), out);
        }
    }

    fn close(&mut self, place: PartIndex, out: &mut Vec<u8>) {
        match self.parts.remove(&place) {
            Some(ChatPartState::WholeThought(thought)) => {
                let (part, index) = *thought;
                let PartKind::Thought(thought) = &part.kind else { return };
                let text = Some(thought.text.as_str()).filter(|text| !text.is_empty());
                let detail = signatures::write_detail(&part, thought, index);
                let delta = ObjectWriter::new().set_some("reasoning_content", text);
                self.delta(place.candidate, &delta.set(REASONING_DETAILS, vec![detail]), out);
            }
            Some(ChatPartState::Text { offset, signature: Some(signature) }) => {
                let state = self.candidates.entry(place.candidate).or_default();
                let id = signed_span::span_name(offset, state.chars.saturating_sub(offset));
                state.text_signatures.push((id, signature));
            }
            Some(
                ChatPartState::Text { signature: None, .. }
                | ChatPartState::Thought { .. }
                | ChatPartState::Refusal
                | ChatPartState::Call { .. }
                | ChatPartState::Written,
            )
            | None => {}
        }
    }
}

impl StreamWriter for ChatStreamWriter {
    fn push(&mut self, event: Event, out: &mut Vec<u8>) {
        match event {
            Event::Start { created, .. } => {
                self.created = created.unwrap_or(self.created);
                self.set_prefix();
                self.begin(0, out);
            }
            Event::PartStart(place, opening) => self.open(place, opening, out),
            Event::PartDelta(place, growth) => self.add_growth(place, growth, out),
            Event::PartSignature(place, signature) => self.add_signature(place, signature, out),
            Event::PartEnd(place) => self.close(place, out),
            Event::Usage(usage) => {
                write_reply::note_searches(&usage, &mut self.losses);
                self.usage = usage;
            }
            Event::Extra { origin: ORIGIN, candidate, name, value } => {
                if name == MESSAGE_EXTRA {
                    self.delta(candidate.unwrap_or_default(), &value, out);
                }
            }
            Event::Extra { origin, name, value, .. } => {
                let losses = &mut self.losses;
                let tier = service_tier::note_reply_field(origin, &name, &value, ORIGIN, losses);
                if tier.is_some_and(|tier| self.tier != Some(tier)) {
                    self.tier = tier;
                    self.set_prefix();
                }
            }
            Event::Finish { candidate, finish } => {
                self.begin(candidate, out);
                self.write_text_signatures(candidate, out);
                note_stop_text(Some(&finish), ORIGIN, &mut self.losses);
                let word = write_reply::finish_reason(Some(&finish), &mut self.losses);
                self.write_choice(candidate, &ObjectWriter::new(), None, word, out);
            }
            Event::Error(fault) => {
                self.failed = true;
                StreamFrame::data(fault::write(&fault).1).write_data(out);
            }
        }
    }

    fn push_run(&mut self, run: &TextRun, out: &mut Vec<u8>) {
        if !matches!(self.parts.get(&run.place()), Some(ChatPartState::Text { .. })) {
            return run.events().for_each(|event| self.push(event, out));
        }
        self.note_text(run.place().candidate, run.chars(), Some(true), out);
        if let Some((_, frame)) = &self.text_frame {
            run.write(frame, out);
        }
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Vec<Loss> {
        if !self.failed {
            if self.wants_usage {
                out.extend_from_slice(self.chunk_prefix.as_bytes());
                self.close_chunk(Some(&self.usage), out);
            }
            out.extend_from_slice(b"data: [DONE]\n\n");
        }
        std::mem::take(&mut self.losses).into_vec()
    }
}

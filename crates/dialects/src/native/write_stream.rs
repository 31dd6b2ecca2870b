//! Writes a native stream: `data: ` lines, or one JSON array.
//!
//! The last chunk holds the finish reason and the usage. It must hold output as well, because an
//! official client drops a turn in which any chunk is empty. Therefore the last character of a text
//! and the last whole part are held back until it is known whether more output follows.

use canon::{
    Event, ExtraFields, Finish, Logprob, Loss, Losses, Part, PartDelta, PartIndex, PartKind,
    PartStart, Signature, Thought, Usage,
};
use serde_json::Value;
use std::collections::BTreeMap;

use super::names::{JSON_ARRAY_EXTRA, ORIGIN};
use super::own::{dotted_extras, enum_text, timestamp};
use super::write_reply::{
    PendingSignatures, block_word, carrier, finish_candidate, finish_word, is_broken,
};
use super::{fault, signatures, usage, write_part, write_reply};
use crate::fields::{ObjectWriter, note_foreign_field, note_search_fields};
use crate::service_tier;
use crate::{ReplyStamp, StreamWriter, json};

/// Writes the chunks of a native stream.
pub(super) struct NativeStreamWriter {
    chat: canon::ChatRequest,
    array: bool,
    /// True if the reply is one bare value of an enum. It is written when it is complete.
    bare: bool,
    /// The number of chunks written.
    written: usize,
    id: String,
    created: i64,
    model: Option<String>,
    /// The end of every chunk but the last, once it is needed.
    chunk_end: Vec<u8>,
    usage: Option<Usage>,
    extras: ExtraFields,
    feedback: Option<Value>,
    parts: BTreeMap<PartIndex, Part>,
    candidates: BTreeMap<u32, CandidateProgress>,
    broken: bool,
    losses: Losses,
}

/// State of one candidate.
struct CandidateProgress {
    pending: PendingSignatures,
    held: Option<HeldPart>,
    /// The parts the caller saw, to write the sources at the end.
    shown: Vec<Part>,
    finish: Option<Finish>,
    malformed: bool,
    logprobs: Vec<Logprob>,
    extras: ExtraFields,
}

/// Output that is held back until the next chunk.
enum HeldPart {
    /// The end of a text that may continue.
    Text { place: PartIndex, text: String, thought: bool, token: Option<String> },
    /// A complete part.
    Whole(ObjectWriter),
}

impl HeldPart {
    /// Writes the part as JSON.
    fn write(self, out: &mut Vec<u8>) {
        match self {
            Self::Text { place: _, text, thought, token } => {
                out.extend_from_slice(b"{\"text\":");
                json::write_string(&text, out);
                if thought {
                    out.extend_from_slice(b",\"thought\":true");
                }
                if let Some(token) = token {
                    out.extend_from_slice(b",\"thoughtSignature\":");
                    json::write_string(&token, out);
                }
                out.push(b'}');
            }
            Self::Whole(object) => out.extend_from_slice(&object.to_json()),
        }
    }
}

impl NativeStreamWriter {
    pub(super) fn new(chat: &canon::ChatRequest, stamp: &ReplyStamp) -> Self {
        // Keeps only the parts of the request that affect the reply.
        let kept = canon::ChatRequest {
            model: chat.model.clone(),
            thinking: chat.thinking,
            sampling: chat.sampling.clone(),
            ..canon::ChatRequest::default()
        };
        Self {
            array: chat.extras.get(ORIGIN, JSON_ARRAY_EXTRA).is_some(),
            bare: enum_text::is_requested(chat),
            chat: kept,
            written: 0,
            id: stamp.id.clone(),
            created: stamp.created,
            model: None,
            chunk_end: Vec::new(),
            usage: None,
            extras: ExtraFields::new(),
            feedback: None,
            parts: BTreeMap::new(),
            candidates: BTreeMap::new(),
            broken: false,
            losses: Losses::new(),
        }
    }

    fn progress(&mut self, candidate: u32) -> &mut CandidateProgress {
        let show = write_reply::shows_thinking(&self.chat);
        self.candidates.entry(candidate).or_insert_with(|| CandidateProgress {
            pending: PendingSignatures::new(show),
            held: None,
            shown: Vec::new(),
            finish: None,
            malformed: false,
            logprobs: Vec::new(),
            extras: ExtraFields::new(),
        })
    }

    /// Writes the beginning of a chunk.
    fn open_chunk(&mut self, out: &mut Vec<u8>) {
        let before = match (self.array, self.written) {
            (false, _) => "data: ",
            (true, 0) => "[",
            (true, _) => ",\r\n",
        };
        self.written += 1;
        out.extend_from_slice(before.as_bytes());
    }

    fn close_chunk(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(if self.array { b"\n" } else { b"\n\n" });
    }

    /// Adds the fields at the end of every chunk.
    fn with_chunk_fields(&self, object: ObjectWriter) -> ObjectWriter {
        object
            .set("modelVersion", self.model.as_deref().unwrap_or(&self.chat.model))
            .set("createTime", timestamp::write(self.created))
            .set("responseId", self.id.as_str())
    }

    fn write_chunk(&mut self, candidate: u32, part: HeldPart, out: &mut Vec<u8>) {
        if self.chunk_end.is_empty() {
            self.chunk_end = self.with_chunk_fields(ObjectWriter::new()).to_json();
            self.chunk_end.splice(..1, *b"}],");
        }
        self.open_chunk(out);
        out.extend_from_slice(b"{\"candidates\":[{\"content\":{\"parts\":[");
        part.write(out);
        out.extend_from_slice(b"],\"role\":\"model\"},\"index\":");
        json::write_value(&candidate, out);
        out.extend_from_slice(&self.chunk_end);
        self.close_chunk(out);
    }

    /// Writes the held-back output and holds `next` back instead.
    fn hold(&mut self, candidate: u32, next: Option<HeldPart>, out: &mut Vec<u8>) {
        let before = std::mem::replace(&mut self.progress(candidate).held, next);
        if let Some(held) = before {
            self.write_chunk(candidate, held, out);
        }
    }

    fn open(&mut self, place: PartIndex, opening: PartStart) {
        let part = match opening {
            PartStart::Text => Part::text(""),
            PartStart::Refusal => Part::new(PartKind::Refusal(String::new())),
            PartStart::Thought => Part::new(PartKind::Thought(Thought::default())),
            PartStart::ToolCall { id, name, custom } => {
                let call = canon::ToolCall { id, name, arguments: String::new(), custom };
                Part::new(PartKind::ToolCall(call))
            }
            PartStart::Complete(part) => *part,
        };
        self.parts.insert(place, part);
    }

    fn grow(&mut self, place: PartIndex, growth: PartDelta, out: &mut Vec<u8>) {
        match growth {
            PartDelta::Logprobs(more) => {
                self.progress(place.candidate).logprobs.extend(more);
            }
            PartDelta::Extra { origin, name, value } => {
                if let Some(part) = self.parts.get_mut(&place) {
                    // The sources of a search stand beside the parts.
                    if origin != ORIGIN && !matches!(part.kind, PartKind::WebSearch(_)) {
                        note_foreign_field(&name, &value, "part", &mut self.losses);
                    }
                    part.extras.insert(origin, &name, value);
                }
            }
            PartDelta::Citation(citation) => {
                if let Some(Part { kind: PartKind::Text { citations, .. }, .. }) =
                    self.parts.get_mut(&place)
                {
                    citations.push(citation);
                }
            }
            PartDelta::Text(more) => {
                let show = self.progress(place.candidate).pending.shows_thinking();
                let bare = self.bare;
                let thought = match self.parts.get_mut(&place).map(|part| &mut part.kind) {
                    Some(PartKind::Text { text, .. }) if bare => {
                        text.push_str(&more);
                        return;
                    }
                    Some(PartKind::Text { text, .. } | PartKind::Refusal(text)) => {
                        text.push_str(&more);
                        false
                    }
                    Some(PartKind::Thought(thought)) => {
                        thought.text.push_str(&more);
                        if !show {
                            return;
                        }
                        true
                    }
                    Some(PartKind::ToolCall(call)) => {
                        call.arguments.push_str(&more);
                        return;
                    }
                    _ => return,
                };
                self.write_text(place, &more, thought, out);
            }
        }
    }

    /// Writes a text except its last character.
    fn write_text(&mut self, place: PartIndex, more: &str, thought: bool, out: &mut Vec<u8>) {
        if more.is_empty() {
            return;
        }
        let progress = self.progress(place.candidate);
        let (mut text, token) = match progress.held.take() {
            Some(HeldPart::Text { place: own, text, thought: _, token: None }) if own == place => {
                (text, None)
            }
            other => {
                let (carriers, token) =
                    if thought { (Vec::new(), None) } else { progress.pending.for_text() };
                progress.held = other;
                for object in carriers {
                    self.hold(place.candidate, Some(HeldPart::Whole(object)), out);
                }
                self.hold(place.candidate, None, out);
                (String::new(), token)
            }
        };
        text.push_str(more);
        let last = text.pop().map(String::from).unwrap_or_default();
        let progress = self.progress(place.candidate);
        if text.is_empty() {
            progress.held = Some(HeldPart::Text { place, text: last, thought, token });
        } else {
            progress.held = Some(HeldPart::Text { place, text: last, thought, token: None });
            let front = HeldPart::Text { place, text, thought, token };
            self.write_chunk(place.candidate, front, out);
        }
    }

    fn write_signature(&mut self, place: PartIndex, seal: Signature, out: &mut Vec<u8>) {
        let Some(part) = self.parts.get_mut(&place) else { return };
        part.signature = Some(seal.clone());
        let (token, thought) = match &part.kind {
            PartKind::Thought(Thought { text, redacted }) => {
                let (redacted, read) = (*redacted, !text.is_empty());
                let progress = self.progress(place.candidate);
                let shown = progress.pending.shows_thinking() && read;
                progress.pending.add(&seal, redacted, shown);
                if !shown {
                    return;
                }
                (signatures::write_thought(&seal, redacted), true)
            }
            // The signature of a text stands on its last character; other parts are written when
            // they close.
            PartKind::Text { .. }
            | PartKind::Refusal(_)
            | PartKind::Media(_)
            | PartKind::ToolCall(_)
            | PartKind::ToolResult(_)
            | PartKind::CodeExecution(_)
            | PartKind::CodeResult(_)
            | PartKind::WebSearch(_)
            | PartKind::Foreign { .. } => return,
        };
        self.attach_signature(place, token, thought, out);
    }

    /// Puts a signature on the held-back end of its part, or on a carrier after it.
    fn attach_signature(
        &mut self,
        place: PartIndex,
        token: String,
        thought: bool,
        out: &mut Vec<u8>,
    ) {
        match &mut self.progress(place.candidate).held {
            Some(HeldPart::Text { place: own, token: none @ None, .. }) if *own == place => {
                *none = Some(token);
            }
            _ => {
                let object = carrier(&token).set_some("thought", thought.then_some(true));
                self.hold(place.candidate, Some(HeldPart::Whole(object)), out);
            }
        }
    }

    fn close(&mut self, place: PartIndex, out: &mut Vec<u8>) {
        let Some(mut part) = self.parts.remove(&place) else { return };
        if let PartKind::Text { text, .. } = &mut part.kind
            && self.bare
        {
            *text = enum_text::bare_value(text);
            self.write_text(place, text, false, out);
        }
        let candidate = place.candidate;
        let mut losses = std::mem::take(&mut self.losses);
        let written: Vec<ObjectWriter> = match &part.kind {
            PartKind::Text { .. } | PartKind::Refusal(_) => {
                // The text is already written, and these fields belong into the same chunk.
                for (name, _) in part.extras.for_format(ORIGIN).into_iter().flatten() {
                    losses.add(&format!("part.{name}"), "it came after its text was sent");
                }
                // Records the losses that a whole reply would have.
                write_part::payload(&part, true, &mut losses);
                if let Some(seal) = &part.signature {
                    self.attach_signature(place, signatures::write(seal), false, out);
                }
                Vec::new()
            }
            PartKind::Thought(_) if !self.shows_thinking() => {
                self.losses = losses;
                return;
            }
            PartKind::Thought(thought) => {
                if !thought.text.is_empty() {
                    write_part::payload(&part, true, &mut losses);
                }
                Vec::new()
            }
            PartKind::ToolCall(call) if is_broken(call) => {
                losses.add("tool_call.arguments", "the arguments are not a JSON object");
                self.progress(candidate).malformed = true;
                Vec::new()
            }
            PartKind::ToolCall(_) => self.progress(candidate).pending.write(&part, &mut losses),
            PartKind::WebSearch(_) => {
                note_search_fields(&part.extras, ORIGIN, &mut losses);
                Vec::new()
            }
            PartKind::Media(_)
            | PartKind::ToolResult(_)
            | PartKind::CodeExecution(_)
            | PartKind::CodeResult(_)
            | PartKind::Foreign { .. } => {
                write_part::reply_part(&part, &mut losses).into_iter().collect()
            }
        };
        self.losses = losses;
        for object in written {
            self.hold(candidate, Some(HeldPart::Whole(object)), out);
        }
        self.progress(candidate).shown.push(part);
    }

    /// Writes a text that arrived as a whole part.
    fn open_whole(&mut self, place: PartIndex, out: &mut Vec<u8>) {
        let Some(part) = self.parts.get(&place) else { return };
        let (text, thought) = match &part.kind {
            // Written when it closes.
            PartKind::Text { .. } if self.bare => return,
            PartKind::Text { text, .. } | PartKind::Refusal(text) => (text.clone(), false),
            PartKind::Thought(thought) if self.shows_thinking() => (thought.text.clone(), true),
            _ => return,
        };
        self.write_text(place, &text, thought, out);
    }

    fn shows_thinking(&self) -> bool {
        write_reply::shows_thinking(&self.chat)
    }

    fn aside(&mut self, candidate: Option<u32>, name: &str, value: Value) {
        match candidate {
            Some(index) => self.progress(index).extras.insert(ORIGIN, name, value),
            None if name == "promptFeedback" => self.feedback = Some(value),
            None => self.extras.insert(ORIGIN, name, value),
        }
    }

    /// Writes the last chunk: held-back output, finish reasons and usage.
    fn write_last_chunk(&mut self, out: &mut Vec<u8>) {
        let mut losses = std::mem::take(&mut self.losses);
        let mut list: Vec<Value> = Vec::new();
        let indexes: Vec<u32> = self.candidates.keys().copied().collect();
        for index in indexes {
            let rest = self.progress(index).pending.rest();
            for object in rest {
                self.hold(index, Some(HeldPart::Whole(object)), out);
            }
            let Some(candidates) = self.candidates.remove(&index) else { continue };
            let CandidateProgress { pending: _, held, shown, finish, malformed, logprobs, extras } =
                candidates;
            let silent = held.is_none() && shown.is_empty();
            if let Some(finish) = &finish
                && finish.reason == canon::FinishReason::PromptBlocked
                && silent
            {
                let word = block_word(finish);
                self.feedback
                    .get_or_insert_with(|| ObjectWriter::new().set("blockReason", word).into());
                continue;
            }
            let mut part = Vec::new();
            if let Some(held) = held {
                held.write(&mut part);
            }
            let parts: Vec<Value> = serde_json::from_slice(&part).into_iter().collect();
            let content = ObjectWriter::new().set("parts", parts).set("role", "model");
            let word = finish_word(finish.as_ref(), malformed, &mut losses);
            let object = ObjectWriter::new().set("content", content).set_some("finishReason", word);
            let object = object.set("index", index);
            list.push(finish_candidate(
                object,
                &shown,
                &logprobs,
                &self.chat,
                &extras,
                &mut losses,
            ));
        }
        write_reply::complete_candidates(&mut list, self.usage.as_ref());
        let usage = self.usage.unwrap_or_default();
        write_reply::note_uncounted_searches(&usage, &list, &mut losses);
        let counts = usage::write_usage(&usage, &self.extras, &mut losses);
        self.losses = losses;
        let object = ObjectWriter::new()
            .set("candidates", list)
            .set_some("promptFeedback", self.feedback.take())
            .set("usageMetadata", counts);
        let extras = std::mem::replace(&mut self.extras, ExtraFields::new());
        let object = self.with_chunk_fields(dotted_extras::restore(object, &extras, ""));
        self.open_chunk(out);
        out.extend_from_slice(&object.to_json());
        self.close_chunk(out);
    }
}

impl StreamWriter for NativeStreamWriter {
    fn push(&mut self, event: Event, out: &mut Vec<u8>) {
        match event {
            Event::Start { id: _, model, created } => {
                self.model = model;
                self.created = created.unwrap_or(self.created);
                self.chunk_end.clear();
            }
            Event::PartStart(place, opening) => {
                let whole = matches!(opening, PartStart::Complete(_));
                self.open(place, opening);
                if whole {
                    self.open_whole(place, out);
                }
            }
            Event::PartDelta(place, growth) => self.grow(place, growth, out),
            Event::PartSignature(place, seal) => self.write_signature(place, seal, out),
            Event::PartEnd(place) => self.close(place, out),
            Event::Usage(usage) => self.usage = Some(usage),
            Event::Extra { candidate, origin, name, value } if origin == ORIGIN => {
                self.aside(candidate, &name, value);
            }
            Event::Extra { origin, name, value, .. } => {
                service_tier::note_reply_field(origin, &name, &value, ORIGIN, &mut self.losses);
            }
            Event::Finish { candidate, finish } => self.progress(candidate).finish = Some(finish),
            Event::Error(fault) => {
                let indexes: Vec<u32> = self.candidates.keys().copied().collect();
                for index in indexes {
                    self.hold(index, None, out);
                }
                self.broken = true;
                let (_, body) = fault::write(&fault);
                self.open_chunk(out);
                out.extend_from_slice(&body);
                self.close_chunk(out);
            }
        }
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Vec<Loss> {
        if !self.broken {
            self.write_last_chunk(out);
        }
        if self.array {
            out.push(b']');
        }
        std::mem::take(&mut self.losses).into_vec()
    }
}

//! Writes a native stream: `data: ` lines, or one JSON array.
//!
//! The last chunk holds the finish reason and the usage. It must hold output as well, because an
//! official client drops a turn in which any chunk is empty. Therefore the last character of a text
//! and the last whole part are held back until it is known whether more output follows.

use canon::{
    Event, Loss, Losses, Part, PartDelta, PartIndex, PartKind, PartStart, Signature, Thought,
};
use std::collections::BTreeMap;

use super::names::{self, JSON_ARRAY_EXTRA, ORIGIN};
use super::own::enum_text;
use super::write_reply::{NativeCandidateWriter, NativeReplyFields, NativeReplyOptions, carrier};
use super::{fault, signatures, write_content};
use crate::envelope;
use crate::fields::{ObjectWriter, note_foreign_field};
use crate::service_tier;
use crate::write_json::WriteJson;
use crate::{ReplyStamp, StreamWriter, json};

/// Writes the chunks of a native stream.
#[derive(Default)]
pub(super) struct NativeStreamWriter {
    options: NativeReplyOptions,
    fields: NativeReplyFields,
    array: bool,
    /// The number of chunks written.
    written: usize,
    /// The end of every chunk but the last, once it is needed.
    chunk_end: Vec<u8>,
    parts: BTreeMap<PartIndex, Part>,
    candidates: BTreeMap<u32, NativeCandidateProgress>,
    broken: bool,
    losses: Losses,
}

/// State of one candidate.
struct NativeCandidateProgress {
    writer: NativeCandidateWriter,
    held: Option<HeldPart>,
}

/// Output that is held back until the next chunk.
enum HeldPart {
    /// The end of a text that may continue.
    Text { place: PartIndex, text: String, thought: bool, token: Option<String> },
    /// A complete part.
    Whole(ObjectWriter),
}

impl WriteJson for HeldPart {
    fn write_json(&self, out: &mut Vec<u8>) {
        match self {
            Self::Text { place: _, text, thought, token } => {
                out.extend_from_slice(b"{\"text\":");
                json::write_string(text, out);
                if *thought {
                    out.extend_from_slice(b",\"thought\":true");
                }
                if let Some(token) = token {
                    out.extend_from_slice(b",\"thoughtSignature\":");
                    json::write_string(token, out);
                }
                out.push(b'}');
            }
            Self::Whole(object) => object.write_json(out),
        }
    }
}

impl NativeStreamWriter {
    pub(super) fn new(chat: &canon::ChatRequest, stamp: &ReplyStamp) -> Self {
        Self {
            options: NativeReplyOptions::of(chat),
            fields: NativeReplyFields::new(chat, stamp),
            array: chat.extras.get(ORIGIN, JSON_ARRAY_EXTRA).is_some(),
            ..Self::default()
        }
    }

    fn progress(&mut self, index: u32) -> &mut NativeCandidateProgress {
        let new = || NativeCandidateWriter::new(index, self.options);
        let new = || NativeCandidateProgress { writer: new(), held: None };
        self.candidates.entry(index).or_insert_with(new)
    }

    /// Writes a chunk with its framing.
    fn write_framed(&mut self, out: &mut Vec<u8>, write: impl FnOnce(&Self, &mut Vec<u8>)) {
        let (before, after) = names::chunk_framing(self.array, self.written == 0);
        self.written += 1;
        out.extend_from_slice(before);
        write(self, out);
        out.extend_from_slice(after);
    }

    fn write_chunk(&mut self, candidate: u32, part: &HeldPart, out: &mut Vec<u8>) {
        if self.chunk_end.is_empty() {
            self.chunk_end = self.fields.write_header(ObjectWriter::new()).into_json();
            self.chunk_end.splice(..1, *b"}],");
        }
        self.write_framed(out, |own, out| {
            out.extend_from_slice(b"{\"candidates\":[{\"content\":{\"parts\":[");
            part.write_json(out);
            out.extend_from_slice(b"],\"role\":\"model\"},\"index\":");
            json::write_value(&candidate, out);
            out.extend_from_slice(&own.chunk_end);
        });
    }

    /// Writes the held-back output and holds `next` back instead.
    fn hold(&mut self, candidate: u32, next: Option<HeldPart>, out: &mut Vec<u8>) {
        let before = std::mem::replace(&mut self.progress(candidate).held, next);
        if let Some(held) = before {
            self.write_chunk(candidate, &held, out);
        }
    }

    fn hold_all(&mut self, candidate: u32, objects: Vec<ObjectWriter>, out: &mut Vec<u8>) {
        for object in objects {
            // A line break would end the line of the event.
            self.hold(candidate, Some(HeldPart::Whole(object.on_one_line())), out);
        }
    }

    fn open(&mut self, place: PartIndex, opening: PartStart, out: &mut Vec<u8>) {
        let mut part = opening.into_part();
        // The text of a whole part is written like one that grows.
        let text = part.text_mut().map(std::mem::take).unwrap_or_default();
        self.parts.insert(place, part);
        if !text.is_empty() {
            self.grow(place, PartDelta::Text(text), out);
        }
    }

    fn grow(&mut self, place: PartIndex, growth: PartDelta, out: &mut Vec<u8>) {
        if let PartDelta::Logprobs(more) = growth {
            return self.progress(place.candidate).writer.logprobs.extend(more);
        }
        let Some(part) = self.parts.get(&place) else { return };
        match &growth {
            PartDelta::Text(more) => {
                let is_thought = matches!(part.kind, PartKind::Thought(_));
                // A bare value is written when it is complete.
                let is_text = matches!(part.kind, PartKind::Text { .. }) && !self.options.is_bare;
                let is_refusal = matches!(part.kind, PartKind::Refusal(_));
                if is_text || is_refusal || (is_thought && self.options.shows_thinking) {
                    self.write_text(place, more, is_thought, out);
                }
            }
            // The sources of a search stand beside the parts.
            PartDelta::Extra { origin, name, value }
                if *origin != ORIGIN && !matches!(part.kind, PartKind::WebSearch(_)) =>
            {
                note_foreign_field(name, value, "part", &mut self.losses);
            }
            PartDelta::Extra { .. } | PartDelta::Citation(_) | PartDelta::Logprobs(_) => {}
        }
        if let Some(part) = self.parts.get_mut(&place) {
            part.grow(growth);
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
                let (carriers, token) = match thought {
                    true => (Vec::new(), None),
                    false => progress.writer.write_before(false),
                };
                progress.held = other;
                self.hold_all(place.candidate, carriers, out);
                self.hold(place.candidate, None, out);
                (String::new(), token)
            }
        };
        text.push_str(more);
        let last = text.pop();
        let is_more = !text.is_empty();
        let mut held = HeldPart::Text { place, text, thought, token };
        if is_more {
            self.write_chunk(place.candidate, &held, out);
        }
        if let HeldPart::Text { text, token, .. } = &mut held {
            text.clear();
            text.extend(last);
            token.take_if(|_| is_more);
        }
        self.progress(place.candidate).held = Some(held);
    }

    /// Takes a signature. That of a thought is written at once, that of a text stands on its last
    /// character; other parts are written when they close.
    fn write_signature(&mut self, place: PartIndex, seal: Signature, out: &mut Vec<u8>) {
        let Some(part) = self.parts.get_mut(&place) else { return };
        if let PartKind::Thought(Thought { text, redacted }) = &part.kind {
            let (is_shown, redacted) = (self.options.shows_thinking && !text.is_empty(), *redacted);
            self.progress(place.candidate).writer.add_signature(&seal, redacted, is_shown);
            if is_shown {
                let token = signatures::write_thought(&seal, redacted);
                self.attach_signature(place, token, true, out);
            }
        } else {
            part.signature = Some(seal);
        }
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
        let is_thought = matches!(part.kind, PartKind::Thought(_));
        if let PartKind::Text { text, .. } = &mut part.kind {
            if self.options.is_bare {
                *text = enum_text::bare_value(text);
                self.write_text(place, text, false, out);
            }
        } else if is_thought && !self.options.shows_thinking {
            return;
        } else if !is_thought && !matches!(part.kind, PartKind::Refusal(_)) {
            self.progress(place.candidate);
            let Some(progress) = self.candidates.get_mut(&place.candidate) else { return };
            let objects = progress.writer.write(part, &mut self.losses);
            return self.hold_all(place.candidate, objects, out);
        }
        // The text is already written, and these fields belong into the same chunk.
        for (name, _) in part.extras.for_format(ORIGIN).into_iter().flatten() {
            self.losses.add(&format!("part.{name}"), "it came after its text was sent");
        }
        // Records the losses that a whole reply would have.
        write_content::payload(&part, true, &mut self.losses);
        if let Some(seal) = part.signature.as_ref().filter(|_| !is_thought) {
            self.attach_signature(place, envelope::write(seal, ORIGIN), false, out);
        }
        self.progress(place.candidate).writer.shown.push(part);
    }

    /// Writes the last chunk: held-back output, finish reasons and usage.
    fn write_last_chunk(&mut self, out: &mut Vec<u8>) {
        let indexes: Vec<u32> = self.candidates.keys().copied().collect();
        for index in indexes {
            let rest = self.progress(index).writer.write_rest();
            self.hold_all(index, rest, out);
        }
        let candidates = std::mem::take(&mut self.candidates).into_values();
        let candidates = candidates.map(|own| (own.writer, own.held.into_iter().collect()));
        let body = self.fields.write(candidates.collect(), &mut self.losses);
        self.write_framed(out, |_, out| out.extend_from_slice(&body.into_json()));
    }
}

impl StreamWriter for NativeStreamWriter {
    fn push(&mut self, event: Event, out: &mut Vec<u8>) {
        match event {
            Event::Start { id: _, model, created } => {
                self.fields.start(model, created);
                self.chunk_end.clear();
            }
            Event::PartStart(place, opening) => self.open(place, opening, out),
            Event::PartDelta(place, growth) => self.grow(place, growth, out),
            Event::PartSignature(place, seal) => self.write_signature(place, seal, out),
            Event::PartEnd(place) => self.close(place, out),
            Event::Usage(usage) => self.fields.usage = Some(usage),
            Event::Extra { candidate, origin, name, value } if origin == ORIGIN => {
                let extras = match candidate {
                    Some(index) => &mut self.progress(index).writer.extras,
                    None => &mut self.fields.extras,
                };
                extras.insert(ORIGIN, &name, value);
            }
            Event::Extra { origin, name, value, .. } => {
                service_tier::note_reply_field(origin, &name, &value, ORIGIN, &mut self.losses);
            }
            Event::Finish { candidate, finish } => {
                self.progress(candidate).writer.finish = Some(finish);
            }
            Event::Error(fault) => {
                let indexes: Vec<u32> = self.candidates.keys().copied().collect();
                for index in indexes {
                    self.hold(index, None, out);
                }
                self.broken = true;
                let (_, body) = fault::write(&fault);
                self.write_framed(out, |_, out| out.extend_from_slice(&body));
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

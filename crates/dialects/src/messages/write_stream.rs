//! Writes a messages stream, <https://docs.anthropic.com/en/docs/build-with-claude/streaming>.
//!
//! The format has one block open at a time. Of parts that grow in parallel, the first is written
//! live and the others wait. A part without a signature field needs the carrier of its signature
//! before it. Therefore a call begins only when its second piece or its end arrives; a provider
//! that signs calls has signed it by then. A text block does not end with its part: a provider that
//! signs the end of its reply sends it as a separate text, and clients take the last block for the
//! whole answer.

use canon::{
    ChatRequest, Citation, Event, Finish, Loss, Losses, Part, PartDelta, PartIndex, PartStart,
    Signature, ThinkingDisplay, Usage, WireFormat,
};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

use super::names::ORIGIN;
use super::own::tool_names;
use super::signatures::{self, OpenText, SignatureTarget};
use super::write_reply::{finish_words, hide, with_tier};
use super::write_reply_blocks::{ReplyBlocks, write_citation};
use super::{fault, usage};
use crate::fields::{ObjectWriter, note_foreign_field};
use crate::service_tier::{self, USAGE_EXTRA};
use crate::{ReplyStamp, StreamWriter, json};

/// Writes the events of a messages stream.
pub(super) struct MessagesStreamWriter {
    id: String,
    model: String,
    usage: Option<Usage>,
    /// True if the caller asked not to see thinking.
    hidden: bool,
    refused: bool,
    begun: bool,
    broken: bool,
    /// The index of the next block.
    index: u32,
    /// Parts that are not completely written, in order. The first one is written live.
    parts: BTreeMap<u32, GrowingPart>,
    blocks: ReplyBlocks,
    open_text: Option<OpenText>,
    /// The service tier, until it is written.
    tier: Option<&'static str>,
    finish: Option<Finish>,
    /// Fields that only the provider's format has.
    asides: Map<String, Value>,
    losses: Losses,
}

/// A part that is not completely written.
struct GrowingPart {
    what: GrowingKind,
    /// Pieces that wait until the part may be written.
    waiting: Vec<String>,
    /// The written text, for citations that quote it.
    written_text: String,
    citations: Vec<Citation>,
    seal: Option<Signature>,
    extras: Map<String, Value>,
    /// True once its block has begun.
    started: bool,
    closed: bool,
}

enum GrowingKind {
    Text,
    Thought,
    Call { id: String, name: String, custom: bool },
    Whole(Box<Part>),
}

impl MessagesStreamWriter {
    pub(super) fn new(chat: &ChatRequest, stamp: &ReplyStamp) -> Self {
        Self {
            id: format!("msg_{}", stamp.id),
            model: chat.model.clone(),
            usage: None,
            hidden: chat.thinking.display == Some(ThinkingDisplay::Hidden),
            refused: false,
            begun: false,
            broken: false,
            index: 0,
            parts: BTreeMap::new(),
            blocks: ReplyBlocks::new(&stamp.id),
            open_text: None,
            tier: None,
            finish: None,
            asides: Map::new(),
            losses: Losses::new(),
        }
    }

    /// Writes `message_start` with the counts known so far.
    fn begin(&mut self, out: &mut Vec<u8>) {
        if self.begun {
            return;
        }
        self.begun = true;
        let usage = usage::write_usage(&self.usage.unwrap_or_default(), None, true);
        let usage = with_tier(usage, self.tier.take());
        let message = ObjectWriter::new()
            .set("id", self.id.as_str())
            .set("type", "message")
            .set("role", "assistant")
            .set("model", self.model.as_str())
            .set("content", Vec::<Value>::new())
            .set("stop_reason", Value::Null)
            .set("stop_sequence", Value::Null)
            .set("usage", usage);
        event("message_start", ObjectWriter::new().set("message", message), out);
    }

    fn open(&mut self, place: PartIndex, opening: PartStart, out: &mut Vec<u8>) {
        self.begin(out);
        self.refused |= matches!(opening, PartStart::Refusal);
        let what = match opening {
            PartStart::Text | PartStart::Refusal => GrowingKind::Text,
            PartStart::Thought => GrowingKind::Thought,
            PartStart::ToolCall { id, name, custom } => GrowingKind::Call { id, name, custom },
            PartStart::Complete(part) if self.hidden => GrowingKind::Whole(Box::new(hide(*part))),
            PartStart::Complete(part) => GrowingKind::Whole(part),
        };
        let growing = GrowingPart {
            what,
            waiting: Vec::new(),
            written_text: String::new(),
            citations: Vec::new(),
            seal: None,
            extras: Map::new(),
            started: false,
            closed: false,
        };
        self.parts.insert(place.slot, growing);
    }

    fn grow(&mut self, place: PartIndex, growth: PartDelta, out: &mut Vec<u8>) {
        let Some(part) = self.parts.get_mut(&place.slot) else { return };
        match growth {
            PartDelta::Text(text) if text.is_empty() => return,
            PartDelta::Text(_) if self.hidden && matches!(part.what, GrowingKind::Thought) => {
                return;
            }
            PartDelta::Text(text) => part.waiting.push(text),
            PartDelta::Citation(citation) => part.citations.push(citation),
            PartDelta::Extra { origin: WireFormat::Messages, name, value } => {
                part.extras.insert(name, value);
            }
            PartDelta::Extra { name, value, .. } => {
                note_foreign_field(&name, &value, "part", &mut self.losses);
            }
            PartDelta::Logprobs(_) => {
                self.losses.add("reply.logprobs", "the messages format has none")
            }
        }
        self.advance(out);
    }

    /// Writes everything that may be written by now.
    fn advance(&mut self, out: &mut Vec<u8>) {
        while let Some(mut first) = self.parts.first_entry() {
            let growing = first.get_mut();
            let mut writer = BlockWriter {
                index: &mut self.index,
                open_text: &mut self.open_text,
                losses: &mut self.losses,
                out: &mut *out,
            };
            writer.write(growing, &mut self.blocks);
            if !growing.closed {
                return;
            }
            first.remove();
        }
    }

    fn end(&mut self, finish: &Finish, out: &mut Vec<u8>) {
        let (reason, stop) = finish_words(Some(finish), self.refused, &mut self.losses);
        let mut delta = ObjectWriter::new().set("stop_reason", reason).set("stop_sequence", stop);
        for name in ["stop_details", "container"] {
            delta = delta.set_some(name, self.asides.shift_remove(name));
        }
        let other_fields = self.asides.shift_remove(USAGE_EXTRA);
        let usage =
            usage::write_usage(&self.usage.unwrap_or_default(), other_fields.as_ref(), false);
        let usage = with_tier(usage, self.tier.take());
        let body = ObjectWriter::new()
            .set("delta", delta)
            .set("usage", usage)
            .set_some("context_management", self.asides.shift_remove("context_management"));
        event("message_delta", body, out);
        write_stop(out);
        for (name, _) in std::mem::take(&mut self.asides) {
            self.losses.add(&format!("reply.{name}"), "a stream has no place for this field");
        }
    }
}

impl StreamWriter for MessagesStreamWriter {
    fn push(&mut self, event: Event, out: &mut Vec<u8>) {
        match event {
            // `message_start` waits for the counts, which some providers report right after their
            // first event.
            Event::Start { .. } => {}
            Event::Usage(usage) => self.usage = Some(usage),
            Event::PartStart(place, _) if place.candidate > 0 => {
                self.losses.add("candidates", "the messages format has a single candidate");
            }
            Event::PartStart(place, opening) => self.open(place, opening, out),
            Event::PartDelta(place, growth) if place.candidate == 0 => {
                self.grow(place, growth, out)
            }
            Event::PartSignature(place, seal) if place.candidate == 0 => {
                if let Some(part) = self.parts.get_mut(&place.slot) {
                    part.seal = Some(seal);
                }
            }
            Event::PartEnd(place) if place.candidate == 0 => {
                if let Some(part) = self.parts.get_mut(&place.slot) {
                    part.closed = true;
                }
                self.advance(out);
            }
            Event::PartDelta(..) | Event::PartSignature(..) | Event::PartEnd(_) => {}
            Event::Extra { origin: WireFormat::Messages, name, value, .. } => {
                self.asides.insert(name, value);
            }
            Event::Extra { origin, name, value, .. } => {
                let tier =
                    service_tier::note_reply_field(origin, &name, &value, ORIGIN, &mut self.losses);
                self.tier = tier.or(self.tier);
            }
            Event::Finish { candidate, finish } => {
                if candidate == 0 {
                    self.begin(out);
                    if self.open_text.take().is_some() {
                        write_block_stop(&mut self.index, out);
                    }
                    self.finish = Some(finish);
                }
            }
            Event::Error(fault) => {
                self.broken = true;
                write_error(&fault::write(&fault, None).1, out);
            }
        }
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Vec<Loss> {
        // Counts may arrive after the end, so the end is written only now. A reply without an end
        // stays open: its reader has reported an error.
        if !self.broken
            && let Some(finish) = self.finish.take()
        {
            self.end(&finish, out);
        }
        std::mem::take(&mut self.losses).into_vec()
    }
}

/// Writes an event, with its name both on a line of its own and in its data, as clients require.
fn event(kind: &'static str, body: ObjectWriter, out: &mut Vec<u8>) {
    for piece in ["event: ", kind, "\ndata: {\"type\":\"", kind, "\""] {
        out.extend_from_slice(piece.as_bytes());
    }
    let fields = body.to_json();
    if let Some(fields) = fields.get(1..).filter(|fields| fields.len() > 1) {
        out.push(b',');
        out.extend_from_slice(fields);
    } else {
        out.push(b'}');
    }
    out.extend_from_slice(b"\n\n");
}

/// Writes `message_stop`.
pub(super) fn write_stop(out: &mut Vec<u8>) {
    event("message_stop", ObjectWriter::new(), out);
}

/// Ends a reply at its output limit and closes the open block.
pub(super) fn write_truncated(open: Option<u32>, usage: &Usage, out: &mut Vec<u8>) {
    if let Some(index) = open {
        event("content_block_stop", ObjectWriter::new().set("index", index), out);
    }
    let delta =
        ObjectWriter::new().set("stop_reason", "max_tokens").set("stop_sequence", Value::Null);
    let usage = usage::write_usage(usage, None, false);
    event("message_delta", ObjectWriter::new().set("delta", delta).set("usage", usage), out);
    write_stop(out);
}

pub(super) fn write_error(body: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"event: error\ndata: ");
    out.extend_from_slice(body);
    out.extend_from_slice(b"\n\n");
}

fn write_block_stop(index: &mut u32, out: &mut Vec<u8>) {
    event("content_block_stop", ObjectWriter::new().set("index", *index), out);
    *index += 1;
}

/// Writes one block after the other.
struct BlockWriter<'a> {
    index: &'a mut u32,
    open_text: &'a mut Option<OpenText>,
    losses: &'a mut Losses,
    out: &'a mut Vec<u8>,
}

impl BlockWriter<'_> {
    fn start(&mut self, block: Value) {
        if let Some(before) = self.open_text.take() {
            self.stop();
            before.carriers().for_each(|carrier| self.whole(carrier));
        }
        let body = ObjectWriter::new().set("index", *self.index).set("content_block", block);
        event("content_block_start", body, self.out);
    }

    /// Writes a delta, the most frequent event, without building a tree.
    fn delta(&mut self, kind: &str, field: &str, text: &str) {
        const HEAD: &str =
            "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":";
        self.out.extend_from_slice(HEAD.as_bytes());
        json::write_value(self.index, self.out);
        for piece in [",\"delta\":{\"type\":\"", kind, "\",\"", field, "\":"] {
            self.out.extend_from_slice(piece.as_bytes());
        }
        json::write_string(text, self.out);
        self.out.extend_from_slice(b"}}\n\n");
    }

    fn stop(&mut self) {
        write_block_stop(self.index, self.out);
    }

    /// Writes a complete block in the deltas that clients expect of its kind.
    fn whole(&mut self, block: Value) {
        let Value::Object(mut fields) = block else { return };
        let kind = fields.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        let empty = |name: &str| (name.to_owned(), Value::from(""));
        match kind.as_str() {
            "text" => {
                let text = fields.insert("text".to_owned(), Value::from(""));
                let cited = fields.shift_remove("citations");
                self.start(Value::Object(fields));
                for citation in cited.iter().filter_map(Value::as_array).flatten() {
                    self.cite(citation.clone());
                }
                self.delta("text_delta", "text", text_in(text.as_ref()));
            }
            "thinking" => {
                let text = fields.insert("thinking".to_owned(), Value::from(""));
                let token = fields.shift_remove("signature");
                fields.extend([empty("signature")]);
                self.start(Value::Object(fields));
                for (kind, field, text) in
                    [("thinking_delta", "thinking", text), ("signature_delta", "signature", token)]
                {
                    let text = text_in(text.as_ref());
                    if !text.is_empty() {
                        self.delta(kind, field, text);
                    }
                }
            }
            _ if fields.get("input").is_some_and(Value::is_object) => {
                let none = Value::Object(Map::new());
                let input = fields.insert("input".to_owned(), none).unwrap_or_default();
                self.start(Value::Object(fields));
                self.delta("input_json_delta", "partial_json", &input.to_string());
            }
            _ => self.start(Value::Object(fields)),
        }
        self.stop();
    }

    fn cite(&mut self, citation: Value) {
        let delta = ObjectWriter::new().set("type", "citations_delta").set("citation", citation);
        let body = ObjectWriter::new().set("index", *self.index).set("delta", delta);
        event("content_block_delta", body, self.out);
    }

    /// Writes as much of a part as possible by now.
    fn write(&mut self, part: &mut GrowingPart, blocks: &mut ReplyBlocks) {
        match &part.what {
            GrowingKind::Text => self.text(part),
            GrowingKind::Thought => self.thought(part),
            GrowingKind::Call { .. } => self.call(part),
            GrowingKind::Whole(whole) => {
                if part.closed {
                    let Part { kind, signature: seal, cache_breakpoint: cache, mut extras } =
                        (**whole).clone();
                    for (name, value) in std::mem::take(&mut part.extras) {
                        extras.insert(ORIGIN, &name, value);
                    }
                    let seal = part.seal.take().or(seal);
                    let mut written = Vec::new();
                    blocks.write(
                        &Part { kind, signature: seal, cache_breakpoint: cache, extras },
                        &mut written,
                        self.losses,
                    );
                    for block in written {
                        self.whole(block);
                    }
                }
            }
        }
    }

    fn text(&mut self, part: &mut GrowingPart) {
        let mut waiting = std::mem::take(&mut part.waiting);
        let speaks = !waiting.is_empty() || !part.citations.is_empty();
        if speaks && !part.started {
            part.started = true;
            let sealed = part.seal.is_some();
            if !self.open_text.as_ref().is_some_and(|before| before.continues_with(sealed))
                || !part.extras.is_empty()
            {
                let mut block = ObjectWriter::new().set("type", "text").set("text", "").into_map();
                block.extend(std::mem::take(&mut part.extras));
                self.start(Value::Object(block));
                *self.open_text = Some(OpenText::default());
            }
        }
        for text in waiting.drain(..) {
            self.delta("text_delta", "text", &text);
            part.written_text.push_str(&text);
        }
        part.waiting = waiting;
        for citation in std::mem::take(&mut part.citations) {
            let written = write_citation(&citation, &part.written_text, self.losses);
            let Some(written) = written else { continue };
            self.cite(written);
        }
        if !part.closed {
            return;
        }
        self.note_late_fields(part);
        match (self.open_text.as_mut(), part.seal.take()) {
            (Some(open_text), seal) => open_text.add(&part.written_text, seal),
            (None, Some(seal)) => self.whole(signatures::carrier(&seal, &SignatureTarget::Text)),
            (None, None) => {}
        }
    }

    fn thought(&mut self, part: &mut GrowingPart) {
        let waiting = std::mem::take(&mut part.waiting);
        let speaks = !waiting.is_empty() || part.seal.is_some();
        if speaks && !part.started {
            part.started = true;
            let block = ObjectWriter::new().set("type", "thinking").set("thinking", "");
            let mut block = block.set("signature", "").into_map();
            block.extend(std::mem::take(&mut part.extras));
            self.start(Value::Object(block));
        }
        for text in &waiting {
            self.delta("thinking_delta", "thinking", text);
        }
        if part.closed && part.started {
            self.note_late_fields(part);
            if let Some(seal) = part.seal.take() {
                self.delta("signature_delta", "signature", &signatures::write(&seal));
            }
            self.stop();
        }
    }

    fn call(&mut self, part: &mut GrowingPart) {
        let GrowingKind::Call { id, name, custom } = &part.what else { return };
        if *custom {
            // Free-text input becomes a field of an object, so all of it is needed.
            if part.closed {
                let arguments = std::mem::take(&mut part.waiting).concat();
                let input: Value = ObjectWriter::new().set("input", arguments).into();
                part.waiting.push(input.to_string());
            } else {
                return;
            }
        }
        if !part.started && !part.closed && part.waiting.len() < 2 {
            return;
        }
        if !part.started {
            if let Some(seal) = part.seal.take() {
                self.whole(signatures::carrier(&seal, &SignatureTarget::Call(id)));
            }
            let block = ObjectWriter::new()
                .set("type", "tool_use")
                .set("id", tool_names::write(id).as_ref())
                .set("name", tool_names::write(name).as_ref())
                .set("input", Map::new());
            let mut block = block.into_map();
            block.extend(std::mem::take(&mut part.extras));
            part.started = true;
            self.start(Value::Object(block));
            // Clients require at least one arguments delta, even an empty one.
            self.delta("input_json_delta", "partial_json", "");
        }
        for text in std::mem::take(&mut part.waiting) {
            self.delta("input_json_delta", "partial_json", &text);
        }
        if part.closed {
            self.note_late_fields(part);
            self.stop();
            if let Some(seal) = part.seal.take()
                && let GrowingKind::Call { id, .. } = &part.what
            {
                self.whole(signatures::carrier(&seal, &SignatureTarget::Call(id)));
            }
        }
    }

    /// Notes fields that arrived after their block had begun.
    fn note_late_fields(&mut self, part: &GrowingPart) {
        for name in part.extras.keys() {
            self.losses.add(&format!("part.{name}"), "it came after its block had begun");
        }
    }
}

fn text_in(value: Option<&Value>) -> &str {
    value.and_then(Value::as_str).unwrap_or_default()
}

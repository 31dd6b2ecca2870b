//! Writes a messages stream, <https://docs.anthropic.com/en/docs/build-with-claude/streaming>.
//!
//! The format has one block open at a time. Of parts that grow in parallel, the first is written
//! live and the others wait.

use canon::{ChatRequest, Event, Finish, Loss, PartDelta, PartIndex, Usage, WireFormat};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

use super::names::ORIGIN;
use super::write_reply::{BlockOutput, PendingPart, ReplyBlocks, message};
use super::{fault, usage};
use crate::fields::{ObjectWriter, note_foreign_field};
use crate::service_tier::{self, TIER_FIELD, USAGE_EXTRA};
use crate::{ReplyStamp, StreamWriter, json};

/// Writes the events of a messages stream.
pub(super) struct MessagesStreamWriter {
    id: String,
    model: String,
    usage: Usage,
    begun: bool,
    broken: bool,
    /// Parts that are not completely written, in order. The first one is written live.
    parts: BTreeMap<u32, PendingPart>,
    blocks: ReplyBlocks<BlockEvents>,
    /// The service tier, until it is written.
    tier: Option<&'static str>,
    finish: Option<Finish>,
    /// Fields that only the provider's format has.
    asides: Map<String, Value>,
}

/// The blocks of a reply as events.
#[derive(Debug, Default)]
struct BlockEvents {
    /// The index of the next block.
    index: u32,
    out: Vec<u8>,
}

impl MessagesStreamWriter {
    pub(super) fn new(chat: &ChatRequest, stamp: &ReplyStamp) -> Self {
        Self {
            id: stamp.id.clone(),
            model: chat.model.clone(),
            usage: Usage::default(),
            begun: false,
            broken: false,
            parts: BTreeMap::new(),
            blocks: ReplyBlocks::new(BlockEvents::default(), chat, stamp),
            tier: None,
            finish: None,
            asides: Map::new(),
        }
    }

    /// Writes `message_start` with the counts known so far.
    fn begin(&mut self) {
        if self.begun {
            return;
        }
        self.begun = true;
        let usage = usage::write_usage(&self.usage, None, true);
        let message = message(&self.id, &self.model, usage.set_some(TIER_FIELD, self.tier.take()));
        let start = ObjectWriter::new().set("message", message);
        write_event("message_start", start, &mut self.blocks.output.out);
    }

    fn grow(&mut self, place: PartIndex, delta: PartDelta) {
        let Some(part) = self.parts.get_mut(&place.slot) else { return };
        match delta {
            PartDelta::Text(text) if text.is_empty() => return,
            PartDelta::Text(text) => part.waiting.push(text),
            PartDelta::Citation(citation) => part.citations.push(citation),
            PartDelta::Extra { origin: WireFormat::Messages, name, value } => {
                part.extras.insert(name, value);
            }
            PartDelta::Extra { name, value, .. } => {
                note_foreign_field(&name, &value, "part", &mut self.blocks.losses);
            }
            PartDelta::Logprobs(_) => {
                self.blocks.losses.add("reply.logprobs", "the messages format has none");
            }
        }
        self.advance();
    }

    /// Writes everything that may be written by now.
    fn advance(&mut self) {
        while let Some(mut first) = self.parts.first_entry() {
            self.blocks.write(first.get_mut());
            if !first.get().closed {
                return;
            }
            first.remove();
        }
    }

    fn end(&mut self, finish: &Finish) {
        let (reason, stop) = self.blocks.finish_words(Some(finish));
        let mut delta = ObjectWriter::new().set("stop_reason", reason).set("stop_sequence", stop);
        for name in ["stop_details", "container"] {
            delta = delta.set_some(name, self.asides.shift_remove(name));
        }
        let other_usage = self.asides.shift_remove(USAGE_EXTRA);
        let usage = usage::write_usage(&self.usage, other_usage.as_ref(), false);
        let body = ObjectWriter::new()
            .set("delta", delta)
            .set("usage", usage.set_some(TIER_FIELD, self.tier.take()))
            .set_some("context_management", self.asides.shift_remove("context_management"));
        write_event("message_delta", body, &mut self.blocks.output.out);
        write_stop(&mut self.blocks.output.out);
        for (name, _) in std::mem::take(&mut self.asides) {
            let why = "a stream has no place for this field";
            self.blocks.losses.add(&format!("reply.{name}"), why);
        }
    }

    fn write(&mut self, event: Event) {
        match event {
            // `message_start` waits for the counts, which some providers report right after their
            // first event.
            Event::Start { .. } => {}
            Event::Usage(usage) => self.usage = usage,
            Event::PartStart(place, _) if place.candidate > 0 => {
                let why = "the messages format has a single candidate";
                self.blocks.losses.add("candidates", why);
            }
            Event::PartStart(place, start) => {
                self.begin();
                let part = PendingPart::new(start, &mut self.blocks.losses);
                self.parts.insert(place.slot, part);
            }
            Event::PartDelta(place, delta) if place.candidate == 0 => self.grow(place, delta),
            Event::PartSignature(place, signature) if place.candidate == 0 => {
                if let Some(part) = self.parts.get_mut(&place.slot) {
                    part.signature = Some(signature);
                }
            }
            Event::PartEnd(place) if place.candidate == 0 => {
                if let Some(part) = self.parts.get_mut(&place.slot) {
                    part.closed = true;
                }
                self.advance();
            }
            Event::PartDelta(..) | Event::PartSignature(..) | Event::PartEnd(_) => {}
            Event::Extra { origin: WireFormat::Messages, name, value, .. } => {
                self.asides.insert(name, value);
            }
            Event::Extra { origin, name, value, .. } => {
                let losses = &mut self.blocks.losses;
                let tier = service_tier::note_reply_field(origin, &name, &value, ORIGIN, losses);
                self.tier = tier.or(self.tier);
            }
            Event::Finish { candidate: 0, finish } => {
                self.begin();
                self.blocks.close_text(true);
                self.finish = Some(finish);
            }
            Event::Finish { .. } => {}
            Event::Error(fault) => {
                self.broken = true;
                write_error(&fault::write(&fault, None).1, &mut self.blocks.output.out);
            }
        }
    }
}

impl StreamWriter for MessagesStreamWriter {
    fn push(&mut self, event: Event, out: &mut Vec<u8>) {
        std::mem::swap(&mut self.blocks.output.out, out);
        self.write(event);
        std::mem::swap(&mut self.blocks.output.out, out);
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Vec<Loss> {
        // Counts may arrive after the end, so the end is written only now. A reply without an end
        // stays open: its reader has reported an error.
        if let Some(finish) = self.finish.take().filter(|_| !self.broken) {
            std::mem::swap(&mut self.blocks.output.out, out);
            self.end(&finish);
            std::mem::swap(&mut self.blocks.output.out, out);
        }
        std::mem::take(&mut self.blocks.losses).into_vec()
    }
}

/// Writes an event, with its name both on a line of its own and in its data, as clients require.
fn write_event(kind: &'static str, body: ObjectWriter, out: &mut Vec<u8>) {
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
    write_event("message_stop", ObjectWriter::new(), out);
}

/// Ends a reply at its output limit and closes the open block.
pub(super) fn write_truncated(open: Option<u32>, usage: &Usage, out: &mut Vec<u8>) {
    if let Some(index) = open {
        write_event("content_block_stop", ObjectWriter::new().set("index", index), out);
    }
    let delta =
        ObjectWriter::new().set("stop_reason", "max_tokens").set("stop_sequence", Value::Null);
    let usage = usage::write_usage(usage, None, false);
    write_event("message_delta", ObjectWriter::new().set("delta", delta).set("usage", usage), out);
    write_stop(out);
}

pub(super) fn write_error(body: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"event: error\ndata: ");
    out.extend_from_slice(body);
    out.extend_from_slice(b"\n\n");
}

impl BlockEvents {
    fn event(&mut self, kind: &'static str, body: ObjectWriter) {
        write_event(kind, body, &mut self.out);
    }
}

impl BlockOutput for BlockEvents {
    fn start(&mut self, block: Map<String, Value>) {
        let body = ObjectWriter::new().set("index", self.index).set("content_block", block);
        self.event("content_block_start", body);
    }

    /// Writes a delta, the most frequent event, without building a tree.
    fn grow(&mut self, delta: &str, field: &str, text: &str) {
        const HEAD: &str =
            "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":";
        self.out.extend_from_slice(HEAD.as_bytes());
        json::write_value(&self.index, &mut self.out);
        for piece in [",\"delta\":{\"type\":\"", delta, "\",\"", field, "\":"] {
            self.out.extend_from_slice(piece.as_bytes());
        }
        json::write_string(text, &mut self.out);
        self.out.extend_from_slice(b"}}\n\n");
    }

    fn cite(&mut self, citation: Value) {
        let delta = ObjectWriter::typed("citations_delta").set("citation", citation);
        let body = ObjectWriter::new().set("index", self.index).set("delta", delta);
        self.event("content_block_delta", body);
    }

    fn stop(&mut self) {
        self.event("content_block_stop", ObjectWriter::new().set("index", self.index));
        self.index += 1;
    }

    /// Writes a complete block in the deltas that clients expect of its kind.
    fn write(&mut self, block: Value) {
        let Value::Object(mut fields) = block else { return };
        let is_text = fields.get("type").and_then(Value::as_str) == Some("text");
        let citations = if is_text { fields.shift_remove("citations") } else { None };
        let grown = match fields.get_mut(if is_text { "text" } else { "input" }) {
            Some(Value::String(text)) if is_text => {
                Some(("text_delta", "text", std::mem::take(text)))
            }
            Some(Value::Object(input)) => {
                let input = Value::Object(std::mem::take(input)).to_string();
                Some(("input_json_delta", "partial_json", input))
            }
            _ => None,
        };
        self.start(fields);
        for citation in citations.as_ref().and_then(Value::as_array).into_iter().flatten() {
            self.cite(citation.clone());
        }
        if let Some((delta, field, text)) = grown {
            self.grow(delta, field, &text);
        }
        self.stop();
    }

    fn write_before_last(&mut self, _block: Value) -> bool {
        false
    }
}

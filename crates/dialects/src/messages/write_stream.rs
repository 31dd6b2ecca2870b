//! Writes a messages stream, <https://docs.anthropic.com/en/docs/build-with-claude/streaming>.
//!
//! The format has one block open at a time. Of parts that grow in parallel, the first is written
//! live and the others wait.

use canon::{ChatRequest, Event, Finish, Loss, ToolCall, Usage};
use serde_json::{Map, Value};

use super::write_reply::{BlockOutput, ReplyBlocks, STANDARD_TIER, message};
use super::{fault, usage, write_content};
use crate::fields::ObjectWriter;
use crate::service_tier::{TIER_FIELD, USAGE_EXTRA};
use crate::sse::write_event;
use crate::text_run::TextFrame;
use crate::write_json::ObjectText;
use crate::{ReplyStamp, StreamFrame, StreamWriter, TextRun, json};

/// Writes the events of a messages stream.
pub(super) struct MessagesStreamWriter {
    id: String,
    model: String,
    /// The counts in `message_start`, once it is written.
    begun: Option<Usage>,
    broken: bool,
    blocks: ReplyBlocks<BlockEvents>,
}

/// The blocks of a reply as events.
#[derive(Debug, Default)]
struct BlockEvents {
    /// The index of the next block.
    index: u32,
    /// The kind of the last delta of the block, and the bytes around its text.
    delta: (&'static str, TextFrame),
    out: Vec<u8>,
}

impl MessagesStreamWriter {
    pub(super) fn new(chat: &ChatRequest, stamp: &ReplyStamp) -> Self {
        Self {
            id: stamp.id.clone(),
            model: chat.model.clone(),
            begun: None,
            broken: false,
            blocks: ReplyBlocks::new(chat, stamp),
        }
    }

    /// Writes `message_start` with the counts known so far.
    fn begin(&mut self) {
        let ReplyBlocks { output, usage, tier, .. } = &mut self.blocks;
        let usage = |object: ObjectWriter| {
            let object = usage::write_usage(object, usage, None, true);
            object.set(TIER_FIELD, tier.take().unwrap_or(STANDARD_TIER))
        };
        let (named, end) = ((&*self.id, &*self.model), (Value::Null, Value::Null));
        write_event("message_start", &mut output.out, |event| {
            event.nest("message", |object| message(object, named, &[], end, usage))
        });
    }

    fn end(&mut self, finish: &Finish) {
        let (reason, stop) = self.blocks.finish_words(Some(finish));
        let ReplyBlocks { output, losses, usage, tier, extras, .. } = &mut self.blocks;
        let delta = ObjectWriter::new()
            .set("stop_reason", reason)
            .set("stop_sequence", stop)
            .set_some("stop_details", extras.shift_remove("stop_details"))
            .set_some("container", extras.shift_remove("container"));
        let other_usage = extras.shift_remove(USAGE_EXTRA);
        // `message_start` has said the usual tier, and the cache counts known then.
        let split = |usage: &Usage| (usage.cache_write, usage.cache_write_long);
        let told = self.begun.as_ref().map(split).unwrap_or_default();
        let (short, long) = split(usage);
        let is_new = told != (short, long);
        let usage = |object: ObjectWriter| {
            usage::write_usage(object, usage, other_usage.as_ref(), false)
                .nest_if(is_new, "cache_creation", |object| {
                    usage::write_cache_split(object, short, long)
                })
                .set_some(TIER_FIELD, tier.take().filter(|tier| *tier != STANDARD_TIER))
        };
        let context = extras.shift_remove("context_management");
        write_event("message_delta", &mut output.out, |event| {
            event.set("delta", delta).nest("usage", usage).set_some("context_management", context)
        });
        write_stop(&mut output.out);
        for name in extras.keys() {
            losses.add(&format!("reply.{name}"), "a stream has no place for this field");
        }
    }
}

impl StreamWriter for MessagesStreamWriter {
    fn push(&mut self, event: Event, out: &mut Vec<u8>) {
        std::mem::swap(&mut self.blocks.output.out, out);
        // `message_start` waits for the counts, which some providers report right after their
        // first event.
        let begins = match &event {
            Event::PartStart(place, _) => place.candidate == 0,
            Event::Finish { candidate, .. } => *candidate == 0,
            _ => false,
        };
        if begins && self.begun.is_none() {
            self.begun = Some(self.blocks.usage);
            self.begin();
        }
        if let Event::Error(fault) = &event {
            self.broken = true;
            let body = StreamFrame::data(fault::write(fault, None).1);
            body.write_named(Some(b"error"), &mut self.blocks.output.out);
        }
        self.blocks.push(event);
        std::mem::swap(&mut self.blocks.output.out, out);
    }

    fn push_run(&mut self, run: &TextRun, out: &mut Vec<u8>) {
        std::mem::swap(&mut self.blocks.output.out, out);
        let is_written = self.blocks.push_run(run);
        std::mem::swap(&mut self.blocks.output.out, out);
        if !is_written {
            run.events().for_each(|event| self.push(event, out));
        }
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Vec<Loss> {
        // Counts may arrive after the end, so the end is written only now. A reply without an end
        // stays open: its reader has reported an error.
        if let Some(finish) = self.blocks.finish.take().filter(|_| !self.broken) {
            std::mem::swap(&mut self.blocks.output.out, out);
            self.end(&finish);
            std::mem::swap(&mut self.blocks.output.out, out);
        }
        std::mem::take(&mut self.blocks.losses).into_vec()
    }
}

/// Writes `message_stop`.
pub(super) fn write_stop(out: &mut Vec<u8>) {
    out.extend_from_slice(b"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
}

/// Ends a reply at its output limit and closes the open block.
pub(super) fn write_truncated(open: Option<u32>, usage: &Usage, out: &mut Vec<u8>) {
    if let Some(index) = open {
        write_event("content_block_stop", out, |event| event.set("index", index));
    }
    let delta =
        ObjectWriter::new().set("stop_reason", "max_tokens").set("stop_sequence", Value::Null);
    let usage = |object: ObjectWriter| usage::write_usage(object, usage, None, false);
    write_event("message_delta", out, |event| event.set("delta", delta).nest("usage", usage));
    write_stop(out);
}

impl BlockEvents {
    /// Sets the bytes around the text of a delta.
    fn set_delta(&mut self, delta: &'static str, field: &str) {
        let Self { index, delta: (last, frame), .. } = self;
        if *last != delta {
            let index = index.to_string();
            *last = delta;
            let before = [
                "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":",
                &index,
                ",\"delta\":{\"type\":\"",
                delta,
                "\",\"",
                field,
                "\":\"",
            ];
            *frame = TextFrame::new(&before.map(str::as_bytes), &[b"\"}}\n\n"]);
        }
    }
}

impl BlockOutput for BlockEvents {
    fn start_text(&mut self) {
        let event = [
            "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":",
            &self.index.to_string(),
            ",\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
        ];
        event.into_iter().for_each(|piece| self.out.extend_from_slice(piece.as_bytes()));
    }

    fn start(&mut self, block: Value) {
        write_event("content_block_start", &mut self.out, |event| {
            event.set("index", self.index).set("content_block", block)
        });
    }

    /// Writes a delta, the most frequent event.
    fn grow(&mut self, delta: &'static str, field: &str, text: &str) {
        self.set_delta(delta, field);
        let Self { delta: (_, frame), out, .. } = self;
        out.reserve(frame.between().len() + text.len());
        out.extend_from_slice(frame.before());
        json::write_in_string(text, out);
        out.extend_from_slice(frame.after());
    }

    fn grow_run(&mut self, delta: &'static str, field: &str, run: &TextRun) {
        self.set_delta(delta, field);
        run.write(&self.delta.1, &mut self.out);
    }

    fn cite(&mut self, citation: Value) {
        let delta = ObjectWriter::typed("citations_delta").set("citation", citation);
        write_event("content_block_delta", &mut self.out, |event| {
            event.set("index", self.index).set("delta", delta)
        });
    }

    fn stop(&mut self) {
        let event = [
            "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":",
            &self.index.to_string(),
            "}\n\n",
        ];
        event.into_iter().for_each(|piece| self.out.extend_from_slice(piece.as_bytes()));
        self.index += 1;
        self.delta.0 = "";
    }

    fn write_call(&mut self, call: &ToolCall, extras: &Map<String, Value>) {
        let block = write_content::call_block((&call.id, &call.name), ObjectWriter::new())
            .with_fields(extras);
        write_event("content_block_start", &mut self.out, |event| {
            event.set("index", self.index).set("content_block", block)
        });
        self.grow("input_json_delta", "partial_json", &ObjectText::of_call(call).to_json());
        self.stop();
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
        self.start(Value::Object(fields));
        for citation in citations.as_ref().and_then(Value::as_array).into_iter().flatten() {
            self.cite(citation.clone());
        }
        if let Some((delta, field, text)) = grown {
            self.grow(delta, field, &text);
        }
        self.stop();
    }
}

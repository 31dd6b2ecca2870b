//! Reads a provider's stream into events,
//! <https://docs.anthropic.com/en/docs/build-with-claude/streaming>.
//!
//! Text, thinking and calls grow as they arrive. Every other block is collected until it stops and
//! then read as in a whole reply, so that a stream and a whole reply give the same parts.

use canon::{ApiError, ErrorKind, Event, Part, PartDelta, PartIndex, PartStart};
use serde::Deserialize as _;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::names::ORIGIN;
use super::own::tool_names;
use super::signatures::{self, BlockAuthor};
use super::{fault, read_content, read_reply, wire};
use crate::repeated_text::TextReader;
use crate::service_tier::USAGE_EXTRA;
use crate::sse::{not_json, out_of_order};
use crate::{StreamFrame, StreamReader};

/// Reads the events of a messages stream.
#[derive(Default)]
pub(super) struct MessagesStreamReader {
    begun: bool,
    ended: bool,
    done: bool,
    slots: u32,
    open: Vec<OpenBlock>,
    counts: Option<wire::MessagesUsage>,
    other_fields: Map<String, Value>,
}

/// A block that has begun and not stopped.
struct OpenBlock {
    index: u32,
    block: BlockState,
}

enum BlockState {
    /// Text. Its citations are reported when its length is known.
    Text {
        slot: u32,
        length: usize,
        citations: Vec<Value>,
    },
    Thought {
        slot: u32,
        signature: String,
    },
    Call {
        slot: u32,
        input: Option<Value>,
        has_deltas: bool,
    },
    /// Any other block, collected until it stops.
    Other {
        value: Map<String, Value>,
        input: String,
    },
}

impl StreamReader for MessagesStreamReader {
    fn push(&mut self, frame: &StreamFrame, out: &mut Vec<Event>) -> Result<(), ApiError> {
        if self.done {
            return Ok(());
        }
        frame.check_object()?;
        let text = frame.text();
        let event: wire::MessagesEvent<'_> =
            serde_json::from_str(&text).map_err(|e| not_json(&e))?;
        let named = || frame.event.as_deref().and_then(|name| std::str::from_utf8(name).ok());
        match event.r#type.as_deref().or_else(named).unwrap_or_default() {
            "message_start" => self.start(&event, out),
            "content_block_start" => {
                self.begin(out);
                self.block_start(&event, out)
            }
            "content_block_delta" => self.block_delta(&event, &text, out),
            "content_block_stop" => self.block_stop(event.index.unwrap_or(0), out),
            "message_delta" => {
                self.begin(out);
                self.message_delta(event, out)
            }
            "message_stop" => {
                self.done = true;
                self.finish(out)
            }
            "error" => Err(fault::read_object(&value(event.error))),
            // A ping, or an event this version does not know.
            _ => Ok(()),
        }
    }

    fn finish(&mut self, _out: &mut Vec<Event>) -> Result<(), ApiError> {
        if self.ended {
            return Ok(());
        }
        Err(ApiError::new(ErrorKind::Interrupted, "the provider's answer broke off before its end")
            .with_log_note("the messages stream ended without a stop reason"))
    }

    fn is_done(&self) -> bool {
        self.done
    }
}

impl TextReader for MessagesStreamReader {
    fn push_text(&mut self, place: PartIndex, text: &str) -> bool {
        for open in &mut self.open {
            if let BlockState::Text { slot, length, .. } = &mut open.block
                && *slot == place.slot
            {
                *length += text.chars().count();
            }
        }
        true
    }
}

fn value(raw: Option<&RawValue>) -> Value {
    raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
}

fn object(raw: Option<&RawValue>) -> Map<String, Value> {
    match value(raw) {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

fn aside(candidate: Option<u32>, name: &str, value: Value) -> Option<Event> {
    let name = name.to_owned();
    (!value.is_null()).then_some(Event::Extra { candidate, origin: ORIGIN, name, value })
}

impl MessagesStreamReader {
    fn start(
        &mut self,
        event: &wire::MessagesEvent<'_>,
        out: &mut Vec<Event>,
    ) -> Result<(), ApiError> {
        if self.begun {
            return Err(second_start_error());
        }
        self.begun = true;
        let mut message = object(event.message);
        let mut text = |name: &str| match message.shift_remove(name) {
            Some(Value::String(text)) if !text.is_empty() => Some(text),
            _ => None,
        };
        let (id, model) = (text("id"), text("model"));
        out.push(Event::Start { id, model, created: None });
        if let Some(Value::Object(usage)) = message.shift_remove("usage") {
            self.count(usage, wire::MessagesUsage::opening, out);
        }
        let begun = ["type", "role", "content", "stop_reason", "stop_sequence", "stop_details"];
        for (name, value) in message {
            if !begun.contains(&name.as_str()) {
                out.extend(aside(None, &name, value));
            }
        }
        Ok(())
    }

    /// Begins a reply whose stream has no `message_start`.
    fn begin(&mut self, out: &mut Vec<Event>) {
        if !self.begun {
            self.begun = true;
            out.push(Event::Start { id: None, model: None, created: None });
        }
    }

    fn count(
        &mut self,
        usage: Map<String, Value>,
        trusted: fn(wire::MessagesUsage) -> wire::MessagesUsage,
        out: &mut Vec<Event>,
    ) {
        let later = wire::MessagesUsage::deserialize(&usage).ok();
        if let Some(later) = later.map(trusted) {
            let counts = self.counts.take().unwrap_or_default().then(later);
            out.push(Event::Usage(counts.read()));
            self.counts = Some(counts);
        }
        for (name, value) in wire::other_fields(usage) {
            self.other_fields.insert(name, value);
        }
    }

    fn slot(&mut self) -> u32 {
        self.slots += 1;
        self.slots - 1
    }

    fn block_start(
        &mut self,
        event: &wire::MessagesEvent<'_>,
        out: &mut Vec<Event>,
    ) -> Result<(), ApiError> {
        if self.ended {
            return Err(out_of_order("a content block after the stop reason"));
        }
        let index = event.index.unwrap_or(0);
        // Ends a block that never stopped and whose index is reused now.
        self.block_stop(index, out)?;
        let mut value = object(event.content_block);
        let word = value.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        let text = |value: &mut Map<String, Value>, name: &str| match value.shift_remove(name) {
            Some(Value::String(text)) => text,
            _ => String::new(),
        };
        let block = match word.as_str() {
            "text" => {
                let slot = self.slot();
                out.push(Event::PartStart(PartIndex::first(slot), PartStart::Text));
                let text_delta = text(&mut value, "text");
                let length = text_delta.chars().count();
                grow(slot, text_delta, out);
                let citations = match value.shift_remove("citations") {
                    Some(Value::Array(list)) => list,
                    _ => Vec::new(),
                };
                extras(slot, value, out);
                BlockState::Text { slot, length, citations }
            }
            "thinking" => {
                let slot = self.slot();
                out.push(Event::PartStart(PartIndex::first(slot), PartStart::Thought));
                let text_delta = text(&mut value, "thinking");
                let signature = text(&mut value, "signature");
                grow(slot, text_delta, out);
                extras(slot, value, out);
                BlockState::Thought { slot, signature }
            }
            "tool_use" => {
                let slot = self.slot();
                let id = tool_names::read(text(&mut value, "id"));
                let name = tool_names::read(text(&mut value, "name"));
                let call = PartStart::ToolCall { id, name, custom: false };
                out.push(Event::PartStart(PartIndex::first(slot), call));
                let input = value.shift_remove("input").filter(|input| !input.is_null());
                extras(slot, value, out);
                BlockState::Call { slot, input, has_deltas: false }
            }
            _ => BlockState::Other { value, input: String::new() },
        };
        self.open.push(OpenBlock { index, block });
        Ok(())
    }

    fn block_delta(
        &mut self,
        event: &wire::MessagesEvent<'_>,
        text: &str,
        out: &mut Vec<Event>,
    ) -> Result<(), ApiError> {
        let index = event.index.unwrap_or(0);
        let Some(delta) = &event.delta else { return Ok(()) };
        let kind = delta.r#type.as_deref().unwrap_or_default();
        if !self.open.iter().any(|open| open.index == index) {
            self.open_without_start(index, kind, out)?;
        }
        let Some(open) = self.open.iter_mut().find(|open| open.index == index) else {
            return Ok(());
        };
        let owned = |text: &Option<std::borrow::Cow<'_, str>>| {
            text.as_deref().unwrap_or_default().to_owned()
        };
        match (&mut open.block, kind) {
            (BlockState::Text { slot, length, .. }, "text_delta") => {
                let text_delta = owned(&delta.text);
                *length += text_delta.chars().count();
                grow(*slot, text_delta, out);
            }
            (BlockState::Text { citations, .. }, "citations_delta") => {
                citations.push(value(delta.citation));
            }
            (BlockState::Thought { slot, .. }, "thinking_delta") => {
                grow(*slot, owned(&delta.thinking), out);
            }
            (BlockState::Thought { signature, .. }, "signature_delta") => {
                *signature = owned(&delta.signature);
            }
            (BlockState::Call { slot, has_deltas, .. }, "input_json_delta") => {
                let text_delta = owned(&delta.partial_json);
                *has_deltas |= !text_delta.is_empty();
                grow(*slot, text_delta, out);
            }
            (BlockState::Other { input, .. }, "input_json_delta") => {
                input.push_str(delta.partial_json.as_deref().unwrap_or_default());
            }
            (BlockState::Other { value, .. }, _) => gather(value, delta_fields(text)),
            (
                BlockState::Text { slot, .. }
                | BlockState::Thought { slot, .. }
                | BlockState::Call { slot, .. },
                kind,
            ) => {
                let fields = Map::from_iter([(kind.to_owned(), Value::Object(delta_fields(text)))]);
                extras(*slot, fields, out);
            }
        }
        Ok(())
    }

    /// Opens the block of a delta that came without its `content_block_start`. Only the blocks whose
    /// start says nothing else can be repaired.
    fn open_without_start(
        &mut self,
        index: u32,
        kind: &str,
        out: &mut Vec<Event>,
    ) -> Result<(), ApiError> {
        let opening = match kind {
            "text_delta" | "citations_delta" => PartStart::Text,
            "thinking_delta" | "signature_delta" => PartStart::Thought,
            _ => return Err(out_of_order("a delta of a block that never started")),
        };
        if self.ended {
            return Err(out_of_order("a delta after the stop reason"));
        }
        self.begin(out);
        let slot = self.slot();
        let block = match opening {
            PartStart::Thought => BlockState::Thought { slot, signature: String::new() },
            _ => BlockState::Text { slot, length: 0, citations: Vec::new() },
        };
        out.push(Event::PartStart(PartIndex::first(slot), opening));
        self.open.push(OpenBlock { index, block });
        Ok(())
    }

    fn block_stop(&mut self, index: u32, out: &mut Vec<Event>) -> Result<(), ApiError> {
        let Some(at) = self.open.iter().position(|open| open.index == index) else {
            return Ok(());
        };
        let slot = match self.open.remove(at).block {
            BlockState::Text { slot, length, citations } => {
                let place = PartIndex::first(slot);
                out.extend(citations.into_iter().map(|value| {
                    Event::PartDelta(
                        place,
                        PartDelta::Citation(read_content::read_citation(value, length)),
                    )
                }));
                slot
            }
            BlockState::Thought { slot, signature } => {
                let seal = signatures::read(signature, BlockAuthor::Answer);
                out.extend(seal.map(|seal| Event::PartSignature(PartIndex::first(slot), seal)));
                slot
            }
            BlockState::Call { slot, input, has_deltas } => {
                if !has_deltas {
                    // Without deltas, the arguments are those of the block start, or none.
                    let input = input.unwrap_or_else(|| Value::Object(Map::new()));
                    grow(slot, input.to_string(), out);
                }
                slot
            }
            BlockState::Other { mut value, input } => {
                if let Ok(input) = serde_json::from_str::<Value>(&input) {
                    value.insert("input".to_owned(), input);
                }
                let part = read_content::read_value(&Value::Object(value), BlockAuthor::Answer)
                    .map_err(|e| {
                        ApiError::new(ErrorKind::Interrupted, "the provider sent a broken block")
                            .with_log_note(e.to_string())
                    })?;
                let slot = self.slot();
                let Part { kind, signature: seal, cache_breakpoint: cache, extras } = part;
                let whole = Part { kind, signature: None, cache_breakpoint: cache, extras };
                let place = PartIndex::first(slot);
                out.push(Event::PartStart(place, PartStart::Complete(Box::new(whole))));
                out.extend(seal.map(|seal| Event::PartSignature(place, seal)));
                slot
            }
        };
        out.push(Event::PartEnd(PartIndex::first(slot)));
        Ok(())
    }

    fn message_delta(
        &mut self,
        event: wire::MessagesEvent<'_>,
        out: &mut Vec<Event>,
    ) -> Result<(), ApiError> {
        let delta = event.delta.unwrap_or_default();
        let usage = object(event.usage);
        if !usage.is_empty() {
            self.count(usage, |counts| counts, out);
        }
        out.extend(aside(None, "container", value(delta.container)));
        out.extend(aside(None, "context_management", value(event.context_management)));
        let Some(word) = delta.stop_reason else { return Ok(()) };
        if self.ended {
            return Ok(());
        }
        while let Some(open) = self.open.first() {
            let index = open.index;
            self.block_stop(index, out)?;
        }
        self.ended = true;
        if !self.other_fields.is_empty() {
            let other_fields = Value::Object(std::mem::take(&mut self.other_fields));
            out.extend(aside(None, USAGE_EXTRA, other_fields));
        }
        out.extend(aside(Some(0), "stop_details", value(delta.stop_details)));
        let stop = delta.stop_sequence.map(|stop| stop.into_owned());
        out.push(Event::Finish { candidate: 0, finish: read_reply::finish(&word, stop) });
        Ok(())
    }
}

/// Returns the error for a second `message_start` within one stream.
pub(super) fn second_start_error() -> ApiError {
    ApiError::new(ErrorKind::Interrupted, "the provider began a second answer within the first")
        .with_log_note("a second message_start in one messages stream")
}

fn grow(slot: u32, text: String, out: &mut Vec<Event>) {
    if !text.is_empty() {
        out.push(Event::PartDelta(PartIndex::first(slot), PartDelta::Text(text)));
    }
}

/// Emits the remaining fields of a block start.
fn extras(slot: u32, fields: Map<String, Value>, out: &mut Vec<Event>) {
    for (name, value) in fields {
        if name != "type" && !value.is_null() {
            out.push(Event::PartDelta(
                PartIndex::first(slot),
                PartDelta::Extra { origin: ORIGIN, name, value },
            ));
        }
    }
}

/// Returns all fields of the delta, for kinds this version does not know.
fn delta_fields(text: &str) -> Map<String, Value> {
    let mut event: Value = serde_json::from_str(text).unwrap_or_default();
    match event.get_mut("delta").map(Value::take) {
        Some(Value::Object(delta)) => delta,
        _ => Map::new(),
    }
}

/// Adds an unknown delta to a collected block: strings grow, other values are replaced.
fn gather(block: &mut Map<String, Value>, delta: Map<String, Value>) {
    for (name, value) in delta {
        if name == "type" {
            continue;
        }
        match (block.get_mut(&name), value) {
            (Some(Value::String(text)), Value::String(more)) => text.push_str(&more),
            (_, value) => {
                block.insert(name, value);
            }
        }
    }
}

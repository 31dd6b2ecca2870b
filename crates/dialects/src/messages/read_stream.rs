//! Reads a provider's stream into events,
//! <https://docs.anthropic.com/en/docs/build-with-claude/streaming>.
//!
//! Text, thinking and calls grow as they arrive. Every other block is collected until it stops and
//! then read at once.

use canon::{
    ApiError, ErrorKind, Event, Finish, PartDelta, PartIndex, PartStart, RawReason, scrub_value,
};
use serde_json::{Map, Value};
use std::fmt::Display;

use super::fault;
use super::names::ORIGIN;
use super::own::plain_reply;
use super::own::tool_names;
use super::read_content;
use super::reply::{
    MessagesDelta, MessagesEvent, MessagesReplyBlock, MessagesReplyText, MessagesReplyThinking,
    MessagesReplyView, STOP_DETAILS,
};
use super::signatures::{self, ContentAuthor};
use super::usage::{MessagesCounts, MessagesUsage};
use crate::endings;
use crate::json;
use crate::repeated_text::TextReader;
use crate::service_tier::USAGE_EXTRA;
use crate::sse::out_of_order;
use crate::text::{BorrowedText, char_count, owned, present};
use crate::upstream_error::ensure_ended;
use crate::value_count::{MAX_REQUEST_VALUES, count_values};
use crate::wire_object::raw_value;
use crate::{StreamFrame, StreamReader};

/// Reads the events of a messages stream.
#[derive(Default)]
pub(super) struct MessagesStreamReader {
    begun: bool,
    ended: bool,
    done: bool,
    slots: u32,
    /// Blocks that have begun and not stopped.
    open: Vec<OpenBlock>,
    counts: MessagesCounts,
    other_usage: Map<String, Value>,
}

#[derive(Clone, Copy, Default)]
enum BlockKind {
    Text,
    Thought,
    Call,
    /// Any other block, collected until it stops.
    #[default]
    Other,
}

#[derive(Default)]
struct OpenBlock {
    index: u32,
    slot: u32,
    kind: BlockKind,
    /// Length of a text in characters. Its citations are reported when it is known.
    length: usize,
    citations: Vec<Value>,
    /// The signature of a thought, or the arguments that are not reported yet.
    pending: String,
    /// True if arguments came in deltas. Else they are those of the block start.
    has_deltas: bool,
    fields: Map<String, Value>,
}

impl StreamReader for MessagesStreamReader {
    fn push(&mut self, frame: &StreamFrame, out: &mut Vec<Event>) -> Result<(), ApiError> {
        if self.done {
            return Ok(());
        }
        if let Some(read) = self.push_block_event(&frame.data, out) {
            return read;
        }
        match plain_reply::read_event(&frame.data) {
            Some(event) => self.push_view(frame, event, out),
            None => self.push_parsed(frame, out),
        }
    }

    fn finish(&mut self, _out: &mut Vec<Event>) -> Result<(), ApiError> {
        ensure_ended(self.ended, "the messages stream ended without a stop reason")
    }

    fn is_done(&self) -> bool {
        self.done
    }
}

impl TextReader for MessagesStreamReader {
    fn can_repeat(&self, _place: PartIndex) -> bool {
        true
    }

    fn push_text(&mut self, place: PartIndex, text: &str) {
        let is_text =
            |open: &&mut OpenBlock| open.slot == place.slot && matches!(open.kind, BlockKind::Text);
        if let Some(open) = self.open.iter_mut().find(is_text) {
            open.length += char_count(text);
        }
    }
}

/// Returns the index at the beginning of these bytes, and the bytes behind it.
fn split_index(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, rest) = bytes.split_at_checked(digits)?;
    let is_number = digits == 1 || ((2..=9).contains(&digits) && number.first() != Some(&b'0'));
    let value = || number.iter().fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0'));
    is_number.then(|| (value(), rest))
}

impl MessagesStreamReader {
    /// Takes the events of a text block, in the form in which they nearly always come; `None` for any
    /// other event. Spaces may stand before the last brace.
    fn push_block_event(
        &mut self,
        data: &[u8],
        out: &mut Vec<Event>,
    ) -> Option<Result<(), ApiError>> {
        let event = data.strip_prefix(b"{\"type\":\"")?.strip_suffix(b"}")?;
        let event = event.trim_ascii_end();
        if let Some(event) = event.strip_prefix(b"content_block_") {
            if let Some(event) = event.strip_prefix(b"stop\",\"index\":") {
                let (index, rest) = split_index(event)?;
                return rest.is_empty().then(|| self.stop_block(index, out));
            }
            let event = event.strip_prefix(b"start\",\"index\":")?;
            let (index, rest) = split_index(event)?;
            if rest != b",\"content_block\":{\"type\":\"text\",\"text\":\"\"}" {
                return None;
            }
            let block = MessagesReplyBlock::Text(MessagesReplyText::default());
            return Some(self.start_block(index, block, out));
        }
        match event {
            b"ping\"" => Some(Ok(())),
            b"message_stop\"" => {
                self.done = true;
                Some(self.finish(out))
            }
            _ => None,
        }
    }

    fn push_parsed(&mut self, frame: &StreamFrame, out: &mut Vec<Event>) -> Result<(), ApiError> {
        self.push_view(frame, frame.read()?, out)
    }

    fn push_view(
        &mut self,
        frame: &StreamFrame,
        event: MessagesEvent<'_>,
        out: &mut Vec<Event>,
    ) -> Result<(), ApiError> {
        let named = || frame.event.as_deref().and_then(|name| std::str::from_utf8(name).ok());
        let index = event.index.unwrap_or(0);
        match event.kind.as_deref().or_else(named).unwrap_or_default() {
            "message_start" => self.start(*event.message.unwrap_or_default(), out),
            "content_block_start" => match event.content_block {
                Some(block) => self.start_block(index, block, out),
                None => Err(out_of_order("a block start without its block")),
            },
            "content_block_delta" => {
                event.delta.map_or(Ok(()), |delta| self.grow_block(index, delta, out))
            }
            "content_block_stop" => self.stop_block(index, out),
            "message_delta" => self.end(event, out),
            "message_stop" => {
                self.done = true;
                self.finish(out)
            }
            "error" => Err(fault::read_object(&event.error.map(raw_value).unwrap_or_default())),
            // A ping, or an event this version does not know.
            _ => Ok(()),
        }
    }

    /// Reads the beginning of a message.
    pub(super) fn start(
        &mut self,
        message: MessagesReplyView<'_>,
        out: &mut Vec<Event>,
    ) -> Result<(), ApiError> {
        if self.begun {
            return Err(second_start_error());
        }
        self.begun = true;
        let (id, model) = (present(message.id), present(message.model));
        out.push(Event::Start { id, model, created: None });
        if let Some(usage) = message.usage.and_then(|usage| usage.0) {
            self.count(&usage, true, out);
        }
        out.extend(
            message
                .rest
                .present()
                .map(|(name, raw)| Event::extra(None, ORIGIN, name, raw_value(raw))),
        );
        Ok(())
    }

    /// Begins a reply whose stream has no `message_start`.
    fn begin(&mut self, out: &mut Vec<Event>) {
        if !self.begun {
            self.begun = true;
            out.push(Event::Start { id: None, model: None, created: None });
        }
    }

    fn count(&mut self, usage: &MessagesUsage<'_>, is_first_event: bool, out: &mut Vec<Event>) {
        self.counts.update(usage, is_first_event);
        out.push(Event::Usage(self.counts.to_canon()));
        let fields = usage.other_fields();
        match self.other_usage.is_empty() {
            true => self.other_usage = fields,
            false => self.other_usage.extend(fields),
        }
    }

    fn open_part(&mut self, start: PartStart, out: &mut Vec<Event>) -> u32 {
        let place = PartIndex::next(0, &mut self.slots);
        out.push(Event::PartStart(place, start));
        place.slot
    }

    /// Reads the beginning of a block.
    pub(super) fn start_block(
        &mut self,
        index: u32,
        block: MessagesReplyBlock<'_>,
        out: &mut Vec<Event>,
    ) -> Result<(), ApiError> {
        self.begin(out);
        if self.ended {
            return Err(out_of_order("a content block after the stop reason"));
        }
        // Ends a block that never stopped and whose index is reused now.
        self.stop_block(index, out)?;
        let mut open = OpenBlock { index, ..OpenBlock::default() };
        let (start, text, rest) = match block {
            MessagesReplyBlock::Text(block) => {
                open.kind = BlockKind::Text;
                open.citations = block.citations.into_iter().flatten().map(raw_value).collect();
                (PartStart::Text, owned(block.text), block.rest)
            }
            MessagesReplyBlock::Thinking(block) => {
                open.kind = BlockKind::Thought;
                open.pending = owned(block.signature);
                (PartStart::Thought, owned(block.thinking), block.rest)
            }
            MessagesReplyBlock::ToolUse(block) => {
                open.kind = BlockKind::Call;
                open.pending = block.input.map_or("{}".to_owned(), json::compact);
                let id = tool_names::read(owned(block.id));
                let name = tool_names::read(owned(block.name));
                (PartStart::ToolCall { id, name, custom: false }, String::new(), block.rest)
            }
            MessagesReplyBlock::Unknown(fields) => {
                if let Value::Object(fields) = fields.to_value() {
                    open.fields = fields;
                }
                self.open.push(open);
                return Ok(());
            }
        };
        open.slot = self.open_part(start, out);
        open.length = char_count(&text);
        grow(open.slot, text, out);
        extras(open.slot, rest.to_map(), out);
        self.open.push(open);
        Ok(())
    }

    fn grow_block(
        &mut self,
        index: u32,
        delta: MessagesDelta<'_>,
        out: &mut Vec<Event>,
    ) -> Result<(), ApiError> {
        let kind = delta.kind.as_deref().unwrap_or_default();
        if !self.open.iter().any(|open| open.index == index) {
            // A delta that came without the start of its block. Only the blocks whose start says
            // nothing else can be repaired.
            let block = match kind {
                "text_delta" | "citations_delta" => {
                    MessagesReplyBlock::Text(MessagesReplyText::default())
                }
                "thinking_delta" | "signature_delta" => {
                    MessagesReplyBlock::Thinking(MessagesReplyThinking::default())
                }
                _ => return Err(out_of_order("a delta of a block that never started")),
            };
            self.start_block(index, block, out)?;
        }
        let Some(open) = self.open.iter_mut().find(|open| open.index == index) else {
            return Ok(());
        };
        match (open.kind, kind) {
            (BlockKind::Text, "text_delta") => {
                let text = owned(delta.text);
                open.length += char_count(&text);
                grow(open.slot, text, out);
            }
            (BlockKind::Text, "citations_delta") => {
                open.citations.extend(delta.citation.map(raw_value));
            }
            (BlockKind::Thought, "thinking_delta") => grow(open.slot, owned(delta.thinking), out),
            (BlockKind::Thought, "signature_delta") => open.pending = owned(delta.signature),
            (BlockKind::Call, "input_json_delta") => {
                let text = owned(delta.partial_json);
                open.has_deltas |= !text.is_empty();
                grow(open.slot, text, out);
            }
            (BlockKind::Other, "input_json_delta") => {
                open.pending.push_str(delta.partial_json.as_deref().unwrap_or_default());
            }
            (BlockKind::Other, _) => gather(&mut open.fields, delta.into_fields()),
            (BlockKind::Text | BlockKind::Thought | BlockKind::Call, kind) => {
                let name = kind.to_owned();
                let value = Value::Object(delta.into_fields());
                extras(open.slot, Map::from_iter([(name, value)]), out);
            }
        }
        Ok(())
    }

    /// Reads the end of a block.
    pub(super) fn stop_block(&mut self, index: u32, out: &mut Vec<Event>) -> Result<(), ApiError> {
        let Some(at) = self.open.iter().position(|open| open.index == index) else {
            return Ok(());
        };
        let mut open = self.open.remove(at);
        let mut signature = None;
        match open.kind {
            BlockKind::Text => {}
            BlockKind::Thought => {
                signature = signatures::read(open.pending, ContentAuthor::Provider)
            }
            BlockKind::Call if open.has_deltas => {}
            BlockKind::Call => grow(open.slot, open.pending, out),
            BlockKind::Other => {
                let broken = |why: &dyn Display| {
                    ApiError::new(ErrorKind::Interrupted, "the provider sent a broken block")
                        .with_log_note(why.to_string())
                };
                // The pieces were counted one by one, and the input is read into a tree.
                let values = count_values(open.pending.as_bytes(), MAX_REQUEST_VALUES);
                if values > MAX_REQUEST_VALUES {
                    return Err(broken(&"its input has too many values"));
                }
                let input = json::read::<Value>(&open.pending).ok();
                open.fields.extend(input.map(|input| ("input".to_owned(), input)));
                let part = read_content::read_value(&open.fields.into(), ContentAuthor::Provider);
                let mut part = part.map_err(|e| broken(&e))?;
                signature = part.signature.take();
                open.slot = self.open_part(PartStart::Complete(Box::new(part)), out);
            }
        }
        let place = PartIndex::first(open.slot);
        out.extend(open.citations.into_iter().map(|value| {
            let citation = read_content::read_citation(value, open.length);
            Event::PartDelta(place, PartDelta::Citation(citation))
        }));
        out.extend(signature.map(|signature| Event::PartSignature(place, signature)));
        out.push(Event::PartEnd(place));
        Ok(())
    }

    /// Reads a `message_delta`: the counts, and the end of the message.
    pub(super) fn end(
        &mut self,
        event: MessagesEvent<'_>,
        out: &mut Vec<Event>,
    ) -> Result<(), ApiError> {
        self.begin(out);
        let delta = event.delta.unwrap_or_default();
        if let Some(usage) = event.usage.and_then(|usage| usage.0) {
            self.count(&usage, false, out);
        }
        let fields =
            [("container", delta.container), ("context_management", event.context_management)];
        let present = fields.into_iter().filter_map(|(name, raw)| Some((name, raw?)));
        out.extend(present.map(|(name, raw)| Event::extra(None, ORIGIN, name, raw_value(raw))));
        let Some(word) = delta.stop_reason.filter(|_| !self.ended) else { return Ok(()) };
        while let Some(open) = self.open.first() {
            self.stop_block(open.index, out)?;
        }
        self.ended = true;
        if !self.other_usage.is_empty() {
            let usage = Value::Object(std::mem::take(&mut self.other_usage));
            out.push(Event::extra(None, ORIGIN, USAGE_EXTRA, usage));
        }
        let details = delta.stop_details.map(|raw| scrub_value(raw_value(raw)));
        out.extend(details.map(|value| Event::extra(Some(0), ORIGIN, STOP_DETAILS, value)));
        let finish = Finish {
            reason: endings::read(ORIGIN, &word),
            raw: RawReason::new(ORIGIN, &*word),
            stop_sequence: delta.stop_sequence.map(BorrowedText::into_owned),
        };
        out.push(Event::Finish { candidate: 0, finish });
        Ok(())
    }
}

/// Returns the error for a second `message_start` within one stream.
pub(super) fn second_start_error() -> ApiError {
    ApiError::new(ErrorKind::Interrupted, "the provider began a second answer within the first")
        .with_log_note("a second message_start in one messages stream")
}

/// A field of the reply that only this format has.
fn grow(slot: u32, text: String, out: &mut Vec<Event>) {
    if !text.is_empty() {
        out.push(Event::PartDelta(PartIndex::first(slot), PartDelta::Text(text)));
    }
}

/// Emits the remaining fields of a block start.
fn extras(slot: u32, fields: Map<String, Value>, out: &mut Vec<Event>) {
    out.extend(fields.into_iter().map(|(name, value)| {
        let extra = PartDelta::Extra { origin: ORIGIN, name, value };
        Event::PartDelta(PartIndex::first(slot), extra)
    }));
}

/// Adds an unknown delta to a collected block: strings grow, other values are replaced.
fn gather(block: &mut Map<String, Value>, delta: Map<String, Value>) {
    for (name, value) in delta {
        match (block.get_mut(&name), value) {
            (Some(Value::String(text)), Value::String(more)) => text.push_str(&more),
            (_, value) => drop(block.insert(name, value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const EVENTS: [&str; 20] = [
        r#"{"type":"message_start","message":{"id":"m"}}"#,
        r#"{"type":"message_start","message":{"id":"m","type":"message","role":"assistant","model":"x","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":16,"cache_creation_input_tokens":1,"cache_read_input_tokens":2,"cache_creation":{"ephemeral_5m_input_tokens":1,"ephemeral_1h_input_tokens":0},"output_tokens":1,"service_tier":"standard","inference_geo":"us","x":[1]}}}"#,
        r#"{"type":"message_start","message":{"type":5,"role":null,"content":[{"type":"text","text":"a\n"}],"vendor":{"a":1},"usage":null}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a \"b\" é","x":1}}"#,
        r#"{"type":"content_block_delta","index":null,"delta":{"type":"text_delta","text":null}}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":12}}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"stop_sequence","stop_sequence":"x"},"usage":{"output_tokens":12,"server_tool_use":{"web_search_requests":2},"output_tokens_details":{"thinking_tokens":3}}}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":null},"usage":{"output_tokens":"12","service_tier":null}}"#,
        r#"{"type":"error","error":{"type":"overloaded_error","message":"no"}}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""} }"#,
        r#"{"type":"content_block_start","index":12,"content_block":{"type":"text","text":"a"}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}"#,
        r#"{"type":"content_block_stop","index":0}"#,
        r#"{"type":"content_block_stop","index":0   }"#,
        r#"{"type":"content_block_stop","index":00}"#,
        r#"{"type":"content_block_stop","index":4294967296}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#,
        r#"{"type":"ping"}"#,
        r#"{"type":"message_stop" }"#,
    ];

    proptest! {
        #[test]
        fn known_events_are_read_like_parsed_ones(
            order in prop::collection::vec(0..EVENTS.len(), 1..8),
            place in any::<prop::sample::Index>(),
            byte in prop::option::of(prop_oneof![
                Just(b'"'), Just(b'1'), Just(b' '), Just(b'}'), Just(b'\n'), any::<u8>(),
            ]),
        ) {
            let (mut known, mut parsed) = <(MessagesStreamReader, MessagesStreamReader)>::default();
            let (mut some, mut all) = (Vec::new(), Vec::new());
            for (number, event) in order.iter().enumerate() {
                let mut data = EVENTS[*event].as_bytes().to_vec();
                let at = place.index(data.len());
                if let Some(byte) = byte.filter(|_| number + 1 == order.len()) {
                    data[at] = byte;
                }
                let frame = StreamFrame::data(data);
                let one = known.push(&frame, &mut some);
                let other = if parsed.done { Ok(()) } else { parsed.push_parsed(&frame, &mut all) };
                prop_assert_eq!(format!("{one:?}"), format!("{other:?}"));
                if one.is_err() {
                    break;
                }
            }
            prop_assert_eq!(format!("{some:?}"), format!("{all:?}"));
        }
    }
}

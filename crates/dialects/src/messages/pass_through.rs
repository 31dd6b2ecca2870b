//! Pass-through from messages to messages: patches the caller's bytes and meters the provider's
//! events.

use bytes::Bytes;
use canon::{ApiError, Usage};
use memchr::memmem::Finder;
use serde_json::value::RawValue;
use std::sync::LazyLock;

use super::names::PATH;
use super::own::thinking::MIN_BUDGET_TOKENS;
use super::reply::{MessagesMeterEvent, STOP_DETAILS};
use super::request::MessagesRequestView;
use super::usage::{MessagesCounts, MessagesUsage};
use super::{MessagesDialect, fault, read_reply, read_stream, write_stream};
use crate::json::{self, BodyEdit, BodySegments};
use crate::repeated_text::{RepeatingMeter, TextMeter};
use crate::reply_shape::{self, DefaultValue, ObjectShape};
use crate::stream_completer::StreamCompleter;
use crate::wire_object::raw_value;
use crate::{
    FrameAction, LaneSettings, PassThrough, ProviderRequest, ReplyMeter, ReplyStamp, RequestFacts,
    StreamFrame, StreamMeter,
};

impl PassThrough for MessagesDialect {
    fn patch(
        &self,
        body: &Bytes,
        facts: &RequestFacts,
        lane: &LaneSettings<'_>,
    ) -> ProviderRequest {
        let mut edits = facts.lane_edits(lane, "max_tokens");
        edits.extend(lane.max_payable_output.and_then(|limit| lower_budget(body, limit)));
        ProviderRequest { path: PATH.to_owned(), body: BodySegments::with_edits(body, edits) }
    }

    fn meter_reply(&self, body: &[u8]) -> Result<ReplyMeter, ApiError> {
        let whole = read_reply::parse(body)?;
        let reported = whole.usage.as_ref().and_then(|usage| usage.0.as_ref());
        let usage = reported.map(|reported| reported.to_canon());
        let content = whole.content.map(RawValue::get).unwrap_or_default();
        let texts = json::total_text_bytes(content.as_bytes(), &*TEXT_KEYS);
        Ok(ReplyMeter {
            service_tier: reported.and_then(|reported| reported.tier()),
            is_finished: whole.stop_reason.is_some(),
            output_bytes: ReplyMeter::reply_output_bytes(self, body, usage, texts),
            usage,
            is_estimated: false,
        })
    }

    fn complete_reply(&self, body: &Bytes, facts: &RequestFacts, stamp: &ReplyStamp) -> Bytes {
        reply_shape::complete(body, &REPLY, &facts.model, stamp)
    }

    fn stream_meter(&self, facts: &RequestFacts) -> Box<dyn StreamMeter> {
        Box::new(RepeatingMeter::new(MessagesStreamMeter::new(&facts.model), &*TEXT_KEYS))
    }

    fn write_abort(&self, fault: &ApiError, request_id: &str) -> Vec<u8> {
        let mut out = Vec::new();
        let body = StreamFrame::data(fault::write(fault, Some(request_id)).1);
        body.write_named(Some(b"error"), &mut out);
        out
    }
}

/// The documented fields of a message, <https://docs.anthropic.com/en/api/messages>.
static REPLY: ObjectShape = ObjectShape {
    fields: &[
        ("id", DefaultValue::Id("msg_")),
        ("type", DefaultValue::Json("\"message\"")),
        ("role", DefaultValue::Json("\"assistant\"")),
        ("model", DefaultValue::SelectedModel),
        ("stop_sequence", DefaultValue::Json("null")),
        (STOP_DETAILS, DefaultValue::Scrubbed(None)),
    ],
    inside: &[("usage", &USAGE)],
    find_texts: None,
};

static USAGE: ObjectShape = ObjectShape::flat(&[
    ("cache_creation_input_tokens", DefaultValue::Json("0")),
    ("cache_read_input_tokens", DefaultValue::Json("0")),
]);

/// The event that begins a stream has the message. The official client fails without its usage.
/// The one that ends it may have a text about the call.
static EVENT: ObjectShape = ObjectShape {
    fields: &[],
    inside: &[("message", &STARTED_MESSAGE), ("delta", &DELTA)],
    find_texts: None,
};

static DELTA: ObjectShape = ObjectShape::flat(&[(STOP_DETAILS, DefaultValue::Scrubbed(None))]);

static STARTED_MESSAGE: ObjectShape = ObjectShape {
    fields: &[
        ("type", DefaultValue::Json("\"message\"")),
        ("role", DefaultValue::Json("\"assistant\"")),
        ("model", DefaultValue::SelectedModel),
        ("usage", DefaultValue::Json("{\"input_tokens\":0,\"output_tokens\":0}")),
    ],
    inside: &[("usage", &USAGE)],
    find_texts: None,
};

/// Lowers the thinking budget below a lowered output limit; the format refuses a larger budget.
fn lower_budget(body: &Bytes, limit: u64) -> Option<BodyEdit> {
    let text = std::str::from_utf8(body).ok()?;
    let thinking = json::read::<MessagesRequestView<'_>>(text).ok()?.thinking?;
    let budget = thinking.value.budget_tokens.filter(|budget| budget.value >= limit)?;
    let (place, replacement) = match limit > MIN_BUDGET_TOKENS {
        true => (budget.raw, Bytes::from((limit - 1).to_string())),
        false => (thinking.raw, Bytes::from_static(br#"{"type":"disabled"}"#)),
    };
    Some(BodyEdit { range: json::range_of(text, place), replacement })
}

/// Meters the events of a messages stream.
struct MessagesStreamMeter {
    completer: StreamCompleter,
    begun: bool,
    /// The index of the open block.
    open: Option<u32>,
    counts: MessagesCounts,
    said: ReplyMeter,
    /// The usage that the current event lacks, and the position to insert it. The official client
    /// fails on an event without usage.
    missing: Option<(usize, String)>,
}

/// The keys under which a model's output text stands.
static TEXT_KEYS: LazyLock<[Finder<'static>; 4]> = LazyLock::new(|| {
    ["\"text\":", "\"thinking\":", "\"partial_json\":", "\"name\":"].map(Finder::new)
});

/// Returns the position behind the last field of an object; `None` if the object is empty.
fn object_end(object: &[u8]) -> Option<usize> {
    let end = object.iter().rposition(|byte| *byte == b'}')?;
    object.get(..end)?.contains(&b':').then_some(end)
}

impl MessagesStreamMeter {
    fn new(model: &str) -> Self {
        Self {
            completer: StreamCompleter::new(&EVENT, model),
            begun: false,
            open: None,
            counts: MessagesCounts::default(),
            said: ReplyMeter::default(),
            missing: None,
        }
    }

    fn count(&mut self, usage: &MessagesUsage<'_>, is_first_event: bool) {
        self.counts.update(usage, is_first_event);
        self.said.usage = Some(self.counts.to_canon());
        self.said.service_tier = usage.tier().or(self.said.service_tier.take());
    }
}

impl TextMeter for MessagesStreamMeter {
    fn add_text(&mut self, text: &[u8]) {
        self.said.output_bytes += text.len() as u64;
    }

    fn ended(&self) -> usize {
        usize::from(self.said.is_finished)
    }
}

impl StreamMeter for MessagesStreamMeter {
    fn read(&mut self, frame: &StreamFrame) -> Result<FrameAction, ApiError> {
        let data = &frame.data[..];
        self.missing = None;
        self.completer.skip();
        let event: MessagesMeterEvent<'_> = frame.read()?;
        let named = || frame.event.as_deref().map(String::from_utf8_lossy);
        match event.kind.map(|kind| kind.0).or_else(named).as_deref() {
            Some("message_start") if self.begun => {
                return Err(read_stream::second_start_error());
            }
            Some("message_start") => {
                self.begun = true;
                self.completer.observe(frame);
                let usage = event.message.and_then(|message| message.0?.usage);
                if let Some(usage) = usage.and_then(|usage| usage.0) {
                    self.count(&usage, true);
                }
            }
            Some("message_delta") => {
                let delta = event.delta.and_then(|delta| delta.0);
                if delta.as_ref().is_some_and(|delta| delta.rest.get(STOP_DETAILS).is_some()) {
                    self.completer.observe_late(frame);
                }
                if event.usage.is_none() {
                    let guess = self.said.output_bytes.div_ceil(4);
                    let guess = format!(r#","usage":{{"output_tokens":{guess}}}"#);
                    let end = object_end(&self.completer.frame(frame).data);
                    self.missing = end.map(|at| (at, guess));
                }
                if let Some(usage) = event.usage.and_then(|usage| usage.0) {
                    self.count(&usage, false);
                }
                self.said.is_finished |= delta.and_then(|delta| delta.stop_reason).is_some();
            }
            Some("message_stop") => return Ok(FrameAction::Last),
            Some("error") => {
                let error = event.error.map(raw_value).unwrap_or_default();
                return Err(fault::read_object(&error));
            }
            Some("content_block_stop") => self.open = None,
            Some("content_block_start" | "content_block_delta") => {
                self.open = event.index.and_then(|index| index.0).or(self.open);
                self.said.output_bytes += json::total_text_bytes(data, &*TEXT_KEYS);
            }
            _ => {}
        }
        Ok(FrameAction::Forward)
    }

    fn write(&self, frame: &StreamFrame, out: &mut Vec<u8>) {
        // Clients ignore an event without an `event:` line.
        let kind = if frame.event.is_none() { event_type(&frame.data) } else { None };
        let name = frame.event.as_deref().or(kind.as_deref().map(str::as_bytes));
        let frame = self.completer.frame(frame);
        let complete = self.missing.as_ref().and_then(|(at, with)| {
            let (head, tail) = frame.data.split_at_checked(*at)?;
            Some([head, with.as_bytes(), tail].concat())
        });
        match complete {
            Some(data) => StreamFrame::data(data).write_named(name, out),
            None => frame.write_named(name, out),
        }
    }

    fn write_end(&self, out: &mut Vec<u8>) {
        write_stream::write_stop(out);
    }

    fn write_truncated(&mut self, usage: &Usage, out: &mut Vec<u8>) {
        write_stream::write_truncated(self.open.take(), usage, out);
        self.said.is_finished = true;
    }

    fn totals(&self) -> &ReplyMeter {
        &self.said
    }
}

/// Returns the type in the data, if it fits on one line.
fn event_type(data: &[u8]) -> Option<String> {
    let kind = json::read_bytes::<MessagesMeterEvent<'_>>(data).ok()?.kind?.into_owned();
    kind.chars().all(|c| c.is_ascii_graphic()).then_some(kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn missing_usage_is_added_and_nothing_else_changes() {
        let events = [
            (r#"{"type":"message_start","message":{"id":"m","content":[]} }"#, true),
            (
                r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi"}}"#,
                false,
            ),
            (r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}, "usage":null}"#, true),
            (r#"{"type":"message_delta","delta":{},"usage":{"output_tokens":3}}"#, false),
        ];
        let mut meter = MessagesStreamMeter::new("");
        for (event, lacks) in events {
            let frame = StreamFrame::data(event);
            assert_eq!(meter.observe(&frame), FrameAction::Forward);
            let mut out = Vec::new();
            meter.write(&frame, &mut out);
            let out = String::from_utf8(out).unwrap();
            let data = out.split_once("data: ").unwrap().1.trim_end();
            assert_eq!(data == event, !lacks, "{data}");
            let written: Value = serde_json::from_str(data).unwrap();
            let counted = match written["type"].as_str() {
                Some("message_start") => &written["message"]["usage"]["input_tokens"],
                Some("message_delta") => &written["usage"]["output_tokens"],
                _ => continue,
            };
            assert!(counted.is_u64(), "{data}");
        }
    }
}

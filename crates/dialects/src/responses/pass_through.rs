//! Pass-through from responses to responses: the caller's body with few edits, and the provider's
//! frames unchanged.

use bytes::Bytes;
use canon::{ApiError, ErrorKind, Usage};
use memchr::memmem::Finder;
use std::borrow::Cow;
use std::sync::LazyLock;

use super::names::{LIMIT_FIELD, PATH};
use super::own::event_writer::EventWriter;
use super::own::partial_response::PartialResponse;
use super::own::response_object::ResponseEcho;
use super::own::server_secrets::{may_have_secrets, without_secrets};
use super::reply::{ResponsesEventView, ResponsesReplyView};
use super::{ResponsesDialect, fault};
use crate::json::{self, BodySegments};
use crate::repeated_text::{RepeatingMeter, TextMeter};
use crate::reply_shape::{self, DefaultValue, ObjectShape, Redaction};
use crate::stream_completer::StreamCompleter;
use crate::text::BorrowedText;
use crate::wire_value::AnyValue;
use crate::{
    FrameAction, LaneSettings, PassThrough, ProviderRequest, ReplyMeter, ReplyStamp, RequestFacts,
    StreamFrame, StreamMeter,
};

/// First sequence number of the events the gateway appends. The last number of the provider is
/// unknown where they are written. SDKs only require increasing numbers, and no stream gets this
/// far.
const FIRST_APPENDED_SEQUENCE: u64 = 1_000_000_000;

/// Text fields of a whole response. The patterns are compiled once.
static TEXT_FIELDS: LazyLock<[Finder<'static>; 2]> =
    LazyLock::new(|| ["\"text\":", "\"arguments\":"].map(Finder::new));
/// Text field of a delta event.
static DELTA_FIELD: LazyLock<[Finder<'static>; 1]> = LazyLock::new(|| [Finder::new("\"delta\":")]);

impl PassThrough for ResponsesDialect {
    fn patch(&self, body: &Bytes, peek: &RequestFacts, lane: &LaneSettings<'_>) -> ProviderRequest {
        let edits = peek.lane_edits(lane, LIMIT_FIELD);
        ProviderRequest { path: PATH.to_owned(), body: BodySegments::with_edits(body, edits) }
    }

    fn meter_reply(&self, body: &[u8]) -> Result<ReplyMeter, ApiError> {
        let whole: ResponsesReplyView<'_> = json::read_bytes(body).map_err(fault::unreadable)?;
        if whole.error.is_some() {
            return Err(whole.failure());
        }
        let output = whole.output.ok_or_else(|| fault::unreadable("there is no `output`"))?;
        let usage = whole.usage();
        let texts = json::total_text_bytes(output.get().as_bytes(), &*TEXT_FIELDS);
        Ok(ReplyMeter {
            is_finished: whole.is_finished(),
            output_bytes: ReplyMeter::reply_output_bytes(self, body, usage, texts),
            usage,
            is_estimated: false,
            service_tier: whole.tier(),
        })
    }

    fn complete_reply(&self, body: &Bytes, facts: &RequestFacts, stamp: &ReplyStamp) -> Bytes {
        reply_shape::complete(body, &REPLY, &facts.model, stamp)
    }

    fn stream_meter(&self, peek: &RequestFacts) -> Box<dyn StreamMeter> {
        let meter = ResponsesStreamMeter {
            completer: StreamCompleter::new(&EVENT, &peek.model),
            partial: PartialResponse::default(),
            is_output_text: false,
            totals: ReplyMeter::default(),
        };
        Box::new(RepeatingMeter::new(meter, &*DELTA_FIELD))
    }

    fn write_abort(&self, fault: &ApiError, request_id: &str) -> Vec<u8> {
        let mut events = EventWriter::starting_at(FIRST_APPENDED_SEQUENCE);
        let echo = ResponseEcho::without_request(request_id);
        fault::write_stream_error(fault, &echo, &mut events);
        events.out
    }
}

/// The tools of the request, which some providers repeat with the secrets of their servers.
static SHOWN_TOOLS: Redaction =
    Redaction { default: "[]", is_possible: may_have_secrets, redact: without_secrets };

/// The documented fields of a response,
/// <https://platform.openai.com/docs/api-reference/responses/object>.
static REPLY: ObjectShape = ObjectShape {
    fields: &[
        ("id", DefaultValue::Id("resp_")),
        ("object", DefaultValue::Json("\"response\"")),
        ("created_at", DefaultValue::Created(|seconds| seconds.to_string())),
        ("model", DefaultValue::SelectedModel),
        ("error", DefaultValue::Scrubbed(Some("null"))),
        ("incomplete_details", DefaultValue::Scrubbed(Some("null"))),
        ("instructions", DefaultValue::Json("null")),
        ("metadata", DefaultValue::Json("{}")),
        ("parallel_tool_calls", DefaultValue::Json("true")),
        ("tool_choice", DefaultValue::Json("\"auto\"")),
        ("tools", DefaultValue::Redacted(&SHOWN_TOOLS)),
    ],
    inside: &[("usage", &USAGE)],
    find_texts: None,
};

static USAGE: ObjectShape = ObjectShape::flat(&[
    ("input_tokens_details", DefaultValue::Json("{\"cached_tokens\":0}")),
    ("output_tokens_details", DefaultValue::Json("{\"reasoning_tokens\":0}")),
]);

/// The first and the last events of a stream have the response.
static EVENT: ObjectShape =
    ObjectShape { fields: &[], inside: &[("response", &REPLY)], find_texts: None };

/// Meters the events of a stream. Only the last event is parsed.
struct ResponsesStreamMeter {
    completer: StreamCompleter,
    partial: PartialResponse,
    /// True if the last event was a delta of an output text.
    is_output_text: bool,
    totals: ReplyMeter,
}

/// Event name, from its `event:` line or else from its data.
fn event_name(frame: &StreamFrame) -> Option<Cow<'_, str>> {
    if let Some(event) = &frame.event {
        return Some(String::from_utf8_lossy(event));
    }
    let named: ResponsesEventView<'_> = json::read_bytes(&frame.data).ok()?;
    // A name with a line break would start another line of the event stream.
    named.kind.map(|BorrowedText(name)| name).filter(|name| !name.chars().any(char::is_control))
}

impl ResponsesStreamMeter {
    /// Counts the text of a delta.
    fn add_bytes(&mut self, text: &[u8]) {
        self.totals.output_bytes += text.len() as u64;
        if self.is_output_text {
            self.partial.append_text(text);
        }
    }
}

impl TextMeter for ResponsesStreamMeter {
    fn add_text(&mut self, text: &[u8]) {
        self.add_bytes(text);
    }

    fn ended(&self) -> usize {
        usize::from(self.totals.is_finished)
    }
}

impl StreamMeter for ResponsesStreamMeter {
    fn read(&mut self, frame: &StreamFrame) -> Result<FrameAction, ApiError> {
        let data = &frame.data[..];
        if data == b"[DONE]" {
            return Ok(FrameAction::Drop);
        }
        frame.read::<AnyValue>()?;
        let name = event_name(frame);
        // Only these events have the response, as one that is followed by its state.
        match name.as_deref().and_then(|name| name.strip_prefix("response.")) {
            Some(state) if !state.contains('.') => self.completer.observe(frame),
            Some(_) | None => self.completer.skip(),
        }
        match name.as_deref() {
            Some("response.completed" | "response.incomplete" | "response.failed") => {}
            Some("error") => return Err(fault::read(&frame.read()?)),
            Some(name) => {
                if name.ends_with(".delta") {
                    let [field] = &*DELTA_FIELD;
                    self.is_output_text = name == "response.output_text.delta";
                    self.add_bytes(json::raw_text(data, field).unwrap_or_default());
                } else {
                    self.partial.record_event(name, data);
                }
                return Ok(FrameAction::Forward);
            }
            None => return Ok(FrameAction::Forward),
        }
        let event: Option<ResponsesEventView<'_>> = json::read_bytes(data).ok();
        let last = ResponsesReplyView::parse(event.and_then(|event| event.response));
        let last = last.map_err(|e| {
            ApiError::new(ErrorKind::Interrupted, "the provider's last event cannot be read")
                .with_log_note(e.log_note().unwrap_or_default().to_owned())
        })?;
        if last.usage.is_some() || last.incomplete_details.is_some() {
            self.completer.observe_late(frame);
        }
        if let Some(usage) = last.usage() {
            self.totals.usage = Some(self.totals.usage.unwrap_or_default().merged(usage));
        }
        self.totals.service_tier = last.tier();
        if name.as_deref() == Some("response.failed") {
            return Err(last.failure());
        }
        self.totals.is_finished = true;
        Ok(FrameAction::Last)
    }

    fn write(&self, frame: &StreamFrame, out: &mut Vec<u8>) {
        let name = event_name(frame);
        self.completer.frame(frame).write_named(name.as_deref().map(str::as_bytes), out);
    }

    fn write_truncated(&mut self, usage: &Usage, out: &mut Vec<u8>) {
        self.partial.write_end(usage, FIRST_APPENDED_SEQUENCE, out);
        self.totals.is_finished = true;
    }

    fn totals(&self) -> &ReplyMeter {
        &self.totals
    }
}

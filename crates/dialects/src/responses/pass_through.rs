//! Pass-through from responses to responses: the caller's body with few edits, and the provider's
//! frames unchanged.

use bytes::Bytes;
use canon::{Fault, Trouble, Usage};
use memchr::memmem::Finder;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::sync::LazyLock;

use super::names::PATH;
use super::partial_response::PartialResponse;
use super::response_object::ResponseEcho;
use super::{Responses, fault, rules, wire};
use crate::json::{self, Edit, Segments};
use crate::{Frame, Lane, Outgoing, Passage, Peek, Said, Sniffer, Target, Verdict, text};

/// First sequence number of the events the gateway appends. The last number of the provider is
/// unknown where they are written. SDKs only require increasing numbers, and no stream gets this
/// far.
const FIRST_APPENDED_SEQUENCE: u64 = 1_000_000_000;

/// Text fields of a whole response. The patterns are compiled once.
static TEXT_FIELDS: LazyLock<[Finder<'static>; 2]> =
    LazyLock::new(|| ["\"text\":", "\"arguments\":"].map(Finder::new));
/// Text field of a delta event.
static DELTA_FIELD: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"delta\":"));

impl Passage for Responses {
    fn peek(&self, _target: &Target, body: &[u8]) -> Result<Peek, Fault> {
        rules::read_facts(body)
    }

    fn patch(&self, body: &Bytes, peek: &Peek, lane: &Lane<'_>) -> Outgoing {
        let marks = &peek.marks;
        let mut edits = peek.edits.clone();
        let replace = |at: &std::ops::Range<usize>, with| Edit { at: at.clone(), with };
        if let Some(at) = &marks.model
            && peek.model != lane.model
        {
            edits.push(replace(at, json::quoted(lane.model)));
        }
        if let Some(limit) = lane.limit {
            edits.push(match &marks.limit {
                Some(at) => replace(at, Bytes::from(limit.to_string())),
                None => Edit {
                    at: marks.open..marks.open,
                    with: Bytes::from(format!("\"max_output_tokens\":{limit},")),
                },
            });
        }
        Outgoing { path: PATH.to_owned(), body: Segments::edited(body, edits) }
    }

    fn sniff_reply(&self, body: &[u8]) -> Result<Said, Fault> {
        let whole: wire::FinalResponse<'_> =
            serde_json::from_slice(body).map_err(|e| fault::unreadable(&e.to_string()))?;
        if let Some(error) = whole.error {
            return Err(fault::read(&parse_text(error.get())));
        }
        let output = whole.output.ok_or_else(|| fault::unreadable("there is no `output`"))?;
        let usage = whole.usage();
        Ok(Said {
            finished: is_finished(whole.status.as_deref()),
            output_bytes: Said::bytes(usage, output.get(), &*TEXT_FIELDS),
            usage,
            estimated: false,
            tier: whole.tier(),
        })
    }

    fn sniffer(&self, _peek: &Peek) -> Box<dyn Sniffer> {
        Box::new(ResponsesStreamMeter {
            partial: PartialResponse::default(),
            totals: Said::default(),
        })
    }

    fn break_off(&self, fault: &Fault, request_id: &str) -> Vec<u8> {
        let mut out = Vec::new();
        fault::write_stream_error(
            fault,
            &ResponseEcho::without_request(request_id),
            Vec::new(),
            FIRST_APPENDED_SEQUENCE,
            &mut out,
        );
        out
    }

    fn keep_alive(&self) -> &'static [u8] {
        b": keep-alive\n\n"
    }
}

fn parse_text(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}

fn is_finished(status: Option<&str>) -> bool {
    matches!(status, None | Some("completed" | "incomplete"))
}

/// Meters the events of a stream. Only the last event is parsed.
struct ResponsesStreamMeter {
    partial: PartialResponse,
    totals: Said,
}

/// Event name, from its `event:` line or else from its data.
fn event_name(frame: &Frame) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct EventTypeView<'a> {
        #[serde(borrow, default, deserialize_with = "text::maybe")]
        r#type: Option<Cow<'a, str>>,
    }
    if let Some(event) = &frame.event {
        return Some(String::from_utf8_lossy(event));
    }
    let named: EventTypeView<'_> = serde_json::from_slice(&frame.data).ok()?;
    // A name with a line break would start another line of the event stream.
    named.r#type.filter(|name| !name.chars().any(char::is_control))
}

impl Sniffer for ResponsesStreamMeter {
    fn frame(&mut self, frame: &Frame) -> Verdict {
        #[derive(Deserialize)]
        struct LastEventView<'a> {
            #[serde(borrow, default)]
            response: Option<&'a RawValue>,
        }
        let data = &frame.data[..];
        if data == b"[DONE]" {
            return Verdict::Swallow;
        }
        let name = event_name(frame);
        match name.as_deref() {
            Some("response.completed" | "response.incomplete" | "response.failed") => {}
            Some("error") => return Verdict::Fault(fault::read(&parse_bytes(data))),
            Some(name) => {
                if name.ends_with(".delta") {
                    let text = json::raw_text(data, &DELTA_FIELD).unwrap_or_default();
                    self.totals.output_bytes += text.len() as u64;
                    if name == "response.output_text.delta" {
                        self.partial.append_text(text);
                    }
                } else {
                    self.partial.record_event(name, data);
                }
                return Verdict::Forward;
            }
            None => {
                return match serde_json::from_slice::<&RawValue>(data) {
                    Ok(_) => Verdict::Forward,
                    Err(e) => Verdict::Fault(
                        Fault::new(
                            Trouble::Interrupted,
                            "the provider sent a piece that is not JSON",
                        )
                        .note(format!("unreadable responses event: {e}")),
                    ),
                };
            }
        }
        let read = serde_json::from_slice::<LastEventView<'_>>(data).map_err(|e| e.to_string());
        let last = read.and_then(|last| {
            let response = last.response.ok_or("there is no `response`")?;
            serde_json::from_str::<wire::FinalResponse<'_>>(response.get())
                .map_err(|e| e.to_string())
        });
        let last = match last {
            Ok(last) => last,
            Err(why) => {
                return Verdict::Fault(
                    Fault::new(Trouble::Interrupted, "the provider's last event cannot be read")
                        .note(format!("unreadable responses event: {why}")),
                );
            }
        };
        if let Some(usage) = last.usage() {
            self.totals.usage = Some(self.totals.usage.unwrap_or_default().merged(usage));
        }
        self.totals.tier = last.tier();
        if name.as_deref() == Some("response.failed") {
            let error = last.error.map_or(Value::Null, |error| parse_text(error.get()));
            return Verdict::Fault(fault::read(&error));
        }
        self.totals.finished = true;
        Verdict::Last
    }

    fn write(&self, frame: &Frame, out: &mut Vec<u8>) {
        if let Some(name) = event_name(frame) {
            out.extend_from_slice(b"event: ");
            out.extend_from_slice(name.as_bytes());
            out.push(b'\n');
        }
        frame.write_data(out);
    }

    fn cut(&mut self, usage: &Usage, out: &mut Vec<u8>) {
        self.partial.write_end(usage, FIRST_APPENDED_SEQUENCE, out);
        self.totals.finished = true;
    }

    fn said(&self) -> &Said {
        &self.totals
    }
}

fn parse_bytes(data: &[u8]) -> Value {
    serde_json::from_slice(data).unwrap_or_default()
}

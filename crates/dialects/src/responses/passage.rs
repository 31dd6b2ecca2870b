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

use super::cut::SoFar;
use super::echo::Echo;
use super::{PATH, Responses, fault, rules, wire};
use crate::json::{self, Edit, Segments};
use crate::{Frame, Lane, Outgoing, Passage, Peek, Said, Sniffer, Target, Verdict, text};

/// First sequence number of the events the gateway appends. The last number of the provider is
/// unknown where they are written. SDKs only require increasing numbers, and no stream gets this
/// far.
const LAST_WORDS: u64 = 1_000_000_000;

/// Text fields of a whole response. The patterns are compiled once.
static TEXTS: LazyLock<[Finder<'static>; 2]> =
    LazyLock::new(|| ["\"text\":", "\"arguments\":"].map(Finder::new));
/// Text field of a delta event.
static DELTA: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"delta\":"));

impl Passage for Responses {
    fn peek(&self, _target: &Target, body: &[u8]) -> Result<Peek, Fault> {
        rules::peek(body)
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
        let whole: wire::Final<'_> =
            serde_json::from_slice(body).map_err(|e| fault::unreadable(&e.to_string()))?;
        if let Some(error) = whole.error {
            return Err(fault::read(&parsed(error.get())));
        }
        let output = whole.output.ok_or_else(|| fault::unreadable("there is no `output`"))?;
        let usage = whole.usage();
        Ok(Said {
            finished: is_finished(whole.status.as_deref()),
            output_bytes: Said::bytes(usage, output.get(), &*TEXTS),
            usage,
            estimated: false,
            tier: whole.tier(),
        })
    }

    fn sniffer(&self, _peek: &Peek) -> Box<dyn Sniffer> {
        Box::new(ResponsesSniffer { so_far: SoFar::default(), said: Said::default() })
    }

    fn break_off(&self, fault: &Fault, request_id: &str) -> Vec<u8> {
        let mut out = Vec::new();
        fault::write_stream(fault, &Echo::unknown(request_id), Vec::new(), LAST_WORDS, &mut out);
        out
    }

    fn keep_alive(&self) -> &'static [u8] {
        b": keep-alive\n\n"
    }
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}

fn is_finished(status: Option<&str>) -> bool {
    matches!(status, None | Some("completed" | "incomplete"))
}

/// Meters the events of a stream. Only the last event is parsed.
struct ResponsesSniffer {
    so_far: SoFar,
    said: Said,
}

/// Event name, from its `event:` line or else from its data.
fn name(frame: &Frame) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Named<'a> {
        #[serde(borrow, default, deserialize_with = "text::maybe")]
        r#type: Option<Cow<'a, str>>,
    }
    if let Some(event) = &frame.event {
        return Some(String::from_utf8_lossy(event));
    }
    let named: Named<'_> = serde_json::from_slice(&frame.data).ok()?;
    // A name with a line break would start another line of the event stream.
    named.r#type.filter(|name| !name.chars().any(char::is_control))
}

impl Sniffer for ResponsesSniffer {
    fn frame(&mut self, frame: &Frame) -> Verdict {
        #[derive(Deserialize)]
        struct Last<'a> {
            #[serde(borrow, default)]
            response: Option<&'a RawValue>,
        }
        let data = &frame.data[..];
        if data == b"[DONE]" {
            return Verdict::Swallow;
        }
        let name = name(frame);
        match name.as_deref() {
            Some("response.completed" | "response.incomplete" | "response.failed") => {}
            Some("error") => return Verdict::Fault(fault::read(&parsed_bytes(data))),
            Some(name) => {
                if name.ends_with(".delta") {
                    let text = json::raw_text(data, &DELTA).unwrap_or_default();
                    self.said.output_bytes += text.len() as u64;
                    if name == "response.output_text.delta" {
                        self.so_far.grow(text);
                    }
                } else {
                    self.so_far.see(name, data);
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
        let read = serde_json::from_slice::<Last<'_>>(data).map_err(|e| e.to_string());
        let last = read.and_then(|last| {
            let response = last.response.ok_or("there is no `response`")?;
            serde_json::from_str::<wire::Final<'_>>(response.get()).map_err(|e| e.to_string())
        });
        let last = match last {
            Ok(last) => last,
            Err(why) => {
                return Verdict::Fault(
                    Fault::new(Trouble::Interrupted, "the provider's last piece cannot be read")
                        .note(format!("unreadable responses event: {why}")),
                );
            }
        };
        if let Some(usage) = last.usage() {
            self.said.usage = Some(self.said.usage.unwrap_or_default().merged(usage));
        }
        self.said.tier = last.tier();
        if name.as_deref() == Some("response.failed") {
            let error = last.error.map_or(Value::Null, |error| parsed(error.get()));
            return Verdict::Fault(fault::read(&error));
        }
        self.said.finished = true;
        Verdict::Last
    }

    fn write(&self, frame: &Frame, out: &mut Vec<u8>) {
        if let Some(name) = name(frame) {
            out.extend_from_slice(b"event: ");
            out.extend_from_slice(name.as_bytes());
            out.push(b'\n');
        }
        frame.write_data(out);
    }

    fn cut(&mut self, usage: &Usage, out: &mut Vec<u8>) {
        self.so_far.cut(usage, LAST_WORDS, out);
        self.said.finished = true;
    }

    fn said(&self) -> &Said {
        &self.said
    }
}

fn parsed_bytes(data: &[u8]) -> Value {
    serde_json::from_slice(data).unwrap_or_default()
}

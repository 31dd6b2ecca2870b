//! Events that differ from the one before only in their text.
//!
//! Nearly all events of a stream are of this kind. Such an event begins and ends with the bytes of an
//! event that was parsed and has a string without escapes between, so it is valid JSON and means the
//! same apart from the text. It needs no parser.

use canon::{ApiError, Event, PartDelta, PartIndex, Usage};
use memchr::memmem::{self, Finder};
use memchr::{memchr, memrchr};
use std::ops::Range;

use crate::text_run::{TextFrame, TextRun};
use crate::text_template::{TemplateSlot, TextTemplate};
use crate::{FrameAction, ReplyMeter, StreamFrame, StreamMeter, StreamReader, json};

/// Expected number of bytes that an event has more when it is written.
const EXPECTED_EDIT_BYTES: usize = 64;
/// Bytes that are copied at once. Larger copies begin slowly.
const COPIED_BYTES: usize = 2 << 10;

/// Returns the position of bytes that occur exactly once.
fn find_only(data: &[u8], bytes: &[u8]) -> Option<usize> {
    let at = memmem::find(data, bytes)?;
    (memmem::rfind(data, bytes) == Some(at)).then_some(at)
}

/// The keys of texts in all formats.
const KEYS: [&[u8]; 6] =
    [b"text", b"content", b"delta", b"reasoning_content", b"reasoning", b"thinking"];

/// Returns the key of the value that begins at this position.
fn key_before(data: &[u8], at: usize) -> Option<&[u8]> {
    let head = data.get(..at)?.trim_ascii_end().strip_suffix(b":")?.trim_ascii_end();
    let head = head.strip_suffix(b"\"")?;
    head.get(memrchr(b'"', head)? + 1..)
}

/// A stream reader that can take a text without its event.
pub(crate) trait TextReader: StreamReader {
    /// Returns true if an event that differs from the one before only in its text need not be parsed.
    fn can_repeat(&self, place: PartIndex) -> bool;
    /// Takes a text that grows a part, of one such event or of several.
    fn push_text(&mut self, place: PartIndex, text: &str);
}

/// Reads a stream and parses only events that differ from the one before in more than their text.
#[derive(Debug, Default)]
pub(crate) struct RepeatingReader<R> {
    reader: R,
    template: TemplateSlot,
    place: PartIndex,
}

impl<R: TextReader> StreamReader for RepeatingReader<R> {
    fn push(&mut self, frame: &StreamFrame, out: &mut Vec<Event>) -> Result<(), ApiError> {
        if let Some((_, text)) = self.template.split(frame)
            && self.reader.can_repeat(self.place)
        {
            self.reader.push_text(self.place, text);
            out.push(Event::PartDelta(self.place, PartDelta::Text(text.to_owned())));
            return Ok(());
        }
        let before = out.len();
        self.reader.push(frame, out)?;
        // Without escapes every string stands in the event as it is read, so the only one that equals
        // the text is the text. It must stand under a key of texts: one that was put together from
        // several strings may equal a string of another meaning.
        if self.template.may_learn()
            && let Some([Event::PartDelta(place, PartDelta::Text(text))]) = out.get(before..)
            && memchr(b'\\', &frame.data).is_none()
        {
            self.place = *place;
            let quoted = [b"\"", text.as_bytes(), b"\""].concat();
            self.template.current = find_only(&frame.data, &quoted)
                .filter(|at| key_before(&frame.data, *at).is_some_and(|key| KEYS.contains(&key)))
                .and_then(|at| TextTemplate::new(frame, at + 1, text.len()));
        }
        Ok(())
    }

    fn repeat(&mut self, events: &[u8], run: &mut TextRun) -> usize {
        if !self.reader.can_repeat(self.place) {
            return 0;
        }
        let Self { reader, template, place } = self;
        let taken = run.fill(*place, |texts| {
            texts.reserve(template.max_events(events.len()));
            template.run(events, true, |_, text| texts.add(text))
        });
        if taken > 0 {
            reader.push_text(*place, run.joined());
        }
        taken
    }

    fn finish(&mut self, out: &mut Vec<Event>) -> Result<(), ApiError> {
        self.reader.finish(out)
    }

    fn is_done(&self) -> bool {
        self.reader.is_done()
    }
}

/// A stream meter that can count a text without its event.
pub(crate) trait TextMeter: StreamMeter {
    /// Counts a text. Its event differs from the one before only in this text.
    fn add_text(&mut self, text: &[u8]);
    /// Returns the number of candidates that have ended. An event that ends one is not repeated.
    fn ended(&self) -> usize;
    /// Returns the place of the text in the last event, if it is known.
    fn text_place(&self) -> Option<Range<usize>> {
        None
    }
}

/// Meters a stream and parses only events that differ from the one before in more than their text.
pub(crate) struct RepeatingMeter<M> {
    meter: M,
    /// The keys under which texts stand.
    keys: &'static [Finder<'static>],
    template: TemplateSlot,
    /// The bytes to write around the varied bytes of an event.
    written: TextFrame,
    /// True if events are written as they are received.
    is_unchanged: bool,
    /// True if the current event is like the one before.
    is_repeated: bool,
}

impl<M: TextMeter> RepeatingMeter<M> {
    pub(crate) fn new(meter: M, keys: &'static [Finder<'static>]) -> Self {
        let (template, written) = Default::default();
        Self { meter, keys, template, written, is_unchanged: false, is_repeated: false }
    }

    /// Makes a template of an event that added `bytes` of output and is forwarded.
    fn learn(&mut self, frame: &StreamFrame, bytes: usize) -> Option<TextTemplate> {
        let place = self.meter.text_place().or_else(|| {
            let mut places =
                self.keys.iter().filter_map(|key| json::raw_text_place(&frame.data, key));
            places.find(|place| !place.is_empty())
        });
        let start = place.filter(|place| place.len() == bytes)?.start;
        let template = TextTemplate::new(frame, start, bytes)?;
        let (varied, _) = template.split(frame)?;
        let mut written = Vec::with_capacity(frame.data.len() + EXPECTED_EDIT_BYTES);
        self.meter.write(frame, &mut written);
        let start = match template.before_end(&written, varied) {
            Some(before) => before.len(),
            None if template.is_numbered() => find_only(&written, varied)?,
            None => find_only(&written, &[b"\"", varied, b"\""].concat())? + 1,
        };
        let (before, rest) = written.split_at_checked(start)?;
        self.written = TextFrame::new(&[before], &[rest.get(varied.len()..)?]);
        self.is_unchanged = template.is_like(&self.written);
        Some(template)
    }
}

impl<M: TextMeter> StreamMeter for RepeatingMeter<M> {
    fn read(&mut self, frame: &StreamFrame) -> Result<FrameAction, ApiError> {
        let repeated = self.template.split(frame);
        self.is_repeated = repeated.is_some();
        if let Some((_, text)) = repeated {
            self.meter.add_text(text.as_bytes());
            return Ok(FrameAction::Forward);
        }
        let (before, ended) = (self.meter.totals().output_bytes, self.meter.ended());
        let action = self.meter.read(frame)?;
        let is_open = !self.meter.totals().is_finished && self.meter.ended() == ended;
        if is_open && self.template.may_learn() && matches!(action, FrameAction::Forward) {
            let bytes = usize::try_from(self.meter.totals().output_bytes - before).ok();
            let bytes = bytes.filter(|bytes| *bytes > 0);
            self.template.current = bytes.and_then(|bytes| self.learn(frame, bytes));
        }
        Ok(action)
    }

    fn repeat(&mut self, events: &[u8], out: &mut Vec<u8>) -> usize {
        let Self { meter, template, written, .. } = self;
        if self.is_unchanged {
            let taken = template.run(events, true, |_, text| meter.add_text(text));
            let taken_events = events.get(..taken).unwrap_or_default();
            taken_events.chunks(COPIED_BYTES).for_each(|part| out.extend_from_slice(part));
            return taken;
        }
        let mut opening = written.before();
        let taken = template.run(events, false, |varied, text| {
            meter.add_text(text);
            out.extend_from_slice(opening);
            out.extend_from_slice(varied);
            opening = written.between();
        });
        if taken > 0 {
            out.extend_from_slice(written.after());
        }
        taken
    }

    fn write(&self, frame: &StreamFrame, out: &mut Vec<u8>) {
        let template = self.template.current.as_ref().filter(|_| self.is_repeated);
        let Some(varied) = template.and_then(|template| template.varied(frame)) else {
            return self.meter.write(frame, out);
        };
        for piece in [self.written.before(), varied, self.written.after()] {
            out.extend_from_slice(piece);
        }
    }

    fn write_end(&self, out: &mut Vec<u8>) {
        self.meter.write_end(out);
    }

    fn write_truncated(&mut self, usage: &Usage, out: &mut Vec<u8>) {
        self.meter.write_truncated(usage, out);
    }

    fn totals(&self) -> &ReplyMeter {
        self.meter.totals()
    }

    fn abort_event(&self, fault: &ApiError) -> Option<Vec<u8>> {
        self.meter.abort_event(fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text_template::MAX_TEXT_BYTES;
    use crate::{Dialect, RequestFacts, SseDecoder};
    use bytes::Bytes;
    use std::cell::RefCell;

    /// Streams whose events repeat, with some that do not.
    fn streams() -> Vec<(&'static dyn Dialect, String)> {
        let long = "x".repeat(MAX_TEXT_BYTES + 1);
        let texts =
            ["one", "two words", "hü", "a\\n\\\"b", "", &long, "three", "\u{1f600}", "four"];
        let chat = |delta: &str, end: &str| {
            let choice = format!(r#"{{"index":0,"delta":{delta},"finish_reason":{end}}}"#);
            format!("data: {{\"id\":\"c\",\"model\":\"theirs\",\"choices\":[{choice}]}}\n\n")
        };
        let messages = |kind: &str, fields: &str| {
            format!("event: {kind}\ndata: {{\"type\":\"{kind}\",{fields}}}\n\n")
        };
        let mut chats = chat(r#"{"role":"assistant","content":""}"#, "null");
        let mut blocks = messages("message_start", r#""message":{"id":"m","model":"theirs"}"#);
        blocks += &messages(
            "content_block_start",
            r#""index":0,"content_block":{"type":"text","text":""}"#,
        );
        for (at, text) in texts.iter().cycle().take(20).enumerate() {
            chats += &chat(&format!(r#"{{"content":"{text}"}}"#), "null");
            let delta = format!(r#"{{"type":"text_delta","text":"{text}"}}"#);
            blocks += &messages("content_block_delta", &format!(r#""index":0,"delta":{delta}"#));
            if at % 7 == 6 {
                chats += ": a comment\n\n";
                blocks += &messages("ping", r#""x":1"#);
            }
        }
        chats += &chat("{}", r#""stop""#);
        chats += "data: [DONE]\n\n";
        blocks += &messages("content_block_stop", r#""index":0"#);
        blocks += &messages("message_delta", r#""delta":{"stop_reason":"end_turn"}"#);
        blocks += &messages("message_stop", r#""x":1"#);
        vec![(&crate::chat::ChatDialect, chats), (&crate::messages::MessagesDialect, blocks)]
    }

    /// Cuts a stream into pieces of this length and lets `take` have the events between two frames.
    fn run(
        stream: &str,
        length: usize,
        mut take: impl FnMut(&[u8]) -> usize,
        mut push: impl FnMut(&StreamFrame),
    ) -> usize {
        let (mut decoder, mut taken) = (SseDecoder::default(), 0);
        for piece in stream.as_bytes().chunks(length) {
            decoder.push(Bytes::copy_from_slice(piece));
            loop {
                let bytes = decoder.events().map_or(0, &mut take);
                decoder.skip(bytes);
                taken += bytes;
                match decoder.next_frame().unwrap() {
                    Some(frame) => push(&frame),
                    None => break,
                }
            }
        }
        taken
    }

    #[test]
    fn repeated_events_are_metered_like_any_other() {
        for (dialect, stream) in streams() {
            let facts = RequestFacts { model: "mine".to_owned(), ..RequestFacts::default() };
            let metered = |length: usize, is_taken: bool| {
                let meter = RefCell::new((dialect.stream_meter(&facts), Vec::new()));
                let take = |events: &[u8]| {
                    let (meter, out) = &mut *meter.borrow_mut();
                    if is_taken { meter.repeat(events, out) } else { 0 }
                };
                let taken = run(&stream, length, take, |frame| {
                    let (meter, out) = &mut *meter.borrow_mut();
                    if let FrameAction::Forward = meter.observe(frame) {
                        meter.write(frame, out);
                    }
                });
                let (meter, out) = meter.into_inner();
                assert_eq!(taken > 0, is_taken);
                (String::from_utf8(out).unwrap(), meter.totals().output_bytes)
            };
            let expected = metered(1 << 20, false);
            for length in [1 << 20, 1_000, 300] {
                assert_eq!(metered(length, true), expected, "{length}");
            }
        }
    }

    #[test]
    fn repeated_events_are_read_like_any_other() {
        for (dialect, stream) in streams() {
            let read = |length: usize, is_taken: bool| {
                let reader = RefCell::new((dialect.stream_reader(), Vec::new()));
                let take = |events: &[u8]| {
                    let (reader, out) = &mut *reader.borrow_mut();
                    let mut run = TextRun::default();
                    let taken = if is_taken { reader.repeat(events, &mut run) } else { 0 };
                    out.extend(run.events());
                    taken
                };
                run(&stream, length, take, |frame| {
                    let (reader, out) = &mut *reader.borrow_mut();
                    reader.push(frame, out).unwrap();
                });
                format!("{:?}", reader.into_inner().1)
            };
            let expected = read(1 << 20, false);
            for length in [1 << 20, 1_000, 300] {
                assert_eq!(read(length, true), expected, "{length}");
            }
        }
    }

    #[test]
    fn the_key_of_a_value_is_found() {
        let event = br#"{"a":1,"text" : "one","b":["two"]}"#;
        let key = |text: &str| key_before(event, memmem::find(event, text.as_bytes()).unwrap());
        assert_eq!(key("\"one\""), Some(&b"text"[..]));
        assert_eq!(key("\"two\""), None);
    }
}

//! Events that differ from the one before only in their text.
//!
//! Nearly all events of a stream are of this kind. Such an event begins and ends with the bytes of an
//! event that was parsed and has a string without escapes between, so it is valid JSON and means the
//! same apart from the text. It needs no parser.

use bytes::Bytes;
use canon::{ApiError, Event, PartDelta, PartIndex, Usage};
use memchr::memmem::{self, Finder};
use memchr::{memchr, memrchr};
use text_scan::plain_length;

use crate::{FrameAction, RepeatedText, ReplyMeter, StreamFrame, StreamMeter, StreamReader, json};

/// Number of templates that fit no event, after which no more are made.
const MAX_USELESS_TEMPLATES: u8 = 8;
/// Longer texts are checked like any other event.
const MAX_TEXT_BYTES: usize = 64 << 10;

/// The bytes around the text of an event.
#[derive(Debug)]
struct TextTemplate {
    event: Option<Bytes>,
    /// The beginning: up to the sequence number if there is one, else up to the text.
    head: Vec<u8>,
    /// The bytes between sequence number and text; `None` without a number.
    middle: Option<Vec<u8>>,
    tail: Vec<u8>,
    /// The event as it is received: its bytes up to the end of `head`, and from `tail` on. `None` if
    /// it has several lines of data.
    framed: Option<(Vec<u8>, Vec<u8>)>,
}

/// The first one of several events.
struct FirstEvent<'a> {
    /// The bytes between head and tail.
    varied: &'a [u8],
    text: &'a [u8],
    /// The events behind it.
    rest: &'a [u8],
}

impl TextTemplate {
    /// Returns the template of an event whose text is the string at `start`.
    fn new(frame: &StreamFrame, start: usize, length: usize) -> Option<Self> {
        const NUMBER: &[u8] = b"\"sequence_number\":";
        let (before, rest) = frame.data.split_at_checked(start)?;
        let tail = rest.get(length..)?;
        if before.last() != Some(&b'"') || tail.first() != Some(&b'"') {
            return None;
        }
        let number = memmem::find(before, NUMBER).map(|at| before.split_at(at + NUMBER.len()));
        let (head, middle) = match number {
            Some((head, rest)) => (head, Some(behind_digits(rest))),
            None => (before, None),
        };
        let middle = middle.map(<[u8]>::to_vec);
        let name = frame.event.as_deref().map(|name| [b"event: ", name, b"\n"].concat());
        let framed = memchr(b'\n', &frame.data).is_none().then(|| {
            let opening = [name.as_deref().unwrap_or_default(), b"data: ", head].concat();
            (opening, [tail, b"\n\n"].concat())
        });
        let (event, head, tail) = (frame.event.clone(), head.to_vec(), tail.to_vec());
        Some(Self { event, head, middle, tail, framed })
    }

    /// Returns the bytes of an event of this template between head and tail.
    fn varied<'a>(&self, frame: &'a StreamFrame) -> Option<&'a [u8]> {
        frame.data.get(self.head.len()..frame.data.len().checked_sub(self.tail.len())?)
    }

    /// Returns the bytes of an event between head and tail, and its text at the end of them; `None`
    /// if the event differs in anything else.
    fn split<'a>(&self, frame: &'a StreamFrame) -> Option<(&'a [u8], &'a str)> {
        let varied = frame.data.strip_prefix(&self.head[..])?.strip_suffix(&self.tail[..])?;
        if frame.event != self.event {
            return None;
        }
        let text = self.behind_number(varied)?;
        let is_text = !text.is_empty() && plain_length(text) == text.len();
        Some((varied, std::str::from_utf8(text).ok().filter(|_| is_text)?))
    }

    /// Returns the bytes behind the sequence number, if there is one, and what follows it.
    fn behind_number<'a>(&self, varied: &'a [u8]) -> Option<&'a [u8]> {
        let Some(middle) = &self.middle else { return Some(varied) };
        let rest = behind_digits(varied);
        let digits = varied.len() - rest.len();
        let is_number = digits == 1 || (digits > 1 && varied.first() != Some(&b'0'));
        rest.strip_prefix(&middle[..]).filter(|_| is_number)
    }

    /// Returns the first one of these events; `None` if it differs in anything but its text.
    fn first<'a>(&self, events: &'a [u8]) -> Option<FirstEvent<'a>> {
        let (opening, closing) = self.framed.as_ref()?;
        let varied = events.strip_prefix(&opening[..])?;
        let text = self.behind_number(varied)?;
        let (text, end) = text.split_at_checked(plain_length(text))?;
        let rest = end.strip_prefix(&closing[..])?;
        let varied = varied.get(..varied.len() - end.len())?;
        let is_short = (1..=MAX_TEXT_BYTES).contains(&text.len());
        is_short.then_some(FirstEvent { varied, text, rest })
    }
}

/// Returns the bytes behind leading digits.
fn behind_digits(bytes: &[u8]) -> &[u8] {
    let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    bytes.get(digits..).unwrap_or_default()
}

/// The current template, as long as templates are of use.
#[derive(Debug, Default)]
struct TemplateSlot {
    current: Option<TextTemplate>,
    useless: u8,
}

impl TemplateSlot {
    /// Returns the varied bytes and the text of an event like the one before.
    fn split<'a>(&mut self, frame: &'a StreamFrame) -> Option<(&'a [u8], &'a str)> {
        let found = self.current.as_ref()?.split(frame);
        match found {
            Some(_) => self.useless = 0,
            None => {
                self.current = None;
                self.useless += 1;
            }
        }
        found
    }

    /// Returns the first one of these events, if it is like the one before.
    fn first<'a>(&mut self, events: &'a [u8]) -> Option<FirstEvent<'a>> {
        let first = self.current.as_ref()?.first(events)?;
        self.useless = 0;
        Some(first)
    }

    fn may_learn(&self) -> bool {
        self.useless < MAX_USELESS_TEMPLATES
    }
}

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
    /// Takes a text that grows a part. Its event differs from the one before only in this text.
    /// Returns false if the event must be parsed.
    fn push_text(&mut self, place: PartIndex, text: &str) -> bool;
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
            && self.reader.push_text(self.place, text)
        {
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

    fn repeat<'a>(&mut self, events: &'a [u8]) -> Option<RepeatedText<'a>> {
        let FirstEvent { text, rest, .. } = self.template.first(events)?;
        let text = std::str::from_utf8(text).ok()?;
        let length = events.len() - rest.len();
        self.reader.push_text(self.place, text).then_some(RepeatedText {
            place: self.place,
            text,
            length,
        })
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
}

/// Meters a stream and parses only events that differ from the one before in more than their text.
pub(crate) struct RepeatingMeter<M> {
    meter: M,
    /// The keys under which texts stand.
    keys: &'static [Finder<'static>],
    template: TemplateSlot,
    /// The bytes to write before and after the varied bytes of an event.
    written: (Vec<u8>, Vec<u8>),
    /// True if the current event is like the one before.
    is_repeated: bool,
}

impl<M: TextMeter> RepeatingMeter<M> {
    pub(crate) fn new(meter: M, keys: &'static [Finder<'static>]) -> Self {
        let written = (Vec::new(), Vec::new());
        Self { meter, keys, template: TemplateSlot::default(), written, is_repeated: false }
    }

    /// Makes a template of an event that added `bytes` of output and is forwarded.
    fn learn(&mut self, frame: &StreamFrame, bytes: usize) -> Option<TextTemplate> {
        let texts = self.keys.iter().filter_map(|key| json::raw_text(&frame.data, key));
        let text = { texts }.find(|text| !text.is_empty()).filter(|text| text.len() == bytes)?;
        let start = (text.as_ptr() as usize).checked_sub(frame.data.as_ptr() as usize)?;
        let template = TextTemplate::new(frame, start, bytes)?;
        let (varied, _) = template.split(frame)?;
        let mut written = Vec::new();
        self.meter.write(frame, &mut written);
        let quoted = [b"\"", varied, b"\""].concat();
        let start = match template.middle {
            Some(_) => find_only(&written, varied)?,
            None => find_only(&written, &quoted)? + 1,
        };
        let tail = written.split_off(start + varied.len());
        written.truncate(start);
        self.written = (written, tail);
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
            let bytes = self.meter.totals().output_bytes - before;
            self.template.current =
                usize::try_from(bytes).ok().and_then(|bytes| self.learn(frame, bytes));
        }
        Ok(action)
    }

    fn repeat(&mut self, events: &[u8], out: &mut Vec<u8>) -> usize {
        let (head, tail) = &self.written;
        let mut left = events;
        while let Some(FirstEvent { varied, text, rest }) = self.template.first(left) {
            self.meter.add_text(text);
            for piece in [head, varied, tail] {
                out.extend_from_slice(piece);
            }
            left = rest;
        }
        events.len() - left.len()
    }

    fn write(&self, frame: &StreamFrame, out: &mut Vec<u8>) {
        let template = self.template.current.as_ref().filter(|_| self.is_repeated);
        let Some(varied) = template.and_then(|template| template.varied(frame)) else {
            return self.meter.write(frame, out);
        };
        let (head, tail) = &self.written;
        for piece in [head, varied, tail] {
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
    use crate::{Dialect, RequestFacts, SseDecoder};
    use std::cell::RefCell;

    fn template(event: &str, text: &str) -> TextTemplate {
        let start = event.find(text).unwrap();
        TextTemplate::new(&StreamFrame::data(event.to_owned()), start, text.len()).unwrap()
    }

    #[test]
    fn only_an_event_with_another_text_is_repeated() {
        let known = template(r#"{"a":1,"text":"one","b":[]}"#, "one");
        for (event, expected) in [
            (r#"{"a":1,"text":"two words","b":[]}"#, Some("two words")),
            (r#"{"a":1,"text":"h\u00fc","b":[]}"#, None),
            (r#"{"a":1,"text":"hü","b":[]}"#, Some("hü")),
            (r#"{"a":1,"text":"","b":[]}"#, None),
            (r#"{"a":2,"text":"two","b":[]}"#, None),
            (r#"{"a":1,"text":"two","b":[1]}"#, None),
            (r#"{"a":1,"text":"two","text":"three","b":[]}"#, None),
            ("{\"a\":1,\"text\":\"a\nb\",\"b\":[]}", None),
            (r#"{"a":1,"text":"#, None),
        ] {
            let frame = StreamFrame::data(event);
            assert_eq!(known.split(&frame).map(|(_, text)| text), expected, "{event}");
        }
        let named = StreamFrame { event: Some(Bytes::from("x")), data: Bytes::new() };
        assert!(known.split(&named).is_none());
    }

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
                    let text = if is_taken { reader.repeat(events) } else { None };
                    text.map_or(0, |RepeatedText { place, text, length }| {
                        out.push(Event::PartDelta(place, PartDelta::Text(text.to_owned())));
                        length
                    })
                };
                // One event at a time is taken here, between two frames.
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

    #[test]
    fn the_sequence_number_may_change() {
        let known = template(r#"{"sequence_number":9,"i":0,"delta":"one"}"#, "one");
        for (event, expected) in [
            (r#"{"sequence_number":10,"i":0,"delta":"two"}"#, Some("two")),
            (r#"{"sequence_number":0,"i":0,"delta":"two"}"#, Some("two")),
            (r#"{"sequence_number":01,"i":0,"delta":"two"}"#, None),
            (r#"{"sequence_number":,"i":0,"delta":"two"}"#, None),
            (r#"{"sequence_number":1.5,"i":0,"delta":"two"}"#, None),
            (r#"{"sequence_number":10,"i":1,"delta":"two"}"#, None),
        ] {
            let frame = StreamFrame::data(event);
            assert_eq!(known.split(&frame).map(|(_, text)| text), expected, "{event}");
        }
    }
}

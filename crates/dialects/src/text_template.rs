//! The bytes around the text of an event.

use memchr::memchr;
use memchr::memmem::Finder;
use simdutf8::basic::from_utf8;
use std::sync::LazyLock;
use text_scan::{PlainText, plain_length, short_plain_text};

use crate::StreamFrame;
use crate::text_run::TextFrame;

/// Number of templates that fit no event, after which no more are made.
const MAX_USELESS_TEMPLATES: u8 = 8;
/// Longer texts are checked like any other event.
pub(crate) const MAX_TEXT_BYTES: usize = 64 << 10;

/// The field of the number of an event, which grows with each.
static NUMBER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"sequence_number\":"));

/// The field of letters that hide the length of a text,
/// <https://platform.openai.com/docs/api-reference/chat/create#chat_create-stream_options>.
static OBFUSCATION: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"obfuscation\":\""));

/// The bytes around the text of an event.
#[derive(Debug)]
pub(crate) struct TextTemplate {
    /// The event as it is received in one line of data: its bytes up to the sequence number if there is
    /// one, else up to the text, and those behind the text.
    framed: TextFrame,
    /// The number of bytes before the data.
    opening: usize,
    /// The bytes between sequence number and text; `None` without a number.
    middle: Option<Vec<u8>>,
    /// True if the data has one line.
    is_line: bool,
    padding: Option<TailPadding>,
}

/// Bytes behind the text that mean nothing, and hide its length: spaces before the last brace, or a
/// string of random letters.
#[derive(Debug)]
struct TailPadding {
    is_string: bool,
    /// The number of bytes between the text and the padding.
    before: usize,
    /// The number of bytes from the text to the end of the padding.
    end: usize,
}

impl TailPadding {
    /// Finds the padding in the bytes behind a text.
    fn find(tail: &[u8]) -> Option<Self> {
        if let Some(at) = OBFUSCATION.find(tail) {
            let before = at + OBFUSCATION.needle().len();
            let end = before + plain_length(tail.get(before..)?);
            return Some(Self { is_string: true, before, end });
        }
        let before = trim_spaces(tail.strip_suffix(b"}")?).len();
        Some(Self { is_string: false, before, end: tail.len() - 1 })
    }

    /// Returns the bytes behind an event, of which `end` is the end. `after` is the end of the known one.
    fn behind<'a>(&self, after: &[u8], end: &'a [u8]) -> Option<&'a [u8]> {
        let rest = end.strip_prefix(after.get(..self.before)?)?;
        let length = match self.is_string {
            true => plain_length(rest),
            false => rest.iter().take_while(|byte| **byte == b' ').count(),
        };
        let (padding, rest) = rest.split_at_checked(length)?;
        rest.strip_prefix(after.get(self.end..)?).filter(|_| padding.is_ascii())
    }
}

/// Returns the bytes without spaces at their end.
fn trim_spaces(bytes: &[u8]) -> &[u8] {
    let spaces = bytes.iter().rev().take_while(|byte| **byte == b' ').count();
    bytes.get(..bytes.len() - spaces).unwrap_or_default()
}

impl TextTemplate {
    /// Returns the template of an event whose text is the string at `start`.
    pub(crate) fn new(frame: &StreamFrame, start: usize, length: usize) -> Option<Self> {
        let (before, rest) = frame.data.split_at_checked(start)?;
        let tail = rest.get(length..)?;
        if before.last() != Some(&b'"') || tail.first() != Some(&b'"') {
            return None;
        }
        let number = NUMBER.find(before).map(|at| before.split_at(at + NUMBER.needle().len()));
        let (head, middle) = match number {
            Some((head, rest)) => (head, Some(behind_digits(rest))),
            None => (before, None),
        };
        let middle = middle.map(<[u8]>::to_vec);
        let (end, after): (&[u8], [&[u8]; 2]) = (b"\ndata: ", [tail, b"\n\n"]);
        let framed = match &frame.event {
            Some(name) => TextFrame::new(&[b"event: ", name, end, head], &after),
            None => TextFrame::new(&[b"data: ", head], &after),
        };
        Some(Self {
            opening: framed.before().len() - head.len(),
            framed,
            middle,
            is_line: memchr(b'\n', &frame.data).is_none(),
            padding: TailPadding::find(tail),
        })
    }

    /// Returns the beginning of the data: up to the sequence number if there is one, else up to the text.
    fn head(&self) -> &[u8] {
        self.framed.before().get(self.opening..).unwrap_or_default()
    }

    /// Returns the data behind the text.
    fn tail(&self) -> &[u8] {
        self.framed.after().strip_suffix(b"\n\n").unwrap_or_default()
    }

    /// Returns the name of the events, if they have one.
    fn event(&self) -> Option<&[u8]> {
        let opening = self.framed.before().get(..self.opening)?;
        opening.strip_prefix(b"event: ")?.strip_suffix(b"\ndata: ")
    }

    /// Returns true if the events have a number.
    pub(crate) fn is_numbered(&self) -> bool {
        self.middle.is_some()
    }

    /// Returns true if events with these bytes around their text are those that are received.
    pub(crate) fn is_like(&self, written: &TextFrame) -> bool {
        let own = &self.framed;
        self.is_line && own.before() == written.before() && own.after() == written.after()
    }

    /// Returns the bytes before the varied ones of a written event, if it ends as it was received. Only
    /// the varied bytes can stand there then: an edit behind them changes the end.
    pub(crate) fn before_end<'w>(&self, written: &'w [u8], varied: &[u8]) -> Option<&'w [u8]> {
        written.strip_suffix(self.framed.after())?.strip_suffix(varied)
    }

    /// Returns the bytes of an event of this template between head and tail.
    pub(crate) fn varied<'a>(&self, frame: &'a StreamFrame) -> Option<&'a [u8]> {
        frame.data.get(self.head().len()..frame.data.len().checked_sub(self.tail().len())?)
    }

    /// Returns the bytes of an event between head and tail, and its text at the end of them; `None`
    /// if the event differs in anything else.
    pub(crate) fn split<'a>(&self, frame: &'a StreamFrame) -> Option<(&'a [u8], &'a str)> {
        let varied = frame.data.strip_prefix(self.head())?.strip_suffix(self.tail())?;
        if frame.event.as_deref() != self.event() {
            return None;
        }
        let text = self.behind_number(varied)?;
        let is_text = !text.is_empty() && plain_length(text) == text.len();
        Some((varied, std::str::from_utf8(text).ok().filter(|_| is_text)?))
    }

    /// Returns the bytes behind the sequence number, if there is one, and what follows it.
    #[inline]
    fn behind_number<'a>(&self, varied: &'a [u8]) -> Option<&'a [u8]> {
        let Some(middle) = &self.middle else { return Some(varied) };
        let rest = behind_digits(varied);
        let digits = varied.len() - rest.len();
        let is_number = digits == 1 || (digits > 1 && varied.first() != Some(&b'0'));
        rest.strip_prefix(&middle[..]).filter(|_| is_number)
    }

    /// Calls `take` with the bytes between head and tail, and with the text at the end of them, for the
    /// first of these events that differ in nothing else, or, with `any_padding`, in their padding.
    /// Returns the length of these events.
    #[inline]
    fn run<'a>(
        &self,
        events: &'a [u8],
        any_padding: bool,
        mut take: impl FnMut(&'a [u8], &'a [u8]),
    ) -> usize {
        if !self.is_line {
            return 0;
        }
        let framed = &self.framed;
        let padding = self.padding.as_ref().filter(|_| any_padding);
        let mut taken = 0;
        let mut next = events.strip_prefix(framed.before());
        while let Some(varied) = next
            && let Some(text) = self.behind_number(varied)
        {
            let PlainText { length, is_ascii } = short_plain_text(text);
            let Some((text, end)) = text.split_at_checked(length) else { break };
            next = end.strip_prefix(framed.between());
            let mut after = framed.after().len();
            if next.is_none() && !end.starts_with(framed.after()) {
                let behind = |padding: &TailPadding| padding.behind(framed.after(), end);
                let Some(rest) = padding.and_then(behind) else { break };
                next = rest.strip_prefix(framed.before());
                after = end.len() - rest.len();
            }
            let is_text = is_ascii || from_utf8(text).is_ok();
            if !is_text || length == 0 || length > MAX_TEXT_BYTES {
                break;
            }
            take(varied.get(..varied.len() - end.len()).unwrap_or_default(), text);
            taken = events.len() - end.len() + after;
        }
        taken
    }
}

/// Returns the bytes behind leading digits.
fn behind_digits(bytes: &[u8]) -> &[u8] {
    let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    bytes.get(digits..).unwrap_or_default()
}

/// The current template, as long as templates are of use.
#[derive(Debug, Default)]
pub(crate) struct TemplateSlot {
    pub(crate) current: Option<TextTemplate>,
    useless: u8,
}

impl TemplateSlot {
    /// Returns the varied bytes and the text of an event like the one before.
    pub(crate) fn split<'a>(&mut self, frame: &'a StreamFrame) -> Option<(&'a [u8], &'a str)> {
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

    /// Returns the number of events like the one before that have room in so many bytes.
    pub(crate) fn max_events(&self, bytes: usize) -> usize {
        let template = self.current.as_ref().filter(|template| template.is_line);
        template.map_or(0, |template| bytes / template.framed.between().len().max(1))
    }

    /// Calls `take` with the varied bytes and the text of the first of these events that are like the
    /// one before, apart from their padding if it may differ. Returns the length of these events.
    #[inline]
    pub(crate) fn run<'a>(
        &mut self,
        events: &'a [u8],
        any_padding: bool,
        take: impl FnMut(&'a [u8], &'a [u8]),
    ) -> usize {
        let template = self.current.as_ref();
        let taken = template.map_or(0, |template| template.run(events, any_padding, take));
        if taken > 0 {
            self.useless = 0;
        }
        taken
    }

    pub(crate) fn may_learn(&self) -> bool {
        self.useless < MAX_USELESS_TEMPLATES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

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
            let events = format!("data: {event}\n\ndata: {event}\n\n");
            let mut texts = Vec::new();
            let taken = known.run(events.as_bytes(), true, |_, text| texts.push(text));
            assert_eq!(texts, expected.map_or(vec![], |text| vec![text.as_bytes(); 2]));
            assert_eq!(taken, if expected.is_some() { events.len() } else { 0 });
        }
        let named = StreamFrame { event: Some(Bytes::from("x")), data: Bytes::new() };
        assert!(known.split(&named).is_none());
    }

    #[test]
    fn invalid_text_is_not_repeated() {
        let known = template(r#"{"text":"one"}"#, "one");
        for text in [&b"\xff"[..], b"12345678\xc3", b"1234567890123\xe6\xb8"] {
            let event = [b"data: {\"text\":\"", text, b"\"}\n\n"].concat();
            assert_eq!(known.run(&event, true, |_, _| {}), 0);
        }
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

    #[test]
    fn padding_may_differ() {
        let spaces = template(r#"{"d":{"text":"one"}  }"#, "one");
        let letters = template(r#"{"d":{"text":"one"},"obfuscation":"abc"}"#, "one");
        for (known, event, fits) in [
            (&spaces, r#"{"d":{"text":"two"}}"#, true),
            (&spaces, r#"{"d":{"text":"two"}     }"#, true),
            (&spaces, "{\"d\":{\"text\":\"two\"}\t}", false),
            (&spaces, r#"{"d":{"text":"two"} ,"a":1}"#, false),
            (&letters, r#"{"d":{"text":"two"},"obfuscation":""}"#, true),
            (&letters, r#"{"d":{"text":"two"},"obfuscation":"ABCDEFGHIJKLMNOP"}"#, true),
            (&letters, r#"{"d":{"text":"two"},"obfuscation":"ü"}"#, false),
            (&letters, r#"{"d":{"text":"two"},"obfuscation":"\n"}"#, false),
            (&letters, r#"{"d":{"text":"two"},"obfuscation":"a","b":1}"#, false),
        ] {
            let events = format!("data: {event}\n\n").repeat(2);
            let taken = known.run(events.as_bytes(), true, |_, text| assert_eq!(text, b"two"));
            assert_eq!(taken, if fits { events.len() } else { 0 }, "{event}");
        }
        let other = b"data: {\"d\":{\"text\":\"two\"}}\n\n";
        assert_eq!(spaces.run(other, false, |_, _| {}), 0);
    }
}

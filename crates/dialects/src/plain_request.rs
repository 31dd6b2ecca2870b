//! Recognition of a request that holds only text.
//!
//! Most requests are a model, turns of text and a few numbers. One walk over such a body tells the facts
//! that the parse by its description would tell, and that it names no object, no media and no address.
//! Whatever is not surely so is left to that parse, which also names the error. The fields come from
//! the descriptions; a format adds the form of its turns. The same walk makes the parsed request, if it
//! is wanted.

use canon::{ChatRequest, NeedKind, RequestNeeds, WireFormat, is_abandoned};
use simdutf8::basic::from_utf8;
use std::ops::Range;
use text_scan::{PlainText, plain_length, plain_text};

use crate::body_outline::BodyOutline;
use crate::caller_labels::CallerLabels;
use crate::checks::{MAX_MODEL_BYTES, path_model};
use crate::dialect::{PatchPoints, RequestFacts, RequestTarget};
use crate::object_fields::is_blank;
use crate::plain_chat::{PlainTurns, WantsChat, keep_stream_options};
use crate::plain_shape::{
    PARAMETERS, PlainField, PlainInstructions, PlainKind, PlainShape, PlainTurn,
};
use crate::session_sign::SessionSigns;
use crate::wire_object::FieldSpec;
use crate::word_search::FILE_TEXT;

/// Items of a list that every format takes.
const MAX_ITEMS: usize = 10_000;
/// Bytes of the id of a user, and of other short texts, that every format takes.
const MAX_HINT_BYTES: usize = 4_096;
/// Output limits that every format takes.
const OUTPUT_LIMITS: std::ops::RangeInclusive<u64> = 16..=1 << 30;
/// Bytes of a text among which its first letter must be.
const MAX_BLANK_BYTES: usize = 256;

/// A recognised request.
pub(crate) struct RecognisedRequest {
    pub(crate) facts: RequestFacts,
    pub(crate) is_wanted: bool,
    /// The parsed request; `None` if it is not wanted or has to be parsed.
    pub(crate) chat: Option<Box<ChatRequest>>,
}

impl PlainShape {
    /// Recognises a request with these described fields; `None` if it has to be parsed.
    pub(crate) fn recognise(
        &self,
        (origin, fields): (WireFormat, &[FieldSpec]),
        target: &RequestTarget,
        body: &[u8],
        wants_chat: Option<WantsChat<'_>>,
    ) -> Option<RecognisedRequest> {
        let known = self.known.get_or_init(|| self.known_fields(fields, ""));
        let path = target.model.as_deref().filter(|_| self.is_in_path);
        // Turns are kept until the model tells that they are not wanted.
        let is_wanted = wants_chat.is_some_and(|wants_chat| path.is_none_or(wants_chat));
        let turns = (is_wanted && !target.json_array).then(PlainTurns::default);
        let found = FoundValues { turns, is_wanted, ..FoundValues::default() };
        let mut walk = PlainWalk { body, at: 0, shape: self, wants_chat, found };
        walk.peek();
        let insert_at = walk.at + 1;
        walk.object(known)?;
        walk.peek();
        let found = &mut walk.found;
        let (turns, user, cache_key) = (found.turns.take(), found.user.take(), found.cache_key);
        let is_wanted = found.is_wanted;
        let FoundValues { model, is_stream, reports_usage, limit, parameters, .. } = walk.found;
        let (is_end, has_turns) = (walk.at == body.len(), walk.found.has_turns);
        if !is_end || !has_turns || (self.needs_limit && limit.is_none()) {
            return None;
        }
        // Only a stream has options of a stream.
        if walk.found.stream_options.is_some() && is_stream != Some(true) {
            return None;
        }
        let mut needs = RequestNeeds::default();
        for (parameter, found) in PARAMETERS.iter().zip(parameters) {
            if let Some((path, value)) = found {
                needs.add(path.to_owned(), NeedKind::Parameter(parameter.1, value));
            }
        }
        let name = match (self.is_in_path, &model) {
            (true, _) => path_model(target).ok()?,
            (false, Some((_, name))) => (*name).to_owned(),
            (false, None) => return None,
        };
        let stream = if self.is_in_path { target.stream } else { is_stream.unwrap_or(false) };
        // Only in the messages format the user's id stands in `metadata.user_id`.
        let user_id = user.map(|(_, user)| user).filter(|_| origin == WireFormat::Messages);
        let session = SessionSigns { cache_key, user_id, ..SessionSigns::default() }.session();
        let labels = CallerLabels::read(user.map(|(_, user)| user), None);
        let chat = turns.map(|turns| {
            let mut chat = turns.into_chat(name.clone());
            chat.stream = stream;
            let sampling = &mut chat.sampling;
            let values = parameters.map(|found| found.map(|(_, value)| value));
            let [temperature, top_p, presence, frequency] = values;
            (sampling.temperature, sampling.top_p) = (temperature, top_p);
            (sampling.presence_penalty, sampling.frequency_penalty) = (presence, frequency);
            sampling.max_output_tokens = limit.as_ref().map(|(_, limit)| *limit);
            chat.hints.user = user.map(|(_, user)| user.to_owned());
            chat.hints.cache_key = cache_key.map(str::to_owned);
            if let Some(reports_usage) = reports_usage {
                keep_stream_options(&mut chat, origin, reports_usage);
            }
            chat
        });
        let facts = RequestFacts {
            model: name,
            stream,
            json_array: self.is_in_path && target.stream && target.json_array,
            wants_usage: reports_usage.unwrap_or(self.reports_usage),
            max_output_tokens: limit.as_ref().map(|(_, limit)| *limit),
            candidates: 1,
            patch_points: PatchPoints {
                insert_at,
                model: model.map(|(range, _)| range),
                limit: limit.map(|(range, _)| range).or(walk.found.limit_place),
                stream_options: walk.found.stream_options,
            },
            outline: BodyOutline::nothing(),
            only_text: true,
            needs,
            session,
            labels,
            ..RequestFacts::default()
        };
        Some(RecognisedRequest { facts, is_wanted, chat })
    }
}

/// Values of a body.
#[derive(Default)]
struct FoundValues<'b> {
    model: Option<(Range<usize>, &'b str)>,
    is_stream: Option<bool>,
    stream_options: Option<Range<usize>>,
    reports_usage: Option<bool>,
    limit: Option<(Range<usize>, u64)>,
    /// The place for an output limit in an object that may have one.
    limit_place: Option<Range<usize>>,
    parameters: [Option<(&'b str, f64)>; PARAMETERS.len()],
    has_turns: bool,
    /// The user's id. Of several fields for it, that of the lower number counts.
    user: Option<(usize, &'b str)>,
    cache_key: Option<&'b str>,
    /// True as long as the parsed request may be wanted.
    is_wanted: bool,
    /// The turns for it.
    turns: Option<PlainTurns>,
}

/// A body and the place up to which it is read. Each step returns `None` if the body is not surely plain.
struct PlainWalk<'b> {
    body: &'b [u8],
    at: usize,
    shape: &'b PlainShape,
    wants_chat: Option<WantsChat<'b>>,
    found: FoundValues<'b>,
}

impl<'b> PlainWalk<'b> {
    fn byte(&self) -> u8 {
        self.body.get(self.at).copied().unwrap_or(0)
    }

    /// Skips white space and returns the next byte; zero at the end.
    #[inline]
    fn peek(&mut self) -> u8 {
        while matches!(self.byte(), b' ' | b'\n' | b'\t' | b'\r') {
            self.at += 1;
        }
        self.byte()
    }

    #[inline]
    fn take(&mut self, token: u8) -> Option<()> {
        let is_there = self.peek() == token;
        self.at += 1;
        is_there.then_some(())
    }

    /// Reads a list or object from bracket to bracket. It must not be empty.
    fn items(
        &mut self,
        [open, close]: [u8; 2],
        mut item: impl FnMut(&mut Self) -> Option<()>,
    ) -> Option<()> {
        self.take(open)?;
        for _ in 0..MAX_ITEMS {
            if is_abandoned() {
                return None;
            }
            item(self)?;
            let next = self.peek();
            self.at += 1;
            match next {
                b',' => {}
                _ if next == close => return Some(()),
                _ => return None,
            }
        }
        None
    }

    /// Reads an object whose fields are known. None of them may come twice.
    fn object(&mut self, known: &'b [PlainField]) -> Option<()> {
        let mut seen = 0_u64;
        self.items(*b"{}", |walk| {
            let name = walk.name()?;
            let at = known.iter().position(|field| field.name.as_bytes() == name)?;
            let bit = 1_u64.checked_shl(u32::try_from(at).ok()?)?;
            if seen & bit != 0 {
                return None;
            }
            seen |= bit;
            walk.field(at, known.get(at)?)
        })
    }

    fn field(&mut self, number: usize, field: &'b PlainField) -> Option<()> {
        let shape = self.shape;
        match &field.kind {
            PlainKind::Model => {
                self.peek();
                let start = self.at;
                let name = from_utf8(self.word()?).ok()?;
                let is_allowed = (1..=MAX_MODEL_BYTES).contains(&name.len());
                self.found.model = Some((start..self.at, name));
                self.found.is_wanted = self.wants_chat.is_some_and(|wants_chat| wants_chat(name));
                if !self.found.is_wanted {
                    self.found.turns = None;
                }
                is_allowed.then_some(())
            }
            PlainKind::Stream => {
                self.found.is_stream = Some(self.flag()?);
                Some(())
            }
            PlainKind::StreamOptions => {
                self.peek();
                let start = self.at;
                self.take(b'{')?;
                (self.name()? == b"include_usage").then_some(())?;
                self.found.reports_usage = Some(self.flag()?);
                self.take(b'}')?;
                self.found.stream_options = Some(start..self.at);
                Some(())
            }
            PlainKind::OutputLimit => {
                let limit = self.whole_number()?;
                let is_only = self.found.limit.replace(limit).is_none();
                is_only.then_some(())
            }
            PlainKind::Parameter(parameter) => {
                let value = (&*field.path, self.number_to_one()?);
                let at = PARAMETERS.iter().position(|(_, own)| own == parameter)?;
                *self.found.parameters.get_mut(at)? = Some(value);
                Some(())
            }
            PlainKind::User => {
                let user = self.hint()?;
                if self.found.user.is_none_or(|(other, _)| number < other) {
                    self.found.user = Some((number, user));
                }
                Some(())
            }
            PlainKind::CacheKey => {
                self.found.cache_key = Some(self.hint()?);
                Some(())
            }
            PlainKind::Turns => {
                self.found.has_turns = true;
                match self.peek() {
                    b'"' if shape.takes_one_text => {
                        self.text()?;
                        self.end_turn();
                        Some(())
                    }
                    _ => self.items(*b"[]", |walk| {
                        walk.turn(&shape.turn)?;
                        walk.end_turn();
                        Some(())
                    }),
                }
            }
            PlainKind::Instructions => {
                match (shape.instructions, self.peek()) {
                    (PlainInstructions::Text | PlainInstructions::TextOrParts, b'"') => {
                        self.text()?;
                    }
                    (PlainInstructions::TextOrParts, _) => self.parts(&shape.turn)?,
                    (PlainInstructions::Turn, _) => self.turn(&shape.turn)?,
                    (PlainInstructions::Text, _) => return None,
                }
                if let Some(turns) = &mut self.found.turns {
                    turns.end_instructions();
                }
                Some(())
            }
            PlainKind::Object(inside) => {
                self.peek();
                let may_have_limit =
                    inside.iter().any(|field| matches!(field.kind, PlainKind::OutputLimit));
                let place = self.at + 1;
                if may_have_limit {
                    self.found.limit_place = Some(place..place);
                }
                self.object(inside)
            }
        }
    }

    fn end_turn(&mut self) {
        if let Some(turns) = &mut self.found.turns {
            turns.end_turn(self.shape.turn.merges_model);
        }
    }

    fn hint(&mut self) -> Option<&'b str> {
        from_utf8(self.word()?).ok().filter(|text| text.len() <= MAX_HINT_BYTES)
    }

    fn turn(&mut self, shape: &PlainTurn) -> Option<()> {
        let (mut has_role, mut has_content, mut has_kind) = (!shape.needs_role, false, false);
        let mut is_first_role = true;
        self.items(*b"{}", |walk| {
            let name = walk.name()?;
            if name == shape.content.as_bytes() {
                (!std::mem::replace(&mut has_content, true)).then_some(())?;
                match walk.peek() {
                    b'"' if shape.may_be_text => walk.text(),
                    _ => walk.parts(shape),
                }
            } else if name == b"role" {
                has_role = true;
                std::mem::replace(&mut is_first_role, false).then_some(())?;
                let word = walk.word()?;
                let (_, role) = shape.roles.iter().find(|(own, _)| own.as_bytes() == word)?;
                match (role, &mut walk.found.turns) {
                    (Some(role), Some(turns)) => turns.set_role(*role),
                    (Some(_) | None, _) => walk.found.turns = None,
                }
                Some(())
            } else if name == b"type" {
                (!std::mem::replace(&mut has_kind, true)).then_some(())?;
                (walk.word()? == shape.kind?.as_bytes()).then_some(())
            } else {
                None
            }
        })?;
        (has_role && has_content).then_some(())
    }

    fn parts(&mut self, shape: &PlainTurn) -> Option<()> {
        self.items(*b"[]", |walk| {
            let (mut has_text, mut has_kind) = (false, shape.part_kinds.is_empty());
            walk.items(*b"{}", |walk| match walk.name()? {
                b"text" if !has_text => {
                    has_text = true;
                    walk.text()
                }
                b"type" if !has_kind => {
                    has_kind = true;
                    is_one_of(walk.word()?, shape.part_kinds).then_some(())
                }
                _ => None,
            })?;
            (has_text && has_kind).then_some(())
        })
    }

    /// Reads a name and the colon behind it.
    fn name(&mut self) -> Option<&'b [u8]> {
        let name = self.word()?;
        self.take(b':')?;
        Some(name)
    }

    /// Reads a short string without escapes. It need not be UTF-8.
    #[inline]
    fn word(&mut self) -> Option<&'b [u8]> {
        self.take(b'"')?;
        let rest = self.body.get(self.at..)?;
        let (word, end) = rest.split_at_checked(plain_length(rest))?;
        self.at += word.len() + 1;
        (end.first() == Some(&b'"')).then_some(word)
    }

    /// Reads a text for the model. It must not name a file.
    fn text(&mut self) -> Option<()> {
        self.take(b'"')?;
        let (start, mut is_all_ascii, mut has_escapes) = (self.at, true, false);
        loop {
            let PlainText { length, is_ascii } = plain_text(self.body.get(self.at..)?);
            self.at += length;
            is_all_ascii &= is_ascii;
            match self.byte() {
                b'"' => break,
                b'\\' if !is_abandoned() => {
                    has_escapes = true;
                    self.escape()?;
                }
                _ => return None,
            }
        }
        let text = self.body.get(start..self.at)?;
        self.at += 1;
        if let Some(turns) = &mut self.found.turns {
            turns.add_text(self.body.get(start - 1..self.at)?, has_escapes)?;
        } else if !is_all_ascii {
            from_utf8(text).ok()?;
        }
        (!may_name_file(text)).then_some(())
    }

    /// Skips an escape. Half a character is left to the parser.
    fn escape(&mut self) -> Option<()> {
        if matches!(
            self.body.get(self.at + 1)?,
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't'
        ) {
            self.at += 2;
            return Some(());
        }
        match self.code_unit()? {
            0xd800..=0xdbff => matches!(self.code_unit()?, 0xdc00..=0xdfff).then_some(()),
            0xdc00..=0xdfff => None,
            _ => Some(()),
        }
    }

    fn code_unit(&mut self) -> Option<u16> {
        let digits = self.body.get(self.at..)?.strip_prefix(b"\\u")?.first_chunk::<4>()?;
        self.at += 6;
        let digits = from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
        u16::from_str_radix(digits, 16).ok()
    }

    fn flag(&mut self) -> Option<bool> {
        self.peek();
        let rest = self.body.get(self.at..)?;
        let is_true = rest.starts_with(b"true");
        self.at += if is_true { 4 } else { 5 };
        (is_true || rest.starts_with(b"false")).then_some(is_true)
    }

    /// Reads a whole number that every format takes as an output limit, and its place.
    fn whole_number(&mut self) -> Option<(Range<usize>, u64)> {
        self.peek();
        let start = self.at;
        let mut value = 0_u64;
        while let digit @ b'0'..=b'9' = self.byte() {
            value = value.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
            self.at += 1;
        }
        let has_more = matches!(self.byte(), b'.' | b'e' | b'E');
        let has_zero = self.body.get(start) == Some(&b'0');
        let is_allowed = OUTPUT_LIMITS.contains(&value) && !has_more && !has_zero;
        is_allowed.then_some((start..self.at, value))
    }

    /// Reads a number from zero to one without an exponent.
    fn number_to_one(&mut self) -> Option<f64> {
        self.peek();
        let rest = self.body.get(self.at..)?;
        let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
        let length = rest.iter().position(|byte| !is_part(byte))?;
        let digits = rest.get(..length)?;
        self.at += length;
        let is_plain = match digits {
            [b'0' | b'1'] => true,
            [b'0' | b'1', b'.', fraction @ ..] => {
                !fraction.is_empty() && fraction.iter().all(u8::is_ascii_digit)
            }
            _ => false,
        };
        let value: f64 = from_utf8(digits).ok().filter(|_| is_plain)?.parse().ok()?;
        (0.0..=1.0).contains(&value).then_some(value)
    }
}

fn is_one_of(word: &[u8], words: &[&str]) -> bool {
    words.iter().any(|own| own.as_bytes() == word)
}

/// Returns false if a text surely names no file.
fn may_name_file(text: &[u8]) -> bool {
    match text.first() {
        None => false,
        Some(b'!'..=b'[' | b']'..=b'~') => text.starts_with(FILE_TEXT.as_bytes()),
        Some(_) => {
            let head = text.get(..MAX_BLANK_BYTES).unwrap_or(text);
            let mut rest = head.utf8_chunks().next().map_or("", |chunk| chunk.valid());
            loop {
                let trimmed = rest.trim_start_matches(is_blank);
                let escaped =
                    ["\\n", "\\r", "\\t"].iter().find_map(|end| trimmed.strip_prefix(end));
                match escaped {
                    Some(more) => rest = more,
                    None => return trimmed.is_empty() || trimmed.starts_with(['\\', 'f']),
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "plain_request_tests.rs"]
mod tests;

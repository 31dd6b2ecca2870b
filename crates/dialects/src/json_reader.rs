//! Parser of JSON text into descriptions.
//!
//! It visits the bytes of a string once, many at a time, and borrows strings without escapes. It
//! takes only what `serde_json` takes and reads the same from it; long fractions it reads exactly. Its
//! error says nothing: the caller parses invalid text again with `serde_json`, which names the place.
//! So it may refuse what is rare. It also refuses what nobody waits for any more.

use canon::{is_abandoned, is_reserved};
pub(crate) use serde::de::value::Error as ReadError;
use serde::de::value::{BorrowedStrDeserializer, MapDeserializer};
use serde::de::{
    DeserializeSeed, Deserializer, Error, IgnoredAny, IntoDeserializer as _, MapAccess, SeqAccess,
    Visitor,
};
use serde::{Deserialize, forward_to_deserialize_any};
use serde_json::Number;
use std::borrow::Cow;
use std::marker::PhantomData;
use std::ops::Range;
use text_scan::plain_length;

/// Maximum nesting depth, as in `serde_json`.
const MAX_NESTING: usize = 127;

/// The name by which a type asks for its value as a present one. It accepts malformed values as well;
/// this parser leaves them to `serde_json`.
pub(crate) const LOOSE_VALUE: &str = "loose value";

/// Parses a text that holds one JSON value.
pub(crate) fn read<'de, T: Deserialize<'de>>(text: &'de str) -> Result<T, ReadError> {
    JsonReader::new(text).read_all(PhantomData)
}

/// Parses a text that holds one JSON value, and returns the places of its long strings without escapes.
pub(crate) fn read_with_long_texts<'de, T: Deserialize<'de>>(
    text: &'de str,
) -> Result<(T, Vec<Range<usize>>), ReadError> {
    let mut reader = JsonReader::new(text);
    let value = T::deserialize(&mut reader)?;
    reader.end()?;
    Ok((value, reader.long_texts))
}

/// Parses a reply. Values that are kept as text, or not at all, may have the reserved name: whatever a
/// model says, its reply has a price.
pub(crate) fn read_reply<'de, T: Deserialize<'de>>(text: &'de str) -> Result<T, ReadError> {
    JsonReader::of_reply(text).read_all(PhantomData)
}

/// Returns true if a text is one JSON value. Its numbers may be larger than any type can hold.
pub(crate) fn is_value(text: &str) -> bool {
    let reader = JsonReader { takes_any_number: true, ..JsonReader::new(text) };
    reader.read_all(PhantomData::<IgnoredAny>).is_ok()
}

/// Returns the error of a text that is not a value of the expected type, or that this parser does
/// not read.
fn unreadable() -> ReadError {
    ReadError::custom("unreadable JSON")
}

/// A text and the place up to which it is read.
pub(crate) struct JsonReader<'de> {
    text: &'de str,
    at: usize,
    depth: usize,
    /// The place at which the next look is due whether anybody waits for the result.
    next_look: usize,
    /// True if values that are kept as text, or not at all, may have the reserved name.
    takes_reserved: bool,
    /// True while such a value is read.
    is_raw: bool,
    /// True if a number may be larger than any type can hold.
    takes_any_number: bool,
    /// The places of long strings without escapes.
    long_texts: Vec<Range<usize>>,
}

/// Length from which on a string is a long one.
pub(crate) const LONG_TEXT_BYTES: usize = 2 << 10;
/// Bytes between two looks: few enough to be read at once.
const BYTES_PER_LOOK: usize = 4 << 10;

impl<'de> JsonReader<'de> {
    fn new(text: &'de str) -> Self {
        let next_look = BYTES_PER_LOOK;
        Self {
            text,
            at: 0,
            depth: 0,
            next_look,
            takes_reserved: false,
            is_raw: false,
            takes_any_number: false,
            long_texts: Vec::new(),
        }
    }

    /// Begins to read a reply.
    pub(crate) fn of_reply(text: &'de str) -> Self {
        Self { takes_reserved: true, ..Self::new(text) }
    }

    fn read_all<S: DeserializeSeed<'de>>(mut self, seed: S) -> Result<S::Value, ReadError> {
        let value = seed.deserialize(&mut self)?;
        self.end().map(|()| value)
    }

    #[cold]
    fn look(&mut self) -> Result<(), ReadError> {
        self.next_look = self.at + BYTES_PER_LOOK;
        if canon::is_abandoned_now() { Err(unreadable()) } else { Ok(()) }
    }

    /// Skips whitespace and returns the next byte; zero at the end.
    #[inline]
    pub(crate) fn peek(&mut self) -> u8 {
        match self.byte(self.at) {
            byte @ ..=b' ' => self.skip_blanks(byte),
            byte => byte,
        }
    }

    fn skip_blanks(&mut self, mut byte: u8) -> u8 {
        while matches!(byte, b' ' | b'\n' | b'\t' | b'\r') {
            self.at += 1;
            byte = self.byte(self.at);
        }
        byte
    }

    #[inline]
    fn byte(&self, at: usize) -> u8 {
        self.text.as_bytes().get(at).copied().unwrap_or(0)
    }

    #[inline]
    fn expect(&mut self, token: u8) -> Result<(), ReadError> {
        let is_there = self.peek() == token;
        self.at += 1;
        if is_there { Ok(()) } else { Err(unreadable()) }
    }

    fn expect_word(&mut self, word: &str) -> Result<(), ReadError> {
        let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
        self.at += word.len();
        if rest.starts_with(word.as_bytes()) { Ok(()) } else { Err(unreadable()) }
    }

    /// Returns the text of a JSON string; `None` if it is none, or has half a character.
    pub(crate) fn unescape(quoted: &'de str) -> Option<String> {
        let mut reader = Self::new(quoted);
        let text = reader.string().ok()?.into_owned();
        (reader.at == quoted.len()).then_some(text)
    }

    /// Finds the end of the plain bytes of a string. Returns the byte that follows them.
    #[inline]
    fn skip_plain(&mut self) -> u8 {
        self.at += plain_length(self.text.as_bytes().get(self.at..).unwrap_or_default());
        self.byte(self.at)
    }

    /// Reads a string, from its opening quote.
    #[inline]
    fn string(&mut self) -> Result<Cow<'de, str>, ReadError> {
        self.at += 1;
        let start = self.at;
        let end = self.skip_plain();
        let plain = self.text.get(start..self.at).ok_or_else(unreadable)?;
        match end {
            b'"' => self.end_plain(start),
            _ => return self.escaped_string(plain).map(Cow::Owned),
        }
        Ok(Cow::Borrowed(plain))
    }

    /// Moves behind the quote that ends a string without escapes.
    #[inline]
    fn end_plain(&mut self, start: usize) {
        if self.at - start >= LONG_TEXT_BYTES {
            self.long_texts.push(start..self.at);
        }
        self.at += 1;
    }

    /// Reads the rest of a string, from its first escape.
    fn escaped_string(&mut self, plain: &str) -> Result<String, ReadError> {
        let mut read = plain.to_owned();
        while self.byte(self.at) == b'\\' && !is_abandoned() {
            read.push(self.escape()?.ok_or_else(unreadable)?);
            let start = self.at;
            self.skip_plain();
            read.push_str(self.text.get(start..self.at).ok_or_else(unreadable)?);
        }
        let is_ended = self.byte(self.at) == b'"';
        self.at += 1;
        if is_ended { Ok(read) } else { Err(unreadable()) }
    }

    /// Reads an escape; `None` for half a character.
    fn escape(&mut self) -> Result<Option<char>, ReadError> {
        self.at += 2;
        Ok(Some(match self.byte(self.at - 1) {
            byte @ (b'"' | b'\\' | b'/') => char::from(byte),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let first = self.code_unit()?;
                let is_pair = matches!(first, 0xd800..=0xdbff)
                    && self.text.get(self.at..).is_some_and(|rest| rest.starts_with("\\u"));
                self.at += if is_pair { 2 } else { 0 };
                let second = is_pair.then(|| self.code_unit()).transpose()?;
                let units = [first].into_iter().chain(second);
                return Ok(char::decode_utf16(units).next().and_then(Result::ok));
            }
            _ => return Err(unreadable()),
        }))
    }

    fn code_unit(&mut self) -> Result<u16, ReadError> {
        let digits = self.text.get(self.at..self.at + 4).filter(|hex| !hex.starts_with('+'));
        self.at += 4;
        digits.and_then(|hex| u16::from_str_radix(hex, 16).ok()).ok_or_else(unreadable)
    }

    fn number<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, ReadError> {
        let (start, is_negative) = (self.at, self.byte(self.at) == b'-');
        let first = start + usize::from(is_negative);
        let (mut value, mut end) = (0_i64, first);
        while let digit @ b'0'..=b'9' = self.byte(end) {
            value = value.wrapping_mul(10).wrapping_add(i64::from(digit - b'0'));
            end += 1;
        }
        // Larger numbers may not fit, a zero has no sign and no digit behind it.
        let is_plain =
            (1..=18).contains(&(end - first)) && !matches!(self.byte(end), b'.' | b'e' | b'E');
        let has_zero = self.byte(first) == b'0' && (is_negative || end > first + 1);
        if is_plain && !has_zero {
            self.at = end;
            return match is_negative {
                true => visitor.visit_i64(-value),
                false => visitor.visit_u64(value.unsigned_abs()),
            };
        }
        while matches!(self.byte(end), b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-') {
            end += 1;
        }
        let digits = self.text.get(start..end).ok_or_else(unreadable)?;
        self.at = end;
        let number: Number = match serde_json::from_str(digits) {
            Ok(number) => number,
            // `serde_json` does not convert a number that is ignored.
            Err(_)
                if self.takes_any_number && serde_json::from_str::<IgnoredAny>(digits).is_ok() =>
            {
                return visitor.visit_unit();
            }
            Err(_) => return Err(unreadable()),
        };
        match (number.as_u64(), number.as_i64()) {
            (Some(number), _) => visitor.visit_u64(number),
            (None, Some(number)) => visitor.visit_i64(number),
            // Exact, so that a number is the same after it was written and read again.
            (None, None) => visitor.visit_f64(digits.parse().map_err(|_| unreadable())?),
        }
    }

    /// Skips a string, from its opening quote.
    #[inline]
    fn skip_string(&mut self) -> Result<(), ReadError> {
        self.at += 1;
        let start = self.at;
        if self.skip_plain() == b'"' {
            self.end_plain(start);
            return Ok(());
        }
        loop {
            match self.byte(self.at) {
                b'"' => break,
                b'\\' if !is_abandoned() => drop(self.escape()?),
                _ => return Err(unreadable()),
            }
            self.skip_plain();
        }
        self.at += 1;
        Ok(())
    }

    /// Returns the length of the string at the beginning of the text, with its quotes.
    pub(crate) fn string_bytes(&mut self) -> Result<usize, ReadError> {
        self.skip_string().map(|()| self.at)
    }

    /// Skips a value, which is checked like any other.
    fn skip_value(&mut self) -> Result<(), ReadError> {
        match self.peek() {
            b'"' => self.skip_string(),
            b'{' => self.skip_items(b'}'),
            b'[' => self.skip_items(b']'),
            b't' => self.expect_word("true"),
            b'f' => self.expect_word("false"),
            b'n' => self.expect_word("null"),
            _ => self.number(IgnoredAny).map(drop),
        }
    }

    /// Skips a list or object, from its opening bracket.
    fn skip_items(&mut self, end: u8) -> Result<(), ReadError> {
        self.enter()?;
        let mut is_first = true;
        while self.next_item(end, is_first)? {
            is_first = false;
            if end == b'}' {
                let start = self.at;
                if self.byte(start) != b'"' {
                    return Err(unreadable());
                }
                self.skip_string()?;
                self.check_name(start)?;
                self.expect(b':')?;
            }
            self.skip_value()?;
        }
        Ok(())
    }

    /// Enters a list or object, at its opening bracket.
    #[inline]
    pub(crate) fn enter(&mut self) -> Result<(), ReadError> {
        if self.depth == MAX_NESTING {
            return Err(unreadable());
        }
        self.depth += 1;
        self.at += 1;
        Ok(())
    }

    /// Moves to the next item of a list or object. Returns false behind its closing bracket.
    #[inline]
    pub(crate) fn next_item(&mut self, end: u8, is_first: bool) -> Result<bool, ReadError> {
        let next = self.peek();
        if next == end {
            self.at += 1;
            self.depth -= 1;
            return Ok(false);
        }
        if self.at >= self.next_look {
            self.look()?;
        }
        if !is_first {
            self.at += 1;
            if next != b',' || self.peek() == end {
                return Err(unreadable());
            }
        }
        Ok(true)
    }

    /// Reads the name of a field and the colon behind it.
    #[inline]
    pub(crate) fn name(&mut self) -> Result<Cow<'de, str>, ReadError> {
        let start = self.at;
        if self.byte(start) != b'"' {
            return Err(unreadable());
        }
        let name = self.string()?;
        self.check_name(start)?;
        self.expect(b':')?;
        Ok(name)
    }

    /// Returns the place of the next token.
    #[inline]
    pub(crate) fn place(&mut self) -> usize {
        self.peek();
        self.at
    }

    /// Returns the place behind the last token.
    #[inline]
    pub(crate) fn last(&self) -> usize {
        self.at
    }

    /// Checks that nothing follows.
    pub(crate) fn end(&mut self) -> Result<(), ReadError> {
        self.peek();
        if self.at == self.text.len() { Ok(()) } else { Err(unreadable()) }
    }

    /// Returns the text of a value.
    pub(crate) fn written_value(&mut self) -> Result<&'de str, ReadError> {
        self.peek();
        let start = self.at;
        self.is_raw = self.takes_reserved;
        self.skip_value()?;
        self.is_raw = false;
        self.text.get(start..self.at).ok_or_else(unreadable)
    }

    /// Refuses the reserved name. The name begins with the quote at `start` and was just read.
    #[inline]
    fn check_name(&self, start: usize) -> Result<(), ReadError> {
        let is_odd = matches!(self.byte(start + 1), b'$' | b'\\');
        let written = self.text.as_bytes().get(start..self.at);
        match is_odd && !self.is_raw && written.is_some_and(is_reserved) {
            true => Err(unreadable()),
            false => Ok(()),
        }
    }

    /// Reads the items of a list or object up to the closing bracket.
    #[inline]
    fn nested<T>(
        &mut self,
        end: u8,
        visit: impl FnOnce(JsonItems<'_, 'de>) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        if self.depth == MAX_NESTING {
            return Err(unreadable());
        }
        self.depth += 1;
        self.at += 1;
        let value = visit(JsonItems { reader: self, is_first: true })?;
        self.depth -= 1;
        self.expect(end)?;
        Ok(value)
    }
}

impl<'de> Deserializer<'de> for &mut JsonReader<'de> {
    type Error = ReadError;

    #[inline]
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.peek() {
            b'"' => match self.string()? {
                Cow::Borrowed(text) => visitor.visit_borrowed_str(text),
                Cow::Owned(text) => visitor.visit_string(text),
            },
            b'{' => self.nested(b'}', |items| visitor.visit_map(items)),
            b'[' => self.nested(b']', |items| visitor.visit_seq(items)),
            b't' => self.expect_word("true").and_then(|()| visitor.visit_bool(true)),
            b'f' => self.expect_word("false").and_then(|()| visitor.visit_bool(false)),
            b'n' => self.expect_word("null").and_then(|()| visitor.visit_unit()),
            _ => self.number(visitor),
        }
    }

    #[inline]
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.peek() {
            b'n' => self.expect_word("null").and_then(|()| visitor.visit_none()),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        self.written_value()?;
        visitor.visit_unit()
    }

    /// A name with a dollar sign stands for the text of the value, in the form that the types of
    /// `serde_json` for it expect: an object with that name.
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        match name {
            LOOSE_VALUE => return visitor.visit_some(self),
            _ if !name.starts_with('$') => return visitor.visit_newtype_struct(self),
            _ => {}
        }
        let text = BorrowedStrDeserializer::new(self.written_value()?);
        visitor.visit_map(MapDeserializer::new(std::iter::once((name, text))))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map struct enum identifier
    }
}

/// The items of a list, or the fields of an object.
struct JsonItems<'r, 'de> {
    reader: &'r mut JsonReader<'de>,
    is_first: bool,
}

impl JsonItems<'_, '_> {
    /// Returns the first byte of the next item; `None` at the end.
    #[inline]
    fn next(&mut self, end: u8) -> Result<Option<u8>, ReadError> {
        let next = self.reader.peek();
        if next == end {
            return Ok(None);
        }
        if self.reader.at >= self.reader.next_look {
            self.reader.look()?;
        }
        if std::mem::take(&mut self.is_first) {
            return Ok(Some(next));
        }
        if next != b',' {
            return Err(unreadable());
        }
        self.reader.at += 1;
        Ok(Some(self.reader.peek()))
    }
}

impl<'de> MapAccess<'de> for JsonItems<'_, 'de> {
    type Error = ReadError;

    #[inline]
    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, ReadError> {
        match self.next(b'}')? {
            None => Ok(None),
            Some(b'"') => {
                let start = self.reader.at;
                let name = self.reader.string()?;
                self.reader.check_name(start)?;
                match name {
                    Cow::Borrowed(name) => seed.deserialize(BorrowedStrDeserializer::new(name)),
                    Cow::Owned(name) => seed.deserialize(name.into_deserializer()),
                }
                .map(Some)
            }
            Some(_) => Err(unreadable()),
        }
    }

    #[inline]
    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, ReadError> {
        self.reader.expect(b':')?;
        seed.deserialize(&mut *self.reader)
    }
}

impl<'de> SeqAccess<'de> for JsonItems<'_, 'de> {
    type Error = ReadError;

    #[inline]
    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, ReadError> {
        match self.next(b']')? {
            None => Ok(None),
            Some(_) => seed.deserialize(&mut *self.reader).map(Some),
        }
    }
}

#[path = "json_fields.rs"]
mod fields;

#[cfg(test)]
#[path = "json_reader_tests.rs"]
mod tests;

//! Reading of JSON values one by one, in the order of the text.
//!
//! Each step returns `None` if the value is not of the wanted kind or cannot be read. The text is then
//! left to the general parser.

use serde::Deserialize as _;
use serde_json::value::RawValue;
use std::borrow::Cow;

use super::JsonReader;

impl<'de> JsonReader<'de> {
    /// Calls a function with the name of each field of an object. The function reads the value.
    #[inline]
    pub(crate) fn each_field(
        &mut self,
        mut read: impl FnMut(&mut Self, &'de str) -> Option<()>,
    ) -> Option<()> {
        (self.peek() == b'{').then_some(())?;
        self.enter().ok()?;
        let mut is_first = true;
        while self.next_item(b'}', is_first).ok()? {
            is_first = false;
            let Cow::Borrowed(name) = self.name().ok()? else { return None };
            read(self, name)?;
        }
        Some(())
    }

    /// Calls a function for each item of a list. It reads the item.
    #[inline]
    pub(crate) fn each_item(
        &mut self,
        mut read: impl FnMut(&mut Self) -> Option<()>,
    ) -> Option<()> {
        (self.peek() == b'[').then_some(())?;
        self.enter().ok()?;
        let mut is_first = true;
        while self.next_item(b']', is_first).ok()? {
            is_first = false;
            read(self)?;
        }
        Some(())
    }

    /// Reads a text; `None` for any other value.
    #[inline]
    pub(crate) fn text(&mut self) -> Option<Cow<'de, str>> {
        (self.peek() == b'"').then_some(())?;
        self.string().ok()
    }

    /// Reads a text or null; `None` for any other value.
    #[inline]
    pub(crate) fn text_or_null(&mut self) -> Option<Option<Cow<'de, str>>> {
        if self.peek() == b'n' { self.null().map(|()| None) } else { self.text().map(Some) }
    }

    /// Returns true if null is next, and reads it.
    #[inline]
    pub(crate) fn is_null(&mut self) -> Option<bool> {
        if self.peek() == b'n' { self.null().map(|()| true) } else { Some(false) }
    }

    /// Reads null; `None` for any other value.
    pub(crate) fn null(&mut self) -> Option<()> {
        self.peek();
        self.expect_word("null").ok()
    }

    /// Reads a whole number of a few digits or null; `None` for any other value.
    #[inline]
    pub(crate) fn count_or_null(&mut self) -> Option<Option<u64>> {
        if self.peek() == b'n' {
            return self.null().map(|()| None);
        }
        let (start, mut value) = (self.at, 0_u64);
        while let digit @ b'0'..=b'9' = self.byte(self.at) {
            value = value.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'));
            self.at += 1;
        }
        let digits = self.at - start;
        let is_plain = digits == 1 || ((2..=18).contains(&digits) && self.byte(start) != b'0');
        let has_more = matches!(self.byte(self.at), b'.' | b'e' | b'E');
        (is_plain && !has_more).then_some(Some(value))
    }

    /// Reads a value as it was sent.
    pub(crate) fn raw(&mut self) -> Option<&'de RawValue> {
        <&RawValue>::deserialize(self).ok()
    }
}

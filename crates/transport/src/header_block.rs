//! Headers of a received message over the bytes of its head.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use std::fmt;

/// Longest name that a [`HeaderName`] can hold.
pub(crate) const MAX_NAME_BYTES: usize = (1 << 16) - 1;

/// Headers of a received message in their order, with names in lower case.
///
/// A message has few headers, and most of them are never read. A pass over them is less work than a
/// [`HeaderMap`], which hashes each name and owns each value.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct HeaderBlock {
    bytes: Bytes,
    fields: Vec<FieldSpan>,
}

/// Position of one header in the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FieldSpan {
    pub(crate) name: (u32, u32),
    pub(crate) value: (u32, u32),
}

impl FieldSpan {
    /// Returns the position of a parsed header within its head.
    pub(crate) fn of(header: &httparse::Header<'_>, head: &[u8]) -> Self {
        Self { name: span(header.name.as_bytes(), head), value: span(header.value, head) }
    }

    /// Returns the position in another head, in which the value begins at `at` and has this length.
    pub(crate) fn moved_to(self, at: usize, length: usize) -> Option<Self> {
        let start = u32::try_from(at).ok()?;
        let end = u32::try_from(at + length).ok()?;
        let name = |place: u32| start.checked_sub(self.value.0.checked_sub(place)?);
        Some(Self { name: (name(self.name.0)?, name(self.name.1)?), value: (start, end) })
    }
}

/// Returns the position of a part of a head.
pub(crate) fn span(part: &[u8], head: &[u8]) -> (u32, u32) {
    let start = (part.as_ptr() as usize).wrapping_sub(head.as_ptr() as usize);
    let end = start.wrapping_add(part.len());
    (u32::try_from(start).unwrap_or(u32::MAX), u32::try_from(end).unwrap_or(u32::MAX))
}

impl HeaderBlock {
    /// Takes the headers of a head at these positions.
    pub(crate) fn new(mut head: BytesMut, fields: Vec<FieldSpan>) -> Self {
        for FieldSpan { name: (start, end), .. } in &fields {
            if let Some(name) = head.get_mut(*start as usize..*end as usize) {
                name.make_ascii_lowercase();
            }
        }
        Self { bytes: head.freeze(), fields }
    }

    /// Takes the headers of a head whose names are in lower case.
    pub(crate) fn of_lower(head: BytesMut, fields: Vec<FieldSpan>) -> Self {
        Self { bytes: head.freeze(), fields }
    }

    /// Copies the headers of a map.
    pub fn from_map(headers: &HeaderMap) -> Self {
        let mut bytes = Vec::new();
        let mut fields = Vec::with_capacity(headers.len());
        let mut add = |part: &[u8]| {
            let start = bytes.len();
            bytes.extend_from_slice(part);
            let place = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
            (place(start), place(bytes.len()))
        };
        for (name, value) in headers {
            fields.push(FieldSpan {
                name: add(name.as_str().as_bytes()),
                value: add(value.as_bytes()),
            });
        }
        Self { bytes: Bytes::from(bytes), fields }
    }

    /// Returns the headers as a map.
    pub fn to_map(&self) -> HeaderMap {
        let mut headers = HeaderMap::with_capacity(self.fields.len());
        for (name, value) in self.iter() {
            let name = HeaderName::from_bytes(name.as_bytes());
            let value = HeaderValue::from_maybe_shared(self.bytes.slice_ref(value));
            if let (Ok(name), Ok(value)) = (name, value) {
                headers.append(name, value);
            }
        }
        headers
    }

    /// Iterates over the headers, with names in lower case.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.fields.iter().map(|field| {
            let name = std::str::from_utf8(self.part(field.name)).unwrap_or_default();
            (name, self.part(field.value))
        })
    }

    /// Returns the number of headers.
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// Returns true if there are no headers.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Returns the first value of a header. The name is in lower case.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.get_all(name).next()
    }

    /// Iterates over the values of a header. The name is in lower case.
    pub fn get_all<'a, 'n>(
        &'a self,
        name: &'n str,
    ) -> impl Iterator<Item = &'a [u8]> + use<'a, 'n> {
        let named = move |field: &&FieldSpan| {
            (field.name.1 - field.name.0) as usize == name.len()
                && self.part(field.name) == name.as_bytes()
        };
        self.fields.iter().filter(named).map(|field| self.part(field.value))
    }

    /// Returns the first value of a header, if it consists of visible ASCII characters.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(visible_text)
    }

    /// Returns the first value of a header as an owned value.
    pub fn value(&self, name: &str) -> Option<HeaderValue> {
        HeaderValue::from_maybe_shared(self.bytes.slice_ref(self.get(name)?)).ok()
    }

    /// Returns true if there is a header of that name, which is in lower case.
    pub fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Returns the text at this position of the head.
    pub(crate) fn head_text(&self, start: u32, end: u32) -> &str {
        std::str::from_utf8(self.part((start, end))).unwrap_or_default()
    }

    fn part(&self, (start, end): (u32, u32)) -> &[u8] {
        self.bytes.get(start as usize..end as usize).unwrap_or_default()
    }
}

/// Returns a value as text if it consists of visible ASCII characters, as [`HeaderValue::to_str`] does.
pub fn visible_text(value: &[u8]) -> Option<&str> {
    let is_visible = |byte: u8| (32..127).contains(&byte) | (byte == b'\t');
    // Without an early end, so that the compiler can compare many bytes at once.
    let visible = value.iter().fold(true, |visible, byte| visible & is_visible(*byte));
    std::str::from_utf8(value).ok().filter(|_| visible)
}

/// Values may be secrets.
impl fmt::Debug for HeaderBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|(name, _)| name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(head: &str) -> HeaderBlock {
        let mut slots = [httparse::EMPTY_HEADER; 8];
        let (_, headers) = httparse::parse_headers(head.as_bytes(), &mut slots).unwrap().unwrap();
        let fields = headers.iter().map(|header| FieldSpan::of(header, head.as_bytes())).collect();
        HeaderBlock::new(BytesMut::from(head), fields)
    }

    #[test]
    fn a_block_and_its_map_tell_the_same() {
        let block = block("Accept: a\r\nX-One:1\r\naccept:  b \r\nEMPTY:\r\nbin: \u{e9}\r\n\r\n");
        let map = block.to_map();
        for name in ["accept", "x-one", "empty", "bin", "absent", "host"] {
            let own: Vec<&[u8]> = block.get_all(name).collect();
            let told: Vec<&[u8]> = map.get_all(name).iter().map(HeaderValue::as_bytes).collect();
            assert_eq!(own, told, "{name}");
            assert_eq!(block.contains(name), map.contains_key(name), "{name}");
            assert_eq!(block.text(name), map.get(name).and_then(|value| value.to_str().ok()));
            assert_eq!(block.value(name).as_ref(), map.get(name));
        }
        assert_eq!((block.len(), block.is_empty()), (5, false));
        let again = HeaderBlock::from_map(&map);
        assert_eq!(again.to_map(), map);
        assert_eq!(format!("{again:?}"), r#"["accept", "accept", "x-one", "empty", "bin"]"#);
    }
}

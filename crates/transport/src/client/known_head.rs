//! Response heads that differ from an earlier one of their connection only in values.
//!
//! A provider writes the same headers in the same order again and again. Such a head needs no parser:
//! each name stands where it stood, moved by the lengths of the values before it.

use memchr::memchr;

use crate::header_block::FieldSpan;

/// Headers that determine the framing and the reuse of the connection.
#[derive(Clone, Copy, Default)]
pub(crate) struct ResponseFraming {
    pub(crate) length: Option<u64>,
    /// Number of headers that tell the length.
    pub(crate) lengths: u8,
    /// True if the body has a transfer coding. `chunked` is true if chunks are the outermost one.
    pub(crate) has_transfer_coding: bool,
    pub(crate) chunked: bool,
    pub(crate) close: bool,
    pub(crate) keep_alive: bool,
}

/// The last head of a connection that was parsed.
#[derive(Default)]
pub(crate) struct KnownHead {
    /// Its bytes as they were received.
    bytes: Vec<u8>,
    fields: Vec<FieldSpan>,
    seen: ResponseFraming,
    /// True if its names are in lower case.
    is_lower: bool,
    /// Number of heads in a row that were like none before.
    misses: u32,
}

/// A head like the known one.
pub(crate) struct FittingHead {
    /// Its length.
    pub(crate) end: usize,
    pub(crate) fields: Vec<FieldSpan>,
    pub(crate) seen: ResponseFraming,
    /// True if its names are in lower case.
    pub(crate) is_lower: bool,
}

impl KnownHead {
    /// Keeps a head with the status 200. The more heads in a row were unlike the known one, the fewer of
    /// them are kept.
    pub(crate) fn learn(&mut self, head: &[u8], fields: &[FieldSpan], seen: ResponseFraming) {
        let is_due = self.misses.count_ones() <= 1;
        self.misses = self.misses.saturating_add(1);
        let part = |(start, end): (u32, u32)| head.get(start as usize..end as usize);
        // An empty value has no certain place.
        let is_regular = |field: &FieldSpan| part(field.value).is_some_and(|part| !part.is_empty());
        if !is_due || !fields.iter().all(is_regular) {
            return;
        }
        let is_lower = |field: &FieldSpan| {
            part(field.name).is_some_and(|name| !name.iter().any(u8::is_ascii_uppercase))
        };
        self.is_lower = fields.iter().all(is_lower);
        self.bytes.clear();
        self.bytes.extend_from_slice(head);
        self.fields.clear();
        self.fields.extend_from_slice(fields);
        self.seen = seen;
    }

    /// Returns the head at the beginning of these bytes if it has the names and the line ends of the
    /// known one.
    pub(crate) fn fit(&mut self, received: &[u8]) -> Option<FittingHead> {
        let known = &self.bytes[..];
        let mut fields = Vec::with_capacity(self.fields.len());
        let mut seen = self.seen;
        let (mut known_at, mut rest) = (0, received);
        for field in &self.fields {
            let (start, end) = (field.value.0 as usize, field.value.1 as usize);
            rest = rest.strip_prefix(known.get(known_at..start)?)?;
            let at = received.len() - rest.len();
            let value = known.get(start..end)?;
            let length = match rest.strip_prefix(value) {
                Some([b'\r', ..]) => value.len(),
                _ => {
                    let length = value_length(rest)?;
                    let name = known.get(field.name.0 as usize..field.name.1 as usize)?;
                    seen.replace(name, rest.get(..length)?)?;
                    length
                }
            };
            rest = rest.get(length..)?;
            fields.push(field.moved_to(at, length)?);
            known_at = end;
        }
        rest = rest.strip_prefix(known.get(known_at..).filter(|end| !end.is_empty())?)?;
        self.misses = 0;
        let end = received.len() - rest.len();
        Some(FittingHead { end, fields, seen, is_lower: self.is_lower })
    }
}

/// Returns the length of a value up to its line end. It has no blanks around it.
fn value_length(line: &[u8]) -> Option<usize> {
    let length = memchr(b'\r', line)?;
    let value = line.get(..length)?;
    let is_blank = |byte: Option<&u8>| byte.is_none_or(|byte| matches!(byte, b' ' | b'\t'));
    // Without an early end, so that the compiler can compare many bytes at once.
    let is_allowed = |byte: u8| (byte >= b' ') & (byte != 0x7f) | (byte == b'\t');
    let is_valid = value.iter().fold(true, |valid, byte| valid & is_allowed(*byte));
    (is_valid && !is_blank(value.first()) && !is_blank(value.last())).then_some(length)
}

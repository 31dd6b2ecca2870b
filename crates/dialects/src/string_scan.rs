//! Search for the end of the plain bytes in a JSON string.

use memchr::memchr2;

/// A number with the value one in each byte.
pub(crate) const ONES: u64 = u64::MAX / 255;

/// Returns the position of the first of eight bytes that cannot stand in a JSON string as it is.
#[inline]
fn find_escaped(block: [u8; 8]) -> Option<usize> {
    // A subtraction sets the highest bit of the found one. The exclusive or turns the quote into the
    // byte behind the control characters.
    let bytes = u64::from_le_bytes(block);
    let low = (bytes ^ (ONES * 2)).wrapping_sub(ONES * 33);
    let escape = (bytes ^ (ONES * u64::from(b'\\'))).wrapping_sub(ONES);
    let found = (low | escape) & !bytes & (ONES * 128);
    (found != 0).then(|| found.trailing_zeros() as usize / 8)
}

/// Returns the number of leading bytes that can stand in a JSON string as they are.
#[inline]
pub(crate) fn plain_length(text: &[u8]) -> usize {
    // Most names and words are short.
    match text.first_chunk() {
        Some(block) => find_escaped(*block).unwrap_or_else(|| plain_length_from(text, 8)),
        None => plain_length_from(text, 0),
    }
}

/// Returns the number of leading bytes that can stand in a JSON string as they are. So many of them
/// are known.
fn plain_length_from(text: &[u8], known: usize) -> usize {
    /// Bytes after which a text is taken for a long one.
    const SHORT_TEXT: usize = 24;
    let is_escaped = |byte: &u8| (byte ^ 2 < 33) | (*byte == b'\\');
    let mut at = known;
    while let Some((block, _)) = text.get(at..).and_then(<[u8]>::split_first_chunk) {
        if let Some(found) = find_escaped(*block) {
            return at + found;
        }
        at += 8;
        if at != SHORT_TEXT {
            continue;
        }
        // Long texts without an early end, so that the compiler can use vector instructions.
        while let Some(block) = text.get(at..).and_then(<[u8]>::first_chunk::<64>)
            && !block.iter().fold(false, |found, byte| found | is_escaped(byte))
        {
            at += 64;
        }
    }
    // The last eight bytes, some of them for the second time.
    if at > 0
        && let Some((_, block)) = text.split_last_chunk()
    {
        return find_escaped(*block).map_or(text.len(), |found| text.len() - 8 + found);
    }
    text.iter().position(is_escaped).unwrap_or(text.len())
}

/// Returns the number of leading bytes of a JSON string up to its end, its first escape or a byte that
/// it must not have. A text that is to be written may have many of these, and would be searched to its
/// end for each.
#[inline]
pub(crate) fn string_length(text: &[u8]) -> usize {
    match text.first_chunk() {
        Some(block) => find_escaped(*block).unwrap_or_else(|| long_string_length(text)),
        None => plain_length_from(text, 0),
    }
}

/// Returns the length of a string whose first eight bytes are known.
fn long_string_length(text: &[u8]) -> usize {
    for at in [8, 16] {
        let Some(block) = text.get(at..).and_then(<[u8]>::first_chunk) else {
            return plain_length_from(text, at);
        };
        if let Some(found) = find_escaped(*block) {
            return at + found;
        }
    }
    let (known, rest) = text.split_at_checked(24).unwrap_or_default();
    let plain = memchr2(b'"', b'\\', rest).and_then(|end| rest.get(..end)).unwrap_or(rest);
    // Without an early end, so that the compiler can use vector instructions.
    let least = plain.iter().fold(u8::MAX, |least, byte| least.min(*byte));
    let control = (least < b' ').then(|| plain.iter().position(|byte| *byte < b' ')).flatten();
    known.len() + control.unwrap_or(plain.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn both_searches_find_the_first_byte_that_is_not_plain(
            text in "[ -~é\\x00-\\x1f]{0,40}",
            filler in 0..200_usize,
            at in any::<prop::sample::Index>(),
        ) {
            let mut text = text.into_bytes();
            let at = at.index(text.len() + 1);
            text.splice(at..at, std::iter::repeat_n(b'x', filler));
            let is_plain = |byte: &u8| !matches!(byte, ..b' ' | b'"' | b'\\');
            let expected = text.iter().take_while(|byte| is_plain(byte)).count();
            prop_assert_eq!(plain_length(&text), expected);
            prop_assert_eq!(string_length(&text), expected);
        }
    }
}

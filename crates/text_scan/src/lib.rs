//! Search for the end of the plain bytes of a JSON string.
//!
//! Every body is searched once from its first byte to its last. The compiler may use vector
//! instructions of 32 bytes only if the processor is known to have them, and a call of code that needs
//! them is unsafe. They take a third of the instructions of what it can do without. So this crate has
//! unsafe code: one such call and one load, in the module `avx2`. A property test compares both ways
//! with a loop over the bytes.

/// A number with the value one in each byte.
const ONES: u64 = u64::MAX / 255;
/// The byte behind the control characters.
const FIRST_PLAIN: u8 = b' ';
/// The bit in which a quote differs from that byte.
const QUOTE_BIT: u8 = b'"' ^ FIRST_PLAIN;

/// The leading bytes of a text that can stand in a JSON string as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainText {
    /// The number of these bytes: up to the first quote, backslash or control character.
    pub length: usize,
    /// True if all of them are ASCII.
    pub is_ascii: bool,
}

/// Returns the number of leading bytes that can stand in a JSON string as they are.
#[inline]
pub fn plain_length(text: &[u8]) -> usize {
    // Most names and words are short.
    match text.first_chunk() {
        Some(block) => find_escaped(*block).unwrap_or_else(|| longer_length(text)),
        None => text.iter().position(is_escaped).unwrap_or(text.len()),
    }
}

/// Returns the plain length of a text whose first eight bytes are plain.
fn longer_length(text: &[u8]) -> usize {
    for at in [8, 16] {
        let Some(block) = text.get(at..).and_then(<[u8]>::first_chunk) else {
            // The last eight bytes, some of them for the second time.
            let found = text.last_chunk().and_then(|block| find_escaped(*block));
            return found.map_or(text.len(), |found| text.len() - 8 + found);
        };
        if let Some(found) = find_escaped(*block) {
            return at + found;
        }
    }
    24 + plain_text(text.get(24..).unwrap_or_default()).length
}

/// Finds the end of the leading bytes like [`plain_text`], in texts that mostly are short.
#[inline]
pub fn short_plain_text(text: &[u8]) -> PlainText {
    match text.first_chunk() {
        Some(block) => match find_escaped(*block) {
            Some(length) => PlainText { length, is_ascii: ascii_length(*block) >= length },
            None => longer_plain_text(text, ascii_length(*block) == 8),
        },
        None => portable(text, 0, true),
    }
}

/// Finds the end of a text whose first eight bytes are plain, and ASCII or not.
fn longer_plain_text(text: &[u8], mut is_ascii: bool) -> PlainText {
    for at in [8, 16] {
        let Some(block) = text.get(at..).and_then(<[u8]>::first_chunk) else {
            return portable(text, at, is_ascii);
        };
        let ascii = ascii_length(*block);
        if let Some(found) = find_escaped(*block) {
            return PlainText { length: at + found, is_ascii: is_ascii && ascii >= found };
        }
        is_ascii &= ascii == 8;
    }
    let rest = plain_text(text.get(24..).unwrap_or_default());
    PlainText { length: 24 + rest.length, is_ascii: is_ascii && rest.is_ascii }
}

/// Returns the number of leading ASCII bytes of eight.
#[inline]
fn ascii_length(block: [u8; 8]) -> usize {
    (u64::from_le_bytes(block) & (ONES * 128)).trailing_zeros() as usize / 8
}

/// Finds the end of the leading bytes that can stand in a JSON string as they are.
pub fn plain_text(text: &[u8]) -> PlainText {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        return avx2::call(text);
    }
    portable(text, 0, true)
}

/// Returns the position of the first of eight bytes that cannot stand in a JSON string as it is.
#[inline]
fn find_escaped(block: [u8; 8]) -> Option<usize> {
    // A subtraction sets the highest bit of the found one. The exclusive or turns the quote into the
    // byte behind the control characters.
    let bytes = u64::from_le_bytes(block);
    let low = (bytes ^ (ONES * u64::from(QUOTE_BIT))).wrapping_sub(ONES * 33);
    let escape = (bytes ^ (ONES * u64::from(b'\\'))).wrapping_sub(ONES);
    let found = (low | escape) & !bytes & (ONES * 128);
    (found != 0).then(|| found.trailing_zeros() as usize / 8)
}

fn is_escaped(byte: &u8) -> bool {
    (byte ^ QUOTE_BIT <= FIRST_PLAIN) | (*byte == b'\\')
}

/// Searches from a position. The bytes before it are plain, and ASCII or not.
fn portable(text: &[u8], from: usize, mut is_ascii: bool) -> PlainText {
    let (mut length, mut rest) = (from, text.get(from..).unwrap_or_default());
    // Without an early end, so that the compiler can use vector instructions.
    while let Some((block, more)) = rest.split_first_chunk::<64>()
        && !block.iter().fold(false, |found, byte| found | is_escaped(byte))
    {
        is_ascii &= block.is_ascii();
        (length, rest) = (length + 64, more);
    }
    let (blocks, last) = rest.as_chunks::<8>();
    for block in blocks {
        if let Some(found) = find_escaped(*block) {
            let plain = block.get(..found).unwrap_or_default();
            return PlainText { length: length + found, is_ascii: is_ascii && plain.is_ascii() };
        }
        is_ascii &= u64::from_le_bytes(*block) & (ONES * 128) == 0;
        length += 8;
    }
    let plain = last.split(is_escaped).next().unwrap_or_default();
    PlainText { length: length + plain.len(), is_ascii: is_ascii && plain.is_ascii() }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{FIRST_PLAIN, PlainText, QUOTE_BIT, portable};
    use std::arch::x86_64::{
        __m256i, _mm256_cmpeq_epi8, _mm256_cmpgt_epi8, _mm256_loadu_si256, _mm256_min_epi8,
        _mm256_min_epu8, _mm256_movemask_epi8, _mm256_or_si256, _mm256_set1_epi8, _mm256_xor_si256,
    };

    /// Bytes after which a text is taken for a long one.
    const SHORT_TEXT: usize = 128;

    /// Finds the end of the plain bytes. The processor must have the instructions.
    #[expect(unsafe_code, reason = "code for one kind of processor is called")]
    pub(super) fn call(text: &[u8]) -> PlainText {
        debug_assert!(is_x86_feature_detected!("avx2"));
        // SAFETY: the only caller has seen that the processor has the instructions.
        unsafe { plain_text(text) }
    }

    #[target_feature(enable = "avx2")]
    fn plain_text(text: &[u8]) -> PlainText {
        let (mut at, mut is_ascii) = (0, true);
        while let Some(block) = text.get(at..).and_then(<[u8]>::first_chunk) {
            let bytes = load(block);
            let (found, high) = (mask(escaped(bytes)), mask(bytes));
            if found != 0 {
                let length = found.trailing_zeros();
                is_ascii &= high.trailing_zeros() >= length;
                return PlainText { length: at + length as usize, is_ascii };
            }
            is_ascii &= high == 0;
            at += 32;
            if at == SHORT_TEXT {
                at += plain_ascii_blocks(text.get(at..).unwrap_or_default());
            }
        }
        portable(text, at, is_ascii)
    }

    /// Returns the length of the leading large blocks in which all bytes are plain and ASCII.
    #[target_feature(enable = "avx2")]
    fn plain_ascii_blocks(text: &[u8]) -> usize {
        let (quote, slash) = (splat(QUOTE_BIT), splat(b'\\'));
        let (large, _) = text.as_chunks::<256>();
        let mut length = 0;
        for block in large {
            let (blocks, _) = block.as_chunks::<32>();
            // Bytes that are not ASCII are negative numbers.
            let (mut least, mut slashes) = (splat(0x7f), splat(0xff));
            for block in blocks {
                let bytes = load(block);
                least = _mm256_min_epi8(least, _mm256_xor_si256(bytes, quote));
                slashes = _mm256_min_epu8(slashes, _mm256_xor_si256(bytes, slash));
            }
            let low = _mm256_cmpgt_epi8(splat(FIRST_PLAIN + 1), least);
            if mask(_mm256_or_si256(low, _mm256_cmpeq_epi8(slashes, splat(0)))) != 0 {
                break;
            }
            length += 256;
        }
        length
    }

    /// Returns a vector with all bits set in the bytes that cannot stand in a string.
    #[target_feature(enable = "avx2")]
    fn escaped(bytes: __m256i) -> __m256i {
        let low = _mm256_xor_si256(bytes, splat(QUOTE_BIT));
        let low = _mm256_cmpeq_epi8(_mm256_min_epu8(low, splat(FIRST_PLAIN)), low);
        _mm256_or_si256(low, _mm256_cmpeq_epi8(bytes, splat(b'\\')))
    }

    #[target_feature(enable = "avx2")]
    fn splat(byte: u8) -> __m256i {
        _mm256_set1_epi8(byte.cast_signed())
    }

    #[target_feature(enable = "avx2")]
    fn mask(bytes: __m256i) -> u32 {
        _mm256_movemask_epi8(bytes).cast_unsigned()
    }

    #[target_feature(enable = "avx2")]
    #[expect(unsafe_code, reason = "the load takes a pointer")]
    fn load(block: &[u8; 32]) -> __m256i {
        // SAFETY: the block has 32 bytes, and the instruction needs no alignment.
        unsafe { _mm256_loadu_si256(block.as_ptr().cast()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn all_ways_find_the_first_byte_that_is_not_plain(
            text in "[ -~é港\\x00-\\x1f\\x7f]{0,40}",
            filler in 0..1_000_usize,
            more in 0..600_usize,
            at in any::<prop::sample::Index>(),
        ) {
            let mut text = text.into_bytes();
            for filler in [filler, more] {
                let at = at.index(text.len() + 1);
                text.splice(at..at, std::iter::repeat_n(b'x', filler));
            }
            let is_plain = |byte: &u8| !matches!(byte, ..b' ' | b'"' | b'\\');
            let length = text.iter().take_while(|byte| is_plain(byte)).count();
            let is_ascii = text.iter().take(length).all(u8::is_ascii);
            let expected = PlainText { length, is_ascii };
            prop_assert_eq!(plain_text(&text), expected);
            prop_assert_eq!(short_plain_text(&text), expected);
            prop_assert_eq!(portable(&text, 0, true), expected);
            prop_assert_eq!(plain_length(&text), length);
        }

        #[test]
        fn every_byte_at_every_place_is_seen(byte: u8, before in 0..600_usize, after in 0..300_usize) {
            let mut text = vec![b'x'; before];
            text.push(byte);
            text.resize(before + 1 + after, b'y');
            let expected = match byte {
                ..b' ' | b'"' | b'\\' => PlainText { length: before, is_ascii: true },
                _ => PlainText { length: text.len(), is_ascii: byte.is_ascii() },
            };
            prop_assert_eq!(plain_text(&text), expected);
            prop_assert_eq!(short_plain_text(&text), expected);
            prop_assert_eq!(portable(&text, 0, true), expected);
        }
    }
}

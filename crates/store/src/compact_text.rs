//! Texts as bytes in which the ids of this program take half the space, and ids of calls as numbers.
//!
//! The first byte names the form: a UUID, the id of a request, or the text itself. Every text has one
//! form, so equal bytes are equal texts.

use std::ops::RangeInclusive;

use aws_lc_rs::digest;

const PLAIN: u8 = 0;
const UUID: u8 = 1;
const REQUEST: u8 = 2;

const REQUEST_PREFIX: &[u8] = b"req_";
const REQUEST_DIGITS: usize = 29;
/// Lengths of the parts of a UUID.
const UUID_PARTS: [usize; 5] = [8, 4, 4, 4, 12];
const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// The id of a request in its form: the name of the form, 7 bytes of time, 8 bytes of chance.
pub(crate) type PackedId = [u8; 16];

/// Returns the bytes of a text.
pub(crate) fn compact(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let request = packed_id(text).map(|id| id.to_vec());
    request.or_else(|| compact_uuid(bytes)).unwrap_or_else(|| [&[PLAIN], bytes].concat())
}

/// Returns the bytes of a text if it is the id of a request.
pub(crate) fn packed_id(text: &str) -> Option<PackedId> {
    let digits = text.as_bytes().strip_prefix(REQUEST_PREFIX)?;
    let digits: &[u8; REQUEST_DIGITS] = digits.try_into().ok()?;
    // Leading zeros fill the first of four words, and the form replaces two of them.
    let ([a, b, c, d, e], rest) = digits.split_first_chunk()?;
    let [second, third, fourth] = rest.as_chunks().0 else { return None };
    let first = u128::from(eight_digits([b'0', b'0', b'0', *a, *b, *c, *d, *e])?);
    let second = u128::from(eight_digits(*second)?);
    let third = u128::from(eight_digits(*third)?);
    let fourth = u128::from(eight_digits(*fourth)?);
    let id = u128::from(REQUEST) << 120 | first << 96 | second << 64 | third << 32 | fourth;
    Some(id.to_be_bytes())
}

/// One in each byte of a word.
const ONES: u64 = 0x0101_0101_0101_0101;

/// Returns the value of eight digits, all of which are read at once; `None` if one is none.
const fn eight_digits(text: [u8; 8]) -> Option<u32> {
    let text = u64::from_be_bytes(text);
    // Letters have the bit 0x40, and the last four bits of `a` are 1.
    let values = (text & (0x0f * ONES)) + (text >> 6 & ONES) * 9;
    let are_letters = (values + 6 * ONES) >> 4 & ONES;
    let again = values + 0x30 * ONES + are_letters * 0x27;
    if values & (0xf0 * ONES) != 0 || again != text {
        return None;
    }
    let pairs = (values | values >> 4) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs | pairs >> 8) & 0x0000_ffff_0000_ffff;
    Some((fours | fours >> 16) as u32)
}

/// Value of a letter that is no digit.
const NO_DIGIT: u8 = 16;

/// Returns the value of a digit.
const fn value(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => NO_DIGIT,
    }
}

fn compact_uuid(bytes: &[u8]) -> Option<Vec<u8>> {
    if bytes.len() != 36 {
        return None;
    }
    let mut parts = bytes.split(|byte| *byte == b'-').map(<[u8]>::len);
    if !UUID_PARTS.into_iter().all(|length| parts.next() == Some(length)) || parts.next().is_some()
    {
        return None;
    }
    packed(UUID, bytes.iter().filter(|byte| **byte != b'-'))
}

/// Packs digits in pairs; `None` if one is none.
fn packed<'a>(form: u8, digits: impl Iterator<Item = &'a u8>) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(17);
    bytes.push(form);
    let mut high = None;
    for digit in digits {
        let value = value(*digit);
        if value == NO_DIGIT {
            return None;
        }
        match high.take() {
            None => high = Some(value),
            Some(high) => bytes.push(high << 4 | value),
        }
    }
    Some(bytes)
}

/// Returns the text of bytes; `None` if they are of no form.
pub(crate) fn expand(bytes: &[u8]) -> Option<String> {
    let (form, rest) = bytes.split_first()?;
    match *form {
        PLAIN => std::str::from_utf8(rest).ok().map(str::to_owned),
        UUID if rest.len() == 16 => {
            let mut digits = digits(rest);
            let mut text = String::with_capacity(36);
            for (number, length) in UUID_PARTS.into_iter().enumerate() {
                if number > 0 {
                    text.push('-');
                }
                text.extend(digits.by_ref().take(length));
            }
            Some(text)
        }
        REQUEST if rest.len() == 15 => {
            let mut text = String::with_capacity(33);
            text.push_str("req_");
            text.extend(digits(rest).skip(1));
            Some(text)
        }
        _ => None,
    }
}

/// Numbers that a call may have in the database.
pub(crate) const CALL_NUMBERS: i64 = 8;
/// Digits of an id of a request that are its time in microseconds.
const TIME_DIGITS: usize = 13;
/// Bits of a number beside the time, so that most calls of a microsecond differ.
const WORD_BITS: u32 = 11;

/// Returns the numbers of a call with that id, in the order in which they are tried. They ascend with
/// the time in the id, so that new calls lie side by side in the database. Different ids can have the
/// same numbers.
pub(crate) fn call_numbers(request_id: &str) -> RangeInclusive<i64> {
    let first = match request_number(request_id) {
        Some(number) => number,
        None => {
            let hash = digest::digest(&digest::SHA256, request_id.as_bytes());
            let word = hash.as_ref().first_chunk().copied().map_or(0, u64::from_be_bytes);
            // Without the sign, and with room for the numbers that follow.
            (word >> 2).cast_signed()
        }
    };
    first..=first.saturating_add(CALL_NUMBERS - 1)
}

fn request_number(request_id: &str) -> Option<i64> {
    if let Some(id) = packed_id(request_id) {
        let id = u128::from_be_bytes(id);
        let time = (id >> 64) as u64 & ((1 << (4 * TIME_DIGITS)) - 1);
        return (time < 1 << 51).then(|| number_of(time, id as u64));
    }
    // Ids of other programs may have other digits.
    let digits = request_id.strip_prefix("req_").filter(|rest| rest.len() == REQUEST_DIGITS)?;
    let (time, word) = digits.split_at_checked(TIME_DIGITS)?;
    let time = u64::from_str_radix(time, 16).ok().filter(|time| *time < 1 << 51)?;
    let word = u64::from_str_radix(word, 16).ok()?;
    Some(number_of(time, word))
}

const fn number_of(time: u64, word: u64) -> i64 {
    (time << WORD_BITS | word & ((1 << WORD_BITS) - 1)).cast_signed()
}

fn digits(bytes: &[u8]) -> impl Iterator<Item = char> {
    let digit = |value: u8| DIGITS.get(usize::from(value)).copied().map_or('0', char::from);
    bytes.iter().flat_map(move |byte| [digit(byte >> 4), digit(byte & 15)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_has_one_form_and_is_read_again() {
        for (text, length) in [
            ("", 1),
            ("a", 2),
            ("0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b", 17),
            ("0190A1B2-c3d4-7e5f-8a9b-0c1d2e3f4a5b", 37),
            ("0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5g", 37),
            ("0190a1b2c-3d4-7e5f-8a9b-0c1d2e3f4a5b", 37),
            ("0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b0", 38),
            ("------------------------------------", 37),
            ("req_0065f0a1b2c3d0123456789abcdef", 16),
            ("req_0065f0a1b2c3d0123456789abcdeF", 34),
            ("req_0065f0a1b2c3d0123456789abcde", 33),
            ("REQ_0065f0a1b2c3d0123456789abcdef", 34),
            ("\u{1}ä\u{2}", 5),
        ] {
            let bytes = compact(text);
            assert_eq!(bytes.len(), length, "{text}");
            assert_eq!(expand(&bytes).as_deref(), Some(text));
        }
    }

    #[test]
    fn every_letter_in_every_place_of_an_id_is_read_like_a_digit_alone() {
        let id = "req_0065f0a1b2c3d0123456789abcdef";
        for place in REQUEST_PREFIX.len()..id.len() {
            for letter in 0..=u8::MAX {
                let mut bytes = id.as_bytes().to_vec();
                bytes[place] = letter;
                let Ok(text) = std::str::from_utf8(&bytes) else { continue };
                let digits = bytes.iter().skip(REQUEST_PREFIX.len());
                let expected = packed(REQUEST, [b'0'].iter().chain(digits));
                assert_eq!(packed_id(text).map(Vec::from), expected, "{text}");
            }
        }
    }

    #[test]
    fn bytes_of_no_form_are_refused() {
        for bytes in [&[][..], &[9], &[UUID], &[UUID; 18], &[REQUEST; 15], &[PLAIN, 0xff]] {
            assert_eq!(expand(bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn numbers_of_calls_ascend_with_time_and_never_change() {
        let ids = ["req_0065f0a1b2c3d0123456789abcdef", "req_0065f0a1b2c3effffffffffffffff"];
        let numbers = ids.map(|id| *call_numbers(id).start());
        assert_eq!(numbers, [0x65f_0a1b_2c3d << 11 | 0x5ef, 0x65f_0a1b_2c3e << 11 | 0x7ff]);
        let upper = ids.map(|id| id.to_uppercase().replace("REQ", "req"));
        assert_eq!(upper.map(|id| *call_numbers(&id).start()), numbers);
        // Databases in use have these numbers.
        assert_eq!(*call_numbers("").start(), 0x38ec_3110_a63f_0705);
        for id in
            ["", "a", "req_fffffffffffff0123456789abcdef", "0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b"]
        {
            let numbers = call_numbers(id);
            assert!(*numbers.start() >= 0 && numbers.count() == 8, "{id}");
        }
    }
}

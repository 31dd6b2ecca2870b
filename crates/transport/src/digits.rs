//! Numbers in heads and chunk sizes, written without the machinery of `write!`: every message has
//! one.

/// Letters of the largest number.
const MAX_DIGITS: usize = 20;
const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Appends a number in decimal digits.
pub(crate) fn write_decimal(number: u64, out: &mut Vec<u8>) {
    write_digits::<10>(number, out);
}

/// Appends a number in hexadecimal digits.
pub(crate) fn write_hex(number: u64, out: &mut Vec<u8>) {
    write_digits::<16>(number, out);
}

fn write_digits<const BASE: u64>(number: u64, out: &mut Vec<u8>) {
    let mut text = [b'0'; MAX_DIGITS];
    let mut left = number;
    let mut start = MAX_DIGITS - 1;
    for (place, slot) in text.iter_mut().enumerate().rev() {
        *slot =
            usize::try_from(left % BASE).ok().and_then(|at| DIGITS.get(at)).map_or(b'0', |b| *b);
        start = place;
        left /= BASE;
        if left == 0 {
            break;
        }
    }
    out.extend_from_slice(text.get(start..).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_those_of_fmt() {
        for number in [0, 1, 9, 10, 15, 16, 255, 256, 1_000, 65_535, 1 << 40, u64::MAX] {
            let (mut decimal, mut hex) = (Vec::new(), Vec::new());
            write_decimal(number, &mut decimal);
            write_hex(number, &mut hex);
            assert_eq!(decimal, format!("{number}").into_bytes());
            assert_eq!(hex, format!("{number:x}").into_bytes());
        }
    }
}

//! The envelope in which a seal crosses a format that did not issue it.
//!
//! Formats with a place for their own opaque token carry a foreign one there, wrapped so that it
//! tells its origin and any damage on the way. It is plain base64, because one official client
//! refuses anything else, and it is recognised whichever base64 alphabet a client sends back.

use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use base64::engine::{DecodePaddingMode, Engine};
use canon::{Origin, Seal};

const MARK: &[u8] = b"\xa6\xdbPT1";

/// Decodes with or without padding.
const LENIENT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);

/// What stands in the place of another format's own token.
pub(crate) fn wrap(seal: &Seal) -> String {
    let (origin, token) = seal.open();
    let mut bytes = MARK.to_vec();
    bytes.push(letter(origin));
    bytes.extend_from_slice(&crc32fast::hash(token.as_bytes()).to_le_bytes());
    bytes.extend_from_slice(token.as_bytes());
    STANDARD.encode(bytes)
}

/// The seal behind a token found in a request of format `own`: a wrapped one, or `own`'s itself.
pub(crate) fn unwrap(token: &str, own: Origin) -> Seal {
    open(token).unwrap_or_else(|| Seal::new(own, token))
}

fn open(token: &str) -> Option<Seal> {
    let bytes = decode(token)?;
    let rest = bytes.strip_prefix(MARK)?;
    let (letter, rest) = rest.split_first()?;
    let (sum, token) = rest.split_first_chunk::<4>()?;
    if crc32fast::hash(token) != u32::from_le_bytes(*sum) {
        return None;
    }
    let origin = Origin::ALL.into_iter().find(|origin| self::letter(*origin) == *letter)?;
    Some(Seal::new(origin, std::str::from_utf8(token).ok()?))
}

/// Base64 of either alphabet, padded or not; `None` for anything else.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let url_safe = text.contains(['-', '_']);
    let alphabet = if url_safe { &alphabet::URL_SAFE } else { &alphabet::STANDARD };
    let engine: GeneralPurpose = GeneralPurpose::new(alphabet, LENIENT);
    Engine::decode(&engine, text).ok()
}

const fn letter(origin: Origin) -> u8 {
    match origin {
        Origin::Chat => b'c',
        Origin::Responses => b'r',
        Origin::Messages => b'm',
        Origin::Native => b'n',
        Origin::Images => b'i',
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_seal_comes_back_through_any_alphabet(token in ".{0,80}", at in 0..5_usize) {
            let seal = Seal::new(Origin::ALL[at], token);
            let wrapped = wrap(&seal);
            prop_assert_eq!(&unwrap(&wrapped, Origin::Messages), &seal);
            let other = wrapped.replace('+', "-").replace('/', "_");
            prop_assert_eq!(&unwrap(other.trim_end_matches('='), Origin::Native), &seal);
        }
    }

    #[test]
    fn a_token_that_is_not_ours_stays_what_it_was() {
        for token in ["", "EqQBCgIYAg==", "not base64!", "skip_thought_signature_validator"] {
            assert_eq!(unwrap(token, Origin::Native), Seal::new(Origin::Native, token));
        }
    }

    #[test]
    fn damage_is_noticed() {
        let wrapped = wrap(&Seal::new(Origin::Messages, "abcdefgh"));
        let damaged = wrapped.replace("Zmdo", "Zmdp");
        assert_ne!(damaged, wrapped);
        assert_eq!(unwrap(&damaged, Origin::Native).origin(), Origin::Native);
    }
}

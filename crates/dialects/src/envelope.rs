//! The envelope in which a signature crosses a format that did not issue it.
//!
//! A format with a field for its own opaque token carries a foreign token there. The envelope
//! records the token's origin and a checksum. It is plain base64 (RFC 4648), because one official
//! client refuses anything else, and it is recognised in either alphabet.

use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use base64::engine::{DecodePaddingMode, Engine};
use canon::{Signature, WireFormat};

const MAGIC: &[u8] = b"\xa6\xdbPT1";

/// Base64 with or without padding.
pub(crate) const OPTIONAL_PADDING: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);

/// Wraps a signature for the token field of another format.
pub(crate) fn wrap(seal: &Signature) -> String {
    let (origin, token) = seal.origin_and_token();
    let mut bytes = MAGIC.to_vec();
    bytes.push(origin_letter(origin));
    bytes.extend_from_slice(&crc32fast::hash(token.as_bytes()).to_le_bytes());
    bytes.extend_from_slice(token.as_bytes());
    STANDARD.encode(bytes)
}

/// Reads a token found in a request of format `own`: an envelope, or a token of `own` itself.
pub(crate) fn unwrap(token: &str, own: WireFormat) -> Signature {
    read_envelope(token).unwrap_or_else(|| Signature::new(own, token))
}

fn read_envelope(token: &str) -> Option<Signature> {
    let bytes = decode(token)?;
    let rest = bytes.strip_prefix(MAGIC)?;
    let (letter, rest) = rest.split_first()?;
    let (sum, token) = rest.split_first_chunk::<4>()?;
    if crc32fast::hash(token) != u32::from_le_bytes(*sum) {
        return None;
    }
    let origin = WireFormat::ALL.into_iter().find(|origin| origin_letter(*origin) == *letter)?;
    Some(Signature::new(origin, std::str::from_utf8(token).ok()?))
}

/// Decodes base64 in either alphabet, padded or not; `None` for anything else.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let url_safe = text.contains(['-', '_']);
    let alphabet = if url_safe { &alphabet::URL_SAFE } else { &alphabet::STANDARD };
    let engine: GeneralPurpose = GeneralPurpose::new(alphabet, OPTIONAL_PADDING);
    Engine::decode(&engine, text).ok()
}

const fn origin_letter(origin: WireFormat) -> u8 {
    match origin {
        WireFormat::Chat => b'c',
        WireFormat::Responses => b'r',
        WireFormat::Messages => b'm',
        WireFormat::Native => b'n',
        WireFormat::Images => b'i',
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn signature_round_trips_in_either_alphabet(token in ".{0,80}", at in 0..5_usize) {
            let seal = Signature::new(WireFormat::ALL[at], token);
            let wrapped = wrap(&seal);
            prop_assert_eq!(&unwrap(&wrapped, WireFormat::Messages), &seal);
            let other = wrapped.replace('+', "-").replace('/', "_");
            prop_assert_eq!(&unwrap(other.trim_end_matches('='), WireFormat::Native), &seal);
        }
    }

    #[test]
    fn other_tokens_stay_unchanged() {
        for token in ["", "EqQBCgIYAg==", "not base64!", "skip_thought_signature_validator"] {
            assert_eq!(
                unwrap(token, WireFormat::Native),
                Signature::new(WireFormat::Native, token)
            );
        }
    }

    #[test]
    fn damage_is_detected() {
        let wrapped = wrap(&Signature::new(WireFormat::Messages, "abcdefgh"));
        let damaged = wrapped.replace("Zmdo", "Zmdp");
        assert_ne!(damaged, wrapped);
        assert_eq!(unwrap(&damaged, WireFormat::Native).origin(), WireFormat::Native);
    }
}

//! The envelope in which a signature crosses a format that did not issue it.
//!
//! A format with a field for its own opaque token carries a foreign token there. The envelope
//! records the token's origin and is authenticated (`crate::envelope_mac`), so that only this
//! gateway makes one. It is plain base64 (RFC 4648), because one official client refuses anything
//! else, and it is recognised in either alphabet.
//!
//! Layout: magic bytes, version, period (2 bytes, little endian), code (16 bytes), letter of the
//! origin, token. The code covers letter and token; its key depends on the period. Anything that
//! begins like an envelope and is none of this gateway, or too old, counts as a signature that no
//! provider takes: it is reported as a loss and is never sent.

use canon::{Signature, WireFormat};
use media::{decode_any_base64, encode_base64};

use crate::envelope_mac::{MAC_BYTES, envelope_mac};

const MAGIC: &[u8] = b"\xa6\xdbPT2";
/// First letters of every envelope of every version, in both base64 alphabets.
pub(crate) const PREFIX: &str = "pttQVD";
/// Origin of a signature that no provider takes: the format of images has no signatures.
const NO_PROVIDER: WireFormat = WireFormat::Images;

/// Author of content with signatures. Only callers return envelopes. Everything a provider sends is
/// its own, even if the provider is another gateway of this kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContentAuthor {
    Caller,
    Provider,
}

/// Returns the token of a signature for a client of format `own`.
pub(crate) fn write(seal: &Signature, own: WireFormat) -> String {
    seal.for_format(own).map_or_else(|| wrap(seal), str::to_owned)
}

/// Wraps a signature for the token field of another format.
pub(crate) fn wrap(seal: &Signature) -> String {
    let (origin, token) = seal.origin_and_token();
    let mut signed = vec![origin_letter(origin)];
    signed.extend_from_slice(token.as_bytes());
    let (period, code) = envelope_mac().sign(&signed);
    encode_base64([MAGIC, &period.to_le_bytes(), &code, &signed].concat())
}

/// Reads a token found in a request of format `own`: an envelope, or a token of `own` itself.
pub(crate) fn unwrap(token: &str, own: WireFormat) -> Signature {
    open(token).unwrap_or_else(|| Signature::new(own, token))
}

/// Opens an envelope; `None` for a token that does not look like one.
pub(crate) fn open(token: &str) -> Option<Signature> {
    token
        .starts_with(PREFIX)
        .then(|| read_envelope(token).unwrap_or_else(|| Signature::new(NO_PROVIDER, token)))
}

fn read_envelope(token: &str) -> Option<Signature> {
    let bytes = decode_any_base64(token)?;
    let (period, rest) = bytes.strip_prefix(MAGIC)?.split_first_chunk::<2>()?;
    let (code, signed) = rest.split_first_chunk::<MAC_BYTES>()?;
    if !envelope_mac().verify(u16::from_le_bytes(*period), signed, code) {
        return None;
    }
    let (letter, token) = signed.split_first()?;
    let origin = WireFormat::ALL.into_iter().find(|origin| origin_letter(*origin) == *letter)?;
    Some(Signature::new(origin, std::str::from_utf8(token).ok()?))
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

    /// An envelope of the version before, with a checksum that everybody can compute.
    const OLD_ENVELOPE: &str = "pttQVDFtUCrvrmFiY2RlZmdo";

    fn is_taken_by_no_provider(token: &str) -> bool {
        open(token).is_some_and(|seal| seal == Signature::new(NO_PROVIDER, token))
    }

    proptest! {
        #[test]
        fn signature_round_trips_in_either_alphabet(token in ".{0,80}", at in 0..5_usize) {
            let seal = Signature::new(WireFormat::ALL[at], token);
            let wrapped = wrap(&seal);
            prop_assert!(wrapped.starts_with(PREFIX));
            prop_assert_eq!(&unwrap(&wrapped, WireFormat::Messages), &seal);
            let other = wrapped.replace('+', "-").replace('/', "_");
            prop_assert_eq!(&unwrap(other.trim_end_matches('='), WireFormat::Native), &seal);
        }

        #[test]
        fn changed_envelopes_are_taken_by_no_provider(
            token in ".{0,80}", at in 0..5_usize, bit in 0..8_u32, place in 0.0..1.0_f64,
        ) {
            let wrapped = wrap(&Signature::new(WireFormat::ALL[at], token));
            let bytes = decode_any_base64(&wrapped).unwrap();
            // A flipped bit of the magic bytes makes a token that is no envelope at all.
            let span = (bytes.len() - MAGIC.len()) as f64;
            let place = MAGIC.len() + (span * place) as usize;
            let mut flipped = bytes.clone();
            flipped[place] ^= 1 << bit;
            prop_assert!(is_taken_by_no_provider(&encode_base64(flipped)));
            prop_assert!(is_taken_by_no_provider(&encode_base64(&bytes[..place])));
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
    fn envelopes_without_a_code_are_taken_by_no_provider() {
        assert!(is_taken_by_no_provider(OLD_ENVELOPE));
        let forged = [MAGIC, &[0; 2], &[0; MAC_BYTES], b"mabcdefgh"].concat();
        assert!(is_taken_by_no_provider(&encode_base64(forged)));
        assert!(is_taken_by_no_provider("pttQVD"));
        assert!(is_taken_by_no_provider("pttQVD not base64"));
    }
}

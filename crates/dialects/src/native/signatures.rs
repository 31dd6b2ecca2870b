//! Signatures in `thoughtSignature`, the format's own opaque field for them,
//! <https://ai.google.dev/gemini-api/docs/thought-signatures>.
//!
//! A signature of this format stands there verbatim, on the part it came with. A foreign signature
//! stands there inside an envelope (`crate::envelope`). The envelope is plain base64, because an
//! official client refuses anything else.
//!
//! A thought that the caller did not ask to see must not appear, but its signature must come back.
//! It then travels on the part after the thought, in an envelope of this format's origin around
//! another envelope. A letter before the inner envelope marks the case: `h` for a hidden thought
//! before this part, `r` for a redacted thought. One agent keeps signatures only on calls.
//! Therefore a call carries the signature of the preceding thought even if that thought was shown;
//! the reader keeps one of the two.

use canon::{Part, PartKind, Signature, Thought};

use super::names::ORIGIN;
use crate::envelope;

/// The value that tells the provider not to validate a missing signature,
/// <https://ai.google.dev/gemini-api/docs/thought-signatures>.
pub(crate) const BYPASS_SIGNATURE: &str = "skip_thought_signature_validator";

/// A signature as it was found on a part.
#[derive(Debug, PartialEq)]
pub(super) struct FoundSignature {
    pub(super) seal: Signature,
    /// True if it belongs to a hidden thought before the part.
    pub(super) hidden: bool,
    /// True if the thought is redacted.
    pub(super) redacted: bool,
}

/// Returns the signature of a provider's token.
pub(super) fn own(token: &str) -> Signature {
    Signature::new(ORIGIN, standard_alphabet(token))
}

/// Reads the signature in a caller's token.
pub(super) fn read(token: &str) -> FoundSignature {
    let seal = envelope::unwrap(token, ORIGIN);
    let plain = |seal| FoundSignature { seal, hidden: false, redacted: false };
    match seal.for_format(ORIGIN) {
        Some(same) if same == token => plain(own(token)),
        Some(inner) => match inner.split_once(':') {
            Some((marks, inner)) => FoundSignature {
                seal: envelope::unwrap(inner, ORIGIN),
                hidden: marks.contains('h'),
                redacted: marks.contains('r'),
            },
            None => plain(Signature::new(ORIGIN, inner)),
        },
        None => plain(seal),
    }
}

/// Converts a signature to the standard base64 alphabet that its issuer uses; one client sends it
/// back in the URL-safe one.
pub(super) fn standard_alphabet(token: &str) -> String {
    if token == BYPASS_SIGNATURE || !token.contains(['-', '_']) {
        return token.to_owned();
    }
    media::decode_any_base64(token).map_or_else(|| token.to_owned(), media::encode_base64)
}

/// Returns the token of a shown thought, marked if the thought is redacted.
pub(super) fn write_thought(seal: &Signature, redacted: bool) -> String {
    if redacted { write_marked("r", seal) } else { envelope::write(seal, ORIGIN) }
}

/// Returns the token of a hidden thought, for the part after it.
pub(super) fn write_hidden(seal: &Signature, redacted: bool) -> String {
    write_marked(if redacted { "hr" } else { "h" }, seal)
}

fn write_marked(marks: &str, seal: &Signature) -> String {
    envelope::wrap(&Signature::new(ORIGIN, format!("{marks}:{}", envelope::wrap(seal))))
}

/// Returns the replacement for a signature that must not reach a provider; `None` if it may pass
/// unchanged.
pub(super) fn for_upstream(token: &str) -> Option<String> {
    let found = read(token);
    let upstream = match found.seal.for_format(ORIGIN) {
        Some(own) if !found.hidden => own.to_owned(),
        _ => BYPASS_SIGNATURE.to_owned(),
    };
    (upstream != token).then_some(upstream)
}

/// Returns a thought without text.
pub(super) fn bare_thought(seal: Signature, redacted: bool) -> Part {
    Part::new(PartKind::Thought(Thought { text: String::new(), redacted }))
        .with_signature(Some(seal))
}

#[cfg(test)]
mod tests {
    use super::*;
    use canon::WireFormat;

    #[test]
    fn signature_round_trips_in_every_form() {
        for origin in WireFormat::ALL {
            let seal = Signature::new(origin, "AY89a18/+w==");
            for redacted in [false, true] {
                let shown = read(&write_thought(&seal, redacted));
                assert_eq!(shown, FoundSignature { seal: seal.clone(), hidden: false, redacted });
                let hidden = write_hidden(&seal, redacted);
                let expected = FoundSignature { seal: seal.clone(), hidden: true, redacted };
                assert_eq!(read(&hidden), expected);
                let other = hidden.replace('+', "-").replace('/', "_");
                assert_eq!(read(other.trim_end_matches('=')), expected);
            }
        }
    }

    #[test]
    fn only_native_signatures_reach_a_provider() {
        assert_eq!(for_upstream("AY89a18/+w=="), None);
        assert_eq!(for_upstream("AY89a18_-w=="), Some("AY89a18/+w==".to_owned()));
        assert_eq!(for_upstream(BYPASS_SIGNATURE), None);
        assert_eq!(for_upstream("c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="), None);
        let foreign = Signature::new(WireFormat::Messages, "EqQB");
        assert_eq!(
            for_upstream(&envelope::write(&foreign, ORIGIN)),
            Some(BYPASS_SIGNATURE.to_owned())
        );
        assert_eq!(for_upstream(&write_hidden(&foreign, true)), Some(BYPASS_SIGNATURE.to_owned()));
        let own = Signature::new(ORIGIN, "AY89a18/+w==");
        assert_eq!(for_upstream(&write_thought(&own, true)), Some("AY89a18/+w==".to_owned()));
    }

    #[test]
    fn provider_tokens_are_never_unwrapped() {
        let token = envelope::wrap(&Signature::new(WireFormat::Messages, "EqQB"));
        let parts = serde_json::json!([
            {"text": "a", "thoughtSignature": token},
            {"functionCall": {"name": "f", "args": {}}, "thoughtSignature": token},
        ]);
        let body = serde_json::json!({"candidates": [
            {"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]});
        let reply = super::super::read_reply::read(body.to_string().as_bytes()).unwrap();
        let parts = &reply.candidates[0].parts;
        assert_eq!(parts.len(), 2);
        for part in parts {
            assert_eq!(part.signature, Some(Signature::new(ORIGIN, token.as_str())));
        }
    }
}

//! Seals in `thoughtSignature`, the format's own opaque place for them.
//!
//! A seal of our own origin stands there verbatim, on the part it came with. A foreign seal stands
//! there in an envelope, which is plain base64 because an official client refuses anything else.
//!
//! A thought that the caller did not ask to see must not appear, yet its seal must come back. It
//! then rides on the part behind the thought, in an envelope of our own origin that holds another
//! one and says so: `h` for a hidden thought in front of this part, `r` for a thought of which only
//! the seal may be seen. Because one agent keeps signatures on calls alone, a call carries the seal
//! of the thought before it even when that thought was shown; the reader takes one of the two.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use canon::{Kind, Part, Seal, Thought};

use super::names::ORIGIN;
use crate::envelope;

/// What stands for a signature in a history that never had one, by the provider's own word.
pub(crate) const BYPASS: &str = "skip_thought_signature_validator";

/// A seal as it was found on a part.
#[derive(Debug, PartialEq)]
pub(super) struct FoundSignature {
    pub(super) seal: Seal,
    /// It belongs to a thought in front of the part.
    pub(super) hidden: bool,
    /// Only the seal of the thought may be seen.
    pub(super) redacted: bool,
}

/// The seal behind a signature.
pub(super) fn read(token: &str) -> FoundSignature {
    let seal = envelope::unwrap(token, ORIGIN);
    let plain = |seal| FoundSignature { seal, hidden: false, redacted: false };
    match seal.for_origin(ORIGIN) {
        Some(same) if same == token => plain(Seal::new(ORIGIN, standard_alphabet(token))),
        Some(inner) => match inner.split_once(':') {
            Some((marks, inner)) => FoundSignature {
                seal: envelope::unwrap(inner, ORIGIN),
                hidden: marks.contains('h'),
                redacted: marks.contains('r'),
            },
            None => plain(Seal::new(ORIGIN, inner)),
        },
        None => plain(seal),
    }
}

/// A signature in the alphabet its issuer uses: one client sends it back in the other one.
pub(super) fn standard_alphabet(token: &str) -> String {
    if token == BYPASS || !token.contains(['-', '_']) {
        return token.to_owned();
    }
    envelope::decode(token).map_or_else(|| token.to_owned(), |bytes| STANDARD.encode(bytes))
}

/// What stands in `thoughtSignature` for the caller to bring back.
pub(super) fn write(seal: &Seal) -> String {
    match seal.for_origin(ORIGIN) {
        Some(token) => token.to_owned(),
        None => envelope::wrap(seal),
    }
}

/// The seal of a thought, which also tells whether the thought may be read.
pub(super) fn write_thought(seal: &Seal, redacted: bool) -> String {
    if redacted { write_marked("r", seal) } else { write(seal) }
}

/// The seal of a thought that does not appear, on the part behind it.
pub(super) fn write_hidden(seal: &Seal, redacted: bool) -> String {
    write_marked(if redacted { "hr" } else { "h" }, seal)
}

fn write_marked(marks: &str, seal: &Seal) -> String {
    envelope::wrap(&Seal::new(ORIGIN, format!("{marks}:{}", envelope::wrap(seal))))
}

/// Whether a signature may go to a provider as it is; otherwise what goes there instead.
pub(super) fn for_upstream(token: &str) -> Option<String> {
    let found = read(token);
    let ours = match found.seal.for_origin(ORIGIN) {
        Some(own) if !found.hidden => own.to_owned(),
        _ => BYPASS.to_owned(),
    };
    (ours != token).then_some(ours)
}

/// A thought of which only the seal came.
pub(super) fn bare_thought(seal: Seal, redacted: bool) -> Part {
    Part::new(Kind::Thought(Thought { text: String::new(), redacted })).sealed(Some(seal))
}

#[cfg(test)]
mod tests {
    use super::*;
    use canon::Origin;

    #[test]
    fn a_seal_comes_back_in_every_form() {
        for origin in Origin::ALL {
            let seal = Seal::new(origin, "AY89a18/+w==");
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
    fn only_our_own_seals_reach_a_provider() {
        assert_eq!(for_upstream("AY89a18/+w=="), None);
        assert_eq!(for_upstream("AY89a18_-w=="), Some("AY89a18/+w==".to_owned()));
        assert_eq!(for_upstream(BYPASS), None);
        assert_eq!(for_upstream("c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="), None);
        let foreign = Seal::new(Origin::Messages, "EqQB");
        assert_eq!(for_upstream(&write(&foreign)), Some(BYPASS.to_owned()));
        assert_eq!(for_upstream(&write_hidden(&foreign, true)), Some(BYPASS.to_owned()));
        let own = Seal::new(ORIGIN, "AY89a18/+w==");
        assert_eq!(for_upstream(&write_thought(&own, true)), Some("AY89a18/+w==".to_owned()));
    }
}

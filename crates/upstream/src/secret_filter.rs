//! Removes secrets that the gateway sent from the texts of those that got them.
//!
//! A piece that the request contains stays. The provider may only repeat it, and a caller that
//! guesses pieces would see by `[hidden]` which guess is right.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use http::HeaderValue;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, percent_encode};
use std::collections::HashSet;

/// Returns the pieces of a text that the request contains. All are asked for at once, because a search
/// for each of them would take a pass over the request.
pub(crate) type FindKnown<'a> = dyn for<'p> Fn(HashSet<&'p [u8]>) -> HashSet<&'p [u8]> + 'a;

/// Pieces of a secret of this length are hidden.
const PIECE_BYTES: usize = 8;
/// Characters that forms and queries escape: all but the unreserved ones of RFC 3986.
pub(crate) const ESCAPED: AsciiSet =
    NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Returns a text without any piece of a secret, but for pieces that the request contains. Takes one
/// pass over the text.
pub(crate) fn hide_secrets(
    text: Vec<u8>,
    secrets: &[Vec<u8>],
    find_known: &FindKnown<'_>,
) -> Vec<u8> {
    let pieces_of = || secrets.iter().flat_map(|own| own.windows(PIECE_BYTES));
    let (secret_pieces, text_pieces) = (pieces_of().count(), text.len());
    // The smaller side is kept: a secret in all its forms is longer than most texts.
    let found: HashSet<&[u8]> = match secret_pieces <= text_pieces {
        true => {
            let pieces: HashSet<&[u8]> = pieces_of().collect();
            text.windows(PIECE_BYTES).filter(|piece| pieces.contains(piece)).collect()
        }
        false => {
            let pieces: HashSet<&[u8]> = text.windows(PIECE_BYTES).collect();
            pieces_of().filter(|piece| pieces.contains(piece)).collect()
        }
    };
    if found.is_empty() {
        return text;
    }
    let known = find_known(found.clone());
    let mut shown = Vec::with_capacity(text.len());
    // The end of the secret that was found last, and the bytes that are written.
    let (mut hidden_to, mut written_to) = (0, 0);
    for (start, piece) in text.windows(PIECE_BYTES).enumerate() {
        if !found.contains(piece) || known.contains(piece) {
            continue;
        }
        if start >= hidden_to {
            shown.extend_from_slice(text.get(written_to..start).unwrap_or_default());
            shown.extend_from_slice(canon::HIDDEN.as_bytes());
        }
        hidden_to = start + PIECE_BYTES;
        written_to = hidden_to;
    }
    shown.extend_from_slice(text.get(written_to..).unwrap_or_default());
    shown
}

/// Returns a text without any piece of secrets that a request was sent with, in whatever encoding: those of
/// forms, of the Basic scheme and of JWTs. For texts of services that no caller can make answer.
pub fn hide_sent(text: &str, secrets: &[&str]) -> String {
    let forms: Vec<Vec<u8>> =
        secrets.iter().flat_map(|secret| encoded_forms(secret.as_bytes())).collect();
    let shown = hide_secrets(text.as_bytes().to_vec(), &forms, &|_| HashSet::new());
    String::from_utf8_lossy(&shown).into_owned()
}

/// Returns the secrets in the value of a header: what follows the name of a scheme, and the password of the
/// Basic scheme (RFC 7617). A signature is no secret.
pub(crate) fn header_secrets(value: &HeaderValue) -> Vec<Vec<u8>> {
    let value = value.as_bytes();
    let after = |scheme: &str| {
        let (head, rest) = value.split_at_checked(scheme.len())?;
        head.eq_ignore_ascii_case(scheme.as_bytes()).then_some(rest)
    };
    if after("AWS4-HMAC-SHA256 ").is_some() {
        return Vec::new();
    }
    if let Some(token) = after("Bearer ") {
        return vec![token.to_vec()];
    }
    let Some(pair) = after("Basic ") else { return vec![value.to_vec()] };
    let decoded = STANDARD.decode(pair.trim_ascii()).unwrap_or_default();
    let password = decoded.splitn(2, |byte| *byte == b':').nth(1).unwrap_or_default().to_vec();
    vec![pair.to_vec(), password]
}

/// Returns a secret in the encodings in which requests carry it.
fn encoded_forms(secret: &[u8]) -> HashSet<Vec<u8>> {
    let escape = |text: &[u8], set| percent_encode(text, set).to_string().into_bytes();
    let plain = [secret.to_vec(), percent_decode(secret).collect()];
    let escaped = plain
        .iter()
        .flat_map(|text| [escape(text, &ESCAPED), escape(text, NON_ALPHANUMERIC)])
        .flat_map(|text| [spaces_as_plus(&text), lower_escapes(&text), text]);
    let single: HashSet<Vec<u8>> = escaped.chain(plain.iter().cloned()).collect();
    // A value that is escaped already is escaped again in a form.
    let twice = single.iter().map(|text| escape(text, &ESCAPED));
    let encoded = single.iter().flat_map(|text| base64_forms(text));
    let more: Vec<Vec<u8>> = twice.chain(encoded).collect();
    single.into_iter().chain(more).collect()
}

/// Returns an escaped text with `+` for spaces, as HTML forms have them.
fn spaces_as_plus(escaped: &[u8]) -> Vec<u8> {
    String::from_utf8_lossy(escaped).replace("%20", "+").into_bytes()
}

/// Returns an escaped text with small letters in its escapes.
fn lower_escapes(escaped: &[u8]) -> Vec<u8> {
    let mut escape_letters = 0;
    let lower = |byte: &u8| match (*byte, escape_letters) {
        (b'%', _) => {
            escape_letters = 2;
            b'%'
        }
        (other, 0) => other,
        (other, _) => {
            escape_letters -= 1;
            other.to_ascii_lowercase()
        }
    };
    escaped.iter().map(lower).collect()
}

/// Returns the characters of base64 that a text has wherever it stands in a longer one, as after the id in the
/// Basic scheme. The first and the last one may hold bits of its neighbours too.
fn base64_forms(text: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    (0..3_usize).flat_map(move |before| {
        let padded: Vec<u8> = std::iter::repeat_n(0, before).chain(text.iter().copied()).collect();
        // Characters that hold no bit of the text.
        let foreign = before * 8 / 6;
        [STANDARD_NO_PAD.encode(&padded), URL_SAFE_NO_PAD.encode(&padded)]
            .map(|form| form.as_bytes().get(foreign..).unwrap_or_default().to_vec())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token_endpoint::escape;
    use proptest::prelude::*;

    fn hidden(text: &str, secret: &str) -> String {
        let shown = hide_secrets(text.as_bytes().to_vec(), &[secret.as_bytes().to_vec()], &|_| {
            HashSet::new()
        });
        String::from_utf8(shown).unwrap()
    }

    #[test]
    fn the_text_around_a_secret_stays() {
        let secret = "ya29.a0AfH6SMBx-secret";
        assert_eq!(
            hidden("the key ya29.a0AfH6SMBx-secret is wrong", secret),
            "the key [hidden] is wrong"
        );
        assert_eq!(hidden("starts with ya29.a0A… here", secret), "starts with [hidden]… here");
        assert_eq!(hidden("ya29.a0Ax-secret", secret), "[hidden][hidden]");
        assert_eq!(hidden("nothing to hide", secret), "nothing to hide");
        assert_eq!(hidden("short", "tiny"), "short");
    }

    #[test]
    fn a_secret_is_hidden_in_every_encoding_in_which_it_is_sent() {
        let secret = "s3cret/with+signs and=more~of.it";
        let once = escape(secret);
        let all = percent_encode(secret.as_bytes(), NON_ALPHANUMERIC).to_string();
        let shown = |text: &str| hide_sent(text, &[secret]);
        for form in [secret.to_owned(), once.clone(), escape(&once), all.clone()] {
            assert_eq!(shown(&format!("sent <{form}>!")), "sent <[hidden]>!", "{form}");
            let lower = form.replace("%2F", "%2f").replace("%3D", "%3d").replace("%2B", "%2b");
            assert_eq!(shown(&format!("sent <{lower}>!")), "sent <[hidden]>!", "{lower}");
        }
        assert_eq!(shown(&once.replace("%20", "+")), "[hidden]");
        for id in ["i", "id", "ids", "client"] {
            for secret in [secret, once.as_str(), all.as_str()] {
                let pair = STANDARD.encode(format!("{id}:{secret}"));
                let shown = shown(&pair);
                let (before, after) = shown.split_once("[hidden]").unwrap();
                // The characters at the ends hold bits of both sides.
                assert!(before.len() <= (id.len() + 1) * 8 / 6 + 1, "{shown}");
                assert!(after.trim_end_matches('=').len() <= 1, "{shown}");
            }
        }
        // A value that is sent escaped is hidden in what it says too.
        assert_eq!(hide_sent(secret, &[&once]), "[hidden]");
        assert_eq!(hide_sent("unauthorized_client", &[secret]), "unauthorized_client");
    }

    #[test]
    fn a_header_has_the_secrets_of_its_scheme() {
        let secrets = |value: &'static str| {
            let found = header_secrets(&HeaderValue::from_static(value));
            found.into_iter().map(|text| String::from_utf8(text).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(secrets("Bearer t"), ["t"]);
        assert_eq!(secrets("bearer t"), ["t"]);
        assert_eq!(secrets("Basic aWQ6YTpi"), ["aWQ6YTpi", "a:b"]);
        assert_eq!(secrets("Basic ?"), ["?", ""]);
        assert_eq!(secrets("plain"), ["plain"]);
        assert!(secrets("AWS4-HMAC-SHA256 Credential=A/b, Signature=0").is_empty());
    }

    #[test]
    fn a_guess_of_the_caller_is_not_confirmed() {
        let secrets = [b"sk-proj-A1b2C3".to_vec()];
        for guess in ["k-proj-A", "k-proj-B"] {
            let text = format!("no model `{guess}`").into_bytes();
            assert_eq!(hide_secrets(text.clone(), &secrets, &|found| found), text);
        }
        let shown = hide_secrets(b"key sk-proj-A1b2C3".to_vec(), &secrets, &|found| {
            found.into_iter().filter(|piece| *piece == b"k-proj-A").collect()
        });
        assert_eq!(shown, b"key [hidden]");
    }

    proptest! {
        #[test]
        fn no_piece_of_a_secret_is_shown(
            secret in "[a-z0-9.-]{8,40}",
            before in "[A-Z ]{0,20}",
            after in "[A-Z ]{0,20}",
            from in 0_usize..40,
            length in 8_usize..40,
        ) {
            let from = from.min(secret.len() - PIECE_BYTES);
            let piece: String = secret.chars().skip(from).take(length).collect();
            let shown = hidden(&format!("{before}{piece}{after}"), &secret);
            prop_assert_eq!(shown, format!("{before}[hidden]{after}"));
        }
    }
}

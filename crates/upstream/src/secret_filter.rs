//! Removes a provider's credentials from its own texts.
//!
//! A piece that the request contains stays. The provider may only repeat it, and a caller that
//! guesses pieces would see by `[hidden]` which guess is right.

use std::collections::HashSet;

/// Returns the pieces of a text that the request contains. All are asked for at once, because a search
/// for each of them would take a pass over the request.
pub(crate) type FindKnown<'a> = dyn for<'p> Fn(HashSet<&'p [u8]>) -> HashSet<&'p [u8]> + 'a;

/// Pieces of a secret of this length are hidden.
const PIECE_BYTES: usize = 8;

/// Returns a text without any piece of a secret, but for pieces that the request contains. Takes one
/// pass over the text.
pub(crate) fn hide_secrets(
    text: Vec<u8>,
    secrets: &[Vec<u8>],
    find_known: &FindKnown<'_>,
) -> Vec<u8> {
    let pieces: HashSet<&[u8]> = secrets.iter().flat_map(|own| own.windows(PIECE_BYTES)).collect();
    if pieces.is_empty() {
        return text;
    }
    let found: HashSet<&[u8]> =
        text.windows(PIECE_BYTES).filter(|piece| pieces.contains(piece)).collect();
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

#[cfg(test)]
mod tests {
    use super::*;
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

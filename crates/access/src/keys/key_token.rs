//! Text form of a key: `sk-pt-<public id>-<secret><checksum>`, and `sk-pt-admin-…` for an admin key.
//!
//! The checksum rejects mistyped keys without a lookup and lets secret scanners recognise leaked
//! ones. The store holds only an HMAC of the whole text.

use aws_lc_rs::{hmac, rand};
use store::KeyScope;

const PREFIX: &str = "sk-pt-";
/// Follows the prefix in the text of an admin key, so that people and secret scanners see what they
/// found. Admin keys from before it lack it and work all the same.
const ADMIN_MARK: &str = "admin-";
const ID_LETTERS: usize = 12;
const SECRET_LETTERS: usize = 43;
const CHECKSUM_LETTERS: usize = 6;
const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// A key text with valid form and checksum. The key may still be unknown.
#[derive(Clone, Copy)]
pub struct KeyToken<'a> {
    text: &'a str,
    id: &'a str,
}

impl<'a> KeyToken<'a> {
    /// Parses a key text; `None` if its form or checksum is wrong.
    pub fn parse(text: &'a str) -> Option<Self> {
        let rest = text.strip_prefix(PREFIX)?;
        let (id, rest) = rest.strip_prefix(ADMIN_MARK).unwrap_or(rest).split_once('-')?;
        // Without an early end, so that the compiler can use vector instructions.
        let plain = |part: &str| {
            part.bytes().fold(true, |plain, byte| plain & byte.is_ascii_alphanumeric())
        };
        if id.len() != ID_LETTERS
            || rest.len() != SECRET_LETTERS + CHECKSUM_LETTERS
            || !plain(id)
            || !plain(rest)
        {
            return None;
        }
        let (front, sum) = text.split_at_checked(text.len().checked_sub(CHECKSUM_LETTERS)?)?;
        checksum(front).eq(sum.bytes()).then_some(Self { text, id })
    }

    /// Returns the public id, by which the key is looked up.
    pub const fn id(&self) -> &'a str {
        self.id
    }

    pub(super) const fn text(&self) -> &'a str {
        self.text
    }

    pub(super) const fn as_bytes(&self) -> &'a [u8] {
        self.text.as_bytes()
    }

    /// Compares with a stored hash in constant time.
    pub fn matches(&self, pepper: &hmac::Key, hash: &[u8]) -> bool {
        hmac::verify(pepper, self.text.as_bytes(), hash).is_ok()
    }
}

/// Returns the hash that is stored for a key text.
pub fn hash_token(pepper: &hmac::Key, text: &str) -> Vec<u8> {
    hmac::sign(pepper, text.as_bytes()).as_ref().to_vec()
}

/// A new key: its public id and its text, which is shown once.
pub struct NewKeyToken {
    /// Public id.
    pub id: String,
    /// Whole text, including the secret.
    pub text: String,
}

impl NewKeyToken {
    /// Generates a new key of that scope. Fails only if the system has no randomness.
    pub fn generate(scope: KeyScope) -> Result<Self, aws_lc_rs::error::Unspecified> {
        let id = random_letters(ID_LETTERS)?;
        Self::with_id(id, scope)
    }

    /// Generates a new secret for an existing public id.
    pub fn with_id(id: String, scope: KeyScope) -> Result<Self, aws_lc_rs::error::Unspecified> {
        let secret = random_letters(SECRET_LETTERS)?;
        Ok(Self::with_secret(id, scope, &secret))
    }

    /// Makes the text of a key from a secret of [`random_letters`] or [`letters_from`].
    pub fn with_secret(id: String, scope: KeyScope, secret: &str) -> Self {
        let text = with_checksum(&format!("{}{secret}", key_front(&id, scope)));
        Self { id, text }
    }
}

/// Returns a text with its checksum behind it.
fn with_checksum(front: &str) -> String {
    let mut text = front.to_owned();
    text.extend(checksum(front).map(char::from));
    text
}

/// Returns the text of a key of that scope up to its secret.
pub fn key_front(id: &str, scope: KeyScope) -> String {
    let mark = match scope {
        KeyScope::Call => "",
        KeyScope::Admin => ADMIN_MARK,
    };
    format!("{PREFIX}{mark}{id}-")
}

/// Returns the public id in the text of a key, or in its beginning as [`key_front`] makes it.
pub fn key_id_in(text: &str) -> Option<&str> {
    let rest = text.strip_prefix(PREFIX)?;
    rest.strip_prefix(ADMIN_MARK).unwrap_or(rest).split('-').next().filter(|id| !id.is_empty())
}

/// Returns random letters and digits.
pub fn random_letters(length: usize) -> Result<String, aws_lc_rs::error::Unspecified> {
    letters_from(length, rand::fill)
}

/// Returns letters and digits made of the uniform bytes of `fill`, which gets 64 bytes each time.
pub fn letters_from<E>(
    length: usize,
    mut fill: impl FnMut(&mut [u8]) -> Result<(), E>,
) -> Result<String, E> {
    let mut text = String::with_capacity(length);
    let mut bytes = [0_u8; 64];
    while text.len() < length {
        fill(&mut bytes)?;
        // Larger bytes are discarded, because `% 62` would favour the first letters.
        let fair = bytes.iter().filter(|byte| **byte < 248);
        let letters = fair.filter_map(|byte| ALPHABET.get(usize::from(*byte % 62)));
        text.extend(letters.take(length - text.len()).map(|letter| char::from(*letter)));
    }
    Ok(text)
}

fn checksum(front: &str) -> impl Iterator<Item = u8> {
    let mut sum = crc32fast::hash(front.as_bytes());
    (0..CHECKSUM_LETTERS).map(move |_| {
        let letter = ALPHABET.get((sum % 62) as usize).copied().unwrap_or(b'0');
        sum /= 62;
        letter
    })
}

#[cfg(test)]
#[allow(clippy::string_slice, reason = "the text of a key is ASCII")]
mod tests {
    use super::*;

    #[test]
    fn the_id_is_found_in_any_beginning_of_a_key() {
        for scope in KeyScope::ALL {
            let new = NewKeyToken::generate(scope).unwrap();
            let front = key_front(&new.id, scope);
            for text in
                [new.text.as_str(), &front, &format!("{front}…"), front.trim_end_matches('-')]
            {
                assert_eq!(key_id_in(text), Some(new.id.as_str()), "{text}");
            }
        }
        for text in ["", "web-shop", "sk-pt-", "sk-pt-admin-", "sk-proj-abc"] {
            assert_eq!(key_id_in(text), None, "{text}");
        }
    }

    #[test]
    fn new_key_parses_and_matches() {
        let pepper = hmac::Key::new(hmac::HMAC_SHA256, b"pepper");
        for scope in KeyScope::ALL {
            let new = NewKeyToken::generate(scope).unwrap();
            let token = KeyToken::parse(&new.text).expect(&new.text);
            assert_eq!(token.id(), new.id);
            assert!(token.matches(&pepper, &hash_token(&pepper, &new.text)));
            let other = NewKeyToken::with_id(new.id, scope).unwrap();
            assert!(!token.matches(&pepper, &hash_token(&pepper, &other.text)));
        }
    }

    #[test]
    fn the_text_of_an_admin_key_says_so_and_the_mark_cannot_be_added() {
        let pepper = hmac::Key::new(hmac::HMAC_SHA256, b"pepper");
        let call = NewKeyToken::generate(KeyScope::Call).unwrap();
        let admin = NewKeyToken::with_id(call.id.clone(), KeyScope::Admin).unwrap();
        assert!(call.text.starts_with(&format!("sk-pt-{}-", call.id)), "{}", call.text);
        assert!(admin.text.starts_with(&format!("sk-pt-admin-{}-", call.id)), "{}", admin.text);
        // With a right checksum, the marked text of a call key parses and matches no hash of it.
        let front = &call.text[..call.text.len() - CHECKSUM_LETTERS];
        let front = front.replacen(PREFIX, "sk-pt-admin-", 1);
        let forged = with_checksum(&front);
        let token = KeyToken::parse(&forged).unwrap();
        assert_eq!(token.id(), call.id);
        assert!(!token.matches(&pepper, &hash_token(&pepper, &call.text)));
        for wrong in ["sk-pt-admin-", "sk-pt-admin-admin-", "sk-pt-Admin-"] {
            let front = call.text.replacen(PREFIX, wrong, 1);
            let front = &front[..front.len() - CHECKSUM_LETTERS];
            let text = with_checksum(front);
            assert_eq!(KeyToken::parse(&text).is_some(), wrong == "sk-pt-admin-", "{text}");
        }
    }

    #[test]
    fn checksum_detects_one_changed_character() {
        let new = NewKeyToken::generate(KeyScope::Call).unwrap();
        for at in 0..new.text.len() {
            let mut bytes = new.text.clone().into_bytes();
            bytes[at] = if bytes[at] == b'x' { b'y' } else { b'x' };
            assert!(KeyToken::parse(&String::from_utf8(bytes).unwrap()).is_none(), "at {at}");
        }
        let mut short = new.text.clone();
        short.pop();
        for text in ["", "sk-pt-", "sk-pt-a-b", "sk-proj-123", &short] {
            assert!(KeyToken::parse(text).is_none(), "{text}");
        }
        assert!(KeyToken::parse(&format!("{} ", new.text)).is_none());
        assert!(KeyToken::parse(&new.text.to_uppercase()).is_none());
    }
}

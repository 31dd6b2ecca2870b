//! Text form of a key: `sk-pt-<public id>-<secret><checksum>`.
//!
//! The checksum rejects mistyped keys without a lookup and lets secret scanners recognise leaked
//! ones. The store holds only an HMAC of the whole text.

use aws_lc_rs::{hmac, rand};

const PREFIX: &str = "sk-pt-";
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
        let (id, rest) = text.strip_prefix(PREFIX)?.split_once('-')?;
        let plain = |part: &str| part.bytes().all(|byte| byte.is_ascii_alphanumeric());
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
    /// Generates a new key. Fails only if the system has no randomness.
    pub fn generate() -> Result<Self, aws_lc_rs::error::Unspecified> {
        let id = random_letters(ID_LETTERS)?;
        Self::with_id(id)
    }

    /// Generates a new secret for an existing public id.
    pub fn with_id(id: String) -> Result<Self, aws_lc_rs::error::Unspecified> {
        let front = format!("{PREFIX}{id}-{}", random_letters(SECRET_LETTERS)?);
        let mut text = front.clone();
        text.extend(checksum(&front).map(char::from));
        Ok(Self { id, text })
    }
}

/// Returns random letters and digits.
pub fn random_letters(length: usize) -> Result<String, aws_lc_rs::error::Unspecified> {
    let mut text = String::with_capacity(length);
    let mut bytes = [0_u8; 64];
    while text.len() < length {
        rand::fill(&mut bytes)?;
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
mod tests {
    use super::*;

    #[test]
    fn new_key_parses_and_matches() {
        let pepper = hmac::Key::new(hmac::HMAC_SHA256, b"pepper");
        let new = NewKeyToken::generate().unwrap();
        let token = KeyToken::parse(&new.text).expect(&new.text);
        assert_eq!(token.id(), new.id);
        assert!(token.matches(&pepper, &hash_token(&pepper, &new.text)));
        let other = NewKeyToken::with_id(new.id).unwrap();
        assert!(!token.matches(&pepper, &hash_token(&pepper, &other.text)));
    }

    #[test]
    fn checksum_detects_one_changed_character() {
        let new = NewKeyToken::generate().unwrap();
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

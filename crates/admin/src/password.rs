//! Rules for passwords, and password hashing.

use std::sync::LazyLock;

use argon2::Argon2;
use argon2::password_hash::PasswordHasher as _;

/// Maximum length of a password. Longer ones are refused before hashing.
pub const MAX_PASSWORD_BYTES: usize = 1_024;
/// Minimum length of a password.
pub const MIN_PASSWORD_CHARS: usize = 10;

/// Hashes a password with Argon2id (RFC 9106). The parameters cost about 20 ms of one core and 19
/// MiB, as the OWASP cheat sheet recommends:
/// <https://cheatsheetseries.owasp.org/cheatsheets/Password_Storage_Cheat_Sheet.html>.
fn hash(password: &str) -> Result<String, argon2::password_hash::Error> {
    Argon2::default().hash_password(password.as_bytes()).map(|hash| hash.to_string())
}

/// A password that keeps the rules for new passwords.
pub struct NewPassword(String);

/// Hash of a password that kept the rules.
#[derive(Clone)]
pub struct HashedPassword(String);

/// A rule that a new password breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct WeakPassword(String);

impl NewPassword {
    /// Checks a password.
    pub fn check(password: &str, names: &[&str]) -> Result<Self, WeakPassword> {
        match password_error(password, names) {
            Some(rule) => Err(WeakPassword(rule)),
            None => Ok(Self(password.to_owned())),
        }
    }

    /// Checks a password that was typed twice. The error is the form field and the reason.
    pub fn check_form(
        password: &str,
        again: &str,
        names: &[&str],
    ) -> Result<Self, (&'static str, String)> {
        let checked = Self::check(password, names).map_err(|weak| ("password", weak.0))?;
        if password == again {
            return Ok(checked);
        }
        Err(("again", "The two passwords differ. Type the same one twice.".to_owned()))
    }

    /// Hashes the password. This takes one core for about 20 ms.
    pub fn hash(&self) -> Result<HashedPassword, argon2::password_hash::Error> {
        hash(&self.0).map(HashedPassword)
    }
}

impl HashedPassword {
    /// The hash as the store keeps it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The commonest passwords of eight characters and more, one per line, sorted by their bytes.
/// `data/common_passwords.md` names the source.
const COMMON_PASSWORDS: &str = include_str!("../data/common_passwords.txt");
/// Shorter words that are common with digits around them.
const COMMON_WORDS: [&str; 6] = ["admin", "letmein", "monkey", "qwerty", "secret", "welcome"];

/// Returns true if a text in lower case is among the passwords that are guessed first.
fn is_common(text: &str) -> bool {
    static LINES: LazyLock<Vec<&str>> = LazyLock::new(|| COMMON_PASSWORDS.lines().collect());
    COMMON_WORDS.contains(&text) || LINES.binary_search(&text).is_ok()
}

/// Returns the rule a new password breaks, if any.
fn password_error(password: &str, names: &[&str]) -> Option<String> {
    let length = password.chars().count();
    if password.is_empty() {
        return Some("Choose a password.".to_owned());
    }
    if length < MIN_PASSWORD_CHARS {
        return Some(format!(
            "At least {MIN_PASSWORD_CHARS} characters, please; this has {length}."
        ));
    }
    if password.len() > MAX_PASSWORD_BYTES {
        return Some(format!("At most {MAX_PASSWORD_BYTES} bytes, please."));
    }
    let small = password.to_lowercase();
    if names.iter().any(|name| !name.is_empty() && name.to_lowercase() == small) {
        return Some("The password must not be your username or e-mail address.".to_owned());
    }
    let core = small.trim_matches(|c: char| c.is_ascii_digit() || c.is_ascii_punctuation());
    let one_letter = small.chars().next().is_some_and(|first| small.chars().all(|c| c == first));
    if one_letter || core.is_empty() || is_common(core) || is_common(&small) {
        return Some("This one is among the first to be guessed. Choose another.".to_owned());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_passwords_are_refused() {
        for bad in ["", "short", "password123!", "1234567890", "aaaaaaaaaaaa", "2024-2025-2026"] {
            assert!(password_error(bad, &[]).is_some(), "{bad}");
        }
        for bad in ["Elephant2024!", "LIVERPOOL1892", "...Sunshine...", "q1w2e3r4t5", "Qwerty!!!!!"]
        {
            assert!(password_error(bad, &[]).is_some(), "{bad}");
        }
        assert!(password_error("annabellina", &["AnnaBellina"]).is_some());
        assert!(password_error(&"é".repeat(513), &[]).is_some());
        assert_eq!(password_error("three harbour lights", &["anna"]), None);
        assert_eq!(password_error("πέντε λιμάνια", &["anna"]), None);
    }

    #[test]
    fn every_line_of_the_common_list_is_found_and_refused() {
        let lines: Vec<&str> = COMMON_PASSWORDS.lines().collect();
        assert!(lines.len() > 10_000, "{}", lines.len());
        assert!(lines.is_sorted(), "binary search needs the order");
        let long = lines.iter().filter(|line| line.chars().count() >= MIN_PASSWORD_CHARS);
        let mut refused = 0;
        for line in long {
            assert!(password_error(line, &[]).is_some(), "{line}");
            assert!(password_error(&line.to_uppercase(), &[]).is_some(), "{line}");
            refused += 1;
        }
        assert!(refused > 1_000, "{refused}");
        assert!(lines.iter().all(|line| is_common(line) && line.chars().count() >= 8));
    }
}

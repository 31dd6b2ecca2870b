//! Names of stored files: expiry, random letters, file type.
//!
//! `0001763200000-s<32 letters>.png`. The name holds the expiry, so that a sweep needs only the list
//! of names, even if the configured lifetime changed since. The `s` marks a sealed file.

use access::keys::random_letters;

/// Digits of the expiry in Unix seconds. A fixed width keeps names sorted by expiry.
const EXPIRY_DIGITS: usize = 13;
const RANDOM_LETTERS: usize = 32;
/// Stands before the random letters of a sealed file.
const SEALED_MARK: &str = "s";

/// Extensions and MIME types. Other types are stored as `bin`.
const FILE_TYPES: [(&str, &str); 6] = [
    ("png", "image/png"),
    ("jpg", "image/jpeg"),
    ("webp", "image/webp"),
    ("gif", "image/gif"),
    ("svg", "image/svg+xml"),
    ("bin", "application/octet-stream"),
];

/// A parsed file name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileName<'a> {
    /// Whole name.
    pub text: &'a str,
    /// Expiry in Unix seconds.
    pub expires_at: i64,
    /// MIME type by the extension.
    pub mime: &'static str,
    /// True if the content is sealed.
    pub is_sealed: bool,
}

impl<'a> FileName<'a> {
    /// Parses a name; `None` if this gateway did not create it.
    pub fn parse(text: &'a str) -> Option<Self> {
        let (expires, rest) = text.split_once('-')?;
        let (letters, ending) = rest.split_once('.')?;
        let (letters, is_sealed) = match letters.strip_prefix(SEALED_MARK) {
            Some(rest) if letters.len() > RANDOM_LETTERS => (rest, true),
            _ => (letters, false),
        };
        let plain = letters.len() == RANDOM_LETTERS
            && letters.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let timed =
            expires.len() == EXPIRY_DIGITS && expires.bytes().all(|byte| byte.is_ascii_digit());
        let (_, mime) = FILE_TYPES.iter().find(|(known, _)| *known == ending)?;
        if plain && timed {
            Some(Self { text, expires_at: expires.parse().ok()?, mime, is_sealed })
        } else {
            None
        }
    }

    /// Returns true if a browser may display the file inline. SVG is excluded, because it can
    /// contain scripts.
    pub fn is_raster_image(&self) -> bool {
        self.mime.starts_with("image/") && self.mime != "image/svg+xml"
    }
}

/// Creates a name for bytes of this type. Fails only if the system has no randomness.
pub(super) fn new_name(
    expires: i64,
    mime: &str,
    is_sealed: bool,
) -> Result<String, aws_lc_rs::error::Unspecified> {
    let bare = mime.split(';').next().unwrap_or_default().trim();
    let kind = FILE_TYPES.iter().find(|(_, known)| known.eq_ignore_ascii_case(bare));
    let ending = kind.map_or("bin", |(ending, _)| ending);
    let mark = if is_sealed { SEALED_MARK } else { "" };
    let letters = random_letters(RANDOM_LETTERS)?;
    Ok(format!("{:0EXPIRY_DIGITS$}-{mark}{letters}.{ending}", expires.max(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_names_parse_and_are_unique() {
        let name = new_name(1_763_200_000, "image/JPEG; q=1", false).unwrap();
        let read = FileName::parse(&name).expect(&name);
        assert_eq!((read.expires_at, read.mime), (1_763_200_000, "image/jpeg"));
        assert!(!read.is_sealed);
        for _ in 0..200 {
            // Random letters may begin with the letter of the mark.
            for sealed in [false, true] {
                let name = new_name(1, "image/png", sealed).unwrap();
                assert_eq!(FileName::parse(&name).expect(&name).is_sealed, sealed, "{name}");
            }
        }
        assert_ne!(name, new_name(1_763_200_000, "image/jpeg", false).unwrap());
        assert_eq!(
            FileName::parse(&new_name(0, "text/html", false).unwrap()).unwrap().mime,
            FILE_TYPES[5].1
        );
    }

    #[test]
    fn foreign_names_do_not_parse() {
        let good = new_name(1, "image/png", false).unwrap();
        for bad in [
            "",
            "..",
            "../../etc/passwd",
            "a.png",
            &good.replace(".png", ".html"),
            &good.replace(".png", ".png/"),
            &good.replace(".png", ".png#1"),
            &good.replace('-', "-."),
            &good.replace('-', "-x"),
            &good.replace('-', "-ss"),
            &format!("x{good}"),
            &format!("/{good}"),
        ] {
            assert_eq!(FileName::parse(bad), None, "{bad}");
        }
    }
}

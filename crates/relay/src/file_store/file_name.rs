//! The names of kept files: when they die, a word nobody guesses, and what they are.
//!
//! `0001763200000-<32 letters>.png`: a name tells its own end, so that whoever sweeps needs nothing
//! but the list of names, whichever node kept them and however long files lived then.

use access::keys::random_letters;

/// Digits of the second a file dies in, enough for any and the same for all.
const EXPIRY_DIGITS: usize = 13;
/// Letters of the word.
const RANDOM_LETTERS: usize = 32;

/// What is kept under its own ending; anything else is bytes.
const FILE_TYPES: [(&str, &str); 6] = [
    ("png", "image/png"),
    ("jpg", "image/jpeg"),
    ("webp", "image/webp"),
    ("gif", "image/gif"),
    ("svg", "image/svg+xml"),
    ("bin", "application/octet-stream"),
];

/// A name that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileName<'a> {
    /// The whole of it.
    pub text: &'a str,
    /// The second it dies in.
    pub expires_at: i64,
    /// What it is.
    pub mime: &'static str,
}

impl<'a> FileName<'a> {
    /// Reads a name; `None` when it is none of ours.
    pub fn parse(text: &'a str) -> Option<Self> {
        let (expires, rest) = text.split_once('-')?;
        let (word, ending) = rest.split_once('.')?;
        let plain =
            word.len() == RANDOM_LETTERS && word.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let timed =
            expires.len() == EXPIRY_DIGITS && expires.bytes().all(|byte| byte.is_ascii_digit());
        let (_, mime) = FILE_TYPES.iter().find(|(known, _)| *known == ending)?;
        if plain && timed {
            Some(Self { text, expires_at: expires.parse().ok()?, mime })
        } else {
            None
        }
    }

    /// Whether a browser may show it by itself: a picture made of dots can do nothing.
    pub fn is_raster_image(&self) -> bool {
        self.mime.starts_with("image/") && self.mime != "image/svg+xml"
    }
}

/// A new name for bytes of that type. `Err` only when the machine has no randomness.
pub fn new_name(expires: i64, mime: &str) -> Result<String, aws_lc_rs::error::Unspecified> {
    let bare = mime.split(';').next().unwrap_or_default().trim();
    let kind = FILE_TYPES.iter().find(|(_, known)| known.eq_ignore_ascii_case(bare));
    let ending = kind.map_or("bin", |(ending, _)| ending);
    Ok(format!("{:0EXPIRY_DIGITS$}-{}.{ending}", expires.max(0), random_letters(RANDOM_LETTERS)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drawn_name_is_read_back_and_unlike_any_other() {
        let name = new_name(1_763_200_000, "image/JPEG; q=1").unwrap();
        let read = FileName::parse(&name).expect(&name);
        assert_eq!((read.expires_at, read.mime), (1_763_200_000, "image/jpeg"));
        assert_ne!(name, new_name(1_763_200_000, "image/jpeg").unwrap());
        assert_eq!(
            FileName::parse(&new_name(0, "text/html").unwrap()).unwrap().mime,
            FILE_TYPES[5].1
        );
    }

    #[test]
    fn what_is_no_name_of_ours_is_none() {
        let good = new_name(1, "image/png").unwrap();
        for bad in [
            "",
            "..",
            "../../etc/passwd",
            "a.png",
            &good.replace(".png", ".html"),
            &good.replace(".png", ".png/"),
            &good.replace(".png", ".png#1"),
            &good.replace('-', "-."),
            &format!("x{good}"),
            &format!("/{good}"),
        ] {
            assert_eq!(FileName::parse(bad), None, "{bad}");
        }
    }
}

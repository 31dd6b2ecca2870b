//! Media in the request itself, measured to reserve money for them. Their bytes do not bound their
//! tokens: a small file may have many pages, and a picture of many bytes has few tokens.

use base64::Engine as _;
use base64::engine::general_purpose::{GeneralPurpose, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use canon::WireFormat;
use catalog::MediaTokens;
use config::LiveLane;
use media::MediaSize;
use memchr::memmem;
use std::borrow::Cow;

/// Fewer characters are counted as text: no file with pages or seconds is as small.
const MIN_DATA_CHARS: usize = 64;

/// Sizes of all media in a request.
#[derive(Default)]
pub(super) struct InlineMedia {
    parts: Vec<PartSize>,
    /// Characters of the data, which are not text of the prompt.
    chars: u64,
    /// True if the request may set the number of pictures for a second of video.
    pub(super) has_frame_rate: bool,
}

enum PartSize {
    Image(Option<(u32, u32)>),
    File(MediaSize),
    /// A file that cannot be measured, with its characters.
    Unknown(u64),
}

impl InlineMedia {
    /// Adds the text of a field for data. Texts that are no data stay text of the prompt.
    pub(super) fn add(&mut self, text: &str) {
        let (head, data) = match text.strip_prefix("data:") {
            Some(url) => url.split_once(',').unwrap_or((url, "")),
            None => ("base64", text),
        };
        if !head.contains("base64") || data.len() < MIN_DATA_CHARS || !is_base64(data) {
            return;
        }
        let size = measure(data).unwrap_or(PartSize::Unknown(data.len() as u64));
        self.chars = self.chars.saturating_add(data.len() as u64);
        self.parts.push(size);
    }

    /// Returns the characters of all data.
    pub(super) fn chars(&self) -> u64 {
        self.chars
    }

    /// Upper bound of the tokens that a lane makes of the media.
    pub(super) fn max_tokens(&self, lane: &LiveLane, window: u64) -> u64 {
        let tokens = self.parts.iter().map(|part| self.part_tokens(part, lane).unwrap_or(window));
        tokens.fold(0, u64::saturating_add)
    }

    /// Size of the media on the scale of text, to estimate their tokens.
    pub(super) fn likely_chars(&self, lane: &LiveLane, window: u64) -> u64 {
        let sizes = self.parts.iter().map(|part| match part {
            PartSize::Unknown(chars) => window.min(*chars),
            PartSize::Image(_) | PartSize::File(_) => {
                self.part_tokens(part, lane).unwrap_or(window)
            }
        });
        sizes.fold(0, u64::saturating_add)
    }

    fn part_tokens(&self, part: &PartSize, lane: &LiveLane) -> Option<u64> {
        // Every lane with this format leads to Google.
        let is_google = lane.formats.contains(&WireFormat::Native);
        let rates = if is_google { MediaTokens::GOOGLE } else { MediaTokens::USUAL };
        match part {
            PartSize::Image(size) => {
                let usual = size.map_or(rates.max_image, |size| rates.of_image(size));
                Some(lane.served_model.counts.image.unwrap_or(usual))
            }
            PartSize::File(MediaSize::Video(_)) if self.has_frame_rate => None,
            PartSize::File(size) => Some(rates.of_file(*size)),
            PartSize::Unknown(_) => None,
        }
    }
}

/// Returns true if all characters are those of base64, of either alphabet, with line ends.
fn is_base64(data: &str) -> bool {
    let is_own = |byte: u8| {
        byte.is_ascii_alphanumeric()
            || matches!(byte, b'+' | b'/' | b'-' | b'_' | b'=' | b'\r' | b'\n')
    };
    data.bytes().all(is_own)
}

fn measure(data: &str) -> Option<PartSize> {
    // A picture is measured by its header, unless a document may be behind it.
    if let Some(info) = media::base64_image_info(data)
        && !PDF_NEEDLES.iter().any(|needle| memmem::find(data.as_bytes(), needle).is_some())
    {
        return Some(PartSize::Image(info.size));
    }
    let is_url_safe = data.contains(['-', '_']);
    let alphabet: &GeneralPurpose = if is_url_safe { &URL_SAFE_NO_PAD } else { &STANDARD_NO_PAD };
    let data = match data.contains(['\r', '\n']) {
        true => Cow::Owned(data.replace(['\r', '\n'], "")),
        false => Cow::Borrowed(data),
    };
    let file = alphabet.decode(data.trim_end_matches('=')).ok()?;
    media::media_size(&file).map(PartSize::File)
}

/// The begin of a document, `%PDF-`, in base64 at each of the three positions.
const PDF_NEEDLES: [&[u8]; 3] = [b"JVBERi", b"UERGL", b"QREYt"];

#[cfg(test)]
mod tests {
    use super::*;
    use base64::engine::general_purpose::STANDARD;

    #[test]
    fn needles_are_found_at_every_position() {
        for before in ["", "x", "xy", "xyz", "wxyz"] {
            let text = STANDARD.encode(format!("{before}%PDF-1.7"));
            let is_found = |needle: &&[u8]| memmem::find(text.as_bytes(), needle).is_some();
            assert!(PDF_NEEDLES.iter().any(is_found), "{text}");
        }
    }

    #[test]
    fn texts_are_no_media() {
        let mut media = InlineMedia::default();
        let words = "A plain text of a document, with as many words as it likes to have in it.";
        for text in [words, "short", "data:text/plain,with%20words%20and%20words", ""] {
            media.add(text);
        }
        assert_eq!((media.parts.len(), media.chars), (0, 0));
        let text = "a table;of words\n".repeat(10);
        for encoded in
            [STANDARD.encode(&text), format!("data:text/csv;base64,{}", STANDARD.encode(&text))]
        {
            media.add(&encoded);
        }
        let is_text = |part: &PartSize| matches!(part, PartSize::File(MediaSize::Text(170)));
        assert!(media.parts.len() == 2 && media.parts.iter().all(is_text));
        media.add(&STANDARD.encode([0_u8; 100]));
        assert!(matches!(media.parts.last(), Some(PartSize::Unknown(136))));
    }
}

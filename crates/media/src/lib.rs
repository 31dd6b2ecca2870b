//! Media files: their kind, and their size in the unit that providers count them by: pixels, pages,
//! seconds or bytes of text.
//!
//! A file is recognised by its content, because its declared type is the caller's word. The work is
//! linear in the bytes of the file, and bounded where a file unpacks. A file that cannot be measured
//! has no size: its only bound is the context window of the model.

mod base64_text;
mod flate;
mod image;
mod inline_file;
mod pdf;
mod pdf_object;
mod sound;
#[cfg(test)]
mod tests;
mod video;

pub use base64_text::{decode_any_base64, decode_base64, encode_base64};
pub use image::{ImageInfo, base64_image_info, image_info};
pub use inline_file::{InlineFile, inline_file};

/// Size of a media file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediaSize {
    /// A picture of this width and height, if its header has them.
    Image(Option<(u32, u32)>),
    /// A PDF document: its pages, and the bytes of the text on them.
    Pages {
        /// Number of pages.
        pages: u64,
        /// Bytes of text over all pages.
        text: u64,
    },
    /// Sound of this many seconds, rounded up.
    Sound(u64),
    /// A video of this many seconds, rounded up.
    Video(u64),
    /// A text of this many bytes.
    Text(u64),
}

/// Measures a file. `None` if it cannot be measured.
pub fn media_size(file: &[u8]) -> Option<MediaSize> {
    // Readers of PDF accept anything before its first line.
    if memchr::memmem::find(file, b"%PDF-").is_some() {
        return pdf::measure(file).map(|(pages, text)| MediaSize::Pages { pages, text });
    }
    if let Some(info) = image_info(file) {
        return Some(MediaSize::Image(info.size));
    }
    if video::is_picture(file) {
        return Some(MediaSize::Image(None));
    }
    if let Some(duration) = sound::duration(file).or_else(|| video::duration(file)) {
        return duration.size();
    }
    let is_text = |byte: &u8| *byte >= b' ' || matches!(byte, b'\t' | b'\n' | b'\r' | 0x0c);
    let text = std::str::from_utf8(file).ok().filter(|text| text.as_bytes().iter().all(is_text));
    text.map(|text| MediaSize::Text(text.len() as u64))
}

/// Duration of a recognised file.
#[derive(Clone, Copy, Debug, PartialEq)]
struct MediaDuration {
    seconds: f64,
    is_video: bool,
    bytes: usize,
}

impl MediaDuration {
    /// A file of more bytes per second lies about its duration.
    const MAX_SOUND_RATE: f64 = 2e6;
    const MAX_VIDEO_RATE: f64 = 16e6;

    fn size(self) -> Option<MediaSize> {
        let rate = if self.is_video { Self::MAX_VIDEO_RATE } else { Self::MAX_SOUND_RATE };
        let is_possible = self.seconds.is_finite()
            && self.seconds >= 0.0
            && self.bytes as f64 <= rate * (self.seconds + 1.0);
        // A cast of a large float saturates.
        let seconds = is_possible.then(|| self.seconds.ceil() as u64)?.max(1);
        Some(if self.is_video { MediaSize::Video(seconds) } else { MediaSize::Sound(seconds) })
    }
}

/// Returns the bytes at a position as an array.
fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// Returns a big-endian number of up to eight bytes.
fn number(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(length)?)?;
    Some(bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
}

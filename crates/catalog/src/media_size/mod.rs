//! Size of a media file in the unit that providers count it by: pages, seconds or bytes of text.
//!
//! A file is recognised by its content, because its declared type is the caller's word. The work is
//! linear in the bytes of the file, and bounded where a file unpacks. A file that cannot be measured
//! has no size: its only bound is the context window of the model.

mod flate;
mod pdf;
mod pdf_object;
mod sound;
#[cfg(test)]
mod tests;
mod video;

/// Size of a media file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediaSize {
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

/// Upper bounds of the tokens that a provider makes of media.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MediaTokens {
    /// Tokens of a small picture.
    pub min_image: u64,
    /// Tokens of the largest picture.
    pub max_image: u64,
    /// Pixels of a picture per token.
    pub pixels_per_token: u64,
    /// Tokens of the picture of a page.
    pub page: u64,
    /// Tokens of a second of sound.
    pub sound_second: u64,
    /// Tokens of a second of video, with its sound.
    pub video_second: u64,
}

impl MediaTokens {
    /// The bounds over all providers but Google. The largest is Qwen with 16,384 tokens for a picture;
    /// OpenAI counts up to 2.46 tokens for 32 × 32 pixels, and 1,700 for the smallest picture.
    /// <https://platform.openai.com/docs/guides/images-vision#calculating-costs>,
    /// <https://docs.anthropic.com/en/docs/build-with-claude/vision#calculate-image-costs>
    pub const USUAL: Self = Self {
        min_image: 2_304,
        max_image: 16_384,
        pixels_per_token: 400,
        page: 4_096,
        sound_second: 50,
        video_second: 2_048,
    };

    /// The bounds of Google: 258 tokens for 768 × 768 pixels, or at most 2,240 for any picture; 32
    /// tokens for a second of sound, and one picture for a second of video.
    /// <https://ai.google.dev/gemini-api/docs/tokens#multimodal-tokens>,
    /// <https://ai.google.dev/gemini-api/docs/media-resolution>
    pub const GOOGLE: Self = Self {
        min_image: 2_304,
        max_image: 65_536,
        pixels_per_token: 2_000,
        page: 2_560,
        sound_second: 32,
        video_second: 320,
    };

    /// Returns the most tokens of a picture.
    pub fn of_image(&self, (width, height): (u32, u32)) -> u64 {
        let pixels = u64::from(width).saturating_mul(u64::from(height));
        pixels.div_ceil(self.pixels_per_token.max(1)).clamp(self.min_image, self.max_image)
    }

    /// Returns the most tokens of a file.
    pub fn of_file(&self, size: MediaSize) -> u64 {
        match size {
            MediaSize::Pages { pages, text } => {
                pages.saturating_mul(self.page).saturating_add(text)
            }
            MediaSize::Sound(seconds) => seconds.saturating_mul(self.sound_second),
            MediaSize::Video(seconds) => seconds.saturating_mul(self.video_second),
            MediaSize::Text(bytes) => bytes,
        }
    }
}

/// Measures a file. `None` if it cannot be measured.
pub fn media_size(file: &[u8]) -> Option<MediaSize> {
    // Readers of PDF accept anything before its first line.
    if memchr::memmem::find(file, b"%PDF-").is_some() {
        return pdf::measure(file).map(|(pages, text)| MediaSize::Pages { pages, text });
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

//! Tokens that providers make of media.

use media::MediaSize;

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
    /// Anthropic counts up to 4,784, also for the picture of a page. OpenAI counts up to 2.46 tokens for 32 × 32 pixels, and 1,700 for the smallest picture.
    /// <https://platform.openai.com/docs/guides/images-vision#calculating-costs>,
    /// <https://docs.anthropic.com/en/docs/build-with-claude/vision#calculate-image-costs>
    pub const USUAL: Self = Self {
        min_image: 2_304,
        max_image: 16_384,
        pixels_per_token: 400,
        page: 5_120,
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

    /// Returns the most tokens of a file. A model may have its own count for any image, which is that of
    /// a page too.
    pub fn of_file(&self, size: MediaSize, own_image: Option<u64>) -> u64 {
        match size {
            MediaSize::Image(size) => {
                own_image.unwrap_or_else(|| size.map_or(self.max_image, |size| self.of_image(size)))
            }
            MediaSize::Pages { pages, text } => {
                let page = own_image.map_or(self.page, |own| own.max(self.page));
                pages.saturating_mul(page).saturating_add(text)
            }
            MediaSize::Sound(seconds) => seconds.saturating_mul(self.sound_second),
            MediaSize::Video(seconds) => seconds.saturating_mul(self.video_second),
            MediaSize::Text(bytes) => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_bounded_by_pixels_pages_and_seconds() {
        let rates = MediaTokens::USUAL;
        assert_eq!(rates.of_image((1, 1)), 2_304);
        assert_eq!(rates.of_image((1_024, 1_024)), 2_622);
        assert_eq!(rates.of_image((8_000, 8_000)), 16_384);
        assert_eq!(rates.of_file(MediaSize::Pages { pages: 100, text: 7 }, None), 512_007);
        let own = Some(48_384);
        assert_eq!(rates.of_file(MediaSize::Pages { pages: 2, text: 7 }, own), 96_775);
        assert_eq!(rates.of_file(MediaSize::Image(None), own), 48_384);
        assert_eq!(MediaTokens::GOOGLE.of_file(MediaSize::Video(3_600), None), 1_152_000);
    }
}

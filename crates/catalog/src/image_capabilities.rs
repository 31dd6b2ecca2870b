//! Image capabilities of a model: sizes, qualities, formats and counts.

use canon::{ImageFamily, ImageSize};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Image capabilities of a model. An empty list means unknown; the gateway then accepts every
/// value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ImageCapabilities {
    /// Request shape of its providers at the images endpoint.
    #[serde(deserialize_with = "family", skip_serializing)]
    pub family: ImageFamily,
    /// Named sizes, for example `1024x1024` or `2K`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sizes: Vec<String>,
    /// Size classes (`512`, `1K`, `2K`, `4K`) of a model that takes a ratio instead of pixels.
    #[serde(rename(serialize = "size_classes"), skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<String>,
    /// Rule for further sizes.
    #[serde(rename(serialize = "size_rule"), skip_serializing_if = "Option::is_none")]
    pub any: Option<SizeRule>,
    /// Aspect ratios, for models that take them instead of a size.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ratios: Vec<String>,
    /// Qualities.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub qualities: Vec<String>,
    /// File formats.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub formats: Vec<String>,
    /// Backgrounds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub backgrounds: Vec<String>,
    /// Maximum number of images per request.
    #[serde(rename(serialize = "max_images"), skip_serializing_if = "Option::is_none")]
    pub most: Option<u32>,
    /// Maximum number of input images.
    #[serde(rename(serialize = "max_input_images"), skip_serializing_if = "Option::is_none")]
    pub inputs: Option<usize>,
    /// True if it changes given images.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edits: Option<bool>,
    /// True if it accepts a mask.
    pub mask: bool,
    /// Maximum number of partial images; zero if it does not stream.
    #[serde(rename(serialize = "max_partial_images"))]
    pub partials: u64,
    /// Tokens of an image of 1024×1024 pixels, by quality.
    #[serde(rename(serialize = "tokens_per_image"), skip_serializing_if = "BTreeMap::is_empty")]
    pub tokens: BTreeMap<String, u64>,
}

/// A rule for sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SizeRule {
    /// Width and height are multiples of this number.
    pub step: u32,
    /// Minimum side length in pixels.
    #[serde(rename(serialize = "min_side"))]
    pub shortest: u32,
    /// Maximum side length in pixels.
    #[serde(rename(serialize = "max_side"))]
    pub longest: u32,
    /// Maximum ratio of the longer to the shorter side.
    #[serde(rename(serialize = "max_ratio"))]
    pub ratio: u32,
    /// Maximum number of pixels.
    #[serde(rename(serialize = "max_pixels"))]
    pub pixels: u64,
}

impl SizeRule {
    fn accepts(&self, width: u32, height: u32) -> bool {
        let Self { step, shortest, longest, ratio, pixels } = *self;
        let (short, long) = (width.min(height), width.max(height));
        let fits = |side: u32| side.checked_rem(step) == Some(0);
        fits(width)
            && fits(height)
            && short >= shortest
            && long <= longest
            && u64::from(long) <= u64::from(short) * u64::from(ratio)
            && u64::from(width) * u64::from(height) <= pixels
    }
}

impl std::fmt::Display for SizeRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { step, shortest, longest, ratio, pixels } = self;
        write!(
            f,
            "any WIDTHxHEIGHT in steps of {step} from {shortest} to {longest} with at most \
             {pixels} pixels, no side longer than {ratio} times the other"
        )
    }
}

fn family<'de, D: serde::Deserializer<'de>>(from: D) -> Result<ImageFamily, D::Error> {
    let word = String::deserialize(from)?;
    ImageFamily::parse(&word).ok_or_else(|| {
        let words = ImageFamily::ALL.map(ImageFamily::as_str).join(", ");
        serde::de::Error::custom(format!("there is no family `{word}`; there are: {words}"))
    })
}

/// Tokens of an image of 1024×1024 pixels at the highest price, if nothing else is known.
const MAX_TOKENS_OF_SQUARE: u64 = 8_192;
/// Pixels of the image to which token counts refer.
const SQUARE_PIXELS: u64 = 1_024 * 1_024;
/// Tokens of one partial image (<https://platform.openai.com/docs/guides/image-generation>).
const TOKENS_PER_PARTIAL: u64 = 100;

impl ImageCapabilities {
    /// Returns true if the model makes images of that size.
    pub fn accepts_size(&self, extent: &ImageSize) -> bool {
        if let ImageSize::Class(class) = extent
            && !self.classes.is_empty()
        {
            return self.classes.contains(class);
        }
        if self.sizes.is_empty() && self.any.is_none() {
            return true;
        }
        let word = extent.to_string();
        let by_rule = match (extent, &self.any) {
            (ImageSize::Pixels(width, height), Some(any)) => any.accepts(*width, *height),
            (ImageSize::Pixels(..) | ImageSize::Auto | ImageSize::Class(_), _) => false,
        };
        by_rule || self.sizes.contains(&word)
    }

    /// Describes the accepted sizes, for an error message.
    pub fn describe_sizes(&self) -> String {
        let named: Vec<&str> = self.sizes.iter().chain(&self.classes).map(String::as_str).collect();
        let mut sizes = named.join(", ");
        if let Some(any) = &self.any {
            if !sizes.is_empty() {
                sizes.push_str(", or ");
            }
            sizes.push_str(&any.to_string());
        }
        sizes
    }

    /// Returns the maximum number of tokens of one image.
    pub fn max_tokens(&self, extent: &ImageSize, quality: Option<&str>, drafts: u64) -> u64 {
        let dearest = self.tokens.values().max().copied().unwrap_or(MAX_TOKENS_OF_SQUARE);
        let square = quality.and_then(|word| self.tokens.get(word)).copied().unwrap_or(dearest);
        let tokens = square.saturating_mul(self.max_pixels(extent)).div_ceil(SQUARE_PIXELS);
        tokens.saturating_add(drafts.saturating_mul(TOKENS_PER_PARTIAL))
    }

    /// Returns the maximum number of pixels of an image of that size.
    fn max_pixels(&self, extent: &ImageSize) -> u64 {
        let own = extent.max_pixels().or_else(|| {
            let largest = self.sizes.iter().filter_map(|word| named_pixels(word)).max();
            // Without a requested size, the model chooses one of its named sizes.
            largest.or_else(|| self.any.as_ref().map(|any| any.pixels))
        });
        own.unwrap_or(4 * SQUARE_PIXELS).max(SQUARE_PIXELS / 4)
    }
}

/// Returns the pixels of a named size.
fn named_pixels(word: &str) -> Option<u64> {
    match word.split_once('x') {
        Some((width, height)) => {
            ImageSize::Pixels(width.parse().ok()?, height.parse().ok()?).max_pixels()
        }
        None => ImageSize::Class(word.to_owned()).max_pixels(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn palette() -> ImageCapabilities {
        let text = r#"
            family = "gpt"
            sizes = ["auto", "1024x1024", "1536x1024"]
            any = { step = 16, shortest = 16, longest = 3840, ratio = 3, pixels = 8294400 }
            tokens = { low = 272, high = 4160 }
        "#;
        toml::from_str(text).unwrap()
    }

    #[test]
    fn sizes_are_named_or_follow_the_rule() {
        let palette = palette();
        for (width, height) in [(1_024, 1_024), (3_840, 2_160), (48, 16)] {
            assert!(palette.accepts_size(&ImageSize::Pixels(width, height)), "{width}x{height}");
        }
        for (width, height) in [(1_000, 1_000), (3_856, 2_160), (64, 16), (3_840, 3_840), (0, 0)] {
            assert!(!palette.accepts_size(&ImageSize::Pixels(width, height)), "{width}x{height}");
        }
        assert!(palette.accepts_size(&ImageSize::Auto));
        assert!(!palette.accepts_size(&ImageSize::Class("2K".to_owned())));
        assert!(ImageCapabilities::default().accepts_size(&ImageSize::Class("2K".to_owned())));
        let classes =
            ImageCapabilities { classes: vec!["1K".to_owned()], ..ImageCapabilities::default() };
        assert!(classes.accepts_size(&ImageSize::Class("1K".to_owned())));
        assert!(!classes.accepts_size(&ImageSize::Class("2K".to_owned())));
        assert!(classes.accepts_size(&ImageSize::Pixels(640, 480)));
        assert_eq!(classes.describe_sizes(), "1K");
    }

    #[test]
    fn tokens_grow_with_size_and_quality() {
        let palette = palette();
        let of = |extent, quality| palette.max_tokens(&extent, quality, 0);
        assert_eq!(of(ImageSize::Pixels(1_024, 1_024), Some("low")), 272);
        assert_eq!(of(ImageSize::Pixels(1_536, 1_024), Some("high")), 6_240);
        assert_eq!(of(ImageSize::Auto, None), 6_240);
        assert_eq!(of(ImageSize::Auto, Some("auto")), 6_240);
        assert_eq!(palette.max_tokens(&ImageSize::Pixels(1_024, 1_024), Some("low"), 3), 572);
    }

    #[test]
    fn an_unknown_family_is_refused_by_name() {
        let wrong =
            toml::from_str::<ImageCapabilities>("family = \"oil\"").unwrap_err().to_string();
        assert!(wrong.contains("there is no family `oil`"), "{wrong}");
    }
}

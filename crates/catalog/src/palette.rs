//! What pictures a model makes: sizes, qualities, formats, and how many.

use canon::{Extent, Family};
use serde::Deserialize;
use std::collections::BTreeMap;

/// What pictures a model makes. What is empty is not known and not judged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Palette {
    /// How its providers take orders at the images address.
    #[serde(deserialize_with = "family")]
    pub family: Family,
    /// Sizes by name, such as `1024x1024` or `2K`.
    pub sizes: Vec<String>,
    /// Sizes it takes besides, by rule.
    pub any: Option<AnySize>,
    /// Width to height, where it is told that instead of a size.
    pub ratios: Vec<String>,
    /// Qualities.
    pub qualities: Vec<String>,
    /// File formats.
    pub formats: Vec<String>,
    /// Backgrounds.
    pub backgrounds: Vec<String>,
    /// The most pictures at once.
    pub most: Option<u32>,
    /// The most pictures it takes to begin with.
    pub inputs: Option<usize>,
    /// Whether it takes a mask.
    pub mask: bool,
    /// The most drafts it shows on the way; none where it has no stream.
    pub partials: u64,
    /// The tokens of a picture of 1024 times 1024 pixels, by quality.
    pub tokens: BTreeMap<String, u64>,
}

/// A rule for sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnySize {
    /// Width and height are multiples of this.
    pub step: u32,
    /// The shortest side.
    pub shortest: u32,
    /// The longest side.
    pub longest: u32,
    /// How many times the shorter side the longer one may be.
    pub ratio: u32,
    /// The most pixels.
    pub pixels: u64,
}

impl AnySize {
    fn takes(&self, width: u32, height: u32) -> bool {
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

impl std::fmt::Display for AnySize {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { step, shortest, longest, ratio, pixels } = self;
        write!(
            f,
            "any WIDTHxHEIGHT in steps of {step} from {shortest} to {longest} with at most \
             {pixels} pixels, no side longer than {ratio} times the other"
        )
    }
}

fn family<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Family, D::Error> {
    let word = String::deserialize(from)?;
    Family::by_word(&word).ok_or_else(|| {
        let words = Family::ALL.map(Family::word).join(", ");
        serde::de::Error::custom(format!("there is no family `{word}`; there are: {words}"))
    })
}

/// The tokens of a picture of 1024 times 1024 pixels at its dearest, where nothing else is known.
const DEAREST: u64 = 8_192;
/// The pixels those are the tokens of.
const SQUARE: u64 = 1_024 * 1_024;
/// Drafts cost this many tokens each.
const DRAFT: u64 = 100;

impl Palette {
    /// Whether the model makes pictures of that size.
    pub fn takes_size(&self, extent: &Extent) -> bool {
        if self.sizes.is_empty() && self.any.is_none() {
            return true;
        }
        let word = extent.to_string();
        let ruled = match (extent, &self.any) {
            (Extent::Pixels(width, height), Some(any)) => any.takes(*width, *height),
            (Extent::Pixels(..) | Extent::Auto | Extent::Class(_), _) => false,
        };
        ruled || self.sizes.contains(&word)
    }

    /// The sizes it makes, for whoever asked for another.
    pub fn sizes(&self) -> String {
        let mut told = self.sizes.join(", ");
        if let Some(any) = &self.any {
            if !told.is_empty() {
                told.push_str(", or ");
            }
            told.push_str(&any.to_string());
        }
        told
    }

    /// The most tokens one picture can be.
    pub fn most_tokens(&self, extent: &Extent, quality: Option<&str>, drafts: u64) -> u64 {
        let dearest = self.tokens.values().max().copied().unwrap_or(DEAREST);
        let square = quality.and_then(|word| self.tokens.get(word)).copied().unwrap_or(dearest);
        let tokens = square.saturating_mul(self.most_pixels(extent)).div_ceil(SQUARE);
        tokens.saturating_add(drafts.saturating_mul(DRAFT))
    }

    /// The most pixels a picture of that size has.
    fn most_pixels(&self, extent: &Extent) -> u64 {
        let own = extent.pixels().or_else(|| {
            let largest = self.sizes.iter().filter_map(|word| named_pixels(word)).max();
            // Left to the model, a size by rule is one of its usual ones.
            largest.or_else(|| self.any.as_ref().map(|any| any.pixels))
        });
        own.unwrap_or(4 * SQUARE).max(SQUARE / 4)
    }
}

/// The pixels of a size by name.
fn named_pixels(word: &str) -> Option<u64> {
    match word.split_once('x') {
        Some((width, height)) => Extent::Pixels(width.parse().ok()?, height.parse().ok()?).pixels(),
        None => Extent::Class(word.to_owned()).pixels(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn palette() -> Palette {
        let text = r#"
            family = "gpt"
            sizes = ["auto", "1024x1024", "1536x1024"]
            any = { step = 16, shortest = 16, longest = 3840, ratio = 3, pixels = 8294400 }
            tokens = { low = 272, high = 4160 }
        "#;
        toml::from_str(text).unwrap()
    }

    #[test]
    fn sizes_are_named_or_ruled() {
        let palette = palette();
        for (width, height) in [(1_024, 1_024), (3_840, 2_160), (48, 16)] {
            assert!(palette.takes_size(&Extent::Pixels(width, height)), "{width}x{height}");
        }
        for (width, height) in [(1_000, 1_000), (3_856, 2_160), (64, 16), (3_840, 3_840), (0, 0)] {
            assert!(!palette.takes_size(&Extent::Pixels(width, height)), "{width}x{height}");
        }
        assert!(palette.takes_size(&Extent::Auto));
        assert!(!palette.takes_size(&Extent::Class("2K".to_owned())));
        assert!(Palette::default().takes_size(&Extent::Class("2K".to_owned())));
    }

    #[test]
    fn tokens_grow_with_size_and_quality() {
        let palette = palette();
        let of = |extent, quality| palette.most_tokens(&extent, quality, 0);
        assert_eq!(of(Extent::Pixels(1_024, 1_024), Some("low")), 272);
        assert_eq!(of(Extent::Pixels(1_536, 1_024), Some("high")), 6_240);
        assert_eq!(of(Extent::Auto, None), 6_240);
        assert_eq!(of(Extent::Auto, Some("auto")), 6_240);
        assert_eq!(palette.most_tokens(&Extent::Pixels(1_024, 1_024), Some("low"), 3), 572);
    }

    #[test]
    fn an_unknown_family_is_refused_by_name() {
        let wrong = toml::from_str::<Palette>("family = \"oil\"").unwrap_err().to_string();
        assert!(wrong.contains("there is no family `oil`"), "{wrong}");
    }
}

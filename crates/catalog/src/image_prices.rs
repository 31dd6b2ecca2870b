//! Prices of images by size and quality.
//!
//! Some providers bill per image, others by the tokens of the image; a row states one or both. An
//! image that no row describes is charged at the highest possible price, never at zero.

use canon::Price;

use crate::ModelPrices;

/// Price of one image. An absent size or quality matches any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImagePrice {
    /// Size, in the provider's words.
    pub size: Option<String>,
    /// Quality, in the provider's words.
    pub quality: Option<String>,
    /// Price per image.
    pub price: Price,
    /// Maximum number of output tokens of the image, if tokens are billed.
    pub tokens: u64,
}

/// Size and quality of a requested or generated image. An unknown value may be any; `auto` is
/// unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImageSpec<'a> {
    /// Size, if known.
    pub size: Option<&'a str>,
    /// Quality, if known.
    pub quality: Option<&'a str>,
}

impl<'a> ImageSpec<'a> {
    /// Creates the specification of a request with those words.
    pub fn from_request(size: Option<&'a str>, quality: Option<&'a str>) -> Self {
        let known = |word: &&str| !word.is_empty() && !word.eq_ignore_ascii_case("auto");
        Self { size: size.filter(known), quality: quality.filter(known) }
    }
}

impl ImagePrice {
    fn matches_size(&self, picture: ImageSpec<'_>) -> bool {
        matches_word(self.size.as_deref(), picture.size)
    }

    fn matches(&self, picture: ImageSpec<'_>) -> bool {
        self.matches_size(picture) && matches_word(self.quality.as_deref(), picture.quality)
    }

    fn specificity(&self) -> usize {
        usize::from(self.size.is_some()) + usize::from(self.quality.is_some())
    }
}

fn matches_word(named: Option<&str>, known: Option<&str>) -> bool {
    named.is_none_or(|named| known.is_some_and(|known| known.eq_ignore_ascii_case(named)))
}

/// Charge of one image: a price per image and a maximum number of tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImageRate {
    /// Price per image.
    pub price: Price,
    /// Maximum number of output tokens of the image; zero if unknown.
    pub tokens: u64,
}

impl ImageRate {
    fn of(row: &ImagePrice) -> Self {
        Self { price: row.price, tokens: row.tokens }
    }

    fn max(self, other: Self) -> Self {
        Self { price: self.price.max(other.price), tokens: self.tokens.max(other.tokens) }
    }

    fn max_of<'r>(rows: impl Iterator<Item = &'r ImagePrice>) -> Option<Self> {
        rows.map(Self::of).reduce(Self::max)
    }
}

impl ModelPrices {
    /// Returns the charge of one image. An image that is not fully known is charged at the highest
    /// price it may turn out to have.
    pub fn image_rate(&self, picture: ImageSpec<'_>) -> ImageRate {
        let per_image = self.per_image.map(|price| ImageRate { price, tokens: 0 });
        // An unknown value may be any row of the list; a known size narrows it down.
        let unknown = || {
            let near = |row: &&ImagePrice| picture.size.is_none() || row.matches_size(picture);
            ImageRate::max_of(self.images.iter().filter(near))
                .or_else(|| ImageRate::max_of(self.images.iter()))
        };
        if picture.size.is_none() || picture.quality.is_none() {
            let highest = unknown().unwrap_or_default();
            return per_image.map_or(highest, |per_image| highest.max(per_image));
        }
        let rows = || self.images.iter().filter(|row| row.matches(picture));
        let exact = rows().map(ImagePrice::specificity).max();
        ImageRate::max_of(rows().filter(|row| Some(row.specificity()) == exact))
            .or(per_image)
            .or_else(unknown)
            .unwrap_or_default()
    }
}

//! What pictures cost by size and quality.
//!
//! Some providers bill a picture by the piece, others by the tokens it is made of; a row says one
//! or both. What no row tells is charged as the dearest it could be, never as nothing.

use canon::Price;

use crate::Prices;

/// What one picture costs; a size or quality that is not named stands for any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PicturePrice {
    /// The size, in the provider's words.
    pub size: Option<String>,
    /// The quality, in the provider's words.
    pub quality: Option<String>,
    /// Per picture.
    pub price: Price,
    /// The most answer tokens it is made of, where those are billed.
    pub tokens: u64,
}

/// Which picture is asked for or was made. What is not known may be any; `auto` is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Picture<'a> {
    /// Its size.
    pub size: Option<&'a str>,
    /// Its quality.
    pub quality: Option<&'a str>,
}

impl<'a> Picture<'a> {
    /// The picture a caller asks for in those words.
    pub fn asked(size: Option<&'a str>, quality: Option<&'a str>) -> Self {
        let known = |word: &&str| !word.is_empty() && !word.eq_ignore_ascii_case("auto");
        Self { size: size.filter(known), quality: quality.filter(known) }
    }
}

impl PicturePrice {
    fn has_size(&self, picture: Picture<'_>) -> bool {
        fits(self.size.as_deref(), picture.size)
    }

    fn is_of(&self, picture: Picture<'_>) -> bool {
        self.has_size(picture) && fits(self.quality.as_deref(), picture.quality)
    }

    fn exactness(&self) -> usize {
        usize::from(self.size.is_some()) + usize::from(self.quality.is_some())
    }
}

fn fits(named: Option<&str>, known: Option<&str>) -> bool {
    named.is_none_or(|named| known.is_some_and(|known| known.eq_ignore_ascii_case(named)))
}

/// What a picture is charged: by the piece, and the most tokens it can be made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PictureRate {
    /// Per picture.
    pub price: Price,
    /// The most answer tokens it is made of; none where that is not on record.
    pub tokens: u64,
}

impl PictureRate {
    fn of(row: &PicturePrice) -> Self {
        Self { price: row.price, tokens: row.tokens }
    }

    fn dearer(self, other: Self) -> Self {
        Self { price: self.price.max(other.price), tokens: self.tokens.max(other.tokens) }
    }

    fn dearest<'r>(rows: impl Iterator<Item = &'r PicturePrice>) -> Option<Self> {
        rows.map(Self::of).reduce(Self::dearer)
    }
}

impl Prices {
    /// What one such picture is charged. Of a picture that is not fully known, the dearest it may
    /// turn out to be.
    pub fn picture(&self, picture: Picture<'_>) -> PictureRate {
        let apiece = self.per_image.map(|price| PictureRate { price, tokens: 0 });
        // What is not known may be anything on the list; a size narrows it down.
        let unknown = || {
            let near = |row: &&PicturePrice| picture.size.is_none() || row.has_size(picture);
            PictureRate::dearest(self.pictures.iter().filter(near))
                .or_else(|| PictureRate::dearest(self.pictures.iter()))
        };
        if picture.size.is_none() || picture.quality.is_none() {
            let worst = unknown().unwrap_or_default();
            return apiece.map_or(worst, |apiece| worst.dearer(apiece));
        }
        let rows = || self.pictures.iter().filter(|row| row.is_of(picture));
        let exact = rows().map(PicturePrice::exactness).max();
        PictureRate::dearest(rows().filter(|row| Some(row.exactness()) == exact))
            .or(apiece)
            .or_else(unknown)
            .unwrap_or_default()
    }
}

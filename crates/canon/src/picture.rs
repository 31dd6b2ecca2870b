//! Pictures: what is asked of an image model, and what it made.
//!
//! Too unlike a conversation to share its words, so pictures have a pair of their own. The families
//! are what providers of the same address made of it.

use crate::{Extras, Source, Usage};

/// A way in which providers take orders for pictures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// The GPT image models: base64 always, tokens counted, edits at an address of their own.
    #[default]
    Gpt,
    /// Seedream and its kin: inputs in the same request, links or base64, series of pictures.
    Seedream,
    /// Grok: an aspect ratio in place of a size.
    Xai,
    /// Alibaba's Model Studio: a task that is polled.
    Dashscope,
    /// Black Forest Labs: a task that is polled at the address it names.
    Flux,
    /// Replicate and its kin: a prediction that is polled.
    Predictions,
}

impl Family {
    /// Every family, in the order they are listed.
    pub const ALL: [Self; 6] =
        [Self::Gpt, Self::Seedream, Self::Xai, Self::Dashscope, Self::Flux, Self::Predictions];

    /// The word used in data and configuration.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Gpt => "gpt",
            Self::Seedream => "seedream",
            Self::Xai => "xai",
            Self::Dashscope => "dashscope",
            Self::Flux => "flux",
            Self::Predictions => "predictions",
        }
    }

    /// The family with that word; `None` when there is none.
    pub fn by_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|family| family.word() == word)
    }
}

/// How large a picture is to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Extent {
    /// As the model thinks fit.
    #[default]
    Auto,
    /// Width and height in pixels.
    Pixels(u32, u32),
    /// About as many pixels as a square of that name has: `1K`, `2K`, `4K`.
    Class(String),
}

impl Extent {
    /// The most pixels such a picture has; `None` where that is for the model to say.
    pub fn pixels(&self) -> Option<u64> {
        match self {
            Self::Auto => None,
            Self::Pixels(width, height) => Some(u64::from(*width) * u64::from(*height)),
            Self::Class(word) => {
                let side = match word.strip_suffix(['K', 'k']) {
                    Some(thousands) => thousands.parse::<u64>().ok()?.checked_mul(1_024)?,
                    None => word.parse().ok()?,
                };
                side.checked_mul(side)
            }
        }
    }
}

impl std::fmt::Display for Extent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Pixels(width, height) => write!(f, "{width}x{height}"),
            Self::Class(word) => f.write_str(word),
        }
    }
}

/// How the caller wants its pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// In the answer itself.
    Base64,
    /// As a link.
    Link,
}

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Picture {
    /// The model asked for.
    pub model: String,
    /// What is to be seen.
    pub prompt: String,
    /// Pictures to begin with, for an edit.
    pub inputs: Vec<Source>,
    /// Where the first of them may be changed: where this one can be seen through.
    pub mask: Option<Source>,
    /// Whether an edit was asked for.
    pub edit: bool,
    /// How many.
    pub count: u32,
    /// How large.
    pub extent: Extent,
    /// Width to height, where that is told apart from the size.
    pub ratio: Option<String>,
    /// How carefully drawn, in the caller's word.
    pub quality: Option<String>,
    /// The file format, in the caller's word: `png`, `jpeg`, `webp`.
    pub format: Option<String>,
    /// How well jpeg and webp are to look, out of a hundred.
    pub compression: Option<u64>,
    /// `transparent`, `opaque` or `auto`.
    pub background: Option<String>,
    /// How strictly the prompt is judged.
    pub moderation: Option<String>,
    /// How closely an edit keeps to its input.
    pub fidelity: Option<String>,
    /// A style by name, which older models had.
    pub style: Option<String>,
    /// What must not be seen.
    pub negative: Option<String>,
    /// What makes the same request give the same picture.
    pub seed: Option<i64>,
    /// How closely to keep to the prompt.
    pub guidance: Option<f64>,
    /// Whether the picture tells that it was made.
    pub watermark: Option<bool>,
    /// How the pictures are to come; `None` when the caller does not say.
    pub delivery: Option<Delivery>,
    /// Whether the answer is to come in pieces.
    pub stream: bool,
    /// How many drafts to show on the way.
    pub partials: Option<u64>,
    /// Who asks, in the caller's own words.
    pub user: Option<String>,
    /// The same, as a print of whoever asks.
    pub safety_identifier: Option<String>,
    /// Fields only the caller's format knows.
    pub extras: Extras,
}

/// What came of one picture.
#[derive(Clone, Debug, PartialEq)]
pub enum Made {
    /// It was made.
    Picture {
        /// Where it is.
        source: Source,
        /// The prompt as the model rewrote it.
        revised: Option<String>,
        /// Its size as the provider tells it.
        size: Option<String>,
    },
    /// It was not.
    Failed {
        /// Why, in the provider's short word.
        code: String,
        /// Why, in a sentence.
        say: String,
    },
}

impl Made {
    /// Whether there is a picture.
    pub const fn is_picture(&self) -> bool {
        matches!(self, Self::Picture { .. })
    }
}

/// What is answered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pictures {
    /// When, in seconds since 1970.
    pub created: Option<i64>,
    /// One for each picture, made or not.
    pub made: Vec<Made>,
    /// What it consumed; `None` when the provider does not tell.
    pub usage: Option<Usage>,
    /// The background it has.
    pub background: Option<String>,
    /// The file format it has.
    pub format: Option<String>,
    /// How carefully it was drawn.
    pub quality: Option<String>,
    /// How large it is.
    pub size: Option<String>,
    /// Fields only the provider's format knows.
    pub extras: Extras,
}

impl Pictures {
    /// How many pictures there are.
    pub fn count(&self) -> usize {
        self.made.iter().filter(|made| made.is_picture()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_is_found_by_its_word() {
        for family in Family::ALL {
            assert_eq!(Family::by_word(family.word()), Some(family));
        }
        assert_eq!(Family::by_word("GPT"), None);
    }

    #[test]
    fn an_extent_bounds_its_pixels() {
        assert_eq!(Extent::Pixels(16, 9).pixels(), Some(144));
        assert_eq!(Extent::Class("2K".to_owned()).pixels(), Some(2_048 * 2_048));
        assert_eq!(Extent::Class("512".to_owned()).pixels(), Some(512 * 512));
        assert_eq!(Extent::Auto.pixels(), None);
        assert_eq!(Extent::Class("99999999999K".to_owned()).pixels(), None);
    }
}

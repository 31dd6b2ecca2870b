//! Request formats of image providers.

use canon::{Family, Fault, Lossy, Origin, Picture};

use super::provider::{Answer, Written};
use super::{gpt, native, seedream, tasks, xai};

/// Request format of a lane for images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spoken {
    /// `generateContent` of the native format.
    Native,
    /// The images endpoint, in the variant of that family.
    Images(Family),
}

impl Spoken {
    /// Returns the wire format whose errors and paths apply.
    pub const fn origin(self) -> Origin {
        match self {
            Self::Native => Origin::Native,
            Self::Images(_) => Origin::Images,
        }
    }

    /// Returns true if the caller's body can be passed through.
    pub const fn is_callers(self) -> bool {
        matches!(self, Self::Images(Family::Gpt))
    }

    /// Returns true if the lane can stream.
    pub const fn streams(self) -> bool {
        matches!(self, Self::Images(Family::Gpt | Family::Seedream))
    }

    /// Writes the requests for a lane: one for all images, or one per image if the lane generates
    /// one at a time. `word` is random and becomes part of the form boundary.
    pub fn write(
        self,
        picture: &Picture,
        model: &str,
        word: &str,
    ) -> Result<Lossy<Vec<Written>>, Fault> {
        match self {
            Self::Native => native::write(picture, model),
            Self::Images(Family::Gpt) => gpt::write(picture, model, word),
            Self::Images(Family::Seedream) => seedream::write(picture, model),
            Self::Images(Family::Xai) => xai::write(picture, model),
            Self::Images(Family::Dashscope) => tasks::write_dashscope(picture, model),
            Self::Images(Family::Flux) => tasks::write_flux(picture, model),
            Self::Images(Family::Predictions) => tasks::write_predictions(picture, model),
        }
    }

    /// Progress of a task in percent, if the provider reports it.
    pub fn progress(self, body: &[u8]) -> Option<u8> {
        match self {
            Self::Native => None,
            Self::Images(family) => tasks::progress(family, body),
        }
    }

    /// Reads a provider's answer. An error object in place of one becomes that error.
    pub fn read(self, body: &[u8]) -> Result<Answer, Fault> {
        match self {
            Self::Native => native::read(body).map(Answer::Now),
            Self::Images(family) => tasks::read(family, body),
        }
    }
}

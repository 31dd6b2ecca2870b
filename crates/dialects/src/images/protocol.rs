//! Request formats of image providers.

use canon::{ApiError, ImageFamily, ImageRequest, WireFormat};

use super::provider::{ImageAnswer, WrittenImages};
use super::{gpt, native, seedream, tasks, xai};

/// Request format of a lane for images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageProtocol {
    /// `generateContent` of the native format.
    Native,
    /// The images endpoint, in the variant of that family.
    Images(ImageFamily),
}

impl ImageProtocol {
    /// Selects the protocol of a lane with these formats: the images endpoint if it has one, else
    /// chat; `None` if no format has images.
    pub fn of_formats(
        formats: &[WireFormat],
        family: impl FnOnce() -> ImageFamily,
    ) -> Option<Self> {
        if formats.contains(&WireFormat::Images) {
            return Some(Self::Images(family()));
        }
        formats.contains(&WireFormat::Native).then_some(Self::Native)
    }

    /// Returns the wire format whose errors and paths apply.
    pub const fn origin(self) -> WireFormat {
        match self {
            Self::Native => WireFormat::Native,
            Self::Images(_) => WireFormat::Images,
        }
    }

    /// Returns true if the caller's body can be passed through.
    pub const fn passes_through(self) -> bool {
        matches!(self, Self::Images(ImageFamily::Gpt))
    }

    /// Returns true if the lane can stream.
    pub const fn can_stream(self) -> bool {
        matches!(self, Self::Images(ImageFamily::Gpt | ImageFamily::Seedream))
    }

    /// Writes the requests for a lane: one for all images, or one per image if the lane generates
    /// one at a time. `word` is random and becomes part of the form boundary.
    pub fn write(self, picture: &ImageRequest, model: &str, word: &str) -> WrittenImages {
        match self {
            Self::Native => native::write(picture, model),
            Self::Images(ImageFamily::Gpt) => gpt::write(picture, model, word),
            Self::Images(ImageFamily::Seedream) => seedream::write(picture, model),
            Self::Images(ImageFamily::Xai) => xai::write(picture, model),
            Self::Images(ImageFamily::Dashscope) => tasks::write_dashscope(picture, model),
            Self::Images(ImageFamily::Flux) => tasks::write_flux(picture, model),
            Self::Images(ImageFamily::Predictions) => tasks::write_predictions(picture, model),
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
    pub fn read(self, body: &[u8]) -> Result<ImageAnswer, ApiError> {
        match self {
            Self::Native => native::read(body).map(ImageAnswer::Finished),
            Self::Images(family) => tasks::read(family, body),
        }
    }
}

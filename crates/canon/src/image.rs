//! Requests to image models, and their replies.
//!
//! Images differ too much from a conversation to share its types, so they have a request and a
//! reply of their own. A [`ImageFamily`] is the request shape that a group of providers uses at the
//! images endpoint.

use crate::{ExtraFields, MediaSource, Usage};

/// Shape of image requests that a group of providers accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ImageFamily {
    /// GPT image models: always base64, usage in tokens, a separate endpoint for edits
    /// (<https://platform.openai.com/docs/api-reference/images>).
    #[default]
    Gpt,
    /// Seedream and compatible models: input images in the same request, URLs or base64, image
    /// series.
    Seedream,
    /// Grok: an aspect ratio instead of a size (<https://docs.x.ai/docs/guides/image-generations>).
    Xai,
    /// Alibaba Model Studio: a task that the gateway polls.
    Dashscope,
    /// Black Forest Labs: a task that the gateway polls at the URL in the reply
    /// (<https://docs.bfl.ai/>).
    Flux,
    /// Replicate and compatible services: a prediction that the gateway polls
    /// (<https://replicate.com/docs/reference/http>).
    Predictions,
}

impl ImageFamily {
    /// All families, in display order.
    pub const ALL: [Self; 6] =
        [Self::Gpt, Self::Seedream, Self::Xai, Self::Dashscope, Self::Flux, Self::Predictions];

    /// Returns the word used in data files and configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gpt => "gpt",
            Self::Seedream => "seedream",
            Self::Xai => "xai",
            Self::Dashscope => "dashscope",
            Self::Flux => "flux",
            Self::Predictions => "predictions",
        }
    }

    /// Returns the family with that word; `None` if there is none.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|family| family.as_str() == word)
    }
}

/// Requested size of an image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ImageSize {
    /// The model chooses.
    #[default]
    Auto,
    /// Width and height in pixels.
    Pixels(u32, u32),
    /// About the number of pixels of a square of that class: `1K`, `2K`, `4K`.
    Class(String),
}

impl ImageSize {
    /// Returns the maximum number of pixels; `None` if the model chooses.
    pub fn max_pixels(&self) -> Option<u64> {
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

impl std::fmt::Display for ImageSize {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Pixels(width, height) => write!(f, "{width}x{height}"),
            Self::Class(word) => f.write_str(word),
        }
    }
}

/// Delivery of images to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageDelivery {
    /// Base64 in the answer.
    Base64,
    /// A URL.
    Url,
}

/// An image request, independent of any wire format.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImageRequest {
    /// Requested model.
    pub model: String,
    /// Description of the image.
    pub prompt: String,
    /// Input images of an edit.
    pub inputs: Vec<MediaSource>,
    /// Mask of the first input image. Its transparent pixels may be changed.
    pub mask: Option<MediaSource>,
    /// True if the request is an edit.
    pub edit: bool,
    /// Number of images.
    pub count: u32,
    /// Size of the images.
    pub size: ImageSize,
    /// Aspect ratio, in formats that separate it from the size.
    pub aspect_ratio: Option<String>,
    /// Quality, in the caller's word.
    pub quality: Option<String>,
    /// File format, in the caller's word: `png`, `jpeg`, `webp`.
    pub format: Option<String>,
    /// Compression quality of jpeg and webp, in percent.
    pub compression: Option<u64>,
    /// `transparent`, `opaque` or `auto`.
    pub background: Option<String>,
    /// Strictness of the provider's moderation.
    pub moderation: Option<String>,
    /// Fidelity of an edit to its input image.
    pub fidelity: Option<String>,
    /// Named style, used by older models.
    pub style: Option<String>,
    /// Content to avoid.
    pub negative_prompt: Option<String>,
    /// Seed for repeatable images.
    pub seed: Option<i64>,
    /// Guidance scale.
    pub guidance: Option<f64>,
    /// True if the image carries a visible watermark.
    pub watermark: Option<bool>,
    /// Requested delivery; `None` if the caller does not choose.
    pub delivery: Option<ImageDelivery>,
    /// True if the answer is to be streamed.
    pub stream: bool,
    /// Number of partial images to stream.
    pub partial_images: Option<u64>,
    /// The caller's identifier for its end user.
    pub user: Option<String>,
    /// Hashed identifier of the end user.
    pub safety_identifier: Option<String>,
    /// Fields that only the caller's format defines.
    pub extras: ExtraFields,
}

/// Outcome of one requested image.
#[derive(Clone, Debug, PartialEq)]
pub enum GeneratedImage {
    /// The image was generated.
    Image {
        /// Location of the image.
        source: MediaSource,
        /// Prompt as revised by the model.
        revised: Option<String>,
        /// Size as reported by the provider.
        size: Option<String>,
    },
    /// The image was not generated.
    Failed {
        /// The provider's error code.
        code: String,
        /// The provider's error message.
        say: String,
    },
}

impl GeneratedImage {
    /// Returns true if the image was generated.
    pub const fn is_image(&self) -> bool {
        matches!(self, Self::Image { .. })
    }
}

/// Reply to an image request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImageReply {
    /// Creation time in Unix seconds.
    pub created: Option<i64>,
    /// One outcome per requested image.
    pub images: Vec<GeneratedImage>,
    /// Usage; `None` if the provider does not report it.
    pub usage: Option<Usage>,
    /// Background of the images.
    pub background: Option<String>,
    /// File format of the images.
    pub format: Option<String>,
    /// Quality of the images.
    pub quality: Option<String>,
    /// Size of the images.
    pub size: Option<String>,
    /// Fields that only the provider's format defines.
    pub extras: ExtraFields,
}

impl ImageReply {
    /// Returns the number of generated images.
    pub fn count(&self) -> usize {
        self.images.iter().filter(|made| made.is_image()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_is_found_by_its_word() {
        for family in ImageFamily::ALL {
            assert_eq!(ImageFamily::parse(family.as_str()), Some(family));
        }
        assert_eq!(ImageFamily::parse("GPT"), None);
    }

    #[test]
    fn an_extent_bounds_its_pixels() {
        assert_eq!(ImageSize::Pixels(16, 9).max_pixels(), Some(144));
        assert_eq!(ImageSize::Class("2K".to_owned()).max_pixels(), Some(2_048 * 2_048));
        assert_eq!(ImageSize::Class("512".to_owned()).max_pixels(), Some(512 * 512));
        assert_eq!(ImageSize::Auto.max_pixels(), None);
        assert_eq!(ImageSize::Class("99999999999K".to_owned()).max_pixels(), None);
    }
}

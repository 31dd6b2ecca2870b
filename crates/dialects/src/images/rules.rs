//! Checks that lead to status 400 for all models. Limits of a single model are checked where the
//! catalog is known.

use canon::{ApiError, ImageRequest, ImageSize, MediaSource};
use media::{ImageInfo, base64_image_info};

use super::aspect_ratio;
use crate::checks::{ensure_field, invalid_field};

/// Maximum number of images per request.
pub(super) const MAX_IMAGES: u32 = 10;
/// Maximum prompt length in characters.
pub(super) const MAX_PROMPT_CHARS: usize = 32_000;
/// Maximum number of input images.
pub(super) const MAX_INPUT_IMAGES: usize = 16;
/// Maximum pixels of an input image.
const MAX_INPUT_PIXELS: u64 = 100_000_000;

/// Parses a size. `None` if it is malformed.
pub fn parse_size(word: &str) -> Option<ImageSize> {
    if word == "auto" {
        return Some(ImageSize::Auto);
    }
    let side = |word: &str| {
        let digits = word.len() <= 5 && word.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| word.parse::<u32>().ok()).flatten().filter(|side| *side > 0)
    };
    if let Some((width, height)) = word.split_once('x') {
        return Some(ImageSize::Pixels(side(width)?, side(height)?));
    }
    let class = match word.strip_suffix('K') {
        Some(thousands) => side(thousands).is_some_and(|thousands| thousands <= 8),
        None => word == "512",
    };
    class.then(|| ImageSize::Class(word.to_owned()))
}

/// Applies the rules.
pub(super) fn check(picture: &ImageRequest) -> Result<(), ApiError> {
    let transparent = picture.background.as_deref() == Some("transparent");
    let is_jpeg = picture.format.as_deref() == Some("jpeg");
    let why = "is `transparent`, which JPEG does not support: use `png` or `webp`";
    ensure_field(!transparent || !is_jpeg, "background", why)?;
    if let Some(ratio) = &picture.aspect_ratio {
        let Some(ratio_value) = aspect_ratio::read_ratio(ratio) else {
            return Err(invalid_field("aspect_ratio", "must be WIDTH:HEIGHT, such as `16:9`"));
        };
        if let (Some(ratio_value), ImageSize::Pixels(width, height)) = (ratio_value, &picture.size)
            && !aspect_ratio::is_near(ratio_value, f64::from(*width) / f64::from(*height))
        {
            return Err(invalid_field("aspect_ratio", "contradicts `size`"));
        }
    }
    check_inputs(picture)
}

/// Measures an image if it is inline.
pub(super) fn inline_image_info(source: &MediaSource) -> Option<ImageInfo> {
    let MediaSource::Inline { data, .. } = source else { return None };
    base64_image_info(data)
}

/// Checks the number and size of the input images and the mask. Runs again after fetching.
pub fn check_inputs(picture: &ImageRequest) -> Result<(), ApiError> {
    let has_inputs = !picture.edit || !picture.inputs.is_empty();
    ensure_field(has_inputs, "image", "is required: an edit needs an input image")?;
    let why = format!("must be at most {MAX_INPUT_IMAGES} images");
    ensure_field(picture.inputs.len() <= MAX_INPUT_IMAGES, "image", &why)?;
    let info: Vec<Option<ImageInfo>> = picture.inputs.iter().map(inline_image_info).collect();
    for (at, info) in info.iter().enumerate() {
        let size = info.and_then(|info| info.size);
        let pixels = size.map(|(width, height)| u64::from(width) * u64::from(height));
        let why = format!("must have at most {MAX_INPUT_PIXELS} pixels");
        let is_small = pixels.is_none_or(|pixels| pixels <= MAX_INPUT_PIXELS);
        ensure_field(is_small, &format!("image[{at}]"), &why)?;
    }
    let Some(mask) = picture.mask.as_ref().and_then(inline_image_info) else { return Ok(()) };
    let why = "must have transparent pixels: they mark the area to edit";
    ensure_field(mask.alpha, "mask", why)?;
    let first = info.first().copied().flatten().and_then(|info| info.size);
    if let (Some((width, height)), Some(mask)) = (first, mask.size)
        && (width, height) != mask
    {
        let why = format!("must have the size of the first image, {width}x{height}");
        return Err(invalid_field("mask", &why));
    }
    Ok(())
}

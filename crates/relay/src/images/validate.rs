//! Validation of an image request against the capabilities of its model.

use canon::{ImageSize, ApiError, ImageRequest};
use catalog::{Model, ImageCapabilities};

/// Refuses values that the model does not support, and names those it does.
pub(super) fn validate(picture: &ImageRequest, model: &Model) -> Result<(), ApiError> {
    if picture.stream && picture.delivery == Some(canon::ImageDelivery::Url) {
        let message = "`response_format` cannot be `url` here: a stream carries its images inline";
        return Err(ApiError::invalid("response_format", message));
    }
    let Some(palette) = &model.images else { return Ok(()) };
    let ImageCapabilities {
        family: _,
        sizes: _,
        any: _,
        ratios,
        qualities,
        formats,
        backgrounds,
        most,
        inputs,
        // Protocols without masks report a mask as a loss.
        mask: _,
        partials: _,
        tokens: _,
    } = palette;
    let refuse = |name: &str, allowed: &str| {
        let message = format!("`{name}` is not one `{}` takes; allowed: {allowed}", model.id);
        Err(ApiError::invalid(name, message))
    };
    if picture.size != ImageSize::Auto && !palette.accepts_size(&picture.size) {
        return refuse("size", &palette.describe_sizes());
    }
    let words = [
        ("quality", &picture.quality, qualities),
        ("output_format", &picture.format, formats),
        ("background", &picture.background, backgrounds),
        ("aspect_ratio", &picture.aspect_ratio, ratios),
    ];
    for (name, word, known) in words {
        if word.as_ref().is_some_and(|word| !known.is_empty() && !known.contains(word)) {
            return refuse(name, &known.join(", "));
        }
    }
    if most.is_some_and(|most| picture.count > most) {
        return refuse("n", &format!("1 to {}", most.unwrap_or(1)));
    }
    if let Some(inputs) = *inputs
        && picture.inputs.len() > inputs
    {
        return refuse("image", &format!("at most {inputs} images"));
    }
    // The inputs of a model that only the operator describes are unknown.
    let known = !model.as_of.is_empty();
    if known && !picture.inputs.is_empty() && !model.accepts_input("image") {
        let message = format!("`{}` generates images from text alone; it takes no input images", model.id);
        return Err(ApiError::invalid("image", message));
    }
    Ok(())
}

//! Validation of an image request against the capabilities of its model.

use canon::{ApiError, ImageRequest, ImageSize, MediaKind};
use catalog::{ImageCapabilities, Model};

/// Refuses values that the model does not support, and names those it does.
pub(super) fn validate(request: &ImageRequest, model: &Model) -> Result<(), ApiError> {
    if request.stream && request.delivery == Some(canon::ImageDelivery::Url) {
        let message = "`response_format` cannot be `url` here: a stream carries its images inline";
        return Err(ApiError::invalid("response_format", message));
    }
    let Some(capabilities) = &model.capabilities.images else { return Ok(()) };
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
        // Some models take images as a model for new ones and change none.
        edits: _,
        // A lane whose protocol has no masks refuses one.
        mask: _,
        partials: _,
        tokens: _,
    } = capabilities;
    let refuse = |name: &str, allowed: &str| {
        let message = format!("`{name}` is not one `{}` takes; allowed: {allowed}", model.id);
        Err(ApiError::invalid(name, message))
    };
    if request.size != ImageSize::Auto && !capabilities.accepts_size(&request.size) {
        return refuse("size", &capabilities.describe_sizes());
    }
    let words = [
        ("quality", &request.quality, qualities),
        ("output_format", &request.format, formats),
        ("background", &request.background, backgrounds),
        ("aspect_ratio", &request.aspect_ratio, ratios),
    ];
    for (name, word, known) in words {
        if word.as_ref().is_some_and(|word| !known.is_empty() && !known.contains(word)) {
            return refuse(name, &known.join(", "));
        }
    }
    if most.is_some_and(|most| request.count > most) {
        return refuse("n", &format!("1 to {}", most.unwrap_or(1)));
    }
    if let Some(inputs) = *inputs
        && request.inputs.len() > inputs
    {
        return refuse("image", &format!("at most {inputs} images"));
    }
    if !request.inputs.is_empty() && !model.capabilities.may_read(MediaKind::Image) {
        let message =
            format!("`{}` generates images from text alone; it takes no input images", model.id);
        return Err(ApiError::invalid("image", message));
    }
    Ok(())
}

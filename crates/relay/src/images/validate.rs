//! Validation of an image request against the capabilities of its model.

use canon::{ApiError, ImageFamily, ImageRequest, ImageSize, MediaKind};
use catalog::{ImageCapabilities, ModelCapabilities};
use config::{LiveLane, Route};
use std::sync::Arc;

/// Returns the route with the lanes whose models make such images. If the model has none, the error is that of its
/// first lane.
pub(super) fn choose_lanes(
    request: &ImageRequest,
    route: Arc<Route>,
) -> Result<Arc<Route>, ApiError> {
    let (id, mut refusal, mut is_served) = (&route.model.id, None, route.lanes.is_empty());
    let mut is_able = |lane: &&Arc<LiveLane>| {
        let served = &lane.served_model.id;
        let judged = validate(request, &lane.capabilities, served);
        let is_able = judged.is_ok();
        if served == id {
            is_served |= is_able;
            refusal = refusal.take().or(judged.err());
        }
        is_able
    };
    let lanes: Vec<_> = route.lanes.iter().filter(&mut is_able).cloned().collect();
    match refusal {
        Some(error) if !is_served => Err(error),
        _ if lanes.len() == route.lanes.len() => Ok(route),
        _ => Ok(Arc::new(Route { lanes, ..Route::clone(&route) })),
    }
}

/// Refuses values that the model with this id does not support, and names those it does.
fn validate(request: &ImageRequest, model: &ModelCapabilities, id: &str) -> Result<(), ApiError> {
    if request.stream && request.delivery == Some(canon::ImageDelivery::Url) {
        let message = "`response_format` cannot be `url` here: a stream carries its images inline";
        return Err(ApiError::invalid("response_format", message));
    }
    let Some(capabilities) = &model.images else { return Ok(()) };
    let ImageCapabilities {
        family,
        sizes,
        classes: _,
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
        let message = format!("`{name}` is not one `{id}` takes; allowed: {allowed}");
        Err(ApiError::invalid(name, message))
    };
    if request.size != ImageSize::Auto && !capabilities.accepts_size(&request.size) {
        return refuse("size", &capabilities.describe_sizes());
    }
    let has_only_sizes = *family == ImageFamily::Gpt && ratios.is_empty() && !sizes.is_empty();
    let ratio = request.aspect_ratio.as_deref().filter(|word| *word != "auto");
    if ratio.is_some() && has_only_sizes {
        let sizes = capabilities.describe_sizes();
        let message = format!("`aspect_ratio` is not a field of `{id}`; use `size`: {sizes}");
        return Err(ApiError::invalid("aspect_ratio", message));
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
    if !request.inputs.is_empty() && !model.may_read(MediaKind::Image) {
        let message = format!("`{id}` generates images from text alone; it takes no input images");
        return Err(ApiError::invalid("image", message));
    }
    Ok(())
}

//! ByteDance Seedream. Input images are part of the generation request, sizes may be classes such
//! as `2K`, and several images form a series.

use canon::{ApiError, ImageRequest, ImageSize, Losses, Lossy, MediaSource};
use serde_json::{Value, json};

use super::names::{GENERATIONS_PATH, NO_SUCH_FIELD, ORIGIN};
use super::provider::ImageProviderRequest;
use crate::fields::ObjectWriter;

/// Returns an input image as a URL or a data URI.
pub(super) fn uri(source: &MediaSource) -> Result<String, ApiError> {
    match source {
        MediaSource::Inline { mime, data } => Ok(format!("data:{mime};base64,{data}")),
        MediaSource::Url { url, .. } => Ok(url.clone()),
        MediaSource::File { .. } | MediaSource::Text(_) => {
            Err(ApiError::internal("an input image is neither inline nor a URL"))
        }
    }
}

/// Records losses for fields only the GPT family has.
pub(super) fn note_gpt_fields(picture: &ImageRequest, losses: &mut Losses) {
    let set = |word: &Option<String>| word.as_deref().is_some_and(|word| word != "auto");
    losses.add_if(picture.mask.is_some(), "mask", NO_SUCH_FIELD);
    losses.add_if(set(&picture.quality), "quality", NO_SUCH_FIELD);
    losses.add_if(picture.compression.is_some(), "output_compression", NO_SUCH_FIELD);
    losses.add_if(set(&picture.background), "background", NO_SUCH_FIELD);
    losses.add_if(picture.moderation.as_deref() == Some("low"), "moderation", NO_SUCH_FIELD);
    losses.add_if(picture.fidelity.is_some(), "input_fidelity", NO_SUCH_FIELD);
    losses.add_if(picture.style.is_some(), "style", NO_SUCH_FIELD);
    losses.add_if(picture.user.is_some(), "user", NO_SUCH_FIELD);
    losses.add_if(picture.safety_identifier.is_some(), "safety_identifier", NO_SUCH_FIELD);
}

pub(super) fn write(
    picture: &ImageRequest,
    model: &str,
) -> Result<Lossy<Vec<ImageProviderRequest>>, ApiError> {
    let mut losses = Losses::new();
    note_gpt_fields(picture, &mut losses);
    losses.add_if(picture.negative_prompt.is_some(), "negative_prompt", NO_SUCH_FIELD);
    losses.add_if(picture.aspect_ratio.is_some(), "aspect_ratio", NO_SUCH_FIELD);
    let mut inputs: Vec<Value> = Vec::new();
    for source in &picture.inputs {
        inputs.push(Value::from(uri(source)?));
    }
    let image = if inputs.len() > 1 { Some(Value::Array(inputs)) } else { inputs.pop() };
    let size = (picture.size != ImageSize::Auto).then(|| picture.size.to_string());
    let series = picture.count > 1;
    let most = series.then(|| json!({ "max_images": picture.count }));
    let body: Value = ObjectWriter::new()
        .set("model", model)
        .set("prompt", picture.prompt.as_str())
        .set_some("image", image)
        .set_some("size", size)
        .set_some("seed", picture.seed)
        .set_some("guidance_scale", picture.guidance)
        .set_some("watermark", picture.watermark)
        .set_some("output_format", picture.format.as_deref())
        .set_some("sequential_image_generation", series.then_some("auto"))
        .set_some("sequential_image_generation_options", most)
        // Links expire, and inline data needs no fetch.
        .set("response_format", "b64_json")
        .set_some("stream", picture.stream.then_some(true))
        .with_extras(&picture.extras, ORIGIN)
        .into();
    Ok((vec![ImageProviderRequest::at(GENERATIONS_PATH, &body)], losses.into_vec()))
}

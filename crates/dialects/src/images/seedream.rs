//! ByteDance Seedream. Input images are part of the generation request, sizes may be classes such
//! as `2K`, and several images form a series.

use canon::{ApiError, ImageRequest, MediaSource};
use serde_json::{Value, json};

use super::image_fields;
use super::names::{GENERATIONS_PATH, ORIGIN};
use super::provider::{ImageProviderRequest, WrittenImages};
use crate::fields::ObjectWriter;
use crate::openai_values::write_url;

/// Returns an input image as a URL or a data URI.
pub(super) fn uri(source: &MediaSource) -> Result<String, ApiError> {
    write_url(source)
        .ok_or_else(|| ApiError::internal("an input image is neither inline nor a URL"))
}

pub(super) fn write(picture: &ImageRequest, model: &str) -> WrittenImages {
    let losses = image_fields::losses_of(picture, &["negative_prompt", "aspect_ratio"]);
    let inputs = picture.inputs.iter().map(|source| uri(source).map(Value::from));
    let mut inputs = inputs.collect::<Result<Vec<Value>, ApiError>>()?;
    let image = if inputs.len() > 1 { Some(Value::Array(inputs)) } else { inputs.pop() };
    let series = picture.count > 1;
    let most = series.then(|| json!({ "max_images": picture.count }));
    let body = ObjectWriter::new()
        .set("model", model)
        .set("prompt", picture.prompt.as_str())
        .set_some("image", image);
    let fields = ["size", "seed", "guidance_scale", "watermark", "output_format"];
    let body = image_fields::write(body, picture, &fields)
        .set_some("sequential_image_generation", series.then_some("auto"))
        .set_some("sequential_image_generation_options", most)
        // Links expire, and inline data needs no fetch.
        .set("response_format", "b64_json")
        .set_some("stream", picture.stream.then_some(true))
        .with_extras(&picture.extras, ORIGIN);
    Ok((vec![ImageProviderRequest::at(GENERATIONS_PATH, body)], losses.into_vec()))
}

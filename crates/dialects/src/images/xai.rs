//! xAI's Grok image models: an aspect ratio instead of a size, and edits in JSON.
//!
//! See <https://docs.x.ai/docs/guides/image-generations>.

use canon::{ApiError, ImageRequest, Losses, Lossy};
use serde_json::{Value, json};

use super::aspect_ratio;
use super::names::{EDITS_PATH, GENERATIONS_PATH, NO_SUCH_FIELD, ORIGIN};
use super::provider::ImageProviderRequest;
use super::seedream::{note_gpt_fields, uri};
use crate::checks::invalid_field;
use crate::fields::ObjectWriter;

const XAI_RATIOS: [&str; 13] = [
    "1:1", "3:4", "4:3", "9:16", "16:9", "2:3", "3:2", "9:19.5", "19.5:9", "9:20", "20:9", "1:2",
    "2:1",
];
pub(super) fn write(
    picture: &ImageRequest,
    model: &str,
) -> Result<Lossy<Vec<ImageProviderRequest>>, ApiError> {
    let mut losses = Losses::new();
    note_gpt_fields(picture, &mut losses);
    for (lost, what) in [
        (picture.negative_prompt.is_some(), "negative_prompt"),
        (picture.seed.is_some(), "seed"),
        (picture.guidance.is_some(), "guidance_scale"),
        (picture.watermark.is_some(), "watermark"),
        (picture.format.as_deref().is_some_and(|word| word != "jpeg"), "output_format"),
    ] {
        losses.add_if(lost, what, NO_SUCH_FIELD);
    }
    losses.add_if(
        !aspect_ratio::is_exact(&picture.size),
        "size",
        "this family of models takes an aspect ratio and a size class, not pixels",
    );
    let ratio = aspect_ratio::ratio_of(picture, &XAI_RATIOS).map_err(|()| {
        let known = XAI_RATIOS.join(", ");
        invalid_field(
            "size",
            &format!("has an aspect ratio this model does not support; supported: {known}"),
        )
    })?;
    let class = aspect_ratio::class_of(&picture.size).map(|word| word.to_ascii_lowercase());
    let mut inputs = Vec::new();
    for source in &picture.inputs {
        inputs.push(json!({ "type": "image_url", "url": uri(source)? }));
    }
    let several = inputs.len() > 1;
    let (image, images) = if several { (None, Some(inputs)) } else { (inputs.pop(), None) };
    let path = if picture.inputs.is_empty() { GENERATIONS_PATH } else { EDITS_PATH };
    let body: Value = ObjectWriter::new()
        .set("model", model)
        .set("prompt", picture.prompt.as_str())
        .set_some("n", (picture.count > 1).then_some(picture.count))
        .set_some("aspect_ratio", ratio)
        .set_some("resolution", class)
        .set_some("image", image)
        .set_some("images", images)
        .set("response_format", "b64_json")
        .with_extras(&picture.extras, ORIGIN)
        .into();
    Ok((vec![ImageProviderRequest::at(path, &body)], losses.into_vec()))
}

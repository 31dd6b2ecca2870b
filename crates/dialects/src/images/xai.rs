//! xAI's Grok image models: an aspect ratio instead of a size, and edits in JSON.
//!
//! See <https://docs.x.ai/docs/guides/image-generations>.

use canon::{ApiError, ImageRequest};
use serde_json::json;

use super::names::{EDITS_PATH, GENERATIONS_PATH, NO_SUCH_FIELD, ORIGIN};
use super::provider::{ImageProviderRequest, WrittenImages};
use super::seedream::uri;
use super::{aspect_ratio, image_fields};
use crate::fields::ObjectWriter;

const XAI_RATIOS: [&str; 13] = [
    "1:1", "3:4", "4:3", "9:16", "16:9", "2:3", "3:2", "9:19.5", "19.5:9", "9:20", "20:9", "1:2",
    "2:1",
];
pub(super) fn write(picture: &ImageRequest, model: &str) -> WrittenImages {
    let lacks = &["negative_prompt", "seed", "guidance_scale", "watermark"];
    let mut losses = image_fields::losses_of(picture, lacks);
    let is_other = picture.format.as_deref().is_some_and(|word| word != "jpeg");
    losses.add_if(is_other, "output_format", NO_SUCH_FIELD);
    let why = "this family of models takes an aspect ratio and a size class, not pixels";
    losses.add_if(!aspect_ratio::is_exact(&picture.size), "size", why);
    let ratio = aspect_ratio::ratio_of(picture, &XAI_RATIOS)?;
    let class = aspect_ratio::class_of(&picture.size).map(|word| word.to_ascii_lowercase());
    let input = |source| Ok(json!({ "type": "image_url", "url": uri(source)? }));
    let mut inputs = picture.inputs.iter().map(input).collect::<Result<Vec<_>, ApiError>>()?;
    let several = inputs.len() > 1;
    let (image, images) = if several { (None, Some(inputs)) } else { (inputs.pop(), None) };
    let path = if picture.inputs.is_empty() { GENERATIONS_PATH } else { EDITS_PATH };
    let body = ObjectWriter::new()
        .set("model", model)
        .set("prompt", picture.prompt.as_str())
        .set_some("n", (picture.count > 1).then_some(picture.count))
        .set_some("aspect_ratio", ratio)
        .set_some("resolution", class)
        .set_some("image", image)
        .set_some("images", images)
        .set("response_format", "b64_json")
        .with_extras(&picture.extras, ORIGIN);
    Ok((vec![ImageProviderRequest::at(path, body)], losses.into_vec()))
}

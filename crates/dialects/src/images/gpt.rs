//! OpenAI's GPT image models.
//!
//! The caller's body is usually passed through. It is rewritten only if images had to be fetched or
//! are in a field of another family. See
//! <https://platform.openai.com/docs/api-reference/images/createEdit>.

use canon::{ApiError, ImageDelivery, ImageRequest, ImageSize, Lossy, MediaSource};
use serde_json::Value;

use super::image_info;
use super::multipart::FormWriter;
use super::names::{EDITS_PATH, GENERATIONS_PATH, ORIGIN};
use super::provider::ImageProviderRequest;
use crate::ProviderRequest;
use crate::fields::ObjectWriter;
use crate::json::BodySegments;

pub(super) fn write(
    picture: &ImageRequest,
    model: &str,
    word: &str,
) -> Result<Lossy<Vec<ImageProviderRequest>>, ApiError> {
    let fields = fields(picture, model);
    if picture.inputs.is_empty() {
        let body: Value = fields.with_extras(&picture.extras, ORIGIN).into();
        return Ok((vec![ImageProviderRequest::at(GENERATIONS_PATH, &body)], Vec::new()));
    }
    let mut form = FormWriter::new(word);
    for (name, value) in fields.with_extras(&picture.extras, ORIGIN).into_map() {
        match value {
            Value::String(text) => form.text(&name, &text),
            other => form.text(&name, &other.to_string()),
        }
    }
    let name = if picture.inputs.len() == 1 { "image" } else { "image[]" };
    for (at, source) in picture.inputs.iter().enumerate() {
        add_file(&mut form, name, &format!("image-{at}"), source)?;
    }
    if let Some(mask) = &picture.mask {
        add_file(&mut form, "mask", "mask", mask)?;
    }
    let content_type = Some(form.content_type());
    let outgoing =
        ProviderRequest { path: EDITS_PATH.to_owned(), body: BodySegments::single(form.finish()) };
    Ok((vec![ImageProviderRequest { outgoing, content_type, headers: &[] }], Vec::new()))
}

fn add_file(
    form: &mut FormWriter,
    name: &str,
    title: &str,
    source: &MediaSource,
) -> Result<(), ApiError> {
    let (MediaSource::Inline { mime, data }, title) = (source, title) else {
        return Err(ApiError::internal("an input image was not fetched before its upload"));
    };
    let bytes = image_info::decode(data)
        .ok_or_else(|| ApiError::internal("the base64 of an input image cannot be decoded"))?;
    let ending = mime.rsplit('/').next().unwrap_or("png");
    form.file(name, &format!("{title}.{ending}"), mime, &bytes);
    Ok(())
}

fn fields(picture: &ImageRequest, model: &str) -> ObjectWriter {
    let ImageRequest {
        model: _,
        prompt,
        inputs: _,
        mask: _,
        edit: _,
        count,
        size: extent,
        aspect_ratio: ratio,
        quality,
        format,
        compression,
        background,
        moderation,
        fidelity,
        style,
        negative_prompt: negative,
        seed,
        guidance,
        watermark,
        delivery: None | Some(ImageDelivery::Base64 | ImageDelivery::Url),
        stream,
        partial_images: partials,
        user,
        safety_identifier,
        extras: _,
    } = picture;
    let size = (*extent != ImageSize::Auto).then(|| extent.to_string());
    ObjectWriter::new()
        .set("model", model)
        .set("prompt", prompt.as_str())
        .set_some("n", (*count > 1).then_some(*count))
        .set_some("size", size)
        .set_some("aspect_ratio", ratio.as_deref())
        .set_some("quality", quality.as_deref())
        .set_some("output_format", format.as_deref())
        .set_some("output_compression", *compression)
        .set_some("background", background.as_deref())
        .set_some("moderation", moderation.as_deref())
        .set_some("input_fidelity", fidelity.as_deref())
        .set_some("style", style.as_deref())
        .set_some("negative_prompt", negative.as_deref())
        .set_some("seed", *seed)
        .set_some("guidance_scale", *guidance)
        .set_some("watermark", *watermark)
        .set_some("stream", stream.then_some(true))
        .set_some("partial_images", *partials)
        .set_some("user", user.as_deref())
        .set_some("safety_identifier", safety_identifier.as_deref())
}

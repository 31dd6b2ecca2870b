//! OpenAI's GPT image models.
//!
//! The caller's body is usually passed through. It is rewritten only if images had to be fetched or
//! are in a field of another family. See
//! <https://platform.openai.com/docs/api-reference/images/createEdit>.

use canon::{ApiError, ImageRequest, MediaSource};
use serde_json::Value;

use super::image_fields;
use super::multipart::FormWriter;
use super::names::{EDITS_PATH, GENERATIONS_PATH, ORIGIN};
use super::provider::{ImageProviderRequest, WrittenImages};
use crate::ProviderRequest;
use crate::fields::ObjectWriter;
use crate::json::BodySegments;

pub(super) fn write(picture: &ImageRequest, model: &str, word: &str) -> WrittenImages {
    let fields = ObjectWriter::new().set("model", model).set("prompt", picture.prompt.as_str());
    let fields = image_fields::write_all(fields, picture).with_extras(&picture.extras, ORIGIN);
    if picture.inputs.is_empty() {
        return Ok((vec![ImageProviderRequest::at(GENERATIONS_PATH, fields)], Vec::new()));
    }
    let mut form = FormWriter::new(word);
    for (name, value) in fields.into_map() {
        match value {
            Value::String(text) => form.text(&name, &text),
            other => form.text(&name, &other.to_string()),
        }
    }
    let name = if picture.inputs.len() == 1 { "image" } else { "image[]" };
    let images = picture.inputs.iter().enumerate();
    let images = images.map(|(at, source)| (name, format!("image-{at}"), source));
    let mask = picture.mask.iter().map(|source| ("mask", "mask".to_owned(), source));
    for (name, title, source) in images.chain(mask) {
        let MediaSource::Inline { mime, data } = source else {
            return Err(ApiError::internal("an input image was not fetched before its upload"));
        };
        let bytes = media::decode_base64(data)
            .ok_or_else(|| ApiError::internal("the base64 of an input image cannot be decoded"))?;
        let ending = mime.rsplit('/').next().unwrap_or("png");
        form.file(name, &format!("{title}.{ending}"), mime, &bytes);
    }
    let content_type = Some(form.content_type());
    let outgoing =
        ProviderRequest { path: EDITS_PATH.to_owned(), body: BodySegments::single(form.finish()) };
    Ok((vec![ImageProviderRequest { outgoing, content_type, headers: &[] }], Vec::new()))
}

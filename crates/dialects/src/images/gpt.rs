//! OpenAI's GPT image models.
//!
//! The caller's body is usually passed through. It is rewritten only if images had to be fetched or
//! are in a field of another family. See
//! <https://platform.openai.com/docs/api-reference/images/createEdit>.

use canon::{Delivery, Extent, Fault, Lossy, Picture, Source};
use serde_json::Value;

use super::image_info;
use super::multipart::FormWriter;
use super::names::{EDITS_PATH, GENERATIONS_PATH, ORIGIN};
use super::provider::Written;
use crate::Outgoing;
use crate::fields::Object;
use crate::json::Segments;

pub(super) fn write(
    picture: &Picture,
    model: &str,
    word: &str,
) -> Result<Lossy<Vec<Written>>, Fault> {
    let fields = fields(picture, model);
    if picture.inputs.is_empty() {
        let body: Value = fields.with(&picture.extras, ORIGIN).into();
        return Ok((vec![Written::at(GENERATIONS_PATH, &body)], Vec::new()));
    }
    let mut form = FormWriter::new(word);
    for (name, value) in fields.with(&picture.extras, ORIGIN).into_map() {
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
    let kind = Some(form.content_type());
    let outgoing = Outgoing { path: EDITS_PATH.to_owned(), body: Segments::whole(form.finish()) };
    Ok((vec![Written { outgoing, kind, headers: &[] }], Vec::new()))
}

fn add_file(form: &mut FormWriter, name: &str, title: &str, source: &Source) -> Result<(), Fault> {
    let (Source::Inline { mime, data }, title) = (source, title) else {
        return Err(Fault::internal("an input image was not fetched before its upload"));
    };
    let bytes = image_info::decode(data)
        .ok_or_else(|| Fault::internal("the base64 of an input image cannot be decoded"))?;
    let ending = mime.rsplit('/').next().unwrap_or("png");
    form.file(name, &format!("{title}.{ending}"), mime, &bytes);
    Ok(())
}

fn fields(picture: &Picture, model: &str) -> Object {
    let Picture {
        model: _,
        prompt,
        inputs: _,
        mask: _,
        edit: _,
        count,
        extent,
        ratio,
        quality,
        format,
        compression,
        background,
        moderation,
        fidelity,
        style,
        negative,
        seed,
        guidance,
        watermark,
        delivery: None | Some(Delivery::Base64 | Delivery::Link),
        stream,
        partials,
        user,
        safety_identifier,
        extras: _,
    } = picture;
    let size = (*extent != Extent::Auto).then(|| extent.to_string());
    Object::new()
        .set("model", model)
        .set("prompt", prompt.as_str())
        .maybe("n", (*count > 1).then_some(*count))
        .maybe("size", size)
        .maybe("aspect_ratio", ratio.as_deref())
        .maybe("quality", quality.as_deref())
        .maybe("output_format", format.as_deref())
        .maybe("output_compression", *compression)
        .maybe("background", background.as_deref())
        .maybe("moderation", moderation.as_deref())
        .maybe("input_fidelity", fidelity.as_deref())
        .maybe("style", style.as_deref())
        .maybe("negative_prompt", negative.as_deref())
        .maybe("seed", *seed)
        .maybe("guidance_scale", *guidance)
        .maybe("watermark", *watermark)
        .maybe("stream", stream.then_some(true))
        .maybe("partial_images", *partials)
        .maybe("user", user.as_deref())
        .maybe("safety_identifier", safety_identifier.as_deref())
}

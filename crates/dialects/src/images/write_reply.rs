//! Writes the reply to the caller.

use canon::{GeneratedImage, ImageReply, ImageRequest, MediaSource, Usage};
use serde_json::{Value, json};

use super::rules::inline_image_info;
use crate::fields::ObjectWriter;

/// Writes the reply. `now` is used if the provider sent no timestamp.
pub fn write(pictures: &ImageReply, picture: &ImageRequest, now: i64) -> Vec<u8> {
    let data: Vec<Value> = pictures.images.iter().map(entry).collect();
    let ImageProperties { background, format, quality, size } =
        ImageProperties::of(pictures, picture);
    let body = ObjectWriter::new()
        .set("created", pictures.created.unwrap_or(now))
        .set_some("background", background)
        .set("data", data)
        .set_some("output_format", format)
        .set_some("quality", quality)
        .set_some("size", size)
        .set_some("usage", pictures.usage.as_ref().map(usage));
    body.into_json()
}

/// Properties of all images in a reply.
pub(super) struct ImageProperties {
    pub(super) background: Option<String>,
    pub(super) format: Option<String>,
    pub(super) quality: Option<String>,
    pub(super) size: Option<String>,
}

impl ImageProperties {
    /// Takes each property from the provider's reply, or else from the first image.
    pub(super) fn of(pictures: &ImageReply, picture: &ImageRequest) -> Self {
        let first = pictures.images.iter().find(|made| made.is_image());
        let (info, reported_size) = match first {
            Some(GeneratedImage::Image { source, size, .. }) => {
                (inline_image_info(source), size.clone())
            }
            Some(GeneratedImage::Failed { .. }) | None => (None, None),
        };
        let measured_format = info.map(|info| info.format.to_owned());
        let measured_size = info.and_then(|info| info.size).map(|(w, h)| format!("{w}x{h}"));
        let requested_background = picture.background.clone().filter(|word| word != "auto");
        let opaque = info.filter(|info| !info.alpha).map(|_| "opaque".to_owned());
        let requested_quality = picture.quality.clone().filter(|word| word != "auto");
        Self {
            background: pictures.background.clone().or(requested_background).or(opaque),
            format: pictures.format.clone().or(measured_format).or_else(|| picture.format.clone()),
            quality: pictures.quality.clone().or(requested_quality),
            size: pictures.size.clone().or(measured_size).or(reported_size),
        }
    }
}

fn entry(made: &GeneratedImage) -> Value {
    match made {
        GeneratedImage::Image { source, revised, size } => {
            let (field, value) = match source {
                MediaSource::Inline { data, .. } => ("b64_json", Some(data.as_str())),
                MediaSource::Url { url, .. } => ("url", Some(url.as_str())),
                MediaSource::File { .. } | MediaSource::Text(_) => ("url", None),
            };
            ObjectWriter::new()
                .set_some(field, value)
                .set_some("revised_prompt", revised.as_deref())
                .set_some("size", size.as_deref())
                .into()
        }
        GeneratedImage::Failed { code, say } => {
            json!({ "error": { "code": code, "message": say } })
        }
    }
}

/// Writes token counts.
pub(super) fn usage(usage: &Usage) -> Value {
    json!({
        "input_tokens": usage.input,
        "input_tokens_details": {
            "image_tokens": usage.input_image,
            "text_tokens": usage.input.saturating_sub(usage.input_image),
        },
        "output_tokens": usage.output,
        "output_tokens_details": {
            "image_tokens": usage.output_image,
            "text_tokens": usage.output.saturating_sub(usage.output_image),
        },
        "total_tokens": usage.total(),
    })
}

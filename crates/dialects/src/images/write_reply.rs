//! Writes the reply to the caller.

use canon::{Made, Picture, Pictures, Source, Usage};
use serde_json::{Value, json};

use super::image_info;
use crate::fields::Object;

/// Writes the reply. `now` is used if the provider sent no timestamp.
pub fn write(pictures: &Pictures, picture: &Picture, now: i64) -> Vec<u8> {
    let data: Vec<Value> = pictures.made.iter().map(entry).collect();
    let ImageProperties { background, format, quality, size } =
        ImageProperties::of(pictures, picture);
    let body: Value = Object::new()
        .set("created", pictures.created.unwrap_or(now))
        .maybe("background", background)
        .set("data", data)
        .maybe("output_format", format)
        .maybe("quality", quality)
        .maybe("size", size)
        .maybe("usage", pictures.usage.as_ref().map(usage))
        .into();
    body.to_string().into_bytes()
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
    pub(super) fn of(pictures: &Pictures, picture: &Picture) -> Self {
        let first = pictures.made.iter().find(|made| made.is_picture());
        let info = first.and_then(image_info::generated_image_info);
        let reported_size = first.and_then(|made| match made {
            Made::Picture { size, .. } => size.clone(),
            Made::Failed { .. } => None,
        });
        let measured_size = info.and_then(|info| info.size).map(|(w, h)| format!("{w}x{h}"));
        let requested_background = picture.background.clone().filter(|word| word != "auto");
        let opaque = info.filter(|info| !info.alpha).map(|_| "opaque".to_owned());
        let requested_quality = picture.quality.clone().filter(|word| word != "auto");
        Self {
            background: pictures.background.clone().or(requested_background).or(opaque),
            format: pictures
                .format
                .clone()
                .or_else(|| info.map(|info| info.format.to_owned()))
                .or_else(|| picture.format.clone()),
            quality: pictures.quality.clone().or(requested_quality),
            size: pictures.size.clone().or(measured_size).or(reported_size),
        }
    }
}

fn entry(made: &Made) -> Value {
    match made {
        Made::Picture { source, revised, size } => {
            let object = match source {
                Source::Inline { data, .. } => Object::new().set("b64_json", data.as_str()),
                Source::Url { url, .. } => Object::new().set("url", url.as_str()),
                Source::File { .. } | Source::Text(_) => Object::new(),
            };
            object.maybe("revised_prompt", revised.as_deref()).maybe("size", size.as_deref()).into()
        }
        Made::Failed { code, say } => json!({ "error": { "code": code, "message": say } }),
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

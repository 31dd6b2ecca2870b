//! Writes the reply to the caller.

use canon::{Made, Picture, Pictures, Source, Usage};
use serde_json::{Value, json};

use super::measure;
use crate::fields::Object;

/// Writes the reply. `now` is used if the provider sent no timestamp.
pub fn write(pictures: &Pictures, picture: &Picture, now: i64) -> Vec<u8> {
    let data: Vec<Value> = pictures.made.iter().map(entry).collect();
    let About { background, format, quality, size } = About::of(pictures, picture);
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
pub(super) struct About {
    pub(super) background: Option<String>,
    pub(super) format: Option<String>,
    pub(super) quality: Option<String>,
    pub(super) size: Option<String>,
}

impl About {
    /// Takes each property from the provider's reply, or else from the first image.
    pub(super) fn of(pictures: &Pictures, picture: &Picture) -> Self {
        let first = pictures.made.iter().find(|made| made.is_picture());
        let seen = first.and_then(measure::of_made);
        let told = first.and_then(|made| match made {
            Made::Picture { size, .. } => size.clone(),
            Made::Failed { .. } => None,
        });
        let own = seen.and_then(|seen| seen.size).map(|(w, h)| format!("{w}x{h}"));
        let named = picture.background.clone().filter(|word| word != "auto");
        let solid = seen.filter(|seen| !seen.alpha).map(|_| "opaque".to_owned());
        let careful = picture.quality.clone().filter(|word| word != "auto");
        Self {
            background: pictures.background.clone().or(named).or(solid),
            format: pictures
                .format
                .clone()
                .or_else(|| seen.map(|seen| seen.format.to_owned()))
                .or_else(|| picture.format.clone()),
            quality: pictures.quality.clone().or(careful),
            size: pictures.size.clone().or(own).or(told),
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

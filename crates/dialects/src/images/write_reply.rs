//! Writes the reply to the caller, or completes a reply that is already in the caller's format.

use bytes::Bytes;
use canon::{GeneratedImage, ImageReply, ImageRequest, Loss, MediaSource, Usage};
use media::ImageInfo;
use serde_json::{Value, json};

use super::rules::inline_image_info;
use crate::fields::ObjectWriter;
use crate::reply_shape::{self, DefaultValue, ObjectShape};

/// The documented fields of a reply, <https://platform.openai.com/docs/api-reference/images/object>.
static REPLY: ObjectShape = ObjectShape {
    fields: &[
        ("created", DefaultValue::Given("/created")),
        ("background", DefaultValue::Given("/background")),
        ("output_format", DefaultValue::Given("/output_format")),
        ("quality", DefaultValue::Given("/quality")),
        ("size", DefaultValue::Given("/size")),
        ("usage", DefaultValue::Given("/usage")),
    ],
    inside: &[("usage", &USAGE)],
    find_texts: None,
};

pub(super) static USAGE: ObjectShape = ObjectShape::flat(&[
    ("input_tokens", DefaultValue::Given("/usage/input_tokens")),
    ("input_tokens_details", DefaultValue::Given("/usage/input_tokens_details")),
    ("output_tokens", DefaultValue::Given("/usage/output_tokens")),
    ("output_tokens_details", DefaultValue::Given("/usage/output_tokens_details")),
    ("total_tokens", DefaultValue::Given("/usage/total_tokens")),
]);

/// Values for the fields that a provider leaves out of its reply.
#[derive(Clone, Debug, Default)]
pub struct ImageReplyDefaults {
    /// True for an edit.
    pub(super) edit: bool,
    /// Creation time in Unix seconds.
    pub(super) created: i64,
    /// Properties of the first image, if it was fetched and is not in the reply.
    measured: Option<ImageInfo>,
    /// Estimated usage.
    pub(super) usage: Option<Usage>,
    background: Option<String>,
    format: Option<String>,
    quality: Option<String>,
}

impl ImageReplyDefaults {
    /// Takes the properties of a request that reached the provider: those that are not among the
    /// losses.
    pub fn of_request(picture: &ImageRequest, losses: &[Loss], created: i64) -> Self {
        let sent = |field: &str, word: &Option<String>| {
            let is_lost = losses.iter().any(|loss| loss.path == field);
            word.clone().filter(|word| word != "auto" && !is_lost)
        };
        Self {
            edit: picture.edit,
            created,
            measured: None,
            usage: None,
            background: sent("background", &picture.background),
            format: sent("output_format", &picture.format),
            quality: sent("quality", &picture.quality),
        }
    }

    /// Adds an estimate of the usage.
    #[must_use]
    pub fn with_usage(self, usage: Option<Usage>) -> Self {
        Self { usage, ..self }
    }

    /// Measures an image that is not in the reply, unless an earlier one was.
    pub fn measure(&mut self, image: &[u8]) {
        self.measured = self.measured.or_else(|| media::image_info(image));
    }
}

/// Writes the reply.
pub fn write(pictures: &ImageReply, defaults: &ImageReplyDefaults) -> Vec<u8> {
    let data: Vec<Value> = pictures.images.iter().map(entry).collect();
    let ImageProperties { background, format, quality, size } =
        ImageProperties::of(pictures, defaults);
    let body = ObjectWriter::new()
        .set("created", pictures.created.unwrap_or(defaults.created))
        .set("background", background)
        .set("data", data)
        .set("output_format", format)
        .set("quality", quality)
        .set("size", size)
        .set_some("usage", pictures.usage.or(defaults.usage).as_ref().map(usage));
    body.into_json()
}

/// Returns a provider's reply with the documented fields that it lacks. `pictures` is what was read
/// from it. Its own bytes are kept.
pub fn complete(body: &Bytes, pictures: &ImageReply, defaults: &ImageReplyDefaults) -> Bytes {
    let ImageProperties { background, format, quality, size } =
        ImageProperties::of(pictures, defaults);
    let given = json!({
        "created": defaults.created,
        "background": background,
        "output_format": format,
        "quality": quality,
        "size": size,
        "usage": pictures.usage.or(defaults.usage).as_ref().map(usage),
    });
    reply_shape::complete_with(body, &REPLY, &given)
}

/// Properties of all images in a reply.
pub(super) struct ImageProperties {
    pub(super) background: String,
    pub(super) format: String,
    pub(super) quality: String,
    pub(super) size: String,
}

impl ImageProperties {
    /// Takes each property from the provider's reply, or else from the first image, or else from the
    /// request.
    pub(super) fn of(pictures: &ImageReply, defaults: &ImageReplyDefaults) -> Self {
        let first = pictures.images.iter().find(|made| made.is_image());
        let (info, reported_size) = match first {
            Some(GeneratedImage::Image { source, size, .. }) => {
                (inline_image_info(source).or(defaults.measured), size.clone())
            }
            Some(GeneratedImage::Failed { .. }) | None => (None, None),
        };
        Self::from_parts(pictures, info, reported_size, defaults)
    }

    /// Takes the properties of an image whose provider told none.
    pub(super) fn measured(info: Option<ImageInfo>, defaults: &ImageReplyDefaults) -> Self {
        Self::from_parts(&ImageReply::default(), info, None, defaults)
    }

    fn from_parts(
        pictures: &ImageReply,
        info: Option<ImageInfo>,
        reported_size: Option<String>,
        defaults: &ImageReplyDefaults,
    ) -> Self {
        let measured_format = info.map(|info| info.format.to_owned());
        let measured_size = info.and_then(|info| info.size).map(|(w, h)| format!("{w}x{h}"));
        let opaque = info.filter(|info| !info.alpha).map(|_| "opaque".to_owned());
        let unknown = || "auto".to_owned();
        let (background, format) = (pictures.background.clone(), pictures.format.clone());
        let format = format.or(measured_format).or_else(|| defaults.format.clone());
        let quality = pictures.quality.clone().or_else(|| defaults.quality.clone());
        let size = pictures.size.clone().or(measured_size).or(reported_size);
        Self {
            background: background
                .or(opaque)
                .or_else(|| defaults.background.clone())
                .unwrap_or_else(unknown),
            format: format.unwrap_or_else(|| "png".to_owned()),
            quality: quality.unwrap_or_else(unknown),
            size: size.unwrap_or_else(unknown),
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

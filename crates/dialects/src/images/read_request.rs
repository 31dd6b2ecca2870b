//! Reads an image request into canon, from JSON or from a form.

use bytes::Bytes;
use canon::{ApiError, ImageDelivery, ImageRequest, ImageSize, MediaSource};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::image_info::{decode, encode, image_info};
use super::names::ORIGIN;
use super::parsed_request::{AsyncDelivery, GATEWAY_FIELDS, ParsedImageRequest};
use super::{multipart, rules};
use crate::checks::{self, invalid_field};
use crate::fields::{JsonPath, ObjectReader};
use crate::json;

/// Numeric fields of a form, where all values are text.
const NUMBER_FIELDS: [&str; 6] =
    ["n", "output_compression", "partial_images", "seed", "guidance_scale", "max_images"];
const FLAG_FIELDS: [&str; 3] = ["stream", "watermark", "async"];

#[derive(Deserialize)]
struct ImageModelView<'a> {
    #[serde(borrow, default)]
    model: Option<&'a RawValue>,
}

/// Reads a JSON body.
pub(super) fn json(body: &Bytes, edit: bool) -> Result<ParsedImageRequest, ApiError> {
    let text = json::checked_text(body)?;
    let raw: &RawValue = json::parse(text)?;
    if !raw.get().starts_with('{') {
        return Err(ApiError::invalid("", "the body must be a JSON object"));
    }
    let head: ImageModelView<'_> = json::parse(text)?;
    checks::check_model(head.model)?;
    let model_range = head.model.map(|model| json::range_of(text, model));
    let value: Value = json::parse(text)?;
    let mut fields = ObjectReader::new(value, &JsonPath::Root)?;
    let (mut inputs, mut input_paths) = (Vec::new(), Vec::new());
    // `images` is the field of the GPT family, `image` that of Seedream and Grok.
    let images_field = fields.take("images");
    let is_gpt_body = edit == images_field.is_some();
    sources(images_field, "images", &mut inputs)?;
    input_paths.extend((0..inputs.len()).map(|at| format!("images[{at}]")));
    let image_field = fields.take("image");
    let is_gpt_body = is_gpt_body && image_field.is_none();
    sources(image_field, "image", &mut inputs)?;
    let more = inputs.len() - input_paths.len();
    input_paths.extend((0..more).map(|at| format!("image[{at}]")));
    let mask = match fields.take("mask") {
        None => None,
        Some(value) => Some(source(value, "mask")?),
    };
    let (picture, later) = read(fields, inputs, mask, edit)?;
    // Images given by URL may have to be fetched first.
    let inline = |source: &MediaSource| matches!(source, MediaSource::Inline { .. });
    let is_gpt_body = is_gpt_body && picture.inputs.iter().chain(&picture.mask).all(inline);
    Ok(ParsedImageRequest {
        picture,
        input_paths,
        delivery: later,
        model_range,
        gateway_parts: Vec::new(),
        is_gpt_body,
    })
}

/// Reads a form body.
pub(super) fn form(body: &Bytes, boundary: &str) -> Result<ParsedImageRequest, ApiError> {
    let mut map = Map::new();
    let (mut inputs, mut mask, mut model_range, mut gateway_parts) =
        (Vec::new(), None, None, Vec::new());
    let mut input_paths = Vec::new();
    for part in multipart::read(body, boundary)? {
        let name = part.name.as_str();
        let file = name.split('[').next().unwrap_or_default();
        match file {
            "image" | "images" => {
                inputs.push(uploaded(name, &part.value)?);
                input_paths.push(name.to_owned());
            }
            "mask" if mask.is_some() => return Err(invalid_field("mask", "is there twice")),
            "mask" => mask = Some(uploaded(name, &part.value)?),
            _ if part.file => return Err(invalid_field(name, "is not a supported file field")),
            _ => {
                let text = std::str::from_utf8(&part.value)
                    .map_err(|_| invalid_field(name, "must be UTF-8 text"))?;
                if GATEWAY_FIELDS.contains(&name) {
                    gateway_parts.push(part.part_range.clone());
                }
                if name == "model" {
                    model_range = Some(part.value_range.clone());
                }
                if map.insert(name.to_owned(), typed_value(name, text)).is_some() {
                    return Err(invalid_field(name, "is there twice"));
                }
            }
        }
    }
    let fields = ObjectReader::of(map, &JsonPath::Root);
    let (picture, later) = read(fields, inputs, mask, true)?;
    if picture.model.is_empty() || picture.model.len() > checks::MAX_MODEL_BYTES {
        let most = checks::MAX_MODEL_BYTES;
        return Err(invalid_field("model", &format!("must have 1 to {most} bytes")));
    }
    Ok(ParsedImageRequest {
        picture,
        input_paths,
        delivery: later,
        model_range,
        gateway_parts,
        is_gpt_body: true,
    })
}

/// Converts a form field to its type. A malformed value stays text, and its type check rejects it.
fn typed_value(name: &str, text: &str) -> Value {
    let number = NUMBER_FIELDS.contains(&name).then(|| serde_json::from_str(text.trim()).ok());
    let flag = FLAG_FIELDS.contains(&name).then(|| text.trim().parse().ok().map(Value::Bool));
    let read = number.or(flag).flatten();
    read.filter(|value: &Value| value.is_number() || value.is_boolean())
        .unwrap_or_else(|| Value::from(text))
}

fn uploaded(name: &str, bytes: &Bytes) -> Result<MediaSource, ApiError> {
    let info = image_info(bytes)
        .ok_or_else(|| invalid_field(name, "must be a PNG, JPEG, WebP or GIF file"))?;
    Ok(MediaSource::Inline { mime: info.mime(), data: encode(bytes) })
}

fn read(
    mut fields: ObjectReader<'_>,
    inputs: Vec<MediaSource>,
    mask: Option<MediaSource>,
    edit: bool,
) -> Result<(ImageRequest, AsyncDelivery), ApiError> {
    let model = fields.required("model")?;
    let prompt = fields.required("prompt")?;
    let count = match fields.count("n")? {
        None => 1,
        Some(count) => u32::try_from(count)
            .ok()
            .filter(|count| (1..=rules::MAX_IMAGES).contains(count))
            .ok_or_else(|| {
                fields.fault("n", &format!("must be from 1 to {}", rules::MAX_IMAGES))
            })?,
    };
    let extent = match fields.string("size")? {
        None => ImageSize::Auto,
        Some(word) => rules::parse_size(&word).ok_or_else(|| {
            fields.fault(
                "size",
                "must be `auto`, WIDTHxHEIGHT such as `1024x1024`, or a class such as `2K`",
            )
        })?,
    };
    let delivery = match fields.string("response_format")?.as_deref() {
        None => None,
        Some("b64_json") => Some(ImageDelivery::Base64),
        Some("url") => Some(ImageDelivery::Url),
        Some(_) => return Err(fields.fault("response_format", "must be `url` or `b64_json`")),
    };
    let later = AsyncDelivery {
        is_requested: fields.flag("async")?.unwrap_or_default(),
        webhook: match fields.string("webhook")? {
            Some(url) => Some(url),
            None => fields.string("webhook_url")?,
        },
    };
    let picture = ImageRequest {
        edit: edit || !inputs.is_empty(),
        model,
        prompt,
        inputs,
        mask,
        count,
        size: extent,
        delivery,
        aspect_ratio: fields.string("aspect_ratio")?,
        quality: fields.string("quality")?,
        format: fields.string("output_format")?,
        compression: fields.count("output_compression")?,
        background: fields.string("background")?,
        moderation: fields.string("moderation")?,
        fidelity: fields.string("input_fidelity")?,
        style: fields.string("style")?,
        negative_prompt: fields.string("negative_prompt")?,
        seed: fields.integer("seed")?,
        guidance: fields.number("guidance_scale")?,
        watermark: fields.flag("watermark")?,
        stream: fields.flag("stream")?.unwrap_or_default(),
        partial_images: fields.count("partial_images")?,
        user: fields.string("user")?,
        safety_identifier: fields.string("safety_identifier")?,
        extras: fields.extras(ORIGIN),
    };
    Ok((picture, later))
}

/// Reads input images: one or a list, each a URL, a data URI (RFC 2397), or an object with one.
fn sources(value: Option<Value>, name: &str, into: &mut Vec<MediaSource>) -> Result<(), ApiError> {
    match value {
        None => {}
        Some(Value::Array(items)) => {
            for (at, item) in items.into_iter().enumerate() {
                into.push(source(item, &format!("{name}[{at}]"))?);
            }
        }
        Some(one) => into.push(source(one, name)?),
    }
    Ok(())
}

fn source(value: Value, path: &str) -> Result<MediaSource, ApiError> {
    let shape = "must be a URL or a data URI, directly or as `image_url`";
    let url = match value {
        Value::String(url) => url,
        Value::Object(mut map) => {
            if map.contains_key("file_id") {
                let why = "names a file stored by a provider, which cannot be read here";
                return Err(invalid_field(&format!("{path}.file_id"), why));
            }
            match map.shift_remove("image_url").or_else(|| map.shift_remove("url")) {
                Some(Value::String(url)) => url,
                Some(Value::Object(mut inner)) => match inner.shift_remove("url") {
                    Some(Value::String(url)) => url,
                    _ => return Err(invalid_field(path, shape)),
                },
                _ => return Err(invalid_field(path, shape)),
            }
        }
        _ => return Err(invalid_field(path, shape)),
    };
    let Some(rest) = url.strip_prefix("data:") else {
        if url.starts_with("https://") || url.starts_with("http://") {
            return Ok(MediaSource::Url { url, mime: None });
        }
        return Err(invalid_field(path, shape));
    };
    let data = rest.split_once(";base64,").map(|(_, data)| data);
    let whole = data.and_then(|data| Some((decode(data)?, data)));
    let info = whole.and_then(|(bytes, data)| Some((image_info(&bytes)?, data)));
    match info {
        Some((info, data)) => Ok(MediaSource::Inline { mime: info.mime(), data: data.to_owned() }),
        None => Err(invalid_field(path, "must be a PNG, JPEG, WebP or GIF file in base64")),
    }
}

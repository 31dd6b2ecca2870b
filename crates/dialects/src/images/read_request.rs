//! Reads an image request into canon, from JSON or from a form. Both have one description.

use bytes::Bytes;
use canon::{ApiError, ImageDelivery, ImageRequest, ImageSize, MediaSource};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value};
use std::fmt;

use super::form::{AsyncDelivery, GATEWAY_FIELDS, ParsedImageRequest};
use super::names::ORIGIN;
use super::{multipart, rules};
use crate::Dialect as _;
use crate::body_outline::BodyOutline;
use crate::chat::ChatDialect;
use crate::checks::{ensure_field, invalid_field, model_name};
use crate::fields::ObjectWriter;
use crate::json;
use crate::object_fields::stored_objects;
use crate::text::BorrowedText;
use crate::wire_object::{raw_value, wire_object};
use crate::wire_rule::{FieldProblem, RuleResult, between, ensure, max_bytes, one_of, refuse_if};
use crate::wire_value::{PlacedValue, read_items};

/// Numeric fields of a form, where all values are text.
const NUMBER_FIELDS: [&str; 6] =
    ["n", "output_compression", "partial_images", "seed", "guidance_scale", "max_images"];
const FLAG_FIELDS: [&str; 3] = ["stream", "watermark", "async"];

wire_object! {
    /// The fields of all image APIs. `images` is the field of the GPT family, `image` that of
    /// Seedream and Grok.
    struct ImageRequestView<'a>("a JSON object") {
        model required: PlacedValue<'a, BorrowedText<'a>> where model_name,
        prompt required: BorrowedText<'a> where prompt_length,
        images: ImageSources,
        image: ImageSources,
        mask: ImageSource,
        n: i64 where between(1, rules::MAX_IMAGES.into()),
        size: BorrowedText<'a> where size_word,
        aspect_ratio: BorrowedText<'a>,
        response_format: BorrowedText<'a> where one_of(&["url", "b64_json"]),
        quality: BorrowedText<'a>
            where one_of(&["auto", "low", "medium", "high", "xhigh", "max", "standard", "hd"]),
        output_format: BorrowedText<'a> where one_of(&["png", "jpeg", "webp"]),
        output_compression: i64 where between(0, 100),
        background: BorrowedText<'a> where one_of(&["auto", "opaque", "transparent"]),
        moderation: BorrowedText<'a> where one_of(&["auto", "low"]),
        input_fidelity: BorrowedText<'a> where one_of(&["low", "high"]),
        style: BorrowedText<'a>,
        negative_prompt: BorrowedText<'a>,
        seed: i64,
        guidance_scale: f64,
        watermark: bool,
        stream: bool,
        partial_images: i64 where between(0, 3),
        user: BorrowedText<'a> where max_bytes(4_096),
        safety_identifier: BorrowedText<'a> where max_bytes(4_096),
        is_async "async": bool,
        webhook: BorrowedText<'a>,
        webhook_url: BorrowedText<'a>,
    }
}

fn prompt_length(prompt: &BorrowedText<'_>) -> RuleResult {
    ensure(!prompt.trim().is_empty(), "must not be empty")?;
    refuse_if(prompt.chars().count() > rules::MAX_PROMPT_CHARS, || {
        format!("must have at most {} characters", rules::MAX_PROMPT_CHARS)
    })
}

fn size_word(word: &BorrowedText<'_>) -> RuleResult {
    let why = "must be `auto`, WIDTHxHEIGHT such as `1024x1024`, or a class such as `2K`";
    ensure(rules::parse_size(word).is_some(), why)
}

/// An input image: a URL, a data URI (RFC 2397), or an object with one.
#[derive(Debug)]
struct ImageSource(MediaSource);

impl<'de> Deserialize<'de> for ImageSource {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        source(raw_value(<&RawValue>::deserialize(from)?)).map(Self).map_err(D::Error::custom)
    }
}

/// Input images: one or a list.
#[derive(Debug, Default)]
struct ImageSources(Vec<ImageSource>);

impl<'de> Deserialize<'de> for ImageSources {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct SourcesVisitor;
        impl<'de> Visitor<'de> for SourcesVisitor {
            type Value = ImageSources;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a URL or a data URI, directly or as `image_url`, or a list of those")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Self::Value, A::Error> {
                read_items(items, rules::MAX_INPUT_IMAGES).map(ImageSources)
            }

            fn visit_str<E: Error>(self, url: &str) -> Result<Self::Value, E> {
                let source = source(Value::from(url)).map_err(E::custom)?;
                Ok(ImageSources(vec![ImageSource(source)]))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                let value = Value::deserialize(MapAccessDeserializer::new(map))?;
                let source = source(value).map_err(A::Error::custom)?;
                Ok(ImageSources(vec![ImageSource(source)]))
            }
        }
        from.deserialize_any(SourcesVisitor)
    }
}

/// Reads a JSON body.
pub(super) fn json(body: &Bytes, edit: bool) -> Result<ParsedImageRequest, ApiError> {
    let text = json::checked_text(body)?;
    refuse_objects(body)?;
    let mut view: ImageRequestView<'_> = json::parse(text)?;
    let model_range = view.model.as_ref().map(|model| json::range_of(text, model.raw));
    let is_gpt_body = edit == view.images.is_some() && view.image.is_none();
    let (mut inputs, mut input_paths) = (Vec::new(), Vec::new());
    for (name, list) in [("images", view.images.take()), ("image", view.image.take())] {
        let list = list.map(|list| list.0).unwrap_or_default();
        input_paths.extend((0..list.len()).map(|at| format!("{name}[{at}]")));
        inputs.extend(list.into_iter().map(|source| source.0));
    }
    let (mask, edit) = (view.mask.take().map(|mask| mask.0), edit || !inputs.is_empty());
    let order = read(view, ImageRequest { inputs, mask, edit, ..ImageRequest::default() });
    // Images given by URL may have to be fetched first.
    let inline = |source: &MediaSource| matches!(source, MediaSource::Inline { .. });
    let mut sources = order.picture.inputs.iter().chain(&order.picture.mask);
    let is_gpt_body = is_gpt_body && sources.all(inline);
    Ok(ParsedImageRequest { input_paths, model_range, is_gpt_body, ..order })
}

/// Reads a form body.
pub(super) fn form(body: &Bytes, boundary: &str) -> Result<ParsedImageRequest, ApiError> {
    let mut map = Map::new();
    let (mut inputs, mut input_paths, mut gateway_parts) = (Vec::new(), Vec::new(), Vec::new());
    let (mut mask, mut model_range) = (None, None);
    for part in multipart::read(body, boundary)? {
        let name = part.name.as_str();
        let file = name.split(['[', '.']).next().unwrap_or_default();
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
                // Fields of a list or an object are written `name[]`, `name[field]` and `name.field`.
                refuse_objects(&ObjectWriter::new().set_any(file, text).into_json())?;
                if GATEWAY_FIELDS.contains(&name) {
                    gateway_parts.push(part.part_range.clone());
                }
                if name == "model" {
                    model_range = Some(part.value_range.clone());
                }
                let before = map.insert(name.to_owned(), typed_value(name, text));
                ensure_field(before.is_none(), name, "is there twice")?;
            }
        }
    }
    let text = Value::Object(map).to_string();
    let picture = ImageRequest { inputs, mask, edit: true, ..ImageRequest::default() };
    let order = read(json::parse(&text)?, picture);
    Ok(ParsedImageRequest { input_paths, model_range, gateway_parts, ..order })
}

/// Refuses the first object in a provider's account that a request names. No lane holds one: image
/// requests have their data, or URLs. A body that cannot be read is refused elsewhere.
fn refuse_objects(body: &[u8]) -> Result<(), ApiError> {
    let named = stored_objects(ChatDialect.traits().objects, body, &BodyOutline::default())
        .unwrap_or_default();
    named.first().map_or(Ok(()), |object| Err(object.not_found()))
}

/// Converts a form field to its type. A malformed value stays text, and its type check rejects it.
fn typed_value(name: &str, text: &str) -> Value {
    // The text can be as large as the request, so it is not read into a tree.
    let number = || json::read::<Number>(text.trim()).ok().map(Value::Number);
    let number = NUMBER_FIELDS.contains(&name).then(number);
    let flag = FLAG_FIELDS.contains(&name).then(|| text.trim().parse().ok().map(Value::Bool));
    number.or(flag).flatten().unwrap_or_else(|| Value::from(text))
}

fn uploaded(name: &str, bytes: &Bytes) -> Result<MediaSource, ApiError> {
    let info = media::image_info(bytes)
        .ok_or_else(|| invalid_field(name, "must be a PNG, JPEG, WebP or GIF file"))?;
    Ok(MediaSource::Inline { mime: info.mime(), data: media::encode_base64(bytes) })
}

/// Reads the fields of a request. `picture` has its images.
fn read(view: ImageRequestView<'_>, picture: ImageRequest) -> ParsedImageRequest {
    let text = |text: Option<BorrowedText<'_>>| text.map(BorrowedText::into_owned);
    let count = |number: Option<i64>| number.and_then(|number| u64::try_from(number).ok());
    let delivery = AsyncDelivery {
        is_requested: view.is_async.unwrap_or_default(),
        webhook: text(view.webhook.or(view.webhook_url)),
    };
    let picture = ImageRequest {
        model: view.model.map(|model| model.value.into_owned()).unwrap_or_default(),
        prompt: text(view.prompt).unwrap_or_default(),
        count: view.n.and_then(|n| u32::try_from(n).ok()).unwrap_or(1),
        size: view.size.as_deref().and_then(rules::parse_size).unwrap_or(ImageSize::Auto),
        delivery: view.response_format.map(|word| match &*word {
            "url" => ImageDelivery::Url,
            _ => ImageDelivery::Base64,
        }),
        aspect_ratio: text(view.aspect_ratio),
        quality: text(view.quality),
        format: text(view.output_format),
        compression: count(view.output_compression),
        background: text(view.background),
        moderation: text(view.moderation),
        fidelity: text(view.input_fidelity),
        style: text(view.style),
        negative_prompt: text(view.negative_prompt),
        seed: view.seed,
        guidance: view.guidance_scale,
        watermark: view.watermark,
        stream: view.stream.unwrap_or_default(),
        partial_images: count(view.partial_images),
        user: text(view.user),
        safety_identifier: text(view.safety_identifier),
        extras: view.rest.to_extras(ORIGIN),
        ..picture
    };
    ParsedImageRequest { picture, delivery, is_gpt_body: true, ..ParsedImageRequest::default() }
}

fn source(value: Value) -> Result<MediaSource, FieldProblem> {
    let refuse = |path, why| Err(FieldProblem::new(path, why));
    let shape = "must be a URL or a data URI, directly or as `image_url`";
    if value.get("file_id").is_some() {
        let why = "names a file stored by a provider, which cannot be read here";
        return refuse("file_id", why);
    }
    let named = value.get("image_url").or_else(|| value.get("url"));
    let named = named.map_or(&value, |inner| inner.get("url").unwrap_or(inner));
    let Value::String(url) = named else { return refuse("", shape) };
    let Some(rest) = url.strip_prefix("data:") else {
        if url.starts_with("https://") || url.starts_with("http://") {
            return Ok(MediaSource::Url { url: url.clone(), mime: None });
        }
        return refuse("", shape);
    };
    let data = rest.split_once(";base64,").map(|(_, data)| data);
    let whole = data.and_then(|data| Some((media::decode_base64(data)?, data)));
    let info = whole.and_then(|(bytes, data)| Some((media::image_info(&bytes)?, data)));
    match info {
        Some((info, data)) => Ok(MediaSource::Inline { mime: info.mime(), data: data.to_owned() }),
        None => refuse("", "must be a PNG, JPEG, WebP or GIF file in base64"),
    }
}

//! Replies of the images endpoint, and of providers that answer with a task.
//!
//! The providers differ in the request of a task, and in the field names of its state, images and
//! error. The names are data ([`ReplyPointers`]); the states are read by one function.

use canon::{
    ApiError, ErrorKind, GeneratedImage, ImageFamily, ImageReply, ImageRequest, ImageSize, Losses,
    MediaSource, Usage, scrub,
};
use serde_json::Value;

use super::aspect_ratio::{self, NATIVE_RATIOS};
use super::image_fields;
use super::names::NO_SUCH_FIELD;
use super::provider::{
    BLOCKED, ImageAnswer, ImageProviderRequest, POLICY_CODE, WrittenImages, blocked, error_in,
    failed, unreadable,
};
use super::seedream::uri;
use crate::checks::invalid_field;
use crate::fields::ObjectWriter;
use crate::json;
use crate::media_rules::split_data_uri;

/// JSON pointers (RFC 6901) into a reply.
struct ReplyPointers {
    /// State of the task.
    state: &'static str,
    /// Id of the task.
    id: &'static str,
    /// URL to poll.
    poll: &'static str,
    /// Path to poll, followed by the id, if the reply has no URL.
    path: &'static str,
    /// The images.
    data: &'static str,
    /// The error.
    error: &'static [&'static str],
}

/// The images endpoint. Another gateway of this kind may answer with a task.
const GATEWAY: ReplyPointers = ReplyPointers {
    state: "/status",
    id: "/id",
    poll: "/poll_url",
    path: "/v1/images/generations/",
    data: "/data",
    error: &["/error"],
};
/// Alibaba Cloud Model Studio (DashScope).
const DASHSCOPE: ReplyPointers = ReplyPointers {
    state: "/output/task_status",
    id: "/output/task_id",
    poll: "/",
    path: "/api/v1/tasks/",
    data: "/output/results",
    error: &["/output", ""],
};
/// Black Forest Labs, <https://docs.bfl.ai>.
const FLUX: ReplyPointers = ReplyPointers {
    poll: "/polling_url",
    path: "/v1/get_result?id=",
    data: "/result/sample",
    error: &["/details", ""],
    ..GATEWAY
};
/// Replicate, <https://replicate.com/docs/reference/http#predictions.get>.
const PREDICTIONS: ReplyPointers =
    ReplyPointers { poll: "/urls/get", path: "/v1/predictions/", data: "/output", ..GATEWAY };

const fn pointers_of(family: ImageFamily) -> &'static ReplyPointers {
    match family {
        ImageFamily::Gpt | ImageFamily::Seedream | ImageFamily::Xai => &GATEWAY,
        ImageFamily::Dashscope => &DASHSCOPE,
        ImageFamily::Flux => &FLUX,
        ImageFamily::Predictions => &PREDICTIONS,
    }
}

/// Reads the reply to a request or to a poll.
pub(super) fn read(family: ImageFamily, body: &[u8]) -> Result<ImageAnswer, ApiError> {
    let value: Value = json::read_bytes(body).map_err(unreadable)?;
    let pointers = pointers_of(family);
    let reported = value.pointer(pointers.state).and_then(Value::as_str);
    match reported.map(str::to_ascii_lowercase).as_deref() {
        Some(
            "pending" | "queued" | "starting" | "submitted" | "not_start" | "running"
            | "in_progress" | "processing" | "generating",
        ) => return pending(pointers, &value),
        Some("succeeded" | "ready" | "succeed" | "success" | "completed") => {}
        Some(_) => {
            let error = pointers.error.iter().find_map(|pointer| value.pointer(pointer));
            let error = error.filter(|error| !error.is_null());
            return Err(task_failed(reported.unwrap_or_default(), error));
        }
        // The first reply has no state, only the URL to poll.
        None if family == ImageFamily::Flux => return pending(pointers, &value),
        None => {}
    }
    let made = match value.pointer(pointers.data) {
        Some(Value::Array(items)) => items.iter().map(read_image).collect::<Result<Vec<_>, _>>()?,
        Some(one @ (Value::String(_) | Value::Object(_))) => vec![read_image(one)?],
        Some(_) | None => return Err(error_in(body, "there are no images in it")),
    };
    let word = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    Ok(ImageAnswer::Finished(ImageReply {
        created: value.get("created").and_then(Value::as_i64),
        images: made,
        usage: value.get("usage").and_then(usage),
        background: word("background"),
        format: word("output_format"),
        quality: word("quality"),
        size: word("size"),
        extras: canon::ExtraFields::new(),
    }))
}

/// Progress of a task in percent, if reported.
pub(super) fn progress(family: ImageFamily, body: &[u8]) -> Option<u8> {
    let body: Value = json::read_bytes(body).ok()?;
    let reported = body.get("progress")?.as_f64()?;
    let hundredths = if family == ImageFamily::Flux { reported * 100.0 } else { reported };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within 0 and 100")]
    (0.0..=100.0).contains(&hundredths).then_some(hundredths as u8)
}

fn pending(pointers: &ReplyPointers, value: &Value) -> Result<ImageAnswer, ApiError> {
    let text = |at: &str| value.pointer(at).and_then(Value::as_str).filter(|s| !s.is_empty());
    if let Some(url) = text(pointers.poll) {
        return Ok(ImageAnswer::Pending(url.to_owned()));
    }
    let id = text(pointers.id).ok_or_else(|| unreadable("a task without an id"))?;
    // The id becomes part of a request path, so it must not change that path.
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
    if id.len() > 1_024 || !id.chars().all(plain) || id.chars().all(|c| c == '.') {
        return Err(unreadable("a task id that is not safe in a path"));
    }
    Ok(ImageAnswer::Pending(format!("{}{id}", pointers.path)))
}

fn task_failed(state: &str, error: Option<&Value>) -> ApiError {
    let word = |pointers: [&str; 2]| {
        let reported = pointers.iter().find_map(|name| error?.get(name)?.as_str());
        reported.or_else(|| error?.as_str()).unwrap_or_default().to_owned()
    };
    let (code, message) = (word(["code", "type"]), word(["message", "detail"]));
    let message: String = message.chars().take(300).collect();
    if is_policy(&format!("{state} {code} {message}")) {
        let say = if message.is_empty() { BLOCKED.to_owned() } else { scrub(&message) };
        return ApiError::new(ErrorKind::ContentPolicy, say).with_code(POLICY_CODE);
    }
    ApiError::new(ErrorKind::Unavailable, "the provider could not generate the image, retry later")
        .with_log_note(format!("a task ended as {state}: {code} {message}"))
}

/// Returns true if a provider's message is about a content policy.
pub(super) fn is_policy(words: &str) -> bool {
    let words = words.to_ascii_lowercase();
    let signs = ["moderat", "policy", "sensitive", "inspection", "safety", "nsfw"];
    signs.iter().any(|sign| words.contains(sign))
}

/// Reads one generated image.
fn read_image(item: &Value) -> Result<GeneratedImage, ApiError> {
    let text = |name: &str| item.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let failure = |error: &Value| {
        let word = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default();
        failed(word("code"), word("message"))
    };
    if let Some(error) = item.get("error").filter(|error| !error.is_null()) {
        return Ok(failure(error));
    }
    if item.get("respect_moderation") == Some(&Value::Bool(false)) {
        return Ok(blocked());
    }
    let url = item.as_str().or_else(|| text("url"));
    let source = if let Some(data) = text("b64_json") {
        inline(data)?
    } else if let Some(url) = url {
        match split_data_uri(url) {
            Some((_, data)) => inline(data)?,
            None => MediaSource::Url { url: url.to_owned(), mime: None },
        }
    } else if text("code").is_some() {
        return Ok(failure(item));
    } else {
        return Err(unreadable("an entry with neither an image nor an error"));
    };
    let (revised, size) = (text("revised_prompt"), text("size"));
    let (revised, size) = (revised.map(str::to_owned), size.map(str::to_owned));
    Ok(GeneratedImage::Image { source, revised, size })
}

/// Checks that base64 data is an image. Anything else is not forwarded as one.
pub(super) fn inline(data: &str) -> Result<MediaSource, ApiError> {
    let info = media::base64_image_info(data)
        .ok_or_else(|| unreadable("the image data is not an image"))?;
    Ok(MediaSource::Inline { mime: info.mime(), data: data.to_owned() })
}

/// Token usage, if reported.
pub(super) fn usage(value: &Value) -> Option<Usage> {
    let count = |name: &str| value.get(name).and_then(Value::as_u64);
    let part = |whole: &str, name: &str| value.get(whole)?.get(name)?.as_u64();
    let output = count("output_tokens")?;
    let input = count("input_tokens").unwrap_or_default();
    Some(Usage {
        input,
        input_image: part("input_tokens_details", "image_tokens").unwrap_or_default(),
        cache_read: part("input_tokens_details", "cached_tokens").unwrap_or_default(),
        output,
        // Without details, all output tokens are image tokens: these models produce nothing else.
        output_image: part("output_tokens_details", "image_tokens").unwrap_or(output),
        ..Usage::default()
    })
}

/// Losses of a task provider: fields that none of them has, and those that one lacks.
fn task_losses(picture: &ImageRequest, lacks: &[&str]) -> Losses {
    let mut losses = image_fields::losses_of(picture, &["guidance_scale"]);
    image_fields::note_unknown(picture, NO_SUCH_FIELD, &mut losses);
    image_fields::note(picture, lacks, NO_SUCH_FIELD, &mut losses);
    losses
}

/// Returns the requested size in pixels, if there is one.
fn pixels(picture: &ImageRequest) -> Result<Option<(u32, u32)>, ApiError> {
    match picture.size {
        ImageSize::Auto => Ok(None),
        ImageSize::Pixels(width, height) => Ok(Some((width, height))),
        ImageSize::Class(_) => Err(invalid_field("size", "must be WIDTHxHEIGHT for this model")),
    }
}

pub(super) fn write_dashscope(picture: &ImageRequest, model: &str) -> WrittenImages {
    let losses = task_losses(picture, &["image", "output_format", "aspect_ratio"]);
    let size = pixels(picture)?.map(|(width, height)| format!("{width}*{height}"));
    let input = ObjectWriter::new().set("prompt", picture.prompt.as_str());
    let input = image_fields::write(input, picture, &["negative_prompt"]);
    let parameters = ObjectWriter::new().set_some("size", size).set("n", picture.count);
    let parameters = image_fields::write(parameters, picture, &["seed", "watermark"]);
    let body =
        ObjectWriter::new().set("model", model).set("input", input).set("parameters", parameters);
    let path = "/api/v1/services/aigc/text2image/image-synthesis";
    let headers = &[("x-dashscope-async", "enable")];
    let request = ImageProviderRequest { headers, ..ImageProviderRequest::at(path, body) };
    Ok((vec![request], losses.into_vec()))
}

pub(super) fn write_flux(picture: &ImageRequest, model: &str) -> WrittenImages {
    let losses = task_losses(picture, &["negative_prompt", "watermark"]);
    let (width, height) = pixels(picture)?.unzip();
    let body = ObjectWriter::new()
        .set("prompt", picture.prompt.as_str())
        .set_some("width", width)
        .set_some("height", height);
    let fields = ["aspect_ratio", "seed", "output_format"];
    let mut body = image_fields::write(body, picture, &fields);
    for (at, source) in picture.inputs.iter().enumerate() {
        let name =
            if at == 0 { "input_image".to_owned() } else { format!("input_image_{}", at + 1) };
        let value = match source {
            MediaSource::Inline { data, .. } => data.clone(),
            MediaSource::Url { .. } | MediaSource::File { .. } | MediaSource::Text(_) => {
                uri(source)?
            }
        };
        body = body.set_any(&name, value);
    }
    let one = ImageProviderRequest::at(format!("/v1/{model}"), body);
    Ok((vec![one; picture.count as usize], losses.into_vec()))
}

pub(super) fn write_predictions(picture: &ImageRequest, model: &str) -> WrittenImages {
    let mut losses = task_losses(picture, &["watermark"]);
    let why = "this family of models takes an aspect ratio, not pixels";
    losses.add_if(matches!(picture.size, ImageSize::Pixels(..)), "size", why);
    let ratio = aspect_ratio::ratio_of(picture, &NATIVE_RATIOS).unwrap_or_default();
    let format = picture.format.as_deref().map(|word| if word == "jpeg" { "jpg" } else { word });
    let image = picture.inputs.first().map(uri).transpose()?;
    let why = "this family of models takes a single input image";
    losses.add_if(picture.inputs.len() > 1, "image", why);
    let input = ObjectWriter::new()
        .set("prompt", picture.prompt.as_str())
        .set_some("negative_prompt", picture.negative_prompt.as_deref())
        .set_some("aspect_ratio", ratio)
        .set_some("num_outputs", (picture.count > 1).then_some(picture.count))
        .set_some("seed", picture.seed)
        .set_some("output_format", format)
        .set_some("image", image);
    let body = ObjectWriter::new().set("input", input);
    let path = format!("/v1/models/{model}/predictions");
    Ok((vec![ImageProviderRequest::at(path, body)], losses.into_vec()))
}

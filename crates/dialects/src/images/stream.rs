//! Image streams: metered for the GPT family, rewritten for Seedream, and made from a whole reply
//! for the others.
//!
//! See <https://platform.openai.com/docs/api-reference/images-streaming>.

use canon::{
    ApiError, ErrorKind, GeneratedImage, ImageFamily, ImageReply, ImageRequest, MediaSource, Usage,
};
use serde_json::{Value, json};

use super::image_info::base64_image_info;
use super::provider::unreadable;
use super::tasks;
use super::write_reply::{ImageProperties, usage as write_usage};
use crate::fields::ObjectWriter;
use crate::sse::StreamFrame;
use crate::{Dialect as _, FrameAction, ReplyMeter, StreamMeter};

/// Estimated tokens of a partial image, and of an image without reported usage.
const PARTIAL_IMAGE_TOKENS: u64 = 100;
const DEFAULT_IMAGE_TOKENS: u64 = 1_056;

/// Prefix of the event names.
const fn event_prefix(edit: bool) -> &'static str {
    if edit { "image_edit" } else { "image_generation" }
}

fn write_event(name: &str, data: &Value, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("event: {name}\ndata: {data}\n\n").as_bytes());
}

/// Writes the `write_stream` event of one image, or an `error` event.
fn write_completed(
    made: &GeneratedImage,
    properties: &ImageProperties,
    usage: Option<&Usage>,
    edit: bool,
    now: i64,
    out: &mut Vec<u8>,
) {
    let name = format!("{}.completed", event_prefix(edit));
    match made {
        GeneratedImage::Image { source: MediaSource::Inline { data, .. }, .. } => {
            let body: Value = ObjectWriter::typed(&name)
                .set("b64_json", data.as_str())
                .set("created_at", now)
                .set("size", properties.size.as_deref().unwrap_or("auto"))
                .set("quality", properties.quality.as_deref().unwrap_or("auto"))
                .set("background", properties.background.as_deref().unwrap_or("auto"))
                .set("output_format", properties.format.as_deref().unwrap_or("png"))
                .set_some("usage", usage.map(write_usage))
                .into();
            write_event(&name, &body, out);
        }
        GeneratedImage::Image { .. } => {}
        GeneratedImage::Failed { code, say } => {
            let body = json!({ "type": "error", "error":
                { "type": "image_generation_error", "code": code, "message": say, "param": null } });
            write_event("error", &body, out);
        }
    }
}

/// Writes a whole reply as a stream: one event per image, with the usage on the last one.
pub fn write_stream(pictures: &ImageReply, picture: &ImageRequest, now: i64) -> Vec<u8> {
    let properties = ImageProperties::of(pictures, picture);
    let mut out = Vec::new();
    let last = pictures.images.iter().rposition(GeneratedImage::is_image);
    for (at, made) in pictures.images.iter().enumerate().filter(|(_, made)| made.is_image()) {
        let usage = pictures.usage.as_ref().filter(|_| Some(at) == last);
        write_completed(made, &properties, usage, picture.edit, now, &mut out);
    }
    out
}

/// Writes the event that ends a failed stream.
pub fn write_stream_error(fault: &ApiError) -> Vec<u8> {
    let (_, body) = crate::chat::ChatDialect.write_error(fault, "");
    let mut error: Value = serde_json::from_slice(&body).unwrap_or_default();
    if let Some(error) = error.as_object_mut() {
        error.shift_insert(0, "type".to_owned(), Value::from("error"));
    }
    let mut out = Vec::new();
    write_event("error", &error, &mut out);
    out
}

/// Returns the meter for a stream of that family.
pub fn stream_meter(family: ImageFamily, picture: &ImageRequest, now: i64) -> Box<dyn StreamMeter> {
    if family != ImageFamily::Seedream {
        let (expected, totals) = (picture.count.into(), ReplyMeter::default());
        return Box::new(GptImageStreamMeter { expected, made: 0, totals });
    }
    let picture = picture.clone();
    Box::new(SeedreamStreamMeter { picture, now, ..SeedreamStreamMeter::default() })
}

/// Meters a stream of the GPT family.
struct GptImageStreamMeter {
    expected: u64,
    made: u64,
    totals: ReplyMeter,
}

/// Fields of an event that are read.
#[derive(serde::Deserialize)]
struct ImageEventView<'a> {
    #[serde(borrow, rename = "type", default)]
    kind: std::borrow::Cow<'a, str>,
    #[serde(default)]
    usage: Option<Value>,
    #[serde(borrow, default)]
    error: Option<&'a serde_json::value::RawValue>,
    #[serde(borrow, default)]
    b64_json: Option<std::borrow::Cow<'a, str>>,
}

fn error_in(data: &[u8]) -> ApiError {
    use crate::PassThrough as _;
    let read = crate::chat::ChatDialect.meter_reply(data);
    read.err().unwrap_or_else(|| unreadable("an error without a message"))
}

impl StreamMeter for GptImageStreamMeter {
    /// Images are not cut: money for the whole image is reserved.
    fn write_truncated(&mut self, _usage: &Usage, _out: &mut Vec<u8>) {}

    fn observe(&mut self, frame: &StreamFrame) -> FrameAction {
        if frame.data.trim_ascii() == b"[DONE]" {
            return if self.totals.is_finished { FrameAction::Last } else { FrameAction::Drop };
        }
        let Ok(head) = serde_json::from_slice::<ImageEventView<'_>>(&frame.data) else {
            return FrameAction::Error(unreadable("an event that is not JSON"));
        };
        let name = frame.event.as_deref().unwrap_or_default();
        if head.error.is_some() || name == b"error" || head.kind == "error" {
            return FrameAction::Error(error_in(&frame.data));
        }
        if head.b64_json.is_some_and(|data| base64_image_info(&data).is_none()) {
            return FrameAction::Error(unreadable("the image data is not an image"));
        }
        let name = if head.kind.is_empty() { String::from_utf8_lossy(name) } else { head.kind };
        if name.ends_with(".partial_image") {
            self.totals.output_bytes += 4 * PARTIAL_IMAGE_TOKENS;
        }
        if name.ends_with(".completed") {
            self.made += 1;
            let reported = head.usage.as_ref().and_then(tasks::usage);
            self.totals.is_estimated |= reported.is_none();
            let reported = reported
                .unwrap_or(Usage { output: self.made * DEFAULT_IMAGE_TOKENS, ..Usage::default() });
            let before = self.totals.usage.unwrap_or_default();
            self.totals.usage = Some(Usage { images: self.made, ..before.merged(reported) });
            // The last image ends the stream, even if no further event follows.
            self.totals.is_finished = self.made >= self.expected;
        }
        FrameAction::Forward
    }

    fn write(&self, frame: &StreamFrame, out: &mut Vec<u8>) {
        if let Some(name) = &frame.event {
            out.extend_from_slice(b"event: ");
            out.extend_from_slice(name);
            out.push(b'\n');
        }
        frame.write_data(out);
    }

    fn totals(&self) -> &ReplyMeter {
        &self.totals
    }

    fn abort_event(&self, fault: &ApiError) -> Option<Vec<u8>> {
        Some(write_stream_error(fault))
    }
}

/// Rewrites a Seedream stream. Each event holds a whole image; the final event has the usage and no
/// image. The last image is held back until then.
#[derive(Default)]
struct SeedreamStreamMeter {
    picture: ImageRequest,
    now: i64,
    held: Option<GeneratedImage>,
    made: u64,
    out: Vec<u8>,
    done: bool,
    totals: ReplyMeter,
    failed: Option<GeneratedImage>,
}

impl SeedreamStreamMeter {
    fn write_held(&mut self, usage: Option<&Usage>) {
        if let Some(made) = self.held.take() {
            let reply = ImageReply { images: vec![made.clone()], ..ImageReply::default() };
            let properties = ImageProperties::of(&reply, &self.picture);
            write_completed(&made, &properties, usage, self.picture.edit, self.now, &mut self.out);
        }
    }

    fn rewrite(&mut self, frame: &StreamFrame) -> Result<(), ApiError> {
        let value: Value =
            serde_json::from_slice(&frame.data).map_err(|e| unreadable(&e.to_string()))?;
        let named = value.get("type").and_then(Value::as_str).map(str::to_owned);
        let named = named.unwrap_or_else(|| {
            String::from_utf8_lossy(frame.event.as_deref().unwrap_or_default()).into_owned()
        });
        match named.rsplit('.').next().unwrap_or_default() {
            "partial_succeeded" => {
                let data = value.get("b64_json").and_then(Value::as_str);
                let data = data.ok_or_else(|| unreadable("an image without data"))?;
                let source = tasks::inline(data)?;
                let size = value.get("size").and_then(Value::as_str).map(str::to_owned);
                self.write_held(None);
                self.held = Some(GeneratedImage::Image { source, revised: None, size });
                self.made += 1;
                // The image is billed even if the usage never arrives.
                self.totals.usage = Some(Usage { images: self.made, ..Usage::default() });
            }
            "partial_failed" => {
                let word = |name: &str| {
                    let reported = value.get("error").and_then(|error| error.get(name)?.as_str());
                    reported.unwrap_or_default().to_owned()
                };
                self.failed =
                    Some(GeneratedImage::Failed { code: word("code"), say: word("message") });
            }
            "completed" => {
                let usage = value.get("usage").and_then(tasks::usage);
                let reported = usage.unwrap_or_default();
                self.totals.usage = Some(Usage { images: self.made, ..reported });
                self.write_held(usage.as_ref());
                self.done = true;
                match &self.failed {
                    Some(GeneratedImage::Failed { code, say }) if self.made == 0 => {
                        let kind = match tasks::is_policy(code) {
                            true => ErrorKind::ContentPolicy,
                            false => ErrorKind::InvalidRequest,
                        };
                        return Err(ApiError::new(kind, say.clone()));
                    }
                    Some(_) | None => self.totals.is_finished = true,
                }
            }
            _ if value.get("error").is_some() => return Err(error_in(&frame.data)),
            _ => {}
        }
        Ok(())
    }
}

impl StreamMeter for SeedreamStreamMeter {
    /// Images are not cut: money for the whole image is reserved.
    fn write_truncated(&mut self, _usage: &Usage, _out: &mut Vec<u8>) {}

    fn observe(&mut self, frame: &StreamFrame) -> FrameAction {
        if frame.data.trim_ascii() == b"[DONE]" {
            return if self.done { FrameAction::Last } else { FrameAction::Drop };
        }
        self.out.clear();
        match self.rewrite(frame) {
            Err(fault) => FrameAction::Error(fault),
            Ok(()) if self.done => FrameAction::Last,
            Ok(()) if self.out.is_empty() => FrameAction::Drop,
            Ok(()) => FrameAction::Forward,
        }
    }

    fn write(&self, _frame: &StreamFrame, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.out);
    }

    fn totals(&self) -> &ReplyMeter {
        &self.totals
    }

    fn abort_event(&self, fault: &ApiError) -> Option<Vec<u8>> {
        Some(write_stream_error(fault))
    }
}

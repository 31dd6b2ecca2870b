//! Image streams: metered and completed for the GPT family, rewritten for Seedream, and made from a whole reply
//! for the others.
//!
//! See <https://platform.openai.com/docs/api-reference/images-streaming>.

use canon::{ApiError, ErrorKind, GeneratedImage, ImageFamily, ImageReply, MediaSource, Usage};
use media::base64_image_info;
use serde_json::{Value, json};

use super::provider::{error_in, unreadable};
use super::tasks;
use super::write_reply::{ImageProperties, ImageReplyDefaults, USAGE, usage as write_usage};
use crate::json;
use crate::reply_shape::{self, DefaultValue, ObjectShape};
use crate::sse::{StreamFrame, write_event};
use crate::text::BorrowedText;
use crate::wire_object::wire_object;
use crate::wire_value::AnyValue;
use crate::{Dialect as _, FrameAction, ReplyMeter, StreamMeter};

/// Estimated tokens of a partial image, and of an image without reported usage.
const PARTIAL_IMAGE_TOKENS: u64 = 100;
const DEFAULT_IMAGE_TOKENS: u64 = 1_056;

/// Writes the `completed` event of an image, if it is inline.
fn write_completed(
    made: &GeneratedImage,
    properties: &ImageProperties,
    usage: Option<&Usage>,
    defaults: &ImageReplyDefaults,
    out: &mut Vec<u8>,
) {
    let GeneratedImage::Image { source: MediaSource::Inline { data, .. }, .. } = made else {
        return;
    };
    let name = if defaults.edit { "image_edit.completed" } else { "image_generation.completed" };
    write_event(name, out, |event| {
        event
            .set("b64_json", data.as_str())
            .set("created_at", defaults.created)
            .set("size", properties.size.as_str())
            .set("quality", properties.quality.as_str())
            .set("background", properties.background.as_str())
            .set("output_format", properties.format.as_str())
            .set_some("usage", usage.map(write_usage))
    });
}

/// Writes a whole reply as a stream: one event per image, with the usage on the last one.
pub fn write_stream(pictures: &ImageReply, defaults: &ImageReplyDefaults) -> Vec<u8> {
    let properties = ImageProperties::of(pictures, defaults);
    let total = pictures.usage.or(defaults.usage);
    let mut out = Vec::new();
    let last = pictures.images.iter().rposition(GeneratedImage::is_image);
    for (at, made) in pictures.images.iter().enumerate() {
        let usage = total.as_ref().filter(|_| Some(at) == last);
        write_completed(made, &properties, usage, defaults, &mut out);
    }
    out
}

/// Writes the event that ends a failed stream.
pub fn write_stream_error(fault: &ApiError) -> Vec<u8> {
    let (_, body) = crate::chat::ChatDialect.write_error(fault, "");
    let error: Value = json::read_bytes(&body).unwrap_or_default();
    let mut out = Vec::new();
    write_event("error", &mut out, |event| event.with_object(Some(&error)));
    out
}

/// The documented fields of the event with a finished image.
static COMPLETED: ObjectShape = ObjectShape {
    fields: &[
        ("type", DefaultValue::Given("/type")),
        ("created_at", DefaultValue::Given("/created_at")),
        ("size", DefaultValue::Given("/size")),
        ("quality", DefaultValue::Given("/quality")),
        ("background", DefaultValue::Given("/background")),
        ("output_format", DefaultValue::Given("/output_format")),
        ("usage", DefaultValue::Given("/usage")),
    ],
    inside: &[("usage", &USAGE)],
    find_texts: None,
};

/// Returns the meter for a stream of that family, with `count` requested images.
pub fn stream_meter(
    family: ImageFamily,
    count: u32,
    defaults: ImageReplyDefaults,
) -> Box<dyn StreamMeter> {
    let is_rewritten = family == ImageFamily::Seedream;
    let requested = count.into();
    Box::new(ImageStreamMeter { is_rewritten, requested, defaults, ..ImageStreamMeter::default() })
}

/// Meters a stream, and completes the events with an image. The stream of Seedream is rewritten: each
/// event holds a whole image, and the final event has the usage and no image. The last image is held
/// back until then.
#[derive(Default)]
struct ImageStreamMeter {
    is_rewritten: bool,
    /// The number of requested images.
    requested: u64,
    defaults: ImageReplyDefaults,
    made: u64,
    /// Sum of the counts of the images, and the number of images without counts.
    told: Usage,
    untold: u64,
    held: Option<GeneratedImage>,
    /// The rewritten event.
    out: Vec<u8>,
    /// The current event, if it was completed.
    completed: Option<StreamFrame>,
    /// Code and message of the last image that failed.
    failed: Option<(String, String)>,
    totals: ReplyMeter,
}

wire_object! {
    /// Fields of an event that are read.
    struct ImageEventView<'a>("an event object") {
        kind "type": BorrowedText<'a>,
        usage: Value,
        error: AnyValue,
        b64_json: BorrowedText<'a>,
    }
}

impl ImageStreamMeter {
    /// Counts an event of the GPT family.
    fn count(&mut self, frame: &StreamFrame) -> Result<FrameAction, ApiError> {
        self.completed = None;
        let head: ImageEventView<'_> =
            json::read_bytes(&frame.data).map_err(|_| unreadable("an event that is not JSON"))?;
        let name = frame.event.as_deref().unwrap_or_default();
        let kind = head.kind.unwrap_or_default();
        if head.error.is_some() || name == b"error" || &*kind == "error" {
            return Err(error_in(&frame.data, "an error without a message"));
        }
        let info = head.b64_json.as_deref().map(base64_image_info);
        if matches!(info, Some(None)) {
            return Err(unreadable("the image data is not an image"));
        }
        let name = if kind.is_empty() { String::from_utf8_lossy(name) } else { kind.0 };
        if name.ends_with(".partial_image") {
            self.totals.output_bytes += 4 * PARTIAL_IMAGE_TOKENS;
        }
        if name.ends_with(".completed") {
            self.made += 1;
            let reported = head.usage.as_ref().and_then(tasks::usage);
            // Each event has the counts of its image. Some have those of all images on the last one.
            match reported {
                Some(reported) => self.told = self.told.plus(reported),
                None => self.untold += 1,
            }
            let output = if self.untold > 0 { self.made * DEFAULT_IMAGE_TOKENS } else { 0 };
            let estimate = Usage { output, output_image: output, ..Usage::default() };
            self.totals.is_estimated = self.untold > 0;
            self.totals.usage = Some(Usage { images: self.made, ..self.told.merged(estimate) });
            // The last image ends the stream, even if no further event follows.
            self.totals.is_finished = self.made >= self.requested;
            let usage = reported.or(self.totals.usage.filter(|_| self.totals.is_finished));
            let properties = ImageProperties::measured(info.flatten(), &self.defaults);
            let given = json!({
                "type": name,
                "created_at": self.defaults.created,
                "size": properties.size,
                "quality": properties.quality,
                "background": properties.background,
                "output_format": properties.format,
                "usage": usage.as_ref().map(write_usage),
            });
            let data = reply_shape::complete_with(&frame.data, &COMPLETED, &given);
            self.completed = Some(StreamFrame { event: frame.event.clone(), data });
        }
        Ok(FrameAction::Forward)
    }

    fn write_held(&mut self, usage: Option<&Usage>) {
        if let Some(made) = self.held.take() {
            let reply = ImageReply { images: vec![made.clone()], ..ImageReply::default() };
            let properties = ImageProperties::of(&reply, &self.defaults);
            write_completed(&made, &properties, usage, &self.defaults, &mut self.out);
        }
    }

    fn rewrite(&mut self, frame: &StreamFrame) -> Result<FrameAction, ApiError> {
        self.out.clear();
        let value: Value = json::read_bytes(&frame.data).map_err(unreadable)?;
        let word = |value: &Value, name: &str| value.get(name)?.as_str().map(str::to_owned);
        let named = word(&value, "type").unwrap_or_else(|| {
            String::from_utf8_lossy(frame.event.as_deref().unwrap_or_default()).into_owned()
        });
        match named.rsplit('.').next().unwrap_or_default() {
            "partial_succeeded" => {
                let data = value.get("b64_json").and_then(Value::as_str);
                let source =
                    tasks::inline(data.ok_or_else(|| unreadable("an image without data"))?)?;
                let size = word(&value, "size");
                self.write_held(None);
                self.held = Some(GeneratedImage::Image { source, revised: None, size });
                self.made += 1;
                // The image is billed even if the usage never arrives.
                self.totals.usage = Some(Usage { images: self.made, ..Usage::default() });
            }
            "partial_failed" => {
                let error = value.get("error").unwrap_or(&Value::Null);
                let word = |name: &str| word(error, name).unwrap_or_default();
                self.failed = Some((word("code"), word("message")));
            }
            "completed" => {
                let usage = value.get("usage").and_then(tasks::usage);
                let reported = usage.unwrap_or_default();
                self.totals.usage = Some(Usage { images: self.made, ..reported });
                self.write_held(usage.or(self.defaults.usage).as_ref());
                if let (Some((code, say)), 0) = (&self.failed, self.made) {
                    let kind = match tasks::is_policy(code) {
                        true => ErrorKind::ContentPolicy,
                        false => ErrorKind::InvalidRequest,
                    };
                    return Err(ApiError::new(kind, say.clone()));
                }
                self.totals.is_finished = true;
                return Ok(FrameAction::Last);
            }
            _ if value.get("error").is_some() => {
                return Err(error_in(&frame.data, "an error without a message"));
            }
            _ => {}
        }
        Ok(if self.out.is_empty() { FrameAction::Drop } else { FrameAction::Forward })
    }
}

impl StreamMeter for ImageStreamMeter {
    /// Images are not cut: money for the whole image is reserved.
    fn write_truncated(&mut self, _usage: &Usage, _out: &mut Vec<u8>) {}

    fn read(&mut self, frame: &StreamFrame) -> Result<FrameAction, ApiError> {
        if frame.data.trim_ascii() == b"[DONE]" {
            let is_last = self.totals.is_finished;
            return Ok(if is_last { FrameAction::Last } else { FrameAction::Drop });
        }
        if self.is_rewritten { self.rewrite(frame) } else { self.count(frame) }
    }

    fn write(&self, frame: &StreamFrame, out: &mut Vec<u8>) {
        if self.is_rewritten {
            return out.extend_from_slice(&self.out);
        }
        let frame = self.completed.as_ref().unwrap_or(frame);
        frame.write_named(frame.event.as_deref(), out);
    }

    fn totals(&self) -> &ReplyMeter {
        &self.totals
    }

    fn abort_event(&self, fault: &ApiError) -> Option<Vec<u8>> {
        Some(write_stream_error(fault))
    }
}

//! Reads one part of a turn or a reply into canon.

use canon::{
    ApiError, CodeExecution, CodeResult, ExtraFields, ImageDetail, Media, MediaKind, MediaSource,
    Part, PartKind, Thought, ToolCall, ToolResult, VideoClip,
};
use serde_json::{Map, Value};

use super::names::ORIGIN;
use super::proto_json::{self, fields};
use super::{signatures, wire};
use crate::fields::{JsonPath, ObjectReader};

/// A part together with the thought its signature stood for.
pub(super) struct ReadPart {
    /// The part; `None` if it only carried a signature.
    pub(super) part: Option<Part>,
    /// A preceding thought that was not shown.
    pub(super) hidden: Option<Part>,
}

/// Reads a part. `invent` makes up the id of a call without one.
pub(super) fn part(
    value: Value,
    path: &JsonPath<'_>,
    invent: impl FnOnce(&str) -> String,
) -> Result<ReadPart, ApiError> {
    let mut fields = fields(value, path)?;
    let found = fields.string("thoughtSignature")?.map(|token| signatures::read(&token));
    let is_thought = fields.flag("thought")?.unwrap_or(false);
    let mut extras = ExtraFields::new();
    let kind = payload(&mut fields, is_thought, &mut extras, invent)?;
    let whole = matches!(kind, Some(PartKind::Foreign { .. }));
    let mut kind = kind.unwrap_or_else(|| text_kind(String::new(), is_thought));
    // An image made while thinking stays an image; the flag is kept in its extras.
    if is_thought && !matches!(kind, PartKind::Thought(_)) && !whole {
        extras.insert(ORIGIN, "thought", Value::Bool(true));
    }
    if !whole {
        for (name, value) in fields.remaining() {
            extras.insert(ORIGIN, &name, value);
        }
    }
    let Some(found) = found else {
        return Ok(ReadPart { part: Some(Part::new(kind).with_extras(extras)), hidden: None });
    };
    if found.hidden {
        let hidden = Some(signatures::bare_thought(found.seal, found.redacted));
        let carrier = matches!(&kind, PartKind::Text { text, .. } if text.is_empty());
        let part = (!carrier).then(|| Part::new(kind).with_extras(extras));
        return Ok(ReadPart { part, hidden });
    }
    if let PartKind::Thought(thought) = &mut kind {
        thought.redacted = found.redacted;
    }
    let part = Part::new(kind).with_signature(Some(found.seal)).with_extras(extras);
    Ok(ReadPart { part: Some(part), hidden: None })
}

fn text_kind(text: String, is_thought: bool) -> PartKind {
    if is_thought {
        PartKind::Thought(Thought { text, redacted: false })
    } else {
        PartKind::Text { text, citations: Vec::new() }
    }
}

fn payload(
    fields: &mut ObjectReader<'_>,
    is_thought: bool,
    extras: &mut ExtraFields,
    invent: impl FnOnce(&str) -> String,
) -> Result<Option<PartKind>, ApiError> {
    if let Some(text) = fields.string("text")? {
        return Ok(Some(text_kind(text, is_thought)));
    }
    let path = fields.path();
    if let Some(value) = fields.take("inlineData") {
        let media = inline(value, &path.key("inlineData"), extras)?;
        return Ok(Some(PartKind::Media(media_options(fields, media, extras)?)));
    }
    if let Some(value) = fields.take("fileData") {
        let media = file(value, &path.key("fileData"), extras)?;
        return Ok(Some(PartKind::Media(media_options(fields, media, extras)?)));
    }
    if let Some(value) = fields.take("functionCall") {
        return call(value, &path.key("functionCall"), extras, invent).map(Some);
    }
    if let Some(value) = fields.take("functionResponse") {
        return result(value, &path.key("functionResponse"), extras).map(Some);
    }
    if let Some(value) = fields.take("executableCode") {
        return code(value, &path.key("executableCode")).map(Some);
    }
    if let Some(value) = fields.take("codeExecutionResult") {
        return outcome(value, &path.key("codeExecutionResult"), extras).map(Some);
    }
    // The provider's own search steps and unknown kinds are kept verbatim.
    let value = fields.take_all();
    if value.is_empty() {
        return Ok(None);
    }
    let only_modifiers = value
        .keys()
        .all(|name| matches!(name.as_str(), "videoMetadata" | "mediaResolution" | "partMetadata"));
    if only_modifiers {
        for (name, value) in value {
            extras.insert(ORIGIN, &name, value);
        }
        return Ok(None);
    }
    let mut value = value;
    if is_thought {
        value.insert("thought".to_owned(), Value::Bool(true));
    }
    Ok(Some(PartKind::Foreign { origin: ORIGIN, value: Value::Object(value) }))
}

/// Takes all remaining fields.
trait TakeAll {
    fn take_all(&mut self) -> Map<String, Value>;
}

impl<'p> TakeAll for ObjectReader<'p> {
    fn take_all(&mut self) -> Map<String, Value> {
        let path = self.path();
        std::mem::replace(self, ObjectReader::of(Map::new(), path)).remaining()
    }
}

/// Reads media inside the message.
fn inline(value: Value, path: &JsonPath<'_>, extras: &mut ExtraFields) -> Result<Media, ApiError> {
    let mut inner = fields(value, path)?;
    let mime = inner.string("mimeType")?.unwrap_or_else(|| "application/octet-stream".to_owned());
    let data = proto_json::standard(inner.required("data")?);
    proto_json::keep(extras, "inlineData", inner);
    Ok(Media {
        kind: MediaKind::from_mime(&mime),
        source: MediaSource::Inline { mime, data },
        name: None,
        detail: None,
        clip: None,
    })
}

/// Reads media behind an address, or in the provider's own storage.
fn file(value: Value, path: &JsonPath<'_>, extras: &mut ExtraFields) -> Result<Media, ApiError> {
    let mut inner = fields(value, path)?;
    let uri = inner.required("fileUri")?;
    let mime = inner.string("mimeType")?.filter(|mime| !mime.is_empty());
    proto_json::keep(extras, "fileData", inner);
    let is_video = ["youtube.com/", "youtu.be/"].iter().any(|host| uri.contains(host));
    let kind = match mime.as_deref() {
        Some(mime) => MediaKind::from_mime(mime),
        None if is_video => MediaKind::Video,
        None => MediaKind::Document,
    };
    let stored = uri.starts_with("https://generativelanguage.googleapis.com/")
        || !(uri.starts_with("https://") || uri.starts_with("http://"));
    let source = if stored {
        if let Some(mime) = mime {
            extras.insert(ORIGIN, "fileData.mimeType", Value::from(mime));
        }
        MediaSource::File { origin: ORIGIN, id: uri }
    } else {
        MediaSource::Url { url: uri, mime }
    };
    Ok(Media { kind, source, name: None, detail: None, clip: None })
}

/// Reads the resolution of media and the clip to look at.
fn media_options(
    part: &mut ObjectReader<'_>,
    mut media: Media,
    extras: &mut ExtraFields,
) -> Result<Media, ApiError> {
    if let Some(value) = part.take("videoMetadata") {
        let path = part.path().key("videoMetadata");
        let mut inner = fields(value, &path)?;
        media.clip = Some(VideoClip {
            start: inner.string("startOffset")?,
            end: inner.string("endOffset")?,
            fps: inner.number("fps")?,
        });
    }
    if let Some(value) = part.take("mediaResolution") {
        let level = match &value {
            Value::Object(object) => object.get("level").and_then(Value::as_str),
            Value::String(word) => Some(word.as_str()),
            _ => None,
        };
        media.detail = level.and_then(read_detail);
        if media.detail.is_none() {
            extras.insert(ORIGIN, "mediaResolution", value);
        }
    }
    Ok(media)
}

/// Maps a `MediaResolution` value to canon.
fn read_detail(word: &str) -> Option<ImageDetail> {
    match word.to_ascii_uppercase().strip_prefix("MEDIA_RESOLUTION_")? {
        "LOW" => Some(ImageDetail::Low),
        "MEDIUM" => Some(ImageDetail::Medium),
        "HIGH" => Some(ImageDetail::High),
        "ULTRA_HIGH" => Some(ImageDetail::Original),
        _ => None,
    }
}

fn call(
    value: Value,
    path: &JsonPath<'_>,
    extras: &mut ExtraFields,
    invent: impl FnOnce(&str) -> String,
) -> Result<PartKind, ApiError> {
    let mut inner = fields(value, path)?;
    let name = inner.string("name")?.unwrap_or_default();
    let id = inner.string("id")?.filter(|id| !id.is_empty()).unwrap_or_else(|| invent(&name));
    let arguments = inner.take("args").map_or_else(|| "{}".to_owned(), |args| args.to_string());
    proto_json::keep(extras, "functionCall", inner);
    Ok(PartKind::ToolCall(ToolCall { id, name, arguments, custom: false }))
}

fn result(
    value: Value,
    path: &JsonPath<'_>,
    extras: &mut ExtraFields,
) -> Result<PartKind, ApiError> {
    let mut inner = fields(value, path)?;
    let call = inner.string("id")?.unwrap_or_default();
    let name = inner.string("name")?;
    let object = match inner.take("response") {
        Some(Value::Object(object)) => object,
        Some(other) => [("result".to_owned(), other)].into_iter().collect(),
        None => Map::new(),
    };
    let failed = object.len() == 1 && object.contains_key("error");
    let list = path.key("parts");
    let mut parts = Vec::new();
    for (at, value) in proto_json::list(&mut inner, "parts")?.into_iter().enumerate() {
        let read = part(value, &list.item(at), |name| wire::invent_id(at, name))?;
        parts.extend(read.part);
    }
    proto_json::keep(extras, "functionResponse", inner);
    Ok(PartKind::ToolResult(ToolResult {
        call_id: call,
        name,
        parts,
        object: Some(object),
        is_error: failed,
    }))
}

fn code(value: Value, path: &JsonPath<'_>) -> Result<PartKind, ApiError> {
    let mut inner = fields(value, path)?;
    let language = inner.string("language")?.unwrap_or_default().to_ascii_lowercase();
    let language = if language == "language_unspecified" { String::new() } else { language };
    Ok(PartKind::CodeExecution(CodeExecution {
        id: inner.string("id")?,
        language,
        code: inner.string("code")?.unwrap_or_default(),
    }))
}

fn outcome(
    value: Value,
    path: &JsonPath<'_>,
    extras: &mut ExtraFields,
) -> Result<PartKind, ApiError> {
    let mut inner = fields(value, path)?;
    let word = proto_json::word(&mut inner, "outcome")?.unwrap_or_default();
    let failed = word != "OUTCOME_OK";
    if failed && word != "OUTCOME_FAILED" {
        extras.insert(ORIGIN, "codeExecutionResult.outcome", Value::from(word));
    }
    Ok(PartKind::CodeResult(CodeResult {
        id: inner.string("id")?,
        output: inner.string("output")?.unwrap_or_default(),
        is_error: failed,
    }))
}

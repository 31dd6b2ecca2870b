//! Reads parts of a turn or a reply into canon.

use canon::{
    CodeExecution, CodeResult, ExtraFields, Media, MediaKind, MediaSource, Part, PartKind, Thought,
    ToolCall, ToolResult, VideoClip,
};
use serde_json::Value;

use super::content::{NativeBlob, NativeFile, NativePart};
use super::names::{ORIGIN, RESOLUTIONS};
use super::own::dotted_extras;
use super::signatures;
use crate::json;
use crate::proto_json::standard_base64;
use crate::text::{BorrowedText, by_word, owned};
use crate::wire_object::raw_value;
use crate::wire_value::OpaqueObject;

/// A part together with the thought its signature stood for.
pub(super) struct ReadPart {
    /// The part; `None` if it only carried a signature.
    pub(super) part: Option<Part>,
    /// A preceding thought that was not shown.
    pub(super) hidden: Option<Part>,
}

/// Reads parts that hold no calls.
pub(super) fn read_parts(parts: Vec<NativePart<'_>>) -> Vec<Part> {
    parts.into_iter().filter_map(|part| read_part(part, None).part).collect()
}

/// Reads a part. `id` is the id of a call or result; without it, the part's own id is taken.
pub(super) fn read_part(mut part: NativePart<'_>, id: Option<String>) -> ReadPart {
    let found = part.thought_signature.take().map(|token| signatures::read(&token.value));
    let is_thought = part.thought.unwrap_or(false);
    let mut extras = ExtraFields::new();
    let mut kind = read_payload(&mut part, id, is_thought, &mut extras);
    if !matches!(kind, PartKind::Foreign { .. }) {
        // An image made while thinking stays an image; the flag is kept in its extras.
        let is_made_thinking = is_thought && !matches!(kind, PartKind::Thought(_));
        extras.insert_some(ORIGIN, "thought", is_made_thinking.then_some(Value::Bool(true)));
        dotted_extras::keep(&mut extras, "", &part.rest);
    }
    let (seal, hidden) = match found {
        None => (None, None),
        Some(found) if found.hidden => {
            (None, Some(signatures::bare_thought(found.seal, found.redacted)))
        }
        Some(found) => {
            if let PartKind::Thought(thought) = &mut kind {
                thought.redacted = found.redacted;
            }
            (Some(found.seal), None)
        }
    };
    let is_empty = matches!(&kind, PartKind::Text { text, .. } if text.is_empty());
    let is_carrier = is_empty && hidden.is_some();
    let part = (!is_carrier).then(|| Part::new(kind).with_signature(seal).with_extras(extras));
    ReadPart { part, hidden }
}

/// Reads a part of a reply. A provider's tokens are its own, even if they look like an envelope.
pub(super) fn read_reply_part(mut part: NativePart<'_>, id: Option<String>) -> Option<Part> {
    let token = part.thought_signature.take();
    let own = token.map(|token| signatures::own(&token.value));
    read_part(part, id).part.map(|part| part.with_signature(own))
}

fn read_text(text: String, is_thought: bool) -> PartKind {
    match is_thought {
        true => PartKind::Thought(Thought { text, redacted: false }),
        false => PartKind::Text { text, citations: Vec::new() },
    }
}

fn read_payload(
    part: &mut NativePart<'_>,
    id: Option<String>,
    is_thought: bool,
    extras: &mut ExtraFields,
) -> PartKind {
    if let Some(text) = part.text.take() {
        return read_text(text.into_owned(), is_thought);
    }
    let media = match (part.inline_data.take(), part.file_data.take()) {
        (Some(blob), _) => Some(read_blob(*blob, extras)),
        (None, Some(file)) => Some(read_file(*file, extras)),
        (None, None) => None,
    };
    if let Some(media) = media {
        return PartKind::Media(read_media_options(part, media));
    }
    if let Some(call) = part.function_call.take().map(|call| *call) {
        dotted_extras::keep(extras, "functionCall", &call.rest);
        return PartKind::ToolCall(ToolCall {
            id: id.unwrap_or_else(|| owned(call.id)),
            name: owned(call.name),
            arguments: call.args.map_or_else(|| "{}".to_owned(), json::compact),
            custom: false,
        });
    }
    if let Some(result) = part.function_response.take().map(|result| *result) {
        dotted_extras::keep(extras, "functionResponse", &result.rest);
        let object = result.response.map(|OpaqueObject(raw)| json::compact(raw));
        let object = object.unwrap_or_else(|| "{}".to_owned());
        let fields = result.response.map(OpaqueObject::to_map).unwrap_or_default();
        return PartKind::ToolResult(ToolResult {
            call_id: id.unwrap_or_else(|| owned(result.id)),
            name: result.name.map(BorrowedText::into_owned),
            parts: read_parts(result.parts.map(|list| list.0).unwrap_or_default()),
            is_error: fields.len() == 1 && fields.contains_key("error"),
            object: Some(object),
        });
    }
    if let Some(code) = part.executable_code.take() {
        dotted_extras::keep(extras, "executableCode", &code.rest);
        let language = code.language.unwrap_or_default().to_ascii_lowercase();
        let language = Some(language).filter(|word| word != "language_unspecified");
        return PartKind::CodeExecution(CodeExecution {
            id: code.id.map(BorrowedText::into_owned),
            language: language.unwrap_or_default(),
            code: owned(code.code),
        });
    }
    if let Some(result) = part.code_execution_result.take() {
        dotted_extras::keep(extras, "codeExecutionResult", &result.rest);
        let word = result.outcome.unwrap_or_default().to_ascii_uppercase();
        let is_error = word != "OUTCOME_OK";
        let other = (is_error && word != "OUTCOME_FAILED").then(|| Value::from(word));
        extras.insert_some(ORIGIN, "codeExecutionResult.outcome", other);
        return PartKind::CodeResult(CodeResult {
            id: result.id.map(BorrowedText::into_owned),
            output: owned(result.output),
            is_error,
        });
    }
    // The provider's own search steps and unknown kinds are kept verbatim.
    let modifiers = ["videoMetadata", "mediaResolution", "partMetadata"];
    if part.rest.present().all(|(name, _)| modifiers.contains(&name)) {
        return read_text(String::new(), is_thought);
    }
    let mut value = part.rest.to_map();
    if is_thought {
        value.insert("thought".to_owned(), Value::Bool(true));
    }
    PartKind::Foreign { origin: ORIGIN, value: Value::Object(value) }
}

/// Reads media inside the message.
fn read_blob(blob: NativeBlob<'_>, extras: &mut ExtraFields) -> Media {
    dotted_extras::keep(extras, "inlineData", &blob.rest);
    let mime = blob.mime_type.map(BorrowedText::into_owned);
    let mime = mime.unwrap_or_else(|| "application/octet-stream".to_owned());
    let data = standard_base64(blob.data.unwrap_or_default().0);
    Media::new(MediaKind::from_mime(&mime), MediaSource::Inline { mime, data })
}

/// Returns the kind of a file. Links to videos need no type:
/// <https://ai.google.dev/gemini-api/docs/video-understanding#youtube>.
pub(super) fn file_kind(mime: Option<&str>, uri: &str) -> MediaKind {
    let is_video = || ["youtube.com/", "youtu.be/"].iter().any(|host| uri.contains(host));
    match mime.filter(|mime| !mime.is_empty()) {
        Some(mime) => MediaKind::from_mime(mime),
        None if is_video() => MediaKind::Video,
        None => MediaKind::Document,
    }
}

/// Reads media behind an address, or in the provider's own storage.
fn read_file(file: NativeFile<'_>, extras: &mut ExtraFields) -> Media {
    dotted_extras::keep(extras, "fileData", &file.rest);
    let uri = owned(file.file_uri);
    let mime = file.mime_type.map(BorrowedText::into_owned).filter(|mime| !mime.is_empty());
    let kind = file_kind(mime.as_deref(), &uri);
    let is_stored = uri.starts_with("https://generativelanguage.googleapis.com/")
        || !(uri.starts_with("https://") || uri.starts_with("http://"));
    if !is_stored {
        return Media::new(kind, MediaSource::Url { url: uri, mime });
    }
    extras.insert_some(ORIGIN, "fileData.mimeType", mime.map(Value::from));
    Media::new(kind, MediaSource::File { origin: ORIGIN, id: uri })
}

/// Reads the resolution of media and the clip to look at.
fn read_media_options(part: &mut NativePart<'_>, media: Media) -> Media {
    part.rest.take("videoMetadata");
    let clip = part.video_metadata.take().map(|clip| VideoClip {
        start: clip.start_offset.map(BorrowedText::into_owned),
        end: clip.end_offset.map(BorrowedText::into_owned),
        fps: clip.fps,
    });
    let detail = part.rest.get("mediaResolution").map(raw_value).and_then(|value| {
        let word = value.get("level").unwrap_or(&value).as_str()?;
        by_word(&RESOLUTIONS, &word.to_ascii_uppercase())
    });
    if detail.is_some() {
        part.rest.take("mediaResolution");
    }
    Media { clip, detail, ..media }
}

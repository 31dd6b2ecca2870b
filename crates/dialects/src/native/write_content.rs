//! Writes parts, for providers and for callers.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use canon::{
    CodeExecution, CodeResult, ExtraFields, ImageDetail, Losses, Media, MediaSource, Part,
    PartKind, Thought, ToolCall, ToolResult, VideoClip,
};
use serde_json::{Map, Value};
use std::collections::HashMap;

use super::names::ORIGIN;
use super::own::{calls, dotted_extras};
use super::signatures;
use crate::fields::{ObjectWriter, note_foreign_fields, number};

/// Writes a part without its signature; `None` if the format has no place for it. `close` is true
/// if the model takes a resolution for a single image.
pub(super) fn payload(part: &Part, close: bool, losses: &mut Losses) -> Option<ObjectWriter> {
    let Part { kind, signature: _, cache_breakpoint: _, extras } = part;
    let object = match kind {
        PartKind::Text { text, citations: _ } => ObjectWriter::new().set("text", text.as_str()),
        PartKind::Refusal(text) => {
            losses.add("part.refusal", "the native format writes a refusal as text");
            ObjectWriter::new().set("text", text.as_str())
        }
        PartKind::Thought(Thought { text, redacted: _ }) => {
            ObjectWriter::new().set("text", text.as_str()).set("thought", true)
        }
        PartKind::Media(media) => media_object(media, extras, close, losses)?,
        PartKind::ToolCall(call) => {
            ObjectWriter::new().set("functionCall", write_call(call, extras))
        }
        PartKind::CodeExecution(CodeExecution { id, language, code }) => {
            let python = language.eq_ignore_ascii_case("python");
            losses.add_if(
                !python && !language.is_empty(),
                "code.language",
                "the native format knows only Python",
            );
            let language = if python { "PYTHON" } else { "LANGUAGE_UNSPECIFIED" };
            let inner = ObjectWriter::new()
                .set_some("id", id.as_deref())
                .set("language", language)
                .set("code", code.as_str());
            let inner = dotted_extras::restore(inner, extras, "executableCode");
            ObjectWriter::new().set("executableCode", inner)
        }
        PartKind::CodeResult(CodeResult { id, output, is_error: failed }) => {
            let word = if *failed { "OUTCOME_FAILED" } else { "OUTCOME_OK" };
            let kept = extras.get(ORIGIN, "codeExecutionResult.outcome").and_then(Value::as_str);
            let inner = ObjectWriter::new()
                .set_some("id", id.as_deref())
                .set("outcome", kept.unwrap_or(word))
                .set("output", output.as_str());
            let inner = dotted_extras::restore(inner, extras, "codeExecutionResult");
            ObjectWriter::new().set("codeExecutionResult", inner)
        }
        PartKind::Foreign { origin, value: Value::Object(map) } if *origin == ORIGIN => {
            ObjectWriter::new().with_fields(map.iter().map(|(name, value)| (name.as_str(), value)))
        }
        PartKind::Foreign { .. } => {
            losses.add("part", "a part only another format has");
            return None;
        }
        PartKind::WebSearch(_) => {
            losses.add("part.search", "the native format has no place for a past search");
            return None;
        }
        PartKind::ToolResult(_) => {
            losses.add("part.tool_result", "a tool result has no place in a reply");
            return None;
        }
    };
    note_foreign_fields(extras, ORIGIN, "part", losses);
    Some(dotted_extras::restore(object, extras, ""))
}

fn media_object(
    media: &Media,
    extras: &ExtraFields,
    close: bool,
    losses: &mut Losses,
) -> Option<ObjectWriter> {
    let Media { kind: _, source, name, detail, clip } = media;
    losses.add_if(name.is_some(), "media.name", "the native format has no media names");
    let object = match source {
        MediaSource::Inline { mime, data } => {
            let inner =
                ObjectWriter::new().set("mimeType", mime.as_str()).set("data", data.as_str());
            ObjectWriter::new()
                .set("inlineData", dotted_extras::restore(inner, extras, "inlineData"))
        }
        MediaSource::Url { url, mime } => {
            let inner = ObjectWriter::new().set_some("mimeType", mime.as_deref());
            let inner = inner.set("fileUri", url.as_str());
            ObjectWriter::new().set("fileData", dotted_extras::restore(inner, extras, "fileData"))
        }
        MediaSource::File { origin, id } if *origin == ORIGIN => {
            let inner = ObjectWriter::new().set("fileUri", id.as_str());
            ObjectWriter::new().set("fileData", dotted_extras::restore(inner, extras, "fileData"))
        }
        MediaSource::File { .. } => {
            losses.add("media.file", "a file in another provider's storage cannot be read here");
            return None;
        }
        MediaSource::Text(text) => {
            let data = STANDARD.encode(text);
            let inner = ObjectWriter::new().set("mimeType", "text/plain").set("data", data);
            ObjectWriter::new().set("inlineData", inner)
        }
    };
    let clip = clip.as_ref().map(|VideoClip { start, end, fps }| {
        ObjectWriter::new()
            .set_some("startOffset", start.as_deref())
            .set_some("endOffset", end.as_deref())
            .set_some("fps", fps.map(number))
    });
    losses.add_if(
        detail.is_some() && !close,
        "media.detail",
        "this model takes no resolution for single media",
    );
    let detail = detail.filter(|_| close).map(|detail| {
        let level = match detail {
            ImageDetail::Low => "MEDIA_RESOLUTION_LOW",
            ImageDetail::Medium => "MEDIA_RESOLUTION_MEDIUM",
            ImageDetail::High => "MEDIA_RESOLUTION_HIGH",
            ImageDetail::Original => "MEDIA_RESOLUTION_ULTRA_HIGH",
        };
        ObjectWriter::new().set("level", level)
    });
    Some(object.set_some("videoMetadata", clip).set_some("mediaResolution", detail))
}

/// Writes a call. Free-text input becomes the only field of an object.
fn write_call(call: &ToolCall, extras: &ExtraFields) -> ObjectWriter {
    let ToolCall { id, name, arguments, custom } = call;
    let args = if *custom {
        ObjectWriter::new().set("input", arguments.as_str()).into_map()
    } else {
        call.arguments_object()
    };
    let inner = ObjectWriter::new()
        .set_some("id", calls::provider_id(id))
        .set("name", name.as_str())
        .set("args", Value::Object(args));
    dotted_extras::restore(inner, extras, "functionCall")
}

/// Writes a tool result. The format requires the tool's name, which other formats leave to the
/// call.
pub(super) fn write_result(
    result: &ToolResult,
    names: &HashMap<&str, &str>,
    extras: &ExtraFields,
    close: bool,
    losses: &mut Losses,
) -> ObjectWriter {
    let ToolResult { call_id: call, name, parts, object, is_error: failed } = result;
    let name = name.as_deref().or_else(|| names.get(call.as_str()).copied());
    losses.add_if(name.is_none(), "tool_result.name", "no call with this id names the tool");
    let response = match object {
        Some(object) => object.clone(),
        None => text_response(&result.as_text(), *failed),
    };
    let media: Vec<Value> = parts
        .iter()
        .filter(|part| matches!(part.kind, PartKind::Media(_)))
        .filter_map(|part| payload(part, close, losses))
        .map(Value::from)
        .collect();
    let other = parts.iter().any(|part| {
        !matches!(part.kind, PartKind::Media(_) | PartKind::Text { .. } | PartKind::Refusal(_))
    });
    losses.add_if(other, "tool_result.parts", "a native result holds only an object and media");
    let inner = ObjectWriter::new()
        .set_some("id", calls::provider_id(call))
        .set("name", name.unwrap_or("unknown"))
        .set("response", response)
        .set_some("parts", (!media.is_empty()).then_some(media));
    let inner = dotted_extras::restore(inner, extras, "functionResponse");
    dotted_extras::restore(ObjectWriter::new().set("functionResponse", inner), extras, "")
}

/// Wraps text into the object that the format requires. Text that is a JSON object already stays as
/// it is.
fn text_response(text: &str, failed: bool) -> Map<String, Value> {
    if failed {
        return ObjectWriter::new().set("error", text).into_map();
    }
    match serde_json::from_str(text) {
        Ok(Value::Object(object)) => object,
        _ => ObjectWriter::new().set("result", text).into_map(),
    }
}

/// Writes a part of a reply, with its signature as the caller sends it back.
pub(super) fn reply_part(part: &Part, losses: &mut Losses) -> Option<ObjectWriter> {
    let object = payload(part, true, losses)?;
    let seal = part.signature.as_ref().map(|seal| match &part.kind {
        PartKind::Thought(Thought { redacted, .. }) => signatures::write_thought(seal, *redacted),
        PartKind::Text { .. }
        | PartKind::Refusal(_)
        | PartKind::Media(_)
        | PartKind::ToolCall(_)
        | PartKind::ToolResult(_)
        | PartKind::CodeExecution(_)
        | PartKind::CodeResult(_)
        | PartKind::WebSearch(_)
        | PartKind::Foreign { .. } => signatures::write(seal),
    });
    Some(object.set_some("thoughtSignature", seal))
}

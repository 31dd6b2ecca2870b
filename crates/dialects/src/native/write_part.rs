//! Writes parts, for providers and for callers.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use canon::{
    Clip, Code, CodeOutcome, Detail, Extras, Kind, Losses, Media, Part, Source, Thought, ToolCall,
    ToolResult,
};
use serde_json::{Map, Value};
use std::collections::HashMap;

use super::names::ORIGIN;
use super::{proto_json, signatures, wire};
use crate::fields::{Object, note_foreign, number};

/// Writes a part without its signature; `None` if the format has no place for it. `close` is true
/// if the model takes a resolution for a single image.
pub(super) fn payload(part: &Part, close: bool, losses: &mut Losses) -> Option<Object> {
    let Part { kind, seal: _, cache: _, extras } = part;
    let object = match kind {
        Kind::Text { text, citations: _ } => Object::new().set("text", text.as_str()),
        Kind::Refusal(text) => {
            losses.add("part.refusal", "the native format writes a refusal as text");
            Object::new().set("text", text.as_str())
        }
        Kind::Thought(Thought { text, redacted: _ }) => {
            Object::new().set("text", text.as_str()).set("thought", true)
        }
        Kind::Media(media) => media_object(media, extras, close, losses)?,
        Kind::ToolCall(call) => Object::new().set("functionCall", write_call(call, extras)),
        Kind::Code(Code { id, language, code }) => {
            let python = language.eq_ignore_ascii_case("python");
            losses.add_if(
                !python && !language.is_empty(),
                "code.language",
                "the native format knows only Python",
            );
            let language = if python { "PYTHON" } else { "LANGUAGE_UNSPECIFIED" };
            let inner = Object::new()
                .maybe("id", id.as_deref())
                .set("language", language)
                .set("code", code.as_str());
            Object::new().set("executableCode", inner)
        }
        Kind::CodeOutcome(CodeOutcome { id, output, failed }) => {
            let word = if *failed { "OUTCOME_FAILED" } else { "OUTCOME_OK" };
            let kept = extras.get(ORIGIN, "codeExecutionResult.outcome").and_then(Value::as_str);
            let inner = Object::new()
                .maybe("id", id.as_deref())
                .set("outcome", kept.unwrap_or(word))
                .set("output", output.as_str());
            Object::new().set("codeExecutionResult", inner)
        }
        Kind::Foreign { origin, value: Value::Object(map) } if *origin == ORIGIN => {
            map.iter().fold(Object::new(), |object, (name, value)| object.set(name, value.clone()))
        }
        Kind::Foreign { .. } => {
            losses.add("part", "a part only another format has");
            return None;
        }
        Kind::Search(_) => {
            losses.add("part.search", "the native format has no place for a past search");
            return None;
        }
        Kind::ToolResult(_) => {
            losses.add("part.tool_result", "a tool result has no place in a reply");
            return None;
        }
    };
    note_foreign(extras, ORIGIN, "part", losses);
    Some(proto_json::restore(object, extras, ""))
}

fn media_object(
    media: &Media,
    extras: &Extras,
    close: bool,
    losses: &mut Losses,
) -> Option<Object> {
    let Media { kind: _, source, name, detail, clip } = media;
    losses.add_if(name.is_some(), "media.name", "the native format has no media names");
    let object = match source {
        Source::Inline { mime, data } => {
            let inner = Object::new().set("mimeType", mime.as_str()).set("data", data.as_str());
            Object::new().set("inlineData", proto_json::restore(inner, extras, "inlineData"))
        }
        Source::Url { url, mime } => {
            let inner = Object::new().maybe("mimeType", mime.as_deref());
            let inner = inner.set("fileUri", url.as_str());
            Object::new().set("fileData", proto_json::restore(inner, extras, "fileData"))
        }
        Source::File { origin, id } if *origin == ORIGIN => {
            let inner = Object::new().set("fileUri", id.as_str());
            Object::new().set("fileData", proto_json::restore(inner, extras, "fileData"))
        }
        Source::File { .. } => {
            losses.add("media.file", "a file in another provider's storage cannot be read here");
            return None;
        }
        Source::Text(text) => {
            let data = STANDARD.encode(text);
            let inner = Object::new().set("mimeType", "text/plain").set("data", data);
            Object::new().set("inlineData", inner)
        }
    };
    let clip = clip.as_ref().map(|Clip { start, end, fps }| {
        Object::new()
            .maybe("startOffset", start.as_deref())
            .maybe("endOffset", end.as_deref())
            .maybe("fps", fps.map(number))
    });
    losses.add_if(
        detail.is_some() && !close,
        "media.detail",
        "this model takes no resolution for single media",
    );
    let detail = detail.filter(|_| close).map(|detail| {
        let level = match detail {
            Detail::Low => "MEDIA_RESOLUTION_LOW",
            Detail::Medium => "MEDIA_RESOLUTION_MEDIUM",
            Detail::High => "MEDIA_RESOLUTION_HIGH",
            Detail::Original => "MEDIA_RESOLUTION_ULTRA_HIGH",
        };
        Object::new().set("level", level)
    });
    Some(object.maybe("videoMetadata", clip).maybe("mediaResolution", detail))
}

/// Writes a call. Free-text input becomes the only field of an object.
fn write_call(call: &ToolCall, extras: &Extras) -> Object {
    let ToolCall { id, name, arguments, custom } = call;
    let args = if *custom {
        Object::new().set("input", arguments.as_str()).into_map()
    } else {
        call.object()
    };
    let inner = Object::new()
        .maybe("id", wire::provider_id(id))
        .set("name", name.as_str())
        .set("args", Value::Object(args));
    proto_json::restore(inner, extras, "functionCall")
}

/// Writes a tool result. The format requires the tool's name, which other formats leave to the
/// call.
pub(super) fn write_result(
    result: &ToolResult,
    names: &HashMap<&str, &str>,
    extras: &Extras,
    close: bool,
    losses: &mut Losses,
) -> Object {
    let ToolResult { call, name, parts, object, failed } = result;
    let name = name.as_deref().or_else(|| names.get(call.as_str()).copied());
    losses.add_if(name.is_none(), "tool_result.name", "no call with this id names the tool");
    let response = match object {
        Some(object) => object.clone(),
        None => text_response(&result.as_text(), *failed),
    };
    let media: Vec<Value> = parts
        .iter()
        .filter(|part| matches!(part.kind, Kind::Media(_)))
        .filter_map(|part| payload(part, close, losses))
        .map(Value::from)
        .collect();
    let other = parts
        .iter()
        .any(|part| !matches!(part.kind, Kind::Media(_) | Kind::Text { .. } | Kind::Refusal(_)));
    losses.add_if(other, "tool_result.parts", "a native result holds only an object and media");
    let inner = Object::new()
        .maybe("id", wire::provider_id(call))
        .set("name", name.unwrap_or("unknown"))
        .set("response", response)
        .maybe("parts", (!media.is_empty()).then_some(media));
    let inner = proto_json::restore(inner, extras, "functionResponse");
    proto_json::restore(Object::new().set("functionResponse", inner), extras, "")
}

/// Wraps text into the object that the format requires. Text that is a JSON object already stays as
/// it is.
fn text_response(text: &str, failed: bool) -> Map<String, Value> {
    if failed {
        return Object::new().set("error", text).into_map();
    }
    match serde_json::from_str(text) {
        Ok(Value::Object(object)) => object,
        _ => Object::new().set("result", text).into_map(),
    }
}

/// Writes a part of a reply, with its signature as the caller sends it back.
pub(super) fn reply_part(part: &Part, losses: &mut Losses) -> Option<Object> {
    let object = payload(part, true, losses)?;
    let seal = part.seal.as_ref().map(|seal| match &part.kind {
        Kind::Thought(Thought { redacted, .. }) => signatures::write_thought(seal, *redacted),
        Kind::Text { .. }
        | Kind::Refusal(_)
        | Kind::Media(_)
        | Kind::ToolCall(_)
        | Kind::ToolResult(_)
        | Kind::Code(_)
        | Kind::CodeOutcome(_)
        | Kind::Search(_)
        | Kind::Foreign { .. } => signatures::write(seal),
    });
    Some(object.maybe("thoughtSignature", seal))
}

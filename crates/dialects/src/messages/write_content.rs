//! Writes parts as the blocks of a request.

use canon::{
    ApiError, CacheBreakpoint, Citation, CodeExecution, CodeResult, Losses, Media, MediaKind,
    MediaSource, Part, PartKind, Thought, ToolCall, ToolResult,
};
use serde_json::{Map, Value};

use super::names::{
    BLOCK_EXTRA, CITATION_EXTRA, FOREIGN_SEARCH, FOREIGN_SIGNATURE, GATEWAY_ID_PREFIX, ORIGIN,
    UNSIGNED_THOUGHT,
};
use super::own::tool_names;
use crate::envelope;
use crate::fields::{JsonPath, ObjectWriter, note_foreign_fields};

/// Writes one part. `None` if the part is empty, or left out and recorded as a loss.
pub(super) fn write(
    part: &Part,
    path: &JsonPath<'_>,
    losses: &mut Losses,
) -> Result<Option<Value>, ApiError> {
    let Part { kind, signature: seal, cache_breakpoint: cache, extras } = part;
    note_foreign_fields(extras, ORIGIN, "part", losses);
    if let PartKind::Thought(thought) = kind {
        return Ok(write_thought(thought, part, losses));
    }
    losses.add_if(seal.is_some(), "part.seal", FOREIGN_SIGNATURE);
    if let Some(block) = extras.get(ORIGIN, BLOCK_EXTRA)
        && !is_our_own(block)
    {
        return Ok(Some(block.clone()));
    }
    let object = match kind {
        PartKind::Text { text, citations } => {
            if text.is_empty() {
                return Ok(None);
            }
            let cited = write_citations(citations, losses);
            ObjectWriter::new()
                .set("type", "text")
                .set("text", text.as_str())
                .set_some("citations", cited)
        }
        PartKind::Refusal(text) | PartKind::CodeResult(CodeResult { output: text, .. })
            if text.is_empty() =>
        {
            return Ok(None);
        }
        PartKind::Refusal(text) => {
            ObjectWriter::new().set("type", "text").set("text", text.as_str())
        }
        PartKind::CodeExecution(CodeExecution { language, code, .. }) => {
            ObjectWriter::new().set("type", "text").set("text", fenced(language, code))
        }
        PartKind::CodeResult(CodeResult { output, .. }) => {
            ObjectWriter::new().set("type", "text").set("text", fenced("", output))
        }
        PartKind::Media(media) => write_media(media, path, losses)?,
        PartKind::ToolCall(call) => write_call(call),
        PartKind::ToolResult(result) => write_result(result, path, losses)?,
        PartKind::WebSearch(_) => {
            losses.add("part.search", FOREIGN_SEARCH);
            return Ok(None);
        }
        PartKind::Foreign { origin, value } if *origin == ORIGIN => return Ok(Some(value.clone())),
        PartKind::Foreign { .. } => {
            losses.add("part", "a part only the caller's format has");
            return Ok(None);
        }
        PartKind::Thought(_) => return Ok(None),
    };
    let mark = cache.as_ref().map(write_cache);
    Ok(Some(without_block(object.set_some("cache_control", mark).with_extras(extras, ORIGIN))))
}

/// Returns true if the gateway made the block to show what another provider ran.
fn is_our_own(block: &Value) -> bool {
    ["id", "tool_use_id"].iter().any(|name| {
        block.get(name).and_then(Value::as_str).is_some_and(|id| id.starts_with(GATEWAY_ID_PREFIX))
    })
}

fn without_block(object: ObjectWriter) -> Value {
    let mut fields = object.into_map();
    fields.shift_remove(BLOCK_EXTRA);
    Value::Object(fields)
}

/// Writes a thought, if this format signed it. The provider refuses any other.
fn write_thought(thought: &Thought, part: &Part, losses: &mut Losses) -> Option<Value> {
    let Thought { text, redacted } = thought;
    let Some(token) = part.signature.as_ref().and_then(|seal| seal.for_format(ORIGIN)) else {
        losses.add("thought", UNSIGNED_THOUGHT);
        return None;
    };
    let object = if *redacted {
        ObjectWriter::new().set("type", "redacted_thinking").set("data", token)
    } else {
        ObjectWriter::new()
            .set("type", "thinking")
            .set("thinking", text.as_str())
            .set("signature", token)
    };
    Some(object.with_extras(&part.extras, ORIGIN).into())
}

fn write_citations(citations: &[Citation], losses: &mut Losses) -> Option<Vec<Value>> {
    let own: Vec<Value> = citations
        .iter()
        .filter_map(|citation| citation.extras.get(ORIGIN, CITATION_EXTRA))
        // The gateway wrote this empty index for a client; it means nothing to a provider.
        .filter(|value| value.get("encrypted_index").and_then(Value::as_str) != Some(""))
        .cloned()
        .collect();
    losses.add_if(
        own.len() < citations.len(),
        "citations",
        "citations of another provider's text cannot be sent to this one",
    );
    (!own.is_empty()).then_some(own)
}

/// Writes code or its output as text, because the format takes no code runs of another provider.
pub(super) fn fenced(language: &str, code: &str) -> String {
    format!("```{language}\n{}\n```", code.trim_end_matches('\n'))
}

/// Writes a call.
pub(super) fn write_call(call: &ToolCall) -> ObjectWriter {
    let ToolCall { id, name, arguments, custom } = call;
    let input = if *custom {
        ObjectWriter::new().set("input", arguments.as_str()).into_map()
    } else {
        call.arguments_object()
    };
    ObjectWriter::new()
        .set("type", "tool_use")
        .set("id", tool_names::write(id).as_ref())
        .set("name", tool_names::write(name).as_ref())
        .set("input", input)
}

fn write_result(
    result: &ToolResult,
    path: &JsonPath<'_>,
    losses: &mut Losses,
) -> Result<ObjectWriter, ApiError> {
    let ToolResult { call_id: call, name: _, parts, object, is_error: failed } = result;
    if call.is_empty() {
        return Err(path.fault("a tool result must say which call it answers"));
    }
    let at = path.key("parts");
    let mut blocks = Vec::with_capacity(parts.len());
    if object.is_some() {
        blocks.push(text_block(&result.as_text()));
    }
    for (index, part) in parts.iter().enumerate() {
        let repeated = object.is_some() && part.as_text().is_some();
        if !repeated {
            blocks.extend(write(part, &at.item(index), losses)?);
        }
    }
    let content = (!blocks.is_empty()).then(|| content(blocks));
    Ok(ObjectWriter::new()
        .set("type", "tool_result")
        .set("tool_use_id", tool_names::write(call).as_ref())
        .set_some("content", content)
        .set_some("is_error", failed.then_some(true)))
}

fn text_block(text: &str) -> Value {
    ObjectWriter::new().set("type", "text").set("text", text).into()
}

/// Returns a string for a single plain text, else a list of blocks.
pub(super) fn content(blocks: Vec<Value>) -> Value {
    match blocks.as_slice() {
        [only] => match plain_text(only) {
            Some(text) => Value::from(text),
            None => Value::Array(blocks),
        },
        _ => Value::Array(blocks),
    }
}

fn plain_text(block: &Value) -> Option<&str> {
    let fields: &Map<String, Value> = block.as_object()?;
    let is_text = fields.get("type").and_then(Value::as_str) == Some("text");
    if is_text && fields.len() == 2 { fields.get("text").and_then(Value::as_str) } else { None }
}

fn write_media(
    media: &Media,
    path: &JsonPath<'_>,
    losses: &mut Losses,
) -> Result<ObjectWriter, ApiError> {
    let Media { kind, source, name, detail, clip } = media;
    losses.add_if(detail.is_some(), "media.detail", "the messages format has no such field");
    losses.add_if(clip.is_some(), "media.clip", "the messages format has no clips");
    let refuse = |what: &str| Err(path.fault(format!("the messages format takes no {what}")));
    match kind {
        MediaKind::Audio => refuse("audio"),
        MediaKind::Video => refuse("video"),
        MediaKind::Image => {
            losses.add_if(name.is_some(), "media.name", "images have no name in this format");
            let source = match source {
                MediaSource::Inline { mime, data } => {
                    let mime = if mime == "image/jpg" { "image/jpeg" } else { mime.as_str() };
                    if !matches!(mime, "image/jpeg" | "image/png" | "image/gif" | "image/webp") {
                        return refuse(&format!("images of type {mime}"));
                    }
                    base64(mime, data)
                }
                MediaSource::Url { url, mime: _ } => by_url(url),
                MediaSource::File { origin, id } if *origin == ORIGIN => by_file(id),
                MediaSource::File { .. } => return refuse("files in another provider's storage"),
                MediaSource::Text(_) => return refuse("images made of text"),
            };
            Ok(ObjectWriter::new().set("type", "image").set("source", source))
        }
        MediaKind::Document => {
            let source = match source {
                MediaSource::Inline { mime, data } if mime == "application/pdf" => {
                    base64(mime, data)
                }
                MediaSource::Inline { mime, data } if is_text(mime) => {
                    let text = envelope::decode(data).and_then(|all| String::from_utf8(all).ok());
                    match text {
                        Some(text) => by_text(&text),
                        None => return refuse("text that is not UTF-8"),
                    }
                }
                MediaSource::Inline { mime, .. } => {
                    return refuse(&format!("documents of type {mime}"));
                }
                MediaSource::Url { url, mime: _ } => by_url(url),
                MediaSource::File { origin, id } if *origin == ORIGIN => by_file(id),
                MediaSource::File { .. } => return refuse("files in another provider's storage"),
                MediaSource::Text(text) => by_text(text),
            };
            let document = ObjectWriter::new().set("type", "document").set("source", source);
            Ok(document.set_some("title", name.as_deref()))
        }
    }
}

fn is_text(mime: &str) -> bool {
    mime.starts_with("text/") || matches!(mime, "application/json" | "application/xml")
}

fn base64(mime: &str, data: &str) -> ObjectWriter {
    ObjectWriter::new().set("type", "base64").set("media_type", mime).set("data", data)
}

fn by_url(url: &str) -> ObjectWriter {
    ObjectWriter::new().set("type", "url").set("url", url)
}

fn by_file(id: &str) -> ObjectWriter {
    ObjectWriter::new().set("type", "file").set("file_id", id)
}

fn by_text(text: &str) -> ObjectWriter {
    ObjectWriter::new().set("type", "text").set("media_type", "text/plain").set("data", text)
}

/// Writes a prompt-cache breakpoint. The format has lifetimes of five minutes and one hour; other
/// lifetimes are rounded up to one of them.
pub(crate) fn write_cache(mark: &CacheBreakpoint) -> Value {
    let CacheBreakpoint { ttl } = mark;
    let ttl = ttl.as_deref().map(|ttl| match minutes(ttl) {
        Some(0..=5) | None => "5m",
        Some(_) => "1h",
    });
    ObjectWriter::new().set("type", "ephemeral").set_some("ttl", ttl).into()
}

fn minutes(ttl: &str) -> Option<u64> {
    let number = |unit: char| ttl.strip_suffix(unit).and_then(|n| n.parse::<u64>().ok());
    number('m')
        .or_else(|| number('h').map(|hours| hours.saturating_mul(60)))
        .or_else(|| number('s').map(|seconds| seconds.div_ceil(60)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_lifetime_is_rounded_up() {
        let ttl =
            |ttl: &str| write_cache(&CacheBreakpoint { ttl: Some(ttl.to_owned()) })["ttl"].clone();
        assert_eq!([ttl("5m"), ttl("30m"), ttl("1h"), ttl("300s")], ["5m", "1h", "1h", "5m"]);
    }
}

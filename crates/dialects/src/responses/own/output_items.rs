//! Writes what the model said and did as items and parts: in responses, and in requests that return
//! a provider's own items.

use canon::{
    Citation, CodeResult, ExtraFields, Losses, Media, MediaKind, MediaSource, Part, PartKind,
    WebSearch,
};
use serde_json::Value;

use super::tool_names::ToolNames;
use crate::fields::{ObjectWriter, note_citation};
use crate::responses::names::ORIGIN;

/// Writes an assistant message.
pub(super) fn message_item(id: &str, parts: Vec<ObjectWriter>, status: &str) -> ObjectWriter {
    ObjectWriter::typed("message")
        .set("id", id)
        .set("status", status)
        .set("role", "assistant")
        .set("content", parts)
}

/// Writes an `output_text` part. SDKs expect its lists even if they are empty.
pub(crate) fn text_part(
    text: &str,
    annotations: Vec<ObjectWriter>,
    logprobs: Option<Value>,
) -> ObjectWriter {
    ObjectWriter::typed("output_text")
        .set("text", text)
        .set("annotations", annotations)
        .set("logprobs", logprobs.unwrap_or_else(|| Value::Array(Vec::new())))
}

/// Writes a `refusal` part.
pub(crate) fn refusal_part(text: &str) -> ObjectWriter {
    ObjectWriter::typed("refusal").set("refusal", text)
}

/// Writes an annotation for a text of `length` characters. A citation without a span covers all of
/// it.
pub(crate) fn annotation(
    citation: &Citation,
    length: usize,
    losses: &mut Losses,
) -> Option<ObjectWriter> {
    let Citation { url, title, quote, span, extras } = citation;
    let why = "the responses format has no quotes in citations";
    losses.add_if(quote.is_some(), "citation.quote", why);
    if url.is_none() && extras.get(ORIGIN, "type").is_some() {
        return Some(ObjectWriter::new().with_extras(extras, ORIGIN));
    }
    if note_citation(citation, ORIGIN, losses) {
        return None;
    }
    let (start, end) = span.unwrap_or((0, length));
    let object = ObjectWriter::typed("url_citation")
        .set("url", url.as_deref().unwrap_or_default())
        .set("title", title.as_deref().unwrap_or_default())
        .set("start_index", start)
        .set("end_index", end);
    Some(object.with_extras(extras, ORIGIN))
}

/// Writes a call as the item of a request, or of a response with an id and a status.
pub(crate) fn call_item(
    part: &Part,
    names: &ToolNames,
    id: Option<&str>,
    status: Option<&str>,
) -> ObjectWriter {
    let PartKind::ToolCall(call) = &part.kind else { return ObjectWriter::new() };
    let (kind, field) = match call.custom {
        true => ("custom_tool_call", "input"),
        false => ("function_call", "arguments"),
    };
    let (space, name) = names.split_call(part);
    // SDKs parse the arguments, and an empty string is not valid JSON.
    let is_empty = call.arguments.is_empty() && !call.custom && status != Some("in_progress");
    ObjectWriter::typed(kind)
        .set_some("id", id)
        // `custom_tool_call` has no `status`.
        .set_some("status", status.filter(|_| !call.custom))
        .set("call_id", call.id.as_str())
        .set("name", name)
        .set_some("namespace", space)
        .set(field, if is_empty { "{}" } else { call.arguments.as_str() })
        .with_extras(&part.extras, ORIGIN)
}

/// Returns true if the id is that of a search by a provider of this format.
pub(crate) fn is_own_search(id: &str) -> bool {
    id.starts_with("ws_")
}

/// Writes a `web_search_call` item.
pub(crate) fn search_item(part: &Part, id: Option<String>) -> ObjectWriter {
    let PartKind::WebSearch(WebSearch { id: _, queries, results: found }) = &part.kind else {
        return ObjectWriter::new();
    };
    let status = part.extras.get(ORIGIN, "status").cloned();
    let is_ours = part.extras.for_format(ORIGIN).is_some();
    let is_known = !queries.is_empty() || !found.is_empty();
    let action = (is_known && !is_ours).then(|| {
        let source = |url: &str| ObjectWriter::typed("url").set("url", url);
        let sources: Vec<_> = found.iter().map(|(url, _)| source(url)).collect();
        ObjectWriter::typed("search")
            .set("query", queries.first().map_or("", String::as_str))
            .set("queries", queries.clone())
            .set_some("sources", (!sources.is_empty()).then_some(sources))
    });
    ObjectWriter::typed("web_search_call")
        .set_some("id", id)
        .set("status", status.unwrap_or_else(|| "completed".into()))
        .set_some("action", action)
        .with_extras(&part.extras, ORIGIN)
}

/// Returns the id of code that a provider of this format ran in a container.
pub(super) fn own_code_id(part: &Part) -> Option<String> {
    part.extras.get(ORIGIN, "container_id")?;
    if let PartKind::CodeExecution(code) = &part.kind { code.id.clone() } else { None }
}

/// Writes a `code_interpreter_call` item. `container_id` is required even if there was no
/// container.
pub(crate) fn code_item(
    code: Option<&Part>,
    outcome: Option<&Part>,
    id: Option<String>,
    container: Option<String>,
) -> ObjectWriter {
    let (source, own_id) = match code.map(|part| &part.kind) {
        Some(PartKind::CodeExecution(code)) => (Some(code.code.as_str()), code.id.clone()),
        _ => (None, None),
    };
    let (outputs, failed) = outcome.map_or((Value::Null, false), outputs);
    let none = ExtraFields::new();
    let extras = code.map_or(&none, |part| &part.extras);
    let kept = |name: &str| extras.get(ORIGIN, name).cloned();
    let status = Value::from(if failed { "failed" } else { "completed" });
    ObjectWriter::typed("code_interpreter_call")
        .set_some("id", id.or(own_id))
        .set("status", kept("status").unwrap_or(status))
        .set("code", source)
        .set_some("container_id", kept("container_id").or(container.map(Value::from)))
        .set("outputs", outputs)
        .with_extras(extras, ORIGIN)
}

fn outputs(part: &Part) -> (Value, bool) {
    let PartKind::CodeResult(CodeResult { id: _, output, is_error: failed }) = &part.kind else {
        return (Value::Null, false);
    };
    let outputs = part.extras.get(ORIGIN, "outputs").cloned().unwrap_or_else(|| {
        let logs = ObjectWriter::typed("logs").set("logs", output.as_str());
        Value::Array(vec![logs.into()])
    });
    (outputs, *failed)
}

/// Writes an `image_generation_call` item. `None` if the image is not inline.
pub(crate) fn image_item(part: &Part, id: Option<String>) -> Option<ObjectWriter> {
    let PartKind::Media(media) = &part.kind else { return None };
    let Media { kind, source, name: _, detail: _, clip: _ } = media;
    let (MediaKind::Image, MediaSource::Inline { mime, data }) = (kind, source) else {
        return None;
    };
    let format = match mime.strip_prefix("image/").unwrap_or("png") {
        "jpg" => "jpeg",
        "svg+xml" => "svg",
        format => format,
    };
    let kept = |name: &str| part.extras.get(ORIGIN, name).cloned();
    let item = ObjectWriter::typed("image_generation_call")
        .set_some("id", kept("id").or(id.map(Value::from)))
        .set("status", kept("status").unwrap_or_else(|| "completed".into()))
        .set("result", data.as_str())
        .set("output_format", format);
    Some(item.with_extras(&part.extras, ORIGIN))
}

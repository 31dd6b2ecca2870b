//! Writes what the model said and did as items and parts: in responses, and in requests that return
//! a provider's own items.

use canon::{
    Citation, CodeExecution, CodeResult, Logprob, Losses, Media, MediaKind, MediaSource, Part,
    TokenLogprob, WebSearch,
};
use serde_json::Value;

use super::names::ORIGIN;
use crate::fields::{ObjectWriter, note_citation, number};

/// The loss reason of log probabilities of a refusal.
pub(super) const NO_REFUSAL_LOGPROBS: &str =
    "a refusal of the responses format has no log probabilities";

/// Writes code or its output as a Markdown code block.
pub(super) fn code_block(language: &str, code: &str) -> String {
    format!("```{language}\n{}\n```", code.trim_end_matches('\n'))
}

/// Writes an `output_text` part. SDKs expect its lists even if they are empty.
pub(super) fn text_part(
    text: &str,
    citations: &[Citation],
    logprobs: Option<Value>,
    losses: &mut Losses,
) -> Value {
    let length = text.chars().count();
    let annotations: Vec<Value> =
        citations.iter().filter_map(|citation| annotation(citation, length, losses)).collect();
    ObjectWriter::new()
        .set("type", "output_text")
        .set("text", text)
        .set("annotations", annotations)
        .set("logprobs", logprobs.unwrap_or_else(|| Value::Array(Vec::new())))
        .into()
}

/// Writes a `refusal` part.
pub(super) fn refusal_part(text: &str) -> Value {
    ObjectWriter::new().set("type", "refusal").set("refusal", text).into()
}

/// Writes an annotation for a text of `length` characters. A citation without a span covers all of
/// it.
pub(super) fn annotation(citation: &Citation, length: usize, losses: &mut Losses) -> Option<Value> {
    let Citation { url, title, quote, span, extras } = citation;
    losses.add_if(
        quote.is_some(),
        "citation.quote",
        "the responses format has no quotes in citations",
    );
    if url.is_none() && extras.get(ORIGIN, "type").is_some() {
        return Some(ObjectWriter::new().with_extras(extras, ORIGIN).into());
    }
    if note_citation(citation, ORIGIN, losses) {
        return None;
    }
    let (start, end) = span.unwrap_or((0, length));
    let object = ObjectWriter::new()
        .set("type", "url_citation")
        .set("url", url.as_deref().unwrap_or_default())
        .set("title", title.as_deref().unwrap_or_default())
        .set("start_index", start)
        .set("end_index", end);
    Some(object.with_extras(extras, ORIGIN).into())
}

/// Log probabilities of the tokens. Deltas have no `bytes`.
pub(super) fn logprobs(list: &[Logprob], delta: bool) -> Value {
    let chance = |chance: &TokenLogprob| {
        let TokenLogprob { token, id: _, logprob, bytes } = chance;
        let object =
            ObjectWriter::new().set("token", token.as_str()).set("logprob", number(*logprob));
        if delta {
            return object;
        }
        let bytes = bytes.clone().unwrap_or_else(|| token.clone().into_bytes());
        object.set("bytes", bytes)
    };
    let list = list.iter().map(|token| {
        let Logprob { chosen, top } = token;
        let top: Vec<Value> = top.iter().map(|other| chance(other).into()).collect();
        chance(chosen).set("top_logprobs", top).into()
    });
    Value::Array(list.collect())
}

/// Returns true if the id is that of a search by a provider of this format.
pub(super) fn is_own_search(id: &str) -> bool {
    id.starts_with("ws_")
}

/// Writes a `web_search_call` item.
pub(super) fn search_item(part: &Part, search: &WebSearch, id: Option<String>) -> ObjectWriter {
    let WebSearch { id: _, queries, results: found } = search;
    let item = ObjectWriter::new().set("type", "web_search_call").set_some("id", id);
    let item = match part.extras.get(ORIGIN, "status") {
        Some(status) => item.set("status", status.clone()),
        None => item.set("status", "completed"),
    };
    let ours = part.extras.for_format(ORIGIN).is_some();
    let known = !queries.is_empty() || !found.is_empty();
    let action = (known && !ours).then(|| {
        let sources: Vec<Value> = found
            .iter()
            .map(|(url, _)| ObjectWriter::new().set("type", "url").set("url", url.as_str()).into())
            .collect();
        ObjectWriter::new()
            .set("type", "search")
            .set("query", queries.first().map_or("", String::as_str))
            .set("queries", queries.clone())
            .set_some("sources", (!sources.is_empty()).then_some(sources))
    });
    item.set_some("action", action).with_extras(&part.extras, ORIGIN)
}

/// Writes a `web_search_call` item of a response, where `action` is required.
pub(super) fn reply_search_item(part: &Part, search: &WebSearch, id: String) -> Value {
    let mut item = search_item(part, search, Some(id)).into_map();
    item.entry("action")
        .or_insert_with(|| ObjectWriter::new().set("type", "search").set("query", "").into());
    Value::Object(item)
}

/// Writes a `code_interpreter_call` item. `container_id` is required even if there was no
/// container.
pub(super) fn code_item(
    code: Option<(&Part, &CodeExecution)>,
    outcome: Option<&Part>,
    id: Option<String>,
    container: Option<String>,
) -> ObjectWriter {
    let (source, own_id) = match code {
        Some((_, CodeExecution { id, language: _, code })) => (Some(code.as_str()), id.clone()),
        None => (None, None),
    };
    let kept = code.map(|(part, _)| &part.extras);
    let (outputs, failed) = outcome.map_or((Value::Null, false), outputs);
    let item = ObjectWriter::new()
        .set("type", "code_interpreter_call")
        .set_some("id", id.or(own_id))
        .set("status", if failed { "failed" } else { "completed" })
        .set("code", source.map_or(Value::Null, Value::from));
    let item = match kept.and_then(|extras| extras.get(ORIGIN, "container_id")) {
        Some(container) => item.set("container_id", container.clone()),
        None => item.set_some("container_id", container),
    };
    let item = item.set("outputs", outputs);
    match kept {
        Some(extras) => {
            let status = extras.get(ORIGIN, "status").cloned();
            item.set_some("status", status).with_extras(extras, ORIGIN)
        }
        None => item,
    }
}

fn outputs(part: &Part) -> (Value, bool) {
    let canon::PartKind::CodeResult(CodeResult { id: _, output, is_error: failed }) = &part.kind
    else {
        return (Value::Null, false);
    };
    let outputs = match part.extras.get(ORIGIN, "outputs") {
        Some(outputs) => outputs.clone(),
        None => {
            let logs = ObjectWriter::new().set("type", "logs").set("logs", output.as_str());
            Value::Array(vec![logs.into()])
        }
    };
    (outputs, *failed)
}

/// Writes an `image_generation_call` item. `None` if the image is not inline.
pub(super) fn image_item(part: &Part, media: &Media, id: Option<String>) -> Option<ObjectWriter> {
    let Media { kind, source, name: _, detail: _, clip: _ } = media;
    let (MediaKind::Image, MediaSource::Inline { mime, data }) = (kind, source) else {
        return None;
    };
    let format = match mime.strip_prefix("image/").unwrap_or("png") {
        "jpg" => "jpeg",
        "svg+xml" => "svg",
        format => format,
    };
    let status = part.extras.get(ORIGIN, "status").cloned();
    Some(
        ObjectWriter::new()
            .set("type", "image_generation_call")
            .set_some("id", part.extras.get(ORIGIN, "id").cloned().or(id.map(Value::from)))
            .set("status", status.unwrap_or_else(|| "completed".into()))
            .set("result", data.as_str())
            .set("output_format", format)
            .with_extras(&part.extras, ORIGIN),
    )
}

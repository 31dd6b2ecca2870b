//! `GET /v1/models` and `/v1/models/{id}`, in the shape of the caller's client. The shapes:
//! <https://platform.openai.com/docs/api-reference/models>,
//! <https://docs.anthropic.com/en/api/models-list>, <https://ai.google.dev/api/models>.

use axum::response::Response;
use canon::{ApiError, EffortLevel, JsonOutput, ThinkingRange, ToolKind};
use catalog::{Model, ModelCapabilities, ModelKind};
use serde_json::{Value, json};
use std::ops::Range;

use super::codex_catalog;
use super::query::{percent_decode, query_pairs};
use crate::request::ApiRequest;
use access::keys::ApiKey;
use dialects::is_native_client;
use relay::json_response;
use transport::ServerRequest;

/// Client whose list format is wanted.
#[derive(Clone, Copy)]
enum ModelListShape {
    Chat,
    Messages,
    Native,
}

impl ModelListShape {
    fn of(request: &ServerRequest) -> Self {
        let headers = request.headers();
        // Only native clients send the key in the query.
        let query = request.query();
        let by_address = || query_pairs(query).iter().any(|(name, _)| name == "key");
        if headers.contains("anthropic-version") {
            Self::Messages
        } else if is_native_client(|name| headers.contains(name)) || by_address() {
            Self::Native
        } else {
            Self::Chat
        }
    }
}

pub(super) async fn list(incoming: ApiRequest) -> Result<Response, ApiError> {
    let shape = ModelListShape::of(&incoming.request);
    list_as(&incoming, shape)
}

/// `GET /v1beta/models`.
pub(super) async fn list_native(incoming: ApiRequest) -> Result<Response, ApiError> {
    list_as(&incoming, ModelListShape::Native)
}

/// `GET /v1beta/models/{id}`.
pub(super) async fn get_native(incoming: ApiRequest) -> Result<Response, ApiError> {
    get_as(&incoming, ModelListShape::Native)
}

fn list_as(incoming: &ApiRequest, shape: ModelListShape) -> Result<Response, ApiError> {
    let config = incoming.state.config();
    let models: Vec<(&str, &Model)> =
        config.catalog.iter().flat_map(|model| callable(&incoming.key, model)).collect();
    let slice = page_range(shape, incoming.request.query(), &models)?;
    let shown = models.get(slice.clone()).unwrap_or_default();
    let data: Vec<Value> = shown.iter().map(|(id, model)| model_json(shape, id, model)).collect();
    let more = slice.end < models.len();
    let body = match shape {
        ModelListShape::Chat => {
            let query = query_pairs(incoming.request.query());
            match query.iter().any(|(name, _)| name == codex_catalog::VERSION_PARAMETER) {
                true => {
                    let catalog = codex_catalog::entries(shown);
                    json!({ "object": "list", "data": data, "models": catalog })
                }
                false => json!({ "object": "list", "data": data }),
            }
        }
        ModelListShape::Messages => json!({
            "data": data,
            "first_id": shown.first().map(|(id, _)| id),
            "last_id": shown.last().map(|(id, _)| id),
            "has_more": more,
        }),
        ModelListShape::Native if more => {
            json!({ "models": data, "nextPageToken": slice.end.to_string() })
        }
        ModelListShape::Native => json!({ "models": data }),
    };
    Ok(json_response(body.to_string()))
}

/// Returns every id by which a key may call a model. A key may be restricted to aliases, so each id
/// is checked.
fn callable<'a>(key: &ApiKey, model: &'a Model) -> impl Iterator<Item = (&'a str, &'a Model)> {
    let all = key.may_use(&model.id);
    let names = std::iter::once(&model.id).chain(&model.aliases);
    let mine = names.filter(move |name| all || key.may_use(name));
    mine.map(move |name| (name.as_str(), model))
}

/// Returns the page a query selects, with the parameters of its format. Chat has no pages.
fn page_range(
    shape: ModelListShape,
    query: &str,
    models: &[(&str, &Model)],
) -> Result<Range<usize>, ApiError> {
    let all = models.len();
    let position = |id: &str| models.iter().position(|(own, _)| *own == id);
    let count = |name: &str, value: &str| match value.parse::<usize>() {
        Ok(count @ 1..=1000) => Ok(count),
        _ => Err(ApiError::invalid(name, format!("`{name}` must be between 1 and 1000"))),
    };
    let mut from = 0;
    let mut before = None;
    let mut limit = match shape {
        ModelListShape::Chat => return Ok(0..all),
        ModelListShape::Messages => 20,
        ModelListShape::Native => 50,
    };
    for (name, value) in query_pairs(query) {
        match (shape, name.as_str()) {
            (ModelListShape::Messages, "limit") => limit = count("limit", &value)?,
            (ModelListShape::Messages, "after_id") => {
                from = position(&value).map_or(all, |at| at + 1)
            }
            (ModelListShape::Messages, "before_id") => before = position(&value),
            (ModelListShape::Native, "pageSize") => limit = count("pageSize", &value)?,
            (ModelListShape::Native, "pageToken") => {
                from = value.parse().map_err(|_| {
                    ApiError::invalid("pageToken", "`pageToken` was not issued by this gateway")
                })?;
            }
            _ => {}
        }
    }
    if let Some(end) = before {
        return Ok(end.saturating_sub(limit)..end);
    }
    let from = from.min(all);
    Ok(from..from.saturating_add(limit).min(all))
}

pub(super) async fn get(incoming: ApiRequest) -> Result<Response, ApiError> {
    let shape = ModelListShape::of(&incoming.request);
    get_as(&incoming, shape)
}

fn get_as(incoming: &ApiRequest, shape: ModelListShape) -> Result<Response, ApiError> {
    let path = incoming.request.path();
    let id = path.split_once("/models/").map_or("", |(_, id)| id);
    let id = percent_decode(id);
    let config = incoming.state.config();
    let model = config.routes.get(&id).map(|route| &*route.model);
    match model.filter(|model| callable(&incoming.key, model).any(|(name, _)| name == id)) {
        Some(model) => Ok(json_response(model_json(shape, &id, model).to_string())),
        None => Err(relay::unknown_model(&id)),
    }
}

/// JSON of a model under one of its ids.
fn model_json(shape: ModelListShape, id: &str, model: &Model) -> Value {
    let created = model.released.as_deref().unwrap_or("2025-01-01");
    let can = &model.capabilities;
    let mut json = match shape {
        ModelListShape::Chat => json!({
            "id": id,
            "object": "model",
            "created": unix_seconds(created),
            "owned_by": model.provider,
            "shutdown_date": model.retires,
        }),
        ModelListShape::Messages => json!({
            "type": "model",
            "id": id,
            "display_name": id,
            "created_at": format!("{created}T00:00:00Z"),
            "max_input_tokens": can.context_window,
            "max_tokens": can.max_output_tokens,
            "capabilities": messages_capabilities(can),
            "lifecycle": if model.retires.is_some() { "deprecated" } else { "active" },
            "retires_at": model.retires.as_ref().map(|day| format!("{day}T00:00:00Z")),
        }),
        ModelListShape::Native => json!({
            "name": format!("models/{id}"),
            "baseModelId": model.id,
            "version": model.as_of,
            "displayName": id,
            "description": model.about,
            "inputTokenLimit": can.context_window.unwrap_or_default(),
            "outputTokenLimit": can.max_output_tokens.unwrap_or_default(),
            "supportedGenerationMethods": generation_methods(model.kind),
            "temperature": can.parameter("temperature").and_then(|range| range.default),
            "maxTemperature": can.parameter("temperature").and_then(|range| range.max),
            "topP": can.parameter("top_p").and_then(|range| range.default),
            "topK": can.parameter("top_k").and_then(|range| range.default),
            "thinking": can.thinking.range().is_some(),
        }),
    };
    // Only the messages format writes a value that it does not have as null.
    if let (Value::Object(fields), ModelListShape::Chat | ModelListShape::Native) =
        (&mut json, shape)
    {
        fields.retain(|_, value| !value.is_null());
    }
    json
}

/// Capabilities in the words of the messages format, which names all of them. Null if nothing is known.
fn messages_capabilities(can: &ModelCapabilities) -> Value {
    if can.input.is_empty() {
        return Value::Null;
    }
    let supported = |holds: bool| json!({ "supported": holds });
    let reads = |word: &str| can.input.iter().any(|own| own == word);
    let uses = |kind| can.tools.as_ref().is_some_and(|tools| tools.contains(&kind));
    let (code, search) = (uses(ToolKind::CodeExecution), uses(ToolKind::WebSearch));
    let forms = can.structured_output.as_deref().unwrap_or_default();
    let range = can.thinking.range();
    let levels = range.map(|range| range.levels.as_slice()).unwrap_or_default();
    let level = |level: EffortLevel| supported(levels.contains(&level));
    json!({
        "batch": supported(false),
        "citations": supported(reads("document")),
        "code_execution": supported(false),
        "context_management": supported(false),
        "effort": {
            "supported": !levels.is_empty(),
            "low": level(EffortLevel::Low),
            "medium": level(EffortLevel::Medium),
            "high": level(EffortLevel::High),
            "xhigh": level(EffortLevel::XHigh),
            "max": level(EffortLevel::Max),
        },
        "image_input": supported(reads("image")),
        "pdf_input": supported(reads("document")),
        "server_tools": {
            "supported": code || search,
            "code_execution": supported(code),
            "web_search": supported(search),
        },
        "structured_outputs": supported(forms.contains(&JsonOutput::Schema)),
        "thinking": {
            "supported": range.is_some(),
            "types": {
                "adaptive": supported(range.is_some_and(|range| range.dynamic)),
                "between_tools": supported(false),
                "disabled": supported(range.is_none_or(|range| range.can_disable)),
                "enabled": supported(range.is_some_and(ThinkingRange::accepts_budget)),
            },
        },
    })
}

const fn generation_methods(kind: ModelKind) -> &'static [&'static str] {
    match kind {
        ModelKind::Chat => &["generateContent", "streamGenerateContent", "countTokens"],
        ModelKind::Image => &["generateContent"],
        ModelKind::Embedding => &["embedContent", "batchEmbedContents"],
    }
}

fn unix_seconds(date: &str) -> i64 {
    let midnight = format!("{date}T00:00:00Z");
    midnight.parse::<jiff::Timestamp>().map_or(0, jiff::Timestamp::as_second)
}

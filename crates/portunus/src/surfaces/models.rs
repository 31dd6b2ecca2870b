//! `GET /v1/models` and `/v1/models/{id}`, in the shape the caller's client knows.

use axum::response::Response;
use canon::{Fault, Trouble};
use catalog::{Kind, Model};
use http::HeaderMap;
use serde_json::{Value, json};
use std::sync::Arc;

use super::{Asked, json};
use crate::respond::is_native_client;

/// Whose shape is asked for.
#[derive(Clone, Copy)]
enum Shape {
    Chat,
    Messages,
    Native,
}

impl Shape {
    fn of(headers: &HeaderMap) -> Self {
        if headers.contains_key("anthropic-version") {
            Self::Messages
        } else if is_native_client(headers) {
            Self::Native
        } else {
            Self::Chat
        }
    }
}

pub(super) async fn list(asked: Asked) -> Result<Response, Fault> {
    let shape = Shape::of(asked.request.headers());
    let config = asked.app.config();
    let models: Vec<&Arc<Model>> =
        config.catalog.iter().filter(|model| asked.key.may_use(&model.id)).collect();
    let data: Vec<Value> = models.iter().map(|model| record(shape, model)).collect();
    let body = match shape {
        Shape::Chat => json!({ "object": "list", "data": data }),
        Shape::Messages => json!({
            "data": data,
            "first_id": models.first().map(|model| &model.id),
            "last_id": models.last().map(|model| &model.id),
            "has_more": false,
        }),
        Shape::Native => json!({ "models": data }),
    };
    Ok(json(body.to_string()))
}

pub(super) async fn get(asked: Asked) -> Result<Response, Fault> {
    let path = asked.request.uri().path();
    let id = path.strip_prefix("/v1/models/").unwrap_or_default().replace("%2F", "/");
    let id = id.replace("%2f", "/").replace("%3A", ":").replace("%3a", ":");
    let config = asked.app.config();
    let model = config.catalog.get(&id).filter(|model| asked.key.may_use(&model.id));
    match model {
        Some(model) => Ok(json(record(Shape::of(asked.request.headers()), model).to_string())),
        None => Err(unknown(&id)),
    }
}

/// No such model; what was asked for is repeated, but not at length.
pub(crate) fn unknown(id: &str) -> Fault {
    let shown: String = id.chars().filter(|c| !c.is_control()).take(64).collect();
    Fault::new(
        Trouble::NoModel,
        format!("the model `{shown}` does not exist or is not served here; see GET /api/models"),
    )
}

fn record(shape: Shape, model: &Model) -> Value {
    let created = model.released.as_deref().unwrap_or("2025-01-01");
    match shape {
        Shape::Chat => json!({
            "id": model.id,
            "object": "model",
            "created": seconds(created),
            "owned_by": model.provider,
        }),
        Shape::Messages => json!({
            "type": "model",
            "id": model.id,
            "display_name": model.id,
            "created_at": format!("{created}T00:00:00Z"),
            "max_input_tokens": model.context,
            "max_tokens": model.max_output,
            "lifecycle": "active",
        }),
        Shape::Native => json!({
            "name": format!("models/{}", model.id),
            "baseModelId": model.id,
            "version": model.as_of,
            "displayName": model.id,
            "description": model.about,
            "inputTokenLimit": model.context.unwrap_or_default(),
            "outputTokenLimit": model.max_output.unwrap_or_default(),
            "supportedGenerationMethods": methods(model.kind),
            "thinking": model.thinking.is_some(),
        }),
    }
}

const fn methods(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Chat => &["generateContent", "streamGenerateContent", "countTokens"],
        Kind::Image => &["generateContent"],
        Kind::Embedding => &["embedContent"],
    }
}

fn seconds(date: &str) -> i64 {
    let midnight = format!("{date}T00:00:00Z");
    midnight.parse::<jiff::Timestamp>().map_or(0, jiff::Timestamp::as_second)
}

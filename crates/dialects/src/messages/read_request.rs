//! Reads a messages request into canon.

use canon::{
    ApiError, ChatRequest, ConversationState, ExtraFields, JsonSchema, Part, RequestHints,
    ResponseFormat, Role, SamplingOptions, ServiceTier, Turn,
};
use serde_json::{Map, Value};

use super::names::{EFFORT_EXTRA, ORIGIN, ROLE_EXTRA};
use super::signatures::{self, BlockAuthor};
use super::{fault, read_blocks, thinking, tools, wire};
use crate::fields::{JsonPath, ObjectReader};
use crate::json;
use crate::json_tree::JsonTree;

/// Reads a request. `rules` has checked it before; only types are checked here.
pub(super) fn read(body: &[u8]) -> Result<ChatRequest, ApiError> {
    let text = json::checked_text(body)?;
    let value: JsonTree<'_> = serde_json::from_str(text)
        .map_err(|e| ApiError::invalid("", format!("the body is not valid JSON: {e}")))?;
    let mut fields = ObjectReader::new(value, &JsonPath::Root)?;

    if fields.take("thread").is_some() {
        // Another provider holds the history of the thread, so the reply would ignore it. Clients
        // resend the whole history on this error.
        return Err(ApiError::invalid("thread", "`thread` is not supported for this model")
            .with_code(fault::THREAD_UNSUPPORTED));
    }
    let model = fields.required("model")?;
    let mut turns = system(&mut fields)?;
    turns.extend(messages(fields.items("messages")?)?);
    let tools = tools::read(fields.list("tools")?.unwrap_or_default())?;
    let choice = tools::read_choice(fields.object("tool_choice")?)?;
    let sampling = SamplingOptions {
        temperature: fields.number("temperature")?,
        top_p: fields.number("top_p")?,
        top_k: fields.integer("top_k")?,
        stop_sequences: fields.strings("stop_sequences")?.unwrap_or_default(),
        max_output_tokens: fields.count("max_tokens")?,
        ..SamplingOptions::default()
    };
    let mut config = fields.object("output_config")?.unwrap_or_default();
    let format = match (config.shift_remove("format"), fields.take("output_format")) {
        (Some(Value::Object(format)), _) | (_, Some(Value::Object(format))) => read_format(format),
        _ => ResponseFormat::Text,
    };
    let word = config.get("effort").and_then(Value::as_str).map(str::to_owned);
    let effort = word.as_deref().and_then(thinking::level);
    let (thinking, own_thinking) = thinking::read(fields.object("thinking")?, effort);
    let stream = fields.flag("stream")?.unwrap_or(false);
    let (hints, speed) = hints(&mut fields)?;
    let mut rest = fields.remaining();
    if let Some(speed) = speed {
        rest.insert("speed".to_owned(), speed);
    }
    // Thinking that is off has no level in canon, so the effort is kept for this format only.
    if effort.is_some() && thinking.level == effort {
        config.shift_remove("effort");
        rest.extend(word.map(|word| (EFFORT_EXTRA.to_owned(), Value::from(word))));
    }
    config.retain(|_, value| !value.is_null());
    if !config.is_empty() {
        rest.insert("output_config".to_owned(), Value::Object(config));
    }
    if let Some(own) = own_thinking {
        rest.insert("thinking".to_owned(), own);
    }
    Ok(ChatRequest {
        model,
        turns,
        tools,
        tool_choice: choice,
        sampling,
        thinking,
        response_format: format,
        modalities: Vec::new(),
        image_shape: canon::ImageShape::default(),
        stream,
        state: ConversationState::default(),
        hints,
        extras: ExtraFields::from_fields(ORIGIN, rest),
    })
}

/// Reads the instructions before the conversation.
fn system(fields: &mut ObjectReader<'_>) -> Result<Vec<Turn>, ApiError> {
    let path = JsonPath::Root.key("system");
    let parts = match fields.take("system") {
        None => return Ok(Vec::new()),
        Some(Value::String(text)) => vec![Part::text(text)],
        Some(Value::Array(blocks)) => blocks
            .into_iter()
            .enumerate()
            .map(|(at, block)| read_blocks::read(block, &path.item(at), BlockAuthor::History))
            .collect::<Result<_, _>>()?,
        Some(_) => return Err(path.fault("`system` must be a string or a list of text blocks")),
    };
    Ok(if parts.is_empty() { Vec::new() } else { vec![Turn::new(Role::System, parts)] })
}

fn messages(list: Vec<JsonTree<'_>>) -> Result<Vec<Turn>, ApiError> {
    let root = JsonPath::Root.key("messages");
    let mut turns = Vec::with_capacity(list.len());
    for (at, message) in list.into_iter().enumerate() {
        let path = root.item(at);
        let mut fields = ObjectReader::new(message, &path)?;
        let role = match fields.required("role")?.as_str() {
            "user" => Role::User,
            "assistant" => Role::Assistant,
            "system" => Role::System,
            _ => return Err(fields.fault("role", "is not a role of this format")),
        };
        let parts = signatures::restore(read_blocks::content(&mut fields, BlockAuthor::History)?);
        let mut extras = fields.extras(ORIGIN);
        if role == Role::System {
            extras.insert(ORIGIN, ROLE_EXTRA, Value::from("system"));
        }
        turns.push(Turn { role, parts, name: None, extras });
    }
    Ok(turns)
}

fn read_format(mut format: Map<String, Value>) -> ResponseFormat {
    let schema = format.shift_remove("schema");
    match (format.get("type").and_then(Value::as_str), schema) {
        (Some("json_schema"), Some(schema)) => ResponseFormat::Schema {
            name: None,
            description: None,
            schema: JsonSchema::new(schema),
            strict: None,
        },
        _ => ResponseFormat::Text,
    }
}

/// Reads the hints, and a `speed` that only this format knows.
fn hints(fields: &mut ObjectReader<'_>) -> Result<(RequestHints, Option<Value>), ApiError> {
    let mut metadata = fields.object("metadata")?.unwrap_or_default();
    let user = match metadata.shift_remove("user_id") {
        Some(Value::String(user)) => Some(user),
        _ => None,
    };
    let tier = fields.string("service_tier")?.as_deref().map(wire::read_tier);
    let (tier, speed) = match (tier, fields.take("speed")) {
        (None, Some(Value::String(word))) if word == "fast" => (Some(ServiceTier::Fast), None),
        (tier, speed) => (tier, speed),
    };
    Ok((
        RequestHints { user, metadata, service_tier: tier, cache_key: None, verbosity: None },
        speed,
    ))
}

//! Writes a messages request.

use canon::{
    ApiError, ChatRequest, ConversationState, EffortLevel, Losses, Lossy, Modality, Part, PartKind,
    RequestHints, ResponseFormat, Role, SamplingOptions, ServiceTier, ThinkingOptions, Turn,
};
use serde_json::{Map, Value};

use super::names::{EFFORT_EXTRA, ORIGIN, PATH, ROLE_EXTRA};
use super::own::schema;
use super::own::thinking::{self, ThinkingLimits, ThinkingRequest, ThinkingSupport};
use super::{usage, write_content, write_tools};
use crate::checks::require_turns;
use crate::fields::{JsonPath, ObjectWriter, note_foreign_fields, note_foreign_options, number};
use crate::json::BodySegments;
use crate::thinking_controls::ThinkingControls;
use crate::{LaneSettings, ProviderRequest};

/// The output limit if neither caller nor catalog sets one; the format requires it.
const DEFAULT_MAX_TOKENS: u64 = 4_096;

/// Writes a request for a lane.
pub(super) fn write(
    chat: &ChatRequest,
    lane: &LaneSettings<'_>,
) -> Result<Lossy<ProviderRequest>, ApiError> {
    let ChatRequest {
        model: _,
        turns,
        tools,
        tool_choice: choice,
        sampling,
        thinking,
        response_format: format,
        modalities,
        image_shape: canvas,
        stream,
        state,
        hints,
        extras,
    } = chat;
    let mut losses = Losses::new();
    note_foreign_options(extras, ORIGIN, &mut losses);
    losses.add_if(
        *canvas != canon::ImageShape::default(),
        "canvas",
        "the messages format replies only in text",
    );
    losses.add_if(
        modalities.iter().any(|modality| *modality != Modality::Text),
        "modalities",
        "the messages format replies only in text",
    );
    let steering = ThinkingControls::for_lane(lane);
    let WrittenConversation { mut system, messages, lacks_thinking } =
        conversation(turns, &mut losses)?;
    let mut config = match extras.get(ORIGIN, "output_config") {
        Some(Value::Object(config)) => config.clone(),
        _ => Map::new(),
    };
    if let Some(word) = extras.get(ORIGIN, EFFORT_EXTRA) {
        config.insert("effort".to_owned(), word.clone());
    }
    write_format(format, &mut config, &mut system, &mut losses);
    let set = lane.max_payable_output.or(sampling.max_output_tokens).or(lane.model_max_output);
    let room = ThinkingLimits {
        max_tokens: set.unwrap_or(DEFAULT_MAX_TOKENS),
        free: set.is_none(),
        own_effort: config.contains_key("effort"),
        lacks_thinking,
    };
    let own_thinking = extras.get(ORIGIN, "thinking");
    let asked = thinking_request(*thinking, own_thinking, room, &steering, &mut losses);
    if let Some(word) = asked.effort {
        config.entry("effort").or_insert_with(|| Value::from(word));
    }

    let body = ObjectWriter::new().set("model", lane.model).set("max_tokens", asked.max_tokens);
    let body =
        body.set_some("system", (!system.is_empty()).then(|| write_content::content(system)));
    let body = body.set("messages", messages);
    let body = write_tools::write(body, tools, choice, asked.on, &mut losses)?;
    let body =
        write_sampling(body, sampling, asked.on, ThinkingSupport::of(&steering), &mut losses);
    let body = body
        .set_some("thinking", asked.thinking)
        .set_some("output_config", (!config.is_empty()).then_some(config));
    let body = write_hints(body, hints, state, &mut losses);
    let body = body.set_some("stream", stream.then_some(true)).with_extras(extras, ORIGIN);
    let body = body.to_json();
    Ok((
        ProviderRequest { path: PATH.to_owned(), body: BodySegments::single(body) },
        losses.into_vec(),
    ))
}

/// Returns the thinking fields. The caller's own fields win over canon.
fn thinking_request(
    thinking: ThinkingOptions,
    own: Option<&Value>,
    room: ThinkingLimits,
    steering: &ThinkingControls,
    losses: &mut Losses,
) -> ThinkingRequest {
    match own {
        Some(own) => ThinkingRequest {
            thinking: Some(own.clone()),
            max_tokens: room.max_tokens,
            on: thinking.level != Some(EffortLevel::Off),
            ..ThinkingRequest::default()
        },
        None => thinking::write(thinking, room, steering, losses),
    }
}

/// Returns true if the conversation continues after calls whose turn does not begin with thinking.
fn lacks_thinking(messages: &[PendingMessage]) -> bool {
    let [.., before, last] = messages else { return false };
    let first = before.results.first().or(before.rest.first()).and_then(kind);
    !last.results.is_empty() && !matches!(first, Some("thinking" | "redacted_thinking"))
}

fn kind(block: &Value) -> Option<&str> {
    block.get("type").and_then(Value::as_str)
}

/// The conversation as this format writes it.
struct WrittenConversation {
    system: Vec<Value>,
    messages: Vec<ObjectWriter>,
    lacks_thinking: bool,
}

/// A message under construction. Results come first, as the format requires.
struct PendingMessage {
    role: &'static str,
    results: Vec<Value>,
    rest: Vec<Value>,
    extras: Map<String, Value>,
}

impl PendingMessage {
    fn into_object(self) -> ObjectWriter {
        let Self { role, mut results, rest, extras } = self;
        results.extend(rest);
        ObjectWriter::new()
            .set("role", role)
            .set("content", write_content::content(results))
            .with_fields(extras.iter().map(|(name, value)| (name.as_str(), value)))
    }
}

fn conversation(turns: &[Turn], losses: &mut Losses) -> Result<WrittenConversation, ApiError> {
    let root = JsonPath::Root.key("turns");
    let mut system = Vec::new();
    let mut messages: Vec<PendingMessage> = Vec::new();
    for (at, turn) in turns.iter().enumerate() {
        let Turn { role, parts, name, extras } = turn;
        note_foreign_fields(extras, ORIGIN, "turn", losses);
        losses.add_if(name.is_some(), "turn.name", "the messages format has no participant names");
        let path = root.item(at);
        let path = path.key("parts");
        let own_role = extras.get(ORIGIN, ROLE_EXTRA).is_some();
        let (role, blocks) = match role {
            Role::User => ("user", blocks(parts, &path, losses)?),
            Role::Assistant => ("assistant", assistant_blocks(parts, &path, losses)?),
            Role::System | Role::Developer if own_role => ("system", blocks(parts, &path, losses)?),
            Role::System | Role::Developer if messages.is_empty() => {
                system.extend(instructions(parts, losses));
                continue;
            }
            Role::System | Role::Developer => {
                losses.add("turn.system", "later instructions are sent as user text");
                ("user", instructions(parts, losses).into_iter().map(with_system_tags).collect())
            }
        };
        if blocks.is_empty() {
            continue;
        }
        let fresh = messages.last().is_none_or(|last| last.role != role);
        if fresh {
            messages.push(PendingMessage {
                role,
                results: Vec::new(),
                rest: Vec::new(),
                extras: Map::new(),
            });
        }
        if let Some(message) = messages.last_mut() {
            for block in blocks {
                let result = kind(&block) == Some("tool_result");
                if result { message.results.push(block) } else { message.rest.push(block) }
            }
            for (name, value) in extras.for_format(ORIGIN).into_iter().flatten() {
                if name == ROLE_EXTRA {
                    continue;
                }
                message.extras.entry(name.clone()).or_insert_with(|| value.clone());
            }
        }
    }
    let lacks_thinking = lacks_thinking(&messages);
    let mut messages: Vec<ObjectWriter> =
        messages.into_iter().map(PendingMessage::into_object).collect();
    if messages.is_empty() && !system.is_empty() {
        losses.add("turn.system", "a conversation of instructions alone is sent as user text");
        let content = write_content::content(std::mem::take(&mut system));
        messages.push(ObjectWriter::new().set("role", "user").set("content", content));
    }
    require_turns(turns, &messages)?;
    Ok(WrittenConversation { system, messages, lacks_thinking })
}

fn blocks(
    parts: &[Part],
    path: &JsonPath<'_>,
    losses: &mut Losses,
) -> Result<Vec<Value>, ApiError> {
    let mut blocks = Vec::with_capacity(parts.len());
    for (at, part) in parts.iter().enumerate() {
        blocks.extend(write_content::write(part, &path.item(at), losses)?);
    }
    Ok(blocks)
}

/// Writes an assistant turn. The format takes no media in it.
fn assistant_blocks(
    parts: &[Part],
    path: &JsonPath<'_>,
    losses: &mut Losses,
) -> Result<Vec<Value>, ApiError> {
    let mut blocks = Vec::with_capacity(parts.len());
    for (at, part) in parts.iter().enumerate() {
        if matches!(part.kind, PartKind::Media(_)) {
            losses.add("turn.media", "assistant turns hold no media in this format");
        } else {
            blocks.extend(write_content::write(part, &path.item(at), losses)?);
        }
    }
    Ok(blocks)
}

/// Writes instructions, which hold only text.
fn instructions(parts: &[Part], losses: &mut Losses) -> Vec<Value> {
    let path = JsonPath::Root.key("system");
    parts
        .iter()
        .filter_map(|part| {
            if part.as_text().is_none() {
                losses.add("system", "instructions of the messages format hold only text");
                return None;
            }
            write_content::write(part, &path, losses).ok().flatten()
        })
        .collect()
}

fn with_system_tags(mut block: Value) -> Value {
    if let Some(text) = block.get_mut("text")
        && let Some(instruction) = text.as_str()
    {
        *text = Value::from(format!("<system>\n{instruction}\n</system>"));
    }
    block
}

fn write_format(
    format: &ResponseFormat,
    config: &mut Map<String, Value>,
    system: &mut Vec<Value>,
    losses: &mut Losses,
) {
    match format {
        ResponseFormat::Text => {}
        ResponseFormat::Json => {
            losses.add(
                "format.json",
                "the messages format has no JSON mode, so the prompt asks for JSON",
            );
            let words = "Answer with a single JSON object and nothing else.";
            system.push(ObjectWriter::new().set("type", "text").set("text", words).into());
        }
        ResponseFormat::Schema { name: _, description, schema, strict } => {
            losses.add_if(
                *strict == Some(false),
                "format.strict",
                "the messages format always enforces the schema",
            );
            let mut shape = schema::restrict(&schema.json);
            if let (Some(words), Value::Object(fields)) = (description, &mut shape) {
                fields.entry("description").or_insert_with(|| Value::from(words.as_str()));
            }
            let format = ObjectWriter::new().set("type", "json_schema").set("schema", shape);
            config.insert("format".to_owned(), format.into());
        }
    }
}

fn write_sampling(
    body: ObjectWriter,
    sampling: &SamplingOptions,
    thinks: bool,
    generation: ThinkingSupport,
    losses: &mut Losses,
) -> ObjectWriter {
    let SamplingOptions {
        temperature,
        top_p,
        top_k,
        presence_penalty,
        frequency_penalty,
        seed,
        stop_sequences: stop,
        max_output_tokens: _,
        candidates,
        logprobs,
    } = sampling;
    const NONE: &str = "the messages format has no such field";
    losses.add_if(presence_penalty.is_some(), "sampling.presence_penalty", NONE);
    losses.add_if(frequency_penalty.is_some(), "sampling.frequency_penalty", NONE);
    losses.add_if(seed.is_some(), "sampling.seed", NONE);
    losses.add_if(logprobs.is_some(), "sampling.logprobs", NONE);
    losses.add_if(candidates.is_some_and(|n| n > 1), "sampling.candidates", NONE);
    let refusing = generation == ThinkingSupport::Adaptive;
    let temperature = temperature.filter(|value| {
        let refused = (thinks || refusing) && *value != 1.0;
        losses.add_if(refused, "sampling.temperature", "this model takes no temperature here");
        !refused
    });
    losses.add_if(
        temperature.is_some_and(|value| value > 1.0),
        "sampling.temperature",
        "the messages format limits the temperature to 1",
    );
    // Some models refuse both parameters together, and a `top_p` of 1 has no effect.
    let top_p = top_p.filter(|value| *value < 1.0 || temperature.is_none());
    let top_p = top_p.filter(|value| {
        let refused = (thinks && *value < 0.95) || (refusing && *value < 0.99);
        losses.add_if(refused, "sampling.top_p", "this model takes no nucleus sampling here");
        !refused
    });
    let top_k = top_k.filter(|_| {
        losses.add_if(thinks || refusing, "sampling.top_k", "this model takes no such field here");
        !thinks && !refusing
    });
    body.set_some("temperature", temperature.map(|value| number(value.clamp(0.0, 1.0))))
        .set_some("top_p", top_p.map(number))
        .set_some("top_k", top_k)
        .set_some("stop_sequences", (!stop.is_empty()).then(|| stop.clone()))
}

fn write_hints(
    body: ObjectWriter,
    hints: &RequestHints,
    state: &ConversationState,
    losses: &mut Losses,
) -> ObjectWriter {
    let RequestHints { user, metadata, service_tier: tier, cache_key, verbosity } = hints;
    let ConversationState { store, previous_response: previous, background } = state;
    const KEPT: &str = "the messages format stores no conversations";
    losses.add_if(*store == Some(true), "state.store", KEPT);
    losses.add_if(previous.is_some(), "state.previous", KEPT);
    losses.add_if(
        *background == Some(true),
        "state.background",
        "the messages format has no background mode",
    );
    losses.add_if(
        !metadata.is_empty(),
        "hints.metadata",
        "the messages format takes only a user id",
    );
    losses.add_if(cache_key.is_some(), "hints.cache_key", "the messages format has no such field");
    losses.add_if(verbosity.is_some(), "hints.verbosity", "the messages format has no such field");
    let word = tier.as_ref().and_then(usage::write_tier);
    let fast = *tier == Some(ServiceTier::Fast);
    losses.add_if(
        tier.is_some() && word.is_none() && !fast,
        "hints.tier",
        "the messages format lacks this tier",
    );
    let metadata = user.as_deref().map(|user| ObjectWriter::new().set("user_id", user));
    body.set_some("metadata", metadata)
        .set_some("service_tier", word)
        .set_some("speed", fast.then_some("fast"))
}

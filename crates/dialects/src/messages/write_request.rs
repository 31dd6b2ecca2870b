//! Writes a messages request.

use canon::{
    ApiError, ChatRequest, ConversationState, EffortLevel, ExtraFields, ImageShape, Losses, Lossy,
    Modality, PartKind, RequestHints, ResponseFormat, Role, SamplingOptions, ServiceTier, Turn,
};
use serde_json::{Map, Value};

use super::names::{EFFORT_EXTRA, ORIGIN, PATH, ROLE_EXTRA};
use super::own::schema;
use super::own::thinking::{self, ThinkingLimits, ThinkingRequest};
use super::request::MessagesRequestView;
use super::write_content::RequestBlock;
use super::{write_content, write_tools};
use crate::checks::require_turns;
use crate::fields::{MOVED_MEDIA, ObjectWriter, note_foreign_fields, note_foreign_options, number};
use crate::request_option::note_lost_options;
use crate::service_tier::write_request_tier;
use crate::thinking_range::lane_range;
use crate::wire_rule::FieldProblem;
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
        tool_choice,
        sampling,
        thinking,
        response_format,
        modalities,
        image_shape,
        stream,
        state,
        hints,
        extras,
    } = chat;
    let mut losses = Losses::new();
    note_foreign_options(extras, ORIGIN, &mut losses);
    note_lost_options(MessagesRequestView::FIELDS, chat, ORIGIN, &mut losses);
    let only_text = "the messages format replies only in text";
    losses.add_if(*image_shape != ImageShape::default(), "canvas", only_text);
    losses.add_if(modalities.iter().any(|m| *m != Modality::Text), "modalities", only_text);
    let controls = lane_range(lane);
    let (mut system, messages) = write_conversation(turns, &mut losses)?;
    let config = extras.get(ORIGIN, "output_config").and_then(Value::as_object);
    let mut config = config.cloned().unwrap_or_default();
    let effort = extras.get(ORIGIN, EFFORT_EXTRA);
    config.extend(effort.map(|word| ("effort".to_owned(), word.clone())));
    write_format(response_format, &mut config, &mut system, &mut losses);
    let set = lane.max_payable_output.or(sampling.max_output_tokens).or(lane.model_max_output);
    let limits = ThinkingLimits {
        max_tokens: set.unwrap_or(DEFAULT_MAX_TOKENS),
        free: set.is_none(),
        own_effort: config.contains_key("effort"),
        lacks_thinking: lacks_thinking(&messages),
    };
    // The caller's own fields win over canon.
    let asked = match extras.get(ORIGIN, "thinking") {
        Some(own) => ThinkingRequest {
            thinking: Some(own.clone()),
            max_tokens: limits.max_tokens,
            on: thinking.level != Some(EffortLevel::Off),
            ..ThinkingRequest::default()
        },
        None => thinking::write(*thinking, limits, &controls, &mut losses),
    };
    if let Some(word) = asked.effort {
        config.entry("effort").or_insert_with(|| Value::from(word));
    }
    let blocks = messages.iter().flat_map(|message| &message.blocks);
    let text_bytes: usize = blocks.map(RequestBlock::text_bytes).sum();
    let body = ObjectWriter::with_room(text_bytes)
        .set("model", lane.model)
        .set("max_tokens", asked.max_tokens)
        .set_some("system", (!system.is_empty()).then(|| write_content::content(system)))
        .nest_each("messages", messages, |object, message| message.write(object));
    let body = write_tools::write(body, tools, tool_choice, asked.on, &mut losses)?;
    let refuses = thinking::is_only_adaptive(&controls);
    let body = write_sampling(body, sampling, asked.on, refuses, &mut losses)
        .set_some("thinking", asked.thinking)
        .set_some("output_config", (!config.is_empty()).then_some(config));
    let body = write_hints(body, hints, state, &mut losses)
        .set_some("stream", stream.then_some(true))
        .with_extras(extras, ORIGIN);
    Ok((ProviderRequest::new(PATH, body), losses.into_vec()))
}

/// A message under construction.
#[derive(Default)]
struct PendingMessage<'a> {
    role: &'static str,
    blocks: Vec<RequestBlock<'a>>,
    extras: Map<String, Value>,
}

impl PendingMessage<'_> {
    fn write(self, object: ObjectWriter) -> ObjectWriter {
        object
            .set("role", self.role)
            .set("content", write_content::content(self.blocks))
            .with_fields(&self.extras)
    }

    fn first_kind(&self) -> &str {
        self.blocks.first().map_or("", RequestBlock::kind)
    }
}

/// Returns true if the conversation continues after calls whose turn does not begin with thinking.
fn lacks_thinking(messages: &[PendingMessage<'_>]) -> bool {
    let [.., before, last] = messages else { return false };
    last.first_kind() == "tool_result"
        && !matches!(before.first_kind(), "thinking" | "redacted_thinking")
}

/// Writes the instructions and the messages.
fn write_conversation<'a>(
    turns: &'a [Turn],
    losses: &mut Losses,
) -> Result<(Vec<RequestBlock<'a>>, Vec<PendingMessage<'a>>), ApiError> {
    let mut system = Vec::new();
    let mut messages: Vec<PendingMessage<'a>> = Vec::new();
    for (at, turn) in turns.iter().enumerate() {
        let Turn { role, parts: _, name, extras } = turn;
        note_foreign_fields(extras, ORIGIN, "turn", losses);
        losses.add_if(name.is_some(), "turn.name", "the messages format has no participant names");
        let is_system = matches!(role, Role::System | Role::Developer) && !is_own_instruction(turn);
        let is_late = is_system && !messages.is_empty();
        let blocks = write_turn(turn, is_late, losses);
        let (mut blocks, shown) =
            blocks.map_err(|problem| problem.inside(&format!("turns[{at}]")).into_unwritable())?;
        let role = match role {
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::System | Role::Developer if !is_system => "system",
            Role::System | Role::Developer if !is_late => {
                system.append(&mut blocks);
                continue;
            }
            Role::System | Role::Developer => {
                losses.add("turn.system", "later instructions are sent as user text");
                "user"
            }
        };
        if !blocks.is_empty() {
            push_message(&mut messages, role, blocks, extras);
        }
        if !shown.is_empty() {
            push_message(&mut messages, "user", shown, &ExtraFields::new());
        }
    }
    for message in &mut messages {
        // Results come first, as the format requires.
        message.blocks.sort_by_key(|block| block.kind() != "tool_result");
    }
    if messages.is_empty() && !system.is_empty() {
        losses.add("turn.system", "a conversation of instructions alone is sent as user text");
        let blocks = std::mem::take(&mut system);
        messages.push(PendingMessage { role: "user", blocks, extras: Map::new() });
    }
    require_turns(turns, &messages)?;
    Ok((system, messages))
}

/// Adds blocks to the last message, or to a new one if that has another role.
fn push_message<'a>(
    messages: &mut Vec<PendingMessage<'a>>,
    role: &'static str,
    mut blocks: Vec<RequestBlock<'a>>,
    extras: &ExtraFields,
) {
    if messages.last().is_none_or(|last| last.role != role) {
        messages.push(PendingMessage { role, ..PendingMessage::default() });
    }
    if let Some(message) = messages.last_mut() {
        message.blocks.append(&mut blocks);
        let own = extras.for_format(ORIGIN).into_iter().flatten();
        for (name, value) in own.filter(|(name, _)| *name != ROLE_EXTRA) {
            message.extras.entry(name.clone()).or_insert_with(|| value.clone());
        }
    }
}

/// Returns true for instructions in mid-conversation that the caller sent in this format.
fn is_own_instruction(turn: &Turn) -> bool {
    turn.extras.get(ORIGIN, ROLE_EXTRA).is_some()
}

/// Writes a turn. Returns its blocks, and media of the model, which are shown in a message of the user.
fn write_turn<'a>(
    turn: &'a Turn,
    is_late: bool,
    losses: &mut Losses,
) -> Result<(Vec<RequestBlock<'a>>, Vec<RequestBlock<'a>>), FieldProblem> {
    let takes_only_text =
        matches!(turn.role, Role::System | Role::Developer) && !is_own_instruction(turn);
    let (mut blocks, mut shown) = (Vec::with_capacity(turn.parts.len()), Vec::new());
    for (at, part) in turn.parts.iter().enumerate() {
        if takes_only_text && part.as_text().is_none() {
            losses.add("system", write_content::ONLY_TEXT_INSTRUCTIONS);
            continue;
        }
        let block = write_content::write(part, is_late, losses);
        let block = block.map_err(|problem| problem.inside(&format!("parts[{at}]")))?;
        if turn.role == Role::Assistant && matches!(part.kind, PartKind::Media(_)) {
            losses.add_if(block.is_some(), "media.role", MOVED_MEDIA);
            shown.extend(block);
        } else {
            blocks.extend(block);
        }
    }
    Ok((blocks, shown))
}

fn write_format(
    format: &ResponseFormat,
    config: &mut Map<String, Value>,
    system: &mut Vec<RequestBlock<'_>>,
    losses: &mut Losses,
) {
    match format {
        ResponseFormat::Text => {}
        ResponseFormat::Json => {
            let why = "the messages format has no JSON mode, so the prompt asks for JSON";
            losses.add("format.json", why);
            let words = "Answer with a single JSON object and nothing else.";
            system.push(RequestBlock::Text(words.into()));
        }
        ResponseFormat::Schema { name: _, description, schema, strict } => {
            let why = "the messages format always enforces the schema";
            losses.add_if(*strict == Some(false), "format.strict", why);
            let mut schema = schema::restrict(&schema.json);
            if let (Some(words), Value::Object(fields)) = (description, &mut schema) {
                fields.entry("description").or_insert_with(|| Value::from(words.as_str()));
            }
            let format = ObjectWriter::typed("json_schema").set("schema", schema);
            config.insert("format".to_owned(), format.into());
        }
    }
}

fn write_sampling(
    body: ObjectWriter,
    sampling: &SamplingOptions,
    thinks: bool,
    refuses: bool,
    losses: &mut Losses,
) -> ObjectWriter {
    let SamplingOptions { temperature, top_p, top_k, stop_sequences, candidates, logprobs, .. } =
        sampling;
    const NONE: &str = "the messages format has no such field";
    losses.add_if(logprobs.is_some(), "sampling.logprobs", NONE);
    losses.add_if(candidates.is_some_and(|n| n > 1), "sampling.candidates", NONE);
    let mut is_taken = |is_refused: bool, name, why| {
        losses.add_if(is_refused, name, why);
        !is_refused
    };
    let temperature = temperature.filter(|value| {
        let is_refused = (thinks || refuses) && *value != 1.0;
        is_taken(is_refused, "sampling.temperature", "this model takes no temperature here")
    });
    let why = "the messages format limits the temperature to 1";
    is_taken(temperature.is_some_and(|value| value > 1.0), "sampling.temperature", why);
    // Some models refuse both parameters together, and a `top_p` of 1 has no effect.
    let top_p = top_p.filter(|value| *value < 1.0 || temperature.is_none());
    let top_p = top_p.filter(|value| {
        let is_refused = (thinks && *value < 0.95) || (refuses && *value < 0.99);
        is_taken(is_refused, "sampling.top_p", "this model takes no nucleus sampling here")
    });
    let why = "this model takes no such field here";
    let top_k = top_k.filter(|_| is_taken(thinks || refuses, "sampling.top_k", why));
    body.set_some("temperature", temperature.map(|value| number(value.clamp(0.0, 1.0))))
        .set_some("top_p", top_p.map(number))
        .set_some("top_k", top_k)
        .set_some("stop_sequences", (!stop_sequences.is_empty()).then(|| stop_sequences.clone()))
}

fn write_hints(
    body: ObjectWriter,
    hints: &RequestHints,
    state: &ConversationState,
    losses: &mut Losses,
) -> ObjectWriter {
    let RequestHints { user, metadata, service_tier: tier, cache_key: _, verbosity: _ } = hints;
    let ConversationState { store: _, previous_response: previous, conversation, background } =
        state;
    let is_kept = previous.is_some() || conversation.is_some();
    let why = "the messages format stores no conversations";
    losses.add_if(is_kept, "state.previous", why);
    let why = "the messages format has no background mode";
    losses.add_if(*background == Some(true), "state.background", why);
    let why = "the messages format takes only a user id";
    losses.add_if(!metadata.is_empty(), "hints.metadata", why);
    let word = write_request_tier(tier.as_ref(), ORIGIN, losses);
    let is_fast = *tier == Some(ServiceTier::Fast);
    let metadata = user.as_deref().map(|user| ObjectWriter::new().set("user_id", user));
    body.set_some("metadata", metadata)
        .set_some("service_tier", word)
        .set_some("speed", is_fast.then_some("fast"))
}

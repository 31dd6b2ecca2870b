//! Writes a responses request from canon.
//!
//! The provider stores nothing (`store: false`) unless the caller asked for it in this format.
//! Callers of other formats send their history again, so encrypted thinking is requested.
//!
//! See <https://platform.openai.com/docs/api-reference/responses/create>.

use canon::{
    ApiError, ChatRequest, ConversationState, EffortLevel, Losses, Lossy, Modality, RequestHints,
    ResponseFormat, Role, SamplingOptions, ThinkingDisplay, ThinkingOptions, ToolChoice, Turn,
};
use serde_json::Value;

use super::names::{
    INCLUDE_ENCRYPTED_REASONING, INCLUDE_LOGPROBS, MIN_OUTPUT_TOKENS, ORIGIN, PATH, write_show,
};
use super::write_content::ItemListWriter;
use super::write_tools;
use crate::checks::require_turns;
use crate::fields::{ObjectWriter, note_foreign_options, number};
use crate::json::BodySegments;
use crate::openai_values;
use crate::{LaneSettings, ProviderRequest, ThinkingControls};

/// Maximum length of `safety_identifier`. Longer ids go into `user`.
const MAX_SAFETY_ID_BYTES: usize = 64;

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
    let declared = write_tools::write(tools, &mut losses);
    let has_added = !declared.added.is_empty();
    let mut instructions = None;
    let mut items = ItemListWriter::new(turns, tools, &mut losses);
    let mut added = declared.added.into_iter().peekable();
    for (at, turn) in turns.iter().enumerate() {
        while let Some((_, item)) = added.next_if(|(turn, _)| *turn <= at) {
            items.push(item);
        }
        match instructions_of(turn) {
            Some(text) if at == 0 => instructions = Some(text),
            _ => items.turn(turn),
        }
    }
    for (_, item) in added {
        items.push(item);
    }
    let input = items.finish();
    if instructions.is_none() {
        require_turns(turns, &input)?;
    }

    let body = ObjectWriter::new()
        .set("model", lane.model)
        .set_some("instructions", instructions)
        .set("input", input);
    let tool_list = (!declared.tools.is_empty()).then_some(declared.tools);
    let ToolChoice { mode: _, parallel } = choice;
    // The service rejects these fields without tools.
    let has_tools = tool_list.is_some() || has_added;
    // A choice that canon cannot express was kept whole.
    let tool_choice = match extras.get(ORIGIN, "tool_choice") {
        Some(kept) => Some(kept.clone()),
        None => write_tools::write_choice(choice, tools).filter(|_| has_tools),
    };
    let body = body
        .set_some("tools", tool_list)
        .set_some("tool_choice", tool_choice)
        .set_some("parallel_tool_calls", parallel.filter(|_| has_tools));
    let body = write_sampling(body, sampling, lane, &mut losses);
    let ThinkingOptions { level: _, budget: _, dynamic: _, display: show } = *thinking;
    let wish = thinking.effective_level();
    let level =
        wish.and_then(|level| ThinkingControls::for_lane(lane).effort_level(level, &mut losses));
    let body = body
        .set_some("reasoning", write_thinking(level, show, extras))
        .set_some("text", write_text(format, hints.verbosity.as_deref(), extras));
    let body = write_hints(body, hints, state, &mut losses);
    losses.add_if(
        *canvas != canon::ImageShape::default(),
        "canvas",
        "the responses format has no image shape",
    );
    losses.add_if(
        modalities.iter().any(|kind| *kind != Modality::Text),
        "modalities",
        "the responses format replies in text, and in images only through a tool",
    );
    let mut body = body.set("include", write_include(sampling, extras)).with_extras(extras, ORIGIN);
    if *stream {
        body = body.set("stream", true);
    }
    let body = body.to_json();
    let request = ProviderRequest { path: PATH.to_owned(), body: BodySegments::single(body) };
    Ok((request, losses.into_vec()))
}

/// Returns the text of a turn that can become `instructions`: a plain system text.
pub(super) fn instructions_of(turn: &Turn) -> Option<&str> {
    let Turn { role, parts, name, extras } = turn;
    let plain = *role == Role::System && name.is_none() && extras.for_format(ORIGIN).is_none();
    match parts.as_slice() {
        [part]
            if plain
                && part.cache_breakpoint.is_none()
                && part.extras.for_format(ORIGIN).is_none() =>
        {
            part.as_text()
        }
        _ => None,
    }
}

fn write_sampling(
    body: ObjectWriter,
    sampling: &SamplingOptions,
    lane: &LaneSettings<'_>,
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
        max_output_tokens: max_output,
        candidates,
        logprobs,
    } = sampling;
    const NO_SUCH_FIELD: &str = "the responses format has no such field";
    losses.add_if(top_k.is_some(), "sampling.top_k", NO_SUCH_FIELD);
    losses.add_if(presence_penalty.is_some(), "sampling.presence_penalty", NO_SUCH_FIELD);
    losses.add_if(frequency_penalty.is_some(), "sampling.frequency_penalty", NO_SUCH_FIELD);
    losses.add_if(seed.is_some(), "sampling.seed", NO_SUCH_FIELD);
    losses.add_if(!stop.is_empty(), "sampling.stop", NO_SUCH_FIELD);
    losses.add_if(
        candidates.is_some_and(|n| n > 1),
        "sampling.candidates",
        "the responses format has a single candidate",
    );
    losses.add_if(
        lane.max_payable_output.is_none()
            && max_output.is_some_and(|limit| limit < MIN_OUTPUT_TOKENS),
        "sampling.max_output",
        "the responses format takes no limit below 16 tokens, so 16 is sent",
    );
    let limit = lane.max_payable_output.or(*max_output).map(|limit| limit.max(MIN_OUTPUT_TOKENS));
    body.set_some("max_output_tokens", limit)
        .set_some("temperature", temperature.map(number))
        .set_some("top_p", top_p.map(number))
        .set_some("top_logprobs", logprobs.filter(|n| *n > 0))
}

/// Writes `reasoning`: effort, summary and the kept fields of this format.
pub(super) fn write_thinking(
    level: Option<EffortLevel>,
    show: Option<ThinkingDisplay>,
    extras: &canon::ExtraFields,
) -> Option<Value> {
    let kept = extras.get(ORIGIN, "reasoning").and_then(Value::as_object).cloned();
    let object = ObjectWriter::new()
        .set_some("effort", level.map(EffortLevel::as_str))
        .set_some("summary", show.and_then(write_show))
        .with_extras(&canon::ExtraFields::from_fields(ORIGIN, kept.unwrap_or_default()), ORIGIN)
        .into_map();
    (!object.is_empty()).then(|| Value::Object(object))
}

/// Writes `text`: format, verbosity and the kept fields of this format.
pub(super) fn write_text(
    format: &ResponseFormat,
    verbosity: Option<&str>,
    extras: &canon::ExtraFields,
) -> Option<Value> {
    let format = match format {
        ResponseFormat::Text => None,
        ResponseFormat::Json => Some(ObjectWriter::new().set("type", "json_object")),
        ResponseFormat::Schema { name, description, schema, strict } => Some(
            ObjectWriter::new()
                .set("type", "json_schema")
                .set("name", name.as_deref().unwrap_or("answer"))
                .set_some("description", description.as_deref())
                .set("schema", schema.json.clone())
                .set_some("strict", *strict),
        ),
    };
    let kept = extras.get(ORIGIN, "text").and_then(Value::as_object).cloned();
    let object = ObjectWriter::new()
        .set_some("format", format)
        .set_some("verbosity", verbosity)
        .with_extras(&canon::ExtraFields::from_fields(ORIGIN, kept.unwrap_or_default()), ORIGIN)
        .into_map();
    (!object.is_empty()).then(|| Value::Object(object))
}

/// Writes `include`: always the encrypted thinking, because only that can be sent back, and the
/// requested values.
fn write_include(sampling: &SamplingOptions, extras: &canon::ExtraFields) -> Value {
    let mut include = vec![Value::from(INCLUDE_ENCRYPTED_REASONING)];
    if sampling.logprobs.is_some() {
        include.push(Value::from(INCLUDE_LOGPROBS));
    }
    let kept = extras.get(ORIGIN, "include").and_then(Value::as_array);
    include.extend(kept.into_iter().flatten().cloned());
    Value::Array(include)
}

fn write_hints(
    body: ObjectWriter,
    hints: &RequestHints,
    state: &ConversationState,
    losses: &mut Losses,
) -> ObjectWriter {
    let RequestHints { user, metadata, service_tier: tier, cache_key, verbosity: _ } = hints;
    let ConversationState { store, previous_response: previous, background } = state;
    let written = tier.as_ref().and_then(openai_values::write_tier);
    losses.add_if(
        tier.is_some() && written.is_none(),
        "hints.tier",
        "the responses format lacks this tier",
    );
    let user = user.as_deref();
    let short = user.filter(|user| user.len() <= MAX_SAFETY_ID_BYTES);
    let long = user.filter(|user| user.len() > MAX_SAFETY_ID_BYTES);
    body.set_some("safety_identifier", short)
        .set_some("user", long)
        .set_some("metadata", (!metadata.is_empty()).then(|| metadata.clone()))
        .set_some("service_tier", written)
        .set_some("prompt_cache_key", cache_key.as_deref())
        // The default of this format is to store, unlike every other format.
        .set("store", store.unwrap_or(false))
        .set_some("previous_response_id", previous.as_deref())
        .set_some("background", *background)
}

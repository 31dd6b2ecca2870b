//! Writes a responses request from canon.
//!
//! The provider stores nothing (`store: false`) unless the caller asked for it in this format.
//! Callers of other formats send their history again, so encrypted thinking is requested.
//!
//! See <https://platform.openai.com/docs/api-reference/responses/create>.

use canon::{
    Chat, Format, Hints, Level, Losses, Lossy, Modality, Role, Sampling, Show, State, Thinking,
    ToolChoice, Turn,
};
use serde_json::Value;

use super::names::{
    INCLUDE_ENCRYPTED_REASONING, INCLUDE_LOGPROBS, MIN_OUTPUT_TOKENS, ORIGIN, PATH,
};
use super::write_items::ItemListWriter;
use super::{wire, write_tools};
use crate::fields::{Object, number};
use crate::json::Segments;
use crate::{Lane, Outgoing, Steering};

/// Maximum length of `safety_identifier`. Longer ids go into `user`.
const MAX_SAFETY_ID_BYTES: usize = 64;

/// Writes a request for a lane.
pub(super) fn write(chat: &Chat, lane: &Lane<'_>) -> Lossy<Outgoing> {
    let Chat {
        model: _,
        turns,
        tools,
        choice,
        sampling,
        thinking,
        format,
        modalities,
        canvas,
        stream,
        state,
        hints,
        extras,
    } = chat;
    let mut losses = Losses::new();
    // Streams of this format always report usage.
    for name in extras.foreign_to(ORIGIN).filter(|name| *name != "stream_options") {
        losses.add(name, "only the caller's format has this field");
    }
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

    let body = Object::new()
        .set("model", lane.model)
        .maybe("instructions", instructions)
        .set("input", input);
    let tool_list = (!declared.tools.is_empty()).then_some(declared.tools);
    let ToolChoice { choice: _, parallel } = choice;
    // The service rejects these fields without tools.
    let has_tools = tool_list.is_some() || has_added;
    // A choice that canon cannot express was kept whole.
    let tool_choice = match extras.get(ORIGIN, "tool_choice") {
        Some(kept) => Some(kept.clone()),
        None => write_tools::write_choice(choice, tools).filter(|_| has_tools),
    };
    let body = body
        .maybe("tools", tool_list)
        .maybe("tool_choice", tool_choice)
        .maybe("parallel_tool_calls", parallel.filter(|_| has_tools));
    let body = write_sampling(body, sampling, lane, &mut losses);
    let Thinking { level: _, budget: _, dynamic: _, show } = *thinking;
    let wish = thinking.as_level();
    let level = wish.and_then(|level| Steering::of(lane).effort(level, &mut losses));
    let body = body
        .maybe("reasoning", write_thinking(level, show, extras))
        .maybe("text", write_text(format, hints.verbosity.as_deref(), extras));
    let body = write_hints(body, hints, state, &mut losses);
    losses.add_if(
        *canvas != canon::Canvas::default(),
        "canvas",
        "the responses format has no image shape",
    );
    losses.add_if(
        modalities.iter().any(|kind| *kind != Modality::Text),
        "modalities",
        "the responses format replies in text, and in images only through a tool",
    );
    let mut body = body.set("include", write_include(sampling, extras)).with(extras, ORIGIN);
    if *stream {
        body = body.set("stream", true);
    }
    let body = Value::from(body).to_string();
    (Outgoing { path: PATH.to_owned(), body: Segments::whole(body) }, losses.into_vec())
}

/// Returns the text of a turn that can become `instructions`: a plain system text.
pub(super) fn instructions_of(turn: &Turn) -> Option<&str> {
    let Turn { role, parts, name, extras } = turn;
    let plain = *role == Role::System && name.is_none() && extras.for_origin(ORIGIN).is_none();
    match parts.as_slice() {
        [part] if plain && part.cache.is_none() && part.extras.for_origin(ORIGIN).is_none() => {
            part.as_text()
        }
        _ => None,
    }
}

fn write_sampling(
    body: Object,
    sampling: &Sampling,
    lane: &Lane<'_>,
    losses: &mut Losses,
) -> Object {
    let Sampling {
        temperature,
        top_p,
        top_k,
        presence_penalty,
        frequency_penalty,
        seed,
        stop,
        max_output,
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
        lane.limit.is_none() && max_output.is_some_and(|limit| limit < MIN_OUTPUT_TOKENS),
        "sampling.max_output",
        "the responses format takes no limit below 16 tokens, so 16 is sent",
    );
    let limit = lane.limit.or(*max_output).map(|limit| limit.max(MIN_OUTPUT_TOKENS));
    body.maybe("max_output_tokens", limit)
        .maybe("temperature", temperature.map(number))
        .maybe("top_p", top_p.map(number))
        .maybe("top_logprobs", logprobs.filter(|n| *n > 0))
}

/// Writes `reasoning`: effort, summary and the kept fields of this format.
pub(super) fn write_thinking(
    level: Option<Level>,
    show: Option<Show>,
    extras: &canon::Extras,
) -> Option<Value> {
    let kept = extras.get(ORIGIN, "reasoning").and_then(Value::as_object).cloned();
    let object = Object::new()
        .maybe("effort", level.map(Level::word))
        .maybe("summary", show.and_then(wire::write_show))
        .with(&canon::Extras::of(ORIGIN, kept.unwrap_or_default()), ORIGIN)
        .into_map();
    (!object.is_empty()).then(|| Value::Object(object))
}

/// Writes `text`: format, verbosity and the kept fields of this format.
pub(super) fn write_text(
    format: &Format,
    verbosity: Option<&str>,
    extras: &canon::Extras,
) -> Option<Value> {
    let format = match format {
        Format::Text => None,
        Format::Json => Some(Object::new().set("type", "json_object")),
        Format::Schema { name, description, schema, strict } => Some(
            Object::new()
                .set("type", "json_schema")
                .set("name", name.as_deref().unwrap_or("answer"))
                .maybe("description", description.as_deref())
                .set("schema", schema.json.clone())
                .maybe("strict", *strict),
        ),
    };
    let kept = extras.get(ORIGIN, "text").and_then(Value::as_object).cloned();
    let object = Object::new()
        .maybe("format", format)
        .maybe("verbosity", verbosity)
        .with(&canon::Extras::of(ORIGIN, kept.unwrap_or_default()), ORIGIN)
        .into_map();
    (!object.is_empty()).then(|| Value::Object(object))
}

/// Writes `include`: always the encrypted thinking, because only that can be sent back, and the
/// requested values.
fn write_include(sampling: &Sampling, extras: &canon::Extras) -> Value {
    let mut include = vec![Value::from(INCLUDE_ENCRYPTED_REASONING)];
    if sampling.logprobs.is_some() {
        include.push(Value::from(INCLUDE_LOGPROBS));
    }
    let kept = extras.get(ORIGIN, "include").and_then(Value::as_array);
    include.extend(kept.into_iter().flatten().cloned());
    Value::Array(include)
}

fn write_hints(body: Object, hints: &Hints, state: &State, losses: &mut Losses) -> Object {
    let Hints { user, metadata, tier, cache_key, verbosity: _ } = hints;
    let State { store, previous, background } = state;
    let written = tier.as_ref().and_then(wire::write_tier);
    losses.add_if(
        tier.is_some() && written.is_none(),
        "hints.tier",
        "the responses format lacks this tier",
    );
    let user = user.as_deref();
    let short = user.filter(|user| user.len() <= MAX_SAFETY_ID_BYTES);
    let long = user.filter(|user| user.len() > MAX_SAFETY_ID_BYTES);
    body.maybe("safety_identifier", short)
        .maybe("user", long)
        .maybe("metadata", (!metadata.is_empty()).then(|| metadata.clone()))
        .maybe("service_tier", written)
        .maybe("prompt_cache_key", cache_key.as_deref())
        // The default of this format is to store, unlike every other format.
        .set("store", store.unwrap_or(false))
        .maybe("previous_response_id", previous.as_deref())
        .maybe("background", *background)
}

//! Writes a responses request from canon.
//!
//! The provider stores nothing (`store: false`) unless the caller asked for it in this format.
//! Callers of other formats send their history again, so encrypted thinking is requested.
//!
//! See <https://platform.openai.com/docs/api-reference/responses/create>.

use canon::{
    ApiError, ChatRequest, ConversationState, EffortLevel, ExtraFields, Losses, Lossy, Modality,
    RequestHints, Role, SamplingOptions, Turn,
};
use serde_json::Value;

use super::names::{
    INCLUDE_ENCRYPTED_REASONING, INCLUDE_LOGPROBS, MIN_OUTPUT_TOKENS, ORIGIN, PATH, SUMMARIES,
};
use super::request::ResponsesRequestView;
use super::write_content::ItemListWriter;
use super::write_tools;
use crate::checks::require_turns;
use crate::fields::{ObjectWriter, note_foreign_options};
use crate::openai_values::write_format;
use crate::request_option::{note_lost_options, write_options};
use crate::service_tier::write_request_tier;
use crate::text::word_for;
use crate::thinking_range::lane_range;
use crate::{LaneSettings, ProviderRequest};

/// Maximum length of `safety_identifier`. Longer ids go into `user`.
const MAX_SAFETY_ID_BYTES: usize = 64;

/// Writes a request for a lane.
pub(super) fn write(
    chat: &ChatRequest,
    lane: &LaneSettings<'_>,
) -> Result<Lossy<ProviderRequest>, ApiError> {
    let ChatRequest { turns, tools, tool_choice: choice, sampling, extras, .. } = chat;
    let mut losses = Losses::new();
    note_foreign_options(extras, ORIGIN, &mut losses);
    let declared = write_tools::write(tools, &mut losses);
    let has_added = !declared.added.is_empty();
    let instructions = turns.first().and_then(instructions_of);
    let mut items = ItemListWriter::new(turns, tools, &mut losses);
    let mut added = declared.added.into_iter().peekable();
    for (at, turn) in turns.iter().enumerate() {
        while let Some((_, item)) = added.next_if(|(turn, _)| *turn <= at) {
            items.push(item);
        }
        if at > 0 || instructions.is_none() {
            items.turn(turn);
        }
    }
    added.for_each(|(_, item)| items.push(item));
    let input = items.finish();
    if instructions.is_none() {
        require_turns(turns, &input)?;
    }

    let body = ObjectWriter::new()
        .set("model", lane.model)
        .set_some("instructions", instructions)
        .set("input", input);
    let tool_list = (!declared.tools.is_empty()).then_some(declared.tools);
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
        .set_some("parallel_tool_calls", choice.parallel.filter(|_| has_tools));
    note_lost_options(ResponsesRequestView::FIELDS, chat, ORIGIN, &mut losses);
    let body = write_options(body, ResponsesRequestView::FIELDS, chat);
    let limit = sampling.max_output_tokens;
    let why = "the responses format has no such field";
    losses.add_if(!sampling.stop_sequences.is_empty(), "sampling.stop", why);
    let why = "the responses format has a single candidate";
    losses.add_if(sampling.candidates.is_some_and(|n| n > 1), "sampling.candidates", why);
    let why = "the responses format takes no limit below 16 tokens, so 16 is sent";
    let is_low = lane.max_payable_output.is_none() && limit.is_some_and(|n| n < MIN_OUTPUT_TOKENS);
    losses.add_if(is_low, "sampling.max_output", why);
    let limit = lane.max_payable_output.or(limit).map(|limit| limit.max(MIN_OUTPUT_TOKENS));
    let level = chat.thinking.effective_level();
    let controls = lane_range(lane);
    let level = level.and_then(|level| controls.effort_level(level, &mut losses));
    let thinks = controls.has_controls();
    let reasoning = write_thinking(level, chat).into_filled().filter(|_| thinks);
    let include = write_include(thinks, sampling, extras);
    let body = body
        .set_some("max_output_tokens", limit)
        .set_some("top_logprobs", sampling.logprobs.filter(|n| *n > 0))
        .set_some("reasoning", reasoning)
        .set_some("text", write_text(chat).into_filled());
    let body = write_hints(body, chat, &mut losses);
    let is_shaped = chat.image_shape != canon::ImageShape::default();
    losses.add_if(is_shaped, "canvas", "the responses format has no image shape");
    let has_others = chat.modalities.iter().any(|kind| *kind != Modality::Text);
    let why = "the responses format replies in text, and in images only through a tool";
    losses.add_if(has_others, "modalities", why);
    let body = body.set_some("include", (!include.is_empty()).then_some(include));
    let body = body.with_extras(extras, ORIGIN);
    let body = body.set_some("stream", chat.stream.then_some(true));
    Ok((ProviderRequest::new(PATH, body), losses.into_vec()))
}

/// Returns the text of a turn that can become `instructions`: a plain system text.
pub(super) fn instructions_of(turn: &Turn) -> Option<&str> {
    let Turn { role, parts, name, extras } = turn;
    let [part] = parts.as_slice() else { return None };
    let is_plain = *role == Role::System && name.is_none() && part.cache_breakpoint.is_none();
    let is_own = [extras, &part.extras].iter().any(|extras| extras.for_format(ORIGIN).is_some());
    part.as_text().filter(|_| is_plain && !is_own)
}

/// Writes `reasoning`: effort, summary and the kept fields of this format.
pub(super) fn write_thinking(level: Option<EffortLevel>, chat: &ChatRequest) -> ObjectWriter {
    ObjectWriter::new()
        .set_some("effort", level.map(EffortLevel::as_str))
        .set_some("summary", chat.thinking.display.and_then(|show| word_for(&SUMMARIES, &show)))
        .with_object(chat.extras.get(ORIGIN, "reasoning"))
}

/// Writes `text`: format, verbosity and the kept fields of this format.
pub(super) fn write_text(chat: &ChatRequest) -> ObjectWriter {
    ObjectWriter::new()
        .set_some("format", write_format(&chat.response_format, false))
        .set_some("verbosity", chat.hints.verbosity.as_deref())
        .with_object(chat.extras.get(ORIGIN, "text"))
}

/// Writes `include`: the encrypted thinking of every model that thinks, because only that can be sent
/// back, and the requested values.
fn write_include(thinks: bool, sampling: &SamplingOptions, extras: &ExtraFields) -> Vec<Value> {
    let own = thinks.then_some(INCLUDE_ENCRYPTED_REASONING).into_iter();
    let own = own.chain(sampling.logprobs.map(|_| INCLUDE_LOGPROBS)).map(Value::from);
    let kept = extras.get(ORIGIN, "include").and_then(Value::as_array);
    own.chain(kept.into_iter().flatten().cloned()).collect()
}

fn write_hints(body: ObjectWriter, chat: &ChatRequest, losses: &mut Losses) -> ObjectWriter {
    let RequestHints { user, metadata, service_tier: tier, cache_key: _, verbosity: _ } =
        &chat.hints;
    let ConversationState { store, previous_response: previous, conversation, background } =
        &chat.state;
    let tier = write_request_tier(tier.as_ref(), ORIGIN, losses);
    let is_long = user.as_ref().is_some_and(|user| user.len() > MAX_SAFETY_ID_BYTES);
    body.set_some(if is_long { "user" } else { "safety_identifier" }, user.as_deref())
        .set_some("metadata", (!metadata.is_empty()).then(|| metadata.clone()))
        .set_some("service_tier", tier)
        // The default of this format is to store, unlike every other format.
        .set("store", store.unwrap_or(false))
        .set_some("previous_response_id", previous.as_deref())
        .set_some("conversation", conversation.as_deref())
        .set_some("background", *background)
}

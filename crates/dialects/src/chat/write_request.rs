//! Writes a chat request from canon.

use canon::{
    ApiError, ConversationState, EffortLevel, Losses, Lossy, RequestHints, SamplingOptions,
    ThinkingDisplay, ThinkingOptions,
};

use super::names::{MAX_STOP_SEQUENCES, MODALITIES, ORIGIN, PATH, REASONING_EXTRA};
use super::request::ChatRequestView;
use super::write_content::{write_shown, write_turn};
use super::write_tools;
use crate::checks::require_turns;
use crate::fields::{ObjectWriter, note_foreign_options};
use crate::openai_values::write_format;
use crate::request_option::{note_lost_options, write_options};
use crate::service_tier::write_request_tier;
use crate::text::word_for;
use crate::thinking_range::lane_range;
use crate::{LaneSettings, ProviderRequest};

/// Writes a request for a lane.
pub(super) fn write(
    chat: &canon::ChatRequest,
    lane: &LaneSettings<'_>,
) -> Result<Lossy<ProviderRequest>, ApiError> {
    let canon::ChatRequest {
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
    let mut messages = Vec::with_capacity(turns.len());
    let mut shown = Vec::new();
    for turn in turns {
        write_turn(turn, lane, &mut shown, &mut messages, &mut losses);
    }
    write_shown(&mut shown, lane, &mut messages, &mut losses);
    require_turns(turns, &messages)?;
    let body =
        ObjectWriter::with_room_for(&messages).set("model", lane.model).set("messages", messages);
    let body = write_tools::write(body, tools, choice, &mut losses);
    note_lost_options(ChatRequestView::FIELDS, chat, ORIGIN, &mut losses);
    let body = write_options(body, ChatRequestView::FIELDS, chat);
    let body = write_sampling(body, sampling, lane, &mut losses);
    let body = match extras.get(ORIGIN, REASONING_EXTRA) {
        Some(own) => body.set("reasoning", own.clone()),
        None => body.set_some("reasoning_effort", write_thinking(*thinking, lane, &mut losses)),
    };
    let body = body.set_some("response_format", write_format(format, true));
    let words = modalities.iter().filter_map(|modality| word_for(&MODALITIES, modality));
    let words: Vec<&str> = words.collect();
    let body = write_hints(body, hints, state, &mut losses)
        .set_some("modalities", (!words.is_empty()).then_some(words));
    let canon::ImageShape { aspect_ratio: ratio, size } = canvas;
    let own = extras.get(ORIGIN, "image_config");
    let config = (ratio.is_some() || size.is_some() || own.is_some()).then(|| {
        ObjectWriter::new()
            .set_some("aspect_ratio", ratio.as_deref())
            .set_some("image_size", size.as_deref())
            .with_object(own)
    });
    let body = body.set_some("image_config", config.and_then(ObjectWriter::into_filled));
    let mut body = body.with_extras(extras, ORIGIN);
    if *stream {
        let options = ObjectWriter::new().set("include_usage", true);
        body = body.set("stream", true).set("stream_options", options);
    }
    Ok((ProviderRequest::new(PATH, body), losses.into_vec()))
}

fn write_sampling(
    body: ObjectWriter,
    sampling: &SamplingOptions,
    lane: &LaneSettings<'_>,
    losses: &mut Losses,
) -> ObjectWriter {
    let SamplingOptions {
        stop_sequences: stop,
        max_output_tokens: max_output,
        candidates,
        logprobs,
        temperature: _,
        top_p: _,
        top_k: _,
        presence_penalty: _,
        frequency_penalty: _,
        seed: _,
    } = sampling;
    let why = "the chat format takes at most 4 stop sequences";
    losses.add_if(stop.len() > MAX_STOP_SEQUENCES, "sampling.stop", why);
    let stop: Vec<&str> = stop.iter().take(MAX_STOP_SEQUENCES).map(String::as_str).collect();
    body.set_some("stop", (!stop.is_empty()).then_some(stop))
        .set_some("max_completion_tokens", lane.max_payable_output.or(*max_output))
        .set_some("n", candidates.filter(|n| *n != 1))
        .set_some("logprobs", logprobs.map(|_| true))
        .set_some("top_logprobs", logprobs.filter(|n| *n > 0))
}

fn write_thinking(
    thinking: ThinkingOptions,
    lane: &LaneSettings<'_>,
    losses: &mut Losses,
) -> Option<&'static str> {
    let is_shown = thinking.display.is_some_and(|display| display != ThinkingDisplay::Hidden);
    losses.add_if(is_shown, "thinking.show", "the chat format cannot ask for a summary");
    let level = thinking.effective_level()?;
    lane_range(lane).effort_level(level, losses).map(EffortLevel::as_str)
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
    losses.add_if(is_kept, "state.previous", "the chat format stores no conversations");
    let why = "the chat format has no background mode";
    losses.add_if(*background == Some(true), "state.background", why);
    let tier = write_request_tier(tier.as_ref(), ORIGIN, losses);
    body.set_some("user", user.as_deref())
        .set_some("metadata", (!metadata.is_empty()).then(|| metadata.clone()))
        .set_some("service_tier", tier)
}

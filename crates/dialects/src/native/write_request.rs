//! Writes a native request.

use canon::{
    ApiError, ChatRequest, ConversationState, EffortLevel, Losses, Lossy, RequestHints,
    ResponseFormat, SamplingOptions, ThinkingDisplay, ThinkingOptions,
};
use serde_json::Value;

use super::names::{self, ORIGIN};
use super::own::{dotted_extras, enum_text};
use super::request::{NativeConfig, NativeRequestView};
use super::{write_content, write_tools};
use crate::checks::require_turns;
use crate::fields::{ObjectWriter, note_foreign_options};
use crate::request_option::{note_lost_options, write_options};
use crate::service_tier::write_request_tier;
use crate::text::word_for;
use crate::thinking_range::lane_range;
use crate::{LaneSettings, ProviderRequest};

/// Writes a request for a lane.
pub(super) fn write(
    chat: &ChatRequest,
    lane: &LaneSettings<'_>,
) -> Result<Lossy<ProviderRequest>, ApiError> {
    let ChatRequest { turns, tools, stream, extras, .. } = chat;
    let mut losses = Losses::new();
    note_foreign_options(extras, ORIGIN, &mut losses);
    note_lost_options(NativeRequestView::FIELDS, chat, ORIGIN, &mut losses);
    let (system, contents) = write_content::write_turns(turns, lane, &mut losses);
    require_turns(turns, &contents)?;
    let system = (!system.is_empty()).then(|| ObjectWriter::new().set("parts", system));
    let tools = write_tools::write_tools(tools, &mut losses);
    let choice = write_tools::write_choice(chat, &mut losses);
    let config = write_config(chat, lane, &mut losses);
    let body = ObjectWriter::new()
        .set_some("contents", (!contents.is_empty()).then_some(contents))
        .set_some("systemInstruction", system)
        .set_some("tools", (!tools.is_empty()).then_some(tools))
        .set_some("toolConfig", choice)
        .set_some("generationConfig", config)
        .set_some("serviceTier", write_hints(chat, &mut losses));
    let body = dotted_extras::restore(body, extras, "");
    let path = names::path(lane.model, *stream);
    Ok((ProviderRequest::new(path, body), losses.into_vec()))
}

fn write_config(
    chat: &ChatRequest,
    lane: &LaneSettings<'_>,
    losses: &mut Losses,
) -> Option<ObjectWriter> {
    let ChatRequest { sampling, modalities, image_shape, extras, .. } = chat;
    let SamplingOptions { top_k, seed, stop_sequences: stop, candidates, logprobs, .. } = sampling;
    let is_long = seed.is_some_and(|seed| i32::try_from(seed).is_err());
    let no_top_k = top_k.is_some_and(|count| count < 1);
    let many_stops = stop.len() > names::MAX_STOP_TEXTS;
    for (is_lost, path, why) in [
        (many_stops, "sampling.stop", "the native format takes at most 5 stop texts"),
        (is_long, "sampling.seed", "a native seed has 32 bits"),
        (no_top_k, "sampling.top_k", "the native format chooses among one token or more"),
        (
            candidates.is_some_and(|n| n > 8),
            "sampling.candidates",
            "the native format returns at most 8 candidates",
        ),
    ] {
        losses.add_if(is_lost, path, why);
    }
    let config = write_options(ObjectWriter::new(), NativeConfig::FIELDS, chat);
    let config = if is_long { config.without("seed") } else { config };
    let config = if no_top_k { config.without("topK") } else { config };
    let stop: Vec<&str> = stop.iter().take(names::MAX_STOP_TEXTS).map(String::as_str).collect();
    // The format has one length of summary.
    let show = chat.thinking.display.filter(|_| lane_range(lane).has_controls());
    let show = show.map(|show| show != ThinkingDisplay::Hidden);
    let thinking = write_effort(chat, lane, losses).set_some("includeThoughts", show);
    let thinking = dotted_extras::restore(thinking, extras, "generationConfig.thinkingConfig");
    let config = config
        .set_some("stopSequences", (!stop.is_empty()).then_some(stop))
        .set_some("maxOutputTokens", lane.max_payable_output.or(sampling.max_output_tokens))
        .set_some("candidateCount", candidates.map(|n| n.min(8)))
        .set_some("responseLogprobs", logprobs.map(|_| true))
        .set_some("logprobs", logprobs.filter(|n| *n > 0))
        .set_some("thinkingConfig", thinking.into_filled());
    let words = modalities.iter().filter_map(|modality| word_for(&names::MODALITIES, modality));
    let words: Vec<&str> = words.collect();
    let shape = ObjectWriter::new()
        .set_some("aspectRatio", image_shape.aspect_ratio.as_deref())
        .set_some("imageSize", image_shape.size.as_deref())
        .with_object(extras.get(ORIGIN, "generationConfig.imageConfig"));
    let config = write_format(config, chat, losses)
        .set_some("responseModalities", (!words.is_empty()).then_some(words))
        .set_some("imageConfig", shape.into_filled());
    dotted_extras::restore(config, extras, "generationConfig").into_filled()
}

/// Writes the thinking effort: a budget or a level, depending on the model,
/// <https://ai.google.dev/gemini-api/docs/thinking>.
fn write_effort(chat: &ChatRequest, lane: &LaneSettings<'_>, losses: &mut Losses) -> ObjectWriter {
    let ThinkingOptions { level, budget, dynamic, display: _ } = chat.thinking;
    let (config, steering) = (ObjectWriter::new(), lane_range(lane));
    let is_off = budget.map_or(level == Some(EffortLevel::Off), |budget| budget == 0);
    let is_wanted = !is_off && (level.is_some() || budget.is_some() || dynamic);
    if steering.note_missing_thinking(is_wanted, losses) {
        return config;
    }
    let nearest = |level, losses: &mut Losses| {
        let level = steering.nearest_level(level, &names::LEVELS, losses)?;
        Some(level.as_str().to_ascii_uppercase())
    };
    let takes_budget = steering.accepts_budget();
    match (budget, level) {
        (Some(0), _) | (None, Some(EffortLevel::Off)) => {
            if !steering.note_unavoidable_thinking(losses) {
                return config.set("thinkingBudget", 0);
            }
            match nearest(EffortLevel::Minimal, losses) {
                Some(lowest) => config.set("thinkingLevel", lowest),
                None => config.set("thinkingBudget", steering.clamp_budget(0)),
            }
        }
        (Some(budget), _) if takes_budget => {
            let clamped = steering.clamp_budget(budget);
            let why = "the budget is outside the model's range";
            losses.add_if(clamped != budget, "thinking.budget", why);
            config.set("thinkingBudget", clamped)
        }
        (Some(budget), _) => {
            losses.add("thinking.budget", "this model takes a level instead of a budget");
            config.set_some("thinkingLevel", nearest(EffortLevel::from_tokens(budget), losses))
        }
        (None, Some(level)) => match nearest(level, losses) {
            Some(word) => config.set("thinkingLevel", word),
            None => config.set("thinkingBudget", steering.clamp_budget(level.budget_tokens())),
        },
        // A model without budgets decides for itself unless it gets a level.
        (None, None) if dynamic && takes_budget => config.set("thinkingBudget", -1),
        (None, None) => config,
    }
}

fn write_format(config: ObjectWriter, chat: &ChatRequest, losses: &mut Losses) -> ObjectWriter {
    let bare = enum_text::is_requested(&chat.extras);
    let mime = if bare { enum_text::MIME } else { "application/json" };
    match &chat.response_format {
        ResponseFormat::Text => config,
        ResponseFormat::Json => config.set("responseMimeType", mime),
        ResponseFormat::Schema { name, description, schema, strict } => {
            let why = "the native format always enforces the schema";
            losses.add_if(*strict == Some(false), "format.strict", why);
            let config = config.set("responseMimeType", mime);
            match &schema.verbatim {
                Some((origin, own)) if *origin == ORIGIN => {
                    config.set("responseSchema", own.clone())
                }
                _ => {
                    let json = if bare { enum_text::unwrap(&schema.json) } else { &schema.json };
                    let schema = with_title(json, name.as_deref(), description.as_deref());
                    config.set("responseJsonSchema", schema)
                }
            }
        }
    }
}

/// Adds name and description to a schema, because the format has no other place for them.
fn with_title(schema: &Value, name: Option<&str>, description: Option<&str>) -> Value {
    let mut schema = schema.clone();
    if let Value::Object(map) = &mut schema {
        for (field, text) in [("title", name), ("description", description)] {
            if let Some(text) = text {
                map.entry(field).or_insert_with(|| text.into());
            }
        }
    }
    schema
}

/// Notes the hints that the format has no field for, and returns the service tier to write.
fn write_hints<'a>(chat: &'a ChatRequest, losses: &mut Losses) -> Option<&'a str> {
    let RequestHints { user, metadata, service_tier: tier, cache_key: _, verbosity: _ } =
        &chat.hints;
    let ConversationState { store: _, previous_response: previous, conversation, background } =
        &chat.state;
    let is_kept = previous.is_some() || conversation.is_some();
    for (is_lost, path, why) in [
        (is_kept, "state.previous", "the native format stores no conversations"),
        (*background == Some(true), "state.background", "the native format has no background mode"),
        (user.is_some(), "hints.user", "the native format has no field for the end user"),
        (!metadata.is_empty(), "hints.metadata", "the native format has no metadata"),
    ] {
        losses.add_if(is_lost, path, why);
    }
    write_request_tier(tier.as_ref(), ORIGIN, losses)
}

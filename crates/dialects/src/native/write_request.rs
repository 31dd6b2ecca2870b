//! Writes a native request.

use canon::{
    ApiError, ConversationState, EffortLevel, ExtraFields, Losses, Lossy, Part, PartKind,
    RequestHints, ResponseFormat, Role, SamplingOptions, ThinkingDisplay, ThinkingOptions, Turn,
};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::HashMap;

use super::names::{FOREIGN_SIGNATURE, ORIGIN, UNSIGNED_EXTRA};
use super::own::{dotted_extras, enum_text};
use super::{names, signatures, write_content, write_tools};
use crate::checks::require_turns;
use crate::fields::{ObjectWriter, note_foreign_fields, note_foreign_options, number};
use crate::json::BodySegments;
use crate::thinking_controls::ThinkingControls;
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
    let (system, contents) = conversation(turns, lane, &mut losses);
    require_turns(turns, &contents)?;
    let system = (!system.is_empty()).then(|| ObjectWriter::new().set("parts", system));
    let tool_list = write_tools::write_tools(tools, &mut losses);
    let config = write_sampling(sampling, lane, &mut losses);
    let config =
        config.set_some("thinkingConfig", write_thinking(*thinking, lane, extras, &mut losses));
    let config = write_format(config, format, extras, &mut losses);
    let words: Vec<&str> = modalities.iter().map(|word| names::write_modality(*word)).collect();
    let config = config.set_some("responseModalities", (!words.is_empty()).then_some(words));
    let canon::ImageShape { aspect_ratio: ratio, size } = canvas;
    let mut shape = ObjectWriter::new()
        .set_some("aspectRatio", ratio.as_deref())
        .set_some("imageSize", size.as_deref())
        .into_map();
    if let Some(Value::Object(rest)) = extras.get(ORIGIN, "generationConfig.imageConfig") {
        shape.extend(rest.clone());
    }
    let config = config.set_some("imageConfig", (!shape.is_empty()).then_some(shape));
    let config = dotted_extras::restore(config, extras, "generationConfig").into_map();
    let body = ObjectWriter::new()
        .set_some("contents", (!contents.is_empty()).then_some(contents))
        .set_some("systemInstruction", system)
        .set_some("tools", (!tool_list.is_empty()).then_some(tool_list))
        .set_some("toolConfig", write_tools::write_choice(choice, tools, extras, &mut losses))
        .set_some("generationConfig", (!config.is_empty()).then_some(config));
    let body = write_hints(body, hints, state, &mut losses);
    let body = dotted_extras::restore(body, extras, "").to_json();
    let path = names::path(lane.model, *stream);
    Ok((ProviderRequest { path, body: BodySegments::single(body) }, losses.into_vec()))
}

/// Adjacent turns of one role, which the format requires as one turn.
struct TurnGroup<'a> {
    model: bool,
    parts: Vec<Cow<'a, Part>>,
    extras: &'a ExtraFields,
}

/// Writes the system instruction and alternating turns.
fn conversation(
    turns: &[Turn],
    lane: &LaneSettings<'_>,
    losses: &mut Losses,
) -> (Vec<Value>, Vec<Value>) {
    let mut system: Vec<Value> = Vec::new();
    let mut groups: Vec<TurnGroup<'_>> = Vec::new();
    for turn in turns {
        let Turn { role, parts, name, extras } = turn;
        losses.add_if(name.is_some(), "turn.name", "the native format has no participant names");
        note_foreign_fields(extras, ORIGIN, "turn", losses);
        let (model, parts) = match role {
            Role::System | Role::Developer => {
                let texts: Vec<&str> = parts.iter().filter_map(Part::as_text).collect();
                losses.add_if(
                    texts.len() < parts.len(),
                    "system.parts",
                    "native instructions hold only text",
                );
                // Instructions before the first model turn move into the system instruction.
                if !groups.iter().any(|group| group.model) {
                    let texts = texts.into_iter().filter(|text| !text.is_empty());
                    system.extend(
                        texts.map(|text| Value::from(ObjectWriter::new().set("text", text))),
                    );
                    continue;
                }
                losses.add("turn.system", "later instructions are sent as user text");
                let text = format!("<system>{}</system>", texts.join("\n\n"));
                (false, vec![Cow::Owned(Part::text(text))])
            }
            Role::User => (false, parts.iter().map(Cow::Borrowed).collect()),
            Role::Assistant => (true, parts.iter().map(Cow::Borrowed).collect()),
        };
        match groups.last_mut() {
            Some(last) if last.model == model => last.parts.extend(parts),
            _ => groups.push(TurnGroup { model, parts, extras }),
        }
    }
    // A conversation of instructions alone still asks for a reply.
    if groups.is_empty() && !system.is_empty() {
        let content =
            ObjectWriter::new().set("role", "user").set("parts", std::mem::take(&mut system));
        return (system, vec![content.into()]);
    }
    let contents = write_groups(groups, lane, losses);
    (system, contents)
}

fn write_groups(
    groups: Vec<TurnGroup<'_>>,
    lane: &LaneSettings<'_>,
    losses: &mut Losses,
) -> Vec<Value> {
    // Models with thinking levels also take a media resolution per part.
    let close = !ThinkingControls::for_lane(lane).levels.is_empty();
    let calls: Vec<(String, String)> = groups
        .iter()
        .flat_map(|group| &group.parts)
        .filter_map(|part| match &part.kind {
            PartKind::ToolCall(call) => Some((call.id.clone(), call.name.clone())),
            _ => None,
        })
        .collect();
    let mut ranks: HashMap<&str, usize> = HashMap::with_capacity(calls.len());
    for (rank, (id, _)) in calls.iter().enumerate() {
        ranks.entry(id).or_insert(rank);
    }
    let names: HashMap<&str, &str> =
        calls.iter().map(|(id, name)| (id.as_str(), name.as_str())).collect();
    let mut written: Vec<(bool, Vec<Value>, &ExtraFields)> = Vec::with_capacity(groups.len());
    for mut group in groups {
        if !group.model {
            sort_results(&mut group.parts, &ranks);
        }
        let mut called = false;
        let mut parts: Vec<Value> = Vec::with_capacity(group.parts.len());
        for part in &group.parts {
            parts.extend(write_part(part, &mut called, &names, close, losses).map(Value::from));
        }
        match written.last_mut() {
            _ if parts.is_empty() => {}
            // The turn between the two was dropped because nothing was left of it.
            Some((model, before, _)) if *model == group.model => before.extend(parts),
            _ => written.push((group.model, parts, group.extras)),
        }
    }
    let contents = written.into_iter().map(|(model, parts, extras)| {
        let role = if model { "model" } else { "user" };
        let content = ObjectWriter::new().set("role", role).set("parts", parts);
        dotted_extras::restore(content, extras, "").into()
    });
    contents.collect()
}

/// Sorts results into the order of their calls; other parts keep their places.
fn sort_results(parts: &mut [Cow<'_, Part>], ranks: &HashMap<&str, usize>) {
    let rank = |part: &Part| match &part.kind {
        PartKind::ToolResult(result) => ranks.get(result.call_id.as_str()).copied(),
        _ => None,
    };
    let mut results: Vec<(usize, Cow<'_, Part>)> =
        parts.iter().filter_map(|part| Some((rank(part)?, part.clone()))).collect();
    results.sort_by_key(|(rank, _)| *rank);
    let mut sorted = results.into_iter();
    for part in parts {
        if rank(part).is_some()
            && let Some((_, next)) = sorted.next()
        {
            *part = next;
        }
    }
}

fn write_part(
    part: &Part,
    called: &mut bool,
    names: &HashMap<&str, &str>,
    close: bool,
    losses: &mut Losses,
) -> Option<ObjectWriter> {
    let Part { kind, signature: seal, cache_breakpoint: cache, extras } = part;
    losses.add_if(cache.is_some(), "part.cache", "the native format has no cache breakpoints");
    let own =
        seal.as_ref().and_then(|seal| seal.for_format(ORIGIN)).map(signatures::standard_alphabet);
    let from_here = extras.get(ORIGIN, UNSIGNED_EXTRA).is_some();
    let mut token = own.clone();
    match kind {
        PartKind::Text { text, citations } => {
            losses.add_if(
                !citations.is_empty(),
                "text.citations",
                "a native history has no place for citations",
            );
            if text.is_empty() && own.is_none() {
                return None;
            }
        }
        PartKind::Thought(_) if own.is_none() && !from_here => {
            let why = "the provider ignores thinking that it did not sign";
            losses.add("thought", why);
            return None;
        }
        PartKind::ToolCall(_) => {
            let first = !std::mem::replace(called, true);
            if first && own.is_none() && !from_here {
                token = Some(signatures::BYPASS_SIGNATURE.to_owned());
                losses.add(
                    "tool_call.seal",
                    "another provider made the call, so the signature check is skipped",
                );
            }
        }
        PartKind::ToolResult(result) => {
            return Some(write_content::write_result(result, names, extras, close, losses));
        }
        PartKind::Thought(_)
        | PartKind::Refusal(_)
        | PartKind::Media(_)
        | PartKind::CodeExecution(_)
        | PartKind::CodeResult(_)
        | PartKind::WebSearch(_)
        | PartKind::Foreign { .. } => {}
    }
    losses.add_if(seal.is_some() && own.is_none(), "part.seal", FOREIGN_SIGNATURE);
    let object = write_content::payload(part, close, losses)?;
    Some(object.set_some("thoughtSignature", token))
}

fn write_sampling(
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
    losses.add_if(
        stop.len() > names::MAX_STOP_TEXTS,
        "sampling.stop",
        "the native format takes at most 5 stop texts",
    );
    let stop: Vec<&str> = stop.iter().take(names::MAX_STOP_TEXTS).map(String::as_str).collect();
    let small = seed.filter(|seed| i32::try_from(*seed).is_ok());
    losses.add_if(small != *seed, "sampling.seed", "a native seed has 32 bits");
    losses.add_if(
        candidates.is_some_and(|n| n > 8),
        "sampling.candidates",
        "the native format returns at most 8 candidates",
    );
    ObjectWriter::new()
        .set_some("temperature", temperature.map(number))
        .set_some("topP", top_p.map(number))
        .set_some("topK", *top_k)
        .set_some("presencePenalty", presence_penalty.map(number))
        .set_some("frequencyPenalty", frequency_penalty.map(number))
        .set_some("seed", small)
        .set_some("stopSequences", (!stop.is_empty()).then_some(stop))
        .set_some("maxOutputTokens", lane.max_payable_output.or(*max_output))
        .set_some("candidateCount", candidates.map(|n| n.min(8)))
        .set_some("responseLogprobs", logprobs.map(|_| true))
        .set_some("logprobs", logprobs.filter(|n| *n > 0))
}

fn write_thinking(
    thinking: ThinkingOptions,
    lane: &LaneSettings<'_>,
    extras: &ExtraFields,
    losses: &mut Losses,
) -> Option<Value> {
    let ThinkingOptions { level, budget, dynamic, display: show } = thinking;
    // The format has one length of summary.
    let show = show.map(|show| show != ThinkingDisplay::Hidden);
    let config = write_effort(level, budget, dynamic, &ThinkingControls::for_lane(lane), losses);
    let config = config.set_some("includeThoughts", show);
    let config =
        dotted_extras::restore(config, extras, "generationConfig.thinkingConfig").into_map();
    (!config.is_empty()).then_some(Value::Object(config))
}

/// Writes the thinking effort: a budget or a level, depending on the model,
/// <https://ai.google.dev/gemini-api/docs/thinking>.
fn write_effort(
    level: Option<EffortLevel>,
    budget: Option<u64>,
    dynamic: bool,
    steering: &ThinkingControls,
    losses: &mut Losses,
) -> ObjectWriter {
    let config = ObjectWriter::new();
    if budget == Some(0) || (budget.is_none() && level == Some(EffortLevel::Off)) {
        if !steering.note_unavoidable_thinking(losses) {
            return config.set("thinkingBudget", 0);
        }
        return match steering.nearest_level(EffortLevel::Minimal, &LEVELS, losses) {
            Some(lowest) => config.set("thinkingLevel", level_word(lowest)),
            None => config.set("thinkingBudget", steering.clamp_budget(0)),
        };
    }
    let takes_budget = steering.budget.is_some();
    match (budget, level) {
        (Some(budget), _) if takes_budget => {
            let nearest = steering.clamp_budget(budget);
            losses.add_if(
                nearest != budget,
                "thinking.budget",
                "the budget is outside the model's range",
            );
            config.set("thinkingBudget", nearest)
        }
        (Some(budget), _) => {
            losses.add("thinking.budget", "this model takes a level instead of a budget");
            let level = steering.nearest_level(EffortLevel::from_tokens(budget), &LEVELS, losses);
            config.set_some("thinkingLevel", level.map(level_word))
        }
        (None, Some(level)) => match steering.nearest_level(level, &LEVELS, losses) {
            Some(level) => config.set("thinkingLevel", level_word(level)),
            None => config.set("thinkingBudget", steering.clamp_budget(level.budget_tokens())),
        },
        // A model without budgets decides for itself unless it gets a level.
        (None, None) if dynamic && takes_budget => config.set("thinkingBudget", -1),
        (None, None) => config,
    }
}

/// The levels that this format knows.
const LEVELS: [EffortLevel; 4] =
    [EffortLevel::Minimal, EffortLevel::Low, EffortLevel::Medium, EffortLevel::High];

const fn level_word(level: EffortLevel) -> &'static str {
    match level {
        EffortLevel::Off | EffortLevel::Minimal => "MINIMAL",
        EffortLevel::Low => "LOW",
        EffortLevel::Medium => "MEDIUM",
        EffortLevel::High | EffortLevel::XHigh | EffortLevel::Max => "HIGH",
    }
}

fn write_format(
    config: ObjectWriter,
    format: &ResponseFormat,
    extras: &ExtraFields,
    losses: &mut Losses,
) -> ObjectWriter {
    let kept = extras.get(ORIGIN, "generationConfig.responseMimeType").and_then(Value::as_str);
    let bare = enum_text::is_noted(extras);
    let mime = kept.unwrap_or(if bare { enum_text::MIME } else { "application/json" });
    match format {
        ResponseFormat::Text => config,
        ResponseFormat::Json => config.set("responseMimeType", mime),
        ResponseFormat::Schema { name, description, schema, strict } => {
            losses.add_if(
                *strict == Some(false),
                "format.strict",
                "the native format always enforces the schema",
            );
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
            if let Some(text) = text
                && !map.contains_key(field)
            {
                map.insert(field.to_owned(), Value::from(text));
            }
        }
    }
    schema
}

fn write_hints(
    body: ObjectWriter,
    hints: &RequestHints,
    state: &ConversationState,
    losses: &mut Losses,
) -> ObjectWriter {
    let RequestHints { user, metadata, service_tier: tier, cache_key, verbosity } = hints;
    let ConversationState { store, previous_response: previous, background } = state;
    // The format never stores replies. Its `store` field is too new to rely on.
    losses.add_if(*store == Some(true), "state.store", "the native format stores no replies");
    losses.add_if(
        previous.is_some(),
        "state.previous",
        "the native format stores no conversations",
    );
    losses.add_if(
        *background == Some(true),
        "state.background",
        "the native format has no background mode",
    );
    losses.add_if(user.is_some(), "hints.user", "the native format has no field for the end user");
    losses.add_if(!metadata.is_empty(), "hints.metadata", "the native format has no metadata");
    losses.add_if(cache_key.is_some(), "hints.cache_key", "the native format has no cache key");
    losses.add_if(verbosity.is_some(), "hints.verbosity", "the native format has no such field");
    let written = tier.as_ref().and_then(names::write_tier);
    losses.add_if(
        written.is_none() && tier.as_ref().is_some_and(|tier| *tier != canon::ServiceTier::Auto),
        "hints.tier",
        "the native format lacks this tier",
    );
    body.set_some("serviceTier", written)
}

//! Reads a native request into canon.

use canon::{
    ExtraFields, ImageShape, Part, PartKind, ResponseFormat, Role, Signature, ThinkingDisplay,
    ThinkingOptions, Turn,
};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::HashSet;

use super::content::{NativeContent, NativeInstruction};
use super::names::{
    ENUM_EXTRA, JSON_ARRAY_EXTRA, ORIGIN, UNSIGNED_EXTRA, read_level, read_modality,
};
use super::own::{calls, client_tools, dotted_extras, enum_text};
use super::read_content::{read_part, read_parts};
use super::read_tools;
use super::request::{NativeConfig, NativeRequestView, NativeThinking};
use crate::RequestTarget;
use crate::json;
use crate::service_tier::read_request_tier;
use crate::text::BorrowedText;

/// Reads a request that was checked while it was parsed.
pub(super) fn read(
    target: &RequestTarget,
    mut view: NativeRequestView<'_>,
) -> Box<canon::ChatRequest> {
    let mut chat = Box::<canon::ChatRequest>::default();
    chat.stream = target.stream;
    // The path names the model; a model in the body is ignored.
    let named = || json::read(view.model?.get()).ok();
    chat.model = target.model.clone().or_else(named).unwrap_or_default();
    // An instruction without parts says nothing, and some formats have no word for it.
    let instruction = view.system_instruction.map(|instruction| read_instruction(*instruction));
    chat.turns.extend(instruction.filter(|turn| !turn.parts.is_empty()));
    read_contents(view.contents.map(|list| list.0).unwrap_or_default(), &mut chat.turns);
    for tool in view.tools.into_iter().flat_map(|list| list.0) {
        read_tools::read_tool(tool, &mut chat.tools);
    }
    client_tools::drop_replaced(&mut chat.tools);
    if let Some(config) = view.tool_config {
        chat.tool_choice.mode = read_tools::read_choice(*config, &mut chat.extras);
    }
    chat.hints.service_tier =
        view.service_tier.as_deref().map(|word| read_request_tier(ORIGIN, word));
    view.rest.take("generationConfig");
    if let Some(config) = view.generation_config {
        read_config(*config, &mut chat);
    }
    dotted_extras::keep(&mut chat.extras, "", &view.rest);
    let array = (target.stream && target.json_array).then(|| Value::from("json"));
    chat.extras.insert_some(ORIGIN, JSON_ARRAY_EXTRA, array);
    chat
}

fn read_instruction(instruction: NativeInstruction<'_>) -> Turn {
    let extras = instruction.rest.to_extras(ORIGIN);
    let parts = read_parts(instruction.parts.map(|list| list.0).unwrap_or_default());
    Turn { extras, ..Turn::new(Role::System, parts) }
}

fn read_contents(contents: Vec<NativeContent<'_>>, turns: &mut Vec<Turn>) {
    let ids = calls::match_calls(&contents);
    let calls: Vec<String> = ids.calls.into_iter().map(Cow::into_owned).collect();
    let results: Vec<Option<String>> =
        ids.results.into_iter().map(|id| id.map(Cow::into_owned)).collect();
    let (mut calls, mut results) = (calls.into_iter(), results.into_iter());
    // Signatures of the turn before, which continues if it is the model's too.
    let mut signed: HashSet<Signature> = HashSet::new();
    for content in contents {
        let role = if content.is_model() { Role::Assistant } else { Role::User };
        let extras = content.rest.to_extras(ORIGIN);
        // One client keeps every chunk of a streamed reply as a separate turn, so adjacent model
        // turns are merged.
        let same = |turn: &mut Turn| role == Role::Assistant && turn.role == role;
        let bare = |turn: &mut Turn| extras.is_empty() && turn.extras.is_empty();
        let before = turns.pop_if(|turn| same(turn) && bare(turn));
        if before.is_none() {
            signed.clear();
        }
        let mut parts = before.map(|turn| turn.parts).unwrap_or_default();
        for part in content.parts.map(|list| list.0).unwrap_or_default() {
            let id = match (&part.function_call, &part.function_response) {
                (Some(_), _) => calls.next(),
                (None, Some(_)) => match results.next() {
                    Some(None) => continue,
                    Some(id) => id,
                    None => None,
                },
                (None, None) => None,
            };
            let read = read_part(part, id);
            // A call repeats the signature of the preceding thought, for clients that do not keep
            // thoughts.
            if let Some(hidden) = read.hidden
                && hidden.signature.as_ref().is_none_or(|seal| !signed.contains(seal))
            {
                signed.extend(hidden.signature.clone());
                parts.push(hidden);
            }
            if let Some(mut part) = read.part {
                if matches!(part.kind, PartKind::ToolCall(_) | PartKind::Thought(_))
                    && part.signature.is_none()
                {
                    part.extras.insert(ORIGIN, UNSIGNED_EXTRA, Value::Bool(true));
                }
                join_foreign_thought(&mut part, &mut parts);
                signed.extend(part.signature.clone());
                parts.push(part);
            }
        }
        turns.push(Turn { extras, ..Turn::new(role, parts) });
    }
}

/// Merges a thought that another provider signed. It was streamed in pieces with the signature on
/// the last one, and the signature covers the whole text.
fn join_foreign_thought(part: &mut Part, before: &mut Vec<Part>) {
    let foreign = part.signature.as_ref().is_some_and(|seal| seal.origin() != ORIGIN);
    let PartKind::Thought(thought) = &mut part.kind else { return };
    if !foreign {
        return;
    }
    let others = before
        .iter()
        .rposition(|one| one.signature.is_some() || !matches!(one.kind, PartKind::Thought(_)));
    let mut all = String::new();
    // Joined once: inserting each piece at the front would move the text every time.
    for piece in before.drain(others.map_or(0, |at| at + 1)..) {
        if let PartKind::Thought(piece) = piece.kind {
            all.push_str(&piece.text);
        }
    }
    all.push_str(&thought.text);
    thought.text = all;
}

fn read_config(mut config: NativeConfig<'_>, chat: &mut canon::ChatRequest) {
    config.read_options(chat);
    let stops = config.stop_sequences.take().into_iter().flat_map(|list| list.0);
    chat.sampling.stop_sequences = stops.map(BorrowedText::into_owned).collect();
    chat.sampling.max_output_tokens = config.max_output_tokens.take().and_then(|n| n.value.to());
    chat.sampling.candidates = config.candidate_count.and_then(|n| n.to());
    let top = config.logprobs.and_then(|n| n.to()).unwrap_or(0);
    chat.sampling.logprobs = config.response_logprobs.unwrap_or(false).then_some(top);
    if let Some(thinking) = config.thinking_config.take() {
        chat.thinking = read_thinking(&thinking);
        dotted_extras::keep(&mut chat.extras, "generationConfig.thinkingConfig", &thinking.rest);
    }
    chat.response_format = read_format(&config, &mut chat.extras);
    let words = config.response_modalities.iter().flatten();
    chat.modalities = words.filter_map(|word| read_modality(word)).collect();
    dotted_extras::keep(&mut chat.extras, "generationConfig", &config.rest);
    if let Some(image) = config.image_config {
        chat.image_shape = ImageShape {
            aspect_ratio: image.aspect_ratio.map(BorrowedText::into_owned),
            size: image.image_size.map(BorrowedText::into_owned),
        };
        image.rest.keep_in(&mut chat.extras, ORIGIN, "generationConfig.imageConfig");
    }
}

fn read_thinking(config: &NativeThinking<'_>) -> ThinkingOptions {
    let budget = config.thinking_budget;
    let show = |show| if show { ThinkingDisplay::Auto } else { ThinkingDisplay::Hidden };
    ThinkingOptions {
        level: config.thinking_level.as_deref().and_then(read_level),
        budget: budget.and_then(|n| n.to()),
        dynamic: budget.is_some_and(|n| n.0 < 0),
        display: config.include_thoughts.map(show),
    }
}

fn read_format(config: &NativeConfig<'_>, extras: &mut ExtraFields) -> ResponseFormat {
    let mime = config.response_mime_type.as_deref();
    let mut shape = read_tools::read_schema(config.response_schema, config.response_json_schema);
    if mime == Some(enum_text::MIME) {
        extras.insert(ORIGIN, ENUM_EXTRA, Value::Bool(true));
        shape = shape.map(enum_text::wrap);
    }
    match (shape, mime) {
        (Some(schema), _) => {
            ResponseFormat::Schema { name: None, description: None, schema, strict: None }
        }
        (None, Some("application/json")) => ResponseFormat::Json,
        (None, _) => ResponseFormat::Text,
    }
}

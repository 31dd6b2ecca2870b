//! Checks of a responses request that lead to status 400, made in one pass over its bytes.
//!
//! The pass borrows the fields that routing and the rules need, and skips the rest. It rejects only
//! what the API reference forbids; unknown fields, items and tools are left to the provider.
//!
//! See <https://platform.openai.com/docs/api-reference/responses/create>.

use bytes::Bytes;
use canon::{ApiError, EffortLevel, Losses};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::HashSet;

use super::names::MIN_OUTPUT_TOKENS;
use super::request_view::{InputView, ResponsesRequestView, ResponsesToolView};
use super::{signatures, tool_names, wire};
use crate::RequestFacts;
use crate::checks::{check_metadata, check_model, check_range, invalid_field};
use crate::dialect::{DEFAULT_MAX_SEARCHES, PatchPoints, StoredObject};
use crate::json::{self, BodyEdit};

const MAX_ITEMS: usize = 10_000;
const MAX_TOOL_CALLS: i64 = 1_000;
const MAX_NAME_BYTES: usize = 4_096;
const MAX_OUTPUT_TOKENS: u64 = 1 << 30;

/// Allowed values of `include`.
const INCLUDE_VALUES: [&str; 8] = [
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "message.output_text.logprobs",
    "reasoning.encrypted_content",
    "web_search_call.action.sources",
    "web_search_call.results",
];

/// Parses the request facts and applies the rules.
pub(super) fn read_facts(body: &[u8]) -> Result<RequestFacts, ApiError> {
    let text = json::checked_text(body)?;
    let view: ResponsesRequestView<'_> = json::parse(text)?;
    let marks = patch_points(text, &view);
    let mut facts = check(&view, marks)?;
    if matches!(&view.input, Some(InputView::Items(items)) if items.has_envelopes) {
        (facts.edits, facts.losses) = remove_envelopes(text);
    }
    Ok(facts)
}

fn patch_points(text: &str, view: &ResponsesRequestView<'_>) -> PatchPoints {
    let range = |value: Option<&RawValue>| value.map(|value| json::range_of(text, value));
    PatchPoints {
        model: range(view.model),
        limit: range(view.max_output_tokens),
        ..PatchPoints::locate(text)
    }
}

fn check(view: &ResponsesRequestView<'_>, marks: PatchPoints) -> Result<RequestFacts, ApiError> {
    let model = check_model(view.model)?;
    check_input(view)?;
    check_numbers(view)?;
    check_tools(view)?;
    check_words(view)?;
    let _ = (&view.instructions, view.parallel_tool_calls, view.store, view.background);
    Ok(RequestFacts {
        model,
        stream: view.stream.unwrap_or(false),
        // The last event of a stream always has the usage.
        wants_usage: true,
        max_output_tokens: output_limit(view)?,
        candidates: 1,
        service_tier: view.service_tier.as_deref().map(wire::read_tier),
        max_searches: max_searches(view),
        patch_points: marks,
        stored_object: stored_object(view),
        ..RequestFacts::default()
    })
}

/// Returns the first object that the request names and does not contain. The gateway has inserted
/// the responses that it stores itself.
fn stored_object(view: &ResponsesRequestView<'_>) -> Option<StoredObject> {
    let object = |path: String, kind: &str, id: &str| {
        let shown: String = id.chars().take(64).collect();
        StoredObject { path, message: format!("{kind} with id '{shown}' not found.") }
    };
    if let Some(name) = &view.conversation {
        return Some(object("conversation".to_owned(), "Conversation", &name.id));
    }
    if let Some(name) = &view.prompt {
        return Some(object("prompt".to_owned(), "Prompt", &name.id));
    }
    let Some(InputView::Items(items)) = &view.input else { return None };
    let (index, id) = items.missing_item()?;
    Some(object(format!("input[{index}].id"), "Item", id))
}

/// Maximum searches to reserve money for: the allowed tool calls.
fn max_searches(view: &ResponsesRequestView<'_>) -> u64 {
    let mut tools = view.tools.iter().flatten().filter_map(|tool| tool.r#type.as_deref());
    if !tools.any(|kind| kind.starts_with("web_search")) {
        return 0;
    }
    view.max_tool_calls.and_then(|most| u64::try_from(most).ok()).unwrap_or(DEFAULT_MAX_SEARCHES)
}

fn check_input(view: &ResponsesRequestView<'_>) -> Result<(), ApiError> {
    // The earlier conversation may hold the calls answered here.
    let elsewhere = view.previous_response_id.is_some() || view.conversation.is_some();
    if view.previous_response_id.is_some() && view.conversation.is_some() {
        return Err(invalid_field("conversation", "cannot be given with `previous_response_id`"));
    }
    let optional = elsewhere || view.prompt.is_some();
    let items = match &view.input {
        Some(InputView::Text) => return Ok(()),
        None if optional => return Ok(()),
        None => return Err(invalid_field("input", "is required")),
        Some(InputView::Items(items)) => items,
    };
    if items.count == 0 && !optional {
        return Err(invalid_field("input", "must not be empty"));
    }
    if items.count > MAX_ITEMS {
        return Err(invalid_field("input", &format!("must have at most {MAX_ITEMS} items")));
    }
    if let Some((path, why)) = &items.problem {
        return Err(invalid_field(path, why));
    }
    // A stored item may be the call.
    match items.unmatched_result(elsewhere || items.has_references) {
        Some((index, why)) => Err(invalid_field(&format!("input[{index}].call_id"), why)),
        None => Ok(()),
    }
}

fn check_numbers(view: &ResponsesRequestView<'_>) -> Result<(), ApiError> {
    check_range("temperature", view.temperature, 0.0, 2.0)?;
    check_range("top_p", view.top_p, 0.0, 1.0)?;
    if view.top_logprobs.is_some_and(|n| !(0..=20).contains(&n)) {
        return Err(invalid_field("top_logprobs", "must be between 0 and 20"));
    }
    if view.max_tool_calls.is_some_and(|n| !(1..=MAX_TOOL_CALLS).contains(&n)) {
        return Err(invalid_field(
            "max_tool_calls",
            &format!("must be between 1 and {MAX_TOOL_CALLS}"),
        ));
    }
    Ok(())
}

fn output_limit(view: &ResponsesRequestView<'_>) -> Result<Option<u64>, ApiError> {
    match view.max_output_tokens {
        None => Ok(None),
        Some(value) => match serde_json::from_str::<u64>(value.get()) {
            Ok(limit @ MIN_OUTPUT_TOKENS..=MAX_OUTPUT_TOKENS) => Ok(Some(limit)),
            _ => Err(invalid_field(
                "max_output_tokens",
                &format!("must be a whole number of at least {MIN_OUTPUT_TOKENS}"),
            )),
        },
    }
}

fn check_tools(view: &ResponsesRequestView<'_>) -> Result<(), ApiError> {
    let mut names = HashSet::new();
    check_declarations(view.tools.as_deref().unwrap_or_default(), "tools", None, &mut names)?;
    let mut added = false;
    if let Some(InputView::Items(items)) = &view.input {
        added = !items.tools.is_empty();
        // A list inside the conversation may repeat earlier declarations.
        let mut more = HashSet::new();
        check_declarations(&items.tools, "additional_tools", None, &mut more)?;
        names.extend(more);
    }
    check_tool_choice(view.tool_choice, &names, view.tools.is_some() || added)
}

fn check_declarations(
    tools: &[ResponsesToolView<'_>],
    path: &str,
    space: Option<&str>,
    names: &mut HashSet<String>,
) -> Result<(), ApiError> {
    for (at, tool) in tools.iter().enumerate() {
        let kind = match tool.r#type.as_deref() {
            None => return Err(invalid_field(&format!("{path}[{at}].type"), "is required")),
            Some(kind) => kind,
        };
        if !matches!(kind, "function" | "custom" | "namespace") {
            continue;
        }
        let name = match tool.name.as_deref() {
            Some(name) if !name.is_empty() => name,
            _ => return Err(invalid_field(&format!("{path}[{at}].name"), "is required")),
        };
        if kind == "namespace" {
            let inner = tool.tools.as_deref().unwrap_or_default();
            check_declarations(inner, &format!("{path}[{at}].tools"), Some(name), names)?;
            continue;
        }
        let _ = &tool.parameters;
        let name = tool_names::flat_name(space, name);
        if !names.insert(name) {
            return Err(invalid_field(
                &format!("{path}[{at}].name"),
                "is already the name of another tool",
            ));
        }
    }
    Ok(())
}

fn check_tool_choice(
    value: Option<&RawValue>,
    names: &HashSet<String>,
    has_tools: bool,
) -> Result<(), ApiError> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum ResponsesToolChoiceView<'a> {
        Word(#[serde(borrow)] Cow<'a, str>),
        #[serde(borrow)]
        Named(ResponsesToolView<'a>),
    }
    let Some(value) = value else { return Ok(()) };
    let rule = "must be `none`, `auto`, `required` or an object that names a tool";
    let known = |tool: &ResponsesToolView<'_>| match (tool.r#type.as_deref(), tool.name.as_deref())
    {
        (Some("function" | "custom"), Some(name)) => {
            let flat = tool_names::flat_name(tool.namespace.as_deref(), name);
            if names.contains(&flat) {
                Ok(())
            } else {
                Err(invalid_field("tool_choice", "names a tool that is not in `tools`"))
            }
        }
        (Some("function" | "custom"), None) | (None, _) => Err(invalid_field("tool_choice", rule)),
        (Some(_), _) => Ok(()),
    };
    match serde_json::from_str(value.get()) {
        Ok(ResponsesToolChoiceView::Word(word)) => match &*word {
            "none" | "auto" => Ok(()),
            "required" if has_tools => Ok(()),
            "required" => Err(invalid_field("tool_choice", "needs `tools`")),
            _ => Err(invalid_field("tool_choice", rule)),
        },
        Ok(ResponsesToolChoiceView::Named(tool))
            if tool.r#type.as_deref() == Some("allowed_tools") =>
        {
            if !matches!(tool.mode.as_deref(), None | Some("auto" | "required")) {
                return Err(invalid_field("tool_choice.mode", "must be `auto` or `required`"));
            }
            tool.tools.iter().flatten().try_for_each(known)
        }
        Ok(ResponsesToolChoiceView::Named(tool)) => known(&tool),
        Err(_) => Err(invalid_field("tool_choice", rule)),
    }
}

/// Checks fields with a fixed set of words or a maximum length.
fn check_words(view: &ResponsesRequestView<'_>) -> Result<(), ApiError> {
    if let Some(reasoning) = &view.reasoning {
        if reasoning.effort.as_deref().is_some_and(|word| EffortLevel::parse(word).is_none()) {
            return Err(invalid_field(
                "reasoning.effort",
                "must be one of `none`, `minimal`, `low`, `medium`, `high`, `xhigh`, `max`",
            ));
        }
        for (name, word) in [
            ("reasoning.summary", &reasoning.summary),
            ("reasoning.generate_summary", &reasoning.generate_summary),
        ] {
            if word.as_deref().is_some_and(|word| wire::read_show(word).is_none()) {
                return Err(invalid_field(name, "must be one of `auto`, `concise`, `detailed`"));
            }
        }
    }
    if let Some(text) = &view.text {
        let verbosity = text.verbosity.as_deref();
        if !matches!(verbosity, None | Some("low" | "medium" | "high")) {
            return Err(invalid_field("text.verbosity", "must be one of `low`, `medium`, `high`"));
        }
        let format = text.format.as_ref();
        match format.map(|format| (format.r#type.as_deref(), &format.name, &format.schema)) {
            None | Some((Some("text" | "json_object"), _, _)) => {}
            Some((Some("json_schema"), Some(_), Some(_))) => {}
            Some((Some("json_schema"), None, _)) => {
                return Err(invalid_field("text.format.name", "is required"));
            }
            Some((Some("json_schema"), Some(_), None)) => {
                return Err(invalid_field("text.format.schema", "is required"));
            }
            Some(_) => {
                return Err(invalid_field(
                    "text.format.type",
                    "must be `text`, `json_object` or `json_schema`",
                ));
            }
        }
    }
    for (at, word) in view.include.iter().flatten().enumerate() {
        if !INCLUDE_VALUES.contains(&&**word) {
            return Err(invalid_field(&format!("include[{at}]"), "is not a known `include` value"));
        }
    }
    if view.include.as_ref().is_some_and(|words| words.len() > INCLUDE_VALUES.len() * 4) {
        return Err(invalid_field("include", "has too many entries"));
    }
    if !matches!(view.truncation.as_deref(), None | Some("auto" | "disabled")) {
        return Err(invalid_field("truncation", "must be `auto` or `disabled`"));
    }
    for (name, value) in [
        ("user", &view.user),
        ("safety_identifier", &view.safety_identifier),
        ("prompt_cache_key", &view.prompt_cache_key),
        ("previous_response_id", &view.previous_response_id),
    ] {
        if value.as_ref().is_some_and(|value| value.len() > MAX_NAME_BYTES) {
            return Err(invalid_field(name, &format!("must be at most {MAX_NAME_BYTES} bytes")));
        }
    }
    check_metadata(view.metadata)
}

/// Edits that remove items with a signature for this gateway, and the losses. The provider would
/// reject an envelope it cannot decrypt. The body is parsed a second time because these items are
/// rare.
fn remove_envelopes(text: &str) -> (Vec<BodyEdit>, Losses) {
    #[derive(Deserialize)]
    struct InputListView<'a> {
        #[serde(borrow)]
        input: Vec<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct ReasoningItemView<'a> {
        #[serde(borrow, default)]
        r#type: Option<Cow<'a, str>>,
        #[serde(borrow, default)]
        encrypted_content: Option<Cow<'a, str>>,
    }
    let mut losses = Losses::new();
    let Ok(body) = serde_json::from_str::<InputListView<'_>>(text) else {
        return (Vec::new(), losses);
    };
    let items: Vec<_> = body
        .input
        .iter()
        .map(|raw| {
            let item: Option<ReasoningItemView<'_>> = serde_json::from_str(raw.get()).ok();
            let item = item.filter(|item| item.r#type.as_deref() == Some("reasoning"));
            let token = item.and_then(|item| item.encrypted_content);
            let lost = token
                .as_deref()
                .filter(|token| signatures::is_envelope(token))
                .map(signatures::envelope_loss);
            if let Some((what, why)) = lost {
                losses.add(what, why);
            }
            (json::range_of(text, raw), lost.is_some())
        })
        .collect();
    let mut edits = Vec::new();
    // An item is removed together with the comma before it. Before the first item that stays, it is
    // removed with the comma after it.
    let mut kept_end = None;
    for (at, (range, ours)) in items.iter().enumerate() {
        if !ours {
            kept_end = Some(range.end);
            continue;
        }
        let next = items.get(at + 1).map(|(next, _)| next.start);
        let cut = match (kept_end, next) {
            (Some(end), _) => {
                kept_end = Some(range.end);
                end..range.end
            }
            (None, Some(next)) => range.start..next,
            (None, None) => range.clone(),
        };
        edits.push(BodyEdit { range: cut, replacement: Bytes::new() });
    }
    (edits, losses)
}

#[cfg(test)]
mod tests;

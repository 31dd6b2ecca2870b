//! Rules of a responses request that concern more than one field or only callers, and the facts
//! that the relay needs.

use canon::{
    ApiError, HostedTools, JsonOutput, Losses, MediaKind, NeedKind, PLUGINS_FIELD, RequestNeeds,
    SamplingParameter,
};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::HashSet;

use super::content::{ResponsesCall, ResponsesItem, ResponsesPart};
use super::names::{FOREIGN_CODE, LIMIT_FIELD, ORIGIN};
use super::objects;
use super::own::tool_names::flat_name;
use super::request::{LOGPROBS_INCLUDE, ResponsesRequestView, ResponsesTool, ResponsesToolChoice};
use super::signatures;
use crate::RequestFacts;
use crate::call_ids::{AnsweredCall, UnansweredCalls};
use crate::caller_labels::CallerLabels;
use crate::carried_media::add_undescribed;
use crate::client_tools::function_bytes;
use crate::dialect::PatchPoints;
use crate::fields::add_protective;
use crate::json::{self, BodyEdit};
use crate::media_rules::{add_media_at, base64_bytes};
use crate::service_tier::read_request_tier;
use crate::session_sign::{SessionSigns, metadata_user};
use crate::text::BorrowedText;
use crate::wire_object::{read_raw, wire_object};
use crate::wire_rule::{FieldProblem, RuleResult, ensure_at, require};
use crate::wire_value::{PlacedValue, TextOrList, TextOrObject};

/// Checks a request and returns its facts.
pub(super) fn check<'a>(
    text: &'a str,
    view: &ResponsesRequestView<'a>,
) -> Result<RequestFacts, ApiError> {
    check_input(view).map_err(FieldProblem::into_error)?;
    check_tools(view).map_err(FieldProblem::into_error)?;
    let (edits, losses) = remove_own_items(text, view.items());
    let limit = view.max_output_tokens.as_ref();
    Ok(RequestFacts {
        model: view.model.as_ref().map(|model| (*model.value).to_owned()).unwrap_or_default(),
        stream: view.stream.unwrap_or(false),
        // The last event of a stream always has the usage.
        wants_usage: true,
        max_output_tokens: limit.map(|limit| limit.value),
        candidates: 1,
        service_tier: view.service_tier.as_deref().map(|word| read_request_tier(ORIGIN, word)),
        client_tool_bytes: all_tools(view).map(client_tool_bytes).sum(),
        hosted_tools: hosted_tools(view).with_plugins(view.rest.get(PLUGINS_FIELD).is_some()),
        patch_points: PatchPoints {
            model: view.model.as_ref().map(|model| json::range_of(text, model.raw)),
            limit: PlacedValue::range(limit, text)
                .or_else(|| view.rest.null_range(LIMIT_FIELD, text)),
            ..PatchPoints::locate(text)
        },
        edits,
        losses,
        needs: needs(view),
        session: SessionSigns {
            rest: Some(&view.rest),
            cache_key: view.prompt_cache_key.as_deref(),
            user_id: metadata_user(view.metadata).as_deref(),
            conversation: view.conversation.as_ref().and_then(|conversation| match conversation {
                TextOrObject::Text(id) => Some(&**id),
                TextOrObject::Object(object) => object.id.as_deref(),
            }),
        }
        .session(),
        labels: CallerLabels::read(
            view.safety_identifier.as_deref().or(view.user.as_deref()),
            view.metadata.map(|pairs| pairs.0.get()),
        ),
        ..RequestFacts::default()
    })
}

/// Returns what the request asks of its model.
fn needs(view: &ResponsesRequestView<'_>) -> RequestNeeds {
    let mut needs = RequestNeeds::default();
    add_protective(&mut needs, &view.rest);
    for (at, item) in view.items().iter().enumerate() {
        let (field, parts) = match item {
            ResponsesItem::AddedTools(added) => {
                let path = || format!("input[{at}].tools");
                add_needed_tools(&mut needs, added.tools.as_deref(), &path);
                continue;
            }
            ResponsesItem::Message(message) => ("content", message.content.as_ref()),
            ResponsesItem::FunctionResult(result) | ResponsesItem::CustomResult(result) => {
                ("output", result.output.as_ref())
            }
            ResponsesItem::Image(image) => {
                // The result is a base64 text in quotation marks.
                let data = image.result.map(|raw| raw.get().trim_matches('"'));
                if let Some(data) = data.filter(|data| *data != "null") {
                    let path = || format!("input[{at}].result");
                    needs.add_media(MediaKind::Image, Some(base64_bytes(data)), path);
                }
                continue;
            }
            ResponsesItem::Unknown(fields) => {
                let kind = fields.text("type");
                // Items of an earlier answer with servers.
                if kind.as_deref().is_some_and(|kind| kind.starts_with("mcp_")) {
                    needs.add_tool("mcp", || format!("input[{at}]"));
                }
                if kind.as_deref() == Some(SCREENSHOT_ITEM) {
                    let output = fields.get("output").map(read_raw::<ResponsesScreenshot<'_>>);
                    let url = output.and_then(Result::ok).and_then(|output| output.image_url);
                    let path = || format!("input[{at}].output");
                    add_media_at(&mut needs, url.as_deref(), MediaKind::Image, path);
                }
                continue;
            }
            ResponsesItem::FunctionCall(_)
            | ResponsesItem::CustomCall(_)
            | ResponsesItem::Reasoning(_)
            | ResponsesItem::Search(_)
            | ResponsesItem::Code(_)
            | ResponsesItem::Reference(_) => continue,
        };
        let Some(TextOrList::List(parts)) = parts else { continue };
        for (part_at, part) in parts.iter().enumerate() {
            add_part(&mut needs, part, &|| format!("input[{at}].{field}[{part_at}]"));
        }
    }
    add_needed_tools(&mut needs, view.tools.as_deref(), &|| "tools".to_owned());
    let format = view.text.as_ref().and_then(|text| text.format.as_ref());
    let form = format.and_then(|format| match format.kind.as_deref() {
        Some("json_object") => Some(JsonOutput::Object),
        Some("json_schema") => Some(JsonOutput::Schema),
        _ => None,
    });
    if let Some(form) = form {
        needs.add("text.format", NeedKind::Json(form));
    }
    if view.top_logprobs.is_some_and(|count| count > 0) {
        needs.add("top_logprobs", NeedKind::Logprobs);
    }
    let included = view.include.iter().flat_map(|list| &list.0);
    if let Some(at) = included.into_iter().position(|word| &**word == LOGPROBS_INCLUDE) {
        needs.add(format!("include[{at}]"), NeedKind::Logprobs);
    }
    needs.add_parameter("temperature", SamplingParameter::Temperature, view.temperature);
    needs.add_parameter("top_p", SamplingParameter::TopP, view.top_p);
    needs.add_whole_parameter("top_logprobs", SamplingParameter::Logprobs, view.top_logprobs);
    needs
}

/// Type of the item with a screenshot, the result of a use of the computer.
const SCREENSHOT_ITEM: &str = "computer_call_output";

wire_object! {
    /// A screenshot.
    struct ResponsesScreenshot<'a>("an object") {
        image_url: BorrowedText<'a>,
    }
}

/// Adds the media of a part.
fn add_part(needs: &mut RequestNeeds, part: &ResponsesPart<'_>, path: &dyn Fn() -> String) {
    match part {
        ResponsesPart::Image(part) => {
            add_media_at(needs, part.image_url.as_deref(), MediaKind::Image, path);
        }
        ResponsesPart::File(part) => {
            add_media_at(needs, part.file_data.as_deref(), MediaKind::Document, path);
        }
        ResponsesPart::Audio(part) => {
            let sound = part.input_audio.as_ref().and_then(|sound| sound.data.as_deref());
            needs.add_media(MediaKind::Audio, sound.map(base64_bytes), path);
        }
        ResponsesPart::Unknown(fields) => add_undescribed(needs, fields, path),
        ResponsesPart::InputText(_) | ResponsesPart::OutputText(_) | ResponsesPart::Refusal(_) => {}
    }
}

/// Adds the tools of a list. Codex offers a search in the web to every model, so that it is not judged.
fn add_needed_tools(
    needs: &mut RequestNeeds,
    tools: Option<&[ResponsesTool<'_>]>,
    path: &dyn Fn() -> String,
) {
    for (at, tool) in tools.into_iter().flatten().enumerate() {
        let type_path = || format!("{}[{at}].type", path());
        match tool {
            ResponsesTool::Function(_) => needs.add_tool("function", type_path),
            ResponsesTool::Custom(_) => needs.add_tool("custom", type_path),
            ResponsesTool::Code(_) => needs.add_tool("code_interpreter", type_path),
            ResponsesTool::Search(_) => {}
            ResponsesTool::Namespace(space) => {
                let inner = || format!("{}[{at}].tools", path());
                add_needed_tools(needs, space.tools.as_deref(), &inner);
            }
            ResponsesTool::Unknown(fields) => {
                needs.add_tool(&fields.text("type").unwrap_or_default(), type_path);
            }
        }
    }
}

/// The tools that the provider runs. Each may run as often as the request allows for all together.
fn hosted_tools(view: &ResponsesRequestView<'_>) -> HostedTools {
    let most = view.max_tool_calls.and_then(|most| u64::try_from(most).ok());
    let mut hosted = HostedTools::default();
    all_tools(view).for_each(|tool| add_tool(&mut hosted, tool, most));
    hosted
}

/// The tools of a request and those that its conversation adds.
fn all_tools<'v, 'a>(
    view: &'v ResponsesRequestView<'a>,
) -> impl Iterator<Item = &'v ResponsesTool<'a>> {
    let added = view.items().iter().filter_map(|item| match item {
        ResponsesItem::AddedTools(added) => added.tools.as_ref(),
        _ => None,
    });
    view.tools.iter().chain(added).flat_map(|list| &list.0)
}

fn client_tool_bytes(tool: &ResponsesTool<'_>) -> u64 {
    match tool {
        ResponsesTool::Unknown(fields) => function_bytes(&fields.text("type").unwrap_or_default()),
        ResponsesTool::Namespace(space) => {
            space.tools.iter().flat_map(|list| &list.0).map(client_tool_bytes).sum()
        }
        ResponsesTool::Function(_)
        | ResponsesTool::Custom(_)
        | ResponsesTool::Code(_)
        | ResponsesTool::Search(_) => 0,
    }
}

fn add_tool(hosted: &mut HostedTools, tool: &ResponsesTool<'_>, most: Option<u64>) {
    match tool {
        ResponsesTool::Code(tool) => {
            let container = tool.rest.get("container").map(RawValue::get);
            hosted.add_in("code_interpreter", most, container);
        }
        ResponsesTool::Search(_) => hosted.add("web_search", most),
        ResponsesTool::Namespace(space) => {
            let tools = space.tools.iter().flat_map(|list| &list.0);
            tools.for_each(|tool| add_tool(hosted, tool, most));
        }
        ResponsesTool::Unknown(fields) => {
            let container = fields.get("environment").map(RawValue::get);
            hosted.add_in(&fields.text("type").unwrap_or_default(), most, container);
        }
        ResponsesTool::Function(_) | ResponsesTool::Custom(_) => {}
    }
}

fn check_input(view: &ResponsesRequestView<'_>) -> RuleResult {
    // The earlier conversation may hold the calls answered here.
    let mut is_elsewhere = view.previous_response_id.is_some() || view.conversation.is_some();
    let is_one = view.previous_response_id.is_none() || view.conversation.is_none();
    ensure_at(is_one, "conversation", "cannot be given with `previous_response_id`")?;
    let is_optional = is_elsewhere || view.prompt.is_some();
    require("input", is_optional || view.input.is_some())?;
    let is_empty = matches!(&view.input, Some(TextOrList::List(items)) if items.is_empty());
    ensure_at(is_optional || !is_empty, "input", "must not be empty")?;
    let mut history = CallHistory::default();
    for (at, item) in view.items().iter().enumerate() {
        check_item(item).map_err(|problem| problem.inside(&format!("input[{at}]")))?;
        match item {
            ResponsesItem::FunctionCall(call) | ResponsesItem::CustomCall(call) => {
                history.add(at, HistoryStep::Call, call.call_id.clone().map(|BorrowedText(id)| id));
            }
            ResponsesItem::FunctionResult(result) | ResponsesItem::CustomResult(result) => {
                let id = result.call_id.as_deref().map(Cow::Borrowed);
                history.add(at, HistoryStep::Result, id);
            }
            // A stored item may be the call.
            ResponsesItem::Reference(_) => is_elsewhere = true,
            ResponsesItem::Unknown(fields) => match fields.text("type").as_deref() {
                Some("compaction") => is_elsewhere = true,
                Some(kind) if kind.ends_with("_output") => {
                    history.add(at, HistoryStep::OtherResult, fields.text("call_id"));
                }
                // Every other item with a `call_id` may be a call.
                Some(_) => history.add(at, HistoryStep::Call, fields.text("call_id")),
                None => {}
            },
            _ => {}
        }
    }
    history.check(is_elsewhere)
}

/// The calls and results of an input in their order: the index of the item and the id.
#[derive(Default)]
struct CallHistory<'a>(Vec<(usize, HistoryStep, Cow<'a, str>)>);

/// An item with the id of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HistoryStep {
    Call,
    Result,
    /// The result of another kind of tool, which no rule concerns.
    OtherResult,
}

impl<'a> CallHistory<'a> {
    fn add(&mut self, at: usize, step: HistoryStep, id: Option<Cow<'a, str>>) {
        self.0.extend(id.map(|id| (at, step, id)));
    }

    /// Checks that every result answers a call, and every call has one result. A call may stand in the
    /// conversation before, or behind its result.
    fn check(&self, is_elsewhere: bool) -> RuleResult {
        let is_call =
            |(_, step, _): &&(usize, HistoryStep, Cow<'_, str>)| *step == HistoryStep::Call;
        let calls: HashSet<&str> = self.0.iter().filter(is_call).map(|(_, _, id)| &**id).collect();
        let (mut open, mut seen, mut early) =
            (UnansweredCalls::default(), HashSet::new(), HashSet::new());
        for (at, step, id) in &self.0 {
            let id = &**id;
            match step {
                HistoryStep::Call if early.remove(id) => {}
                HistoryStep::Call => open.add(id),
                HistoryStep::OtherResult => {
                    open.answer(id);
                }
                HistoryStep::Result => {
                    let is_first = seen.insert(id);
                    let why = match open.answer(id) {
                        AnsweredCall::Open => continue,
                        _ if !is_elsewhere && !calls.contains(id) => {
                            "answers no call: no `function_call` item has this id"
                        }
                        AnsweredCall::Answered | AnsweredCall::Unknown if is_first => {
                            early.extend((!is_elsewhere).then_some(id));
                            continue;
                        }
                        AnsweredCall::Answered | AnsweredCall::Unknown => "was answered before",
                    };
                    return Err(FieldProblem::new(format!("input[{at}].call_id"), why));
                }
            }
        }
        Ok(())
    }
}

/// Checks the fields that providers may leave out and callers may not.
fn check_item(item: &ResponsesItem<'_>) -> RuleResult {
    match item {
        ResponsesItem::Message(message) => require("content", message.content.is_some()),
        ResponsesItem::FunctionCall(call) | ResponsesItem::CustomCall(call) => check_call(call),
        _ => Ok(()),
    }
}

fn check_call(call: &ResponsesCall<'_>) -> RuleResult {
    require("call_id", call.call_id.is_some())?;
    for (name, value) in [("arguments", &call.arguments), ("input", &call.input)] {
        let is_text = value.as_ref().is_none_or(|value| value.raw.get().starts_with('"'));
        ensure_at(is_text, name, "must be a string")?;
    }
    require("name", call.name.as_deref() != Some(""))
}

fn check_tools(view: &ResponsesRequestView<'_>) -> RuleResult {
    let (mut names, mut added) = (HashSet::new(), HashSet::new());
    declare(view.tools.as_deref(), "tools", None, &mut names)?;
    let mut has_tools = view.tools.is_some();
    for (at, item) in view.items().iter().enumerate() {
        if let ResponsesItem::AddedTools(item) = item {
            has_tools |= item.tools.as_ref().is_some_and(|tools| !tools.is_empty());
            // A list inside the conversation may repeat the declarations of the request.
            declare(item.tools.as_deref(), &format!("input[{at}].tools"), None, &mut added)?;
        }
    }
    names.extend(added);
    let is_declared = |kind| {
        let added = view.items().iter().filter_map(|item| match item {
            ResponsesItem::AddedTools(item) => item.tools.as_deref(),
            _ => None,
        });
        // A stored prompt may declare tools, too.
        view.prompt.is_some()
            || view.tools.as_deref().into_iter().chain(added).any(|list| has_kind(list, kind))
    };
    let is_known = |tool: &ResponsesToolChoice<'_>| match tool.tool_name() {
        Some(name) => names.contains(&name),
        None => tool.kind.as_deref().and_then(chosen_family).is_none_or(is_declared),
    };
    let why = match view.tool_choice.as_ref().map(|choice| &choice.value) {
        Some(TextOrObject::Text(word)) if &**word == "required" && !has_tools => "needs `tools`",
        Some(TextOrObject::Object(choice))
            if !is_known(choice)
                || !choice.allowed_tools().unwrap_or_default().iter().all(is_known) =>
        {
            "names a tool that is not in `tools`"
        }
        _ => return Ok(()),
    };
    Err(FieldProblem::new("tool_choice", why))
}

/// Returns the tools that a choice by type means; `None` for a type that this gateway does not know
/// (<https://platform.openai.com/docs/api-reference/responses/create#responses-create-tool_choice>).
fn chosen_family(kind: &str) -> Option<&'static str> {
    const TYPES: [&str; 8] = [
        "apply_patch",
        "code_interpreter",
        "file_search",
        "image_generation",
        "local_shell",
        "mcp",
        "shell",
        "tool_search",
    ];
    match kind {
        "computer" | "computer_use" | "computer_use_preview" => Some("computer"),
        kind if kind.starts_with("web_search") => Some("web_search"),
        kind => TYPES.into_iter().find(|own| *own == kind),
    }
}

fn has_kind(tools: &[ResponsesTool<'_>], family: &str) -> bool {
    tools.iter().any(|tool| match tool {
        ResponsesTool::Function(_) | ResponsesTool::Custom(_) => false,
        ResponsesTool::Namespace(group) => {
            group.tools.as_deref().is_some_and(|list| has_kind(list, family))
        }
        ResponsesTool::Code(_) => family == "code_interpreter",
        ResponsesTool::Search(_) => family == "web_search",
        ResponsesTool::Unknown(fields) => {
            fields.text("type").as_deref().and_then(chosen_family) == Some(family)
        }
    })
}

/// Collects the names of declared tools. Each may be declared once.
fn declare(
    tools: Option<&[ResponsesTool<'_>]>,
    path: &str,
    space: Option<&str>,
    names: &mut HashSet<String>,
) -> RuleResult {
    for (at, tool) in tools.into_iter().flatten().enumerate() {
        let name = match tool {
            ResponsesTool::Function(tool) => &tool.name,
            ResponsesTool::Custom(tool) => &tool.name,
            ResponsesTool::Namespace(group) => {
                let path = format!("{path}[{at}].tools");
                declare(group.tools.as_deref(), &path, group.name.as_deref(), names)?;
                continue;
            }
            _ => continue,
        };
        if !names.insert(flat_name(space, name.as_deref().unwrap_or_default())) {
            let why = "is already the name of another tool";
            return Err(FieldProblem::new(format!("{path}[{at}].name"), why));
        }
    }
    Ok(())
}

wire_object! {
    /// The places of the items.
    struct ResponsesItemPlaces<'a>("a JSON object") {
        input: Vec<&'a RawValue>,
    }
}

/// Returns the items as they stand in the body. Few requests need them.
fn item_places(text: &str) -> Vec<&RawValue> {
    let places: ResponsesItemPlaces<'_> = json::read(text).unwrap_or_default();
    places.input.unwrap_or_default()
}

/// Returns edits that remove reasoning of translated replies and code that ran elsewhere, and the
/// losses. The provider would reject an envelope it cannot decrypt, and an id it does not know. Only
/// then, the places of the items are parsed.
fn remove_own_items(text: &str, items: &[ResponsesItem<'_>]) -> (Vec<BodyEdit>, Losses) {
    let mut losses = Losses::new();
    let mut is_ours = |item: &ResponsesItem<'_>| {
        let lost = match item {
            ResponsesItem::Reasoning(item) => signatures::own_loss(item),
            ResponsesItem::Code(item) => {
                objects::names_own_container(item).then_some(("code", FOREIGN_CODE))
            }
            ResponsesItem::Message(_)
            | ResponsesItem::FunctionCall(_)
            | ResponsesItem::CustomCall(_)
            | ResponsesItem::FunctionResult(_)
            | ResponsesItem::CustomResult(_)
            | ResponsesItem::Search(_)
            | ResponsesItem::Image(_)
            | ResponsesItem::Reference(_)
            | ResponsesItem::AddedTools(_)
            | ResponsesItem::Unknown(_) => None,
        };
        if let Some((what, why)) = lost {
            losses.add(what, why);
        }
        lost.is_some()
    };
    let ours: Vec<bool> = items.iter().map(&mut is_ours).collect();
    let Some(first) = ours.iter().position(|is_ours| *is_ours) else {
        return (Vec::new(), losses);
    };
    // One edit from the first of them to the end of the list. Without any other item there, it
    // begins with the comma before.
    let places = item_places(text);
    let rest = places.iter().zip(ours).skip(first);
    let kept: Vec<&str> =
        rest.filter(|(_, is_ours)| !is_ours).map(|(place, _)| place.get()).collect();
    let range = |at: usize| places.get(at).map(|place| json::range_of(text, place));
    let before = range(first.wrapping_sub(1)).filter(|_| kept.is_empty());
    let start = before.map_or_else(|| range(first).map_or(0, |r| r.start), |before| before.end);
    let end = places.last().map_or(start, |place| json::range_of(text, place).end);
    (vec![BodyEdit { range: start..end, replacement: kept.join(",").into() }], losses)
}

#[cfg(test)]
mod tests;

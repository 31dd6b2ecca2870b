//! Writes tools and the tool choice.

use canon::{
    ApiError, ClientTool, ExtraFields, FunctionTool, Losses, Tool, ToolChoice, ToolChoiceMode,
    WebSearchTool,
};
use serde_json::Value;
use std::collections::HashSet;

use super::names::ORIGIN;
use super::own::{client_tools, schema, tool_names};
use crate::client_tools::{TOLD_GRAMMAR, custom_function};
use crate::fields::{
    ObjectWriter, lose, note_foreign_fields, note_lost_choice, write_cache_control,
};
use crate::openai_values::write_location;

const SEARCH_TOOL_TYPE: &str = "web_search_20250305";
const CODE_TOOL_TYPE: &str = "code_execution_20250825";
const FETCH_TOOL_TYPE: &str = "web_fetch_20250910";

/// Writes tools and the tool choice. The format refuses a forced call while thinking is on.
pub(super) fn write(
    body: ObjectWriter,
    tools: &[Tool],
    choice: &ToolChoice,
    thinks: bool,
    losses: &mut Losses,
) -> Result<ObjectWriter, ApiError> {
    // The format cannot choose among some tools, so the others are not offered.
    let only: Option<HashSet<&str>> = match &choice.mode {
        ToolChoiceMode::AnyOf { names, .. } => Some(names.iter().map(String::as_str).collect()),
        _ => None,
    };
    let mut list = Vec::with_capacity(tools.len());
    for (at, tool) in tools.iter().enumerate() {
        match tool {
            Tool::Client(tool) => {
                list.extend(write_client_tool(tool, at, only.as_ref(), losses)?);
            }
            tool => list.extend(write_tool(tool, at, only.as_ref(), losses)?),
        }
    }
    if list.is_empty() {
        note_lost_choice(&choice.mode, losses);
        return Ok(body);
    }
    let choice = write_choice(choice, tools, thinks, losses);
    Ok(body.set("tools", list).set_some("tool_choice", choice))
}

fn write_choice(
    choice: &ToolChoice,
    tools: &[Tool],
    thinks: bool,
    losses: &mut Losses,
) -> Option<ObjectWriter> {
    let ToolChoice { mode, parallel } = choice;
    let (kind, name) = match mode {
        ToolChoiceMode::Unset if *parallel != Some(false) => return None,
        ToolChoiceMode::Disabled => return Some(ObjectWriter::typed("none")),
        ToolChoiceMode::Unset
        | ToolChoiceMode::Auto
        | ToolChoiceMode::AnyOf { required: false, .. } => ("auto", None),
        ToolChoiceMode::Required | ToolChoiceMode::AnyOf { required: true, .. } => ("any", None),
        ToolChoiceMode::Tool(name) => {
            ("tool", Some(tool_names::write(client_tools::chosen_member(name, tools))))
        }
    };
    let is_refused = thinks && kind != "auto";
    let why = "the messages format cannot force a tool call while thinking is on";
    losses.add_if(is_refused, "choice", why);
    let (kind, name) = if is_refused { ("auto", None) } else { (kind, name) };
    let choice = ObjectWriter::typed(kind).set_some("name", name.as_deref());
    Some(choice.set_some("disable_parallel_tool_use", parallel.map(|parallel| !parallel)))
}

fn write_tool(
    tool: &Tool,
    at: usize,
    only: Option<&HashSet<&str>>,
    losses: &mut Losses,
) -> Result<Option<ObjectWriter>, ApiError> {
    Ok(Some(match tool {
        Tool::Function(FunctionTool { name, .. }) | Tool::Custom { name, .. }
            if only.is_some_and(|only| !only.contains(name.as_str())) =>
        {
            return Ok(None);
        }
        Tool::Function(tool) => write_function(tool, at, losses)?,
        Tool::Custom { name, description, grammar, extras } => {
            note_foreign_fields(extras, ORIGIN, "tools", losses);
            losses.add_if(grammar.is_some(), "tools.grammar", TOLD_GRAMMAR);
            let tool = custom_function(name, description.as_deref(), grammar.as_ref());
            write_function(&tool, at, losses)?
        }
        Tool::WebSearch(tool) => write_search(tool, losses),
        Tool::CodeExecution(extras) => {
            write_dated(CODE_TOOL_TYPE, "code_execution", extras, losses)
        }
        Tool::UrlFetch(extras) => write_dated(FETCH_TOOL_TYPE, "web_fetch", extras, losses),
        Tool::Foreign { origin, value: Value::Object(fields) } if *origin == ORIGIN => {
            ObjectWriter::new().with_fields(fields)
        }
        Tool::Client(_) => return Ok(None),
        Tool::Foreign { .. } => {
            return Ok(lose("tools", "a tool only the caller's format has", losses));
        }
    }))
}

/// Writes a tool that the caller runs: its own declaration in this format, else its functions.
fn write_client_tool(
    tool: &ClientTool,
    at: usize,
    only: Option<&HashSet<&str>>,
    losses: &mut Losses,
) -> Result<Vec<ObjectWriter>, ApiError> {
    let is_offered =
        |tool: &&FunctionTool| only.is_none_or(|only| only.contains(tool.name.as_str()));
    let mut offered = tool.functions.iter().filter(is_offered).peekable();
    match (&tool.value, offered.peek()) {
        (_, None) => Ok(Vec::new()),
        (Value::Object(fields), Some(_)) if tool.origin == ORIGIN => {
            Ok(vec![ObjectWriter::new().with_fields(fields)])
        }
        (_, Some(_)) => offered.map(|tool| write_function(tool, at, losses)).collect(),
    }
}

fn allowed_name(name: &str, at: usize) -> Result<String, ApiError> {
    let written = tool_names::write(name).into_owned();
    if written.is_empty() || written.len() > tool_names::MAX_NAME_BYTES {
        return Err(ApiError::invalid(
            format!("tools[{at}].name"),
            format!("the name of tool {at} cannot be written in the messages format"),
        ));
    }
    Ok(written)
}

fn write_function(
    tool: &FunctionTool,
    at: usize,
    losses: &mut Losses,
) -> Result<ObjectWriter, ApiError> {
    let FunctionTool { name, description, parameters, result, strict, deferred, cache, extras } =
        tool;
    note_foreign_fields(extras, ORIGIN, "tools", losses);
    losses.add_if(result.is_some(), "tools.result", "the messages format declares no results");
    let schema = parameters.as_ref().map(|schema| match strict {
        Some(true) => schema::restrict(&schema.json),
        Some(false) | None => schema.json.clone(),
    });
    // The format requires `type: object` of arguments.
    let schema = match schema {
        Some(Value::Object(mut fields)) => {
            fields.entry("type").or_insert_with(|| Value::from("object"));
            Value::Object(fields)
        }
        _ => ObjectWriter::typed("object").into(),
    };
    Ok(ObjectWriter::new()
        .set("name", allowed_name(name, at)?)
        .set_some("description", description.as_deref())
        .set("input_schema", schema)
        .set_some("strict", *strict)
        .set_some("defer_loading", deferred.then_some(true))
        .set_some("cache_control", cache.as_ref().map(write_cache_control))
        .with_extras(extras, ORIGIN))
}

fn write_search(tool: &WebSearchTool, losses: &mut Losses) -> ObjectWriter {
    let WebSearchTool { allowed_domains, blocked_domains, location, extras } = tool;
    let near = ObjectWriter::typed("approximate");
    let location = location.as_ref().map(|place| write_location(near, place));
    let list = |domains: &[String]| (!domains.is_empty()).then(|| domains.to_vec());
    write_dated(SEARCH_TOOL_TYPE, "web_search", extras, losses)
        .set_some("allowed_domains", list(allowed_domains))
        .set_some("blocked_domains", list(blocked_domains))
        .set_some("user_location", location)
}

/// Writes a tool of the provider. The caller's own version of its type wins.
fn write_dated(
    kind: &'static str,
    name: &'static str,
    extras: &ExtraFields,
    losses: &mut Losses,
) -> ObjectWriter {
    note_foreign_fields(extras, ORIGIN, "tools", losses);
    let own = |field, default| extras.get(ORIGIN, field).cloned().unwrap_or(Value::from(default));
    let tool = ObjectWriter::new().set("type", own("type", kind)).set("name", own("name", name));
    tool.with_extras(extras, ORIGIN)
}

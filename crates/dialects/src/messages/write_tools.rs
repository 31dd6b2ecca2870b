//! Writes tools and the tool choice.

use canon::{
    ApiError, ExtraFields, FunctionTool, Losses, Tool, ToolChoice, ToolChoiceMode, UserLocation,
    WebSearchTool,
};
use serde_json::Value;
use std::collections::HashSet;

use super::names::ORIGIN;
use super::own::{schema, tool_names};
use super::write_content;
use crate::fields::{ObjectWriter, note_foreign_fields, note_lost_choice};

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
    let ToolChoice { mode: choice, parallel } = choice;
    let only = match choice {
        // The format cannot choose among some tools, so the others are not offered.
        ToolChoiceMode::AnyOf { names, .. } => {
            Some(names.iter().map(String::as_str).collect::<HashSet<&str>>())
        }
        ToolChoiceMode::Unset
        | ToolChoiceMode::Auto
        | ToolChoiceMode::Disabled
        | ToolChoiceMode::Required
        | ToolChoiceMode::Tool(_) => None,
    };
    let mut list = Vec::with_capacity(tools.len());
    for (at, tool) in tools.iter().enumerate() {
        let offered = match (&only, own_name(tool)) {
            (Some(only), Some(name)) => only.contains(name),
            (Some(_), None) | (None, _) => true,
        };
        if offered {
            list.extend(write_tool(tool, at, losses)?);
        }
    }
    if list.is_empty() {
        note_lost_choice(choice, losses);
        return Ok(body);
    }
    let object = write_choice(choice, *parallel, thinks, losses);
    Ok(body.set("tools", list).set_some("tool_choice", object))
}

fn own_name(tool: &Tool) -> Option<&str> {
    match tool {
        Tool::Function(FunctionTool { name, .. }) | Tool::Custom { name, .. } => Some(name),
        Tool::WebSearch(_) | Tool::CodeExecution(_) | Tool::UrlFetch(_) | Tool::Foreign { .. } => {
            None
        }
    }
}

fn write_choice(
    choice: &ToolChoiceMode,
    parallel: Option<bool>,
    thinks: bool,
    losses: &mut Losses,
) -> Option<Value> {
    let forced = match choice {
        ToolChoiceMode::Required
        | ToolChoiceMode::Tool(_)
        | ToolChoiceMode::AnyOf { required: true, .. } => true,
        ToolChoiceMode::Unset
        | ToolChoiceMode::Auto
        | ToolChoiceMode::Disabled
        | ToolChoiceMode::AnyOf { required: false, .. } => false,
    };
    if forced && thinks {
        losses.add("choice", "the messages format cannot force a tool call while thinking is on");
    }
    let kind = match choice {
        _ if forced && thinks => ObjectWriter::new().set("type", "auto"),
        ToolChoiceMode::Unset if parallel != Some(false) => return None,
        ToolChoiceMode::Unset
        | ToolChoiceMode::Auto
        | ToolChoiceMode::AnyOf { required: false, .. } => ObjectWriter::new().set("type", "auto"),
        ToolChoiceMode::Disabled => return Some(ObjectWriter::new().set("type", "none").into()),
        ToolChoiceMode::Required | ToolChoiceMode::AnyOf { required: true, .. } => {
            ObjectWriter::new().set("type", "any")
        }
        ToolChoiceMode::Tool(name) => {
            ObjectWriter::new().set("type", "tool").set("name", tool_names::write(name).as_ref())
        }
    };
    Some(kind.set_some("disable_parallel_tool_use", parallel.map(|parallel| !parallel)).into())
}

fn write_tool(tool: &Tool, at: usize, losses: &mut Losses) -> Result<Option<Value>, ApiError> {
    Ok(Some(match tool {
        Tool::Function(tool) => write_function(tool, at, losses)?,
        Tool::Custom { name, description, grammar, extras } => {
            note_foreign_fields(extras, ORIGIN, "tools", losses);
            losses.add_if(
                grammar.is_some(),
                "tools.grammar",
                "the messages format has no grammars",
            );
            let input =
                ObjectWriter::new().set("type", "string").set("description", "The tool's input.");
            let schema = ObjectWriter::new()
                .set("type", "object")
                .set("properties", ObjectWriter::new().set("input", input))
                .set("required", vec!["input"]);
            ObjectWriter::new()
                .set("name", allowed_name(name, at)?)
                .set_some("description", description.as_deref())
                .set("input_schema", schema)
                .into()
        }
        Tool::WebSearch(tool) => write_search(tool, losses),
        Tool::CodeExecution(extras) => server(CODE_TOOL_TYPE, "code_execution", extras, losses),
        Tool::UrlFetch(extras) => server(FETCH_TOOL_TYPE, "web_fetch", extras, losses),
        Tool::Foreign { origin, value } if *origin == ORIGIN => value.clone(),
        Tool::Foreign { .. } => {
            losses.add("tools", "a tool only the caller's format has");
            return Ok(None);
        }
    }))
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

fn write_function(tool: &FunctionTool, at: usize, losses: &mut Losses) -> Result<Value, ApiError> {
    let FunctionTool { name, description, parameters, result, strict, deferred, cache, extras } =
        tool;
    note_foreign_fields(extras, ORIGIN, "tools", losses);
    losses.add_if(result.is_some(), "tools.result", "the messages format declares no results");
    let shape = match parameters {
        None => ObjectWriter::new().set("type", "object").into(),
        Some(schema) if *strict == Some(true) => object_schema(schema::restrict(&schema.json)),
        Some(schema) => object_schema(schema.json.clone()),
    };
    Ok(ObjectWriter::new()
        .set("name", allowed_name(name, at)?)
        .set_some("description", description.as_deref())
        .set("input_schema", shape)
        .set_some("strict", *strict)
        .set_some("defer_loading", deferred.then_some(true))
        .set_some("cache_control", cache.as_ref().map(write_content::write_cache))
        .with_extras(extras, ORIGIN)
        .into())
}

/// Adds `type: object`, which the format requires of arguments.
fn object_schema(schema: Value) -> Value {
    match schema {
        Value::Object(mut fields) => {
            fields.entry("type").or_insert_with(|| Value::from("object"));
            Value::Object(fields)
        }
        _ => ObjectWriter::new().set("type", "object").into(),
    }
}

fn write_search(tool: &WebSearchTool, losses: &mut Losses) -> Value {
    let WebSearchTool { allowed_domains: allowed, blocked_domains: blocked, location, extras } =
        tool;
    note_foreign_fields(extras, ORIGIN, "tools", losses);
    let near = location.as_ref().map(|location| {
        let UserLocation { country, region, city, timezone } = location;
        ObjectWriter::new()
            .set("type", "approximate")
            .set_some("country", country.as_deref())
            .set_some("region", region.as_deref())
            .set_some("city", city.as_deref())
            .set_some("timezone", timezone.as_deref())
    });
    let list = |domains: &[String]| (!domains.is_empty()).then(|| domains.to_vec());
    let tool = ObjectWriter::new()
        .set_some("allowed_domains", list(allowed))
        .set_some("blocked_domains", list(blocked))
        .set_some("user_location", near);
    named(tool.with_extras(extras, ORIGIN), SEARCH_TOOL_TYPE, "web_search")
}

fn server(kind: &str, name: &str, extras: &ExtraFields, losses: &mut Losses) -> Value {
    note_foreign_fields(extras, ORIGIN, "tools", losses);
    named(ObjectWriter::new().with_extras(extras, ORIGIN), kind, name)
}

/// Puts the dated type and the name first.
fn named(tool: ObjectWriter, kind: &str, name: &str) -> Value {
    let mut fields = tool.into_map();
    let kind = fields.shift_remove("type").unwrap_or_else(|| Value::from(kind));
    let name = fields.shift_remove("name").unwrap_or_else(|| Value::from(name));
    let mut all = ObjectWriter::new().set("type", kind).set("name", name).into_map();
    all.extend(fields);
    Value::Object(all)
}

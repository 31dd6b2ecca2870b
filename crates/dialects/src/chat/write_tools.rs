//! Writes the tools of a chat request.

use canon::{FunctionTool, Losses, Tool, ToolChoice, ToolChoiceMode, WebSearchTool};
use serde_json::Value;
use std::collections::HashSet;

use super::names::ORIGIN;
use crate::fields::{ObjectWriter, note_foreign_fields, note_lost_choice};
use crate::openai_values::write_location;

/// Writes the tools and the choice among them.
pub(super) fn write(
    body: ObjectWriter,
    tools: &[Tool],
    choice: &ToolChoice,
    losses: &mut Losses,
) -> ObjectWriter {
    let mut list = Vec::with_capacity(tools.len());
    let mut search = None;
    for tool in tools {
        match tool {
            Tool::Function(function) => list.push(write_function(function, losses)),
            Tool::Custom { name, description, grammar, extras } => {
                note_foreign_fields(extras, ORIGIN, "tools", losses);
                let inner = ObjectWriter::new()
                    .set("name", name.as_str())
                    .set_some("description", description.as_deref())
                    .set_some("format", grammar.clone())
                    .with_extras(extras, ORIGIN);
                list.push(ObjectWriter::typed("custom").set("custom", inner));
            }
            Tool::WebSearch(tool) => search = Some(write_search(tool, losses)),
            Tool::Foreign { origin, value } if *origin == ORIGIN => {
                list.push(ObjectWriter::new().with_object(Some(value)));
            }
            Tool::Client(tool) => {
                list.extend(tool.functions.iter().map(|tool| write_function(tool, losses)));
            }
            Tool::CodeExecution(_) => losses.add("tools.code", "the chat format cannot run code"),
            Tool::UrlFetch(_) => losses.add("tools.fetch", "the chat format cannot fetch URLs"),
            Tool::Foreign { .. } => losses.add("tools", "a tool only the caller's format has"),
        }
    }
    let ToolChoice { mode: choice, parallel } = choice;
    let has_tools = !list.is_empty();
    if !has_tools {
        note_lost_choice(choice, losses);
    }
    body.set_some("tools", has_tools.then_some(list))
        .set_some("web_search_options", search)
        .set_some("tool_choice", write_choice(choice, tools).filter(|_| has_tools))
        .set_some("parallel_tool_calls", parallel.filter(|_| has_tools))
}

fn write_function(tool: &FunctionTool, losses: &mut Losses) -> ObjectWriter {
    let FunctionTool { name, description, parameters, result, strict, deferred, cache, extras } =
        tool;
    note_foreign_fields(extras, ORIGIN, "tools", losses);
    losses.add_if(result.is_some(), "tools.result", "the chat format has no result schemas");
    losses.add_if(*deferred, "tools.deferred", "the chat format has no deferred tools");
    losses.add_if(cache.is_some(), "tools.cache", "a tool cannot have a cache breakpoint here");
    let inner = ObjectWriter::new()
        .set("name", name.as_str())
        .set_some("description", description.as_deref())
        .set_some("parameters", parameters.as_ref().map(|schema| schema.json.clone()))
        .set_some("strict", *strict);
    ObjectWriter::typed("function")
        .set("function", inner.with_object(extras.get(ORIGIN, "function")))
        .with_extras(extras, ORIGIN)
}

fn write_search(tool: &WebSearchTool, losses: &mut Losses) -> ObjectWriter {
    let WebSearchTool { allowed_domains: allowed, blocked_domains: blocked, location, extras } =
        tool;
    note_foreign_fields(extras, ORIGIN, "tools", losses);
    let is_limited = !allowed.is_empty() || !blocked.is_empty();
    let why = "a chat search cannot be limited to domains";
    losses.add_if(is_limited, "tools.search.domains", why);
    let location = location.as_ref().map(|location| {
        let near = write_location(ObjectWriter::new(), location);
        ObjectWriter::typed("approximate").set("approximate", near)
    });
    ObjectWriter::new().set_some("user_location", location).with_extras(extras, ORIGIN)
}

fn write_choice(choice: &ToolChoiceMode, tools: &[Tool]) -> Option<Value> {
    let custom: HashSet<&str> = tools
        .iter()
        .filter_map(|tool| match tool {
            Tool::Custom { name, .. } => Some(name.as_str()),
            _ => None,
        })
        .collect();
    let named = |name: &str| {
        let kind = if custom.contains(name) { "custom" } else { "function" };
        ObjectWriter::typed(kind).set(kind, ObjectWriter::new().set("name", name))
    };
    match choice {
        ToolChoiceMode::Unset => None,
        ToolChoiceMode::Auto => Some("auto".into()),
        ToolChoiceMode::Disabled => Some("none".into()),
        ToolChoiceMode::Required => Some("required".into()),
        ToolChoiceMode::Tool(name) => Some(named(name).into()),
        ToolChoiceMode::AnyOf { names, required } => {
            let tools: Vec<_> = names.iter().map(|name| named(name)).collect();
            let mode = if *required { "required" } else { "auto" };
            let inner = ObjectWriter::new().set("mode", mode).set("tools", tools);
            Some(ObjectWriter::typed("allowed_tools").set("allowed_tools", inner).into())
        }
    }
}

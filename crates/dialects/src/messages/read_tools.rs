//! Reads tools and the tool choice.

use canon::{
    ExtraFields, FunctionTool, JsonSchema, Tool, ToolChoice, ToolChoiceMode, WebSearchTool,
};
use serde_json::Value;

use super::names::ORIGIN;
use super::own::{client_tools, tool_names};
use super::read_content::take_cache;
use super::request::{MessagesTool, MessagesToolChoice};
use crate::openai_values::SearchLocation;
use crate::text::{BorrowedText, owned};
use crate::wire_value::OpaqueObject;

/// Reads a tool. The types of the provider's own tools end in a date.
pub(super) fn read(mut tool: MessagesTool<'_>) -> Tool {
    if tool.is_function() {
        return Tool::Function(read_function(tool));
    }
    let kind = owned(tool.kind);
    let is_search = kind.starts_with("web_search_");
    if is_search {
        for name in ["user_location", "allowed_domains", "blocked_domains"] {
            tool.rest.take(name);
        }
    }
    let mut fields = tool.rest.to_map();
    let description = tool.description.map(|text| Value::from(text.into_owned()));
    fields.extend(description.map(|text| ("description".to_owned(), text)));
    let schema = tool.input_schema.map(OpaqueObject::to_value);
    fields.extend(schema.map(|schema| ("input_schema".to_owned(), schema)));
    if is_search {
        let domains = |list: Option<Vec<BorrowedText<'_>>>| {
            list.into_iter().flatten().map(BorrowedText::into_owned).collect()
        };
        Tool::WebSearch(WebSearchTool {
            allowed_domains: domains(tool.allowed_domains),
            blocked_domains: domains(tool.blocked_domains),
            location: tool.user_location.map(SearchLocation::into_canon),
            extras: ExtraFields::from_fields(ORIGIN, fields),
        })
    } else if kind.starts_with("code_execution_") {
        Tool::CodeExecution(ExtraFields::from_fields(ORIGIN, fields))
    } else if kind.starts_with("web_fetch_") {
        Tool::UrlFetch(ExtraFields::from_fields(ORIGIN, fields))
    } else {
        match client_tools::read(&kind, &fields) {
            Some(tool) => Tool::Client(Box::new(tool)),
            None => Tool::Foreign { origin: ORIGIN, value: Value::Object(fields) },
        }
    }
}

fn read_function(mut tool: MessagesTool<'_>) -> FunctionTool {
    for name in ["type", "name", "strict", "defer_loading"] {
        tool.rest.take(name);
    }
    FunctionTool {
        name: tool_names::read(owned(tool.name)),
        description: tool.description.map(BorrowedText::into_owned),
        parameters: tool.input_schema.map(|schema| JsonSchema::new(schema.to_value())),
        result: None,
        strict: tool.strict,
        deferred: tool.defer_loading.unwrap_or(false),
        cache: take_cache(&mut tool.rest),
        extras: tool.rest.to_extras(ORIGIN),
    }
}

/// Reads the tool choice.
pub(super) fn read_choice(choice: MessagesToolChoice<'_>, tools: &[Tool]) -> ToolChoice {
    let mode = match choice.kind.as_deref() {
        Some("auto") => ToolChoiceMode::Auto,
        Some("any") => ToolChoiceMode::Required,
        Some("none") => ToolChoiceMode::Disabled,
        Some("tool") => {
            let name = tool_names::read(owned(choice.name));
            ToolChoiceMode::Tool(client_tools::chosen_function(name, tools))
        }
        _ => ToolChoiceMode::Unset,
    };
    ToolChoice { mode, parallel: choice.disable_parallel_tool_use.map(|disabled| !disabled) }
}

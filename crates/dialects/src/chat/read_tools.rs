//! Reads the tools of a chat request into canon.

use canon::{FunctionTool, JsonSchema, Tool, ToolChoiceMode, WebSearchTool};

use super::names::ORIGIN;
use super::request::{ChatFunction, ChatSearchOptions, ChatTool, ChatToolChoice, ChatToolName};
use crate::openai_values::{SearchLocation, read_cache_mark};
use crate::text::{BorrowedText, owned};
use crate::wire_object::{UnknownFields, raw_value};
use crate::wire_value::TextOrObject;

/// Reads a function of `functions`, the deprecated form of `tools`.
pub(super) fn read_legacy_function(function: ChatFunction<'_>) -> Tool {
    let (mut tool, rest) = read_function(function);
    rest.keep_in(&mut tool.extras, ORIGIN, "function");
    Tool::Function(tool)
}

pub(super) fn read_tool(tool: ChatTool<'_>) -> Tool {
    match tool {
        ChatTool::Function(mut tool) => {
            let cache = read_cache_mark(&mut tool.rest);
            let (function, rest) = read_function(tool.function.unwrap_or_default());
            let mut extras = tool.rest.to_extras(ORIGIN);
            rest.keep_in(&mut extras, ORIGIN, "function");
            Tool::Function(FunctionTool { cache, extras, ..function })
        }
        ChatTool::Custom(tool) => {
            let custom = tool.custom.unwrap_or_default();
            Tool::Custom {
                name: owned(custom.name),
                description: custom.description.map(BorrowedText::into_owned),
                grammar: custom.format.map(raw_value),
                extras: custom.rest.to_extras(ORIGIN),
            }
        }
        ChatTool::Unknown(fields) => Tool::Foreign { origin: ORIGIN, value: fields.to_value() },
    }
}

fn read_function(function: ChatFunction<'_>) -> (FunctionTool, UnknownFields<'_>) {
    let ChatFunction { name, description, parameters, strict, rest } = function;
    let tool = FunctionTool {
        name: owned(name),
        description: description.map(BorrowedText::into_owned),
        parameters: parameters.map(|schema| JsonSchema::new(schema.to_value())),
        strict,
        ..FunctionTool::default()
    };
    (tool, rest)
}

pub(super) fn read_search(options: ChatSearchOptions<'_>) -> WebSearchTool {
    let location = options.user_location.map(SearchLocation::into_canon);
    let extras = options.rest.to_extras(ORIGIN);
    WebSearchTool { location, extras, ..WebSearchTool::default() }
}

pub(super) fn read_choice(choice: &TextOrObject<'_, ChatToolChoice<'_>>) -> ToolChoiceMode {
    match choice {
        TextOrObject::Text(word) => match &**word {
            "auto" => ToolChoiceMode::Auto,
            "none" => ToolChoiceMode::Disabled,
            "required" => ToolChoiceMode::Required,
            _ => ToolChoiceMode::Unset,
        },
        TextOrObject::Object(choice) => match (&choice.allowed_tools, choice.tool_name()) {
            (Some(allowed), _) => {
                let names = allowed.tools.iter().flatten().filter_map(ChatToolChoice::tool_name);
                let required = allowed.mode.as_deref() == Some("required");
                ToolChoiceMode::AnyOf { names: names.map(str::to_owned).collect(), required }
            }
            (None, Some(name)) => ToolChoiceMode::Tool(name.to_owned()),
            (None, None) => ToolChoiceMode::Unset,
        },
    }
}

pub(super) fn read_legacy_choice(choice: &TextOrObject<'_, ChatToolName<'_>>) -> ToolChoiceMode {
    match choice {
        TextOrObject::Text(word) if &**word == "none" => ToolChoiceMode::Disabled,
        TextOrObject::Text(_) => ToolChoiceMode::Auto,
        TextOrObject::Object(tool) => match tool.name.as_deref() {
            Some(name) => ToolChoiceMode::Tool(name.to_owned()),
            None => ToolChoiceMode::Unset,
        },
    }
}

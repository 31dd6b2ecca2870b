//! Reads tools and the tool choice into canon.

use canon::{ExtraFields, FunctionTool, JsonSchema, Tool, ToolChoiceMode, WebSearchTool};
use serde_json::{Map, Value};

use super::names::{ORIGIN, VALIDATED_EXTRA};
use super::own::{client_tools, dotted_extras, schema};
use super::request::{NativeFunction, NativeSearch, NativeTool, NativeToolConfig};
use crate::text::{BorrowedText, owned};
use crate::wire_object::raw_value;
use crate::wire_value::OpaqueObject;

/// Reads a tool. One tool may declare several functions.
pub(super) fn read_tool(tool: NativeTool<'_>, tools: &mut Vec<Tool>) {
    let functions = tool.function_declarations.into_iter().flat_map(|list| list.0);
    tools.extend(functions.map(read_function));
    let search = tool.google_search.or(tool.vendor_search.map(|search| search.value));
    tools.extend(search.map(read_search));
    tools.extend(tool.code_execution.map(|tool| Tool::CodeExecution(tool.rest.to_extras(ORIGIN))));
    tools.extend(tool.url_context.map(|tool| Tool::UrlFetch(tool.rest.to_extras(ORIGIN))));
    let maps = tool.vendor_maps.map(|settings| ("googleMaps", settings.0));
    for (name, settings) in maps.into_iter().chain(tool.rest.present()) {
        let settings = raw_value(settings);
        tools.push(client_tools::read(name, &settings).unwrap_or_else(|| {
            let value = Map::from_iter([(name.to_owned(), settings)]);
            Tool::Foreign { origin: ORIGIN, value: Value::Object(value) }
        }));
    }
}

fn read_function(function: NativeFunction<'_>) -> Tool {
    Tool::Function(FunctionTool {
        name: owned(function.name),
        description: function.description.map(BorrowedText::into_owned),
        parameters: read_schema(function.parameters, function.parameters_json_schema),
        result: read_schema(function.response, function.response_json_schema),
        extras: function.rest.to_extras(ORIGIN),
        ..FunctionTool::default()
    })
}

/// Reads a schema in the format's own dialect or in JSON Schema.
pub(super) fn read_schema(
    own: Option<OpaqueObject<'_>>,
    json: Option<OpaqueObject<'_>>,
) -> Option<JsonSchema> {
    let json = json.map(|json| JsonSchema::new(json.to_value()));
    json.or_else(|| own.map(|own| schema::read(own.to_value())))
}

fn read_search(search: NativeSearch<'_>) -> Tool {
    let domains = search.exclude_domains;
    let domains = domains.map(|list| list.into_list(|text| text, BorrowedText::into_owned));
    let blocked_domains = domains.unwrap_or_default();
    let extras = search.rest.to_extras(ORIGIN);
    Tool::WebSearch(WebSearchTool { blocked_domains, extras, ..WebSearchTool::default() })
}

/// Reads the tool choice. Settings that canon cannot express are kept in extras.
pub(super) fn read_choice(
    config: NativeToolConfig<'_>,
    extras: &mut ExtraFields,
) -> ToolChoiceMode {
    const SCOPE: &str = "toolConfig.functionCallingConfig";
    dotted_extras::keep(extras, "toolConfig", &config.rest);
    let calling = config.function_calling_config.unwrap_or_default();
    dotted_extras::keep(extras, SCOPE, &calling.rest);
    let mode = calling.mode.unwrap_or_default().to_ascii_uppercase();
    let names = calling.allowed_function_names.into_iter().flatten();
    let mut names: Vec<String> = names.map(BorrowedText::into_owned).collect();
    let unlimited = match (mode.as_str(), names.as_slice()) {
        ("ANY", []) => return ToolChoiceMode::Required,
        ("ANY", [one]) => return ToolChoiceMode::Tool(one.clone()),
        ("ANY", _) | ("VALIDATED", [_, ..]) => {
            names.dedup();
            return ToolChoiceMode::AnyOf { names, required: mode == "ANY" };
        }
        ("VALIDATED", []) => {
            extras.insert(ORIGIN, VALIDATED_EXTRA, Value::Bool(true));
            ToolChoiceMode::Auto
        }
        ("AUTO", _) => ToolChoiceMode::Auto,
        ("NONE", _) => ToolChoiceMode::Disabled,
        _ => ToolChoiceMode::Unset,
    };
    // Modes that do not obey the list: it is kept for this format.
    if !names.is_empty() {
        extras.insert(ORIGIN, &format!("{SCOPE}.allowedFunctionNames"), Value::from(names));
    }
    unlimited
}

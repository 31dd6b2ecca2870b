//! Reads tools and the tool choice into canon.

use canon::{
    ApiError, ExtraFields, FunctionTool, JsonSchema, Tool, ToolChoice, ToolChoiceMode,
    WebSearchTool,
};
use serde_json::{Map, Value};

use super::names::{ORIGIN, VALIDATED_EXTRA};
use super::proto_json::{self, fields};
use super::schema;
use crate::fields::{JsonPath, ObjectReader};

/// Returns the provider's name of a tool that the service specification calls by another name.
pub(super) fn own_name(name: &str) -> Option<&'static str> {
    match name {
        "vendorSearch" => Some("googleSearch"),
        "vendorMaps" => Some("googleMaps"),
        _ => None,
    }
}

/// Reads the tools of a request, <https://ai.google.dev/api/caching#Tool>.
pub(super) fn tools(list: Vec<Value>) -> Result<Vec<Tool>, ApiError> {
    let root = JsonPath::Root.key("tools");
    let mut tools = Vec::new();
    for (at, value) in list.into_iter().enumerate() {
        let path = root.item(at);
        for (name, value) in fields(value, &path)?.remaining() {
            tool(own_name(&name).unwrap_or(&name), value, &path, &mut tools)?;
        }
    }
    Ok(tools)
}

fn tool(
    name: &str,
    value: Value,
    path: &JsonPath<'_>,
    tools: &mut Vec<Tool>,
) -> Result<(), ApiError> {
    let at = path.key(name);
    match name {
        "functionDeclarations" => {
            let list = match value {
                Value::Array(items) => items,
                one => vec![one],
            };
            for (index, value) in list.into_iter().enumerate() {
                tools.push(Tool::Function(function(value, &at.item(index))?));
            }
        }
        "googleSearch" => {
            let mut inner = fields(value, &at)?;
            let blocked = proto_json::strings(&mut inner, "excludeDomains")?;
            let extras = inner.extras(ORIGIN);
            tools.push(Tool::WebSearch(WebSearchTool {
                blocked_domains: blocked,
                extras,
                ..WebSearchTool::default()
            }));
        }
        "codeExecution" => tools.push(Tool::CodeExecution(fields(value, &at)?.extras(ORIGIN))),
        "urlContext" => tools.push(Tool::UrlFetch(fields(value, &at)?.extras(ORIGIN))),
        _ => {
            let mut object = Map::new();
            object.insert(name.to_owned(), value);
            tools.push(Tool::Foreign { origin: ORIGIN, value: Value::Object(object) });
        }
    }
    Ok(())
}

fn function(value: Value, path: &JsonPath<'_>) -> Result<FunctionTool, ApiError> {
    let mut inner = fields(value, path)?;
    Ok(FunctionTool {
        name: inner.required("name")?,
        description: inner.string("description")?,
        parameters: shape(&mut inner, "parameters", "parametersJsonSchema"),
        result: shape(&mut inner, "response", "responseJsonSchema"),
        extras: inner.extras(ORIGIN),
        ..FunctionTool::default()
    })
}

/// Takes a schema, in JSON Schema or in the format's own dialect.
fn shape(inner: &mut ObjectReader<'_>, own: &str, json: &str) -> Option<JsonSchema> {
    let dialect = inner.take(own);
    match inner.take(json) {
        Some(value) => Some(JsonSchema::new(value)),
        None => dialect.map(schema::read),
    }
}

/// Reads the tool choice. Settings that canon cannot express are kept in extras.
pub(super) fn choice(
    config: Option<Value>,
    extras: &mut ExtraFields,
) -> Result<ToolChoice, ApiError> {
    let Some(config) = config else { return Ok(ToolChoice::default()) };
    let path = JsonPath::Root.key("toolConfig");
    let mut config = fields(config, &path)?;
    let calling = config.take("functionCallingConfig");
    proto_json::keep(extras, "toolConfig", config);
    let Some(calling) = calling else { return Ok(ToolChoice::default()) };
    let at = path.key("functionCallingConfig");
    let mut calling = fields(calling, &at)?;
    let mode = proto_json::word(&mut calling, "mode")?.unwrap_or_default();
    let names = proto_json::strings(&mut calling, "allowedFunctionNames")?;
    const SCOPE: &str = "toolConfig.functionCallingConfig";
    proto_json::keep(extras, SCOPE, calling);
    let mut choice = match mode.as_str() {
        "AUTO" => ToolChoiceMode::Auto,
        "NONE" => ToolChoiceMode::Disabled,
        "ANY" => match names.as_slice() {
            [] => ToolChoiceMode::Required,
            [one] => ToolChoiceMode::Tool(one.clone()),
            _ => ToolChoiceMode::AnyOf { names: names.clone(), required: true },
        },
        "VALIDATED" if !names.is_empty() => {
            ToolChoiceMode::AnyOf { names: names.clone(), required: false }
        }
        "VALIDATED" => {
            extras.insert(ORIGIN, VALIDATED_EXTRA, Value::Bool(true));
            ToolChoiceMode::Auto
        }
        _ => ToolChoiceMode::Unset,
    };
    // The list has a meaning only in modes that obey it; in other modes it is kept for this format.
    let ignored =
        matches!(choice, ToolChoiceMode::Auto | ToolChoiceMode::Disabled | ToolChoiceMode::Unset);
    if ignored && !names.is_empty() {
        extras.insert(ORIGIN, &format!("{SCOPE}.allowedFunctionNames"), Value::from(names));
    }
    if let ToolChoiceMode::AnyOf { names, .. } = &mut choice {
        names.dedup();
    }
    Ok(ToolChoice { mode: choice, parallel: None })
}

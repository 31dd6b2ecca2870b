//! Reads tools and the tool choice into canon.

use canon::{
    ApiError, ExtraFields, FunctionTool, JsonSchema, Tool, ToolChoiceMode, UserLocation,
    WebSearchTool,
};
use serde_json::{Map, Value};

use super::names::{ADDED_TOOLS_EXTRA, NAMESPACE_EXTRA, ORIGIN};
use super::{read_items, tool_names};
use crate::fields::{JsonPath, ObjectReader, ObjectWriter};

/// Reads a list of tools. Namespaces are flattened. `added` is the position of the list in the
/// conversation, if it is there.
pub(super) fn read(
    list: Vec<Value>,
    path: &JsonPath<'_>,
    added: Option<&Value>,
    tools: &mut Vec<Tool>,
) -> Result<(), ApiError> {
    for (at, value) in list.into_iter().enumerate() {
        let path = path.item(at);
        let kind = value.get("type").and_then(Value::as_str).map(str::to_owned);
        match (kind.as_deref(), value) {
            (Some("namespace"), Value::Object(group)) => {
                namespace(group, &path, added, tools)?;
            }
            (_, value) => tools.push(tool(value, &path, None, added)?),
        }
    }
    Ok(())
}

fn namespace(
    mut group: Map<String, Value>,
    path: &JsonPath<'_>,
    added: Option<&Value>,
    tools: &mut Vec<Tool>,
) -> Result<(), ApiError> {
    let members = match group.shift_remove("tools") {
        Some(Value::Array(members)) => members,
        _ => Vec::new(),
    };
    group.shift_remove("type");
    let space = Value::Object(group);
    let list = path.key("tools");
    for (at, member) in members.into_iter().enumerate() {
        tools.push(tool(member, &list.item(at), Some(&space), added)?);
    }
    Ok(())
}

fn tool(
    value: Value,
    path: &JsonPath<'_>,
    space: Option<&Value>,
    added: Option<&Value>,
) -> Result<Tool, ApiError> {
    let mut original = value.clone();
    let mut fields = ObjectReader::new(value, path)?;
    let name_of = |name: &str| {
        tool_names::flat_name(
            space.and_then(|space| space.get("name")).and_then(Value::as_str),
            name,
        )
    };
    let mark = |mut extras: ExtraFields| {
        for (name, value) in [(NAMESPACE_EXTRA, space), (ADDED_TOOLS_EXTRA, added)] {
            if let Some(value) = value {
                extras.insert(ORIGIN, name, value.clone());
            }
        }
        extras
    };
    let kind = fields.string("type")?.unwrap_or_default();
    Ok(match kind.as_str() {
        "function" => {
            let mut tool = function(&mut fields)?;
            tool.name = name_of(&tool.name);
            Tool::Function(FunctionTool { extras: mark(fields.extras(ORIGIN)), ..tool })
        }
        "custom" => Tool::Custom {
            name: name_of(&fields.required("name")?),
            description: fields.string("description")?,
            grammar: fields.take("format").map(nested),
            extras: mark(fields.extras(ORIGIN)),
        },
        "code_interpreter" => Tool::CodeExecution(mark(fields.extras(ORIGIN))),
        word if word.starts_with("web_search") => {
            let (mut tool, filters) = search(&mut fields)?;
            let mut extras = fields.extras(ORIGIN);
            if !filters.is_empty() {
                extras.insert(ORIGIN, "filters", Value::Object(filters));
            }
            if word != "web_search" {
                extras.insert(ORIGIN, "type", Value::from(word));
            }
            tool.extras = mark(extras);
            Tool::WebSearch(tool)
        }
        _ => {
            if let Value::Object(object) = &mut original {
                for (name, value) in [(NAMESPACE_EXTRA, space), (ADDED_TOOLS_EXTRA, added)] {
                    if let Some(value) = value {
                        object.insert(name.to_owned(), value.clone());
                    }
                }
            }
            Tool::Foreign { origin: ORIGIN, value: original }
        }
    })
}

/// Nests the grammar of a custom tool, as the chat format and canon have it.
fn nested(format: Value) -> Value {
    match format {
        Value::Object(mut fields)
            if fields.get("type").and_then(Value::as_str) == Some("grammar")
                && !fields.contains_key("grammar") =>
        {
            fields.shift_remove("type");
            ObjectWriter::new().set("type", "grammar").set("grammar", fields).into()
        }
        format => format,
    }
}

fn function(fields: &mut ObjectReader<'_>) -> Result<FunctionTool, ApiError> {
    Ok(FunctionTool {
        name: fields.required("name")?,
        description: fields.string("description")?,
        parameters: fields.take("parameters").map(JsonSchema::new),
        result: fields.take("output_schema").map(JsonSchema::new),
        strict: fields.flag("strict")?,
        deferred: fields.flag("defer_loading")?.unwrap_or(false),
        cache: read_items::cache_mark(fields),
        extras: ExtraFields::new(),
    })
}

/// Returns the search tool, and the filters canon has no field for.
fn search(fields: &mut ObjectReader<'_>) -> Result<(WebSearchTool, Map<String, Value>), ApiError> {
    let domains = |name: &str, filters: &mut Map<String, Value>| -> Vec<String> {
        match filters.shift_remove(name) {
            Some(Value::Array(list)) => {
                list.iter().filter_map(|domain| domain.as_str().map(str::to_owned)).collect()
            }
            _ => Vec::new(),
        }
    };
    let mut filters = fields.object("filters")?.unwrap_or_default();
    let allowed = domains("allowed_domains", &mut filters);
    let location = fields.object("user_location")?.map(|near| {
        let text = |name: &str| near.get(name).and_then(Value::as_str).map(str::to_owned);
        UserLocation {
            country: text("country"),
            region: text("region"),
            city: text("city"),
            timezone: text("timezone"),
        }
    });
    Ok((
        WebSearchTool {
            allowed_domains: allowed,
            blocked_domains: Vec::new(),
            location,
            extras: ExtraFields::new(),
        },
        filters,
    ))
}

/// Reads the tool choice. The flag is true if canon can express all of it.
pub(super) fn choice(value: &Value) -> (ToolChoiceMode, bool) {
    let name = |tool: &Value| {
        let kind = tool.get("type").and_then(Value::as_str);
        if !matches!(kind, Some("function" | "custom")) {
            return None;
        }
        // Clients written for the chat format nest the name.
        let nested = kind.and_then(|kind| tool.get(kind)).and_then(|inner| inner.get("name"));
        let name = tool.get("name").or(nested)?.as_str()?;
        Some(tool_names::flat_name(tool.get("namespace").and_then(Value::as_str), name))
    };
    match value {
        Value::String(word) => match word.as_str() {
            "auto" => (ToolChoiceMode::Auto, true),
            "none" => (ToolChoiceMode::Disabled, true),
            "required" => (ToolChoiceMode::Required, true),
            _ => (ToolChoiceMode::Unset, false),
        },
        _ if value.get("type").and_then(Value::as_str) == Some("allowed_tools") => {
            let list = value.get("tools").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            let names: Vec<String> = list.iter().filter_map(name).collect();
            let required = value.get("mode").and_then(Value::as_str) == Some("required");
            let whole = names.len() == list.len();
            (ToolChoiceMode::AnyOf { names, required }, whole)
        }
        _ => match name(value) {
            Some(name) => (ToolChoiceMode::Tool(name), true),
            None => (ToolChoiceMode::Unset, false),
        },
    }
}

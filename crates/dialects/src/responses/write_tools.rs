//! Writes tools and the tool choice, for requests and for the echo of a request.

use canon::{
    ExtraFields, FunctionTool, Losses, Tool, ToolChoice, ToolChoiceMode, UserLocation,
    WebSearchTool,
};
use serde_json::{Map, Value};

use super::names::{ADDED_TOOLS_EXTRA, NAMESPACE_EXTRA, ORIGIN};
use super::own::tool_names::{self, ToolNames};
use crate::fields::{ObjectWriter, note_foreign_fields, write_cache_breakpoint};

/// Written tool declarations, grouped by namespace.
pub(super) struct ToolDeclarations {
    /// Value of `tools`.
    pub(super) tools: Vec<Value>,
    /// Lists declared inside the conversation, with the index of the turn that follows.
    pub(super) added: Vec<(usize, Value)>,
}

/// Writes the declarations.
pub(super) fn write(tools: &[Tool], losses: &mut Losses) -> ToolDeclarations {
    let mut declared = ToolDeclarations { tools: Vec::new(), added: Vec::new() };
    let mut lists: Vec<(Option<&Value>, Vec<Value>)> = Vec::new();
    let mut last_space: Option<&Value> = None;
    for tool in tools {
        let Some((value, extras)) = write_tool(tool, losses) else { continue };
        if let Some(extras) = extras {
            note_foreign_fields(extras, ORIGIN, "tools", losses);
        }
        let kept = DeclarationPlace::new(tool, extras);
        let fresh = lists.last().is_none_or(|(added, _)| *added != kept.added);
        if fresh {
            lists.push((kept.added, Vec::new()));
            last_space = None;
        }
        let Some((_, list)) = lists.last_mut() else { continue };
        match kept.space {
            Some(space) if last_space == Some(space) => {
                if let Some(Value::Object(group)) = list.last_mut()
                    && let Some(Value::Array(members)) = group.get_mut("tools")
                {
                    members.push(value);
                }
            }
            Some(space) => {
                let fields = space.as_object().cloned().unwrap_or_default();
                let group = ObjectWriter::new()
                    .set("type", "namespace")
                    .with_extras(&ExtraFields::from_fields(ORIGIN, fields), ORIGIN)
                    .set("tools", vec![value]);
                list.push(group.into());
            }
            None => list.push(value),
        }
        last_space = kept.space;
    }
    for (added, list) in lists {
        match added {
            None => declared.tools.extend(list),
            Some(mark) => {
                let turn = mark.get("turn").and_then(Value::as_u64).unwrap_or(0);
                let fields = mark.get("item").and_then(Value::as_object).cloned();
                let item = ObjectWriter::new()
                    .set("type", "additional_tools")
                    .with_extras(
                        &ExtraFields::from_fields(ORIGIN, fields.unwrap_or_default()),
                        ORIGIN,
                    )
                    .set("tools", list);
                declared.added.push((usize::try_from(turn).unwrap_or(0), item.into()));
            }
        }
    }
    declared
}

/// Position of a declaration.
struct DeclarationPlace<'a> {
    space: Option<&'a Value>,
    added: Option<&'a Value>,
}

impl<'a> DeclarationPlace<'a> {
    fn new(tool: &'a Tool, extras: Option<&'a ExtraFields>) -> Self {
        match (tool, extras) {
            (Tool::Foreign { value, .. }, _) => {
                Self { space: value.get(NAMESPACE_EXTRA), added: value.get(ADDED_TOOLS_EXTRA) }
            }
            (_, Some(extras)) => Self {
                space: extras.get(ORIGIN, NAMESPACE_EXTRA),
                added: extras.get(ORIGIN, ADDED_TOOLS_EXTRA),
            },
            (_, None) => Self { space: None, added: None },
        }
    }
}

fn write_tool<'a>(tool: &'a Tool, losses: &mut Losses) -> Option<(Value, Option<&'a ExtraFields>)> {
    Some(match tool {
        Tool::Function(tool) => (write_function(tool, losses), Some(&tool.extras)),
        Tool::Custom { name, description, grammar, extras } => {
            let name = tool_names::namespace_of(extras)
                .map_or(name.as_str(), |s| tool_names::bare_name(s, name));
            let tool = ObjectWriter::new()
                .set("type", "custom")
                .set("name", name)
                .set_some("description", description.as_deref())
                .set_some("format", grammar.clone().map(flattened))
                .with_extras(extras, ORIGIN);
            (without_extras(tool), Some(extras))
        }
        Tool::WebSearch(tool) => (write_search(tool, losses), Some(&tool.extras)),
        Tool::CodeExecution(extras) => {
            let tool =
                ObjectWriter::new().set("type", "code_interpreter").with_extras(extras, ORIGIN);
            let container = ObjectWriter::new().set("type", "auto");
            let tool = match extras.get(ORIGIN, "container") {
                Some(_) => tool,
                None => tool.set("container", container),
            };
            (without_extras(tool), Some(extras))
        }
        Tool::Foreign { origin, value } if *origin == ORIGIN => {
            let mut value = value.clone();
            if let Value::Object(object) = &mut value {
                object.shift_remove(NAMESPACE_EXTRA);
                object.shift_remove(ADDED_TOOLS_EXTRA);
            }
            (value, None)
        }
        Tool::UrlFetch(_) => {
            losses.add("tools.fetch", "the responses format cannot fetch URLs");
            return None;
        }
        Tool::Foreign { .. } => {
            losses.add("tools", "a tool only the caller's format has");
            return None;
        }
    })
}

/// Flattens the grammar of a custom tool, which the chat format and canon nest.
fn flattened(format: Value) -> Value {
    match format {
        Value::Object(mut fields) => match fields.shift_remove("grammar") {
            Some(Value::Object(inner)) => {
                fields.extend(inner);
                Value::Object(fields)
            }
            Some(other) => {
                fields.insert("grammar".to_owned(), other);
                Value::Object(fields)
            }
            None => Value::Object(fields),
        },
        format => format,
    }
}

/// Removes the extras that only hold the position of a tool.
fn without_extras(tool: ObjectWriter) -> Value {
    let mut map: Map<String, Value> = tool.into_map();
    map.shift_remove(NAMESPACE_EXTRA);
    map.shift_remove(ADDED_TOOLS_EXTRA);
    Value::Object(map)
}

fn write_function(tool: &FunctionTool, losses: &mut Losses) -> Value {
    let FunctionTool { name, description, parameters, result, strict, deferred, cache, extras } =
        tool;
    losses.add_if(
        cache.is_some() && extras.for_format(ORIGIN).is_none(),
        "tools.cache",
        "a tool cannot have a cache breakpoint here",
    );
    let name = tool_names::namespace_of(extras)
        .map_or(name.as_str(), |space| tool_names::bare_name(space, name));
    let tool = ObjectWriter::new()
        .set("type", "function")
        .set("name", name)
        .set_some("description", description.as_deref())
        .set("parameters", parameters.as_ref().map_or(Value::Null, |schema| schema.json.clone()))
        // The default of this format is `true`, unlike every other format.
        .set("strict", strict.unwrap_or(false))
        .set_some("output_schema", result.as_ref().map(|schema| schema.json.clone()))
        .set_some("defer_loading", deferred.then_some(true));
    let own = cache.as_ref().filter(|_| extras.for_format(ORIGIN).is_some());
    let mark = own.map(write_cache_breakpoint);
    without_extras(tool.set_some("prompt_cache_breakpoint", mark).with_extras(extras, ORIGIN))
}

fn write_search(tool: &WebSearchTool, losses: &mut Losses) -> Value {
    let WebSearchTool { allowed_domains: allowed, blocked_domains: blocked, location, extras } =
        tool;
    losses.add_if(
        !blocked.is_empty(),
        "tools.search.blocked",
        "a search here can be limited to domains, but cannot exclude any",
    );
    let filters = ObjectWriter::new()
        .set_some("allowed_domains", (!allowed.is_empty()).then(|| allowed.clone()));
    let kept = extras.get(ORIGIN, "filters").and_then(Value::as_object).cloned();
    let filters = filters
        .with_extras(&ExtraFields::from_fields(ORIGIN, kept.unwrap_or_default()), ORIGIN)
        .into_map();
    let location = location.as_ref().map(|near| {
        let UserLocation { country, region, city, timezone } = near;
        ObjectWriter::new()
            .set("type", "approximate")
            .set_some("country", country.as_deref())
            .set_some("region", region.as_deref())
            .set_some("city", city.as_deref())
            .set_some("timezone", timezone.as_deref())
    });
    let kind = extras.get(ORIGIN, "type").and_then(Value::as_str).unwrap_or("web_search");
    let tool = ObjectWriter::new()
        .set("type", kind)
        .set_some("filters", (!filters.is_empty()).then_some(filters))
        .set_some("user_location", location)
        .with_extras(extras, ORIGIN);
    without_extras(tool)
}

/// Writes the tool choice. `None` if the caller set none.
pub(super) fn write_choice(choice: &ToolChoice, tools: &[Tool]) -> Option<Value> {
    let ToolChoice { mode: choice, parallel: _ } = choice;
    let names = ToolNames::new(tools);
    let named = |flat: &str| {
        let (space, name) = names.split(flat);
        let kind = if names.is_custom(flat) { "custom" } else { "function" };
        ObjectWriter::new().set("type", kind).set("name", name).set_some("namespace", space)
    };
    match choice {
        ToolChoiceMode::Unset => None,
        ToolChoiceMode::Auto => Some("auto".into()),
        ToolChoiceMode::Disabled => Some("none".into()),
        ToolChoiceMode::Required => Some("required".into()),
        ToolChoiceMode::Tool(name) => Some(named(name).into()),
        ToolChoiceMode::AnyOf { names, required } => {
            let tools: Vec<Value> = names.iter().map(|name| named(name).into()).collect();
            let mode = if *required { "required" } else { "auto" };
            let object = ObjectWriter::new().set("type", "allowed_tools").set("mode", mode);
            Some(object.set("tools", tools).into())
        }
    }
}

/// Writes a tool for the echo, where all fields are required.
pub(super) fn echo_tool(mut tool: Value) -> Value {
    if let Value::Object(fields) = &mut tool
        && fields.get("type").and_then(Value::as_str) == Some("function")
    {
        fields.entry("strict").or_insert(Value::Bool(true));
        fields.entry("parameters").or_insert(Value::Null);
        fields.entry("description").or_insert(Value::Null);
    }
    tool
}

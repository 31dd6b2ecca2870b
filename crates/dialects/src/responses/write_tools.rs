//! Writes tools and the tool choice, for requests and for the echo of a request.

use canon::{
    ClientToolKind, ExtraFields, FunctionTool, Losses, Tool, ToolChoice, ToolChoiceMode,
    WebSearchTool,
};
use serde_json::Value;

use super::names::{ADDED_TOOLS_EXTRA, NAMESPACE_EXTRA, ORIGIN};
use super::own::server_secrets::hide_server_secrets;
use super::own::tool_names::{self, ToolNames};
use crate::fields::{ObjectWriter, lose, note_foreign_fields, write_cache_breakpoint};
use crate::openai_values::write_location;

/// Written tool declarations, grouped by namespace.
#[derive(Default)]
pub(super) struct ToolDeclarations {
    /// Value of `tools`.
    pub(super) tools: Vec<Value>,
    /// Lists declared inside the conversation, with the index of the turn that follows.
    pub(super) added: Vec<(usize, Value)>,
}

/// Writes the declarations.
pub(super) fn write(tools: &[Tool], losses: &mut Losses) -> ToolDeclarations {
    let mut lists: Vec<(Option<&Value>, Vec<Value>)> = Vec::new();
    let mut last = None;
    for (tool, value) in tools.iter().flat_map(|tool| write_each(tool, losses)) {
        let (added, space) = (note_of(tool, ADDED_TOOLS_EXTRA), note_of(tool, NAMESPACE_EXTRA));
        if lists.last().is_none_or(|(list, _)| *list != added) {
            lists.push((added, Vec::new()));
        }
        let Some((_, list)) = lists.last_mut() else { continue };
        let group = list.last_mut().filter(|_| space.is_some() && last == Some((added, space)));
        match (group.and_then(|group| group.get_mut("tools")), space) {
            (Some(Value::Array(members)), _) => members.push(value),
            (_, None) => list.push(value),
            (_, Some(_)) => {
                let group = ObjectWriter::typed("namespace").with_object(space);
                list.push(group.set("tools", vec![value]).into());
            }
        }
        last = Some((added, space));
    }
    let mut declared = ToolDeclarations::default();
    for (added, list) in lists {
        let Some(mark) = added else {
            declared.tools.extend(list);
            continue;
        };
        let turn = mark.get("turn").and_then(Value::as_u64).unwrap_or(0);
        let item = ObjectWriter::typed("additional_tools").with_object(mark.get("item"));
        let item = item.set("tools", list);
        declared.added.push((usize::try_from(turn).unwrap_or(0), item.into()));
    }
    declared
}

fn extras_of(tool: &Tool) -> Option<&ExtraFields> {
    match tool {
        Tool::Function(tool) => Some(&tool.extras),
        Tool::WebSearch(tool) => Some(&tool.extras),
        Tool::Custom { extras, .. } | Tool::CodeExecution(extras) | Tool::UrlFetch(extras) => {
            Some(extras)
        }
        Tool::Client(_) | Tool::Foreign { .. } => None,
    }
}

/// Returns a note of the reader about the place of a declaration.
fn note_of<'a>(tool: &'a Tool, name: &str) -> Option<&'a Value> {
    match tool {
        Tool::Foreign { value, .. } => value.get(name),
        Tool::Client(tool) => tool.value.get(name),
        tool => extras_of(tool)?.get(ORIGIN, name),
    }
}

/// Writes a tool. One that the caller runs and another format defines may be several functions.
fn write_each<'a>(tool: &'a Tool, losses: &mut Losses) -> Vec<(&'a Tool, Value)> {
    let values = match tool {
        // The conversation has the tools that a search found.
        Tool::Client(tool) if tool.kind == ClientToolKind::FoundTools => Vec::new(),
        Tool::Client(tool) if tool.origin == ORIGIN => vec![without_notes(&tool.value)],
        Tool::Client(tool) => {
            let write =
                |tool| write_with_extras(write_function(tool, losses), &tool.extras, losses);
            tool.functions.iter().map(write).collect()
        }
        tool => write_tool(tool, losses).into_iter().collect(),
    };
    values.into_iter().map(|value| (tool, value)).collect()
}

/// Returns a declaration without the notes of the reader.
fn without_notes(value: &Value) -> Value {
    let mut value = value.clone();
    if let Value::Object(object) = &mut value {
        object.retain(|name, _| !matches!(&**name, NAMESPACE_EXTRA | ADDED_TOOLS_EXTRA));
    }
    value
}

fn write_with_extras(tool: ObjectWriter, extras: &ExtraFields, losses: &mut Losses) -> Value {
    note_foreign_fields(extras, ORIGIN, "tools", losses);
    tool.with_extras(extras, ORIGIN).into()
}

fn write_tool(tool: &Tool, losses: &mut Losses) -> Option<Value> {
    let written = match tool {
        Tool::Function(tool) => write_function(tool, losses),
        Tool::Custom { name, description, grammar, extras } => ObjectWriter::typed("custom")
            .set("name", tool_names::declared_name(extras, name))
            .set_some("description", description.as_deref())
            .set_some("format", grammar.clone().map(flattened)),
        Tool::WebSearch(tool) => write_search(tool, losses),
        Tool::CodeExecution(extras) => {
            let is_new = extras.get(ORIGIN, "container").is_none();
            let container = is_new.then(|| ObjectWriter::typed("auto"));
            ObjectWriter::typed("code_interpreter").set_some("container", container)
        }
        Tool::Foreign { origin: ORIGIN, value } => return Some(without_notes(value)),
        Tool::Client(_) => return None,
        Tool::UrlFetch(_) => {
            return lose("tools.fetch", "the responses format cannot fetch URLs", losses);
        }
        Tool::Foreign { .. } => {
            return lose("tools", "a tool only the caller's format has", losses);
        }
    };
    Some(write_with_extras(written, extras_of(tool)?, losses))
}

/// Flattens the grammar of a custom tool, which the chat format and canon nest.
fn flattened(mut format: Value) -> Value {
    if let Value::Object(fields) = &mut format
        && let Some(Value::Object(_)) = fields.get("grammar")
        && let Some(Value::Object(inner)) = fields.shift_remove("grammar")
    {
        fields.extend(inner);
    }
    format
}

fn write_function(tool: &FunctionTool, losses: &mut Losses) -> ObjectWriter {
    let FunctionTool { name, description, parameters, result, strict, deferred, cache, extras } =
        tool;
    let is_own = extras.for_format(ORIGIN).is_some();
    let why = "a tool cannot have a cache breakpoint here";
    losses.add_if(cache.is_some() && !is_own, "tools.cache", why);
    let mark = cache.as_ref().filter(|_| is_own).map(write_cache_breakpoint);
    ObjectWriter::typed("function")
        .set("name", tool_names::declared_name(extras, name))
        .set_some("description", description.as_deref())
        .set("parameters", parameters.as_ref().map(|schema| schema.json.clone()))
        // The default of this format is `true`, unlike every other format.
        .set("strict", strict.unwrap_or(false))
        .set_some("output_schema", result.as_ref().map(|schema| schema.json.clone()))
        .set_some("defer_loading", deferred.then_some(true))
        .set_some("prompt_cache_breakpoint", mark)
}

fn write_search(tool: &WebSearchTool, losses: &mut Losses) -> ObjectWriter {
    let WebSearchTool { allowed_domains: allowed, blocked_domains: blocked, location, extras } =
        tool;
    let why = "a search here can be limited to domains, but cannot exclude any";
    losses.add_if(!blocked.is_empty(), "tools.search.blocked", why);
    let filters = ObjectWriter::new()
        .set_some("allowed_domains", (!allowed.is_empty()).then(|| allowed.clone()))
        .with_object(extras.get(ORIGIN, "filters"));
    let near = ObjectWriter::typed("approximate");
    let location = location.as_ref().map(|place| write_location(near, place));
    let kind = extras.get(ORIGIN, "type").and_then(Value::as_str).unwrap_or("web_search");
    ObjectWriter::typed(kind)
        .set_some("filters", filters.into_filled())
        .set_some("user_location", location)
}

/// Writes the tool choice. `None` if the caller set none.
pub(super) fn write_choice(choice: &ToolChoice, tools: &[Tool]) -> Option<Value> {
    let ToolChoice { mode: choice, parallel: _ } = choice;
    let names = ToolNames::new(tools);
    let named = |flat: &str| {
        if let Some(kind) = names.client_type(flat) {
            return ObjectWriter::typed(kind);
        }
        let (space, name) = names.split(flat);
        let kind = if names.is_custom(flat) { "custom" } else { "function" };
        ObjectWriter::typed(kind).set("name", name).set_some("namespace", space)
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
            Some(ObjectWriter::typed("allowed_tools").set("mode", mode).set("tools", tools).into())
        }
    }
}

/// Writes a tool for the echo, where all fields are required and none is a secret.
pub(super) fn echo_tool(mut tool: Value) -> Value {
    hide_server_secrets(&mut tool);
    if let Value::Object(fields) = &mut tool
        && fields.get("type").and_then(Value::as_str) == Some("function")
    {
        fields.entry("strict").or_insert(Value::Bool(true));
        fields.entry("parameters").or_insert(Value::Null);
        fields.entry("description").or_insert(Value::Null);
    }
    tool
}

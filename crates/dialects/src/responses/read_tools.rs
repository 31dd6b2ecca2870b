//! Reads tools and the tool choice into canon.

use canon::{ExtraFields, FunctionTool, JsonSchema, Tool, ToolChoiceMode, WebSearchTool};
use serde_json::{Map, Value};

use super::names::{ADDED_TOOLS_EXTRA, NAMESPACE_EXTRA, ORIGIN};
use super::own::tool_names::flat_name;
use super::request::{
    PlacedChoice, ResponsesNamespace, ResponsesSearchTool, ResponsesTool, ResponsesToolChoice,
};
use crate::fields::ObjectWriter;
use crate::openai_values::{SearchLocation, read_cache_mark};
use crate::text::BorrowedText;
use crate::wire_object::raw_value;
use crate::wire_value::{OpaqueObject, TextOrObject};

/// The place of a declaration, which becomes a note in its extras.
#[derive(Clone, Copy, Default)]
struct ToolPlace<'v> {
    /// Fields of the namespace around.
    namespace: Option<&'v Value>,
    /// Position in the conversation.
    added: Option<&'v Value>,
}

impl ToolPlace<'_> {
    fn notes(self) -> impl Iterator<Item = (&'static str, Value)> {
        let notes = [(NAMESPACE_EXTRA, self.namespace), (ADDED_TOOLS_EXTRA, self.added)];
        notes.into_iter().filter_map(|(name, value)| Some((name, value?.clone())))
    }

    fn mark(self, mut extras: ExtraFields) -> ExtraFields {
        for (name, value) in self.notes() {
            extras.insert(ORIGIN, name, value);
        }
        extras
    }

    fn flat_name(self, name: Option<BorrowedText<'_>>) -> String {
        let space = self.namespace.and_then(|space| space.get("name")).and_then(Value::as_str);
        flat_name(space, &name.unwrap_or_default())
    }

    fn foreign(self, mut value: Value) -> Tool {
        if let Value::Object(fields) = &mut value {
            fields.extend(self.notes().map(|(name, value)| (name.to_owned(), value)));
        }
        Tool::Foreign { origin: ORIGIN, value }
    }
}

/// Reads a list of tools. Namespaces are flattened. `added` is the position of the list in the
/// conversation, if it is there.
pub(super) fn read(list: Vec<ResponsesTool<'_>>, added: Option<&Value>, tools: &mut Vec<Tool>) {
    for tool in list {
        let place = ToolPlace { added, namespace: None };
        match tool {
            ResponsesTool::Namespace(ResponsesNamespace { name, tools: members, rest }) => {
                let mut group = Map::new();
                group.insert("name".to_owned(), Value::from(&*name.unwrap_or_default()));
                group.extend(rest.to_map());
                let group = Value::Object(group);
                let place = ToolPlace { namespace: Some(&group), ..place };
                tools.extend(members.into_iter().flatten().map(|member| match member.value {
                    ResponsesTool::Namespace(_) => place.foreign(raw_value(member.raw)),
                    tool => read_tool(tool, place),
                }));
            }
            tool => tools.push(read_tool(tool, place)),
        }
    }
}

fn read_tool(tool: ResponsesTool<'_>, place: ToolPlace<'_>) -> Tool {
    let schema = |schema: OpaqueObject<'_>| JsonSchema::new(schema.to_value());
    match tool {
        ResponsesTool::Function(mut tool) => {
            let cache = read_cache_mark(&mut tool.rest);
            Tool::Function(FunctionTool {
                name: place.flat_name(tool.name),
                description: tool.description.map(BorrowedText::into_owned),
                parameters: tool.parameters.map(schema),
                result: tool.output_schema.map(schema),
                strict: tool.strict,
                deferred: tool.defer_loading.unwrap_or(false),
                cache,
                extras: place.mark(tool.rest.to_extras(ORIGIN)),
            })
        }
        ResponsesTool::Custom(tool) => Tool::Custom {
            name: place.flat_name(tool.name),
            description: tool.description.map(BorrowedText::into_owned),
            grammar: tool.format.map(|format| nested(raw_value(format))),
            extras: place.mark(tool.rest.to_extras(ORIGIN)),
        },
        ResponsesTool::Code(tool) => Tool::CodeExecution(place.mark(tool.rest.to_extras(ORIGIN))),
        ResponsesTool::Search(tool) => read_search(tool, None, place),
        ResponsesTool::DatedSearch(tool) => read_search(tool, Some("web_search_2025_08_26"), place),
        ResponsesTool::PreviewSearch(tool) => read_search(tool, Some("web_search_preview"), place),
        ResponsesTool::DatedPreviewSearch(tool) => {
            read_search(tool, Some("web_search_preview_2025_03_11"), place)
        }
        // A namespace is read by its caller.
        ResponsesTool::Namespace(group) => place.foreign(group.rest.to_value()),
        ResponsesTool::Unknown(fields) => match fields.text("type") {
            // A version that is not known yet.
            Some(kind) if kind.starts_with("web_search") => {
                let extras = place.mark(fields.to_extras(ORIGIN));
                Tool::WebSearch(WebSearchTool { extras, ..WebSearchTool::default() })
            }
            _ => place.foreign(fields.to_value()),
        },
    }
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

fn read_search(tool: ResponsesSearchTool<'_>, kind: Option<&str>, place: ToolPlace<'_>) -> Tool {
    let filters = tool.filters.unwrap_or_default();
    let mut extras = tool.rest.to_extras(ORIGIN);
    filters.rest.keep_in(&mut extras, ORIGIN, "filters");
    if let Some(kind) = kind {
        extras.insert(ORIGIN, "type", Value::from(kind));
    }
    let domains = filters.allowed_domains.into_iter().flatten();
    Tool::WebSearch(WebSearchTool {
        allowed_domains: domains.map(BorrowedText::into_owned).collect(),
        blocked_domains: Vec::new(),
        location: tool.user_location.map(SearchLocation::into_canon),
        extras: place.mark(extras),
    })
}

/// Reads the tool choice. The flag is true if canon can express all of it.
pub(super) fn read_choice(choice: &PlacedChoice<'_>) -> (ToolChoiceMode, bool) {
    match &choice.value {
        TextOrObject::Text(word) => match &**word {
            "auto" => (ToolChoiceMode::Auto, true),
            "none" => (ToolChoiceMode::Disabled, true),
            "required" => (ToolChoiceMode::Required, true),
            _ => (ToolChoiceMode::Unset, false),
        },
        TextOrObject::Object(choice) => match (choice.allowed_tools(), choice.tool_name()) {
            (Some(list), _) => {
                let names: Vec<_> =
                    list.iter().filter_map(ResponsesToolChoice::tool_name).collect();
                let is_whole = names.len() == list.len();
                let required = choice.mode.as_deref() == Some("required");
                (ToolChoiceMode::AnyOf { names, required }, is_whole)
            }
            (None, Some(name)) => (ToolChoiceMode::Tool(name), true),
            (None, None) => (ToolChoiceMode::Unset, false),
        },
    }
}

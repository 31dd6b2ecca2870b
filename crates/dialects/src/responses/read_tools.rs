//! Reads tools and the tool choice into canon.

use canon::{
    ClientTool, ClientToolKind, ExtraFields, FunctionTool, JsonSchema, Tool, ToolChoiceMode,
    WebSearchTool,
};
use serde_json::{Map, Value};

use super::names::{ADDED_TOOLS_EXTRA, NAMESPACE_EXTRA, ORIGIN};
use super::own::client_tools;
use super::own::tool_names::flat_name;
use super::request::{PlacedChoice, ResponsesNamespace, ResponsesTool, ResponsesToolChoice};
use crate::fields::ObjectWriter;
use crate::json;
use crate::openai_values::{SearchLocation, read_cache_mark};
use crate::text::{BorrowedText, owned};
use crate::wire_object::{UnknownFields, raw_value};
use crate::wire_value::{OpaqueObject, TextOrObject};

/// The place of a declaration.
#[derive(Clone, Default)]
pub(super) struct ToolPlace {
    namespace: Option<String>,
    /// Notes for the writer, with which the place is found again.
    notes: Map<String, Value>,
}

impl ToolPlace {
    /// Returns the place of a list inside the conversation.
    pub(super) fn added(mark: Value) -> Self {
        let notes = [(ADDED_TOOLS_EXTRA.to_owned(), mark)].into_iter().collect();
        Self { namespace: None, notes }
    }

    /// Returns the extras of a tool at this place.
    fn extras(&self, rest: &UnknownFields<'_>) -> ExtraFields {
        let mut fields = rest.to_map();
        fields.extend(self.notes.clone());
        ExtraFields::from_fields(ORIGIN, fields)
    }

    fn flat_name(&self, name: Option<BorrowedText<'_>>) -> String {
        flat_name(self.namespace.as_deref(), &name.unwrap_or_default())
    }
}

/// Reads a list of tools. Namespaces are flattened.
pub(super) fn read(list: Vec<ResponsesTool<'_>>, place: &ToolPlace, tools: &mut Vec<Tool>) {
    for tool in list {
        if let ResponsesTool::Namespace(ResponsesNamespace { name, tools: members, rest }) = tool {
            let name = owned(name);
            let mut group = rest.to_map();
            group.insert("name".to_owned(), Value::from(name.as_str()));
            let mut place = ToolPlace { namespace: Some(name), ..place.clone() };
            place.notes.insert(NAMESPACE_EXTRA.to_owned(), Value::Object(group));
            read(members.map(|list| list.0).unwrap_or_default(), &place, tools);
        } else {
            tools.extend(read_tool(tool, place));
        }
    }
}

fn read_tool(tool: ResponsesTool<'_>, place: &ToolPlace) -> Option<Tool> {
    let schema = |schema: OpaqueObject<'_>| JsonSchema::new(schema.to_value());
    Some(match tool {
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
                extras: place.extras(&tool.rest),
            })
        }
        ResponsesTool::Custom(tool) => Tool::Custom {
            name: place.flat_name(tool.name),
            description: tool.description.map(BorrowedText::into_owned),
            grammar: tool.format.map(|format| nested(raw_value(format))),
            extras: place.extras(&tool.rest),
        },
        ResponsesTool::Code(tool) => Tool::CodeExecution(place.extras(&tool.rest)),
        ResponsesTool::Search(tool) => {
            let filters = tool.filters.unwrap_or_default();
            let mut extras = place.extras(&tool.rest);
            filters.rest.keep_in(&mut extras, ORIGIN, "filters");
            let domains = filters.allowed_domains.into_iter().flatten();
            Tool::WebSearch(WebSearchTool {
                allowed_domains: domains.map(BorrowedText::into_owned).collect(),
                blocked_domains: Vec::new(),
                location: tool.user_location.map(SearchLocation::into_canon),
                extras,
            })
        }
        ResponsesTool::Unknown(fields) => {
            let mut value = fields.to_value();
            let client = value.as_object().and_then(client_tools::read_tool);
            if let Value::Object(fields) = &mut value {
                fields.extend(place.notes.clone());
            }
            match client {
                Some(tool) => Tool::Client(Box::new(ClientTool { value, ..tool })),
                None => Tool::Foreign { origin: ORIGIN, value },
            }
        }
        ResponsesTool::Namespace(_) => return None,
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
            ObjectWriter::typed("grammar").set("grammar", fields).into()
        }
        format => format,
    }
}

/// Reads the tool choice. The flag is true if canon can express all of it.
pub(super) fn read_choice(choice: &PlacedChoice<'_>, tools: &[Tool]) -> (ToolChoiceMode, bool) {
    let name_of = |choice: &ResponsesToolChoice<'_>| {
        choice.tool_name().or_else(|| client_name(choice.kind.as_deref()?, tools))
    };
    match &choice.value {
        TextOrObject::Text(word) => match &**word {
            "auto" => (ToolChoiceMode::Auto, true),
            "none" => (ToolChoiceMode::Disabled, true),
            "required" => (ToolChoiceMode::Required, true),
            _ => (ToolChoiceMode::Unset, false),
        },
        TextOrObject::Object(choice) => match (choice.allowed_tools(), name_of(choice)) {
            (Some(list), _) => {
                let names: Vec<_> = list.iter().filter_map(name_of).collect();
                let is_whole = names.len() == list.len();
                let required = choice.mode.as_deref() == Some("required");
                (ToolChoiceMode::AnyOf { names, required }, is_whole)
            }
            (None, Some(name)) => (ToolChoiceMode::Tool(name), true),
            (None, None) => (ToolChoiceMode::Unset, false),
        },
    }
}

/// Returns the name of the function of a tool that the caller runs and that is chosen by its type.
fn client_name(kind: &str, tools: &[Tool]) -> Option<String> {
    let kind = client_tools::chosen_kind(kind)?;
    let is_chosen = |own: ClientToolKind| match kind {
        // Each word for the computer means the version that is declared.
        ClientToolKind::ComputerCalls | ClientToolKind::ComputerPreview => {
            matches!(own, ClientToolKind::ComputerCalls | ClientToolKind::ComputerPreview)
        }
        kind => own == kind,
    };
    let tool = ClientTool::all_in(tools).find(|tool| is_chosen(tool.kind))?;
    Some(tool.functions.first()?.name.clone())
}

/// Reads the tools that a search of the caller has found. They are shown to the model from now on.
pub(super) fn read_found(list: &[Value]) -> Vec<Tool> {
    let mut found = Vec::new();
    for value in list {
        let text = value.to_string();
        if let Ok(tool) = json::read::<ResponsesTool<'_>>(&text) {
            read(vec![tool], &ToolPlace::default(), &mut found);
        }
    }
    let functions = found.into_iter().filter_map(|tool| match tool {
        Tool::Function(tool) => Some(FunctionTool { deferred: false, ..tool }),
        Tool::Custom { .. }
        | Tool::WebSearch(_)
        | Tool::CodeExecution(_)
        | Tool::UrlFetch(_)
        | Tool::Client(_)
        | Tool::Foreign { .. } => None,
    });
    let functions: Vec<FunctionTool> = functions.collect();
    let tool = ClientTool {
        kind: ClientToolKind::FoundTools,
        origin: ORIGIN,
        value: Value::Null,
        functions,
    };
    vec![Tool::Client(Box::new(tool))]
}

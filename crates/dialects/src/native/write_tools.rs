//! Writes tools and the tool choice.

use canon::{
    ExtraFields, FunctionTool, JsonSchema, Losses, Tool, ToolChoice, ToolChoiceMode, WebSearchTool,
};

use super::names::{ORIGIN, VALIDATED_EXTRA};
use super::own::dotted_extras;
use crate::client_tools::{TOLD_GRAMMAR, custom_function};
use crate::fields::{ObjectWriter, note_foreign_fields};

/// Writes all functions into one tool, and every other tool separately.
pub(super) fn write_tools(tools: &[Tool], losses: &mut Losses) -> Vec<ObjectWriter> {
    let mut functions: Vec<ObjectWriter> = Vec::new();
    let mut others: Vec<ObjectWriter> = Vec::new();
    for tool in tools {
        match tool {
            Tool::Function(tool) => functions.push(function(tool, losses)),
            Tool::Custom { name, description, grammar, extras } => {
                losses.add_if(grammar.is_some(), "tools.grammar", TOLD_GRAMMAR);
                note_foreign_fields(extras, ORIGIN, "tools", losses);
                let tool = custom_function(name, description.as_deref(), grammar.as_ref());
                functions.push(function(&tool, losses));
            }
            Tool::Client(tool) if tool.origin == ORIGIN => {
                others.push(ObjectWriter::new().with_object(Some(&tool.value)));
            }
            Tool::Client(tool) => {
                functions.extend(tool.functions.iter().map(|tool| function(tool, losses)));
            }
            Tool::WebSearch(tool) => others.push(search(tool, losses)),
            Tool::CodeExecution(extras) => others.push(plain("codeExecution", extras, losses)),
            Tool::UrlFetch(extras) => others.push(plain("urlContext", extras, losses)),
            Tool::Foreign { origin, value } if *origin == ORIGIN => {
                others.push(ObjectWriter::new().with_object(Some(value)));
            }
            Tool::Foreign { .. } => losses.add("tools", "a tool only the caller's format has"),
        }
    }
    let functions =
        (!functions.is_empty()).then(|| ObjectWriter::new().set("functionDeclarations", functions));
    functions.into_iter().chain(others).collect()
}

fn plain(name: &'static str, extras: &ExtraFields, losses: &mut Losses) -> ObjectWriter {
    note_foreign_fields(extras, ORIGIN, "tools", losses);
    ObjectWriter::new().set(name, ObjectWriter::new().with_extras(extras, ORIGIN))
}

fn function(tool: &FunctionTool, losses: &mut Losses) -> ObjectWriter {
    let FunctionTool { name, description, parameters, result, strict: _, deferred, cache, extras } =
        tool;
    losses.add_if(*deferred, "tools.deferred", "the native format cannot defer tools");
    losses.add_if(cache.is_some(), "tools.cache", "the native format has no cache breakpoints");
    note_foreign_fields(extras, ORIGIN, "tools", losses);
    let object = ObjectWriter::new()
        .set("name", name.as_str())
        .set_some("description", description.as_deref());
    let object = shape(object, parameters.as_ref(), ["parameters", "parametersJsonSchema"]);
    let object = shape(object, result.as_ref(), ["response", "responseJsonSchema"]);
    object.with_extras(extras, ORIGIN)
}

/// Writes a schema: verbatim if it came from this format, else as JSON Schema.
fn shape(
    object: ObjectWriter,
    schema: Option<&JsonSchema>,
    names: [&'static str; 2],
) -> ObjectWriter {
    let [own, json] = names;
    match schema {
        None => object,
        Some(JsonSchema { json: _, verbatim: Some((origin, value)) }) if *origin == ORIGIN => {
            object.set(own, value.clone())
        }
        Some(JsonSchema { json: value, verbatim: _ }) => object.set(json, value.clone()),
    }
}

fn search(tool: &WebSearchTool, losses: &mut Losses) -> ObjectWriter {
    let WebSearchTool { allowed_domains: allowed, blocked_domains: blocked, location, extras } =
        tool;
    let why = "a native search cannot be limited to domains";
    losses.add_if(!allowed.is_empty(), "tools.search.allowed", why);
    let why = "a native search takes coordinates, not names of places";
    losses.add_if(location.is_some(), "tools.search.location", why);
    note_foreign_fields(extras, ORIGIN, "tools", losses);
    let domains = (!blocked.is_empty()).then(|| blocked.clone());
    let inner = ObjectWriter::new().set_some("excludeDomains", domains).with_extras(extras, ORIGIN);
    ObjectWriter::new().set("googleSearch", inner)
}

/// Writes the tool choice and the caller's own settings for it,
/// <https://ai.google.dev/gemini-api/docs/function-calling>.
pub(super) fn write_choice(chat: &canon::ChatRequest, losses: &mut Losses) -> Option<ObjectWriter> {
    let canon::ChatRequest { tools, extras, tool_choice, .. } = chat;
    let ToolChoice { mode: choice, parallel } = tool_choice;
    let why = "the native format cannot forbid several calls at once";
    losses.add_if(*parallel == Some(false), "choice.parallel", why);
    let is_strict = |tool| matches!(tool, &Tool::Function(FunctionTool { strict: Some(true), .. }));
    let strict = tools.iter().any(is_strict);
    let is_callable =
        |tool| matches!(tool, &Tool::Function(_) | &Tool::Custom { .. } | &Tool::Client(_));
    let callable = tools.iter().any(is_callable);
    let mode = |word: &str| ObjectWriter::new().set("mode", word);
    let calling = match choice {
        ToolChoiceMode::Required | ToolChoiceMode::Tool(_) | ToolChoiceMode::AnyOf { .. }
            if !callable =>
        {
            losses.add("choice", "the native format can only force function calls");
            ObjectWriter::new()
        }
        // Only this mode enforces the schema of the arguments.
        ToolChoiceMode::Unset | ToolChoiceMode::Auto if strict => mode("VALIDATED"),
        ToolChoiceMode::Unset => ObjectWriter::new(),
        ToolChoiceMode::Auto => {
            let validated = extras.get(ORIGIN, VALIDATED_EXTRA).is_some();
            mode(if validated { "VALIDATED" } else { "AUTO" })
        }
        ToolChoiceMode::Disabled => mode("NONE"),
        ToolChoiceMode::Required => mode("ANY"),
        ToolChoiceMode::Tool(name) => mode("ANY").set("allowedFunctionNames", vec![name.as_str()]),
        ToolChoiceMode::AnyOf { names, required } => {
            let word = if *required { "ANY" } else { "VALIDATED" };
            mode(word).set("allowedFunctionNames", names.clone())
        }
    };
    let calling = dotted_extras::restore(calling, extras, "toolConfig.functionCallingConfig");
    let config = ObjectWriter::new().set_some("functionCallingConfig", calling.into_filled());
    dotted_extras::restore(config, extras, "toolConfig").into_filled()
}

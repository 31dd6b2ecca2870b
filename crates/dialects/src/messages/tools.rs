//! Reads and writes tools and the tool choice.

use canon::{
    Choice, Extras, Fault, FunctionTool, Location, Losses, Schema, SearchTool, Tool, ToolChoice,
};
use serde_json::{Map, Value};

use super::names::ORIGIN;
use super::{schema, tool_names, wire};
use crate::fields::{Fields, Object, Path};

const SEARCH_TOOL_TYPE: &str = "web_search_20250305";
const CODE_TOOL_TYPE: &str = "code_execution_20250825";
const FETCH_TOOL_TYPE: &str = "web_fetch_20250910";

/// Reads the tools of a request.
pub(super) fn read(list: Vec<Value>) -> Result<Vec<Tool>, Fault> {
    let root = Path::Root.key("tools");
    list.into_iter().enumerate().map(|(at, value)| read_tool(value, &root.item(at))).collect()
}

fn read_tool(value: Value, path: &Path<'_>) -> Result<Tool, Fault> {
    let word = value.get("type").and_then(Value::as_str).unwrap_or("custom").to_owned();
    if word == "custom" {
        return function(value, path).map(Tool::Function);
    }
    let rest = |value: Value| Ok::<_, Fault>(Fields::new(value, path)?.extras(ORIGIN));
    if word.starts_with("web_search_") {
        search(value, path).map(Tool::Search)
    } else if word.starts_with("code_execution_") {
        rest(value).map(Tool::Code)
    } else if word.starts_with("web_fetch_") {
        rest(value).map(Tool::Fetch)
    } else {
        Ok(Tool::Foreign { origin: ORIGIN, value })
    }
}

fn function(value: Value, path: &Path<'_>) -> Result<FunctionTool, Fault> {
    let mut fields = Fields::new(value, path)?;
    fields.take("type");
    Ok(FunctionTool {
        name: tool_names::read(fields.required("name")?),
        description: fields.string("description")?,
        parameters: fields.take("input_schema").map(Schema::new),
        result: None,
        strict: fields.flag("strict")?,
        deferred: fields.flag("defer_loading")?.unwrap_or(false),
        cache: fields.take("cache_control").as_ref().map(wire::read_cache),
        extras: fields.extras(ORIGIN),
    })
}

fn search(value: Value, path: &Path<'_>) -> Result<SearchTool, Fault> {
    let mut fields = Fields::new(value, path)?;
    let location = fields.object("user_location")?.map(|near| {
        let text = |name: &str| near.get(name).and_then(Value::as_str).map(str::to_owned);
        Location {
            country: text("country"),
            region: text("region"),
            city: text("city"),
            timezone: text("timezone"),
        }
    });
    Ok(SearchTool {
        allowed: fields.strings("allowed_domains")?.unwrap_or_default(),
        blocked: fields.strings("blocked_domains")?.unwrap_or_default(),
        location,
        extras: fields.extras(ORIGIN),
    })
}

/// Reads the tool choice.
pub(super) fn read_choice(choice: Option<Map<String, Value>>) -> Result<ToolChoice, Fault> {
    let path = Path::Root.key("tool_choice");
    let Some(object) = choice else { return Ok(ToolChoice::default()) };
    let mut fields = Fields::of(object, &path);
    let parallel = fields.flag("disable_parallel_tool_use")?.map(|disabled| !disabled);
    let choice = match fields.required("type")?.as_str() {
        "auto" => Choice::Auto,
        "any" => Choice::Required,
        "none" => Choice::Never,
        "tool" => Choice::Named(tool_names::read(fields.required("name")?)),
        _ => Choice::Unset,
    };
    Ok(ToolChoice { choice, parallel })
}

/// Writes tools and the tool choice. The format refuses a forced call while thinking is on.
pub(super) fn write(
    body: Object,
    tools: &[Tool],
    choice: &ToolChoice,
    thinks: bool,
    losses: &mut Losses,
) -> Result<Object, Fault> {
    let ToolChoice { choice, parallel } = choice;
    let only = match choice {
        // The format cannot choose among some tools, so the others are not offered.
        Choice::Among { names, .. } => Some(names),
        Choice::Unset | Choice::Auto | Choice::Never | Choice::Required | Choice::Named(_) => None,
    };
    let mut list = Vec::with_capacity(tools.len());
    for (at, tool) in tools.iter().enumerate() {
        let offered = match (only, own_name(tool)) {
            (Some(only), Some(name)) => only.iter().any(|some| some == name),
            (Some(_), None) | (None, _) => true,
        };
        if offered {
            list.extend(write_tool(tool, at, losses)?);
        }
    }
    if list.is_empty() {
        return Ok(body);
    }
    let object = write_choice(choice, *parallel, thinks, losses);
    Ok(body.set("tools", list).maybe("tool_choice", object))
}

fn own_name(tool: &Tool) -> Option<&str> {
    match tool {
        Tool::Function(FunctionTool { name, .. }) | Tool::Custom { name, .. } => Some(name),
        Tool::Search(_) | Tool::Code(_) | Tool::Fetch(_) | Tool::Foreign { .. } => None,
    }
}

fn write_choice(
    choice: &Choice,
    parallel: Option<bool>,
    thinks: bool,
    losses: &mut Losses,
) -> Option<Value> {
    let forced = match choice {
        Choice::Required | Choice::Named(_) | Choice::Among { required: true, .. } => true,
        Choice::Unset | Choice::Auto | Choice::Never | Choice::Among { required: false, .. } => {
            false
        }
    };
    if forced && thinks {
        losses.add("choice", "the messages format cannot force a tool call while thinking is on");
    }
    let kind = match choice {
        _ if forced && thinks => Object::new().set("type", "auto"),
        Choice::Unset if parallel != Some(false) => return None,
        Choice::Unset | Choice::Auto | Choice::Among { required: false, .. } => {
            Object::new().set("type", "auto")
        }
        Choice::Never => return Some(Object::new().set("type", "none").into()),
        Choice::Required | Choice::Among { required: true, .. } => Object::new().set("type", "any"),
        Choice::Named(name) => {
            Object::new().set("type", "tool").set("name", tool_names::write(name).as_ref())
        }
    };
    Some(kind.maybe("disable_parallel_tool_use", parallel.map(|parallel| !parallel)).into())
}

fn write_tool(tool: &Tool, at: usize, losses: &mut Losses) -> Result<Option<Value>, Fault> {
    Ok(Some(match tool {
        Tool::Function(tool) => write_function(tool, at, losses)?,
        Tool::Custom { name, description, grammar, extras } => {
            wire::note_foreign(extras, "tools", losses);
            losses.add_if(
                grammar.is_some(),
                "tools.grammar",
                "the messages format has no grammars",
            );
            let input = Object::new().set("type", "string").set("description", "The tool's input.");
            let schema = Object::new()
                .set("type", "object")
                .set("properties", Object::new().set("input", input))
                .set("required", vec!["input"]);
            Object::new()
                .set("name", allowed_name(name, at)?)
                .maybe("description", description.as_deref())
                .set("input_schema", schema)
                .into()
        }
        Tool::Search(tool) => write_search(tool, losses),
        Tool::Code(extras) => server(CODE_TOOL_TYPE, "code_execution", extras, losses),
        Tool::Fetch(extras) => server(FETCH_TOOL_TYPE, "web_fetch", extras, losses),
        Tool::Foreign { origin, value } if *origin == ORIGIN => value.clone(),
        Tool::Foreign { .. } => {
            losses.add("tools", "a tool only the caller's format has");
            return Ok(None);
        }
    }))
}

fn allowed_name(name: &str, at: usize) -> Result<String, Fault> {
    let written = tool_names::write(name).into_owned();
    if written.is_empty() || written.len() > tool_names::MAX_NAME_BYTES {
        return Err(Fault::invalid(
            format!("tools[{at}].name"),
            format!("the name of tool {at} cannot be written in the messages format"),
        ));
    }
    Ok(written)
}

fn write_function(tool: &FunctionTool, at: usize, losses: &mut Losses) -> Result<Value, Fault> {
    let FunctionTool { name, description, parameters, result, strict, deferred, cache, extras } =
        tool;
    wire::note_foreign(extras, "tools", losses);
    losses.add_if(result.is_some(), "tools.result", "the messages format declares no results");
    let shape = match parameters {
        None => Object::new().set("type", "object").into(),
        Some(schema) if *strict == Some(true) => object_schema(schema::restrict(&schema.json)),
        Some(schema) => object_schema(schema.json.clone()),
    };
    Ok(Object::new()
        .set("name", allowed_name(name, at)?)
        .maybe("description", description.as_deref())
        .set("input_schema", shape)
        .maybe("strict", *strict)
        .maybe("defer_loading", deferred.then_some(true))
        .maybe("cache_control", cache.as_ref().map(wire::write_cache))
        .with(extras, ORIGIN)
        .into())
}

/// Adds `type: object`, which the format requires of arguments.
fn object_schema(schema: Value) -> Value {
    match schema {
        Value::Object(mut fields) => {
            fields.entry("type").or_insert_with(|| Value::from("object"));
            Value::Object(fields)
        }
        _ => Object::new().set("type", "object").into(),
    }
}

fn write_search(tool: &SearchTool, losses: &mut Losses) -> Value {
    let SearchTool { allowed, blocked, location, extras } = tool;
    wire::note_foreign(extras, "tools", losses);
    let near = location.as_ref().map(|location| {
        let Location { country, region, city, timezone } = location;
        Object::new()
            .set("type", "approximate")
            .maybe("country", country.as_deref())
            .maybe("region", region.as_deref())
            .maybe("city", city.as_deref())
            .maybe("timezone", timezone.as_deref())
    });
    let list = |domains: &[String]| (!domains.is_empty()).then(|| domains.to_vec());
    let tool = Object::new()
        .maybe("allowed_domains", list(allowed))
        .maybe("blocked_domains", list(blocked))
        .maybe("user_location", near);
    named(tool.with(extras, ORIGIN), SEARCH_TOOL_TYPE, "web_search")
}

fn server(kind: &str, name: &str, extras: &Extras, losses: &mut Losses) -> Value {
    wire::note_foreign(extras, "tools", losses);
    named(Object::new().with(extras, ORIGIN), kind, name)
}

/// Puts the dated type and the name first.
fn named(tool: Object, kind: &str, name: &str) -> Value {
    let mut fields = tool.into_map();
    let kind = fields.shift_remove("type").unwrap_or_else(|| Value::from(kind));
    let name = fields.shift_remove("name").unwrap_or_else(|| Value::from(name));
    let mut all = Object::new().set("type", kind).set("name", name).into_map();
    all.extend(fields);
    Value::Object(all)
}

//! The message of a PATCH (RFC 7644, section 3.5.2), with the liberties that identity providers take: operations in
//! any case, booleans as texts, single values in a list, and paths as the names of a value.

use admin::{ScimErrorKind, ScimProblem};
use serde_json::{Map, Value};

use super::filter::AttributePath;

/// Largest number of operations in one message.
const MAX_OPERATIONS: usize = 2_000;
const PATCH_SCHEMA: &str = "urn:ietf:params:scim:api:messages:2.0:PatchOp";

/// Kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchVerb {
    Add,
    Replace,
    Remove,
}

/// One operation on one attribute.
#[derive(Clone, Debug)]
pub(crate) struct PatchStep {
    pub(crate) verb: PatchVerb,
    pub(crate) path: AttributePath,
    pub(crate) value: Option<Value>,
    /// True if the path was the name of a value. Unknown names are then no error.
    pub(crate) is_listed: bool,
}

/// Returns a member of an object by its name in any case (RFC 7643, section 2.1).
pub(crate) fn member<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    object.get(name).or_else(|| {
        object.iter().find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    })
}

/// Parses the message of a PATCH.
pub(crate) fn parse_patch(body: &Value) -> Result<Vec<PatchStep>, ScimProblem> {
    let wrong = |why: &str| ScimProblem::new(ScimErrorKind::InvalidSyntax, why);
    let body = body.as_object().ok_or_else(|| wrong("the body must be an object"))?;
    if let Some(Value::Array(schemas)) = member(body, "schemas") {
        let is_patch = |schema: &Value| {
            schema.as_str().is_some_and(|schema| schema.eq_ignore_ascii_case(PATCH_SCHEMA))
        };
        if !schemas.iter().any(is_patch) {
            return Err(wrong(&format!("`schemas` must name {PATCH_SCHEMA}")));
        }
    }
    let operations = member(body, "Operations").and_then(Value::as_array);
    let operations = operations.ok_or_else(|| wrong("`Operations` must be a list"))?;
    if operations.is_empty() {
        return Err(wrong("`Operations` must not be empty"));
    }
    if operations.len() > MAX_OPERATIONS {
        let why = format!("`Operations`: at most {MAX_OPERATIONS} at once");
        return Err(ScimProblem::new(ScimErrorKind::TooMany, why));
    }
    let mut steps = Vec::with_capacity(operations.len());
    for operation in operations {
        parse_operation(operation, &mut steps)?;
        // An operation without a path has one step for each of its names.
        if steps.len() > MAX_OPERATIONS {
            let why = format!("`Operations`: at most {MAX_OPERATIONS} attributes at once");
            return Err(ScimProblem::new(ScimErrorKind::TooMany, why));
        }
    }
    Ok(steps)
}

fn parse_operation(operation: &Value, steps: &mut Vec<PatchStep>) -> Result<(), ScimProblem> {
    let wrong = |why: &str| ScimProblem::new(ScimErrorKind::InvalidSyntax, why);
    let operation = operation.as_object();
    let operation = operation.ok_or_else(|| wrong("an operation must be an object"))?;
    let word = member(operation, "op").and_then(Value::as_str).unwrap_or_default();
    let verb = match word.to_ascii_lowercase().as_str() {
        "add" => PatchVerb::Add,
        "replace" => PatchVerb::Replace,
        "remove" => PatchVerb::Remove,
        _ => return Err(wrong("`op` must be `add`, `replace` or `remove`")),
    };
    let value = member(operation, "value").filter(|value| !value.is_null()).cloned();
    let path = match member(operation, "path") {
        None | Some(Value::Null) => None,
        Some(Value::String(path)) => Some(AttributePath::parse(path)?),
        Some(_) => {
            return Err(ScimProblem::new(ScimErrorKind::InvalidPath, "`path` must be a text"));
        }
    };
    if value.is_none() && verb == PatchVerb::Add {
        return Err(ScimProblem::invalid_value("value", "an operation `add` needs one"));
    }
    match (path, value) {
        (Some(path), value) => {
            // Without a value, `replace` takes the attribute away (RFC 7644, section 3.5.2.3).
            let verb = if value.is_none() { PatchVerb::Remove } else { verb };
            steps.push(PatchStep { verb, path, value, is_listed: false });
        }
        (None, _) if verb == PatchVerb::Remove => {
            let why = "an operation `remove` needs a `path`";
            return Err(ScimProblem::new(ScimErrorKind::NoTarget, why));
        }
        (None, Some(Value::Object(values))) => {
            for (name, value) in values {
                if name.eq_ignore_ascii_case("schemas") {
                    continue;
                }
                let verb = if value.is_null() { PatchVerb::Remove } else { verb };
                let path = AttributePath::parse(&name)?;
                let value = Some(value).filter(|value| !value.is_null());
                steps.push(PatchStep { verb, path, value, is_listed: true });
            }
        }
        (None, Some(_) | None) => {
            let why = "an operation without a `path` needs an object as its `value`";
            return Err(ScimProblem::new(ScimErrorKind::InvalidValue, why));
        }
    }
    Ok(())
}

/// Returns a single value, which some providers send as a list of one object with a `value`.
fn single(value: &Value) -> &Value {
    match value {
        Value::Array(list) => match list.as_slice() {
            [Value::Object(only)] => member(only, "value").unwrap_or(value),
            [only] => only,
            _ => value,
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            value
        }
    }
}

/// Reads a text.
pub(crate) fn text_value(attribute: &str, value: &Value) -> Result<String, ScimProblem> {
    let text = single(value).as_str().map(str::to_owned);
    text.ok_or_else(|| ScimProblem::invalid_value(attribute, "must be a text"))
}

/// Reads a boolean, which some providers send as a text.
pub(crate) fn bool_value(attribute: &str, value: &Value) -> Result<bool, ScimProblem> {
    match single(value) {
        Value::Bool(is) => Ok(*is),
        Value::String(text) if text.eq_ignore_ascii_case("true") => Ok(true),
        Value::String(text) if text.eq_ignore_ascii_case("false") => Ok(false),
        _ => Err(ScimProblem::invalid_value(attribute, "must be true or false")),
    }
}

/// Returns the elements of a list, which some providers send as a single element.
pub(crate) fn elements(value: &Value) -> &[Value] {
    match value {
        Value::Array(list) => list,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            std::slice::from_ref(value)
        }
    }
}

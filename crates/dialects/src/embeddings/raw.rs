//! Reading a body step by step without a tree, so that a fault names its path and a value its
//! place.

use canon::Fault;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;

use crate::json;

const LONGEST_MODEL: usize = 256;

/// The outermost object.
pub(super) fn body<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, Fault> {
    let value: &RawValue = json::read(text)?;
    if !value.get().starts_with('{') {
        return Err(Fault::invalid("", "the body must be a JSON object"));
    }
    object(value, "")
}

/// An object whose fields are judged one by one.
pub(super) fn object<'a, T: Deserialize<'a>>(value: &'a RawValue, at: &str) -> Result<T, Fault> {
    // A derived reader would take a list as well.
    if !value.get().starts_with('{') {
        return Err(refuse(at, "must be an object"));
    }
    serde_json::from_str(value.get()).map_err(|e| {
        // The text is JSON and every field is taken as it is: only a field named twice is left.
        let why = e.to_string();
        let field = why.split('`').nth(1).unwrap_or_default();
        let path = if at.is_empty() { field.to_owned() } else { format!("{at}.{field}") };
        refuse(&path, "is there twice")
    })
}

/// The items of a list; `None` when it is none.
pub(super) fn list(value: &RawValue) -> Option<Vec<&RawValue>> {
    serde_json::from_str(value.get()).ok()
}

/// A text; `None` when it is none.
pub(super) fn string(value: &RawValue) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
    let Text(text) = serde_json::from_str(value.get()).ok()?;
    Some(text)
}

/// A whole number not below zero; `None` when it is none.
pub(super) fn count(value: &RawValue) -> Option<u64> {
    serde_json::from_str(value.get()).ok()
}

/// The name of a model, if it can be one.
pub(super) fn model(name: &str) -> Result<String, Fault> {
    if name.is_empty() || name.len() > LONGEST_MODEL || name.chars().any(char::is_control) {
        return Err(refuse("model", &format!("must have 1 to {LONGEST_MODEL} plain characters")));
    }
    Ok(name.to_owned())
}

/// A broken rule.
pub(super) fn refuse(path: &str, why: &str) -> Fault {
    Fault::invalid(path, format!("`{path}` {why}"))
}

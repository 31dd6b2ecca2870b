//! Parses a body in steps without building a tree, so that errors name their path and values their
//! byte range.

use canon::ApiError;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;

use crate::json;
use crate::text::BorrowedText;

const MAX_MODEL_NAME_BYTES: usize = 256;

/// Parses the top-level object.
pub(super) fn body<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, ApiError> {
    let value: &RawValue = json::parse(text)?;
    if !value.get().starts_with('{') {
        return Err(ApiError::invalid("", "the body must be a JSON object"));
    }
    object(value, "")
}

/// Parses an object with raw fields.
pub(super) fn object<'a, T: Deserialize<'a>>(value: &'a RawValue, at: &str) -> Result<T, ApiError> {
    // A derived deserializer would accept a list as well.
    if !value.get().starts_with('{') {
        return Err(refuse(at, "must be an object"));
    }
    serde_json::from_str(value.get()).map_err(|e| {
        // The text is valid JSON and all fields are raw, so the only possible error is a duplicate
        // field.
        let why = e.to_string();
        let field = why.split('`').nth(1).unwrap_or_default();
        let path = if at.is_empty() { field.to_owned() } else { format!("{at}.{field}") };
        refuse(&path, "is there twice")
    })
}

/// Returns the items of a list. `None` for other values.
pub(super) fn list(value: &RawValue) -> Option<Vec<&RawValue>> {
    serde_json::from_str(value.get()).ok()
}

/// Returns a string. `None` for other values.
pub(super) fn string(value: &RawValue) -> Option<Cow<'_, str>> {
    let BorrowedText(text) = serde_json::from_str(value.get()).ok()?;
    Some(text)
}

/// Returns a non-negative integer. `None` for other values.
pub(super) fn count(value: &RawValue) -> Option<u64> {
    serde_json::from_str(value.get()).ok()
}

/// Checks a model name.
pub(super) fn model(name: &str) -> Result<String, ApiError> {
    if name.is_empty() || name.len() > MAX_MODEL_NAME_BYTES || name.chars().any(char::is_control) {
        return Err(refuse(
            "model",
            &format!("must have 1 to {MAX_MODEL_NAME_BYTES} plain characters"),
        ));
    }
    Ok(name.to_owned())
}

/// Error for a broken rule.
pub(super) fn refuse(path: &str, why: &str) -> ApiError {
    ApiError::invalid(path, format!("`{path}` {why}"))
}

//! Checks that all formats share, and their error texts.

use canon::{ApiError, Turn};
use std::borrow::Cow;
use std::collections::HashMap;

use crate::RequestTarget;
use crate::json;
use crate::text::BorrowedText;
use crate::wire_rule::{FieldProblem, RuleResult, refuse_if};
use crate::wire_value::{OpaqueObject, PlacedValue};

/// The maximum length of a model name in bytes.
pub(crate) const MAX_MODEL_BYTES: usize = 256;

/// Returns a 400 error that names its field.
pub(crate) fn invalid_field(path: &str, why: &str) -> ApiError {
    ApiError::invalid(path, format!("`{path}` {why}"))
}

/// Refuses a request unless a condition of a field holds.
pub(crate) fn ensure_field(holds: bool, path: &str, why: &str) -> Result<(), ApiError> {
    if holds { Ok(()) } else { Err(invalid_field(path, why)) }
}

/// Refuses a conversation of which a format can carry nothing. An invented turn would be answered
/// instead of the caller's.
pub(crate) fn require_turns<T>(turns: &[Turn], written: &[T]) -> Result<(), ApiError> {
    if written.is_empty() && !turns.is_empty() {
        let why = "nothing in the conversation can be sent to this model";
        return Err(ApiError::invalid("turns", why));
    }
    Ok(())
}

/// Returns the model that a path names.
pub(crate) fn path_model(target: &RequestTarget) -> Result<String, ApiError> {
    let model = target.model.clone().unwrap_or_default();
    if model.is_empty() || model.len() > MAX_MODEL_BYTES || model.chars().any(char::is_control) {
        let why = format!("must have 1 to {MAX_MODEL_BYTES} plain characters");
        return Err(invalid_field("model", &why));
    }
    Ok(model)
}

/// The rule of a model name.
pub(crate) fn model_name(model: &PlacedValue<'_, BorrowedText<'_>>) -> RuleResult {
    refuse_if(model.value.is_empty() || model.value.len() > MAX_MODEL_BYTES, || {
        format!("must have 1 to {MAX_MODEL_BYTES} bytes")
    })
}

/// The rule of stop texts.
pub(crate) fn stop_texts(texts: &[BorrowedText<'_>]) -> RuleResult {
    const MAX_STOP_BYTES: usize = 4_096;
    let is_wrong = |text: &BorrowedText<'_>| text.is_empty() || text.len() > MAX_STOP_BYTES;
    refuse_if(texts.iter().any(is_wrong), || {
        format!("must be strings of 1 to {MAX_STOP_BYTES} bytes")
    })
}

/// The rule of a caller's metadata, <https://platform.openai.com/docs/api-reference/metadata>.
pub(crate) fn metadata(pairs: &OpaqueObject<'_>) -> RuleResult {
    const MAX_ENTRIES: usize = 16;
    const MAX_KEY_CHARS: usize = 64;
    const MAX_VALUE_CHARS: usize = 512;
    let pairs: HashMap<Cow<'_, str>, Cow<'_, str>> = json::read(pairs.0.get())
        .map_err(|_| FieldProblem::new("", "must map strings to strings"))?;
    refuse_if(pairs.len() > MAX_ENTRIES, || format!("must have at most {MAX_ENTRIES} entries"))?;
    let is_long = |text: &str, most: usize| text.len() > most && text.chars().count() > most;
    let mut pairs = pairs.iter();
    let has_long = pairs.any(|(k, v)| is_long(k, MAX_KEY_CHARS) || is_long(v, MAX_VALUE_CHARS));
    refuse_if(has_long, || {
        format!(
            "must have keys of at most {MAX_KEY_CHARS} and values of at most {MAX_VALUE_CHARS} characters"
        )
    })
}

/// Refuses a limit of output tokens that no provider takes.
pub(crate) fn output_limit<'a>(least: u64) -> impl Fn(&PlacedValue<'a, u64>) -> RuleResult {
    const MAX_OUTPUT_TOKENS: u64 = 1 << 30;
    move |limit| {
        refuse_if(!(least..=MAX_OUTPUT_TOKENS).contains(&limit.value), || {
            format!("must be a whole number of at least {least}")
        })
    }
}

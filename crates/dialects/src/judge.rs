//! Checks that all formats share, and their error texts.

use canon::Fault;
use serde_json::value::RawValue;

/// The maximum length of a model name in bytes.
pub(crate) const LONGEST_MODEL: usize = 256;

/// Returns a 400 error that names its field.
pub(crate) fn refuse(path: &str, why: &str) -> Fault {
    Fault::invalid(path, format!("`{path}` {why}"))
}

/// Checks the model name of a body.
pub(crate) fn model(value: Option<&RawValue>) -> Result<String, Fault> {
    let value = value.ok_or_else(|| refuse("model", "is required"))?;
    let model: String =
        serde_json::from_str(value.get()).map_err(|_| refuse("model", "must be a string"))?;
    if model.is_empty() || model.len() > LONGEST_MODEL {
        return Err(refuse("model", &format!("must have 1 to {LONGEST_MODEL} bytes")));
    }
    Ok(model)
}

/// Checks that a number is within a range, bounds included.
pub(crate) fn within(path: &str, value: Option<f64>, low: f64, high: f64) -> Result<(), Fault> {
    match value {
        Some(value) if !(low..=high).contains(&value) => {
            Err(refuse(path, &format!("must be between {low} and {high}")))
        }
        _ => Ok(()),
    }
}

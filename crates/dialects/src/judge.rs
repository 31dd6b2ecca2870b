//! The sentences all formats refuse a request with.

use canon::Fault;
use serde_json::value::RawValue;

/// The longest name of a model.
pub(crate) const LONGEST_MODEL: usize = 256;

/// A refusal that names its field.
pub(crate) fn refuse(path: &str, why: &str) -> Fault {
    Fault::invalid(path, format!("`{path}` {why}"))
}

/// The model a body names.
pub(crate) fn model(value: Option<&RawValue>) -> Result<String, Fault> {
    let value = value.ok_or_else(|| refuse("model", "is required"))?;
    let model: String =
        serde_json::from_str(value.get()).map_err(|_| refuse("model", "must be a string"))?;
    if model.is_empty() || model.len() > LONGEST_MODEL {
        return Err(refuse("model", &format!("must have 1 to {LONGEST_MODEL} bytes")));
    }
    Ok(model)
}

/// A number that has to lie between two others, both allowed.
pub(crate) fn within(path: &str, value: Option<f64>, low: f64, high: f64) -> Result<(), Fault> {
    match value {
        Some(value) if !(low..=high).contains(&value) => {
            Err(refuse(path, &format!("must be between {low} and {high}")))
        }
        _ => Ok(()),
    }
}

//! Attributes and times in the words of OTLP JSON.

use canon::Micros;
use serde_json::{Value, json};

/// Attribute names and values that identify one series.
pub(crate) type LabelSet = Vec<(&'static str, String)>;

/// Returns attributes with text values.
pub(crate) fn attributes(labels: &LabelSet) -> Vec<Value> {
    labels
        .iter()
        .map(|(name, value)| json!({ "key": name, "value": { "stringValue": value } }))
        .collect()
}

/// Formats a time in decimal nanoseconds, as OTLP does.
pub(crate) fn unix_nanos(at: Micros) -> String {
    i128::from(at.get()).saturating_mul(1_000).to_string()
}

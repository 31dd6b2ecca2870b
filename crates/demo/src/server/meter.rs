//! What the upstream has served, so that a test can compare it with a ledger.

use canon::Usage;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Names are the caller's, so their number is bounded; the rest is counted together.
const MOST_MODELS: usize = 1_000;
const OTHERS: &str = "(others)";

/// Counts what was served, by model.
#[derive(Debug, Default)]
pub struct Meter(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    requests: u64,
    refused: u64,
    streams: u64,
    left_early: u64,
    models: BTreeMap<String, Row>,
}

#[derive(Debug, Default)]
struct Row {
    requests: u64,
    input: u64,
    output: u64,
    thinking: u64,
    searches: u64,
}

impl Meter {
    /// An answer was given. A stream counts in full when it begins.
    pub(super) fn served(&self, model: &str, usage: &Usage, stream: bool) {
        let mut counts = self.lock();
        counts.requests += 1;
        counts.streams += u64::from(stream);
        let known = counts.models.contains_key(model);
        let model = if known || counts.models.len() < MOST_MODELS { model } else { OTHERS };
        if !known && !counts.models.contains_key(model) {
            counts.models.insert(model.to_owned(), Row::default());
        }
        if let Some(row) = counts.models.get_mut(model) {
            row.requests += 1;
            row.input += usage.input;
            row.output += usage.output;
            row.thinking += usage.thinking;
            row.searches += usage.searches;
        }
    }

    /// A request was refused.
    pub(super) fn refused(&self) {
        self.lock().refused += 1;
    }

    /// A stream was dropped before its end.
    pub(super) fn left_early(&self) {
        self.lock().left_early += 1;
    }

    /// Everything counted so far.
    pub fn to_json(&self) -> Value {
        let counts = self.lock();
        let models: Map<String, Value> = counts
            .models
            .iter()
            .map(|(name, row)| {
                let row = json!({
                    "requests": row.requests,
                    "input_tokens": row.input,
                    "output_tokens": row.output,
                    "thinking_tokens": row.thinking,
                    "searches": row.searches,
                });
                (name.clone(), row)
            })
            .collect();
        json!({
            "requests": counts.requests,
            "refused": counts.refused,
            "streams": counts.streams,
            "left_early": counts.left_early,
            "models": models,
        })
    }

    /// Counters stay right even when a thread died while it held them.
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

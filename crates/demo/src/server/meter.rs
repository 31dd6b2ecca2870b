//! Usage that the upstream would bill, by model and by call, for comparison with a ledger.

use canon::Usage;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Callers choose the names, so their number is bounded; the rest is counted together.
const MAX_MODELS: usize = 1_000;
const OTHERS: &str = "(others)";
/// Number of recent calls that are kept individually.
const MAX_CALLS: usize = 10_000;

/// Counts served calls by model and by call.
#[derive(Debug, Default)]
pub struct UsageMeter(Mutex<MeterCounts>);

#[derive(Debug, Default)]
struct MeterCounts {
    requests: u64,
    refused: u64,
    streams: u64,
    left_early: u64,
    models: BTreeMap<String, ModelRow>,
    calls: VecDeque<CallRow>,
    /// Number of the first call that is kept.
    first: u64,
}

#[derive(Debug, Default)]
struct ModelRow {
    requests: u64,
    input: u64,
    output: u64,
    thinking: u64,
    searches: u64,
    left_early: u64,
}

#[derive(Debug)]
struct CallRow {
    model: String,
    stream: bool,
    fault: Option<&'static str>,
    tag: Option<String>,
    usage: Usage,
    produced: u64,
    state: CallState,
}

/// Progress of a call.
#[derive(Debug)]
enum CallState {
    Running,
    /// The answer was sent completely.
    Sent,
    /// The caller left after this time.
    Left {
        after_ms: u64,
    },
}

/// Description of a call in the meter.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallInfo {
    /// Ordered fault.
    pub(crate) fault: Option<&'static str>,
    /// The caller's own word for the call.
    pub(crate) tag: Option<String>,
}

/// One running call. Dropping it open records that the caller left.
#[derive(Debug)]
pub(crate) struct MeterTicket {
    meter: Arc<UsageMeter>,
    number: u64,
    model: String,
    begun: Instant,
    produced: u64,
    open: bool,
}

impl UsageMeter {
    /// Counts an answer whose end is not tracked.
    pub(super) fn served(&self, model: &str, usage: &Usage, stream: bool) {
        self.lock().count(model, usage, stream);
    }

    /// Counts the start of an answer. It counts in full at once, because the upstream bills it in
    /// full.
    pub(super) fn begin(
        self: &Arc<Self>,
        model: &str,
        usage: &Usage,
        stream: bool,
        about: CallInfo,
    ) -> MeterTicket {
        let mut counts = self.lock();
        let model = counts.count(model, usage, stream).to_owned();
        let CallInfo { fault, tag } = about;
        let row = CallRow {
            model: model.clone(),
            stream,
            fault,
            tag,
            usage: *usage,
            produced: 0,
            state: CallState::Running,
        };
        if counts.calls.len() == MAX_CALLS {
            counts.calls.pop_front();
            counts.first += 1;
        }
        counts.calls.push_back(row);
        let number = counts.first + counts.calls.len() as u64 - 1;
        let meter = Arc::clone(self);
        MeterTicket { meter, number, model, begun: Instant::now(), produced: 0, open: true }
    }

    /// Counts a refused request.
    pub(super) fn refused(&self) {
        self.lock().refused += 1;
    }

    /// Returns all counts.
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
                    "left_early": row.left_early,
                });
                (name.clone(), row)
            })
            .collect();
        let calls: Vec<Value> = counts.calls.iter().map(CallRow::to_json).collect();
        json!({
            "requests": counts.requests,
            "refused": counts.refused,
            "streams": counts.streams,
            "left_early": counts.left_early,
            "models": models,
            "calls": calls,
        })
    }

    /// The counters stay correct if a thread panicked while it held the lock.
    fn lock(&self) -> MutexGuard<'_, MeterCounts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MeterCounts {
    /// Counts an answer. Returns the name under which it is counted.
    fn count<'a>(&mut self, model: &'a str, usage: &Usage, stream: bool) -> &'a str {
        self.requests += 1;
        self.streams += u64::from(stream);
        let known = self.models.contains_key(model);
        let model = if known || self.models.len() < MAX_MODELS { model } else { OTHERS };
        if !known && !self.models.contains_key(model) {
            self.models.insert(model.to_owned(), ModelRow::default());
        }
        if let Some(row) = self.models.get_mut(model) {
            row.requests += 1;
            row.input += usage.input;
            row.output += usage.output;
            row.thinking += usage.thinking;
            row.searches += usage.searches;
        }
        model
    }
}

impl CallRow {
    fn to_json(&self) -> Value {
        let (state, left) = match self.state {
            CallState::Running => ("running", None),
            CallState::Sent => ("sent", None),
            CallState::Left { after_ms } => ("left", Some(after_ms)),
        };
        json!({
            "model": self.model,
            "stream": self.stream,
            "fault": self.fault,
            "tag": self.tag,
            "input_tokens": self.usage.input,
            "output_tokens": self.usage.output,
            "produced_tokens": self.produced,
            "state": state,
            "left_after_ms": left,
        })
    }
}

impl MeterTicket {
    /// Records output tokens that were sent.
    pub(crate) fn produced(&mut self, tokens: u64) {
        self.produced += tokens;
    }

    /// The answer was sent completely.
    pub(crate) fn sent(mut self) {
        self.close(CallState::Sent);
    }

    fn close(&mut self, state: CallState) {
        if !std::mem::take(&mut self.open) {
            return;
        }
        let mut counts = self.meter.lock();
        if matches!(state, CallState::Left { .. }) {
            counts.left_early += 1;
            if let Some(row) = counts.models.get_mut(&self.model) {
                row.left_early += 1;
            }
        }
        let at = self.number.checked_sub(counts.first).and_then(|at| usize::try_from(at).ok());
        if let Some(row) = at.and_then(|at| counts.calls.get_mut(at)) {
            row.produced = self.produced;
            row.state = state;
        }
    }
}

impl Drop for MeterTicket {
    fn drop(&mut self) {
        let after_ms = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.close(CallState::Left { after_ms });
    }
}

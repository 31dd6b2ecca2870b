//! What the upstream would bill, by model and by call, so that a test can compare it with a ledger.

use canon::Usage;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Names are the caller's, so their number is bounded; the rest is counted together.
const MOST_MODELS: usize = 1_000;
const OTHERS: &str = "(others)";
/// How many calls are remembered one by one, the last ones.
const MOST_CALLS: usize = 10_000;

/// Counts what was served, by model and by call.
#[derive(Debug, Default)]
pub struct Meter(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    requests: u64,
    refused: u64,
    streams: u64,
    left_early: u64,
    models: BTreeMap<String, Row>,
    calls: VecDeque<CallRow>,
    /// The number of the first call that is remembered.
    first: u64,
}

#[derive(Debug, Default)]
struct Row {
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
    state: State,
}

/// How far a call has come.
#[derive(Debug)]
enum State {
    Running,
    /// Everything meant to be sent was sent.
    Sent,
    /// The caller left; after how long.
    Left {
        after_ms: u64,
    },
}

/// What a call is about, as the meter tells it.
#[derive(Clone, Debug, Default)]
pub(crate) struct About {
    /// The fault that was ordered.
    pub(crate) fault: Option<&'static str>,
    /// The caller's own word for the call.
    pub(crate) tag: Option<String>,
}

/// One running call. Dropped before it was closed, its caller has left.
#[derive(Debug)]
pub(crate) struct Ticket {
    meter: Arc<Meter>,
    number: u64,
    model: String,
    begun: Instant,
    produced: u64,
    open: bool,
}

impl Meter {
    /// An answer was given whose end nobody asks for.
    pub(super) fn served(&self, model: &str, usage: &Usage, stream: bool) {
        self.lock().count(model, usage, stream);
    }

    /// An answer begins. It counts in full at once: that is what the upstream claims for it.
    pub(super) fn begin(
        self: &Arc<Self>,
        model: &str,
        usage: &Usage,
        stream: bool,
        about: About,
    ) -> Ticket {
        let mut counts = self.lock();
        let model = counts.count(model, usage, stream).to_owned();
        let About { fault, tag } = about;
        let row = CallRow {
            model: model.clone(),
            stream,
            fault,
            tag,
            usage: *usage,
            produced: 0,
            state: State::Running,
        };
        if counts.calls.len() == MOST_CALLS {
            counts.calls.pop_front();
            counts.first += 1;
        }
        counts.calls.push_back(row);
        let number = counts.first + counts.calls.len() as u64 - 1;
        let meter = Arc::clone(self);
        Ticket { meter, number, model, begun: Instant::now(), produced: 0, open: true }
    }

    /// A request was refused.
    pub(super) fn refused(&self) {
        self.lock().refused += 1;
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

    /// Counters stay right even when a thread died while it held them.
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    /// Counts an answer; tells the name it is counted under.
    fn count<'a>(&mut self, model: &'a str, usage: &Usage, stream: bool) -> &'a str {
        self.requests += 1;
        self.streams += u64::from(stream);
        let known = self.models.contains_key(model);
        let model = if known || self.models.len() < MOST_MODELS { model } else { OTHERS };
        if !known && !self.models.contains_key(model) {
            self.models.insert(model.to_owned(), Row::default());
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
            State::Running => ("running", None),
            State::Sent => ("sent", None),
            State::Left { after_ms } => ("left", Some(after_ms)),
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

impl Ticket {
    /// That many tokens of output left.
    pub(crate) fn produced(&mut self, tokens: u64) {
        self.produced += tokens;
    }

    /// Everything meant to be sent was sent.
    pub(crate) fn sent(mut self) {
        self.close(State::Sent);
    }

    fn close(&mut self, state: State) {
        if !std::mem::take(&mut self.open) {
            return;
        }
        let mut counts = self.meter.lock();
        if matches!(state, State::Left { .. }) {
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

impl Drop for Ticket {
    fn drop(&mut self) {
        let after_ms = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.close(State::Left { after_ms });
    }
}

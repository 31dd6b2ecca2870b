//! Calls of tools on MCP servers: counts by server, and one span each.

use canon::{Micros, TimeHistogram};
use ledger::Clock;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::counters::OTHER;
use crate::{Telemetry, TraceContext};

/// Servers that are counted apart.
const MAX_SERVERS: usize = 200;
/// Outcome of a call whose caller left.
const CALLER_LEFT: &str = "caller_left";
/// Outcome of a call that did its work.
pub(crate) const DONE: &str = "done";
/// Distance of the ids of two spans of one observer: 2^64 divided by the golden ratio, so that the numbers of
/// two observers hardly ever meet.
const SPAN_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Counts of the calls of one server.
#[derive(Debug)]
pub(crate) struct ToolServerCounts {
    pub(crate) times: TimeHistogram,
    outcomes: Mutex<BTreeMap<&'static str, u64>>,
}

impl ToolServerCounts {
    fn new() -> Self {
        Self { times: TimeHistogram::for_calls(), outcomes: Mutex::default() }
    }

    /// Returns the number of calls by outcome.
    pub(crate) fn outcomes(&self) -> Vec<(&'static str, u64)> {
        self.outcomes.lock().iter().map(|(word, count)| (*word, *count)).collect()
    }
}

/// Counts of all servers.
#[derive(Debug, Default)]
pub(crate) struct ToolServers(Mutex<BTreeMap<Arc<str>, Arc<ToolServerCounts>>>);

impl ToolServers {
    /// Returns the counts of a server, and the name under which it is counted.
    pub(crate) fn find(&self, server: &str) -> (Arc<str>, Arc<ToolServerCounts>) {
        let mut servers = self.0.lock();
        let is_known = servers.contains_key(server) || servers.len() < MAX_SERVERS;
        let name: Arc<str> = if is_known { server } else { OTHER }.into();
        let counts =
            servers.entry(Arc::clone(&name)).or_insert_with(|| Arc::new(ToolServerCounts::new()));
        (name, Arc::clone(counts))
    }

    /// Returns the counts of every server, in the order of their names.
    pub(crate) fn all(&self) -> Vec<(Arc<str>, Arc<ToolServerCounts>)> {
        let servers = self.0.lock();
        servers.iter().map(|(name, counts)| (Arc::clone(name), Arc::clone(counts))).collect()
    }
}

/// Position of the span of a tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToolTrace {
    id: u128,
    parent: Option<u64>,
    sampled: bool,
}

impl ToolTrace {
    /// Places the span below that of a call of a model.
    pub const fn below(call: TraceContext) -> Self {
        Self { id: call.id, parent: Some(call.span), sampled: call.sampled }
    }

    /// Places the span in the trace of a caller that calls the tool itself.
    pub const fn beside(caller: TraceContext) -> Self {
        Self { id: caller.id, parent: caller.parent, sampled: caller.sampled }
    }
}

/// A tool call that has ended.
#[derive(Debug)]
pub(crate) struct EndedTool {
    pub(crate) trace_id: u128,
    pub(crate) parent: Option<u64>,
    pub(crate) span: u64,
    pub(crate) sampled: bool,
    pub(crate) server: Arc<str>,
    pub(crate) tool: String,
    pub(crate) started: Micros,
    pub(crate) ended: Micros,
    pub(crate) outcome: &'static str,
}

/// Counts the tool calls of one server, and reports them to the collector.
#[derive(Clone)]
pub struct ToolObserver(Arc<ObserverParts>);

struct ObserverParts {
    server: Arc<str>,
    counts: Arc<ToolServerCounts>,
    telemetry: Telemetry,
    clock: Arc<dyn Clock>,
    trace: Option<ToolTrace>,
    next_span: AtomicU64,
}

impl ToolObserver {
    /// Creates an observer. `word` is a random number for the ids of its spans.
    pub(crate) fn new(
        (server, counts): (Arc<str>, Arc<ToolServerCounts>),
        (telemetry, clock): (Telemetry, Arc<dyn Clock>),
        trace: Option<ToolTrace>,
        word: u64,
    ) -> Self {
        let next_span = AtomicU64::new(word);
        Self(Arc::new(ObserverParts { server, counts, telemetry, clock, trace, next_span }))
    }

    /// Begins a call. It counts as one whose caller left until [`RunningTool::end`].
    pub fn begin(&self, tool: &str) -> RunningTool {
        RunningTool {
            parts: Arc::clone(&self.0),
            tool: tool.to_owned(),
            started: self.0.clock.now(),
            begun: Instant::now(),
            outcome: CALLER_LEFT,
        }
    }
}

/// A tool call that runs.
pub struct RunningTool {
    parts: Arc<ObserverParts>,
    tool: String,
    started: Micros,
    begun: Instant,
    outcome: &'static str,
}

impl RunningTool {
    /// Ends the call with the word of its failure, or with none.
    pub fn end(mut self, failure: Option<&'static str>) {
        self.outcome = failure.unwrap_or(DONE);
    }
}

impl Drop for RunningTool {
    fn drop(&mut self) {
        let ObserverParts { server, counts, telemetry, clock, trace, next_span } = &*self.parts;
        counts.times.record(self.begun.elapsed());
        *counts.outcomes.lock().entry(self.outcome).or_default() += 1;
        let Some(ToolTrace { id, parent, sampled }) = *trace else { return };
        telemetry.record_tool(EndedTool {
            trace_id: id,
            parent,
            span: next_span.fetch_add(SPAN_STEP, Ordering::Relaxed).max(1),
            sampled,
            server: Arc::clone(server),
            tool: std::mem::take(&mut self.tool),
            started: self.started,
            ended: clock.now(),
            outcome: self.outcome,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger::SystemClock;

    #[test]
    fn calls_are_counted_by_server_and_outcome() {
        let servers = ToolServers::default();
        let observe = |name: &str| {
            let parts = (Telemetry::default(), Arc::new(SystemClock) as Arc<dyn Clock>);
            ToolObserver::new(servers.find(name), parts, None, 7)
        };
        observe("docs").begin("search").end(None);
        observe("docs").begin("search").end(Some("timeout"));
        drop(observe("docs").begin("search"));
        for number in 0..MAX_SERVERS + 3 {
            observe(&format!("s{number}")).begin("t").end(None);
        }
        let all = servers.all();
        assert_eq!(all.len(), MAX_SERVERS + 1);
        let of = |name: &str| all.iter().find(|(own, _)| &**own == name).unwrap().1.outcomes();
        assert_eq!(of("docs"), [("caller_left", 1), ("done", 1), ("timeout", 1)]);
        assert_eq!(of(OTHER), [("done", 4)]);
    }
}

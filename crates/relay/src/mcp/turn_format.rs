//! The part of a loop of turns that depends on the format of the caller.

use canon::ApiError;
use dialects::{Dialect, StreamFrame};
use serde_json::{Map, Value};
use std::collections::HashMap;

use super::bench::ToolBench;
use super::tool_outcome::ToolOutcome;

/// Calls of tools in one answer, unless the request names another number.
pub(super) const DEFAULT_MAX_CALLS: u64 = 16;

/// Request with its servers asked.
pub(super) struct OpenedTurns {
    pub(super) format: Box<dyn TurnFormat>,
    pub(super) bench: ToolBench,
    pub(super) streamed: bool,
    pub(super) max_calls: u64,
}

/// Function that a model called, or that a caller approved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FunctionUse {
    /// Id of the call in the turn.
    pub(super) id: String,
    /// Name of the function.
    pub(super) function: String,
    /// Arguments in JSON.
    pub(super) arguments: String,
}

/// Way in which a turn ended.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct TurnEnd {
    /// Calls for the gateway, in their order.
    pub(super) uses: Vec<FunctionUse>,
    /// True if the caller has to do something next, or the answer was cut.
    pub(super) is_last: bool,
}

/// Error that ends a stream.
#[derive(Clone, Copy)]
pub(super) struct StreamFailure<'e> {
    pub(super) dialect: &'static dyn Dialect,
    pub(super) error: &'e ApiError,
    pub(super) request_id: &'e str,
}

/// Turns of one call in one format: the request that grows, and the answer that is collected. Events of a
/// streamed answer are written to `out`.
pub(super) trait TurnFormat: Send {
    /// Returns calls that are to be made before the first turn, because the caller approved them.
    fn approved(&mut self) -> Vec<FunctionUse> {
        Vec::new()
    }

    /// Returns the body of the next turn. With `may_call` false the model must answer without tools.
    fn next_body(&mut self, may_call: bool) -> Value;

    /// Returns the body of the first turn as it is before approved calls are made.
    fn first_body(&self) -> Option<Value> {
        None
    }

    /// Returns an error of a turn with the paths of the caller's request.
    fn with_own_paths(&self, error: ApiError) -> ApiError;

    /// Returns true if the provider told its failure in the stream, which the caller has.
    fn has_failed(&self) -> bool {
        false
    }

    /// Writes an error that ends a stream.
    fn write_failure(&mut self, failure: StreamFailure<'_>, out: &mut Vec<u8>) {
        out.extend(failure.dialect.write_abort(failure.error, failure.request_id));
    }

    /// Takes an event of the turn.
    fn take_event(
        &mut self,
        bench: &ToolBench,
        frame: &StreamFrame,
        out: &mut Vec<u8>,
    ) -> Result<(), ApiError>;

    /// Takes a whole reply of the turn.
    fn take_reply(&mut self, bench: &ToolBench, reply: Map<String, Value>);

    /// Ends the turn.
    fn end_turn(&mut self, bench: &ToolBench, out: &mut Vec<u8>) -> Result<TurnEnd, ApiError>;

    /// Tells that a call begins.
    fn begin_call(&mut self, _bench: &ToolBench, _call: &FunctionUse, _out: &mut Vec<u8>) {}

    /// Adds the outcome of a call to the answer and to the next request.
    fn add_outcome(
        &mut self,
        bench: &ToolBench,
        call: &FunctionUse,
        outcome: ToolOutcome,
        out: &mut Vec<u8>,
    );

    /// Ends a streamed answer.
    fn finish_stream(&mut self, out: &mut Vec<u8>);

    /// Returns the whole answer.
    fn finish_reply(&mut self) -> Value;
}

/// Ids of the calls of one answer, each with the number of its last repetition. Some providers number the calls
/// of each turn anew.
#[derive(Default)]
pub(super) struct UsedCallIds(HashMap<String, u32>);

impl UsedCallIds {
    /// Returns the id, or another one if an earlier call has it.
    pub(super) fn claim(&mut self, id: &str) -> String {
        let mut number = match self.0.get(id) {
            None => {
                self.0.insert(id.to_owned(), 1);
                return id.to_owned();
            }
            Some(number) => *number,
        };
        let free = loop {
            number = number.saturating_add(1);
            let free = format!("{id}_{number}");
            if !self.0.contains_key(&free) {
                break free;
            }
        };
        self.0.insert(id.to_owned(), number);
        self.0.insert(free.clone(), 1);
        free
    }
}

/// Adds the numbers of one object to those of another, at any depth.
pub(super) fn add_numbers(sum: &mut Value, more: &Value) {
    match (sum, more) {
        (Value::Object(sum), Value::Object(more)) => {
            for (name, value) in more {
                match sum.get_mut(name) {
                    Some(own) => add_numbers(own, value),
                    None => {
                        sum.insert(name.clone(), value.clone());
                    }
                }
            }
        }
        // Counts by modality.
        (Value::Array(sum), Value::Array(more)) => {
            for one in more {
                let same = |own: &&mut Value| own.get("modality") == one.get("modality");
                match sum.iter_mut().find(same) {
                    Some(own) => add_numbers(own, one),
                    None => sum.push(one.clone()),
                }
            }
        }
        (sum, Value::Number(more)) => {
            let total = sum.as_u64().unwrap_or(0).saturating_add(more.as_u64().unwrap_or(0));
            *sum = Value::from(total);
        }
        (sum @ Value::Null, more) => *sum = more.clone(),
        _ => {}
    }
}

/// Writes an event of a stream with its name.
pub(super) fn write_event(name: &str, data: &Value, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("event: {name}\ndata: {data}\n\n").as_bytes());
}

/// Returns the text of a field.
pub(super) fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the list of a field, which is removed.
pub(super) fn take_list(object: &mut Map<String, Value>, name: &str) -> Vec<Value> {
    match object.get_mut(name).map(Value::take) {
        Some(Value::Array(list)) => list,
        Some(_) | None => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_ids_get_free_numbers_without_a_search_from_the_first() {
        let mut ids = UsedCallIds::default();
        let claimed: Vec<_> = ["a", "a_3", "a", "a", "a_3", "a"].map(|id| ids.claim(id)).into();
        assert_eq!(claimed, ["a", "a_3", "a_2", "a_4", "a_3_2", "a_5"]);
        // Half a million ids take seconds only if each is searched for among all numbers.
        let all: std::collections::HashSet<_> = (0..500_000).map(|_| ids.claim("b")).collect();
        assert_eq!(all.len(), 500_000);
    }
}

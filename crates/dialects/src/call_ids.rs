//! Ids of tool calls that occur more than once in a conversation.
//!
//! Some providers number the calls of every answer anew, so that each answer has a `call_0`
//! (<https://github.com/vllm-project/vllm/issues/50295>). A result belongs to the nearest open call before
//! it with its id. Formats whose providers demand unique ids get the later ones with a number at the end. That
//! number depends only on the turns before, so that a prompt stays the beginning of the next one and its cache
//! is found.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet, VecDeque};

use canon::{ChatRequest, PartKind};

/// The calls of a history so far, by id, with the number of those that have no result yet.
#[derive(Debug, Default)]
pub(crate) struct UnansweredCalls<'a>(HashMap<Cow<'a, str>, usize>);

/// The call that a result answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnsweredCall {
    /// A call without a result until now.
    Open,
    /// All calls with this id have a result.
    Answered,
    /// There is no call with this id.
    Unknown,
}

impl<'a> UnansweredCalls<'a> {
    /// Adds a call.
    pub(crate) fn add(&mut self, id: impl Into<Cow<'a, str>>) {
        *self.0.entry(id.into()).or_default() += 1;
    }

    /// Answers a call with this id.
    pub(crate) fn answer(&mut self, id: &str) -> AnsweredCall {
        match self.0.get_mut(id) {
            None => AnsweredCall::Unknown,
            Some(0) => AnsweredCall::Answered,
            Some(open) => {
                *open -= 1;
                AnsweredCall::Open
            }
        }
    }
}

/// Returns the request with unique ids of calls, and results that follow them; `None` if they are unique.
pub(crate) fn with_unique_ids(chat: &ChatRequest) -> Option<ChatRequest> {
    let mut seen = HashSet::new();
    let mut parts = chat.turns.iter().flat_map(|turn| &turn.parts);
    let is_repeated = parts.any(|part| match &part.kind {
        PartKind::ToolCall(call) => !call.id.is_empty() && !seen.insert(call.id.as_str()),
        _ => false,
    });
    is_repeated.then(|| {
        let mut chat = chat.clone();
        separate_ids(&mut chat);
        chat
    })
}

fn separate_ids(chat: &mut ChatRequest) {
    let mut used = HashSet::new();
    let mut last_numbers: HashMap<String, u64> = HashMap::new();
    // New ids of the open calls of each id, by turn. Calls of one turn are answered in their order.
    let mut open: HashMap<String, Vec<(usize, VecDeque<String>)>> = HashMap::new();
    for (at, turn) in chat.turns.iter_mut().enumerate() {
        for part in &mut turn.parts {
            match &mut part.kind {
                PartKind::ToolCall(call) if !call.id.is_empty() => {
                    let number = last_numbers.entry(call.id.clone()).or_insert(1);
                    let mut own = call.id.clone();
                    while !used.insert(own.clone()) {
                        *number += 1;
                        own = format!("{}_{number}", call.id);
                    }
                    let turns = open.entry(std::mem::replace(&mut call.id, own.clone()));
                    let turns = turns.or_default();
                    match turns.last_mut() {
                        Some((last, ids)) if *last == at => ids.push_back(own),
                        _ => turns.push((at, VecDeque::from([own]))),
                    }
                }
                PartKind::ToolResult(result) => {
                    let Some(turns) = open.get_mut(&result.call_id) else { continue };
                    let Some((_, ids)) = turns.last_mut() else { continue };
                    if let Some(own) = ids.pop_front() {
                        result.call_id = own;
                    }
                    if ids.is_empty() {
                        turns.pop();
                    }
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use canon::{Part, Role, ToolCall, ToolResult, Turn};

    fn call(id: &str) -> Part {
        let (name, arguments) = ("f".to_owned(), "{}".to_owned());
        Part::new(PartKind::ToolCall(ToolCall {
            id: id.to_owned(),
            name,
            arguments,
            custom: false,
        }))
    }

    fn result(id: &str) -> Part {
        let parts = vec![Part::text("1")];
        let call_id = id.to_owned();
        let result = ToolResult { call_id, name: None, parts, object: None, is_error: false };
        Part::new(PartKind::ToolResult(result))
    }

    /// Returns the ids of a conversation: `c:` before those of calls, `r:` before those of results.
    fn unique(turns: &[&[&str]]) -> Vec<String> {
        let turn = |ids: &&[&str]| {
            let parts = ids.iter().map(|id| match id.split_once(':') {
                Some(("c", id)) => call(id),
                Some((_, id)) => result(id),
                None => Part::text(*id),
            });
            Turn::new(Role::User, parts.collect())
        };
        let chat = ChatRequest { turns: turns.iter().map(turn).collect(), ..Default::default() };
        let chat = with_unique_ids(&chat).unwrap_or(chat);
        let parts = chat.turns.into_iter().flat_map(|turn| turn.parts);
        let ids = parts.map(|part| match part.kind {
            PartKind::ToolCall(call) => format!("c:{}", call.id),
            PartKind::ToolResult(result) => format!("r:{}", result.call_id),
            _ => String::new(),
        });
        ids.collect()
    }

    #[test]
    fn later_calls_get_a_number_and_their_results_follow() {
        let turns: [&[&str]; 6] = [&["c:a"], &["r:a"], &["c:a"], &["r:a"], &["c:a"], &["r:a"]];
        let whole = unique(&turns);
        assert_eq!(whole, ["c:a", "r:a", "c:a_2", "r:a_2", "c:a_3", "r:a_3"]);
        for count in 0..turns.len() {
            assert_eq!(
                unique(&turns[..count]),
                whole[..count],
                "a later turn changes no earlier one"
            );
        }
    }

    #[test]
    fn a_result_belongs_to_the_nearest_open_call() {
        assert_eq!(
            unique(&[&["c:a"], &["c:a"], &["r:a"], &["r:a"], &["r:a"]]),
            ["c:a", "c:a_2", "r:a_2", "r:a", "r:a"]
        );
        assert_eq!(unique(&[&["c:a", "c:a"], &["r:a", "r:a"]]), ["c:a", "c:a_2", "r:a", "r:a_2"]);
    }

    #[test]
    fn a_new_id_is_that_of_no_other_call() {
        assert_eq!(
            unique(&[&["c:a", "c:a_2"], &["r:a", "r:a_2"], &["c:a", "c:a_2"], &["r:a_2", "r:a"]]),
            ["c:a", "c:a_2", "r:a", "r:a_2", "c:a_3", "c:a_2_2", "r:a_2_2", "r:a_3"]
        );
        assert_eq!(unique(&[&["c:a"], &["c:b"], &["r:b"]]), ["c:a", "c:b", "r:b"]);
    }
}

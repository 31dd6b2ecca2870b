//! Ids of function calls, and the calls that results answer.
//!
//! The format leaves ids out. A result without an id answers the first open call of its name.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::native::content::NativeContent;
use crate::wire_rule::FieldProblem;

/// The prefix of ids that the gateway makes up for calls without one. These ids never go to a
/// provider.
const INVENTED_ID_PREFIX: &str = "call_pn_";

/// Makes up an id for a call. The same call in the same place always gets the same id.
pub(crate) fn invent_id(place: impl Hash, name: &str) -> String {
    let mut hasher = DefaultHasher::new();
    place.hash(&mut hasher);
    name.hash(&mut hasher);
    format!("{INVENTED_ID_PREFIX}{:016x}", hasher.finish())
}

/// Returns the id if the provider issued it; `None` for a made-up id.
pub(crate) fn provider_id(id: &str) -> Option<&str> {
    (!id.is_empty() && !id.starts_with(INVENTED_ID_PREFIX)).then_some(id)
}

/// The ids of a conversation.
#[derive(Debug, Default)]
pub(crate) struct CallIds<'v> {
    /// The id of each call.
    pub(crate) calls: Vec<Cow<'v, str>>,
    /// The id of the call that each result answers; its own id if it answers none.
    pub(crate) results: Vec<Cow<'v, str>>,
    /// The first result that answers no call, or turn that leaves calls unanswered.
    pub(crate) problem: Option<FieldProblem>,
}

/// Calls of the model's last turn, found by id or by name. A turn may hold hundreds of thousands.
#[derive(Default)]
struct OpenCalls<'v> {
    calls: Vec<OpenCall<'v>>,
    answered: usize,
    by_id: HashMap<&'v str, VecDeque<usize>>,
    by_name: HashMap<&'v str, VecDeque<usize>>,
    /// Calls without an id, by name.
    bare_by_name: HashMap<&'v str, VecDeque<usize>>,
}

struct OpenCall<'v> {
    name: &'v str,
    /// The position of its id.
    at: usize,
    is_answered: bool,
}

/// Answers the first open call of a queue. Calls that were answered meanwhile leave the queue.
fn answer_first<'c, 'v>(
    calls: &'c mut [OpenCall<'v>],
    queue: Option<&mut VecDeque<usize>>,
) -> Option<&'c OpenCall<'v>> {
    let queue = queue?;
    let is_open = |at: &usize| calls.get(*at).is_some_and(|call| !call.is_answered);
    while queue.front().is_some_and(|at| !is_open(at)) {
        queue.pop_front();
    }
    let call = calls.get_mut(queue.pop_front()?)?;
    call.is_answered = true;
    Some(call)
}

impl<'v> OpenCalls<'v> {
    fn push(&mut self, id: Option<&'v str>, call: OpenCall<'v>) {
        let at = self.calls.len();
        self.by_name.entry(call.name).or_default().push_back(at);
        match id {
            Some(id) => self.by_id.entry(id).or_default().push_back(at),
            None => self.bare_by_name.entry(call.name).or_default().push_back(at),
        }
        self.calls.push(call);
    }

    /// Matches a result to its call: by id, or by name and order if there is no id. Returns the
    /// position of the call's id, and the field that does not match.
    fn answer(
        &mut self,
        id: Option<&str>,
        name: &str,
    ) -> (Option<usize>, Option<(&'static str, &'static str)>) {
        let by_id = id.and_then(|id| answer_first(&mut self.calls, self.by_id.get_mut(id)));
        if let Some(call) = by_id {
            self.answered += 1;
            let why = "is not the name of the call with this `id`";
            return (Some(call.at), (call.name != name).then_some(("name", why)));
        }
        let queues = if id.is_some() { &mut self.bare_by_name } else { &mut self.by_name };
        match answer_first(&mut self.calls, queues.get_mut(name)) {
            Some(call) => {
                self.answered += 1;
                (Some(call.at), None)
            }
            None => {
                let field = if id.is_some() { "id" } else { "name" };
                (None, Some((field, "answers no call of the turn before")))
            }
        }
    }

    /// Ends a turn with results. Returns false if it answers some calls and leaves others open.
    fn end_turn(&mut self) -> bool {
        let is_partial = self.answered > 0 && self.answered < self.calls.len();
        if self.answered > 0 {
            *self = Self::default();
        }
        !is_partial
    }
}

/// Finds the ids of all calls and results.
pub(crate) fn match_calls<'v>(contents: &'v [NativeContent<'_>]) -> CallIds<'v> {
    let (mut ids, mut open) = (CallIds::default(), OpenCalls::default());
    let mut problem = None;
    let unanswered = |index: usize| {
        let why = "must hold one `functionResponse` for every `functionCall` before it";
        FieldProblem::new(format!("contents[{index}].parts"), why)
    };
    for (index, content) in contents.iter().enumerate() {
        for (at, part) in content.parts().iter().enumerate() {
            let Some(result) = &part.function_response else { continue };
            let id = result.id.as_deref().filter(|id| !id.is_empty());
            let (call, field) = open.answer(id, result.name.as_deref().unwrap_or_default());
            let answered = call.and_then(|at| ids.calls.get(at)).cloned();
            ids.results.push(answered.unwrap_or(Cow::Borrowed(id.unwrap_or_default())));
            problem = problem.or_else(|| {
                let (field, why) = field?;
                let path = format!("contents[{index}].parts[{at}].functionResponse.{field}");
                Some(FieldProblem::new(path, why))
            });
        }
        if content.is_model() && !open.end_turn() {
            problem = problem.or_else(|| Some(unanswered(index.saturating_sub(1))));
        }
        for (at, part) in content.parts().iter().enumerate() {
            let Some(call) = &part.function_call else { continue };
            let name = call.name.as_deref().unwrap_or_default();
            let id = call.id.as_deref().filter(|id| !id.is_empty());
            if content.is_model() {
                open.push(id, OpenCall { name, at: ids.calls.len(), is_answered: false });
            }
            let invent = || Cow::Owned(invent_id((index, at), name));
            ids.calls.push(id.map_or_else(invent, Cow::Borrowed));
        }
    }
    if !open.end_turn() {
        problem = problem.or_else(|| Some(unanswered(contents.len().saturating_sub(1))));
    }
    CallIds { problem, ..ids }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_up_ids_are_stable_and_recognised() {
        let id = invent_id((1, 2), "f");
        assert_eq!(id, invent_id((1, 2), "f"));
        assert_ne!(id, invent_id((1, 3), "f"));
        assert_eq!(
            (provider_id(&id), provider_id("call_1"), provider_id("")),
            (None, Some("call_1"), None)
        );
    }
}

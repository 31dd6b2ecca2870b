//! Ids of function calls, and the calls that results answer.
//!
//! The format leaves ids out. A result without an id answers the first open call of its name.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::native::content::{NativeContent, NativeResult};
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
    /// The id of the call that each result answers; its own id if it answers none. `None` for a
    /// repeated result, which is left out.
    pub(crate) results: Vec<Option<Cow<'v, str>>>,
    /// The first result that answers no call, or turn that leaves calls unanswered.
    pub(crate) problem: Option<FieldProblem>,
}

/// Calls of the model's last turn. A turn may hold hundreds of thousands.
#[derive(Default)]
struct UnansweredCalls<'v> {
    /// Name and id of each call that no result has answered yet.
    calls: Vec<Option<(&'v str, Cow<'v, str>)>>,
    answered: usize,
    queues: HashMap<CallKey<'v>, VecDeque<usize>>,
}

/// A way to find a call.
#[derive(PartialEq, Eq, Hash)]
enum CallKey<'v> {
    Id(&'v str),
    Name(&'v str),
    /// The name of a call without an id.
    BareName(&'v str),
}

impl<'v> UnansweredCalls<'v> {
    fn push(&mut self, own_id: Option<&'v str>, name: &'v str, id: Cow<'v, str>) {
        let key = own_id.map_or(CallKey::BareName(name), CallKey::Id);
        for key in [CallKey::Name(name), key] {
            self.queues.entry(key).or_default().push_back(self.calls.len());
        }
        self.calls.push(Some((name, id)));
    }

    /// Answers the call of a result: by id, or by name and order if there is no id.
    fn answer(&mut self, id: Option<&'v str>, name: &'v str) -> Option<(&'v str, Cow<'v, str>)> {
        let (key, other) = match id {
            Some(id) => (CallKey::Id(id), Some(CallKey::BareName(name))),
            None => (CallKey::Name(name), None),
        };
        let calls = &mut self.calls;
        let call = [Some(key), other].into_iter().flatten().find_map(|key| {
            let queue = self.queues.get_mut(&key)?;
            // Calls that were answered meanwhile leave the queue.
            std::iter::from_fn(|| queue.pop_front()).find_map(|at| calls.get_mut(at)?.take())
        })?;
        self.answered += 1;
        Some(call)
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

/// The first result of each id in a turn, collected when a result answers no open call.
#[derive(Default)]
struct TurnResults<'v, 'a>(Option<HashMap<&'v str, &'v NativeResult<'a>>>);

impl<'v, 'a> TurnResults<'v, 'a> {
    /// Returns true if an earlier result of the turn has the same id and says the same. Gemini CLI
    /// sends every result of a resumed session twice.
    fn repeats(&mut self, content: &'v NativeContent<'a>, result: &'v NativeResult<'a>) -> bool {
        let first_of_id = self.0.get_or_insert_with(|| {
            let mut found = HashMap::new();
            for result in
                content.parts().iter().filter_map(|part| part.function_response.as_deref())
            {
                if let Some(id) = result.id.as_deref() {
                    found.entry(id).or_insert(result);
                }
            }
            found
        });
        let first = result.id.as_deref().and_then(|id| first_of_id.get(id).copied());
        first.is_some_and(|first| {
            !std::ptr::eq(first, result)
                && first.name.as_deref() == result.name.as_deref()
                && first.response.map(|object| object.0.get())
                    == result.response.map(|object| object.0.get())
                && first.parts.is_none()
                && result.parts.is_none()
        })
    }
}

/// Finds the ids of all calls and results.
pub(crate) fn match_calls<'v>(contents: &'v [NativeContent<'_>]) -> CallIds<'v> {
    let (mut ids, mut open) = (CallIds::default(), UnansweredCalls::default());
    let end_turn = |open: &mut UnansweredCalls<'v>, index: usize, ids: &mut CallIds<'v>| {
        if !open.end_turn() && ids.problem.is_none() {
            let path = format!("contents[{}].parts", index.saturating_sub(1));
            let why = "must hold one `functionResponse` for every `functionCall` before it";
            ids.problem = Some(FieldProblem::new(path, why));
        }
    };
    for (index, content) in contents.iter().enumerate() {
        let mut turn_results = TurnResults::default();
        for (at, part) in content.parts().iter().enumerate() {
            let Some(result) = &part.function_response else { continue };
            let name = result.name.as_deref().unwrap_or_default();
            let id = result.id.as_deref().filter(|id| !id.is_empty());
            let (answered, problem) = match open.answer(id, name) {
                Some((own, id)) if own != name => {
                    (id, Some(("name", "is not the name of the call with this `id`")))
                }
                Some((_, id)) => (id, None),
                None if turn_results.repeats(content, result) => {
                    ids.results.push(None);
                    continue;
                }
                None => {
                    let field = if id.is_some() { "id" } else { "name" };
                    let why = "answers no call of the turn before";
                    (Cow::Borrowed(id.unwrap_or_default()), Some((field, why)))
                }
            };
            ids.results.push(Some(answered));
            if let (Some((field, why)), None) = (problem, &ids.problem) {
                let path = format!("contents[{index}].parts[{at}].functionResponse.{field}");
                ids.problem = Some(FieldProblem::new(path, why));
            }
        }
        if content.is_model() {
            end_turn(&mut open, index, &mut ids);
        }
        for (at, part) in content.parts().iter().enumerate() {
            let Some(call) = &part.function_call else { continue };
            let name = call.name.as_deref().unwrap_or_default();
            let own_id = call.id.as_deref().filter(|id| !id.is_empty());
            let invent = || Cow::Owned(invent_id((index, at), name));
            let id = own_id.map_or_else(invent, Cow::Borrowed);
            ids.calls.push(id.clone());
            if content.is_model() {
                open.push(own_id, name, id);
            }
        }
    }
    end_turn(&mut open, contents.len(), &mut ids);
    ids
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

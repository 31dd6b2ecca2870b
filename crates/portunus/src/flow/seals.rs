//! Keeps seals for callers whose format has no official place for them.
//!
//! Chat clients are given seals in an extension field, and many drop it. A provider that wants its
//! seal back with the result of a tool would then refuse the whole conversation. So what belonged
//! to a tool call is kept for a while under the caller's account and the call's id, and put back
//! when the call returns without it. The keep is bounded; the oldest go first.

use canon::{
    Chat, Event, Growth, Kind, Opening, Origin, Part, Place, Reply, Role, Thought, ToolCall,
};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// How many calls are remembered, over all accounts.
const MOST: usize = 20_000;
/// How many bytes of thinking are remembered with one call.
const LONGEST: usize = 256 << 10;

/// What belonged to tool calls, by account and call id.
#[derive(Default)]
pub(crate) struct SealKeep(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    calls: HashMap<(String, String), Vec<Part>>,
    order: VecDeque<(String, String)>,
}

impl SealKeep {
    /// Remembers the seals of an answer's tool calls.
    pub(super) fn keep_reply(&self, account: &str, reply: &Reply) {
        for candidate in &reply.candidates {
            self.keep(account, &candidate.parts);
        }
    }

    /// Remembers, for each call among the parts, the sealed parts of its turn and its own seal.
    fn keep(&self, account: &str, parts: &[Part]) {
        if parts.iter().all(|part| part.seal.is_none()) {
            return;
        }
        let sealed: Vec<Part> = parts.iter().filter(|part| part.seal.is_some()).cloned().collect();
        if sealed.iter().map(weight).sum::<usize>() > LONGEST {
            return;
        }
        let mut kept = self.0.lock();
        for part in parts {
            let Kind::ToolCall(call) = &part.kind else { continue };
            let key = (account.to_owned(), call.id.clone());
            if kept.calls.insert(key.clone(), sealed.clone()).is_none() {
                kept.order.push_back(key);
            }
        }
        while kept.order.len() > MOST {
            if let Some(oldest) = kept.order.pop_front() {
                kept.calls.remove(&oldest);
            }
        }
    }

    /// Puts back what the caller's client dropped.
    pub(super) fn restore(&self, account: &str, chat: &mut Chat) {
        for turn in chat.turns.iter_mut().filter(|turn| turn.role == Role::Assistant) {
            if turn.parts.iter().any(|part| part.seal.is_some()) {
                continue;
            }
            let first = turn.parts.iter().find_map(|part| match &part.kind {
                Kind::ToolCall(call) => Some(call.id.clone()),
                _ => None,
            });
            let Some(id) = first else { continue };
            let found = self.0.lock().calls.get(&(account.to_owned(), id)).cloned();
            if let Some(sealed) = found {
                put_back(&mut turn.parts, sealed);
            }
        }
    }
}

fn weight(part: &Part) -> usize {
    let text = match &part.kind {
        Kind::Thought(thought) => thought.text.len(),
        Kind::ToolCall(call) => call.arguments.len(),
        _ => 0,
    };
    text + part.seal.as_ref().map_or(0, |seal| seal.open().1.len())
}

/// Sealed thoughts go before everything else; a sealed call's seal goes onto the call itself.
fn put_back(parts: &mut Vec<Part>, sealed: Vec<Part>) {
    let mut thoughts = Vec::new();
    for part in sealed {
        match &part.kind {
            Kind::ToolCall(call) => {
                let same = parts
                    .iter_mut()
                    .find(|own| matches!(&own.kind, Kind::ToolCall(other) if other.id == call.id));
                if let Some(own) = same {
                    own.seal = part.seal;
                }
            }
            _ => thoughts.push(part),
        }
    }
    // Thinking that came back without its seal is the same thinking, and not worth twice.
    if !thoughts.is_empty() {
        parts.retain(|part| !matches!(part.kind, Kind::Thought(_)));
    }
    parts.splice(0..0, thoughts);
}

/// Gathers from a stream what is to be kept.
#[derive(Default)]
pub(super) struct SealWatch(BTreeMap<Place, Part>);

impl SealWatch {
    /// A watch for that caller's format; `None` where the format has a place of its own for seals.
    pub(super) fn of(origin: Origin) -> Option<Self> {
        (origin == Origin::Chat).then(Self::default)
    }

    /// Takes note of an event.
    pub(super) fn see(&mut self, event: &Event) {
        match event {
            Event::Open(place, Opening::Thought) => {
                self.0.insert(*place, Part::new(Kind::Thought(Thought::default())));
            }
            Event::Open(place, Opening::ToolCall { id, name, custom }) => {
                let (id, name, custom) = (id.clone(), name.clone(), *custom);
                let call = ToolCall { id, name, arguments: String::new(), custom };
                self.0.insert(*place, Part::new(Kind::ToolCall(call)));
            }
            Event::Open(place, Opening::Whole(part)) => {
                self.0.insert(*place, (**part).clone());
            }
            Event::Grow(place, Growth::Text(text)) => {
                if let Some(Part { kind: Kind::Thought(thought), .. }) = self.0.get_mut(place)
                    && thought.text.len() < LONGEST
                {
                    thought.text.push_str(text);
                }
            }
            Event::Sealed(place, seal) => {
                if let Some(part) = self.0.get_mut(place) {
                    part.seal = Some(seal.clone());
                }
            }
            _ => {}
        }
    }

    /// Everything was seen.
    pub(super) fn keep(self, keep: &SealKeep, account: &str) {
        let parts: Vec<Part> = self.0.into_values().collect();
        keep.keep(account, &parts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use canon::{Seal, Turn};

    fn call(id: &str) -> Part {
        let (id, name, arguments) = (id.to_owned(), "f".to_owned(), "{}".to_owned());
        Part::new(Kind::ToolCall(ToolCall { id, name, arguments, custom: false }))
    }

    fn thought(text: &str) -> Part {
        Part::new(Kind::Thought(Thought { text: text.to_owned(), redacted: false }))
    }

    #[test]
    fn what_a_client_dropped_is_put_back_for_its_own_account_only() {
        let keep = SealKeep::default();
        let seal = |token: &str| Some(Seal::new(Origin::Native, token));
        let whole = vec![thought("hm").sealed(seal("t")), call("c1").sealed(seal("s")), call("c2")];
        keep.keep("a", &whole);
        let dropped = || Chat {
            turns: vec![Turn::new(Role::Assistant, vec![thought("hm"), call("c1"), call("c2")])],
            ..Chat::default()
        };
        let mut back = dropped();
        keep.restore("a", &mut back);
        assert_eq!(back.turns[0].parts, whole);
        let mut other = dropped();
        keep.restore("b", &mut other);
        assert_eq!(other, dropped());
    }

    #[test]
    fn the_keep_is_bounded() {
        let keep = SealKeep::default();
        for n in 0..MOST + 10 {
            let seal = Some(Seal::new(Origin::Native, "s"));
            keep.keep("a", &[call(&format!("c{n}")).sealed(seal)]);
        }
        let kept = keep.0.lock();
        assert_eq!((kept.calls.len(), kept.order.len()), (MOST, MOST));
        assert!(!kept.calls.contains_key(&("a".to_owned(), "c0".to_owned())));
    }
}

//! Conversion between the events of a stream and a complete answer.

use crate::{
    Candidate, Event, Extras, Fault, Growth, Kind, Logprob, Opening, Part, Place, Reply, Thought,
    ToolCall,
};

/// Builds a complete answer from the events of a stream.
#[derive(Debug, Default)]
pub struct Fold {
    reply: Reply,
}

impl Fold {
    /// Takes the next event. An error event ends the build with that error.
    pub fn push(&mut self, event: Event) -> Result<(), Fault> {
        match event {
            Event::Begin { id, model, created } => {
                self.reply.id = id;
                self.reply.model = model;
                self.reply.created = created;
            }
            Event::Open(place, opening) => {
                let part = match opening {
                    Opening::Text => Part::text(""),
                    Opening::Refusal => Part::new(Kind::Refusal(String::new())),
                    Opening::Thought => Part::new(Kind::Thought(Thought::default())),
                    Opening::ToolCall { id, name, custom } => Part::new(Kind::ToolCall(ToolCall {
                        id,
                        name,
                        arguments: String::new(),
                        custom,
                    })),
                    Opening::Whole(part) => *part,
                };
                self.candidate(place.candidate).parts.push(part);
            }
            Event::Grow(place, Growth::Logprobs(more)) => {
                self.candidate(place.candidate).logprobs.extend(more);
            }
            Event::Grow(place, growth) => {
                if let Some(part) = self.part(place) {
                    append(part, growth);
                }
            }
            Event::Sealed(place, seal) => {
                if let Some(part) = self.part(place) {
                    part.seal = Some(seal);
                }
            }
            Event::Close(_) => {}
            Event::Count(usage) => self.reply.usage = Some(usage),
            Event::Aside { candidate, origin, name, value } => {
                let extras = match candidate {
                    Some(index) => &mut self.candidate(index).extras,
                    None => &mut self.reply.extras,
                };
                extras.put(origin, &name, value);
            }
            Event::End { candidate, finish } => self.candidate(candidate).finish = Some(finish),
            Event::Fault(fault) => return Err(fault),
        }
        Ok(())
    }

    /// Returns the complete answer.
    pub fn finish(mut self) -> Reply {
        self.reply.candidates.sort_by_key(|candidate| candidate.index);
        self.reply
    }

    fn candidate(&mut self, index: u32) -> &mut Candidate {
        let all = &mut self.reply.candidates;
        let at = all.iter().position(|candidate| candidate.index == index).unwrap_or_else(|| {
            all.push(Candidate { index, ..Candidate::default() });
            all.len() - 1
        });
        #[expect(clippy::indexing_slicing, reason = "found or pushed just above")]
        &mut all[at]
    }

    fn part(&mut self, place: Place) -> Option<&mut Part> {
        self.candidate(place.candidate).parts.get_mut(place.slot as usize)
    }
}

fn append(part: &mut Part, growth: Growth) {
    match growth {
        Growth::Text(more) => match &mut part.kind {
            Kind::Text { text, .. } | Kind::Refusal(text) => text.push_str(&more),
            Kind::Thought(thought) => thought.text.push_str(&more),
            Kind::ToolCall(call) => call.arguments.push_str(&more),
            Kind::Media(_)
            | Kind::ToolResult(_)
            | Kind::Code(_)
            | Kind::CodeOutcome(_)
            | Kind::Search(_)
            | Kind::Foreign { .. } => {}
        },
        Growth::Citation(citation) => {
            if let Kind::Text { citations, .. } = &mut part.kind {
                citations.push(citation);
            }
        }
        Growth::Extra { origin, name, value } => part.extras.put(origin, &name, value),
        Growth::Logprobs(_) => {}
    }
}

/// Converts a complete answer into the shortest stream that yields the same answer.
pub fn unfold(reply: Reply) -> Vec<Event> {
    let Reply { id, model, created, candidates, usage, extras } = reply;
    let mut events = vec![Event::Begin { id, model, created }];
    push_extras(None, extras, &mut events);
    for candidate in candidates {
        let Candidate { index, parts, finish, mut logprobs, extras } = candidate;
        for (slot, part) in (0..).zip(parts) {
            let place = Place { candidate: index, slot };
            let is_text = matches!(part.kind, Kind::Text { .. });
            let of_text = if is_text { std::mem::take(&mut logprobs) } else { Vec::new() };
            push_part(place, part, of_text, &mut events);
        }
        push_extras(Some(index), extras, &mut events);
        if let Some(finish) = finish {
            events.push(Event::End { candidate: index, finish });
        }
    }
    events.extend(usage.map(Event::Count));
    events
}

fn push_extras(candidate: Option<u32>, extras: Extras, events: &mut Vec<Event>) {
    for origin in crate::Origin::ALL {
        for (name, value) in extras.for_origin(origin).into_iter().flatten() {
            let (name, value) = (name.clone(), value.clone());
            events.push(Event::Aside { candidate, origin, name, value });
        }
    }
}

fn push_part(place: Place, part: Part, logprobs: Vec<Logprob>, events: &mut Vec<Event>) {
    let Part { kind, mut seal, cache, extras } = part;
    let mut deltas = Vec::new();
    let early_signature = if matches!(kind, Kind::Text { .. }) { seal.take() } else { None };
    let opening = match kind {
        Kind::Text { text, citations } => {
            deltas.push(Growth::Text(text));
            deltas.extend(citations.into_iter().map(Growth::Citation));
            Opening::Text
        }
        Kind::Refusal(text) => {
            deltas.push(Growth::Text(text));
            Opening::Refusal
        }
        Kind::Thought(Thought { text, redacted: false }) => {
            deltas.push(Growth::Text(text));
            Opening::Thought
        }
        Kind::ToolCall(ToolCall { id, name, arguments, custom }) => {
            deltas.push(Growth::Text(arguments));
            Opening::ToolCall { id, name, custom }
        }
        kind @ (Kind::Thought(_)
        | Kind::Media(_)
        | Kind::ToolResult(_)
        | Kind::Code(_)
        | Kind::CodeOutcome(_)
        | Kind::Search(_)
        | Kind::Foreign { .. }) => {
            Opening::Whole(Box::new(Part { kind, seal: None, cache, extras: Extras::none() }))
        }
    };
    events.push(Event::Open(place, opening));
    events.extend(early_signature.map(|seal| Event::Sealed(place, seal)));
    if !logprobs.is_empty() {
        deltas.push(Growth::Logprobs(logprobs));
    }
    for origin in crate::Origin::ALL {
        for (name, value) in extras.for_origin(origin).into_iter().flatten() {
            deltas.push(Growth::Extra { origin, name: name.clone(), value: value.clone() });
        }
    }
    deltas.retain(|growth| !matches!(growth, Growth::Text(text) if text.is_empty()));
    events.extend(deltas.into_iter().map(|growth| Event::Grow(place, growth)));
    events.extend(seal.map(|seal| Event::Sealed(place, seal)));
    events.push(Event::Close(place));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Finish, Grammar, Origin, Raw, Seal, Usage, Why};
    use proptest::prelude::*;

    fn part() -> impl Strategy<Value = Part> {
        let seal = prop::option::of("[a-z]{1,9}".prop_map(|t| Seal::new(Origin::Native, t)));
        let kind = prop_oneof![
            any::<String>().prop_map(|text| Kind::Text { text, citations: vec![] }),
            any::<String>().prop_map(Kind::Refusal),
            (any::<String>(), any::<bool>())
                .prop_map(|(text, redacted)| Kind::Thought(Thought { text, redacted })),
            ("[a-z]{4}", "[a-z]{4}", any::<String>(), any::<bool>()).prop_map(
                |(id, name, arguments, custom)| Kind::ToolCall(ToolCall {
                    id,
                    name,
                    arguments,
                    custom
                })
            ),
        ];
        (kind, seal).prop_map(|(kind, seal)| Part::new(kind).sealed(seal))
    }

    proptest! {
        #[test]
        fn a_reply_survives_conversion_to_events_and_back(
            parts in prop::collection::vec(part(), 0..6),
            more in prop::collection::vec(part(), 0..3),
            input in 0_u64..9,
        ) {
            let finish = Some(Finish::new(Why::Stop, Raw::new(Origin::Chat, "stop")));
            let one = Candidate { index: 0, parts, finish: finish.clone(), ..Candidate::default() };
            let two = Candidate { index: 1, parts: more, finish, ..Candidate::default() };
            let usage = Some(Usage { input, ..Usage::default() });
            let reply = Reply { candidates: vec![one, two], usage, ..Reply::default() };

            let mut grammar = Grammar::default();
            let mut fold = Fold::default();
            for event in unfold(reply.clone()) {
                prop_assert_eq!(grammar.push(&event), Ok(()));
                prop_assert_eq!(fold.push(event), Ok(()));
            }
            prop_assert_eq!(grammar.finish(), Ok(()));
            prop_assert_eq!(fold.finish(), reply);
        }
    }
}

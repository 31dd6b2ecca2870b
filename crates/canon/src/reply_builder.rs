//! Conversion between the events of a stream and a complete answer.

use crate::{
    ApiError, ChatReply, Event, ExtraFields, Logprob, Part, PartDelta, PartIndex, PartKind,
    PartStart, ReplyCandidate, Thought, ToolCall,
};

/// Builds a complete answer from the events of a stream.
#[derive(Debug, Default)]
pub struct ReplyBuilder {
    reply: ChatReply,
}

impl ReplyBuilder {
    /// Builds the answer of a stream that is there as a whole.
    pub fn build(events: Vec<Event>) -> Result<ChatReply, ApiError> {
        let mut builder = Self::default();
        events.into_iter().try_for_each(|event| builder.push(event))?;
        Ok(builder.finish())
    }

    /// Takes the next event. An error event ends the build with that error.
    pub fn push(&mut self, event: Event) -> Result<(), ApiError> {
        match event {
            Event::Start { id, model, created } => {
                self.reply.id = id;
                self.reply.model = model;
                self.reply.created = created;
            }
            Event::PartStart(place, opening) => {
                self.candidate(place.candidate).parts.push(opening.into_part());
            }
            Event::PartDelta(place, PartDelta::Logprobs(more)) => {
                self.candidate(place.candidate).logprobs.extend(more);
            }
            Event::PartDelta(place, growth) => {
                if let Some(part) = self.part(place) {
                    part.grow(growth);
                }
            }
            Event::PartSignature(place, seal) => {
                if let Some(part) = self.part(place) {
                    part.signature = Some(seal);
                }
            }
            Event::PartEnd(_) => {}
            Event::Usage(usage) => self.reply.usage = Some(usage),
            Event::Extra { candidate, origin, name, value } => {
                let extras = match candidate {
                    Some(index) => &mut self.candidate(index).extras,
                    None => &mut self.reply.extras,
                };
                extras.insert(origin, &name, value);
            }
            Event::Finish { candidate, finish } => self.candidate(candidate).finish = Some(finish),
            Event::Error(fault) => return Err(fault),
        }
        Ok(())
    }

    /// Returns the complete answer.
    pub fn finish(mut self) -> ChatReply {
        self.reply.candidates.sort_by_key(|candidate| candidate.index);
        self.reply
    }

    fn candidate(&mut self, index: u32) -> &mut ReplyCandidate {
        let all = &mut self.reply.candidates;
        let at = all.iter().position(|candidate| candidate.index == index).unwrap_or_else(|| {
            all.push(ReplyCandidate { index, ..ReplyCandidate::default() });
            all.len() - 1
        });
        #[expect(clippy::indexing_slicing, reason = "found or pushed just above")]
        &mut all[at]
    }

    fn part(&mut self, place: PartIndex) -> Option<&mut Part> {
        self.candidate(place.candidate).parts.get_mut(place.slot as usize)
    }
}

/// Converts a complete answer into the shortest stream that yields the same answer.
pub fn into_events(reply: ChatReply) -> Vec<Event> {
    let ChatReply { id, model, created, candidates, usage, extras } = reply;
    // The usual answer has one part: start, part of three events, finish, usage and two extras.
    let mut events = Vec::with_capacity(8);
    events.push(Event::Start { id, model, created });
    push_extras(None, extras, &mut events);
    for candidate in candidates {
        let ReplyCandidate { index, parts, finish, mut logprobs, extras } = candidate;
        let has_text = parts.iter().any(|part| matches!(part.kind, PartKind::Text { .. }));
        for (slot, part) in (0..).zip(parts) {
            let place = PartIndex { candidate: index, slot };
            let is_text = match part.kind {
                PartKind::Text { .. } => true,
                PartKind::Refusal(_) => !has_text,
                _ => false,
            };
            let of_text = if is_text { std::mem::take(&mut logprobs) } else { Vec::new() };
            push_part(place, part, of_text, &mut events);
        }
        push_extras(Some(index), extras, &mut events);
        if let Some(finish) = finish {
            events.push(Event::Finish { candidate: index, finish });
        }
    }
    events.extend(usage.map(Event::Usage));
    events
}

fn push_extras(candidate: Option<u32>, extras: ExtraFields, events: &mut Vec<Event>) {
    for (origin, name, value) in extras.all_fields() {
        events.push(Event::extra(candidate, origin, name, value.clone()));
    }
}

/// Converts a complete part into events.
pub fn into_part_events(place: PartIndex, part: Part, events: &mut Vec<Event>) {
    push_part(place, part, Vec::new(), events);
}

fn push_part(place: PartIndex, part: Part, logprobs: Vec<Logprob>, events: &mut Vec<Event>) {
    let Part { kind, signature: mut seal, cache_breakpoint: cache, extras } = part;
    let early_signature = if matches!(kind, PartKind::Text { .. }) { seal.take() } else { None };
    let mut cited = Vec::new();
    let (opening, text) = match kind {
        PartKind::Text { text, citations } => {
            cited = citations;
            (PartStart::Text, text)
        }
        PartKind::Refusal(text) => (PartStart::Refusal, text),
        PartKind::Thought(Thought { text, redacted: false }) => (PartStart::Thought, text),
        PartKind::ToolCall(ToolCall { id, name, arguments, custom }) => {
            (PartStart::ToolCall { id, name, custom }, arguments)
        }
        kind @ (PartKind::Thought(_)
        | PartKind::Media(_)
        | PartKind::ToolResult(_)
        | PartKind::CodeExecution(_)
        | PartKind::CodeResult(_)
        | PartKind::WebSearch(_)
        | PartKind::Foreign { .. }) => {
            let extras = ExtraFields::new();
            let whole = Part { kind, signature: None, cache_breakpoint: cache, extras };
            (PartStart::Complete(Box::new(whole)), String::new())
        }
    };
    events.push(Event::PartStart(place, opening));
    events.extend(early_signature.map(|seal| Event::PartSignature(place, seal)));
    let mut grow = |growth: PartDelta| events.push(Event::PartDelta(place, growth));
    if !text.is_empty() {
        grow(PartDelta::Text(text));
    }
    cited.into_iter().for_each(|citation| grow(PartDelta::Citation(citation)));
    if !logprobs.is_empty() {
        grow(PartDelta::Logprobs(logprobs));
    }
    for origin in crate::WireFormat::ALL {
        for (name, value) in extras.for_format(origin).into_iter().flatten() {
            grow(PartDelta::Extra { origin, name: name.clone(), value: value.clone() });
        }
    }
    events.extend(seal.map(|seal| Event::PartSignature(place, seal)));
    events.push(Event::PartEnd(place));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EventGrammar, Finish, FinishReason, RawReason, Signature, Usage, WireFormat};
    use proptest::prelude::*;

    fn part() -> impl Strategy<Value = Part> {
        let seal =
            prop::option::of("[a-z]{1,9}".prop_map(|t| Signature::new(WireFormat::Native, t)));
        let kind = prop_oneof![
            any::<String>().prop_map(|text| PartKind::Text { text, citations: vec![] }),
            any::<String>().prop_map(PartKind::Refusal),
            (any::<String>(), any::<bool>())
                .prop_map(|(text, redacted)| PartKind::Thought(Thought { text, redacted })),
            ("[a-z]{4}", "[a-z]{4}", any::<String>(), any::<bool>()).prop_map(
                |(id, name, arguments, custom)| PartKind::ToolCall(ToolCall {
                    id,
                    name,
                    arguments,
                    custom
                })
            ),
        ];
        (kind, seal).prop_map(|(kind, seal)| Part::new(kind).with_signature(seal))
    }

    proptest! {
        #[test]
        fn a_reply_survives_conversion_to_events_and_back(
            parts in prop::collection::vec(part(), 0..6),
            more in prop::collection::vec(part(), 0..3),
            input in 0_u64..9,
        ) {
            let finish = Some(Finish::new(FinishReason::Stop, RawReason::new(WireFormat::Chat, "stop")));
            let one = ReplyCandidate { index: 0, parts, finish: finish.clone(), ..ReplyCandidate::default() };
            let two = ReplyCandidate { index: 1, parts: more, finish, ..ReplyCandidate::default() };
            let usage = Some(Usage { input, ..Usage::default() });
            let reply = ChatReply { candidates: vec![one, two], usage, ..ChatReply::default() };

            let mut grammar = EventGrammar::default();
            let mut fold = ReplyBuilder::default();
            for event in into_events(reply.clone()) {
                prop_assert_eq!(grammar.push(&event), Ok(()));
                prop_assert_eq!(fold.push(event), Ok(()));
            }
            prop_assert_eq!(grammar.finish(), Ok(()));
            prop_assert_eq!(fold.finish(), reply);
        }
    }
}

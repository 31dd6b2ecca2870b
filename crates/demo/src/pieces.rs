//! Streaming of a complete answer in small pieces.

use canon::{
    Candidate, Event, Extras, Growth, Kind, Logprob, Opening, Origin, Part, Place, Reply, Thought,
    ToolCall, Usage,
};
use std::collections::VecDeque;

use crate::tokens;

/// Splits a reply into the events of a stream, with one or two tokens of text, thinking or
/// arguments each. The events rebuild exactly the same reply.
pub fn events(reply: Reply) -> Vec<Event> {
    let Reply { id, model, created, candidates, usage, extras } = reply;
    let mut out = vec![Event::Begin { id, model, created }];
    // The input usage is known before the first word.
    out.extend(usage.map(|usage| {
        let Usage {
            input,
            cache_read,
            cache_write,
            cache_write_long,
            input_audio,
            input_image,
            ..
        } = usage;
        Event::Count(Usage {
            input,
            cache_read,
            cache_write,
            cache_write_long,
            input_audio,
            input_image,
            ..Usage::default()
        })
    }));
    asides(None, &extras, &mut out);
    for candidate in candidates {
        let Candidate { index, parts, finish, logprobs, extras } = candidate;
        let mut chances = VecDeque::from(logprobs);
        let last = parts.len().saturating_sub(1);
        for (at, part) in parts.into_iter().enumerate() {
            let slot = u32::try_from(at).unwrap_or(u32::MAX);
            let place = Place { candidate: index, slot };
            one_part(place, part, &mut chances, at == last, &mut out);
        }
        asides(Some(index), &extras, &mut out);
        out.extend(finish.map(|finish| Event::End { candidate: index, finish }));
    }
    out.extend(usage.map(Event::Count));
    out
}

fn asides(candidate: Option<u32>, extras: &Extras, out: &mut Vec<Event>) {
    for origin in Origin::ALL {
        for (name, value) in extras.for_origin(origin).into_iter().flatten() {
            let (name, value) = (name.clone(), value.clone());
            out.push(Event::Aside { candidate, origin, name, value });
        }
    }
}

fn one_part(
    place: Place,
    part: Part,
    chances: &mut VecDeque<Logprob>,
    last: bool,
    out: &mut Vec<Event>,
) {
    let Part { kind, seal, cache, extras } = part;
    let mut sources = Vec::new();
    let mut said = None;
    let opening = match kind {
        Kind::Text { text, citations } => {
            said = Some((text, true));
            sources = citations;
            Opening::Text
        }
        Kind::Refusal(text) => {
            said = Some((text, false));
            Opening::Refusal
        }
        Kind::Thought(Thought { text, redacted: false }) => {
            said = Some((text, false));
            Opening::Thought
        }
        Kind::ToolCall(ToolCall { id, name, arguments, custom }) => {
            said = Some((arguments, false));
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
    out.push(Event::Open(place, opening));
    if let Some((text, spoken)) = said {
        for (piece, count) in cut(&text) {
            out.push(Event::Grow(place, Growth::Text(piece)));
            if spoken && !chances.is_empty() {
                let ready = count.min(chances.len());
                let list = chances.drain(..ready).collect();
                out.push(Event::Grow(place, Growth::Logprobs(list)));
            }
        }
    }
    out.extend(sources.into_iter().map(|source| Event::Grow(place, Growth::Citation(source))));
    if last && !chances.is_empty() {
        out.push(Event::Grow(place, Growth::Logprobs(chances.drain(..).collect())));
    }
    for origin in Origin::ALL {
        for (name, value) in extras.for_origin(origin).into_iter().flatten() {
            let (name, value) = (name.clone(), value.clone());
            out.push(Event::Grow(place, Growth::Extra { origin, name, value }));
        }
    }
    out.extend(seal.map(|seal| Event::Sealed(place, seal)));
    out.push(Event::Close(place));
}

/// Splits a text into pieces of alternately one and two tokens, with the number of tokens of each.
/// A very long text has larger pieces.
fn cut(text: &str) -> Vec<(String, usize)> {
    let unit = text.len() / 100_000 + 1;
    let mut pieces = Vec::new();
    let mut tokens = tokens::tokens(text);
    let mut size = unit;
    while let Some(first) = tokens.next() {
        let mut piece = first.to_owned();
        let more = tokens.by_ref().take(size - 1);
        let mut count = 1;
        for token in more {
            piece.push_str(token);
            count += 1;
        }
        pieces.push((piece, count));
        size = 3 * unit - size;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use canon::{Citation, Finish, Fold, Grammar, Raw, Seal, TokenChance, Why};
    use proptest::prelude::*;

    fn part() -> impl Strategy<Value = Part> {
        let seal = prop::option::of("[a-z]{1,9}".prop_map(|t| Seal::new(Origin::Native, t)));
        let citation =
            Citation { url: Some("https://example.com".to_owned()), ..Citation::default() };
        let kind = prop_oneof![
            (any::<String>(), 0_usize..3).prop_map(move |(text, n)| Kind::Text {
                text,
                citations: vec![citation.clone(); n]
            }),
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
            any::<String>().prop_map(|output| {
                Kind::CodeOutcome(canon::CodeOutcome { id: None, output, failed: false })
            }),
        ];
        (kind, seal).prop_map(|(kind, seal)| Part::new(kind).sealed(seal))
    }

    proptest! {
        #[test]
        fn pieces_are_lawful_and_fold_back_into_the_reply(
            parts in prop::collection::vec(part(), 1..6),
            more in prop::collection::vec(part(), 0..3),
            chances in 0_usize..9,
            input in 0_u64..9,
        ) {
            let finish = Some(Finish::new(Why::Stop, Raw::new(Origin::Chat, "stop")));
            let chance = |at: usize| Logprob {
                chosen: TokenChance { token: at.to_string(), ..TokenChance::default() },
                top: Vec::new(),
            };
            let logprobs = (0..chances).map(chance).collect();
            let mut extras = Extras::none();
            extras.put(Origin::Chat, "x", serde_json::Value::from(1));
            let one = Candidate { index: 0, parts, finish: finish.clone(), logprobs, extras: extras.clone() };
            let two = Candidate { index: 1, parts: more, finish, ..Candidate::default() };
            let usage = Some(Usage { input, output: 3, ..Usage::default() });
            let reply = Reply { candidates: vec![one, two], usage, extras, ..Reply::default() };

            let mut grammar = Grammar::default();
            let mut fold = Fold::default();
            for event in events(reply.clone()) {
                prop_assert_eq!(grammar.push(&event), Ok(()));
                prop_assert_eq!(fold.push(event), Ok(()));
            }
            prop_assert_eq!(grammar.finish(), Ok(()));
            prop_assert_eq!(fold.finish(), reply);
        }
    }
}

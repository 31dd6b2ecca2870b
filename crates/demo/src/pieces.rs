//! Streaming of a complete answer in small pieces.

use canon::{
    ChatReply, Event, ExtraFields, Logprob, Part, PartDelta, PartIndex, PartKind, PartStart,
    ReplyCandidate, Thought, ToolCall, Usage, WireFormat,
};
use std::collections::VecDeque;

use crate::tokens;

/// Splits a reply into the events of a stream, with one or two tokens of text, thinking or
/// arguments each. The events rebuild exactly the same reply.
pub fn events(reply: ChatReply) -> Vec<Event> {
    let ChatReply { id, model, created, candidates, usage, extras } = reply;
    let mut out = vec![Event::Start { id, model, created }];
    // The input usage is known before the first word.
    out.extend(usage.map(|usage| {
        let Usage {
            input,
            cache_read,
            cache_write,
            cache_write_long,
            input_audio,
            input_image,
            input_video,
            ..
        } = usage;
        Event::Usage(Usage {
            input,
            cache_read,
            cache_write,
            cache_write_long,
            input_audio,
            input_image,
            input_video,
            ..Usage::default()
        })
    }));
    asides(None, &extras, &mut out);
    for candidate in candidates {
        let ReplyCandidate { index, parts, finish, logprobs, extras } = candidate;
        let mut chances = VecDeque::from(logprobs);
        let last = parts.len().saturating_sub(1);
        for (at, part) in parts.into_iter().enumerate() {
            let slot = u32::try_from(at).unwrap_or(u32::MAX);
            let place = PartIndex { candidate: index, slot };
            one_part(place, part, &mut chances, at == last, &mut out);
        }
        asides(Some(index), &extras, &mut out);
        out.extend(finish.map(|finish| Event::Finish { candidate: index, finish }));
    }
    out.extend(usage.map(Event::Usage));
    out
}

fn asides(candidate: Option<u32>, extras: &ExtraFields, out: &mut Vec<Event>) {
    for origin in WireFormat::ALL {
        for (name, value) in extras.for_format(origin).into_iter().flatten() {
            let (name, value) = (name.clone(), value.clone());
            out.push(Event::Extra { candidate, origin, name, value });
        }
    }
}

fn one_part(
    place: PartIndex,
    part: Part,
    chances: &mut VecDeque<Logprob>,
    last: bool,
    out: &mut Vec<Event>,
) {
    let Part { kind, signature: seal, cache_breakpoint: cache, extras } = part;
    let mut sources = Vec::new();
    let mut said = None;
    let opening = match kind {
        PartKind::Text { text, citations } => {
            said = Some((text, true));
            sources = citations;
            PartStart::Text
        }
        PartKind::Refusal(text) => {
            said = Some((text, false));
            PartStart::Refusal
        }
        PartKind::Thought(Thought { text, redacted: false }) => {
            said = Some((text, false));
            PartStart::Thought
        }
        PartKind::ToolCall(ToolCall { id, name, arguments, custom }) => {
            said = Some((arguments, false));
            PartStart::ToolCall { id, name, custom }
        }
        kind @ (PartKind::Thought(_)
        | PartKind::Media(_)
        | PartKind::ToolResult(_)
        | PartKind::CodeExecution(_)
        | PartKind::CodeResult(_)
        | PartKind::WebSearch(_)
        | PartKind::Foreign { .. }) => PartStart::Complete(Box::new(Part {
            kind,
            signature: None,
            cache_breakpoint: cache,
            extras: ExtraFields::new(),
        })),
    };
    out.push(Event::PartStart(place, opening));
    if let Some((text, spoken)) = said {
        for (piece, count) in cut(&text) {
            out.push(Event::PartDelta(place, PartDelta::Text(piece)));
            if spoken && !chances.is_empty() {
                let ready = count.min(chances.len());
                let list = chances.drain(..ready).collect();
                out.push(Event::PartDelta(place, PartDelta::Logprobs(list)));
            }
        }
    }
    out.extend(
        sources.into_iter().map(|source| Event::PartDelta(place, PartDelta::Citation(source))),
    );
    if last && !chances.is_empty() {
        out.push(Event::PartDelta(place, PartDelta::Logprobs(chances.drain(..).collect())));
    }
    for origin in WireFormat::ALL {
        for (name, value) in extras.for_format(origin).into_iter().flatten() {
            let (name, value) = (name.clone(), value.clone());
            out.push(Event::PartDelta(place, PartDelta::Extra { origin, name, value }));
        }
    }
    out.extend(seal.map(|seal| Event::PartSignature(place, seal)));
    out.push(Event::PartEnd(place));
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
    use canon::{
        Citation, EventGrammar, Finish, FinishReason, RawReason, ReplyBuilder, Signature,
        TokenLogprob,
    };
    use proptest::prelude::*;

    fn part() -> impl Strategy<Value = Part> {
        let seal =
            prop::option::of("[a-z]{1,9}".prop_map(|t| Signature::new(WireFormat::Native, t)));
        let citation =
            Citation { url: Some("https://example.com".to_owned()), ..Citation::default() };
        let kind = prop_oneof![
            (any::<String>(), 0_usize..3).prop_map(move |(text, n)| PartKind::Text {
                text,
                citations: vec![citation.clone(); n]
            }),
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
            any::<String>().prop_map(|output| {
                PartKind::CodeResult(canon::CodeResult { id: None, output, is_error: false })
            }),
        ];
        (kind, seal).prop_map(|(kind, seal)| Part::new(kind).with_signature(seal))
    }

    proptest! {
        #[test]
        fn pieces_are_lawful_and_fold_back_into_the_reply(
            parts in prop::collection::vec(part(), 1..6),
            more in prop::collection::vec(part(), 0..3),
            chances in 0_usize..9,
            input in 0_u64..9,
        ) {
            let finish = Some(Finish::new(FinishReason::Stop, RawReason::new(WireFormat::Chat, "stop")));
            let chance = |at: usize| Logprob {
                chosen: TokenLogprob { token: at.to_string(), ..TokenLogprob::default() },
                top: Vec::new(),
            };
            let logprobs = (0..chances).map(chance).collect();
            let mut extras = ExtraFields::new();
            extras.insert(WireFormat::Chat, "x", serde_json::Value::from(1));
            let one = ReplyCandidate { index: 0, parts, finish: finish.clone(), logprobs, extras: extras.clone() };
            let two = ReplyCandidate { index: 1, parts: more, finish, ..ReplyCandidate::default() };
            let usage = Some(Usage { input, output: 3, ..Usage::default() });
            let reply = ChatReply { candidates: vec![one, two], usage, extras, ..ChatReply::default() };

            let mut grammar = EventGrammar::default();
            let mut fold = ReplyBuilder::default();
            for event in events(reply.clone()) {
                prop_assert_eq!(grammar.push(&event), Ok(()));
                prop_assert_eq!(fold.push(event), Ok(()));
            }
            prop_assert_eq!(grammar.finish(), Ok(()));
            prop_assert_eq!(fold.finish(), reply);
        }
    }
}

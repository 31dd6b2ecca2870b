//! End of an answer: output limit, stop sequences and usage.

use canon::{
    Candidate, Citation, Finish, Kind, Logprob, Origin, Part, Raw, Sampling, Seal, Thinking,
    Thought, TokenChance, ToolCall, Why,
};

use super::thinking::Thoughts;
use crate::seeded_random::{self, SeededRandom};
use crate::tokens;

/// Maximum number of tokens of an answer, regardless of the request.
pub const MAX_OUTPUT: u64 = 65_536;

/// An answer before its limits are applied.
pub(super) struct AnswerDraft {
    /// Thoughts, if any.
    pub(super) thoughts: Option<Thoughts>,
    /// Signature of the thoughts or calls.
    pub(super) seal: Option<Seal>,
    /// Parts of the answer.
    pub(super) parts: Vec<Part>,
}

/// Usage of one answer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AnswerUsage {
    /// All output tokens.
    pub(super) output: u64,
    /// Thinking tokens, part of `output`.
    pub(super) thinking: u64,
    /// Number of searches.
    pub(super) searches: u64,
}

/// Applies the limits to an answer.
pub(super) fn keep(
    draft: AnswerDraft,
    sampling: &Sampling,
    thinking: &Thinking,
    origin: Origin,
    index: u32,
) -> (Candidate, AnswerUsage) {
    let AnswerDraft { thoughts, seal, parts } = draft;
    let limit = sampling.max_output.unwrap_or(MAX_OUTPUT).min(MAX_OUTPUT);
    let mut ledger = AnswerUsage::default();
    let mut kept = Vec::new();
    if let Some(thoughts) = thoughts {
        // At least half of a tight limit is left for the answer.
        let most = thinking.tokens().unwrap_or(u64::MAX).min(limit / 2);
        let text = tokens::first(&thoughts.text, most);
        ledger.thinking = tokens::count(text);
        ledger.output = ledger.thinking;
        let shown = if thoughts.shown { text } else { "" };
        let thought = Thought { text: shown.to_owned(), redacted: false };
        let own_seal = if origin == Origin::Native { None } else { seal.clone() };
        if ledger.thinking > 0 && (own_seal.is_some() || thoughts.shown) {
            kept.push(Part::new(Kind::Thought(thought)).sealed(own_seal));
        }
    }
    let mut why = Why::Stop;
    let mut stopped = None;
    for part in parts {
        let left = limit.saturating_sub(ledger.output);
        match part.kind {
            Kind::Text { text, citations } => {
                let (before, stop) = before_stop(&text, &sampling.stop);
                let fitting = tokens::first(before, left);
                ledger.output += tokens::count(fitting);
                let cut = fitting.len() < before.len();
                if !fitting.is_empty() || before.is_empty() {
                    let citations = within(citations, fitting.chars().count());
                    kept.push(Part::new(Kind::Text { text: fitting.to_owned(), citations }));
                }
                if cut {
                    why = Why::Length;
                } else if let Some(stop) = stop {
                    why = Why::StopText;
                    stopped = Some(stop.to_owned());
                }
            }
            Kind::ToolCall(ToolCall { ref name, ref arguments, .. }) => {
                let cost = tokens::count(name) + tokens::count(arguments);
                if cost > left {
                    // An incomplete call is dropped, but its tokens count.
                    ledger.output = limit;
                    why = Why::Length;
                } else {
                    ledger.output += cost;
                    kept.push(part);
                    why = Why::ToolCalls;
                }
            }
            Kind::Code(ref code) => {
                let cost = tokens::count(&code.code);
                if cost > left {
                    ledger.output = limit;
                    why = Why::Length;
                } else {
                    ledger.output += cost;
                    kept.push(part);
                }
            }
            Kind::Search(_) => {
                ledger.searches += 1;
                kept.push(part);
            }
            Kind::CodeOutcome(_)
            | Kind::Refusal(_)
            | Kind::Media(_)
            | Kind::Thought(_)
            | Kind::ToolResult(_)
            | Kind::Foreign { .. } => kept.push(part),
        }
        if matches!(why, Why::Length | Why::StopText) {
            break;
        }
    }
    if origin == Origin::Native {
        place_native_seal(&mut kept, seal);
    }
    let logprobs = sampling.logprobs.map_or_else(Vec::new, |top| logprobs(&kept, top));
    let finish = Finish { why, raw: Raw::new(origin, word(origin, why)), stop: stopped };
    let candidate =
        Candidate { index, parts: kept, finish: Some(finish), logprobs, ..Candidate::default() };
    (candidate, ledger)
}

/// The native format puts the signature on the first call or on the last text, never on a thought
/// (<https://ai.google.dev/gemini-api/docs/thought-signatures>).
fn place_native_seal(parts: &mut [Part], seal: Option<Seal>) {
    let call = parts.iter().position(|part| matches!(part.kind, Kind::ToolCall(_)));
    let text = || parts.iter().rposition(|part| matches!(part.kind, Kind::Text { .. }));
    let at = call.or_else(text);
    if let Some(part) = at.and_then(|at| parts.get_mut(at)) {
        part.seal = seal;
    }
}

/// Returns the text before the first stop sequence, and that sequence.
fn before_stop<'t, 's>(text: &'t str, stops: &'s [String]) -> (&'t str, Option<&'s str>) {
    stops
        .iter()
        .filter(|stop| !stop.is_empty())
        .filter_map(|stop| text.find(stop.as_str()).map(|at| (at, stop)))
        .min_by_key(|(at, _)| *at)
        .and_then(|(at, stop)| text.get(..at).map(|front| (front, Some(stop.as_str()))))
        .unwrap_or((text, None))
}

/// Returns the citations within the remaining text.
fn within(citations: Vec<Citation>, length: usize) -> Vec<Citation> {
    let whole = |citation: &Citation| citation.span.is_none_or(|(_, end)| end <= length);
    citations.into_iter().filter(whole).collect()
}

fn logprobs(parts: &[Part], top: u32) -> Vec<Logprob> {
    const OTHERS: [&str; 8] = [" the", " a", " and", ".", ",", " it", " of", " one"];
    let texts = parts.iter().filter_map(Part::as_text).flat_map(tokens::tokens);
    let chance = |token: &str, logprob: f64| TokenChance {
        token: token.to_owned(),
        id: None,
        logprob,
        bytes: None,
    };
    texts
        .enumerate()
        .map(|(at, token)| {
            let seed = seeded_random::join(seeded_random::hash(token.as_bytes()), at as u64);
            let mut random = SeededRandom::new(seed);
            let mut likely = -((random.next_number() % 300) as f64) / 1_000.0;
            let chosen = chance(token, likely);
            let others = OTHERS.iter().filter(|other| **other != token).map(|other| {
                likely -= 1.0 + (random.next_number() % 500) as f64 / 1_000.0;
                chance(other, likely)
            });
            let top: Vec<TokenChance> =
                std::iter::once(chosen.clone()).chain(others).take(top as usize).collect();
            Logprob { chosen, top }
        })
        .collect()
}

/// Returns the format's own finish reason.
const fn word(origin: Origin, why: Why) -> &'static str {
    let (chat, responses, messages, native) = match why {
        Why::Length => ("length", "max_output_tokens", "max_tokens", "MAX_TOKENS"),
        Why::ToolCalls => ("tool_calls", "completed", "tool_use", "STOP"),
        Why::StopText => ("stop", "completed", "stop_sequence", "STOP"),
        Why::Stop
        | Why::Filtered
        | Why::PromptBlocked
        | Why::Paused
        | Why::Malformed
        | Why::Other => ("stop", "completed", "end_turn", "STOP"),
    };
    match origin {
        Origin::Chat | Origin::Images => chat,
        Origin::Responses => responses,
        Origin::Messages => messages,
        Origin::Native => native,
    }
}

//! Where an answer ends: its limit, its stop texts, and what it counts for.

use canon::{
    Candidate, Citation, Finish, Kind, Logprob, Origin, Part, Raw, Sampling, Seal, Thinking,
    Thought, TokenChance, ToolCall, Why,
};

use super::thinking::Thoughts;
use crate::dice::{self, Dice};
use crate::tokens;

/// The most tokens an answer has, whatever is asked for.
pub const MAX_OUTPUT: u64 = 65_536;

/// An answer before its limits.
pub(super) struct Draft {
    /// What was thought, if anything.
    pub(super) thoughts: Option<Thoughts>,
    /// The seal for what was thought or called.
    pub(super) seal: Option<Seal>,
    /// What is said.
    pub(super) parts: Vec<Part>,
}

/// What one answer counts for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spent {
    /// Everything produced.
    pub(super) output: u64,
    /// Part of it that was thinking.
    pub(super) thinking: u64,
    /// Searches run.
    pub(super) searches: u64,
}

/// The answer within its limits.
pub(super) fn keep(
    draft: Draft,
    sampling: &Sampling,
    thinking: &Thinking,
    origin: Origin,
    index: u32,
) -> (Candidate, Spent) {
    let Draft { thoughts, seal, parts } = draft;
    let limit = sampling.max_output.unwrap_or(MAX_OUTPUT).min(MAX_OUTPUT);
    let mut ledger = Spent::default();
    let mut kept = Vec::new();
    if let Some(thoughts) = thoughts {
        // Half of a tight limit is left for the answer.
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
                    // Half a call is no use to anyone, but its tokens were spent.
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

/// That format's seal stands on the first call, or on the last text, never on a thought.
fn place_native_seal(parts: &mut [Part], seal: Option<Seal>) {
    let call = parts.iter().position(|part| matches!(part.kind, Kind::ToolCall(_)));
    let text = || parts.iter().rposition(|part| matches!(part.kind, Kind::Text { .. }));
    let at = call.or_else(text);
    if let Some(part) = at.and_then(|at| parts.get_mut(at)) {
        part.seal = seal;
    }
}

/// The text before the first stop text, and that stop text.
fn before_stop<'t, 's>(text: &'t str, stops: &'s [String]) -> (&'t str, Option<&'s str>) {
    stops
        .iter()
        .filter(|stop| !stop.is_empty())
        .filter_map(|stop| text.find(stop.as_str()).map(|at| (at, stop)))
        .min_by_key(|(at, _)| *at)
        .and_then(|(at, stop)| text.get(..at).map(|front| (front, Some(stop.as_str()))))
        .unwrap_or((text, None))
}

/// The sources of what is left of a text.
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
            let seed = dice::join(dice::hash(token.as_bytes()), at as u64);
            let mut dice = Dice::new(seed);
            let mut likely = -((dice.roll() % 300) as f64) / 1_000.0;
            let chosen = chance(token, likely);
            let others = OTHERS.iter().filter(|other| **other != token).map(|other| {
                likely -= 1.0 + (dice.roll() % 500) as f64 / 1_000.0;
                chance(other, likely)
            });
            let top: Vec<TokenChance> =
                std::iter::once(chosen.clone()).chain(others).take(top as usize).collect();
            Logprob { chosen, top }
        })
        .collect()
}

/// The format's own word for an end.
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

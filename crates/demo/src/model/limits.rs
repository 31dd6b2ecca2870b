//! End of an answer: output limit, stop sequences and usage.

use canon::{
    Citation, Finish, FinishReason, Logprob, Part, PartKind, RawReason, ReplyCandidate,
    SamplingOptions, Signature, ThinkingOptions, Thought, TokenLogprob, ToolCall, WireFormat,
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
    pub(super) seal: Option<Signature>,
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
    sampling: &SamplingOptions,
    thinking: &ThinkingOptions,
    origin: WireFormat,
    index: u32,
) -> (ReplyCandidate, AnswerUsage) {
    let AnswerDraft { thoughts, seal, parts } = draft;
    let limit = sampling.max_output_tokens.unwrap_or(MAX_OUTPUT).min(MAX_OUTPUT);
    let mut ledger = AnswerUsage::default();
    let mut kept = Vec::new();
    if let Some(thoughts) = thoughts {
        // At least half of a tight limit is left for the answer.
        let most = thinking.effective_budget().unwrap_or(u64::MAX).min(limit / 2);
        let text = tokens::first(&thoughts.text, most);
        ledger.thinking = tokens::count(text);
        ledger.output = ledger.thinking;
        let shown = if thoughts.shown { text } else { "" };
        let thought = Thought { text: shown.to_owned(), redacted: false };
        let own_seal = if origin == WireFormat::Native { None } else { seal.clone() };
        if ledger.thinking > 0 && (own_seal.is_some() || thoughts.shown) {
            kept.push(Part::new(PartKind::Thought(thought)).with_signature(own_seal));
        }
    }
    let mut why = FinishReason::Stop;
    let mut stopped = None;
    for part in parts {
        let left = limit.saturating_sub(ledger.output);
        match part.kind {
            PartKind::Text { text, citations } => {
                let (before, stop) = before_stop(&text, &sampling.stop_sequences);
                let fitting = tokens::first(before, left);
                ledger.output += tokens::count(fitting);
                let cut = fitting.len() < before.len();
                if !fitting.is_empty() || before.is_empty() {
                    let citations = within(citations, fitting.chars().count());
                    kept.push(Part::new(PartKind::Text { text: fitting.to_owned(), citations }));
                }
                if cut {
                    why = FinishReason::Length;
                } else if let Some(stop) = stop {
                    why = FinishReason::StopSequence;
                    stopped = Some(stop.to_owned());
                }
            }
            PartKind::ToolCall(ToolCall { ref name, ref arguments, .. }) => {
                let cost = tokens::count(name) + tokens::count(arguments);
                if cost > left {
                    // An incomplete call is dropped, but its tokens count.
                    ledger.output = limit;
                    why = FinishReason::Length;
                } else {
                    ledger.output += cost;
                    kept.push(part);
                    why = FinishReason::ToolCalls;
                }
            }
            PartKind::CodeExecution(ref code) => {
                let cost = tokens::count(&code.code);
                if cost > left {
                    ledger.output = limit;
                    why = FinishReason::Length;
                } else {
                    ledger.output += cost;
                    kept.push(part);
                }
            }
            PartKind::WebSearch(_) => {
                ledger.searches += 1;
                kept.push(part);
            }
            PartKind::CodeResult(_)
            | PartKind::Refusal(_)
            | PartKind::Media(_)
            | PartKind::Thought(_)
            | PartKind::ToolResult(_)
            | PartKind::Foreign { .. } => kept.push(part),
        }
        if matches!(why, FinishReason::Length | FinishReason::StopSequence) {
            break;
        }
    }
    if origin == WireFormat::Native {
        place_native_seal(&mut kept, seal);
    }
    let logprobs = sampling.logprobs.map_or_else(Vec::new, |top| logprobs(&kept, top));
    let finish = Finish {
        reason: why,
        raw: RawReason::new(origin, finish_word(origin, why)),
        stop_sequence: stopped,
    };
    let candidate = ReplyCandidate {
        index,
        parts: kept,
        finish: Some(finish),
        logprobs,
        ..ReplyCandidate::default()
    };
    (candidate, ledger)
}

/// The native format puts the signature on the first call or on the last text, never on a thought
/// (<https://ai.google.dev/gemini-api/docs/thought-signatures>).
fn place_native_seal(parts: &mut [Part], seal: Option<Signature>) {
    let call = parts.iter().position(|part| matches!(part.kind, PartKind::ToolCall(_)));
    let text = || parts.iter().rposition(|part| matches!(part.kind, PartKind::Text { .. }));
    let at = call.or_else(text);
    if let Some(part) = at.and_then(|at| parts.get_mut(at)) {
        part.signature = seal;
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
    let chance = |token: &str, logprob: f64| TokenLogprob {
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
            let top: Vec<TokenLogprob> =
                std::iter::once(chosen.clone()).chain(others).take(top as usize).collect();
            Logprob { chosen, top }
        })
        .collect()
}

/// Returns the format's own finish reason.
pub(crate) const fn finish_word(origin: WireFormat, why: FinishReason) -> &'static str {
    let (chat, responses, messages, native) = match why {
        FinishReason::Length => ("length", "max_output_tokens", "max_tokens", "MAX_TOKENS"),
        FinishReason::ToolCalls => ("tool_calls", "completed", "tool_use", "STOP"),
        FinishReason::StopSequence => ("stop", "completed", "stop_sequence", "STOP"),
        FinishReason::Stop
        | FinishReason::ContentFilter
        | FinishReason::PromptBlocked
        | FinishReason::Paused
        | FinishReason::Malformed
        | FinishReason::Other => ("stop", "completed", "end_turn", "STOP"),
    };
    match origin {
        WireFormat::Chat | WireFormat::Images => chat,
        WireFormat::Responses => responses,
        WireFormat::Messages => messages,
        WireFormat::Native => native,
    }
}

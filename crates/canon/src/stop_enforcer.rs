//! Enforces stop sequences and output limits that a provider's format cannot express.
//!
//! Some formats have no stop sequences, some do not report which one matched, and some reject small
//! output limits. The enforcer removes these options from the
//! request and applies them to the stream: it holds back text that may be the beginning of a stop
//! sequence, cuts the answer, and lets the caller drop the provider's connection.

use crate::{
    ChatRequest, Event, Finish, FinishReason, PartDelta, PartIndex, PartStart, RawReason, Usage,
    WireFormat,
};
use std::collections::BTreeMap;

/// The means a format has to end a reply early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopSupport {
    /// The maximum number of stop texts.
    pub max_stop_texts: usize,
    /// True if the reply reports which stop text ended it.
    pub reports_stop_text: bool,
    /// The smallest output limit.
    pub min_output_tokens: u64,
}

/// Watches a stream for the end its caller asked for.
#[derive(Debug)]
pub struct StopEnforcer {
    stop_texts: Vec<String>,
    /// Maximum output tokens, set if the provider rejects a limit this low.
    limit: Option<u64>,
    /// True if only one answer was requested, so that its end is the end of the stream.
    single_candidate: bool,
    lane: WireFormat,
    scale: UsageEstimator,
    /// Usage the provider reported so far.
    reported: Option<Usage>,
    candidates: Vec<EnforcedCandidate>,
    /// Candidates the provider ended itself.
    ended: Vec<u32>,
    /// True if a candidate was cut.
    has_cut: bool,
    /// True if nothing is enforced until `cut` is called.
    forwards_all: bool,
}

/// Estimates usage if the provider is dropped before it reports any.
#[derive(Clone, Copy, Debug)]
pub struct UsageEstimator {
    /// Input tokens of the request.
    pub input_tokens: u64,
    /// Returns the estimated tokens of a text.
    pub count_tokens: fn(&str) -> u64,
}

/// State of one candidate.
#[derive(Debug, Default)]
struct EnforcedCandidate {
    index: u32,
    /// Open parts. A text part holds the text kept back.
    open: BTreeMap<PartIndex, Option<String>>,
    /// Estimated tokens forwarded so far.
    spent_tokens: u64,
    is_cut: bool,
}

impl StopEnforcer {
    /// Moves the options the provider cannot handle from the request into an enforcer. Returns
    /// `None` if the provider can handle them all.
    pub fn take_from(
        chat: &mut ChatRequest,
        limit: Option<u64>,
        caller: StopSupport,
        lane: (WireFormat, StopSupport),
    ) -> Option<Self> {
        let (origin, ends) = lane;
        let stop_texts = &mut chat.sampling.stop_sequences;
        let is_unsupported = stop_texts.len() > ends.max_stop_texts
            || (caller.reports_stop_text && !ends.reports_stop_text);
        let mut stop_texts = if is_unsupported { std::mem::take(stop_texts) } else { Vec::new() };
        stop_texts.retain(|stop| !stop.is_empty());
        let requested = limit.into_iter().chain(chat.sampling.max_output_tokens).min();
        let limit = requested.filter(|requested| *requested < ends.min_output_tokens);
        if stop_texts.is_empty() && limit.is_none() {
            return None;
        }
        if limit.is_some() {
            chat.sampling.max_output_tokens = Some(ends.min_output_tokens);
        }
        // A non-streamed answer is billed in full before it can be cut.
        chat.stream = true;
        Some(Self {
            stop_texts,
            limit,
            scale: UsageEstimator { input_tokens: 0, count_tokens: |text| text.len() as u64 / 4 },
            forwards_all: false,
            ..Self::forwarding_all(chat.sampling.candidates.unwrap_or(1), origin)
        })
    }

    /// Creates an enforcer that forwards everything until `cut` is called.
    pub fn forwarding_all(candidates: u32, lane: WireFormat) -> Self {
        Self {
            stop_texts: Vec::new(),
            limit: None,
            single_candidate: candidates <= 1,
            lane,
            scale: UsageEstimator { input_tokens: 0, count_tokens: |_| 0 },
            reported: None,
            candidates: Vec::new(),
            ended: Vec::new(),
            has_cut: false,
            forwards_all: true,
        }
    }

    /// Ends every open candidate with reason `length`. `usage` is the usage the call is billed by.
    pub fn cut(&mut self, usage: Usage, out: &mut dyn FnMut(Event)) {
        // The merged count must equal the usage passed in.
        self.reported = Some(self.reported.unwrap_or_default().merged(usage));
        let open: Vec<u32> = match self.candidates.is_empty() {
            true => vec![0],
            false => self.candidates.iter().map(|state| state.index).collect(),
        };
        for candidate in open {
            if !self.is_cut(candidate) && !self.ended.contains(&candidate) {
                self.end(candidate, FinishReason::Length, None, out);
            }
        }
        out(Event::Usage(usage));
    }

    /// Returns the same enforcer with another usage estimator.
    pub fn with_estimator(self, scale: UsageEstimator) -> Self {
        Self { scale, forwards_all: false, ..self }
    }

    /// Returns true if the caller has received the whole answer, so that the provider's connection
    /// can be dropped.
    pub fn is_finished(&self) -> bool {
        self.single_candidate && self.has_cut
    }

    /// Returns true if the last usage event was estimated because the provider was dropped before
    /// it reported any.
    pub fn is_usage_estimated(&self) -> bool {
        self.is_finished() && self.reported.is_none_or(|usage| usage.output == 0)
    }

    /// Returns true if every text is forwarded as it is and none is counted, so that texts need not be
    /// pushed.
    pub fn forwards_text(&self) -> bool {
        self.forwards_all && !self.has_cut
    }

    /// Handles the next event of the stream.
    pub fn push(&mut self, event: Event, out: &mut dyn FnMut(Event)) {
        let candidate = match &event {
            Event::PartStart(place, _)
            | Event::PartDelta(place, _)
            | Event::PartSignature(place, _)
            | Event::PartEnd(place) => Some(place.candidate),
            Event::Finish { candidate, .. } => Some(*candidate),
            Event::Extra { candidate, .. } => *candidate,
            Event::Start { .. } | Event::Usage(_) | Event::Error(_) => None,
        };
        if candidate.is_some_and(|candidate| self.is_cut(candidate)) {
            return;
        }
        match &event {
            Event::PartStart(place, opening) => {
                let held = matches!(opening, PartStart::Text).then(String::new);
                state_of(&mut self.candidates, place.candidate).open.insert(*place, held);
            }
            Event::PartEnd(place) => {
                let state = state_of(&mut self.candidates, place.candidate);
                if let Some(Some(held)) = state.open.remove(place) {
                    send_text(*place, held, out);
                }
            }
            Event::Usage(usage) => self.reported = Some(*usage),
            Event::Finish { candidate, .. } => self.ended.push(*candidate),
            Event::PartDelta(..)
            | Event::PartSignature(..)
            | Event::Extra { .. }
            | Event::Start { .. }
            | Event::Error(_) => {}
        }
        match event {
            Event::PartDelta(place, PartDelta::Text(text)) => self.grow(place, text, out),
            event => out(event),
        }
    }

    fn is_cut(&self, candidate: u32) -> bool {
        self.has_cut && self.candidates.iter().any(|state| state.index == candidate && state.is_cut)
    }

    fn grow(&mut self, place: PartIndex, text: String, out: &mut dyn FnMut(Event)) {
        let of_text = self.scale.count_tokens;
        let state = state_of(&mut self.candidates, place.candidate);
        if self.stop_texts.is_empty() && self.limit.is_none() {
            state.spent_tokens += of_text(&text);
            return send_text(place, text, out);
        }
        let left = self.limit.map(|limit| limit.saturating_sub(state.spent_tokens));
        let (text, cut) = match left.and_then(|left| fitting_length(&text, left, of_text)) {
            Some(fits) => (text.get(..fits).unwrap_or_default().to_owned(), true),
            None => (text, false),
        };
        state.spent_tokens += of_text(&text);
        let Some(Some(held)) = state.open.get_mut(&place) else {
            send_text(place, text, out);
            if cut {
                self.end(place.candidate, FinishReason::Length, None, out);
            }
            return;
        };
        held.push_str(&text);
        if let Some((at, stop)) = first_stop(held, &self.stop_texts) {
            held.truncate(at);
            let stop = stop.to_owned();
            return self.end(place.candidate, FinishReason::StopSequence, Some(stop), out);
        }
        if cut {
            return self.end(place.candidate, FinishReason::Length, None, out);
        }
        let safe_length = held.len() - held_length(held, &self.stop_texts);
        let kept = held.split_off(safe_length);
        send_text(place, std::mem::replace(held, kept), out);
    }

    /// Closes the open parts of a candidate and ends it.
    fn end(
        &mut self,
        candidate: u32,
        why: FinishReason,
        stop: Option<String>,
        out: &mut dyn FnMut(Event),
    ) {
        self.has_cut = true;
        let state = state_of(&mut self.candidates, candidate);
        state.is_cut = true;
        for (place, held) in std::mem::take(&mut state.open) {
            send_text(place, held.unwrap_or_default(), out);
            out(Event::PartEnd(place));
        }
        let spent_tokens = state.spent_tokens;
        if self.is_usage_estimated() {
            let reported = self.reported.unwrap_or_default();
            let input = if reported.input == 0 { self.scale.input_tokens } else { reported.input };
            let output = spent_tokens.max(reported.output);
            out(Event::Usage(Usage { input, output, ..reported }));
        }
        let raw = RawReason::new(self.lane, "ended by the gateway");
        out(Event::Finish { candidate, finish: Finish { reason: why, raw, stop_sequence: stop } });
    }
}

/// Returns the state of a candidate. The list is sorted.
fn state_of(candidates: &mut Vec<EnforcedCandidate>, index: u32) -> &mut EnforcedCandidate {
    let at = candidates.partition_point(|state| state.index < index);
    if candidates.get(at).is_none_or(|state| state.index != index) {
        candidates.insert(at, EnforcedCandidate { index, ..EnforcedCandidate::default() });
    }
    #[expect(clippy::indexing_slicing, reason = "found or inserted just above")]
    &mut candidates[at]
}

fn send_text(place: PartIndex, text: String, out: &mut dyn FnMut(Event)) {
    if !text.is_empty() {
        out(Event::PartDelta(place, PartDelta::Text(text)));
    }
}

/// Length in bytes of the longest prefix within `left` tokens. `None` if the whole text fits.
fn fitting_length(text: &str, left: u64, of_text: fn(&str) -> u64) -> Option<usize> {
    if of_text(text) <= left {
        return None;
    }
    let fits = |end: &usize| text.get(..*end).is_some_and(|text| of_text(text) <= left);
    let ends = text.char_indices().map(|(at, _)| at);
    Some(ends.take_while(fits).last().unwrap_or(0))
}

/// The first stop sequence in the text, with its byte offset.
fn first_stop<'a>(text: &str, stop_texts: &'a [String]) -> Option<(usize, &'a str)> {
    let found =
        stop_texts.iter().filter_map(|stop| Some((text.find(stop.as_str())?, stop.as_str())));
    found.min_by_key(|(at, _)| *at)
}

/// Length in bytes of the longest suffix that may begin a stop sequence.
fn held_length(text: &str, stop_texts: &[String]) -> usize {
    let longest = |stop: &String| {
        let ends = stop.char_indices().map(|(at, _)| at).rev();
        ends.into_iter().find(|end| stop.get(..*end).is_some_and(|begin| text.ends_with(begin)))
    };
    stop_texts.iter().filter_map(longest).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ChatReply, EventGrammar, Part, ReplyBuilder, SamplingOptions};
    use proptest::prelude::*;

    const NO_STOPS: StopSupport =
        StopSupport { max_stop_texts: 0, reports_stop_text: false, min_output_tokens: 16 };
    const FULL_SUPPORT: StopSupport =
        StopSupport { max_stop_texts: usize::MAX, reports_stop_text: true, min_output_tokens: 1 };

    fn asking(stop: &[&str], max_output: Option<u64>) -> ChatRequest {
        let stop = stop.iter().map(|stop| (*stop).to_owned()).collect();
        ChatRequest {
            sampling: SamplingOptions {
                stop_sequences: stop,
                max_output_tokens: max_output,
                ..SamplingOptions::default()
            },
            ..ChatRequest::default()
        }
    }

    fn words(text: &str) -> u64 {
        text.split_whitespace().count() as u64
    }

    /// Sends the pieces through the enforcer. Returns the reply and true if it was cut.
    fn run(mut chat: ChatRequest, pieces: &[&str]) -> (ChatReply, bool) {
        let scale = UsageEstimator { input_tokens: 7, count_tokens: words };
        let mut brake = StopEnforcer::take_from(
            &mut chat,
            None,
            FULL_SUPPORT,
            (WireFormat::Responses, NO_STOPS),
        )
        .unwrap()
        .with_estimator(scale);
        let place = PartIndex::first(0);
        let begin = Event::Start { id: None, model: None, created: None };
        let mut events = vec![begin, Event::PartStart(place, PartStart::Text)];
        for piece in pieces {
            events.push(Event::PartDelta(place, PartDelta::Text((*piece).to_owned())));
        }
        let finish =
            Finish::new(FinishReason::Stop, RawReason::new(WireFormat::Responses, "completed"));
        let usage = Usage { input: 5, output: 50, ..Usage::default() };
        events.extend([Event::PartEnd(place), Event::Usage(usage)]);
        events.push(Event::Finish { candidate: 0, finish });
        let (mut fold, mut grammar) = (ReplyBuilder::default(), EventGrammar::default());
        for event in events {
            if brake.is_finished() {
                break;
            }
            brake.push(event, &mut |event| {
                grammar.push(&event).unwrap();
                fold.push(event).unwrap();
            });
        }
        grammar.finish().unwrap();
        let finished = brake.is_finished();
        assert_eq!(brake.is_usage_estimated(), finished);
        (fold.finish(), finished)
    }

    fn only(reply: &ChatReply) -> (&str, &Finish) {
        let candidate = reply.candidates.first().unwrap();
        let text = candidate.parts.first().and_then(Part::as_text).unwrap();
        (text, candidate.finish.as_ref().unwrap())
    }

    #[test]
    fn enforces_a_limit_below_the_lanes_minimum() {
        let chat = asking(&[], Some(3));
        let (reply, over) = run(chat.clone(), &["one two ", "three four five", " six"]);
        let (text, finish) = only(&reply);
        assert_eq!((text.trim_end(), finish.reason), ("one two three", FinishReason::Length));
        assert!(over);
        assert_eq!(reply.usage, Some(Usage { input: 7, output: 3, ..Usage::default() }));
        let mut sent = chat;
        let _ = StopEnforcer::take_from(
            &mut sent,
            None,
            FULL_SUPPORT,
            (WireFormat::Responses, NO_STOPS),
        );
        assert_eq!((sent.sampling.max_output_tokens, sent.stream), (Some(16), true));
    }

    #[test]
    fn does_nothing_if_the_lane_supports_the_options() {
        let mut chat = asking(&["END"], Some(3));
        let same = chat.clone();
        let brake = StopEnforcer::take_from(
            &mut chat,
            None,
            FULL_SUPPORT,
            (WireFormat::Messages, FULL_SUPPORT),
        );
        assert!(brake.is_none());
        assert_eq!(chat, same);
    }

    proptest! {
        /// For any split of the stream, the caller receives the text before the first stop
        /// sequence, or all of it if there is none.
        #[test]
        fn ends_before_the_first_stop_sequence(
            text in "[abä ]{0,24}", stop_texts in prop::collection::vec("[abä]{1,3}", 1..4),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
            at.retain(|at| text.is_char_boundary(*at));
            at.extend([0, text.len()]);
            at.sort_unstable();
            let pieces: Vec<&str> = at.windows(2).map(|pair| text.get(pair[0]..pair[1]).unwrap()).collect();
            let stop_texts: Vec<&str> = stop_texts.iter().map(String::as_str).collect();
            let (reply, over) = run(asking(&stop_texts, None), &pieces);
            let (said, finish) = only(&reply);
            let first = stop_texts.iter().filter_map(|stop| text.find(stop)).min();
            prop_assert_eq!(over, first.is_some());
            prop_assert_eq!(finish.stop_sequence.is_some(), first.is_some());
            // The stream is cut at the first stop sequence that is complete. One that begins
            // earlier but ends later may not have arrived yet.
            let complete = stop_texts.iter().filter_map(|stop| Some(text.find(stop)? + stop.len())).min();
            match (first, complete) {
                (Some(first), Some(complete)) => {
                    prop_assert!(text.starts_with(said));
                    prop_assert!(said.len() >= first && said.len() < complete);
                    prop_assert!(stop_texts.iter().all(|stop| !said.contains(stop)));
                }
                _ => prop_assert_eq!(said, &text),
            }
        }
    }
}

//! Reads a provider's stream into events.
//!
//! Text and thinking grow. Every other part, and every part with a signature, is a part of its own.
//! The text that sources refer to stays open until its candidate ends, because the sources come
//! last.

use canon::{
    ApiError, Event, Finish, FinishReason, Part, PartDelta, PartIndex, PartKind, PartStart,
    RawReason, Usage, into_part_events, scrub_value,
};
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::{BTreeMap, HashMap};

use super::content::NativePart;
use super::names::ORIGIN;
use super::own::partial_call::PartialCall;
use super::own::{calls, grounding, timestamp};
use super::reply::{FINISH_MESSAGE, NativeCandidate, NativeReplyContent, NativeReplyView};
use super::usage::NativeUsage;
use super::{fault, read_content, signatures};
use crate::endings;
use crate::json;
use crate::repeated_text::TextReader;
use crate::sse::not_json;
use crate::text::BorrowedText;
use crate::upstream_error::ensure_ended;
use crate::wire_object::raw_value;
use crate::{StreamFrame, StreamReader};

/// Reads the chunks of a native stream.
#[derive(Default)]
pub(super) struct NativeStreamReader {
    /// True if the only chunk is a whole reply.
    is_whole: bool,
    begun: bool,
    id: Option<String>,
    candidates: BTreeMap<u32, CandidateState>,
    blocked: bool,
    counted: Option<Usage>,
    reported: Option<Usage>,
    asides: ReportedFields,
}

/// The open text or thought: its slot, and a flag that is set while it may still grow.
struct OpenPart {
    is_thought: bool,
    slot: u32,
    grows: bool,
}

/// State of one candidate.
#[derive(Default)]
struct CandidateState {
    reply_id: Option<String>,
    index: u32,
    slots: u32,
    open: Option<OpenPart>,
    /// The slot of the text before the open one, which has only its last piece because of a
    /// signature, and its length in characters.
    front: Option<(u32, usize)>,
    /// The open text so far, to compute the positions of its sources.
    text: String,
    calls: u32,
    partial: Option<PartialCall>,
    grounding: Value,
    cited: Value,
    searches: u64,
    asides: ReportedFields,
    is_whole: bool,
    ended: bool,
}

/// Fields that only this format has, each as it was reported last. Chunks repeat them.
#[derive(Default)]
struct ReportedFields {
    candidate: Option<u32>,
    reported: HashMap<String, String>,
}

impl ReportedFields {
    /// Reports a field unless the same value was reported before.
    fn report(&mut self, name: &str, value: &RawValue, out: &mut Vec<Event>) {
        if self.reported.get(name).is_some_and(|own| own == value.get()) {
            return;
        }
        self.reported.insert(name.to_owned(), value.get().to_owned());
        let is_report = matches!(name, FINISH_MESSAGE | "promptFeedback");
        let value = raw_value(value);
        let value = if is_report { scrub_value(value) } else { value };
        out.push(Event::extra(self.candidate, ORIGIN, name, value));
    }
}

impl StreamReader for NativeStreamReader {
    fn push(&mut self, frame: &StreamFrame, out: &mut Vec<Event>) -> Result<(), ApiError> {
        if is_end_marker(&frame.data) {
            return Ok(());
        }
        let chunk: NativeReplyView<'_> = frame.read()?;
        match chunk.error {
            Some(error) => Err(fault::read_object(&raw_value(error))),
            None => self.read_chunk(chunk, out),
        }
    }

    fn finish(&mut self, _out: &mut Vec<Event>) -> Result<(), ApiError> {
        ensure_ended(self.is_complete(), "the native stream ended without a finish reason")
    }

    /// Always false: the format has no end marker, the stream ends with the body.
    fn is_done(&self) -> bool {
        false
    }
}

impl TextReader for NativeStreamReader {
    fn can_repeat(&self, _place: PartIndex) -> bool {
        true
    }

    fn push_text(&mut self, place: PartIndex, text: &str) {
        if let Some(own) = self.candidates.get_mut(&place.candidate)
            && matches!(own.open, Some(OpenPart { is_thought: false, .. }))
        {
            own.text.push_str(text);
        }
    }
}

/// Returns true for empty data and for `[DONE]`. The native format has no end marker, but
/// imitations of it send the one of the chat format.
pub(super) fn is_end_marker(data: &[u8]) -> bool {
    matches!(data.trim_ascii(), b"" | b"[DONE]")
}

impl NativeStreamReader {
    /// Returns a reader of a whole reply.
    pub(super) fn of_whole() -> Self {
        Self { is_whole: true, ..Self::default() }
    }

    /// Reads a chunk, or a whole reply.
    pub(super) fn read_chunk(
        &mut self,
        chunk: NativeReplyView<'_>,
        out: &mut Vec<Event>,
    ) -> Result<(), ApiError> {
        if !self.begun {
            self.begun = true;
            let present = |text: &Option<BorrowedText<'_>>| {
                text.as_deref().filter(|text| !text.is_empty()).map(str::to_owned)
            };
            self.id = present(&chunk.response_id);
            out.push(Event::Start {
                id: self.id.clone(),
                model: present(&chunk.model_version),
                created: chunk.create_time.as_deref().and_then(timestamp::read),
            });
        }
        let usage = chunk.usage();
        let block = chunk.block_reason().map(|word| RawReason::new(ORIGIN, word));
        let list = chunk.candidates.map(|list| list.0).unwrap_or_default();
        for (at, candidate) in list.into_iter().enumerate() {
            let index = candidate.index(at);
            let own = self.candidates.entry(index).or_insert_with(|| {
                let asides = ReportedFields { candidate: Some(index), ..Default::default() };
                let (reply_id, is_whole) = (self.id.clone(), self.is_whole);
                CandidateState { reply_id, index, is_whole, asides, ..Default::default() }
            });
            own.read(candidate, out)?;
        }
        if let Some(feedback) = chunk.prompt_feedback {
            if let Some(raw) = block
                && self.candidates.is_empty()
                && !self.blocked
            {
                self.blocked = true;
                let finish = Finish::new(FinishReason::PromptBlocked, raw);
                out.push(Event::Finish { candidate: 0, finish });
            }
            self.asides.report("promptFeedback", feedback.raw, out);
        }
        for (name, value) in chunk.rest.present() {
            self.asides.report(name, value, out);
        }
        if let Some(usage) = usage {
            self.count(&usage, out);
        }
        Ok(())
    }

    /// Closes the candidates without a finish reason, at the end of a whole reply.
    pub(super) fn close(&mut self, out: &mut Vec<Event>) {
        for candidate in self.candidates.values_mut().filter(|own| !own.ended) {
            candidate.end(out);
        }
        self.report_usage(out);
    }

    fn is_complete(&self) -> bool {
        self.blocked || !self.candidates.is_empty() && self.candidates.values().all(|own| own.ended)
    }

    /// Reports usage. Counts are cumulative, but early chunks report only some of them; the last
    /// chunk reports all.
    fn count(&mut self, usage: &NativeUsage<'_>, out: &mut Vec<Event>) {
        if let Some(usage) = usage.to_canon() {
            self.counted = Some(match self.counted {
                Some(before) if !self.is_complete() => before.merged(usage),
                _ => usage,
            });
        }
        for (name, value) in usage.rest.present() {
            self.asides.report(&format!("usageMetadata.{name}"), value, out);
        }
        self.report_usage(out);
    }

    fn report_usage(&mut self, out: &mut Vec<Event>) {
        let searches = self.candidates.values().map(|own| own.searches).sum();
        let now = self.counted.map(|usage| Usage { searches, ..usage });
        if let Some(usage) = now
            && self.reported != now
        {
            self.reported = now;
            out.push(Event::Usage(usage));
        }
    }
}

impl CandidateState {
    fn read(
        &mut self,
        candidate: NativeCandidate<'_>,
        out: &mut Vec<Event>,
    ) -> Result<(), ApiError> {
        if self.ended {
            return Ok(());
        }
        if let Some(content) = candidate.content {
            let content: NativeReplyContent<'_> =
                json::read(content.get()).map_err(|e| not_json(&e))?;
            for part in content.parts.map(|list| list.0).unwrap_or_default() {
                self.read_part(part, out);
            }
        }
        let is_filled = |value: &&RawValue| {
            let inner = value.get().strip_prefix(['{', '[']);
            inner.is_some_and(|inner| !inner.trim_start().starts_with(['}', ']']))
        };
        if let Some(sources) = candidate.grounding_metadata.filter(is_filled) {
            self.grounding = raw_value(sources);
        }
        if let Some(sources) = candidate.citation_metadata.filter(is_filled) {
            self.cited = grounding::rename(raw_value(sources));
        }
        let chances = candidate.logprobs_result.and_then(|logprobs| logprobs.0);
        let chances = chances.map(|logprobs| logprobs.into_canon()).unwrap_or_default();
        // Log probabilities belong to the candidate, but canon reports them on a part. A stream
        // must have it open.
        let last = self.slots.checked_sub(1).filter(|_| self.is_whole);
        let slot = self.open.as_ref().map(|open| open.slot).or(last);
        if let (Some(slot), false) = (slot, chances.is_empty()) {
            out.push(Event::PartDelta(self.place(slot), PartDelta::Logprobs(chances)));
        }
        for (name, value) in candidate.rest.present() {
            self.asides.report(name, value, out);
        }
        if let Some(ratings) = candidate.safety_ratings.filter(is_filled) {
            self.asides.report("safetyRatings", ratings, out);
        }
        if let Some(word) = candidate.finish_reason {
            self.end(out);
            let why = endings::read_turn(ORIGIN, &word.0, self.calls > 0);
            let finish = Finish::new(why, RawReason::new(ORIGIN, &*word.0));
            out.push(Event::Finish { candidate: self.index, finish });
        }
        Ok(())
    }

    fn read_part(&mut self, part: NativePart<'_>, out: &mut Vec<Event>) {
        let mut call_id = None;
        if let Some(call) = &part.function_call {
            let is_named = call.name.as_deref().is_some_and(|name| !name.is_empty());
            let more_follows = call.will_continue == Some(true);
            if is_named && (more_follows || call.partial_args.is_some()) {
                self.flush(out);
                let signature = part.thought_signature.map(|token| token.value.into_owned());
                self.partial = Some(PartialCall::new(call, signature));
                return;
            }
            if let (false, Some(partial)) = (is_named, &mut self.partial) {
                partial.add(call);
                if !more_follows {
                    self.flush(out);
                }
                return;
            }
            if call.id.as_deref().is_none_or(str::is_empty) {
                call_id = Some(self.invent_id(call.name.as_deref().unwrap_or_default()));
            }
        }
        self.flush(out);
        if let Some(part) = read_content::read_reply_part(part, call_id) {
            self.say(part, out);
        }
    }

    /// Makes up an id for the next call.
    fn invent_id(&self, name: &str) -> String {
        calls::invent_id((self.reply_id.as_deref(), self.index, self.calls), name)
    }

    /// Ends the partial call, because something else follows it.
    fn flush(&mut self, out: &mut Vec<Event>) {
        let Some(partial) = self.partial.take() else { return };
        let arguments = partial.arguments();
        let PartialCall { id: own, name, signature, .. } = partial;
        let call = canon::ToolCall {
            id: own.unwrap_or_else(|| self.invent_id(&name)),
            name,
            arguments,
            custom: false,
        };
        let seal = signature.map(|token| signatures::own(&token));
        self.say(Part::new(PartKind::ToolCall(call)).with_signature(seal), out);
    }

    fn say(&mut self, mut part: Part, out: &mut Vec<Event>) {
        let plain = part.signature.is_none() && part.extras.is_empty();
        let (is_thought, text) = match &mut part.kind {
            PartKind::Text { text, .. } => (false, std::mem::take(text)),
            PartKind::Thought(thought) if !thought.redacted => {
                (true, std::mem::take(&mut thought.text))
            }
            _ => return self.whole(part, out),
        };
        if !is_thought && text.is_empty() {
            if !plain {
                // An empty text only carries its signature; the text before it may still get
                // sources.
                if let Some(open) = &mut self.open {
                    open.grows = false;
                }
                into_part_events(PartIndex::next(self.index, &mut self.slots), part, out);
            }
            return;
        }
        let place = self.open(is_thought, plain, out);
        for (name, value) in part.extras.for_format(ORIGIN).into_iter().flatten() {
            let (name, value) = (name.clone(), value.clone());
            out.push(Event::PartDelta(place, PartDelta::Extra { origin: ORIGIN, name, value }));
        }
        let signature = part.signature.map(|signature| Event::PartSignature(place, signature));
        if !is_thought {
            self.text.push_str(&text);
        }
        let has_text = !text.is_empty();
        let text = has_text.then(|| Event::PartDelta(place, PartDelta::Text(text)));
        let events = if is_thought { [text, signature] } else { [signature, text] };
        out.extend(events.into_iter().flatten());
    }

    fn whole(&mut self, part: Part, out: &mut Vec<Event>) {
        self.close(out);
        self.calls += u32::from(matches!(part.kind, PartKind::ToolCall(_)));
        into_part_events(PartIndex::next(self.index, &mut self.slots), part, out);
    }

    /// Ends the parts of the candidate.
    fn end(&mut self, out: &mut Vec<Event>) {
        self.flush(out);
        if let Some(OpenPart { is_thought: false, slot, .. }) = &self.open {
            let found = grounding::citations(&self.grounding, &self.cited, &self.text);
            let (front, length) = self.front.unwrap_or((*slot, 0));
            let (before, after) = grounding::split(found, length);
            for (slot, list) in [(front, before), (*slot, after)] {
                let cited = list.into_iter().map(PartDelta::Citation);
                out.extend(cited.map(|citation| Event::PartDelta(self.place(slot), citation)));
            }
        }
        if let Some(found) = grounding::search(&self.grounding) {
            self.whole(Part::new(PartKind::WebSearch(found)), out);
        }
        self.close(out);
        self.searches = grounding::searches(&self.grounding);
        let kept =
            [("groundingMetadata", self.grounding.take()), ("citationMetadata", self.cited.take())];
        for (name, value) in kept.into_iter().filter(|(_, value)| !value.is_null()) {
            out.push(Event::extra(Some(self.index), ORIGIN, name, value));
        }
        self.ended = true;
    }

    /// Returns the place of the part to grow; opens a new part unless the open one can grow.
    fn open(&mut self, is_thought: bool, plain: bool, out: &mut Vec<Event>) -> PartIndex {
        if let Some(open) = &self.open
            && open.is_thought == is_thought
            && open.grows
            && plain
        {
            return self.place(open.slot);
        }
        match &self.open {
            // Stays open, because its sources are still to come.
            Some(OpenPart { is_thought: false, slot, grows: true })
                if !is_thought && self.front.is_none() =>
            {
                self.front = Some((*slot, self.text.chars().count()));
            }
            Some(_) | None => self.close(out),
        }
        let place = PartIndex::next(self.index, &mut self.slots);
        self.open = Some(OpenPart { is_thought, slot: place.slot, grows: plain });
        let opening = if is_thought { PartStart::Thought } else { PartStart::Text };
        out.push(Event::PartStart(place, opening));
        place
    }

    fn close(&mut self, out: &mut Vec<Event>) {
        let (front, open) = (self.front.take(), self.open.take());
        let slots = front.map(|(slot, _)| slot).into_iter().chain(open.map(|open| open.slot));
        out.extend(slots.map(|slot| Event::PartEnd(self.place(slot))));
        self.text.clear();
    }

    const fn place(&self, slot: u32) -> PartIndex {
        PartIndex { candidate: self.index, slot }
    }
}

//! Reads a provider's stream into events.
//!
//! Every chunk is a reply that holds only its new parts. Text and thinking grow. Every other part,
//! and every part with a signature, is a part of its own. The text that sources refer to stays open
//! until its candidate ends, because the sources come last.

use canon::{
    ApiError, ErrorKind, Event, Finish, Part, PartDelta, PartIndex, PartKind, PartStart, RawReason,
    Signature, Usage,
};
use serde_json::{Map, Value};

use super::names::ORIGIN;
use super::partial_call::{self, CallStep, PartialCall};
use super::proto_json::fields;
use super::read_reply::{self, NativeCandidateFields, NativeReplyHeader};
use super::{fault, grounding, proto_json, read_part, signatures, wire};
use crate::endings;
use crate::fields::JsonPath;
use crate::repeated_text::TextReader;
use crate::{StreamFrame, StreamReader};

/// Reads the chunks of a native stream.
#[derive(Default)]
pub(super) struct NativeStreamReader {
    begun: bool,
    id: Option<String>,
    candidates: Vec<CandidateState>,
    blocked: bool,
    counted: Option<Usage>,
    reported: Option<Usage>,
    searches: u64,
    asides: Map<String, Value>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TextKind {
    Text,
    Thought,
}

/// The open part: its kind, its slot, and a flag that is set while it may still grow.
struct OpenPart {
    say: TextKind,
    slot: u32,
    grows: bool,
}

/// State of one candidate.
struct CandidateState {
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
    asides: Map<String, Value>,
    ended: bool,
}

impl StreamReader for NativeStreamReader {
    fn push(&mut self, frame: &StreamFrame, out: &mut Vec<Event>) -> Result<(), ApiError> {
        if is_end_marker(&frame.data) {
            return Ok(());
        }
        let text = frame.text();
        let value: Value = serde_json::from_str(&text).map_err(|e| unreadable(&e))?;
        let mut root = fields(value, &JsonPath::Root).map_err(|e| unreadable(&e))?;
        if let Some(error) = root.take("error") {
            return Err(fault::read_object(&error));
        }
        let top = NativeReplyHeader::take(&mut root).map_err(|e| unreadable(&e))?;
        let list = proto_json::list(&mut root, "candidates").map_err(|e| unreadable(&e))?;
        if !self.begun {
            self.begun = true;
            self.id.clone_from(&top.id);
            let created = top.created.as_deref().and_then(super::timestamp::read);
            out.push(Event::Start { id: top.id, model: top.model, created });
        }
        for (at, value) in list.into_iter().enumerate() {
            let mut candidate = fields(value, &JsonPath::Root).map_err(|e| unreadable(&e))?;
            let side = NativeCandidateFields::take(&mut candidate).map_err(|e| unreadable(&e))?;
            let index = side.index.unwrap_or_else(|| u32::try_from(at).unwrap_or(0));
            let id = self.id.clone();
            let candidate_state = self.candidate_state(index);
            let searches = candidate_state
                .read(side, candidate.remaining(), id.as_deref(), out)
                .map_err(|e| unreadable(&e))?;
            self.searches += searches;
        }
        if let Some(feedback) = top.feedback {
            if self.candidates.is_empty()
                && !self.blocked
                && let Some(finish) = read_reply::blocked(&feedback)
            {
                self.blocked = true;
                out.push(Event::Finish { candidate: 0, finish });
            }
            aside(&mut self.asides, None, "promptFeedback", feedback, out);
        }
        for (name, value) in root.remaining() {
            aside(&mut self.asides, None, &name, value, out);
        }
        self.count(top.usage, out);
        Ok(())
    }

    fn finish(&mut self, _out: &mut Vec<Event>) -> Result<(), ApiError> {
        if self.blocked || self.complete() {
            return Ok(());
        }
        Err(ApiError::new(ErrorKind::Interrupted, "the provider's answer broke off before its end")
            .with_log_note("the native stream ended without a finish reason"))
    }

    /// Always false: the format has no end marker, the stream ends with the body.
    fn is_done(&self) -> bool {
        false
    }
}

impl TextReader for NativeStreamReader {
    fn push_text(&mut self, place: PartIndex, text: &str) -> bool {
        let own = self.candidates.iter_mut().find(|own| own.index == place.candidate);
        if let Some(own) = own
            && matches!(own.open, Some(OpenPart { say: TextKind::Text, .. }))
        {
            own.text.push_str(text);
        }
        true
    }
}

/// Returns true for empty data and for `[DONE]`. The native format has no end marker, but
/// imitations of it send the one of the chat format.
pub(super) fn is_end_marker(data: &[u8]) -> bool {
    matches!(data.trim_ascii(), b"" | b"[DONE]")
}

fn unreadable(why: &impl std::fmt::Display) -> ApiError {
    ApiError::new(ErrorKind::Interrupted, "the provider sent a piece that could not be read")
        .with_log_note(format!("unreadable native piece: {why}"))
}

/// Reports a field that only this format has, unless the same value was reported before.
fn aside(
    reported: &mut Map<String, Value>,
    candidate: Option<u32>,
    name: &str,
    value: Value,
    out: &mut Vec<Event>,
) {
    if reported.get(name) == Some(&value) {
        return;
    }
    reported.insert(name.to_owned(), value.clone());
    out.push(Event::Extra { candidate, origin: ORIGIN, name: name.to_owned(), value });
}

impl NativeStreamReader {
    fn candidate_state(&mut self, index: u32) -> &mut CandidateState {
        let at = self.candidates.iter().position(|candidate_state| candidate_state.index == index);
        let at = at.unwrap_or_else(|| {
            self.candidates.push(CandidateState {
                index,
                slots: 0,
                open: None,
                front: None,
                text: String::new(),
                calls: 0,
                partial: None,
                grounding: Value::Null,
                cited: Value::Null,
                asides: Map::new(),
                ended: false,
            });
            self.candidates.len() - 1
        });
        #[expect(clippy::indexing_slicing, reason = "found or pushed just above")]
        &mut self.candidates[at]
    }

    fn complete(&self) -> bool {
        !self.candidates.is_empty()
            && self.candidates.iter().all(|candidate_state| candidate_state.ended)
    }

    /// Reports usage. Counts are cumulative, but early chunks report only some of them; the last
    /// chunk reports all.
    fn count(&mut self, usage: Option<Value>, out: &mut Vec<Event>) {
        let Some(usage) = usage else { return };
        let mut extras = canon::ExtraFields::new();
        if let Some(usage) = wire::read_usage(usage, &mut extras) {
            let last = self.blocked || self.complete();
            self.counted = Some(match self.counted {
                Some(before) if !last => before.merged(usage),
                _ => usage,
            });
        }
        for (name, value) in extras.for_format(ORIGIN).into_iter().flatten() {
            aside(&mut self.asides, None, name, value.clone(), out);
        }
        let now = self.counted.map(|usage| Usage { searches: self.searches, ..usage });
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
        mut side: NativeCandidateFields,
        rest: Map<String, Value>,
        id: Option<&str>,
        out: &mut Vec<Event>,
    ) -> Result<u64, ApiError> {
        if self.ended {
            return Ok(0);
        }
        for value in std::mem::take(&mut side.parts) {
            self.part(value, id, out)?;
        }
        if !side.grounding.is_null() {
            self.grounding = side.grounding.take();
        }
        if !side.cited.is_null() {
            self.cited = side.cited.take();
        }
        let chances = side.logprobs.as_ref().map(read_reply::logprobs).unwrap_or_default();
        // Log probabilities belong to the candidate, but canon can only report them on an open
        // part.
        if !chances.is_empty()
            && let Some(open) = &self.open
        {
            out.push(Event::PartDelta(self.place(open.slot), PartDelta::Logprobs(chances)));
        }
        for (name, value) in rest {
            aside(&mut self.asides, Some(self.index), &name, value, out);
        }
        if !side.ratings.is_null() {
            let ratings = side.ratings.take();
            aside(&mut self.asides, Some(self.index), "safetyRatings", ratings, out);
        }
        match side.finish {
            Some(word) => Ok(self.end(&word, id, out)),
            None => Ok(0),
        }
    }

    fn part(
        &mut self,
        value: Value,
        id: Option<&str>,
        out: &mut Vec<Event>,
    ) -> Result<(), ApiError> {
        let call = value
            .get("functionCall")
            .or_else(|| value.get("function_call"))
            .and_then(Value::as_object);
        if let Some(call) = call {
            match partial_call::step(call, self.partial.is_some()) {
                CallStep::Whole => {}
                CallStep::Begin => {
                    self.flush(id, out);
                    let signature = ["thoughtSignature", "thought_signature"]
                        .iter()
                        .find_map(|name| value.get(name)?.as_str());
                    self.partial = Some(PartialCall::new(call, signature.map(str::to_owned)));
                    return Ok(());
                }
                CallStep::More { last } => {
                    if let Some(partial) = &mut self.partial {
                        partial.add(call);
                    }
                    if last {
                        self.flush(id, out);
                    }
                    return Ok(());
                }
            }
        }
        self.flush(id, out);
        let calls = self.calls;
        let index = self.index;
        let invent = |name: &str| wire::invent_id((id, index, calls), name);
        let read = read_part::part(value, &JsonPath::Root, invent)?;
        for part in read.hidden.into_iter().chain(read.part) {
            self.say(part, out);
        }
        Ok(())
    }

    /// Ends the partial call, because something else follows it.
    fn flush(&mut self, id: Option<&str>, out: &mut Vec<Event>) {
        let Some(partial) = self.partial.take() else { return };
        let arguments = partial.arguments();
        let PartialCall { id: own, name, signature, .. } = partial;
        let call = canon::ToolCall {
            id: own.unwrap_or_else(|| wire::invent_id((id, self.index, self.calls), &name)),
            name,
            arguments,
            custom: false,
        };
        let seal = signature.map(|token| signatures::read(&token).seal);
        self.say(Part::new(PartKind::ToolCall(call)).with_signature(seal), out);
    }

    fn say(&mut self, part: Part, out: &mut Vec<Event>) {
        let Part { kind, signature: seal, cache_breakpoint: cache, extras } = part;
        let plain = seal.is_none() && extras.is_empty();
        let (say, text) = match kind {
            PartKind::Text { text, citations: _ } => (TextKind::Text, text),
            PartKind::Thought(thought) if !thought.redacted => (TextKind::Thought, thought.text),
            kind => {
                let part = Part { kind, signature: None, cache_breakpoint: cache, extras };
                self.whole(part, seal, out);
                return;
            }
        };
        if say == TextKind::Text && text.is_empty() {
            if plain {
                return;
            }
            // An empty text only carries its signature; the text before it may still get sources.
            if let Some(open) = &mut self.open {
                open.grows = false;
            }
            let place = self.next();
            out.push(Event::PartStart(place, PartStart::Text));
            attach(place, &extras, seal, out);
            out.push(Event::PartEnd(place));
            return;
        }
        let place = self.open(say, plain, out);
        match say {
            TextKind::Text => {
                self.text.push_str(&text);
                attach(place, &extras, seal, out);
                out.push(Event::PartDelta(place, PartDelta::Text(text)));
            }
            TextKind::Thought => {
                if !text.is_empty() {
                    out.push(Event::PartDelta(place, PartDelta::Text(text)));
                }
                attach(place, &extras, seal, out);
            }
        }
    }

    fn whole(&mut self, part: Part, seal: Option<Signature>, out: &mut Vec<Event>) {
        self.close(out);
        let place = self.next();
        if let PartKind::ToolCall(call) = part.kind {
            self.calls += 1;
            let canon::ToolCall { id, name, arguments, custom } = call;
            out.push(Event::PartStart(place, PartStart::ToolCall { id, name, custom }));
            out.push(Event::PartDelta(place, PartDelta::Text(arguments)));
            attach(place, &part.extras, seal, out);
        } else {
            out.push(Event::PartStart(place, PartStart::Complete(Box::new(part))));
            out.extend(seal.map(|seal| Event::PartSignature(place, seal)));
        }
        out.push(Event::PartEnd(place));
    }

    fn end(&mut self, word: &str, id: Option<&str>, out: &mut Vec<Event>) -> u64 {
        self.flush(id, out);
        if let Some(OpenPart { say: TextKind::Text, slot, .. }) = &self.open {
            let found = grounding::citations(&self.grounding, &self.cited, &self.text);
            let front = self.front.map_or(0, |(_, length)| length);
            let lengths = [front, self.text.chars().count() - front];
            let slots = self.front.map(|(slot, _)| slot).into_iter().chain([*slot]);
            let lengths = if self.front.is_some() { &lengths[..] } else { &lengths[1..] };
            for (slot, list) in slots.zip(grounding::split(found, lengths)) {
                let cited = list.into_iter().map(PartDelta::Citation);
                out.extend(cited.map(|citation| Event::PartDelta(self.place(slot), citation)));
            }
        }
        if let Some(found) = grounding::search(&self.grounding) {
            self.whole(Part::new(PartKind::WebSearch(found)), None, out);
        }
        self.close(out);
        let searches = grounding::searches(&self.grounding);
        let kept =
            [("groundingMetadata", &mut self.grounding), ("citationMetadata", &mut self.cited)];
        for (name, value) in kept {
            if !value.is_null() {
                aside(&mut self.asides, Some(self.index), name, value.take(), out);
            }
        }
        self.ended = true;
        let why = endings::read_turn(ORIGIN, word, self.calls > 0);
        let finish = Finish::new(why, RawReason::new(ORIGIN, word));
        out.push(Event::Finish { candidate: self.index, finish });
        searches
    }

    /// Returns the place of the part to grow; opens a new part unless the open one can grow.
    fn open(&mut self, say: TextKind, plain: bool, out: &mut Vec<Event>) -> PartIndex {
        if let Some(open) = &self.open
            && open.say == say
            && open.grows
            && plain
        {
            return self.place(open.slot);
        }
        match &self.open {
            // Stays open, because its sources are still to come.
            Some(OpenPart { say: TextKind::Text, slot, grows: true })
                if say == TextKind::Text && self.front.is_none() =>
            {
                self.front = Some((*slot, self.text.chars().count()));
            }
            Some(_) | None => self.close(out),
        }
        let place = self.next();
        self.open = Some(OpenPart { say, slot: place.slot, grows: plain });
        let opening = match say {
            TextKind::Text => PartStart::Text,
            TextKind::Thought => PartStart::Thought,
        };
        out.push(Event::PartStart(place, opening));
        place
    }

    fn close(&mut self, out: &mut Vec<Event>) {
        if let Some((slot, _)) = self.front.take() {
            out.push(Event::PartEnd(self.place(slot)));
        }
        if let Some(open) = self.open.take() {
            out.push(Event::PartEnd(self.place(open.slot)));
        }
        self.text.clear();
    }

    const fn place(&self, slot: u32) -> PartIndex {
        PartIndex { candidate: self.index, slot }
    }

    fn next(&mut self) -> PartIndex {
        let slot = self.slots;
        self.slots += 1;
        self.place(slot)
    }
}

/// Emits the extras and the signature of a part.
fn attach(
    place: PartIndex,
    extras: &canon::ExtraFields,
    seal: Option<Signature>,
    out: &mut Vec<Event>,
) {
    for (name, value) in extras.for_format(ORIGIN).into_iter().flatten() {
        let (name, value) = (name.clone(), value.clone());
        out.push(Event::PartDelta(place, PartDelta::Extra { origin: ORIGIN, name, value }));
    }
    out.extend(seal.map(|seal| Event::PartSignature(place, seal)));
}

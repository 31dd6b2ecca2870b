//! Reads chat chunks into events.

use canon::{ApiError, Event, Finish, Part, PartDelta, PartIndex, PartStart, RawReason, Usage};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::borrow::Cow;

use super::names::{DONE_MARKER, MESSAGE_EXTRA, ORIGIN, REASONING_DETAILS};
use super::own::audio::AudioBuffer;
use super::own::plain_reply;
use super::reply::{ChatChoice, ChatReplyCall, ChatReplyMessage, ChatReplyView, split_content};
use super::signatures::{self, ContentAuthor};
use super::usage::ChatUsage;
use super::{fault, read_content, read_reply, write_reply};
use crate::endings;
use crate::json;
use crate::openai_values::read_logprobs;
use crate::repeated_text::TextReader;
use crate::service_tier::TIER_FIELD;
use crate::sse::out_of_order;
use crate::text::{BorrowedText, owned, present};
use crate::upstream_error::ensure_ended;
use crate::wire_object::raw_value;
use crate::wire_value::LooseText;
use crate::{StreamFrame, StreamReader};

/// Stream reader. Text, thinking and calls arrive interleaved; each becomes a part with its own
/// slot.
#[derive(Default)]
pub(super) struct ChatStreamReader {
    started: bool,
    done: bool,
    candidates: Vec<ChatCandidate>,
    /// Counts so far. Some providers report one count at a time.
    usage: Option<Usage>,
    /// The service tier as reported last. Some providers know it only at the end.
    tier: Option<String>,
}

/// Open parts of one candidate.
#[derive(Default)]
struct ChatCandidate {
    index: u32,
    slots: u32,
    /// The open text, refusal or thought.
    open: Option<(PartStart, u32)>,
    /// Fields of the open thought's entry, written out together with its signature.
    thought_fields: Map<String, Value>,
    /// Tool calls by the provider's index.
    calls: Vec<StreamedCall>,
    /// Audio so far. It becomes one part at the end.
    audio: AudioBuffer,
    /// Fields only this format has.
    rest: Map<String, Value>,
    ended: bool,
}

struct StreamedCall {
    index: u32,
    id: String,
    slot: u32,
}

impl StreamReader for ChatStreamReader {
    fn push(&mut self, frame: &StreamFrame, out: &mut Vec<Event>) -> Result<(), ApiError> {
        if self.done {
            return Ok(());
        }
        if &frame.data[..] == DONE_MARKER {
            self.done = true;
            return Ok(());
        }
        match plain_reply::read_chunk(&frame.data) {
            Some(chunk) => self.read_chunk(chunk, out),
            None => self.read_chunk(frame.read()?, out),
        }
    }

    fn finish(&mut self, _out: &mut Vec<Event>) -> Result<(), ApiError> {
        let is_ended = !self.candidates.is_empty() && self.candidates.iter().all(|c| c.ended);
        ensure_ended(is_ended, "the chat stream ended without a finish reason")
    }

    fn is_done(&self) -> bool {
        self.done
    }
}

impl TextReader for ChatStreamReader {
    fn can_repeat(&self, place: PartIndex) -> bool {
        // Audio comes together with its transcript.
        let own = self.candidates.iter().find(|candidate| candidate.index == place.candidate);
        own.is_some_and(|candidate| candidate.audio.is_empty())
    }

    fn push_text(&mut self, _place: PartIndex, _text: &str) {}
}

/// A field of the whole answer or of a candidate that only this format has.
impl ChatStreamReader {
    /// Reads a chunk, or a whole completion.
    pub(super) fn read_chunk(
        &mut self,
        chunk: ChatReplyView<'_>,
        out: &mut Vec<Event>,
    ) -> Result<(), ApiError> {
        if let Some(error) = chunk.error {
            return Err(fault::read_object(error));
        }
        let usage = ChatUsage::count(chunk.usage.as_ref());
        if !self.started {
            // Azure sends the filter results of the prompt first, in a chunk without id, model and
            // time: <https://learn.microsoft.com/azure/ai-foundry/openai/concepts/content-filter>.
            if chunk.is_preface() {
                return Ok(());
            }
            self.started = true;
            let (id, model) = (present(chunk.id), present(chunk.model));
            out.push(Event::Start { id, model, created: chunk.created });
            // Further chunks repeat these fields.
            let rest = chunk.rest.present();
            out.extend(
                rest.map(|(name, value)| Event::extra(None, ORIGIN, name, raw_value(value))),
            );
        }
        if let Some(LooseText(tier)) = chunk.service_tier
            && self.tier.as_deref() != Some(&*tier)
        {
            out.push(Event::extra(None, ORIGIN, TIER_FIELD, Value::from(&*tier)));
            self.tier = Some(tier.into_owned());
        }
        for (at, choice) in (0..).zip(chunk.choices.unwrap_or_default()) {
            self.candidate(choice.index.unwrap_or(at)).read_choice(choice, out)?;
        }
        if let Some(counts) = usage {
            let usage = self.usage.unwrap_or_default().merged(counts);
            self.usage = Some(usage);
            out.push(Event::Usage(usage));
        }
        Ok(())
    }

    /// Closes the parts of candidates without a finish reason, at the end of a whole completion.
    pub(super) fn close(&mut self, out: &mut Vec<Event>) {
        for candidate in self.candidates.iter_mut().filter(|candidate| !candidate.ended) {
            candidate.close(out);
        }
    }

    fn candidate(&mut self, index: u32) -> &mut ChatCandidate {
        let at = self.candidates.iter().position(|candidate| candidate.index == index);
        let at = at.unwrap_or_else(|| {
            self.candidates.push(ChatCandidate { index, ..ChatCandidate::default() });
            self.candidates.len() - 1
        });
        #[expect(clippy::indexing_slicing, reason = "found or pushed just above")]
        &mut self.candidates[at]
    }
}

impl ChatCandidate {
    fn read_choice(
        &mut self,
        choice: ChatChoice<'_>,
        out: &mut Vec<Event>,
    ) -> Result<(), ApiError> {
        let is_whole = choice.message.is_some();
        let mut delta = choice.message.or(choice.delta).unwrap_or_default();
        let (thought, content) = split_content(delta.content.take());
        if self.ended {
            let has_calls = delta.tool_calls.is_some_and(|calls| !calls.is_empty());
            let has_text = !thought.is_empty() || !content.is_empty();
            return match has_text || has_calls {
                true => Err(out_of_order("output after the finish reason")),
                false => Ok(()),
            };
        }
        self.read_thinking(&delta, out);
        let audio = delta.audio.take().unwrap_or_default();
        self.audio.add(&audio);
        if !thought.is_empty() {
            self.add_text(PartStart::Thought, thought, out);
        }
        // Audio output has its text in the transcript only.
        let transcript = audio.transcript.map(BorrowedText::into_owned).unwrap_or_default();
        let text = if content.is_empty() { transcript } else { content.into_owned() };
        if !text.is_empty() {
            self.add_text(PartStart::Text, text, out);
        }
        for citation in parse_list(delta.annotations).into_iter().filter_map(read_reply::citation) {
            let place = self.open(PartStart::Text, out);
            out.push(Event::PartDelta(place, PartDelta::Citation(citation)));
        }
        if let Some(text) = delta.refusal.filter(|text| !text.is_empty()) {
            self.add_text(PartStart::Refusal, text.into_owned(), out);
        }
        let logprobs = choice.logprobs.map(raw_value).unwrap_or_default();
        for (refused, kind) in [(false, PartStart::Text), (true, PartStart::Refusal)] {
            let list = logprobs.get(write_reply::text_field(refused));
            if let Some(list) = list.map(read_logprobs).filter(|list| !list.is_empty()) {
                let place = self.open(kind, out);
                out.push(Event::PartDelta(place, PartDelta::Logprobs(list)));
            }
        }
        self.rest.extend(delta.rest.to_map());
        for image in parse_list(delta.images).iter().filter_map(read_content::read_image) {
            self.close_text(out);
            self.add_whole(image, out);
        }
        for (at, mut call) in (0..).zip(delta.tool_calls.unwrap_or_default()) {
            call.index = call.index.or(is_whole.then_some(at));
            self.read_call(call, out);
        }
        if let Some(function) = delta.function_call {
            let name = function.name.as_deref().unwrap_or_default();
            let id = (!name.is_empty()).then(|| BorrowedText(format!("call_{name}").into()));
            let (index, function) = (Some(0), Some(function));
            let call = ChatReplyCall { index, id, function, ..ChatReplyCall::default() };
            self.read_call(call, out);
        }
        // Some providers send an empty reason in every chunk but the last.
        let reason = choice.finish_reason.filter(|word| !word.is_empty());
        if is_whole || reason.is_some() {
            let rest = choice.rest.present();
            out.extend(
                rest.map(|(name, raw)| {
                    Event::extra(Some(self.index), ORIGIN, name, raw_value(raw))
                }),
            );
        }
        if let Some(word) = reason {
            self.finish(&word, out);
        }
        Ok(())
    }

    /// Reads thinking from the most detailed of the extension fields.
    fn read_thinking(&mut self, delta: &ChatReplyMessage<'_>, out: &mut Vec<Event>) {
        let details = parse_list(delta.reasoning_details);
        if details.is_empty() {
            let plain = delta.reasoning_content.as_ref().or(delta.reasoning.as_ref());
            if let Some(text) = plain.filter(|text| !text.is_empty()) {
                self.add_text(PartStart::Thought, (**text).to_owned(), out);
            }
            return;
        }
        for mut detail in details {
            if matches!(self.open, Some((PartStart::Thought, _)))
                && let Value::Object(detail) = &mut detail
                && detail.get("type").and_then(Value::as_str) != Some("reasoning.encrypted")
            {
                for (name, value) in &self.thought_fields {
                    detail.entry(name).or_insert_with(|| value.clone());
                }
            }
            let Some(part) = signatures::read_detail(&detail, ContentAuthor::Provider) else {
                let unknown =
                    self.rest.entry(REASONING_DETAILS).or_insert(Value::Array(Vec::new()));
                if let Value::Array(unknown) = unknown {
                    unknown.push(detail);
                }
                continue;
            };
            let canon::PartKind::Thought(thought) = &part.kind else { continue };
            // A signature that comes after the thought and within the text does not end the text:
            // its citations are still to come.
            let is_late = thought.text.is_empty()
                && part.signature.is_some()
                && matches!(self.open, Some((PartStart::Text | PartStart::Refusal, _)));
            if thought.redacted || is_late {
                if !is_late {
                    self.close_text(out);
                }
                self.add_whole(part, out);
                continue;
            }
            if !thought.text.is_empty() || part.signature.is_some() {
                let place = self.open(PartStart::Thought, out);
                if !thought.text.is_empty() {
                    out.push(Event::PartDelta(place, PartDelta::Text(thought.text.clone())));
                }
                self.thought_fields = part.extras.for_format(ORIGIN).cloned().unwrap_or_default();
                if let Some(signature) = part.signature {
                    out.push(Event::PartSignature(place, signature));
                    self.close_text(out);
                }
            }
        }
    }

    fn read_call(&mut self, delta: ChatReplyCall<'_>, out: &mut Vec<Event>) {
        let custom = delta.custom.is_some();
        let inner = delta.custom.or(delta.function).unwrap_or_default();
        let known = match (delta.index, delta.id.as_deref()) {
            // A different id starts another call, even if the provider repeats the index.
            (Some(index), Some(id)) if !id.is_empty() => {
                self.calls.iter().position(|call| call.index == index && call.id == id)
            }
            (Some(index), _) => self.calls.iter().rposition(|call| call.index == index),
            (None, Some(id)) => self.calls.iter().position(|call| call.id == id),
            (None, None) => self.calls.len().checked_sub(1),
        };
        let slot = match known.and_then(|at| self.calls.get(at)) {
            Some(call) => call.slot,
            None => {
                self.close_text(out);
                let place = PartIndex::next(self.index, &mut self.slots);
                let (id, name) = (owned(delta.id), owned(inner.name));
                let count = u32::try_from(self.calls.len()).unwrap_or(0);
                let index = delta.index.unwrap_or(count);
                self.calls.push(StreamedCall { index, id: id.clone(), slot: place.slot });
                out.push(Event::PartStart(place, PartStart::ToolCall { id, name, custom }));
                place.slot
            }
        };
        let place = PartIndex { candidate: self.index, slot };
        let arguments = inner.arguments.or(inner.input).map(|text| text.0);
        let text = arguments.filter(|text| !text.is_empty()).map(Cow::into_owned);
        out.extend(text.map(|text| Event::PartDelta(place, PartDelta::Text(text))));
        let mut rest = delta.rest.to_map();
        if !inner.rest.is_empty() {
            let name = if custom { "custom" } else { "function" };
            rest.insert(name.to_owned(), Value::Object(inner.rest.to_map()));
        }
        for (name, value) in rest {
            out.push(Event::PartDelta(place, PartDelta::Extra { origin: ORIGIN, name, value }));
        }
        let extra = delta.extra_content.map(raw_value);
        let signature = extra.as_ref().and_then(signatures::read_call_signature);
        out.extend(signature.map(|signature| Event::PartSignature(place, signature)));
    }

    fn finish(&mut self, word: &str, out: &mut Vec<Event>) {
        self.close(out);
        self.ended = true;
        // Some providers report `stop` although the message has tool calls. Clients act on the
        // reason.
        let why = endings::read_turn(ORIGIN, word, !self.calls.is_empty());
        let finish = Finish::new(why, RawReason::new(ORIGIN, word));
        out.push(Event::Finish { candidate: self.index, finish });
    }

    /// Closes all parts.
    fn close(&mut self, out: &mut Vec<Event>) {
        self.close_text(out);
        if let Some(part) = std::mem::take(&mut self.audio).into_part() {
            self.add_whole(part, out);
        }
        for call in &self.calls {
            out.push(Event::PartEnd(PartIndex { candidate: self.index, slot: call.slot }));
        }
        if !self.rest.is_empty() {
            let rest = Value::Object(std::mem::take(&mut self.rest));
            out.push(Event::extra(Some(self.index), ORIGIN, MESSAGE_EXTRA, rest));
        }
    }

    fn add_text(&mut self, what: PartStart, text: String, out: &mut Vec<Event>) {
        let place = self.open(what, out);
        out.push(Event::PartDelta(place, PartDelta::Text(text)));
    }

    /// Adds a part that comes in one piece.
    fn add_whole(&mut self, mut part: Part, out: &mut Vec<Event>) {
        let (place, signature) =
            (PartIndex::next(self.index, &mut self.slots), part.signature.take());
        out.push(Event::PartStart(place, PartStart::Complete(Box::new(part))));
        out.extend(signature.map(|signature| Event::PartSignature(place, signature)));
        out.push(Event::PartEnd(place));
    }

    /// Returns the open part of that kind. Opens one if another kind or none is open.
    fn open(&mut self, what: PartStart, out: &mut Vec<Event>) -> PartIndex {
        if let Some((open, slot)) = &self.open
            && *open == what
        {
            return PartIndex { candidate: self.index, slot: *slot };
        }
        self.close_text(out);
        let place = PartIndex::next(self.index, &mut self.slots);
        self.open = Some((what.clone(), place.slot));
        out.push(Event::PartStart(place, what));
        place
    }

    fn close_text(&mut self, out: &mut Vec<Event>) {
        if let Some((_, slot)) = self.open.take() {
            let place = PartIndex { candidate: self.index, slot };
            for (name, value) in std::mem::take(&mut self.thought_fields) {
                out.push(Event::PartDelta(place, PartDelta::Extra { origin: ORIGIN, name, value }));
            }
            out.push(Event::PartEnd(place));
        }
    }
}

fn parse_list(raw: Option<&RawValue>) -> Vec<Value> {
    raw.and_then(|raw| json::read(raw.get()).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Chunks of several providers.
    fn chunks() -> Vec<String> {
        let told = r#""id":"x","object":"chat.completion.chunk","created":1,"model":"theirs""#;
        let usage = r#"{"prompt_tokens":11,"completion_tokens":22,"total_tokens":33,"prompt_tokens_details":{"cached_tokens":4,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":5,"audio_tokens":0}}"#;
        let deltas = [
            r#"{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"finish_reason":null}"#,
            r#"{"index":0,"delta":{"content":"some \"text\" ü"},"logprobs":null,"finish_reason":null}"#,
            r#"{"delta":{"content":["text"],"role":7},"finish_reason":""}"#,
            r#"{"index":0,"delta":{},"finish_reason":"stop"}"#,
            r#"{"index":0,"delta":{},"finish_reason":"stop","vendor":1}"#,
            r#"{"index":0,"delta":{"vendor":"words","content":null},"finish_reason":7,"error":null}"#,
            r#"{"index":0,"delta":[],"finish_reason":"tool_calls"}"#,
            r#"{"index":0,"message":{"content":"whole"},"finish_reason":"stop"}"#,
        ];
        let mut chunks: Vec<String> =
            deltas.iter().map(|choice| format!(r#"{{{told},"choices":[{choice}]}}"#)).collect();
        chunks.push(format!(r#"{{{told},"choices":[{},{}]}}"#, deltas[1], deltas[3]));
        chunks.push(format!(r#"{{{told},"choices":[],"usage":{usage},"service_tier":"flex"}}"#));
        chunks.push(format!(r#"{{{told},"choices":[{}],"usage":{usage},"v":2}}"#, deltas[3]));
        chunks.push(format!(r#"{{{told},"choices":[],"usage":{{"prompt_tokens":1,"cost":0.5}}}}"#));
        chunks.push(r#"{"id":"","choices":[],"usage":null,"obfuscation":"x"}"#.to_owned());
        chunks.push(format!(r#"{{{told},"usage":[{usage}]}}"#));
        chunks.push(format!(r#"{{{told},"error":{{"message":"no"}},"choices":[]}}"#));
        chunks
    }

    proptest! {
        /// A chunk that is read without the parser is read like a parsed one.
        #[test]
        fn plain_chunks_are_read_like_parsed_ones(
            order in prop::collection::vec(0..15_usize, 1..6),
            place in any::<prop::sample::Index>(),
            byte in prop::option::of(prop_oneof![
                Just(b'"'), Just(b'1'), Just(b'\\'), Just(b'{'), Just(b'['), Just(b'-'), Just(b' '), any::<u8>(),
            ]),
        ) {
            let chunks = chunks();
            // The second time the last chunk has the byte.
            for round in 0..2 {
                let (mut plain, mut parsed) = <(ChatStreamReader, ChatStreamReader)>::default();
                let (mut some, mut all) = (Vec::new(), Vec::new());
                for (number, chunk) in order.iter().enumerate() {
                    let mut data = chunks[chunk % chunks.len()].clone().into_bytes();
                    let at = place.index(data.len());
                    if let Some(byte) = byte.filter(|_| round == 1 && number + 1 == order.len()) {
                        data[at] = byte;
                    }
                    let frame = StreamFrame::data(data);
                    let one = plain.push(&frame, &mut some);
                    let other = frame.read().and_then(|chunk| parsed.read_chunk(chunk, &mut all));
                    prop_assert_eq!(format!("{one:?}"), format!("{other:?}"));
                    if one.is_err() {
                        break;
                    }
                }
                prop_assert_eq!(format!("{some:?}"), format!("{all:?}"));
            }
        }
    }
}

//! Pass-through from chat to chat: the caller's body with few edits, and the provider's frames
//! unchanged.

use bytes::Bytes;
use canon::{ApiError, ServiceTier, Usage};
use memchr::memmem::Finder;
use serde_json::Value;
use std::ops::Range;
use std::sync::LazyLock;

use super::names::{DONE_MARKER, LIMIT_FIELD, ORIGIN, PATH, STREAM_OPTIONS_FIELD};
use super::read_reply::unreadable;
use super::reply::{ChatMeterChoice, ChatMeterView, has_output};
use super::usage::ChatUsage;
use super::{ChatDialect, fault, usage};
use crate::fields::ObjectWriter;
use crate::json::{self, BodyEdit, BodySegments};
use crate::known_replies::ReplyEdits;
use crate::repeated_text::{RepeatingMeter, TextMeter};
use crate::reply_shape::{self, DefaultValue, NoteLabel, NotedReply, ObjectShape};
use crate::service_tier::read_request_tier;
use crate::stream_completer::StreamCompleter;
use crate::wire_value::LooseText;
use crate::{
    FrameAction, LaneSettings, PassThrough, ProviderRequest, ReplyMeter, ReplyStamp, RequestFacts,
    StreamFrame, StreamMeter,
};

impl PassThrough for ChatDialect {
    fn patch(&self, body: &Bytes, peek: &RequestFacts, lane: &LaneSettings<'_>) -> ProviderRequest {
        let marks = &peek.patch_points;
        let mut edits = peek.lane_edits(lane, LIMIT_FIELD);
        // Always asks for usage; without it, a stream is billed by an estimate.
        if peek.stream && !peek.wants_usage {
            let options = "{\"include_usage\":true}";
            edits.push(match &marks.stream_options {
                Some(at) => BodyEdit { range: at.clone(), replacement: Bytes::from(options) },
                None => marks.insertion(format!("\"{STREAM_OPTIONS_FIELD}\":{options},")),
            });
        }
        ProviderRequest { path: PATH.to_owned(), body: BodySegments::with_edits(body, edits) }
    }

    fn meter_reply(&self, body: &[u8]) -> Result<ReplyMeter, ApiError> {
        let whole: ChatMeterView<'_> =
            json::read_bytes(body).map_err(|e| unreadable(&e.to_string()))?;
        if let Some(error) = whole.error {
            return Err(fault::read_object(error));
        }
        let usage = ChatUsage::count(whole.usage.as_ref());
        let choices = whole.choices.ok_or_else(|| unreadable("there is no `choices`"))?;
        let messages = choices.iter().filter_map(|choice| choice.message);
        let texts =
            messages.map(|one| json::total_text_bytes(one.get().as_bytes(), &*TEXT_KEYS)).sum();
        Ok(ReplyMeter {
            is_finished: choices.iter().all(|choice| choice.finish_reason.is_some()),
            output_bytes: ReplyMeter::reply_output_bytes(self, body, usage, texts),
            usage,
            is_estimated: false,
            service_tier: read_tier(whole.service_tier),
        })
    }

    fn complete_reply(&self, body: &Bytes, facts: &RequestFacts, stamp: &ReplyStamp) -> Bytes {
        reply_shape::complete(body, &REPLY, &facts.model, stamp)
    }

    fn pass_reply(
        &self,
        body: &Bytes,
        facts: &RequestFacts,
        stamp: &ReplyStamp,
    ) -> Result<(ReplyMeter, Bytes), ApiError> {
        let read = |noted: &NotedReply<'_>| self.meter_noted(body, noted);
        if let Some(passed) = reply_shape::complete_noted(body, &REPLY, &facts.model, stamp, read) {
            return Ok(passed);
        }
        let meter = self.meter_reply(body)?;
        Ok((meter, self.complete_reply(body, facts, stamp)))
    }

    fn stream_meter(&self, peek: &RequestFacts) -> Box<dyn StreamMeter> {
        let meter = ChatStreamMeter {
            completer: StreamCompleter::new(&CHUNK, &peek.model),
            model: peek.model.clone(),
            wants_usage: peek.wants_usage,
            candidates: peek.candidates,
            ended: Vec::new(),
            first_chunk: Bytes::new(),
            text_place: None,
            totals: ReplyMeter::default(),
        };
        Box::new(RepeatingMeter::new(meter, &*TEXT_KEYS))
    }

    fn write_abort(&self, fault: &ApiError, _request_id: &str) -> Vec<u8> {
        let mut out = Vec::new();
        StreamFrame::data(fault::write(fault).1).write_data(&mut out);
        out
    }
}

impl ChatDialect {
    /// Meters a reply by its noted values; `None` if it has to be read.
    fn meter_noted(&self, body: &Bytes, noted: &NotedReply<'_>) -> Option<ReplyMeter> {
        let usage = usage::noted_usage(noted)?;
        let tier = noted_tier(noted)?;
        if noted.values(ERROR).next().is_some() {
            return None;
        }
        let texts = noted.text_bytes();
        Some(ReplyMeter {
            is_finished: noted.values(FINISH).count() == noted.items(),
            output_bytes: ReplyMeter::reply_output_bytes(self, body, usage, texts),
            usage,
            is_estimated: false,
            service_tier: tier,
        })
    }
}

/// Labels of noted values, behind those of the counts.
const TIER: NoteLabel = usage::LABELS;
const ERROR: NoteLabel = usage::LABELS + 1;
const MESSAGE_LABEL: NoteLabel = usage::LABELS + 2;
const FINISH: NoteLabel = usage::LABELS + 3;
const INDEX: NoteLabel = usage::LABELS + 4;
const DELTA: NoteLabel = usage::LABELS + 5;
const FAILURE: NoteLabel = usage::LABELS + 6;

/// Returns the noted service tier, if any; `None` if it has to be read.
fn noted_tier(noted: &NotedReply<'_>) -> Option<Option<ServiceTier>> {
    match noted.values(TIER).next() {
        Some(tier) => Some(Some(read_request_tier(ORIGIN, plain_string(tier)?))),
        None => Some(None),
    }
}

/// Returns the text of a JSON string without escapes.
fn plain_string(json: &str) -> Option<&str> {
    let text = json.strip_prefix('"')?.strip_suffix('"')?;
    (!text.contains('\\')).then_some(text)
}

/// Returns the places of the texts in all messages; `None` if one has none, and is estimated.
fn message_texts(text: &str, found: &ReplyEdits) -> Option<Vec<Range<usize>>> {
    let mut places = Vec::new();
    for (_, range) in found.noted.iter().filter(|(label, _)| *label == MESSAGE_LABEL) {
        let texts = json::text_places(text.get(range.clone())?.as_bytes(), &*TEXT_KEYS)?;
        let moved = |place: &Range<usize>| range.start + place.start..range.start + place.end;
        places.extend(Some(&texts).filter(|texts| !texts.is_empty())?.iter().map(moved));
    }
    Some(places)
}

/// Returns the places of the first texts under each key.
fn chunk_texts(text: &str, _found: &ReplyEdits) -> Option<Vec<Range<usize>>> {
    let place = |key| json::raw_text_place(text.as_bytes(), key);
    Some(TEXT_KEYS.iter().filter_map(place).collect())
}

/// The documented fields of a completion,
/// <https://platform.openai.com/docs/api-reference/chat/object>.
static REPLY: ObjectShape = ObjectShape {
    fields: &[
        ("id", DefaultValue::Id("chatcmpl-")),
        ("object", DefaultValue::Json("\"chat.completion\"")),
        ("created", DefaultValue::Created(|seconds| seconds.to_string())),
        ("model", DefaultValue::SelectedModel),
        ("usage", DefaultValue::Noted(usage::USAGE)),
        ("service_tier", DefaultValue::Noted(TIER)),
        ("error", DefaultValue::Noted(ERROR)),
    ],
    inside: &[("choices", &CHOICE), ("usage", &usage::USAGE_SHAPE)],
    find_texts: Some(message_texts),
};

static CHOICE: ObjectShape = ObjectShape::with_objects(
    &[
        ("index", DefaultValue::Position),
        ("logprobs", DefaultValue::Json("null")),
        ("finish_reason", DefaultValue::NotedJson(FINISH, "null")),
        ("message", DefaultValue::Noted(MESSAGE_LABEL)),
        // Not read, but it must not be there twice.
        ("delta", DefaultValue::Noted(DELTA)),
        (CHOICE_ERROR, DefaultValue::Scrubbed(None)),
    ],
    &[("message", &MESSAGE)],
);

static MESSAGE: ObjectShape = ObjectShape::flat(&[
    ("role", DefaultValue::Json("\"assistant\"")),
    ("content", DefaultValue::Json("null")),
    ("refusal", DefaultValue::Json("null")),
]);

/// The documented fields of a chunk,
/// <https://platform.openai.com/docs/api-reference/chat-streaming/streaming>.
static CHUNK: ObjectShape = ObjectShape {
    fields: &[
        ("object", DefaultValue::Json("\"chat.completion.chunk\"")),
        ("model", DefaultValue::SelectedModel),
        ("choices", DefaultValue::Json("[]")),
        ("usage", DefaultValue::Noted(usage::USAGE)),
        ("service_tier", DefaultValue::Noted(TIER)),
        ("error", DefaultValue::Noted(ERROR)),
    ],
    inside: &[("choices", &CHUNK_CHOICE), ("usage", &usage::USAGE_SHAPE)],
    find_texts: Some(chunk_texts),
};

static CHUNK_CHOICE: ObjectShape = ObjectShape::flat(&[
    ("index", DefaultValue::NotedPosition(INDEX)),
    ("delta", DefaultValue::NotedJson(DELTA, "{}")),
    ("finish_reason", DefaultValue::NotedJson(FINISH, "null")),
    ("message", DefaultValue::Noted(MESSAGE_LABEL)),
    (CHOICE_ERROR, DefaultValue::NotedScrubbed(FAILURE)),
]);

/// The failure of one choice, <https://openrouter.ai/docs/api/reference/errors-and-debugging>.
const CHOICE_ERROR: &str = "error";

fn read_tier(word: Option<LooseText<'_>>) -> Option<ServiceTier> {
    word.map(|word| read_request_tier(ORIGIN, &word.0))
}

/// Meters the chunks of a stream.
struct ChatStreamMeter {
    completer: StreamCompleter,
    wants_usage: bool,
    /// The selected model.
    model: String,
    candidates: u32,
    /// Candidates with a finish reason.
    ended: Vec<u32>,
    /// A chunk with the id of the stream.
    first_chunk: Bytes,
    /// The place of the text in the last chunk, if it is known.
    text_place: Option<Range<usize>>,
    totals: ReplyMeter,
}

/// Facts of a chunk for the meter.
#[derive(Debug, PartialEq)]
struct ChatChunkFacts {
    usage: Option<Usage>,
    tier: Option<ServiceTier>,
    /// True if there is a choice.
    has_choice: bool,
    /// True if a choice failed.
    has_failure: bool,
    /// The indexes of choices with a finish reason.
    finished: Vec<u32>,
    output_bytes: u64,
    text_place: Option<Range<usize>>,
}

impl ChatChunkFacts {
    /// Returns the facts of a parsed chunk; `None` for an event of the provider's own.
    fn of_chunk(chunk: ChatMeterView<'_>, data: &[u8]) -> Option<Self> {
        let usage = ChatUsage::count(chunk.usage.as_ref());
        if chunk.choices.is_none() && usage.is_none() {
            return None;
        }
        let choices = chunk.choices.unwrap_or_default();
        let has_reason = |choice: &&ChatMeterChoice<'_>| {
            choice.finish_reason.as_ref().is_some_and(|word| !word.0.is_empty())
        };
        let index = |choice: &ChatMeterChoice<'_>| {
            choice.index.as_ref().and_then(|index| index.0).unwrap_or(0)
        };
        Some(Self {
            usage,
            tier: read_tier(chunk.service_tier),
            has_choice: !choices.is_empty(),
            has_failure: choices.iter().any(|choice| choice.error.is_some()),
            finished: choices.iter().filter(has_reason).map(index).collect(),
            output_bytes: if choices.is_empty() { 0 } else { output_bytes(data, &choices) },
            text_place: None,
        })
    }

    /// Returns the facts of a chunk by its noted values; `None` if it has to be parsed.
    fn of_noted(noted: &NotedReply<'_>, data: &[u8]) -> Option<Self> {
        let is_parsed = |label| noted.values(label).next().is_some();
        if noted.items() > 1 || is_parsed(ERROR) || is_parsed(FAILURE) || is_parsed(MESSAGE_LABEL) {
            return None;
        }
        let index = match noted.values(INDEX).next() {
            Some(index) => u32::try_from(usage::plain_count(index)?).ok()?,
            None => 0,
        };
        let reason = match noted.values(FINISH).next() {
            Some(reason) => plain_string(reason)?,
            None => "",
        };
        let mut facts = Self {
            usage: usage::noted_usage(noted)?,
            tier: noted_tier(noted)?,
            has_choice: noted.items() > 0,
            has_failure: false,
            finished: if reason.is_empty() { Vec::new() } else { vec![index] },
            output_bytes: 0,
            text_place: None,
        };
        if !facts.has_choice {
            return Some(facts);
        }
        let counted = |place: &Range<usize>| data.get(place.clone()).map_or(0, json::counted_bytes);
        facts.text_place = noted.texts().iter().find(|place| !place.is_empty()).cloned();
        facts.output_bytes = match &facts.text_place {
            Some(place) => counted(place),
            None if noted.values(DELTA).any(has_output) => data.len() as u64 / 8,
            None => 0,
        };
        Some(facts)
    }
}

impl ChatStreamMeter {
    /// Creates a chunk with the given choices and the repeated fields of the stream.
    fn chunk(&self, choices: Vec<ObjectWriter>) -> ObjectWriter {
        let first: Value = json::read_bytes(&self.first_chunk).unwrap_or_default();
        let repeated = |name: &str| first.get(name).filter(|value| !value.is_null()).cloned();
        ObjectWriter::new()
            .set_some("id", repeated("id"))
            .set("object", "chat.completion.chunk")
            .set_some("created", repeated("created"))
            .set("model", &*self.model)
            .set("choices", choices)
    }
}

fn write_chunk(chunk: ObjectWriter, out: &mut Vec<u8>) {
    StreamFrame::data(chunk.into_json()).write_data(out);
}

/// The keys under which texts stand. They are compiled once because building a finder costs more
/// than searching a chunk.
static TEXT_KEYS: LazyLock<[Finder<'static>; 7]> = LazyLock::new(|| {
    let keys =
        ["content", "reasoning_content", "reasoning", "refusal", "arguments", "input", "name"];
    keys.map(|key| Finder::new(&format!("\"{key}\":")).into_owned())
});

/// Estimates the output bytes of a chunk. Most of a chunk is framing; the output is in one of the
/// text fields, or in a field of the provider's own.
fn output_bytes(data: &[u8], choices: &[ChatMeterChoice<'_>]) -> u64 {
    let mut texts = TEXT_KEYS.iter().filter_map(|key| json::text_bytes(data, key));
    match texts.find(|bytes| *bytes > 0) {
        Some(bytes) => bytes,
        None if choices
            .iter()
            .filter_map(|choice| choice.delta)
            .any(|one| has_output(one.get())) =>
        {
            data.len() as u64 / 8
        }
        None => 0,
    }
}

impl TextMeter for ChatStreamMeter {
    fn add_text(&mut self, text: &[u8]) {
        self.totals.output_bytes += text.len() as u64;
    }

    fn ended(&self) -> usize {
        self.ended.len()
    }

    fn text_place(&self) -> Option<Range<usize>> {
        self.text_place.clone()
    }
}

impl StreamMeter for ChatStreamMeter {
    fn read(&mut self, frame: &StreamFrame) -> Result<FrameAction, ApiError> {
        let data = &frame.data[..];
        if data == DONE_MARKER {
            self.completer.skip();
            return Ok(FrameAction::Last);
        }
        if self.first_chunk.is_empty() {
            // Copied, because a slice would keep the whole received buffer alive.
            self.first_chunk = Bytes::copy_from_slice(data);
        }
        let read = |noted: &NotedReply<'_>| {
            let facts = ChatChunkFacts::of_noted(noted, data)?;
            self.completer.observe_noted(frame, noted);
            Some(facts)
        };
        let facts = match reply_shape::read_noted(frame, &CHUNK, &self.model, read) {
            Some(facts) => facts,
            None => {
                self.completer.observe(frame);
                let mut chunk: ChatMeterView<'_> = frame.read()?;
                if let Some(error) = chunk.error.take() {
                    return Err(fault::read_object(error));
                }
                // An event of the provider's own. SDKs of this format expect `choices` in each chunk.
                let facts = ChatChunkFacts::of_chunk(chunk, data);
                let Some(facts) = facts else { return Ok(FrameAction::Drop) };
                facts
            }
        };
        self.text_place = facts.text_place;
        self.totals.service_tier = facts.tier.or(self.totals.service_tier.take());
        if facts.has_failure {
            self.completer.observe_late(frame);
        }
        for index in facts.finished {
            if !self.ended.contains(&index) {
                self.ended.push(index);
            }
            self.totals.is_finished = self.ended.len() >= self.candidates as usize;
        }
        if let Some(counts) = facts.usage {
            // The first chunk has no counts, so that their details may be missing only here.
            self.completer.observe_late(frame);
            self.totals.usage = Some(self.totals.usage.unwrap_or_default().merged(counts));
            if !facts.has_choice && !self.wants_usage {
                return Ok(FrameAction::Drop);
            }
        }
        self.totals.output_bytes += facts.output_bytes;
        Ok(FrameAction::Forward)
    }

    fn write(&self, frame: &StreamFrame, out: &mut Vec<u8>) {
        self.completer.frame(frame).write_data(out);
    }

    fn write_end(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"data: [DONE]\n\n");
    }

    fn write_truncated(&mut self, usage: &Usage, out: &mut Vec<u8>) {
        let open = (0..self.candidates).filter(|index| !self.ended.contains(index));
        let choices = open.map(|index| {
            let choice = ObjectWriter::new().set("index", index).set("delta", ObjectWriter::new());
            choice.set("logprobs", Value::Null).set("finish_reason", "length")
        });
        write_chunk(self.chunk(choices.collect()), out);
        if self.wants_usage {
            let chunk = self.chunk(Vec::new());
            write_chunk(chunk.nest("usage", |object| usage::write_usage(object, usage)), out);
        }
        self.totals.is_finished = true;
        self.write_end(out);
    }

    fn totals(&self) -> &ReplyMeter {
        &self.totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_pass_over_a_reply_tells_the_same_as_two() {
        let choice = r#"{"index":0,"message":{"role":"assistant","content":"a \"b\" c","refusal":null},"logprobs":null,"finish_reason":"stop"}"#;
        let usage = r#"{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}"#;
        let told = r#""id":"x","object":"chat.completion","created":1,"model":"theirs""#;
        let call = r#"{"message":{"content":null,"tool_calls":[{"id":"c","function":{"name":"f","arguments":"{\"a\":1}"}}]},"finish_reason":null}"#;
        let odd = r#"{"error":{"message":"at 10.0.0.7"},"message":{},"finish_reason":"error"}"#;
        for body in [
            format!(r#"{{{told},"choices":[{choice}],"usage":{usage},"service_tier":"flex"}}"#),
            format!(r#"{{{told},"choices":[{choice}],"usage":{usage},"service_tier":"flex"}}"#)
                .replace("theirs", "mine")
                .replace("a \\\"b\\\" c", "ü")
                .replace(":2", ":1234"),
            format!(r#"{{{told},"choices":[{choice},{call}],"usage":null}}"#),
            format!(r#"{{"choices":[{call}],"usage":{{"prompt_tokens":"many"}}}}"#),
            format!(r#"{{"choices":[{odd}],"usage":[{usage}]}}"#),
            format!(r#"{{"choices":[{choice}],"choices":[{call}]}}"#),
            format!(r#"{{"choices":[{choice}],"usage":{usage},"usage":null}}"#),
            format!(r#"{{"choices":[{choice},1]}}"#),
            format!(r#"{{"choices":{choice}}}"#),
            format!(r#"{{{told},"usage":{usage}}}"#),
            r#"{"choices":[],"error":{"message":"no"}}"#.to_owned(),
            format!(r#"{{"choices":[],"usage":{usage},"error":null}}"#),
            r#"{"choices":[{"delta":{},"delta":{},"finish_reason":"stop"}]}"#.to_owned(),
            r#"{"choices":[{"message":"a\nb","message":1}]}"#.to_owned(),
            format!(r#"{{"choices":[{choice}]"#),
            "[]".to_owned(),
        ] {
            let facts = RequestFacts { model: "mine".to_owned(), ..RequestFacts::default() };
            let stamp = ReplyStamp { id: "s".to_owned(), created: 7 };
            let body = Bytes::from(body);
            let two = ChatDialect
                .meter_reply(&body)
                .map(|meter| (meter, ChatDialect.complete_reply(&body, &facts, &stamp)));
            // The second time its skeleton is known.
            for _ in 0..2 {
                let one = ChatDialect.pass_reply(&body, &facts, &stamp);
                assert_eq!(format!("{one:?}"), format!("{two:?}"), "{body:?}");
            }
        }
    }

    /// Chunks of several providers.
    fn chunks() -> Vec<String> {
        let told = r#""id":"x","object":"chat.completion.chunk","created":1,"model":"theirs""#;
        let usage = r#"{"prompt_tokens":11,"completion_tokens":22,"total_tokens":33,"prompt_tokens_details":{"cached_tokens":4,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":5,"audio_tokens":0}}"#;
        let deltas = [
            r#"{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"finish_reason":null}"#,
            r#"{"index":0,"delta":{"content":"some \"text\" ü"},"logprobs":null,"finish_reason":null}"#,
            r#"{"index":1,"delta":{"reasoning_content":"hm","content":null},"finish_reason":""}"#,
            r#"{"index":0,"delta":{},"finish_reason":"stop"}"#,
            r#"{"delta":{"tool_calls":[{"index":0,"function":{"name":"f","arguments":"{}"}}]}}"#,
            r#"{"index":0,"delta":{"vendor":"words"},"finish_reason":7,"error":null}"#,
            r#"{"index":0,"error":{"message":"no"},"finish_reason":"error"}"#,
            r#"{"index":0,"message":{"content":"whole"},"finish_reason":"stop"}"#,
        ];
        let mut chunks: Vec<String> =
            deltas.iter().map(|choice| format!(r#"{{{told},"choices":[{choice}]}}"#)).collect();
        chunks.push(format!(r#"{{{told},"choices":[{},{}]}}"#, deltas[1], deltas[3]));
        chunks.push(format!(r#"{{{told},"choices":[],"usage":{usage},"service_tier":"flex"}}"#));
        chunks.push(format!(r#"{{{told},"choices":[{}],"usage":{usage}}}"#, deltas[3]));
        chunks.push(format!(r#"{{{told},"choices":[],"usage":{{"prompt_tokens":1,"cost":0.5}}}}"#));
        chunks.push(format!(r#"{{{told},"choices":[{}],"usage":null}}"#, deltas[1]));
        chunks.push(format!(r#"{{"id":"x","choices":[{}]}}"#, deltas[1]));
        chunks.push(format!(r#"{{{told},"usage":[{usage}]}}"#));
        chunks.push(format!(r#"{{{told},"error":{{"message":"no"}},"choices":[]}}"#));
        chunks
    }

    proptest! {
        /// A chunk with a known skeleton tells its meter what a parsed one does.
        #[test]
        fn noted_chunks_tell_what_parsed_ones_tell(
            chunk in 0..16_usize,
            place in any::<prop::sample::Index>(),
            byte in prop::option::of(prop_oneof![
                Just(b'"'), Just(b'1'), Just(b'\\'), Just(b'{'), Just(b'['), Just(b'-'), Just(b'.'), Just(b' '),
                Just(b'n'), any::<u8>(),
            ]),
            other_texts: bool,
        ) {
            let chunks = chunks();
            let chunk = &chunks[chunk % chunks.len()];
            let mut data = chunk.clone().into_bytes();
            // Without its skeleton, with it, and with the byte or with other texts.
            for round in 0..3 {
                if round == 0 {
                    crate::known_replies::forget();
                }
                let at = place.index(data.len());
                if round == 2 && other_texts {
                    data = match chunk.contains(":\"\"") {
                        true => chunk.replace(":\"\"", ":\"other words\""),
                        false => chunk.replace("some \\\"text\\\" ü", "").replace("\"hm\"", "\"\""),
                    }
                    .into_bytes();
                } else if let Some(byte) = byte.filter(|_| round == 2) {
                    data[at] = byte;
                }
                let frame = StreamFrame::data(data.clone());
                let [mut noting, mut parsing] = ["mine"; 2].map(|model| StreamCompleter::new(&CHUNK, model));
                let read = |noted: &NotedReply<'_>| {
                    let facts = ChatChunkFacts::of_noted(noted, &data)?;
                    noting.observe_noted(&frame, noted);
                    Some(facts)
                };
                let noted = reply_shape::read_noted(&frame, &CHUNK, "mine", read);
                let Some(noted) = noted else { continue };
                parsing.observe(&frame);
                prop_assert_eq!(noting.frame(&frame), parsing.frame(&frame));
                let parsed = frame.read::<ChatMeterView<'_>>().unwrap();
                prop_assert!(parsed.error.is_none());
                let mut parsed = ChatChunkFacts::of_chunk(parsed, &data).unwrap();
                parsed.text_place.clone_from(&noted.text_place);
                prop_assert_eq!(noted, parsed);
            }
        }
    }

    #[test]
    fn output_under_an_unknown_name_is_counted_and_an_empty_delta_is_not() {
        for (delta, is_output) in [
            ("{}", false),
            (r#"{"role":"assistant","content":""}"#, false),
            (r#"{"content":null,"refusal":null}"#, false),
            (r#"{"content":"x"}"#, true),
            (r#"{"audio":{"data":"AAAA"}}"#, true),
            (r#"{"content":"","vendor_words":"x"}"#, true),
        ] {
            let data = format!(r#"{{"choices":[{{"index":0,"delta":{delta}}}]}}"#);
            let mut meter = ChatDialect.stream_meter(&RequestFacts::default());
            meter.observe(&StreamFrame::data(data.clone().into_bytes()));
            assert_eq!(meter.totals().output_bytes > 0, is_output, "{data}");
        }
    }
}

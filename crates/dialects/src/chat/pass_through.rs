//! Pass-through from chat to chat: the caller's body with few edits, and the provider's frames
//! unchanged.

use bytes::Bytes;
use canon::{ApiError, ServiceTier, Usage};
use memchr::memmem::Finder;
use serde_json::Value;
use std::sync::LazyLock;

use super::names::{DONE_MARKER, LIMIT_FIELD, ORIGIN, PATH, STREAM_OPTIONS_FIELD};
use super::read_reply::unreadable;
use super::reply::{ChatMeterChoice, ChatMeterView};
use super::usage::ChatUsage;
use super::{ChatDialect, fault, usage};
use crate::fields::ObjectWriter;
use crate::json::{self, BodyEdit, BodySegments};
use crate::repeated_text::{RepeatingMeter, TextMeter};
use crate::reply_shape::{self, DefaultValue, NotedReply, ObjectShape, StreamCompleter};
use crate::service_tier::read_request_tier;
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
        if let Some(noted) = reply_shape::complete_noted(body, &REPLY, &facts.model, stamp)
            && let Some(meter) = self.meter_noted(body, &noted)
        {
            return Ok((meter, noted.completed));
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
    /// Meters a reply by its noted values; `None` if it has to be read for an error.
    fn meter_noted(&self, body: &Bytes, noted: &NotedReply<'_>) -> Option<ReplyMeter> {
        if noted.values(ERROR_FIELD).next().is_some() {
            return None;
        }
        let usage = match noted.values(USAGE_FIELD).next() {
            Some(usage) => ChatUsage::count(Some(&json::read(usage).ok()?)),
            None => None,
        };
        let tier = noted.values(TIER_FIELD).next().map(json::read).transpose().ok()?;
        let messages = noted.values(MESSAGE_FIELD);
        let texts = messages.map(|one| json::total_text_bytes(one.as_bytes(), &*TEXT_KEYS)).sum();
        Some(ReplyMeter {
            is_finished: noted.values(FINISH_FIELD).count() == noted.items,
            output_bytes: ReplyMeter::reply_output_bytes(self, body, usage, texts),
            usage,
            is_estimated: false,
            service_tier: read_tier(tier),
        })
    }
}

/// The documented fields of a completion,
/// <https://platform.openai.com/docs/api-reference/chat/object>.
static REPLY: ObjectShape = ObjectShape {
    fields: &[
        ("id", DefaultValue::Id("chatcmpl-")),
        ("object", DefaultValue::Json("\"chat.completion\"")),
        ("created", DefaultValue::Created(|seconds| seconds.to_string())),
        ("model", DefaultValue::SelectedModel),
        (USAGE_FIELD, DefaultValue::Noted),
        (TIER_FIELD, DefaultValue::Noted),
        (ERROR_FIELD, DefaultValue::Noted),
    ],
    inside: &[("choices", &CHOICE), (USAGE_FIELD, &USAGE)],
};

const USAGE_FIELD: &str = "usage";
const TIER_FIELD: &str = "service_tier";
const ERROR_FIELD: &str = "error";
const MESSAGE_FIELD: &str = "message";
const FINISH_FIELD: &str = "finish_reason";

static CHOICE: ObjectShape = ObjectShape {
    fields: &[
        ("index", DefaultValue::Position),
        ("logprobs", DefaultValue::Json("null")),
        (FINISH_FIELD, DefaultValue::NotedJson("null")),
        (MESSAGE_FIELD, DefaultValue::Noted),
        // Not read, but it must not be there twice.
        ("delta", DefaultValue::Noted),
        (CHOICE_ERROR, DefaultValue::Scrubbed(None)),
    ],
    inside: &[(MESSAGE_FIELD, &MESSAGE)],
};

static MESSAGE: ObjectShape = ObjectShape::flat(&[
    ("role", DefaultValue::Json("\"assistant\"")),
    ("content", DefaultValue::Json("null")),
    ("refusal", DefaultValue::Json("null")),
]);

static USAGE: ObjectShape = ObjectShape::flat(&[
    ("prompt_tokens_details", DefaultValue::Json("{\"cached_tokens\":0,\"audio_tokens\":0}")),
    ("completion_tokens_details", DefaultValue::Json(NO_DETAILS)),
]);

const NO_DETAILS: &str = "{\"reasoning_tokens\":0,\"audio_tokens\":0,\
    \"accepted_prediction_tokens\":0,\"rejected_prediction_tokens\":0}";

/// The documented fields of a chunk,
/// <https://platform.openai.com/docs/api-reference/chat-streaming/streaming>.
static CHUNK: ObjectShape = ObjectShape {
    fields: &[
        ("object", DefaultValue::Json("\"chat.completion.chunk\"")),
        ("model", DefaultValue::SelectedModel),
        ("choices", DefaultValue::Json("[]")),
    ],
    inside: &[("choices", &CHUNK_CHOICE), ("usage", &USAGE)],
};

static CHUNK_CHOICE: ObjectShape = ObjectShape::flat(&[
    ("index", DefaultValue::Position),
    ("delta", DefaultValue::Json("{}")),
    ("finish_reason", DefaultValue::Json("null")),
    (CHOICE_ERROR, DefaultValue::Scrubbed(None)),
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
    totals: ReplyMeter,
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
        None if choices.iter().any(ChatMeterChoice::has_output) => data.len() as u64 / 8,
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
        self.completer.observe(frame);
        let chunk: ChatMeterView<'_> = frame.read()?;
        if let Some(error) = chunk.error {
            return Err(fault::read_object(error));
        }
        let usage = ChatUsage::count(chunk.usage.as_ref());
        if chunk.choices.is_none() && usage.is_none() {
            // An event of the provider's own. SDKs of this format expect `choices` in each chunk.
            return Ok(FrameAction::Drop);
        }
        self.totals.service_tier =
            read_tier(chunk.service_tier).or(self.totals.service_tier.take());
        let choices = chunk.choices.unwrap_or_default();
        if choices.iter().any(|choice| choice.error.is_some()) {
            self.completer.observe_late(frame);
        }
        for choice in &choices {
            if choice.finish_reason.as_ref().is_some_and(|word| !word.0.is_empty()) {
                let index = choice.index.as_ref().and_then(|index| index.0).unwrap_or(0);
                if !self.ended.contains(&index) {
                    self.ended.push(index);
                }
                self.totals.is_finished = self.ended.len() >= self.candidates as usize;
            }
        }
        if let Some(counts) = usage {
            // The first chunk has no counts, so that their details may be missing only here.
            self.completer.observe_late(frame);
            self.totals.usage = Some(self.totals.usage.unwrap_or_default().merged(counts));
            if choices.is_empty() && !self.wants_usage {
                return Ok(FrameAction::Drop);
            }
        }
        if !choices.is_empty() {
            self.totals.output_bytes += output_bytes(data, &choices);
        }
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
            write_chunk(self.chunk(Vec::new()).set("usage", usage::write_usage(usage)), out);
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

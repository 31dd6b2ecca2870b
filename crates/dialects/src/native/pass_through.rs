//! Pass-through from native to native: patches the caller's bytes and meters the provider's chunks.

use bytes::Bytes;
use canon::{ApiError, ExtraFields, Losses, Usage};
use memchr::memmem::Finder;
use std::cell::Cell;
use std::sync::LazyLock;

use super::own::{grounding, timestamp, usage_repair};
use super::read_stream::is_end_marker;
use super::reply::{FINISH_MESSAGE, NativeReplyView};
use super::{NativeDialect, fault, names, read_reply, usage};
use crate::fields::ObjectWriter;
use crate::json::{self, BodyEdit, BodySegments};
use crate::repeated_text::{RepeatingMeter, TextMeter};
use crate::reply_shape::{self, DefaultValue, ObjectShape};
use crate::stream_completer::StreamCompleter;
use crate::wire_object::raw_value;
use crate::{
    FrameAction, LaneSettings, PassThrough, ProviderRequest, ReplyMeter, ReplyStamp, RequestFacts,
    StreamFrame, StreamMeter,
};

impl PassThrough for NativeDialect {
    fn patch(&self, body: &Bytes, peek: &RequestFacts, lane: &LaneSettings<'_>) -> ProviderRequest {
        let limit = lane.max_payable_output.map(|limit| limit_edit(body, peek, limit));
        let mut edits: Vec<BodyEdit> =
            limit.into_iter().chain(peek.edits.iter().cloned()).collect();
        // The path names the model. A model in the body must agree with it.
        edits.extend(peek.patch_points.model.clone().map(|range| {
            let name = lane.model.strip_prefix("models/").unwrap_or(lane.model);
            BodyEdit { range, replacement: json::to_json_string(&format!("models/{name}")) }
        }));
        let body = BodySegments::with_edits(body, edits);
        ProviderRequest { path: names::path(lane.model, peek.stream), body }
    }

    fn meter_reply(&self, body: &[u8]) -> Result<ReplyMeter, ApiError> {
        let reply = read_reply::parse(body)?;
        let mut state = NativeMeterState::default();
        state.observe(&reply);
        let ReplyMeter { usage, output_bytes: texts, .. } = state.said;
        state.said.output_bytes = ReplyMeter::reply_output_bytes(self, body, usage, texts);
        Ok(state.said)
    }

    fn complete_reply(&self, body: &Bytes, facts: &RequestFacts, stamp: &ReplyStamp) -> Bytes {
        let repaired = usage_repair::repair(body);
        reply_shape::complete(repaired.as_ref().unwrap_or(body), &REPLY, &facts.model, stamp)
    }

    fn stream_meter(&self, facts: &RequestFacts) -> Box<dyn StreamMeter> {
        let meter = NativeStreamMeter {
            completer: StreamCompleter::new(&REPLY, &facts.model),
            array: facts.json_array,
            expected: facts.candidates as usize,
            begun: Cell::new(false),
            closed: Cell::new(false),
            state: NativeMeterState::default(),
        };
        match facts.json_array {
            // The items of an array differ by the bytes between them.
            true => Box::new(meter),
            false => Box::new(RepeatingMeter::new(meter, &*TEXT_KEYS)),
        }
    }

    fn write_abort(&self, fault: &ApiError, _request_id: &str) -> Vec<u8> {
        let (_, body) = fault::write(fault);
        [b"data: ".as_slice(), &body, b"\n\n"].concat()
    }
}

/// The documented fields of a reply or a chunk, <https://ai.google.dev/api/generate-content>.
static REPLY: ObjectShape = ObjectShape {
    fields: &[
        ("modelVersion", DefaultValue::MissingModel),
        (
            "createTime",
            DefaultValue::Created(|seconds| format!("\"{}\"", timestamp::write(seconds))),
        ),
        ("responseId", DefaultValue::Id("")),
        ("promptFeedback", DefaultValue::Scrubbed(None)),
    ],
    inside: &[("candidates", &CANDIDATE), ("usageMetadata", &USAGE)],
    find_texts: None,
};

static CANDIDATE: ObjectShape = ObjectShape {
    fields: &[("index", DefaultValue::Position), (FINISH_MESSAGE, DefaultValue::Scrubbed(None))],
    inside: &[("content", &CONTENT)],
    find_texts: None,
};

static CONTENT: ObjectShape = ObjectShape {
    fields: &[("role", DefaultValue::Json("\"model\""))],
    inside: &[],
    find_texts: None,
};

static USAGE: ObjectShape = ObjectShape {
    fields: &[("trafficType", DefaultValue::Json("\"ON_DEMAND\""))],
    inside: &[],
    find_texts: None,
};

/// Writes the lowered limit over the caller's limit, into its object, or together with a new
/// object.
fn limit_edit(body: &Bytes, facts: &RequestFacts, limit: u64) -> BodyEdit {
    let marks = &facts.patch_points;
    let Some(range) = marks.limit.clone() else {
        // The body has other fields: `contents` is required.
        return marks.insertion(format!("\"generationConfig\":{{\"maxOutputTokens\":{limit}}},"));
    };
    if !range.is_empty() {
        return BodyEdit { range, replacement: limit.to_string().into() };
    }
    let rest = body.get(range.start..).unwrap_or_default();
    let has_more = rest.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'"');
    let comma = if has_more { "," } else { "" };
    BodyEdit { range, replacement: format!("\"maxOutputTokens\":{limit}{comma}").into() }
}

/// The keys under which a model's output text stands.
static TEXT_KEYS: LazyLock<[Finder<'static>; 1]> = LazyLock::new(|| [Finder::new("\"text\":")]);
static CALL_KEY: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"functionCall\""));

/// Running totals of a reply.
#[derive(Default)]
struct NativeMeterState {
    said: ReplyMeter,
    /// The candidates seen so far, each with a flag that is set when it has ended.
    seen: Vec<(u32, bool)>,
    blocked: bool,
    searches: u64,
}

impl NativeMeterState {
    fn observe(&mut self, chunk: &NativeReplyView<'_>) {
        let candidates = chunk.candidates.iter().flat_map(|list| &list.0);
        for (at, candidate) in candidates.enumerate() {
            let index = candidate.index(at);
            let ends = candidate.finish_reason.is_some();
            match self.seen.iter_mut().find(|(own, _)| *own == index) {
                Some((_, ended)) => *ended |= ends,
                None => self.seen.push((index, ends)),
            }
            self.said.output_bytes += candidate.content.map_or(0, |content| {
                let content = content.get();
                // A function call is written as an object; about half of it is syntax.
                let call = CALL_KEY.find(content.as_bytes()).is_some();
                let calls = if call { content.len() as u64 / 2 } else { 0 };
                calls.max(json::total_text_bytes(content.as_bytes(), &*TEXT_KEYS))
            });
            let sources = candidate.grounding_metadata.map(raw_value).unwrap_or_default();
            self.searches = self.searches.max(grounding::searches(&sources));
        }
        self.blocked |= chunk.block_reason().is_some();
        self.said.is_finished =
            self.blocked || (!self.seen.is_empty() && self.seen.iter().all(|(_, ended)| *ended));
        if let Some(counts) = chunk.usage()
            && let Some(now) = counts.to_canon()
        {
            self.said.service_tier = counts.tier().or(self.said.service_tier.take());
            // Early chunks report only some counts; the last chunk reports all of them.
            self.said.usage = Some(match self.said.usage {
                Some(before) if !self.said.is_finished => before.merged(now),
                _ => now,
            });
        }
        if let Some(usage) = &mut self.said.usage {
            usage.searches = self.searches;
        }
    }
}

/// Meters the chunks of a native stream.
struct NativeStreamMeter {
    completer: StreamCompleter,
    array: bool,
    expected: usize,
    begun: Cell<bool>,
    closed: Cell<bool>,
    state: NativeMeterState,
}

impl NativeStreamMeter {
    /// Returns true if no chunk can follow. Only a JSON array needs to know this, to write its
    /// closing bracket.
    fn is_over(&self) -> bool {
        let NativeMeterState { said, seen, blocked, .. } = &self.state;
        said.is_finished && (*blocked || seen.len() >= self.expected)
    }
}

impl TextMeter for NativeStreamMeter {
    fn add_text(&mut self, text: &[u8]) {
        self.state.said.output_bytes += text.len() as u64;
    }

    fn ended(&self) -> usize {
        self.state.seen.iter().filter(|(_, ended)| *ended).count()
    }
}

impl StreamMeter for NativeStreamMeter {
    fn read(&mut self, frame: &StreamFrame) -> Result<FrameAction, ApiError> {
        if is_end_marker(&frame.data) {
            return Ok(FrameAction::Drop);
        }
        let chunk: NativeReplyView<'_> = frame.read()?;
        if let Some(error) = chunk.error {
            return Err(fault::read_object(&raw_value(error)));
        }
        // Output after the end is metered but not forwarded.
        let late =
            self.is_over() && chunk.candidates.as_ref().is_some_and(|list| !list.0.is_empty());
        self.state.observe(&chunk);
        if late {
            return Ok(FrameAction::Drop);
        }
        let repaired = usage_repair::repair(&frame.data)
            .map(|data| StreamFrame { event: frame.event.clone(), data });
        let whole = repaired.as_ref().unwrap_or(frame);
        match chunk.reports_on_call() {
            true => self.completer.observe_late(whole),
            false => self.completer.observe(whole),
        }
        if let Some(repaired) = repaired {
            self.completer.keep(repaired);
        }
        Ok(if self.array && self.is_over() { FrameAction::Last } else { FrameAction::Forward })
    }

    fn write(&self, frame: &StreamFrame, out: &mut Vec<u8>) {
        let (before, after) = names::chunk_framing(self.array, !self.begun.replace(true));
        out.extend_from_slice(before);
        // Official clients read one line per chunk. A line break inside JSON is only white space.
        let data = &self.completer.frame(frame).data;
        out.extend(data.iter().map(|byte| if *byte == b'\n' { b' ' } else { *byte }));
        out.extend_from_slice(after);
        if self.is_over() {
            self.write_end(out);
        }
    }

    /// Closes a JSON array once. A stream of events needs no end marker.
    fn write_end(&self, out: &mut Vec<u8>) {
        if self.array && !self.closed.replace(true) {
            out.extend_from_slice(if self.begun.get() { b"]" } else { b"[]" });
        }
    }

    fn write_truncated(&mut self, usage: &Usage, out: &mut Vec<u8>) {
        if self.state.seen.is_empty() {
            self.state.seen.push((0, false));
        }
        let open = self.state.seen.iter_mut().filter(|(_, ended)| !*ended);
        let ends = open.map(|(index, ended)| {
            *ended = true;
            let parts = vec![ObjectWriter::new().set("text", "")];
            ObjectWriter::new()
                .set("content", ObjectWriter::new().set("parts", parts).set("role", "model"))
                .set("finishReason", "MAX_TOKENS")
                .set("index", *index)
        });
        let ends: Vec<_> = ends.collect();
        let counts = usage::write_usage(usage, &ExtraFields::default(), &mut Losses::new());
        let last = ObjectWriter::new().set("candidates", ends).set("usageMetadata", counts);
        self.state.said.is_finished = true;
        self.completer.skip();
        self.write(&StreamFrame::data(last.into_json()), out);
        self.write_end(out);
    }

    fn totals(&self) -> &ReplyMeter {
        &self.state.said
    }
}

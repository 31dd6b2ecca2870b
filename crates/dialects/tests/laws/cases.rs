//! Fixtures and helpers of the property tests.

use ::bytes::Bytes;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use canon::{
    ChatReply, ChatRequest, Event, EventGrammar, ExtraFields, Loss, MediaSource, Part, PartKind,
    ReplyBuilder, SamplingOptions, ThinkingDisplay, ThinkingOptions, Thought, WireFormat,
};
use dialects::{Dialect, LaneSettings, ReplyStamp, RequestTarget, SseDecoder, StreamFrame};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// A whole reply and the same reply as a stream.
pub(crate) struct Answer {
    pub(crate) name: String,
    pub(crate) whole: Vec<u8>,
    pub(crate) stream: Vec<u8>,
}

/// Returns the folder of this crate's tests.
pub(crate) fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

/// Returns every ordered pair of formats: the caller's and the provider's.
pub(crate) fn pairs() -> Vec<(&'static dyn Dialect, &'static dyn Dialect)> {
    let all = || dialects::all();
    all()
        .flat_map(|from| all().map(move |to| (from, to)))
        .filter(|(a, b)| a.origin() != b.origin())
        .collect()
}

fn files(dialect: &dyn Dialect, ending: &str) -> Vec<(String, Vec<u8>)> {
    let folder = here().join("fixtures").join(dialect.origin().as_str());
    let mut found: Vec<(String, Vec<u8>)> = std::fs::read_dir(&folder)
        .unwrap_or_else(|e| panic!("{}: {e}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .filter_map(|path| {
            let name = path.file_name()?.to_str()?.strip_suffix(ending)?;
            let name = name.strip_suffix(".stream").unwrap_or(name).to_owned();
            Some((name, std::fs::read(&path).unwrap()))
        })
        .collect();
    found.sort();
    assert!(found.len() >= 8, "too few fixtures of {} that end in {ending}", dialect.origin());
    found
}

/// Returns the request fixtures.
pub(crate) fn requests(dialect: &dyn Dialect) -> Vec<(String, Vec<u8>)> {
    files(dialect, ".request.json")
}

/// Returns the reply fixtures.
pub(crate) fn answers(dialect: &dyn Dialect) -> Vec<Answer> {
    let wholes = files(dialect, ".reply.json");
    let streams = files(dialect, ".sse");
    assert_eq!(
        wholes.len(),
        streams.len(),
        "every reply of {} needs a stream too",
        dialect.origin()
    );
    wholes
        .into_iter()
        .zip(streams)
        .map(|((name, whole), (other, stream))| {
            assert_eq!(name, other);
            Answer { name, whole, stream }
        })
        .collect()
}

/// Returns the target of every request; formats that name the model in the body ignore it.
pub(crate) fn target() -> RequestTarget {
    RequestTarget { model: Some("house-large".to_owned()), ..RequestTarget::default() }
}

/// A lane for requests that came from another format.
pub(crate) const LANE: LaneSettings<'static> = LaneSettings {
    model: "m",
    max_payable_output: None,
    model_max_output: Some(8192),
    thinking_range: None,
    cache_field: Some(canon::CacheField::PromptCacheBreakpoint),
    client_tools: &[canon::ToolKind::Custom],
};

pub(crate) fn stamp() -> ReplyStamp {
    ReplyStamp { id: "stamp".to_owned(), created: 1_790_000_000 }
}

/// Returns a request that asks for everything a reply may hold.
pub(crate) fn full_request() -> ChatRequest {
    let mut extras = ExtraFields::new();
    extras.insert(WireFormat::Chat, "stream_options", json!({"include_usage": true}));
    ChatRequest {
        model: "house-large".to_owned(),
        thinking: ThinkingOptions {
            display: Some(ThinkingDisplay::Auto),
            ..ThinkingOptions::default()
        },
        sampling: SamplingOptions { logprobs: Some(2), ..SamplingOptions::default() },
        stream: true,
        extras,
        ..ChatRequest::default()
    }
}

pub(crate) fn frames(pieces: &[&[u8]]) -> Vec<StreamFrame> {
    let mut cutter = SseDecoder::default();
    let mut frames = Vec::new();
    for piece in pieces {
        cutter.push(Bytes::copy_from_slice(piece));
        while let Some(frame) = cutter.next_frame().unwrap() {
            frames.push(frame);
        }
    }
    frames.extend(cutter.finish().unwrap());
    frames
}

/// Reads a stream into events and checks them against the grammar.
pub(crate) fn events(dialect: &dyn Dialect, stream: &[u8], case: &str) -> Vec<Event> {
    let mut reader = dialect.stream_reader();
    let mut events = Vec::new();
    for frame in frames(&[stream]) {
        reader.push(&frame, &mut events).unwrap_or_else(|e| panic!("{case}: {e}"));
    }
    reader.finish(&mut events).unwrap_or_else(|e| {
        panic!("{case}: {e}\n{}", String::from_utf8_lossy(stream));
    });
    assert_grammar(&events, case);
    events
}

/// Asserts that the events follow the grammar.
pub(crate) fn assert_grammar(events: &[Event], case: &str) {
    let mut grammar = EventGrammar::default();
    for event in events {
        grammar.push(event).unwrap_or_else(|e| panic!("{case}: {e}\n{events:#?}"));
    }
    grammar.finish().unwrap_or_else(|e| panic!("{case}: {e}\n{events:#?}"));
}

pub(crate) fn fold(events: Vec<Event>) -> ChatReply {
    let mut fold = ReplyBuilder::default();
    for event in events {
        fold.push(event).unwrap();
    }
    fold.finish()
}

/// Writes events as a stream for a caller.
pub(crate) fn stream(
    dialect: &dyn Dialect,
    chat: &ChatRequest,
    events: Vec<Event>,
) -> (Vec<u8>, Vec<Loss>) {
    stream_as(dialect, chat, events, &stamp())
}

/// The same with a given stamp.
pub(crate) fn stream_as(
    dialect: &dyn Dialect,
    chat: &ChatRequest,
    events: Vec<Event>,
    stamp: &ReplyStamp,
) -> (Vec<u8>, Vec<Loss>) {
    let mut writer = dialect.stream_writer(chat, stamp);
    let mut out = Vec::new();
    for event in events {
        writer.push(event, &mut out);
    }
    let losses = writer.finish(&mut out);
    (out, losses)
}

/// Joins adjacent pieces of one text or thought, because streams cut them anywhere.
pub(crate) fn joined(mut reply: ChatReply) -> ChatReply {
    for candidate in &mut reply.candidates {
        let mut parts: Vec<Part> = Vec::new();
        for part in std::mem::take(&mut candidate.parts) {
            let Some(last) = parts.last_mut() else {
                parts.push(part);
                continue;
            };
            match (&mut last.kind, part.kind) {
                (
                    PartKind::Text { text, citations },
                    PartKind::Text { text: more, citations: others },
                ) => {
                    text.push_str(&more);
                    citations.extend(others);
                    last.signature = part.signature.or(last.signature.take());
                }
                (
                    PartKind::Thought(Thought { text, redacted: false }),
                    PartKind::Thought(Thought { text: more, redacted: false }),
                ) if last.signature.is_none() => {
                    text.push_str(&more);
                    last.signature = part.signature;
                }
                (_, kind) => parts.push(Part { kind, ..part }),
            }
        }
        candidate.parts = parts;
        for chance in
            candidate.logprobs.iter_mut().flat_map(|l| l.top.iter_mut().chain([&mut l.chosen]))
        {
            // Some streams leave out bytes that equal the token.
            if chance.bytes.as_deref() == Some(chance.token.as_bytes()) {
                chance.bytes = None;
            }
        }
    }
    reply
}

/// Collects the readable text of the parts.
pub(crate) fn texts(parts: &[Part], said: &mut String) {
    for part in parts {
        match &part.kind {
            PartKind::Text { text, .. } | PartKind::Refusal(text) => said.push_str(text),
            PartKind::ToolResult(result) => {
                // The text of a result may have become a value of an object.
                let object = result.object.as_deref().unwrap_or("{}");
                let fields: Map<String, Value> = serde_json::from_str(object).unwrap();
                for value in fields.values() {
                    said.push_str(value.as_str().unwrap_or_default());
                }
                if result.object.is_none() {
                    said.push_str(&result.as_text());
                }
            }
            PartKind::Media(media) => match &media.source {
                MediaSource::Text(text) => said.push_str(text),
                MediaSource::Inline { mime, data } if mime == "text/plain" => {
                    let text = STANDARD.decode(data).unwrap_or_default();
                    said.push_str(&String::from_utf8_lossy(&text));
                }
                MediaSource::Inline { .. } | MediaSource::Url { .. } | MediaSource::File { .. } => {
                }
            },
            PartKind::Thought(_)
            | PartKind::ToolCall(_)
            | PartKind::CodeExecution(_)
            | PartKind::CodeResult(_)
            | PartKind::WebSearch(_)
            | PartKind::Foreign { .. } => {}
        }
        said.push('\n');
    }
}

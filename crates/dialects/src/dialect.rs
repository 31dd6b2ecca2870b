//! The traits that every wire format implements.

use bytes::Bytes;
use canon::{
    ApiError, CacheField, ChatReply, ChatRequest, Event, HostedTools, Loss, Losses, Lossy, Media,
    Part, PartDelta, PartStart, RequestNeeds, Role, ServiceTier, ThinkingRange, ToolKind, Usage,
    WireFormat,
};
use serde::Deserialize;
use std::ops::Range;

use crate::body_outline::BodyOutline;
use crate::call_ids;
use crate::caller_labels::CallerLabels;
use crate::client_tools;
use crate::fields::ObjectWriter;
use crate::format_functions::FormatFunctions;
use crate::format_traits::FormatTraits;
use crate::json::{self, BodyEdit, BodySegments, RequestText};
use crate::media_problem::MediaProblem;
use crate::object_fields::ForeignObject;
use crate::plain_request::RecognisedRequest;
use crate::service_tier::{event_tier, extras_tier};
use crate::sse::StreamFrame;
use crate::text_run::TextRun;

/// Facts of a request that stand in its path and headers, not in its body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestTarget {
    /// The model, if the path names it.
    pub model: Option<String>,
    /// True if the path asks for a stream.
    pub stream: bool,
    /// True if that stream is one JSON array instead of events.
    pub json_array: bool,
    /// True if the model may think between tool calls, so that its budget may exceed the output
    /// limit.
    pub interleaved_thinking: bool,
    /// True if the body is content to keep for later requests, which may lack turns.
    pub is_cached_content: bool,
}

/// The settings of one lane (a model at a provider) for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneSettings<'a> {
    /// The model's name at the provider.
    pub model: &'a str,
    /// The maximum output tokens the caller can pay for, if that is less than requested.
    pub max_payable_output: Option<u64>,
    /// The maximum output tokens of the model, for formats in which a limit is required.
    pub model_max_output: Option<u64>,
    /// The thinking controls of the model; `None` if they are not known.
    pub thinking_range: Option<&'a ThinkingRange>,
    /// The field for prompt-cache breakpoints at a provider of the chat format; `None` if it takes
    /// none.
    pub cache_field: Option<CacheField>,
    /// Kinds of tools that the caller runs and that the lane takes in its own form. Others are functions.
    pub client_tools: &'a [ToolKind],
}

/// A request to a provider: the path below the provider's base URL, and the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderRequest {
    /// Path and query, such as `/v1/chat/completions`.
    pub path: String,
    /// The body.
    pub body: BodySegments,
}

impl ProviderRequest {
    /// Creates a request with a written body.
    pub(crate) fn new(path: impl Into<String>, body: ObjectWriter) -> Self {
        Self { path: path.into(), body: BodySegments::single(body.into_json()) }
    }
}

/// Id and time of a reply, used where the provider gave none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplyStamp {
    /// A random word, unique per reply. Each format adds its own prefix.
    pub id: String,
    /// Seconds since 1970.
    pub created: i64,
}

impl ReplyStamp {
    /// Hexadecimal digits of the word.
    const DIGITS: usize = 29;

    /// Returns true for an id with such a word, such as `msg_…` or `rs_…_0`. The gateway made it, and
    /// no provider has an object under it.
    pub fn has_made(id: &str) -> bool {
        let word = id.split('_').nth(1).unwrap_or_default();
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        word.len() == Self::DIGITS && word.bytes().all(is_digit)
    }
}

/// The parts of a request that a parse is to yield.
#[derive(Clone, Copy)]
pub enum RequestUse<'a> {
    /// The facts. The rules apply.
    Facts,
    /// The facts and the request, to count its tokens. It needs no output limit.
    Count,
    /// The request. Only a wrong type is an error.
    Request,
    /// The facts, and the request if the function says so for its model.
    Both(&'a dyn Fn(&str) -> bool),
}

/// A parsed request.
#[derive(Clone, Debug, PartialEq)]
pub struct ParsedRequest {
    /// The facts, if they were asked for.
    pub facts: Option<RequestFacts>,
    /// The request, if it was asked for.
    pub chat: Option<Box<ChatRequest>>,
}

impl RequestUse<'_> {
    /// Parses a body by its description, once.
    pub(crate) fn parse<'b, V: Deserialize<'b>>(
        self,
        body: &'b [u8],
        check: impl FnOnce(&'b str, &V) -> Result<RequestFacts, ApiError>,
        read: impl FnOnce(Box<V>) -> Result<Box<ChatRequest>, ApiError>,
    ) -> Result<ParsedRequest, ApiError> {
        // Boxed like the request, because both are large and would be copied from step to step.
        let RequestText { text, view, long_texts }: RequestText<'_, Box<V>> =
            json::parse_request(body)?;
        let facts = match self {
            Self::Request => None,
            Self::Facts | Self::Count | Self::Both(_) => {
                let outline = BodyOutline::new(body, &long_texts);
                Some(RequestFacts { outline, ..check(text, &view)? })
            }
        };
        let wants_chat = match (self, &facts) {
            (Self::Request | Self::Count, _) => true,
            (Self::Both(wants_chat), Some(facts)) => wants_chat(&facts.model),
            (Self::Facts | Self::Both(_), _) => false,
        };
        let chat = wants_chat.then(|| read(view)).transpose()?;
        Ok(ParsedRequest { facts, chat })
    }
}

/// One wire format, translated through `canon`.
pub trait Dialect: PassThrough + Send + Sync {
    /// Returns the facts that the rest of the gateway needs.
    fn traits(&self) -> &'static FormatTraits;
    /// Returns the functions of this format.
    fn functions(&self) -> &'static FormatFunctions;
    /// Returns the origin of this format.
    fn origin(&self) -> WireFormat {
        self.traits().origin
    }
    /// Parses a caller's request once. The facts of a request that holds only text need no parser.
    fn parse(
        &self,
        target: &RequestTarget,
        body: &[u8],
        wanted: RequestUse<'_>,
    ) -> Result<ParsedRequest, ApiError> {
        let (parse, traits) = (self.functions().parse, self.traits());
        let wants_chat = match wanted {
            RequestUse::Both(wants_chat) => Some(wants_chat),
            RequestUse::Facts | RequestUse::Count | RequestUse::Request => None,
        };
        let plain = match wanted {
            RequestUse::Facts | RequestUse::Both(_) => {
                let fields = (traits.origin, traits.request_fields);
                traits.plain_request.recognise(fields, target, body, wants_chat)
            }
            RequestUse::Count | RequestUse::Request => None,
        };
        let Some(RecognisedRequest { facts, is_wanted, mut chat }) = plain else {
            let mut parsed = parse(target, body, wanted)?;
            if let Some(facts) = &mut parsed.facts {
                facts.outline.search(body, |outline| traits.scans_for(outline));
            }
            return Ok(parsed);
        };
        if is_wanted && chat.is_none() {
            chat = parse(target, body, RequestUse::Request)?.chat;
        }
        Ok(ParsedRequest { facts: Some(facts), chat })
    }
    /// Checks a caller's request and returns the facts that the relay needs.
    fn read_facts(&self, target: &RequestTarget, body: &[u8]) -> Result<RequestFacts, ApiError> {
        Ok(self.parse(target, body, RequestUse::Facts)?.facts.unwrap_or_default())
    }
    /// Reads a caller's request. Only a wrong type is an error.
    fn read_request(&self, target: &RequestTarget, body: &[u8]) -> Result<ChatRequest, ApiError> {
        Ok(*self.parse(target, body, RequestUse::Request)?.chat.unwrap_or_default())
    }
    /// Writes a request for a lane, with the losses of the translation.
    fn write_request(
        &self,
        chat: &ChatRequest,
        lane: &LaneSettings<'_>,
    ) -> Result<Lossy<ProviderRequest>, ApiError> {
        let write = self.functions().write_request;
        let own = self.traits();
        let unique = own.unique_call_ids.then(|| call_ids::with_unique_ids(chat)).flatten();
        let chat = unique.as_ref().unwrap_or(chat);
        let (shell, screen) = (own.own_shell.as_ref(), own.own_screen.as_ref());
        let taken = lane.client_tools;
        let fitted = client_tools::for_lane(chat, self.origin(), shell, screen, taken);
        let Some((chat, losses)) = fitted else {
            return write(chat, lane);
        };
        let (request, more) = write(&chat, lane)?;
        let losses: Losses = losses.into_vec().into_iter().chain(more).collect();
        Ok((request, losses.into_vec()))
    }
    /// Returns the reason that a request of the format cannot carry the media of a part in a turn of that
    /// role.
    fn media_problem(&self, part: &Part, media: &Media, role: Role) -> Option<MediaProblem> {
        (self.functions().media_problem)(part, media, role)
    }
    /// Reads a provider's whole reply.
    fn read_reply(&self, body: &[u8]) -> Result<ChatReply, ApiError> {
        (self.functions().read_reply)(body)
    }
    /// Writes a whole reply to the caller of `chat`.
    fn write_reply(
        &self,
        reply: ChatReply,
        chat: &ChatRequest,
        stamp: &ReplyStamp,
    ) -> Lossy<Vec<u8>> {
        (self.functions().write_reply)(reply, chat, stamp)
    }
    /// Returns a reader of a provider's stream.
    fn stream_reader(&self) -> Box<dyn StreamReader> {
        (self.functions().stream_reader)()
    }
    /// Returns a writer of a stream to the caller of `chat`.
    fn stream_writer(&self, chat: &ChatRequest, stamp: &ReplyStamp) -> Box<dyn StreamWriter> {
        (self.functions().stream_writer)(chat, stamp)
    }
    /// Reads a provider's error. `status` is never a success.
    fn read_error(&self, status: u16, body: &[u8]) -> ApiError {
        (self.functions().read_error)(status, body)
    }
    /// Writes an error: status and body.
    fn write_error(&self, fault: &ApiError, request_id: &str) -> (u16, Vec<u8>) {
        (self.functions().write_error)(fault, request_id)
    }
}

/// Pass-through: caller and provider use the same format, so the body is patched and not rebuilt.
pub trait PassThrough {
    /// Returns the caller's own bytes with the edits a lane needs.
    fn patch(&self, body: &Bytes, peek: &RequestFacts, lane: &LaneSettings<'_>) -> ProviderRequest;
    /// Meters a provider's whole reply. `Err` if it is not a reply of this format.
    fn meter_reply(&self, body: &[u8]) -> Result<ReplyMeter, ApiError>;
    /// Returns a provider's whole reply with the fields that the format documents and with the
    /// selected model, and with counts that official clients can read. The provider's own bytes are
    /// kept apart from that.
    fn complete_reply(&self, body: &Bytes, facts: &RequestFacts, stamp: &ReplyStamp) -> Bytes;
    /// Meters and completes a provider's whole reply.
    fn pass_reply(
        &self,
        body: &Bytes,
        facts: &RequestFacts,
        stamp: &ReplyStamp,
    ) -> Result<(ReplyMeter, Bytes), ApiError> {
        let meter = self.meter_reply(body)?;
        Ok((meter, self.complete_reply(body, facts, stamp)))
    }
    /// Returns a meter for a provider's stream. It completes the events in the same way.
    fn stream_meter(&self, peek: &RequestFacts) -> Box<dyn StreamMeter>;
    /// Writes the error event that ends a broken stream.
    fn write_abort(&self, fault: &ApiError, request_id: &str) -> Vec<u8>;
}

/// Facts of a request that the relay needs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestFacts {
    /// The requested model.
    pub model: String,
    /// True if the reply is to be streamed.
    pub stream: bool,
    /// True if the stream is to be one JSON array instead of events.
    pub json_array: bool,
    /// True if the stream is to report usage.
    pub wants_usage: bool,
    /// The requested maximum of output tokens.
    pub max_output_tokens: Option<u64>,
    /// Upper bound of the tokens of a predicted output. Those that the reply does not have are billed as
    /// output too (<https://platform.openai.com/docs/guides/predicted-outputs>).
    pub predicted_tokens: u64,
    /// The number of requested candidates, at least one.
    pub candidates: u32,
    /// The requested service tier.
    pub service_tier: Option<ServiceTier>,
    /// The tools that the provider runs.
    pub hosted_tools: HostedTools,
    /// Upper bound of the bytes that tools which the caller runs add to the prompt.
    pub client_tool_bytes: u64,
    /// True if the prompt has content of the provider's storage, of unknown size.
    pub reads_storage: bool,
    /// The number of items in the body whose content the provider takes from its storage: parts of its
    /// earlier replies.
    pub looked_up_items: u64,
    /// Positions in the body that a lane may patch.
    pub patch_points: PatchPoints,
    /// Edits that every lane of this format needs.
    pub edits: Vec<BodyEdit>,
    /// The body without the middle of its long texts.
    pub outline: BodyOutline,
    /// True if the request is known to hold only text, so that no code has to look for media.
    pub only_text: bool,
    /// True if the history has generated images in the form of replies, which no request has. They are
    /// moved to a message of the user.
    pub has_reply_images: bool,
    /// Losses of those edits: content of other providers in the history, which a provider of this
    /// format would refuse.
    pub losses: Losses,
    /// Needs of the request beyond text.
    pub needs: RequestNeeds,
    /// Session that the body names.
    pub session: Option<Box<str>>,
    /// End user and tags that the body names.
    pub labels: CallerLabels,
    /// Objects that the request names and that its caller does not own. The relay finds them, because
    /// it knows the owners.
    pub foreign_objects: Vec<ForeignObject>,
}

impl RequestFacts {
    /// Returns how often a model may read its prompt for this request: once for each candidate, and
    /// again after each use of a tool.
    pub fn max_rounds(&self) -> u64 {
        let uses = self.hosted_tools.max_uses();
        u64::from(self.candidates.max(1)).saturating_mul(uses.saturating_add(1))
    }

    /// Returns the output tokens that all candidates may be billed for, if each has that limit.
    pub fn max_output(&self, limit: u64) -> u64 {
        limit.saturating_add(self.predicted_tokens).saturating_mul(self.candidates.max(1).into())
    }

    /// Returns the edits of a lane: the model's name at the provider, and the output limit. A
    /// request without a limit gets the field of that name.
    pub(crate) fn lane_edits(&self, lane: &LaneSettings<'_>, limit_field: &str) -> Vec<BodyEdit> {
        let marks = &self.patch_points;
        let mut edits = self.edits.clone();
        if let Some(at) = &marks.model
            && self.model != lane.model
        {
            edits.push(BodyEdit {
                range: at.clone(),
                replacement: json::to_json_string(lane.model),
            });
        }
        if let Some(limit) = lane.max_payable_output {
            edits.push(match &marks.limit {
                Some(at) => BodyEdit { range: at.clone(), replacement: limit.to_string().into() },
                None => marks.insertion(format!("\"{limit_field}\":{limit},")),
            });
        }
        edits
    }
}

/// Positions in a body that may be patched, as byte ranges of values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PatchPoints {
    /// The position after the opening brace, where a field can be inserted.
    pub insert_at: usize,
    /// The model name.
    pub model: Option<Range<usize>>,
    /// The output limit.
    pub limit: Option<Range<usize>>,
    /// The stream options.
    pub stream_options: Option<Range<usize>>,
}

impl PatchPoints {
    /// Returns the edit that inserts fields.
    pub(crate) fn insertion(&self, fields: String) -> BodyEdit {
        BodyEdit { range: self.insert_at..self.insert_at, replacement: fields.into() }
    }

    /// Finds the opening brace of a body.
    pub(crate) fn locate(text: &str) -> Self {
        let open = text.find('{').map_or(0, |at| at + 1);
        Self { insert_at: open, ..Self::default() }
    }
}

/// Usage and end of a reply, as metered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReplyMeter {
    /// The reported usage; `None` if the reply reports none.
    pub usage: Option<Usage>,
    /// True if every candidate has a finish reason.
    pub is_finished: bool,
    /// The number of output bytes, to estimate missing usage.
    pub output_bytes: u64,
    /// True if the usage is an estimate and not the provider's count.
    pub is_estimated: bool,
    /// The service tier, if the reply reports it.
    pub service_tier: Option<ServiceTier>,
}

impl ReplyMeter {
    /// Adds an event of a translated stream.
    pub fn add_event(&mut self, event: &Event) {
        match event {
            Event::Usage(usage) => self.usage = Some(*usage),
            Event::PartDelta(_, PartDelta::Text(text)) => self.output_bytes += text.len() as u64,
            Event::PartStart(_, PartStart::Complete(part)) => {
                self.output_bytes += part.output_bytes() as u64;
            }
            Event::PartStart(_, PartStart::ToolCall { name, .. }) => {
                self.output_bytes += name.len() as u64;
            }
            Event::Extra { .. } => {
                self.service_tier = event_tier(event).or(self.service_tier.take());
            }
            Event::Start { .. }
            | Event::PartStart(..)
            | Event::PartDelta(..)
            | Event::PartSignature(..)
            | Event::PartEnd(_)
            | Event::Finish { .. }
            | Event::Error(_) => {}
        }
    }

    /// Returns the output bytes of a whole reply: the number of `texts`, which is quick to find, or,
    /// if they decide what is paid, what a reader of the reply finds.
    pub(crate) fn reply_output_bytes(
        dialect: &dyn Dialect,
        body: &[u8],
        usage: Option<Usage>,
        texts: u64,
    ) -> u64 {
        if usage.is_some_and(|usage| usage.output > 0) {
            return texts;
        }
        dialect.read_reply(body).map_or(texts, |reply| Self::of_reply(&reply).output_bytes)
    }

    /// Meters a whole reply that was read.
    pub fn of_reply(reply: &ChatReply) -> Self {
        let parts = reply.candidates.iter().flat_map(|candidate| &candidate.parts);
        Self {
            usage: reply.usage,
            is_finished: reply.candidates.iter().all(|candidate| candidate.finish.is_some()),
            output_bytes: parts.map(|part| part.output_bytes() as u64).sum(),
            is_estimated: false,
            service_tier: extras_tier(&reply.extras),
        }
    }
}

/// The action to take on a stream frame.
#[derive(Clone, Debug, PartialEq)]
pub enum FrameAction {
    /// Forward the frame unchanged.
    Forward,
    /// Drop the frame.
    Drop,
    /// Forward the frame and end the stream.
    Last,
    /// The provider reported an error.
    Error(ApiError),
}

/// Meters a stream of its own format.
pub trait StreamMeter: Send {
    /// Takes the next frame.
    fn observe(&mut self, frame: &StreamFrame) -> FrameAction {
        self.read(frame).unwrap_or_else(FrameAction::Error)
    }
    /// Reads the next frame, or returns the error that ends the stream.
    fn read(&mut self, frame: &StreamFrame) -> Result<FrameAction, ApiError>;
    /// Takes the first of these events that differ from the one before only in their text, and writes
    /// them for the caller. Returns their length.
    fn repeat(&mut self, _events: &[u8], _out: &mut Vec<u8>) -> usize {
        0
    }
    /// Writes the frame for the caller, in this format's framing.
    fn write(&self, frame: &StreamFrame, out: &mut Vec<u8>);
    /// Writes the end marker of a complete stream whose provider left it out. Writes nothing if the
    /// last event is the end.
    fn write_end(&self, _out: &mut Vec<u8>) {}
    /// Ends a reply that the gateway stops, as if it had reached its output limit. `usage` is the
    /// billed usage.
    fn write_truncated(&mut self, usage: &Usage, out: &mut Vec<u8>);
    /// Returns the totals so far.
    fn totals(&self) -> &ReplyMeter;
    /// Returns the error event of a broken stream, if it differs from that of the caller's format.
    fn abort_event(&self, _fault: &ApiError) -> Option<Vec<u8>> {
        None
    }
}

/// Turns a provider's stream into events.
pub trait StreamReader: Send {
    /// Takes the next frame.
    fn push(&mut self, frame: &StreamFrame, out: &mut Vec<Event>) -> Result<(), ApiError>;
    /// Takes the texts of the first of these events that differ from the one before only in their text.
    /// Returns the length of these events.
    fn repeat(&mut self, _events: &[u8], _run: &mut TextRun) -> usize {
        0
    }
    /// Ends the stream with the provider's body: adds a missing end, or returns an error if the
    /// stream broke off.
    fn finish(&mut self, out: &mut Vec<Event>) -> Result<(), ApiError>;
    /// Returns true if the stream is complete and nothing more is expected.
    fn is_done(&self) -> bool;
}

/// Turns events into a stream for a caller.
pub trait StreamWriter: Send {
    /// Appends the framed output of an event to `out`.
    fn push(&mut self, event: Event, out: &mut Vec<u8>);
    /// Appends the framed output of texts that grow a part.
    fn push_run(&mut self, run: &TextRun, out: &mut Vec<u8>) {
        run.events().for_each(|event| self.push(event, out));
    }
    /// Writes the end of the stream and returns the losses.
    fn finish(&mut self, out: &mut Vec<u8>) -> Vec<Loss>;
}

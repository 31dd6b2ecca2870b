//! The traits that every wire format implements.

use bytes::Bytes;
use canon::{Chat, Event, Fault, Loss, Losses, Lossy, Origin, Reply, Tier, Usage};
use memchr::memmem::Finder;
use std::ops::Range;

use crate::frame::Frame;
use crate::json::{self, Edit, Segments};
use crate::steering::Steering;

/// Facts of a request that stand in its path and headers, not in its body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// The model, if the path names it.
    pub model: Option<String>,
    /// True if the path asks for a stream.
    pub stream: bool,
    /// True if that stream is one JSON array instead of events.
    pub array: bool,
    /// True if the model may think between tool calls, so that its budget may exceed the output
    /// limit.
    pub interleaved: bool,
}

/// The settings of one lane (a model at a provider) for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lane<'a> {
    /// The model's name at the provider.
    pub model: &'a str,
    /// The maximum output tokens the caller can pay for, if that is less than requested.
    pub limit: Option<u64>,
    /// The maximum output tokens of the model, for formats in which a limit is required.
    pub max_output: Option<u64>,
    /// The thinking controls of the model; `None` if they are not known.
    pub steering: Option<&'a Steering>,
}

/// A request to a provider: the path below the provider's base URL, and the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Path and query, such as `/v1/chat/completions`.
    pub path: String,
    /// The body.
    pub body: Segments,
}

/// Id and time of a reply, used where the provider gave none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// A random word, unique per reply. Each format adds its own prefix.
    pub id: String,
    /// Seconds since 1970.
    pub created: i64,
}

/// The means a format has to end a reply early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// The maximum number of stop texts.
    pub stop_texts: usize,
    /// True if the reply reports which stop text ended it.
    pub tells_stop: bool,
    /// The smallest output limit.
    pub least_output: u64,
}

/// One wire format, translated through `canon`.
pub trait Dialect: Passage + Send + Sync {
    /// Returns the origin of this format.
    fn origin(&self) -> Origin;
    /// Returns the means to end a reply early.
    fn ends(&self) -> Ends;
    /// Returns the headers of every request to a provider, unless the caller's own are forwarded.
    fn headers(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }
    /// Reads a caller's request. Lenient: only a violated rule is an error.
    fn read_request(&self, target: &Target, body: &[u8]) -> Result<Chat, Fault>;
    /// Writes a request for a lane, with the losses of the translation.
    fn write_request(&self, chat: &Chat, lane: &Lane<'_>) -> Result<Lossy<Outgoing>, Fault>;
    /// Reads a provider's whole reply.
    fn read_reply(&self, body: &[u8]) -> Result<Reply, Fault>;
    /// Writes a whole reply to the caller of `chat`.
    fn write_reply(&self, reply: Reply, chat: &Chat, stamp: &Stamp) -> Lossy<Vec<u8>>;
    /// Returns a reader of a provider's stream.
    fn reader(&self) -> Box<dyn Reader>;
    /// Returns a writer of a stream to the caller of `chat`.
    fn writer(&self, chat: &Chat, stamp: &Stamp) -> Box<dyn Writer>;
    /// Reads a provider's error. `status` is never a success.
    fn read_fault(&self, status: u16, body: &[u8]) -> Fault;
    /// Writes an error: status and body.
    fn write_fault(&self, fault: &Fault, request_id: &str) -> (u16, Vec<u8>);
}

/// Pass-through: caller and provider use the same format, so the body is patched and not rebuilt.
pub trait Passage {
    /// Checks a caller's request in one pass and returns the facts that the relay needs.
    fn peek(&self, target: &Target, body: &[u8]) -> Result<Peek, Fault>;
    /// Returns the caller's own bytes with the edits a lane needs.
    fn patch(&self, body: &Bytes, peek: &Peek, lane: &Lane<'_>) -> Outgoing;
    /// Meters a provider's whole reply. `Err` if it is not a reply of this format.
    fn sniff_reply(&self, body: &[u8]) -> Result<Said, Fault>;
    /// Returns a meter for a provider's stream.
    fn sniffer(&self, peek: &Peek) -> Box<dyn Sniffer>;
    /// Writes the error event that ends a broken stream.
    fn break_off(&self, fault: &Fault, request_id: &str) -> Vec<u8>;
    /// Returns the caller's headers that are forwarded to a provider of the same format, because
    /// they change the meaning of the body.
    fn hands_on(&self) -> &'static [&'static str] {
        &[]
    }
    /// Returns bytes that keep a silent stream alive and that clients ignore.
    fn keep_alive(&self) -> &'static [u8];
}

/// Facts of a request that the relay needs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Peek {
    /// The requested model.
    pub model: String,
    /// True if the reply is to be streamed.
    pub stream: bool,
    /// True if the stream is to be one JSON array instead of events.
    pub array: bool,
    /// True if the stream is to report usage.
    pub wants_usage: bool,
    /// The requested maximum of output tokens.
    pub max_output: Option<u64>,
    /// The number of requested candidates, at least one.
    pub candidates: u32,
    /// The requested service tier.
    pub tier: Option<Tier>,
    /// The maximum number of searches the provider may run; zero if no search tool is offered.
    pub searches: u64,
    /// Positions in the body that a lane may patch.
    pub marks: Marks,
    /// Edits that every lane of this format needs.
    pub edits: Vec<Edit>,
    /// True if the request is known to hold only text, so that no code has to look for media.
    pub only_text: bool,
    /// Losses of those edits: content of other providers in the history, which a provider of this
    /// format would refuse.
    pub losses: Losses,
}

/// Positions in a body that may be patched, as byte ranges of values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// The position after the opening brace, where a field can be inserted.
    pub open: usize,
    /// True if the object has no fields, so that an inserted field needs no comma.
    pub empty: bool,
    /// The model name.
    pub model: Option<Range<usize>>,
    /// The output limit.
    pub limit: Option<Range<usize>>,
    /// The stream options.
    pub stream_options: Option<Range<usize>>,
}

impl Marks {
    /// Finds the opening brace of a body.
    pub(crate) fn of(text: &str) -> Self {
        let open = text.find('{').map_or(0, |at| at + 1);
        let empty = text.get(open..).is_some_and(|rest| rest.trim_start().starts_with('}'));
        Self { open, empty, ..Self::default() }
    }
}

/// Usage and end of a reply, as metered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Said {
    /// The reported usage; `None` if the reply reports none.
    pub usage: Option<Usage>,
    /// True if every candidate has a finish reason.
    pub finished: bool,
    /// The number of output bytes, to estimate missing usage.
    pub output_bytes: u64,
    /// True if the usage is an estimate and not the provider's count.
    pub estimated: bool,
    /// The service tier, if the reply reports it.
    pub tier: Option<Tier>,
}

/// The assumed maximum of searches for a call that may search and sets no limit. A provider may run
/// more; the operator pays for those, not the key.
pub(crate) const SEARCHES: u64 = 10;
impl Said {
    /// Returns the output bytes of a whole reply. They are counted only if the provider reports no
    /// usage, or more tokens than the reply has bytes. Otherwise the length of the reply is enough.
    pub(crate) fn bytes(usage: Option<Usage>, answer: &str, keys: &[Finder<'_>]) -> u64 {
        let most = answer.len() as u64;
        match usage {
            Some(usage) if (1..=most).contains(&usage.output) => most,
            Some(_) | None => json::said_bytes(answer.as_bytes(), keys),
        }
    }
}

/// The action to take on a stream frame.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Forward the frame unchanged.
    Forward,
    /// Drop the frame.
    Swallow,
    /// Forward the frame and end the stream.
    Last,
    /// The provider reported an error.
    Fault(Fault),
}

/// Meters a stream of its own format.
pub trait Sniffer: Send {
    /// Takes the next frame.
    fn frame(&mut self, frame: &Frame) -> Verdict;
    /// Writes the frame for the caller, in this format's framing.
    fn write(&self, frame: &Frame, out: &mut Vec<u8>);
    /// Writes the end marker of a complete stream whose provider left it out. Writes nothing if the
    /// last event is the end.
    fn write_end(&self, _out: &mut Vec<u8>) {}
    /// Ends a reply that the gateway stops, as if it had reached its output limit. `usage` is the
    /// billed usage.
    fn cut(&mut self, usage: &Usage, out: &mut Vec<u8>);
    /// Returns the totals so far.
    fn said(&self) -> &Said;
    /// Returns the error event of a broken stream, if it differs from that of the caller's format.
    fn last_words(&self, _fault: &Fault) -> Option<Vec<u8>> {
        None
    }
}

/// Turns a provider's stream into events.
pub trait Reader: Send {
    /// Takes the next frame.
    fn push(&mut self, frame: &Frame, out: &mut Vec<Event>) -> Result<(), Fault>;
    /// Ends the stream with the provider's body: adds a missing end, or returns an error if the
    /// stream broke off.
    fn finish(&mut self, out: &mut Vec<Event>) -> Result<(), Fault>;
    /// Returns true if the stream is complete and nothing more is expected.
    fn is_done(&self) -> bool;
}

/// Turns events into a stream for a caller.
pub trait Writer: Send {
    /// Appends the framed output of an event to `out`.
    fn push(&mut self, event: Event, out: &mut Vec<u8>);
    /// Writes the end of the stream and returns the losses.
    fn finish(&mut self, out: &mut Vec<u8>) -> Vec<Loss>;
}

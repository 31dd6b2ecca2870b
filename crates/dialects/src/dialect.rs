//! The traits of translation: what every wire format can do.

use bytes::Bytes;
use canon::{Chat, Event, Fault, Loss, Losses, Lossy, Origin, Reply, Tier, Usage};
use memchr::memmem::Finder;
use std::ops::Range;

use crate::frame::Frame;
use crate::json::{self, Edit, Segments};
use crate::steering::Steering;

/// What the address and the headers of a request say besides its body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// The model, where the path names it.
    pub model: Option<String>,
    /// Whether the path asks for a stream.
    pub stream: bool,
    /// Whether that stream is one JSON array instead of events.
    pub array: bool,
    /// Whether the model may think between calls, so that its budget may be larger than an answer.
    pub interleaved: bool,
}

/// One lane's own words for what is asked of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lane<'a> {
    /// The model's name at the provider.
    pub model: &'a str,
    /// The most output tokens the caller can pay for, when that is less than it asked for.
    pub limit: Option<u64>,
    /// The most output tokens the model can give, for formats in which a limit is required.
    pub max_output: Option<u64>,
    /// How the model lets its thinking be steered; `None` when that is not known.
    pub steering: Option<&'a Steering>,
}

/// A request as it goes to a provider: the path behind the provider's base, and the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Path and query, such as `/v1/chat/completions`.
    pub path: String,
    /// The body.
    pub body: Segments,
}

/// What a reply written by us is stamped with, where the upstream gave nothing of the kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// A random word, unique per reply; each format puts its own prefix before it.
    pub id: String,
    /// Seconds since 1970.
    pub created: i64,
}

/// How far a provider of a format can be told where an answer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// How many stop texts it takes.
    pub stop_texts: usize,
    /// Whether it says which stop text it met.
    pub tells_stop: bool,
    /// The lowest output limit it takes.
    pub least_output: u64,
}

/// One wire format, translated through `canon`.
pub trait Dialect: Passage + Send + Sync {
    /// Which format this is.
    fn origin(&self) -> Origin;
    /// How far its providers can be told where an answer ends.
    fn ends(&self) -> Ends;
    /// Headers every request of this format to a provider carries, unless the caller's own are
    /// handed on.
    fn headers(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }
    /// A caller's request into canon. Lenient: only what breaks a rule is a fault.
    fn read_request(&self, target: &Target, body: &[u8]) -> Result<Chat, Fault>;
    /// Canon into a request for a lane, with what the format could not carry.
    fn write_request(&self, chat: &Chat, lane: &Lane<'_>) -> Result<Lossy<Outgoing>, Fault>;
    /// A provider's whole answer into canon.
    fn read_reply(&self, body: &[u8]) -> Result<Reply, Fault>;
    /// Canon into a whole answer for the caller whose request that was.
    fn write_reply(&self, reply: Reply, chat: &Chat, stamp: &Stamp) -> Lossy<Vec<u8>>;
    /// A provider's stream into events.
    fn reader(&self) -> Box<dyn Reader>;
    /// Events into a stream for the caller whose request that was.
    fn writer(&self, chat: &Chat, stamp: &Stamp) -> Box<dyn Writer>;
    /// A provider's error into a fault; `status` is never a success.
    fn read_fault(&self, status: u16, body: &[u8]) -> Fault;
    /// A fault into this format's error: status and body.
    fn write_fault(&self, fault: &Fault, request_id: &str) -> (u16, Vec<u8>);
}

/// The road on which caller and provider speak the same format: no tree, no rebuilt body.
pub trait Passage {
    /// One pass over a caller's request: what the flow must know, and the format's rules.
    fn peek(&self, target: &Target, body: &[u8]) -> Result<Peek, Fault>;
    /// The caller's own bytes with the few edits a lane needs.
    fn patch(&self, body: &Bytes, peek: &Peek, lane: &Lane<'_>) -> Outgoing;
    /// What a provider's whole answer says of itself. `Err` when it is no answer of this format.
    fn sniff_reply(&self, body: &[u8]) -> Result<Said, Fault>;
    /// Watches a provider's stream go by.
    fn sniffer(&self, peek: &Peek) -> Box<dyn Sniffer>;
    /// The last words of a stream that broke, as the format's clients need them.
    fn break_off(&self, fault: &Fault, request_id: &str) -> Vec<u8>;
    /// Headers of a caller that a provider of the same format is given, because they change what
    /// the body means.
    fn hands_on(&self) -> &'static [&'static str] {
        &[]
    }
    /// What keeps a silent stream alive without any client taking it for an answer.
    fn keep_alive(&self) -> &'static [u8];
}

/// What the flow must know of a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Peek {
    /// The model asked for.
    pub model: String,
    /// Whether the answer is to come in pieces.
    pub stream: bool,
    /// Whether the stream is to be one JSON array instead of events.
    pub array: bool,
    /// Whether the stream is to tell its usage.
    pub wants_usage: bool,
    /// The most output tokens asked for.
    pub max_output: Option<u64>,
    /// How many answers are asked for; at least one.
    pub candidates: u32,
    /// The service tier asked for.
    pub tier: Option<Tier>,
    /// How many searches the provider may run for it: none where no search is offered.
    pub searches: u64,
    /// Where in the body the things stand that a lane may change.
    pub marks: Marks,
    /// Edits every lane of this format needs.
    pub edits: Vec<Edit>,
    /// Whether it is known to hold nothing but text, so that nobody need look for anything else.
    pub only_text: bool,
    /// What those edits take away: things of other providers' in the history, which this format's
    /// own would refuse.
    pub losses: Losses,
}

/// Places in a body, as byte ranges of values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Just behind the opening brace, where a field can be added.
    pub open: usize,
    /// Whether the object has no fields, so that an added one needs no comma.
    pub empty: bool,
    /// The model's name.
    pub model: Option<Range<usize>>,
    /// The output limit.
    pub limit: Option<Range<usize>>,
    /// The options of the stream.
    pub stream_options: Option<Range<usize>>,
}

impl Marks {
    /// Where the object of a body begins.
    pub(crate) fn of(text: &str) -> Self {
        let open = text.find('{').map_or(0, |at| at + 1);
        let empty = text.get(open..).is_some_and(|rest| rest.trim_start().starts_with('}'));
        Self { open, empty, ..Self::default() }
    }
}

/// What an answer says of itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Said {
    /// What it consumed; `None` when it does not tell.
    pub usage: Option<Usage>,
    /// Whether every candidate gave a reason for its end.
    pub finished: bool,
    /// How many bytes of output it holds, for an estimate where usage is missing.
    pub output_bytes: u64,
    /// Whether the usage is not the provider's own count.
    pub estimated: bool,
    /// The service tier it was served in, if it tells.
    pub tier: Option<Tier>,
}

/// How many searches a call is taken to run that may search and does not say how often. Nobody can
/// stop a provider from running more; those are the operator's to pay, not the key's.
pub(crate) const SEARCHES: u64 = 10;
impl Said {
    /// How many bytes of output there are in a whole answer. They are looked for only where the
    /// provider does not count them, or counts more than there can be: elsewhere it is enough that
    /// there are some.
    pub(crate) fn bytes(usage: Option<Usage>, answer: &str, keys: &[Finder<'_>]) -> u64 {
        let most = answer.len() as u64;
        match usage {
            Some(usage) if (1..=most).contains(&usage.output) => most,
            Some(_) | None => json::said_bytes(answer.as_bytes(), keys),
        }
    }
}

/// What is to become of a piece of a stream.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It goes out as it is.
    Forward,
    /// It was only for us.
    Swallow,
    /// It goes out, and nothing follows.
    Last,
    /// The provider reports an error.
    Fault(Fault),
}

/// Watches a stream of its own format go by and keeps count.
pub trait Sniffer: Send {
    /// Takes the next piece.
    fn frame(&mut self, frame: &Frame) -> Verdict;
    /// Writes the piece for the caller, with this format's framing.
    fn write(&self, frame: &Frame, out: &mut Vec<u8>);
    /// Writes the end of a stream whose provider said everything but left its end marker out;
    /// nothing where the last event is the end.
    fn write_end(&self, _out: &mut Vec<u8>) {}
    /// Ends an answer that the gateway lets go on no longer, as one that reached its output limit;
    /// `usage` is what it is billed by.
    fn cut(&mut self, usage: &Usage, out: &mut Vec<u8>);
    /// What was said so far.
    fn said(&self) -> &Said;
    /// The last words of a stream that broke, where they are not those of the caller's format.
    fn last_words(&self, _fault: &Fault) -> Option<Vec<u8>> {
        None
    }
}

/// Turns a provider's stream into events.
pub trait Reader: Send {
    /// Takes the next piece.
    fn push(&mut self, frame: &Frame, out: &mut Vec<Event>) -> Result<(), Fault>;
    /// The provider's body has ended: makes up for a missing end, or tells that it broke off.
    fn finish(&mut self, out: &mut Vec<Event>) -> Result<(), Fault>;
    /// Whether the stream is complete, so that nothing more need be waited for.
    fn is_done(&self) -> bool;
}

/// Turns events into a stream for a caller.
pub trait Writer: Send {
    /// Writes what the event shows, framed, at the end of `out`.
    fn push(&mut self, event: Event, out: &mut Vec<u8>);
    /// Writes the end of the stream and tells what it could not show.
    fn finish(&mut self, out: &mut Vec<u8>) -> Vec<Loss>;
}

//! The fault table: one row per fault, with the outcome of a whole call and of a stream.

use canon::WireFormat;

use crate::faults::expectations::{Break, Refusal};

/// Outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// Answered in full; the provider's own counts are charged.
    Full,
    /// Answered in full; our own counts are charged, and say so.
    Counted,
    /// Answered, with a sign where bytes could not be read; the provider's counts are charged.
    Mended,
    /// Refused before any model can have worked on it; nothing is charged.
    Refused(Refusal),
    /// Refused after the provider had taken the call; what it may cost is the operator's.
    Lost(Refusal),
    /// Broken off after some output, which is charged.
    Broken(Break),
    /// Broken off before there was any output; nothing is charged, and the operator bears the input.
    Void(Break),
}

/// The kind of request, besides what the row's fault needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    /// A text.
    Text,
    /// A call of a tool.
    Call,
    /// Two answers at once; this many come.
    Two(usize),
}

/// An exception: by the provider's format, and by the caller's where that matters; nothing is
/// wanted where the format cannot show the fault.
pub(crate) type But = (Option<WireFormat>, WireFormat, Option<Want>);

/// One fault.
pub(crate) struct Row {
    /// The order, as `portunus simulate` takes it.
    pub(crate) fault: &'static str,
    /// Outcome of a whole call.
    pub(crate) whole: Option<Want>,
    /// Outcome of a stream.
    pub(crate) stream: Option<Want>,
    /// Exceptions for streams; the first that fits holds.
    pub(crate) but: &'static [But],
    /// Outcome of a call for embeddings, where it differs from a whole call.
    pub(crate) vectors: Option<Option<Want>>,
    /// The kind of request.
    pub(crate) asks: Asks,
}

impl Row {
    /// Outcome of a call, if the fault applies to it.
    pub(crate) fn want(
        &self,
        caller: WireFormat,
        upstream: WireFormat,
        stream: bool,
    ) -> Option<Want> {
        if !stream {
            return self.whole;
        }
        let other = self
            .but
            .iter()
            .find(|(from, to, _)| from.is_none_or(|origin| origin == caller) && *to == upstream);
        other.map_or(self.stream, |(_, _, want)| *want)
    }

    const fn but(self, but: &'static [But]) -> Self {
        Self { but, ..self }
    }

    const fn vectors(self, want: Option<Want>) -> Self {
        Self { vectors: Some(want), ..self }
    }

    const fn asking(self, asks: Asks) -> Self {
        Self { asks, ..self }
    }
}

const fn row(fault: &'static str, whole: Option<Want>, stream: Option<Want>) -> Row {
    Row { fault, whole, stream, but: &[], vectors: None, asks: Asks::Text }
}

/// The same for whole calls and streams.
const fn both(fault: &'static str, want: Want) -> Row {
    row(fault, Some(want), Some(want))
}

const fn each(fault: &'static str, whole: Want, stream: Want) -> Row {
    row(fault, Some(whole), Some(stream))
}

/// Only where the answer is a stream.
const fn streamed(fault: &'static str, stream: Want) -> Row {
    row(fault, None, Some(stream))
}

const fn whole(fault: &'static str, whole: Want) -> Row {
    row(fault, Some(whole), None)
}

const FULL: Want = Want::Full;
const DOWN: Want = Want::Refused(Refusal::Down);
const LOST: Want = Want::Lost(Refusal::Down);
const LATE: Want = Want::Lost(Refusal::Late);
const SAID_LATE: Want = Want::Refused(Refusal::Late);
const RATE: Want = Want::Refused(Refusal::Rate);
const INVALID: Want = Want::Refused(Refusal::Invalid);
const CUT: Want = Want::Broken(Break::Cut);
const STALLED: Want = Want::Broken(Break::Late);

/// Formats whose last event is also the one that says why the answer ended.
const LAST_IS_ALL: &[But] =
    &[(None, WireFormat::Responses, Some(CUT)), (None, WireFormat::Native, Some(CUT))];
/// Outcome of a stream of one piece: native begins with words; the first event of a chat stream has
/// nothing to show to a native caller.
const ONE_PIECE: &[But] = &[
    (None, WireFormat::Native, Some(CUT)),
    (Some(WireFormat::Native), WireFormat::Chat, Some(LOST)),
];

/// Native has a call in one piece, which cannot break: neither on its way in nor on its way out.
const IN_A_CALL: &[But] =
    &[(None, WireFormat::Native, None), (Some(WireFormat::Native), WireFormat::Chat, Some(LOST))];

/// Faults that only HTTP/2 has.
pub(crate) const H2_ROWS: &[Row] = &[
    both("slow wait=0ms", FULL),
    // Refused, or above the last stream id of GOAWAY: it was not processed (RFC 9113, 6.8).
    both("h2-refused", DOWN),
    both("h2-goaway last=below", DOWN),
    both("h2-goaway", FULL),
    both("h2-calm", Want::Lost(Refusal::Down)),
    each("h2-reset after=0", LOST, LOST),
    each("h2-reset after=7", LOST, CUT),
    each("stall-between after=7", LATE, STALLED),
    both("stall", LATE),
    both("status code=529", DOWN),
    each("trailers", LOST, FULL),
];

pub(crate) const ROWS: &[Row] = &[
    both("slow wait=0ms", FULL),
    // Faults of connections.
    both("reset", LOST),
    both("reset-request", LOST),
    both("close", LOST),
    both("garbage", LOST),
    both("blackhole", LATE),
    // Faults of time.
    both("stall wait=300ms", FULL),
    both("stall", LATE),
    both("stall-between wait=300ms", FULL),
    each("stall-between after=7", LATE, STALLED),
    each("stall-between after=0", LATE, LATE),
    both("slow wait=3ms", FULL),
    whole("slow wait=1s", LATE),
    streamed("slow wait=300ms", STALLED),
    // Faults at the end of an answer.
    each("reset-after after=0", LOST, LOST),
    each("reset-after after=1", LOST, Want::Void(Break::Cut)).but(ONE_PIECE),
    each("reset-after after=7", LOST, CUT),
    each("truncate after=0", LOST, LOST),
    each("truncate after=7", LOST, CUT),
    each("end-early after=0", DOWN, DOWN),
    each("end-early after=7", LOST, CUT),
    each("length-lie", LOST, FULL),
    each("no-end", LOST, FULL).but(LAST_IS_ALL),
    streamed("no-finish after=7", CUT)
        .but(&[(None, WireFormat::Responses, None), (None, WireFormat::Native, None)]),
    each("done-twice", LOST, FULL),
    each("after-done", LOST, FULL),
    each("finish-silence", LATE, FULL).but(&[
        (None, WireFormat::Responses, Some(STALLED)),
        (None, WireFormat::Native, Some(STALLED)),
    ]),
    each("trailers", LOST, FULL),
    both("extra", FULL),
    // Faults in the splitting of an answer.
    each("bad-json after=7", LOST, CUT),
    each("bad-json after=0", LOST, LOST),
    each("bad-utf8", LOST, Want::Mended).vectors(Some(FULL)),
    streamed("bad-event", FULL),
    streamed("unknown-event", FULL),
    streamed("error-event after=7 kind=overloaded", Want::Broken(Break::Down)),
    streamed("error-event after=7 kind=rate", Want::Broken(Break::Rate)),
    streamed("error-event after=0 kind=overloaded", DOWN),
    streamed("error-event after=0 kind=rate", RATE),
    streamed("shred", FULL),
    both("shred size=7", FULL),
    streamed("dress how=crlf", FULL),
    streamed("dress how=cr", FULL),
    streamed("dress how=bom", FULL),
    streamed("dress how=nospace", FULL),
    streamed("dress how=multi", FULL),
    streamed("dress how=comments", FULL),
    streamed("dress how=fields", FULL),
    streamed("giant-frame after=7", CUT),
    streamed("endless-line after=7 size=9MiB", CUT),
    streamed("empty-lines after=7 count=200000", CUT).but(&[(
        None,
        WireFormat::Native,
        Some(FULL),
    )]),
    // Tool calls, and numbers of candidates.
    both("slow wait=1ms", FULL).asking(Asks::Call),
    both("bad-arguments", FULL).asking(Asks::Call),
    streamed("truncate after=9", CUT).but(IN_A_CALL).asking(Asks::Call),
    streamed("end-early after=9", CUT).but(IN_A_CALL).asking(Asks::Call),
    whole("choices count=1", FULL).asking(Asks::Two(1)),
    whole("choices count=2", FULL).asking(Asks::Two(2)),
    whole("choices count=3", FULL).asking(Asks::Two(3)),
    // Faults of usage.
    both("no-usage", Want::Counted),
    both("zero-usage", Want::Counted),
    both("huge-usage", Want::Counted),
    // Error statuses.
    both("status code=400", INVALID),
    both("status code=401", DOWN),
    both("status code=402", DOWN),
    both("status code=403", DOWN),
    both("status code=404", DOWN),
    both("status code=408", SAID_LATE),
    both("status code=409", DOWN),
    both("status code=413", Want::Refused(Refusal::TooLarge)),
    both("status code=422", INVALID),
    both("status code=425", DOWN),
    both("status code=429", RATE),
    both("status code=429 hint=seconds", RATE),
    both("status code=429 hint=ms", RATE),
    both("status code=429 hint=date", RATE),
    both("status code=429 hint=past", RATE),
    both("status code=429 hint=far", RATE),
    both("status code=429 hint=malformed", RATE),
    both("status code=429 hint=negative", RATE),
    both("status code=429 hint=reset", RATE),
    both("status code=429 hint=delay", RATE),
    both("status code=429 hint=rfc3339", RATE),
    both("status code=429 body=html", RATE),
    both("status code=500", DOWN),
    both("status code=500 body=html", DOWN),
    both("status code=502 body=html", DOWN),
    both("status code=503 hint=seconds", DOWN),
    both("status code=503 body=text", DOWN),
    both("status code=504 body=html", SAID_LATE),
    both("status code=529", DOWN),
    both("status code=529 hint=seconds body=empty", DOWN),
    both("status code=204", DOWN),
    both("status code=205 body=empty", DOWN),
    both("status code=206", DOWN),
    both("status code=304", DOWN),
    both("redirect code=301", DOWN),
    both("redirect code=302", DOWN),
    both("redirect code=303", DOWN),
    both("redirect code=307", DOWN),
    both("redirect code=308", DOWN),
    // An unreadable head does not say whether the request was processed.
    both("bad-status line=99", LOST),
    both("bad-status line=600", DOWN),
    both("bad-status line=000", LOST),
    both("bad-status line=abc", LOST),
    both("interim code=103", FULL),
    both("interim code=100 count=10", FULL),
    both("interim code=102 count=10", FULL),
    // Answers in the wrong format.
    both("error-body kind=overloaded", DOWN),
    both("error-body kind=rate", RATE),
    both("error-body kind=invalid", INVALID),
    both("error-body kind=auth", DOWN),
    both("empty", DOWN),
    both("wrong-shape", LOST),
    both("not-json", LOST),
    both("html", DOWN),
    // Faults of heads.
    each("swap", LOST, FULL).vectors(None),
    streamed("type is=json", FULL),
    whole("type is=sse", FULL),
    both("type is=text", FULL),
    both("type is=none", FULL),
    both("type is=html", DOWN),
    both("big-header", LOST),
    both("many-headers", LOST),
    both("bad-header", LOST),
    // Requests on a pooled connection that the provider has just closed.
    both("stale", FULL),
    // Answers in a coding that was not asked for, and answers that lie about their coding.
    both("gzip how=piece", FULL),
    both("gzip how=end", FULL),
    both("gzip how=lie", LOST),
    both("encoding", LOST),
];

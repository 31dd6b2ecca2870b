//! Table of all faults: name, parameters, description. A new fault is a row and a function.

use super::order::{FaultOrder, OrderError};
use super::proper_answer::ProperAnswer;
use super::script::AnswerScript;
use super::{answers, connection, heads, streams};

/// One fault.
#[derive(Debug)]
pub(super) struct FaultEntry {
    /// Name of the fault in an order.
    pub(super) name: &'static str,
    /// Accepted parameters.
    pub(super) takes: &'static [&'static str],
    /// Description in one sentence.
    pub(super) about: &'static str,
    /// Builds the fault from the proper answer.
    pub(super) make: fn(&FaultOrder, ProperAnswer) -> Result<AnswerScript, OrderError>,
}

const fn row(
    name: &'static str,
    takes: &'static [&'static str],
    about: &'static str,
    make: fn(&FaultOrder, ProperAnswer) -> Result<AnswerScript, OrderError>,
) -> FaultEntry {
    FaultEntry { name, takes, about, make }
}

/// The fault that stops reading a request right after its order.
pub(super) const RESET_REQUEST: &str = "reset-request";
/// The fault that stops reading in the middle of a request.
pub(super) const STALL_REQUEST: &str = "stall-request";
/// The fault that streams where a complete answer was requested, and the reverse.
pub(super) const SWAP: &str = "swap";

/// All faults.
pub(super) const ALL: &[FaultEntry] = &[
    // Connections.
    row(
        "refuse",
        &["for"],
        "resets the connection and accepts no new one for `for` (2s)",
        connection::refuse,
    ),
    row(
        RESET_REQUEST,
        &[],
        "resets the connection while the request is still arriving",
        connection::reset,
    ),
    row(
        STALL_REQUEST,
        &[],
        "stops reading while the request is still arriving, and never answers",
        connection::blackhole,
    ),
    row(
        "reset",
        &[],
        "resets the connection after the request, before any answer",
        connection::reset,
    ),
    row(
        "close",
        &[],
        "closes the connection after the request, before any answer",
        connection::close,
    ),
    row("blackhole", &[], "reads the request and never answers", connection::blackhole),
    row("stale", &[], "answers properly, then closes a keep-alive connection", connection::stale),
    row("garbage", &[], "answers with bytes that are not HTTP", connection::garbage),
    row("h2-refused", &[], "HTTP/2: refuses the stream (REFUSED_STREAM)", connection::h2_refused),
    row("h2-calm", &[], "HTTP/2: refuses the stream (ENHANCE_YOUR_CALM)", connection::h2_calm),
    row(
        "h2-goaway",
        &["last"],
        "HTTP/2: sends GOAWAY, then answers; with `last=below` it does not process this stream",
        connection::h2_goodbye,
    ),
    row(
        "h2-reset",
        &["after"],
        "HTTP/2: resets the stream after some pieces",
        connection::h2_reset,
    ),
    // Time.
    row("stall", &["wait"], "waits for `wait` (forever), then answers", connection::stall),
    row(
        "stall-between",
        &["after", "wait"],
        "pauses for `wait` (forever) after some pieces",
        streams::stall,
    ),
    row("slow", &["wait"], "pauses for `wait` (1s) before every piece", streams::slow),
    row("drip", &["wait"], "sends one byte at a time, each after `wait` (1s)", streams::drip),
    // Ends.
    row(
        "reset-after",
        &["after"],
        "resets the connection after some pieces (3)",
        streams::reset_after,
    ),
    row(
        "truncate",
        &["after"],
        "closes the connection in the middle of the body, after some pieces (3)",
        streams::truncate,
    ),
    row(
        "end-early",
        &["after"],
        "ends the body properly after some pieces (3), as if it were complete",
        streams::end_early,
    ),
    row(
        "length-lie",
        &["missing"],
        "announces more bytes than it sends (100)",
        streams::length_lie,
    ),
    row(
        "no-end",
        &["count"],
        "omits the last pieces (1), starting with the end marker",
        streams::no_end,
    ),
    row(
        "no-finish",
        &["after"],
        "sends some pieces (3) and then only the end marker",
        streams::no_finish,
    ),
    row("done-twice", &[], "sends the last piece twice", streams::done_twice),
    row("after-done", &[], "sends more events after the end", streams::after_done),
    row(
        "finish-silence",
        &["count"],
        "sends everything but the last pieces (1), then sends nothing",
        streams::finish_silence,
    ),
    row("trailers", &[], "ends with trailers that report a failure", streams::trailers),
    row("extra", &[], "sends bytes after the end of the body", streams::extra),
    // Pieces.
    row("bad-json", &["after"], "inserts a piece that is not JSON", streams::bad_json),
    row("bad-utf8", &["after"], "inserts bytes into a text that are not UTF-8", streams::bad_utf8),
    row(
        "bad-event",
        &["after"],
        "inserts lines that are not fields of an event",
        streams::bad_event,
    ),
    row("unknown-event", &["after"], "inserts an event of an unknown type", streams::unknown_event),
    row(
        "error-event",
        &["after", "kind"],
        "sends an error event of its format after some pieces (3), and ends",
        streams::error_event,
    ),
    row(
        "shred",
        &["size"],
        "splits the bytes without regard to events or characters (1 byte each)",
        streams::shred,
    ),
    row(
        "dress",
        &["how"],
        "a different syntax of the same events: `crlf`, `cr`, `bom`, `nospace`, `multi`, `comments`, `fields`",
        streams::dress,
    ),
    row(
        "giant-frame",
        &["after", "size"],
        "inserts an event of that size (9MiB)",
        streams::giant_frame,
    ),
    row(
        "endless-line",
        &["after", "size"],
        "starts a line that does not end (20MiB), then sends nothing",
        streams::endless_line,
    ),
    row(
        "empty-lines",
        &["after", "count"],
        "inserts many empty data lines into one event (1000000)",
        streams::empty_lines,
    ),
    // Calls.
    row(
        "bad-arguments",
        &[],
        "calls tools with arguments that are not JSON, in formats that can express it",
        streams::bad_arguments,
    ),
    row(
        "choices",
        &["count"],
        "returns that number of answers (1), regardless of the request",
        answers::choices,
    ),
    // Counts.
    row("no-usage", &[], "never reports usage", streams::no_usage),
    row("zero-usage", &[], "reports zero usage", streams::zero_usage),
    row("huge-usage", &[], "reports an absurd number of tokens", streams::huge_usage),
    // Answers.
    row(
        "status",
        &["code", "hint", "body"],
        "an error status (503) with the format's own error; `hint` is the form of the retry delay: `seconds`, `ms`, `date`, `past`, `far`, `malformed`, `negative`, `reset`, `delay`, `rfc3339`; `body` is `own`, `html`, `text` or `empty`",
        answers::status,
    ),
    row(
        "error-body",
        &["kind"],
        "a 200 whose body is an error: `overloaded`, `rate`, `invalid`, `auth`",
        answers::error_body,
    ),
    row("empty", &[], "a 200 with an empty body", answers::empty),
    row("wrong-shape", &[], "a 200 with JSON of another shape", answers::wrong_shape),
    row("not-json", &[], "a 200 with a body that is not JSON", answers::not_json),
    row("html", &[], "a 200 with an HTML page", answers::html),
    row("redirect", &["code"], "redirects the caller (302)", answers::redirect),
    row(
        SWAP,
        &[],
        "a stream where a complete answer was requested, and the reverse",
        answers::as_it_is,
    ),
    row(
        "type",
        &["is"],
        "a wrong content type: `json`, `sse`, `html`, `text`, `none`",
        heads::content_type,
    ),
    row(
        "gzip",
        &["how"],
        "a compressed answer: decodable piece by `piece`, only at the `end`, or not compressed at all (`lie`)",
        heads::gzip,
    ),
    row("encoding", &["name"], "an unknown content encoding (x-unknown)", heads::encoding),
    row(
        "interim",
        &["code", "count"],
        "many interim responses (1000 times 103) before the final one",
        heads::interim,
    ),
    row("bad-status", &["line"], "an invalid status: `99`, `600`, `000`, `abc`", heads::bad_status),
    row("big-header", &["size"], "one header of that size (1MiB)", heads::big_header),
    row("many-headers", &["count"], "that number of headers (10000)", heads::many_headers),
    row("bad-header", &[], "a header with forbidden bytes", heads::bad_header),
];

/// Returns the fault of that name.
pub(super) fn find(name: &str) -> Option<&'static FaultEntry> {
    ALL.iter().find(|entry| entry.name == name)
}

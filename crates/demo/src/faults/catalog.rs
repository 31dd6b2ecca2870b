//! Every fault there is: its name, what it does, what it takes. A new one is a row and a function.

use super::good::Good;
use super::order::{BadOrder, Order};
use super::script::Script;
use super::{answers, connection, heads, streams};

/// One fault.
#[derive(Debug)]
pub(super) struct Entry {
    /// Its name in an order.
    pub(super) name: &'static str,
    /// The parameters it takes.
    pub(super) takes: &'static [&'static str],
    /// What it does, in one sentence.
    pub(super) about: &'static str,
    /// Makes it, out of the answer that would have been given.
    pub(super) make: fn(&Order, Good) -> Result<Script, BadOrder>,
}

const fn row(
    name: &'static str,
    takes: &'static [&'static str],
    about: &'static str,
    make: fn(&Order, Good) -> Result<Script, BadOrder>,
) -> Entry {
    Entry { name, takes, about, make }
}

/// The fault that reads no more of a request than its order.
pub(super) const RESET_REQUEST: &str = "reset-request";
/// The fault that stops reading in the middle of a request.
pub(super) const STALL_REQUEST: &str = "stall-request";
/// The fault that answers a stream where none was asked for, and the other way round.
pub(super) const SWAP: &str = "swap";

/// All faults.
pub(super) const ALL: &[Entry] = &[
    // Connections.
    row(
        "refuse",
        &["for"],
        "resets the connection and takes no new one for a while (`for`, 2s)",
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
        "stops reading while the request is still arriving, and never says anything",
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
    row("blackhole", &[], "takes the request and never says anything", connection::blackhole),
    row(
        "stale",
        &[],
        "answers properly, then closes a connection that could have been kept",
        connection::stale,
    ),
    row("garbage", &[], "answers with bytes that are no HTTP", connection::garbage),
    row("h2-refused", &[], "HTTP/2: refuses the stream (REFUSED_STREAM)", connection::h2_refused),
    row("h2-calm", &[], "HTTP/2: refuses the stream (ENHANCE_YOUR_CALM)", connection::h2_calm),
    row(
        "h2-goaway",
        &["last"],
        "HTTP/2: says goodbye to the connection (GOAWAY), then answers; with `last=below` it leaves this stream undone",
        connection::h2_goodbye,
    ),
    row(
        "h2-reset",
        &["after"],
        "HTTP/2: resets the stream after some pieces",
        connection::h2_reset,
    ),
    // Time.
    row("stall", &["wait"], "says nothing for `wait` (for ever), then answers", connection::stall),
    row(
        "stall-between",
        &["after", "wait"],
        "falls silent for `wait` (for ever) after some pieces",
        streams::stall,
    ),
    row("slow", &["wait"], "lets every piece wait (1s)", streams::slow),
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
        "ends the body properly after some pieces (3), as if that were all",
        streams::end_early,
    ),
    row("length-lie", &["missing"], "promises more bytes than it sends (100)", streams::length_lie),
    row(
        "no-end",
        &["count"],
        "leaves out the last pieces (1), the end marker first",
        streams::no_end,
    ),
    row(
        "no-finish",
        &["after"],
        "sends some pieces (3) and then only the end marker",
        streams::no_finish,
    ),
    row("done-twice", &[], "sends the last piece twice", streams::done_twice),
    row("after-done", &[], "goes on talking after the end", streams::after_done),
    row(
        "finish-silence",
        &["count"],
        "sends everything but the last pieces (1), then falls silent",
        streams::finish_silence,
    ),
    row("trailers", &[], "ends with trailers that report a failure", streams::trailers),
    row("extra", &[], "sends bytes behind the end of the body", streams::extra),
    // Pieces.
    row("bad-json", &["after"], "puts a piece in that is not JSON", streams::bad_json),
    row("bad-utf8", &["after"], "puts bytes into a text that are not UTF-8", streams::bad_utf8),
    row(
        "bad-event",
        &["after"],
        "puts lines in that are no fields of an event",
        streams::bad_event,
    ),
    row("unknown-event", &["after"], "puts an event of an unknown type in", streams::unknown_event),
    row(
        "error-event",
        &["after", "kind"],
        "reports an error of its format after some pieces (3), and ends",
        streams::error_event,
    ),
    row(
        "shred",
        &["size"],
        "cuts the bytes without regard for events or characters (1 byte each)",
        streams::shred,
    ),
    row(
        "dress",
        &["how"],
        "another spelling of the same events: `crlf`, `cr`, `bom`, `nospace`, `multi`, `comments`, `fields`",
        streams::dress,
    ),
    row(
        "giant-frame",
        &["after", "size"],
        "puts an event of that size in (9MiB)",
        streams::giant_frame,
    ),
    row(
        "endless-line",
        &["after", "size"],
        "begins a line that does not end (20MiB), then falls silent",
        streams::endless_line,
    ),
    row(
        "empty-lines",
        &["after", "count"],
        "puts many empty data lines into one event (1000000)",
        streams::empty_lines,
    ),
    // Calls.
    row(
        "bad-arguments",
        &[],
        "calls tools with arguments that are no JSON, where the format can say so",
        streams::bad_arguments,
    ),
    row("choices", &["count"], "gives that many answers (1), whatever was asked", answers::choices),
    // Counts.
    row("no-usage", &[], "never tells what was used", streams::no_usage),
    row("zero-usage", &[], "claims that nothing was used", streams::zero_usage),
    row("huge-usage", &[], "claims an absurd amount of tokens", streams::huge_usage),
    // Answers.
    row(
        "status",
        &["code", "hint", "body"],
        "an error status (503) with the format's own error; `hint` says when to retry: `seconds`, `ms`, `date`, `past`, `far`, `malformed`, `negative`, `reset`, `delay`, `rfc3339`; `body` is `own`, `html`, `text` or `empty`",
        answers::status,
    ),
    row(
        "error-body",
        &["kind"],
        "a 200 whose body is an error: `overloaded`, `rate`, `invalid`, `auth`",
        answers::error_body,
    ),
    row("empty", &[], "a 200 with nothing in it", answers::empty),
    row("wrong-shape", &[], "a 200 with JSON of another shape", answers::wrong_shape),
    row("not-json", &[], "a 200 with a body that is no JSON", answers::not_json),
    row("html", &[], "a 200 with a web page", answers::html),
    row("redirect", &["code"], "sends the caller elsewhere (302)", answers::redirect),
    row(
        SWAP,
        &[],
        "a stream where a whole answer was asked for, a whole answer for a stream",
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
        "a compressed answer: readable piece by `piece`, only at the `end`, or a `lie`",
        heads::gzip,
    ),
    row("encoding", &["name"], "a content encoding nobody knows (x-unknown)", heads::encoding),
    row(
        "interim",
        &["code", "count"],
        "many interim answers (1000 times 103) before the true one",
        heads::interim,
    ),
    row(
        "bad-status",
        &["line"],
        "a status that is none: `99`, `600`, `000`, `abc`",
        heads::bad_status,
    ),
    row("big-header", &["size"], "one header of that size (1MiB)", heads::big_header),
    row("many-headers", &["count"], "that many headers (10000)", heads::many_headers),
    row("bad-header", &[], "a header with forbidden bytes", heads::bad_header),
];

/// The fault of that name.
pub(super) fn find(name: &str) -> Option<&'static Entry> {
    ALL.iter().find(|entry| entry.name == name)
}

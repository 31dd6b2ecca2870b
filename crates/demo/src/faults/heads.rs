//! Faults of the head: status lines, headers, content types and encodings.

use bytes::Bytes;

use super::order::{FaultOrder, OrderError};
use super::proper_answer::{BodyPiece, ProperAnswer};
use super::script::{AnswerScript, ScriptEnd, ScriptHead, StoredGzip};

/// Changes the head of the answer.
fn with_head(good: ProperAnswer, change: impl FnOnce(&mut ScriptHead)) -> AnswerScript {
    let mut script = good.script();
    if let Some(head) = &mut script.head {
        change(head);
    }
    script
}

fn add(head: &mut ScriptHead, name: &str, value: impl Into<Bytes>) {
    head.headers.push((name.to_owned(), value.into()));
}

pub(super) fn content_type(
    order: &FaultOrder,
    good: ProperAnswer,
) -> Result<AnswerScript, OrderError> {
    let kind = order.one_of(
        "is",
        &[
            ("json", "application/json"),
            ("sse", "text/event-stream"),
            ("html", "text/html"),
            ("text", "text/plain"),
            ("none", ""),
        ],
    )?;
    Ok(with_head(good, |head| {
        head.headers.clear();
        if !kind.is_empty() {
            add(head, "content-type", kind);
        }
    }))
}

#[derive(Clone, Copy)]
enum Compression {
    BodyPiece,
    ScriptEnd,
    Lie,
}

pub(super) fn gzip(order: &FaultOrder, good: ProperAnswer) -> Result<AnswerScript, OrderError> {
    let how = order.one_of(
        "how",
        &[
            ("piece", Compression::BodyPiece),
            ("end", Compression::ScriptEnd),
            ("lie", Compression::Lie),
        ],
    )?;
    let pieces = match how {
        Compression::Lie => good.pieces.clone(),
        Compression::BodyPiece => {
            let (mut gzip, head) = StoredGzip::begin();
            let mut pieces = vec![BodyPiece::new(head)];
            for BodyPiece { bytes, tokens } in &good.pieces {
                pieces.push(BodyPiece { bytes: gzip.piece(bytes), tokens: *tokens });
            }
            pieces.push(BodyPiece::new(gzip.end()));
            pieces
        }
        Compression::ScriptEnd => {
            let (mut gzip, head) = StoredGzip::begin();
            let body = gzip.piece(&good.joined());
            let all = [head, body, gzip.end()].concat();
            vec![BodyPiece { bytes: all.into(), tokens: good.tokens() }]
        }
    };
    let good = ProperAnswer { pieces, ..good };
    Ok(with_head(good, |head| add(head, "content-encoding", "gzip")))
}

pub(super) fn encoding(order: &FaultOrder, good: ProperAnswer) -> Result<AnswerScript, OrderError> {
    let name = order.word("name").unwrap_or("x-unknown").to_owned();
    Ok(with_head(good, |head| add(head, "content-encoding", name)))
}

pub(super) fn interim(order: &FaultOrder, good: ProperAnswer) -> Result<AnswerScript, OrderError> {
    let (code, count) = (order.number("code", 103)?, order.count("count", 1_000)?);
    let one = format!("HTTP/1.1 {code} Interim\r\nx-note: wait\r\n\r\n");
    Ok(AnswerScript { before: one.repeat(count).into(), ..good.script() })
}

pub(super) fn bad_status(
    order: &FaultOrder,
    good: ProperAnswer,
) -> Result<AnswerScript, OrderError> {
    let line =
        order.one_of("line", &[("99", "99"), ("600", "600"), ("000", "000"), ("abc", "abc")])?;
    Ok(with_head(good, |head| head.status = format!("{line} X")))
}

pub(super) fn big_header(
    order: &FaultOrder,
    good: ProperAnswer,
) -> Result<AnswerScript, OrderError> {
    let size = usize::try_from(order.size("size", 1 << 20)?).unwrap_or(usize::MAX).min(64 << 20);
    Ok(with_head(good, |head| add(head, "x-big", vec![b'x'; size])))
}

pub(super) fn many_headers(
    order: &FaultOrder,
    good: ProperAnswer,
) -> Result<AnswerScript, OrderError> {
    let count = order.count("count", 10_000)?;
    Ok(with_head(good, |head| {
        for number in 0..count {
            add(head, &format!("x-header-{number}"), "1");
        }
    }))
}

pub(super) fn bad_header(
    _order: &FaultOrder,
    good: ProperAnswer,
) -> Result<AnswerScript, OrderError> {
    let script = with_head(good, |head| add(head, "x-bad", &b"one\0two\x7f"[..]));
    Ok(AnswerScript { end: ScriptEnd::Close, ..script })
}

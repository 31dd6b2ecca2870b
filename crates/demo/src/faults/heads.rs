//! Faults of the head: status lines, headers, content types and encodings.

use bytes::Bytes;

use super::good::{Good, Piece};
use super::order::{BadOrder, Order};
use super::script::{End, Gzip, Head, Script};

/// The answer with its head changed.
fn with_head(good: Good, change: impl FnOnce(&mut Head)) -> Script {
    let mut script = good.script();
    if let Some(head) = &mut script.head {
        change(head);
    }
    script
}

fn add(head: &mut Head, name: &str, value: impl Into<Bytes>) {
    head.headers.push((name.to_owned(), value.into()));
}

pub(super) fn content_type(order: &Order, good: Good) -> Result<Script, BadOrder> {
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
enum Squeeze {
    Piece,
    End,
    Lie,
}

pub(super) fn gzip(order: &Order, good: Good) -> Result<Script, BadOrder> {
    let how = order.one_of(
        "how",
        &[("piece", Squeeze::Piece), ("end", Squeeze::End), ("lie", Squeeze::Lie)],
    )?;
    let pieces = match how {
        Squeeze::Lie => good.pieces.clone(),
        Squeeze::Piece => {
            let (mut gzip, head) = Gzip::begin();
            let mut pieces = vec![Piece::new(head)];
            for Piece { bytes, tokens } in &good.pieces {
                pieces.push(Piece { bytes: gzip.piece(bytes), tokens: *tokens });
            }
            pieces.push(Piece::new(gzip.end()));
            pieces
        }
        Squeeze::End => {
            let (mut gzip, head) = Gzip::begin();
            let body = gzip.piece(&good.joined());
            let all = [head, body, gzip.end()].concat();
            vec![Piece { bytes: all.into(), tokens: good.tokens() }]
        }
    };
    let good = Good { pieces, ..good };
    Ok(with_head(good, |head| add(head, "content-encoding", "gzip")))
}

pub(super) fn encoding(order: &Order, good: Good) -> Result<Script, BadOrder> {
    let name = order.word("name").unwrap_or("x-unknown").to_owned();
    Ok(with_head(good, |head| add(head, "content-encoding", name)))
}

pub(super) fn interim(order: &Order, good: Good) -> Result<Script, BadOrder> {
    let (code, count) = (order.number("code", 103)?, order.count("count", 1_000)?);
    let one = format!("HTTP/1.1 {code} Interim\r\nx-note: wait\r\n\r\n");
    Ok(Script { before: one.repeat(count).into(), ..good.script() })
}

pub(super) fn bad_status(order: &Order, good: Good) -> Result<Script, BadOrder> {
    let line =
        order.one_of("line", &[("99", "99"), ("600", "600"), ("000", "000"), ("abc", "abc")])?;
    Ok(with_head(good, |head| head.status = format!("{line} X")))
}

pub(super) fn big_header(order: &Order, good: Good) -> Result<Script, BadOrder> {
    let size = usize::try_from(order.size("size", 1 << 20)?).unwrap_or(usize::MAX).min(64 << 20);
    Ok(with_head(good, |head| add(head, "x-big", vec![b'x'; size])))
}

pub(super) fn many_headers(order: &Order, good: Good) -> Result<Script, BadOrder> {
    let count = order.count("count", 10_000)?;
    Ok(with_head(good, |head| {
        for number in 0..count {
            add(head, &format!("x-header-{number}"), "1");
        }
    }))
}

pub(super) fn bad_header(_order: &Order, good: Good) -> Result<Script, BadOrder> {
    let script = with_head(good, |head| add(head, "x-bad", &b"one\0two\x7f"[..]));
    Ok(Script { end: End::Close, ..script })
}

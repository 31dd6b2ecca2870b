//! Faults inside a body: where it stops, what stands in it, what it counts.

use bytes::Bytes;
use canon::Origin;
use serde_json::{Value, json};
use std::time::Duration;

use super::answers;
use super::good::{Good, Piece};
use super::order::{BadOrder, Order};
use super::script::{End, Framing, Script, Step};

type Made = Result<Script, BadOrder>;

/// How many pieces are sent before it happens.
const AFTER: usize = 3;

/// Some pieces, then that end.
fn stop(order: &Order, good: Good, end: End) -> Made {
    let after = order.count("after", AFTER)?;
    let script = good.script();
    let body = script.body.into_iter().take(after).collect();
    Ok(Script { body, end, ..script })
}

/// The proper answer with a piece put in after some others.
fn insert(order: &Order, mut good: Good, piece: Piece) -> Made {
    let after = order.count("after", AFTER)?.min(good.pieces.len());
    good.pieces.insert(after, piece);
    Ok(good.script())
}

/// An event of that data, as this format frames it.
fn event(good: &Good, name: &str, data: &Value) -> Piece {
    match good.origin {
        Origin::Messages | Origin::Responses => {
            Piece::new(format!("event: {name}\ndata: {data}\n\n"))
        }
        Origin::Chat | Origin::Native | Origin::Images => Piece::new(format!("data: {data}\n\n")),
    }
}

pub(super) fn reset_after(order: &Order, good: Good) -> Made {
    stop(order, good, End::Reset)
}

pub(super) fn truncate(order: &Order, good: Good) -> Made {
    stop(order, good, End::Close)
}

pub(super) fn end_early(order: &Order, good: Good) -> Made {
    stop(order, good, End::Proper)
}

pub(super) fn stall(order: &Order, good: Good) -> Made {
    let Some(wait) = order.time("wait")? else { return stop(order, good, End::Hold) };
    let after = order.count("after", AFTER)?;
    let mut script = good.script();
    script.body.insert(after.min(script.body.len()), Step::Wait(wait));
    Ok(script)
}

pub(super) fn slow(order: &Order, good: Good) -> Made {
    let wait = order.time("wait")?.unwrap_or(Duration::from_secs(1));
    let script = good.script();
    let body = script.body.into_iter().flat_map(|step| [Step::Wait(wait), step]).collect();
    Ok(Script { body, ..script })
}

pub(super) fn drip(order: &Order, good: Good) -> Made {
    let wait = order.time("wait")?.unwrap_or(Duration::from_secs(1));
    let all = Bytes::from(good.joined());
    let bytes = (0..all.len()).map(|at| Step::send(all.slice(at..at + 1)));
    let body = bytes.flat_map(|step| [Step::Wait(wait), step]).collect();
    Ok(Script { body, ..good.script() })
}

pub(super) fn shred(order: &Order, good: Good) -> Made {
    let size = order.count("size", 1)?.max(1);
    let all = Bytes::from(good.joined());
    let body = all.chunks(size).map(|part| Step::send(all.slice_ref(part))).collect();
    Ok(Script { body, ..good.script() })
}

pub(super) fn length_lie(order: &Order, good: Good) -> Made {
    let promised = good.length().saturating_add(order.number("missing", 100)?);
    let mut script = good.script();
    if let Some(head) = &mut script.head {
        head.framing = Framing::Length(promised);
    }
    Ok(Script { end: End::Close, ..script })
}

pub(super) fn no_end(order: &Order, mut good: Good) -> Made {
    let count = order.count("count", 1)?;
    good.pieces.truncate(good.pieces.len().saturating_sub(count));
    Ok(good.script())
}

pub(super) fn finish_silence(order: &Order, good: Good) -> Made {
    Ok(Script { end: End::Hold, ..no_end(order, good)? })
}

pub(super) fn no_finish(order: &Order, mut good: Good) -> Made {
    let after = order.count("after", AFTER)?;
    if let Some(last) = good.pieces.pop() {
        good.pieces.truncate(after);
        good.pieces.push(last);
    }
    Ok(good.script())
}

pub(super) fn done_twice(_order: &Order, mut good: Good) -> Made {
    good.pieces.extend(good.pieces.last().cloned());
    Ok(good.script())
}

pub(super) fn after_done(_order: &Order, mut good: Good) -> Made {
    let again: Vec<Piece> = good.pieces.iter().take(AFTER).cloned().collect();
    good.pieces.extend(again);
    Ok(good.script())
}

pub(super) fn trailers(_order: &Order, good: Good) -> Made {
    let trailers = vec![("grpc-status", "13"), ("grpc-message", "internal")];
    Ok(Script { end: End::Trailers(trailers), ..good.script() })
}

pub(super) fn extra(_order: &Order, good: Good) -> Made {
    let length = good.length();
    let (all, tokens) = (Bytes::from(good.joined()), good.tokens());
    let mut script = good.script();
    if let Some(head) = &mut script.head {
        head.framing = Framing::Length(length);
    }
    let ghost = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 26\r\n\r\n\
                 {\"secret\":\"not your answer\"}";
    // In one write: what came later could be taken for the answer to the next request by anyone.
    let bytes = [&all[..], ghost.as_bytes()].concat().into();
    Ok(Script { body: vec![Step::Send { bytes, tokens }], end: End::Extra, ..script })
}

pub(super) fn bad_json(order: &Order, good: Good) -> Made {
    let piece = Piece::new("data: {\"choices\":[{\"delta\":{\"content\":\"cut of\n\n");
    insert(order, good, piece)
}

pub(super) fn bad_event(order: &Order, good: Good) -> Made {
    insert(order, good, Piece::new("dta: nothing\n<<<<>>>>\n: a comment\n\n"))
}

pub(super) fn unknown_event(order: &Order, good: Good) -> Made {
    let data = match good.origin {
        Origin::Messages => json!({ "type": "moon_phase", "phase": 7 }),
        Origin::Responses => {
            json!({ "type": "response.moon_phase", "sequence_number": 3, "phase": 7 })
        }
        Origin::Chat | Origin::Native | Origin::Images => json!({ "moon_phase": 7 }),
    };
    let name = data.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    let piece = event(&good, &name, &data);
    insert(order, good, piece)
}

pub(super) fn error_event(order: &Order, good: Good) -> Made {
    let kind = order.one_of("kind", answers::KINDS)?;
    let mut error = answers::error(good.origin, kind.status(), None);
    if good.origin == Origin::Responses
        && let Value::Object(fields) = &mut error
    {
        fields.insert("type".to_owned(), json!("error"));
        fields.insert("sequence_number".to_owned(), json!(99));
    }
    let piece = event(&good, "error", &error);
    let after = order.count("after", AFTER)?;
    let good =
        Good { pieces: good.pieces.iter().take(after).cloned().chain([piece]).collect(), ..good };
    Ok(good.script())
}

/// Puts two bytes that are no UTF-8 into the first text after some pieces.
pub(super) fn bad_utf8(order: &Order, mut good: Good) -> Made {
    let after = order.count("after", AFTER)?;
    if !good.events {
        good.pieces = vec![Piece { tokens: good.tokens(), bytes: good.joined().into() }];
    }
    let spoken = good.pieces.iter_mut().skip(after).find(|piece| piece.tokens > 0);
    let piece = match spoken {
        Some(piece) => piece,
        None => match good.pieces.last_mut() {
            Some(piece) => piece,
            None => return Ok(good.script()),
        },
    };
    // Behind the first letter of a text: `"text":"T` and its like in every format.
    const NAMES: [&[u8]; 3] = [b"\"content\":\"", b"\"text\":\"", b"\"delta\":\""];
    let at = NAMES.iter().find_map(|name| {
        let at = piece.bytes.windows(name.len()).rposition(|window| window == *name)?;
        Some(at + name.len())
    });
    if let Some(at) = at {
        let (before, behind) = (piece.bytes.slice(..at), piece.bytes.slice(at..));
        piece.bytes = [&before[..], b"\xff\xc3", &behind[..]].concat().into();
    }
    Ok(good.script())
}

#[derive(Clone, Copy)]
enum Dress {
    Crlf,
    Cr,
    Bom,
    NoSpace,
    Multi,
    Comments,
    Fields,
}

pub(super) fn dress(order: &Order, mut good: Good) -> Made {
    let how = order.one_of(
        "how",
        &[
            ("crlf", Dress::Crlf),
            ("cr", Dress::Cr),
            ("bom", Dress::Bom),
            ("nospace", Dress::NoSpace),
            ("multi", Dress::Multi),
            ("comments", Dress::Comments),
            ("fields", Dress::Fields),
        ],
    )?;
    if !good.events {
        return Ok(good.script());
    }
    for (at, piece) in good.pieces.iter_mut().enumerate() {
        let text = String::from_utf8_lossy(&piece.bytes).into_owned();
        let text = match how {
            Dress::Crlf => text.replace('\n', "\r\n"),
            Dress::Cr => text.replace('\n', "\r"),
            Dress::Bom if at == 0 => format!("\u{feff}{text}"),
            Dress::Bom => text,
            Dress::NoSpace => text.replace("data: ", "data:").replace("event: ", "event:"),
            // JSON may be broken where its outermost object begins.
            Dress::Multi => text.replacen("data: {", "data: {\ndata: ", 1),
            Dress::Comments => format!(": one\n:two\n\n{text}: three\n\n"),
            Dress::Fields => format!("id: {at}\nretry: 3000\nunknown: x\n{text}"),
        };
        piece.bytes = text.into();
    }
    Ok(good.script())
}

pub(super) fn giant_frame(order: &Order, good: Good) -> Made {
    let size = usize::try_from(order.size("size", 9 << 20)?).unwrap_or(usize::MAX).min(256 << 20);
    let data = [&b"data: \""[..], &vec![b'x'; size], b"\"\n\n"].concat();
    insert(order, good, Piece::new(data))
}

pub(super) fn endless_line(order: &Order, good: Good) -> Made {
    const BLOCK: usize = 64 << 10;
    let times = order.size("size", 20 << 20)?.div_ceil(BLOCK as u64);
    let mut script = stop(order, good, End::Hold)?;
    script.body.push(Step::send("data: "));
    script.body.push(Step::Repeat { bytes: Bytes::from(vec![b'x'; BLOCK]), times });
    Ok(script)
}

pub(super) fn empty_lines(order: &Order, good: Good) -> Made {
    const LINE: &str = "data:\n";
    const LINES: usize = 10_000;
    let times = order.number("count", 1_000_000)?.div_ceil(LINES as u64);
    let after = order.count("after", AFTER)?;
    let mut script = good.script();
    let block = Step::Repeat { bytes: Bytes::from(LINE.repeat(LINES)), times };
    let at = after.min(script.body.len());
    script.body.splice(at..at, [block, Step::send("\n")]);
    Ok(script)
}

/// Changes the JSON of every piece, where the change says that there was something to change.
fn rewrite(mut good: Good, change: &dyn Fn(&mut Value) -> bool) -> Script {
    if good.events {
        for piece in &mut good.pieces {
            if let Some(mut data) = piece.data()
                && change(&mut data)
            {
                *piece = piece.with_data(&data);
            }
        }
    } else if let Ok(mut body) = serde_json::from_slice::<Value>(&good.joined()) {
        let tokens = good.tokens();
        change(&mut body);
        good.pieces = vec![Piece { bytes: body.to_string().into(), tokens }];
    }
    good.script()
}

/// Changes what every piece tells of its usage.
fn recount(good: Good, change: &dyn Fn(&mut Value) -> bool) -> Script {
    rewrite(good, &|data| visit(data, change))
}

pub(super) fn bad_arguments(_order: &Order, good: Good) -> Made {
    Ok(rewrite(good, &uncloses))
}

/// Takes the last brace off arguments that are written as text; true when there were some.
fn uncloses(value: &mut Value) -> bool {
    const DELTA: &str = "response.function_call_arguments.delta";
    match value {
        Value::Object(fields) => {
            let delta = fields.get("type").is_some_and(|kind| kind == DELTA);
            let mut found = false;
            for (name, value) in fields {
                let ours = matches!(name.as_str(), "arguments" | "partial_json");
                match value {
                    Value::String(text) if ours || (delta && name == "delta") => {
                        found |= text.ends_with('}');
                        text.truncate(text.trim_end_matches('}').len());
                    }
                    other => found |= uncloses(other),
                }
            }
            found
        }
        Value::Array(items) => items.iter_mut().fold(false, |found, one| uncloses(one) | found),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Finds counts at any depth; true when there were some.
fn visit(value: &mut Value, change: &dyn Fn(&mut Value) -> bool) -> bool {
    let Value::Object(fields) = value else { return false };
    let mut found = false;
    for name in ["usage", "usageMetadata"] {
        if let Some(counts) = fields.get_mut(name)
            && counts.is_object()
        {
            found = true;
            if !change(counts) {
                fields.remove(name);
            }
        }
    }
    for name in ["message", "response"] {
        if let Some(inner) = fields.get_mut(name) {
            found |= visit(inner, change);
        }
    }
    found
}

fn every_number(value: &mut Value, number: u64) {
    match value {
        Value::Number(_) => *value = json!(number),
        Value::Object(fields) => fields.values_mut().for_each(|value| every_number(value, number)),
        Value::Array(items) => items.iter_mut().for_each(|value| every_number(value, number)),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

pub(super) fn no_usage(_order: &Order, good: Good) -> Made {
    Ok(recount(good, &|_| false))
}

pub(super) fn zero_usage(_order: &Order, good: Good) -> Made {
    Ok(recount(good, &|counts| {
        every_number(counts, 0);
        true
    }))
}

pub(super) fn huge_usage(_order: &Order, good: Good) -> Made {
    Ok(recount(good, &|counts| {
        every_number(counts, 9_000_000_000_000_000);
        true
    }))
}

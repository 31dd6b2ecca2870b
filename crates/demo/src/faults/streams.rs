//! Faults inside a body: truncation, invalid content, wrong counts.

use bytes::Bytes;
use canon::WireFormat;
use serde_json::{Value, json};
use std::time::Duration;

use super::answers;
use super::order::{FaultOrder, OrderError};
use super::proper_answer::{BodyPiece, ProperAnswer};
use super::script::{AnswerScript, BodyFraming, ScriptEnd, ScriptStep};

type ScriptResult = Result<AnswerScript, OrderError>;

/// Default number of pieces before the fault.
const DEFAULT_AFTER: usize = 3;

/// Sends some pieces, then that end.
fn stop(order: &FaultOrder, good: ProperAnswer, end: ScriptEnd) -> ScriptResult {
    let after = order.count("after", DEFAULT_AFTER)?;
    let script = good.script();
    let body = script.body.into_iter().take(after).collect();
    Ok(AnswerScript { body, end, ..script })
}

/// Inserts a piece into the proper answer.
fn insert(order: &FaultOrder, mut good: ProperAnswer, piece: BodyPiece) -> ScriptResult {
    let after = order.count("after", DEFAULT_AFTER)?.min(good.pieces.len());
    good.pieces.insert(after, piece);
    Ok(good.script())
}

/// Returns an event with that data in the framing of the format.
fn event(good: &ProperAnswer, name: &str, data: &Value) -> BodyPiece {
    match good.origin {
        WireFormat::Messages | WireFormat::Responses => {
            BodyPiece::new(format!("event: {name}\ndata: {data}\n\n"))
        }
        WireFormat::Chat | WireFormat::Native | WireFormat::Images => {
            BodyPiece::new(format!("data: {data}\n\n"))
        }
    }
}

pub(super) fn reset_after(order: &FaultOrder, good: ProperAnswer) -> ScriptResult {
    stop(order, good, ScriptEnd::Reset)
}

pub(super) fn truncate(order: &FaultOrder, good: ProperAnswer) -> ScriptResult {
    stop(order, good, ScriptEnd::Close)
}

pub(super) fn end_early(order: &FaultOrder, good: ProperAnswer) -> ScriptResult {
    stop(order, good, ScriptEnd::Proper)
}

pub(super) fn stall(order: &FaultOrder, good: ProperAnswer) -> ScriptResult {
    let Some(wait) = order.time("wait")? else { return stop(order, good, ScriptEnd::Hold) };
    let after = order.count("after", DEFAULT_AFTER)?;
    let mut script = good.script();
    script.body.insert(after.min(script.body.len()), ScriptStep::Wait(wait));
    Ok(script)
}

pub(super) fn slow(order: &FaultOrder, good: ProperAnswer) -> ScriptResult {
    let wait = order.time("wait")?.unwrap_or(Duration::from_secs(1));
    let script = good.script();
    let body = script.body.into_iter().flat_map(|step| [ScriptStep::Wait(wait), step]).collect();
    Ok(AnswerScript { body, ..script })
}

pub(super) fn drip(order: &FaultOrder, good: ProperAnswer) -> ScriptResult {
    let wait = order.time("wait")?.unwrap_or(Duration::from_secs(1));
    let all = Bytes::from(good.joined());
    let bytes = (0..all.len()).map(|at| ScriptStep::send(all.slice(at..at + 1)));
    let body = bytes.flat_map(|step| [ScriptStep::Wait(wait), step]).collect();
    Ok(AnswerScript { body, ..good.script() })
}

pub(super) fn shred(order: &FaultOrder, good: ProperAnswer) -> ScriptResult {
    let size = order.count("size", 1)?.max(1);
    let all = Bytes::from(good.joined());
    let body = all.chunks(size).map(|part| ScriptStep::send(all.slice_ref(part))).collect();
    Ok(AnswerScript { body, ..good.script() })
}

pub(super) fn length_lie(order: &FaultOrder, good: ProperAnswer) -> ScriptResult {
    let promised = good.length().saturating_add(order.number("missing", 100)?);
    let mut script = good.script();
    if let Some(head) = &mut script.head {
        head.framing = BodyFraming::Length(promised);
    }
    Ok(AnswerScript { end: ScriptEnd::Close, ..script })
}

pub(super) fn no_end(order: &FaultOrder, mut good: ProperAnswer) -> ScriptResult {
    let count = order.count("count", 1)?;
    good.pieces.truncate(good.pieces.len().saturating_sub(count));
    Ok(good.script())
}

pub(super) fn finish_silence(order: &FaultOrder, good: ProperAnswer) -> ScriptResult {
    Ok(AnswerScript { end: ScriptEnd::Hold, ..no_end(order, good)? })
}

pub(super) fn no_finish(order: &FaultOrder, mut good: ProperAnswer) -> ScriptResult {
    let after = order.count("after", DEFAULT_AFTER)?;
    if let Some(last) = good.pieces.pop() {
        good.pieces.truncate(after);
        good.pieces.push(last);
    }
    Ok(good.script())
}

pub(super) fn done_twice(_order: &FaultOrder, mut good: ProperAnswer) -> ScriptResult {
    good.pieces.extend(good.pieces.last().cloned());
    Ok(good.script())
}

pub(super) fn after_done(_order: &FaultOrder, mut good: ProperAnswer) -> ScriptResult {
    let again: Vec<BodyPiece> = good.pieces.iter().take(DEFAULT_AFTER).cloned().collect();
    good.pieces.extend(again);
    Ok(good.script())
}

pub(super) fn trailers(_order: &FaultOrder, good: ProperAnswer) -> ScriptResult {
    let trailers = vec![("grpc-status", "13"), ("grpc-message", "internal")];
    Ok(AnswerScript { end: ScriptEnd::Trailers(trailers), ..good.script() })
}

pub(super) fn extra(_order: &FaultOrder, good: ProperAnswer) -> ScriptResult {
    let length = good.length();
    let (all, tokens) = (Bytes::from(good.joined()), good.tokens());
    let mut script = good.script();
    if let Some(head) = &mut script.head {
        head.framing = BodyFraming::Length(length);
    }
    let ghost = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 26\r\n\r\n\
                 {\"secret\":\"not your answer\"}";
    // In one write: later bytes could be taken for the answer to the next request.
    let bytes = [&all[..], ghost.as_bytes()].concat().into();
    Ok(AnswerScript {
        body: vec![ScriptStep::Send { bytes, tokens }],
        end: ScriptEnd::Extra,
        ..script
    })
}

pub(super) fn bad_json(order: &FaultOrder, good: ProperAnswer) -> ScriptResult {
    let after = order.count("after", DEFAULT_AFTER)?;
    let text = match good.pieces.get(after) {
        Some(next) if good.events => String::from_utf8_lossy(&next.bytes).into_owned(),
        Some(_) | None => "data: {\"choices\":[{\"delta\":{\"content\":\"cut off\"}}]}".to_owned(),
    };
    // The next piece without its end: name and beginning are proper.
    let text = text.trim_end();
    let cut: String = text.chars().take(text.chars().count() - 6).collect();
    insert(order, good, BodyPiece::new(format!("{cut}\n\n")))
}

pub(super) fn bad_event(order: &FaultOrder, good: ProperAnswer) -> ScriptResult {
    insert(order, good, BodyPiece::new("dta: nothing\n<<<<>>>>\n: a comment\n\n"))
}

pub(super) fn unknown_event(order: &FaultOrder, good: ProperAnswer) -> ScriptResult {
    let data = match good.origin {
        WireFormat::Messages => json!({ "type": "moon_phase", "phase": 7 }),
        WireFormat::Responses => {
            json!({ "type": "response.moon_phase", "sequence_number": 3, "phase": 7 })
        }
        WireFormat::Chat | WireFormat::Native | WireFormat::Images => json!({ "moon_phase": 7 }),
    };
    let name = data.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    let piece = event(&good, &name, &data);
    insert(order, good, piece)
}

pub(super) fn error_event(order: &FaultOrder, good: ProperAnswer) -> ScriptResult {
    let kind = order.one_of("kind", answers::ERROR_CLASSES)?;
    let mut error = answers::error(good.origin, kind.status(), None);
    if good.origin == WireFormat::Responses
        && let Value::Object(fields) = &mut error
    {
        fields.insert("type".to_owned(), json!("error"));
        fields.insert("sequence_number".to_owned(), json!(99));
    }
    let piece = event(&good, "error", &error);
    let after = order.count("after", DEFAULT_AFTER)?;
    let good = ProperAnswer {
        pieces: good.pieces.iter().take(after).cloned().chain([piece]).collect(),
        ..good
    };
    Ok(good.script())
}

/// Inserts two bytes of invalid UTF-8 into the first text after some pieces.
pub(super) fn bad_utf8(order: &FaultOrder, mut good: ProperAnswer) -> ScriptResult {
    let after = order.count("after", DEFAULT_AFTER)?;
    if !good.events {
        good.pieces = vec![BodyPiece { tokens: good.tokens(), bytes: good.joined().into() }];
    }
    let spoken = good.pieces.iter_mut().skip(after).find(|piece| piece.tokens > 0);
    let piece = match spoken {
        Some(piece) => piece,
        None => match good.pieces.last_mut() {
            Some(piece) => piece,
            None => return Ok(good.script()),
        },
    };
    // Position after the first letter of a text: `"text":"T` and its equivalents.
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
enum EventStyle {
    Crlf,
    Cr,
    Bom,
    NoSpace,
    Multi,
    Comments,
    Fields,
}

pub(super) fn dress(order: &FaultOrder, mut good: ProperAnswer) -> ScriptResult {
    let how = order.one_of(
        "how",
        &[
            ("crlf", EventStyle::Crlf),
            ("cr", EventStyle::Cr),
            ("bom", EventStyle::Bom),
            ("nospace", EventStyle::NoSpace),
            ("multi", EventStyle::Multi),
            ("comments", EventStyle::Comments),
            ("fields", EventStyle::Fields),
        ],
    )?;
    if !good.events {
        return Ok(good.script());
    }
    for (at, piece) in good.pieces.iter_mut().enumerate() {
        let text = String::from_utf8_lossy(&piece.bytes).into_owned();
        let text = match how {
            EventStyle::Crlf => text.replace('\n', "\r\n"),
            EventStyle::Cr => text.replace('\n', "\r"),
            EventStyle::Bom if at == 0 => format!("\u{feff}{text}"),
            EventStyle::Bom => text,
            EventStyle::NoSpace => text.replace("data: ", "data:").replace("event: ", "event:"),
            // A line break is allowed at the start of the outermost object.
            EventStyle::Multi => text.replacen("data: {", "data: {\ndata: ", 1),
            EventStyle::Comments => format!(": one\n:two\n\n{text}: three\n\n"),
            EventStyle::Fields => format!("id: {at}\nretry: 3000\nunknown: x\n{text}"),
        };
        piece.bytes = text.into();
    }
    Ok(good.script())
}

pub(super) fn giant_frame(order: &FaultOrder, good: ProperAnswer) -> ScriptResult {
    let size = usize::try_from(order.size("size", 9 << 20)?).unwrap_or(usize::MAX).min(256 << 20);
    let data = [&b"data: \""[..], &vec![b'x'; size], b"\"\n\n"].concat();
    insert(order, good, BodyPiece::new(data))
}

pub(super) fn endless_line(order: &FaultOrder, good: ProperAnswer) -> ScriptResult {
    const BLOCK: usize = 64 << 10;
    let times = order.size("size", 20 << 20)?.div_ceil(BLOCK as u64);
    let mut script = stop(order, good, ScriptEnd::Hold)?;
    script.body.push(ScriptStep::send("data: "));
    script.body.push(ScriptStep::Repeat { bytes: Bytes::from(vec![b'x'; BLOCK]), times });
    Ok(script)
}

pub(super) fn empty_lines(order: &FaultOrder, good: ProperAnswer) -> ScriptResult {
    const LINE: &str = "data:\n";
    const LINES: usize = 10_000;
    let times = order.number("count", 1_000_000)?.div_ceil(LINES as u64);
    let after = order.count("after", DEFAULT_AFTER)?;
    let mut script = good.script();
    let block = ScriptStep::Repeat { bytes: Bytes::from(LINE.repeat(LINES)), times };
    let at = after.min(script.body.len());
    script.body.splice(at..at, [block, ScriptStep::send("\n")]);
    Ok(script)
}

/// Changes the JSON of every piece. The change returns true if it applied.
fn rewrite(mut good: ProperAnswer, change: &dyn Fn(&mut Value) -> bool) -> AnswerScript {
    if good.events {
        for piece in &mut good.pieces {
            if let Some(mut data) = piece.data()
                && change(&mut data)
            {
                *piece = piece.with_data(&data);
            }
        }
    } else if let Ok(mut body) = dialects::json::read_bytes::<Value>(&good.joined()) {
        let tokens = good.tokens();
        change(&mut body);
        good.pieces = vec![BodyPiece { bytes: body.to_string().into(), tokens }];
    }
    good.script()
}

/// Changes the usage in every piece.
fn recount(good: ProperAnswer, change: &dyn Fn(&mut Value) -> bool) -> AnswerScript {
    rewrite(good, &|data| visit(data, change))
}

pub(super) fn bad_arguments(_order: &FaultOrder, good: ProperAnswer) -> ScriptResult {
    Ok(rewrite(good, &uncloses))
}

/// Removes the last brace of arguments that are JSON text. Returns true if there were any.
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

/// Finds counts at any depth. Returns true if there were any.
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

pub(super) fn no_usage(_order: &FaultOrder, good: ProperAnswer) -> ScriptResult {
    Ok(recount(good, &|_| false))
}

pub(super) fn zero_usage(_order: &FaultOrder, good: ProperAnswer) -> ScriptResult {
    Ok(recount(good, &|counts| {
        every_number(counts, 0);
        true
    }))
}

pub(super) fn huge_usage(_order: &FaultOrder, good: ProperAnswer) -> ScriptResult {
    Ok(recount(good, &|counts| {
        every_number(counts, 9_000_000_000_000_000);
        true
    }))
}

//! Checks of an answer: status, place of an error, losses, headers and values of the body.

use super::exchange::{RunResult, SeenAnswer, StatementRun};
use super::statement::{AnswerCheck, RunMode, StatementCaller};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

/// Characters of a value that a failure shows.
const SHOWN_CHARS: usize = 200;

/// Characters of a picture that are read: whole groups of base64.
const HEAD_CHARS: usize = 4 * 16_384;

/// Compares an answer with everything its statement expects.
pub(super) fn judge(
    run: &StatementRun<'_>,
    seen: &SeenAnswer,
    listed: &[AnswerCheck],
) -> RunResult {
    let expect = &run.statement.expect;
    let mut result = RunResult { checks: 1, failures: Vec::new() };
    let status = seen.response.status.as_u16();
    if status != expect.status {
        let line = format!("expected status {}, seen {status}: {}", expect.status, seen.excerpt());
        result.failures.push(line);
        return result;
    }
    let mut note = |failure: Option<String>| {
        result.checks += 1;
        result.failures.extend(failure);
    };
    note(seen.response.is_truncated.then(|| "the body ends abnormally".to_owned()));
    let problems = &seen.schema_problems;
    note((!problems.is_empty()).then(|| format!("not as described: {}", problems.join("; "))));
    if status < 300 {
        note(loss_failure(run, seen));
    }
    if let Some(place) = &expect.at {
        note(place_failure(run.statement.caller, seen, place));
    }
    for (name, text) in &expect.headers {
        let value = seen.response.header(name);
        let wrong = !value.contains(text.as_str());
        note(wrong.then(|| format!("expected {text:?} in the header {name}, seen {value:?}")));
    }
    for check in listed {
        note(failure(seen, check));
    }
    result
}

/// A stream names only the losses that are known before its first event.
fn loss_failure(run: &StatementRun<'_>, seen: &SeenAnswer) -> Option<String> {
    let header = seen.response.header("x-portunus-loss");
    let mut told: Vec<&str> = header.split(", ").filter(|name| !name.is_empty()).collect();
    let none = Vec::new();
    let expected = run.statement.expect.loss.get(run.lane).unwrap_or(&none);
    let mut expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    told.sort_unstable();
    expected.sort_unstable();
    let is_right = match run.mode {
        RunMode::Whole => told == expected,
        RunMode::Stream => told.iter().all(|name| expected.contains(name)),
    };
    (!is_right).then(|| format!("expected the losses {expected:?}, seen {told:?}"))
}

/// The place of an error, where the caller's format has it.
fn place_failure(caller: StatementCaller, seen: &SeenAnswer, place: &str) -> Option<String> {
    let path = match caller {
        StatementCaller::Native => "error.details[*].fieldViolations[*].field",
        StatementCaller::Chat
        | StatementCaller::Responses
        | StatementCaller::Images
        | StatementCaller::Embeddings
        | StatementCaller::Http => "error.param",
        StatementCaller::Messages => "error.message",
    };
    let found = seen.find(path);
    let quoted = format!("`{place}`");
    let names = |value: &&Value| match caller {
        StatementCaller::Messages => value.as_str().is_some_and(|text| text.contains(&quoted)),
        StatementCaller::Native
        | StatementCaller::Chat
        | StatementCaller::Responses
        | StatementCaller::Images
        | StatementCaller::Embeddings
        | StatementCaller::Http => value.as_str() == Some(place),
    };
    let named = found.iter().any(names);
    (!named).then(|| format!("expected an error at {place}, seen {}", seen.excerpt()))
}

/// Returns what is wrong if the check does not hold.
pub(super) fn failure(seen: &SeenAnswer, check: &AnswerCheck) -> Option<String> {
    let AnswerCheck { path, operator, operand } = check;
    let found = seen.find(path);
    let holds = match operator.as_str() {
        "present" => !found.is_empty(),
        "absent" => found.is_empty(),
        "count" => operand.as_u64() == u64::try_from(found.len()).ok(),
        "some is" => found.contains(&operand),
        "none is" => !found.contains(&operand),
        "sum of" => is_sum(&found, operand, seen),
        "as many as" => {
            let other = operand.as_str().expect("a path");
            found.len() == seen.find(other).len() && !found.is_empty()
        }
        other => {
            !found.is_empty() && found.iter().all(|one| value_holds(one, other, operand, seen))
        }
    };
    if holds {
        return None;
    }
    let shown = |value: &&Value| value.to_string().chars().take(SHOWN_CHARS).collect::<String>();
    let values: Vec<String> = found.iter().take(5).map(shown).collect();
    Some(format!("expected {path} {operator} {operand}, seen [{}]", values.join(", ")))
}

fn is_sum(found: &[&Value], paths: &Value, seen: &SeenAnswer) -> bool {
    let number = |path: &Value| {
        let found = seen.find(path.as_str().expect("a path"));
        found.first().and_then(|value| value.as_u64()).unwrap_or_default()
    };
    let sum: u64 = paths.as_array().expect("paths").iter().map(number).sum();
    found.first().and_then(|value| value.as_u64()) == Some(sum)
}

/// Compares one value.
fn value_holds(value: &Value, operator: &str, operand: &Value, seen: &SeenAnswer) -> bool {
    let text = value.as_str().unwrap_or_default();
    let wanted = operand.as_str().unwrap_or_default();
    match operator {
        "is" => value == operand,
        "is not" => value != operand,
        "in" => operand.as_array().expect("a list").contains(value),
        "type" => wanted.split(" or ").any(|name| has_type(value, name)),
        "at least" => value.as_f64() >= operand.as_f64(),
        "at most" => value.as_f64().is_some() && value.as_f64() <= operand.as_f64(),
        "contains" => match value {
            Value::Array(items) => items.contains(operand),
            other => other.as_str().is_some_and(|text| text.contains(wanted)),
        },
        "lacks" => value.is_string() && !text.contains(wanted),
        "starts with" => value.is_string() && text.starts_with(wanted),
        "not empty" => !matches!(value, Value::Null) && !is_empty(value),
        "length" => value.as_array().map(|items| items.len() as u64) == operand.as_u64(),
        "keys" => has_keys(value, operand),
        "text of JSON" => {
            serde_json::from_str::<Value>(text).is_ok_and(|json| has_keys(&json, operand))
        }
        "time" => text.parse::<jiff::Timestamp>().is_ok(),
        "base64" => BASE64_STANDARD.decode(text).is_ok_and(|bytes| !bytes.is_empty()),
        "picture" => picture(text).is_some_and(|(kind, width, height)| {
            operand == &Value::String(format!("{kind} {width}x{height}"))
        }),
        "ratio" => picture(text).is_some_and(|(_, width, height)| has_ratio(width, height, wanted)),
        "cuts" => cuts(value, &seen.find(wanted)),
        unknown => panic!("no operator {unknown:?}"),
    }
}

fn has_type(value: &Value, name: &str) -> bool {
    match name {
        "string" => value.is_string(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        unknown => panic!("no type {unknown:?}"),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// True if an object has at least these fields. Without a list any JSON will do.
fn has_keys(value: &Value, keys: &Value) -> bool {
    let Some(keys) = keys.as_array() else {
        return true;
    };
    keys.iter().all(|key| value.get(key.as_str().expect("a name")).is_some())
}

/// Format, width and height of a base64 picture, which stand in its first bytes.
fn picture(text: &str) -> Option<(&'static str, u32, u32)> {
    let head = text.get(..text.len().min(HEAD_CHARS))?;
    let bytes = BASE64_STANDARD.decode(head).ok()?;
    let kind = image::guess_format(&bytes).ok()?.extensions_str().first()?;
    let reader = image::ImageReader::new(std::io::Cursor::new(bytes)).with_guessed_format().ok()?;
    let (width, height) = reader.into_dimensions().ok()?;
    Some((kind, width, height))
}

/// Sizes are whole steps of pixels, so a ratio is met within a twentieth.
fn has_ratio(width: u32, height: u32, wanted: &str) -> bool {
    let (across, down) = wanted.split_once(':').expect("a ratio");
    let number = |text: &str| text.parse::<f64>().expect("a number");
    let wanted = number(across) / number(down);
    (f64::from(width) / f64::from(height) / wanted - 1.0).abs() < 0.05
}

/// True if the indexes of a segment, in bytes, cut its text out of the answer.
fn cuts(segment: &Value, texts: &[&Value]) -> bool {
    let index = |name: &str| {
        segment[name].as_u64().and_then(|index| usize::try_from(index).ok()).unwrap_or_default()
    };
    let text = texts.first().and_then(|text| text.as_str()).unwrap_or_default();
    let cut = text.as_bytes().get(index("startIndex")..index("endIndex"));
    cut.is_some() && cut == segment["text"].as_str().map(str::as_bytes)
}

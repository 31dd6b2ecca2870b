//! Each outcome in each format. One function per outcome.

use canon::WireFormat;
use serde_json::Value;
use testkit::TestResponse;

use crate::faults::formats::{self, Event, TEXT, TOOL};

/// Error of a call before anything was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The provider failed, or is overloaded.
    Down,
    /// The provider took too long.
    Late,
    /// The provider is at its limit.
    Rate,
    /// The provider found the request bad.
    Invalid,
    /// The provider found the request too large.
    TooLarge,
}

/// Error of a stream that breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Break {
    /// It broke off.
    Cut,
    /// It took too long.
    Late,
    /// The provider is overloaded, or failed.
    Down,
    /// The provider is at its limit.
    Rate,
}

type Verdict = Result<(), String>;

fn same<T: PartialEq + std::fmt::Debug>(what: &str, got: T, want: T) -> Verdict {
    if got == want { Ok(()) } else { Err(format!("{what} is {got:?}, not {want:?}")) }
}

/// Nothing of what a provider says about itself reaches a caller.
fn nothing_leaked(got: &TestResponse) -> Verdict {
    let text = got.text();
    for secret in ["sk-proj", "example.com", "org-4711", "127.0.0.1", "not your answer"] {
        if text.contains(secret) {
            return Err(format!("the answer holds `{secret}`"));
        }
    }
    Ok(())
}

/// A proper answer, complete and with exactly the text.
pub(crate) fn complete(
    format: WireFormat,
    got: &TestResponse,
    stream: bool,
    exact: bool,
) -> Verdict {
    let text = finished(format, got, stream)?;
    if exact {
        let wrong = || format!("the text is {} bytes long and not the right one", text.len());
        if text == TEXT { Ok(()) } else { Err(wrong()) }
    } else if text.contains(char::REPLACEMENT_CHARACTER) {
        same("the rest of the text", text.replace(char::REPLACEMENT_CHARACTER, "").as_str(), TEXT)
    } else {
        Err(format!("the text shows no sign of what could not be read: {text:?}"))
    }
}

/// A proper answer that calls the tool, with some arguments.
pub(crate) fn calls(format: WireFormat, got: &TestResponse, stream: bool) -> Verdict {
    finished(format, got, stream)?;
    let events = if stream { Some(formats::events(format, got)?) } else { None };
    let called = formats::called(format, got, events.as_deref());
    match called.strip_prefix(TOOL) {
        // Native cannot carry arguments that are not an object, but has a finish reason for them.
        None if format == WireFormat::Native && got.text().contains("MALFORMED_FUNCTION_CALL") => {
            Ok(())
        }
        Some(arguments) if arguments.contains("tide") => Ok(()),
        _ => Err(format!("what is called is {called:?}: {}", got.text())),
    }
}

/// A proper answer that holds that many, each of them the text.
pub(crate) fn several(format: WireFormat, got: &TestResponse, count: usize) -> Verdict {
    complete(format, got, false, true)?;
    same("the number of answers", formats::answers(format, got), count)
}

/// A vector.
pub(crate) fn vector(format: WireFormat, got: &TestResponse) -> Verdict {
    same("the status", got.status.as_u16(), 200)?;
    same("whether it was cut", got.is_truncated, false)?;
    nothing_leaked(got)?;
    same("the length of the vector", formats::vector(format, got), 256)
}

/// The text of an answer that is complete.
fn finished(format: WireFormat, got: &TestResponse, stream: bool) -> Result<String, String> {
    same("the status", got.status.as_u16(), 200)?;
    same("whether it was cut", got.is_truncated, false)?;
    nothing_leaked(got)?;
    if stream {
        let events = formats::events(format, got)?;
        if got.body.starts_with(b"[") {
            same("whether the list is closed", got.body.ends_with(b"]"), true)?;
        }
        same("the number of ends", formats::ends(format, &events), 1)?;
        if format == WireFormat::Chat
            && let Some(odd) =
                events.iter().find(|e| e.data != "[DONE]" && !e.json()["choices"].is_array())
        {
            return Err(format!("a chunk without choices: {odd:?}"));
        }
        if let Some(error) = events.iter().find(|event| error_of(format, event).is_some()) {
            return Err(format!("a complete stream holds an error: {error:?}"));
        }
        Ok(formats::streamed_text(format, &events))
    } else {
        Ok(formats::whole_text(format, got))
    }
}

/// An error in place of an answer.
pub(crate) fn refused(format: WireFormat, got: &TestResponse, why: Refusal) -> Verdict {
    let (status, code, messages, native) = match why {
        Refusal::Down => {
            (503, &["upstream_unavailable", "overloaded"][..], "overloaded_error", "UNAVAILABLE")
        }
        Refusal::Late => (504, &["timeout"][..], "timeout_error", "DEADLINE_EXCEEDED"),
        Refusal::Rate => {
            (429, &["rate_limit_exceeded"][..], "rate_limit_error", "RESOURCE_EXHAUSTED")
        }
        Refusal::Invalid => {
            (400, &["invalid_value"][..], "invalid_request_error", "INVALID_ARGUMENT")
        }
        Refusal::TooLarge => {
            (413, &["request_too_large"][..], "request_too_large", "INVALID_ARGUMENT")
        }
    };
    same("the status", got.status.as_u16(), status)?;
    same("the content type", got.header("content-type"), "application/json")?;
    nothing_leaked(got)?;
    if got.header("x-request-id").is_empty() {
        return Err("there is no x-request-id".to_owned());
    }
    let waits = !got.header("retry-after").is_empty() && !got.header("retry-after-ms").is_empty();
    same("whether it says when to retry", waits, matches!(status, 429 | 503))?;
    let body = got.json();
    let error = &body["error"];
    if error["message"].as_str().is_none_or(str::is_empty) {
        return Err(format!("there is no message: {body}"));
    }
    match format {
        WireFormat::Chat | WireFormat::Responses | WireFormat::Images => {
            let kind = match why {
                Refusal::Down | Refusal::Late => "server_error",
                Refusal::Rate => "rate_limit_error",
                Refusal::Invalid | Refusal::TooLarge => "invalid_request_error",
            };
            same("the type", error["type"].as_str(), Some(kind))?;
            let told = error["code"].as_str().unwrap_or_default();
            if !code.contains(&told) {
                return Err(format!("the code is {told:?}, not one of {code:?}"));
            }
            same("whether there is a param", error.get("param").is_some(), true)
        }
        WireFormat::Messages => {
            same("the type", body["type"].as_str(), Some("error"))?;
            same("the kind", error["type"].as_str(), Some(messages))?;
            same("the request id", body["request_id"].as_str(), Some(got.header("x-request-id")))
        }
        WireFormat::Native => {
            same("the code", error["code"].as_u64(), Some(u64::from(status)))?;
            same("the word", error["status"].as_str(), Some(native))
        }
    }
}

/// The error an event reports, if it does.
fn error_of(format: WireFormat, event: &Event) -> Option<Value> {
    let data = event.json();
    match format {
        WireFormat::Chat | WireFormat::Native | WireFormat::Images => data.get("error").cloned(),
        WireFormat::Messages => (data["type"] == "error").then(|| data["error"].clone()),
        WireFormat::Responses => {
            (data["type"] == "response.failed").then(|| data["response"]["error"].clone())
        }
    }
}

/// A stream that broke after it had begun: it has the format's own error and is never complete.
pub(crate) fn broken(format: WireFormat, got: &TestResponse, why: Break) -> Verdict {
    same("the status", got.status.as_u16(), 200)?;
    nothing_leaked(got)?;
    let events = formats::events(format, got)?;
    same("the number of ends", formats::ends(format, &events), 0)?;
    let last = events.last().ok_or("the stream is empty")?;
    let error = error_of(format, last).ok_or_else(|| format!("it ends with {last:?}"))?;
    if error["message"].as_str().is_none_or(str::is_empty) {
        return Err(format!("there is no message: {error}"));
    }
    match format {
        WireFormat::Chat | WireFormat::Images => {
            let (kind, code) = match why {
                Break::Cut => ("server_error", &["upstream_interrupted"][..]),
                Break::Late => ("server_error", &["timeout"][..]),
                Break::Down => ("server_error", &["upstream_unavailable", "overloaded"][..]),
                Break::Rate => ("rate_limit_error", &["rate_limit_exceeded"][..]),
            };
            same("the type", error["type"].as_str(), Some(kind))?;
            let told = error["code"].as_str().unwrap_or_default();
            if !code.contains(&told) {
                return Err(format!("the code is {told:?}, not one of {code:?}"));
            }
            same("whether there is a param", error.get("param").is_some(), true)
        }
        WireFormat::Messages => {
            same("the event", last.name.as_deref(), Some("error"))?;
            let kind = match why {
                Break::Cut => "api_error",
                Break::Late => "timeout_error",
                Break::Down => "overloaded_error",
                Break::Rate => "rate_limit_error",
            };
            same("the kind", error["type"].as_str(), Some(kind))
        }
        WireFormat::Responses => {
            same("the event", last.name.as_deref(), Some("response.failed"))?;
            same("the status", last.json()["response"]["status"].as_str(), Some("failed"))?;
            let code = if why == Break::Rate { "rate_limit_exceeded" } else { "server_error" };
            same("the code", error["code"].as_str(), Some(code))?;
            let numbers: Vec<_> = events
                .iter()
                .filter_map(|event| event.json()["sequence_number"].as_u64())
                .collect();
            same("whether numbers rise", numbers.is_sorted_by(|a, b| a < b), true)
        }
        WireFormat::Native => {
            // One client recognises the error by its first key, the others by the aborted body.
            same("whether `error` comes first", last.data.starts_with("{\"error\":"), true)?;
            same("whether the body was cut", got.is_truncated, true)?;
            let (code, word) = match why {
                Break::Cut | Break::Down => (503, "UNAVAILABLE"),
                Break::Late => (504, "DEADLINE_EXCEEDED"),
                Break::Rate => (429, "RESOURCE_EXHAUSTED"),
            };
            same("the code", error["code"].as_u64(), Some(code))?;
            same("the word", error["status"].as_str(), Some(word))
        }
    }
}

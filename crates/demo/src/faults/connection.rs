//! Faults of the connection: refused, reset, closed, silent.

use bytes::Bytes;
use std::time::Duration;

use super::order::{FaultOrder, OrderError};
use super::proper_answer::ProperAnswer;
use super::script::{AnswerScript, ScriptEnd, ScriptStep};

fn silent(end: ScriptEnd) -> AnswerScript {
    AnswerScript {
        before: Bytes::new(),
        head: None,
        wait: None,
        body: Vec::new(),
        end,
        refuse: None,
    }
}

pub(super) fn refuse(order: &FaultOrder, _good: ProperAnswer) -> Result<AnswerScript, OrderError> {
    let time = order.time("for")?.unwrap_or(Duration::from_secs(2));
    Ok(AnswerScript { refuse: Some(time), ..silent(ScriptEnd::Reset) })
}

pub(super) fn reset(_order: &FaultOrder, _good: ProperAnswer) -> Result<AnswerScript, OrderError> {
    Ok(silent(ScriptEnd::Reset))
}

pub(super) fn close(_order: &FaultOrder, _good: ProperAnswer) -> Result<AnswerScript, OrderError> {
    Ok(silent(ScriptEnd::Close))
}

pub(super) fn blackhole(
    _order: &FaultOrder,
    _good: ProperAnswer,
) -> Result<AnswerScript, OrderError> {
    Ok(silent(ScriptEnd::Hold))
}

pub(super) fn stale(_order: &FaultOrder, good: ProperAnswer) -> Result<AnswerScript, OrderError> {
    Ok(AnswerScript { end: ScriptEnd::Stale, ..good.script() })
}

pub(super) fn garbage(
    _order: &FaultOrder,
    _good: ProperAnswer,
) -> Result<AnswerScript, OrderError> {
    let before = Bytes::from_static(b"\x16\x03\x01 this is no HTTP\r\n\r\n");
    Ok(AnswerScript { before, ..silent(ScriptEnd::Close) })
}

pub(super) fn stall(order: &FaultOrder, good: ProperAnswer) -> Result<AnswerScript, OrderError> {
    Ok(match order.time("wait")? {
        Some(wait) => AnswerScript { wait: Some(wait), ..good.script() },
        None => silent(ScriptEnd::Hold),
    })
}

pub(super) fn h2_refused(
    _order: &FaultOrder,
    _good: ProperAnswer,
) -> Result<AnswerScript, OrderError> {
    Ok(silent(ScriptEnd::Stream(h2::Reason::REFUSED_STREAM)))
}

pub(super) fn h2_calm(
    _order: &FaultOrder,
    _good: ProperAnswer,
) -> Result<AnswerScript, OrderError> {
    Ok(silent(ScriptEnd::Stream(h2::Reason::ENHANCE_YOUR_CALM)))
}

pub(super) fn h2_goodbye(
    order: &FaultOrder,
    good: ProperAnswer,
) -> Result<AnswerScript, OrderError> {
    Ok(match order.one_of("last", &[("ours", true), ("below", false)])? {
        true => AnswerScript { end: ScriptEnd::Goodbye, ..good.script() },
        // The frame is written directly: a server cannot withdraw a stream that it has started.
        false => {
            AnswerScript { before: Bytes::from_static(GOAWAY_FRAME), ..silent(ScriptEnd::Close) }
        }
    })
}

/// A GOAWAY frame without an error and with last stream id 0 (RFC 9113, section 6.8).
const GOAWAY_FRAME: &[u8] = b"\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\0";

pub(super) fn h2_reset(order: &FaultOrder, good: ProperAnswer) -> Result<AnswerScript, OrderError> {
    let after = order.count("after", 3)?;
    let script = good.script();
    let body: Vec<ScriptStep> = script.body.into_iter().take(after).collect();
    Ok(AnswerScript { body, end: ScriptEnd::Stream(h2::Reason::INTERNAL_ERROR), ..script })
}

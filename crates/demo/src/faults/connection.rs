//! Faults of the connection: none, reset, closed, silent.

use bytes::Bytes;
use std::time::Duration;

use super::good::Good;
use super::order::{BadOrder, Order};
use super::script::{End, Script, Step};

fn silent(end: End) -> Script {
    Script { before: Bytes::new(), head: None, wait: None, body: Vec::new(), end, refuse: None }
}

pub(super) fn refuse(order: &Order, _good: Good) -> Result<Script, BadOrder> {
    let time = order.time("for")?.unwrap_or(Duration::from_secs(2));
    Ok(Script { refuse: Some(time), ..silent(End::Reset) })
}

pub(super) fn reset(_order: &Order, _good: Good) -> Result<Script, BadOrder> {
    Ok(silent(End::Reset))
}

pub(super) fn close(_order: &Order, _good: Good) -> Result<Script, BadOrder> {
    Ok(silent(End::Close))
}

pub(super) fn blackhole(_order: &Order, _good: Good) -> Result<Script, BadOrder> {
    Ok(silent(End::Hold))
}

pub(super) fn stale(_order: &Order, good: Good) -> Result<Script, BadOrder> {
    Ok(Script { end: End::Stale, ..good.script() })
}

pub(super) fn garbage(_order: &Order, _good: Good) -> Result<Script, BadOrder> {
    let before = Bytes::from_static(b"\x16\x03\x01 this is no HTTP\r\n\r\n");
    Ok(Script { before, ..silent(End::Close) })
}

pub(super) fn stall(order: &Order, good: Good) -> Result<Script, BadOrder> {
    Ok(match order.time("wait")? {
        Some(wait) => Script { wait: Some(wait), ..good.script() },
        None => silent(End::Hold),
    })
}

pub(super) fn h2_refused(_order: &Order, _good: Good) -> Result<Script, BadOrder> {
    Ok(silent(End::Stream(h2::Reason::REFUSED_STREAM)))
}

pub(super) fn h2_calm(_order: &Order, _good: Good) -> Result<Script, BadOrder> {
    Ok(silent(End::Stream(h2::Reason::ENHANCE_YOUR_CALM)))
}

pub(super) fn h2_goodbye(order: &Order, good: Good) -> Result<Script, BadOrder> {
    Ok(match order.one_of("last", &[("ours", true), ("below", false)])? {
        true => Script { end: End::Goodbye, ..good.script() },
        // The goodbye is written as it is: a server takes back no stream that it has begun.
        false => Script { before: Bytes::from_static(GOODBYE), ..silent(End::Close) },
    })
}

/// A GOAWAY frame that knows of no stream at all, without an error.
const GOODBYE: &[u8] = b"\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\0";

pub(super) fn h2_reset(order: &Order, good: Good) -> Result<Script, BadOrder> {
    let after = order.count("after", 3)?;
    let script = good.script();
    let body: Vec<Step> = script.body.into_iter().take(after).collect();
    Ok(Script { body, end: End::Stream(h2::Reason::INTERNAL_ERROR), ..script })
}

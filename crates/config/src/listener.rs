//! Limits of the listener.

use canon::Money;
use std::time::Duration;

use transport::HttpLimits;
use transport::server::MAX_HEADERS;

use crate::error::FieldError;
use crate::raw::RawLimits;
use crate::units::{parse_duration, parse_size};

/// Checks `[limits]` and fills in the defaults.
pub(super) fn http_limits(raw: &RawLimits) -> Result<HttpLimits, FieldError> {
    let count = |name: &str, configured: Option<u32>, default: u32| match configured {
        Some(0) => Err(FieldError::new(format_args!("limits.{name}"), "must be at least 1")),
        configured => Ok(configured.unwrap_or(default)),
    };
    let time = |name: &str, configured: &Option<String>, default: u64| match configured.as_deref() {
        None => Ok(Duration::from_secs(default)),
        Some(text) => match parse_duration(text) {
            Ok(time) if !time.is_zero() => Ok(time),
            Ok(_) => {
                Err(FieldError::new(format_args!("limits.{name}"), "must be longer than zero"))
            }
            Err(why) => Err(FieldError::new(format_args!("limits.{name}"), why)),
        },
    };
    let headers = count("headers", raw.headers, 100)? as usize;
    if headers > MAX_HEADERS {
        return Err(FieldError::new(
            "limits.headers",
            format_args!("{headers} is more than the maximum of {MAX_HEADERS}"),
        ));
    }
    let header_bytes = raw.header_bytes.as_deref().map_or(Ok(64 << 10), parse_size);
    let header_bytes = header_bytes.map_err(|why| FieldError::new("limits.header_bytes", why))?;
    if !((1 << 10)..=(1 << 20)).contains(&header_bytes) {
        return Err(FieldError::new("limits.header_bytes", "must be between 1KiB and 1MiB"));
    }
    let body_rate = raw.body_rate.as_deref().map_or(Ok(4 << 10), parse_size);
    let body_rate = body_rate.map_err(|why| FieldError::new("limits.body_rate", why))?;
    Ok(HttpLimits {
        connections: count("connections", raw.connections, 16_384)? as usize,
        connections_per_address: count(
            "connections_per_address",
            raw.connections_per_address,
            8_192,
        )? as usize,
        headers,
        header_bytes,
        header_time: time("header_time", &raw.header_time, 15)?,
        body_time: time("body_time", &raw.body_time, 30)?,
        body_rate: body_rate as u64,
        idle: time("idle", &raw.idle, 75)?,
        stall: time("stall", &raw.stall, 60)?,
        streams: count("streams", raw.streams, 256)?,
        resets: count("resets", raw.resets, 100)?,
        control_frames: count("control_frames", raw.control_frames, 1_000)?,
    })
}

/// Limits of memory and of requests that cost nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateLimits {
    /// Bytes of one request body.
    pub body: u64,
    /// Bytes of request bodies in memory.
    pub buffered: u64,
    /// Bytes of request bodies of one key in memory.
    pub buffered_per_key: u64,
    /// Requests per minute and caller that cost nothing.
    pub free_rpm: u32,
    /// Requests of a caller at once that cost nothing.
    pub free_running: u32,
    /// Requests per minute from one network for pages and addresses without a key.
    pub public_rpm: u32,
    /// Requests from one network at once for pages and addresses without a key.
    pub public_running: u32,
}

/// Checks the time after which a WebSocket is closed.
pub(super) fn web_socket_lifetime(configured: Option<&str>) -> Result<Duration, FieldError> {
    /// Clients of this protocol open another connection after 55 minutes.
    const DEFAULT_LIFETIME: Duration = Duration::from_secs(3_600);
    match configured.map_or(Ok(DEFAULT_LIFETIME), parse_duration) {
        Ok(time) if time.is_zero() => {
            Err(FieldError::new("server.websocket_time", "must be longer than zero"))
        }
        Ok(time) => Ok(time),
        Err(why) => Err(FieldError::new("server.websocket_time", why)),
    }
}

/// Checks the time in which a stopping gateway still accepts calls.
pub(super) fn linger(configured: Option<&str>) -> Result<Duration, FieldError> {
    /// A load balancer that probes every second or two has noticed the 503 of `/readyz` by then.
    const DEFAULT_LINGER: Duration = Duration::from_secs(5);
    const MAX_LINGER: Duration = Duration::from_secs(600);
    match configured.map_or(Ok(DEFAULT_LINGER), parse_duration) {
        Ok(time) if time <= MAX_LINGER => Ok(time),
        Ok(_) => Err(FieldError::new("server.linger", "must be at most 600s")),
        Err(why) => Err(FieldError::new("server.linger", why)),
    }
}

/// Checks the time that a call waits for money that is reserved for other calls.
pub(super) fn money_wait(raw: &RawLimits) -> Result<Duration, FieldError> {
    const DEFAULT_WAIT: Duration = Duration::from_millis(2_500);
    const MAX_WAIT: Duration = Duration::from_secs(60);
    let wait = raw.money_wait.as_deref().map_or(Ok(DEFAULT_WAIT), parse_duration);
    match wait {
        Ok(wait) if wait <= MAX_WAIT => Ok(wait),
        Ok(_) => Err(FieldError::new("limits.money_wait", "must be at most 60s")),
        Err(why) => Err(FieldError::new("limits.money_wait", why)),
    }
}

/// Checks the goodwill of an account.
pub(super) fn goodwill(raw: &RawLimits) -> Result<Money, FieldError> {
    const DEFAULT_GOODWILL: Money = Money::from_nanos(10_000_000);
    let Some(text) = raw.goodwill.as_deref() else { return Ok(DEFAULT_GOODWILL) };
    match text.parse() {
        Ok(amount) if amount >= Money::ZERO => Ok(amount),
        Ok(_) => Err(FieldError::new("limits.goodwill", "must not be negative")),
        Err(why) => Err(FieldError::new("limits.goodwill", format_args!("`{text}` {why}"))),
    }
}

/// Checks the limits of memory and of requests that cost nothing.
pub(super) fn gate_limits(raw: &RawLimits, body: usize) -> Result<GateLimits, FieldError> {
    let size = |name: &str, configured: &Option<String>, default: usize| {
        let size = configured.as_deref().map_or(Ok(default), parse_size);
        let size = size.map(|size| size as u64);
        size.map_err(|why| FieldError::new(format_args!("limits.{name}"), why))
    };
    let count = |name: &str, configured: Option<u32>, default: u32| match configured {
        Some(0) => Err(FieldError::new(format_args!("limits.{name}"), "must be at least one")),
        configured => Ok(configured.unwrap_or(default)),
    };
    // Memory follows the size of bodies where only that is configured.
    let per_key = size("buffered_per_key", &raw.buffered_per_key, body.max(256 << 20))?;
    if per_key < body as u64 {
        return Err(FieldError::new("limits.buffered_per_key", "is less than `limits.body`"));
    }
    let all = usize::try_from(per_key).unwrap_or(usize::MAX).max(1 << 30);
    let buffered = size("buffered", &raw.buffered, all)?;
    if buffered < per_key {
        return Err(FieldError::new("limits.buffered", "is less than `limits.buffered_per_key`"));
    }
    Ok(GateLimits {
        body: body as u64,
        buffered,
        buffered_per_key: per_key,
        free_rpm: count("free_rpm", raw.free_rpm, 600)?,
        free_running: count("free_running", raw.free_running, 32)?,
        public_rpm: count("public_rpm", raw.public_rpm, 6_000)?,
        public_running: count("public_running", raw.public_running, 256)?,
    })
}

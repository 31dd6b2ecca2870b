//! Limits of a caller's connection.

use std::time::Duration;

/// Upper bound of [`HttpLimits::headers`]. Headers are parsed into an array of this size.
pub const MAX_HEADERS: usize = 256;

/// Limits of the connections callers open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpLimits {
    /// Open connections.
    pub connections: usize,
    /// Open connections from one IPv4 address, or from the /64 of an IPv6 address.
    pub connections_per_address: usize,
    /// Headers of one request.
    pub headers: usize,
    /// Bytes of the request line and the headers together.
    pub header_bytes: usize,
    /// Time the head of a request may take to arrive.
    pub header_time: Duration,
    /// Time a body may pause, and time in which the bytes of that time must arrive.
    pub body_time: Duration,
    /// Bytes of a body that must arrive per second.
    pub body_rate: u64,
    /// Time a connection may stay open without a request.
    pub idle: Duration,
    /// Time a caller may leave an available response unread.
    pub stall: Duration,
    /// Concurrent streams of one HTTP/2 connection.
    pub streams: u32,
    /// Requests an HTTP/2 connection may reset in one burst.
    pub resets: u32,
    /// Frames a second of an HTTP/2 connection that are no part of a request: PING, SETTINGS, PRIORITY,
    /// WINDOW_UPDATE and unknown ones. What it is sent allows more.
    pub control_frames: u32,
}

//! The requests of a connection without the connection, for the fuzz targets.

use bytes::BytesMut;
use std::time::Duration;

use super::head::{self, HeadScan};
use crate::framing::{Framing, FramingStep};
use crate::fuzz::Message;
use crate::server::limits::HttpLimits;
use crate::server::server_request::ServerBody;

const LIMITS: HttpLimits = HttpLimits {
    connections: 1,
    connections_per_address: 1,
    headers: 100,
    header_bytes: 64 << 10,
    header_time: Duration::MAX,
    body_time: Duration::MAX,
    body_rate: 1,
    idle: Duration::MAX,
    stall: Duration::MAX,
    streams: 1,
    resets: 1,
    control_frames: 1_000,
};

enum Reading {
    Head(HeadScan),
    Body(Framing, bool),
}

/// Reads the requests that arrive in these pieces, up to the first one that is refused.
pub(crate) fn requests(pieces: &[&[u8]]) -> Vec<Message> {
    let mut read = BytesMut::new();
    let mut messages: Vec<Message> = Vec::new();
    let mut reading = Reading::Head(HeadScan::default());
    for piece in pieces {
        read.extend_from_slice(piece);
        loop {
            match &mut reading {
                Reading::Head(_) if read.is_empty() => break,
                Reading::Head(scan) => {
                    let end = match scan.find_end(&read, &LIMITS) {
                        Ok(Some(end)) => end,
                        Ok(None) => break,
                        Err(_) => {
                            head::path_hint(&read);
                            return messages;
                        }
                    };
                    let bytes = read.split_to(end);
                    let Ok(head) = head::parse_head(&bytes, &LIMITS) else {
                        head::path_hint(&bytes);
                        return messages;
                    };
                    reading = Reading::Body(head.framing, head.keep_alive);
                    let (request, _) =
                        head.into_request(ServerBody::Empty).into_http().into_parts();
                    let line = format!("{} {} {:?}", request.method, request.uri, request.headers);
                    messages.push(Message { head: line, ..Message::default() });
                }
                Reading::Body(framing, keep) => {
                    let Some(message) = messages.last_mut() else { break };
                    match framing.take(&mut read) {
                        Ok(FramingStep::Data(data)) => message.body.extend_from_slice(&data),
                        Ok(FramingStep::Trailer(_)) => {}
                        Ok(FramingStep::NeedMore) => break,
                        Ok(FramingStep::End) if *keep => {
                            message.complete = true;
                            reading = Reading::Head(HeadScan::default());
                        }
                        Ok(FramingStep::End) => {
                            message.complete = true;
                            return messages;
                        }
                        Err(_) => return messages,
                    }
                }
            }
        }
    }
    messages
}

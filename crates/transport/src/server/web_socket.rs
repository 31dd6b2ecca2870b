//! Server side of a WebSocket (RFC 6455): the handshake, limits of size and time, and the end.

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use canon::{ApiError, ErrorKind};
use futures_util::{SinkExt as _, StreamExt as _};
use http::{Method, StatusCode, Version};
use http_body::Body as _;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message, Utf8Bytes};

use super::cut_frames::CutFrames;
use super::metered_stream::{MeteredStream, ReadMeter};
use super::server_reply::ServerReply;
use super::server_request::{ServerBody, ServerRequest};
use super::upgrade::{ConnectionPlace, ProtocolUpgrade, UpgradedConnection};
use crate::header_block::visible_text;

/// Appended to the key of a handshake (RFC 6455, section 1.3).
const HANDSHAKE_SUFFIX: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// Size of a read. Every open socket holds a buffer of it.
const READ_BYTES: usize = 8 << 10;
/// Bytes of a control frame of a client beside its payload: two of the header and four of the mask.
const CONTROL_FRAME_BYTES: usize = 6;
/// Time in which the peer may answer a close frame.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes of the peer that are discarded during that time.
const MAX_CLOSE_BYTES: usize = 1 << 20;

/// Reason to close a WebSocket (RFC 6455, section 7.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The work is done.
    Done,
    /// The process stops.
    GoingAway,
    /// The peer broke the protocol.
    ProtocolError,
    /// The peer sent something other than text.
    NotText,
    /// A text is not UTF-8.
    InvalidText,
    /// The peer may not go on.
    PolicyViolation,
    /// A message is larger than allowed.
    TooLarge,
    /// There is no memory for a message now.
    TryLater,
}

impl CloseReason {
    const fn code(self) -> u16 {
        match self {
            Self::Done => 1000,
            Self::GoingAway => 1001,
            Self::ProtocolError => 1002,
            Self::NotText => 1003,
            Self::InvalidText => 1007,
            Self::PolicyViolation => 1008,
            Self::TooLarge => 1009,
            Self::TryLater => 1013,
        }
    }
}

/// Input of a WebSocket.
#[derive(Debug)]
pub enum SocketInput {
    /// A whole text message.
    Text(Bytes),
    /// Input that ends the connection, with an error for the peer if it can be told one.
    Refused(CloseReason, Option<ApiError>),
    /// The peer has left.
    Closed,
}

/// Answers a request that asks for a WebSocket. `work` speaks with the peer after that.
///
/// # Errors
/// 426 if the request does not ask for one, or cannot have one on this connection.
pub fn accept_web_socket(
    request: &ServerRequest,
    upgrade: ProtocolUpgrade,
) -> Result<ServerReply, ApiError> {
    let refused = |why: &'static str| Err(ApiError::new(ErrorKind::UpgradeRefused, why));
    let headers = request.headers();
    let has_word = |name: &str, word: &str| {
        headers
            .get_all(name)
            .filter_map(visible_text)
            .any(|value| value.split(',').any(|part| part.trim().eq_ignore_ascii_case(word)))
    };
    if request.head().version() != Version::HTTP_11 {
        return refused("a WebSocket needs HTTP/1.1; send POST instead");
    }
    if *request.method() != Method::GET
        || !has_word("connection", "upgrade")
        || !has_word("upgrade", "websocket")
    {
        return refused("this address takes a WebSocket handshake; send POST instead");
    }
    if !has_word("sec-websocket-version", "13") {
        return refused("the header `Sec-WebSocket-Version` must be 13");
    }
    let mut keys = headers.get_all("sec-websocket-key");
    let (Some(key), None) = (keys.next(), keys.next()) else {
        return refused("the header `Sec-WebSocket-Key` must be sent once");
    };
    if STANDARD.decode(key).map_or(0, |bytes| bytes.len()) != 16 {
        return refused("the header `Sec-WebSocket-Key` must be 16 bytes in base64");
    }
    if !request.body.is_end_stream() {
        return refused("a WebSocket handshake has no body");
    }
    let mut text = key.to_vec();
    text.extend_from_slice(HANDSHAKE_SUFFIX.as_bytes());
    let proof = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, &text);
    let lines = "connection: upgrade\r\nupgrade: websocket\r\n";
    let mut reply = ServerReply::with_lines(lines, ServerBody::Empty);
    reply.status = StatusCode::SWITCHING_PROTOCOLS;
    reply.headers.insert("sec-websocket-accept", STANDARD.encode(proof).as_bytes());
    reply.upgrade = Some(upgrade);
    Ok(reply)
}

/// A WebSocket whose handshake is done.
pub struct WebSocket {
    socket: WebSocketStream<CutFrames>,
}

impl WebSocket {
    /// Opens a WebSocket on a connection, with texts of at most this size.
    pub async fn open(
        connection: UpgradedConnection,
        max_text_bytes: usize,
        meter: Box<dyn ReadMeter>,
    ) -> (Self, ConnectionPlace) {
        let UpgradedConnection { stream, read, limits, place } = connection;
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BYTES)
            .write_buffer_size(READ_BYTES)
            .max_message_size(Some(max_text_bytes))
            .max_frame_size(Some(max_text_bytes));
        let stream = MeteredStream::new(stream, &limits, meter);
        let stream = CutFrames::new(stream, &read, max_text_bytes, READ_BYTES);
        let socket = WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await;
        (Self { socket }, place)
    }

    /// Returns the next input. It is lost in no case: the future may be dropped and asked for again.
    pub async fn next(&mut self) -> SocketInput {
        loop {
            let message = match self.socket.next().await {
                None => return SocketInput::Closed,
                Some(Err(error)) => return read_error(error),
                Some(Ok(message)) => message,
            };
            match message {
                Message::Text(text) => {
                    self.socket.get_mut().stream().release_all();
                    return SocketInput::Text(text.into());
                }
                Message::Binary(_) => {
                    let error = ApiError::invalid("", "a message must be a text frame with JSON");
                    return SocketInput::Refused(CloseReason::NotText, Some(error));
                }
                Message::Ping(data) | Message::Pong(data) => {
                    self.socket.get_mut().stream().release(data.len() + CONTROL_FRAME_BYTES);
                    // The answer to a ping is sent before the next frame is read, so that answers
                    // cannot pile up.
                    if !self.flush().await {
                        return SocketInput::Closed;
                    }
                }
                Message::Close(_) => {
                    self.flush().await;
                    return SocketInput::Closed;
                }
                Message::Frame(_) => {}
            }
        }
    }

    /// Sends texts. Returns false if the peer has left or does not read.
    pub async fn send(&mut self, texts: impl Iterator<Item = Bytes>) -> bool {
        for text in texts {
            // Events are JSON of this gateway or of a provider, whose UTF-8 the reader has checked.
            let Ok(text) = Utf8Bytes::try_from(text) else { continue };
            if self.socket.feed(Message::Text(text)).await.is_err() {
                return false;
            }
        }
        self.flush().await
    }

    /// Sends a ping. Returns false if the peer has left or does not read.
    pub async fn ping(&mut self) -> bool {
        self.socket.send(Message::Ping(Bytes::new())).await.is_ok()
    }

    async fn flush(&mut self) -> bool {
        self.socket.flush().await.is_ok()
    }

    /// Closes the connection with a reason. Waits a moment for the peer's answer, because closing with
    /// unread bytes would reset the connection and discard the reason.
    pub async fn close(mut self, reason: CloseReason) {
        let frame =
            CloseFrame { code: CloseCode::from(reason.code()), reason: Utf8Bytes::default() };
        let closing = async {
            if self.socket.send(Message::Close(Some(frame))).await.is_err() {
                return;
            }
            let mut stream = self.socket.into_inner().into_stream().into_stream();
            if stream.shutdown().await.is_err() {
                return;
            }
            let (mut discarded, mut buffer) = (0, vec![0; READ_BYTES]);
            while discarded < MAX_CLOSE_BYTES
                && let Ok(count @ 1..) = stream.read(&mut buffer).await
            {
                discarded += count;
            }
        };
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, closing).await;
    }
}

/// Returns the input that a failed read stands for.
fn read_error(error: Error) -> SocketInput {
    let message = error.to_string();
    match error {
        Error::Capacity(_) => {
            let error = ApiError::new(ErrorKind::BodyTooLarge, message);
            SocketInput::Refused(CloseReason::TooLarge, Some(error))
        }
        Error::Utf8(_) => SocketInput::Refused(CloseReason::InvalidText, None),
        Error::Io(error) => match MeteredStream::refusal(error) {
            Some((reason, error)) => SocketInput::Refused(reason, Some(error)),
            None => SocketInput::Closed,
        },
        // A connection that was cut ends without a word.
        Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => SocketInput::Closed,
        Error::Protocol(_) => {
            let error = ApiError::invalid("", format!("the frame is not allowed: {message}"));
            SocketInput::Refused(CloseReason::ProtocolError, Some(error))
        }
        _ => SocketInput::Closed,
    }
}

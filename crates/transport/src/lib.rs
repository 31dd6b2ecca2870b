//! HTTP on both sides of the gateway: the server for callers, the client for providers, and the
//! body framing of both.
//!
//! Nothing here knows models, keys or accounts. A server gets a [`RequestHandler`]. A client gets
//! an [`Outbound`] with proxies and root certificates.

pub mod client;
mod content_coding;
mod deadline_timer;
mod digits;
mod framing;
#[doc(hidden)]
pub mod fuzz;
mod header_block;
mod header_fields;
mod network;
pub mod server;

pub use client::{
    AddressGuard, AllowListError, BodyError, ClientBody, ClientResponse, EventStreamBody,
    FetchTarget, Http1Body, HttpClient, LocalBody, LocalService, LookupFuture, NameResolver,
    NetworkBody, NetworkClient, NotPublic, Outbound, OutboundError, ProxySettings, RequestBody,
    RequestTemplate, SendError, SentMark, SystemResolver, UndecodedBody, is_public, is_public_host,
};
pub use content_coding::{
    BodyDecoder, ContentCoding, DecodeError, MAX_EXPANSION, SUPPORTED_CODINGS, UnknownCoding,
};
pub use deadline_timer::TimerPool;
pub use framing::{ChunkState, Framing, FramingError, FramingStep};
pub use header_block::{HeaderBlock, visible_text};
pub use header_fields::HeaderFields;
pub use network::network_of;
pub use server::{
    CloseReason, ConnectionPlace, Connections, HttpLimits, ProtocolUpgrade, ReadMeter,
    ReplyHeaders, RequestHandler, RequestHead, ServerBody, ServerReply, ServerRequest,
    ShutdownPhase, SocketInput, UpgradedConnection, WebSocket, accept_web_socket, body_error,
    read_whole, too_large,
};

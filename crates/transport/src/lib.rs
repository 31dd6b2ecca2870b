//! HTTP on both sides of the gateway: the server callers connect to, the client that reaches
//! providers, and the body framing both share.
//!
//! Nothing here knows models, keys or accounts. A server is given a [`RequestHandler`]; a client
//! is given an [`Outbound`] that says which proxies and root certificates apply.

pub mod client;
mod content_coding;
mod framing;
pub mod server;

pub use client::{
    AddressGuard, BodyError, ClientBody, ClientResponse, EventStreamBody, FetchTarget, Http1Body,
    HttpClient, LocalBody, LocalService, LookupFuture, NameResolver, NetworkBody, NetworkClient,
    NotPublic, Outbound, OutboundError, ProxySettings, RequestBody, SendError, SystemResolver,
    is_public,
};
pub use content_coding::{BodyDecoder, ContentCoding, DecodeError, SUPPORTED_CODINGS};
pub use framing::{ChunkState, Framing, FramingError, FramingStep};
pub use server::{Connections, HttpLimits, RequestHandler, ShutdownPhase};

//! HTTP on both sides of the gateway: the server callers connect to, the client that reaches
//! providers, and the body framing both share.
//!
//! Nothing here knows models, keys or accounts. A server is given a [`RequestHandler`]; a client
//! is given an [`Outbound`] that says which proxies and root certificates apply.

pub mod client;
mod coding;
mod framing;
pub mod server;

pub use client::{
    Answer, Body, BodyError, Client, Finding, Flow, Guard, Local, LocalBody, Lost, Names, Net,
    NetBody, NotPublic, Outbound, OutboundError, Pieces, Proxies, SystemNames, Target, Unframed,
    is_public,
};
pub use coding::{CODINGS, Coding, Decoder, Undecodable};
pub use framing::{Chunked, Framing, Nonsense, Step};
pub use server::{Connections, HttpLimits, RequestHandler, ShutdownPhase};

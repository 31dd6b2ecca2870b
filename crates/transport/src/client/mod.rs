//! The client side: addresses, connections kept for the next request, requests and their answers.

mod address;
mod body;
mod dial;
mod event_stream;
mod guard;
mod h1;
mod h1_head;
mod names;
mod outbound;
mod pool;
mod send;
mod used;

pub use address::is_public;
pub use body::{Body, BodyError, NetBody, Pieces};
pub use event_stream::Unframed;
pub use guard::{Guard, NotPublic, Target};
pub use h1::Flow;
pub use names::{Finding, Names, SystemNames};
pub use outbound::{Outbound, OutboundError, Proxies};
pub use send::{Answer, Client, Local, LocalBody, Lost, Net};

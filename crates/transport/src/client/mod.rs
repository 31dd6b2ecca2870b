//! The client side: addresses, connections kept for the next request, requests and their answers.

mod public_address;
mod body;
mod dialler;
mod event_stream;
mod guard;
mod h1;
mod response_head;
mod resolver;
mod outbound;
mod pool;
mod http_client;
mod connection_use;

pub use public_address::is_public;
pub use body::{ClientBody, BodyError, NetworkBody, RequestBody};
pub use event_stream::EventStreamBody;
pub use guard::{AddressGuard, NotPublic, FetchTarget};
pub use h1::Http1Body;
pub use resolver::{LookupFuture, NameResolver, SystemResolver};
pub use outbound::{Outbound, OutboundError, ProxySettings};
pub use http_client::{ClientResponse, HttpClient, LocalService, LocalBody, SendError, NetworkClient};

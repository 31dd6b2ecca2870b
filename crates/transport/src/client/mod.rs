//! The client side: URL checks, connections, requests and responses.

mod body;
mod certificate_verifier;
mod client_response;
mod connection_use;
mod dialler;
pub(crate) mod event_stream;
mod guard;
mod h1;
mod http_client;
pub(crate) mod known_head;
mod outbound;
mod pool;
mod public_address;
mod request_template;
mod resolver;
pub(crate) mod response_head;
mod sent_mark;

pub use body::{BodyError, ClientBody, LocalBody, NetworkBody, RequestBody, UndecodedBody};
pub use client_response::ClientResponse;
pub use event_stream::EventStreamBody;
pub use guard::{AddressGuard, AllowListError, FetchTarget, NotPublic};
pub use h1::Http1Body;
pub use http_client::{HttpClient, LocalService, NetworkClient, SendError};
pub use outbound::{Outbound, OutboundError, ProxySettings};
pub use public_address::{is_public, is_public_host};
pub use request_template::RequestTemplate;
pub use resolver::{LookupFuture, NameResolver, SystemResolver};
pub use sent_mark::SentMark;

//! HTTP over real sockets: accepted and refused requests, streams, shutdown.

mod admission;
mod bodies;
mod busy;
mod drain;
mod framing;
pub(crate) mod h2;
mod heavy_work;
mod kept_alive;
mod limits;
pub(crate) mod raw_client;
mod signals;
mod slow_callers;
mod streams;
mod tls;

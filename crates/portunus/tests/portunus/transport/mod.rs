//! HTTP over real sockets: what is let in, what is refused and how, and how it all ends.

mod bodies;
mod busy;
mod caller;
mod drain;
mod framing;
mod h2;
mod limits;
mod signals;
mod streams;
mod tls;

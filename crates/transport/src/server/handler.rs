//! The service behind a listener.

use canon::{ApiError, Micros};

use super::server_reply::ServerReply;
use super::server_request::ServerRequest;
use crate::header_block::HeaderBlock;

/// Answers the requests of one connection.
///
/// The server reads and writes HTTP. The handler writes every response, also to malformed requests,
/// so that a caller sees one error format.
pub trait RequestHandler: Send + Sync + 'static {
    /// Facts of one request that its answer needs even if its work is cut short, such as its id.
    type Context: Clone + Send + Sync;

    /// Returns the context of a new request with this path and these headers.
    fn context(&self, path: &str, headers: &HeaderBlock) -> Self::Context;

    /// Answers one request.
    fn answer(
        &self,
        request: ServerRequest,
        context: Self::Context,
    ) -> impl Future<Output = ServerReply> + Send;

    /// Answers a request that could not be parsed.
    fn refuse(&self, error: &ApiError, path: &str) -> ServerReply;

    /// Answers a request that is cut short because the process stops.
    fn stopped(&self, context: &Self::Context) -> ServerReply;

    /// Returns the time of day, for the `Date` header.
    fn now(&self) -> Micros;
}

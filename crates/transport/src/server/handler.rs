//! The service behind a listener.

use canon::{ApiError, Micros};
use std::sync::Arc;

use super::server_reply::ServerReply;
use super::server_request::{RequestHead, ServerRequest};

/// Answers the requests of one connection.
///
/// The server reads and writes HTTP. The handler writes every response, also to malformed requests,
/// so that a caller sees one error format.
pub trait RequestHandler: Send + Sync + 'static {
    /// Facts of one request that its answer needs even if its work is cut short, such as its id.
    type Context: Send + Sync;

    /// Returns the context of a new request with this head. Requests whose heads differ only in the
    /// length of the body share one head.
    fn context(&self, head: &Arc<RequestHead>) -> Self::Context;

    /// Answers one request.
    fn answer(
        &self,
        request: ServerRequest,
        context: &Self::Context,
    ) -> impl Future<Output = ServerReply> + Send;

    /// Answers a request that could not be parsed.
    fn refuse(&self, error: &ApiError, path: &str) -> ServerReply;

    /// Answers a request that is cut short because the process stops.
    fn stopped(&self, context: &Self::Context) -> ServerReply;

    /// Returns the time of day, for the `Date` header.
    fn now(&self) -> Micros;
}

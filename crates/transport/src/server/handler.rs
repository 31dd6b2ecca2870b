//! The service behind a listener.

use axum::body::Body;
use axum::response::Response;
use canon::{ApiError, Micros};
use http::{HeaderMap, Request};

/// Answers the requests of one connection.
///
/// The server reads and writes HTTP. The handler writes every response, also to malformed requests,
/// so that a caller sees one error format.
pub trait RequestHandler: Send + Sync + 'static {
    /// Error format of one request, chosen before the request is handled.
    type Format: Copy + Send + Sync;

    /// Returns the error format for a path and headers.
    fn format(&self, path: &str, headers: &HeaderMap) -> Self::Format;

    /// Answers one request.
    fn answer(
        &self,
        request: Request<Body>,
        format: Self::Format,
    ) -> impl Future<Output = Response> + Send;

    /// Answers a request that could not be parsed.
    fn refuse(&self, error: &ApiError, path: &str) -> Response;

    /// Answers a request that is cut short because the process stops.
    fn stopped(&self, format: Self::Format) -> Response;

    /// Returns the time of day, for the `Date` header.
    fn now(&self) -> Micros;
}

//! S3 through our own HTTP client, so that the proxy and the certificates of `[outbound]` apply.

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::Response;
use http_body::{Body as HttpBody, Frame};
use http_body_util::BodyExt as _;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService,
};
use parking_lot::Mutex;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use transport::{HttpClient as GatewayClient, Outbound, RequestBody};

/// Time to open a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time a bucket may take to send the head of its response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// Connects `object_store` with our own client.
#[derive(Debug)]
pub(crate) struct BucketConnector(pub(crate) Outbound);

impl HttpConnector for BucketConnector {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(BucketClient(GatewayClient::network(CONNECT_TIMEOUT, &self.0))))
    }
}

#[derive(Debug)]
struct BucketClient(GatewayClient);

impl HttpService for BucketClient {
    // The signature that `async_trait` would generate.
    fn call<'own, 'out>(
        &'own self,
        request: HttpRequest,
    ) -> BoxFuture<'out, Result<HttpResponse, HttpError>>
    where
        'own: 'out,
        Self: 'out,
    {
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            let request = http::Request::from_parts(head, RequestBody::new(vec![body]));
            let sending = tokio::time::timeout(RESPONSE_TIMEOUT, self.0.send(request, false));
            let received = match sending.await {
                Ok(Ok(response)) => response,
                Ok(Err(error)) => {
                    let kind = match error.progress {
                        canon::UpstreamProgress::NotSent
                        | canon::UpstreamProgress::StaleConnection
                        | canon::UpstreamProgress::Refused => HttpErrorKind::Connect,
                        canon::UpstreamProgress::Sent | canon::UpstreamProgress::Answered(_) => {
                            HttpErrorKind::Interrupted
                        }
                    };
                    return Err(HttpError::new(kind, io::Error::other(error.cause)));
                }
                Err(elapsed) => return Err(HttpError::new(HttpErrorKind::Timeout, elapsed)),
            };
            let mut response =
                Response::new(HttpResponseBody::new(SyncBody(Mutex::new(received.body))));
            *response.status_mut() = http::StatusCode::from_u16(received.status)
                .map_err(|e| HttpError::new(HttpErrorKind::Decode, e))?;
            *response.headers_mut() = received.headers.to_map();
            Ok(response)
        })
    }
}

/// Makes a body `Sync`. `object_store` requires it although one task reads the body, so the lock is
/// never contended.
struct SyncBody(Mutex<transport::ClientBody>);

impl HttpBody for SyncBody {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        Pin::new(self.0.get_mut())
            .poll_frame(cx)
            .map_err(|e| HttpError::new_boxed(HttpErrorKind::Interrupted, e))
    }
}

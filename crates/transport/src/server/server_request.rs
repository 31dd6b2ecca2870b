//! A request as handlers receive it.

use axum::body::Body;
use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{Method, Request, Uri, Version};
use http_body::{Body as HttpBody, Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::header_block::HeaderBlock;

/// A request: its head, the declared length of its body, and the unread body.
#[derive(Debug)]
pub struct ServerRequest {
    pub(super) head: Arc<RequestHead>,
    pub(super) length: Option<u64>,
    /// Body.
    pub body: ServerBody,
}

/// Head of a request: its target, and its headers over the received bytes. The header
/// `Content-Length` is not among them.
///
/// Requests of a connection whose heads differ only in the length share one head. A handler can keep
/// what it derived from a head as long as it has the head.
#[derive(Debug)]
pub struct RequestHead {
    pub(super) method: Method,
    pub(super) target: RequestPath,
    pub(super) version: Version,
    pub(super) headers: HeaderBlock,
}

/// Target of a request.
#[derive(Debug)]
pub(super) enum RequestPath {
    /// A plain path without a query, at this position of the head.
    Plain(u32, u32),
    /// Any other target.
    Parsed(Box<Uri>),
}

/// Body of a request.
#[derive(Debug, Default)]
pub enum ServerBody {
    /// No body, or one that was read.
    #[default]
    Empty,
    /// A body that arrived with its head.
    Whole(Bytes),
    /// A body that is read on demand.
    Stream(Body),
}

impl RequestHead {
    /// Returns the method.
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// Returns the path.
    pub fn path(&self) -> &str {
        match &self.target {
            RequestPath::Plain(start, end) => self.headers.head_text(*start, *end),
            RequestPath::Parsed(uri) => uri.path(),
        }
    }

    /// Returns the query, which is empty if there is none.
    pub fn query(&self) -> &str {
        match &self.target {
            RequestPath::Plain(..) => "",
            RequestPath::Parsed(uri) => uri.query().unwrap_or_default(),
        }
    }

    /// Returns the path and the query.
    pub fn target(&self) -> (&str, &str) {
        (self.path(), self.query())
    }

    /// Returns the version of HTTP.
    pub const fn version(&self) -> Version {
        self.version
    }

    /// Returns the headers.
    pub fn headers(&self) -> &HeaderBlock {
        &self.headers
    }
}

impl ServerRequest {
    /// Creates a request with a body that has arrived.
    pub fn with_body(head: Arc<RequestHead>, body: Bytes) -> Self {
        Self { head, length: Some(body.len() as u64), body: ServerBody::Whole(body) }
    }

    /// Returns the head.
    pub const fn head(&self) -> &Arc<RequestHead> {
        &self.head
    }

    /// Returns the declared length of the body, which the header `Content-Length` names.
    pub const fn length(&self) -> Option<u64> {
        self.length
    }

    /// Returns the method.
    pub fn method(&self) -> &Method {
        self.head.method()
    }

    /// Returns the path.
    pub fn path(&self) -> &str {
        self.head.path()
    }

    /// Returns the query, which is empty if there is none.
    pub fn query(&self) -> &str {
        self.head.query()
    }

    /// Returns the headers except `Content-Length`.
    pub fn headers(&self) -> &HeaderBlock {
        self.head.headers()
    }

    /// Returns the request for a handler that works with maps of headers.
    pub fn into_http(self) -> Request<Body> {
        let mut request = Request::new(self.body.into_body());
        let RequestHead { method, target, version, headers } = &*self.head;
        *request.headers_mut() = headers.to_map();
        if let Some(length) = self.length {
            request.headers_mut().insert(CONTENT_LENGTH, length.into());
        }
        *request.version_mut() = *version;
        *request.uri_mut() = match target {
            RequestPath::Plain(start, end) => {
                headers.head_text(*start, *end).parse().unwrap_or_default()
            }
            RequestPath::Parsed(uri) => Uri::clone(uri),
        };
        *request.method_mut() = method.clone();
        request
    }
}

impl From<Request<Body>> for ServerRequest {
    fn from(request: Request<Body>) -> Self {
        let (mut head, body) = request.into_parts();
        let length = head.headers.remove(CONTENT_LENGTH);
        let head = RequestHead {
            method: head.method,
            target: RequestPath::Parsed(Box::new(head.uri)),
            version: head.version,
            headers: HeaderBlock::from_map(&head.headers),
        };
        Self {
            head: Arc::new(head),
            length: length.and_then(|length| length.to_str().ok()?.parse().ok()),
            body: ServerBody::Stream(body),
        }
    }
}

impl ServerBody {
    /// Returns the body as a boxed one.
    pub fn into_body(self) -> Body {
        match self {
            Self::Empty => Body::empty(),
            Self::Whole(bytes) => Body::from(bytes),
            Self::Stream(body) => body,
        }
    }
}

impl HttpBody for ServerBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let body = self.get_mut();
        match body {
            Self::Stream(stream) => Pin::new(stream).poll_frame(cx),
            Self::Empty => Poll::Ready(None),
            Self::Whole(bytes) => {
                let bytes = std::mem::take(bytes);
                *body = Self::Empty;
                Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Whole(bytes) => bytes.is_empty(),
            Self::Stream(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Stream(body) => body.size_hint(),
        }
    }
}

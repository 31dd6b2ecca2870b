//! A request as handlers receive it.

use axum::body::Body;
use bytes::Bytes;
use http::{Method, Request, Uri, Version};
use http_body::{Body as HttpBody, Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::header_block::HeaderBlock;

/// A request: its target, its headers over the bytes of the head, and an unread body.
#[derive(Debug)]
pub struct ServerRequest {
    pub(super) method: Method,
    pub(super) target: RequestPath,
    pub(super) version: Version,
    pub(super) headers: HeaderBlock,
    /// Body.
    pub body: ServerBody,
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

impl ServerRequest {
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

    /// Returns the headers.
    pub fn headers(&self) -> &HeaderBlock {
        &self.headers
    }

    /// Returns the request for a handler that works with maps of headers.
    pub fn into_http(self) -> Request<Body> {
        let mut request = Request::new(Body::empty());
        *request.headers_mut() = self.headers.to_map();
        *request.version_mut() = self.version;
        *request.uri_mut() = match self.target {
            RequestPath::Plain(start, end) => {
                self.headers.head_text(start, end).parse().unwrap_or_default()
            }
            RequestPath::Parsed(uri) => *uri,
        };
        *request.method_mut() = self.method;
        *request.body_mut() = self.body.into_body();
        request
    }
}

impl From<Request<Body>> for ServerRequest {
    fn from(request: Request<Body>) -> Self {
        let (head, body) = request.into_parts();
        Self {
            method: head.method,
            target: RequestPath::Parsed(Box::new(head.uri)),
            version: head.version,
            headers: HeaderBlock::from_map(&head.headers),
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

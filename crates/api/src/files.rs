//! `GET /files/{name}`: stored files, for callers with a signed link that has not expired.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use canon::ApiError;
use futures_util::stream::BoxStream;
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE,
    CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH, IF_RANGE, RANGE,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body::{Body as HttpBody, Frame, SizeHint};
use object_store::GetRange;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use super::query::{percent_decode, query_pairs};
use crate::state::ApiState;
use relay::file_store::{FileContent, FileName};

pub(super) async fn get(
    state: Arc<ApiState>,
    request: Request<Body>,
) -> Result<Response, ApiError> {
    let name = percent_decode(request.uri().path().strip_prefix("/files/").unwrap_or_default());
    let query = query_pairs(request.uri().query().unwrap_or_default());
    let value = |name: &str| {
        query.iter().find(|(own, _)| own == name).map_or("", |(_, value)| value.as_str())
    };
    let name = state.engine.files.verify_link(&name, value("expires"), value("signature"))?;
    let headers = request.headers();
    let etag = format!("\"{}\"", name.text);
    if header_text(headers, IF_NONE_MATCH)
        .is_some_and(|header| header == "*" || header.contains(&etag))
    {
        return Ok(file_response(&state, &name, StatusCode::NOT_MODIFIED, Body::empty()));
    }
    let range = header_text(headers, RANGE)
        .filter(|_| header_text(headers, IF_RANGE).is_none_or(|header| header == etag))
        .and_then(parse_range);
    let head_only = *request.method() == Method::HEAD;
    if !head_only && range.is_none() {
        let body = sized_body(state.engine.files.get(name.text).await?);
        return Ok(file_response(&state, &name, StatusCode::OK, body));
    }
    let file = state.engine.files.find(name.text).await?;
    let size = file.size;
    let Some(range) = range else {
        let mut response = file_response(&state, &name, StatusCode::OK, Body::empty());
        response.headers_mut().insert(CONTENT_LENGTH, size.into());
        return Ok(response);
    };
    let Some(part) = resolve_range(&range, size) else {
        let mut response =
            file_response(&state, &name, StatusCode::RANGE_NOT_SATISFIABLE, Body::empty());
        set_header(response.headers_mut(), CONTENT_RANGE, &format!("bytes */{size}"));
        return Ok(response);
    };
    let length = part.end - part.start;
    let header = format!("bytes {}-{}/{size}", part.start, part.end - 1);
    let body = if head_only { Body::empty() } else { sized_body(file.read_part(part).await?) };
    let mut response = file_response(&state, &name, StatusCode::PARTIAL_CONTENT, body);
    set_header(response.headers_mut(), CONTENT_RANGE, &header);
    if head_only {
        response.headers_mut().insert(CONTENT_LENGTH, length.into());
    }
    Ok(response)
}

/// Response with a file. The content security policy keeps browsers from running active content.
fn file_response(
    state: &ApiState,
    name: &FileName<'_>,
    status: StatusCode,
    body: Body,
) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(name.mime));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    let policy = HeaderValue::from_static("default-src 'none'; sandbox");
    headers.insert(CONTENT_SECURITY_POLICY, policy);
    let shown = if name.is_raster_image() { "inline" } else { "attachment" };
    set_header(headers, CONTENT_DISPOSITION, &format!("{shown}; filename=\"{}\"", name.text));
    set_header(headers, ETAG, &format!("\"{}\"", name.text));
    let remaining = name.expires_at.saturating_sub(state.clock().now().as_secs()).max(0);
    set_header(headers, CACHE_CONTROL, &format!("private, max-age={remaining}, immutable"));
    response
}

fn header_text(headers: &HeaderMap, name: http::HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn set_header(headers: &mut HeaderMap, name: http::HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// Parses one byte range (RFC 9110, section 14.2). `None` for several ranges or an invalid one: the
/// caller then sends the whole file.
fn parse_range(header: &str) -> Option<GetRange> {
    let (first, last) = header.strip_prefix("bytes=")?.split_once('-')?;
    match (first.trim(), last.trim()) {
        ("", last) => Some(GetRange::Suffix(last.parse().ok()?)),
        (first, "") => Some(GetRange::Offset(first.parse().ok()?)),
        (first, last) => {
            let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
            (first <= last).then(|| GetRange::Bounded(first..last.saturating_add(1)))
        }
    }
}

/// Returns the part of a file that a range selects; `None` if it is empty.
fn resolve_range(range: &GetRange, size: u64) -> Option<Range<u64>> {
    let part = match range {
        GetRange::Bounded(part) => part.start..part.end.min(size),
        GetRange::Offset(from) => *from..size,
        GetRange::Suffix(length) => size.saturating_sub(*length)..size,
    };
    (part.start < part.end).then_some(part)
}

fn sized_body(content: FileContent) -> Body {
    let FileContent { length, stream } = content;
    Body::new(SizedBody { remaining: length, stream })
}

/// Body with a known length. A stream that ends early becomes an error, so that the client sees a
/// truncated body.
struct SizedBody {
    remaining: u64,
    stream: BoxStream<'static, object_store::Result<Bytes>>,
}

impl HttpBody for SizedBody {
    type Data = Bytes;
    type Error = object_store::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let next = ready!(self.stream.as_mut().poll_next(cx));
        Poll::Ready(match next {
            Some(Ok(bytes)) => {
                self.remaining = self.remaining.saturating_sub(bytes.len() as u64);
                Some(Ok(Frame::data(bytes)))
            }
            Some(Err(e)) => Some(Err(e)),
            None if self.remaining > 0 => {
                Some(Err(object_store::Error::Generic { store: "files", source: "cut off".into() }))
            }
            None => None,
        })
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.remaining)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_ranges_are_parsed() {
        let part =
            |header: &str, size| parse_range(header).map(|range| resolve_range(&range, size));
        assert_eq!(part("bytes=0-3", 10), Some(Some(0..4)));
        assert_eq!(part("bytes=4-", 10), Some(Some(4..10)));
        assert_eq!(part("bytes=-3", 10), Some(Some(7..10)));
        assert_eq!(part("bytes=-30", 10), Some(Some(0..10)));
        assert_eq!(part("bytes=5-99", 10), Some(Some(5..10)));
        assert_eq!(part("bytes=10-", 10), Some(None));
        for invalid in ["bytes=3-1", "bytes=0-1,4-5", "bytes=a-b", "lines=1-2", "bytes=-"] {
            assert_eq!(part(invalid, 10), None, "{invalid}");
        }
    }
}

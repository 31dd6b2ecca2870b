//! Requests to one URL whose heads differ in a few headers.

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderName};
use http::{Method, Request, Uri};
use std::fmt;
use std::sync::Arc;

use crate::client::body::RequestBody;
use crate::client::h1::{write_host, write_request_line};
use crate::client::pool::HostPool;
use crate::digits::write_decimal;
use crate::header_fields::{HeaderFields, write_line};

/// Head of the requests to one URL, whose bytes are made once.
///
/// The headers of a request stand before those of the template, which replace them, all but
/// `Content-Type`. A request with a header of the template is written from a [`Request`].
pub struct RequestTemplate {
    method: Method,
    uri: Uri,
    headers: HeaderFields,
    /// Request line and `Host`.
    start: Vec<u8>,
    /// Lines of the headers, and the name of the length.
    end: Vec<u8>,
    /// Connections to the host, unless a proxy reads the requests.
    pool: Option<Arc<HostPool>>,
}

impl RequestTemplate {
    pub(crate) fn new(
        method: Method,
        uri: Uri,
        headers: HeaderFields,
        pool: Option<Arc<HostPool>>,
    ) -> Self {
        let (mut start, mut end) = (Vec::new(), Vec::new());
        write_request_line(&method, &uri, false, &mut start);
        write_host(&uri, &mut start);
        for (name, value) in headers.iter() {
            write_line(name.as_str(), value.as_bytes(), &mut end);
        }
        end.extend_from_slice(b"content-length: ");
        Self { method, uri, headers, start, end, pool }
    }

    /// Returns the connections on which a request with these headers can be written from the bytes.
    pub(crate) fn pool_for(&self, fields: &HeaderFields) -> Option<&Arc<HostPool>> {
        let is_own = |name: &HeaderName| {
            *name == HOST || *name == CONTENT_LENGTH || self.headers.contains(name)
        };
        self.pool.as_ref().filter(|_| !fields.iter().any(|(name, _)| is_own(name)))
    }

    /// Appends the head of a request with these headers and a body of that length.
    pub(crate) fn write(&self, fields: &HeaderFields, length: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.start);
        for (name, value) in fields.iter() {
            write_line(name.as_str(), value.as_bytes(), out);
        }
        out.extend_from_slice(&self.end);
        write_decimal(length, out);
        out.extend_from_slice(b"\r\n\r\n");
    }

    /// Returns the request with these headers and this body.
    pub fn to_request(&self, fields: &HeaderFields, body: RequestBody) -> Request<RequestBody> {
        let mut request = Request::new(body);
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone();
        let mut headers = fields.to_map();
        for (name, value) in self.headers.iter() {
            if *name != CONTENT_TYPE || !headers.contains_key(name) {
                headers.insert(name, value.clone());
            }
        }
        *request.headers_mut() = headers;
        request
    }
}

/// Headers may be secrets.
impl fmt::Debug for RequestTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestTemplate").field("method", &self.method).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::h1::write_head;
    use http::HeaderValue;
    use http::header::{ACCEPT, AUTHORIZATION, VIA};

    fn fields(list: &[(HeaderName, &'static str)]) -> HeaderFields {
        let mut fields = HeaderFields::default();
        for (name, value) in list {
            fields.append(name.clone(), HeaderValue::from_static(value));
        }
        fields
    }

    #[test]
    fn a_template_writes_what_its_request_writes() {
        let own = [(CONTENT_TYPE, "a/b"), (ACCEPT, "c"), (AUTHORIZATION, "Bearer hidden")];
        for url in ["http://a.example:80/p?q", "https://u@b.example:8443/x/y", "http://[::1]:1"] {
            let pool = Some(Arc::default());
            let template =
                RequestTemplate::new(Method::POST, url.parse().unwrap(), fields(&own), pool);
            assert!(!format!("{template:?}").contains("hidden"));
            let more = [(VIA, "1"), (HeaderName::from_static("x-two"), "2"), (VIA, "3")];
            for count in 0..=more.len() {
                let more = fields(more.get(..count).unwrap_or_default());
                // A map writes the values of one name together.
                let more = HeaderFields::from(&more.to_map());
                for length in [0, 7, 100_000] {
                    assert!(template.pool_for(&more).is_some());
                    let mut bytes = Vec::new();
                    template.write(&more, length, &mut bytes);
                    let request = template.to_request(&more, RequestBody::default());
                    let (head, _) = request.into_parts();
                    let mut expected = Vec::new();
                    write_head(&head, length, false, &mut expected);
                    assert_eq!(String::from_utf8(bytes), String::from_utf8(expected));
                }
            }
        }
    }

    #[test]
    fn a_request_with_a_header_of_the_template_is_written_by_itself() {
        let own = [(CONTENT_TYPE, "a/b"), (ACCEPT, "c")];
        let uri = Uri::from_static("http://a.example/p");
        let template = RequestTemplate::new(Method::POST, uri, fields(&own), Some(Arc::default()));
        for name in [CONTENT_TYPE, ACCEPT, HOST, CONTENT_LENGTH] {
            assert!(template.pool_for(&fields(&[(name.clone(), "1")])).is_none(), "{name}");
        }
        let more = fields(&[(ACCEPT, "1"), (CONTENT_TYPE, "2")]);
        let request = template.to_request(&more, RequestBody::default());
        assert_eq!(request.headers()[ACCEPT], "c");
        assert_eq!(request.headers()[CONTENT_TYPE], "2");
    }
}

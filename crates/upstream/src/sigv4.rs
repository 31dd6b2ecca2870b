//! AWS Signature Version 4 of method, path, query, some headers and the body:
//! <https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html>.

use aws_lc_rs::{digest, hmac};
use canon::{ApiError, Micros};
use http::header::{AUTHORIZATION, HeaderValue};
use http::uri::Scheme;
use http::{Request, Uri};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::fmt::Write as _;

use crate::credential::ClockFn;
use transport::RequestBody;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// Characters that are escaped: all but the unreserved ones of RFC 3986.
const ESCAPED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// The same for a path, whose slashes stay.
const ESCAPED_IN_PATH: AsciiSet = ESCAPED.remove(b'/');

const DATE_HEADER: &str = "x-amz-date";
const BODY_HASH_HEADER: &str = "x-amz-content-sha256";
const SESSION_HEADER: &str = "x-amz-security-token";

/// Keys of an AWS account with region and service, never printed.
pub struct SigV4Signer {
    region: String,
    service: String,
    access_key: String,
    secret_key: String,
    session: Option<HeaderValue>,
    now: ClockFn,
}

/// Invalid field of AWS keys. Never repeats its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct SigV4Error {
    /// Name of the field.
    pub field: &'static str,
    /// Reason, in plain English.
    pub reason: &'static str,
}

const INVALID_TEXT: &str = "is empty or holds invalid characters";

impl SigV4Signer {
    /// Creates a signer for a service in a region. The error names the invalid field.
    pub fn new(
        region: &str,
        service: &str,
        access_key: &str,
        secret_key: &str,
        session_token: Option<&str>,
        now: ClockFn,
    ) -> Result<Self, SigV4Error> {
        let plain = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic());
        let named = [("region", region), ("service", service), ("access_key", access_key)];
        for (field, text) in named {
            // The values are parts of a list separated by slashes and commas.
            if !plain(text) || text.contains(['/', ',']) {
                return Err(SigV4Error { field, reason: INVALID_TEXT });
            }
        }
        if !plain(secret_key) {
            return Err(SigV4Error { field: "secret_key", reason: INVALID_TEXT });
        }
        let session = match session_token {
            None => None,
            Some(token) if !plain(token) => {
                return Err(SigV4Error { field: "session_token", reason: INVALID_TEXT });
            }
            Some(token) => {
                let mut value = HeaderValue::from_str(token).map_err(|_| SigV4Error {
                    field: "session_token",
                    reason: "is not valid in a header",
                })?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        Ok(Self {
            region: region.to_owned(),
            service: service.to_owned(),
            access_key: access_key.to_owned(),
            secret_key: secret_key.to_owned(),
            session,
            now,
        })
    }

    /// Returns the secret texts.
    pub(crate) fn secrets(&self) -> Vec<Vec<u8>> {
        let session = self.session.iter().map(|session| session.as_bytes().to_vec());
        let keys = [&self.access_key, &self.secret_key];
        keys.into_iter().map(|key| key.as_bytes().to_vec()).chain(session).collect()
    }

    /// Returns true if both have the same keys, region and service.
    pub(crate) fn matches(&self, other: &Self) -> bool {
        let Self { region, service, access_key, secret_key, session, now: _ } = self;
        (region, service, access_key, secret_key, session)
            == (&other.region, &other.service, &other.access_key, &other.secret_key, &other.session)
    }

    /// Signs a request that is otherwise complete.
    pub(crate) fn sign(&self, request: &mut Request<RequestBody>) -> Result<(), ApiError> {
        let defect = |what: &str| ApiError::internal(format!("a request cannot be signed: {what}"));
        let stamp = timestamp((self.now)()).ok_or_else(|| defect("the clock is out of range"))?;
        let mut hash = digest::Context::new(&digest::SHA256);
        for piece in request.body().pieces() {
            hash.update(piece);
        }
        let hash = hex(hash.finish().as_ref());
        let host = host_header(request.uri()).ok_or_else(|| defect("it has no host"))?;
        let value = |text: &str| HeaderValue::from_str(text).map_err(|_| defect("a header"));
        request.headers_mut().insert(DATE_HEADER, value(&stamp)?);
        request.headers_mut().insert(BODY_HASH_HEADER, value(&hash)?);
        if let Some(session) = &self.session {
            request.headers_mut().insert(SESSION_HEADER, session.clone());
        }
        let mut signed = vec![("host", host.as_str())];
        for name in ["content-type", DATE_HEADER, BODY_HASH_HEADER, SESSION_HEADER] {
            if let Some(text) = request.headers().get(name).and_then(|value| value.to_str().ok()) {
                signed.push((name, text));
            }
        }
        let proof =
            self.authorization(request.method().as_str(), request.uri(), signed, &hash, &stamp);
        let mut proof = value(&proof)?;
        proof.set_sensitive(true);
        request.headers_mut().insert(AUTHORIZATION, proof);
        Ok(())
    }

    /// Returns the value of the `Authorization` header.
    fn authorization(
        &self,
        method: &str,
        uri: &Uri,
        mut headers: Vec<(&str, &str)>,
        body_hash: &str,
        stamp: &str,
    ) -> String {
        headers.sort_unstable();
        let names: Vec<&str> = headers.iter().map(|(name, _)| *name).collect();
        let names = names.join(";");
        let path = match uri.path() {
            "" => "/",
            path => path,
        };
        // Every service but S3 signs the path escaped a second time.
        let path = utf8_percent_encode(path, &ESCAPED_IN_PATH);
        let mut canonical =
            format!("{method}\n{path}\n{}\n", canonical_query(uri.query().unwrap_or_default()));
        for (name, value) in &headers {
            let value: Vec<&str> = value.split_ascii_whitespace().collect();
            let _ = writeln!(canonical, "{name}:{}", value.join(" "));
        }
        let _ = write!(canonical, "\n{names}\n{body_hash}");

        let day = stamp.split('T').next().unwrap_or_default();
        let scope = format!("{day}/{}/{}/aws4_request", self.region, self.service);
        let canonical = hex(digest::digest(&digest::SHA256, canonical.as_bytes()).as_ref());
        let to_sign = format!("{ALGORITHM}\n{stamp}\n{scope}\n{canonical}");
        let signature = hex(&hmac_sha256(&self.signing_key(day), &to_sign));
        let access = &self.access_key;
        format!(
            "{ALGORITHM} Credential={access}/{scope}, SignedHeaders={names}, Signature={signature}"
        )
    }

    /// Derives the key of one day, region and service.
    fn signing_key(&self, day: &str) -> Vec<u8> {
        let mut key = format!("AWS4{}", self.secret_key).into_bytes();
        for part in [day, &self.region, &self.service, "aws4_request"] {
            key = hmac_sha256(&key, part);
        }
        key
    }
}

impl std::fmt::Debug for SigV4Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SigV4Signer({} in {} …)", self.service, self.region)
    }
}

fn hmac_sha256(key: &[u8], text: &str) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    hmac::sign(&key, text.as_bytes()).as_ref().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Formats a time as `20150830T123600Z`.
fn timestamp(at: Micros) -> Option<String> {
    let moment = jiff::Timestamp::from_microsecond(at.get()).ok()?;
    Some(moment.strftime("%Y%m%dT%H%M%SZ").to_string())
}

/// Returns the `Host` header without a default port.
fn host_header(uri: &Uri) -> Option<String> {
    let host = uri.host()?;
    let default_port = if uri.scheme() == Some(&Scheme::HTTPS) { 443 } else { 80 };
    match uri.port_u16() {
        Some(port) if port != default_port => Some(format!("{host}:{port}")),
        _ => Some(host.to_owned()),
    }
}

/// Returns the query parameters sorted, as sent.
fn canonical_query(query: &str) -> String {
    let mut pairs: Vec<String> = query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| if pair.contains('=') { pair.to_owned() } else { format!("{pair}=") })
        .collect();
    pairs.sort_unstable();
    pairs.join("&")
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use http::Method;
    use http::header::CONTENT_TYPE;
    use std::sync::Arc;

    /// Keys and time of the published test suite.
    fn keys(session: Option<&str>) -> SigV4Signer {
        let secret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
        let now: ClockFn = Arc::new(|| Micros::from_secs(1_440_938_160));
        SigV4Signer::new("us-east-1", "service", "AKIDEXAMPLE", secret, session, now).unwrap()
    }

    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn matches_the_published_signatures() {
        let stamp = timestamp(Micros::from_secs(1_440_938_160)).unwrap();
        assert_eq!(stamp, "20150830T123600Z");
        let form = "9095672bbd1f56dfc5b65f3e153adc8731a4a654192329106275f4c7b24d0b6e";
        let cases = [
            (
                "GET",
                "/",
                vec![],
                EMPTY,
                "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
            ),
            (
                "POST",
                "/",
                vec![],
                EMPTY,
                "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
            ),
            (
                "GET",
                "/?Param2=value2&Param1=value1",
                vec![],
                EMPTY,
                "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
            ),
            (
                "POST",
                "/",
                vec![("content-type", "application/x-www-form-urlencoded")],
                form,
                "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
            ),
        ];
        for (method, path, more, hash, signature) in cases {
            let uri: Uri = format!("https://example.amazonaws.com{path}").parse().unwrap();
            let mut headers = vec![("x-amz-date", stamp.as_str()), ("host", uri.host().unwrap())];
            headers.extend(more);
            let proof = keys(None).authorization(method, &uri, headers, hash, &stamp);
            assert!(proof.ends_with(&format!("Signature={signature}")), "{method} {path}: {proof}");
        }
    }

    #[test]
    fn signs_the_headers_that_are_sent() {
        let mut request =
            Request::new(RequestBody::new(vec![Bytes::from("{\"a\":"), Bytes::from("1}")]));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = "http://127.0.0.1:9/model/a%3A0/invoke".parse().unwrap();
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        keys(Some("tok-en")).sign(&mut request).unwrap();
        let text = |name| request.headers()[name].to_str().unwrap();
        let whole = hex(digest::digest(&digest::SHA256, b"{\"a\":1}").as_ref());
        assert_eq!(text("x-amz-content-sha256"), whole);
        assert_eq!(text("x-amz-security-token"), "tok-en");
        assert_eq!(text("x-amz-date"), "20150830T123600Z");
        let signed = "content-type;host;x-amz-content-sha256;x-amz-date;x-amz-security-token";
        assert!(text("authorization").contains(&format!("SignedHeaders={signed},")));
    }

    #[test]
    fn error_names_the_field_without_the_secret() {
        let now: ClockFn = Arc::new(|| Micros::ZERO);
        let new = |region: &str, access: &str, secret: &str, session: Option<&str>| {
            SigV4Signer::new(region, "bedrock", access, secret, session, Arc::clone(&now))
                .unwrap_err()
                .to_string()
        };
        assert!(new("", "AK", "s", None).starts_with("region:"));
        assert!(new("eu", "A/K", "s", None).starts_with("access_key:"));
        let error = new("eu", "AK", "hush hush", None);
        assert!(error.starts_with("secret_key:") && !error.contains("hush"));
        let error = new("eu", "AK", "s", Some("hush\n"));
        assert!(error.starts_with("session_token:") && !error.contains("hush"));
        let shown = format!("{:?}", keys(Some("tok-en")));
        assert!(!shown.contains("tok-en") && !shown.contains("wJalr") && !shown.contains("AKID"));
    }
}

//! AWS Signature Version 4 of method, path, query, some headers and the body:
//! <https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html>.

use aws_lc_rs::{digest, hmac};
use canon::Micros;
use http::header::{AUTHORIZATION, HeaderValue};
use http::uri::Scheme;
use http::{Request, Uri};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::fmt::{self, Write as _};

use transport::RequestBody;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// Characters that are escaped: all but the unreserved ones of RFC 3986.
const ESCAPED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// The same for a path, whose slashes stay.
const ESCAPED_IN_PATH: AsciiSet = ESCAPED.remove(b'/');

const DATE_HEADER: &str = "x-amz-date";
const BODY_HASH_HEADER: &str = "x-amz-content-sha256";
const SESSION_HEADER: &str = "x-amz-security-token";

/// Region and service that signatures are for.
#[derive(PartialEq, Eq)]
pub(crate) struct SigningScope {
    region: String,
    service: String,
}

/// Keys of an AWS account or role, never printed.
#[derive(Clone)]
pub(crate) struct AwsKeys {
    access_key: String,
    secret_key: String,
    session: Option<HeaderValue>,
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

fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic())
}

/// Checks a part of a list that is separated by slashes and commas.
pub(crate) fn check_part(field: &'static str, text: &str) -> Result<(), SigV4Error> {
    match is_plain(text) && !text.contains(['/', ',']) {
        true => Ok(()),
        false => Err(SigV4Error { field, reason: INVALID_TEXT }),
    }
}

impl AwsKeys {
    /// Checks keys. The error names the invalid field.
    pub(crate) fn new(
        access_key: &str,
        secret_key: &str,
        session_token: Option<&str>,
    ) -> Result<Self, SigV4Error> {
        check_part("access_key", access_key)?;
        if !is_plain(secret_key) {
            return Err(SigV4Error { field: "secret_key", reason: INVALID_TEXT });
        }
        let session = match session_token {
            None => None,
            Some(token) if !is_plain(token) => {
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
        let (access_key, secret_key) = (access_key.to_owned(), secret_key.to_owned());
        Ok(Self { access_key, secret_key, session })
    }

    /// Returns the secret texts.
    pub(crate) fn secrets(&self) -> Vec<Vec<u8>> {
        let session = self.session.iter().map(|session| session.as_bytes().to_vec());
        let keys = [&self.access_key, &self.secret_key];
        keys.into_iter().map(|key| key.as_bytes().to_vec()).chain(session).collect()
    }

    /// Returns true if both are the same.
    pub(crate) fn matches(&self, other: &Self) -> bool {
        let Self { access_key, secret_key, session } = self;
        (access_key, secret_key, session) == (&other.access_key, &other.secret_key, &other.session)
    }

    /// Returns the keys as texts, for the identity of what is made of them.
    pub(crate) fn texts(&self) -> [&str; 3] {
        let session = self.session.as_ref().and_then(|session| session.to_str().ok());
        [&self.access_key, &self.secret_key, session.unwrap_or_default()]
    }

    /// Returns the session token.
    pub(crate) const fn session(&self) -> Option<&HeaderValue> {
        self.session.as_ref()
    }
}

impl SigningScope {
    pub(crate) fn new(region: &str, service: &str) -> Self {
        Self { region: region.to_owned(), service: service.to_owned() }
    }

    /// Signs a request that is otherwise complete.
    pub(crate) fn sign(
        &self,
        request: &mut Request<RequestBody>,
        keys: &AwsKeys,
        now: Micros,
    ) -> Result<(), &'static str> {
        let stamp = timestamp(now).ok_or("the clock is out of range")?;
        let mut hash = digest::Context::new(&digest::SHA256);
        for piece in request.body().pieces() {
            hash.update(piece);
        }
        let hash = hex(hash.finish().as_ref());
        let host = host_header(request.uri()).ok_or("it has no host")?;
        let value = |text: &str| HeaderValue::from_str(text).map_err(|_| "a header");
        request.headers_mut().insert(DATE_HEADER, value(&stamp)?);
        request.headers_mut().insert(BODY_HASH_HEADER, value(&hash)?);
        if let Some(session) = keys.session() {
            request.headers_mut().insert(SESSION_HEADER, session.clone());
        }
        let mut signed = vec![("host", host.as_str())];
        for name in ["content-type", DATE_HEADER, BODY_HASH_HEADER, SESSION_HEADER] {
            if let Some(text) = request.headers().get(name).and_then(|value| value.to_str().ok()) {
                signed.push((name, text));
            }
        }
        let method = request.method().as_str();
        let proof = self.authorization(keys, method, request.uri(), signed, &hash, &stamp);
        let mut proof = value(&proof)?;
        proof.set_sensitive(true);
        request.headers_mut().insert(AUTHORIZATION, proof);
        Ok(())
    }

    /// Returns the headers of a signed request without a body, which another service sends.
    pub(crate) fn signed_headers(
        &self,
        keys: &AwsKeys,
        uri: &Uri,
        more: (&'static str, &str),
        now: Micros,
    ) -> Option<Vec<(&'static str, String)>> {
        let (stamp, host) = (timestamp(now)?, host_header(uri)?);
        let mut headers = vec![("host", host), (DATE_HEADER, stamp.clone())];
        headers.push((more.0, more.1.to_owned()));
        if let Some(session) = keys.session() {
            headers.push((SESSION_HEADER, session.to_str().ok()?.to_owned()));
        }
        let signed = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let hash = hex(digest::digest(&digest::SHA256, b"").as_ref());
        let proof = self.authorization(keys, "POST", uri, signed, &hash, &stamp);
        headers.push(("Authorization", proof));
        Some(headers)
    }

    /// Returns the value of the `Authorization` header.
    fn authorization(
        &self,
        keys: &AwsKeys,
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
        let signature = hex(&hmac_sha256(&self.signing_key(keys, day), &to_sign));
        let access = &keys.access_key;
        format!(
            "{ALGORITHM} Credential={access}/{scope}, SignedHeaders={names}, Signature={signature}"
        )
    }

    /// Derives the key of one day, region and service.
    fn signing_key(&self, keys: &AwsKeys, day: &str) -> Vec<u8> {
        let mut key = format!("AWS4{}", keys.secret_key).into_bytes();
        for part in [day, &self.region, &self.service, "aws4_request"] {
            key = hmac_sha256(&key, part);
        }
        key
    }
}

impl fmt::Display for SigningScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}", self.service, self.region)
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

    /// Keys and time of the published test suite.
    fn keys(session: Option<&str>) -> AwsKeys {
        let secret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
        AwsKeys::new("AKIDEXAMPLE", secret, session).unwrap()
    }

    fn scope() -> SigningScope {
        SigningScope::new("us-east-1", "service")
    }

    const NOW: Micros = Micros::from_secs(1_440_938_160);

    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn matches_the_published_signatures() {
        let stamp = timestamp(NOW).unwrap();
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
            let keys = keys(None);
            let proof = scope().authorization(&keys, method, &uri, headers, hash, &stamp);
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
        scope().sign(&mut request, &keys(Some("tok-en")), NOW).unwrap();
        let text = |name| request.headers()[name].to_str().unwrap();
        let whole = hex(digest::digest(&digest::SHA256, b"{\"a\":1}").as_ref());
        assert_eq!(text("x-amz-content-sha256"), whole);
        assert_eq!(text("x-amz-security-token"), "tok-en");
        assert_eq!(text("x-amz-date"), "20150830T123600Z");
        let signed = "content-type;host;x-amz-content-sha256;x-amz-date;x-amz-security-token";
        assert!(text("authorization").contains(&format!("SignedHeaders={signed},")));
    }
}

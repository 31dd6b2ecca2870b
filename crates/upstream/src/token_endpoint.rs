//! Requests to services that issue credentials, and their answers.

use bytes::Bytes;
use canon::Micros;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Method, Request, Uri};
use http_body_util::{BodyExt as _, Limited};
use percent_encoding::utf8_percent_encode;
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

use crate::error_chain::error_chain;
use crate::renewed_secret::FetchedSecret;
use crate::secret_filter::{ESCAPED, header_secrets, hide_sent};
use transport::HttpClient;
use transport::RequestBody;

/// Time one request may take.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest answer.
const MAX_ANSWER_BYTES: usize = 64 << 10;
/// Largest file with a token.
const MAX_TOKEN_FILE_BYTES: u64 = 64 << 10;
/// Lifetime of a token whose answer does not tell it. RFC 6749 only recommends that it does.
const UNTOLD_LIFETIME: Micros = Micros::from_secs(300);
/// Longest explanation that is taken from an answer.
const MAX_EXPLANATION_CHARS: usize = 300;

/// Answer of a service.
pub(crate) struct EndpointAnswer {
    pub(crate) status: u16,
    pub(crate) body: Bytes,
    host: String,
    /// Secrets that the request was sent with.
    secrets: Vec<String>,
}

/// Escapes a text for a form or a query.
pub(crate) fn escape(text: &str) -> String {
    utf8_percent_encode(text, &ESCAPED).to_string()
}

/// Encodes fields as a form.
pub(crate) fn encode_form(fields: &[(&str, &str)]) -> String {
    let pairs: Vec<String> =
        fields.iter().map(|(name, value)| format!("{name}={}", escape(value))).collect();
    pairs.join("&")
}

/// Builds the request that posts a form.
pub(crate) fn form_request(endpoint: &Uri, form: impl Into<Bytes>) -> Request<RequestBody> {
    let kind = HeaderValue::from_static("application/x-www-form-urlencoded");
    post_request(endpoint, kind, form.into())
}

/// Builds the request that posts JSON.
pub(crate) fn json_request(endpoint: &Uri, body: &Value) -> Request<RequestBody> {
    let kind = HeaderValue::from_static("application/json");
    post_request(endpoint, kind, Bytes::from(body.to_string()))
}

fn post_request(endpoint: &Uri, kind: HeaderValue, body: Bytes) -> Request<RequestBody> {
    let mut request = Request::new(RequestBody::new(vec![body]));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = endpoint.clone();
    request.headers_mut().insert(CONTENT_TYPE, kind);
    request.headers_mut().insert(ACCEPT, HeaderValue::from_static("application/json"));
    request
}

/// Builds a request without a body.
pub(crate) fn plain_request(method: Method, uri: &Uri) -> Request<RequestBody> {
    let mut request = Request::new(RequestBody::default());
    *request.method_mut() = method;
    *request.uri_mut() = uri.clone();
    request
}

/// Adds a header with a secret. The error names the header.
pub(crate) fn add_secret_header(
    request: &mut Request<RequestBody>,
    name: HeaderName,
    secret: &str,
) -> Result<(), String> {
    let mut value = HeaderValue::from_str(secret)
        .map_err(|_| format!("the value of the header `{name}` is not valid in a header"))?;
    value.set_sensitive(true);
    request.headers_mut().insert(name, value);
    Ok(())
}

/// Sends a request and reads the whole answer. Errors show nothing of `secrets`, which are those of the
/// body, nor of the secret headers.
pub(crate) async fn exchange(
    client: &HttpClient,
    request: Request<RequestBody>,
    secrets: &[&str],
) -> Result<EndpointAnswer, String> {
    let host = request.uri().host().unwrap_or_default().to_owned();
    let headers = request.headers().values().filter(|value| value.is_sensitive());
    let sent = headers.flat_map(header_secrets);
    let sent = sent.map(|secret| String::from_utf8_lossy(&secret).into_owned());
    let secrets: Vec<String> =
        secrets.iter().map(|secret| (*secret).to_owned()).chain(sent).collect();
    let exchange = async {
        // Fetches are far apart, and a connection of the last one is likely to be dead.
        let response = client
            .send(request, true)
            .await
            .map_err(|failure| format!("{host}: {}", error_chain(&*failure.cause)))?;
        let body = Limited::new(response.body, MAX_ANSWER_BYTES).collect().await;
        let body = body.map_err(|e| format!("{host}: the answer broke off: {e}"))?.to_bytes();
        Ok::<_, String>((response.status, body))
    };
    match tokio::time::timeout(EXCHANGE_TIMEOUT, exchange).await {
        Ok(Ok((status, body))) => Ok(EndpointAnswer { status, body, host, secrets }),
        Ok(Err(note)) => Err(note),
        Err(_) => Err(format!("{host}: no answer within {EXCHANGE_TIMEOUT:?}")),
    }
}

/// Sends a request and reads the JSON of a good answer. Errors show nothing of `secrets`, which
/// are those of the body, nor of the secret headers.
pub(crate) async fn exchange_json(
    client: &HttpClient,
    request: Request<RequestBody>,
    secrets: &[&str],
) -> Result<Value, String> {
    let answer = exchange(client, request, secrets).await?;
    match canon::read_value(&answer.body) {
        Some(json) if answer.status == 200 => Ok(json),
        Some(json) => Err(answer.refusal(&explanation(&json))),
        None => Err(format!("{} answered {} without JSON", answer.host, answer.status)),
    }
}

impl EndpointAnswer {
    /// Returns a text of the service without the secrets of the request, which a service may repeat.
    pub(crate) fn hide_sent(&self, text: &str) -> String {
        let secrets: Vec<&str> = self.secrets.iter().map(String::as_str).collect();
        hide_sent(text, &secrets)
    }

    /// Describes a refusal, with the explanation of the service but without our secrets.
    pub(crate) fn refusal(&self, explanation: &str) -> String {
        let shown: String =
            self.hide_sent(explanation).chars().take(MAX_EXPLANATION_CHARS).collect();
        // One line, whatever the service wrote.
        let words: Vec<&str> = shown.split_whitespace().collect();
        format!("{} answered {}: {}", self.host, self.status, words.join(" "))
    }

    /// Returns the answer as text.
    pub(crate) fn text(&self) -> Result<&str, String> {
        std::str::from_utf8(&self.body).map_err(|_| format!("{}: the answer is no text", self.host))
    }
}

/// Returns the explanation of an error: `error` and `error_description` of RFC 6749, or the forms of
/// Google (`error.message`) and AWS (`Code`, `Message`).
fn explanation(json: &Value) -> String {
    let places =
        ["/error", "/error_description", "/error/status", "/error/message", "/code", "/message"];
    let aws = ["/Code", "/Message"];
    let texts = places.iter().chain(&aws).filter_map(|place| json.pointer(place)?.as_str());
    let texts: Vec<&str> = texts.filter(|text| !text.is_empty()).collect();
    texts.join(" ")
}

/// Returns the bearer token of an OAuth answer, with its end.
pub(crate) fn bearer_token(
    json: &Value,
    now: Micros,
) -> Result<FetchedSecret<HeaderValue>, String> {
    let token = json.get("access_token").and_then(Value::as_str);
    let token = token.ok_or("the answer holds no `access_token`")?;
    // Some services write numbers as texts.
    let number = |name: &str| {
        let value = json.get(name)?;
        let number = value.as_f64().or_else(|| value.as_str()?.trim().parse().ok())?;
        Some(number as i64)
    };
    let expires_at = match (number("expires_in"), number("expires_on")) {
        (Some(seconds), _) => now + Micros::from_secs(seconds),
        (None, Some(moment)) => Micros::from_secs(moment),
        (None, None) => now + UNTOLD_LIFETIME,
    };
    Ok(FetchedSecret { value: bearer_header(token)?, expires_at })
}

/// Returns the value of the `Authorization` header with a token.
pub(crate) fn bearer_header(token: &str) -> Result<HeaderValue, String> {
    let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
        .map_err(|_| "the token is not valid in a header")?;
    value.set_sensitive(true);
    Ok(value)
}

/// Parses a time as RFC 3339 writes it.
pub(crate) fn parse_time(text: &str) -> Option<Micros> {
    let moment: jiff::Timestamp = text.parse().ok()?;
    Some(Micros::new(moment.as_microsecond()))
}

/// Reads a file with a token. It is read for every fetch, because its owner rotates it.
pub(crate) async fn read_token_file(file: &Path) -> Result<String, String> {
    let unreadable =
        |e: std::io::Error| format!("the token file {} cannot be read: {e}", file.display());
    let length = tokio::fs::metadata(file).await.map_err(unreadable)?.len();
    if length > MAX_TOKEN_FILE_BYTES {
        return Err(format!("the token file {} is too large", file.display()));
    }
    let text = tokio::fs::read_to_string(file).await.map_err(unreadable)?;
    match text.trim() {
        "" => Err(format!("the token file {} is empty", file.display())),
        token => Ok(token.to_owned()),
    }
}

/// Parses the address of a service: an absolute URL with `http` or `https`.
pub(crate) fn parse_endpoint(text: &str) -> Option<Uri> {
    let uri: Uri = text.parse().ok()?;
    let is_web = matches!(uri.scheme_str(), Some("http" | "https"));
    (is_web && uri.host().is_some_and(|host| !host.is_empty())).then_some(uri)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_explanation_is_one_line_without_our_secrets() {
        let answer = |secret: &str| EndpointAnswer {
            status: 401,
            body: Bytes::new(),
            host: "login.example".to_owned(),
            secrets: vec![secret.to_owned()],
        };
        let json = json!({ "error": "invalid_client",
            "error_description": "the secret hush-hush-hush\r\nis wrong" });
        let shown = answer("hush-hush-hush").refusal(&explanation(&json));
        assert_eq!(
            shown,
            "login.example answered 401: invalid_client the secret [hidden] is wrong"
        );
        let shown = answer("a/b/c/d/e/f").refusal("client_secret=a%2Fb%2Fc%2Fd%2Fe%2Ff&x=1");
        assert_eq!(shown, "login.example answered 401: client_secret=[hidden]&x=1");
        let google =
            json!({ "error": { "code": 403, "status": "PERMISSION_DENIED", "message": "no" } });
        assert_eq!(explanation(&google), "PERMISSION_DENIED no");
        assert_eq!(explanation(&json!({ "Code": "Failed", "Message": "why" })), "Failed why");
    }

    #[test]
    fn the_end_of_a_token_is_read_as_number_or_text() {
        let now = Micros::from_secs(1_000);
        let end = |json: Value| bearer_token(&json, now).map(|token| token.expires_at.as_secs());
        assert_eq!(end(json!({ "access_token": "t", "expires_in": 60 })), Ok(1_060));
        assert_eq!(end(json!({ "access_token": "t", "expires_in": "60" })), Ok(1_060));
        assert_eq!(end(json!({ "access_token": "t", "expires_on": "5000" })), Ok(5_000));
        assert_eq!(end(json!({ "access_token": "t", "expires_in": 60.0 })), Ok(1_060));
        assert_eq!(end(json!({ "access_token": "t" })), Ok(1_300));
        assert_eq!(end(json!({ "access_token": "t", "expires_on": "tomorrow" })), Ok(1_300));
        assert!(end(json!({ "expires_in": 60 })).is_err());
        assert!(end(json!({ "access_token": "a\nb" })).is_err());
    }

    #[test]
    fn only_absolute_web_addresses_are_endpoints() {
        for good in ["http://169.254.169.254", "https://sts.example/v1/token", "http://[::1]:80/x"]
        {
            assert!(parse_endpoint(good).is_some(), "{good}");
        }
        for wrong in ["", "/x", "ftp://x/y", "file:///etc/passwd", "x"] {
            assert!(parse_endpoint(wrong).is_none(), "{wrong}");
        }
    }
}

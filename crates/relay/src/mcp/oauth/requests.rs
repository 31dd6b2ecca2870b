//! Requests to authorization servers. Answers are small, and nothing in them is trusted or logged.

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value};
use std::fmt;
use std::time::Duration;
use upstream::{FetchError, MediaFetcher};

/// Time for one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest answer.
const MAX_ANSWER_BYTES: usize = 256 << 10;
/// Fields of forms with secrets.
const SECRET_FIELDS: [&str; 5] =
    ["client_secret", "code", "code_verifier", "refresh_token", "token"];
/// Longest error code that is repeated.
const MAX_CODE_BYTES: usize = 64;

/// Failure of a step with an authorization server. It never holds a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthorityError {
    /// The address of this part must not be asked.
    NotPublic(&'static str),
    /// The server could not be reached. The reason is for the log only.
    Unreachable(String),
    /// The server answered with this status where metadata was asked for.
    Status(u16),
    /// The server refused, with this code of OAuth.
    Refused(String),
    /// The answer breaks a rule.
    Unusable(&'static str),
}

impl fmt::Display for AuthorityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPublic(part) => {
                write!(f, "the address of its {part} must be a public HTTPS address")
            }
            Self::Unreachable(_) => f.write_str("its authorization server could not be reached"),
            Self::Status(status) => {
                write!(f, "its authorization server answered with the HTTP status {status}")
            }
            Self::Refused(code) => write!(f, "its authorization server refused: {code}"),
            Self::Unusable(why) => f.write_str(why),
        }
    }
}

/// Answer with a JSON object, or with another body that is not read.
pub(super) struct OAuthAnswer {
    pub(super) status: u16,
    pub(super) challenge: Option<String>,
    pub(super) body: Option<Map<String, Value>>,
}

/// Sends a request. `part` names the address in errors.
pub(super) async fn send(
    fetcher: &MediaFetcher,
    method: Method,
    (part, url): (&'static str, &str),
    mut headers: HeaderMap,
    body: Bytes,
) -> Result<OAuthAnswer, AuthorityError> {
    headers.entry(ACCEPT).or_insert(HeaderValue::from_static("application/json"));
    let exchange = async {
        let mut reply = fetcher.open(method, url, &headers, body).await?;
        let status = reply.status();
        let challenge = reply.header("www-authenticate").map(str::to_owned);
        let mut read = BytesMut::new();
        while let Some(piece) = reply.next_piece().await? {
            if read.len() + piece.len() > MAX_ANSWER_BYTES {
                return Ok(OAuthAnswer { status, challenge, body: None });
            }
            read.extend_from_slice(&piece);
        }
        let body = dialects::json::read_bytes::<Map<String, Value>>(&read).ok();
        Ok(OAuthAnswer { status, challenge, body })
    };
    match tokio::time::timeout(REQUEST_TIMEOUT, exchange).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(FetchError::NotPublic)) => Err(AuthorityError::NotPublic(part)),
        Ok(Err(FetchError::Busy)) => {
            Err(AuthorityError::Unreachable("too many requests".to_owned()))
        }
        Ok(Err(FetchError::Failed(why))) => Err(AuthorityError::Unreachable(why)),
        Err(_) => Err(AuthorityError::Unreachable("it took too long".to_owned())),
    }
}

/// Reads metadata; `None` if there is none at this address.
pub(super) async fn get_metadata(
    fetcher: &MediaFetcher,
    part: &'static str,
    url: &str,
) -> Result<Option<Map<String, Value>>, AuthorityError> {
    let answer = send(fetcher, Method::GET, (part, url), HeaderMap::new(), Bytes::new()).await?;
    match answer {
        OAuthAnswer { status: 200, body, .. } => Ok(body),
        OAuthAnswer { status: 400..=499, .. } => Ok(None),
        OAuthAnswer { status, .. } => Err(AuthorityError::Status(status)),
    }
}

/// Posts a form to an authorization server and returns the object that it answers with. `client_secret` is the
/// secret that the header has.
pub(super) async fn post_form(
    fetcher: &MediaFetcher,
    place: (&'static str, &str),
    (authorization, client_secret): (Option<HeaderValue>, Option<&str>),
    fields: &[(&str, &str)],
) -> Result<Map<String, Value>, AuthorityError> {
    let mut headers = HeaderMap::new();
    let form = HeaderValue::from_static("application/x-www-form-urlencoded");
    headers.insert(CONTENT_TYPE, form);
    if let Some(authorization) = authorization {
        headers.insert(AUTHORIZATION, authorization);
    }
    let encoded = fields.iter().map(|(name, value)| format!("{name}={}", escape(value)));
    let body = encoded.collect::<Vec<_>>().join("&");
    let answer = send(fetcher, Method::POST, place, headers, Bytes::from(body)).await?;
    let secret_fields = fields.iter().filter(|(name, _)| SECRET_FIELDS.contains(name));
    let secrets: Vec<&str> = secret_fields.map(|(_, value)| *value).chain(client_secret).collect();
    refuse_echo(read_object(answer), &secrets)
}

/// Replaces the error code of a server that repeats a secret of the request in it.
fn refuse_echo<T>(
    result: Result<T, AuthorityError>,
    secrets: &[&str],
) -> Result<T, AuthorityError> {
    match result {
        Err(AuthorityError::Refused(code)) if upstream::hide_sent(&code, secrets) != code => {
            Err(AuthorityError::Unusable("its authorization server refused, and repeats a secret"))
        }
        other => other,
    }
}

/// Returns the object of a successful answer, or the error code (RFC 6749, section 5.2).
pub(super) fn read_object(answer: OAuthAnswer) -> Result<Map<String, Value>, AuthorityError> {
    let OAuthAnswer { status, body, challenge: _ } = answer;
    let body = body.unwrap_or_default();
    match body.get("error").and_then(Value::as_str) {
        // Some servers answer an error with 200.
        Some(code) if status < 500 => Err(AuthorityError::Refused(shown_code(code))),
        None if (200..=299).contains(&status) => Ok(body),
        Some(_) | None => Err(AuthorityError::Status(status)),
    }
}

/// Returns a code without letters that no code has (RFC 6749, section 5.2).
fn shown_code(code: &str) -> String {
    let is_letter = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    code.chars().filter(is_letter).take(MAX_CODE_BYTES).collect()
}

/// Returns a value as a form or a query has it.
pub(super) fn escape(value: &str) -> String {
    utf8_percent_encode(value, NON_ALPHANUMERIC).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_that_repeats_a_secret_is_not_shown() {
        let refused = |code: &str| {
            let found: Result<(), _> = Err(AuthorityError::Refused(shown_code(code)));
            refuse_echo(found, &["the-client-secret"]).unwrap_err()
        };
        assert_eq!(refused("invalid_grant"), AuthorityError::Refused("invalid_grant".to_owned()));
        // The second is base64 of `id:the-client-secret`.
        for code in ["bad the-client-secret", "Basic aWQ6dGhlLWNsaWVudC1zZWNyZXQ="] {
            let shown = refused(code).to_string();
            assert_eq!(shown, "its authorization server refused, and repeats a secret");
        }
    }
}

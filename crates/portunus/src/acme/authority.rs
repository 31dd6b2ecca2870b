//! Requests to a certificate authority, by the route of `[outbound]`.
//!
//! Answers are checked before the ACME library sees them, because it panics at some that no honest
//! authority gives.

use bytes::Bytes;
use config::AcmeSettings;
use http::header::RETRY_AFTER;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient as AcmeHttp};
use serde_json::Value;
use std::pin::Pin;
use std::time::Duration;
use transport::{HttpClient, Outbound};

/// Time for one answer, and the largest one. A chain has a few KiB.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_ANSWER_BYTES: usize = 1 << 20;
/// Longest wait that an authority may ask for within an order.
const MAX_RETRY_AFTER_SECONDS: u64 = 60;

/// Client of one authority.
pub(super) struct AuthorityClient {
    outbound: Outbound,
    directory: String,
}

impl AuthorityClient {
    pub(super) fn new(settings: &AcmeSettings) -> Self {
        Self { outbound: settings.outbound.clone(), directory: settings.directory.clone() }
    }
}

impl AcmeHttp for AuthorityClient {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let client = HttpClient::network(ANSWER_TIMEOUT, &self.outbound);
        let is_directory = request.uri() == self.directory.as_str();
        Box::pin(async move {
            let answer = tokio::time::timeout(ANSWER_TIMEOUT, ask(client, request)).await;
            let answer = answer.map_err(|_| other("the authority does not answer in time"))??;
            if is_directory {
                check_directory(&answer)?;
            }
            Ok(BytesResponse::from(answer.map(|body| Full::new(Bytes::from(body)))))
        })
    }
}

fn other(why: impl Into<String>) -> Error {
    let why: String = why.into();
    Error::Other(why.into())
}

async fn ask(
    client: HttpClient,
    request: Request<BodyWrapper<Bytes>>,
) -> Result<Response<Vec<u8>>, Error> {
    let (mut parts, body) = request.into_parts();
    if parts.uri.scheme_str() != Some("https") {
        return Err(other(format!("the authority names an address without https: {}", parts.uri)));
    }
    if let Some(host) = parts.uri.authority().and_then(|host| host.as_str().parse().ok()) {
        parts.headers.insert(http::header::HOST, host);
    }
    // Our client does not know answers without their body. A nonce may be asked for by GET, and has a 204
    // then (RFC 8555, section 7.2).
    let is_head = parts.method == Method::HEAD;
    if is_head {
        parts.method = Method::GET;
    }
    let body = match body.collect().await {
        Ok(body) => body.to_bytes().to_vec(),
        Err(never) => match never {},
    };
    let request = Request::from_parts(parts, body);
    let answer = crate::host::fetch(client, request, MAX_ANSWER_BYTES).await;
    let mut answer =
        answer.map_err(|error| other(format!("the authority cannot be reached: {}", error.0)))?;
    if is_head && answer.status() == StatusCode::NO_CONTENT {
        *answer.status_mut() = StatusCode::OK;
    }
    limit_wait(&mut answer);
    Ok(answer)
}

/// Replaces a wait that is too long, or that cannot be read. The library adds it to the time of day, which
/// fails for some numbers.
fn limit_wait(answer: &mut Response<Vec<u8>>) {
    let Some(wait) = answer.headers().get(RETRY_AFTER) else { return };
    let seconds = wait.to_str().ok().and_then(|text| text.trim().parse::<u64>().ok());
    let seconds = seconds.unwrap_or(MAX_RETRY_AFTER_SECONDS).min(MAX_RETRY_AFTER_SECONDS);
    answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
}

/// Checks the directory. The library takes for granted that its addresses are addresses.
fn check_directory(answer: &Response<Vec<u8>>) -> Result<(), Error> {
    if !answer.status().is_success() {
        return Err(other(format!("the directory answers {}", answer.status().as_u16())));
    }
    let directory: Value = serde_json::from_slice(answer.body())
        .map_err(|_| other("what `directory` names is not the directory of an authority"))?;
    for name in ["newNonce", "newAccount", "newOrder"] {
        let address = directory.get(name).and_then(Value::as_str);
        if address.is_none_or(|text| text.parse::<Uri>().is_err()) {
            return Err(other(format!("the directory has no address `{name}`")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &str) -> Response<Vec<u8>> {
        Response::builder().status(status).body(body.as_bytes().to_vec()).unwrap()
    }

    #[test]
    fn a_wait_is_bounded() {
        for (told, kept) in
            [("5", "5"), ("18446744073709551615", "60"), ("Fri, 31 Dec 9999 23:59:59 GMT", "60")]
        {
            let mut one = answer(200, "");
            one.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static(told));
            limit_wait(&mut one);
            assert_eq!(one.headers()[RETRY_AFTER], kept);
        }
    }

    #[test]
    fn a_directory_without_addresses_is_refused() {
        let good =
            r#"{"newNonce":"https://ca/n","newAccount":"https://ca/a","newOrder":"https://ca/o"}"#;
        assert!(check_directory(&answer(200, good)).is_ok());
        assert!(check_directory(&answer(503, good)).is_err());
        for text in ["", "[]", "<html>", r#"{"newNonce":"https://ca/n"}"#] {
            assert!(check_directory(&answer(200, text)).is_err(), "{text}");
        }
        let odd = good.replace("https://ca/n", "not an address \\u0000");
        assert!(check_directory(&answer(200, &odd)).is_err());
    }
}

//! Heads of requests to a provider: written from a template or not, they are the same.

use crate::support::{TestAuthority, TestServer, png_response};
use canon::WireFormat;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http_body_util::BodyExt as _;
use std::time::Duration;
use transport::{HeaderFields, HttpClient, Outbound, ProxySettings, SentMark};
use upstream::{Credential, Provider, SendOptions, SentSecrets, Timeouts};

const TIME: Duration = Duration::from_secs(10);

/// Sends a request with these headers and reads the answer.
async fn send(provider: &Provider, path: &str, headers: HeaderFields, new_connection: bool) {
    let options = SendOptions {
        credential: 0,
        new_connection,
        connect: TIME,
        first_byte: TIME,
        sent: &SentMark::default(),
        secrets: &SentSecrets::default(),
    };
    let body = vec!["{\"a\":".into(), "1}".into()];
    let answer = provider.send(path, headers, body, &options).await.unwrap();
    assert_eq!(answer.status, 200);
    answer.body.collect().await.unwrap();
}

#[tokio::test]
async fn requests_on_new_and_on_used_connections_have_the_same_head() {
    let authority = TestAuthority::new();
    let times = Timeouts { connect: TIME, first_byte: TIME, gap: TIME, total: TIME };
    for alpn in [None, Some("http/1.1"), Some("h2")] {
        let tls = alpn.map(|alpn| authority.server("localhost", false, &[alpn]));
        let scheme = if tls.is_some() { "https" } else { "http" };
        let server = TestServer::start("127.0.0.1", tls, |_| png_response()).await;
        let outbound = Outbound::new(&ProxySettings::default(), &authority.pem).unwrap();
        let client = HttpClient::network(TIME, &outbound);
        let base = format!("{scheme}://localhost:{}/base", server.at.port());
        let formats = vec![WireFormat::Chat];
        let credential = Credential::bearer("our-secret").unwrap();
        let provider = Provider::new("p", formats, &base, credential, times, client).unwrap();
        let mut fields = HeaderFields::default();
        fields.append(HeaderName::from_static("x-own"), HeaderValue::from_static("1"));
        for new_connection in [true, false, false, true, false] {
            send(&provider, "/v1/chat?x=y", fields.clone(), new_connection).await;
        }
        let seen = server.requests();
        assert_eq!(seen.len(), 5);
        for head in &seen {
            assert_eq!(*head, seen[0], "{alpn:?}");
        }
        for part in ["/base/v1/chat?x=y", "Bearer our-secret", "\"x-own\": \"1\"", "\"7\""] {
            assert!(seen[0].contains(part), "{part} in {}", seen[0]);
        }
        // A content type of its own replaces the usual one.
        fields.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        send(&provider, "/v1/chat?x=y", fields, false).await;
        let own = server.requests().pop().unwrap();
        assert!(own.contains("text/plain") && !own.contains("\"content-type\": \"application"));
        let shown = format!("{provider:?}");
        assert!(shown.contains("RequestTemplate") && !shown.contains("our-secret"), "{shown}");
    }
}

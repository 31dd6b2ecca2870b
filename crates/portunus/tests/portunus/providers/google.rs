//! Google's access tokens: obtained with a signed assertion, cached and renewed; failures are not
//! the caller's.

use canon::Micros;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use testkit::{AnswerStep, ScriptedProvider, TestGateway, reply, until};
use tokio::sync::Semaphore;

use crate::attacks::nested_texts;
use crate::providers::service_account::Account;
use crate::thread_log::ThreadLog;

/// A token endpoint's answer.
fn token(name: &str, life: u64) -> Vec<AnswerStep> {
    let body = json!({ "access_token": name, "expires_in": life, "token_type": "Bearer" });
    reply(200, "application/json", &body.to_string())
}

fn native_reply() -> Vec<AnswerStep> {
    let body = json!({
        "candidates": [{ "content": { "role": "model", "parts": [{ "text": "Hi" }] },
                         "finishReason": "STOP" }],
        "usageMetadata": { "promptTokenCount": 3, "candidatesTokenCount": 1, "totalTokenCount": 4 },
    });
    reply(200, "application/json", &body.to_string())
}

async fn gateway(account: &str, vertex: &ScriptedProvider) -> TestGateway {
    TestGateway::with_config(&format!(
        "[providers.vertex]\nbase = \"{}\"\nfill = {{ region = \"europe-west1\" }}\n\
         auth = {{ google = {{ text = '{account}' }} }}\n\
         [models.m]\nlanes = [\"vertex/gemini-3.5-flash\"]\nprice = {{ input = \"1\", output = \"1\" }}\n",
        vertex.url
    ))
    .await
}

async fn ask(gateway: &TestGateway) -> testkit::TestResponse {
    let body = json!({ "model": "m", "messages": [{ "role": "user", "content": "Hi" }] });
    gateway.post("/v1/chat/completions", &body).send().await
}

fn bearer(asked: &testkit::ReceivedRequest) -> String {
    let line = asked.head.lines().find(|line| line.starts_with("authorization: ")).unwrap();
    line.trim_start_matches("authorization: Bearer ").to_owned()
}

#[tokio::test]
async fn a_token_is_earned_once_and_used_until_it_ends() {
    let account = Account::new();
    let tokens = ScriptedProvider::start(vec![token("tok-1", 3600)]).await;
    let vertex = ScriptedProvider::start(vec![native_reply()]).await;
    let gateway = gateway(&account.json(&format!("{}/token", tokens.url)), &vertex).await;
    for _ in 0..3 {
        let got = ask(&gateway).await;
        assert_eq!(got.status, 200, "{}", got.text());
    }
    assert_eq!(vertex.requests().iter().map(bearer).collect::<Vec<_>>(), ["tok-1"; 3]);
    let line = vertex.requests()[0].head.lines().next().unwrap().to_owned();
    let path =
        "/v1/projects/our-project/locations/europe-west1/publishers/google/models/gemini-3.5-flash";
    assert_eq!(line, format!("POST {path}:generateContent HTTP/1.1"));

    let asked = tokens.requests();
    assert_eq!(asked.len(), 1);
    assert!(asked[0].head.starts_with("POST /token "), "{}", asked[0].head);
    assert!(asked[0].head.contains("content-type: application/x-www-form-urlencoded"));
    let form = String::from_utf8(asked[0].body.clone()).unwrap();
    let (grant, assertion) = form.split_once("&assertion=").unwrap();
    assert_eq!(
        grant.replace("%3A", ":").replace("%2D", "-"),
        "grant_type=urn:ietf:params:oauth:grant-type:jwt-bearer"
    );
    let (head, claims) = account.verify(assertion);
    assert_eq!(head, json!({ "alg": "RS256", "typ": "JWT", "kid": "key-7" }));
    assert_eq!(claims["iss"], "gateway@our-project.iam.gserviceaccount.com");
    assert_eq!(claims["aud"], format!("{}/token", tokens.url));
    assert_eq!(claims["scope"], "https://www.googleapis.com/auth/cloud-platform");
    let (from, until) = (claims["iat"].as_i64().unwrap(), claims["exp"].as_i64().unwrap());
    let now = gateway.app.clock.now().as_secs();
    assert!((now - 300..=now).contains(&from) && until == from + 3600, "{claims}");
}

#[tokio::test]
async fn many_calls_at_once_earn_one_token() {
    let account = Account::new();
    let slow = [vec![AnswerStep::Wait(Duration::from_millis(50))], token("tok", 3600)].concat();
    let tokens = ScriptedProvider::start(vec![slow]).await;
    let vertex = ScriptedProvider::start(vec![native_reply()]).await;
    let gateway = gateway(&account.json(&tokens.url), &vertex).await;
    let calls = (0..12).map(|_| ask(&gateway));
    for got in futures_util::future::join_all(calls).await {
        assert_eq!(got.status, 200, "{}", got.text());
    }
    assert_eq!((tokens.requests().len(), vertex.requests().len()), (1, 12));
}

#[tokio::test]
async fn a_refused_token_is_replaced() {
    let account = Account::new();
    let tokens = ScriptedProvider::start(vec![token("refused", 3600), token("good", 3600)]).await;
    let no =
        json!({ "error": { "code": 401, "message": "bad token", "status": "UNAUTHENTICATED" } });
    let vertex = ScriptedProvider::start(vec![
        reply(401, "application/json", &no.to_string()),
        native_reply(),
    ])
    .await;
    let gateway = gateway(&account.json(&tokens.url), &vertex).await;
    // The gateway's own credential failed, so the caller does not get a 401.
    assert_eq!(ask(&gateway).await.status, 503);
    assert_eq!(ask(&gateway).await.status, 200);
    assert_eq!(ask(&gateway).await.status, 200);
    let used: Vec<String> = vertex.requests().iter().map(bearer).collect();
    assert_eq!(used, ["refused", "good", "good"]);
    assert_eq!(tokens.requests().len(), 2);
}

/// The token that a call was sent with is hidden in its texts, although another call made the gateway replace
/// it in the meantime.
#[tokio::test]
async fn a_replaced_token_is_hidden_from_the_call_that_was_sent_with_it() {
    const FIRST: &str = "first.word-of-the-operator";
    let log = ThreadLog::new(tracing::Level::DEBUG);
    let account = Account::new();
    let error = |code: u16, status: &str, message: &str| {
        json!({ "error": { "code": code, "status": status, "message": message } }).to_string()
    };
    let refused = error(401, "UNAUTHENTICATED", &format!("bad token Bearer {FIRST}"));
    let wrong = error(400, "INVALID_ARGUMENT", &format!("cannot use Bearer {FIRST}"));
    for is_streamed in [false, true] {
        let gate = Arc::new(Semaphore::new(0));
        let mut slow = vec![AnswerStep::WaitFor(Arc::clone(&gate))];
        match is_streamed {
            false => slow.extend(reply(400, "application/json", &wrong)),
            true => {
                let text = json!({ "role": "model", "parts": [{ "text": "Ho" }] });
                let first = json!({ "candidates": [{ "content": text }] }).to_string();
                let chunk = |event: &str| {
                    let text = format!("data: {event}\n\n");
                    AnswerStep::Bytes(format!("{:x}\r\n{text}\r\n", text.len()).into_bytes())
                };
                let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                            transfer-encoding: chunked\r\n\r\n";
                slow.insert(0, AnswerStep::Bytes(head.as_bytes().to_vec()));
                slow.insert(1, chunk(&first));
                slow.extend([chunk(&wrong), AnswerStep::Bytes(b"0\r\n\r\n".to_vec())]);
            }
        }
        let tokens =
            ScriptedProvider::start(vec![token(FIRST, 3600), token("another", 3600)]).await;
        let answers = vec![slow, reply(401, "application/json", &refused), native_reply()];
        let vertex = ScriptedProvider::start(answers).await;
        let gateway = gateway(&account.json(&tokens.url), &vertex).await;
        let body = json!({ "model": "m", "stream": is_streamed,
                           "messages": [{ "role": "user", "content": "Hi" }] });
        let slow = async { gateway.post("/v1/chat/completions", &body).wire_text().await };
        let others = async {
            until("the call runs", async || vertex.requests().len() == 1).await;
            assert_eq!(ask(&gateway).await.status, 503);
            assert_eq!(ask(&gateway).await.status, 200);
            gate.add_permits(1);
        };
        let (text, ()) = tokio::join!(slow, others);
        let used: Vec<String> = vertex.requests().iter().map(bearer).collect();
        assert_eq!(used, [FIRST, FIRST, "another"]);
        assert!(text.contains("cannot use") && text.contains("[hidden]"), "{text}");
        let said = String::from_utf8(log.take()).unwrap();
        assert!(said.contains("refuses credential 1") && said.contains("[hidden]"), "{said}");
        for at in 0..FIRST.len() - 8 {
            assert!(!text.contains(&FIRST[at..at + 8]), "{text}");
            assert!(!said.contains(&FIRST[at..at + 8]), "{said}");
        }
    }
}

#[tokio::test]
async fn a_token_that_has_expired_is_not_sent() {
    let account = Account::new();
    let tokens = ScriptedProvider::start(vec![token("stale", 0), token("good", 3600)]).await;
    let served = ScriptedProvider::start(vec![native_reply()]).await;
    let seconds = Arc::new(AtomicI64::new(1_790_000_000));
    let clock = Arc::clone(&seconds);
    let now: upstream::ClockFn = Arc::new(move || Micros::from_secs(clock.load(Ordering::Relaxed)));
    let source = upstream::GoogleAuth::from_json(&account.json(&tokens.url), now).unwrap();
    let provider = proved(source, &served);
    let refusal = try_send(&provider).await.unwrap_err();
    assert_eq!(refusal.kind(), canon::ErrorKind::Unavailable);
    // A failure is remembered for some seconds.
    seconds.fetch_add(60, Ordering::Relaxed);
    for _ in 0..2 {
        send(&provider).await;
    }
    let used: Vec<String> = served.requests().iter().map(bearer).collect();
    assert_eq!(used, ["good", "good"]);
}

#[tokio::test]
async fn a_token_endpoint_that_fails_is_a_503_for_the_caller_and_a_line_for_the_operator() {
    let log = ThreadLog::new(tracing::Level::INFO);
    let account = Account::new();
    let refused = json!({ "error": "invalid_grant", "error_description": "account not found" });
    let cases = [
        (reply(400, "application/json", &refused.to_string()), "invalid_grant account not found"),
        (reply(500, "text/html", "<html>"), "answered 500 without JSON"),
        (reply(200, "application/json", "{}"), "no `access_token`"),
        (token("bad\u{7f}token", 3600), "is not valid in a header"),
        (vec![AnswerStep::Close], "no Google access token"),
    ];
    for (answer, noted) in cases {
        let tokens = ScriptedProvider::start(vec![answer]).await;
        let vertex = ScriptedProvider::start(vec![native_reply()]).await;
        let gateway = gateway(&account.json(&tokens.url), &vertex).await;
        log.take();
        let got = ask(&gateway).await;
        assert_eq!(got.status, 503, "{}", got.text());
        assert_eq!(got.json()["error"]["message"], "the model is not available at the moment");
        assert!(vertex.requests().is_empty(), "nothing leaves without a proof");
        let said = String::from_utf8(log.take()).unwrap();
        assert!(said.contains("lane `vertex/gemini-3.5-flash` failed for `m`"), "{said}");
        assert!(said.contains(noted), "{noted}: {said}");
        assert!(!said.contains("PRIVATE KEY") && !said.contains("assertion="), "{said}");
    }
}

const TIMES: upstream::Timeouts = upstream::Timeouts {
    connect: Duration::from_secs(5),
    first_byte: Duration::from_secs(30),
    gap: Duration::from_secs(30),
    total: Duration::from_secs(60),
};

/// A provider that is proved to by that account.
fn proved(source: upstream::GoogleAuth, served: &ScriptedProvider) -> upstream::Provider {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let way = transport::Outbound::new(&transport::ProxySettings::default(), &[]).unwrap();
    let client = transport::HttpClient::network(TIMES.connect, &way);
    let credential = upstream::Credential::google(source);
    let speaks = vec![canon::WireFormat::Native];
    upstream::Provider::new("v", speaks, &served.url, credential, TIMES, client).unwrap()
}

async fn send(provider: &upstream::Provider) {
    assert_eq!(try_send(provider).await.unwrap(), 200);
}

/// Returns the status of the answer.
async fn try_send(provider: &upstream::Provider) -> Result<u16, canon::ApiError> {
    let headers = transport::HeaderFields::default();
    let how = upstream::SendOptions {
        credential: 0,
        new_connection: false,
        connect: TIMES.connect,
        first_byte: TIMES.first_byte,
        sent: &transport::SentMark::default(),
        secrets: &upstream::SentSecrets::default(),
    };
    let answer = provider.send("/x", headers, vec!["{}".into()], &how).await?;
    Ok(answer.status)
}

#[tokio::test]
async fn a_token_is_renewed_before_its_end_while_calls_go_on_with_it() {
    let account = Account::new();
    let tokens = ScriptedProvider::start(vec![
        token("first", 3600),
        reply(503, "text/plain", "later"),
        token("second", 3600),
    ])
    .await;
    let served = ScriptedProvider::start(vec![native_reply()]).await;
    let clock = Arc::new(AtomicI64::new(0));
    let now = Arc::clone(&clock);
    let now: upstream::ClockFn = Arc::new(move || Micros::from_secs(now.load(Ordering::Relaxed)));
    let source = upstream::GoogleAuth::from_json(&account.json(&tokens.url), now).unwrap();
    let provider = proved(source, &served);
    let last = || bearer(served.requests().last().unwrap());
    let asked_of = |count: usize| {
        let tokens = &tokens;
        async move {
            until("the token endpoint was requests", async || tokens.requests().len() >= count)
                .await;
        }
    };

    send(&provider).await;
    clock.store(3000, Ordering::Relaxed);
    send(&provider).await;
    assert_eq!((last().as_str(), tokens.requests().len()), ("first", 1), "there is time left");

    // The token expires soon: a renewal starts in the background, fails, and backs off.
    clock.store(3400, Ordering::Relaxed);
    send(&provider).await;
    assert_eq!(last(), "first");
    asked_of(2).await;
    send(&provider).await;
    assert_eq!((last().as_str(), tokens.requests().len()), ("first", 2));

    // The next one succeeds, and from then on its token is used.
    while last() == "first" {
        clock.fetch_add(1, Ordering::Relaxed);
        assert!(clock.load(Ordering::Relaxed) < 3590, "the token ended before it was renewed");
        send(&provider).await;
        // The renewal runs beside the calls and needs a turn of its own.
        tokio::task::yield_now().await;
    }
    assert_eq!((last().as_str(), tokens.requests().len()), ("second", 3));
}

#[tokio::test]
async fn a_user_and_a_machine_earn_tokens_in_their_own_ways() {
    let tokens = ScriptedProvider::start(vec![token("tok", 3600)]).await;
    let served = ScriptedProvider::start(vec![native_reply()]).await;
    let user = json!({ "type": "authorized_user", "client_id": "c", "client_secret": "s&s",
                       "refresh_token": "r/r", "token_uri": tokens.url });
    let now: upstream::ClockFn = Arc::new(|| Micros::ZERO);
    let host = tokens.url.trim_start_matches("http://");
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let way = transport::Outbound::new(&transport::ProxySettings::default(), &[]).unwrap();
    let machine = upstream::HostIdentity::new(&way, &|_| None);
    let sources = [
        upstream::GoogleAuth::from_json(&user.to_string(), Arc::clone(&now)).unwrap(),
        upstream::GoogleAuth::from_metadata_server(host, &machine, now).unwrap(),
    ];
    for source in sources {
        send(&proved(source, &served)).await;
    }
    assert_eq!(served.requests().iter().map(bearer).collect::<Vec<_>>(), ["tok"; 2]);
    let asked = tokens.requests();
    let form = String::from_utf8(asked[0].body.clone()).unwrap();
    assert_eq!(
        form,
        "grant_type=refresh_token&client_id=c&client_secret=s%26s&refresh_token=r%2Fr"
    );
    let metadata = "GET /computeMetadata/v1/instance/service-accounts/default/token HTTP/1.1";
    assert!(asked[1].head.starts_with(metadata), "{}", asked[1].head);
    assert!(asked[1].head.contains("metadata-flavor: Google"));
    assert_eq!(asked[1].json(), Value::Null);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_is_read_as_another_text_is_refused() {
    let evil = nested_texts(9);
    let secret = "{\"$serde_json::private::RawValue\":\"\\\"tok\\\"\"}";
    for body in [
        format!(r#"{{"access_token":"tok","expires_in":3600,"x":{evil}}}"#),
        format!(r#"{{"access_token":{secret},"expires_in":3600}}"#),
    ] {
        let tokens = ScriptedProvider::start(vec![reply(200, "application/json", &body)]).await;
        let vertex = ScriptedProvider::start(vec![native_reply()]).await;
        let account = Account::new().json(&format!("{}/token", tokens.url));
        let gateway = gateway(&account, &vertex).await;
        let got = ask(&gateway).await;
        assert_eq!(got.status, 503, "{}", got.text());
        assert!(!tokens.requests().is_empty());
        assert_eq!(vertex.requests().len(), 0);
        assert_eq!(gateway.get("/healthz").send().await.status, 200);
    }
}

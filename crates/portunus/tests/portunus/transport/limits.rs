//! Limits of connections: their number and their timeouts.

use super::raw_client::{Caller, call, hello};
use testkit::TestGateway;

const ALIVE: &str = "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n";

#[tokio::test]
async fn one_connection_too_many_is_turned_away_until_another_ends() {
    for limit in ["connections = 3", "connections_per_address = 3"] {
        let gateway = TestGateway::with_config(&format!("[limits]\n{limit}\n")).await;
        let mut inside = Vec::new();
        for _ in 0..3 {
            let mut caller = Caller::to(&gateway).await;
            caller.send(ALIVE).await;
            assert_eq!(caller.answer().await.unwrap().status, 200);
            inside.push(caller);
        }
        let mut outside = Caller::to(&gateway).await;
        let answer = outside.answer().await.unwrap();
        assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")), "{limit}");
        assert!(outside.is_closed().await);
        inside.pop();
        loop {
            let mut next = Caller::to(&gateway).await;
            next.send(ALIVE).await;
            if next.answer().await.is_some_and(|answer| answer.status == 200) {
                break;
            }
        }
    }
}

#[tokio::test]
async fn headers_that_do_not_come_are_not_waited_for() {
    let gateway =
        TestGateway::with_config("[limits]\nheader_time = \"300ms\"\nidle = \"300ms\"\n").await;
    let mut slow = Caller::to(&gateway).await;
    slow.send("POST /v1/messages HTTP/1.1\r\nhost: x\r\nx-a: ").await;
    let answer = slow.answer().await.unwrap();
    assert_eq!((answer.status, answer.header("connection")), (408, Some("close")));
    assert_eq!(answer.json()["type"], "error", "in the words of the path");
    assert!(slow.is_closed().await);
    // Without a request there is no answer.
    assert!(Caller::to(&gateway).await.is_closed().await);
    let mut idle = Caller::to(&gateway).await;
    idle.send(ALIVE).await;
    assert_eq!(idle.answer().await.unwrap().status, 200);
    assert!(idle.is_closed().await);
    let mut second = Caller::to(&gateway).await;
    second.send(ALIVE).await;
    assert_eq!(second.answer().await.unwrap().status, 200);
    second.send("GET /hea").await;
    assert_eq!(second.answer().await.unwrap().status, 408);
}

#[tokio::test]
async fn a_crowd_of_slow_callers_does_not_keep_the_others_from_being_served() {
    let gateway = TestGateway::start().await;
    let mut crowd = Vec::new();
    for _ in 0..1_000 {
        let mut caller = Caller::to(&gateway).await;
        caller.send("POST /v1/chat/completions HTTP/1.1\r\nx-a").await;
        crowd.push(caller);
    }
    let body = hello("demo-chat", false);
    let bytes = call(&gateway, &format!("content-length: {}\r\n", body.len()), &body);
    let mut honest = Caller::to(&gateway).await;
    for _ in 0..50 {
        honest.send(&bytes).await;
        assert_eq!(honest.answer().await.unwrap().status, 200);
    }
    drop(crowd);
}

#[test]
fn limits_that_make_no_sense_are_refused_by_name() {
    let given = config::LoadOptions {
        file: None,
        listen_address: None,
        data_folder: std::env::temp_dir().join("portunus-no-limits"),
    };
    for (text, named) in [
        ("connections = 0", "limits.connections"),
        ("headers = 1000", "limits.headers"),
        ("header_bytes = \"10GiB\"", "limits.header_bytes"),
        ("header_time = \"0s\"", "limits.header_time"),
        ("stall = \"soon\"", "limits.stall"),
        ("resets = 0", "limits.resets"),
    ] {
        let text = format!("[limits]\n{text}\n");
        let name = std::path::Path::new("test.toml");
        let refused = config::Config::parse(&text, name, &given, &|_| None).unwrap_err();
        assert!(refused.0.contains(named), "{refused}");
    }
    let text = "[server]\ntls = { cert = \"/nowhere\", key = \"/nowhere\" }\n";
    let name = std::path::Path::new("test.toml");
    let refused = config::Config::parse(text, name, &given, &|_| None).unwrap_err();
    assert!(refused.0.contains("server.tls.cert"), "{refused}");
}

//! Faults with another lane left: providers that refuse, fall silent, are slow, or recover.

use serde_json::json;
use std::time::{Duration, Instant};
use testkit::TestGateway;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::faults::expectations::complete;
use crate::faults::formats::{FORMATS, ask};
use crate::faults::matrix::{meter, provider};

/// Faults after which nothing has reached the caller, so that the next lane may answer.
const LOST: [&str; 10] = [
    "reset",
    "close",
    "garbage",
    "status code=500",
    "status code=529",
    "status code=401",
    "empty",
    "html",
    "truncate after=0",
    "not-json",
];

/// The lanes of the model, one after the other.
const ORDERED: &str = "lanes = [\"bad/x\", \"good/y\"]";

/// Two lanes: one that always fails, one that never does.
async fn two_lanes(bad: &str, good: &str) -> TestGateway {
    TestGateway::with_config(&lanes(bad, good)).await
}

fn lanes(bad: &str, good: &str) -> String {
    let speaks = r#"["chat", "responses", "messages", "native"]"#;
    format!(
        "[providers.bad]\nspeaks = {speaks}\nbase = \"http://{bad}\"\nauth = \"none\"\n\
         [providers.good]\nspeaks = {speaks}\nbase = \"http://{good}\"\nauth = \"none\"\n\
         [models.m]\n{ORDERED}\nprice = {{ input = \"1.00\", output = \"2.00\" }}\n"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_lane_answers_as_long_as_the_caller_saw_nothing() {
    let good = provider("").await;
    for fault in LOST {
        let bad = provider(&format!("[[rule]]\nfault = \"{fault}\"\n")).await;
        let gateway = two_lanes(&bad, &good).await;
        for format in FORMATS {
            for stream in [false, true] {
                let (path, body) = ask(format, "m", "", stream);
                let got = gateway.post(&path, &body).send().await;
                complete(format, &got, stream, true)
                    .unwrap_or_else(|why| panic!("{fault} {} {stream}: {why}", format.as_str()));
                assert_eq!(got.header("x-portunus-lane"), "good/y", "{fault}");
            }
        }
        gateway.wait_until_settled().await;
        let rows = gateway.app.store.export(None, 100).await.unwrap();
        assert_eq!(rows.len(), 8, "{fault}: one row per call, whatever was tried");
        assert!(rows.iter().all(|row| row.cost.as_nanos() > 0 && !row.estimated));
    }
    let told = meter(&good).await;
    assert_eq!(told["requests"], 8 * LOST.len(), "each call was answered once");
}

#[tokio::test]
async fn a_refused_connection_is_the_next_lanes_turn_or_a_503() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dead = listener.local_addr().unwrap().to_string();
    drop(listener);
    let good = provider("").await;
    let gateway = two_lanes(&dead, &good).await;
    let (path, body) = ask(canon::WireFormat::Chat, "m", "", false);
    let got = gateway.post(&path, &body).send().await;
    assert_eq!((got.status.as_u16(), got.header("x-portunus-lane")), (200, "good/y"));
    let gateway = two_lanes(&dead, &dead).await;
    let got = gateway.post(&path, &body).send().await;
    assert_eq!(got.status, 503, "{}", got.text());
    assert_eq!(got.json()["error"]["code"], "upstream_unavailable");
    let key = gateway.get("/v1/key").send().await.json();
    assert_eq!(
        (&key["spent_usd"], &key["held_usd"]),
        (&json!("0.000000000"), &json!("0.000000000"))
    );
}

/// An address that never accepts: its queue of connections is full and more are passed over
/// in silence. It stays so for as long as the sockets are kept.
async fn black_hole() -> (String, TcpListener, Vec<TcpStream>) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut waiting = Vec::new();
    while let Ok(opened) = timeout(Duration::from_secs(1), TcpStream::connect(address)).await {
        waiting.push(opened.unwrap());
    }
    (address.to_string(), listener, waiting)
}

#[tokio::test]
async fn a_place_that_is_silent_to_connections_is_the_next_lanes_turn_or_a_504() {
    let (hole, _listener, _waiting) = black_hole().await;
    let good = provider("").await;
    let times = "[timeouts]\nconnect = \"400ms\"\n";
    for (other, status) in [(good.as_str(), 200), (&hole, 504)] {
        let gateway = TestGateway::with_config(&format!("{times}{}", lanes(&hole, other))).await;
        let (path, body) = ask(canon::WireFormat::Chat, "m", "", false);
        let got = gateway.post(&path, &body).send().await;
        assert_eq!(got.status, status, "{}", got.text());
        gateway.wait_until_settled().await;
        let row = gateway.app.store.entry(got.header("x-request-id")).await.unwrap().unwrap();
        assert_eq!((row.attempts, row.failed[0].outcome.as_str()), (2, "timeout"));
        assert_eq!(row.absorbed.as_nanos(), 0, "nothing ever left");
        assert_eq!(row.cost.as_nanos() > 0, status == 200);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lane_that_has_become_slow_is_left_to_the_others_and_not_given_up() {
    let slow = provider("[[rule]]\nfault = \"stall wait=400ms\"\n").await;
    let quick = provider("").await;
    let equal = "lanes = [{ lane = \"bad/x\", weight = 1 }, { lane = \"good/y\", weight = 1 }]";
    let text = lanes(&slow, &quick).replace(ORDERED, equal);
    let gateway = TestGateway::with_config(&text).await;
    let (path, body) = ask(canon::WireFormat::Chat, "m", "", false);
    let mut shares = [0, 0];
    for at in 0..60 {
        let got = gateway.post(&path, &body).send().await;
        assert_eq!(got.status, 200);
        // The first calls discover the fault.
        if at >= 12 {
            shares[usize::from(got.header("x-portunus-lane") == "good/y")] += 1;
        }
    }
    assert!(shares[0] <= 12, "{shares:?}: an eighth looks whether it still is slow, and chance");
    let health = gateway.app.config().lane_health(gateway.app.ticks());
    let bad = health.iter().find(|lane| lane.lane == "bad/x").unwrap();
    assert_eq!((bad.health.state.as_str(), bad.health.failure_streak), ("good", 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lane_that_comes_and_goes_costs_no_call_and_few_tries() {
    // Ten good calls, six bad ones, and so on: five open the breaker, and the sixth is the first
    // probe. A rule counts only the calls that earlier rules left.
    let rules: String = (1..=30)
        .map(|turn| {
            let from = 10 * turn + 1;
            format!(
                "[[rule]]\npath = \"/v1/*\"\nfrom = {from}\ntimes = 6\nfault = \"status code=500\"\n"
            )
        })
        .collect();
    let (flapping, good) = (provider(&rules).await, provider("").await);
    let gateway = two_lanes(&flapping, &good).await;
    let (path, body) = ask(canon::WireFormat::Chat, "m", "", false);
    let asked = async |address: &str| meter(address).await["requests"].as_u64().unwrap();
    let began = Instant::now();
    let mut calls = 0;
    // Three good and three bad phases, without a time limit.
    while asked(&flapping).await < 48 {
        assert!(began.elapsed() < Duration::from_secs(60), "it is never taken back");
        let four = (0..4).map(|_| gateway.post(&path, &body).send());
        for got in futures_util::future::join_all(four).await {
            assert_eq!(got.status, 200, "{}", got.text());
            calls += 1;
        }
    }
    let asked = asked(&flapping).await + asked(&good).await;
    let floor = 10 * (1 + began.elapsed().as_secs());
    assert!(asked <= calls * 12 / 10 + floor, "{asked} for {calls}");
}

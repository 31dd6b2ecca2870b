//! Callers that disconnect, repeat a call, or come in large numbers: the provider's meter against
//! the ledger.

use bytes::Bytes;
use canon::WireFormat;
use demo::{SimulatorOptions, simulate};
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use ledger::CallOutcome;
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};
use testkit::{TestGateway, until};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::faults::expectations::{self, Break};
use crate::faults::formats::{FORMATS, ask};
use crate::faults::matrix::{meter, provider};

/// A gateway whose model `m` is served by that provider in that format.
async fn in_front_of(address: &str, speaks: &str) -> TestGateway {
    TestGateway::with_config(&format!(
        "[providers.p]\nspeaks = \"{speaks}\"\nbase = \"http://{address}\"\nauth = \"none\"\n\
         [models.m]\nlanes = [\"p/x\"]\nprice = {{ input = \"1.00\", output = \"2.00\" }}\n"
    ))
    .await
}

/// The provider's row of a call, once it is in that state.
async fn row(address: &str, tag: &str, state: &str) -> Value {
    let mut found = Value::Null;
    until("the provider has the call in that state", async || {
        let told = meter(address).await;
        let mut calls = told["calls"].as_array().unwrap().iter();
        let call = calls.find(|call| call["tag"] == tag && call["state"] == state);
        found = call.cloned().unwrap_or_default();
        !found.is_null()
    })
    .await;
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_leaves_is_seen_by_the_provider_and_pays_for_what_came() {
    let address = provider("").await;
    for format in FORMATS {
        let speaks = format.as_str();
        let gateway = in_front_of(&address, speaks).await;
        let order = format!("[[fault: stall-between after=9 tag={speaks}]]");
        let (path, body) = ask(format, "m", &order, true);
        gateway.post(&path, &body).disconnect_after_events(9).await;
        let seen = row(&address, speaks, "left").await;
        gateway.wait_until_settled().await;
        let rows = gateway.app.store.export(None, 10).await.unwrap();
        assert_eq!(rows.len(), 1, "{speaks}");
        let row = &rows[0];
        assert_eq!((row.outcome, row.estimated), (CallOutcome::CallerLeft, true), "{speaks}");
        let produced = seen["produced_tokens"].as_u64().unwrap();
        // All output had arrived; the counts may differ by one piece.
        let (low, high) = (produced.saturating_sub(4), produced + 4);
        assert!((low..=high).contains(&row.usage.output), "{speaks}: {produced} {row:?}");
        assert_eq!(row.absorbed.as_nanos(), 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_leaves_lets_the_provider_go_at_once() {
    let address = provider("").await;
    let gateway = in_front_of(&address, "chat").await;
    // Before the head, in a whole answer and in a stream. The fastest of several calls is measured;
    // the others wait for a processor.
    for (fault, stream) in [("stall", false), ("stall-between", false), ("stall-between", true)] {
        let mut quickest = Duration::MAX;
        for round in 0..5 {
            let tag = format!("{fault}-{stream}-{round}");
            let (path, body) =
                ask(WireFormat::Chat, "m", &format!("[[fault: {fault} tag={tag}]]"), stream);
            let sending = gateway.post(&path, &body);
            let running = async {
                if stream {
                    sending.disconnect_after(10).await;
                } else {
                    sending.send().await;
                }
            };
            tokio::select! {
                () = running => {}
                _ = row(&address, &tag, "running"), if !stream => {}
            }
            let left = Instant::now();
            row(&address, &tag, "left").await;
            quickest = quickest.min(left.elapsed());
        }
        assert!(quickest < Duration::from_secs(1), "{fault} {stream}: {quickest:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_taken_back_over_http2_ends_and_its_neighbour_goes_on() {
    let address = provider("").await;
    let gateway = in_front_of(&address, "chat").await;
    let socket = TcpStream::connect(gateway.url.strip_prefix("http://").unwrap()).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(socket))
            .await
            .unwrap();
    tokio::spawn(connection);
    let mut send = async |before: &str| {
        let (path, body) = ask(WireFormat::Chat, "m", before, true);
        let request = Request::post(format!("{}{path}", gateway.url))
            .header("authorization", format!("Bearer {}", gateway.key))
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body.to_string())))
            .unwrap();
        sender.send_request(request).await.unwrap()
    };
    let mut leaving = send("[[fault: stall-between after=9 tag=leaving]]").await;
    let staying = send("[[fault: slow wait=20ms tag=staying]]").await;
    assert!(leaving.frame().await.unwrap().unwrap().is_data());
    drop(leaving);
    row(&address, "leaving", "left").await;
    let all = staying.into_body().collect().await.unwrap().to_bytes();
    assert!(all.ends_with(b"data: [DONE]\n\n"));
    gateway.wait_until_settled().await;
    let rows = gateway.app.store.export(None, 10).await.unwrap();
    let outcome = |outcome| rows.iter().filter(|row| row.outcome == outcome).count();
    assert_eq!((outcome(CallOutcome::CallerLeft), outcome(CallOutcome::Done)), (1, 1), "{rows:?}");
    assert!(rows.iter().all(|row| row.cost.as_nanos() > 0), "{rows:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_gives_up_and_asks_again_has_two_rows() {
    // The first lane falls silent, before its first byte or in the middle.
    for (fault, paid) in [("stall", false), ("stall-between after=9", true)] {
        let rule = "[[rule]]\npath = \"/v1/*\"\ntimes = 1\n";
        let address = provider(&format!("{rule}fault = \"{fault} tag=one\"\n")).await;
        let gateway = in_front_of(&address, "chat").await;
        let (path, body) = ask(WireFormat::Chat, "m", "", true);
        let first = gateway.post(&path, &body);
        if paid {
            first.disconnect_after_events(9).await;
        } else {
            tokio::select! {
                got = first.send() => panic!("a call that is to be given up is answered: {}", got.text()),
                _ = row(&address, "one", "running") => {}
            }
        }
        row(&address, "one", "left").await;
        let got = gateway.post(&path, &body).send().await;
        expectations::complete(WireFormat::Chat, &got, true, true).unwrap();
        gateway.wait_until_settled().await;
        let rows = gateway.app.store.export(None, 10).await.unwrap();
        assert_eq!(rows.len(), 2, "both are visible");
        let of = |outcome| rows.iter().find(|row| row.outcome == outcome).unwrap();
        assert_eq!(of(CallOutcome::CallerLeft).cost.as_nanos() > 0, paid, "{rows:?}");
        assert!(of(CallOutcome::Done).cost.as_nanos() > 0 && !of(CallOutcome::Done).estimated);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_a_provider_dies_every_stream_on_it_is_told_and_none_is_tried_again() {
    const STREAMS: usize = 200;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let living =
        tokio::spawn(simulate(listener, SimulatorOptions::default(), std::future::pending::<()>()));
    let other = provider("").await;
    let speaks = r#"["chat", "responses", "messages", "native"]"#;
    let gateway = Arc::new(
        TestGateway::with_config(&format!(
            "[providers.p]\nspeaks = {speaks}\nbase = \"http://{address}\"\nauth = \"none\"\n\
             [providers.q]\nspeaks = {speaks}\nbase = \"http://{other}\"\nauth = \"none\"\n\
             [models.m]\nlanes = [\"p/x\", \"q/x\"]\n\
             price = {{ input = \"1.00\", output = \"2.00\" }}\n"
        ))
        .await,
    );
    let mut calls = JoinSet::new();
    for at in 0..STREAMS {
        let gateway = Arc::clone(&gateway);
        calls.spawn(async move {
            let format = FORMATS[at % FORMATS.len()];
            let (path, body) = ask(format, "m", "[[fault: stall-between after=9]]", true);
            (format, gateway.post(&path, &body).send().await)
        });
    }
    // All streams have begun, and the caller has received some of each.
    until("all streams run", async || {
        let told = meter(&address).await;
        let begun = |call: &&Value| call["state"] == "running";
        let begun = told["calls"].as_array().unwrap().iter().filter(begun).count();
        begun == STREAMS && gateway.app.engine.funds.open_calls.running_count() == STREAMS
    })
    .await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    living.abort();
    let died = Instant::now();
    while let Some(call) = calls.join_next().await {
        let (format, got) = call.unwrap();
        expectations::broken(format, &got, Break::Cut).unwrap();
    }
    // Far below any timeout: the streams end because the provider died.
    assert!(died.elapsed() < Duration::from_secs(30), "{:?}", died.elapsed());
    gateway.wait_until_settled().await;
    let rows = gateway.app.store.export(None, 10_000).await.unwrap();
    assert_eq!(rows.len(), STREAMS);
    for row in &rows {
        assert_eq!((row.outcome, row.attempts), (CallOutcome::BrokeOff, 1), "{row:?}");
        assert!(row.usage.output > 0 && row.cost.as_nanos() > 0, "{row:?}");
    }
    assert_eq!(meter(&other).await["requests"], 0, "a stream that has begun is not begun anew");
}

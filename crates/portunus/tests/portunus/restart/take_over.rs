//! A new process that takes the sockets of a running one.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;
use testkit::until;
use tokio::net::TcpStream;

use super::load::{Load, call_count, request};
use super::{Site, free_address, readiness, tls_curl, tls_line, tls_readiness};
use crate::transport::raw_client::Caller;

const TAKE_OVER: &[&str] = &["--take-over"];

#[tokio::test(flavor = "multi_thread")]
async fn one_machine_restarts_under_load_without_a_failed_call() {
    let site = Site::new("300ms", "").await;
    // Money of a cap is leased to one process at a time, and must move with the calls.
    for money in [&["--unlimited"][..], &["--cap", "1000"]] {
        let key = site.key(money);
        let mut running = site.start("data", &free_address(), &[]);
        let address = running.address.clone();
        let before = site.receipts().len();
        let load = Load::start(&[&address], &key, 1);
        let calls = call_count(1_000);
        load.reach(calls / 4).await;
        for round in 2..=3 {
            let new = site.start("data", &address, TAKE_OVER);
            assert_eq!(running.ended().await, Some(0));
            running = new;
            load.reach(calls * round / 4).await;
        }
        load.reach(calls).await;
        let result = load.finish().await;
        running.signal("-INT");
        assert_eq!(running.ended().await, Some(0));
        let receipts = site.receipts();
        assert!(receipts.is_superset(&result.ids));
        assert_eq!(receipts.len(), before + result.ids.len());
        site.run("data", &["ledger", "verify"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_of_the_old_process_go_on_beside_the_new_one() {
    let site = Site::new("100ms", "").await;
    let key = site.key(&["--unlimited"]);
    let old = site.start("data", &free_address(), &[]);
    let address = old.address.clone();
    let mut idle = Caller::at(&address).await;
    idle.send("GET /readyz HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert_eq!(idle.answer().await.unwrap().status, 200);
    let mut streams = Vec::new();
    for _ in 0..8 {
        let mut caller = Caller::at(&address).await;
        caller.send(request(&key, "slow", true)).await;
        assert!(caller.head().await.starts_with("HTTP/1.1 200"));
        streams.push(caller);
    }
    let mut new = site.start("data", &address, TAKE_OVER);
    // The old process has not ended, and the new one serves.
    let mut caller = Caller::at(&address).await;
    caller.send(request(&key, "m", false)).await;
    assert_eq!(caller.answer().await.unwrap().status, 200);
    assert!(idle.is_closed().await, "the end of the linger closes an idle connection");
    assert!(new.is_running());
    for mut caller in streams {
        let mut text = Vec::new();
        while let Some(chunk) = caller.chunk().await.expect("a stream that ends properly") {
            text.extend(chunk);
        }
        assert!(String::from_utf8(text).unwrap().contains("data: [DONE]"));
    }
    assert_eq!(old.ended().await, Some(0));
    new.signal("-INT");
    assert_eq!(new.ended().await, Some(0));
    assert_eq!(site.receipts().len(), 9);
    site.run("data", &["ledger", "verify"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_cannot_start_changes_nothing() {
    let metrics = free_address();
    let site = Site::new("600s", &format!("metrics = \"{metrics}\"")).await;
    let key = site.key(&["--unlimited"]);
    let mut old = site.start("data", &free_address(), &[]);
    let address = old.address.clone();
    let good = std::fs::read_to_string(site.folder.join("p.toml")).unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let in_use = taken.local_addr().unwrap().to_string();
    for (broken, cause) in [
        (good.replace("linger", "lingre"), "did you mean `linger`?"),
        (good.replace(&metrics, &in_use), "server.metrics"),
        (good.replace("sqlite:", "sqlite:/nowhere"), "nowhere"),
    ] {
        let file = site.folder.join("broken.toml");
        std::fs::write(&file, broken).unwrap();
        let mut command = site.program("data");
        command.arg("serve").arg("--config").arg(file).args(["--listen", &address]);
        let output = command.args(TAKE_OVER).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(cause), "{said}");
        let mut caller = Caller::at(&address).await;
        caller.send(request(&key, "m", false)).await;
        let answer = caller.answer().await.unwrap();
        assert_eq!((answer.status, answer.header("connection")), (200, None));
        assert_eq!(readiness(&address).await, Some(200));
    }
    assert!(old.is_running());
    // A process that asks and is killed before it is ready.
    let path = site.folder.join("data/take-over.sock");
    let mut asking = tokio::net::UnixStream::connect(&path).await.unwrap();
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    asking.write_all(b"take-over 1\n").await.unwrap();
    asking.read_u8().await.unwrap();
    drop(asking);
    // The metrics listener is handed over with the other one.
    let new = site.start("data", &address, TAKE_OVER);
    assert_eq!(readiness(&address).await, Some(200));
    let mut caller = Caller::at(&metrics).await;
    caller.send("GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert_eq!(caller.answer().await.unwrap().status, 200);
    old.signal("-INT");
    assert_eq!(old.ended().await, Some(0));
    assert_eq!(readiness(&address).await, Some(200));
    let mut caller = Caller::at(&metrics).await;
    caller.send("GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert_eq!(caller.answer().await.unwrap().status, 200);
    new.signal("-INT");
    assert_eq!(new.ended().await, Some(0));
    site.run("data", &["ledger", "verify"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_data_folder_belongs_to_one_process_unless_it_is_taken_over() {
    let site = Site::new("0s", "").await;
    // Without a running process it starts as usual.
    let first = site.start("data", "127.0.0.1:0", TAKE_OVER);
    let second = site.start("data", &first.address.clone(), TAKE_OVER);
    assert_eq!(first.ended().await, Some(0));
    // The second process has another journal than the first one had.
    let mut plain = site.program("data");
    let output = plain.args(["serve", "--listen", "127.0.0.1:0"]).stdin(Stdio::null()).output();
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("another portunus process") && said.contains("--take-over"), "{said}");
    assert_eq!(output.status.code(), Some(1));
    second.signal("-INT");
    assert_eq!(second.ended().await, Some(0));
    let third = site.start("data", "127.0.0.1:0", &[]);
    until("it is ready", async || third.readiness().await == Some(200)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn encrypted_listeners_are_handed_over() {
    let site = Site::new("0s", &tls_line()).await;
    let old = site.start("data", &free_address(), &[]);
    let address = old.address.clone();
    assert_eq!(tls_readiness(&address), "200");
    let new = site.start("data", &address, TAKE_OVER);
    assert_eq!(old.ended().await, Some(0));
    assert_eq!(tls_readiness(&address), "200");
    drop(new);
}

/// The listener of the API ends when a process drains, and the other ones only with the process.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_drains_hands_over_its_other_listeners() {
    let (metrics, plain) = (free_address(), free_address());
    let server = format!(
        "metrics = \"{metrics}\"\nhttp_listen = \"{plain}\"\npublic_url = \"https://gateway.test\"\n{}",
        tls_line()
    );
    let site = Site::new("0s", &server).await;
    let key = site.key(&["--unlimited"]);
    // The greeting names the public URL instead.
    let address = free_address();
    let mut old = site.start("data", &address, &[]);
    let mut curl = tls_curl(&address, "/v1/chat/completions");
    let call = serde_json::json!({
        "model": "slow", "stream": true, "messages": [{ "role": "user", "content": "Hello!" }],
    });
    curl.args(["--http1.1", "-N", "-d", &call.to_string()]);
    curl.args(["-H", &format!("authorization: Bearer {key}")]);
    curl.args(["-H", "content-type: application/json"]);
    let mut stream = curl.stdout(Stdio::piped()).spawn().unwrap();
    let mut events = BufReader::new(stream.stdout.take().unwrap());
    let mut text = String::new();
    events.read_line(&mut text).unwrap();
    assert!(text.starts_with("data: "), "{text}");
    old.signal("-TERM");
    until("the listener of the API has ended", async || {
        TcpStream::connect(&address).await.is_err()
    })
    .await;
    let alive = async |address: &str| {
        let mut caller = Caller::at(address).await;
        caller.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
        caller.answer().await.unwrap().status
    };
    assert_eq!((alive(&metrics).await, alive(&plain).await), (404, 308));
    assert!(old.is_running(), "its stream goes on");
    let new = site.start("data", &address, TAKE_OVER);
    assert_eq!(tls_readiness(&address), "200");
    assert_eq!((alive(&metrics).await, alive(&plain).await), (404, 308));
    events.read_to_string(&mut text).unwrap();
    assert!(text.contains("data: [DONE]"), "{text}");
    assert!(stream.wait().unwrap().success());
    assert_eq!(old.ended().await, Some(0));
    assert_eq!((alive(&metrics).await, alive(&plain).await), (404, 308));
    new.signal("-INT");
    assert_eq!(new.ended().await, Some(0));
    site.run("data", &["ledger", "verify"]);
}

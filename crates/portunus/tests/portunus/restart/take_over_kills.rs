//! `kill -9` around a take-over. No call is lost, and none is posted twice.

use std::collections::BTreeSet;
use testkit::until;

use super::load::{Load, request};
use super::{Gateway, Site, free_address};
use crate::transport::raw_client::Caller;

const TAKE_OVER: &[&str] = &["--take-over"];

/// Streams that have begun, with their ids.
async fn slow_streams(address: &str, key: &str, count: usize) -> (Vec<Caller>, BTreeSet<String>) {
    let (mut streams, mut ids) = (Vec::new(), BTreeSet::new());
    for _ in 0..count {
        let mut caller = Caller::at(address).await;
        caller.send(request(key, "slow", true)).await;
        let head = caller.head().await.to_ascii_lowercase();
        assert!(head.starts_with("http/1.1 200"), "{head}");
        caller.chunk().await.unwrap();
        let id = head.lines().find_map(|line| line.strip_prefix("x-request-id: "));
        ids.insert(id.unwrap().to_owned());
        streams.push(caller);
    }
    (streams, ids)
}

fn kill(gateway: Gateway) {
    gateway.signal("-KILL");
    drop(gateway);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_new_process_settles_what_a_killed_old_one_left() {
    let site = Site::new("600s", "").await;
    let key = site.key(&["--cap", "1000"]);
    let old = site.start("data", &free_address(), &[]);
    let address = old.address.clone();
    let (streams, cut) = slow_streams(&address, &key, 8).await;
    let load = Load::start(&[&address], &key, 1);
    load.more(300).await;
    let new = site.start("data", &address, TAKE_OVER);
    // A call that began before may keep its connection, and the next answer closes it. After that a
    // caller has left the old process.
    load.each_more(3).await;
    kill(old);
    load.more(300).await;
    let answered = load.finish().await.ids;
    drop(streams);
    let expected: BTreeSet<String> = answered.union(&cut).cloned().collect();
    until("the calls of the old process are posted", async || site.receipts() == expected).await;
    new.signal("-INT");
    assert_eq!(new.ended().await, Some(0));
    assert_eq!(site.receipts(), expected);
    site.run("data", &["ledger", "verify"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_start_settles_what_both_processes_left() {
    let site = Site::new("600s", "").await;
    let key = site.key(&["--cap", "1000"]);
    let old = site.start("data", &free_address(), &[]);
    let address = old.address.clone();
    let (first_streams, mut expected) = slow_streams(&address, &key, 4).await;
    let new = site.start("data", &address, TAKE_OVER);
    let (second_streams, cut) = slow_streams(&address, &key, 4).await;
    expected.extend(cut);
    let load = Load::start(&[&address], &key, 1);
    load.more(200).await;
    expected.extend(load.finish().await.ids);
    // Both at once: no process is left to adopt anything.
    new.signal("-KILL");
    old.signal("-KILL");
    drop((old, new, first_streams, second_streams));
    // The journals are verified although nothing runs.
    site.run("data", &["ledger", "verify"]);
    let next = site.start("data", &address, &[]);
    assert_eq!(site.receipts(), expected, "they are posted before the start ends");
    site.run("data", &["ledger", "verify"]);
    next.signal("-INT");
    assert_eq!(next.ended().await, Some(0));
    let entries = site.entries();
    assert_eq!(entries.len(), expected.len(), "no call is posted twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_take_overs_lose_nothing_wherever_they_were() {
    let site = Site::new("100ms", "").await;
    let key = site.key(&["--cap", "1000"]);
    let mut running = site.start("data", &free_address(), &[]);
    let address = running.address.clone();
    let load = Load::start(&[&address], &key, 1);
    for round in 0..6_u64 {
        // A new process that is killed somewhere in its start.
        let mut command = site.program("data");
        command.args(["serve", "--listen", &address, "--take-over"]);
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        let mut starting = command.spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20 * round));
        starting.kill().unwrap();
        starting.wait().unwrap();
        if !running.is_running() || is_closed(&address).await {
            // It was killed after it had taken over. Nothing listens, and the next start serves.
            break;
        }
        load.more(50).await;
    }
    drop(load);
    let next = match super::readiness(&address).await {
        Some(200) => None,
        _ => {
            until("the old process ends", async || !running.is_running()).await;
            Some(site.start("data", &address, &[]))
        }
    };
    let last = next.unwrap_or(running);
    last.signal("-INT");
    assert_eq!(last.ended().await, Some(0));
    let entries = site.entries();
    assert_eq!(entries.len(), site.receipts().len(), "no call is posted twice");
    site.run("data", &["ledger", "verify"]);
}

/// Returns true if nothing listens at the address.
async fn is_closed(address: &str) -> bool {
    tokio::net::TcpStream::connect(address).await.is_err()
}

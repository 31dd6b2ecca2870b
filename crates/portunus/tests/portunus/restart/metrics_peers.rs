//! Peers of the metrics listener that send nothing, or half of a head.

use super::{Site, free_address, readiness};
use crate::transport::raw_client::Caller;

/// More than the listener takes, from one address and in all.
const PEERS: usize = 64;

/// A site whose listeners wait long for the rest of a head.
async fn patient_site(metrics: &str) -> Site {
    let limits = format!("metrics = \"{metrics}\"\n[limits]\nheader_time = \"600s\"");
    Site::new("0s", &limits).await
}

async fn half_head(address: &str) -> Caller {
    let mut peer = Caller::at(address).await;
    peer.send("GET /metrics HTTP/1.1\r\nx-begun: ").await;
    peer
}

#[tokio::test(flavor = "multi_thread")]
async fn peers_that_wait_keep_no_probe_out() {
    let metrics = free_address();
    let site = patient_site(&metrics).await;
    let gateway = site.start("data", &free_address(), &[]);
    let mut peers = Vec::new();
    for _ in 0..PEERS {
        peers.push(half_head(&metrics).await);
        assert_eq!(readiness(&metrics).await, Some(200));
    }
    assert_eq!(gateway.readiness().await, Some(200));
    drop(peers);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_ends_although_a_peer_waits_at_the_metrics_listener() {
    let metrics = free_address();
    let site = patient_site(&metrics).await;
    let gateway = site.start("data", &free_address(), &[]);
    let peer = half_head(&metrics).await;
    // The gateway has accepted the peer when it answers a later one.
    assert_eq!(readiness(&metrics).await, Some(200));
    gateway.signal("-TERM");
    assert_eq!(gateway.ended().await, Some(0));
    drop(peer);
}

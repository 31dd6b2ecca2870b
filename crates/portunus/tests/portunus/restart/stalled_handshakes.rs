//! Peers that begin a handshake of TLS and do not end it.

use super::{Site, free_address, tls_line, tls_readiness};
use crate::transport::raw_client::Caller;

#[tokio::test(flavor = "multi_thread")]
async fn a_process_ends_although_peers_stall_their_handshakes() {
    // The drain timeout of the default is as long.
    let server = format!("{}\n[limits]\nheader_time = \"600s\"", tls_line());
    let site = Site::new("0s", &server).await;
    let gateway = site.start("data", &free_address(), &[]);
    let silent = Caller::at(&gateway.address).await;
    let mut begun = Caller::at(&gateway.address).await;
    // The head of a record whose content does not come.
    begun.send(b"\x16\x03\x01\x02\x00\x01").await;
    // The gateway has accepted the peers when it answers a later one.
    assert_eq!(tls_readiness(&gateway.address), "200");
    gateway.signal("-TERM");
    assert_eq!(gateway.ended().await, Some(0));
    assert!(!site.log().contains("the drain timeout expired"), "{}", site.log());
    drop((silent, begun));
}

//! Digests of the sections of a configuration, by which nodes notice that theirs differ.

use aws_lc_rs::digest::{SHA256, digest};
use std::collections::BTreeMap;

use crate::raw::{RawConfig, RawServer};

/// Digest of each section that all nodes should share, by its name.
pub type SectionDigests = BTreeMap<&'static str, [u8; 32]>;

/// Computes the digests of the file and of the variables that override it. Addresses and certificates of
/// a node are its own, and values of secrets are not part of it: only their places are.
pub(super) fn digests(raw: &RawConfig) -> SectionDigests {
    let RawServer { demo, durability, trusted_proxies, websockets, websocket_time, acme, .. } =
        &raw.server;
    // Nodes that order no certificate have the digest that they had before there were orders.
    let acme = acme.as_ref().map(|acme| format!("{acme:?}")).unwrap_or_default();
    let server = (demo, durability, trusted_proxies, websockets, websocket_time);
    let texts = [
        ("server", format!("{server:?}{acme}")),
        ("store", format!("{:?}", raw.store.away)),
        ("shared", format!("{:?}", raw.shared)),
        ("files", format!("{:?}", raw.files)),
        ("tasks", format!("{:?}", raw.tasks)),
        ("mail", format!("{:?}", raw.mail)),
        ("identity", format!("{:?}", raw.identity)),
        ("timeouts", format!("{:?}", raw.timeouts)),
        ("limits", format!("{:?}", raw.limits)),
        ("telemetry", format!("{:?}", raw.telemetry)),
        ("outbound", format!("{:?}", raw.outbound)),
        ("media", format!("{:?}", raw.media)),
        ("mcp", format!("{:?}", raw.mcp)),
        ("directory", format!("{:?}", raw.directory)),
        ("providers", format!("{:?}", raw.providers)),
        ("models", format!("{:?}", raw.models)),
    ];
    let digests = texts.into_iter().map(|(name, text)| {
        let mut bytes = [0; 32];
        let sum = digest(&SHA256, text.as_bytes());
        for (byte, own) in bytes.iter_mut().zip(sum.as_ref()) {
            *byte = *own;
        }
        (name, bytes)
    });
    digests.collect()
}

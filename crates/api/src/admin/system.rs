//! Whether the parts of the whole are well, and what they are.

use axum::response::Response;
use canon::ApiError;
use serde_json::{Value, json};
use std::path::Path;

use super::require_admin;
use crate::request::ApiRequest;
use crate::state::ApiState;

/// How long a node is silent before it counts as gone, in microseconds.
const DEAD_NODE_US: i64 = ledger::LEASE_DURATION.get();

pub(crate) async fn health(asked: ApiRequest) -> Result<Response, ApiError> {
    require_admin(&asked.state, &asked.key).await?;
    let state = &asked.state;
    let config = state.config();
    let lanes = config.lane_health(state.engine.monotonic_micros());
    let good = lanes.iter().filter(|lane| lane.health.state.as_str() == "good").count();
    let valkey =
        state.limiter.shared().map(|shared| json!({ "reachable": !shared.is_unreachable() }));
    let value = json!({
        "success": true,
        "version": env!("CARGO_PKG_VERSION"),
        "ready": state.is_ready(),
        "uptime_s": state.engine.monotonic_micros() / 1_000_000,
        // Told twice: whether it answers is what programs look for first.
        "store": state.store.ping().await.is_ok(),
        "database": { "kind": state.store.kind(), "silent_ms": state.engine.funds.lease_client.time_since_contact() / 1_000 },
        "node": state.engine.funds.lease_client.node_name(),
        "nodes": nodes_json(state).await,
        "valkey": valkey,
        "journal": {
            "bytes": folder_bytes(&config.data_folder.join("journal")),
            "unposted": state.engine.funds.open_calls.unposted_count(),
        },
        "memory_bytes": resident_bytes(),
        "connections": state.engine.connections.count(),
        "running": state.engine.funds.open_calls.running_count(),
        "mail": config.mailer.is_some(),
        "files": config.files.url.split(':').next().unwrap_or_default(),
        "lanes": { "all": lanes.len(), "good": good },
        "troubles": state.admin.issues(),
    });
    Ok(relay::json_response(value.to_string()))
}

/// Every node the store remembers; none when it does not answer.
async fn nodes_json(state: &ApiState) -> Vec<Value> {
    let seen = state.store.nodes().await.unwrap_or_default();
    let told = |(id, silence): (String, i64)| {
        json!({
            "this": id == state.engine.funds.lease_client.node_name(), "id": id,
            "silent_ms": silence.max(0) / 1_000, "alive": silence < DEAD_NODE_US,
        })
    };
    seen.into_iter().map(told).collect()
}

/// What lies in a folder, in bytes; `None` where it cannot be read.
fn folder_bytes(folder: &Path) -> Option<u64> {
    let files = std::fs::read_dir(folder).ok()?;
    let sizes = files.flatten().filter_map(|file| file.metadata().ok()).map(|meta| meta.len());
    Some(sizes.sum())
}

/// The memory this process holds, where the system tells it.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1_024)
}

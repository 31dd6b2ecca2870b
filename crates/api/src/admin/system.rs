//! `GET /api/admin/health`: state of this node and of the parts it depends on.

use axum::response::Response;
use canon::ApiError;
use serde_json::{Value, json};
use std::path::Path;

use super::require_admin;
use crate::request::ApiRequest;
use crate::state::ApiState;

/// Time without a heartbeat after which a node counts as dead.
const DEAD_NODE_US: i64 = ledger::LEASE_DURATION.get();

pub(crate) async fn health(incoming: ApiRequest) -> Result<Response, ApiError> {
    require_admin(&incoming.state, &incoming.key).await?;
    let state = &incoming.state;
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
        // A plain boolean that monitoring can check first. `database` has the details.
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

/// Lists every node the store remembers; empty if the store does not answer.
async fn nodes_json(state: &ApiState) -> Vec<Value> {
    let nodes = state.store.nodes().await.unwrap_or_default();
    let to_json = |(id, silence): (String, i64)| {
        json!({
            "this": id == state.engine.funds.lease_client.node_name(), "id": id,
            "silent_ms": silence.max(0) / 1_000, "alive": silence < DEAD_NODE_US,
        })
    };
    nodes.into_iter().map(to_json).collect()
}

/// Returns the size of the files in a folder; `None` if it cannot be read.
fn folder_bytes(folder: &Path) -> Option<u64> {
    let files = std::fs::read_dir(folder).ok()?;
    let sizes = files.flatten().filter_map(|file| file.metadata().ok()).map(|meta| meta.len());
    Some(sizes.sum())
}

/// Returns the resident memory of this process, from `VmRSS`
/// (<https://man7.org/linux/man-pages/man5/proc_pid_status.5.html>).
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1_024)
}

//! `PORTUNUS_…` variables laid over the file: `PORTUNUS_SERVER_LISTEN` is `listen` of `[server]`.

use super::raw::{RawConfig, RawFiles, RawShared};

/// Lays the variables over the file.
pub(super) fn apply(
    raw: &mut RawConfig,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<(), String> {
    let text = |name: &str, field: &mut Option<String>| {
        if let Some(value) = env(name) {
            *field = Some(value);
        }
    };
    text("PORTUNUS_SERVER_LISTEN", &mut raw.server.listen);
    text("PORTUNUS_SERVER_PUBLIC_URL", &mut raw.server.public_url);
    text("PORTUNUS_SERVER_METRICS", &mut raw.server.metrics);
    text("PORTUNUS_SERVER_DURABILITY", &mut raw.server.durability);
    text("PORTUNUS_STORE_URL", &mut raw.store.url);
    text("PORTUNUS_STORE_AWAY", &mut raw.store.away);
    text("PORTUNUS_LIMITS_BODY", &mut raw.limits.body);
    text("PORTUNUS_TIMEOUTS_CONNECT", &mut raw.timeouts.connect);
    text("PORTUNUS_TIMEOUTS_FIRST_BYTE", &mut raw.timeouts.first_byte);
    text("PORTUNUS_TIMEOUTS_GAP", &mut raw.timeouts.gap);
    text("PORTUNUS_TIMEOUTS_TOTAL", &mut raw.timeouts.total);
    text("PORTUNUS_TIMEOUTS_DRAIN", &mut raw.timeouts.drain);
    if let Some(secret) = env("PORTUNUS_SERVER_SECRET") {
        raw.server.secret = Some(super::raw::Secret::Text { text: secret });
    }
    if let Some(demo) = env("PORTUNUS_SERVER_DEMO") {
        raw.server.demo = Some(demo.parse().map_err(|_| {
            format!("PORTUNUS_SERVER_DEMO: `{demo}` is not known; write true or false")
        })?);
    }
    if let Some(valkey) = env("PORTUNUS_SHARED_VALKEY") {
        raw.shared = Some(RawShared { valkey });
    }
    if let Some(url) = env("PORTUNUS_FILES_URL") {
        raw.files = Some(RawFiles { url });
    }
    Ok(())
}

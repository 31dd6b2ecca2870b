//! Short-lived storage of the demo models: images behind URLs, and tasks.

use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Lifetime of a URL.
const URL_LIFETIME: Duration = Duration::from_secs(120);
/// Duration of a task.
const TASK_DURATION: Duration = Duration::from_millis(700);
/// Maximum number of stored bytes; the oldest entries are dropped first.
const MAX_BYTES: usize = 128 << 20;

/// One store per process: the upstream inside the gateway is created for every request.
static TEMP_STORE: LazyLock<Mutex<TempStore>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct TempStore {
    entries: VecDeque<StoredEntry>,
    bytes: usize,
}

struct StoredEntry {
    name: String,
    kind: &'static str,
    body: Bytes,
    from: Instant,
    until: Instant,
}

/// Result of a lookup.
pub(super) enum StoreLookup {
    /// The entry is available.
    Ready(Bytes, &'static str),
    /// The entry is not available yet.
    Pending,
    /// The entry has expired or never existed.
    Gone,
}

fn store() -> MutexGuard<'static, TempStore> {
    TEMP_STORE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Stores a file that is available at once.
pub(super) fn keep(name: String, kind: &'static str, body: Bytes) {
    put(name, kind, body, Duration::ZERO);
}

/// Stores an answer that becomes available after the task duration.
pub(super) fn keep_for_later(name: String, body: Bytes) {
    put(name, "application/json", body, TASK_DURATION);
}

fn put(name: String, kind: &'static str, body: Bytes, wait: Duration) {
    let mut store = store();
    store.bytes += body.len();
    let from = Instant::now() + wait;
    store.entries.push_back(StoredEntry { name, kind, body, from, until: from + URL_LIFETIME });
    while store.bytes > MAX_BYTES
        && let Some(oldest) = store.entries.pop_front()
    {
        store.bytes -= oldest.body.len();
    }
}

/// Looks up an entry.
pub(super) fn find(name: &str) -> StoreLookup {
    let now = Instant::now();
    match store().entries.iter().find(|entry| entry.name == name) {
        Some(entry) if entry.from > now => StoreLookup::Pending,
        Some(entries) if entries.until > now => {
            StoreLookup::Ready(entries.body.clone(), entries.kind)
        }
        Some(_) | None => StoreLookup::Gone,
    }
}

//! What the demo models keep for a little while: pictures behind links, and orders that take their
//! time.

use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a link lives.
const LIFE: Duration = Duration::from_secs(120);
/// How long an order that takes its time takes.
const TIME: Duration = Duration::from_millis(700);
/// How much is kept at once; the oldest goes first.
const MOST: usize = 128 << 20;

/// In the process and not in one upstream: the upstream inside the gateway is made anew for every
/// request.
static SHELF: LazyLock<Mutex<Shelf>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Shelf {
    kept: VecDeque<Kept>,
    bytes: usize,
}

struct Kept {
    name: String,
    kind: &'static str,
    body: Bytes,
    from: Instant,
    until: Instant,
}

/// What is found under a name.
pub(super) enum Found {
    /// It is there.
    There(Bytes, &'static str),
    /// It is not there yet.
    NotYet,
    /// It was there, or never.
    Gone,
}

fn shelf() -> MutexGuard<'static, Shelf> {
    SHELF.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps a file, there at once.
pub(super) fn keep(name: String, kind: &'static str, body: Bytes) {
    put(name, kind, body, Duration::ZERO);
}

/// Keeps an answer that is there a moment later.
pub(super) fn keep_for_later(name: String, body: Bytes) {
    put(name, "application/json", body, TIME);
}

fn put(name: String, kind: &'static str, body: Bytes, wait: Duration) {
    let mut shelf = shelf();
    shelf.bytes += body.len();
    let from = Instant::now() + wait;
    shelf.kept.push_back(Kept { name, kind, body, from, until: from + LIFE });
    while shelf.bytes > MOST
        && let Some(oldest) = shelf.kept.pop_front()
    {
        shelf.bytes -= oldest.body.len();
    }
}

/// Looks something up.
pub(super) fn find(name: &str) -> Found {
    let now = Instant::now();
    match shelf().kept.iter().find(|kept| kept.name == name) {
        Some(kept) if kept.from > now => Found::NotYet,
        Some(kept) if kept.until > now => Found::There(kept.body.clone(), kept.kind),
        Some(_) | None => Found::Gone,
    }
}

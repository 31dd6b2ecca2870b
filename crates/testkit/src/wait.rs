//! Waiting for a condition instead of for a time.

use std::time::{Duration, Instant};

/// Generous, because it only decides how long a broken test takes to fail.
const DEADLINE: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Waits until the condition holds.
///
/// # Panics
/// Panics with the description when the condition does not hold within a minute.
#[expect(clippy::panic, reason = "a test fails by panicking")]
pub async fn until(description: &str, mut condition: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !condition().await {
        if begun.elapsed() > DEADLINE {
            panic!("not within {} s: {description}", DEADLINE.as_secs());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

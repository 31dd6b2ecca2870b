//! Request ids: unique for ever, rising with time, made without asking the system for randomness.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The id of one request, made when it arrives.
#[derive(Clone, Debug)]
pub struct RequestId(pub Arc<str>);

/// Makes ids of the time, a random word of this process and a counter.
pub struct RequestIds {
    process: u64,
    count: AtomicU64,
}

impl RequestIds {
    /// Ids of this process. `Err` only when the machine has no randomness.
    pub fn new() -> Result<Self, aws_lc_rs::error::Unspecified> {
        let mut bytes = [0; 8];
        aws_lc_rs::rand::fill(&mut bytes)?;
        Ok(Self { process: u64::from_le_bytes(bytes), count: AtomicU64::new(0) })
    }

    /// The next id, at that time in microseconds.
    pub fn next_id(&self, now: i64) -> Arc<str> {
        Arc::from(format!("req_{:013x}{:016x}", now.max(0), self.next_word()))
    }

    /// A word no other call of this process has.
    pub fn next_word(&self) -> u64 {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        // The counter hides in the random word, so that ids do not tell how busy the gateway is.
        self.process.wrapping_add(count.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }
}

/// A number that differs from id to id and follows no order, for choices by lot.
pub fn random_from_id(id: &str) -> u64 {
    let word = id.len().checked_sub(16).and_then(|at| id.get(at..));
    word.and_then(|word| u64::from_str_radix(word, 16).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_differ_and_rise_with_time() {
        let ids = RequestIds::new().unwrap();
        let mut seen: Vec<_> = (0..10_000).map(|n| ids.next_id(n)).collect();
        assert!(seen.is_sorted());
        seen.dedup();
        assert_eq!(seen.len(), 10_000);
        assert_ne!(ids.next_id(5), ids.next_id(5));
        let mut luck: Vec<_> = seen.iter().map(|id| random_from_id(id)).collect();
        luck.sort_unstable();
        luck.dedup();
        assert_eq!(luck.len(), 10_000);
    }
}

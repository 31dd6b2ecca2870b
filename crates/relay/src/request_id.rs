//! Request ids: unique, increasing with time, and generated without a system call for randomness.

use canon::Micros;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const HEX_DIGITS: &[u8; 16] = b"0123456789abcdef";
const PREFIX_BYTES: usize = "req_".len();
/// Digits of the time, which last for 140 years.
const TIME_DIGITS: usize = 13;

/// Id of one request, generated on arrival.
#[derive(Clone, Debug)]
pub struct RequestId(pub Arc<str>);

/// Generates ids from the time, a random word of this process and a counter.
pub struct RequestIds {
    process: u64,
    count: AtomicU64,
}

impl RequestIds {
    /// Creates the generator. Fails only if the system has no randomness.
    pub fn new() -> Result<Self, aws_lc_rs::error::Unspecified> {
        let mut bytes = [0; 8];
        aws_lc_rs::rand::fill(&mut bytes)?;
        Ok(Self { process: u64::from_le_bytes(bytes), count: AtomicU64::new(0) })
    }

    /// Returns the next id at this time.
    pub fn next_id(&self, now: Micros) -> Arc<str> {
        // Without the machinery of `format!`, because every request has an id.
        let mut id = *b"req_00000000000000000000000000000";
        let (front, word) = id.split_at_mut(PREFIX_BYTES + TIME_DIGITS);
        write_hex(now.max(Micros::ZERO).get().unsigned_abs(), front);
        write_hex(self.next_word(), word);
        Arc::from(std::str::from_utf8(&id).unwrap_or_default())
    }

    /// Returns a word that is unique in this process.
    pub fn next_word(&self) -> u64 {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        // The counter is mixed into the random word, so that ids do not reveal the load of the
        // gateway. The factor is that of Fibonacci hashing.
        self.process.wrapping_add(count.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }
}

/// Writes the last 13 or 16 digits of a number over the zeros at the end of a text.
fn write_hex(number: u64, text: &mut [u8]) {
    let mut left = number;
    for slot in text.iter_mut().rev().take_while(|slot| **slot == b'0') {
        *slot = HEX_DIGITS.get((left & 15) as usize).copied().unwrap_or(b'0');
        left >>= 4;
    }
}

/// Returns a pseudo-random number that is fixed for an id.
pub(crate) fn random_from_id(id: &str) -> u64 {
    let word = id.len().checked_sub(16).and_then(|at| id.get(at..));
    word.and_then(|word| u64::from_str_radix(word, 16).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_and_increase_with_time() {
        let ids = RequestIds::new().unwrap();
        let mut seen: Vec<_> = (0..10_000).map(|n| ids.next_id(Micros::new(n))).collect();
        assert!(seen.is_sorted());
        assert!(seen.iter().all(|id| id.len() == 33 && id.starts_with("req_")));
        let ids_at = ids.next_id(Micros::new(0x1_2345_6789_abcd));
        assert!(ids_at.starts_with("req_123456789abcd"), "{ids_at}");
        seen.dedup();
        assert_eq!(seen.len(), 10_000);
        assert_ne!(ids.next_id(Micros::new(5)), ids.next_id(Micros::new(5)));
        let mut numbers: Vec<_> = seen.iter().map(|id| random_from_id(id)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 10_000);
    }
}

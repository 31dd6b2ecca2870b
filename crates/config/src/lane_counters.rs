//! Counts of ended calls, kept where a call already has its lane: recording one looks nothing up.
//!
//! A lane has counters for each model that it serves. They live as long as the process: a reload
//! carries them over, see [`crate::Config::inherit_health`].

use canon::{TimeHistogram, Usage, WireFormat};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Status of an answered call.
const ANSWERED: u16 = 200;
/// Place of counters that have counted nothing.
const UNPLACED: u32 = 0;

/// End of a call that was not answered with 200.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallEnd {
    /// Format of the caller.
    pub format: WireFormat,
    /// HTTP status, 499 if the caller left before the reply.
    pub status: u16,
    /// Word of the error, empty without one.
    pub error: &'static str,
}

/// Facts of an ended call.
#[derive(Clone, Copy, Debug)]
pub struct CountedCall<'u> {
    /// Its end.
    pub end: CallEnd,
    /// Time from the arrival of the request to the end of the reply.
    pub duration: Duration,
    /// Time to the first byte of the reply.
    pub first_byte: Option<Duration>,
    /// Usage that is billed.
    pub usage: &'u Usage,
    /// Nanodollars charged.
    pub cost: u64,
    /// Nanodollars that the operator pays.
    pub absorbed: u64,
    /// Attempts after the first one.
    pub retries: u32,
}

/// Counts of the calls of one model on one lane.
#[derive(Debug)]
pub struct LaneCounters {
    /// Position among all counters in use, from 1.
    place: AtomicU32,
    /// Calls answered with 200 and without an error, by format.
    answered: [AtomicU64; WireFormat::ALL.len()],
    /// All others. They are rare, so that a lock does no harm.
    others: Mutex<BTreeMap<CallEnd, u64>>,
    /// Time to the end of the reply.
    pub duration: TimeHistogram,
    /// Time to the first byte.
    pub first_byte: TimeHistogram,
    /// Tokens of prompts and of outputs.
    pub input_tokens: AtomicU64,
    /// Tokens that models made.
    pub output_tokens: AtomicU64,
    /// Part of the prompts that was read from a cache of the provider.
    pub cache_read_tokens: AtomicU64,
    /// Part of the prompts that was written to such a cache.
    pub cache_write_tokens: AtomicU64,
    /// Part of the outputs that was thinking.
    pub thinking_tokens: AtomicU64,
    /// Nanodollars charged.
    pub cost: AtomicU64,
    /// Nanodollars that the operator pays.
    pub absorbed: AtomicU64,
    /// Attempts after the first one of a call.
    pub retries: AtomicU64,
}

impl Default for LaneCounters {
    fn default() -> Self {
        Self {
            place: AtomicU32::new(UNPLACED),
            answered: Default::default(),
            others: Mutex::default(),
            duration: TimeHistogram::for_calls(),
            first_byte: TimeHistogram::for_calls(),
            input_tokens: AtomicU64::new(0),
            output_tokens: AtomicU64::new(0),
            cache_read_tokens: AtomicU64::new(0),
            cache_write_tokens: AtomicU64::new(0),
            thinking_tokens: AtomicU64::new(0),
            cost: AtomicU64::new(0),
            absorbed: AtomicU64::new(0),
            retries: AtomicU64::new(0),
        }
    }
}

impl LaneCounters {
    /// Returns the place of these counters among those in use. The first call takes the next one of
    /// `places`.
    pub fn place(&self, places: &AtomicU32) -> u32 {
        let known = self.place.load(Ordering::Relaxed);
        if known != UNPLACED {
            return known;
        }
        let next = places.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        match self.place.compare_exchange(UNPLACED, next, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => next,
            // Two first calls at once: one of the two places stays empty.
            Err(other) => other,
        }
    }

    /// Returns the place, if anything was counted.
    pub fn used_place(&self) -> Option<u32> {
        Some(self.place.load(Ordering::Relaxed)).filter(|place| *place != UNPLACED)
    }

    /// Counts an ended call.
    pub fn record(&self, call: &CountedCall<'_>) {
        let CountedCall { end, duration, first_byte, usage, cost, absorbed, retries } = *call;
        let place = WireFormat::ALL.iter().position(|format| *format == end.format);
        match place.and_then(|place| self.answered.get(place)) {
            Some(counter) if end.status == ANSWERED && end.error.is_empty() => {
                counter.fetch_add(1, Ordering::Relaxed);
            }
            Some(_) | None => *self.others.lock().entry(end).or_default() += 1,
        }
        self.duration.record(duration);
        if let Some(first_byte) = first_byte {
            self.first_byte.record(first_byte);
        }
        let cache_writes = usage.cache_write.saturating_add(usage.cache_write_long);
        for (counter, amount) in [
            (&self.input_tokens, usage.input),
            (&self.output_tokens, usage.output),
            (&self.cache_read_tokens, usage.cache_read),
            (&self.cache_write_tokens, cache_writes),
            (&self.thinking_tokens, usage.thinking),
            (&self.cost, cost),
            (&self.absorbed, absorbed),
            (&self.retries, u64::from(retries)),
        ] {
            if amount > 0 {
                counter.fetch_add(amount, Ordering::Relaxed);
            }
        }
    }

    /// Returns the number of calls by their end.
    pub fn calls(&self) -> Vec<(CallEnd, u64)> {
        let answered = WireFormat::ALL.into_iter().zip(&self.answered);
        let answered = answered.map(|(format, count)| {
            let end = CallEnd { format, status: ANSWERED, error: "" };
            (end, count.load(Ordering::Relaxed))
        });
        let mut calls: Vec<(CallEnd, u64)> = answered.filter(|(_, count)| *count > 0).collect();
        calls.extend(self.others.lock().iter().map(|(end, count)| (*end, *count)));
        calls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_by_their_end_and_take_one_place() {
        let (counters, places) = (LaneCounters::default(), AtomicU32::new(7));
        assert_eq!(counters.used_place(), None);
        assert_eq!((counters.place(&places), counters.place(&places)), (8, 8));
        let usage = Usage { input: 9, output: 3, cache_read: 4, ..Usage::default() };
        for (status, error) in [(200, ""), (200, ""), (503, "unavailable"), (200, "interrupted")] {
            counters.record(&CountedCall {
                end: CallEnd { format: WireFormat::Messages, status, error },
                duration: Duration::from_secs(2),
                first_byte: None,
                usage: &usage,
                cost: 5,
                absorbed: 0,
                retries: 1,
            });
        }
        let ends: Vec<(u16, &str, u64)> =
            counters.calls().into_iter().map(|(end, n)| (end.status, end.error, n)).collect();
        assert_eq!(ends, [(200, "", 2), (200, "interrupted", 1), (503, "unavailable", 1)]);
        assert_eq!(counters.input_tokens.load(Ordering::Relaxed), 36);
        assert_eq!(counters.cost.load(Ordering::Relaxed), 20);
        assert_eq!(counters.retries.load(Ordering::Relaxed), 4);
        assert_eq!(counters.first_byte.snapshot().count, 0);
        assert_eq!(counters.duration.snapshot().count, 4);
    }
}

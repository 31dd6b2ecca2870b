//! Parameters of a test: small by default, larger when `cargo xtask soak` runs it.

use std::str::FromStr;

/// The figure of that name, or the usual one.
pub(crate) fn figure<T: FromStr<Err: std::fmt::Debug>>(name: &str, usual: T) -> T {
    let name = format!("PORTUNUS_SOAK_{name}");
    std::env::var(name).map_or(usual, |text| text.parse().unwrap())
}

/// Prints a count for `cargo xtask soak`.
#[allow(clippy::print_stdout, reason = "shown only where it is asked for")]
pub(crate) fn tell(counts: &[(&str, usize)]) {
    for (name, count) in counts {
        println!("soak {name} {count}");
    }
}

/// A pseudo-random sequence that is the same for the same seed.
pub(crate) struct SeededRandom(u64);

impl SeededRandom {
    /// Of this run's seed.
    pub(crate) fn new() -> Self {
        Self(figure("SEED", 1_u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below that one.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % end.max(1)
    }
}

//! Random numbers that are the same for the same seed.

#[derive(Clone, Debug)]
pub(crate) struct SeededRandom(u64);

impl SeededRandom {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x2545_f491_4f6c_dd1d);
        random.next();
        random.next();
        random
    }

    fn next(&mut self) -> u64 {
        self.0 |= u64::from(self.0 == 0);
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Returns a number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() >> 33) as usize % end.max(1)
    }

    pub(crate) fn between(&mut self, from: i64, to: i64) -> i64 {
        from + self.below((to - from) as usize + 1) as i64
    }

    /// Returns true with that probability in percent.
    pub(crate) fn percent(&mut self, chance: usize) -> bool {
        self.below(100) < chance
    }
}

//! Deterministic pseudo-random numbers: the same request always gets the same answer.

/// Hashes bytes to a number that is the same on every machine and in every release.
///
/// FNV-1a, finished with the mixer of SplitMix64.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    let folded = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    mix(folded)
}

/// Combines two numbers; the order matters.
pub(crate) fn join(one: u64, two: u64) -> u64 {
    mix(one.rotate_left(17) ^ mix(two))
}

const fn mix(seed: u64) -> u64 {
    let seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let seed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let seed = (seed ^ (seed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    seed ^ (seed >> 31)
}

/// A sequence of numbers from one seed (SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct SeededRandom(u64);

impl SeededRandom {
    /// Starts the sequence of this seed.
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Picks one of the choices; an empty list gives an empty string.
    pub(crate) fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        nth(choices, self.next_number())
    }
}

/// Returns the choice a number selects; an empty list gives an empty string.
pub(crate) fn nth<'a>(choices: &[&'a str], number: u64) -> &'a str {
    let count = choices.len().max(1) as u64;
    choices.get(usize::try_from(number % count).unwrap_or(0)).copied().unwrap_or_default()
}

/// Derives a word of letters and digits from a seed.
pub(crate) fn word(seed: u64, length: usize) -> String {
    const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    let mut random = SeededRandom::new(seed);
    (0..length)
        .map(|_| {
            let at = usize::try_from(random.next_number() % LETTERS.len() as u64).unwrap_or(0);
            LETTERS.get(at).copied().map_or('x', char::from)
        })
        .collect()
}

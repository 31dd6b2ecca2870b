//! A hash that is quicker for short texts than the one of the standard library.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map for the texts of one batch. A batch has few of them, so chosen ones cannot slow it down by much.
pub(crate) type TextMap<K, V> = HashMap<K, V, BuildHasherDefault<TextHasher>>;

/// The hash of a text or of several numbers and texts.
#[derive(Default)]
pub(crate) struct TextHasher(u64);

impl TextHasher {
    fn add(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl Hasher for TextHasher {
    fn write(&mut self, mut bytes: &[u8]) {
        while let Some((word, rest)) = bytes.split_first_chunk() {
            self.add(u64::from_le_bytes(*word));
            bytes = rest;
        }
        let rest = bytes.iter().fold(bytes.len() as u64, |word, byte| word << 8 | u64::from(*byte));
        self.add(rest);
    }

    fn write_u8(&mut self, byte: u8) {
        self.add(u64::from(byte));
    }

    fn write_u16(&mut self, number: u16) {
        self.add(u64::from(number));
    }

    fn write_i64(&mut self, number: i64) {
        self.add(number.cast_unsigned());
    }

    fn finish(&self) -> u64 {
        // The table uses the lowest and the highest bits.
        self.0.rotate_left(26)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_texts_have_different_hashes() {
        let hash = |text: &str| {
            let mut hasher = TextHasher::default();
            std::hash::Hash::hash(text, &mut hasher);
            hasher.finish()
        };
        let texts =
            (0..2_000).flat_map(|n| [format!("model-{n}"), format!("{n}"), format!("{n:036}")]);
        let hashes: Vec<u64> = texts.map(|text| hash(&text)).collect();
        // Neither the bits that choose a place nor those that tell entries of one place apart repeat much.
        let count = |bits: fn(u64) -> u64| {
            hashes.iter().map(|hash| bits(*hash)).collect::<std::collections::BTreeSet<u64>>().len()
        };
        assert_eq!(count(|hash| hash), hashes.len());
        assert!(count(|hash| hash & 0xffff) > 5_000, "{}", count(|hash| hash & 0xffff));
        assert_eq!(count(|hash| hash >> 57), 128);
    }
}

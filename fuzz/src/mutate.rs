//! Mutations of inputs, the same for the same seed.

/// Tokens that parsers treat specially.
const TOKENS: &[&[u8]] = &[
    b"\r\n",
    b"\n\n",
    b"\r\n\r\n",
    b"\0",
    b"data: ",
    b"event: ",
    b":",
    b"--b",
    b"--b--",
    b"content-length: ",
    b"transfer-encoding: chunked",
    b"0\r\n\r\n",
    b"ffffffffffffffff",
    b"-1",
    b"1e400",
    b"99999999999999999999",
    b"null",
    b"true",
    b"{}",
    b"[]",
    b"[[]]",
    b"\"\"",
    b"\\ud800",
    b"\\u0000",
    b"\xff\xff\xff\xff",
    b"\xef\xbb\xbf",
    b"[DONE]",
    b"{\"type\":\"text\"}",
    b",",
];

/// Longer inputs cost time and find nothing that short ones do not.
const MAX_INPUT_BYTES: usize = 16 << 10;

/// Makes inputs from seeds.
#[derive(Debug)]
pub struct Mutator(u64);

impl Mutator {
    /// Starts the sequence of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// SplitMix64.
    fn next_number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next_number() % limit.max(1) as u64).unwrap_or(0)
    }

    /// Picks one of the inputs and changes it in one to eight places.
    pub fn mutate(&mut self, corpus: &[Vec<u8>]) -> Vec<u8> {
        let mut input = corpus.get(self.below(corpus.len())).cloned().unwrap_or_default();
        for _ in 0..=self.below(8) {
            self.change(&mut input, corpus);
        }
        input.truncate(MAX_INPUT_BYTES);
        input
    }

    fn change(&mut self, input: &mut Vec<u8>, corpus: &[Vec<u8>]) {
        let at = self.below(input.len() + 1);
        let end = (at + self.below(16)).min(input.len());
        match self.below(7) {
            0 => {
                let bit = 1 << self.below(8);
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= bit;
                }
            }
            1 => {
                let byte = self.next_number().to_le_bytes()[0];
                input.insert(at, byte);
            }
            2 => {
                input.drain(at..end);
            }
            3 => {
                let copy = input.get(at..end).unwrap_or_default().to_vec();
                input.splice(at..at, copy);
            }
            4 => {
                let token = TOKENS.get(self.below(TOKENS.len())).copied().unwrap_or_default();
                input.splice(at..end, token.iter().copied());
            }
            5 => input.truncate(at),
            _ => {
                let other = corpus.get(self.below(corpus.len())).map_or(&[][..], Vec::as_slice);
                let from = self.below(other.len() + 1);
                let to = (from + self.below(64)).min(other.len());
                input.splice(at..end, other.get(from..to).unwrap_or_default().iter().copied());
            }
        }
    }
}

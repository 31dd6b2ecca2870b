//! Random words and digests of them.

use aws_lc_rs::{digest, rand};

/// A random word of 256 bits in hexadecimal digits.
pub fn random_token() -> Result<String, aws_lc_rs::error::Unspecified> {
    let mut bytes = [0_u8; 32];
    rand::fill(&mut bytes)?;
    Ok(hex(&bytes))
}

/// What the store keeps instead of a word. The word is random, so that a plain digest will do.
pub fn digest(word: &str) -> Vec<u8> {
    digest::digest(&digest::SHA256, word.as_bytes()).as_ref().to_vec()
}

/// Whether two texts are the same, in a time that does not tell how far they are.
pub fn constant_time_eq(a: &str, b: &str) -> bool {
    // Digests first: they are of one length, so that the texts' lengths do not show either.
    aws_lc_rs::constant_time::verify_slices_are_equal(&digest(a), &digest(b)).is_ok()
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

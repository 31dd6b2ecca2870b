//! Random tokens and their digests.

use aws_lc_rs::{digest, rand};

/// Returns a random token of 256 bits in hexadecimal digits.
pub fn random_token() -> Result<String, aws_lc_rs::error::Unspecified> {
    let mut bytes = [0_u8; 32];
    rand::fill(&mut bytes)?;
    Ok(hex(&bytes))
}

/// Returns the digest the store keeps instead of a token. A token has full entropy, so a plain
/// SHA-256 is enough.
pub fn digest(token: &str) -> Vec<u8> {
    digest::digest(&digest::SHA256, token.as_bytes()).as_ref().to_vec()
}

/// Compares two texts in constant time.
pub fn constant_time_eq(a: &str, b: &str) -> bool {
    // The digests have equal length, so the time does not reveal the lengths of the texts either.
    aws_lc_rs::constant_time::verify_slices_are_equal(&digest(a), &digest(b)).is_ok()
}

/// Returns bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

//! Time-based one-time passwords (TOTP, RFC 6238) and recovery codes.

use aws_lc_rs::{hmac, rand};
use canon::Micros;

use crate::page_error::PageError;
use admin::random;

const STEP_SECONDS: i64 = 30;
/// Accepted clock difference in steps.
const MAX_DRIFT_STEPS: i64 = 1;
const BASE32_ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
pub(crate) const RECOVERY_CODE_COUNT: usize = 10;

/// Creates a secret in base32.
pub(crate) fn new_secret() -> Result<String, PageError> {
    let mut bytes = [0_u8; 20];
    rand::fill(&mut bytes).map_err(|_| PageError::Internal)?;
    Ok(base32(&bytes))
}

/// URI for authenticator apps, shown as a QR code:
/// <https://github.com/google/google-authenticator/wiki/Key-Uri-Format>.
pub(crate) fn otpauth_uri(username: &str, issuer: &str, secret: &str) -> String {
    let (name, issuer) = (crate::urls::escape_value(username), crate::urls::escape_value(issuer));
    format!("otpauth://totp/{issuer}:{name}?secret={secret}&issuer={issuer}")
}

/// Returns the time step of a currently valid code.
pub(crate) fn step_of(secret: &[u8], code: &str, now: Micros) -> Option<i64> {
    let digits: String = code.chars().filter(|c| !c.is_whitespace()).collect();
    let current = now.as_secs().div_euclid(STEP_SECONDS);
    let fits = |step: &i64| random::constant_time_eq(&code_at(secret, *step), &digits);
    let steps = (current - MAX_DRIFT_STEPS)..=(current + MAX_DRIFT_STEPS);
    steps.rev().find(fits)
}

fn code_at(secret: &[u8], step: i64) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret);
    let tag = hmac::sign(&key, &step.to_be_bytes());
    let bytes = tag.as_ref();
    let offset = bytes.last().map_or(0, |last| usize::from(last & 0x0f));
    let four = bytes.iter().skip(offset).take(4);
    let number = four.fold(0_u32, |sum, byte| (sum << 8) | u32::from(*byte)) & 0x7fff_ffff;
    format!("{:06}", number % 1_000_000)
}

/// Creates the recovery codes of an account.
pub(crate) fn recovery_codes() -> Result<Vec<String>, PageError> {
    let mut codes = Vec::with_capacity(RECOVERY_CODE_COUNT);
    for _ in 0..RECOVERY_CODE_COUNT {
        let mut bytes = [0_u8; 10];
        rand::fill(&mut bytes).map_err(|_| PageError::Internal)?;
        let text = base32(&bytes).to_lowercase();
        let pieces: Vec<String> =
            text.as_bytes().chunks(4).map(|four| String::from_utf8_lossy(four).into()).collect();
        codes.push(pieces.join("-"));
    }
    Ok(codes)
}

/// Digest of a recovery code, for the store.
pub(crate) fn recovery_digest(code: &str) -> Vec<u8> {
    let plain: String = code.chars().filter(|c| c.is_ascii_alphanumeric()).collect();
    random::digest(&plain.to_lowercase())
}

/// Returns true if the recovery code has this digest.
pub(crate) fn matches_recovery(digest: &[u8], code: &str) -> bool {
    aws_lc_rs::constant_time::verify_slices_are_equal(digest, &recovery_digest(code)).is_ok()
}

/// Encodes bytes as base32 without padding (RFC 4648, section 6).
pub(crate) fn base32(bytes: &[u8]) -> String {
    let mut out = String::new();
    let (mut held, mut bits) = (0_u32, 0);
    for byte in bytes {
        held = (held << 8) | u32::from(*byte);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            let letter = BASE32_ALPHABET.get((held >> bits) as usize & 31);
            out.extend(letter.map(|letter| char::from(*letter)));
        }
        held &= (1 << bits) - 1;
    }
    if bits > 0 {
        let letter = BASE32_ALPHABET.get((held << (5 - bits)) as usize & 31);
        out.extend(letter.map(|letter| char::from(*letter)));
    }
    out
}

/// Decodes base32; `None` for other characters.
pub(crate) fn from_base32(text: &str) -> Option<Vec<u8>> {
    let (mut out, mut held, mut bits) = (Vec::new(), 0_u32, 0);
    for letter in text.bytes() {
        let value = BASE32_ALPHABET.iter().position(|known| *known == letter)?;
        held = (held << 5) | u32::try_from(value).ok()?;
        bits += 5;
        if bits >= 8 {
            bits -= 8;
            out.push(u8::try_from((held >> bits) & 0xff).ok()?);
            held &= (1 << bits) - 1;
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &[u8] = b"12345678901234567890";

    #[test]
    fn codes_match_rfc_6238() {
        // RFC 6238, appendix B; the last six of its eight digits.
        for (seconds, code) in [
            (59_i64, "287082"),
            (1_111_111_109, "081804"),
            (1_111_111_111, "050471"),
            (1_234_567_890, "005924"),
            (2_000_000_000, "279037"),
        ] {
            assert_eq!(code_at(SECRET, seconds / STEP_SECONDS), code);
            assert_eq!(
                step_of(SECRET, code, Micros::from_secs(seconds)),
                Some(seconds / STEP_SECONDS)
            );
        }
    }

    #[test]
    fn codes_are_valid_for_one_step_of_drift() {
        let at = |seconds: i64| step_of(SECRET, "287082", Micros::from_secs(seconds));
        assert_eq!([at(30), at(59), at(89), at(0)], [Some(1); 4]);
        assert_eq!([at(90), at(-1)], [None; 2]);
        for bad in ["", "28708", "2870822", "28708a", "-87082"] {
            assert_eq!(step_of(SECRET, bad, Micros::from_secs(59)), None, "{bad}");
        }
        assert_eq!(step_of(SECRET, "287 082", Micros::from_secs(59)), Some(1));
    }

    #[test]
    fn base32_round_trips() {
        assert_eq!(base32(b"foobar"), "MZXW6YTBOI");
        for n in 0..40 {
            let bytes: Vec<u8> = (0..n).collect();
            assert_eq!(from_base32(&base32(&bytes)), Some(bytes));
        }
        assert_eq!(from_base32("a1"), None);
    }

    #[test]
    fn recovery_codes_ignore_case_and_separators() {
        let codes = recovery_codes().unwrap();
        assert_eq!(codes.len(), RECOVERY_CODE_COUNT);
        for code in &codes {
            let digest = recovery_digest(code);
            assert!(matches_recovery(&digest, &code.to_uppercase().replace('-', " ")));
            assert!(!matches_recovery(&digest, "aaaa-bbbb-cccc-dddd"));
        }
    }
}

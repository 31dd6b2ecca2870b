//! Keys of the envelopes in which signatures cross formats: one for each 30 days, derived from the
//! gateway's secret, so that all nodes agree and none is stored.

use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;
use canon::Micros;
use dialects::{EnvelopeMac, MAC_BYTES};
use ledger::Clock;

use crate::file_store::derive_key;

const PERIOD: Micros = Micros::from_days(30);
/// Number of periods whose envelopes are opened, the current one included.
const ACCEPTED_PERIODS: u16 = 12;
/// The clock of the node that made an envelope may be ahead.
const PERIODS_AHEAD: u16 = 1;

/// Computes the codes of envelopes (HMAC-SHA256, cut to 16 bytes).
pub struct EnvelopeKeys {
    secret: hmac::Key,
    clock: Arc<dyn Clock>,
}

impl EnvelopeKeys {
    /// Derives the keys from the gateway's secret.
    pub fn new(secret: &str, clock: Arc<dyn Clock>) -> Self {
        Self { secret: derive_key(secret, "signatures"), clock }
    }

    /// Authenticates all envelopes of this process by these keys.
    pub fn install(self) {
        dialects::set_envelope_mac(Box::new(self));
    }

    fn period(&self) -> u16 {
        let period = self.clock.now().as_secs().max(0) / PERIOD.as_secs();
        u16::try_from(period).unwrap_or(u16::MAX)
    }

    fn code(&self, period: u16, message: &[u8]) -> [u8; MAC_BYTES] {
        let key = hmac::sign(&self.secret, &period.to_be_bytes());
        let key = hmac::Key::new(hmac::HMAC_SHA256, key.as_ref());
        let tag = hmac::sign(&key, message);
        let mut code = [0; MAC_BYTES];
        for (to, from) in code.iter_mut().zip(tag.as_ref()) {
            *to = *from;
        }
        code
    }
}

impl EnvelopeMac for EnvelopeKeys {
    fn sign(&self, message: &[u8]) -> (u16, [u8; MAC_BYTES]) {
        let period = self.period();
        (period, self.code(period, message))
    }

    fn verify(&self, period: u16, message: &[u8], code: &[u8; MAC_BYTES]) -> bool {
        let now = self.period();
        let oldest = now.saturating_sub(ACCEPTED_PERIODS - 1);
        (oldest..=now.saturating_add(PERIODS_AHEAD)).contains(&period)
            && verify_slices_are_equal(&self.code(period, message), code).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger::TestClock;

    const MESSAGE: &[u8] = b"mEqQBCgIYAg==";

    fn keys(secret: &str) -> (EnvelopeKeys, Arc<TestClock>) {
        let clock = Arc::new(TestClock::at(Micros::from_secs(1_763_200_000)));
        (EnvelopeKeys::new(secret, Arc::clone(&clock) as _), clock)
    }

    #[test]
    fn codes_hold_for_their_message_secret_and_period() {
        let (ours, _) = keys("secret");
        let (period, code) = ours.sign(MESSAGE);
        assert!(keys("secret").0.verify(period, MESSAGE, &code), "another node");
        assert!(!keys("other").0.verify(period, MESSAGE, &code), "another secret");
        assert!(
            !ours.verify(period - 1, MESSAGE, &code) && !ours.verify(period + 1, MESSAGE, &code)
        );
        for place in 0..MESSAGE.len() * 8 {
            let mut message = MESSAGE.to_vec();
            message[place / 8] ^= 1 << (place % 8);
            assert!(!ours.verify(period, &message, &code), "bit {place} of the message");
        }
        for place in 0..MAC_BYTES * 8 {
            let mut code = code;
            code[place / 8] ^= 1 << (place % 8);
            assert!(!ours.verify(period, MESSAGE, &code), "bit {place} of the code");
        }
    }

    #[test]
    fn codes_expire_after_twelve_periods() {
        let (keys, clock) = keys("secret");
        let (period, code) = keys.sign(MESSAGE);
        for _ in 0..11 {
            clock.pass(PERIOD);
            assert!(keys.verify(period, MESSAGE, &code));
        }
        let (newer, other) = keys.sign(MESSAGE);
        assert_eq!(newer, period + 11);
        assert_ne!(other, code, "each period has a key of its own");
        clock.pass(PERIOD);
        assert!(!keys.verify(period, MESSAGE, &code));
        let ahead = keys.code(newer + 2, MESSAGE);
        assert!(keys.verify(newer + 2, MESSAGE, &ahead), "a clock that is ahead");
        let far = keys.code(newer + 3, MESSAGE);
        assert!(!keys.verify(newer + 3, MESSAGE, &far));
    }
}

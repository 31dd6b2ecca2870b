//! Authentication of envelopes: a code that only the gateway can compute.
//!
//! This crate has neither keys nor a clock. The gateway sets its [`EnvelopeMac`] once at its start.
//! The code is a global, because envelopes are made and opened deep inside the readers and writers
//! of three formats: to pass the key there would add a parameter to about forty functions.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;

/// Length of a code.
pub const MAC_BYTES: usize = 16;

/// Computes and checks the codes of envelopes.
pub trait EnvelopeMac: Send + Sync {
    /// Returns the current period and the code of a message in it.
    fn sign(&self, message: &[u8]) -> (u16, [u8; MAC_BYTES]);
    /// Returns true if the code was computed for that message in that period, and the period is
    /// still accepted.
    fn verify(&self, period: u16, message: &[u8], code: &[u8; MAC_BYTES]) -> bool;
}

static ENVELOPE_MAC: OnceLock<Box<dyn EnvelopeMac>> = OnceLock::new();

/// Sets the codes of all envelopes of this process. The first one set stays.
pub fn set_envelope_mac(mac: Box<dyn EnvelopeMac>) {
    // A second gateway in the same process, as in tests, opens what the first one wrapped.
    drop(ENVELOPE_MAC.set(mac));
}

/// Returns the codes that the gateway set, or codes that only this process accepts.
pub fn envelope_mac() -> &'static dyn EnvelopeMac {
    &**ENVELOPE_MAC.get_or_init(|| Box::<ProcessMac>::default())
}

/// Codes for programs without a gateway, such as tests: hashes with a random key of this process.
#[derive(Default)]
struct ProcessMac([RandomState; 2]);

impl EnvelopeMac for ProcessMac {
    fn sign(&self, message: &[u8]) -> (u16, [u8; MAC_BYTES]) {
        let [first, second] = self.0.each_ref().map(|key| u128::from(key.hash_one(message)));
        (0, (first << 64 | second).to_le_bytes())
    }

    fn verify(&self, period: u16, message: &[u8], code: &[u8; MAC_BYTES]) -> bool {
        self.sign(message) == (period, *code)
    }
}

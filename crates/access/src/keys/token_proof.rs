//! Proof that a token was verified before, which costs a tenth of its HMAC.
//!
//! After the HMAC of a token matched, the cached key remembers the GMAC of the token (AES-GCM
//! without a plaintext, NIST SP 800-38D) under a random key of this process and a random nonce. The
//! next call with the same token opens this proof instead of computing the HMAC again.
//!
//! A proof accepts no token but the verified one: it covers the whole text, and without the key,
//! which never leaves the process, another text passes with a probability of about 2⁻¹²⁵ per
//! attempt. The tag is compared in constant time. It keeps no token in memory (an open connection keeps
//! its last head): even a reader of the memory, who has key and tag, does not learn 128 of the 256
//! random bits of a token. Revocation and expiry are checked for every call. The proof is part of the cached record of the key: a change of
//! the record, a new hash among them, replaces both.

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::rand;
use std::fmt;
use std::sync::OnceLock;

use super::key_token::KeyToken;

const TAG_BYTES: usize = 16;

/// Random key of this process, under which tokens are proven.
pub(super) struct ProofKey(RandomizedNonceKey);

impl ProofKey {
    /// Generates a key. Fails only if the system has no randomness.
    pub(super) fn generate() -> Result<Self, Unspecified> {
        let mut bytes = [0; 32];
        rand::fill(&mut bytes)?;
        RandomizedNonceKey::new(&AES_256_GCM, &bytes).map(Self)
    }
}

/// The proof of one token, once its HMAC matched.
#[derive(Default)]
pub(super) struct TokenProof(OnceLock<([u8; NONCE_LEN], [u8; TAG_BYTES])>);

impl TokenProof {
    /// Returns true if this token was verified before.
    pub(super) fn covers(&self, key: &ProofKey, token: KeyToken<'_>) -> bool {
        self.0.get().is_some_and(|(nonce, tag)| {
            let (nonce, mut sealed) = (Nonce::from(nonce), *tag);
            key.0.open_in_place(nonce, Aad::from(token.as_bytes()), &mut sealed).is_ok()
        })
    }

    /// Remembers a token whose HMAC matched.
    pub(super) fn remember(&self, key: &ProofKey, token: KeyToken<'_>) {
        let mut sealed = Vec::with_capacity(TAG_BYTES);
        let nonce = key.0.seal_in_place_append_tag(Aad::from(token.as_bytes()), &mut sealed);
        if let (Ok(nonce), Ok(tag)) = (nonce, <[u8; TAG_BYTES]>::try_from(sealed)) {
            // Another call with the same token may have been first.
            let _ = self.0.set((*nonce.as_ref(), tag));
        }
    }
}

impl fmt::Debug for TokenProof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenProof")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::NewKeyToken;
    use store::KeyScope;

    #[test]
    fn covers_only_the_remembered_token_under_its_key() {
        let key = ProofKey::generate().unwrap();
        let new = NewKeyToken::generate(KeyScope::Call).unwrap();
        let other = NewKeyToken::with_id(new.id.clone(), KeyScope::Call).unwrap();
        let (token, other) =
            (KeyToken::parse(&new.text).unwrap(), KeyToken::parse(&other.text).unwrap());
        let proof = TokenProof::default();
        assert!(!proof.covers(&key, token));
        proof.remember(&key, token);
        assert!(proof.covers(&key, token) && proof.covers(&key, token));
        assert!(!proof.covers(&key, other));
        assert!(!proof.covers(&ProofKey::generate().unwrap(), token));
        assert!(!format!("{proof:?}").contains('['));
    }
}

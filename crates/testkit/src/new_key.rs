//! New API keys.

use access::keys::{KeyCache, NewKeyToken, hash_token};
use canon::{Micros, Money};
use store::{KeyRecord, KeyScope, RateLimits};

/// Specification of a new key for calls. [`KeyRecord::make_admin`] turns its record into an admin
/// key.
#[derive(Clone, Debug)]
pub struct NewKey {
    /// Name shown in lists.
    pub name: String,
    /// Spending cap; `None` is unlimited.
    pub cap: Option<Money>,
    /// Models the key may use; empty allows all.
    pub models: Vec<String>,
    /// Expiry time.
    pub expires: Option<Micros>,
}

impl NewKey {
    /// Returns the record to store and the key's text to show once.
    pub fn into_record(
        self,
        account_id: &str,
        ring: &KeyCache,
        now: Micros,
    ) -> anyhow::Result<(KeyRecord, String)> {
        let token = NewKeyToken::generate(KeyScope::Call)?;
        let Self { name, cap, models, expires } = self;
        let record = KeyRecord {
            id: token.id,
            account_id: account_id.to_owned(),
            created_by: None,
            name,
            scope: KeyScope::Call,
            grants: store::KeyGrants::default(),
            hash: hash_token(ring.pepper(), &token.text),
            old_hash: None,
            surface: None,
            old_until: None,
            cap,
            spent: Money::ZERO,
            budget: None,
            models,
            expires,
            revoked: None,
            limits: RateLimits::default(),
            ips: Vec::new(),
            bounds: store::KeyBounds::default(),
            created: now,
            changed: now,
            last_used: None,
        };
        Ok((record, token.text))
    }
}

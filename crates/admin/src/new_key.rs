//! New API keys.

use access::keys::{KeyCache, NewKeyToken, hash_token};
use canon::Money;
use store::{KeyRecord, KeyScope, RateLimits};

/// What a new key is to be. It makes calls unless [`KeyRecord::make_admin`] turns its record into
/// one for administration.
#[derive(Clone, Debug)]
pub struct NewKey {
    /// Its name.
    pub name: String,
    /// The most it may spend; `None` for no limit.
    pub cap: Option<Money>,
    /// The models it may use; empty for all.
    pub models: Vec<String>,
    /// When it ends.
    pub expires: Option<i64>,
}

impl NewKey {
    /// The record to keep and the text to show once.
    pub fn into_record(
        self,
        account_id: &str,
        ring: &KeyCache,
        now: i64,
    ) -> anyhow::Result<(KeyRecord, String)> {
        let token = NewKeyToken::generate()?;
        let Self { name, cap, models, expires } = self;
        let record = KeyRecord {
            id: token.id,
            account_id: account_id.to_owned(),
            created_by: None,
            name,
            scope: KeyScope::Call,
            hash: hash_token(ring.pepper(), &token.text),
            old_hash: None,
            old_until: None,
            cap,
            spent: Money::ZERO,
            budget: None,
            models,
            expires,
            revoked: None,
            limits: RateLimits::default(),
            ips: Vec::new(),
            created: now,
            changed: now,
            last_used: None,
        };
        Ok((record, token.text))
    }
}

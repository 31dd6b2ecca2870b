//! Refresh tokens of agents that signed in. Only a hash of a token is stored.
//!
//! A used token is kept until it expires: its second use reveals that it was stolen.

use crate::audited_change::in_change;
use crate::db::{clean, on_reader};
use crate::row::row;
use crate::{AuditedChange, Store, StoreError};
use canon::Micros;

row! {
    /// A refresh token.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct RefreshToken {
        /// Hash of the token.
        pub hash: Vec<u8>,
        /// The key whose secret it replaces.
        pub key_id: String,
        /// Time of creation.
        pub issued: Micros,
        /// Time of expiry. The store has no clock, so the caller compares.
        pub expires: Micros,
        /// Time of its first use.
        pub used: Option<Micros>,
        /// Network of its first use.
        pub used_from: Option<String>,
    }
}

const GET: &str = "SELECT hash, key_id, issued, expires, used, used_from FROM refresh_tokens \
    WHERE hash = $1";
const ADD: &str = "INSERT INTO refresh_tokens (hash, key_id, issued, expires, used, used_from) \
    VALUES ($1, $2, $3, $4, $5, $6)";
const USE: &str = "UPDATE refresh_tokens SET used = $2, used_from = $3 \
    WHERE hash = $1 AND used IS NULL";
const DROP_OF: &str = "DELETE FROM refresh_tokens WHERE key_id = $1";
const DROP_EXPIRED: &str = "DELETE FROM refresh_tokens WHERE expires <= $1";
// A key that was made by signing in lives as long as one of its refresh tokens.
const ENDED: &str = "SELECT id FROM keys WHERE account_id = $1 AND surface IS NOT NULL \
    AND revoked IS NULL AND expires <= $2 AND NOT EXISTS (SELECT 1 FROM refresh_tokens t \
    WHERE t.key_id = keys.id AND t.used IS NULL AND t.expires > $2) ORDER BY id";

impl Store {
    /// Returns the refresh token with that hash, used or expired ones included.
    pub async fn refresh_token(&self, hash: &[u8]) -> Result<Option<RefreshToken>, StoreError> {
        Ok(on_reader!(&self.db, pool => {
            sqlx::query_as(GET).bind(hash).fetch_optional(pool).await?
        }))
    }

    /// Returns the ids of the keys of an owner that were made by signing in and have ended: they
    /// are expired, and no refresh token renews them any more.
    pub async fn ended_sign_ins(
        &self,
        owner_id: &str,
        now: Micros,
    ) -> Result<Vec<String>, StoreError> {
        Ok(on_reader!(&self.db, pool => {
            sqlx::query_scalar(ENDED).bind(clean(owner_id)).bind(now.get()).fetch_all(pool).await?
        }))
    }
}

impl AuditedChange {
    /// Adds a refresh token.
    pub async fn add_refresh_token(&mut self, token: &RefreshToken) -> Result<(), StoreError> {
        let RefreshToken { hash, key_id, issued, expires, used, used_from } = token;
        in_change!(self, tx => {
            sqlx::query(ADD)
                .bind(hash)
                .bind(clean(key_id))
                .bind(issued.get())
                .bind(expires.get())
                .bind(used.map(Micros::get))
                .bind(used_from.as_deref().map(clean))
                .execute(&mut *tx)
                .await
                .map_err(StoreError::naming("refresh token", "key"))?;
        });
        Ok(())
    }

    /// Marks a refresh token as used. Returns false if it is unknown or was used before. Of several
    /// concurrent attempts, one succeeds.
    pub async fn use_refresh_token(
        &mut self,
        hash: &[u8],
        at: Micros,
        network: &str,
    ) -> Result<bool, StoreError> {
        Ok(in_change!(self, tx => {
            let using = sqlx::query(USE).bind(hash).bind(at.get()).bind(clean(network));
            using.execute(&mut *tx).await?.rows_affected()
        }) > 0)
    }

    /// Deletes the refresh tokens of a key.
    pub async fn drop_refresh_tokens_of(&mut self, key_id: &str) -> Result<u64, StoreError> {
        Ok(in_change!(self, tx => {
            sqlx::query(DROP_OF).bind(clean(key_id)).execute(&mut *tx).await?.rows_affected()
        }))
    }

    /// Deletes the refresh tokens that expired before `now`.
    pub async fn drop_expired_refresh_tokens(&mut self, now: Micros) -> Result<u64, StoreError> {
        Ok(in_change!(self, tx => {
            sqlx::query(DROP_EXPIRED).bind(now.get()).execute(&mut *tx).await?.rows_affected()
        }))
    }
}

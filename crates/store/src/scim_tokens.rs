//! Tokens with which identity providers sign in to manage people. Only a hash of a token is stored.

use canon::Micros;

use crate::audited_change::in_change;
use crate::db::{clean, on_reader, on_writer};
use crate::row::row;
use crate::{AuditedChange, Store, StoreError};

row! {
    /// A token of an identity provider.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ScimToken {
        /// Its public id, which is a part of its text.
        pub id: String,
        /// Name of the identity provider in the configuration.
        pub identity: String,
        /// Hash of its text.
        pub hash: Vec<u8>,
        /// The account or command that created it, as the audit log names it.
        pub created_by: String as "made_by",
        /// Time of creation.
        pub created: Micros,
        /// Time of expiry; `None` if it does not expire. The store has no clock, so the caller compares.
        pub expires: Option<Micros>,
        /// Time of its last use, to about a minute.
        pub last_used: Option<Micros>,
    }
}

const GET: &str = "SELECT id, identity, hash, made_by, created, expires, last_used FROM scim_tokens \
    WHERE id = $1";
const ALL: &str = "SELECT id, identity, hash, made_by, created, expires, last_used FROM scim_tokens \
    ORDER BY identity, created, id";
const ADD: &str = "INSERT INTO scim_tokens (id, identity, hash, made_by, created, expires) \
    VALUES ($1, $2, $3, $4, $5, $6)";
const DROP: &str = "DELETE FROM scim_tokens WHERE id = $1";
const DROP_EXPIRED: &str = "DELETE FROM scim_tokens WHERE expires <= $1";
const USE: &str = "UPDATE scim_tokens SET last_used = $2 WHERE id = $1";

impl Store {
    /// Returns the token with that id, expired ones included.
    pub async fn scim_token(&self, id: &str) -> Result<Option<ScimToken>, StoreError> {
        Ok(on_reader!(&self.db, pool => {
            sqlx::query_as(GET).bind(clean(id)).fetch_optional(pool).await?
        }))
    }

    /// Returns all tokens, by provider, the oldest first.
    pub async fn scim_tokens(&self) -> Result<Vec<ScimToken>, StoreError> {
        Ok(on_reader!(&self.db, pool => sqlx::query_as(ALL).fetch_all(pool).await?))
    }

    /// Notes the use of a token. It is no change of administration.
    pub async fn note_scim_use(&self, id: &str, at: Micros) -> Result<(), StoreError> {
        on_writer!(&self.db, pool => {
            sqlx::query(USE).bind(clean(id)).bind(at.get()).execute(pool).await?;
        });
        Ok(())
    }
}

impl AuditedChange {
    /// Adds a token.
    pub async fn add_scim_token(&mut self, token: &ScimToken) -> Result<(), StoreError> {
        let ScimToken { id, identity, hash, created_by, created, expires, last_used: _ } = token;
        in_change!(self, tx => {
            sqlx::query(ADD)
                .bind(clean(id))
                .bind(clean(identity))
                .bind(hash)
                .bind(clean(created_by))
                .bind(created.get())
                .bind(expires.map(Micros::get))
                .execute(&mut *tx)
                .await
                .map_err(StoreError::naming("token", "identity"))?;
        });
        Ok(())
    }

    /// Revokes a token. Returns false if there is no such token.
    pub async fn drop_scim_token(&mut self, id: &str) -> Result<bool, StoreError> {
        Ok(in_change!(self, tx => {
            sqlx::query(DROP).bind(clean(id)).execute(&mut *tx).await?.rows_affected()
        }) > 0)
    }

    /// Deletes the tokens that have expired.
    pub async fn drop_expired_scim_tokens(&mut self, now: Micros) -> Result<u64, StoreError> {
        Ok(in_change!(self, tx => {
            sqlx::query(DROP_EXPIRED).bind(now.get()).execute(&mut *tx).await?.rows_affected()
        }))
    }
}

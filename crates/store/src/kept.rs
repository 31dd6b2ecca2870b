//! Answers kept for later calls: the conversation up to an answer, and the answer itself.
//!
//! Both are opaque JSON texts here. Another account's answer is as unknown as one that never was.

use crate::db::{clean, on_reader, on_writer};
use crate::{Micros, Store, StoreError};

/// A kept answer.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct Kept {
    /// The answer's id.
    pub id: String,
    /// Whose it is.
    pub account_id: String,
    /// The conversation up to it, as JSON.
    pub request: String,
    /// The answer, as JSON.
    pub reply: String,
    /// When it was first kept.
    pub created: Micros,
    /// Until when.
    pub expires: Micros,
}

const PUT: &str = "INSERT INTO kept (id, account_id, request, reply, created, expires) \
    VALUES ($1, $2, $3, $4, $5, $6) \
    ON CONFLICT (id) DO UPDATE SET request = excluded.request, reply = excluded.reply, \
    expires = excluded.expires WHERE kept.account_id = excluded.account_id";
const GET: &str = "SELECT id, account_id, request, reply, created, expires FROM kept \
    WHERE id = $1 AND account_id = $2";
const DROP: &str = "DELETE FROM kept WHERE id = $1 AND account_id = $2";
const SWEEP: &str = "DELETE FROM kept WHERE expires <= $1";

impl Store {
    /// Keeps an answer, or its newer state. An id is its first account's for good.
    pub async fn keep(&self, kept: &Kept) -> Result<(), StoreError> {
        let Kept { id, account_id, request, reply, created, expires } = kept;
        on_writer!(&self.db, pool => {
            sqlx::query(PUT)
                .bind(clean(id))
                .bind(clean(account_id))
                .bind(clean(request))
                .bind(clean(reply))
                .bind(*created)
                .bind(*expires)
                .execute(pool)
                .await
                .map_err(StoreError::naming("answer id", "account"))?;
        });
        Ok(())
    }

    /// The answer with that id, if it is that account's. Expired ones are found until swept.
    pub async fn kept(&self, id: &str, account_id: &str) -> Result<Option<Kept>, StoreError> {
        Ok(on_reader!(&self.db, pool => {
            sqlx::query_as(GET).bind(clean(id)).bind(clean(account_id)).fetch_optional(pool).await?
        }))
    }

    /// Forgets an answer. False when that account has no such answer.
    pub async fn drop_kept(&self, id: &str, account_id: &str) -> Result<bool, StoreError> {
        Ok(on_writer!(&self.db, pool => {
            sqlx::query(DROP).bind(clean(id)).bind(clean(account_id)).execute(pool).await?
                .rows_affected()
        }) > 0)
    }

    /// Forgets every answer whose time is over, and tells how many.
    pub async fn sweep_kept(&self, now: Micros) -> Result<u64, StoreError> {
        Ok(on_writer!(&self.db, pool => {
            sqlx::query(SWEEP).bind(now).execute(pool).await?.rows_affected()
        }))
    }
}

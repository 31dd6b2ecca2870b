//! Small named texts: the key pepper, one-time tokens, switches.

use crate::audited_change::in_change;
use crate::db::{clean, on_reader, on_writer};
use crate::{AuditedChange, Store, StoreError};

pub(crate) const GET: &str = "SELECT value FROM settings WHERE name = $1";
pub(crate) const PUT: &str = "INSERT INTO settings (name, value) VALUES ($1, $2) \
    ON CONFLICT (name) DO UPDATE SET value = excluded.value";
// Unlike DO NOTHING, an update to the present value returns the row.
const GET_OR_PUT: &str = "INSERT INTO settings (name, value) VALUES ($1, $2) \
    ON CONFLICT (name) DO UPDATE SET value = settings.value RETURNING value";
const TAKE: &str = "DELETE FROM settings WHERE name = $1 RETURNING value";

impl Store {
    /// Returns the text with that name.
    pub async fn setting(&self, name: &str) -> Result<Option<String>, StoreError> {
        Ok(on_reader!(&self.db, pool => {
            sqlx::query_scalar(GET).bind(clean(name)).fetch_optional(pool).await?
        }))
    }

    /// Returns the text with that name, after storing `value` if there is none. Concurrent callers
    /// get the same text.
    pub async fn setting_or(&self, name: &str, value: &str) -> Result<String, StoreError> {
        if let Some(present) = self.setting(name).await? {
            return Ok(present);
        }
        Ok(on_writer!(&self.db, pool => {
            sqlx::query_scalar(GET_OR_PUT)
                .bind(clean(name))
                .bind(clean(value))
                .fetch_one(pool)
                .await?
        }))
    }
}

impl AuditedChange {
    /// Stores a text, replacing any other with that name.
    pub async fn put_setting(&mut self, name: &str, value: &str) -> Result<(), StoreError> {
        in_change!(self, tx => {
            sqlx::query(PUT).bind(clean(name)).bind(clean(value)).execute(&mut *tx).await?;
        });
        Ok(())
    }

    /// Removes and returns a text. Of several concurrent callers, one gets it.
    pub async fn take_setting(&mut self, name: &str) -> Result<Option<String>, StoreError> {
        Ok(in_change!(self, tx => {
            sqlx::query_scalar(TAKE).bind(clean(name)).fetch_optional(&mut *tx).await?
        }))
    }
}

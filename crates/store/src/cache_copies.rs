//! Copies of cached contents at providers. A copy ends with its content.

use canon::Micros;

use crate::db::{clean, on_reader, on_writer};
use crate::row::row;
use crate::{Store, StoreError};

row! {
    /// A copy of cached content at a provider.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct CacheCopy {
        /// The lane and the credential that made it.
        pub slot: String,
        /// Its name at the provider.
        pub name: String,
        /// Time at which the provider deletes it.
        pub expires: Micros,
    }
}

const SET: &str = "INSERT INTO cache_copies (content_id, slot, name, expires) \
    VALUES ($1, $2, $3, $4) ON CONFLICT (content_id) DO UPDATE \
    SET slot = excluded.slot, name = excluded.name, expires = excluded.expires";
const GET: &str =
    "SELECT slot, name, expires FROM cache_copies WHERE content_id = $1 AND expires > $2";
const DROP: &str = "DELETE FROM cache_copies WHERE content_id = $1 AND name = $2";

impl Store {
    /// Records the copy of a content.
    pub async fn set_cache_copy(
        &self,
        content_id: &str,
        copy: &CacheCopy,
    ) -> Result<(), StoreError> {
        let CacheCopy { slot, name, expires } = copy;
        on_writer!(&self.db, pool => {
            sqlx::query(SET)
                .bind(clean(content_id)).bind(clean(slot)).bind(clean(name)).bind(expires.get())
                .execute(pool)
                .await
                .map_err(StoreError::naming("copy of cached content", "cached content"))?;
        });
        Ok(())
    }

    /// Returns the copy of a content, unless it has expired.
    pub async fn cache_copy(
        &self,
        content_id: &str,
        now: Micros,
    ) -> Result<Option<CacheCopy>, StoreError> {
        Ok(on_reader!(&self.db, pool => {
            sqlx::query_as(GET).bind(clean(content_id)).bind(now.get()).fetch_optional(pool).await?
        }))
    }

    /// Forgets a copy, unless another one has taken its place.
    pub async fn drop_cache_copy(&self, content_id: &str, name: &str) -> Result<(), StoreError> {
        on_writer!(&self.db, pool => {
            sqlx::query(DROP).bind(clean(content_id)).bind(clean(name)).execute(pool).await?;
        });
        Ok(())
    }
}

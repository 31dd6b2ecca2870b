//! Cached contents: beginnings of conversations that later calls name.
//!
//! The content is an opaque JSON text here. A data key seals it and its display name. Content of another
//! owner is reported as missing.

use canon::Micros;

use crate::db::{clean, in_transaction, on_reader, on_writer};
use crate::own_rows::{TAKE_TURN, bind_own, database_number, own_rows};
use crate::row::row;
use crate::sealed_body::column_label;
use crate::{ObjectOwner, Store, StoreError};

row! {
    /// Cached content, without the content itself.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct CachedContent {
        /// Its id. Later contents have greater ids.
        pub id: String,
        /// The account.
        pub account_id: String,
        /// The key that made it.
        pub key_id: String,
        /// The model it was made for.
        pub model: String,
        /// Name for people. One that cannot be opened is left out.
        pub display_name: Option<String>,
        /// Size of the content.
        pub bytes: u64,
        /// Tokens of the content.
        pub tokens: u64,
        /// Time of creation.
        pub created: Micros,
        /// Time of the last change.
        pub updated: Micros,
        /// Time of expiry.
        pub expires: Micros,
    }
}

/// Limits of the cached contents of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLimits {
    /// Number of contents.
    pub count: u64,
    /// Bytes of all contents together.
    pub bytes: u64,
}

/// Result of an addition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheAdmission {
    /// The content is stored.
    Added,
    /// The key has as many contents as it may have.
    TooMany,
    /// The contents of the key would have too many bytes.
    TooLarge,
}

row! {
    struct CacheBodyRow {
        account_id: String,
        body: String,
        sealed: Option<Vec<u8>>,
    }
}

row! {
    struct CacheTotals {
        count: u64,
        bytes: u64,
    }
}

/// The columns of `CachedContent`.
macro_rules! columns {
    () => {
        "id, account_id, key_id, model, display_name, bytes, tokens, created, updated, expires"
    };
}

const TOTALS: &str = "SELECT COUNT(*) AS count, CAST(COALESCE(SUM(bytes), 0) AS BIGINT) AS bytes \
    FROM cached_contents WHERE key_id = $1 AND expires > $2";
const ADD: &str = "INSERT INTO cached_contents (id, account_id, key_id, model, display_name, body, \
    sealed, bytes, tokens, created, updated, expires) \
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";
const GET: &str =
    concat!("SELECT ", columns!(), " FROM cached_contents WHERE id = $4 AND ", own_rows!());
const GET_BODY: &str =
    concat!("SELECT account_id, body, sealed FROM cached_contents WHERE id = $4 AND ", own_rows!());
const LIST: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM cached_contents WHERE id > $4 AND ",
    own_rows!(),
    " ORDER BY id LIMIT $5"
);
const SET_EXPIRY: &str = concat!(
    "UPDATE cached_contents SET expires = $5, updated = $3 WHERE id = $4 AND ",
    own_rows!(),
    " RETURNING ",
    columns!()
);
const DROP: &str = concat!("DELETE FROM cached_contents WHERE id = $4 AND ", own_rows!());
const SWEEP: &str = "DELETE FROM cached_contents WHERE expires <= $1";

/// Returns the label that binds a sealed column to its row.
fn label(id: &str, account_id: &str, column: &str) -> String {
    column_label("cached_contents", &[account_id, id], column)
}

impl Store {
    /// Stores content, unless its key has too much. Only contents that have not expired by the time of
    /// creation count.
    pub async fn add_cached_content(
        &self,
        content: &CachedContent,
        body: &str,
        limits: CacheLimits,
    ) -> Result<CacheAdmission, StoreError> {
        let CachedContent { id, account_id, key_id, model, display_name, .. } = content;
        let sealer = self.column_sealer().await?;
        // JSON, so that no name looks like a sealed text.
        let name = display_name.as_deref().map(|name| serde_json::Value::from(name).to_string());
        let name = name.as_deref();
        let name = name.map(|name| sealer.text(&label(id, account_id, "display_name"), name));
        let name = name.transpose()?;
        let body_label = label(id, account_id, "sealed");
        let sealed = sealer.sealed(&body_label, || body.as_bytes().to_vec())?;
        let body = if sealed.is_some() { "" } else { body };
        Ok(in_transaction!(&self.db, tx: Kind => {
            sqlx::query(TAKE_TURN).bind(clean(key_id)).execute(&mut *tx).await?;
            let totals = sqlx::query_as(TOTALS).bind(clean(key_id)).bind(content.created.get());
            let CacheTotals { count, bytes } = totals.fetch_one(&mut *tx).await?;
            if count >= limits.count {
                return Ok(CacheAdmission::TooMany);
            }
            if bytes.saturating_add(content.bytes) > limits.bytes {
                return Ok(CacheAdmission::TooLarge);
            }
            sqlx::query(ADD)
                .bind(clean(id)).bind(clean(account_id)).bind(clean(key_id)).bind(clean(model))
                .bind(name.as_deref().map(clean)).bind(clean(body)).bind(&sealed)
                .bind(database_number(content.bytes)).bind(database_number(content.tokens))
                .bind(content.created.get()).bind(content.updated.get())
                .bind(content.expires.get())
                .execute(&mut *tx)
                .await
                .map_err(StoreError::naming("cached content", "account"))?;
            CacheAdmission::Added
        }))
    }

    /// Returns content of that owner that has not expired.
    pub async fn cached_content(
        &self,
        id: &str,
        owner: &ObjectOwner,
        now: Micros,
    ) -> Result<Option<CachedContent>, StoreError> {
        let row: Option<CachedContent> = on_reader!(&self.db, pool => {
            bind_own!(sqlx::query_as(GET), owner, now, id)
                .fetch_optional(pool)
                .await?
        });
        self.open_display_name(row).await
    }

    /// Returns the body of content of that owner that has not expired. Its size is in the row without it.
    pub async fn cached_content_body(
        &self,
        id: &str,
        owner: &ObjectOwner,
        now: Micros,
    ) -> Result<Option<String>, StoreError> {
        let row: Option<CacheBodyRow> = on_reader!(&self.db, pool => {
            bind_own!(sqlx::query_as(GET_BODY), owner, now, id)
                .fetch_optional(pool)
                .await?
        });
        let Some(CacheBodyRow { account_id, body, sealed }) = row else { return Ok(None) };
        self.open_column(&label(id, &account_id, "sealed"), body, sealed).await.map(Some)
    }

    /// Returns contents of that owner that have not expired, oldest first, after the one with that id
    /// if it is given.
    pub async fn cached_contents(
        &self,
        owner: &ObjectOwner,
        after: Option<&str>,
        limit: u32,
        now: Micros,
    ) -> Result<Vec<CachedContent>, StoreError> {
        let rows: Vec<CachedContent> = on_reader!(&self.db, pool => {
            bind_own!(sqlx::query_as(LIST), owner, now, after.unwrap_or_default())
                .bind(i64::from(limit))
                .fetch_all(pool)
                .await?
        });
        let mut contents = Vec::with_capacity(rows.len());
        for row in rows {
            contents.extend(self.open_display_name(Some(row)).await?);
        }
        Ok(contents)
    }

    /// Sets the time at which content expires and returns it; `None` if the owner has no such content.
    pub async fn set_cache_expiry(
        &self,
        id: &str,
        owner: &ObjectOwner,
        expires: Micros,
        now: Micros,
    ) -> Result<Option<CachedContent>, StoreError> {
        let row: Option<CachedContent> = on_writer!(&self.db, pool => {
            bind_own!(sqlx::query_as(SET_EXPIRY), owner, now, id)
                .bind(expires.get())
                .fetch_optional(pool)
                .await?
        });
        self.open_display_name(row).await
    }

    /// Deletes content. Returns false if the owner has no such content.
    pub async fn drop_cached_content(
        &self,
        id: &str,
        owner: &ObjectOwner,
        now: Micros,
    ) -> Result<bool, StoreError> {
        Ok(on_writer!(&self.db, pool => {
            bind_own!(sqlx::query(DROP), owner, now, id)
                .execute(pool)
                .await?
                .rows_affected()
        }) > 0)
    }

    /// Deletes all expired contents and returns their number.
    pub async fn sweep_cached_contents(&self, now: Micros) -> Result<u64, StoreError> {
        Ok(on_writer!(&self.db, pool => {
            sqlx::query(SWEEP).bind(now.get()).execute(pool).await?.rows_affected()
        }))
    }

    /// Opens the display name. One that does not open hides neither its content nor the others of a list.
    async fn open_display_name(
        &self,
        row: Option<CachedContent>,
    ) -> Result<Option<CachedContent>, StoreError> {
        let Some(mut content) = row else { return Ok(None) };
        let Some(name) = content.display_name.take() else { return Ok(Some(content)) };
        let label = label(&content.id, &content.account_id, "display_name");
        content.display_name = match self.open_text(&label, name).await {
            Ok(open) => serde_json::from_str(&open).ok(),
            Err(StoreError::Sealing(_)) => None,
            Err(
                e @ (StoreError::Unreachable(_)
                | StoreError::Conflict(_)
                | StoreError::Missing(_)
                | StoreError::Newer { .. }
                | StoreError::Other(_)),
            ) => return Err(e),
        };
        Ok(Some(content))
    }
}

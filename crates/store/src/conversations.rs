//! Conversations that callers keep, and their items.
//!
//! Metadata and items are opaque JSON texts here, sealed by a data key. A conversation of another owner is
//! reported as missing.

use canon::Micros;

use crate::db::{clean, in_transaction, on_reader, on_writer};
use crate::own_rows::{TAKE_TURN, bind_own, database_number, own_rows};
use crate::row::row;
use crate::sealed_body::{ColumnSealer, column_label};
use crate::{ObjectOwner, Store, StoreError};

/// Bytes that a conversation counts for beside its items, so that empty ones are limited too.
const CONVERSATION_BYTES: u64 = 512;
/// Bytes that an item counts for beside its text.
const ITEM_BYTES: u64 = 128;

row! {
    /// A conversation without its items.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct StoredConversation {
        /// Its id.
        pub id: String,
        /// The account.
        pub account_id: String,
        /// The key that made it.
        pub key_id: String,
        /// Metadata, as a JSON object.
        pub metadata: String,
        /// Size of all items.
        pub bytes: u64,
        /// Time of creation.
        pub created: Micros,
        /// Time of expiry.
        pub expires: Micros,
    }
}

/// An item of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConversationItem {
    /// Its id, unique in the conversation.
    pub id: String,
    /// The item, as a JSON object.
    pub body: String,
}

/// Limits of what a caller adds to its conversations itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConversationLimits {
    /// Bytes of one conversation.
    pub bytes: u64,
    /// Bytes of all conversations of the key.
    pub key_bytes: u64,
}

/// Result of an addition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ItemAdmission {
    /// The items are stored.
    Added,
    /// The owner has no such conversation.
    NotFound,
    /// The conversation has an item of this id.
    Duplicate(String),
    /// The conversation would be too large.
    TooLarge,
    /// The conversations of the key would have too many bytes.
    KeyFull,
}

/// Part of a list of items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemPage<'a> {
    /// The item before the first one.
    pub after: Option<&'a str>,
    /// True if the oldest items are first.
    pub ascending: bool,
    /// Number of items.
    pub limit: u64,
}

row! {
    struct ItemRow {
        id: String,
        body: String,
        sealed: Option<Vec<u8>>,
    }
}

row! {
    struct PositionRow {
        position: i64,
    }
}

row! {
    struct AddedRow {
        key_id: String,
        bytes: u64,
        next: i64,
    }
}

row! {
    struct KeyBytes {
        bytes: u64,
    }
}

const ADD: &str = "INSERT INTO conversations (id, account_id, key_id, metadata, next, bytes, created, \
    expires) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
const GET: &str = concat!(
    "SELECT id, account_id, key_id, metadata, bytes, created, expires FROM conversations WHERE id = $4 AND ",
    own_rows!()
);
const SET_METADATA: &str =
    concat!("UPDATE conversations SET metadata = $5, expires = $6 WHERE id = $4 AND ", own_rows!());
const DROP: &str = concat!("DELETE FROM conversations WHERE id = $4 AND ", own_rows!());
const SWEEP: &str = "DELETE FROM conversations WHERE expires <= $1";
/// The row is locked by this, so that additions follow each other.
const GROW: &str = concat!(
    "UPDATE conversations SET next = next + $5, bytes = bytes + $6, expires = $7 WHERE id = $4 AND ",
    own_rows!(),
    " RETURNING key_id, bytes, next"
);
const KEY_BYTES: &str = "SELECT CAST(COALESCE(SUM(bytes), 0) AS BIGINT) AS bytes FROM conversations \
    WHERE key_id = $1";
const ADD_ITEM: &str = "INSERT INTO conversation_items (conversation_id, position, id, body, sealed, bytes) \
    VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (conversation_id, id) DO NOTHING";
const ALL_ITEMS: &str =
    "SELECT id, body, sealed FROM conversation_items WHERE conversation_id = $1 ORDER BY position";
const POSITION: &str =
    "SELECT position FROM conversation_items WHERE conversation_id = $1 AND id = $2";
const ITEMS_UP: &str = "SELECT id, body, sealed FROM conversation_items \
    WHERE conversation_id = $1 AND position > $2 ORDER BY position LIMIT $3";
const ITEMS_DOWN: &str = "SELECT id, body, sealed FROM conversation_items \
    WHERE conversation_id = $1 AND position < $2 ORDER BY position DESC LIMIT $3";
const GET_ITEM: &str =
    "SELECT id, body, sealed FROM conversation_items WHERE conversation_id = $1 AND id = $2";
const DROP_ITEM: &str =
    "DELETE FROM conversation_items WHERE conversation_id = $1 AND id = $2 RETURNING bytes";
const SHRINK: &str = "UPDATE conversations SET bytes = bytes - $2 WHERE id = $1";

fn metadata_label(id: &str, account_id: &str) -> String {
    column_label("conversations", &[account_id, id], "metadata")
}

fn item_label(conversation: &StoredConversation, item: &str) -> String {
    let row = [conversation.account_id.as_str(), conversation.id.as_str(), item];
    column_label("conversation_items", &row, "sealed")
}

fn size_of_item(item: &ConversationItem) -> u64 {
    item.body.len() as u64 + ITEM_BYTES
}

/// An item as it is written.
struct SealedItem<'a> {
    item: &'a ConversationItem,
    sealed: Option<Vec<u8>>,
}

fn seal_items<'a>(
    sealer: &ColumnSealer,
    conversation: &StoredConversation,
    items: &'a [ConversationItem],
) -> Result<Vec<SealedItem<'a>>, StoreError> {
    let seal = |item: &'a ConversationItem| {
        let label = item_label(conversation, &item.id);
        let sealed = sealer.sealed(&label, || item.body.as_bytes().to_vec())?;
        Ok(SealedItem { item, sealed })
    };
    items.iter().map(seal).collect()
}

/// Writes items behind each other. Evaluates to the id of an item that the conversation has already.
macro_rules! write_items {
    ($tx:ident, $id:expr, $first:expr, $items:expr) => {{
        let mut duplicate = None;
        for (position, SealedItem { item, sealed }) in ($first..).zip($items) {
            let body = if sealed.is_some() { "" } else { item.body.as_str() };
            let written = sqlx::query(ADD_ITEM)
                .bind(clean($id))
                .bind(position)
                .bind(clean(&item.id))
                .bind(clean(body))
                .bind(sealed)
                .bind(database_number(size_of_item(item)))
                .execute(&mut *$tx)
                .await?;
            if written.rows_affected() == 0 {
                duplicate = Some(item.id.clone());
                break;
            }
        }
        duplicate
    }};
}

impl Store {
    /// Stores a conversation with its first items.
    pub async fn add_conversation(
        &self,
        conversation: &StoredConversation,
        items: &[ConversationItem],
        limits: ConversationLimits,
    ) -> Result<ItemAdmission, StoreError> {
        let StoredConversation { id, account_id, key_id, metadata, created, expires, .. } =
            conversation;
        let sealer = self.column_sealer().await?;
        let metadata = sealer.text(&metadata_label(id, account_id), metadata)?;
        let sealed = seal_items(&sealer, conversation, items)?;
        let added = items.iter().map(size_of_item).sum::<u64>();
        if added > limits.bytes {
            return Ok(ItemAdmission::TooLarge);
        }
        Ok(in_transaction!(&self.db, tx: Kind => {
            sqlx::query(TAKE_TURN).bind(clean(key_id)).execute(&mut *tx).await?;
            let total: KeyBytes =
                sqlx::query_as(KEY_BYTES).bind(clean(key_id)).fetch_one(&mut *tx).await?;
            if total.bytes + added + CONVERSATION_BYTES > limits.key_bytes {
                return Ok(ItemAdmission::KeyFull);
            }
            sqlx::query(ADD)
                .bind(clean(id))
                .bind(clean(account_id))
                .bind(clean(key_id))
                .bind(clean(&metadata))
                .bind(database_number(items.len() as u64))
                .bind(database_number(added + CONVERSATION_BYTES))
                .bind(created.get())
                .bind(expires.get())
                .execute(&mut *tx)
                .await
                .map_err(StoreError::naming("conversation id", "account"))?;
            if let Some(id) = write_items!(tx, id, 0_i64, &sealed) {
                return Ok(ItemAdmission::Duplicate(id));
            }
            ItemAdmission::Added
        }))
    }

    /// Returns a conversation of that owner.
    pub async fn conversation(
        &self,
        id: &str,
        owner: &ObjectOwner,
        now: Micros,
    ) -> Result<Option<StoredConversation>, StoreError> {
        let found: Option<StoredConversation> = on_reader!(&self.db, pool => {
            bind_own!(sqlx::query_as(GET), owner, now, id)
                .fetch_optional(pool)
                .await?
        });
        let Some(mut found) = found else { return Ok(None) };
        let label = metadata_label(&found.id, &found.account_id);
        found.metadata = self.open_text(&label, found.metadata).await?;
        Ok(Some(found))
    }

    /// Replaces the metadata of a conversation. Returns false if the owner has no such conversation.
    pub async fn set_conversation_metadata(
        &self,
        conversation: &StoredConversation,
        owner: &ObjectOwner,
        now: Micros,
    ) -> Result<bool, StoreError> {
        let StoredConversation { id, account_id, metadata, expires, .. } = conversation;
        let sealer = self.column_sealer().await?;
        let metadata = sealer.text(&metadata_label(id, account_id), metadata)?;
        Ok(on_writer!(&self.db, pool => {
            bind_own!(sqlx::query(SET_METADATA), owner, now, id)
                .bind(clean(&metadata))
                .bind(expires.get())
                .execute(pool)
                .await?
                .rows_affected()
        }) > 0)
    }

    /// Deletes a conversation with its items. Returns false if the owner has no such conversation.
    pub async fn drop_conversation(
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

    /// Adds items behind those of a conversation: all of them or none. The conversation expires at its
    /// new time. Without limits it may become too large for a request.
    pub async fn append_items(
        &self,
        conversation: &StoredConversation,
        owner: &ObjectOwner,
        items: &[ConversationItem],
        limits: Option<ConversationLimits>,
        now: Micros,
    ) -> Result<ItemAdmission, StoreError> {
        let sealer = self.column_sealer().await?;
        let sealed = seal_items(&sealer, conversation, items)?;
        let added = items.iter().map(size_of_item).sum::<u64>();
        let (id, count) = (&conversation.id, database_number(items.len() as u64));
        Ok(in_transaction!(&self.db, tx: Kind => {
            let grown: Option<AddedRow> = bind_own!(sqlx::query_as(GROW), owner, now, id)
                .bind(count)
                .bind(database_number(added))
                .bind(conversation.expires.get())
                .fetch_optional(&mut *tx)
                .await?;
            let Some(AddedRow { key_id, bytes, next }) = grown else {
                return Ok(ItemAdmission::NotFound);
            };
            if let Some(limits) = limits {
                sqlx::query(TAKE_TURN).bind(clean(&key_id)).execute(&mut *tx).await?;
                if bytes > limits.bytes.saturating_add(CONVERSATION_BYTES) {
                    return Ok(ItemAdmission::TooLarge);
                }
                let total: KeyBytes =
                    sqlx::query_as(KEY_BYTES).bind(clean(&key_id)).fetch_one(&mut *tx).await?;
                if total.bytes > limits.key_bytes {
                    return Ok(ItemAdmission::KeyFull);
                }
            }
            if let Some(id) = write_items!(tx, id, next - count, &sealed) {
                return Ok(ItemAdmission::Duplicate(id));
            }
            ItemAdmission::Added
        }))
    }

    /// Returns all items of a conversation, the oldest first.
    pub async fn all_items(
        &self,
        conversation: &StoredConversation,
    ) -> Result<Vec<ConversationItem>, StoreError> {
        let rows: Vec<ItemRow> = on_reader!(&self.db, pool => {
            sqlx::query_as(ALL_ITEMS).bind(clean(&conversation.id)).fetch_all(pool).await?
        });
        self.open_items(conversation, rows).await
    }

    /// Returns a part of the items of a conversation; `None` if it has no item to begin after.
    pub async fn list_items(
        &self,
        conversation: &StoredConversation,
        page: ItemPage<'_>,
    ) -> Result<Option<Vec<ConversationItem>>, StoreError> {
        let id = &conversation.id;
        let start = match page.after {
            None if page.ascending => -1,
            None => i64::MAX,
            Some(after) => {
                let found: Option<PositionRow> = on_reader!(&self.db, pool => {
                    sqlx::query_as(POSITION)
                        .bind(clean(id))
                        .bind(clean(after))
                        .fetch_optional(pool)
                        .await?
                });
                let Some(found) = found else { return Ok(None) };
                found.position
            }
        };
        let query = if page.ascending { ITEMS_UP } else { ITEMS_DOWN };
        let rows: Vec<ItemRow> = on_reader!(&self.db, pool => {
            sqlx::query_as(query)
                .bind(clean(id))
                .bind(start)
                .bind(database_number(page.limit))
                .fetch_all(pool)
                .await?
        });
        self.open_items(conversation, rows).await.map(Some)
    }

    /// Returns an item of a conversation.
    pub async fn conversation_item(
        &self,
        conversation: &StoredConversation,
        item: &str,
    ) -> Result<Option<ConversationItem>, StoreError> {
        let row: Option<ItemRow> = on_reader!(&self.db, pool => {
            sqlx::query_as(GET_ITEM)
                .bind(clean(&conversation.id))
                .bind(clean(item))
                .fetch_optional(pool)
                .await?
        });
        Ok(self.open_items(conversation, row.into_iter().collect()).await?.pop())
    }

    /// Deletes an item. Returns false if the conversation has no such item.
    pub async fn drop_item(
        &self,
        conversation: &StoredConversation,
        item: &str,
    ) -> Result<bool, StoreError> {
        let id = &conversation.id;
        Ok(in_transaction!(&self.db, tx: Kind => {
            let dropped: Option<KeyBytes> = sqlx::query_as(DROP_ITEM)
                .bind(clean(id))
                .bind(clean(item))
                .fetch_optional(&mut *tx)
                .await?;
            let Some(KeyBytes { bytes }) = dropped else { return Ok(false) };
            let bytes = database_number(bytes);
            sqlx::query(SHRINK).bind(clean(id)).bind(bytes).execute(&mut *tx).await?;
            true
        }))
    }

    /// Deletes all expired conversations and returns their number.
    pub async fn sweep_conversations(&self, now: Micros) -> Result<u64, StoreError> {
        Ok(on_writer!(&self.db, pool => {
            sqlx::query(SWEEP).bind(now.get()).execute(pool).await?.rows_affected()
        }))
    }

    async fn open_items(
        &self,
        conversation: &StoredConversation,
        rows: Vec<ItemRow>,
    ) -> Result<Vec<ConversationItem>, StoreError> {
        let mut items = Vec::with_capacity(rows.len());
        for ItemRow { id, body, sealed } in rows {
            let body = self.open_column(&item_label(conversation, &id), body, sealed).await?;
            items.push(ConversationItem { id, body });
        }
        Ok(items)
    }
}

//! Stored responses: the conversation up to a response, and the response itself.
//!
//! Both are opaque JSON texts here, sealed together by a data key. A response of another owner is
//! reported as missing.

use crate::db::{clean, on_reader, on_writer};
use crate::row::row;
use crate::sealed_body::column_label;
use crate::vault::VaultError;
use crate::{ObjectOwner, Store, StoreError};
use canon::Micros;

/// A stored response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredResponse {
    /// Id of the response.
    pub id: String,
    /// The account.
    pub account_id: String,
    /// The key that made it; `None` for one from before keys owned responses.
    pub key_id: Option<String>,
    /// The conversation before it, as JSON.
    pub request: String,
    /// The response, as JSON.
    pub reply: String,
    /// Time of creation.
    pub created: Micros,
    /// Time of expiry.
    pub expires: Micros,
}

row! {
    struct ResponseRow {
        id: String,
        account_id: String,
        key_id: Option<String>,
        request: String,
        reply: String,
        sealed: Option<Vec<u8>>,
        created: Micros,
        expires: Micros,
    }
}

impl StoredResponse {
    fn label(id: &str, account_id: &str) -> String {
        column_label("kept", &[account_id, id], "sealed")
    }

    /// Returns request and reply as one text, behind the length of the request.
    fn bodies(&self) -> Vec<u8> {
        let length = (self.request.len() as u64).to_le_bytes();
        [&length, self.request.as_bytes(), self.reply.as_bytes()].concat()
    }
}

/// Splits the text that [`StoredResponse::bodies`] returned.
fn split_bodies(mut bodies: Vec<u8>) -> Option<(String, String)> {
    let length = u64::from_le_bytes(*bodies.first_chunk()?);
    let reply = 8_usize.checked_add(usize::try_from(length).ok()?)?;
    if reply > bodies.len() {
        return None;
    }
    let reply = String::from_utf8(bodies.split_off(reply)).ok()?;
    bodies.drain(..8);
    Some((String::from_utf8(bodies).ok()?, reply))
}

const PUT: &str = "INSERT INTO kept \
    (id, account_id, key_id, request, reply, created, expires, sealed) \
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8) \
    ON CONFLICT (id) DO UPDATE SET request = excluded.request, reply = excluded.reply, \
    sealed = excluded.sealed, expires = excluded.expires WHERE kept.account_id = excluded.account_id \
    AND COALESCE(kept.key_id, '') = COALESCE(excluded.key_id, '')";
const GET: &str = "SELECT id, account_id, key_id, request, reply, sealed, created, expires FROM kept \
    WHERE id = $1 AND account_id = $2 AND ($3 = '' OR key_id IS NULL OR key_id = $3)";
const DROP: &str = "DELETE FROM kept WHERE id = $1 AND account_id = $2 \
    AND ($3 = '' OR key_id IS NULL OR key_id = $3)";
const SWEEP: &str = "DELETE FROM kept WHERE expires <= $1";

impl Store {
    /// Stores a response or its newer state. Another account or key cannot overwrite it.
    pub async fn store_response(&self, kept: &StoredResponse) -> Result<(), StoreError> {
        let StoredResponse { id, account_id, key_id, request, reply, created, expires } = kept;
        let sealer = self.column_sealer().await?;
        let sealed = sealer.sealed(&StoredResponse::label(id, account_id), || kept.bodies())?;
        let (request, reply) =
            if sealed.is_some() { ("", "") } else { (request.as_str(), reply.as_str()) };
        on_writer!(&self.db, pool => {
            sqlx::query(PUT)
                .bind(clean(id))
                .bind(clean(account_id))
                .bind(key_id.as_deref().map(clean))
                .bind(clean(request))
                .bind(clean(reply))
                .bind(created.get())
                .bind(expires.get())
                .bind(&sealed)
                .execute(pool)
                .await
                .map_err(StoreError::naming("answer id", "account"))?;
        });
        Ok(())
    }

    /// Returns a response of that owner. Expired ones are found until they are swept.
    pub async fn stored_response(
        &self,
        id: &str,
        owner: &ObjectOwner,
    ) -> Result<Option<StoredResponse>, StoreError> {
        let row: Option<ResponseRow> = on_reader!(&self.db, pool => {
            sqlx::query_as(GET)
                .bind(clean(id))
                .bind(clean(owner.account_id()))
                .bind(clean(owner.key_id().unwrap_or_default()))
                .fetch_optional(pool)
                .await?
        });
        let Some(row) = row else { return Ok(None) };
        let ResponseRow { id, account_id, key_id, request, reply, sealed, created, expires } = row;
        let (request, reply) = match sealed {
            None => (request, reply),
            Some(sealed) => {
                let label = StoredResponse::label(&id, &account_id);
                let bodies = self.open_body(&label, &sealed).await?;
                split_bodies(bodies).ok_or(VaultError::Corrupt)?
            }
        };
        Ok(Some(StoredResponse { id, account_id, key_id, request, reply, created, expires }))
    }

    /// Deletes a response. Returns false if the owner has no such response.
    pub async fn drop_response(&self, id: &str, owner: &ObjectOwner) -> Result<bool, StoreError> {
        Ok(on_writer!(&self.db, pool => {
            sqlx::query(DROP)
                .bind(clean(id))
                .bind(clean(owner.account_id()))
                .bind(clean(owner.key_id().unwrap_or_default()))
                .execute(pool)
                .await?
                .rows_affected()
        }) > 0)
    }

    /// Deletes all expired responses and returns their number.
    pub async fn sweep_responses(&self, now: Micros) -> Result<u64, StoreError> {
        Ok(on_writer!(&self.db, pool => {
            sqlx::query(SWEEP).bind(now.get()).execute(pool).await?.rows_affected()
        }))
    }
}

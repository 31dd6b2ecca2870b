//! Sessions of the console. Only a hash of the token is stored.

use crate::accounts::{AccountRow, account_columns};
use crate::audited_change::in_change;
use crate::db::{clean, on_reader, on_writer};
use crate::known_devices::DROP_DEVICES;
use crate::row::row;
use crate::{Account, AuditedChange, Store, StoreError};
use canon::Micros;

/// A session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Hash of the token in the cookie.
    pub hash: Vec<u8>,
    /// The account.
    pub account_id: String,
    /// Time of the sign-in.
    pub created: Micros,
    /// Time of expiry. The store has no clock, so the caller compares.
    pub expires: Micros,
    /// Time of the last use.
    pub seen: Micros,
}

row! {
    /// The session's `created` has an alias, because the account has a column of that name.
    struct SessionRow {
        hash: Vec<u8>,
        session_created: Micros,
        expires: Micros,
        seen: Micros,
    } with account: AccountRow
}

const ADD: &str = "INSERT INTO sessions (hash, account_id, created, expires, seen) \
    VALUES ($1, $2, $3, $4, $5)";
const GET: &str = concat!(
    "SELECT s.hash, s.created AS session_created, s.expires, s.seen, ",
    account_columns!(),
    " FROM sessions s JOIN accounts a ON a.id = s.account_id WHERE s.hash = $1"
);
const TOUCH: &str = "UPDATE sessions SET seen = $2 WHERE hash = $1 AND seen < $2";
const DROP: &str = "DELETE FROM sessions WHERE hash = $1";
const DROP_OF: &str = "DELETE FROM sessions WHERE account_id = $1";
const DROP_EXPIRED: &str = "DELETE FROM sessions WHERE expires <= $1";

impl Store {
    /// Adds a session.
    pub async fn add_session(&self, session: &Session) -> Result<(), StoreError> {
        let Session { hash, account_id, created, expires, seen } = session;
        on_writer!(&self.db, pool => {
            sqlx::query(ADD)
                .bind(hash)
                .bind(clean(account_id))
                .bind(created.get())
                .bind(expires.get())
                .bind(seen.get())
                .execute(pool)
                .await
                .map_err(StoreError::naming("session", "account"))?;
        });
        Ok(())
    }

    /// Returns the session with that hash and its account, without regard to expiry or lock.
    pub async fn session(&self, hash: &[u8]) -> Result<Option<(Session, Account)>, StoreError> {
        let row: Option<SessionRow> = on_reader!(&self.db, pool => {
            sqlx::query_as(GET).bind(hash).fetch_optional(pool).await?
        });
        let Some(SessionRow { hash, session_created, expires, seen, account }) = row else {
            return Ok(None);
        };
        let account = Account::try_from(account)?;
        let account_id = account.id.clone();
        Ok(Some((Session { hash, account_id, created: session_created, expires, seen }, account)))
    }

    /// Records the use of a session.
    pub async fn touch_session(&self, hash: &[u8], seen: Micros) -> Result<(), StoreError> {
        on_writer!(&self.db, pool => {
            sqlx::query(TOUCH).bind(hash).bind(seen.get()).execute(pool).await?;
        });
        Ok(())
    }

    /// Deletes a session. Returns false if there was none.
    pub async fn drop_session(&self, hash: &[u8]) -> Result<bool, StoreError> {
        Ok(on_writer!(&self.db, pool => {
            sqlx::query(DROP).bind(hash).execute(pool).await?.rows_affected()
        }) > 0)
    }

    /// Deletes the sessions that expired before `now` and returns their number.
    pub async fn drop_expired_sessions(&self, now: Micros) -> Result<u64, StoreError> {
        Ok(on_writer!(&self.db, pool => {
            sqlx::query(DROP_EXPIRED).bind(now.get()).execute(pool).await?.rows_affected()
        }))
    }
}

impl AuditedChange {
    /// Deletes every session of an account and returns their number. Its browsers are no longer
    /// known.
    pub async fn drop_sessions_of(&mut self, account_id: &str) -> Result<u64, StoreError> {
        Ok(in_change!(self, tx => {
            sqlx::query(DROP_DEVICES).bind(clean(account_id)).execute(&mut *tx).await?;
            sqlx::query(DROP_OF).bind(clean(account_id)).execute(&mut *tx).await?.rows_affected()
        }))
    }
}

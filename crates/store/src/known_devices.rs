//! Browsers in which a person has signed in before. Only a hash of the token is stored.

use canon::Micros;

use crate::db::{clean, in_transaction, on_reader};
use crate::{Store, StoreError};

// The browser gets a new token with each sign-in. Other people who use it stay known.
const MOVE: &str = "UPDATE known_devices SET hash = $2 WHERE hash = $1";
const ADD: &str = "INSERT INTO known_devices (hash, account_id, seen) VALUES ($1, $2, $3) \
    ON CONFLICT (hash, account_id) DO UPDATE SET seen = $3";
const TRIM: &str = "DELETE FROM known_devices WHERE account_id = $1 AND hash NOT IN \
    (SELECT hash FROM known_devices WHERE account_id = $1 ORDER BY seen DESC, hash LIMIT $2)";
const DROP_OLD: &str = "DELETE FROM known_devices WHERE seen < $1";
const SEEN: &str = "SELECT seen FROM known_devices WHERE hash = $1 AND account_id = $2";
/// Forgets every browser of an account.
pub(crate) const DROP_DEVICES: &str = "DELETE FROM known_devices WHERE account_id = $1";

/// A browser in which a person signs in.
#[derive(Clone, Copy, Debug)]
pub struct KnownDevice<'a> {
    /// Hash of the token in the cookie.
    pub hash: &'a [u8],
    /// Hash of the token that the browser had before.
    pub replaces: Option<&'a [u8]>,
    /// The account.
    pub account_id: &'a str,
    /// Time of the sign-in.
    pub seen: Micros,
}

impl Store {
    /// Remembers a browser. An account has at most `max` of them, and those last seen before
    /// `since` are forgotten.
    pub async fn remember_device(
        &self,
        device: KnownDevice<'_>,
        max: u32,
        since: Micros,
    ) -> Result<(), StoreError> {
        let KnownDevice { hash, replaces, account_id, seen } = device;
        let account_id = clean(account_id);
        in_transaction!(&self.db, tx: Kind => {
            if let Some(old) = replaces {
                sqlx::query(MOVE).bind(old).bind(hash).execute(&mut *tx).await?;
            }
            let add = sqlx::query(ADD).bind(hash).bind(&*account_id).bind(seen.get());
            add.execute(&mut *tx).await.map_err(StoreError::naming("device", "account"))?;
            let trim = sqlx::query(TRIM).bind(&*account_id).bind(i64::from(max));
            trim.execute(&mut *tx).await?;
            sqlx::query(DROP_OLD).bind(since.get()).execute(&mut *tx).await?;
        });
        Ok(())
    }

    /// Returns the time of the account's last sign-in in that browser.
    pub async fn device_seen(
        &self,
        hash: &[u8],
        account_id: &str,
    ) -> Result<Option<Micros>, StoreError> {
        let seen: Option<i64> = on_reader!(&self.db, pool => {
            sqlx::query_scalar(SEEN).bind(hash).bind(clean(account_id)).fetch_optional(pool).await?
        });
        Ok(seen.map(Micros::new))
    }
}

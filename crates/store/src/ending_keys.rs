//! Keys that expire soon, with what was told of it.

use canon::Micros;

use crate::db::on_reader;
use crate::row::row;
use crate::{Store, StoreError};

row! {
    /// A key that expires soon.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct EndingKey {
        /// The account.
        pub account_id: String,
        /// The key.
        pub key_id: String,
        /// Time of its creation.
        pub created: Micros,
        /// When it expires.
        pub expires: Micros,
        /// The smallest number of days before this time that was told.
        pub told: Option<u8>,
    }
}

/// Keys of programs that sign in renew themselves.
const ENDING: &str = "SELECT k.account_id, k.id AS key_id, k.created, k.expires, \
    (SELECT MIN(t.level) FROM alerts t WHERE t.account_id = k.account_id AND t.key_id = k.id \
    AND t.bound = 'key_expiry' AND t.begun = k.expires) AS told \
    FROM keys k JOIN accounts a ON a.id = k.account_id AND NOT a.disabled \
    WHERE k.expires > $1 AND k.expires <= $2 AND k.revoked IS NULL AND k.surface IS NULL \
    ORDER BY k.expires, k.id";

impl Store {
    /// Returns the keys that work now and expire until that time, except those of programs that have signed in.
    pub async fn ending_keys(
        &self,
        now: Micros,
        until: Micros,
    ) -> Result<Vec<EndingKey>, StoreError> {
        Ok(on_reader!(&self.db, pool => {
            let query = sqlx::query_as(ENDING).bind(now.get()).bind(until.get());
            query.fetch_all(pool).await?
        }))
    }
}

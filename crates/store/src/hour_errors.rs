//! Failed calls of each hour, of the whole gateway.

use canon::Micros;

use crate::db::on_reader;
use crate::row::row;
use crate::{Store, StoreError};

/// A call has failed if its caller got a 5xx. `span` and `scope` are constants, so that partial indexes can be used.
const HOURS: &str = "SELECT begun, CAST(SUM(calls) AS BIGINT) AS calls, \
    CAST(SUM(CASE WHEN status >= 500 THEN calls ELSE 0 END) AS BIGINT) AS failed FROM usage \
    WHERE span = 'hour' AND scope = 'all' AND begun >= $1 GROUP BY begun ORDER BY begun";

row! {
    /// Calls of one hour.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct HourErrors {
        /// Begin of the hour.
        pub begun: Micros,
        /// Settled calls that began in it.
        pub calls: i64,
        /// Calls that failed.
        pub failed: i64,
    }
}

impl Store {
    /// Returns the calls of the hours that begin then or later, the oldest first. Hours without calls are left out.
    pub async fn hour_errors(&self, since: Micros) -> Result<Vec<HourErrors>, StoreError> {
        Ok(on_reader!(&self.db, pool => {
            sqlx::query_as(HOURS).bind(since.get()).fetch_all(pool).await?
        }))
    }
}

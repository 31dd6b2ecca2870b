//! Counters of rate-limited attempts, such as sign-ins, shared by all nodes.
//!
//! The store only updates them atomically. Callers define their meaning.

use crate::db::{in_transaction, on_writer};
use crate::row::row;
use crate::{Store, StoreError};
use canon::Micros;

row! {
    /// A counter of attempts.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct AttemptCounter {
        /// Number of attempts.
        pub tries: i64,
        /// Time of the last attempt.
        pub last: Micros,
        /// When the next attempt is permitted.
        pub closed_until: Micros,
    }
}

// Locks the row and creates it if necessary.
const TOUCH: &str = "INSERT INTO tallies (hash, tries, last, closed_until) VALUES ($1, 0, $2, 0) \
    ON CONFLICT (hash) DO UPDATE SET tries = tallies.tries RETURNING tries, last, closed_until";
const PUT: &str = "UPDATE tallies SET tries = $2, last = $3, closed_until = $4 WHERE hash = $1";
const DROP: &str = "DELETE FROM tallies WHERE hash = $1";
const DROP_OLD: &str = "DELETE FROM tallies WHERE last < $1 AND closed_until < $1";

impl Store {
    /// Changes some counters in one transaction, in the order of their digests. New ones begin at
    /// zero. If `change` fails, nothing is changed and its error is returned.
    pub async fn change_attempts<E: From<StoreError>>(
        &self,
        hashes: &[Vec<u8>],
        now: Micros,
        change: impl Fn(&mut [AttemptCounter]) -> Result<(), E>,
    ) -> Result<(), E> {
        match self.change_counters(hashes, now, change).await {
            Ok(None) => Ok(()),
            Ok(Some(refused)) => Err(refused),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the error of `change`, if it failed.
    async fn change_counters<E>(
        &self,
        hashes: &[Vec<u8>],
        now: Micros,
        change: impl Fn(&mut [AttemptCounter]) -> Result<(), E>,
    ) -> Result<Option<E>, StoreError> {
        // A fixed order of locking prevents deadlocks.
        let mut hashes: Vec<&Vec<u8>> = hashes.iter().collect();
        hashes.sort_unstable();
        in_transaction!(&self.db, tx: Kind => {
            let mut tallies = Vec::with_capacity(hashes.len());
            for hash in &hashes {
                let tally: AttemptCounter =
                    sqlx::query_as(TOUCH).bind(*hash).bind(now.get()).fetch_one(&mut *tx).await?;
                tallies.push(tally);
            }
            if let Err(refused) = change(&mut tallies) {
                return Ok(Some(refused));
            }
            for (hash, AttemptCounter { tries, last, closed_until }) in hashes.iter().zip(tallies) {
                let put = sqlx::query(PUT).bind(*hash).bind(tries).bind(last.get()).bind(closed_until.get());
                put.execute(&mut *tx).await?;
            }
        });
        Ok(None)
    }

    /// Deletes counters.
    pub async fn drop_attempts(&self, hashes: &[Vec<u8>]) -> Result<(), StoreError> {
        let mut hashes: Vec<&Vec<u8>> = hashes.iter().collect();
        hashes.sort_unstable();
        for hash in hashes {
            on_writer!(&self.db, pool => {
                sqlx::query(DROP).bind(hash).execute(pool).await.map(drop)
            })?;
        }
        Ok(())
    }

    /// Deletes counters without an attempt since that time that block no caller.
    pub async fn drop_old_attempts(&self, since: Micros) -> Result<(), StoreError> {
        on_writer!(&self.db, pool => {
            sqlx::query(DROP_OLD).bind(since.get()).execute(pool).await.map(drop)
        })?;
        Ok(())
    }
}

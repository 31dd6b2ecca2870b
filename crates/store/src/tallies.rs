//! How often something was tried that may not be tried too often, counted over all nodes.
//!
//! The store only keeps the numbers together: what they mean is for whoever counts.

use ledger::Micros;

use crate::db::{in_transaction, on_writer};
use crate::{Store, StoreError};

/// How often something was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally {
    /// How often.
    pub tries: i64,
    /// When the last time.
    pub last: Micros,
    /// Until when it may not be tried.
    pub closed_until: Micros,
}

// Locks the row, whether it was there or not.
const TOUCH: &str = "INSERT INTO tallies (hash, tries, last, closed_until) VALUES ($1, 0, $2, 0) \
    ON CONFLICT (hash) DO UPDATE SET tries = tallies.tries RETURNING tries, last, closed_until";
const PUT: &str = "UPDATE tallies SET tries = $2, last = $3, closed_until = $4 WHERE hash = $1";
const DROP: &str = "DELETE FROM tallies WHERE hash = $1";
const DROP_OLD: &str = "DELETE FROM tallies WHERE last < $1 AND closed_until < $1";

impl Store {
    /// Changes some tallies together, in the order of their digests; new ones begin now, at nothing.
    /// When `change` refuses, nothing is changed.
    pub async fn tally<E>(
        &self,
        hashes: &[Vec<u8>],
        now: Micros,
        change: impl Fn(&mut [Tally]) -> Result<(), E>,
    ) -> Result<Result<(), E>, StoreError> {
        // All lock them in one order, so that two who share some cannot wait for each other.
        let mut hashes: Vec<&Vec<u8>> = hashes.iter().collect();
        hashes.sort_unstable();
        in_transaction!(&self.db, tx: Kind => {
            let mut tallies = Vec::with_capacity(hashes.len());
            for hash in &hashes {
                let (tries, last, closed_until) =
                    sqlx::query_as(TOUCH).bind(*hash).bind(now).fetch_one(&mut *tx).await?;
                tallies.push(Tally { tries, last, closed_until });
            }
            if let Err(refused) = change(&mut tallies) {
                return Ok(Err(refused));
            }
            for (hash, Tally { tries, last, closed_until }) in hashes.iter().zip(tallies) {
                let put = sqlx::query(PUT).bind(*hash).bind(tries).bind(last).bind(closed_until);
                put.execute(&mut *tx).await?;
            }
        });
        Ok(Ok(()))
    }

    /// Forgets tallies.
    pub async fn drop_tallies(&self, hashes: &[Vec<u8>]) -> Result<(), StoreError> {
        let mut hashes: Vec<&Vec<u8>> = hashes.iter().collect();
        hashes.sort_unstable();
        for hash in hashes {
            on_writer!(&self.db, pool => {
                sqlx::query(DROP).bind(hash).execute(pool).await.map(drop)
            })?;
        }
        Ok(())
    }

    /// Forgets those that nobody has touched since, and that hold nobody up.
    pub async fn drop_old_tallies(&self, since: Micros) -> Result<(), StoreError> {
        on_writer!(&self.db, pool => {
            sqlx::query(DROP_OLD).bind(since).execute(pool).await.map(drop)
        })?;
        Ok(())
    }
}

//! Calls with an idempotency key: who runs them, and how they were answered.
//!
//! One conditional write decides who runs a call, so that of all nodes exactly one does. A claim
//! ends with its time, lest a node that died keep its callers out for good; what a node that lost
//! its claim still has to say is not heard.

use sqlx::FromRow;

use crate::db::{clean, number, on_reader, on_writer};
use crate::{Micros, Store, StoreError};

/// Which call: an account's, by the name its caller gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallName {
    /// Whose call it is.
    pub account_id: String,
    /// The caller's name for it.
    pub name: String,
}

/// Who wants to run a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The call.
    pub call: CallName,
    /// What is asked: the same name must ask the same.
    pub hash: Vec<u8>,
    /// Who runs it, unlike anyone else.
    pub owner: String,
    /// Until when it is theirs, if they do not say more.
    pub held_until: Micros,
    /// Until when it is remembered.
    pub expires: Micros,
}

/// What became of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// It is the claimant's to run.
    Ours,
    /// Another runs it, until that time at least unless it ends.
    Running(Micros),
    /// It is over, and this was the answer.
    Over(KeptAnswer),
    /// The name was used for another request.
    Different,
}

/// An answer as it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptAnswer {
    /// Its status.
    pub status: u16,
    /// Its headers, as JSON.
    pub headers: String,
    /// Its body; `None` when it was too large to be kept.
    pub body: Option<Vec<u8>>,
}

#[derive(FromRow)]
struct Row {
    hash: Vec<u8>,
    held_until: Micros,
    expires: Micros,
    status: Option<i64>,
    headers: Option<String>,
    body: Option<Vec<u8>>,
}

// What has expired is anyone's; what its runner gave up by silence is for the same request only.
const CLAIM: &str = "INSERT INTO idempotent (account_id, name, hash, owner, held_until, expires) \
    VALUES ($1, $2, $3, $4, $5, $6) \
    ON CONFLICT (account_id, name) DO UPDATE SET hash = excluded.hash, owner = excluded.owner, \
    held_until = excluded.held_until, expires = excluded.expires, status = NULL, headers = NULL, \
    body = NULL \
    WHERE idempotent.expires <= $7 OR (idempotent.status IS NULL \
    AND idempotent.held_until <= $7 AND idempotent.hash = excluded.hash)";
const LOOK: &str = "SELECT hash, held_until, expires, status, headers, body FROM idempotent \
    WHERE account_id = $1 AND name = $2";
const HOLD: &str = "UPDATE idempotent SET held_until = $4 \
    WHERE account_id = $1 AND name = $2 AND owner = $3 AND status IS NULL";
const FINISH: &str = "UPDATE idempotent SET status = $4, headers = $5, body = $6 \
    WHERE account_id = $1 AND name = $2 AND owner = $3 AND status IS NULL";
const RELEASE: &str = "DELETE FROM idempotent \
    WHERE account_id = $1 AND name = $2 AND owner = $3 AND status IS NULL";
const SWEEP: &str = "DELETE FROM idempotent WHERE expires <= $1";

impl Store {
    /// Claims a call, at that time. Of all who claim it at once, one gets it.
    pub async fn claim(&self, claim: &Claim, now: Micros) -> Result<Claimed, StoreError> {
        let Claim { call, hash, owner, held_until, expires } = claim;
        // The row can go between the two statements when its runner fails: then it is free again.
        for _ in 0..3 {
            let ours = on_writer!(&self.db, pool => {
                sqlx::query(CLAIM)
                    .bind(clean(&call.account_id))
                    .bind(clean(&call.name))
                    .bind(hash)
                    .bind(clean(owner))
                    .bind(*held_until)
                    .bind(*expires)
                    .bind(now)
                    .execute(pool)
                    .await
                    .map_err(StoreError::naming("idempotency key", "account"))?
                    .rows_affected()
            });
            if ours > 0 {
                return Ok(Claimed::Ours);
            }
            let row: Option<Row> = on_reader!(&self.db, pool => {
                sqlx::query_as(LOOK)
                    .bind(clean(&call.account_id))
                    .bind(clean(&call.name))
                    .fetch_optional(pool)
                    .await?
            });
            let Some(row) = row.filter(|row| row.expires > now) else { continue };
            if row.hash != *hash {
                return Ok(Claimed::Different);
            }
            return Ok(match row.status {
                None => Claimed::Running(row.held_until),
                Some(status) => Claimed::Over(KeptAnswer {
                    status: number(status)?,
                    headers: row.headers.unwrap_or_default(),
                    body: row.body,
                }),
            });
        }
        Ok(Claimed::Running(now))
    }

    /// Its runner is at work and wants it for longer. False when it is not theirs any more.
    pub async fn hold_claim(
        &self,
        call: &CallName,
        owner: &str,
        held_until: Micros,
    ) -> Result<bool, StoreError> {
        Ok(on_writer!(&self.db, pool => {
            sqlx::query(HOLD)
                .bind(clean(&call.account_id))
                .bind(clean(&call.name))
                .bind(clean(owner))
                .bind(held_until)
                .execute(pool)
                .await?
                .rows_affected()
        }) > 0)
    }

    /// The call was answered. False when it is not this runner's any more.
    pub async fn finish_claim(
        &self,
        call: &CallName,
        owner: &str,
        answer: &KeptAnswer,
    ) -> Result<bool, StoreError> {
        Ok(on_writer!(&self.db, pool => {
            sqlx::query(FINISH)
                .bind(clean(&call.account_id))
                .bind(clean(&call.name))
                .bind(clean(owner))
                .bind(i64::from(answer.status))
                .bind(clean(&answer.headers))
                .bind(answer.body.as_deref())
                .execute(pool)
                .await?
                .rows_affected()
        }) > 0)
    }

    /// The call failed: whoever claims it next may run it.
    pub async fn release_claim(&self, call: &CallName, owner: &str) -> Result<bool, StoreError> {
        Ok(on_writer!(&self.db, pool => {
            sqlx::query(RELEASE)
                .bind(clean(&call.account_id))
                .bind(clean(&call.name))
                .bind(clean(owner))
                .execute(pool)
                .await?
                .rows_affected()
        }) > 0)
    }

    /// Forgets every call whose time is over, and tells how many.
    pub async fn sweep_claims(&self, now: Micros) -> Result<u64, StoreError> {
        Ok(on_writer!(&self.db, pool => {
            sqlx::query(SWEEP).bind(now).execute(pool).await?.rows_affected()
        }))
    }
}

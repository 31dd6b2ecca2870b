//! Calls with an idempotency key, and their stored replies.
//!
//! One conditional write decides which node runs a call, so that exactly one does. The node renews
//! its claim while the call runs. Another node that sees no renewal for a while takes the claim over,
//! so that a dead node does not block its callers forever. It names the claim as it saw it, so that no
//! clock decides: a renewal in the meantime makes the take-over fail. A node that lost its claim can
//! no longer store a reply. A data key seals headers and body of the reply.
//!
//! Only a complete call expires by the clock of the database. One that runs is kept by its renewals, which
//! also move its expiry along with the clock, so that a clock that is set never runs a call twice.

use crate::db::{clean, on_reader, on_writer};
use crate::row::row;
use crate::sealed_body::{column_label, is_sealed};
use crate::{ObjectOwner, Store, StoreError};
use canon::Micros;

/// Attempts to claim a call whose claims come and go.
const MAX_CLAIM_TRIES: usize = 3;

/// A call, identified by its owner and the caller's idempotency key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CallName {
    /// The account.
    pub account_id: String,
    /// The idempotency key, behind the id of the API key unless the account shares its replies.
    pub name: String,
}

impl CallName {
    /// Names a call of that owner. A header cannot contain a line break, so that the names of two
    /// owners never meet.
    pub fn new(owner: &ObjectOwner, name: &str) -> Self {
        let name = match owner.key_id() {
            Some(key_id) => format!("{key_id}\n{name}"),
            None => name.to_owned(),
        };
        Self { account_id: owner.account_id().to_owned(), name }
    }

    fn label(&self, column: &str) -> String {
        column_label("idempotent", &[&self.account_id, &self.name], column)
    }
}

/// A claim to run a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallClaim {
    /// The call.
    pub call: CallName,
    /// Hash of the request. Another request with the same key is refused.
    pub hash: Vec<u8>,
    /// Unique id of the claimant.
    pub owner: String,
    /// Time after which the call is forgotten, by the clock of the database.
    pub lifetime: Micros,
}

/// A running claim as another claimant saw it. Every renewal changes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimSight {
    owner: String,
    renewals: i64,
    /// Changed by the renewals of earlier versions, which do not count them.
    held_until: Micros,
}

/// The result of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimResult {
    /// The claimant runs the call.
    Ours,
    /// Another claimant runs it, or did so when its node died.
    Running(ClaimSight),
    /// It is complete, with this reply.
    Over(StoredReply),
    /// The idempotency key was used for another request.
    Different,
}

/// A stored reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredReply {
    /// HTTP status.
    pub status: u16,
    /// Headers as JSON.
    pub headers: String,
    /// Body; `None` if it was too large to store.
    pub body: Option<Vec<u8>>,
}

row! {
    struct ClaimRow {
        hash: Vec<u8>,
        owner: String,
        renewals: i64,
        held_until: Micros,
        time_left: Micros,
        status: Option<u16>,
        headers: Option<String>,
        body: Option<Vec<u8>>,
    }
}

row! {
    struct ExpiredRow {
        account_id: String,
        name: String,
        owner: String,
        renewals: i64,
        held_until: Micros,
    }
}

/// Time after a renewal at which nodes of earlier versions take a claim over.
const HELD_TIME: Micros = Micros::from_secs(15);

// Anyone can take over an expired row of a complete call. Nothing else is judged by a clock.
const CLAIM: &str = "INSERT INTO idempotent (account_id, name, hash, owner, held_until, expires) \
    VALUES ($1, $2, $3, $4, (SELECT now FROM store_clock) + $5, \
    (SELECT now FROM store_clock) + $6) \
    ON CONFLICT (account_id, name) DO UPDATE SET hash = excluded.hash, owner = excluded.owner, \
    held_until = excluded.held_until, expires = excluded.expires, renewals = 0, status = NULL, \
    headers = NULL, body = NULL \
    WHERE idempotent.status IS NOT NULL AND idempotent.expires <= (SELECT now FROM store_clock)";
const LOOK: &str = "SELECT hash, owner, renewals, held_until, \
    expires - (SELECT now FROM store_clock) AS time_left, status, headers, body FROM idempotent \
    WHERE account_id = $1 AND name = $2 \
    AND (status IS NULL OR expires > (SELECT now FROM store_clock))";
// An abandoned claim can be taken over by the same request only, until it expires.
const TAKE_OVER: &str = "UPDATE idempotent SET hash = $3, owner = $4, renewals = 0, \
    held_until = (SELECT now FROM store_clock) + $5, expires = (SELECT now FROM store_clock) + $6 \
    WHERE account_id = $1 AND name = $2 AND status IS NULL \
    AND (hash = $3 OR expires <= (SELECT now FROM store_clock)) \
    AND owner = $7 AND renewals = $8 AND held_until = $9";
// The lifetime counts from the last renewal, at which `held_until` was set.
const RENEW: &str = "UPDATE idempotent SET renewals = renewals + 1, \
    expires = expires - held_until + (SELECT now FROM store_clock) + $4, \
    held_until = (SELECT now FROM store_clock) + $4 \
    WHERE account_id = $1 AND name = $2 AND owner = $3 AND status IS NULL";
const FINISH: &str = "UPDATE idempotent SET status = $4, headers = $5, body = $6, \
    expires = expires - held_until + (SELECT now FROM store_clock) + $7 \
    WHERE account_id = $1 AND name = $2 AND owner = $3 AND status IS NULL";
const RELEASE: &str = "DELETE FROM idempotent \
    WHERE account_id = $1 AND name = $2 AND owner = $3 AND status IS NULL";
const SWEEP: &str = "DELETE FROM idempotent \
    WHERE status IS NOT NULL AND expires <= (SELECT now FROM store_clock)";
const EXPIRED: &str = "SELECT account_id, name, owner, renewals, held_until FROM idempotent \
    WHERE status IS NULL AND expires <= (SELECT now FROM store_clock) LIMIT 1000";
const DROP: &str = "DELETE FROM idempotent WHERE account_id = $1 AND name = $2 AND status IS NULL \
    AND owner = $3 AND renewals = $4 AND held_until = $5";

impl Store {
    /// Claims a call. Of several concurrent claims, one succeeds.
    pub async fn claim(&self, claim: &CallClaim) -> Result<ClaimResult, StoreError> {
        let CallClaim { call, hash, owner, lifetime } = claim;
        // The row can be released between the two statements, and then the claim is tried again.
        for _ in 0..MAX_CLAIM_TRIES {
            let ours = on_writer!(&self.db, pool => {
                sqlx::query(CLAIM)
                    .bind(clean(&call.account_id))
                    .bind(clean(&call.name))
                    .bind(hash)
                    .bind(clean(owner))
                    .bind(HELD_TIME.get())
                    .bind(lifetime.get())
                    .execute(pool)
                    .await
                    .map_err(StoreError::naming("idempotency key", "account"))?
                    .rows_affected()
            });
            if ours > 0 {
                return Ok(ClaimResult::Ours);
            }
            let row: Option<ClaimRow> = on_reader!(&self.db, pool => {
                sqlx::query_as(LOOK)
                    .bind(clean(&call.account_id))
                    .bind(clean(&call.name))
                    .fetch_optional(pool)
                    .await?
            });
            let Some(row) = row else { continue };
            let ClaimRow {
                hash: found,
                owner,
                renewals,
                held_until,
                time_left,
                status,
                headers,
                body,
            } = row;
            // The name of a claim that expired is free once nobody renews it.
            if found != *hash && time_left > Micros::ZERO {
                return Ok(ClaimResult::Different);
            }
            return Ok(match status {
                None => ClaimResult::Running(ClaimSight { owner, renewals, held_until }),
                Some(status) => {
                    let headers = headers.unwrap_or_default();
                    ClaimResult::Over(self.open_reply(call, status, headers, body).await?)
                }
            });
        }
        // Claims of others come and go. No such claim can be taken over.
        let (owner, renewals, held_until) = (String::new(), 0, Micros::ZERO);
        Ok(ClaimResult::Running(ClaimSight { owner, renewals, held_until }))
    }

    /// Takes over a claim that was seen without a renewal for a while. Returns false if it was
    /// renewed, released or taken over since.
    pub async fn take_over_claim(
        &self,
        claim: &CallClaim,
        seen: &ClaimSight,
    ) -> Result<bool, StoreError> {
        let CallClaim { call, hash, owner, lifetime } = claim;
        Ok(on_writer!(&self.db, pool => {
            sqlx::query(TAKE_OVER)
                .bind(clean(&call.account_id))
                .bind(clean(&call.name))
                .bind(hash)
                .bind(clean(owner))
                .bind(HELD_TIME.get())
                .bind(lifetime.get())
                .bind(clean(&seen.owner))
                .bind(seen.renewals)
                .bind(seen.held_until.get())
                .execute(pool)
                .await?
                .rows_affected()
        }) > 0)
    }

    async fn open_reply(
        &self,
        call: &CallName,
        status: u16,
        headers: String,
        body: Option<Vec<u8>>,
    ) -> Result<StoredReply, StoreError> {
        let body = match body {
            Some(body) if is_sealed(&headers) => {
                Some(self.open_body(&call.label("body"), &body).await?)
            }
            other => other,
        };
        let headers = self.open_text(&call.label("headers"), headers).await?;
        Ok(StoredReply { status, headers, body })
    }

    /// Renews a claim. Returns false if it was lost.
    pub async fn renew_claim(&self, call: &CallName, owner: &str) -> Result<bool, StoreError> {
        Ok(on_writer!(&self.db, pool => {
            sqlx::query(RENEW)
                .bind(clean(&call.account_id))
                .bind(clean(&call.name))
                .bind(clean(owner))
                .bind(HELD_TIME.get())
                .execute(pool)
                .await?
                .rows_affected()
        }) > 0)
    }

    /// Stores the reply of a call. Returns false if the claim was lost.
    pub async fn finish_claim(
        &self,
        call: &CallName,
        owner: &str,
        answer: &StoredReply,
    ) -> Result<bool, StoreError> {
        let sealer = self.column_sealer().await?;
        let headers = sealer.text(&call.label("headers"), &answer.headers)?;
        let body = answer.body.as_deref();
        let body = body.map(|body| sealer.bytes(&call.label("body"), body)).transpose()?;
        Ok(on_writer!(&self.db, pool => {
            sqlx::query(FINISH)
                .bind(clean(&call.account_id))
                .bind(clean(&call.name))
                .bind(clean(owner))
                .bind(i64::from(answer.status))
                .bind(clean(&headers))
                .bind(body.as_deref())
                .bind(HELD_TIME.get())
                .execute(pool)
                .await?
                .rows_affected()
        }) > 0)
    }

    /// Releases the claim of a failed call, so that it can be run again.
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

    /// Returns running claims whose time is over, by the clock of the database. Their nodes may live.
    pub async fn expired_claims(&self) -> Result<Vec<(CallName, ClaimSight)>, StoreError> {
        let rows: Vec<ExpiredRow> =
            on_reader!(&self.db, pool => sqlx::query_as(EXPIRED).fetch_all(pool).await?);
        let claims = rows.into_iter().map(|row| {
            let ExpiredRow { account_id, name, owner, renewals, held_until } = row;
            (CallName { account_id, name }, ClaimSight { owner, renewals, held_until })
        });
        Ok(claims.collect())
    }

    /// Deletes a claim that was seen without a renewal for a while. Returns false if it was renewed,
    /// released or taken over since.
    pub async fn drop_claim(&self, call: &CallName, seen: &ClaimSight) -> Result<bool, StoreError> {
        let ClaimSight { owner, renewals, held_until } = seen;
        Ok(on_writer!(&self.db, pool => {
            sqlx::query(DROP)
                .bind(clean(&call.account_id))
                .bind(clean(&call.name))
                .bind(clean(owner))
                .bind(renewals)
                .bind(held_until.get())
                .execute(pool)
                .await?
                .rows_affected()
        }) > 0)
    }

    /// Deletes all complete calls that expired and returns their number.
    pub async fn sweep_claims(&self) -> Result<u64, StoreError> {
        Ok(on_writer!(&self.db, pool => {
            sqlx::query(SWEEP).execute(pool).await?.rows_affected()
        }))
    }
}

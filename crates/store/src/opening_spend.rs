//! Spending from before a key was here: calls of another gateway, summed up.
//!
//! An opening entry is a row of the ledger like that of a call, so that caps, budgets, sums of usage and
//! [`Store::verify`](crate::Store::verify) need no second kind of spending. It has no lease, and is
//! written in the change that adds its key: nobody can have leased money of it before.

use ledger::LedgerEntry;

use crate::audited_change::in_change;
use crate::call_writes::{choose_numbers, insert_calls};
use crate::db::clean;
use crate::rollup::{add_usage, group_calls, sum_groups};
use crate::{AuditedChange, StoreError};

/// The last use of the key stays unknown.
const CHARGE: &str = "UPDATE keys SET spent = spent + $2 WHERE id = $1";

impl AuditedChange {
    /// Adds the spending of keys that this change added. A limit that it passes is not checked.
    pub async fn add_opening_spend(&mut self, entries: &[LedgerEntry]) -> Result<(), StoreError> {
        if entries.is_empty() {
            return Ok(());
        }
        let calls: Vec<&LedgerEntry> = entries.iter().collect();
        let groups = group_calls(calls.iter().map(|call| (*call, None)))?;
        in_change!(self, tx: Kind => {
            for call in &calls {
                let charge = sqlx::query(CHARGE).bind(clean(&call.key_id));
                let charged = charge.bind(call.cost.as_nanos()).execute(&mut *tx).await?;
                if charged.rows_affected() != 1 {
                    return Err(StoreError::Missing("key"));
                }
            }
            let numbers = choose_numbers!(Kind, tx, &calls);
            if insert_calls!(Kind, tx, &calls, &numbers) != calls.len() as u64 {
                return Err(StoreError::Conflict("request id"));
            }
            add_usage!(Kind, tx, sum_groups(&groups)?);
        });
        Ok(())
    }
}

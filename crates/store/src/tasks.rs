//! Tasks: background work that any node can claim.
//!
//! Claims queue on one row. So exactly one node gets a task, accounts are served in turn, and a
//! provider never runs more tasks than permitted. A claim expires by the database's clock. Every
//! claim increases the number of runs, and the store accepts updates of the latest run only. A data
//! key seals requests, URLs of webhooks, results and errors.

use crate::db::{clean, in_transaction, on_reader, on_writer, unknown_word};
use crate::row::row;
use crate::task_bodies::SealedTask;
use crate::task_state::{DeliveryState, TaskState};
use crate::{ObjectOwner, Store, StoreError};
use canon::Micros;

/// A task to add.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTask {
    /// Its id. Later tasks have greater ids.
    pub id: String,
    /// The account.
    pub account_id: String,
    /// The key that pays.
    pub key_id: String,
    /// Path of the request.
    pub path: String,
    /// The requested model.
    pub model: String,
    /// The provider expected to serve it. The task counts against its limit.
    pub provider: String,
    /// The request.
    pub request: TaskBody,
    /// URL to notify of its end.
    pub webhook: Option<String>,
    /// Time of creation.
    pub created: Micros,
    /// When it fails if no node has completed it.
    pub expires: Micros,
    /// Unfinished tasks that its key may have, this one included.
    pub max_open: u32,
}

row! {
    /// The request of a task.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct TaskBody {
        /// Headers as JSON.
        pub head: String,
        /// Body, if it is small.
        pub body: Option<Vec<u8>>,
        /// File with the body, if it is large.
        pub file: Option<String> as "body_file",
    }
}

/// A task as its owner sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Its id.
    pub id: String,
    /// The account.
    pub account_id: String,
    /// The key that pays.
    pub key_id: String,
    /// Path of the request.
    pub path: String,
    /// The requested model.
    pub model: String,
    /// The state.
    pub state: TaskState,
    /// Progress in percent.
    pub progress: u8,
    /// Request id of the latest run.
    pub request_id: Option<String>,
    /// Result as JSON.
    pub result: Option<String>,
    /// Error as JSON.
    pub error: Option<String>,
    /// Reason for the operator why the kept result or error cannot be opened.
    pub unreadable: Option<String>,
    /// Number of runs, which is the number of the latest claim.
    pub runs: u32,
    /// The notification of its end.
    pub webhook: Option<TaskWebhook>,
    /// Time of creation.
    pub created: Micros,
    /// Time of its end.
    pub ended: Option<Micros>,
    /// When it is deleted.
    pub expires: Micros,
}

/// The notification of a task's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskWebhook {
    /// The URL; empty if it cannot be opened.
    pub url: String,
    /// State of the delivery; `None` before the task has ended.
    pub delivery: Option<DeliveryState>,
    /// Number of attempts.
    pub tries: u32,
    /// HTTP status of the last attempt.
    pub status: Option<u16>,
}

/// A claim for the next task.
#[derive(Clone, Debug)]
pub struct TaskClaim<'a> {
    /// The node.
    pub owner: &'a str,
    /// The request id of the run.
    pub request_id: &'a str,
    /// Duration of the claim, unless it is extended.
    pub hold: Micros,
    /// Maximum number of running tasks of one provider, on all nodes together.
    pub per_provider: u32,
}

/// The end of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskEnd {
    /// The final state.
    pub state: TaskState,
    /// Result as JSON.
    pub result: Option<String>,
    /// Error as JSON.
    pub error: Option<String>,
    /// Time of the end.
    pub ended: Micros,
    /// When the task is deleted.
    pub expires: Micros,
}

row! {
    pub(crate) struct TaskRow {
        id: String,
        account_id: String,
        key_id: String,
        path: String,
        model: String,
        status: String,
        progress: u8,
        request_id: Option<String>,
        result: Option<String>,
        error: Option<String>,
        runs: u32,
        webhook: Option<String>,
        hook_state: Option<String>,
        hook_tries: u32,
        hook_status: Option<u16>,
        created: Micros,
        ended: Option<Micros>,
        expires: Micros,
    }
}

impl TryFrom<TaskRow> for Task {
    type Error = sqlx::Error;

    fn try_from(row: TaskRow) -> Result<Self, sqlx::Error> {
        let state = TaskState::by_word(&row.status).ok_or_else(|| unknown_word(&row.status))?;
        let told = row
            .hook_state
            .as_deref()
            .map(|word| DeliveryState::by_word(word).ok_or_else(|| unknown_word(word)));
        let (told, tries, status) = (told.transpose()?, row.hook_tries, row.hook_status);
        Ok(Self {
            id: row.id,
            account_id: row.account_id,
            key_id: row.key_id,
            path: row.path,
            model: row.model,
            state,
            progress: row.progress,
            request_id: row.request_id,
            result: row.result,
            error: row.error,
            unreadable: None,
            runs: row.runs,
            webhook: row.webhook.map(|url| TaskWebhook { url, delivery: told, tries, status }),
            created: row.created,
            ended: row.ended,
            expires: row.expires,
        })
    }
}

/// The columns of `TaskRow`.
macro_rules! columns {
    () => {
        "id, account_id, key_id, path, model, status, progress, request_id, result, error, runs, \
         webhook, hook_state, hook_tries, hook_status, created, ended, expires"
    };
}

/// Makes concurrent submissions and claims wait until this transaction ends.
const QUEUE: &str = "INSERT INTO task_turns (account_id, turn) VALUES ('', 0) \
    ON CONFLICT (account_id) DO UPDATE SET turn = task_turns.turn";
const OPEN: &str = "SELECT COUNT(*) FROM tasks WHERE key_id = $1 \
    AND status IN ('pending', 'processing') AND expires > $2";
const ADD: &str = "INSERT INTO tasks (id, account_id, key_id, path, model, provider, head, body, \
    body_file, status, webhook, created, expires) \
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 'pending', $10, $11, $12)";
const GET: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM tasks WHERE id = $1 AND account_id = $2 AND expires > $3 AND ($4 = '' OR key_id = $4)"
);
const LIST: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM tasks WHERE account_id = $1 AND ($2 = '' OR id < $2) AND ($3 = '' OR status = $3) \
     AND expires > $4 AND ($6 = '' OR key_id = $6) ORDER BY id DESC LIMIT $5"
);
const WAITING: &str = "SELECT COUNT(*) FROM tasks WHERE status IN ('pending', 'processing') \
    AND held_until <= (SELECT now FROM store_clock)";
/// Returns the next turn and makes concurrent claims wait until this transaction ends.
const NEXT_TURN: &str = "INSERT INTO task_turns (account_id, turn) VALUES ('', 1) \
    ON CONFLICT (account_id) DO UPDATE SET turn = task_turns.turn + 1 RETURNING turn";
const NEXT: &str = "SELECT t.id, t.account_id FROM tasks t \
    LEFT JOIN task_turns r ON r.account_id = t.account_id \
    WHERE t.status IN ('pending', 'processing') \
    AND t.held_until <= (SELECT now FROM store_clock) \
    AND (SELECT COUNT(*) FROM tasks p WHERE p.provider = t.provider AND p.status = 'processing' \
    AND p.owner IS NOT NULL AND p.held_until > (SELECT now FROM store_clock)) < $1 \
    ORDER BY COALESCE(r.turn, 0), t.created, t.id LIMIT 1";
const TAKE: &str = concat!(
    "UPDATE tasks SET status = 'processing', owner = $2, runs = runs + 1, request_id = $3, \
     held_until = (SELECT now FROM store_clock) + $4 \
     WHERE id = $1 AND status IN ('pending', 'processing') RETURNING ",
    columns!()
);
const SET_TURN: &str = "INSERT INTO task_turns (account_id, turn) VALUES ($1, $2) \
    ON CONFLICT (account_id) DO UPDATE SET turn = excluded.turn";
const HOLD: &str = "UPDATE tasks SET held_until = (SELECT now FROM store_clock) + $3, \
    progress = CASE WHEN progress < $4 THEN $4 ELSE progress END \
    WHERE id = $1 AND runs = $2 AND status = 'processing'";
const RELEASE: &str = "UPDATE tasks SET owner = NULL, \
    held_until = (SELECT now FROM store_clock) + $3 \
    WHERE id = $1 AND runs = $2 AND status = 'processing'";
const END: &str = "UPDATE tasks SET status = $3, result = $4, error = $5, ended = $6, expires = $7, \
    progress = CASE WHEN $3 = 'completed' THEN 100 ELSE progress END, owner = NULL, body = NULL, \
    body_file = NULL, hook_state = CASE WHEN webhook IS NULL THEN NULL ELSE 'pending' END \
    WHERE id = $1 AND runs = $2 AND status = 'processing'";
const CANCEL: &str = "UPDATE tasks SET status = 'cancelled', ended = $3, expires = $4, \
    owner = NULL, body = NULL, body_file = NULL, \
    hook_state = CASE WHEN webhook IS NULL THEN NULL ELSE 'pending' END \
    WHERE id = $1 AND account_id = $2 AND status IN ('pending', 'processing') AND expires > $3 \
    AND ($5 = '' OR key_id = $5)";
const RELEASE_OWNER: &str = "UPDATE tasks SET owner = NULL, held_until = 0 \
    WHERE owner = $1 AND status = 'processing'";
const NEXT_NOTIFICATION: &str = "SELECT id, hook_tries FROM tasks WHERE hook_state = 'pending' \
    AND hook_at <= (SELECT now FROM store_clock) ORDER BY hook_at, id LIMIT 1";
const CLAIM_NOTIFICATION: &str = concat!(
    "UPDATE tasks SET hook_tries = hook_tries + 1, hook_at = (SELECT now FROM store_clock) + $3 \
     WHERE id = $1 AND hook_tries = $2 AND hook_state = 'pending' RETURNING ",
    columns!()
);
const RECORD_NOTIFICATION: &str = "UPDATE tasks SET hook_state = $3, hook_status = $4, \
    hook_at = (SELECT now FROM store_clock) + $5 \
    WHERE id = $1 AND hook_tries = $2 AND hook_state = 'pending'";
const FAIL_OVERDUE: &str = "UPDATE tasks SET status = 'failed', error = $2, ended = $1, expires = $3, \
    owner = NULL, body = NULL, body_file = NULL, \
    hook_state = CASE WHEN webhook IS NULL THEN NULL ELSE 'pending' END \
    WHERE status IN ('pending', 'processing') AND expires <= $1";
const SWEEP: &str =
    "DELETE FROM tasks WHERE status NOT IN ('pending', 'processing') AND expires <= $1";

impl Store {
    /// Adds a task. Returns false if its key has too many that are unfinished.
    pub async fn add_task(&self, task: &NewTask) -> Result<bool, StoreError> {
        let NewTask {
            id,
            account_id,
            key_id,
            path,
            model,
            provider,
            request: TaskBody { file, .. },
            webhook: _,
            created,
            expires,
            max_open,
        } = task;
        let SealedTask { head, body, webhook } = self.seal_task(task).await?;
        Ok(in_transaction!(&self.db, tx: Kind => {
            sqlx::query(QUEUE).execute(&mut *tx).await?;
            let open = sqlx::query_scalar(OPEN).bind(clean(key_id)).bind(created.get());
            let open: i64 = open.fetch_one(&mut *tx).await?;
            if open >= i64::from(*max_open) {
                return Ok(false);
            }
            sqlx::query(ADD)
                .bind(clean(id)).bind(clean(account_id)).bind(clean(key_id)).bind(clean(path))
                .bind(clean(model)).bind(clean(provider)).bind(clean(&head)).bind(body.as_deref())
                .bind(file.as_deref()).bind(webhook.as_deref().map(clean))
                .bind(created.get()).bind(expires.get())
                .execute(&mut *tx)
                .await
                .map_err(StoreError::naming("task id", "account"))?;
            true
        }))
    }

    /// Returns a task of that owner that has not expired.
    pub async fn task(
        &self,
        id: &str,
        owner: &ObjectOwner,
        now: Micros,
    ) -> Result<Option<Task>, StoreError> {
        let row: Option<TaskRow> = on_reader!(&self.db, pool => {
            sqlx::query_as(GET)
                .bind(clean(id))
                .bind(clean(owner.account_id()))
                .bind(now.get())
                .bind(clean(owner.key_id().unwrap_or_default()))
                .fetch_optional(pool)
                .await?
        });
        self.open_task(row).await
    }

    /// Returns tasks of that owner, newest first, after the one with that id if it is given.
    pub async fn tasks(
        &self,
        owner: &ObjectOwner,
        after: Option<&str>,
        state: Option<TaskState>,
        limit: u32,
        now: Micros,
    ) -> Result<Vec<Task>, StoreError> {
        let rows: Vec<TaskRow> = on_reader!(&self.db, pool => {
            sqlx::query_as(LIST)
                .bind(clean(owner.account_id()))
                .bind(clean(after.unwrap_or_default()))
                .bind(state.map_or("", TaskState::word))
                .bind(now.get())
                .bind(i64::from(limit))
                .bind(clean(owner.key_id().unwrap_or_default()))
                .fetch_all(pool)
                .await?
        });
        let mut tasks = Vec::with_capacity(rows.len());
        for row in rows {
            tasks.extend(self.open_task(Some(row)).await?);
        }
        Ok(tasks)
    }

    /// Claims the next task. The account that was served longest ago comes first, then the oldest
    /// task. Returns `None` if no task waits or all their providers are busy.
    pub async fn claim_task(&self, claim: &TaskClaim<'_>) -> Result<Option<Task>, StoreError> {
        // This check takes no lock and keeps idle nodes from queueing.
        let waiting: i64 = on_reader!(&self.db, pool => {
            sqlx::query_scalar(WAITING).fetch_one(pool).await?
        });
        if waiting == 0 {
            return Ok(None);
        }
        let row: Option<TaskRow> = in_transaction!(&self.db, tx: Kind => {
            let turn: i64 = sqlx::query_scalar(NEXT_TURN).fetch_one(&mut *tx).await?;
            let next: Option<(String, String)> = sqlx::query_as(NEXT)
                .bind(i64::from(claim.per_provider))
                .fetch_optional(&mut *tx)
                .await?;
            match next {
                None => None,
                Some((id, account_id)) => {
                    sqlx::query(SET_TURN).bind(account_id).bind(turn).execute(&mut *tx).await?;
                    sqlx::query_as(TAKE)
                        .bind(id)
                        .bind(claim.owner)
                        .bind(claim.request_id)
                        .bind(claim.hold.get())
                        .fetch_optional(&mut *tx)
                        .await?
                }
            }
        });
        self.open_task(row).await
    }

    /// Extends a claim and records the progress. Returns false if the claim was lost because the
    /// task was cancelled or claimed again.
    pub async fn hold_task(
        &self,
        id: &str,
        run: u32,
        hold: Micros,
        progress: u8,
    ) -> Result<bool, StoreError> {
        Ok(on_writer!(&self.db, pool => {
            sqlx::query(HOLD)
                .bind(id)
                .bind(i64::from(run))
                .bind(hold.get())
                .bind(i64::from(progress))
                .execute(pool)
                .await?
                .rows_affected()
        }) > 0)
    }

    /// Releases a claim. The task can be claimed again after `wait`.
    pub async fn postpone_task(
        &self,
        id: &str,
        run: u32,
        wait: Micros,
    ) -> Result<bool, StoreError> {
        Ok(on_writer!(&self.db, pool => {
            sqlx::query(RELEASE)
                .bind(id)
                .bind(i64::from(run))
                .bind(wait.get())
                .execute(pool)
                .await?
                .rows_affected()
        }) > 0)
    }

    /// Ends a task. Returns false if the claim was lost.
    pub async fn end_task(&self, id: &str, run: u32, end: &TaskEnd) -> Result<bool, StoreError> {
        let TaskEnd { state, result, error, ended, expires } = end;
        let (result, error) = self.seal_end(id, result.as_deref(), error.as_deref()).await?;
        Ok(on_writer!(&self.db, pool => {
            sqlx::query(END)
                .bind(id)
                .bind(i64::from(run))
                .bind(state.word())
                .bind(result.as_deref().map(clean))
                .bind(error.as_deref().map(clean))
                .bind(ended.get())
                .bind(expires.get())
                .execute(pool)
                .await?
                .rows_affected()
        }) > 0)
    }

    /// Cancels a task. Returns false if there is no such task or it has ended.
    pub async fn cancel_task(
        &self,
        id: &str,
        owner: &ObjectOwner,
        now: Micros,
        expires: Micros,
    ) -> Result<bool, StoreError> {
        Ok(on_writer!(&self.db, pool => {
            sqlx::query(CANCEL)
                .bind(clean(id))
                .bind(clean(owner.account_id()))
                .bind(now.get())
                .bind(expires.get())
                .bind(clean(owner.key_id().unwrap_or_default()))
                .execute(pool)
                .await?
                .rows_affected()
        }) > 0)
    }

    /// Releases the claims of an earlier process of that node and returns their number.
    pub async fn release_tasks_of(&self, owner: &str) -> Result<u64, StoreError> {
        Ok(on_writer!(&self.db, pool => {
            sqlx::query(RELEASE_OWNER).bind(owner).execute(pool).await?.rows_affected()
        }))
    }

    /// Claims the next notification for the duration of `hold`. The number of attempts identifies
    /// the claim.
    pub async fn claim_notification(&self, hold: Micros) -> Result<Option<Task>, StoreError> {
        let next: Option<(String, i64)> = on_reader!(&self.db, pool => {
            sqlx::query_as(NEXT_NOTIFICATION).fetch_optional(pool).await?
        });
        let Some((id, tries)) = next else { return Ok(None) };
        let row: Option<TaskRow> = on_writer!(&self.db, pool => {
            sqlx::query_as(CLAIM_NOTIFICATION).bind(id).bind(tries).bind(hold.get()).fetch_optional(pool).await?
        });
        self.open_task(row).await
    }

    /// Records the result of a notification. A pending one is tried again after `wait`.
    pub async fn record_notification(
        &self,
        id: &str,
        tries: u32,
        told: DeliveryState,
        status: Option<u16>,
        wait: Micros,
    ) -> Result<bool, StoreError> {
        Ok(on_writer!(&self.db, pool => {
            sqlx::query(RECORD_NOTIFICATION)
                .bind(id)
                .bind(i64::from(tries))
                .bind(told.word())
                .bind(status.map(i64::from))
                .bind(wait.get())
                .execute(pool)
                .await?
                .rows_affected()
        }) > 0)
    }

    /// Fails overdue tasks with that error, deletes expired ones, and returns the number of each.
    pub async fn sweep_tasks(
        &self,
        now: Micros,
        error: &str,
        expires: Micros,
    ) -> Result<(u64, u64), StoreError> {
        let given_up = on_writer!(&self.db, pool => {
            sqlx::query(FAIL_OVERDUE)
                .bind(now.get())
                .bind(error)
                .bind(expires.get())
                .execute(pool)
                .await?
                .rows_affected()
        });
        let forgotten = on_writer!(&self.db, pool => {
            sqlx::query(SWEEP).bind(now.get()).execute(pool).await?.rows_affected()
        });
        Ok((given_up, forgotten))
    }
}

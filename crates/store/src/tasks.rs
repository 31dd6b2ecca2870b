//! Tasks: work that goes on without its caller, claimed by whichever node has time for it.
//!
//! Claims queue on one row, so that of all nodes exactly one gets a task, accounts are served in
//! turn and a provider never runs more than it may, whoever asks. A claim ends with its time by the
//! database's clock; every further claim has a higher number of runs, and only the latest is heard.

use sqlx::FromRow;

use crate::db::{clean, in_transaction, number, on_reader, on_writer, unknown_word};
use crate::{Micros, Store, StoreError};

/// How a task stands. It only moves forward, and never from one of the last three.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TaskState {
    /// Nobody has begun it.
    Pending,
    /// Somebody works on it, or will again after a failure.
    Processing,
    /// It was done.
    Completed,
    /// It could not be done.
    Failed,
    /// Its caller did not want it any more.
    Cancelled,
}

impl TaskState {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Pending, Self::Processing, Self::Completed, Self::Failed, Self::Cancelled];

    /// The word for it, here and on the wire.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Processing => "processing",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// The state of that word.
    pub fn by_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.word() == word)
    }

    /// Whether it will never change again.
    pub const fn is_over(self) -> bool {
        match self {
            Self::Pending | Self::Processing => false,
            Self::Completed | Self::Failed | Self::Cancelled => true,
        }
    }
}

/// What a new task is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTask {
    /// Its id; later ones sort behind earlier ones.
    pub id: String,
    /// Whose it is.
    pub account_id: String,
    /// The key that pays.
    pub key_id: String,
    /// Where it was asked.
    pub path: String,
    /// The model it is for.
    pub model: String,
    /// The provider that is expected to serve it, whose limit it counts against.
    pub provider: String,
    /// What was asked.
    pub asked: TaskBody,
    /// Who wants to hear of its end.
    pub webhook: Option<String>,
    /// When it was asked.
    pub created: Micros,
    /// When it is given up if nobody had time for it.
    pub expires: Micros,
}

/// A request that waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskBody {
    /// Its headers, as JSON.
    pub head: String,
    /// Its body, if it is small.
    pub body: Option<Vec<u8>>,
    /// The file its body lies in, if it is not.
    pub file: Option<String>,
}

/// A task as its account sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Its id.
    pub id: String,
    /// Whose it is.
    pub account_id: String,
    /// The key that pays.
    pub key_id: String,
    /// Where it was asked.
    pub path: String,
    /// The model it is for.
    pub model: String,
    /// How it stands.
    pub state: TaskState,
    /// How far it has come, in hundredths.
    pub progress: u8,
    /// The latest run's request id.
    pub request_id: Option<String>,
    /// What came out, as JSON.
    pub result: Option<String>,
    /// What went wrong, as JSON.
    pub error: Option<String>,
    /// How often it was begun: the number of the latest claim.
    pub runs: u32,
    /// Who wants to hear of its end.
    pub webhook: Option<Webhook>,
    /// When it was asked.
    pub created: Micros,
    /// When it ended.
    pub ended: Option<Micros>,
    /// Until when it is remembered.
    pub expires: Micros,
}

/// Who wants to hear of a task's end, and whether they have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    /// Where they are.
    pub url: String,
    /// Whether they have heard; `None` before there is anything to tell.
    pub told: Option<Told>,
    /// How often it was tried.
    pub tries: u32,
    /// What the last try was answered.
    pub status: Option<u16>,
}

/// Whether somebody has heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// Not yet.
    Pending,
    /// Yes.
    Delivered,
    /// No, and it is not tried any more.
    Failed,
}

impl Told {
    /// The word for it, here and on the wire.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Delivered => "delivered",
            Self::Failed => "failed",
        }
    }

    fn by_word(word: &str) -> Option<Self> {
        [Self::Pending, Self::Delivered, Self::Failed].into_iter().find(|told| told.word() == word)
    }
}

/// Who claims the next task, and on which terms.
#[derive(Clone, Debug)]
pub struct TaskClaim<'a> {
    /// The node.
    pub owner: &'a str,
    /// The request id of the run.
    pub request_id: &'a str,
    /// How long the claim lasts without another word.
    pub hold: Micros,
    /// How many tasks of one provider may run at once, on all nodes together.
    pub per_provider: u32,
}

/// How a task ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskEnd {
    /// Well or badly.
    pub state: TaskState,
    /// What came out, as JSON.
    pub result: Option<String>,
    /// What went wrong, as JSON.
    pub error: Option<String>,
    /// When.
    pub ended: Micros,
    /// Until when it is remembered.
    pub expires: Micros,
}

#[derive(FromRow)]
struct Row {
    id: String,
    account_id: String,
    key_id: String,
    path: String,
    model: String,
    status: String,
    progress: i64,
    request_id: Option<String>,
    result: Option<String>,
    error: Option<String>,
    runs: i64,
    webhook: Option<String>,
    hook_state: Option<String>,
    hook_tries: i64,
    hook_status: Option<i64>,
    created: Micros,
    ended: Option<Micros>,
    expires: Micros,
}

impl TryFrom<Row> for Task {
    type Error = sqlx::Error;

    fn try_from(row: Row) -> Result<Self, sqlx::Error> {
        let state = TaskState::by_word(&row.status).ok_or_else(|| unknown_word(&row.status))?;
        let told = row
            .hook_state
            .as_deref()
            .map(|word| Told::by_word(word).ok_or_else(|| unknown_word(word)));
        let (told, tries) = (told.transpose()?, number(row.hook_tries)?);
        let status = row.hook_status.map(number).transpose()?;
        Ok(Self {
            id: row.id,
            account_id: row.account_id,
            key_id: row.key_id,
            path: row.path,
            model: row.model,
            state,
            progress: number(row.progress)?,
            request_id: row.request_id,
            result: row.result,
            error: row.error,
            runs: number(row.runs)?,
            webhook: row.webhook.map(|url| Webhook { url, told, tries, status }),
            created: row.created,
            ended: row.ended,
            expires: row.expires,
        })
    }
}

/// The columns of [`Row`].
macro_rules! columns {
    () => {
        "id, account_id, key_id, path, model, status, progress, request_id, result, error, runs, \
         webhook, hook_state, hook_tries, hook_status, created, ended, expires"
    };
}

const ADD: &str = "INSERT INTO tasks (id, account_id, key_id, path, model, provider, head, body, \
    body_file, status, webhook, created, expires) \
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 'pending', $10, $11, $12)";
const GET: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM tasks WHERE id = $1 AND account_id = $2 AND expires > $3"
);
const LIST: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM tasks WHERE account_id = $1 AND ($2 = '' OR id < $2) AND ($3 = '' OR status = $3) \
     AND expires > $4 ORDER BY id DESC LIMIT $5"
);
const ASKED: &str = "SELECT head, body, body_file FROM tasks WHERE id = $1";
const WAITING: &str = "SELECT COUNT(*) FROM tasks WHERE status IN ('pending', 'processing') \
    AND held_until <= (SELECT now FROM store_clock)";
/// Gives the next turn, and makes whoever else claims wait until this claim is through.
const TURN: &str = "INSERT INTO task_turns (account_id, turn) VALUES ('', 1) \
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
const SERVED: &str = "INSERT INTO task_turns (account_id, turn) VALUES ($1, $2) \
    ON CONFLICT (account_id) DO UPDATE SET turn = excluded.turn";
const HOLD: &str = "UPDATE tasks SET held_until = (SELECT now FROM store_clock) + $3, \
    progress = CASE WHEN progress < $4 THEN $4 ELSE progress END \
    WHERE id = $1 AND runs = $2 AND status = 'processing'";
const PUT_OFF: &str = "UPDATE tasks SET owner = NULL, \
    held_until = (SELECT now FROM store_clock) + $3 \
    WHERE id = $1 AND runs = $2 AND status = 'processing'";
const END: &str = "UPDATE tasks SET status = $3, result = $4, error = $5, ended = $6, expires = $7, \
    progress = CASE WHEN $3 = 'completed' THEN 100 ELSE progress END, owner = NULL, body = NULL, \
    body_file = NULL, hook_state = CASE WHEN webhook IS NULL THEN NULL ELSE 'pending' END \
    WHERE id = $1 AND runs = $2 AND status = 'processing'";
const CANCEL: &str = "UPDATE tasks SET status = 'cancelled', ended = $3, expires = $4, \
    owner = NULL, body = NULL, body_file = NULL, \
    hook_state = CASE WHEN webhook IS NULL THEN NULL ELSE 'pending' END \
    WHERE id = $1 AND account_id = $2 AND status IN ('pending', 'processing') AND expires > $3";
const LEFT_BY: &str = "UPDATE tasks SET owner = NULL, held_until = 0 \
    WHERE owner = $1 AND status = 'processing'";
const TO_TELL: &str = "SELECT id, hook_tries FROM tasks WHERE hook_state = 'pending' \
    AND hook_at <= (SELECT now FROM store_clock) ORDER BY hook_at, id LIMIT 1";
const TELL: &str = concat!(
    "UPDATE tasks SET hook_tries = hook_tries + 1, hook_at = (SELECT now FROM store_clock) + $3 \
     WHERE id = $1 AND hook_tries = $2 AND hook_state = 'pending' RETURNING ",
    columns!()
);
const TOLD: &str = "UPDATE tasks SET hook_state = $3, hook_status = $4, \
    hook_at = (SELECT now FROM store_clock) + $5 \
    WHERE id = $1 AND hook_tries = $2 AND hook_state = 'pending'";
const GIVE_UP: &str = "UPDATE tasks SET status = 'failed', error = $2, ended = $1, expires = $3, \
    owner = NULL, body = NULL, body_file = NULL, \
    hook_state = CASE WHEN webhook IS NULL THEN NULL ELSE 'pending' END \
    WHERE status IN ('pending', 'processing') AND expires <= $1";
const SWEEP: &str =
    "DELETE FROM tasks WHERE status NOT IN ('pending', 'processing') AND expires <= $1";

impl Store {
    /// Adds a task.
    pub async fn add_task(&self, task: &NewTask) -> Result<(), StoreError> {
        let NewTask {
            id,
            account_id,
            key_id,
            path,
            model,
            provider,
            asked: TaskBody { head, body, file },
            webhook,
            created,
            expires,
        } = task;
        on_writer!(&self.db, pool => {
            sqlx::query(ADD)
                .bind(clean(id))
                .bind(clean(account_id))
                .bind(clean(key_id))
                .bind(clean(path))
                .bind(clean(model))
                .bind(clean(provider))
                .bind(clean(head))
                .bind(body.as_deref())
                .bind(file.as_deref())
                .bind(webhook.as_deref().map(clean))
                .bind(*created)
                .bind(*expires)
                .execute(pool)
                .await
                .map_err(StoreError::naming("task id", "account"))?;
        });
        Ok(())
    }

    /// An account's task, while it is remembered.
    pub async fn task(
        &self,
        id: &str,
        account_id: &str,
        now: Micros,
    ) -> Result<Option<Task>, StoreError> {
        let row: Option<Row> = on_reader!(&self.db, pool => {
            sqlx::query_as(GET)
                .bind(clean(id))
                .bind(clean(account_id))
                .bind(now)
                .fetch_optional(pool)
                .await?
        });
        Ok(row.map(Task::try_from).transpose()?)
    }

    /// An account's tasks, newest first, behind the one of that id if one is named.
    pub async fn tasks(
        &self,
        account_id: &str,
        after: Option<&str>,
        state: Option<TaskState>,
        limit: u32,
        now: Micros,
    ) -> Result<Vec<Task>, StoreError> {
        let rows: Vec<Row> = on_reader!(&self.db, pool => {
            sqlx::query_as(LIST)
                .bind(clean(account_id))
                .bind(clean(after.unwrap_or_default()))
                .bind(state.map_or("", TaskState::word))
                .bind(now)
                .bind(i64::from(limit))
                .fetch_all(pool)
                .await?
        });
        Ok(rows.into_iter().map(Task::try_from).collect::<Result<_, _>>()?)
    }

    /// What was asked, while the task is not over.
    pub async fn task_body(&self, id: &str) -> Result<Option<TaskBody>, StoreError> {
        let row: Option<(String, Option<Vec<u8>>, Option<String>)> = on_reader!(&self.db, pool => {
            sqlx::query_as(ASKED).bind(clean(id)).fetch_optional(pool).await?
        });
        Ok(row.map(|(head, body, file)| TaskBody { head, body, file }))
    }

    /// Claims the next task: the account that was served longest ago comes first, then the oldest
    /// task. `None` when nothing waits or its providers are busy.
    pub async fn claim_task(&self, claim: &TaskClaim<'_>) -> Result<Option<Task>, StoreError> {
        // A look costs nothing and keeps idle nodes from queueing.
        let waiting: i64 = on_reader!(&self.db, pool => {
            sqlx::query_scalar(WAITING).fetch_one(pool).await?
        });
        if waiting == 0 {
            return Ok(None);
        }
        let row: Option<Row> = in_transaction!(&self.db, tx: Kind => {
            let turn: i64 = sqlx::query_scalar(TURN).fetch_one(&mut *tx).await?;
            let next: Option<(String, String)> = sqlx::query_as(NEXT)
                .bind(i64::from(claim.per_provider))
                .fetch_optional(&mut *tx)
                .await?;
            match next {
                None => None,
                Some((id, account_id)) => {
                    sqlx::query(SERVED).bind(account_id).bind(turn).execute(&mut *tx).await?;
                    sqlx::query_as(TAKE)
                        .bind(id)
                        .bind(claim.owner)
                        .bind(claim.request_id)
                        .bind(claim.hold)
                        .fetch_optional(&mut *tx)
                        .await?
                }
            }
        });
        Ok(row.map(Task::try_from).transpose()?)
    }

    /// Its claimant is at work, has come so far and wants it for longer. False when the task is not
    /// theirs any more: it was cancelled, or given to another.
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
                .bind(hold)
                .bind(i64::from(progress))
                .execute(pool)
                .await?
                .rows_affected()
        }) > 0)
    }

    /// Its claimant lets it go; anyone may claim it after that time.
    pub async fn put_off_task(&self, id: &str, run: u32, wait: Micros) -> Result<bool, StoreError> {
        Ok(on_writer!(&self.db, pool => {
            sqlx::query(PUT_OFF)
                .bind(id)
                .bind(i64::from(run))
                .bind(wait)
                .execute(pool)
                .await?
                .rows_affected()
        }) > 0)
    }

    /// A run ended its task. False when the task is not that run's any more.
    pub async fn end_task(&self, id: &str, run: u32, end: &TaskEnd) -> Result<bool, StoreError> {
        let TaskEnd { state, result, error, ended, expires } = end;
        Ok(on_writer!(&self.db, pool => {
            sqlx::query(END)
                .bind(id)
                .bind(i64::from(run))
                .bind(state.word())
                .bind(result.as_deref().map(clean))
                .bind(error.as_deref().map(clean))
                .bind(*ended)
                .bind(*expires)
                .execute(pool)
                .await?
                .rows_affected()
        }) > 0)
    }

    /// Its account does not want it any more. False when there is no such task, or it is over.
    pub async fn cancel_task(
        &self,
        id: &str,
        account_id: &str,
        now: Micros,
        expires: Micros,
    ) -> Result<bool, StoreError> {
        Ok(on_writer!(&self.db, pool => {
            sqlx::query(CANCEL)
                .bind(clean(id))
                .bind(clean(account_id))
                .bind(now)
                .bind(expires)
                .execute(pool)
                .await?
                .rows_affected()
        }) > 0)
    }

    /// What an earlier process of that node was at work on is anyone's at once. Tells how much.
    pub async fn free_tasks_of(&self, owner: &str) -> Result<u64, StoreError> {
        Ok(on_writer!(&self.db, pool => {
            sqlx::query(LEFT_BY).bind(owner).execute(pool).await?.rows_affected()
        }))
    }

    /// Claims the next task whose end is to be told, until `hold` from now. Its tries number the
    /// claim.
    pub async fn claim_telling(&self, hold: Micros) -> Result<Option<Task>, StoreError> {
        let next: Option<(String, i64)> = on_reader!(&self.db, pool => {
            sqlx::query_as(TO_TELL).fetch_optional(pool).await?
        });
        let Some((id, tries)) = next else { return Ok(None) };
        let row: Option<Row> = on_writer!(&self.db, pool => {
            sqlx::query_as(TELL).bind(id).bind(tries).bind(hold).fetch_optional(pool).await?
        });
        Ok(row.map(Task::try_from).transpose()?)
    }

    /// What became of telling; if it is still pending, it is tried again after `wait`.
    pub async fn told_task(
        &self,
        id: &str,
        tries: u32,
        told: Told,
        status: Option<u16>,
        wait: Micros,
    ) -> Result<bool, StoreError> {
        Ok(on_writer!(&self.db, pool => {
            sqlx::query(TOLD)
                .bind(id)
                .bind(i64::from(tries))
                .bind(told.word())
                .bind(status.map(i64::from))
                .bind(wait)
                .execute(pool)
                .await?
                .rows_affected()
        }) > 0)
    }

    /// Gives up, with that error, what nobody had time for, and forgets what has been over for long.
    /// Tells how many of each.
    pub async fn sweep_tasks(
        &self,
        now: Micros,
        error: &str,
        expires: Micros,
    ) -> Result<(u64, u64), StoreError> {
        let given_up = on_writer!(&self.db, pool => {
            sqlx::query(GIVE_UP)
                .bind(now)
                .bind(error)
                .bind(expires)
                .execute(pool)
                .await?
                .rows_affected()
        });
        let forgotten = on_writer!(&self.db, pool => {
            sqlx::query(SWEEP).bind(now).execute(pool).await?.rows_affected()
        });
        Ok((given_up, forgotten))
    }
}

//! Requests, URLs of webhooks, results and errors of tasks, sealed by a data key.

use std::borrow::Cow;

use crate::db::{clean, on_reader};
use crate::sealed_body::{column_label, is_sealed};
use crate::tasks::{NewTask, Task, TaskBody, TaskRow};
use crate::{Store, StoreError};

const REQUEST: &str = "SELECT head, body, body_file FROM tasks WHERE id = $1";

const FILES: &str = "SELECT id, body_file, result FROM tasks WHERE account_id = $1";

/// Returns the label that binds a sealed column to its task.
fn label(id: &str, column: &str) -> String {
    column_label("tasks", &[id], column)
}

/// The sealed columns of a new task.
pub(crate) struct SealedTask<'a> {
    pub(crate) head: Cow<'a, str>,
    pub(crate) body: Option<Cow<'a, [u8]>>,
    pub(crate) webhook: Option<Cow<'a, str>>,
}

impl Store {
    /// Returns the request and the webhook of a task as they are stored. Whoever has the URL of a
    /// webhook can often post to it, so it is a secret.
    pub(crate) async fn seal_task<'a>(
        &self,
        task: &'a NewTask,
    ) -> Result<SealedTask<'a>, StoreError> {
        let NewTask { id, request: TaskBody { head, body, .. }, webhook, .. } = task;
        let sealer = self.column_sealer().await?;
        let body =
            body.as_deref().map(|body| sealer.bytes(&label(id, "body"), body)).transpose()?;
        let webhook = webhook.as_deref().map(|url| sealer.text(&label(id, "webhook"), url));
        let head = sealer.text(&label(id, "head"), head)?;
        Ok(SealedTask { head, body, webhook: webhook.transpose()? })
    }

    /// Returns result and error of a task as they are stored.
    pub(crate) async fn seal_end<'a>(
        &self,
        id: &str,
        result: Option<&'a str>,
        error: Option<&'a str>,
    ) -> Result<(Option<Cow<'a, str>>, Option<Cow<'a, str>>), StoreError> {
        let sealer = self.column_sealer().await?;
        let seal = |column: &str, text: Option<&'a str>| {
            text.map(|text| sealer.text(&label(id, column), text)).transpose()
        };
        Ok((seal("result", result)?, seal("error", error)?))
    }

    /// Returns the request of a task that has not ended.
    pub async fn task_body(&self, id: &str) -> Result<Option<TaskBody>, StoreError> {
        let request: Option<TaskBody> = on_reader!(&self.db, pool => {
            sqlx::query_as(REQUEST).bind(clean(id)).fetch_optional(pool).await?
        });
        let Some(TaskBody { head, mut body, file }) = request else { return Ok(None) };
        if let Some(sealed) = body.as_mut().filter(|_| is_sealed(&head)) {
            *sealed = self.open_body(&label(id, "body"), sealed).await?;
        }
        let head = self.open_text(&label(id, "head"), head).await?;
        Ok(Some(TaskBody { head, body, file }))
    }

    /// Opens result, error and webhook of a task. One that does not open is marked, so that it hides
    /// neither its own state nor the tasks beside it. A webhook that does not open has an empty URL.
    pub(crate) async fn open_task(&self, row: Option<TaskRow>) -> Result<Option<Task>, StoreError> {
        let Some(mut task) = row.map(Task::try_from).transpose()? else { return Ok(None) };
        let mut url = task.webhook.as_mut().map(|webhook| std::mem::take(&mut webhook.url));
        for (column, text) in
            [("result", &mut task.result), ("error", &mut task.error), ("webhook", &mut url)]
        {
            let Some(sealed) = text.take() else { continue };
            match self.open_text(&label(&task.id, column), sealed).await {
                Ok(open) => *text = Some(open),
                Err(StoreError::Sealing(_)) if column == "webhook" => {}
                Err(StoreError::Sealing(why)) => task.unreadable = Some(why),
                Err(
                    e @ (StoreError::Unreachable(_)
                    | StoreError::Conflict(_)
                    | StoreError::Missing(_)
                    | StoreError::Newer { .. }
                    | StoreError::Other(_)),
                ) => return Err(e),
            }
        }
        if let Some(webhook) = &mut task.webhook {
            webhook.url = url.unwrap_or_default();
        }
        Ok(Some(task))
    }

    /// Returns the bodies of an account's tasks that are files, and their results, which name files too. A result
    /// that does not open is left out: its files expire.
    pub async fn task_files_of(
        &self,
        account_id: &str,
    ) -> Result<(Vec<String>, Vec<String>), StoreError> {
        let rows: Vec<(String, Option<String>, Option<String>)> = on_reader!(&self.db, pool => {
            sqlx::query_as(FILES).bind(clean(account_id)).fetch_all(pool).await?
        });
        let (mut bodies, mut results) = (Vec::new(), Vec::new());
        for (id, body, result) in rows {
            bodies.extend(body);
            let Some(sealed) = result else { continue };
            match self.open_text(&label(&id, "result"), sealed).await {
                Ok(result) => results.push(result),
                Err(StoreError::Sealing(_)) => {}
                Err(
                    e @ (StoreError::Unreachable(_)
                    | StoreError::Conflict(_)
                    | StoreError::Missing(_)
                    | StoreError::Newer { .. }
                    | StoreError::Other(_)),
                ) => return Err(e),
            }
        }
        Ok((bodies, results))
    }
}

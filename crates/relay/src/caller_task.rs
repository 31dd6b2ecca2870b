//! Calls that end with their caller, even in the midst of work on a large input.
//!
//! A connection polls the call it serves, so it cannot look for its caller while the call computes. A call
//! that is about to work on a large input therefore becomes a task of its own. The connection waits for
//! it and sees the caller leave. Then it aborts the task and cancels its token, at which the loops of the
//! work look (`canon::is_abandoned`).

use canon::WorkToken;
use futures_util::future::BoxFuture;
use std::cell::Cell;
use std::future::poll_fn;
use std::task::Poll;
use tokio::task::{AbortHandle, yield_now};
use tokio_util::task::TaskTracker;

thread_local! {
    /// True if the future that this thread polled last asked to become a task.
    static ASKED: Cell<bool> = const { Cell::new(false) };
}

tokio::task_local! {
    /// Token of the caller of this task.
    static CALLER: WorkToken;
}

/// Runs a call that ends with its caller, which is the future that is returned.
pub async fn run_for_caller<T: Send + 'static>(
    tasks: &TaskTracker,
    mut call: BoxFuture<'static, T>,
) -> T {
    let finished = poll_fn(|cx| {
        ASKED.set(false);
        match call.as_mut().poll(cx) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending if ASKED.take() => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    });
    match finished.await {
        Some(value) => value,
        // Boxed because it is rare: the future of every call would grow by its size.
        None => Box::pin(run_as_task(tasks, call)).await,
    }
}

async fn run_as_task<T: Send + 'static>(tasks: &TaskTracker, call: BoxFuture<'static, T>) -> T {
    let token = WorkToken::default();
    let task = tasks.spawn(CALLER.scope(token.clone(), call));
    let _guard = CallerGuard { token, task: task.abort_handle() };
    match task.await {
        Ok(value) => value,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime stops.
            Err(_) => std::future::pending().await,
        },
    }
}

/// Ends the task of a call when its caller leaves.
struct CallerGuard {
    token: WorkToken,
    task: AbortHandle,
}

impl Drop for CallerGuard {
    fn drop(&mut self) {
        self.token.cancel();
        self.task.abort();
    }
}

/// Makes the call a task of its own if it has a caller, and yields.
pub(crate) async fn become_task() {
    ASKED.set(CALLER.try_with(|_| ()).is_err());
    yield_now().await;
}

/// Returns the token of the caller. Work without a caller is never cancelled.
pub(crate) fn token() -> WorkToken {
    CALLER.try_with(WorkToken::clone).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::large_work::HeavyWork;
    use canon::is_abandoned;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::sync::mpsc;

    #[tokio::test]
    async fn small_calls_stay_with_their_connection() {
        let tasks = TaskTracker::new();
        let work = HeavyWork::new(1);
        let call = {
            let tasks = tasks.clone();
            async move {
                yield_now().await;
                work.permit(1).await.run(|| ()).await;
                tasks.len()
            }
        };
        assert_eq!(run_for_caller(&tasks, Box::pin(call)).await, 0);
    }

    #[tokio::test]
    async fn a_panic_of_large_work_reaches_the_connection() {
        let tasks = TaskTracker::new();
        let work = HeavyWork::new(1);
        let call = async move {
            work.permit(usize::MAX).await.run(|| std::panic::resume_unwind(Box::new(7))).await
        };
        let connection = async move { run_for_caller::<()>(&tasks, Box::pin(call)).await };
        let panicked = tokio::spawn(connection).await.unwrap_err().into_panic();
        assert_eq!(panicked.downcast_ref(), Some(&7));
    }

    /// The work counts its steps. It goes on until the caller has left, and a few steps more.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn large_work_ends_with_its_caller_and_its_result_is_not_used() {
        let tasks = TaskTracker::new();
        let work = Arc::new(HeavyWork::new(1));
        let steps = Arc::new(AtomicUsize::new(0));
        let (begun, mut has_begun) = mpsc::unbounded_channel();
        let call = {
            let (work, steps) = (Arc::clone(&work), Arc::clone(&steps));
            async move {
                let permit = work.permit(usize::MAX).await;
                let count = || {
                    while !is_abandoned() {
                        if steps.fetch_add(1, Ordering::Relaxed) == 10_000 {
                            begun.send(()).unwrap();
                        }
                    }
                };
                permit.run(count).await;
                steps.store(usize::MAX, Ordering::Relaxed);
            }
        };
        let connection = {
            let tasks = tasks.clone();
            async move { run_for_caller(&tasks, Box::pin(call)).await }
        };
        let connection = tokio::spawn(connection);
        has_begun.recv().await.unwrap();
        connection.abort();
        assert!(connection.await.unwrap_err().is_cancelled());
        tasks.close();
        tasks.wait().await;
        assert_ne!(steps.load(Ordering::Relaxed), usize::MAX, "the call went on");
        assert_eq!((work.usage().running, work.usage().abandoned), (0, 1));
    }
}

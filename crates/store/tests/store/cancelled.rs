//! Work on the database whose caller gives up at any moment.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::on_both;
use crate::samples::{entry, some_key};
use crate::test_database::TestDatabase;

on_both!(a_batch_that_is_given_up_leaves_no_transaction_open);

/// Polls between the moments at which batches are given up, and number of these moments.
const POLLS_PER_STEP: usize = 5;
const MAX_STEPS: usize = 300;
/// Time within which an abandoned transaction is rolled back.
const ROLLBACK_TIME: Duration = Duration::from_secs(10);

async fn a_batch_that_is_given_up_leaves_no_transaction_open(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let key = some_key(&store).await;
    let mut complete = 0;
    for step in 0..MAX_STEPS {
        let batch = [entry(&format!("call {step}"), &key, 1, 50)];
        {
            let mut posting = pin!(store.post(&batch));
            for _ in 0..step * POLLS_PER_STEP {
                if let Poll::Ready(posted) =
                    posting.as_mut().poll(&mut Context::from_waker(Waker::noop()))
                {
                    posted.unwrap();
                    complete += 1;
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        let begun = Instant::now();
        while database.open_transactions().await > 0 {
            assert!(begun.elapsed() < ROLLBACK_TIME, "step {step} left a transaction open");
            tokio::task::yield_now().await;
        }
        if complete > 3 {
            break;
        }
    }
    let other = database.open().await;
    assert_eq!(other.totals().await.unwrap(), store.totals().await.unwrap());
    other.close().await;
    store.close().await;
}

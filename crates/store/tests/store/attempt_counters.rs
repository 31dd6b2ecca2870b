//! Attempt counters: changed together, one transaction after the other, or not at all.

use std::sync::Arc;

use canon::Micros;
use store::{AttemptCounter, StoreError};

use crate::on_both;
use crate::test_database::TestDatabase;

on_both!(
    no_concurrent_attempt_is_missed,
    refused_attempts_are_not_counted_and_old_counters_are_deleted
);

#[derive(Debug, PartialEq)]
enum CountError {
    Full(i64),
    Seen(Vec<AttemptCounter>),
    Store(StoreError),
}

impl From<StoreError> for CountError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Counts one attempt in each counter, up to ten.
fn count(tallies: &mut [AttemptCounter]) -> Result<(), CountError> {
    for tally in tallies {
        if tally.tries >= 10 {
            return Err(CountError::Full(tally.tries));
        }
        tally.tries += 1;
        tally.last += Micros::new(5);
    }
    Ok(())
}

async fn no_concurrent_attempt_is_missed(database: Arc<TestDatabase>) {
    let (one, two) = (database.open().await, database.open().await);
    let tries = (0..40).map(|number| {
        let store = if number % 2 == 0 { one.clone() } else { two.clone() };
        // In any order of the names.
        let mut both = vec![b"a name".to_vec(), b"a database".to_vec()];
        both.rotate_left(number / 2 % 2);
        tokio::spawn(async move { store.change_attempts(&both, Micros::new(100), count).await })
    });
    let tries: Vec<_> = tries.collect();
    let mut counted = 0;
    for tried in tries {
        match tried.await.unwrap() {
            Ok(()) => counted += 1,
            Err(CountError::Full(_)) => {}
            Err(other) => panic!("{other:?}"),
        }
    }
    assert_eq!(counted, 10);
    one.close().await;
    two.close().await;
}

async fn refused_attempts_are_not_counted_and_old_counters_are_deleted(
    database: Arc<TestDatabase>,
) {
    let store = database.open().await;
    let (full, new) = (vec![1; 32], vec![2; 32]);
    for _ in 0..10 {
        store.change_attempts(std::slice::from_ref(&full), Micros::new(100), count).await.unwrap();
    }
    let both = [new.clone(), full.clone()];
    assert_eq!(
        store.change_attempts(&both, Micros::new(100), count).await,
        Err(CountError::Full(10))
    );
    let look = |hash: Vec<u8>| {
        let store = store.clone();
        async move {
            let look = |tallies: &mut [AttemptCounter]| Err(CountError::Seen(tallies.to_vec()));
            match store.change_attempts(&[hash], Micros::new(7), look).await {
                Err(CountError::Seen(mut seen)) => seen.remove(0),
                other => panic!("{other:?}"),
            }
        }
    };
    assert_eq!(
        look(new).await,
        AttemptCounter { tries: 0, last: Micros::new(7), closed_until: Micros::ZERO }
    );
    let seen = AttemptCounter { tries: 10, last: Micros::new(150), closed_until: Micros::ZERO };
    assert_eq!(look(full.clone()).await, seen);
    store.drop_old_attempts(Micros::new(150)).await.unwrap();
    assert_eq!(look(full.clone()).await, seen, "not older than that");
    store.drop_old_attempts(Micros::new(151)).await.unwrap();
    assert_eq!(look(full.clone()).await.tries, 0);
    store.change_attempts(std::slice::from_ref(&full), Micros::new(100), count).await.unwrap();
    store.drop_attempts(std::slice::from_ref(&full)).await.unwrap();
    assert_eq!(look(full).await.tries, 0);
    store.close().await;
}

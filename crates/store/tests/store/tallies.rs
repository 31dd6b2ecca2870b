//! Tallies: changed together, one after the other, or not at all.

use std::sync::Arc;

use store::Tally;

use crate::on_both;
use crate::place::Place;

on_both!(of_many_tries_at_once_none_slips_through, what_is_refused_is_not_counted_and_old_ones_go);

/// Counts one try of each, up to ten.
fn count(tallies: &mut [Tally]) -> Result<(), i64> {
    for tally in tallies {
        if tally.tries >= 10 {
            return Err(tally.tries);
        }
        tally.tries += 1;
        tally.last += 5;
    }
    Ok(())
}

async fn of_many_tries_at_once_none_slips_through(place: Arc<Place>) {
    let (one, two) = (place.open().await, place.open().await);
    let tries = (0..40).map(|number| {
        let store = if number % 2 == 0 { one.clone() } else { two.clone() };
        // In whatever order they are named.
        let mut both = vec![b"a name".to_vec(), b"a place".to_vec()];
        both.rotate_left(number / 2 % 2);
        tokio::spawn(async move { store.tally(&both, 100, count).await.unwrap() })
    });
    let tries: Vec<_> = tries.collect();
    let mut counted = 0;
    for tried in tries {
        counted += usize::from(tried.await.unwrap().is_ok());
    }
    assert_eq!(counted, 10);
    one.close().await;
    two.close().await;
}

async fn what_is_refused_is_not_counted_and_old_ones_go(place: Arc<Place>) {
    let store = place.open().await;
    let (full, new) = (vec![1; 32], vec![2; 32]);
    for _ in 0..10 {
        store.tally(std::slice::from_ref(&full), 100, count).await.unwrap().unwrap();
    }
    let both = [new.clone(), full.clone()];
    assert_eq!(store.tally(&both, 100, count).await.unwrap(), Err(10));
    let look = |hash: Vec<u8>| {
        let store = store.clone();
        async move {
            let seen = store.tally(&[hash], 7, |tallies| Err(tallies.to_vec())).await.unwrap();
            seen.unwrap_err().remove(0)
        }
    };
    assert_eq!(look(new).await, Tally { tries: 0, last: 7, closed_until: 0 });
    let seen = Tally { tries: 10, last: 150, closed_until: 0 };
    assert_eq!(look(full.clone()).await, seen);
    store.drop_old_tallies(150).await.unwrap();
    assert_eq!(look(full.clone()).await, seen, "not older than that");
    store.drop_old_tallies(151).await.unwrap();
    assert_eq!(look(full.clone()).await.tries, 0);
    store.tally(std::slice::from_ref(&full), 100, count).await.unwrap().unwrap();
    store.drop_tallies(std::slice::from_ref(&full)).await.unwrap();
    assert_eq!(look(full).await.tries, 0);
    store.close().await;
}

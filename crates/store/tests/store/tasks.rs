//! Tasks: claimed by one node, served in turn, moved forward only, notified until delivered.

use std::collections::BTreeMap;
use std::sync::Arc;

use canon::Micros;
use proptest::prelude::*;
use store::{
    DeliveryState, NewTask, ObjectOwner, Store, Task, TaskBody, TaskClaim, TaskEnd, TaskState,
};

use crate::on_both;
use crate::samples::{account, check};
use crate::test_database::TestDatabase;

on_both!(
    a_task_belongs_to_its_account_and_is_listed_newest_first,
    a_task_belongs_to_its_key_unless_the_account_is_asked,
    a_task_moves_forward_only_and_only_for_its_latest_run,
    an_expired_task_claim_is_taken_over,
    a_provider_runs_no_more_tasks_than_permitted,
    accounts_are_served_in_turn,
    one_of_many_claimants_gets_a_task,
    a_key_has_no_more_unfinished_tasks_than_permitted,
    an_end_is_notified_until_delivered,
    overdue_tasks_fail_and_expired_ones_are_deleted,
);

/// A claim that lasts until the end of the test.
const LONG: Micros = Micros::from_hours(1);
const NEVER: Micros = Micros::new(i64::MAX / 2);

fn new(id: &str, account_id: &str) -> NewTask {
    NewTask {
        id: id.to_owned(),
        account_id: account_id.to_owned(),
        key_id: "key".to_owned(),
        path: "/v1/images/generations".to_owned(),
        model: "demo-image".to_owned(),
        provider: "demo".to_owned(),
        request: TaskBody {
            head: "{}".to_owned(),
            body: Some(b"{\"prompt\":\"\0\"}".to_vec()),
            file: None,
        },
        webhook: None,
        created: Micros::new(1),
        expires: NEVER,
        max_open: 1_000,
    }
}

fn claim(hold: Micros, per_provider: u32) -> TaskClaim<'static> {
    TaskClaim { owner: "node", request_id: "req_1", hold, per_provider }
}

async fn next(store: &Store) -> Option<Task> {
    store.claim_task(&claim(LONG, 1_000)).await.unwrap()
}

fn end(state: TaskState) -> TaskEnd {
    TaskEnd {
        state,
        result: Some("{}".to_owned()),
        error: None,
        ended: Micros::new(5),
        expires: Micros::new(50),
    }
}

/// The owner of all tasks of an account.
fn all(account_id: &str) -> ObjectOwner {
    ObjectOwner::account(account_id)
}

/// Adds an account.
async fn someone(store: &Store, name: &str) -> String {
    let account = account(name);
    store.add_account(&account).await.unwrap();
    account.id
}

async fn a_task_belongs_to_its_account_and_is_listed_newest_first(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let (ada, bob) = (someone(&store, "ada").await, someone(&store, "bob").await);
    for id in ["task_1", "task_2", "task_3"] {
        store.add_task(&new(id, &ada)).await.unwrap();
    }
    store.add_task(&new("task_4", &bob)).await.unwrap();
    assert!(store.add_task(&new("task_1", &bob)).await.is_err());
    assert!(store.add_task(&new("task_9", "nobody")).await.is_err());
    let found = store.task("task_1", &all(&ada), Micros::new(2)).await.unwrap().unwrap();
    assert_eq!((found.state, found.progress, found.runs), (TaskState::Pending, 0, 0));
    assert_eq!(store.task("task_1", &all(&bob), Micros::new(2)).await.unwrap(), None);
    assert_eq!(store.task("task_1", &all(&ada), NEVER).await.unwrap(), None);
    let ids = |tasks: Vec<Task>| tasks.into_iter().map(|task| task.id).collect::<Vec<_>>();
    let list = async |after, state, limit| {
        ids(store.tasks(&all(&ada), after, state, limit, Micros::new(2)).await.unwrap())
    };
    assert_eq!(list(None, None, 10).await, ["task_3", "task_2", "task_1"]);
    assert_eq!(list(Some("task_3"), None, 1).await, ["task_2"]);
    assert_eq!(list(None, Some(TaskState::Failed), 10).await, [""; 0]);
    assert_eq!(list(None, Some(TaskState::Pending), 2).await, ["task_3", "task_2"]);
    store.close().await;
}

async fn a_task_moves_forward_only_and_only_for_its_latest_run(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let ada = someone(&store, "ada").await;
    store.add_task(&new("task_1", &ada)).await.unwrap();
    assert!(!store.end_task("task_1", 0, &end(TaskState::Completed)).await.unwrap());
    let first = next(&store).await.unwrap();
    assert_eq!((first.state, first.runs), (TaskState::Processing, 1));
    assert_eq!(first.request_id.as_deref(), Some("req_1"));
    assert_eq!(next(&store).await, None, "it is claimed");
    let asked = store.task_body("task_1").await.unwrap().unwrap();
    assert_eq!(asked, new("task_1", &ada).request);

    // Another run took over, so the first one is rejected.
    assert!(store.hold_task("task_1", 1, LONG, 40).await.unwrap());
    assert!(store.postpone_task("task_1", 1, Micros::ZERO).await.unwrap());
    assert_eq!(next(&store).await.unwrap().runs, 2);
    assert!(!store.hold_task("task_1", 1, LONG, 90).await.unwrap());
    assert!(!store.postpone_task("task_1", 1, Micros::ZERO).await.unwrap());
    assert!(!store.end_task("task_1", 1, &end(TaskState::Completed)).await.unwrap());
    assert!(store.hold_task("task_1", 2, LONG, 10).await.unwrap());
    let task = store.task("task_1", &all(&ada), Micros::new(2)).await.unwrap().unwrap();
    assert_eq!(task.progress, 40, "progress does not go back");

    assert!(store.end_task("task_1", 2, &end(TaskState::Completed)).await.unwrap());
    let over = store.task("task_1", &all(&ada), Micros::new(2)).await.unwrap().unwrap();
    assert_eq!((over.state, over.progress), (TaskState::Completed, 100));
    assert_eq!((over.ended, over.expires), (Some(Micros::new(5)), Micros::new(50)));
    assert!(!store.end_task("task_1", 2, &end(TaskState::Failed)).await.unwrap());
    assert!(
        !store.cancel_task("task_1", &all(&ada), Micros::new(6), Micros::new(60)).await.unwrap()
    );
    assert!(!store.hold_task("task_1", 2, LONG, 1).await.unwrap());
    assert_eq!(next(&store).await, None);
    assert_eq!(store.task("task_1", &all(&ada), Micros::new(2)).await.unwrap(), Some(over));
    let asked = store.task_body("task_1").await.unwrap().unwrap();
    assert_eq!((asked.body, asked.file), (None, None), "what was asked goes with its end");

    // Neither the active run nor another account can end a cancelled task.
    store.add_task(&new("task_2", &ada)).await.unwrap();
    assert!(
        !store.cancel_task("task_2", &all("bob"), Micros::new(6), Micros::new(60)).await.unwrap()
    );
    assert_eq!(next(&store).await.unwrap().id, "task_2");
    assert!(
        store.cancel_task("task_2", &all(&ada), Micros::new(6), Micros::new(60)).await.unwrap()
    );
    assert!(!store.hold_task("task_2", 1, LONG, 1).await.unwrap());
    assert!(!store.end_task("task_2", 1, &end(TaskState::Completed)).await.unwrap());
    let state = store.task("task_2", &all(&ada), Micros::new(7)).await.unwrap().unwrap().state;
    assert_eq!(state, TaskState::Cancelled);
    store.close().await;
}

async fn an_expired_task_claim_is_taken_over(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let ada = someone(&store, "ada").await;
    store.add_task(&new("task_1", &ada)).await.unwrap();
    let silent = store.claim_task(&claim(Micros::ZERO, 1)).await.unwrap().unwrap();
    let taken = store.claim_task(&claim(LONG, 1)).await.unwrap().unwrap();
    assert_eq!((silent.runs, taken.runs), (1, 2));
    assert!(!store.end_task("task_1", 1, &end(TaskState::Completed)).await.unwrap());
    // Its node restarts, and the claims of the earlier process are released at once.
    assert_eq!(store.release_tasks_of("another").await.unwrap(), 0);
    assert_eq!(next(&store).await, None);
    assert_eq!(store.release_tasks_of("node").await.unwrap(), 1);
    assert_eq!(next(&store).await.unwrap().runs, 3);
    store.close().await;
}

async fn a_provider_runs_no_more_tasks_than_permitted(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let ada = someone(&store, "ada").await;
    for id in ["task_1", "task_2", "task_3"] {
        store.add_task(&new(id, &ada)).await.unwrap();
    }
    let other = NewTask { provider: "other".to_owned(), ..new("task_4", &ada) };
    store.add_task(&other).await.unwrap();
    let next = async || store.claim_task(&claim(LONG, 2)).await.unwrap().map(|task| task.id);
    assert_eq!(next().await.as_deref(), Some("task_1"));
    assert_eq!(next().await.as_deref(), Some("task_2"));
    assert_eq!(next().await.as_deref(), Some("task_4"), "the busy one is passed over");
    assert_eq!(next().await, None);
    // A task that waits for its next attempt does not count as running.
    assert!(store.postpone_task("task_1", 1, LONG).await.unwrap());
    assert_eq!(next().await.as_deref(), Some("task_3"));
    assert_eq!(next().await, None);
    store.close().await;
}

/// Between two claims of one account, every account with a waiting task is served. Tasks of one
/// account are served in order.
async fn accounts_are_served_in_turn(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let accounts =
        [someone(&store, "ada").await, someone(&store, "bob").await, someone(&store, "cleo").await];
    // A number below three submits for that account; the others claim.
    let steps = prop::collection::vec(0..6_usize, 1..40);
    let (store, accounts) = (&store, &accounts);
    let round = &std::sync::atomic::AtomicU32::new(0);
    check(12, steps, |steps| async move {
        while next(store).await.is_some() {}
        let round = round.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let mut waiting: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        // For each account: the accounts served since its last turn, and those that waited all the
        // time.
        let mut since: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (step, choice) in steps.iter().enumerate() {
            if let Some(account) = accounts.get(*choice) {
                let id = format!("task_{round:06}_{step:03}");
                let task = NewTask { created: Micros::new(step as i64), ..new(&id, account) };
                store.add_task(&task).await.unwrap();
                waiting.entry(account).or_default().push(id);
                continue;
            }
            let Some(task) = next(store).await else {
                assert!(waiting.values().all(Vec::is_empty), "{waiting:?}");
                continue;
            };
            let served = accounts.iter().find(|account| **account == task.account_id).unwrap();
            let oldest = waiting.get_mut(served.as_str()).unwrap().remove(0);
            assert_eq!(task.id, oldest);
            let owed = since.insert(served, Vec::new()).unwrap_or_default();
            assert!(owed.is_empty(), "{served} was served again before {owed:?}");
            for (account, passed) in &mut since {
                passed.retain(|other| *other != served.as_str());
                if account == served {
                    let has = |other: &&String| {
                        *other != served
                            && waiting.get(other.as_str()).is_some_and(|own| !own.is_empty())
                    };
                    *passed = accounts.iter().filter(has).map(String::as_str).collect();
                }
            }
        }
    });
    store.close().await;
}

async fn a_key_has_no_more_unfinished_tasks_than_permitted(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let ada = someone(&store, "ada").await;
    let few = |id: &str| NewTask { max_open: 7, ..new(id, &ada) };
    // Twenty at once, on connections of their own.
    let submitters = (0..20).map(|number| {
        let (store, task) = (store.clone(), few(&format!("task_{number:02}")));
        tokio::spawn(async move { store.add_task(&task).await.unwrap() })
    });
    let mut added = 0;
    for submitter in submitters.collect::<Vec<_>>() {
        added += u32::from(submitter.await.unwrap());
    }
    assert_eq!(added, 7);
    let rows = store.tasks(&all(&ada), None, None, 100, Micros::new(2)).await.unwrap();
    assert_eq!(rows.len(), 7, "no row is left of the others");
    // One that runs is unfinished; one that ended, or expired, is not counted any more.
    let task = next(&store).await.unwrap();
    assert!(!store.add_task(&few("task_20")).await.unwrap());
    assert!(store.end_task(&task.id, task.runs, &end(TaskState::Completed)).await.unwrap());
    assert!(store.add_task(&few("task_21")).await.unwrap());
    assert!(!store.add_task(&few("task_22")).await.unwrap());
    let other = NewTask { key_id: "other".to_owned(), ..few("task_23") };
    assert!(store.add_task(&other).await.unwrap(), "another key has its own");
    store.close().await;
}

async fn one_of_many_claimants_gets_a_task(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let ada = someone(&store, "ada").await;
    for number in 0..20 {
        store.add_task(&new(&format!("task_{number:02}"), &ada)).await.unwrap();
    }
    let claimants = (0..8).map(|_| {
        let store = store.clone();
        tokio::spawn(async move {
            let mut got = Vec::new();
            while let Some(task) = store.claim_task(&claim(LONG, 15)).await.unwrap() {
                got.push(task.id);
            }
            got
        })
    });
    let mut got = Vec::new();
    for claimant in claimants.collect::<Vec<_>>() {
        got.extend(claimant.await.unwrap());
    }
    got.sort();
    let all: Vec<String> = (0..15).map(|number| format!("task_{number:02}")).collect();
    assert_eq!(got, all, "each once, and no more than the provider may run");
    store.close().await;
}

async fn an_end_is_notified_until_delivered(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let ada = someone(&store, "ada").await;
    let webhook = Some("https://example.com/hook".to_owned());
    store.add_task(&NewTask { webhook, ..new("task_1", &ada) }).await.unwrap();
    store.add_task(&new("task_2", &ada)).await.unwrap();
    assert_eq!(store.claim_notification(LONG).await.unwrap(), None, "there is nothing to tell yet");
    for id in ["task_1", "task_2"] {
        assert_eq!(next(&store).await.unwrap().id, id);
        assert!(store.end_task(id, 1, &end(TaskState::Completed)).await.unwrap());
    }
    let tell = async || store.claim_notification(LONG).await.unwrap();
    let first = tell().await.unwrap();
    let hook = first.webhook.unwrap();
    assert_eq!(
        (first.id.as_str(), hook.tries, hook.delivery),
        ("task_1", 1, Some(DeliveryState::Pending))
    );
    assert_eq!(tell().await, None, "one at a time");
    assert!(
        store
            .record_notification("task_1", 1, DeliveryState::Pending, Some(500), Micros::ZERO)
            .await
            .unwrap()
    );
    let second = tell().await.unwrap().webhook.unwrap();
    assert_eq!((second.tries, second.status), (2, Some(500)));
    assert!(
        !store
            .record_notification("task_1", 1, DeliveryState::Delivered, None, Micros::ZERO)
            .await
            .unwrap(),
        "too late"
    );
    assert!(
        store
            .record_notification("task_1", 2, DeliveryState::Delivered, Some(204), Micros::ZERO)
            .await
            .unwrap()
    );
    assert_eq!(tell().await, None);
    let hook =
        store.task("task_1", &all(&ada), Micros::new(2)).await.unwrap().unwrap().webhook.unwrap();
    assert_eq!((hook.delivery, hook.status), (Some(DeliveryState::Delivered), Some(204)));
    store.close().await;
}

async fn overdue_tasks_fail_and_expired_ones_are_deleted(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let ada = someone(&store, "ada").await;
    store.add_task(&NewTask { expires: Micros::new(10), ..new("task_1", &ada) }).await.unwrap();
    store.add_task(&NewTask { expires: Micros::new(30), ..new("task_2", &ada) }).await.unwrap();
    assert_eq!(store.sweep_tasks(Micros::new(10), "{}", Micros::new(20)).await.unwrap(), (1, 0));
    let failed = store.task("task_1", &all(&ada), Micros::new(11)).await.unwrap().unwrap();
    assert_eq!((failed.state, failed.error.as_deref()), (TaskState::Failed, Some("{}")));
    assert_eq!(store.sweep_tasks(Micros::new(20), "{}", Micros::new(30)).await.unwrap(), (0, 1));
    assert_eq!(store.task("task_1", &all(&ada), Micros::new(11)).await.unwrap(), None);
    assert!(store.task("task_2", &all(&ada), Micros::new(11)).await.unwrap().is_some());
    store.close().await;
}

async fn a_task_belongs_to_its_key_unless_the_account_is_asked(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let ada = someone(&store, "ada").await;
    for (id, key_id) in [("task_1", "k1"), ("task_2", "k2")] {
        let task = NewTask { key_id: key_id.to_owned(), ..new(id, &ada) };
        store.add_task(&task).await.unwrap();
    }
    let [first, second] = ["k1", "k2"].map(|key| ObjectOwner::key(&ada, key));
    let owners = [
        (first, &["task_1"][..], true),
        (second.clone(), &["task_2"], false),
        (all(&ada), &["task_2", "task_1"], true),
    ];
    for (owner, listed, sees) in owners {
        let found = store.tasks(&owner, None, None, 10, Micros::new(2)).await.unwrap();
        let ids: Vec<String> = found.into_iter().map(|task| task.id).collect();
        assert_eq!(ids, listed, "{owner:?}");
        let found = store.task("task_1", &owner, Micros::new(2)).await.unwrap();
        assert_eq!(found.is_some(), sees, "{owner:?}");
    }
    let (now, expires) = (Micros::new(6), Micros::new(60));
    assert!(!store.cancel_task("task_1", &second, now, expires).await.unwrap());
    assert!(store.cancel_task("task_2", &second, now, expires).await.unwrap());
    assert!(store.cancel_task("task_1", &all(&ada), now, expires).await.unwrap());
    store.close().await;
}

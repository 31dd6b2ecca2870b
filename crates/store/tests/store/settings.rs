//! Settings and the audit log.

use std::collections::HashSet;
use std::sync::Arc;

use canon::Micros;
use store::{AuditFilter, AuditLine, AuditRecord};
use tokio::task::JoinSet;

use crate::on_both;
use crate::test_database::TestDatabase;

on_both!(
    a_setting_has_the_last_stored_value,
    concurrent_starts_agree_on_a_setting,
    a_setting_is_taken_once,
    the_latest_audits_come_first,
    changes_of_two_processes_run_one_after_the_other,
    a_change_and_its_line_are_stored_together,
);

async fn a_setting_has_the_last_stored_value(database: Arc<TestDatabase>) {
    let store = database.open().await;
    assert_eq!(store.setting("a").await.unwrap(), None);
    store.put_setting("a", "1").await.unwrap();
    store.put_setting("a", "2").await.unwrap();
    assert_eq!(store.setting("a").await.unwrap().as_deref(), Some("2"));
    assert_eq!(store.setting_or("a", "3").await.unwrap(), "2");
    assert_eq!(store.setting("b").await.unwrap(), None);
    assert_eq!(store.setting("\0").await.unwrap(), None);
    store.close().await;
}

async fn concurrent_starts_agree_on_a_setting(database: Arc<TestDatabase>) {
    let stores = [database.open().await, database.open().await];
    for round in 0..20 {
        let mut tasks = JoinSet::new();
        for n in 0..8 {
            let store = stores[n % 2].clone();
            tasks.spawn(async move {
                store.setting_or(&format!("pepper{round}"), &n.to_string()).await.unwrap()
            });
        }
        let answers: HashSet<String> = tasks.join_all().await.into_iter().collect();
        assert_eq!(answers.len(), 1, "{answers:?}");
    }
    for store in stores {
        store.close().await;
    }
}

async fn a_setting_is_taken_once(database: Arc<TestDatabase>) {
    let stores = [database.open().await, database.open().await];
    for round in 0..20 {
        let name = format!("token{round}");
        stores[0].put_setting(&name, "secret").await.unwrap();
        let mut tasks = JoinSet::new();
        for n in 0..8 {
            let (store, name) = (stores[n % 2].clone(), name.clone());
            tasks.spawn(async move { store.take_setting(&name).await.unwrap() });
        }
        let got: Vec<String> = tasks.join_all().await.into_iter().flatten().collect();
        assert_eq!(got, ["secret"]);
        assert_eq!(stores[1].setting(&name).await.unwrap(), None);
    }
    for store in stores {
        store.close().await;
    }
}

fn line<'a>(
    at: i64,
    actor: &'a str,
    action: &'a str,
    subject: &'a str,
    detail: &'a str,
) -> AuditLine<'a> {
    AuditLine {
        at: Micros::new(at),
        actor,
        key_id: None,
        action,
        subject,
        detail,
        address: None,
        agent: None,
    }
}

async fn the_latest_audits_come_first(database: Arc<TestDatabase>) {
    let store = database.open().await;
    for (at, subject) in [(5, "first"), (7, "second"), (7, "third"), (6, "late")] {
        store.add_audit(&line(at, "someone", "key.revoke", subject, "because")).await.unwrap();
    }
    let subjects =
        |audits: Vec<AuditRecord>| audits.into_iter().map(|a| a.subject).collect::<Vec<_>>();
    assert_eq!(subjects(store.audits(10).await.unwrap()), ["third", "second", "late", "first"]);
    assert_eq!(subjects(store.audits(2).await.unwrap()), ["third", "second"]);
    let AuditRecord { id: _, at, actor, key_id, action, subject, detail, address, agent } =
        store.audits(1).await.unwrap().remove(0);
    assert_eq!(
        (at, &*actor, key_id, &*action, &*subject, &*detail, address, agent),
        (Micros::new(7), "someone", None, "key.revoke", "third", "because", None, None)
    );
    store.add_audit(&line(9, "another", "key", "whole", "")).await.unwrap();
    store.add_audit(&line(9, "another", "keys.list", "alike", "")).await.unwrap();
    let which = |actor: &str, action: &str| AuditFilter {
        actors: actor.split_whitespace().map(str::to_owned).collect(),
        action: (!action.is_empty()).then(|| action.to_owned()),
        ..AuditFilter::default()
    };
    let of = async |filter: AuditFilter| subjects(store.audits_of(&filter, 9).await.unwrap());
    assert_eq!(of(which("another", "")).await, ["alike", "whole"]);
    assert_eq!(of(which("another nobody", "")).await, ["alike", "whole"]);
    assert_eq!(of(which("", "key")).await, ["whole", "third", "second", "late", "first"]);
    assert_eq!(of(which("another", "key.revoke")).await, [""; 0]);
    let time = AuditFilter {
        since: Some(Micros::new(6)),
        until: Some(Micros::new(9)),
        ..AuditFilter::default()
    };
    assert_eq!(of(time).await, ["third", "second", "late"]);
    let last = store.audits(4).await.unwrap().pop().unwrap();
    let before = AuditFilter { before: Some((last.at, last.id)), ..AuditFilter::default() };
    assert_eq!(
        (last.subject.as_str(), of(before).await),
        ("second", vec!["late".to_owned(), "first".to_owned()])
    );
    let after = AuditFilter { after: Some(last.id), ..AuditFilter::default() };
    let written = ["third", "late", "whole", "alike"];
    assert_eq!(of(after.clone()).await, written, "in the order of writing");
    assert_eq!(subjects(store.audits_of(&after, 1).await.unwrap()), ["third"]);
    assert_eq!(store.audit_stream().await.unwrap(), "");
    assert!(store.move_audit_stream("", "7").await.unwrap());
    assert!(!store.move_audit_stream("", "8").await.unwrap(), "another node was first");
    assert_eq!(store.audit_stream().await.unwrap(), "7");
    let by_key = AuditLine { key_id: Some("abc"), ..line(99, "someone", "x", "", "") };
    store.add_audit(&by_key).await.unwrap();
    assert_eq!(store.audits(1).await.unwrap().remove(0).key_id.as_deref(), Some("abc"));
    let (address, agent) = (Some("192.0.2.1"), Some("curl\0/8"));
    let by_request = AuditLine { address, agent, ..line(100, "someone", "x", "", "") };
    store.add_audit(&by_request).await.unwrap();
    let read = store.audits(1).await.unwrap().remove(0);
    assert_eq!(
        (read.address.as_deref(), read.agent.as_deref()),
        (Some("192.0.2.1"), Some("curl\u{fffd}/8"))
    );
    store.close().await;
}

async fn changes_of_two_processes_run_one_after_the_other(database: Arc<TestDatabase>) {
    const ROUNDS: u32 = 20;
    let mut changes = JoinSet::new();
    for _ in 0..2 {
        // Each has its own connections and its own mutex, as two processes have.
        let store = database.open().await;
        changes.spawn(async move {
            for _ in 0..ROUNDS {
                let mut change = store.begin_change().await.unwrap();
                let before = store.setting("count").await.unwrap();
                let count: u32 = before.map_or(0, |text| text.parse().unwrap());
                tokio::task::yield_now().await;
                change.put_setting("count", &(count + 1).to_string()).await.unwrap();
                change.commit(&[line(1, "someone", "count", "", "")]).await.unwrap();
            }
            store.close().await;
        });
    }
    changes.join_all().await;
    let store = database.open().await;
    let count = store.setting("count").await.unwrap();
    assert_eq!(count.as_deref(), Some((2 * ROUNDS).to_string().as_str()));
    store.close().await;
}

async fn a_change_and_its_line_are_stored_together(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let put = async || {
        let mut change = store.begin_change().await.unwrap();
        change.put_setting("name", "changed").await.unwrap();
        change
    };
    let seen = async || {
        let lines: Vec<String> =
            store.audits(9).await.unwrap().into_iter().map(|line| line.subject).collect();
        (store.setting("name").await.unwrap(), lines)
    };
    // A process that dies before the commit leaves neither of the two.
    drop(put().await);
    assert_eq!(seen().await, (None, vec![]));
    // A forgotten line and a line that cannot be written undo the change.
    put().await.commit(&[]).await.unwrap_err();
    database.execute_raw("ALTER TABLE audits RENAME TO hidden").await;
    put().await.commit(&[line(1, "someone", "setting.change", "name", "")]).await.unwrap_err();
    database.execute_raw("ALTER TABLE hidden RENAME TO audits").await;
    assert_eq!(seen().await, (None, vec![]));
    put().await.commit(&[line(1, "someone", "setting.change", "name", "")]).await.unwrap();
    assert_eq!(seen().await, (Some("changed".to_owned()), vec!["name".to_owned()]));
    store.close().await;
}

//! Archiving: for any history of calls, corrections and runs of retention, the sums stay equal at every instant.

use std::sync::Arc;

use canon::{Micros, Money};
use ledger::{CallOutcome, LedgerEntry, SettlementKnowledge};
use proptest::prelude::*;
use store::{
    ArchiveFile, ArchivePart, ArchiveState, AuditLine, ClusterTurn, KeyRecord, RefusedCalls, Store,
    UsageStep,
};

use crate::on_both;
use crate::samples::{check, entry, id, some_key};
use crate::test_database::TestDatabase;

on_both!(
    any_history_keeps_the_sums,
    a_part_of_many_calls_is_removed_in_steps_that_each_balance,
    calls_leave_only_through_a_written_part,
    a_late_settlement_is_booked_once_or_refused,
    several_processes_remove_a_part_together,
    old_rows_of_other_tables_are_deleted_in_batches,
    one_process_has_the_turn,
    a_turn_lasts_as_long_as_its_work_and_no_longer,
);

const DAY: i64 = 86_400_000_000;

async fn is_proved(store: &Store) {
    let (proofs, _) = store.verify().await.unwrap();
    for proof in proofs {
        assert!(proof.violations.is_empty(), "{proof:?}");
    }
    for total in store.totals().await.unwrap() {
        assert_eq!(total.cost, total.spent, "{}", total.key_id);
    }
}

/// Returns the file that a part would have.
async fn file_of(store: &Store, part: &ArchivePart) -> ArchiveFile {
    let mut file = ArchiveFile { name: format!("part-{}", part.id), ..ArchiveFile::default() };
    let mut after = i64::MIN;
    while let Some((last, calls)) = store.part_calls(part.id, after).await.unwrap() {
        after = last;
        file.calls += calls.len() as i64;
        file.cost = file.cost.saturating_add(calls.iter().map(|call| call.cost).sum());
    }
    file
}

/// Archives everything that ended before a time. Stops after so many steps, as a killed process does.
pub(crate) async fn archive(store: &Store, until: i64, mut steps: usize) -> i64 {
    let mut removed = 0;
    while steps > 0 {
        steps -= 1;
        let part = match store.unfinished_part().await.unwrap() {
            Some(part) => part,
            None => {
                let range = Micros::new(i64::MIN)..Micros::new(until);
                match store.plan_part(range).await.unwrap() {
                    Some(_) => continue,
                    None => return removed,
                }
            }
        };
        match part.state {
            ArchiveState::Writing => {
                let file = file_of(store, &part).await;
                assert!(store.part_written(part.id, &file).await.unwrap());
                assert!(!store.part_written(part.id, &file).await.unwrap());
            }
            ArchiveState::Written => {
                removed += store.remove_part_calls(part.id).await.unwrap() as i64;
            }
            ArchiveState::Removed => panic!("a removed part is finished"),
        }
    }
    removed
}

/// A step of a history. Numbers choose among keys, days and calls.
#[derive(Clone, Debug)]
enum Step {
    Post { key: usize, day: i64, session: usize, knowledge: SettlementKnowledge },
    Correct { call: usize, cost: i64 },
    Repeat { call: usize },
    Archive { day: i64, steps: usize },
    DropHours { day: i64 },
    DropSessions { day: i64 },
}

fn step() -> impl Strategy<Value = Step> {
    let knowledge = prop::sample::select(SettlementKnowledge::ALL.to_vec());
    prop_oneof![
        6 => (0..3_usize, 0..4_i64, 0..3_usize, knowledge).prop_map(
            |(key, day, session, knowledge)| Step::Post { key, day, session, knowledge }
        ),
        3 => (0..30_usize, 1..100_i64).prop_map(|(call, cost)| Step::Correct { call, cost }),
        1 => (0..30_usize).prop_map(|call| Step::Repeat { call }),
        3 => (0..5_i64, 1..9_usize).prop_map(|(day, steps)| Step::Archive { day, steps }),
        1 => (0..5_i64).prop_map(|day| Step::DropHours { day }),
        1 => (0..5_i64).prop_map(|day| Step::DropSessions { day }),
    ]
}

fn settlement(
    key: &KeyRecord,
    number: usize,
    day: i64,
    knowledge: SettlementKnowledge,
) -> LedgerEntry {
    let ended = day * DAY + number as i64 * 200_000 + 1_000;
    let outcome = match knowledge {
        SettlementKnowledge::Settled => CallOutcome::Done,
        SettlementKnowledge::Reported | SettlementKnowledge::Journal => CallOutcome::Recovered,
    };
    LedgerEntry {
        outcome,
        knowledge,
        held: Some(Money::from_nanos(100)),
        ..entry(&id(), key, 7 + day, ended)
    }
}

async fn any_history_keeps_the_sums(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let used = &store;
    check(24, prop::collection::vec(step(), 1..30), |steps| async move {
        let store = used;
        let keys = [some_key(store).await, some_key(store).await, some_key(store).await];
        let mut calls: Vec<LedgerEntry> = Vec::new();
        for step in &steps {
            match *step {
                Step::Post { key, day, session, knowledge } => {
                    let mut call = settlement(&keys[key], calls.len(), day, knowledge);
                    if session > 0 {
                        call.session = format!("session {session}").into();
                    }
                    assert_eq!(
                        store.post(std::slice::from_ref(&call)).await.unwrap(),
                        1,
                        "{step:?}"
                    );
                    calls.push(call);
                }
                Step::Correct { call, cost } => {
                    let Some(call) = calls.get_mut(call) else { continue };
                    call.knowledge = match call.knowledge {
                        SettlementKnowledge::Reported => SettlementKnowledge::Journal,
                        SettlementKnowledge::Journal | SettlementKnowledge::Settled => {
                            SettlementKnowledge::Settled
                        }
                    };
                    (call.cost, call.lane) = (Money::from_nanos(cost), "demo/other".into());
                    assert_eq!(store.post(std::slice::from_ref(call)).await.unwrap(), 0);
                }
                Step::Repeat { call } => {
                    let Some(call) = calls.get(call) else { continue };
                    assert_eq!(store.post(std::slice::from_ref(call)).await.unwrap(), 0);
                }
                Step::Archive { day, steps } => drop(archive(store, day * DAY, steps).await),
                Step::DropHours { day } => {
                    while store.drop_usage_hours(Micros::new(day * DAY + 5)).await.unwrap() > 0 {}
                }
                Step::DropSessions { day } => {
                    while store.drop_call_sessions(Micros::new(day * DAY)).await.unwrap() > 0 {}
                }
            }
            is_proved(store).await;
        }
        let before = store.totals().await.unwrap();
        archive(store, 9 * DAY, usize::MAX).await;
        is_proved(store).await;
        // All calls once more, as a journal of a node that was away would post them.
        assert_eq!(store.post(&calls).await.unwrap(), 0);
        assert_eq!(store.totals().await.unwrap().len(), before.len());
        is_proved(store).await;
        for call in &calls {
            assert!(store.is_recorded(call).await.unwrap());
        }
    });
    store.close().await;
}

async fn a_part_of_many_calls_is_removed_in_steps_that_each_balance(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let key = some_key(&store).await;
    for batch in 0..6 {
        let calls: Vec<LedgerEntry> = (0..500)
            .map(|number| entry(&id(), &key, 3, DAY + batch * 1_000_000 + number))
            .collect();
        store.post(&calls).await.unwrap();
    }
    // The day after stays.
    store.post(&[entry(&id(), &key, 5, 2 * DAY + 1)]).await.unwrap();
    let total = store.totals().await.unwrap();
    let mut transactions = 0;
    loop {
        let removed = archive(&store, 2 * DAY, 1).await;
        let (_, calls) = store.verify().await.unwrap();
        assert_eq!(calls, 3_001, "archived calls are counted");
        assert_eq!(store.totals().await.unwrap(), total);
        is_proved(&store).await;
        transactions += i64::from(removed > 0);
        let parts = store.archive_parts(0).await.unwrap();
        if parts.iter().any(|part| part.state == ArchiveState::Removed) {
            break;
        }
    }
    assert!(transactions > 1, "{transactions}");
    let parts = store.archive_parts(0).await.unwrap();
    assert_eq!((parts.len(), parts[0].removed_calls), (1, 3_000));
    assert_eq!(parts[0].file.cost, Money::from_nanos(9_000));
    assert_eq!(archive(&store, 2 * DAY, 9).await, 0);
    assert_eq!(store.export(None, 10).await.unwrap().len(), 1);
    store.return_space().await.unwrap();
    store.close().await;
}

async fn calls_leave_only_through_a_written_part(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let key = some_key(&store).await;
    store.post(&[settlement(&key, 0, 1, SettlementKnowledge::Settled)]).await.unwrap();
    let refuses = async || {
        for sql in [
            "DELETE FROM call_blocks",
            "DELETE FROM call_ids",
            "UPDATE call_blocks SET ended = ended + 1",
            "UPDATE call_ids SET block = block + 1",
        ] {
            let said = database.try_execute_raw(sql).await.unwrap_err().to_string();
            assert!(said.contains("a settled call is never"), "{sql}: {said}");
        }
    };
    refuses().await;
    // A part whose file is not complete gives no right either.
    archive(&store, 9 * DAY, 1).await;
    assert_eq!(store.unfinished_part().await.unwrap().unwrap().state, ArchiveState::Writing);
    refuses().await;
    archive(&store, 9 * DAY, 9).await;
    for sql in
        ["DELETE FROM archived_calls", "DELETE FROM archived_ids", "DELETE FROM archive_parts"]
    {
        let said = database.try_execute_raw(sql).await.unwrap_err().to_string();
        assert!(said.contains("kept for ever"), "{sql}: {said}");
    }
    is_proved(&store).await;
    database.execute_raw("UPDATE archived_calls SET cost = cost + 1").await;
    let (proofs, _) = store.verify().await.unwrap();
    let broken: Vec<&str> =
        proofs.iter().filter(|proof| !proof.violations.is_empty()).map(|proof| proof.law).collect();
    assert_eq!(broken, ["L1"]);
    store.close().await;
}

async fn a_late_settlement_is_booked_once_or_refused(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let key = some_key(&store).await;
    let reported = settlement(&key, 0, 1, SettlementKnowledge::Reported);
    let journal = settlement(&key, 50, 1, SettlementKnowledge::Journal);
    let settled = settlement(&key, 90, 1, SettlementKnowledge::Settled);
    for call in [&reported, &journal, &settled] {
        store.post(std::slice::from_ref(call)).await.unwrap();
    }
    assert_eq!(archive(&store, 9 * DAY, 99).await, 2, "the reported one stays");
    let spent = async || store.key(&key.id).await.unwrap().unwrap().spent.as_nanos();
    let before = spent().await;
    let better = |call: &LedgerEntry| LedgerEntry {
        knowledge: SettlementKnowledge::Settled,
        outcome: CallOutcome::Done,
        cost: Money::from_nanos(50),
        ..call.clone()
    };
    // Its node comes back and knows more.
    store.post(&[better(&reported)]).await.unwrap();
    assert_eq!(spent().await, before - 8 + 50);
    // The archived ones are as they are.
    store.post(&[better(&journal), better(&settled)]).await.unwrap();
    assert_eq!(spent().await, before - 8 + 50);
    // One that nobody posted is new, however old it is.
    let late = settlement(&key, 70, 1, SettlementKnowledge::Settled);
    assert_eq!(store.post(&[late.clone(), settled]).await.unwrap(), 1);
    assert_eq!(spent().await, before - 8 + 50 + 8);
    is_proved(&store).await;
    // Now both may leave.
    assert_eq!(archive(&store, 9 * DAY, 99).await, 2);
    assert_eq!(store.post(&[reported, journal, late]).await.unwrap(), 0);
    is_proved(&store).await;
    store.close().await;
}

async fn several_processes_remove_a_part_together(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let key = some_key(&store).await;
    for batch in 0..4 {
        let calls: Vec<LedgerEntry> =
            (0..400).map(|number| entry(&id(), &key, 2, batch * 1_000_000 + number)).collect();
        store.post(&calls).await.unwrap();
    }
    archive(&store, DAY, 2).await;
    let part = store.unfinished_part().await.unwrap().unwrap();
    assert_eq!(part.state, ArchiveState::Written);
    let mut removing = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (store, database) = (store.clone(), Arc::clone(&database));
        removing.spawn(async move {
            let other = database.open().await;
            let mut removed = 0;
            loop {
                let one = other.remove_part_calls(part.id).await.unwrap();
                removed += one + store.remove_part_calls(part.id).await.unwrap();
                if one == 0 {
                    other.close().await;
                    return removed;
                }
            }
        });
    }
    let removed: usize = removing.join_all().await.into_iter().sum();
    assert_eq!(removed, 1_600);
    is_proved(&store).await;
    store.close().await;
}

async fn old_rows_of_other_tables_are_deleted_in_batches(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let key = some_key(&store).await;
    let calls: Vec<LedgerEntry> =
        (0..3).map(|day| settlement(&key, 0, day, SettlementKnowledge::Settled)).collect();
    store.post(&calls).await.unwrap();
    let refused = |day: i64| RefusedCalls {
        at: Micros::new(day * DAY),
        key_id: key.id.clone(),
        account_id: key.account_id.clone(),
        model: "m".to_owned(),
        reason: "cap",
        status: 429,
        calls: 1,
    };
    store.add_refusals(&[refused(0), refused(1), refused(2)]).await.unwrap();
    for day in 0..3 {
        let line = AuditLine {
            at: Micros::new(day * DAY),
            actor: "command line",
            key_id: None,
            action: "key.create",
            subject: "k",
            detail: "",
            address: None,
            agent: None,
        };
        store.add_audit(&line).await.unwrap();
    }
    let until = Micros::new(2 * DAY + 5);
    assert_eq!(store.drop_refusals(Micros::new(2 * DAY)).await.unwrap(), 2);
    let first = store.audits(9).await.unwrap().iter().map(|line| line.id).min().unwrap();
    assert_eq!(store.drop_audits(until, first).await.unwrap(), 1, "others are not sent yet");
    assert_eq!(store.drop_audits(until, i64::MAX).await.unwrap(), 2);
    let dropped = store.drop_usage_hours(until).await.unwrap();
    assert_eq!(dropped, 6, "two hours of a key, its account and all");
    assert_eq!(store.drop_usage_hours(Micros::new(DAY)).await.unwrap(), 0);
    assert_eq!(store.usage_hours_from().await.unwrap(), Some(UsageStep::Day.begin(until)));
    is_proved(&store).await;
    store.close().await;
}

async fn one_process_has_the_turn(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let long = Micros::from_secs(60);
    assert!(store.take_turn(ClusterTurn::Retention, "a", long).await.unwrap());
    assert!(!store.take_turn(ClusterTurn::Retention, "b", long).await.unwrap());
    assert!(store.take_turn(ClusterTurn::Retention, "a", Micros::ZERO).await.unwrap(), "its own");
    assert!(store.take_turn(ClusterTurn::Retention, "b", long).await.unwrap(), "it has expired");
    store.end_turn(ClusterTurn::Retention, "a").await.unwrap();
    assert!(!store.take_turn(ClusterTurn::Retention, "a", long).await.unwrap());
    store.end_turn(ClusterTurn::Retention, "b").await.unwrap();
    assert!(store.take_turn(ClusterTurn::Retention, "a", long).await.unwrap());
    store.close().await;
}

/// A turn may be short, so that one of a killed process ends soon, and work may be long.
async fn a_turn_lasts_as_long_as_its_work_and_no_longer(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let (short, long) = (Micros::from_millis(300), Micros::from_secs(6));
    let turn = async || store.setting_or("retention_turn", "").await.unwrap();
    let work = async {
        // It is prolonged by a text of the same form with a later time.
        let first = turn().await;
        while turn().await <= first {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        assert!(
            !store.take_turn(ClusterTurn::Retention, "b", short).await.unwrap(),
            "a still works"
        );
        "done"
    };
    assert!(store.take_turn(ClusterTurn::Retention, "a", long).await.unwrap());
    assert_eq!(store.in_turn(ClusterTurn::Retention, "a", long, work).await.unwrap(), "done");
    assert_eq!(turn().await, "", "it is given back");
    // A killed process renews nothing, and the next one waits for it.
    assert!(store.take_turn(ClusterTurn::Retention, "killed", short).await.unwrap());
    assert!(store.wait_for_turn(ClusterTurn::Retention, "next").await.unwrap());
    // Work whose turn was lost ends.
    let endless = std::future::pending::<()>();
    let lost = store.in_turn(ClusterTurn::Retention, "killed", short, endless).await.unwrap_err();
    assert!(lost.to_string().contains("another process"), "{lost}");
    store.close().await;
}

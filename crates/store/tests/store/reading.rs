//! Reading rows: pages that cover every matching row once.

use std::sync::Arc;

use canon::{Micros, Money};
use ledger::{CallError, CallOutcome, LedgerEntry};
use proptest::prelude::*;
use store::{CallFilter, EntryFilter, KeyRecord, StatusFilter, Store};

use crate::on_both;
use crate::samples::{check, entry, id, some_key};
use crate::test_database::TestDatabase;

on_both!(
    any_filter_pages_over_matching_rows_once,
    export_pages_over_all_rows_once,
    pages_are_in_order_however_late_a_call_is_posted,
);

/// Adds rows of three keys of two accounts and two models, many of them with the same end.
async fn rows(store: &Store) -> Vec<LedgerEntry> {
    let first = some_key(store).await;
    let keys = [
        KeyRecord { id: "k1".to_owned(), ..first.clone() },
        KeyRecord { id: "k2".to_owned(), ..first },
        KeyRecord { id: "k3".to_owned(), ..some_key(store).await },
    ];
    let mut rows = Vec::new();
    for n in 0..200_i64 {
        let key = &keys[n as usize % 3];
        let model = if n % 5 < 3 { "m1" } else { "m2" };
        // The order of these ids depends on the collation.
        let name = if n % 2 == 0 { format!("B-{n}") } else { format!("a_{n}") };
        let status = [200, 200, 429, 503][n as usize % 4];
        let outcome = if status == 200 { CallOutcome::Done } else { CallOutcome::Failed };
        let lane = ["a/x", "a/y", "b/x", ""][n as usize % 7 % 4].into();
        let session = if n % 3 == 0 { "run" } else { "" }.into();
        let dialect = if n % 2 == 0 { "chat" } else { "messages" }.into();
        let error = (status != 200).then(|| {
            let code = if n % 3 == 0 { "timeout" } else { "unavailable" };
            Box::new(CallError::new(code, "", "no lane answered"))
        });
        let row = entry(&name, key, n, (n * 7) % 20);
        let (model, started) = (model.into(), row.ended - Micros::new(n % 11));
        rows.push(LedgerEntry {
            model,
            started,
            status,
            outcome,
            lane,
            session,
            dialect,
            error,
            ..row
        });
    }
    // In batches whose ends overlap.
    for part in 0..4 {
        let batch: Vec<LedgerEntry> = rows.iter().skip(part).step_by(4).cloned().collect();
        store.post(&batch).await.unwrap();
    }
    rows.sort_by(|a, b| (a.ended, &a.request_id).cmp(&(b.ended, &b.request_id)));
    rows
}

fn place_of(entry: &LedgerEntry) -> (Micros, String) {
    (entry.ended, entry.request_id.to_string())
}

async fn any_filter_pages_over_matching_rows_once(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let rows = &rows(&store).await;
    let pages = &store;
    let accounts: Vec<String> = rows.iter().map(|row| row.account_id.to_string()).collect();
    let filter = (
        prop::option::of(prop::sample::select(vec!["k1", "k2", "k3", "k4"])),
        prop::option::of(prop::sample::select(accounts)),
        prop::option::of(prop::sample::select(vec!["m1", "m2", "m\0"])),
        prop::option::of(-1..21_i64),
        prop::option::of(-1..21_i64),
        prop::option::of((-1..21_i64, "[aB][-_][0-9]{1,2}")),
        prop::option::of((-1..21_i64, 0..21_i64)),
    );
    let ends = (
        prop::option::of(prop::sample::select(vec!["a", "a/y", "b/x", "c"])),
        prop::option::of(prop::sample::select(vec!["done", "failed", "4xx", "503", "418"])),
        prop::option::of(prop::sample::select(vec!["chat", "native"])),
        prop::option::of(prop::sample::select(vec!["run", "none"])),
        prop::option::of(prop::sample::select(vec!["timeout", "none"])),
        prop::option::of(0..220_i64),
        prop::option::of(-1..12_i64),
    );
    check(
        200,
        (filter, ends, 1..60_u32, 1..6_000_usize),
        |(filter, ends, limit, bytes)| async move {
            let (key_id, account_id, model, since, until, before, began) = filter;
            let (lane, status, format, session, error, min_cost, min_took) = ends;
            let began = began.map(|(from, length)| Micros::new(from)..Micros::new(from + length));
            let conditions = CallFilter {
                key_id: key_id.map(str::to_owned),
                account_id,
                model: model.map(str::to_owned),
                lane: lane.map(str::to_owned),
                status: status.and_then(StatusFilter::by_word),
                format: format.map(str::to_owned),
                session: session.map(str::to_owned),
                error: error.map(str::to_owned),
                min_cost: min_cost.map(Money::from_nanos),
                min_took: min_took.map(Micros::new),
                ..CallFilter::default()
            };
            let mut filter = EntryFilter {
                began: began.clone(),
                since: since.map(Micros::new),
                until: until.map(Micros::new),
                before: before.map(|(ended, id)| (Micros::new(ended), id)),
                ..EntryFilter::from(conditions.clone())
            };
            let is_status = |row: &LedgerEntry, word: &str| match word {
                "done" => row.status == 200,
                "failed" => row.status != 200,
                "4xx" => row.status == 429,
                status => row.status.to_string() == status,
            };
            let expected: Vec<LedgerEntry> = rows
                .iter()
                .rev()
                .filter(|row| conditions.key_id.as_ref().is_none_or(|id| *id == row.key_id))
                .filter(|row| conditions.account_id.as_ref().is_none_or(|id| *id == row.account_id))
                .filter(|row| conditions.model.as_ref().is_none_or(|model| *model == row.model))
                .filter(|row| min_cost.is_none_or(|least| row.cost.as_nanos() >= least))
                .filter(|row| min_took.is_none_or(|least| (row.ended - row.started).get() >= least))
                .filter(|row| began.as_ref().is_none_or(|began| began.contains(&row.started)))
                .filter(|row| {
                    lane.is_none_or(|lane| {
                        *row.lane == *lane || row.lane.starts_with(&format!("{lane}/"))
                    })
                })
                .filter(|row| status.is_none_or(|status| is_status(row, status)))
                .filter(|row| format.is_none_or(|format| *row.dialect == *format))
                .filter(|row| session.is_none_or(|session| *row.session == *session))
                .filter(|row| {
                    let code = row.error.as_ref().map(|error| &*error.code);
                    error.is_none_or(|wanted| code == Some(wanted))
                })
                .filter(|row| filter.since.is_none_or(|since| row.ended >= since))
                .filter(|row| filter.until.is_none_or(|until| row.ended < until))
                .filter(|row| filter.before.as_ref().is_none_or(|at| place_of(row) < *at))
                .cloned()
                .collect();
            // The same in the other direction.
            let (mut got, mut after) = (Vec::new(), None);
            loop {
                let page = pages.export_of(&filter, after, limit).await.unwrap();
                let Some(last) = page.last() else { break };
                after = Some(place_of(last));
                got.extend(page);
            }
            got.reverse();
            assert_eq!(got, expected);
            let mut got: Vec<LedgerEntry> = Vec::new();
            loop {
                let page = pages.entry_page(&filter, limit, bytes).await.unwrap();
                assert!(page.calls.len() <= limit as usize);
                let whole = pages.entries(&filter, limit).await.unwrap();
                assert!(whole.starts_with(&page.calls));
                assert!(page.next.is_some() || page.calls == whole);
                got.extend(page.calls);
                let Some(next) = page.next else { break };
                filter.before = Some(next);
            }
            assert_eq!(got, expected);
        },
    );
    store.close().await;
}

async fn export_pages_over_all_rows_once(database: Arc<TestDatabase>) {
    let store = database.open().await;
    assert_eq!(store.export(None, 10).await.unwrap(), []);
    let rows = rows(&store).await;
    for limit in [1, 7, 100, 200, 1000] {
        let (mut got, mut after) = (Vec::new(), None);
        loop {
            let page = store.export(after, limit).await.unwrap();
            assert!(page.len() <= limit as usize);
            let Some(last) = page.last() else { break };
            after = Some(place_of(last));
            got.extend(page);
        }
        assert_eq!(got, rows, "pages of {limit}");
    }
    assert_eq!(store.entry(&id()).await.unwrap(), None);
    store.close().await;
}

async fn pages_are_in_order_however_late_a_call_is_posted(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let key = &some_key(&store).await;
    let second = 1_000_000;
    // Ends of each batch: within a block, on both sides of its bounds, far apart, before all others.
    let spans = [0, 1, 249_999, 250_000, 250_001, 500_000, 500_001, 900_000];
    let batches: Vec<Vec<i64>> = vec![
        spans.iter().map(|span| 50 * second + span).collect(),
        (0..40).map(|n| n * second).collect(),
        spans.iter().map(|span| 50 * second + 125_000 - span).collect(),
        (0..40).map(|n| 51 * second - n * 20_000).collect(),
        vec![i64::MIN, -second, 0, i64::MAX],
        (0..40).map(|n| 51 * second - n * 20_000).collect(),
    ];
    let mut rows = Vec::new();
    for (number, ends) in batches.into_iter().enumerate() {
        let call = |(n, ended): (usize, i64)| LedgerEntry {
            ended: Micros::new(ended),
            ..entry(&format!("{n}-{number}"), key, 1, 5)
        };
        let batch: Vec<LedgerEntry> = ends.into_iter().enumerate().map(call).collect();
        store.post(&batch).await.unwrap();
        rows.extend(batch);
    }
    rows.sort_by(|a, b| (a.ended, &a.request_id).cmp(&(b.ended, &b.request_id)));
    for key_id in [None, Some(key.id.clone())] {
        for limit in [1, 3, 10, 1_000] {
            let of_key = CallFilter { key_id: key_id.clone(), ..CallFilter::default() };
            let mut filter = EntryFilter::from(of_key);
            let (mut got, mut after) = (Vec::new(), None);
            loop {
                let page = store.export_of(&filter, after, limit).await.unwrap();
                let Some(last) = page.last() else { break };
                after = Some(place_of(last));
                got.extend(page);
            }
            assert_eq!(got, rows, "pages of {limit}");
            let mut got = Vec::new();
            loop {
                let page = store.entries(&filter, limit).await.unwrap();
                let Some(last) = page.last() else { break };
                filter.before = Some(place_of(last));
                got.extend(page);
            }
            got.reverse();
            assert_eq!(got, rows, "pages of {limit}");
        }
    }
    store.close().await;
}

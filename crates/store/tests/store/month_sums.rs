//! Sums of months, equal to the calls.

use std::collections::BTreeMap;
use std::sync::Arc;

use ledger::LedgerEntry;
use store::{CallFilter, GroupBy, MonthSums, ReportTotals, UsageStep};

use crate::expected_usage::{BEGIN, DAY, call, expected};
use crate::on_both;
use crate::samples::some_key;
use crate::test_database::TestDatabase;

on_both!(sums_of_a_month_are_those_of_its_calls);

fn told(groups: &[(String, ReportTotals)]) -> BTreeMap<String, (i64, i64)> {
    groups.iter().map(|(name, used)| (name.clone(), (used.calls, used.cost.as_nanos()))).collect()
}

async fn sums_of_a_month_are_those_of_its_calls(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let keys = [some_key(&store).await, some_key(&store).await, some_key(&store).await];
    let calls: Vec<LedgerEntry> = (0..60).map(|n| call("month", n, &keys)).collect();
    let (first, rest) = calls.split_at(20);
    store.post(first).await.unwrap();
    store.post(rest).await.unwrap();
    let months = UsageStep::Month.begins(&(BEGIN..BEGIN + 2 * DAY));
    assert_eq!(months.len(), 2, "the calls begin in October and November");
    let accounts = keys.iter().map(|key| Some(key.account_id.clone()));
    for account in accounts.chain([None, Some("nobody".to_owned())]) {
        let filter = CallFilter { account_id: account.clone(), ..CallFilter::default() };
        let by = |by| expected(&calls, |at| UsageStep::Month.begin(at), by, &filter);
        let owner = if account.is_some() { GroupBy::Key } else { GroupBy::Account };
        let mut totals = Vec::new();
        for begun in &months {
            let of_month = |group| {
                let groups = by(Some(group)).into_iter().filter(|((at, _), _)| at == begun);
                groups.map(|((_, name), (calls, cost, _))| (name, (calls, cost))).collect()
            };
            let MonthSums { all, models, owners } =
                store.month_sums(*begun, account.as_deref()).await.unwrap();
            assert_eq!(told(&models), of_month(GroupBy::Model), "{account:?}");
            assert_eq!(told(&owners), of_month(owner), "{account:?}");
            for groups in [&models, &owners] {
                assert!(groups.is_sorted_by_key(|(_, used)| -used.cost.as_nanos()));
                let sum: i64 = groups.iter().map(|(_, used)| used.cost.as_nanos()).sum();
                assert_eq!(sum, all.cost.as_nanos());
                assert_eq!(groups.iter().map(|(_, used)| used.output).sum::<i64>(), all.output);
            }
            if all.calls > 0 {
                totals.push((*begun, all));
            }
        }
        let range = BEGIN..BEGIN + 2 * DAY;
        let listed = store.sums_of_months(range.clone(), account.as_deref()).await.unwrap();
        assert_eq!(listed, totals, "{account:?}");
        let earlier = BEGIN - 90 * DAY..BEGIN - 60 * DAY;
        assert_eq!(store.sums_of_months(earlier, account.as_deref()).await.unwrap(), []);
    }
    store.close().await;
}

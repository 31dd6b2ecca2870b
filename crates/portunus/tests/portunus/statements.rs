//! Statements of months over the API: equal to the receipts of their calls, and for administrators alone.

use std::collections::BTreeSet;

use admin::StatementMonth;
use canon::Money;
use serde_json::{Value, json};
use testkit::TestGateway;

use crate::money::capped;

const CHAT: &str = "/v1/chat/completions";

fn cost(totals: &Value) -> Money {
    totals["cost_usd"].as_str().unwrap().parse().unwrap()
}

/// The sum of a list, which is absent from statements of another kind.
fn sum(list: &Value) -> Option<Money> {
    let lines = list.as_array()?.iter().map(|line| cost(&line["used"]));
    Some(lines.sum())
}

#[tokio::test]
async fn a_statement_has_the_cost_of_the_receipts() {
    let gateway = TestGateway::start().await;
    let other = capped(&gateway, "1").await;
    let now = || gateway.app.clock.now();
    let begun = now();
    let mut costs = Vec::new();
    for (model, key) in [("demo-chat", &gateway.key), ("demo-messages", &other)] {
        let ask = json!({ "model": model, "messages": [{ "role": "user", "content": "Hi" }] });
        let got = gateway.post(CHAT, &ask).key(key).send().await;
        assert_eq!(got.status, 200, "{}", got.text());
        gateway.wait_until_settled().await;
        let receipt = format!("/v1/usage/{}", got.header("x-request-id"));
        costs.push(cost(&gateway.get(&receipt).key(key).send().await.json()));
    }
    let paid: Money = costs.into_iter().sum();
    assert!(paid > Money::ZERO);
    // Midnight may have passed since the first call.
    let months: BTreeSet<String> =
        [begun, now()].map(|at| StatementMonth::of(at).unwrap().word()).into();
    let admin = gateway.admin_key().await.to_owned();
    let account = gateway.app.store.accounts().await.unwrap().remove(0).id;
    for query in [String::new(), format!("?account_id={account}")] {
        let mut sums: [Vec<Money>; 3] = Default::default();
        for month in &months {
            let path = format!("/api/admin/statements/{month}{query}");
            let statement = gateway.get(&path).key(&admin).send().await.json();
            assert_eq!(statement["month"], **month);
            let (keys, accounts) = (sum(&statement["keys"]), sum(&statement["accounts"]));
            assert_eq!((keys.is_some(), accounts.is_some()), (!query.is_empty(), query.is_empty()));
            let models = sum(&statement["models"]);
            let told = [Some(cost(&statement["total"])), models, keys.or(accounts)];
            sums.iter_mut().zip(told).for_each(|(sums, sum)| sums.push(sum.unwrap()));
        }
        assert_eq!(sums.map(|sums| sums.into_iter().sum::<Money>()), [paid; 3], "{query}");
    }
}

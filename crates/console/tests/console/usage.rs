//! Usage and calls: totals, ownership and grouping.

use canon::Micros;
use http::StatusCode;
use ledger::{CallError, CallOutcome, LedgerEntry};
use store::AccountRole;

use crate::gateway::{ConsoleGateway, ODD, SECOND, START, entry, escape};

const DAY: Micros = Micros::from_days(1);

#[tokio::test]
async fn usage_totals_are_per_account() {
    let gateway = ConsoleGateway::new().await;
    let anna = gateway.account("anna", AccountRole::Owner).await;
    let ben = gateway.account("ben", AccountRole::Member).await;
    let website = gateway.key_of(&anna, "abc", "website").await;
    let robot = gateway.key_of(&ben, "def", "robot").await;
    let mut calls: Vec<_> =
        (0..5).map(|n| entry(&website, &format!("a{n}"), "demo-chat", 500_000_000)).collect();
    calls.push(entry(&robot, "b0", ODD, 3_000_000_000));
    gateway.store.post(&calls).await.unwrap();
    let refused = store::RefusedCalls {
        at: calls[0].started,
        key_id: website.id.clone(),
        account_id: anna.id.clone(),
        model: "demo-chat".to_owned(),
        reason: "spent",
        status: 429,
        calls: 7,
    };
    gateway.store.add_refusals(&[refused]).await.unwrap();
    let (annas, bens) = (gateway.sign_in("anna").await, gateway.sign_in("ben").await);
    let all = gateway.get("/console/usage").cookie(&annas).send().await;
    assert_eq!(all.status, StatusCode::OK);
    all.assert_contains("$5.50");
    all.assert_contains("demo-chat");
    all.assert_contains("data-label=\"Refused\">7<");
    all.assert_lacks("<script>alert");
    let mine = gateway.get("/console/usage?by=key").cookie(&bens).send().await;
    mine.assert_contains("$3.00");
    mine.assert_contains("robot");
    mine.assert_lacks(">7<");
    mine.assert_lacks("website");
    // A member cannot select another account.
    let path = format!("/console/usage?account={}&key=abc", anna.id);
    let none = gateway.get(&path).cookie(&bens).send().await;
    none.assert_contains("No calls in this time");
    let one = format!("/console/usage?model={}", escape(ODD));
    gateway.get(&one).cookie(&annas).send().await.assert_contains("$3.00");
    let chosen = gateway.get("/console/usage?key=abc&status=200&by=lane").cookie(&annas);
    let chosen = chosen.send().await;
    chosen.assert_contains("$2.50");
    for control in ["model", "key", "account", "lane", "status"] {
        chosen.assert_contains(&format!("<select id=\"{control}\" name=\"{control}\">"));
    }
    chosen.assert_contains("<option value=\"abc\" selected>website</option>");
    chosen.assert_contains("<option value=\"def\">robot</option>");
    chosen.assert_contains("name=\"by\" value=\"lane\"");
    mine.assert_lacks("name=\"account\"");
    mine.assert_lacks("value=\"abc\"");
    for view in
        ["what=latency", "what=tokens&by=status", "what=calls&by=lane&range=1y", "range=24h"]
    {
        let got = gateway.get(&format!("/console/usage?{view}")).cookie(&annas).send().await;
        assert_eq!(got.status, StatusCode::OK, "{view}");
        got.assert_contains("<svg");
    }
}

#[tokio::test]
async fn receipts_are_visible_to_their_own_account() {
    let gateway = ConsoleGateway::new().await;
    let anna = gateway.account("anna", AccountRole::Member).await;
    let ben = gateway.account("ben", AccountRole::Member).await;
    let key = gateway.key_of(&anna, "abc", "website").await;
    let mut call = entry(&key, "req_1", "demo-chat", 7);
    call.losses = vec!["sampling.top_k".to_owned()];
    gateway.store.post(&[call]).await.unwrap();
    let _ = ben;
    let (annas, bens) = (gateway.sign_in("anna").await, gateway.sign_in("ben").await);
    let got = gateway.get("/console/calls/req_1").cookie(&annas).send().await;
    assert_eq!(got.status, StatusCode::OK);
    for text in ["0.000000007", "sampling.top_k", "demo/demo-chat", "1,200"] {
        got.assert_contains(text);
    }
    let other = gateway.get("/console/calls/req_1").cookie(&bens).send().await;
    assert_eq!(other.status, StatusCode::NOT_FOUND);
    gateway.get("/console/calls").cookie(&bens).send().await.assert_contains("No calls");
}

#[tokio::test]
async fn calls_are_paged_and_fully_exported() {
    let gateway = ConsoleGateway::new().await;
    let anna = gateway.account("anna", AccountRole::Member).await;
    let key = gateway.key_of(&anna, "abc", "=cmd()").await;
    let calls: Vec<_> = (0..1_203)
        .map(|n| {
            let mut call = entry(&key, &format!("r{n:04}"), "demo-chat", 1);
            call.ended = START + n * SECOND;
            call
        })
        .collect();
    gateway.store.post(&calls).await.unwrap();
    let cookie = gateway.sign_in("anna").await;
    let first = gateway.get("/console/calls").cookie(&cookie).send().await;
    first.assert_contains("r1202");
    first.assert_lacks("r1152");
    let next = first.body.split("rel=\"next\" href=\"").nth(1).unwrap().split('"').next().unwrap();
    let second = gateway.get(&next.replace("&amp;", "&")).cookie(&cookie).send().await;
    second.assert_contains("r1152");
    second.assert_lacks("r1153");
    let file = gateway.get("/console/calls.csv").cookie(&cookie).send().await;
    assert_eq!(file.header("content-type"), "text/csv; charset=utf-8");
    assert_eq!(file.body.lines().count(), 1_204);
    file.assert_contains("\"'=cmd()\"");
}

/// Meaning of a parameter.
type CallCondition = fn(&LedgerEntry) -> bool;

/// The list and its export have the same calls for every selection, and no others.
#[tokio::test]
async fn list_and_export_have_the_selected_calls() {
    let gateway = ConsoleGateway::new().await;
    let anna = gateway.account("anna", AccountRole::Owner).await;
    let ben = gateway.account("ben", AccountRole::Member).await;
    let keys =
        [gateway.key_of(&anna, "abc", "website").await, gateway.key_of(&ben, "def", "robot").await];
    let calls: Vec<_> = (0..40)
        .map(|n: usize| {
            let (model, lane) = (["m1", "m2"][n % 2], ["a/x", "a/y", "b/x"][n % 3]);
            let mut call = entry(&keys[n % 2], &format!("r{n:02}"), model, 1);
            (call.lane, call.session) = (lane.into(), ["", "run"][n % 4 / 3].into());
            call.dialect = ["chat", "native"][n / 2 % 2].into();
            call.ended = START - (n % 7 / 3) as i64 * DAY;
            call.started = call.ended;
            if n.is_multiple_of(5) {
                call.error = Some(Box::new(CallError::new("unavailable", "", "no lane answered")));
            }
            (call.status, call.outcome) = match n % 5 {
                0 => (503, CallOutcome::Failed),
                1 => (404, CallOutcome::Failed),
                2 => (200, CallOutcome::BrokeOff),
                _ => (200, CallOutcome::Done),
            };
            call
        })
        .collect();
    gateway.store.post(&calls).await.unwrap();
    let cookie = gateway.sign_in("anna").await;
    let conditions: [(&str, CallCondition); 15] = [
        ("status=failed", |call| call.outcome != CallOutcome::Done),
        ("status=done", |call| call.outcome == CallOutcome::Done),
        ("status=503", |call| call.status == 503),
        ("status=4xx", |call| call.status == 404),
        ("lane=a", |call| call.lane.starts_with("a/")),
        ("lane=a%2Fy", |call| &*call.lane == "a/y"),
        ("format=native", |call| &*call.dialect == "native"),
        ("session=run", |call| &*call.session == "run"),
        ("key=def", |call| &*call.key_id == "def"),
        ("model=m1", |call| &*call.model == "m1"),
        ("error=unavailable", |call| call.error.is_some()),
        ("range=2027-01", |_| true),
        ("range=24h", |call| call.ended >= START - DAY),
        ("to=2027-01-14&from=2027-01-13", |call| call.ended < START),
        ("", |_| true),
    ];
    for (first, is_first) in conditions {
        for (second, is_second) in conditions.into_iter().filter(|(second, _)| {
            second.split('=').next() != first.split('=').next() || second.is_empty()
        }) {
            // Days count more than a range.
            if first.starts_with("range=24h") && second.starts_with("to=")
                || first.starts_with("to=") && second.starts_with("range=24h")
            {
                continue;
            }
            let query = format!("?{first}&{second}");
            let list = gateway.get(&format!("/console/calls{query}")).cookie(&cookie).send().await;
            let file =
                gateway.get(&format!("/console/calls.csv{query}")).cookie(&cookie).send().await;
            for call in &calls {
                let id = &*call.request_id;
                let is_selected = is_first(call) && is_second(call);
                assert_eq!(list.body.contains(id), is_selected, "{query}: {id} in the list");
                assert_eq!(file.body.contains(id), is_selected, "{query}: {id} in the file");
            }
        }
    }
    let list = gateway.get("/console/calls?status=failed&model=m1").cookie(&cookie).send().await;
    list.assert_contains("/console/calls.csv?model=m1&amp;status=failed");
    for (path, told) in [
        ("/console/calls?model=none", "No matching calls"),
        ("/console/calls?status=odd", "The status is not known"),
        ("/console/calls?range=8d", "The range is not known"),
        ("/console/usage?from=2027-01-32", "A day is written like this"),
        (
            "/console/calls?range=2027-01",
            "<option value=\"2027-01\" selected>January 2027</option>",
        ),
        ("/console/calls?error=unavailable", "no lane answered"),
        ("/console/calls", "data-label=\"Key\" title=\"Key def\"><bdi>robot</bdi>"),
        ("/console/calls", "data-label=\"Account\"><bdi>ben</bdi>"),
    ] {
        gateway.get(path).cookie(&cookie).send().await.assert_contains(told);
    }
    let days = "from=2027-01-13&amp;to=2027-01-14";
    let usage = gateway.get(&format!("/console/usage?{}", days.replace("&amp;", "&")));
    let usage = usage.cookie(&cookie).send().await;
    usage.assert_contains(days);
    let count = calls.iter().filter(|call| call.ended < START).count();
    usage.assert_contains(&format!("<dt>Calls</dt><dd>{count}</dd>"));
    let found = gateway.get("/console/calls?id=r07").cookie(&cookie).send().await;
    assert_eq!(found.header("location"), "/console/calls/r07");
}

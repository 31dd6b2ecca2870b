//! Activity: totals, ownership, grouping, and what every selection shows.

use std::collections::BTreeSet;

use canon::{Micros, Money};
use http::StatusCode;
use ledger::{CallError, CallOutcome, LedgerEntry};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use store::AccountRole;

use crate::gateway::{ConsoleGateway, ODD, SECOND, START, entry, escape};
use crate::zones::{ZONES, in_zone};

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
    let all = gateway.get("/console/activity").cookie(&annas).send().await;
    assert_eq!(all.status, StatusCode::OK);
    all.assert_contains("$5.50");
    all.assert_contains("demo-chat");
    all.assert_contains("data-label=\"Refused\">7<");
    all.assert_lacks("<script>alert");
    let mine = gateway.get("/console/activity?by=key").cookie(&bens).send().await;
    mine.assert_contains("$3.00");
    mine.assert_contains("robot");
    mine.assert_lacks(">7<");
    mine.assert_lacks("website");
    // A member cannot select another account.
    let path = format!("/console/activity?account={}&key=abc", anna.id);
    let none = gateway.get(&path).cookie(&bens).send().await;
    none.assert_contains("No matching calls");
    let one = format!("/console/activity?model={}", escape(ODD));
    gateway.get(&one).cookie(&annas).send().await.assert_contains("$3.00");
    let chosen = gateway.get("/console/activity?key=abc&status=200&by=lane").cookie(&annas);
    let chosen = chosen.send().await;
    chosen.assert_contains("$2.50");
    for control in ["model", "key", "account", "lane", "status", "format"] {
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
        let got = gateway.get(&format!("/console/activity?{view}")).cookie(&annas).send().await;
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
    gateway.get("/console/activity").cookie(&bens).send().await.assert_contains("No calls");
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
    let first = gateway.get("/console/activity").cookie(&cookie).send().await;
    first.assert_contains("r1202");
    first.assert_lacks("r1152");
    let next = first.body.split("rel=\"next\" href=\"").nth(1).unwrap().split('"').next().unwrap();
    let second = gateway.get(&next.replace("&amp;", "&")).cookie(&cookie).send().await;
    second.assert_contains("r1152");
    second.assert_lacks("r1153");
    let file = gateway.get("/console/activity.csv").cookie(&cookie).send().await;
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
            let list =
                gateway.get(&format!("/console/activity{query}")).cookie(&cookie).send().await;
            let file =
                gateway.get(&format!("/console/activity.csv{query}")).cookie(&cookie).send().await;
            for call in &calls {
                let id = &*call.request_id;
                let is_selected = is_first(call) && is_second(call);
                assert_eq!(list.body.contains(id), is_selected, "{query}: {id} in the list");
                assert_eq!(file.body.contains(id), is_selected, "{query}: {id} in the file");
            }
        }
    }
    let list = gateway.get("/console/activity?status=failed&model=m1").cookie(&cookie).send().await;
    list.assert_contains(
        "/console/activity.csv?what=spend&amp;by=model&amp;range=30d&amp;model=m1&amp;status=failed",
    );
    for (path, told) in [
        ("/console/activity?model=none", "No matching calls"),
        ("/console/activity?status=odd", "The status is not known"),
        ("/console/activity?range=8d", "The range is not known"),
        ("/console/activity?from=2027-01-32", "A day is written like this"),
        (
            "/console/activity?range=2027-01",
            "<option value=\"2027-01\" selected>January 2027</option>",
        ),
        ("/console/activity?error=unavailable", "no lane answered"),
        ("/console/activity", "data-label=\"Key\" title=\"Key def\"><bdi>robot</bdi>"),
        ("/console/activity", "data-label=\"Account\"><bdi>ben</bdi>"),
    ] {
        gateway.get(path).cookie(&cookie).send().await.assert_contains(told);
    }
    let days = "from=2027-01-13&amp;to=2027-01-14";
    let usage = gateway.get(&format!("/console/activity?{}", days.replace("&amp;", "&")));
    let usage = usage.cookie(&cookie).send().await;
    usage.assert_contains(days);
    let count = calls.iter().filter(|call| call.ended < START).count();
    usage.assert_contains(&format!("<dt>Calls</dt><dd>{count}</dd>"));
    let found = gateway.get("/console/activity?id=r07").cookie(&cookie).send().await;
    assert_eq!(found.header("location"), "/console/calls/r07");
}

/// The texts between a begin and the next end.
pub(crate) fn texts<'a>(
    page: &'a str,
    begin: &'a str,
    end: &'a str,
) -> impl Iterator<Item = &'a str> {
    page.split(begin).skip(1).filter_map(move |rest| rest.split(end).next())
}

/// The sum of the counts between a begin and the next end.
pub(crate) fn sum_of(page: &str, begin: &str, end: &str) -> usize {
    let counts = texts(page, begin, end).map(|text| text.replace(',', ""));
    counts.map(|text| text.parse::<usize>().unwrap_or_default()).sum()
}

/// Reads the list of a selection, page by page.
pub(crate) async fn listed_ids(gateway: &ConsoleGateway, cookie: &str, path: &str) -> Vec<String> {
    let (mut ids, mut next) = (Vec::new(), Some(path.to_owned()));
    while let Some(path) = next {
        let page = gateway.get(&path).cookie(cookie).send().await;
        ids.extend(texts(&page.body, "title=\"Request ", "\"").map(str::to_owned));
        let older = texts(&page.body, "rel=\"next\" href=\"", "\"").next();
        next = older.map(|path| path.replace("&amp;", "&"));
    }
    ids
}

/// The address decides the figures, the chart, the groups, the list and the file alike.
#[tokio::test]
async fn every_part_of_the_page_has_the_same_calls() {
    let gateway = ConsoleGateway::new().await;
    let anna = gateway.account("anna", AccountRole::Owner).await;
    let ben = gateway.account("ben", AccountRole::Member).await;
    let keys =
        [gateway.key_of(&anna, "abc", "website").await, gateway.key_of(&ben, "def", "robot").await];
    let calls: Vec<_> = (0..150_usize)
        .map(|n| {
            let cost = n as i64 * 1_000_003;
            let mut call =
                entry(&keys[n % 2], &format!("call-{n:03}"), ["m1", "m2"][n / 2 % 2], cost);
            (call.lane, call.session) =
                (["a/x", "a/y", "b/x"][n % 3].into(), ["", "run"][n % 5 / 4].into());
            call.dialect = ["chat", "native"][n / 3 % 2].into();
            call.end_user = ["", "ann"][n % 7 / 5].into();
            call.tags = [("team", ["blue", "red"][n % 2]), ("a, \"b\"", "")]
                .into_iter()
                .take(n % 3)
                .collect();
            // Over two months, and beyond the ends of hours and days.
            call.started = START - Micros::from_secs(n as i64 * 571 * 60);
            call.ended = call.started + SECOND * [1, 3, 40_000][n % 3];
            if n.is_multiple_of(7) {
                (call.status, call.outcome) = (503, CallOutcome::Failed);
                let code = ["timeout", "unavailable"][n % 2];
                call.error = Some(Box::new(CallError::new(code, "", "no lane answered")));
            }
            call
        })
        .collect();
    gateway.store.post(&calls).await.unwrap();
    let cookies = [gateway.sign_in("anna").await, gateway.sign_in("ben").await];
    let option = |values: Vec<&'static str>| prop::sample::select(values);
    let queries = (
        option(vec!["24h", "7d", "30d", "90d", "1y", "2026-12", "2027-01"])
            .prop_map(|range| format!("range={range}")),
        prop::option::of((1..31_u8, 0..40_u8).prop_map(|(day, later)| {
            let to = if later > 15 {
                format!("2027-01-{:02}", later - 15)
            } else {
                "2026-12-31".to_owned()
            };
            format!("from=2026-12-{day:02}&to={to}")
        })),
        option(vec![
            "model", "key", "account", "provider", "lane", "status", "error", "format", "session",
            "end_user", "tag",
        ]),
        prop::collection::vec(
            option(vec![
                "model=m1",
                "key=abc",
                "lane=a",
                "lane=a%2Fy",
                "status=503",
                "status=2xx",
                "status=done",
                "status=failed",
                "error=timeout",
                "format=native",
                "session=run",
                "end_user=ann",
                "tag=team",
                "tag=team%3Dblue",
                "cost=0.05",
                "took=2",
                "took=3600",
                "model=none",
            ]),
            0..3,
        ),
        0..2_usize,
        (prop::option::of(option(ZONES.to_vec())), option(ZONES.to_vec())),
    );
    let mut runner = TestRunner::default();
    for _ in 0..60 {
        let (range, days, by, conditions, who, (zone, own_zone)) =
            queries.new_tree(&mut runner).unwrap().current();
        // The browser sends one value of each field.
        let mut fields = BTreeSet::new();
        let conditions: Vec<&str> =
            conditions.into_iter().filter(|one| fields.insert(one.split('=').next())).collect();
        let zone = zone.map(|zone| format!("&zone={}", escape(zone))).unwrap_or_default();
        let (time, conditions) = (days.unwrap_or(range), conditions.join("&"));
        let query = format!("what=calls&by={by}&{time}&{conditions}{zone}");
        let cookie = &in_zone(&cookies[who], own_zone);
        let file =
            gateway.get(&format!("/console/activity.csv?{query}")).cookie(cookie).send().await;
        let rows: Vec<&str> = file.body.lines().skip(1).collect();
        let cost: Money =
            rows.iter().map(|row| row.split(',').nth(15).unwrap().parse::<Money>().unwrap()).sum();
        let path = format!("/console/activity?{query}");
        let page = gateway.get(&path).cookie(cookie).send().await;
        assert_eq!(page.status, StatusCode::OK, "{query}");
        page.assert_contains(&format!("<dt>Calls</dt><dd>{}</dd>", rows.len()));
        page.assert_contains(&format!("<dt>Spent</dt><dd><span class=\"num\" title=\"${cost}\">"));
        let groups = sum_of(&page.body, "data-label=\"Calls\">", "<");
        assert_eq!(groups, rows.len(), "groups of {query}");
        let chart =
            page.body.split("<figure").nth(1).and_then(|rest| rest.split("</figure>").next());
        let chart = sum_of(chart.unwrap_or_default(), "<td class=\"num\">", "<");
        assert_eq!(chart, rows.len(), "chart of {query}");
        let mut listed = listed_ids(&gateway, cookie, &path).await;
        listed.reverse();
        let exported: Vec<&str> = rows.iter().map(|row| row.split(',').next().unwrap()).collect();
        assert_eq!(listed, exported, "list of {query}");
    }
}

#[tokio::test]
async fn earlier_addresses_lead_to_the_page() {
    let gateway = ConsoleGateway::new().await;
    gateway.account("anna", AccountRole::Member).await;
    let cookie = gateway.sign_in("anna").await;
    for (old, new) in [
        ("/console/usage?by=key&range=90d", "/console/activity?by=key&range=90d"),
        ("/console/calls?status=failed", "/console/activity?status=failed"),
        ("/console/calls.csv?model=a%2Fb", "/console/activity.csv?model=a%2Fb"),
        ("/console/calls", "/console/activity"),
    ] {
        gateway.get(old).cookie(&cookie).send().await.assert_redirect(new);
    }
    // Without a sign-in the address is kept for afterwards.
    let signed_out = gateway.get("/console/usage").send().await;
    assert!(signed_out.header("location").starts_with("/login"), "{:?}", signed_out.headers);
}

#[tokio::test]
async fn the_chart_leads_to_days_and_groups() {
    let gateway = ConsoleGateway::new().await;
    let anna = gateway.account("anna", AccountRole::Owner).await;
    let key = gateway.key_of(&anna, "abc", "website").await;
    gateway.store.post(&[entry(&key, "r1", "m1", 5_000_000_000)]).await.unwrap();
    let cookie = gateway.sign_in("anna").await;
    let page = gateway.get("/console/activity?by=provider").cookie(&cookie).send().await;
    page.assert_contains("href=\"/console/activity?what=spend&amp;by=provider&amp;from=2027-01-15&amp;to=2027-01-15\"");
    page.assert_contains(
        "href=\"/console/activity?what=spend&amp;by=provider&amp;range=30d&amp;lane=demo\"",
    );
    page.assert_contains("aria-label=\"15 Jan 2027, demo: $5.00\"");
    page.assert_contains("data-from=\"2027-01-15\" data-to=\"2027-01-15\"");
    let month = gateway.get("/console/activity?range=1y").cookie(&cookie).send().await;
    month.assert_contains("data-from=\"2027-01-01\" data-to=\"2027-01-31\"");
    // The first and the last month of days lead to their part in them.
    let part = gateway.get("/console/activity?from=2026-10-21&to=2027-03-20").cookie(&cookie);
    let part = part.send().await;
    part.assert_contains("data-from=\"2026-10-21\" data-to=\"2026-10-31\"");
    part.assert_contains("data-from=\"2027-03-01\" data-to=\"2027-03-20\"");
    // A link never drops a condition.
    let ended = gateway.get("/console/activity?by=status&status=done").cookie(&cookie);
    let ended = ended.send().await;
    ended.assert_contains("<th scope=\"row\">200</th>");
    let lane = gateway.get("/console/activity?by=provider&lane=demo%2Fdemo-chat").cookie(&cookie);
    let lane = lane.send().await;
    lane.assert_lacks("lane=demo\"");
    let far = gateway.get("/console/activity?range=9999-12").cookie(&cookie).send().await;
    assert_eq!(far.status, StatusCode::BAD_REQUEST);
    for (query, told) in [
        ("cost=much", "A cost is written in dollars"),
        ("took=long", "A time is written in seconds"),
        ("status=odd", "The status is not known"),
    ] {
        let path = format!("/console/activity?{query}");
        let got = gateway.get(&path).cookie(&cookie).send().await;
        assert_eq!(got.status, StatusCode::BAD_REQUEST, "{query}");
        got.assert_contains(told);
    }
}

#[tokio::test]
async fn end_users_and_tags_are_found_and_grouped() {
    let gateway = ConsoleGateway::new().await;
    let anna = gateway.account("anna", AccountRole::Owner).await;
    let key = gateway.key_of(&anna, "abc", "website").await;
    let cookie = gateway.sign_in("anna").await;
    let page = gateway.get("/console/activity?by=tag").cookie(&cookie).send().await;
    assert_eq!(page.status, StatusCode::OK);
    let call = |id: &str, user: &str, tags: &[(&str, &str)]| LedgerEntry {
        end_user: user.into(),
        tags: tags.iter().copied().collect(),
        ..entry(&key, id, "m1", 5)
    };
    let calls = [
        call("r1", "ann", &[("team", "blue"), (ODD, ODD)]),
        call("r2", "ann", &[("team", "red")]),
        call("r3", ODD, &[]),
    ];
    gateway.store.post(&calls).await.unwrap();
    let page = gateway.get("/console/activity?by=tag").cookie(&cookie).send().await;
    page.assert_contains("By tag team");
    page.assert_contains("by=tag&amp;tag_name=team&amp;range=30d&amp;tag=team%3Dblue\"");
    page.assert_lacks("<script>alert");
    let odd = format!("/console/activity?by=tag&tag_name={}", escape(ODD));
    let page = gateway.get(&odd).cookie(&cookie).send().await;
    page.assert_contains("tag_name=team\"><bdi>team</bdi>");
    page.assert_lacks("<script>alert");
    let page = gateway.get("/console/activity?by=end_user").cookie(&cookie).send().await;
    page.assert_contains("By end user");
    page.assert_contains("end_user=ann\"><bdi>ann</bdi>");
    page.assert_lacks("<script>alert");
    let none = gateway.get("/console/activity?by=tag&model=m1&end_user=nobody").cookie(&cookie);
    none.send().await.assert_contains("No matching calls");
    let untagged = format!("/console/activity?by=tag&end_user={}", escape(ODD));
    let untagged = gateway.get(&untagged).cookie(&cookie).send().await;
    untagged.assert_contains("No call of this selection has a tag");
    let receipt = gateway.get("/console/calls/r1").cookie(&cookie).send().await;
    receipt.assert_contains("/console/activity?tag=team%3Dblue\"><bdi>team=blue</bdi>");
    receipt.assert_contains("/console/activity?end_user=ann\"><bdi>ann</bdi>");
    receipt.assert_lacks("<script>alert");
    let file = gateway.get("/console/activity.csv?tag=team").cookie(&cookie).send().await;
    file.assert_contains(",ann,\"{\"\"team\"\":\"\"red\"\"}\"\r\n");
    assert_eq!(file.body.matches("\r\n").count(), 3);
}

//! Statements: the calls of a month, who sees them, and the same figures in the file.

use canon::{Micros, Money};
use http::StatusCode;
use ledger::LedgerEntry;
use store::{AccountRole, KeyRecord};

use crate::gateway::{ConsoleGateway, DAY, ODD, START, entry};

/// A call that began at that time.
fn call_at(key: &KeyRecord, id: &str, model: &str, nanos: i64, at: Micros) -> LedgerEntry {
    LedgerEntry { started: at, ended: at, ..entry(key, id, model, nanos) }
}

/// Returns the lines of a file, without its head.
fn lines(file: &str) -> Vec<Vec<&str>> {
    file.lines().skip(1).map(|line| line.split(',').collect()).collect()
}

#[tokio::test]
async fn a_month_has_the_calls_that_began_in_it() {
    let gateway = ConsoleGateway::new().await;
    let anna = gateway.account("anna", AccountRole::Member).await;
    let (site, robot) =
        (gateway.key_of(&anna, "abc", "website").await, gateway.key_of(&anna, "def", "=x()").await);
    // It is the middle of January 2027.
    let january = month_of(START);
    let december = month_of(january - DAY);
    let calls = [
        call_at(&site, "before", "demo-chat", 100_000_000, december - Micros::new(1)),
        call_at(&site, "first", "demo-chat", 200_000_000, december),
        call_at(&robot, "last", ODD, 350_000_000, january - Micros::new(1)),
        call_at(&robot, "after", "demo-chat", 500_000_000, january),
    ];
    gateway.store.post(&calls).await.unwrap();
    let cookie = gateway.sign_in("anna").await;
    let list = gateway.get("/console/statements").cookie(&cookie).send().await;
    for (month, cost) in
        [("January 2027", "$0.5000"), ("December 2026", "$0.5500"), ("November 2026", "$0.1000")]
    {
        let row = list.body.split("<tr").find(|row| row.contains(month)).unwrap();
        assert!(row.contains(cost), "{row}");
        assert_eq!(row.contains("So far"), month == "January 2027", "{row}");
    }
    let page = gateway.get("/console/statements?month=2026-12").cookie(&cookie).send().await;
    for text in ["Statement of December 2026", "2026-12-01 to 2026-12-31", "$0.5500", "website"] {
        page.assert_contains(text);
    }
    page.assert_contains("/console/activity?range=2026-12");
    page.assert_lacks("<script>alert");
    page.assert_lacks("not over");
    let running = gateway.get("/console/statements?month=2027-01").cookie(&cookie).send().await;
    running.assert_contains("not over");
    let path = "/console/statements.csv?month=2026-12";
    let file = gateway.get(path).cookie(&cookie).send().await;
    assert_eq!(
        file.header("content-disposition"),
        "attachment; filename=\"statement-2026-12.csv\""
    );
    file.assert_contains("\"'=x()\"");
    let lines = lines(&file.body);
    for list in ["total", "model", "key"] {
        let of_list = lines.iter().filter(|line| line[1] == list);
        let cost = |line: &Vec<&str>| line[line.len() - 1].parse::<Money>().unwrap().as_nanos();
        assert_eq!(of_list.map(cost).sum::<i64>(), 550_000_000, "{list}");
    }
    let empty = gateway.get("/console/statements?month=2020-01").cookie(&cookie).send().await;
    empty.assert_contains("No calls");
    for wrong in ["2026-13", "2026", "december"] {
        let path = format!("/console/statements?month={wrong}");
        let got = gateway.get(&path).cookie(&cookie).send().await;
        assert_eq!(got.status, StatusCode::BAD_REQUEST, "{wrong}");
    }
    let none = gateway.get("/console/statements.csv").cookie(&cookie).send().await;
    assert_eq!(none.status, StatusCode::BAD_REQUEST);
}

/// Begin of the month of a time.
fn month_of(at: Micros) -> Micros {
    store::UsageStep::Month.begin(at)
}

#[tokio::test]
async fn statements_are_for_those_who_see_the_calls() {
    let gateway = ConsoleGateway::new().await;
    let olga = gateway.account("olga", AccountRole::Owner).await;
    let ben = gateway.account("ben", AccountRole::Member).await;
    let carl = gateway.account("carl", AccountRole::Member).await;
    let (own, bens) =
        (gateway.key_of(&olga, "abc", "website").await, gateway.key_of(&ben, "def", "robot").await);
    let calls = [
        call_at(&own, "a", "demo-chat", 2_000_000_000, START),
        call_at(&bens, "b", "demo-chat", 3_000_000_000, START),
    ];
    gateway.store.post(&calls).await.unwrap();
    let [olga, ben_cookie, carl] = [
        gateway.sign_in("olga").await,
        gateway.sign_in("ben").await,
        gateway.sign_in(&carl.username).await,
    ];
    let month = month_word();
    let path = format!("/console/statements?month={month}");
    let all = gateway.get(&path).cookie(&olga).send().await;
    all.assert_contains("$5.00");
    all.assert_contains("All people and teams of this gateway");
    all.assert_contains(&format!("account={}\">", ben.id));
    let of_ben = format!("{path}&account={}", ben.id);
    let one = gateway.get(&of_ben).cookie(&olga).send().await;
    one.assert_contains("$3.00");
    one.assert_contains("robot");
    one.assert_lacks("website");
    one.assert_contains(&format!("&amp;account={}", ben.id));
    let own = gateway.get(&path).cookie(&ben_cookie).send().await;
    own.assert_contains("$3.00");
    own.assert_lacks("website");
    assert_eq!(gateway.get(&of_ben).cookie(&ben_cookie).send().await.status, StatusCode::OK);
    for path in [of_ben.clone(), of_ben.replace("statements?", "statements.csv?")] {
        let got = gateway.get(&path).cookie(&carl).send().await;
        assert_eq!(got.status, StatusCode::NOT_FOUND, "{path}");
    }
    // The file and the calls are those of the account in the address.
    let other = gateway.get(&of_ben).cookie(&ben_cookie).send().await;
    assert_eq!(other.body.matches(&format!("&amp;account={}", ben.id)).count(), 2);
    let none = gateway.get("/console/statements").cookie(&carl).send().await;
    none.assert_contains("No statements");
}

fn month_word() -> String {
    admin::StatementMonth::of(START).unwrap().word()
}

//! The time zone of the viewer: where it comes from, and the days, times and dates of pages in it.

use std::collections::BTreeMap;

use canon::Micros;
use http::StatusCode;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _, Zoned};
use ledger::LedgerEntry;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use store::AccountRole;

use crate::activity::{listed_ids, sum_of, texts};
use crate::gateway::{ConsoleGateway, DAY, START, entry, escape};

/// Zones with whole hours, half ones and quarters, with and without other clocks in the summer.
pub(crate) const ZONES: [&str; 12] = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Asia/Kolkata",
    "Asia/Kathmandu",
    "Australia/Adelaide",
    "Australia/Lord_Howe",
    "America/St_Johns",
    "Pacific/Chatham",
    "Pacific/Kiritimati",
    "Etc/GMT+12",
    "America/Havana",
];

pub(crate) fn in_zone(cookie: &str, zone: &str) -> String {
    format!("{cookie}; portunus_zone={zone}")
}

fn local(at: Micros, zone: &str) -> Zoned {
    Timestamp::from_microsecond(at.get()).unwrap().to_zoned(TimeZone::get(zone).unwrap())
}

#[tokio::test]
async fn a_page_has_the_zone_of_the_browser_or_the_chosen_one() {
    let gateway = ConsoleGateway::new().await;
    let anna = gateway.account("anna", AccountRole::Owner).await;
    let key = gateway.key_of(&anna, "abc", "website").await;
    gateway.store.post(&[entry(&key, "r1", "m1", 5)]).await.unwrap();
    let cookie = gateway.sign_in("anna").await;
    // 2027-01-15 08:00 in UTC.
    for (cookies, zone, time) in [
        (cookie.clone(), "UTC", "2027-01-15 08:00:00 UTC"),
        (in_zone(&cookie, "Asia/Kolkata"), "Asia/Kolkata", "2027-01-15 13:30:00 IST"),
        (in_zone(&cookie, "America/New_York"), "America/New_York", "2027-01-15 03:00:00 EST"),
        (in_zone(&cookie, "Mars/Olympus"), "UTC", "2027-01-15 08:00:00 UTC"),
        (in_zone(&cookie, ""), "UTC", "2027-01-15 08:00:00 UTC"),
        (
            format!("{}; portunus_chosen_zone=Europe/Berlin", in_zone(&cookie, "Asia/Kolkata")),
            "Europe/Berlin",
            "2027-01-15 09:00:00 CET",
        ),
    ] {
        let list = gateway.get("/console/activity").cookie(&cookies).send().await;
        let element = format!("<time datetime=\"2027-01-15T08:00:00Z\" title=\"{time}\">");
        list.assert_contains(&element);
        list.assert_contains(&format!("From ({zone})"));
        gateway.get("/console").cookie(&cookies).send().await.assert_contains(&element);
        let receipt = gateway.get("/console/calls/r1").cookie(&cookies).send().await;
        receipt.assert_contains(time);
        let account = gateway.get("/console/account").cookie(&cookies).send().await;
        account.assert_contains(&format!("<strong>{zone}</strong>"));
        // The file is the same for everybody.
        let file = gateway.get("/console/activity.csv").cookie(&cookies).send().await;
        file.assert_contains("2027-01-15 08:00:00 UTC");
    }
}

#[tokio::test]
async fn a_chosen_zone_is_kept_in_the_browser() {
    let gateway = ConsoleGateway::new().await;
    gateway.account("anna", AccountRole::Viewer).await;
    let cookie = gateway.sign_in("anna").await;
    let path = "/console/account/zone";
    let chosen = gateway.post(path, &[("zone", " asia/kolkata ")]).cookie(&cookie).send().await;
    chosen.assert_redirect("/console/account?told=zone");
    let set = chosen.header("set-cookie").to_owned();
    for part in ["portunus_chosen_zone=Asia/Kolkata", "Path=/console", "SameSite=Lax", "HttpOnly"] {
        assert!(set.contains(part), "{set}");
    }
    let kept = format!("{cookie}; {}", set.split(';').next().unwrap());
    let page = gateway.get("/console/account").cookie(&kept).send().await;
    page.assert_contains("<strong>Asia/Kolkata</strong>");
    page.assert_contains("value=\"Asia/Kolkata\"");
    let wrong = gateway.post(path, &[("zone", "Mars/Olympus")]).cookie(&kept).send().await;
    assert_eq!(wrong.status, StatusCode::BAD_REQUEST);
    wrong.assert_contains("Choose a zone of the list");
    assert_eq!(wrong.header("set-cookie"), "");
    let none = gateway.post(path, &[("zone", "")]).cookie(&kept).send().await;
    assert!(none.header("set-cookie").contains("Max-Age=0"), "{:?}", none.headers);
    gateway.get(path).cookie(&cookie).send().await.assert_redirect("/console/account");
}

/// A saved form that nobody changed changes nothing, also if the zone of the viewer changes meanwhile.
#[tokio::test]
async fn an_expiry_is_shown_and_read_in_one_zone() {
    let gateway = ConsoleGateway::new().await;
    let anna = gateway.account("anna", AccountRole::Owner).await;
    gateway.key_of(&anna, "abc", "website").await;
    let cookie = gateway.sign_in("anna").await;
    let path = "/console/keys/abc/edit";
    let save = async |day: &str, zone: &str, cookies: &str| {
        let fields = [("name", "website"), ("unlimited", "yes"), ("expires", day), ("zone", zone)];
        let got = gateway.post(path, &fields).cookie(cookies).send().await;
        (got.status, gateway.store.key("abc").await.unwrap().unwrap().expires)
    };
    for zone in ZONES {
        let here = in_zone(&cookie, zone);
        // The same day of another zone would not be a change.
        save("2027-03-03", zone, &here).await;
        let (status, expires) = save("2027-06-30", zone, &here).await;
        assert_eq!(status, StatusCode::SEE_OTHER);
        let last = local(expires.unwrap(), zone);
        assert_eq!(last.date(), "2027-06-30".parse::<Date>().unwrap());
        assert_eq!(
            local(expires.unwrap() + Micros::new(1), zone).date(),
            "2027-07-01".parse().unwrap()
        );
        for viewer in ZONES {
            let there = in_zone(&cookie, viewer);
            let page = gateway.get(path).cookie(&there).send().await;
            let field = |id: &str| {
                let input = texts(&page.body, "<input", ">").find(|input| input.contains(id));
                let input = input.unwrap_or_else(|| panic!("no {id} in {}", page.body));
                texts(input, "value=\"", "\"").next().unwrap().to_owned()
            };
            let (day, told) = (field("name=\"expires\""), field("name=\"zone\""));
            assert_eq!(
                (told.as_str(), day),
                (viewer, local(expires.unwrap(), viewer).date().to_string())
            );
            page.assert_contains(&format!("A day in {viewer}."));
            // The cookie is another one by then.
            assert_eq!(save(&field("name=\"expires\""), &told, &here).await.1, expires, "{viewer}");
        }
    }
    assert_eq!(save("2027-06-30", "Mars/Olympus", &cookie).await.0, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn an_address_with_dates_selects_the_same_calls_for_everybody() {
    let gateway = ConsoleGateway::new().await;
    let anna = gateway.account("anna", AccountRole::Owner).await;
    let key = gateway.key_of(&anna, "abc", "website").await;
    // The last hour of 14 January in Berlin.
    let started = START - Micros::from_secs(9 * 3_600 + 60);
    let call = LedgerEntry { started, ended: started, ..entry(&key, "r1", "m1", 5) };
    gateway.store.post(&[call]).await.unwrap();
    let cookie = gateway.sign_in("anna").await;
    let berlin = in_zone(&cookie, "Europe/Berlin");
    let days = gateway.get("/console/activity").cookie(&berlin).send().await;
    let day = "from=2027-01-14&amp;to=2027-01-14&amp;zone=Europe%2FBerlin";
    days.assert_contains(day);
    days.assert_contains(
        "data-zoom=\"/console/activity?what=spend&amp;by=model&amp;zone=Europe%2FBerlin\"",
    );
    days.assert_lacks("which the address names");
    let path = format!("/console/activity?{}", day.replace("&amp;", "&"));
    for viewer in ZONES {
        let there = in_zone(&cookie, viewer);
        let page = gateway.get(&path).cookie(&there).send().await;
        page.assert_contains("<dt>Calls</dt><dd>1</dd>");
        page.assert_contains("14 Jan 2027, 23:00 CET");
        page.assert_contains("title=\"2027-01-14 23:59:00 CET\"");
        page.assert_contains("From (Europe/Berlin)");
        page.assert_contains("<input type=\"hidden\" name=\"zone\" value=\"Europe/Berlin\">");
        if viewer != "Europe/Berlin" {
            page.assert_contains(&format!("Show those of {viewer}"));
        }
        let file = format!("/console/activity.csv?{}", day.replace("&amp;", "&"));
        let file = gateway.get(&file).cookie(&there).send().await;
        assert_eq!(file.body.lines().count(), 2);
        // Dates alone are those of UTC, as in earlier versions.
        for (day, calls) in [("2027-01-14", 1), ("2027-01-15", 0)] {
            let path = format!("/console/activity?from={day}");
            let page = gateway.get(&path).cookie(&there).send().await;
            page.assert_contains(&format!("<dt>Calls</dt><dd>{calls}</dd>"));
            page.assert_contains("From (UTC)");
        }
    }
    let wrong = gateway.get("/console/activity?zone=Mars").cookie(&cookie).send().await;
    assert_eq!(wrong.status, StatusCode::BAD_REQUEST);
    wrong.assert_contains("The time zone is not known");
}

/// Every part of the page has the calls of the days of the zone, and each bar those of its day or hour.
#[tokio::test]
async fn days_of_any_zone_have_their_calls() {
    let gateway = ConsoleGateway::new().await;
    let anna = gateway.account("anna", AccountRole::Owner).await;
    let key = gateway.key_of(&anna, "abc", "website").await;
    // Around the end of the summer in Europe and America, and its begin in the south.
    let first: Timestamp = "2026-10-02T00:07:00Z".parse().unwrap();
    let calls: Vec<LedgerEntry> = (0..1_300)
        .map(|n: i64| {
            let started = Micros::new(first.as_microsecond()) + Micros::from_secs(n * 37 * 60);
            let ended = started + Micros::from_secs([1, 5_000][n as usize % 2]);
            LedgerEntry { started, ended, ..entry(&key, &format!("r{n:04}"), "m1", 5) }
        })
        .collect();
    gateway.store.post(&calls).await.unwrap();
    let cookie = gateway.sign_in("anna").await;
    let days = (1..31_i64, prop_oneof![3 => 0..2_i64, 2 => 2..12_i64, 1 => Just(30_i64)]);
    let queries = (
        prop::sample::select(ZONES.to_vec()),
        prop_oneof![4 => days.prop_map(Some), 1 => Just(None)],
        prop::sample::select(vec!["model", "error", "account"]),
        prop::sample::select(ZONES.to_vec()),
    );
    let mut runner = TestRunner::default();
    for _ in 0..60 {
        let (zone, days, by, viewer) = queries.new_tree(&mut runner).unwrap().current();
        let october: Date = "2026-10-01".parse().unwrap();
        let (from, to, time) = match days {
            Some((from, length)) => {
                let from = october.saturating_add(from.days());
                let to = from.saturating_add(length.days());
                (from, to, format!("from={from}&to={to}"))
            }
            None => (october, october.last_of_month(), "range=2026-10".to_owned()),
        };
        let query = format!("what=calls&by={by}&{time}&zone={}", escape(zone));
        let about = format!("{query} for {viewer}");
        let is_selected = |call: &&LedgerEntry| {
            let day = local(call.started, zone).date();
            from <= day && day <= to
        };
        let wanted: Vec<&LedgerEntry> = calls.iter().filter(is_selected).collect();
        let there = in_zone(&cookie, viewer);
        let path = format!("/console/activity?{query}");
        let page = gateway.get(&path).cookie(&there).send().await;
        assert_eq!(page.status, StatusCode::OK, "{about}");
        let count = wanted.len();
        assert!(
            page.body.replace(',', "").contains(&format!("<dt>Calls</dt><dd>{count}</dd>")),
            "{count} of {about}"
        );
        page.assert_lacks("cannot all be read");
        assert_eq!(sum_of(&page.body, "data-label=\"Calls\">", "<"), count, "groups of {about}");
        let hours = (to - from).get_days() < 2;
        let mut bars: BTreeMap<String, usize> = BTreeMap::new();
        for call in &wanted {
            let name = match hours {
                true => {
                    let hour = call.started.get().div_euclid(3_600_000_000) * 3_600_000_000;
                    let begin = from.to_zoned(TimeZone::get(zone).unwrap()).unwrap();
                    let begin = begin.timestamp().as_microsecond();
                    local(Micros::new(hour.max(begin)), zone)
                        .strftime("%-d %b %Y, %H:%M %Z")
                        .to_string()
                }
                false => local(call.started, zone).strftime("%-d %b %Y").to_string(),
            };
            *bars.entry(name).or_default() += 1;
        }
        let chart = texts(&page.body, "<figure", "</figure>").next().unwrap_or_default();
        let drawn: BTreeMap<String, usize> = texts(chart, "<th scope=\"row\">", "</tr>")
            .map(|row| {
                let name = row.split('<').next().unwrap().to_owned();
                (name, sum_of(row, "<td class=\"num\">", "<"))
            })
            .collect();
        assert_eq!(drawn, bars, "bars of {about}");
        let file =
            gateway.get(&format!("/console/activity.csv?{query}")).cookie(&there).send().await;
        let rows = file.body.lines().skip(1).map(|row| row.split(',').next().unwrap().to_owned());
        let mut exported: Vec<String> = rows.collect();
        exported.sort();
        let ids: Vec<&str> = wanted.iter().map(|call| &*call.request_id).collect();
        assert_eq!(exported, ids, "file of {about}");
        if count < 120 {
            let mut listed = listed_ids(&gateway, &there, &path).await;
            listed.sort();
            assert_eq!(listed, ids, "list of {about}");
        }
    }
}

/// Sums of hours are deleted after a while, and those of days are of UTC.
#[tokio::test]
async fn days_without_hours_are_told_and_the_same_everywhere() {
    let gateway = ConsoleGateway::new().await;
    let anna = gateway.account("anna", AccountRole::Owner).await;
    let key = gateway.key_of(&anna, "abc", "website").await;
    // Half an hour of the new year in Berlin.
    let started = START - 15 * DAY + Micros::from_secs(15 * 3_600 + 1_800);
    let call = LedgerEntry { started, ended: started, ..entry(&key, "r1", "m1", 5) };
    gateway.store.post(&[call]).await.unwrap();
    let cookie = in_zone(&gateway.sign_in("anna").await, "Europe/Berlin");
    let calls_in = async |month: &str, calls: usize, is_told: bool| {
        let query = format!("what=calls&range={month}&zone=Europe%2FBerlin");
        let page = gateway.get(&format!("/console/activity?{query}")).cookie(&cookie).send().await;
        page.assert_contains(&format!("<dt>Calls</dt><dd>{calls}</dd>"));
        assert_eq!(page.body.contains("are deleted. Days that begin before"), is_told, "{month}");
        let chart = texts(&page.body, "<figure", "</figure>").next().unwrap_or_default();
        assert_eq!(sum_of(chart, "<td class=\"num\">", "<"), calls, "{month}");
        let file = format!("/console/activity.csv?{query}");
        let file = gateway.get(&file).cookie(&cookie).send().await;
        assert_eq!(file.body.lines().count(), 1 + calls, "{month}");
    };
    calls_in("2026-12", 0, false).await;
    calls_in("2027-01", 1, false).await;
    gateway.store.drop_usage_hours(START - 2 * DAY).await.unwrap();
    calls_in("2026-12", 1, true).await;
    calls_in("2027-01", 0, true).await;
}

#[tokio::test]
async fn days_of_the_audit_log_are_those_of_the_zone() {
    let gateway = ConsoleGateway::new().await;
    gateway.account("anna", AccountRole::Owner).await;
    let cookie = gateway.sign_in("anna").await;
    gateway.host.clock.pass(DAY);
    let line = |at: Micros, subject: &'static str| store::AuditLine {
        at,
        actor: "command line",
        key_id: None,
        action: "key.create",
        subject,
        detail: "",
        address: None,
        agent: None,
    };
    // 23:30 and 00:30 in Kolkata.
    let midnight = START + Micros::from_secs(10 * 3_600 + 1_800);
    gateway.store.add_audit(&line(midnight - Micros::from_secs(1_800), "before")).await.unwrap();
    gateway.store.add_audit(&line(midnight + Micros::from_secs(1_800), "after")).await.unwrap();
    let kolkata = in_zone(&cookie, "Asia/Kolkata");
    let all = gateway.get("/console/audit").cookie(&kolkata).send().await;
    all.assert_contains("title=\"2027-01-15 23:30:00 IST\"");
    all.assert_contains("From (Asia/Kolkata)");
    for there in [kolkata, cookie.clone()] {
        let query = "from=2027-01-16&zone=Asia%2FKolkata";
        let path = format!("/console/audit?action=key.create&{query}");
        let page = gateway.get(&path).cookie(&there).send().await;
        page.assert_contains("title=\"after\"");
        page.assert_lacks("title=\"before\"");
        page.assert_contains("from=2027-01-16&amp;zone=Asia%2FKolkata");
        let path = format!("/console/audit.csv?action=key.create&{query}");
        let file = gateway.get(&path).cookie(&there).send().await;
        file.assert_contains("after");
        file.assert_lacks("before");
    }
    let utc = gateway.get("/console/audit?from=2027-01-15&to=2027-01-15&action=key.create");
    let utc = utc.cookie(&in_zone(&cookie, "Asia/Kolkata")).send().await;
    utc.assert_contains("title=\"after\"");
    utc.assert_contains("title=\"before\"");
}

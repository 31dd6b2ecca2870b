//! A provider's bill beside the books.

use serde_json::{Value, json};

use super::full_disk::{accept, answer_with, call, prepare, reply, start};
use super::{Folder, fails, terminate};

#[test]
fn a_bill_in_each_format_is_compared_by_day_and_model() {
    let folder = Folder::new("reconcile");
    let (upstream, key) = prepare(&folder);
    let (child, _log, url) = start(&folder);
    let caller = call(&url, &key);
    answer_with(&mut accept(&upstream), 8_000);
    assert!(reply(caller).starts_with("HTTP/1.1 200"));
    assert_eq!(terminate(child), Some(0));
    let exported = folder.json(&["ledger", "export"]);
    assert_eq!(exported["cost_usd"], "0.120030000");
    let day = exported["started_at"].as_str().unwrap().get(..10).unwrap().to_owned();
    let begin = format!("{day}T00:00:00Z");
    let seconds = begin.parse::<jiff::Timestamp>().unwrap().as_second();

    let openai = |amount: Value| {
        let result = json!({ "object": "organization.costs.result", "line_item": "m-2026-01-01, output",
            "amount": { "value": amount, "currency": "usd" } });
        json!({ "object": "page", "has_more": false, "next_page": null,
            "data": [{ "object": "bucket", "start_time": seconds, "end_time": seconds + 86_400,
                "results": [result] }] })
        .to_string()
    };
    let anthropic = |amount: &str| {
        let result = json!({ "currency": "USD", "amount": amount, "cost_type": "tokens",
            "model": "m-20260101", "description": "M Usage - Output Tokens" });
        let bucket = json!({ "starting_at": begin, "results": [result] });
        // Two pages in a list.
        json!([{ "data": [bucket], "has_more": true }, { "data": [], "has_more": false }])
            .to_string()
    };
    let google = |amount: &str| {
        format!(
            "Billing account,012345\r\n\r\nUsage start date,SKU description,Cost ($)\r\n\
             {day},\"M, output tokens\",{amount}\r\n,Total,{amount}\r\n"
        )
    };
    let reconcile = |bill: &str, flags: &[&str]| {
        std::fs::write(folder.0.join("bill"), bill).unwrap();
        folder.run(&[&["ledger", "reconcile", "--provider", "p", "bill"], flags].concat())
    };
    for bill in
        [openai(json!(0.120_03)), openai(json!("0.12003")), anthropic("12.003"), google("$0.12003")]
    {
        let compared = reconcile(&bill, &["--json"]);
        assert_eq!(compared.status.code(), Some(0), "{compared:?}");
        let compared: Value = serde_json::from_slice(&compared.stdout).unwrap();
        let amounts = json!({
            "provider_usd": "0.120030000", "charged_usd": "0.120030000",
            "absorbed_usd": "0.000000000", "difference_usd": "0.000000000",
        });
        assert_eq!((&compared["ok"], &compared["sum"]), (&true.into(), &amounts));
        let mut row = amounts.clone();
        (row["day"], row["model"]) = (day.clone().into(), "m".into());
        row["day_differs"] = false.into();
        assert_eq!(compared["rows"], json!([row]));
    }
    for bill in [openai(json!(0.2)), anthropic("20"), google("0.10")] {
        let compared = reconcile(&bill, &[]);
        assert_eq!(compared.status.code(), Some(1), "{compared:?}");
        let said = String::from_utf8(compared.stdout).unwrap();
        assert!(said.contains(&day) && said.ends_with("the bill differs\n"), "{said}");
        assert_eq!(reconcile(&bill, &["--tolerance", "50%"]).status.code(), Some(0));
    }
    fails(&reconcile("{\"data\": [", &[]), 1, "no complete JSON");
    fails(&reconcile("a,b\n1,2\n", &[]), 1, "no row names the columns");
    let one_page = r#"{"data":[],"has_more":true}"#;
    fails(&reconcile(one_page, &[]), 1, "one page of several");
}

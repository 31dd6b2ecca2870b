//! End users and tags: of every format, on the receipt, in reports, and not at the provider.

use super::*;
use testkit::until;

/// A path and a body of each format that name `somebody` and `team=blue` as far as the format can.
fn named_calls() -> Vec<(&'static str, Value, bool)> {
    let hi = json!([{ "role": "user", "content": "hi" }]);
    let pairs = json!({ "team": "blue", "note": "n".repeat(300) });
    let chat = json!({ "model": "m", "messages": hi, "max_tokens": 50,
                       "user": "somebody", "metadata": pairs });
    let plain = json!({ "model": "m", "messages": hi, "max_tokens": 50, "user": "somebody" });
    let responses = json!({ "model": "m", "input": "hi", "store": false,
                            "safety_identifier": "somebody", "user": "other", "metadata": pairs });
    let messages = json!({ "model": "m", "messages": hi, "max_tokens": 50,
                           "metadata": { "user_id": "user_h_account_somebody_session_s" } });
    let native = json!({ "contents": [{ "role": "user", "parts": [{ "text": "hi" }] }],
                         "labels": { "team": "blue", "user_id": "somebody", "note": "n".repeat(300) } });
    vec![
        (CHAT, chat, true),
        (CHAT, plain, false),
        ("/v1/responses", responses, true),
        ("/v1/messages", messages, false),
        ("/v1beta/models/m:generateContent", native, true),
    ]
}

#[tokio::test]
async fn every_format_names_its_end_user_and_tags() {
    let a = good().await;
    let gateway = TestGateway::with_config(&config(&[&a.url], "lanes = [\"a/x\"]")).await;
    for (path, body, has_tags) in named_calls() {
        let got = gateway.post(path, &body).send().await;
        assert_eq!(got.status, 200, "{path} {}", got.text());
        let told = receipt(&gateway, &got).await;
        assert_eq!(told["end_user"], "somebody", "{path} {told}");
        if has_tags {
            assert_eq!(told["tags"]["team"], "blue", "{path} {told}");
            let note = told["tags"]["note"].as_str().unwrap();
            assert!(note.starts_with("sha256:") && note.len() == 71, "{note}");
        } else {
            assert_eq!(told["tags"], json!({}), "{path} {told}");
        }
        // Headers count more, and tags of both are joined.
        let got = gateway.post(path, &body).header("x-portunus-end-user", "header user");
        let got = got.header("x-portunus-tags", "team=red, beta").send().await;
        let told = receipt(&gateway, &got).await;
        assert_eq!(told["end_user"], "header user", "{path} {told}");
        assert_eq!((&told["tags"]["team"], &told["tags"]["beta"]), (&json!("red"), &json!("")));
        assert_eq!(told["tags"]["note"].is_string(), has_tags, "{path} {told}");
    }
    for request in a.requests() {
        let head = request.head.to_lowercase();
        assert!(!head.contains("-tags") && !head.contains("-end-user"), "{head}");
    }
    let got = ask(&gateway).await;
    let told = receipt(&gateway, &got).await;
    assert_eq!((&told["end_user"], &told["tags"]), (&Value::Null, &json!({})));
}

#[tokio::test]
async fn wrong_headers_are_refused_in_the_format_of_the_caller() {
    let a = good().await;
    let gateway = TestGateway::with_config(&config(&[&a.url], "lanes = [\"a/x\"]")).await;
    let long = "x".repeat(257);
    let many: Vec<String> = (0..17).map(|number| format!("t{number}")).collect();
    for (path, body, _) in named_calls() {
        for (name, value) in [
            ("x-portunus-tags", "=blue"),
            ("x-portunus-tags", &*many.join(",")),
            ("x-portunus-tags", "team=ä"),
            ("x-portunus-end-user", &long),
        ] {
            let got = gateway.post(path, &body).header(name, value).send().await;
            assert_eq!(got.status, 400, "{path} {name}");
            assert!(got.text().contains(name), "{path} {}", got.text());
        }
    }
    assert!(a.requests().is_empty());
}

#[tokio::test]
async fn reports_are_by_end_user_and_by_tag() {
    let a = good().await;
    let gateway = TestGateway::with_config(&config(&[&a.url], "lanes = [\"a/x\"]")).await;
    for (user, tags) in [("ann", "team=blue"), ("ann", "team=red,beta"), ("bob", "beta"), ("", "")]
    {
        let call = gateway.post(CHAT, &hello("m")).header("x-portunus-end-user", user);
        let got = call.header("x-portunus-tags", tags).send().await;
        assert_eq!(got.status, 200, "{}", got.text());
    }
    let admin = gateway.admin_key().await.to_owned();
    let usage = async |query: &str| {
        gateway.get(&format!("/api/admin/usage?{query}")).key(&admin).send().await.json()
    };
    until("all calls are posted", async || usage("by=end_user").await["total"]["calls"] == 4).await;
    let groups = |report: &Value| {
        let groups = report["groups"].as_array().unwrap().iter();
        let mut groups: Vec<(String, u64)> = groups
            .map(|group| {
                let name = group["group"].as_str().unwrap().to_owned();
                (name, group["used"]["calls"].as_u64().unwrap())
            })
            .collect();
        groups.sort();
        groups
    };
    let named = |groups: &[(&str, u64)]| -> Vec<(String, u64)> {
        groups.iter().map(|(name, calls)| ((*name).to_owned(), *calls)).collect()
    };
    assert_eq!(groups(&usage("by=end_user").await), named(&[("", 1), ("ann", 2), ("bob", 1)]));
    let by_tag = usage("by=tag&tag_name=team").await;
    assert_eq!(groups(&by_tag), named(&[("", 2), ("blue", 1), ("red", 1)]));
    assert_eq!(by_tag["tag_names"], json!({ "team": 2, "beta": 2 }));
    assert_eq!(usage("by=tag").await["tag_name"], "beta");
    for (query, calls) in [
        ("end_user=ann", 2),
        ("tag=team", 2),
        ("tag=team%3Dblue", 1),
        ("tag=team&end_user=ann&by=tag&tag_name=beta", 2),
        ("tag=tea", 0),
        ("end_user=Ann", 0),
    ] {
        assert_eq!(usage(query).await["total"]["calls"], calls, "{query}");
    }
    for (query, field) in
        [("by=tags", "by"), ("tag_name=team", "tag_name"), ("by=session&tag=x", "tag")]
    {
        assert_eq!(usage(query).await["field"], field, "{query}");
    }
}

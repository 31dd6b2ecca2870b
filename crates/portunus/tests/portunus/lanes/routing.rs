//! Choice of the lane, and its price.

use super::*;
use std::collections::BTreeMap;
use testkit::until;

/// Counts which lane answered each of that many calls.
async fn shares(
    gateway: &TestGateway,
    bodies: impl Iterator<Item = Value>,
) -> BTreeMap<String, usize> {
    let mut shares = BTreeMap::new();
    for body in bodies {
        let got = gateway.post(CHAT, &body).send().await;
        assert_eq!(got.status, 200, "{}", got.text());
        *shares.entry(got.header("x-portunus-lane").to_owned()).or_default() += 1;
    }
    shares
}

/// A conversation with a long beginning of its own and that last turn.
fn long(print: usize, last: &str) -> Value {
    let system = format!("You are number {print}. ").repeat(300);
    json!({ "temperature": 0.5, "model": "m", "messages": [
        { "role": "system", "content": system }, { "role": "user", "content": last },
    ] })
}

#[tokio::test]
async fn lanes_are_taken_in_the_order_they_are_written() {
    let (a, b) = (good().await, good().await);
    let gateway =
        TestGateway::with_config(&config(&[&a.url, &b.url], "lanes = [\"b/y\", \"a/x\"]")).await;
    let shares = shares(&gateway, (0..10).map(|_| hello("m"))).await;
    assert_eq!(shares, BTreeMap::from([("b/y".to_owned(), 10)]));
}

#[tokio::test]
async fn lanes_with_weights_share() {
    let (a, b, c) = (good().await, good().await, good().await);
    let lanes = "lanes = [{ lane = \"a/x\", weight = 3 }, { lane = \"b/x\", weight = 1 }, \"c/x\"]";
    let gateway = TestGateway::with_config(&config(&[&a.url, &b.url, &c.url], lanes)).await;
    let shares = shares(&gateway, (0..400).map(|_| hello("m"))).await;
    // Three quarters of 400, within nearly five standard deviations.
    assert!((260..=340).contains(&shares["a/x"]), "{shares:?}");
    assert_eq!(shares["a/x"] + shares["b/x"], 400, "{shares:?}");
}

#[tokio::test]
async fn a_conversation_stays_where_its_beginning_is_cached() {
    let (a, b) = (good().await, good().await);
    let lanes = "lanes = [{ lane = \"a/x\", weight = 1 }, { lane = \"b/x\", weight = 1 }]";
    let gateway = TestGateway::with_config(&config(&[&a.url, &b.url], lanes)).await;
    let mut homes = BTreeMap::new();
    for print in 0..24 {
        let turns = ["one", "another", "a third, longer than the others"];
        let shares = shares(&gateway, turns.iter().map(|turn| long(print, turn))).await;
        assert_eq!(shares.len(), 1, "conversation {print} moved: {shares:?}");
        homes.extend(shares);
    }
    assert_eq!(homes.len(), 2, "all conversations live at the same place");
}

#[tokio::test]
async fn credentials_share_and_a_refused_one_rests() {
    let refused = answer(401, "", r#"{"error":{"message":"bad key one"}}"#);
    let provider = ScriptedProvider::start(vec![refused, chat_reply("hi", 1, 1)]).await;
    let auth = "auth = [{ bearer = { text = \"one\" } }, { bearer = { text = \"two\" } }]";
    let config = format!(
        "[providers.p]\nspeaks = \"chat\"\nbase = \"{}\"\n{auth}\n[models.m]\nlanes = [\"p/x\"]\n",
        provider.url
    );
    let gateway = TestGateway::with_config(&config).await;
    let got = ask(&gateway).await;
    assert_eq!(got.status, 200, "{}", got.text());
    let tries = receipt(&gateway, &got).await["tries"].clone();
    assert_eq!(
        (&tries[0]["outcome"], &tries[0]["status"], &tries[1]["outcome"]),
        (&json!("credential_refused"), &json!(401), &json!("answered"))
    );
    for _ in 0..10 {
        assert_eq!(ask(&gateway).await.status, 200);
    }
    let bearer = |asked: &testkit::ReceivedRequest| {
        asked.head.lines().find(|line| line.starts_with("authorization")).unwrap().to_owned()
    };
    let keys: Vec<String> = provider.requests().iter().map(bearer).collect();
    assert_eq!(keys.len(), 12);
    assert!(keys[1..].iter().all(|key| *key == keys[1] && *key != keys[0]), "{keys:?}");
    let health = gateway.app.config().lane_health(gateway.app.ticks());
    let standings: Vec<_> = health
        .iter()
        .filter(|lane| lane.lane == "p/x")
        .map(|lane| (lane.health.state.as_str(), lane.health.last_failure))
        .collect();
    assert!(standings.contains(&("good", None)), "{standings:?}");
    assert!(standings.contains(&("cooling_down", Some("credential_refused"))), "{standings:?}");
}

#[tokio::test]
async fn the_lane_taken_is_the_price_paid_and_the_dearest_is_set_aside() {
    let (a, b) = (failing(500).await, good().await);
    let lanes =
        "lanes = [\"a/x\", { lane = \"b/x\", price = { input = \"10\", output = \"20\" } }]";
    let gateway = TestGateway::with_config(&config(&[&a.url, &b.url], lanes)).await;
    let got = ask(&gateway).await;
    assert_eq!(got.header("x-portunus-lane"), "b/x");
    // 3 tokens in, 5 out, at ten and twenty dollars a million.
    assert_eq!(got.header("x-portunus-cost"), "0.000130000");
    let bill = receipt(&gateway, &got).await;
    assert_eq!((&bill["cost_usd"], &bill["attempts"]), (&json!("0.000130000"), &json!(2)));
    let dry = gateway.post(CHAT, &hello("m")).header("x-portunus-dry-run", "true").send().await;
    assert_eq!(dry.json()["lane"], "a/x");
    let version = &dry.json()["quote"]["price_version"];
    assert_ne!(*version, bill["price_version"], "each lane has its own list");
}

#[tokio::test]
async fn a_hold_covers_every_lane_that_may_be_taken() {
    let mut held = Vec::new();
    let dear = "{ lane = \"a/y\", price = { input = \"10\", output = \"20\" } }";
    for lanes in ["\"a/x\"".to_owned(), format!("\"a/x\", {dear}")] {
        let wait = vec![AnswerStep::Wait(std::time::Duration::from_secs(600))];
        let silent = ScriptedProvider::start(vec![wait]).await;
        let config = config(&[&silent.url], &format!("lanes = [{lanes}]"));
        let gateway = std::sync::Arc::new(TestGateway::with_config(&config).await);
        let asking = std::sync::Arc::clone(&gateway);
        let running = tokio::spawn(async move { ask(&asking).await });
        until("the provider was requests", async || !silent.requests().is_empty()).await;
        let key = gateway.get("/v1/key").send().await.json();
        held.push(key["held_usd"].as_str().unwrap().replace('.', "").parse::<u64>().unwrap());
        running.abort();
    }
    assert_eq!(held[1], 10 * held[0], "the dear lane asks for ten times as much");
}

#[tokio::test]
async fn the_cheapest_goes_first_for_who_asks_for_it() {
    let (a, b) = (good().await, good().await);
    let lanes =
        "lanes = [\"a/x\", { lane = \"b/x\", price = { input = \"0.1\", output = \"0.1\" } }]";
    let providers = [a.url.as_str(), b.url.as_str()];
    let gateway = TestGateway::with_config(&config(&providers, lanes)).await;
    assert_eq!(ask(&gateway).await.header("x-portunus-lane"), "a/x");
    let cheap = gateway.post(CHAT, &hello("m")).header("x-portunus-route", "cheapest");
    assert_eq!(cheap.send().await.header("x-portunus-lane"), "b/x");
    let wrong = gateway.post(CHAT, &hello("m")).header("x-portunus-route", "best").send().await;
    assert_eq!(
        (wrong.status.as_u16(), &wrong.json()["error"]["param"]),
        (400, &json!("x-portunus-route"))
    );
    let always =
        TestGateway::with_config(&config(&providers, &format!("{lanes}\norder = \"cheapest\"")))
            .await;
    assert_eq!(ask(&always).await.header("x-portunus-lane"), "b/x");
}

#[tokio::test]
async fn an_alias_is_the_same_model() {
    let a = good().await;
    let model = "lanes = [\"a/x\"]\naliases = [\"latest\", \"vendor/m\"]";
    let gateway = TestGateway::with_config(&config(&[&a.url], model)).await;
    for name in ["m", "latest", "vendor/m"] {
        let got = gateway.post(CHAT, &hello(name)).send().await;
        assert_eq!((got.status.as_u16(), got.header("x-portunus-lane")), (200, "a/x"), "{name}");
    }
    assert_eq!(gateway.post(CHAT, &hello("late")).send().await.status, 404);
    // Every callable id is in the lists of the clients. The catalog has each model once.
    let ids = |list: &Value, name: &str| -> Vec<String> {
        let list = list.as_array().unwrap().iter();
        let ids = list.map(|one| one[name].as_str().unwrap().replace("models/", ""));
        ids.filter(|id| !id.starts_with("demo-")).collect()
    };
    let all = ["m", "latest", "vendor/m"];
    let list = gateway.get("/v1/models").send().await.json();
    assert_eq!(ids(&list["data"], "id"), all);
    let page = gateway.get("/v1/models?limit=1&after_id=m").header("anthropic-version", "x");
    assert_eq!(ids(&page.send().await.json()["data"], "id"), ["latest"]);
    let list = gateway.get("/v1beta/models").send().await.json();
    assert_eq!(ids(&list["models"], "name"), all);
    let list = gateway.get("/api/models").without_key().send().await.json();
    assert_eq!(ids(&list["data"], "id"), ["m"]);
    let list = gateway.get("/api/models?q=lates").without_key().send().await.json();
    assert_eq!(ids(&list["data"], "id"), ["m"]);
    assert_eq!(list["data"][0]["aliases"], json!(["latest", "vendor/m"]));
    for (path, name, id) in [
        ("/v1/models/latest", "id", "latest"),
        ("/v1/models/vendor/m", "id", "vendor/m"),
        ("/v1beta/models/latest", "name", "models/latest"),
    ] {
        assert_eq!(gateway.get(path).send().await.json()[name], id, "{path}");
    }
    assert_eq!(gateway.get("/v1/models/late").send().await.status, 404);
    assert!(a.requests().iter().all(|asked| asked.json()["model"] == "x"));
}

#[tokio::test]
async fn another_model_stands_in_only_where_that_is_configured() {
    let (a, b) = (failing(500).await, good().await);
    let other = "[models.other]\nlanes = [\"b/big\"]\nprice = { input = \"3\", output = \"9\" }";
    let alone = format!("lanes = [\"a/x\"]\n{other}");
    let gateway = TestGateway::with_config(&config(&[&a.url, &b.url], &alone)).await;
    assert_eq!(ask(&gateway).await.status, 503);
    let helped = format!("lanes = [\"a/x\"]\nfallback = [\"other\"]\n{other}");
    let gateway = TestGateway::with_config(&config(&[&a.url, &b.url], &helped)).await;
    let got = ask(&gateway).await;
    assert_eq!((got.status.as_u16(), got.header("x-portunus-lane")), (200, "b/big"));
    let bill = receipt(&gateway, &got).await;
    assert_eq!((&bill["model"], &bill["lane"]), (&json!("m"), &json!("b/big")));
    assert_eq!(bill["cost_usd"], "0.000054000", "3 × 3 and 5 × 9 dollars a million");
}

#[tokio::test]
async fn two_gateways_in_a_row_work_and_a_loop_is_refused() {
    let inner = TestGateway::start().await;
    let config = format!(
        "[providers.inner]\nspeaks = \"chat\"\nbase = \"{}\"\nauth = {{ bearer = {{ text = \"{}\" }} }}\n\
         [models.m]\nlanes = [\"inner/demo-chat\"]\n",
        inner.url, inner.key
    );
    let outer = TestGateway::with_config(&config).await;
    let got = ask(&outer).await;
    assert_eq!((got.status.as_u16(), got.header("x-portunus-lane")), (200, "inner/demo-chat"));

    let echo = good().await;
    let gateway = TestGateway::with_config(&super::config(&[&echo.url], "lanes = [\"a/x\"]")).await;
    assert_eq!(ask(&gateway).await.status, 200);
    let sent = echo.requests()[0].head.clone();
    let hops = sent.lines().find_map(|line| line.strip_prefix("x-portunus-hops: ")).unwrap();
    let came_round = gateway.post(CHAT, &hello("m")).header("x-portunus-hops", hops).send().await;
    assert_eq!(came_round.status, 400);
    let error = &came_round.json()["error"];
    assert_eq!(
        (&error["param"], &error["code"]),
        (&json!("x-portunus-hops"), &json!("request_loop"))
    );
    assert_eq!(echo.requests().len(), 1, "a loop ends here");
}

//! Stored configuration on other nodes and after a restart.

use super::*;

const KEYS: &str =
    "[server]\nvault = { text = \"one:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\" }\n";

#[tokio::test]
async fn another_node_on_the_same_store_hears_of_it_by_itself() {
    let provider = good().await;
    let config = format!("{KEYS}{OPEN}");
    let one = TestGateway::with_config(&config).await;
    let two = one.start_second_node(&config).await;
    furnish(&one, &provider.url).await;
    until("the other serves it", async || two.post(CHAT, &hello("m")).send().await.status == 200)
        .await;
    assert_eq!(shown(&provider), [SECRET]);
    let told = get(&two, "/providers/house").await;
    assert_eq!((&told["source"], &told["trouble"]), (&json!("stored"), &Value::Null));
    // Changes of the second node reach the first, although both change at once.
    let model = json!({ "lanes": ["house/up"] });
    let path = |n: usize| format!("/models/x{n}");
    for n in 0..3 {
        let (path_one, path_two) = (path(2 * n), path(2 * n + 1));
        let (mine, yours) = tokio::join!(
            admin(&one, Method::PUT, &path_one, model.clone()),
            admin(&two, Method::PUT, &path_two, model.clone()),
        );
        for (got, gateway, path) in [(mine, &one, &path_one), (yours, &two, &path_two)] {
            if got.status == 412 {
                put(gateway, path, model.clone()).await;
            } else {
                assert_eq!(got.status, 201, "{}", got.text());
            }
        }
    }
    until("both have all", async || {
        let has = |gateway: &TestGateway| {
            let config = gateway.app.config();
            (0..6).all(|n| config.catalog.get(&format!("x{n}")).is_some())
        };
        has(&one) && has(&two)
    })
    .await;
}

#[tokio::test]
async fn a_node_without_the_key_leaves_the_credential_out_and_says_so() {
    let provider = good().await;
    let one = TestGateway::with_config(&format!("{KEYS}{OPEN}")).await;
    furnish(&one, &provider.url).await;
    let two = one.start_second_node(OPEN).await;
    let told = get(&two, "/providers/house").await;
    assert!(told["trouble"].as_str().unwrap().contains("credential"), "{told}");
    let why = told["credentials"][0]["trouble"].as_str().unwrap();
    assert!(why.contains("`one`") && why.contains("[server]"), "{why}");
    assert_eq!(two.post(CHAT, &hello("m")).send().await.status, 404);
    let health = get(&two, "/health").await;
    assert!(health["troubles"].to_string().contains("credential"), "{health}");
    let checked = admin(&two, Method::POST, "/providers/house/check", json!({})).await.json();
    assert_eq!(checked["data"][0]["ok"], false, "{checked}");
    assert_eq!(provider.requests().len(), 0, "and nothing is requests without it");
    // The key is loaded with the next reading of the configuration.
    let store = one.data_folder().join("portunus.db");
    let store = format!("[store]\nurl = \"sqlite:{}\"\n", store.display());
    two.reload(&format!("{KEYS}{OPEN}{store}"));
    until("it serves", async || two.post(CHAT, &hello("m")).send().await.status == 200).await;
}

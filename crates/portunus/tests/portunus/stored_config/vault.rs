//! The vault over the API, and re-keying during calls.

use super::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

#[tokio::test]
async fn secrets_are_sealed_anew_while_calls_run() {
    let provider = good().await;
    let gateway = Arc::new(TestGateway::with_config(OPEN).await);
    assert_eq!(get(&gateway, "/vault").await["current"], Value::Null, "nothing to seal yet");
    furnish(&gateway, &provider.url).await;
    let before = get(&gateway, "/vault").await;
    let first = before["current"].as_str().unwrap().to_owned();
    assert_eq!(before["sealed"], json!({ first.clone(): 1 }));
    let (stop, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let caller = {
        let (gateway, stop, calls) = (Arc::clone(&gateway), Arc::clone(&stop), Arc::clone(&calls));
        tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let got = gateway.post(CHAT, &hello("m")).send().await;
                assert_eq!(got.status, 200, "{}", got.text());
                calls.fetch_add(1, Ordering::Relaxed);
            }
        })
    };
    for round in 1..=3 {
        let seen = calls.load(Ordering::Relaxed);
        let done = admin(&gateway, Method::POST, "/vault/rekey", json!({})).await;
        assert_eq!(done.status, 200, "{}", done.text());
        let done = done.json();
        assert_eq!((&done["sealed_anew"], &done["left"]), (&json!(round), &json!(0)), "{done}");
        assert_eq!(done["keys"].as_array().unwrap().len(), 1, "the old one is gone");
        assert_ne!(done["current"], json!(first));
        let more = json!({ "name": format!("more{round}"), "value": SECRET });
        let path = "/providers/house/credentials";
        assert_eq!(admin(&gateway, Method::POST, path, more).await.status, 201);
        until("calls go on", async || calls.load(Ordering::Relaxed) > seen).await;
    }
    stop.store(true, Ordering::Relaxed);
    caller.await.unwrap();
    // A restart finds the same.
    let file = gateway.data_folder().join("vault.key");
    let vault = store::Vault::new(file, None, false);
    for one in gateway.app.store.configured().await.unwrap().credentials {
        let open = vault.open(&one.label(), &one.sealed).unwrap();
        assert!(String::from_utf8(open).unwrap().contains(SECRET));
    }
    let audit = get(&gateway, "/audit").await;
    assert!(audit.to_string().contains("vault.rekey"));
}

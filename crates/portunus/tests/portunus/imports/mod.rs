//! Moving in: databases of other gateways are imported, and their clients go on with the keys they have.

#[cfg(feature = "node-tests")]
mod litellm;
mod one_api;
mod refused;

use http::Method;
use serde_json::{Value, json};
use std::time::Duration;

use crate::tasks::harness::{GatewayProcess, get, send, soon};

/// Configuration with a model `flat`, whose calls cost 0.001 USD each.
async fn flat_config() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let options = demo::SimulatorOptions::default();
    tokio::spawn(demo::simulate(listener, options, std::future::pending::<()>()));
    format!(
        r#"
[providers.simulator]
speaks = ["chat"]
base = "http://{address}"
auth = "none"
[models.flat]
lanes = ["simulator/demo-chat"]
price = {{ input = "0", output = "0", per_request = "0.001" }}
[models.other]
lanes = ["simulator/demo-chat"]
price = {{ input = "0", output = "0", per_request = "0.001" }}
"#
    )
}

/// Calls the model with a key. Returns the status and the code of an error.
async fn call(gateway: &GatewayProcess, key: &str, model: &str) -> (u16, String) {
    let body = json!({ "model": model, "messages": [{ "role": "user", "content": "Hi" }] });
    let url = format!("{}/v1/chat/completions", gateway.url);
    let got = send(Method::POST, &url, key, &[], &body.to_string()).await.unwrap();
    (got.status, got.json()["error"]["code"].as_str().unwrap_or_default().to_owned())
}

/// Waits until the gateway has the key, and returns its description.
async fn described(gateway: &GatewayProcess, key: &str) -> Value {
    let url = format!("{}/v1/key", gateway.url);
    let found = soon(Duration::from_secs(60), || async {
        get(&url, key).await.filter(|got| got.status == 200)
    });
    found.await.expect("an imported key that works").json()
}

/// Waits until a key has spent that amount.
async fn spends(gateway: &GatewayProcess, key: &str, amount: &str) {
    let url = format!("{}/v1/key", gateway.url);
    let spent = soon(Duration::from_secs(60), || async {
        get(&url, key).await.filter(|got| got.json()["spent_usd"] == amount)
    });
    spent.await.expect(amount);
}

/// Lines of an import by kind and name.
fn lines(said: &str) -> Vec<Value> {
    said.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

fn result<'a>(lines: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let found = lines.iter().find(|line| line["kind"] == kind && line["name"] == name);
    found.unwrap_or_else(|| panic!("{kind} {name} in {lines:#?}"))
}

fn has_note(lines: &[Value], word: &str) -> bool {
    let mut notes = lines.iter().filter(|line| line["kind"] == "note");
    notes.any(|line| line["text"].as_str().unwrap().contains(word))
}

fn audit_lines(gateway: &GatewayProcess) -> usize {
    // A gateway notes the first use of a key when it comes to it.
    let is_import = |line: &&str| !line.contains("key.rehash");
    gateway.run(&["audit"]).lines().filter(is_import).count()
}

//! A provider that repeats the operator's secrets in its errors: the caller reads the rest.

use serde_json::json;
use testkit::{ScriptedProvider, TestGateway, reply};

const SECRET: &str = "vault.9f-the-operators-own";

#[tokio::test]
async fn no_piece_of_a_credential_reaches_the_caller() {
    let message = format!(
        "temperature is too high for key {SECRET} (starts with {}), account org-77, seen at \
         10.0.0.8 and gpu.cluster.internal",
        &SECRET[..9]
    );
    let expected = "temperature is too high for key [hidden] (starts with [hidden]), account \
                    [hidden], seen at [hidden] and [hidden]";
    for (speaks, path, status) in [
        ("chat", "/v1/chat/completions", 400),
        ("messages", "/v1/messages", 400),
        ("responses", "/v1/responses", 400),
        ("native", "/v1beta/models/m:generateContent", 400),
        ("chat", "/v1/messages", 413),
    ] {
        let body = json!({"type": "error", "error": {"message": message, "type": "bad",
            "code": 400, "status": "INVALID_ARGUMENT"}});
        let answers = vec![reply(status, "application/json", &body.to_string())];
        let provider = ScriptedProvider::start(answers).await;
        let auth = format!("auth = {{ bearer = {{ text = \"{SECRET}\" }} }}");
        let config = provider.config(speaks).replace("auth = \"none\"", &auth);
        let gateway = TestGateway::with_config(&config).await;
        let request = json!({"model": "m", "max_tokens": 9, "input": "Hi",
            "messages": [{"role": "user", "content": "Hi"}]});
        let request = match path.contains(":generate") {
            true => json!({"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}),
            false => request,
        };
        let answer = gateway.post(path, &request).send().await;
        let sent = provider.requests();
        assert!(sent.iter().any(|sent| format!("{sent:?}").contains(SECRET)), "{speaks}");
        assert_eq!(answer.status, status, "{speaks}: {}", answer.text());
        assert!(answer.text().contains(expected), "{speaks}: {}", answer.text());
        let shown = format!("{answer:?}");
        for at in 0..SECRET.len() - 8 {
            assert!(!shown.contains(&SECRET[at..at + 8]), "{speaks}: {shown}");
        }
    }
}

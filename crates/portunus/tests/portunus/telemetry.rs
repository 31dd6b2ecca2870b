//! Traces and metrics as a collector receives them.

use serde_json::{Value, json};
use std::sync::Arc;
use testkit::{
    AnswerStep, ReceivedRequest, ScriptedProvider, TestGateway, chat_reply, reply, until,
};
use tokio::sync::Semaphore;

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// Waits until the collector has a request on that path.
async fn told(collector: &ScriptedProvider, path: &str) -> ReceivedRequest {
    let find = || collector.requests().into_iter().find(|requests| requests.head.contains(path));
    until(&format!("the collector was sent {path}"), async || find().is_some()).await;
    find().unwrap()
}

fn attribute<'a>(attributes: &'a Value, name: &str) -> &'a Value {
    let all = attributes.as_array().unwrap();
    &all.iter().find(|one| one["key"] == name).unwrap_or(&Value::Null)["value"]
}

#[tokio::test]
async fn a_call_is_a_span_of_the_callers_trace_and_counts() {
    let collector = ScriptedProvider::start(vec![reply(200, "application/json", "{}")]).await;
    let provider = ScriptedProvider::start(vec![chat_reply("Hello.", 9, 3)]).await;
    let config = format!(
        "[telemetry]\notlp = \"{}\"\nservice = \"harbour\"\nheaders = {{ x-key = {{ text = \"k\" }} }}\n{}",
        collector.url,
        provider.config("chat")
    );
    let gateway = TestGateway::with_config(&config).await;
    let body = json!({ "model": "m", "messages": [{ "role": "user", "content": "a secret" }] });
    let ask = gateway.post("/v1/chat/completions", &body);
    let ask = ask.header("session-id", "run/7").header("x-portunus-tags", "team=blue, beta");
    let ask = ask.header("x-portunus-end-user", "somebody");
    let got = ask.header("traceparent", PARENT).header("tracestate", "a=b").send().await;
    assert_eq!(got.status, 200);

    let sent = provider.requests().pop().unwrap().head.to_ascii_lowercase();
    let line = sent.lines().find(|line| line.starts_with("traceparent:")).unwrap();
    assert!(line.contains("00-0af7651916cd43dd8448eb211c80319c-") && !line.contains("b7ad6b71"));
    assert!(sent.contains("tracestate: a=b"));

    let asked = told(&collector, "/v1/traces").await;
    assert!(asked.head.to_ascii_lowercase().contains("x-key: k"));
    assert!(!String::from_utf8_lossy(&asked.body).contains("secret"));
    let report = &asked.json()["resourceSpans"][0];
    assert_eq!(
        attribute(&report["resource"]["attributes"], "service.name")["stringValue"],
        "harbour"
    );
    let span = &report["scopeSpans"][0]["spans"][0];
    assert_eq!(span["traceId"], "0af7651916cd43dd8448eb211c80319c");
    assert_eq!(span["parentSpanId"], "b7ad6b7169203331");
    assert!(line.contains(span["spanId"].as_str().unwrap()));
    assert_eq!(span["name"], "chat m");
    let attributes = &span["attributes"];
    assert_eq!(attribute(attributes, "gen_ai.usage.input_tokens")["intValue"], "9");
    assert_eq!(attribute(attributes, "gen_ai.provider.name")["stringValue"], "p");
    assert_eq!(attribute(attributes, "gen_ai.conversation.id")["stringValue"], "run/7");
    assert_eq!(attribute(attributes, "enduser.id")["stringValue"], "somebody");
    assert_eq!(attribute(attributes, "portunus.tags")["stringValue"], "beta, team=blue");
    assert_eq!(
        attribute(attributes, "portunus.request_id")["stringValue"],
        got.header("x-request-id")
    );

    let asked = told(&collector, "/v1/metrics").await;
    let metrics = asked.json()["resourceMetrics"][0]["scopeMetrics"][0]["metrics"].clone();
    let tokens = &metrics.as_array().unwrap()[0];
    assert_eq!(tokens["name"], "gen_ai.client.token.usage");
    let sums: Vec<&Value> = tokens["histogram"]["dataPoints"]
        .as_array()
        .unwrap()
        .iter()
        .map(|point| &point["sum"])
        .collect();
    assert_eq!(sums, [&json!(9.0), &json!(3.0)]);
}

#[tokio::test]
async fn spans_use_the_names_of_the_semantic_conventions() {
    let collector = ScriptedProvider::start(vec![reply(200, "application/json", "{}")]).await;
    let config = format!("[telemetry]\notlp = \"{}\"\n", collector.url);
    let gateway = TestGateway::with_config(&config).await;
    let parts = json!({ "parts": [{ "text": "Hi" }] });
    for (path, body) in [
        ("/v1/embeddings", json!({ "model": "demo-embed", "input": "Hi" })),
        ("/v1beta/models/demo-embed:embedContent", json!({ "content": parts })),
        ("/v1beta/models/demo-chat:generateContent", json!({ "contents": [parts] })),
    ] {
        assert_eq!(gateway.post(path, &body).send().await.status, 200, "{path}");
    }
    let mut names = Vec::new();
    until("three spans were sent", async || {
        names.clear();
        for asked in collector.requests().iter().filter(|asked| asked.head.contains("/v1/traces")) {
            let spans = asked.json()["resourceSpans"][0]["scopeSpans"][0]["spans"].clone();
            for span in spans.as_array().unwrap() {
                let name = &attribute(&span["attributes"], "gen_ai.operation.name")["stringValue"];
                names.push((span["name"].as_str().unwrap().to_owned(), name.clone()));
            }
        }
        names.len() >= 3
    })
    .await;
    let wanted = [
        ("embeddings demo-embed", "embeddings"),
        ("embeddings demo-embed", "embeddings"),
        ("generate_content demo-chat", "generate_content"),
    ];
    assert_eq!(names, wanted.map(|(name, word)| (name.to_owned(), json!(word))));
}

#[tokio::test]
async fn a_trace_nobody_records_is_counted_and_not_told() {
    let collector = ScriptedProvider::start(vec![reply(200, "application/json", "{}")]).await;
    let config = format!("[telemetry]\notlp = \"{}\"\n", collector.url);
    let gateway = TestGateway::with_config(&config).await;
    let body = json!({ "model": "demo-chat", "messages": [{ "role": "user", "content": "Hi" }] });
    let unsampled = PARENT.replace("-01", "-00");
    let ask = gateway.post("/v1/chat/completions", &body).header("traceparent", &unsampled);
    assert_eq!(ask.send().await.status, 200);
    told(&collector, "/v1/metrics").await;
    assert!(collector.requests().iter().all(|asked| !asked.head.contains("/v1/traces")));
}

/// Records that the collector received, over all reports.
fn log_records(collector: &ScriptedProvider) -> Vec<Value> {
    let asked = collector.requests().into_iter().filter(|asked| asked.head.contains("/v1/logs"));
    let records = asked.flat_map(|asked| {
        let records = asked.json()["resourceLogs"][0]["scopeLogs"][0]["logRecords"].clone();
        records.as_array().unwrap().clone()
    });
    records.collect()
}

#[tokio::test]
async fn the_audit_log_of_all_nodes_is_streamed_once() {
    let collector = ScriptedProvider::start(vec![reply(200, "application/json", "{}")]).await;
    let config = format!("[telemetry]\notlp = \"{}\"\naudit = true\n", collector.url);
    let one = TestGateway::with_config(&config).await;
    let two = one.start_second_node(&config).await;
    for (node, name) in [(&one, "first"), (&two, "second")] {
        let body = json!({ "name": name, "cap_usd": null });
        let asked = node.post("/api/admin/keys", &body).header("user-agent", "curl/8");
        let made = asked.send().await;
        assert_eq!(made.status, 201, "{}", made.text());
    }
    let is_key = |record: &Value| record["eventName"] == "key.create";
    let made = || log_records(&collector).into_iter().filter(is_key).collect::<Vec<_>>();
    let with_agent = || {
        let agent = |record: &Value| {
            attribute(&record["attributes"], "user_agent.original")["stringValue"].clone()
        };
        made().into_iter().filter(|record| agent(record) == "curl/8").collect::<Vec<_>>()
    };
    until("both keys were streamed", async || with_agent().len() >= 2).await;
    // A wrong sign-in comes later; lines are sent in order, so nothing else is on its way.
    let form = one.request(http::Method::POST, "/login").without_key();
    let form = form.header("content-type", "application/x-www-form-urlencoded");
    let form = form.header("sec-fetch-site", "same-origin").body("login=anna&password=wrong+wrong");
    assert_eq!(form.send().await.status, 401);
    until("the refusal was streamed", async || {
        log_records(&collector).iter().any(|record| record["severityText"] == "WARN")
    })
    .await;
    assert_eq!(with_agent().len(), 2);
    let ids: Vec<Value> = log_records(&collector)
        .iter()
        .map(|record| attribute(&record["attributes"], "portunus.audit.id")["stringValue"].clone())
        .collect();
    let unique: std::collections::HashSet<String> = ids.iter().map(Value::to_string).collect();
    assert_eq!(unique.len(), ids.len(), "{ids:?}");
    let first = with_agent().remove(0);
    let address = attribute(&first["attributes"], "client.address");
    assert_eq!(address["stringValue"], "127.0.0.1");
}

#[tokio::test]
async fn audit_lines_wait_for_a_collector_that_refuses() {
    let refuse = reply(503, "application/json", "{}");
    let collector = ScriptedProvider::start(vec![refuse]).await;
    let config = format!("[telemetry]\notlp = \"{}\"\naudit = true\n", collector.url);
    let gateway = TestGateway::with_config(&config).await;
    let made =
        gateway.post("/api/admin/keys", &json!({ "name": "x", "cap_usd": null })).send().await;
    assert_eq!(made.status, 201, "{}", made.text());
    until("the collector refused", async || !log_records(&collector).is_empty()).await;
    until("the position stays", async || gateway.app.store.audit_stream().await.unwrap() == "0 0")
        .await;
}

#[tokio::test]
async fn failures_of_the_journal_are_counted() {
    let gateway = TestGateway::start().await;
    let counted = || async { gateway.get("/metrics").send().await.text() };
    assert!(counted().await.contains("portunus_journal_errors_total 0"));
    for _ in 0..2 {
        gateway.app.engine.funds.open_calls.errors().note(&std::io::ErrorKind::StorageFull.into());
    }
    until("both errors are counted", async || {
        counted().await.contains("portunus_journal_errors_total 2")
    })
    .await;
}

/// A call that ends while the gateway drains is exported before the process ends.
#[tokio::test]
async fn a_call_that_ends_during_the_drain_is_exported() {
    let collector = ScriptedProvider::start(vec![reply(200, "application/json", "{}")]).await;
    let release = Arc::new(Semaphore::new(0));
    let mut answer = vec![AnswerStep::WaitFor(Arc::clone(&release))];
    answer.extend(chat_reply("Late.", 9, 3));
    let provider = ScriptedProvider::start(vec![answer]).await;
    let config = format!("[telemetry]\notlp = \"{}\"\n{}", collector.url, provider.config("chat"));
    let gateway = TestGateway::with_config(&config).await;
    let body = json!({ "model": "m", "messages": [{ "role": "user", "content": "x" }] });
    let call = gateway.post("/v1/chat/completions", &body).send();
    let stop = async {
        until("the provider has the request", async || !provider.requests().is_empty()).await;
        gateway.app.drain();
        gateway.app.stop.cancel();
        release.add_permits(1);
    };
    let (got, ()) = tokio::join!(call, stop);
    assert_eq!(got.status, 200);
    let id = got.header("x-request-id").to_owned();
    gateway.stop().await;
    // No waiting: everything was sent before the gateway ended.
    let spans: Vec<Value> = (collector.requests().iter())
        .filter(|request| request.head.contains("/v1/traces"))
        .flat_map(|request| {
            let spans = &request.json()["resourceSpans"][0]["scopeSpans"][0]["spans"];
            spans.as_array().cloned().unwrap_or_default()
        })
        .collect();
    assert_eq!(spans.len(), 1, "{spans:?}");
    assert_eq!(attribute(&spans[0]["attributes"], "portunus.request_id")["stringValue"], id);
    assert!(collector.requests().iter().any(|request| request.head.contains("/v1/metrics")));
}

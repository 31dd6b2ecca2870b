//! `/metrics`: what is counted, its labels and their bounds, and its description.

use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use testkit::{AnswerStep, NewKey, ScriptedProvider, TestGateway, chat_reply, reply, sse, until};

const CHAT: &str = "/v1/chat/completions";

fn chat(model: &str) -> Value {
    json!({ "model": model, "messages": [{ "role": "user", "content": "Hi" }] })
}

async fn scrape(gateway: &TestGateway) -> String {
    gateway.get("/metrics").send().await.text()
}

/// Returns the value of the sample whose line begins so.
fn value(text: &str, series: &str) -> Option<f64> {
    let found = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    found.map(|value| value.parse().unwrap())
}

/// A family as the text has it: its type, and the sets of labels of its samples.
#[derive(Debug, Default, PartialEq, Eq)]
struct Family {
    kind: String,
    labels: BTreeSet<Vec<String>>,
}

/// Reads a text strictly: every sample must belong to the family whose type was told last.
fn families(text: &str) -> BTreeMap<String, Family> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let (mut current, mut helped) = (String::new(), String::new());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(!help.is_empty(), "{line}");
            name.clone_into(&mut helped);
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(name, helped, "a type follows its help");
            name.clone_into(&mut current);
            let family = Family { kind: kind.to_owned(), ..Family::default() };
            assert!(families.insert(current.clone(), family).is_none(), "{name} is there twice");
        } else {
            let (series, number) = line.rsplit_once(' ').unwrap();
            number.parse::<f64>().expect(line);
            let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
            let family = families.get_mut(&current).expect(line);
            let bare = match family.kind.as_str() {
                "histogram" => ["_bucket", "_sum", "_count"]
                    .iter()
                    .find_map(|suffix| name.strip_suffix(suffix))
                    .expect(line),
                _ => name,
            };
            assert_eq!(bare, current, "{line}");
            let labels = labels.strip_suffix('}').expect(line);
            // No value of these tests has a quote or a comma.
            let names = labels.split(',').filter_map(|label| Some(label.split_once('=')?.0));
            let names = names.filter(|name| *name != "le").map(str::to_owned);
            family.labels.insert(names.collect());
        }
    }
    families
}

#[tokio::test]
async fn calls_are_counted_by_model_lane_status_error_and_key() {
    let provider = ScriptedProvider::start(vec![chat_reply("Hello.", 9, 3)]).await;
    let gateway = TestGateway::with_config(&provider.config("chat")).await;
    for _ in 0..2 {
        assert_eq!(gateway.post(CHAT, &chat("m")).send().await.status, 200);
    }
    let refusal = json!({ "error": { "message": "no", "type": "invalid_request_error" } });
    provider.set_answers(vec![reply(400, "application/json", &refusal.to_string())]);
    assert_eq!(gateway.post(CHAT, &chat("m")).send().await.status, 400);
    assert_eq!(gateway.post(CHAT, &chat("m")).without_key().send().await.status, 401);
    gateway.wait_until_settled().await;
    let text = scrape(&gateway).await;
    let lane = "model=\"m\",provider=\"p\",lane=\"p/up\"";
    let of = |name: &str, more: &str| value(&text, &format!("{name}{{{lane}{more}}}"));
    let calls = |status: u16, error: &str| {
        let end = format!(",dialect=\"chat\",status=\"{status}\",error=\"{error}\"");
        of("portunus_calls_total", &end)
    };
    assert_eq!(calls(200, ""), Some(2.0), "{text}");
    assert_eq!(calls(400, "invalid_request"), Some(1.0), "{text}");
    assert_eq!(of("portunus_tokens_total", ",kind=\"input\""), Some(18.0), "{text}");
    assert_eq!(of("portunus_tokens_total", ",kind=\"output\""), Some(6.0), "{text}");
    // 9 tokens in at 1 dollar per million, 3 out at 2 dollars, twice.
    assert_eq!(of("portunus_cost_nanodollars_total", ""), Some(30_000.0), "{text}");
    assert_eq!(of("portunus_call_duration_seconds_count", ""), Some(3.0), "{text}");
    assert_eq!(of("portunus_first_byte_seconds_count", ""), Some(2.0), "{text}");
    assert_eq!(of("portunus_call_duration_seconds_bucket", ",le=\"600.0\""), Some(3.0), "{text}");
    let error = |word: &str| value(&text, &format!("portunus_errors_total{{error=\"{word}\"}}"));
    assert_eq!((error("invalid_request"), error("unauthenticated")), (Some(1.0), Some(1.0)));
    let status =
        |code: &str| value(&text, &format!("portunus_http_responses_total{{status=\"{code}\"}}"));
    assert_eq!((status("400"), status("401")), (Some(1.0), Some(1.0)), "{text}");

    let id = gateway.key.split('-').nth(2).unwrap();
    let account = gateway.app.store.accounts().await.unwrap().remove(0).id;
    let key = format!("{{key=\"{id}\",account=\"{account}\"}}");
    let of_key = |name: &str| value(&text, &format!("portunus_key_{name}_total{key}"));
    assert_eq!(of_key("calls"), Some(3.0), "{text}");
    assert_eq!(of_key("failed_calls"), Some(1.0), "{text}");
    assert_eq!((of_key("input_tokens"), of_key("output_tokens")), (Some(18.0), Some(6.0)));
    assert_eq!(of_key("cost_nanodollars"), Some(30_000.0), "{text}");
    assert!(!text.contains(&gateway.key) && !text.contains("sk-pt-"), "no secret is a label");
    assert_eq!(value(&text, "portunus_store_up"), Some(1.0));
    assert_eq!(value(&text, "portunus_journal_up"), Some(1.0));
    assert!(value(&text, "portunus_journal_write_seconds_count") > Some(0.0), "{text}");
    assert!(value(&text, "process_open_fds") > Some(0.0), "{text}");
}

#[tokio::test]
async fn callers_cannot_make_label_values() {
    let gateway = TestGateway::start().await;
    for number in 0..20 {
        let made_up = format!("made-up-{number}");
        assert_eq!(gateway.post(CHAT, &chat(&made_up)).send().await.status, 404);
        let path = format!("/v1beta/models/{made_up}:generateContent");
        let parts = json!({ "contents": [{ "parts": [{ "text": "Hi" }] }] });
        assert_eq!(gateway.post(&path, &parts).send().await.status, 404);
        assert_eq!(gateway.get(&format!("/v1/{made_up}")).send().await.status, 404);
        let key = format!("sk-pt-{made_up}-none");
        assert_eq!(gateway.post(CHAT, &chat("demo-chat")).key(&key).send().await.status, 401);
        let tool = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
                           "params": { "name": format!("{made_up}__x") } });
        gateway.post("/mcp", &tool).send().await;
    }
    let text = scrape(&gateway).await;
    assert!(!text.contains("made-up"), "{text}");
}

#[tokio::test]
async fn refusals_and_lanes_that_fail_are_counted() {
    let dead = ScriptedProvider::start(vec![reply(500, "application/json", "{}")]).await;
    let good = ScriptedProvider::start(vec![chat_reply("Hello.", 9, 3)]).await;
    let config = format!(
        "[providers.a]\nspeaks = \"chat\"\nbase = \"{}\"\nauth = \"none\"\n\
         [providers.b]\nspeaks = \"chat\"\nbase = \"{}\"\nauth = \"none\"\n\
         [models.m]\nlanes = [\"a/x\", \"b/x\"]\nprice = {{ input = \"1.00\", output = \"2.00\" }}\n",
        dead.url, good.url
    );
    let gateway = TestGateway::with_config(&config).await;
    assert_eq!(gateway.post(CHAT, &chat("m")).send().await.status, 200);
    let poor = NewKey {
        name: "poor".to_owned(),
        cap: Some("0".parse().unwrap()),
        models: Vec::new(),
        expires: None,
    };
    let account = gateway.app.store.accounts().await.unwrap().remove(0).id;
    let now = gateway.app.clock.now();
    let (record, poor) = poor.into_record(&account, &gateway.app.engine.keys, now).unwrap();
    gateway.app.store.add_key(&record).await.unwrap();
    assert_eq!(gateway.post(CHAT, &chat("m")).key(&poor).send().await.status, 429);
    let text = scrape(&gateway).await;
    let retries = "portunus_retries_total{model=\"m\",provider=\"b\",lane=\"b/x\"}";
    assert_eq!(value(&text, retries), Some(1.0), "{text}");
    let failed = "portunus_lane_failures_total{lane=\"a/x\",outcome=\"failed\"}";
    assert_eq!(value(&text, failed), Some(1.0), "{text}");
    let refused = "portunus_calls_total{model=\"m\",provider=\"\",lane=\"\",dialect=\"chat\",\
                   status=\"429\",error=\"quota_exceeded\"}";
    assert_eq!(value(&text, refused), Some(1.0), "{text}");
    assert!(value(&text, "portunus_lane_state{lane=\"b/x\",credential=\"0\"}") == Some(0.0));
}

#[tokio::test]
async fn a_reload_keeps_the_counters_and_is_counted() {
    let provider = ScriptedProvider::start(vec![chat_reply("Hello.", 9, 3)]).await;
    let config = provider.config("chat");
    let gateway = TestGateway::with_config(&config).await;
    assert_eq!(gateway.post(CHAT, &chat("m")).send().await.status, 200);
    gateway.reload(&format!("{config}aliases = [\"other-name\"]\n"));
    assert_eq!(gateway.post(CHAT, &chat("other-name")).send().await.status, 200);
    let text = scrape(&gateway).await;
    let calls = "portunus_calls_total{model=\"m\",provider=\"p\",lane=\"p/up\",dialect=\"chat\",\
                 status=\"200\",error=\"\"}";
    assert_eq!(value(&text, calls), Some(2.0), "{text}");
    let accepted = "portunus_config_reloads_total{result=\"accepted\"}";
    assert_eq!(value(&text, accepted), Some(1.0), "{text}");
    assert_eq!(value(&text, "portunus_config_good"), Some(1.0), "{text}");
}

fn rpc(result: &Value) -> Vec<AnswerStep> {
    vec![AnswerStep::RpcResult(result.clone())]
}

/// A server that lists one tool and answers one call of it.
async fn weather_server() -> ScriptedProvider {
    let schema = json!({ "type": "object", "properties": { "city": { "type": "string" } },
                         "required": ["city"] });
    let tool = json!({ "name": "get_weather", "description": "Tells the weather of a city",
                       "inputSchema": schema });
    let listing = rpc(&json!({ "resultType": "complete", "tools": [tool] }));
    let sunny = rpc(&json!({ "content": [{ "type": "text", "text": "It is sunny" }] }));
    ScriptedProvider::start(vec![listing, sunny]).await
}

fn weather_request(server: &ScriptedProvider) -> Value {
    json!({
        "model": "demo-chat", "input": "What is the weather in Paris?",
        "tools": [{ "type": "mcp", "server_label": "wx", "server_url": server.url,
                    "require_approval": "never" }],
    })
}

#[tokio::test]
async fn tool_calls_are_counted_and_are_spans_below_their_call() {
    let collector = ScriptedProvider::start(vec![reply(200, "application/json", "{}")]).await;
    let server = weather_server().await;
    let own = ScriptedProvider::start(vec![
        rpc(&json!({ "supportedVersions": ["2026-07-28"] })),
        rpc(&json!({ "content": [], "isError": true })),
    ])
    .await;
    let config = format!(
        "[media]\nallow = [\"127.0.0.1\"]\n[telemetry]\notlp = \"{}\"\n\
         [mcp.servers.docs]\nurl = \"{}\"\n[mcp.servers.gone]\nurl = \"http://127.0.0.1:9\"\n",
        collector.url, own.url
    );
    let gateway = TestGateway::with_config(&config).await;
    let got = gateway.post("/v1/responses", &weather_request(&server)).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    for name in ["docs__search", "gone__search"] {
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
                           "params": { "name": name, "arguments": {} } });
        assert_eq!(gateway.post("/mcp", &call).send().await.status, 200);
    }
    let text = scrape(&gateway).await;
    let calls = |server: &str, outcome: &str| {
        let labels = format!("{{server=\"{server}\",outcome=\"{outcome}\"}}");
        value(&text, &format!("portunus_mcp_tool_calls_total{labels}"))
    };
    assert_eq!(calls("remote", "done"), Some(1.0), "{text}");
    assert_eq!(calls("docs", "tool_error"), Some(1.0), "{text}");
    assert_eq!(calls("gone", "unreachable"), Some(1.0), "{text}");
    let times = "portunus_mcp_tool_call_seconds_count{server=\"remote\"}";
    assert_eq!(value(&text, times), Some(1.0), "{text}");

    let mut spans: Vec<Value> = Vec::new();
    until("all spans were sent", async || {
        let asked = collector.requests();
        let asked = asked.iter().filter(|asked| asked.head.contains("/v1/traces"));
        spans = asked
            .flat_map(|asked| {
                let spans = asked.json()["resourceSpans"][0]["scopeSpans"][0]["spans"].clone();
                spans.as_array().unwrap().clone()
            })
            .collect();
        spans.len() >= 5
    })
    .await;
    let named = |name: &str| spans.iter().filter(|span| span["name"] == name).collect::<Vec<_>>();
    let tool = named("tools/call get_weather");
    let is_turn = |span: &&Value| span["name"].as_str().unwrap().ends_with(" demo-chat");
    let turns: Vec<&Value> = spans.iter().filter(is_turn).collect();
    assert_eq!((tool.len(), turns.len()), (1, 2), "{spans:?}");
    assert_ne!(turns[0]["spanId"], turns[1]["spanId"], "every turn is a span");
    assert!(turns.iter().all(|turn| turn["traceId"] == tool[0]["traceId"]));
    assert!(turns.iter().any(|turn| turn["spanId"] == tool[0]["parentSpanId"]), "{spans:?}");
    assert_eq!(named("tools/call search").len(), 2, "{spans:?}");
    assert!(!format!("{spans:?}").contains("sunny"), "results are not exported");
    until("the tool calls were counted", async || {
        let asked = collector.requests();
        asked.iter().any(|asked| {
            asked.head.contains("/v1/metrics")
                && String::from_utf8_lossy(&asked.body).contains("mcp.client.operation.duration")
        })
    })
    .await;
}

/// A gateway after calls of every kind, so that every family that can have samples has some.
async fn used_gateway() -> (TestGateway, String) {
    let bill = json!({ "prompt_tokens": 9, "completion_tokens": 5, "cost": 0.00002 });
    let whole = json!({
        "id": "c", "object": "chat.completion", "created": 1, "model": "up",
        "choices": [{ "index": 0, "message": { "role": "assistant", "content": "Hi" },
                      "finish_reason": "stop" }],
        "usage": bill,
    });
    let broken = reply(500, "application/json", "{}");
    let good = reply(200, "application/json", &whole.to_string());
    let provider = ScriptedProvider::start(vec![broken, good]).await;
    let config = format!("{}[media]\nallow = [\"127.0.0.1\"]\n", provider.config("chat"));
    let gateway = TestGateway::with_config(&config).await;
    for _ in 0..5 {
        assert_eq!(gateway.post(CHAT, &chat("m")).send().await.status, 200);
    }
    let server = weather_server().await;
    let got = gateway.post("/v1/responses", &weather_request(&server)).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    let poor = NewKey {
        name: "poor".to_owned(),
        cap: Some("0".parse().unwrap()),
        models: Vec::new(),
        expires: None,
    };
    let account = gateway.app.store.accounts().await.unwrap().remove(0).id;
    let now = gateway.app.clock.now();
    let (record, poor) = poor.into_record(&account, &gateway.app.engine.keys, now).unwrap();
    gateway.app.store.add_key(&record).await.unwrap();
    assert_eq!(gateway.post(CHAT, &chat("m")).key(&poor).send().await.status, 429);
    gateway.wait_until_settled().await;
    until("the disk is measured", async || {
        value(&scrape(&gateway).await, "portunus_disk_free_bytes") > Some(0.0)
    })
    .await;
    let text = scrape(&gateway).await;
    (gateway, text)
}

/// Rows of the tables of metrics in the documentation: name, type and labels.
fn described() -> BTreeMap<String, (String, Vec<String>)> {
    let text = include_str!("../../../../docs/observability.md");
    let rows = text
        .lines()
        .filter(|line| line.starts_with("| `portunus_") || line.starts_with("| `process_"));
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let name = cells[1].trim_matches('`').to_owned();
        let labels = cells[3].split_whitespace().map(|label| label.trim_matches('`').to_owned());
        (name, (cells[2].to_owned(), labels.collect::<Vec<_>>()))
    };
    rows.map(row)
        .filter(|(_, (kind, _))| ["counter", "gauge", "histogram"].contains(&&**kind))
        .collect()
}

#[tokio::test]
async fn every_metric_is_described_with_its_labels() {
    let (_gateway, text) = used_gateway().await;
    let (families, described) = (families(&text), described());
    let names = |all: Vec<&String>| all.into_iter().cloned().collect::<BTreeSet<String>>();
    assert_eq!(names(families.keys().collect()), names(described.keys().collect()));
    // Only Valkey has no samples here. A latency is told for some seconds only.
    let silent = families.iter().filter(|(name, family)| {
        family.labels.is_empty() && *name != "portunus_lane_latency_seconds"
    });
    let silent: Vec<&str> = silent.map(|(name, _)| name.as_str()).collect();
    let valkey = ["portunus_valkey_errors_total", "portunus_valkey_seconds", "portunus_valkey_up"];
    assert_eq!(silent, valkey, "{text}");
    for (name, family) in &families {
        let (kind, labels) = &described[name];
        assert_eq!(kind, &family.kind, "{name}");
        for found in &family.labels {
            assert_eq!(found, labels, "{name}");
        }
    }
}

/// Names of metrics in a text, without the suffixes of histograms.
fn used_names(text: &str, known: &BTreeSet<String>) -> BTreeSet<String> {
    let is_letter = |letter: char| letter.is_ascii_lowercase() || letter == '_';
    let words = text.split(|letter: char| !is_letter(letter));
    let words = words.filter(|word| word.starts_with("portunus_") || word.starts_with("process_"));
    let bare = |word: &str| {
        let suffixes = ["_bucket", "_sum", "_count"];
        let stripped = suffixes.iter().find_map(|suffix| word.strip_suffix(suffix));
        stripped.filter(|name| known.contains(*name)).unwrap_or(word).to_owned()
    };
    words.map(bare).collect()
}

#[tokio::test]
async fn dashboard_and_alerts_use_metrics_that_exist() {
    let (_gateway, text) = used_gateway().await;
    let known: BTreeSet<String> = families(&text).into_keys().collect();
    let dashboard = include_str!("../../../../deploy/grafana/portunus.json");
    let dashboard: Value = serde_json::from_str(dashboard).unwrap();
    let alerts = include_str!("../../../../deploy/prometheus/alerts.yml");
    let tests = include_str!("../../../../deploy/prometheus/alerts_test.yml");
    let shown = used_names(&dashboard.to_string(), &known);
    for used in [&shown, &used_names(alerts, &known), &used_names(tests, &known)] {
        let unknown: Vec<&String> = used.difference(&known).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }
    // A metric that no panel shows is either superfluous or forgotten.
    let hidden: Vec<&str> = known.difference(&shown).map(String::as_str).collect();
    let unneeded = ["portunus_disk_free_inodes", "process_threads", "process_virtual_memory_bytes"];
    assert_eq!(hidden, unneeded);
}

#[test]
fn every_alert_has_a_test_and_says_what_to_do() {
    let alerts = include_str!("../../../../deploy/prometheus/alerts.yml");
    let tests = include_str!("../../../../deploy/prometheus/alerts_test.yml");
    let guide = include_str!("../../../../docs/operate/alerts.md");
    let names: Vec<&str> =
        alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(names.len() > 20);
    for name in &names {
        assert!(tests.contains(&format!("name: {name} fires\n")), "{name} has no test");
        assert!(guide.contains(&format!("### {name}\n")), "{name} has no advice");
        let anchor = format!("docs/operate/alerts.md#{}\n", name.to_lowercase());
        assert!(alerts.contains(&anchor), "{name} links no advice");
    }
    let advised = guide.lines().filter_map(|line| line.strip_prefix("### "));
    assert_eq!(advised.collect::<BTreeSet<_>>(), names.into_iter().collect());
}

#[tokio::test]
async fn both_formats_of_prometheus_are_served() {
    let gateway = TestGateway::start().await;
    let plain = gateway.get("/metrics").send().await;
    assert_eq!(plain.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    assert!(plain.text().contains("# TYPE portunus_calls_total counter\n"));
    let accept = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.3";
    let open = gateway.get("/metrics").header("accept", accept).send().await;
    assert!(open.header("content-type").starts_with("application/openmetrics-text"));
    let text = open.text();
    assert!(
        text.contains("# TYPE portunus_calls counter\n") && text.ends_with("# EOF\n"),
        "{text}"
    );
}

#[tokio::test]
async fn streams_that_callers_leave_are_counted_as_such() {
    let events = ["one", "two"].map(|word| {
        json!({ "choices": [{ "index": 0, "delta": { "content": word } }] }).to_string()
    });
    let mut steps = sse(&events.each_ref().map(String::as_str));
    // The stream does not end.
    steps.pop();
    steps.push(AnswerStep::WaitFor(std::sync::Arc::new(tokio::sync::Semaphore::new(0))));
    let provider = ScriptedProvider::start(vec![steps]).await;
    let gateway = TestGateway::with_config(&provider.config("chat")).await;
    let mut body = chat("m");
    body["stream"] = json!(true);
    gateway.post(CHAT, &body).disconnect_after_events(1).await;
    let left = "portunus_calls_total{model=\"m\",provider=\"p\",lane=\"p/up\",dialect=\"chat\",\
                status=\"200\",error=\"caller_left\"}";
    until("the call is counted", async || value(&scrape(&gateway).await, left) == Some(1.0)).await;
    assert_eq!(value(&scrape(&gateway).await, "portunus_running"), Some(0.0));
}

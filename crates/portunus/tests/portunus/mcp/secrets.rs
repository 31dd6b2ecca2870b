//! Secrets of servers, headers of operators, and names of the caller's own tools.

use super::*;

const SECRETS: [&str; 4] = ["SECRET-AUTH", "SECRET-HEADER", "SECRET-QUERY", "SECRET-USER"];

fn has_secret(text: &str) -> bool {
    SECRETS.iter().any(|secret| text.contains(secret))
}

fn secret_server(url: &str) -> Value {
    let url = url.replace("http://", "http://SECRET-USER:x@");
    json!({
        "type": "mcp", "server_label": "wx", "server_url": format!("{url}/mcp?token=SECRET-QUERY"),
        "authorization": "SECRET-AUTH", "headers": { "x-key": "SECRET-HEADER" },
        "require_approval": "never",
    })
}

#[tokio::test]
async fn secrets_of_servers_are_neither_shown_nor_stored() {
    let gateway = gateway("").await;
    for stream in [false, true] {
        let server = ScriptedProvider::start(vec![listing(), sunny()]).await;
        let mut request = responses_request("demo-chat", &server, stream);
        let mut tool = secret_server(&server.url);
        // Addresses with user names are refused, so this one has only a query.
        tool["server_url"] = json!(format!("{}/mcp?token=SECRET-QUERY", server.url));
        request["tools"] = json!([tool]);
        let got = gateway.post("/v1/responses", &request).send().await;
        assert_eq!(got.status, 200, "{}", got.text());
        assert!(!has_secret(&got.text()), "{}", got.text());
        let answer = match stream {
            true => event(&got, "response.completed")["response"].clone(),
            false => got.json(),
        };
        let shown = &answer["tools"][0];
        assert_eq!((&shown["server_label"], &shown["headers"]), (&json!("wx"), &Value::Null));
        assert_eq!(shown["server_url"], format!("{}/<redacted>", server.url));
        let asked = server.requests();
        assert!(asked.iter().all(|asked| {
            asked.head.contains("SECRET-AUTH")
                && asked.head.contains("SECRET-HEADER")
                && asked.head.contains("SECRET-QUERY")
        }));
        let path = format!("/v1/responses/{}", answer["id"].as_str().unwrap());
        let stored = gateway.get(&path).send().await;
        assert_eq!(stored.status, 200);
        assert!(!has_secret(&stored.text()), "{}", stored.text());
        // The next turn brings the tools again.
        server.set_answers(vec![listing(), sunny()]);
        request["previous_response_id"] = answer["id"].clone();
        request["stream"] = json!(false);
        let next = gateway.post("/v1/responses", &request).send().await;
        assert_eq!(next.status, 200, "{}", next.text());
        assert!(!has_secret(&next.text()), "{}", next.text());
    }
}

#[tokio::test]
async fn a_provider_that_asks_servers_itself_shows_no_secrets_either() {
    let tool = secret_server("http://mcp.example");
    let response = |status: &str| {
        json!({ "id": "resp_1", "object": "response", "created_at": 1, "status": status,
                "model": "up", "tools": [tool], "output": [],
                "usage": { "input_tokens": 1, "output_tokens": 1, "total_tokens": 2 } })
    };
    let named = |name: &str, status: &str| {
        json!({ "type": name, "sequence_number": 0, "response": response(status) }).to_string()
    };
    let events = [
        named("response.created", "in_progress"),
        named("response.in_progress", "in_progress"),
        named("response.completed", "completed"),
    ];
    let events: Vec<&str> = events.iter().map(String::as_str).collect();
    for (stream, previous) in [(false, false), (true, false), (false, true), (true, true)] {
        let whole = reply(200, "application/json", &response("completed").to_string());
        let answer = if stream { sse(&events) } else { whole.clone() };
        let model = ScriptedProvider::start(vec![whole]).await;
        // A provider in a private network gets addresses only if the operator says so.
        let config = model.config("responses");
        let gateway = gateway(&config.replace("auth =", "fetches = \"all\"\nauth =")).await;
        let mut request = json!({ "model": "m", "input": "Hi", "tools": [tool] });
        if previous {
            let first = gateway.post("/v1/responses", &request).send().await;
            request["previous_response_id"] = first.json()["id"].clone();
        }
        model.set_answers(vec![answer]);
        request["stream"] = json!(stream);
        let got = gateway.post("/v1/responses", &request).send().await;
        assert_eq!(got.status, 200, "{}", got.text());
        assert!(got.text().contains("server_label"), "{}", got.text());
        assert!(!has_secret(&got.text()), "{stream} {previous}: {}", got.text());
        assert!(has_secret(&model.requests().last().unwrap().json().to_string()));
        let stored = gateway.get("/v1/responses/resp_1").send().await;
        assert!(!has_secret(&stored.text()), "{stream} {previous}: {}", stored.text());
    }
}

#[tokio::test]
async fn headers_of_the_operator_stay() {
    let server = ScriptedProvider::start(vec![listing(), sunny()]).await;
    let config = format!(
        "[mcp.servers.wx]\nurl = \"{}/mcp\"\nbearer = {{ text = \"own\" }}\n\
         headers = {{ x-tenant = {{ text = \"ours\" }} }}\n",
        server.url
    );
    let gateway = gateway(&config).await;
    let request = |tool: Value| {
        let mut all = json!({ "type": "mcp", "server_label": "wx", "require_approval": "never" });
        all.as_object_mut().unwrap().extend(tool.as_object().unwrap().clone());
        json!({ "model": "demo-chat", "input": QUESTION, "tools": [all] })
    };
    for name in [
        "x-tenant",
        "Authorization",
        "mcp-session-id",
        "Mcp-Protocol-Version",
        "cookie",
        "host",
        "x-forwarded-for",
        "forwarded",
        "proxy-authorization",
        "connection",
        "x-real-ip",
    ] {
        let tool = json!({ "connector_id": "wx", "headers": { name: "x" } });
        let got = gateway.post("/v1/responses", &request(tool)).send().await;
        assert_eq!(got.status, 400, "{name}: {}", got.text());
        let param = format!("tools[0].headers.{}", name.to_lowercase());
        assert_eq!(got.json()["error"]["param"], param);
    }
    let tool = json!({ "connector_id": "wx", "authorization": "x" });
    let got = gateway.post("/v1/responses", &request(tool)).send().await;
    assert_eq!(got.json()["error"]["param"], "tools[0].authorization", "{}", got.text());
    for name in ["mcp-session-id", "keep-alive", "te"] {
        let tool = json!({ "server_url": server.url, "headers": { name: "x" } });
        let got = gateway.post("/v1/responses", &request(tool)).send().await;
        assert_eq!(got.status, 400, "{name}: {}", got.text());
    }
    assert!(server.requests().is_empty(), "nothing was sent");
    let tool = json!({ "connector_id": "wx", "headers": { "x-mine": "1" } });
    let got = gateway.post("/v1/responses", &request(tool)).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    let head = server.requests().remove(0).head;
    for line in ["x-tenant: ours", "authorization: Bearer own", "x-mine: 1"] {
        assert!(head.contains(line), "{head}");
    }
    server.set_answers(vec![listing(), sunny()]);
    let tool = json!({ "server_url": server.url, "headers": { "cookie": "mine" } });
    let got = gateway.post("/v1/responses", &request(tool)).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
}

fn own_function(name: &str) -> Value {
    json!({ "type": "function", "name": name, "description": "own", "strict": false,
            "parameters": { "type": "object", "properties": {} } })
}

#[tokio::test]
async fn functions_of_the_caller_are_never_called_at_a_server() {
    let space = |name: &str, tool: &str| {
        json!({ "type": "namespace", "name": name, "description": "mine",
                "tools": [own_function(tool)] })
    };
    let added = json!({ "type": "additional_tools", "role": "developer",
                        "tools": [own_function("wx__get_weather")] });
    let search = json!({ "type": "tool_search", "execution": "client", "description": "d",
                         "parameters": { "type": "object", "properties": {} } });
    let found = [
        json!({ "type": "tool_search_call", "call_id": "t", "execution": "client",
                "arguments": {}, "status": "completed" }),
        json!({ "type": "tool_search_output", "call_id": "t", "execution": "client",
                "status": "completed", "tools": [own_function("wx__get_weather")] }),
    ];
    let cases = [
        (Some(space("wx", "get_weather")), vec![], "wx__get_weather"),
        (Some(space("crm", "wx__get_weather")), vec![], "crm__wx__get_weather"),
        (None, vec![added], "wx__get_weather"),
        (Some(search), found.to_vec(), "wx__get_weather"),
    ];
    for (at, (tool, items, called)) in cases.into_iter().enumerate() {
        let model =
            ScriptedProvider::start(vec![model_calls(&[called]), testkit::chat_reply("x", 5, 5)])
                .await;
        let gateway = gateway(&model.config("chat")).await;
        let server = ScriptedProvider::start(vec![listing(), sunny()]).await;
        let mut request = responses_request("m", &server, false);
        request["tools"].as_array_mut().unwrap().extend(tool);
        let mut input = vec![json!({ "role": "user", "content": QUESTION })];
        input.extend(items);
        request["input"] = json!(input);
        let got = gateway.post("/v1/responses", &request).send().await;
        assert_eq!(got.status, 200, "{at}: {}", got.text());
        let answer = got.json();
        assert_eq!(types(&answer["output"]), ["mcp_list_tools", "function_call"], "{at}: {answer}");
        assert_eq!(server.requests().len(), 1, "{at}: the server was called");
        let sent = model.requests()[0].json();
        let names = sent["tools"].as_array().unwrap().iter().map(|tool| &tool["function"]["name"]);
        let names: Vec<_> = names.filter(|name| *name == called).collect();
        assert_eq!(names.len(), 1, "{at}: the caller's function keeps its name: {sent}");
    }
}

#[tokio::test]
async fn a_call_with_a_namespace_is_the_callers() {
    let body = json!({
        "id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "model": "up",
        "output": [{ "type": "function_call", "id": "fc_1", "call_id": "c1", "status": "completed",
                     "namespace": "crm", "name": "wx__get_weather", "arguments": "{}" }],
        "usage": { "input_tokens": 1, "output_tokens": 1, "total_tokens": 2 },
    });
    let model =
        ScriptedProvider::start(vec![reply(200, "application/json", &body.to_string())]).await;
    let gateway = gateway(&format!("{}tools = [\"function\"]\n", model.config("responses"))).await;
    let server = ScriptedProvider::start(vec![listing(), sunny()]).await;
    let mut request = responses_request("m", &server, false);
    request["tools"].as_array_mut().unwrap().push(json!({
        "type": "namespace", "name": "crm", "description": "mine",
        "tools": [own_function("wx__get_weather")],
    }));
    let got = gateway.post("/v1/responses", &request).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    assert_eq!(types(&got.json()["output"]), ["mcp_list_tools", "function_call"], "{}", got.text());
    assert_eq!(server.requests().len(), 1, "the server was called");
}

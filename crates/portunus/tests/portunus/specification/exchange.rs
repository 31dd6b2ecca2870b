//! One run of a statement: its requests on one lane, in one mode, and what came back.

use super::checks;
use super::fold::fold;
use super::json_path;
use super::statement::{AnswerCheck, RequestData, RunMode, Statement, StatementCaller};
use crate::answer_schemas::AnswerSchemas;
use http::Method;
use serde_json::{Map, Value, json};
use testkit::{TestGateway, TestRequest, TestResponse, until};

/// A statement on one lane in one mode.
pub(super) struct StatementRun<'a> {
    pub(super) statement: &'a Statement,
    pub(super) lane: &'a str,
    pub(super) mode: RunMode,
    values: &'a Map<String, Value>,
}

/// Number of checks, and a line for each that failed.
#[derive(Default)]
pub(super) struct RunResult {
    pub(super) checks: usize,
    pub(super) failures: Vec<String>,
}

/// An answer, in the shape that checks read.
pub(super) struct SeenAnswer {
    pub(super) response: TestResponse,
    /// The body; for a stream its events, put together.
    json: Value,
    /// Values that every format has under another name, for paths that begin with `@`.
    derived: Value,
    /// Differences between the exchange and the API description.
    pub(super) schema_problems: Vec<String>,
}

impl SeenAnswer {
    fn new(caller: StatementCaller, response: TestResponse, schema_problems: Vec<String>) -> Self {
        let is_stream = response.header("content-type").starts_with("text/event-stream");
        let read =
            |event: &String| serde_json::from_str(event).unwrap_or_else(|_| event.as_str().into());
        let events = if is_stream { response.events() } else { Vec::new() };
        let events: Vec<Value> =
            events.iter().filter(|event| *event != "[DONE]").map(read).collect();
        let json = if is_stream { fold(caller, &events) } else { response.json() };
        let body = response.text();
        let mut fields: Vec<&str> = Vec::new();
        for line in body.lines().filter(|line| is_stream && !line.is_empty()) {
            let field = line.split(": ").next().unwrap_or_default();
            if !fields.contains(&field) {
                fields.push(field);
            }
        }
        let derived = json!({
            "@text": visible_text(caller, &json),
            "@thoughts": thinking_text(caller, &json),
            "@calls": calls(caller, &json),
            "@event_count": events.len(),
            "@line_fields": fields,
            "@body": body,
        });
        Self { response, json, derived, schema_problems }
    }

    /// Returns the values at a path of the answer.
    pub(super) fn find(&self, path: &str) -> Vec<&Value> {
        let root = if path.starts_with('@') { &self.derived } else { &self.json };
        json_path::find(root, path)
    }

    /// Returns the first characters of the body.
    pub(super) fn excerpt(&self) -> String {
        self.response.text().chars().take(300).collect()
    }
}

fn joined(values: Vec<&Value>) -> String {
    values.into_iter().filter_map(Value::as_str).collect()
}

fn parts_of<'a>(json: &'a Value, path: &str, wanted: impl Fn(&Value) -> bool) -> Vec<&'a Value> {
    json_path::find(json, path).into_iter().filter(|part| wanted(part)).collect()
}

fn visible_text(caller: StatementCaller, json: &Value) -> String {
    let texts = match caller {
        StatementCaller::Native => {
            let parts = parts_of(json, "candidates[0].content.parts[*]", |part| {
                part["thought"] != true && part["text"].is_string()
            });
            parts.into_iter().map(|part| &part["text"]).collect()
        }
        StatementCaller::Chat => json_path::find(json, "choices[0].message.content"),
        StatementCaller::Messages => json_path::find(json, "content[*].text"),
        StatementCaller::Responses => json_path::find(json, "output[*].content[*].text"),
        StatementCaller::Images | StatementCaller::Embeddings | StatementCaller::Http => Vec::new(),
    };
    joined(texts)
}

fn thinking_text(caller: StatementCaller, json: &Value) -> String {
    let texts = match caller {
        StatementCaller::Native => {
            let parts =
                parts_of(json, "candidates[0].content.parts[*]", |part| part["thought"] == true);
            parts.into_iter().map(|part| &part["text"]).collect()
        }
        StatementCaller::Chat => json_path::find(json, "choices[0].message.reasoning_content"),
        StatementCaller::Messages => json_path::find(json, "content[*].thinking"),
        StatementCaller::Responses => json_path::find(json, "output[*].summary[*].text"),
        StatementCaller::Images | StatementCaller::Embeddings | StatementCaller::Http => Vec::new(),
    };
    joined(texts)
}

/// Tool calls as `{id, name, arguments}`.
fn calls(caller: StatementCaller, json: &Value) -> Vec<Value> {
    let call = |id: &Value, name: &Value, arguments: Value| json!({ "id": id, "name": name, "arguments": arguments });
    let parsed = |text: &Value| {
        serde_json::from_str(text.as_str().unwrap_or_default()).unwrap_or(Value::Null)
    };
    match caller {
        StatementCaller::Native => {
            let found = json_path::find(json, "candidates[0].content.parts[*].functionCall");
            found.iter().map(|one| call(&one["id"], &one["name"], one["args"].clone())).collect()
        }
        StatementCaller::Chat => {
            let found = json_path::find(json, "choices[0].message.tool_calls[*]");
            let function = |one: &Value| parsed(&one["function"]["arguments"]);
            let call = |one: &Value| call(&one["id"], &one["function"]["name"], function(one));
            found.into_iter().map(call).collect()
        }
        StatementCaller::Messages => {
            let found = parts_of(json, "content[*]", |part| part["type"] == "tool_use");
            found.iter().map(|one| call(&one["id"], &one["name"], one["input"].clone())).collect()
        }
        StatementCaller::Responses => {
            let found = parts_of(json, "output[*]", |part| part["type"] == "function_call");
            let call = |one: &Value| call(&one["call_id"], &one["name"], parsed(&one["arguments"]));
            found.into_iter().map(call).collect()
        }
        StatementCaller::Images | StatementCaller::Embeddings | StatementCaller::Http => Vec::new(),
    }
}

impl<'a> StatementRun<'a> {
    /// Every lane and mode of a statement.
    pub(super) fn all_of(
        statement: &'a Statement,
        values: &'a Map<String, Value>,
    ) -> impl Iterator<Item = Self> {
        statement.lanes().into_iter().flat_map(move |lane| {
            let modes = statement.modes().into_iter();
            modes.map(move |mode| Self { statement, lane, mode, values })
        })
    }

    /// Sends the requests and checks the last answer.
    pub(super) async fn result(&self, gateway: &TestGateway) -> RunResult {
        let mut values = self.values.clone();
        values.insert("model".to_owned(), self.lane.into());
        for earlier in &self.statement.before {
            let seen = self.send(gateway, &earlier.request, &values).await;
            if !seen.response.status.is_success() {
                let failure = format!("before: {} {}", seen.response.status, seen.excerpt());
                return RunResult { checks: 1, failures: vec![failure] };
            }
            if !seen.schema_problems.is_empty() {
                return RunResult { checks: 1, failures: seen.schema_problems };
            }
            for (name, path) in &earlier.save {
                let found = seen.find(path).first().map_or(Value::Null, |value| (*value).clone());
                values.insert(name.clone(), found);
            }
        }
        let seen = self.send(gateway, &self.statement.request, &values).await;
        let fill = |check: &AnswerCheck| {
            let operand = filled(check.operand.clone(), &values);
            AnswerCheck { operand: operand.unwrap_or_default(), ..check.clone() }
        };
        let listed: Vec<_> = self.statement.expect.json.iter().map(fill).collect();
        checks::judge(self, &seen, &listed)
    }

    async fn send(
        &self,
        gateway: &TestGateway,
        data: &RequestData,
        values: &Map<String, Value>,
    ) -> SeenAnswer {
        let send = async || {
            let request = self.request(gateway, data, values);
            let (method, path) = (request.method().clone(), request.path().to_owned());
            let sent = request.sent_body().clone();
            let response = request.send().await;
            let schemas = AnswerSchemas::embedded();
            let mut problems = schemas.problems(&method, &path, &response);
            if response.status.is_success() {
                problems.extend(schemas.request_problems(&method, &path, &sent));
            }
            SeenAnswer::new(self.statement.caller, response, problems)
        };
        let mut seen = send().await;
        if let Some(awaited) = &data.until {
            let holds = |seen: &SeenAnswer| checks::failure(seen, awaited).is_none();
            until(&format!("{} has come to its end", self.statement.id), async || {
                if !holds(&seen) {
                    seen = send().await;
                }
                holds(&seen)
            })
            .await;
        }
        seen
    }

    fn request<'g>(
        &self,
        gateway: &'g TestGateway,
        data: &RequestData,
        values: &Map<String, Value>,
    ) -> TestRequest<'g> {
        let path = data.path.as_deref().unwrap_or_else(|| self.usual_path());
        let path = fill_text(path, values);
        let method = data.method.as_deref().unwrap_or("POST");
        let method = Method::try_from(method).expect("a method");
        let mut request = gateway.request(method, &path);
        match data.key.as_deref() {
            None => {}
            Some("none") => request = request.without_key(),
            Some(header) => request = request.without_key().header(header, &gateway.key),
        }
        for (name, value) in &data.headers {
            request = request.header(name, &fill_text(value, values));
        }
        if let Some(bytes) = data.padding {
            return request.body(vec![b' '; bytes]);
        }
        if let Some(raw) = &data.raw {
            return request.body(raw.clone());
        }
        let Some(body) = &data.body else {
            return request;
        };
        let body: Value = serde_json::from_str(body)
            .unwrap_or_else(|e| panic!("the body of {} is no JSON: {e}", self.statement.id));
        let mut body = filled(body, values).unwrap_or_default();
        self.complete(&mut body);
        request.body(body.to_string())
    }

    fn usual_path(&self) -> &'static str {
        match (self.statement.caller, self.mode) {
            (StatementCaller::Native, RunMode::Whole) => "/v1beta/models/{{model}}:generateContent",
            (StatementCaller::Native, RunMode::Stream) => {
                "/v1beta/models/{{model}}:streamGenerateContent?alt=sse"
            }
            (StatementCaller::Chat, _) => "/v1/chat/completions",
            (StatementCaller::Responses, _) => "/v1/responses",
            (StatementCaller::Messages, _) => "/v1/messages",
            (StatementCaller::Images, _) => "/v1/images/generations",
            (StatementCaller::Embeddings, _) => "/v1/embeddings",
            (StatementCaller::Http, _) => panic!("{} has no path", self.statement.id),
        }
    }

    /// Adds the model, and the wish for a stream, where the format has them in the body.
    fn complete(&self, body: &mut Value) {
        let caller = self.statement.caller;
        let Some(body) = body.as_object_mut() else {
            return;
        };
        if matches!(caller, StatementCaller::Native | StatementCaller::Http) {
            return;
        }
        body.entry("model").or_insert_with(|| self.lane.into());
        if self.mode == RunMode::Stream {
            body.insert("stream".to_owned(), true.into());
            if caller == StatementCaller::Chat {
                let usage = json!({ "include_usage": true });
                body.entry("stream_options").or_insert(usage);
            }
        }
    }
}

/// Replaces `{{name}}` in a text.
fn fill_text(text: &str, values: &Map<String, Value>) -> String {
    let mut filled = text.to_owned();
    for (name, value) in values {
        if let Some(value) = value.as_str() {
            filled = filled.replace(&format!("{{{{{name}}}}}"), value);
        }
    }
    filled
}

/// Replaces `"{{name}}"` by the value of that name. A field whose value the earlier answer did not
/// have is left out.
fn filled(value: Value, values: &Map<String, Value>) -> Option<Value> {
    match value {
        Value::String(text) => {
            let name = text.strip_prefix("{{").and_then(|text| text.strip_suffix("}}"));
            match name {
                Some(name) => {
                    let value = values.get(name).unwrap_or_else(|| panic!("no value {name:?}"));
                    (!value.is_null()).then(|| value.clone())
                }
                None => Some(fill_text(&text, values).into()),
            }
        }
        Value::Array(items) => {
            Some(items.into_iter().filter_map(|item| filled(item, values)).collect())
        }
        Value::Object(fields) => {
            let filled = fields
                .into_iter()
                .filter_map(|(name, value)| filled(value, values).map(|value| (name, value)));
            Some(Value::Object(filled.collect()))
        }
        other => Some(other),
    }
}

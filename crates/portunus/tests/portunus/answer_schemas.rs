//! The API description as the judge of answers: every body and every event of a stream has the
//! documented fields.

use http::Method;
use jsonschema::error::ValidationErrorKind;
use jsonschema::{ValidationError, Validator};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};
use testkit::{ScriptedProvider, TestGateway, TestResponse, reply, sse};

use crate::undocumented_fields::undocumented_fields;

/// Errors that any request can get, in the default response.
const COMMON_ERRORS: [u16; 5] = [404, 405, 408, 417, 431];

/// The schemas of the API description.
pub(crate) struct AnswerSchemas {
    document: Value,
    /// Validators by the JSON text of their schema.
    validators: Mutex<HashMap<String, Arc<Validator>>>,
}

/// One operation of the description.
pub(crate) struct DescribedOperation<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) own: &'a Value,
}

impl AnswerSchemas {
    /// The schemas of this build.
    pub(crate) fn embedded() -> &'static Self {
        static SCHEMAS: OnceLock<AnswerSchemas> = OnceLock::new();
        SCHEMAS.get_or_init(|| AnswerSchemas {
            document: Value::Object(portunus::openapi_document("http://127.0.0.1")),
            validators: Mutex::default(),
        })
    }

    /// The whole description.
    pub(crate) fn document(&self) -> &Value {
        &self.document
    }

    /// All operations.
    pub(crate) fn operations(&self) -> Vec<DescribedOperation<'_>> {
        let mut all = Vec::new();
        for (path, item) in self.document["paths"].as_object().expect("paths") {
            for (method, own) in item.as_object().expect("operations") {
                if method != "parameters" {
                    all.push(DescribedOperation { method, path, own });
                }
            }
        }
        all
    }

    /// The operation of a request: of several templates, the one with the most fixed letters.
    fn find(&self, method: &Method, path: &str) -> Option<DescribedOperation<'_>> {
        let is_own = |one: &DescribedOperation<'_>| {
            one.method.eq_ignore_ascii_case(method.as_str()) && fits(one.path, path)
        };
        let fixed_letters = |one: &DescribedOperation<'_>| {
            fixed_parts(one.path).iter().map(|part| part.len()).sum::<usize>()
        };
        self.operations().into_iter().filter(is_own).max_by_key(fixed_letters)
    }

    /// Follows a reference.
    pub(crate) fn resolved<'a>(&'a self, value: &'a Value) -> &'a Value {
        let to = value["$ref"].as_str().and_then(|to| self.document.pointer(&to[1..]));
        to.unwrap_or(value)
    }

    /// Lines about everything in an answer that the description does not have.
    pub(crate) fn problems(
        &self,
        method: &Method,
        path: &str,
        answer: &TestResponse,
    ) -> Vec<String> {
        let status = answer.status.as_u16();
        let Some(operation) = self.find(method, path) else {
            // Pages, redirects to them, and paths where nothing is.
            let is_page = status >= 300 || answer.header("content-type").contains("html");
            return (!is_page)
                .then(|| format!("{method} {path} is not described"))
                .into_iter()
                .collect();
        };
        let responses = &operation.own["responses"];
        let response = match responses.get(status.to_string()) {
            Some(response) => response,
            None if COMMON_ERRORS.contains(&status) => &responses["default"],
            None => return vec![format!("{method} {path} does not describe status {status}")],
        };
        let kind = answer.header("content-type").split(';').next().unwrap_or_default();
        let content = &self.resolved(response)["content"];
        let Some(schema) = content.get(kind).and_then(|content| content.get("schema")) else {
            return match content {
                Value::Null => Vec::new(),
                _ if kind.starts_with("image/") => Vec::new(),
                _ => vec![format!("{method} {path} does not describe {kind:?}")],
            };
        };
        match kind {
            "application/json" => self.all_problems(schema, &answer.json()),
            "text/event-stream" => {
                let events = answer.events();
                let events = events.iter().filter(|event| *event != "[DONE]");
                let read = |event: &String| {
                    serde_json::from_str(event).unwrap_or_else(|_| Value::from(event.as_str()))
                };
                let events: Vec<Value> = events.map(read).collect();
                events.iter().flat_map(|event| self.all_problems(schema, event)).take(3).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Lines about the differences between an answer and its schema, and about fields that it does not name.
    fn all_problems(&self, schema: &Value, answer: &Value) -> Vec<String> {
        let mut lines = self.differences(schema, answer);
        let mut fields = Vec::new();
        undocumented_fields(self, &[schema], answer, "", &mut fields);
        lines.extend(fields.into_iter().map(|field| format!("{field} is not documented")));
        lines
    }

    /// Lines about everything in the JSON body of a request that the description does not allow.
    pub(crate) fn request_problems(&self, method: &Method, path: &str, body: &[u8]) -> Vec<String> {
        let schema = self.find(method, path).and_then(|operation| {
            operation.own.pointer("/requestBody/content/application~1json/schema").cloned()
        });
        let (Some(schema), Ok(body)) = (schema, serde_json::from_slice::<Value>(body)) else {
            return Vec::new();
        };
        let lines = self.differences(&schema, &body).into_iter();
        lines.map(|line| format!("request: {line}")).collect()
    }

    /// Lines about the differences between a value and a schema of the description.
    pub(crate) fn differences(&self, schema: &Value, value: &Value) -> Vec<String> {
        let validator = self.validator(schema);
        validator.iter_errors(value).map(|error| explain(&error)).collect()
    }

    fn validator(&self, schema: &Value) -> Arc<Validator> {
        let mut known = self.validators.lock().expect("the validators");
        let validator = known.entry(schema.to_string()).or_insert_with(|| {
            let root = json!({
                "allOf": [schema],
                "components": { "schemas": self.document["components"]["schemas"] },
            });
            let built = jsonschema::draft202012::new(&root);
            Arc::new(built.unwrap_or_else(|e| panic!("{schema} is no schema: {e}")))
        });
        Arc::clone(validator)
    }
}

/// Describes an error. Of several alternatives, the one that fits furthest is meant.
fn explain(error: &ValidationError<'_>) -> String {
    let (ValidationErrorKind::OneOfNotValid { context } | ValidationErrorKind::AnyOf { context }) =
        error.kind()
    else {
        let text: String = error.to_string().chars().take(300).collect();
        return format!("{}: {text}", error.instance_path());
    };
    let depth = |error: &ValidationError<'_>| error.instance_path().as_str().matches('/').count();
    let reach = |errors: &&Vec<ValidationError<'_>>| {
        let fails_at_type = errors.iter().any(|e| e.instance_path().as_str().ends_with("/type"));
        (!fails_at_type, errors.iter().map(depth).max())
    };
    let nearest = context.iter().max_by_key(reach);
    let lines = nearest.into_iter().flatten().map(explain);
    lines.collect::<Vec<_>>().join("; ")
}

/// The parts of a path template between its parameters.
fn fixed_parts(template: &str) -> Vec<&str> {
    template.split('{').map(|part| part.split_once('}').map_or(part, |(_, rest)| rest)).collect()
}

/// Returns true if a path is one of a template. A parameter takes at least one letter.
fn fits(template: &str, path: &str) -> bool {
    let parts = fixed_parts(template);
    let Some((first, rest)) = parts.split_first() else { return false };
    let Some(mut left) = path.strip_prefix(first) else { return false };
    for (at, part) in rest.iter().enumerate() {
        let is_last = at + 1 == rest.len();
        let mut letters = left.chars();
        if letters.next().is_none() {
            return false;
        }
        let tail = letters.as_str();
        let found = if is_last {
            tail.ends_with(part).then(|| tail.len() - part.len())
        } else {
            tail.find(part)
        };
        let Some(found) = found else { return false };
        left = &tail[found + part.len()..];
    }
    left.is_empty()
}

#[test]
fn templates_fit_their_paths() {
    assert!(fits("/v1/key", "/v1/key"));
    assert!(!fits("/v1/key", "/v1/keys"));
    assert!(fits("/v1/models/{model}:generateContent", "/v1/models/a/b:c:generateContent"));
    assert!(!fits("/v1/tasks/{id}", "/v1/tasks/"));
    assert!(fits("/v1/tasks/{id}/cancel", "/v1/tasks/x/cancel"));
    assert!(!fits("/v1/tasks/{id}/cancel", "/v1/tasks/x"));
}

#[test]
fn an_answer_without_a_documented_field_is_noticed() {
    let schemas = AnswerSchemas::embedded();
    let schema = json!({ "$ref": "#/components/schemas/ChatCompletion" });
    let mut reply =
        schemas.document()["components"]["schemas"]["ChatCompletion"]["examples"][0].clone();
    assert_eq!(schemas.differences(&schema, &reply), Vec::<String>::new());
    reply["choices"][0]["finish_reason"] = json!("bored");
    reply.as_object_mut().unwrap().remove("created");
    let seen = schemas.differences(&schema, &reply).join("\n");
    assert!(seen.contains("created") && seen.contains("/choices/0/finish_reason"), "{seen}");
}

#[tokio::test]
async fn parts_of_a_chat_answer_are_described() {
    let parts = json!([
        { "type": "thinking", "thinking": [{ "type": "text", "text": "Hm." }], "closed": true },
        { "type": "text", "text": "Yes." },
        { "type": "reference", "reference_ids": [1, 2] },
    ]);
    let ending = json!({ "index": 0, "logprobs": null, "finish_reason": "stop" });
    let answer = |object: &str, field: &str| {
        let mut choice = ending.clone();
        choice[field] = json!({ "role": "assistant", "content": parts });
        json!({ "id": "c", "object": object, "created": 1, "model": "m", "choices": [choice],
            "usage": { "prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5 } })
    };
    let whole = answer("chat.completion", "message").to_string();
    let chunk = answer("chat.completion.chunk", "delta").to_string();
    let steps = vec![reply(200, "application/json", &whole), sse(&[&chunk, "[DONE]"])];
    let provider = ScriptedProvider::start(steps).await;
    let gateway = TestGateway::with_config(&provider.config("chat")).await;
    for stream in [false, true] {
        let body = json!({ "model": "m", "stream": stream,
            "messages": [{ "role": "user", "content": "Is it?" }] });
        let got = gateway.post("/v1/chat/completions", &body).send().await;
        assert_eq!(got.status, 200, "{}", got.text());
        assert!(got.text().contains("\"thinking\""), "{}", got.text());
        let path = "/v1/chat/completions";
        let problems = AnswerSchemas::embedded().problems(&Method::POST, path, &got);
        assert_eq!(problems, Vec::<String>::new(), "{}", got.text());
    }
}

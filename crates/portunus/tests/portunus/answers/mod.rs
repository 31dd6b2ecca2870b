//! Whole answers of every route, as snapshots: status, headers and body.
//!
//! A snapshot shows what no single assertion looks for: a field, a header or a word that is new,
//! gone or changed. Review changes with `cargo insta review`, or read the diff of `snapshots/`.

mod admin;
mod formats;
mod images;
mod pages;
mod public;

use http::Method;
use serde_json::{Value, json};
use std::sync::LazyLock;
use testkit::{TestGateway, TestRequest};

use crate::answer_schemas::AnswerSchemas;

/// Sends a request and compares everything that was sent and answered with the snapshot `name`, and
/// the answer with the API description.
async fn check(name: &str, ask: TestRequest<'_>) {
    let (method, path) = (ask.method().clone(), ask.path().to_owned());
    let (text, answer) = ask.wire_exchange().await;
    let problems = AnswerSchemas::embedded().problems(&method, &path, &answer);
    assert!(problems.is_empty(), "{name} is not as described: {problems:#?}\n{text}");
    compare(name, &text);
}

/// Settings of all snapshots. Their regular expressions take longer to compile than most answers to make.
static SETTINGS: LazyLock<insta::Settings> = LazyLock::new(|| {
    let mut settings = insta::Settings::new();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    for (pattern, replacement) in testkit::REDACTIONS {
        settings.add_filter(pattern, *replacement);
    }
    settings
});

fn compare(name: &str, text: &str) {
    SETTINGS.bind(|| insta::assert_snapshot!(name, text));
}

/// Adds a field to a JSON object.
fn with(mut body: Value, name: &str, value: Value) -> Value {
    body[name] = value;
    body
}

/// Checks a route that takes JSON: the good call, then the same without a key, and each wrong body.
async fn check_json(
    gateway: &TestGateway,
    route: &str,
    path: &str,
    good: &Value,
    wrong: &[(&str, Value)],
) {
    check(&format!("{route}_200"), gateway.post(path, good)).await;
    check(&format!("{route}_401"), gateway.post(path, good).without_key()).await;
    for (name, body) in wrong {
        check(&format!("{route}_{name}"), gateway.post(path, body)).await;
    }
}

/// Checks a route that is only read: the good call, then the same without a key.
async fn check_read(gateway: &TestGateway, route: &str, path: &str) {
    check(&format!("{route}_200"), gateway.get(path)).await;
    check(&format!("{route}_401"), gateway.get(path).without_key()).await;
}

/// A request without a body.
fn plain<'a>(gateway: &'a TestGateway, method: Method, path: &str) -> TestRequest<'a> {
    gateway.request(method, path).without_header("content-type")
}

fn hello() -> Value {
    json!([{ "role": "user", "content": "Hello!" }])
}

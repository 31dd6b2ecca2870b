//! The API description: its examples are valid, and those of its requests work.

use http::Method;
use serde_json::Value;
use testkit::TestGateway;

use crate::answer_schemas::{AnswerSchemas, DescribedOperation};

/// Operations whose example is not sent: they need a provider in the internet, a sign-in, settings or a
/// key that lives longer.
const NOT_SENT: [&str; 8] = [
    "adminPutProvider",
    "adminPutModel",
    "adminAddCredential",
    "adminRekeyVault",
    "adminCreateScimToken",
    "getToken",
    "getManagedSettings",
    "getGatewayManagedSettings",
];
const FORM_TYPE: &str = "application/x-www-form-urlencoded";
const JSON_TYPES: [&str; 2] = ["application/json", "application/scim+json"];
/// An identity provider that manages people.
const IDENTITY: &str = "[identity.corp]\nissuer = \"https://id.example.com\"\n\
                        client_id = \"portunus\"\nclient_secret = { text = \"x\" }\n";

#[test]
fn examples_fit_their_schemas() {
    let schemas = AnswerSchemas::embedded();
    let mut problems = Vec::new();
    let mut check = |name: &str, schema: &Value, example: &Value| {
        let seen = schemas.differences(schema, example);
        problems.extend(seen.into_iter().map(|line| format!("{name}: {line}")));
    };
    for (name, schema) in schemas.document()["components"]["schemas"].as_object().unwrap() {
        for example in schema["examples"].as_array().into_iter().flatten() {
            check(name, schema, example);
        }
    }
    for (name, response) in schemas.document()["components"]["responses"].as_object().unwrap() {
        let content = &response["content"]["application/json"];
        for (_, example) in content["examples"].as_object().into_iter().flatten() {
            check(name, &content["schema"], &example["value"]);
        }
    }
    for operation in schemas.operations() {
        let content = json_content(&operation);
        for example in bodies(schemas, &operation) {
            check(operation.path, &content["schema"], &example);
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
}

/// The description of the JSON body of an operation.
fn json_content<'a>(operation: &DescribedOperation<'a>) -> &'a Value {
    let content = &operation.own["requestBody"]["content"];
    JSON_TYPES.iter().find_map(|kind| content.get(kind)).unwrap_or(&Value::Null)
}

/// The examples of the JSON body of an operation.
fn bodies(schemas: &AnswerSchemas, operation: &DescribedOperation<'_>) -> Vec<Value> {
    let content = json_content(operation);
    let mut found: Vec<Value> = content.get("example").cloned().into_iter().collect();
    let named = content["examples"].as_object().into_iter().flatten();
    found.extend(named.map(|(_, example)| example["value"].clone()));
    let schema = schemas.resolved(&content["schema"]);
    if found.is_empty() {
        found.extend(schema["examples"].as_array().into_iter().flatten().cloned());
    }
    found
}

/// The path with the examples of its parameters; `None` if one has no example.
fn example_path(schemas: &AnswerSchemas, operation: &DescribedOperation<'_>) -> Option<String> {
    let mut path = operation.path.to_owned();
    let mut query = Vec::new();
    for parameter in operation.own["parameters"].as_array().into_iter().flatten() {
        let parameter = schemas.resolved(parameter);
        let name = parameter["name"].as_str().unwrap_or_default();
        let example = parameter["example"].as_str();
        match (parameter["in"].as_str(), example) {
            (Some("path"), Some(example)) => path = path.replace(&format!("{{{name}}}"), example),
            (Some("query"), Some(example)) => query.push(format!("{name}={example}")),
            _ => {}
        }
    }
    if !query.is_empty() {
        path = format!("{path}?{}", query.join("&"));
    }
    (!path.contains('{')).then_some(path)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_operation_has_an_example_that_works() {
    let gateway = TestGateway::with_config(IDENTITY).await;
    let scim_token = format!("Bearer {}", crate::scim::new_token(&gateway, "corp").await);
    let schemas = AnswerSchemas::embedded();
    let (mut problems, mut sent) = (Vec::new(), 0);
    for operation in schemas.operations() {
        let name = operation.own["operationId"].as_str().unwrap_or_default();
        let has_success = operation.own["responses"].as_object().unwrap().keys();
        let has_success = has_success.into_iter().any(|status| status.starts_with('2'));
        let examples = bodies(schemas, &operation);
        let form = &operation.own["requestBody"]["content"][FORM_TYPE]["example"];
        if operation.own.get("requestBody").is_some() && examples.is_empty() && form.is_null() {
            problems.push(format!("{name} has no example"));
        }
        let Some(path) = example_path(schemas, &operation) else { continue };
        if !has_success || NOT_SENT.contains(&name) {
            continue;
        }
        let method: Method = operation.method.to_uppercase().parse().unwrap();
        let requests = match examples.is_empty() {
            true if form.is_object() => {
                let pairs = form.as_object().unwrap().iter();
                let pairs =
                    pairs.map(|(name, value)| format!("{name}={}", value.as_str().unwrap()));
                let body = pairs.collect::<Vec<_>>().join("&");
                let request = gateway.request(method.clone(), &path).without_key();
                vec![request.header("content-type", FORM_TYPE).body(body)]
            }
            true => vec![gateway.request(method.clone(), &path)],
            false => {
                let request =
                    |body: &Value| gateway.request(method.clone(), &path).body(body.to_string());
                examples.iter().map(request).collect()
            }
        };
        for mut request in requests {
            if path.starts_with("/scim/") {
                request = request.without_key().header("authorization", &scim_token);
            }
            let bare_path = request.path().to_owned();
            let answer = request.send().await;
            sent += 1;
            if !answer.status.is_success() {
                let text = answer.text();
                problems.push(format!("{name}: {} {text}", answer.status));
            }
            let seen = schemas.problems(&method, &bare_path, &answer);
            problems.extend(seen.into_iter().map(|line| format!("{name}: {line}")));
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
    assert!(sent > 45, "only {sent} examples were sent");
}

#[tokio::test]
async fn the_reference_draws_every_operation_and_object() {
    let gateway = TestGateway::start().await;
    let schemas = AnswerSchemas::embedded();
    let overview = gateway.get("/docs").without_key().send().await.text();
    let mut drawn = String::new();
    for tag in schemas.document()["tags"].as_array().unwrap() {
        let name = tag["name"].as_str().unwrap();
        assert!(overview.contains(&format!("/docs?part={name}\"")), "{name}");
        let page = gateway.get(&format!("/docs?part={name}")).without_key().send().await.text();
        assert!(page.len() < 140_000, "{name}: {}", page.len());
        for link in page.split("href=\"#").skip(1) {
            let to = link.split('"').next().unwrap();
            assert!(page.contains(&format!("id=\"{to}\"")), "{name}: #{to} leads nowhere");
        }
        drawn.push_str(&page);
    }
    assert!(overview.len() < 100_000, "{}", overview.len());
    for operation in schemas.operations() {
        let name = operation.own["operationId"].as_str().unwrap();
        assert!(drawn.contains(&format!("id=\"{name}\"")), "{name}");
        assert!(overview.contains(&format!("#{name}\"")), "{name}");
    }
    let words = ["MALFORMED_FUNCTION_CALL", "finishReason", "candidates", "error-429", "21:9"];
    assert!(words.iter().all(|word| drawn.contains(word)), "{words:?}");
}

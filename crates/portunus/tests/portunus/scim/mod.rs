//! SCIM: people and groups that an identity provider manages, on the running gateway.

mod accounts;
mod attacks;
mod groups;
mod sign_in;
mod tokens;
mod users;

use http::Method;
use serde_json::{Value, json};
use testkit::{TestGateway, TestResponse};

const CONFIG: &str = r#"
[identity.corp]
issuer = "https://id.example.com"
client_id = "portunus"
client_secret = { text = "x" }
[identity.corp.groups.map.staff]
role = "member"
teams = { ml = "member" }
[identity.corp.groups.map.leads]
role = "admin"
teams = { ml = "manager" }
[identity.other]
issuer = "https://other.example.com"
client_id = "portunus"
client_secret = { text = "x" }
"#;

/// A gateway, and the token of an identity provider.
struct ScimStage {
    gateway: TestGateway,
    token: String,
}

impl ScimStage {
    async fn open() -> Self {
        let gateway = TestGateway::with_config(CONFIG).await;
        let token = new_token(&gateway, "corp").await;
        Self { gateway, token }
    }

    async fn send(&self, method: Method, path: &str, body: Value) -> TestResponse {
        ask(&self.gateway, &self.token, method, path, body).await
    }

    async fn get(&self, path: &str) -> Value {
        let got = self.send(Method::GET, path, Value::Null).await;
        assert_eq!(got.status, 200, "{path}: {}", got.text());
        assert_eq!(got.header("content-type"), "application/scim+json");
        got.json()
    }

    /// Creates a person with that name, and returns its id.
    async fn person(&self, name: &str) -> String {
        let got = self.send(Method::POST, "/Users", user(name)).await;
        assert_eq!(got.status, 201, "{}", got.text());
        got.json()["id"].as_str().unwrap().to_owned()
    }

    async fn group(&self, name: &str, members: &[&str]) -> String {
        let members: Vec<Value> = members.iter().map(|id| json!({ "value": id })).collect();
        let body = json!({ "displayName": name, "members": members });
        let got = self.send(Method::POST, "/Groups", body).await;
        assert_eq!(got.status, 201, "{}", got.text());
        got.json()["id"].as_str().unwrap().to_owned()
    }

    /// Changes a resource by operations.
    async fn patch(&self, path: &str, operations: Value) -> TestResponse {
        let body = json!({
            "schemas": ["urn:ietf:params:scim:api:messages:2.0:PatchOp"], "Operations": operations,
        });
        self.send(Method::PATCH, path, body).await
    }

    async fn role(&self, id: &str) -> &'static str {
        self.gateway.app.store.account(id).await.unwrap().unwrap().role.word()
    }

    /// Checks that a request is refused in the form of SCIM.
    async fn refuses(&self, method: Method, path: &str, body: Value, status: u16, kind: &str) {
        let shown = body.to_string().chars().take(300).collect::<String>();
        let got = self.send(method.clone(), path, body).await;
        is_refusal(&got, status, kind, &format!("{method} {path} {shown}"));
    }
}

fn is_refusal(got: &TestResponse, status: u16, kind: &str, what: &str) {
    assert_eq!(got.status.as_u16(), status, "{what}: {}", got.text());
    assert_eq!(got.header("content-type"), "application/scim+json", "{what}");
    let told = got.json();
    assert_eq!(told["schemas"], json!(["urn:ietf:params:scim:api:messages:2.0:Error"]));
    assert_eq!(told["status"], status.to_string(), "{what}: {told}");
    assert_eq!(told["scimType"].as_str().unwrap_or_default(), kind, "{what}: {told}");
    assert!(told["detail"].as_str().is_some_and(|why| why.len() > 10), "{what}: {told}");
}

fn user(name: &str) -> Value {
    json!({
        "schemas": ["urn:ietf:params:scim:schemas:core:2.0:User"],
        "userName": format!("{name}@example.com"), "externalId": format!("ext-{name}"),
        "emails": [{ "value": format!("{name}@example.com"), "type": "work", "primary": true }],
    })
}

async fn ask(
    gateway: &TestGateway,
    token: &str,
    method: Method,
    path: &str,
    body: Value,
) -> TestResponse {
    let ask = gateway.request(method, &format!("/scim/v2{path}")).without_key();
    let ask = ask.header("authorization", &format!("Bearer {token}"));
    let ask = ask.header("content-type", "application/scim+json");
    let ask = if body.is_null() { ask.body("") } else { ask.body(body.to_string()) };
    ask.send().await
}

pub(crate) async fn new_token(gateway: &TestGateway, identity: &str) -> String {
    let key = gateway.admin_key().await.to_owned();
    let ask = gateway.request(Method::POST, "/api/admin/scim/tokens").key(&key);
    let body = json!({ "identity": identity, "expires_in": "1d" });
    let got = ask.header("content-type", "application/json").body(body.to_string()).send().await;
    assert_eq!(got.status, 201, "{}", got.text());
    got.json()["token"].as_str().unwrap().to_owned()
}

/// Adds a team, which the groups of the provider name.
async fn add_team(gateway: &TestGateway) -> String {
    let key = gateway.admin_key().await.to_owned();
    let ask = gateway.request(Method::POST, "/api/admin/teams").key(&key);
    let body = json!({ "name": "ml" }).to_string();
    let got = ask.header("content-type", "application/json").body(body).send().await;
    assert_eq!(got.status, 201, "{}", got.text());
    got.json()["id"].as_str().unwrap().to_owned()
}

//! Administration in JSON.

use http::Method;
use serde_json::{Value, json};
use testkit::{TestGateway, TestRequest};

use super::{check, plain};

fn admin<'a>(gateway: &'a TestGateway, method: Method, path: &str) -> TestRequest<'a> {
    plain(gateway, method, &format!("/api/admin{path}"))
}

fn send<'a>(gateway: &'a TestGateway, method: Method, path: &str, body: &Value) -> TestRequest<'a> {
    gateway.request(method, &format!("/api/admin{path}")).body(body.to_string())
}

/// Checks that an address is closed without a key, and that it knows no object called `none`.
async fn check_refusals(gateway: &TestGateway, name: &str, path: &str) {
    check(&format!("admin_{name}_401"), admin(gateway, Method::GET, path).without_key()).await;
    let none = admin(gateway, Method::GET, &format!("{path}/none"));
    check(&format!("admin_{name}_404"), none).await;
}

#[tokio::test]
async fn keys() {
    let gateway = TestGateway::start().await;
    check("admin_keys_list_200", admin(&gateway, Method::GET, "/keys")).await;
    check_refusals(&gateway, "keys", "/keys").await;
    let new = json!({ "name": "ci", "models": ["demo-chat"], "cap_usd": "5" });
    check("admin_keys_create_201", send(&gateway, Method::POST, "/keys", &new)).await;
    let wrong = json!({ "name": "ci" });
    check("admin_keys_create_400", send(&gateway, Method::POST, "/keys", &wrong)).await;
    let id = gateway.key.split('-').nth(2).unwrap();
    check("admin_keys_get_200", admin(&gateway, Method::GET, &format!("/keys/{id}"))).await;
    let change = json!({ "name": "renamed" });
    let path = format!("/keys/{id}");
    check("admin_keys_change_200", send(&gateway, Method::PATCH, &path, &change)).await;
    let wrong = json!({ "no_such_field": true });
    check("admin_keys_change_400", send(&gateway, Method::PATCH, &path, &wrong)).await;
    check("admin_keys_revoke_404", admin(&gateway, Method::DELETE, "/keys/none")).await;
}

#[tokio::test]
async fn users() {
    let gateway = TestGateway::start().await;
    check("admin_users_list_200", admin(&gateway, Method::GET, "/users")).await;
    check_refusals(&gateway, "users", "/users").await;
    let new = json!({ "name": "ada", "role": "member" });
    check("admin_users_create_201", send(&gateway, Method::POST, "/users", &new)).await;
    let wrong = json!({ "name": "../x", "role": "member" });
    check("admin_users_create_400", send(&gateway, Method::POST, "/users", &wrong)).await;
    let owner = gateway.app.store.accounts().await.unwrap().remove(0).id;
    check("admin_users_get_200", admin(&gateway, Method::GET, &format!("/users/{owner}"))).await;
    let terms = format!("/users/{owner}/terms");
    check("admin_terms_get_200", admin(&gateway, Method::GET, &terms)).await;
}

#[tokio::test]
async fn teams() {
    let gateway = TestGateway::start().await;
    check("admin_teams_list_200", admin(&gateway, Method::GET, "/teams")).await;
    check_refusals(&gateway, "teams", "/teams").await;
    let new = json!({ "name": "research" });
    check("admin_teams_create_201", send(&gateway, Method::POST, "/teams", &new)).await;
    let wrong = json!({});
    check("admin_teams_create_400", send(&gateway, Method::POST, "/teams", &wrong)).await;
}

#[tokio::test]
async fn providers_and_models() {
    let gateway = TestGateway::start().await;
    check("admin_providers_list_200", admin(&gateway, Method::GET, "/providers")).await;
    check_refusals(&gateway, "providers", "/providers").await;
    let new = json!({ "speaks": "chat", "base": "https://models.example.com/v1" });
    check("admin_providers_put_201", send(&gateway, Method::PUT, "/providers/house", &new)).await;
    let wrong = json!({ "speaks": "chat", "base": "not an address" });
    check("admin_providers_put_400", send(&gateway, Method::PUT, "/providers/b", &wrong)).await;
    check("admin_models_list_200", admin(&gateway, Method::GET, "/models")).await;
    check_refusals(&gateway, "models", "/models").await;
    let new = json!({ "lanes": ["house/up"], "price": { "input": "1.00", "output": "2.00" } });
    check("admin_models_put_201", send(&gateway, Method::PUT, "/models/m", &new)).await;
    let wrong = json!({ "lanes": ["nowhere/up"] });
    check("admin_models_put_400", send(&gateway, Method::PUT, "/models/n", &wrong)).await;
    check("admin_models_delete_200", admin(&gateway, Method::DELETE, "/models/m")).await;
    check("admin_providers_delete_200", admin(&gateway, Method::DELETE, "/providers/house")).await;
    check("admin_providers_delete_404", admin(&gateway, Method::DELETE, "/providers/house")).await;
}

#[tokio::test]
async fn records() {
    let gateway = TestGateway::start().await;
    for (name, path) in
        [("usage", "/usage"), ("audit", "/audit"), ("settings", "/settings"), ("vault", "/vault")]
    {
        check(&format!("admin_{name}_200"), admin(&gateway, Method::GET, path)).await;
        let stranger = admin(&gateway, Method::GET, path).without_key();
        check(&format!("admin_{name}_401"), stranger).await;
    }
    let statement = "/statements/2020-01";
    check("admin_statement_200", admin(&gateway, Method::GET, statement)).await;
    check("admin_statement_401", admin(&gateway, Method::GET, statement).without_key()).await;
    check("admin_statement_400", admin(&gateway, Method::GET, "/statements/2020-1")).await;
    let unknown = format!("{statement}?account_id=nobody");
    check("admin_statement_404", admin(&gateway, Method::GET, &unknown)).await;
    check("admin_usage_400", admin(&gateway, Method::GET, "/usage?days=many")).await;
    check("admin_health_401", admin(&gateway, Method::GET, "/health").without_key()).await;
    let wrong = json!({ "no_such_setting": true });
    check("admin_settings_400", send(&gateway, Method::PATCH, "/settings", &wrong)).await;
    let alerts = "/settings/alerts";
    check("admin_gateway_alerts_200", admin(&gateway, Method::GET, alerts)).await;
    check("admin_gateway_alerts_401", admin(&gateway, Method::GET, alerts).without_key()).await;
    check("admin_gateway_alerts_400", send(&gateway, Method::PATCH, alerts, &wrong)).await;
    let change = json!({ "error_percent": 5, "quiet_hours": { "from": "22:00", "to": "07:00" } });
    check("admin_gateway_alerts_patch", send(&gateway, Method::PATCH, alerts, &change)).await;
}

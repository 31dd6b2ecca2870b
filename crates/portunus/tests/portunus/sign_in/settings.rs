//! Managed settings of agents.

use super::*;

#[tokio::test]
async fn managed_settings_are_those_of_the_team_or_of_the_gateway() {
    let harbour = Harbour::open().await;
    let gateway = &harbour.gateway;
    let get = async |tag: &str| {
        gateway.get("/managed/settings").header("if-none-match", tag).send().await
    };
    assert_eq!(gateway.get("/managed/settings").send().await.status, 404);
    assert_eq!(gateway.get("/managed/settings").without_key().send().await.status, 401);
    let put = async |path: &str, body: &str| {
        gateway.request(Method::PUT, path).body(body.to_owned()).send().await
    };
    let path = "/api/admin/settings/managed";
    assert_eq!(put(path, "[]").await.status, 400);
    let got = put(path, r#"{"model":"demo-messages","env":{"B":"1","A":"2"}}"#).await;
    assert_eq!(got.status, 200, "{}", got.text());
    let told = gateway.get("/managed/settings").send().await;
    let checksum = text(&told.json(), "checksum");
    assert_eq!(told.header("etag"), format!("\"{checksum}\""));
    assert_eq!(told.json()["settings"]["env"]["A"], "2");
    assert_eq!(get(&format!("\"{checksum}\"")).await.status, 304);
    assert_eq!(get("\"other\"").await.status, 200);
    assert_eq!(get("*").await.status, 200);
    // A team has its own.
    let made = gateway.post("/api/admin/teams", &json!({ "name": "Night shift" })).send().await;
    let team = text(&made.json(), "id");
    let path = format!("/api/admin/teams/{team}/managed-settings");
    assert_eq!(gateway.get(&path).send().await.status, 404);
    assert_eq!(put(&path, r#"{"model":"other"}"#).await.status, 200);
    assert_eq!(put("/api/admin/teams/none/managed-settings", "{}").await.status, 404);
    let mia = harbour.person("mia", AccountRole::Member).await;
    let store = &gateway.app.store;
    store
        .set_member(&team, &mia.account.id, Some(TeamRole::Member), true, Micros::new(1))
        .await
        .unwrap();
    let tokens = harbour.sign_in(&mia, &team).await;
    let of_team = gateway.get("/managed/settings").key(&tokens.access).send().await.json();
    assert_eq!(of_team["settings"], json!({ "model": "other" }));
    assert_eq!(gateway.request(Method::DELETE, &path).send().await.status, 200);
    let of_team = gateway.get("/managed/settings").key(&tokens.access).send().await.json();
    assert_eq!(of_team["settings"]["model"], "demo-messages");
    // The page is for administrators.
    assert_eq!(mia.look("/console/managed-settings").await.status, 403);
    let adam = harbour.person("adam", AccountRole::Admin).await;
    let page = adam.look("/console/managed-settings").await;
    assert!(page.text().contains("demo-messages"), "{}", page.text());
    let fields = [("team", team.as_str()), ("settings", "{ nonsense")];
    let got = adam.submit("/console/managed-settings", &fields).await;
    assert_eq!(got.status, 400, "{}", got.text());
    let fields = [("team", team.as_str()), ("settings", r#"{"model":"page"}"#)];
    assert_eq!(adam.submit("/console/managed-settings", &fields).await.status, 303);
    let of_team = gateway.get("/managed/settings").key(&tokens.access).send().await.json();
    assert_eq!(of_team["settings"]["model"], "page");
}

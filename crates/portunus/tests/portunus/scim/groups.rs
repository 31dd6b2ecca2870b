//! Groups, and the rights that they give.

use super::*;
use canon::Micros;
use store::{AccountRole, TeamRole};

async fn seat(provider: &ScimStage, id: &str) -> Option<TeamRole> {
    let seats = provider.gateway.app.store.memberships_of(id).await.unwrap();
    seats.first().map(|seat| seat.role)
}

#[tokio::test]
async fn groups_give_roles_and_teams_at_once() {
    let provider = ScimStage::open().await;
    add_team(&provider.gateway).await;
    let anna = provider.person("anna").await;
    assert_eq!((provider.role(&anna).await, seat(&provider, &anna).await), ("viewer", None));
    let staff = provider.group("staff", &[&anna]).await;
    assert_eq!(provider.role(&anna).await, "member");
    assert_eq!(seat(&provider, &anna).await, Some(TeamRole::Member));
    let leads = provider.group("leads", &[]).await;
    let path = format!("/Groups/{leads}");
    let add = json!([{ "op": "Add", "path": "members", "value": [{ "value": anna }] }]);
    let got = provider.patch(&path, add.clone()).await;
    assert_eq!((got.status.as_u16(), got.text().as_str()), (204, ""));
    assert_eq!(provider.role(&anna).await, "admin");
    assert_eq!(seat(&provider, &anna).await, Some(TeamRole::Manager));
    let groups = provider.get(&format!("/Users/{anna}")).await["groups"].clone();
    let names: Vec<&str> =
        groups.as_array().unwrap().iter().map(|one| one["display"].as_str().unwrap()).collect();
    assert_eq!(names, ["staff", "leads"]);
    let member = &provider.get(&path).await["members"][0];
    assert_eq!((&member["value"], &member["type"]), (&json!(anna), &json!("User")));

    let remove = json!([{ "op": "Remove", "path": format!("members[value eq \"{anna}\"]") }]);
    provider.patch(&path, remove).await;
    assert_eq!(provider.role(&anna).await, "member");
    assert_eq!(seat(&provider, &anna).await, Some(TeamRole::Member));
    // A new name of the group changes what it gives.
    provider.patch(&path, add).await;
    let rename =
        json!([{ "op": "replace", "value": { "id": leads, "displayName": "former leads" } }]);
    assert_eq!(provider.patch(&path, rename).await.status, 204);
    assert_eq!(provider.role(&anna).await, "member");
    // The id at the provider names it as well.
    let named = json!([{ "op": "add", "path": "externalId", "value": "leads" }]);
    provider.patch(&path, named).await;
    assert_eq!(provider.role(&anna).await, "admin");
    assert_eq!(provider.send(Method::DELETE, &path, Value::Null).await.status, 204);
    assert_eq!(provider.role(&anna).await, "member");
    let empty = json!({ "displayName": "staff" });
    let put = provider.send(Method::PUT, &format!("/Groups/{staff}"), empty).await;
    assert_eq!(put.json()["members"], Value::Null, "{}", put.text());
    assert_eq!((provider.role(&anna).await, seat(&provider, &anna).await), ("viewer", None));
    provider.refuses(Method::GET, &path, Value::Null, 404, "").await;

    let lines = provider.gateway.app.store.audits(100).await.unwrap();
    for action in ["scim.create_group", "scim.change_group", "scim.delete_group", "account.role"] {
        let line = lines.iter().find(|line| line.action == action);
        assert!(line.is_some_and(|line| line.actor.starts_with("scim corp ")), "{action}");
    }
}

#[tokio::test]
async fn a_deleted_person_loses_its_groups_and_teams() {
    let provider = ScimStage::open().await;
    add_team(&provider.gateway).await;
    let anna = provider.person("anna").await;
    let leads = provider.group("leads", &[&anna]).await;
    assert_eq!(provider.role(&anna).await, "admin");
    provider.send(Method::DELETE, &format!("/Users/{anna}"), Value::Null).await;
    assert_eq!((provider.role(&anna).await, seat(&provider, &anna).await), ("viewer", None));
    assert_eq!(provider.get(&format!("/Groups/{leads}")).await["members"], Value::Null);
}

#[tokio::test]
async fn groups_are_listed_and_filtered() {
    let provider = ScimStage::open().await;
    let anna = provider.person("anna").await;
    let staff = provider.group("staff", &[&anna]).await;
    provider.group("crew", &[]).await;
    for (query, names) in [
        ("", "staff crew"),
        ("filter=displayName%20eq%20%22STAFF%22", "staff"),
        (&format!("filter=id%20eq%20%22{staff}%22%20and%20members%20eq%20%22{anna}%22"), "staff"),
        (&format!("filter=members%5Bvalue%20eq%20%22{anna}%22%5D"), "staff"),
        ("filter=members.value%20eq%20%22nobody%22", ""),
    ] {
        let list = provider.get(&format!("/Groups?{query}&excludedAttributes=members")).await;
        let found = list["Resources"].as_array().unwrap();
        assert!(found.iter().all(|group| group["members"].is_null()));
        let found: Vec<&str> =
            found.iter().map(|one| one["displayName"].as_str().unwrap()).collect();
        assert_eq!(found.join(" "), names, "{query}");
    }
    let body = json!({ "displayName": "Crew" });
    provider.refuses(Method::POST, "/Groups", body, 409, "uniqueness").await;
    provider.refuses(Method::POST, "/Groups", json!({}), 400, "invalidValue").await;
    let unknown = json!({ "displayName": "x", "members": [{ "value": "nobody" }] });
    provider.refuses(Method::POST, "/Groups", unknown, 400, "invalidValue").await;
}

#[tokio::test]
async fn the_only_owner_is_neither_locked_nor_deleted_nor_demoted() {
    let provider = ScimStage::open().await;
    let store = &provider.gateway.app.store;
    let anna = provider.person("anna").await;
    let first = store.accounts().await.unwrap().remove(0);
    let now = Micros::new(1);
    store.change_person(&anna, Some(AccountRole::Owner), None, now).await.unwrap();
    store.change_person(&first.id, Some(AccountRole::Member), None, now).await.unwrap();
    let path = format!("/Users/{anna}");
    let off = json!({ "Operations": [{ "op": "replace", "path": "active", "value": false }] });
    provider.refuses(Method::PATCH, &path, off.clone(), 403, "").await;
    provider.refuses(Method::DELETE, &path, Value::Null, 403, "").await;
    let staff = provider.group("staff", &[&anna]).await;
    provider.send(Method::DELETE, &format!("/Groups/{staff}"), Value::Null).await;
    let account = store.account(&anna).await.unwrap().unwrap();
    assert_eq!((account.role, account.disabled), (AccountRole::Owner, false));
    assert_eq!(provider.get(&path).await["active"], true);
    // With another owner it may go.
    store.change_person(&first.id, Some(AccountRole::Owner), None, now).await.unwrap();
    let got = provider.send(Method::PATCH, &path, off).await;
    assert_eq!(got.status, 200, "{}", got.text());
}

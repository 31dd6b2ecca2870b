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
    // An owner who cannot sign in does not count.
    store.change_person(&first.id, Some(AccountRole::Owner), None, now).await.unwrap();
    provider.refuses(Method::PATCH, &path, off.clone(), 403, "").await;
    provider.refuses(Method::DELETE, &path, Value::Null, 403, "").await;
    // With another owner it may go.
    let hash =
        admin::NewPassword::check("three harbour lights", &["owner"]).unwrap().hash().unwrap();
    store.set_password(&first.id, Some(hash.as_str()), now).await.unwrap();
    let got = provider.send(Method::PATCH, &path, off).await;
    assert_eq!(got.status, 200, "{}", got.text());
}

#[tokio::test]
async fn the_versions_of_people_and_groups_change_with_memberships() {
    let provider = ScimStage::open().await;
    let (anna, bert) = (provider.person("anna").await, provider.person("bert").await);
    let staff = provider.group("staff", &[&anna, &bert]).await;
    let version = async |path: &str| provider.get(path).await["meta"]["version"].clone();
    let (group, person) = (format!("/Groups/{staff}"), format!("/Users/{bert}"));
    let (of_group, of_person) = (version(&group).await, version(&person).await);
    provider.send(Method::DELETE, &format!("/Users/{anna}"), Value::Null).await;
    assert_ne!(version(&group).await, of_group, "a member was deleted");
    assert_eq!(version(&person).await, of_person);
    let tag = version(&group).await;
    let carl = provider.person("carl").await;
    let add = json!([{ "op": "add", "path": "members", "value": [{ "value": carl }] }]);
    provider.patch(&group, add).await;
    assert_ne!(version(&group).await, tag);
    let rename = json!([{ "op": "replace", "path": "displayName", "value": "crew" }]);
    provider.patch(&group, rename).await;
    let renamed = version(&person).await;
    assert_ne!(renamed, of_person, "its group has another name");
    // A change that was made for the earlier groups is refused.
    let stale = provider.gateway.request(Method::DELETE, &format!("/scim/v2{person}"));
    let stale = stale.without_key().header("authorization", &format!("Bearer {}", provider.token));
    let stale = stale.header("if-match", of_person.as_str().unwrap()).send().await;
    is_refusal(&stale, 412, "", "an earlier version");
    let empty = json!([{ "op": "remove", "path": "members" }]);
    provider.patch(&group, empty).await;
    assert_ne!(version(&person).await, renamed, "it left its group");
    // The listed version is that of the person.
    let list = provider.get("/Users?attributes=meta").await;
    let listed = list["Resources"].as_array().unwrap().iter().find(|one| one["id"] == bert);
    assert_eq!(listed.unwrap()["meta"]["version"], version(&person).await);
}

#[tokio::test]
async fn a_repeated_membership_restores_the_rights_that_it_gives() {
    let provider = ScimStage::open().await;
    let team = add_team(&provider.gateway).await;
    let store = &provider.gateway.app.store;
    let (anna, bert) = (provider.person("anna").await, provider.person("bert").await);
    let staff = provider.group("staff", &[&anna, &bert]).await;
    let path = format!("/Groups/{staff}");
    let lose_rights = async || {
        for id in [&anna, &bert] {
            let viewer = Some(AccountRole::Viewer);
            store.change_person(id, viewer, None, Micros::new(5)).await.unwrap();
            store.set_member(&team, id, None, true, Micros::new(5)).await.unwrap();
        }
    };
    let rights = async |id: &str| (provider.role(id).await, seat(&provider, id).await);
    let (full, none) = (("member", Some(TeamRole::Member)), ("viewer", None));
    let tag = provider.get(&path).await["meta"]["version"].clone();
    lose_rights().await;
    let add = json!([{ "op": "add", "path": "members", "value": [{ "value": anna }] }]);
    assert_eq!(provider.patch(&path, add).await.status, 204);
    assert_eq!((rights(&anna).await, rights(&bert).await), (full, none), "only the named member");
    lose_rights().await;
    let members = json!([{ "value": anna }, { "value": bert }]);
    let whole = json!({ "displayName": "staff", "members": members });
    let put = provider.send(Method::PUT, &path, whole).await;
    assert_eq!((put.status.as_u16(), put.header("etag")), (200, tag.as_str().unwrap()));
    assert_eq!((rights(&anna).await, rights(&bert).await), (full, full));
}

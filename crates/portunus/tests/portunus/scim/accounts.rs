//! Accounts that people of SCIM get: new ones, known ones, and those of other people.

use super::*;
use canon::Micros;
use store::{Account, AccountRole, Identity, Store};

/// Adds an account of a person who has signed in through the provider with that subject.
async fn signed_in(store: &Store, name: &str, subject: &str, object_id: Option<&str>) -> String {
    let owner = store.accounts().await.unwrap().remove(0);
    let account = Account {
        id: format!("account-{name}"),
        username: name.to_owned(),
        email: Some(format!("{name}@example.com")),
        role: AccountRole::Member,
        ..owner
    };
    store.add_account(&account).await.unwrap();
    let identity = Identity {
        issuer: "https://id.example.com".to_owned(),
        subject: subject.to_owned(),
        account_id: account.id.clone(),
        label: String::new(),
        object_id: object_id.map(str::to_owned),
        created: Micros::new(1),
    };
    store.add_identity(&identity).await.unwrap();
    account.id
}

fn named(name: &str, external_id: &str) -> Value {
    let mut body = user(name);
    body["externalId"] = json!(external_id);
    body
}

impl ScimStage {
    async fn is_locked(&self, id: &str) -> bool {
        self.gateway.app.store.account(id).await.unwrap().unwrap().disabled
    }

    async fn sets_active(&self, id: &str, is_active: bool) -> TestResponse {
        let step = json!([{ "op": "replace", "path": "active", "value": is_active }]);
        self.patch(&format!("/Users/{id}"), step).await
    }

    /// Locks or unlocks an account as an operator does.
    async fn operator_locks(&self, id: &str, disabled: bool) {
        let store = &self.gateway.app.store;
        store.change_person(id, None, Some(disabled), Micros::new(5)).await.unwrap();
    }
}

#[tokio::test]
async fn a_person_known_by_the_subject_or_object_id_is_locked_in_its_own_account() {
    let provider = ScimStage::open().await;
    let store = &provider.gateway.app.store;
    let by_subject = signed_in(store, "anna.old", "S1", None).await;
    let by_object_id = signed_in(store, "bert.old", "pairwise", Some("O1")).await;
    for (id, name, external_id) in
        [(by_subject, "anna.new", "S1"), (by_object_id, "bert.new", "O1")]
    {
        let key = provider.gateway.admin_key_of(&id).await;
        let call = async || provider.gateway.get("/v1/key").key(&key).send().await.status;
        assert_eq!(call().await, 200);
        let made = provider.send(Method::POST, "/Users", named(name, external_id)).await;
        assert_eq!((made.status.as_u16(), &made.json()["id"]), (201, &json!(id)), "{name}");
        let account = store.account(&id).await.unwrap().unwrap();
        assert_eq!(account.email, Some(format!("{name}@example.com")));
        let lines = store.audits(10).await.unwrap();
        let is_changed =
            |line: &store::AuditRecord| line.action == "account.email" && line.subject == id;
        assert!(lines.iter().any(is_changed), "{name}");
        provider.sets_active(&id, false).await;
        assert!(provider.is_locked(&id).await);
        assert_eq!(call().await, 401);
        // The same id again is the same person.
        let twin = named("twin", external_id);
        provider.refuses(Method::POST, "/Users", twin, 409, "uniqueness").await;
    }
}

#[tokio::test]
async fn an_address_does_not_give_the_account_of_a_person_with_another_id() {
    let provider = ScimStage::open().await;
    let store = &provider.gateway.app.store;
    let anna = signed_in(store, "anna", "S1", Some("O1")).await;
    provider.refuses(Method::POST, "/Users", named("anna", "S2"), 409, "uniqueness").await;
    // Nor does the name of a person whom the provider deleted without an id.
    let mut nameless = user("anna");
    nameless.as_object_mut().unwrap().remove("externalId");
    let made = provider.send(Method::POST, "/Users", nameless).await;
    assert_eq!(made.json()["id"], json!(anna), "{}", made.text());
    provider.send(Method::DELETE, &format!("/Users/{anna}"), Value::Null).await;
    let successor = provider.send(Method::POST, "/Users", named("anna", "S2")).await;
    assert_eq!(successor.status, 201, "{}", successor.text());
    assert_ne!(successor.json()["id"], json!(anna));
    // An id that belongs to another account is refused in changes as well.
    let carl = provider.person("carl").await;
    for (method, body) in [
        (Method::PUT, named("carl", "S1")),
        (
            Method::PATCH,
            json!({ "Operations": [{ "op": "add", "path": "externalId", "value": "O1" }] }),
        ),
    ] {
        provider.refuses(method, &format!("/Users/{carl}"), body, 409, "uniqueness").await;
    }
}

#[tokio::test]
async fn the_object_id_of_an_earlier_identity_is_noted_at_the_next_sign_in() {
    let provider = ScimStage::open().await;
    let app = &provider.gateway.app;
    let anna = signed_in(&app.store, "anna", "pairwise", None).await;
    provider.refuses(Method::POST, "/Users", named("anna", "O1"), 409, "uniqueness").await;
    let person = admin::IdentityClaims {
        issuer: "https://id.example.com".to_owned(),
        subject: "pairwise".to_owned(),
        email: None,
        email_verified: false,
        name: None,
        groups: Vec::new(),
        object_id: Some("O1".to_owned()),
    };
    let account = app.store.account(&anna).await.unwrap().unwrap();
    for _ in 0..2 {
        app.admin.accounts.note_object_id(&account, &person).await.unwrap();
    }
    let made = provider.send(Method::POST, "/Users", named("anna", "O1")).await;
    assert_eq!((made.status.as_u16(), &made.json()["id"]), (201, &json!(anna)));
}

#[tokio::test]
async fn only_a_locked_account_without_rights_gives_its_address_to_a_successor() {
    let provider = ScimStage::open().await;
    let store = &provider.gateway.app.store;
    let anna = provider.person("anna").await;
    provider.send(Method::DELETE, &format!("/Users/{anna}"), Value::Null).await;
    let next = named("anna", "another");
    for (role, disabled) in [(AccountRole::Member, false), (AccountRole::Admin, true)] {
        let change = store.change_person(&anna, Some(role), Some(disabled), Micros::new(5)).await;
        assert_eq!(change.unwrap(), store::PersonChange::Done);
        provider.refuses(Method::POST, "/Users", next.clone(), 409, "uniqueness").await;
        let account = store.account(&anna).await.unwrap().unwrap();
        assert_eq!(account.email.as_deref(), Some("anna@example.com"), "{role:?}");
    }
    let role = Some(AccountRole::Member);
    store.change_person(&anna, role, Some(true), Micros::new(5)).await.unwrap();
    assert_eq!(provider.send(Method::POST, "/Users", next).await.status, 201);
}

#[tokio::test]
async fn the_lock_of_an_operator_stays_until_the_provider_unlocks_the_person_itself() {
    let provider = ScimStage::open().await;
    let anna = provider.person("anna").await;
    let path = format!("/Users/{anna}");
    provider.operator_locks(&anna, true).await;
    assert_eq!(provider.get(&path).await["active"], false);
    let mut profile = user("anna");
    profile["active"] = json!(true);
    profile["displayName"] = json!("Anna");
    let put = provider.send(Method::PUT, &path, profile).await;
    assert_eq!((put.status.as_u16(), &put.json()["active"]), (200, &json!(false)));
    assert_eq!(provider.sets_active(&anna, true).await.json()["active"], false);
    assert!(provider.is_locked(&anna).await);
    // Deleted and created again, it is still the operator's lock.
    provider.send(Method::DELETE, &path, Value::Null).await;
    let back = provider.send(Method::POST, "/Users", user("anna")).await;
    assert_eq!((&back.json()["id"], &back.json()["active"]), (&json!(anna), &json!(false)));
    // Off and on again is the decision of the provider.
    provider.sets_active(&anna, false).await;
    assert_eq!(provider.sets_active(&anna, true).await.json()["active"], true);
    assert!(!provider.is_locked(&anna).await);
    // An operator unlocks a person whom the provider has locked, and the provider repeats its lock.
    provider.sets_active(&anna, false).await;
    provider.operator_locks(&anna, false).await;
    assert_eq!(provider.get(&path).await["active"], true);
    assert_eq!(provider.sets_active(&anna, false).await.json()["active"], false);
    assert!(provider.is_locked(&anna).await);
}

#[tokio::test]
async fn a_locked_person_that_signed_in_before_is_not_unlocked_by_its_creation() {
    let provider = ScimStage::open().await;
    let anna = signed_in(&provider.gateway.app.store, "anna", "ext-anna", None).await;
    provider.operator_locks(&anna, true).await;
    let made = provider.send(Method::POST, "/Users", user("anna")).await.json();
    assert_eq!((&made["id"], &made["active"]), (&json!(anna), &json!(false)));
}

#[tokio::test]
async fn a_deleted_person_loses_the_rights_of_groups_that_its_sign_in_named() {
    let provider = ScimStage::open().await;
    let store = &provider.gateway.app.store;
    let anna = provider.person("anna").await;
    let role = Some(AccountRole::Admin);
    store.change_person(&anna, role, None, Micros::new(5)).await.unwrap();
    provider.send(Method::DELETE, &format!("/Users/{anna}"), Value::Null).await;
    assert_eq!(provider.role(&anna).await, "viewer");
}

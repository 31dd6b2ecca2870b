//! Roles that need a second factor.

use console::{Guard, routes};
use http::{Method, StatusCode};
use store::{AccountRole, FactorKind, Identity};

use crate::factors::add_app;
use crate::gateway::{ConsoleGateway, START};

const ASKED: &str = "/console/account?told=second";

#[tokio::test]
async fn people_without_a_required_factor_see_their_account_only() {
    let gateway = ConsoleGateway::new().await;
    let anna = gateway.account("anna", AccountRole::Owner).await;
    gateway.account("max", AccountRole::Member).await;
    let (owner, member) = (gateway.sign_in("anna").await, gateway.sign_in("max").await);
    let fields = [("second_factor_roles", "owner,admin")];
    let saved = gateway.post("/console/settings", &fields).cookie(&owner).send().await;
    saved.assert_redirect("/console/settings?told=saved");
    let mut closed = 0;
    for route in
        routes().iter().filter(|route| matches!(route.guard, Guard::Session | Guard::Proof))
    {
        let path = route.path.replace("{id}", &anna.id).replace("{identity}", "corp");
        let path = path.replace("{*path}", "v1/key");
        if path == "/logout" || path.starts_with("/console/account") {
            continue;
        }
        let got = match route.method {
            Method::POST => gateway.post(&path, &[]).cookie(&owner).send().await,
            _ => gateway.get(&path).cookie(&owner).send().await,
        };
        got.assert_redirect(ASKED);
        closed += 1;
    }
    assert!(closed > 30, "{closed}");
    assert_eq!(gateway.get("/console").cookie(&member).send().await.status, StatusCode::OK);
    let page = gateway.get(ASKED).cookie(&owner).send().await;
    page.assert_contains("Your role needs a second factor");
    add_app(&gateway, &owner).await;
    assert_eq!(gateway.get("/console").cookie(&owner).send().await.status, StatusCode::OK);
}

#[tokio::test]
async fn the_last_required_factor_cannot_be_removed() {
    let gateway = ConsoleGateway::new().await;
    let anna = gateway.account("anna", AccountRole::Owner).await;
    let cookie = gateway.sign_in("anna").await;
    add_app(&gateway, &cookie).await;
    gateway.store.put_setting("second_factor_roles", "owner").await.unwrap();
    let factors = gateway.store.factors_of(&anna.id).await.unwrap();
    let app = factors.iter().find(|factor| factor.kind == FactorKind::Totp).unwrap();
    let path = format!("/console/account/factors/{}/remove", app.id);
    let got = gateway.post(&path, &[]).cookie(&cookie).send().await;
    assert_eq!(got.status, StatusCode::BAD_REQUEST);
    got.assert_contains("Your role needs a second factor");
    assert_eq!(gateway.store.factors_of(&anna.id).await.unwrap().len(), factors.len());
}

#[tokio::test]
async fn an_identity_provider_counts_unless_the_account_has_a_password() {
    let gateway = ConsoleGateway::new().await;
    let anna = gateway.account("anna", AccountRole::Owner).await;
    gateway.store.put_setting("second_factor_roles", "owner").await.unwrap();
    let identity = Identity {
        issuer: "https://id.example".to_owned(),
        subject: "1".to_owned(),
        account_id: anna.id.clone(),
        label: "anna".to_owned(),
        object_id: None,
        created: START,
    };
    gateway.store.add_identity(&identity).await.unwrap();
    let accounts = &gateway.host.admin.accounts;
    assert!(accounts.lacks_second_factor(&anna).await.unwrap());
    let without = store::Account { password_hash: None, ..anna };
    assert!(!accounts.lacks_second_factor(&without).await.unwrap());
}

#[tokio::test]
async fn only_roles_are_accepted() {
    let gateway = ConsoleGateway::new().await;
    gateway.account("anna", AccountRole::Owner).await;
    let cookie = gateway.sign_in("anna").await;
    for (wrong, stored) in
        [("boss", None), ("owner,,admin", None), ("admin, owner", Some("owner,admin"))]
    {
        let fields = [("second_factor_roles", wrong)];
        gateway.post("/console/settings", &fields).cookie(&cookie).send().await;
        let now = gateway.store.setting("second_factor_roles").await.unwrap();
        assert_eq!(now.as_deref(), stored, "{wrong}");
    }
}

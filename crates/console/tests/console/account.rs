//! The user's own account: password, address, sessions, and the page after a sign-in.

use canon::Micros;
use http::StatusCode;
use store::AccountRole;

use crate::factors::add_app;
use crate::gateway::{ConsoleGateway, PASSWORD};

const NEW: &str = "four quiet lanterns";

#[tokio::test]
async fn new_password_ends_all_other_sessions() {
    let gateway = ConsoleGateway::new().await;
    gateway.account("anna", AccountRole::Viewer).await;
    let (here, there) = (gateway.sign_in("anna").await, gateway.sign_in("anna").await);
    let change = |current: &'static str, new: &'static str, again: &'static str| {
        let fields = [("current", current), ("password", new), ("again", again)];
        gateway.post("/console/account/password", &fields).cookie(&here).send()
    };
    let wrong = change("not my password", NEW, NEW).await;
    assert_eq!(wrong.status, StatusCode::FORBIDDEN);
    wrong.assert_contains("current-wrong");
    for (new, again, field) in [("short", "short", "password"), (NEW, "other", "again")] {
        let got = change(PASSWORD, new, again).await;
        assert_eq!(got.status, StatusCode::BAD_REQUEST);
        got.assert_contains(&format!("{field}-wrong"));
        got.assert_lacks(PASSWORD);
    }
    assert_eq!(gateway.get("/console").cookie(&there).send().await.status, 200);
    let got = change(PASSWORD, NEW, NEW).await;
    got.assert_redirect("/console/account?told=password");
    for old in [&here, &there] {
        gateway.get("/console").cookie(old).send().await.assert_redirect("/login");
    }
    assert_eq!(gateway.get("/console").cookie(&got.cookie()).send().await.status, 200);
}

#[tokio::test]
async fn password_guesses_in_a_session_are_throttled() {
    let gateway = ConsoleGateway::new().await;
    gateway.account("anna", AccountRole::Member).await;
    let cookie = gateway.sign_in("anna").await;
    add_app(&gateway, &cookie).await;
    let fields = [("current", "wrong wrong wrong"), ("password", NEW), ("again", NEW)];
    let mut held = 0;
    for _ in 0..8 {
        let got = gateway.post("/console/account/password", &fields).cookie(&cookie).send().await;
        held += usize::from(got.status == StatusCode::TOO_MANY_REQUESTS);
    }
    assert_eq!(held, 3);
    let fields = [("login", "anna"), ("password", PASSWORD)];
    let pending = gateway.post("/login", &fields).send().await;
    pending.assert_redirect("/login/second");
    let fields = [("code", "000000")];
    let got = gateway.post("/login/second", &fields).cookie(&pending.cookie()).send().await;
    assert_eq!(got.status, StatusCode::UNAUTHORIZED, "the second step has a counter of its own");
}

#[tokio::test]
async fn sign_out_everywhere_ends_every_session() {
    let gateway = ConsoleGateway::new().await;
    gateway.account("anna", AccountRole::Member).await;
    gateway.account("bert", AccountRole::Member).await;
    let (here, there) = (gateway.sign_in("anna").await, gateway.sign_in("anna").await);
    let other = gateway.sign_in("bert").await;
    let got = gateway.post("/console/account/sessions/end", &[]).cookie(&here).send().await;
    got.assert_redirect("/login");
    for ended in [&here, &there] {
        gateway.get("/console").cookie(ended).send().await.assert_redirect("/login");
    }
    assert_eq!(gateway.get("/console").cookie(&other).send().await.status, 200);
}

#[tokio::test]
async fn role_changes_apply_to_the_next_request() {
    let gateway = ConsoleGateway::new().await;
    let adam = gateway.account("adam", AccountRole::Admin).await;
    let cookie = gateway.sign_in("adam").await;
    let people = async || gateway.get("/console/people").cookie(&cookie).send().await.status;
    assert_eq!(people().await, StatusCode::OK);
    gateway
        .store
        .change_person(&adam.id, Some(AccountRole::Member), None, Micros::new(2))
        .await
        .unwrap();
    assert_eq!(people().await, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn new_address_applies_after_confirmation() {
    let gateway = ConsoleGateway::with_mail().await;
    gateway.account("anna", AccountRole::Member).await;
    let cookie = gateway.sign_in("anna").await;
    let change = |email: &'static str| {
        gateway.post("/console/account/email", &[("email", email)]).cookie(&cookie).send()
    };
    assert_eq!(change("a@b.c,d@e.f").await.status, StatusCode::BAD_REQUEST);
    change("new@example.com").await.assert_redirect("/console/account?told=sent");
    let (link, to) = gateway.host.link().await;
    assert_eq!(to, "new@example.com");
    assert!(gateway.store.account_by_login("new@example.com").await.unwrap().is_none());
    let browser = gateway.open(&link, "/confirm").await;
    gateway.get("/confirm").cookie(&browser).send().await.assert_contains("new@example.com");
    assert!(gateway.store.account_by_login("new@example.com").await.unwrap().is_none());
    let got = gateway.post("/confirm", &[]).cookie(&browser).send().await;
    got.assert_redirect("/console/account?told=email");
    assert!(gateway.store.account_by_login("new@example.com").await.unwrap().is_some());
    assert!(gateway.store.account_by_login("anna@example.com").await.unwrap().is_none());
    let told = gateway.host.mail().await;
    assert_eq!(told.to, "anna@example.com", "the old address hears of it");
}

#[tokio::test]
async fn address_of_another_account_is_neither_revealed_nor_taken() {
    let gateway = ConsoleGateway::with_mail().await;
    gateway.account("anna", AccountRole::Member).await;
    gateway.account("bert", AccountRole::Member).await;
    let cookie = gateway.sign_in("anna").await;
    let fields = [("email", "BERT@example.com")];
    let got = gateway.post("/console/account/email", &fields).cookie(&cookie).send().await;
    got.assert_redirect("/console/account?told=sent");
    let mail = gateway.host.mail().await;
    assert_eq!(mail.to, "bert@example.com");
    assert!(!mail.text.contains("/link/"));
}

#[tokio::test]
async fn sign_in_redirects_only_to_the_requested_console_page() {
    let gateway = ConsoleGateway::new().await;
    gateway.account("anna", AccountRole::Member).await;
    let asked = gateway.get("/console/account").send().await;
    asked.assert_redirect("/login?next=%2Fconsole%2Faccount");
    let page = gateway.get("/login?next=%2Fconsole%2Faccount").send().await;
    page.assert_contains("name=\"next\" value=\"/console/account\"");
    let enter = |next: &str| {
        let fields = [("login", "anna"), ("password", PASSWORD), ("next", next)];
        gateway.post("/login", &fields).send()
    };
    enter("/console/account").await.assert_redirect("/console/account");
    for evil in [
        "//evil.example",
        "/\\evil.example",
        "https:evil.example",
        "https://evil.example",
        "%2f%2fevil.example",
        "javascript:alert(1)",
        "/console\t/../..//evil",
        "/console\r\nset-cookie: a=b",
        "@evil.example",
        "/console@evil.example",
        "/login",
    ] {
        enter(evil).await.assert_redirect("/console");
        let asked = format!("/login?next={}", crate::gateway::escape(evil));
        gateway.get(&asked).send().await.assert_lacks("name=\"next\"");
    }
}

#[tokio::test]
async fn get_requests_change_nothing() {
    let gateway = ConsoleGateway::with_mail().await;
    let olga = gateway.account("olga", AccountRole::Owner).await;
    let key = gateway.key_of(&olga, "abc", "website").await;
    let cookie = gateway.sign_in("olga").await;
    let before = (gateway.store.accounts().await.unwrap(), gateway.store.audits(99).await.unwrap());
    for route in console::routes().iter().filter(|route| route.method == http::Method::GET) {
        let path = route.path.replace("{id}", "abc").replace("{token}", "x").replace("{*id}", "x");
        let path = path.replace("{identity}", "corp").replace("{name}", "x");
        gateway.get(&path).cookie(&cookie).send().await;
        gateway.ask(http::Method::HEAD, &path).cookie(&cookie).send().await;
    }
    let after = (gateway.store.accounts().await.unwrap(), gateway.store.audits(99).await.unwrap());
    assert_eq!(before, after);
    assert_eq!(gateway.store.key("abc").await.unwrap(), Some(key));
    assert!(gateway.host.no_mail().await);
}

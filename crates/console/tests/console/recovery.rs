//! Password reset by mail, and attempts to learn from it.

use canon::Micros;
use http::StatusCode;
use store::{AccountRole, LinkPurpose};

use crate::gateway::{ConsoleGateway, PASSWORD, SECOND};

const NEW: &str = "four quiet lanterns";
const MINUTE: Micros = Micros::from_secs(60);

async fn asked(gateway: &ConsoleGateway, login: &str) -> crate::gateway::PageReply {
    gateway.post("/reset", &[("login", login)]).send().await
}

#[tokio::test]
async fn reset_link_works_once() {
    let gateway = ConsoleGateway::with_mail().await;
    gateway.account("anna", AccountRole::Member).await;
    let thief = gateway.sign_in("anna").await;
    gateway.get("/login").send().await.assert_contains("Reset Password");
    assert_eq!(asked(&gateway, "ANNA@example.com").await.status, StatusCode::OK);
    let (link, to) = gateway.host.link().await;
    assert_eq!(to, "anna@example.com");
    assert!(link.strip_prefix("/link/").unwrap().len() >= 32, "at least 128 bits: {link}");
    assert_eq!(gateway.store.link(link.as_bytes()).await.unwrap(), None, "stored hashed");

    let cookie = gateway.open(&link, "/reset/new").await;
    gateway.open(&link, "/reset/new").await;
    let page = gateway.get("/reset/new").cookie(&cookie).send().await;
    page.assert_contains("anna");
    assert!(!page.body.contains(link.trim_start_matches("/link/")), "the word is in no page");
    let weak = [("password", "short"), ("again", "short")];
    let got = gateway.post("/reset/new", &weak).cookie(&cookie).send().await;
    assert_eq!(got.status, StatusCode::BAD_REQUEST);
    got.assert_contains("password-wrong");

    let fields = [("password", NEW), ("again", NEW)];
    let got = gateway.post("/reset/new", &fields).cookie(&cookie).send().await;
    got.assert_redirect("/console");
    assert_eq!(gateway.get("/console").cookie(&got.cookie()).send().await.status, 200);
    gateway.get("/console").cookie(&thief).send().await.assert_redirect("/login");
    let again = gateway.post("/reset/new", &fields).cookie(&cookie).send().await;
    assert_eq!(again.status, StatusCode::BAD_REQUEST);
    again.assert_contains("This link does not work");
    assert_eq!(gateway.get(&link).send().await.status, StatusCode::BAD_REQUEST);
    let old = gateway.post("/login", &[("login", "anna"), ("password", PASSWORD)]).send().await;
    assert_eq!(old.status, StatusCode::UNAUTHORIZED);
    let new = gateway.post("/login", &[("login", "anna"), ("password", NEW)]).send().await;
    new.assert_redirect("/console");
    let told = gateway.host.mail().await;
    assert!(told.text.contains("another password"), "{}", told.text);
}

#[tokio::test]
async fn only_one_concurrent_use_of_a_link_succeeds() {
    let gateway = ConsoleGateway::with_mail().await;
    gateway.account("anna", AccountRole::Member).await;
    asked(&gateway, "anna").await;
    let (link, _) = gateway.host.link().await;
    let cookie = gateway.open(&link, "/reset/new").await;
    let fields = [("password", NEW), ("again", NEW)];
    let try_it = || gateway.post("/reset/new", &fields).cookie(&cookie).send();
    let (a, b, c, d) = tokio::join!(try_it(), try_it(), try_it(), try_it());
    let good = [a, b, c, d].iter().filter(|got| got.status == StatusCode::SEE_OTHER).count();
    assert_eq!(good, 1);
}

#[tokio::test]
async fn reset_links_end_by_age_new_password_or_lock() {
    let gateway = ConsoleGateway::with_mail().await;
    let anna = gateway.account("anna", AccountRole::Member).await;
    let link = async || {
        asked(&gateway, "anna").await;
        gateway.host.link().await.0
    };
    let old = link().await;
    gateway.host.clock.pass(30 * MINUTE - SECOND);
    gateway.open(&old, "/reset/new").await;
    gateway.host.clock.pass(SECOND);
    assert_eq!(gateway.get(&old).send().await.status, StatusCode::BAD_REQUEST);

    let before = link().await;
    gateway.store.set_password(&anna.id, Some("x"), Micros::new(1)).await.unwrap();
    assert_eq!(gateway.get(&before).send().await.status, StatusCode::BAD_REQUEST);

    gateway.host.clock.pass(120 * MINUTE);
    let locked = link().await;
    gateway.store.set_disabled(&anna.id, true, Micros::new(1)).await.unwrap();
    assert_eq!(gateway.get(&locked).send().await.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn known_unknown_locked_and_addressless_accounts_get_the_same_answer() {
    let gateway = ConsoleGateway::with_mail().await;
    gateway.account("anna", AccountRole::Member).await;
    let bert = gateway.account("bert", AccountRole::Member).await;
    let cleo = gateway.account("cleo", AccountRole::Member).await;
    gateway.store.set_disabled(&bert.id, true, Micros::new(1)).await.unwrap();
    gateway.store.rename_account(&cleo.id, "cleo", None, Micros::new(1)).await.unwrap();
    let mut answers = Vec::new();
    for login in ["bert", "cleo", "nobody", "nobody@example.com", "anna"] {
        let got = asked(&gateway, login).await;
        answers.push((got.status, got.body));
    }
    answers.dedup();
    assert_eq!(answers.len(), 1);
    assert_eq!(gateway.host.link().await.1, "anna@example.com");
    assert!(gateway.host.no_mail().await);
    assert!(gateway.store.links_for(LinkPurpose::Reset).await.unwrap().len() == 1);
}

#[tokio::test]
async fn mails_are_limited_per_account() {
    let gateway = ConsoleGateway::with_mail().await;
    gateway.account("anna", AccountRole::Member).await;
    let mut held = 0;
    for n in 0..20_u8 {
        for login in ["anna", "anna@example.com", "nobody"] {
            let ask = gateway.post("/reset", &[("login", login)]).from([192, 0, 2, n]);
            held += usize::from(ask.send().await.status == StatusCode::TOO_MANY_REQUESTS);
        }
    }
    assert_eq!(held, 3 * 17, "three each, whether there is such an account or not");
    for _ in 0..3 {
        gateway.host.link().await;
    }
    assert!(gateway.host.no_mail().await, "six were asked for under two names of one account");
}

#[tokio::test]
async fn reset_mail_has_exactly_one_recipient() {
    let gateway = ConsoleGateway::with_mail().await;
    gateway.account("anna", AccountRole::Member).await;
    for login in
        ["anna@example.com,eve@evil.example", "anna@example.com\r\ncc: eve@evil.example", "", "a b"]
    {
        assert_eq!(asked(&gateway, login).await.status, StatusCode::BAD_REQUEST, "{login:?}");
    }
    let twice = [("login", "anna@example.com"), ("login", "eve@evil.example")];
    let got = gateway.post("/reset", &twice).send().await;
    assert_eq!(got.status, StatusCode::BAD_REQUEST);
    assert!(gateway.host.no_mail().await);
}

#[tokio::test]
async fn links_use_the_configured_url() {
    let gateway = ConsoleGateway::with_mail().await;
    gateway.account("anna", AccountRole::Member).await;
    for (name, value) in [
        ("host", "evil.example"),
        ("x-forwarded-host", "evil.example"),
        ("forwarded", "host=evil.example"),
    ] {
        gateway.post("/reset", &[("login", "anna")]).with(name, value).send().await;
        let mail = gateway.host.mail().await;
        assert!(!mail.text.contains("evil") && !mail.html.contains("evil"));
        assert!(mail.text.contains("http://gw.example:8080/link/"), "{}", mail.text);
    }
}

#[tokio::test]
async fn links_work_only_for_their_purpose() {
    let gateway = ConsoleGateway::with_mail().await;
    gateway.account("anna", AccountRole::Owner).await;
    gateway.store.put_setting("signup", "open").await.unwrap();
    asked(&gateway, "anna").await;
    let reset = gateway.open(&gateway.host.link().await.0, "/reset/new").await;
    gateway.post("/signup", &[("email", "new@example.com")]).send().await;
    let signup = gateway.open(&gateway.host.link().await.0, "/signup/new").await;
    let fields = [("username", "mallory"), ("password", NEW), ("again", NEW)];
    for (path, cookie) in [("/signup/new", &reset), ("/confirm", &reset), ("/reset/new", &signup)] {
        let got = gateway.post(path, &fields).cookie(cookie).send().await;
        assert_eq!(got.status, StatusCode::BAD_REQUEST, "{path}");
        got.assert_contains("This link does not work");
    }
    assert_eq!(gateway.store.account_count().await.unwrap(), 1);
}

#[tokio::test]
async fn page_without_mail_names_administrators() {
    let gateway = ConsoleGateway::new().await;
    gateway.account("anna", AccountRole::Member).await;
    gateway.get("/reset").send().await.assert_contains("administrators");
    assert_eq!(asked(&gateway, "anna").await.status, StatusCode::FORBIDDEN);
    assert!(gateway.store.links_for(LinkPurpose::Reset).await.unwrap().is_empty());
    let anna = gateway.store.account_by_login("anna").await.unwrap().unwrap();
    let accounts = console::ConsoleHost::accounts(&*gateway.host);
    let link = accounts.issue_password_link(&admin::Actor::Operator, &anna.id).await.unwrap();
    let cookie = gateway.open(&link, "/reset/new").await;
    let fields = [("password", NEW), ("again", NEW)];
    gateway.post("/reset/new", &fields).cookie(&cookie).send().await.assert_redirect("/console");
}

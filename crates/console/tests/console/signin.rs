//! Sign-in, sign-out and session lifetime.

use canon::Micros;
use http::StatusCode;
use store::AccountRole;

use crate::gateway::{ConsoleGateway, DAY, PASSWORD, SECOND};

#[tokio::test]
async fn session_cookie_is_protected_and_its_token_not_stored() {
    let gateway = ConsoleGateway::at("https://gw.example").await;
    let anna = gateway.account("anna", AccountRole::Owner).await;
    let got = gateway
        .post("/login", &[("login", "ANNA@example.com"), ("password", PASSWORD)])
        .send()
        .await;
    got.assert_redirect("/console");
    let set = got.header("set-cookie");
    assert!(set.starts_with("__Host-portunus="), "{set}");
    for flag in ["HttpOnly", "SameSite=Lax", "Secure", "Path=/", "Max-Age=2592000"] {
        assert!(set.contains(flag), "{flag} {set}");
    }
    assert!(!set.contains("Domain"), "{set}");
    let word = got.cookie().split_once('=').unwrap().1.to_owned();
    assert_eq!(word.len(), 64);
    assert_eq!(gateway.store.session(word.as_bytes()).await.unwrap(), None);
    assert_eq!(gateway.store.drop_sessions_of(&anna.id).await.unwrap(), 1);
    gateway.get("/console").cookie(&got.cookie()).send().await.assert_redirect("/login");

    let plain = ConsoleGateway::new().await;
    plain.account("anna", AccountRole::Owner).await;
    let set = plain.post("/login", &[("login", "anna"), ("password", PASSWORD)]).send().await;
    let set = set.header("set-cookie");
    assert!(set.starts_with("portunus_session=") && !set.contains("Secure"), "{set}");
    assert!(set.contains("HttpOnly") && set.contains("SameSite=Lax"), "{set}");
}

#[tokio::test]
async fn all_failed_sign_ins_look_the_same() {
    let gateway = ConsoleGateway::new().await;
    gateway.account("anna", AccountRole::Member).await;
    let bert = gateway.account("bert", AccountRole::Member).await;
    let cleo = gateway.account("cleo", AccountRole::Member).await;
    gateway.store.set_disabled(&bert.id, true, Micros::new(1)).await.unwrap();
    gateway.store.set_password(&cleo.id, None, Micros::new(1)).await.unwrap();
    let mut bodies = Vec::new();
    for (login, password) in
        [("anna", "not the password"), ("dora", PASSWORD), ("bert", PASSWORD), ("cleo", PASSWORD)]
    {
        let got = gateway.post("/login", &[("login", login), ("password", password)]).send().await;
        assert_eq!(got.status, StatusCode::UNAUTHORIZED, "{login}");
        assert_eq!(got.header("set-cookie"), "");
        got.assert_lacks(password);
        bodies.push(got.body.replace(login, "NAME"));
    }
    bodies.dedup();
    assert_eq!(bodies.len(), 1);
}

#[tokio::test]
async fn eleventh_sign_in_waits_even_with_the_right_password() {
    let gateway = ConsoleGateway::new().await;
    gateway.account("anna", AccountRole::Member).await;
    let attempt = |password: &'static str, from| {
        gateway.post("/login", &[("login", "anna"), ("password", password)]).from(from).send()
    };
    for _ in 0..10 {
        assert_eq!(attempt("wrong wrong wrong", [192, 0, 2, 1]).await.status, 401);
    }
    let held = attempt(PASSWORD, [192, 0, 2, 1]).await;
    assert_eq!(held.status, StatusCode::TOO_MANY_REQUESTS);
    let wait: i64 = held.header("retry-after").parse().unwrap();
    assert!((1..=60).contains(&wait));
    held.assert_contains("Please wait");
    attempt(PASSWORD, [192, 0, 2, 99]).await.assert_redirect("/console");
    gateway.host.clock.pass((wait + 1) * SECOND);
    attempt(PASSWORD, [192, 0, 2, 1]).await.assert_redirect("/console");
}

#[tokio::test]
async fn sign_ins_refused_as_busy_are_not_counted() {
    let gateway = ConsoleGateway::new().await;
    let attempt = |name: String| {
        let fields = [("login", name.as_str()), ("password", "wrong wrong wrong")];
        gateway.post("/login", &fields).from([192, 0, 2, 1]).send()
    };
    // More than the queue holds, fewer than the network may try.
    let names = (0..45).map(|n| format!("n{n}"));
    let replies = futures_util::future::join_all(names.map(&attempt)).await;
    let count = |status| replies.iter().filter(|reply| reply.status == status).count();
    let (counted, busy) = (count(StatusCode::UNAUTHORIZED), count(StatusCode::SERVICE_UNAVAILABLE));
    assert!(busy > 0 && counted + busy == 45, "{counted} {busy}");
    for n in counted..50 {
        assert_eq!(attempt(format!("m{n}")).await.status, StatusCode::UNAUTHORIZED, "{n}");
    }
    assert_eq!(attempt("last".to_owned()).await.status, StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn forwarded_headers_do_not_change_the_client_network() {
    let gateway = ConsoleGateway::new().await;
    let mut held = 0;
    for n in 0..12 {
        let address = format!("10.0.0.{n}");
        let got = gateway
            .post("/login", &[("login", "anna"), ("password", "wrong wrong")])
            .from([192, 0, 2, 1])
            .with("x-forwarded-for", &address)
            .with("x-real-ip", &address)
            .send()
            .await;
        held += usize::from(got.status == StatusCode::TOO_MANY_REQUESTS);
    }
    assert_eq!(held, 2);
}

#[tokio::test]
async fn planted_session_cookie_is_replaced() {
    let gateway = ConsoleGateway::new().await;
    gateway.account("anna", AccountRole::Owner).await;
    let planted = gateway.sign_in("anna").await;
    let got = gateway
        .post("/login", &[("login", "anna"), ("password", PASSWORD)])
        .cookie(&planted)
        .send()
        .await;
    assert_ne!(got.cookie(), planted);
    gateway.get("/console").cookie(&planted).send().await.assert_redirect("/login");
    assert_eq!(gateway.get("/console").cookie(&got.cookie()).send().await.status, 200);
}

#[tokio::test]
async fn signing_out_ends_the_session() {
    let gateway = ConsoleGateway::new().await;
    gateway.account("anna", AccountRole::Owner).await;
    let cookie = gateway.sign_in("anna").await;
    gateway.get("/login").cookie(&cookie).send().await.assert_redirect("/console");
    let got = gateway.post("/logout", &[]).cookie(&cookie).send().await;
    got.assert_redirect("/login");
    assert!(got.header("set-cookie").contains("Max-Age=0"));
    gateway.get("/console").cookie(&cookie).send().await.assert_redirect("/login");
}

#[tokio::test]
async fn session_ends_after_a_week_idle_or_a_month() {
    let gateway = ConsoleGateway::new().await;
    gateway.account("anna", AccountRole::Owner).await;
    let idle = gateway.sign_in("anna").await;
    let busy = gateway.sign_in("anna").await;
    for _ in 0..5 {
        gateway.host.clock.pass(6 * DAY - SECOND);
        let got = gateway.get("/console").cookie(&busy).send().await;
        assert_eq!(got.status, StatusCode::OK);
    }
    gateway.get("/console").cookie(&idle).send().await.assert_redirect("/login");
    gateway.host.clock.pass(6 * SECOND);
    gateway.get("/console").cookie(&busy).send().await.assert_redirect("/login");
}

#[tokio::test]
async fn clock_set_back_revives_no_session() {
    let gateway = ConsoleGateway::new().await;
    gateway.account("anna", AccountRole::Owner).await;
    let cookie = gateway.sign_in("anna").await;
    gateway.host.clock.pass(-DAY);
    gateway.get("/console").cookie(&cookie).send().await.assert_redirect("/login");
}

#[tokio::test]
async fn locking_an_account_ends_its_sessions() {
    let gateway = ConsoleGateway::new().await;
    let anna = gateway.account("anna", AccountRole::Member).await;
    let cookie = gateway.sign_in("anna").await;
    gateway.store.set_disabled(&anna.id, true, Micros::new(1)).await.unwrap();
    gateway.get("/console").cookie(&cookie).send().await.assert_redirect("/login");
}

#[tokio::test]
async fn invalid_forms_are_rejected_before_any_work() {
    let gateway = ConsoleGateway::new().await;
    let long = "x".repeat(1_025);
    let huge = "x".repeat(1_000_000);
    for fields in [
        vec![("login", "anna"), ("password", long.as_str())],
        vec![("login", "anna"), ("password", huge.as_str())],
        vec![("login", long.as_str()), ("password", "x")],
        vec![],
        vec![("login", "anna")],
        vec![("email", "anna"), ("pass", "x")],
    ] {
        let is_huge = fields.iter().any(|(_, value)| *value == huge);
        let got = gateway.post("/login", &fields).send().await;
        let status = if is_huge { StatusCode::PAYLOAD_TOO_LARGE } else { StatusCode::BAD_REQUEST };
        assert_eq!(got.status, status);
        got.assert_contains("<html");
        assert!(got.body.len() < 20_000);
    }
    let json = gateway
        .ask(http::Method::POST, "/login")
        .with("content-type", "application/json")
        .send()
        .await;
    assert_eq!(json.status, StatusCode::BAD_REQUEST);
    json.assert_contains("<html");
}

#[tokio::test]
async fn sql_in_a_login_is_plain_text() {
    let gateway = ConsoleGateway::new().await;
    gateway.account("anna", AccountRole::Owner).await;
    for login in ["' OR '1'='1", "anna'--", "anna\0", "\"; DROP TABLE accounts; --", "%", "_nna"] {
        let got =
            gateway.post("/login", &[("login", login), ("password", "wrong wrong")]).send().await;
        assert_eq!(got.status, StatusCode::UNAUTHORIZED, "{login:?}");
    }
    assert_eq!(gateway.store.account_count().await.unwrap(), 1);
}

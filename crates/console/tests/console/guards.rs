//! Protection of the pages: guards, CSRF, headers, methods.

use console::{Guard, routes};
use http::{Method, StatusCode};
use store::AccountRole;

use crate::gateway::{ConsoleGateway, PASSWORD};

/// A concrete path for a route pattern.
fn filled(path: &str) -> String {
    path.replace("{*id}", "demo-chat")
        .replace("{*path}", "v1/key")
        .replace("{token}", "word")
        .replace("{id}", "nokey")
        .replace("{name}", "x.css")
        .replace("{member}", "nobody")
        .replace("{identity}", "corp")
}

#[tokio::test]
async fn console_without_a_session_redirects_to_sign_in() {
    let gateway = ConsoleGateway::new().await;
    for route in routes() {
        let path = filled(route.path);
        let got = gateway.ask(route.method.clone(), &path).send().await;
        match route.guard {
            Guard::Session | Guard::Proof => {
                assert_eq!(got.status, StatusCode::SEE_OTHER, "{path}");
                let place = got.header("location");
                assert!(
                    place == "/login" || place.starts_with("/login?next=%2Fconsole"),
                    "{place}"
                );
            }
            Guard::Setup => assert_eq!(got.status, StatusCode::NOT_FOUND, "{path}"),
            Guard::Public => assert_ne!(got.header("location"), "/login", "{path}"),
        }
    }
}

#[tokio::test]
async fn invalid_cookies_are_no_session() {
    let gateway = ConsoleGateway::new().await;
    gateway.account("anna", AccountRole::Owner).await;
    let real = gateway.sign_in("anna").await;
    let almost = format!("{}0", real.get(..real.len() - 1).unwrap());
    let almost =
        if almost == real { format!("{}1", real.get(..real.len() - 1).unwrap()) } else { almost };
    for cookie in
        [almost.as_str(), "portunus_session=", "portunus_session=x", "session=1", ";;;", "=;\u{7f}"]
    {
        if let Ok(value) = http::HeaderValue::from_str(cookie) {
            let value = value.to_str().unwrap_or("");
            gateway.get("/console").cookie(value).send().await.assert_redirect("/login");
        }
    }
    assert_eq!(gateway.get("/console").cookie(&real).send().await.status, StatusCode::OK);
}

#[tokio::test]
async fn cross_site_forms_are_rejected() {
    let gateway = ConsoleGateway::new().await;
    let anna = gateway.account("anna", AccountRole::Owner).await;
    gateway.store.put_setting("setup_token", "word").await.unwrap();
    let key = gateway.key_of(&anna, "abc", "website").await;
    let cookie = gateway.sign_in("anna").await;
    let right = [("login", "anna"), ("password", PASSWORD), ("name", "x"), ("unlimited", "yes")];
    let foreign: [&[(&'static str, &str)]; 6] = [
        &[("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "same-site")],
        &[("sec-fetch-site", "cross-site"), ("origin", "https://evil.example")],
        &[("origin", "https://evil.example"), ("host", "gw.example:8080")],
        &[("origin", "null"), ("host", "gw.example:8080")],
        &[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")],
    ];
    for route in routes().iter().filter(|route| route.method == Method::POST) {
        let path = route
            .path
            .replace("{token}", "word")
            .replace("{id}", "abc")
            .replace("{identity}", "corp");
        for headers in foreign {
            let mut ask = gateway.foreign_post(&path, &right).cookie(&cookie);
            for (name, value) in headers {
                ask = ask.with(name, value);
            }
            let got = ask.send().await;
            assert_eq!(got.status, StatusCode::FORBIDDEN, "{path} {headers:?}");
            assert_eq!(got.header("set-cookie"), "");
            got.assert_contains("Sent from another site");
        }
    }
    assert_eq!(gateway.store.key(&key.id).await.unwrap(), Some(key));
    assert_eq!(gateway.store.keys().await.unwrap().len(), 1);
    assert_eq!(gateway.get("/console").cookie(&cookie).send().await.status, StatusCode::OK);
}

#[tokio::test]
async fn own_forms_pass_in_old_and_new_browsers() {
    let gateway = ConsoleGateway::new().await;
    gateway.account("anna", AccountRole::Owner).await;
    let right = [("login", "anna"), ("password", PASSWORD)];
    let own: [&[(&'static str, &str)]; 4] = [
        &[("sec-fetch-site", "same-origin"), ("origin", "http://gw.example:8080")],
        &[("origin", "http://gw.example:8080"), ("host", "inner.proxy")],
        &[("origin", "http://10.0.0.7:8080"), ("host", "10.0.0.7:8080")],
        &[],
    ];
    for headers in own {
        let mut ask = gateway.foreign_post("/login", &right);
        for (name, value) in headers {
            ask = ask.with(name, value);
        }
        ask.send().await.assert_redirect("/console");
    }
}

#[tokio::test]
async fn every_reply_has_the_security_headers() {
    let gateway = ConsoleGateway::new().await;
    gateway.account("anna", AccountRole::Owner).await;
    let cookie = gateway.sign_in("anna").await;
    let mut asks = vec![gateway.get("/nothing/here"), gateway.ask(Method::DELETE, "/console")];
    for route in routes() {
        asks.push(gateway.ask(route.method.clone(), &filled(route.path)).cookie(&cookie));
        asks.push(gateway.ask(route.method.clone(), &filled(route.path)));
    }
    for ask in asks {
        let got = ask.send().await;
        let policy = got.header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'; style-src 'self'; script-src 'self'"));
        assert!(policy.contains("frame-ancestors 'none'") && policy.contains("base-uri 'none'"));
        assert!(!policy.contains("unsafe"));
        assert_eq!(got.header("x-content-type-options"), "nosniff");
        assert_eq!(got.header("referrer-policy"), "same-origin");
        assert_eq!(got.header("cross-origin-opener-policy"), "same-origin");
        assert_eq!(got.header("cross-origin-resource-policy"), "same-origin");
        let permissions = got.header("permissions-policy");
        assert!(permissions.starts_with("publickey-credentials-get=(self), "), "{permissions}");
        assert!(permissions.contains("camera=()") && !permissions.contains('*'));
        assert_ne!(got.header("cache-control"), "");
        let mime = got.header("content-type");
        let json = route_is_json(&got.body) && mime == "application/json";
        assert!(mime.is_empty() || mime.starts_with("text/") || json, "{mime}");
        got.assert_lacks(" style=");
        got.assert_lacks("<style");
        got.assert_lacks(" onclick");
    }
    let console = gateway.get("/console").cookie(&cookie).send().await;
    assert_eq!(console.header("cache-control"), "no-store");
}

/// Passkey challenges are the only replies that are not pages.
fn route_is_json(body: &str) -> bool {
    body.starts_with("{\"challenge\":")
}

#[tokio::test]
async fn wrong_method_is_answered_with_allow() {
    let gateway = ConsoleGateway::new().await;
    for (method, path, allowed) in [
        (Method::PUT, "/login", "GET,HEAD,POST"),
        (Method::POST, "/models", "GET,HEAD"),
        (Method::GET, "/logout", "POST"),
        (Method::DELETE, "/console/keys/x/revoke", "GET,HEAD,POST"),
    ] {
        let got = gateway.ask(method, path).send().await;
        assert_eq!(got.status, StatusCode::METHOD_NOT_ALLOWED, "{path}");
        assert_eq!(got.header("allow"), allowed, "{path}");
        got.assert_contains("<html");
    }
}

#[tokio::test]
async fn host_header_is_ignored() {
    let gateway = ConsoleGateway::new().await;
    gateway.store.put_setting("setup_token", "word").await.unwrap();
    for path in ["/", "/models", "/models/demo-chat", "/login", "/console/setup/word", "/console"] {
        let plain = gateway.get(path).send().await;
        for (name, value) in [
            ("host", "evil.example"),
            ("x-forwarded-host", "evil.example"),
            ("forwarded", "host=evil.example"),
            ("x-original-url", "/console"),
            ("x-rewrite-url", "/console"),
        ] {
            let got = gateway.get(path).with(name, value).send().await;
            assert_eq!((got.status, &got.body), (plain.status, &plain.body), "{path} {name}");
            got.assert_lacks("evil.example");
        }
    }
}

#[tokio::test]
async fn similar_paths_are_not_found() {
    let gateway = ConsoleGateway::new().await;
    for path in [
        "/console/",
        "/console//",
        "/console/%2e%2e/",
        "/Console",
        "/login/",
        "/console/keys/",
        "/console/setup",
        "/console/setup/",
        "/assets/",
        "/assets/..%2fconsole.css",
        "/models/",
        "/console/keys/a/b/revoke",
        "/console;x",
        "/models/%FF%FE",
    ] {
        let got = gateway.get(path).send().await;
        assert_eq!(got.status, StatusCode::NOT_FOUND, "{path}");
        got.assert_contains("Nothing here");
    }
}

#[tokio::test]
async fn administrators_cannot_change_their_peers_or_owners() {
    let gateway = ConsoleGateway::new().await;
    gateway.account("anna", AccountRole::Admin).await;
    let others = [
        ("olga", AccountRole::Owner, 403),
        ("ada", AccountRole::Admin, 403),
        ("max", AccountRole::Member, 303),
    ];
    let mut keys = Vec::new();
    for (name, role, status) in others {
        let account = gateway.account(name, role).await;
        keys.push((gateway.key_of(&account, name, "theirs").await, status));
    }
    let cookie = gateway.sign_in("anna").await;
    for (key, status) in keys {
        let path = format!("/console/keys/{}/revoke", key.id);
        let got = gateway.post(&path, &[]).cookie(&cookie).send().await;
        assert_eq!(got.status.as_u16(), status, "{}", key.id);
        let revoked = gateway.store.key(&key.id).await.unwrap().unwrap().revoked;
        assert_eq!(revoked.is_some(), status == 303, "{}", key.id);
    }
}

#[tokio::test]
async fn an_old_session_does_nothing_dangerous_without_a_proof() {
    let gateway = ConsoleGateway::new().await;
    gateway.account("anna", AccountRole::Owner).await;
    let max = gateway.account("max", AccountRole::Member).await;
    let cookie = gateway.sign_in("anna").await;
    gateway.host.clock.pass(601 * crate::gateway::SECOND);
    let before = gateway.store.audits(100).await.unwrap();
    let mut forms = 0;
    for route in routes().iter().filter(|route| route.guard == Guard::Proof) {
        let path = filled(&route.path.replace("{id}", &max.id));
        let fields = [("role", "owner"), ("locked", "yes"), ("name", "x")];
        let got = match route.method {
            Method::POST => gateway.post(&path, &fields).cookie(&cookie).send().await,
            _ => gateway.get(&path).cookie(&cookie).send().await,
        };
        assert_eq!(got.status, StatusCode::SEE_OTHER, "{path}");
        let place = got.header("location");
        assert!(place.starts_with("/console/account/prove?next=%2Fconsole%2F"), "{path} {place}");
        forms += 1;
    }
    assert!(forms >= 25, "{forms}");
    assert_eq!(gateway.store.audits(100).await.unwrap(), before);
    assert_eq!(gateway.store.account(&max.id).await.unwrap(), Some(max.clone()));

    let role = format!("/console/people/{}/role", max.id);
    let asked = gateway.post(&role, &[("role", "viewer")]).cookie(&cookie).send().await;
    let page = format!("/console/people/{}", max.id);
    let proof = format!("/console/account/prove?next={}", page.replace('/', "%2F"));
    asked.assert_redirect(&proof);
    let fields = [("current", PASSWORD), ("next", page.as_str())];
    let proved = gateway.post("/console/account/prove", &fields).cookie(&cookie).send().await;
    proved.assert_redirect(&page);
    let done = gateway.post(&role, &[("role", "viewer")]).cookie(&cookie).send().await;
    assert_eq!(done.status, StatusCode::SEE_OTHER, "{}", done.body);
    let role = gateway.store.account(&max.id).await.unwrap().unwrap().role;
    assert_eq!(role, AccountRole::Viewer);
}

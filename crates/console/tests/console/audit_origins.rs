//! Every line of the audit log names the address and the browser, and refused sign-ins leave lines.

use http::StatusCode;
use store::{AccountRole, AuditFilter, AuditRecord};

use crate::factors::{add_app, begin, with_passkey};
use crate::fake_passkey::FakePasskey;
use crate::gateway::{ConsoleGateway, PASSWORD, SECOND};

async fn refused(gateway: &ConsoleGateway) -> Vec<AuditRecord> {
    let action = Some("session.refuse".to_owned());
    let filter = AuditFilter { action, ..AuditFilter::default() };
    gateway.store.audits_of(&filter, 100).await.unwrap()
}

#[tokio::test]
async fn lines_name_the_address_and_the_agent() {
    let gateway = ConsoleGateway::new().await;
    gateway.account("anna", AccountRole::Owner).await;
    let fields = [("login", "anna"), ("password", PASSWORD)];
    let form = gateway.post("/login", &fields).from([192, 0, 2, 1]);
    let cookie = form.with("user-agent", "Browser/1").send().await.cookie();
    let fields = [("name", "robot"), ("unlimited", "yes")];
    let form = gateway.post("/console/keys", &fields).cookie(&cookie).from([192, 0, 2, 2]);
    let made = form.with("user-agent", &"y".repeat(300)).send().await;
    assert_eq!(made.status, StatusCode::OK, "{}", made.body);
    let lines = gateway.store.audits(10).await.unwrap();
    let find = |action: &str| lines.iter().find(|line| line.action == action).unwrap();
    let start = find("session.start");
    assert_eq!(
        (start.address.as_deref(), start.agent.as_deref()),
        (Some("192.0.2.1"), Some("Browser/1"))
    );
    let create = find("key.create");
    assert_eq!(create.address.as_deref(), Some("192.0.2.2"));
    assert_eq!(create.agent.as_deref(), Some("y".repeat(200).as_str()));
    let page = gateway.get("/console/audit").cookie(&cookie).send().await;
    page.assert_contains("title=\"Browser/1\">192.0.2.1</bdi>");
    let csv = gateway.get("/console/audit.csv").cookie(&cookie).send().await;
    csv.assert_contains(",192.0.2.1,Browser/1\r\n");
}

#[tokio::test]
async fn refused_sign_ins_leave_one_line_without_the_typed_text() {
    let gateway = ConsoleGateway::new().await;
    let anna = gateway.account("anna", AccountRole::Owner).await;
    let attempt = async |login: &str, password: &str| {
        let fields = [("login", login), ("password", password)];
        let form = gateway.post("/login", &fields).from([192, 0, 2, 1]);
        form.with("user-agent", "Browser/1").send().await.status
    };
    assert_eq!(attempt("anna", "secret typed wrong").await, StatusCode::UNAUTHORIZED);
    assert_eq!(attempt("secret as a name", PASSWORD).await, StatusCode::UNAUTHORIZED);
    let lines = refused(&gateway).await;
    let seen: Vec<_> = lines
        .iter()
        .map(|line| (&*line.actor, &*line.subject, &*line.detail, line.address.as_deref()))
        .collect();
    let address = Some("192.0.2.1");
    assert_eq!(
        seen,
        [("anonymous", "", "password", address), ("anonymous", &*anna.id, "password", address)]
    );
    assert!(lines.iter().all(|line| line.agent.as_deref() == Some("Browser/1")));
    assert!(!format!("{lines:?}").contains("secret"), "{lines:?}");
}

#[tokio::test]
async fn refused_codes_passkeys_and_proofs_leave_lines() {
    let gateway = ConsoleGateway::new().await;
    let anna = gateway.account("anna", AccountRole::Owner).await;
    let cookie = gateway.sign_in("anna").await;
    add_app(&gateway, &cookie).await;
    let fields = [("login", "anna"), ("password", PASSWORD)];
    let pending = gateway.post("/login", &fields).send().await.cookie();
    gateway.post("/login/second", &[("code", "000000")]).cookie(&pending).send().await;
    gateway.host.clock.pass(601 * SECOND);
    let wrong = [("current", "wrong wrong"), ("next", "/console/account")];
    gateway.post("/console/account/prove", &wrong).cookie(&cookie).send().await;
    let new = "four quiet lanterns";
    let wrong = [("current", "wrong wrong"), ("password", new), ("again", new)];
    gateway.post("/console/account/password", &wrong).cookie(&cookie).send().await;
    gateway.post("/login/passkey", &[("id", "x")]).send().await;
    let lines = refused(&gateway).await;
    let seen: Vec<_> =
        lines.iter().map(|line| (&*line.actor, &*line.subject, &*line.detail)).collect();
    assert_eq!(
        seen,
        [
            ("anonymous", "", "passkey"),
            (&*anna.id, &*anna.id, "password"),
            (&*anna.id, &*anna.id, "password"),
            ("anonymous", &*anna.id, "code"),
        ]
    );
}

#[tokio::test]
async fn lines_of_refused_passkeys_are_bounded_but_passkeys_are_not() {
    let gateway = ConsoleGateway::new().await;
    let mut passkey = FakePasskey::new(1);
    with_passkey(&gateway, "anna", &passkey).await;
    for _ in 0..60 {
        let got = gateway.post("/login/passkey", &[("id", "x")]).send().await;
        assert_eq!(got.status, StatusCode::FORBIDDEN);
    }
    assert_eq!(refused(&gateway).await.len(), 20);
    let begun = begin(&gateway, "/login/passkey/begin", "").await;
    let got =
        crate::fake_passkey::send(&gateway, "/login/passkey", &passkey.sign(&begun), "").await;
    got.assert_redirect("/console");
}

//! Second factors: TOTP codes, recovery codes and passkeys, and attempts to avoid them.

use aws_lc_rs::hmac;
use canon::Micros;
use http::StatusCode;
use store::{AccountRole, Factor, FactorKind, SealedSecret};

use crate::fake_passkey::{FakePasskey, send};
use crate::gateway::{ConsoleGateway, PASSWORD, PageReply, SECOND};

/// Code an authenticator app shows at a time.
fn code(secret: &str, at: Micros) -> String {
    let letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let bits: String =
        secret.chars().map(|c| format!("{:05b}", letters.find(c).unwrap())).collect();
    let bytes: Vec<u8> = bits
        .as_bytes()
        .chunks_exact(8)
        .map(|eight| u8::from_str_radix(std::str::from_utf8(eight).unwrap(), 2).unwrap())
        .collect();
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &bytes);
    let tag = hmac::sign(&key, &(at.as_secs() / 30).to_be_bytes());
    let tag = tag.as_ref();
    let offset = usize::from(tag[19] & 15);
    let four: [u8; 4] = tag[offset..offset + 4].try_into().unwrap();
    format!("{:06}", (u32::from_be_bytes(four) & 0x7fff_ffff) % 1_000_000)
}

fn now(gateway: &ConsoleGateway) -> Micros {
    ledger::Clock::now(&*gateway.host.clock)
}

/// Adds an authenticator app; returns its secret and the recovery codes.
pub(crate) async fn add_app(gateway: &ConsoleGateway, cookie: &str) -> (String, Vec<String>) {
    let page = gateway.get("/console/account/totp").cookie(cookie).send().await;
    page.assert_contains("<svg class=\"qr\"");
    let secret = page.body.split("name=\"secret\" value=\"").nth(1).unwrap();
    let secret = secret.split('"').next().unwrap().to_owned();
    let fields = [("secret", secret.as_str()), ("code", &code(&secret, now(gateway)))];
    let got = gateway.post("/console/account/totp", &fields).cookie(cookie).send().await;
    assert_eq!(got.status, StatusCode::OK, "{}", got.body);
    let codes = got.body.split("<code id=\"codes\">").nth(1).unwrap();
    let codes = codes.split('<').next().unwrap().lines().map(str::to_owned).collect();
    (secret, codes)
}

/// Re-authenticates a session with the password.
async fn prove(gateway: &ConsoleGateway, cookie: &str) {
    let fields = [("current", PASSWORD), ("next", "/console/account")];
    let got = gateway.post("/console/account/prove", &fields).cookie(cookie).send().await;
    got.assert_redirect("/console/account");
}

/// Cookie of a browser that passed the first step.
async fn pending_cookie(gateway: &ConsoleGateway) -> String {
    let got = gateway.post("/login", &[("login", "anna"), ("password", PASSWORD)]).send().await;
    got.assert_redirect("/login/second");
    assert!(!got.header("set-cookie").contains("portunus_session"));
    got.cookie()
}

async fn second(gateway: &ConsoleGateway, cookie: &str, code: &str) -> PageReply {
    gateway.post("/login/second", &[("code", code)]).cookie(cookie).send().await
}

#[tokio::test]
async fn totp_code_is_required_and_works_once() {
    let gateway = ConsoleGateway::new().await;
    gateway.account("anna", AccountRole::Member).await;
    let (secret, _) = add_app(&gateway, &gateway.sign_in("anna").await).await;
    let half = pending_cookie(&gateway).await;
    gateway.get("/console").cookie(&half).send().await.assert_redirect("/login");
    let used = code(&secret, now(&gateway));
    let got = second(&gateway, &half, &used).await;
    assert_eq!(got.status, StatusCode::UNAUTHORIZED, "it was used to add the app");
    gateway.host.clock.pass(30 * SECOND);
    let fresh = code(&secret, now(&gateway));
    let got = second(&gateway, &half, &fresh).await;
    got.assert_redirect("/console");
    assert_eq!(gateway.get("/console").cookie(&got.cookie()).send().await.status, 200);
    let replay = second(&gateway, &half, &fresh).await;
    assert_eq!(replay.status, StatusCode::BAD_REQUEST, "the first step is used up too");
    let other = pending_cookie(&gateway).await;
    assert_eq!(second(&gateway, &other, &fresh).await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn code_guesses_are_throttled() {
    let gateway = ConsoleGateway::new().await;
    gateway.account("anna", AccountRole::Member).await;
    let (secret, _) = add_app(&gateway, &gateway.sign_in("anna").await).await;
    gateway.host.clock.pass(3_600 * SECOND);
    let half = pending_cookie(&gateway).await;
    for _ in 0..5 {
        assert_eq!(second(&gateway, &half, "000000").await.status, StatusCode::UNAUTHORIZED);
    }
    let right = code(&secret, now(&gateway));
    let held = second(&gateway, &half, &right).await;
    assert_eq!(held.status, StatusCode::TOO_MANY_REQUESTS);
    gateway.host.clock.pass(700 * SECOND);
    let stale = second(&gateway, &half, &code(&secret, now(&gateway))).await;
    assert_eq!(stale.status, StatusCode::BAD_REQUEST, "the first step ended");
    let half = pending_cookie(&gateway).await;
    second(&gateway, &half, &code(&secret, now(&gateway))).await.assert_redirect("/console");
}

#[tokio::test]
async fn recovery_code_works_once() {
    let gateway = ConsoleGateway::new().await;
    let anna = gateway.account("anna", AccountRole::Member).await;
    let (_, codes) = add_app(&gateway, &gateway.sign_in("anna").await).await;
    assert_eq!(codes.len(), 10);
    let half = pending_cookie(&gateway).await;
    second(&gateway, &half, &codes[3].to_uppercase()).await.assert_redirect("/console");
    let half = pending_cookie(&gateway).await;
    assert_eq!(second(&gateway, &half, &codes[3]).await.status, StatusCode::UNAUTHORIZED);
    let factors = gateway.store.factors_of(&anna.id).await.unwrap();
    assert_eq!(factors.iter().filter(|f| f.kind == FactorKind::Recovery).count(), 9);
    assert!(
        factors.iter().all(|factor| !codes.iter().any(|code| code.as_bytes() == factor.secret))
    );
}

#[tokio::test]
async fn totp_secrets_are_sealed_and_legacy_ones_on_use() {
    let gateway = ConsoleGateway::new().await;
    let anna = gateway.account("anna", AccountRole::Member).await;
    let (secret, _) = add_app(&gateway, &gateway.sign_in("anna").await).await;
    let app = || async {
        let factors = gateway.store.factors_of(&anna.id).await.unwrap();
        factors.into_iter().find(|factor| factor.kind == FactorKind::Totp).unwrap()
    };
    let kept = app().await;
    let sealed = SealedSecret { by: kept.sealed_by.clone().unwrap(), bytes: kept.secret.clone() };
    let open = gateway.host.admin.vault.open(&kept.label(), &sealed).unwrap();
    assert_eq!(open.len(), 20);
    assert!(!sealed.bytes.windows(8).any(|some| open.windows(8).any(|other| some == other)));
    // A factor as stored before the vault existed.
    assert!(gateway.store.drop_factor(&anna.id, &kept.id).await.unwrap());
    let plain = Factor { secret: open.clone(), sealed_by: None, ..kept };
    gateway.store.add_factor(&plain).await.unwrap();
    for _ in 0..2 {
        gateway.host.clock.pass(60 * SECOND);
        let half = pending_cookie(&gateway).await;
        second(&gateway, &half, &code(&secret, now(&gateway))).await.assert_redirect("/console");
        assert!(app().await.sealed_by.is_some() && app().await.secret != open);
    }
}

#[tokio::test]
async fn adding_and_removing_an_app_needs_the_password() {
    let gateway = ConsoleGateway::new().await;
    let anna = gateway.account("anna", AccountRole::Member).await;
    gateway.account("bert", AccountRole::Member).await;
    let cookie = gateway.sign_in("anna").await;
    let secret = "A".repeat(32);
    let fields = [("secret", secret.as_str()), ("code", "000000")];
    let got = gateway.post("/console/account/totp", &fields).cookie(&cookie).send().await;
    assert_eq!(got.status, 400);
    gateway.host.clock.pass(601 * SECOND);
    let right = code(&secret, now(&gateway));
    let fields = [("secret", secret.as_str()), ("code", &right)];
    let got = gateway.post("/console/account/totp", &fields).cookie(&cookie).send().await;
    got.assert_redirect("/console/account/prove?next=%2Fconsole%2Faccount%2Ftotp");
    assert!(gateway.store.factors_of(&anna.id).await.unwrap().is_empty());
    prove(&gateway, &cookie).await;
    add_app(&gateway, &cookie).await;
    let factors = gateway.store.factors_of(&anna.id).await.unwrap();
    let app = factors.iter().find(|factor| factor.kind == FactorKind::Totp).unwrap();
    let path = format!("/console/account/factors/{}/remove", app.id);
    let as_bert = gateway.sign_in("bert").await;
    assert_eq!(gateway.post(&path, &[]).cookie(&as_bert).send().await.status, 404);
    gateway.host.clock.pass(601 * SECOND);
    let got = gateway.post(&path, &[]).cookie(&cookie).send().await;
    got.assert_redirect("/console/account/prove?next=%2Fconsole%2Faccount");
    prove(&gateway, &cookie).await;
    let got = gateway.post(&path, &[]).cookie(&cookie).send().await;
    got.assert_redirect("/console/account?told=factor");
    assert!(gateway.store.factors_of(&anna.id).await.unwrap().is_empty(), "codes go too");
    gateway.sign_in("anna").await;
}

#[tokio::test]
async fn password_reset_does_not_skip_the_second_factor() {
    let gateway = ConsoleGateway::with_mail().await;
    gateway.account("anna", AccountRole::Member).await;
    add_app(&gateway, &gateway.sign_in("anna").await).await;
    gateway.host.mail().await;
    gateway.post("/reset", &[("login", "anna")]).send().await;
    let browser = gateway.open(&gateway.host.link().await.0, "/reset/new").await;
    let fields = [("password", "four quiet lanterns"), ("again", "four quiet lanterns")];
    let got = gateway.post("/reset/new", &fields).cookie(&browser).send().await;
    got.assert_redirect("/login/second");
}

pub(crate) async fn begin(gateway: &ConsoleGateway, path: &str, cookie: &str) -> PageReply {
    let got = gateway.post(path, &[]).cookie(cookie).send().await;
    assert_eq!(got.header("content-type"), "application/json", "{}", got.body);
    got
}

const BEGIN_NEW: &str = "/console/account/passkeys/begin";
const NEW: &str = "/console/account/passkeys";
const BEGIN: &str = "/login/passkey/begin";
const ENTER: &str = "/login/passkey";

pub(crate) async fn with_passkey(
    gateway: &ConsoleGateway,
    name: &str,
    device: &FakePasskey,
) -> String {
    gateway.account(name, AccountRole::Member).await;
    let cookie = gateway.sign_in(name).await;
    let begun = begin(gateway, BEGIN_NEW, &cookie).await;
    let got = send(gateway, NEW, &device.make(&begun), &cookie).await;
    assert_eq!(got.status, StatusCode::OK, "{}", got.body);
    got.assert_contains("recovery codes");
    cookie
}

#[tokio::test]
async fn passkey_signs_in_alone_and_as_second_factor() {
    let gateway = ConsoleGateway::new().await;
    let mut device = FakePasskey::new(1);
    with_passkey(&gateway, "anna", &device).await;
    let begun = begin(&gateway, BEGIN, "").await;
    let answer = device.sign(&begun);
    let got = send(&gateway, ENTER, &answer, "").await;
    got.assert_redirect("/console");
    gateway.get("/console").cookie(&got.cookie()).send().await.assert_contains("anna");
    let replayed = send(&gateway, ENTER, &answer, "").await;
    assert_eq!(replayed.status, StatusCode::FORBIDDEN);

    let half = pending_cookie(&gateway).await;
    gateway.get("/login/second").cookie(&half).send().await.assert_contains("Use your passkey");
    let begun = begin(&gateway, "/login/second/passkey/begin", &half).await;
    assert!(begun.body.contains(&device.id()));
    device.flags = 0x01;
    let got = send(&gateway, "/login/second/passkey", &device.sign(&begun), &half).await;
    got.assert_redirect("/console");
}

#[tokio::test]
async fn invalid_passkey_responses_are_rejected() {
    let gateway = ConsoleGateway::new().await;
    let mut device = FakePasskey::new(1);
    let cookie = with_passkey(&gateway, "anna", &device).await;
    let other = FakePasskey::new(2);
    type Spoil = fn(&mut FakePasskey);
    let spoil: [(&str, Spoil); 5] = [
        ("another site", |device| device.origin = "https://evil.example"),
        ("another host", |device| device.place = "evil.example"),
        ("nobody there", |device| device.flags = 0x04),
        ("nobody verified", |device| device.flags = 0x01),
        ("a copied device", |device| device.count = 0),
    ];
    let begun = begin(&gateway, BEGIN, "").await;
    device.count = 10;
    send(&gateway, ENTER, &device.sign(&begun), "").await.assert_redirect("/console");
    for (why, spoil) in spoil {
        let begun = begin(&gateway, BEGIN, "").await;
        let (origin, place, flags, count) =
            (device.origin, device.place, device.flags, device.count);
        spoil(&mut device);
        let got = send(&gateway, ENTER, &device.sign(&begun), "").await;
        assert_eq!(got.status, StatusCode::FORBIDDEN, "{why}");
        assert_eq!(got.header("set-cookie"), "", "{why}");
        (device.origin, device.place, device.flags, device.count) =
            (origin, place, flags, count + 1);
    }
    let mut forged = FakePasskey::new(1);
    forged.count = 100;
    let begun = begin(&gateway, BEGIN, "").await;
    assert_eq!(send(&gateway, ENTER, &forged.sign(&begun), "").await.status, 403, "another key");
    let begun = begin(&gateway, BEGIN_NEW, &cookie).await;
    assert_eq!(send(&gateway, ENTER, &device.sign(&begun), "").await.status, 403, "another deed");
    let begun = begin(&gateway, BEGIN, "").await;
    gateway.host.clock.pass(601 * SECOND);
    assert_eq!(send(&gateway, ENTER, &device.sign(&begun), "").await.status, 403, "too late");
    let nothing = gateway.post(ENTER, &[("id", "x")]).send().await;
    assert_eq!(nothing.status, StatusCode::FORBIDDEN);
    prove(&gateway, &cookie).await;
    let begun = begin(&gateway, BEGIN_NEW, &cookie).await;
    let mut answer = other.make(&begun);
    answer[4].1 = "-65535".to_owned();
    let got = send(&gateway, NEW, &answer, &cookie).await;
    assert_eq!(got.status, StatusCode::BAD_REQUEST, "an algorithm nobody asked for");
}

#[tokio::test]
async fn passkey_of_another_account_is_rejected() {
    let gateway = ConsoleGateway::new().await;
    let anna = FakePasskey::new(1);
    with_passkey(&gateway, "anna", &anna).await;
    let mut bert = FakePasskey::new(2);
    let as_bert = with_passkey(&gateway, "bert", &bert).await;
    let half = pending_cookie(&gateway).await;
    for fields in [vec![], vec![("code", "passkey")], vec![("method", "passkey"), ("code", " ")]] {
        let got = gateway.post("/login/second", &fields).cookie(&half).send().await;
        assert!([400, 401].contains(&got.status.as_u16()));
    }
    let begun = begin(&gateway, "/login/second/passkey/begin", &half).await;
    let got = send(&gateway, "/login/second/passkey", &bert.sign(&begun), &half).await;
    assert_eq!(got.status, StatusCode::UNAUTHORIZED);
    let begun = begin(&gateway, BEGIN, "").await;
    let got = send(&gateway, "/login/second/passkey", &bert.sign(&begun), &half).await;
    assert_eq!(got.status, StatusCode::UNAUTHORIZED, "a challenge for nobody in particular");
    let begun = begin(&gateway, BEGIN_NEW, &as_bert).await;
    let got = send(&gateway, NEW, &anna.make(&begun), &as_bert).await;
    assert_eq!(got.status, StatusCode::BAD_REQUEST, "a passkey that is another's");
}

#[tokio::test]
async fn sign_in_methods_need_a_recent_proof() {
    let gateway = ConsoleGateway::with_mail().await;
    gateway.account("anna", AccountRole::Member).await;
    let cookie = gateway.sign_in("anna").await;
    let there = gateway.sign_in("anna").await;
    let changes = [
        BEGIN_NEW,
        NEW,
        "/console/account/email",
        "/console/account/recovery",
        "/console/account/identities/corp",
        "/console/account/identities/remove",
    ];
    gateway.get("/console/account").cookie(&cookie).send().await.assert_lacks("It is me");
    gateway.host.clock.pass(601 * SECOND);
    let page = gateway.get("/console/account").cookie(&cookie).send().await;
    page.assert_contains("It is me");
    for hidden in ["/console/account/passkeys", "/console/account/totp", "/console/account/email"] {
        page.assert_lacks(&format!("{hidden}\""));
    }
    for path in changes {
        let got = gateway.post(path, &[]).cookie(&cookie).send().await;
        got.assert_redirect("/console/account/prove?next=%2Fconsole%2Faccount");
    }
    gateway
        .get("/console/account/totp")
        .cookie(&cookie)
        .send()
        .await
        .assert_redirect("/console/account/prove?next=%2Fconsole%2Faccount%2Ftotp");
    let wrong = [("current", "wrong wrong"), ("next", "/console/account")];
    let got = gateway.post("/console/account/prove", &wrong).cookie(&cookie).send().await;
    assert_eq!(got.status, StatusCode::FORBIDDEN);
    got.assert_contains("current-wrong");
    let away = [("current", PASSWORD), ("next", "https://evil.example")];
    let got = gateway.post("/console/account/prove", &away).cookie(&cookie).send().await;
    got.assert_redirect("/console/account");
    begin(&gateway, BEGIN_NEW, &cookie).await;
    let got = gateway.post(BEGIN_NEW, &[]).cookie(&there).send().await;
    got.assert_redirect("/console/account/prove?next=%2Fconsole%2Faccount");
    gateway.host.clock.pass(601 * SECOND);
    let got = gateway.post(BEGIN_NEW, &[]).cookie(&cookie).send().await;
    got.assert_redirect("/console/account/prove?next=%2Fconsole%2Faccount");
    for _ in 0..4 {
        gateway.post("/console/account/prove", &wrong).cookie(&cookie).send().await;
    }
    gateway.post("/console/account/prove", &wrong).cookie(&cookie).send().await;
    let held = gateway.post("/console/account/prove", &away).cookie(&cookie).send().await;
    assert_eq!(held.status, StatusCode::TOO_MANY_REQUESTS, "guessing has an end");
}

#[tokio::test]
async fn passkey_or_code_proves_identity_without_a_password() {
    let gateway = ConsoleGateway::new().await;
    let mut device = FakePasskey::new(1);
    let cookie = with_passkey(&gateway, "anna", &device).await;
    let anna = gateway.store.account_by_login("anna").await.unwrap().unwrap();
    // Ends the session too, so only the passkey remains.
    gateway.store.set_password(&anna.id, None, now(&gateway)).await.unwrap();
    gateway.get("/console").cookie(&cookie).send().await.assert_redirect("/login");
    let begun = begin(&gateway, BEGIN, "").await;
    let cookie = send(&gateway, ENTER, &device.sign(&begun), "").await.cookie();
    gateway.host.clock.pass(601 * SECOND);
    let page = gateway.get("/console/account/prove").cookie(&cookie).send().await;
    page.assert_contains("Use your passkey");
    page.assert_lacks("name=\"current\"");
    let empty = gateway.post("/console/account/prove", &[("current", "")]).cookie(&cookie);
    assert_eq!(empty.send().await.status, StatusCode::FORBIDDEN, "no password is no proof");
    let path = "/console/account/prove/passkey";
    let begun = begin(&gateway, &format!("{path}/begin"), &cookie).await;
    let other = FakePasskey::new(2).sign(&begun);
    assert_eq!(send(&gateway, path, &other, &cookie).await.status, StatusCode::FORBIDDEN);
    let begun = begin(&gateway, &format!("{path}/begin"), &cookie).await;
    device.count += 1;
    send(&gateway, path, &device.sign(&begun), &cookie).await.assert_redirect("/console/account");
    let got = gateway.post("/console/account/recovery", &[]).cookie(&cookie).send().await;
    let codes = got.body.split("<code id=\"codes\">").nth(1).unwrap();
    let code = codes.lines().next().unwrap().to_owned();
    gateway.host.clock.pass(601 * SECOND);
    let prove = async |code: &str| {
        gateway.post("/console/account/prove", &[("code", code)]).cookie(&cookie).send().await
    };
    assert_eq!(prove("000000").await.status, StatusCode::FORBIDDEN);
    prove(&code).await.assert_redirect("/console/account");
    gateway.host.clock.pass(601 * SECOND);
    assert_eq!(prove(&code).await.status, StatusCode::FORBIDDEN, "a recovery code is good once");
}

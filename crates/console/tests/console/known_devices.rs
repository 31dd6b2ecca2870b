//! Guessing slows down strangers only: known browsers and passkeys get in.

use http::StatusCode;
use store::{AccountRole, KnownDevice, LinkPurpose};

use crate::factors::{begin, with_passkey};
use crate::fake_passkey::{FakePasskey, send};
use crate::gateway::{ConsoleGateway, DAY, PASSWORD, PageReply};

const DEVICE: &str = "portunus_device";
const WRONG: &str = "wrong wrong wrong";

/// Signs in from an address with a device cookie, which may be empty.
async fn attempt(
    gateway: &ConsoleGateway,
    login: &str,
    password: &str,
    from: [u8; 4],
    device: &str,
) -> PageReply {
    let form = gateway.post("/login", &[("login", login), ("password", password)]);
    form.from(from).cookie(device).send().await
}

/// Guesses from ten networks until all of them wait.
async fn guess(gateway: &ConsoleGateway, login: &str) {
    for network in 1..=10 {
        for _ in 0..10 {
            let got = attempt(gateway, login, WRONG, [198, 51, 100, network], "").await;
            assert_eq!(got.status, StatusCode::UNAUTHORIZED);
        }
    }
}

#[tokio::test]
async fn right_password_from_a_known_device_gets_in_while_strangers_wait() {
    let gateway = ConsoleGateway::new().await;
    gateway.account("anna", AccountRole::Owner).await;
    gateway.account("bert", AccountRole::Member).await;
    let home = [192, 0, 2, 1];
    let first = attempt(&gateway, "anna", PASSWORD, home, "").await;
    let device = first.cookie_named(DEVICE);
    assert_eq!(device.len(), DEVICE.len() + 1 + 64);
    let other = attempt(&gateway, "bert", PASSWORD, home, "").await.cookie_named(DEVICE);
    guess(&gateway, "anna").await;
    for (who, cookie) in [("nobody", ""), ("another's", other.as_str())] {
        let held = attempt(&gateway, "anna", PASSWORD, home, cookie).await;
        assert_eq!(held.status, StatusCode::TOO_MANY_REQUESTS, "{who} device");
    }
    let network = [198, 51, 100, 1];
    let got = attempt(&gateway, "anna", PASSWORD, network, &device).await;
    got.assert_redirect("/console");
    let held = attempt(&gateway, "anna", PASSWORD, home, "").await;
    assert_eq!(held.status, StatusCode::TOO_MANY_REQUESTS, "strangers gain nothing by it");
    let held = attempt(&gateway, "anna", PASSWORD, home, &device).await;
    assert_eq!(held.status, StatusCode::TOO_MANY_REQUESTS, "each sign-in brings a new token");
}

#[tokio::test]
async fn a_known_device_guesses_no_faster() {
    let gateway = ConsoleGateway::new().await;
    gateway.account("anna", AccountRole::Owner).await;
    let home = [192, 0, 2, 1];
    let device = attempt(&gateway, "anna", PASSWORD, home, "").await.cookie_named(DEVICE);
    for place in 1..=10 {
        let got = attempt(&gateway, "anna", WRONG, [198, 51, 100, place], &device).await;
        assert_eq!(got.status, StatusCode::UNAUTHORIZED);
    }
    let held = attempt(&gateway, "anna", PASSWORD, [198, 51, 100, 11], &device).await;
    assert_eq!(held.status, StatusCode::TOO_MANY_REQUESTS);
    attempt(&gateway, "anna", PASSWORD, home, "").await.assert_redirect("/console");
}

#[tokio::test]
async fn two_people_can_share_a_known_device() {
    let gateway = ConsoleGateway::new().await;
    let anna = gateway.account("anna", AccountRole::Owner).await;
    let bert = gateway.account("bert", AccountRole::Member).await;
    let home = [192, 0, 2, 1];
    let device = attempt(&gateway, "anna", PASSWORD, home, "").await.cookie_named(DEVICE);
    let device = attempt(&gateway, "bert", PASSWORD, home, &device).await.cookie_named(DEVICE);
    let hash = admin::random::digest(device.split_once('=').unwrap().1);
    for account in [&anna, &bert] {
        assert!(gateway.store.device_seen(&hash, &account.id).await.unwrap().is_some());
    }
}

#[tokio::test]
async fn a_device_is_forgotten_with_the_password_the_sessions_and_time() {
    let gateway = ConsoleGateway::new().await;
    let anna = gateway.account("anna", AccountRole::Owner).await;
    let home = [192, 0, 2, 1];
    for how in ["password", "sessions", "lock", "time"] {
        let device = attempt(&gateway, "anna", PASSWORD, home, "").await.cookie_named(DEVICE);
        let now = ledger::Clock::now(&*gateway.host.clock);
        match how {
            "password" => {
                let hash = anna.password_hash.as_deref();
                gateway.store.set_password(&anna.id, hash, now).await.unwrap();
            }
            "sessions" => {
                gateway.store.drop_sessions_of(&anna.id).await.unwrap();
            }
            "lock" => {
                gateway.store.set_disabled(&anna.id, true, now).await.unwrap();
                gateway.store.set_disabled(&anna.id, false, now).await.unwrap();
            }
            _ => gateway.host.clock.pass(181 * DAY),
        }
        for _ in 0..10 {
            attempt(&gateway, "anna", WRONG, [198, 51, 100, 1], "").await;
        }
        let held = attempt(&gateway, "anna", PASSWORD, [198, 51, 100, 1], &device).await;
        assert_eq!(held.status, StatusCode::TOO_MANY_REQUESTS, "{how}");
        gateway.host.clock.pass(DAY);
    }
}

#[tokio::test]
async fn a_passkey_gets_in_while_every_password_waits() {
    let gateway = ConsoleGateway::new().await;
    let mut passkey = FakePasskey::new(1);
    with_passkey(&gateway, "anna", &passkey).await;
    guess(&gateway, "anna").await;
    // The network of the passkey is full as well: requests without an address share one.
    for n in 0..50 {
        let fields = [("login", format!("n{n}")), ("password", WRONG.to_owned())];
        let fields = fields.each_ref().map(|(name, value)| (*name, value.as_str()));
        gateway.post("/login", &fields).send().await;
    }
    let held = gateway.post("/login", &[("login", "anna"), ("password", PASSWORD)]).send().await;
    assert_eq!(held.status, StatusCode::TOO_MANY_REQUESTS);
    let begun = begin(&gateway, "/login/passkey/begin", "").await;
    let got = send(&gateway, "/login/passkey", &passkey.sign(&begun), "").await;
    got.assert_redirect("/console");
}

#[tokio::test]
async fn open_challenges_of_a_network_are_bounded() {
    let gateway = ConsoleGateway::new().await;
    let mut passkey = FakePasskey::new(1);
    with_passkey(&gateway, "anna", &passkey).await;
    let elsewhere = gateway.post("/login/passkey/begin", &[]).from([192, 0, 2, 9]).send().await;
    for _ in 0..120 {
        begin(&gateway, "/login/passkey/begin", "").await;
    }
    let open = gateway.store.links_for(LinkPurpose::Challenge).await.unwrap().len();
    assert!(open <= 52, "{open}");
    let got = send(&gateway, "/login/passkey", &passkey.sign(&elsewhere), "").await;
    got.assert_redirect("/console");
}

#[tokio::test]
async fn planted_device_cookie_is_replaced() {
    let gateway = ConsoleGateway::new().await;
    let anna = gateway.account("anna", AccountRole::Owner).await;
    let planted = format!("{DEVICE}={}", "a".repeat(64));
    let got = attempt(&gateway, "anna", PASSWORD, [192, 0, 2, 1], &planted).await;
    assert_ne!(got.cookie_named(DEVICE), planted);
    let hash = admin::random::digest(&"a".repeat(64));
    assert_eq!(gateway.store.device_seen(&hash, &anna.id).await.unwrap(), None);
    // An account keeps the latest twenty.
    for n in 0..25_u8 {
        let hash = [n; 32];
        let seen = ledger::Clock::now(&*gateway.host.clock) + DAY;
        let device = KnownDevice { hash: &hash, replaces: None, account_id: &anna.id, seen };
        gateway.store.remember_device(device, 20, seen - 2 * DAY).await.unwrap();
    }
    let known = got.cookie_named(DEVICE);
    let hash = admin::random::digest(known.split_once('=').unwrap().1);
    assert_eq!(gateway.store.device_seen(&hash, &anna.id).await.unwrap(), None);
}

//! Known attacks on consoles: forged sessions, sessions that survive on another node, guessing
//! spread over nodes, surplus form fields, and answers that reveal accounts.

use std::cell::Cell;

use canon::Micros;
use console::routes;
use http::{HeaderMap, Method, StatusCode};
use store::{Account, AccountRole};

use crate::gateway::{ConsoleGateway, PASSWORD, PageReply};

#[tokio::test]
async fn near_miss_session_tokens_are_rejected() {
    let gateway = ConsoleGateway::new().await;
    gateway.account("anna", AccountRole::Owner).await;
    let real = gateway.sign_in("anna").await;
    let (name, word) = real.split_once('=').unwrap();
    let mut tried = 0;
    for kept in [8, 20, 40, word.len() - 1] {
        for number in 0..250_u32 {
            // The rest has the same length but other digits.
            let mut rest = format!("{:08x}", number.wrapping_mul(2_654_435_761)).repeat(8);
            rest.truncate(word.len() - kept);
            let forged = format!("{}{rest}", &word[..kept]);
            if forged == word {
                continue;
            }
            let got = gateway.get("/console").cookie(&format!("{name}={forged}")).send().await;
            got.assert_redirect("/login");
            tried += 1;
        }
    }
    assert!(tried > 900, "{tried}");
    assert_eq!(gateway.get("/console").cookie(&real).send().await.status, StatusCode::OK);
}

#[tokio::test]
async fn sessions_end_on_all_nodes() {
    let one = ConsoleGateway::new().await;
    let two = one.beside().await;
    let anna = one.account("anna", AccountRole::Owner).await;
    for how in ["logout", "password", "lock"] {
        let cookie = one.sign_in("anna").await;
        assert_eq!(two.get("/console").cookie(&cookie).send().await.status, StatusCode::OK);
        match how {
            "logout" => {
                one.post("/logout", &[]).cookie(&cookie).send().await.assert_redirect("/login");
            }
            "password" => {
                let hash = anna.password_hash.as_deref();
                one.store.set_password(&anna.id, hash, Micros::new(2)).await.unwrap();
                one.store.drop_sessions_of(&anna.id).await.unwrap();
            }
            _ => {
                one.store.set_disabled(&anna.id, true, Micros::new(3)).await.unwrap();
            }
        }
        for node in [&one, &two] {
            let got = node.get("/console").cookie(&cookie).send().await;
            assert_eq!(got.status, StatusCode::SEE_OTHER, "{how}");
            assert!(got.header("location").starts_with("/login"), "{how}");
            let key = [("name", "x"), ("unlimited", "yes")];
            let got = node.post("/console/keys", &key).cookie(&cookie).send().await;
            assert_ne!(got.status, StatusCode::OK, "{how}");
        }
    }
    assert_eq!(one.store.keys().await.unwrap(), []);
}

#[tokio::test]
async fn attempts_are_counted_across_nodes() {
    let one = ConsoleGateway::new().await;
    let two = one.beside().await;
    one.account("anna", AccountRole::Member).await;
    let attempt = |node: usize, password: &'static str| {
        let node = if node.is_multiple_of(2) { &one } else { &two };
        let fields = [("login", "anna"), ("password", password)];
        node.post("/login", &fields).from([192, 0, 2, 1]).send()
    };
    for number in 0..10 {
        assert_eq!(attempt(number, "wrong wrong wrong").await.status, 401, "{number}");
    }
    for node in [0, 1] {
        let held = attempt(node, PASSWORD).await;
        assert_eq!(held.status, StatusCode::TOO_MANY_REQUESTS, "node {node}");
        assert!(held.header("retry-after").parse::<u64>().unwrap() >= 1);
    }
}

thread_local! {
    /// Password operations of the test on this thread.
    static HASHES: Cell<usize> = const { Cell::new(0) };
}

/// Counts password operations per thread. It is installed for the whole process, because tracing
/// caches for all threads whether a callsite is enabled.
struct HashCounter;

impl tracing::Subscriber for HashCounter {
    fn enabled(&self, of: &tracing::Metadata<'_>) -> bool {
        of.target() == "console::password" && *of.level() == tracing::Level::TRACE
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        HASHES.set(HASHES.get() + 1);
    }

    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

/// A reply without the entered values, for comparison.
fn shape(got: PageReply, entered: &str) -> (StatusCode, HeaderMap, String) {
    (got.status, got.headers, got.body.replace(entered, "ENTERED"))
}

#[tokio::test]
async fn replies_and_work_do_not_reveal_accounts() {
    let gateway = ConsoleGateway::with_mail().await;
    gateway.store.put_setting("signup", "open").await.unwrap();
    gateway.account("known", AccountRole::Member).await;
    let locked = gateway.account("shut1", AccountRole::Member).await;
    let bare = gateway.account("bare1", AccountRole::Member).await;
    gateway.store.set_disabled(&locked.id, true, Micros::new(1)).await.unwrap();
    gateway.store.set_password(&bare.id, None, Micros::new(1)).await.unwrap();
    tracing::subscriber::set_global_default(HashCounter).unwrap();
    for (path, field, address) in [
        ("/login", "login", false),
        ("/login", "login", true),
        ("/reset", "login", true),
        ("/reset", "login", false),
        ("/signup", "email", true),
    ] {
        let mut seen = Vec::new();
        for (place, name) in (1..).zip(["known", "nobod", "shut1", "bare1"]) {
            let entered = if address { format!("{name}@example.com") } else { name.to_owned() };
            HASHES.set(0);
            let fields = [(field, entered.as_str()), ("password", "not the password")];
            let got = gateway.post(path, &fields).from([192, 0, 2, place]).send().await;
            // Work after the reply runs in another task and delays no reply.
            seen.push((shape(got, &entered), HASHES.get()));
        }
        let (first, work) = &seen[0];
        assert_eq!(*work, usize::from(path == "/login"), "{path}");
        for (place, other) in seen.iter().enumerate() {
            assert_eq!(other, &seen[0], "{path} {place}: {}", first.2);
        }
    }
}

/// State that no form may change, whatever fields it has.
async fn protected_state(
    gateway: &ConsoleGateway,
    member: &Account,
) -> (Vec<(String, AccountRole, bool)>, Vec<String>) {
    let accounts = gateway.store.accounts().await.unwrap();
    let people = accounts.iter().map(|one| (one.username.clone(), one.role, one.disabled));
    let keys = gateway.store.keys().await.unwrap();
    let others = keys.iter().filter(|key| key.account_id != member.id);
    let mut told: Vec<String> = others.map(|key| format!("{key:?}")).collect();
    // Members may change their own keys, but not the spend or the creation time.
    let own = keys.iter().filter(|key| key.account_id == member.id && key.id == "own");
    told.extend(own.map(|key| format!("{} {} {}", key.id, key.spent, key.created)));
    (people.collect(), told)
}

#[tokio::test]
async fn surplus_form_fields_change_nothing() {
    let gateway = ConsoleGateway::with_mail().await;
    let anna = gateway.account("anna", AccountRole::Owner).await;
    let max = gateway.account("max", AccountRole::Member).await;
    gateway.key_of(&anna, "theirs", "website").await;
    gateway.key_of(&max, "own", "robot").await;
    let before = protected_state(&gateway, &max).await;
    let mut forms = 0;
    for route in routes().iter().filter(|route| route.method == Method::POST) {
        let ids = ["own", "theirs", &anna.id, &max.id];
        let ids = if route.path.contains("{id}") { &ids[..] } else { &ids[..1] };
        for id in ids {
            let path = route.path.replace("{id}", id).replace("{token}", "word");
            let path = path.replace("{identity}", "corp").replace("{*path}", "v1/key");
            let cookie = gateway.sign_in("max").await;
            let fields = [
                // Fields that forms have.
                ("name", "x"),
                ("unlimited", "yes"),
                ("username", "max"),
                ("login", "max"),
                ("current", PASSWORD),
                ("password", PASSWORD),
                ("again", PASSWORD),
                ("email", "max@example.com"),
                // Fields that no form has.
                ("role", "owner"),
                ("is_admin", "true"),
                ("admin", "1"),
                ("owner_id", &anna.id),
                ("account_id", &anna.id),
                ("account", &anna.id),
                ("user_id", &anna.id),
                ("id", "theirs"),
                ("key_id", "theirs"),
                ("spent", "0"),
                ("spent_usd", "0"),
                ("balance", "1000000"),
                ("created", "1"),
                ("created_at", "1"),
                ("hash", "00"),
                ("disabled", "false"),
                ("permissions[]", "*"),
                ("allowed_routes", "/*"),
                ("__proto__[role]", "owner"),
            ];
            let got = gateway.post(&path, &fields).cookie(&cookie).send().await;
            assert_ne!(got.status, StatusCode::INTERNAL_SERVER_ERROR, "{path}: {}", got.body);
            assert_eq!(protected_state(&gateway, &max).await, before, "{path}");
            // A new password equals the old one, and a second account gains nothing.
            forms += 1;
        }
    }
    assert!(forms >= 40, "{forms}");
}

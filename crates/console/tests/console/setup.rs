//! The one-time setup.

use http::StatusCode;
use store::{Account, AccountRole};

use crate::gateway::{ConsoleGateway, PASSWORD, START};

const GOOD: [(&str, &str); 4] = [
    ("username", "anna"),
    ("email", "anna@example.com"),
    ("password", PASSWORD),
    ("again", PASSWORD),
];

async fn fresh() -> ConsoleGateway {
    let gateway = ConsoleGateway::new().await;
    let owner = Account {
        id: "0".to_owned(),
        username: "owner".to_owned(),
        email: None,
        role: AccountRole::Owner,
        password_hash: None,
        disabled: false,
        created: START,
        changed: START,
    };
    gateway.store.add_account(&owner).await.unwrap();
    gateway.store.put_setting("setup_token", "the-word").await.unwrap();
    gateway
}

#[tokio::test]
async fn setup_link_creates_one_owner() {
    let gateway = fresh().await;
    let page = gateway.get("/console/setup/the-word").send().await;
    assert_eq!(page.status, StatusCode::OK);
    let got = gateway.post("/console/setup/the-word", &GOOD).send().await;
    got.assert_redirect("/console");
    let console = gateway.get("/console").cookie(&got.cookie()).send().await;
    console.assert_contains("anna");
    let anna = gateway.store.account_by_login("anna@example.com").await.unwrap().unwrap();
    assert_eq!((anna.role, anna.username.as_str()), (AccountRole::Owner, "anna"));
    assert!(anna.password_hash.unwrap().starts_with("$argon2id$"));
    gateway.sign_in("anna").await;
    for _ in 0..2 {
        let again = gateway.post("/console/setup/the-word", &GOOD).send().await;
        assert_eq!(again.status, StatusCode::NOT_FOUND);
        assert_eq!(
            gateway.get("/console/setup/the-word").send().await.status,
            StatusCode::NOT_FOUND
        );
    }
    assert_eq!(gateway.store.audits(9).await.unwrap().last().unwrap().action, "account.setup");
}

#[tokio::test]
async fn first_account_can_keep_its_name() {
    let gateway = fresh().await;
    let fields = [("username", "owner"), ("password", PASSWORD), ("again", PASSWORD)];
    gateway.post("/console/setup/the-word", &fields).send().await.assert_redirect("/console");
    assert_eq!(gateway.store.account_count().await.unwrap(), 1);
    gateway.sign_in("owner").await;
}

#[tokio::test]
async fn only_one_concurrent_setup_succeeds() {
    let gateway = fresh().await;
    let names: Vec<String> = (0..20).map(|n| format!("anna{n}")).collect();
    let tries = names.iter().map(|name| {
        let fields = [("username", name.as_str()), ("password", PASSWORD), ("again", PASSWORD)];
        gateway.post("/console/setup/the-word", &fields).send()
    });
    let mut got = Vec::new();
    let tries: Vec<_> = tries.collect();
    for answer in join(tries).await {
        got.push(answer.status);
    }
    assert_eq!(got.iter().filter(|status| **status == StatusCode::SEE_OTHER).count(), 1, "{got:?}");
    assert_eq!(got.iter().filter(|status| **status == StatusCode::NOT_FOUND).count(), 19);
    assert_eq!(gateway.store.account_count().await.unwrap(), 1);
}

/// Runs all futures concurrently on this task.
async fn join<T>(futures: Vec<impl Future<Output = T>>) -> Vec<T> {
    let mut futures: Vec<_> = futures.into_iter().map(|f| (Box::pin(f), None)).collect();
    std::future::poll_fn(move |context| {
        let mut waiting = false;
        for (future, done) in &mut futures {
            if done.is_none() {
                match future.as_mut().poll(context) {
                    std::task::Poll::Ready(value) => *done = Some(value),
                    std::task::Poll::Pending => waiting = true,
                }
            }
        }
        if waiting {
            return std::task::Poll::Pending;
        }
        std::task::Poll::Ready(futures.iter_mut().filter_map(|(_, done)| done.take()).collect())
    })
    .await
}

#[tokio::test]
async fn wrong_setup_token_is_not_found() {
    let gateway = fresh().await;
    for word in ["the-wor", "the-word2", "THE-WORD", "%00", "the-word%2f", "x'%20OR%20'1'='1"] {
        let got = gateway.get(&format!("/console/setup/{word}")).send().await;
        assert_eq!(got.status, StatusCode::NOT_FOUND, "{word}");
    }
    let none = ConsoleGateway::new().await;
    assert_eq!(none.get("/console/setup/the-word").send().await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn setup_errors_are_shown_and_the_token_stays_valid() {
    let gateway = fresh().await;
    gateway.account("bert", AccountRole::Member).await;
    let cases: [(&str, &str, &str, &str, &str, &str); 8] = [
        ("", "", PASSWORD, PASSWORD, "username-wrong", "Choose a username."),
        ("<b>x</b>", "", PASSWORD, PASSWORD, "username-wrong", "Letters, digits"),
        ("BERT", "", PASSWORD, PASSWORD, "username-wrong", "taken"),
        ("anna", "Bert@Example.com", PASSWORD, PASSWORD, "email-wrong", "another account"),
        ("anna", "a@b.c, d@e.f", PASSWORD, PASSWORD, "email-wrong", "does not look like"),
        ("anna", "", "short", "short", "password-wrong", "At least 10"),
        ("anna", "", "password123", "password123", "password-wrong", "first to be guessed"),
        ("anna", "", PASSWORD, "three harbour nights", "again-wrong", "differ"),
    ];
    for (username, email, password, again, id, why) in cases {
        let fields =
            [("username", username), ("email", email), ("password", password), ("again", again)];
        let got = gateway.post("/console/setup/the-word", &fields).send().await;
        assert_eq!(got.status, StatusCode::BAD_REQUEST, "{fields:?}");
        got.assert_contains(&format!("id=\"{id}\""));
        got.assert_contains(why);
        got.assert_lacks("<b>x");
        got.assert_lacks(PASSWORD);
    }
    got_values_kept(&gateway).await;
    gateway.post("/console/setup/the-word", &GOOD).send().await.assert_redirect("/console");
}

async fn got_values_kept(gateway: &ConsoleGateway) {
    let fields = [("username", "anna"), ("email", "anna@example.com"), ("password", "short")];
    let got = gateway.post("/console/setup/the-word", &fields).send().await;
    got.assert_contains("value=\"anna\"");
    got.assert_contains("value=\"anna@example.com\"");
}

#[tokio::test]
async fn setup_fields_cannot_change_the_role() {
    let gateway = fresh().await;
    let mut fields = GOOD.to_vec();
    fields.extend([("role", "god"), ("id", "7"), ("disabled", "true"), ("created", "0")]);
    gateway.post("/console/setup/the-word", &fields).send().await.assert_redirect("/console");
    let anna = gateway.store.account_by_login("anna").await.unwrap().unwrap();
    assert_eq!((anna.role, anna.disabled, anna.created), (AccountRole::Owner, false, START));
    assert_ne!(anna.id, "7");
}

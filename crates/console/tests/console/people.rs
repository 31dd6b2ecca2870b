//! Creation of accounts by address and by invitation.

use http::StatusCode;
use store::{AccountRole, LinkPurpose};

use crate::gateway::{ConsoleGateway, PASSWORD, START, entry};

fn chosen(username: &str) -> [(&str, &str); 3] {
    [("username", username), ("password", PASSWORD), ("again", PASSWORD)]
}

#[tokio::test]
async fn address_is_confirmed_before_the_account_exists() {
    let gateway = ConsoleGateway::with_mail().await;
    gateway.store.put_setting("signup", "open").await.unwrap();
    gateway.get("/login").send().await.assert_contains("Create an account");
    let got = gateway.post("/signup", &[("email", "Zoe@Example.com")]).send().await;
    assert_eq!(got.status, StatusCode::OK);
    let (link, to) = gateway.host.link().await;
    assert_eq!(to, "Zoe@Example.com");
    assert_eq!(gateway.store.account_count().await.unwrap(), 0);
    let cookie = gateway.open(&link, "/signup/new").await;
    let fields = [
        ("username", "zoe"),
        ("password", PASSWORD),
        ("again", PASSWORD),
        ("role", "owner"),
        ("email", "someone@else.example"),
        ("id", "mine"),
    ];
    let got = gateway.post("/signup/new", &fields).cookie(&cookie).send().await;
    got.assert_redirect("/console");
    let zoe = gateway.store.account_by_login("zoe@example.com").await.unwrap().unwrap();
    assert_eq!((zoe.role, zoe.username.as_str()), (AccountRole::Member, "zoe"));
    assert_ne!(zoe.id, "mine");
    gateway.sign_in("zoe").await;
    let again = gateway.post("/signup/new", &chosen("zoe2")).cookie(&cookie).send().await;
    assert_eq!(again.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn sign_up_does_not_reveal_accounts() {
    let gateway = ConsoleGateway::with_mail().await;
    gateway.store.put_setting("signup", "open").await.unwrap();
    gateway.account("anna", AccountRole::Owner).await;
    let known = gateway.post("/signup", &[("email", "ANNA@example.com")]).send().await;
    let unknown = gateway.post("/signup", &[("email", "zoe@example.com")]).send().await;
    assert_eq!((known.status, known.body), (unknown.status, unknown.body));
    let mut mails = [gateway.host.mail().await, gateway.host.mail().await];
    mails.sort_by_key(|mail| mail.to.to_lowercase());
    assert!(mails[0].text.contains("account already") && !mails[0].text.contains("/link/"));
    assert!(mails[1].text.contains("/link/"));
}

#[tokio::test]
async fn invalid_addresses_and_names_are_rejected_at_their_field() {
    let gateway = ConsoleGateway::with_mail().await;
    gateway.store.put_setting("signup", "open").await.unwrap();
    let long = format!("{}@example.com", "a".repeat(320));
    for email in [
        "",
        "x",
        "a@b",
        "a@x.y,b@x.y",
        "a@x.y\r\nbcc:b@x.y",
        "a b@x.y",
        "\"a\"@x.y",
        "a@x.y.",
        &long,
    ] {
        let got = gateway.post("/signup", &[("email", email)]).send().await;
        assert_eq!(got.status, StatusCode::BAD_REQUEST, "{email:?}");
        got.assert_contains("email-wrong");
    }
    gateway.post("/signup", &[("email", "zoe@example.com")]).send().await;
    let cookie = gateway.open(&gateway.host.link().await.0, "/signup/new").await;
    gateway.account("anna", AccountRole::Owner).await;
    let long = "a".repeat(3_000);
    for name in ["admin", "root", "../x", "<script>", "", "  ", "a\u{202e}b", "ANNA", &long] {
        let got = gateway.post("/signup/new", &chosen(name)).cookie(&cookie).send().await;
        assert_eq!(got.status, StatusCode::BAD_REQUEST, "{name:?}");
        got.assert_contains("username-wrong");
        got.assert_lacks("<script>");
    }
    for password in ["a", "zoe@example.com", "password123!", &"x".repeat(1_025)] {
        let fields = [("username", "zoe"), ("password", password), ("again", password)];
        let got = gateway.post("/signup/new", &fields).cookie(&cookie).send().await;
        assert_eq!(got.status, StatusCode::BAD_REQUEST);
        got.assert_contains("password-wrong");
    }
    gateway
        .post("/signup/new", &chosen("zoe"))
        .cookie(&cookie)
        .send()
        .await
        .assert_redirect("/console");
}

#[tokio::test]
async fn sign_up_needs_an_invitation_by_default() {
    let gateway = ConsoleGateway::with_mail().await;
    gateway.get("/login").send().await.assert_lacks("Create an account");
    for mode in [None, Some("invited"), Some("closed"), Some("nonsense")] {
        if let Some(mode) = mode {
            gateway.store.put_setting("signup", mode).await.unwrap();
        }
        let got = gateway.post("/signup", &[("email", "zoe@example.com")]).send().await;
        assert_eq!(got.status, StatusCode::FORBIDDEN, "{mode:?}");
    }
    assert!(gateway.store.links_for(LinkPurpose::SignUp).await.unwrap().is_empty());
    let silent = ConsoleGateway::new().await;
    silent.store.put_setting("signup", "open").await.unwrap();
    let got = silent.post("/signup", &[("email", "zoe@example.com")]).send().await;
    assert_eq!(got.status, StatusCode::FORBIDDEN, "an address that cannot be proved");
}

#[tokio::test]
async fn closing_sign_up_invalidates_sent_links() {
    let gateway = ConsoleGateway::with_mail().await;
    gateway.store.put_setting("signup", "open").await.unwrap();
    gateway.post("/signup", &[("email", "zoe@example.com")]).send().await;
    let cookie = gateway.open(&gateway.host.link().await.0, "/signup/new").await;
    gateway.store.put_setting("signup", "invited").await.unwrap();
    let got = gateway.post("/signup/new", &chosen("zoe")).cookie(&cookie).send().await;
    assert_eq!(got.status, StatusCode::BAD_REQUEST);
    assert_eq!(gateway.store.account_count().await.unwrap(), 0);
}

fn shown(body: &str) -> String {
    let from = body.find("http://gw.example:8080/link/").unwrap();
    body[from..].split('<').next().unwrap().replace("http://gw.example:8080", "")
}

#[tokio::test]
async fn invitation_creates_one_account_of_its_role() {
    let gateway = ConsoleGateway::with_mail().await;
    gateway.account("olga", AccountRole::Owner).await;
    let cookie = gateway.sign_in("olga").await;
    let fields = [("email", "vera@example.com"), ("role", "viewer")];
    let got = gateway.post("/console/people/invites", &fields).cookie(&cookie).send().await;
    let (link, to) = gateway.host.link().await;
    assert_eq!((to.as_str(), &shown(&got.body)), ("vera@example.com", &link));
    gateway.get("/console/people").cookie(&cookie).send().await.assert_contains("vera@example.com");
    let browser = gateway.open(&link, "/signup/new").await;
    gateway
        .post("/signup/new", &chosen("vera"))
        .cookie(&browser)
        .send()
        .await
        .assert_redirect("/console");
    let vera = gateway.store.account_by_login("vera@example.com").await.unwrap().unwrap();
    assert_eq!(vera.role, AccountRole::Viewer);
    assert_eq!(gateway.get(&link).send().await.status, StatusCode::BAD_REQUEST);

    let none = [("email", ""), ("role", "admin")];
    let got = gateway.post("/console/people/invites", &none).cookie(&cookie).send().await;
    let link = shown(&got.body);
    let page = gateway.get("/console/people").cookie(&cookie).send().await;
    let path =
        page.body.split("action=\"").find(|p| p.ends_with("") && p.contains("/revoke\"")).unwrap();
    let path = path.split('"').next().unwrap();
    gateway.post(path, &[]).cookie(&cookie).send().await.assert_redirect("/console/people");
    assert_eq!(gateway.get(&link).send().await.status, StatusCode::BAD_REQUEST, "taken back");
}

#[tokio::test]
async fn roles_limit_invitations() {
    let gateway = ConsoleGateway::new().await;
    for (name, role) in [
        ("olga", AccountRole::Owner),
        ("adam", AccountRole::Admin),
        ("mia", AccountRole::Member),
        ("vera", AccountRole::Viewer),
    ] {
        gateway.account(name, role).await;
        let cookie = gateway.sign_in(name).await;
        for given in AccountRole::ALL {
            let fields = [("role", given.word())];
            let got = gateway.post("/console/people/invites", &fields).cookie(&cookie).send().await;
            let may = match (role, given) {
                (AccountRole::Owner, _)
                | (AccountRole::Admin, AccountRole::Member | AccountRole::Viewer) => 200,
                _ => 403,
            };
            assert_eq!(got.status, may, "{name} invites {given:?}");
        }
        let may = if role == AccountRole::Owner || role == AccountRole::Admin { 200 } else { 403 };
        let page = gateway.get("/console/people").cookie(&cookie).send().await;
        assert_eq!(page.status.as_u16(), may);
    }
}

#[tokio::test]
async fn invitation_gives_what_its_creator_may_still_give() {
    let gateway = ConsoleGateway::new().await;
    let adam = gateway.account("adam", AccountRole::Admin).await;
    let cookie = gateway.sign_in("adam").await;
    let got =
        gateway.post("/console/people/invites", &[("role", "member")]).cookie(&cookie).send().await;
    let link = shown(&got.body);
    let browser = gateway.open(&link, "/signup/new").await;
    gateway.store.change_person(&adam.id, Some(AccountRole::Viewer), None, START).await.unwrap();
    let got = gateway.post("/signup/new", &chosen("mia")).cookie(&browser).send().await;
    assert_eq!(got.status, StatusCode::BAD_REQUEST);
    gateway.store.change_person(&adam.id, Some(AccountRole::Admin), None, START).await.unwrap();
    gateway
        .post("/signup/new", &chosen("mia"))
        .cookie(&browser)
        .send()
        .await
        .assert_redirect("/console");
}

#[tokio::test]
async fn first_sign_up_is_no_administrator() {
    let gateway = ConsoleGateway::with_mail().await;
    gateway.store.put_setting("signup", "open").await.unwrap();
    let mut browsers = Vec::new();
    for n in 0..10 {
        let email = format!("first{n}@example.com");
        gateway.post("/signup", &[("email", &email)]).from([192, 0, 2, n]).send().await;
        browsers.push(gateway.open(&gateway.host.link().await.0, "/signup/new").await);
    }
    for (n, browser) in browsers.iter().enumerate() {
        let name = format!("first{n}");
        let got = gateway.post("/signup/new", &chosen(&name)).cookie(browser).send().await;
        got.assert_redirect("/console");
    }
    let accounts = gateway.store.accounts().await.unwrap();
    assert_eq!(accounts.len(), 10);
    assert!(accounts.iter().all(|account| account.role == AccountRole::Member));
}

#[tokio::test]
async fn sign_ups_get_the_configured_role_and_cap() {
    let gateway = ConsoleGateway::with_mail().await;
    for (name, value) in [("signup", "open"), ("signup_role", "viewer"), ("signup_cap_usd", "2.5")]
    {
        gateway.store.put_setting(name, value).await.unwrap();
    }
    gateway.post("/signup", &[("email", "zoe@example.com")]).send().await;
    let cookie = gateway.open(&gateway.host.link().await.0, "/signup/new").await;
    gateway
        .post("/signup/new", &chosen("zoe"))
        .cookie(&cookie)
        .send()
        .await
        .assert_redirect("/console");
    let zoe = gateway.store.account_by_login("zoe").await.unwrap().unwrap();
    assert_eq!(zoe.role, AccountRole::Viewer);
    let terms = gateway.store.account_terms().await.unwrap();
    let cap = Some(canon::Money::from_nanos(2_500_000_000));
    assert_eq!(terms, [(zoe.id, store::AccountTerms { cap, ..<_>::default() })]);

    let olga = gateway.account("olga", AccountRole::Owner).await;
    let owner = gateway.sign_in("olga").await;
    let got = gateway.post("/console/people/invites", &[("role", "member")]).cookie(&owner);
    let link = shown(&got.send().await.body);
    let browser = gateway.open(&link, "/signup/new").await;
    gateway
        .post("/signup/new", &chosen("mia"))
        .cookie(&browser)
        .send()
        .await
        .assert_redirect("/console");
    let mia = gateway.store.account_by_login("mia").await.unwrap().unwrap();
    assert_eq!(mia.role, AccountRole::Member, "an invitation says itself what it is worth");
    let terms = gateway.store.account_terms().await.unwrap();
    assert!(terms.iter().all(|(id, _)| *id != mia.id && *id != olga.id));
}

#[tokio::test]
async fn people_are_searched_sorted_and_paged() {
    let gateway = ConsoleGateway::new().await;
    gateway.account("ada", AccountRole::Owner).await;
    for number in 0..30 {
        gateway.account(&format!("member{number:02}"), AccountRole::Member).await;
    }
    let bert = gateway.account("bert", AccountRole::Member).await;
    let key = gateway.key_of(&bert, "bertkey", "site").await;
    gateway.store.post(&[entry(&key, "r1", "demo-chat", 4_000_000_000)]).await.unwrap();
    gateway.store.set_disabled(&bert.id, true, START).await.unwrap();
    let cookie = gateway.sign_in("ada").await;
    let get = async |query: &str| {
        gateway.get(&format!("/console/people?{query}")).cookie(&cookie).send().await
    };
    let first = get("").await;
    first.assert_contains("Page 1 of 2");
    first.assert_contains("/console/keys?q=bert");
    first.assert_lacks("member29");
    get("page=2").await.assert_contains("member29");
    get("page=9").await.assert_redirect("/console/people?page=2");
    let found = get("q=BER0").await;
    found.assert_contains("member09");
    found.assert_lacks("bertkey");
    let spent = get("sort=spent").await.body;
    assert!(spent.find(">bert<").unwrap() < spent.find(">member29<").unwrap());
    assert!(spent.contains("$4.00"), "{spent}");
    let locked = get("state=locked").await;
    locked.assert_contains("bert");
    locked.assert_lacks("member00");
    get("q=nobody").await.assert_contains("Nobody matches");
    assert_eq!(get("state=odd").await.status, StatusCode::BAD_REQUEST);
}

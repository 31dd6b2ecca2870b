//! Sign-in through an identity provider, and attacks on it.

use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};
use store::AccountRole;

use crate::fake_identity_provider::{FakeIdentityProvider, ISSUER, OTHER};
use crate::gateway::{ConsoleGateway, PageReply, SECOND, START};

/// A gateway with an identity provider.
pub(crate) struct IdentityFixture {
    pub(crate) gateway: ConsoleGateway,
    pub(crate) provider: Arc<FakeIdentityProvider>,
}

/// A started flow.
struct StartedFlow {
    cookie: String,
    state: String,
    nonce: String,
}

impl IdentityFixture {
    pub(crate) async fn new() -> Self {
        let gateway = ConsoleGateway::new().await;
        let provider = Arc::new(FakeIdentityProvider::new());
        *gateway.host.provider.lock() = Some(Arc::clone(&provider));
        Self { gateway, provider }
    }

    async fn leave(&self, name: &str) -> StartedFlow {
        let got = self.gateway.post(&format!("/auth/{name}"), &[]).send().await;
        Self::flow(&got)
    }

    fn flow(got: &PageReply) -> StartedFlow {
        assert_eq!(got.status, StatusCode::OK, "{}", got.body);
        let place = got.header("refresh").strip_prefix("0; url=").unwrap().to_owned();
        let query = |name: &str| {
            let mut pairs = place.split_once('?').unwrap().1.split('&');
            let found = pairs.find_map(|pair| pair.strip_prefix(&format!("{name}=")));
            found.unwrap_or_else(|| panic!("{name} is not in {place}")).to_owned()
        };
        assert_eq!(query("response_type"), "code");
        assert_eq!(query("code_challenge_method"), "S256");
        assert!(query("code_challenge").len() >= 43);
        assert!(query("redirect_uri").starts_with("http%3A%2F%2Fgw.example%3A8080%2Fauth%2F"));
        StartedFlow { cookie: got.cookie(), state: query("state"), nonce: query("nonce") }
    }

    /// Valid claims.
    fn good(&self, flow: &StartedFlow) -> Value {
        json!({
            "iss": ISSUER, "aud": "portunus", "sub": "7", "nonce": flow.nonce,
            "iat": START.as_secs(), "exp": START.as_secs() + 300,
            "email": "anna@example.com", "email_verified": true, "preferred_username": "anna",
        })
    }

    async fn back(&self, name: &str, flow: &StartedFlow, query: &str) -> PageReply {
        let path = format!("/auth/{name}/callback?state={}&{query}", flow.state);
        self.gateway.get(&path).cookie(&flow.cookie).send().await
    }

    /// Runs the whole flow with modified claims.
    pub(crate) async fn arrives(&self, spoil: impl FnOnce(&mut Value)) -> PageReply {
        let flow = self.leave("corp").await;
        let mut claims = self.good(&flow);
        spoil(&mut claims);
        *self.provider.claims.lock() = claims;
        self.back("corp", &flow, &format!("code=c&iss={ISSUER}")).await
    }

    async fn nobody_got_in(&self, got: &PageReply, why: &str) {
        assert!([400, 403, 409].contains(&got.status.as_u16()), "{why}: {}", got.status);
        assert!(!got.header("set-cookie").contains("portunus_session"), "{why}");
        assert_eq!(self.gateway.store.account_count().await.unwrap(), 0, "{why}");
    }
}

#[tokio::test]
async fn first_identity_sign_in_creates_the_account() {
    let fixture = IdentityFixture::new().await;
    fixture.gateway.get("/login").send().await.assert_contains("Continue with corp");
    let got = fixture.arrives(|_| {}).await;
    got.assert_redirect("/console");
    let anna = fixture.gateway.store.account_by_login("anna").await.unwrap().unwrap();
    assert_eq!((anna.email.as_deref(), anna.role), (Some("anna@example.com"), AccountRole::Member));
    let redeemed = fixture.provider.redeemed.lock().join("");
    assert!(redeemed.contains("code_verifier=") && redeemed.contains("code=c"), "{redeemed}");
    let again = fixture
        .arrives(|claims| {
            claims["email"] = json!("another@example.com");
            claims["email_verified"] = json!(false);
        })
        .await;
    again.assert_redirect("/console");
    assert_eq!(fixture.gateway.store.account_count().await.unwrap(), 1, "the subject is who it is");
    let console = fixture.gateway.get("/console").cookie(&again.cookie()).send().await;
    console.assert_contains("anna");
}

#[tokio::test]
async fn refused_identities_leave_a_line_in_the_audit_log() {
    let fixture = IdentityFixture::new().await;
    let got = fixture.arrives(|claims| claims["aud"] = json!("another")).await;
    fixture.nobody_got_in(&got, "another audience").await;
    let lines = fixture.gateway.store.audits(9).await.unwrap();
    let seen: Vec<_> =
        lines.iter().map(|line| (&*line.actor, &*line.action, &*line.detail)).collect();
    assert_eq!(seen, [("anonymous", "session.refuse", "identity")]);
}

#[tokio::test]
async fn callback_works_once_and_only_for_the_same_browser() {
    let fixture = IdentityFixture::new().await;
    let (one, two) = (fixture.leave("corp").await, fixture.leave("corp").await);
    *fixture.provider.claims.lock() = fixture.good(&one);
    let code = format!("code=c&iss={ISSUER}");
    let foreign =
        StartedFlow { cookie: two.cookie.clone(), state: one.state.clone(), nonce: String::new() };
    let none = StartedFlow { cookie: "x=y".to_owned(), ..fixture.leave("corp").await };
    let made_up = StartedFlow { state: "a".repeat(64), ..fixture.leave("corp").await };
    for (flow, why) in [(&foreign, "another browser"), (&none, "none"), (&made_up, "made up")] {
        fixture.nobody_got_in(&fixture.back("corp", flow, &code).await, why).await;
    }
    let old = fixture.leave("corp").await;
    fixture.gateway.host.clock.pass(601 * SECOND);
    fixture.nobody_got_in(&fixture.back("corp", &old, &code).await, "too late").await;
    fixture.gateway.host.clock.pass(-601 * SECOND);
    fixture.back("corp", &one, &code).await.assert_redirect("/console");
    let replayed = fixture.back("corp", &one, &code).await;
    assert_eq!(replayed.status, StatusCode::BAD_REQUEST);
    assert_eq!(replayed.header("set-cookie"), "");
}

#[tokio::test]
async fn response_of_another_provider_is_rejected() {
    let fixture = IdentityFixture::new().await;
    for (name, query, why) in [
        ("other", format!("code=c&iss={ISSUER}"), "delivered to another's address"),
        ("corp", format!("code=c&iss={OTHER}"), "another issuer"),
        ("corp", "code=c".to_owned(), "no issuer from one that always says it"),
        ("corp", format!("code=c&iss={ISSUER}&iss={OTHER}"), "two issuers"),
        ("corp", format!("iss={ISSUER}"), "no code"),
        ("corp", format!("error=%3Cscript%3Ealert(1)%3C%2Fscript%3E&iss={ISSUER}"), "an error"),
    ] {
        let flow = fixture.leave("corp").await;
        *fixture.provider.claims.lock() = fixture.good(&flow);
        let got = fixture.back(name, &flow, &query).await;
        got.assert_lacks("<script>alert");
        fixture.nobody_got_in(&got, why).await;
    }
    assert!(fixture.provider.redeemed.lock().is_empty(), "no code was handed to anyone");
}

#[tokio::test]
async fn invalid_id_tokens_are_rejected() {
    let fixture = IdentityFixture::new().await;
    let now = START.as_secs();
    let spoilt: [(&str, Value); 12] = [
        ("iss", json!(OTHER)),
        ("iss", json!("https://id.example/")),
        ("aud", json!("another-client")),
        ("aud", json!(["portunus", "another-client"])),
        ("nonce", json!("0".repeat(64))),
        ("nonce", Value::Null),
        ("exp", json!(now - 61)),
        ("nbf", json!(now + 61)),
        ("iat", json!(now + 61)),
        ("email_verified", json!(false)),
        ("email_verified", Value::Null),
        ("exp", Value::Null),
    ];
    for (claim, value) in spoilt {
        let why = format!("{claim} {value}");
        let got = fixture
            .arrives(|claims| match value {
                Value::Null => drop(claims.as_object_mut().unwrap().remove(claim)),
                value => claims[claim] = value,
            })
            .await;
        fixture.nobody_got_in(&got, &why).await;
    }
    fixture.arrives(|claims| claims["exp"] = json!(now - 59)).await.assert_redirect("/console");
}

#[tokio::test]
async fn signature_must_use_the_providers_key() {
    let fixture = IdentityFixture::new().await;
    let (header, signature) = (&fixture.provider.header, &fixture.provider.signature);
    for (head, signed, why) in [
        (json!({ "alg": "none" }), Some(String::new()), "unsigned"),
        (json!({ "alg": "HS256", "kid": "one" }), Some("AAAA".to_owned()), "a shared secret"),
        (json!({ "alg": "ES256", "kid": "two" }), None, "an unknown key"),
        (json!({ "alg": "RS256", "kid": "one" }), None, "another kind of key"),
        (json!({ "alg": "ES256", "kid": "one" }), Some("AAAA".to_owned()), "a wrong signature"),
    ] {
        *header.lock() = head;
        *signature.lock() = signed;
        fixture.nobody_got_in(&fixture.arrives(|_| {}).await, why).await;
    }
}

#[tokio::test]
async fn email_address_never_identifies_an_account() {
    let fixture = IdentityFixture::new().await;
    fixture.gateway.account("anna", AccountRole::Owner).await;
    for verified in [true, false] {
        let got = fixture
            .arrives(|claims| {
                claims["email"] = json!("ANNA@example.com");
                claims["email_verified"] = json!(verified);
            })
            .await;
        assert_eq!(got.status, StatusCode::CONFLICT);
        got.assert_contains("link corp under");
        assert!(!got.header("set-cookie").contains("portunus_session"));
    }
    assert_eq!(fixture.gateway.store.account_count().await.unwrap(), 1);
    let same_name = fixture.arrives(|claims| claims["email"] = json!("x@example.com")).await;
    same_name.assert_redirect("/console");
    let accounts = fixture.gateway.store.accounts().await.unwrap();
    assert!(accounts[1].username.starts_with("anna-") && accounts[1].role == AccountRole::Member);
}

#[tokio::test]
async fn same_subject_of_another_issuer_is_another_user() {
    let fixture = IdentityFixture::new().await;
    fixture.arrives(|_| {}).await.assert_redirect("/console");
    let flow = fixture.leave("other").await;
    *fixture.provider.claims.lock() = json!({
        "iss": OTHER, "aud": "portunus", "sub": "7", "nonce": flow.nonce,
        "iat": START.as_secs(), "exp": START.as_secs() + 300,
    });
    fixture.back("other", &flow, "code=c").await.assert_redirect("/console");
    assert_eq!(fixture.gateway.store.account_count().await.unwrap(), 2);
}

#[tokio::test]
async fn users_who_are_not_admitted_get_no_account() {
    let fixture = IdentityFixture::new().await;
    *fixture.provider.admits.lock() = None;
    fixture.nobody_got_in(&fixture.arrives(|_| {}).await, "by invitation").await;
    fixture.gateway.store.put_setting("signup", "open").await.unwrap();
    fixture.arrives(|_| {}).await.assert_redirect("/console");
}

#[tokio::test]
async fn only_the_owner_links_an_account() {
    let fixture = IdentityFixture::new().await;
    let anna = fixture.gateway.account("anna", AccountRole::Member).await;
    let bert = fixture.gateway.account("bert", AccountRole::Member).await;
    let (as_anna, as_bert) =
        (fixture.gateway.sign_in("anna").await, fixture.gateway.sign_in("bert").await);
    let leave = async |cookie: &str| {
        let ask = fixture.gateway.post("/console/account/identities/corp", &[]).cookie(cookie);
        IdentityFixture::flow(&ask.send().await)
    };
    let path = |flow: &StartedFlow| {
        format!("/auth/corp/callback?state={}&code=c&iss={ISSUER}", flow.state)
    };
    let flow = leave(&as_anna).await;
    *fixture.provider.claims.lock() = fixture.good(&flow);
    let stolen =
        fixture.gateway.get(&path(&flow)).cookie(&flow.cookie).cookie(&as_bert).send().await;
    assert_eq!(stolen.status, StatusCode::FORBIDDEN);
    assert!(fixture.gateway.store.identities_of(&bert.id).await.unwrap().is_empty());

    let flow = leave(&as_anna).await;
    *fixture.provider.claims.lock() = fixture.good(&flow);
    let got = fixture.gateway.get(&path(&flow)).cookie(&flow.cookie).cookie(&as_anna).send().await;
    got.assert_redirect("/console/account?told=identity");
    assert_eq!(fixture.gateway.store.identities_of(&anna.id).await.unwrap().len(), 1);
    fixture.arrives(|_| {}).await.assert_redirect("/console");
    assert_eq!(fixture.gateway.store.account_count().await.unwrap(), 2, "no new account");

    let flow = leave(&as_bert).await;
    *fixture.provider.claims.lock() = fixture.good(&flow);
    let taken =
        fixture.gateway.get(&path(&flow)).cookie(&flow.cookie).cookie(&as_bert).send().await;
    assert_eq!(taken.status, StatusCode::FORBIDDEN);
    taken.assert_contains("another account");

    let fields = [("issuer", ISSUER), ("subject", "7")];
    let remove = fixture.gateway.post("/console/account/identities/remove", &fields);
    remove.cookie(&as_anna).send().await.assert_redirect("/console/account");
    assert!(fixture.gateway.store.identities_of(&anna.id).await.unwrap().is_empty());
}

#[tokio::test]
async fn disabled_account_is_refused_and_provider_outage_is_shown() {
    let fixture = IdentityFixture::new().await;
    fixture.arrives(|_| {}).await.assert_redirect("/console");
    let anna = fixture.gateway.store.account_by_login("anna").await.unwrap().unwrap();
    fixture.gateway.store.set_disabled(&anna.id, true, START).await.unwrap();
    assert_eq!(fixture.arrives(|_| {}).await.status, StatusCode::FORBIDDEN);
    let silent = ConsoleGateway::new().await;
    assert_eq!(silent.post("/auth/corp", &[]).send().await.status, StatusCode::NOT_FOUND);
    assert_eq!(
        silent.get("/auth/corp/callback?state=x&code=y").send().await.status,
        StatusCode::NOT_FOUND
    );
}

#[tokio::test]
async fn identity_sign_ups_get_the_configured_role_and_cap() {
    for (admits, role) in
        [(None, AccountRole::Viewer), (Some(AccountRole::Member), AccountRole::Member)]
    {
        let fixture = IdentityFixture::new().await;
        *fixture.provider.admits.lock() = admits;
        let store = &fixture.gateway.store;
        for (name, value) in
            [("signup", "open"), ("signup_role", "viewer"), ("signup_cap_usd", "4")]
        {
            store.put_setting(name, value).await.unwrap();
        }
        fixture.arrives(|_| {}).await.assert_redirect("/console");
        let anna = store.account_by_login("anna").await.unwrap().unwrap();
        assert_eq!(anna.role, role, "what the configuration says goes before");
        let terms = store.account_terms().await.unwrap();
        let cap = Some(canon::Money::from_nanos(4_000_000_000));
        assert_eq!(terms, [(anna.id, store::AccountTerms { cap, ..<_>::default() })]);
    }
}

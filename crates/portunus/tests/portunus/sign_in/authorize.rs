//! The authorization code with PKCE, for agents on the machine of the browser.

use super::*;

fn authorize_query(more: &[(&str, &str)]) -> String {
    let mut fields = vec![
        ("response_type", "code"),
        ("client_id", "codex"),
        ("redirect_uri", REDIRECT),
        ("code_challenge", CHALLENGE),
        ("code_challenge_method", "S256"),
        ("state", "s t"),
    ];
    for (name, value) in more {
        fields.retain(|(own, _)| own != name);
        fields.push((name, value));
    }
    form(&fields)
}

#[tokio::test]
async fn an_agent_on_the_same_machine_signs_in_with_a_code() {
    let harbour = Harbour::open().await;
    let mia = harbour.person("mia", AccountRole::Member).await;
    let opened = mia.look(&format!("/oauth/authorize?{}", authorize_query(&[]))).await;
    assert_eq!(opened.status, 303);
    let path = opened.header("location").to_owned();
    assert!(path.starts_with("/console/authorize?"), "{path}");
    let page = mia.look(&path).await;
    assert!(page.text().contains("Sign in Codex?"), "{}", page.text());
    let policy = page.header("content-security-policy");
    assert!(policy.contains("form-action 'self' http://127.0.0.1:8765"), "{policy}");
    let approve = async || {
        let fields = [
            ("response_type", "code"),
            ("client_id", "codex"),
            ("redirect_uri", REDIRECT),
            ("code_challenge", CHALLENGE),
            ("code_challenge_method", "S256"),
            ("state", "s t"),
            ("owner", &mia.account.id),
            ("name", "codex"),
            ("answer", "approve"),
        ];
        let got = mia.submit("/console/authorize", &fields).await;
        assert_eq!(got.status, 303, "{}", got.text());
        let to = got.header("location").to_owned();
        assert!(
            to.starts_with(&format!("{REDIRECT}?code=")) && to.contains("&state=s%20t"),
            "{to}"
        );
        to.split("code=").nth(1).unwrap().split('&').next().unwrap().to_owned()
    };
    let redeem = async |code: &str, verifier: &str, uri: &str, client: &str| {
        let fields = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("code_verifier", verifier),
            ("redirect_uri", uri),
            ("client_id", client),
        ];
        send(&harbour.gateway, "/oauth/token", &fields).await
    };
    for (verifier, uri, client) in [
        ("wrong", REDIRECT, "codex"),
        (VERIFIER, "http://127.0.0.1:1/", "codex"),
        (VERIFIER, REDIRECT, "x"),
    ] {
        let code = approve().await;
        let got = redeem(&code, verifier, uri, client).await;
        assert_eq!(
            (got.status.as_u16(), text(&got.json(), "error")),
            (400, "invalid_grant".into())
        );
        let got = redeem(&code, VERIFIER, REDIRECT, "codex").await;
        assert_eq!(got.status, 400, "a code is tried once");
    }
    let code = approve().await;
    let both = tokio::join!(
        redeem(&code, VERIFIER, REDIRECT, "codex"),
        redeem(&code, VERIFIER, REDIRECT, "codex"),
    );
    let granted = [both.0, both.1].into_iter().filter(|got| got.status == 200);
    let granted: Vec<Tokens> = granted.map(|got| Tokens::of(&got)).collect();
    assert_eq!(granted.len(), 1);
    assert_eq!(harbour.call(&granted[0].access).await.status, 200);
    assert_eq!(harbour.key_of(&granted[0].access).await.surface.as_deref(), Some("codex"));
    Tokens::of(&harbour.refresh(&granted[0].refresh).await);
    let late = approve().await;
    harbour.clock.step(61 * SECOND);
    assert_eq!(redeem(&late, VERIFIER, REDIRECT, "codex").await.status, 400);
}

#[tokio::test]
async fn a_code_goes_to_the_own_machine_only() {
    let harbour = Harbour::open().await;
    let mia = harbour.person("mia", AccountRole::Member).await;
    for uri in ["http://evil.example/", "https://127.0.0.1:1/", "http://127.0.0.1:1@evil.example/"]
    {
        for path in ["/oauth/authorize", "/console/authorize"] {
            let query = authorize_query(&[("redirect_uri", uri)]);
            let got = mia.look(&format!("{path}?{query}")).await;
            assert_eq!(got.status, 400, "{path} {uri}");
        }
    }
    for (name, value, error) in [
        ("response_type", "token", "unsupported_response_type"),
        ("code_challenge_method", "plain", "invalid_request"),
        ("code_challenge", "short", "invalid_request"),
    ] {
        let got =
            mia.look(&format!("/oauth/authorize?{}", authorize_query(&[(name, value)]))).await;
        let to = got.header("location");
        assert!(to.starts_with(&format!("{REDIRECT}?error={error}")), "{to}");
    }
    // A form of another site decides nothing.
    let fields = authorize_query(&[("answer", "approve"), ("owner", &mia.account.id)]);
    let ask = harbour.gateway.request(Method::POST, "/console/authorize").without_key();
    let ask = ask.header("cookie", &mia.cookie).header("sec-fetch-site", "cross-site");
    let ask = ask.header("content-type", "application/x-www-form-urlencoded").body(fields);
    assert_eq!(ask.send().await.status, 403);
}

//! The device grant: codes, polls, the page, and everything that ends them.

use testkit::until;

use super::*;

#[tokio::test]
async fn an_agent_signs_in_with_a_code_that_a_person_confirms() {
    let harbour = Harbour::open().await;
    let base = &harbour.gateway.url;
    let server = harbour.gateway.get("/.well-known/oauth-authorization-server").without_key();
    let server = server.send().await.json();
    assert_eq!(server["issuer"], *base);
    assert_eq!(
        server["device_authorization_endpoint"],
        format!("{base}/oauth/device_authorization")
    );
    assert_eq!(server["token_endpoint"], format!("{base}/oauth/token"));
    assert_eq!(server["revocation_endpoint"], format!("{base}/oauth/revoke"));
    let mia = harbour.person("mia", AccountRole::Member).await;
    let begun = harbour.begin().await;
    let (device, code) = (text(&begun, "device_code"), text(&begun, "user_code"));
    assert_eq!((&begun["expires_in"], &begun["interval"]), (&json!(600), &json!(5)));
    assert_eq!(device.len(), 64);
    let page = text(&begun, "verification_uri_complete");
    assert_eq!(page, format!("{base}/device?user_code={code}"));
    assert_eq!(harbour.refused_poll(&device).await, (400, "authorization_pending".into()));
    assert_eq!(harbour.refused_poll(&device).await, (400, "slow_down".into()));
    harbour.clock.step(5 * SECOND);
    assert_eq!(harbour.refused_poll(&device).await, (400, "authorization_pending".into()));
    // The page needs a session, shows who asks, and decides nothing by itself.
    let opened = mia.look(&format!("/device?user_code={code}")).await;
    assert_eq!(opened.header("location"), format!("/console/device?user_code={code}"));
    let nobody = harbour.gateway.get(opened.header("location")).without_key().send().await;
    assert_eq!(nobody.status, 303);
    assert!(nobody.header("location").starts_with("/login?next=%2Fconsole%2Fdevice"));
    let shown = mia.look(opened.header("location")).await.text();
    for part in ["Claude Code", &code, "claude-code/2.1.325", "127.0.0.1"] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    harbour.clock.step(5 * SECOND);
    assert_eq!(harbour.refused_poll(&device).await, (400, "authorization_pending".into()));
    let typed = code.to_lowercase().replace('-', "");
    let done = mia.decide(&typed, &mia.account.id, "approve").await;
    assert_eq!(done.status, 200, "{}", done.text());
    assert_eq!(
        mia.decide(&code, &mia.account.id, "approve").await.status,
        404,
        "it is decided once"
    );
    let got = harbour.poll(&device).await;
    let tokens = Tokens::of(&got);
    assert_eq!(got.header("cache-control"), "no-store");
    assert_eq!(got.json()["email"], "mia@example.com");
    assert_eq!(got.json()["expires_in"], 3_600);
    assert_eq!(harbour.refused_poll(&device).await, (400, "expired_token".into()));
    let key = harbour.key_of(&tokens.access).await;
    assert_eq!((key.name.as_str(), key.surface.as_deref()), ("laptop", Some("claude_code")));
    assert_eq!(
        (&key.account_id, key.created_by.as_ref()),
        (&mia.account.id, Some(&mia.account.id))
    );
    assert_eq!(harbour.call(&tokens.access).await.status, 200);
    // The header for agents whose `Authorization` belongs to somebody else.
    let carried = harbour.gateway.get("/v1/key").header("authorization", "Bearer other");
    let carried = carried.header("x-portunus-token", &format!("Bearer {}", tokens.access));
    assert_eq!(carried.send().await.json()["name"], "laptop");
}

#[tokio::test]
async fn of_many_polls_at_once_one_gets_the_key() {
    let harbour = Harbour::open().await;
    let mia = harbour.person("mia", AccountRole::Member).await;
    let begun = harbour.begin().await;
    mia.decide(&text(&begun, "user_code"), &mia.account.id, "approve").await;
    let device = text(&begun, "device_code");
    let polls = futures_util::future::join_all((0..8).map(|_| harbour.poll(&device))).await;
    let granted = polls.iter().filter(|got| got.status == 200).count();
    assert_eq!(granted, 1);
    assert_eq!(harbour.gateway.app.store.keys_of(&mia.account.id).await.unwrap().len(), 1);
}

#[tokio::test]
async fn codes_end_by_refusal_and_by_time() {
    let harbour = Harbour::open().await;
    let mia = harbour.person("mia", AccountRole::Member).await;
    let vera = harbour.person("vera", AccountRole::Viewer).await;
    let begun = harbour.begin().await;
    let (device, code) = (text(&begun, "device_code"), text(&begun, "user_code"));
    // A viewer has no keys, and nobody signs in for another person.
    assert_eq!(vera.decide(&code, &vera.account.id, "approve").await.status, 403);
    assert_eq!(mia.decide(&code, &vera.account.id, "approve").await.status, 403);
    assert_eq!(mia.decide(&code, &mia.account.id, "").await.status, 400);
    assert_eq!(mia.decide(&code, &mia.account.id, "deny").await.status, 200);
    assert_eq!(harbour.refused_poll(&device).await, (400, "access_denied".into()));
    assert_eq!(harbour.refused_poll(&device).await, (400, "expired_token".into()));
    let late = harbour.begin().await;
    harbour.clock.step(600 * SECOND);
    let got = mia.decide(&text(&late, "user_code"), &mia.account.id, "approve").await;
    assert_eq!(got.status, 404, "{}", got.text());
    let device = text(&late, "device_code");
    assert_eq!(harbour.refused_poll(&device).await, (400, "expired_token".into()));
    assert_eq!(harbour.refused_poll("no such code").await, (400, "expired_token".into()));
    assert!(harbour.gateway.app.store.keys_of(&mia.account.id).await.unwrap().is_empty());
}

#[tokio::test]
async fn requests_without_sense_get_errors_of_oauth() {
    let harbour = Harbour::open().await;
    let gateway = &harbour.gateway;
    for (fields, error) in [
        (vec![], "invalid_request"),
        (vec![("grant_type", "password")], "unsupported_grant_type"),
        (vec![("grant_type", DEVICE)], "invalid_request"),
        (vec![("grant_type", "refresh_token")], "invalid_request"),
        (vec![("grant_type", "authorization_code"), ("code", "x")], "invalid_request"),
        (
            vec![
                ("grant_type", "authorization_code"),
                ("code", "x"),
                ("code_verifier", "y"),
                ("redirect_uri", "z"),
            ],
            "invalid_grant",
        ),
    ] {
        let got = send(gateway, "/oauth/token", &fields).await;
        assert_eq!((got.status.as_u16(), text(&got.json(), "error")), (400, error.into()));
    }
    let ask = gateway.request(Method::POST, "/oauth/token").without_key().body("{}");
    let got = ask.send().await;
    assert_eq!((got.status.as_u16(), text(&got.json(), "error")), (400, "invalid_request".into()));
    let ask = gateway.request(Method::POST, "/oauth/token").without_key();
    let ask = ask.header("content-type", "application/x-www-form-urlencoded");
    let got = ask.body("x".repeat(20_000)).send().await;
    assert_eq!((got.status.as_u16(), text(&got.json(), "error")), (413, "invalid_request".into()));
    assert_eq!(send(gateway, "/oauth/revoke", &[("token", "nothing")]).await.status, 200);
    // An ordinary key is not revoked by those who only hold it.
    let key = gateway.key.clone();
    assert_eq!(send(gateway, "/oauth/revoke", &[("token", &key)]).await.status, 200);
    assert_eq!(gateway.get("/v1/key").send().await.status, 200);
}

#[tokio::test]
async fn a_network_begins_sixty_sign_ins_in_ten_minutes() {
    let harbour = Harbour::open().await;
    for _ in 0..60 {
        harbour.begin().await;
    }
    let got = send(&harbour.gateway, "/oauth/device_authorization", &[]).await;
    assert_eq!((got.status.as_u16(), text(&got.json(), "error")), (429, "slow_down".into()));
    assert!(got.header("retry-after").parse::<u32>().unwrap() > 500);
    harbour.clock.step(601 * SECOND);
    harbour.begin().await;
}

#[tokio::test]
async fn codes_cannot_be_guessed() {
    let harbour = Harbour::open().await;
    let mia = harbour.person("mia", AccountRole::Member).await;
    let mut statuses = Vec::new();
    for n in 0..12 {
        statuses
            .push(mia.look(&format!("/console/device?user_code=GUESS{n}")).await.status.as_u16());
    }
    assert_eq!((statuses[0], statuses[11]), (404, 429), "{statuses:?}");
}

/// Each step of a sign-in is served by another node.
#[tokio::test]
async fn any_node_serves_any_step() {
    let harbour = Harbour::open().await;
    let mia = harbour.person("mia", AccountRole::Member).await;
    let other = harbour.gateway.start_second_node("").await;
    let begun = harbour.begin().await;
    let there =
        Person { gateway: &other, account: mia.account.clone(), cookie: mia.cookie.clone() };
    let done = there.decide(&text(&begun, "user_code"), &mia.account.id, "approve").await;
    assert_eq!(done.status, 200, "{}", done.text());
    let first = Tokens::of(&harbour.poll(&text(&begun, "device_code")).await);
    let fields = [("grant_type", "refresh_token"), ("refresh_token", first.refresh.as_str())];
    let second = Tokens::of(&send(&other, "/oauth/token", &fields).await);
    let again = Tokens::of(&harbour.refresh(&first.refresh).await);
    assert_eq!((&again.access, &again.refresh), (&second.access, &second.refresh));
    // A node learns of changed keys within a second.
    let known = async || harbour.call(&second.access).await.status == 200;
    until("the first node knows the new token", known).await;
    let got = send(&harbour.gateway, "/oauth/revoke", &[("token", &second.access)]).await;
    assert_eq!(got.status, 200);
    let refused = async || other.get("/v1/key").key(&second.access).send().await.status == 401;
    until("the second node refuses the token", refused).await;
}

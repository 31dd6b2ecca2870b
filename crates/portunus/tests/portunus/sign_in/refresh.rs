//! Renewal, theft, sign-out, and the end of a person's rights.

use super::*;
use crate::web_sockets::SocketClient;

#[tokio::test]
async fn a_refresh_replaces_both_tokens_and_keeps_the_key() {
    let harbour = Harbour::open().await;
    let mia = harbour.person("mia", AccountRole::Member).await;
    let first = harbour.sign_in(&mia, &mia.account.id).await;
    harbour.clock.step(1_800 * SECOND);
    let second = Tokens::of(&harbour.refresh(&first.refresh).await);
    assert_ne!(first.access, second.access);
    assert_ne!(first.refresh, second.refresh);
    assert_eq!(harbour.key_of(&first.access).await.id, harbour.key_of(&second.access).await.id);
    for token in [&first.access, &second.access] {
        assert_eq!(harbour.call(token).await.status, 200, "the old one lives as long as promised");
    }
    // The answer was lost: the same question gets the same answer for a minute.
    let again = Tokens::of(&harbour.refresh(&first.refresh).await);
    assert_eq!((&again.access, &again.refresh), (&second.access, &second.refresh));
    harbour.clock.step(1_801 * SECOND);
    let dead = harbour.call(&first.access).await;
    assert_eq!((dead.status.as_u16(), dead.header("x-should-retry")), (401, "false"));
    assert_eq!(harbour.call(&second.access).await.status, 200);
    harbour.clock.step(1_800 * SECOND);
    assert_eq!(harbour.call(&second.access).await.status, 401, "an hour is over");
    let third = Tokens::of(&harbour.refresh(&second.refresh).await);
    assert_eq!(harbour.call(&third.access).await.status, 200);
    // Thirty days without a refresh end the sign-in.
    harbour.clock.step(Micros::from_days(31));
    harbour.is_signed_out(&third.refresh).await;
    assert!(harbour.key_of(&third.access).await.revoked.is_some());
}

/// Nobody can tell the owner of a token from a thief who was faster. Windows of Claude Code share a
/// token, and one that slept is only refused.
#[tokio::test]
async fn a_refresh_token_that_is_used_again_ends_the_sign_in() {
    let harbour = Harbour::with_config("[server]\ntrusted_proxies = [\"127.0.0.0/8\"]\n").await;
    let mia = harbour.person("mia", AccountRole::Member).await;
    let from = async |address: &str, token: &str| {
        let fields = [("grant_type", "refresh_token"), ("refresh_token", token)];
        let ask = harbour.gateway.request(Method::POST, "/oauth/token").without_key();
        let ask = ask.header("content-type", "application/x-www-form-urlencoded");
        ask.header("x-forwarded-for", address).body(form(&fields)).send().await
    };
    let (owner, other) = ("192.0.2.1", "198.51.100.7");
    for surface in ["claude_code", "other"] {
        for (is_used, thief) in [(false, owner), (false, other), (true, owner), (true, other)] {
            let first = harbour.sign_in_with(surface, &mia, &mia.account.id).await;
            let second = Tokens::of(&from(owner, &first.refresh).await);
            // The grace ends with time, and with the use of the successor.
            let last = match is_used {
                true => Tokens::of(&from(owner, &second.refresh).await),
                false => {
                    harbour.clock.step(61 * SECOND);
                    second
                }
            };
            assert_eq!(from(thief, &first.refresh).await.status, 401);
            let stays = surface == "claude_code" && thief == owner;
            let status = if stays { 200 } else { 401 };
            let case = format!("{surface} {is_used} {thief}");
            assert_eq!(harbour.call(&last.access).await.status, status, "{case}");
            assert_eq!(from(owner, &last.refresh).await.status, status, "{case}");
        }
    }
    let audit = harbour.gateway.get("/api/admin/audit?action=key.revoke").send().await.text();
    for networks in ["from one network", "from two networks"] {
        let note = format!("its refresh token was used twice, {networks}");
        assert!(audit.contains(&note), "{audit}");
    }
}

/// Codex signs in again only after the status of RFC 6749. Claude Code names no client.
#[tokio::test]
async fn a_sign_in_that_ended_is_told_with_the_status_that_the_client_knows() {
    let harbour = Harbour::open().await;
    for (client, status) in [("codex", 400), ("", 401)] {
        let fields = [
            ("grant_type", "refresh_token"),
            ("refresh_token", "rt-pt-gone"),
            ("client_id", client),
        ];
        let got = send(&harbour.gateway, "/oauth/token", &fields).await;
        assert_eq!(
            (got.status.as_u16(), text(&got.json(), "error")),
            (status, "invalid_grant".into())
        );
    }
}

#[tokio::test]
async fn many_refreshes_at_once_get_one_answer() {
    let harbour = Harbour::open().await;
    let mia = harbour.person("mia", AccountRole::Member).await;
    let first = harbour.sign_in(&mia, &mia.account.id).await;
    let all = futures_util::future::join_all((0..6).map(|_| harbour.refresh(&first.refresh))).await;
    let all: Vec<Tokens> = all.iter().map(Tokens::of).collect();
    assert!(all.iter().all(|one| one.access == all[0].access && one.refresh == all[0].refresh));
    assert_eq!(harbour.call(&all[0].access).await.status, 200);
}

/// Two processes of an agent may reach two nodes. They get one answer, and a later use of the old token ends
/// the sign-in on both nodes.
#[tokio::test]
async fn nodes_agree_on_a_token_that_is_used_again() {
    let harbour = Harbour::open().await;
    let mia = harbour.person("mia", AccountRole::Member).await;
    let second_node = harbour.gateway.start_second_node("").await;
    let first = harbour.sign_in_with("other", &mia, &mia.account.id).await;
    let fields = [("grant_type", "refresh_token"), ("refresh_token", &first.refresh)];
    let both =
        tokio::join!(harbour.refresh(&first.refresh), send(&second_node, "/oauth/token", &fields),);
    let (one, two) = (Tokens::of(&both.0), Tokens::of(&both.1));
    assert_eq!((&one.access, &one.refresh), (&two.access, &two.refresh));
    let status = async || {
        let body = json!({
            "model": "demo-messages", "max_tokens": 20,
            "messages": [{ "role": "user", "content": "hello" }],
        });
        second_node.post("/v1/messages", &body).key(&one.access).send().await.status.as_u16()
    };
    assert_eq!(status().await, 200);
    harbour.clock.step(61 * SECOND);
    harbour.is_signed_out(&first.refresh).await;
    assert_eq!(harbour.call(&one.access).await.status, 401);
    testkit::until("the other node refuses the key", async || status().await == 401).await;
    let fields = [("grant_type", "refresh_token"), ("refresh_token", &one.refresh)];
    assert_eq!(send(&second_node, "/oauth/token", &fields).await.status, 401);
}

#[tokio::test]
async fn either_token_signs_out() {
    let harbour = Harbour::open().await;
    let mia = harbour.person("mia", AccountRole::Member).await;
    for by_refresh in [false, true] {
        let tokens = harbour.sign_in(&mia, &mia.account.id).await;
        let token = if by_refresh { &tokens.refresh } else { &tokens.access };
        let got = send(&harbour.gateway, "/oauth/revoke", &[("token", token)]).await;
        assert_eq!(got.status, 200);
        assert_eq!(send(&harbour.gateway, "/oauth/revoke", &[("token", token)]).await.status, 200);
        let dead = harbour.call(&tokens.access).await;
        assert_eq!((dead.status.as_u16(), dead.header("x-should-retry")), (401, "false"));
        harbour.is_signed_out(&tokens.refresh).await;
    }
}

#[tokio::test]
async fn a_locked_person_is_out_at_once_in_the_team_too() {
    let harbour = Harbour::open().await;
    let app = &harbour.gateway.app;
    let mia = harbour.person("mia", AccountRole::Member).await;
    let made = harbour.gateway.post("/api/admin/teams", &json!({ "name": "Night shift" })).send();
    let team = text(&made.await.json(), "id");
    app.store
        .set_member(&team, &mia.account.id, Some(TeamRole::Member), true, Micros::new(1))
        .await
        .unwrap();
    let own = harbour.sign_in(&mia, &mia.account.id).await;
    let shared = harbour.sign_in(&mia, &team).await;
    assert_eq!(harbour.key_of(&shared.access).await.account_id, team);
    for tokens in [&own, &shared] {
        assert_eq!(harbour.call(&tokens.access).await.status, 200);
    }
    let hello = json!({ "model": "demo-chat", "input": "Hi" });
    let mut sockets = Vec::new();
    for tokens in [&own, &shared] {
        let mut socket = SocketClient::open_with(&harbour.gateway, &tokens.access, "").await;
        assert_eq!(socket.ask(hello.clone()).await["type"], "response.completed");
        sockets.push(socket);
    }
    let path = format!("/api/admin/users/{}", mia.account.id);
    let ask = harbour.gateway.request(Method::PATCH, &path).body(r#"{"disabled":true}"#);
    assert_eq!(ask.send().await.status, 200);
    for mut socket in sockets {
        let got = socket.ask(hello.clone()).await;
        assert_eq!(
            (&got["status"], &got["error"]["code"]),
            (&json!(401), &json!("invalid_api_key"))
        );
        assert_eq!(socket.closed().await, 1008);
    }
    for tokens in [&own, &shared] {
        assert_eq!(harbour.call(&tokens.access).await.status, 401);
        harbour.is_signed_out(&tokens.refresh).await;
    }
}

#[tokio::test]
async fn a_person_who_left_the_team_is_out() {
    let harbour = Harbour::open().await;
    let app = &harbour.gateway.app;
    let mia = harbour.person("mia", AccountRole::Member).await;
    let made = harbour.gateway.post("/api/admin/teams", &json!({ "name": "Night shift" })).send();
    let team = text(&made.await.json(), "id");
    // Without a seat there is no sign-in for the team.
    let begun = harbour.begin().await;
    let got = mia.decide(&text(&begun, "user_code"), &team, "approve").await;
    assert_eq!(got.status, 403, "{}", got.text());
    let seat = async |role| {
        app.store.set_member(&team, &mia.account.id, role, true, Micros::new(1)).await.unwrap();
    };
    seat(Some(TeamRole::Member)).await;
    let page = mia.look(&format!("/console/device?user_code={}", text(&begun, "user_code"))).await;
    assert!(page.text().contains("Night shift"), "{}", page.text());
    // A role that makes no keys is noticed at the refresh.
    let tokens = harbour.sign_in(&mia, &team).await;
    seat(Some(TeamRole::Viewer)).await;
    harbour.is_signed_out(&tokens.refresh).await;
    assert_eq!(harbour.call(&tokens.access).await.status, 401);
    // A removal ends the sign-in at once, even if other keys stay.
    seat(Some(TeamRole::Member)).await;
    let tokens = harbour.sign_in(&mia, &team).await;
    let path = format!("/api/admin/teams/{team}/members/{}?keys=keep", mia.account.id);
    let got = harbour.gateway.request(Method::DELETE, &path).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    assert_eq!(harbour.call(&tokens.access).await.status, 401);
    harbour.is_signed_out(&tokens.refresh).await;
}

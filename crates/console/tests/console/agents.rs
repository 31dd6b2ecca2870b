//! Pages for coding agents: their settings, and the sessions that they name.

use http::StatusCode;
use ledger::LedgerEntry;
use store::AccountRole;

use crate::gateway::{ConsoleGateway, ODD, SECOND, START, entry};

/// The odd name as a page shows it.
const HTML: &str = "acme/&lt;script&gt;alert(1)&lt;/script&gt;";

#[tokio::test]
async fn every_agent_has_its_settings_with_this_address_and_no_key() {
    let gateway = ConsoleGateway::new().await;
    gateway.account("ben", AccountRole::Viewer).await;
    gateway.get("/console/agents").send().await.assert_redirect("/login?next=%2Fconsole%2Fagents");
    let cookie = gateway.sign_in("ben").await;
    let page = gateway.get("/console/agents").cookie(&cookie).send().await;
    assert_eq!(page.status, StatusCode::OK);
    for agent in ["Claude Code", "Codex", "Gemini CLI", "opencode", "Qwen Code", "aider", "llm"] {
        page.assert_contains(&format!("<h2>{agent}</h2>"));
    }
    for text in
        ["ANTHROPIC_BASE_URL", "model_catalog_url", "GOOGLE_GEMINI_BASE_URL", "OPENAI_BASE_URL"]
    {
        page.assert_contains(text);
    }
    page.assert_lacks("sk-pt-0");
}

#[tokio::test]
async fn sessions_are_listed_and_shown_to_their_own_account() {
    let gateway = ConsoleGateway::new().await;
    let anna = gateway.account("anna", AccountRole::Owner).await;
    let ben = gateway.account("ben", AccountRole::Member).await;
    let website = gateway.key_of(&anna, "abc", "website").await;
    let robot = gateway.key_of(&ben, "def", "robot").await;
    let (annas, bens) = (gateway.sign_in("anna").await, gateway.sign_in("ben").await);
    gateway.get("/console/sessions").cookie(&bens).send().await.assert_contains("No sessions");

    let of = |call: LedgerEntry, session: &str, lane: &str| LedgerEntry {
        session: session.into(),
        lane: lane.into(),
        ended: START + SECOND,
        ..call
    };
    let calls = [
        of(entry(&website, "a0", "demo-chat", 500_000_000), "run/7", "acme/x"),
        of(entry(&website, "a1", "demo-chat", 500_000_000), "run/7", "acme/x"),
        of(entry(&website, "a2", "other", 250_000_000), "run/7", "acme/y"),
        of(entry(&robot, "b0", "demo-chat", 3_000_000_000), ODD, "acme/x"),
        entry(&robot, "b1", "demo-chat", 7_000_000_000),
    ];
    gateway.store.post(&calls).await.unwrap();

    let mine = gateway.get("/console/sessions").cookie(&bens).send().await;
    mine.assert_contains(HTML);
    mine.assert_contains("$3.00");
    // Neither another account's sessions nor calls without one.
    mine.assert_lacks("run/7");
    mine.assert_lacks("$7.00");
    mine.assert_lacks("<script>alert");
    let all = gateway.get("/console/sessions").cookie(&annas).send().await;
    all.assert_contains("/console/sessions?id=run%2F7");
    all.assert_contains(HTML);

    let shown = gateway.get("/console/sessions?id=run%2F7").cookie(&annas).send().await;
    assert_eq!(shown.status, StatusCode::OK);
    for text in ["$1.25", "acme/x", "acme/y", "other", "<dt>Calls</dt><dd>3</dd>"] {
        shown.assert_contains(text);
    }
    for id in ["run%2F7", "none"] {
        let path = format!("/console/sessions?id={id}");
        let hidden = gateway.get(&path).cookie(&bens).send().await;
        assert_eq!(hidden.status, StatusCode::NOT_FOUND, "{id}");
    }
}

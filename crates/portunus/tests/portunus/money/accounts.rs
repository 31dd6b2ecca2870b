//! The one cap and the one budget that all keys of an account share.

use canon::Money;
use ledger::BudgetPeriod;
use serde_json::json;
use store::{AccountTerms, BudgetTerms};
use testkit::{ScriptedProvider, TestGateway, chat_reply};

use crate::money::{CHAT, chat, key};

/// A gateway whose only account may spend that, with a model whose calls cost 0.00012 each.
async fn shared(terms: AccountTerms) -> (ScriptedProvider, TestGateway, [String; 2]) {
    let provider = ScriptedProvider::start(vec![chat_reply("Here.", 100, 10)]).await;
    let gateway = TestGateway::with_config(&provider.config("chat")).await;
    let account = gateway.app.store.accounts().await.unwrap().remove(0);
    gateway.app.store.set_account_terms(&account.id, &terms).await.unwrap();
    gateway.app.engine.keys.refresh().await.unwrap();
    let keys = [key(&gateway, |_| ()).await, key(&gateway, |_| ()).await];
    (provider, gateway, keys)
}

#[tokio::test]
async fn a_cap_holds_over_all_keys_of_an_account() {
    let cap: Money = "0.002".parse().unwrap();
    let (provider, gateway, keys) =
        shared(AccountTerms { cap: Some(cap), ..AccountTerms::default() }).await;
    let mut refused = None;
    for at in 0..20 {
        let got = gateway.post(CHAT, &chat(false)).key(&keys[at % 2]).send().await;
        match got.status.as_u16() {
            200 => {}
            429 => {
                refused = Some(got);
                break;
            }
            other => panic!("{other}: {}", got.text()),
        }
    }
    let refused = refused.expect("so many calls use the cap up");
    assert!(refused.text().contains("account"), "{}", refused.text());
    assert_eq!(refused.header("x-should-retry"), "false");
    gateway.wait_until_settled().await;
    let total = gateway.app.store.account_totals().await.unwrap().remove(0);
    assert!(total.spent.saturating_add(total.leased) <= cap, "{total:?}");
    let calls = i64::try_from(provider.requests().len()).unwrap();
    assert_eq!(total.spent, Money::from_nanos(120_000 * calls));
    assert!(total.spent > Money::from_nanos(1_800_000), "nearly all of it is spent: {total:?}");
    let told = gateway.get("/v1/key").key(&keys[0]).send().await.json();
    assert_eq!(
        (&told["cap_usd"], &told["account"]["cap_usd"]),
        (&json!(null), &json!("0.002000000"))
    );
    let left: Money = told["remaining_usd"].as_str().unwrap().parse().unwrap();
    assert!(left < "0.0003".parse().unwrap(), "{told}");
}

#[tokio::test]
async fn a_cap_that_is_taken_away_lets_calls_through_again() {
    let cap = Some(Money::ZERO);
    let (_provider, gateway, keys) = shared(AccountTerms { cap, ..<_>::default() }).await;
    let call = || gateway.post(CHAT, &chat(false)).key(&keys[0]).send();
    assert_eq!(call().await.status, 429);
    let account = gateway.app.store.accounts().await.unwrap().remove(0);
    gateway.app.store.set_account_terms(&account.id, &AccountTerms::default()).await.unwrap();
    gateway.app.engine.keys.refresh().await.unwrap();
    assert_eq!(call().await.status, 200);
}

#[tokio::test]
async fn a_lowered_cap_of_an_account_holds_for_keys_with_caps_of_their_own() {
    let cap = |usd: &str| AccountTerms { cap: Some(usd.parse().unwrap()), ..<_>::default() };
    let (_provider, gateway, _) = shared(cap("1")).await;
    let own = key(&gateway, |record| record.cap = Some("2".parse().unwrap())).await;
    let call = || gateway.post(CHAT, &chat(false)).key(&own).send();
    assert_eq!(call().await.status, 200);
    // The lease of this key still has nearly all of the first cap.
    let account = gateway.app.store.accounts().await.unwrap().remove(0);
    gateway.app.store.set_account_terms(&account.id, &cap("0.0001")).await.unwrap();
    gateway.app.engine.keys.refresh().await.unwrap();
    let refused = call().await;
    assert_eq!(refused.status, 429, "{}", refused.text());
}

#[tokio::test]
async fn a_budget_is_shared_by_all_keys_of_an_account() {
    let most: Money = "0.001".parse().unwrap();
    let budget = Some(BudgetTerms { limit: most, period: BudgetPeriod::Month });
    let (_provider, gateway, keys) =
        shared(AccountTerms { budget, ..AccountTerms::default() }).await;
    let mut answered = 0;
    let refused = loop {
        let got = gateway.post(CHAT, &chat(false)).key(&keys[answered % 2]).send().await;
        if got.status != 200 {
            break got;
        }
        answered += 1;
        assert!(answered < 10, "eight calls use the budget up");
    };
    assert_eq!(refused.status, 429);
    assert!(refused.text().contains("budget of this account"), "{}", refused.text());
    let told = gateway.get("/v1/key").key(&keys[1]).send().await.json();
    assert_eq!(told["account"]["budget"]["per"], "month", "{told}");
    assert_eq!(told["account"]["budget"]["most_usd"], "0.001000000");
    assert!(told["account"]["budget"]["resets_at"].is_string());
    assert_eq!(told["budget"], json!(null));
}

#[tokio::test]
async fn a_new_account_is_capped_from_its_first_keys_first_call() {
    let gateway = TestGateway::start().await;
    let owner = gateway.app.store.accounts().await.unwrap().remove(0);
    let hello = json!({ "model": "demo-chat", "messages": [{ "role": "user", "content": "Hi" }] });
    for round in 0..3 {
        let account = store::Account {
            id: format!("account-{round}"),
            username: format!("newcomer-{round}"),
            email: None,
            role: store::AccountRole::Member,
            ..owner.clone()
        };
        let terms = AccountTerms { cap: Some(Money::ZERO), ..AccountTerms::default() };
        gateway.app.store.add_account_with_terms(&account, &terms).await.unwrap();
        let ask =
            testkit::NewKey { name: "first".to_owned(), cap: None, models: vec![], expires: None };
        let (record, text) = ask
            .into_record(&account.id, &gateway.app.engine.keys, gateway.app.clock.now())
            .unwrap();
        gateway.app.store.add_key(&record).await.unwrap();
        // Created by another node and looked up, created here, and loaded with the others.
        match round {
            0 => {}
            1 => gateway.app.engine.keys.insert_changed(record),
            _ => gateway.app.engine.keys.refresh().await.unwrap(),
        }
        let got = gateway.post("/v1/chat/completions", &hello).key(&text).send().await;
        assert_eq!(got.status, 429, "{round}: {}", got.text());
    }
}

#[tokio::test]
async fn a_list_of_models_holds_for_every_key_of_an_account() {
    let gateway = TestGateway::start().await;
    let account = gateway.app.store.accounts().await.unwrap().remove(0);
    let terms = AccountTerms { models: vec!["demo-chat".to_owned()], ..AccountTerms::default() };
    gateway.app.store.set_account_terms(&account.id, &terms).await.unwrap();
    gateway.app.engine.keys.refresh().await.unwrap();
    let wide = vec!["demo-chat".to_owned(), "demo-echo".to_owned()];
    let keys = [key(&gateway, |_| ()).await, key(&gateway, |record| record.models = wide).await];
    for key in &keys {
        for (model, status) in [("demo-chat", 200), ("demo-echo", 403)] {
            let ask = json!({ "model": model, "messages": [{ "role": "user", "content": "Hi" }] });
            let got = gateway.post(CHAT, &ask).key(key).send().await;
            assert_eq!(got.status, status, "{model}: {}", got.text());
        }
        let listed = gateway.get("/v1/models").key(key).send().await.json();
        let ids: Vec<&str> = listed["data"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|one| one["id"].as_str())
            .collect();
        assert_eq!(ids, ["demo-chat"]);
    }
    gateway.app.store.set_account_terms(&account.id, &AccountTerms::default()).await.unwrap();
    gateway.app.engine.keys.refresh().await.unwrap();
    let ask = json!({ "model": "demo-echo", "messages": [{ "role": "user", "content": "Hi" }] });
    assert_eq!(gateway.post(CHAT, &ask).key(&keys[0]).send().await.status, 200);
}

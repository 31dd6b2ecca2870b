//! Limits that are set while calls of a key without limits are running.

use canon::Money;
use http::Method;
use serde_json::json;
use std::sync::Arc;
use store::AccountTerms;
use testkit::{AnswerStep, ScriptedProvider, TestGateway, chat_reply, until};
use tokio::sync::Semaphore;

use crate::money::{CHAT, chat, key};

const RUNNING: usize = 3;

/// Calls that run when a cap is set pay as long as it has room, also if new calls come before their end.
#[tokio::test]
async fn calls_that_run_when_a_cap_is_set_are_charged() {
    for of_account in [false, true] {
        let go = Arc::new(Semaphore::new(0));
        let mut slow = vec![AnswerStep::WaitFor(Arc::clone(&go))];
        slow.extend(chat_reply("Here.", 9, 2));
        let mut answers = vec![slow; RUNNING];
        answers.push(chat_reply("Here.", 9, 2));
        let provider = ScriptedProvider::start(answers).await;
        let gateway = TestGateway::with_config(&provider.config("chat")).await;
        let (first, second) = (key(&gateway, |_| {}).await, key(&gateway, |_| {}).await);
        let running = (0..RUNNING).map(|_| gateway.post(CHAT, &chat(false)).key(&first).send());
        let limiting = async {
            until("the calls run", async || provider.requests().len() == RUNNING).await;
            // The other key of the account has no calls yet.
            let limited = if of_account { &second } else { &first };
            if of_account {
                let account = gateway.app.store.accounts().await.unwrap().remove(0);
                let terms = AccountTerms { cap: Some("1".parse().unwrap()), ..<_>::default() };
                gateway.app.store.set_account_terms(&account.id, &terms).await.unwrap();
            } else {
                let path = format!("/api/admin/keys/{}", first.split('-').nth(2).unwrap());
                let change = json!({ "cap_usd": "1" }).to_string();
                let got = gateway.request(Method::PATCH, &path).body(change).send().await;
                assert_eq!(got.status, 200, "{}", got.text());
            }
            until("the cap is in force", async || {
                let told = gateway.get("/v1/key").key(limited).send().await.json();
                told["cap_usd"] == "1.000000000" || told["account"]["cap_usd"] == "1.000000000"
            })
            .await;
            let got = gateway.post(CHAT, &chat(false)).key(limited).send().await;
            assert_eq!(got.status, 200, "{}", got.text());
            go.add_permits(RUNNING);
        };
        let (ended, ()) = tokio::join!(futures_util::future::join_all(running), limiting);
        assert!(ended.iter().all(|got| got.status == 200));
        gateway.wait_until_settled().await;
        let rows = gateway.app.store.export(None, 10).await.unwrap();
        assert_eq!(rows.len(), RUNNING + 1);
        for row in rows {
            let paid = (row.cost, row.absorbed);
            assert_eq!(paid, (Money::from_nanos(13_000), Money::ZERO), "{row:?}");
            assert_eq!(row.reasons, [], "{row:?}");
        }
    }
}

//! The cap and the budget that the keys of a team share.

use std::sync::Arc;

use canon::{Micros, Money};
use store::{AccountTerms, KeyOwner, Team};
use testkit::{ScriptedProvider, TestGateway, chat_reply};
use tokio::task::JoinSet;

use crate::money::{CHAT, chat, key};

/// Price of one call.
const PRICE: i64 = 120_000;

async fn team(gateway: &TestGateway, cap: Money) -> Team {
    let team = Team {
        id: "team-night".to_owned(),
        name: "Night shift".to_owned(),
        disabled: false,
        created: Micros::new(1),
        changed: Micros::new(1),
    };
    gateway.app.store.add_team(&team).await.unwrap();
    let terms = AccountTerms { cap: Some(cap), ..AccountTerms::default() };
    gateway.app.store.set_account_terms(&team.id, &terms).await.unwrap();
    team
}

async fn key_by(gateway: &TestGateway, team: &Team, maker: &str) -> String {
    let (team, maker) = (team.id.clone(), maker.to_owned());
    key(gateway, |record| {
        record.account_id = team;
        record.created_by = Some(maker);
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_callers_of_two_members_never_pass_a_teams_cap() {
    const CALLERS: usize = 64;
    const CALLS: i64 = 100;
    let provider = ScriptedProvider::start(vec![chat_reply("Here.", 100, 10)]).await;
    let gateway = Arc::new(TestGateway::with_config(&provider.config("chat")).await);
    let cap = Money::from_nanos(CALLS * PRICE);
    let team = team(&gateway, cap).await;
    let keys = [key_by(&gateway, &team, "anna").await, key_by(&gateway, &team, "bert").await];
    gateway.app.engine.keys.refresh().await.unwrap();
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let (gateway, key) = (Arc::clone(&gateway), keys[caller % 2].clone());
        callers.spawn(async move {
            let mut answered = 0_i64;
            loop {
                let got = gateway.post(CHAT, &chat(false)).key(&key).send().await;
                match got.status.as_u16() {
                    200 => answered += 1,
                    429 => return answered,
                    // The store may be late on a busy machine.
                    503 => {}
                    other => panic!("{other}: {}", got.text()),
                }
            }
        });
    }
    let admitted: i64 = callers.join_all().await.into_iter().sum();
    assert!(admitted <= CALLS, "{admitted} of {CALLS}");
    assert!(admitted > 0);
    gateway.wait_until_settled().await;
    let asked = i64::try_from(provider.requests().len()).unwrap();
    assert_eq!(asked, admitted, "what the provider served is what was answered");
    let totals = gateway.app.store.account_totals().await.unwrap();
    let total = totals.into_iter().find(|total| total.account_id == team.id).unwrap();
    assert_eq!(total.spent, Money::from_nanos(admitted * PRICE));
    assert!(total.spent.saturating_add(total.leased) <= cap, "{total:?}");
    let told = gateway.get("/v1/key").key(&keys[1]).send().await.json();
    assert_eq!(told["account"]["id"], team.id.as_str(), "{told}");
    assert_eq!(told["account"]["cap_usd"], cap.to_string());
    assert_eq!(told["account"]["spent_usd"], total.spent.to_string());
    // The members' own accounts are unchanged.
    let person = gateway.app.store.accounts().await.unwrap().remove(0);
    let (own, _) = gateway.app.store.account_spending(&person.id).await.unwrap();
    assert_eq!(own, Money::ZERO);
    assert_eq!(gateway.app.store.owner(&team.id).await.unwrap(), Some(KeyOwner::Team(team)));
}

#[tokio::test]
async fn a_closed_teams_keys_are_refused_and_nobody_elses() {
    let provider = ScriptedProvider::start(vec![chat_reply("Here.", 100, 10)]).await;
    let gateway = TestGateway::with_config(&provider.config("chat")).await;
    let team = team(&gateway, "1".parse().unwrap()).await;
    let shared = key_by(&gateway, &team, "anna").await;
    let call = |key: String| {
        let ask = gateway.post(CHAT, &chat(false)).key(&key);
        async move { ask.send().await.status.as_u16() }
    };
    assert_eq!(call(shared.clone()).await, 200);
    for (disabled, status) in [(true, 401), (false, 200)] {
        let now = gateway.app.clock.now();
        gateway.app.store.set_disabled(&team.id, disabled, now).await.unwrap();
        gateway.app.engine.keys.refresh().await.unwrap();
        assert_eq!(call(shared.clone()).await, status, "closed: {disabled}");
        assert_eq!(call(gateway.key.clone()).await, 200);
    }
}

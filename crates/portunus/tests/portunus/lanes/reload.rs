//! State that a reload of the configuration keeps, and state that it drops.

use super::*;
use upstream::LaneState;

/// Health of a lane with its first credential.
fn standing(gateway: &TestGateway, lane: &str) -> LaneState {
    let health = gateway.app.config().lane_health(gateway.app.ticks());
    health.iter().find(|one| one.lane == lane).unwrap().health.state
}

fn with_key(url: &str, key: &str) -> String {
    format!(
        "[providers.p]\nspeaks = \"chat\"\nbase = \"{url}\"\nauth = [{key}]\n\
         [models.m]\nlanes = [\"p/x\"]\n[models.n]\nlanes = [\"p/y\"]\n"
    )
}

fn bearer(word: &str) -> String {
    format!("{{ bearer = {{ text = \"{word}\" }} }}")
}

#[tokio::test]
async fn a_lane_that_rests_or_asked_for_time_is_not_asked_again_because_of_a_reload() {
    let busy = ScriptedProvider::start(vec![answer(429, "retry-after: 50\r\n", "{}")]).await;
    let (gone, alive) = (failing(404).await, good().await);
    let urls = [busy.url.as_str(), &gone.url, &alive.url];
    let lanes = "lanes = [\"a/x\", \"b/x\", \"c/x\"]";
    let gateway = TestGateway::with_config(&config(&urls, lanes)).await;
    assert_eq!(ask(&gateway).await.header("x-portunus-lane"), "c/x");
    for round in 0..3 {
        // The lanes are the same ones under another model, too.
        gateway.reload(&format!("{}[models.n{round}]\n{lanes}\n", config(&urls, lanes)));
        for model in ["m".to_owned(), format!("n{round}")] {
            let got = gateway.post(CHAT, &hello(&model)).send().await;
            assert_eq!(got.header("x-portunus-lane"), "c/x");
        }
        assert!(matches!(standing(&gateway, "a/x"), LaneState::Busy(_)));
        assert!(matches!(standing(&gateway, "b/x"), LaneState::CoolingDown(_)));
    }
    assert_eq!((busy.requests().len(), gone.requests().len()), (1, 1));
    // Another place under the same name is another place.
    let new = good().await;
    gateway.reload(&config(&[&new.url, &gone.url, &alive.url], lanes));
    assert_eq!(ask(&gateway).await.header("x-portunus-lane"), "a/x");
}

#[tokio::test]
async fn a_refused_credential_rests_on_wherever_it_stands_and_a_new_one_does_not() {
    let provider =
        ScriptedProvider::start(vec![answer(401, "", "{}"), chat_reply("hi", 1, 1)]).await;
    let gateway = TestGateway::with_config(&with_key(&provider.url, &bearer("old"))).await;
    assert_eq!(ask(&gateway).await.status, 503);
    // The same key in the second place, behind one that is good.
    let both = format!("{}, {}", bearer("new"), bearer("old"));
    gateway.reload(&with_key(&provider.url, &both));
    let health = gateway.app.config().lane_health(gateway.app.ticks());
    for lane in ["p/x", "p/y"] {
        let words: Vec<_> = health
            .iter()
            .filter(|one| one.lane == lane)
            .map(|one| (one.credential, one.health.state.as_str()))
            .collect();
        assert_eq!(words, [(0, "good"), (1, "cooling_down")], "{lane}");
    }
    for _ in 0..5 {
        assert_eq!(ask(&gateway).await.status, 200);
    }
    let old = |asked: &testkit::ReceivedRequest| asked.head.contains("Bearer old");
    assert_eq!(provider.requests().iter().filter(|asked| old(asked)).count(), 1);
}

#[tokio::test]
async fn a_budget_of_retries_is_not_filled_by_reloads() {
    let dead = failing(500).await;
    let text = config(&[&dead.url], "lanes = [\"a/x\"]");
    let gateway = TestGateway::with_config(&text).await;
    let began = std::time::Instant::now();
    for _ in 0..100 {
        gateway.reload(&text);
        assert_eq!(ask(&gateway).await.status, 503);
    }
    let floor = 10 * (1 + usize::try_from(began.elapsed().as_secs()).unwrap());
    assert!(dead.requests().len() <= 120 + floor, "{}", dead.requests().len());
}

//! The limit of calls in flight at a provider, and the lanes that take the rest.

use super::*;
use std::sync::Arc;
use std::time::Duration;
use testkit::until;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// A provider that answers as often as it is let.
async fn gated() -> (ScriptedProvider, Arc<Semaphore>) {
    let gate = Arc::new(Semaphore::new(0));
    let mut steps = chat_reply("hi", 3, 5);
    steps.insert(0, AnswerStep::WaitFor(Arc::clone(&gate)));
    (ScriptedProvider::start(vec![steps]).await, gate)
}

fn limited(provider: &ScriptedProvider, most: usize, rest: &str) -> String {
    format!(
        "[providers.a]\nspeaks = \"chat\"\nbase = \"{}\"\nmax_in_flight = {most}\n{rest}",
        provider.url
    )
}

/// That many calls, once they have all reached the provider.
async fn running(
    gateway: &Arc<TestGateway>,
    provider: &ScriptedProvider,
    count: usize,
) -> Vec<JoinHandle<TestResponse>> {
    let calls = (0..count).map(|_| {
        let gateway = Arc::clone(gateway);
        tokio::spawn(async move { ask(&gateway).await })
    });
    let calls = calls.collect();
    until("all calls reached the provider", async || provider.requests().len() >= count).await;
    calls
}

#[tokio::test]
async fn a_full_provider_leaves_its_calls_to_the_next_lane() {
    let (a, gate) = gated().await;
    let b = good().await;
    let rest = format!(
        "[providers.b]\nspeaks = \"chat\"\nbase = \"{}\"\n[models.m]\nlanes = [\"a/x\", \"b/x\"]\n\
         [models.n]\nlanes = [\"a/other\", \"b/other\"]\n",
        b.url
    );
    let text = limited(&a, 3, &rest);
    let gateway = Arc::new(TestGateway::with_config(&text).await);
    let calls = running(&gateway, &a, 3).await;
    for round in 0..4 {
        let got = ask(&gateway).await;
        assert_eq!((got.status.as_u16(), got.header("x-portunus-lane")), (200, "b/x"));
        assert_eq!(receipt(&gateway, &got).await["attempts"], 1);
        // The limit belongs to the provider, not to one of its models.
        let got = gateway.post(CHAT, &hello("n")).send().await;
        assert_eq!(got.header("x-portunus-lane"), "b/other");
        if round == 1 {
            // Running calls survive a reload and still count.
            gateway.reload(&text);
        }
    }
    gate.add_permits(3);
    for call in calls {
        assert_eq!(call.await.unwrap().header("x-portunus-lane"), "a/x");
    }
    gate.add_permits(1);
    assert_eq!(ask(&gateway).await.header("x-portunus-lane"), "a/x", "there is room again");
    assert_eq!(a.requests().len(), 4, "never more than three at once, and none in vain");
}

#[tokio::test]
async fn without_another_lane_the_caller_gets_retry_after() {
    let (a, gate) = gated().await;
    let gateway = Arc::new(
        TestGateway::with_config(&limited(&a, 2, "[models.m]\nlanes = [\"a/x\"]\n")).await,
    );
    let mut calls = running(&gateway, &a, 2).await;
    let got = ask(&gateway).await;
    assert_eq!((got.status.as_u16(), got.header("retry-after")), (503, "1"), "{}", got.text());
    assert_eq!(got.json()["error"]["code"], "overloaded");
    let health = gateway.app.config().lane_health(gateway.app.ticks());
    let lane = health.iter().find(|lane| lane.lane == "a/x").unwrap();
    assert_eq!(
        (lane.health.failure_streak, lane.health.last_failure),
        (0, None),
        "nothing is held against it"
    );
    // A caller that disconnects frees its place.
    calls.remove(0).abort();
    gate.add_permits(100);
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while ask(&gateway).await.status != 200 {
        assert!(std::time::Instant::now() < deadline, "a caller that left keeps its place");
    }
}

#[tokio::test]
async fn equals_share_what_fits_and_a_cap_of_nothing_is_refused() {
    let (a, gate) = gated().await;
    let b = good().await;
    let lanes = "lanes = [{ lane = \"a/x\", weight = 1000 }, { lane = \"b/x\", weight = 1 }]";
    let rest =
        format!("[providers.b]\nspeaks = \"chat\"\nbase = \"{}\"\n[models.m]\n{lanes}\n", b.url);
    let gateway = Arc::new(TestGateway::with_config(&limited(&a, 1, &rest)).await);
    let calls = (0..20).map(|_| {
        let gateway = Arc::clone(&gateway);
        tokio::spawn(async move { ask(&gateway).await })
    });
    let calls: Vec<_> = calls.collect();
    until("both providers were requests", async || {
        !a.requests().is_empty() && b.requests().len() >= 19
    })
    .await;
    gate.add_permits(1);
    for call in calls {
        assert_eq!(call.await.unwrap().status, 200);
    }
    assert_eq!(a.requests().len(), 1);

    let given = config::LoadOptions { file: None, listen_address: None, data_folder: ".".into() };
    let text = limited(&a, 0, "");
    let name = std::path::Path::new("p.toml");
    let refused = config::Config::parse(&text, name, &given, &|_| None).unwrap_err();
    assert!(refused.to_string().contains("providers.a.max_in_flight"), "{refused}");
}

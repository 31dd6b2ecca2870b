//! The mechanism that all clouds share: one fetch, renewal, the last good secret, back-off, refusals.

use futures_util::future::join_all;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;
use upstream::{AwsCredentials, EntraAuth, Provider, SentSecrets};

use crate::identity::aws::{bedrock, instance, signed};
use crate::identity::stub::{
    Stub, TIME, TestClock, call, call_with, call_within, host, provider, until,
};

fn on_instance(imds: &Stub, served: &Stub, clock: &TestClock) -> Provider {
    let host = host(&[("AWS_EC2_METADATA_SERVICE_ENDPOINT", &imds.url)]);
    let credentials = AwsCredentials::from_instance(&host, clock.function()).unwrap();
    provider(served, signed(credentials, clock))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sixty_calls_at_once_make_one_fetch() {
    let clock = TestClock::new();
    let gate = Arc::new(Semaphore::new(0));
    let imds = Stub::start_gated(Arc::clone(&gate), instance(&clock, 3_600)).await;
    let served = bedrock().await;
    let provider = Arc::new(on_instance(&imds, &served, &clock));
    let calls: Vec<_> = (0..60)
        .map(|_| {
            let provider = Arc::clone(&provider);
            tokio::spawn(async move { call(&provider).await.unwrap() })
        })
        .collect();
    until("the fetch began", || imds.count() == 1).await;
    gate.add_permits(1_000);
    for answer in join_all(calls).await {
        assert_eq!(answer.unwrap(), 200);
    }
    assert_eq!((imds.count(), served.count()), (3, 60), "three requests are one fetch");
}

#[tokio::test]
async fn a_slow_source_outlasts_the_call_that_asked_it() {
    let clock = TestClock::new();
    let gate = Arc::new(Semaphore::new(0));
    let imds = Stub::start_gated(Arc::clone(&gate), instance(&clock, 3_600)).await;
    let served = bedrock().await;
    let provider = on_instance(&imds, &served, &clock);
    let error = call_within(&provider, Duration::from_millis(50)).await.unwrap_err();
    assert_eq!(error.kind(), canon::ErrorKind::Timeout);
    gate.add_permits(1_000);
    assert_eq!(call(&provider).await.unwrap(), 200);
    assert_eq!(imds.count(), 3, "the fetch of the first call was used");
}

#[tokio::test]
async fn a_source_that_fails_is_asked_again_after_a_pause_that_grows() {
    let clock = TestClock::new();
    let imds = Stub::start(|_| (500, "oops".to_owned())).await;
    let served = bedrock().await;
    let provider = on_instance(&imds, &served, &clock);
    let mut asked = 0;
    for pause in [1, 2, 4, 8, 16, 30, 30] {
        for _ in 0..5 {
            let error = call(&provider).await.unwrap_err();
            assert!(error.log_note().unwrap().contains("answered 500"), "{error:?}");
        }
        asked += 1;
        assert_eq!(imds.count(), asked, "one request, then the known error");
        clock.advance(pause - 1);
        assert!(call(&provider).await.is_err());
        assert_eq!(imds.count(), asked, "{pause} s have not passed");
        clock.advance(1);
    }
    imds.answer_with(instance(&clock, 3_600));
    assert_eq!(call(&provider).await.unwrap(), 200);
    assert_eq!(provider.credential_trouble(0), None);
    assert_eq!(served.count(), 1);
    // The next failure begins with a short pause again.
    imds.answer_with(|_| (500, "oops".to_owned()));
    clock.advance(3_700);
    assert!(call(&provider).await.is_err());
    let asked = imds.count();
    clock.advance(1);
    assert!(call(&provider).await.is_err());
    assert_eq!(imds.count(), asked + 1);
}

#[tokio::test]
async fn a_new_configuration_takes_over_what_was_fetched() {
    let clock = TestClock::new();
    let (imds, served) = (Stub::start(instance(&clock, 3_600)).await, bedrock().await);
    let first = on_instance(&imds, &served, &clock);
    call(&first).await.unwrap();
    imds.answer_with(|_| (500, "oops".to_owned()));
    let second = on_instance(&imds, &served, &clock);
    second.adopt_credentials(&first);
    assert_eq!(call(&second).await.unwrap(), 200);
    assert_eq!(imds.count(), 3);
    // Another identity takes nothing over.
    let other = Stub::start(instance(&clock, 3_600)).await;
    let third = on_instance(&other, &served, &clock);
    third.adopt_credentials(&first);
    call(&third).await.unwrap();
    assert_eq!(other.count(), 3);
}

#[tokio::test]
async fn keys_that_aws_refuses_are_renewed_and_used_until_then() {
    let clock = TestClock::new();
    let imds = Stub::start(instance(&clock, 3_600)).await;
    let served = Stub::start(|_| (403, "{\"message\":\"no\"}".to_owned())).await;
    let provider = on_instance(&imds, &served, &clock);
    assert_eq!(call(&provider).await.unwrap(), 403);
    imds.answer_with(|_| (500, "oops".to_owned()));
    for _ in 0..10 {
        assert_eq!(call(&provider).await.unwrap(), 403);
    }
    until("the keys were to be renewed", || imds.count() == 4).await;
    assert_eq!(served.count(), 11, "every call was sent");
}

#[tokio::test]
async fn an_idle_provider_keeps_its_credential_fresh() {
    let clock = TestClock::new();
    let (imds, served) = (Stub::start(instance(&clock, 3_600)).await, bedrock().await);
    let provider = on_instance(&imds, &served, &clock);
    provider.keep_credentials_fresh();
    until("the keys were fetched", || imds.count() == 3).await;
    provider.prepare_credential(0).await.unwrap();
    provider.keep_credentials_fresh();
    clock.advance(3_400);
    provider.keep_credentials_fresh();
    until("the keys were renewed", || imds.count() == 6).await;
    assert_eq!(served.count(), 0);
}

#[tokio::test]
async fn a_token_that_is_refused_is_replaced_once_in_a_while() {
    let clock = TestClock::new();
    let tokens = Stub::start(|_| {
        (200, "{\"access_token\":\"tok-of-entra\",\"expires_in\":3600}".to_owned())
    })
    .await;
    let served = Stub::start(|_| (401, "{}".to_owned())).await;
    let host = host(&[("AZURE_POD_IDENTITY_AUTHORITY_HOST", &tokens.url)]);
    let auth = EntraAuth::from_managed_identity(None, None, &host, clock.function()).unwrap();
    let provider = provider(&served, upstream::Credential::entra(auth));
    for _ in 0..10 {
        assert_eq!(call(&provider).await.unwrap(), 401);
    }
    assert_eq!(tokens.count(), 2, "not one fetch for each refusal");
    clock.advance(31);
    for _ in 0..3 {
        assert_eq!(call(&provider).await.unwrap(), 401);
    }
    assert_eq!(tokens.count(), 3);
}

/// Law: whatever a service says of the life of a token, calls do not make a fetch each.
#[tokio::test]
async fn a_token_of_a_short_or_untold_life_is_not_fetched_for_each_call() {
    for (life, is_good) in [
        ("", true),
        (",\"expires_in\":3599.0", true),
        (",\"expires_in\":9223372036854775807", true),
        (",\"expires_in\":5", true),
        (",\"expires_in\":0", false),
        (",\"expires_in\":-500", false),
        (",\"expires_on\":\"1000\"", false),
    ] {
        let clock = TestClock::new();
        let tokens =
            Stub::start(move |_| (200, format!("{{\"access_token\":\"tok\"{life}}}"))).await;
        let served = bedrock().await;
        let host = host(&[("AZURE_POD_IDENTITY_AUTHORITY_HOST", &tokens.url)]);
        let auth = EntraAuth::from_managed_identity(None, None, &host, clock.function()).unwrap();
        let provider = provider(&served, upstream::Credential::entra(auth));
        for _ in 0..10 {
            assert_eq!(call(&provider).await.is_ok(), is_good, "{life}");
        }
        assert_eq!(tokens.count(), 1, "{life}");
        let trouble = provider.credential_trouble(0);
        assert_eq!(trouble.is_some_and(|why| why.contains("has expired")), !is_good, "{life}");
    }
}

/// Law: whatever replaces a secret, the call that was sent with it does not show it.
#[tokio::test]
async fn replaced_secrets_are_hidden_from_the_calls_that_were_sent_with_them() {
    let (clock, served) = (TestClock::new(), Stub::start(|_| (401, "{}".to_owned())).await);
    let count = AtomicU32::new(0);
    let tokens = Stub::start(move |_| {
        let number = count.fetch_add(1, Ordering::Relaxed);
        let token = format!("{number}{number}-the-token-of-{number}{number}");
        (200, format!("{{\"access_token\":\"{token}\",\"expires_in\":3600}}"))
    })
    .await;
    let host = host(&[("AZURE_POD_IDENTITY_AUTHORITY_HOST", &tokens.url)]);
    let auth = EntraAuth::from_managed_identity(None, None, &host, clock.function()).unwrap();
    let provider = provider(&served, upstream::Credential::entra(auth));
    let sent = SentSecrets::default();
    let all = "<00-the-token-of-00> <11-the-token-of-11> <22-the-token-of-22>";
    let shown = |sent: &SentSecrets| {
        let shown = provider.hide_secrets(all.as_bytes().to_vec(), sent, &|_| HashSet::new());
        String::from_utf8(shown).unwrap().matches("00>").count()
    };
    assert_eq!(call_with(&provider, TIME, &sent).await.unwrap(), 401);
    // One that was refused stays known until there is another.
    assert_eq!((shown(&sent), shown(&SentSecrets::default())), (0, 0));
    call(&provider).await.unwrap();
    clock.advance(3_600);
    call(&provider).await.unwrap();
    assert_eq!(tokens.count(), 3);
    assert_eq!((shown(&sent), shown(&sent.clone())), (0, 0));
    // Texts of calls that were not sent with it cannot have it.
    assert_eq!(shown(&SentSecrets::default()), 1);
}

#[tokio::test]
async fn replaced_keys_of_a_role_are_hidden_from_the_calls_that_were_sent_with_them() {
    let (clock, served) = (TestClock::new(), bedrock().await);
    let imds = Stub::start(instance(&clock, 3_600)).await;
    let provider = on_instance(&imds, &served, &clock);
    let sent = SentSecrets::default();
    call_with(&provider, TIME, &sent).await.unwrap();
    let session = served.last().header("x-amz-security-token").to_owned();
    assert!(session.len() >= 8, "{session}");
    clock.advance(6 * 3_600);
    call(&provider).await.unwrap();
    assert_ne!(served.last().header("x-amz-security-token"), session);
    let shown = provider.hide_secrets(session.clone().into_bytes(), &sent, &|_| HashSet::new());
    assert_eq!(shown, b"[hidden]");
}

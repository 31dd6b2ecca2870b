//! The charging rules of `docs/money.md`, row by row.

use canon::Money;
use ledger::{CallOutcome, ChargeReason, EndedBy};
use serde_json::{Value, json};
use testkit::{AnswerStep, ScriptedProvider, TestGateway, chat_reply, chat_stream, reply, sse};

use crate::money::{CHAT, capped, chat, receipt, row};

async fn with(answer: Vec<AnswerStep>, speaks: &str) -> (ScriptedProvider, TestGateway) {
    let provider = ScriptedProvider::start(vec![answer]).await;
    let gateway = TestGateway::with_config(&provider.config(speaks)).await;
    (provider, gateway)
}

fn whole(usage: &Value) -> Vec<AnswerStep> {
    let body = json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "up",
        "choices": [{ "index": 0, "finish_reason": "stop",
                      "message": { "role": "assistant", "content": "A quiet harbour." } }],
        "usage": usage,
    });
    reply(200, "application/json", &body.to_string())
}

#[tokio::test]
async fn calls_rejected_before_the_provider_are_free() {
    let (provider, gateway) = with(chat_reply("never", 1, 1), "chat").await;
    let key = capped(&gateway, "0").await;
    let got = gateway.post(CHAT, &chat(false)).key(&key).send().await;
    assert_eq!((got.status.as_u16(), got.header("x-should-retry")), (429, "false"));
    let receipt = receipt(&gateway, &got).await;
    assert_eq!(receipt["error"]["code"], "not_found", "it has no receipt: {receipt}");
    assert!(provider.requests().is_empty());
}

#[tokio::test]
async fn refused_calls_are_counted_and_have_no_rows() {
    let (provider, gateway) = with(chat_reply("never", 1, 1), "chat").await;
    let key = capped(&gateway, "0").await;
    let id = key.split('-').nth(2).unwrap();
    for _ in 0..30 {
        let got = gateway.post(CHAT, &chat(false)).key(&key).send().await;
        assert_eq!(got.status, 429);
    }
    gateway.app.engine.funds.store_refusals().await;
    gateway.wait_until_settled().await;
    assert!(provider.requests().is_empty());
    assert_eq!(gateway.app.store.export(None, 100).await.unwrap(), []);
    let admin = gateway.admin_key().await;
    let path = format!("/api/admin/usage?by=key&key_id={id}");
    let told = gateway.get(&path).key(admin).send().await.json();
    assert_eq!((&told["total"]["calls"], &told["refused"]), (&json!(0), &json!(30)), "{told}");
    let groups = &told["groups"];
    assert_eq!((&groups[0]["group"], &groups[0]["refused"]), (&json!(id), &json!(30)), "{told}");
    let metrics = gateway.get("/metrics").key(admin).send().await.text();
    assert!(metrics.contains("portunus_refused_calls_total{reason=\"spent\"} 30"), "{metrics}");
}

#[tokio::test]
async fn calls_the_provider_refuses_are_free() {
    let refusal = json!({ "error": { "message": "no", "type": "invalid_request_error" } });
    let answer = reply(400, "application/json", &refusal.to_string());
    let (_provider, gateway) = with(answer, "chat").await;
    let got = gateway.post(CHAT, &chat(false)).send().await;
    assert_eq!(got.status, 400);
    let row = row(&gateway).await;
    assert_eq!(
        (row.outcome, row.cost, row.absorbed),
        (CallOutcome::Failed, Money::ZERO, Money::ZERO)
    );
}

#[tokio::test]
async fn calls_lost_without_output_are_paid_by_the_operator() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 900\r\n\r\n{";
    let answer = vec![AnswerStep::Bytes(head.as_bytes().to_vec()), AnswerStep::Close];
    let (_provider, gateway) = with(answer, "chat").await;
    let got = gateway.post(CHAT, &chat(false)).send().await;
    assert_eq!(got.status, 503);
    let row = row(&gateway).await;
    assert_eq!((row.cost, row.ended_by), (Money::ZERO, EndedBy::Provider));
    assert!(row.absorbed > Money::ZERO, "{row:?}");
    assert_eq!((row.estimated, &*row.reasons), (true, &[ChargeReason::NotTold][..]), "{row:?}");
}

/// A whole answer that broke off was made, as far as it came and as the lane's speed tells.
#[tokio::test]
async fn the_part_of_a_whole_answer_that_came_is_absorbed() {
    let text = "word ".repeat(30);
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 900\r\n\r\n";
    let begin = format!("{head}{{\"choices\":[{{\"message\":{{\"content\":\"{text}");
    let answer = vec![AnswerStep::Bytes(begin.into_bytes()), AnswerStep::Close];
    let (_provider, gateway) = with(answer, "chat").await;
    gateway.post(CHAT, &chat(false)).send().await;
    let row = row(&gateway).await;
    // Two millionths of a dollar for each of 37 tokens, beside the prompt.
    assert!(row.absorbed > Money::from_nanos(37 * 2_000), "{row:?}");
    assert!(row.estimated && row.cost == Money::ZERO && Some(row.absorbed) <= row.held, "{row:?}");
}

#[tokio::test]
async fn a_stream_that_broke_is_paid_as_far_as_it_came() {
    let events = chat_stream(&["one two three", " four five six"], 9, 9);
    let events: Vec<&str> = events.iter().take(3).map(String::as_str).collect();
    let mut answer = sse(&events);
    *answer.last_mut().unwrap() = AnswerStep::Close;
    let (_provider, gateway) = with(answer, "chat").await;
    gateway.post(CHAT, &chat(true)).send().await;
    let row = row(&gateway).await;
    assert_eq!((row.outcome, row.ended_by), (CallOutcome::BrokeOff, EndedBy::Provider));
    assert!(row.estimated && row.cost > Money::ZERO && row.usage.input > 0, "{row:?}");
}

#[tokio::test]
async fn a_caller_that_leaves_pays_for_what_came_and_only_then() {
    let opening = chat_stream(&[], 9, 9);
    for (events, pays) in [(vec![opening[0].clone()], false), (chat_stream(&["words"], 9, 9), true)]
    {
        let events: Vec<&str> = events.iter().take(2).map(String::as_str).collect();
        let mut answer = sse(&events);
        *answer.last_mut().unwrap() = AnswerStep::Wait(std::time::Duration::from_secs(600));
        let (_provider, gateway) = with(answer, "chat").await;
        gateway.post(CHAT, &chat(true)).disconnect_after_events(events.len()).await;
        let row = row(&gateway).await;
        assert_eq!((row.outcome, row.ended_by), (CallOutcome::CallerLeft, EndedBy::Caller));
        assert_eq!(row.cost > Money::ZERO, pays, "{row:?}");
    }
}

#[tokio::test]
async fn a_filter_that_ends_an_answer_takes_nothing_off_the_bill() {
    let piece = |candidate: Value, output: u64| {
        json!({ "candidates": [candidate],
                "usageMetadata": { "promptTokenCount": 9, "candidatesTokenCount": output } })
        .to_string()
    };
    let said =
        json!({ "index": 0, "content": { "role": "model", "parts": [{ "text": "A quiet" }] } });
    let end = json!({ "index": 0, "finishReason": "SAFETY" });
    let answer = sse(&[&piece(said, 2), &piece(end, 2)]);
    let (_provider, gateway) = with(answer, "native").await;
    let body = json!({ "contents": [{ "role": "user", "parts": [{ "text": "Go" }] }] });
    let path = "/v1beta/models/m:streamGenerateContent?alt=sse";
    let got = gateway.post(path, &body).send().await;
    assert_eq!((got.status.as_u16(), got.is_truncated), (200, false));
    let row = row(&gateway).await;
    assert_eq!((row.usage.input, row.usage.output, row.absorbed), (9, 2, Money::ZERO));
    // 9 × 1 + 2 × 2 millionths of a dollar
    assert_eq!((row.cost, row.outcome), (Money::from_nanos(13_000), CallOutcome::Done));
}

#[tokio::test]
async fn a_blocked_prompt_costs_what_the_provider_says() {
    for (usage, cost) in [(json!({ "promptTokenCount": 9 }), 9_000), (json!(null), 0)] {
        let blocked = json!({ "promptFeedback": { "blockReason": "SAFETY" },
                              "usageMetadata": usage });
        let answer = reply(200, "application/json", &blocked.to_string());
        let (_provider, gateway) = with(answer, "native").await;
        let body = json!({ "contents": [{ "role": "user", "parts": [{ "text": "Go" }] }] });
        let got = gateway.post("/v1beta/models/m:generateContent", &body).send().await;
        assert_eq!(got.status, 200, "{}", got.text());
        let row = row(&gateway).await;
        assert_eq!((row.usage.output, row.absorbed), (0, Money::ZERO), "{row:?}");
        // Without a count of its own the prompt is estimated.
        assert_eq!(row.estimated, cost == 0);
        assert!(row.cost == Money::from_nanos(cost) || (row.estimated && row.cost > Money::ZERO));
    }
}

#[tokio::test]
async fn an_answer_without_counts_is_counted_here() {
    let (_provider, gateway) = with(whole(&json!(null)), "chat").await;
    let got = gateway.post(CHAT, &chat(false)).send().await;
    let told = receipt(&gateway, &got).await;
    assert_eq!((&told["estimated"], &told["outcome"]), (&json!(true), &json!("done")));
    assert!(told["tokens"]["output"].as_u64().unwrap() > 0, "{told}");
}

#[tokio::test]
async fn counts_that_cannot_be_are_replaced_by_ours() {
    for usage in [
        json!({ "prompt_tokens": -5, "completion_tokens": -1 }),
        json!({ "prompt_tokens": "many" }),
        json!([1, 2]),
        json!({ "prompt_tokens": 1_u64 << 40, "completion_tokens": 5 }),
        json!({ "prompt_tokens": 9, "completion_tokens": 1_u64 << 63 }),
        json!({ "prompt_tokens": u64::MAX, "completion_tokens": u64::MAX }),
        json!({ "prompt_tokens": 9, "completion_tokens": 5, "num_search_queries": 1_u64 << 63 }),
        json!({ "prompt_tokens": 9, "completion_tokens": 5,
                "prompt_tokens_details": { "cached_tokens": 1_u64 << 62 } }),
        json!({ "prompt_tokens": 9, "completion_tokens": 5,
                "completion_tokens_details": { "audio_tokens": 1_u64 << 62 } }),
    ] {
        let (_provider, gateway) = with(whole(&usage), "chat").await;
        let got = gateway.post(CHAT, &chat(false)).send().await;
        assert_eq!(got.status, 200, "{usage}: {}", got.text());
        let row = row(&gateway).await;
        assert_eq!((row.estimated, row.absorbed), (true, Money::ZERO), "{usage}: {row:?}");
        assert!((1..100).contains(&row.usage.input), "{usage}: {row:?}");
        assert!((1..100).contains(&row.usage.output), "{usage}: {row:?}");
    }
}

/// Counts above the known window may be true if the window has grown: the rest is the operator's.
#[tokio::test]
async fn counts_above_the_window_are_absorbed() {
    for (input, is_absorbed) in [(4_000_u64, true), (400_000, false)] {
        let usage = json!({ "prompt_tokens": input, "completion_tokens": 5 });
        let provider = ScriptedProvider::start(vec![whole(&usage)]).await;
        let config = provider.config("chat") + "context = 1000\nmax_output = 100\n";
        let gateway = TestGateway::with_config(&config).await;
        gateway.post(CHAT, &chat(false)).send().await;
        let row = row(&gateway).await;
        assert!(row.estimated && row.cost > Money::ZERO, "{row:?}");
        assert_eq!(row.reasons, [ChargeReason::Impossible], "{row:?}");
        let told = Money::from_nanos(i64::try_from(input * 1_000 + 5 * 2_000).unwrap());
        let rest = if is_absorbed { told.saturating_sub(row.cost) } else { Money::ZERO };
        assert_eq!(row.absorbed, rest, "{row:?}");
    }
}

/// Gemini 2.5 bills a prompt that searches, and later models each search.
#[tokio::test]
async fn searches_cost_once_for_a_prompt_or_each() {
    for (model, searches) in [("gemini-2.5-flash", 1), ("gemini-3.5-flash", 3)] {
        let answer = json!({
            "candidates": [{ "index": 0, "finishReason": "STOP",
                "content": { "role": "model", "parts": [{ "text": "Found." }] },
                "groundingMetadata": { "webSearchQueries": ["a", "b", "c"] } }],
            "usageMetadata": { "promptTokenCount": 9, "candidatesTokenCount": 2,
                               "totalTokenCount": 11 },
        });
        let answer = reply(200, "application/json", &answer.to_string());
        let provider = ScriptedProvider::start(vec![answer]).await;
        let gateway = TestGateway::with_config(&format!(
            "[providers.p]\nlike = \"gemini\"\nspeaks = \"native\"\nbase = \"{}\"\nauth = \"none\"\n\
             [models.m]\nlanes = [\"p/{model}\"]\n",
            provider.url
        ))
        .await;
        let body = json!({ "contents": [{ "role": "user", "parts": [{ "text": "Go" }] }],
                           "tools": [{ "googleSearch": {} }] });
        let got = gateway.post("/v1beta/models/m:generateContent", &body).send().await;
        assert_eq!(got.status, 200, "{}", got.text());
        let row = row(&gateway).await;
        assert_eq!((row.usage.searches, row.estimated), (searches, false), "{model}: {row:?}");
    }
}

/// The fee of Perplexity depends on the amount of search results.
#[tokio::test]
async fn a_fee_follows_the_amount_of_search_results() {
    for (size, fee) in [("low", 5_000_000), ("medium", 8_000_000), ("high", 12_000_000)] {
        let usage = json!({ "prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11,
                            "search_context_size": size });
        let provider = ScriptedProvider::start(vec![whole(&usage)]).await;
        let gateway = TestGateway::with_config(&format!(
            "[providers.p]\nlike = \"perplexity\"\nbase = \"{}\"\nauth = \"none\"\n\
             [models.m]\nlanes = [\"p/sonar\"]\n",
            provider.url
        ))
        .await;
        gateway.post(CHAT, &chat(false)).send().await;
        let row = row(&gateway).await;
        assert_eq!(row.cost, Money::from_nanos(11_000 + fee), "{size}: {row:?}");
    }
}

/// The provider's word counts however small the body is: a short file may be a long prompt.
#[tokio::test]
async fn a_provider_that_tells_more_than_was_reserved_is_paid_by_key_and_operator() {
    for (input, output) in [(9_u64, 5_000_u64), (900_000, 5), (9, 51)] {
        // Fifty tokens of output were allowed.
        let usage = json!({ "prompt_tokens": input, "completion_tokens": output });
        let (_provider, gateway) = with(whole(&usage), "chat").await;
        let key = capped(&gateway, "1").await;
        let got = gateway.post(CHAT, &chat(false)).key(&key).send().await;
        assert_eq!(got.status, 200);
        let row = row(&gateway).await;
        let told = Money::from_nanos(i64::try_from(input * 1_000 + output * 2_000).unwrap());
        assert_eq!((row.usage.input, row.usage.output, row.estimated), (input, output, false));
        assert_eq!(row.cost.saturating_add(row.absorbed), told, "{row:?}");
        assert_eq!(row.cost, told.min(row.held.unwrap()), "{row:?}");
    }
}

/// A part above its whole raises the whole: nothing that was told is thrown away.
#[tokio::test]
async fn a_part_above_its_whole_is_counted() {
    let usage = json!({ "prompt_tokens": 9, "completion_tokens": 5, "completion_tokens_details":
                        { "reasoning_tokens": 20 } });
    let (_provider, gateway) = with(whole(&usage), "chat").await;
    gateway.post(CHAT, &chat(false)).send().await;
    let row = row(&gateway).await;
    assert_eq!((row.usage.input, row.usage.output, row.usage.thinking), (9, 25, 20), "{row:?}");
}

/// Words without counts, then a wait: the counts of an answer that has ended are waited for.
#[tokio::test]
async fn leaving_before_the_counts_of_an_answer_saves_nothing() {
    for left_after in [2, 3] {
        // The opening, one word, the end, the counts, the end marker.
        let events = chat_stream(&["words"], 9, 20_000);
        let mut answer = sse(&events.iter().map(String::as_str).collect::<Vec<_>>());
        let wait = AnswerStep::Wait(std::time::Duration::from_millis(100));
        let counts = answer.len() - 3;
        answer.insert(counts, wait);
        let (_provider, gateway) = with(answer, "chat").await;
        gateway.post(CHAT, &chat(true)).disconnect_after_events(left_after).await;
        let row = row(&gateway).await;
        assert_eq!((row.usage.input, row.usage.output), (9, 20_000), "{row:?}");
        assert_eq!(Some(row.cost), row.held, "{row:?}");
    }
}

/// A model that the directory does not describe may think once a reply told some thinking.
#[tokio::test]
async fn the_time_before_the_first_word_of_a_lane_that_thinks_may_be_thinking() {
    let events = chat_stream(&["words"], 9, 9);
    let mut answer = sse(&[&events[0], &events[1]]);
    answer.insert(answer.len() - 2, AnswerStep::Wait(std::time::Duration::from_millis(300)));
    *answer.last_mut().unwrap() = AnswerStep::Wait(std::time::Duration::from_secs(600));
    for (thinking, has_thought) in [(2, true), (0, false)] {
        let usage = json!({ "prompt_tokens": 9, "completion_tokens": 9,
                            "completion_tokens_details": { "reasoning_tokens": thinking } });
        let provider = ScriptedProvider::start(vec![whole(&usage), answer.clone()]).await;
        let gateway = TestGateway::with_config(&provider.config("chat")).await;
        gateway.post(CHAT, &chat(false)).send().await;
        gateway.post(CHAT, &chat(true)).disconnect_after_events(2).await;
        gateway.wait_until_settled().await;
        let rows = gateway.app.store.export(None, 10).await.unwrap();
        let row = rows.iter().find(|row| row.stream).unwrap();
        // At least 300 ms, in which a lane that is not measured makes 15 tokens.
        assert_eq!(row.usage.output >= 15, has_thought, "{row:?}");
        assert_eq!(row.reasons.contains(&ChargeReason::CallerLeft), has_thought, "{row:?}");
        assert!(row.estimated && Some(row.cost) <= row.held, "{row:?}");
    }
}

/// Nobody knows how much of a whole answer was made, so time tells.
#[tokio::test]
async fn leaving_a_whole_answer_costs_what_its_lane_makes_in_that_time() {
    let answer = vec![AnswerStep::Wait(std::time::Duration::from_secs(600))];
    let (provider, gateway) = with(answer, "chat").await;
    let body = chat(false);
    tokio::select! {
        _ = gateway.post(CHAT, &body).send() => panic!("it has no answer"),
        () = testkit::until("the provider has the call", async || !provider.requests().is_empty()) => {}
    }
    let row = row(&gateway).await;
    assert_eq!((row.outcome, row.estimated), (CallOutcome::CallerLeft, true), "{row:?}");
    assert!(row.usage.input > 0 && row.usage.output > 0 && row.cost > Money::ZERO, "{row:?}");
    assert!(Some(row.cost) <= row.held);
}

/// Images and vectors are made as a whole, once the provider has the request.
#[tokio::test]
async fn leaving_images_or_vectors_costs_what_was_ordered() {
    let images = json!({ "model": "m", "prompt": "A harbour.", "n": 2, "size": "1024x1024" });
    let vectors = json!({ "model": "m", "input": "word ".repeat(2_000) });
    for (speaks, kind, price, path, body, least) in [
        (
            "images",
            "image",
            "output = \"0\", per_image = \"0.10\"",
            "/v1/images/generations",
            images,
            200_000_000,
        ),
        ("chat", "embedding", "output = \"2.00\"", "/v1/embeddings", vectors, 2_000_000),
    ] {
        let answer = vec![AnswerStep::Wait(std::time::Duration::from_secs(600))];
        let provider = ScriptedProvider::start(vec![answer]).await;
        let config = provider.config(speaks).replace("output = \"2.00\"", price);
        let gateway = TestGateway::with_config(&format!("{config}kind = \"{kind}\"\n")).await;
        tokio::select! {
            got = gateway.post(path, &body).send() => panic!("it has no answer: {}", got.text()),
            () = testkit::until("the call", async || !provider.requests().is_empty()) => {}
        }
        let row = row(&gateway).await;
        assert_eq!((row.outcome, row.estimated), (CallOutcome::CallerLeft, true), "{row:?}");
        assert!(row.cost >= Money::from_nanos(least) && Some(row.cost) <= row.held, "{row:?}");
    }
}

/// The provider accepts connections and says nothing, so that TLS is never set up.
#[tokio::test]
async fn leaving_before_the_request_is_sent_is_free() {
    // Two callers leave; the third one's own timeout ends its wait.
    for (streamed, timeout, ended_by) in [
        (false, "600", EndedBy::Caller),
        (true, "600", EndedBy::Caller),
        (false, "0.3", EndedBy::Deadline),
    ] {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let config = format!(
            "[providers.p]\nspeaks = \"chat\"\nbase = \"https://{}\"\nauth = \"none\"\n\
             [models.m]\nlanes = [\"p/up\"]\nprice = {{ input = \"1.00\", output = \"2.00\" }}\n",
            listener.local_addr().unwrap()
        );
        let gateway = TestGateway::with_config(&config).await;
        let body = chat(streamed);
        let asking = gateway.post(CHAT, &body).header("x-stainless-timeout", timeout);
        let mut opened = None;
        let opening = async {
            opened = Some(listener.accept().await.unwrap());
            if ended_by == EndedBy::Deadline {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            got = asking.send() => assert_eq!(got.status, 504, "{}", got.text()),
            () = opening => {}
        }
        let row = row(&gateway).await;
        assert_eq!((row.outcome, row.ended_by), (CallOutcome::CallerLeft, ended_by), "{row:?}");
        assert_eq!((row.cost, row.absorbed), (Money::ZERO, Money::ZERO), "{row:?}");
        assert!(opened.is_some(), "a connection was begun");
    }
}

/// A short time that the caller names itself is no way to work for nothing.
#[tokio::test]
async fn a_callers_own_timeout_costs_what_leaving_costs() {
    let answer = vec![AnswerStep::Wait(std::time::Duration::from_secs(600))];
    let (_provider, gateway) = with(answer, "chat").await;
    let asking = gateway.post(CHAT, &chat(false)).header("x-stainless-timeout", "0.3");
    let got = asking.send().await;
    assert_eq!(got.status, 504, "{}", got.text());
    let row = row(&gateway).await;
    assert_eq!((row.outcome, row.ended_by), (CallOutcome::CallerLeft, EndedBy::Deadline));
    assert!(row.estimated && row.usage.output > 0 && row.cost > Money::ZERO, "{row:?}");
}

#[tokio::test]
async fn of_two_attempts_the_caller_pays_the_one_that_answered() {
    let lost = vec![
        AnswerStep::Bytes(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n".to_vec()),
        AnswerStep::Close,
    ];
    let provider = ScriptedProvider::start(vec![lost, chat_reply("here", 9, 2)]).await;
    let gateway = TestGateway::with_config(&format!(
        "[providers.p]\nspeaks = \"chat\"\nbase = \"{0}\"\nauth = \"none\"\n\
         [providers.q]\nspeaks = \"chat\"\nbase = \"{0}\"\nauth = \"none\"\n\
         [models.m]\nlanes = [\"p/up\", \"q/up\"]\nprice = {{ input = \"1.00\", output = \"2.00\" }}\n",
        provider.url
    ))
    .await;
    let got = gateway.post(CHAT, &chat(false)).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    let row = row(&gateway).await;
    assert_eq!((row.attempts, row.cost), (2, Money::from_nanos(13_000)));
    assert!(row.absorbed > Money::ZERO && !row.estimated, "{row:?}");
    assert_eq!(row.reasons, [ChargeReason::NotDelivered], "{row:?}");
}

/// An image model behind the chat format that tells no parts: its output is images.
#[tokio::test]
async fn output_of_an_image_model_without_parts_is_images() {
    let usage = json!({ "prompt_tokens": 9, "completion_tokens": 1_000 });
    let provider = ScriptedProvider::start(vec![whole(&usage)]).await;
    let config = provider
        .config("chat")
        .replace("output = \"2.00\"", "output = \"2.00\", output_image = \"40.00\"");
    let gateway = TestGateway::with_config(&format!("{config}kind = \"image\"\n")).await;
    let got = gateway.post(CHAT, &chat(false)).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    let row = row(&gateway).await;
    assert_eq!((row.usage.output_image, row.estimated), (1_000, false), "{row:?}");
    let told = Money::from_nanos(9_000 + 1_000 * 40_000);
    assert_eq!(row.cost.saturating_add(row.absorbed), told, "{row:?}");
}

/// A provider's own price is compared with ours and never charged. The operator pays what it is dearer.
#[tokio::test]
async fn the_bill_of_a_provider_is_compared() {
    let usage = json!({ "prompt_tokens": 9, "completion_tokens": 5, "cost": 0.00002 });
    let (_provider, gateway) = with(whole(&usage), "chat").await;
    let got = gateway.post(CHAT, &chat(false)).send().await;
    let row = row(&gateway).await;
    assert_eq!(row.cost, Money::from_nanos(19_000), "{row:?}");
    assert_eq!(row.absorbed, Money::from_nanos(1_000), "{row:?}");
    assert_eq!((row.estimated, &*row.reasons), (false, &[ChargeReason::DearerBill][..]), "{row:?}");
    let told = receipt(&gateway, &got).await;
    assert_eq!(
        (&told["told"]["bill_usd"], &told["told"]["output"]),
        (&json!("0.000020000"), &json!(5))
    );
    let metrics = gateway.get("/metrics").send().await.text();
    let line = "portunus_told_minus_ours_nanodollars{provider=\"p\"} 1000";
    assert!(metrics.contains(line), "{metrics}");
}

/// A bill that is cheaper, or that no call can have, changes nothing.
#[tokio::test]
async fn other_bills_of_a_provider_change_nothing() {
    for cost in [0.00001, 1e9] {
        let usage = json!({ "prompt_tokens": 9, "completion_tokens": 5, "cost": cost });
        let (_provider, gateway) = with(whole(&usage), "chat").await;
        gateway.post(CHAT, &chat(false)).send().await;
        let row = row(&gateway).await;
        assert_eq!((row.cost, row.absorbed), (Money::from_nanos(19_000), Money::ZERO), "{row:?}");
        assert_eq!(row.reasons, [], "{row:?}");
    }
}

/// A provider that has a request for a while and hangs up may have worked: the operator pays.
#[tokio::test]
async fn a_kept_connection_that_closes_after_work_is_an_attempt() {
    let wait = AnswerStep::Wait(std::time::Duration::from_secs(1));
    for (work, attempts) in [(vec![wait, AnswerStep::Close], 2), (vec![AnswerStep::Close], 1)] {
        let answers = vec![chat_reply("first", 9, 2), work, chat_reply("second", 9, 2)];
        let provider = ScriptedProvider::start(answers).await;
        let gateway = TestGateway::with_config(&provider.config("chat")).await;
        for _ in 0..2 {
            let got = gateway.post(CHAT, &chat(false)).send().await;
            assert_eq!(got.status, 200, "{}", got.text());
        }
        gateway.wait_until_settled().await;
        let rows = gateway.app.store.export(None, 10).await.unwrap();
        let last = rows.last().unwrap();
        assert_eq!((last.attempts, last.cost), (attempts, Money::from_nanos(13_000)), "{last:?}");
        assert_eq!(last.absorbed > Money::ZERO, attempts == 2, "{last:?}");
        assert_eq!(last.failed.len(), attempts as usize - 1, "{last:?}");
    }
}

/// An answer that the caller's format cannot express was made and is billed: the operator pays.
#[tokio::test]
async fn an_answer_that_cannot_be_used_is_absorbed_as_told() {
    let body = json!({
        "candidates": [{ "index": 0, "finishReason": "MALFORMED_FUNCTION_CALL",
                         "content": { "role": "model", "parts": [{ "text": "half" }] } }],
        "usageMetadata": { "promptTokenCount": 900, "candidatesTokenCount": 70,
                           "totalTokenCount": 970 },
    });
    let answer = reply(200, "application/json", &body.to_string());
    let (_provider, gateway) = with(answer, "native").await;
    let got = gateway.post("/v1/messages", &chat(false)).send().await;
    assert_ne!(got.status, 200, "{}", got.text());
    let row = row(&gateway).await;
    assert_eq!((row.outcome, row.cost), (CallOutcome::Failed, Money::ZERO), "{row:?}");
    assert_eq!(row.absorbed, Money::from_nanos(900 * 1_000 + 70 * 2_000), "{row:?}");
    assert_eq!(row.told_usage().map(|told| (told.input, told.output)), Some((900, 70)));
    assert_eq!(row.reasons, [ChargeReason::NotDelivered]);
}

//! The upstream as a function and behind a socket, spoken to as a gateway would.

use bytes::Bytes;
use canon::{ChatReply, Event, FinishReason, PartKind, ReplyBuilder, WireFormat};
use demo::{DemoUpstream, SimulatorOptions, StreamPace, serve, simulate};
use dialects::SseDecoder;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

fn post(path: &str, body: &Value) -> Request<Bytes> {
    let request = Request::post(path).header("content-type", "application/json");
    request.body(Bytes::from(body.to_string())).unwrap()
}

async fn pieces<B>(response: Response<B>) -> Vec<Bytes>
where
    B: http_body::Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Debug,
{
    let mut body = response.into_body();
    let mut pieces = Vec::new();
    while let Some(frame) = body.frame().await {
        pieces.extend(frame.unwrap().into_data().ok());
    }
    pieces
}

async fn json_of<B>(response: Response<B>) -> Value
where
    B: http_body::Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Debug,
{
    serde_json::from_slice(&pieces(response).await.concat()).unwrap()
}

/// A stream of that format folded into a reply.
fn folded(origin: WireFormat, bytes: &[u8]) -> ChatReply {
    let mut cutter = SseDecoder::default();
    cutter.push(Bytes::copy_from_slice(bytes));
    let mut reader = dialects::get(origin).unwrap().stream_reader();
    let mut events: Vec<Event> = Vec::new();
    while let Some(frame) = cutter.next_frame().unwrap() {
        reader.push(&frame, &mut events).unwrap();
    }
    reader.finish(&mut events).unwrap();
    let mut fold = ReplyBuilder::default();
    for event in events {
        fold.push(event).unwrap();
    }
    fold.finish()
}

/// A request in every format that is spoken, made by the format itself, with its path.
fn in_every_format(chat: &canon::ChatRequest) -> Vec<(WireFormat, Request<Bytes>)> {
    dialects::all()
        .map(|dialect| {
            let lane = dialects::LaneSettings {
                model: &chat.model,
                max_payable_output: None,
                model_max_output: Some(4_096),
                thinking_range: None,
                cache_field: None,
                client_tools: &[canon::ToolKind::Custom],
            };
            let (outgoing, _) = dialect.write_request(chat, &lane).unwrap();
            let body = Bytes::from(outgoing.body.to_vec());
            (dialect.origin(), Request::post(outgoing.path).body(body).unwrap())
        })
        .collect()
}

fn ask(text: &str, stream: bool) -> canon::ChatRequest {
    let turn = canon::Turn::new(canon::Role::User, vec![canon::Part::text(text)]);
    canon::ChatRequest {
        model: "demo-chat".to_owned(),
        turns: vec![turn],
        stream,
        ..Default::default()
    }
}

fn text_of(reply: &ChatReply) -> String {
    reply.candidates[0].parts.iter().filter_map(canon::Part::as_text).collect()
}

#[tokio::test]
async fn every_format_gets_the_same_text_whole_and_streamed() {
    let mut all = Vec::new();
    for (origin, request) in in_every_format(&ask("Tell me a short story", false)) {
        let response = serve(request).await;
        assert_eq!(response.status(), StatusCode::OK, "{origin}");
        let body = pieces(response).await.concat();
        let reply = dialects::get(origin).unwrap().read_reply(&body).unwrap();
        assert_eq!(reply.candidates[0].finish.as_ref().unwrap().reason, FinishReason::Stop);
        assert!(reply.usage.unwrap().output > 20);
        all.push(text_of(&reply));
    }
    for (origin, request) in in_every_format(&ask("Tell me a short story", true)) {
        let response = serve(request).await;
        assert!(
            response.headers()["content-type"].to_str().unwrap().starts_with("text/event-stream")
        );
        let pieces = pieces(response).await;
        assert!(pieces.len() > 20, "{origin}: {} pieces", pieces.len());
        for piece in &pieces {
            assert!(piece.ends_with(b"\n\n"), "{origin}");
            assert_eq!(piece.windows(2).filter(|two| two == b"\n\n").count(), 1, "{origin}");
        }
        all.push(text_of(&folded(origin, &pieces.concat())));
    }
    assert!(all.len() >= 2 && all.iter().all(|text| *text == all[0]), "{all:#?}");
}

#[tokio::test]
async fn a_tool_round_works_in_every_format() {
    let shape =
        json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    let tool = canon::FunctionTool {
        name: "get_weather".to_owned(),
        parameters: Some(canon::JsonSchema::new(shape)),
        ..Default::default()
    };
    let mut chat = ask("Weather in Paris?", false);
    chat.tools = vec![canon::Tool::Function(tool)];
    for (origin, request) in in_every_format(&chat) {
        let body = pieces(serve(request).await).await.concat();
        let reply = dialects::get(origin).unwrap().read_reply(&body).unwrap();
        let candidate = &reply.candidates[0];
        assert_eq!(candidate.finish.as_ref().unwrap().reason, FinishReason::ToolCalls, "{origin}");
        let call = candidate.parts.iter().find_map(|part| match &part.kind {
            PartKind::ToolCall(call) => Some(call.clone()),
            _ => None,
        });
        let arguments: Value = serde_json::from_str(&call.unwrap().arguments).unwrap();
        assert_eq!(arguments["city"], "Paris", "{origin}");
    }
}

#[tokio::test]
async fn broken_requests_are_refused_in_their_format() {
    let fine = json!({"model": "x", "messages": [{"role": "user", "content": "hi"}]});
    let mut hot = fine.clone();
    hot["temperature"] = json!(9);
    let response = serve(post("/v1/chat/completions", &hot)).await;
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
    assert_eq!(json_of(response).await["error"]["param"], "temperature");
    let response = serve(post("/v1/chat/completions", &json!("x"))).await;
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
    let response = serve(post("/v1/nothing", &fine)).await;
    assert_eq!(response.status(), StatusCode::NOT_FOUND);
    assert!(json_of(response).await["error"]["message"].is_string());
    let mut wrong = post("/v1/chat/completions", &fine);
    *wrong.method_mut() = Method::GET;
    assert_eq!(serve(wrong).await.status(), StatusCode::METHOD_NOT_ALLOWED);
    let response = serve(post("/v1/chat/completions", &fine)).await;
    assert_eq!(json_of(response).await["model"], "x");
}

#[tokio::test]
async fn a_damaged_seal_is_a_bad_request() {
    let sealed = json!({"model": "demo-chat", "reasoning_effort": "low",
        "messages": [{"role": "user", "content": "2+2?"}]});
    let answer = json_of(serve(post("/v1/chat/completions", &sealed)).await).await;
    let mut message = answer["choices"][0]["message"].clone();
    assert!(message["reasoning_content"].as_str().unwrap().len() > 10);
    assert!(answer["usage"]["completion_tokens_details"]["reasoning_tokens"].as_u64().unwrap() > 0);
    let again = |message: &Value| {
        json!({"model": "demo-chat", "messages": [{"role": "user", "content": "2+2?"}, message,
            {"role": "user", "content": "sure?"}]})
    };
    let response = serve(post("/v1/chat/completions", &again(&message))).await;
    assert_eq!(response.status(), StatusCode::OK);
    message["reasoning_details"][0]["signature"] = json!("AAAA");
    let response = serve(post("/v1/chat/completions", &again(&message))).await;
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn models_are_listed_and_embeddings_given() {
    let get = Request::get("/v1/models").body(Bytes::new()).unwrap();
    let list = json_of(serve(get).await).await;
    assert_eq!(list["data"].as_array().unwrap().len(), demo::MODELS.len());
    let body = json!({"model": "demo-embed", "input": ["a", "b"], "dimensions": 4});
    let answer = json_of(serve(post("/v1/embeddings", &body)).await).await;
    assert_eq!(answer["data"][1]["embedding"].as_array().unwrap().len(), 4);
    assert_eq!(answer["usage"]["prompt_tokens"], 2);
}

#[tokio::test]
async fn the_pace_is_kept_and_a_stream_left_early_is_counted() {
    let upstream = DemoUpstream::new(StreamPace { pause: Duration::from_millis(5) });
    let body = json!({"model": "demo-chat", "stream": true,
        "messages": [{"role": "user", "content": "Say exactly: one two three four"}]});
    let begun = Instant::now();
    let count = pieces(upstream.serve(post("/v1/chat/completions", &body)).await).await.len();
    assert!(begun.elapsed() >= Duration::from_millis(5 * count as u64));
    assert_eq!(upstream.meter().to_json()["left_early"], 0);
    drop(upstream.serve(post("/v1/chat/completions", &body)).await);
    assert_eq!(upstream.meter().to_json()["left_early"], 1);
    assert_eq!(upstream.meter().to_json()["streams"], 2);
}

type Caller = Client<HttpConnector, Full<Bytes>>;

async fn call(
    caller: &Caller,
    request: Request<Bytes>,
    address: &str,
) -> Response<hyper::body::Incoming> {
    let (mut head, body) = request.into_parts();
    head.uri = format!("http://{address}{}", head.uri).parse().unwrap();
    caller.request(Request::from_parts(head, Full::new(body))).await.unwrap()
}

#[tokio::test]
async fn the_simulated_upstream_serves_over_both_protocols_counts_and_ends() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (stop, stopped) = oneshot::channel::<()>();
    let server = tokio::spawn(simulate(listener, SimulatorOptions::default(), stopped));
    let plain = json!({"model": "demo-chat", "messages": [{"role": "user", "content": "Hello"}]});
    let mut stream = plain.clone();
    stream["stream"] = json!(true);
    stream["stream_options"] = json!({"include_usage": true});
    for h2 in [false, true] {
        let caller: Caller = Client::builder(TokioExecutor::new()).http2_only(h2).build_http();
        let path = "/v1/chat/completions";
        let whole = json_of(call(&caller, post(path, &plain), &address).await).await;
        let pieces = pieces(call(&caller, post(path, &stream), &address).await).await;
        assert!(pieces.len() > 3, "{} pieces, h2: {h2}", pieces.len());
        let reply = folded(WireFormat::Chat, &pieces.concat());
        assert_eq!(whole["choices"][0]["message"]["content"], text_of(&reply));
        assert_eq!(whole["usage"]["completion_tokens"], reply.usage.unwrap().output);

        let mut canned = post(path, &stream);
        canned.headers_mut().insert("x-demo-canned", "1".parse().unwrap());
        let chunks = self::pieces(call(&caller, canned, &address).await).await;
        let burst = chunks.concat();
        let reply = folded(WireFormat::Chat, &burst);
        assert_eq!(reply.candidates[0].finish.as_ref().unwrap().reason, FinishReason::Stop);
        let events = burst.windows(2).filter(|two| two == b"\n\n").count();
        assert!((95..=110).contains(&events), "{events}");
        // No chunk has two events; one may arrive in two parts.
        assert!(chunks.len() >= events, "{} chunks, h2: {h2}", chunks.len());
        let mut canned = post(path, &plain);
        canned.headers_mut().insert("x-demo-canned", "1".parse().unwrap());
        let whole = json_of(call(&caller, canned, &address).await).await;
        assert_eq!(whole["choices"][0]["message"]["content"], text_of(&reply));
    }
    let caller: Caller = Client::builder(TokioExecutor::new()).build_http();
    let get = Request::get("/meter").body(Bytes::new()).unwrap();
    let meter = json_of(call(&caller, get, &address).await).await;
    let one = demo::answer(&ask("Hello", false), demo::Persona::Model, WireFormat::Chat).unwrap();
    let one = one.usage.unwrap();
    let row = &meter["models"]["demo-chat"];
    assert_eq!(row["requests"], 4);
    assert_eq!(row["input_tokens"], 4 * one.input);
    assert_eq!(row["output_tokens"], 4 * one.output);
    assert_eq!((&meter["requests"], &meter["left_early"]), (&json!(8), &json!(0)));
    stop.send(()).unwrap();
    tokio::time::timeout(Duration::from_secs(10), server).await.unwrap().unwrap().unwrap();
}

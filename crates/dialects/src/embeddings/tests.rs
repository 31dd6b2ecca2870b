//! Requests and replies of both formats, and rejected input.

use super::*;
use crate::RequestTarget;
use bytes::Bytes;
use canon::{ErrorKind, ExtraFields, Usage};
use proptest::prelude::*;
use serde_json::{Value, json};

const FORMS: [EmbeddingEndpoint; 3] = [
    EmbeddingEndpoint::OpenAi,
    EmbeddingEndpoint::EmbedContent,
    EmbeddingEndpoint::BatchEmbedContents,
];

fn at(model: &str) -> RequestTarget {
    RequestTarget { model: Some(model.to_owned()), ..RequestTarget::default() }
}

fn body(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

fn tree(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

fn text(text: &str) -> Value {
    json!({ "content": { "parts": [{ "text": text }] } })
}

fn embed(inputs: Vec<EmbeddingInput>) -> EmbeddingRequest {
    EmbeddingRequest {
        model: "m".to_owned(),
        inputs,
        dimensions: None,
        task: None,
        title: None,
        encoding: VectorEncoding::Float,
        user: None,
        extras: ExtraFields::new(),
    }
}

#[test]
fn errors_name_the_invalid_field() {
    let many = |count: usize, item: Value| Value::Array(vec![item; count]);
    let list = |input: Value| json!({ "model": "m", "input": input });
    let part = |part: Value| json!({ "content": { "parts": [part] } });
    let with = |name: &str, value: Value| {
        let mut request = text("x");
        request[name] = value;
        request
    };
    let cases = [
        (EmbeddingEndpoint::OpenAi, json!([]), ""),
        (EmbeddingEndpoint::OpenAi, json!({ "input": "x" }), "model"),
        (EmbeddingEndpoint::OpenAi, json!({ "model": 1, "input": "x" }), "model"),
        (EmbeddingEndpoint::OpenAi, json!({ "model": "", "input": "x" }), "model"),
        (EmbeddingEndpoint::OpenAi, json!({ "model": "m" }), "input"),
        (EmbeddingEndpoint::OpenAi, list(json!(null)), "input"),
        (EmbeddingEndpoint::OpenAi, list(json!("")), "input"),
        (EmbeddingEndpoint::OpenAi, list(json!([])), "input"),
        (EmbeddingEndpoint::OpenAi, list(json!({})), "input"),
        (EmbeddingEndpoint::OpenAi, list(json!(7)), "input"),
        (EmbeddingEndpoint::OpenAi, list(json!(["x", ""])), "input[1]"),
        (EmbeddingEndpoint::OpenAi, list(json!(["x", 1])), "input[1]"),
        (EmbeddingEndpoint::OpenAi, list(json!([[1], []])), "input[1]"),
        (EmbeddingEndpoint::OpenAi, list(json!([[1], "x"])), "input[1]"),
        (EmbeddingEndpoint::OpenAi, list(json!([1, "x"])), "input[1]"),
        (EmbeddingEndpoint::OpenAi, list(json!([[1, -2]])), "input[0][1]"),
        (EmbeddingEndpoint::OpenAi, list(json!([null])), "input[0]"),
        (EmbeddingEndpoint::OpenAi, list(many(2_049, json!("x"))), "input"),
        (
            EmbeddingEndpoint::OpenAi,
            json!({ "model": "m", "input": "x", "dimensions": 0 }),
            "dimensions",
        ),
        (
            EmbeddingEndpoint::OpenAi,
            json!({ "model": "m", "input": "x", "dimensions": 1.5 }),
            "dimensions",
        ),
        (
            EmbeddingEndpoint::OpenAi,
            json!({ "model": "m", "input": "x", "dimensions": "8" }),
            "dimensions",
        ),
        (
            EmbeddingEndpoint::OpenAi,
            json!({ "model": "m", "input": "x", "encoding_format": "hex" }),
            "encoding_format",
        ),
        (EmbeddingEndpoint::OpenAi, json!({ "model": "m", "input": "x", "user": 1 }), "user"),
        (EmbeddingEndpoint::EmbedContent, json!("x"), ""),
        (EmbeddingEndpoint::EmbedContent, json!({}), "content"),
        (EmbeddingEndpoint::EmbedContent, json!({ "content": "x" }), "content"),
        (EmbeddingEndpoint::EmbedContent, json!({ "content": ["x"] }), "content"),
        (EmbeddingEndpoint::EmbedContent, json!({ "content": {} }), "content.parts"),
        (EmbeddingEndpoint::EmbedContent, json!({ "content": { "parts": [] } }), "content.parts"),
        (EmbeddingEndpoint::EmbedContent, json!({ "content": { "parts": "x" } }), "content.parts"),
        (
            EmbeddingEndpoint::EmbedContent,
            json!({ "content": { "parts": ["x"] } }),
            "content.parts[0]",
        ),
        (EmbeddingEndpoint::EmbedContent, part(json!({})), "content.parts[0].text"),
        (EmbeddingEndpoint::EmbedContent, part(json!({ "text": 1 })), "content.parts[0].text"),
        (EmbeddingEndpoint::EmbedContent, part(json!({ "text": "" })), "content.parts[0].text"),
        (EmbeddingEndpoint::EmbedContent, part(json!({ "fileData": {} })), "content.parts[0].text"),
        (
            EmbeddingEndpoint::EmbedContent,
            part(json!({ "inlineData": "x" })),
            "content.parts[0].inlineData",
        ),
        (EmbeddingEndpoint::EmbedContent, with("model", json!("models/other")), "model"),
        (EmbeddingEndpoint::EmbedContent, with("taskType", json!([])), "taskType"),
        (EmbeddingEndpoint::EmbedContent, with("title", json!(1)), "title"),
        (
            EmbeddingEndpoint::EmbedContent,
            with("outputDimensionality", json!(0)),
            "outputDimensionality",
        ),
        (
            EmbeddingEndpoint::EmbedContent,
            with("output_dimensionality", json!("x")),
            "output_dimensionality",
        ),
        (EmbeddingEndpoint::BatchEmbedContents, json!({}), "requests"),
        (EmbeddingEndpoint::BatchEmbedContents, json!({ "requests": "x" }), "requests"),
        (EmbeddingEndpoint::BatchEmbedContents, json!({ "requests": [] }), "requests"),
        (
            EmbeddingEndpoint::BatchEmbedContents,
            json!({ "requests": many(101, text("x")) }),
            "requests",
        ),
        (
            EmbeddingEndpoint::BatchEmbedContents,
            json!({ "requests": [text("x"), 1] }),
            "requests[1]",
        ),
        (
            EmbeddingEndpoint::BatchEmbedContents,
            json!({ "requests": [text("x"), {}] }),
            "requests[1].content",
        ),
        (
            EmbeddingEndpoint::BatchEmbedContents,
            json!({ "requests": [with("model", json!("models/n"))] }),
            "requests[0].model",
        ),
    ];
    for (form, request, path) in cases {
        let fault = form.read_facts(&at("m"), &body(&request)).unwrap_err();
        assert_eq!(fault.param().unwrap_or_default(), path, "{form:?} {request}: {fault}");
    }
    let twice = br#"{"model":"m","input":"x","input":"y"}"#;
    assert_eq!(
        EmbeddingEndpoint::OpenAi.read_facts(&at("m"), twice).unwrap_err().param(),
        Some("input")
    );
    for form in FORMS {
        assert!(
            form.read_facts(&at("m"), b"{\"model\":")
                .unwrap_err()
                .message()
                .contains("not valid JSON")
        );
    }
}

#[test]
fn estimates_the_size_of_inputs() {
    let list = |input: Value| json!({ "model": "m", "input": input });
    let media = json!({ "inline_data": { "mime_type": "image/png", "data": "AAAA" } });
    let cases = [
        (EmbeddingEndpoint::OpenAi, list(json!("ab\u{e9}")), 4),
        (EmbeddingEndpoint::OpenAi, list(json!(["ab", "c"])), 3),
        (EmbeddingEndpoint::OpenAi, list(json!([1, 2, 3])), 12),
        (EmbeddingEndpoint::OpenAi, list(json!([[1, 2], [3]])), 12),
        (EmbeddingEndpoint::EmbedContent, text("abc"), 3),
        (
            EmbeddingEndpoint::EmbedContent,
            json!({ "content": { "role": "user", "parts": { "text": "ab" } } }),
            2,
        ),
        (
            EmbeddingEndpoint::EmbedContent,
            json!({ "content": { "parts": [{ "text": "ab" }, media] } }),
            1_034,
        ),
        (EmbeddingEndpoint::BatchEmbedContents, json!({ "requests": [text("a"), text("bc")] }), 3),
        (EmbeddingEndpoint::BatchEmbedContents, json!({ "requests": text("a") }), 1),
    ];
    for (form, request, weight) in cases {
        let seen = form.read_facts(&at("m"), &body(&request)).unwrap();
        assert_eq!((seen.model.as_str(), seen.input_bytes), ("m", weight), "{form:?} {request}");
    }
}

#[test]
fn patch_replaces_only_the_model() {
    let cases = [
        (
            EmbeddingEndpoint::OpenAi,
            r#"{ "input":"é \u00e9", "model" : "m","odd":[ 1 ]}"#,
            "\"m\"",
            "\"up/1\"",
        ),
        (
            EmbeddingEndpoint::BatchEmbedContents,
            r#"{"requests":[ {"model":"models/m","content":{"parts":[{"text":"a"}]}}, {"model":"models/m","content":{"parts":[{"text":"b"}]},"x":1} ]}"#,
            "\"models/m\"",
            "\"models/up/1\"",
        ),
        (
            EmbeddingEndpoint::EmbedContent,
            r#"{"content":{"parts":[{"text":"a"}]} ,"model":"m"}"#,
            "\"m\"",
            "\"models/up/1\"",
        ),
    ];
    let paths = [
        "/v1/embeddings",
        "/v1beta/models/up/1:batchEmbedContents",
        "/v1beta/models/up/1:embedContent",
    ];
    for ((form, request, old, new), path) in cases.into_iter().zip(paths) {
        let bytes = Bytes::from_static(request.as_bytes());
        let seen = form.read_facts(&at("m"), &bytes).unwrap();
        let sent = form.patch(&bytes, &seen, "up/1");
        assert_eq!(String::from_utf8(sent.body.to_vec()).unwrap(), request.replace(old, new));
        assert_eq!(sent.path, path);
        assert_eq!(form.patch(&bytes, &seen, "m").body.to_vec(), request.as_bytes());
    }
}

#[test]
fn splits_a_list_into_batches_of_100() {
    let request = json!({ "model": "m", "input": vec!["x"; 250], "dimensions": 8, "user": "u",
        "encoding_format": "base64", "odd": 1 });
    let asked =
        EmbeddingEndpoint::OpenAi.read_request(&RequestTarget::default(), &body(&request)).unwrap();
    let (sent, losses) =
        EmbeddingEndpoint::BatchEmbedContents.write_requests(&asked, "models/up").unwrap();
    let counts: Vec<usize> = sent
        .iter()
        .map(|one| tree(&one.body.to_vec())["requests"].as_array().unwrap().len())
        .collect();
    assert_eq!(counts, [100, 100, 50]);
    assert_eq!(
        tree(&sent[0].body.to_vec())["requests"][0],
        json!({ "model": "models/up", "content": { "parts": [{ "text": "x" }] },
                "outputDimensionality": 8 })
    );
    let lost: Vec<&str> = losses.iter().map(|loss| loss.path.as_str()).collect();
    assert_eq!(lost, ["user", "odd"]);
    let tokens = embed(vec![EmbeddingInput::Tokens(vec![1])]);
    let fault = EmbeddingEndpoint::BatchEmbedContents.write_requests(&tokens, "up").unwrap_err();
    assert_eq!(fault.param(), Some("input"));
}

#[test]
fn converts_a_batch_to_a_list() {
    let one = json!({ "model": "models/m", "task_type": "CLUSTERING", "title": "t",
        "outputDimensionality": "8", "odd": 1,
        "content": { "role": "user", "parts": [{ "text": "a" }, { "text": "b", "thought": true }] } });
    let two = json!({ "content": { "parts": { "text": "c" } }, "output_dimensionality": 8 });
    let request = json!({ "requests": [one, two] });
    let embed =
        EmbeddingEndpoint::BatchEmbedContents.read_request(&at("m"), &body(&request)).unwrap();
    let (sent, losses) = EmbeddingEndpoint::OpenAi.write_requests(&embed, "up").unwrap();
    assert_eq!(
        tree(&sent[0].body.to_vec()),
        json!({ "model": "up", "input": ["ab", "c"], "dimensions": 8 })
    );
    let lost: Vec<&str> = losses.iter().map(|loss| loss.path.as_str()).collect();
    assert_eq!(lost, ["task", "title", "content.parts.thought", "odd"]);

    let mixed = json!({ "requests": [text("a"), { "content": { "parts": [{ "text": "b" }] },
        "outputDimensionality": 4 }] });
    let fault =
        EmbeddingEndpoint::BatchEmbedContents.read_request(&at("m"), &body(&mixed)).unwrap_err();
    assert_eq!(fault.param(), Some("requests[1].outputDimensionality"));
    let picture = json!({ "content": { "parts": [{ "text": "a" }, { "inlineData": {} }] } });
    let fault =
        EmbeddingEndpoint::EmbedContent.read_request(&at("m"), &body(&picture)).unwrap_err();
    assert_eq!(fault.param(), Some("content.parts[1]"));
}

#[test]
fn reads_vectors_by_index_in_both_encodings() {
    let answer = json!({ "object": "list", "model": "up", "id": "x", "data": [
        { "object": "embedding", "index": 1, "embedding": [0.25, -2] },
        { "object": "embedding", "index": 0, "embedding": "AACAPwAAAMA=" },
    ], "usage": { "prompt_tokens": 7, "total_tokens": 7 }, "odd": true });
    let read = EmbeddingEndpoint::OpenAi.read_reply(&body(&answer)).unwrap();
    assert_eq!(read.vectors, [[1.0, -2.0], [0.25, -2.0]]);
    assert_eq!(read.usage.map(|usage| usage.input), Some(7));
    let (written, losses) =
        EmbeddingEndpoint::BatchEmbedContents.write_reply(&read, &embed(Vec::new()));
    assert_eq!(
        String::from_utf8(written).unwrap(),
        r#"{"embeddings":[{"values":[1.0,-2.0]},{"values":[0.25,-2.0]}],"usageMetadata":{"promptTokenCount":7,"totalTokenCount":7}}"#
    );
    assert_eq!(losses.iter().map(|loss| loss.path.as_str()).collect::<Vec<_>>(), ["reply.odd"]);
}

#[test]
fn rejects_invalid_replies() {
    let cases: [(EmbeddingEndpoint, &str, ErrorKind); 12] = [
        (EmbeddingEndpoint::OpenAi, "", ErrorKind::Unavailable),
        (EmbeddingEndpoint::OpenAi, "{}", ErrorKind::Unavailable),
        (
            EmbeddingEndpoint::OpenAi,
            r#"{"error":{"code":"rate_limit_exceeded"}}"#,
            ErrorKind::RateLimited,
        ),
        (EmbeddingEndpoint::OpenAi, r#"{"data":[{"embedding":"AAA="}]}"#, ErrorKind::Unavailable),
        (EmbeddingEndpoint::OpenAi, r#"{"data":[{"embedding":"!"}]}"#, ErrorKind::Unavailable),
        (
            EmbeddingEndpoint::OpenAi,
            r#"{"data":[{"embedding":"AADAfw=="}]}"#,
            ErrorKind::Unavailable,
        ),
        (EmbeddingEndpoint::OpenAi, r#"{"data":[{"embedding":[1e99]}]}"#, ErrorKind::Unavailable),
        (EmbeddingEndpoint::OpenAi, r#"{"data":[{}]}"#, ErrorKind::Unavailable),
        (EmbeddingEndpoint::EmbedContent, "{}", ErrorKind::Unavailable),
        (EmbeddingEndpoint::BatchEmbedContents, "{}", ErrorKind::Unavailable),
        (
            EmbeddingEndpoint::BatchEmbedContents,
            r#"{"embeddings":[{"values":["x"]}]}"#,
            ErrorKind::Unavailable,
        ),
        (
            EmbeddingEndpoint::BatchEmbedContents,
            r#"{"error":{"status":"RESOURCE_EXHAUSTED"}}"#,
            ErrorKind::RateLimited,
        ),
    ];
    for (form, answer, trouble) in cases {
        let fault = form.read_reply(answer.as_bytes()).unwrap_err();
        assert_eq!(fault.kind(), trouble, "{form:?} {answer}: {fault}");
    }
    let short = EmbeddingReply { vectors: vec![vec![1.0]], ..EmbeddingReply::default() };
    let two =
        embed(vec![EmbeddingInput::Text("a".to_owned()), EmbeddingInput::Text("b".to_owned())]);
    assert!(short.check_count(&two).is_err());
}

#[test]
fn sums_usage_only_if_every_reply_has_it() {
    let told = |input| EmbeddingReply {
        vectors: vec![vec![1.0]],
        usage: Some(Usage { input, ..Usage::default() }),
        extras: ExtraFields::new(),
    };
    let mut sum = EmbeddingReply::default();
    sum.append(told(2));
    sum.append(told(3));
    assert_eq!((sum.vectors.len(), sum.usage.map(|usage| usage.input)), (2, Some(5)));
    sum.append(EmbeddingReply { usage: None, ..told(0) });
    sum.append(told(1));
    assert_eq!((sum.vectors.len(), sum.usage), (4, None));
}

#[test]
fn too_many_inputs_are_refused_before_their_end_is_read() {
    for (form, name, item, most) in [
        (EmbeddingEndpoint::OpenAi, "input", json!("x"), 2_048),
        (EmbeddingEndpoint::BatchEmbedContents, "requests", text("x"), 100),
    ] {
        let items = vec![item.to_string(); most + 1].join(",");
        let body = format!(r#"{{"{name}":[{items},}}"#);
        let fault = form.read_facts(&at("m"), body.as_bytes()).unwrap_err();
        assert_eq!(fault.message(), format!("`{name}` must have at most {most} items"));
        assert_eq!(fault.param(), Some(name));
    }
}

proptest! {
    #[test]
    fn numbers_survive_every_endpoint(
        vectors in prop::collection::vec(prop::collection::vec(-1e6_f32..1e6, 0..9), 1..4),
        packed in any::<bool>(),
    ) {
        let inputs = vec![EmbeddingInput::Text("x".to_owned()); vectors.len()];
        let encoding = if packed { VectorEncoding::Base64 } else { VectorEncoding::Float };
        let embed = EmbeddingRequest { encoding, ..embed(inputs) };
        let embedded = EmbeddingReply { vectors, ..EmbeddingReply::default() };
        for form in [EmbeddingEndpoint::OpenAi, EmbeddingEndpoint::BatchEmbedContents] {
            let (body, _) = form.write_reply(&embedded, &embed);
            prop_assert_eq!(&form.read_reply(&body).unwrap().vectors, &embedded.vectors);
        }
    }

    #[test]
    fn never_panics_on_arbitrary_bytes(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
        for form in FORMS {
            let _ = form.read_facts(&at("m"), &bytes);
            let _ = form.read_request(&at("m"), &bytes);
            let _ = form.read_reply(&bytes);
        }
    }
}

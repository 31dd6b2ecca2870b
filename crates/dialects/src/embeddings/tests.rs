//! Requests and replies of both formats, and rejected input.

use super::*;
use crate::Target;
use bytes::Bytes;
use canon::{Extras, Trouble, Usage};
use proptest::prelude::*;
use serde_json::{Value, json};

const FORMS: [Form; 3] = [Form::List, Form::One, Form::Batch];

fn at(model: &str) -> Target {
    Target { model: Some(model.to_owned()), ..Target::default() }
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

fn embed(inputs: Vec<Input>) -> Embed {
    Embed {
        model: "m".to_owned(),
        inputs,
        dimensions: None,
        task: None,
        title: None,
        encoding: VectorEncoding::Float,
        user: None,
        extras: Extras::none(),
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
        (Form::List, json!([]), ""),
        (Form::List, json!({ "input": "x" }), "model"),
        (Form::List, json!({ "model": 1, "input": "x" }), "model"),
        (Form::List, json!({ "model": "", "input": "x" }), "model"),
        (Form::List, json!({ "model": "m" }), "input"),
        (Form::List, list(json!(null)), "input"),
        (Form::List, list(json!("")), "input"),
        (Form::List, list(json!([])), "input"),
        (Form::List, list(json!({})), "input"),
        (Form::List, list(json!(7)), "input"),
        (Form::List, list(json!(["x", ""])), "input[1]"),
        (Form::List, list(json!(["x", 1])), "input[1]"),
        (Form::List, list(json!([[1], []])), "input[1]"),
        (Form::List, list(json!([[1], "x"])), "input[1]"),
        (Form::List, list(json!([1, "x"])), "input[1]"),
        (Form::List, list(json!([[1, -2]])), "input[0][1]"),
        (Form::List, list(json!([null])), "input[0]"),
        (Form::List, list(many(2_049, json!("x"))), "input"),
        (Form::List, json!({ "model": "m", "input": "x", "dimensions": 0 }), "dimensions"),
        (Form::List, json!({ "model": "m", "input": "x", "dimensions": 1.5 }), "dimensions"),
        (Form::List, json!({ "model": "m", "input": "x", "dimensions": "8" }), "dimensions"),
        (
            Form::List,
            json!({ "model": "m", "input": "x", "encoding_format": "hex" }),
            "encoding_format",
        ),
        (Form::List, json!({ "model": "m", "input": "x", "user": 1 }), "user"),
        (Form::One, json!("x"), ""),
        (Form::One, json!({}), "content"),
        (Form::One, json!({ "content": "x" }), "content"),
        (Form::One, json!({ "content": ["x"] }), "content"),
        (Form::One, json!({ "content": {} }), "content.parts"),
        (Form::One, json!({ "content": { "parts": [] } }), "content.parts"),
        (Form::One, json!({ "content": { "parts": "x" } }), "content.parts"),
        (Form::One, json!({ "content": { "parts": ["x"] } }), "content.parts[0]"),
        (Form::One, part(json!({})), "content.parts[0].text"),
        (Form::One, part(json!({ "text": 1 })), "content.parts[0].text"),
        (Form::One, part(json!({ "text": "" })), "content.parts[0].text"),
        (Form::One, part(json!({ "fileData": {} })), "content.parts[0].text"),
        (Form::One, part(json!({ "inlineData": "x" })), "content.parts[0].inlineData"),
        (Form::One, with("model", json!("models/other")), "model"),
        (Form::One, with("taskType", json!([])), "taskType"),
        (Form::One, with("title", json!(1)), "title"),
        (Form::One, with("outputDimensionality", json!(0)), "outputDimensionality"),
        (Form::One, with("output_dimensionality", json!("x")), "outputDimensionality"),
        (Form::Batch, json!({}), "requests"),
        (Form::Batch, json!({ "requests": "x" }), "requests"),
        (Form::Batch, json!({ "requests": [] }), "requests"),
        (Form::Batch, json!({ "requests": many(101, text("x")) }), "requests"),
        (Form::Batch, json!({ "requests": [text("x"), 1] }), "requests[1]"),
        (Form::Batch, json!({ "requests": [text("x"), {}] }), "requests[1].content"),
        (
            Form::Batch,
            json!({ "requests": [with("model", json!("models/n"))] }),
            "requests[0].model",
        ),
    ];
    for (form, request, path) in cases {
        let fault = form.peek(&at("m"), &body(&request)).unwrap_err();
        assert_eq!(fault.path().unwrap_or_default(), path, "{form:?} {request}: {fault}");
    }
    let twice = br#"{"model":"m","input":"x","input":"y"}"#;
    assert_eq!(Form::List.peek(&at("m"), twice).unwrap_err().path(), Some("input"));
    for form in FORMS {
        assert!(form.peek(&at("m"), b"{\"model\":").unwrap_err().say().contains("not valid JSON"));
    }
}

#[test]
fn estimates_the_size_of_inputs() {
    let list = |input: Value| json!({ "model": "m", "input": input });
    let media = json!({ "inline_data": { "mime_type": "image/png", "data": "AAAA" } });
    let cases = [
        (Form::List, list(json!("ab\u{e9}")), 4),
        (Form::List, list(json!(["ab", "c"])), 3),
        (Form::List, list(json!([1, 2, 3])), 12),
        (Form::List, list(json!([[1, 2], [3]])), 12),
        (Form::One, text("abc"), 3),
        (Form::One, json!({ "content": { "role": "user", "parts": { "text": "ab" } } }), 2),
        (Form::One, json!({ "content": { "parts": [{ "text": "ab" }, media] } }), 1_034),
        (Form::Batch, json!({ "requests": [text("a"), text("bc")] }), 3),
        (Form::Batch, json!({ "requests": text("a") }), 1),
    ];
    for (form, request, weight) in cases {
        let seen = form.peek(&at("m"), &body(&request)).unwrap();
        assert_eq!((seen.model.as_str(), seen.weight), ("m", weight), "{form:?} {request}");
    }
}

#[test]
fn patch_replaces_only_the_model() {
    let cases = [
        (Form::List, r#"{ "input":"é \u00e9", "model" : "m","odd":[ 1 ]}"#, "\"m\"", "\"up/1\""),
        (
            Form::Batch,
            r#"{"requests":[ {"model":"models/m","content":{"parts":[{"text":"a"}]}}, {"model":"models/m","content":{"parts":[{"text":"b"}]},"x":1} ]}"#,
            "\"models/m\"",
            "\"models/up/1\"",
        ),
        (
            Form::One,
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
        let seen = form.peek(&at("m"), &bytes).unwrap();
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
    let asked = Form::List.read_request(&Target::default(), &body(&request)).unwrap();
    let (sent, losses) = Form::Batch.write_requests(&asked, "models/up").unwrap();
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
    let lost: Vec<&str> = losses.iter().map(|loss| loss.what.as_str()).collect();
    assert_eq!(lost, ["user", "odd"]);
    let tokens = embed(vec![Input::Tokens(vec![1])]);
    let fault = Form::Batch.write_requests(&tokens, "up").unwrap_err();
    assert_eq!(fault.path(), Some("input"));
}

#[test]
fn converts_a_batch_to_a_list() {
    let one = json!({ "model": "models/m", "task_type": "CLUSTERING", "title": "t",
        "outputDimensionality": "8", "odd": 1,
        "content": { "role": "user", "parts": [{ "text": "a" }, { "text": "b", "thought": true }] } });
    let two = json!({ "content": { "parts": { "text": "c" } }, "output_dimensionality": 8 });
    let request = json!({ "requests": [one, two] });
    let embed = Form::Batch.read_request(&at("m"), &body(&request)).unwrap();
    let (sent, losses) = Form::List.write_requests(&embed, "up").unwrap();
    assert_eq!(
        tree(&sent[0].body.to_vec()),
        json!({ "model": "up", "input": ["ab", "c"], "dimensions": 8 })
    );
    let lost: Vec<&str> = losses.iter().map(|loss| loss.what.as_str()).collect();
    assert_eq!(lost, ["task", "title", "content.parts.thought", "odd"]);

    let mixed = json!({ "requests": [text("a"), { "content": { "parts": [{ "text": "b" }] },
        "outputDimensionality": 4 }] });
    let fault = Form::Batch.read_request(&at("m"), &body(&mixed)).unwrap_err();
    assert_eq!(fault.path(), Some("requests[1].outputDimensionality"));
    let picture = json!({ "content": { "parts": [{ "text": "a" }, { "inlineData": {} }] } });
    let fault = Form::One.read_request(&at("m"), &body(&picture)).unwrap_err();
    assert_eq!(fault.path(), Some("content.parts[1]"));
}

#[test]
fn reads_vectors_by_index_in_both_encodings() {
    let answer = json!({ "object": "list", "model": "up", "id": "x", "data": [
        { "object": "embedding", "index": 1, "embedding": [0.25, -2] },
        { "object": "embedding", "index": 0, "embedding": "AACAPwAAAMA=" },
    ], "usage": { "prompt_tokens": 7, "total_tokens": 7 }, "odd": true });
    let read = Form::List.read_reply(&body(&answer)).unwrap();
    assert_eq!(read.vectors, [[1.0, -2.0], [0.25, -2.0]]);
    assert_eq!(read.usage.map(|usage| usage.input), Some(7));
    let (written, losses) = Form::Batch.write_reply(&read, &embed(Vec::new()));
    assert_eq!(
        String::from_utf8(written).unwrap(),
        r#"{"embeddings":[{"values":[1.0,-2.0]},{"values":[0.25,-2.0]}],"usageMetadata":{"promptTokenCount":7,"totalTokenCount":7}}"#
    );
    assert_eq!(losses.iter().map(|loss| loss.what.as_str()).collect::<Vec<_>>(), ["reply.odd"]);
}

#[test]
fn rejects_invalid_replies() {
    let cases: [(Form, &str, Trouble); 12] = [
        (Form::List, "", Trouble::Unavailable),
        (Form::List, "{}", Trouble::Unavailable),
        (Form::List, r#"{"error":{"code":"rate_limit_exceeded"}}"#, Trouble::RateLimit),
        (Form::List, r#"{"data":[{"embedding":"AAA="}]}"#, Trouble::Unavailable),
        (Form::List, r#"{"data":[{"embedding":"!"}]}"#, Trouble::Unavailable),
        (Form::List, r#"{"data":[{"embedding":"AADAfw=="}]}"#, Trouble::Unavailable),
        (Form::List, r#"{"data":[{"embedding":[1e99]}]}"#, Trouble::Unavailable),
        (Form::List, r#"{"data":[{}]}"#, Trouble::Unavailable),
        (Form::One, "{}", Trouble::Unavailable),
        (Form::Batch, "{}", Trouble::Unavailable),
        (Form::Batch, r#"{"embeddings":[{"values":["x"]}]}"#, Trouble::Unavailable),
        (Form::Batch, r#"{"error":{"status":"RESOURCE_EXHAUSTED"}}"#, Trouble::RateLimit),
    ];
    for (form, answer, trouble) in cases {
        let fault = form.read_reply(answer.as_bytes()).unwrap_err();
        assert_eq!(fault.trouble(), trouble, "{form:?} {answer}: {fault}");
    }
    let short = Embedded { vectors: vec![vec![1.0]], ..Embedded::default() };
    let two = embed(vec![Input::Text("a".to_owned()), Input::Text("b".to_owned())]);
    assert!(short.answers(&two).is_err());
}

#[test]
fn sums_usage_only_if_every_reply_has_it() {
    let told = |input| Embedded {
        vectors: vec![vec![1.0]],
        usage: Some(Usage { input, ..Usage::default() }),
        extras: Extras::none(),
    };
    let mut sum = Embedded::default();
    sum.append(told(2));
    sum.append(told(3));
    assert_eq!((sum.vectors.len(), sum.usage.map(|usage| usage.input)), (2, Some(5)));
    sum.append(Embedded { usage: None, ..told(0) });
    sum.append(told(1));
    assert_eq!((sum.vectors.len(), sum.usage), (4, None));
}

proptest! {
    #[test]
    fn numbers_survive_every_endpoint(
        vectors in prop::collection::vec(prop::collection::vec(-1e6_f32..1e6, 0..9), 1..4),
        packed in any::<bool>(),
    ) {
        let inputs = vec![Input::Text("x".to_owned()); vectors.len()];
        let encoding = if packed { VectorEncoding::Base64 } else { VectorEncoding::Float };
        let embed = Embed { encoding, ..embed(inputs) };
        let embedded = Embedded { vectors, ..Embedded::default() };
        for form in [Form::List, Form::Batch] {
            let (body, _) = form.write_reply(&embedded, &embed);
            prop_assert_eq!(&form.read_reply(&body).unwrap().vectors, &embedded.vectors);
        }
    }

    #[test]
    fn never_panics_on_arbitrary_bytes(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
        for form in FORMS {
            let _ = form.peek(&at("m"), &bytes);
            let _ = form.read_request(&at("m"), &bytes);
            let _ = form.read_reply(&bytes);
        }
    }
}

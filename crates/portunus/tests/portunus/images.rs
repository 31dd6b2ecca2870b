//! `/v1/images/generations` and `/v1/images/edits`.

use image::{ImageFormat, RgbImage, Rgba, RgbaImage};
use serde_json::{Value, json};
use std::io::Cursor;
use testkit::{AnswerStep, ScriptedProvider, TestGateway, TestRequest, TestResponse, reply};

pub(crate) const GENERATIONS: &str = "/v1/images/generations";
pub(crate) const EDITS: &str = "/v1/images/edits";

/// A file decoded by a library that is not ours: its format and its pixels.
fn decoded(bytes: &[u8]) -> (ImageFormat, RgbaImage) {
    let format = image::guess_format(bytes).unwrap();
    (format, image::load_from_memory(bytes).unwrap().into_rgba8())
}

fn bytes_of(data: &Value) -> Vec<u8> {
    media::decode_base64(data.as_str().unwrap()).unwrap()
}

fn first(got: &TestResponse) -> (ImageFormat, RgbaImage) {
    assert_eq!(got.status, 200, "{:.400}", got.text());
    decoded(&bytes_of(&got.json()["data"][0]["b64_json"]))
}

fn png(picture: &RgbaImage) -> Vec<u8> {
    let mut file = Cursor::new(Vec::new());
    picture.write_to(&mut file, ImageFormat::Png).unwrap();
    file.into_inner()
}

pub(crate) fn plain(side: u32, colour: [u8; 4]) -> Vec<u8> {
    png(&RgbaImage::from_pixel(side, side, Rgba(colour)))
}

/// A form as the official clients send it.
pub(crate) fn form<'a>(
    gateway: &'a TestGateway,
    fields: &[(&str, &str)],
    files: &[(&str, &[u8])],
) -> TestRequest<'a> {
    let mut body = Vec::new();
    for (name, value) in fields {
        body.extend_from_slice(
            format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
                .as_bytes(),
        );
    }
    for (name, file) in files {
        body.extend_from_slice(
            format!(
                "--b\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"../x.png\"\r\n\
                 Content-Type: image/png\r\n\r\n"
            )
            .as_bytes(),
        );
        body.extend_from_slice(file);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"--b--\r\n");
    gateway
        .request(http::Method::POST, EDITS)
        .header("content-type", "multipart/form-data; boundary=b")
        .body(body)
}

pub(crate) async fn receipt(gateway: &TestGateway, got: &TestResponse) -> Value {
    gateway.get(&format!("/v1/usage/{}", got.header("x-request-id"))).send().await.json()
}

#[tokio::test]
async fn every_format_comes_in_the_size_that_was_asked_for() {
    let gateway = TestGateway::start().await;
    for (format, size, expected) in [
        ("png", "256x128", ImageFormat::Png),
        ("jpeg", "128x256", ImageFormat::Jpeg),
        ("webp", "144x144", ImageFormat::WebP),
    ] {
        let ask = json!({ "model": "demo-image", "prompt": "a lighthouse", "size": size,
            "output_format": format, "quality": "low" });
        let got = gateway.post(GENERATIONS, &ask).send().await;
        let (seen, picture) = first(&got);
        assert_eq!(seen, expected);
        assert_eq!(format!("{}x{}", picture.width(), picture.height()), size);
        let body = got.json();
        for (name, value) in [("output_format", format), ("size", size), ("quality", "low")] {
            assert_eq!(body[name], value, "{body:.300}");
        }
        assert_eq!(body["background"], "opaque");
        assert!(body["created"].is_i64());
        let usage = &body["usage"];
        assert!(usage["output_tokens"].as_u64().unwrap() > 0);
        assert_eq!(usage["input_tokens"], usage["input_tokens_details"]["text_tokens"]);
    }
}

#[tokio::test]
async fn several_pictures_differ_and_each_is_on_the_books() {
    let gateway = TestGateway::start().await;
    let ask = json!({ "model": "demo-image", "prompt": "two boats", "n": 2, "size": "128x128",
        "background": "transparent" });
    let got = gateway.post(GENERATIONS, &ask).send().await;
    let (_, one) = first(&got);
    let body = got.json();
    let (_, two) = decoded(&bytes_of(&body["data"][1]["b64_json"]));
    assert_ne!(one, two);
    assert_eq!(one.get_pixel(0, 0).0[3], 0, "the sky can be seen through");
    gateway.wait_until_settled().await;
    let receipt = receipt(&gateway, &got).await;
    let tokens = &receipt["tokens"];
    assert_eq!(tokens["output"], body["usage"]["output_tokens"]);
    assert_eq!(tokens["output_image"], body["usage"]["output_tokens"]);
    assert_eq!((&receipt["estimated"], &receipt["outcome"]), (&json!(false), &json!("done")));
    assert_eq!(receipt["cost_usd"], got.header("x-portunus-cost"));
    assert_ne!(receipt["cost_usd"], "0.000000000");
}

#[tokio::test]
async fn unsupported_image_options_are_refused_with_the_supported_ones() {
    let gateway = TestGateway::start().await;
    let cases = [
        (json!({ "size": "100x100" }), "size", "1024x1024"),
        (json!({ "size": "4096x4096" }), "size", "1024x1024"),
        (json!({ "size": "2K" }), "size", "1024x1024"),
        (json!({ "quality": "max" }), "quality", "auto, low, medium, high"),
        (json!({ "n": 11 }), "n", "10"),
        (json!({ "n": 0 }), "n", "1"),
        (json!({ "output_format": "svg" }), "output_format", "webp"),
        (json!({ "moderation": "off" }), "moderation", "low"),
        (json!({ "stream": true, "response_format": "url" }), "response_format", "stream"),
        (json!({ "stream": true, "partial_images": 4 }), "partial_images", "3"),
        (json!({ "prompt": " " }), "prompt", "empty"),
        (json!({ "image": "http://169.254.169.254/latest" }), "image[0]", "image[0]"),
        (
            json!({ "images": [{ "image_url": "http://169.254.169.254/" }] }),
            "images[0]",
            "images[0]",
        ),
    ];
    for (more, field, told) in cases {
        let mut ask = json!({ "model": "demo-image", "prompt": "x" });
        ask.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let got = gateway.post(GENERATIONS, &ask).send().await;
        let error = &got.json()["error"];
        assert_eq!((got.status.as_u16(), &error["param"]), (400, &json!(field)), "{ask}");
        assert!(error["message"].as_str().unwrap().contains(told), "{error}");
    }
    let ask = json!({ "model": "demo-image-native", "prompt": "x", "aspect_ratio": "7:3" });
    let got = gateway.post(GENERATIONS, &ask).send().await;
    assert_eq!(got.json()["error"]["param"], "aspect_ratio");

    let ask = json!({ "model": "demo-chat", "prompt": "x" });
    let got = gateway.post(GENERATIONS, &ask).send().await;
    assert_eq!(got.status, 404);
    assert!(got.text().contains("is a chat model"), "{}", got.text());
    let got = gateway.post(GENERATIONS, &json!({ "model": "none", "prompt": "x" })).send().await;
    assert_eq!(got.status, 404);
    let got = gateway.post(GENERATIONS, &json!({ "prompt": "x" })).send().await;
    assert_eq!((got.status.as_u16(), &got.json()["error"]["param"]), (400, &json!("model")));
    gateway.wait_until_settled().await;
    let key = gateway.get("/v1/key").send().await.json();
    assert_eq!(
        (&key["spent_usd"], &key["held_usd"]),
        (&json!("0.000000000"), &json!("0.000000000"))
    );
}

#[tokio::test]
async fn an_edit_keeps_what_the_mask_covers() {
    let gateway = TestGateway::start().await;
    let red = plain(128, [255, 0, 0, 255]);
    let mut mask = RgbaImage::from_pixel(128, 128, Rgba([0, 0, 0, 255]));
    for x in 0..128 {
        for y in 0..64 {
            mask.put_pixel(x, y, Rgba([0, 0, 0, 0]));
        }
    }
    let fields = [("model", "demo-image"), ("prompt", "sky"), ("size", "128x128"), ("n", "1")];
    let mask = png(&mask);
    let files: [(&str, &[u8]); 2] = [("image", &red), ("mask", &mask)];
    let got = form(&gateway, &fields, &files).send().await;
    let (_, picture) = first(&got);
    assert_eq!(*picture.get_pixel(2, 124), Rgba([255, 0, 0, 255]));
    assert_ne!(*picture.get_pixel(2, 10), Rgba([255, 0, 0, 255]));
    assert!(got.json()["usage"]["input_tokens_details"]["image_tokens"].as_u64().unwrap() > 0);

    // The same in JSON gives the same picture.
    let uri = |file: &[u8]| format!("data:image/png;base64,{}", media::encode_base64(file));
    let ask = json!({ "model": "demo-image", "prompt": "sky", "size": "128x128",
        "images": [{ "image_url": uri(&red) }], "mask": { "image_url": uri(&mask) } });
    assert_eq!(first(&gateway.post(EDITS, &ask).send().await).1, picture);

    // The form of the other families, sent to the generations address, gives the same picture too.
    let ask = json!({ "model": "demo-image", "prompt": "sky", "size": "128x128",
        "image": [uri(&red)], "mask": uri(&mask) });
    assert_eq!(first(&gateway.post(GENERATIONS, &ask).send().await).1, picture);
}

#[tokio::test]
async fn bad_forms_are_refused_by_name() {
    let gateway = TestGateway::start().await;
    let good = [("model", "demo-image"), ("prompt", "x")];
    let red = plain(32, [255, 0, 0, 255]);
    type Files<'a> = Vec<(&'a str, &'a [u8])>;
    let many: Files<'_> = (0..17).map(|_| ("image[]", red.as_slice())).collect();
    let see_through = plain(16, [0, 0, 0, 0]);
    let mut opaque = Cursor::new(Vec::new());
    RgbImage::new(32, 32).write_to(&mut opaque, ImageFormat::Png).unwrap();
    let opaque = opaque.into_inner();
    let cases: [(Files<'_>, &str); 5] = [
        (vec![], "image"),
        (many, "image"),
        (vec![("image", b"text, not a picture".as_slice())], "image"),
        (vec![("image", red.as_slice()), ("mask", see_through.as_slice())], "mask"),
        (vec![("image", red.as_slice()), ("mask", opaque.as_slice())], "mask"),
    ];
    for (files, field) in cases {
        let got = form(&gateway, &good, &files).send().await;
        assert_eq!(got.status, 400, "{field}: {} files", files.len());
        assert_eq!(got.json()["error"]["param"], field, "{}", got.text());
    }
    let twice = [("model", "demo-image"), ("model", "demo-image"), ("prompt", "x")];
    let got = form(&gateway, &twice, &[("image", &red)]).send().await;
    assert_eq!(got.json()["error"]["param"], "model");
    for (kind, status) in [
        ("multipart/form-data", 400),
        ("multipart/form-data; boundary=other", 400),
        ("text/plain", 415),
    ] {
        let got =
            form(&gateway, &good, &[("image", &red)]).header("content-type", kind).send().await;
        assert_eq!(got.status.as_u16(), status, "{kind}: {}", got.text());
    }
}

#[tokio::test]
async fn an_upload_beyond_the_limit_is_told_the_limit() {
    let gateway = TestGateway::with_config("[limits]\nbody = \"64KiB\"\n").await;
    let large = vec![0; 100 << 10];
    let fields = [("model", "demo-image"), ("prompt", "x")];
    let got = form(&gateway, &fields, &[("image", &large)]).send().await;
    assert_eq!(got.status, 413);
    assert!(got.text().contains("65536"), "{}", got.text());
}

#[tokio::test]
async fn a_native_model_is_asked_in_its_own_way() {
    let gateway = TestGateway::start().await;
    let ask = json!({ "model": "demo-image-native", "prompt": "a harbour", "aspect_ratio": "16:9",
        "quality": "high", "n": 2 });
    let got = gateway.post(GENERATIONS, &ask).send().await;
    let (format, picture) = first(&got);
    assert_eq!((format, picture.dimensions()), (ImageFormat::Png, (1_376, 768)));
    assert_eq!(got.json()["data"].as_array().unwrap().len(), 2);
    assert_eq!(got.json()["size"], "1376x768");
    assert_eq!(got.header("x-portunus-loss"), "quality");
    assert!(got.json()["usage"]["output_tokens_details"]["image_tokens"].as_u64().unwrap() > 0);

    let strict = gateway.post(GENERATIONS, &ask).header("x-portunus-strict", "true").send().await;
    assert_eq!(
        (strict.status.as_u16(), &strict.json()["error"]["code"]),
        (400, &json!("translation_loss"))
    );
    let dry = gateway.post(GENERATIONS, &ask).header("x-portunus-dry-run", "true").send().await;
    let told = dry.json();
    assert_eq!(told["dialect"], "native");
    assert_eq!(told["body"][0]["generationConfig"]["imageConfig"]["aspectRatio"], "16:9");
}

#[tokio::test]
async fn an_image_model_answers_in_every_conversation() {
    let gateway = TestGateway::start().await;
    let contents = json!([{ "role": "user", "parts": [{ "text": "a red boat" }] }]);
    let ask = json!({ "contents": contents, "generationConfig":
        { "responseModalities": ["TEXT", "IMAGE"], "imageConfig": { "aspectRatio": "2:3" } } });
    let got = gateway.post("/v1beta/models/demo-image-native:generateContent", &ask).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    let body = got.json();
    let parts = &body["candidates"][0]["content"]["parts"];
    let (_, native) = decoded(&bytes_of(&parts[1]["inlineData"]["data"]));
    assert_eq!(native.dimensions(), (832, 1_248));

    let ask = json!({ "model": "demo-image-native", "modalities": ["image", "text"],
        "image_config": { "aspect_ratio": "2:3" },
        "messages": [{ "role": "user", "content": "a red boat" }] });
    let got = gateway.post("/v1/chat/completions", &ask).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    assert_eq!(got.header("x-portunus-loss"), "");
    let body = got.json();
    let url = &body["choices"][0]["message"]["images"][0]["image_url"]["url"];
    let data = url.as_str().unwrap().strip_prefix("data:image/png;base64,").unwrap();
    assert_eq!(decoded(&media::decode_base64(data).unwrap()).1, native);

    let ask = json!({ "model": "demo-image-native", "input": "a red boat" });
    let got = gateway.post("/v1/responses", &ask).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    let body = got.json();
    let output = body["output"].as_array().unwrap();
    let item = output.iter().find(|item| item["type"] == "image_generation_call").unwrap();
    assert_eq!(decoded(&bytes_of(&item["result"])).1.dimensions(), (1_024, 1_024));

    // A model that is only served at the images address says so.
    let ask = json!({ "model": "demo-image", "messages": [{ "role": "user", "content": "x" }] });
    let got = gateway.post("/v1/chat/completions", &ask).send().await;
    assert_eq!(got.status, 404);
    assert!(got.text().contains("/v1/images/generations"), "{}", got.text());
}

#[tokio::test]
async fn the_third_family_gives_links_that_last_or_base64() {
    let gateway = TestGateway::start().await;
    let ask = |more: Value| {
        let mut ask = json!({ "model": "demo-image-url", "prompt": "a pier", "size": "160x96" });
        ask.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        ask
    };
    let got =
        gateway.post(GENERATIONS, &ask(json!({ "response_format": "b64_json" }))).send().await;
    let (_, inline) = first(&got);
    assert_eq!(inline.dimensions(), (160, 96));
    for more in [json!({ "response_format": "url" }), json!({})] {
        let got = gateway.post(GENERATIONS, &ask(more)).send().await;
        assert_eq!(got.status, 200, "{}", got.text());
        let url = got.json()["data"][0]["url"].as_str().unwrap().to_owned();
        let path = url.strip_prefix(&gateway.url).unwrap_or_else(|| panic!("not ours: {url}"));
        let file = gateway.get(path).without_key().send().await;
        assert_eq!((file.status.as_u16(), file.header("content-type")), (200, "image/png"));
        assert_eq!(decoded(&file.body).1, inline);
    }
    gateway.wait_until_settled().await;
    let receipt = receipt(&gateway, &got).await;
    assert_eq!(receipt["cost_usd"], "0.000100000", "{receipt}");
}

#[tokio::test]
async fn links_of_the_gpt_family_are_our_own() {
    let gateway = TestGateway::start().await;
    let ask = json!({ "model": "demo-image", "prompt": "a pier", "size": "64x64",
        "response_format": "url" });
    let got = gateway.post(GENERATIONS, &ask).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    let url = got.json()["data"][0]["url"].as_str().unwrap().to_owned();
    let file = gateway.get(url.strip_prefix(&gateway.url).unwrap()).without_key().send().await;
    assert_eq!(decoded(&file.body).1.dimensions(), (64, 64));
}

#[tokio::test]
async fn a_task_of_the_providers_is_waited_for() {
    let gateway = TestGateway::start().await;
    let ask = json!({ "model": "demo-image-url", "prompt": "large", "size": "2K",
        "response_format": "b64_json", "output_format": "jpeg" });
    let got = gateway.post(GENERATIONS, &ask).send().await;
    let (format, picture) = first(&got);
    assert_eq!((format, picture.dimensions()), (ImageFormat::Jpeg, (2_048, 2_048)));
}

#[tokio::test]
async fn a_refused_prompt_costs_nothing() {
    let gateway = TestGateway::start().await;
    for stream in [false, true] {
        let ask =
            json!({ "model": "demo-image", "prompt": "something forbidden", "stream": stream });
        let got = gateway.post(GENERATIONS, &ask).send().await;
        assert_eq!(got.status, 400);
        assert!(got.text().contains("safety system"), "{}", got.text());
        gateway.wait_until_settled().await;
        assert_eq!(receipt(&gateway, &got).await["cost_usd"], "0.000000000");
    }
}

pub(crate) fn events(got: &TestResponse) -> Vec<Value> {
    got.events().iter().map(|data| serde_json::from_str(data).unwrap()).collect()
}

#[tokio::test]
async fn streams_show_drafts_and_end_with_the_picture() {
    let gateway = TestGateway::start().await;
    let ask = json!({ "model": "demo-image", "prompt": "a gull", "size": "128x128", "stream": true,
        "partial_images": 2 });
    let got = gateway.post(GENERATIONS, &ask).send().await;
    assert_eq!((got.status.as_u16(), got.is_truncated), (200, false));
    let seen = events(&got);
    let names: Vec<&str> = seen.iter().map(|event| event["type"].as_str().unwrap()).collect();
    let partial = "image_generation.partial_image";
    assert_eq!(names, [partial, partial, "image_generation.completed"]);
    assert!(got.text().starts_with(&format!("event: {partial}\n")));
    assert_eq!(seen[1]["partial_image_index"], 1);
    let last = seen.last().unwrap();
    assert_eq!(decoded(&bytes_of(&last["b64_json"])).1.dimensions(), (128, 128));
    gateway.wait_until_settled().await;
    let receipt = receipt(&gateway, &got).await;
    assert_eq!(receipt["tokens"]["output"], last["usage"]["output_tokens"], "{receipt}");

    // A family without a stream of its own, and one whose stream is another.
    for model in ["demo-image-native", "demo-image-url"] {
        let ask = json!({ "model": model, "prompt": "a gull", "stream": true });
        let got = gateway.post(GENERATIONS, &ask).send().await;
        assert_eq!(got.status, 200, "{}", got.text());
        let seen = events(&got);
        assert_eq!(seen.len(), 1, "{model}");
        assert_eq!(seen[0]["type"], "image_generation.completed");
        assert_eq!(decoded(&bytes_of(&seen[0]["b64_json"])).1.dimensions(), (1_024, 1_024));
    }
}

/// A gateway whose image model `m` is `up` at a provider of that family.
pub(crate) async fn in_front_of(provider: &ScriptedProvider, family: &str) -> TestGateway {
    let config = format!(
        "{}kind = \"image\"\npictures = {{ family = \"{family}\" }}\n",
        provider.config("images")
    );
    TestGateway::with_config(&config).await
}

pub(crate) fn json_reply(body: &Value) -> Vec<AnswerStep> {
    reply(200, "application/json", &body.to_string())
}

#[tokio::test]
async fn the_callers_bytes_reach_the_gpt_family_as_they_are() {
    let data = media::encode_base64(plain(8, [1, 2, 3, 255]));
    let rest = json!({ "background": "auto", "output_format": "png", "quality": "low", "size": "8x8",
        "usage": { "input_tokens": 1, "input_tokens_details": {}, "output_tokens": 2,
            "output_tokens_details": {}, "total_tokens": 3 } });
    let rest = rest.to_string().replace(['\n'], "");
    let data = format!("\"data\":[{{\"b64_json\":\"{data}\"}}]");
    let answer = format!("{{ \"created\":1,\"x\":[],\n{data}, {} ", rest.trim_start_matches('{'));
    let provider = ScriptedProvider::start(vec![reply(200, "application/json", &answer)]).await;
    let gateway = in_front_of(&provider, "gpt").await;
    let ask = "{ \"prompt\" : \"a\", \"response_format\":\"b64_json\", \"z\":{},  \"model\":\"m\"}";
    let got = gateway.request(http::Method::POST, GENERATIONS).body(ask).send().await;
    assert_eq!(got.text(), answer, "the answer goes on as it came");
    let asked = provider.requests();
    assert!(asked[0].head.starts_with("POST /v1/images/generations "));
    let sent = String::from_utf8(asked[0].body.clone()).unwrap();
    assert_eq!(sent, "{ \"prompt\" : \"a\", \"z\":{},  \"model\":\"up\"}");

    let file = plain(8, [9, 9, 9, 255]);
    let fields = [("model", "m"), ("response_format", "b64_json"), ("prompt", "x")];
    let got = form(&gateway, &fields, &[("image[0]", &file)]).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    let asked = provider.requests();
    let sent = &asked[1].body;
    assert!(asked[1].head.contains("multipart/form-data; boundary=b"), "{}", asked[1].head);
    let text = String::from_utf8_lossy(sent);
    assert!(text.contains("\r\n\r\nup\r\n") && !text.contains("response_format"), "{text}");
    assert!(sent.windows(file.len()).any(|window| window == file), "the file as it came");
}

#[tokio::test]
async fn non_image_data_is_not_handed_on() {
    for body in [
        json!({ "data": [{ "b64_json": media::encode_base64(b"<svg/>") }] }),
        json!({ "data": [{ "url": "http://169.254.169.254/x.png" }] }),
        json!({ "data": [] }),
        json!({}),
    ] {
        let provider = ScriptedProvider::start(vec![json_reply(&body)]).await;
        let gateway = in_front_of(&provider, "gpt").await;
        let got = gateway.post(GENERATIONS, &json!({ "model": "m", "prompt": "x" })).send().await;
        assert!(matches!(got.status.as_u16(), 400 | 503), "{body}: {}", got.text());
        assert!(!got.text().contains("svg"));
        gateway.wait_until_settled().await;
        assert_eq!(receipt(&gateway, &got).await["cost_usd"], "0.000000000");
    }
}

#[tokio::test]
async fn a_picture_that_cannot_be_delivered_is_absorbed_as_told() {
    let body = json!({ "data": [{ "url": "https://10.0.0.1/x.png" }],
        "usage": { "input_tokens": 10, "output_tokens": 100, "total_tokens": 110 } });
    let provider = ScriptedProvider::start(vec![json_reply(&body)]).await;
    let gateway = in_front_of(&provider, "gpt").await;
    let got = gateway.post(GENERATIONS, &json!({ "model": "m", "prompt": "x" })).send().await;
    assert_eq!(got.status, 503, "{}", got.text());
    gateway.wait_until_settled().await;
    let row = gateway.app.store.export(None, 10).await.unwrap().remove(0);
    assert_eq!(row.cost, canon::Money::ZERO, "{row:?}");
    assert_eq!(row.absorbed, canon::Money::from_nanos(10 * 1_000 + 100 * 2_000), "{row:?}");
    assert_eq!(row.reasons, [ledger::ChargeReason::NotDelivered]);
    assert_eq!(row.told_usage().map(|told| (told.output, told.images)), Some((100, 1)));
}

#[tokio::test]
async fn one_failed_picture_of_a_series_is_told_and_not_paid() {
    let data = media::encode_base64(plain(8, [1, 2, 3, 255]));
    let body = json!({ "data": [{ "b64_json": data },
        { "error": { "code": "OutputImageSensitiveContentDetected", "message": "no" } }],
        "usage": { "generated_images": 1, "output_tokens": 100, "total_tokens": 100 } });
    let provider = ScriptedProvider::start(vec![json_reply(&body)]).await;
    let gateway = in_front_of(&provider, "seedream").await;
    let ask = json!({ "model": "m", "prompt": "x", "n": 2 });
    let got = gateway.post(GENERATIONS, &ask).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    let told = got.json();
    assert!(told["data"][0]["b64_json"].is_string());
    assert_eq!(told["data"][1]["error"]["message"], "no");
    let sent = provider.requests()[0].json();
    assert_eq!(sent["sequential_image_generation_options"]["max_images"], 2);
    gateway.wait_until_settled().await;
    assert_eq!(receipt(&gateway, &got).await["tokens"]["output"], 100);
}

#[tokio::test]
async fn tasks_of_every_kind_of_provider_are_polled() {
    let data = |url: &str| format!("{url}/made.png");
    let file = plain(8, [5, 6, 7, 255]);
    for (family, submitted, polled) in [
        (
            "dashscope",
            json!({ "output": { "task_id": "t1", "task_status": "PENDING" } }),
            json!({ "output": { "task_status": "SUCCEEDED", "results": [{ "url": "LINK" }] } }),
        ),
        (
            "flux",
            json!({ "id": "t1", "polling_url": "BASE/v1/get_result?id=t1" }),
            json!({ "status": "Ready", "result": { "sample": "LINK" } }),
        ),
        (
            "predictions",
            json!({ "id": "t1", "status": "starting", "urls": { "get": "BASE/v1/predictions/t1" } }),
            json!({ "status": "succeeded", "output": ["LINK"] }),
        ),
    ] {
        // The address is only known once it listens.
        let provider = ScriptedProvider::start(vec![json_reply(&json!({}))]).await;
        let named = |value: &Value| {
            let link = data(&provider.url);
            let text = value.to_string().replace("LINK", &link).replace("BASE", &provider.url);
            reply(200, "application/json", &text)
        };
        let steps = vec![named(&submitted), named(&polled), picture_reply(&file)];
        provider.set_answers(steps);
        let gateway = in_front_of(&provider, family).await;
        let ask = json!({ "model": "m", "prompt": "x", "response_format": "b64_json" });
        let got = gateway.post(GENERATIONS, &ask).send().await;
        assert_eq!(got.status, 200, "{family}: {}", got.text());
        assert_eq!(bytes_of(&got.json()["data"][0]["b64_json"]), file, "{family}");
        let heads: Vec<String> = provider.requests().into_iter().map(|asked| asked.head).collect();
        assert!(heads[1].starts_with("GET /"), "{}", heads[1]);
        assert!(heads[2].starts_with("GET /made.png "), "{}", heads[2]);
    }
}

fn picture_reply(file: &[u8]) -> Vec<AnswerStep> {
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: image/png\r\ncontent-length: {}\r\n\r\n",
        file.len()
    );
    vec![AnswerStep::Bytes([head.as_bytes(), file].concat())]
}

#[tokio::test]
async fn a_stream_that_breaks_ends_with_an_error_event() {
    let data = media::encode_base64(plain(8, [1, 2, 3, 255]));
    let partial = json!({ "type": "image_generation.partial_image", "b64_json": data,
        "partial_image_index": 0 });
    let body = format!("event: image_generation.partial_image\ndata: {partial}\n\n");
    let provider = ScriptedProvider::start(vec![reply(200, "text/event-stream", &body)]).await;
    let gateway = in_front_of(&provider, "gpt").await;
    let ask = json!({ "model": "m", "prompt": "x", "stream": true, "partial_images": 1 });
    let got = gateway.post(GENERATIONS, &ask).send().await;
    assert_eq!(got.status, 200);
    let text = got.text();
    assert!(text.contains("event: error\ndata: {\"type\":\"error\",\"error\":{"), "{text}");
}

#[tokio::test]
async fn the_hold_grows_with_the_number_of_pictures() {
    let provider = ScriptedProvider::start(vec![json_reply(&json!({}))]).await;
    let gateway = in_front_of(&provider, "gpt").await;
    let ask = json!({ "model": "m", "prompt": "x", "n": 10, "size": "1024x1024" });
    let dry = gateway.post(GENERATIONS, &ask).header("x-portunus-dry-run", "true").send().await;
    let most: f64 = dry.json()["quote"]["at_most_usd"].as_str().unwrap().parse().unwrap();
    let one = json!({ "model": "m", "prompt": "x", "n": 1, "size": "1024x1024" });
    let dry = gateway.post(GENERATIONS, &one).header("x-portunus-dry-run", "true").send().await;
    let least: f64 = dry.json()["quote"]["at_most_usd"].as_str().unwrap().parse().unwrap();
    assert!(most > least * 5.0, "{most} for ten, {least} for one");
    assert!(provider.requests().is_empty());
}

#[tokio::test]
async fn a_picture_is_charged_by_the_size_and_quality_it_was_asked_for_in() {
    let gateway = TestGateway::with_config(
        "[models.priced]\nkind = \"image\"\nlanes = [\"demo/demo-image\"]\n\
         pictures = { family = \"gpt\", sizes = [\"128x128\", \"256x256\"], most = 4 }\n\
         [models.priced.price]\ninput = \"0\"\noutput = \"0\"\n\
         pictures = [{ size = \"128x128\", price = \"0.01\" }, { size = \"256x256\", price = \"0.05\" }]\n",
    )
    .await;
    for (size, n, cost) in [("128x128", 2, "0.020000000"), ("256x256", 1, "0.050000000")] {
        let ask = json!({ "model": "priced", "prompt": "a pier", "size": size, "n": n });
        let got = gateway.post(GENERATIONS, &ask).send().await;
        assert_eq!(got.status, 200, "{size}");
        gateway.wait_until_settled().await;
        let receipt = receipt(&gateway, &got).await;
        assert_eq!(receipt["cost_usd"], cost, "{receipt}");
    }
}

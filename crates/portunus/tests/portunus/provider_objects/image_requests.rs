//! Objects in image requests, as JSON and as forms.

use serde_json::json;
use testkit::{ScriptedProvider, TestGateway};

use crate::images::{EDITS, GENERATIONS, form, plain};

#[tokio::test]
async fn objects_of_the_operator_are_not_found() {
    let provider = ScriptedProvider::start(Vec::new()).await;
    let config = format!("{}kind = \"image\"\n", provider.config("images"));
    let gateway = TestGateway::with_config(&config).await;
    let picture = plain(8, [9, 9, 9, 255]);
    for (name, shown) in [
        ("file_id", "file_id"),
        ("file_ids[]", "file_ids"),
        ("container", "container"),
        ("container[id]", "container"),
        ("container.id", "container"),
        ("vector_store_ids[0]", "vector_store_ids"),
        ("cached_content", "cached_content"),
    ] {
        let fields = [("model", "m"), ("prompt", "Hi"), (name, "x_operators_own")];
        let got = form(&gateway, &fields, &[("image", &picture)]).send().await;
        assert_eq!(got.status, 404, "{name}: {}", got.text());
        assert_eq!(got.json()["error"]["param"], shown, "{}", got.text());
    }
    for name in ["image.file_id", "mask.file_id"] {
        let fields = [("model", "m"), ("prompt", "Hi"), (name, "x_operators_own")];
        let got = form(&gateway, &fields, &[("image", &picture)]).send().await;
        assert_eq!(got.status, 400, "{name}: {}", got.text());
    }
    for (path, fields, shown) in [
        (EDITS, json!({ "images": [{ "file_id": "x" }] }), "images[0].file_id"),
        (EDITS, json!({ "image": { "file_id": "x" } }), "image.file_id"),
        (EDITS, json!({ "mask": { "file_id": "x" } }), "mask.file_id"),
        (EDITS, json!({ "input_images": [{ "file_id": "x" }] }), "input_images[0].file_id"),
        (GENERATIONS, json!({ "container": { "id": "x" } }), "container.id"),
        (GENERATIONS, json!({ "container": { "file_ids": ["x"] } }), "container.file_ids[0]"),
        (GENERATIONS, json!({ "file_ids": ["x"] }), "file_ids[0]"),
        (
            GENERATIONS,
            json!({ "tools": [{ "project_connection_id": "x" }] }),
            "tools[0].project_connection_id",
        ),
    ] {
        let mut body = json!({ "model": "m", "prompt": "Hi" });
        for (name, value) in fields.as_object().unwrap() {
            body[name] = value.clone();
        }
        let got = gateway.post(path, &body).send().await;
        assert_eq!(got.status, 404, "{body}: {}", got.text());
        assert_eq!(got.json()["error"]["param"], shown, "{}", got.text());
    }
    assert_eq!(provider.requests().len(), 0);
}

/// A provider in a private network gets no address, in JSON or in a form.
#[tokio::test]
async fn a_provider_in_a_private_network_gets_no_address_beside_the_images() {
    const URL: &str = "https://e.example/x.png";
    let provider = ScriptedProvider::start(Vec::new()).await;
    let config = format!("{}kind = \"image\"\n", provider.config("images"));
    let gateway = TestGateway::with_config(&config).await;
    let picture = plain(8, [9, 9, 9, 255]);
    let data = format!("data:image/png;base64,{}", media::encode_base64(&picture));
    for (path, fields, shown) in [
        (GENERATIONS, json!({ "file": URL }), "file"),
        (GENERATIONS, json!({ "ref_images": [URL] }), "ref_images[0]"),
        (GENERATIONS, json!({ "IMAGE_URL": URL }), "IMAGE_URL"),
        (EDITS, json!({ "images": [{ "image_url": data, "URL": URL }] }), "images[0].URL"),
        (EDITS, json!({ "image": [data], "init_image": URL }), "init_image"),
    ] {
        let mut body = json!({ "model": "m", "prompt": URL });
        for (name, value) in fields.as_object().unwrap() {
            body[name] = value.clone();
        }
        let got = gateway.post(path, &body).send().await;
        assert_eq!(got.status, 400, "{shown}: {}", got.text());
        assert_eq!(got.json()["error"]["param"], shown, "{}", got.text());
    }
    for name in ["ref_image", "ref_images[]", "ref[url]"] {
        let fields = [("model", "m"), ("prompt", URL), (name, URL)];
        let got = form(&gateway, &fields, &[("image", &picture)]).send().await;
        assert_eq!(got.status, 400, "{name}: {}", got.text());
        assert_eq!(got.json()["error"]["param"], name, "{}", got.text());
    }
    assert_eq!(provider.requests().len(), 0);
}

//! Signed links to results: their contents, lifetime and owners.

use http::Method;
use serde_json::{Value, json};
use std::time::Duration;
use testkit::{ScriptedProvider, TestGateway};

use crate::tasks::harness::{Got, PNG, config, get, order, over, picture, send, soon};

/// Submits until a task was done within the short life of its link; tells the task.
pub(crate) async fn painted(gateway: &TestGateway) -> Value {
    for _ in 0..10 {
        let got = gateway.post("/v1/images/generations", &order()).send().await;
        assert_eq!(got.status, 202, "{}", got.text());
        let path = format!("/v1/tasks/{}", got.json()["id"].as_str().unwrap());
        let task = soon(Duration::from_secs(60), || async {
            let got = gateway.get(&path).send().await;
            // On a busy machine it may expire before it is read.
            let over = got.status == 404 || got.json()["status"] == "completed";
            over.then(|| got.json())
        });
        let task = task.await.expect("a task that comes to its end");
        if task["status"] == "completed" {
            return task;
        }
    }
    panic!("no picture is done within its life");
}

async fn ask(link: &str, method: Method, headers: &[(&'static str, &str)]) -> Got {
    send(method, link, "", headers, "").await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_gives_the_picture_whole_or_in_part() {
    let provider = ScriptedProvider::start(vec![picture()]).await;
    let gateway = TestGateway::with_config(&config(&provider.url, "")).await;
    let task = painted(&gateway).await;
    let link = task["data"][0]["url"].as_str().unwrap();
    let whole = ask(link, Method::GET, &[]).await;
    assert_eq!((whole.status, whole.body.as_slice()), (200, PNG));
    assert_eq!(whole.header("content-type"), "image/png");
    assert_eq!(whole.header("x-content-type-options"), "nosniff");
    assert!(whole.header("content-disposition").starts_with("inline; filename=\""));
    assert_eq!(whole.header("content-length"), PNG.len().to_string());
    let head = ask(link, Method::HEAD, &[]).await;
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(head.header("content-length"), PNG.len().to_string());
    let part = ask(link, Method::GET, &[("range", "bytes=1-3")]).await;
    assert_eq!((part.status, part.body.as_slice()), (206, b"PNG".as_slice()));
    assert_eq!(part.header("content-range"), format!("bytes 1-3/{}", PNG.len()));
    let beyond = ask(link, Method::GET, &[("range", "bytes=9999-")]).await;
    assert_eq!(beyond.status, 416);
    let known = ask(link, Method::GET, &[("if-none-match", whole.header("etag"))]).await;
    assert_eq!((known.status, known.body.len()), (304, 0));

    let (address, signature) = link.split_once("&signature=").unwrap();
    let (path, _) = link.split_once('?').unwrap();
    for forged in [
        path.to_owned(),
        address.to_owned(),
        format!("{address}&signature=AAAA"),
        link.replace("?expires=", "?expires=9"),
        format!("{}/files/..%2Fportunus.db?expires=9&signature={signature}", gateway.url),
        format!("{}/files/portunus.db?expires=9&signature={signature}", gateway.url),
    ] {
        let got = ask(&forged, Method::GET, &[]).await;
        assert_eq!((got.status, &got.json()["code"]), (403, &json!("wrong_signature")), "{forged}");
    }
}

/// A file that fits into memory is checked before its first byte. A larger one breaks off, so that no
/// client takes the part for the whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_file_is_an_error_or_breaks_off() {
    let gateway = TestGateway::with_config("[files]\nsize = \"16MiB\"\n").await;
    for (size, status) in [(200_000, 503), (9 << 20, 200)] {
        let link = gateway.app.engine.files.put("ada", vec![7; size].into(), "image/png").await;
        let link = link.unwrap();
        let path = link.url.strip_prefix(&gateway.url).unwrap().to_owned();
        let ask = async || gateway.get(&path).without_key().send().await;
        let good = ask().await;
        assert_eq!((good.status.as_u16(), good.body.len(), good.is_truncated), (200, size, false));
        let stored = gateway.data_folder().join("files").join(&link.name);
        let mut bytes = std::fs::read(&stored).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(&stored, &bytes).unwrap();
        let damaged = ask().await;
        assert_eq!(damaged.status, status, "{size}");
        assert_eq!(damaged.is_truncated, status == 200, "{size}");
        std::fs::write(&stored, "").unwrap();
        for method in [Method::GET, Method::HEAD] {
            let empty = gateway.request(method, &path).without_key().send().await;
            assert_eq!((empty.status.as_u16(), empty.header("retry-after")), (503, ""), "{size}");
            assert!(!empty.text().contains("retry"), "{}", empty.text());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_dies_with_its_task_and_is_swept() {
    let provider = ScriptedProvider::start(vec![picture()]).await;
    let gateway = TestGateway::with_config(&config(&provider.url, "[files]\nkeep = \"4s\"")).await;
    let task = painted(&gateway).await;
    let link = task["data"][0]["url"].as_str().unwrap().to_owned();
    let gone = soon(Duration::from_secs(60), || async {
        let got = get(&link, "").await?;
        (got.status == 410).then_some(got)
    });
    let gone = gone.await.expect("a link that dies");
    assert_eq!(gone.json()["code"], "link_expired");
    assert!(gone.json()["message"].as_str().unwrap().contains("expired at"));
    let path = format!("/v1/tasks/{}", task["id"].as_str().unwrap());
    let unknown = soon(Duration::from_secs(60), || async {
        let got = gateway.get(&path).send().await;
        (got.status == 404).then_some(got)
    });
    let unknown = unknown.await.expect("a task that is forgotten");
    assert_eq!(unknown.json()["error"]["code"], "task_not_found");
    let kept = || std::fs::read_dir(gateway.data_folder().join("files")).unwrap().count();
    assert!(kept() > 0);
    gateway.app.sweep().await;
    assert_eq!(kept(), 0);
    assert_eq!(get(&link, "").await.unwrap().status, 410, "whether it is swept or not");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_look_at_a_task_opens_the_same_picture() {
    let provider = ScriptedProvider::start(vec![picture()]).await;
    let gateway = TestGateway::with_config(&config(&provider.url, "")).await;
    let task = painted(&gateway).await;
    let again = over(&gateway.url, &gateway.key, task["id"].as_str().unwrap()).await;
    let listed = gateway.get("/v1/tasks").send().await.json();
    for shown in [&task, &again, &listed["data"][0]] {
        let link = shown["data"][0]["url"].as_str().unwrap();
        assert_eq!(get(link, "").await.unwrap().body, PNG);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_waits_may_have_a_link_too() {
    let provider = ScriptedProvider::start(vec![picture()]).await;
    let gateway = TestGateway::with_config(&config(&provider.url, "")).await;
    let body = json!({ "model": "m", "prompt": "a dot", "response_format": "url" });
    let got = gateway.post("/v1/images/generations", &body).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    let data = got.json()["data"].clone();
    assert_eq!(data[0]["b64_json"], Value::Null);
    let link = data[0]["url"].as_str().unwrap();
    assert!(link.starts_with(&format!("{}/files/", gateway.url)), "{link}");
    assert_eq!(get(link, "").await.unwrap().body, PNG);
    assert_eq!(provider.requests()[0].json()["response_format"], Value::Null);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_demo_models_draw_for_a_task_in_the_asked_size() {
    let gateway = TestGateway::start().await;
    for model in ["demo-image", "demo-image-native", "demo-image-url"] {
        let body = json!({ "model": model, "prompt": "a lighthouse", "async": true });
        let got = gateway.post("/v1/images/generations", &body).send().await;
        assert_eq!(got.status, 202, "{model}: {}", got.text());
        let task = over(&gateway.url, &gateway.key, got.json()["id"].as_str().unwrap()).await;
        assert_eq!(task["status"], "completed", "{task}");
        let link = task["data"][0]["url"].as_str().unwrap();
        assert!(link.starts_with(&format!("{}/files/", gateway.url)), "{link}");
        let got = get(link, "").await.unwrap();
        assert_eq!((got.status, got.header("content-type")), (200, "image/png"), "{model}");
        let seen = media::image_info(&got.body).expect("a picture");
        let size = task["size"].as_str().unwrap();
        assert_eq!(seen.size.map(|(w, h)| format!("{w}x{h}")).as_deref(), Some(size), "{model}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_is_edited_by_a_task() {
    let gateway = TestGateway::start().await;
    let part = |name: &str, more: &str, value: &[u8]| {
        let head =
            format!("--edge\r\ncontent-disposition: form-data; name=\"{name}\"{more}\r\n\r\n");
        [head.as_bytes(), value, b"\r\n"].concat()
    };
    let file = "; filename=\"a.png\"\r\ncontent-type: image/png";
    let form = [
        part("model", "", b"demo-image"),
        part("prompt", "", b"a boat"),
        part("async", "", b"true"),
        part("image", file, PNG),
        b"--edge--\r\n".to_vec(),
    ];
    let ask = gateway.request(Method::POST, "/v1/images/edits").body(form.concat());
    let got = ask.header("content-type", "multipart/form-data; boundary=edge").send().await;
    assert_eq!(got.status, 202, "{}", got.text());
    let task = over(&gateway.url, &gateway.key, got.json()["id"].as_str().unwrap()).await;
    assert_eq!(task["status"], "completed", "{task}");
    let link = task["data"][0]["url"].as_str().unwrap();
    assert!(media::image_info(&get(link, "").await.unwrap().body).is_some());
}

//! Answers where there is nothing to serve, and the examples on the pages of models.

use http::Method;
use std::process::Command;
use testkit::TestGateway;

use super::{check, plain};

#[tokio::test]
async fn unknown_addresses() {
    let gateway = TestGateway::start().await;
    for (name, path) in [
        ("unknown_chat_404", "/v1/nothing"),
        ("unknown_messages_404", "/v1/messages/nothing"),
        ("unknown_native_404", "/v1beta/nothing"),
        ("unknown_api_404", "/api/nothing"),
    ] {
        check(name, plain(&gateway, Method::GET, path)).await;
    }
    let page = plain(&gateway, Method::GET, "/nothing").without_key().header("accept", "text/html");
    check("unknown_page_404", page).await;
    let page = plain(&gateway, Method::GET, "/console").without_key();
    check("page_without_session_303", page).await;
}

/// The commands are run by a shell, as a reader runs them.
#[tokio::test]
async fn curl_examples_of_every_demo_model() {
    let gateway = TestGateway::start().await;
    let list = gateway.get("/api/models").without_key().send().await.json();
    for model in list["data"].as_array().unwrap() {
        let id = model["id"].as_str().unwrap();
        let page = gateway.get(&format!("/models/{id}")).without_key().send().await.text();
        let commands = examples(&page, "curl");
        let formats = match model["model_type"].as_str().unwrap() {
            "chat" => 4,
            "embedding" => 2,
            _ if id == "demo-image-native" => 2,
            _ => 1,
        };
        assert_eq!(commands.len(), formats, "{id}");
        assert_eq!(examples(&page, "python").len(), formats, "{id}");
        assert_eq!(examples(&page, "javascript").len(), formats, "{id}");
        for command in commands {
            let line = format!("{command} -s -o /dev/null -w '%{{http_code}}'");
            let mut shell = Command::new("sh");
            shell.args(["-c", &line]).env("PORTUNUS_KEY", &gateway.key);
            let output = tokio::task::spawn_blocking(move || shell.output()).await.unwrap();
            let status = String::from_utf8(output.unwrap().stdout).unwrap();
            assert_eq!(status, "200", "{id}: {command}");
        }
    }
}

/// Returns the examples of a page in that language, one per format.
fn examples(page: &str, language: &str) -> Vec<String> {
    let start = format!("<code id=\"{language}-");
    let blocks = page.split(start.as_str()).skip(1);
    let texts = blocks.filter_map(|block| block.split_once('>')?.1.split_once("</code>"));
    let plain = |text: &str| {
        let text = text.replace("&lt;", "<").replace("&gt;", ">");
        text.replace("&quot;", "\"").replace("&amp;", "&")
    };
    texts.map(|(text, _)| plain(text)).collect()
}

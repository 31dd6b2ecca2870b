//! Content and size of the pages, and escaping.

use http::{Method, StatusCode};
use store::AccountRole;

use crate::gateway::{ConsoleGateway, ODD, entry, escape};

#[tokio::test]
async fn front_page_shows_base_urls_of_served_formats() {
    let gateway = ConsoleGateway::new().await;
    let got = gateway.get("/").send().await;
    assert_eq!(got.status, StatusCode::OK);
    got.assert_contains("http://gw.example:8080/v1</code>");
    got.assert_contains("http://gw.example:8080</code>");
    got.assert_contains("Anthropic SDKs");
    got.assert_lacks("Google Gen AI");
    got.assert_contains("href=\"/models\"");
}

#[tokio::test]
async fn every_page_is_small() {
    let gateway = ConsoleGateway::new().await;
    let anna = gateway.account("anna", AccountRole::Owner).await;
    for n in 0..60 {
        let key = gateway.key_of(&anna, &format!("key{n:05}"), &"n".repeat(60)).await;
        let calls: Vec<_> = (0..4)
            .map(|m| entry(&key, &format!("r{n}-{m}"), "a/rather-long-model-id", 9))
            .collect();
        gateway.store.post(&calls).await.unwrap();
    }
    let cookie = gateway.sign_in("anna").await;
    let models: Vec<String> =
        catalog::ModelDirectory::embedded().models().map(|m| format!("/models/{}", m.id)).collect();
    let pages = [
        "/",
        "/models",
        "/models?page=2",
        "/login",
        "/console",
        "/console/keys/new",
        "/console/activity?by=key&range=90d",
        "/console/activity?what=latency",
        "/console/activity?status=failed&by=error",
        "/none",
    ];
    for path in pages.into_iter().chain(models.iter().map(String::as_str)) {
        let got = gateway.get(path).cookie(&cookie).send().await;
        assert!(got.body.len() < 100_000, "{path}: {}", got.body.len());
    }
    let console = gateway.get("/console").cookie(&cookie).send().await;
    console.assert_contains("240");
    console.assert_contains("<progress");
}

#[tokio::test]
async fn the_directory_is_searched_and_filtered() {
    let gateway = ConsoleGateway::new().await;
    let got = gateway.get("/models?q=demo-echo").send().await;
    got.assert_contains("href=\"/models/demo-echo\"");
    got.assert_lacks("href=\"/models/demo-chat\"");
    let got = gateway.get("/models?provider=demo&model_type=image").send().await;
    got.assert_contains("href=\"/models/demo-image\"");
    got.assert_lacks("href=\"/models/demo-chat\"");
    let got = gateway.get("/models?feature=embeddings&provider=demo").send().await;
    got.assert_contains("href=\"/models/demo-embed\"");
    gateway.get("/models?q=zzzzzz").send().await.assert_contains("No model fits");
    gateway
        .get("/models?page=99999")
        .send()
        .await
        .assert_contains("The list ends before this page");
    let next = gateway.get("/models?feature=tools&q=%20").send().await;
    next.assert_contains("/models?page=2&amp;feature=tools");
}

#[tokio::test]
async fn odd_searches_are_literal_or_rejected() {
    let gateway = ConsoleGateway::new().await;
    for query in [
        "page=0",
        "page=-1",
        "page=NaN",
        "page=99999999999999999999",
        "page=1&page=2",
        "page[]=1",
        "q=%25%25%25",
        "q='%20OR%201=1",
        "q=(a+)+%24",
        "sort=price;drop",
        "callback=alert",
        "%00=1",
        "q=%FF%FE",
        "q=🙂",
    ] {
        let query = query.replace('🙂', "%F0%9F%99%82");
        let got = gateway.get(&format!("/models?{query}")).send().await;
        assert_eq!(got.status, StatusCode::OK, "{query}");
    }
    let long = "q".repeat(201);
    for name in ["q", "provider", "model_type", "feature"] {
        let got = gateway.get(&format!("/models?{name}={long}")).send().await;
        assert_eq!(got.status, StatusCode::BAD_REQUEST);
        got.assert_lacks(&long);
    }
    let got = gateway.get("/models?q=%22%3E%3Cscript%3Ex%3C/script%3E").send().await;
    got.assert_lacks("<script>x");
    got.assert_contains("&lt;script&gt;x");
}

#[tokio::test]
async fn a_model_page_shows_facts_prices_and_examples() {
    let gateway = ConsoleGateway::new().await;
    let got = gateway.get("/models/demo-chat").send().await;
    assert_eq!(got.status, StatusCode::OK);
    for text in [
        "128,000 tokens",
        "per million tokens",
        "$0.10",
        "Budget 0 to 8,192 tokens",
        "http://gw.example:8080/v1/chat/completions",
        "http://gw.example:8080/v1/messages",
    ] {
        got.assert_contains(text);
    }
    got.assert_lacks("/v1beta/");
    got.assert_lacks("/v1/responses");
    got.assert_lacks("demo/demo-chat");
    assert_eq!(gateway.get("/models/demo-chatx").send().await.status, StatusCode::NOT_FOUND);
    assert_eq!(gateway.get("/models/Demo-Chat").send().await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_page_of_an_image_or_embedding_model_shows_capabilities_and_examples() {
    let gateway = ConsoleGateway::new().await;
    let image = gateway.get("/models/demo-image").send().await;
    for text in [
        "auto, 1024x1024, 1536x1024, 1024x1536, or any WIDTHxHEIGHT in steps of 16",
        "auto, low, medium, high",
        "png, jpeg, webp",
        "auto, opaque, transparent",
        "<dt>Images per call</dt><dd><bdi>up to 10</bdi></dd>",
        "<dt>Input images</dt><dd><bdi>up to 16</bdi></dd>",
        "<dt>Masks</dt><dd><bdi>yes</bdi></dd>",
        "low 272, medium 1,056, high 4,160",
        "http://gw.example:8080/v1/images/generations",
        "id=\"python-images\"",
        "id=\"javascript-images\"",
    ] {
        image.assert_contains(text);
    }
    image.assert_lacks("/v1/chat/completions");
    let native = gateway.get("/models/demo-image-native").send().await;
    native.assert_contains("1:1, 2:3, 3:2");
    let embedding = gateway.get("/models/demo-embed").send().await;
    embedding.assert_contains("http://gw.example:8080/v1/embeddings");
    embedding.assert_contains("client.embeddings.create");
    let directory = catalog::ModelDirectory::embedded();
    let retiring = directory.models().find(|model| model.retires.is_some()).unwrap();
    let page = gateway.get(&format!("/models/{}", retiring.id)).send().await;
    page.assert_contains(&format!(
        "<dt>Retires</dt><dd><bdi>{}",
        retiring.retires.as_deref().unwrap()
    ));
}

#[tokio::test]
async fn a_page_of_an_alias_is_that_of_its_model() {
    let gateway = ConsoleGateway::new().await;
    let directory = catalog::ModelDirectory::embedded();
    let model = directory.models().find(|model| !model.aliases.is_empty()).unwrap();
    let page = gateway.get(&format!("/models/{}", model.aliases[0])).send().await;
    page.assert_contains(&format!("<bdi id=\"model-id\">{}</bdi>", model.id));
    page.assert_contains(&format!("<dt>Also called</dt><dd><bdi>{}", model.aliases.join(", ")));
}

#[tokio::test]
async fn odd_model_ids_are_escaped_on_every_page() {
    let gateway = ConsoleGateway::new().await;
    let page = format!("/models/{}", escape(ODD));
    for path in ["/models?q=acme", page.as_str()] {
        let got = gateway.get(path).send().await;
        assert_eq!(got.status, StatusCode::OK, "{path}");
        got.assert_contains("&lt;script&gt;alert(1)&lt;/script&gt;");
        for bad in ["<script>alert", "<b>acme", "<img", "secret-upstream"] {
            got.assert_lacks(bad);
        }
    }
    let list = gateway.get("/models?q=acme").send().await;
    list.assert_contains("href=\"/models/acme/%3Cscript%3Ealert%281%29%3C/script%3E%27%22%26:x\"");
}

#[tokio::test]
async fn assets_are_cached_without_limit() {
    let gateway = ConsoleGateway::new().await;
    let page = gateway.get("/").send().await;
    let mut found = 0;
    for part in page.body.split('"').filter(|part| part.starts_with("/assets/")) {
        found += 1;
        let got = gateway.get(part).send().await;
        assert_eq!(got.status, StatusCode::OK, "{part}");
        assert_eq!(got.header("cache-control"), "public, max-age=31536000, immutable");
        assert!(got.header("content-type").starts_with("text/"));
        got.assert_lacks("http://");
        got.assert_lacks("https://");
        got.assert_lacks("@import");
    }
    assert_eq!(found, 2);
    let stale = gateway.get("/assets/console-0000000000000000.css").send().await;
    assert_eq!(stale.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn pages_load_nothing_from_other_sites() {
    let gateway = ConsoleGateway::new().await;
    gateway.account("anna", AccountRole::Owner).await;
    let cookie = gateway.sign_in("anna").await;
    for path in ["/", "/models", "/models/demo-chat", "/login", "/console", "/console/keys/new"] {
        let got = gateway.get(path).cookie(&cookie).send().await;
        for part in got.body.split(['"']) {
            let outside =
                part.starts_with("http:") || part.starts_with("https:") || part.starts_with("//");
            assert!(!outside, "{path}: {part}");
        }
        assert_eq!(
            got.body.matches("<script").count(),
            got.body.matches("<script src=\"/assets/").count()
        );
    }
}

#[tokio::test]
async fn new_account_sees_its_first_steps() {
    let gateway = ConsoleGateway::new().await;
    gateway.account("anna", AccountRole::Member).await;
    let cookie = gateway.sign_in("anna").await;
    let got = gateway.get("/console").cookie(&cookie).send().await;
    got.assert_contains("No keys yet");
    got.assert_contains("No calls yet");
    got.assert_contains("href=\"/console/keys/new\"");
}

#[tokio::test]
async fn get_requests_change_nothing() {
    let gateway = ConsoleGateway::new().await;
    let anna = gateway.account("anna", AccountRole::Owner).await;
    let key = gateway.key_of(&anna, "abc", "website").await;
    gateway.store.put_setting("setup_token", "word").await.unwrap();
    let cookie = gateway.sign_in("anna").await;
    let audits = gateway.store.audits(99).await.unwrap();
    for route in console::routes().iter().filter(|route| route.method == Method::GET) {
        let path = route
            .path
            .replace("{token}", "word")
            .replace("{id}", "abc")
            .replace("{*id}", "demo-chat");
        for method in [Method::GET, Method::HEAD, Method::OPTIONS] {
            let got = gateway.ask(method.clone(), &path).cookie(&cookie).send().await;
            assert!(method != Method::HEAD || got.body.is_empty());
        }
    }
    assert_eq!(gateway.store.key("abc").await.unwrap(), Some(key));
    assert_eq!(gateway.store.audits(99).await.unwrap(), audits);
    assert_eq!(gateway.store.setting("setup_token").await.unwrap().as_deref(), Some("word"));
}

#[tokio::test]
async fn models_are_filtered_by_input_price() {
    let gateway = ConsoleGateway::new().await;
    let all = gateway.get("/models").send().await.body;
    let tally = |body: &str| -> usize {
        let before = body.split(" models").next().unwrap_or_default();
        before.rsplit('>').next().unwrap_or_default().trim().parse().unwrap_or_default()
    };
    let few = gateway.get("/models?price=0.25").send().await.body;
    assert!(few.contains("<option value=\"0.25\" selected>Up to $0.25</option>"), "{few}");
    assert!(tally(&few) > 1 && tally(&few) < tally(&all), "{} {}", tally(&few), tally(&all));
    assert!(few.contains("page=2&amp;price=0.25"), "the next page is of the same choice");
    let odd = gateway.get("/models?price=cheap").send().await.body;
    assert_eq!(tally(&odd), tally(&all));
}

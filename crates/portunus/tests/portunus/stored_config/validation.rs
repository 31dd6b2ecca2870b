//! Refusals name the field, and what the file defines cannot be changed over the API.

use super::*;

#[tokio::test]
async fn invalid_settings_are_refused_by_field_and_change_nothing() {
    let provider = good().await;
    let gateway = TestGateway::with_config(OPEN).await;
    furnish(&gateway, &provider.url).await;
    let before = get(&gateway, "/providers").await;
    let url = provider.url.as_str();
    let house = |field: &str, value: Value| {
        let mut body = json!({ "speaks": "chat", "base": url });
        body[field] = value;
        body
    };
    let key = |value: &str| json!({ "name": "k", "value": value });
    let long = "k".repeat(10 << 10);
    let (put, post) = (Method::PUT, Method::POST);
    let keys = "/providers/house/credentials";
    for (method, path, body, field) in [
        (&put, "/providers/house", house("base", json!("nowhere")), "base"),
        (&put, "/providers/house", house("base", json!("http://10.1.2.3/")), "base"),
        (&put, "/providers/house", house("base", json!("http://169.254.169.254")), "base"),
        (&put, "/providers/house", house("base", json!("http://localhost:1")), "base"),
        (&put, "/providers/house", house("base", json!("http://example.com")), "base"),
        (&put, "/providers/house", house("base", json!("https://u:p@example.com")), "base"),
        (&put, "/providers/house", house("base", json!("https://example.com/?q")), "base"),
        (&put, "/providers/house", house("base", json!("https://example.com/#f")), "base"),
        (&put, "/providers/house", house("base", json!("https://example.com./")), "base"),
        (&put, "/providers/house", house("base", json!("https://example.com:0/")), "base"),
        (&put, "/providers/house", house("base", json!("https://a\r\nb/")), "base"),
        (&put, "/providers/house", house("like", json!("opnai")), "like"),
        (&put, "/providers/house", house("speaks", json!(["latin"])), "speaks"),
        (&put, "/providers/house", house("max_in_flight", json!(0)), "max_in_flight"),
        (&put, "/providers/house", house("objects", json!("all")), "objects"),
        (&put, "/providers/house", house("max_in_flight", json!(-1)), "max_in_flight"),
        (&put, "/providers/house", house("max_in_flight", json!(10_u64.pow(12))), "max_in_flight"),
        (
            &put,
            "/providers/house",
            house("timeouts", json!({ "gap": "1000000000000s" })),
            "timeouts.gap",
        ),
        (&put, "/providers/house", house("timeouts", json!({ "total": "0s" })), "timeouts.total"),
        (&put, "/providers/house", house("timeouts", json!({ "gap": "soon" })), "timeouts.gap"),
        (&put, "/providers/house", house("auth", json!({ "bearer": "x" })), "auth"),
        (&put, "/providers/house", house("bsae", json!("x")), "bsae"),
        (&put, "/providers/house", house("credentials", json!("x")), "credentials"),
        (&put, "/providers/House", house("speaks", json!("chat")), "id"),
        (&put, "/providers/a%2Fb", house("speaks", json!("chat")), "id"),
        (&put, "/providers/..", house("speaks", json!("chat")), "id"),
        (&post, keys, key(""), "value"),
        (&post, keys, key("two words"), "value"),
        (&post, keys, key("two\nlines"), "value"),
        (&post, keys, key("schlüssel"), "value"),
        (&post, keys, key(&long), "value"),
        (&post, keys, json!({ "name": "k", "value": { "env": "HOME" } }), "value"),
        (&post, keys, json!({ "value": "k" }), "name"),
        (&post, keys, json!({ "name": "k" }), "value"),
        (
            &post,
            keys,
            json!({ "name": "k", "auth": { "bearer": { "file": "/etc/passwd" } } }),
            "auth.bearer",
        ),
        (&post, keys, json!({ "name": "k", "auth": { "google": "adc" } }), "auth.google"),
        (
            &post,
            keys,
            json!({ "name": "k", "auth": { "google": { "token_uri": "http://169.254.169.254/" } } }),
            "auth.google.token_uri",
        ),
        (&post, keys, json!({ "name": "k", "auth": { "magic": "x" } }), "auth"),
        (
            &post,
            keys,
            json!({ "name": "k", "auth": { "sigv4": { "region": "x" } } }),
            "auth.sigv4.access_key",
        ),
        // The identity of the machine belongs to the operator.
        (&post, keys, json!({ "name": "k", "auth": { "sigv4": "default" } }), "auth.sigv4"),
        (
            &post,
            keys,
            json!({ "name": "k", "auth": { "sigv4": { "region": "x", "from": "instance" } } }),
            "auth.sigv4.from",
        ),
        (
            &post,
            keys,
            json!({ "name": "k", "auth": { "entra": "managed-identity" } }),
            "auth.entra",
        ),
        (
            &post,
            keys,
            json!({ "name": "k", "auth": { "entra": { "from": "default" } } }),
            "auth.entra.from",
        ),
        (
            &post,
            keys,
            json!({ "name": "k", "auth": { "entra": { "tenant": "t", "client_id": "c",
                    "token_file": "/etc/passwd" } } }),
            "auth.entra.token_file",
        ),
        (
            &post,
            keys,
            json!({ "name": "k", "auth": { "entra": { "tenant": "t", "client_id": "c",
                    "client_secret": "s", "authority": "https://evil.example" } } }),
            "auth.entra.authority",
        ),
        (
            &post,
            keys,
            json!({ "name": "k", "auth": { "entra": { "tenant": "a/b", "client_id": "c",
                    "client_secret": "s" } } }),
            "auth.entra.tenant",
        ),
        (&post, keys, json!({ "name": "k", "auth": { "google": "metadata" } }), "auth.google"),
        (
            &post,
            keys,
            json!({ "name": "k", "auth": { "google": { "type": "external_account", "audience": "a",
                    "subject_token_type": "t", "credential_source": { "file": "/etc/passwd" } } } }),
            "auth.google",
        ),
        (&put, "/models/m", json!({}), "lanes"),
        (&put, "/models/m", json!({ "lanes": ["hose/up"] }), "lanes"),
        (&put, "/models/m", json!({ "lanes": ["house/up", "hose/up"] }), "lanes"),
        (&put, "/models/m", json!({ "lanes": [{ "lane": "house/up", "weight": 0 }] }), "lanes"),
        (&put, "/models/m", json!({ "lanes": [{ "lane": "house/up", "weight": -1 }] }), "lanes"),
        (&put, "/models/m", json!({ "lanes": ["house/up"], "kind": "poem" }), "kind"),
        (&put, "/models/m", json!({ "lanes": ["house/up"], "price": { "input": "-1" } }), "price"),
        (&put, "/models/m", json!({ "lanes": ["house/up"], "price": { "input": "NaN" } }), "price"),
        (&put, "/models/m", json!({ "lanes": ["house/up"], "fallback": ["m"] }), "fallback"),
        (&put, "/models/m", json!({ "lanes": ["house/up"], "fallback": ["gone"] }), "fallback"),
        (&put, "/models/m", json!({ "lanes": ["house/up"], "aliases": ["demo-chat"] }), "aliases"),
        (&put, "/models/m", json!({ "lanes": ["house/up"], "prize": {} }), "prize"),
        (&put, "/models/M", json!({ "lanes": ["house/up"] }), "id"),
        (&put, "/models/a%20b", json!({ "lanes": ["house/up"] }), "id"),
        (&put, "/models/a/../b", json!({ "lanes": ["house/up"] }), "id"),
    ] {
        let got = admin(&gateway, method.clone(), path, body.clone()).await;
        assert_eq!(got.status, 400, "{path} {body}: {}", got.text());
        let text = got.json().to_string();
        assert!(text.contains(&format!("`{field}")), "{path} {body}: {text}");
    }
    assert_eq!(
        get(&gateway, "/providers").await["data"][1]["settings"],
        before["data"][1]["settings"]
    );
    assert_eq!(gateway.post(CHAT, &hello("m")).send().await.status, 200);
}

#[tokio::test]
async fn private_addresses_are_for_the_operator_to_allow() {
    let provider = good().await;
    let gateway = TestGateway::start().await;
    let body = json!({ "speaks": "chat", "base": provider.url });
    let got = admin(&gateway, Method::PUT, "/providers/house", body.clone()).await;
    assert_eq!(got.status, 400, "{}", got.text());
    assert!(got.text().contains("allow") && got.text().contains("outbound"), "{}", got.text());
    gateway.reload(OPEN);
    assert_eq!(admin(&gateway, Method::PUT, "/providers/house", body).await.status, 201);
}

#[tokio::test]
async fn the_file_wins_and_what_does_not_fit_it_is_left_out_and_told() {
    let (own, theirs) = (good().await, good().await);
    let gateway = TestGateway::with_config(OPEN).await;
    furnish(&gateway, &theirs.url).await;
    put(&gateway, "/models/n", json!({ "lanes": ["house/up"] })).await;
    let file = format!(
        "{OPEN}[providers.house]\nspeaks = \"chat\"\nbase = \"{}\"\nauth = \"none\"\n\
         [models.m]\nlanes = [\"house/other\"]\n",
        own.url
    );
    gateway.reload(&file);
    let told = get(&gateway, "/providers/house").await;
    assert_eq!((&told["source"], &told["base"]), (&json!("file"), &json!(own.url)));
    assert!(told["trouble"].as_str().unwrap().contains("configuration file"), "{told}");
    assert_eq!(told["credentials"], json!([]));
    for model in ["m", "n"] {
        assert_eq!(gateway.post(CHAT, &hello(model)).send().await.status, 200);
    }
    assert_eq!((shown(&own), theirs.requests().len()), (vec![String::new(); 2], 0));
    let body = json!({ "speaks": "chat", "base": theirs.url });
    for (method, path) in [
        (Method::PUT, "/providers/house"),
        (Method::POST, "/providers/house/credentials"),
        (Method::PUT, "/models/m"),
        (Method::PUT, "/providers/demo"),
        (Method::DELETE, "/models/demo-chat"),
    ] {
        let got = admin(&gateway, method, path, body.clone()).await;
        assert_eq!(got.status, 400, "{path}: {}", got.text());
    }
    // When the file no longer defines it, it can be changed again.
    gateway.reload(OPEN);
    assert_eq!(get(&gateway, "/providers/house").await["trouble"], Value::Null);
    assert_eq!(gateway.post(CHAT, &hello("m")).send().await.status, 200);
    assert_eq!(shown(&theirs), [SECRET]);
}

#[tokio::test]
async fn moving_a_provider_from_the_environment_does_not_move_its_credential() {
    let provider = good().await;
    let (file, listen_address) = (None, Some("127.0.0.1:0".to_owned()));
    let gateway = TestGateway::with_config(OPEN).await;
    let data_folder = gateway.data_folder().to_owned();
    let given = config::LoadOptions { file, listen_address, data_folder };
    let env = |name: &str| (name == "OPENAI_API_KEY").then(|| "sk-of-the-environment".to_owned());
    let config = config::Config::parse(OPEN, std::path::Path::new("t"), &given, &env).unwrap();
    gateway.app.reconfigure(config);
    assert_eq!(get(&gateway, "/providers/openai").await["source"], "environment");
    let told = put(&gateway, "/providers/openai", json!({ "max_in_flight": 3 })).await;
    assert_eq!((&told["source"], &told["trouble"]), (&json!("stored"), &Value::Null));
    assert_eq!(told["credentials"][0]["source"], "environment");
    let told = put(&gateway, "/providers/openai", json!({ "base": provider.url })).await;
    assert_eq!(told["trouble"], "it has no credential yet");
    let checked = admin(&gateway, Method::POST, "/providers/openai/check", json!({})).await;
    assert_eq!(checked.status, 200, "{}", checked.text());
    assert_eq!(provider.requests().len(), 0);
    let gone = admin(&gateway, Method::DELETE, "/providers/openai", Value::Null).await;
    assert_eq!(gone.status, 200, "{}", gone.text());
    assert_eq!(get(&gateway, "/providers/openai").await["source"], "environment");
}

//! The configuration: what is accepted, and how what is not is refused.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops where its ground gives way"
)]

use portunus::config::{Config, Given};
use std::path::{Path, PathBuf};

fn read(text: &str, env: &[(&str, &str)]) -> Result<Config, String> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let given = Given { file: None, listen: None, data: PathBuf::from("data") };
    let find = |name: &str| env.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
    Config::read(text, Path::new("p.toml"), &given, &find).map_err(|e| e.to_string())
}

#[test]
fn the_documented_example_is_good() {
    let text = include_str!("../../../config/portunus.toml");
    let config = read(text, &[]).unwrap();
    let route = &config.routes["claude-x"];
    assert_eq!(route.lanes[0].name, "acme/claude-x-2026");
    assert_eq!(route.lanes[1].timeouts.first_byte.as_secs(), 20);
    assert_eq!(config.routes["house/small"].lanes[0].timeouts.total.as_secs(), 120);
    assert_eq!(config.catalog.get("house/small").unwrap().max_output, Some(8192));
    assert!(config.catalog.get("demo-chat").is_some());
}

#[test]
fn nothing_configured_serves_the_demo_models_alone() {
    let config = read("", &[]).unwrap();
    assert!(config.catalog.iter().all(|model| model.provider == "demo"));
    assert_eq!(config.public_url, "http://127.0.0.1:8080");
    assert!(read("[server]\ndemo = false", &[]).unwrap().catalog.is_empty());
}

#[test]
fn a_providers_usual_variable_alone_switches_it_on() {
    let config = read("", &[("OPENAI_API_KEY", "sk-test")]).unwrap();
    assert!(config.catalog.iter().any(|model| model.provider == "openai"));
    assert!(!format!("{config:?}").contains("sk-test"), "a secret is never printed");
    let config = read("[shared]\nvalkey = \"redis://:secret-word@h\"", &[]).unwrap();
    assert!(!format!("{config:?}").contains("secret-word"), "nor is this one");
}

#[test]
fn variables_override_the_file() {
    let env = [("PORTUNUS_SERVER_LISTEN", "127.0.0.1:9"), ("PORTUNUS_LIMITS_BODY", "1MiB")];
    let config = read("[server]\nlisten = \"127.0.0.1:8\"", &env).unwrap();
    assert_eq!((config.listen.port(), config.body_limit), (9, 1 << 20));
}

#[test]
fn what_is_wrong_is_named_with_a_remedy() {
    let cases = [
        ("[server]\nlisen = \"x\"", "p.toml:2: unknown field `lisen`", "did you mean `listen`?"),
        ("[servr]\n", "unknown field `servr`", "did you mean `server`?"),
        ("[server]\nlisten = \"nowhere\"", "server.listen", "127.0.0.1:8080"),
        ("[server]\ntrusted_proxies = [\"10.0.0.0/40\"]", "server.trusted_proxies", "10.0.0.0/8"),
        ("[shared]\nvalkey = \"nowhere\"", "shared.valkey", "redis://127.0.0.1:6379"),
        (
            "[shared]\nvalkey = \"redis://h\"\npatience = \"soon\"",
            "shared.patience",
            "write for instance",
        ),
        ("[server]\nlisten = 5", "p.toml:2", "string"),
        ("[server]\npublic_url = \"ftp://x\"", "server.public_url", "http"),
        ("[server]\ndurability = \"maybe\"", "server.durability", "power"),
        ("[timeouts]\ngap = \"5\"", "timeouts.gap", "60s"),
        ("[timeouts]\ngap = \"0s\"", "timeouts.gap", "longer"),
        ("[limits]\nbody = \"big\"", "limits.body", "32MiB"),
        ("[providers.p]\nbase = \"http://x\"", "providers.p.speaks", "chat"),
        (
            "[providers.p]\nspeaks = \"caht\"\nbase = \"http://x\"",
            "providers.p.speaks",
            "\"chat\"?",
        ),
        ("[providers.p]\nspeaks = \"chat\"", "providers.p.base", "/v1/"),
        ("[providers.p]\nspeaks = \"chat\"\nbase = \"x\"", "providers.p.base", "http"),
        (
            "[providers.p]\nspeaks = \"chat\"\nbase = \"http://x\"\nauth = { bearer = { env = \"NO_KEY\" } }",
            "providers.p.auth",
            "export NO_KEY=…",
        ),
        ("[providers.p]\nspeaks = \"chat\"\nbase = \"http://x\"\nauth = \"some\"", "auth", "none"),
        ("[models.m]\n", "models.\"m\".lanes", "provider/model"),
        ("[models.m]\nlanes = [\"nope/x\"]", "no provider `nope`", "[providers.nope]"),
        ("[models.m]\nlanes = [\"demoo/x\"]", "no provider `demoo`", "did you mean `demo`?"),
        ("[models.m]\nlanes = [\"x\"]", "models.\"m\".lanes", "x"),
        ("[models.m]\nlanes = [\"demo/x\"]\nkind = \"film\"", "models.\"m\".kind", "image"),
        (
            "[models.m]\nlanes = [\"demo/x\"]\nprice = { input = \"cheap\" }",
            "models.\"m\".price",
            "cheap",
        ),
    ];
    for (text, cause, remedy) in cases {
        let error = read(text, &[]).expect_err(text);
        assert!(error.contains(cause) && error.contains(remedy), "{text}\n→ {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

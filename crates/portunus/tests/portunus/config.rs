//! The configuration: accepted forms, and the errors of refused ones.

use config::{Config, LoadOptions};
use std::path::{Path, PathBuf};

pub(crate) fn read(text: &str, env: &[(&str, &str)]) -> Result<Config, String> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let given =
        LoadOptions { file: None, listen_address: None, data_folder: PathBuf::from("data") };
    let find = |name: &str| env.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
    Config::parse(text, Path::new("p.toml"), &given, &find).map_err(|e| e.to_string())
}

#[test]
fn the_documented_example_is_good() {
    let text = include_str!("../../../../config/portunus.toml");
    let config = read(text, &[]).unwrap();
    let route = &config.routes["claude-x"];
    assert_eq!(route.lanes[0].name, "acme/claude-x-2026");
    assert_eq!(route.lanes[1].timeouts.first_byte.as_secs(), 20);
    assert_eq!(config.routes["house/small"].lanes[0].timeouts.total.as_secs(), 120);
    assert_eq!(
        config.catalog.get("house/small").unwrap().capabilities.max_output_tokens,
        Some(8192)
    );
    assert!(config.catalog.get("demo-chat").is_some());
    let small = &config.routes["house/small"];
    let runs: Vec<_> = small.lanes.iter().map(|lane| (lane.priority, lane.weight)).collect();
    assert_eq!(runs, [(0, 3), (0, 1), (1, 1), (2, 1), (3, 1)], "two share, one follows, fallbacks");
    assert!(std::sync::Arc::ptr_eq(small, &config.routes["small-latest"]));
    assert_eq!(small.prices.len(), 3, "every price the call may be charged by");
    assert_eq!(route.lanes[0].slots.len(), 2, "one for each credential");
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
    assert_eq!((config.listen_address.port(), config.max_body_bytes), (9, 1 << 20));
}

#[test]
fn a_base_that_ends_with_the_version_of_the_paths_is_warned_of() {
    let provider = |settings: &str| {
        let text = format!("[providers.p]\nauth = \"none\"\n{settings}");
        read(&text, &[]).unwrap().warnings
    };
    for (speaks, base) in
        [("chat", "http://x/v1"), ("messages", "http://x/a/v1/"), ("native", "http://x/v1beta")]
    {
        let warnings = provider(&format!("speaks = \"{speaks}\"\nbase = \"{base}\""));
        let [warning] = &warnings[..] else { panic!("{base}: {warnings:?}") };
        assert!(warning.contains("providers.p.base"), "{warning}");
        let (front, _) = base.trim_end_matches('/').rsplit_once('/').unwrap();
        assert!(warning.ends_with(&format!("write `{front}`")), "{warning}");
    }
    for (speaks, base, more) in [
        ("chat", "http://x", ""),
        ("chat", "http://x/v1beta", ""),
        ("native", "http://x/v1", ""),
        ("chat", "http://v1", ""),
        ("chat", "http://x/v1", "paths = { chat = \"/chat/completions\" }"),
    ] {
        let settings = format!("speaks = \"{speaks}\"\nbase = \"{base}\"\n{more}");
        assert_eq!(provider(&settings), Vec::<String>::new(), "{settings}");
    }
}

#[test]
fn nodes_compare_what_they_should_share() {
    let sections = |text: &str| read(text, &[]).unwrap().sections;
    let base = sections("[limits]\nbody = \"1MiB\"");
    let own =
        "[server]\nlisten = \"127.0.0.1:9\"\nmetrics = \"127.0.0.1:8\"\n[limits]\nbody = \"1MiB\"";
    assert_eq!(sections(own), base, "addresses are a node's own");
    let other = sections("[limits]\nbody = \"2MiB\"");
    let differ: Vec<_> = base.iter().filter(|(name, sum)| other[*name] != **sum).collect();
    assert_eq!(differ.iter().map(|(name, _)| **name).collect::<Vec<_>>(), ["limits"]);
    let by_variable = read("", &[("PORTUNUS_LIMITS_BODY", "1MiB")]).unwrap().sections;
    assert_eq!(by_variable, base, "a variable is as good as the file");
}

#[test]
fn configuration_errors_name_the_field_and_a_remedy() {
    let cases = [
        ("[server]\nlisen = \"x\"", "p.toml:2: unknown field `lisen`", "did you mean `listen`?"),
        ("[servr]\n", "unknown field `servr`", "did you mean `server`?"),
        ("[server]\nlisten = \"nowhere\"", "server.listen", "127.0.0.1:8080"),
        ("[server]\ntrusted_proxies = [\"10.0.0.0/40\"]", "server.trusted_proxies", "10.0.0.0/8"),
        ("[telemetry]\naudit = true", "telemetry.audit", "needs a collector"),
        ("[shared]\nvalkey = \"nowhere\"", "shared.valkey", "redis://127.0.0.1:6379"),
        (
            "[shared]\nvalkey = \"redis://h\"\npatience = \"soon\"",
            "shared.patience",
            "write for instance",
        ),
        ("[server]\nlisten = 5", "p.toml:2", "string"),
        ("[server]\npublic_url = \"ftp://x\"", "server.public_url", "http"),
        ("[server]\ndurability = \"maybe\"", "server.durability", "power"),
        ("[store]\nurl = \"mysql://u:hush@h/d\"", "store.url: `mysql://`", "postgres://"),
        ("[store]\nurl = \"portunus.db\"", "store.url", "sqlite:PATH"),
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
        ("[outbound]\nproxy = \"socks4://x:1\"", "outbound.proxy", "http://proxy.example.com:3128"),
        ("[outbound]\nca = \"no/such/file.pem\"", "outbound.ca", "no/such/file.pem"),
        ("[outbound]\nca = \"Cargo.toml\"", "outbound.ca", "no certificate"),
        ("[media]\nallow = [\"http://x\"]", "media.allow", "\"10.0.0.0/8\""),
        ("[media]\nsize = \"big\"", "media.size", "32MiB"),
        ("[media]\ntime = \"soon\"", "media.time", "60s"),
        (
            "[providers.p]\nspeaks = \"chat\"\nbase = \"http://x\"\nfetches = \"some\"",
            "providers.p.fetches",
            "\"nothing\"",
        ),
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
    let lanes = [
        ("lanes = [{ lane = \"demo/x\", weight = 0 }]", ".lanes", "at least 1"),
        ("lanes = [{ lane = \"demo/x\", wieght = 2 }]", "p.toml:2", "weight = 1"),
        ("lanes = [{ lane = \"demo/x\", price = { input = \"x\" } }]", ".price", "input"),
        ("lanes = [\"demo/x\"]\nfallback = [\"demo-caht\"]", ".fallback", "`demo-chat`?"),
        ("lanes = [\"demo/x\"]\nfallback = [\"m\"]", ".fallback", "cannot be a fallback"),
        ("lanes = [\"demo/x\"]\nfallback = [\"demo-embed\"]", ".fallback", "cannot be a fallback"),
        ("lanes = [\"demo/x\"]\naliases = [\"demo-chat\"]", ".aliases", "taken"),
        ("lanes = [\"demo/x\"]\norder = \"best\"", ".order", "cheapest"),
        ("lanes = [\"demo/x\"]\ntimeouts = { connect = \"1h\" }", "connect", "provider `demo`"),
    ];
    let lanes = lanes.map(|(text, cause, remedy)| (format!("[models.m]\n{text}"), cause, remedy));
    let more = [
        ("[limits]\nrunning = 0", "limits.running", "at least"),
        ("[limits]\nmoney_wait = \"2m\"", "limits.money_wait", "60s"),
        ("[limits]\nmoney_wait = \"long\"", "limits.money_wait", "long"),
        ("[limits]\ngoodwill = \"much\"", "limits.goodwill", "much"),
        ("[limits]\ngoodwill = \"-1\"", "limits.goodwill", "negative"),
        (
            "[providers.p]\nspeaks = \"chat\"\nbase = \"http://x\"\nauth = []",
            ".auth",
            "no credential",
        ),
    ];
    let more = cases.iter().chain(&more).map(|(text, a, b)| ((*text).to_owned(), *a, *b));
    for (text, cause, remedy) in more.chain(lanes) {
        let text = text.as_str();
        let error = read(text, &[]).expect_err(text);
        assert!(error.contains(cause) && error.contains(remedy), "{text}\n→ {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn proxies_of_the_environment_count_unless_the_file_says_otherwise() {
    let bad = [("https_proxy", "socks5://u:hushhush@x")];
    let error = read("", &bad).unwrap_err();
    assert!(error.contains("HTTPS_PROXY") && !error.contains("hushhush"), "{error}");
    assert!(read("[outbound]\nproxy = \"none\"", &bad).is_ok());
    assert!(read("[outbound]\nproxy = \"http://u:p@proxy:3128\"", &bad).is_ok());
    let good = [("ALL_PROXY", "http://u:hushhush@proxy:3128"), ("NO_PROXY", "corp.example.com")];
    let config = read("", &good).unwrap();
    assert!(!format!("{config:?}").contains("hushhush"), "a secret is never printed");
    assert!(read("", &[("HTTPS_PROXY", " ")]).is_ok());
    let error = read("", &[("SSL_CERT_FILE", "no/such/file.pem")]).unwrap_err();
    assert!(error.contains("SSL_CERT_FILE") && error.contains("no/such/file.pem"), "{error}");
}

#[test]
fn media_is_fetched_for_those_the_directory_or_the_file_names() {
    use catalog::MediaFetch;
    let text = "[providers.p]\nspeaks = \"chat\"\nbase = \"http://x\"\nfetches = \"typed\"";
    let media = read(text, &[]).unwrap().media;
    assert!(media.is_fetch_enabled);
    assert_eq!(media.provider_fetch("p"), MediaFetch::Typed);
    assert_eq!(media.provider_fetch("gemini"), MediaFetch::Typed);
    assert_eq!(media.provider_fetch("ollama"), MediaFetch::Nothing);
    assert_eq!(media.provider_fetch("openai"), MediaFetch::All);
    let limits = *media.fetcher.limits();
    assert_eq!((limits.max_bytes, limits.timeout.as_secs()), (20 << 20, 10));
    let env = [("PORTUNUS_MEDIA_FETCH", "false"), ("PORTUNUS_MEDIA_SIZE", "1MiB")];
    let media = read("", &env).unwrap().media;
    assert_eq!((media.is_fetch_enabled, media.fetcher.limits().max_bytes), (false, 1 << 20));
}

#[test]
fn providers_in_private_networks_fetch_nothing_unless_told_to() {
    use catalog::MediaFetch;
    for (base, fetches) in [
        ("http://10.0.0.5:8000", MediaFetch::Nothing),
        ("http://[fd00::5]:8000", MediaFetch::Nothing),
        ("https://100.64.0.1", MediaFetch::Nothing),
        ("http://gpu.cluster.internal", MediaFetch::Nothing),
        ("http://vllm:8000", MediaFetch::Nothing),
        ("https://models.example.com", MediaFetch::All),
        ("https://8.8.8.8", MediaFetch::All),
    ] {
        let own = format!("[providers.p]\nspeaks = \"chat\"\nbase = \"{base}\"\nauth = \"none\"");
        assert_eq!(read(&own, &[]).unwrap().media.provider_fetch("p"), fetches, "{base}");
        let like = format!("[providers.p]\nlike = \"openai\"\nbase = \"{base}\"\nauth = \"none\"");
        assert_eq!(read(&like, &[]).unwrap().media.provider_fetch("p"), fetches, "{base}");
        let told = format!("{own}\nfetches = \"all\"");
        assert_eq!(read(&told, &[]).unwrap().media.provider_fetch("p"), MediaFetch::All, "{base}");
    }
    assert_eq!(read("", &[]).unwrap().media.provider_fetch("demo"), MediaFetch::All);
}

#[test]
fn a_warning_about_a_base_has_no_password() {
    for end in ["/v1", "/v1/chat/completions"] {
        let base = format!("https://user:secret-word@api.example.com{end}");
        let text = format!("[providers.mine]\nspeaks = \"chat\"\nbase = \"{base}\"\n");
        let warnings = read(&text, &[]).unwrap().warnings.join(" ");
        assert!(warnings.contains("https://api.example.com/v1"), "{warnings}");
        assert!(!warnings.contains("secret-word"), "{warnings}");
        let refused = read(&text.replace(end, "/v1?key=secret-word"), &[]).unwrap_err();
        assert!(refused.contains("query") && !refused.contains("secret-word"), "{refused}");
    }
}

#[test]
fn two_sections_with_one_issuer_are_refused() {
    let section = |name: &str, issuer: &str| {
        format!(
            "[identity.{name}]\nissuer = \"{issuer}\"\nclient_id = \"x\"\nclient_secret = {{ text = \"x\" }}\n"
        )
    };
    let (one, other) = ("https://id.example.com", "https://other.example.com");
    let refused = read(&(section("corp", one) + &section("staff", one)), &[]).unwrap_err();
    assert!(
        refused.contains("identity.staff.issuer") && refused.contains("identity.corp"),
        "{refused}"
    );
    let config = read(&(section("corp", one) + &section("staff", other)), &[]).unwrap();
    assert_eq!(config.identity_providers.len(), 2);
}

#[test]
fn mail_and_identity_providers_are_checked_at_the_start() {
    let good = r#"
        [mail]
        url = "smtps://user:secret-word@mail.example.com"
        from = "Portunus <no-reply@example.com>"
        [identity.corp]
        issuer = "https://id.example.com"
        client_id = "portunus"
        client_secret = { env = "CORP_SECRET" }
        admits = "viewer"
    "#;
    let config = read(good, &[("CORP_SECRET", "secret-word")]).unwrap();
    assert!(config.mailer.is_some() && config.warnings.is_empty(), "{:?}", config.warnings);
    assert_eq!(config.identity_providers[0].default_role, Some(store::AccountRole::Viewer));
    assert!(!format!("{config:?}").contains("secret-word"), "a secret is never printed");
    let cases: [(&str, &str, &str); 7] = [
        ("smtps://user", "http://user", "mail.url"),
        ("no-reply@example.com>", "no-reply@example.com>\\r\\nBcc: eve@evil.example", "mail.from"),
        ("https://id.example.com", "id.example.com", "identity.corp.issuer"),
        ("https://id.example.com", "https://id.example.com?x=1", "identity.corp.issuer"),
        ("\"viewer\"", "\"owner\"", "identity.corp.admits"),
        ("\"portunus\"", "\"\"", "identity.corp.client_id"),
        ("[identity.corp]", "[identity.\"../x\"]", "identity.../x"),
    ];
    for (from, to, field) in cases {
        let wrong = read(&good.replace(from, to), &[("CORP_SECRET", "secret-word")]).unwrap_err();
        assert!(wrong.contains(field) && !wrong.contains("secret-word"), "{field}: {wrong}");
    }
    let unset = read(good, &[]).unwrap_err();
    assert!(
        unset.contains("identity.corp.client_secret") && unset.contains("CORP_SECRET"),
        "{unset}"
    );
}

#[test]
fn a_wildcard_stands_for_every_known_model_of_a_provider() {
    let env = [("OPENAI_API_KEY", "sk-test"), ("ANTHROPIC_API_KEY", "sk-test")];
    let plain = read("", &env).unwrap();
    let config = read("[models.\"openai/*\"]\n", &env).unwrap();
    let own = |config: &Config, start: &str| -> Vec<String> {
        let ids = config.catalog.iter().map(|model| model.id.clone());
        ids.filter(|id| id.starts_with(start)).collect()
    };
    let ids = own(&config, "openai/");
    assert!(ids.len() > 5 && own(&config, "anthropic/").is_empty(), "{ids:?}");
    for id in &ids {
        let route = &config.routes[id];
        assert_eq!(route.lanes.len(), 1);
        assert_eq!(route.lanes[0].name.as_str(), id, "the id is the lane");
        // The price is that of the directory, under whose id the model is served too.
        let known =
            plain.catalog.iter().find(|model| model.lanes.iter().any(|lane| lane.name() == *id));
        let known = known.unwrap_or_else(|| panic!("{id} is not in the directory"));
        let served = &plain.routes[&known.id].lanes;
        let served = served.iter().find(|lane| lane.name.as_str() == id).unwrap();
        assert_eq!(route.lanes[0].prices, served.prices, "{id}");
    }
    // Models without a known price are not served, and plain ids stay as they were.
    assert!(
        !config.routes.contains_key("openai/unknown") && !config.routes.contains_key("openai/*")
    );
    assert_eq!(plain.catalog.iter().count() + ids.len(), config.catalog.iter().count());

    let name = ids[0].strip_prefix("openai/").unwrap();
    let text = format!(
        "[models.\"*/*\"]\n[models.\"mine/*\"]\nlanes = [{{ lane = \"openai/*\", weight = 2 }}]\n\
         [models.\"openai/{name}\"]\nlanes = [\"openai/{name}\"]\nprice = {{ input = \"1\", output = \"2\" }}\n"
    );
    let config = read(&text, &env).unwrap();
    assert_eq!(own(&config, "openai/").len(), ids.len());
    assert!(own(&config, "anthropic/").len() > 2);
    assert_eq!(own(&config, "mine/").len(), ids.len());
    let lane = &config.routes[&format!("mine/{name}")].lanes[0];
    assert_eq!((lane.name.as_str(), lane.weight), (ids[0].as_str(), 2));
    let written = &config.routes[&ids[0]].lanes[0].prices;
    assert_ne!(**written, *lane.prices, "an entry of its own replaces that of the wildcard");

    for (text, word) in [
        ("[models.\"nobody/*\"]", "there is no provider `nobody`"),
        ("[models.\"*\"]", "at the end of an id"),
        ("[models.\"open*ai/*\"]", "at the end of an id"),
        ("[models.\"openai/*\"]\nlanes = [\"openai/gpt-5\"]", "needs a wildcard at its end too"),
        ("[models.\"openai/*\"]\naliases = [\"x\"]", "has none"),
    ] {
        let error = read(text, &env).err().unwrap_or_else(|| panic!("{text} is accepted"));
        assert!(error.contains(word), "{text}: {error}");
    }
}

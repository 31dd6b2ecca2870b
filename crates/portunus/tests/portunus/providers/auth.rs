//! Errors in `auth` name their field, and no secret is ever repeated or printed.

use config::{Config, LoadOptions};
use std::path::{Path, PathBuf};

use crate::providers::service_account::Account;

fn read(text: &str, env: &[(&str, &str)]) -> Result<Config, String> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let given =
        LoadOptions { file: None, listen_address: None, data_folder: PathBuf::from("data") };
    let find = |name: &str| env.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
    Config::parse(text, Path::new("p.toml"), &given, &find).map_err(|e| e.to_string())
}

fn with(auth: &str) -> String {
    format!("[providers.p]\nspeaks = \"chat\"\nbase = \"http://x\"\nauth = {auth}\n")
}

#[test]
fn a_wrong_form_is_told_by_its_field_and_never_repeated() {
    let keys = "access_key = { text = \"hush\" }, secret_key = { text = \"hush\" }";
    let cases = [
        ("\"hush\"".to_owned(), "providers.p.auth:", "bearer"),
        ("7".to_owned(), "providers.p.auth:", "bearer"),
        ("[\"hush\"]".to_owned(), "providers.p.auth", "bearer"),
        ("{}".to_owned(), "providers.p.auth:", "no known kind"),
        ("{ token = \"hush\" }".to_owned(), "providers.p.auth:", "no known kind"),
        ("{ bearer = { env = \"A\" }, google = \"adc\" }".to_owned(), "providers.p.auth:", "more than one"),
        ("{ bearer = \"hush\" }".to_owned(), "providers.p.auth.bearer:", "reference"),
        ("{ bearer = { key = \"hush\" } }".to_owned(), "providers.p.auth.bearer:", "reference"),
        ("{ bearer = { env = 5 } }".to_owned(), "providers.p.auth.bearer:", "reference"),
        ("{ bearer = { env = \"A\", text = \"hush\" } }".to_owned(), "providers.p.auth.bearer:", "reference"),
        ("{ bearer = { env = \"GONE\" } }".to_owned(), "providers.p.auth.bearer:", "export GONE=…"),
        ("{ bearer = { file = \"no-such-file\" } }".to_owned(), "providers.p.auth.bearer:", "no-such-file"),
        ("{ bearer = { text = \"hush\\n\" } }".to_owned(), "providers.p.auth.bearer:", "header"),
        ("{ bearer = { env = \"A\" }, vaule = \"hush\" }".to_owned(), "providers.p.auth:", "`vaule`"),
        ("{ header = \"x-key\" }".to_owned(), "providers.p.auth.value:", "missing"),
        ("{ header = \"x key\", value = { text = \"hush\" } }".to_owned(), "providers.p.auth.header:", "name"),
        ("{ header = \"x-key\", value = \"hush\" }".to_owned(), "providers.p.auth.value:", "reference"),
        ("{ header = \"x-key\", vlaue = \"hush\" }".to_owned(), "providers.p.auth:", "did you mean `value`?"),
        ("{ google = \"hush\" }".to_owned(), "providers.p.auth.google:", "adc"),
        ("{ google = { text = \"hush\" } }".to_owned(), "providers.p.auth.google:", "not JSON"),
        ("{ google = { text = \"{}\" } }".to_owned(), "providers.p.auth.google:", "`type`"),
        ("{ google = { text = '{\"type\":\"external_account\"}' } }".to_owned(), "providers.p.auth.google:", "`credential_source`"),
        ("{ google = { text = '{\"type\":\"service_account\"}' } }".to_owned(), "providers.p.auth.google:", "`client_email`"),
        ("{ google = { text = '{\"type\":\"service_account\",\"client_email\":\"a\",\"private_key\":\"hush\"}' } }".to_owned(), "providers.p.auth.google:", "`private_key`"),
        ("{ google = { text = '{\"type\":\"authorized_user\",\"client_id\":\"a\",\"client_secret\":\"hush\"}' } }".to_owned(), "providers.p.auth.google:", "`refresh_token`"),
        ("{ google = { text = '{\"type\":\"authorized_user\",\"token_uri\":\"hush\"}' } }".to_owned(), "providers.p.auth.google:", "`token_uri`"),
        ("{ google = { env = \"A\" } }".to_owned(), "providers.p.auth.google:", "cannot be read"),
        ("{ sigv4 = \"hush\" }".to_owned(), "providers.p.auth.sigv4:", "access_key"),
        ("{ sigv4 = \"default\" }".to_owned(), "providers.p.auth.sigv4.region:", "us-east-1"),
        ("{ sigv4 = { region = \"eu\", from = \"instnce\" } }".to_owned(), "providers.p.auth.sigv4.from:", "did you mean \"instance\"?"),
        (format!("{{ sigv4 = {{ region = \"eu\", from = \"instance\", {keys} }} }}"), "providers.p.auth.sigv4.from:", "beside keys"),
        ("{ sigv4 = { region = \"eu\", from = \"web-identity\" } }".to_owned(), "providers.p.auth.sigv4:", "AWS_WEB_IDENTITY_TOKEN_FILE"),
        ("{ sigv4 = { region = \"eu\", from = \"container\" } }".to_owned(), "providers.p.auth.sigv4:", "AWS_CONTAINER_CREDENTIALS_FULL_URI"),
        (format!("{{ sigv4 = {{ region = \"eu\", role = \"hush\", {keys} }} }}"), "providers.p.auth.sigv4.role:", "ARN"),
        (format!("{{ sigv4 = {{ region = \"e/u\", role = \"arn:aws:iam::123456789012:role/x\", {keys} }} }}"), "providers.p.auth.sigv4.region:", "us-east-1"),
        (format!("{{ sigv4 = {{ region = \"eu\", external_id = \"hush\", {keys} }} }}"), "providers.p.auth.sigv4.role:", "missing"),
        ("{ entra = \"hush\" }".to_owned(), "providers.p.auth.entra:", "client_secret"),
        ("{ entra = {} }".to_owned(), "providers.p.auth.entra.client_secret:", "missing"),
        ("{ entra = { client_secret = \"hush\" } }".to_owned(), "providers.p.auth.entra.client_secret:", "reference"),
        ("{ entra = { client_secret = { text = \"hush\" } } }".to_owned(), "providers.p.auth.entra.tenant:", "missing"),
        ("{ entra = { tenant = \"t\", client_secret = { text = \"hush\" } } }".to_owned(), "providers.p.auth.entra.client_id:", "missing"),
        ("{ entra = { tenant = \"a/b\", client_id = \"c\", client_secret = { text = \"hush\" } } }".to_owned(), "providers.p.auth.entra.tenant:", "tenant"),
        ("{ entra = { tenant = \"t\", client_id = \"c\", certificate = { text = \"hush\" } } }".to_owned(), "providers.p.auth.entra.certificate:", "RSA key"),
        ("{ entra = { from = \"default\", client_secret = { text = \"hush\" } } }".to_owned(), "providers.p.auth.entra:", "only one"),
        ("{ entra = { from = \"manged-identity\" } }".to_owned(), "providers.p.auth.entra.from:", "did you mean \"managed-identity\"?"),
        ("{ entra = \"workload-identity\" }".to_owned(), "providers.p.auth.entra.token_file:", "AZURE_FEDERATED_TOKEN_FILE"),
        ("{ entra = { from = \"workload-identity\", token_file = \"/x\" } }".to_owned(), "providers.p.auth.entra.tenant:", "AZURE_TENANT_ID"),
        ("{ entra = { tenat = \"t\" } }".to_owned(), "providers.p.auth.entra:", "did you mean `tenant`?"),
        (format!("{{ sigv4 = {{ {keys} }} }}"), "providers.p.auth.sigv4.region:", "us-east-1"),
        (format!("{{ sigv4 = {{ region = 7, {keys} }} }}"), "providers.p.auth.sigv4.region:", "text"),
        (format!("{{ sigv4 = {{ region = \"eu\", sevice = \"x\", {keys} }} }}"), "providers.p.auth.sigv4:", "did you mean `service`?"),
        ("{ sigv4 = { region = \"eu\", secret_key = { text = \"hush\" } } }".to_owned(), "providers.p.auth.sigv4.access_key:", "AWS_ACCESS_KEY_ID"),
        ("{ sigv4 = { region = \"eu\", access_key = { text = \"hush\" } } }".to_owned(), "providers.p.auth.sigv4.secret_key:", "AWS_SECRET_ACCESS_KEY"),
        ("{ sigv4 = { region = \"eu\", access_key = \"hush\" } }".to_owned(), "providers.p.auth.sigv4.access_key:", "reference"),
        (format!("{{ sigv4 = {{ region = \"eu\", session_token = \"hush\", {keys} }} }}"), "providers.p.auth.sigv4.session_token:", "reference"),
        ("{ sigv4 = { region = \"eu\", access_key = { text = \"a\" }, secret_key = { text = \"hush hush\" } } }".to_owned(), "providers.p.auth.sigv4.secret_key:", "characters"),
    ];
    for (auth, field, remedy) in cases {
        let error = read(&with(&auth), &[("A", "no-such-place")]).expect_err(&auth);
        assert!(error.contains(field) && error.contains(remedy), "{auth}\n→ {error}");
        assert!(!error.contains("hush"), "{auth}\n→ {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn every_good_form_is_taken_and_nothing_of_it_is_printed() {
    let account = Account::new();
    let json = account.json("https://token.example/t");
    let user = r#"{"type":"authorized_user","client_id":"a","client_secret":"hush","refresh_token":"hush"}"#;
    let keys = "access_key = { text = \"AKIDHUSH\" }, secret_key = { text = \"hush\" }";
    for auth in [
        "\"none\"".to_owned(),
        "{ bearer = { env = \"HUSH\" } }".to_owned(),
        "{ header = \"api-key\", value = { text = \"hush\" } }".to_owned(),
        "{ google = \"adc\" }".to_owned(),
        "{ google = \"metadata\" }".to_owned(),
        "{ google = { env = \"ACCOUNT\" } }".to_owned(),
        "{ google = { env = \"FEDERATED\" } }".to_owned(),
        "{ sigv4 = { region = \"eu-west-1\", from = \"default\" } }".to_owned(),
        "{ sigv4 = { region = \"eu-west-1\", from = \"instance\", role = \"arn:aws:iam::123456789012:role/x\", \
         external_id = \"id:7\", session_name = \"gateway\" } }".to_owned(),
        format!(
            "{{ sigv4 = {{ region = \"eu-west-1\", role = \"arn:aws:iam::123456789012:role/x\", {keys} }} }}"
        ),
        "{ entra = \"default\" }".to_owned(),
        "{ entra = { from = \"managed-identity\", client_id = \"c\", scope = \"https://ai.azure.com/.default\" } }"
            .to_owned(),
        "{ entra = { tenant = \"t\", client_id = \"c\", client_secret = { env = \"HUSH\" } } }".to_owned(),
        "{ entra = { from = \"workload-identity\", tenant = \"t\", client_id = \"c\", token_file = \"/x\" } }"
            .to_owned(),
        format!("{{ google = {{ text = '{user}' }} }}"),
        format!("{{ sigv4 = {{ region = \"eu-west-1\", {keys} }} }}"),
        format!(
            "{{ sigv4 = {{ region = \"eu-west-1\", service = \"x\", session_token = {{ text = \"hush\" }}, {keys} }} }}"
        ),
    ] {
        let federated = r#"{"type":"external_account","audience":"a","subject_token_type":"t","client_id":"c",
            "client_secret":"hush","credential_source":{"file":"/x"}}"#;
        let env = [("HUSH", "hush"), ("ACCOUNT", json.as_str()), ("FEDERATED", federated)];
        let config = read(&with(&auth), &env).unwrap_or_else(|e| panic!("{auth}\n→ {e}"));
        let shown = format!("{config:?}");
        assert!(!shown.contains("hush") && !shown.contains("AKIDHUSH"), "{shown}");
        assert!(!shown.contains("PRIVATE KEY"), "{shown}");
    }
}

/// The reason why a stored provider with this credential is left out.
fn stored_issue(auth: &str) -> Option<String> {
    let variables = [
        ("AWS_ACCESS_KEY_ID", "AKID"),
        ("AWS_SECRET_ACCESS_KEY", "hush"),
        ("AZURE_TENANT_ID", "t"),
        ("AZURE_CLIENT_ID", "c"),
        ("AZURE_FEDERATED_TOKEN_FILE", "/x"),
    ];
    let mut config = read("", &variables).unwrap();
    let settings = serde_json::json!({ "speaks": "chat", "base": "https://models.example.com" });
    let settings = settings.as_object().cloned().unwrap();
    let mut provider = config::StoredProvider::new(settings, canon::Micros::ZERO);
    let auth: toml::Table = toml::from_str(&format!("auth = {auth}")).unwrap();
    provider.credentials.push(config::StoredAuth {
        id: "1".to_owned(),
        name: "k".to_owned(),
        added_at: canon::Micros::ZERO,
        auth: Ok(config::RawAuth(auth["auth"].clone())),
    });
    let mut stored = config::StoredEntries::default();
    stored.providers.insert("house".to_owned(), provider);
    config.overlay(&stored).unwrap();
    config.issues.values().next().cloned()
}

#[test]
fn a_stored_credential_never_uses_the_identity_of_the_machine() {
    // Even one that got past the checks of administration.
    for auth in [
        "{ sigv4 = { region = \"eu-west-1\", from = \"default\" } }",
        "{ sigv4 = { region = \"eu-west-1\", from = \"instance\" } }",
        "{ entra = \"default\" }",
        "{ entra = \"managed-identity\" }",
        "{ entra = { from = \"workload-identity\" } }",
        "{ google = \"adc\" }",
        "{ google = \"metadata\" }",
        "{ google = { text = '{\"type\":\"external_account\",\"credential_source\":{\"file\":\"/x\"}}' } }",
    ] {
        let issue = stored_issue(auth).expect(auth);
        assert!(issue.contains("identity of this machine"), "{auth}: {issue}");
    }
    let keys = "access_key = { text = \"AKID\" }, secret_key = { text = \"hush\" }";
    let role = "role = \"arn:aws:iam::123456789012:role/x\", external_id = \"id:7\"";
    for auth in [
        format!("{{ sigv4 = {{ region = \"eu-west-1\", {keys} }} }}"),
        format!("{{ sigv4 = {{ region = \"eu-west-1\", {role}, {keys} }} }}"),
        "{ entra = { tenant = \"t\", client_id = \"c\", client_secret = { text = \"hush\" } } }".to_owned(),
        "{ entra = { tenant = \"t\", client_id = \"c\", authority = \"https://login.microsoftonline.us\", \
         client_secret = { text = \"hush\" } } }"
            .to_owned(),
    ] {
        assert_eq!(stored_issue(&auth), None, "{auth}");
    }
}

#[test]
fn addresses_and_ways_are_checked_by_their_fields() {
    let cases = [
        ("like = \"azur\"", "providers.p.like:", "did you mean \"azure\"?"),
        ("like = \"demo\"", "providers.p.like:", "no provider"),
        ("like = \"azure\"", "providers.p.auth:", "AZURE_OPENAI_API_KEY"),
        (
            "like = \"azure\"\nauth = \"none\"",
            "providers.p.fill.endpoint:",
            "AZURE_OPENAI_ENDPOINT",
        ),
        (
            "like = \"azure\"\nauth = \"none\"\nfill = { endpoint = \"x\" }",
            "providers.p.base:",
            "not an address",
        ),
        (
            "like = \"azure\"\nauth = \"none\"\nfill = { endpoint = \"http://x\", zone = \"1\" }",
            "providers.p.fill.zone:",
            "placeholder",
        ),
        (
            "like = \"vertex\"\nauth = { google = \"adc\" }",
            "providers.p.fill.region:",
            "GOOGLE_CLOUD_LOCATION",
        ),
        (
            "speaks = \"chat\"\nbase = \"http://x\"\npaths = { chta = \"/x\" }",
            "providers.p.paths:",
            "\"chat\"?",
        ),
        (
            "speaks = \"chat\"\nbase = \"http://x\"\npaths = { chat = \"x\" }",
            "providers.p.paths.chat:",
            "slash",
        ),
        (
            "speaks = \"chat\"\nbase = \"http://x\"\npaths = { chat = \"/{modle}\" }",
            "providers.p.fill.modle:",
            "/{modle}",
        ),
        (
            "speaks = \"chat\"\nbase = \"http://x\"\nquirks = { chta = {} }",
            "providers.p.quirks:",
            "\"chat\"?",
        ),
        (
            "speaks = \"chat\"\nbase = \"http://x\"\nquirks = { chat = { refuse = [] } }",
            "unknown field `refuse`",
            "refuses",
        ),
    ];
    for (text, field, remedy) in cases {
        let error = read(&format!("[providers.p]\n{text}\n"), &[]).expect_err(text);
        assert!(error.contains(field) && error.contains(remedy), "{text}\n→ {error}");
    }
}

#[test]
fn a_provider_like_a_known_one_has_its_formats_its_paths_and_its_prices() {
    let text = "[providers.west]\nlike = \"azure\"\nfill = { endpoint = \"https://west.example\" }\n\
                auth = { header = \"api-key\", value = { text = \"k\" } }\n\
                [models.mine]\nlanes = [\"west/gpt-4.1\"]\n";
    let config = read(text, &[]).unwrap();
    let lane = &config.routes["mine"].lanes[0];
    assert_eq!(lane.endpoints.provider, "azure");
    assert_eq!(lane.formats, [canon::WireFormat::Responses, canon::WireFormat::Chat]);
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);
}

#[test]
fn variables_that_lead_nowhere_are_told_and_stop_nothing() {
    let env = [("GOOGLE_APPLICATION_CREDENTIALS", "no-such-file"), ("GOOGLE_CLOUD_LOCATION", "eu")];
    let config = read("", &env).unwrap();
    assert!(config.warnings[0].contains("`vertex` stays off"), "{:?}", config.warnings);
    assert!(config.warnings[0].contains("no-such-file"));
}

#[test]
fn the_check_command_tells_the_field_in_one_line_and_ends_with_one() {
    let file = std::env::temp_dir().join(format!("portunus-auth-{}.toml", std::process::id()));
    std::fs::write(&file, with("{ bearer = \"hush\" }")).unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_portunus"))
        .env_clear()
        .args(["check", "--config"])
        .arg(&file)
        .output()
        .unwrap();
    std::fs::remove_file(&file).unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), said.trim().lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains("providers.p.auth.bearer: must be a reference"), "{said}");
    assert!(!said.contains("hush") && output.stdout.is_empty(), "{said}");
}

#[test]
fn the_examples_for_users_are_good() {
    let page = include_str!("../../../../../docs/providers.md");
    let blocks: Vec<&str> =
        page.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(blocks.len() > 4);
    let account = Account::new().json("https://token.example/t");
    let env = [
        ("HOUSE_KEY", "k"),
        ("AZURE_OPENAI_API_KEY", "k"),
        ("GEMINI_API_KEY", "k"),
        ("OPENAI_API_KEY", "k"),
        ("AWS_BEARER_TOKEN_BEDROCK", "k"),
        ("AWS_ACCESS_KEY_ID", "k"),
        ("AWS_SECRET_ACCESS_KEY", "k"),
        ("GOOGLE_APPLICATION_CREDENTIALS", account.as_str()),
    ];
    let config = read(&blocks.concat(), &env).unwrap();
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);
    let lanes = |model: &str| config.routes[model].lanes.len();
    assert_eq!((lanes("gemini-3.5-flash"), lanes("gpt-4.1"), lanes("house/large")), (2, 1, 1));
}

//! Pages for providers and credentials, on the real administration.

use std::time::Duration;

use admin::{Actor, CredentialDraft, CredentialSecret, ProviderDraft, ReadVersion};
use canon::Micros;
use config::StoredEntries;
use http::StatusCode;
use serde_json::{Map, Value, json};
use store::{AccountRole, ConfigChange};
use upstream::AttemptFailure;

use crate::gateway::{ConsoleGateway, PageReply};
use crate::provider_server::start_provider;

/// Allows providers on this machine, and has a provider of its own.
const CONFIG: &str = "[outbound]\nallow = [\"127.0.0.0/8\"]\n\
    [providers.written]\nbase = \"http://10.0.0.1\"\nspeaks = \"chat\"\n";

/// A gateway with a provider of each source, and a signed-in owner.
pub(crate) async fn admin_fixture() -> (ConsoleGateway, String) {
    let gateway = ConsoleGateway::with_config(CONFIG).await;
    gateway.account("olga", AccountRole::Owner).await;
    let acme = json!({
        "base": "https://acme.example", "speaks": ["messages"], "max_in_flight": 9,
        "hosts": ["files.acme.example"], "timeouts": { "gap": "9s" },
    });
    store_provider(&gateway, "acme", acme, Some("sk-acme")).await;
    let cookie = gateway.sign_in("olga").await;
    (gateway, cookie)
}

/// Stores a provider, as the command of an operator would.
pub(crate) async fn store_provider(
    gateway: &ConsoleGateway,
    name: &str,
    settings: Value,
    secret: Option<&str>,
) {
    let draft = |secret: &str| CredentialDraft {
        name: "team <b>".to_owned(),
        secret: CredentialSecret::Value(Value::from(secret)),
    };
    let credentials = secret.map(|secret| vec![draft(secret)]);
    let draft = ProviderDraft { settings: object(settings), credentials };
    let put =
        gateway.host.admin.put_provider(&Actor::Operator, name, ReadVersion::default(), draft);
    put.await.unwrap();
}

pub(crate) async fn store_model(gateway: &ConsoleGateway, id: &str, settings: Value) {
    let (admin, read) = (&gateway.host.admin, ReadVersion::default());
    admin.put_model(&Actor::Operator, id, read, object(settings)).await.unwrap();
}

fn object(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

/// Settings of a provider as they are stored; `None` if it is not.
fn stored_settings(gateway: &ConsoleGateway, name: &str) -> Option<Value> {
    let found = gateway.host.admin.provider(&Actor::Operator, name);
    found.ok()?.provider.settings.map(Value::Object)
}

/// Names and secrets of a provider's credentials.
async fn stored_secrets(gateway: &ConsoleGateway, name: &str) -> Vec<(String, Value)> {
    let snapshot = gateway.store.configured().await.unwrap();
    let stored = StoredEntries::open(snapshot, &gateway.host.admin.vault);
    let all = stored.providers[name].credentials.iter();
    let open = |auth: &config::RawAuth| serde_json::to_value(&auth.0).unwrap();
    all.map(|one| (one.name.clone(), open(one.auth.as_ref().unwrap()))).collect()
}

/// Action, subject and detail of the latest change.
pub(crate) async fn last_audit(gateway: &ConsoleGateway) -> (String, String, String) {
    let last = gateway.store.audits(1).await.unwrap().remove(0);
    (last.action, last.subject, last.detail)
}

/// The version in the first form of a page.
pub(crate) fn version(page: &PageReply) -> String {
    let version = page.body.split("name=\"tag\" value=\"").nth(1).unwrap();
    version.split("\">").next().unwrap().replace("&quot;", "\"")
}

#[tokio::test]
async fn providers_are_listed_with_lane_states() {
    let (gateway, cookie) = admin_fixture().await;
    store_model(&gateway, "house/x", json!({ "lanes": ["acme/x", "acme/y", "acme/z"] })).await;
    let engine = &gateway.host.admin.engine;
    let lanes = &engine.config().routes["house/x"].lanes;
    // Reported ahead of the clock, so that no state ends before the page is drawn.
    let now = engine.monotonic_now() + Micros::from_secs(600);
    let attempt = |lane: usize| lanes[lane].slots[0].health.begin_attempt(now);
    for _ in 0..20 {
        attempt(0).succeeded(now + Micros::from_millis(340));
    }
    for _ in 0..5 {
        attempt(1).failed(AttemptFailure::TimedOut, now);
    }
    attempt(2).failed(AttemptFailure::RateLimited(Some(Duration::from_secs(900))), now);
    let running = attempt(0);
    let page = gateway.get("/console/providers").cookie(&cookie).send().await;
    drop(running);
    for seen in [
        "acme",
        "in the console",
        "in the file",
        "built in",
        "340 ms",
        "data-label=\"Running\">1<",
        "timeout",
        "5 in a row",
        "health good",
        "health bad",
        "cooling down",
        "busy",
        "1 credential",
        "No model is served",
    ] {
        page.assert_contains(seen);
    }
    let own = gateway.get("/console/providers/acme").cookie(&cookie).send().await;
    own.assert_contains("team &lt;b&gt;");
    own.assert_contains("added 2027-01-15");
    own.assert_contains("value=\"https://acme.example\"");
    own.assert_contains("value=\"9s\"");
    own.assert_lacks("sk-acme");
    let fixed = gateway.get("/console/providers/written").cookie(&cookie).send().await;
    fixed.assert_contains("[providers.written]");
    fixed.assert_contains("http://10.0.0.1");
    fixed.assert_lacks("action=\"/console/providers/written\"");
    let none = gateway.get("/console/providers/other").cookie(&cookie).send().await;
    assert_eq!(none.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn credential_of_another_address_is_reported() {
    let (gateway, cookie) = admin_fixture().await;
    let before = gateway.store.configured().await.unwrap();
    let mut moved = before.entries.into_iter().find(|entry| entry.id == "acme").unwrap();
    moved.settings = moved.settings.replace("https://acme.example", "https://moved.example");
    let changes = [ConfigChange::Put(moved)];
    assert!(gateway.store.configure(before.revision, &changes).await.unwrap());
    gateway.host.admin.poll_stored_config().await;
    let own = gateway.get("/console/providers/acme").cookie(&cookie).send().await;
    own.assert_contains("it was given for another address");
}

#[tokio::test]
async fn members_neither_see_nor_change_providers() {
    let (gateway, olga) = admin_fixture().await;
    gateway.account("mia", AccountRole::Member).await;
    let mia = gateway.sign_in("mia").await;
    let revision = gateway.store.configured_revision().await.unwrap();
    let noted = gateway.store.audits(999).await.unwrap().len();
    for path in ["", "/new", "/acme"] {
        let path = format!("/console/providers{path}");
        assert_eq!(gateway.get(&path).cookie(&olga).send().await.status, StatusCode::OK, "{path}");
        let got = gateway.get(&path).cookie(&mia).send().await;
        assert_eq!(got.status, StatusCode::FORBIDDEN, "{path}");
    }
    for (path, fields) in [
        ("", [("id", "mine"), ("base", "https://mine.example")]),
        ("/acme", [("base", "https://mine.example"), ("speaks", "chat")]),
        ("/acme/credentials", [("name", "mine"), ("value", "sk-mine")]),
        ("/acme/check", [("", ""); 2]),
        ("/acme/remove", [("force", "true"), ("", "")]),
    ] {
        let path = format!("/console/providers{path}");
        let got = gateway.post(&path, &fields).cookie(&mia).send().await;
        assert_eq!(got.status, StatusCode::FORBIDDEN, "{path}");
    }
    for path in ["/console/models", "/console/models/new", "/console/system", "/console/settings"] {
        let got = gateway.get(path).cookie(&mia).send().await;
        assert_eq!(got.status, StatusCode::FORBIDDEN, "{path}");
    }
    assert_eq!(gateway.store.configured_revision().await.unwrap(), revision);
    assert_eq!(gateway.store.audits(999).await.unwrap().len(), noted);
}

#[tokio::test]
async fn provider_form_keeps_unknown_settings() {
    let (gateway, cookie) = admin_fixture().await;
    let path = "/console/providers/acme";
    let tag = version(&gateway.get(path).cookie(&cookie).send().await);
    let fields = [
        ("tag", tag.as_str()),
        ("base", "https://{region}.example"),
        ("speaks", "chat"),
        ("speaks", "images"),
        ("max_in_flight", ""),
        ("timeouts.gap", "7s"),
        ("fill", "region = eu-1"),
        ("objects", "shared"),
    ];
    let got = gateway.post(path, &fields).cookie(&cookie).send().await;
    got.assert_redirect("/console/providers/acme?told=dropped");
    let settings = json!({
        "base": "https://{region}.example", "speaks": ["chat", "images"],
        "hosts": ["files.acme.example"], "timeouts": { "gap": "7s" }, "fill": { "region": "eu-1" },
        "objects": "shared",
    });
    assert_eq!(stored_settings(&gateway, "acme"), Some(settings));
    let page = gateway.get(path).cookie(&cookie).send().await;
    page.assert_contains("name=\"objects\" value=\"shared\" checked");
    assert_eq!(stored_secrets(&gateway, "acme").await, []);
    let detail = "https://eu-1.example, credentials: 0 given, 1 dropped";
    let line = ("provider.change".to_owned(), "acme".to_owned(), detail.to_owned());
    assert_eq!(last_audit(&gateway).await, line);
    let tag = version(&gateway.get(path).cookie(&cookie).send().await);
    let same = [[("tag", tag.as_str())].as_slice(), &fields[1..5], &fields[6..]].concat();
    gateway
        .post(path, &same)
        .cookie(&cookie)
        .send()
        .await
        .assert_redirect(&format!("{path}?told=saved"));
}

#[tokio::test]
async fn provider_errors_are_shown_beside_fields() {
    let (gateway, cookie) = admin_fixture().await;
    let before = stored_settings(&gateway, "acme");
    let path = "/console/providers/acme";
    let base = ("base", "https://entered.example");
    for (field, status, shown) in [
        (("base", "ftp://entered.example"), 400, "id=\"base-wrong\""),
        (("timeouts.gap", "soon"), 400, "id=\"timeouts.gap-wrong\""),
        (("speaks", "smoke"), 400, "smoke"),
        (("max_in_flight", "many"), 400, "id=\"max_in_flight-wrong\""),
        (("fill", "region"), 400, "id=\"fill-wrong\""),
        (("objects", "all"), 400, "is not known; write"),
        (("tag", "\"old\""), 412, "Somebody changed this meanwhile"),
    ] {
        let got = gateway.post(path, &[field, base, ("speaks", "messages")]).cookie(&cookie);
        let got = got.send().await;
        assert_eq!(got.status, status, "{field:?}: {}", got.body);
        got.assert_contains(shown);
        got.assert_contains("entered.example\"");
        assert_eq!(stored_settings(&gateway, "acme"), before, "{field:?}");
    }
    let path = "/console/providers/written";
    let got = gateway.post(path, &[base, ("speaks", "chat")]).cookie(&cookie).send().await;
    assert_eq!(got.status, StatusCode::BAD_REQUEST);
    got.assert_contains("role=\"alert\">`written` is in the configuration file; change it there");
}

#[tokio::test]
async fn directory_provider_is_added_with_its_credential() {
    let (gateway, cookie) = admin_fixture().await;
    let choice = gateway.get("/console/providers/new").cookie(&cookie).send().await;
    choice.assert_contains("<option value=\"openai\">OpenAI</option>");
    choice.assert_contains("Any compatible server");
    let form = gateway.get("/console/providers/new?like=openai").cookie(&cookie).send().await;
    form.assert_contains("Add OpenAI");
    form.assert_contains("autocomplete=\"off\"");
    let fields = [("like", "openai"), ("id", "openai"), ("value", "sk-secret"), ("base", "")];
    let got = gateway.post("/console/providers", &fields).cookie(&cookie).send().await;
    got.assert_redirect("/console/providers/openai?told=added");
    assert_eq!(stored_settings(&gateway, "openai"), Some(json!({})));
    let secrets = stored_secrets(&gateway, "openai").await;
    assert_eq!(secrets, [("default".to_owned(), json!({ "bearer": { "text": "sk-secret" } }))]);
    let (action, subject, detail) = last_audit(&gateway).await;
    assert_eq!((action.as_str(), subject.as_str()), ("provider.create", "openai"));
    assert!(detail.ends_with("credentials: 1 given, 0 dropped"), "{detail}");
    let list = gateway.get("/console/providers").cookie(&cookie).send().await;
    list.assert_contains("href=\"/console/providers/openai\"");
    list.assert_lacks("sk-secret");
    let other = [("like", "openai"), ("id", "second"), ("value", "")];
    gateway.post("/console/providers", &other).cookie(&cookie).send().await;
    assert_eq!(stored_settings(&gateway, "second"), Some(json!({ "like": "openai" })));
    assert_eq!(stored_secrets(&gateway, "second").await, []);
    for id in ["acme", "ACME", "a name", ""] {
        let fields = [
            ("like", ""),
            ("id", id),
            ("base", "https://x.example"),
            ("speaks", "chat"),
            ("value", "sk-new"),
        ];
        let got = gateway.post("/console/providers", &fields).cookie(&cookie).send().await;
        assert_eq!(got.status, StatusCode::BAD_REQUEST, "{id}");
        got.assert_contains("id=\"id-wrong\"");
        got.assert_lacks("sk-new");
    }
    let got = gateway.get("/console/providers/new?like=nobody").cookie(&cookie).send().await;
    assert_eq!(got.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn credentials_are_added_checked_and_removed_and_never_shown() {
    let (gateway, cookie) = admin_fixture().await;
    let address = start_provider("sk-hidden").await;
    let local = json!({ "base": address, "speaks": ["chat"] });
    store_provider(&gateway, "local", local, Some("sk-old")).await;
    let at = "/console/providers/local";
    let add = format!("{at}/credentials");
    let fields = [("name", "second"), ("value", " sk-hidden ")];
    let got = gateway.post(&add, &fields).cookie(&cookie).send().await;
    got.assert_redirect(&format!("{at}?told=credential"));
    let secrets = stored_secrets(&gateway, "local").await;
    let second = ("second".to_owned(), json!({ "bearer": { "text": "sk-hidden" } }));
    assert_eq!(
        secrets,
        [("team <b>".to_owned(), json!({ "bearer": { "text": "sk-old" } })), second]
    );
    assert_eq!(last_audit(&gateway).await.0, "credential.add");
    let header = r#"{"header": "x-key", "value": "sk-in-a-header"}"#;
    gateway.post(&add, &[("value", header)]).cookie(&cookie).send().await;
    let third = stored_secrets(&gateway, "local").await.pop();
    let auth = json!({ "header": "x-key", "value": { "text": "sk-in-a-header" } });
    assert_eq!(third, Some(("default".to_owned(), auth)));
    for (name, value, wrong) in [("fourth", "", "value"), ("fourth\nline", "sk-fourth", "name")] {
        let got = gateway.post(&add, &[("name", name), ("value", value)]).cookie(&cookie);
        let got = got.send().await;
        assert_eq!(got.status, StatusCode::BAD_REQUEST);
        got.assert_contains(&format!("id=\"{wrong}-wrong\""));
        got.assert_contains("value=\"fourth");
        got.assert_lacks("sk-fourth");
    }
    let got = gateway.post(&format!("{at}/check"), &[]).cookie(&cookie).send().await;
    for seen in ["not accepted · 401", "the credential is refused", "accepted · 200", "it works · "]
    {
        got.assert_contains(seen);
    }
    got.assert_lacks("sk-hidden");
    assert_eq!(last_audit(&gateway).await.0, "provider.check");
    let detail = gateway.host.admin.provider(&Actor::Operator, "local").unwrap();
    let first = &detail.provider.credentials[0].id;
    let remove = format!("{at}/credentials/{first}/remove");
    let got = gateway.post(&remove, &[]).cookie(&cookie).send().await;
    got.assert_redirect(&format!("{at}?told=removed"));
    let names = stored_secrets(&gateway, "local").await.into_iter().map(|(name, _)| name);
    assert_eq!(names.collect::<Vec<_>>(), ["second", "default"]);
    assert_eq!(last_audit(&gateway).await.0, "credential.delete");
    let again = gateway.post(&remove, &[]).cookie(&cookie).send().await;
    assert_eq!(again.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn provider_is_removed_only_as_seen_and_with_its_consequences_confirmed() {
    let (gateway, cookie) = admin_fixture().await;
    store_model(&gateway, "house/x", json!({ "lanes": ["acme/x"] })).await;
    let at = "/console/providers/acme";
    let remove = format!("{at}/remove");
    let tag = version(&gateway.get(at).cookie(&cookie).send().await);
    let foreign = gateway.foreign_post(&remove, &[("force", "true")]).cookie(&cookie);
    let foreign = foreign.with("sec-fetch-site", "cross-site").send().await;
    assert_eq!(foreign.status, StatusCode::FORBIDDEN, "another site removes nothing");
    let stale = gateway.post(&remove, &[("tag", "\"t\""), ("force", "true")]).cookie(&cookie);
    let stale = stale.send().await;
    assert_eq!(stale.status, StatusCode::PRECONDITION_FAILED);
    stale.assert_contains("Somebody changed this meanwhile");
    let last = gateway.post(&remove, &[("tag", &tag)]).cookie(&cookie).send().await;
    assert_eq!(last.status, StatusCode::CONFLICT);
    last.assert_contains("only `acme` serves house/x");
    assert!(stored_settings(&gateway, "acme").is_some());
    let forced = [("tag", tag.as_str()), ("force", "true")];
    let got = gateway.post(&remove, &forced).cookie(&cookie).send().await;
    got.assert_redirect("/console/providers");
    assert_eq!(stored_settings(&gateway, "acme"), None);
    let line = ("provider.delete".to_owned(), "acme".to_owned(), "house/x".to_owned());
    assert_eq!(last_audit(&gateway).await, line);
    let models = gateway.get("/console/models?q=house").cookie(&cookie).send().await;
    models.assert_contains("objection");
}

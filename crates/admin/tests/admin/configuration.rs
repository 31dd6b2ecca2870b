//! Rights over providers, models, settings and the vault, and the versions of these objects.

use std::sync::Arc;

use access::limits::RateLimiter;
use admin::{
    AccountAdmin, Actor, Admin, AdminError, AuditQuery, CredentialDraft, CredentialSecret,
    ProviderDraft, ReadVersion, SettingsChange, StoredConfig,
};
use config::{Config, LoadOptions, StoredEntries};
use http::HeaderValue;
use ledger::{Clock, FileDisk, LeaseClient, OpenCalls};
use relay::{Engine, EngineParts, FileStore, NodeFolder, NodeFunds, RequestIds};
use serde_json::{Map, Value, json};
use store::Vault;
use telemetry::Telemetry;

use crate::fixture::{ACTORS, Fixture, outcome};

/// Allows providers on this machine. Nothing answers at their addresses.
const CONFIG: &str = "[outbound]\nallow = [\"127.0.0.0/8\"]\n";
const ALLOWED_ACTORS: [&str; 5] = ["operator", "owner", "admin", "key of owner", "key of admin"];

/// Administration of a whole gateway on the store of the fixture.
async fn open_gateway(fixture: &Fixture) -> Arc<Admin> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let folder = fixture.folder.subfolder();
    let options = LoadOptions { file: None, listen_address: None, data_folder: folder.clone() };
    let name = std::path::Path::new("test.toml");
    let config = Config::parse(CONFIG, name, &options, &|_| None).unwrap();
    let (store, clock) = (fixture.admin.store.clone(), Arc::clone(&fixture.clock));
    let clock: Arc<dyn Clock> = clock;
    let disk = FileDisk::open(&folder.join("journal")).unwrap();
    let opened = OpenCalls::open(Arc::clone(&clock), Arc::new(disk)).unwrap();
    let open_calls = Arc::clone(&opened.book);
    let leases = LeaseClient::open(opened, store.clone(), Arc::clone(&clock), "node-a").await;
    let engine = Arc::new(Engine::new(EngineParts {
        files: FileStore::open(&config, "pepper", Arc::clone(&clock), store.clone()).unwrap(),
        config,
        keys: Arc::clone(&fixture.admin.keys),
        funds: NodeFunds::new(
            open_calls,
            leases.unwrap(),
            store.clone(),
            NodeFolder::first(&folder),
        ),
        clock: Arc::clone(&clock),
        request_ids: RequestIds::new().unwrap(),
        telemetry: Telemetry::default(),
        tasks: fixture.admin.tasks.clone(),
        instance: HeaderValue::from_static("test"),
    }));
    Arc::new(Admin {
        accounts: AccountAdmin {
            store: store.clone(),
            clock: Arc::clone(&clock),
            keys: Arc::clone(&engine.keys),
            shared: None,
            tasks: fixture.admin.tasks.clone(),
        },
        engine,
        store,
        vault: Arc::new(Vault::new(folder.join("vault.key"), None, false)),
        stored: StoredConfig::new(StoredEntries::default()),
        limiter: Arc::new(RateLimiter::new(clock, None)),
        health: admin::HealthMonitor::default(),
    })
}

fn object(value: Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap()
}

fn provider_draft() -> ProviderDraft {
    let settings = object(json!({ "base": "http://127.0.0.1:1", "speaks": "chat" }));
    ProviderDraft { settings, credentials: None }
}

fn credential_draft() -> CredentialDraft {
    let secret = CredentialSecret::Value(Value::from("sk-secret"));
    CredentialDraft { name: "main".to_owned(), secret }
}

fn model_settings() -> Map<String, Value> {
    object(json!({ "lanes": ["p/m"], "price": { "input": "1", "output": "2" } }))
}

/// Outcome of every use case for an actor, in an order in which each can succeed.
async fn try_all(admin: &Arc<Admin>, actor: &Actor) -> Vec<(&'static str, &'static str)> {
    let any = ReadVersion::default();
    let mut tried = vec![
        ("put_provider", outcome(&admin.put_provider(actor, "p", any, provider_draft()).await)),
        ("providers", outcome(&admin.providers(actor))),
        ("provider", outcome(&admin.provider(actor, "p"))),
        ("provider_directory", outcome(&admin.provider_directory(actor))),
    ];
    let added = admin.add_credential(actor, "p", any, credential_draft()).await;
    tried.push(("add_credential", outcome(&added)));
    tried.push(("check_provider", outcome(&admin.check_provider(actor, "p").await)));
    let put = admin.put_model(actor, "m", any, model_settings()).await;
    tried.push(("put_model", outcome(&put)));
    tried.push(("models", outcome(&admin.models(actor))));
    tried.push(("model", outcome(&admin.model(actor, "m"))));
    tried.push(("delete_model", outcome(&admin.delete_model(actor, "m", any).await)));
    let id = added.map_or_else(|_| String::new(), |added| added.id);
    let deleted = admin.delete_credential(actor, "p", any, &id).await;
    tried.push(("delete_credential", outcome(&deleted)));
    tried.push(("settings", outcome(&admin.settings(actor).await)));
    let name = Some(Some(format!("gateway of {}", actor.audit_name())));
    let change = SettingsChange { name, ..SettingsChange::default() };
    tried.push(("change_settings", outcome(&admin.change_settings(actor, any, change).await)));
    tried.push(("vault_status", outcome(&admin.vault_status(actor).await)));
    tried.push(("rekey_vault", outcome(&admin.rekey_vault(actor).await)));
    let page = admin.audit_page(actor, AuditQuery::default(), 10).await;
    tried.push(("audit_page", outcome(&page)));
    tried.push(("node_health", outcome(&admin.node_health(actor).await)));
    tried.push(("delete_provider", outcome(&admin.delete_provider(actor, "p", any, false).await)));
    tried
}

#[tokio::test]
async fn configuration_is_for_administrators() {
    let fixture = Fixture::new().await;
    let admin = open_gateway(&fixture).await;
    for name in ACTORS {
        let actor = fixture.actor(name).await;
        let noted = fixture.audit_count().await;
        let revision = admin.store.configured_revision().await.unwrap();
        let may = ALLOWED_ACTORS.contains(&name);
        // The second actor of an account finds its name stored already.
        drop(admin.store.take_setting("name").await.unwrap());
        for (deed, found) in try_all(&admin, &actor).await {
            assert_eq!(found, if may { "done" } else { "forbidden" }, "{name}: {deed}");
        }
        let lines = fixture.audit_count().await - noted;
        let mut written = admin.store.audits(u32::try_from(lines).unwrap()).await.unwrap();
        written.reverse();
        assert!(written.iter().all(|line| line.actor == actor.audit_name()), "{name}");
        let key = actor.key().map(|key| key.id.as_str());
        assert!(written.iter().all(|line| line.key_id.as_deref() == key), "{name}");
        let actions: Vec<&str> = written.iter().map(|line| line.action.as_str()).collect();
        let expected: &[&str] = &[
            "provider.create",
            "credential.add",
            "provider.check",
            "model.create",
            "model.delete",
            "credential.delete",
            "setting.change",
            "vault.rekey",
            "vault.rekey",
            "provider.delete",
        ];
        assert_eq!(actions, if may { expected } else { &[] }, "{name}");
        let changed = admin.store.configured_revision().await.unwrap() != revision;
        assert_eq!(changed, may, "{name}");
    }
}

#[tokio::test]
async fn change_of_an_older_version_is_refused() {
    let fixture = Fixture::new().await;
    let admin = open_gateway(&fixture).await;
    let (actor, any) = (Actor::Operator, ReadVersion::default());
    let first = admin.put_provider(&actor, "p", any, provider_draft()).await.unwrap();
    let old = first.detail.version();
    // The health of lanes is no part of the version, a new credential is.
    assert_eq!(admin.provider(&actor, "p").unwrap().version(), old);
    admin.add_credential(&actor, "p", ReadVersion(Some(&old)), credential_draft()).await.unwrap();
    assert_ne!(admin.provider(&actor, "p").unwrap().version(), old);
    let stale = ReadVersion(Some(&old));
    let put = admin.put_provider(&actor, "p", stale, provider_draft()).await;
    assert!(matches!(put, Err(AdminError::Stale)));
    assert_eq!(outcome(&admin.delete_provider(&actor, "p", stale, true).await), "stale");
    admin.put_model(&actor, "m", any, model_settings()).await.unwrap();
    let model = admin.model(&actor, "m").unwrap().version();
    assert_eq!(outcome(&admin.delete_model(&actor, "m", stale).await), "stale");
    let conflict = admin.delete_provider(&actor, "p", any, false).await;
    assert_eq!(outcome(&conflict), "conflict");
    assert_eq!(outcome(&admin.delete_model(&actor, "m", ReadVersion(Some(&model))).await), "done");
    let settings = admin.settings(&actor).await.unwrap().version();
    let change = |name: &str| SettingsChange {
        name: Some(Some(name.to_owned())),
        ..SettingsChange::default()
    };
    let read = ReadVersion(Some(&settings));
    assert_eq!(outcome(&admin.change_settings(&actor, read, change("one")).await), "done");
    assert_eq!(outcome(&admin.change_settings(&actor, read, change("two")).await), "stale");
    assert_eq!(admin.settings(&actor).await.unwrap().name.as_deref(), Some("one"));
}

#[tokio::test]
async fn change_from_an_older_revision_of_another_node_is_refused() {
    let fixture = Fixture::new().await;
    let (here, there) = (open_gateway(&fixture).await, open_gateway(&fixture).await);
    let (actor, any) = (Actor::Operator, ReadVersion::default());
    let seen = here.put_provider(&actor, "p", any, provider_draft()).await.unwrap();
    let version = seen.detail.version();
    let mut other = provider_draft();
    other.settings.insert("max_in_flight".to_owned(), Value::from(3));
    there.put_provider(&actor, "p", ReadVersion(Some(&version)), other).await.unwrap();
    // This node has not read the other's change yet, and reads it before it decides.
    let late = here.put_provider(&actor, "p", ReadVersion(Some(&version)), provider_draft()).await;
    assert_eq!(outcome(&late), "stale");
    assert_eq!(here.provider(&actor, "p").unwrap().provider.max_in_flight, Some(3));
}

#[tokio::test]
async fn health_warns_of_bodies_that_are_not_encrypted() {
    let fixture = Fixture::new().await;
    let mut admin = Arc::into_inner(open_gateway(&fixture).await).unwrap();
    let actor = fixture.actor("operator").await;
    assert!(admin.node_health(&actor).await.unwrap().troubles.is_empty());
    admin.vault = Arc::new(Vault::new(std::path::PathBuf::from("/nonexistent/key"), None, true));
    let troubles = admin.node_health(&actor).await.unwrap().troubles;
    let [issue] = troubles.as_slice() else { panic!("{troubles:?}") };
    assert_eq!(issue.what, "vault");
    assert!(issue.why.contains("without encryption"), "{}", issue.why);
}

//! The real administration and the real engine, on the database and the folder of a test.

use std::path::Path;
use std::sync::Arc;

use access::keys::KeyCache;
use access::limits::RateLimiter;
use admin::{AccountAdmin, Admin, StoredConfig};
use config::{Config, LoadOptions, StoredEntries};
use http::HeaderValue;
use ledger::{Clock, FileDisk, LeaseClient, OpenCalls};
use relay::{Engine, EngineParts, FileStore, NodeFolder, NodeFunds, RequestIds};
use store::{Store, Vault};
use telemetry::Telemetry;
use tokio_util::task::TaskTracker;

pub(crate) async fn open_admin(
    store: Store,
    clock: Arc<dyn Clock>,
    folder: &Path,
    config: &str,
) -> Arc<Admin> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let options =
        LoadOptions { file: None, listen_address: None, data_folder: folder.to_path_buf() };
    let mut config = Config::parse(config, Path::new("test.toml"), &options, &|_| None).unwrap();
    let vault = Arc::new(Vault::new(folder.join("vault.key"), None, false));
    let stored = StoredEntries::open(store.configured().await.unwrap(), &vault);
    config.overlay(&stored).unwrap();
    let disk = FileDisk::open(&folder.join("journal")).unwrap();
    let opened = OpenCalls::open(Arc::clone(&clock), Arc::new(disk)).unwrap();
    let open_calls = Arc::clone(&opened.book);
    let leases = LeaseClient::open(opened, store.clone(), Arc::clone(&clock), "node-a").await;
    let funds =
        NodeFunds::new(open_calls, leases.unwrap(), store.clone(), NodeFolder::first(folder));
    let keys = KeyCache::load(store.clone(), Arc::clone(&clock), "pepper").await.unwrap();
    let tasks = TaskTracker::new();
    let engine = Arc::new(Engine::new(EngineParts {
        files: FileStore::open(&config, "pepper", Arc::clone(&clock), store.clone()).unwrap(),
        config,
        keys: Arc::new(keys),
        funds,
        clock: Arc::clone(&clock),
        request_ids: RequestIds::new().unwrap(),
        telemetry: Telemetry::default(),
        tasks: tasks.clone(),
        instance: HeaderValue::from_static("test"),
    }));
    let accounts = AccountAdmin {
        store: store.clone(),
        clock: Arc::clone(&clock),
        keys: Arc::clone(&engine.keys),
        shared: None,
        tasks,
    };
    Arc::new(Admin {
        accounts,
        engine,
        store,
        vault,
        stored: StoredConfig::new(stored),
        limiter: Arc::new(RateLimiter::new(clock, None)),
        health: admin::HealthMonitor::default(),
    })
}

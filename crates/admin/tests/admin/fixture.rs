//! Administration on a store of its own, with one account per role.

use std::path::PathBuf;
use std::sync::Arc;

use access::keys::KeyCache;
use admin::{AccountAdmin, Actor, AdminError, HashedPassword, NewPassword};
use canon::Micros;
use ledger::{Clock, TestClock};
use store::{Account, AccountRole, KeyRecord, KeyScope, RateLimits, Store};
use tokio_util::task::TaskTracker;

/// Names of the actors in the tables of the tests.
pub(crate) const ACTORS: [&str; 11] = [
    "operator",
    "owner",
    "admin",
    "member",
    "viewer",
    "locked admin",
    "key of owner",
    "key of admin",
    "key of member",
    "key of viewer",
    "key of locked admin",
];

pub(crate) struct Fixture {
    pub(crate) admin: AccountAdmin,
    pub(crate) clock: Arc<TestClock>,
    pub(crate) folder: FixtureFolder,
}

/// A temporary folder that is deleted when it is dropped.
pub(crate) struct FixtureFolder(PathBuf);

impl FixtureFolder {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("admin-{}", uuid::Uuid::now_v7()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Returns a new folder inside of it.
    pub(crate) fn subfolder(&self) -> PathBuf {
        self.0.join(uuid::Uuid::now_v7().to_string())
    }
}

impl Drop for FixtureFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Fixture {
    pub(crate) async fn new() -> Self {
        let folder = FixtureFolder::new();
        let store = Store::open(&format!("sqlite:{}/t.db", folder.0.display())).await.unwrap();
        let clock = Arc::new(TestClock::at(Micros::from_secs(1_800_000_000)));
        let shared = Arc::clone(&clock) as Arc<dyn Clock>;
        let keys = KeyCache::load(store.clone(), Arc::clone(&shared), "pepper").await.unwrap();
        let keys = Arc::new(keys);
        let tasks = TaskTracker::new();
        let admin = AccountAdmin { store, clock: shared, keys, shared: None, tasks };
        let fixture = Self { admin, clock, folder };
        for (name, role) in [
            ("owner", AccountRole::Owner),
            ("admin", AccountRole::Admin),
            ("member", AccountRole::Member),
            ("viewer", AccountRole::Viewer),
        ] {
            fixture.account(name, role).await;
        }
        let locked = fixture.account("locked", AccountRole::Admin).await;
        fixture.admin.store.set_disabled(&locked.id, true, Micros::new(1)).await.unwrap();
        fixture
    }

    /// Adds an account whose id is its name.
    pub(crate) async fn account(&self, name: &str, role: AccountRole) -> Account {
        let account = Account {
            id: name.to_owned(),
            username: name.to_owned(),
            email: None,
            role,
            password_hash: None,
            disabled: false,
            created: Micros::new(1),
            changed: Micros::new(1),
        };
        self.admin.store.add_account(&account).await.unwrap();
        account
    }

    /// The actor with a name of [`ACTORS`], as it is stored now.
    pub(crate) async fn actor(&self, name: &str) -> Actor {
        if name == "operator" {
            return Actor::Operator;
        }
        let person = name.strip_prefix("key of ").unwrap_or(name);
        let id = if person == "locked admin" { "locked" } else { person };
        let account = self.admin.store.account(id).await.unwrap().unwrap();
        if name == person { Actor::Person(account) } else { key_actor(account) }
    }

    /// Newest line of the audit log: actor, action, subject, detail.
    pub(crate) async fn last_audit(&self) -> (String, String, String, String) {
        let audit = self.admin.store.audits(1).await.unwrap().remove(0);
        (audit.actor, audit.action, audit.subject, audit.detail)
    }

    pub(crate) async fn audit_count(&self) -> usize {
        self.admin.store.audits(9_999).await.unwrap().len()
    }
}

fn key_actor(account: Account) -> Actor {
    let record = KeyRecord {
        id: format!("key-{}", account.id),
        account_id: account.id.clone(),
        created_by: None,
        name: "admin key".to_owned(),
        scope: KeyScope::Admin,
        grants: store::KeyGrants::default(),
        hash: Vec::new(),
        old_hash: None,
        surface: None,
        old_until: None,
        cap: Some(canon::Money::ZERO),
        spent: canon::Money::ZERO,
        budget: None,
        models: Vec::new(),
        expires: None,
        revoked: None,
        limits: RateLimits::default(),
        ips: Vec::new(),
        bounds: store::KeyBounds::default(),
        created: Micros::new(1),
        changed: Micros::new(1),
        last_used: None,
    };
    Actor::Key { account, record: Box::new(record) }
}

pub(crate) fn password() -> HashedPassword {
    NewPassword::check("three harbour lights", &[]).unwrap().hash().unwrap()
}

/// One word for the result, for the tables of the tests.
pub(crate) fn outcome<T>(result: &Result<T, AdminError>) -> &'static str {
    match result {
        Ok(_) => "done",
        Err(AdminError::Forbidden(_)) => "forbidden",
        Err(AdminError::Invalid { .. }) => "invalid",
        Err(AdminError::NotFound(_)) => "not found",
        Err(AdminError::Stale | AdminError::Concurrent) => "stale",
        Err(AdminError::Conflict(_)) => "conflict",
        Err(AdminError::Store(_)) => "store",
        Err(AdminError::Internal(_)) => "internal",
    }
}

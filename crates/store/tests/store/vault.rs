//! The vault and the stored configuration: sealed rows, re-keying.

use std::path::PathBuf;
use std::sync::Arc;

use canon::Micros;
use store::{
    ConfigChange, ConfigEntry, ConfigEntryKind, ConfigSnapshot, Factor, FactorKind, RekeyCounts,
    SealedSecret, Store, StoredCredential, Vault, VaultError, VaultKeys,
};

use crate::on_both;
use crate::samples::{account, id};
use crate::test_database::TestDatabase;

const SECRET: &str = "sk-canary-4b1d7c";
/// 32 bytes each.
const OLD: &str = "old:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const NEW: &str = "new:ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=";

on_both!(
    stored_configuration_is_read_back,
    a_change_from_an_old_revision_is_refused,
    rekeying_seals_all_rows_again_and_deletes_old_keys,
    secrets_that_do_not_open_are_kept_and_counted,
    no_secret_is_lost_during_rekeying,
    an_unsealed_factor_is_sealed_once,
);

/// Returns the path of a key file that does not exist. The test that creates it removes it.
fn file() -> PathBuf {
    std::env::temp_dir().join(format!("portunus-vault-{}.key", uuid::Uuid::now_v7()))
}

fn given(keys: &[&str]) -> Vault {
    Vault::new(file(), Some(VaultKeys::read(&keys.join("\n")).unwrap()), true)
}

#[tokio::test]
async fn a_sealed_secret_opens_for_its_row_and_key_only() {
    let vault = given(&[OLD]);
    let sealed = vault.sealer().await.unwrap().seal("a", SECRET.as_bytes()).unwrap();
    assert_eq!(sealed.by, "old");
    assert_eq!(vault.open("a", &sealed).unwrap(), SECRET.as_bytes());
    assert_eq!(vault.open("b", &sealed), Err(VaultError::Corrupt), "another row");
    for place in 0..sealed.bytes.len() {
        let mut bytes = sealed.bytes.clone();
        bytes[place] ^= 1;
        let flipped = SealedSecret { by: sealed.by.clone(), bytes };
        assert_eq!(vault.open("a", &flipped), Err(VaultError::Corrupt), "byte {place}");
        let cut = SealedSecret { by: sealed.by.clone(), bytes: sealed.bytes[..place].to_vec() };
        assert_eq!(vault.open("a", &cut), Err(VaultError::Corrupt), "cut at {place}");
    }
    let other = given(&[NEW]);
    assert_eq!(other.open("a", &sealed), Err(VaultError::UnknownKey("old".to_owned())));
    let renamed = SealedSecret { by: "new".to_owned(), ..sealed.clone() };
    assert_eq!(other.open("a", &renamed), Err(VaultError::Corrupt), "another key");
    let both = given(&[NEW, OLD]);
    assert_eq!(both.open("a", &sealed).unwrap(), SECRET.as_bytes(), "an old key opens");
    let again = both.sealer().await.unwrap().seal("a", SECRET.as_bytes()).unwrap();
    assert_eq!(again.by, "new", "and the first seals");
    let twice = both.sealer().await.unwrap().seal("a", SECRET.as_bytes()).unwrap();
    assert_ne!(again, twice, "no two seals are alike");
    let shown = format!("{sealed:?} {vault:?}");
    assert!(!shown.contains(SECRET) && !shown.contains("AAECAwQF"), "{shown}");
}

#[test]
fn errors_about_keys_do_not_repeat_them() {
    let bare = OLD.strip_prefix("old:").unwrap();
    for good in [OLD, bare, bare.trim_end_matches('='), &format!("\n {NEW}\n\n{OLD}\n")] {
        assert!(VaultKeys::read(good).is_ok(), "{good}");
    }
    let twice = format!("{bare}\n{bare}");
    for bad in ["", "  \n", "short", "a b:c", "x:AAECAwQF", ":AAEC", &format!("ä:{bare}"), &twice]
    {
        let why = VaultKeys::read(bad).unwrap_err().to_string();
        assert!(!why.contains("AAEC"), "{why}");
    }
    assert!(!format!("{:?}", VaultKeys::read(OLD).unwrap()).contains("AAEC"));
}

#[tokio::test]
async fn a_managed_key_is_created_on_first_use_for_its_owner_only() {
    let file = file();
    let vault = Vault::new(file.clone(), None, false);
    assert!(!file.exists(), "it is not needed yet");
    let sealed = vault.sealer().await.unwrap().seal("a", b"x").unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let again = Vault::new(file.clone(), None, false);
    assert_eq!(again.open("a", &sealed).unwrap(), b"x", "after a restart");
    let given = Vault::new(file.clone(), Some(VaultKeys::read(NEW).unwrap()), true);
    assert_eq!(given.open("a", &sealed).unwrap(), b"x", "and once the operator gives another");
    assert_eq!(given.keys().0.as_deref(), Some("new"));
    let shared = Vault::new(file.clone(), None, true);
    let Err(VaultError::Unavailable(why)) = shared.sealer().await.map(|_| ()) else {
        panic!("sealed")
    };
    assert!(why.contains("`vault` of `[server]`"), "{why}");
    std::fs::write(&file, "nonsense").unwrap();
    let broken = Vault::new(file.clone(), None, false);
    assert!(matches!(broken.sealer().await.map(|_| ()), Err(VaultError::Unavailable(_))));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "nonsense", "it is not written over");
    std::fs::remove_file(file).unwrap();
}

fn provider(id: &str) -> ConfigChange {
    let settings = r#"{"speaks":"chat"}"#.to_owned();
    let (kind, id) = (ConfigEntryKind::Provider, id.to_owned());
    ConfigChange::Put(ConfigEntry {
        kind,
        id,
        settings,
        created: Micros::new(1),
        changed: Micros::new(1),
    })
}

async fn credential(vault: &Vault, provider: &str) -> StoredCredential {
    let unsealed = SealedSecret { by: String::new(), bytes: Vec::new() };
    let mut made = StoredCredential {
        id: id(),
        provider_id: provider.to_owned(),
        name: "main".to_owned(),
        place: "{}".to_owned(),
        sealed: unsealed,
        created: Micros::new(1),
    };
    made.sealed = vault.sealer().await.unwrap().seal(&made.label(), SECRET.as_bytes()).unwrap();
    made
}

async fn stored_configuration_is_read_back(database: Arc<TestDatabase>) {
    let store = database.open().await;
    assert_eq!(store.configured().await.unwrap(), ConfigSnapshot::default());
    let vault = given(&[OLD]);
    let (one, two) = (credential(&vault, "p").await, credential(&vault, "p").await);
    let other = credential(&vault, "q").await;
    let give = |one: &StoredCredential| ConfigChange::Give(one.clone());
    let all = [provider("p"), give(&one), give(&two), provider("q"), give(&other)];
    assert!(store.configure(0, &all).await.unwrap());
    let seen = store.configured().await.unwrap();
    assert_eq!((seen.revision, seen.entries.len(), seen.credentials.len()), (1, 2, 3));
    assert!(seen.credentials.contains(&one));
    assert!(store.configure(1, &[ConfigChange::Take(one.id.clone())]).await.unwrap());
    assert_eq!(store.configured_revision().await.unwrap(), 2);
    assert_eq!(store.configured().await.unwrap().credentials.len(), 2);
    let drop = ConfigChange::Drop(ConfigEntryKind::Provider, "p".to_owned());
    assert!(store.configure(2, &[drop, ConfigChange::TakeAll("q".to_owned())]).await.unwrap());
    let left = store.configured().await.unwrap();
    assert_eq!((left.entries.len(), left.credentials.len()), (1, 0), "all its credentials go too");
    store.close().await;
}

async fn a_change_from_an_old_revision_is_refused(database: Arc<TestDatabase>) {
    let stores = [database.open().await, database.open().await];
    for round in 0..10 {
        let mut tasks = tokio::task::JoinSet::new();
        for n in 0..4 {
            let store = stores[n % 2].clone();
            let name = format!("p{round}-{n}");
            tasks.spawn(async move { store.configure(round, &[provider(&name)]).await.unwrap() });
        }
        let made = tasks.join_all().await.into_iter().filter(|made| *made).count();
        assert_eq!(made, 1, "of all who saw one number, one goes on");
    }
    assert_eq!(stores[0].configured().await.unwrap().entries.len(), 10);
    for store in stores {
        store.close().await;
    }
}

/// Adds a code generator of an account, sealed or not.
async fn generator(store: &Store, vault: Option<&Vault>) -> Factor {
    let owner = account(&format!("user{}", id()));
    store.add_account(&owner).await.unwrap();
    let mut factor = Factor {
        id: id(),
        account_id: owner.id.clone(),
        kind: FactorKind::Totp,
        name: "App".to_owned(),
        secret: SECRET.as_bytes().to_vec(),
        sealed_by: None,
        counter: 0,
        created: Micros::new(1),
        used: None,
    };
    let mut sealer = None;
    if let Some(vault) = vault {
        let own = sealer.insert(vault.sealer().await.unwrap());
        let sealed = own.seal(&factor.label(), &factor.secret).unwrap();
        (factor.secret, factor.sealed_by) = (sealed.bytes, Some(sealed.by));
    }
    store.add_factor(&factor).await.unwrap();
    drop(sealer);
    factor
}

async fn rekeying_seals_all_rows_again_and_deletes_old_keys(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let file = file();
    let vault = Vault::new(file.clone(), None, false);
    // More than one batch.
    let mut changes = vec![provider("p")];
    for _ in 0..230 {
        changes.push(ConfigChange::Give(credential(&vault, "p").await));
    }
    assert!(store.configure(0, &changes).await.unwrap());
    let plain = generator(&store, None).await;
    let sealed = generator(&store, Some(&vault)).await;
    let (first, _) = vault.keys();
    let old = std::fs::read_to_string(&file).unwrap();
    assert_eq!(vault.rekey(&store).await.unwrap(), RekeyCounts { sealed: 232, left: 0 });
    let (second, keys) = vault.keys();
    assert_ne!(first, second);
    assert_eq!(keys.len(), 1, "the old key is gone");
    assert_eq!(store.sealed().await.unwrap(), [(second.unwrap(), 232)].into());
    // Read from the file alone, as after a restart. The old file opens nothing.
    let after = Vault::new(file.clone(), None, false);
    let before = Vault::new(file.with_extension("old"), VaultKeys::read(&old).ok(), false);
    std::fs::remove_file(file).unwrap();
    for credential in store.configured().await.unwrap().credentials {
        let opened = after.open(&credential.label(), &credential.sealed).unwrap();
        assert_eq!(opened, SECRET.as_bytes());
        assert!(before.open(&credential.label(), &credential.sealed).is_err());
    }
    for factor in [plain, sealed] {
        let factor = store.factor(&factor.id).await.unwrap().unwrap();
        let label = factor.label();
        let sealed = SealedSecret { by: factor.sealed_by.unwrap(), bytes: factor.secret };
        assert_eq!(after.open(&label, &sealed).unwrap(), SECRET.as_bytes());
    }
    store.close().await;
}

async fn secrets_that_do_not_open_are_kept_and_counted(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let (mine, other) = (given(&[NEW]), given(&[OLD]));
    let foreign = credential(&other, "p").await;
    let own = credential(&given(&[NEW]), "p").await;
    let changes = [provider("p"), ConfigChange::Give(foreign.clone()), ConfigChange::Give(own)];
    assert!(store.configure(0, &changes).await.unwrap());
    assert_eq!(mine.rekey(&store).await.unwrap(), RekeyCounts { sealed: 0, left: 1 });
    assert!(store.configured().await.unwrap().credentials.contains(&foreign));
    let both = given(&[NEW, OLD]);
    assert_eq!(both.rekey(&store).await.unwrap(), RekeyCounts { sealed: 1, left: 0 });
    assert_eq!(store.sealed().await.unwrap(), [("new".to_owned(), 2)].into());
    let shut = Vault::new(file(), None, true);
    assert!(matches!(shut.rekey(&store).await, Err(VaultError::Unavailable(_))));
    store.close().await;
}

async fn no_secret_is_lost_during_rekeying(database: Arc<TestDatabase>) {
    let (store, file) = (database.open().await, file());
    let vault = Arc::new(Vault::new(file.clone(), None, false));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (store, vault) = (store.clone(), Arc::clone(&vault));
        tasks.spawn(async move {
            let mut made = Vec::new();
            for _ in 0..15 {
                made.push(generator(&store, Some(&vault)).await.id);
            }
            made
        });
    }
    let mut made = Vec::new();
    while !tasks.is_empty() {
        while let Some(done) = tasks.try_join_next() {
            made.extend(done.unwrap());
        }
        vault.rekey(&store).await.unwrap();
    }
    assert_eq!(made.len(), 60);
    let after = Vault::new(file.clone(), None, false);
    std::fs::remove_file(file).unwrap();
    assert_eq!(after.keys().1.len(), 1);
    for id in made {
        let factor = store.factor(&id).await.unwrap().unwrap();
        let label = factor.label();
        let sealed = SealedSecret { by: factor.sealed_by.unwrap(), bytes: factor.secret };
        assert_eq!(after.open(&label, &sealed).unwrap(), SECRET.as_bytes());
    }
    store.close().await;
}

async fn an_unsealed_factor_is_sealed_once(database: Arc<TestDatabase>) {
    let (store, vault) = (database.open().await, given(&[OLD]));
    let factor = generator(&store, None).await;
    let sealed = vault.sealer().await.unwrap().seal(&factor.label(), &factor.secret).unwrap();
    assert!(store.seal_factor(&factor.id, &sealed).await.unwrap());
    assert!(!store.seal_factor(&factor.id, &sealed).await.unwrap());
    let now = store.factor(&factor.id).await.unwrap().unwrap();
    assert_eq!((now.secret, now.sealed_by), (sealed.bytes, Some("old".to_owned())));
    store.close().await;
}

//! Accounts and sessions.

use std::sync::Arc;

use canon::Micros;
use store::{Account, AccountRole, KnownDevice, PersonChange, Session, StoreError};
use tokio::task::JoinSet;

use crate::on_both;
use crate::samples::{account, id};
use crate::test_database::TestDatabase;

on_both!(
    an_account_is_stored_completely,
    a_login_is_found_in_any_case,
    a_login_is_unique_across_usernames_and_addresses,
    one_of_many_concurrent_requests_gets_a_username,
    an_account_can_be_edited,
    owners_who_demote_each_other_leave_one,
    a_renamed_account_is_found_by_its_new_names_only,
    a_session_leads_to_its_account,
    sessions_end_one_by_one_by_account_and_by_time,
    known_devices_move_are_bounded_and_end_with_the_account,
);

async fn known_devices_move_are_bounded_and_end_with_the_account(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let (anna, bert) = (account("anna"), account("bert"));
    for account in [&anna, &bert] {
        store.add_account(account).await.unwrap();
    }
    let remember = async |n: u8, replaces: Option<u8>, account: &Account, seen: i64, since: i64| {
        let (hash, old) = ([n; 32], replaces.map(|old| [old; 32]));
        let device = KnownDevice {
            hash: &hash,
            replaces: old.as_ref().map(<[u8; 32]>::as_slice),
            account_id: &account.id,
            seen: Micros::new(seen),
        };
        store.remember_device(device, 3, Micros::new(since)).await
    };
    let seen = async |n: u8, account: &Account| {
        store.device_seen(&[n; 32], &account.id).await.unwrap().map(Micros::get)
    };
    remember(1, None, &anna, 10, 0).await.unwrap();
    remember(2, Some(1), &bert, 20, 0).await.unwrap();
    assert_eq!(
        (seen(1, &anna).await, seen(2, &anna).await, seen(2, &bert).await),
        (None, Some(10), Some(20))
    );
    remember(2, Some(2), &bert, 21, 0).await.unwrap();
    assert_eq!(seen(2, &bert).await, Some(21));
    for n in 3..=5 {
        remember(n, None, &anna, i64::from(n) * 10, 0).await.unwrap();
    }
    assert_eq!((seen(2, &anna).await, seen(3, &anna).await), (None, Some(30)), "the latest three");
    remember(6, None, &bert, 60, 31).await.unwrap();
    assert_eq!((seen(2, &bert).await, seen(3, &anna).await), (None, None), "the old ones go");
    assert!(matches!(
        remember(7, None, &account("nobody"), 70, 0).await,
        Err(StoreError::Missing(_))
    ));
    store.set_password(&anna.id, None, Micros::new(80)).await.unwrap();
    assert_eq!((seen(4, &anna).await, seen(6, &bert).await), (None, Some(60)));
    store.drop_sessions_of(&bert.id).await.unwrap();
    assert_eq!(seen(6, &bert).await, None);
    store.close().await;
}

async fn an_account_is_stored_completely(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let mut added = Vec::new();
    for (n, role) in AccountRole::ALL.into_iter().enumerate() {
        let account = Account {
            role,
            email: (n % 2 == 0).then(|| format!("Mail{n}@Example.com")),
            password_hash: (n % 2 == 1).then(|| "hash".to_owned()),
            disabled: n == 3,
            created: Micros::new(n as i64),
            ..account(&format!("Name {n}"))
        };
        store.add_account(&account).await.unwrap();
        assert_eq!(store.account(&account.id).await.unwrap(), Some(account.clone()));
        added.push(account);
    }
    assert_eq!(store.accounts().await.unwrap(), added);
    assert_eq!(store.account_count().await.unwrap(), 4);
    assert_eq!(store.account("nobody").await.unwrap(), None);
    store.close().await;
}

async fn a_login_is_found_in_any_case(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let ada = Account { email: Some("Ada@Example.COM".to_owned()), ..account("ÄdaLovelace") };
    store.add_account(&ada).await.unwrap();
    for login in ["ÄdaLovelace", "ädalovelace", "ÄDALOVELACE", "ada@example.com", "ADA@example.com"]
    {
        let found = store.account_by_login(login).await.unwrap();
        assert_eq!(found.as_ref(), Some(&ada), "{login}");
    }
    for login in ["", "ada", "ada@example.co", "%", "\0"] {
        assert_eq!(store.account_by_login(login).await.unwrap(), None, "{login}");
    }
    store.close().await;
}

async fn a_login_is_unique_across_usernames_and_addresses(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let bob = Account { email: Some("bob@example.com".to_owned()), ..account("bob") };
    store.add_account(&bob).await.unwrap();
    let with = |username: &str, email: Option<&str>| Account {
        email: email.map(str::to_owned),
        ..account(username)
    };
    for other in [
        with("BOB", None),
        with("eve", Some("Bob@Example.com")),
        with("BOB@example.com", None),
        with("eve", Some("bob")),
    ] {
        let error = store.add_account(&other).await.unwrap_err();
        assert_eq!(error, StoreError::Conflict("username or email"), "{other:?}");
        assert_eq!(store.account(&other.id).await.unwrap(), None, "nothing stays behind");
    }
    let same_id = Account { id: bob.id.clone(), ..account("carol") };
    assert_eq!(store.add_account(&same_id).await.unwrap_err(), StoreError::Conflict("account id"));
    store.add_account(&with("dan@example.com", Some("DAN@example.com"))).await.unwrap();
    assert_eq!(store.account_count().await.unwrap(), 2);
    store.close().await;
}

async fn one_of_many_concurrent_requests_gets_a_username(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let mut tasks = JoinSet::new();
    for n in 0..8 {
        let store = store.clone();
        // Half of them request the two logins in the opposite order.
        let (username, email) = if n % 2 == 0 { ("one", "two") } else { ("two", "one") };
        let account = Account { email: Some(email.to_owned()), ..account(username) };
        tasks.spawn(async move { store.add_account(&account).await });
    }
    let outcomes = tasks.join_all().await;
    assert_eq!(outcomes.iter().filter(|o| o.is_ok()).count(), 1, "{outcomes:?}");
    assert!(
        outcomes
            .iter()
            .flat_map(|o| o.as_ref().err())
            .all(|e| matches!(e, StoreError::Conflict("username or email")))
    );
    store.close().await;
}

async fn owners_who_demote_each_other_leave_one(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let mut owners = Vec::new();
    for name in ["ada", "bob", "cleo"] {
        let owner = Account { role: AccountRole::Owner, ..account(name) };
        store.add_account(&owner).await.unwrap();
        owners.push(owner.id);
    }
    let mut changes = JoinSet::new();
    for (n, id) in owners.into_iter().enumerate() {
        let store = database.open().await;
        changes.spawn(async move {
            let (role, lock) = match n {
                0 => (Some(AccountRole::Member), None),
                1 => (None, Some(true)),
                _ => (Some(AccountRole::Admin), Some(true)),
            };
            let outcome = store.change_person(&id, role, lock, Micros::new(3)).await;
            store.close().await;
            outcome.unwrap()
        });
    }
    let mut outcomes = changes.join_all().await;
    outcomes.sort_by_key(|outcome| *outcome == PersonChange::LastOwner);
    assert_eq!(outcomes, [PersonChange::Done, PersonChange::Done, PersonChange::LastOwner]);
    let accounts = store.accounts().await.unwrap();
    let owns = |one: &&Account| one.role == AccountRole::Owner && !one.disabled;
    assert_eq!(accounts.iter().filter(owns).count(), 1);
    store.close().await;
}

async fn a_renamed_account_is_found_by_its_new_names_only(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let bob = Account { email: Some("bob@example.com".to_owned()), ..account("bob") };
    let eve = account("eve");
    store.add_account(&bob).await.unwrap();
    store.add_account(&eve).await.unwrap();
    assert!(store.rename_account(&bob.id, "Robert", None, Micros::new(9)).await.unwrap());
    for gone in ["bob", "bob@example.com"] {
        assert_eq!(store.account_by_login(gone).await.unwrap(), None);
    }
    let found = store.account_by_login("robert").await.unwrap().unwrap();
    assert_eq!((found.id, found.email, found.changed), (bob.id.clone(), None, Micros::new(9)));
    let taken = store.rename_account(&bob.id, "x", Some("EVE"), Micros::new(10)).await;
    assert_eq!(taken.unwrap_err(), StoreError::Conflict("username or email"));
    assert!(store.account_by_login("robert").await.unwrap().is_some(), "nothing half-done stays");
    assert!(!store.rename_account("nobody", "x", None, Micros::new(11)).await.unwrap());
    store.close().await;
}

async fn an_account_can_be_edited(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let mut account = account("ada");
    store.add_account(&account).await.unwrap();
    assert!(store.set_password(&account.id, Some("new"), Micros::new(5)).await.unwrap());
    account.password_hash = Some("new".to_owned());
    account.changed = Micros::new(5);
    assert_eq!(store.account(&account.id).await.unwrap(), Some(account.clone()));
    assert!(store.set_disabled(&account.id, true, Micros::new(6)).await.unwrap());
    let promoted = store.change_person(&account.id, Some(AccountRole::Owner), None, Micros::new(7));
    assert_eq!(promoted.await.unwrap(), PersonChange::Done);
    assert!(store.set_password(&account.id, None, Micros::new(8)).await.unwrap());
    account = Account {
        disabled: true,
        role: AccountRole::Owner,
        password_hash: None,
        changed: Micros::new(8),
        ..account
    };
    assert_eq!(store.account(&account.id).await.unwrap(), Some(account));
    assert!(!store.set_password("nobody", None, Micros::new(9)).await.unwrap());
    assert!(!store.set_disabled("nobody", true, Micros::new(9)).await.unwrap());
    let missing = store.change_person("nobody", Some(AccountRole::Owner), None, Micros::new(9));
    assert_eq!(missing.await.unwrap(), PersonChange::Missing);
    store.close().await;
}

fn session(account: &Account, n: u8) -> Session {
    Session {
        hash: vec![n, 0, 255],
        account_id: account.id.clone(),
        created: Micros::new(1),
        expires: Micros::new(i64::from(n) * 100),
        seen: Micros::new(1),
    }
}

async fn a_session_leads_to_its_account(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let account = Account { created: Micros::new(77), changed: Micros::new(78), ..account("ada") };
    store.add_account(&account).await.unwrap();
    let mut session = session(&account, 1);
    store.add_session(&session).await.unwrap();
    assert_eq!(
        store.session(&session.hash).await.unwrap(),
        Some((session.clone(), account.clone()))
    );
    assert_eq!(store.session(b"other").await.unwrap(), None);
    store.touch_session(&session.hash, Micros::new(50)).await.unwrap();
    store.touch_session(&session.hash, Micros::new(40)).await.unwrap();
    session.seen = Micros::new(50);
    assert_eq!(store.session(&session.hash).await.unwrap(), Some((session.clone(), account)));
    assert_eq!(store.add_session(&session).await.unwrap_err(), StoreError::Conflict("session"));
    let orphan = Session { hash: vec![9], account_id: id(), ..session };
    assert_eq!(store.add_session(&orphan).await.unwrap_err(), StoreError::Missing("account"));
    store.close().await;
}

async fn sessions_end_one_by_one_by_account_and_by_time(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let (ada, bob) = (account("ada"), account("bob"));
    for account in [&ada, &bob] {
        store.add_account(account).await.unwrap();
    }
    for n in 1..=4 {
        store.add_session(&session(&ada, n)).await.unwrap();
    }
    store.add_session(&session(&bob, 5)).await.unwrap();
    assert!(store.drop_session(&session(&ada, 1).hash).await.unwrap());
    assert!(!store.drop_session(&session(&ada, 1).hash).await.unwrap());
    assert_eq!(store.drop_expired_sessions(Micros::new(200)).await.unwrap(), 1);
    assert_eq!(store.drop_sessions_of(&ada.id).await.unwrap(), 2);
    assert_eq!(store.drop_sessions_of(&ada.id).await.unwrap(), 0);
    assert!(store.session(&session(&bob, 5).hash).await.unwrap().is_some());
    store.close().await;
}

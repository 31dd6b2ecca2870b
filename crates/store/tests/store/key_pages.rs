//! Pages of keys: those of a selection, in an order, each once.

use std::cmp::Reverse;
use std::sync::Arc;

use canon::{Micros, Money};
use store::{KeyOrder, KeyRecord, KeySelection, KeyStanding, Store};

use crate::on_both;
use crate::samples::{account, entry, key};
use crate::test_database::TestDatabase;

on_both!(
    pages_are_the_selected_keys_in_order,
    a_text_is_found_as_it_is_written,
    the_case_of_letters_does_not_count,
    keys_of_a_locked_person_are_revoked_ones,
);

const NOW: Micros = Micros::new(1_000);
const KEYS: i64 = 90;

/// Adds keys of three owners with all kinds of standing.
async fn some_keys(store: &Store) {
    for owner in ["Ada", "bob", "cyd"] {
        store.add_account(&account(owner)).await.unwrap();
    }
    let owners = store.accounts().await.unwrap();
    for number in 0..KEYS {
        let at = |choices: &[Option<i64>], step: i64| {
            choices[usize::try_from(number / step).unwrap() % choices.len()]
        };
        let owner = &owners[usize::try_from(number).unwrap() % owners.len()];
        let added = KeyRecord {
            id: format!("k{number:03}"),
            name: format!(
                "{} {}",
                ["Shop", "shop", "agent", "test"][number as usize % 4],
                number % 10
            ),
            cap: at(&[None, Some(100), Some(4), Some(0)], 3).map(Money::from_nanos),
            expires: at(&[None, Some(999), Some(1_000), Some(1_001), None], 2).map(Micros::new),
            revoked: at(&[None, None, None, Some(7)], 5).map(Micros::new),
            created: Micros::new(number / 2),
            ..key(&owner.id)
        };
        store.add_key(&added).await.unwrap();
        let cost = at(&[Some(0), Some(79), Some(80), Some(100), Some(3), Some(120)], 1).unwrap();
        if cost > 0 {
            let call = entry(&format!("r{number}"), &added, cost, 20 + number % 9);
            store.post(&[call]).await.unwrap();
        }
    }
}

fn sorted(mut keys: Vec<KeyRecord>, order: KeyOrder) -> Vec<KeyRecord> {
    let newest = |key: &KeyRecord| Reverse((key.created, key.id.clone()));
    match order {
        KeyOrder::Standing => keys.sort_by_key(|key| (KeyStanding::of(key, NOW), newest(key))),
        KeyOrder::Name => {
            keys.sort_by_key(|key| (key.name.to_lowercase(), key.name.clone(), newest(key)));
        }
        KeyOrder::Spent => keys.sort_by_key(|key| (Reverse(key.spent), newest(key))),
        KeyOrder::LastUse => keys.sort_by_key(|key| (Reverse(key.last_used), newest(key))),
        KeyOrder::Created => keys.sort_by_key(newest),
        KeyOrder::Oldest => keys.sort_by_key(|key| Reverse(newest(key))),
    }
    keys
}

async fn pages_are_the_selected_keys_in_order(database: Arc<TestDatabase>) {
    let store = database.open().await;
    some_keys(&store).await;
    let owners = store.accounts().await.unwrap();
    let ada = owners.iter().find(|owner| owner.username == "Ada").unwrap();
    let all = store.keys().await.unwrap();
    let standings = KeyStanding::ALL.into_iter().map(Some).chain([None]);
    let mut seen = 0;
    for standing in standings {
        for (account_id, text) in
            [(None, None), (Some(&ada.id), None), (None, Some("SHOP")), (None, Some("da"))]
        {
            let matches = |key: &&KeyRecord| {
                account_id.is_none_or(|account| key.account_id == *account)
                    && match text {
                        Some("SHOP") => key.name.to_lowercase().contains("shop"),
                        Some(_) => key.account_id == ada.id,
                        None => true,
                    }
            };
            let of_all: Vec<KeyRecord> = all.iter().filter(matches).cloned().collect();
            let count = |one: KeyStanding| {
                of_all.iter().filter(|key| KeyStanding::of(key, NOW) == one).count() as u64
            };
            let selection = KeySelection {
                account_id: account_id.cloned(),
                text: text.map(str::to_owned),
                standing,
            };
            let mut wanted = of_all.clone();
            wanted.retain(|key| standing.is_none_or(|one| KeyStanding::of(key, NOW) == one));
            for order in KeyOrder::ALL {
                let mut got = Vec::new();
                loop {
                    let start = got.len() as u64;
                    let page = store.key_page(&selection, order, (start, 7), NOW).await.unwrap();
                    assert_eq!(page.counts, KeyStanding::ALL.map(count));
                    assert_eq!(page.spent, of_all.iter().map(|key| key.spent).sum());
                    assert_eq!(page.total(standing), wanted.len() as u64);
                    assert!(page.keys.len() <= 7);
                    if page.keys.is_empty() {
                        break;
                    }
                    got.extend(page.keys);
                }
                assert_eq!(got, sorted(wanted.clone(), order), "{selection:?} {order:?}");
                seen += got.len();
            }
        }
    }
    assert!(seen > 1_000, "the selections are not empty: {seen}");
    store.close().await;
}

async fn a_text_is_found_as_it_is_written(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let owner = account("owner");
    store.add_account(&owner).await.unwrap();
    for name in ["50%", "50 x", "a_b", "aXb", "c\\d", "Ärger"] {
        let named = KeyRecord { name: name.to_owned(), ..key(&owner.id) };
        store.add_key(&named).await.unwrap();
    }
    for (text, found) in
        [("50%", "50%"), ("a_b", "a_b"), ("\\", "c\\d"), ("Är", "Ärger"), ("RGER", "Ärger")]
    {
        let selection = KeySelection { text: Some(text.to_owned()), ..KeySelection::default() };
        let page = store.key_page(&selection, KeyOrder::Name, (0, 9), NOW).await.unwrap();
        let names: Vec<&str> = page.keys.iter().map(|key| key.name.as_str()).collect();
        assert_eq!(names, [found], "{text}");
    }
    store.close().await;
}

async fn the_case_of_letters_does_not_count(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let team = account("Küste");
    store.add_account(&team).await.unwrap();
    let names =
        ["ÄPFEL und Birnen", "Äpfel", "äpfel 3", "КЛЮЧ", "Ключ", "ключ", "σίσυφος", "50%", "日本"];
    for name in names {
        let named = KeyRecord { name: name.to_owned(), ..key(&team.id) };
        store.add_key(&named).await.unwrap();
    }
    let long: String = ('\u{400}'..='\u{4ff}').cycle().take(2_000).collect();
    for (text, count) in [
        ("äpfel", 3),
        ("ÄPFEL", 3),
        ("äPFEL UND b", 1),
        ("кЛюч", 3),
        ("ΣΊΣΥΦΟς", 1),
        ("σίσυφος", 1),
        ("本", 1),
        ("0%", 1),
        ("É", 0),
        ("KÜSTE", names.len()),
        (&long, 0),
    ] {
        let selection = KeySelection { text: Some(text.to_owned()), ..KeySelection::default() };
        let page = store.key_page(&selection, KeyOrder::Name, (0, 99), NOW).await.unwrap();
        assert_eq!(page.keys.len(), count, "{text}");
    }
    store.close().await;
}

async fn keys_of_a_locked_person_are_revoked_ones(database: Arc<TestDatabase>) {
    let store = database.open().await;
    some_keys(&store).await;
    let owner = store.accounts().await.unwrap().remove(0);
    store.set_disabled(&owner.id, true, Micros::new(50)).await.unwrap();
    let selection = KeySelection { account_id: Some(owner.id), ..KeySelection::default() };
    let page = store.key_page(&selection, KeyOrder::Created, (0, 99), NOW).await.unwrap();
    assert_eq!(page.counts, [0, 0, 0, 0, 30]);
    assert!(page.keys.iter().all(|key| KeyStanding::of(key, NOW) == KeyStanding::Revoked));
    store.close().await;
}

//! Pages of people: those of a selection, in an order, each once, with what their keys spent.

use std::cmp::Reverse;
use std::sync::Arc;

use canon::{Micros, Money};
use store::{KeyRecord, PersonOrder, PersonSelection, PersonSummary, Store};

use crate::on_both;
use crate::samples::{account, entry, key};
use crate::test_database::TestDatabase;

on_both!(pages_are_the_selected_people_in_order);

async fn some_people(store: &Store) -> Vec<PersonSummary> {
    let mut people = Vec::new();
    for number in 0..40_i64 {
        let mut person = account(&format!("{}{number:02}", ["Ada", "bob"][number as usize % 2]));
        person.email = (number % 3 == 0).then(|| format!("p{number}@shop.example"));
        person.created = Micros::new(number / 3);
        person.disabled = number % 7 == 0;
        store.add_account(&person).await.unwrap();
        let mut summary =
            PersonSummary { account: person, keys: 0, spent: Money::ZERO, last_used: None };
        for own in 0..number % 4 {
            let id = format!("k{number}-{own}");
            let added = KeyRecord { id: id.clone(), ..key(&summary.account.id) };
            store.add_key(&added).await.unwrap();
            summary.keys += 1;
            let (cost, ended) = (number * 10 % 70 + own, 20 + number % 5);
            store.post(&[entry(&id, &added, cost, ended)]).await.unwrap();
            summary.spent = summary.spent.saturating_add(Money::from_nanos(cost));
            summary.last_used = summary.last_used.max(Some(Micros::new(ended)));
        }
        people.push(summary);
    }
    // Its keys are not those of a person, and it is on no page.
    let team = store::Team {
        id: "team".to_owned(),
        name: "Ada's team".to_owned(),
        disabled: false,
        created: Micros::ZERO,
        changed: Micros::ZERO,
    };
    store.add_team(&team).await.unwrap();
    people
}

fn sorted(mut people: Vec<PersonSummary>, order: PersonOrder) -> Vec<PersonSummary> {
    let newest = |one: &PersonSummary| Reverse((one.account.created, one.account.id.clone()));
    match order {
        PersonOrder::Name => people.sort_by_key(|one| one.account.username.to_lowercase()),
        PersonOrder::Spent => people.sort_by_key(|one| (Reverse(one.spent), newest(one))),
        PersonOrder::LastUse => people.sort_by_key(|one| (Reverse(one.last_used), newest(one))),
        PersonOrder::Created => people.sort_by_key(newest),
    }
    people
}

async fn pages_are_the_selected_people_in_order(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let all = some_people(&store).await;
    for (text, disabled) in [
        (None, None),
        (Some("ada"), None),
        (Some("SHOP.example"), Some(false)),
        (None, Some(true)),
        (Some("nobody"), None),
    ] {
        let has_text = |one: &&PersonSummary| {
            let email = one.account.email.clone().unwrap_or_default();
            let own = format!("{}\n{email}", one.account.username).to_lowercase();
            text.is_none_or(|text: &str| own.contains(&text.to_lowercase()))
        };
        let found: Vec<PersonSummary> = all.iter().filter(has_text).cloned().collect();
        let mut wanted = found.clone();
        wanted.retain(|one| disabled.is_none_or(|locked| one.account.disabled == locked));
        let selection = PersonSelection { text: text.map(str::to_owned), disabled };
        for order in PersonOrder::ALL {
            let mut got = Vec::new();
            loop {
                let page =
                    store.person_page(&selection, order, (got.len() as u64, 7)).await.unwrap();
                let locked = found.iter().filter(|one| one.account.disabled).count() as u64;
                assert_eq!((page.locked, page.active), (locked, found.len() as u64 - locked));
                assert_eq!(page.total(disabled), wanted.len() as u64);
                if page.people.is_empty() {
                    break;
                }
                got.extend(page.people);
            }
            assert_eq!(got, sorted(wanted.clone(), order), "{selection:?} {order:?}");
        }
    }
    store.close().await;
}

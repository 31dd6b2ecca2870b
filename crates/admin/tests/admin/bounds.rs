//! Bounds: what an administrator set on a key, an account or a team may be lowered by its people,
//! never raised.

use admin::{Actor, AdminError, KeyChange, KeyDraft, ReadVersion, TeamChange};
use canon::{Micros, Money};
use ledger::BudgetPeriod;
use store::{AccountTerms, BudgetTerms, KeyOwner, KeyRecord, KeyScope, RateLimits, TeamRole};

use crate::fixture::{Fixture, outcome};

const READ: ReadVersion<'static> = ReadVersion(None);

fn usd(text: &str) -> Money {
    text.parse().unwrap()
}

fn day(limit: &str) -> BudgetTerms {
    BudgetTerms { limit: usd(limit), period: BudgetPeriod::Day }
}

fn texts(list: &[&str]) -> Vec<String> {
    list.iter().map(|text| (*text).to_owned()).collect()
}

/// A key with every limit.
fn limited(now: Micros) -> KeyDraft {
    KeyDraft {
        scope: KeyScope::Call,
        grants: store::KeyGrants::default(),
        name: "k".to_owned(),
        cap: Some(usd("5")),
        models: texts(&["a", "b"]),
        expires: Some(now + Micros::from_days(10)),
        limits: RateLimits { rpm: Some(10), tpm: Some(100), concurrency: Some(4) },
        ips: texts(&["10.0.0.0/8"]),
        budget: Some(day("1")),
    }
}

/// Changes that raise a limit of [`limited`], with the field that is named in the refusal.
fn raises(now: Micros) -> Vec<(&'static str, KeyChange)> {
    let limits = |rpm, tpm, concurrency| KeyChange {
        limits: Some(RateLimits { rpm, tpm, concurrency }),
        ..KeyChange::default()
    };
    let with = |change: KeyChange| change;
    vec![
        ("cap_usd", with(KeyChange { cap: Some(Some(usd("6"))), ..KeyChange::default() })),
        ("cap_usd", with(KeyChange { cap: Some(None), ..KeyChange::default() })),
        ("budget", with(KeyChange { budget: Some(None), ..KeyChange::default() })),
        ("budget", with(KeyChange { budget: Some(Some(day("2"))), ..KeyChange::default() })),
        ("models", with(KeyChange { models: Some(Vec::new()), ..KeyChange::default() })),
        ("models", with(KeyChange { models: Some(texts(&["a", "c"])), ..KeyChange::default() })),
        ("expires_in", with(KeyChange { expires: Some(None), ..KeyChange::default() })),
        (
            "expires_in",
            with(KeyChange {
                expires: Some(Some(now + Micros::from_days(11))),
                ..KeyChange::default()
            }),
        ),
        ("limits.rpm", limits(None, Some(100), Some(4))),
        ("limits.tpm", limits(Some(10), Some(101), Some(4))),
        ("limits.concurrency", limits(Some(10), Some(100), None)),
        ("ips", with(KeyChange { ips: Some(Vec::new()), ..KeyChange::default() })),
        ("ips", with(KeyChange { ips: Some(texts(&["10.0.0.0/7"])), ..KeyChange::default() })),
    ]
}

fn lowered(now: Micros) -> KeyChange {
    KeyChange {
        name: Some("lower".to_owned()),
        cap: Some(Some(usd("4"))),
        models: Some(texts(&["b"])),
        expires: Some(Some(now + Micros::from_days(1))),
        limits: Some(RateLimits { rpm: Some(1), tpm: Some(1), concurrency: Some(1) }),
        ips: Some(texts(&["10.1.0.0/16"])),
        budget: Some(Some(day("0.5"))),
    }
}

async fn key_of(fixture: &Fixture, maker: &Actor, owner: &KeyOwner) -> KeyRecord {
    let draft = limited(fixture.admin.now());
    fixture.admin.create_key(maker, owner, draft).await.unwrap().record
}

/// Tries every raise of a limited key, then lowers it and raises it back to its bounds.
async fn assert_bound(fixture: &Fixture, actor: &Actor, key: &KeyRecord, cell: &str) {
    let (admin, now) = (&fixture.admin, fixture.admin.now());
    for (field, change) in raises(now) {
        let refused = match admin.change_key(actor, &key.id, READ, change).await {
            Err(AdminError::Forbidden(message)) => message,
            other => format!("{other:?}"),
        };
        assert!(refused.starts_with(&format!("`{field}` was set")), "{cell}: {refused}");
    }
    assert_eq!(admin.store.key(&key.id).await.unwrap().as_ref(), Some(key), "{cell}");
    let low = admin.change_key(actor, &key.id, READ, lowered(now)).await;
    assert_eq!(outcome(&low), "done", "{cell}");
    let back = KeyChange { cap: Some(Some(usd("5"))), ..KeyChange::default() };
    let back = admin.change_key(actor, &key.id, READ, back).await.unwrap();
    assert_eq!((back.cap, &back.bounds), (Some(usd("5")), &key.bounds), "{cell}");
}

#[tokio::test]
async fn members_lower_the_limits_that_an_administrator_set_and_never_raise_them() {
    let fixture = Fixture::new().await;
    let admin = &fixture.admin;
    let member = fixture.actor("member").await;
    let owner = admin.store.owner("member").await.unwrap().unwrap();
    for maker in ["operator", "owner", "admin"] {
        let key = key_of(&fixture, &fixture.actor(maker).await, &owner).await;
        assert_bound(&fixture, &member, &key, &format!("member, key by {maker}")).await;
    }
    // A key of the member alone is free until an administrator sets a limit, and then only there.
    let own = key_of(&fixture, &member, &owner).await;
    assert!(own.bounds.is_none());
    let raise = |cap: &str| KeyChange { cap: Some(Some(usd(cap))), ..KeyChange::default() };
    assert_eq!(outcome(&admin.change_key(&member, &own.id, READ, raise("50")).await), "done");
    let named = KeyChange { name: Some("renamed".to_owned()), ..KeyChange::default() };
    let boss = fixture.actor("admin").await;
    let named = admin.change_key(&boss, &own.id, READ, named).await.unwrap();
    assert!(named.bounds.is_none(), "a name binds nothing");
    admin.change_key(&boss, &own.id, READ, raise("20")).await.unwrap();
    assert_eq!(outcome(&admin.change_key(&member, &own.id, READ, raise("21")).await), "forbidden");
    let free = KeyChange { models: Some(Vec::new()), ..KeyChange::default() };
    assert_eq!(outcome(&admin.change_key(&member, &own.id, READ, free).await), "done");
    // An administrator lifts the bound again.
    let lift = KeyChange { cap: Some(None), ..KeyChange::default() };
    admin.change_key(&boss, &own.id, READ, lift).await.unwrap();
    assert_eq!(outcome(&admin.change_key(&member, &own.id, READ, raise("99")).await), "done");
}

#[tokio::test]
async fn members_and_managers_of_a_team_stay_within_the_limits_of_its_keys() {
    let fixture = Fixture::new().await;
    let admin = &fixture.admin;
    let change = TeamChange { name: Some("Crew".to_owned()), ..TeamChange::default() };
    let team = admin.create_team(&Actor::Operator, change).await.unwrap().team;
    admin.set_member(&Actor::Operator, &team.id, "member", READ, TeamRole::Manager).await.unwrap();
    let (member, owner) = (fixture.actor("member").await, KeyOwner::Team(team));
    for maker in ["operator", "owner", "admin"] {
        let key = key_of(&fixture, &fixture.actor(maker).await, &owner).await;
        assert_bound(&fixture, &member, &key, &format!("manager, key by {maker}")).await;
    }
}

#[tokio::test]
async fn administrators_do_not_lift_what_an_owner_set_on_them() {
    let fixture = Fixture::new().await;
    let admin = &fixture.admin;
    let account = admin.store.owner("admin").await.unwrap().unwrap();
    let key = key_of(&fixture, &fixture.actor("owner").await, &account).await;
    assert_bound(&fixture, &fixture.actor("admin").await, &key, "admin, key by owner").await;
    assert_bound(
        &fixture,
        &fixture.actor("key of admin").await,
        &key_of(&fixture, &Actor::Operator, &account).await,
        "key of admin",
    )
    .await;

    let limits = RateLimits { rpm: Some(5), ..RateLimits::default() };
    let terms = AccountTerms {
        cap: Some(usd("5")),
        budget: Some(day("1")),
        models: texts(&["a"]),
        ..AccountTerms::default()
    };
    let set = async |actor: &str, terms: &AccountTerms, limits| {
        let actor = fixture.actor(actor).await;
        outcome(&admin.set_account_terms(&actor, "admin", READ, terms.clone(), limits).await)
    };
    assert_eq!(set("owner", &terms, limits).await, "done");
    for actor in ["admin", "key of admin"] {
        let none = RateLimits::default();
        assert_eq!(set(actor, &terms, none).await, "forbidden", "{actor}");
        for raised in [
            AccountTerms { cap: None, ..terms.clone() },
            AccountTerms { cap: Some(usd("6")), ..terms.clone() },
            AccountTerms { budget: None, ..terms.clone() },
            AccountTerms { models: Vec::new(), ..terms.clone() },
            AccountTerms { models: texts(&["a", "b"]), ..terms.clone() },
        ] {
            assert_eq!(set(actor, &raised, limits).await, "forbidden", "{actor}: {raised:?}");
        }
        let view = admin.account_terms(&Actor::Operator, "admin").await.unwrap();
        assert_eq!((&view.terms, view.limits), (&terms, limits), "{actor}");
    }
    // A team has terms of its own, so the administrator's terms bind those too.
    let free = TeamChange { name: Some("Crew".to_owned()), ..TeamChange::default() };
    let bound = TeamChange {
        cap: Some(Some(usd("5"))),
        budget: Some(Some(day("1"))),
        models: Some(texts(&["a"])),
        limits: Some(limits),
        ..free.clone()
    };
    for name in ["admin", "key of admin"] {
        let actor = fixture.actor(name).await;
        assert_eq!(outcome(&admin.create_team(&actor, free.clone()).await), "forbidden");
        let named = TeamChange { name: Some(format!("Crew of {name}")), ..bound.clone() };
        let made = admin.create_team(&actor, named).await;
        let lifted = TeamChange { cap: Some(None), ..TeamChange::default() };
        let lifted = admin.change_team(&actor, &made.unwrap().team.id, READ, lifted).await;
        assert_eq!(outcome(&lifted), "forbidden");
    }
    let lower = AccountTerms { cap: Some(usd("4")), ..terms.clone() };
    assert_eq!(set("admin", &lower, limits).await, "done");
    assert_eq!(set("owner", &AccountTerms::default(), RateLimits::default()).await, "done");
}

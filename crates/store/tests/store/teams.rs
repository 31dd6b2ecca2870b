//! Teams: found as owners only, never without a manager by accident, and charged like people.

use std::sync::Arc;

use canon::{Micros, Money};
use ledger::{LeaseGrant, LeaseRequest, LeaseStore, UnleasedCost};
use store::{
    AccountRole, AccountTerms, KeyOwner, KeyRecord, MemberChange, Membership, Store, StoreError,
    Team, TeamMember, TeamRole,
};
use tokio::task::JoinSet;

use crate::on_both;
use crate::samples::{account, entry, id, key};
use crate::test_database::TestDatabase;

on_both!(
    a_team_cannot_sign_in,
    teams_and_people_share_one_namespace,
    members_join_and_leave,
    two_managers_cannot_both_leave,
    closing_a_team_stops_its_keys_only,
    two_members_keys_share_one_cap,
);

fn team(name: &str) -> Team {
    Team {
        id: id(),
        name: name.to_owned(),
        disabled: false,
        created: Micros::new(5),
        changed: Micros::new(5),
    }
}

async fn people<const N: usize>(store: &Store) -> [store::Account; N] {
    let people = std::array::from_fn(|_| account(&id()));
    for one in &people {
        store.add_account(one).await.unwrap();
    }
    people
}

async fn a_team_cannot_sign_in(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let before = store.account_count().await.unwrap();
    let name = format!("Night Shift {}", id());
    let night = team(&name);
    store.add_team(&night).await.unwrap();
    assert_eq!(store.team(&night.id).await.unwrap(), Some(night.clone()));
    let owner = Some(KeyOwner::Team(night.clone()));
    assert_eq!(store.owner(&night.id).await.unwrap(), owner);
    assert_eq!(store.owner_by_name(&name.to_uppercase()).await.unwrap(), owner);
    assert_eq!(store.account(&night.id).await.unwrap(), None);
    assert_eq!(store.account_by_login(&name).await.unwrap(), None);
    assert!(store.accounts().await.unwrap().iter().all(|one| one.id != night.id));
    assert_eq!(store.account_count().await.unwrap(), before);
    let totals = store.teams().await.unwrap();
    let total = totals.into_iter().find(|total| total.team.id == night.id).unwrap();
    assert_eq!((total.spent, total.members), (Money::ZERO, 0));
    store.close().await;
}

async fn teams_and_people_share_one_namespace(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let [anna] = people(&store).await;
    let taken = StoreError::Conflict("name");
    assert_eq!(store.add_team(&team(&anna.username)).await, Err(taken.clone()));
    let harbour = team(&id());
    store.add_team(&harbour).await.unwrap();
    assert_eq!(store.add_team(&team(&harbour.name.to_uppercase())).await, Err(taken));
    let newcomer = account(&harbour.name);
    assert_eq!(store.add_account(&newcomer).await, Err(StoreError::Conflict("username or email")));
    let other = id();
    assert!(store.rename_account(&harbour.id, &other, None, Micros::new(9)).await.unwrap());
    assert_eq!(store.team(&harbour.id).await.unwrap().unwrap().name, other);
    store.add_account(&newcomer).await.unwrap();
    store.close().await;
}

async fn members_join_and_leave(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let [anna, bert] = people(&store).await;
    let (one, two) = (team(&id()), team(&id()));
    for team in [&one, &two] {
        store.add_team(team).await.unwrap();
    }
    let set = |team: &Team, who: &str, role| {
        let (store, team, who) = (store.clone(), team.id.clone(), who.to_owned());
        async move { store.set_member(&team, &who, role, false, Micros::new(7)).await.unwrap() }
    };
    assert_eq!(set(&one, &anna.id, Some(TeamRole::Manager)).await, MemberChange::Done);
    assert_eq!(set(&one, &bert.id, Some(TeamRole::Viewer)).await, MemberChange::Done);
    assert_eq!(set(&one, &bert.id, Some(TeamRole::Member)).await, MemberChange::Done);
    assert_eq!(set(&two, &bert.id, Some(TeamRole::Viewer)).await, MemberChange::Done);
    for (team, who) in [(&one, &two.id), (&one, &"nobody".to_owned())] {
        assert_eq!(set(team, who, Some(TeamRole::Member)).await, MemberChange::Missing, "{who}");
    }
    assert_eq!(set(&team("none"), &anna.id, Some(TeamRole::Member)).await, MemberChange::Missing);
    assert_eq!(set(&two, &anna.id, None).await, MemberChange::Missing);
    let member = |account: &store::Account, role| TeamMember {
        account: account.clone(),
        role,
        since: Micros::new(7),
    };
    let mut members = store.members(&one.id).await.unwrap();
    members.sort_by_key(|member| member.account.id.clone());
    assert_eq!(members, [member(&anna, TeamRole::Manager), member(&bert, TeamRole::Member)]);
    let mut seats = store.memberships_of(&bert.id).await.unwrap();
    seats.sort_by_key(|seat| seat.team.id.clone());
    let seat = |team: &Team, role| Membership { team: team.clone(), role };
    assert_eq!(seats, [seat(&one, TeamRole::Member), seat(&two, TeamRole::Viewer)]);
    assert_eq!(set(&one, &bert.id, None).await, MemberChange::Done);
    assert_eq!(store.memberships_of(&bert.id).await.unwrap(), [seat(&two, TeamRole::Viewer)]);
    store.close().await;
}

async fn two_managers_cannot_both_leave(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let [anna, bert, cleo] = people(&store).await;
    let team = team(&id());
    store.add_team(&team).await.unwrap();
    let manager = Some(TeamRole::Manager);
    for (round, role) in [None, Some(TeamRole::Viewer), None, None].into_iter().enumerate() {
        for who in [&anna, &bert] {
            store.set_member(&team.id, &who.id, manager, false, Micros::new(7)).await.unwrap();
        }
        let mut both = JoinSet::new();
        for who in [&anna, &bert] {
            let (store, team, who) = (store.clone(), team.id.clone(), who.id.clone());
            both.spawn(async move {
                store.set_member(&team, &who, role, false, Micros::new(8)).await.unwrap()
            });
        }
        let mut ends = both.join_all().await;
        ends.sort_by_key(|end| *end == MemberChange::LastManager);
        assert_eq!(ends, [MemberChange::Done, MemberChange::LastManager], "round {round}");
    }
    // A locked manager does not count, and an administrator may remove the last one.
    let members = store.members(&team.id).await.unwrap();
    let left = members.iter().find(|member| member.role == TeamRole::Manager).unwrap();
    store.set_member(&team.id, &cleo.id, manager, false, Micros::new(9)).await.unwrap();
    store.set_disabled(&cleo.id, true, Micros::new(9)).await.unwrap();
    let leave =
        |by_hand| store.set_member(&team.id, &left.account.id, None, by_hand, Micros::new(9));
    assert_eq!(leave(false).await.unwrap(), MemberChange::LastManager);
    assert_eq!(leave(true).await.unwrap(), MemberChange::Done);
    store.close().await;
}

async fn closing_a_team_stops_its_keys_only(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let [anna] = people(&store).await;
    let team = team(&id());
    store.add_team(&team).await.unwrap();
    let shared = KeyRecord { created_by: Some(anna.id.clone()), ..key(&team.id) };
    let own = key(&anna.id);
    for key in [&shared, &own] {
        store.add_key(key).await.unwrap();
    }
    assert_eq!(store.creators_of(&team.id).await.unwrap(), [(anna.id.clone(), anna.username)]);
    let made = store.keys_created_by(&anna.id).await.unwrap();
    let made: Vec<&str> = made.iter().map(|key| key.id.as_str()).collect();
    assert_eq!(made, [shared.id.as_str(), own.id.as_str()]);
    let revoked = |id: &str| {
        let (store, id) = (store.clone(), id.to_owned());
        async move { store.key(&id).await.unwrap().unwrap().revoked }
    };
    store.set_disabled(&team.id, true, Micros::new(20)).await.unwrap();
    assert_eq!((revoked(&shared.id).await, revoked(&own.id).await), (Some(Micros::new(20)), None));
    let told = store.keys_changed_since(Micros::new(20)).await.unwrap();
    assert!(
        told.iter().any(|key| key.id == shared.id && key.revoked.is_some()),
        "nodes hear of it"
    );
    store.set_disabled(&team.id, false, Micros::new(30)).await.unwrap();
    assert_eq!(revoked(&shared.id).await, None);
    // A member who leaves the gateway keeps nothing of the team's.
    store.set_disabled(&anna.id, true, Micros::new(40)).await.unwrap();
    assert_eq!((revoked(&shared.id).await, revoked(&own.id).await), (None, Some(Micros::new(40))));
    store.close().await;
}

async fn two_members_keys_share_one_cap(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let [anna, bert] = people(&store).await;
    let team = team(&id());
    store.add_team(&team).await.unwrap();
    let terms = AccountTerms { cap: Some(Money::from_nanos(100)), ..AccountTerms::default() };
    store.set_account_terms(&team.id, &terms).await.unwrap();
    let keys =
        [&anna, &bert].map(|who| KeyRecord { created_by: Some(who.id.clone()), ..key(&team.id) });
    for key in &keys {
        store.add_key(key).await.unwrap();
    }
    let node = LeaseStore::enter(&store, &id()).await.unwrap();
    let ask = |key: &KeyRecord, full: i64| LeaseRequest {
        node: node.clone(),
        key_id: key.id.clone(),
        least: Money::from_nanos(full),
        full: Money::from_nanos(full),
        hold: Money::from_nanos(full),
        wish: Money::from_nanos(full),
        unleased: UnleasedCost::default(),
        unreported: Money::ZERO,
        seq: 1,
        ahead: false,
    };
    let granted = store.grant(&ask(&keys[0], 70)).await.unwrap();
    assert!(matches!(granted, LeaseGrant::Lease { amount, .. } if amount == Money::from_nanos(70)));
    let granted = store.grant(&ask(&keys[1], 70)).await.unwrap();
    assert!(
        matches!(granted, LeaseGrant::Short(bounds) if bounds.left() == Some(Money::from_nanos(30))),
        "{granted:?}"
    );
    store.post(&[entry(&id(), &keys[0], 12, 50)]).await.unwrap();
    let totals = store.teams().await.unwrap();
    let total = totals.into_iter().find(|total| total.team.id == team.id).unwrap();
    assert_eq!(total.spent, Money::from_nanos(12));
    assert_eq!(AccountRole::by_word("manager"), None, "a team's roles are not the gateway's");
    store.close().await;
}

//! Roles of many people at once.

use std::sync::Arc;

use canon::Micros;
use store::{
    Account, AccountRole, AuditLine, AuditedChange, MemberChange, PersonChange, Store, Team,
    TeamRole,
};

use crate::on_both;
use crate::samples::{account, id};
use crate::test_database::TestDatabase;

on_both!(
    the_last_of_many_owners_keeps_the_role,
    a_new_owner_lets_the_earlier_ones_go,
    roles_of_many_people_are_changed,
    seats_of_many_people_are_changed,
    lines_of_a_change_keep_their_order,
);

const AT: Micros = Micros::new(9);

fn line(subject: &str) -> AuditLine<'_> {
    AuditLine {
        at: AT,
        actor: "test",
        key_id: None,
        action: "test.change",
        subject,
        detail: "",
        address: None,
        agent: None,
    }
}

async fn people(store: &Store, count: usize, role: AccountRole) -> Vec<String> {
    let people: Vec<Account> = (0..count).map(|_| Account { role, ..account(&id()) }).collect();
    let mut change = store.begin_change().await.unwrap();
    for one in &people {
        change.add_account_with_terms(one, &store::AccountTerms::default()).await.unwrap();
    }
    change.commit(&[line("")]).await.unwrap();
    people.into_iter().map(|one| one.id).collect()
}

async fn change_roles(store: &Store, changes: &[(&str, AccountRole)]) -> Vec<PersonChange> {
    let mut change = store.begin_change().await.unwrap();
    let results = change.change_roles(changes, AT).await.unwrap();
    change.commit(&[line("")]).await.unwrap();
    results
}

async fn role(store: &Store, id: &str) -> AccountRole {
    store.account(id).await.unwrap().unwrap().role
}

async fn the_last_of_many_owners_keeps_the_role(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let owners = people(&store, 3, AccountRole::Owner).await;
    store.set_disabled(&owners[2], true, AT).await.unwrap();
    let changes: Vec<_> = owners.iter().map(|id| (id.as_str(), AccountRole::Member)).collect();
    let results = change_roles(&store, &changes).await;
    let expected = [PersonChange::Done, PersonChange::LastOwner, PersonChange::Done];
    assert_eq!(results, expected, "a locked owner does not count");
    let left: Vec<String> =
        store.owner_accounts().await.unwrap().into_iter().map(|owner| owner.id).collect();
    assert_eq!(left, [owners[1].clone()]);
    store.close().await;
}

async fn a_new_owner_lets_the_earlier_ones_go(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let owner = people(&store, 1, AccountRole::Owner).await.remove(0);
    let member = people(&store, 1, AccountRole::Member).await.remove(0);
    let changes = [(owner.as_str(), AccountRole::Admin), (member.as_str(), AccountRole::Owner)];
    assert_eq!(change_roles(&store, &changes).await, [PersonChange::Done; 2]);
    assert_eq!(role(&store, &owner).await, AccountRole::Admin);
    assert_eq!(role(&store, &member).await, AccountRole::Owner);
    store.close().await;
}

async fn roles_of_many_people_are_changed(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let everyone = people(&store, 1_003, AccountRole::Viewer).await;
    let mut changes: Vec<_> = everyone
        .iter()
        .enumerate()
        .map(|(n, id)| {
            (id.as_str(), if n % 2 == 0 { AccountRole::Member } else { AccountRole::Admin })
        })
        .collect();
    changes.insert(500, ("nobody", AccountRole::Member));
    let results = change_roles(&store, &changes).await;
    for (n, result) in results.iter().enumerate() {
        let expected = if n == 500 { PersonChange::Missing } else { PersonChange::Done };
        assert_eq!(*result, expected, "{n}");
    }
    for account in store.accounts().await.unwrap() {
        let Some(n) = everyone.iter().position(|id| *id == account.id) else { continue };
        let expected = if n % 2 == 0 { AccountRole::Member } else { AccountRole::Admin };
        assert_eq!((account.role, account.changed), (expected, AT), "{n}");
    }
    assert_eq!(change_roles(&store, &[]).await, []);
    store.close().await;
}

async fn seats_of_many_people_are_changed(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let team = Team {
        id: id(),
        name: format!("Night Shift {}", id()),
        disabled: false,
        created: AT,
        changed: AT,
    };
    store.add_team(&team).await.unwrap();
    let everyone = people(&store, 1_003, AccountRole::Member).await;
    let seats = |role: Option<TeamRole>| -> Vec<(&str, Option<TeamRole>)> {
        everyone.iter().map(|id| (id.as_str(), role)).collect()
    };
    let set = async |changes: &[(&str, Option<TeamRole>)]| {
        let mut change = store.begin_change().await.unwrap();
        let result = set_members(&mut change, &team.id, changes).await;
        if result == MemberChange::Done {
            change.commit(&[line("")]).await.unwrap();
        }
        result
    };
    let mut changes = seats(Some(TeamRole::Member));
    changes[7].1 = Some(TeamRole::Manager);
    assert_eq!(set(&changes).await, MemberChange::Done);
    let members = store.members(&team.id).await.unwrap();
    assert_eq!(members.len(), everyone.len());
    let managers: Vec<_> = members.iter().filter(|one| one.role == TeamRole::Manager).collect();
    assert_eq!(managers.iter().map(|one| &one.account.id).collect::<Vec<_>>(), [&everyone[7]]);
    // A second role replaces the first, and nothing is written for people who are not there.
    assert_eq!(set(&[(&everyone[0], Some(TeamRole::Viewer))]).await, MemberChange::Done);
    for missing in [Some(TeamRole::Member), None] {
        let changes = [(everyone[1].as_str(), None), ("nobody", missing)];
        assert_eq!(set(&changes).await, MemberChange::Missing, "{missing:?}");
    }
    assert_eq!(store.members(&team.id).await.unwrap().len(), everyone.len());
    assert_eq!(set(&seats(None)).await, MemberChange::Done, "the last manager leaves too");
    assert!(store.members(&team.id).await.unwrap().is_empty());
    let mut change = store.begin_change().await.unwrap();
    let changes = [(everyone[0].as_str(), Some(TeamRole::Member))];
    assert_eq!(set_members(&mut change, "none", &changes).await, MemberChange::Missing);
    drop(change);
    store.close().await;
}

async fn set_members(
    change: &mut AuditedChange,
    team: &str,
    changes: &[(&str, Option<TeamRole>)],
) -> MemberChange {
    change.set_members(team, changes, AT).await.unwrap()
}

async fn lines_of_a_change_keep_their_order(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let subjects: Vec<String> = (0..257).map(|n| format!("subject {n}")).collect();
    let lines: Vec<AuditLine<'_>> = subjects.iter().map(|subject| line(subject)).collect();
    store.begin_change().await.unwrap().commit(&lines).await.unwrap();
    let mut stored = store.audits(1_000).await.unwrap();
    stored.reverse();
    assert_eq!(stored.into_iter().map(|line| line.subject).collect::<Vec<_>>(), subjects);
    store.close().await;
}

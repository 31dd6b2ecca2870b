//! Rights within a team: every actor with every seat.

use admin::{Actor, MemberKeys, ReadVersion, TeamChange};
use canon::Micros;
use store::{AccountRole, TeamRole};

use crate::fixture::{ACTORS, Fixture, outcome};

const READ: ReadVersion<'static> = ReadVersion(None);

async fn team(fixture: &Fixture, name: &str) -> String {
    let change = TeamChange { name: Some(name.to_owned()), ..TeamChange::default() };
    fixture.admin.create_team(&Actor::Operator, change).await.unwrap().team.id
}

fn administrates(actor: &str) -> bool {
    let actor = actor.strip_prefix("key of ").unwrap_or(actor);
    ["operator", "owner", "admin"].contains(&actor)
}

#[tokio::test]
async fn administrators_alone_create_and_change_teams() {
    let fixture = Fixture::new().await;
    let id = team(&fixture, "Crew").await;
    for name in ACTORS {
        let actor = fixture.actor(name).await;
        let expected = if administrates(name) { "done" } else { "forbidden" };
        // The seat of a manager gives no right over the team itself.
        if let Some(own) = actor.account() {
            let (store, role) = (&fixture.admin.store, Some(TeamRole::Manager));
            store.set_member(&id, &own.id, role, true, Micros::new(2)).await.unwrap();
        }
        let wish = Some(format!("Crew of {name}"));
        let change = TeamChange { name: wish, ..TeamChange::default() };
        let made = fixture.admin.create_team(&actor, change).await;
        assert_eq!(outcome(&made), expected, "create: {name}");
        assert_eq!(outcome(&fixture.admin.teams(&actor).await), expected, "list: {name}");
        for disabled in [true, false] {
            let change = TeamChange { disabled: Some(disabled), ..TeamChange::default() };
            let changed = fixture.admin.change_team(&actor, &id, READ, change).await;
            assert_eq!(outcome(&changed), expected, "close or open: {name}");
        }
    }
}

#[tokio::test]
async fn members_are_changed_by_managers_and_administrators() {
    let fixture = Fixture::new().await;
    let admin = &fixture.admin;
    fixture.account("spare", AccountRole::Member).await;
    let id = team(&fixture, "Crew").await;
    admin.set_member(&Actor::Operator, &id, "spare", READ, TeamRole::Viewer).await.unwrap();
    for name in ACTORS {
        let actor = fixture.actor(name).await;
        for seat in [None, Some(TeamRole::Viewer), Some(TeamRole::Member), Some(TeamRole::Manager)]
        {
            if let Some(own) = actor.account() {
                admin.store.set_member(&id, &own.id, seat, true, Micros::new(2)).await.unwrap();
            }
            // A viewer of the gateway views a team only, and a key has the rights of an
            // administrator or none.
            let manages =
                administrates(name) || (name == "member" && seat == Some(TeamRole::Manager));
            let sees = manages || (["member", "viewer"].contains(&name) && seat.is_some());
            let expected = match (manages, sees) {
                (true, _) => "done",
                (false, true) => "forbidden",
                (false, false) => "not found",
            };
            let cell = format!("{name} with {seat:?}");
            let set = admin.set_member(&actor, &id, "spare", READ, TeamRole::Member).await;
            assert_eq!(outcome(&set), expected, "set: {cell}");
            let removed = admin.remove_member(&actor, &id, "spare", READ, MemberKeys::Keep).await;
            assert_eq!(outcome(&removed), expected, "remove: {cell}");
            admin.set_member(&Actor::Operator, &id, "spare", READ, TeamRole::Viewer).await.unwrap();
            let seen = admin.team(&actor, &id).await;
            assert_eq!(outcome(&seen), if sees { "done" } else { "not found" }, "view: {cell}");
        }
    }
}

#[tokio::test]
async fn every_member_leaves_but_not_the_last_manager() {
    let fixture = Fixture::new().await;
    let admin = &fixture.admin;
    let id = team(&fixture, "Crew").await;
    for (name, role) in [("member", TeamRole::Manager), ("viewer", TeamRole::Viewer)] {
        admin.set_member(&Actor::Operator, &id, name, READ, role).await.unwrap();
    }
    let (member, viewer) = (fixture.actor("member").await, fixture.actor("viewer").await);
    let leave = |actor: Actor, name: &'static str| {
        let id = &id;
        async move { admin.remove_member(&actor, id, name, READ, MemberKeys::Revoke).await }
    };
    assert_eq!(outcome(&leave(member.clone(), "member").await), "invalid");
    let resigned = admin.set_member(&member, &id, "member", READ, TeamRole::Member).await;
    assert_eq!(outcome(&resigned), "invalid");
    assert_eq!(outcome(&leave(viewer.clone(), "member").await), "forbidden");
    assert_eq!(outcome(&leave(viewer.clone(), "viewer").await), "done");
    assert_eq!(outcome(&leave(viewer, "viewer").await), "not found");
    assert_eq!(outcome(&leave(Actor::Operator, "member").await), "done");
    let line = ("command line", "team.remove_member", id.as_str(), "member");
    let audit = fixture.last_audit().await;
    assert_eq!((&*audit.0, &*audit.1, &*audit.2, &*audit.3), line);
}

#[tokio::test]
async fn a_locked_account_and_a_team_cannot_join() {
    let fixture = Fixture::new().await;
    let (id, other) = (team(&fixture, "Crew").await, team(&fixture, "Other crew").await);
    for who in ["locked", "nobody", &other] {
        let set =
            fixture.admin.set_member(&Actor::Operator, &id, who, READ, TeamRole::Member).await;
        assert_eq!(outcome(&set), "not found", "{who}");
    }
    let before = fixture.audit_count().await;
    for _ in 0..2 {
        let set = fixture.admin.set_member(&Actor::Operator, &id, "member", READ, TeamRole::Member);
        assert_eq!(outcome(&set.await), "done");
    }
    assert_eq!(fixture.audit_count().await, before + 1, "the same role again changes nothing");
}

//! Groups of an identity provider decide role and teams at each sign-in.

use config::{Config, GroupMapping, LoadOptions};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use store::{Account, AccountRole, Team, TeamRole};

use crate::gateway::START;
use crate::identity::IdentityFixture;

const GROUPS: &str = "[identity.corp.groups.map.staff]\nrole = \"member\"\nteams = { ml = \"viewer\" }\n\
    [identity.corp.groups.map.leads]\nrole = \"admin\"\nteams = { ml = \"manager\", ops = \"member\", gone = \"member\" }\n";

/// Reads the mapping of a configuration.
fn mapping(text: &str) -> GroupMapping {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let head = "[identity.corp]\nissuer = \"https://id.example\"\nclient_id = \"portunus\"\n\
                client_secret = { text = \"s\" }\n";
    let options =
        LoadOptions { file: None, listen_address: None, data_folder: PathBuf::from("data") };
    let config = Config::parse(&format!("{head}{text}"), Path::new("p.toml"), &options, &|_| None);
    config.unwrap().identity_providers.remove(0).groups.unwrap()
}

/// A gateway with the teams `ml`, `ops` and `other`, whose provider admits only by groups.
async fn fixture(text: &str) -> IdentityFixture {
    let fixture = IdentityFixture::new().await;
    *fixture.provider.groups.lock() = Some(mapping(text));
    *fixture.provider.admits.lock() = None;
    for name in ["ml", "ops", "other"] {
        let team = Team {
            id: format!("team-{name}"),
            name: name.to_owned(),
            disabled: false,
            created: START,
            changed: START,
        };
        fixture.gateway.store.add_team(&team).await.unwrap();
    }
    fixture
}

async fn anna(fixture: &IdentityFixture) -> (Account, Vec<(String, TeamRole)>) {
    let store = &fixture.gateway.store;
    let anna = store.account_by_login("anna").await.unwrap().unwrap();
    let seats = store.memberships_of(&anna.id).await.unwrap();
    let mut seats: Vec<_> = seats.into_iter().map(|seat| (seat.team.name, seat.role)).collect();
    seats.sort_by(|a, b| a.0.cmp(&b.0));
    (anna, seats)
}

fn seats(all: &[(&str, TeamRole)]) -> Vec<(String, TeamRole)> {
    all.iter().map(|(name, role)| ((*name).to_owned(), *role)).collect()
}

#[tokio::test]
async fn role_and_teams_follow_the_groups_at_each_sign_in() {
    let fixture = fixture(GROUPS).await;
    let refused = fixture.arrives(|claims| claims["groups"] = json!(["guests"])).await;
    assert_eq!(refused.status, 403, "nobody admits guests");

    fixture.arrives(|c| c["groups"] = json!(["leads", "staff"])).await.assert_redirect("/console");
    let (account, now) = anna(&fixture).await;
    assert_eq!(account.role, AccountRole::Admin);
    assert_eq!(now, seats(&[("ml", TeamRole::Manager), ("ops", TeamRole::Member)]));

    // A team that no group names is given by hand and stays.
    let store = &fixture.gateway.store;
    store.set_member("team-other", &account.id, Some(TeamRole::Member), true, START).await.unwrap();
    fixture.arrives(|c| c["groups"] = json!(["staff"])).await.assert_redirect("/console");
    let (account, now) = anna(&fixture).await;
    assert_eq!(account.role, AccountRole::Member);
    assert_eq!(now, seats(&[("ml", TeamRole::Viewer), ("other", TeamRole::Member)]));

    let before = store.audits(50).await.unwrap().len();
    fixture.arrives(|c| c["groups"] = json!(["staff"])).await.assert_redirect("/console");
    let lines = store.audits(50).await.unwrap();
    assert_eq!(lines.len(), before + 1, "the same groups leave only the line of the sign-in");

    // Without groups there are no rights of groups. One group may also be a text.
    fixture.arrives(|c| c["groups"] = json!("else")).await.assert_redirect("/console");
    let (account, now) = anna(&fixture).await;
    assert_eq!((account.role, now), (AccountRole::Viewer, seats(&[("other", TeamRole::Member)])));

    let lines = store.audits(50).await.unwrap();
    let seen: Vec<(&str, &str)> = lines.iter().map(|line| (&*line.action, &*line.detail)).collect();
    for (action, detail) in [
        ("account.role", "member by the groups of corp"),
        ("account.role", "viewer by the groups of corp"),
        ("team.member", &*format!("{} manager by the groups of corp", account.id)),
        ("team.member", &*format!("{} viewer by the groups of corp", account.id)),
        ("team.remove_member", &*format!("{} by the groups of corp", account.id)),
    ] {
        assert!(seen.contains(&(action, detail)), "{action} {detail}: {seen:?}");
    }
}

#[tokio::test]
async fn an_owner_keeps_the_role_unless_the_configuration_takes_it() {
    for (text, another, expected) in [
        (GROUPS.to_owned(), true, AccountRole::Owner),
        (
            format!("[identity.corp.groups]\ndemote_owners = true\n{GROUPS}"),
            true,
            AccountRole::Member,
        ),
        (
            format!("[identity.corp.groups]\ndemote_owners = true\n{GROUPS}"),
            false,
            AccountRole::Owner,
        ),
    ] {
        let fixture = fixture(&text).await;
        let store = &fixture.gateway.store;
        fixture.arrives(|c| c["groups"] = json!(["staff"])).await.assert_redirect("/console");
        let (account, _) = anna(&fixture).await;
        store.change_person(&account.id, Some(AccountRole::Owner), None, START).await.unwrap();
        if another {
            fixture.gateway.account("olga", AccountRole::Owner).await;
        }
        fixture.arrives(|c| c["groups"] = json!(["staff"])).await.assert_redirect("/console");
        let (account, now) = anna(&fixture).await;
        assert_eq!(account.role, expected, "{text} {another}");
        assert_eq!(now, seats(&[("ml", TeamRole::Viewer)]));
    }
}

#[tokio::test]
async fn groups_that_are_not_known_let_nobody_in_and_change_nothing() {
    let fixture = fixture(GROUPS).await;
    fixture.arrives(|c| c["groups"] = json!(["leads"])).await.assert_redirect("/console");
    let before = anna(&fixture).await;
    for spoil in [
        |claims: &mut Value| claims["_claim_names"] = json!({ "groups": "src1" }),
        |claims: &mut Value| claims["groups"] = json!({ "a": 1 }),
        |claims: &mut Value| claims["groups"] = json!([1, "leads"]),
    ] {
        let got = fixture.arrives(spoil).await;
        assert_eq!(got.status, 403, "{}", got.body);
        assert!(!got.header("set-cookie").contains("portunus_session"));
        assert_eq!(anna(&fixture).await, before);
    }
}

//! Ways to sign in: a person changes the own ones, and nobody else does.

use admin::{AccountDraft, Actor, IdentityClaims, VerifiedPasskey};
use canon::Micros;
use store::{AccountRole, LinkPurpose};

use crate::fixture::{ACTORS, Fixture, outcome, password};

fn claims(subject: &str) -> IdentityClaims {
    IdentityClaims {
        groups: Vec::new(),
        object_id: None,
        issuer: "https://id.example".to_owned(),
        subject: subject.to_owned(),
        email: None,
        email_verified: false,
        name: None,
    }
}

#[tokio::test]
async fn only_a_signed_in_person_changes_ways_to_sign_in() {
    let fixture = Fixture::new().await;
    let (admin, hash) = (&fixture.admin, password());
    for name in ACTORS {
        let actor = fixture.actor(name).await;
        let may = ["owner", "admin", "member", "viewer"].contains(&name);
        let expected = if may { "done" } else { "forbidden" };
        let before = fixture.audit_count().await;
        let passkey = VerifiedPasskey { id: format!("passkey of {name}"), key: vec![0] };
        assert_eq!(outcome(&admin.add_passkey(&actor, "phone", passkey).await), expected, "{name}");
        let codes = admin.replace_recovery_codes(&actor, vec![vec![1]]).await;
        assert_eq!(outcome(&codes), expected, "{name}");
        let linked = admin.add_identity(&actor, &claims(name)).await;
        assert_eq!(outcome(&linked), expected, "{name}");
        let unlinked = admin.remove_identity(&actor, "https://id.example", name).await;
        assert_eq!(outcome(&unlinked), expected, "{name}");
        let removed = admin.remove_factor(&actor, &format!("passkey of {name}")).await;
        assert_eq!(outcome(&removed), expected, "{name}");
        let changed = admin.change_own_password(&actor, &hash).await;
        assert_eq!(outcome(&changed), expected, "{name}");
        let mailed = admin.mail_email_link(&actor, "new@example.com").await;
        assert_eq!(outcome(&mailed), expected, "{name}");
        let lines = if may { 6 } else { 0 };
        assert_eq!(fixture.audit_count().await - before, lines, "{name}");
        if let Actor::Person(own) = &actor {
            let stored = admin.store.account(&own.id).await.unwrap().unwrap();
            assert_eq!(stored.password_hash.is_some(), may, "{name}");
            assert!(admin.store.factors_of(&own.id).await.unwrap().is_empty(), "{name}");
        }
    }
}

#[tokio::test]
async fn a_factor_and_an_identity_of_somebody_else_stay() {
    let fixture = Fixture::new().await;
    let admin = &fixture.admin;
    let (owner, member) = (fixture.actor("owner").await, fixture.actor("member").await);
    let passkey = VerifiedPasskey { id: "of member".to_owned(), key: vec![0] };
    assert!(admin.add_passkey(&member, "phone", passkey).await.unwrap(), "the first factor");
    admin.add_identity(&member, &claims("mia")).await.unwrap();
    assert_eq!(outcome(&admin.remove_factor(&owner, "of member").await), "not found");
    assert_eq!(outcome(&admin.add_identity(&owner, &claims("mia")).await), "forbidden");
    let lines = fixture.audit_count().await;
    assert_eq!(outcome(&admin.add_identity(&member, &claims("mia")).await), "done");
    assert_eq!(fixture.audit_count().await, lines, "nothing changed");
}

#[tokio::test]
async fn a_link_works_once_in_time_and_for_its_own_purpose() {
    let fixture = Fixture::new().await;
    let (admin, hash) = (&fixture.admin, password());
    let draft = AccountDraft {
        username: "newcomer".to_owned(),
        email: None,
        role: AccountRole::Member,
        password: None,
    };
    let made = admin.create_account(&Actor::Operator, draft).await.unwrap();
    assert!(made.link.is_some());
    let link = admin.store.links_for(LinkPurpose::Reset).await.unwrap().remove(0);
    assert_eq!(outcome(&admin.confirm_email(&link).await), "not found");
    assert_eq!(outcome(&admin.sign_up(&link, "other", &hash).await), "not found");
    let account = admin.set_password_by_link(&link, &hash).await.unwrap();
    assert_eq!(account.id, made.account.id);
    let id = account.id.clone();
    let line = (id.clone(), "account.password".to_owned(), id, "by link".to_owned());
    assert_eq!(fixture.last_audit().await, line);
    assert_eq!(outcome(&admin.set_password_by_link(&link, &hash).await), "not found");
    admin.issue_password_link(&Actor::Operator, &account.id).await.unwrap();
    let late = admin.store.links_for(LinkPurpose::Reset).await.unwrap().remove(0);
    fixture.clock.pass(Micros::from_secs(31 * 60));
    assert_eq!(outcome(&admin.set_password_by_link(&late, &hash).await), "not found");
}

//! Rights over accounts: every actor on every account.

use admin::{
    AccountChange, AccountDraft, Actor, AdminError, InviteDraft, KeyDraft, ReadVersion, user_json,
    version_of,
};
use canon::Micros;
use store::{AccountRole, AccountTerms, KeyOwner, KeyScope, RateLimits};

use crate::fixture::{ACTORS, Fixture, outcome, password};

/// Accounts that an actor may administrate.
fn administrates(actor: &str) -> &'static [&'static str] {
    match actor.strip_prefix("key of ").unwrap_or(actor) {
        "operator" | "owner" => &["owner", "admin", "member", "viewer", "other admin"],
        "admin" => &["admin", "member", "viewer"],
        _ => &[],
    }
}

/// Roles that an actor may give.
fn grants(actor: &str) -> &'static [AccountRole] {
    if actor == "key of owner" {
        return &[AccountRole::Admin, AccountRole::Member, AccountRole::Viewer];
    }
    match actor.strip_prefix("key of ").unwrap_or(actor) {
        "operator" | "owner" => &AccountRole::ALL,
        "admin" => &[AccountRole::Member, AccountRole::Viewer],
        _ => &[],
    }
}

/// Of several rotations at once, one is done. The first value works as long as was promised.
#[tokio::test]
async fn concurrent_rotations_keep_the_promised_overlap() {
    let fixture = Fixture::new().await;
    let admin = &fixture.admin;
    let owner = admin.store.owner("member").await.unwrap().unwrap();
    let made = admin.create_key(&Actor::Operator, &owner, call_key()).await.unwrap().record;
    let (now, hour) = (fixture.admin.now(), Micros::from_hours(1));
    let rotate = || admin.rotate_key(&Actor::Operator, &made.id, now + hour);
    let (one, two, three) = tokio::join!(rotate(), rotate(), rotate());
    let mut outcomes = [&one, &two, &three].map(outcome);
    outcomes.sort_unstable();
    assert_eq!(outcomes, ["conflict", "conflict", "done"]);
    let stored = admin.store.key(&made.id).await.unwrap().unwrap();
    assert_eq!((stored.old_hash, stored.old_until), (Some(made.hash), Some(now + hour)));
    fixture.clock.pass(hour);
    assert_eq!(outcome(&rotate().await), "done", "the overlap is over");
    // Without an overlap, both values end.
    let now = fixture.admin.now();
    admin.rotate_key(&Actor::Operator, &made.id, now + hour).await.unwrap();
    admin.rotate_key(&Actor::Operator, &made.id, now).await.unwrap();
    assert_eq!(admin.store.key(&made.id).await.unwrap().unwrap().old_until, Some(now));
}

/// A key for calls without limits.
fn call_key() -> KeyDraft {
    KeyDraft {
        scope: KeyScope::Call,
        grants: store::KeyGrants::default(),
        name: "k".to_owned(),
        cap: None,
        models: Vec::new(),
        expires: None,
        limits: RateLimits::default(),
        ips: Vec::new(),
        budget: None,
    }
}

fn expected(may: bool) -> &'static str {
    if may { "done" } else { "forbidden" }
}

#[tokio::test]
async fn every_change_of_an_account_needs_the_right_over_it() {
    let fixture = Fixture::new().await;
    fixture.account("other admin", AccountRole::Admin).await;
    fixture.account("second owner", AccountRole::Owner).await;
    let admin = &fixture.admin;
    let limits = RateLimits { rpm: Some(3), ..RateLimits::default() };
    for name in ACTORS {
        let actor = fixture.actor(name).await;
        for target in ["owner", "admin", "member", "viewer", "other admin"] {
            let may = administrates(name).contains(&target);
            let cell = format!("{name} on {target}");
            let before = fixture.audit_count().await;
            let terms = AccountTerms::default();
            let read = ReadVersion::default();
            let set = admin.set_account_terms(&actor, target, read, terms, limits).await;
            assert_eq!(outcome(&set), expected(may), "terms: {cell}");
            admin.store.set_account_limits(target, RateLimits::default()).await.unwrap();
            let link = admin.issue_password_link(&actor, target).await;
            let may_link =
                may && actor.key().is_none_or(|key| key.account_id != target && target != "owner");
            assert_eq!(outcome(&link), expected(may_link), "link: {cell}");
            let lines = usize::from(may) + usize::from(may_link);
            assert_eq!(fixture.audit_count().await - before, lines, "audit: {cell}");
            let lock = AccountChange { disabled: Some(true), role: None };
            let locked = admin.change_account(&actor, target, read, lock).await;
            assert_eq!(outcome(&locked), expected(may), "lock: {cell}");
            if may {
                let disabled = admin.store.account(target).await.unwrap().unwrap().disabled;
                assert!(disabled, "{cell}");
            }
            admin.store.set_disabled(target, false, Micros::new(2)).await.unwrap();
            // A person ends the own sessions without the right over accounts.
            let own = matches!(&actor, Actor::Person(own) if own.id == target);
            let ended = admin.end_sessions(&actor, target).await;
            assert_eq!(outcome(&ended), expected(may || own), "sessions: {cell}");
        }
        let may = !administrates(name).is_empty();
        assert_eq!(outcome(&admin.users(&actor).await), expected(may), "list: {name}");
        assert_eq!(outcome(&admin.user(&actor, "member").await), expected(may), "read: {name}");
        let nobody = admin.user(&actor, "nobody").await;
        assert_eq!(outcome(&nobody), if may { "not found" } else { "forbidden" }, "{name}");
    }
}

#[tokio::test]
async fn a_role_is_given_only_by_those_who_may() {
    let fixture = Fixture::new().await;
    let admin = &fixture.admin;
    for name in ACTORS {
        let actor = fixture.actor(name).await;
        for role in AccountRole::ALL {
            let may = expected(grants(name).contains(&role));
            let cell = format!("{name} gives {}", role.word());
            let username = format!("{name}-{}", role.word()).replace(' ', "-");
            let draft = AccountDraft { username, email: None, role, password: None };
            let made = admin.create_account(&actor, draft).await;
            assert_eq!(outcome(&made), may, "create: {cell}");
            let draft = InviteDraft { email: None, role, team: None };
            assert_eq!(outcome(&admin.invite(&actor, draft).await), may, "invite: {cell}");
            let given = AccountChange { role: Some(role), disabled: None };
            let read = ReadVersion::default();
            let changed = admin.change_account(&actor, "member", read, given).await;
            // Everybody who administrates may leave a role as it is.
            let same = role == AccountRole::Member && !administrates(name).is_empty();
            let may = if same { "done" } else { may };
            assert_eq!(outcome(&changed), may, "change: {cell}");
            admin
                .store
                .change_person("member", Some(AccountRole::Member), None, Micros::new(2))
                .await
                .unwrap();
        }
    }
}

#[tokio::test]
async fn the_only_owner_stays_one() {
    let fixture = Fixture::new().await;
    let admin = &fixture.admin;
    let read = ReadVersion::default();
    let changes = [
        AccountChange { role: Some(AccountRole::Admin), disabled: None },
        AccountChange { role: None, disabled: Some(true) },
    ];
    for change in changes {
        for name in ["operator", "owner"] {
            let actor = fixture.actor(name).await;
            let changed = admin.change_account(&actor, "owner", read, change).await;
            assert_eq!(outcome(&changed), "forbidden", "{name}: {change:?}");
        }
    }
    // A locked owner does not count, an active one does.
    fixture.account("second", AccountRole::Owner).await;
    admin.store.set_disabled("second", true, Micros::new(2)).await.unwrap();
    let [_, lock] = changes;
    let operator = Actor::Operator;
    assert_eq!(outcome(&admin.change_account(&operator, "owner", read, lock).await), "forbidden");
    admin.store.set_disabled("second", false, Micros::new(2)).await.unwrap();
    assert_eq!(outcome(&admin.change_account(&operator, "owner", read, lock).await), "done");
}

#[tokio::test]
async fn a_change_of_an_older_version_is_refused() {
    let fixture = Fixture::new().await;
    let (admin, operator) = (&fixture.admin, Actor::Operator);
    let seen = version_of(&user_json(&admin.user(&operator, "member").await.unwrap()));
    let change = AccountChange { role: Some(AccountRole::Viewer), disabled: None };
    let read = ReadVersion(Some(&seen));
    assert_eq!(outcome(&admin.change_account(&operator, "member", read, change).await), "done");
    let change = AccountChange { role: None, disabled: Some(true) };
    assert_eq!(outcome(&admin.change_account(&operator, "member", read, change).await), "stale");
    let seen = admin.account_terms(&operator, "member").await.unwrap().version();
    let (none, limits) = (AccountTerms::default(), RateLimits { rpm: Some(1), ..<_>::default() });
    let read = ReadVersion(Some(&seen));
    let set = admin.set_account_terms(&operator, "member", read, none.clone(), limits).await;
    assert_eq!(outcome(&set), "done");
    let set = admin.set_account_terms(&operator, "member", read, none, limits).await;
    assert_eq!(outcome(&set), "stale");
}

#[tokio::test]
async fn values_are_checked_for_every_surface() {
    let fixture = Fixture::new().await;
    let (admin, operator) = (&fixture.admin, Actor::Operator);
    for (username, email) in [("../x", None), ("fine", Some("not an address"))] {
        let email = email.map(str::to_owned);
        let (username, role) = (username.to_owned(), AccountRole::Member);
        let draft = AccountDraft { username, email, role, password: Some(password()) };
        assert_eq!(outcome(&admin.create_account(&operator, draft).await), "invalid");
    }
    let negative = AccountTerms { cap: Some("-1".parse().unwrap()), ..AccountTerms::default() };
    let zero = RateLimits { tpm: Some(0), ..RateLimits::default() };
    for (terms, limits) in [(negative, RateLimits::default()), (AccountTerms::default(), zero)] {
        let read = ReadVersion::default();
        let set = admin.set_account_terms(&operator, "member", read, terms, limits).await;
        assert_eq!(outcome(&set), "invalid");
    }
    let role = AccountRole::Member;
    for email in ["a@b.c, d@e.f", "owner@example.com"] {
        admin
            .store
            .rename_account("owner", "owner", Some("owner@example.com"), Micros::new(2))
            .await
            .unwrap();
        let draft = InviteDraft { email: Some(email.to_owned()), role, team: None };
        assert_eq!(outcome(&admin.invite(&operator, draft).await), "invalid", "{email}");
    }
    let owner = KeyOwner::Person(admin.user(&operator, "member").await.unwrap());
    for name in ["\0", "a\nb", "\u{200b}", "\u{3164}", "shop\u{202e}"] {
        let draft = KeyDraft { name: name.to_owned(), ..call_key() };
        let made = admin.create_key(&operator, &owner, draft).await;
        let named = matches!(&made, Err(AdminError::Invalid { field, .. }) if field == "name");
        assert!(named, "{name:?}: {made:?}");
    }
    assert_eq!(fixture.audit_count().await, 0);
}

#[tokio::test]
async fn keys_of_a_locked_account_stop_at_once_and_work_again_later() {
    let fixture = Fixture::new().await;
    let (admin, operator) = (&fixture.admin, Actor::Operator);
    let owner = KeyOwner::Person(admin.user(&operator, "member").await.unwrap());
    let key = admin.create_key(&operator, &owner, call_key()).await.unwrap().record;
    let works = async || {
        let found = admin.keys.by_id(&key.id).await;
        found.is_ok_and(|key| key.is_live(admin.now()))
    };
    assert!(works().await);
    for disabled in [true, false] {
        let change = AccountChange { role: None, disabled: Some(disabled) };
        let read = ReadVersion::default();
        admin.change_account(&operator, "member", read, change).await.unwrap();
        assert_eq!(works().await, !disabled);
    }
}

#[tokio::test]
async fn one_of_two_concurrent_changes_of_a_version_wins() {
    let fixture = Fixture::new().await;
    let (admin, operator) = (&fixture.admin, Actor::Operator);
    for round in 0..20 {
        let account = admin.user(&operator, "member").await.unwrap();
        let seen = version_of(&user_json(&account));
        let change = |role| AccountChange { role: Some(role), disabled: None };
        let read = ReadVersion(Some(&seen));
        let roles = match account.role {
            AccountRole::Viewer => (AccountRole::Member, AccountRole::Admin),
            _ => (AccountRole::Viewer, AccountRole::Owner),
        };
        let (one, other) = tokio::join!(
            admin.change_account(&operator, "member", read, change(roles.0)),
            admin.change_account(&operator, "member", read, change(roles.1)),
        );
        let mut outcomes = [outcome(&one), outcome(&other)];
        outcomes.sort_unstable();
        assert_eq!(outcomes, ["done", "stale"], "round {round}");
    }
}

#[tokio::test]
async fn a_key_gets_no_way_to_sign_in_as_its_own_account() {
    let fixture = Fixture::new().await;
    for (key, own, other) in
        [("key of owner", "owner", "admin"), ("key of admin", "admin", "member")]
    {
        let actor = fixture.actor(key).await;
        assert_eq!(outcome(&fixture.admin.issue_password_link(&actor, own).await), "forbidden");
        assert_eq!(outcome(&fixture.admin.issue_password_link(&actor, other).await), "done");
    }
}

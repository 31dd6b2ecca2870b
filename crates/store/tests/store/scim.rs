//! People and groups of an identity provider, and its tokens.

use std::sync::Arc;

use canon::Micros;
use store::{
    AuditLine, ScimAddress, ScimGroup, ScimGroupCondition, ScimToken, ScimUser, ScimUserCondition,
    Store, StoreError,
};
use tokio::task::JoinSet;

use crate::on_both;
use crate::samples::account;
use crate::test_database::TestDatabase;

on_both!(
    people_are_found_by_each_condition,
    a_name_is_unique_for_its_provider_without_regard_to_case,
    a_deleted_person_is_hidden_and_comes_back,
    groups_have_members_and_are_found,
    many_members_are_added_and_removed,
    an_erased_account_leaves_no_person,
    tokens_are_stored_and_expire,
    texts_with_signs_of_patterns_are_compared_as_they_are,
);

const LINE: AuditLine<'static> = AuditLine {
    at: Micros::new(1),
    actor: "test",
    key_id: None,
    action: "scim.test",
    subject: "",
    detail: "",
    address: None,
    agent: None,
};

fn address(value: &str, kind: &str) -> ScimAddress {
    ScimAddress { value: value.to_owned(), kind: kind.to_owned() }
}

async fn person(store: &Store, identity: &str, name: &str) -> ScimUser {
    let account = account(name);
    store.add_account(&account).await.unwrap();
    let user = ScimUser {
        account_id: account.id,
        identity: identity.to_owned(),
        user_name: format!("{name}@Example.com"),
        external_id: Some(format!("ext-{name}")),
        display_name: Some(format!("The {name}")),
        profile: "{}".to_owned(),
        active: true,
        disabled: false,
        created: Micros::new(10),
        changed: Micros::new(10),
    };
    put(store, &user, &[address(&format!("{name}@work.example"), "Work")]).await.unwrap();
    user
}

async fn put(store: &Store, user: &ScimUser, addresses: &[ScimAddress]) -> Result<(), StoreError> {
    let mut change = store.begin_change().await?;
    change.put_scim_user(user, addresses).await?;
    change.commit(&[LINE]).await
}

async fn found(store: &Store, conditions: &[ScimUserCondition]) -> Vec<String> {
    let users = store.scim_users("corp", conditions, 0, 100).await.unwrap();
    let count = store.scim_user_count("corp", conditions).await.unwrap();
    assert_eq!(count, i64::try_from(users.len()).unwrap(), "{conditions:?}");
    users.into_iter().map(|user| user.account_id).collect()
}

async fn people_are_found_by_each_condition(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let anna = person(&store, "corp", "anna").await;
    let bert = person(&store, "corp", "bert").await;
    let other = person(&store, "other", "carl").await;
    assert_eq!(store.scim_user("corp", &anna.account_id).await.unwrap().as_ref(), Some(&anna));
    assert_eq!(store.scim_user("corp", &other.account_id).await.unwrap(), None);
    let text = str::to_owned;
    let work = Some(text("WORK"));
    for (condition, fits) in [
        (ScimUserCondition::Id(anna.account_id.clone()), true),
        (ScimUserCondition::UserName(text("ANNA@example.COM")), true),
        (ScimUserCondition::ExternalId(text("ext-anna")), true),
        (ScimUserCondition::ExternalId(text("EXT-ANNA")), false),
        (ScimUserCondition::DisplayName(text("the ANNA")), true),
        (ScimUserCondition::Address(text("Anna@Work.example"), None), true),
        (ScimUserCondition::Address(text("anna@work.example"), work), true),
        (ScimUserCondition::Address(text("anna@work.example"), Some(text("home"))), false),
    ] {
        let expected = if fits { vec![anna.account_id.clone()] } else { Vec::new() };
        assert_eq!(
            found(&store, std::slice::from_ref(&condition)).await,
            expected,
            "{condition:?}"
        );
        let both = [condition, ScimUserCondition::Active(true)];
        assert_eq!(found(&store, &both).await, expected);
    }
    store.set_disabled(&bert.account_id, true, Micros::new(20)).await.unwrap();
    assert_eq!(
        found(&store, &[ScimUserCondition::Active(false)]).await,
        std::slice::from_ref(&bert.account_id)
    );
    assert_eq!(store.scim_users("corp", &[], 1, 5).await.unwrap().len(), 1);
    let ids = [anna.account_id.clone(), other.account_id.clone(), "none".to_owned()];
    assert_eq!(
        store.known_scim_users("corp", &ids).await.unwrap(),
        std::slice::from_ref(&anna.account_id)
    );
    assert_eq!(store.scim_manager(&other.account_id).await.unwrap().as_deref(), Some("other"));
}

async fn a_name_is_unique_for_its_provider_without_regard_to_case(database: Arc<TestDatabase>) {
    let store = database.open().await;
    person(&store, "corp", "anna").await;
    let mut attempts = JoinSet::new();
    for number in 0..6 {
        let store = store.clone();
        attempts.spawn(async move {
            let account = account(&format!("n{number}"));
            store.add_account(&account).await.unwrap();
            let name = if number % 2 == 0 { "Eva" } else { "EVA" };
            let user = ScimUser {
                account_id: account.id,
                identity: "corp".to_owned(),
                user_name: name.to_owned(),
                external_id: None,
                display_name: None,
                profile: "{}".to_owned(),
                active: true,
                disabled: false,
                created: Micros::new(1),
                changed: Micros::new(1),
            };
            put(&store, &user, &[]).await
        });
    }
    let done = attempts.join_all().await;
    assert_eq!(done.iter().filter(|done| done.is_ok()).count(), 1);
    let conflict = StoreError::Conflict("userName");
    assert!(done.iter().filter_map(|done| done.as_ref().err()).all(|error| *error == conflict));
}

async fn a_deleted_person_is_hidden_and_comes_back(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let anna = person(&store, "corp", "anna").await;
    let mut change = store.begin_change().await.unwrap();
    let id = &anna.account_id;
    assert!(change.delete_scim_user(id, false, Micros::new(30)).await.unwrap());
    assert!(!change.delete_scim_user(id, true, Micros::new(31)).await.unwrap());
    change.commit(&[LINE]).await.unwrap();
    assert_eq!(found(&store, &[]).await, Vec::<String>::new());
    assert_eq!(store.scim_manager(&anna.account_id).await.unwrap(), None);
    let state = async |identity| store.former_scim_state(identity, &anna.account_id).await.unwrap();
    assert_eq!((state("corp").await, state("other").await), (Some(false), None));
    let name = "ANNA@example.com";
    for (identity, name, external_id, known) in [
        ("corp", name, Some("ext-anna"), true),
        ("corp", "renamed", Some("ext-anna"), true),
        ("corp", name, None, true),
        ("corp", name, Some("another"), false),
        ("corp", "else", None, false),
        ("other", name, None, false),
    ] {
        let former = store.former_scim_user(identity, name, external_id).await.unwrap();
        let expected = known.then(|| (anna.account_id.clone(), anna.external_id.clone()));
        assert_eq!(former, expected, "{identity} {name} {external_id:?}");
    }
    put(&store, &anna, &[]).await.unwrap();
    assert_eq!(found(&store, &[]).await, std::slice::from_ref(&anna.account_id));
    assert_eq!(state("corp").await, None);
    let inactive = ScimUser { active: false, ..anna.clone() };
    put(&store, &inactive, &[]).await.unwrap();
    assert_eq!(store.scim_user("corp", &anna.account_id).await.unwrap(), Some(inactive));
}

fn group(name: &str) -> ScimGroup {
    ScimGroup {
        id: format!("g-{name}"),
        identity: "corp".to_owned(),
        display_name: name.to_owned(),
        external_id: Some(format!("ext-{name}")),
        created: Micros::new(1),
        changed: Micros::new(1),
    }
}

async fn groups_have_members_and_are_found(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let anna = person(&store, "corp", "anna").await.account_id;
    let bert = person(&store, "corp", "bert").await.account_id;
    let (staff, leads) = (group("Staff"), group("Leads"));
    let mut change = store.begin_change().await.unwrap();
    for group in [&staff, &leads] {
        change.put_scim_group(group).await.unwrap();
    }
    change.change_scim_members(&staff.id, &[anna.clone(), bert.clone()], &[]).await.unwrap();
    change.change_scim_members(&leads.id, &[anna.clone(), anna.clone()], &[]).await.unwrap();
    change.commit(&[LINE]).await.unwrap();
    let find = async |condition| {
        let found = store.scim_groups("corp", &[condition], 0, 9).await.unwrap();
        found.into_iter().map(|group| group.display_name).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(find(ScimGroupCondition::DisplayName("STAFF".to_owned())).await, "Staff");
    assert_eq!(find(ScimGroupCondition::ExternalId("ext-Leads".to_owned())).await, "Leads");
    assert_eq!(find(ScimGroupCondition::Id(staff.id.clone())).await, "Staff");
    assert_eq!(find(ScimGroupCondition::Member(bert.clone())).await, "Staff");
    assert_eq!(store.scim_group("other", &staff.id).await.unwrap(), None);
    assert_eq!(store.scim_groups_of(&anna).await.unwrap().len(), 2);
    assert_eq!(store.scim_member_count(&staff.id).await.unwrap(), 2);
    assert!(store.scim_members(&staff.id).await.unwrap().contains(&anna));
    let mut change = store.begin_change().await.unwrap();
    let taken = ScimGroup { id: "g-3".to_owned(), ..group("sTAFF") };
    let refused = change.put_scim_group(&taken).await;
    assert_eq!(refused, Err(StoreError::Conflict("displayName")));
    drop(change);
    let mut change = store.begin_change().await.unwrap();
    let unknown = change.change_scim_members(&staff.id, &["nobody".to_owned()], &[]).await;
    assert_eq!(unknown, Err(StoreError::Missing("user")));
    drop(change);
    let mut change = store.begin_change().await.unwrap();
    change.delete_scim_user(&bert, false, Micros::new(9)).await.unwrap();
    assert!(change.drop_scim_group(&leads.id).await.unwrap());
    change.commit(&[LINE]).await.unwrap();
    assert_eq!(store.scim_member_count(&staff.id).await.unwrap(), 1);
    let without_bert = ScimGroup { changed: Micros::new(9), ..staff };
    assert_eq!(store.scim_groups_of(&anna).await.unwrap(), [without_bert]);
    assert_eq!(store.scim_group_count("corp", &[]).await.unwrap(), 1);
}

async fn many_members_are_added_and_removed(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let mut ids = Vec::new();
    for number in 0..950 {
        ids.push(person(&store, "corp", &format!("p{number}")).await.account_id);
    }
    let staff = group("staff");
    let mut change = store.begin_change().await.unwrap();
    change.put_scim_group(&staff).await.unwrap();
    change.change_scim_members(&staff.id, &ids, &[]).await.unwrap();
    change.commit(&[LINE]).await.unwrap();
    assert_eq!(store.scim_members(&staff.id).await.unwrap().len(), 950);
    assert_eq!(store.known_scim_users("corp", &ids).await.unwrap().len(), 950);
    let standings = store.scim_standings(&ids).await.unwrap();
    assert_eq!(standings.len(), 950);
    assert!(standings.iter().all(|one| one.groups == [staff.clone()] && one.seats.is_empty()));
    let (gone, stays) = ids.split_at(900);
    let mut change = store.begin_change().await.unwrap();
    change.change_scim_members(&staff.id, stays, gone).await.unwrap();
    change.commit(&[LINE]).await.unwrap();
    assert_eq!(store.scim_members(&staff.id).await.unwrap().len(), 50);
}

async fn an_erased_account_leaves_no_person(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let anna = person(&store, "corp", "anna").await;
    let staff = group("staff");
    let mut change = store.begin_change().await.unwrap();
    change.put_scim_group(&staff).await.unwrap();
    change
        .change_scim_members(&staff.id, std::slice::from_ref(&anna.account_id), &[])
        .await
        .unwrap();
    change.commit(&[LINE]).await.unwrap();
    let account = store.account(&anna.account_id).await.unwrap().unwrap();
    let mut change = store.begin_change().await.unwrap();
    let counts = change.erase_account(&account, Micros::new(40)).await.unwrap();
    change.commit(&[LINE]).await.unwrap();
    assert_eq!(counts.get("scim_users"), Some(&1));
    assert_eq!(found(&store, &[]).await, Vec::<String>::new());
    assert_eq!(store.scim_member_count(&staff.id).await.unwrap(), 0);
    assert_eq!(store.former_scim_state("corp", &anna.account_id).await.unwrap(), None);
    let left = store.scim_group("corp", &staff.id).await.unwrap().unwrap();
    assert_eq!(left.changed, Micros::new(40), "the members of the group have changed");
}

async fn tokens_are_stored_and_expire(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let token = |id: &str, expires: Option<i64>| ScimToken {
        id: id.to_owned(),
        identity: "corp".to_owned(),
        hash: vec![7; 32],
        created_by: "command line".to_owned(),
        created: Micros::new(1),
        expires: expires.map(Micros::new),
        last_used: None,
    };
    let mut change = store.begin_change().await.unwrap();
    change.add_scim_token(&token("a", None)).await.unwrap();
    change.add_scim_token(&token("b", Some(50))).await.unwrap();
    change.commit(&[LINE]).await.unwrap();
    assert_eq!(store.scim_token("a").await.unwrap(), Some(token("a", None)));
    assert_eq!(store.scim_tokens().await.unwrap().len(), 2);
    store.note_scim_use("a", Micros::new(9)).await.unwrap();
    assert_eq!(store.scim_token("a").await.unwrap().unwrap().last_used, Some(Micros::new(9)));
    let mut change = store.begin_change().await.unwrap();
    assert_eq!(change.drop_expired_scim_tokens(Micros::new(50)).await.unwrap(), 1);
    assert!(change.drop_scim_token("a").await.unwrap());
    assert!(!change.drop_scim_token("a").await.unwrap());
    change.commit(&[LINE]).await.unwrap();
    assert!(store.scim_tokens().await.unwrap().is_empty());
}

async fn texts_with_signs_of_patterns_are_compared_as_they_are(database: Arc<TestDatabase>) {
    let store = database.open().await;
    person(&store, "corp", "anna").await;
    for text in ["%", "_nna@example.com", "' OR 1=1 --", "\\", "\0", "anna@example.com\0"] {
        let text = text.to_owned();
        for condition in [
            ScimUserCondition::Id(text.clone()),
            ScimUserCondition::UserName(text.clone()),
            ScimUserCondition::ExternalId(text.clone()),
            ScimUserCondition::Address(text.clone(), Some(text.clone())),
        ] {
            assert_eq!(found(&store, &[condition]).await, Vec::<String>::new(), "{text:?}");
        }
        assert_eq!(store.scim_group("corp", &text).await.unwrap(), None);
        assert_eq!(store.scim_token(&text).await.unwrap(), None);
    }
}

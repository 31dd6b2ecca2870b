//! PATCH and filters, without a gateway.

use admin::{ScimErrorKind, ScimGroupDraft, ScimUserDraft};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use store::{ScimGroupCondition, ScimUserCondition};

use super::filter::ScimFilter;
use super::group_document::{group_conditions, patch_group, read_group};
use super::patch::parse_patch;
use super::user_document::{patch_user, read_user, user_conditions};
use super::view::AttributeChoice;

const ID: &str = "0198c0de-0000-7000-8000-000000000001";

fn anna() -> ScimUserDraft {
    let body = json!({
        "userName": "anna@example.com", "externalId": "00u1", "displayName": "Anna",
        "name": { "givenName": "Anna", "familyName": "Berg" },
        "emails": [{ "value": "anna@example.com", "type": "work", "primary": true }],
    });
    read_user(&body, true).unwrap()
}

fn patched(operations: &Value) -> Result<ScimUserDraft, Option<ScimErrorKind>> {
    let mut draft = anna();
    let steps = parse_patch(&json!({ "Operations": operations })).map_err(|error| error.kind)?;
    patch_user(&mut draft, ID, &steps).map_err(|error| error.kind)?;
    Ok(draft)
}

#[test]
fn people_are_changed_as_identity_providers_do_it() {
    let entra = json!([
        { "op": "Replace", "path": "active", "value": "False" },
        { "op": "Add", "path": "name.givenName", "value": "Ann" },
        { "op": "Replace", "path": "emails[type eq \"work\"].value", "value": "ann@example.com" },
        { "op": "Add", "path": "emails[type eq \"home\"].value", "value": "ann@home.example" },
        { "op": "Add", "path": "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User:department",
          "value": "Sea" },
        { "op": "Replace", "value": { "displayName": "Ann", "name.familyName": "Burg",
          "urn:ietf:params:scim:schemas:core:2.0:User:externalId": "x" } },
        { "op": "Add", "path": "title", "value": "Captain" },
        { "op": "Add", "path": "roles", "value": [{ "value": "owner" }] },
    ]);
    let draft = patched(&entra).unwrap();
    assert!(!draft.active);
    assert_eq!(draft.name.given_name.as_deref(), Some("Ann"));
    assert_eq!(draft.name.family_name.as_deref(), Some("Burg"));
    assert_eq!(draft.external_id.as_deref(), Some("x"));
    let emails: Vec<_> =
        draft.emails.iter().map(|one| (one.value.as_str(), one.is_primary)).collect();
    assert_eq!(emails, [("ann@example.com", true), ("ann@home.example", false)]);
    let okta = json!([{ "op": "replace", "value": { "active": false, "id": ID } }]);
    assert!(!patched(&okta).unwrap().active);
    let wrapped = json!([{ "op": "add", "path": "displayName", "value": [{ "value": "A" }] }]);
    assert_eq!(patched(&wrapped).unwrap().display_name.as_deref(), Some("A"));
    let removed = json!([
        { "op": "remove", "path": "displayName" }, { "op": "remove", "path": "name" },
        { "op": "remove", "path": "emails[value eq \"ANNA@example.com\"]" },
        { "op": "replace", "path": "externalId", "value": null },
    ]);
    // An empty list names no address.
    let none = json!([{ "op": "remove", "path": "emails", "value": [] }]);
    assert_eq!(patched(&none).unwrap(), anna());
    let named =
        json!([{ "op": "remove", "path": "emails", "value": [{ "value": "ANNA@example.com" }] }]);
    assert!(patched(&named).unwrap().emails.is_empty());
    let draft = patched(&removed).unwrap();
    let bare = ScimUserDraft { user_name: "anna@example.com".into(), ..ScimUserDraft::default() };
    assert_eq!(draft, bare);
}

#[test]
fn wrong_operations_are_refused_with_their_reason() {
    use ScimErrorKind::{
        InvalidFilter, InvalidPath, InvalidSyntax, InvalidValue, Mutability, NoTarget, TooMany,
    };
    let many: Vec<Value> = (0..3_000).map(|_| json!({ "op": "remove", "path": "title" })).collect();
    let names: Map<String, Value> =
        (0..3_000).map(|n| (format!("emails[type eq \"{n}\"].value"), json!("a@b.de"))).collect();
    let emails: Vec<Value> = (0..21).map(|n| json!({ "value": format!("{n}@b.de") })).collect();
    let add_each: Vec<Value> = emails
        .iter()
        .map(|email| json!({ "op": "add", "path": "emails", "value": email }))
        .collect();
    let mut add_and_drop = add_each.clone();
    add_and_drop.push(json!({ "op": "remove", "path": "emails" }));
    let joined = ["value eq \"x\""; 9].join(" and ");
    for (operations, kind) in [
        (json!([{ "op": "replace", "value": names }]), TooMany),
        (json!([{ "op": "add", "path": "emails", "value": emails }]), TooMany),
        (json!([{ "op": "replace", "path": "emails", "value": emails }]), TooMany),
        (json!([{ "op": "remove", "path": "emails", "value": emails }]), TooMany),
        // Work stays bounded although the last operation would leave few.
        (json!(add_and_drop), TooMany),
        (json!([{ "op": "remove", "path": format!("emails[{joined}]") }]), InvalidFilter),
        (json!([]), InvalidSyntax),
        (json!({}), InvalidSyntax),
        (json!([1]), InvalidSyntax),
        (json!([{ "op": "move", "path": "active" }]), InvalidSyntax),
        (json!([{ "op": "remove" }]), NoTarget),
        (json!([{ "op": "add", "path": "active" }]), InvalidValue),
        (json!([{ "op": "add", "value": "x" }]), InvalidValue),
        (json!([{ "op": "replace", "path": "id", "value": "x" }]), Mutability),
        (json!([{ "op": "replace", "path": "id", "value": ID }]), Mutability),
        (json!([{ "op": "replace", "value": { "id": "x" } }]), Mutability),
        (json!([{ "op": "add", "path": "groups", "value": [{ "value": "x" }] }]), Mutability),
        (json!([{ "op": "replace", "path": "meta.created", "value": "x" }]), Mutability),
        (json!([{ "op": "replace", "path": "active", "value": "maybe" }]), InvalidValue),
        (json!([{ "op": "remove", "path": "userName" }]), InvalidValue),
        (json!([{ "op": "replace", "path": "userName", "value": { "a": 1 } }]), InvalidValue),
        (json!([{ "op": "replace", "path": "role", "value": "owner" }]), InvalidPath),
        (json!([{ "op": "replace", "path": "emails[", "value": "x" }]), InvalidPath),
        (json!([{ "op": "replace", "path": "userName.x", "value": "x" }]), InvalidPath),
        (
            json!([{ "op": "replace", "path": "emails[value eq \"q\"].type", "value": "x" }]),
            NoTarget,
        ),
        (json!(many), TooMany),
    ] {
        assert_eq!(patched(&operations).unwrap_err(), Some(kind), "{operations}");
    }
}

#[test]
fn members_are_added_and_removed() {
    let group = json!({ "displayName": "staff", "members": [{ "value": "a" }, { "value": "b" }] });
    let start = read_group(&group).unwrap();
    let patched = |operations: Value| {
        let mut draft = start.clone();
        let steps =
            parse_patch(&json!({ "Operations": operations })).map_err(|error| error.kind)?;
        patch_group(&mut draft, ID, &steps).map_err(|error| error.kind)?;
        Ok::<_, Option<ScimErrorKind>>(draft.members.into_iter().collect::<Vec<_>>().join(" "))
    };
    for (operations, members) in [
        (
            json!([{ "op": "Add", "path": "members", "value": [{ "value": "c" }, { "value": "a" }] }]),
            "a b c",
        ),
        (json!([{ "op": "Remove", "path": "members[value eq \"a\"]" }]), "b"),
        (json!([{ "op": "Remove", "path": "members", "value": [{ "value": "b" }] }]), "a"),
        (json!([{ "op": "remove", "path": "members" }]), ""),
        (json!([{ "op": "replace", "path": "members", "value": [] }]), ""),
        (json!([{ "op": "replace", "path": "members", "value": { "value": "z" } }]), "z"),
        (json!([{ "op": "replace", "value": { "id": ID, "displayName": "x" } }]), "a b"),
        (json!([{ "op": "remove", "path": "members[value eq \"a\" or value eq \"b\"]" }]), ""),
    ] {
        assert_eq!(patched(operations.clone()).as_deref(), Ok(members), "{operations}");
    }
    use ScimErrorKind::{InvalidFilter, InvalidPath, InvalidValue, Mutability, TooMany};
    let crowd: Vec<Value> = (0..100_000).map(|n| json!({ "value": n.to_string() })).collect();
    let joined = ["value eq \"x\""; 9].join(" and ");
    let mut growing: Vec<Value> = crowd
        .chunks(9_000)
        .map(|part| json!({ "op": "add", "path": "members", "value": part }))
        .collect();
    growing.push(json!({ "op": "remove", "path": "members" }));
    for (operations, kind) in [
        (
            json!([{ "op": "add", "path": "members", "value": [{ "value": "g", "type": "Group" }] }]),
            InvalidValue,
        ),
        (json!([{ "op": "add", "path": "members", "value": [{}] }]), InvalidValue),
        (json!([{ "op": "add", "path": "members", "value": crowd }]), TooMany),
        (json!([{ "op": "replace", "path": "members[value eq \"a\"]", "value": "x" }]), Mutability),
        (json!([{ "op": "replace", "path": "members.display", "value": "x" }]), Mutability),
        (json!([{ "op": "remove", "path": "members[display sw \"a\"]" }]), InvalidFilter),
        (json!([{ "op": "remove", "path": format!("members[{joined}]") }]), InvalidFilter),
        (json!(growing), TooMany),
        (json!([{ "op": "remove", "path": "displayName" }]), InvalidValue),
        (json!([{ "op": "replace", "path": "owner", "value": "x" }]), InvalidPath),
    ] {
        assert_eq!(patched(operations).unwrap_err(), Some(kind));
    }
}

#[test]
fn filters_become_conditions() {
    let of = |text: &str| user_conditions(&ScimFilter::parse(text).unwrap());
    let address = |value: &str, kind: Option<&str>| {
        ScimUserCondition::Address(value.to_owned(), kind.map(str::to_owned))
    };
    for (text, condition) in [
        ("userName eq \"A\"", ScimUserCondition::UserName("A".into())),
        ("USERNAME Eq \"A\"", ScimUserCondition::UserName("A".into())),
        ("emails.value eq \"a\"", address("a", None)),
        ("emails eq \"a\"", address("a", None)),
        ("emails[type eq \"work\"].value eq \"a\"", address("a", Some("work"))),
        ("emails[type eq \"work\" and value eq \"a\"]", address("a", Some("work"))),
        ("active eq \"True\"", ScimUserCondition::Active(true)),
    ] {
        assert_eq!(of(text).unwrap(), [condition], "{text}");
    }
    assert_eq!(of("(id eq \"x\" and active eq true) and displayName eq \"d\"").unwrap().len(), 3);
    for text in [
        "userName sw \"a\"",
        "userName eq 1",
        "not (active eq true)",
        "id eq \"a\" or id eq \"b\"",
        "password eq \"x\"",
        "emails[type pr].value eq \"a\"",
        "name.givenName eq \"a\"",
        "userName pr",
    ] {
        assert_eq!(of(text).unwrap_err().kind, Some(ScimErrorKind::InvalidFilter), "{text}");
    }
    let eight = ["emails eq \"\""; 8].join(" and ");
    assert_eq!(of(&eight).unwrap().len(), 8);
    for too_many in [
        format!("{eight} and active eq true"),
        format!("emails[{eight} and active eq true]"),
        format!("({eight}) and (active eq true)"),
    ] {
        let error = ScimFilter::parse(&too_many).unwrap_err();
        assert_eq!(error.kind, Some(ScimErrorKind::InvalidFilter), "{too_many}");
        assert!(error.detail.contains("joins 9 conditions"), "{}", error.detail);
    }
    let group = ScimFilter::parse("id eq \"x\" and members[value eq \"y\"]").unwrap();
    let conditions = [ScimGroupCondition::Id("x".into()), ScimGroupCondition::Member("y".into())];
    assert_eq!(group_conditions(&group).unwrap(), conditions);
}

#[test]
fn attributes_are_chosen_without_regard_to_case_or_schema() {
    let user = json!({ "id": "1", "schemas": [], "userName": "a", "name": { "givenName": "g",
        "familyName": "f" }, "emails": [{ "value": "v", "type": "work" }], "active": true });
    let only = AttributeChoice::new(
        "USERNAME,name.givenName,urn:ietf:params:scim:schemas:core:2.0:User:emails.value",
        "",
    );
    let expected = json!({ "id": "1", "schemas": [], "userName": "a", "name": { "givenName": "g" },
        "emails": [{ "value": "v" }] });
    assert_eq!(only.apply(user.clone()), expected);
    let without = AttributeChoice::new("", "id, emails,name.familyname");
    let expected = json!({ "id": "1", "schemas": [], "userName": "a", "name": { "givenName": "g" },
        "active": true });
    assert_eq!(without.apply(user), expected);
}

fn operation() -> impl Strategy<Value = Value> {
    let verb = prop_oneof![Just("add"), Just("Replace"), Just("remove")];
    let path = prop_oneof![
        Just("active"),
        Just("displayName"),
        Just("externalId"),
        Just("name"),
        Just("name.givenName"),
        Just("emails"),
        Just("emails[type eq \"work\"].value"),
        Just("emails[type eq \"home\"].primary"),
        Just("emails[type eq \"home\"]"),
        Just("emails[primary eq true].type"),
        Just("userName"),
    ];
    let email = ("[ab]@c\\.de", prop_oneof![Just("work"), Just("home")], any::<bool>()).prop_map(
        |(value, kind, primary)| json!({ "value": value, "type": kind, "primary": primary }),
    );
    let value = prop_oneof![
        any::<bool>().prop_map(Value::from),
        "[a-c]{1,3}".prop_map(Value::from),
        proptest::collection::vec(email, 0..3).prop_map(Value::from),
        "[a-c]{1,2}".prop_map(|name| json!({ "givenName": name, "value": name })),
    ];
    (verb, path, value)
        .prop_map(|(op, path, value)| json!({ "op": op, "path": path, "value": value }))
}

proptest! {
    /// A client that got no answer repeats its request.
    #[test]
    fn an_operation_has_the_same_effect_twice(operation in operation()) {
        let steps = parse_patch(&json!({ "Operations": [operation] })).unwrap();
        let mut once = anna();
        if patch_user(&mut once, ID, &steps).is_ok() {
            let mut twice = once.clone();
            if patch_user(&mut twice, ID, &steps).is_ok() {
                prop_assert_eq!(twice, once);
            }
        }
    }

    #[test]
    fn members_change_the_same_way_twice(
        ids in proptest::collection::btree_set("[a-f]", 0..5),
        verb in prop_oneof![Just("add"), Just("replace"), Just("remove")],
    ) {
        let value: Vec<Value> = ids.iter().map(|id| json!({ "value": id })).collect();
        let operation = json!({ "op": verb, "path": "members", "value": value });
        let steps = parse_patch(&json!({ "Operations": [operation] })).unwrap();
        let members = ["a", "b", "c"].map(str::to_owned).into_iter().collect();
        let mut once = ScimGroupDraft { display_name: "g".into(), external_id: None, members };
        patch_group(&mut once, ID, &steps).unwrap();
        let mut twice = once.clone();
        patch_group(&mut twice, ID, &steps).unwrap();
        prop_assert_eq!(twice, once);
    }
}

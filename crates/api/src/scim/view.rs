//! Answers: people, groups and lists of them, with the attributes that were asked for (RFC 7644, section 3.9).

use admin::{ScimUserDraft, version_of};
use serde_json::{Map, Value, json};
use store::{ScimGroup, ScimUser};

use super::schemas::{GROUP_SCHEMA, LIST_SCHEMA, USER_SCHEMA};
use crate::admin::rfc3339;

/// Attributes that an answer has or lacks.
#[derive(Clone, Debug, Default)]
pub(crate) struct AttributeChoice {
    /// Only these, with the id; empty for all.
    only: Vec<String>,
    /// Not these.
    without: Vec<String>,
}

impl AttributeChoice {
    /// Reads the two lists of names, each joined by commas.
    pub(crate) fn new(only: &str, without: &str) -> Self {
        let names =
            |list: &str| list.split(',').map(plain_name).filter(|n| !n.is_empty()).collect();
        Self { only: names(only), without: names(without) }
    }

    /// Returns true if every attribute is wanted.
    pub(crate) fn is_all(&self) -> bool {
        self.only.is_empty() && self.without.is_empty()
    }

    /// Returns true if an answer has the attribute, or a part of it.
    pub(crate) fn wants(&self, attribute: &str) -> bool {
        let name = attribute.to_ascii_lowercase();
        let is_part = |one: &String| *one == name || one.starts_with(&format!("{name}."));
        (self.only.is_empty() || self.only.iter().any(is_part)) && !self.without.contains(&name)
    }

    /// Leaves out what was not asked for. `id` and `schemas` always stay.
    pub(crate) fn apply(&self, resource: Value) -> Value {
        let Value::Object(fields) = resource else { return resource };
        if self.is_all() {
            return Value::Object(fields);
        }
        let mut chosen = Map::new();
        for (name, value) in fields {
            if name == "id" || name == "schemas" {
                chosen.insert(name, value);
            } else if self.wants(&name) {
                let value = self.parts(&name.to_ascii_lowercase(), value);
                chosen.insert(name, value);
            }
        }
        Value::Object(chosen)
    }

    fn parts(&self, attribute: &str, value: Value) -> Value {
        let below = |names: &[String]| -> Vec<String> {
            let parts =
                names.iter().filter_map(|name| name.strip_prefix(attribute)?.strip_prefix('.'));
            parts.map(str::to_owned).collect()
        };
        let whole = self.only.iter().any(|name| name == attribute);
        let only = if whole { Vec::new() } else { below(&self.only) };
        let without = below(&self.without);
        if only.is_empty() && without.is_empty() {
            return value;
        }
        let keep = |value: Value| match value {
            Value::Object(mut fields) => {
                fields.retain(|name, _| {
                    let name = name.to_ascii_lowercase();
                    (only.is_empty() || only.contains(&name)) && !without.contains(&name)
                });
                Value::Object(fields)
            }
            other => other,
        };
        match value {
            Value::Array(list) => Value::Array(list.into_iter().map(keep).collect()),
            other => keep(other),
        }
    }
}

/// Returns the name of an attribute in lower case, without the URN of a schema.
fn plain_name(name: &str) -> String {
    let name = name.trim().to_ascii_lowercase();
    match name.strip_prefix("urn:").and_then(|rest| rest.rsplit_once(':')) {
        Some((_, name)) => name.to_owned(),
        None => name,
    }
}

/// Version of a person, which changes with everything that an answer shows: the groups too.
pub(crate) fn user_version(user: &ScimUser, groups: &[ScimGroup]) -> String {
    let groups: Vec<(&str, &str)> =
        groups.iter().map(|group| (group.id.as_str(), group.display_name.as_str())).collect();
    format!("W/{}", version_of(&(&user.account_id, user.changed.get(), user.disabled, groups)))
}

/// Version of a group, which changes with its members too.
pub(crate) fn group_version(group: &ScimGroup) -> String {
    format!("W/{}", version_of(&(&group.id, group.changed.get())))
}

pub(crate) fn user_view(base: &str, user: &ScimUser, groups: &[ScimGroup]) -> Value {
    let draft = ScimUserDraft::from(user);
    let mut view = Map::new();
    let mut put = |name: &str, value: Value| {
        let is_empty = match &value {
            Value::Null => true,
            Value::Array(list) => list.is_empty(),
            Value::Object(fields) => fields.is_empty(),
            Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
        };
        if !is_empty {
            view.insert(name.to_owned(), value);
        }
    };
    put("schemas", json!([USER_SCHEMA]));
    put("id", json!(user.account_id));
    put("externalId", json!(draft.external_id));
    put("userName", json!(draft.user_name));
    put("name", json!(draft.name));
    put("displayName", json!(draft.display_name));
    put("emails", json!(draft.emails));
    // An account that an operator has locked is not active, whatever the provider said.
    put("active", json!(!user.disabled));
    let shown: Vec<Value> = groups
        .iter()
        .map(|group| {
            json!({
                "value": group.id,
                "$ref": format!("{base}/Groups/{}", group.id),
                "display": group.display_name,
                "type": "direct",
            })
        })
        .collect();
    put("groups", json!(shown));
    put(
        "meta",
        json!({
            "resourceType": "User",
            "created": rfc3339(user.created),
            "lastModified": rfc3339(user.changed),
            "location": format!("{base}/Users/{}", user.account_id),
            "version": user_version(user, groups),
        }),
    );
    Value::Object(view)
}

pub(crate) fn group_view(base: &str, group: &ScimGroup, members: &[String]) -> Value {
    let mut view = Map::new();
    view.insert("schemas".to_owned(), json!([GROUP_SCHEMA]));
    view.insert("id".to_owned(), json!(group.id));
    if let Some(id) = &group.external_id {
        view.insert("externalId".to_owned(), json!(id));
    }
    view.insert("displayName".to_owned(), json!(group.display_name));
    if !members.is_empty() {
        let members = members.iter().map(|id| {
            json!({
                "value": id,
                "$ref": format!("{base}/Users/{id}"),
                "type": "User",
            })
        });
        view.insert("members".to_owned(), members.collect());
    }
    view.insert(
        "meta".to_owned(),
        json!({
            "resourceType": "Group",
            "created": rfc3339(group.created),
            "lastModified": rfc3339(group.changed),
            "location": format!("{base}/Groups/{}", group.id),
            "version": group_version(group),
        }),
    );
    Value::Object(view)
}

/// Page of a list (RFC 7644, section 3.4.2).
pub(crate) fn list_view(total: i64, start: i64, resources: Vec<Value>) -> Value {
    json!({
        "schemas": [LIST_SCHEMA],
        "totalResults": total,
        "startIndex": start,
        "itemsPerPage": resources.len(),
        "Resources": resources,
    })
}

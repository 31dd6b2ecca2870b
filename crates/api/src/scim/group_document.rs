//! A group as JSON: read from a whole document or changed by operations, and searched by filters.

use admin::{MAX_GROUP_MEMBERS, ScimErrorKind, ScimGroupDraft, ScimProblem};
use serde_json::Value;
use std::collections::BTreeSet;
use store::ScimGroupCondition;

use super::filter::{AttributePath, CompareOperator, FilterValue, ScimFilter};
use super::patch::{PatchStep, PatchVerb, elements, member, text_value};
use super::schemas::GROUP_SCHEMA;
use super::user_document::{read_only, require_own_id, require_schema, unknown_attribute};

/// Reads a whole group.
pub(crate) fn read_group(body: &Value) -> Result<ScimGroupDraft, ScimProblem> {
    let wrong = |why: &str| ScimProblem::new(ScimErrorKind::InvalidSyntax, why);
    let body = body.as_object().ok_or_else(|| wrong("the body must be an object"))?;
    require_schema(body, GROUP_SCHEMA)?;
    let mut draft = ScimGroupDraft::default();
    for (name, value) in body.iter().filter(|(_, value)| !value.is_null()) {
        match name.to_ascii_lowercase().as_str() {
            "displayname" => draft.display_name = text_value("displayName", value)?,
            "externalid" => draft.external_id = Some(text_value("externalId", value)?),
            "members" => draft.members = read_members(value)?,
            // Unknown attributes are left out of the answer, which tells the provider (RFC 7644, section 3.3).
            _ => {}
        }
    }
    if draft.display_name.is_empty() {
        return Err(ScimProblem::invalid_value("displayName", "is required"));
    }
    Ok(draft)
}

fn read_members(value: &Value) -> Result<BTreeSet<String>, ScimProblem> {
    let list = elements(value);
    if list.len() > MAX_GROUP_MEMBERS {
        return Err(too_many_members(list.len()));
    }
    list.iter().map(read_member).collect()
}

fn too_many_members(count: usize) -> ScimProblem {
    let why = format!("`members`: a group may have {MAX_GROUP_MEMBERS} members, not {count}");
    ScimProblem::new(ScimErrorKind::TooMany, why)
}

fn read_member(value: &Value) -> Result<String, ScimProblem> {
    let wrong = || {
        ScimProblem::invalid_value(
            "members",
            "a member must be an object with the id of a user as `value`",
        )
    };
    match value {
        Value::String(id) => Ok(id.clone()),
        Value::Object(fields) => {
            let kind = member(fields, "type").and_then(Value::as_str).unwrap_or("User");
            if !kind.eq_ignore_ascii_case("User") {
                let why = "groups in groups are not supported; send their users";
                return Err(ScimProblem::invalid_value("members.type", why));
            }
            member(fields, "value").and_then(Value::as_str).map(str::to_owned).ok_or_else(wrong)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => Err(wrong()),
    }
}

/// Applies the operations of a PATCH. Returns the members that it adds, those that the group has already too.
pub(crate) fn patch_group(
    draft: &mut ScimGroupDraft,
    id: &str,
    steps: &[PatchStep],
) -> Result<BTreeSet<String>, ScimProblem> {
    let mut named = BTreeSet::new();
    steps.iter().try_for_each(|step| patch_attribute(draft, &mut named, id, step))?;
    Ok(named)
}

fn patch_attribute(
    draft: &mut ScimGroupDraft,
    named: &mut BTreeSet<String>,
    id: &str,
    step: &PatchStep,
) -> Result<(), ScimProblem> {
    let PatchStep { verb, path, value, is_listed: _ } = step;
    if path.schema.as_deref().is_some_and(|schema| !schema.eq_ignore_ascii_case(GROUP_SCHEMA)) {
        return unknown_attribute(step);
    }
    let is_simple = path.elements.is_none() && path.sub_attribute.is_none();
    let text = |name: &str| value.as_ref().map(|value| text_value(name, value)).transpose();
    match path.attribute.to_ascii_lowercase().as_str() {
        "displayname" if is_simple => match text("displayName")? {
            Some(name) => draft.display_name = name,
            None => return Err(ScimProblem::invalid_value("displayName", "is required")),
        },
        "externalid" if is_simple => draft.external_id = text("externalId")?,
        "members" => patch_members(draft, named, *verb, path, value.as_ref())?,
        "id" => require_own_id(step, id)?,
        "meta" => return Err(read_only(path)),
        _ => return unknown_attribute(step),
    }
    Ok(())
}

fn patch_members(
    draft: &mut ScimGroupDraft,
    named: &mut BTreeSet<String>,
    verb: PatchVerb,
    path: &AttributePath,
    value: Option<&Value>,
) -> Result<(), ScimProblem> {
    let is_value =
        path.sub_attribute.as_deref().is_none_or(|sub| sub.eq_ignore_ascii_case("value"));
    if !is_value {
        let why = format!("`{path}` cannot be changed; add or remove the member");
        return Err(ScimProblem::new(ScimErrorKind::Mutability, why));
    }
    match (&path.elements, verb, value) {
        (Some(filter), PatchVerb::Remove, _) => {
            for id in filtered_members(filter)? {
                draft.members.remove(&id);
            }
        }
        (Some(_), PatchVerb::Add | PatchVerb::Replace, _) => {
            let why = format!("`{path}` cannot be changed; add or remove the member");
            return Err(ScimProblem::new(ScimErrorKind::Mutability, why));
        }
        (None, PatchVerb::Remove, None) => draft.members.clear(),
        // Microsoft Entra ID names the members to remove in the value.
        (None, PatchVerb::Remove, Some(value)) => {
            for id in read_members(value)? {
                draft.members.remove(&id);
            }
        }
        (None, PatchVerb::Replace, Some(value)) => {
            draft.members = read_members(value)?;
            named.extend(draft.members.iter().cloned());
        }
        (None, PatchVerb::Add, Some(value)) => {
            let added = read_members(value)?;
            named.extend(added.iter().cloned());
            draft.members.extend(added);
            if draft.members.len() > MAX_GROUP_MEMBERS {
                return Err(too_many_members(draft.members.len()));
            }
        }
        (None, PatchVerb::Add | PatchVerb::Replace, None) => {
            return Err(ScimProblem::invalid_value("members", "is missing"));
        }
    }
    Ok(())
}

/// Returns the ids of a filter such as `value eq "x" or value eq "y"`.
fn filtered_members(filter: &ScimFilter) -> Result<Vec<String>, ScimProblem> {
    let (mut open, mut ids) = (vec![filter], Vec::new());
    while let Some(filter) = open.pop() {
        match filter {
            ScimFilter::Or(left, right) => open.extend([&**left, &**right]),
            ScimFilter::Compare(path, CompareOperator::Eq, FilterValue::Text(id))
                if path.attribute.eq_ignore_ascii_case("value") =>
            {
                ids.push(id.clone());
            }
            ScimFilter::Compare(..)
            | ScimFilter::Present(_)
            | ScimFilter::Holds(_)
            | ScimFilter::And(..)
            | ScimFilter::Not(_) => {
                let why = format!("`{filter}` is not supported here; use `value eq \"id\"`");
                return Err(ScimProblem::new(ScimErrorKind::InvalidFilter, why));
            }
        }
    }
    Ok(ids)
}

/// Translates a filter of groups.
pub(crate) fn group_conditions(
    filter: &ScimFilter,
) -> Result<Vec<ScimGroupCondition>, ScimProblem> {
    filter.conjuncts().into_iter().map(group_condition).collect()
}

fn group_condition(filter: &ScimFilter) -> Result<ScimGroupCondition, ScimProblem> {
    let unsupported = || {
        let why = format!(
            "`{filter}` is not supported; use `eq` with id, displayName, externalId or members.value, joined by \
             `and`"
        );
        ScimProblem::new(ScimErrorKind::InvalidFilter, why)
    };
    let own_schema = |path: &AttributePath| {
        path.schema.as_deref().is_none_or(|schema| schema.eq_ignore_ascii_case(GROUP_SCHEMA))
    };
    match filter {
        ScimFilter::Compare(path, CompareOperator::Eq, FilterValue::Text(text))
            if own_schema(path) && path.elements.is_none() =>
        {
            let attribute = path.attribute.to_ascii_lowercase();
            let sub = path.sub_attribute.as_deref().map(str::to_ascii_lowercase);
            match (attribute.as_str(), sub.as_deref()) {
                ("id", None) => Ok(ScimGroupCondition::Id(text.clone())),
                ("displayname", None) => Ok(ScimGroupCondition::DisplayName(text.clone())),
                ("externalid", None) => Ok(ScimGroupCondition::ExternalId(text.clone())),
                ("members", None | Some("value")) => Ok(ScimGroupCondition::Member(text.clone())),
                _ => Err(unsupported()),
            }
        }
        ScimFilter::Holds(path)
            if own_schema(path) && path.attribute.eq_ignore_ascii_case("members") =>
        {
            let ids = path.elements.as_deref().map(filtered_members).transpose()?;
            match ids.as_deref() {
                Some([id]) => Ok(ScimGroupCondition::Member(id.clone())),
                Some(_) | None => Err(unsupported()),
            }
        }
        ScimFilter::Compare(..)
        | ScimFilter::Present(_)
        | ScimFilter::Holds(_)
        | ScimFilter::And(..)
        | ScimFilter::Or(..)
        | ScimFilter::Not(_) => Err(unsupported()),
    }
}

//! A person as JSON: read from a whole document or changed by operations, and searched by filters.

use admin::{MAX_EMAILS, ScimEmail, ScimErrorKind, ScimPersonName, ScimProblem, ScimUserDraft};
use serde_json::{Map, Value};
use store::ScimUserCondition;

use super::filter::{AttributePath, CompareOperator, FilterValue, ScimFilter};
use super::patch::{PatchStep, PatchVerb, bool_value, elements, member, text_value};
use super::schemas::{ENTERPRISE_SCHEMA, USER_SCHEMA};

/// Attributes of the core schema that the gateway does not keep. A provider may send them all the same
/// (RFC 7644, section 3.3).
const UNKEPT: [&str; 15] = [
    "nickname",
    "profileurl",
    "title",
    "usertype",
    "preferredlanguage",
    "locale",
    "timezone",
    "password",
    "phonenumbers",
    "ims",
    "photos",
    "addresses",
    "entitlements",
    "roles",
    "x509certificates",
];
/// Parts of a name that the gateway does not keep.
const UNKEPT_NAMES: [&str; 3] = ["middlename", "honorificprefix", "honorificsuffix"];
/// Attributes that only the gateway sets.
const READ_ONLY: [&str; 2] = ["meta", "groups"];

/// Returns true if a document has a value of that name.
pub(crate) fn sets_attribute(body: &Value, name: &str) -> bool {
    let found = body.as_object().and_then(|body| member(body, name));
    found.is_some_and(|value| !value.is_null())
}

/// Reads a whole person. Without `active`, `is_active` stays.
pub(crate) fn read_user(body: &Value, is_active: bool) -> Result<ScimUserDraft, ScimProblem> {
    let wrong = |why: &str| ScimProblem::new(ScimErrorKind::InvalidSyntax, why);
    let body = body.as_object().ok_or_else(|| wrong("the body must be an object"))?;
    require_schema(body, USER_SCHEMA)?;
    let mut draft = ScimUserDraft { active: is_active, ..ScimUserDraft::default() };
    for (name, value) in body {
        let is_set = !value.is_null();
        match name.to_ascii_lowercase().as_str() {
            "username" if is_set => draft.user_name = text_value("userName", value)?,
            "externalid" if is_set => draft.external_id = Some(text_value("externalId", value)?),
            "displayname" if is_set => draft.display_name = Some(text_value("displayName", value)?),
            "active" if is_set => draft.active = bool_value("active", value)?,
            "name" if is_set => merge_name(&mut draft.name, value)?,
            "emails" if is_set => put_emails(&mut draft.emails, read_emails(value)?)?,
            // Unknown attributes are left out of the answer, which tells the provider (RFC 7644, section 3.3).
            _ => {}
        }
    }
    if draft.user_name.is_empty() {
        return Err(ScimProblem::invalid_value("userName", "is required"));
    }
    Ok(draft)
}

/// Refuses a document of another schema.
pub(crate) fn require_schema(body: &Map<String, Value>, schema: &str) -> Result<(), ScimProblem> {
    let Some(Value::Array(schemas)) = member(body, "schemas") else { return Ok(()) };
    let fits = |one: &Value| one.as_str().is_some_and(|one| one.eq_ignore_ascii_case(schema));
    if schemas.iter().any(fits) {
        return Ok(());
    }
    let why = format!("`schemas` must name {schema}");
    Err(ScimProblem::new(ScimErrorKind::InvalidSyntax, why))
}

/// Applies the operations of a PATCH.
pub(crate) fn patch_user(
    draft: &mut ScimUserDraft,
    id: &str,
    steps: &[PatchStep],
) -> Result<(), ScimProblem> {
    steps.iter().try_for_each(|step| patch_attribute(draft, id, step))
}

/// Refuses the change of an attribute that only the gateway sets.
pub(crate) fn read_only(path: &AttributePath) -> ScimProblem {
    ScimProblem::new(ScimErrorKind::Mutability, format!("`{path}` cannot be changed"))
}

/// Refuses a path that fits no attribute, unless it was one of several names.
pub(crate) fn unknown_attribute(step: &PatchStep) -> Result<(), ScimProblem> {
    if step.is_listed {
        return Ok(());
    }
    let why = format!("there is no attribute `{}`", step.path);
    Err(ScimProblem::new(ScimErrorKind::InvalidPath, why))
}

/// Refuses another id than the own one, which some providers repeat.
pub(crate) fn require_own_id(step: &PatchStep, id: &str) -> Result<(), ScimProblem> {
    let is_own = step.value.as_ref().and_then(Value::as_str) == Some(id);
    if step.is_listed && is_own { Ok(()) } else { Err(read_only(&step.path)) }
}

fn patch_attribute(
    draft: &mut ScimUserDraft,
    id: &str,
    step: &PatchStep,
) -> Result<(), ScimProblem> {
    let PatchStep { verb, path, value, is_listed: _ } = step;
    match path.schema.as_deref() {
        None => {}
        Some(schema) if schema.eq_ignore_ascii_case(USER_SCHEMA) => {}
        Some(schema) if is_enterprise(schema, &path.attribute) => return Ok(()),
        Some(_) => return unknown_attribute(step),
    }
    let attribute = path.attribute.to_ascii_lowercase();
    let is_simple = path.elements.is_none() && path.sub_attribute.is_none();
    let text = |name: &str| value.as_ref().map(|value| text_value(name, value)).transpose();
    match attribute.as_str() {
        "username" if is_simple => match text("userName")? {
            Some(name) => draft.user_name = name,
            None => return Err(ScimProblem::invalid_value("userName", "is required")),
        },
        "externalid" if is_simple => draft.external_id = text("externalId")?,
        "displayname" if is_simple => draft.display_name = text("displayName")?,
        "active" if is_simple => match value {
            Some(value) => draft.active = bool_value("active", value)?,
            None => return Err(ScimProblem::invalid_value("active", "send true or false")),
        },
        "name" if path.elements.is_none() => {
            patch_name(draft, path.sub_attribute.as_deref(), step)?;
        }
        "emails" => patch_emails(&mut draft.emails, *verb, path, value.as_ref())?,
        "id" => require_own_id(step, id)?,
        name if READ_ONLY.contains(&name) => return Err(read_only(path)),
        name if UNKEPT.contains(&name) => {}
        _ => return unknown_attribute(step),
    }
    Ok(())
}

/// Returns true for an attribute of the enterprise extension, or for the extension itself, whose name is split into a
/// schema and `User`.
fn is_enterprise(schema: &str, attribute: &str) -> bool {
    schema.eq_ignore_ascii_case(ENTERPRISE_SCHEMA)
        || format!("{schema}:{attribute}").eq_ignore_ascii_case(ENTERPRISE_SCHEMA)
}

fn patch_name(
    draft: &mut ScimUserDraft,
    sub: Option<&str>,
    step: &PatchStep,
) -> Result<(), ScimProblem> {
    let Some(sub) = sub else {
        return match &step.value {
            Some(value) => merge_name(&mut draft.name, value),
            None => {
                draft.name = ScimPersonName::default();
                Ok(())
            }
        };
    };
    match name_part(&mut draft.name, sub) {
        Some(part) => {
            let value = step.value.as_ref();
            *part = value.map(|value| text_value(&format!("name.{sub}"), value)).transpose()?;
            Ok(())
        }
        None if UNKEPT_NAMES.contains(&sub.to_ascii_lowercase().as_str()) => Ok(()),
        None => unknown_attribute(step),
    }
}

fn name_part<'a>(name: &'a mut ScimPersonName, sub: &str) -> Option<&'a mut Option<String>> {
    match sub.to_ascii_lowercase().as_str() {
        "formatted" => Some(&mut name.formatted),
        "familyname" => Some(&mut name.family_name),
        "givenname" => Some(&mut name.given_name),
        _ => None,
    }
}

fn merge_name(name: &mut ScimPersonName, value: &Value) -> Result<(), ScimProblem> {
    let parts = value.as_object();
    let parts = parts.ok_or_else(|| ScimProblem::invalid_value("name", "must be an object"))?;
    for (sub, value) in parts {
        if let Some(part) = name_part(name, sub) {
            let is_set = !value.is_null();
            *part = is_set.then(|| text_value(&format!("name.{sub}"), value)).transpose()?;
        }
    }
    Ok(())
}

/// Reads addresses. A longer list than a person may have is refused before each is compared with the others.
fn read_emails(value: &Value) -> Result<Vec<ScimEmail>, ScimProblem> {
    let list = elements(value);
    if list.len() > MAX_EMAILS {
        return Err(too_many_emails(list.len()));
    }
    list.iter().map(read_email).collect()
}

fn too_many_emails(count: usize) -> ScimProblem {
    let why = format!("`emails`: a person may have {MAX_EMAILS} addresses, not {count}");
    ScimProblem::new(ScimErrorKind::TooMany, why)
}

fn read_email(value: &Value) -> Result<ScimEmail, ScimProblem> {
    let mut email = ScimEmail::default();
    match value {
        Value::String(address) => email.value.clone_from(address),
        Value::Object(fields) => set_email(&mut email, fields)?,
        _ => return Err(ScimProblem::invalid_value("emails", "an address must be an object")),
    }
    if email.value.is_empty() {
        return Err(ScimProblem::invalid_value("emails.value", "is required"));
    }
    Ok(email)
}

fn set_email(email: &mut ScimEmail, fields: &Map<String, Value>) -> Result<(), ScimProblem> {
    for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
        match name.to_ascii_lowercase().as_str() {
            "value" => email.value = text_value("emails.value", value)?,
            "type" => email.kind = Some(text_value("emails.type", value)?),
            "primary" => email.is_primary = bool_value("emails.primary", value)?,
            _ => {}
        }
    }
    Ok(())
}

fn put_emails(emails: &mut Vec<ScimEmail>, added: Vec<ScimEmail>) -> Result<(), ScimProblem> {
    added.into_iter().try_for_each(|email| put_email(emails, email))
}

/// Adds an address, or replaces the same one. A new primary address takes the place of the other.
fn put_email(emails: &mut Vec<ScimEmail>, email: ScimEmail) -> Result<(), ScimProblem> {
    if email.is_primary {
        emails.iter_mut().for_each(|one| one.is_primary = false);
    }
    let is_same = |one: &&mut ScimEmail| {
        one.value.eq_ignore_ascii_case(&email.value) && same_kind(one, &email)
    };
    let count = emails.len();
    match emails.iter_mut().find(is_same) {
        Some(one) => {
            let is_primary = one.is_primary || email.is_primary;
            *one = ScimEmail { is_primary, ..email };
        }
        None if count >= MAX_EMAILS => return Err(too_many_emails(count + 1)),
        None => emails.push(email),
    }
    Ok(())
}

fn same_kind(one: &ScimEmail, other: &ScimEmail) -> bool {
    let (one, other) = (one.kind.as_deref(), other.kind.as_deref());
    one.unwrap_or_default().eq_ignore_ascii_case(other.unwrap_or_default())
}

fn patch_emails(
    emails: &mut Vec<ScimEmail>,
    verb: PatchVerb,
    path: &AttributePath,
    value: Option<&Value>,
) -> Result<(), ScimProblem> {
    let fits = |email: &ScimEmail| match &path.elements {
        Some(filter) => email_fits(email, filter),
        None => Ok(true),
    };
    let mut fitting = Vec::with_capacity(emails.len());
    for email in emails.iter() {
        fitting.push(fits(email)?);
    }
    let sub = path.sub_attribute.as_deref().map(str::to_ascii_lowercase);
    match (verb, sub.as_deref(), value) {
        (PatchVerb::Remove, None | Some("value"), value) => {
            // Some providers name the elements to remove in the value. An empty list names none.
            let named = value.map(read_emails).transpose()?;
            let is_named = |email: &ScimEmail| {
                let is_same = |one: &ScimEmail| one.value.eq_ignore_ascii_case(&email.value);
                named.as_ref().is_none_or(|named| named.iter().any(is_same))
            };
            let mut fitting = fitting.into_iter();
            emails.retain(|email| !(fitting.next().unwrap_or(false) && is_named(email)));
            Ok(())
        }
        (PatchVerb::Replace, None, Some(value)) if path.elements.is_none() => {
            emails.clear();
            put_emails(emails, read_emails(value)?)
        }
        (PatchVerb::Add, None, Some(value)) if path.elements.is_none() => {
            put_emails(emails, read_emails(value)?)
        }
        (_, sub, value) => {
            let mut fields = Map::new();
            match (sub, value) {
                (Some(sub), value) => {
                    let value = value.cloned().unwrap_or(Value::Null);
                    fields.insert(sub.to_owned(), value);
                }
                (None, Some(Value::Object(object))) => fields = object.clone(),
                (None, _) => {
                    return Err(ScimProblem::invalid_value("emails", "must be an object"));
                }
            }
            set_fitting(emails, &fitting, path, &fields)
        }
    }
}

/// Changes the addresses that fit. If none does, one with the type of the filter is added, because Microsoft Entra ID
/// creates addresses in this way.
fn set_fitting(
    emails: &mut Vec<ScimEmail>,
    fitting: &[bool],
    path: &AttributePath,
    fields: &Map<String, Value>,
) -> Result<(), ScimProblem> {
    let known = ["value", "type", "primary", "display"];
    if let Some(name) = fields.keys().find(|name| {
        path.sub_attribute.is_some() && !known.contains(&name.to_ascii_lowercase().as_str())
    }) {
        let why = format!("there is no attribute `emails.{name}`");
        return Err(ScimProblem::new(ScimErrorKind::InvalidPath, why));
    }
    let makes_primary = match member(fields, "primary") {
        Some(value) if !value.is_null() => bool_value("emails.primary", value)?,
        Some(_) | None => false,
    };
    if makes_primary {
        emails.iter_mut().for_each(|email| email.is_primary = false);
    }
    let mut is_set = false;
    for (email, _) in emails.iter_mut().zip(fitting).filter(|(_, fits)| **fits) {
        if fields.get("type").is_some_and(Value::is_null) {
            email.kind = None;
        }
        if fields.get("primary").is_some_and(Value::is_null) {
            email.is_primary = false;
        }
        set_email(email, fields)?;
        is_set = true;
    }
    if is_set {
        return Ok(());
    }
    let kind = path.elements.as_deref().and_then(wished_kind);
    if path.elements.is_some() && kind.is_none() {
        let why = format!("no address fits `{path}`");
        return Err(ScimProblem::new(ScimErrorKind::NoTarget, why));
    }
    if fields.values().all(Value::is_null) {
        return Ok(());
    }
    let mut email = ScimEmail { kind, ..ScimEmail::default() };
    set_email(&mut email, fields)?;
    if email.value.is_empty() {
        let why = format!("no address fits `{path}`");
        return Err(ScimProblem::new(ScimErrorKind::NoTarget, why));
    }
    put_email(emails, email)
}

/// Returns the type that a filter asks for.
fn wished_kind(filter: &ScimFilter) -> Option<String> {
    filter.conjuncts().into_iter().find_map(|one| match one {
        ScimFilter::Compare(path, CompareOperator::Eq, FilterValue::Text(kind))
            if path.attribute.eq_ignore_ascii_case("type") =>
        {
            Some(kind.clone())
        }
        _ => None,
    })
}

fn email_fits(email: &ScimEmail, filter: &ScimFilter) -> Result<bool, ScimProblem> {
    match filter {
        ScimFilter::And(left, right) => Ok(email_fits(email, left)? && email_fits(email, right)?),
        ScimFilter::Or(left, right) => Ok(email_fits(email, left)? || email_fits(email, right)?),
        ScimFilter::Not(inner) => Ok(!email_fits(email, inner)?),
        ScimFilter::Compare(path, CompareOperator::Eq, value) => {
            let name = path.attribute.to_ascii_lowercase();
            match (name.as_str(), value) {
                ("value", FilterValue::Text(text)) => Ok(email.value.eq_ignore_ascii_case(text)),
                ("type", FilterValue::Text(text)) => {
                    Ok(email.kind.as_deref().unwrap_or_default().eq_ignore_ascii_case(text))
                }
                ("primary", FilterValue::Bool(is)) => Ok(email.is_primary == *is),
                ("primary", FilterValue::Text(text)) => {
                    Ok(email.is_primary == text.eq_ignore_ascii_case("true"))
                }
                _ => Err(unsupported_elements(filter)),
            }
        }
        ScimFilter::Compare(..) | ScimFilter::Present(_) | ScimFilter::Holds(_) => {
            Err(unsupported_elements(filter))
        }
    }
}

fn unsupported_elements(filter: &ScimFilter) -> ScimProblem {
    let why =
        format!("`{filter}` is not supported here; use `type`, `value` or `primary` with `eq`");
    ScimProblem::new(ScimErrorKind::InvalidFilter, why)
}

/// Translates a filter of people.
pub(crate) fn user_conditions(filter: &ScimFilter) -> Result<Vec<ScimUserCondition>, ScimProblem> {
    filter.conjuncts().into_iter().map(user_condition).collect()
}

fn user_condition(filter: &ScimFilter) -> Result<ScimUserCondition, ScimProblem> {
    let unsupported = || {
        let why = format!(
            "`{filter}` is not supported; use `eq` with id, userName, externalId, displayName, emails.value, \
             emails[type eq \"work\"].value or active, joined by `and`"
        );
        ScimProblem::new(ScimErrorKind::InvalidFilter, why)
    };
    if let ScimFilter::Holds(path) = filter
        && path.attribute.eq_ignore_ascii_case("emails")
        && let Some(inner) = &path.elements
    {
        return address_condition(inner, None).ok_or_else(unsupported);
    }
    let ScimFilter::Compare(path, CompareOperator::Eq, value) = filter else {
        return Err(unsupported());
    };
    if path.schema.as_deref().is_some_and(|schema| !schema.eq_ignore_ascii_case(USER_SCHEMA)) {
        return Err(unsupported());
    }
    let attribute = path.attribute.to_ascii_lowercase();
    let sub = path.sub_attribute.as_deref().unwrap_or("value");
    match (attribute.as_str(), value) {
        ("emails", FilterValue::Text(text)) if sub.eq_ignore_ascii_case("value") => {
            match &path.elements {
                None => Ok(ScimUserCondition::Address(text.clone(), None)),
                Some(inner) => address_condition(inner, Some(text)).ok_or_else(unsupported),
            }
        }
        _ if path.elements.is_some() || path.sub_attribute.is_some() => Err(unsupported()),
        ("id", FilterValue::Text(text)) => Ok(ScimUserCondition::Id(text.clone())),
        ("username", FilterValue::Text(text)) => Ok(ScimUserCondition::UserName(text.clone())),
        ("externalid", FilterValue::Text(text)) => Ok(ScimUserCondition::ExternalId(text.clone())),
        ("displayname", FilterValue::Text(text)) => {
            Ok(ScimUserCondition::DisplayName(text.clone()))
        }
        ("active", FilterValue::Bool(is)) => Ok(ScimUserCondition::Active(*is)),
        ("active", FilterValue::Text(text)) if text.eq_ignore_ascii_case("true") => {
            Ok(ScimUserCondition::Active(true))
        }
        ("active", FilterValue::Text(text)) if text.eq_ignore_ascii_case("false") => {
            Ok(ScimUserCondition::Active(false))
        }
        _ => Err(unsupported()),
    }
}

/// Translates the filter of an address: `type eq "work"`, and `value eq "…"` if the value is not given elsewhere.
fn address_condition(inner: &ScimFilter, value: Option<&str>) -> Option<ScimUserCondition> {
    let (mut value, mut kind) = (value.map(str::to_owned), None);
    for one in inner.conjuncts() {
        let ScimFilter::Compare(path, CompareOperator::Eq, FilterValue::Text(text)) = one else {
            return None;
        };
        match path.attribute.to_ascii_lowercase().as_str() {
            "type" if kind.is_none() => kind = Some(text.clone()),
            "value" if value.is_none() => value = Some(text.clone()),
            _ => return None,
        }
    }
    Some(ScimUserCondition::Address(value?, kind))
}

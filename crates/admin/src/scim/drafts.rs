//! People and groups as an identity provider describes them, and the rules for their values.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use store::{ScimAddress, ScimUser};

use super::problem::{ScimErrorKind, ScimProblem};
use crate::names::{has_hidden_characters, is_email_address};

/// Largest number of members of a group.
pub const MAX_GROUP_MEMBERS: usize = 10_000;
/// Largest number of addresses of a person.
pub const MAX_EMAILS: usize = 20;
/// Longest value of an attribute.
const MAX_VALUE_CHARS: usize = 256;
/// Type of the address at work, which is written to if none is the primary one.
const WORK: &str = "work";

/// Parts of the name of a person.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(missing_docs, reason = "the fields are those of RFC 7643, section 4.1.1")]
pub struct ScimPersonName {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub formatted: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub given_name: Option<String>,
}

/// An address of a person.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScimEmail {
    /// The address.
    pub value: String,
    /// `work`, `home` or `other`, or another word.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// True for the address to write to. At most one is.
    #[serde(rename = "primary", default)]
    pub is_primary: bool,
}

/// Stored form of the attributes that nothing is searched by.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct StoredProfile {
    name: ScimPersonName,
    emails: Vec<ScimEmail>,
}

/// A person as an identity provider describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of RFC 7643, section 4.1")]
pub struct ScimUserDraft {
    pub user_name: String,
    pub external_id: Option<String>,
    pub display_name: Option<String>,
    pub name: ScimPersonName,
    pub emails: Vec<ScimEmail>,
    pub active: bool,
}

impl Default for ScimUserDraft {
    fn default() -> Self {
        Self {
            user_name: String::new(),
            external_id: None,
            display_name: None,
            name: ScimPersonName::default(),
            emails: Vec::new(),
            active: true,
        }
    }
}

impl From<&ScimUser> for ScimUserDraft {
    fn from(user: &ScimUser) -> Self {
        // The gateway wrote it itself.
        let StoredProfile { name, emails } =
            serde_json::from_str(&user.profile).unwrap_or_default();
        Self {
            user_name: user.user_name.clone(),
            external_id: user.external_id.clone(),
            display_name: user.display_name.clone(),
            name,
            emails,
            active: user.active,
        }
    }
}

impl ScimUserDraft {
    /// Refuses values that are missing, too long or invisible.
    pub(super) fn check(&self) -> Result<(), ScimProblem> {
        let Self { user_name, external_id, display_name, name, emails, active: _ } = self;
        if user_name.trim().is_empty() {
            return Err(ScimProblem::invalid_value("userName", "must not be empty"));
        }
        check_visible("userName", user_name)?;
        check_external_id(external_id.as_deref())?;
        let ScimPersonName { formatted, family_name, given_name } = name;
        for (attribute, value) in [
            ("displayName", display_name),
            ("name.formatted", formatted),
            ("name.familyName", family_name),
            ("name.givenName", given_name),
        ] {
            check_value(attribute, value.as_deref().unwrap_or_default())?;
        }
        if emails.len() > MAX_EMAILS {
            let why = format!("`emails`: a person may have {MAX_EMAILS} addresses");
            return Err(ScimProblem::new(ScimErrorKind::TooMany, why));
        }
        for ScimEmail { value, kind, is_primary: _ } in emails {
            if value.is_empty() {
                return Err(ScimProblem::invalid_value("emails.value", "must not be empty"));
            }
            check_visible("emails.value", value)?;
            check_value("emails.type", kind.as_deref().unwrap_or_default())?;
        }
        if emails.iter().filter(|email| email.is_primary).count() > 1 {
            return Err(ScimProblem::invalid_value("emails.primary", "only one may be primary"));
        }
        Ok(())
    }

    /// Returns the address of the account: the primary one, the one at work, or the first. A name that is an address
    /// stands for a missing one.
    pub(super) fn login_email(&self) -> Option<String> {
        let is_work = |email: &&ScimEmail| {
            email.kind.as_deref().is_some_and(|k| k.eq_ignore_ascii_case(WORK))
        };
        let primary = self.emails.iter().find(|email| email.is_primary);
        let chosen = primary.or_else(|| self.emails.iter().find(is_work)).or(self.emails.first());
        let chosen = chosen.map_or(&self.user_name, |email| &email.value);
        is_email_address(chosen).then(|| chosen.clone())
    }

    pub(super) fn profile(&self) -> String {
        let profile = StoredProfile { name: self.name.clone(), emails: self.emails.clone() };
        // Encoding fails only for maps with keys that are not strings, and a profile has none.
        serde_json::to_string(&profile).unwrap_or_default()
    }

    pub(super) fn addresses(&self) -> Vec<ScimAddress> {
        let address = |email: &ScimEmail| ScimAddress {
            value: email.value.clone(),
            kind: email.kind.clone().unwrap_or_default(),
        };
        self.emails.iter().map(address).collect()
    }

    /// Returns the names of the attributes in which two descriptions differ.
    pub(super) fn differences(&self, other: &Self) -> Vec<&'static str> {
        let Self { user_name, external_id, display_name, name, emails, active } = self;
        let differs = [
            ("userName", *user_name != other.user_name),
            ("externalId", *external_id != other.external_id),
            ("displayName", *display_name != other.display_name),
            ("name", *name != other.name),
            ("emails", *emails != other.emails),
            ("active", *active != other.active),
        ];
        differs.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
    }
}

/// A group as an identity provider describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of RFC 7643, section 4.2")]
pub struct ScimGroupDraft {
    pub display_name: String,
    pub external_id: Option<String>,
    pub members: BTreeSet<String>,
}

impl ScimGroupDraft {
    /// Refuses values that are missing, too long or invisible, and too many members.
    pub(super) fn check(&self) -> Result<(), ScimProblem> {
        if self.display_name.trim().is_empty() {
            return Err(ScimProblem::invalid_value("displayName", "must not be empty"));
        }
        check_visible("displayName", &self.display_name)?;
        check_external_id(self.external_id.as_deref())?;
        if self.members.len() > MAX_GROUP_MEMBERS {
            let why = format!("`members`: a group may have {MAX_GROUP_MEMBERS} members");
            return Err(ScimProblem::new(ScimErrorKind::TooMany, why));
        }
        Ok(())
    }

    /// Returns the texts by which the configuration may name the group.
    pub(super) fn names(&self) -> Vec<String> {
        let names = [Some(&self.display_name), self.external_id.as_ref()];
        names.into_iter().flatten().cloned().collect()
    }
}

fn check_external_id(id: Option<&str>) -> Result<(), ScimProblem> {
    match id {
        Some("") => Err(ScimProblem::invalid_value("externalId", "must not be empty")),
        Some(id) => check_visible("externalId", id),
        None => Ok(()),
    }
}

fn check_visible(attribute: &str, value: &str) -> Result<(), ScimProblem> {
    if has_hidden_characters(value) {
        let why = "must not have control characters or others that cannot be seen";
        return Err(ScimProblem::invalid_value(attribute, why));
    }
    check_value(attribute, value)
}

fn check_value(attribute: &str, value: &str) -> Result<(), ScimProblem> {
    if value.chars().any(char::is_control) {
        let why = "must not have control characters";
        return Err(ScimProblem::invalid_value(attribute, why));
    }
    if value.chars().count() > MAX_VALUE_CHARS {
        let why = format!("may have {MAX_VALUE_CHARS} characters");
        return Err(ScimProblem::invalid_value(attribute, &why));
    }
    Ok(())
}

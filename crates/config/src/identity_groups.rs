//! `[identity.NAME.groups]`: groups of an identity provider, and the role and teams that they give.

use serde::Deserialize;
use std::collections::BTreeMap;
use store::{AccountRole, TeamRole};

use crate::error::FieldError;

/// Claim of the ID token that lists groups, if none is configured.
const DEFAULT_CLAIM: &str = "groups";

/// `[identity.NAME.groups]` as it is written.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawGroups {
    pub claim: Option<String>,
    pub demote_owners: bool,
    pub map: BTreeMap<String, RawGroup>,
}

/// A group as it is written.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawGroup {
    pub role: Option<String>,
    pub teams: BTreeMap<String, String>,
}

/// Role and teams that groups of an identity provider give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMapping {
    /// Claim of the ID token that lists the groups of a person.
    pub claim: String,
    /// True if an owner can lose the role by the claim.
    pub demotes_owners: bool,
    rules: Vec<GroupRule>,
}

/// Rights of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
struct GroupRule {
    group: String,
    role: Option<AccountRole>,
    /// Names of teams, with the role there.
    teams: Vec<(String, TeamRole)>,
}

impl GroupMapping {
    fn matched<'a>(&'a self, groups: &'a [String]) -> impl Iterator<Item = &'a GroupRule> {
        self.rules.iter().filter(|rule| groups.contains(&rule.group))
    }

    /// Returns true if a rule names one of these groups.
    pub fn names_any(&self, groups: &[String]) -> bool {
        self.matched(groups).next().is_some()
    }

    /// Returns true if a group gives a role. Otherwise roles are given by hand.
    pub fn gives_roles(&self) -> bool {
        self.rules.iter().any(|rule| rule.role.is_some())
    }

    /// Returns the most powerful role that these groups give.
    pub fn role_of(&self, groups: &[String]) -> Option<AccountRole> {
        let given: Vec<_> = self.matched(groups).filter_map(|rule| rule.role).collect();
        AccountRole::ALL.into_iter().find(|role| given.contains(role))
    }

    /// Returns every team that a group gives, with the most powerful role that these groups give
    /// there; `None` for a team that they do not give.
    pub fn teams_of(&self, groups: &[String]) -> BTreeMap<&str, Option<TeamRole>> {
        let all = self.rules.iter().flat_map(|rule| &rule.teams);
        let mut teams: BTreeMap<&str, Option<TeamRole>> =
            all.map(|(team, _)| (team.as_str(), None)).collect();
        for (team, seat) in &mut teams {
            let seats = self.matched(groups).flat_map(|rule| &rule.teams);
            let given: Vec<_> =
                seats.filter(|(name, _)| name == team).map(|(_, role)| *role).collect();
            *seat = TeamRole::ALL.into_iter().find(|role| given.contains(role));
        }
        teams
    }
}

/// Checks the groups of an identity provider. An error begins with the field below it.
pub(super) fn check(raw: RawGroups) -> Result<GroupMapping, FieldError> {
    let RawGroups { claim, demote_owners, map } = raw;
    let claim = claim.unwrap_or_else(|| DEFAULT_CLAIM.to_owned());
    if claim.is_empty() {
        return Err(FieldError::new("groups.claim", "must not be empty"));
    }
    if map.is_empty() {
        return Err(FieldError::new("groups.map", "names no group"));
    }
    let mut rules = Vec::new();
    for (group, RawGroup { role, teams }) in map {
        let at = format!("groups.map.\"{group}\"");
        if role.is_none() && teams.is_empty() {
            return Err(FieldError::new(at, "gives nothing; write `role` or `teams`"));
        }
        let role = match role.as_deref().map(AccountRole::by_word) {
            None => None,
            Some(Some(role @ (AccountRole::Admin | AccountRole::Member | AccountRole::Viewer))) => {
                Some(role)
            }
            Some(Some(AccountRole::Owner) | None) => {
                let why = "write \"admin\", \"member\" or \"viewer\"";
                return Err(FieldError::new(format_args!("{at}.role"), why));
            }
        };
        let teams = teams.into_iter().map(|(team, word)| match TeamRole::by_word(&word) {
            Some(role) => Ok((team, role)),
            None => {
                let why = "write \"manager\", \"member\" or \"viewer\"";
                Err(FieldError::new(format_args!("{at}.teams.{team}"), why))
            }
        });
        rules.push(GroupRule { group, role, teams: teams.collect::<Result<_, _>>()? });
    }
    Ok(GroupMapping { claim, demotes_owners: demote_owners, rules })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(text: &str) -> Result<GroupMapping, String> {
        check(toml::from_str(text).unwrap()).map_err(|error| error.to_string())
    }

    fn groups(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn the_most_powerful_group_decides() {
        let text = "[map.staff]\nrole = \"member\"\nteams = { ml = \"viewer\", ops = \"member\" }\n\
                    [map.leads]\nrole = \"admin\"\nteams = { ml = \"manager\" }\n";
        let mapping = mapping(text).unwrap();
        assert!(mapping.gives_roles() && mapping.claim == "groups" && !mapping.demotes_owners);
        assert_eq!(mapping.role_of(&groups(&["leads", "staff"])), Some(AccountRole::Admin));
        assert_eq!(mapping.role_of(&groups(&["staff"])), Some(AccountRole::Member));
        assert_eq!(mapping.role_of(&groups(&["Staff", "else"])), None);
        let both = mapping.teams_of(&groups(&["leads", "staff"]));
        assert_eq!(both["ml"], Some(TeamRole::Manager));
        assert_eq!(both["ops"], Some(TeamRole::Member));
        let none = mapping.teams_of(&[]);
        assert_eq!((none["ml"], none["ops"]), (None, None));
    }

    #[test]
    fn errors_name_the_group() {
        for (text, field) in [
            ("", "groups.map:"),
            ("claim = \"\"\n[map.a]\nrole = \"member\"", "groups.claim:"),
            ("[map.a]", "groups.map.\"a\":"),
            ("[map.a]\nrole = \"owner\"", "groups.map.\"a\".role:"),
            ("[map.a]\nrole = \"boss\"", "groups.map.\"a\".role:"),
            ("[map.a]\nteams = { ml = \"owner\" }", "groups.map.\"a\".teams.ml:"),
        ] {
            let error = mapping(text).unwrap_err();
            assert!(error.starts_with(field), "{text}: {error}");
        }
    }
}

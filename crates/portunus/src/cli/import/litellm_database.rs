//! People, teams and keys of a LiteLLM proxy from its PostgreSQL:
//! <https://github.com/BerriAI/litellm/blob/main/schema.prisma>.

use anyhow::bail;
use canon::{Micros, Money};
use std::collections::{BTreeMap, BTreeSet};
use store::{AccountRole, RateLimits, TeamRole};

use super::litellm_notes::{note_fields, note_unread_columns, note_unread_tables};
use super::litellm_values::{budget_period, hex_digest, read_token};
use super::source_data::{
    SourceData, SourceKey, SourceOwner, SourcePerson, SourceTeam, SourceTerms,
};
use super::source_database::SourceDatabase;
use super::source_row::SourceRow;

/// Team of the sessions of LiteLLM's own pages, which are stored as keys.
const DASHBOARD_TEAM: &str = "litellm-dashboard";
/// Account of the administrator that signs in with the master key.
const MASTER_USER: &str = "default_user_id";
/// Lists of models that permit all, or all that the team permits.
const ALL_MODELS: [&str; 2] = ["all-proxy-models", "all-team-models"];
/// Routes of keys that administrate only.
const ADMIN_ROUTES: [&str; 2] = ["management_routes", "info_routes"];

const KEY_COLUMNS: [&str; 34] = [
    "token",
    "key_name",
    "key_alias",
    "spend",
    "expires",
    "models",
    "aliases",
    "config",
    "router_settings",
    "user_id",
    "team_id",
    "agent_id",
    "project_id",
    "permissions",
    "max_parallel_requests",
    "metadata",
    "blocked",
    "tpm_limit",
    "rpm_limit",
    "max_budget",
    "budget_duration",
    "budget_reset_at",
    "allowed_cache_controls",
    "allowed_routes",
    "policies",
    "access_group_ids",
    "model_max_budget",
    "budget_id",
    "organization_id",
    "object_permission_id",
    "auto_rotate",
    "budget_limits",
    "budget_fallbacks",
    "tpd_limit",
];
const TEAM_COLUMNS: [&str; 26] = [
    "team_id",
    "team_alias",
    "organization_id",
    "object_permission_id",
    "admins",
    "members",
    "members_with_roles",
    "metadata",
    "max_budget",
    "soft_budget",
    "spend",
    "models",
    "max_parallel_requests",
    "tpm_limit",
    "rpm_limit",
    "budget_duration",
    "budget_reset_at",
    "blocked",
    "model_max_budget",
    "router_settings",
    "access_group_ids",
    "policies",
    "model_id",
    "budget_limits",
    "default_team_member_models",
    "tpd_limit",
];
const USER_COLUMNS: [&str; 17] = [
    "user_id",
    "user_alias",
    "user_email",
    "user_role",
    "max_budget",
    "spend",
    "models",
    "metadata",
    "max_parallel_requests",
    "tpm_limit",
    "rpm_limit",
    "budget_duration",
    "budget_reset_at",
    "policies",
    "model_max_budget",
    "object_permission_id",
    "allowed_cache_controls",
];
const BUDGET_COLUMNS: [&str; 12] = [
    "budget_id",
    "max_budget",
    "soft_budget",
    "max_parallel_requests",
    "tpm_limit",
    "rpm_limit",
    "budget_duration",
    "budget_reset_at",
    "model_max_budget",
    "allowed_models",
    "tpd_limit",
    "temp_budget_increase",
];
/// Tables whose rows become objects, with the columns that are read.
const READ_TABLES: [(&str, &[&str]); 5] = [
    ("LiteLLM_VerificationToken", &KEY_COLUMNS),
    ("LiteLLM_TeamTable", &TEAM_COLUMNS),
    ("LiteLLM_UserTable", &USER_COLUMNS),
    ("LiteLLM_BudgetTable", &BUDGET_COLUMNS),
    ("LiteLLM_OrganizationTable", &ORGANIZATION_COLUMNS),
];
const ORGANIZATION_COLUMNS: [&str; 5] =
    ["organization_id", "organization_alias", "budget_id", "models", "spend"];

/// Rows of the tables that become objects.
struct LitellmTables {
    keys: Vec<SourceRow>,
    teams: Vec<SourceRow>,
    users: Vec<SourceRow>,
    budgets: BTreeMap<String, SourceRow>,
    organizations: BTreeMap<String, SourceRow>,
    /// Members of organisations.
    organization_seats: Vec<SourceRow>,
    /// Hashes before a rotation, by the present one.
    old_tokens: BTreeMap<String, Vec<SourceRow>>,
}

/// Reads the database. `now` decides whether a budget was reset.
pub(super) async fn read(database: &mut SourceDatabase, now: Micros) -> anyhow::Result<SourceData> {
    let Some(keys) = database.rows("LiteLLM_VerificationToken", &KEY_COLUMNS).await? else {
        bail!(
            "this is not the database of a LiteLLM proxy: it has no table LiteLLM_VerificationToken"
        );
    };
    let by_id = |rows: Option<Vec<SourceRow>>, column: &str| -> BTreeMap<String, SourceRow> {
        let rows = rows.unwrap_or_default().into_iter();
        rows.filter_map(|row| Some((row.text(column)?, row))).collect()
    };
    let budgets = database.rows("LiteLLM_BudgetTable", &BUDGET_COLUMNS).await?;
    let organizations = database.rows("LiteLLM_OrganizationTable", &ORGANIZATION_COLUMNS).await?;
    let seats = ["user_id", "organization_id", "user_role"];
    let columns = ["token", "active_token_id", "revoke_at"];
    let mut old_tokens: BTreeMap<String, Vec<SourceRow>> = BTreeMap::new();
    let rotated = database.rows("LiteLLM_DeprecatedVerificationToken", &columns).await?;
    for row in rotated.unwrap_or_default() {
        old_tokens.entry(row.text("active_token_id").unwrap_or_default()).or_default().push(row);
    }
    let tables = LitellmTables {
        keys,
        teams: database.rows("LiteLLM_TeamTable", &TEAM_COLUMNS).await?.unwrap_or_default(),
        users: database.rows("LiteLLM_UserTable", &USER_COLUMNS).await?.unwrap_or_default(),
        budgets: by_id(budgets, "budget_id"),
        organizations: by_id(organizations, "organization_id"),
        organization_seats: database
            .rows("LiteLLM_OrganizationMembership", &seats)
            .await?
            .unwrap_or_default(),
        old_tokens,
    };
    let mut reader = LitellmReader { tables: &tables, now, data: SourceData::default() };
    reader.read_people();
    reader.read_teams();
    reader.read_keys();
    reader.note_organizations();
    let mut data = reader.data;
    for (table, columns) in READ_TABLES {
        note_unread_columns(database, table, columns, &mut data.notes).await?;
    }
    note_unread_tables(database, &mut data.notes).await?;
    Ok(data)
}

struct LitellmReader<'a> {
    tables: &'a LitellmTables,
    now: Micros,
    data: SourceData,
}

/// Spending limits and rate limits of a row.
struct RowLimits {
    terms: SourceTerms,
    limits: RateLimits,
}

impl LitellmReader<'_> {
    fn note(&mut self, note: String) {
        self.data.notes.push(note);
    }

    fn read_people(&mut self) {
        let tables = self.tables;
        for row in &tables.users {
            let Some(id) = row.text("user_id").filter(|id| id != MASTER_USER) else { continue };
            let email = row.text("user_email");
            let names: Vec<String> = [row.text("user_alias"), email.clone(), Some(id.clone())]
                .into_iter()
                .flatten()
                .collect();
            let said = format!("account `{}`", names.first().unwrap_or(&id));
            note_fields(
                &said,
                row,
                &[
                    "policies",
                    "model_max_budget",
                    "object_permission_id",
                    "allowed_cache_controls",
                    "metadata",
                ],
                &mut self.data.notes,
            );
            let role = match row.text("user_role").as_deref() {
                Some("proxy_admin") => AccountRole::Admin,
                Some("proxy_admin_viewer" | "internal_user_viewer") => AccountRole::Viewer,
                _ => AccountRole::Member,
            };
            let Some(RowLimits { terms, limits }) = self.limits(&said, row, None) else { continue };
            let models = self.models(row);
            let disabled = false;
            self.data.people.push(SourcePerson {
                id,
                names,
                email,
                role,
                disabled,
                terms,
                models,
                limits,
            });
        }
    }

    fn read_teams(&mut self) {
        let tables = self.tables;
        for row in &tables.teams {
            let Some(id) = row.text("team_id").filter(|id| id != DASHBOARD_TEAM) else { continue };
            let name = row.text("team_alias").unwrap_or_else(|| id.clone());
            let said = format!("team `{name}`");
            note_fields(
                &said,
                row,
                &[
                    "soft_budget",
                    "policies",
                    "model_max_budget",
                    "object_permission_id",
                    "router_settings",
                    "access_group_ids",
                    "metadata",
                    "model_id",
                    "budget_limits",
                    "default_team_member_models",
                    "tpd_limit",
                ],
                &mut self.data.notes,
            );
            let Some(RowLimits { mut terms, limits }) = self.limits(&said, row, None) else {
                continue;
            };
            let mut models = self.models(row);
            if let Some(organization) =
                row.text("organization_id").and_then(|id| tables.organizations.get(&id))
            {
                if models.is_empty() {
                    models = self.models(organization);
                }
                self.tighten(&said, organization, &mut terms);
            }
            let members = team_members(row);
            let disabled = row.flag("blocked");
            self.data.teams.push(SourceTeam { id, name, disabled, terms, models, limits, members });
        }
    }

    /// Applies the budget of an organisation to one of its teams.
    fn tighten(&mut self, said: &str, organization: &SourceRow, terms: &mut SourceTerms) {
        let name = organization.text("organization_alias").unwrap_or_default();
        let Some(above) = self.organization_terms(organization) else { return };
        let Some(limit) = above.limit else { return };
        match (terms.limit, terms.period == above.period) {
            (None, _) => (terms.limit, terms.period) = (Some(limit), above.period),
            (Some(own), true) => terms.limit = Some(own.min(limit)),
            (Some(_), false) => {
                let period = above
                    .period
                    .map_or_else(String::new, |period| format!(" per {}", period.word()));
                self.note(format!(
                    "{said}: the budget of the organisation `{name}`, {limit} USD{period}, does not limit it, \
                     because its own limit has another period; set a second limit of the team here"
                ));
                return;
            }
        }
        self.note(format!(
            "{said}: the budget of the organisation `{name}` is one of each of its teams here, not of all together"
        ));
    }

    fn organization_terms(&mut self, organization: &SourceRow) -> Option<SourceTerms> {
        let tables = self.tables;
        let budget = organization.text("budget_id").and_then(|id| tables.budgets.get(&id))?;
        let name = organization.text("organization_alias").unwrap_or_default();
        self.limits(&format!("organisation `{name}`"), organization, Some(budget))
            .map(|row| row.terms)
    }

    fn read_keys(&mut self) {
        let tables = self.tables;
        let mut sessions = 0_u64;
        let mut direct: BTreeSet<String> = BTreeSet::new();
        for row in &tables.keys {
            let Some(token) = row.text("token") else { continue };
            if row.text("team_id").as_deref() == Some(DASHBOARD_TEAM) {
                sessions += 1;
                continue;
            }
            let name = row.text("key_alias").or(row.text("key_name"));
            let name = name.unwrap_or_else(|| "imported from LiteLLM".to_owned());
            let said = format!("key `{name}`");
            let Some(secret) = read_token(&token) else {
                self.note(format!("{said}: its token is no SHA-256, so it is left out"));
                continue;
            };
            let routes = row.list("allowed_routes");
            if !routes.is_empty()
                && routes.iter().all(|route| ADMIN_ROUTES.contains(&route.as_str()))
            {
                self.note(format!(
                    "{said}: it administrates only and is left out; create one with \
                     `portunus keys create --scope admin`"
                ));
                continue;
            }
            note_fields(
                &said,
                row,
                &[
                    "aliases",
                    "config",
                    "router_settings",
                    "permissions",
                    "metadata",
                    "allowed_cache_controls",
                    "allowed_routes",
                    "policies",
                    "access_group_ids",
                    "model_max_budget",
                    "object_permission_id",
                    "auto_rotate",
                    "agent_id",
                    "project_id",
                    "budget_limits",
                    "budget_fallbacks",
                    "tpd_limit",
                ],
                &mut self.data.notes,
            );
            let budget = row.text("budget_id").and_then(|id| tables.budgets.get(&id));
            let Some(RowLimits { terms, limits }) = self.limits(&said, row, budget) else {
                continue;
            };
            let user = row.text("user_id");
            let organization = row.text("organization_id");
            let owner = match (row.text("team_id"), &user, organization) {
                (Some(team), _, _) => SourceOwner::Team(team),
                (None, Some(user), _) if user == MASTER_USER => SourceOwner::Gateway,
                (None, Some(user), _) => SourceOwner::Person(user.clone()),
                (None, None, Some(organization)) => {
                    direct.insert(organization.clone());
                    SourceOwner::Team(organization_team(&organization))
                }
                (None, None, None) => SourceOwner::Gateway,
            };
            if owner == SourceOwner::Gateway {
                self.note(format!(
                    "{said}: it belongs to no team and no user, so the gateway's owner gets it"
                ));
            }
            let blocked = row.flag("blocked");
            if blocked {
                self.note(format!("{said}: it is blocked, so it is revoked here for good"));
            }
            let expires = match row.end("expires") {
                Ok(expires) => expires,
                Err(why) => {
                    self.note(format!("{said}: {why}, so it is left out"));
                    continue;
                }
            };
            let models = self.models(row);
            let old_secret = self.old_secret(&token);
            self.data.keys.push(SourceKey {
                name,
                owner,
                created_by: user,
                terms,
                models,
                limits,
                ips: Vec::new(),
                expires,
                blocked,
                secret,
                old_secret,
            });
        }
        if sessions > 0 {
            self.note(format!("{sessions} sessions of LiteLLM's own pages are left out"));
        }
        for id in direct {
            self.add_organization_team(&id);
        }
    }

    /// Adds a team for the keys that belong to an organisation itself.
    fn add_organization_team(&mut self, id: &str) {
        let tables = self.tables;
        let Some(row) = tables.organizations.get(id) else { return };
        let name = row.text("organization_alias").unwrap_or_else(|| id.to_owned());
        let terms = self.organization_terms(row).unwrap_or_default();
        let seats = tables.organization_seats.iter();
        let seats = seats.filter(|seat| seat.text("organization_id").as_deref() == Some(id));
        let members = seats.filter_map(|seat| {
            let role = match seat.text("user_role").as_deref() {
                Some("org_admin") => TeamRole::Manager,
                _ => TeamRole::Member,
            };
            Some((seat.text("user_id").filter(|id| id != MASTER_USER)?, role))
        });
        let members = members.collect();
        let models = self.models(row);
        self.note(format!(
            "organisation `{name}`: keys that belong to it and to no team get a team of its name"
        ));
        self.data.teams.push(SourceTeam {
            id: organization_team(id),
            name,
            disabled: false,
            terms: SourceTerms { spent: Money::ZERO, ..terms },
            models,
            limits: RateLimits::default(),
            members,
        });
    }

    fn note_organizations(&mut self) {
        let tables = self.tables;
        for row in tables.organizations.values() {
            let name = row.text("organization_alias").unwrap_or_default();
            self.note(format!(
                "organisation `{name}`: accounts here have no organisations above teams; its members and its \
                 own limits over all teams together are not carried"
            ));
        }
    }

    /// Returns the hash of a key before its rotation, while that is accepted.
    fn old_secret(&self, token: &str) -> Option<([u8; 32], Micros)> {
        let old = self.tables.old_tokens.get(token)?.iter();
        let old =
            old.filter_map(|row| Some((hex_digest(&row.text("token")?)?, row.time("revoke_at")?)));
        old.filter(|(_, until)| *until > self.now).max_by_key(|(_, until)| *until)
    }

    fn models(&self, row: &SourceRow) -> Vec<String> {
        let models = row.list("models");
        if models.iter().any(|model| ALL_MODELS.contains(&model.as_str())) {
            return Vec::new();
        }
        models
    }

    /// Returns the limits of a row, or of its budget where it has none; `None` if it is left out, which is
    /// told.
    fn limits(
        &mut self,
        said: &str,
        row: &SourceRow,
        budget: Option<&SourceRow>,
    ) -> Option<RowLimits> {
        if let Some(budget) = budget {
            let fields = [
                "soft_budget",
                "model_max_budget",
                "allowed_models",
                "tpd_limit",
                "temp_budget_increase",
            ];
            note_fields(said, budget, &fields, &mut self.data.notes);
        }
        let amounts = row.dollar_limit("max_budget").and_then(|own| {
            let own = match (own, budget) {
                (None, Some(budget)) => budget.dollar_limit("max_budget")?,
                (own, _) => own,
            };
            Ok((own, row.dollars("spend")?.unwrap_or_default()))
        });
        let (limit, spent) = match amounts {
            Ok(amounts) => amounts,
            Err(why) => {
                self.note(format!("{said}: {why}, so it is left out"));
                return None;
            }
        };
        let from = |column: &str| row.is_set(column).then_some(row).or(budget);
        let duration = from("budget_duration").and_then(|row| row.text("budget_duration"));
        let reset_at = from("budget_reset_at").and_then(|row| row.time("budget_reset_at"));
        let period = match duration.filter(|_| limit.is_some()) {
            None => None,
            Some(text) => {
                let period = budget_period(&text);
                match period {
                    Some((period, true)) => Some(period),
                    Some((period, false)) => {
                        self.note(format!(
                            "{said}: budget_duration {text} becomes a {}, which is not shorter",
                            period.word()
                        ));
                        Some(period)
                    }
                    None => {
                        self.note(format!(
                            "{said}: budget_duration {text} has no counterpart, so max_budget is a limit over \
                             all time; raise it when its time has come"
                        ));
                        None
                    }
                }
            }
        };
        let is_current = reset_at.is_none_or(|at| at > self.now);
        let terms = SourceTerms { limit, period, spent, is_current };
        let mut limits = RateLimits::default();
        for (column, own) in [
            ("rpm_limit", &mut limits.rpm),
            ("tpm_limit", &mut limits.tpm),
            ("max_parallel_requests", &mut limits.concurrency),
        ] {
            match from(column).and_then(|row| row.number(column)) {
                None => {}
                Some(number) if number <= 0 => {
                    self.data.notes.push(format!(
                        "{said}: {column} {number} permits no call, so it is left out"
                    ));
                    return None;
                }
                // A larger limit is none.
                Some(number) => *own = u32::try_from(number).ok(),
            }
        }
        Some(RowLimits { terms, limits })
    }
}

/// Returns the id of the team for the keys of an organisation itself.
fn organization_team(id: &str) -> String {
    format!("organization/{id}")
}

/// Returns the members of a team, each with its highest role.
fn team_members(row: &SourceRow) -> Vec<(String, TeamRole)> {
    let mut members: BTreeMap<String, TeamRole> = BTreeMap::new();
    let named = row.array("members_with_roles").into_iter().filter_map(|member| {
        let role = match member.get("role").and_then(|role| role.as_str()) {
            Some("admin") => TeamRole::Manager,
            _ => TeamRole::Member,
        };
        Some((member.get("user_id")?.as_str()?.to_owned(), role))
    });
    let admins = row.list("admins").into_iter().map(|id| (id, TeamRole::Manager));
    let others = row.list("members").into_iter().map(|id| (id, TeamRole::Member));
    for (id, role) in named.chain(admins).chain(others).filter(|(id, _)| id != MASTER_USER) {
        let known = members.entry(id).or_insert(role);
        if role == TeamRole::Manager {
            *known = role;
        }
    }
    members.into_iter().collect()
}

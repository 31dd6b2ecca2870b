//! Notes about the parts of a LiteLLM database that have no counterpart.

use super::source_database::SourceDatabase;
use super::source_row::SourceRow;

/// Names listed in one note.
const MAX_LISTED: usize = 20;

/// Fields without a counterpart, and the consequence.
const FIELDS: [(&str, &str); 22] = [
    ("access_group_ids", "list the models of these groups with `portunus keys set --models`"),
    ("agent_id", "keys belong to accounts and teams"),
    ("aliases", "other names of a model are `aliases` of the model, for all keys"),
    ("allowed_cache_controls", "caching is not limited by key"),
    ("allowed_models", "list the models with `portunus keys set --models`"),
    ("allowed_routes", "the key may use all routes for calls now"),
    ("auto_rotate", "rotate keys with `portunus keys rotate`"),
    ("budget_fallbacks", "a key without money is refused; fallbacks of models are for all keys"),
    ("budget_limits", "budgets beside max_budget do not limit it"),
    ("config", "settings are in the configuration"),
    ("default_team_member_models", "list the models of keys with `portunus keys set --models`"),
    ("metadata", "tags, guardrails and limits per model in it have no counterpart"),
    ("model_id", "other names of a model are `aliases` of the model, for all teams"),
    ("model_max_budget", "limits of single models have no counterpart"),
    ("object_permission_id", "MCP servers are given to keys and teams in the configuration"),
    ("permissions", "rights of a key are its scope"),
    ("policies", "policies have no counterpart"),
    ("project_id", "projects have no counterpart, and their budget does not limit the key"),
    ("router_settings", "settings are in the configuration"),
    ("temp_budget_increase", "the limit is that without it"),
    ("tpd_limit", "tokens per day are not limited; a budget per day limits their cost"),
    ("soft_budget", "it warns and limits nothing"),
];

/// Tables without a counterpart: the column with the name of a row, and the reason.
const TABLES: [(&str, &str, &str); 8] = [
    (
        "LiteLLM_ProxyModelTable",
        "model_name",
        "models in the database are encrypted; import config.yaml, or add them in the console",
    ),
    ("LiteLLM_CredentialsTable", "credential_name", "credentials are encrypted; add them anew"),
    ("LiteLLM_EndUserTable", "user_id", "end users have no limits of their own"),
    ("LiteLLM_TagTable", "tag_name", "tags have no limits"),
    ("LiteLLM_ProjectTable", "project_alias", "projects have no counterpart"),
    (
        "LiteLLM_MCPServerTable",
        "server_name",
        "MCP servers are in the configuration, see docs/mcp.md",
    ),
    ("LiteLLM_AgentsTable", "agent_name", "agents have no counterpart"),
    ("LiteLLM_Config", "param_name", "settings are in the configuration"),
];

/// Notes the fields of a row that say anything and are not carried.
pub(super) fn note_fields(said: &str, row: &SourceRow, columns: &[&str], notes: &mut Vec<String>) {
    for column in columns.iter().filter(|column| row.is_set(column)) {
        let known = FIELDS.iter().find(|(field, _)| field == column);
        let why = known.map_or("it has no counterpart", |(_, why)| *why);
        notes.push(format!("{said}: {column} is not carried: {why}"));
    }
}

/// Columns that limit nothing: times, names of those who changed a row, sums, and what other columns say too.
const PLAIN_COLUMNS: [&str; 23] = [
    "created_at",
    "created_by",
    "updated_at",
    "updated_by",
    "settings_updated_at",
    "last_active",
    "last_breach_check_at",
    "model_spend",
    "total_spend",
    "soft_budget_cooldown",
    "key_type",
    "key_rotation_at",
    "last_rotation_at",
    "rotation_count",
    "rotation_interval",
    "temp_budget_expiry",
    "team_id",
    "teams",
    "organization_id",
    "sso_user_id",
    "password",
    "password_reset_required",
    "allow_team_guardrail_config",
];

/// Notes the columns of a table that say something and that this importer does not know: those of later
/// versions of LiteLLM may be limits.
pub(super) async fn note_unread_columns(
    database: &mut SourceDatabase,
    table: &str,
    read: &[&str],
    notes: &mut Vec<String>,
) -> anyhow::Result<()> {
    let known: Vec<&str> = read.iter().copied().chain(PLAIN_COLUMNS).collect();
    for (column, count) in database.other_columns(table, &known).await? {
        notes.push(format!(
            "{table}: the column `{column}` is not known here and not carried; {count} rows have it"
        ));
    }
    Ok(())
}

/// Notes the tables that are not read, with the names in them.
pub(super) async fn note_unread_tables(
    database: &mut SourceDatabase,
    notes: &mut Vec<String>,
) -> anyhow::Result<()> {
    for (table, column, why) in TABLES {
        let rows = database.rows(table, &[column]).await?.unwrap_or_default();
        let names: Vec<String> = rows.iter().filter_map(|row| row.text(column)).collect();
        if let Some(list) = listed(&names) {
            notes.push(format!("{table} is not carried: {why}: {list}"));
        }
    }
    let seats =
        database.rows("LiteLLM_TeamMembership", &["user_id", "team_id", "budget_id"]).await?;
    let limited = seats.unwrap_or_default().into_iter().filter(|seat| seat.is_set("budget_id"));
    let limited: Vec<String> = limited
        .filter_map(|seat| Some(format!("{} in {}", seat.text("user_id")?, seat.text("team_id")?)))
        .collect();
    if let Some(list) = listed(&limited) {
        notes.push(format!(
            "budgets of single members of a team are not carried; limit their keys: {list}"
        ));
    }
    notes.push(
        "passwords are not carried: people sign in with your identity provider, or choose a password by \
         a link of `portunus users reset-password NAME`"
            .to_owned(),
    );
    Ok(())
}

/// Returns names with commas between them, the first of many; `None` for no names.
pub(super) fn listed(names: &[String]) -> Option<String> {
    let shown: Vec<&str> = names.iter().take(MAX_LISTED).map(String::as_str).collect();
    match names.len().saturating_sub(shown.len()) {
        _ if shown.is_empty() => None,
        0 => Some(shown.join(", ")),
        more => Some(format!("{} and {more} more", shown.join(", "))),
    }
}

//! People and tokens of One API (<https://github.com/songquanpeng/one-api/tree/main/model>) and of New API
//! (<https://github.com/QuantumNous/new-api/tree/main/model>), which have the same tables.
//!
//! Amounts are whole units there, 500,000 of them per dollar unless the option `QuotaPerUnit` says
//! otherwise.

use anyhow::bail;
use canon::{Micros, Money};
use config::IpRange;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use store::{AccountRole, RateLimits};

use super::litellm_notes::listed;
use super::source_data::{
    SourceData, SourceKey, SourceOwner, SourcePerson, SourceSecret, SourceTerms,
};
use super::source_database::SourceDatabase;
use super::source_row::{SourceRow, nearest_nanos, split_list};

/// Units per dollar by default.
const UNITS_PER_DOLLAR: i64 = 500_000;
const NANOS_PER_DOLLAR: i128 = 1_000_000_000;
/// State of people, tokens and channels that are in use.
const ENABLED: i64 = 1;
/// States of tokens.
const TOKEN_EXPIRED: i64 = 3;
const TOKEN_EXHAUSTED: i64 = 4;
/// Time of expiry of tokens that do not expire. An earlier one is past.
const NO_EXPIRY: i64 = -1;
/// Roles of people.
const ADMIN_ROLE: i64 = 10;
/// Front of the keys that clients send. It is not stored.
const KEY_PREFIX: &str = "sk-";

const USER_COLUMNS: [&str; 11] = [
    "id",
    "username",
    "display_name",
    "role",
    "status",
    "email",
    "quota",
    "used_quota",
    "group",
    "deleted_at",
    "aff_quota",
];
const TOKEN_COLUMNS: [&str; 17] = [
    "id",
    "user_id",
    "key",
    "status",
    "name",
    "created_time",
    "expired_time",
    "remain_quota",
    "unlimited_quota",
    "used_quota",
    "models",
    "subnet",
    "model_limits_enabled",
    "model_limits",
    "allow_ips",
    "group",
    "deleted_at",
];
/// Options that are read. Others may be secrets.
pub(super) const READ_OPTIONS: [&str; 4] =
    ["QuotaPerUnit", "GroupRatio", "ModelRatio", "CompletionRatio"];

/// Options of the other gateway by name.
#[derive(Debug, Default)]
pub(super) struct SourceOptions(BTreeMap<String, String>);

impl SourceOptions {
    /// Reads the options that are needed.
    pub(super) async fn read(database: &mut SourceDatabase) -> anyhow::Result<Self> {
        let rows = database.rows("options", &["key", "value"]).await?.unwrap_or_default();
        let options = rows.iter().filter_map(|row| {
            let key = row.text("key").filter(|key| READ_OPTIONS.contains(&key.as_str()))?;
            Some((key, row.text("value")?))
        });
        Ok(Self(options.collect()))
    }

    /// Returns an option that is an object.
    pub(super) fn object(&self, name: &str) -> Map<String, Value> {
        let text = self.0.get(name).map(String::as_str).unwrap_or_default();
        serde_json::from_str(text).unwrap_or_default()
    }

    fn units_per_dollar(&self) -> Option<f64> {
        let units: f64 = self.0.get("QuotaPerUnit")?.parse().ok()?;
        (units.is_finite() && units > 0.0).then_some(units)
    }
}

/// The value of a unit.
#[derive(Clone, Copy, Debug, PartialEq)]
enum QuotaUnit {
    /// So many units are a dollar.
    Whole(i64),
    /// The same with a fraction.
    Fraction(f64),
}

impl QuotaUnit {
    fn new(options: &SourceOptions) -> Self {
        match options.units_per_dollar() {
            None => Self::Whole(UNITS_PER_DOLLAR),
            Some(units) if units.fract() == 0.0 && units < 1e15 => Self::Whole(units as i64),
            Some(units) => Self::Fraction(units),
        }
    }

    /// Returns the amount of so many units, rounded to the nearest nanodollar; below zero it is zero.
    fn amount(self, units: i64) -> Money {
        let units = units.max(0);
        match self {
            Self::Whole(per_dollar) => {
                let per_dollar = i128::from(per_dollar.max(1));
                let nanos =
                    (i128::from(units) * NANOS_PER_DOLLAR * 2 + per_dollar) / (per_dollar * 2);
                Money::from_nanos(i64::try_from(nanos).unwrap_or(i64::MAX))
            }
            Self::Fraction(per_dollar) => {
                nearest_nanos(units as f64 / per_dollar).unwrap_or(Money::MAX)
            }
        }
    }
}

/// Reads the people and tokens.
pub(super) async fn read(
    database: &mut SourceDatabase,
    options: &SourceOptions,
    now: Micros,
) -> anyhow::Result<SourceData> {
    let users = database.rows("users", &USER_COLUMNS).await?;
    let tokens = database.rows("tokens", &TOKEN_COLUMNS).await?;
    let (Some(users), Some(tokens)) = (users, tokens) else {
        bail!(
            "this is not the database of One API or New API: it needs the tables users and tokens"
        );
    };
    let unit = QuotaUnit::new(options);
    let mut data = SourceData::default();
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    let mut deleted = 0_u64;
    for row in &users {
        let Some(id) = row.text("id") else { continue };
        if row.is_set("deleted_at") {
            deleted += 1;
            continue;
        }
        let person = read_person(row, &id, unit, &mut data.notes);
        note_group(row, person.names.first(), &mut groups);
        known.insert(id, person.id.clone());
        data.people.push(person);
    }
    for row in &tokens {
        let user = row.text("user_id").and_then(|id| known.get(&id));
        let Some(user) = user.filter(|_| !row.is_set("deleted_at")) else {
            deleted += 1;
            continue;
        };
        let Some(key) = read_token(row, user, (unit, now), &mut data.notes) else { continue };
        note_group(row, Some(&key.name), &mut groups);
        data.keys.push(key);
    }
    if deleted > 0 {
        data.notes.push(format!("{deleted} deleted people and tokens are left out"));
    }
    note_groups(&groups, options, &mut data.notes);
    data.notes.push(
        "passwords, access tokens for management, redemption codes, top-ups, invitations and logs are not carried; \
         people choose a password by a link of `portunus users reset-password NAME`"
            .to_owned(),
    );
    Ok(data)
}

fn read_person(
    row: &SourceRow,
    id: &str,
    unit: QuotaUnit,
    notes: &mut Vec<String>,
) -> SourcePerson {
    let names: Vec<String> = [row.text("username"), row.text("display_name")]
        .into_iter()
        .flatten()
        .chain([format!("user-{id}")])
        .collect();
    let said = names.first().cloned().unwrap_or_default();
    let number = |column: &str| row.number(column).unwrap_or_default();
    if number("aff_quota") > 0 {
        notes.push(format!(
            "account `{said}`: {} USD for invitations that were not moved to its quota are not carried",
            unit.amount(number("aff_quota"))
        ));
    }
    let (left, used) = (unit.amount(number("quota")), unit.amount(number("used_quota")));
    let terms = SourceTerms {
        limit: Some(left.saturating_add(used)),
        period: None,
        spent: used,
        is_current: false,
    };
    let role = if number("role") >= ADMIN_ROLE { AccountRole::Admin } else { AccountRole::Member };
    let disabled = number("status") != ENABLED;
    SourcePerson {
        // Numbers of people are alike in all installations.
        id: format!("{id}/{said}"),
        names,
        email: row.text("email"),
        role,
        disabled,
        terms,
        models: Vec::new(),
        limits: RateLimits::default(),
    }
}

fn read_token(
    row: &SourceRow,
    user: &str,
    (unit, now): (QuotaUnit, Micros),
    notes: &mut Vec<String>,
) -> Option<SourceKey> {
    let id = row.text("id")?;
    let name = row.text("name").unwrap_or_else(|| format!("token {id}"));
    let said = format!("key `{name}`");
    let Some(key) = row.text("key") else {
        notes.push(format!("{said}: its token is empty, so it is left out"));
        return None;
    };
    let text = if key.starts_with(KEY_PREFIX) { key } else { format!("{KEY_PREFIX}{key}") };
    let number = |column: &str| row.number(column).unwrap_or_default();
    let used = unit.amount(number("used_quota"));
    let limit = match (row.flag("unlimited_quota"), number("status")) {
        // It is refused there until somebody enables it, whatever its quota says.
        (_, TOKEN_EXHAUSTED) => Some(used),
        (true, _) => None,
        (false, _) => Some(unit.amount(number("remain_quota")).saturating_add(used)),
    };
    let mut expires =
        row.number("expired_time").filter(|at| *at != NO_EXPIRY).map(Micros::from_secs);
    if number("status") == TOKEN_EXPIRED && expires.is_none_or(|at| at > now) {
        notes.push(format!(
            "{said}: it is marked as expired, so it expires now; `portunus keys set --expires` extends it"
        ));
        expires = Some(now);
    }
    let blocked = !matches!(number("status"), ENABLED | TOKEN_EXPIRED | TOKEN_EXHAUSTED);
    if blocked {
        notes.push(format!("{said}: it is disabled, so it is revoked here for good"));
    }
    let has_model_limits = row.flag("model_limits_enabled");
    let models = row.list(if has_model_limits { "model_limits" } else { "models" });
    // An empty list would permit all models here.
    if models.is_empty() && (has_model_limits || row.is_set("models")) {
        notes.push(format!("{said}: its list of models permits none, so it is left out"));
        return None;
    }
    let networks = row.text("subnet").into_iter().chain(row.text("allow_ips"));
    let networks: Vec<String> =
        networks.flat_map(|list| split_list(&list, &[',', '\n', '\r', ' '])).collect();
    let (ips, wrong): (Vec<String>, Vec<String>) =
        networks.into_iter().partition(|text| IpRange::parse(text).is_ok());
    if let Some(wrong) = listed(&wrong) {
        notes.push(format!("{said}: these are no networks, so it is left out: {wrong}"));
        return None;
    }
    Some(SourceKey {
        name,
        owner: SourceOwner::Person(user.to_owned()),
        created_by: Some(user.to_owned()),
        terms: SourceTerms { limit, period: None, spent: used, is_current: false },
        models,
        limits: RateLimits::default(),
        ips,
        expires,
        blocked,
        secret: SourceSecret::Text(text),
        old_secret: None,
    })
}

fn note_group(row: &SourceRow, name: Option<&String>, groups: &mut BTreeMap<String, Vec<String>>) {
    let group = row.text("group").filter(|group| group != "default");
    if let (Some(group), Some(name)) = (group, name) {
        groups.entry(group).or_default().push(name.clone());
    }
}

/// Notes the groups and their ratios, which have no counterpart.
fn note_groups(
    groups: &BTreeMap<String, Vec<String>>,
    options: &SourceOptions,
    notes: &mut Vec<String>,
) {
    let ratios = options.object("GroupRatio");
    for (group, members) in groups {
        let ratio = ratios.get(group).map(|ratio| format!(" with the ratio {ratio}"));
        let members = listed(members).unwrap_or_default();
        notes.push(format!(
            "the group `{group}`{} is not carried: prices and lanes are the same for all, and a list of models \
             limits a key: {members}",
            ratio.unwrap_or_default()
        ));
    }
    for (group, ratio) in ratios.iter().filter(|(_, ratio)| ratio.as_f64() != Some(1.0)) {
        if !groups.contains_key(group) {
            notes.push(format!("the ratio {ratio} of the group `{group}` is not carried"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_exact_or_rounded_to_the_nearest_nanodollar() {
        let nanos = |unit: QuotaUnit, units| unit.amount(units).as_nanos();
        assert_eq!(nanos(QuotaUnit::Whole(UNITS_PER_DOLLAR), 1), 2_000);
        assert_eq!(nanos(QuotaUnit::Whole(UNITS_PER_DOLLAR), 500_000), 1_000_000_000);
        assert_eq!(nanos(QuotaUnit::Whole(3), 1), 333_333_333);
        assert_eq!(nanos(QuotaUnit::Whole(3), 2), 666_666_667);
        assert_eq!(nanos(QuotaUnit::Whole(UNITS_PER_DOLLAR), -7), 0);
        assert_eq!(nanos(QuotaUnit::Whole(1), i64::MAX), i64::MAX);
        assert_eq!(nanos(QuotaUnit::Fraction(0.5), 1), 2_000_000_000);
        let options = |text: &str| {
            SourceOptions(BTreeMap::from([("QuotaPerUnit".to_owned(), text.to_owned())]))
        };
        assert_eq!(QuotaUnit::new(&options("1000000")), QuotaUnit::Whole(1_000_000));
        assert_eq!(QuotaUnit::new(&options("0")), QuotaUnit::Whole(UNITS_PER_DOLLAR));
        assert_eq!(QuotaUnit::new(&options("NaN")), QuotaUnit::Whole(UNITS_PER_DOLLAR));
        assert_eq!(QuotaUnit::new(&SourceOptions::default()), QuotaUnit::Whole(UNITS_PER_DOLLAR));
    }
}

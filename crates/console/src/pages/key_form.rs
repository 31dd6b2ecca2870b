//! The form of a key.

use canon::{Micros, Money};
use config::IpRange;
use jiff::civil::Date;
use ledger::BudgetPeriod;
use maud::{Markup, html};
use store::{BudgetTerms, KeyGrants, KeyRecord, KeyScope, RateLimits};

use crate::form::{FieldErrors, FormFields, FormInput, field_notes, note_ids};
use crate::page_error::PageError;
use crate::pages::key_scope_fields::{read_grants, render_parts, render_read_only};
use crate::state::ConsoleState;
use crate::time_range::day_after;
use crate::viewer_time::{MAX_ZONE_BYTES, ViewerClock, ViewerZone, ZONE_PARAMETER};
use admin::names::has_hidden_characters;
use admin::{KeyChange, KeyDraft};

const DAY: Micros = Micros::from_days(1);
const MAX_NAME_CHARS: usize = 60;
const MAX_LIFETIME_DAYS: i64 = 3_650;
const MAX_MODELS: usize = 50;
const MAX_NETWORKS: usize = 50;
/// Upper bound of any short field.
pub(super) const MAX_FIELD_BYTES: usize = 4_096;
const MIN_CAP: Money = Money::from_nanos(10_000_000);
const MAX_CAP: Money = Money::from_nanos(1_000_000_000_000_000);

/// Tells when a budget begins anew.
pub(super) const BUDGET_HELP: &str = "Its days, weeks and months begin at midnight in UTC.";

/// Terms of a key: scope, cap, expiry, models and limits.
pub(super) struct KeyTerms {
    pub(super) scope: KeyScope,
    grants: KeyGrants,
    pub(super) name: String,
    pub(super) cap: Option<Money>,
    pub(super) expires: Option<Micros>,
    pub(super) models: Vec<String>,
    limits: RateLimits,
    ips: Vec<String>,
    budget: Option<BudgetTerms>,
}

impl KeyTerms {
    /// Reads the form and adds errors to the list. `before` is the edited key.
    pub(super) fn read(
        state: &ConsoleState,
        fields: &FormFields,
        before: Option<&KeyRecord>,
        errors: &mut FieldErrors,
    ) -> Result<Self, PageError> {
        let mut add_error = |field: &'static str, why: String| errors.add(field, why);
        let name = fields.get_trimmed("name", MAX_FIELD_BYTES)?;
        if name.is_empty() {
            add_error("name", "Give the key a name, so that you know it again.".to_owned());
        } else if name.chars().count() > MAX_NAME_CHARS {
            add_error("name", format!("At most {MAX_NAME_CHARS} characters, please."));
        } else if has_hidden_characters(name) {
            add_error("name", "This name contains invisible characters.".to_owned());
        }
        let scope = before.map_or_else(|| scope_of(fields), |before| before.scope);
        let grants = before.map_or_else(|| read_grants(scope, fields), |key| key.grants.clone());
        let cap = match (scope, &grants) {
            (KeyScope::Call, KeyGrants::All) => {
                parse_cap(fields.get_trimmed("cap", MAX_FIELD_BYTES)?, fields.contains("unlimited"))
            }
            (KeyScope::Call, KeyGrants::Read | KeyGrants::Parts(_)) | (KeyScope::Admin, _) => {
                Ok(Some(Money::ZERO))
            }
        };
        let expires = match before {
            None => parse_days(fields.get_trimmed("days", MAX_FIELD_BYTES)?)
                .map(|days| days.map(|days| state.now() + DAY * days)),
            Some(before) => parse_expiry(
                fields.get_trimmed("expires", MAX_FIELD_BYTES)?,
                before.expires,
                &ViewerClock { now: state.now(), zone: form_zone(fields)? },
            ),
        };
        let expires = match (scope, before, expires) {
            (KeyScope::Admin, Some(_), Ok(None)) => Err("An admin key must have an end."),
            (KeyScope::Admin | KeyScope::Call, _, expires) => expires,
        };
        let limit = |field| parse_limit(fields.get(field).trim());
        let limits = (limit("rpm"), limit("tpm"), limit("concurrency"));
        let budget = parse_budget(
            fields.get_trimmed("budget", MAX_FIELD_BYTES)?,
            fields.get_trimmed("budget_period", MAX_FIELD_BYTES)?,
        );
        let models = parse_list(fields.get("models"));
        if models.len() > MAX_MODELS {
            add_error("models", format!("At most {MAX_MODELS} models, please."));
        } else {
            let kept = |id: &String| before.is_some_and(|key| key.models.contains(id));
            let known = |id: &String| state.with_catalog(|catalog| catalog.get(id).is_some());
            let unknown = models.iter().filter(|id| !known(id) && !kept(id)).cloned();
            let unknown = unknown.collect::<Vec<_>>().join(", ");
            if !unknown.is_empty() {
                let shown: String = unknown.chars().take(120).collect();
                add_error("models", format!("This gateway has no model {shown}."));
            }
        }
        let ips = parse_list(fields.get("ips"));
        if ips.len() > MAX_NETWORKS {
            add_error("ips", format!("At most {MAX_NETWORKS} addresses and networks, please."));
        }
        for text in &ips {
            if let Err(why) = IpRange::parse(text) {
                add_error("ips", why.to_string().chars().take(200).collect());
            }
        }
        let mut reject = |field: &'static str, why: &str| add_error(field, why.to_owned());
        Ok(Self {
            scope,
            grants,
            name: name.to_owned(),
            cap: cap.unwrap_or_else(|why| {
                reject("cap", why);
                None
            }),
            expires: expires.unwrap_or_else(|why| {
                reject(if before.is_some() { "expires" } else { "days" }, why);
                None
            }),
            models,
            limits: RateLimits {
                rpm: limits.0.unwrap_or_else(|why| {
                    reject("rpm", why);
                    None
                }),
                tpm: limits.1.unwrap_or_else(|why| {
                    reject("tpm", why);
                    None
                }),
                concurrency: limits.2.unwrap_or_else(|why| {
                    reject("concurrency", why);
                    None
                }),
            },
            ips,
            budget: budget.unwrap_or_else(|why| {
                reject("budget", why);
                None
            }),
        })
    }

    pub(super) fn into_draft(self) -> KeyDraft {
        let Self { scope, grants, name, cap, expires, models, limits, ips, budget } = self;
        KeyDraft { scope, grants, name, cap, models, expires, limits, ips, budget }
    }

    pub(super) fn into_change(self) -> KeyChange {
        let Self { scope: _, grants: _, name, cap, expires, models, limits, ips, budget } = self;
        KeyChange {
            name: Some(name),
            cap: Some(cap),
            models: Some(models),
            expires: Some(expires),
            limits: Some(limits),
            ips: Some(ips),
            budget: Some(budget),
        }
    }
}

/// Scope of the requested key; calls by default.
pub(super) fn scope_of(fields: &FormFields) -> KeyScope {
    KeyScope::by_word(fields.get("scope")).unwrap_or(KeyScope::Call)
}

/// Form fields of an existing key.
pub(super) fn fields_of(key: &KeyRecord, zone: &ViewerZone) -> FormFields {
    let number = |n: Option<u32>| n.map_or_else(String::new, |n| n.to_string());
    let mut fields = vec![
        ("name", key.name.clone()),
        ("cap", key.cap.map_or_else(String::new, plain_amount)),
        ("expires", key.expires.map_or_else(String::new, |at| zone.day(at))),
        (ZONE_PARAMETER, zone.name().to_owned()),
        ("models", key.models.join("\n")),
        ("ips", key.ips.join("\n")),
        ("rpm", number(key.limits.rpm)),
        ("tpm", number(key.limits.tpm)),
        ("concurrency", number(key.limits.concurrency)),
        ("budget", key.budget.map_or_else(String::new, |budget| plain_amount(budget.limit))),
        ("budget_period", key.budget.map_or("", |budget| budget.period.word()).to_owned()),
    ];
    if key.cap.is_none() {
        fields.push(("unlimited", "yes".to_owned()));
    }
    FormFields::prefilled(fields)
}

/// Formats an amount without trailing zeros.
pub(super) fn plain_amount(amount: Money) -> String {
    let text = amount.to_string();
    let text = if text.contains('.') { text.trim_end_matches('0') } else { &text };
    text.trim_end_matches('.').to_owned()
}

/// Returns the zone of the days of a form, which is that of the viewer when the form was shown; UTC without one.
fn form_zone(fields: &FormFields) -> Result<ViewerZone, PageError> {
    match fields.get_trimmed(ZONE_PARAMETER, MAX_ZONE_BYTES)? {
        "" => Ok(ViewerZone::UTC),
        name => ViewerZone::read(name),
    }
}

/// Reads a date as the end of that day. An unchanged date keeps the stored time.
fn parse_expiry(
    text: &str,
    before: Option<Micros>,
    ViewerClock { now, zone }: &ViewerClock,
) -> Result<Option<Micros>, &'static str> {
    const WRONG: &str = "Write a day to come as 2030-12-31, or nothing.";
    if text.is_empty() {
        return Ok(None);
    }
    if let Some(before) = before.filter(|before| zone.day(*before) == text) {
        return Ok(Some(before));
    }
    let day: Date = text.parse().map_err(|_| WRONG)?;
    let end = zone.start_of_day(day_after(day)) - Micros::new(1);
    let far = *now + MAX_LIFETIME_DAYS * DAY + DAY;
    if end <= *now || end > far { Err(WRONG) } else { Ok(Some(end)) }
}

pub(super) fn parse_limit(text: &str) -> Result<Option<u32>, &'static str> {
    if text.is_empty() {
        return Ok(None);
    }
    match text.parse() {
        Ok(number) if number > 0 => Ok(Some(number)),
        Ok(_) | Err(_) => Err("A whole number above zero, or nothing."),
    }
}

pub(super) fn parse_budget(text: &str, period: &str) -> Result<Option<BudgetTerms>, &'static str> {
    if text.is_empty() {
        return Ok(None);
    }
    let most = parse_cap(text, false)
        .map_err(|_| "An amount in US dollars from 0.01 to 1000000, or nothing.")?;
    let period = BudgetPeriod::by_word(period).ok_or("Choose a day, a week or a month.")?;
    Ok(most.map(|most| BudgetTerms { limit: most, period }))
}

pub(super) fn parse_cap(text: &str, unlimited: bool) -> Result<Option<Money>, &'static str> {
    let text = text.strip_prefix('$').unwrap_or(text).trim();
    match (text.is_empty(), unlimited) {
        (true, true) => return Ok(None),
        (true, false) => return Err("Set a cap in US dollars, or tick Unlimited Quota."),
        (false, true) => return Err("Either a cap or Unlimited Quota, not both."),
        (false, false) => {}
    }
    let cap: Money =
        text.parse().map_err(|_| "Write an amount in US dollars, such as 25 or 2.50.")?;
    if cap < MIN_CAP {
        return Err("At least 0.01 dollars, please.");
    }
    if cap > MAX_CAP {
        return Err("At most 1000000 dollars; tick Unlimited Quota for more.");
    }
    Ok(Some(cap))
}

fn parse_days(text: &str) -> Result<Option<i64>, &'static str> {
    if text.is_empty() {
        return Ok(None);
    }
    match text.parse::<i64>() {
        Ok(days) if (1..=MAX_LIFETIME_DAYS).contains(&days) => Ok(Some(days)),
        Ok(_) | Err(_) => Err("A whole number of days from 1 to 3650, or nothing."),
    }
}

/// Splits a list, without duplicates and in order.
pub(super) fn parse_list(text: &str) -> Vec<String> {
    let mut ids: Vec<String> = Vec::new();
    for id in text.split([',', '\n', '\r']).map(str::trim).filter(|id| !id.is_empty()) {
        if !ids.iter().any(|known| known == id) {
            ids.push(id.to_owned());
        }
    }
    ids
}

/// Renders the form. `editing` has the grants of the edited key, which stay.
pub(super) fn render(
    scope: KeyScope,
    fields: &FormFields,
    errors: &FieldErrors,
    editing: Option<&KeyGrants>,
) -> Markup {
    match scope {
        KeyScope::Call => render_call(fields, errors, editing),
        KeyScope::Admin => render_admin(fields, errors, editing.is_some()),
    }
}

/// Renders the form of an admin key, which cannot spend.
fn render_admin(fields: &FormFields, errors: &FieldErrors, editing: bool) -> Markup {
    html! {
        input type="hidden" name="scope" value=(KeyScope::Admin.word());
        p.muted { "Scope " strong { "admin" } ": it opens /api/admin and /metrics with the rights of \
            its account, and makes no calls." }
        (FormInput {
            name: "name",
            label: "Name",
            value: fields.get("name"),
            required: true,
            autofocus: true,
            help: Some("Where it is used, for example: provisioning, monitoring."),
            ..FormInput::default()
        }.render(errors))
        @if !editing { (render_parts(fields)) }
        (expiry_field(fields, errors, editing, ["", "Leave empty for 30 days."]))
        (address_field(fields, errors))
    }
}

/// Expiry field; `help` holds the texts for an edit, which follows the zone, and for a new key.
fn expiry_field(
    fields: &FormFields,
    errors: &FieldErrors,
    editing: bool,
    help: [&'static str; 2],
) -> Markup {
    let [edit_help, new_help] = help;
    let zone = match fields.get(ZONE_PARAMETER) {
        "" => "UTC",
        zone => zone,
    };
    let edit_help = format!("A day in {zone}.{edit_help}");
    html! {
        @if editing {
            input type="hidden" name=(ZONE_PARAMETER) value=(zone);
            (FormInput {
                name: "expires",
                label: "Expires at the end of",
                kind: "date",
                value: fields.get("expires"),
                help: Some(&edit_help),
                ..FormInput::default()
            }.render(errors))
        } @else {
            (FormInput {
                name: "days",
                label: "Expires after days",
                value: fields.get("days"),
                input_mode: Some("numeric"),
                help: Some(new_help),
                ..FormInput::default()
            }.render(errors))
        }
    }
}

fn address_field(fields: &FormFields, errors: &FieldErrors) -> Markup {
    list_field(
        "ips",
        "Allowed addresses",
        "One address or network per line, such as 10.0.0.0/8. Leave empty for anywhere.",
        fields,
        errors,
    )
}

fn render_call(fields: &FormFields, errors: &FieldErrors, editing: Option<&KeyGrants>) -> Markup {
    let further = ["rpm", "tpm", "concurrency", "budget", "ips"];
    let open = further.iter().any(|f| errors.get(f).is_some() || !fields.get(f).is_empty());
    html! {
        (FormInput {
            name: "name",
            label: "Name",
            value: fields.get("name"),
            required: true,
            autofocus: true,
            help: Some("Where it is used, for example: website, nightly report."),
            ..FormInput::default()
        }.render(errors))
        @if editing.is_none() { (render_read_only(fields)) }
        @if editing.is_none_or(|grants| *grants == KeyGrants::All) { (quota_fields(fields, errors)) }
        (expiry_field(fields, errors, editing.is_some(), [
            " Leave empty for a key that does not expire.",
            "Leave empty for a key that does not expire.",
        ]))
        (list_field("models", "Models", "One id per line. Leave empty to allow every model.", fields, errors))
        details open[open] {
            summary { "Limits, budget and addresses" }
            div.further {
                (limit_fields(fields, errors))
                (address_field(fields, errors))
            }
        }
    }
}

fn quota_fields(fields: &FormFields, errors: &FieldErrors) -> Markup {
    html! {
        fieldset {
            legend { "Quota" }
            label.tick {
                input type="checkbox" name="unlimited" value="yes" data-disables="cap"
                    checked[fields.contains("unlimited")];
                span {
                    "Unlimited Quota"
                    span.help { "The key may spend without an upper end." }
                }
            }
            (FormInput {
                name: "cap",
                label: "Spending cap in US dollars",
                value: fields.get("cap"),
                input_mode: Some("decimal"),
                mark_optional: false,
                help: Some("Calls that would pass it are refused."),
                ..FormInput::default()
            }.render(errors))
        }
    }
}

/// Rate limits and budget, shared by keys and teams.
pub(super) fn limit_fields(fields: &FormFields, errors: &FieldErrors) -> Markup {
    let number = |name: &'static str, label: &'static str| {
        FormInput {
            name,
            label,
            value: fields.get(name),
            input_mode: Some("numeric"),
            ..FormInput::default()
        }
        .render(errors)
    };
    html! {
        div.row {
            (number("rpm", "Requests per minute"))
            (number("tpm", "Tokens per minute"))
            (number("concurrency", "Calls at once"))
        }
        div.row {
            (FormInput {
                name: "budget",
                label: "Budget in US dollars",
                value: fields.get("budget"),
                input_mode: Some("decimal"),
                help: Some(BUDGET_HELP),
                ..FormInput::default()
            }.render(errors))
            div.field {
                label for="budget_period" { "for every" }
                select #budget_period name="budget_period" {
                    @for period in BudgetPeriod::ALL {
                        option value=(period.word())
                            selected[fields.get("budget_period") == period.word()] {
                            (period.word())
                        }
                    }
                }
            }
        }
    }
}

pub(super) fn list_field(
    name: &'static str,
    label: &str,
    help: &str,
    fields: &FormFields,
    errors: &FieldErrors,
) -> Markup {
    let wrong = errors.get(name);
    html! {
        div.field.wrong[wrong.is_some()] {
            label for=(name) { (label) span.optional { " optional" } }
            textarea id=(name) name=(name) rows="3" autocapitalize="none"
                spellcheck="false" aria-invalid=[wrong.map(|_| "true")]
                aria-describedby=[note_ids(name, wrong, Some(help))] {
                (fields.get(name))
            }
            (field_notes(name, wrong, Some(help)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cap_is_a_valid_amount_or_unlimited() {
        assert_eq!(parse_cap("", true), Ok(None));
        assert_eq!(parse_cap("$2.50", false), Ok(Some(Money::from_nanos(2_500_000_000))));
        for bad in ["", "0", "-1", "0.000000001", "1e18", "NaN", "ten", "1000001", "1,5", "5 USD"] {
            assert!(parse_cap(bad, false).is_err(), "{bad}");
        }
        assert!(parse_cap("5", true).is_err());
    }

    #[test]
    fn days_are_whole_and_limited() {
        assert_eq!(parse_days(""), Ok(None));
        assert_eq!(parse_days("30"), Ok(Some(30)));
        for bad in ["0", "-1", "1.5", "3651", "99999999999999999999", "x"] {
            assert!(parse_days(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn lists_accept_commas_and_lines() {
        assert_eq!(parse_list(" a, b\r\nc/d:e\n\na "), ["a", "b", "c/d:e"]);
        assert!(parse_list(" ,\n").is_empty());
    }

    #[test]
    fn expiry_is_in_the_future_or_unchanged() {
        let now = Micros::from_secs(1_800_000_000);
        let clock = |zone| ViewerClock { now, zone: ViewerZone::by_name(zone).unwrap() };
        let (utc, kolkata) = (&clock("UTC"), &clock("Asia/Kolkata"));
        assert_eq!(parse_expiry("", Some(Micros::new(5)), utc), Ok(None));
        assert_eq!(
            parse_expiry("1970-01-01", Some(Micros::new(5)), utc),
            Ok(Some(Micros::new(5))),
            "a time that stays"
        );
        assert_eq!(
            parse_expiry("2027-01-15", None, utc),
            Ok(Some(Micros::new(1_800_057_599_999_999)))
        );
        // Five and a half hours earlier.
        assert_eq!(
            parse_expiry("2027-01-15", None, kolkata),
            Ok(Some(Micros::new(1_800_037_799_999_999)))
        );
        let stored = Micros::new(1_800_057_599_999_999);
        assert_eq!(parse_expiry("2027-01-16", Some(stored), kolkata), Ok(Some(stored)));
        assert_ne!(parse_expiry("2027-01-16", Some(stored), utc), Ok(Some(stored)));
        for bad in ["2027-01-14", "1970-01-01", "2099-01-01", "soon", "2027-02-30", "-1"] {
            assert!(parse_expiry(bad, None, utc).is_err(), "{bad}");
        }
    }

    #[test]
    fn limits_and_budgets_are_positive() {
        assert_eq!(parse_limit(""), Ok(None));
        assert_eq!(parse_limit("60"), Ok(Some(60)));
        for bad in ["0", "-1", "1.5", "4294967296", "x"] {
            assert!(parse_limit(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_budget("", "day"), Ok(None));
        let five =
            BudgetTerms { limit: Money::from_nanos(5_000_000_000), period: BudgetPeriod::Month };
        assert_eq!(parse_budget("5", "month"), Ok(Some(five)));
        for (bad, period) in [("5", "year"), ("5", ""), ("-1", "day"), ("0", "day"), ("x", "day")] {
            assert!(parse_budget(bad, period).is_err(), "{bad} {period}");
        }
    }

    #[test]
    fn amounts_are_shown_as_they_are_typed() {
        for (nanos, text) in [(2_500_000_000, "2.5"), (10_000_000_000, "10"), (1, "0.000000001")] {
            assert_eq!(plain_amount(Money::from_nanos(nanos)), text);
        }
    }
}

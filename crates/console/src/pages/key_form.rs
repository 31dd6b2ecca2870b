//! The form of a key: what it may do, read from and shown in fields.

use canon::Money;
use config::Net;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use ledger::{Micros, BudgetPeriod};
use maud::{Markup, html};
use store::{BudgetTerms, KeyRecord, KeyScope, RateLimits};

use crate::desk::Desk;
use crate::form::{Fields, Input, Wrongs, described, notes};
use crate::trouble::Trouble;
use admin::names::disguised;
use admin::{KeyChange, KeyDraft};

const DAY: Micros = 24 * 3_600 * 1_000_000;
const LONGEST_NAME: usize = 60;
const LONGEST_DAYS: i64 = 3_650;
const MOST_MODELS: usize = 50;
const MOST_NETWORKS: usize = 50;
/// Longer than any honest value of a short field.
pub(super) const FAR_TOO_LONG: usize = 4_096;
const LEAST_CAP: Money = Money::from_nanos(10_000_000);
const LARGEST_CAP: Money = Money::from_nanos(1_000_000_000_000_000);

/// What a key may do.
pub(super) struct Terms {
    pub(super) scope: KeyScope,
    pub(super) name: String,
    pub(super) cap: Option<Money>,
    pub(super) expires: Option<Micros>,
    pub(super) models: Vec<String>,
    limits: RateLimits,
    ips: Vec<String>,
    budget: Option<BudgetTerms>,
}

impl Terms {
    /// Reads the form; what is wrong with it goes to `wrongs`. `before` is the key that is edited.
    pub(super) fn read(
        desk: &Desk,
        fields: &Fields,
        before: Option<&KeyRecord>,
        wrongs: &mut Wrongs,
    ) -> Result<Self, Trouble> {
        let mut heed = |field: &'static str, why: String| wrongs.add(field, why);
        let name = fields.short("name", FAR_TOO_LONG)?;
        if name.is_empty() {
            heed("name", "Give the key a name, so that you know it again.".to_owned());
        } else if name.chars().count() > LONGEST_NAME {
            heed("name", format!("At most {LONGEST_NAME} characters, please."));
        } else if disguised(name) {
            heed("name", "This name holds characters that cannot be seen.".to_owned());
        }
        let scope = before.map_or_else(|| scope_of(fields), |before| before.scope);
        let cap = match scope {
            KeyScope::Call => cap(fields.short("cap", FAR_TOO_LONG)?, fields.ticked("unlimited")),
            KeyScope::Admin => Ok(Some(Money::ZERO)),
        };
        let expires = match before {
            None => days(fields.short("days", FAR_TOO_LONG)?)
                .map(|days| days.map(|days| desk.now().saturating_add(days.saturating_mul(DAY)))),
            Some(before) => {
                date(fields.short("expires", FAR_TOO_LONG)?, before.expires, desk.now())
            }
        };
        let expires = match (scope, before, expires) {
            (KeyScope::Admin, Some(_), Ok(None)) => Err("An admin key must have an end."),
            (KeyScope::Admin | KeyScope::Call, _, expires) => expires,
        };
        let limit = |field| limit(fields.get(field).trim());
        let limits = (limit("rpm"), limit("tpm"), limit("concurrency"));
        let budget = budget(
            fields.short("budget", FAR_TOO_LONG)?,
            fields.short("budget_period", FAR_TOO_LONG)?,
        );
        let models = listed(fields.get("models"));
        if models.len() > MOST_MODELS {
            heed("models", format!("At most {MOST_MODELS} models, please."));
        } else {
            let kept = |id: &String| before.is_some_and(|key| key.models.contains(id));
            let known = |id: &String| desk.catalog(|catalog| catalog.get(id).is_some());
            let unknown = models.iter().filter(|id| !known(id) && !kept(id)).cloned();
            let unknown = unknown.collect::<Vec<_>>().join(", ");
            if !unknown.is_empty() {
                let shown: String = unknown.chars().take(120).collect();
                heed("models", format!("This gateway has no model {shown}."));
            }
        }
        let ips = listed(fields.get("ips"));
        if ips.len() > MOST_NETWORKS {
            heed("ips", format!("At most {MOST_NETWORKS} addresses and networks, please."));
        }
        for text in &ips {
            if let Err(why) = Net::read(text) {
                heed("ips", why.chars().take(200).collect());
            }
        }
        let mut take = |field: &'static str, why: &str| heed(field, why.to_owned());
        Ok(Self {
            scope,
            name: name.to_owned(),
            cap: cap.unwrap_or_else(|why| {
                take("cap", why);
                None
            }),
            expires: expires.unwrap_or_else(|why| {
                take(if before.is_some() { "expires" } else { "days" }, why);
                None
            }),
            models,
            limits: RateLimits {
                rpm: limits.0.unwrap_or_else(|why| {
                    take("rpm", why);
                    None
                }),
                tpm: limits.1.unwrap_or_else(|why| {
                    take("tpm", why);
                    None
                }),
                concurrency: limits.2.unwrap_or_else(|why| {
                    take("concurrency", why);
                    None
                }),
            },
            ips,
            budget: budget.unwrap_or_else(|why| {
                take("budget", why);
                None
            }),
        })
    }

    /// A new key of these terms.
    pub(super) fn into_draft(self) -> KeyDraft {
        let Self { scope, name, cap, expires, models, limits, ips, budget } = self;
        KeyDraft { scope, name, cap, models, expires, limits, ips, budget }
    }

    /// These terms for a key that exists.
    pub(super) fn into_change(self) -> KeyChange {
        let Self { scope: _, name, cap, expires, models, limits, ips, budget } = self;
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

/// The scope of the key a form asks for. A form without one asks for calls.
pub(super) fn scope_of(fields: &Fields) -> KeyScope {
    KeyScope::by_word(fields.get("scope")).unwrap_or(KeyScope::Call)
}

/// The fields as they are for a key.
pub(super) fn fields_of(key: &KeyRecord) -> Fields {
    let number = |n: Option<u32>| n.map_or_else(String::new, |n| n.to_string());
    let mut fields = vec![
        ("name", key.name.clone()),
        ("cap", key.cap.map_or_else(String::new, plain)),
        ("expires", key.expires.map_or_else(String::new, day_of)),
        ("models", key.models.join("\n")),
        ("ips", key.ips.join("\n")),
        ("rpm", number(key.limits.rpm)),
        ("tpm", number(key.limits.tpm)),
        ("concurrency", number(key.limits.concurrency)),
        ("budget", key.budget.map_or_else(String::new, |budget| plain(budget.limit))),
        ("budget_period", key.budget.map_or("", |budget| budget.period.word()).to_owned()),
    ];
    if key.cap.is_none() {
        fields.push(("unlimited", "yes".to_owned()));
    }
    Fields::of(fields)
}

/// An amount as somebody would type it.
pub(super) fn plain(amount: Money) -> String {
    let text = amount.to_string();
    let text = if text.contains('.') { text.trim_end_matches('0') } else { &text };
    text.trim_end_matches('.').to_owned()
}

fn day_of(at: Micros) -> String {
    Timestamp::from_microsecond(at)
        .map_or_else(|_| String::new(), |at| at.strftime("%Y-%m-%d").to_string())
}

/// The end of a day in UTC; the day a key has already keeps its very time.
fn date(text: &str, before: Option<Micros>, now: Micros) -> Result<Option<Micros>, &'static str> {
    const WRONG: &str = "Write a day to come as 2030-12-31, or nothing.";
    if text.is_empty() {
        return Ok(None);
    }
    if let Some(before) = before.filter(|before| day_of(*before) == text) {
        return Ok(Some(before));
    }
    let day: Date = text.parse().map_err(|_| WRONG)?;
    let begin = day.to_zoned(TimeZone::UTC).map_err(|_| WRONG)?.timestamp().as_microsecond();
    let end = begin.saturating_add(DAY - 1);
    let far = now.saturating_add(LONGEST_DAYS * DAY + DAY);
    if end <= now || end > far { Err(WRONG) } else { Ok(Some(end)) }
}

pub(super) fn limit(text: &str) -> Result<Option<u32>, &'static str> {
    if text.is_empty() {
        return Ok(None);
    }
    match text.parse() {
        Ok(number) if number > 0 => Ok(Some(number)),
        Ok(_) | Err(_) => Err("A whole number above zero, or nothing."),
    }
}

pub(super) fn budget(text: &str, period: &str) -> Result<Option<BudgetTerms>, &'static str> {
    if text.is_empty() {
        return Ok(None);
    }
    let most = cap(text, false)
        .map_err(|_| "An amount in US dollars from 0.01 to 1000000, or nothing.")?;
    let period = BudgetPeriod::by_word(period).ok_or("Choose a day, a week or a month.")?;
    Ok(most.map(|most| BudgetTerms { limit: most, period }))
}

pub(super) fn cap(text: &str, unlimited: bool) -> Result<Option<Money>, &'static str> {
    let text = text.strip_prefix('$').unwrap_or(text).trim();
    match (text.is_empty(), unlimited) {
        (true, true) => return Ok(None),
        (true, false) => return Err("Set a cap in US dollars, or tick Unlimited Quota."),
        (false, true) => return Err("Either a cap or Unlimited Quota, not both."),
        (false, false) => {}
    }
    let cap: Money =
        text.parse().map_err(|_| "Write an amount in US dollars, such as 25 or 2.50.")?;
    if cap < LEAST_CAP {
        return Err("At least 0.01 dollars, please.");
    }
    if cap > LARGEST_CAP {
        return Err("At most 1000000 dollars; tick Unlimited Quota for more.");
    }
    Ok(Some(cap))
}

fn days(text: &str) -> Result<Option<i64>, &'static str> {
    if text.is_empty() {
        return Ok(None);
    }
    match text.parse::<i64>() {
        Ok(days) if (1..=LONGEST_DAYS).contains(&days) => Ok(Some(days)),
        Ok(_) | Err(_) => Err("A whole number of days from 1 to 3650, or nothing."),
    }
}

/// The words of a list, each once, in order.
fn listed(text: &str) -> Vec<String> {
    let mut ids: Vec<String> = Vec::new();
    for id in text.split([',', '\n', '\r']).map(str::trim).filter(|id| !id.is_empty()) {
        if !ids.iter().any(|known| known == id) {
            ids.push(id.to_owned());
        }
    }
    ids
}

/// The fields of the form.
pub(super) fn show(scope: KeyScope, fields: &Fields, wrongs: &Wrongs, editing: bool) -> Markup {
    match scope {
        KeyScope::Call => show_call(fields, wrongs, editing),
        KeyScope::Admin => show_admin(fields, wrongs, editing),
    }
}

/// The fields of an admin key, which spends nothing.
fn show_admin(fields: &Fields, wrongs: &Wrongs, editing: bool) -> Markup {
    html! {
        input type="hidden" name="scope" value=(KeyScope::Admin.word());
        p.muted { "Scope " strong { "admin" } ": it opens /api/admin and /metrics with the rights of \
            its account, and makes no calls." }
        (Input {
            name: "name",
            label: "Name",
            value: fields.get("name"),
            required: true,
            focus: true,
            help: Some("Where it is used, for example: provisioning, monitoring."),
            ..Input::default()
        }.show(wrongs))
        (end(fields, wrongs, editing, ["A day in UTC.", "Leave empty for 30 days."]))
        (addresses(fields, wrongs))
    }
}

/// The field that says when a key ends, with its help in an edit and for a new key.
fn end(fields: &Fields, wrongs: &Wrongs, editing: bool, help: [&'static str; 2]) -> Markup {
    let [edit_help, new_help] = help;
    html! {
        @if editing {
            (Input {
                name: "expires",
                label: "Expires at the end of",
                kind: "date",
                value: fields.get("expires"),
                help: Some(edit_help),
                ..Input::default()
            }.show(wrongs))
        } @else {
            (Input {
                name: "days",
                label: "Expires after days",
                value: fields.get("days"),
                mode: Some("numeric"),
                help: Some(new_help),
                ..Input::default()
            }.show(wrongs))
        }
    }
}

fn addresses(fields: &Fields, wrongs: &Wrongs) -> Markup {
    lines(
        "ips",
        "Allowed addresses",
        "One address or network per line, such as 10.0.0.0/8. Leave empty for anywhere.",
        fields,
        wrongs,
    )
}

fn show_call(fields: &Fields, wrongs: &Wrongs, editing: bool) -> Markup {
    let further = ["rpm", "tpm", "concurrency", "budget", "ips"];
    let open = further.iter().any(|f| wrongs.of(f).is_some() || !fields.get(f).is_empty());
    html! {
        (Input {
            name: "name",
            label: "Name",
            value: fields.get("name"),
            required: true,
            focus: true,
            help: Some("Where it is used, for example: website, nightly report."),
            ..Input::default()
        }.show(wrongs))
        fieldset {
            legend { "Quota" }
            label.tick {
                input type="checkbox" name="unlimited" value="yes" data-disables="cap"
                    checked[fields.ticked("unlimited")];
                span {
                    "Unlimited Quota"
                    span.help { "The key may spend without an upper end." }
                }
            }
            (Input {
                name: "cap",
                label: "Spending cap in US dollars",
                value: fields.get("cap"),
                mode: Some("decimal"),
                optional: false,
                help: Some("Calls that would pass it are refused."),
                ..Input::default()
            }.show(wrongs))
        }
        (end(fields, wrongs, editing, [
            "A day in UTC. Leave empty for a key that does not expire.",
            "Leave empty for a key that does not expire.",
        ]))
        (lines("models", "Models", "One id per line. Leave empty to allow every model.", fields, wrongs))
        details open[open] {
            summary { "Limits, budget and addresses" }
            div.further {
                (pace(fields, wrongs))
                (addresses(fields, wrongs))
            }
        }
    }
}

/// How fast, and how much in a period: the fields a key and a team share.
pub(super) fn pace(fields: &Fields, wrongs: &Wrongs) -> Markup {
    let number = |name: &'static str, label: &'static str| {
        Input { name, label, value: fields.get(name), mode: Some("numeric"), ..Input::default() }
            .show(wrongs)
    };
    html! {
        div.row {
            (number("rpm", "Requests per minute"))
            (number("tpm", "Tokens per minute"))
            (number("concurrency", "Calls at once"))
        }
        div.row {
            (Input {
                name: "budget",
                label: "Budget in US dollars",
                value: fields.get("budget"),
                mode: Some("decimal"),
                ..Input::default()
            }.show(wrongs))
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

fn lines(name: &'static str, label: &str, help: &str, fields: &Fields, wrongs: &Wrongs) -> Markup {
    let wrong = wrongs.of(name);
    html! {
        div.field.wrong[wrong.is_some()] {
            label for=(name) { (label) span.optional { " optional" } }
            textarea id=(name) name=(name) rows="3" autocapitalize="none"
                spellcheck="false" aria-invalid=[wrong.map(|_| "true")]
                aria-describedby=[described(name, wrong, Some(help))] {
                (fields.get(name))
            }
            (notes(name, wrong, Some(help)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cap_is_an_honest_amount_or_unlimited() {
        assert_eq!(cap("", true), Ok(None));
        assert_eq!(cap("$2.50", false), Ok(Some(Money::from_nanos(2_500_000_000))));
        for bad in ["", "0", "-1", "0.000000001", "1e18", "NaN", "ten", "1000001", "1,5", "5 USD"] {
            assert!(cap(bad, false).is_err(), "{bad}");
        }
        assert!(cap("5", true).is_err());
    }

    #[test]
    fn days_are_whole_and_few() {
        assert_eq!(days(""), Ok(None));
        assert_eq!(days("30"), Ok(Some(30)));
        for bad in ["0", "-1", "1.5", "3651", "99999999999999999999", "x"] {
            assert!(days(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn model_lists_may_be_written_with_commas_or_lines() {
        assert_eq!(listed(" a, b\r\nc/d:e\n\na "), ["a", "b", "c/d:e"]);
        assert!(listed(" ,\n").is_empty());
    }

    #[test]
    fn days_of_an_edit_lie_ahead_or_stay() {
        let now = 1_800_000_000_000_000;
        assert_eq!(date("", Some(5), now), Ok(None));
        assert_eq!(date("1970-01-01", Some(5), now), Ok(Some(5)), "a time that stays");
        assert_eq!(date("2027-01-15", None, now), Ok(Some(1_800_057_599_999_999)));
        for bad in ["2027-01-14", "1970-01-01", "2099-01-01", "soon", "2027-02-30", "-1"] {
            assert!(date(bad, None, now).is_err(), "{bad}");
        }
    }

    #[test]
    fn limits_and_budgets_are_above_nothing() {
        assert_eq!(limit(""), Ok(None));
        assert_eq!(limit("60"), Ok(Some(60)));
        for bad in ["0", "-1", "1.5", "4294967296", "x"] {
            assert!(limit(bad).is_err(), "{bad}");
        }
        assert_eq!(budget("", "day"), Ok(None));
        let five = BudgetTerms { limit: Money::from_nanos(5_000_000_000), period: BudgetPeriod::Month };
        assert_eq!(budget("5", "month"), Ok(Some(five)));
        for (bad, period) in [("5", "year"), ("5", ""), ("-1", "day"), ("0", "day"), ("x", "day")] {
            assert!(budget(bad, period).is_err(), "{bad} {period}");
        }
    }

    #[test]
    fn amounts_are_shown_as_they_are_typed() {
        for (nanos, text) in [(2_500_000_000, "2.5"), (10_000_000_000, "10"), (1, "0.000000001")] {
            assert_eq!(plain(Money::from_nanos(nanos)), text);
        }
    }
}

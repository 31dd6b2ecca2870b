//! `portunus ledger reconcile`: compares a provider's own bill with the books, by day and model.

use anyhow::Context as _;
use canon::{Micros, Money};
use clap::Args;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;
use store::{Store, SumGroup, UsageFilter, UsageStep};

use super::common::CommonArgs;
use super::output::print_line;
use super::provider_bill::ProviderBill;

/// Differences below this amount are rounding of the provider.
const MIN_DIFFERENCE: Money = Money::from_nanos(10_000_000);

#[derive(Debug, Args)]
pub(super) struct ReconcileArgs {
    /// Name of the provider in the configuration; its lanes are compared
    #[arg(long)]
    provider: String,
    /// Largest accepted difference of the sums and of each day, of the provider's amount
    #[arg(long, value_name = "PERCENT", default_value = "1%", value_parser = parse_percent)]
    tolerance: i64,
    /// Export of the provider: OpenAI costs or Anthropic cost report (JSON), Google billing (CSV)
    file: PathBuf,
}

/// Parses a percentage into hundredths of a percent.
fn parse_percent(text: &str) -> Result<i64, String> {
    let wrong = || format!("`{text}` is no percentage; write 1% or 0.5%");
    let (whole, fraction) =
        text.trim_end_matches('%').split_once('.').unwrap_or((text.trim_end_matches('%'), "0"));
    let fraction = format!("{fraction:0<2}");
    let whole: i64 = whole.parse().map_err(|_| wrong())?;
    let fraction: i64 = match fraction.len() {
        2 => fraction.parse().map_err(|_| wrong())?,
        _ => return Err(wrong()),
    };
    if whole < 0 { Err(wrong()) } else { Ok(whole.saturating_mul(100).saturating_add(fraction)) }
}

/// Amounts of a day and a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ComparedAmounts {
    theirs: Money,
    charged: Money,
    absorbed: Money,
}

impl ComparedAmounts {
    /// Provider's amount minus that of the books.
    fn difference(self) -> Money {
        self.theirs.saturating_sub(self.charged).saturating_sub(self.absorbed)
    }

    fn add(&mut self, other: Self) {
        self.theirs = self.theirs.saturating_add(other.theirs);
        self.charged = self.charged.saturating_add(other.charged);
        self.absorbed = self.absorbed.saturating_add(other.absorbed);
    }

    /// Returns true if the difference is within so many hundredths of a percent of the bill.
    fn is_within(self, tolerance: i64) -> bool {
        let difference = i128::from(self.difference().as_nanos()).abs();
        let bound = i128::from(self.theirs.as_nanos()).abs() * i128::from(tolerance) / 10_000;
        difference <= bound.max(i128::from(MIN_DIFFERENCE.as_nanos()))
    }

    fn to_json(self) -> Value {
        json!({
            "provider_usd": self.theirs.to_string(),
            "charged_usd": self.charged.to_string(),
            "absorbed_usd": self.absorbed.to_string(),
            "difference_usd": self.difference().to_string(),
        })
    }
}

type ComparedRows = BTreeMap<(Date, String), ComparedAmounts>;

pub(super) async fn reconcile(
    common: &CommonArgs,
    store: &Store,
    args: &ReconcileArgs,
) -> anyhow::Result<ExitCode> {
    let ReconcileArgs { provider, tolerance, file } = args;
    let named = || format!("{} cannot be read", file.display());
    let text = std::fs::read_to_string(file).with_context(named)?;
    let bill = ProviderBill::parse(&text).with_context(named)?;
    let rows = compare(store, provider, &bill).await?;
    let mut sum = ComparedAmounts::default();
    rows.values().for_each(|row| sum.add(*row));
    // Amounts of several days may offset each other, so that each day is judged too.
    let differing = differing_days(&rows, *tolerance);
    let is_within = sum.is_within(*tolerance) && differing.is_empty();
    if common.json {
        let days = rows.iter().map(|((day, model), amounts)| {
            let mut row = amounts.to_json();
            if let Value::Object(fields) = &mut row {
                fields.insert("day".to_owned(), day.to_string().into());
                fields.insert("model".to_owned(), model.as_str().into());
                fields.insert("day_differs".to_owned(), differing.contains(day).into());
            }
            row
        });
        let days: Vec<Value> = days.collect();
        print_line(
            &json!({
                "ok": is_within, "provider": provider, "rows": days, "sum": sum.to_json(),
                "differing_days": differing.iter().map(Date::to_string).collect::<Vec<String>>(),
                "total_rows": bill.total_rows(),
            })
            .to_string(),
        );
    } else {
        print_table(provider, &rows, sum);
        if bill.total_rows() > 0 {
            let rows = bill.total_rows();
            print_line(&format!("{rows} rows without a day are left out: sums of others"));
        }
        for day in &differing {
            print_line(&format!("{day} differs"));
        }
        let verdict = if is_within { "the bill agrees with the books" } else { "the bill differs" };
        print_line(verdict);
    }
    Ok(if is_within { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the days whose amounts of all models differ by more than that.
fn differing_days(rows: &ComparedRows, tolerance: i64) -> BTreeSet<Date> {
    let mut days: BTreeMap<Date, ComparedAmounts> = BTreeMap::new();
    for ((day, _), amounts) in rows {
        days.entry(*day).or_default().add(*amounts);
    }
    days.retain(|_, amounts| !amounts.is_within(tolerance));
    days.into_keys().collect()
}

/// Compares on the days of the bill.
async fn compare(
    store: &Store,
    provider: &str,
    bill: &ProviderBill,
) -> anyhow::Result<ComparedRows> {
    let (first, last) = bill.days().context("the file has no days")?;
    let (from, to) = (begin_of(first)?, begin_of(last.tomorrow()?)?);
    let filter = UsageFilter::default();
    let points = store.usage_over(from..to, UsageStep::Day, Some(SumGroup::Lane), &filter).await?;
    let prefix = format!("{provider}/");
    let mut rows = ComparedRows::new();
    for point in points {
        let Some(model) = point.group.strip_prefix(&prefix) else { continue };
        let (charged, absorbed) = (point.used.cost, point.used.absorbed);
        let row = rows.entry((day_of(point.begun)?, model.to_owned())).or_default();
        row.add(ComparedAmounts { theirs: Money::ZERO, charged, absorbed });
    }
    let mut models: Vec<String> = rows.keys().map(|(_, model)| model.clone()).collect();
    models.sort();
    models.dedup();
    for (day, name, theirs) in bill.lines() {
        let model = own_name(name, &models).unwrap_or(name);
        let row = rows.entry((day, model.to_owned())).or_default();
        row.add(ComparedAmounts { theirs, ..ComparedAmounts::default() });
    }
    Ok(rows)
}

/// Returns the model of the books that a line of a bill means: the longest one that the provider's
/// name contains, because that has dates and units around it (`Gemini 2.5 Flash output tokens`).
fn own_name<'a>(name: &str, models: &'a [String]) -> Option<&'a str> {
    let plain = |text: &str| {
        let letters = text.chars().map(|c| if c.is_alphanumeric() { c } else { '-' });
        letters.collect::<String>().to_lowercase()
    };
    let name = plain(name);
    let meant = models.iter().filter(|model| !model.is_empty() && name.contains(&plain(model)));
    meant.max_by_key(|model| model.len()).map(String::as_str)
}

fn begin_of(day: Date) -> anyhow::Result<Micros> {
    Ok(Micros::new(day.to_zoned(TimeZone::UTC)?.timestamp().as_microsecond()))
}

fn day_of(at: Micros) -> anyhow::Result<Date> {
    Ok(Timestamp::from_microsecond(at.get())?.to_zoned(TimeZone::UTC).date())
}

fn print_table(provider: &str, rows: &ComparedRows, sum: ComparedAmounts) {
    let cells = |amounts: &ComparedAmounts| {
        let ComparedAmounts { theirs, charged, absorbed } = *amounts;
        let money = [theirs, charged, absorbed, amounts.difference()];
        money.map(|amount| format!("{:>16}", amount.to_string())).concat()
    };
    let width = rows.keys().map(|(_, model)| model.len()).chain([8]).max().unwrap_or(8);
    let head = ["provider", "charged", "absorbed", "difference"].map(|name| format!("{name:>16}"));
    print_line(&format!("{:<10}  {:<width$}{}", "day", "model", head.concat()));
    for ((day, model), amounts) in rows {
        print_line(&format!("{day}  {model:<width$}{}", cells(amounts)));
    }
    print_line(&format!("{:<10}  {provider:<width$}{}", "all days", cells(&sum)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_a_bill_means_the_longest_model_in_it() {
        let models = ["gpt-4o", "gpt-4o-mini", "gemini-2.5-flash", "gemini-2.5-flash-lite"]
            .map(str::to_owned);
        for (name, model) in [
            ("gpt-4o-mini-2024-07-18", Some("gpt-4o-mini")),
            ("gpt-4o-2024-08-06", Some("gpt-4o")),
            ("Gemini 2.5 Flash Lite input token count", Some("gemini-2.5-flash-lite")),
            ("Gemini 2.5 Flash output token count", Some("gemini-2.5-flash")),
            ("Web search", None),
        ] {
            assert_eq!(own_name(name, &models), model, "{name}");
        }
    }

    #[test]
    fn days_that_offset_each_other_differ() {
        let dollar = 1_000_000_000;
        let day = |number| Date::constant(2026, 11, number);
        let row = |theirs: i64, charged: i64| ComparedAmounts {
            theirs: Money::from_nanos(theirs * dollar),
            charged: Money::from_nanos(charged * dollar),
            absorbed: Money::ZERO,
        };
        let rows: ComparedRows = [
            ((day(14), "m".to_owned()), row(22, 11)),
            ((day(15), "m".to_owned()), row(0, 11)),
            // Names that do not meet within a day are no difference.
            ((day(16), "m".to_owned()), row(0, 5)),
            ((day(16), "other".to_owned()), row(5, 0)),
        ]
        .into();
        assert_eq!(differing_days(&rows, 100), [day(14), day(15)].into());
    }

    #[test]
    fn the_tolerance_is_of_the_bill() {
        let amounts = |theirs, charged| ComparedAmounts {
            theirs: Money::from_nanos(theirs),
            charged: Money::from_nanos(charged),
            absorbed: Money::ZERO,
        };
        let dollar = 1_000_000_000;
        assert!(amounts(100 * dollar, 99 * dollar).is_within(100));
        assert!(!amounts(100 * dollar, 99 * dollar - 1).is_within(100));
        assert!(!amounts(99 * dollar, 100 * dollar).is_within(50));
        assert!(amounts(0, 9_000_000).is_within(0), "a cent is rounding");
        assert_eq!(
            (parse_percent("1%"), parse_percent("0.5%"), parse_percent("12.25")),
            (Ok(100), Ok(50), Ok(1_225))
        );
        assert!(parse_percent("-1%").is_err() && parse_percent("x").is_err());
    }
}

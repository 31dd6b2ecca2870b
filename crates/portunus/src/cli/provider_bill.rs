//! Bills of providers: what they say they charged, by day and model.
//!
//! Three exports are read, told apart by their content: OpenAI's costs
//! (<https://platform.openai.com/docs/api-reference/usage/costs>, grouped by `line_item`), Anthropic's
//! cost report (<https://platform.claude.com/docs/en/api/admin-api/usage-cost/get-cost-report>, grouped
//! by `description`) and a CSV of Google's billing export
//! (<https://cloud.google.com/billing/docs/how-to/export-data-bigquery-tables/standard-usage>).

use anyhow::Context as _;
use canon::Money;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde_json::Value;
use std::collections::BTreeMap;

/// Picodollars of a dollar and of a cent.
const DOLLAR_PICOS: i128 = 1_000_000_000_000;
const CENT_PICOS: i128 = DOLLAR_PICOS / 100;

/// Power of ten below which a digit is less than a picodollar.
const MIN_POWER: i32 = -13;

/// Names of columns with the day, the product and the amount in a CSV.
const DAY_COLUMNS: [&str; 5] =
    ["usage_start_time", "usage start date", "usage_start_date", "usage date", "date"];
const PRODUCT_COLUMNS: [&str; 4] = ["sku.description", "sku description", "sku_description", "sku"];
const AMOUNT_COLUMNS: [&str; 4] = ["cost", "cost ($)", "cost (usd)", "subtotal ($)"];
const CURRENCY_COLUMNS: [&str; 1] = ["currency"];

/// Amounts by day (UTC) and by the provider's name of what was billed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ProviderBill(BTreeMap<(Date, String), i128>);

impl ProviderBill {
    /// Reads an export.
    pub(super) fn parse(text: &str) -> anyhow::Result<Self> {
        match serde_json::from_str::<Value>(text) {
            Ok(export) => Self::parse_json(&export),
            Err(_) if text.trim_start().starts_with(['{', '[']) => {
                anyhow::bail!("the file is no complete JSON")
            }
            Err(_) => Self::parse_csv(text),
        }
    }

    /// Returns day, name and amount of every line.
    pub(super) fn lines(&self) -> impl Iterator<Item = (Date, &str, Money)> {
        self.0.iter().map(|((day, name), picos)| {
            // Rounded towards zero: the amount is compared, not charged.
            let nanos = i64::try_from(picos / 1_000).unwrap_or(i64::MAX);
            (*day, name.as_str(), Money::from_nanos(nanos))
        })
    }

    fn add(&mut self, day: Date, name: &str, picos: i128) {
        let sum = self.0.entry((day, name.to_owned())).or_default();
        *sum = sum.saturating_add(picos);
    }

    /// Reads one page, or a list of pages.
    fn parse_json(export: &Value) -> anyhow::Result<Self> {
        let mut bill = Self::default();
        let pages = export.as_array().map_or(std::slice::from_ref(export), Vec::as_slice);
        for page in pages {
            anyhow::ensure!(
                page["has_more"] != true || pages.len() > 1,
                "the file is one page of several; fetch all pages and put them into a list"
            );
            let buckets = page["data"].as_array().context("the file has no `data`")?;
            for bucket in buckets {
                let day = bucket_day(bucket).context("a bucket has no day")?;
                let results = bucket["results"].as_array().context("a bucket has no `results`")?;
                for result in results {
                    let (name, picos) = billed(result).context("an amount cannot be read")?;
                    bill.add(day, name, picos);
                }
            }
        }
        Ok(bill)
    }

    fn parse_csv(text: &str) -> anyhow::Result<Self> {
        let mut rows = csv_rows(text).into_iter();
        let mut bill = Self::default();
        // Reports of the cloud console have some lines about the account first.
        let columns = rows.by_ref().find_map(|header| BillColumns::find(&header));
        let columns = columns.context("no row names the columns: day, SKU and cost")?;
        for row in rows {
            let cell = |column: usize| row.get(column).map_or("", |cell| cell.trim());
            let (day, amount) = (cell(columns.day), cell(columns.amount));
            // Totals at the end have no day.
            if day.is_empty() || amount.is_empty() {
                continue;
            }
            let currency = columns.currency.map_or("USD", cell);
            anyhow::ensure!(currency.eq_ignore_ascii_case("usd"), "a cost is in {currency}");
            let day = parse_day(day).with_context(|| format!("`{day}` is no day"))?;
            let amount = amount.replace(['$', ','], "");
            let picos = parse_decimal(&amount, DOLLAR_PICOS)
                .with_context(|| format!("`{amount}` is no amount"))?;
            bill.add(day, cell(columns.product), picos);
        }
        Ok(bill)
    }
}

/// Places of the columns in a CSV.
struct BillColumns {
    day: usize,
    product: usize,
    amount: usize,
    currency: Option<usize>,
}

impl BillColumns {
    fn find(header: &[String]) -> Option<Self> {
        let names: Vec<String> = header.iter().map(|name| name.trim().to_lowercase()).collect();
        // The first of the known names counts, not the first of the columns.
        let place =
            |known: &[&str]| known.iter().find_map(|one| names.iter().position(|n| n == one));
        Some(Self {
            day: place(&DAY_COLUMNS)?,
            product: place(&PRODUCT_COLUMNS)?,
            amount: place(&AMOUNT_COLUMNS)?,
            currency: place(&CURRENCY_COLUMNS),
        })
    }
}

/// Returns the day at which a bucket begins: seconds (OpenAI) or a time (Anthropic).
fn bucket_day(bucket: &Value) -> Option<Date> {
    match (&bucket["start_time"], &bucket["starting_at"]) {
        (Value::Number(seconds), _) => {
            let begin = Timestamp::from_second(seconds.as_i64()?).ok()?;
            Some(begin.to_zoned(TimeZone::UTC).date())
        }
        (_, Value::String(time)) => parse_day(time),
        _ => None,
    }
}

/// Returns name and picodollars of a result of OpenAI or Anthropic.
fn billed(result: &Value) -> Option<(&str, i128)> {
    let amount = &result["amount"];
    if let Some(value) = amount.get("value") {
        let is_usd = amount["currency"].as_str()?.eq_ignore_ascii_case("usd");
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let picos = parse_decimal(&text, DOLLAR_PICOS).filter(|_| is_usd)?;
        // `gpt-4o-2024-08-06, input`
        let name = result["line_item"].as_str().unwrap_or_default();
        return Some((name.split(", ").next().unwrap_or(name), picos));
    }
    let is_usd = result["currency"].as_str()?.eq_ignore_ascii_case("usd");
    let picos = parse_decimal(amount.as_str()?, CENT_PICOS).filter(|_| is_usd)?;
    let name = result["model"].as_str().or_else(|| result["description"].as_str());
    Some((name.unwrap_or_default(), picos))
}

/// Parses an instant or a date.
fn parse_day(text: &str) -> Option<Date> {
    if let Ok(instant) = text.parse::<Timestamp>() {
        return Some(instant.to_zoned(TimeZone::UTC).date());
    }
    // BigQuery writes `2026-11-16 00:00:00 UTC`.
    text.split([' ', 'T']).next()?.parse().ok()
}

/// Parses a decimal number, perhaps with an exponent, in picodollars. Further digits are cut off.
fn parse_decimal(text: &str, unit_picos: i128) -> Option<i128> {
    let (text, exponent) = match text.split_once(['e', 'E']) {
        Some((digits, exponent)) => (digits, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut picos: i128 = 0;
    for (place, digit) in whole.bytes().chain(fraction.bytes()).enumerate() {
        let digit = i128::from(char::from(digit).to_digit(10)?);
        let power = i32::try_from(whole.len()).ok()? - 1 - i32::try_from(place).ok()? + exponent;
        if power < MIN_POWER {
            continue;
        }
        let factor = 10_i128.checked_pow(power.unsigned_abs())?;
        let value = if power < 0 {
            digit.checked_mul(unit_picos)? / factor
        } else {
            digit.checked_mul(unit_picos)?.checked_mul(factor)?
        };
        picos = picos.checked_add(value)?;
    }
    Some(sign * picos)
}

/// Splits a CSV into rows of cells (<https://www.rfc-editor.org/rfc/rfc4180>).
fn csv_rows(text: &str) -> Vec<Vec<String>> {
    let (mut rows, mut row, mut cell) = (Vec::new(), Vec::new(), String::new());
    let mut is_quoted = false;
    let mut letters = text.strip_prefix('\u{feff}').unwrap_or(text).chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if is_quoted && letters.peek() == Some(&'"') => {
                letters.next();
                cell.push('"');
            }
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => row.push(std::mem::take(&mut cell)),
            '\n' if !is_quoted => {
                row.push(std::mem::take(&mut cell));
                rows.push(std::mem::take(&mut row));
            }
            '\r' if !is_quoted => {}
            other => cell.push(other),
        }
    }
    if !cell.is_empty() || !row.is_empty() {
        row.push(cell);
        rows.push(row);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_exact() {
        for (text, picos) in [
            ("0.06", 60_000_000_000),
            ("1e-5", 10_000_000),
            ("6.0e-2", 60_000_000_000),
            ("-1.5", -1_500_000_000_000),
            ("12", 12 * DOLLAR_PICOS),
            (".5", DOLLAR_PICOS / 2),
            ("0.0000000000019", 1),
        ] {
            assert_eq!(parse_decimal(text, DOLLAR_PICOS), Some(picos), "{text}");
        }
        for text in ["", "-", ".", "1.2.3", "1e", "nan", "1e999"] {
            assert_eq!(parse_decimal(text, DOLLAR_PICOS), None, "{text}");
        }
    }

    #[test]
    fn rows_have_quotes_and_line_breaks() {
        let rows = csv_rows("\u{feff}a,\"b,\"\"c\"\"\r\nd\"\r\n,\n1,2");
        assert_eq!(rows, [vec!["a", "b,\"c\"\r\nd"], vec!["", ""], vec!["1", "2"]]);
    }
}

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
use std::collections::{BTreeMap, BTreeSet};

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
pub(super) struct ProviderBill {
    amounts: BTreeMap<(Date, String), i128>,
    /// Days that the bill is about, also those without an amount.
    days: BTreeSet<Date>,
    /// Number of rows with a sum of others, which are left out.
    total_rows: usize,
}

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
        self.amounts.iter().map(|((day, name), picos)| {
            // Rounded towards zero: the amount is compared, not charged.
            let nanos = i64::try_from(picos / 1_000).unwrap_or(i64::MAX);
            (*day, name.as_str(), Money::from_nanos(nanos))
        })
    }

    /// Returns the first and the last day.
    pub(super) fn days(&self) -> Option<(Date, Date)> {
        self.days.first().copied().zip(self.days.last().copied())
    }

    /// Returns the number of rows that were left out because they are sums of others.
    pub(super) fn total_rows(&self) -> usize {
        self.total_rows
    }

    fn add(&mut self, day: Date, name: &str, picos: i128) {
        self.days.insert(day);
        let sum = self.amounts.entry((day, name.to_owned())).or_default();
        *sum = sum.saturating_add(picos);
    }

    /// Reads one page, or a list of pages.
    fn parse_json(export: &Value) -> anyhow::Result<Self> {
        let mut bill = Self::default();
        let pages = export.as_array().map_or(std::slice::from_ref(export), Vec::as_slice);
        anyhow::ensure!(
            pages.last().is_none_or(|last| last["has_more"] != true),
            "the file is one page of several, or lacks the last one; fetch all pages and put them into \
             a list"
        );
        for page in pages {
            let buckets = page["data"].as_array().context("the file has no `data`")?;
            for bucket in buckets {
                let day = bucket_day(bucket).context("a bucket has no day")?;
                anyhow::ensure!(bill.days.insert(day), "the day {day} is in the file twice");
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
        let mut rows = csv_rows(text)?.into_iter().zip(1..);
        let mut bill = Self::default();
        // Reports of the cloud console have some lines about the account first.
        let columns = rows.by_ref().find_map(|(header, _)| BillColumns::find(&header));
        let columns = columns.context("no row names the columns: day, SKU and cost")?;
        for (row, number) in rows {
            bill.add_row(&columns, &row).with_context(|| format!("row {number}"))?;
        }
        Ok(bill)
    }

    /// Adds a row of a CSV. A row that cannot be read is an error, so that no amount is left out
    /// without a word.
    fn add_row(&mut self, columns: &BillColumns, row: &[String]) -> anyhow::Result<()> {
        let cell = |column: usize| row.get(column).map_or("", |cell| cell.trim());
        if row.iter().all(|cell| cell.trim().is_empty()) {
            return Ok(());
        }
        let (day, product, amount) =
            (cell(columns.day), cell(columns.product), cell(columns.amount));
        // Reports end with sums, also of taxes and rounding.
        let is_total = product.is_empty() || product.to_lowercase().ends_with("total");
        if day.is_empty() && is_total {
            self.total_rows += 1;
            return Ok(());
        }
        anyhow::ensure!(!day.is_empty(), "`{product}` has no day");
        let (cells, all) = (row.len(), columns.count);
        anyhow::ensure!(cells == all, "it has {cells} cells, and the first row has {all}");
        let currency = columns.currency.map_or("USD", cell);
        anyhow::ensure!(currency.eq_ignore_ascii_case("usd"), "a cost is in {currency}");
        let day = parse_day(day).with_context(|| format!("`{day}` is no day"))?;
        let picos = parse_amount(amount).with_context(|| format!("`{amount}` is no amount"))?;
        self.add(day, product, picos);
        Ok(())
    }
}

/// Places of the columns in a CSV.
struct BillColumns {
    day: usize,
    product: usize,
    amount: usize,
    currency: Option<usize>,
    /// Number of all columns.
    count: usize,
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
            count: header.len(),
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

/// Parses an amount in dollars, perhaps with a sign of the currency and with commas between
/// thousands. A number with a comma and without a point may be one with a decimal comma, and is refused.
fn parse_amount(text: &str) -> Option<i128> {
    let plain = text.replacen('$', "", 1);
    if let Some((whole, _)) = plain.split_once('.').filter(|(whole, _)| whole.contains(',')) {
        let mut groups = whole.trim_start_matches('-').split(',');
        let is_first = |group: &str| (1..=3).contains(&group.len()) && !group.starts_with('0');
        if !groups.next().is_some_and(is_first) || groups.any(|group| group.len() != 3) {
            return None;
        }
        // A comma behind the point stays and is refused.
        return parse_decimal(&plain.replacen(',', "", whole.matches(',').count()), DOLLAR_PICOS);
    }
    parse_decimal(&plain, DOLLAR_PICOS)
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

/// Splits a CSV into rows of cells (<https://www.rfc-editor.org/rfc/rfc4180>). A quote that does not
/// surround a whole cell is an error, because it may swallow rows.
fn csv_rows(text: &str) -> anyhow::Result<Vec<Vec<String>>> {
    let (mut rows, mut row, mut cell) = (Vec::new(), Vec::new(), String::new());
    let mut is_quoted = false;
    let mut letters = text.strip_prefix('\u{feff}').unwrap_or(text).chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if is_quoted && letters.peek() == Some(&'"') => {
                letters.next();
                cell.push('"');
            }
            '"' if is_quoted => {
                is_quoted = false;
                let ends = matches!(letters.peek(), None | Some(',' | '\n' | '\r'));
                anyhow::ensure!(ends, "row {}: there is text behind a quote", rows.len() + 1);
            }
            '"' => {
                anyhow::ensure!(cell.is_empty(), "row {}: a quote is in a cell", rows.len() + 1);
                is_quoted = true;
            }
            ',' if !is_quoted => row.push(std::mem::take(&mut cell)),
            '\n' if !is_quoted => {
                row.push(std::mem::take(&mut cell));
                rows.push(std::mem::take(&mut row));
            }
            '\r' if !is_quoted => {}
            other => cell.push(other),
        }
    }
    anyhow::ensure!(!is_quoted, "row {}: a quote is not closed", rows.len() + 1);
    if !cell.is_empty() || !row.is_empty() {
        row.push(cell);
        rows.push(row);
    }
    Ok(rows)
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
        let rows = csv_rows("\u{feff}a,\"b,\"\"c\"\"\r\nd\"\r\n,\n1,2").unwrap();
        assert_eq!(rows, [vec!["a", "b,\"c\"\r\nd"], vec!["", ""], vec!["1", "2"]]);
    }

    #[test]
    fn commas_separate_thousands_only() {
        for (text, dollars) in [("$1,234.00", 1_234), ("-12,345,678.0", -12_345_678), ("7", 7)] {
            assert_eq!(parse_amount(text), Some(dollars * DOLLAR_PICOS), "{text}");
        }
        for text in ["0,11", "1,234", "1.234,56", "0,123.4", "12,34.5", "1,2345.6", ",123.4"] {
            assert_eq!(parse_amount(text), None, "{text}");
        }
    }

    #[test]
    fn no_row_of_a_csv_is_left_out_without_a_word() {
        const HEAD: &str = "Usage start date,SKU description,Cost\n";
        let parse = |rows: &str| ProviderBill::parse(&format!("{HEAD}{rows}"));
        let sums = ",,1001.50\n,Total,1001.50\n";
        let bill =
            parse(&format!("2026-11-15,a,1.00\n\n2026-11-16,b,\"1,000.50\"\n{sums}")).unwrap();
        assert_eq!((bill.amounts.len(), bill.total_rows()), (2, 2));
        for rows in [
            "2026-11-15,a,1.00\n2026-11-16,b",
            "2026-11-15,a,1.00\n2026-11-16,b,\n",
            "2026-11-15,a,1.00\n,b,900.00\n",
            "2026-11-15,a,1.00\nyesterday,b,900.00\n",
            "2026-11-15,a,1.00,5\n",
            "2026-11-15,a,\"0,11\"\n",
            "2026-11-15,a\",1.00\n2026-11-16,b,500.00\n2026-11-16,c\",700.00\n",
            "2026-11-15,\"a,1.00\n2026-11-16,b,500.00\n",
            "2026-11-15,\"a\"x,1.00\n",
        ] {
            assert!(parse(rows).is_err(), "{rows}");
        }
    }

    #[test]
    fn every_day_of_an_export_counts_once_and_all_pages_are_needed() {
        let page = |day: i64, results: &str, more: bool| {
            let start = 1_794_787_200 + day * 86_400;
            format!(
                r#"{{"data":[{{"start_time":{start},"results":[{results}]}}],"has_more":{more}}}"#
            )
        };
        let paid = r#"{"amount":{"value":11,"currency":"usd"},"line_item":"m, input"}"#;
        let pages = |all: &[String]| ProviderBill::parse(&format!("[{}]", all.join(",")));
        let bill = pages(&[page(0, paid, true), page(1, "", false)]).unwrap();
        let (first, last) = bill.days().unwrap();
        assert_eq!(last, first.tomorrow().unwrap(), "a day without an amount is a day");
        assert_eq!(bill.lines().count(), 1);
        assert!(pages(&[page(0, paid, true), page(1, paid, true)]).is_err(), "one is missing");
        assert!(pages(&[page(0, paid, true), page(0, paid, false)]).is_err(), "one comes twice");
        assert!(ProviderBill::parse(&page(0, paid, true)).is_err());
    }
}

//! The range of time of a page: the time up to now, a month of the calendar, or days. Days and months are in UTC.

use std::ops::Range;

use canon::Micros;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use maud::{Markup, html};
use store::UsageStep;

use crate::form::FormFields;
use crate::page_error::PageError;

const DAY: Micros = Micros::from_days(1);
/// Most days between the first and the last one. A chart of more months cannot be read.
const MAX_LENGTH: Micros = Micros::from_days(3_660);
/// Number of months that a page offers.
const OFFERED_MONTHS: usize = 12;
const MAX_PARAMETER_BYTES: usize = 32;

/// A time up to now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecentTime {
    pub(crate) word: &'static str,
    pub(crate) title: &'static str,
    length: Micros,
}

const fn recent(word: &'static str, title: &'static str, days: i64) -> RecentTime {
    RecentTime { word, title, length: Micros::from_days(days) }
}

/// The times up to now that a page offers.
pub(crate) const RECENT_TIMES: [RecentTime; 5] = [
    recent("24h", "24 hours", 1),
    recent("7d", "7 days", 7),
    THIRTY_DAYS,
    recent("90d", "90 days", 90),
    recent("1y", "A year", 365),
];
const THIRTY_DAYS: RecentTime = recent("30d", "30 days", 30);

/// The range of time of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeRange {
    /// Up to now.
    Recent(RecentTime),
    /// The month that begins with this day.
    Month(Date),
    /// From the first to the last of these days.
    Days(Date, Date),
}

impl TimeRange {
    pub(crate) const DEFAULT: Self = Self::Recent(THIRTY_DAYS);
    /// Parameters of an address that tell a range. Days count more than `range`.
    pub(crate) const PARAMETERS: [&str; 3] = ["range", "from", "to"];

    /// Reads the parameters; `None` without any. A range that is not understood must not widen a selection.
    pub(crate) fn read(query: &FormFields) -> Result<Option<Self>, PageError> {
        let [range, from, to] =
            Self::PARAMETERS.map(|name| query.get_trimmed(name, MAX_PARAMETER_BYTES));
        match (range?, from?, to?) {
            ("", "", "") => Ok(None),
            (range, "", "") => Self::from_word(range).map(Some).ok_or(PageError::BadRequest(
                "The range is not known. Write 24h, 7d, 30d, 90d, 1y or a month like 2026-03.",
            )),
            (_, from, to) => {
                // One day alone is both ends.
                let first = parse_day(if from.is_empty() { to } else { from })?;
                let last = parse_day(if to.is_empty() { from } else { to })?;
                if first > last {
                    return Err(PageError::BadRequest("The first day is after the last one."));
                }
                if start_of_day(last) - start_of_day(first) > MAX_LENGTH {
                    return Err(PageError::BadRequest("A range has ten years at most."));
                }
                Ok(Some(Self::Days(first, last)))
            }
        }
    }

    fn from_word(word: &str) -> Option<Self> {
        let recent = RECENT_TIMES.into_iter().find(|recent| recent.word == word);
        recent.map(Self::Recent).or_else(|| month(word).map(Self::Month))
    }

    /// Returns the values of [`Self::PARAMETERS`].
    pub(crate) fn to_parameters(self) -> [String; 3] {
        match self {
            Self::Recent(recent) => [recent.word.to_owned(), String::new(), String::new()],
            Self::Month(first) => [month_word(first), String::new(), String::new()],
            Self::Days(first, last) => [String::new(), first.to_string(), last.to_string()],
        }
    }

    /// Returns the range as instants. The time up to now includes this moment, and begins with a whole hour or
    /// a whole day.
    pub(crate) fn at(self, now: Micros) -> Range<Micros> {
        match self {
            Self::Recent(recent) => {
                let begin = now - recent.length;
                let step = if recent.length > DAY { UsageStep::Day } else { UsageStep::Hour };
                step.begin(begin)..now + Micros::new(1)
            }
            Self::Month(first) => start_of_day(first)..start_of_day(month_after(first)),
            Self::Days(first, last) => start_of_day(first)..start_of_day(day_after(last)),
        }
    }

    /// Returns the range of the same length before. For a range that has not ended it is as long as what has passed.
    pub(crate) fn before(self, now: Micros) -> Range<Micros> {
        let range = self.at(now);
        let passed = (range.end.min(now) - range.start).max(Micros::ZERO);
        let start = match self {
            Self::Recent(_) | Self::Days(..) => range.start - (range.end - range.start),
            Self::Month(first) => start_of_day(month_before(first)),
        };
        let has_ended = range.end <= now;
        let end = if has_ended { range.start } else { (start + passed).min(range.start) };
        start..end
    }

    /// Returns the step of a chart of this range.
    pub(crate) fn step(self, now: Micros) -> UsageStep {
        let range = self.at(now);
        match (range.end - range.start).get() / DAY.get() {
            ..3 => UsageStep::Hour,
            3..120 => UsageStep::Day,
            120.. => UsageStep::Month,
        }
    }

    /// Returns the begins of the steps of a chart of this range.
    pub(crate) fn steps(self, now: Micros) -> Vec<Micros> {
        self.step(now).begins(&self.at(now))
    }

    /// Returns the name of the range before, for a sentence.
    pub(crate) fn name_before(self, now: Micros) -> &'static str {
        match self {
            Self::Month(_) if self.at(now).end <= now => "the month before",
            Self::Month(_) => "the same days of the month before",
            Self::Recent(_) | Self::Days(..) => "the same time before",
        }
    }
}

/// Returns the months to choose from, the newest first: parameter value and name.
pub(crate) fn offered_months(now: Micros) -> Vec<(String, String)> {
    let today =
        Timestamp::from_microsecond(now.get()).map(|now| now.to_zoned(TimeZone::UTC).date());
    let first = today.map(Date::first_of_month).ok();
    let months = std::iter::successors(first, |first| Some(month_before(*first)));
    let named = |first: Date| (month_word(first), first.strftime("%B %Y").to_string());
    months.take(OFFERED_MONTHS).map(named).collect()
}

/// Renders a choice of the ranges and two fields for days.
pub(crate) fn range_fields(chosen: TimeRange, now: Micros) -> Markup {
    let [word, from, to] = chosen.to_parameters();
    let months = offered_months(now);
    let is_listed = word.is_empty()
        || RECENT_TIMES.iter().any(|recent| recent.word == word)
        || months.iter().any(|(value, _)| *value == word);
    html! {
        div.field {
            label for="range" { "Time" }
            select id="range" name="range" {
                @if !from.is_empty() { option value="" selected { "These days" } }
                @for recent in RECENT_TIMES {
                    option value=(recent.word) selected[recent.word == word] { (recent.title) }
                }
                @for (value, title) in &months { option value=(value) selected[*value == word] { (title) } }
                @if !is_listed { option value=(word) selected { (word) } }
            }
        }
        div.field {
            label for="from" { "From (UTC)" }
            input id="from" name="from" type="date" value=(from);
        }
        div.field {
            label for="to" { "To" }
            input id="to" name="to" type="date" value=(to);
        }
    }
}

/// Accepts a date as browsers send it.
pub(crate) fn parse_day(text: &str) -> Result<Date, PageError> {
    // Later years end beyond the last instant.
    let is_known = |day: &Date| text.len() == 10 && (1..9_999).contains(&day.year());
    let day = text.parse::<Date>().ok().filter(is_known);
    day.ok_or(PageError::BadRequest("A day is written like this: 2026-03-12."))
}

/// Returns the first moment of a day in UTC.
pub(crate) fn start_of_day(day: Date) -> Micros {
    let start = day.to_zoned(TimeZone::UTC).map(|start| start.timestamp().as_microsecond());
    // Only the last days that a calendar has are outside of the range.
    start.map_or(Micros::MAX, Micros::new)
}

/// Returns the next day.
pub(crate) fn day_after(day: Date) -> Date {
    day.tomorrow().unwrap_or(Date::MAX)
}

fn month_after(first: Date) -> Date {
    first.saturating_add(1.month())
}

fn month_before(first: Date) -> Date {
    first.saturating_sub(1.month())
}

fn month_word(first: Date) -> String {
    first.strftime("%Y-%m").to_string()
}

/// Reads `2026-03`.
fn month(word: &str) -> Option<Date> {
    parse_day(&format!("{word}-01")).ok().filter(|_| word.len() == 7)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Micros = Micros::new(1_794_997_800_000_000);

    fn query(range: &str, from: &str, to: &str) -> FormFields {
        let texts = [range, from, to].map(str::to_owned);
        FormFields::prefilled(TimeRange::PARAMETERS.into_iter().zip(texts).collect())
    }

    fn read(range: &str, from: &str, to: &str) -> Option<TimeRange> {
        TimeRange::read(&query(range, from, to)).ok().flatten()
    }

    fn days(range: Range<Micros>) -> (String, String) {
        let day = |at: Micros| Timestamp::from_microsecond(at.get()).unwrap().to_string();
        (day(range.start), day(range.end))
    }

    fn instants(start: &str, end: &str) -> (String, String) {
        (start.to_owned(), end.to_owned())
    }

    #[test]
    fn a_month_has_its_own_days() {
        let leap = read("2024-02", "", "").unwrap();
        assert_eq!(days(leap.at(NOW)), instants("2024-02-01T00:00:00Z", "2024-03-01T00:00:00Z"));
        assert_eq!(
            days(leap.before(NOW)),
            instants("2024-01-01T00:00:00Z", "2024-02-01T00:00:00Z")
        );
        let year = read("2025-12", "", "").unwrap();
        assert_eq!(days(year.at(NOW)), instants("2025-12-01T00:00:00Z", "2026-01-01T00:00:00Z"));
    }

    #[test]
    fn a_month_that_has_not_ended_is_compared_with_the_same_days() {
        // 2026-11-18 10:30.
        let month = read("2026-11", "", "").unwrap();
        assert_eq!(
            days(month.before(NOW)),
            instants("2026-10-01T00:00:00Z", "2026-10-18T10:30:00Z")
        );
        // March has more days than February.
        let march = Micros::new(start_of_day(parse_day("2026-03-31").unwrap()).get() + 1);
        let month = read("2026-03", "", "").unwrap();
        assert_eq!(
            days(month.before(march)),
            instants("2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z")
        );
    }

    #[test]
    fn both_days_are_in_the_range_and_count_more_than_a_word() {
        let range = read("7d", "2026-11-01", "2026-11-02").unwrap();
        assert_eq!(days(range.at(NOW)), instants("2026-11-01T00:00:00Z", "2026-11-03T00:00:00Z"));
        assert_eq!(
            days(range.before(NOW)),
            instants("2026-10-30T00:00:00Z", "2026-11-01T00:00:00Z")
        );
        assert_eq!(read("", "2026-11-01", ""), read("", "2026-11-01", "2026-11-01"));
        assert_eq!(read("", "", "2026-11-01"), read("", "2026-11-01", "2026-11-01"));
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for (range, from, to) in [
            ("8d", "", ""),
            ("2026-13", "", ""),
            ("2026-1", "", ""),
            ("2026-01-01", "", ""),
            ("", "yesterday", ""),
            ("", "2026-02-30", ""),
            ("", "2026-02-02", "2026-02-01"),
            ("", "2026-02-02T00:00", ""),
            ("", "1990-01-01", "2026-01-01"),
            ("", "-000001-01-01", ""),
            ("", "9999-12-01", "9999-12-31"),
            ("9999-12", "", ""),
        ] {
            assert!(TimeRange::read(&query(range, from, to)).is_err(), "{range} {from} {to}");
        }
        assert_eq!(TimeRange::read(&query("", "", "")).ok(), Some(None));
    }

    #[test]
    fn the_last_month_has_few_steps() {
        for range in [
            read("9998-12", "", ""),
            read("", "9998-12-31", ""),
            read("", "9990-01-01", "9998-12-31"),
        ] {
            assert!(range.unwrap().steps(NOW).len() < 130);
        }
    }

    #[test]
    fn twelve_months_are_offered() {
        let months = offered_months(NOW);
        let ends = [months.first(), months.last()].map(|month| month.unwrap().1.as_str());
        assert_eq!((months.len(), ends), (12, ["November 2026", "December 2025"]));
    }

    fn any_range() -> impl Strategy<Value = TimeRange> {
        let day = (1_i16..=9_000, 1_i8..=12, 1_i8..=28)
            .prop_map(|(year, month, day)| Date::new(year, month, day).unwrap());
        prop_oneof![
            prop::sample::select(RECENT_TIMES.to_vec()).prop_map(TimeRange::Recent),
            day.clone().prop_map(|day| TimeRange::Month(day.first_of_month())),
            (day, 0..3_000_i64)
                .prop_map(|(day, days)| { TimeRange::Days(day, day.saturating_add(days.days())) }),
        ]
    }

    proptest! {
        #[test]
        fn a_range_is_read_as_it_was_written(range in any_range()) {
            let [word, from, to] = range.to_parameters();
            prop_assert_eq!(read(&word, &from, &to), Some(range));
        }

        #[test]
        fn the_range_before_ends_where_this_one_begins_at_the_latest(range in any_range()) {
            let (this, before) = (range.at(NOW), range.before(NOW));
            prop_assert!(before.start < this.start && before.end <= this.start, "{:?} {:?}", this, before);
            prop_assert!(this.start < this.end && before.start <= before.end, "{:?} {:?}", this, before);
        }
    }
}

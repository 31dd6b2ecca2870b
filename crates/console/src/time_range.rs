//! The range of time of a page: the time up to now, a month of the calendar, or days. Days and months are those of a
//! time zone.

use std::ops::Range;

use canon::Micros;
use jiff::ToSpan as _;
use jiff::civil::Date;
use maud::{Markup, html};
use store::UsageStep;

use crate::form::FormFields;
use crate::page_error::PageError;
use crate::viewer_time::{ViewerClock, ViewerZone, ZONE_PARAMETER};

const DAY: Micros = Micros::from_days(1);
/// Most days between the first and the last one. A chart of more months cannot be read.
const MAX_LENGTH: Micros = Micros::from_days(3_660);
/// Number of months that a page offers.
const OFFERED_MONTHS: usize = 12;
const MAX_PARAMETER_BYTES: usize = 32;

/// The days of a viewer.
#[derive(Clone, Debug)]
pub(crate) struct Calendar {
    pub(crate) clock: ViewerClock,
    /// Days that begin before this one are those of UTC, because the hours of usage are deleted.
    pub(crate) hours_from: Option<Micros>,
}

impl Calendar {
    /// Returns the first moment of a day.
    fn start_of_day(&self, day: Date) -> Micros {
        let start = self.clock.zone.start_of_day(day);
        if self.has_hours(start) { start } else { ViewerZone::UTC.start_of_day(day) }
    }

    /// Returns the day of a time.
    pub(crate) fn date_of(&self, at: Micros) -> Date {
        if self.has_hours(at) { self.clock.zone.date_of(at) } else { ViewerZone::UTC.date_of(at) }
    }

    /// Returns true if the hours of usage are kept since that time.
    pub(crate) fn has_hours(&self, since: Micros) -> bool {
        self.hours_from.is_none_or(|from| since >= from)
    }

    /// Returns the begins of those days and months that have a part of a range.
    fn begins(&self, range: &Range<Micros>, first: Date, next: fn(Date) -> Date) -> Vec<Micros> {
        let days = std::iter::successors(Some(first), |day| Some(next(*day)));
        let begins = days.map(|day| self.start_of_day(day).max(range.start));
        let mut begins: Vec<Micros> = begins.take_while(|begin| *begin < range.end).collect();
        // A zone that crosses the date line leaves out a day.
        begins.dedup();
        begins
    }
}

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
                if ViewerZone::UTC.start_of_day(last) - ViewerZone::UTC.start_of_day(first)
                    > MAX_LENGTH
                {
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

    /// Returns the range as instants. The time up to now has the whole hour, and begins with a whole hour or a
    /// whole day.
    pub(crate) fn at(self, calendar: &Calendar) -> Range<Micros> {
        let now = calendar.clock.now;
        match self {
            Self::Recent(recent) => {
                let begin = now - recent.length;
                let begin = match recent.length > DAY {
                    true => calendar.start_of_day(calendar.date_of(begin)),
                    false => UsageStep::Hour.begin(begin),
                };
                begin..UsageStep::Hour.end(now)
            }
            Self::Month(first) => {
                calendar.start_of_day(first)..calendar.start_of_day(month_after(first))
            }
            Self::Days(first, last) => {
                calendar.start_of_day(first)..calendar.start_of_day(day_after(last))
            }
        }
    }

    /// Returns the range of the same length before. For a range that has not ended it is as long as what has passed
    /// of it.
    pub(crate) fn before(self, calendar: &Calendar) -> Range<Micros> {
        let (range, now) = (self.at(calendar), calendar.clock.now);
        let start = match self {
            Self::Recent(_) => range.start - (range.end - range.start),
            Self::Days(first, last) => {
                let days = first.until(last).map_or(0, |span| span.get_days()).saturating_add(1);
                calendar.start_of_day(first.saturating_sub(days.days()))
            }
            Self::Month(first) => calendar.start_of_day(month_before(first)),
        };
        if range.end <= now {
            return start..range.start;
        }
        let passed = (UsageStep::Hour.end(now).min(range.end) - range.start).max(Micros::ZERO);
        start..(start + passed).min(range.start)
    }

    /// Returns the step of a chart of this range.
    pub(crate) fn step(self, calendar: &Calendar) -> UsageStep {
        let range = self.at(calendar);
        // A day of 23 hours is a day.
        let length = range.end - range.start + Micros::from_hours(2);
        match length.get() / DAY.get() {
            ..3 if calendar.has_hours(range.start) => UsageStep::Hour,
            ..120 => UsageStep::Day,
            120.. => UsageStep::Month,
        }
    }

    /// Returns the begins of the steps of a chart of this range. Hours are those of UTC, of which sums are kept.
    pub(crate) fn steps(self, calendar: &Calendar) -> Vec<Micros> {
        let range = self.at(calendar);
        let first = calendar.date_of(range.start);
        match self.step(calendar) {
            UsageStep::Hour => {
                let hours = UsageStep::Hour.begins(&range).into_iter();
                let begins = hours.map(|hour| hour.max(range.start));
                begins.filter(|begin| *begin < range.end).collect()
            }
            UsageStep::Day => calendar.begins(&range, first, day_after),
            UsageStep::Month => calendar.begins(&range, first.first_of_month(), month_after),
        }
    }

    /// Returns the name of the range before, for a sentence.
    pub(crate) fn name_before(self, calendar: &Calendar) -> &'static str {
        match self {
            Self::Month(_) if self.at(calendar).end <= calendar.clock.now => "the month before",
            Self::Month(_) => "the same days of the month before",
            Self::Recent(_) | Self::Days(..) => "the same time before",
        }
    }

    /// Returns true if the range is told as days, which are other times in each zone.
    pub(crate) const fn has_dates(self) -> bool {
        match self {
            Self::Recent(_) => false,
            Self::Month(_) | Self::Days(..) => true,
        }
    }
}

/// Returns the months to choose from, the newest first: parameter value and name.
pub(crate) fn offered_months(clock: &ViewerClock) -> Vec<(String, String)> {
    let first = clock.zone.date_of(clock.now).first_of_month();
    let months = std::iter::successors(Some(first), |first| Some(month_before(*first)));
    let named = |first: Date| (month_word(first), first.strftime("%B %Y").to_string());
    months.take(OFFERED_MONTHS).map(named).collect()
}

/// Renders a choice of the ranges and two fields for days of the zone.
pub(crate) fn range_fields(chosen: TimeRange, clock: &ViewerClock) -> Markup {
    let [word, from, to] = chosen.to_parameters();
    let months = offered_months(clock);
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
            label for="from" { (from_label(&clock.zone)) }
            input id="from" name="from" type="date" value=(from);
        }
        div.field {
            label for="to" { "To" }
            input id="to" name="to" type="date" value=(to);
        }
        (zone_field(&clock.zone))
    }
}

/// Returns the label of a first day.
pub(crate) fn from_label(zone: &ViewerZone) -> String {
    format!("From ({})", zone.name())
}

/// Renders the zone of the days of a form. Another zone may be chosen before the form is sent.
pub(crate) fn zone_field(zone: &ViewerZone) -> Markup {
    html! { input type="hidden" name=(ZONE_PARAMETER) value=(zone.name()); }
}

/// Accepts a date as browsers send it.
pub(crate) fn parse_day(text: &str) -> Result<Date, PageError> {
    // Later years end beyond the last instant.
    let is_known = |day: &Date| text.len() == 10 && (1..9_999).contains(&day.year());
    let day = text.parse::<Date>().ok().filter(is_known);
    day.ok_or(PageError::BadRequest("A day is written like this: 2026-03-12."))
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

    fn calendar_at(now: Micros, zone: &str) -> Calendar {
        let zone = ViewerZone::by_name(zone).unwrap();
        Calendar { clock: ViewerClock { now, zone }, hours_from: None }
    }

    fn utc() -> Calendar {
        calendar_at(NOW, "UTC")
    }

    fn query(range: &str, from: &str, to: &str) -> FormFields {
        let texts = [range, from, to].map(str::to_owned);
        FormFields::prefilled(TimeRange::PARAMETERS.into_iter().zip(texts).collect())
    }

    fn read(range: &str, from: &str, to: &str) -> Option<TimeRange> {
        TimeRange::read(&query(range, from, to)).ok().flatten()
    }

    fn days(range: Range<Micros>) -> (String, String) {
        let day = |at: Micros| ViewerZone::UTC.format(at, "%Y-%m-%dT%H:%M:%SZ");
        (day(range.start), day(range.end))
    }

    fn instants(start: &str, end: &str) -> (String, String) {
        (start.to_owned(), end.to_owned())
    }

    #[test]
    fn a_month_has_its_own_days() {
        let leap = read("2024-02", "", "").unwrap();
        assert_eq!(days(leap.at(&utc())), instants("2024-02-01T00:00:00Z", "2024-03-01T00:00:00Z"));
        assert_eq!(
            days(leap.before(&utc())),
            instants("2024-01-01T00:00:00Z", "2024-02-01T00:00:00Z")
        );
        let year = read("2025-12", "", "").unwrap();
        assert_eq!(days(year.at(&utc())), instants("2025-12-01T00:00:00Z", "2026-01-01T00:00:00Z"));
    }

    #[test]
    fn a_month_that_has_not_ended_is_compared_with_the_same_days() {
        // 2026-11-18 10:30.
        let month = read("2026-11", "", "").unwrap();
        assert_eq!(
            days(month.before(&utc())),
            instants("2026-10-01T00:00:00Z", "2026-10-18T11:00:00Z")
        );
        // March has more days than February.
        let march = ViewerZone::UTC.start_of_day(parse_day("2026-03-31").unwrap());
        let march = calendar_at(march + Micros::new(1), "UTC");
        let month = read("2026-03", "", "").unwrap();
        assert_eq!(
            days(month.before(&march)),
            instants("2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z")
        );
    }

    #[test]
    fn both_days_are_in_the_range_and_count_more_than_a_word() {
        let range = read("7d", "2026-11-01", "2026-11-02").unwrap();
        assert_eq!(
            days(range.at(&utc())),
            instants("2026-11-01T00:00:00Z", "2026-11-03T00:00:00Z")
        );
        assert_eq!(
            days(range.before(&utc())),
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
            assert!(range.unwrap().steps(&utc()).len() < 130);
        }
    }

    #[test]
    fn days_and_months_are_those_of_the_zone() {
        let kolkata = calendar_at(NOW, "Asia/Kolkata");
        let month = read("2026-11", "", "").unwrap();
        assert_eq!(
            days(month.at(&kolkata)),
            instants("2026-10-31T18:30:00Z", "2026-11-30T18:30:00Z")
        );
        let week = read("7d", "", "").unwrap();
        assert_eq!(
            days(week.at(&kolkata)),
            instants("2026-11-10T18:30:00Z", "2026-11-18T11:00:00Z")
        );
        // The clocks change on 1 November and 8 March.
        let new_york = calendar_at(NOW, "America/New_York");
        let long = read("", "2026-11-01", "").unwrap();
        assert_eq!(
            days(long.at(&new_york)),
            instants("2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z")
        );
        assert_eq!(long.steps(&new_york).len(), 25);
        let short = read("", "2026-03-08", "").unwrap();
        assert_eq!(short.steps(&new_york).len(), 23);
        let three = read("", "2026-03-07", "2026-03-09").unwrap();
        assert_eq!(three.steps(&new_york).len(), 3);
        assert_eq!(
            days(three.before(&new_york)),
            instants("2026-03-04T05:00:00Z", "2026-03-07T05:00:00Z")
        );
        let year = read("1y", "", "").unwrap().steps(&new_york);
        assert_eq!(year.len(), 13);
        assert_eq!(offered_months(&calendar_at(NOW, "Pacific/Kiritimati").clock).len(), 12);
        // A day that its zone left out has no calls.
        let none = read("", "2011-12-30", "").unwrap();
        assert_eq!(none.steps(&calendar_at(NOW, "Pacific/Apia")), []);
    }

    #[test]
    fn days_without_hours_of_usage_are_those_of_utc() {
        let from = ViewerZone::UTC.start_of_day(parse_day("2026-03-10").unwrap());
        let calendar = Calendar { hours_from: Some(from), ..calendar_at(NOW, "America/New_York") };
        let range = read("", "2026-03-08", "2026-03-11").unwrap();
        assert_eq!(
            days(range.at(&calendar)),
            instants("2026-03-08T00:00:00Z", "2026-03-12T04:00:00Z")
        );
        let steps: Vec<String> =
            range.steps(&calendar).into_iter().map(|at| days(at..at).0).collect();
        assert_eq!(
            steps,
            [
                "2026-03-08T00:00:00Z",
                "2026-03-09T00:00:00Z",
                "2026-03-10T04:00:00Z",
                "2026-03-11T04:00:00Z"
            ]
        );
        let one = read("", "2026-03-08", "").unwrap();
        assert_eq!(one.steps(&calendar).len(), 1);
    }

    #[test]
    fn twelve_months_are_offered() {
        let months = offered_months(&utc().clock);
        let ends = [months.first(), months.last()].map(|month| month.unwrap().1.as_str());
        assert_eq!((months.len(), ends), (12, ["November 2026", "December 2025"]));
    }

    fn any_zone() -> impl Strategy<Value = String> {
        prop::sample::select(ViewerZone::names())
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
        fn the_range_before_ends_where_this_one_begins_at_the_latest(
            range in any_range(),
            zone in any_zone(),
        ) {
            let calendar = calendar_at(NOW, &zone);
            let (this, before) = (range.at(&calendar), range.before(&calendar));
            prop_assert!(before.start < this.start && before.end <= this.start, "{:?} {:?}", this, before);
            prop_assert!(this.start < this.end && before.start <= before.end, "{:?} {:?}", this, before);
        }

        #[test]
        fn steps_divide_the_range(
            range in any_range(),
            zone in any_zone(),
            hours_from in prop::option::of(-20_000..20_000_i64),
        ) {
            let hours_from = hours_from.map(Micros::from_days);
            let calendar = Calendar { hours_from, ..calendar_at(NOW, &zone) };
            let (this, steps) = (range.at(&calendar), range.steps(&calendar));
            prop_assert_eq!(steps.first(), Some(&this.start));
            prop_assert!(steps.is_sorted_by(|a, b| a < b) && steps.last() < Some(&this.end), "{:?}", steps);
            prop_assert!(steps.len() < 130, "{}", steps.len());
            // Each one begins a day of its own.
            if range.step(&calendar) == UsageStep::Day {
                let days: Vec<Date> = steps.iter().map(|step| calendar.date_of(*step)).collect();
                prop_assert!(days.is_sorted_by(|a, b| a < b), "{:?}", days);
            }
        }
    }
}

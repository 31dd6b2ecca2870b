//! Times as a viewer sees them: in a time zone, with its short name. The database of zones is part of the program, so
//! that all nodes agree on every machine.

use std::sync::LazyLock;

use canon::Micros;
use jiff::civil::Date;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{Timestamp, Zoned};
use maud::{Markup, html};

use crate::page_error::PageError;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
/// Parameter of an address and field of a form with the zone that its days are of.
pub(crate) const ZONE_PARAMETER: &str = "zone";
/// Upper bound of the name of a zone. The longest one has 32 bytes.
pub(crate) const MAX_ZONE_BYTES: usize = 64;

static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// A time zone with a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ViewerZone(TimeZone);

impl ViewerZone {
    pub(crate) const UTC: Self = Self(TimeZone::UTC);

    /// Returns the zone with that name in the database.
    pub(crate) fn by_name(name: &str) -> Option<Self> {
        let zone = ZONES.get(name).ok()?;
        (zone.iana_name().is_some() && !zone.is_unknown()).then_some(Self(zone))
    }

    /// Reads a parameter or field. A zone that is not understood must not select other days.
    pub(crate) fn read(name: &str) -> Result<Self, PageError> {
        Self::by_name(name).ok_or(PageError::BadRequest(
            "The time zone is not known. Write a name like Europe/Berlin, or UTC.",
        ))
    }

    /// Returns the name in the database.
    pub(crate) fn name(&self) -> &str {
        self.0.iana_name().unwrap_or("UTC")
    }

    /// Returns all names in the database.
    pub(crate) fn names() -> Vec<String> {
        ZONES.available().map(|name| name.as_str().to_owned()).collect()
    }

    /// Returns the first moment of a day.
    pub(crate) fn start_of_day(&self, day: Date) -> Micros {
        let start = day.to_zoned(self.0.clone()).map(|start| start.timestamp().as_microsecond());
        // Only the last days that a calendar has are outside of the range.
        start.map_or(Micros::MAX, Micros::new)
    }

    /// Returns the day of a time.
    pub(crate) fn date_of(&self, at: Micros) -> Date {
        self.zoned(at).map_or(Date::MAX, |at| at.date())
    }

    /// A time in full: `2026-03-12 14:03:22 CET`.
    pub(crate) fn timestamp(&self, at: Micros) -> String {
        self.format(at, "%Y-%m-%d %H:%M:%S %Z")
    }

    /// The day of a time: `2026-03-12`.
    pub(crate) fn day(&self, at: Micros) -> String {
        self.format(at, "%Y-%m-%d")
    }

    /// Writes a time in a form of `strftime`.
    pub(crate) fn format(&self, at: Micros, form: &str) -> String {
        self.zoned(at).map_or_else(|| "never".to_owned(), |at| at.strftime(form).to_string())
    }

    fn zoned(&self, at: Micros) -> Option<Zoned> {
        let time = Timestamp::from_microsecond(at.get()).ok()?;
        Some(time.to_zoned(self.0.clone()))
    }
}

/// Now, and the zone in which a page shows times.
#[derive(Clone, Debug)]
pub(crate) struct ViewerClock {
    pub(crate) now: Micros,
    pub(crate) zone: ViewerZone,
}

impl ViewerClock {
    /// A time relative to now, with the full time in the title.
    pub(crate) fn relative_time(&self, at: Micros) -> Markup {
        let machine = ViewerZone::UTC.format(at, "%Y-%m-%dT%H:%M:%SZ");
        html! { time datetime=(machine) title=(self.zone.timestamp(at)) { (self.relative_text(at)) } }
    }

    fn relative_text(&self, at: Micros) -> String {
        let seconds = (self.now - at).as_secs();
        let (size, past) = (seconds.saturating_abs(), seconds >= 0);
        let text = match size {
            0..MINUTE => {
                return if past { "just now".to_owned() } else { "in a moment".to_owned() };
            }
            MINUTE..HOUR => format!("{} min", size / MINUTE),
            HOUR..DAY => format!("{} h", size / HOUR),
            _ if size < 2 * DAY => "1 day".to_owned(),
            _ if size < 60 * DAY => format!("{} days", size / DAY),
            _ => return self.zone.format(at, "%-d %b %Y"),
        };
        if past { format!("{text} ago") } else { format!("in {text}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(name: &str) -> ViewerZone {
        ViewerZone::by_name(name).unwrap()
    }

    #[test]
    fn times_are_relative_to_now() {
        let s = Micros::from_secs(1);
        let now = 1_700_000_000 * s;
        let clock = |zone| ViewerClock { now, zone };
        let text = |at| clock(ViewerZone::UTC).relative_text(at);
        assert_eq!(text(now - 5 * s), "just now");
        assert_eq!(text(now - 300 * s), "5 min ago");
        assert_eq!(text(now - 2 * 3_600 * s), "2 h ago");
        assert_eq!(text(now + 30 * 86_400 * s), "in 30 days");
        assert_eq!(text(now - 90 * 86_400 * s), "16 Aug 2023");
        // 22:13 of the day before in UTC.
        let in_kolkata = clock(zone("Asia/Kolkata"));
        assert_eq!(in_kolkata.relative_text(now - 90 * 86_400 * s), "17 Aug 2023");
        assert_eq!(
            in_kolkata.relative_time(now).into_string(),
            "<time datetime=\"2023-11-14T22:13:20Z\" title=\"2023-11-15 03:43:20 IST\">just now</time>"
        );
    }

    #[test]
    fn a_full_time_names_its_zone() {
        let at = Micros::from_secs(1_700_000_000);
        for (name, full, day) in [
            ("UTC", "2023-11-14 22:13:20 UTC", "2023-11-14"),
            ("Europe/Berlin", "2023-11-14 23:13:20 CET", "2023-11-14"),
            ("America/New_York", "2023-11-14 17:13:20 EST", "2023-11-14"),
            ("Asia/Kathmandu", "2023-11-15 03:58:20 +0545", "2023-11-15"),
        ] {
            assert_eq!(
                (zone(name).timestamp(at).as_str(), zone(name).day(at).as_str()),
                (full, day)
            );
        }
        assert_eq!(ViewerZone::UTC.timestamp(Micros::MAX), "never");
    }

    #[test]
    fn only_zones_of_the_database_are_known() {
        for name in
            ["", "Europe", "Mars/Olympus", "+02:00", "../etc/passwd", "Etc/Unknown", "UTC\n"]
        {
            assert_eq!(ViewerZone::by_name(name), None, "{name:?}");
        }
        assert_eq!(ViewerZone::by_name("UTC"), Some(ViewerZone::UTC));
        assert_eq!(zone("europe/berlin").name(), "Europe/Berlin");
        // Browsers still tell names of before.
        assert_eq!(
            zone("Asia/Calcutta").date_of(Micros::ZERO),
            zone("Asia/Kolkata").date_of(Micros::ZERO)
        );
        let names = ViewerZone::names();
        assert!(names.len() > 400, "{}", names.len());
        assert!(names.iter().all(|name| ViewerZone::by_name(name).is_some()), "{names:?}");
    }

    #[test]
    fn a_day_begins_when_its_clock_does() {
        let length = |name: &str, day: &str| {
            let (zone, day): (_, Date) = (zone(name), day.parse().unwrap());
            (zone.start_of_day(day.tomorrow().unwrap()) - zone.start_of_day(day)).as_secs()
        };
        assert_eq!(length("America/New_York", "2026-03-08"), 23 * HOUR);
        assert_eq!(length("America/New_York", "2026-11-01"), 25 * HOUR);
        assert_eq!(length("Australia/Lord_Howe", "2026-04-05"), 24 * HOUR + 30 * MINUTE);
        // Midnight did not exist there.
        assert_eq!(length("America/Sao_Paulo", "2018-11-04"), 23 * HOUR);
        // The zone left out this day.
        assert_eq!(length("Pacific/Apia", "2011-12-30"), 0);
        assert_eq!(length("UTC", "2026-03-08"), 24 * HOUR);
    }
}

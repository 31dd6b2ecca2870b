//! Quiet hours: the part of each day in which mails wait.

use std::sync::LazyLock;

use canon::Micros;
use jiff::Timestamp;
use jiff::civil::Time;
use jiff::tz::{TimeZone, TimeZoneDatabase};

const TIME_FORM: &str = "%H:%M";
const MAX_ZONE_BYTES: usize = 64;

/// Zones that are part of the program, so that all nodes know the same ones.
static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// Part of each day in which mails wait, by the clock of a time zone. It may go over midnight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuietHours {
    from: Time,
    to: Time,
    zone: String,
}

/// Part of quiet hours that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrongQuietHours {
    /// The begin is no time of day.
    From,
    /// The end is no time of day, or the same as the begin.
    To,
    /// The time zone is not known.
    Zone,
}

impl QuietHours {
    /// Reads times such as `22:00` and the name of a time zone such as `Europe/Berlin` or `UTC`.
    pub fn new(from: &str, to: &str, zone: &str) -> Result<Self, WrongQuietHours> {
        let from = time_of_day(from).ok_or(WrongQuietHours::From)?;
        let to = time_of_day(to).filter(|to| *to != from).ok_or(WrongQuietHours::To)?;
        let known = (zone.len() <= MAX_ZONE_BYTES).then(|| ZONES.get(zone).ok()).flatten();
        // The name as the database of time zones writes it.
        let known = known.as_ref().and_then(TimeZone::iana_name).ok_or(WrongQuietHours::Zone)?;
        Ok(Self { from, to, zone: known.to_owned() })
    }

    /// Returns begin, end and time zone.
    pub fn parts(&self) -> [String; 3] {
        [word(self.from), word(self.to), self.zone.clone()]
    }

    /// Returns the end of the quiet hours at that time; `None` if it lies outside of them.
    pub fn end(&self, now: Micros) -> Option<Micros> {
        let zone = ZONES.get(&self.zone).ok()?;
        let local = Timestamp::from_microsecond(now.get()).ok()?.to_zoned(zone.clone());
        let (time, date) = (local.time(), local.date());
        let is_quiet = if self.from < self.to {
            (self.from..self.to).contains(&time)
        } else {
            time >= self.from || time < self.to
        };
        if !is_quiet {
            return None;
        }
        let date = if time < self.to { date } else { date.tomorrow().ok()? };
        let end = date.to_datetime(self.to).to_zoned(zone).ok()?;
        // In an hour that clocks repeat the end may be the earlier one.
        Some(Micros::new(end.timestamp().as_microsecond()).max(now))
    }
}

fn time_of_day(text: &str) -> Option<Time> {
    // A shorter text and one with blanks would be read as well.
    Time::strptime(TIME_FORM, text).ok().filter(|time| word(*time) == text)
}

fn word(time: Time) -> String {
    time.strftime(TIME_FORM).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Micros {
        Micros::new(text.parse::<Timestamp>().unwrap().as_microsecond())
    }

    #[test]
    fn quiet_hours_end_by_the_clock_of_their_zone() {
        let berlin = QuietHours::new("22:00", "07:00", "Europe/Berlin").unwrap();
        let noon = QuietHours::new("12:00", "13:30", "UTC").unwrap();
        for (hours, now, end) in [
            (&berlin, "2026-11-19T20:59:59Z", None),
            (&berlin, "2026-11-19T21:00:00Z", Some("2026-11-20T06:00:00Z")),
            (&berlin, "2026-11-20T05:59:59Z", Some("2026-11-20T06:00:00Z")),
            (&berlin, "2026-11-20T06:00:00Z", None),
            // Summer time begins in this night.
            (&berlin, "2026-03-28T21:30:00Z", Some("2026-03-29T05:00:00Z")),
            (&noon, "2026-11-19T11:59:59Z", None),
            (&noon, "2026-11-19T12:00:00Z", Some("2026-11-19T13:30:00Z")),
            (&noon, "2026-11-19T13:30:00Z", None),
        ] {
            assert_eq!(hours.end(at(now)), end.map(at), "{now}");
        }
    }

    #[test]
    fn an_end_in_a_repeated_or_skipped_hour_is_not_before_now() {
        // 02:30 comes twice on the 25th of October, and not at all on the 29th of March.
        let hours = QuietHours::new("22:00", "02:30", "Europe/Berlin").unwrap();
        for (now, end) in [
            ("2026-10-25T00:10:00Z", Some("2026-10-25T00:30:00Z")),
            ("2026-10-25T00:40:00Z", None),
            ("2026-10-25T01:10:00Z", Some("2026-10-25T01:10:00Z")),
            ("2026-10-25T01:30:00Z", None),
            ("2026-03-28T22:00:00Z", Some("2026-03-29T01:30:00Z")),
        ] {
            assert_eq!(hours.end(at(now)), end.map(at), "{now}");
        }
    }

    #[test]
    fn wrong_parts_are_named() {
        for (from, to, zone, wrong) in [
            ("24:00", "07:00", "UTC", WrongQuietHours::From),
            ("7:00", "08:00", "UTC", WrongQuietHours::From),
            (" 7:00", "08:00", "UTC", WrongQuietHours::From),
            ("+7:00", "08:00", "UTC", WrongQuietHours::From),
            ("22:00", "", "UTC", WrongQuietHours::To),
            ("22:00", "22:00", "UTC", WrongQuietHours::To),
            ("22:00", "07:00", "Mars/Olympus", WrongQuietHours::Zone),
            ("22:00", "07:00", "../../etc/passwd", WrongQuietHours::Zone),
            // A file that only some machines have.
            ("22:00", "07:00", "posixrules", WrongQuietHours::Zone),
            ("22:00", "07:00", "", WrongQuietHours::Zone),
        ] {
            assert_eq!(QuietHours::new(from, to, zone), Err(wrong), "{from} {to} {zone}");
        }
        let hours = QuietHours::new("22:00", "07:05", "europe/berlin").unwrap();
        assert_eq!(hours.parts(), ["22:00", "07:05", "Europe/Berlin"]);
    }
}

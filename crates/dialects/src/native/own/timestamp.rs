//! Timestamps as RFC 3339 text in UTC, to the second.

/// Writes seconds since 1970 as `2026-05-04T20:01:02Z`.
pub(crate) fn write(seconds: i64) -> String {
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = date(days);
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Reads an RFC 3339 timestamp into seconds since 1970; fractions are dropped.
pub(crate) fn read(text: &str) -> Option<i64> {
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<i64>().ok();
    let mark = |at: usize, expected: &str| text.get(at..at + 1).filter(|c| *c == expected);
    mark(4, "-").and(mark(7, "-")).and(mark(13, ":")).and(mark(16, ":"))?;
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 {
        return None;
    }
    let zone = text.get(19..)?.trim_start_matches(|c: char| c == '.' || c.is_ascii_digit());
    let offset = match zone.get(..1) {
        Some("Z" | "z") => 0,
        Some(sign @ ("+" | "-")) => {
            let hours = zone.get(1..3)?.parse::<i64>().ok()?;
            let minutes = zone.get(4..6)?.parse::<i64>().ok()?;
            let size = hours * 3_600 + minutes * 60;
            if sign == "+" { size } else { -size }
        }
        _ => return None,
    };
    Some(days(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second - offset)
}

/// Returns year, month and day of a number of days since 1970-01-01,
/// <https://howardhinnant.github.io/date_algorithms.html#civil_from_days>.
const fn date(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + (month <= 2) as i64, month, day)
}

/// Returns the number of days since 1970-01-01; the inverse of `date`.
const fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let month = if month > 2 { month - 3 } else { month + 9 };
    let of_year = (153 * month + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_timestamps_round_trip() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_777_924_862, "2026-05-04T20:01:02Z"),
            (-1, "1969-12-31T23:59:59Z"),
        ] {
            assert_eq!(write(seconds), text);
            assert_eq!(read(text), Some(seconds));
        }
        assert_eq!(read("2026-05-04T20:01:02.264968Z"), Some(1_777_924_862));
        assert_eq!(read("2026-05-04T22:01:02+02:00"), Some(1_777_924_862));
        for broken in ["", "2026", "2026-05-04", "2026-13-04T20:01:02Z", "2026-05-04T20:01:02"] {
            assert_eq!(read(broken), None, "{broken}");
        }
    }

    #[test]
    fn days_of_eight_centuries_round_trip() {
        for day in (-150_000..150_000).step_by(7) {
            assert_eq!(read(&write(day * 86_400 + 5)), Some(day * 86_400 + 5));
        }
    }
}

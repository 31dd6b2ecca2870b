//! Timestamps as RFC 3339 text in UTC, to the second.

use jiff::Timestamp;

/// Writes seconds since 1970 as `2026-05-04T20:01:02Z`.
pub(crate) fn write(seconds: i64) -> String {
    Timestamp::from_second(seconds).unwrap_or_default().to_string()
}

/// Reads an RFC 3339 timestamp into seconds since 1970; fractions are dropped.
pub(crate) fn read(text: &str) -> Option<i64> {
    text.parse().ok().map(Timestamp::as_second)
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

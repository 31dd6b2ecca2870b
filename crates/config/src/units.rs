//! Durations and sizes as people write them, and suggestions for misspelt words.

use std::time::Duration;

/// Text that is not a duration or a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// Not a duration.
    #[error("`{0}` is not a duration; write for instance \"500ms\", \"60s\" or \"10m\"")]
    Duration(String),
    /// Not a size.
    #[error("`{0}` is not a size; write for instance \"32MiB\"")]
    Size(String),
}

impl From<UnitError> for String {
    fn from(error: UnitError) -> Self {
        error.to_string()
    }
}

/// Parses `500ms`, `5s`, `10m`, `2h` or `30d`.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let invalid = || UnitError::Duration(text.to_owned());
    let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(invalid)?;
    let (number, unit) = text.split_at_checked(digits).ok_or_else(invalid)?;
    let number: u64 = number.parse().map_err(|_| invalid())?;
    let millis = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(invalid()),
    };
    number.checked_mul(millis).map(Duration::from_millis).ok_or_else(invalid)
}

/// Parses `1024`, `64KiB`, `32MiB` or `1GiB`. `KB`, `MB` and `GB` are powers of ten.
pub(crate) fn parse_size(text: &str) -> Result<usize, UnitError> {
    let invalid = || UnitError::Size(text.to_owned());
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(digits).ok_or_else(invalid)?;
    let number: usize = number.parse().map_err(|_| invalid())?;
    let factor = match unit.trim() {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        _ => return Err(invalid()),
    };
    number.checked_mul(factor).filter(|size| *size > 0).ok_or_else(invalid)
}

/// Returns the known word nearest to a misspelt one, if one is near.
pub fn nearest_word<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let max_distance = (word.chars().count() / 3).max(1) + 1;
    known
        .into_iter()
        .map(|candidate| (edit_distance(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= max_distance)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Returns the Levenshtein distance of two words.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut corner = i;
        let mut left = i + 1;
        let mut next = vec![left];
        for (to, above) in b.iter().zip(row.iter().skip(1)) {
            let best = (corner + usize::from(from != *to)).min(left + 1).min(above + 1);
            corner = *above;
            left = best;
            next.push(best);
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_durations_and_sizes() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("10m"), Ok(Duration::from_secs(600)));
        assert_eq!(parse_duration("30d"), Ok(Duration::from_secs(2_592_000)));
        assert_eq!(parse_size("32MiB"), Ok(32 << 20));
        assert_eq!(parse_size("1000"), Ok(1000));
        for invalid in ["", "5", "s", "5 s", "-5s", "5x", "99999999999999999999s"] {
            assert!(parse_duration(invalid).is_err(), "{invalid}");
        }
        for invalid in ["", "MiB", "0", "-1", "5XB"] {
            assert!(parse_size(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn finds_the_nearest_word() {
        let known = ["listen", "public_url", "demo"];
        assert_eq!(nearest_word("lisen", known), Some("listen"));
        assert_eq!(nearest_word("publicurl", known), Some("public_url"));
        assert_eq!(nearest_word("zzzz", known), None);
    }
}

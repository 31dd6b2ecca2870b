//! Durations and tokens as LiteLLM writes them.

use ledger::BudgetPeriod;

use super::source_data::SourceSecret;

/// Returns the calendar period of a duration, the next longer one if there is none, and true if both are
/// the same. `None` if it is longer than a month.
///
/// LiteLLM resets budgets of a day, a week and a month at midnight, on Monday and on the first.
pub(super) fn budget_period(text: &str) -> Option<(BudgetPeriod, bool)> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let (count, unit) = (digits.parse::<u64>().ok()?, text.get(digits.len()..)?);
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        "w" => 604_800,
        "mo" => 2_592_000,
        _ => return None,
    };
    let seconds = count.checked_mul(seconds)?;
    [
        (BudgetPeriod::Day, 86_400..=86_400),
        (BudgetPeriod::Week, 604_800..=604_800),
        (BudgetPeriod::Month, 2_592_000..=2_678_400),
    ]
    .into_iter()
    .find(|(_, same)| seconds <= *same.end())
    .map(|(period, same)| (period, same.contains(&seconds)))
}

/// Reads the token of a key: its SHA-256, in old databases the key itself.
pub(super) fn read_token(token: &str) -> Option<SourceSecret> {
    match hex_digest(token) {
        Some(sha256) => Some(SourceSecret::Sha256(sha256)),
        None if token.starts_with("sk-") => Some(SourceSecret::Text(token.to_owned())),
        None => None,
    }
}

/// Reads 64 hexadecimal digits.
pub(super) fn hex_digest(text: &str) -> Option<[u8; 32]> {
    let mut digest = [0_u8; 32];
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (byte, pair) in digest.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_become_periods_that_are_not_shorter() {
        use BudgetPeriod::{Day, Month, Week};
        for (text, expected) in [
            ("1d", Some((Day, true))),
            ("24h", Some((Day, true))),
            ("30s", Some((Day, false))),
            ("2d", Some((Week, false))),
            ("7d", Some((Week, true))),
            ("1w", Some((Week, true))),
            ("30d", Some((Month, true))),
            ("1mo", Some((Month, true))),
            ("14d", Some((Month, false))),
            ("3mo", None),
            ("365d", None),
            ("soon", None),
            ("", None),
            ("9999999999999999999d", None),
        ] {
            assert_eq!(budget_period(text), expected, "{text}");
        }
    }

    #[test]
    fn tokens_are_hashes_or_keys() {
        let hash = "ab".repeat(32);
        assert_eq!(read_token(&hash), Some(SourceSecret::Sha256([0xab; 32])));
        assert!(matches!(read_token("sk-1234"), Some(SourceSecret::Text(_))));
        assert_eq!(read_token("x"), None);
        assert_eq!(hex_digest(&"é".repeat(32)), None);
    }
}

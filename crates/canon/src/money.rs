//! Money in integers: amounts in nanodollars, prices in picodollars per unit.
//!
//! Amounts are never floating point. A price times a count is an `i128` product in picodollars. The
//! sum of a call's products is rounded up once, to the next nanodollar.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::iter::Sum;
use std::str::FromStr;

use crate::arithmetic::bounded_arithmetic;

/// An amount in nanodollars (10⁻⁹ USD).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Money(i64);

bounded_arithmetic!(Money);

impl Money {
    /// Zero dollars.
    pub const ZERO: Self = Self(0);
    /// The largest amount that fits.
    pub const MAX: Self = Self(i64::MAX);

    /// Creates an amount from nanodollars.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// Returns the amount in nanodollars.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// Converts picodollars to an amount, rounded up to the next nanodollar.
    ///
    /// Saturates: an amount that does not fit becomes the largest one, which no cap allows.
    pub fn from_picos(picos: i128) -> Self {
        // Nearly every amount fits in 64 bits, of which a division is cheap.
        if let Ok(picos) = i64::try_from(picos) {
            return Self(picos.div_euclid(1000) + i64::from(picos.rem_euclid(1000) != 0));
        }
        let nanos = picos.div_euclid(1000) + i128::from(picos.rem_euclid(1000) != 0);
        Self(i64::try_from(nanos).unwrap_or(if nanos < 0 { i64::MIN } else { i64::MAX }))
    }

    /// Returns the sum; `None` if it does not fit.
    pub const fn checked_add(self, other: Self) -> Option<Self> {
        match self.0.checked_add(other.0) {
            Some(sum) => Some(Self(sum)),
            None => None,
        }
    }

    /// Returns the whole percents of a limit that the amount is; 100 of a limit of nothing.
    pub fn percent_of(self, limit: Self) -> i64 {
        if limit.0 <= 0 {
            return 100;
        }
        i64::try_from(i128::from(self.0) * 100 / i128::from(limit.0)).unwrap_or(i64::MAX)
    }

    /// Returns true if the amount is below zero.
    pub const fn is_negative(self) -> bool {
        self.0 < 0
    }
}

impl Sum for Money {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::ZERO, Self::saturating_add)
    }
}

/// Letters of the largest amount: a sign, ten digits, a point and nine digits.
const MAX_AMOUNT_LETTERS: usize = 21;
/// Digits after the point.
const FRACTION_DIGITS: usize = 9;
/// Nanodollars of a dollar.
const NANOS: u64 = 1_000_000_000;

impl Money {
    /// Shows the amount with nine digits after the point. Every reply carries its cost, so this does without
    /// the machinery of `format!` and without memory of its own.
    pub fn with_text<T>(self, show: impl FnOnce(&str) -> T) -> T {
        let mut text = [b'0'; MAX_AMOUNT_LETTERS];
        let amount = self.0.unsigned_abs();
        let (mut whole, fraction) = (amount / NANOS, amount % NANOS);
        // Below 10⁹, so that the short division does.
        let mut fraction = fraction as u32;
        let mut letters = text.iter_mut().rev();
        for letter in letters.by_ref().take(FRACTION_DIGITS) {
            *letter = b'0' + (fraction % 10) as u8;
            fraction /= 10;
        }
        if let Some(point) = letters.next() {
            *point = b'.';
        }
        // The point, and one digit at least.
        let mut start = MAX_AMOUNT_LETTERS - FRACTION_DIGITS - 2;
        for letter in letters {
            *letter = b'0' + (whole % 10) as u8;
            whole /= 10;
            if whole == 0 {
                break;
            }
            start -= 1;
        }
        if self.0 < 0 {
            start -= 1;
            if let Some(letter) = text.get_mut(start) {
                *letter = b'-';
            }
        }
        let letters = text.get(start..).unwrap_or_default();
        show(std::str::from_utf8(letters).unwrap_or_default())
    }
}

/// Always nine digits after the point: `0.000012500`.
impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.with_text(|text| f.write_str(text))
    }
}

impl FromStr for Money {
    type Err = AmountError;

    fn from_str(text: &str) -> Result<Self, AmountError> {
        parse_decimal(text, 9).map(Self)
    }
}

/// A price in picodollars (10⁻¹² USD) per unit: per token, per request, per image, per second.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Price(i64);

impl Price {
    /// Free of charge.
    pub const FREE: Self = Self(0);

    /// Creates a price from picodollars per unit.
    pub const fn from_picos(picos: i64) -> Self {
        Self(picos)
    }

    /// Returns the price in picodollars per unit.
    pub const fn as_picos(self) -> i64 {
        self.0
    }

    /// Parses dollars per million units: `"3.00"`. Up to six digits after the point are exact.
    pub fn parse_per_million(text: &str) -> Result<Self, AmountError> {
        parse_decimal(text, 6).and_then(Self::not_negative)
    }

    /// Parses dollars per unit: `"0.04"`. Up to twelve digits after the point are exact.
    pub fn parse_per_unit(text: &str) -> Result<Self, AmountError> {
        parse_decimal(text, 12).and_then(Self::not_negative)
    }

    fn not_negative(picos: i64) -> Result<Self, AmountError> {
        if picos < 0 { Err(AmountError::Negative) } else { Ok(Self(picos)) }
    }

    /// Returns the exact price of that number of units in picodollars.
    pub fn times(self, units: u64) -> i128 {
        i128::from(self.0) * i128::from(units)
    }

    /// Formats the price as dollars per million units: `3`, `0.0375`.
    pub fn to_per_million(self) -> String {
        format_decimal(self.0, 6)
    }

    /// Formats the price as dollars per unit: `0.04`.
    pub fn to_per_unit(self) -> String {
        format_decimal(self.0, 12)
    }
}

/// Error of parsing an amount or a price.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AmountError {
    /// Not of the form `12` or `12.34`.
    NotADecimal,
    /// More digits after the point than the unit can hold exactly.
    TooPrecise,
    /// Larger than the type can hold.
    TooLarge,
    /// A negative price.
    Negative,
}

impl fmt::Display for AmountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotADecimal => "not a decimal number such as \"3.00\"",
            Self::TooPrecise => "too many digits after the point",
            Self::TooLarge => "too large",
            Self::Negative => "below zero",
        })
    }
}

impl std::error::Error for AmountError {}

/// Parses a decimal number as an integer multiple of `10^-digits`.
fn parse_decimal(text: &str, digits: usize) -> Result<i64, AmountError> {
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !is_digits(whole) || !is_digits(fraction) || text.ends_with('.') {
        return Err(AmountError::NotADecimal);
    }
    let fraction = fraction.trim_end_matches('0');
    if fraction.len() > digits {
        return Err(AmountError::TooPrecise);
    }
    let all = format!("{whole}{fraction:0<digits$}");
    let value: i64 = all.parse().map_err(|_| AmountError::TooLarge)?;
    Ok(if negative { -value } else { value })
}

/// Formats an integer multiple of `10^-digits` without trailing zeros.
fn format_decimal(value: i64, digits: u32) -> String {
    let unit = 10_u64.pow(digits);
    let all = value.unsigned_abs();
    let sign = if value < 0 { "-" } else { "" };
    let text = format!("{sign}{}.{:0width$}", all / unit, all % unit, width = digits as usize);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_million_tokens_cost_the_list_price() {
        let price = Price::parse_per_million("3.00").unwrap();
        assert_eq!(Money::from_picos(price.times(1_000_000)).to_string(), "3.000000000");
        assert_eq!(Money::from_picos(price.times(1)).to_string(), "0.000003000");
    }

    #[test]
    fn a_fraction_of_a_nanodollar_is_rounded_up_once() {
        let price = Price::parse_per_million("0.0001").unwrap();
        assert_eq!(Money::from_picos(price.times(1)).as_nanos(), 1);
        assert_eq!(Money::from_picos(price.times(10) + price.times(5)).as_nanos(), 2);
        assert_eq!(Money::from_picos(0).as_nanos(), 0);
    }

    #[test]
    fn percents_are_whole_and_never_divide_by_zero() {
        for (spent, limit, percent) in [
            (0, 100, 0),
            (82, 100, 82),
            (1, 3, 33),
            (5, 0, 100),
            (7, 5, 140),
            (i64::MAX, 1, i64::MAX),
        ] {
            let [spent, limit] = [spent, limit].map(Money::from_nanos);
            assert_eq!(spent.percent_of(limit), percent);
        }
    }

    #[test]
    fn malformed_amounts_are_refused() {
        for text in ["", ".", "1.", ".5", "1e3", "1,0", " 1", "--1", "+1", "0x1", "1.2.3"] {
            assert_eq!(text.parse::<Money>(), Err(AmountError::NotADecimal), "{text}");
        }
        assert_eq!(Price::parse_per_million("-1"), Err(AmountError::Negative));
        assert_eq!(Price::parse_per_million("0.0000001"), Err(AmountError::TooPrecise));
        assert_eq!("99999999999".parse::<Money>(), Err(AmountError::TooLarge));
    }

    proptest! {
        #[test]
        fn an_amount_survives_formatting_and_parsing(nanos in -i64::MAX..=i64::MAX) {
            let money = Money::from_nanos(nanos);
            prop_assert_eq!(money.to_string().parse::<Money>(), Ok(money));
        }

        #[test]
        fn a_price_survives_formatting_and_parsing(picos in 0..=i64::MAX) {
            let price = Price::from_picos(picos);
            prop_assert_eq!(Price::parse_per_million(&price.to_per_million()), Ok(price));
            prop_assert_eq!(Price::parse_per_unit(&price.to_per_unit()), Ok(price));
        }
    }
}

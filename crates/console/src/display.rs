//! Formatting of amounts, counts and durations. The exact value is in the title attribute.

use canon::{Micros, Money, Price};
use maud::{Markup, html};

/// Dollars with two digits from one dollar up and more digits below, so that a small call does not
/// look free.
pub(crate) fn dollars(amount: Money) -> String {
    let nanos = amount.as_nanos();
    let sign = if nanos < 0 { "-" } else { "" };
    let size = nanos.unsigned_abs();
    if size == 0 || size >= 1_000_000_000 {
        let cents = size.saturating_add(5_000_000) / 10_000_000;
        return format!("{sign}${}.{:02}", count(cents / 100), cents % 100);
    }
    let digits: u32 = if size >= 10_000_000 { 4 } else { 6 };
    let unit = 10_u64.pow(9 - digits);
    let rounded = size.saturating_add(unit / 2) / unit;
    if rounded == 0 {
        return format!("{sign}<$0.000001");
    }
    let whole = 10_u64.pow(digits);
    let width = digits as usize;
    format!("{sign}${}.{:0width$}", rounded / whole, rounded % whole)
}

/// Renders an amount with all its digits in the title.
pub(crate) fn money(amount: Money) -> Markup {
    html! { span.num title={ "$" (amount) } { (dollars(amount)) } }
}

/// A price per million units: `$3.00`, `$0.0375`.
pub(crate) fn per_million(price: Price) -> String {
    with_cents(&price.to_per_million())
}

/// A price of one unit: `$0.04`.
pub(crate) fn per_unit(price: Price) -> String {
    with_cents(&price.to_per_unit())
}

/// A decimal with at least two digits after the point: `$3.00`.
pub(crate) fn with_cents(text: &str) -> String {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    format!("${whole}.{fraction:0<2}")
}

/// A count with thousands separators: `1,048,576`.
pub(crate) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A count in short: `200K`, `1M`, `1.5M`.
pub(crate) fn short_count(n: u64) -> String {
    let (unit, letter) = match n {
        0..1_000 => return n.to_string(),
        1_000..1_000_000 => (1_000, 'K'),
        1_000_000.. => (1_000_000, 'M'),
    };
    let tenths = n / (unit / 10);
    if tenths >= 100 || tenths.is_multiple_of(10) {
        format!("{}{letter}", tenths / 10)
    } else {
        format!("{}.{}{letter}", tenths / 10, tenths % 10)
    }
}

/// A short duration: `340 ms`, `2.4 s`, `3 min`.
pub(crate) fn duration(time: Micros) -> String {
    let ms = time.max(Micros::ZERO).as_millis();
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..120_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        _ => format!("{} min", ms / 60_000),
    }
}

/// A waiting time in words.
pub(crate) fn wait_time(seconds: u64) -> String {
    match seconds {
        0 | 1 => "a second".to_owned(),
        2..90 => format!("{seconds} seconds"),
        _ => format!("{} minutes", seconds.div_ceil(60)),
    }
}

/// A long duration: `40 s`, `12 min`, `5 h 20 min`, `3 days`.
pub(crate) fn uptime(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// A size: `512 B`, `1.5 MiB`.
pub(crate) fn bytes(size: u64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.into_iter().find(|(_, bits)| size >> bits > 0) {
        Some((unit, bits)) => {
            let tenths = (u128::from(size) * 10) >> bits;
            format!("{}.{} {unit}", tenths / 10, tenths % 10)
        }
        None => format!("{size} B"),
    }
}

/// `1 model`, `2 models`.
pub(crate) fn plural(n: usize, one: &str, more: &str) -> String {
    format!("{} {}", count(n as u64), if n == 1 { one } else { more })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_enough_digits() {
        for (nanos, shown) in [
            (0, "$0.00"),
            (12_500, "$0.000013"),
            (400, "<$0.000001"),
            (12_345_678, "$0.0123"),
            (999_999_999, "$1.0000"),
            (1_000_000_000, "$1.00"),
            (1_234_567_890_000, "$1,234.57"),
            (-2_500_000_000, "-$2.50"),
            (i64::MAX, "$9,223,372,036.85"),
        ] {
            assert_eq!(dollars(Money::from_nanos(nanos)), shown);
        }
        assert_eq!(per_million(Price::parse_per_million("3").unwrap()), "$3.00");
        assert_eq!(per_million(Price::parse_per_million("0.0375").unwrap()), "$0.0375");
        assert_eq!(per_unit(Price::parse_per_unit("0.5").unwrap()), "$0.50");
    }

    #[test]
    fn counts_are_readable() {
        assert_eq!(count(1_048_576), "1,048,576");
        assert_eq!(count(999), "999");
        let short = [999, 1_000, 4_096, 128_000, 200_000, 1_048_576, 1_500_000, 10_900_000];
        let shown = ["999", "1K", "4K", "128K", "200K", "1M", "1.5M", "10M"];
        assert_eq!(short.map(short_count), shown);
    }

    #[test]
    fn durations_and_sizes_are_short() {
        assert_eq!(
            [59, 600, 19_200, 999_999].map(uptime),
            ["59 s", "10 min", "5 h 20 min", "11 days"]
        );
        assert_eq!([9, 1_536, 5 << 30].map(bytes), ["9 B", "1.5 KiB", "5.0 GiB"]);
    }
}

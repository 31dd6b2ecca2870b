//! Differences to the public tables that somebody has looked at, each with its reason.

use anyhow::{Context as _, Result};
use serde::Deserialize;

use super::price_table::PriceDifference;

const LIST: &str = include_str!("known_differences.toml");

/// Differences with one reason.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KnownDifference {
    /// Name of the table.
    table: String,
    /// Lanes. A name that ends with `*` stands for all that begin so.
    pub(super) lanes: Vec<String>,
    /// Names of the prices; empty for all.
    #[serde(default)]
    prices: Vec<String>,
    /// Their price divided by ours, to three digits; absent if it is not the same everywhere.
    factor: Option<f64>,
    /// Reason why ours stays.
    pub(super) reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KnownDifferenceFile {
    known: Vec<KnownDifference>,
}

/// Reads the list.
pub(super) fn read() -> Result<Vec<KnownDifference>> {
    let file: KnownDifferenceFile =
        toml::from_str(LIST).context("known_differences.toml cannot be read")?;
    for known in &file.known {
        anyhow::ensure!(known.reason.ends_with('.'), "{:?} has no reason", known.lanes);
    }
    Ok(file.known)
}

impl KnownDifference {
    /// Returns true if it is about that table.
    pub(super) fn is_of(&self, table: &str) -> bool {
        self.table == table
    }

    /// Returns true if it explains a difference to a table.
    pub(super) fn explains(&self, table: &str, difference: &PriceDifference) -> bool {
        let PriceDifference { lane, price, ours, theirs, entry: _ } = difference;
        let is_lane = |known: &String| match known.strip_suffix('*') {
            Some(begin) => lane.starts_with(begin),
            None => known == lane,
        };
        let number = |text: &str| text.trim_matches(['(', ')']).parse::<f64>().ok();
        let has_factor = |factor: f64| {
            let (ours, theirs) = (number(ours), number(theirs));
            ours.zip(theirs).is_some_and(|(ours, theirs)| (theirs / ours - factor).abs() < 1e-3)
        };
        self.table == table
            && self.lanes.iter().any(is_lane)
            && (self.prices.is_empty() || self.prices.contains(price))
            && self.factor.is_none_or(has_factor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn difference(lane: &str, price: &str, ours: &str, theirs: &str) -> PriceDifference {
        PriceDifference {
            lane: lane.into(),
            price: price.into(),
            ours: ours.into(),
            theirs: theirs.into(),
            entry: "entry".into(),
        }
    }

    #[test]
    fn every_known_difference_has_a_reason_of_its_own() {
        let list = read().unwrap();
        let mut reasons: Vec<_> = list.iter().map(|one| (&one.table, &one.reason)).collect();
        reasons.sort();
        reasons.dedup();
        assert_eq!(reasons.len(), list.len());
    }

    #[test]
    fn a_known_difference_explains_no_other_price_and_no_other_factor() {
        let known = KnownDifference {
            table: "T".into(),
            lanes: vec!["a/b".into(), "c/*".into()],
            prices: vec!["input".into()],
            factor: Some(0.5),
            reason: "A discount.".into(),
        };
        assert!(known.explains("T", &difference("a/b", "input", "2", "1")));
        assert!(known.explains("T", &difference("c/d", "input", "(2)", "1")));
        for (table, lane, price, theirs) in [
            ("U", "a/b", "input", "1"),
            ("T", "a/bc", "input", "1"),
            ("T", "a/b", "output", "1"),
            ("T", "a/b", "input", "1.1"),
        ] {
            assert!(!known.explains(table, &difference(lane, price, "2", theirs)), "{lane}");
        }
    }
}

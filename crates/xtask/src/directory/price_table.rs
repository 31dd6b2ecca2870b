//! Comparison of the directory with a public price table.

use catalog::{DimensionPrice, ModelDirectory, ModelPrices};
use std::collections::BTreeMap;

/// Prices of one lane: dollars per million tokens or per unit, by the name of
/// [`DimensionPrice::name`].
pub(super) type NamedPrices = BTreeMap<String, f64>;

/// Relative difference that rounding explains.
const TOLERANCE: f64 = 1e-6;

/// A public price table.
pub(super) trait PublicTable {
    /// Returns the name of the table's entry for a provider's model, and its prices.
    fn find(&self, provider: &str, model: &str) -> Option<(String, NamedPrices)>;
}

/// A price that differs.
#[derive(Debug, PartialEq)]
pub(super) struct PriceDifference {
    pub(super) lane: String,
    pub(super) price: String,
    /// Our price. In brackets if it is that of the plain dimension, because ours is not written.
    pub(super) ours: String,
    pub(super) theirs: String,
    /// Name of the table's entry.
    pub(super) entry: String,
}

/// Returns the number of compared lanes and the prices that differ. A price that only the table has
/// differs if calls are charged otherwise; one that only we have does not.
pub(super) fn compare(
    directory: &ModelDirectory,
    table: &impl PublicTable,
) -> (usize, Vec<PriceDifference>) {
    let (mut compared, mut differences) = (0, Vec::new());
    for offer in directory.models().flat_map(|entry| &entry.offers) {
        let Some((entry, theirs)) = table.find(&offer.provider, &offer.model) else { continue };
        compared += 1;
        let ours = named_prices(&offer.prices);
        for (price, theirs) in theirs {
            let (own, is_plain) = match ours.get(&price) {
                Some(own) => (Some(own), false),
                None => (plain_dimension(&price).and_then(|plain| ours.get(plain)), true),
            };
            let Some(own) = own else { continue };
            if (own - theirs).abs() <= TOLERANCE * own.abs().max(theirs.abs()) {
                continue;
            }
            differences.push(PriceDifference {
                lane: format!("{}/{}", offer.provider, offer.model),
                ours: if is_plain { format!("({})", text(*own)) } else { text(*own) },
                theirs: text(theirs),
                price,
                entry: entry.clone(),
            });
        }
    }
    (compared, differences)
}

fn text(price: f64) -> String {
    let text = format!("{price:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn named_prices(prices: &ModelPrices) -> NamedPrices {
    let picos = |of: &DimensionPrice<'_>| if of.dimension.counts_tokens() { 1e6 } else { 1e12 };
    let dollars = |of: &DimensionPrice<'_>| {
        // Prices are far below 2^52 picodollars.
        #[expect(clippy::cast_precision_loss, reason = "for display only")]
        let price = of.price.as_picos() as f64;
        (of.name(), price / picos(of))
    };
    prices.dimensions().iter().map(dollars).collect()
}

/// Returns the dimension that is charged if another one has no price.
fn plain_dimension(price: &str) -> Option<&'static str> {
    match price {
        "cached_input" | "cache_write" | "cache_write_long" | "input_audio" | "input_image" => {
            Some("input")
        }
        "thinking" | "output_audio" | "output_image" => Some("output"),
        _ => None,
    }
}

/// Adds the conditions of a price to its dimension.
pub(super) fn conditional_name(dimension: &str, tier: Option<&str>, above: Option<u64>) -> String {
    let mut name = dimension.to_owned();
    if let Some(tier) = tier {
        name = format!("{name}, {tier}");
    }
    if let Some(above) = above {
        name = format!("{name}, above {above}");
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    struct OneEntry(&'static [(&'static str, f64)]);

    impl PublicTable for OneEntry {
        fn find(&self, provider: &str, model: &str) -> Option<(String, NamedPrices)> {
            let prices = self.0.iter().map(|(name, price)| ((*name).to_owned(), *price));
            ((provider, model) == ("demo", "demo-chat")).then(|| ("entry".into(), prices.collect()))
        }
    }

    #[test]
    fn equal_prices_are_silent_and_others_are_named() {
        let directory = ModelDirectory::embedded();
        let (compared, none) = compare(directory, &OneEntry(&[("input", 0.1), ("search", 0.001)]));
        assert_eq!((compared, none), (1, Vec::new()));
        // A thinking token is charged as output if it has no price of its own.
        let table = OneEntry(&[("output", 0.5), ("thinking", 0.6), ("second", 1.0)]);
        let (_, found) = compare(directory, &table);
        let rows =
            found.iter().map(|row| (row.price.as_str(), row.ours.as_str(), row.theirs.as_str()));
        let rows: Vec<_> = rows.collect();
        assert_eq!(rows, [("output", "0.4", "0.5"), ("thinking", "(0.4)", "0.6")]);
        assert_eq!((found[0].lane.as_str(), found[0].entry.as_str()), ("demo/demo-chat", "entry"));
    }
}

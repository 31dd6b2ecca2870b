//! Differences between two directories: models and prices.

use canon::Price;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;

use crate::{DimensionPrice, ModelDirectory, ModelEntry, ModelPrices};

/// Differences between two directories.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirectoryDiff {
    /// Ids of new models.
    pub added: Vec<String>,
    /// Ids of models that are gone.
    pub removed: Vec<String>,
    /// Ids of models with other facts, prices or offers.
    pub changed: Vec<String>,
    /// Changed prices of models that both have.
    pub prices: Vec<PriceChange>,
}

/// One changed price of a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriceChange {
    /// The lane, `provider/model`.
    pub lane: String,
    /// Name of the price, with its condition.
    pub name: String,
    /// Unit of the price.
    pub unit: &'static str,
    /// Price before, in dollars per unit.
    pub before: Option<String>,
    /// Price after.
    pub after: Option<String>,
    /// Direction of the change; `None` if only one of the directories has the price.
    pub direction: Option<Ordering>,
}

impl fmt::Display for PriceChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lane, name, unit, before, after, direction } = self;
        let word = match (direction, after) {
            (Some(Ordering::Less), _) => "up",
            (Some(Ordering::Greater), _) => "down",
            (Some(Ordering::Equal), _) => "same",
            (None, Some(_)) => "new",
            (None, None) => "gone",
        };
        write!(f, "{word:4}  {lane}  {name}: ")?;
        match (before, after) {
            (Some(before), Some(after)) => write!(f, "{before} -> {after}")?,
            (None, Some(after)) => write!(f, "added {after}")?,
            (Some(before), None) => write!(f, "was {before}")?,
            (None, None) => {}
        }
        write!(f, " USD per {unit}")
    }
}

impl DirectoryDiff {
    /// Returns true if there is no difference.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl ModelDirectory {
    /// Returns the differences of `newer` to this directory.
    pub fn diff(&self, newer: &Self) -> DirectoryDiff {
        let by_id = |directory: &Self| -> BTreeMap<String, ModelEntry> {
            directory.models().map(|entry| (entry.id.clone(), entry.clone())).collect()
        };
        let (old, new) = (by_id(self), by_id(newer));
        let mut diff = DirectoryDiff {
            added: new.keys().filter(|id| !old.contains_key(*id)).cloned().collect(),
            removed: old.keys().filter(|id| !new.contains_key(*id)).cloned().collect(),
            ..DirectoryDiff::default()
        };
        for (id, after) in &new {
            let Some(before) = old.get(id).filter(|before| *before != after) else { continue };
            diff.changed.push(id.clone());
            for offer in &after.offers {
                let known = before
                    .offers
                    .iter()
                    .find(|known| known.provider == offer.provider && known.model == offer.model);
                if let Some(known) = known {
                    let lane = format!("{}/{}", offer.provider, offer.model);
                    compare_prices(&lane, &known.prices, &offer.prices, &mut diff.prices);
                }
            }
        }
        diff
    }
}

fn compare_prices(
    lane: &str,
    before: &ModelPrices,
    after: &ModelPrices,
    changes: &mut Vec<PriceChange>,
) {
    let named = |prices: &ModelPrices| -> BTreeMap<String, (Price, bool)> {
        let dimensions = prices.dimensions();
        let price = |of: &DimensionPrice<'_>| (of.name(), (of.price, of.dimension.counts_tokens()));
        dimensions.iter().map(price).collect()
    };
    let (old, new) = (named(before), named(after));
    for name in old.keys().chain(new.keys().filter(|name| !old.contains_key(*name))) {
        let (was, is) = (old.get(name), new.get(name));
        if was == is {
            continue;
        }
        let tokens = was.or(is).is_some_and(|(_, tokens)| *tokens);
        let text = |(price, _): &(Price, bool)| match tokens {
            true => price.to_per_million(),
            false => price.to_per_unit(),
        };
        changes.push(PriceChange {
            lane: lane.to_owned(),
            name: name.clone(),
            unit: if tokens { "1M tokens" } else { "unit" },
            before: was.map(text),
            after: is.map(text),
            direction: was.zip(is).map(|((was, _), (is, _))| was.cmp(is)),
        });
    }
}

impl DimensionPrice<'_> {
    /// Returns the dimension with its conditions as one name, such as `input, batch, above 200000`.
    pub fn name(&self) -> String {
        let Self { dimension, price: _, tier, above_tokens, search_context, size, quality } = self;
        let mut name = dimension.as_str().to_owned();
        let words = [
            tier.map(|tier| tier.as_str().to_owned()),
            above_tokens.map(|above| format!("above {above}")),
            search_context.map(|amount| format!("{} search context", amount.as_str())),
            size.map(str::to_owned),
            quality.map(str::to_owned),
        ];
        for word in words.into_iter().flatten() {
            name.push_str(", ");
            name.push_str(&word);
        }
        name
    }
}

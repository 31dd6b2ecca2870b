//! Entries of the public model catalog.

use canon::{Price, PriceDimension, SearchContext};
use serde::Serialize;

use crate::{BilledTier, DimensionPrice, ImageSpec, Model, ModelCapabilities};

/// Currency and unit of the numbers in [`ListedPricing`].
const CURRENCY: &str = "USD per 1M tokens";

/// Unit of token prices in [`ListedPrice`].
const PER_MILLION_TOKENS: &str = "1M tokens";
const PER_MILLION_TOKEN_HOURS: &str = "1M tokens per hour";

/// One model in the public listing. The fields are a public contract: others may be added, and none
/// changed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelListing {
    /// Id that callers use.
    pub id: String,
    /// Name of the provider that owns the model.
    pub provider: String,
    /// Id of that provider in the directory and the configuration.
    pub provider_id: String,
    /// Other ids of the model.
    pub aliases: Vec<String>,
    /// Kind of the model: `chat`, `image` or `embedding`.
    pub model_type: &'static str,
    /// Capability tags.
    pub features: Vec<String>,
    /// Capabilities of the model. An absent value is unknown.
    pub capabilities: ModelCapabilities,
    /// Prices for display.
    pub pricing: ListedPricing,
    /// URL of the model's page.
    pub api_doc_url: String,
    /// Release date, if known.
    pub released: Option<String>,
    /// Announced retirement date, if known.
    pub retires: Option<String>,
}

/// Prices for display. Charges are computed from [`crate::Prices`], never from these.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ListedPricing {
    /// Currency and unit of `input` and `output`.
    pub currency: &'static str,
    /// Dollars per million prompt tokens.
    pub input: f64,
    /// Dollars per million answer tokens; those of images for an image model.
    pub output: f64,
    /// Dollars per request. For a model billed per image this is the price of one image, the
    /// default of a request.
    pub per_request: Option<f64>,
    /// Dollars per second.
    pub per_second: Option<f64>,
    /// Every price, with its unit and condition.
    pub details: Vec<ListedPrice>,
}

/// One price in [`ListedPricing`]. An absent condition means any.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ListedPrice {
    /// The billed quantity, in the words of receipts.
    pub dimension: &'static str,
    /// Dollars per unit.
    pub price: f64,
    /// Unit of the price: `1M tokens`, or the dimension itself.
    pub unit: &'static str,
    /// Service tier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<&'static str>,
    /// Prompt length in tokens above which the price applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub above_tokens: Option<u64>,
    /// Amount of search results.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub search_context: Option<&'static str>,
    /// Size of the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<String>,
    /// Quality of the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quality: Option<String>,
}

impl ListedPrice {
    fn new(of: &DimensionPrice<'_>) -> Self {
        let DimensionPrice { dimension, price, tier, above_tokens, search_context, size, quality } =
            of;
        let (picos, unit) = match dimension.counts_tokens() {
            true if *dimension == PriceDimension::CacheStorage => (1e6, PER_MILLION_TOKEN_HOURS),
            true => (1e6, PER_MILLION_TOKENS),
            false => (1e12, dimension.as_str()),
        };
        Self {
            dimension: dimension.as_str(),
            price: dollars(*price, picos),
            unit,
            tier: tier.map(BilledTier::as_str),
            above_tokens: *above_tokens,
            search_context: search_context.map(SearchContext::as_str),
            size: size.map(str::to_owned),
            quality: quality.map(str::to_owned),
        }
    }
}

impl ModelListing {
    /// Creates the entry of a model for a gateway at that public URL.
    pub fn new(model: &Model, public_url: &str) -> Self {
        let prices = &model.prices;
        let image =
            Some(prices.image_rate(ImageSpec::default()).price).filter(|p| *p > Price::FREE);
        Self {
            id: model.id.clone(),
            provider: model.provider_name.clone(),
            provider_id: model.provider.clone(),
            aliases: model.aliases.clone(),
            model_type: model.kind.as_str(),
            features: model.features.clone(),
            capabilities: model.capabilities.clone(),
            pricing: ListedPricing {
                currency: CURRENCY,
                input: dollars(prices.input, 1e6),
                output: dollars(model.output_price(), 1e6),
                per_request: prices.per_request.or(image).map(|p| dollars(p, 1e12)),
                per_second: prices.per_second.map(|p| dollars(p, 1e12)),
                details: prices.dimensions().iter().map(ListedPrice::new).collect(),
            },
            api_doc_url: format!(
                "{}/models/{}",
                public_url.trim_end_matches('/'),
                escape_path(&model.id)
            ),
            released: model.released.clone(),
            retires: model.retires.clone(),
        }
    }
}

/// Converts picodollars to the nearest `f64`, so that 0.1 dollars print as 0.1.
#[allow(clippy::cast_precision_loss, reason = "display only; nothing is charged by it")]
fn dollars(price: Price, picos: f64) -> f64 {
    price.as_picos() as f64 / picos
}

/// Escapes an id for a path. Slashes and colons stay readable, because model pages take the rest of
/// the path as the id. Characters that could end or change the path are escaped (RFC 3986, section
/// 3.3).
fn escape_path(id: &str) -> String {
    let mut path = String::with_capacity(id.len());
    for byte in id.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => path.push(char::from(byte)),
            b'-' | b'.' | b'_' | b'~' | b'/' | b':' | b'@' => path.push(char::from(byte)),
            _ => path.push_str(&format!("%{byte:02X}")),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slashes_and_colons_of_an_id_stay_readable_in_its_url() {
        assert_eq!(escape_path("meta/llama-4:free@1"), "meta/llama-4:free@1");
        assert_eq!(escape_path("a b?c#d%é"), "a%20b%3Fc%23d%25%C3%A9");
    }
}

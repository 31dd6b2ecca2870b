//! Entries of the public model catalog.

use canon::Price;
use serde::Serialize;

use crate::{ImageSpec, Model};

/// Currency and unit of the numbers in [`ListedPricing`].
const CURRENCY: &str = "USD per 1M tokens";

/// One model in the public listing. The fields are a public contract and must not change.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelListing {
    /// Id that callers use.
    pub id: String,
    /// Provider that owns the model.
    pub provider: String,
    /// Kind of the model: `chat`, `image` or `embedding`.
    pub model_type: &'static str,
    /// Capability tags.
    pub features: Vec<String>,
    /// Prices for display.
    pub pricing: ListedPricing,
    /// URL of the model's page.
    pub api_doc_url: String,
}

/// Prices for display. Charges are computed from [`crate::Prices`], never from these.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ListedPricing {
    /// Currency and unit of `input` and `output`.
    pub currency: &'static str,
    /// Dollars per million prompt tokens.
    pub input: f64,
    /// Dollars per million answer tokens.
    pub output: f64,
    /// Dollars per request. For a model billed per image this is the price of one image, the
    /// default of a request.
    pub per_request: Option<f64>,
    /// Dollars per second.
    pub per_second: Option<f64>,
}

impl ModelListing {
    /// Creates the entry of a model for a gateway at that public URL.
    pub fn new(model: &Model, public_url: &str) -> Self {
        let prices = &model.prices;
        let image =
            Some(prices.image_rate(ImageSpec::default()).price).filter(|p| *p > Price::FREE);
        Self {
            id: model.id.clone(),
            provider: model.provider.clone(),
            model_type: model.kind.as_str(),
            features: model.features.clone(),
            pricing: ListedPricing {
                currency: CURRENCY,
                input: dollars(prices.input, 1e6),
                output: dollars(prices.output, 1e6),
                per_request: prices.per_request.or(image).map(|p| dollars(p, 1e12)),
                per_second: prices.per_second.map(|p| dollars(p, 1e12)),
            },
            api_doc_url: format!(
                "{}/models/{}",
                public_url.trim_end_matches('/'),
                escape_path(&model.id)
            ),
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

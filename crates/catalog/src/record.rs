//! A model as the public catalog lists it.

use canon::Price;
use serde::Serialize;

use crate::{Model, Picture};

/// What the numbers in [`Pricing`] count.
const CURRENCY: &str = "USD per 1M tokens";

/// One model in the public listing. The fields are the public contract: these and no others.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Record {
    /// The id callers ask for.
    pub id: String,
    /// The provider the model belongs to.
    pub provider: String,
    /// What it makes: `chat`, `image` or `embedding`.
    pub model_type: &'static str,
    /// Capability tags.
    pub features: Vec<String>,
    /// What it costs.
    pub pricing: Pricing,
    /// The page that describes it.
    pub api_doc_url: String,
}

/// Prices for the eye. Charges are computed from [`crate::Prices`], never from these.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pricing {
    /// Currency and unit of `input` and `output`.
    pub currency: &'static str,
    /// Dollars per million prompt tokens.
    pub input: f64,
    /// Dollars per million answer tokens.
    pub output: f64,
    /// Dollars per request; of one image where the model is billed by the image, since a request
    /// makes one unless it asks for more.
    pub per_request: Option<f64>,
    /// Dollars per second.
    pub per_second: Option<f64>,
}

impl Record {
    /// The listing of a model by a gateway at that public address.
    pub fn new(model: &Model, public_url: &str) -> Self {
        let prices = &model.prices;
        let image = Some(prices.picture(Picture::default()).price).filter(|p| *p > Price::FREE);
        Self {
            id: model.id.clone(),
            provider: model.provider.clone(),
            model_type: model.kind.word(),
            features: model.features.clone(),
            pricing: Pricing {
                currency: CURRENCY,
                input: dollars(prices.input, 1e6),
                output: dollars(prices.output, 1e6),
                per_request: prices.per_request.or(image).map(|p| dollars(p, 1e12)),
                per_second: prices.per_second.map(|p| dollars(p, 1e12)),
            },
            api_doc_url: format!("{}/models/{}", public_url.trim_end_matches('/'), path(&model.id)),
        }
    }
}

/// Picodollars divided by what one shown dollar holds of them; the nearest `f64`, so that 0.1
/// dollars print as 0.1.
#[allow(clippy::cast_precision_loss, reason = "display only; nothing is charged by it")]
fn dollars(price: Price, picos: f64) -> f64 {
    price.as_picos() as f64 / picos
}

/// An id as part of a path. Slashes and colons stay readable, as model pages take the rest of the
/// path as the id; everything that could end or change the path is escaped.
fn path(id: &str) -> String {
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
    fn slashes_and_colons_of_an_id_stay_readable_in_its_address() {
        assert_eq!(path("meta/llama-4:free@1"), "meta/llama-4:free@1");
        assert_eq!(path("a b?c#d%é"), "a%20b%3Fc%23d%25%C3%A9");
    }
}

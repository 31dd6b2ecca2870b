//! Written prices: decimal strings in data files and configuration.
//!
//! Token prices are dollars per million tokens, `per_…` prices are dollars per unit. Unknown keys
//! are refused, because a misspelled price would silently be free.

use std::fmt;

use canon::{AmountError, Price, SharedText};
use serde::Deserialize;

use crate::{BilledTier, ImagePrice, LongPromptPrices, ModelPrices, TierPrices, TokenRates};

/// Written prices of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PriceList {
    /// Dollars per million prompt tokens.
    pub input: Option<String>,
    /// Dollars per million answer tokens.
    pub output: Option<String>,
    /// Dollars per million prompt tokens read from the cache.
    pub cached_input: Option<String>,
    /// Dollars per million prompt tokens written to the cache for the short term.
    pub cache_write: Option<String>,
    /// Dollars per million prompt tokens written to the cache for the long term.
    pub cache_write_long: Option<String>,
    /// Dollars per million thinking tokens.
    pub thinking: Option<String>,
    /// Dollars per million prompt tokens that were audio.
    pub input_audio: Option<String>,
    /// Dollars per million answer tokens that were audio.
    pub output_audio: Option<String>,
    /// Dollars per million prompt tokens that were images.
    pub input_image: Option<String>,
    /// Dollars per million answer tokens that were images.
    pub output_image: Option<String>,
    /// Dollars per call.
    pub per_request: Option<String>,
    /// Dollars per call with few search results.
    pub per_request_low: Option<String>,
    /// Dollars per call with some search results.
    pub per_request_medium: Option<String>,
    /// Dollars per second.
    pub per_second: Option<String>,
    /// Dollars per image.
    pub per_image: Option<String>,
    /// Dollars per search.
    pub per_search: Option<String>,
    /// Dollars per search in stored files.
    pub per_file_search: Option<String>,
    /// Dollars per run of code, or per container for it.
    pub per_code_run: Option<String>,
    /// Dollars per million tokens of images that a tool made.
    pub tool_image: Option<String>,
    /// Dollars per million tokens and hour in a cache that a caller asked for.
    pub cache_storage: Option<String>,
    /// Prices of images by size and quality.
    pub pictures: Vec<ImagePriceRow>,
    /// Prices of long prompts.
    pub long: Vec<LongPromptList>,
    /// Prices of the batch tier.
    pub batch: Option<TierPriceList>,
    /// Prices of the flex tier: cheaper and slower.
    pub flex: Option<TierPriceList>,
    /// Prices of the priority tier: faster and more expensive.
    pub priority: Option<TierPriceList>,
    /// Prices of the fastest tier.
    pub fast: Option<TierPriceList>,
    /// Prices of calls that are served in the United States only.
    pub us: Option<TierPriceList>,
    /// Prices of calls of the fastest tier that are served in the United States only.
    pub fast_us: Option<TierPriceList>,
}

/// Written token prices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateList {
    /// Dollars per million prompt tokens.
    pub input: String,
    /// Dollars per million answer tokens.
    pub output: String,
    /// Dollars per million prompt tokens read from the cache.
    #[serde(default)]
    pub cached_input: Option<String>,
    /// Dollars per million prompt tokens written to the cache for the short term.
    #[serde(default)]
    pub cache_write: Option<String>,
    /// Dollars per million prompt tokens written to the cache for the long term.
    #[serde(default)]
    pub cache_write_long: Option<String>,
}

/// Written price of an image. An absent size or quality matches any.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ImagePriceRow {
    /// Size, in the words of callers.
    pub size: Option<String>,
    /// Quality, in the words of callers.
    pub quality: Option<String>,
    /// Dollars per image.
    pub price: Option<String>,
    /// Maximum number of output tokens of the image, if tokens are billed.
    pub tokens: Option<u64>,
}

/// Written prices of long prompts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LongPromptList {
    /// Prompt length in tokens above which the prices apply.
    pub above: u64,
    /// The prices.
    pub rates: RateList,
}

/// Written prices of a service tier.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TierPriceList {
    /// Its prices.
    pub rates: RateList,
    /// Its prices for long prompts.
    #[serde(default)]
    pub long: Vec<LongPromptList>,
}

/// Error of reading a written price.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriceListError {
    /// Key of the price.
    pub key: &'static str,
    /// The price as written.
    pub text: String,
    /// Description of the error.
    pub why: AmountError,
}

impl fmt::Display for PriceListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "price `{}` = \"{}\": {}", self.key, self.text, self.why)
    }
}

impl std::error::Error for PriceListError {}

impl PriceList {
    /// Returns true if no price is written.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Converts the list to integer prices, with a version computed from them. An absent plain
    /// price is free: a model billed per image has no token prices.
    pub fn prices(&self) -> Result<ModelPrices, PriceListError> {
        let Self {
            input,
            output,
            cached_input,
            cache_write,
            cache_write_long,
            thinking,
            input_audio,
            output_audio,
            input_image,
            output_image,
            per_request,
            per_request_low,
            per_request_medium,
            per_second,
            per_image,
            per_search,
            per_file_search,
            per_code_run,
            tool_image,
            cache_storage,
            pictures,
            long,
            batch,
            flex,
            priority,
            fast,
            us,
            fast_us,
        } = self;
        let mut services = Vec::new();
        for (service, list) in [
            (BilledTier::Batch, batch),
            (BilledTier::Flex, flex),
            (BilledTier::Priority, priority),
            (BilledTier::Fast, fast),
            (BilledTier::Us, us),
            (BilledTier::FastUs, fast_us),
        ] {
            if let Some(TierPriceList { rates, long }) = list {
                let (rates, long) = (rates.read()?, read_long(long)?);
                services.push(TierPrices { tier: service, rates, long_prompts: long });
            }
        }
        let prices = ModelPrices {
            version: SharedText::default(),
            input: parse_per_million("input", input)?.unwrap_or(Price::FREE),
            output: parse_per_million("output", output)?.unwrap_or(Price::FREE),
            cached_input: parse_per_million("cached_input", cached_input)?,
            cache_write: parse_per_million("cache_write", cache_write)?,
            cache_write_long: parse_per_million("cache_write_long", cache_write_long)?,
            thinking: parse_per_million("thinking", thinking)?,
            input_audio: parse_per_million("input_audio", input_audio)?,
            output_audio: parse_per_million("output_audio", output_audio)?,
            input_image: parse_per_million("input_image", input_image)?,
            output_image: parse_per_million("output_image", output_image)?,
            per_request: parse_per_unit("per_request", per_request)?,
            per_request_low: parse_per_unit("per_request_low", per_request_low)?,
            per_request_medium: parse_per_unit("per_request_medium", per_request_medium)?,
            per_second: parse_per_unit("per_second", per_second)?,
            per_image: parse_per_unit("per_image", per_image)?,
            per_search: parse_per_unit("per_search", per_search)?,
            per_file_search: parse_per_unit("per_file_search", per_file_search)?,
            per_code_run: parse_per_unit("per_code_run", per_code_run)?,
            tool_image: parse_per_million("tool_image", tool_image)?,
            cache_storage: parse_per_million("cache_storage", cache_storage)?,
            images: pictures.iter().map(ImagePriceRow::read).collect::<Result<_, _>>()?,
            long_prompts: read_long(long)?,
            tiers: services,
        };
        Ok(prices.versioned())
    }
}

impl ImagePriceRow {
    fn read(&self) -> Result<ImagePrice, PriceListError> {
        let Self { size, quality, price, tokens } = self;
        if price.is_none() && tokens.is_none() {
            let (key, text) = ("pictures.price", String::new());
            return Err(PriceListError { key, text, why: AmountError::NotADecimal });
        }
        Ok(ImagePrice {
            size: size.clone(),
            quality: quality.clone(),
            price: parse_per_unit("pictures.price", price)?.unwrap_or(Price::FREE),
            tokens: tokens.unwrap_or_default(),
        })
    }
}

impl RateList {
    fn read(&self) -> Result<TokenRates, PriceListError> {
        let Self { input, output, cached_input, cache_write, cache_write_long } = self;
        Ok(TokenRates {
            input: read("input", input, Price::parse_per_million)?,
            output: read("output", output, Price::parse_per_million)?,
            cached_input: parse_per_million("cached_input", cached_input)?,
            cache_write: parse_per_million("cache_write", cache_write)?,
            cache_write_long: parse_per_million("cache_write_long", cache_write_long)?,
        })
    }
}

fn read_long(list: &[LongPromptList]) -> Result<Vec<LongPromptPrices>, PriceListError> {
    let mut long = list
        .iter()
        .map(|tier| Ok(LongPromptPrices { above_tokens: tier.above, rates: tier.rates.read()? }))
        .collect::<Result<Vec<_>, PriceListError>>()?;
    long.sort_by_key(|tier| tier.above_tokens);
    Ok(long)
}

fn parse_per_million(
    key: &'static str,
    text: &Option<String>,
) -> Result<Option<Price>, PriceListError> {
    text.as_deref().map(|text| read(key, text, Price::parse_per_million)).transpose()
}

fn parse_per_unit(
    key: &'static str,
    text: &Option<String>,
) -> Result<Option<Price>, PriceListError> {
    text.as_deref().map(|text| read(key, text, Price::parse_per_unit)).transpose()
}

fn read(
    key: &'static str,
    text: &str,
    reader: fn(&str) -> Result<Price, AmountError>,
) -> Result<Price, PriceListError> {
    reader(text).map_err(|why| PriceListError { key, text: text.to_owned(), why })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_list_is_parsed() {
        let list: PriceList = toml::from_str(
            r#"
            input = "3.00"
            output = "15.00"
            cached_input = "0.30"
            per_search = "0.01"
            long = [{ above = 200000, rates = { input = "6", output = "22.5" } }]
            batch = { rates = { input = "1.5", output = "7.5" } }
            "#,
        )
        .unwrap();
        let prices = list.prices().unwrap();
        assert_eq!(prices.input, Price::from_picos(3_000_000));
        assert_eq!(prices.cached_input, Some(Price::from_picos(300_000)));
        assert_eq!(prices.per_search, Some(Price::from_picos(10_000_000_000)));
        assert_eq!(prices.long_prompts[0].rates.output, Price::from_picos(22_500_000));
        let services: Vec<_> = prices.tiers.iter().map(|tier| tier.tier).collect();
        assert_eq!(services, [BilledTier::Batch]);
        assert_eq!(prices.tiers[0].rates.input, Price::from_picos(1_500_000));
        assert!(!list.is_empty() && PriceList::default().is_empty());
    }

    #[test]
    fn a_misspelled_or_negative_price_is_refused() {
        assert!(toml::from_str::<PriceList>(r#"inptu = "3.00""#).is_err());
        let list = PriceList { output: Some("-1".into()), ..PriceList::default() };
        let fault = list.prices().unwrap_err();
        assert_eq!((fault.key, fault.why), ("output", AmountError::Negative));
        assert_eq!(fault.to_string(), "price `output` = \"-1\": below zero");
    }

    #[test]
    fn images_have_a_price_or_a_size_in_tokens() {
        let list: PriceList = toml::from_str(
            r#"pictures = [{ quality = "low", tokens = 272 }, { size = "2K", price = "0.04" }]"#,
        )
        .unwrap();
        let prices = list.prices().unwrap();
        assert_eq!(prices.images[0].tokens, 272);
        assert_eq!(prices.images[1].price, Price::from_picos(40_000_000_000));
        let empty: PriceList = toml::from_str(r#"pictures = [{ size = "2K" }]"#).unwrap();
        assert_eq!(empty.prices().unwrap_err().key, "pictures.price");
        assert!(toml::from_str::<PriceList>(r#"pictures = [{ sise = "2K" }]"#).is_err());
    }

    #[test]
    fn long_prompt_prices_are_sorted() {
        let rates = RateList { input: "1".into(), output: "1".into(), ..RateList::default() };
        let tier = |above| LongPromptList { above, rates: rates.clone() };
        let list = PriceList { long: vec![tier(500), tier(100)], ..PriceList::default() };
        let above: Vec<_> =
            list.prices().unwrap().long_prompts.iter().map(|t| t.above_tokens).collect();
        assert_eq!(above, [100, 500]);
    }
}

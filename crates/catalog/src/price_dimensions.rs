//! All prices of a model as one list, for the public catalog and the pages.

use canon::{Price, PriceDimension, SearchContext};

use crate::prices::TierTerms;
use crate::{BilledTier, LongPromptPrices, ModelPrices, TokenRates};

/// One price of a model, with the condition under which it applies. A price without a condition
/// applies to every other call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DimensionPrice<'a> {
    /// The billed quantity.
    pub dimension: PriceDimension,
    /// Price of one unit of it.
    pub price: Price,
    /// Service tier.
    pub tier: Option<BilledTier>,
    /// Prompt length in tokens above which the price applies.
    pub above_tokens: Option<u64>,
    /// Amount of search results.
    pub search_context: Option<SearchContext>,
    /// Size of the image.
    pub size: Option<&'a str>,
    /// Quality of the image.
    pub quality: Option<&'a str>,
}

impl DimensionPrice<'_> {
    const fn plain(dimension: PriceDimension, price: Price) -> Self {
        Self {
            dimension,
            price,
            tier: None,
            above_tokens: None,
            search_context: None,
            size: None,
            quality: None,
        }
    }

    /// Returns true if the price replaces a plain one in another service tier or for long prompts.
    pub const fn is_replacement(&self) -> bool {
        self.tier.is_some() || self.above_tokens.is_some()
    }
}

impl ModelPrices {
    /// Returns every price: the plain ones first, then those of long prompts and service tiers.
    /// Images that are billed by their tokens only have no price of their own.
    pub fn dimensions(&self) -> Vec<DimensionPrice<'_>> {
        // Named one by one, so that a new price cannot be forgotten here.
        let Self {
            version: _,
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
            images,
            per_search,
            per_file_search,
            per_code_run,
            tool_image,
            cache_storage,
            long_prompts,
            tiers,
        } = self;
        let mut list = Vec::new();
        let rates = TokenRates {
            input: *input,
            output: *output,
            cached_input: *cached_input,
            cache_write: *cache_write,
            cache_write_long: *cache_write_long,
        };
        push_rates(&mut list, &rates, None, None);
        let mut push = |dimension, price: &Option<Price>, search_context| {
            list.extend(price.map(|price| DimensionPrice {
                search_context,
                ..DimensionPrice::plain(dimension, price)
            }));
        };
        push(PriceDimension::Thinking, thinking, None);
        push(PriceDimension::InputAudio, input_audio, None);
        push(PriceDimension::OutputAudio, output_audio, None);
        push(PriceDimension::InputImage, input_image, None);
        push(PriceDimension::OutputImage, output_image, None);
        push(PriceDimension::ToolImage, tool_image, None);
        push(PriceDimension::Request, per_request, None);
        push(PriceDimension::Request, per_request_low, Some(SearchContext::Low));
        push(PriceDimension::Request, per_request_medium, Some(SearchContext::Medium));
        push(PriceDimension::Second, per_second, None);
        push(PriceDimension::Image, per_image, None);
        push(PriceDimension::Search, per_search, None);
        push(PriceDimension::FileSearch, per_file_search, None);
        push(PriceDimension::CodeRun, per_code_run, None);
        push(PriceDimension::CacheStorage, cache_storage, None);
        for image in images.iter().filter(|image| image.price > Price::FREE) {
            list.push(DimensionPrice {
                size: image.size.as_deref(),
                quality: image.quality.as_deref(),
                ..DimensionPrice::plain(PriceDimension::Image, image.price)
            });
        }
        self.push_long_prompts(&mut list, &TierTerms { rates, long: long_prompts }, None);
        for tier in tiers {
            let terms = TierTerms::of(tier);
            push_rates(&mut list, &terms.rates, Some(tier.tier), None);
            self.push_modalities(&mut list, &terms, None, Some(tier.tier));
            self.push_long_prompts(&mut list, &terms, Some(tier.tier));
        }
        list
    }

    fn push_long_prompts(
        &self,
        list: &mut Vec<DimensionPrice<'_>>,
        terms: &TierTerms<'_>,
        tier: Option<BilledTier>,
    ) {
        for long in terms.long {
            push_rates(list, &long.rates, tier, Some(long.above_tokens));
            self.push_modalities(list, terms, Some(long), tier);
        }
    }

    /// Adds the prices of thinking and media that differ from their plain ones, as calls are charged.
    fn push_modalities(
        &self,
        list: &mut Vec<DimensionPrice<'_>>,
        terms: &TierTerms<'_>,
        long: Option<&LongPromptPrices>,
        tier: Option<BilledTier>,
    ) {
        let filled = self.fill_rates(terms, long);
        for (dimension, plain, price) in [
            (PriceDimension::Thinking, self.thinking, filled.thinking),
            (PriceDimension::InputAudio, self.input_audio, filled.input_audio),
            (PriceDimension::OutputAudio, self.output_audio, filled.output_audio),
            (PriceDimension::InputImage, self.input_image, filled.input_image),
            (PriceDimension::OutputImage, self.output_image, filled.output_image),
        ] {
            if plain.is_some_and(|plain| plain != price) {
                let above_tokens = long.map(|long| long.above_tokens);
                let plain = DimensionPrice::plain(dimension, price);
                list.push(DimensionPrice { tier, above_tokens, ..plain });
            }
        }
    }
}

fn push_rates(
    list: &mut Vec<DimensionPrice<'_>>,
    rates: &TokenRates,
    tier: Option<BilledTier>,
    above_tokens: Option<u64>,
) {
    let TokenRates { input, output, cached_input, cache_write, cache_write_long } = *rates;
    for (dimension, price) in [
        (PriceDimension::Input, Some(input)),
        (PriceDimension::Output, Some(output)),
        (PriceDimension::CachedInput, cached_input),
        (PriceDimension::CacheWrite, cache_write),
        (PriceDimension::CacheWriteLong, cache_write_long),
    ] {
        list.extend(price.map(|price| DimensionPrice {
            tier,
            above_tokens,
            ..DimensionPrice::plain(dimension, price)
        }));
    }
}

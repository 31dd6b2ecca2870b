//! Cost of a call, and its upper bound.
//!
//! Prices are picodollars per unit, products are exact in `i128`, and one call is rounded up once.
//! Three rules protect the spending cap. A dimension without a price of its own is charged as the
//! plain dimension it belongs to (cached as input, thinking as output), never as zero. The billed
//! service tier is the one that the provider reports. [`ModelPrices::max_cost`] of the same or larger
//! counts is never below [`ModelPrices::cost`].

use canon::{
    Charge, Money, Price, PriceDimension, SearchContext, ServiceTier, SharedText, ToolUses, Usage,
};

use crate::{ImagePrice, ImageSpec};

/// Number of charges that few calls exceed.
const USUAL_CHARGES: usize = 4;

/// All prices of one model at one provider.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelPrices {
    /// Version of these figures. It is pinned when a call is admitted and printed on its receipt.
    pub version: SharedText,
    /// Price per prompt token.
    pub input: Price,
    /// Price per answer token.
    pub output: Price,
    /// Per prompt token read from the cache.
    pub cached_input: Option<Price>,
    /// Per prompt token written to the cache for the short term.
    pub cache_write: Option<Price>,
    /// Per prompt token written to the cache for the long term.
    pub cache_write_long: Option<Price>,
    /// Price per thinking token, if billed separately.
    pub thinking: Option<Price>,
    /// Per prompt token that was audio.
    pub input_audio: Option<Price>,
    /// Per answer token that was audio.
    pub output_audio: Option<Price>,
    /// Per prompt token that was an image.
    pub input_image: Option<Price>,
    /// Per answer token that was an image.
    pub output_image: Option<Price>,
    /// Price per call.
    pub per_request: Option<Price>,
    /// Price per call with few search results.
    pub per_request_low: Option<Price>,
    /// Price per call with some search results.
    pub per_request_medium: Option<Price>,
    /// Price per second.
    pub per_second: Option<Price>,
    /// Price per image, if images are not billed in tokens.
    pub per_image: Option<Price>,
    /// Prices of images by size and quality.
    pub images: Vec<ImagePrice>,
    /// Per search the provider runs.
    pub per_search: Option<Price>,
    /// Per search in stored files.
    pub per_file_search: Option<Price>,
    /// Per run of code, or per container for it.
    pub per_code_run: Option<Price>,
    /// Per token of images that a tool made.
    pub tool_image: Option<Price>,
    /// Per token and hour in a cache that a caller asked for. Caches are made only where it is known.
    pub cache_storage: Option<Price>,
    /// Prices of long prompts. A tier replaces the token prices above.
    pub long_prompts: Vec<LongPromptPrices>,
    /// Prices of other service tiers.
    pub tiers: Vec<TierPrices>,
}

/// Token prices that replace the plain ones. An absent price follows the replacing plain price.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenRates {
    /// Price per prompt token.
    pub input: Price,
    /// Price per answer token.
    pub output: Price,
    /// Per prompt token read from the cache.
    pub cached_input: Option<Price>,
    /// Per prompt token written to the cache for the short term.
    pub cache_write: Option<Price>,
    /// Per prompt token written to the cache for the long term.
    pub cache_write_long: Option<Price>,
}

/// Prices of a whole call whose prompt is longer than `above_tokens` tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LongPromptPrices {
    /// Prompt length in tokens above which the prices apply.
    pub above_tokens: u64,
    /// The prices.
    pub rates: TokenRates,
}

/// A service tier with prices of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BilledTier {
    /// Answered within a day.
    Batch,
    /// Cheaper and slower.
    Flex,
    /// Faster and more expensive.
    Priority,
    /// Fastest.
    Fast,
    /// Served in the United States only, which Anthropic's models bill by themselves.
    Us,
    /// Fastest, and served in the United States only.
    FastUs,
}

impl BilledTier {
    /// All service tiers, cheapest first.
    pub const ALL: [Self; 6] =
        [Self::Batch, Self::Flex, Self::Us, Self::Priority, Self::Fast, Self::FastUs];

    /// Returns the word used in data files and configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Batch => "batch",
            Self::Flex => "flex",
            Self::Priority => "priority",
            Self::Fast => "fast",
            Self::Us => "us",
            Self::FastUs => "fast_us",
        }
    }

    /// Returns the tier whose prices are billed; `None` for the plain prices.
    pub fn of(tier: &ServiceTier) -> Option<Self> {
        match tier {
            ServiceTier::Flex => Some(Self::Flex),
            ServiceTier::Priority => Some(Self::Priority),
            ServiceTier::Fast => Some(Self::Fast),
            ServiceTier::Other(_, word) => {
                Self::ALL.into_iter().find(|service| service.as_str() == word)
            }
            ServiceTier::Auto | ServiceTier::Standard => None,
        }
    }
}

/// Prices of one service tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierPrices {
    /// The tier.
    pub tier: BilledTier,
    /// Its prices.
    pub rates: TokenRates,
    /// Its prices for long prompts.
    pub long_prompts: Vec<LongPromptPrices>,
}

/// Billed units of a call other than tokens, and its service tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BilledUnits<'a> {
    /// Web searches by the provider.
    pub searches: u64,
    /// Images made.
    pub images: u64,
    /// Seconds, rounded up.
    pub seconds: u64,
    /// Tokens kept in a cache, times hours.
    pub cache_storage: u64,
    /// Uses of other tools of the provider.
    pub tools: ToolUses,
    /// Amount of search results.
    pub search_context: SearchContext,
    /// Size and quality of the images.
    pub image: ImageSpec<'a>,
    /// Service tier: the requested one for a bound, the granted one for a cost.
    pub tier: Option<&'a ServiceTier>,
}

/// Token prices of one call, with every absent price filled in.
#[derive(Clone, Copy)]
pub(crate) struct FilledRates {
    pub(crate) input: Price,
    pub(crate) cached_input: Price,
    pub(crate) cache_write: Price,
    pub(crate) cache_write_long: Price,
    pub(crate) input_audio: Price,
    pub(crate) input_image: Price,
    pub(crate) output: Price,
    pub(crate) thinking: Price,
    pub(crate) output_audio: Price,
    pub(crate) output_image: Price,
}

impl FilledRates {
    fn max_input(&self) -> Price {
        self.input
            .max(self.cached_input)
            .max(self.cache_write)
            .max(self.cache_write_long)
            .max(self.input_audio)
            .max(self.input_image)
    }

    fn max_output(&self) -> Price {
        self.output.max(self.thinking).max(self.output_audio).max(self.output_image)
    }
}

impl ModelPrices {
    /// Creates prices with only plain input and output prices.
    pub fn plain(input: Price, output: Price) -> Self {
        Self { input, output, ..Self::default() }.versioned()
    }

    /// Returns the cost of the usage at the plain prices.
    pub fn cost(&self, usage: &Usage) -> Money {
        self.cost_with(usage, &BilledUnits::default())
    }

    /// Returns the cost of the usage and of the other billed units. A unit that both report is
    /// counted once.
    pub fn cost_with(&self, usage: &Usage, units: &BilledUnits<'_>) -> Money {
        let mut picos = 0_i128;
        self.visit_charges(usage, units, |charge| picos = picos.saturating_add(charge.picos()));
        Money::from_picos(picos)
    }

    /// Returns the parts of that cost. Their sum, rounded up once, is the cost.
    pub fn charges(&self, usage: &Usage, units: &BilledUnits<'_>) -> Vec<Charge> {
        let mut charges = Vec::with_capacity(USUAL_CHARGES);
        self.visit_charges(usage, units, |charge| charges.push(charge));
        charges
    }

    /// Estimates the cost of a prompt, and that of each further second in which this many tokens of
    /// output are made, at the plain prices. In 64 bits, because every call needs it.
    pub fn running_cost(&self, input_tokens: u64, output_per_second: u64) -> (Money, Money) {
        let cost = |tokens: u64, price: Price, fee: Option<Price>| {
            let tokens = i64::try_from(tokens).unwrap_or(i64::MAX);
            let fee = fee.map_or(0, Price::as_picos);
            let picos = price.as_picos().saturating_mul(tokens).saturating_add(fee);
            Money::from_nanos(picos.saturating_add(999) / 1_000)
        };
        let prompt = cost(input_tokens, self.input, self.per_request);
        (prompt, cost(output_per_second, self.output, self.per_second))
    }

    /// Returns the maximum cost at the plain prices of a call with at most these token counts.
    pub fn max_cost(&self, input_tokens: u64, output_tokens: u64) -> Money {
        self.max_cost_with(input_tokens, output_tokens, &BilledUnits::default())
    }

    /// Returns the maximum cost of a call with at most these token counts and billed units, in the
    /// most expensive tier it may get. Tokens of images are added to the counts. A call that may
    /// search must have its searches counted here.
    pub fn max_cost_with(
        &self,
        input_tokens: u64,
        output_tokens: u64,
        units: &BilledUnits<'_>,
    ) -> Money {
        let (mut input, mut output) = (Price::FREE, Price::FREE);
        let mut raise = |terms: &TierTerms<'_>| {
            let reachable = terms.long.iter().filter(|long| long.above_tokens < input_tokens);
            for long in std::iter::once(None).chain(reachable.map(Some)) {
                let rates_of_call = self.fill_rates(terms, long);
                input = input.max(rates_of_call.max_input());
                output = output.max(rates_of_call.max_output());
            }
        };
        raise(&self.plain_terms());
        for tier in self.tiers.iter().filter(|tier| may_be_granted(units.tier, tier.tier)) {
            raise(&TierTerms::of(tier));
        }
        let image_tokens = match units.images {
            0 => 0,
            images => images.saturating_mul(self.image_rate(units.image).tokens),
        };
        let tokens = input
            .times(input_tokens)
            .saturating_add(output.times(output_tokens.saturating_add(image_tokens)));
        let mut picos = tokens;
        self.visit_units(units, |charge| picos = picos.saturating_add(charge.picos()));
        Money::from_picos(picos)
    }

    /// Returns true if every call is free.
    pub fn is_free(&self) -> bool {
        let any = ServiceTier::Auto;
        let units = BilledUnits {
            searches: 1,
            images: 1,
            seconds: 1,
            cache_storage: 1,
            tools: ToolUses { file_searches: 1, code_runs: 1, image_tokens: 1 },
            tier: Some(&any),
            ..BilledUnits::default()
        };
        self.max_cost_with(u64::MAX, u64::MAX, &units) == Money::ZERO
    }

    /// Visits every part of a cost that is above zero.
    fn visit_charges(&self, usage: &Usage, units: &BilledUnits<'_>, mut emit: impl FnMut(Charge)) {
        let mut emit = |of, count, price| {
            if count > 0 && price > Price::FREE {
                emit(Charge { dimension: of, count, price });
            }
        };
        let service = units.tier.and_then(BilledTier::of);
        let tier = self.tiers.iter().find(|tier| Some(tier.tier) == service);
        let terms = tier.map_or_else(|| self.plain_terms(), TierTerms::of);
        let long = terms.long.iter().filter(|long| long.above_tokens < usage.input);
        let rates_of_call = self.fill_rates(&terms, long.max_by_key(|long| long.above_tokens));

        // Every part is limited to the rest of its whole, so that contradictory counts never cost
        // more than the bound. Tokens that are both cached and audio count as cached. Other tokens
        // count as audio or image first, which is the more expensive reading.
        let mut left = usage.input;
        for (of, wanted, price) in [
            (PriceDimension::CachedInput, usage.cache_read, rates_of_call.cached_input),
            (PriceDimension::CacheWrite, usage.cache_write, rates_of_call.cache_write),
            (
                PriceDimension::CacheWriteLong,
                usage.cache_write_long,
                rates_of_call.cache_write_long,
            ),
            (PriceDimension::InputAudio, usage.input_audio, rates_of_call.input_audio),
            (PriceDimension::InputImage, usage.input_image, rates_of_call.input_image),
            (PriceDimension::Input, usage.input, rates_of_call.input),
        ] {
            emit(of, take(&mut left, wanted), price);
        }
        let mut left = usage.output;
        for (of, wanted, price) in [
            (PriceDimension::OutputAudio, usage.output_audio, rates_of_call.output_audio),
            (PriceDimension::OutputImage, usage.output_image, rates_of_call.output_image),
            (PriceDimension::Thinking, usage.thinking, rates_of_call.thinking),
            (PriceDimension::Output, usage.output, rates_of_call.output),
        ] {
            emit(of, take(&mut left, wanted), price);
        }
        let units = BilledUnits {
            searches: usage.searches.max(units.searches),
            images: usage.images.max(units.images),
            seconds: usage.seconds.max(units.seconds),
            cache_storage: usage.cache_storage.max(units.cache_storage),
            tools: usage.tools.merged(units.tools),
            search_context: usage.search_context,
            ..*units
        };
        self.visit_units(&units, |Charge { dimension: of, count, price }| emit(of, count, price));
    }

    fn visit_units(&self, units: &BilledUnits<'_>, mut emit: impl FnMut(Charge)) {
        let BilledUnits {
            searches,
            images,
            seconds,
            cache_storage,
            tools,
            search_context,
            image: picture,
            tier: _,
        } = *units;
        let per_request = match search_context {
            SearchContext::Low => self.per_request_low.or(self.per_request),
            SearchContext::Medium => self.per_request_medium.or(self.per_request),
            // The bound of a cost is this one.
            SearchContext::High => {
                self.per_request.max(self.per_request_low).max(self.per_request_medium)
            }
        };
        let free = |price: Option<Price>| price.unwrap_or(Price::FREE);
        let image = if images == 0 { Price::FREE } else { self.image_rate(picture).price };
        let tool_image = self.tool_image.or(self.output_image).unwrap_or(self.output);
        for (of, count, price) in [
            (PriceDimension::Request, 1, free(per_request)),
            (PriceDimension::Search, searches, free(self.per_search)),
            (PriceDimension::Image, images, image),
            (PriceDimension::Second, seconds, free(self.per_second)),
            (PriceDimension::FileSearch, tools.file_searches, free(self.per_file_search)),
            (PriceDimension::CodeRun, tools.code_runs, free(self.per_code_run)),
            (PriceDimension::CacheStorage, cache_storage, free(self.cache_storage)),
            (PriceDimension::ToolImage, tools.image_tokens, tool_image),
        ] {
            emit(Charge { dimension: of, count, price });
        }
    }

    fn plain_terms(&self) -> TierTerms<'_> {
        let rates = TokenRates {
            input: self.input,
            output: self.output,
            cached_input: self.cached_input,
            cache_write: self.cache_write,
            cache_write_long: self.cache_write_long,
        };
        TierTerms { rates, long: &self.long_prompts }
    }

    /// Returns the prices of a service tier, and of long prompts in it.
    pub(crate) fn fill_rates(
        &self,
        terms: &TierTerms<'_>,
        long: Option<&LongPromptPrices>,
    ) -> FilledRates {
        let TokenRates { input, output, cached_input, cache_write, cache_write_long } =
            long.map_or(terms.rates, |long| long.rates);
        // Providers scale audio and image prices along with text, so the plain price of a service
        // tier gives the factor. A long prompt replaces the plain prices only: a modality keeps its
        // price, unless the plain price has risen above it.
        let fill = |price: Option<Price>, from: Price, to: Price, now: Price| match price {
            None => now,
            Some(price) if long.is_some() => scaled(price, from, to).max(now),
            Some(price) => scaled(price, from, to),
        };
        let input_price = |price| fill(price, self.input, terms.rates.input, input);
        let output_price = |price| fill(price, self.output, terms.rates.output, output);
        FilledRates {
            input,
            cached_input: cached_input.unwrap_or(input),
            cache_write: cache_write.unwrap_or(input),
            cache_write_long: cache_write_long.or(cache_write).unwrap_or(input),
            input_audio: input_price(self.input_audio),
            input_image: input_price(self.input_image),
            output,
            thinking: output_price(self.thinking),
            output_audio: output_price(self.output_audio),
            output_image: output_price(self.output_image),
        }
    }
}

/// Token prices of one service tier.
pub(crate) struct TierTerms<'a> {
    pub(crate) rates: TokenRates,
    pub(crate) long: &'a [LongPromptPrices],
}

impl<'a> TierTerms<'a> {
    /// Returns the prices of a tier.
    pub(crate) fn of(tier: &'a TierPrices) -> Self {
        Self { rates: tier.rates, long: &tier.long_prompts }
    }
}

/// Returns true if a caller with that request may be served in that tier. A request without a tier
/// gets no other tier: where the operator's account grants one anyway, that is the operator's own
/// setting.
fn may_be_granted(asked: Option<&ServiceTier>, given: BilledTier) -> bool {
    match asked {
        None | Some(ServiceTier::Standard) => false,
        Some(tier @ (ServiceTier::Flex | ServiceTier::Priority)) => {
            BilledTier::of(tier) == Some(given)
        }
        Some(tier) if BilledTier::of(tier) == Some(BilledTier::Us) => given == BilledTier::Us,
        // Some providers serve the fastest tier as priority, and treat tiers of their own as they
        // choose.
        Some(ServiceTier::Auto | ServiceTier::Fast | ServiceTier::Other(..)) => true,
    }
}

/// Takes up to `wanted` from the rest.
fn take(left: &mut u64, wanted: u64) -> u64 {
    let taken = wanted.min(*left);
    *left -= taken;
    taken
}

/// Returns the price scaled by the change of the plain price, rounded up.
fn scaled(price: Price, from: Price, to: Price) -> Price {
    if from == to {
        return price;
    }
    if from == Price::FREE {
        return price.max(to);
    }
    let from = i128::from(from.as_picos());
    let product = i128::from(price.as_picos()) * i128::from(to.as_picos());
    let scaled = product.div_euclid(from) + i128::from(product.rem_euclid(from) != 0);
    Price::from_picos(i64::try_from(scaled).unwrap_or(i64::MAX))
}

//! What a call costs, and what it can cost at most.
//!
//! Prices are picodollars per unit, products are exact in `i128`, and one call is rounded up once.
//! Three rules keep the spending cap honest. A dimension without a price of its own is charged as
//! the plain dimension it belongs to (cached as input, thinking as output), never as nothing. The
//! service tier that is billed is the one the provider says it used. And whatever [`Prices::cost`]
//! charges, [`Prices::bound`] of the same or larger counts has covered.

use canon::{Charge, Dimension, Money, Price, Tier, Usage};

use crate::{Picture, PicturePrice};

/// Everything a provider bills one model by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prices {
    /// Names these very figures; pinned when a call is admitted and printed on its receipt.
    pub version: String,
    /// Per token of the prompt.
    pub input: Price,
    /// Per token of the answer.
    pub output: Price,
    /// Per prompt token read from the cache.
    pub cached_input: Option<Price>,
    /// Per prompt token written to the cache for the short term.
    pub cache_write: Option<Price>,
    /// Per prompt token written to the cache for the long term.
    pub cache_write_long: Option<Price>,
    /// Per token of thinking, where it is billed apart.
    pub thinking: Option<Price>,
    /// Per prompt token that was audio.
    pub input_audio: Option<Price>,
    /// Per answer token that was audio.
    pub output_audio: Option<Price>,
    /// Per prompt token that was an image.
    pub input_image: Option<Price>,
    /// Per answer token that was an image.
    pub output_image: Option<Price>,
    /// Per call.
    pub per_request: Option<Price>,
    /// Per second.
    pub per_second: Option<Price>,
    /// Per image made, where images are not billed in tokens.
    pub per_image: Option<Price>,
    /// What images cost by size and quality.
    pub pictures: Vec<PicturePrice>,
    /// Per search the provider runs.
    pub per_search: Option<Price>,
    /// What long prompts cost; a tier replaces the token prices above.
    pub long: Vec<LongPrices>,
    /// What other service tiers cost.
    pub services: Vec<ServicePrices>,
}

/// Token prices that replace others; what is not named follows the replaced plain price.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// Per token of the prompt.
    pub input: Price,
    /// Per token of the answer.
    pub output: Price,
    /// Per prompt token read from the cache.
    pub cached_input: Option<Price>,
    /// Per prompt token written to the cache for the short term.
    pub cache_write: Option<Price>,
    /// Per prompt token written to the cache for the long term.
    pub cache_write_long: Option<Price>,
}

/// Prices of a whole call whose prompt is longer than `above` tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LongPrices {
    /// The prompt length up to which the tier does not apply.
    pub above: u64,
    /// The prices then.
    pub rates: Rates,
}

/// A service tier with prices of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Service {
    /// Answered some time within a day.
    Batch,
    /// Cheaper and slower.
    Flex,
    /// Faster and dearer.
    Priority,
    /// Fastest.
    Fast,
}

impl Service {
    /// Every service tier, cheapest first.
    pub const ALL: [Self; 4] = [Self::Batch, Self::Flex, Self::Priority, Self::Fast];

    /// The word used in data files and configuration.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Batch => "batch",
            Self::Flex => "flex",
            Self::Priority => "priority",
            Self::Fast => "fast",
        }
    }

    /// The tier whose prices are billed; `None` for the plain prices.
    pub fn of(tier: &Tier) -> Option<Self> {
        match tier {
            Tier::Flex => Some(Self::Flex),
            Tier::Priority => Some(Self::Priority),
            Tier::Fast => Some(Self::Fast),
            Tier::Other(_, word) => Self::ALL.into_iter().find(|service| service.word() == word),
            Tier::Auto | Tier::Standard => None,
        }
    }
}

/// What one service tier costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePrices {
    /// Which tier.
    pub service: Service,
    /// Its prices.
    pub rates: Rates,
    /// Its prices for long prompts.
    pub long: Vec<LongPrices>,
}

/// What a call uses beyond tokens, and on which terms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Units<'a> {
    /// Searches the provider runs.
    pub searches: u64,
    /// Images made.
    pub images: u64,
    /// Seconds, begun ones counted whole.
    pub seconds: u64,
    /// Which images.
    pub picture: Picture<'a>,
    /// The service tier: for a bound the one asked for, for a cost the one that was given.
    pub tier: Option<&'a Tier>,
}

/// The token prices that apply to one call, every gap filled.
#[derive(Clone, Copy)]
struct Sheet {
    input: Price,
    cached_input: Price,
    cache_write: Price,
    cache_write_long: Price,
    input_audio: Price,
    input_image: Price,
    output: Price,
    thinking: Price,
    output_audio: Price,
    output_image: Price,
}

impl Sheet {
    fn dearest_input(&self) -> Price {
        self.input
            .max(self.cached_input)
            .max(self.cache_write)
            .max(self.cache_write_long)
            .max(self.input_audio)
            .max(self.input_image)
    }

    fn dearest_output(&self) -> Price {
        self.output.max(self.thinking).max(self.output_audio).max(self.output_image)
    }
}

impl Prices {
    /// Plain prices for input and output and nothing else.
    pub fn plain(input: Price, output: Price) -> Self {
        Self { input, output, ..Self::default() }.versioned()
    }

    /// What the usage costs at the plain prices.
    pub fn cost(&self, usage: &Usage) -> Money {
        self.cost_with(usage, &Units::default())
    }

    /// What the usage costs together with what was used beyond tokens. What is told in both places
    /// is counted once.
    pub fn cost_with(&self, usage: &Usage, units: &Units<'_>) -> Money {
        let mut picos = 0_i128;
        self.each(usage, units, |charge| picos = picos.saturating_add(charge.picos()));
        Money::from_picos(picos)
    }

    /// The parts of that cost. Their sum, rounded up once, is the cost.
    pub fn charges(&self, usage: &Usage, units: &Units<'_>) -> Vec<Charge> {
        let mut charges = Vec::new();
        self.each(usage, units, |charge| charges.push(charge));
        charges
    }

    /// The most a call at the plain prices can cost that reads and writes no more than that many
    /// tokens.
    pub fn bound(&self, input_tokens: u64, output_tokens: u64) -> Money {
        self.bound_with(input_tokens, output_tokens, &Units::default())
    }

    /// The most a call can cost that reads and writes no more than that many tokens (those of its
    /// images come on top) and uses no more than that beyond tokens, in the dearest tier it may
    /// get. A call that may search needs its searches counted here.
    pub fn bound_with(&self, input_tokens: u64, output_tokens: u64, units: &Units<'_>) -> Money {
        let (mut input, mut output) = (Price::FREE, Price::FREE);
        let mut see = |terms: &Terms<'_>| {
            let reachable = terms.long.iter().filter(|long| long.above < input_tokens);
            for long in std::iter::once(None).chain(reachable.map(Some)) {
                let sheet = self.filled(terms, long);
                input = input.max(sheet.dearest_input());
                output = output.max(sheet.dearest_output());
            }
        };
        see(&self.plain_terms());
        for tier in self.services.iter().filter(|tier| may_get(units.tier, tier.service)) {
            see(&Terms::of(tier));
        }
        let drawn = match units.images {
            0 => 0,
            images => images.saturating_mul(self.picture(units.picture).tokens),
        };
        let tokens =
            input.of(input_tokens).saturating_add(output.of(output_tokens.saturating_add(drawn)));
        let mut picos = tokens;
        self.each_unit(units, |charge| picos = picos.saturating_add(charge.picos()));
        Money::from_picos(picos)
    }

    /// Whether nothing is ever charged.
    pub fn is_free(&self) -> bool {
        let any = Tier::Auto;
        let units =
            Units { searches: 1, images: 1, seconds: 1, tier: Some(&any), ..Units::default() };
        self.bound_with(u64::MAX, u64::MAX, &units) == Money::ZERO
    }

    /// Tells every part of a cost; what comes to nothing is no part.
    fn each(&self, usage: &Usage, units: &Units<'_>, mut tell: impl FnMut(Charge)) {
        let mut tell = |of, count, price| {
            if count > 0 && price > Price::FREE {
                tell(Charge { of, count, price });
            }
        };
        let service = units.tier.and_then(Service::of);
        let tier = self.services.iter().find(|tier| Some(tier.service) == service);
        let terms = tier.map_or_else(|| self.plain_terms(), Terms::of);
        let long = terms.long.iter().filter(|long| long.above < usage.input);
        let sheet = self.filled(&terms, long.max_by_key(|long| long.above));

        // Every part is cut to what is left of its whole, so that contradictory counts can never
        // cost more than the bound. What is both cached and audio counts as cached; what is
        // neither is taken as audio or image first, which is the dearer reading.
        let mut left = usage.input;
        for (of, wished, price) in [
            (Dimension::CachedInput, usage.cache_read, sheet.cached_input),
            (Dimension::CacheWrite, usage.cache_write, sheet.cache_write),
            (Dimension::CacheWriteLong, usage.cache_write_long, sheet.cache_write_long),
            (Dimension::InputAudio, usage.input_audio, sheet.input_audio),
            (Dimension::InputImage, usage.input_image, sheet.input_image),
            (Dimension::Input, usage.input, sheet.input),
        ] {
            tell(of, take(&mut left, wished), price);
        }
        let mut left = usage.output;
        for (of, wished, price) in [
            (Dimension::OutputAudio, usage.output_audio, sheet.output_audio),
            (Dimension::OutputImage, usage.output_image, sheet.output_image),
            (Dimension::Thinking, usage.thinking, sheet.thinking),
            (Dimension::Output, usage.output, sheet.output),
        ] {
            tell(of, take(&mut left, wished), price);
        }
        let units = Units {
            searches: usage.searches.max(units.searches),
            images: usage.images.max(units.images),
            seconds: usage.seconds.max(units.seconds),
            ..*units
        };
        self.each_unit(&units, |Charge { of, count, price }| tell(of, count, price));
    }

    fn each_unit(&self, units: &Units<'_>, mut tell: impl FnMut(Charge)) {
        let Units { searches, images, seconds, picture, tier: _ } = *units;
        let free = |price: Option<Price>| price.unwrap_or(Price::FREE);
        let image = if images == 0 { Price::FREE } else { self.picture(picture).price };
        for (of, count, price) in [
            (Dimension::Request, 1, free(self.per_request)),
            (Dimension::Search, searches, free(self.per_search)),
            (Dimension::Image, images, image),
            (Dimension::Second, seconds, free(self.per_second)),
        ] {
            tell(Charge { of, count, price });
        }
    }

    fn plain_terms(&self) -> Terms<'_> {
        let rates = Rates {
            input: self.input,
            output: self.output,
            cached_input: self.cached_input,
            cache_write: self.cache_write,
            cache_write_long: self.cache_write_long,
        };
        Terms { rates, long: &self.long }
    }

    fn filled(&self, terms: &Terms<'_>, long: Option<&LongPrices>) -> Sheet {
        let Rates { input, output, cached_input, cache_write, cache_write_long } =
            long.map_or(terms.rates, |long| long.rates);
        // Providers scale audio and images along with text, so the plain price of a service tier
        // tells how. A long prompt replaces the plain prices only: a modality keeps its price,
        // unless the plain one has risen above it.
        let fill = |price: Option<Price>, from: Price, to: Price, now: Price| match price {
            None => now,
            Some(price) if long.is_some() => scaled(price, from, to).max(now),
            Some(price) => scaled(price, from, to),
        };
        let heard = |price| fill(price, self.input, terms.rates.input, input);
        let told = |price| fill(price, self.output, terms.rates.output, output);
        Sheet {
            input,
            cached_input: cached_input.unwrap_or(input),
            cache_write: cache_write.unwrap_or(input),
            cache_write_long: cache_write_long.or(cache_write).unwrap_or(input),
            input_audio: heard(self.input_audio),
            input_image: heard(self.input_image),
            output,
            thinking: told(self.thinking),
            output_audio: told(self.output_audio),
            output_image: told(self.output_image),
        }
    }
}

/// The token prices of one service tier.
struct Terms<'a> {
    rates: Rates,
    long: &'a [LongPrices],
}

impl<'a> Terms<'a> {
    fn of(tier: &'a ServicePrices) -> Self {
        Self { rates: tier.rates, long: &tier.long }
    }
}

/// Whether whoever asks so may be given that tier. A tier nobody asks for is not among them: where
/// the operator's account gets one all the same, that is the operator's own setting.
fn may_get(asked: Option<&Tier>, given: Service) -> bool {
    match asked {
        None | Some(Tier::Standard) => false,
        Some(tier @ (Tier::Flex | Tier::Priority)) => Service::of(tier) == Some(given),
        // Some providers serve the fastest as a priority, and words of their own as they like.
        Some(Tier::Auto | Tier::Fast | Tier::Other(..)) => true,
    }
}

/// Takes up to `wished` out of what is left.
fn take(left: &mut u64, wished: u64) -> u64 {
    let taken = wished.min(*left);
    *left -= taken;
    taken
}

/// The price in the proportion in which the plain one changed, rounded up.
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
    Price::picos(i64::try_from(scaled).unwrap_or(i64::MAX))
}

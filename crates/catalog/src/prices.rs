//! What a call costs, and what it can cost at most.
//!
//! Prices are picodollars per unit, products are exact in `i128`, and one call is rounded up once.
//! Two rules keep the spending cap honest. A dimension without a price of its own is charged as
//! the plain dimension it belongs to (cached as input, thinking as output), never as nothing. And
//! whatever [`Prices::cost`] charges, [`Prices::bound`] of the same or larger counts has covered.

use canon::{Money, Price, Usage};

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

/// What a call uses beyond tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Units {
    /// Searches the provider runs.
    pub searches: u64,
    /// Images made.
    pub images: u64,
    /// Seconds, begun ones counted whole.
    pub seconds: u64,
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

    /// What the usage costs: tokens, searches and the call itself.
    pub fn cost(&self, usage: &Usage) -> Money {
        self.cost_with(usage, &Units::default())
    }

    /// What the usage costs together with what was used beyond tokens. Searches told in both
    /// places are counted once.
    pub fn cost_with(&self, usage: &Usage, units: &Units) -> Money {
        let units = Units { searches: usage.searches.max(units.searches), ..*units };
        Money::from_picos(self.token_picos(usage).saturating_add(self.unit_picos(&units)))
    }

    /// The most a call can cost that reads and writes no more than that many tokens.
    pub fn bound(&self, input_tokens: u64, output_tokens: u64) -> Money {
        self.bound_with(input_tokens, output_tokens, &Units::default())
    }

    /// The most a call can cost that reads and writes no more than that many tokens and uses no
    /// more than that beyond tokens. A call that may search needs its searches counted here.
    pub fn bound_with(&self, input_tokens: u64, output_tokens: u64, units: &Units) -> Money {
        let reachable = self.long.iter().filter(|long| long.above < input_tokens);
        let sheets = std::iter::once(None).chain(reachable.map(Some)).map(|long| self.filled(long));
        let (input, output) = sheets.fold((Price::FREE, Price::FREE), |(input, output), sheet| {
            (input.max(sheet.dearest_input()), output.max(sheet.dearest_output()))
        });
        let tokens = input.of(input_tokens).saturating_add(output.of(output_tokens));
        Money::from_picos(tokens.saturating_add(self.unit_picos(units)))
    }

    /// The prices of another service tier; `None` when this model has none on record.
    pub fn at(&self, service: Service) -> Option<Self> {
        let tier = self.services.iter().find(|tier| tier.service == service)?;
        let Rates { input, output, cached_input, cache_write, cache_write_long } = tier.rates;
        // Providers scale audio and images along with text, so the tier's plain price tells how.
        let heard = |price: Option<Price>| price.map(|price| scaled(price, self.input, input));
        let told = |price: Option<Price>| price.map(|price| scaled(price, self.output, output));
        let prices = Self {
            input,
            output,
            cached_input,
            cache_write,
            cache_write_long,
            thinking: told(self.thinking),
            input_audio: heard(self.input_audio),
            output_audio: told(self.output_audio),
            input_image: heard(self.input_image),
            output_image: told(self.output_image),
            long: tier.long.clone(),
            services: Vec::new(),
            ..self.clone()
        };
        Some(prices.versioned())
    }

    /// Whether nothing is ever charged.
    pub fn is_free(&self) -> bool {
        let units = Units { searches: 1, images: 1, seconds: 1 };
        self.bound_with(u64::MAX, u64::MAX, &units) == Money::ZERO
    }

    /// The same figures under a version computed from them: equal figures, equal version.
    #[must_use]
    pub fn versioned(self) -> Self {
        let version = format!("p-{:016x}", self.print());
        Self { version, ..self }
    }

    fn token_picos(&self, usage: &Usage) -> i128 {
        let tier = self.long.iter().filter(|long| long.above < usage.input);
        let sheet = self.filled(tier.max_by_key(|long| long.above));

        // Every part is cut to what is left of its whole, so that contradictory counts can never
        // cost more than the bound. What is both cached and audio counts as cached; what is
        // neither is taken as audio or image first, which is the dearer reading.
        let mut left = usage.input;
        let input = sheet.cached_input.of(take(&mut left, usage.cache_read))
            + sheet.cache_write.of(take(&mut left, usage.cache_write))
            + sheet.cache_write_long.of(take(&mut left, usage.cache_write_long))
            + sheet.input_audio.of(take(&mut left, usage.input_audio))
            + sheet.input_image.of(take(&mut left, usage.input_image))
            + sheet.input.of(left);

        // One side cannot pass `i128`, both together can.
        let mut left = usage.output;
        input.saturating_add(
            sheet.output_audio.of(take(&mut left, usage.output_audio))
                + sheet.output_image.of(take(&mut left, usage.output_image))
                + sheet.thinking.of(take(&mut left, usage.thinking))
                + sheet.output.of(left),
        )
    }

    fn unit_picos(&self, units: &Units) -> i128 {
        let Units { searches, images, seconds } = *units;
        let of = |price: Option<Price>, count| price.unwrap_or(Price::FREE).of(count);
        of(self.per_request, 1)
            .saturating_add(of(self.per_search, searches))
            .saturating_add(of(self.per_image, images))
            .saturating_add(of(self.per_second, seconds))
    }

    fn filled(&self, long: Option<&LongPrices>) -> Sheet {
        let own = Rates {
            input: self.input,
            output: self.output,
            cached_input: self.cached_input,
            cache_write: self.cache_write,
            cache_write_long: self.cache_write_long,
        };
        let Rates { input, output, cached_input, cache_write, cache_write_long } =
            long.map_or(own, |long| long.rates);
        // A tier replaces the plain prices only. A modality keeps its price, unless the tier's
        // plain one has risen above it.
        let heard = |price: Option<Price>| match long {
            Some(_) => price.map_or(input, |price| price.max(input)),
            None => price.unwrap_or(input),
        };
        let told = |price: Option<Price>| match long {
            Some(_) => price.map_or(output, |price| price.max(output)),
            None => price.unwrap_or(output),
        };
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

    /// A print of the figures. Destructured in full, so that a new dimension cannot be forgotten
    /// and two different price lists share a version.
    fn print(&self) -> u64 {
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
            per_second,
            per_image,
            per_search,
            long,
            services,
        } = self;
        let mut print = Print::default();
        print.add(1, Some(*input));
        print.add(2, Some(*output));
        print.add(3, *cached_input);
        print.add(4, *cache_write);
        print.add(5, *cache_write_long);
        print.add(6, *thinking);
        print.add(7, *input_audio);
        print.add(8, *output_audio);
        print.add(9, *input_image);
        print.add(10, *output_image);
        print.add(11, *per_request);
        print.add(12, *per_second);
        print.add(13, *per_image);
        print.add(14, *per_search);
        print.add_long(long);
        for ServicePrices { service, rates, long } in services {
            print.byte(match service {
                Service::Batch => 40,
                Service::Flex => 41,
                Service::Priority => 42,
                Service::Fast => 43,
            });
            print.add_rates(rates);
            print.add_long(long);
        }
        print.0
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
    if from == Price::FREE {
        return price.max(to);
    }
    let from = i128::from(from.as_picos());
    let product = i128::from(price.as_picos()) * i128::from(to.as_picos());
    let scaled = product.div_euclid(from) + i128::from(product.rem_euclid(from) != 0);
    Price::picos(i64::try_from(scaled).unwrap_or(i64::MAX))
}

/// FNV-1a: small, stable across releases and machines, and strong enough to tell lists apart.
struct Print(u64);

impl Default for Print {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Print {
    fn byte(&mut self, byte: u8) {
        self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }

    fn add(&mut self, dimension: u8, price: Option<Price>) {
        let Some(price) = price else { return };
        self.byte(dimension);
        price.as_picos().to_le_bytes().into_iter().for_each(|byte| self.byte(byte));
    }

    fn add_rates(&mut self, rates: &Rates) {
        let Rates { input, output, cached_input, cache_write, cache_write_long } = *rates;
        self.add(20, Some(input));
        self.add(21, Some(output));
        self.add(22, cached_input);
        self.add(23, cache_write);
        self.add(24, cache_write_long);
    }

    fn add_long(&mut self, long: &[LongPrices]) {
        for LongPrices { above, rates } in long {
            self.byte(30);
            above.to_le_bytes().into_iter().for_each(|byte| self.byte(byte));
            self.add_rates(rates);
        }
    }
}

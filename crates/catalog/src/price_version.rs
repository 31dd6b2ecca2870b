//! Version of a price list, computed from its figures.

use canon::Price;

use crate::{BilledTier, ImagePrice, LongPromptPrices, ModelPrices, TierPrices, TokenRates};

impl ModelPrices {
    /// Returns the prices with a version computed from them. Equal figures have equal versions.
    #[must_use]
    pub fn versioned(self) -> Self {
        let version = format!("p-{:016x}", self.fingerprint()).into();
        Self { version, ..self }
    }

    /// Returns a fingerprint of the figures. The pattern names all fields, so that a new dimension
    /// cannot be forgotten and give two different lists one version.
    fn fingerprint(&self) -> u64 {
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
            images: pictures,
            per_search,
            per_file_search,
            per_code_run,
            tool_image,
            cache_storage,
            long_prompts: long,
            tiers: services,
        } = self;
        let mut fingerprint = Fingerprint::default();
        fingerprint.add(1, Some(*input));
        fingerprint.add(2, Some(*output));
        fingerprint.add(3, *cached_input);
        fingerprint.add(4, *cache_write);
        fingerprint.add(5, *cache_write_long);
        fingerprint.add(6, *thinking);
        fingerprint.add(7, *input_audio);
        fingerprint.add(8, *output_audio);
        fingerprint.add(9, *input_image);
        fingerprint.add(10, *output_image);
        fingerprint.add(11, *per_request);
        fingerprint.add(12, *per_second);
        fingerprint.add(13, *per_image);
        fingerprint.add(14, *per_search);
        fingerprint.add(15, *per_file_search);
        fingerprint.add(16, *per_code_run);
        fingerprint.add(17, *tool_image);
        fingerprint.add(18, *per_request_low);
        fingerprint.add(19, *per_request_medium);
        fingerprint.add(25, *cache_storage);
        for row in pictures {
            fingerprint.add_picture(row);
        }
        fingerprint.add_long(long);
        for TierPrices { tier: service, rates, long_prompts: long } in services {
            fingerprint.byte(match service {
                BilledTier::Batch => 40,
                BilledTier::Flex => 41,
                BilledTier::Priority => 42,
                BilledTier::Fast => 43,
                BilledTier::Us => 44,
                BilledTier::FastUs => 45,
            });
            fingerprint.add_rates(rates);
            fingerprint.add_long(long);
        }
        fingerprint.0
    }
}

/// FNV-1a hash (<https://datatracker.ietf.org/doc/html/draft-eastlake-fnv>): small, stable across
/// releases and machines, and strong enough to distinguish price lists.
struct Fingerprint(u64);

impl Default for Fingerprint {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fingerprint {
    fn byte(&mut self, byte: u8) {
        self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }

    fn add(&mut self, dimension: u8, price: Option<Price>) {
        let Some(price) = price else { return };
        self.byte(dimension);
        price.as_picos().to_le_bytes().into_iter().for_each(|byte| self.byte(byte));
    }

    fn add_rates(&mut self, rates: &TokenRates) {
        let TokenRates { input, output, cached_input, cache_write, cache_write_long } = *rates;
        self.add(20, Some(input));
        self.add(21, Some(output));
        self.add(22, cached_input);
        self.add(23, cache_write);
        self.add(24, cache_write_long);
    }

    fn add_picture(&mut self, row: &ImagePrice) {
        let ImagePrice { size, quality, price, tokens } = row;
        self.byte(50);
        for word in [size, quality] {
            // The length comes first, so that two different rows cannot produce the same bytes.
            let word = word.as_deref().unwrap_or_default();
            (word.len() as u64).to_le_bytes().into_iter().for_each(|byte| self.byte(byte));
            word.bytes().for_each(|byte| self.byte(byte));
        }
        self.add(51, Some(*price));
        tokens.to_le_bytes().into_iter().for_each(|byte| self.byte(byte));
    }

    fn add_long(&mut self, long: &[LongPromptPrices]) {
        for LongPromptPrices { above_tokens: above, rates } in long {
            self.byte(30);
            above.to_le_bytes().into_iter().for_each(|byte| self.byte(byte));
            self.add_rates(rates);
        }
    }
}

//! The version of a price list: computed from its figures, so that it names these very ones.

use canon::Price;

use crate::{LongPrices, PicturePrice, Prices, Rates, Service, ServicePrices};

impl Prices {
    /// The same figures under a version computed from them: equal figures, equal version.
    #[must_use]
    pub fn versioned(self) -> Self {
        let version = format!("p-{:016x}", self.print());
        Self { version, ..self }
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
            pictures,
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
        for row in pictures {
            print.add_picture(row);
        }
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

    fn add_picture(&mut self, row: &PicturePrice) {
        let PicturePrice { size, quality, price, tokens } = row;
        self.byte(50);
        for word in [size, quality] {
            // The length first, so that no two rows can read alike.
            let word = word.as_deref().unwrap_or_default();
            (word.len() as u64).to_le_bytes().into_iter().for_each(|byte| self.byte(byte));
            word.bytes().for_each(|byte| self.byte(byte));
        }
        self.add(51, Some(*price));
        tokens.to_le_bytes().into_iter().for_each(|byte| self.byte(byte));
    }

    fn add_long(&mut self, long: &[LongPrices]) {
        for LongPrices { above, rates } in long {
            self.byte(30);
            above.to_le_bytes().into_iter().for_each(|byte| self.byte(byte));
            self.add_rates(rates);
        }
    }
}

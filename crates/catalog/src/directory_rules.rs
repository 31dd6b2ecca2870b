//! Rules that the facts of every model follow. They find slips in data files and bundles before a
//! caller does.

use canon::Price;

use crate::{
    BilledTier, FEATURES, LongPromptPrices, ModelDirectory, ModelEntry, ModelKind, ModelPrices,
    TokenRates,
};

/// A thousand dollars per million tokens is beyond every published price.
const MAX_TOKEN_PRICE: Price = Price::from_picos(1_000_000_000);
/// A dollar apiece is beyond every published price.
const MAX_UNIT_PRICE: Price = Price::from_picos(1_000_000_000_000);
/// Input modalities and the feature that names each.
const INPUT_FEATURES: [(&str, &str); 4] = [
    ("vision", "image"),
    ("audio-input", "audio"),
    ("video-input", "video"),
    ("documents", "document"),
];

/// A fact that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryFinding {
    /// Id of the model.
    pub model: String,
    /// Description of the broken rule.
    pub reason: String,
}

impl std::fmt::Display for DirectoryFinding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.model, self.reason)
    }
}

/// Returns true for a date, `YYYY-MM-DD`.
pub fn is_day(text: &str) -> bool {
    let shape: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    let part = |from: usize| text.get(from..from + 2).and_then(|part| part.parse::<u8>().ok());
    shape == "0000-00-00"
        && part(5).is_some_and(|month| (1..=12).contains(&month))
        && part(8).is_some_and(|day| (1..=31).contains(&day))
}

impl ModelDirectory {
    /// Returns the facts that break a rule on the day `today`, `YYYY-MM-DD`.
    pub fn findings(&self, today: &str) -> Vec<DirectoryFinding> {
        let mut findings = Vec::new();
        for entry in self.models() {
            let mut reasons = Vec::new();
            check_words(entry, &mut reasons);
            check_features(entry, &mut reasons);
            check_limits(entry, &mut reasons);
            check_texts(entry, today, &mut reasons);
            for offer in &entry.offers {
                let mut broken = Vec::new();
                check_prices(entry, &offer.prices, &mut broken);
                let provided = self.provider(&offer.provider).map(|known| known.formats.as_slice());
                let foreign =
                    offer.formats.iter().find(|own| !provided.unwrap_or_default().contains(own));
                if let Some(foreign) = foreign {
                    broken.push(format!(
                        "`speaks` names {}, which the provider does not speak",
                        foreign.as_str()
                    ));
                }
                if self.formats(&offer.provider, &offer.model).is_empty() {
                    broken.push("no format of the provider carries its kind".to_owned());
                }
                let lane = |reason| format!("{}/{}: {reason}", offer.provider, offer.model);
                reasons.extend(broken.into_iter().map(lane));
            }
            let found = |reason| DirectoryFinding { model: entry.id.clone(), reason };
            findings.extend(reasons.into_iter().map(found));
        }
        findings
    }

    /// Returns the models that a provider has announced to retire on or before the day `today`.
    pub fn retired(&self, today: &str) -> impl Iterator<Item = &ModelEntry> {
        self.models().filter(move |entry| entry.retires.as_deref().is_some_and(|day| day <= today))
    }
}

fn check_words(entry: &ModelEntry, reasons: &mut Vec<String>) {
    let place = |tag: &String| FEATURES.iter().position(|(word, _)| word == tag);
    let places: Vec<_> = entry.features.iter().map(place).collect();
    if !places.is_sorted_by(|a, b| a < b) {
        reasons.push("its features are not in the order of the list, or one stands twice".into());
    }
    if entry.capabilities.input.is_empty() || entry.capabilities.output.is_empty() {
        reasons.push("its modalities are missing".into());
    }
}

fn check_features(entry: &ModelEntry, reasons: &mut Vec<String>) {
    let has = |tag: &str| entry.features.iter().any(|own| own == tag);
    let takes = |word: &str| entry.capabilities.input.iter().any(|own| own == word);
    let gives = |word: &str| entry.capabilities.output.iter().any(|own| own == word);
    let mut agree = |tag: &str, fact: bool, about: &str| {
        if has(tag) != fact {
            reasons.push(format!("the feature `{tag}` and {about} do not agree"));
        }
    };
    agree("thinking", entry.capabilities.thinking.range().is_some(), "`thinking`");
    agree("embeddings", entry.kind == ModelKind::Embedding, "its kind");
    agree("embeddings", gives("vector"), "its output");
    agree("image-output", gives("image"), "its output");
    agree("audio-output", gives("audio"), "its output");
    match entry.kind {
        ModelKind::Chat => {
            for (tag, word) in INPUT_FEATURES {
                agree(tag, takes(word), "its input");
            }
            if !takes("text") || !gives("text") {
                reasons.push("a chat model takes and gives text".into());
            }
        }
        ModelKind::Image => {
            if !gives("image") {
                reasons.push("an image model gives images".into());
            }
        }
        ModelKind::Embedding => {}
    }
}

fn check_limits(entry: &ModelEntry, reasons: &mut Vec<String>) {
    let (context, output) =
        (entry.capabilities.context_window, entry.capabilities.max_output_tokens);
    if let (Some(context), Some(output)) = (context, output)
        && context < output
    {
        reasons.push(format!("its answer of {output} tokens is longer than its window"));
    }
    if context.is_some_and(|tokens| !(500..=20_000_000).contains(&tokens)) {
        reasons.push("its window is beyond what exists".into());
    }
    if output.is_some_and(|tokens| tokens < 500) {
        reasons.push("its answer is too short".into());
    }
    if entry.kind == ModelKind::Chat && context.is_none() {
        reasons.push("its window is missing".into());
    }
    if let Some(thinking) = entry.capabilities.thinking.range() {
        if thinking.min.is_some() != thinking.max.is_some() || thinking.min > thinking.max {
            reasons.push("`thinking` has no range".into());
        }
        if !thinking.levels.is_sorted_by(|a, b| a < b) {
            reasons.push("the levels of `thinking` are not in their order".into());
        }
    }
}

fn check_texts(entry: &ModelEntry, today: &str, reasons: &mut Vec<String>) {
    let ModelEntry { id, about, as_of, released, retires, .. } = entry;
    let begins = about.starts_with(|c: char| c.is_uppercase() || c.is_ascii_digit());
    if !begins || !about.ends_with('.') || !(20..=300).contains(&about.len()) {
        reasons.push("`about` is not one or two sentences".into());
    }
    if !is_day(as_of) || !released.iter().chain(retires).all(|day| is_day(day)) {
        reasons.push("a date is not written as YYYY-MM-DD".into());
    }
    if as_of.as_str() > today {
        reasons.push(format!("`as_of` = {as_of} is in the future"));
    }
    if id.contains(char::is_whitespace) || !id.is_ascii() {
        reasons.push("its id has spaces or letters beyond ASCII".into());
    }
}

fn check_prices(entry: &ModelEntry, prices: &ModelPrices, reasons: &mut Vec<String>) {
    let rates = TokenRates {
        input: prices.input,
        output: prices.output,
        cached_input: prices.cached_input,
        cache_write: prices.cache_write,
        cache_write_long: prices.cache_write_long,
    };
    check_rates("", &rates, reasons);
    check_long("", &prices.long_prompts, reasons);
    for tier in &prices.tiers {
        let name = tier.tier.as_str();
        check_rates(name, &tier.rates, reasons);
        check_long(name, &tier.long_prompts, reasons);
        let (input, output) = (tier.rates.input, tier.rates.output);
        let fits = match tier.tier {
            BilledTier::Batch | BilledTier::Flex => input <= rates.input && output <= rates.output,
            BilledTier::Priority | BilledTier::Fast | BilledTier::Us | BilledTier::FastUs => {
                input >= rates.input && output >= rates.output
            }
        };
        if !fits {
            reasons.push(format!("the tier {name} is on the wrong side of the plain price"));
        }
    }
    for price in prices.dimensions() {
        let limit = if price.dimension.counts_tokens() { MAX_TOKEN_PRICE } else { MAX_UNIT_PRICE };
        if price.price > limit {
            reasons.push(format!("its price of {} is beyond what exists", price.name()));
        }
    }
    if prices.is_free() {
        reasons.push("it is free".into());
    }
    // A list of a few prices would leave the usual tokens unpaid.
    let has_other_price = prices.per_request.is_some() || prices.per_second.is_some();
    let has_free_tokens = prices.input == Price::FREE || prices.output == Price::FREE;
    if entry.kind == ModelKind::Chat && has_free_tokens && !has_other_price {
        reasons.push("its tokens have no price for input or output".into());
    }
    if prices.thinking == Some(Price::FREE) {
        reasons.push("its thinking is free".into());
    }
    // Images that are billed by their tokens may have the plain price of output.
    let has_image_price = prices.output > Price::FREE
        || prices.output_image.is_some()
        || prices.per_image.is_some()
        || !prices.images.is_empty()
        || prices.per_second.is_some()
        || prices.per_request.is_some();
    if entry.kind == ModelKind::Image && !has_image_price {
        reasons.push("an image model has no price for its images".into());
    }
}

fn check_rates(tier: &str, rates: &TokenRates, reasons: &mut Vec<String>) {
    let TokenRates { input, output, cached_input, cache_write, cache_write_long } = *rates;
    let mut refuse = |wrong: bool, reason: &str| {
        if wrong {
            let tier = if tier.is_empty() { String::new() } else { format!("{tier}: ") };
            reasons.push(format!("{tier}{reason}"));
        }
    };
    let times = |price: Price, factor: i64| Price::from_picos(price.as_picos() * factor);
    refuse(input >= MAX_TOKEN_PRICE || output >= MAX_TOKEN_PRICE, "a price is beyond what exists");
    refuse(cached_input.is_some_and(|price| price > input), "cached input is dearer than input");
    refuse(cache_write.is_some_and(|price| price > times(input, 2)), "cache_write is too dear");
    refuse(
        cache_write_long.is_some_and(|price| price > times(input, 3)),
        "cache_write_long is too dear",
    );
    refuse(
        cache_write_long.is_some_and(|price| Some(price) < cache_write),
        "cache_write_long is cheaper than cache_write",
    );
}

fn check_long(tier: &str, long: &[LongPromptPrices], reasons: &mut Vec<String>) {
    if !long.is_sorted_by(|a, b| a.above_tokens < b.above_tokens) {
        reasons.push("two prices of long prompts begin at the same length".into());
    }
    for step in long {
        if step.above_tokens < 1000 {
            reasons.push("a price of long prompts begins too early".into());
        }
        check_rates(tier, &step.rates, reasons);
    }
}

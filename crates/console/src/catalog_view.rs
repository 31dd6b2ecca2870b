//! A model's facts and prices as rows of a page.

use canon::Price;
use catalog::{
    BilledTier, LongPromptPrices, Model, ModelPrices, ThinkingRange, TierPrices, TokenRates,
};
use maud::{Markup, html};

use crate::display;

/// One line of a price table.
pub(crate) struct PriceRow {
    pub(crate) label: String,
    pub(crate) price: String,
    pub(crate) unit: &'static str,
}

const PER_MILLION_TOKENS: &str = "per million tokens";

fn price_row(what: impl Into<String>, price: String, unit: &'static str) -> PriceRow {
    PriceRow { label: what.into(), price, unit }
}

/// The plain prices of a model.
pub(crate) fn price_rows(prices: &ModelPrices) -> Vec<PriceRow> {
    // Named one by one, so that a new price cannot be forgotten here.
    let ModelPrices {
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
        long_prompts: _,
        tiers: _,
    } = prices;
    let mut rows = rate_rows(&TokenRates {
        input: *input,
        output: *output,
        cached_input: *cached_input,
        cache_write: *cache_write,
        cache_write_long: *cache_write_long,
    });
    let tokens = [
        ("Thinking", thinking),
        ("Audio input", input_audio),
        ("Audio output", output_audio),
        ("Image input", input_image),
        ("Image output", output_image),
        ("Images of a tool", tool_image),
    ];
    for (what, price) in tokens {
        rows.extend(
            price.map(|price| price_row(what, display::per_million(price), PER_MILLION_TOKENS)),
        );
    }
    let units = [
        ("Request", per_request, "each"),
        ("Request, few search results", per_request_low, "each"),
        ("Request, some search results", per_request_medium, "each"),
        ("Time", per_second, "per second"),
        ("Image", per_image, "each"),
        ("Search", per_search, "each"),
        ("File search", per_file_search, "each"),
        ("Run of code", per_code_run, "each"),
    ];
    for (what, price, unit) in units {
        rows.extend(price.map(|price| price_row(what, display::per_unit(price), unit)));
    }
    // An image billed by its tokens only has no price of its own.
    for picture in pictures.iter().filter(|picture| picture.price > Price::FREE) {
        let words = [&picture.size, &picture.quality].into_iter().flatten().cloned();
        let what = std::iter::once("Image".to_owned()).chain(words).collect::<Vec<_>>().join(", ");
        rows.push(price_row(what, display::per_unit(picture.price), "each"));
    }
    rows
}

fn rate_rows(rates: &TokenRates) -> Vec<PriceRow> {
    let TokenRates { input, output, cached_input, cache_write, cache_write_long } = rates;
    let mut rows = vec![
        price_row("Input", display::per_million(*input), PER_MILLION_TOKENS),
        price_row("Output", display::per_million(*output), PER_MILLION_TOKENS),
    ];
    let more = [
        ("Cached input", cached_input),
        ("Cache write", cache_write),
        ("Cache write, long", cache_write_long),
    ];
    for (what, price) in more {
        rows.extend(
            price.map(|price| price_row(what, display::per_million(price), PER_MILLION_TOKENS)),
        );
    }
    rows
}

/// Prices that replace the plain ones: for long prompts and for other service tiers.
pub(crate) fn other_prices(prices: &ModelPrices) -> Vec<(String, Vec<PriceRow>)> {
    let long = |long: &LongPromptPrices| {
        (
            format!("Prompts above {} tokens", display::count(long.above_tokens)),
            rate_rows(&long.rates),
        )
    };
    let mut groups: Vec<_> = prices.long_prompts.iter().map(long).collect();
    for TierPrices { tier: service, rates, long_prompts: longs } in &prices.tiers {
        let tier = match service {
            BilledTier::Batch => "Batch tier",
            BilledTier::Flex => "Flex tier",
            BilledTier::Priority => "Priority tier",
            BilledTier::Fast => "Fast tier",
            BilledTier::Us => "Served in the US",
            BilledTier::FastUs => "Fast tier, served in the US",
        };
        groups.push((tier.to_owned(), rate_rows(rates)));
        groups.extend(longs.iter().map(|one| {
            let (above, rows) = long(one);
            (format!("{tier}, {}", above.to_lowercase()), rows)
        }));
    }
    groups
}

/// Describes in one sentence how thinking can be controlled.
pub(crate) fn thinking_range(thinking: &ThinkingRange) -> String {
    let ThinkingRange { min, max, can_disable, dynamic, levels } = thinking;
    let mut parts = Vec::new();
    match (min, max) {
        (Some(min), Some(max)) => {
            parts.push(format!(
                "budget {} to {} tokens",
                display::count(*min),
                display::count(*max)
            ));
        }
        (None, Some(max)) => parts.push(format!("budget up to {} tokens", display::count(*max))),
        (Some(min), None) => parts.push(format!("budget from {} tokens", display::count(*min))),
        (None, None) => {}
    }
    if !levels.is_empty() {
        parts.push(format!("levels {}", levels.join(", ")));
    }
    if *dynamic {
        parts.push("can choose its own length".to_owned());
    }
    parts.push(if *can_disable { "can be switched off" } else { "always on" }.to_owned());
    let text = parts.join("; ");
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().collect::<String>() + letters.as_str()
    })
}

/// Renders at most `most` capability tags of a model, each with its description as the title.
pub(crate) fn features(model: &Model, most: usize) -> Markup {
    let more = model.features.len().saturating_sub(most);
    html! {
        @if !model.features.is_empty() {
            ul.tags {
                @for tag in model.features.iter().take(most) {
                    li title=[catalog::feature_about(tag)] { (tag) }
                }
                @if more > 0 { li.more { "+" (more) } }
            }
        }
    }
}

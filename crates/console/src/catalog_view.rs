//! A model's facts and prices as rows of a page.

use canon::{PriceDimension, SearchContext, ThinkingRange};
use catalog::{
    BilledTier, DimensionPrice, ImageCapabilities, MediaLimits, Model, ModelCapabilities,
    ModelPrices, ParameterRange, ParameterSupport, ThinkingSupport,
};
use maud::{Markup, html};

use crate::display;

/// One line of a price table.
pub(crate) struct PriceRow {
    pub(crate) label: String,
    pub(crate) price: String,
    pub(crate) unit: &'static str,
}

impl PriceRow {
    fn new(of: &DimensionPrice<'_>) -> Self {
        let (price, unit) = if of.dimension == PriceDimension::CacheStorage {
            (display::per_million(of.price), "per million tokens and hour")
        } else if of.dimension.counts_tokens() {
            (display::per_million(of.price), "per million tokens")
        } else if of.dimension == PriceDimension::Second {
            (display::per_unit(of.price), "per second")
        } else {
            (display::per_unit(of.price), "each")
        };
        let results = of.search_context.map(|amount| match amount {
            SearchContext::Low => "few search results",
            SearchContext::Medium => "some search results",
            SearchContext::High => "many search results",
        });
        let words = [Some(dimension_title(of.dimension)), results, of.size, of.quality];
        let label = words.into_iter().flatten().collect::<Vec<_>>().join(", ");
        Self { label, price, unit }
    }
}

const fn dimension_title(dimension: PriceDimension) -> &'static str {
    match dimension {
        PriceDimension::Input => "Input",
        PriceDimension::CachedInput => "Cached input",
        PriceDimension::CacheWrite => "Cache write",
        PriceDimension::CacheWriteLong => "Cache write, long",
        PriceDimension::InputAudio => "Audio input",
        PriceDimension::InputImage => "Image input",
        PriceDimension::Output => "Output",
        PriceDimension::Thinking => "Thinking",
        PriceDimension::OutputAudio => "Audio output",
        PriceDimension::OutputImage => "Image output",
        PriceDimension::Request => "Request",
        PriceDimension::Search => "Search",
        PriceDimension::Image => "Image",
        PriceDimension::Second => "Time",
        PriceDimension::FileSearch => "File search",
        PriceDimension::CodeRun => "Run of code",
        PriceDimension::ToolImage => "Images of a tool",
        PriceDimension::CacheStorage => "Cache storage",
    }
}

/// The plain prices of a model.
pub(crate) fn price_rows(prices: &ModelPrices) -> Vec<PriceRow> {
    prices.dimensions().iter().filter(|of| !of.is_replacement()).map(PriceRow::new).collect()
}

/// Prices that replace the plain ones: for long prompts and for other service tiers.
pub(crate) fn other_prices(prices: &ModelPrices) -> Vec<(String, Vec<PriceRow>)> {
    let mut groups: Vec<(String, Vec<PriceRow>)> = Vec::new();
    for of in prices.dimensions().iter().filter(|of| of.is_replacement()) {
        let title = replacement_title(of);
        match groups.last_mut().filter(|(last, _)| *last == title) {
            Some((_, rows)) => rows.push(PriceRow::new(of)),
            None => groups.push((title, vec![PriceRow::new(of)])),
        }
    }
    groups
}

fn replacement_title(of: &DimensionPrice<'_>) -> String {
    let tier = of.tier.map(|tier| match tier {
        BilledTier::Batch => "Batch tier",
        BilledTier::Flex => "Flex tier",
        BilledTier::Priority => "Priority tier",
        BilledTier::Fast => "Fast tier",
        BilledTier::Us => "Served in the US",
        BilledTier::FastUs => "Fast tier, served in the US",
    });
    let above = of.above_tokens.map(display::count);
    match (tier, above) {
        (Some(tier), Some(above)) => format!("{tier}, prompts above {above} tokens"),
        (Some(tier), None) => tier.to_owned(),
        (None, Some(above)) => format!("Prompts above {above} tokens"),
        (None, None) => String::new(),
    }
}

/// Describes the thinking of a model; `None` if it is unknown.
pub(crate) fn thinking_text(thinking: &ThinkingSupport) -> Option<String> {
    match thinking {
        ThinkingSupport::Unknown => None,
        ThinkingSupport::Never => Some("No".to_owned()),
        ThinkingSupport::Range(range) => Some(thinking_range(range)),
    }
}

/// Known capabilities of a model, apart from those of its pictures.
pub(crate) fn capability_rows(can: &ModelCapabilities) -> Vec<(&'static str, Option<String>)> {
    let tools = can.tools.as_ref().map(|tools| {
        let words: Vec<_> = tools.iter().map(|kind| kind.as_str()).collect();
        if words.is_empty() { "none".to_owned() } else { words.join(", ") }
    });
    let forms = can.structured_output.as_ref().map(|forms| {
        let words: Vec<_> = forms.iter().map(|form| form.as_str()).collect();
        if words.is_empty() { "no".to_owned() } else { words.join(", ") }
    });
    let parameters: Vec<_> =
        can.parameters.iter().map(|(name, support)| parameter_text(name, *support)).collect();
    let limits: Vec<_> = can
        .media_limits
        .iter()
        .map(|(word, limits)| format!("{word}: {}", limits_text(limits)))
        .collect();
    let dimensions = can.dimensions.as_ref().map(|lengths| match lengths.default {
        Some(usual) => format!("{lengths}, {usual} if not given"),
        None => lengths.to_string(),
    });
    vec![
        ("Tools", tools),
        ("Structured output", forms),
        ("Parameters", (!parameters.is_empty()).then(|| parameters.join("; "))),
        ("Answers per call", can.candidates.map(|most| format!("up to {most}"))),
        ("Media limits", (!limits.is_empty()).then(|| limits.join("; "))),
        ("Vector length", dimensions),
    ]
}

fn parameter_text(name: &str, support: ParameterSupport) -> String {
    let ParameterSupport::Supported(ParameterRange { min, max, default }) = support else {
        return format!("no {name}");
    };
    let range = match (min, max) {
        (Some(min), Some(max)) => format!(" {min} to {max}"),
        (None, Some(max)) => format!(" up to {max}"),
        (Some(min), None) => format!(" from {min}"),
        (None, None) => String::new(),
    };
    let usual = default.map(|default| format!(" ({default} if not given)")).unwrap_or_default();
    format!("{name}{range}{usual}")
}

fn limits_text(limits: &MediaLimits) -> String {
    let MediaLimits { max_count, max_bytes, max_seconds, max_pages, types } = limits;
    let numbers = [
        (max_count, "files"),
        (max_bytes, "bytes each"),
        (max_seconds, "seconds"),
        (max_pages, "pages"),
    ];
    let numbers = numbers.into_iter().filter_map(|(number, unit)| {
        number.map(|number| format!("{} {unit}", display::count(number)))
    });
    numbers.chain(types.iter().cloned()).collect::<Vec<_>>().join(", ")
}

/// Describes in one sentence how thinking can be controlled.
fn thinking_range(thinking: &ThinkingRange) -> String {
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
        let words: Vec<_> = levels.iter().map(|level| level.as_str()).collect();
        parts.push(format!("levels {}", words.join(", ")));
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

/// Known image capabilities of a model.
pub(crate) fn image_rows(images: &ImageCapabilities) -> Vec<(&'static str, Option<String>)> {
    // Named one by one, so that a new capability cannot be forgotten here.
    let ImageCapabilities {
        family: _,
        sizes: _,
        classes: _,
        any: _,
        ratios,
        qualities,
        formats,
        backgrounds,
        most,
        inputs,
        edits,
        mask,
        partials,
        tokens,
    } = images;
    let words = |words: &[String]| (!words.is_empty()).then(|| words.join(", "));
    let up_to = |count: u64| format!("up to {}", display::count(count));
    let sizes = Some(images.describe_sizes()).filter(|sizes| !sizes.is_empty());
    let inputs = inputs.and_then(|inputs| u64::try_from(inputs).ok());
    let takes_inputs = inputs.is_some_and(|inputs| inputs > 0);
    let mut tokens: Vec<_> = tokens.iter().collect();
    tokens.sort_by_key(|(_, count)| **count);
    let tokens: Vec<_> =
        tokens.iter().map(|(word, count)| format!("{word} {}", display::count(**count))).collect();
    vec![
        ("Image sizes", sizes),
        ("Aspect ratios", words(ratios)),
        ("Qualities", words(qualities)),
        ("File formats", words(formats)),
        ("Backgrounds", words(backgrounds)),
        ("Images per call", most.map(|most| up_to(most.into()))),
        (
            "Input images",
            inputs.map(|inputs| if takes_inputs { up_to(inputs) } else { "none".to_owned() }),
        ),
        ("Edits", edits.map(|edits| if edits { "yes" } else { "no" }.to_owned())),
        ("Masks", takes_inputs.then(|| if *mask { "yes" } else { "no" }.to_owned())),
        ("Partial images", (*partials > 0).then(|| up_to(*partials))),
        ("Tokens of 1024x1024", words(&tokens)),
    ]
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

//! Laws of money: whatever the figures, costs add up, grow with use and stay below their bound.

use canon::{Charge, Money, Price, SearchContext, ServiceTier, ToolUses, Usage};
use catalog::{
    BilledTier, BilledUnits, ImagePrice, ImageSpec, LongPromptPrices, ModelPrices, TierPrices,
    TokenRates,
};
use proptest::option;
use proptest::prelude::*;

fn price() -> impl Strategy<Value = Price> {
    prop_oneof![Just(0), 0..10_000_i64, 0..500_000_000_i64].prop_map(Price::from_picos)
}

fn rates() -> impl Strategy<Value = TokenRates> {
    (price(), price(), [option::of(price()), option::of(price()), option::of(price())]).prop_map(
        |(input, output, [cached_input, cache_write, cache_write_long])| TokenRates {
            input,
            output,
            cached_input,
            cache_write,
            cache_write_long,
        },
    )
}

fn tiers() -> impl Strategy<Value = Vec<LongPromptPrices>> {
    let tier = (0..400_000_u64, rates())
        .prop_map(|(above, rates)| LongPromptPrices { above_tokens: above, rates });
    proptest::collection::vec(tier, 0..3)
}

fn word(words: &'static [&'static str]) -> impl Strategy<Value = Option<String>> {
    option::of(proptest::sample::select(words).prop_map(str::to_owned))
}

const SIZES: &[&str] = &["1K", "2K", "4K"];
const QUALITIES: &[&str] = &["low", "high"];

fn pictures() -> impl Strategy<Value = Vec<ImagePrice>> {
    let row = (word(SIZES), word(QUALITIES), price(), 0..9_000_u64)
        .prop_map(|(size, quality, price, tokens)| ImagePrice { size, quality, price, tokens });
    proptest::collection::vec(row, 0..5)
}

fn services() -> impl Strategy<Value = Vec<TierPrices>> {
    let service = proptest::sample::select(BilledTier::ALL.to_vec());
    let tier = (service, rates(), tiers()).prop_map(|(service, rates, long)| TierPrices {
        tier: service,
        rates,
        long_prompts: long,
    });
    proptest::collection::vec(tier, 0..4).prop_map(|mut tiers| {
        tiers.sort_by_key(|tier| tier.tier);
        tiers.dedup_by_key(|tier| tier.tier);
        tiers
    })
}

fn tier() -> impl Strategy<Value = ServiceTier> {
    proptest::sample::select(vec![
        ServiceTier::Auto,
        ServiceTier::Standard,
        ServiceTier::Flex,
        ServiceTier::Priority,
        ServiceTier::Fast,
        ServiceTier::Other(canon::WireFormat::Messages, "batch".to_owned()),
        ServiceTier::Other(canon::WireFormat::Chat, "scale".to_owned()),
    ])
}

fn prices() -> impl Strategy<Value = ModelPrices> {
    let modalities = proptest::array::uniform5(option::of(price()));
    let units = proptest::array::uniform7(option::of(price()));
    let more = (tiers(), pictures(), services());
    (rates(), modalities, units, more).prop_map(
        |(rates, modalities, units, (long, pictures, services))| {
            let [thinking, input_audio, output_audio, input_image, output_image] = modalities;
            let [per_request, per_second, per_image, per_search, file_search, code, image] = units;
            ModelPrices {
                version: canon::SharedText::default(),
                input: rates.input,
                output: rates.output,
                cached_input: rates.cached_input,
                cache_write: rates.cache_write,
                cache_write_long: rates.cache_write_long,
                thinking,
                input_audio,
                output_audio,
                input_image,
                output_image,
                per_request,
                per_request_low: None,
                per_request_medium: None,
                per_second,
                per_image,
                per_search,
                per_file_search: file_search,
                per_code_run: code,
                tool_image: image,
                cache_storage: code,
                images: pictures,
                long_prompts: long,
                tiers: services,
            }
        },
    )
}

/// Prices that depend on nothing but counts: no tiers, no price per call.
fn linear() -> impl Strategy<Value = ModelPrices> {
    prices().prop_map(|prices| ModelPrices { long_prompts: vec![], per_request: None, ..prices })
}

/// Counts whose parts do not overlap, so that each token has one price.
fn disjoint() -> impl Strategy<Value = Usage> {
    (proptest::array::uniform6(0..200_000_u64), proptest::array::uniform5(0..50_000_u64)).prop_map(
        |([fresh, read, write, write_long, audio, image], [text, thinking, voice, picture, n])| {
            Usage {
                input: fresh + read + write + write_long + audio + image,
                cache_read: read,
                cache_write: write,
                cache_write_long: write_long,
                input_audio: audio,
                input_image: image,
                input_video: 0,
                output: text + thinking + voice + picture,
                thinking,
                output_audio: voice,
                output_image: picture,
                searches: n % 7,
                images: 0,
                seconds: 0,
                cache_storage: n % 11,
                tools: ToolUses { file_searches: n % 5, code_runs: n % 3, image_tokens: n },
                search_context: SearchContext::High,
                bill: None,
            }
        },
    )
}

/// Counts of any kind, contradictory ones and absurdly large ones included.
fn any_usage() -> impl Strategy<Value = Usage> {
    let count = || prop_oneof![0..1000_u64, 0..2_000_000_u64, any::<u64>()];
    let six = || [count(), count(), count(), count(), count(), count()];
    (six(), six()).prop_map(
        |(
            [input, read, write, write_long, audio, image],
            [output, thinking, voice, picture, n, _],
        )| {
            Usage {
                input,
                cache_read: read,
                cache_write: write,
                cache_write_long: write_long,
                input_audio: audio,
                input_image: image,
                input_video: 0,
                output,
                thinking,
                output_audio: voice,
                output_image: picture,
                searches: n % 1000,
                images: 0,
                seconds: 0,
                cache_storage: n % 11,
                tools: ToolUses { file_searches: n % 9, code_runs: n % 8, image_tokens: n },
                search_context: SearchContext::High,
                bill: None,
            }
        },
    )
}

fn sum(a: &Usage, b: &Usage) -> Usage {
    Usage {
        input: a.input + b.input,
        cache_read: a.cache_read + b.cache_read,
        cache_write: a.cache_write + b.cache_write,
        cache_write_long: a.cache_write_long + b.cache_write_long,
        input_audio: a.input_audio + b.input_audio,
        input_image: a.input_image + b.input_image,
        input_video: a.input_video + b.input_video,
        output: a.output + b.output,
        thinking: a.thinking + b.thinking,
        output_audio: a.output_audio + b.output_audio,
        output_image: a.output_image + b.output_image,
        searches: a.searches + b.searches,
        images: a.images + b.images,
        seconds: a.seconds + b.seconds,
        cache_storage: a.cache_storage + b.cache_storage,
        tools: a.tools.plus(b.tools),
        search_context: SearchContext::High,
        bill: None,
    }
}

proptest! {
    #[test]
    fn two_calls_cost_what_one_call_of_both_costs_but_for_rounding(
        prices in linear(), a in disjoint(), b in disjoint(),
    ) {
        let apart = prices.cost(&a).as_nanos() + prices.cost(&b).as_nanos();
        let together = prices.cost(&sum(&a, &b)).as_nanos();
        prop_assert!((0..=1).contains(&(apart - together)), "{apart} {together}");
    }

    #[test]
    fn more_use_never_costs_less(prices in linear(), a in disjoint(), b in disjoint()) {
        prop_assert!(prices.cost(&a) <= prices.cost(&sum(&a, &b)));
    }

    #[test]
    fn a_call_never_costs_more_than_its_bound(prices in prices(), usage in any_usage()) {
        let (searches, tools) = (usage.searches, usage.tools);
        let cache_storage = usage.cache_storage;
        let units = BilledUnits { searches, cache_storage, tools, ..BilledUnits::default() };
        let bound = prices.max_cost_with(usage.input, usage.output, &units);
        prop_assert!(prices.cost(&usage) <= bound, "{} > {bound}", prices.cost(&usage));
    }

    #[test]
    fn without_searches_tokens_alone_bound_a_call(prices in prices(), usage in any_usage()) {
        let usage = Usage { searches: 0, cache_storage: 0, tools: ToolUses::default(), ..usage };
        prop_assert!(prices.cost(&usage) <= prices.max_cost(usage.input, usage.output));
    }

    #[test]
    fn what_is_used_beyond_tokens_is_bounded_too(
        prices in prices(), usage in disjoint(), images in 0..20_u64, seconds in 0..600_u64,
    ) {
        let (searches, tools) = (usage.searches, usage.tools);
        let cache_storage = usage.cache_storage;
        let units =
            BilledUnits { searches, images, seconds, cache_storage, tools, ..BilledUnits::default() };
        let bound = prices.max_cost_with(usage.input, usage.output, &units);
        prop_assert!(prices.cost_with(&usage, &units) <= bound);
        prop_assert!(prices.cost(&usage) <= prices.cost_with(&usage, &units));
        let told = Usage { images, seconds, ..usage };
        prop_assert_eq!(prices.cost(&told), prices.cost_with(&usage, &units));
    }

    #[test]
    fn a_picture_never_costs_more_than_what_was_asked_for(
        prices in prices(), n in 1..10_u64, asked in (word(SIZES), word(QUALITIES)),
        made in (proptest::sample::select(SIZES), proptest::sample::select(QUALITIES)),
    ) {
        let image = ImageSpec { size: asked.0.as_deref(), quality: asked.1.as_deref() };
        let most = prices.max_cost_with(0, 0, &BilledUnits { images: n, image, ..BilledUnits::default() });
        // The provider chooses a value that was left open.
        let size = asked.0.as_deref().unwrap_or(made.0);
        let quality = asked.1.as_deref().unwrap_or(made.1);
        let image = ImageSpec { size: Some(size), quality: Some(quality) };
        let drawn = Usage { images: n, output: n * prices.image_rate(image).tokens, ..Usage::default() };
        let units = BilledUnits { image, ..BilledUnits::default() };
        prop_assert!(prices.cost_with(&drawn, &units) <= most);
    }

    #[test]
    fn whatever_tier_is_given_the_bound_of_the_one_asked_for_covers_it(
        prices in prices(), usage in any_usage(), asked in tier(), given in tier(),
    ) {
        let usage = Usage { searches: 0, cache_storage: 0, tools: ToolUses::default(), ..usage };
        let may_be = match &asked {
            ServiceTier::Standard => vec![ServiceTier::Standard],
            ServiceTier::Flex | ServiceTier::Priority => vec![ServiceTier::Standard, asked.clone()],
            ServiceTier::Auto | ServiceTier::Fast | ServiceTier::Other(..) => vec![given],
        };
        let units = BilledUnits { tier: Some(&asked), ..BilledUnits::default() };
        let bound = prices.max_cost_with(usage.input, usage.output, &units);
        for given in &may_be {
            let units = BilledUnits { tier: Some(given), ..BilledUnits::default() };
            prop_assert!(prices.cost_with(&usage, &units) <= bound, "{given:?}");
        }
    }

    #[test]
    fn the_parts_of_a_cost_are_the_cost_rounded_once(
        prices in prices(), usage in any_usage(), given in tier(), images in 0..5_u64,
    ) {
        let units = BilledUnits { tier: Some(&given), images, ..BilledUnits::default() };
        let charges = prices.charges(&usage, &units);
        prop_assert_eq!(Charge::total(&charges), prices.cost_with(&usage, &units));
        for (at, charge) in charges.iter().enumerate() {
            prop_assert!(charge.count > 0 && charge.price > Price::FREE);
            prop_assert!(charges[..at].iter().all(|other| other.dimension != charge.dimension));
        }
        let text = serde_json::to_string(&charges).unwrap();
        prop_assert_eq!(serde_json::from_str::<Vec<Charge>>(&text).unwrap(), charges);
    }

    #[test]
    fn a_wider_bound_is_never_lower(
        prices in prices(), input in 0..1_000_000_u64, output in 0..100_000_u64,
        more in 0..1_000_000_u64,
    ) {
        let bound = prices.max_cost(input, output);
        prop_assert!(bound <= prices.max_cost(input + more, output));
        prop_assert!(bound <= prices.max_cost(input, output + more));
    }

    #[test]
    fn equal_figures_have_equal_versions_and_others_do_not(a in prices(), b in prices()) {
        let version = a.clone().versioned().version;
        prop_assert_eq!(&version, &ModelPrices { version: "x".into(), ..a.clone() }.versioned().version);
        if a != b {
            prop_assert_ne!(version, b.versioned().version);
        }
    }
}

fn per_million(text: &str) -> Option<Price> {
    Price::parse_per_million(text).ok()
}

#[test]
fn a_dimension_without_a_price_costs_what_its_whole_costs() {
    let prices = ModelPrices::plain(Price::from_picos(3_000_000), Price::from_picos(15_000_000));
    let all_plain = Usage { input: 1000, output: 100, ..Usage::default() };
    let all_special = Usage {
        cache_read: 200,
        cache_write: 200,
        cache_write_long: 200,
        input_audio: 200,
        input_image: 200,
        thinking: 40,
        output_audio: 30,
        output_image: 30,
        ..all_plain
    };
    assert_eq!(prices.cost(&all_plain), prices.cost(&all_special));
    assert_eq!(prices.cost(&all_plain).to_string(), "0.004500000");
}

#[test]
fn a_cached_prompt_costs_its_parts() {
    let prices = ModelPrices {
        cached_input: per_million("0.30"),
        cache_write: per_million("3.75"),
        cache_write_long: per_million("6.00"),
        ..ModelPrices::plain(Price::from_picos(3_000_000), Price::from_picos(15_000_000))
    };
    let usage = Usage {
        input: 10_000,
        cache_read: 6_000,
        cache_write: 2_000,
        cache_write_long: 1_000,
        output: 500,
        ..Usage::default()
    };
    // 1000 × 3 + 6000 × 0.3 + 2000 × 3.75 + 1000 × 6 + 500 × 15, in millionths of a dollar
    assert_eq!(prices.cost(&usage).to_string(), "0.025800000");
}

#[test]
fn a_long_prompt_is_charged_at_its_tier_from_the_first_token() {
    let rates = TokenRates {
        input: Price::from_picos(6_000_000),
        output: Price::from_picos(22_500_000),
        ..TokenRates::default()
    };
    let prices = ModelPrices {
        long_prompts: vec![LongPromptPrices { above_tokens: 200_000, rates }],
        ..ModelPrices::plain(Price::from_picos(3_000_000), Price::from_picos(15_000_000))
    };
    let at = |input| prices.cost(&Usage { input, ..Usage::default() }).to_string();
    assert_eq!(at(200_000), "0.600000000");
    assert_eq!(at(200_001), "1.200006000");
}

#[test]
fn a_price_per_call_is_charged_once_and_searches_each() {
    let prices = ModelPrices {
        per_request: Price::parse_per_unit("0.005").ok(),
        per_search: Price::parse_per_unit("0.01").ok(),
        per_image: Price::parse_per_unit("0.04").ok(),
        ..ModelPrices::default()
    };
    let usage = Usage { searches: 3, ..Usage::default() };
    assert_eq!(prices.cost(&usage).to_string(), "0.035000000");
    let units = BilledUnits { searches: 2, images: 2, seconds: 9, ..BilledUnits::default() };
    assert_eq!(prices.cost_with(&usage, &units).to_string(), "0.115000000");
    assert_eq!(prices.max_cost(0, 0).to_string(), "0.005000000");
}

#[test]
fn tools_of_a_provider_are_charged_by_their_uses() {
    let prices = ModelPrices {
        per_file_search: Price::parse_per_unit("0.0025").ok(),
        per_code_run: Price::parse_per_unit("0.03").ok(),
        tool_image: Some(Price::from_picos(30_000_000)),
        ..ModelPrices::default()
    };
    let tools = ToolUses { file_searches: 2, code_runs: 1, image_tokens: 1_000 };
    let usage = Usage { tools, ..Usage::default() };
    assert_eq!(prices.cost(&usage).to_string(), "0.065000000");
    let units = BilledUnits { tools, ..BilledUnits::default() };
    assert_eq!(prices.max_cost_with(0, 0, &units), prices.cost(&usage));
    assert!(!prices.is_free());
}

#[test]
fn a_tier_scales_the_modalities_with_the_text() {
    let rates = TokenRates {
        input: Price::from_picos(540),
        output: Price::from_picos(4500),
        ..TokenRates::default()
    };
    let prices = ModelPrices {
        input_audio: Some(Price::from_picos(1000)),
        tiers: vec![TierPrices { tier: BilledTier::Priority, rates, long_prompts: vec![] }],
        ..ModelPrices::plain(Price::from_picos(300), Price::from_picos(2500))
    };
    let heard = Usage { input: 1000, input_audio: 1000, ..Usage::default() };
    let cost = |tier: ServiceTier| {
        prices.cost_with(&heard, &BilledUnits { tier: Some(&tier), ..BilledUnits::default() })
    };
    assert_eq!(cost(ServiceTier::Priority), Money::from_nanos(1800));
    // Without prices of its own a tier is paid as the plain one.
    assert_eq!(cost(ServiceTier::Flex), Money::from_nanos(1000));
}

#[test]
fn a_picture_costs_what_its_size_and_quality_say() {
    let row = |size: Option<&str>, quality: Option<&str>, nanos: i64| ImagePrice {
        size: size.map(str::to_owned),
        quality: quality.map(str::to_owned),
        price: Price::from_picos(nanos * 1000),
        tokens: 0,
    };
    let prices = ModelPrices {
        images: vec![
            row(Some("1K"), Some("low"), 1),
            row(Some("1K"), Some("high"), 5),
            row(None, Some("low"), 3),
        ],
        ..ModelPrices::default()
    };
    let one = |size, quality| {
        let picture = ImageSpec::from_request(size, quality);
        prices.cost_with(
            &Usage { images: 1, ..Usage::default() },
            &BilledUnits { image: picture, ..BilledUnits::default() },
        )
    };
    assert_eq!(one(Some("1k"), Some("low")), Money::from_nanos(1));
    assert_eq!(one(Some("4K"), Some("low")), Money::from_nanos(3));
    assert_eq!(one(Some("1K"), Some("auto")), Money::from_nanos(5));
    assert_eq!(one(None, None), Money::from_nanos(5));
    // Nothing on record: the dearest of what is near.
    assert_eq!(one(Some("1K"), Some("ultra")), Money::from_nanos(5));
}

#[test]
fn free_means_nothing_is_ever_charged() {
    assert!(ModelPrices::default().is_free());
    assert!(
        !ModelPrices { per_image: Some(Price::from_picos(1000)), ..ModelPrices::default() }
            .is_free()
    );
    assert_eq!(ModelPrices::default().max_cost(u64::MAX, u64::MAX), Money::ZERO);
}

//! Laws of money: whatever the figures, costs add up, grow with use and stay below their bound.

use canon::{Charge, Money, Price, Tier, Usage};
use catalog::{LongPrices, Picture, PicturePrice, Prices, Rates, Service, ServicePrices, Units};
use proptest::option;
use proptest::prelude::*;

fn price() -> impl Strategy<Value = Price> {
    prop_oneof![Just(0), 0..10_000_i64, 0..500_000_000_i64].prop_map(Price::picos)
}

fn rates() -> impl Strategy<Value = Rates> {
    (price(), price(), [option::of(price()), option::of(price()), option::of(price())]).prop_map(
        |(input, output, [cached_input, cache_write, cache_write_long])| Rates {
            input,
            output,
            cached_input,
            cache_write,
            cache_write_long,
        },
    )
}

fn tiers() -> impl Strategy<Value = Vec<LongPrices>> {
    let tier = (0..400_000_u64, rates()).prop_map(|(above, rates)| LongPrices { above, rates });
    proptest::collection::vec(tier, 0..3)
}

fn word(words: &'static [&'static str]) -> impl Strategy<Value = Option<String>> {
    option::of(proptest::sample::select(words).prop_map(str::to_owned))
}

const SIZES: &[&str] = &["1K", "2K", "4K"];
const QUALITIES: &[&str] = &["low", "high"];

fn pictures() -> impl Strategy<Value = Vec<PicturePrice>> {
    let row = (word(SIZES), word(QUALITIES), price(), 0..9_000_u64)
        .prop_map(|(size, quality, price, tokens)| PicturePrice { size, quality, price, tokens });
    proptest::collection::vec(row, 0..5)
}

fn services() -> impl Strategy<Value = Vec<ServicePrices>> {
    let service = proptest::sample::select(Service::ALL.to_vec());
    let tier = (service, rates(), tiers()).prop_map(|(service, rates, long)| ServicePrices {
        service,
        rates,
        long,
    });
    proptest::collection::vec(tier, 0..4).prop_map(|mut tiers| {
        tiers.sort_by_key(|tier| tier.service);
        tiers.dedup_by_key(|tier| tier.service);
        tiers
    })
}

fn tier() -> impl Strategy<Value = Tier> {
    proptest::sample::select(vec![
        Tier::Auto,
        Tier::Standard,
        Tier::Flex,
        Tier::Priority,
        Tier::Fast,
        Tier::Other(canon::Origin::Messages, "batch".to_owned()),
        Tier::Other(canon::Origin::Chat, "scale".to_owned()),
    ])
}

fn prices() -> impl Strategy<Value = Prices> {
    let modalities = proptest::array::uniform5(option::of(price()));
    let units = proptest::array::uniform4(option::of(price()));
    let more = (tiers(), pictures(), services());
    (rates(), modalities, units, more).prop_map(
        |(rates, modalities, units, (long, pictures, services))| {
            let [thinking, input_audio, output_audio, input_image, output_image] = modalities;
            let [per_request, per_second, per_image, per_search] = units;
            Prices {
                version: String::new(),
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
                per_second,
                per_image,
                per_search,
                pictures,
                long,
                services,
            }
        },
    )
}

/// Prices that depend on nothing but counts: no tiers, no price per call.
fn linear() -> impl Strategy<Value = Prices> {
    prices().prop_map(|prices| Prices { long: vec![], per_request: None, ..prices })
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
                output: text + thinking + voice + picture,
                thinking,
                output_audio: voice,
                output_image: picture,
                searches: n % 7,
                images: 0,
                seconds: 0,
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
                output,
                thinking,
                output_audio: voice,
                output_image: picture,
                searches: n % 1000,
                images: 0,
                seconds: 0,
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
        output: a.output + b.output,
        thinking: a.thinking + b.thinking,
        output_audio: a.output_audio + b.output_audio,
        output_image: a.output_image + b.output_image,
        searches: a.searches + b.searches,
        images: a.images + b.images,
        seconds: a.seconds + b.seconds,
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
        let units = Units { searches: usage.searches, ..Units::default() };
        let bound = prices.bound_with(usage.input, usage.output, &units);
        prop_assert!(prices.cost(&usage) <= bound, "{} > {bound}", prices.cost(&usage));
    }

    #[test]
    fn without_searches_tokens_alone_bound_a_call(prices in prices(), usage in any_usage()) {
        let usage = Usage { searches: 0, ..usage };
        prop_assert!(prices.cost(&usage) <= prices.bound(usage.input, usage.output));
    }

    #[test]
    fn what_is_used_beyond_tokens_is_bounded_too(
        prices in prices(), usage in disjoint(), images in 0..20_u64, seconds in 0..600_u64,
    ) {
        let units = Units { searches: usage.searches, images, seconds, ..Units::default() };
        let bound = prices.bound_with(usage.input, usage.output, &units);
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
        let picture = Picture { size: asked.0.as_deref(), quality: asked.1.as_deref() };
        let most = prices.bound_with(0, 0, &Units { images: n, picture, ..Units::default() });
        // What was left open is for the provider to choose.
        let size = asked.0.as_deref().unwrap_or(made.0);
        let quality = asked.1.as_deref().unwrap_or(made.1);
        let picture = Picture { size: Some(size), quality: Some(quality) };
        let drawn = Usage { images: n, output: n * prices.picture(picture).tokens, ..Usage::default() };
        let units = Units { picture, ..Units::default() };
        prop_assert!(prices.cost_with(&drawn, &units) <= most);
    }

    #[test]
    fn whatever_tier_is_given_the_bound_of_the_one_asked_for_covers_it(
        prices in prices(), usage in any_usage(), asked in tier(), given in tier(),
    ) {
        let usage = Usage { searches: 0, ..usage };
        let may_be = match &asked {
            Tier::Standard => vec![Tier::Standard],
            Tier::Flex | Tier::Priority => vec![Tier::Standard, asked.clone()],
            Tier::Auto | Tier::Fast | Tier::Other(..) => vec![given],
        };
        let units = Units { tier: Some(&asked), ..Units::default() };
        let bound = prices.bound_with(usage.input, usage.output, &units);
        for given in &may_be {
            let units = Units { tier: Some(given), ..Units::default() };
            prop_assert!(prices.cost_with(&usage, &units) <= bound, "{given:?}");
        }
    }

    #[test]
    fn the_parts_of_a_cost_are_the_cost_rounded_once(
        prices in prices(), usage in any_usage(), given in tier(), images in 0..5_u64,
    ) {
        let units = Units { tier: Some(&given), images, ..Units::default() };
        let charges = prices.charges(&usage, &units);
        prop_assert_eq!(Charge::sum(&charges), prices.cost_with(&usage, &units));
        for (at, charge) in charges.iter().enumerate() {
            prop_assert!(charge.count > 0 && charge.price > Price::FREE);
            prop_assert!(charges[..at].iter().all(|other| other.of != charge.of));
        }
        let text = serde_json::to_string(&charges).unwrap();
        prop_assert_eq!(serde_json::from_str::<Vec<Charge>>(&text).unwrap(), charges);
    }

    #[test]
    fn a_wider_bound_is_never_lower(
        prices in prices(), input in 0..1_000_000_u64, output in 0..100_000_u64,
        more in 0..1_000_000_u64,
    ) {
        let bound = prices.bound(input, output);
        prop_assert!(bound <= prices.bound(input + more, output));
        prop_assert!(bound <= prices.bound(input, output + more));
    }

    #[test]
    fn equal_figures_have_equal_versions_and_others_do_not(a in prices(), b in prices()) {
        let version = a.clone().versioned().version;
        prop_assert_eq!(&version, &Prices { version: "x".into(), ..a.clone() }.versioned().version);
        if a != b {
            prop_assert_ne!(version, b.versioned().version);
        }
    }
}

fn per_million(text: &str) -> Option<Price> {
    Price::per_million(text).ok()
}

#[test]
fn a_dimension_without_a_price_costs_what_its_whole_costs() {
    let prices = Prices::plain(Price::picos(3_000_000), Price::picos(15_000_000));
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
    let prices = Prices {
        cached_input: per_million("0.30"),
        cache_write: per_million("3.75"),
        cache_write_long: per_million("6.00"),
        ..Prices::plain(Price::picos(3_000_000), Price::picos(15_000_000))
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
    let rates = Rates {
        input: Price::picos(6_000_000),
        output: Price::picos(22_500_000),
        ..Rates::default()
    };
    let prices = Prices {
        long: vec![LongPrices { above: 200_000, rates }],
        ..Prices::plain(Price::picos(3_000_000), Price::picos(15_000_000))
    };
    let at = |input| prices.cost(&Usage { input, ..Usage::default() }).to_string();
    assert_eq!(at(200_000), "0.600000000");
    assert_eq!(at(200_001), "1.200006000");
}

#[test]
fn a_price_per_call_is_charged_once_and_searches_each() {
    let prices = Prices {
        per_request: Price::per_unit("0.005").ok(),
        per_search: Price::per_unit("0.01").ok(),
        per_image: Price::per_unit("0.04").ok(),
        ..Prices::default()
    };
    let usage = Usage { searches: 3, ..Usage::default() };
    assert_eq!(prices.cost(&usage).to_string(), "0.035000000");
    let units = Units { searches: 2, images: 2, seconds: 9, ..Units::default() };
    assert_eq!(prices.cost_with(&usage, &units).to_string(), "0.115000000");
    assert_eq!(prices.bound(0, 0).to_string(), "0.005000000");
}

#[test]
fn a_tier_scales_the_modalities_with_the_text() {
    let rates = Rates { input: Price::picos(540), output: Price::picos(4500), ..Rates::default() };
    let prices = Prices {
        input_audio: Some(Price::picos(1000)),
        services: vec![ServicePrices { service: Service::Priority, rates, long: vec![] }],
        ..Prices::plain(Price::picos(300), Price::picos(2500))
    };
    let heard = Usage { input: 1000, input_audio: 1000, ..Usage::default() };
    let cost =
        |tier: Tier| prices.cost_with(&heard, &Units { tier: Some(&tier), ..Units::default() });
    assert_eq!(cost(Tier::Priority), Money::nanos(1800));
    // Without prices of its own a tier is paid as the plain one.
    assert_eq!(cost(Tier::Flex), Money::nanos(1000));
}

#[test]
fn a_picture_costs_what_its_size_and_quality_say() {
    let row = |size: Option<&str>, quality: Option<&str>, nanos: i64| PicturePrice {
        size: size.map(str::to_owned),
        quality: quality.map(str::to_owned),
        price: Price::picos(nanos * 1000),
        tokens: 0,
    };
    let prices = Prices {
        pictures: vec![
            row(Some("1K"), Some("low"), 1),
            row(Some("1K"), Some("high"), 5),
            row(None, Some("low"), 3),
        ],
        ..Prices::default()
    };
    let one = |size, quality| {
        let picture = Picture::asked(size, quality);
        prices.cost_with(
            &Usage { images: 1, ..Usage::default() },
            &Units { picture, ..Units::default() },
        )
    };
    assert_eq!(one(Some("1k"), Some("low")), Money::nanos(1));
    assert_eq!(one(Some("4K"), Some("low")), Money::nanos(3));
    assert_eq!(one(Some("1K"), Some("auto")), Money::nanos(5));
    assert_eq!(one(None, None), Money::nanos(5));
    // Nothing on record: the dearest of what is near.
    assert_eq!(one(Some("1K"), Some("ultra")), Money::nanos(5));
}

#[test]
fn free_means_nothing_is_ever_charged() {
    assert!(Prices::default().is_free());
    assert!(!Prices { per_image: Some(Price::picos(1000)), ..Prices::default() }.is_free());
    assert_eq!(Prices::default().bound(u64::MAX, u64::MAX), Money::ZERO);
}

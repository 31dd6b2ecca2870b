//! The catalog: what is listed, in which order, on which page, in which shape.

use std::collections::BTreeSet;
use std::sync::Arc;

use canon::{Money, Price, PriceDimension, ServiceTier, Usage};
use catalog::{
    BilledTier, BilledUnits, Catalog, ImagePrice, Lane, LongPromptPrices, Model, ModelCapabilities,
    ModelCounts, ModelDirectory, ModelFilter, ModelKind, ModelListing, ModelPrices, TierPrices,
    TokenRates,
};
use proptest::prelude::*;

fn model(id: &str, provider: &str) -> Model {
    Model {
        aliases: vec![],
        id: id.into(),
        provider: provider.into(),
        provider_name: provider.into(),
        kind: ModelKind::Chat,
        features: vec!["streaming".into(), "tools".into()],
        capabilities: ModelCapabilities::default(),
        counts: ModelCounts::default(),
        prices: Arc::new(ModelPrices::plain(Price::from_picos(100_000), Price::from_picos(37_500))),
        about: "A model for tests.".into(),
        as_of: "2026-01-01".into(),
        released: None,
        retires: None,
        lanes: vec![Lane::new(provider, id)],
    }
}

fn everything() -> Catalog {
    Catalog::new(
        ModelDirectory::embedded().models().filter_map(|e| e.served_by(|_| true)).collect(),
    )
}

fn only(id: &str) -> ModelFilter {
    ModelFilter { text: Some(id.into()), ..ModelFilter::default() }
}

proptest! {
    #[test]
    fn the_pages_hold_every_model_exactly_once_and_in_order(
        ids in proptest::collection::btree_set("[a-z]{1,3}/[a-z0-9:.]{1,6}", 0..60),
        page_size in 0..25_usize,
    ) {
        let models = ids.iter().map(|id| model(id, id.split('/').next().unwrap_or("x")));
        let catalog = Catalog::new(models.collect());
        let mut seen = Vec::new();
        for page in 1.. {
            let got = catalog.list(&ModelFilter::default(), page, page_size);
            prop_assert_eq!((got.page, got.total), (page, ids.len()));
            prop_assert!(got.models.len() <= got.page_size);
            if got.models.is_empty() {
                break;
            }
            seen.extend(got.models.iter().map(|model| model.id.clone()));
        }
        let all: Vec<_> = catalog.iter().map(|model| model.id.clone()).collect();
        prop_assert_eq!(&seen, &all);
        prop_assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), ids);
    }

    #[test]
    fn no_wish_is_a_pattern(q in "[%_.*?\\[\\]\\\\(){}+^$|]{1,4}") {
        let catalog = Catalog::new(vec![model("plain", "acme")]);
        let found = catalog.list(&only(&q), 1, 10).total;
        // The one literal dot is the one that ends the description.
        prop_assert_eq!(found, usize::from(q == "."));
    }
}

#[test]
fn models_are_sorted_by_provider_then_id_and_demo_comes_last() {
    let catalog = Catalog::new(vec![
        model("b", "demo"),
        model("a", "zeta"),
        model("z", "acme"),
        model("c", "acme"),
    ]);
    let order: Vec<_> = catalog.iter().map(|m| format!("{}/{}", m.provider, m.id)).collect();
    assert_eq!(order, ["acme/c", "acme/z", "zeta/a", "demo/b"]);
}

#[test]
fn a_model_without_a_lane_is_not_in_the_catalog() {
    let catalog = Catalog::new(vec![Model { lanes: vec![], ..model("a", "acme") }]);
    assert!(catalog.is_empty() && catalog.get("a").is_none());
}

#[test]
fn of_two_models_with_one_id_the_later_one_stays() {
    let later = Model { about: "Mine.".into(), ..model("a", "mine") };
    let catalog = Catalog::new(vec![model("a", "acme"), later]);
    assert_eq!(catalog.len(), 1);
    assert_eq!(catalog.get("a").unwrap().about, "Mine.");
}

#[test]
fn ids_are_found_exactly_and_wishes_in_any_case() {
    let catalog = Catalog::new(vec![model("Grand-1", "Acme"), model("small", "other")]);
    assert!(catalog.get("Grand-1").is_some() && catalog.get("grand-1").is_none());
    let total = |filter: ModelFilter| catalog.list(&filter, 1, 10).total;
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(total(ModelFilter { provider: text("ACME"), ..ModelFilter::default() }), 1);
    assert_eq!(total(ModelFilter { provider: text("acm"), ..ModelFilter::default() }), 0);
    assert_eq!(total(ModelFilter { model_type: text("Chat"), ..ModelFilter::default() }), 2);
    assert_eq!(total(ModelFilter { model_type: text("image"), ..ModelFilter::default() }), 0);
    assert_eq!(total(ModelFilter { feature: text("Tools"), ..ModelFilter::default() }), 2);
    assert_eq!(total(ModelFilter { feature: text("tool"), ..ModelFilter::default() }), 0);
    assert_eq!(total(only("GRAND")), 1);
    assert_eq!(total(only("for tests")), 2);
    assert_eq!(total(only(" ")), 2);
    let both =
        ModelFilter { provider: text("other"), text: text("grand"), ..ModelFilter::default() };
    assert_eq!(total(both), 0);
}

#[test]
fn a_provider_is_found_by_id_and_by_name() {
    let catalog = Catalog::new(vec![
        Model { provider_name: "Acme Works".into(), ..model("a", "acme") },
        model("b", "other"),
    ]);
    for provider in ["acme", "Acme Works", "ACME WORKS"] {
        let filter = ModelFilter { provider: Some(provider.into()), ..ModelFilter::default() };
        assert_eq!(catalog.list(&filter, 1, 10).total, 1, "{provider}");
    }
    assert_eq!(catalog.list(&only("works"), 1, 10).total, 1);
}

#[test]
fn an_alias_finds_its_model_and_is_none_of_its_own() {
    let aliases = vec!["grand-latest".to_owned(), "best".to_owned()];
    let catalog =
        Catalog::new(vec![Model { aliases, ..model("grand-1", "acme") }, model("small", "acme")]);
    assert_eq!(catalog.get("best").unwrap().id, "grand-1");
    assert_eq!(catalog.list(&ModelFilter::default(), 1, 10).total, 2);
    for text in ["BEST", "latest", "grand"] {
        let page = catalog.list(&only(text), 1, 10);
        let found: Vec<_> = page.models.iter().map(|model| model.id.as_str()).collect();
        assert_eq!((page.total, found), (1, vec!["grand-1"]), "{text}");
    }
}

#[test]
fn models_are_found_by_what_input_costs_at_most() {
    let dear = model("dear", "acme");
    let mut cheap = model("cheap", "acme");
    cheap.prices = Arc::new(ModelPrices::plain(Price::from_picos(99_999), Price::from_picos(1)));
    let mut free = model("free", "acme");
    free.prices = Arc::new(ModelPrices::plain(Price::FREE, Price::FREE));
    let mut by_image = model("by-image", "acme");
    let prices =
        ModelPrices { per_image: Some(Price::from_picos(1)), ..ModelPrices::clone(&free.prices) };
    by_image.prices = Arc::new(prices);
    let catalog = Catalog::new(vec![dear, cheap, free, by_image]);
    let found = |most: i64| {
        let filter = ModelFilter {
            max_input_price: Some(Price::from_picos(most)),
            ..ModelFilter::default()
        };
        catalog.list(&filter, 1, 10).models.iter().map(|m| m.id.clone()).collect::<Vec<_>>()
    };
    assert_eq!(found(0), ["free"]);
    assert_eq!(found(99_999), ["cheap", "free"]);
    assert_eq!(found(100_000), ["cheap", "dear", "free"]);
}

#[test]
fn a_page_behind_the_last_is_empty_but_knows_the_total() {
    let catalog = Catalog::new(vec![model("a", "acme")]);
    let page = catalog.list(&ModelFilter::default(), usize::MAX, usize::MAX);
    assert_eq!((page.total, page.models.len()), (1, 0));
    assert_eq!(catalog.list(&ModelFilter::default(), 0, 0).models.len(), 1);
}

#[test]
fn a_record_has_the_fields_of_the_contract_and_no_others() {
    let model = Model {
        provider_name: "Acme Works".into(),
        aliases: vec!["a-latest".into()],
        ..model("acme/a b", "acme")
    };
    let record = ModelListing::new(&model, "https://gateway.example/");
    let expected = serde_json::json!({
        "id": "acme/a b",
        "provider": "Acme Works",
        "provider_id": "acme",
        "aliases": ["a-latest"],
        "model_type": "chat",
        "features": ["streaming", "tools"],
        "capabilities": {},
        "pricing": {
            "currency": "USD per 1M tokens",
            "input": 0.1,
            "output": 0.0375,
            "per_request": null,
            "per_second": null,
            "details": [
                { "dimension": "input", "price": 0.1, "unit": "1M tokens" },
                { "dimension": "output", "price": 0.0375, "unit": "1M tokens" },
            ],
        },
        "api_doc_url": "https://gateway.example/models/acme/a%20b",
        "released": null,
        "retires": null,
    });
    assert_eq!(serde_json::to_value(&record).unwrap(), expected);
}

#[test]
fn a_record_tells_prices_per_request_and_per_second() {
    let prices = ModelPrices {
        per_request: Price::parse_per_unit("0.005").ok(),
        per_second: Price::parse_per_unit("0.1").ok(),
        per_image: Price::parse_per_unit("0.04").ok(),
        ..ModelPrices::default()
    };
    let told = |prices: ModelPrices| {
        let model = Model { prices: Arc::new(prices), ..model("a", "acme") };
        ModelListing::new(&model, "").pricing
    };
    let pricing = told(prices.clone());
    assert_eq!((pricing.per_request, pricing.per_second), (Some(0.005), Some(0.1)));
    assert_eq!(told(ModelPrices { per_request: None, ..prices }).per_request, Some(0.04));
}

#[test]
fn a_record_tells_every_price_with_its_unit_and_condition() {
    let (micro, other) = (Price::from_picos(1_000_000), Price::from_picos(2_000_000));
    let rates = TokenRates { input: other, output: other, ..TokenRates::default() };
    let long = LongPromptPrices { above_tokens: 200_000, rates };
    let image = ImagePrice {
        size: Some("1K".into()),
        quality: None,
        price: Price::parse_per_unit("0.04").unwrap(),
        tokens: 0,
    };
    let prices = ModelPrices {
        input: micro,
        output: micro,
        per_request_low: Price::parse_per_unit("0.005").ok(),
        images: vec![image, ImagePrice { tokens: 9, ..ImagePrice::default() }],
        long_prompts: vec![long],
        tiers: vec![TierPrices { tier: BilledTier::Flex, rates, long_prompts: vec![long] }],
        ..ModelPrices::default()
    };
    let model = Model { prices: Arc::new(prices), ..model("a", "acme") };
    let tokens = |dimension: &str, price: f64, condition: serde_json::Value| {
        let mut row =
            serde_json::json!({ "dimension": dimension, "price": price, "unit": "1M tokens" });
        row.as_object_mut().unwrap().extend(condition.as_object().unwrap().clone());
        row
    };
    let (plain, flex) = (serde_json::json!({}), serde_json::json!({ "tier": "flex" }));
    let above = serde_json::json!({ "above_tokens": 200_000 });
    let both = serde_json::json!({ "tier": "flex", "above_tokens": 200_000 });
    let expected = serde_json::json!([
        tokens("input", 1.0, plain.clone()),
        tokens("output", 1.0, plain),
        { "dimension": "request", "price": 0.005, "unit": "request", "search_context": "low" },
        { "dimension": "image", "price": 0.04, "unit": "image", "size": "1K" },
        tokens("input", 2.0, above.clone()),
        tokens("output", 2.0, above),
        tokens("input", 2.0, flex.clone()),
        tokens("output", 2.0, flex),
        tokens("input", 2.0, both.clone()),
        tokens("output", 2.0, both),
    ]);
    let details = ModelListing::new(&model, "").pricing.details;
    assert_eq!(serde_json::to_value(details).unwrap(), expected);
}

#[test]
fn the_output_price_of_an_image_model_is_that_of_its_images() {
    let catalog = everything();
    let listed = |id: &str| ModelListing::new(catalog.get(id).unwrap(), "").pricing.output;
    for (id, output) in [
        ("gemini-3-pro-image", 120.0),
        ("gemini-3.1-flash-image", 60.0),
        ("gemini-3.1-flash-lite-image", 30.0),
        ("gpt-image-1.5", 32.0),
        ("demo-chat", 0.4),
    ] {
        assert_eq!(listed(id).to_bits(), f64::to_bits(output), "{id}");
    }
    let mut pictured = 0;
    for model in catalog.iter().filter(|model| model.kind == ModelKind::Image) {
        let details = ModelListing::new(model, "").pricing.details;
        let Some(image) = details.iter().find(|price| price.dimension == "output_image") else {
            continue;
        };
        assert_eq!(listed(&model.id).to_bits(), image.price.to_bits(), "{}", model.id);
        pictured += 1;
    }
    assert!(pictured >= 5);
}

#[test]
fn every_known_model_can_be_listed_and_told() {
    let catalog = everything();
    let page = catalog.list(&ModelFilter::default(), 1, usize::MAX);
    let aliases: usize = catalog.iter().map(|model| model.aliases.len()).sum();
    assert!(aliases > 0);
    assert_eq!((page.total, page.models.len()), (catalog.len(), catalog.len()));
    for model in catalog.iter() {
        let provider = ModelDirectory::embedded().provider(&model.provider).unwrap();
        assert_eq!(model.provider_name, provider.name, "{}", model.id);
    }
    for model in &page.models {
        let record =
            serde_json::to_value(ModelListing::new(model, "http://127.0.0.1:8080")).unwrap();
        assert!(record["pricing"]["input"].is_number(), "{}", model.id);
        assert!(record["pricing"]["output"].is_number(), "{}", model.id);
    }
    let kinds: BTreeSet<_> = catalog.iter().map(|model| model.kind).collect();
    assert_eq!(kinds.len(), ModelKind::ALL.len());
}

/// A call is charged what the list says for its service tier.
#[test]
fn prices_of_media_are_listed_for_every_tier() {
    const TOKENS: u64 = 1_000_000;
    let mut compared = 0;
    for model in ModelDirectory::embedded().models() {
        for tier in [ServiceTier::Standard, ServiceTier::Flex, ServiceTier::Priority] {
            let billed = BilledTier::of(&tier);
            let listed = model.prices.dimensions();
            let is_offered = billed.is_none() || listed.iter().any(|price| price.tier == billed);
            for (dimension, usage) in [
                (PriceDimension::InputAudio, Usage { input_audio: TOKENS, ..Usage::default() }),
                (PriceDimension::InputImage, Usage { input_image: TOKENS, ..Usage::default() }),
                (PriceDimension::OutputAudio, Usage { output_audio: TOKENS, ..Usage::default() }),
                (PriceDimension::OutputImage, Usage { output_image: TOKENS, ..Usage::default() }),
            ] {
                let of_tier = |wanted| {
                    let is_it = |price: &&catalog::DimensionPrice<'_>| {
                        (price.dimension, price.tier, price.above_tokens)
                            == (dimension, wanted, None)
                    };
                    listed.iter().find(is_it).map(|price| price.price)
                };
                let Some(price) = of_tier(billed).or_else(|| of_tier(None)) else { continue };
                let usage = Usage {
                    input: usage.input_audio + usage.input_image,
                    output: usage.output_audio + usage.output_image,
                    ..usage
                };
                let units = BilledUnits { tier: Some(&tier), ..BilledUnits::default() };
                let fees = model.prices.cost_with(&Usage::default(), &units);
                let cost = model.prices.cost_with(&usage, &units);
                let expected = Money::from_picos(i128::from(price.as_picos()) * i128::from(TOKENS));
                // A long prompt has prices of its own.
                if is_offered && usage.input == 0 {
                    assert_eq!(
                        cost,
                        expected.saturating_add(fees),
                        "{} {dimension:?} {tier:?}",
                        model.id
                    );
                    compared += 1;
                }
            }
        }
    }
    assert!(compared > 5, "{compared}");
}

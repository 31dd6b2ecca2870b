//! The catalog: what is listed, in which order, on which page, in which shape.

use std::collections::BTreeSet;
use std::sync::Arc;

use canon::Price;
use catalog::{
    Catalog, Lane, Model, ModelCounts, ModelDirectory, ModelFilter, ModelKind, ModelListing,
    ModelPrices,
};
use proptest::prelude::*;

fn model(id: &str, provider: &str) -> Model {
    Model {
        aliases: vec![],
        id: id.into(),
        provider: provider.into(),
        kind: ModelKind::Chat,
        features: vec!["streaming".into(), "tools".into()],
        context_window: Some(128_000),
        max_output_tokens: Some(8192),
        input: vec!["text".into()],
        output: vec!["text".into()],
        thinking: None,
        images: None,
        counts: ModelCounts::default(),
        prices: Arc::new(ModelPrices::plain(Price::from_picos(100_000), Price::from_picos(37_500))),
        about: "A model for tests.".into(),
        as_of: "2026-01-01".into(),
        released: None,
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
    let record = ModelListing::new(&model("acme/a b", "acme"), "https://gateway.example/");
    let expected = serde_json::json!({
        "id": "acme/a b",
        "provider": "acme",
        "model_type": "chat",
        "features": ["streaming", "tools"],
        "pricing": {
            "currency": "USD per 1M tokens",
            "input": 0.1,
            "output": 0.0375,
            "per_request": null,
            "per_second": null,
        },
        "api_doc_url": "https://gateway.example/models/acme/a%20b",
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
fn every_known_model_can_be_listed_and_told() {
    let catalog = everything();
    let page = catalog.list(&ModelFilter::default(), 1, usize::MAX);
    let aliases: usize = catalog.iter().map(|model| model.aliases.len()).sum();
    assert!(aliases > 0);
    assert_eq!(page.models.len(), catalog.len() + aliases, "every id is listed");
    for model in &page.models {
        let record =
            serde_json::to_value(ModelListing::new(model, "http://127.0.0.1:8080")).unwrap();
        assert!(record["pricing"]["input"].is_number(), "{}", model.id);
        assert!(record["pricing"]["output"].is_number(), "{}", model.id);
    }
    let kinds: BTreeSet<_> = catalog.iter().map(|model| model.kind).collect();
    assert_eq!(kinds.len(), ModelKind::ALL.len());
}

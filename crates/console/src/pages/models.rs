//! The model directory with search, filters and paging.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use canon::Price;
use catalog::{Catalog, CatalogPage, FEATURES, Model, ModelFilter, ModelKind};
use maud::{Markup, html};

use crate::catalog_view::features;
use crate::form::{FormFields, QueryFields};
use crate::layout::{Layout, SiteSection, ok_page, with_revalidation};
use crate::page_error::PageError;
use crate::state::ConsoleState;
use crate::{display, urls};

const PER_PAGE: usize = 25;
const MAX_QUERY_BYTES: usize = 200;

/// Part of the catalog the page shows.
#[derive(Default)]
struct DirectoryView {
    page: Option<CatalogPage>,
    /// Ids and names.
    providers: Vec<(String, String)>,
    tags: Vec<&'static str>,
}

fn view_of(catalog: &Catalog, filter: &ModelFilter, page: usize) -> DirectoryView {
    let provider = |model: &Arc<Model>| (model.provider.clone(), model.provider_name.clone());
    let mut providers: Vec<_> = catalog.iter().map(provider).collect();
    providers.sort_by_cached_key(|(id, name)| (name.to_lowercase(), id.clone()));
    providers.dedup();
    let used = |tag: &&str| catalog.iter().any(|model| model.has_feature(tag));
    let tags = FEATURES.iter().map(|(tag, _)| *tag).filter(used).collect();
    DirectoryView { page: Some(catalog.list(filter, page, PER_PAGE)), providers, tags }
}

/// `GET /models`
pub(crate) async fn show(
    State(state): State<Arc<ConsoleState>>,
    QueryFields(query): QueryFields,
) -> Result<Response, PageError> {
    let filter = filter(&query)?;
    let wanted = query.get("page").parse::<usize>().unwrap_or(1).max(1);
    let DirectoryView { page, providers, tags } =
        state.with_catalog(|catalog| view_of(catalog, &filter, wanted));
    let page =
        page.unwrap_or(CatalogPage { page: 1, page_size: PER_PAGE, total: 0, models: vec![] });
    let filtered = filter != ModelFilter::default();
    let body = html! {
        h1 { "Models" }
        form.filters method="get" action="/models" role="search" {
            div.field.grow {
                label for="q" { "Search" }
                input id="q" name="q" type="search" maxlength=(MAX_QUERY_BYTES) autocomplete="off"
                    value=[filter.text.as_deref()] placeholder="Name, provider or description";
            }
            (choice("provider", "Provider", &providers, filter.provider.as_deref()))
            (choice("model_type", "Type", &ModelKind::ALL.map(|kind| (kind.as_str(), kind.as_str())), filter.model_type.as_deref()))
            (choice("feature", "Feature", &tags.iter().map(|tag| (tag, tag)).collect::<Vec<_>>(), filter.feature.as_deref()))
            (prices(filter.max_input_price))
            div.field.go { button.button type="submit" { "Search" } }
        }
        @if page.models.is_empty() {
            (empty_notice(page.total, filtered))
        } @else {
            p.muted.tally {
                (display::plural(page.total, "model", "models"))
                @if filtered { " · " a href="/models" { "Clear the filters" } }
            }
            div.sheet {
                table.list.models {
                    thead { tr {
                        th scope="col" { "Model" }
                        th scope="col" { "Type" }
                        th.num scope="col" { "Context" }
                        th.num scope="col" { "Input" }
                        th.num scope="col" { "Output" }
                    } }
                    tbody { @for model in &page.models { (row(model)) } }
                }
            }
            p.muted.small { "Prices in US dollars per million tokens, unless they say otherwise." }
            (pager(&page, &filter))
        }
    };
    Ok(with_revalidation(ok_page(&Layout::public("Models", SiteSection::Models), &body)))
}

fn filter(query: &FormFields) -> Result<ModelFilter, PageError> {
    let parameter = |name| {
        query
            .get_trimmed(name, MAX_QUERY_BYTES)
            .map(|text| (!text.is_empty()).then(|| text.to_owned()))
    };
    Ok(ModelFilter {
        provider: parameter("provider")?,
        model_type: parameter("model_type")?,
        feature: parameter("feature")?,
        text: parameter("q")?,
        max_input_price: parameter("price")?.and_then(|text| Price::parse_per_million(&text).ok()),
    })
}

/// Choices of the price filter: dollars per million input tokens, and label.
const PRICE_CHOICES: [(&str, &str); 6] = [
    ("0", "Free"),
    ("0.25", "Up to $0.25"),
    ("1", "Up to $1"),
    ("3", "Up to $3"),
    ("5", "Up to $5"),
    ("15", "Up to $15"),
];

fn prices(chosen: Option<Price>) -> Markup {
    let is_chosen = |text: &str| chosen.is_some() && Price::parse_per_million(text).ok() == chosen;
    html! {
        div.field {
            label for="price" { "Input price" }
            select id="price" name="price" {
                option value="" { "Any" }
                @for (value, label) in PRICE_CHOICES {
                    option value=(value) selected[is_chosen(value)] { (label) }
                }
            }
        }
    }
}

/// A list of values with their titles. Both are accepted as the chosen one.
fn choice<T: AsRef<str>>(
    name: &str,
    label: &str,
    options: &[(T, T)],
    chosen: Option<&str>,
) -> Markup {
    let is_chosen = |word: &str| chosen.is_some_and(|chosen| chosen.eq_ignore_ascii_case(word));
    html! {
        div.field {
            label for=(name) { (label) }
            select id=(name) name=(name) {
                option value="" { "Any" }
                @for (value, title) in options {
                    @let (value, title) = (value.as_ref(), title.as_ref());
                    option value=(value) selected[is_chosen(value) || is_chosen(title)] { (title) }
                }
            }
        }
    }
}

fn row(model: &Model) -> Markup {
    let prices = &model.prices;
    let unit = [
        (prices.per_image, "image"),
        (prices.per_request, "request"),
        (prices.per_second, "second"),
    ];
    let units: Vec<String> = unit
        .into_iter()
        .filter_map(|(price, unit)| Some(format!("{} per {unit}", display::per_unit(price?))))
        .collect();
    let output = model.output_price();
    let free = prices.input == Price::FREE && output == Price::FREE;
    html! {
        tr {
            th scope="row" {
                a.id href=(urls::model_page(&model.id)) { bdi { (model.id) } }
                span.provider { bdi { (model.provider_name) } }
                (features(model, 5))
            }
            td data-label="Type" { (model.kind.as_str()) }
            td.num data-label="Context" {
                @match model.capabilities.context_window {
                    Some(context) => span title={ (display::count(context)) " tokens" } {
                        (display::short_count(context))
                    },
                    None => span.muted { "–" },
                }
            }
            @if free && !units.is_empty() {
                td.num data-label="Price" colspan="2" { (units.join(", ")) }
            } @else {
                td.num data-label="Input" { (display::per_million(prices.input)) }
                td.num data-label="Output" {
                    (display::per_million(output))
                    @for unit in &units { br; span.small { "+ " (unit) } }
                }
            }
        }
    }
}

fn empty_notice(total: usize, filtered: bool) -> Markup {
    html! {
        div.empty {
            @if total > 0 {
                h2 { "The list ends before this page" }
                p { a href="/models" { "Back to the first page" } }
            } @else if filtered {
                h2 { "No model fits" }
                p { "Try fewer words or another filter, or " a href="/models" { "see all models" } "." }
            } @else {
                h2 { "No models yet" }
                p { "Models appear here once a provider is configured." }
            }
        }
    }
}

fn pager(page: &CatalogPage, filter: &ModelFilter) -> Markup {
    let last = page.total.div_ceil(page.page_size.max(1)).max(1);
    let to = |number: usize| {
        let ModelFilter { provider, model_type, feature, text: q, max_input_price: input_at_most } =
            filter;
        let mut link = format!("/models?page={number}");
        if let Some(most) = input_at_most {
            link.push_str(&format!("&price={}", most.to_per_million()));
        }
        let parameters =
            [("q", q), ("provider", provider), ("model_type", model_type), ("feature", feature)];
        for (name, parameter) in parameters {
            if let Some(parameter) = parameter {
                link.push_str(&format!("&{name}={}", urls::escape_value(parameter)));
            }
        }
        link
    };
    html! {
        @if last > 1 {
            nav.pager aria-label="Pages" {
                @if page.page > 1 { a rel="prev" href=(to(page.page - 1)) { "← Previous" } }
                span.muted { "Page " (page.page) " of " (last) }
                @if page.page < last { a rel="next" href=(to(page.page + 1)) { "Next →" } }
            }
        }
    }
}

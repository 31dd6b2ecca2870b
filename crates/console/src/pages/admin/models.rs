//! List of all models with lanes and prices.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use store::GroupBy;

use super::providers::source_badge;
use super::recent_usage::{CallSum, RecentUsage, UsageOrder, sort};
use crate::display;
use crate::form::QueryFields;
use crate::layout::{Layout, ok_page};
use crate::list_view::{ListView, ORDER, TEXT};
use crate::page_error::PageError;
use crate::redirect::redirect_to;
use crate::session::SignedInUser;
use crate::state::ConsoleState;
use crate::urls;
use admin::ModelView;

pub(super) const PAGE_PATH: &str = "/console/models";
const KIND: &str = "kind";
const PARAMETERS: [&str; 3] = [TEXT, ORDER, KIND];
const KIND_CHOICES: [(&str, &str); 4] =
    [("", "All"), ("chat", "Chat"), ("image", "Images"), ("embedding", "Embeddings")];

/// `GET /console/models`
pub(crate) async fn show(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    QueryFields(query): QueryFields,
) -> Result<Response, PageError> {
    let view = ListView { path: PAGE_PATH, query: &query, parameters: &PARAMETERS };
    let words = view.text()?.unwrap_or_default().to_lowercase();
    let kind = query.get(KIND);
    if !KIND_CHOICES.iter().any(|(word, _)| *word == kind) {
        return Err(PageError::BadRequest("The kind of models is not known."));
    }
    let order = UsageOrder::by_word(query.get(ORDER)).unwrap_or_default();
    let models = state.host.admin().models(&user.actor())?;
    let usage = RecentUsage::load(&state, GroupBy::Model).await?;
    let fits = |model: &&ModelView| {
        let name = format!("{} {}", model.id(), model.lanes().join(" ")).to_lowercase();
        words.split_whitespace().all(|word| name.contains(word))
    };
    let mut found: Vec<&ModelView> = models.iter().filter(fits).collect();
    found.sort_by_key(|model| model.id());
    let count = |kind: &str| {
        let of_kind = found.iter().filter(|model| kind.is_empty() || kind_word(model) == kind);
        of_kind.count() as u64
    };
    let total = count(kind);
    if let Some(last) = view.last_page(total) {
        return Ok(redirect_to(&last));
    }
    let of_kind = found.iter().filter(|model| kind.is_empty() || kind_word(model) == kind);
    let mut rows: Vec<(&ModelView, CallSum)> =
        of_kind.map(|model| (*model, usage.of(names_of(model)))).collect();
    sort(&mut rows, order);
    let body = html! {
        div.title {
            h1 { "Models & prices" }
            div.actions { a.button href={ (PAGE_PATH) "/new" } { "Add a model" } }
        }
        @match query.get("told") {
            "saved" => p.told role="status" { "Saved. It counts at once, for calls from now on." },
            "removed" => p.told role="status" { "The settings of the model were removed." },
            _ => {}
        }
        (view.search_form("Model or lane", &UsageOrder::LABELS, order.word()))
        (view.parts("Kinds of models", KIND, KIND_CHOICES.map(|(word, title)| (word, title, count(word)))))
        @if rows.is_empty() {
            div.empty { h2 { "No such model" } p { "Search for less, or add it." } }
        } @else {
            (table(&view, order, view.page_of(&rows)))
            (view.pager("Pages of models", total))
        }
    };
    Ok(ok_page(&Layout::signed_in("Models & prices", &user.account).with_nav(PAGE_PATH), &body))
}

/// Names under which a model is called.
fn names_of(model: &ModelView) -> impl Iterator<Item = &str> {
    let aliases = model.listing().map_or(&[][..], |listing| &listing.aliases);
    std::iter::once(model.id()).chain(aliases.iter().map(String::as_str))
}

pub(super) fn page_of(id: &str) -> String {
    format!("{PAGE_PATH}/edit?id={}", urls::escape_value(id))
}

/// Kind of a model; empty if it is not served.
pub(super) fn kind_word(model: &ModelView) -> &'static str {
    model.listing().map_or("", |listing| listing.model_type)
}

fn table(view: &ListView<'_>, order: UsageOrder, rows: &[(&ModelView, CallSum)]) -> Markup {
    let heading = |of: UsageOrder, label: &str| view.heading(of.word(), label, of == order);
    html! {
        div.sheet {
            table.list {
                thead { tr {
                    (heading(UsageOrder::Name, "Model"))
                    th scope="col" { "Kind" }
                    th scope="col" { "Lanes" }
                    th.num scope="col" { "Input" }
                    th.num scope="col" { "Output" }
                    (heading(UsageOrder::Calls, "Calls in 30 days"))
                    (heading(UsageOrder::Spent, "Spent in 30 days"))
                    th scope="col" { "Source" }
                } }
                tbody {
                    @for (model, sum) in rows {
                        @let pricing = model.listing().map(|listing| &listing.pricing);
                        tr {
                            th scope="row" {
                                a.id href=(page_of(model.id())) { bdi { (model.id()) } }
                                @if let Some(why) = &model.trouble {
                                    p.objection.small { (why) }
                                }
                            }
                            td data-label="Kind" { (kind_word(model)) }
                            td data-label="Lanes" {
                                span.wrap.small { @for (index, lane) in model.lanes().iter().enumerate() {
                                    @if index > 0 { ", " } bdi { (lane) }
                                } }
                            }
                            td.num data-label="Input" { (dollars(pricing.map(|pricing| pricing.input))) }
                            td.num data-label="Output" { (dollars(pricing.map(|pricing| pricing.output))) }
                            (sum.cells())
                            td data-label="Source" { (source_badge(model.source)) }
                        }
                    }
                }
            }
        }
        p.muted.small { "Prices in USD per million tokens; a model may cost more by the piece." }
    }
}

/// Formats a price of the list.
fn dollars(price: Option<f64>) -> String {
    price.map_or_else(|| "–".to_owned(), |price| display::with_cents(&price.to_string()))
}

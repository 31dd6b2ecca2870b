//! List of all models with lanes and prices.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};

use super::providers::source_badge;
use crate::display;
use crate::form::{FormFields, QueryFields};
use crate::layout::{Layout, ok_page};
use crate::page_error::PageError;
use crate::session::SignedInUser;
use crate::state::ConsoleState;
use crate::urls;
use admin::ModelView;

pub(super) const PAGE_PATH: &str = "/console/models";
const PER_PAGE: usize = 50;
const MAX_QUERY_BYTES: usize = 256;
const KIND_CHOICES: [(&str, &str); 4] =
    [("", "Any"), ("chat", "Chat"), ("image", "Images"), ("embedding", "Embeddings")];

/// `GET /console/models`
pub(crate) async fn show(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    QueryFields(query): QueryFields,
) -> Result<Response, PageError> {
    let (words, kind) = (
        query.get_trimmed("q", MAX_QUERY_BYTES)?.to_lowercase(),
        query.get_trimmed("kind", MAX_QUERY_BYTES)?,
    );
    let models = state.host.admin().models(&user.actor())?;
    let fits = |model: &&ModelView| {
        let name = format!("{} {}", model.id(), model.lanes().join(" ")).to_lowercase();
        (kind.is_empty() || kind_word(model) == kind)
            && words.split_whitespace().all(|word| name.contains(word))
    };
    let found: Vec<&ModelView> = models.iter().filter(fits).collect();
    let page: usize = query.get("page").parse().unwrap_or(1).max(1);
    let shown = found.iter().skip((page - 1).saturating_mul(PER_PAGE)).take(PER_PAGE).copied();
    let more = found.len() > page.saturating_mul(PER_PAGE);
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
        form.filters method="get" action=(PAGE_PATH) role="search" {
            div.field.grow {
                label for="q" { "Model or lane" }
                input #q name="q" type="search" value=(query.get("q")) autocomplete="off";
            }
            div.field {
                label for="kind" { "Kind" }
                select #kind name="kind" {
                    @for (word, title) in KIND_CHOICES {
                        option value=(word) selected[word == kind] { (title) }
                    }
                }
            }
            div.field.go { button.button type="submit" { "Show" } }
        }
        @if found.is_empty() {
            div.empty { h2 { "No such model" } p { "Search for less, or add it." } }
        } @else {
            p.muted.small.tally { (display::plural(found.len(), "model", "models")) }
            (table(shown))
        }
        nav.pager aria-label="Pages of models" {
            @if page > 1 { a rel="prev" href=(list_path(&query, page - 1)) { "← Before" } }
            @if more { a rel="next" href=(list_path(&query, page + 1)) { "More →" } }
        }
    };
    Ok(ok_page(&Layout::signed_in("Models & prices", &user.account).with_nav(PAGE_PATH), &body))
}

fn list_path(query: &FormFields, page: usize) -> String {
    let (q, kind) = (urls::escape_value(query.get("q")), urls::escape_value(query.get("kind")));
    format!("{PAGE_PATH}?q={q}&kind={kind}&page={page}")
}

pub(super) fn page_of(id: &str) -> String {
    format!("{PAGE_PATH}/edit?id={}", urls::escape_value(id))
}

/// Kind of a model; empty if it is not served.
pub(super) fn kind_word(model: &ModelView) -> &'static str {
    model.listing().map_or("", |listing| listing.model_type)
}

fn table<'a>(models: impl Iterator<Item = &'a ModelView>) -> Markup {
    html! {
        div.sheet {
            table.list {
                thead { tr {
                    th scope="col" { "Model" }
                    th scope="col" { "Kind" }
                    th scope="col" { "Lanes" }
                    th.num scope="col" { "Input" }
                    th.num scope="col" { "Output" }
                    th scope="col" { "Source" }
                } }
                tbody {
                    @for model in models {
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

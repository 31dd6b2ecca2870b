//! List of all models with lanes and prices.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use serde_json::Value;

use super::providers::source_badge;
use crate::admin_client::{AdminClient, list, text};
use crate::display;
use crate::form::{FormFields, QueryFields};
use crate::layout::{Layout, ok_page};
use crate::page_error::PageError;
use crate::session::SignedInUser;
use crate::state::ConsoleState;
use crate::urls;

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
    let reply = AdminClient::new(&state, &user).get("/models").await?.value;
    let fits = |model: &&Value| {
        let name = format!("{} {}", text(model, "id"), lane_names(model).join(" ")).to_lowercase();
        (kind.is_empty() || text(model, "model_type") == kind)
            && words.split_whitespace().all(|word| name.contains(word))
    };
    let found: Vec<&Value> = list(&reply, "data").iter().filter(fits).collect();
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

/// Names of a model's lanes; a lane is a string or an object.
pub(super) fn lane_names<'a>(model: &'a Value) -> Vec<&'a str> {
    let name = |lane: &'a Value| match lane {
        Value::String(name) => Some(name.as_str()),
        lane => lane.get("lane").and_then(Value::as_str),
    };
    list(model, "lanes").iter().filter_map(name).collect()
}

fn table<'a>(models: impl Iterator<Item = &'a Value>) -> Markup {
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
                        @let pricing = model.get("pricing").unwrap_or(&Value::Null);
                        tr {
                            th scope="row" {
                                a.id href=(page_of(text(model, "id"))) { bdi { (text(model, "id")) } }
                                @if let Some(why) = model.get("trouble").and_then(Value::as_str) {
                                    p.objection.small { (why) }
                                }
                            }
                            td data-label="Kind" { (text(model, "model_type")) }
                            td data-label="Lanes" {
                                span.wrap.small { @for (index, lane) in lane_names(model).iter().enumerate() {
                                    @if index > 0 { ", " } bdi { (lane) }
                                } }
                            }
                            td.num data-label="Input" { (dollars(pricing, "input")) }
                            td.num data-label="Output" { (dollars(pricing, "output")) }
                            td data-label="Source" { (source_badge(model)) }
                        }
                    }
                }
            }
        }
        p.muted.small { "Prices in USD per million tokens; a model may cost more by the piece." }
    }
}

/// Formats a price of the list.
fn dollars(pricing: &Value, name: &str) -> String {
    match pricing.get(name) {
        Some(Value::Number(number)) => display::with_cents(&number.to_string()),
        Some(Value::String(text)) => display::with_cents(text),
        _ => "–".to_owned(),
    }
}

//! The page of one model: what it can do, what it costs, how to call it.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use catalog::{ModelKind, Model};
use maud::{Markup, html};

use super::{Tab, copyable, tabs};
use crate::catalog_view::{PriceRow, features, other_prices, price_rows, thinking_range};
use crate::desk::Desk;
use crate::shell::{Part, Shell, checked_by_caches, good};
use crate::snippet::{self, fitting};
use crate::trouble::Trouble;
use crate::{address, show};

/// `GET /models/{*id}`
pub(crate) async fn show(
    State(desk): State<Arc<Desk>>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, Trouble> {
    let Path(id) = id.map_err(|_| Trouble::NotFound)?;
    let model = desk.catalog(|catalog| catalog.get(&id).cloned()).ok_or(Trouble::NotFound)?;
    let url = desk.url();
    let formats = fitting(&desk.formats(), &model);
    let body = html! {
        p.crumbs { a href="/models" { "Models" } " / " bdi { (model.provider) } }
        div.title.close {
            h1.id { bdi id="model-id" { (model.id) } }
            button.copy type="button" hidden data-copy="model-id" { "Copy id" }
            @if model.kind != ModelKind::Embedding {
                a.copy href={ "/console/playground?model=" (address::value(&model.id)) } { "Try it" }
            }
        }
        @if !model.about.is_empty() { p.lead { (model.about) } }
        (features(&model, usize::MAX))
        div.columns {
            section {
                h2 { "Facts" }
                (facts(&model))
            }
            section {
                h2 { "Prices" }
                div.sheet { (price_table(&price_rows(&model.prices))) }
                @for (title, rows) in other_prices(&model.prices) {
                    details { summary { (title) } div.sheet { (price_table(&rows)) } }
                }
            }
        }
        @if !formats.is_empty() {
            section {
                h2 { "Call it" }
                p.muted {
                    "Set " code { "PORTUNUS_KEY" } " to a key of this gateway, made in the "
                    a href="/console" { "console" } "."
                }
                (tabs("format", &formats.iter().map(|format| Tab {
                    id: format.word().to_owned(),
                    title: format.title(),
                    body: copyable(
                        &format!("curl-{}", format.word()),
                        "curl",
                        &format.curl(&url, &model.id, snippet::KEY),
                    ),
                }).collect::<Vec<_>>()))
            }
        }
    };
    Ok(checked_by_caches(good(&Shell::public(&model.id, Part::Models), &body)))
}

fn facts(model: &Model) -> Markup {
    let tokens = |n: Option<u64>| n.map(|n| format!("{} tokens", show::count(n)));
    let words = |words: &[String]| (!words.is_empty()).then(|| words.join(", "));
    let rows = [
        ("Provider", Some(model.provider.clone())),
        ("Type", Some(model.kind.as_str().to_owned())),
        ("Context window", tokens(model.context_window)),
        ("Longest answer", tokens(model.max_output_tokens)),
        ("Takes", words(&model.input)),
        ("Gives", words(&model.output)),
        ("Thinking", model.thinking.as_ref().map(thinking_range)),
        ("Released", model.released.clone()),
        ("Facts as of", (!model.as_of.is_empty()).then(|| model.as_of.clone())),
    ];
    html! {
        dl.facts {
            @for (name, value) in rows {
                @if let Some(value) = value {
                    div { dt { (name) } dd { bdi { (value) } } }
                }
            }
        }
    }
}

fn price_table(rows: &[PriceRow]) -> Markup {
    html! {
        table.prices {
            tbody {
                @for PriceRow { what, price, unit } in rows {
                    tr { th scope="row" { (what) } td.num { (price) } td.muted { (unit) } }
                }
            }
        }
    }
}

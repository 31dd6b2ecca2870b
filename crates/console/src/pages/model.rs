//! The page of one model: facts, prices, examples.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use catalog::{Model, ModelKind};
use maud::{Markup, html};

use super::{TabPanel, copy_block, tabs};
use crate::call_example::{CallExample, ExampleKey};
use crate::catalog_view::{
    PriceRow, capability_rows, features, image_rows, other_prices, price_rows, thinking_text,
};
use crate::layout::{Layout, SiteSection, ok_page, with_revalidation};
use crate::page_error::PageError;
use crate::snippet::formats_for;
use crate::state::ConsoleState;
use crate::{display, urls};

/// `GET /models/{*id}`
pub(crate) async fn show(
    State(state): State<Arc<ConsoleState>>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, PageError> {
    let Path(id) = id.map_err(|_| PageError::NotFound)?;
    let model =
        state.with_catalog(|catalog| catalog.get(&id).cloned()).ok_or(PageError::NotFound)?;
    let url = state.base_url();
    let formats = formats_for(&state.formats(), &model, state.converses(&model.id));
    let body = html! {
        p.crumbs { a href="/models" { "Models" } " / " bdi { (model.provider_name) } }
        div.title.close {
            h1.id { bdi id="model-id" { (model.id) } }
            button.copy type="button" hidden data-copy="model-id" { "Copy id" }
            @if model.kind != ModelKind::Embedding {
                a.copy href={ "/console/playground?model=" (urls::escape_value(&model.id)) } { "Try it" }
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
                (tabs("format", &formats.iter().map(|format| TabPanel {
                    id: format.as_str().to_owned(),
                    title: format.title(),
                    body: examples(CallExample::new(*format, &model, &url, ExampleKey::Variable)),
                }).collect::<Vec<_>>()))
            }
        }
    };
    Ok(with_revalidation(ok_page(&Layout::public(&model.id, SiteSection::Models), &body)))
}

/// Tabs with one example per language.
fn examples(example: CallExample<'_>) -> Markup {
    let format = example.format().as_str();
    let languages = [
        ("curl", "curl", example.curl()),
        ("python", "Python", example.python()),
        ("javascript", "JavaScript", example.javascript()),
    ];
    let panels = languages.map(|(language, title, text)| {
        let id = format!("{language}-{format}");
        TabPanel { body: copy_block(&id, title, &text), id, title }
    });
    tabs(&format!("language-{format}"), &panels)
}

fn facts(model: &Model) -> Markup {
    let tokens = |n: Option<u64>| n.map(|n| format!("{} tokens", display::count(n)));
    let words = |words: &[String]| (!words.is_empty()).then(|| words.join(", "));
    let can = &model.capabilities;
    let mut rows = vec![
        ("Also called", words(&model.aliases)),
        ("Provider", Some(model.provider_name.clone())),
        ("Type", Some(model.kind.as_str().to_owned())),
        ("Context window", tokens(can.context_window)),
        ("Longest answer", tokens(can.max_output_tokens)),
        ("Takes", words(&can.input)),
        ("Gives", words(&can.output)),
        ("Thinking", thinking_text(&can.thinking)),
    ];
    rows.extend(capability_rows(can));
    rows.extend(can.images.iter().flat_map(image_rows));
    rows.extend([
        ("Released", model.released.clone()),
        ("Retires", model.retires.clone()),
        ("Facts as of", (!model.as_of.is_empty()).then(|| model.as_of.clone())),
    ]);
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
                @for PriceRow { label, price, unit } in rows {
                    tr { th scope="row" { (label) } td.num { (price) } td.muted { (unit) } }
                }
            }
        }
    }
}

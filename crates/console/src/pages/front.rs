//! The front page: purpose and base URLs of the gateway.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use catalog::{Catalog, Model, ModelKind};
use maud::{Markup, html};

use super::copy_block;
use crate::call_example::{CallExample, ExampleKey};
use crate::display;
use crate::layout::{Layout, SiteSection, ok_page, with_revalidation};
use crate::snippet::ApiFormat;
use crate::state::ConsoleState;

/// Catalog figures on the front page.
#[derive(Default)]
struct CatalogSummary {
    models: usize,
    providers: usize,
    /// Model for the example.
    first: Option<Arc<Model>>,
}

fn summarize_catalog(catalog: &Catalog) -> CatalogSummary {
    let mut providers: Vec<_> = catalog.iter().map(|model| model.provider.as_str()).collect();
    providers.dedup();
    let chat = catalog.iter().find(|model| model.kind == ModelKind::Chat);
    CatalogSummary { models: catalog.len(), providers: providers.len(), first: chat.cloned() }
}

/// `GET /`
pub(crate) async fn show(State(state): State<Arc<ConsoleState>>) -> Response {
    let (url, formats) = (state.base_url(), state.formats());
    let CatalogSummary { models, providers, first } = state.with_catalog(summarize_catalog);
    let example = formats.iter().find(|format| format.supports(ModelKind::Chat)).zip(first);
    let body = html! {
        section.hero {
            div {
                h1 { "One key for " em { "every model." } }
                p.lead {
                    "This gateway speaks the request formats your tools already use, routes each "
                    "call to a provider that serves the model, and accounts for every call to the "
                    "billionth of a dollar."
                }
                p.actions {
                    a.button href="/models" { "Browse models" }
                    a.button.quiet href="/console" { "Open the console" }
                }
                p.glance {
                    (display::plural(models, "model", "models")) " from "
                    (display::plural(providers, "provider", "providers"))
                }
            }
            @if let Some((format, model)) = example {
                div {
                    (copy_block("try", "Try it", &CallExample::new(*format, &model, &url, ExampleKey::Variable).curl()))
                }
            }
        }
        @if !formats.is_empty() {
            section {
                h2 { "Base addresses" }
                p.muted {
                    "Point a client library here, give it a key from the console, keep the rest of "
                    "your code."
                }
                div.sheet {
                    table.list {
                        thead { tr {
                            th scope="col" { "Client libraries" }
                            th scope="col" { "Formats" }
                            th scope="col" { "Base address" }
                        } }
                        tbody {
                            @for family in client_families(&formats) { (row(&family, &url)) }
                        }
                    }
                }
            }
        }
        section.promises {
            div { h2 { "Caps that hold" } p {
                "A key with a spending cap never passes it: not under load, not while streaming, "
                "not after a crash."
            } }
            div { h2 { "Nothing silently lost" } p {
                "What a translation between formats cannot carry is told to the caller in a "
                "response header."
            } }
            div { h2 { "Every call on record" } p {
                "Tokens, provider and cost of each call are in the console the moment it is settled."
            } }
        }
    };
    with_revalidation(ok_page(&Layout::public("Model gateway", SiteSection::Front), &body))
}

/// Groups the formats by client library; each group has one base URL.
fn client_families(formats: &[ApiFormat]) -> Vec<Vec<ApiFormat>> {
    let mut families: Vec<Vec<ApiFormat>> = Vec::new();
    for format in formats {
        let same = |family: &&mut Vec<ApiFormat>| {
            family.first().is_some_and(|first| first.clients() == format.clients())
        };
        match families.iter_mut().find(same) {
            Some(family) => family.push(*format),
            None => families.push(vec![*format]),
        }
    }
    families
}

fn row(family: &[ApiFormat], url: &str) -> Markup {
    let titles: Vec<_> = family.iter().map(|format| format.title()).collect();
    html! {
        @if let Some(first) = family.first() {
            @let id = format!("base-{}", first.as_str());
            tr {
                th scope="row" { (first.clients()) }
                td data-label="Formats" { (titles.join(", ")) }
                td data-label="Base address" {
                    span.inline-copy {
                        code id=(id) { (first.base_url(url)) }
                        button.copy type="button" hidden data-copy=(id) { "Copy" }
                    }
                }
            }
        }
    }
}

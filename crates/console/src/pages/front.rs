//! The front page: what this gateway is and how to reach it.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use catalog::{Catalog, ModelKind};
use maud::{Markup, html};

use super::copyable;
use crate::desk::Desk;
use crate::shell::{Part, Shell, checked_by_caches, good};
use crate::show;
use crate::snippet::{self, Format};

/// What the front page tells of the catalog.
#[derive(Default)]
struct Glance {
    models: usize,
    providers: usize,
    /// A model to try.
    first: Option<String>,
}

fn glance(catalog: &Catalog) -> Glance {
    let mut providers: Vec<_> = catalog.iter().map(|model| model.provider.as_str()).collect();
    providers.dedup();
    let chat = catalog.iter().find(|model| model.kind == ModelKind::Chat);
    Glance {
        models: catalog.len(),
        providers: providers.len(),
        first: chat.map(|model| model.id.clone()),
    }
}

/// `GET /`
pub(crate) async fn show(State(desk): State<Arc<Desk>>) -> Response {
    let (url, formats) = (desk.url(), desk.formats());
    let Glance { models, providers, first } = desk.catalog(glance);
    let example = formats.iter().find(|format| format.suits(ModelKind::Chat)).zip(first);
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
                    (show::many(models, "model", "models")) " from "
                    (show::many(providers, "provider", "providers"))
                }
            }
            @if let Some((format, model)) = example {
                div {
                    (copyable("try", "Try it", &format.curl(&url, &model, snippet::KEY)))
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
                            @for family in families(&formats) { (row(&family, &url)) }
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
    checked_by_caches(good(&Shell::public("Model gateway", Part::Front), &body))
}

/// The formats by the client libraries that speak them: each family takes one base address.
fn families(formats: &[Format]) -> Vec<Vec<Format>> {
    let mut families: Vec<Vec<Format>> = Vec::new();
    for format in formats {
        let same = |family: &&mut Vec<Format>| {
            family.first().is_some_and(|first| first.clients() == format.clients())
        };
        match families.iter_mut().find(same) {
            Some(family) => family.push(*format),
            None => families.push(vec![*format]),
        }
    }
    families
}

fn row(family: &[Format], url: &str) -> Markup {
    let titles: Vec<_> = family.iter().map(|format| format.title()).collect();
    html! {
        @if let Some(first) = family.first() {
            @let id = format!("base-{}", first.word());
            tr {
                th scope="row" { (first.clients()) }
                td data-label="Formats" { (titles.join(", ")) }
                td data-label="Base address" {
                    span.inline-copy {
                        code id=(id) { (first.base(url)) }
                        button.copy type="button" hidden data-copy=(id) { "Copy" }
                    }
                }
            }
        }
    }
}

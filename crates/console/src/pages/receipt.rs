//! Receipt of one call.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use canon::{Charge, Usage};
use ledger::{FailedAttempt, LedgerEntry};
use maud::{Markup, html};

use super::call_reason::{call_error, call_reason};
use crate::display;
use crate::layout::{Layout, ok_page};
use crate::page_error::PageError;
use crate::session::SignedInUser;
use crate::state::ConsoleState;
use crate::urls;

/// `GET /console/calls/{id}`
pub(crate) async fn show(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, PageError> {
    let Path(id) = id.map_err(|_| PageError::NotFound)?;
    let entry = state.store.entry(&id).await?.ok_or(PageError::NotFound)?;
    if !user.may_see(&entry.account_id) {
        return Err(PageError::NotFound);
    }
    let key = state
        .store
        .key(&entry.key_id)
        .await?
        .map_or_else(|| entry.key_id.to_string(), |key| key.name);
    let body = html! {
        p.crumbs { a href=(user.path_for("/console/activity")) { "Activity" } " / receipt" }
        div.title.close {
            h1.id { bdi id="request-id" { (entry.request_id) } }
            button.copy type="button" hidden data-copy="request-id" { "Copy id" }
        }
        @if let Some(reason) = call_reason(&entry) {
            p.objection {
                (reason)
                @if let Some(error) = call_error(&entry) { br; (error) }
            }
        }
        div.columns {
            section { h2 { "Call" } (facts(&entry, &key, &user)) }
            section { h2 { "Tokens" } (tokens(&entry.usage)) }
        }
        @if !entry.charges.is_empty() { section { h2 { "Charges" } (charges_table(&entry)) } }
        section { h2 { "Attempts" } (attempts_table(&entry)) }
        @if !entry.losses.is_empty() {
            section {
                h2 { "Not carried" }
                p.muted { "What the provider's format had no place for." }
                ul.tags { @for loss in &entry.losses { li { (loss) } } }
            }
        }
    };
    Ok(ok_page(&Layout::signed_in("Receipt", &user).with_nav("/console/activity"), &body))
}

fn facts(entry: &LedgerEntry, key: &str, user: &SignedInUser) -> Markup {
    let operator = user.is_administrator();
    let calls_with = |name: &str, value: &str| {
        user.path_for(&format!("/console/activity?{name}={}", urls::escape_value(value)))
    };
    let took = entry.ended - entry.started;
    let first = entry.first_byte_us.map_or_else(|| "–".to_owned(), display::duration);
    html! {
        dl.facts {
            div { dt { "Model" } dd { a.id href=(urls::model_page(&entry.model)) { bdi { (entry.model) } } } }
            div { dt { "Lane" } dd { @if entry.lane.is_empty() { "none" } @else { bdi { (entry.lane) } } } }
            div { dt { "Key" } dd { bdi { (key) } } }
            @if !entry.session.is_empty() {
                @let page = format!("/console/sessions?id={}", urls::escape_value(&entry.session));
                div { dt { "Session" } dd { a.id href=(page) { bdi { (entry.session) } } } }
            }
            @if !entry.end_user.is_empty() {
                div { dt { "End user" } dd { a.id href=(calls_with("end_user", &entry.end_user)) { bdi { (entry.end_user) } } } }
            }
            @if !entry.tags.is_empty() {
                div { dt { "Tags" } dd {
                    ul.tags {
                        @for (name, value) in entry.tags.iter() {
                            @let tag = if value.is_empty() { name.to_owned() } else { format!("{name}={value}") };
                            li { a href=(calls_with("tag", &tag)) { bdi { (tag) } } }
                        }
                    }
                } }
            }
            div { dt { "Format" } dd { (entry.dialect) @if entry.stream { ", streamed" } } }
            div { dt { "Status" } dd { (entry.status) ", " (entry.outcome.word()) } }
            div { dt { "Began" } dd { (user.zone.timestamp(entry.started)) } }
            div { dt { "First byte" } dd { (first) } }
            div { dt { "Took" } dd { (display::duration(took)) } }
            div { dt { "Cost" } dd { (display::money(entry.cost)) " " span.muted.small { "$" (entry.cost) } } }
            @if operator && entry.absorbed != canon::Money::ZERO {
                div { dt { "Absorbed by the operator" } dd { (display::money(entry.absorbed)) } }
            }
            div { dt { "Prices" } dd { (entry.price_version) @if entry.estimated { ", counts estimated" } } }
        }
    }
}

fn tokens(usage: &Usage) -> Markup {
    let rows = [
        ("Prompt", usage.input),
        ("of it from a cache", usage.cache_read),
        ("of it written to a cache", usage.cache_write.saturating_add(usage.cache_write_long)),
        ("of it audio", usage.input_audio),
        ("of it pictures", usage.input_image),
        ("Answer", usage.output),
        ("of it thinking", usage.thinking),
        ("of it audio", usage.output_audio),
        ("of it pictures", usage.output_image),
        ("Searches", usage.searches),
    ];
    html! {
        dl.facts {
            @for (name, count) in rows {
                @if count > 0 || matches!(name, "Prompt" | "Answer") {
                    div { dt { (name) } dd.num { (display::count(count)) } }
                }
            }
        }
    }
}

/// The charges line by line. They add up to the cost before it is rounded to nanodollars.
fn charges_table(entry: &LedgerEntry) -> Markup {
    html! {
        div.sheet {
            table.list {
                thead { tr {
                    th scope="col" { "What" }
                    th.num scope="col" { "Count" }
                    th.num scope="col" { "Price" }
                    th.num scope="col" { "Amount" }
                } }
                tbody {
                    @for charge in &entry.charges {
                        tr {
                            td data-label="What" { (charge.dimension.as_str().replace('_', " ")) }
                            td.num data-label="Count" { (display::count(charge.count)) }
                            td.num data-label="Price" {
                                @if charge.dimension.counts_tokens() {
                                    (display::per_million(charge.price)) " per million"
                                } @else { (display::per_unit(charge.price)) }
                            }
                            td.num data-label="Amount" title={ "$" (charge.usd()) } {
                                (display::dollars(Charge::total(std::slice::from_ref(charge))))
                            }
                        }
                    }
                }
            }
        }
    }
}

fn attempts_table(entry: &LedgerEntry) -> Markup {
    html! {
        div.sheet {
            table.list {
                thead { tr { th scope="col" { "Lane" } th scope="col" { "Outcome" } th.num scope="col" { "Time" } } }
                tbody {
                    @for FailedAttempt { lane, outcome, status, ms } in &entry.failed {
                        tr {
                            td data-label="Lane" { bdi { (lane) } }
                            td data-label="Outcome" {
                                span.badge.bad { (outcome) @if let Some(status) = status { " · " (status) } }
                            }
                            td.num data-label="Time" { (ms) " ms" }
                        }
                    }
                    @if !entry.lane.is_empty() {
                        tr {
                            td data-label="Lane" { bdi { (entry.lane) } }
                            td data-label="Outcome" {
                                @if entry.status < 400 { span.badge.good { "answered" } }
                                @else { span.badge.bad { "answered · " (entry.status) } }
                            }
                            td.num data-label="Time" {
                                (display::duration(entry.first_byte_us.unwrap_or(entry.ended - entry.started)))
                            }
                        }
                    } @else if entry.failed.is_empty() {
                        tr { td data-label="Lane" colspan="3" { span.muted { "No lane was tried." } } }
                    }
                }
            }
        }
    }
}

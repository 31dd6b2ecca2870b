//! List of calls, receipt of one call, and CSV export.

use std::collections::HashMap;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use canon::{Micros, Usage};
use futures_util::stream;
use http::header;
use ledger::{FailedAttempt, LedgerEntry};
use maud::{Markup, html};
use store::{EntryFilter, Store};

use super::overview::call_table;
use crate::csv::csv_line;
use crate::display;
use crate::form::{FormFields, QueryFields};
use crate::layout::{Layout, ok_page};
use crate::page_error::PageError;
use crate::session::SignedInUser;
use crate::state::ConsoleState;
use crate::urls::{self, TEAM_PARAMETER};

const PER_PAGE: u32 = 50;
const EXPORT_BATCH_ROWS: u32 = 1_000;
const MAX_PARAMETER_BYTES: usize = 256;
const DAY: Micros = Micros::from_days(1);

fn filter(query: &FormFields, user: &SignedInUser, now: Micros) -> Result<EntryFilter, PageError> {
    let parameter = |name| {
        let text = query.get_trimmed(name, MAX_PARAMETER_BYTES)?;
        Ok::<_, PageError>((!text.is_empty()).then(|| text.to_owned()))
    };
    let account_id =
        if user.sees_all() { parameter("account")? } else { Some(user.owner_id().to_owned()) };
    let days = match query.get("range") {
        "24h" => Some(1),
        "7d" => Some(7),
        "30d" => Some(30),
        "90d" => Some(90),
        "1y" => Some(365),
        _ => None,
    };
    let before = parameter("before")?.and_then(|text| {
        let (ended, id) = text.split_once('~')?;
        Some((Micros::new(ended.parse().ok()?), id.to_owned()))
    });
    Ok(EntryFilter {
        account_id,
        key_id: parameter("key")?,
        model: parameter("model")?,
        since: days.map(|days| now - days * DAY),
        until: None,
        before,
    })
}

/// `GET /console/calls`
pub(crate) async fn list(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    QueryFields(query): QueryFields,
) -> Result<Response, PageError> {
    let now = state.now();
    let filter = filter(&query, &user, now)?;
    let calls = state.store.entries(&filter, PER_PAGE).await?;
    let keys = state.store.keys_of(user.owner_id()).await?;
    let first = filter.before.is_none();
    let next = (calls.len() as u32 == PER_PAGE).then(|| calls.last()).flatten();
    let body = html! {
        div.title {
            h1 { "Calls" }
            div.actions {
                a.button.quiet href=(user.path_for("/console/usage")) { "Usage" }
                a.button.quiet href={ "/console/calls.csv?" (list_query(&query, "")) } { "Export CSV" }
            }
        }
        form.filters method="get" action="/console/calls" role="search" {
            @if let Some(team) = &user.team { input type="hidden" name=(TEAM_PARAMETER) value=(team.id); }
            div.field.grow {
                label for="model" { "Model" }
                input id="model" name="model" type="search" value=(query.get("model")) autocomplete="off";
            }
            div.field {
                label for="key" { "Key" }
                select id="key" name="key" {
                    option value="" { "Any" }
                    @for key in &keys {
                        option value=(key.id) selected[key.id == query.get("key")] { (key.name) }
                    }
                }
            }
            div.field.go { button.button type="submit" { "Show" } }
        }
        @if first {
            label.tick hidden data-live="calls" {
                input type="checkbox";
                span { "Live" span.help { "New calls appear automatically." } }
            }
        }
        div id="calls" {
            @if calls.is_empty() {
                div.empty { h2 { "No calls" } p { "Calls appear here as soon as they are settled." } }
            } @else {
                (call_table(&calls, &user, now))
            }
        }
        @if let Some(last) = next {
            nav.pager aria-label="Pages of calls" {
                a rel="next" href={ "/console/calls?" (list_query(&query, &format!("{}~{}", last.ended, last.request_id))) } {
                    "Older calls →"
                }
            }
        }
    };
    Ok(ok_page(&Layout::signed_in("Calls", &user).with_nav("/console/calls"), &body))
}

/// Query string of the list with another start.
fn list_query(query: &FormFields, before: &str) -> String {
    let kept =
        [TEAM_PARAMETER, "account", "key", "model", "range"].map(|name| (name, query.get(name)));
    let parts = kept.into_iter().chain([("before", before)]);
    let parts = parts.filter(|(_, value)| !value.is_empty());
    let parts: Vec<String> =
        parts.map(|(name, value)| format!("{name}={}", urls::escape_value(value))).collect();
    parts.join("&")
}

/// `GET /console/calls/{id}`
pub(crate) async fn receipt(
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
        p.crumbs { a href=(user.path_for("/console/calls")) { "Calls" } " / receipt" }
        div.title.close {
            h1.id { bdi id="request-id" { (entry.request_id) } }
            button.copy type="button" hidden data-copy="request-id" { "Copy id" }
        }
        div.columns {
            section { h2 { "Call" } (facts(&entry, &key, user.is_administrator())) }
            section { h2 { "Tokens" } (tokens(&entry.usage)) }
        }
        section { h2 { "Tries" } (attempts_table(&entry)) }
        @if !entry.losses.is_empty() {
            section {
                h2 { "Not carried" }
                p.muted { "What the provider's format had no place for." }
                ul.tags { @for loss in &entry.losses { li { (loss) } } }
            }
        }
    };
    Ok(ok_page(&Layout::signed_in("Receipt", &user).with_nav("/console/calls"), &body))
}

fn facts(entry: &LedgerEntry, key: &str, operator: bool) -> Markup {
    let took = entry.ended - entry.started;
    let first = entry.first_byte_us.map_or_else(|| "–".to_owned(), display::duration);
    html! {
        dl.facts {
            div { dt { "Model" } dd { a.id href=(urls::model_page(&entry.model)) { bdi { (entry.model) } } } }
            div { dt { "Answered by" } dd { @if entry.lane.is_empty() { "none" } @else { bdi { (entry.lane) } } } }
            div { dt { "Key" } dd { bdi { (key) } } }
            @if !entry.session.is_empty() {
                @let page = format!("/console/sessions?id={}", urls::escape_value(&entry.session));
                div { dt { "Session" } dd { a.id href=(page) { bdi { (entry.session) } } } }
            }
            div { dt { "Format" } dd { (entry.dialect) @if entry.stream { ", streamed" } } }
            div { dt { "Status" } dd { (entry.status) ", " (entry.outcome.word()) } }
            div { dt { "Began" } dd { (display::timestamp(entry.started)) } }
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
                    @if let Some(first) = entry.first_byte_us {
                        tr {
                            td data-label="Lane" { bdi { (entry.lane) } }
                            td data-label="Outcome" { span.badge.good { "answered" } }
                            td.num data-label="Time" { (display::duration(first)) }
                        }
                    }
                    @if entry.failed.is_empty() && entry.first_byte_us.is_none() {
                        tr { td data-label="Lane" colspan="3" { span.muted { "No lane was tried." } } }
                    }
                }
            }
        }
    }
}

/// `GET /console/calls.csv`: streamed in batches.
pub(crate) async fn csv(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    QueryFields(query): QueryFields,
) -> Result<Response, PageError> {
    let filter = filter(&query, &user, state.now())?;
    let keys = state.store.keys().await?;
    let names: HashMap<String, String> = keys.into_iter().map(|key| (key.id, key.name)).collect();
    let export =
        CallExport { store: state.store.clone(), filter, names, position: ExportPosition::Header };
    let rows = stream::try_unfold(export, |mut export| async move {
        let piece = export.next_chunk().await?;
        Ok::<_, std::io::Error>(piece.map(|piece| (piece, export)))
    });
    let headers = [
        (header::CONTENT_TYPE, "text/csv; charset=utf-8"),
        (header::CONTENT_DISPOSITION, "attachment; filename=\"calls.csv\""),
    ];
    Ok((headers, Body::from_stream(rows)).into_response())
}

/// Position of an export.
enum ExportPosition {
    Header,
    Rows(Option<(Micros, String)>),
    End,
}

struct CallExport {
    store: Store,
    filter: EntryFilter,
    names: HashMap<String, String>,
    position: ExportPosition,
}

impl CallExport {
    async fn next_chunk(&mut self) -> Result<Option<Bytes>, std::io::Error> {
        let after = match &self.position {
            ExportPosition::Header => {
                self.position = ExportPosition::Rows(None);
                return Ok(Some(Bytes::from_static(CSV_HEADER.as_bytes())));
            }
            ExportPosition::Rows(after) => after.clone(),
            ExportPosition::End => return Ok(None),
        };
        let calls = self.store.export_of(&self.filter, after, EXPORT_BATCH_ROWS).await;
        // Aborts the transfer on purpose: a truncated file must not look complete.
        let calls = calls.map_err(|error| {
            tracing::error!("an export of calls failed: {error}");
            std::io::Error::other("the calls could not be read")
        })?;
        self.position = match calls.last() {
            Some(last) if calls.len() as u32 == EXPORT_BATCH_ROWS => {
                ExportPosition::Rows(Some((last.ended, last.request_id.to_string())))
            }
            Some(_) | None => ExportPosition::End,
        };
        let text: String = calls.iter().map(|call| csv_row(call, &self.names)).collect();
        Ok(Some(Bytes::from(text)))
    }
}

const CSV_HEADER: &str = "request_id,ended,key,key_id,model,lane,format,status,outcome,streamed,\
    input_tokens,cached_tokens,output_tokens,thinking_tokens,estimated,cost_usd,first_byte_ms,took_ms\r\n";

fn csv_row(call: &LedgerEntry, names: &HashMap<String, String>) -> String {
    let key = names.get(&*call.key_id).map_or("", String::as_str);
    let fields = [
        call.request_id.to_string(),
        display::timestamp(call.ended),
        key.to_owned(),
        call.key_id.to_string(),
        call.model.to_string(),
        call.lane.to_string(),
        call.dialect.to_string(),
        call.status.to_string(),
        call.outcome.word().to_owned(),
        call.stream.to_string(),
        call.usage.input.to_string(),
        call.usage.cache_read.to_string(),
        call.usage.output.to_string(),
        call.usage.thinking.to_string(),
        call.estimated.to_string(),
        call.cost.to_string(),
        call.first_byte_us.map(|wait| wait.as_millis().to_string()).unwrap_or_default(),
        (call.ended - call.started).as_millis().to_string(),
    ];
    csv_line(fields)
}

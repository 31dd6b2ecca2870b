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
use store::{EntryFilter, EntryPage, KeyRecord, StatusFilter, Store};

use super::call_reason::{call_error, call_reason};
use super::call_table::{CallNames, call_table};
use crate::csv::csv_line;
use crate::display;
use crate::form::{FormFields, QueryFields};
use crate::layout::{Layout, ok_page};
use crate::page_error::PageError;
use crate::redirect::redirect_to;
use crate::session::SignedInUser;
use crate::state::ConsoleState;
use crate::time_range::{TimeRange, range_fields};
use crate::urls::{self, TEAM_PARAMETER};

const PER_PAGE: u32 = 50;
/// Blocks of calls that one page searches for matching ones.
const MAX_SEARCHED_BLOCKS: usize = 1_024;
const EXPORT_BATCH_ROWS: u32 = 1_000;
const MAX_PARAMETER_BYTES: usize = 256;
/// Parameters of a selection, in the order of an address. The list and its export have the same.
const PARAMETERS: [&str; 12] = [
    TEAM_PARAMETER,
    "account",
    "key",
    "model",
    "lane",
    "status",
    "error",
    "format",
    "session",
    "range",
    "from",
    "to",
];
/// Ends that can be chosen: parameter value, label.
const STATUSES: [(&str, &str); 5] = [
    ("", "Any"),
    ("done", "Answered"),
    ("failed", "Not answered to the end"),
    ("4xx", "4xx: the request"),
    ("5xx", "5xx: gateway or provider"),
];
const FORMATS: [(&str, &str); 7] = [
    ("", "Any"),
    ("chat", "chat"),
    ("responses", "responses"),
    ("messages", "messages"),
    ("native", "native"),
    ("images", "images"),
    ("embeddings", "embeddings"),
];
fn filter(query: &FormFields, user: &SignedInUser, now: Micros) -> Result<EntryFilter, PageError> {
    let parameter = |name| {
        let text = query.get_trimmed(name, MAX_PARAMETER_BYTES)?;
        Ok::<_, PageError>((!text.is_empty()).then(|| text.to_owned()))
    };
    let account_id =
        if user.sees_all() { parameter("account")? } else { Some(user.owner_id().to_owned()) };
    let range = TimeRange::read(query)?.map(|time| time.at(now));
    // A condition that is not understood must not widen the selection.
    let status = parameter("status")?.map(|word| {
        StatusFilter::by_word(&word).ok_or(PageError::BadRequest(
            "The status is not known. Write done, failed, a number, or 4xx or 5xx.",
        ))
    });
    let before = parameter("before")?.and_then(|text| {
        let (ended, id) = text.split_once('~')?;
        Some((Micros::new(ended.parse().ok()?), id.to_owned()))
    });
    Ok(EntryFilter {
        account_id,
        key_id: parameter("key")?,
        model: parameter("model")?,
        lane: parameter("lane")?,
        status: status.transpose()?,
        format: parameter("format")?,
        session: parameter("session")?,
        error: parameter("error")?,
        since: range.as_ref().map(|range| range.start),
        until: range.as_ref().map(|range| range.end),
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
    let id = query.get_trimmed("id", MAX_PARAMETER_BYTES)?;
    if !id.is_empty() {
        let receipt = format!("/console/calls/{}", urls::escape_value(id));
        return Ok(redirect_to(&user.path_for(&receipt)));
    }
    let EntryPage { calls, next } =
        state.store.entry_page(&filter, PER_PAGE, MAX_SEARCHED_BLOCKS).await?;
    let keys = state.store.keys_of(user.owner_id()).await?;
    let names = CallNames::load(&state, &user, &calls).await?;
    let is_first = filter.before.is_none();
    let is_filtered =
        PARAMETERS.iter().any(|name| *name != TEAM_PARAMETER && !query.get(name).trim().is_empty());
    let body = html! {
        div.title {
            h1 { "Calls" }
            div.actions {
                a.button.quiet href=(user.path_for("/console/usage")) { "Usage" }
                a.button.quiet href={ "/console/calls.csv?" (list_query(&query, "")) } { "Export CSV" }
            }
        }
        (filter_form(&query, &user, &keys, is_filtered, now))
        @if is_first {
            label.tick hidden data-live="calls" {
                input type="checkbox";
                span { "Live" span.help { "New calls appear automatically." } }
            }
        }
        div id="calls" {
            @if !calls.is_empty() {
                (call_table(&calls, &user, &names, now))
            } @else if next.is_some() {
                div.empty { h2 { "No matching calls yet" } p { "Many calls were searched, and none of them matches. Older calls may." } }
            } @else if is_filtered {
                div.empty { h2 { "No matching calls" } p { "Fewer filters or a longer time show more." } }
            } @else {
                div.empty { h2 { "No calls" } p { "Calls appear here as soon as they are settled." } }
            }
        }
        @if let Some((ended, id)) = next {
            nav.pager aria-label="Pages of calls" {
                a rel="next" href={ "/console/calls?" (list_query(&query, &format!("{ended}~{id}"))) } {
                    "Older calls →"
                }
            }
        }
    };
    Ok(ok_page(&Layout::signed_in("Calls", &user).with_nav("/console/calls"), &body))
}

fn filter_form(
    query: &FormFields,
    user: &SignedInUser,
    keys: &[KeyRecord],
    is_filtered: bool,
    now: Micros,
) -> Markup {
    let choice = |name: &str, label: &str, options: &[(&str, &str)]| {
        let chosen = query.get(name);
        let is_listed = options.iter().any(|(value, _)| *value == chosen);
        html! {
            div.field {
                label for=(name) { (label) }
                select id=(name) name=(name) {
                    @for (value, text) in options { option value=(value) selected[*value == chosen] { (text) } }
                    @if !is_listed { option value=(chosen) selected { (chosen) } }
                }
            }
        }
    };
    let text = |name: &str, label: &str, hint: &str| {
        html! {
            div.field.grow {
                label for=(name) { (label) }
                input id=(name) name=(name) type="search" value=(query.get(name)) placeholder=(hint) autocomplete="off";
            }
        }
    };
    let key_options: Vec<(&str, &str)> = std::iter::once(("", "Any"))
        .chain(keys.iter().map(|key| (key.id.as_str(), key.name.as_str())))
        .collect();
    html! {
        form.filters method="get" action="/console/calls" role="search" {
            @if let Some(team) = &user.team { input type="hidden" name=(TEAM_PARAMETER) value=(team.id); }
            @if user.sees_all() && !query.get("account").is_empty() {
                input type="hidden" name="account" value=(query.get("account"));
            }
            (range_fields(TimeRange::read(query).ok().flatten(), Some("All time"), now))
            (choice("status", "Status", &STATUSES))
            (text("error", "Error code", "any"))
            (text("model", "Model", "any"))
            (text("lane", "Lane or provider", "any"))
            (choice("key", "Key", &key_options))
            (choice("format", "Format", &FORMATS))
            (text("session", "Session", "any"))
            (text("id", "Request id", "req_…"))
            div.field.go { button.button type="submit" { "Show" } }
            @if is_filtered {
                div.field.go { a.button.quiet href=(user.path_for("/console/calls")) { "Show all" } }
            }
        }
    }
}

/// Query string of the list with another start.
fn list_query(query: &FormFields, before: &str) -> String {
    let kept = PARAMETERS.map(|name| (name, query.get(name)));
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
        @if let Some(reason) = call_reason(&entry) {
            p.objection {
                (reason)
                @if let Some(error) = call_error(&entry) { br; (error) }
            }
        }
        div.columns {
            section { h2 { "Call" } (facts(&entry, &key, user.is_administrator())) }
            section { h2 { "Tokens" } (tokens(&entry.usage)) }
        }
        section { h2 { "Attempts" } (attempts_table(&entry)) }
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
            div { dt { "Lane" } dd { @if entry.lane.is_empty() { "none" } @else { bdi { (entry.lane) } } } }
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
    input_tokens,cached_tokens,output_tokens,thinking_tokens,estimated,cost_usd,first_byte_ms,took_ms,\
    error_code,error_message\r\n";

fn csv_row(call: &LedgerEntry, names: &HashMap<String, String>) -> String {
    let key = names.get(&*call.key_id).map_or("", String::as_str);
    let error = call.error.as_deref();
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
        error.map_or_else(String::new, |error| error.code.clone()),
        error.map_or_else(String::new, |error| error.message.clone()),
    ];
    csv_line(fields)
}

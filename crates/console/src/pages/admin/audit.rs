//! The audit log, newest first. The filter is part of the URL.

use std::collections::HashMap;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use http::header;
use maud::{Markup, html};

use crate::audit_csv::{audit_csv_header, audit_csv_line, display_name};
use crate::form::{FormFields, QueryFields};
use crate::layout::{Layout, ok_page};
use crate::page_error::PageError;
use crate::session::SignedInUser;
use crate::state::ConsoleState;
use crate::time_range::{day_after, from_label, parse_day, zone_field};
use crate::urls;
use crate::viewer_time::{MAX_ZONE_BYTES, ViewerClock, ViewerZone, ZONE_PARAMETER};
use admin::{Actor, AuditCursor, AuditEntry, AuditQuery};

const PAGE_PATH: &str = "/console/audit";
const PER_PAGE: u32 = 50;
const EXPORT_BATCH_ROWS: u32 = 1_000;
const MAX_PARAMETER_BYTES: usize = 256;

/// Kinds of changes: prefix in the log and label.
const ACTION_KINDS: [(&str, &str); 10] = [
    ("", "Anything"),
    ("key", "Keys"),
    ("account", "Accounts"),
    ("session", "Sessions"),
    ("factor", "Second steps"),
    ("identity", "Identities"),
    ("provider", "Providers"),
    ("model", "Models and prices"),
    ("setting", "Settings"),
    ("vault", "Vault"),
];

/// Selection made in the URL.
struct AuditSelection<'a> {
    actor: &'a str,
    action: &'a str,
    from: &'a str,
    to: &'a str,
    /// Zone of the days and times of the page.
    zone: &'a ViewerZone,
}

impl<'a> AuditSelection<'a> {
    fn parse(query: &'a FormFields, zone: &'a ViewerZone) -> Result<Self, PageError> {
        Ok(Self {
            zone,
            actor: query.get_trimmed("actor", MAX_PARAMETER_BYTES)?,
            action: query.get_trimmed("action", MAX_PARAMETER_BYTES)?,
            from: require_day(query.get_trimmed("from", MAX_PARAMETER_BYTES)?)?,
            to: require_day(query.get_trimmed("to", MAX_PARAMETER_BYTES)?)?,
        })
    }

    /// Query string of the console page for this selection.
    fn console_query(&self, before: &str) -> String {
        let has_days = !self.from.is_empty() || !self.to.is_empty();
        let is_meant = !has_days || *self.zone == ViewerZone::UTC;
        query_string(&[
            ("actor", self.actor),
            ("action", self.action),
            ("from", self.from),
            ("to", self.to),
            (ZONE_PARAMETER, if is_meant { "" } else { self.zone.name() }),
            ("before", before),
        ])
    }

    /// Query of the log for this selection. The last day is included.
    fn to_query(&self, before: Option<AuditCursor>) -> AuditQuery {
        let filled = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let day = |text: &str| (!text.is_empty()).then(|| parse_day(text).ok()).flatten();
        AuditQuery {
            actor: filled(self.actor),
            action: filled(self.action),
            since: day(self.from).map(|first| self.zone.start_of_day(first)),
            until: day(self.to).map(|last| self.zone.start_of_day(day_after(last))),
            before,
        }
    }
}

/// Returns the zone of the days in a URL; UTC for days without one.
fn zone_of(query: &FormFields, own: &ViewerZone) -> Result<ViewerZone, PageError> {
    let has_days = !query.get("from").is_empty() || !query.get("to").is_empty();
    match query.get_trimmed(ZONE_PARAMETER, MAX_ZONE_BYTES)? {
        "" if has_days => Ok(ViewerZone::UTC),
        "" => Ok(own.clone()),
        name => ViewerZone::read(name),
    }
}

/// Reads the position in a URL; empty is the newest change.
fn parse_before(text: &str) -> Result<Option<AuditCursor>, PageError> {
    let cursor = (!text.is_empty()).then(|| text.parse()).transpose();
    cursor.map_err(|error: admin::AdminError| PageError::Rejected(error.to_string()))
}

/// Accepts a date as browsers send it, or an empty text.
fn require_day(text: &str) -> Result<&str, PageError> {
    if !text.is_empty() {
        parse_day(text)?;
    }
    Ok(text)
}

/// Joins the non-empty pairs to a query string.
fn query_string(pairs: &[(&str, &str)]) -> String {
    let pairs = pairs.iter().filter(|(_, value)| !value.is_empty());
    let pairs: Vec<String> =
        pairs.map(|(name, value)| format!("{name}={}", urls::escape_value(value))).collect();
    pairs.join("&")
}

/// Names of keys and accounts by id.
async fn display_names(state: &ConsoleState) -> Result<HashMap<String, String>, PageError> {
    let accounts = state.store.accounts().await?.into_iter().map(|one| (one.id, one.username));
    let keys = state.store.keys().await?.into_iter().map(|key| (key.id, key.name));
    Ok(accounts.chain(keys).collect())
}

/// `GET /console/audit`
pub(crate) async fn show(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    QueryFields(query): QueryFields,
) -> Result<Response, PageError> {
    let zone = zone_of(&query, &user.zone)?;
    let view = AuditSelection::parse(&query, &zone)?;
    let before = query.get_trimmed("before", MAX_PARAMETER_BYTES)?;
    let request = view.to_query(parse_before(before)?);
    let found = state.host.admin().audit_page(&user.actor(), request, PER_PAGE).await?;
    let names = display_names(&state).await?;
    let accounts = state.store.accounts().await?;
    let clock = ViewerClock { now: state.now(), zone: zone.clone() };
    let body = html! {
        div.title {
            h1 { "Audit log" }
            div.actions {
                a.button.quiet href={ (PAGE_PATH) ".csv?" (view.console_query("")) } { "Export CSV" }
            }
        }
        form.filters method="get" action=(PAGE_PATH) role="search" {
            div.field {
                label for="actor" { "Who" }
                select #actor name="actor" {
                    option value="" { "Anybody" }
                    @for one in &accounts {
                        option value=(one.id) selected[one.id == view.actor] { (one.username) }
                    }
                    option value="command line" selected[view.actor == "command line"] { "Command line" }
                }
            }
            div.field {
                label for="action" { "What" }
                select #action name="action" {
                    @for (word, title) in ACTION_KINDS {
                        option value=(word) selected[word == view.action] { (title) }
                    }
                    @if !ACTION_KINDS.iter().any(|(word, _)| *word == view.action) {
                        option value=(view.action) selected { (view.action) }
                    }
                }
            }
            div.field { label for="from" { (from_label(&zone)) } input #from name="from" type="date" value=(view.from); }
            div.field { label for="to" { "To" } input #to name="to" type="date" value=(view.to); }
            (zone_field(&zone))
            div.field.go { button.button type="submit" { "Show" } }
        }
        @if found.entries.is_empty() {
            div.empty { h2 { "Nothing was changed" } p { "Take a longer time or fewer filters." } }
        } @else {
            (table(&found.entries, &names, &view, &clock))
        }
        nav.pager aria-label="Pages of changes" {
            @if !before.is_empty() { a rel="first" href={ (PAGE_PATH) "?" (view.console_query("")) } { "← Newest" } }
            @if let Some(next) = found.next {
                a rel="next" href={ (PAGE_PATH) "?" (view.console_query(&next.to_string())) } { "Older changes →" }
            }
        }
    };
    Ok(ok_page(&Layout::signed_in("Audit log", &user.account).with_nav(PAGE_PATH), &body))
}

fn table(
    changes: &[AuditEntry],
    names: &HashMap<String, String>,
    view: &AuditSelection<'_>,
    clock: &ViewerClock,
) -> Markup {
    let only = |action: &str| {
        let AuditSelection { actor, from, to, zone, .. } = *view;
        format!(
            "{PAGE_PATH}?{}",
            AuditSelection { actor, action, from, to, zone }.console_query("")
        )
    };
    html! {
        div.sheet {
            table.list {
                thead { tr {
                    th scope="col" { "When" }
                    th scope="col" { "Who" }
                    th scope="col" { "What" }
                    th scope="col" { "To what" }
                    th scope="col" { "More" }
                    th scope="col" { "From" }
                } }
                tbody {
                    @for change in changes {
                        @let AuditEntry {
                            at, actor, action, subject, detail, key_id, address, agent,
                        } = change;
                        tr {
                            td data-label="When" { (clock.relative_time(*at)) }
                            td data-label="Who" {
                                bdi title=(actor) { (display_name(names, actor)) }
                                @if let Some(key) = key_id { " with key " code { (key) } }
                            }
                            td data-label="What" { a.id href=(only(action)) { (action) } }
                            td data-label="To what" {
                                bdi.wrap title=(subject) { (display_name(names, subject)) }
                            }
                            td data-label="More" { bdi.wrap { (detail) } }
                            td data-label="From" {
                                bdi.wrap title=[agent.as_deref()] {
                                    (address.as_deref().unwrap_or_default())
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Position of an export.
enum AuditPosition {
    Header,
    Page(Option<AuditCursor>),
    End,
}

/// `GET /console/audit.csv`: streamed in batches.
pub(crate) async fn csv(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    QueryFields(query): QueryFields,
) -> Result<Response, PageError> {
    let zone = zone_of(&query, &user.zone)?;
    AuditSelection::parse(&query, &zone)?;
    let actor = user.actor();
    // Checks the rights first, so a refusal is a page and not a truncated file.
    actor.require_admin()?;
    let export = AuditExport {
        state: Arc::clone(&state),
        actor,
        query,
        zone,
        names: display_names(&state).await?,
        position: AuditPosition::Header,
    };
    let pieces = stream::try_unfold(export, |mut export| async move {
        let piece = export.next_chunk().await?;
        Ok::<_, std::io::Error>(piece.map(|piece| (piece, export)))
    });
    let headers = [
        (header::CONTENT_TYPE, "text/csv; charset=utf-8"),
        (header::CONTENT_DISPOSITION, "attachment; filename=\"audit.csv\""),
    ];
    Ok((headers, Body::from_stream(pieces)).into_response())
}

struct AuditExport {
    state: Arc<ConsoleState>,
    actor: Actor,
    query: FormFields,
    zone: ViewerZone,
    names: HashMap<String, String>,
    position: AuditPosition,
}

impl AuditExport {
    async fn next_chunk(&mut self) -> Result<Option<Bytes>, std::io::Error> {
        let before = match self.position {
            AuditPosition::Header => {
                self.position = AuditPosition::Page(None);
                return Ok(Some(Bytes::from(audit_csv_header())));
            }
            AuditPosition::Page(before) => before,
            AuditPosition::End => return Ok(None),
        };
        // Aborts the transfer on purpose: a truncated file must not look complete.
        let unread = || std::io::Error::other("the audit log could not be read");
        let view = AuditSelection::parse(&self.query, &self.zone).map_err(|_| unread())?;
        let request = view.to_query(before);
        let admin = self.state.host.admin();
        let page = admin.audit_page(&self.actor, request, EXPORT_BATCH_ROWS).await;
        let page = page.map_err(|error| {
            tracing::error!("an export of the audit log broke off: {error}");
            unread()
        })?;
        self.position = match page.next {
            None => AuditPosition::End,
            next => AuditPosition::Page(next),
        };
        let lines = page.entries.iter().map(|change| audit_csv_line(change, &self.names));
        Ok(Some(Bytes::from(lines.collect::<String>())))
    }
}

//! Activity: spend, tokens, calls and latency over time and by group, and the calls themselves. One selection in
//! the address decides all of it.

mod charts;
mod export;
mod figures;
mod filters;
mod metric;
mod names;
mod selection;

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::Uri;
use maud::{Markup, html};
use store::{EntryPage, GroupBy, ReportTotals, UsageReport, UsageRequest, UsageStep};

use self::filters::FilterOptions;
use self::names::GroupNames;
use self::selection::{ActivitySelection, FILE_PATH, PAGE_PATH};
use super::call_table::{CallNames, call_table};
use crate::form::QueryFields;
use crate::layout::{Layout, ok_page};
use crate::page_error::PageError;
use crate::redirect::redirect_to;
use crate::session::SignedInUser;
use crate::state::ConsoleState;
use crate::urls;
use crate::viewer_time::ViewerZone;

pub(crate) use self::export::csv;

const CALLS_PER_PAGE: u32 = 50;
/// Size of the stored calls that one page searches for matching ones.
const MAX_SEARCHED_BYTES: usize = 16 << 20;
const MAX_ID_BYTES: usize = 256;
const MAX_TAG_CHOICES: usize = 12;

/// `GET /console/activity`
pub(crate) async fn show(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    QueryFields(query): QueryFields,
) -> Result<Response, PageError> {
    let id = query.get_trimmed("id", MAX_ID_BYTES)?;
    if !id.is_empty() {
        let receipt = format!("/console/calls/{}", urls::escape_value(id));
        return Ok(redirect_to(&user.path_for(&receipt)));
    }
    let hours_from = state.store.usage_hours_from().await?;
    let view = ActivitySelection::parse(&query, &user, state.now(), hours_from)?;
    let mut names = GroupNames::default();
    let options = FilterOptions::load(&state.store, &user, &view, &mut names).await?;
    let is_first = view.before.is_none();
    let sums = match is_first {
        true => sums(&state, &view, &mut names).await?,
        false => html! {},
    };
    let body = html! {
        div.title {
            h1 { "Activity" }
            div.actions { a.button.quiet href=(view.file()) { "Export CSV" } }
        }
        (filters::choice_bar(&view, &user))
        (filters::filter_form(&view, &user, &options))
        (zone_notes(&view))
        @if is_first {
            label.tick hidden data-live="activity" {
                input type="checkbox";
                span { "Live" span.help { "New calls appear automatically." } }
            }
        }
        div.stack #activity {
            (sums)
            (calls(&state, &user, &view).await?)
        }
    };
    Ok(ok_page(&Layout::signed_in("Activity", &user).with_nav(PAGE_PATH), &body))
}

/// Tells of days that are not those of the viewer.
fn zone_notes(view: &ActivitySelection) -> Markup {
    html! {
        @if let Some(same) = view.in_own_zone() {
            p.muted {
                "Days and times are those of " (view.zone().name()) ", which the address names. "
                a href=(same) { "Show those of " (view.own_zone().name()) }
            }
        }
        @if let Some(from) = view.calendar.hours_from.filter(|_| !view.calendar.has_hours(view.range().start)) {
            p.muted {
                "The hours of usage before " (ViewerZone::UTC.timestamp(from))
                " are deleted. Days that begin before are those of UTC."
            }
        }
    }
}

/// Figures, chart and groups.
async fn sums(
    state: &ConsoleState,
    view: &ActivitySelection,
    names: &mut GroupNames,
) -> Result<Markup, PageError> {
    let request = UsageRequest {
        range: view.range(),
        steps: view.time.steps(&view.calendar),
        by: view.group_by,
        tag: view.tag.clone(),
        rank: view.metric.group_order(),
        filter: view.filter.clone(),
        listed: figures::MAX_LISTED_GROUPS,
        with_series: charts::MAX_SERIES,
    };
    let report = state.store.usage_view(&request).await?;
    let groups: Vec<String> = report.top.iter().map(|(group, _)| group.clone()).collect();
    names.add(&state.store, view.group_by, &groups).await?;
    let before = totals_before(state, view, request, &report).await?;
    let view = &view.by_tag(report.tag.as_ref());
    let has_any = report.all.calls > 0 || report.refused > 0;
    Ok(html! {
        (figures::figures(view, &report, before.as_ref()))
        @if let Some(since) = report.searched_since {
            p.notice {
                "These conditions are compared with each call, and there are too many. The sums have the calls since "
                (view.zone().timestamp(since)) ". A shorter time has exact sums, and the file has all calls."
            }
        }
        @if let [last, ..] = *report.whole_hours {
            p.notice {
                "Some days begin within an hour of UTC, and the calls of such hours up to "
                (view.zone().timestamp(UsageStep::Hour.end(last)))
                " cannot all be read. These hours count whole to the day before."
            }
        }
        @if has_any {
            section {
                h2 { (view.metric.title()) " over time" }
                (charts::chart(view, &report, names))
            }
            section {
                h2 { "By " (view.group_title()) }
                @if view.group_by == GroupBy::Tag { (tag_choices(view, &report)) }
                (figures::group_table(view, &report, names))
            }
        }
    })
}

/// The tags whose values can be the groups, the most frequent ones first.
fn tag_choices(view: &ActivitySelection, report: &UsageReport) -> Markup {
    let mut names: Vec<(&String, &i64)> = report.tag_names.iter().collect();
    names.sort_by_key(|(name, calls)| (std::cmp::Reverse(**calls), *name));
    html! {
        @if names.is_empty() {
            p.muted {
                "No call of this selection has a tag. Programs send tags in the header "
                code { "x-portunus-tags: team=blue" } " or in the field " code { "metadata" } "."
            }
        } @else {
            nav.choices aria-label="Tag" {
                @for (name, _) in names.into_iter().take(MAX_TAG_CHOICES) {
                    @let is_chosen = view.tag.as_ref() == Some(name);
                    a href=(view.with_parameter("tag_name", name)) aria-current=[is_chosen.then_some("true")] {
                        bdi { (name) }
                    }
                }
            }
        }
    }
}

/// Sums of the time before, if they are cheap to read.
async fn totals_before(
    state: &ConsoleState,
    view: &ActivitySelection,
    request: UsageRequest,
    report: &UsageReport,
) -> Result<Option<ReportTotals>, PageError> {
    if report.searched_since.is_some() {
        return Ok(None);
    }
    let request = UsageRequest {
        range: view.range_before(),
        steps: vec![],
        listed: 0,
        with_series: 0,
        ..request
    };
    let before = state.store.usage_view(&request).await?;
    Ok(before.searched_since.is_none().then_some(before.all))
}

/// The newest calls, or a later page of them.
async fn calls(
    state: &ConsoleState,
    user: &SignedInUser,
    view: &ActivitySelection,
) -> Result<Markup, PageError> {
    let filter = view.entry_filter();
    let EntryPage { calls, next, .. } =
        state.store.entry_page(&filter, CALLS_PER_PAGE, MAX_SEARCHED_BYTES).await?;
    let names = CallNames::load(state, user, &calls).await?;
    let nothing = |title: &str, hint: &str| html! { div.empty { h3 { (title) } p { (hint) } } };
    Ok(html! {
        section {
            h2 { "Calls" }
            @if !calls.is_empty() {
                (call_table(&calls, user, &names, &view.calendar.clock))
            } @else if next.is_some() {
                (nothing("No matching calls yet", "Many calls were searched, and none of them matches. Older calls may."))
            } @else if view.is_narrow() {
                (nothing("No matching calls", "Fewer filters or a longer time show more."))
            } @else {
                (nothing("No calls in this time", "Take a longer time. Calls appear here as soon as they are settled."))
            }
            @if let Some(next) = next {
                nav.pager aria-label="Pages of calls" {
                    a rel="next" href=(view.next_page(&next)) { "Older calls →" }
                }
            }
        }
    })
}

/// Addresses of pages that are one page now, with the same parameters.
pub(crate) async fn moved(uri: Uri) -> Response {
    let path = if uri.path().ends_with(".csv") { FILE_PATH } else { PAGE_PATH };
    match uri.query() {
        Some(query) => redirect_to(&format!("{path}?{query}")),
        None => redirect_to(path),
    }
}

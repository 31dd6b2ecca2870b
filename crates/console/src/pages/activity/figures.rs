//! The sums of a selection: figures, and a table of the groups.

use canon::Micros;
use maud::{Markup, html};
use store::{ReportTotals, UsageReport};

use super::names::GroupNames;
use super::selection::ActivitySelection;
use crate::display;

pub(super) const MAX_LISTED_GROUPS: usize = 25;

/// Returns how much more or less a figure is than in the range before.
fn change(view: &ActivitySelection, now: i64, before: i64) -> Markup {
    let name = view.time.name_before(&view.calendar);
    let text = match before {
        ..=0 if now <= 0 => return html! {},
        ..=0 => "new".to_owned(),
        _ => {
            let percent = (i128::from(now) - i128::from(before)) * 100 / i128::from(before);
            match percent {
                ..=-1 => format!("{} % less", -percent),
                0 => "as much".to_owned(),
                1..=999 => format!("{percent} % more"),
                _ => format!("{} times", i128::from(now) / i128::from(before)),
            }
        }
    };
    html! { dd.change title={ "compared with " (name) } { (text) } }
}

/// Renders the sums, compared with the time before.
pub(super) fn figures(
    view: &ActivitySelection,
    report: &UsageReport,
    before: Option<&ReportTotals>,
) -> Markup {
    let change = |now: i64, value: fn(&ReportTotals) -> i64| match before {
        Some(before) => change(view, now, value(before)),
        None => html! {},
    };
    let UsageReport { all, refused, latencies: pace, .. } = report;
    let count = |n: i64| display::count(n.max(0).unsigned_abs());
    let time = |time: Option<Micros>| time.map_or_else(|| "–".to_owned(), display::duration);
    html! {
        dl.figures {
            div { dt { "Spent" } dd { (display::money(all.cost)) } (change(all.cost.as_nanos(), |before| before.cost.as_nanos())) }
            div { dt { "Calls" } dd { (count(all.calls)) } (change(all.calls, |before| before.calls)) }
            div { dt { "Refused" } dd { (count(*refused)) } }
            div { dt { "Tokens in" } dd title=(count(all.input)) { (display::short_count(all.input.max(0).unsigned_abs())) } }
            div { dt { "Tokens out" } dd title=(count(all.output)) { (display::short_count(all.output.max(0).unsigned_abs())) } }
            div {
                dt { "First byte, median" }
                dd { (time(pace.waited.percentile(50))) }
                dd.change { "95 % within " (time(pace.waited.percentile(95))) }
            }
        }
    }
}

/// Renders the groups, each with a link to its calls.
pub(super) fn group_table(
    view: &ActivitySelection,
    report: &UsageReport,
    names: &GroupNames,
) -> Markup {
    let UsageReport { all, top, refused_by, .. } = report;
    let field = view.group_title();
    let share = |totals: &ReportTotals| {
        let (part, whole) = (view.metric.value_of(totals), view.metric.value_of(all).max(1));
        i128::from(part.max(0)) * 1_000 / i128::from(whole)
    };
    html! {
        div.sheet {
            table.list.usage {
                thead { tr {
                    th.capital scope="col" { (field) }
                    th scope="col" { span.unseen { "Share" } }
                    th.num scope="col" { "Calls" }
                    th.num scope="col" { "Refused" }
                    th.num scope="col" { "Tokens in" }
                    th.num scope="col" { "Tokens out" }
                    th.num scope="col" { "Cost" }
                } }
                tbody {
                    @for (group, totals) in top {
                        @let count = |n: i64| display::count(n.max(0).unsigned_abs());
                        tr {
                            th scope="row" {
                                @let name = names.name_of(view.group_by, group);
                                @if let Some(link) = view.with_group(group) {
                                    a.id href=(link) { bdi { (name) } }
                                } @else { (name) }
                            }
                            td.share data-label="Share" {
                                progress value=(share(totals)) max="1000" { (share(totals) / 10) "%" }
                            }
                            td.num data-label="Calls" { (count(totals.calls)) }
                            td.num data-label="Refused" { (count(refused_by.get(group).copied().unwrap_or_default())) }
                            td.num data-label="Tokens in" { (count(totals.input)) }
                            td.num data-label="Tokens out" { (count(totals.output)) }
                            td.num data-label="Cost" { (display::money(totals.cost)) }
                        }
                    }
                }
            }
        }
        @if top.len() == MAX_LISTED_GROUPS { p.muted.small { "The first " (MAX_LISTED_GROUPS) "." } }
    }
}

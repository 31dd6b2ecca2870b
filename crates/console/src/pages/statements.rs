//! Statements: the calls of a calendar month, to print and as a file.

use std::sync::Arc;

use admin::{MonthStatement, StatementLine, StatementMonth};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use canon::Micros;
use http::header;
use maud::{Markup, html};
use store::ReportTotals;

use crate::csv::csv_line;
use crate::display;
use crate::form::{FormFields, QueryFields};
use crate::layout::{Layout, ok_page};
use crate::page_error::PageError;
use crate::session::SignedInUser;
use crate::state::ConsoleState;
use crate::urls;

const PAGE_PATH: &str = "/console/statements";
const FILE_PATH: &str = "/console/statements.csv";
const MAX_PARAMETER_BYTES: usize = 256;
/// Lines of a list on a page. The file has all.
const MAX_LINES: usize = 500;

/// `GET /console/statements`: the months with calls, or the statement of the parameter `month`.
pub(crate) async fn show(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    QueryFields(query): QueryFields,
) -> Result<Response, PageError> {
    let body = match chosen_month(&query)? {
        None => months(&state, &user).await?,
        Some(month) => {
            let named = query.get_trimmed("account", MAX_PARAMETER_BYTES)?;
            let named = (!named.is_empty()).then_some(named);
            statement(&load(&state, &user, &query, month).await?, &user, named)
        }
    };
    Ok(ok_page(&Layout::signed_in("Statements", &user).with_nav(PAGE_PATH), &body))
}

/// `GET /console/statements.csv`
pub(crate) async fn csv(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    QueryFields(query): QueryFields,
) -> Result<Response, PageError> {
    let month = chosen_month(&query)?.ok_or(PageError::BadRequest("Choose a month."))?;
    let statement = load(&state, &user, &query, month).await?;
    let name = format!("attachment; filename=\"statement-{}.csv\"", month.word());
    let headers = [
        (header::CONTENT_TYPE, "text/csv; charset=utf-8".to_owned()),
        (header::CONTENT_DISPOSITION, name),
    ];
    Ok((headers, csv_text(&statement)).into_response())
}

fn chosen_month(query: &FormFields) -> Result<Option<StatementMonth>, PageError> {
    let word = query.get_trimmed("month", MAX_PARAMETER_BYTES)?;
    if word.is_empty() {
        return Ok(None);
    }
    let unknown = PageError::BadRequest("The month is not known. Write a month like 2026-03.");
    StatementMonth::parse(word).map(Some).ok_or(unknown)
}

/// Returns the statement of the account that an administrator names, or of those for whom the user acts.
async fn load(
    state: &ConsoleState,
    user: &SignedInUser,
    query: &FormFields,
    month: StatementMonth,
) -> Result<MonthStatement, PageError> {
    let (admin, actor) = (state.host.admin(), user.actor());
    let named = query.get_trimmed("account", MAX_PARAMETER_BYTES)?;
    let statement = match named {
        "" if user.sees_all() => admin.gateway_statement(&actor, month).await,
        "" => admin.statement(&actor, user.owner_id(), month).await,
        account_id => admin.statement(&actor, account_id, month).await,
    };
    Ok(statement?)
}

/// The months with calls, the newest first.
async fn months(state: &ConsoleState, user: &SignedInUser) -> Result<Markup, PageError> {
    let account_id = (!user.sees_all()).then(|| user.owner_id());
    let now = state.now();
    let until = now + Micros::new(1);
    let mut months = state.store.sums_of_months(Micros::ZERO..until, account_id).await?;
    months.reverse();
    Ok(html! {
        div.title { h1 { "Statements" } }
        p.muted { "What the calls of each month cost. A month begins and ends at midnight UTC, and has the calls that began in it." }
        @if months.is_empty() {
            div.empty {
                h2 { "No statements" }
                p { "A month appears here with its first call." }
            }
        } @else {
            div.sheet {
                table.list {
                    thead { tr {
                        th scope="col" { "Month" }
                        th.num scope="col" { "Calls" }
                        th.num scope="col" { "Cost" }
                        th scope="col" { span.unseen { "File" } }
                    } }
                    tbody {
                        @for (begun, totals) in &months {
                            @if let Some(month) = StatementMonth::of(*begun) {
                                tr {
                                    th scope="row" {
                                        a.id href=(link(user, PAGE_PATH, month, None)) { (month.title()) }
                                        @if month.end() > now { " " span.badge { "So far" } }
                                    }
                                    td.num data-label="Calls" { (count(totals.calls)) }
                                    td.num data-label="Cost" { (display::money(totals.cost)) }
                                    td {
                                        a href=(link(user, FILE_PATH, month, None)) {
                                            "CSV" span.unseen { " of " (month.title()) }
                                        }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    })
}

/// Renders a statement. `account` is the one that the address names.
fn statement(statement: &MonthStatement, user: &SignedInUser, account: Option<&str>) -> Markup {
    let MonthStatement { month, owner, is_over, all, models, parts } = statement;
    let of_account = account.map(|id| format!("&account={}", urls::escape_value(id)));
    let calls = format!("/console/activity?range={}", month.word());
    let calls = format!("{calls}{}", of_account.unwrap_or_default());
    html! {
        p.crumbs { a href=(user.path_for(PAGE_PATH)) { "Statements" } " / " (month.title()) }
        div.title.close {
            h1 { "Statement of " (month.title()) }
            div.actions {
                a.button.quiet href=(user.path_for(&calls)) { "Calls" }
                a.button.quiet href=(link(user, FILE_PATH, *month, account)) { "Export CSV" }
                button.button.quiet type="button" data-print hidden { "Print" }
            }
        }
        @if !is_over { p.notice { "The month is not over. These are the calls so far." } }
        dl.facts {
            div {
                dt { "For" }
                dd {
                    @match owner {
                        Some(owner) if owner.is_team => { "Team " bdi { (owner.name) } }
                        Some(owner) => bdi { (owner.name) },
                        None => "All people and teams of this gateway",
                    }
                }
            }
            div { dt { "Time" } dd { (month.first_day()) " to " (month.last_day()) ", UTC" } }
            div { dt { "Cost" } dd { (display::money(all.cost)) " " span.muted.small { "$" (all.cost) } } }
            div { dt { "Calls" } dd { (count(all.calls)) } }
        }
        @if all.calls == 0 {
            div.empty { h2 { "No calls" } p { "No call began in this month." } }
        } @else {
            section {
                h2 { "By model" }
                (list("Model", models, all, |line| html! { bdi { (line.id) } }))
            }
            @if owner.is_some() {
                section {
                    h2 { "By key" }
                    (list("Key", parts, all, name_of))
                }
            } @else {
                section {
                    h2 { "By person and team" }
                    (list("Person or team", parts, all, |line| html! {
                        // An account that was erased has no statement of its own.
                        @if line.name.is_empty() {
                            (name_of(line))
                        } @else {
                            a.id href=(link(user, PAGE_PATH, *month, Some(&line.id))) { (name_of(line)) }
                        }
                    }))
                }
            }
        }
    }
}

fn name_of(line: &StatementLine) -> Markup {
    html! {
        @if line.name.is_empty() { span.id { (line.id) } } @else { bdi title=(line.id) { (line.name) } }
    }
}

/// Renders a list with its total.
fn list(
    title: &str,
    lines: &[StatementLine],
    all: &ReportTotals,
    name: impl Fn(&StatementLine) -> Markup,
) -> Markup {
    let (shown, others) = lines.split_at(lines.len().min(MAX_LINES));
    html! {
        div.sheet {
            table.list.statement {
                thead { tr {
                    th scope="col" { (title) }
                    th.num scope="col" { "Calls" }
                    th.num scope="col" { "Tokens in" }
                    th.num scope="col" { "From caches" }
                    th.num scope="col" { "Tokens out" }
                    th.num scope="col" { "Cost" }
                } }
                tbody {
                    @for line in shown {
                        tr { th scope="row" { (name(line)) } (cells(&line.totals)) }
                    }
                    @if !others.is_empty() {
                        tr {
                            th scope="row" { (display::count(others.len() as u64)) " others, which are in the file" }
                            (cells(&sum(others)))
                        }
                    }
                }
                tfoot { tr { th scope="row" { "Total" } (cells(all)) } }
            }
        }
    }
}

fn cells(totals: &ReportTotals) -> Markup {
    html! {
        td.num data-label="Calls" { (count(totals.calls)) }
        td.num data-label="Tokens in" { (count(totals.input)) }
        td.num data-label="From caches" { (count(totals.cache_read)) }
        td.num data-label="Tokens out" { (count(totals.output)) }
        td.num data-label="Cost" { (display::money(totals.cost)) }
    }
}

fn sum(lines: &[StatementLine]) -> ReportTotals {
    let mut sum = ReportTotals::default();
    for StatementLine { totals, .. } in lines {
        sum.calls = sum.calls.saturating_add(totals.calls);
        sum.input = sum.input.saturating_add(totals.input);
        sum.cache_read = sum.cache_read.saturating_add(totals.cache_read);
        sum.output = sum.output.saturating_add(totals.output);
        sum.cost = sum.cost.saturating_add(totals.cost);
    }
    sum
}

fn count(n: i64) -> String {
    display::count(n.max(0).unsigned_abs())
}

/// Address of a page or file of a month.
fn link(user: &SignedInUser, path: &str, month: StatementMonth, account: Option<&str>) -> String {
    let account = account.map(|id| format!("&account={}", urls::escape_value(id)));
    user.path_for(&format!("{path}?month={}{}", month.word(), account.unwrap_or_default()))
}

const CSV_HEADER: &str = "month,list,id,name,calls,input_tokens,cached_tokens,output_tokens,\
    thinking_tokens,cost_usd\r\n";

fn csv_text(statement: &MonthStatement) -> String {
    let MonthStatement { month, owner, is_over: _, all, models, parts } = statement;
    let part = if owner.is_some() { "key" } else { "account" };
    let (id, name) = owner.as_ref().map_or(("", ""), |owner| (&owner.id, &owner.name));
    let line = |list: &str, id: &str, name: &str, totals: &ReportTotals| {
        let ReportTotals { calls, input, cache_read, output, thinking, cost, absorbed: _ } = totals;
        csv_line([
            month.word(),
            list.to_owned(),
            id.to_owned(),
            name.to_owned(),
            calls.to_string(),
            input.to_string(),
            cache_read.to_string(),
            output.to_string(),
            thinking.to_string(),
            cost.to_string(),
        ])
    };
    let lines = |list: &'static str, lines: &[StatementLine]| -> String {
        lines.iter().map(|one| line(list, &one.id, &one.name, &one.totals)).collect()
    };
    [
        CSV_HEADER.to_owned(),
        line("total", id, name, all),
        lines("model", models),
        lines(part, parts),
    ]
    .concat()
}

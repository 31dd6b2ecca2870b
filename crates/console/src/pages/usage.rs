//! Usage page: spend, tokens, calls and latency over time and by group. The selection is part of
//! the URL.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use canon::{Micros, Money};
use jiff::Timestamp;
use maud::{Markup, html};
use store::{
    GroupBy, GroupOrder, LatencyTotals, ReportTotals, UsageFilter, UsagePoint, UsageReport,
    UsageRequest, UsageStep,
};

use crate::chart::{Chart, ChartSeries};
use crate::display;
use crate::form::{FormFields, QueryFields};
use crate::layout::{Layout, ok_page};
use crate::page_error::PageError;
use crate::session::SignedInUser;
use crate::state::ConsoleState;
use crate::time_range::{RECENT_TIMES, TimeRange, range_fields};
use crate::urls::{self, TEAM_PARAMETER};

/// Number of groups drawn separately; the rest is one series.
const MAX_SERIES: usize = 8;
const MAX_LISTED_GROUPS: usize = 25;
const MAX_FILTER_OPTIONS: usize = 100;
const MAX_PARAMETER_BYTES: usize = 256;

/// Measured quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UsageMetric {
    Spend,
    Tokens,
    Calls,
    Latency,
}

impl UsageMetric {
    const ALL: [Self; 4] = [Self::Spend, Self::Tokens, Self::Calls, Self::Latency];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Spend => "spend",
            Self::Tokens => "tokens",
            Self::Calls => "calls",
            Self::Latency => "latency",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Spend => "Spend",
            Self::Tokens => "Tokens",
            Self::Calls => "Calls",
            Self::Latency => "Latency",
        }
    }

    const fn group_order(self) -> GroupOrder {
        match self {
            Self::Spend => GroupOrder::Cost,
            Self::Tokens => GroupOrder::Tokens,
            Self::Calls | Self::Latency => GroupOrder::Calls,
        }
    }

    fn value_of(self, totals: &ReportTotals) -> i64 {
        match self {
            Self::Spend => totals.cost.as_nanos(),
            Self::Tokens => totals.input.saturating_add(totals.output),
            Self::Calls | Self::Latency => totals.calls,
        }
    }

    fn formatter(self) -> fn(i64) -> String {
        match self {
            Self::Spend => |nanos| display::dollars(Money::from_nanos(nanos)),
            Self::Tokens | Self::Calls => |count| display::short_count(count.max(0).unsigned_abs()),
            Self::Latency => |micros| display::duration(Micros::new(micros)),
        }
    }
}

/// Selects one percentile of the latencies.
type LatencyPick = fn(&LatencyTotals) -> Option<Micros>;

/// Selection made in the URL.
struct UsageSelection {
    metric: UsageMetric,
    group_by: GroupBy,
    time: TimeRange,
    now: Micros,
    range: Range<Micros>,
    filter: UsageFilter,
    /// The team the user acts for.
    team: Option<String>,
}

impl UsageSelection {
    fn parse(query: &FormFields, user: &SignedInUser, now: Micros) -> Result<Self, PageError> {
        let parameter = |name| {
            let text = query.get_trimmed(name, MAX_PARAMETER_BYTES)?;
            Ok::<_, PageError>((!text.is_empty()).then(|| text.to_owned()))
        };
        let time = TimeRange::read(query)?.unwrap_or(TimeRange::DEFAULT);
        let account_id =
            if user.sees_all() { parameter("account")? } else { Some(user.owner_id().to_owned()) };
        let filter = UsageFilter {
            account_id,
            key_id: parameter("key")?,
            model: parameter("model")?,
            lane: parameter("lane")?,
            status: query.get("status").parse().ok(),
        };
        Ok(Self {
            metric: UsageMetric::ALL
                .into_iter()
                .find(|w| w.as_str() == query.get("what"))
                .unwrap_or(UsageMetric::Spend),
            group_by: GroupBy::by_word(query.get("by")).unwrap_or(GroupBy::Model),
            time,
            now,
            range: time.at(now),
            filter,
            team: user.team.as_ref().map(|team| team.id.clone()),
        })
    }

    fn step(&self) -> UsageStep {
        self.time.step(self.now)
    }

    /// Request to the store. The latency chart has no groups.
    fn store_request(&self) -> UsageRequest {
        UsageRequest {
            range: self.range.clone(),
            step: self.step(),
            by: self.group_by,
            rank: self.metric.group_order(),
            filter: self.filter.clone(),
            listed: MAX_LISTED_GROUPS,
            with_series: if self.metric == UsageMetric::Latency { 0 } else { MAX_SERIES },
        }
    }

    /// URL of this selection with another range of time.
    fn with_time(&self, time: TimeRange) -> String {
        let (filter, team) = (self.filter.clone(), self.team.clone());
        Self { time, filter, team, range: time.at(self.now), ..*self }.with_parameter("", "")
    }

    /// URL of all calls in this range of time.
    fn without_filters(&self) -> String {
        let (filter, team) = (UsageFilter::default(), self.team.clone());
        Self { filter, team, range: self.range.clone(), ..*self }.with_parameter("", "")
    }

    /// URL of this selection with one parameter changed; an empty value removes it.
    fn with_parameter(&self, name: &str, value: &str) -> String {
        let status = self.filter.status.map(|status| status.to_string());
        let [range, from, to] = self.time.to_parameters();
        let parts = [
            (TEAM_PARAMETER, self.team.as_deref()),
            ("what", Some(self.metric.as_str())),
            ("by", Some(self.group_by.word())),
            ("range", Some(&range)),
            ("from", Some(&from)),
            ("to", Some(&to)),
            ("account", self.filter.account_id.as_deref()),
            ("key", self.filter.key_id.as_deref()),
            ("model", self.filter.model.as_deref()),
            ("lane", self.filter.lane.as_deref()),
            ("status", status.as_deref()),
        ];
        let parts =
            parts.into_iter().map(|(own, old)| (own, if own == name { Some(value) } else { old }));
        let parts: Vec<String> = parts
            .filter_map(|(own, value)| Some((own, value?)))
            .filter(|(_, value)| !value.is_empty())
            .map(|(own, value)| format!("{own}={}", urls::escape_value(value)))
            .collect();
        format!("/console/usage?{}", parts.join("&"))
    }
}

/// Names of keys and accounts by id.
struct NameLookup {
    keys: HashMap<String, String>,
    accounts: HashMap<String, String>,
}

impl NameLookup {
    async fn load(state: &ConsoleState, user: &SignedInUser) -> Result<Self, PageError> {
        let (keys, accounts) = if user.sees_all() {
            (state.store.keys().await?, state.store.owners().await?)
        } else {
            (state.store.keys_of(user.owner_id()).await?, Vec::new())
        };
        Ok(Self {
            keys: keys.into_iter().map(|key| (key.id, key.name)).collect(),
            accounts: accounts.iter().map(|o| (o.id().to_owned(), o.name().to_owned())).collect(),
        })
    }

    fn name_of(&self, by: GroupBy, id: &str) -> String {
        let found = match by {
            GroupBy::Key => self.keys.get(id),
            GroupBy::Account => self.accounts.get(id),
            GroupBy::Model | GroupBy::Lane | GroupBy::Status => None,
        };
        match found {
            Some(name) => name.clone(),
            None if id.is_empty() => "none".to_owned(),
            None => id.to_owned(),
        }
    }
}

/// `GET /console/usage`
pub(crate) async fn show(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    QueryFields(query): QueryFields,
) -> Result<Response, PageError> {
    let view = UsageSelection::parse(&query, &user, state.now())?;
    let names = NameLookup::load(&state, &user).await?;
    let report = state.store.usage_view(&view.store_request()).await?;
    let before = UsageRequest {
        range: view.time.before(view.now),
        listed: 0,
        with_series: 0,
        ..view.store_request()
    };
    let before = state.store.usage_view(&before).await?.all;
    let UsageReport { all, .. } = &report;
    let axis = TimeAxis::for_view(&view);
    let chart = if view.metric == UsageMetric::Latency {
        let (range, step) = (view.range.clone(), view.step());
        let points = state.store.latencies_over(range, step, None, &view.filter).await?;
        latency_chart(&view, &axis, &points)
    } else {
        totals_chart(&view, &axis, &report, &names)
    };
    let offers = FilterOptions::load_all(&state, &user, &view, &names).await?;
    let body = html! {
        div.title {
            h1 { "Usage" }
            div.actions {
                a.button.quiet href=(user.path_for("/console/calls")) { "Calls" }
                a.button.quiet href=(csv_path(&view)) { "Export CSV" }
            }
        }
        (choice_bar(&view, &user))
        (filters(&view, &offers))
        (figures(&view, &report, &before))
        @if all.calls == 0 && report.refused == 0 {
            div.empty {
                h2 { "No calls in this time" }
                p { "Take a longer range or fewer filters; calls appear here as soon as they are settled." }
            }
        } @else {
            section {
                h2 { (view.metric.title()) " over time" }
                (chart)
            }
            section {
                h2 { "By " (view.group_by.word()) }
                (group_table(&view, &report, &names))
            }
        }
    };
    Ok(ok_page(&Layout::signed_in("Usage", &user).with_nav("/console/usage"), &body))
}

/// Path of the CSV export of these calls, with the same conditions.
fn csv_path(view: &UsageSelection) -> String {
    view.with_parameter("", "").replacen("/console/usage?", "/console/calls.csv?", 1)
}

fn choice_bar(view: &UsageSelection, user: &SignedInUser) -> Markup {
    let chosen = |yes: bool| yes.then_some("true");
    let fields = GroupBy::ALL.into_iter().filter(|by| user.sees_all() || *by != GroupBy::Account);
    html! {
        div.choices {
            nav aria-label="Range" {
                @for recent in RECENT_TIMES {
                    @let time = TimeRange::Recent(recent);
                    a href=(view.with_time(time)) aria-current=[chosen(time == view.time)] { (recent.title) }
                }
            }
            nav aria-label="Measure" {
                @for what in UsageMetric::ALL {
                    a href=(view.with_parameter("what", what.as_str())) aria-current=[chosen(what == view.metric)] { (what.title()) }
                }
            }
            nav aria-label="Group by" {
                @for by in fields {
                    a href=(view.with_parameter("by", by.word())) aria-current=[chosen(by == view.group_by)] { "by " (by.word()) }
                }
            }
        }
    }
}

/// Choices of one filter.
struct FilterOptions {
    by: GroupBy,
    chosen: String,
    /// Label and value.
    values: Vec<(String, String)>,
}

impl FilterOptions {
    async fn load_all(
        state: &ConsoleState,
        user: &SignedInUser,
        view: &UsageSelection,
        names: &NameLookup,
    ) -> Result<Vec<Self>, PageError> {
        let UsageFilter { account_id, key_id, model, lane, status } = &view.filter;
        let status = status.map(|status| status.to_string());
        // Values used in the range, independent of the other filters.
        let own = UsageFilter {
            account_id: account_id.clone().filter(|_| !user.sees_all()),
            ..UsageFilter::default()
        };
        let mut offers = Vec::new();
        for (by, chosen) in [
            (GroupBy::Model, model),
            (GroupBy::Key, key_id),
            (GroupBy::Account, account_id),
            (GroupBy::Lane, lane),
            (GroupBy::Status, &status),
        ] {
            if by == GroupBy::Account && !user.sees_all() {
                continue;
            }
            // Whole months are cheap to read; a few surplus choices do no harm.
            let months = view.range.clone();
            let points = state.store.usage_over(months, UsageStep::Month, Some(by), &own).await?;
            let mut calls: BTreeMap<String, i64> = BTreeMap::new();
            for UsagePoint { group, used: totals, .. } in
                points.into_iter().filter(|one| !one.group.is_empty())
            {
                let sum = calls.entry(group).or_default();
                *sum = sum.saturating_add(totals.calls);
            }
            let mut values: Vec<(String, i64)> = calls.into_iter().collect();
            values.sort_by_key(|(_, calls)| std::cmp::Reverse(*calls));
            values.truncate(MAX_FILTER_OPTIONS);
            let mut values: Vec<String> = values.into_iter().map(|(value, _)| value).collect();
            if let Some(chosen) = chosen.as_ref().filter(|chosen| !values.contains(chosen)) {
                values.push(chosen.clone());
            }
            let mut values: Vec<(String, String)> =
                values.into_iter().map(|value| (names.name_of(by, &value), value)).collect();
            values.sort();
            offers.push(Self { by, chosen: chosen.clone().unwrap_or_default(), values });
        }
        Ok(offers)
    }
}

fn filters(view: &UsageSelection, offers: &[FilterOptions]) -> Markup {
    let kept = [("what", view.metric.as_str()), ("by", view.group_by.word())];
    html! {
        form.filters method="get" action="/console/usage" {
            @if let Some(team) = &view.team { input type="hidden" name=(TEAM_PARAMETER) value=(team); }
            @for (name, value) in kept { input type="hidden" name=(name) value=(value); }
            (range_fields(Some(view.time), None, view.now))
            @for FilterOptions { by, chosen, values } in offers {
                div.field {
                    label.capital for=(by.word()) { (by.word()) }
                    select id=(by.word()) name=(by.word()) {
                        option value="" { "Any" }
                        @for (label, value) in values {
                            option value=(value) selected[value == chosen] { (label) }
                        }
                    }
                }
            }
            div.field.go { button.button.quiet type="submit" { "Show" } }
            @if offers.iter().any(|offer| !offer.chosen.is_empty()) {
                div.field.go {
                    a.button.quiet href=(view.without_filters()) {
                        "Show all"
                    }
                }
            }
        }
    }
}

/// Returns how much more or less a figure is than in the range before.
fn change(view: &UsageSelection, now: i64, before: i64) -> Markup {
    let name = view.time.name_before(view.now);
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

fn figures(view: &UsageSelection, report: &UsageReport, before: &ReportTotals) -> Markup {
    let UsageReport { all, refused, latencies: pace, .. } = report;
    let count = |n: i64| display::count(n.max(0).unsigned_abs());
    let time = |time: Option<Micros>| time.map_or_else(|| "–".to_owned(), display::duration);
    html! {
        dl.figures {
            div { dt { "Spent" } dd { (display::money(all.cost)) } (change(view, all.cost.as_nanos(), before.cost.as_nanos())) }
            div { dt { "Calls" } dd { (count(all.calls)) } (change(view, all.calls, before.calls)) }
            div { dt { "Refused" } dd { (count(*refused)) } }
            div { dt { "Tokens in" } dd title=(count(all.input)) { (display::short_count(all.input.max(0).unsigned_abs())) } }
            div { dt { "Tokens out" } dd title=(count(all.output)) { (display::short_count(all.output.max(0).unsigned_abs())) } }
            div { dt { "First byte, median" } dd { (time(pace.waited.percentile(50))) } }
            div { dt { "First byte, 95 %" } dd { (time(pace.waited.percentile(95))) } }
        }
    }
}

/// Steps of a chart: index by start time, and labels.
struct TimeAxis {
    step_index: HashMap<Micros, usize>,
    steps: Vec<(String, String)>,
}

impl TimeAxis {
    fn for_view(view: &UsageSelection) -> Self {
        let begins = step_starts(view);
        let index = begins.iter().enumerate().map(|(index, begin)| (*begin, index)).collect();
        let steps = begins.iter().map(|begin| step_labels(*begin, view.step())).collect();
        Self { step_index: index, steps }
    }

    fn empty_series(&self, name: String) -> ChartSeries {
        ChartSeries { name, values: vec![None; self.steps.len()] }
    }

    /// Value of a series at the step with this start.
    fn value_mut<'r>(
        &self,
        row: &'r mut ChartSeries,
        begun: Micros,
    ) -> Option<&'r mut Option<i64>> {
        self.step_index.get(&begun).and_then(|index| row.values.get_mut(*index))
    }
}

/// Line chart of latencies.
fn latency_chart(
    view: &UsageSelection,
    axis: &TimeAxis,
    points: &[UsagePoint<LatencyTotals>],
) -> Markup {
    let picks: [(&str, LatencyPick); 4] = [
        ("First byte, median", |pace| pace.waited.percentile(50)),
        ("First byte, 95 %", |pace| pace.waited.percentile(95)),
        ("Whole, median", |pace| pace.took.percentile(50)),
        ("Whole, 95 %", |pace| pace.took.percentile(95)),
    ];
    let rows = picks.map(|(name, pick)| {
        let mut row = axis.empty_series(name.to_owned());
        for point in points {
            if let Some(value) = axis.value_mut(&mut row, point.begun) {
                *value = pick(&point.used).map(Micros::get);
            }
        }
        row
    });
    let title = "Latency over time";
    Chart { title, steps: &axis.steps, series: &rows, format_value: view.metric.formatter() }
        .lines()
}

/// Stacked chart of totals by group.
fn totals_chart(
    view: &UsageSelection,
    axis: &TimeAxis,
    report: &UsageReport,
    names: &NameLookup,
) -> Markup {
    let first = || report.top.iter().take(MAX_SERIES).map(|(group, _)| group.as_str());
    let apart: HashMap<&str, usize> = first().enumerate().map(|(at, group)| (group, at)).collect();
    let mut rows: Vec<ChartSeries> =
        first().map(|group| axis.empty_series(names.name_of(view.group_by, group))).collect();
    for point in &report.series {
        let row = apart.get(point.group.as_str()).and_then(|at| rows.get_mut(*at));
        if let Some(value) = row.and_then(|row| axis.value_mut(row, point.begun)) {
            *value = Some(view.metric.value_of(&point.used));
        }
    }
    let mut others = axis.empty_series("others".to_owned());
    for (begun, totals) in &report.others {
        if let Some(value) = axis.value_mut(&mut others, *begun) {
            *value = Some(view.metric.value_of(totals));
        }
    }
    rows.push(others);
    rows.retain(|row| row.total() != 0);
    let title = format!("{} over time, by {}", view.metric.title(), view.group_by.word());
    Chart {
        title: &title,
        steps: &axis.steps,
        series: &rows,
        format_value: view.metric.formatter(),
    }
    .stacked_bars()
}

/// Start of each step.
fn step_starts(view: &UsageSelection) -> Vec<Micros> {
    let step = view.step();
    let mut begins = vec![step.begin(view.range.start)];
    while let Some(next) = begins.last().map(|begin| step.end(*begin)) {
        if next >= view.range.end || begins.len() > 1_000 {
            break;
        }
        begins.push(next);
    }
    begins
}

/// Short and full label of a step.
fn step_labels(begin: Micros, step: UsageStep) -> (String, String) {
    let (short, full) = match step {
        UsageStep::Hour => ("%H:%M", "%-d %b %Y, %H:%M UTC"),
        UsageStep::Day => ("%-d %b", "%-d %b %Y"),
        UsageStep::Month => ("%b %Y", "%B %Y"),
    };
    match Timestamp::from_microsecond(begin.get()) {
        Ok(time) => (time.strftime(short).to_string(), time.strftime(full).to_string()),
        Err(_) => (String::new(), String::new()),
    }
}

fn group_table(view: &UsageSelection, report: &UsageReport, names: &NameLookup) -> Markup {
    let UsageReport { all, top, refused_by, .. } = report;
    let field = view.group_by.word();
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
                                a.id href=(view.with_parameter(field, group)) { bdi { (names.name_of(view.group_by, group)) } }
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

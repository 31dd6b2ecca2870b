//! Usage: spend, tokens, calls and times, over time and told apart, with the view in its address.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use canon::Money;
use jiff::Timestamp;
use ledger::Micros;
use maud::{Markup, html};
use store::{GroupBy, LatencyTotals, GroupOrder, ReportTotals, UsageStep, UsageFilter, UsagePoint, UsageReport, UsageRequest};

use crate::acting::FOR;
use crate::address;
use crate::chart::{Chart, Row};
use crate::desk::Desk;
use crate::form::{Asked, Fields};
use crate::session::Signed;
use crate::shell::{Shell, good};
use crate::show;
use crate::trouble::Trouble;

const HOUR: Micros = 3_600 * 1_000_000;
const DAY: Micros = 24 * HOUR;
/// How many are told apart; the others are one.
const APART: usize = 8;
/// How many stand in the list below the chart.
const LISTED: usize = 25;
/// How many stand in the choice of a filter.
const OFFERED: usize = 100;
const LONGEST: usize = 256;

/// What is shown unless something else is asked for.
const MONTH: (&str, &str, Micros) = ("30d", "30 days", 30 * DAY);
/// The stretches of time to choose from, and how far they reach back.
const RANGES: [(&str, &str, Micros); 5] = [
    ("24h", "24 hours", DAY),
    ("7d", "7 days", 7 * DAY),
    MONTH,
    ("90d", "90 days", 90 * DAY),
    ("1y", "A year", 365 * DAY),
];

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Spend,
    Tokens,
    Calls,
    Latency,
}

impl What {
    const ALL: [Self; 4] = [Self::Spend, Self::Tokens, Self::Calls, Self::Latency];

    const fn word(self) -> &'static str {
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

    const fn rank(self) -> GroupOrder {
        match self {
            Self::Spend => GroupOrder::Cost,
            Self::Tokens => GroupOrder::Tokens,
            Self::Calls | Self::Latency => GroupOrder::Calls,
        }
    }

    fn of(self, used: &ReportTotals) -> i64 {
        match self {
            Self::Spend => used.cost.as_nanos(),
            Self::Tokens => used.input.saturating_add(used.output),
            Self::Calls | Self::Latency => used.calls,
        }
    }

    fn show(self) -> fn(i64) -> String {
        match self {
            Self::Spend => |nanos| show::dollars(Money::from_nanos(nanos)),
            Self::Tokens | Self::Calls => |count| show::short_count(count.max(0).unsigned_abs()),
            Self::Latency => |micros| show::span(micros),
        }
    }
}

/// A time taken from how fast calls were.
type Pick = fn(&LatencyTotals) -> Option<Micros>;

/// What the address asks for.
struct View {
    what: What,
    by: GroupBy,
    range_word: &'static str,
    range: Range<Micros>,
    filter: UsageFilter,
    /// The team this is of, if it is one's.
    team: Option<String>,
}

impl View {
    fn of(asked: &Fields, signed: &Signed, now: Micros) -> Result<Self, Trouble> {
        let wish = |name| {
            let text = asked.short(name, LONGEST)?;
            Ok::<_, Trouble>((!text.is_empty()).then(|| text.to_owned()))
        };
        let (range_word, _, back) =
            RANGES.into_iter().find(|(word, ..)| *word == asked.get("range")).unwrap_or(MONTH);
        let account_id =
            if signed.sees_all() { wish("account")? } else { Some(signed.acts_for().to_owned()) };
        let filter = UsageFilter {
            account_id,
            key_id: wish("key")?,
            model: wish("model")?,
            lane: wish("lane")?,
            status: asked.get("status").parse().ok(),
        };
        Ok(Self {
            what: What::ALL
                .into_iter()
                .find(|w| w.word() == asked.get("what"))
                .unwrap_or(What::Spend),
            by: GroupBy::by_word(asked.get("by")).unwrap_or(GroupBy::Model),
            range_word,
            range: now.saturating_sub(back)..now.saturating_add(1),
            filter,
            team: signed.team.as_ref().map(|team| team.id.clone()),
        })
    }

    fn step(&self) -> UsageStep {
        let days = self.range.end.saturating_sub(self.range.start) / DAY;
        match days {
            ..3 => UsageStep::Hour,
            3..120 => UsageStep::Day,
            120.. => UsageStep::Month,
        }
    }

    /// What the store is asked for; a chart of times tells nobody apart.
    fn wish(&self) -> UsageRequest {
        UsageRequest {
            range: self.range.clone(),
            step: self.step(),
            by: self.by,
            rank: self.what.rank(),
            filter: self.filter.clone(),
            listed: LISTED,
            with_series: if self.what == What::Latency { 0 } else { APART },
        }
    }

    /// The address of this view with one thing changed; an empty value leaves it out.
    fn with(&self, name: &str, value: &str) -> String {
        let status = self.filter.status.map(|status| status.to_string());
        let parts = [
            (FOR, self.team.as_deref()),
            ("what", Some(self.what.word())),
            ("by", Some(self.by.word())),
            ("range", Some(self.range_word)),
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
            .map(|(own, value)| format!("{own}={}", address::value(value)))
            .collect();
        format!("/console/usage?{}", parts.join("&"))
    }
}

/// What ids are called.
struct Names {
    keys: HashMap<String, String>,
    accounts: HashMap<String, String>,
}

impl Names {
    async fn of_all(desk: &Desk, signed: &Signed) -> Result<Self, Trouble> {
        let (keys, accounts) = if signed.sees_all() {
            (desk.store.keys().await?, desk.store.owners().await?)
        } else {
            (desk.store.keys_of(signed.acts_for()).await?, Vec::new())
        };
        Ok(Self {
            keys: keys.into_iter().map(|key| (key.id, key.name)).collect(),
            accounts: accounts.iter().map(|o| (o.id().to_owned(), o.name().to_owned())).collect(),
        })
    }

    fn of(&self, by: GroupBy, id: &str) -> String {
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
    State(desk): State<Arc<Desk>>,
    signed: Signed,
    Asked(asked): Asked,
) -> Result<Response, Trouble> {
    let view = View::of(&asked, &signed, desk.now())?;
    let names = Names::of_all(&desk, &signed).await?;
    let seen = desk.store.usage_view(&view.wish()).await?;
    let UsageReport { all, latencies: pace, top, .. } = &seen;
    let axis = Axis::of(&view);
    let chart = if view.what == What::Latency {
        let (range, step) = (view.range.clone(), view.step());
        let points = desk.store.latencies_over(range, step, None, &view.filter).await?;
        times(&view, &axis, &points)
    } else {
        sums(&view, &axis, &seen, &names)
    };
    let offers = Offer::all(&desk, &signed, &view, &names).await?;
    let body = html! {
        div.title {
            h1 { "Usage" }
            div.actions {
                a.button.quiet href=(signed.at("/console/calls")) { "Calls" }
                a.button.quiet href=(csv(&view)) { "Export CSV" }
            }
        }
        (choices(&view, &signed))
        (filters(&view, &offers))
        (figures(all, pace))
        @if all.calls == 0 {
            div.empty {
                h2 { "No calls in this time" }
                p { "Take a longer range or fewer filters; calls appear here as soon as they are settled." }
            }
        } @else {
            section {
                h2 { (view.what.title()) " over time" }
                (chart)
            }
            section {
                h2 { "By " (view.by.word()) }
                (list(&view, top, all, &names))
            }
        }
    };
    Ok(good(&Shell::signed("Usage", &signed).at("/console/usage"), &body))
}

/// The calls behind a view, as a file. The list of calls knows no lane and no status.
fn csv(view: &View) -> String {
    view.with("", "").replacen("/console/usage?", "/console/calls.csv?", 1)
}

fn choices(view: &View, signed: &Signed) -> Markup {
    let chosen = |yes: bool| yes.then_some("true");
    let fields = GroupBy::ALL.into_iter().filter(|by| signed.sees_all() || *by != GroupBy::Account);
    html! {
        div.choices {
            nav aria-label="Range" {
                @for (word, title, _) in RANGES {
                    a href=(view.with("range", word)) aria-current=[chosen(word == view.range_word)] { (title) }
                }
            }
            nav aria-label="Measure" {
                @for what in What::ALL {
                    a href=(view.with("what", what.word())) aria-current=[chosen(what == view.what)] { (what.title()) }
                }
            }
            nav aria-label="Told apart by" {
                @for by in fields {
                    a href=(view.with("by", by.word())) aria-current=[chosen(by == view.by)] { "by " (by.word()) }
                }
            }
        }
    }
}

/// What there is to choose from for one filter.
struct Offer {
    by: GroupBy,
    chosen: String,
    /// How each value is told, and the value.
    values: Vec<(String, String)>,
}

impl Offer {
    async fn all(
        desk: &Desk,
        signed: &Signed,
        view: &View,
        names: &Names,
    ) -> Result<Vec<Self>, Trouble> {
        let UsageFilter { account_id, key_id, model, lane, status } = &view.filter;
        let status = status.map(|status| status.to_string());
        // What was used in this time, whatever else is chosen.
        let own = UsageFilter {
            account_id: account_id.clone().filter(|_| !signed.sees_all()),
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
            if by == GroupBy::Account && !signed.sees_all() {
                continue;
            }
            // By whole months, which are quick to read: a choice more than needed does no harm.
            let months = view.range.clone();
            let used = desk.store.usage_over(months, UsageStep::Month, Some(by), &own).await?;
            let mut calls: BTreeMap<String, i64> = BTreeMap::new();
            for UsagePoint { group, used, .. } in
                used.into_iter().filter(|one| !one.group.is_empty())
            {
                let sum = calls.entry(group).or_default();
                *sum = sum.saturating_add(used.calls);
            }
            let mut values: Vec<(String, i64)> = calls.into_iter().collect();
            values.sort_by_key(|(_, calls)| std::cmp::Reverse(*calls));
            values.truncate(OFFERED);
            let mut values: Vec<String> = values.into_iter().map(|(value, _)| value).collect();
            if let Some(chosen) = chosen.as_ref().filter(|chosen| !values.contains(chosen)) {
                values.push(chosen.clone());
            }
            let mut values: Vec<(String, String)> =
                values.into_iter().map(|value| (names.of(by, &value), value)).collect();
            values.sort();
            offers.push(Self { by, chosen: chosen.clone().unwrap_or_default(), values });
        }
        Ok(offers)
    }
}

fn filters(view: &View, offers: &[Offer]) -> Markup {
    let kept = [("what", view.what.word()), ("by", view.by.word()), ("range", view.range_word)];
    html! {
        form.filters method="get" action="/console/usage" {
            @for (name, value) in kept { input type="hidden" name=(name) value=(value); }
            @for Offer { by, chosen, values } in offers {
                div.field {
                    label.capital for=(by.word()) { (by.word()) }
                    select id=(by.word()) name=(by.word()) {
                        option value="" { "Any" }
                        @for (told, value) in values {
                            option value=(value) selected[value == chosen] { (told) }
                        }
                    }
                }
            }
            div.field.go { button.button.quiet type="submit" { "Show" } }
            @if offers.iter().any(|offer| !offer.chosen.is_empty()) {
                div.field.go {
                    a.button.quiet href={ "/console/usage?" (kept.map(|(n, v)| format!("{n}={v}")).join("&")) } {
                        "Show all"
                    }
                }
            }
        }
    }
}

fn figures(all: &ReportTotals, pace: &LatencyTotals) -> Markup {
    let count = |n: i64| show::count(n.max(0).unsigned_abs());
    let time = |micros: Option<Micros>| micros.map_or_else(|| "–".to_owned(), show::span);
    html! {
        dl.figures {
            div { dt { "Spent" } dd { (show::money(all.cost)) } }
            div { dt { "Calls" } dd { (count(all.calls)) } }
            div { dt { "Tokens in" } dd title=(count(all.input)) { (show::short_count(all.input.max(0).unsigned_abs())) } }
            div { dt { "Tokens out" } dd title=(count(all.output)) { (show::short_count(all.output.max(0).unsigned_abs())) } }
            div { dt { "First byte, median" } dd { (time(pace.waited.percentile(50))) } }
            div { dt { "First byte, 95 %" } dd { (time(pace.waited.percentile(95))) } }
        }
    }
}

/// The steps of a chart: where each has its place, and what it is called.
struct Axis {
    place: HashMap<Micros, usize>,
    steps: Vec<(String, String)>,
}

impl Axis {
    fn of(view: &View) -> Self {
        let begins = begins(view);
        let place = begins.iter().enumerate().map(|(place, begin)| (*begin, place)).collect();
        let steps = begins.iter().map(|begin| labels(*begin, view.step())).collect();
        Self { place, steps }
    }

    fn row(&self, name: String) -> Row {
        Row { name, values: vec![0; self.steps.len()] }
    }

    /// The value of a row at the step that begins then.
    fn at<'r>(&self, row: &'r mut Row, begun: Micros) -> Option<&'r mut i64> {
        self.place.get(&begun).and_then(|place| row.values.get_mut(*place))
    }
}

/// How fast calls were, as lines.
fn times(view: &View, axis: &Axis, points: &[UsagePoint<LatencyTotals>]) -> Markup {
    let picks: [(&str, Pick); 4] = [
        ("First byte, median", |pace| pace.waited.percentile(50)),
        ("First byte, 95 %", |pace| pace.waited.percentile(95)),
        ("Whole, median", |pace| pace.took.percentile(50)),
        ("Whole, 95 %", |pace| pace.took.percentile(95)),
    ];
    let rows = picks.map(|(name, pick)| {
        let mut row = axis.row(name.to_owned());
        for point in points {
            if let Some(value) = axis.at(&mut row, point.begun) {
                *value = pick(&point.used).unwrap_or_default();
            }
        }
        row
    });
    let title = "Latency over time";
    Chart { title, steps: &axis.steps, rows: &rows, show: view.what.show() }.lines()
}

/// What was used, as bars told apart.
fn sums(view: &View, axis: &Axis, seen: &UsageReport, names: &Names) -> Markup {
    let first = || seen.top.iter().take(APART).map(|(group, _)| group.as_str());
    let apart: HashMap<&str, usize> = first().enumerate().map(|(at, group)| (group, at)).collect();
    let mut rows: Vec<Row> = first().map(|group| axis.row(names.of(view.by, group))).collect();
    for point in &seen.series {
        let row = apart.get(point.group.as_str()).and_then(|at| rows.get_mut(*at));
        if let Some(value) = row.and_then(|row| axis.at(row, point.begun)) {
            *value = view.what.of(&point.used);
        }
    }
    let mut others = axis.row("others".to_owned());
    for (begun, used) in &seen.others {
        if let Some(value) = axis.at(&mut others, *begun) {
            *value = view.what.of(used);
        }
    }
    rows.push(others);
    rows.retain(|row| row.total() != 0);
    let title = format!("{} over time, by {}", view.what.title(), view.by.word());
    Chart { title: &title, steps: &axis.steps, rows: &rows, show: view.what.show() }.bars()
}

/// When each step of the view begins.
fn begins(view: &View) -> Vec<Micros> {
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

/// A step's name, short and in full.
fn labels(begin: Micros, step: UsageStep) -> (String, String) {
    let (short, full) = match step {
        UsageStep::Hour => ("%H:%M", "%-d %b %Y, %H:%M UTC"),
        UsageStep::Day => ("%-d %b", "%-d %b %Y"),
        UsageStep::Month => ("%b %Y", "%B %Y"),
    };
    match Timestamp::from_microsecond(begin) {
        Ok(time) => (time.strftime(short).to_string(), time.strftime(full).to_string()),
        Err(_) => (String::new(), String::new()),
    }
}

fn list(view: &View, top: &[(String, ReportTotals)], all: &ReportTotals, names: &Names) -> Markup {
    let field = view.by.word();
    let share = |used: &ReportTotals| {
        let (part, whole) = (view.what.of(used), view.what.of(all).max(1));
        i128::from(part.max(0)) * 1_000 / i128::from(whole)
    };
    html! {
        div.sheet {
            table.list.usage {
                thead { tr {
                    th.capital scope="col" { (field) }
                    th scope="col" { span.unseen { "Share" } }
                    th.num scope="col" { "Calls" }
                    th.num scope="col" { "Tokens in" }
                    th.num scope="col" { "Tokens out" }
                    th.num scope="col" { "Cost" }
                } }
                tbody {
                    @for (group, used) in top {
                        @let count = |n: i64| show::count(n.max(0).unsigned_abs());
                        tr {
                            th scope="row" {
                                a.id href=(view.with(field, group)) { bdi { (names.of(view.by, group)) } }
                            }
                            td.share data-label="Share" {
                                progress value=(share(used)) max="1000" { (share(used) / 10) "%" }
                            }
                            td.num data-label="Calls" { (count(used.calls)) }
                            td.num data-label="Tokens in" { (count(used.input)) }
                            td.num data-label="Tokens out" { (count(used.output)) }
                            td.num data-label="Cost" { (show::money(used.cost)) }
                        }
                    }
                }
            }
        }
        @if top.len() == LISTED { p.muted.small { "The first " (LISTED) "." } }
    }
}

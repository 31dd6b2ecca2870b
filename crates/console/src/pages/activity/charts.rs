//! The chart of a selection.

use std::collections::HashMap;

use canon::Micros;
use maud::Markup;
use store::{UsageReport, UsageStep};

use super::metric::{LatencyPick, UsageMetric};
use super::names::GroupNames;
use super::selection::ActivitySelection;
use crate::chart::{Chart, ChartSeries, ChartStep};
use crate::time_range::TimeRange;

/// Number of groups drawn separately; the rest is one series.
pub(super) const MAX_SERIES: usize = 8;

/// Steps of a chart: index by start time, and labels.
struct TimeAxis {
    step_index: HashMap<Micros, usize>,
    steps: Vec<ChartStep>,
}

impl TimeAxis {
    fn new(view: &ActivitySelection) -> Self {
        let (begins, length) = (view.time.steps(&view.calendar), view.time.step(&view.calendar));
        let index = begins.iter().enumerate().map(|(index, begin)| (*begin, index)).collect();
        let steps = begins.iter().map(|begin| chart_step(view, *begin, length)).collect();
        Self { step_index: index, steps }
    }

    fn empty_series(&self, name: String) -> ChartSeries {
        ChartSeries { name, link: None, values: vec![None; self.steps.len()] }
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

/// Returns a step with its labels. A day and a month lead to their own calls.
fn chart_step(view: &ActivitySelection, begin: Micros, length: UsageStep) -> ChartStep {
    let (short, full) = match length {
        UsageStep::Hour => ("%H:%M", "%-d %b %Y, %H:%M %Z"),
        UsageStep::Day => ("%-d %b", "%-d %b %Y"),
        UsageStep::Month => ("%b %Y", "%B %Y"),
    };
    let first = view.calendar.date_of(begin);
    let days = match length {
        UsageStep::Hour => None,
        UsageStep::Day => Some((first, first)),
        // The first and the last month may be in the range in part.
        UsageStep::Month => match view.time {
            TimeRange::Days(from, to) => {
                Some((first.first_of_month().max(from), first.last_of_month().min(to)))
            }
            TimeRange::Recent(_) | TimeRange::Month(_) => {
                let from = view.calendar.date_of(view.range().start);
                Some((first.first_of_month().max(from), first.last_of_month()))
            }
        },
    };
    let text = |form: &str| match length {
        UsageStep::Hour => view.zone().format(begin, form),
        UsageStep::Day | UsageStep::Month => first.strftime(form).to_string(),
    };
    ChartStep {
        label: text(short),
        name: text(full),
        link: days.map(|(first, last)| view.with_time(TimeRange::Days(first, last))),
        days: days.map(|(first, last)| (first.to_string(), last.to_string())),
    }
}

/// Draws the chart of a report.
pub(super) fn chart(view: &ActivitySelection, report: &UsageReport, names: &GroupNames) -> Markup {
    let axis = TimeAxis::new(view);
    match view.metric {
        UsageMetric::Latency => latency_chart(view, &axis, report),
        UsageMetric::Spend | UsageMetric::Tokens | UsageMetric::Calls => {
            totals_chart(view, &axis, report, names)
        }
    }
}

/// Line chart of latencies.
fn latency_chart(view: &ActivitySelection, axis: &TimeAxis, report: &UsageReport) -> Markup {
    let picks: [(&str, LatencyPick); 4] = [
        ("First byte, median", |pace| pace.waited.percentile(50)),
        ("First byte, 95 %", |pace| pace.waited.percentile(95)),
        ("Whole, median", |pace| pace.took.percentile(50)),
        ("Whole, 95 %", |pace| pace.took.percentile(95)),
    ];
    let rows = picks.map(|(name, pick)| {
        let mut row = axis.empty_series(name.to_owned());
        for (begun, latencies) in &report.latency_series {
            if let Some(value) = axis.value_mut(&mut row, *begun) {
                *value = pick(latencies).map(Micros::get);
            }
        }
        row
    });
    let chart = Chart {
        title: "Latency over time",
        steps: &axis.steps,
        series: &rows,
        format_value: view.metric.formatter(),
        zoom: Some(&view.without_time()),
    };
    chart.lines()
}

/// Stacked chart of totals by group.
fn totals_chart(
    view: &ActivitySelection,
    axis: &TimeAxis,
    report: &UsageReport,
    names: &GroupNames,
) -> Markup {
    let first = || report.top.iter().take(MAX_SERIES).map(|(group, _)| group.as_str());
    let apart: HashMap<&str, usize> = first().enumerate().map(|(at, group)| (group, at)).collect();
    let row_of = |group: &str| {
        let row = axis.empty_series(names.name_of(view.group_by, group));
        ChartSeries { link: view.with_group(group), ..row }
    };
    let mut rows: Vec<ChartSeries> = first().map(row_of).collect();
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
    let title = format!("{} over time, by {}", view.metric.title(), view.group_title());
    let chart = Chart {
        title: &title,
        steps: &axis.steps,
        series: &rows,
        format_value: view.metric.formatter(),
        zoom: Some(&view.without_time()),
    };
    chart.stacked_bars()
}

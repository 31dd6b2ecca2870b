//! Charts as SVG: stacked bars and lines, readable without a script, with a table behind them.

use maud::{Markup, html};

/// Drawing size; the page scales it.
const WIDTH: f64 = 800.0;
const HEIGHT: f64 = 240.0;
/// Space for the labels below the chart.
const LABEL_ROW_HEIGHT: f64 = 24.0;
/// Width of a letter of the labels on a small screen, where they are largest, and around each label.
const LETTER_WIDTH: f64 = 9.0;
const LABEL_MARGIN: f64 = 14.0;
const MAX_AXIS_LABELS: usize = 8;

/// One or more series of values, with one value for every step.
pub(crate) struct Chart<'a> {
    /// Text for screen readers.
    pub(crate) title: &'a str,
    pub(crate) steps: &'a [ChartStep],
    pub(crate) series: &'a [ChartSeries],
    /// Formats a value for display.
    pub(crate) format_value: fn(i64) -> String,
    /// Address of the chart without a time. A script adds the days of the steps that are chosen by dragging.
    pub(crate) zoom: Option<&'a str>,
}

/// One step of the time.
#[derive(Default)]
pub(crate) struct ChartStep {
    /// Short name for the axis.
    pub(crate) label: String,
    pub(crate) name: String,
    /// Address of a page of this step alone.
    pub(crate) link: Option<String>,
    /// First and last day.
    pub(crate) days: Option<(String, String)>,
}

/// One series of values.
pub(crate) struct ChartSeries {
    pub(crate) name: String,
    /// Address of a page of this series alone.
    pub(crate) link: Option<String>,
    /// `None` where nothing was measured.
    pub(crate) values: Vec<Option<i64>>,
}

impl ChartSeries {
    pub(crate) fn total(&self) -> i64 {
        self.values.iter().flatten().fold(0, |sum, value| sum.saturating_add(*value))
    }

    fn value_at(&self, step: usize) -> i64 {
        self.measured_at(step).unwrap_or_default()
    }

    fn measured_at(&self, step: usize) -> Option<i64> {
        self.values.get(step).copied().flatten()
    }

    /// Returns the runs of steps in which something was measured.
    fn runs(&self) -> Vec<Vec<(usize, i64)>> {
        let mut runs = vec![Vec::new()];
        for (step, value) in self.values.iter().enumerate() {
            match (value, runs.last_mut()) {
                (Some(value), Some(run)) => run.push((step, *value)),
                (None, Some(run)) if run.is_empty() => {}
                (None | Some(_), _) => runs.push(Vec::new()),
            }
        }
        runs.retain(|run| !run.is_empty());
        runs
    }
}

impl Chart<'_> {
    /// Draws the series stacked.
    pub(crate) fn stacked_bars(&self) -> Markup {
        let sum = |step| {
            self.series.iter().fold(0, |sum: i64, row| sum.saturating_add(row.value_at(step)))
        };
        let top = round_up_axis((0..self.steps.len()).map(sum).max().unwrap_or_default());
        let (left, slot) = self.columns(top);
        let width = (slot * 0.78).max(1.0);
        let body = html! {
            @for step in 0..self.steps.len() {
                @let x = left + slot * step as f64 + (slot - width) / 2.0;
                (self.step(step, (left, slot), &html! {
                    @for (index, low, high) in self.stacked(step) {
                        rect.{ "s" (index) } x=(px(x)) width=(px(width))
                            y=(px(y_of(high, top)))
                            height=(px((y_of(low, top) - y_of(high, top)).max(0.5))) {}
                    }
                }))
            }
        };
        self.frame(top, &body)
    }

    /// Draws each series as a line, with gaps where nothing was measured.
    pub(crate) fn lines(&self) -> Markup {
        let largest = self.series.iter().flat_map(|row| row.values.iter().copied().flatten()).max();
        let top = round_up_axis(largest.unwrap_or_default());
        let (left, slot) = self.columns(top);
        let middle = |step: usize| left + slot * (step as f64 + 0.5);
        let path = |run: &[(usize, i64)]| {
            let points = run.iter();
            let points: Vec<String> = points
                .map(|(step, value)| format!("{},{}", px(middle(*step)), px(y_of(*value, top))))
                .collect();
            points.join(" ")
        };
        let body = html! {
            @for (index, row) in self.series.iter().enumerate() {
                @for run in row.runs() {
                    @match run.as_slice() {
                        [(step, value)] => {
                            circle.dot.{ "s" (index) } cx=(px(middle(*step))) cy=(px(y_of(*value, top))) r="2.5" {}
                        }
                        run => polyline.line.{ "s" (index) } points=(path(run)) {},
                    }
                }
            }
            @for step in 0..self.steps.len() { (self.step(step, (left, slot), &html! {})) }
        };
        self.frame(top, &body)
    }

    /// Draws the area of a step, which shows its values and leads to its page.
    fn step(&self, step: usize, (left, slot): (f64, f64), bars: &Markup) -> Markup {
        let Some(ChartStep { name, link, days, .. }) = self.steps.get(step) else {
            return html! {};
        };
        let (first, last) = days.as_ref().map(|(first, last)| (first, last)).unzip();
        let values = self.tooltip(step, name);
        let area = html! {
            g.step data-from=[first] data-to=[last] {
                title { (values) }
                rect.touch x=(px(left + slot * step as f64)) y="0" width=(px(slot))
                    height=(px(HEIGHT)) {}
                (bars)
            }
        };
        html! {
            @if let Some(link) = link { a href=(link) aria-label=(values.replace('\n', ", ")) { (area) } }
            @else { (area) }
        }
    }

    /// The parts of one bar: series index, lower value, upper value.
    fn stacked(&self, step: usize) -> Vec<(usize, i64, i64)> {
        let mut parts = Vec::new();
        let mut low = 0_i64;
        for (index, row) in self.series.iter().enumerate() {
            let high = low.saturating_add(row.value_at(step).max(0));
            if high > low {
                parts.push((index, low, high));
            }
            low = high;
        }
        parts
    }

    fn tooltip(&self, step: usize, name: &str) -> String {
        let mut text = name.to_owned();
        for row in self.series {
            if let Some(value) = row.measured_at(step).filter(|value| *value != 0) {
                text.push_str(&format!("\n{}: {}", row.name, (self.format_value)(value)));
            }
        }
        text
    }

    /// Returns the width of the labels on the left and that of a step.
    fn columns(&self, top: i64) -> (f64, f64) {
        let letters = (0..=4).map(|quarter| (self.format_value)(top / 4 * quarter).chars().count());
        let left = letters.max().unwrap_or_default() as f64 * LETTER_WIDTH + LABEL_MARGIN;
        (left, (WIDTH - left) / self.steps.len().max(1) as f64)
    }

    /// Adds the axes, the legend and the figures as a table to the drawing.
    fn frame(&self, top: i64, body: &Markup) -> Markup {
        let every = self.steps.len().div_ceil(MAX_AXIS_LABELS).max(1);
        let (left, slot) = self.columns(top);
        // A picture has no links.
        let has_links = self.steps.iter().any(|step| step.link.is_some());
        let role = if has_links { "group" } else { "img" };
        // A keyboard scrolls what it can reach.
        let region = (!has_links).then_some(self.title);
        html! {
            figure.chart data-zoom=[self.zoom] {
                div.scroll tabindex=[region.map(|_| "0")] role=[region.map(|_| "region")] aria-label=[region] {
                svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT + LABEL_ROW_HEIGHT) } role=(role) aria-label=(self.title) {
                    @for quarter in 0..=4_i64 {
                        @let value = top / 4 * quarter;
                        @let y = y_of(value, top);
                        line.grid x1=(px(left)) x2=(WIDTH) y1=(px(y)) y2=(px(y)) {}
                        text.axis x=(px(left - 8.0)) y=(px((y + 4.0).clamp(10.0, HEIGHT))) text-anchor="end" {
                            ((self.format_value)(value))
                        }
                    }
                    (body)
                    @for (number, step) in self.steps.iter().enumerate().step_by(every) {
                        text.axis x=(px(left + slot * (number as f64 + 0.5))) y=(HEIGHT + 17.0)
                            text-anchor="middle" { (step.label) }
                    }
                }
                }
                ul.legend {
                    @for (index, row) in self.series.iter().enumerate() {
                        li {
                            span.swatch.{ "s" (index) } {}
                            @if let Some(link) = &row.link { a href=(link) { bdi { (row.name) } } }
                            @else { bdi { (row.name) } }
                        }
                    }
                }
                details {
                    summary { "As a table" }
                    div.sheet.scroll tabindex="0" role="region" aria-label={ (self.title) ", as a table" } {
                        (self.table())
                    }
                }
            }
        }
    }

    fn table(&self) -> Markup {
        html! {
            table {
                thead { tr {
                    th scope="col" { "Time" }
                    @for row in self.series { th.num scope="col" { (row.name) } }
                } }
                tbody {
                    @for (step, ChartStep { name, .. }) in self.steps.iter().enumerate() {
                        @if self.series.iter().any(|row| row.value_at(step) != 0) {
                            tr {
                                th scope="row" { (name) }
                                @for row in self.series {
                                    td.num { (row.measured_at(step).map_or_else(|| "–".to_owned(), self.format_value)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Vertical position of a value.
fn y_of(value: i64, top: i64) -> f64 {
    HEIGHT - (HEIGHT - 8.0) * value as f64 / top.max(1) as f64
}

/// Formats a length with one decimal, which is finer than a screen.
fn px(length: f64) -> String {
    let text = format!("{length:.1}");
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}

/// Rounds up to a number that divides into four round quarters.
fn round_up_axis(value: i64) -> i64 {
    let mut unit = 1_i64;
    while let Some(next) = unit.checked_mul(10) {
        for factor in [4, 8, 12, 20, 40] {
            let top = unit.saturating_mul(factor);
            if top >= value {
                return top;
            }
        }
        unit = next;
    }
    i64::MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axis_top_is_round_and_above_all_values() {
        for value in [0, 1, 4, 5, 13, 99, 1_000, 123_456_789, i64::MAX / 2, i64::MAX] {
            assert!(round_up_axis(value) >= value, "{value}");
        }
        assert_eq!(
            [round_up_axis(3), round_up_axis(7), round_up_axis(81), round_up_axis(1_100)],
            [4, 8, 120, 1_200]
        );
    }

    fn step(name: &str, link: Option<&str>) -> ChartStep {
        let (name, link) = (name.to_owned(), link.map(str::to_owned));
        ChartStep { name, link, ..ChartStep::default() }
    }

    #[test]
    fn series_names_are_escaped() {
        let name = "<script>\"'&".to_owned();
        let rows = [ChartSeries { name, link: None, values: vec![Some(3), None] }];
        let steps = ["first", "second"].map(|name| step(name, Some("/?a=\"<script>")));
        let chart = Chart {
            title: "Spent",
            steps: &steps,
            series: &rows,
            format_value: |value| value.to_string(),
            zoom: Some("/?b=\"<script>"),
        };
        for drawn in [chart.stacked_bars(), chart.lines()] {
            let text = drawn.into_string();
            assert!(!text.contains("<script>"), "{text}");
            assert!(text.contains("first\n"));
        }
    }

    #[test]
    fn a_line_has_a_gap_where_nothing_was_measured() {
        let values = vec![None, Some(4), Some(8), None, None, Some(2), None, Some(1), Some(0)];
        let rows = [ChartSeries { name: "median".to_owned(), link: None, values }];
        let runs = rows[0].runs();
        assert_eq!(runs, [vec![(1, 4), (2, 8)], vec![(5, 2)], vec![(7, 1), (8, 0)]]);
        let steps: Vec<ChartStep> = (0..9).map(|n| step(&format!("step {n}"), None)).collect();
        let chart = Chart {
            title: "Latency",
            steps: &steps,
            series: &rows,
            format_value: |value| value.to_string(),
            zoom: None,
        };
        let drawn = chart.lines().into_string();
        assert_eq!((drawn.matches("<polyline").count(), drawn.matches("<circle").count()), (2, 1));
    }
}

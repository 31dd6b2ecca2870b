//! Figures with their goals, as a table and as JSON.

use std::fs;
use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};

use super::interval::ConfidenceInterval;

/// Goal of a figure.
#[derive(Clone, Copy)]
pub(super) struct Goal {
    /// The figure that the goal applies to.
    pub(super) of: JudgedFigure,
    /// Target value.
    pub(super) aim: f64,
    /// Limit.
    pub(super) limit: f64,
    /// True if larger is better.
    pub(super) upward: bool,
}

/// Figure that a goal applies to.
#[derive(Clone, Copy)]
pub(super) enum JudgedFigure {
    /// The gateway's figure divided by nginx's, in the same round.
    Ratio,
    /// The gateway's figure.
    Value,
}

impl Goal {
    /// Creates a goal of at most that multiple of nginx.
    pub(super) const fn ratio(aim: f64, limit: f64) -> Self {
        Self { of: JudgedFigure::Ratio, aim, limit, upward: false }
    }

    /// Creates a goal of at least that multiple of nginx.
    pub(super) const fn ratio_at_least(aim: f64, limit: f64) -> Self {
        Self { of: JudgedFigure::Ratio, aim, limit, upward: true }
    }

    /// Creates a goal of at least that value.
    pub(super) const fn value_at_least(aim: f64, limit: f64) -> Self {
        Self { of: JudgedFigure::Value, aim, limit, upward: true }
    }

    /// Creates a goal of at most that value.
    pub(super) const fn value(aim: f64, limit: f64) -> Self {
        Self { of: JudgedFigure::Value, aim, limit, upward: false }
    }

    fn rows_of_load(self, row: &FigureRow) -> Option<GoalResult> {
        let figure = match self.of {
            JudgedFigure::Ratio => row.ratio?,
            JudgedFigure::Value => row.gateway?,
        };
        let reaches = |bound: f64| if self.upward { figure >= bound } else { figure <= bound };
        Some(match (reaches(self.aim), reaches(self.limit)) {
            (true, _) => GoalResult::Goal,
            (false, true) => GoalResult::Within,
            (false, false) => GoalResult::Exceeded,
        })
    }

    fn describe(self, bound: f64) -> String {
        let sign = if self.upward { '≥' } else { '≤' };
        match self.of {
            JudgedFigure::Ratio => format!("{sign} {bound:.2} ×"),
            JudgedFigure::Value => format!("{sign} {}", number(bound)),
        }
    }
}

/// Result of comparing a figure with its goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GoalResult {
    Goal,
    Within,
    Exceeded,
}

impl GoalResult {
    fn word(self) -> &'static str {
        match self {
            Self::Goal => "goal reached",
            Self::Within => "within limit",
            Self::Exceeded => "BEYOND LIMIT",
        }
    }
}

/// One line of the table.
#[derive(Default)]
pub(super) struct FigureRow {
    /// Name and unit of the figure.
    pub(super) what: String,
    /// Without a proxy.
    pub(super) direct: Option<f64>,
    /// Through nginx.
    pub(super) nginx: Option<f64>,
    /// Through a minimal proxy on hyper.
    pub(super) hyper: Option<f64>,
    /// Through the gateway.
    pub(super) gateway: Option<f64>,
    /// Interval of the gateway's figure.
    pub(super) gateway_interval: Option<ConfidenceInterval>,
    /// Gateway divided by nginx.
    pub(super) ratio: Option<f64>,
    /// Interval of the ratio.
    pub(super) ratio_interval: Option<ConfidenceInterval>,
    /// Goal, if any.
    pub(super) goal: Option<Goal>,
}

impl FigureRow {
    fn verdict(&self) -> Option<GoalResult> {
        self.goal.and_then(|goal| goal.rows_of_load(self))
    }

    fn json(&self) -> Value {
        json!({
            "what": self.what,
            "direct": self.direct,
            "nginx": self.nginx,
            "hyper": self.hyper,
            "gateway": self.gateway,
            "gateway_interval": self.gateway_interval.map(ConfidenceInterval::json),
            "ratio": self.ratio,
            "ratio_interval": self.ratio_interval.map(ConfidenceInterval::json),
            "goal": self.goal.map(|goal| goal.aim),
            "limit": self.goal.map(|goal| goal.limit),
            "verdict": self.verdict().map(GoalResult::word),
        })
    }
}

impl FigureRow {
    /// Returns the row in Markdown.
    pub(super) fn markdown(&self) -> String {
        let bound_text = |bound: fn(&Goal) -> f64| {
            self.goal.map(|goal| goal.describe(bound(&goal))).unwrap_or_default()
        };
        format!(
            "| {} | {} | {} | {} | {}{} | {}{} | {} | {} | {} |",
            self.what,
            cell(self.direct),
            cell(self.nginx),
            cell(self.hyper),
            cell(self.gateway),
            range(self.gateway_interval),
            self.ratio.map(|ratio| format!("{ratio:.2}")).unwrap_or_default(),
            range(self.ratio_interval),
            bound_text(|goal| goal.aim),
            bound_text(|goal| goal.limit),
            self.verdict().map(GoalResult::word).unwrap_or_default(),
        )
    }
}

/// Prints the table. Returns true if no figure exceeds its limit.
pub(super) fn print(rows: &[FigureRow]) -> bool {
    let wide = rows.iter().map(|row| row.what.chars().count()).max().unwrap_or_default();
    println!(
        "\n{:<wide$} {:>9} {:>9} {:>9} {:>21} {:>18} {:>9} {:>9}",
        "", "direct", "nginx", "hyper", "gateway (95 %)", "× nginx (95 %)", "goal", "limit"
    );
    for row in rows {
        let bound_text = |bound: fn(&Goal) -> f64| {
            row.goal.map(|goal| goal.describe(bound(&goal))).unwrap_or_default()
        };
        println!(
            "{:<wide$} {:>9} {:>9} {:>9} {:>21} {:>18} {:>9} {:>9}  {}",
            row.what,
            cell(row.direct),
            cell(row.nginx),
            cell(row.hyper),
            cell(row.gateway) + &range(row.gateway_interval),
            row.ratio.map(|ratio| format!("{ratio:.2}")).unwrap_or_default()
                + &range(row.ratio_interval),
            bound_text(|goal| goal.aim),
            bound_text(|goal| goal.limit),
            row.verdict().map(GoalResult::word).unwrap_or_default(),
        );
    }
    let beyond = rows.iter().filter(|row| row.verdict() == Some(GoalResult::Exceeded)).count();
    let reached = rows.iter().filter(|row| row.verdict() == Some(GoalResult::Goal)).count();
    let judged = rows.iter().filter(|row| row.verdict().is_some()).count();
    println!("\n{reached} of {judged} goals reached, {beyond} beyond the limit");
    beyond == 0
}

/// Writes the table as JSON, with metadata of the run.
pub(super) fn write(path: &Path, about: &Value, rows: &[FigureRow]) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let rows: Vec<Value> = rows.iter().map(FigureRow::json).collect();
    let text = serde_json::to_string_pretty(&json!({ "about": about, "rows": rows }))?;
    fs::write(path, text + "\n")?;
    Ok(())
}

fn cell(figure: Option<f64>) -> String {
    figure.map_or_else(|| "·".into(), number)
}

/// Formats an interval as it stands behind its figure.
fn range(interval: Option<ConfidenceInterval>) -> String {
    interval.map_or_else(String::new, |ConfidenceInterval { low, high }| {
        format!(" ({}–{})", number(low), number(high))
    })
}

/// Formats a number with three significant digits, enough on a shared machine.
fn number(figure: f64) -> String {
    match figure.abs() {
        size if size >= 100.0 => format!("{figure:.0}"),
        size if size >= 10.0 => format!("{figure:.1}"),
        size if size >= 1.0 => format!("{figure:.2}"),
        _ => format!("{figure:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(gateway: f64, ratio: f64, goal: Goal) -> FigureRow {
        let what = "a figure".into();
        let (gateway, ratio, goal) = (Some(gateway), Some(ratio), Some(goal));
        FigureRow { what, nginx: Some(1.0), gateway, ratio, goal, ..FigureRow::default() }
    }

    #[test]
    fn figures_are_judged_by_their_goal_and_their_limit() {
        for (ratio, verdict) in
            [(0.9, GoalResult::Goal), (1.5, GoalResult::Within), (1.51, GoalResult::Exceeded)]
        {
            assert_eq!(row(9.0, ratio, Goal::ratio(0.9, 1.5)).verdict(), Some(verdict));
        }
        for (ratio, verdict) in
            [(1.1, GoalResult::Goal), (0.7, GoalResult::Within), (0.6, GoalResult::Exceeded)]
        {
            assert_eq!(row(9.0, ratio, Goal::ratio_at_least(1.1, 0.7)).verdict(), Some(verdict));
        }
        assert_eq!(row(41.0, 0.1, Goal::value(15.0, 40.0)).verdict(), Some(GoalResult::Exceeded));
    }

    #[test]
    fn one_figure_beyond_its_limit_fails_the_whole() {
        assert!(print(&[row(9.0, 1.2, Goal::ratio(0.9, 1.5))]));
        assert!(!print(&[
            row(9.0, 1.2, Goal::ratio(0.9, 1.5)),
            row(9.0, 2.0, Goal::ratio(0.9, 1.5))
        ]));
    }

    #[test]
    fn a_row_as_json_names_its_verdict() {
        let json = row(9.0, 1.2, Goal::ratio(0.9, 1.5)).json();
        assert_eq!(json["verdict"], "within limit");
        assert_eq!(json["direct"], Value::Null);
    }

    #[test]
    fn intervals_stand_behind_their_figures() {
        let mut row = row(56.1, 1.2, Goal::ratio(0.9, 1.5));
        row.ratio_interval = Some(ConfidenceInterval { low: 1.1, high: 1.3 });
        assert!(row.markdown().contains("| 56.1 | 1.20 (1.10–1.30) |"), "{}", row.markdown());
    }

    #[test]
    fn numbers_keep_three_digits() {
        let formatted: Vec<String> = [23_456.7, 45.67, 1.234, 0.1234].map(number).into();
        assert_eq!(formatted, ["23457", "45.7", "1.23", "0.123"]);
    }
}

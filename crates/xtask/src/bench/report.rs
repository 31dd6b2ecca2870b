//! The figures as a table for people and as JSON for programs, each beside its goal.

use std::fs;
use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};

/// What a figure is asked to be.
#[derive(Clone, Copy)]
pub(super) struct Goal {
    /// Which figure is judged.
    pub(super) of: Of,
    /// Where it should be.
    pub(super) aim: f64,
    /// What it must not go beyond.
    pub(super) limit: f64,
    /// Whether more is better.
    pub(super) upward: bool,
}

/// The figure a goal is about.
#[derive(Clone, Copy)]
pub(super) enum Of {
    /// The gateway's figure divided by nginx's, in the same round.
    Ratio,
    /// The gateway's figure as it is.
    Value,
}

impl Goal {
    /// At most so many times nginx.
    pub(super) const fn ratio(aim: f64, limit: f64) -> Self {
        Self { of: Of::Ratio, aim, limit, upward: false }
    }

    /// At least so many times nginx.
    pub(super) const fn ratio_at_least(aim: f64, limit: f64) -> Self {
        Self { of: Of::Ratio, aim, limit, upward: true }
    }

    /// At most so much.
    pub(super) const fn value(aim: f64, limit: f64) -> Self {
        Self { of: Of::Value, aim, limit, upward: false }
    }

    fn judge(self, row: &Row) -> Option<Verdict> {
        let figure = match self.of {
            Of::Ratio => row.ratio?,
            Of::Value => row.gateway?,
        };
        let reaches = |bound: f64| if self.upward { figure >= bound } else { figure <= bound };
        Some(match (reaches(self.aim), reaches(self.limit)) {
            (true, _) => Verdict::Goal,
            (false, true) => Verdict::Within,
            (false, false) => Verdict::Beyond,
        })
    }

    fn told(self, bound: f64) -> String {
        let sign = if self.upward { '≥' } else { '≤' };
        match self.of {
            Of::Ratio => format!("{sign} {bound:.2} ×"),
            Of::Value => format!("{sign} {}", number(bound)),
        }
    }
}

/// How a figure stands to its goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Goal,
    Within,
    Beyond,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Self::Goal => "goal reached",
            Self::Within => "within limit",
            Self::Beyond => "BEYOND LIMIT",
        }
    }
}

/// One line of the table.
pub(super) struct Row {
    /// What was measured, and its unit.
    pub(super) what: String,
    /// Without a proxy.
    pub(super) direct: Option<f64>,
    /// Through nginx.
    pub(super) nginx: Option<f64>,
    /// Through the gateway.
    pub(super) gateway: Option<f64>,
    /// Gateway divided by nginx.
    pub(super) ratio: Option<f64>,
    /// What is asked of it, if anything is.
    pub(super) goal: Option<Goal>,
}

impl Row {
    fn verdict(&self) -> Option<Verdict> {
        self.goal.and_then(|goal| goal.judge(self))
    }

    fn json(&self) -> Value {
        json!({
            "what": self.what,
            "direct": self.direct,
            "nginx": self.nginx,
            "gateway": self.gateway,
            "ratio": self.ratio,
            "goal": self.goal.map(|goal| goal.aim),
            "limit": self.goal.map(|goal| goal.limit),
            "verdict": self.verdict().map(Verdict::word),
        })
    }
}

impl Row {
    /// The row of a table in a document.
    pub(super) fn markdown(&self) -> String {
        let told = |bound: fn(&Goal) -> f64| {
            self.goal.map(|goal| goal.told(bound(&goal))).unwrap_or_default()
        };
        format!(
            "| {} | {} | {} | {} | {} | {} | {} | {} |",
            self.what,
            cell(self.direct),
            cell(self.nginx),
            cell(self.gateway),
            self.ratio.map(|ratio| format!("{ratio:.2}")).unwrap_or_default(),
            told(|goal| goal.aim),
            told(|goal| goal.limit),
            self.verdict().map(Verdict::word).unwrap_or_default(),
        )
    }
}

/// Prints the table. True when nothing is beyond its limit.
pub(super) fn print(rows: &[Row]) -> bool {
    let wide = rows.iter().map(|row| row.what.chars().count()).max().unwrap_or_default();
    println!(
        "\n{:<wide$} {:>9} {:>9} {:>9} {:>8} {:>9} {:>9}",
        "", "direct", "nginx", "gateway", "× nginx", "goal", "limit"
    );
    for row in rows {
        let told = |bound: fn(&Goal) -> f64| {
            row.goal.map(|goal| goal.told(bound(&goal))).unwrap_or_default()
        };
        println!(
            "{:<wide$} {:>9} {:>9} {:>9} {:>8} {:>9} {:>9}  {}",
            row.what,
            cell(row.direct),
            cell(row.nginx),
            cell(row.gateway),
            row.ratio.map(|ratio| format!("{ratio:.2}")).unwrap_or_default(),
            told(|goal| goal.aim),
            told(|goal| goal.limit),
            row.verdict().map(Verdict::word).unwrap_or_default(),
        );
    }
    let beyond = rows.iter().filter(|row| row.verdict() == Some(Verdict::Beyond)).count();
    let reached = rows.iter().filter(|row| row.verdict() == Some(Verdict::Goal)).count();
    let judged = rows.iter().filter(|row| row.verdict().is_some()).count();
    println!("\n{reached} of {judged} goals reached, {beyond} beyond the limit");
    beyond == 0
}

/// Writes the same as JSON, with what else is known about the run.
pub(super) fn write(path: &Path, about: &Value, rows: &[Row]) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let rows: Vec<Value> = rows.iter().map(Row::json).collect();
    let text = serde_json::to_string_pretty(&json!({ "about": about, "rows": rows }))?;
    fs::write(path, text + "\n")?;
    Ok(())
}

fn cell(figure: Option<f64>) -> String {
    figure.map_or_else(|| "·".into(), number)
}

/// Three digits that matter are enough for anything measured on a shared machine.
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

    fn row(gateway: f64, ratio: f64, goal: Goal) -> Row {
        let what = "a figure".into();
        let (gateway, ratio, goal) = (Some(gateway), Some(ratio), Some(goal));
        Row { what, direct: None, nginx: Some(1.0), gateway, ratio, goal }
    }

    #[test]
    fn figures_are_judged_by_their_goal_and_their_limit() {
        for (ratio, verdict) in
            [(0.9, Verdict::Goal), (1.5, Verdict::Within), (1.51, Verdict::Beyond)]
        {
            assert_eq!(row(9.0, ratio, Goal::ratio(0.9, 1.5)).verdict(), Some(verdict));
        }
        for (ratio, verdict) in
            [(1.1, Verdict::Goal), (0.7, Verdict::Within), (0.6, Verdict::Beyond)]
        {
            assert_eq!(row(9.0, ratio, Goal::ratio_at_least(1.1, 0.7)).verdict(), Some(verdict));
        }
        assert_eq!(row(41.0, 0.1, Goal::value(15.0, 40.0)).verdict(), Some(Verdict::Beyond));
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
    fn numbers_keep_three_digits() {
        let told: Vec<String> = [23_456.7, 45.67, 1.234, 0.1234].map(number).into();
        assert_eq!(told, ["23457", "45.7", "1.23", "0.123"]);
    }
}

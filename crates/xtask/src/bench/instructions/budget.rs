//! The budget of instructions: the figures of each road that the repository keeps, and the check of
//! a change against them.
//!
//! The figures belong to the binary of `--release`, which the suite can afford to build. They depend
//! on the compiler and on the variants of `memcpy` and of searches that the processor offers under
//! valgrind (it knows AVX2 at most, so that all machines with AVX2 are alike), hardly on the kernel
//! and not on the load of the machine. The file names the compiler and the processor features it was
//! measured with.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::counts::as_f64;
use crate::workspace;

/// Growth that fails the check.
const MAX_GROWTH: f64 = 0.03;
/// Functions kept per road, those with the most own instructions.
const KEPT_FUNCTIONS: usize = 40;
/// Functions named when a road has grown.
const NAMED_FUNCTIONS: usize = 10;

/// Figures of one road, per call or per event.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub(super) struct RoadFigures {
    /// User instructions.
    pub(super) instructions: u64,
    /// Allocations of memory.
    pub(super) allocations: f64,
    /// Calls of `memcpy` and `memmove` in the whole process, told and not checked.
    pub(super) copies: f64,
    /// System calls on sockets, with one caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) socket_calls: Option<f64>,
    /// All system calls of the process, with one caller. Timers and wake-ups make them vary, so
    /// they are told and not checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) system_calls: Option<f64>,
    /// Own instructions of the dearest functions.
    pub(super) functions: BTreeMap<String, u64>,
}

impl RoadFigures {
    /// Keeps the dearest functions only.
    pub(super) fn with_dearest(mut self, own: BTreeMap<String, u64>) -> Self {
        let mut own: Vec<(String, u64)> = own.into_iter().filter(|(_, cost)| *cost > 0).collect();
        own.sort_by(|(a, more), (b, less)| less.cmp(more).then(a.cmp(b)));
        own.truncate(KEPT_FUNCTIONS);
        self.functions = own.into_iter().collect();
        self
    }
}

/// A file of kept figures.
#[derive(Clone, Copy)]
pub(super) enum BudgetFile {
    /// Of whole calls.
    Gateway,
    /// Of reading and translating bodies.
    Translations,
}

/// The figures of all roads.
#[derive(Debug, Default, Serialize, Deserialize, PartialEq)]
pub(super) struct InstructionBudget {
    /// Tools and processor features that the figures depend on.
    pub(super) measured_with: BTreeMap<String, String>,
    /// Figures by the name of the road.
    pub(super) roads: BTreeMap<String, RoadFigures>,
}

impl InstructionBudget {
    /// Keeps these figures from now on.
    pub(super) fn keep(&self, file: BudgetFile) -> Result<()> {
        let path = file.path();
        fs::write(&path, serde_json::to_string_pretty(self)? + "\n")?;
        println!("written to {}", path.display());
        Ok(())
    }

    /// Reads the kept figures.
    fn kept(file: BudgetFile) -> Result<Self> {
        let path = file.path();
        let text = fs::read_to_string(&path)
            .with_context(|| format!("reading {}; {ACCEPT}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("in {}", path.display()))
    }

    /// Compares these figures with the kept ones. Fails if one has become dearer.
    pub(super) fn check_against(&self, file: BudgetFile) -> Result<()> {
        let kept = Self::kept(file)?;
        for gain in kept.gains(self) {
            println!("{gain}; `cargo xtask instructions --accept` holds the gain");
        }
        let dearer = kept.check(self);
        ensure!(dearer.is_empty(), "{dearer}");
        Ok(())
    }

    /// Compares measured figures with this budget. Returns what has become dearer, in sentences;
    /// empty if nothing has.
    fn check(&self, measured: &Self) -> String {
        let mut text = String::new();
        for (name, now) in &measured.roads {
            match self.roads.get(name) {
                Some(kept) => compare(&mut text, name, kept, now),
                None => line(&mut text, format_args!("{name}: has no figure yet")),
            }
        }
        for name in self.roads.keys().filter(|name| !measured.roads.contains_key(*name)) {
            line(&mut text, format_args!("{name}: is in the budget and was not measured"));
        }
        if !text.is_empty() {
            for (what, kept) in &self.measured_with {
                let now = measured.measured_with.get(what).map_or("unknown", String::as_str);
                if now != kept {
                    line(&mut text, format_args!("the budget was measured with {kept}, not {now}"));
                }
            }
            line(&mut text, format_args!("{ACCEPT}"));
        }
        text
    }

    /// Names the roads that cost much less than the budget allows.
    fn gains(&self, measured: &Self) -> Vec<String> {
        let gained = measured.roads.iter().filter_map(|(name, now)| {
            let (kept, now) =
                (as_f64(self.roads.get(name)?.instructions), as_f64(now.instructions));
            let share = 1.0 - now / kept;
            (share > MAX_GROWTH).then(|| format!("{name}: {:.1} % cheaper", share * 100.0))
        });
        gained.collect()
    }
}

const ACCEPT: &str = "if the cost is wanted, `cargo xtask instructions --accept` writes the new \
                      figures, which belong into the same commit with the reason";

fn compare(text: &mut String, name: &str, kept: &RoadFigures, now: &RoadFigures) {
    let figures = [
        ("instructions", 1.0, Some(as_f64(kept.instructions)), Some(as_f64(now.instructions))),
        // A tenth of an allocation per call is rare work such as growing a table.
        ("allocations", 0.1, Some(kept.allocations), Some(now.allocations)),
        // Pieces of a stream that arrive together are read together.
        ("system calls on sockets", 0.9, kept.socket_calls, now.socket_calls),
    ];
    let mut has_grown = false;
    for (what, noise, kept, now) in figures {
        let (Some(kept), Some(now)) = (kept, now) else { continue };
        if now > kept * (1.0 + MAX_GROWTH) && now - kept > noise {
            let percent = (now / kept - 1.0) * 100.0;
            line(
                text,
                format_args!("{name}: {now:.1} {what} instead of {kept:.1}, +{percent:.1} %"),
            );
            has_grown = true;
        }
    }
    if !has_grown {
        return;
    }
    let functions: BTreeSet<&String> = kept.functions.keys().chain(now.functions.keys()).collect();
    let cost = |of: &RoadFigures, function: &String| {
        of.functions.get(function).and_then(|cost| i64::try_from(*cost).ok()).unwrap_or(0)
    };
    let mut grown: Vec<(i64, &String)> = functions
        .into_iter()
        .map(|function| (cost(now, function) - cost(kept, function), function))
        .filter(|(growth, _)| *growth > 0)
        .collect();
    grown.sort_by(|a, b| b.cmp(a));
    for (growth, function) in grown.into_iter().take(NAMED_FUNCTIONS) {
        let before = cost(kept, function);
        line(text, format_args!("    +{growth:<7} {function} (was {before})"));
    }
}

fn line(text: &mut String, words: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{words}");
}

impl BudgetFile {
    fn path(self) -> PathBuf {
        let name = match self {
            Self::Gateway => "instruction_budget.json",
            Self::Translations => "translation_budget.json",
        };
        workspace::root().join("crates/xtask").join(name)
    }
}

/// Returns the tools and processor features that the figures depend on.
pub(super) fn measured_with() -> BTreeMap<String, String> {
    let first_line = |program: &str, argument: &str| {
        let output = Command::new(program).arg(argument).output().ok()?;
        Some(String::from_utf8_lossy(&output.stdout).lines().next()?.trim().to_owned())
    };
    let features = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let has = |feature: &str| features.split_ascii_whitespace().any(|word| word == feature);
    let known = ["sse4_2", "avx2", "bmi2"].into_iter().filter(|feature| has(feature));
    let facts = [
        ("compiler", first_line("rustc", "--version")),
        ("valgrind", first_line("valgrind", "--version")),
        ("C library", first_line("ldd", "--version")),
        ("processor features", Some(known.collect::<Vec<_>>().join(" "))),
    ];
    facts.into_iter().filter_map(|(what, fact)| Some((what.to_owned(), fact?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(instructions: u64, parse: u64) -> InstructionBudget {
        let functions = [("parse".to_owned(), parse), ("send".to_owned(), 40)].into();
        let figures =
            RoadFigures { instructions, allocations: 70.0, functions, ..Default::default() };
        InstructionBudget {
            measured_with: [("compiler".to_owned(), "rustc 1".to_owned())].into(),
            roads: [("chat".to_owned(), figures)].into(),
        }
    }

    #[test]
    fn growth_beyond_three_percent_names_the_function_that_grew() {
        assert_eq!(budget(1_000, 10).check(&budget(1_030, 40)), "");
        let said = budget(1_000, 10).check(&budget(1_031, 41));
        assert!(said.contains("chat: 1031.0 instructions instead of 1000.0, +3.1 %"), "{said}");
        assert!(said.contains("+31      parse (was 10)"), "{said}");
        assert!(!said.contains("send"), "{said}");
        assert!(said.contains("--accept"), "{said}");
    }

    #[test]
    fn allocations_and_unknown_roads_fail_too() {
        let mut now = budget(1_000, 10);
        now.roads.get_mut("chat").unwrap().allocations = 73.0;
        assert!(budget(1_000, 10).check(&now).contains("73.0 allocations instead of 70.0"));
        let none = InstructionBudget::default();
        assert!(none.check(&now).contains("no figure yet"));
        assert!(now.check(&none).contains("was not measured"));
    }

    #[test]
    fn another_compiler_is_told_where_a_figure_differs() {
        let mut now = budget(2_000, 10);
        now.measured_with.insert("compiler".to_owned(), "rustc 2".to_owned());
        assert!(budget(1_000, 10).check(&now).contains("measured with rustc 1, not rustc 2"));
    }

    #[test]
    fn gains_are_told_and_fail_nothing() {
        assert_eq!(budget(1_000, 10).check(&budget(900, 10)), "");
        assert_eq!(budget(1_000, 10).gains(&budget(900, 10)), ["chat: 10.0 % cheaper"]);
    }

    #[test]
    fn the_dearest_functions_are_kept() {
        let own = (0..100).map(|at| (format!("f{at}"), at)).collect();
        let kept = RoadFigures::default().with_dearest(own);
        assert_eq!(kept.functions.len(), KEPT_FUNCTIONS);
        assert!(kept.functions.contains_key("f99") && !kept.functions.contains_key("f0"));
    }

    #[test]
    fn the_kept_figures_can_be_read() {
        let kept = InstructionBudget::kept(BudgetFile::Gateway).unwrap();
        assert!(kept.roads.values().all(|road| road.instructions > 0));
    }
}

//! Files of callgrind: instructions by function, and how often allocator and copies were called
//! (<https://valgrind.org/docs/manual/cl-format.html>).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Functions that hand out memory. Calls among themselves are not counted.
const ALLOCATORS: [&str; 13] = [
    "mi_malloc",
    "mi_malloc_aligned",
    "mi_malloc_small",
    "mi_zalloc",
    "mi_zalloc_aligned",
    "mi_calloc",
    "mi_realloc",
    "mi_realloc_aligned",
    "mi_heap_malloc",
    "malloc",
    "calloc",
    "realloc",
    "posix_memalign",
];
/// Longest name of a function. Type parameters of async code fill pages.
const MAX_NAME_CHARS: usize = 110;

/// Counts of one file of callgrind.
#[derive(Clone, Debug, Default)]
pub(super) struct CallgrindCounts {
    /// Own instructions of each function, without those of the functions it calls.
    pub(super) own: BTreeMap<String, u64>,
    /// Instructions of each function and of what it calls.
    inclusive: BTreeMap<String, u64>,
    /// Calls of each allocating function: all of them, and those from outside of the allocator.
    allocating: BTreeMap<&'static str, [u64; 2]>,
    /// Calls of `memcpy` and `memmove` in the whole process.
    pub(super) copies: u64,
}

/// Own instructions of one allocation by the function that begins it. They are the same for every
/// call, because these functions only look up the heap of the thread.
pub(super) struct AllocationCosts(BTreeMap<&'static str, f64>);

impl CallgrindCounts {
    /// Reads a file.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text =
            fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        Ok(Self::parse(&text))
    }

    /// Instructions of all functions.
    pub(super) fn total(&self) -> u64 {
        self.own.values().sum()
    }

    /// Instructions of a function and of what it calls.
    pub(super) fn inclusive(&self, function: &str) -> u64 {
        self.inclusive.get(function).copied().unwrap_or_default()
    }

    /// Returns the allocations in the whole process, releases not included.
    pub(super) fn allocations(&self) -> u64 {
        self.allocating.values().map(|[_, from_outside]| from_outside).sum()
    }

    /// Returns the own instructions of one allocation. The counts must be of the whole process.
    pub(super) fn allocation_costs(&self) -> AllocationCosts {
        let cost = |(name, [all, from_outside]): (&&'static str, &[u64; 2])| {
            let own = self.own.get(*name).copied().unwrap_or_default();
            let is_begun_outside = *all > 0 && own > 0 && all == from_outside;
            is_begun_outside.then(|| (*name, as_f64(own) / as_f64(*all)))
        };
        AllocationCosts(self.allocating.iter().filter_map(cost).collect())
    }

    /// Returns the allocations inside the function that is collected. callgrind collects costs there
    /// only, yet counts calls everywhere, so that the number follows from the costs.
    pub(super) fn collected_allocations(&self, costs: &AllocationCosts) -> f64 {
        let own = |name: &str| as_f64(self.own.get(name).copied().unwrap_or_default());
        costs.0.iter().map(|(name, cost)| own(name) / cost).sum()
    }

    fn parse(text: &str) -> Self {
        // Each name is written once, behind its number, and later by its number only.
        let mut names: HashMap<&str, &str> = HashMap::new();
        let (mut caller, mut callee, mut is_call) = ("", "", false);
        let mut counts = Self::default();
        for line in text.lines() {
            let begins = line.strip_prefix("fn=");
            if let Some(function) = begins.or_else(|| line.strip_prefix("cfn=")) {
                let (number, name) = function.split_once(' ').unwrap_or((function, ""));
                if !name.is_empty() {
                    names.insert(number, without_recursion(name));
                }
                let name = names.get(number).copied().unwrap_or_default();
                *(if begins.is_some() { &mut caller } else { &mut callee }) = name;
            } else if let Some(calls) = line.strip_prefix("calls=") {
                let calls = calls.split_ascii_whitespace().next().and_then(|n| n.parse().ok());
                counts.count_calls(caller, callee, calls.unwrap_or(0));
                is_call = true;
            } else if line.starts_with(|byte: char| byte.is_ascii_digit() || "+-*".contains(byte)) {
                let cost = line.split_ascii_whitespace().nth(1).and_then(|cost| cost.parse().ok());
                let cost: u64 = cost.unwrap_or(0);
                let is_own = !std::mem::take(&mut is_call);
                if is_own {
                    *counts.own.entry(short(caller)).or_default() += cost;
                }
                if is_own || caller != callee {
                    *counts.inclusive.entry(caller.to_owned()).or_default() += cost;
                }
            }
        }
        counts
    }

    fn count_calls(&mut self, caller: &str, callee: &str, calls: u64) {
        let is_allocator = |name: &str| name.starts_with("mi_") || name.starts_with("_mi_");
        if let Some(callee) = ALLOCATORS.iter().find(|name| **name == callee) {
            let [all, from_outside] = self.allocating.entry(callee).or_default();
            *all += calls;
            if !is_allocator(caller) && !ALLOCATORS.contains(&caller) {
                *from_outside += calls;
            }
        }
        let bare = callee.trim_start_matches('_');
        if bare.starts_with("memcpy") || bare.starts_with("memmove") {
            self.copies += calls;
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "far fewer instructions than that")]
pub(super) fn as_f64(count: u64) -> f64 {
    count as f64
}

/// Returns the names of the functions that ran, each once, in the order of the file.
pub(super) fn function_names(text: &str) -> Vec<&str> {
    let (mut names, mut seen, mut ran) = (HashMap::new(), HashSet::new(), Vec::new());
    for line in text.lines() {
        let begins = line.strip_prefix("fn=");
        let Some(function) = begins.or_else(|| line.strip_prefix("cfn=")) else { continue };
        // Each name is written once, behind its number, and later by its number only.
        let (number, name) = function.split_once(' ').unwrap_or((function, ""));
        if !name.is_empty() {
            names.insert(number, without_recursion(name));
        }
        if let (Some(_), Some(name)) = (begins, names.get(number))
            && seen.insert(*name)
        {
            ran.push(*name);
        }
    }
    ran
}

/// Removes the level of recursion: `name'2`.
fn without_recursion(name: &str) -> &str {
    match name.rsplit_once('\'') {
        Some((name, level)) if level.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => name,
    }
}

/// Shortens a name: type parameters within type parameters become `…`.
fn short(name: &str) -> String {
    let (mut depth, mut shortened) = (0_u32, String::new());
    let mut before = ' ';
    for letter in name.chars() {
        match letter {
            '<' => {
                depth += 1;
                if depth == 2 {
                    shortened.push_str("<…>");
                }
            }
            '>' if before != '-' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    shortened.push('>');
                }
            }
            _ if depth > 1 => {}
            _ => shortened.push(letter),
        }
        if letter == '<' && depth == 1 {
            shortened.push('<');
        }
        before = letter;
    }
    if shortened.chars().count() > MAX_NAME_CHARS {
        // The end of a name says more than its beginning.
        let skipped = shortened.chars().count() - MAX_NAME_CHARS;
        shortened = std::iter::once('…').chain(shortened.chars().skip(skipped)).collect();
    }
    shortened
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_added_by_function_with_and_without_what_it_calls() {
        let counts = CallgrindCounts::parse(
            "fn=(1) serve\n0 5\ncfn=(2) other\ncalls=3 0\n0 30\nfn=(2)\n0 30\nfn=(1)\n+3 7\n",
        );
        assert_eq!((counts.inclusive("serve"), counts.inclusive("other")), (42, 30));
        assert_eq!(counts.own, [("other".to_owned(), 30), ("serve".to_owned(), 12)].into());
        assert_eq!(counts.total(), 42);
    }

    #[test]
    fn each_function_that_ran_is_named_once() {
        let text =
            "fn=(1) serve\n0 5\ncfn=(2) read'2\ncalls=3 0\n0 30\nfn=(3) read\n0 1\nfn=(2)\n0 30\n";
        assert_eq!(function_names(text), ["serve", "read"]);
    }

    #[test]
    fn memory_is_counted_where_it_is_asked_for() {
        let counts = CallgrindCounts::parse(
            "fn=(1) serve\ncfn=(2) mi_malloc_aligned\ncalls=3 0\n0 30\nfn=(2)\n0 18\n\
             cfn=(3) mi_malloc\ncalls=3 0\n0 9\nfn=(1)\ncfn=(4) __memcpy_avx_unaligned_erms\n\
             calls=2 0\n0 1\ncfn=(5) mi_free\ncalls=3 0\n0 1\n",
        );
        assert_eq!((counts.allocations(), counts.copies), (3, 2));
        // Six instructions each; the calls of a collected part are not told.
        let collected = CallgrindCounts::parse("fn=(2) mi_malloc_aligned\n0 12\n");
        let inside = collected.collected_allocations(&counts.allocation_costs());
        assert!((inside - 2.0).abs() < 1e-9, "{inside}");
    }

    #[test]
    fn a_function_that_calls_itself_counts_once() {
        let counts = CallgrindCounts::parse("fn=(1) walk\n0 5\ncfn=(2) walk'2\ncalls=1 0\n0 9\n");
        assert_eq!(counts.inclusive("walk"), 5);
    }

    #[test]
    fn names_keep_their_outermost_types() {
        assert_eq!(short("<a::B<c::D<E>, F> as G>::poll"), "<a::B<…> as G>::poll");
        assert_eq!(short("drop<fn() -> u8>"), "drop<fn() -> u8>");
        assert_eq!(short(&"x".repeat(300)).chars().count(), MAX_NAME_CHARS + 1);
    }
}

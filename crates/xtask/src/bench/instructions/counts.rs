//! Files of callgrind: instructions by function, and how often allocator and copies were called
//! (<https://valgrind.org/docs/manual/cl-format.html>).

use std::collections::{BTreeMap, HashMap};
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
    /// Calls of the allocator for memory, releases not included.
    pub(super) allocations: u64,
    /// Calls of `memcpy` and `memmove`.
    pub(super) copies: u64,
}

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
        if ALLOCATORS.contains(&callee) && !is_allocator(caller) && !ALLOCATORS.contains(&caller) {
            self.allocations += calls;
        }
        let bare = callee.trim_start_matches('_');
        if bare.starts_with("memcpy") || bare.starts_with("memmove") {
            self.copies += calls;
        }
    }
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
    fn memory_is_counted_where_it_is_asked_for() {
        let counts = CallgrindCounts::parse(
            "fn=(1) serve\ncfn=(2) mi_malloc_aligned\ncalls=3 0\n0 30\nfn=(2)\ncfn=(3) mi_malloc\n\
             calls=3 0\n0 9\nfn=(1)\ncfn=(4) __memcpy_avx_unaligned_erms\ncalls=2 0\n0 1\n\
             cfn=(5) mi_free\ncalls=3 0\n0 1\n",
        );
        assert_eq!((counts.allocations, counts.copies), (3, 2));
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

//! Circles of modules inside a crate: groups in which every module needs every other one.
//!
//! A circle has to be understood as a whole, so its size is what a newcomer reads before the first
//! change. The graph has one node per file. A name that a module re-exports counts for the file
//! that defines it, and a re-export alone is no edge.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::finding::Finding;
use super::imports::{self, FilePaths, Segments};
use super::limits::LIMITS;
use crate::workspace::Source;

/// Longest chain of re-exports that is followed.
const MAX_REEXPORT_HOPS: usize = 8;

/// Reports every circle in product code with more modules than the limit.
pub(super) fn check(files: &[Source]) -> Vec<Finding> {
    too_large(circles(files), LIMITS.modules_in_a_circle)
}

fn too_large(circles: Vec<Vec<String>>, limit: usize) -> Vec<Finding> {
    let large = circles.into_iter().filter(|circle| circle.len() > limit);
    large
        .filter_map(|circle| {
            let (first, others) = circle.split_first()?;
            let rule = format!(
                "{} modules import each other in a circle, at most {limit}: this one, {}",
                circle.len(),
                others.join(", ")
            );
            Some(Finding::new(first, 1, rule))
        })
        .collect()
}

/// The circles of all crates, each as the paths of its files, the largest circle first.
pub(super) fn circles(files: &[Source]) -> Vec<Vec<String>> {
    let mut crates: BTreeMap<&str, Vec<&Source>> = BTreeMap::new();
    for source in files {
        if let Some((name, _)) = in_crate(&source.path) {
            crates.entry(name).or_default().push(source);
        }
    }
    let mut found: Vec<_> = crates.values().flat_map(|files| of_crate(files)).collect();
    found.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
    found
}

/// The crate's name and the file's path under `src`, without `.rs`.
fn in_crate(path: &str) -> Option<(&str, &str)> {
    let (name, rest) = path.strip_prefix("crates/")?.split_once('/')?;
    Some((name, rest.strip_prefix("src/")?.strip_suffix(".rs")?))
}

fn of_crate(sources: &[&Source]) -> Vec<Vec<String>> {
    let has_lib = sources.iter().any(|source| source.path.ends_with("/src/lib.rs"));
    let mut modules = Modules::default();
    for source in sources {
        let Some((_, file)) = in_crate(&source.path) else { continue };
        // A `main.rs` beside a `lib.rs` is a crate of its own.
        let module: Segments = match file {
            "lib" => Vec::new(),
            "main" if has_lib => continue,
            "main" => Vec::new(),
            _ => file.trim_end_matches("/mod").split('/').map(str::to_owned).collect(),
        };
        let paths = imports::read(&source.text);
        modules.0.insert(module, (source.path.clone(), paths));
    }
    let edges = modules.edges();
    let groups = strongly_connected(&edges);
    let path_of = |module: &Segments| modules.0.get(module).map(|(path, _)| path.clone());
    groups
        .into_iter()
        .filter(|group| group.len() > 1)
        .map(|group| {
            let paths: BTreeSet<_> = group.iter().filter_map(path_of).collect();
            paths.into_iter().collect()
        })
        .collect()
}

/// The files of one crate by their module path.
#[derive(Default)]
struct Modules(BTreeMap<Segments, (String, FilePaths)>);

impl Modules {
    fn edges(&self) -> BTreeMap<Segments, BTreeSet<Segments>> {
        let targets = |module: &Segments, paths: &FilePaths| {
            let used = paths.used.iter().filter_map(|scoped| {
                let scope: Segments = module.iter().chain(&scoped.inside).cloned().collect();
                self.file_of(&self.absolute(&scope, &scoped.path)?, 0)
            });
            used.filter(|target| target != module).collect()
        };
        self.0.iter().map(|(module, (_, paths))| (module.clone(), targets(module, paths))).collect()
    }

    /// The path from the root of the crate; `None` for other crates and local names.
    fn absolute(&self, scope: &[String], path: &[String]) -> Option<Segments> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => Some(rest.to_vec()),
            "self" => Some([scope, rest].concat()),
            "super" => {
                let ups = path.iter().take_while(|segment| *segment == "super").count();
                let kept = scope.get(..scope.len().checked_sub(ups)?)?;
                Some([kept, path.get(ups..)?].concat())
            }
            _ => {
                let child = [scope, std::slice::from_ref(first)].concat();
                self.0.contains_key(&child).then(|| [scope, path].concat())
            }
        }
    }

    /// The file that defines what the absolute path names.
    fn file_of(&self, path: &[String], hops: usize) -> Option<Segments> {
        let (module, paths, rest) = (0..=path.len()).rev().find_map(|length| {
            let (module, rest) = path.split_at_checked(length)?;
            let (_, paths) = self.0.get(module)?;
            Some((module, paths, rest))
        })?;
        let Some(name) = rest.first().filter(|_| hops < MAX_REEXPORT_HOPS) else {
            return Some(module.to_vec());
        };
        let named = paths.handed_on.iter().find(|import| import.name == *name);
        if let Some(import) = named {
            let target = self.absolute(module, &import.path)?;
            return if target == path {
                Some(module.to_vec())
            } else {
                self.file_of(&target, hops + 1)
            };
        }
        if !paths.defined.contains(name) {
            for glob in paths.handed_on.iter().filter(|import| import.name == "*") {
                let behind = glob.path.split_last().map_or(&[][..], |(_, behind)| behind);
                let Some(target) = self.absolute(module, behind) else { continue };
                let defines = |(_, paths): &(String, FilePaths)| paths.defined.contains(name);
                if self.0.get(&target).is_some_and(defines) {
                    return Some(target);
                }
            }
        }
        Some(module.to_vec())
    }
}

/// Strongly connected components, by Tarjan's algorithm
/// (<https://doi.org/10.1137/0201010>).
fn strongly_connected(edges: &BTreeMap<Segments, BTreeSet<Segments>>) -> Vec<Vec<Segments>> {
    let mut search =
        Search { edges, visited: HashMap::new(), stack: Vec::new(), found: Vec::new() };
    for node in edges.keys() {
        if !search.visited.contains_key(node) {
            search.visit(node);
        }
    }
    search.found
}

struct Search<'a> {
    edges: &'a BTreeMap<Segments, BTreeSet<Segments>>,
    /// Order of the first visit, by node.
    visited: HashMap<&'a Segments, usize>,
    stack: Vec<&'a Segments>,
    found: Vec<Vec<Segments>>,
}

impl<'a> Search<'a> {
    /// Returns the earliest node on the stack that this one reaches.
    fn visit(&mut self, node: &'a Segments) -> usize {
        let index = self.visited.len();
        self.visited.insert(node, index);
        self.stack.push(node);
        let mut low = index;
        for target in self.edges.get(node).into_iter().flatten() {
            match self.visited.get(target).copied() {
                None => low = low.min(self.visit(target)),
                Some(seen) if self.stack.contains(&target) => low = low.min(seen),
                Some(_) => {}
            }
        }
        if low == index {
            let from = self.stack.iter().position(|on| *on == node).unwrap_or_default();
            let group = self.stack.split_off(from);
            self.found.push(group.into_iter().cloned().collect());
        }
        low
    }
}

#[cfg(test)]
mod tests {
    use super::super::code::product_files;
    use super::*;

    fn circles_of(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let sources: Vec<_> = files
            .iter()
            .map(|(path, text)| Source {
                path: format!("crates/a/src/{path}"),
                text: (*text).into(),
            })
            .collect();
        let short = |path: String| path.replace("crates/a/src/", "");
        circles(&product_files(&sources))
            .into_iter()
            .map(|c| c.into_iter().map(short).collect())
            .collect()
    }

    #[test]
    fn modules_that_need_each_other_are_a_circle() {
        let files = [
            ("lib.rs", "mod b; mod c; mod d;"),
            ("b.rs", "use crate::c::C;"),
            ("c.rs", "fn c() { super::d::d() }"),
            ("d.rs", "use super::{b::B};"),
            ("e.rs", "use crate::b::B;"),
        ];
        assert_eq!(circles_of(&files), [["b.rs", "c.rs", "d.rs"]]);
    }

    #[test]
    fn a_re_exported_name_counts_for_the_file_that_defines_it() {
        let files = [
            ("lib.rs", "mod b; mod c; pub use b::B; pub use c::*;"),
            ("b.rs", "pub struct B; fn b() { crate::c(); }"),
            ("c.rs", "use crate::B; pub fn c() {}"),
        ];
        assert_eq!(circles_of(&files), [["b.rs", "c.rs"]]);
    }

    #[test]
    fn a_parent_that_only_hands_names_on_needs_nothing() {
        let files = [
            ("lib.rs", "mod b; pub use b::B; pub struct Root;"),
            ("b.rs", "use crate::Root; pub struct B;"),
        ];
        assert_eq!(circles_of(&files), [[""; 0]; 0]);
    }

    #[test]
    fn a_parent_that_calls_its_child_needs_it() {
        let files = [
            ("b/mod.rs", "mod c; fn go() { c::go() } pub fn help() {}"),
            ("b/c.rs", "use super::help;"),
        ];
        assert_eq!(circles_of(&files), [["b/c.rs", "b/mod.rs"]]);
    }

    #[test]
    fn tests_are_no_part_of_a_circle() {
        let files = [
            ("b.rs", "use crate::c::C;"),
            ("c.rs", "#[cfg(test)]\nmod tests { use crate::b::B; }"),
        ];
        assert_eq!(circles_of(&files), [[""; 0]; 0]);
    }

    #[test]
    fn only_a_circle_above_the_limit_is_reported() {
        let circle: Vec<String> = ["a.rs", "b.rs", "c.rs"].map(str::to_owned).to_vec();
        assert_eq!(too_large(vec![circle.clone()], 3), []);
        let told = too_large(vec![circle], 2)[0].to_string();
        assert_eq!(
            told,
            "a.rs:1: 3 modules import each other in a circle, at most 2: this one, b.rs, c.rs"
        );
    }
}

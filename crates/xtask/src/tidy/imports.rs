//! Paths that a Rust file names: its `use` trees and the paths in its code.

use super::code::is_name;

/// A path, segment by segment.
pub(super) type Segments = Vec<String>;

/// Everything one file names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FilePaths {
    /// Imports of this file and paths in its code, each with the inline modules around it.
    pub(super) used: Vec<ScopedPath>,
    /// Public re-exports. The file hands these names on; that alone is no use of them.
    pub(super) handed_on: Vec<Import>,
    /// Names of the types, functions, constants and macros that the file defines.
    pub(super) defined: Vec<String>,
}

/// A path and the inline modules (`mod a { … }`) around it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ScopedPath {
    pub(super) inside: Segments,
    pub(super) path: Segments,
}

/// One leaf of a `use` tree: the local name (`*` for a glob) and the path it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Import {
    pub(super) name: String,
    pub(super) path: Segments,
}

/// Reads code that [`super::code::product_code`] has prepared.
pub(super) fn read(code: &str) -> FilePaths {
    let tokens = tokens(code);
    let mut paths = FilePaths::default();
    let mut imports: Vec<Import> = Vec::new();
    // Brace depth at which each open inline module began.
    let mut inline: Vec<(String, usize)> = Vec::new();
    let mut depth = 0_usize;
    let mut is_public = false;
    let mut next = 0;
    let at = |index: usize| tokens.get(index).copied().unwrap_or_default();
    while next < tokens.len() {
        let inside = || inline.iter().map(|(name, _)| name.clone()).collect::<Segments>();
        match at(next) {
            "pub" => {
                is_public = true;
                next += 1;
                if at(next) == "(" {
                    next = (next..tokens.len()).find(|index| at(*index) == ")").unwrap_or(next) + 1;
                }
                continue;
            }
            "use" => {
                let end = (next..tokens.len()).find(|index| at(*index) == ";");
                let end = end.unwrap_or(tokens.len());
                let tree = tokens.get(next + 1..end).unwrap_or_default();
                let mut leaves = Vec::new();
                use_tree(&[], tree, &mut leaves);
                if is_public {
                    paths.handed_on.extend(leaves);
                } else {
                    let scoped =
                        |leaf: &Import| ScopedPath { inside: inside(), path: leaf.path.clone() };
                    paths.used.extend(leaves.iter().map(scoped));
                    imports.extend(leaves);
                }
                next = end;
            }
            "mod" if at(next + 2) == "{" => inline.push((at(next + 1).to_owned(), depth)),
            "struct" | "enum" | "trait" | "union" | "type" | "fn" | "const" | "static"
                if is_identifier(at(next + 1)) && at(next + 1) != "fn" =>
            {
                paths.defined.push(at(next + 1).to_owned());
            }
            "{" => depth += 1,
            "}" => {
                depth = depth.saturating_sub(1);
                if inline.last().is_some_and(|(_, began)| *began == depth) {
                    inline.pop();
                }
            }
            word if is_identifier(word) && at(next + 1) == "::" => {
                let mut path = vec![word.to_owned()];
                while at(next + 1) == "::" && is_identifier(at(next + 2)) {
                    path.push(at(next + 2).to_owned());
                    next += 2;
                }
                // A path that begins with an imported name stands for the imported path.
                let first = imports.iter().find(|import| import.name == word);
                if let Some(import) = first {
                    path.splice(..1, import.path.iter().cloned());
                }
                paths.used.push(ScopedPath { inside: inside(), path });
            }
            _ => {}
        }
        is_public = false;
        next += 1;
    }
    paths
}

/// Collects the leaves of the tree behind `use`.
fn use_tree(prefix: &[String], tree: &[&str], leaves: &mut Vec<Import>) {
    let open = tree.iter().position(|token| *token == "{");
    let Some(open) = open else {
        let alias = tree.iter().position(|token| *token == "as");
        let (path, alias) = match alias {
            Some(at) => (tree.get(..at).unwrap_or_default(), tree.get(at + 1)),
            None => (tree, None),
        };
        let mut full = prefix.to_vec();
        full.extend(path.iter().filter(|t| **t != "::").map(|t| (*t).to_owned()));
        if full.last().is_some_and(|last| last == "self") && full.len() > 1 {
            full.pop();
        }
        if let Some(last) = full.last() {
            let name = alias.map_or_else(|| last.clone(), |alias| (*alias).to_owned());
            leaves.push(Import { name, path: full });
        }
        return;
    };
    let mut prefix = prefix.to_vec();
    let head = tree.get(..open).unwrap_or_default();
    prefix.extend(head.iter().filter(|t| **t != "::").map(|t| (*t).to_owned()));
    let close = tree.iter().rposition(|token| *token == "}").unwrap_or(tree.len());
    let mut depth = 0_usize;
    let branches = tree.get(open + 1..close).unwrap_or_default().split(|token| {
        match *token {
            "{" => depth += 1,
            "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        *token == "," && depth == 0
    });
    for branch in branches.filter(|branch| !branch.is_empty()) {
        use_tree(&prefix, branch, leaves);
    }
}

/// Names, `::` and single punctuation characters.
fn tokens(code: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = if is_name(first) {
            rest.find(|c| !is_name(c)).unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            first.len_utf8()
        };
        let (token, after) = rest.split_at(length);
        tokens.push(token);
        rest = after.trim_start();
    }
    tokens
}

fn is_identifier(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(code: &str) -> Vec<String> {
        read(code).used.into_iter().map(|scoped| scoped.path.join("::")).collect()
    }

    #[test]
    fn a_use_tree_names_every_leaf() {
        let code = "use crate::{a::{self, B}, c::*, d as e};\nuse std::fmt;";
        assert_eq!(used(code), ["crate::a", "crate::a::B", "crate::c::*", "crate::d", "std::fmt"]);
    }

    #[test]
    fn a_re_export_is_handed_on_and_not_used() {
        let paths = read("pub use a::B as C;\npub(crate) use d::E;");
        assert_eq!(paths.used, []);
        let names: Vec<_> = paths.handed_on.iter().map(|import| import.name.as_str()).collect();
        assert_eq!(names, ["C", "E"]);
    }

    #[test]
    fn paths_in_code_are_used_and_imported_names_are_spelt_out() {
        let code = "use crate::flow::send;\nfn a() { send::now(); super::b(); crate::c::D::new() }";
        let want = ["crate::flow::send", "crate::flow::send::now", "super::b", "crate::c::D::new"];
        assert_eq!(used(code), want);
    }

    #[test]
    fn inline_modules_stand_around_their_paths() {
        let paths = read("mod a { mod b { use super::C; } use d::E; } use f::G;");
        let inside: Vec<_> = paths.used.iter().map(|scoped| scoped.inside.join("::")).collect();
        assert_eq!(inside, ["a::b", "a", ""]);
    }

    #[test]
    fn definitions_are_listed() {
        let paths = read("pub struct A;\nfn b() {}\npub const fn c() {}\nconst D: u8 = 1;");
        assert_eq!(paths.defined, ["A", "b", "c", "D"].map(str::to_owned).to_vec());
    }
}

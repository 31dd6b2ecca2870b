//! Relative links and images in documents must exist, and so must the headings that they name.

use std::fs;
use std::path::Path;

use super::finding::Finding;
use crate::workspace::Source;

/// Reports relative targets that do not exist.
pub(super) fn broken(source: &Source, root: &Path) -> Vec<Finding> {
    let folder = root.join(&source.path);
    let folder = folder.parent().unwrap_or(root);
    let mut findings = Vec::new();
    let mut in_code = false;
    for (line, text) in (1..).zip(source.text.lines()) {
        if text.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        for target in targets(text) {
            let path = local(target);
            if path.is_some_and(|path| !folder.join(path).exists()) {
                let rule = format!("link to `{target}`, which does not exist");
                findings.push(Finding::new(&source.path, line, rule));
            } else if lacks_heading(source, folder, target) {
                let rule = format!("link to `{target}`, but there is no such heading");
                findings.push(Finding::new(&source.path, line, rule));
            }
        }
    }
    findings
}

/// Returns the link targets of a line, in Markdown (`](…)`) and in HTML (`src="…"`, `href="…"`).
fn targets(line: &str) -> Vec<&str> {
    let marks = [("](", ')'), ("src=\"", '"'), ("href=\"", '"')];
    let mut found = Vec::new();
    for (open, close) in marks {
        for rest in line.split(open).skip(1) {
            if let Some((target, _)) = rest.split_once(close) {
                // A Markdown title may follow the URL.
                found.extend(target.split_whitespace().next());
            }
        }
    }
    found
}

/// Returns the path of a target inside the project; `None` for another site or a heading on the
/// page.
fn local(target: &str) -> Option<&str> {
    let elsewhere = target.contains("://") || target.starts_with("mailto:");
    let path = target.split('#').next().unwrap_or(target);
    (!elsewhere && !path.is_empty() && !path.starts_with('/')).then_some(path)
}

/// Returns true if the target is a heading of a document of the project that has none of that name.
fn lacks_heading(source: &Source, folder: &Path, target: &str) -> bool {
    let Some((path, name)) = target.split_once('#') else { return false };
    if path.is_empty() {
        return source.path.ends_with(".md") && !has_heading(&source.text, name);
    }
    let is_document = path.ends_with(".md") && local(target).is_some();
    is_document && fs::read_to_string(folder.join(path)).is_ok_and(|text| !has_heading(&text, name))
}

/// Compares with the names that GitHub gives to headings.
fn has_heading(text: &str, name: &str) -> bool {
    let mut in_code = false;
    text.lines().any(|line| {
        in_code ^= line.trim_start().starts_with("```");
        let heading = line.trim_start_matches('#').trim();
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        let made: String = kept.flat_map(char::to_lowercase).collect();
        !in_code && line.starts_with('#') && made.replace(' ', "-") == name
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    fn broken_in(text: &str) -> Vec<usize> {
        let source = Source { path: "README.md".into(), text: text.into() };
        broken(&source, &workspace::root()).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn links_and_images_to_missing_files_are_found() {
        assert_eq!(broken_in("fine\n[a](docs/never-written.md)"), [2]);
        assert_eq!(broken_in("![a](never-drawn.png \"title\")"), [1]);
        assert_eq!(broken_in("<img src=\"never-drawn.svg\">"), [1]);
    }

    #[test]
    fn headings_that_are_missing_are_found() {
        assert_eq!(broken_in("# A `b`, c\n[a](#a-b-c)\n[b](#nowhere)"), [3]);
        assert_eq!(broken_in("[a](CONTRIBUTING.md#commits) [b](CONTRIBUTING.md#nowhere)"), [1]);
    }

    #[test]
    fn what_exists_or_lies_elsewhere_is_fine() {
        let text = "# Usage\n[a](Cargo.toml) [b](crates/xtask#tidy) [c](#usage) [d](https://example.com/x)";
        assert_eq!(broken_in(text), [0; 0]);
        assert_eq!(broken_in("```\n[a](never-written.md)\n```"), [0; 0]);
    }
}

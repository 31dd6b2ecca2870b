//! The folders of the wire formats have the same files, so that a reader of one knows them all.

use std::collections::{BTreeMap, BTreeSet};

use super::finding::Finding;

/// Folders of the wire formats.
const FORMATS: [&str; 4] = ["chat", "messages", "native", "responses"];

/// Reports files that not every format has. Tests and the folder `own` are free.
pub(super) fn check(paths: &BTreeSet<&str>) -> Vec<Finding> {
    let mut formats_by_file: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for format in FORMATS {
        let folder = format!("crates/dialects/src/{format}/");
        let files = paths.iter().filter_map(|path| path.strip_prefix(folder.as_str()));
        for file in files.filter(|file| !file.contains('/') && *file != "tests.rs") {
            formats_by_file.entry(file).or_default().push(format);
        }
    }
    let uneven = formats_by_file.iter().filter(|(_, formats)| formats.len() < FORMATS.len());
    uneven
        .map(|(file, formats)| {
            let path = format!("crates/dialects/src/{}/{file}", formats.first().unwrap_or(&""));
            let rule = format!("only {} has this file; put it into `own/`", formats.join(", "));
            Finding::new(&path, 1, rule)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_one_format_alone_is_found() {
        let mut paths: BTreeSet<String> =
            FORMATS.iter().map(|format| format!("crates/dialects/src/{format}/rules.rs")).collect();
        let found = |paths: &BTreeSet<String>| check(&paths.iter().map(String::as_str).collect());
        assert_eq!(found(&paths), []);
        paths.insert("crates/dialects/src/chat/own/audio.rs".to_owned());
        paths.insert("crates/dialects/src/native/tests.rs".to_owned());
        assert_eq!(found(&paths), []);
        paths.insert("crates/dialects/src/native/grounding.rs".to_owned());
        assert_eq!(found(&paths).len(), 1);
        paths.remove("crates/dialects/src/chat/rules.rs");
        assert_eq!(found(&paths).len(), 2);
    }
}

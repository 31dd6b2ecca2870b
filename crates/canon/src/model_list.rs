//! Lists of models that a key or an account may use.

/// Returns true if an entry of a list covers a model: it is its name, or the start of its name followed by
/// `*`.
pub fn covers_model(listed: &str, model: &str) -> bool {
    match listed.strip_suffix('*') {
        Some(start) => model.starts_with(start),
        None => listed == model,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_covers_its_name_or_what_follows_its_start() {
        for (listed, model, covers) in [
            ("a/b", "a/b", true),
            ("a/b", "a/bc", false),
            ("a/*", "a/b", true),
            ("a/*", "a/b/c", true),
            ("a/*", "ab", false),
            ("a/*", "b/a/", false),
            ("*", "anything", true),
            ("a*b", "a*b", true),
            ("a*b", "axb", false),
            ("", "", true),
            ("", "a", false),
        ] {
            assert_eq!(covers_model(listed, model), covers, "{listed} {model}");
        }
    }
}

//! Names of imported objects: those of the other gateway as far as the rules here allow.

use admin::names::{has_hidden_characters, team_name_error, username_error};
use std::collections::{BTreeMap, BTreeSet};

/// Longest names before a number is added.
const MAX_USERNAME_LETTERS: usize = 36;
const MAX_TEAM_LETTERS: usize = 54;
const MAX_LABEL_BYTES: usize = 200;

/// Names and addresses that are taken, without regard to case.
#[derive(Debug, Default)]
pub(super) struct TakenNames {
    taken: BTreeSet<String>,
    /// The number to try next behind a name.
    numbers: BTreeMap<String, u32>,
}

impl TakenNames {
    pub(super) fn take(&mut self, name: &str) {
        self.taken.insert(name.to_lowercase());
    }

    /// Takes a name. Returns false if it is taken already.
    pub(super) fn try_take(&mut self, name: &str) -> bool {
        self.taken.insert(name.to_lowercase())
    }

    /// Takes the first of these names as a username, changed as far as it must be.
    pub(super) fn username(&mut self, names: &[String], email: Option<&str>) -> String {
        let local = email.and_then(|email| email.split('@').next()).map(str::to_owned);
        let mut candidates = names.iter().cloned().chain(local).map(|name| plain_username(&name));
        let good = candidates.find(|name| username_error(name).is_none());
        self.numbered(&good.unwrap_or_else(|| "imported".to_owned()), "-")
    }

    /// Takes a name of a team, changed as far as it must be.
    pub(super) fn team_name(&mut self, name: &str) -> String {
        let visible = name.chars().filter(|letter| !has_hidden_characters(&letter.to_string()));
        let plain = visible.map(|letter| if letter == '@' { '-' } else { letter });
        let cut: String = plain.take(MAX_TEAM_LETTERS).collect();
        let cut = cut.trim();
        let good = match team_name_error(cut) {
            None => cut.to_owned(),
            Some(_) => format!("team {cut}").trim().to_owned(),
        };
        self.numbered(&good, " ")
    }

    /// Takes a name, with a number behind it if it is taken.
    fn numbered(&mut self, name: &str, separator: &str) -> String {
        if self.try_take(name) {
            return name.to_owned();
        }
        loop {
            let number = self.numbers.entry(name.to_lowercase()).or_insert(1);
            *number += 1;
            let next = format!("{name}{separator}{number}");
            if self.try_take(&next) {
                return next;
            }
        }
    }
}

/// Returns a name with only the letters of usernames.
fn plain_username(name: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    let plain = name.chars().map(|letter| if is_plain(letter) { letter } else { '-' });
    let plain: String = plain.skip_while(|letter| !letter.is_ascii_alphanumeric()).collect();
    plain.chars().take(MAX_USERNAME_LETTERS).collect::<String>().trim_end_matches('-').to_owned()
}

/// Returns a name of a key without characters that cannot be seen.
pub(super) fn clean_label(name: &str) -> String {
    let mut label = String::new();
    for letter in name.chars().filter(|letter| !has_hidden_characters(&letter.to_string())) {
        if label.len() + letter.len_utf8() > MAX_LABEL_BYTES {
            break;
        }
        label.push(letter);
    }
    let label = label.trim();
    if label.is_empty() { "imported".to_owned() } else { label.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept_changed_or_numbered() {
        let mut taken = TakenNames::default();
        taken.take("Owner");
        let mut name = |names: &[&str], email: Option<&str>| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            taken.username(&names, email)
        };
        assert_eq!(name(&["owner"], None), "owner-2");
        assert_eq!(name(&["Ada Byron"], None), "Ada-Byron");
        assert_eq!(name(&["ada@example.com"], None), "ada-example.com");
        assert_eq!(name(&["研究"], Some("lee@example.com")), "lee");
        assert_eq!(name(&["研究"], None), "imported");
        assert_eq!(name(&["研究"], None), "imported-2");
        assert_eq!(username_error(&name(&[&"x".repeat(99)], None)), None);
        for given in ["研究", "a@b", "x", "", "root", "\u{202e}evil", &"y".repeat(99)] {
            let chosen = taken.team_name(given);
            assert_eq!(team_name_error(&chosen), None, "{given:?} {chosen:?}");
        }
        assert_eq!(taken.team_name("研究"), "研究 2");
        assert_eq!(clean_label(" a\u{0}b "), "ab");
        assert_eq!(clean_label(""), "imported");
        assert!(clean_label(&"é".repeat(300)).len() <= MAX_LABEL_BYTES);
    }
}

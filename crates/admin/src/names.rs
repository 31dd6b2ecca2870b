//! Usernames and e-mail addresses: what they may look like; and what the gateway itself is called.

use store::Store;

use crate::password;

/// What is wrong with a username, if anything.
pub fn username_error(name: &str) -> Option<&'static str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.is_empty() {
        return Some("Choose a username.");
    }
    if !(2..=40).contains(&name.len()) {
        return Some("Between 2 and 40 characters, please.");
    }
    if !name.chars().all(plain) || !name.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return Some(
            "Letters, digits, dots, dashes and underscores only, a letter or digit first.",
        );
    }
    None
}

/// What is wrong with the name of a team, if anything. It has no sign that an address has, so that it
/// stands in the way of nobody's.
pub fn team_name_error(name: &str) -> Option<&'static str> {
    if !(2..=60).contains(&name.chars().count()) {
        return Some("Between 2 and 60 characters, please.");
    }
    if has_hidden_characters(name) || name.trim() != name || name.contains('@') {
        return Some("No characters that cannot be seen, and no @, please.");
    }
    is_reserved(name).then_some("This name is reserved. Choose another.")
}

/// What is wrong with the username of someone who is not the owner: names that would make others
/// believe they deal with the house are nobody's.
pub fn new_username_error(name: &str) -> Option<&'static str> {
    if is_reserved(name) {
        return Some("This name is reserved. Choose another.");
    }
    username_error(name)
}

fn is_reserved(name: &str) -> bool {
    const RESERVED: [&str; 10] = [
        "admin",
        "administrator",
        "root",
        "owner",
        "portunus",
        "security",
        "support",
        "system",
        "postmaster",
        "no-reply",
    ];
    RESERVED.contains(&name.to_ascii_lowercase().as_str())
}

/// Whether a text is one plain address: what cannot be mistaken for two, or for a header.
pub fn is_email_address(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_graphic() && !"\"(),:;<>[\\]@".contains(c);
    let Some((local, domain)) = text.split_once('@') else { return false };
    let labels: Vec<&str> = domain.split('.').collect();
    let label = |l: &&str| {
        !l.is_empty()
            && l.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
            && !l.starts_with('-')
            && !l.ends_with('-')
    };
    text.len() <= 254
        && !local.is_empty()
        && local.len() <= 64
        && local.chars().all(plain)
        && labels.len() >= 2
        && labels.iter().all(label)
}

/// What is wrong with a password that was typed twice: the field and why.
pub fn password_form_error(
    password: &str,
    again: &str,
    names: &[&str],
) -> Option<(&'static str, String)> {
    if let Some(why) = password::password_error(password, names) {
        return Some(("password", why));
    }
    let differ = "The two passwords differ. Type the same one twice.";
    (password != again).then(|| ("again", differ.to_owned()))
}

/// Whether a text holds characters that could disguise it: controls, and marks that turn the
/// direction of what follows.
pub fn has_hidden_characters(text: &str) -> bool {
    text.chars().any(|c| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
    })
}

/// What this gateway is called: a setting. Without an answer of the store, and unless somebody chose,
/// it has the name of the program.
pub async fn gateway_name(store: &Store) -> String {
    let chosen = store.setting("name").await.ok().flatten();
    chosen.unwrap_or_else(|| "Portunus".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usernames_are_plain() {
        for bad in ["", "a", "../x", "<script>", "a b", "-a", "анна", "a@b", &"a".repeat(41)] {
            assert!(username_error(bad).is_some(), "{bad}");
        }
        for good in ["owner", "Anna.B-2_x", "42"] {
            assert_eq!(username_error(good), None, "{good}");
        }
    }

    #[test]
    fn names_of_the_house_are_nobodys() {
        for bad in ["admin", "ROOT", "Portunus", "", "../x"] {
            assert!(new_username_error(bad).is_some(), "{bad}");
        }
        assert_eq!(new_username_error("anna"), None);
    }

    #[test]
    fn a_team_may_be_called_anything_that_is_seen_and_no_address() {
        for bad in ["", "x", "a@b.c", "Root", " lead", "tail ", "a\u{202e}b", &"x".repeat(61)] {
            assert!(team_name_error(bad).is_some(), "{bad:?}");
        }
        for good in ["QA", "Data platform", "Équipe 2 (nuit)", "研究"] {
            assert_eq!(team_name_error(good), None, "{good}");
        }
    }

    #[test]
    fn an_address_is_one_address() {
        let long = format!("{}@example.com", "a".repeat(65));
        for bad in [
            "a",
            "a@b",
            "@b.c",
            "a@.c",
            "a@b.c,d@e.f",
            "a@b.c\ncc:d@e.f",
            "a b@c.d",
            "a@b@c.d",
            "\"a\"@b.c",
            "a@-b.c",
            "a@b.c.",
            &long,
        ] {
            assert!(!is_email_address(bad), "{bad}");
        }
        for good in ["anna@example.com", "a+tag@mail.example.co.uk", "o'neil@example.org"] {
            assert!(is_email_address(good), "{good}");
        }
    }
}

//! Rules for usernames, team names and e-mail addresses, and the configured name of the gateway.

use store::Store;

use crate::error::AdminError;

/// Returns the rule a username breaks, if any.
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

/// Returns the first problem with the username or e-mail address of a new account.
pub(crate) fn account_names_error(username: &str, email: Option<&str>) -> Option<String> {
    if let Some(why) = username_error(username) {
        return Some(format!("the username `{username}`: {why}"));
    }
    let email = email.filter(|email| !is_email_address(email))?;
    Some(format!("`{email}` does not look like an e-mail address"))
}

/// Returns the rule a team name breaks, if any. A team name has no `@`, so it cannot be confused
/// with an e-mail address.
pub fn team_name_error(name: &str) -> Option<&'static str> {
    if !(2..=60).contains(&name.chars().count()) {
        return Some("Between 2 and 60 characters, please.");
    }
    if has_hidden_characters(name) || name.trim() != name || name.contains('@') {
        return Some("No characters that cannot be seen, and no @, please.");
    }
    is_reserved(name).then_some("This name is reserved. Choose another.")
}

/// Returns the rule the username of a new account breaks, if any. Names that suggest authority,
/// such as `admin`, are reserved.
pub fn new_username_error(name: &str) -> Option<&'static str> {
    if is_reserved(name) {
        return Some("This name is reserved. Choose another.");
    }
    username_error(name)
}

/// Returns a username made of a name or of the local part of an address, without characters that usernames
/// cannot have.
pub(crate) fn plain_username(wished: &str) -> String {
    let wished = wished.split('@').next().unwrap_or_default();
    let plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let base: String = wished.chars().filter(plain).take(30).collect();
    let base = base.trim_start_matches(['.', '_', '-']);
    if new_username_error(base).is_some() { "user".to_owned() } else { base.to_owned() }
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

/// Returns true if the text is one plain e-mail address. It rejects anything that a mail server
/// could read as two addresses or as a header. The length limits are those of RFC 5321, section
/// 4.5.3.1.
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

/// Refuses a name with characters that cannot be seen. All names that people give to objects keep
/// this rule.
pub(crate) fn require_visible(field: &'static str, name: &str) -> Result<(), AdminError> {
    if has_hidden_characters(name) {
        let message = "must not have control characters or others that cannot be seen";
        return Err(AdminError::invalid(field, message));
    }
    Ok(())
}

/// Returns true if the text contains control characters, characters without a picture, or
/// characters that change the writing direction, which could disguise it
/// (<https://trojansource.codes/>, and `Default_Ignorable_Code_Point` of
/// <https://www.unicode.org/reports/tr44/>). Variation selectors are permitted, because emoji have
/// them.
pub fn has_hidden_characters(text: &str) -> bool {
    text.chars().any(|c| {
        c.is_control()
            || matches!(
                c,
                '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
                    | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                    | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
                    | '\u{fff0}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
            )
    })
}

/// Returns the configured name of this gateway. The default is the name of the program, also if the
/// store does not answer.
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
    fn hidden_characters_are_found() {
        for bad in [
            "a\0b",
            "\u{0}",
            "a\nb",
            "\u{7f}",
            "a\u{202e}b",
            "\u{200b}",
            "\u{ad}",
            "\u{2060}",
            "\u{3164}",
            "\u{e0041}",
            "\u{feff}",
            "\u{2800}",
        ] {
            assert!(has_hidden_characters(bad), "{bad:?}");
        }
        for good in ["", "shop 2", "Équipe", "研究", "anchor \u{2693}\u{fe0f}", "नमस्ते"]
        {
            assert!(!has_hidden_characters(good), "{good}");
        }
    }

    #[test]
    fn reserved_names_are_refused() {
        for bad in ["admin", "ROOT", "Portunus", "", "../x"] {
            assert!(new_username_error(bad).is_some(), "{bad}");
        }
        assert_eq!(new_username_error("anna"), None);
    }

    #[test]
    fn team_names_are_visible_and_no_email_address() {
        for bad in ["", "x", "a@b.c", "Root", " lead", "tail ", "a\u{202e}b", &"x".repeat(61)] {
            assert!(team_name_error(bad).is_some(), "{bad:?}");
        }
        for good in ["QA", "Data platform", "Équipe 2 (nuit)", "研究"] {
            assert_eq!(team_name_error(good), None, "{good}");
        }
    }

    #[test]
    fn an_email_address_is_exactly_one() {
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

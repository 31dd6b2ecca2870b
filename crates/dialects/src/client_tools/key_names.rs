//! Names of keys in the words of three formats.

/// The words of a format for keys.
#[derive(Clone, Copy, Debug)]
pub(super) enum KeyWords {
    Messages,
    Responses,
    Native,
}

/// A key: its names in messages, responses and native, and other words for it.
type KeyRow = ([&'static str; 3], &'static [&'static str]);

/// Keys with different names. Those of messages are the names of xdotool.
const KEYS: [KeyRow; 19] = [
    (["ctrl", "CTRL", "control"], &["control_l", "control_r"]),
    (["alt", "ALT", "alt"], &["option", "alt_l", "alt_r"]),
    (["shift", "SHIFT", "shift"], &["shift_l", "shift_r"]),
    (["super", "CMD", "command"], &["meta", "win", "windows", "super_l", "super_r"]),
    (["Return", "ENTER", "enter"], &["kp_enter"]),
    (["BackSpace", "BACKSPACE", "backspace"], &[]),
    (["Escape", "ESC", "escape"], &[]),
    (["Tab", "TAB", "tab"], &[]),
    (["space", "SPACE", "space"], &[" "]),
    (["Delete", "DELETE", "delete"], &["del"]),
    (["Insert", "INSERT", "insert"], &[]),
    (["Home", "HOME", "home"], &[]),
    (["End", "END", "end"], &[]),
    (["Page_Up", "PAGEUP", "pageup"], &["prior"]),
    (["Page_Down", "PAGEDOWN", "pagedown"], &["next"]),
    (["Up", "ARROWUP", "up"], &[]),
    (["Down", "ARROWDOWN", "down"], &[]),
    (["Left", "ARROWLEFT", "left"], &[]),
    (["Right", "ARROWRIGHT", "right"], &[]),
];

/// Returns the name of a key in the words of a format. Letters, digits and keys that are not known stay as
/// they are.
pub(super) fn key_name(key: &str, words: KeyWords) -> String {
    let is_key = |(names, others): &&KeyRow| {
        names.iter().chain(others.iter()).any(|name| name.eq_ignore_ascii_case(key))
    };
    let [messages, responses, native] = match KEYS.iter().find(is_key) {
        Some((names, _)) => *names,
        None => return key.to_owned(),
    };
    let name = match words {
        KeyWords::Messages => messages,
        KeyWords::Responses => responses,
        KeyWords::Native => native,
    };
    name.to_owned()
}

/// Returns the keys of a combination such as `ctrl+s`, in the words of the responses format.
pub(super) fn split_keys(text: &str) -> Vec<String> {
    let (keys, plus) = match text.strip_suffix("++") {
        Some(keys) => (keys, Some("+")),
        None if text == "+" => ("", Some("+")),
        None => (text, None),
    };
    let keys = keys.split('+').filter(|key| !key.is_empty()).chain(plus);
    keys.map(|key| key_name(key, KeyWords::Responses)).collect()
}

/// Returns keys as one combination in the words of a format.
pub(super) fn join_keys<'a>(keys: impl Iterator<Item = &'a str>, words: KeyWords) -> String {
    keys.map(|key| key_name(key, words)).collect::<Vec<_>>().join("+")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn combinations_come_back() {
        for text in ["ctrl+s", "Return", "ctrl+shift+Page_Down", "+", "ctrl++", "F5", "a"] {
            let keys = split_keys(text);
            assert_eq!(join_keys(keys.iter().map(String::as_str), KeyWords::Messages), text);
        }
        let keys = split_keys("Control+ALT+Delete");
        assert_eq!(keys, ["CTRL", "ALT", "DELETE"]);
        let native = join_keys(keys.iter().map(String::as_str), KeyWords::Native);
        assert_eq!(native, "control+alt+delete");
    }
}

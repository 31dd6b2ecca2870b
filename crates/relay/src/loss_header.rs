//! Losses of a call as a response header.

use canon::{Losses, MAX_LOSS_NAME_CHARS};
use http::HeaderValue;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use std::borrow::Cow;

/// Bytes that would end an item of a header list or are invalid in a header.
const UNSAFE_IN_LIST: AsciiSet = CONTROLS.add(b' ').add(b',').add(b'"').add(b'%');
/// End of a name that is cut.
const ELLIPSIS: &str = "...";

/// Returns the losses as a list of names, then `and N more`; `None` without losses.
///
/// Names come from the caller, so bytes that could break the list or the header are
/// percent-encoded. Proxies refuse large headers, so the bound of a name holds for its encoding.
pub(super) fn loss_header(losses: &Losses) -> Option<HeaderValue> {
    if losses.is_empty() {
        return None;
    }
    let mut list = String::new();
    let items = losses.iter().map(|loss| list_item(&loss.path));
    for item in items.chain(losses.rest().map(|rest| Cow::Owned(rest.path))) {
        list.push_str(if list.is_empty() { "" } else { ", " });
        list.push_str(&item);
    }
    HeaderValue::try_from(list).ok()
}

fn list_item(name: &str) -> Cow<'_, str> {
    let encoded = Cow::from(utf8_percent_encode(name, &UNSAFE_IN_LIST));
    if encoded.len() <= MAX_LOSS_NAME_CHARS {
        return encoded;
    }
    let mut item = String::new();
    for character in name.chars() {
        let mut bytes = [0; 4];
        // A cut between two bytes of a character would not decode.
        let piece =
            utf8_percent_encode(character.encode_utf8(&mut bytes), &UNSAFE_IN_LIST).to_string();
        if item.len() + piece.len() + ELLIPSIS.len() > MAX_LOSS_NAME_CHARS {
            break;
        }
        item.push_str(&piece);
    }
    Cow::Owned(item + ELLIPSIS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(names: impl Iterator<Item = String>) -> Vec<String> {
        let mut losses = Losses::new();
        names.for_each(|name| losses.add(&name, "why"));
        let header = loss_header(&losses).unwrap();
        header.to_str().unwrap().split(", ").map(str::to_owned).collect()
    }

    #[test]
    fn encoded_names_are_bounded_and_decode() {
        for letter in ["\u{1f600}", "\u{fc}", " ", "%", "a"] {
            let names = (0..300).map(|number| format!("{number}{}", letter.repeat(120)));
            let items = items(names);
            assert_eq!(items.len(), 51);
            assert_eq!(items.last().unwrap(), "and 250 more");
            for item in &items {
                assert!(item.len() <= MAX_LOSS_NAME_CHARS, "{item}");
                percent_encoding::percent_decode_str(item).decode_utf8().unwrap();
            }
        }
    }

    #[test]
    fn short_names_are_whole() {
        assert_eq!(items(std::iter::once("f\u{fc}, r".to_owned())), ["f%C3%BC%2C%20r"]);
    }
}

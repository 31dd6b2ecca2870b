//! Tests of the parser, most of them against `serde_json`.

use super::*;
use crate::json;
use crate::write_json::WriteJson as _;
use canon::WorkToken;
use proptest::prelude::*;
use serde_json::Value;
use serde_json::value::RawValue;
use std::cell::Cell;
use std::collections::BTreeMap;

/// Checks that a text is read as `serde_json` reads it. Returns true if it is read at all.
fn is_read_alike(text: &str) -> bool {
    let (own, library) = (read::<Value>(text), serde_json::from_str::<Value>(text));
    let raw = read::<&RawValue>(text).map(RawValue::get);
    if let Ok(raw) = raw {
        assert_eq!(serde_json::from_str::<&RawValue>(text).map(RawValue::get).ok(), Some(raw));
    }
    match own {
        Ok(own) => assert_eq!(library.ok(), Some(own), "{text}"),
        Err(_) => return false,
    }
    true
}

#[test]
fn values_are_those_of_the_library() {
    for text in [
        r#" { "a" : [ 1 , -2 , 0.5 , 1e3 , 18446744073709551615 , -0 , 0 ] , "b" : { } } "#,
        r#"["\"\\\/\b\f\n\r\t é \u00e9\ud83d\ude00","",true,false,null,[]]"#,
        r#""0123456789abcdef0123456789abcdef0123456789abcdef\\0123456789abcdef0123456789abcdef""#,
    ] {
        assert!(is_read_alike(text), "{text}");
    }
    let parts: BTreeMap<&str, &RawValue> = read(r#"{"a": ["\ud83d"]}"#).unwrap();
    assert_eq!(parts["a"].get(), r#"["\ud83d"]"#, "half a character in a text that is not read");
}

#[test]
fn the_reserved_name_is_kept_in_the_text_of_a_reply() {
    let text = format!(r#"{{"a":{{"{}":"1"}},"b":2}}"#, canon::RESERVED_NAME);
    let parts: BTreeMap<&str, &RawValue> = read_reply(&text).unwrap();
    assert!(parts["a"].get().contains(canon::RESERVED_NAME) && parts["b"].get() == "2");
    assert!(read::<BTreeMap<&str, &RawValue>>(&text).is_err());
    assert!(read_reply::<Value>(&text).is_err() && read_reply::<Value>(parts["a"].get()).is_err());
}

#[test]
fn invalid_text_is_refused() {
    for text in [
        "",
        "{",
        "[1,]",
        "{\"a\":1,}",
        "{\"a\" 1}",
        "{1:2}",
        "01",
        "-",
        "1.",
        "+1",
        "1 2",
        "tru",
        "\"a",
        "\"\n\"",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\u+123\"",
        "\"\\ud83d\"",
        "[1}",
        "nullx",
        ".5",
        "\"\n",
    ] {
        assert!(!is_read_alike(text), "{text}");
        assert!(serde_json::from_str::<Value>(text).is_err(), "{text}");
    }
    assert!(read::<Value>(&"[".repeat(1_000)).is_err());
}

/// Counts the items that are parsed. The caller leaves at the thousandth.
struct CountedItem;

thread_local! {
    static ITEMS: Cell<usize> = const { Cell::new(0) };
    static CALLER: WorkToken = WorkToken::default();
}

impl<'de> Deserialize<'de> for CountedItem {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        ITEMS.set(ITEMS.get() + 1);
        if ITEMS.get() == 1_000 {
            CALLER.with(WorkToken::cancel);
        }
        IgnoredAny::deserialize(from).map(|_| Self)
    }
}

#[test]
fn parsing_and_writing_end_soon_after_their_caller_left() {
    let (token, many) = (CALLER.with(WorkToken::clone), 100_000);
    let list = format!("[{}]", vec!["0"; many].join(","));
    let text = "\n".repeat(many);
    let escaped = Value::from(text.as_str()).to_string();
    token.scope(|| {
        assert!(json::read::<Vec<CountedItem>>(&list).is_err());
        assert!((1_000..3_100).contains(&ITEMS.get()), "{} items", ITEMS.get());
        assert!(read::<String>(&escaped).is_err());
        assert!(read::<&RawValue>(&escaped).is_err());
        // An invalid text is not read again for the position of its error.
        let error = json::read::<bool>(&list).unwrap_err().to_string();
        assert!(error.contains("caller has left"), "{error}");
        let mut out = Vec::new();
        json::write_string(&text, &mut out);
        vec![text.as_str(); 1_000].write_json(&mut out);
        assert!(out.len() < 1_000, "{} bytes", out.len());
    });
    assert_eq!(json::read::<Vec<CountedItem>>(&list).unwrap().len(), many, "another caller");
}

proptest! {
    #[test]
    fn nothing_is_read_in_another_way(
        pieces in prop::collection::vec(
            prop_oneof![
                Just("{"), Just("}"), Just("["), Just("]"), Just(","), Just(":"), Just("\""),
                Just("\\"), Just("\\n"), Just("\\u00e9"), Just("\\ud83d"), Just("\\ude00"),
                Just("\"key\""), Just("\"a\":"), Just("true"), Just("null"), Just("1"),
                Just("-"), Just("0"), Just(".5"), Just("e9"), Just(" "), Just("\t"), Just("é"),
                Just("a plain text of more than sixteen bytes, and of more than thirty-two"),
            ],
            0..12,
        ),
        text in any::<String>(),
    ) {
        is_read_alike(&pieces.concat());
        prop_assert!(is_read_alike(&Value::from(text.as_str()).to_string()));
        let object = serde_json::json!({text.as_str(): [text, 1.5]}).to_string();
        prop_assert!(is_read_alike(&object));
    }
}

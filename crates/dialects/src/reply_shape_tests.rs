//! Tests of the shapes of replies.

use super::*;

const ITEM: ObjectShape = ObjectShape::flat(&[("index", DefaultValue::Position)]);
static SHAPE: ObjectShape = ObjectShape {
    fields: &[
        ("model", DefaultValue::SelectedModel),
        ("object", DefaultValue::Json("\"reply\"")),
        ("id", DefaultValue::Id("r-")),
    ],
    inside: &[("list", &ITEM), ("one", &ITEM)],
    find_texts: None,
};

/// A field that is written if it is missing, and completed if it is there.
static NESTED: ObjectShape = ObjectShape {
    fields: &[("list", DefaultValue::Json("[]"))],
    inside: &[("list", &ITEM)],
    find_texts: None,
};

#[test]
fn an_empty_object_in_a_required_list_is_completed_in_its_place() {
    let stamp = ReplyStamp { id: "s".to_owned(), created: 0 };
    for (body, expected) in [
        (r#"{"list":[{}],"x":{"a":1}}"#, r#"{"list":[{"index":0}],"x":{"a":1}}"#),
        (
            r#"{"list":[{},{"b":{}},{}],"y":"{}"}"#,
            r#"{"list":[{"index":0},{"index":1,"b":{}},{"index":2}],"y":"{}"}"#,
        ),
        (r#"{"y":"{}"}"#, r#"{"list":[],"y":"{}"}"#),
    ] {
        let out = complete(&Bytes::from(body), &NESTED, "mine", &stamp);
        assert_eq!(String::from_utf8(out.to_vec()).unwrap(), expected);
    }
}

#[test]
fn noted_replies_are_edited_like_any_other() {
    static LISTED: ObjectShape = ObjectShape {
        fields: &[("model", DefaultValue::SelectedModel), ("object", DefaultValue::Json("1"))],
        inside: &[("list", &ITEM)],
        find_texts: None,
    };
    let stamp = ReplyStamp { id: "s".to_owned(), created: 0 };
    for model in ["mine", "", "a \"b\"", "\u{fc}", "a\nb"] {
        for body in [
            r#"{"model":"theirs","object":2,"list":[]}"#,
            r#"{"model":"mine","object":2,"list":[{"index":1,"x":"a"}]}"#,
            r#"{"model":"a \"b\"","object":2,"list":[]}"#,
            r#"{"model":null,"object":2,"list":[]}"#,
            r#"{"object":2,"list":[{}]}"#,
            r#"{"list":[{}],"model":"x"}"#,
        ] {
            let body = Bytes::from(body);
            let expected = complete(&body, &LISTED, model, &stamp);
            let noted = complete_noted(&body, &LISTED, model, &stamp, |_| Some(()));
            assert_eq!(noted.unwrap().1, expected, "{model}");
        }
    }
}

fn completed(body: &'static str) -> String {
    let stamp = ReplyStamp { id: "s".to_owned(), created: 0 };
    let out = complete(&Bytes::from(body), &SHAPE, "mine", &stamp);
    String::from_utf8(out.to_vec()).unwrap()
}

#[test]
fn only_missing_fields_and_the_model_change() {
    for (body, expected) in [
        (
            r#"{ "object":"own","model": "theirs","id":"x", "other":1.0}"#,
            r#"{ "object":"own","model": "mine","id":"x", "other":1.0}"#,
        ),
        ("{}", r#"{"model":"mine","object":"reply","id":"r-s"}"#),
        (
            r#"{"id":null,"object":"o","model":"mine","list":[{},{"index":7},{"a":1}],"one":{}}"#,
            r#"{"id":"r-s","object":"o","model":"mine","list":[{"index":0},{"index":7},{"index":2,"a":1}],"one":{"index":0}}"#,
        ),
        ("not json", "not json"),
        ("[1]", "[1]"),
    ] {
        assert_eq!(completed(body), expected);
    }
}

#[test]
fn texts_about_the_call_lose_secrets_and_stay_else() {
    static ABOUT: ObjectShape = ObjectShape::flat(&[
        ("why", DefaultValue::Scrubbed(None)),
        ("more", DefaultValue::Scrubbed(Some("null"))),
    ]);
    let stamp = ReplyStamp { id: "s".to_owned(), created: 0 };
    for (body, expected) in [
        (
            r#"{"why":"by  sk-abc1","more":{"a":[1,"at 10.0.0.7"]}}"#,
            r#"{"why":"by [hidden]","more":{"a":[1,"at [hidden]"]}}"#,
        ),
        (r#"{"why":"two  spaces","more":{ "a":1 }}"#, r#"{"why":"two  spaces","more":{ "a":1 }}"#),
        (r#"{"why":null,"x":"sk-abc1"}"#, r#"{"more":null,"why":null,"x":"sk-abc1"}"#),
    ] {
        let out = complete(&Bytes::from(body), &ABOUT, "mine", &stamp);
        assert_eq!(String::from_utf8(out.to_vec()).unwrap(), expected);
    }
}

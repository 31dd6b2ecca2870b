//! Tests of descriptions on a small example.

use canon::WireFormat;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

use super::*;
use crate::wire_rule::{between, join_path, one_of};

wire_object! {
    struct SampleObject<'a>("a sample object", camel_case) {
        /// A required word.
        word required: BorrowedText<'a> where one_of(&["a", "b"]),
        number "theNumber": f64 where between(0.0, 1.0),
        own kept: bool,
        inner: Box<SampleUnion<'a>>,
    }
}

wire_union! {
    enum SampleUnion<'a>("an object with a `kind`") by "kind" default "one" {
        One(SampleObject<'a>) = "one",
    }
}

fn refused(text: &str) -> (String, String) {
    let error = json::parse::<SampleObject<'_>>(text).unwrap_err();
    (error.param().unwrap_or_default().to_owned(), error.message().to_owned())
}

#[test]
fn a_violated_rule_names_its_path() {
    for (body, path) in [
        ("{}", "word"),
        (r#"{"word":"c"}"#, "word"),
        (r#"{"word":5}"#, "word"),
        (r#"{"word":"a","word":"b"}"#, "word"),
        (r#"{"word":"a","theNumber":2}"#, "theNumber"),
        (r#"{"word":"a","the_number":2}"#, "the_number"),
        (r#"{"word":"a","own":1}"#, "own"),
        (r#"{"word":"a","inner":{"kind":"one","word":"c"}}"#, "inner.word"),
        (r#"{"word":"a","inner":{"word":"c","kind":"one"}}"#, "inner.word"),
        (r#"{"word":"a","inner":{"inner":{"word":5},"kind":"one"}}"#, "inner.inner.word"),
        (r#"{"word":"a","inner":{"word":"c"}}"#, "inner.word"),
        (r#"{"word":"a","inner":{"kind":5}}"#, "inner.kind"),
        // The provider may take the last one.
        (r#"{"word":"a","inner":{"kind":"one","word":"a","kind":"two"}}"#, "inner.kind"),
        (r#"{"word":"a","inner":{"kind":"two","\u006bind":"one"}}"#, "inner.kind"),
        ("[]", ""),
    ] {
        let (found, message) = refused(body);
        assert_eq!(found, path, "{body}: {message}");
        assert!(!message.contains('\u{1}') && !message.contains("Sample"), "{message}");
    }
}

#[test]
fn other_fields_are_kept_as_they_were_sent() {
    let text = r#"{"z":1.0,"word":"a","own":true,"nothing":null,"z":{ "y":[] }}"#;
    let view: SampleObject<'_> = json::parse(text).unwrap();
    assert_eq!(view.own, Some(true));
    let rest = Value::Object(view.rest.to_map()).to_string();
    assert_eq!(rest, r#"{"z":{"y":[]},"own":true}"#, "of two fields, the last counts");
    let mut rest = view.rest;
    assert_eq!(rest.take("z").map(RawValue::get), Some(r#"{ "y":[] }"#));
    assert!(rest.get("z").is_none());
    let unknown: SampleUnion<'_> = json::parse(r#"{"b":1,"kind":"other","a":[2]}"#).unwrap();
    let usual: SampleUnion<'_> = json::parse(r#"{"word":"b"}"#).unwrap();
    assert!(matches!(&usual, SampleUnion::One(own) if own.word.as_deref() == Some("b")));
    let SampleUnion::Unknown(fields) = unknown else { panic!("{unknown:?}") };
    assert_eq!(fields.to_value().to_string(), r#"{"b":1,"kind":"other","a":[2]}"#);
}

#[test]
fn a_reply_with_half_a_character_or_a_huge_number_is_carried() {
    let text = r#"{"word":"a","z":{"page":"cut \ud83d"},"y":1e400}"#;
    let view: SampleObject<'_> = json::read(text).unwrap();
    let rest = Value::Object(view.rest.to_map()).to_string();
    assert_eq!(rest, "{\"z\":{\"page\":\"cut \u{fffd}\"},\"y\":\"1e400\"}");
}

/// A number that no value can hold would turn the part around it into something else.
#[test]
fn numbers_that_no_value_can_hold_are_refused_by_their_path() {
    let turn = r#"{"role":"user","content":"x"}"#;
    let schema = r#"{"type":"object","properties":{"a":{"maximum":1e400}}}"#;
    let rows = [
        (
            WireFormat::Chat,
            format!(
                r#""messages":[{turn}],"tools":[{{"type":"function","function":{{"name":"f","parameters":{schema}}}}}]"#
            ),
            "tools[0].function.parameters.properties.a.maximum",
        ),
        (
            WireFormat::Messages,
            format!(
                r#""max_tokens":5,"messages":[{turn}],"tools":[{{"name":"f","input_schema":{schema}}}]"#
            ),
            "tools[0].input_schema.properties.a.maximum",
        ),
        (
            WireFormat::Responses,
            format!(
                r#""input":"x","tools":[{{"type":"function","name":"f","parameters":{schema}}}]"#
            ),
            "tools[0].parameters.properties.a.maximum",
        ),
        (
            WireFormat::Native,
            format!(
                r#""contents":[{{"parts":[{{"text":"x"}}]}}],"tools":[{{"functionDeclarations":[{{"name":"f","parametersJsonSchema":{schema}}}]}}]"#
            ),
            "tools[0].functionDeclarations[0].parametersJsonSchema.properties.a.maximum",
        ),
    ];
    let model = Some("m".to_owned());
    let target = crate::RequestTarget { model, ..crate::RequestTarget::default() };
    for (format, body, path) in rows {
        let dialect = crate::get(format).unwrap();
        let read = |body: &str| dialect.read_facts(&target, body.as_bytes()).map(|_| ());
        let body = format!(r#"{{"model":"m",{body}}}"#);
        let fine = body.replace("1e400", "1e300");
        assert_eq!(read(&fine), Ok(()), "{fine}");
        // Half a character before it hides nothing.
        let half = fine.replacen('{', r#"{"note":"\ud83d","own":[-1e999],"#, 1);
        let typed = fine.replacen('{', r#"{"temperature":1e400,"#, 1);
        for (body, path) in [(body, path), (half, "own[0]"), (typed, "temperature")] {
            let error = read(&body).unwrap_err();
            assert_eq!(error.param(), Some(path), "{body}");
            let message = format!("`{path}` is a number that is out of range");
            assert_eq!(error.message(), message);
        }
    }
}

/// Adds the paths of all fields below a value, without the positions in lists.
fn add_paths(value: &Value, here: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = join_path(here, name);
                add_paths(value, &path, found);
                found.insert(path);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| add_paths(item, here, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Lists the described fields that no sample has.
fn unused_fields(fields: &[FieldSpec], here: &str, samples: &BTreeSet<String>) -> Vec<String> {
    let of_field = |field: &FieldSpec| {
        let path = join_path(here, field.name);
        let inside = unused_fields(field.inside, &path, samples);
        let own = (!samples.contains(&path)).then_some(path);
        own.into_iter().chain(inside).collect::<Vec<_>>()
    };
    fields.iter().flat_map(of_field).collect()
}

/// Fields that no sample can have: objects at a provider, which another provider cannot know, and
/// names that are never written.
fn other_fields(format: WireFormat) -> &'static [&'static str] {
    match format {
        WireFormat::Responses => &["conversation", "prompt"],
        WireFormat::Messages => &["output_format", "thread"],
        WireFormat::Native => &["model"],
        WireFormat::Chat => &["top_k"],
        WireFormat::Images => &[],
    }
}

#[test]
fn the_sample_requests_have_every_described_field() {
    for format in WireFormat::ALL {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
        let mut samples = BTreeSet::new();
        for entry in std::fs::read_dir(folder.join(format.to_string())).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.to_string_lossy().ends_with(".request.json") {
                let body = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
                add_paths(&body, "", &mut samples);
            }
        }
        let unused = unused_fields(crate::request_fields(format), "", &samples);
        assert_eq!(unused, other_fields(format), "{format}");
    }
}

//! Malformed input never panics: random bytes and damaged fixtures through every entry point.

use dialects::Dialect;
use proptest::prelude::*;
use std::sync::LazyLock;

use crate::cases::{answers, requests};
use crate::entry;

/// All fixtures.
static ALL_FIXTURES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let of = |dialect: &'static dyn Dialect| {
        let requests = requests(dialect).into_iter().map(|(_, body)| body);
        let answers = answers(dialect).into_iter().flat_map(|a| [a.whole, a.stream]);
        requests.chain(answers).collect::<Vec<_>>()
    };
    dialects::all().flat_map(of).collect()
});

fn run_all_entry_points(body: &[u8]) {
    for dialect in dialects::all() {
        entry::answer(dialect, body);
        entry::stream(dialect, body);
        entry::cross(dialect, body);
    }
}

/// A fixture with some bytes replaced.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let with = prop_oneof![
        prop::sample::select(vec![
            "",
            "null",
            "5",
            "-1",
            "1e400",
            "true",
            "{}",
            "[]",
            "[null]",
            "\"\"",
            "\"x\"",
            "\u{0}",
            "}",
            "]",
            ",",
            "\\u0000",
            "\\ud800",
            "\n\ndata: ",
            "99999999999999999999",
        ])
        .prop_map(str::to_owned),
        "[\\[\\]{}\",:0-9a-z_$.-]{0,6}",
    ];
    let edit = (any::<prop::sample::Index>(), 0_usize..40, with);
    let edits = prop::collection::vec(edit, 1..4);
    (any::<prop::sample::Index>(), edits).prop_map(|(which, edits)| {
        let mut body = which.get(&ALL_FIXTURES).clone();
        for (at, length, with) in edits {
            let start = at.index(body.len() + 1);
            let end = (start + length).min(body.len());
            body.splice(start..end, with.into_bytes());
        }
        body
    })
}

/// A fixture in which values are replaced, so that it stays JSON.
fn misshapen() -> impl Strategy<Value = Vec<u8>> {
    use serde_json::{Value, json};
    let values = vec![
        json!(null),
        json!(true),
        json!(0),
        json!(-1),
        json!(1.5),
        json!(u64::MAX),
        json!(""),
        json!("x"),
        json!([]),
        json!([null]),
        json!({}),
        json!({"type": "text"}),
        json!([[]]),
    ];
    fn count(value: &Value) -> usize {
        1 + match value {
            Value::Array(list) => list.iter().map(count).sum::<usize>(),
            Value::Object(map) => map.values().map(count).sum(),
            _ => 0,
        }
    }
    fn put(value: &mut Value, at: &mut usize, new: &Value) {
        if *at == 0 {
            *value = new.clone();
        }
        *at = at.wrapping_sub(1);
        match value {
            Value::Array(list) => list.iter_mut().for_each(|one| put(one, at, new)),
            Value::Object(map) => map.values_mut().for_each(|one| put(one, at, new)),
            _ => {}
        }
    }
    let which = any::<prop::sample::Index>();
    (which, which_edits(values)).prop_map(|(which, edits)| {
        let body = which.get(&ALL_FIXTURES);
        let Ok(mut value) = serde_json::from_slice::<Value>(body) else { return body.clone() };
        for (at, new) in edits {
            let mut at = at.index(count(&value));
            put(&mut value, &mut at, &new);
        }
        value.to_string().into_bytes()
    })
}

fn which_edits(
    values: Vec<serde_json::Value>,
) -> impl Strategy<Value = Vec<(prop::sample::Index, serde_json::Value)>> {
    let edit = (any::<prop::sample::Index>(), prop::sample::select(values));
    prop::collection::vec(edit, 1..4)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 150,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_bytes_never_panic(body in prop::collection::vec(any::<u8>(), 0..200)) {
        run_all_entry_points(&body);
    }

    #[test]
    fn damaged_bodies_never_panic(body in damaged()) {
        run_all_entry_points(&body);
    }

    #[test]
    fn misshapen_bodies_never_panic(body in misshapen()) {
        run_all_entry_points(&body);
    }

    #[test]
    fn frames_do_not_depend_on_splits(
        body in "(data: ?[a-z{}]{0,9}|event: ?[a-z]{0,5}|:[a-z]*|id: 7|\u{feff})?(\n|\r|\r\n){0,3}(data:x\n\n){0,2}(\r\n|data: [a-z]{0,4}|\n){0,8}",
        at in 0_usize..80,
    ) {
        entry::cut(body.as_bytes(), at);
    }
}

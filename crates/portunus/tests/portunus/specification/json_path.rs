//! Places in JSON, written as errors write them: `candidates[0].content.parts[*].text`.

use serde_json::Value;

/// Returns every value at that path; `[*]` stands for each element, `[-1]` for the last one.
/// A place that does not exist gives nothing.
pub(super) fn find<'a>(root: &'a Value, path: &str) -> Vec<&'a Value> {
    let mut found = vec![root];
    for step in path.split(['.', '[']).filter(|step| !step.is_empty()) {
        found = match step.strip_suffix(']') {
            Some("*") => found.into_iter().filter_map(Value::as_array).flatten().collect(),
            Some("-1") => found.into_iter().filter_map(|value| value.as_array()?.last()).collect(),
            Some(number) => {
                let number: usize = number.parse().expect("an index, * or -1");
                found.into_iter().filter_map(|value| value.get(number)).collect()
            }
            None => found.into_iter().filter_map(|value| value.get(step)).collect(),
        };
    }
    found
}

#[test]
fn paths_lead_to_each_element_and_to_nothing_that_is_absent() {
    let value = serde_json::json!({ "a": [{ "b": 1 }, { "b": 2 }, { "c": 3 }] });
    assert_eq!(find(&value, "a[*].b"), [&serde_json::json!(1), &serde_json::json!(2)]);
    assert_eq!(find(&value, "a[-1].c"), [&serde_json::json!(3)]);
    assert_eq!(find(&value, "a[1].b"), [&serde_json::json!(2)]);
    assert!(find(&value, "a[7].b").is_empty());
    assert_eq!(find(&value, ""), [&value]);
}

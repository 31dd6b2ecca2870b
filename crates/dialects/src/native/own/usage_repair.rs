//! Counts of a reply that are not numbers. The official clients check their type and fail on the
//! whole reply, so they are replaced where the provider's bytes are passed on.

use bytes::Bytes;
use memchr::memmem;
use serde::Deserialize;
use serde_json::Value;

use crate::json;
use crate::native::reply::NativeReplyView;
use crate::proto_json::ProtoCount;
use crate::wire_object::raw_value;

/// Returns the body with numbers in place of other counts; `None` if it has none.
pub(crate) fn repair(body: &Bytes) -> Option<Bytes> {
    if !has_odd_count(body) {
        return None;
    }
    let text = std::str::from_utf8(body).ok()?;
    let raw = json::read::<NativeReplyView<'_>>(text).ok()?.usage_metadata?;
    let mut usage = raw_value(raw);
    if !replace_counts(&mut usage) {
        return None;
    }
    let range = json::range_of(text, raw);
    let (head, tail) = (text.get(..range.start)?, text.get(range.end..)?);
    Some(Bytes::from([head, &usage.to_string(), tail].concat()))
}

/// Searches for a count that does not start with a digit. A match inside a text costs only time.
fn has_odd_count(body: &[u8]) -> bool {
    const KEY_END: &[u8] = b"Count\"";
    memmem::find_iter(body, KEY_END).any(|at| {
        let rest = body.get(at + KEY_END.len()..).unwrap_or_default();
        let mut value = rest.iter().filter(|byte| !byte.is_ascii_whitespace() && **byte != b':');
        value.next().is_some_and(|byte| !byte.is_ascii_digit())
    })
}

/// Replaces counts at any depth. Returns true if there were any to replace.
fn replace_counts(value: &mut Value) -> bool {
    match value {
        Value::Object(fields) => fields.iter_mut().fold(false, |found, (name, value)| {
            if !name.ends_with("Count") {
                return replace_counts(value) || found;
            }
            if value.is_u64() || value.is_null() {
                return found;
            }
            let count = ProtoCount::deserialize(&*value).unwrap_or_default();
            *value = Value::from(count.0.unwrap_or(0));
            true
        }),
        Value::Array(items) => {
            items.iter_mut().fold(false, |found, item| replace_counts(item) | found)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_odd_counts_change() {
        let body = r#"{"candidates":[{"content":{"parts":[{"text":"fooCount\": x"}]}}],
            "usageMetadata": {"promptTokenCount":"12","candidatesTokenCount":"many",
            "promptTokensDetails":[{"modality":"TEXT","tokenCount":"12"}],"trafficType":"X"} }"#;
        let whole = repair(&Bytes::from_static(body.as_bytes())).unwrap();
        let want = body
            .replace("\"12\"", "12")
            .replace("\"many\"", "0")
            .replace("0,\n            \"promptTokensDetails", "0,\"promptTokensDetails");
        assert_eq!(String::from_utf8(whole.to_vec()).unwrap(), want);
        let fine = body.replace("\"12\"", "12").replace("\"many\"", "3");
        assert_eq!(repair(&Bytes::from(fine)), None);
    }
}

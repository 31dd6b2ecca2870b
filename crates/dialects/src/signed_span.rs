//! Signed spans of one text, for formats that send the text as one string.
//!
//! A provider may sign a piece of its text, for example the end, as a separate part. If the text
//! stays in one piece, the signature travels elsewhere and names its span by character offsets:
//! `text:START:END`.

use canon::{Part, PartKind, Signature};

/// First character, character after the last one, signature.
pub(crate) type SignedSpan = (usize, usize, Signature);

/// Returns the name of a span.
pub(crate) fn span_name(start: usize, length: usize) -> String {
    format!("text:{start}:{}", start + length)
}

/// Returns true if `name` has the form of a span name.
pub(crate) fn is_span_name(name: &str) -> bool {
    name.starts_with("text:")
}

/// Parses span names. Malformed names are skipped.
pub(crate) fn parse_spans(signatures: Vec<(String, Signature)>) -> Vec<SignedSpan> {
    let read = |(name, signature): (String, Signature)| {
        let (start, end) = name.strip_prefix("text:")?.split_once(':')?;
        Some((start.parse().ok()?, end.parse().ok()?, signature))
    };
    signatures.into_iter().filter_map(read).collect()
}

/// Splits a text so that each signed span is a part of its own. A span outside of the text is
/// skipped: its signature would not match the words.
pub(crate) fn split_text(text: &str, mut stretches: Vec<SignedSpan>) -> Vec<Part> {
    stretches.sort_by_key(|(start, end, _)| (*start, *end));
    let all: Vec<char> = text.chars().collect();
    let (mut parts, mut at) = (Vec::new(), 0);
    for (start, end, signature) in stretches {
        let (Some(before), Some(signed)) = (all.get(at..start), all.get(start..end)) else {
            continue;
        };
        if !before.is_empty() {
            parts.push(Part::text(before.iter().collect::<String>()));
        }
        parts.push(Part::text(signed.iter().collect::<String>()).with_signature(Some(signature)));
        at = end;
    }
    let rest: String = all.into_iter().skip(at).collect();
    if !rest.is_empty() || parts.is_empty() {
        parts.push(Part::text(rest));
    }
    parts
}

/// Splits a text part in the same way. Other parts are returned unchanged. Citations and extras
/// stay on the first piece, the cache mark on the last.
pub(crate) fn split_part(part: Part, stretches: Vec<SignedSpan>) -> Vec<Part> {
    let Part {
        kind: PartKind::Text { text, citations },
        signature,
        cache_breakpoint: cache,
        extras,
    } = part
    else {
        return vec![part];
    };
    let mut pieces = split_text(&text, stretches);
    if let Some(last) = pieces.last_mut() {
        last.cache_breakpoint = cache;
    }
    if let Some(Part { kind, signature: first_signature, extras: none, .. }) = pieces.first_mut() {
        if let PartKind::Text { citations: none, .. } = kind {
            *none = citations;
        }
        if first_signature.is_none() {
            *first_signature = signature;
        }
        *none = extras;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use canon::WireFormat;

    #[test]
    fn splits_signed_spans_and_skips_spans_outside_the_text() {
        let signature = |token: &str| Signature::new(WireFormat::Native, token);
        let marks = |list: &[(usize, usize)]| {
            parse_spans(
                list.iter()
                    .map(|(start, length)| (span_name(*start, *length), signature("s")))
                    .collect(),
            )
        };
        let sealed = |text: &str| Part::text(text).with_signature(Some(signature("s")));
        assert_eq!(
            split_text("aé, b.", marks(&[(0, 2), (6, 0)])),
            [sealed("aé"), Part::text(", b."), sealed("")]
        );
        assert_eq!(split_text("ab", marks(&[(1, 9)])), [Part::text("ab")]);
        assert_eq!(split_text("abc", marks(&[(0, 2), (1, 2)])), [sealed("ab"), Part::text("c")]);
    }
}

//! Fields of an answer that only the native format has: safety ratings, and sources with confidence
//! scores. See <https://ai.google.dev/api/generate-content#GroundingMetadata>.

use canon::{Citation, ExtraFields, Part, PartKind, WireFormat};
use serde_json::{Value, json};

use super::ground::MAPS_URL;

/// Categories that every candidate is rated for.
const RATED_CATEGORIES: [&str; 4] = [
    "HARM_CATEGORY_HARASSMENT",
    "HARM_CATEGORY_HATE_SPEECH",
    "HARM_CATEGORY_SEXUALLY_EXPLICIT",
    "HARM_CATEGORY_DANGEROUS_CONTENT",
];
/// Confidence in the first source, in percent. Each further one has less.
const FIRST_CONFIDENCE: usize = 95;

/// Returns the fields of a candidate with these parts.
pub(super) fn of_parts(parts: &[Part]) -> ExtraFields {
    let rating = |category: &&str| json!({ "category": category, "probability": "NEGLIGIBLE", "blocked": false });
    let mut fields = ExtraFields::new();
    let ratings: Vec<Value> = RATED_CATEGORIES.iter().map(rating).collect();
    fields.insert(WireFormat::Native, "safetyRatings", Value::Array(ratings));
    fields.insert_some(WireFormat::Native, "groundingMetadata", grounding(parts));
    fields
}

/// Returns the sources of the text; `None` without one.
fn grounding(parts: &[Part]) -> Option<Value> {
    let mut sources: Vec<(&str, &str)> = Vec::new();
    let (mut queries, mut supports) = (Vec::new(), Vec::new());
    let mut part_index = 0;
    for part in parts {
        if let PartKind::WebSearch(search) = &part.kind {
            queries.extend(&search.queries);
            sources.extend(search.results.iter().map(|(url, title)| (&**url, &**title)));
            continue;
        }
        if let PartKind::Text { text, citations } = &part.kind {
            for citation in citations {
                supports.extend(support(citation, text, part_index, &mut sources));
            }
        }
        part_index += 1;
    }
    let chunks: Vec<Value> = sources.into_iter().map(chunk).collect();
    (!chunks.is_empty()).then(|| match queries.is_empty() {
        true => json!({ "groundingChunks": chunks, "groundingSupports": supports }),
        false => json!({ "groundingChunks": chunks, "groundingSupports": supports,
            "webSearchQueries": queries }),
    })
}

fn chunk((url, title): (&str, &str)) -> Value {
    match url.strip_prefix(MAPS_URL) {
        Some(place) => {
            json!({ "maps": { "uri": url, "title": title, "placeId": format!("places/{place}") } })
        }
        None => json!({ "web": { "uri": url, "title": title } }),
    }
}

/// Returns the link between a source and the words that cite it.
fn support<'a>(
    citation: &'a Citation,
    text: &str,
    part_index: usize,
    sources: &mut Vec<(&'a str, &'a str)>,
) -> Option<Value> {
    let (url, (start, end)) = (citation.url.as_deref()?, citation.span?);
    let known = sources.iter().position(|(own, _)| *own == url);
    let at = known.unwrap_or_else(|| {
        sources.push((url, citation.title.as_deref().unwrap_or_default()));
        sources.len() - 1
    });
    // Positions count bytes.
    let bytes = |chars: usize| text.chars().take(chars).map(char::len_utf8).sum::<usize>();
    let (start, end) = (bytes(start), bytes(end));
    let mut segment =
        json!({ "startIndex": start, "endIndex": end, "text": text.get(start..end)? });
    if let (Some(segment), 1..) = (segment.as_object_mut(), part_index) {
        segment.insert("partIndex".to_owned(), part_index.into());
    }
    #[expect(clippy::cast_precision_loss, reason = "at most 95")]
    let confidence = FIRST_CONFIDENCE.saturating_sub(at * 5) as f64 / 100.0;
    Some(json!({ "segment": segment, "groundingChunkIndices": [at],
        "confidenceScores": [confidence] }))
}

//! Sources of a reply. The format lists them beside the text and gives their positions in bytes,
//! <https://ai.google.dev/gemini-api/docs/google-search>.

use canon::{Citation, ExtraFields, Losses, Part, PartKind, WebSearch};
use serde_json::Value;

use crate::fields::{ObjectWriter, note_citation};
use crate::native::names::ORIGIN;
use crate::proto_json::whole_number;

/// Returns the provider's search queries and hits.
pub(crate) fn search(grounding: &Value) -> Option<WebSearch> {
    let queries = list(grounding, "webSearchQueries").filter_map(Value::as_str);
    let queries: Vec<String> = queries.map(str::to_owned).collect();
    let found = list(grounding, "groundingChunks").filter_map(source);
    let results: Vec<_> = found.map(|(url, title)| (url, title.unwrap_or_default())).collect();
    (!queries.is_empty() || !results.is_empty()).then_some(WebSearch { id: None, queries, results })
}

/// Counts the searches that were run.
pub(crate) fn searches(grounding: &Value) -> u64 {
    list(grounding, "webSearchQueries").count() as u64
}

/// Returns the sources of the text, with positions counted in characters.
pub(crate) fn citations(grounding: &Value, cited: &Value, text: &str) -> Vec<Citation> {
    let chunks: Vec<&Value> = list(grounding, "groundingChunks").collect();
    let mut citations = Vec::new();
    for support in list(grounding, "groundingSupports") {
        let Some(span) = support.get("segment").and_then(|segment| span(segment, text)) else {
            continue;
        };
        for index in list(support, "groundingChunkIndices").filter_map(whole_number) {
            let chunk = usize::try_from(index).ok().and_then(|index| chunks.get(index));
            if let Some((url, title)) = chunk.and_then(|chunk| source(chunk)) {
                let (url, span) = (Some(url), Some(span));
                citations.push(Citation { url, title, span, ..Citation::default() });
            }
        }
    }
    for source in list(cited, "citationSources") {
        let word = |name: &str| source.get(name).and_then(Value::as_str).map(str::to_owned);
        let mut extras = ExtraFields::new();
        let license = word("license").filter(|license| !license.is_empty());
        extras.insert_some(ORIGIN, "license", license.map(Value::from));
        let (url, title) = (word("uri"), word("title"));
        citations.push(Citation { url, title, quote: None, span: span(source, text), extras });
    }
    citations
}

/// Splits the citations of a text that became two parts, the first of them with that many
/// characters. A citation belongs to the part in which it starts; one without a position to the
/// last part.
pub(crate) fn split(citations: Vec<Citation>, front: usize) -> (Vec<Citation>, Vec<Citation>) {
    let is_in_front = |one: &Citation| one.span.is_some_and(|(start, _)| start < front);
    let (mut before, mut after): (Vec<_>, Vec<_>) = citations.into_iter().partition(is_in_front);
    for (_, end) in before.iter_mut().filter_map(|one| one.span.as_mut()) {
        *end = front.min(*end);
    }
    for (start, end) in after.iter_mut().filter_map(|one| one.span.as_mut()) {
        (*start, *end) = (*start - front, *end - front);
    }
    (before, after)
}

/// Returns address and title of a source of any kind.
fn source(chunk: &Value) -> Option<(String, Option<String>)> {
    let inner = ["web", "maps", "retrievedContext", "image"].iter().find_map(|k| chunk.get(k))?;
    let word = |name: &str| inner.get(name).and_then(Value::as_str).map(str::to_owned);
    let url = word("uri").or_else(|| word("sourceUri")).or_else(|| word("fileSearchStore"))?;
    Some((url, word("title")))
}

/// Returns the characters of the text that a segment covers. The quoted words win over the
/// positions, because some replies count positions over all parts and some over one part.
fn span(segment: &Value, text: &str) -> Option<(usize, usize)> {
    let at = |name: &str| match segment.get(name) {
        None | Some(Value::Null) => Some(0),
        Some(value) => whole_number(value).and_then(|n| usize::try_from(n).ok()),
    };
    let (start, end) = (at("startIndex")?, at("endIndex")?);
    let quoted = segment.get("text").and_then(Value::as_str).filter(|quote| !quote.is_empty());
    let (start, end) = match quoted {
        Some(quote) if text.get(start..end) != Some(quote) => {
            let start = text.find(quote)?;
            (start, start + quote.len())
        }
        _ => (start, end),
    };
    let before = text.get(..start)?.chars().count();
    let within = text.get(start..end)?.chars().count();
    (within > 0).then_some((before, before + within))
}

/// Writes the sources that the parts carry as grounding metadata.
pub(crate) fn write(parts: &[Part], losses: &mut Losses) -> Option<Value> {
    let mut all = SourceList::default();
    let mut supports = Vec::new();
    let mut queries: Vec<String> = Vec::new();
    let mut index = 0;
    for part in parts {
        if let PartKind::WebSearch(WebSearch { id: _, queries: asked, results }) = &part.kind {
            queries.extend(asked.iter().cloned());
            for (url, title) in results {
                all.index(url, Some(title));
            }
            continue;
        }
        if let PartKind::Text { text, citations } = &part.kind {
            for citation in citations {
                supports.extend(all.cite(citation, text, index, losses));
            }
        }
        index += 1;
    }
    if all.0.is_empty() && queries.is_empty() {
        return None;
    }
    let web = |(url, title)| ObjectWriter::new().set("uri", url).set("title", title);
    let chunks = all.0.into_iter().map(|source: (String, String)| web(source));
    let chunks: Vec<_> = chunks.map(|web| ObjectWriter::new().set("web", web)).collect();
    let grounding = ObjectWriter::new()
        .set("groundingChunks", chunks)
        .set("groundingSupports", supports)
        // Providers that do not report their queries get no empty list.
        .set_some("webSearchQueries", (!queries.is_empty()).then_some(queries));
    Some(grounding.into())
}

/// The list of sources, one entry per address.
#[derive(Default)]
struct SourceList(Vec<(String, String)>);

impl SourceList {
    fn index(&mut self, url: &str, title: Option<&str>) -> usize {
        let known = self.0.iter().position(|(own, _)| own == url);
        let at = known.unwrap_or_else(|| {
            self.0.push((url.to_owned(), String::new()));
            self.0.len() - 1
        });
        // A search may name only the address of a source, and a citation its title.
        if let Some((_, known)) = self.0.get_mut(at).filter(|(_, known)| known.is_empty()) {
            title.unwrap_or_default().clone_into(known);
        }
        at
    }

    fn cite(
        &mut self,
        citation: &Citation,
        text: &str,
        part: usize,
        losses: &mut Losses,
    ) -> Option<ObjectWriter> {
        let Citation { url, title, quote, span, extras: _ } = citation;
        losses.add_if(quote.is_some(), "citation.quote", "native citations have no quote");
        note_citation(citation, ORIGIN, losses);
        let chunk = self.index(url.as_deref()?, title.as_deref());
        let (start, end) = (*span)?;
        let bytes = |chars: usize| text.chars().take(chars).map(char::len_utf8).sum::<usize>();
        let (start, end) = (bytes(start), bytes(end));
        let segment = ObjectWriter::new()
            .set_some("partIndex", (part > 0).then_some(part))
            .set("startIndex", start)
            .set("endIndex", end)
            .set("text", text.get(start..end).unwrap_or_default());
        // Without `confidenceScores`: the list has one score per index, and there are none.
        let indices = vec![Value::from(chunk)];
        Some(ObjectWriter::new().set("segment", segment).set("groundingChunkIndices", indices))
    }
}

/// Renames `citations`, as one API surface calls the list, to the documented `citationSources`.
pub(crate) fn rename(mut cited: Value) -> Value {
    if let Some(fields) = cited.as_object_mut()
        && let Some(list) = fields.shift_remove("citations")
    {
        fields.insert("citationSources".to_owned(), list);
    }
    cited
}

fn list<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    value.get(name).and_then(Value::as_array).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn byte_positions_become_characters_and_back() {
        let text = "Größe: 5 m. Über alles.";
        let grounding = json!({
            "webSearchQueries": ["größe"],
            "groundingChunks": [{"web": {"uri": "https://a.example", "title": "A"}}],
            "groundingSupports": [{
                "segment": {"startIndex": 14, "endIndex": 26, "text": "Über alles."},
                "groundingChunkIndices": [0],
            }],
        });
        let found = citations(&grounding, &Value::Null, text);
        assert_eq!(found[0].span, Some((12, 23)));
        let kind = PartKind::Text { text: text.to_owned(), citations: found };
        let search = search(&grounding).unwrap();
        let parts = [Part::new(kind), Part::new(PartKind::WebSearch(search))];
        let written = write(&parts, &mut Losses::new()).unwrap();
        let segment = &written["groundingSupports"][0]["segment"];
        assert_eq!(segment["text"], "Über alles.");
        assert_eq!(
            (segment["startIndex"].as_u64(), segment["endIndex"].as_u64()),
            (Some(14), Some(26))
        );
        assert_eq!(written["webSearchQueries"], json!(["größe"]));
        assert_eq!(written["groundingChunks"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn invalid_positions_are_dropped() {
        for (start, end) in [(0, 3), (1, 2), (5, 99), (9, 4)] {
            let cited =
                json!({"citationSources": [{"startIndex": start, "endIndex": end, "uri": "u"}]});
            let found = citations(&Value::Null, &cited, "Größe");
            assert!(found[0].span.is_none_or(|(a, b)| a < b && b <= 5), "{start} {end}");
        }
    }
}

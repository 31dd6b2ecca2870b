//! Provider tools of the demo model: web search, maps and code execution.
//!
//! The demo model has no web access. It finds pages and places under example.com, always the same ones
//! for the same question, and says so.

use canon::{
    ChatRequest, Citation, CodeExecution, CodeResult, ExtraFields, Part, PartKind, Tool,
    ToolChoiceMode, WebSearch, WebSearchTool, WireFormat,
};

use super::prompt::Prompt;
use super::{sums, talk};
use crate::seeded_random;

/// Front of the addresses of places.
pub(super) const MAPS_URL: &str = "https://maps.example.com/place/";

/// Returns the parts of an answer with a search or a computation; `None` if neither was offered and
/// requested.
pub(crate) fn parts(
    chat: &ChatRequest,
    prompt: &Prompt<'_>,
    origin: WireFormat,
) -> Option<Vec<Part>> {
    if chat.tool_choice.mode == ToolChoiceMode::Disabled
        || !prompt.results.is_empty()
        || prompt.needs_no_tool()
    {
        return None;
    }
    let code = chat.tools.iter().any(|tool| matches!(tool, Tool::CodeExecution(_)));
    if let Some(sum) = sums::find(&prompt.lower).filter(|_| code) {
        return Some(computed(&sum, prompt, origin));
    }
    if chat.tools.iter().any(is_maps) && wants_places(prompt) {
        return Some(found_places(prompt));
    }
    let search = chat.tools.iter().find_map(|tool| match tool {
        Tool::WebSearch(search) => Some(search),
        Tool::Function(_)
        | Tool::Custom { .. }
        | Tool::CodeExecution(_)
        | Tool::UrlFetch(_)
        | Tool::Client(_)
        | Tool::Foreign { .. } => None,
    });
    search.filter(|_| wants_search(prompt)).map(|search| found(search, prompt, origin))
}

/// Returns true for the maps of the native format, which no other format has.
fn is_maps(tool: &Tool) -> bool {
    match tool {
        Tool::Foreign { origin: WireFormat::Native, value } => value.get("googleMaps").is_some(),
        Tool::Foreign { .. }
        | Tool::WebSearch(_)
        | Tool::Function(_)
        | Tool::Custom { .. }
        | Tool::CodeExecution(_)
        | Tool::Client(_)
        | Tool::UrlFetch(_) => false,
    }
}

fn wants_places(prompt: &Prompt<'_>) -> bool {
    let words =
        ["near", "nearby", "where", "map", "maps", "place", "places", "restaurant", "route"];
    prompt.has(&words) || wants_search(prompt)
}

fn wants_search(prompt: &Prompt<'_>) -> bool {
    let asks = prompt.lower.contains('?')
        || prompt.has(&[
            "search", "latest", "news", "look up", "find", "today", "current", "who", "when",
        ]);
    asks && sums::find(&prompt.lower).is_none()
}

fn computed(sum: &sums::ArithmeticResult, prompt: &Prompt<'_>, origin: WireFormat) -> Vec<Part> {
    let id = own_id(origin, prompt, "ci_");
    let code = CodeExecution {
        id: id.clone(),
        language: "python".to_owned(),
        code: format!("print({})", sum.written),
    };
    let outcome = CodeResult { id, output: format!("{}\n", sum.outcome), is_error: false };
    vec![
        Part::new(PartKind::CodeExecution(code)),
        Part::new(PartKind::CodeResult(outcome)),
        Part::text(format!("I ran it: {} = {}.", sum.written, sum.outcome)),
    ]
}

fn found(tool: &WebSearchTool, prompt: &Prompt<'_>, origin: WireFormat) -> Vec<Part> {
    let query = prompt.text.trim().trim_start_matches("Search:").trim();
    let query: String = query.trim_end_matches('?').chars().take(120).collect();
    let topic = talk::topic(&query).unwrap_or_else(|| "that".to_owned());
    let domain = tool
        .allowed_domains
        .iter()
        .map(|domain| domain.trim_start_matches("https://").trim_end_matches('/'))
        .find(|domain| !tool.blocked_domains.iter().any(|blocked| blocked == domain))
        .unwrap_or("example.com");
    let page = page_word(&query);
    let sources = [
        (format!("https://{domain}/{page}/overview"), format!("An overview of {topic}")),
        (format!("https://{domain}/{page}/latest"), format!("The latest on {topic}")),
    ];
    let sentences = [
        format!("An overview of {topic} is kept at {domain}."),
        format!("The latest page on {topic} was written for this demonstration."),
    ];
    let text = cited_text(&sentences, &sources, "these pages are examples and not the web");
    let id = own_id(origin, prompt, "ws_");
    let search = WebSearch { id, queries: vec![query], results: sources.to_vec() };
    vec![Part::new(PartKind::WebSearch(search)), text]
}

fn found_places(prompt: &Prompt<'_>) -> Vec<Part> {
    let topic = talk::topic(prompt.text.trim()).unwrap_or_else(|| "that".to_owned());
    let place = page_word(prompt.text.trim());
    let sources = [
        (format!("{MAPS_URL}{place}-1"), "Harbour House".to_owned()),
        (format!("{MAPS_URL}{place}-2"), "Lighthouse Lane 7".to_owned()),
    ];
    let sentences = [
        format!("Harbour House is a place for {topic}."),
        "Lighthouse Lane 7 is a short walk from there.".to_owned(),
    ];
    vec![cited_text(&sentences, &sources, "these places are examples and on no map")]
}

/// Returns a word that is always the same for the same question.
fn page_word(query: &str) -> String {
    seeded_random::word(seeded_random::hash(query.as_bytes()), 6).to_lowercase()
}

/// Writes sentences with a source each, and a last one about the sources.
fn cited_text(sentences: &[String; 2], sources: &[(String, String); 2], note: &str) -> Part {
    let mut text = String::new();
    let mut citations = Vec::new();
    for (sentence, (url, title)) in sentences.iter().zip(sources) {
        if !text.is_empty() {
            text.push(' ');
        }
        let start = text.chars().count();
        text.push_str(sentence);
        citations.push(Citation {
            url: Some(url.clone()),
            title: Some(title.clone()),
            quote: Some(sentence.clone()),
            span: Some((start, start + sentence.chars().count())),
            extras: ExtraFields::new(),
        });
    }
    text.push_str(&format!(" I am a demo model, so {note}."));
    Part::new(PartKind::Text { text, citations })
}

/// Returns an id, in the formats that give these parts one.
fn own_id(origin: WireFormat, prompt: &Prompt<'_>, lead: &str) -> Option<String> {
    let word = || {
        seeded_random::word(
            seeded_random::join(prompt.mark, seeded_random::hash(lead.as_bytes())),
            24,
        )
    };
    match origin {
        WireFormat::Responses => Some(format!("{lead}{}", word())),
        WireFormat::Messages => Some(format!("srvtoolu_{}", word())),
        WireFormat::Chat | WireFormat::Native | WireFormat::Images => None,
    }
}

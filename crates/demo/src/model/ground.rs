//! Provider tools of the demo model: web search and code execution.
//!
//! The demo model has no web access. It finds pages under example.com, always the same ones for the
//! same question, and says so.

use canon::{
    ChatRequest, Citation, CodeExecution, CodeResult, ExtraFields, Part, PartKind, Tool,
    ToolChoiceMode, WebSearch, WebSearchTool, WireFormat,
};

use super::prompt::Prompt;
use super::{sums, talk};
use crate::seeded_random;

/// Returns the parts of an answer with a search or a computation; `None` if neither was offered and
/// requested.
pub(crate) fn parts(
    chat: &ChatRequest,
    prompt: &Prompt<'_>,
    origin: WireFormat,
) -> Option<Vec<Part>> {
    if chat.tool_choice.mode == ToolChoiceMode::Disabled || !prompt.results.is_empty() {
        return None;
    }
    let code = chat.tools.iter().any(|tool| matches!(tool, Tool::CodeExecution(_)));
    if let Some(sum) = sums::find(&prompt.lower).filter(|_| code) {
        return Some(computed(&sum, prompt, origin));
    }
    let search = chat.tools.iter().find_map(|tool| match tool {
        Tool::WebSearch(search) => Some(search),
        Tool::Function(_)
        | Tool::Custom { .. }
        | Tool::CodeExecution(_)
        | Tool::UrlFetch(_)
        | Tool::Foreign { .. } => None,
    });
    search.filter(|_| wants_search(prompt)).map(|search| found(search, prompt, origin))
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
    let page = seeded_random::word(seeded_random::hash(query.as_bytes()), 6).to_lowercase();
    let sources = [
        (format!("https://{domain}/{page}/overview"), format!("An overview of {topic}")),
        (format!("https://{domain}/{page}/latest"), format!("The latest on {topic}")),
    ];
    let sentences = [
        format!("An overview of {topic} is kept at {domain}."),
        format!("The latest page on {topic} was written for this demonstration."),
    ];
    let mut text = String::new();
    let mut citations = Vec::new();
    for (sentence, (url, title)) in sentences.iter().zip(&sources) {
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
    text.push_str(" I am a demo model, so these pages are examples and not the web.");
    let id = own_id(origin, prompt, "ws_");
    let search = WebSearch { id, queries: vec![query], results: sources.to_vec() };
    vec![Part::new(PartKind::WebSearch(search)), Part::new(PartKind::Text { text, citations })]
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

//! Provider tools of the demo model: web search and code execution.
//!
//! The demo model has no web access. It finds pages under example.com, always the same ones for the
//! same question, and says so.

use canon::{
    Chat, Choice, Citation, Code, CodeOutcome, Extras, Kind, Origin, Part, Search, SearchTool, Tool,
};

use super::prompt::Prompt;
use super::{sums, talk};
use crate::seeded_random;

/// Returns the parts of an answer with a search or a computation; `None` if neither was offered and
/// requested.
pub(crate) fn parts(chat: &Chat, prompt: &Prompt<'_>, origin: Origin) -> Option<Vec<Part>> {
    if chat.choice.choice == Choice::Never || !prompt.results.is_empty() {
        return None;
    }
    let code = chat.tools.iter().any(|tool| matches!(tool, Tool::Code(_)));
    if let Some(sum) = sums::find(&prompt.lower).filter(|_| code) {
        return Some(computed(&sum, prompt, origin));
    }
    let search = chat.tools.iter().find_map(|tool| match tool {
        Tool::Search(search) => Some(search),
        Tool::Function(_)
        | Tool::Custom { .. }
        | Tool::Code(_)
        | Tool::Fetch(_)
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

fn computed(sum: &sums::ArithmeticResult, prompt: &Prompt<'_>, origin: Origin) -> Vec<Part> {
    let id = own_id(origin, prompt, "ci_");
    let code = Code {
        id: id.clone(),
        language: "python".to_owned(),
        code: format!("print({})", sum.written),
    };
    let outcome = CodeOutcome { id, output: format!("{}\n", sum.outcome), failed: false };
    vec![
        Part::new(Kind::Code(code)),
        Part::new(Kind::CodeOutcome(outcome)),
        Part::text(format!("I ran it: {} = {}.", sum.written, sum.outcome)),
    ]
}

fn found(tool: &SearchTool, prompt: &Prompt<'_>, origin: Origin) -> Vec<Part> {
    let query = prompt.text.trim().trim_start_matches("Search:").trim();
    let query: String = query.trim_end_matches('?').chars().take(120).collect();
    let topic = talk::topic(&query).unwrap_or_else(|| "that".to_owned());
    let domain = tool
        .allowed
        .iter()
        .map(|domain| domain.trim_start_matches("https://").trim_end_matches('/'))
        .find(|domain| !tool.blocked.iter().any(|blocked| blocked == domain))
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
            extras: Extras::none(),
        });
    }
    text.push_str(" I am a demo model, so these pages are examples and not the web.");
    let id = own_id(origin, prompt, "ws_");
    let search = Search { id, queries: vec![query], found: sources.to_vec() };
    vec![Part::new(Kind::Search(search)), Part::new(Kind::Text { text, citations })]
}

/// Returns an id, in the formats that give these parts one.
fn own_id(origin: Origin, prompt: &Prompt<'_>, lead: &str) -> Option<String> {
    let word = || {
        seeded_random::word(
            seeded_random::join(prompt.mark, seeded_random::hash(lead.as_bytes())),
            24,
        )
    };
    match origin {
        Origin::Responses => Some(format!("{lead}{}", word())),
        Origin::Messages => Some(format!("srvtoolu_{}", word())),
        Origin::Chat | Origin::Native | Origin::Images => None,
    }
}

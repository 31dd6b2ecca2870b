//! A request as the model reads it: the last question, its attachments and the context.

use canon::{
    ChatRequest, FunctionTool, Media, MediaSource, Part, PartKind, Role, Tool, ToolCall,
    ToolResult, Turn,
};

use super::summary::SummaryRequest;
use super::talk;
use crate::seeded_random;
use crate::tokens;

/// Tokens of a media part, regardless of its size. Every format needs more bytes than this to
/// mention one, so that a request never has more tokens than bytes.
const MEDIA_TOKENS: u64 = 32;
/// Tokens of the frame around a turn.
const TURN_TOKENS: u64 = 3;

/// Number of characters of a text that are searched for the question.
const MAX_SEARCHED_CHARS: usize = 16_384;

/// A request as the model reads it.
pub(crate) struct Prompt<'a> {
    /// Last text of the user.
    pub(crate) text: String,
    /// Its beginning in lower case, for searches.
    pub(crate) lower: String,
    /// Media of the last turn.
    pub(crate) media: Vec<&'a Media>,
    /// Tool results since the last answer, with the names of the tools.
    pub(crate) results: Vec<(String, &'a ToolResult)>,
    /// Number of tool calls that the model made since the last text of the user.
    pub(crate) made_calls: usize,
    /// Request for a summary of the conversation.
    pub(crate) summary: Option<SummaryRequest>,
    /// First text of the user that is not context of an agent.
    pub(crate) first_text: Option<&'a str>,
    /// True if the instructions ask for brevity.
    pub(crate) brief: bool,
    /// Names in the last text, in order.
    pub(crate) names: Vec<String>,
    /// Numbers in the last text, in order.
    pub(crate) numbers: Vec<f64>,
    /// Name that the user gave, anywhere in the conversation.
    pub(crate) user_name: Option<String>,
    /// Hash of all texts of the user.
    pub(crate) salt: u64,
    /// Hash of the whole conversation, so that ids do not repeat in it.
    pub(crate) mark: u64,
}

impl<'a> Prompt<'a> {
    /// Reads a request.
    pub(crate) fn read(chat: &'a ChatRequest) -> Self {
        let asked = chat.turns.iter().rposition(|turn| turn.role == Role::User && speaks(turn));
        let asking = asked.and_then(|at| chat.turns.get(at));
        let parts = asking.map_or(&[][..], |turn| turn.parts.as_slice());
        let text = question(parts);
        let front = text
            .char_indices()
            .nth(MAX_SEARCHED_CHARS)
            .map_or(&*text, |(at, _)| text.get(..at).unwrap_or_default());
        let media = parts.iter().filter_map(as_media).collect();
        let mut salt = seeded_random::hash(b"portunus");
        let mut mark = salt;
        for turn in &chat.turns {
            for part in &turn.parts {
                let said = part_hash(part);
                mark = seeded_random::join(mark, said);
                if turn.role == Role::User {
                    salt = seeded_random::join(salt, said);
                }
            }
        }
        Self {
            lower: front.to_lowercase(),
            names: names(front),
            numbers: numbers(front),
            media,
            results: fresh_results(chat, asked),
            made_calls: made_calls(chat, asked),
            summary: SummaryRequest::find(chat),
            first_text: first_text(chat),
            brief: is_brief(chat),
            user_name: user_name(chat),
            salt,
            mark,
            text,
        }
    }

    /// Returns true if the user dictates the answer, requests a summary or forbids tools.
    pub(crate) fn needs_no_tool(&self) -> bool {
        let forbids = ["not call tools", "not call any tool", "not use any tool"];
        self.summary.is_some()
            || talk::is_dictated(&self.text)
            || forbids.iter().any(|words| self.lower.contains(words))
    }

    /// Returns true if the last text contains one of these words or phrases.
    pub(crate) fn has(&self, phrases: &[&str]) -> bool {
        phrases.iter().any(|phrase| contains_words(&self.lower, phrase))
    }
}

/// Returns the text of the user's last turn, unchanged.
pub(crate) fn last_text(chat: &ChatRequest) -> String {
    let spoken = |turn: &&Turn| turn.role == Role::User && !texts(&turn.parts).is_empty();
    chat.turns.iter().rev().find(spoken).map(|turn| texts(&turn.parts).concat()).unwrap_or_default()
}

/// Returns true if a text contains a phrase as whole words.
pub(crate) fn contains_words(text: &str, phrase: &str) -> bool {
    text.match_indices(phrase).any(|(at, found)| {
        let before = text.get(..at).and_then(|front| front.chars().next_back());
        let after = text.get(at + found.len()..).and_then(|rest| rest.chars().next());
        !before.is_some_and(char::is_alphanumeric) && !after.is_some_and(char::is_alphanumeric)
    })
}

fn texts(parts: &[Part]) -> Vec<&str> {
    parts.iter().filter_map(Part::as_text).collect()
}

fn as_media(part: &Part) -> Option<&Media> {
    if let PartKind::Media(media) = &part.kind { Some(media) } else { None }
}

fn as_call(part: &Part) -> Option<&ToolCall> {
    if let PartKind::ToolCall(call) = &part.kind { Some(call) } else { None }
}

fn as_result(part: &Part) -> Option<&ToolResult> {
    if let PartKind::ToolResult(result) = &part.kind { Some(result) } else { None }
}

/// Returns the texts of a turn without the context that an agent adds, unless there is nothing else.
fn question(parts: &[Part]) -> String {
    let all = texts(parts);
    let own: Vec<&str> = all.iter().copied().filter(|text| !is_context(text)).collect();
    if own.is_empty() { all.join("\n") } else { own.join("\n") }
}

/// Returns true if a text is one element, as coding agents write their context around the words of
/// their user: `<system-reminder>…</system-reminder>`.
fn is_context(text: &str) -> bool {
    let inside = text.trim().strip_prefix('<').and_then(|rest| rest.strip_suffix('>'));
    let Some((name, rest)) = inside.and_then(|inside| inside.split_once('>')) else { return false };
    !name.is_empty() && rest.rsplit_once("</").is_some_and(|(_, end)| end == name)
}

/// Returns true if a turn asks something itself. Words next to a tool result belong to the result.
fn speaks(turn: &Turn) -> bool {
    let says = |part: &Part| part.as_text().is_some() || as_media(part).is_some();
    turn.parts.iter().any(says) && !turn.parts.iter().any(|part| as_result(part).is_some())
}

/// Returns the results since the last question, unless the model answered after them.
fn fresh_results(chat: &ChatRequest, asked: Option<usize>) -> Vec<(String, &ToolResult)> {
    let from = asked.map_or(0, |at| at + 1);
    let since = chat.turns.get(from..).unwrap_or_default();
    let spoke = since.iter().rposition(|turn| turn.role == Role::Assistant);
    let fresh = since.get(spoke.map_or(0, |at| at + 1)..).unwrap_or_default();
    let name_of = |result: &ToolResult| {
        let parts = chat.turns.iter().flat_map(|turn| &turn.parts);
        let called = parts.filter_map(as_call).find(|call| call.id == result.call_id);
        let called = called.map(|call| call.name.clone());
        result.name.clone().or(called).unwrap_or_else(|| "the tool".to_owned())
    };
    fresh
        .iter()
        .filter(|turn| turn.role == Role::User)
        .flat_map(|turn| turn.parts.iter().filter_map(as_result))
        .map(|result| (name_of(result), result))
        .collect()
}

fn made_calls(chat: &ChatRequest, asked: Option<usize>) -> usize {
    let since = chat.turns.get(asked.map_or(0, |at| at + 1)..).unwrap_or_default();
    since.iter().flat_map(|turn| &turn.parts).filter_map(as_call).count()
}

fn is_brief(chat: &ChatRequest) -> bool {
    const WORDS: [&str; 6] =
        ["be brief", "be concise", "briefly", "be terse", "one sentence", "short answers"];
    let told = chat
        .turns
        .iter()
        .filter(|turn| matches!(turn.role, Role::System | Role::Developer))
        .flat_map(|turn| texts(&turn.parts))
        .any(|text| {
            let lower = text.to_lowercase();
            WORDS.iter().any(|word| contains_words(&lower, word))
        });
    told || chat.hints.verbosity.as_deref() == Some("low")
}

fn first_text(chat: &ChatRequest) -> Option<&str> {
    let said = chat.turns.iter().filter(|turn| turn.role == Role::User);
    said.flat_map(|turn| texts(&turn.parts)).find(|text| !is_context(text))
}

/// Returns the name that the user gave, or that a summary by the model tells.
fn user_name(chat: &ChatRequest) -> Option<String> {
    let by = |role: Role| chat.turns.iter().rev().filter(move |turn| turn.role == role);
    let said = by(Role::User).chain(by(Role::Assistant));
    said.flat_map(|turn| texts(&turn.parts)).find_map(|text| {
        let at = ["my name is ", "My name is ", "I am called "]
            .iter()
            .find_map(|lead| text.find(lead).map(|at| at + lead.len()))?;
        let word: String = text.get(at..)?.chars().take_while(|c| c.is_alphanumeric()).collect();
        (!word.is_empty()).then_some(word)
    })
}

const CITIES: [&str; 20] = [
    "amsterdam",
    "athens",
    "berlin",
    "cairo",
    "chicago",
    "dublin",
    "hamburg",
    "lisbon",
    "london",
    "madrid",
    "moscow",
    "munich",
    "oslo",
    "paris",
    "prague",
    "rome",
    "sydney",
    "tokyo",
    "vienna",
    "zurich",
];
const NOT_NAMES: [&str; 16] = [
    "i",
    "i'm",
    "please",
    "what",
    "who",
    "how",
    "when",
    "where",
    "why",
    "which",
    "and",
    "the",
    "json",
    "celsius",
    "fahrenheit",
    "think",
];

/// Returns the names in a text: capitalised words that do not merely begin a sentence, neighbours
/// joined.
fn names(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let (mut begins, mut joined) = (true, false);
    let mut after_in = None;
    for raw in text.split_whitespace() {
        let word = raw.trim_matches(|c: char| !c.is_alphanumeric());
        let lower = word.to_lowercase();
        let capital = word.chars().next().is_some_and(char::is_uppercase);
        let known = CITIES.contains(&lower.as_str());
        let named = known || (capital && !begins && !NOT_NAMES.contains(&lower.as_str()));
        if named {
            let word = capitalised(word);
            match found.last_mut() {
                Some(last) if joined => {
                    last.push(' ');
                    last.push_str(&word);
                }
                _ => found.push(word),
            }
        } else if after_in == Some(true) && word.len() > 2 && word.chars().all(char::is_alphabetic)
        {
            let common = ["the", "this", "that", "your", "our", "json", "one", "two", "three"];
            if found.is_empty() && !common.contains(&lower.as_str()) {
                found.push(capitalised(word));
            }
        }
        let ended = raw.ends_with(['.', '!', '?', ':', ';']);
        joined = named && !ended && !raw.ends_with(',');
        begins = ended;
        after_in = Some(lower == "in");
    }
    found.dedup();
    found.truncate(8);
    found
}

fn capitalised(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

fn numbers(text: &str) -> Vec<f64> {
    text.split(|c: char| !(c.is_ascii_digit() || c == '.' || c == '-'))
        .map(|word| word.trim_end_matches('.'))
        .filter(|word| word.chars().any(|c| c.is_ascii_digit()))
        .filter_map(|word| word.parse().ok())
        .take(16)
        .collect()
}

/// Hashes the content of a part, independent of its format.
fn part_hash(part: &Part) -> u64 {
    match &part.kind {
        PartKind::Text { text, .. } | PartKind::Refusal(text) => {
            seeded_random::hash(text.as_bytes())
        }
        PartKind::Thought(thought) => seeded_random::hash(thought.text.as_bytes()),
        PartKind::ToolCall(call) => seeded_random::hash(call.id.as_bytes()),
        PartKind::ToolResult(result) => seeded_random::hash(result.call_id.as_bytes()),
        // Only the size is hashed: reading megabytes would cost time.
        PartKind::Media(media) => match &media.source {
            MediaSource::Inline { data, .. } => data.len() as u64,
            MediaSource::Url { url, .. } => seeded_random::hash(url.as_bytes()),
            MediaSource::File { id, .. } => seeded_random::hash(id.as_bytes()),
            MediaSource::Text(text) => seeded_random::hash(text.as_bytes()),
        },
        PartKind::CodeExecution(code) => seeded_random::hash(code.code.as_bytes()),
        PartKind::CodeResult(outcome) => seeded_random::hash(outcome.output.as_bytes()),
        PartKind::WebSearch(_) | PartKind::Foreign { .. } => 1,
    }
}

/// Size of a request: input tokens, and the tokens of images, audio and video among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PromptSize {
    pub(crate) all: u64,
    pub(crate) images: u64,
    pub(crate) audio: u64,
    pub(crate) videos: u64,
}

/// Counts every text of a request, tools and schemas included.
pub(crate) fn measure_size(chat: &ChatRequest) -> PromptSize {
    let mut weight = PromptSize::default();
    for turn in &chat.turns {
        weight.all += TURN_TOKENS + turn.name.as_deref().map_or(0, tokens::count);
        for part in &turn.parts {
            weigh_part(part, &mut weight);
        }
    }
    for tool in &chat.tools {
        weight.all += weigh_tool(tool);
    }
    match &chat.response_format {
        canon::ResponseFormat::Text | canon::ResponseFormat::Json => {}
        canon::ResponseFormat::Schema { name, description, schema, strict: _ } => {
            weight.all += name.as_deref().map_or(0, tokens::count)
                + description.as_deref().map_or(0, tokens::count)
                + tokens::count(&schema.json.to_string());
        }
    }
    weight
}

fn weigh_part(part: &Part, weight: &mut PromptSize) {
    weight.all += match &part.kind {
        PartKind::Text { text, .. } | PartKind::Refusal(text) => tokens::count(text),
        PartKind::Thought(thought) => tokens::count(&thought.text),
        PartKind::ToolCall(call) => tokens::count(&call.name) + tokens::count(&call.arguments),
        PartKind::ToolResult(result) => {
            let media = result.parts.iter().filter(|part| as_media(part).is_some());
            media.for_each(|part| weigh_part(part, weight));
            tokens::count(&result.as_text())
        }
        PartKind::CodeExecution(code) => tokens::count(&code.code),
        PartKind::CodeResult(outcome) => tokens::count(&outcome.output),
        PartKind::WebSearch(search) => {
            search.queries.iter().map(|query| tokens::count(query)).sum()
        }
        PartKind::Foreign { value, .. } => tokens::count(&value.to_string()),
        PartKind::Media(media) => match (&media.source, media.kind) {
            (MediaSource::Text(text), _) => tokens::count(text),
            (_, canon::MediaKind::Image) => {
                weight.images += MEDIA_TOKENS;
                MEDIA_TOKENS
            }
            (_, canon::MediaKind::Audio) => {
                weight.audio += MEDIA_TOKENS;
                MEDIA_TOKENS
            }
            (_, canon::MediaKind::Video) => {
                weight.videos += MEDIA_TOKENS;
                MEDIA_TOKENS
            }
            (_, canon::MediaKind::Document) => MEDIA_TOKENS,
        },
    };
}

fn weigh_tool(tool: &Tool) -> u64 {
    let text = |text: &Option<String>| text.as_deref().map_or(0, tokens::count);
    let function = |tool: &FunctionTool| {
        let shape = tool.parameters.as_ref().map_or(0, |s| tokens::count(&s.json.to_string()));
        tokens::count(&tool.name) + text(&tool.description) + shape
    };
    match tool {
        Tool::Function(tool) => function(tool),
        Tool::Client(tool) => tool.functions.iter().map(function).sum(),
        Tool::Custom { name, description, grammar, .. } => {
            let grammar = grammar.as_ref().map_or(0, |g| tokens::count(&g.to_string()));
            tokens::count(name) + text(description) + grammar
        }
        Tool::WebSearch(_) | Tool::CodeExecution(_) | Tool::UrlFetch(_) => 4,
        Tool::Foreign { value, .. } => tokens::count(&value.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_inside_and_at_the_start_of_sentences() {
        assert_eq!(names("What is the weather in Paris?"), ["Paris"]);
        assert_eq!(names("Weather in Paris and Tokyo?"), ["Paris", "Tokyo"]);
        assert_eq!(names("Paris, London and New York please"), ["Paris", "London", "New York"]);
        assert_eq!(names("weather in springfield"), ["Springfield"]);
        assert!(names("Hello there. How are you?").is_empty());
    }

    #[test]
    fn context_of_an_agent_is_no_question() {
        let parts = |texts: &[&str]| texts.iter().map(|text| Part::text(*text)).collect::<Vec<_>>();
        let reminder = "<system-reminder>\nUse <b>tools</b>.\n</system-reminder>\n";
        assert_eq!(question(&parts(&[reminder, "What is 1 + 1?"])), "What is 1 + 1?");
        assert_eq!(question(&parts(&[reminder])), reminder);
        for text in ["a <b>", "<b>", "<a></b>", "<a>b</a> c", "<>", ""] {
            assert!(!is_context(text), "{text}");
        }
    }

    #[test]
    fn numbers_are_found() {
        assert_eq!(numbers("take 3 of 4.5, and -2."), [3.0, 4.5, -2.0]);
    }

    #[test]
    fn a_phrase_is_found_as_whole_words_only() {
        assert!(contains_words("oh, hi!", "hi"));
        assert!(!contains_words("this", "hi"));
    }
}

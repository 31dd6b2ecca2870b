//! Tool calls of the demo model and their arguments.

use canon::{ChatRequest, FunctionTool, Tool, ToolCall, ToolChoiceMode};
use serde_json::{Map, Value, json};

use super::instance::InstanceBuilder;
use super::pattern;
use super::prompt::{Prompt, contains_words};
use super::schema;
use super::script;
use super::talk::COMMON;
use crate::seeded_random::{self, SeededRandom};

/// Maximum number of calls in one answer.
const MAX_CALLS: usize = 8;

/// A tool that the caller runs.
#[derive(Clone, Copy)]
enum Callable<'a> {
    Function(&'a FunctionTool),
    Custom { name: &'a str, description: Option<&'a str>, grammar: Option<&'a Value> },
}

impl<'a> Callable<'a> {
    /// Returns the functions of a tool. One that a vendor defines may have several.
    fn of(tool: &'a Tool) -> Vec<Self> {
        match tool {
            Tool::Function(tool) => vec![Self::Function(tool)],
            Tool::Client(tool) => tool.functions.iter().map(Self::Function).collect(),
            Tool::Custom { name, description, grammar, extras: _ } => vec![Self::Custom {
                name,
                description: description.as_deref(),
                grammar: grammar.as_ref(),
            }],
            Tool::WebSearch(_)
            | Tool::CodeExecution(_)
            | Tool::UrlFetch(_)
            | Tool::Foreign { .. } => Vec::new(),
        }
    }

    fn name(self) -> &'a str {
        match self {
            Self::Function(tool) => &tool.name,
            Self::Custom { name, .. } => name,
        }
    }

    fn description(self) -> &'a str {
        match self {
            Self::Function(tool) => tool.description.as_deref().unwrap_or_default(),
            Self::Custom { description, .. } => description.unwrap_or_default(),
        }
    }
}

/// Returns the calls of one answer; none if the model answers itself.
pub(crate) fn calls(
    chat: &ChatRequest,
    prompt: &Prompt<'_>,
    random: &SeededRandom,
    take: u32,
) -> Vec<ToolCall> {
    if let Some(call) = prescribed(chat, prompt, take) {
        return vec![call];
    }
    let Some(tool) = chosen(chat, prompt) else { return Vec::new() };
    let several = chat.tool_choice.parallel != Some(false) && takes_a_name(tool);
    let count = if several { prompt.names.len().clamp(1, MAX_CALLS) } else { 1 };
    (0..count)
        .map(|item| ToolCall {
            id: call_id(prompt, take, item),
            name: tool.name().to_owned(),
            arguments: arguments(tool, prompt, random.clone(), item),
            custom: matches!(tool, Callable::Custom { .. }),
        })
        .collect()
}

fn call_id(prompt: &Prompt<'_>, take: u32, item: usize) -> String {
    let slot = (u64::from(take) << 32) | item as u64;
    format!("call_{}", seeded_random::word(seeded_random::join(prompt.mark, slot), 24))
}

/// Returns the next call that the prompt prescribes, if its tool is offered and may be called.
fn prescribed(chat: &ChatRequest, prompt: &Prompt<'_>, take: u32) -> Option<ToolCall> {
    let step = script::steps(&prompt.text).into_iter().nth(prompt.made_calls)?;
    let may = match &chat.tool_choice.mode {
        ToolChoiceMode::Unset | ToolChoiceMode::Auto | ToolChoiceMode::Required => true,
        ToolChoiceMode::Disabled => false,
        ToolChoiceMode::Tool(name) => name == step.tool,
        ToolChoiceMode::AnyOf { names, .. } => names.iter().any(|name| name == step.tool),
    };
    let mut offered = chat.tools.iter().flat_map(Callable::of);
    let tool = offered.find(|tool| may && tool.name() == step.tool)?;
    let text: Option<String> = serde_json::from_str(step.arguments).ok();
    let (arguments, custom) = match (tool, text) {
        (Callable::Custom { .. }, Some(text)) => (text, true),
        (Callable::Function(_), None) => (step.arguments.to_owned(), false),
        // A custom tool that was lowered to a function.
        (Callable::Function(_), Some(text)) => (json!({ "input": text }).to_string(), false),
        (Callable::Custom { .. }, None) => return None,
    };
    Some(ToolCall { id: call_id(prompt, take, 0), name: step.tool.to_owned(), arguments, custom })
}

fn chosen<'a>(chat: &'a ChatRequest, prompt: &Prompt<'_>) -> Option<Callable<'a>> {
    let all = || chat.tools.iter().flat_map(Callable::of);
    let best = |names: Option<&[String]>| {
        let allowed = |tool: &Callable<'_>| {
            names.is_none_or(|names| names.iter().any(|name| name == tool.name()))
        };
        // Returns the first of several equal ones; `max_by_key` would return the last.
        all()
            .filter(allowed)
            .map(|tool| (asked_for(tool, prompt), tool))
            .reduce(|one, two| if two.0 > one.0 { two } else { one })
    };
    let if_asked = |names| {
        let (score, tool) = best(names)?;
        (score >= 2 && prompt.results.is_empty() && !prompt.needs_no_tool()).then_some(tool)
    };
    match &chat.tool_choice.mode {
        ToolChoiceMode::Disabled => None,
        ToolChoiceMode::Unset | ToolChoiceMode::Auto => if_asked(None),
        ToolChoiceMode::Required => best(None).map(|(_, tool)| tool),
        ToolChoiceMode::Tool(name) => all().find(|tool| tool.name() == name),
        ToolChoiceMode::AnyOf { names, required: true } => best(Some(names)).map(|(_, tool)| tool),
        ToolChoiceMode::AnyOf { names, required: false } => if_asked(Some(names)),
    }
}

/// Scores how clearly the prompt asks for a tool: two for a word of its name, one for a word of its
/// description, more for its full name.
fn asked_for(tool: Callable<'_>, prompt: &Prompt<'_>) -> u32 {
    const VERBS: [&str; 18] = [
        "get", "set", "the", "for", "and", "tool", "function", "fetch", "list", "run", "make",
        "create", "read", "current", "lookup", "call", "user", "data",
    ];
    let mentioned = |word: &str| {
        contains_words(&prompt.lower, word) || contains_words(&prompt.lower, &format!("{word}s"))
    };
    let telling = |word: &&String| word.len() > 2 && !VERBS.contains(&word.as_str());
    let name = words_of(tool.name());
    let full = tool.name().to_lowercase();
    let by_full = if full.len() > 3 && contains_words(&prompt.lower, &full) { 10 } else { 0 };
    let by_name = name.iter().filter(telling).filter(|word| mentioned(word)).count() as u32 * 2;
    let by_description = words_of(tool.description())
        .iter()
        .take(100)
        .filter(telling)
        .filter(|word| word.len() > 3 && !COMMON.contains(&word.as_str()) && !name.contains(word))
        .filter(|word| mentioned(word))
        .count() as u32;
    by_full + by_name + by_description
}

/// Splits `get_weather`, `getWeather` or a sentence into lower-case words.
fn words_of(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut small_before = false;
    for letter in text.chars() {
        if !letter.is_alphanumeric() || (small_before && letter.is_uppercase()) {
            words.push(String::new());
        }
        small_before = letter.is_lowercase();
        if letter.is_alphanumeric()
            && let Some(word) = words.last_mut()
        {
            word.extend(letter.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words.sort();
    words.dedup();
    words
}

/// Returns true if each call takes one of the names in the prompt.
fn takes_a_name(tool: Callable<'_>) -> bool {
    let Callable::Function(FunctionTool { parameters: Some(shape), .. }) = tool else {
        return false;
    };
    let Some(flat) = schema::flat(&shape.json, &shape.json, &mut 100) else { return false };
    let Some(Value::Object(properties)) = flat.get("properties") else { return false };
    let about = ["city", "location", "place", "town", "name", "country", "destination"];
    properties.iter().any(|(name, property)| {
        let name = name.to_lowercase();
        let text =
            property.as_object().is_some_and(|p| schema::likely(p) == schema::JsonType::String);
        let listed = property.get("enum").is_some();
        text && !listed && about.iter().any(|word| name.contains(word))
    })
}

fn arguments(
    tool: Callable<'_>,
    prompt: &Prompt<'_>,
    mut random: SeededRandom,
    item: usize,
) -> String {
    match tool {
        Callable::Function(FunctionTool { parameters: Some(shape), .. }) => {
            let value = InstanceBuilder::new(prompt, &shape.json, random, item).make();
            // Arguments are an object in every format, even if the schema does not say so.
            let value = if value.is_object() { value } else { Value::Object(Map::new()) };
            value.to_string()
        }
        Callable::Function(_) => "{}".to_owned(),
        Callable::Custom { name, grammar, .. } => {
            let definition = grammar.and_then(regex_of);
            let fitting = definition.and_then(|regex| pattern::example(regex, 0, &mut random));
            fitting.unwrap_or_else(|| free_text(name, prompt))
        }
    }
}

/// Returns the regular expression of a custom tool's input, from either place where formats put it.
fn regex_of(grammar: &Value) -> Option<&str> {
    let inner = grammar.get("grammar").unwrap_or(grammar);
    let regex = inner.get("syntax").and_then(Value::as_str) == Some("regex");
    inner.get("definition").and_then(Value::as_str).filter(|_| regex)
}

fn free_text(name: &str, prompt: &Prompt<'_>) -> String {
    let name = name.to_lowercase();
    if ["code", "python", "exec", "script"].iter().any(|word| name.contains(word)) {
        return "print(\"hello world\")".to_owned();
    }
    if prompt.text.is_empty() { "hello".to_owned() } else { prompt.text.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_cut_into_its_words() {
        assert_eq!(words_of("get_weather"), ["get", "weather"]);
        assert_eq!(words_of("getLocalTime"), ["get", "local", "time"]);
    }
}

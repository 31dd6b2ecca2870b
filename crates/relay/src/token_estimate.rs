//! Token estimates for models whose tokeniser is not public.
//!
//! One pass over the characters with rules that common tokenisers share: a short word is one token,
//! long words are split, digits are grouped by three, punctuation counts, wide scripts count per
//! character.

use canon::{ChatRequest, FunctionTool, Media, MediaSource, Part, PartKind, ResponseFormat, Tool};

/// Tokens of a message besides its text.
const TURN_TOKENS: u64 = 4;
/// Tokens of media of unknown size.
const MEDIA_TOKENS: u64 = 256;

/// Estimates the tokens of a request.
pub fn estimate_request(chat: &ChatRequest) -> u64 {
    let turns: u64 = chat
        .turns
        .iter()
        .map(|turn| TURN_TOKENS + turn.parts.iter().map(estimate_part).sum::<u64>())
        .sum();
    let tools: u64 = chat.tools.iter().map(estimate_tool).sum();
    let format = match &chat.response_format {
        ResponseFormat::Text | ResponseFormat::Json => 0,
        ResponseFormat::Schema { schema, .. } => estimate_text(&schema.json.to_string()),
    };
    turns + tools + format
}

fn estimate_part(part: &Part) -> u64 {
    match &part.kind {
        PartKind::Text { text, .. } | PartKind::Refusal(text) => estimate_text(text),
        PartKind::Thought(thought) => estimate_text(&thought.text),
        PartKind::Media(Media { source: MediaSource::Text(text), .. }) => estimate_text(text),
        PartKind::Media(_) => MEDIA_TOKENS,
        PartKind::ToolCall(call) => {
            estimate_text(&call.name) + estimate_text(&call.arguments) + TURN_TOKENS
        }
        PartKind::ToolResult(result) => {
            let own = result.object.as_ref().map_or(0, |_| estimate_text(&result.as_text()));
            own + result.parts.iter().map(estimate_part).sum::<u64>() + TURN_TOKENS
        }
        PartKind::CodeExecution(code) => estimate_text(&code.code),
        PartKind::CodeResult(outcome) => estimate_text(&outcome.output),
        PartKind::WebSearch(search) => {
            search.queries.iter().map(|query| estimate_text(query)).sum()
        }
        PartKind::Foreign { value, .. } => estimate_text(&value.to_string()),
    }
}

fn estimate_tool(tool: &Tool) -> u64 {
    let text = match tool {
        Tool::Function(tool) => function_text(tool),
        Tool::Client(tool) => {
            let texts: Vec<String> = tool.functions.iter().map(function_text).collect();
            texts.join(" ")
        }
        Tool::Custom { name, description, .. } => {
            format!("{name} {}", description.as_deref().unwrap_or_default())
        }
        Tool::Foreign { value, .. } => value.to_string(),
        Tool::WebSearch(_) | Tool::CodeExecution(_) | Tool::UrlFetch(_) => return TURN_TOKENS,
    };
    estimate_text(&text) + TURN_TOKENS
}

fn function_text(tool: &FunctionTool) -> String {
    let schema = tool.parameters.as_ref().map(|schema| schema.json.to_string());
    let about = tool.description.as_deref().unwrap_or_default();
    format!("{} {about} {}", tool.name, schema.unwrap_or_default())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CharClass {
    Word,
    Digit,
    Space,
    Mark,
    Wide,
    Other,
}

/// Estimates the tokens of a text.
pub fn estimate_text(text: &str) -> u64 {
    let mut tokens = 0;
    let mut run = 0_u64;
    let mut last = CharClass::Space;
    for c in text.chars() {
        let script = char_class(c);
        if script != last {
            tokens += estimate_run(last, run);
            run = 0;
            last = script;
        }
        run += 1;
    }
    tokens + estimate_run(last, run)
}

const fn estimate_run(script: CharClass, length: u64) -> u64 {
    match script {
        // One space belongs to the following word; more are indentation.
        CharClass::Space => length.saturating_sub(1).div_ceil(8),
        CharClass::Word => length.div_ceil(7),
        CharClass::Digit | CharClass::Other => length.div_ceil(3),
        CharClass::Mark => length.div_ceil(2),
        CharClass::Wide => length,
    }
}

fn char_class(c: char) -> CharClass {
    match c {
        'a'..='z' | 'A'..='Z' | '\'' => CharClass::Word,
        '0'..='9' => CharClass::Digit,
        c if c.is_whitespace() => CharClass::Space,
        c if c.is_ascii() => CharClass::Mark,
        '\u{1100}'..='\u{11ff}' | '\u{2e80}'..='\u{d7ff}' | '\u{f900}'..='\u{faff}' => {
            CharClass::Wide
        }
        c if u32::from(c) > 0xffff => CharClass::Wide,
        _ => CharClass::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_are_close_to_real_counts() {
        // Counts of the o200k vocabulary (<https://github.com/openai/tiktoken>), with a tolerance
        // of a quarter.
        let cases = [
            ("The quick brown fox jumps over the lazy dog.", 10),
            ("Hello!", 2),
            ("def add(a, b):\n    return a + b\n", 14),
            ("你好，世界", 4),
            ("1234567890", 4),
        ];
        for (text, true_count) in cases {
            let estimate = estimate_text(text);
            assert!(estimate.abs_diff(true_count) <= true_count / 4 + 1, "{text}: {estimate}");
        }
    }
}

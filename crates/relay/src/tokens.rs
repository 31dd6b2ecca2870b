//! How many tokens a text has, roughly, for models whose tokeniser is their provider's secret.
//!
//! One pass over the characters with the habits common to today's tokenisers: short words are one
//! token, long ones are cut, digits go in threes, marks count, wide scripts count by character.

use canon::{ChatRequest, ResponseFormat, PartKind, Media, Part, MediaSource, Tool};

/// What a message costs besides its text.
const PER_TURN: u64 = 4;
/// A picture, sound or document, where nothing else is known.
const PER_MEDIA: u64 = 256;

/// The tokens of a whole request.
pub fn of_chat(chat: &ChatRequest) -> u64 {
    let turns: u64 =
        chat.turns.iter().map(|turn| PER_TURN + turn.parts.iter().map(of_part).sum::<u64>()).sum();
    let tools: u64 = chat.tools.iter().map(of_tool).sum();
    let format = match &chat.response_format {
        ResponseFormat::Text | ResponseFormat::Json => 0,
        ResponseFormat::Schema { schema, .. } => of_text(&schema.json.to_string()),
    };
    turns + tools + format
}

fn of_part(part: &Part) -> u64 {
    match &part.kind {
        PartKind::Text { text, .. } | PartKind::Refusal(text) => of_text(text),
        PartKind::Thought(thought) => of_text(&thought.text),
        PartKind::Media(Media { source: MediaSource::Text(text), .. }) => of_text(text),
        PartKind::Media(_) => PER_MEDIA,
        PartKind::ToolCall(call) => of_text(&call.name) + of_text(&call.arguments) + PER_TURN,
        PartKind::ToolResult(result) => {
            let own = result.object.as_ref().map_or(0, |_| of_text(&result.as_text()));
            own + result.parts.iter().map(of_part).sum::<u64>() + PER_TURN
        }
        PartKind::CodeExecution(code) => of_text(&code.code),
        PartKind::CodeResult(outcome) => of_text(&outcome.output),
        PartKind::WebSearch(search) => search.queries.iter().map(|query| of_text(query)).sum(),
        PartKind::Foreign { value, .. } => of_text(&value.to_string()),
    }
}

fn of_tool(tool: &Tool) -> u64 {
    let text = match tool {
        Tool::Function(tool) => {
            let schema = tool.parameters.as_ref().map(|schema| schema.json.to_string());
            let about = tool.description.as_deref().unwrap_or_default();
            format!("{} {about} {}", tool.name, schema.unwrap_or_default())
        }
        Tool::Custom { name, description, .. } => {
            format!("{name} {}", description.as_deref().unwrap_or_default())
        }
        Tool::Foreign { value, .. } => value.to_string(),
        Tool::WebSearch(_) | Tool::CodeExecution(_) | Tool::UrlFetch(_) => return PER_TURN,
    };
    of_text(&text) + PER_TURN
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Script {
    Word,
    Digit,
    Space,
    Mark,
    Wide,
    Other,
}

/// The tokens of a text.
pub fn of_text(text: &str) -> u64 {
    let mut tokens = 0;
    let mut run = 0_u64;
    let mut last = Script::Space;
    for c in text.chars() {
        let script = script(c);
        if script != last {
            tokens += of_run(last, run);
            run = 0;
            last = script;
        }
        run += 1;
    }
    tokens + of_run(last, run)
}

const fn of_run(script: Script, length: u64) -> u64 {
    match script {
        // One space belongs to the word behind it; more are indentation.
        Script::Space => length.saturating_sub(1).div_ceil(8),
        Script::Word => length.div_ceil(7),
        Script::Digit | Script::Other => length.div_ceil(3),
        Script::Mark => length.div_ceil(2),
        Script::Wide => length,
    }
}

fn script(c: char) -> Script {
    match c {
        'a'..='z' | 'A'..='Z' | '\'' => Script::Word,
        '0'..='9' => Script::Digit,
        c if c.is_whitespace() => Script::Space,
        c if c.is_ascii() => Script::Mark,
        '\u{1100}'..='\u{11ff}' | '\u{2e80}'..='\u{d7ff}' | '\u{f900}'..='\u{faff}' => Script::Wide,
        c if u32::from(c) > 0xffff => Script::Wide,
        _ => Script::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_is_near_what_tokenisers_say() {
        // The counts of the o200k vocabulary, give or take a quarter.
        let cases = [
            ("The quick brown fox jumps over the lazy dog.", 10),
            ("Hello!", 2),
            ("def add(a, b):\n    return a + b\n", 14),
            ("你好，世界", 4),
            ("1234567890", 4),
        ];
        for (text, true_count) in cases {
            let estimate = of_text(text);
            assert!(estimate.abs_diff(true_count) <= true_count / 4 + 1, "{text}: {estimate}");
        }
    }
}

//! Steps that a prompt prescribes: tool calls with their arguments, in order.
//!
//! `Use the write_file tool with {"path": "notes.txt", "text": "open"}` is one step. A custom tool
//! takes a JSON string. The model makes one call per answer and reports the result of the last.

use serde::de::IgnoredAny;

/// Words between the name of a tool and its arguments.
const LEAD: &str = " tool with ";
/// Number of leads that are read. A text may repeat a lead without arguments after it, and each is
/// searched to the end of the text.
const MAX_STEPS: usize = 64;

/// One prescribed call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScriptStep<'a> {
    /// Name of the tool.
    pub(crate) tool: &'a str,
    /// Arguments as they are written in the prompt: a JSON object, or a string for a custom tool.
    pub(crate) arguments: &'a str,
}

/// Returns the steps of a text in their order.
pub(crate) fn steps(text: &str) -> Vec<ScriptStep<'_>> {
    let mut steps = Vec::new();
    let mut rest = text;
    for _ in 0..MAX_STEPS {
        let Some((before, after)) = rest.split_once(LEAD) else { break };
        rest = after;
        let tool = before.rsplit(char::is_whitespace).next().unwrap_or_default();
        let Some(arguments) = leading_json(after) else { continue };
        rest = after.get(arguments.len()..).unwrap_or_default();
        let tool = tool.trim_matches('`');
        if !tool.is_empty() {
            steps.push(ScriptStep { tool, arguments });
        }
    }
    steps
}

/// Returns the JSON object or string that a text begins with.
fn leading_json(text: &str) -> Option<&str> {
    if !text.starts_with(['{', '"']) {
        return None;
    }
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<IgnoredAny>();
    values.next()?.ok()?;
    text.get(..values.byte_offset())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(&str, &str)> {
        steps(text).into_iter().map(|step| (step.tool, step.arguments)).collect()
    }

    #[test]
    fn steps_are_read_in_their_order() {
        let text = "Use the Write tool with {\"a\": {\"b\": \"}\"}}, then the `sh` tool with {} and \
                    the patch tool with \"*** Begin\\n\".";
        let wanted =
            [("Write", "{\"a\": {\"b\": \"}\"}}"), ("sh", "{}"), ("patch", "\"*** Begin\\n\"")];
        assert_eq!(found(text), wanted);
    }

    #[test]
    fn words_inside_arguments_are_no_step() {
        assert_eq!(found("the a tool with {\"t\": \"the b tool with {}\"}").len(), 1);
    }

    #[test]
    fn other_texts_have_no_steps() {
        for text in ["Use the Bash tool to run ls", "a tool with {broken", "a tool with care", ""] {
            assert_eq!(found(text), []);
        }
    }
}

//! Tools of the caller that take free text, as functions with one parameter.

use canon::{FunctionTool, JsonSchema};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::json_reader;
use crate::text::BorrowedText;

/// Loss text for a grammar that the model reads and the provider does not enforce.
pub(crate) const TOLD_GRAMMAR: &str = "the grammar is told to the model, but not enforced here";

/// Returns the function that stands for a custom tool. Its description has the grammar.
pub(crate) fn custom_function(
    name: &str,
    description: Option<&str>,
    grammar: Option<&Value>,
) -> FunctionTool {
    let rule = grammar.and_then(grammar_rule);
    let texts: Vec<&str> = description.into_iter().chain(rule.as_deref()).collect();
    let input = json!({"type": "string", "description": "The tool's input."});
    let schema = json!({"type": "object", "properties": {"input": input}, "required": ["input"]});
    FunctionTool {
        name: name.to_owned(),
        description: (!texts.is_empty()).then(|| texts.join("\n\n")),
        parameters: Some(JsonSchema::new(schema)),
        ..FunctionTool::default()
    }
}

/// Returns the sentence that tells a model about a grammar.
fn grammar_rule(format: &Value) -> Option<String> {
    let grammar = format.get("grammar").unwrap_or(format);
    let definition = grammar.get("definition").and_then(Value::as_str)?;
    let kind = match grammar.get("syntax").and_then(Value::as_str) {
        Some("regex") => "regular expression",
        Some("lark") => "Lark grammar",
        _ => "grammar",
    };
    Some(format!("`input` is plain text and must match this {kind}:\n{definition}"))
}

/// The object that the one parameter of such a function is in. Other arguments can be large, so they
/// are not read into a tree.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrappedInput<'a> {
    #[serde(borrow)]
    input: BorrowedText<'a>,
}

/// Returns the text inside the wrapper object. Arguments of any other shape are returned unchanged.
pub(crate) fn free_text(arguments: &str) -> String {
    // A list of one text would be read as the object.
    let is_object = arguments.trim_start().starts_with('{');
    let wrapped = is_object.then(|| json_reader::read::<WrappedInput<'_>>(arguments).ok());
    match wrapped.flatten() {
        Some(WrappedInput { input }) => input.into_owned(),
        None => arguments.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unwraps_only_wrapped_input() {
        assert_eq!(free_text(r#"{"input":"a\nb"}"#), "a\nb");
        assert_eq!(free_text(" { \"input\" : \"\u{e9}\\u00e9\" }\n"), "\u{e9}\u{e9}");
        for other in [
            r#"{"input":"a","x":1}"#,
            r#"{"x":[[1],2],"input":"a"}"#,
            r#"{"input":["a"]}"#,
            r#"{"input":"a"} b"#,
            r#"["a"]"#,
            "{}",
            "plain",
            "",
        ] {
            assert_eq!(free_text(other), other);
        }
    }

    #[test]
    fn the_description_has_the_grammar() {
        let grammar = json!({"syntax": "lark", "definition": "start: \"a\""});
        let nested = json!({"type": "grammar", "grammar": grammar.clone()});
        for grammar in [grammar, nested] {
            let about = custom_function("t", Some("Does it."), Some(&grammar)).description;
            let about = about.unwrap_or_default();
            assert!(about.starts_with("Does it.\n\n"), "{about}");
            assert!(about.contains("Lark grammar:\nstart: \"a\""), "{about}");
        }
        assert_eq!(custom_function("t", None, Some(&json!({"type": "text"}))).description, None);
    }
}

//! Changes of files in another vendor's words: patches and commands of an editor.
//!
//! A model may call `apply_patch` with the text of a patch, as its vendor's agents do, or call the editor
//! that it was trained on. Changes that both can express are translated. A patch cannot show a file or
//! count its lines, so these commands are not.

use canon::{ChatRequest, ClientTool, ClientToolKind, ToolCall};
use serde_json::{Map, Value, json};

use super::lane::is_named;
use super::screen::numbered;

/// Names of the editor of messages.
const EDITOR_NAMES: [&str; 2] = ["str_replace_based_edit_tool", "str_replace_editor"];
/// Name of the patch tool of responses.
const PATCH_NAME: &str = "apply_patch";

/// The caller's tool that changes files.
#[derive(Debug)]
pub(super) struct CallerPatches {
    name: String,
    takes_patches: bool,
    /// Names of another vendor's tool that no tool of the caller has.
    others: Vec<&'static str>,
}

impl CallerPatches {
    /// Returns the only tool of a request that changes files.
    pub(super) fn new(chat: &ChatRequest) -> Option<Self> {
        let is_kind = |tool: &&ClientTool| {
            matches!(tool.kind, ClientToolKind::ApplyPatch | ClientToolKind::TextEditor)
                && !tool.functions.is_empty()
        };
        let mut tools = ClientTool::all_in(&chat.tools).filter(is_kind);
        let (Some(tool), None) = (tools.next(), tools.next()) else { return None };
        let takes_patches = tool.kind == ClientToolKind::ApplyPatch;
        let others: &[&'static str] = if takes_patches { &EDITOR_NAMES } else { &[PATCH_NAME] };
        let is_free = |name: &&&'static str| !chat.tools.iter().any(|tool| is_named(tool, name));
        let others = others.iter().filter(is_free).copied().collect();
        Some(Self { name: tool.functions.first()?.name.clone(), takes_patches, others })
    }

    /// Returns true for a call that may have to be translated.
    pub(super) fn changes(&self, name: &str) -> bool {
        (self.takes_patches && self.name == name) || self.others.contains(&name)
    }

    /// Returns the caller's calls for one that may have another vendor's words.
    pub(super) fn raise(&self, call: ToolCall) -> Vec<ToolCall> {
        let given = match self.takes_patches {
            true => {
                let operations = read_operations(&call.arguments);
                operations.map(|all| all.into_iter().map(|one| json!({"operation": one})).collect())
            }
            false => read_operations(&call.arguments).and_then(|all| editor_commands(&all)),
        };
        let given: Vec<Value> = given.unwrap_or_default();
        if given.is_empty() {
            // The caller's patch tool says what is wrong with the arguments.
            let name = if self.takes_patches { self.name.clone() } else { call.name };
            return vec![ToolCall { name, ..call }];
        }
        let calls = given.into_iter().zip(1_usize..).map(|(given, number)| ToolCall {
            id: numbered(&call.id, number),
            name: self.name.clone(),
            arguments: given.to_string(),
            custom: false,
        });
        calls.collect()
    }
}

/// Reads operations from arguments in any of the known forms; `None` if they have none, or already the form
/// of one operation.
fn read_operations(arguments: &str) -> Option<Vec<Value>> {
    let given = match canon::read_value(arguments.as_bytes()) {
        Some(Value::Object(given)) => given,
        Some(Value::String(patch)) => return read_patch(&patch),
        _ => return read_patch(arguments),
    };
    let text = |name: &str| given.get(name).and_then(Value::as_str);
    if let Some(patch) = ["input", "patch", "diff"].iter().find_map(|name| text(name))
        && patch.trim_start().starts_with("*** Begin Patch")
    {
        return read_patch(patch);
    }
    if let Some(Value::Array(list)) = given.get("operations") {
        let all = list.iter().map(|one| one.as_object().filter(|one| is_operation(one)));
        return all.map(|one| one.cloned().map(Value::Object)).collect();
    }
    let inner = given.get("operation").and_then(Value::as_object).unwrap_or(&given);
    if is_operation(inner) {
        return Some(vec![Value::Object(inner.clone())]);
    }
    let path = text("path").filter(|path| !path.is_empty())?;
    let (kind, diff) = match text("command")? {
        "create" => {
            let lines = text("file_text")?.lines().map(|line| format!("+{line}"));
            ("create_file", lines.collect::<Vec<_>>().join("\n"))
        }
        "str_replace" => ("update_file", hunk(text("old_str")?, text("new_str").unwrap_or(""))?),
        _ => return None,
    };
    Some(vec![json!({"type": kind, "path": path, "diff": diff})])
}

/// Returns the hunk that replaces one text by another; `None` for texts that join lines or are no lines.
///
/// A patch has whole lines. If the text is a part of a line, the caller's program does not find it and says so.
fn hunk(old: &str, new: &str) -> Option<String> {
    let (old, new) = match old.strip_suffix('\n') {
        Some(old) if new.is_empty() => (old, None),
        Some(old) => (old, Some(new.strip_suffix('\n')?)),
        None => (old, Some(new)),
    };
    let removed = Some(old).filter(|old| !old.trim().is_empty())?.split('\n');
    let removed = removed.map(|line| format!("-{line}"));
    let added = new.into_iter().flat_map(|new| new.split('\n')).map(|line| format!("+{line}"));
    let lines = std::iter::once("@@".to_owned()).chain(removed).chain(added);
    Some(lines.collect::<Vec<_>>().join("\n"))
}

fn is_operation(fields: &Map<String, Value>) -> bool {
    let text = |name: &str| fields.get(name).and_then(Value::as_str);
    let has_path = text("path").is_some_and(|path| !path.is_empty());
    match text("type") {
        Some("create_file" | "update_file") => has_path && text("diff").is_some(),
        Some("delete_file") => has_path,
        _ => false,
    }
}

/// Reads the text of a patch for several files. A patch that moves a file has no operation.
fn read_patch(patch: &str) -> Option<Vec<Value>> {
    const FILE_HEADS: [(&str, &str); 3] = [
        ("*** Add File: ", "create_file"),
        ("*** Update File: ", "update_file"),
        ("*** Delete File: ", "delete_file"),
    ];
    let mut lines = patch.trim().lines();
    lines.next().filter(|line| line.trim() == "*** Begin Patch")?;
    let mut files: Vec<(&str, &str, Vec<&str>)> = Vec::new();
    for line in lines {
        let head =
            FILE_HEADS.iter().find_map(|(head, kind)| Some((line.strip_prefix(head)?, *kind)));
        match head {
            Some((path, kind)) => files.push((kind, path.trim(), Vec::new())),
            None if line.trim() == "*** End Patch" => break,
            None if line.starts_with("*** Move to: ") => return None,
            None => files.last_mut()?.2.push(line),
        }
    }
    let operations = files.into_iter().map(|(kind, path, diff)| match kind {
        "delete_file" => json!({"type": kind, "path": path}),
        kind => json!({"type": kind, "path": path, "diff": diff.join("\n")}),
    });
    let operations: Vec<Value> = operations.collect();
    operations.iter().all(|one| one.as_object().is_some_and(is_operation)).then_some(operations)
}

/// Returns the editor's commands for operations; `None` if it cannot express one of them.
fn editor_commands(operations: &[Value]) -> Option<Vec<Value>> {
    let mut commands = Vec::new();
    for operation in operations {
        let text = |name: &str| operation.get(name).and_then(Value::as_str);
        let (path, diff) = (text("path")?, text("diff")?);
        if text("type")? == "create_file" {
            let lines = diff.lines().map(|line| line.strip_prefix('+').unwrap_or(line));
            let text: Vec<&str> = lines.collect();
            commands.push(json!({"command": "create", "path": path, "file_text": text.join("\n")}));
            continue;
        }
        for (old, new) in read_hunks(diff)? {
            commands.push(
                json!({"command": "str_replace", "path": path, "old_str": old, "new_str": new}),
            );
        }
    }
    Some(commands)
}

/// Returns the texts before and after each hunk of a diff; `None` if one does not say where it belongs.
fn read_hunks(diff: &str) -> Option<Vec<(String, String)>> {
    let mut hunks: Vec<(Vec<&str>, Vec<&str>)> = vec![(Vec::new(), Vec::new())];
    for line in diff.lines().filter(|line| *line != "*** End of File") {
        if line.starts_with("@@") {
            hunks.push((Vec::new(), Vec::new()));
            continue;
        }
        let (old, new) = hunks.last_mut()?;
        if let Some(removed) = line.strip_prefix('-') {
            old.push(removed);
        } else if let Some(added) = line.strip_prefix('+') {
            new.push(added);
        } else {
            let kept = line.strip_prefix(' ').unwrap_or(line);
            old.push(kept);
            new.push(kept);
        }
    }
    hunks.retain(|(old, new)| old != new);
    let hunks = hunks.into_iter().map(|(old, new)| {
        let old = Some(old.join("\n")).filter(|old| !old.is_empty())?;
        Some((old, new.join("\n")))
    });
    hunks.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_of_several_files_is_several_operations() {
        let patch = "*** Begin Patch\n*** Add File: a\n+one\n+two\n*** Update File: b\n@@ fn x\n c\n-d\n+e\n\
            *** Delete File: f\n*** End Patch\n";
        let meant = json!([
            {"type": "create_file", "path": "a", "diff": "+one\n+two"},
            {"type": "update_file", "path": "b", "diff": "@@ fn x\n c\n-d\n+e"},
            {"type": "delete_file", "path": "f"},
        ]);
        for given in [
            patch.to_owned(),
            json!(patch).to_string(),
            json!({"input": patch}).to_string(),
            json!({"patch": patch}).to_string(),
            json!({"operations": meant}).to_string(),
        ] {
            assert_eq!(read_operations(&given).map(Value::from), Some(meant.clone()), "{given}");
        }
        for other in [
            "*** Begin Patch\n*** Update File: a\n*** Move to: b\n@@\n-a\n+b\n*** End Patch",
            "*** Begin Patch\nx\n*** End Patch",
            r#"{"command":"view","path":"a"}"#,
            r#"{"command":"insert","path":"a","insert_line":3,"insert_text":"c"}"#,
            r#"{"command":"str_replace","path":"a","old_str":" ","new_str":"c"}"#,
            r#"{"command":"str_replace","path":"a","old_str":"b\nc\n","new_str":"d"}"#,
            "7",
            "",
        ] {
            assert_eq!(read_operations(other), None, "{other}");
        }
    }

    #[test]
    fn changes_are_commands_of_an_editor_and_back() {
        let create = json!({"command": "create", "path": "a", "file_text": "one\ntwo"});
        let operations = read_operations(&create.to_string()).unwrap();
        assert_eq!(operations[0]["diff"], "+one\n+two");
        assert_eq!(editor_commands(&operations), Some(vec![create]));
        let update = json!({"type": "update_file", "path": "a", "diff": "@@\n one\n-two\n+three\n@@\n-x\n+y"});
        let commands = editor_commands(&[update]).unwrap();
        assert_eq!(
            (&commands[0]["old_str"], &commands[0]["new_str"]),
            (&json!("one\ntwo"), &json!("one\nthree"))
        );
        assert_eq!(commands[1]["old_str"], "x");
        for (old, new, diff) in [
            ("b", "c", "@@\n-b\n+c"),
            ("b\nc", "d\n", "@@\n-b\n-c\n+d\n+"),
            ("b\n", "c\nd\n", "@@\n-b\n+c\n+d"),
            ("b\n", "", "@@\n-b"),
            ("b", "", "@@\n-b\n+"),
        ] {
            let replace =
                json!({"command": "str_replace", "path": "a", "old_str": old, "new_str": new});
            let operations = read_operations(&replace.to_string()).unwrap();
            assert_eq!(operations[0]["type"], "update_file");
            assert_eq!(operations[0]["diff"], diff);
        }
        // Without a line of the file, the place of the text is not known.
        assert_eq!(
            editor_commands(&[json!({"type": "update_file", "path": "a", "diff": "@@\n+y"})]),
            None
        );
        assert_eq!(editor_commands(&[json!({"type": "delete_file", "path": "a"})]), None);
    }
}

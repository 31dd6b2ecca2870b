//! Tools that a lane takes in its own form: custom tools, and the shell and the computer of its vendor.
//!
//! A lane names the kinds that it takes (`client_tools` in its provider's data). A custom tool for a lane
//! that takes none is a function. A shell of another vendor becomes the lane's own shell, and its calls and
//! results in the history become the lane's own too.

use canon::{
    ChatRequest, ClientTool, ClientToolKind, Losses, Part, PartKind, Tool, ToolCall,
    ToolChoiceMode, ToolKind, ToolResult, WireFormat,
};
use serde_json::{Value, json};
use std::collections::HashSet;

use super::BASH_NAME;
use super::custom::{TOLD_GRAMMAR, custom_function};
use super::screen_lane::{OwnScreen, ScreenExchange};

/// The shell of a format, which may stand in place of another vendor's.
#[derive(Debug)]
pub(crate) struct OwnShell {
    /// Returns its declaration.
    pub(crate) tool: fn() -> Option<ClientTool>,
    /// Items of the format for its calls and results; `None` if these are ordinary ones.
    pub(crate) items: Option<OwnItems>,
}

/// Functions that make the items of a format's own tool.
#[derive(Debug)]
pub(crate) struct OwnItems {
    pub(crate) note_call: fn(&mut Part),
    pub(crate) note_result: fn(&mut Part),
}

/// Returns the request as a lane takes it, and the losses of that; `None` if it needs no change.
pub(crate) fn for_lane(
    chat: &ChatRequest,
    format: WireFormat,
    own_shell: Option<&OwnShell>,
    own_screen: Option<&OwnScreen>,
    taken: &[ToolKind],
) -> Option<(ChatRequest, Losses)> {
    let takes = |kind| taken.contains(&kind);
    let has_custom = chat.tools.iter().any(|tool| matches!(tool, Tool::Custom { .. }));
    let may_have_custom = matches!(format, WireFormat::Chat | WireFormat::Responses);
    let lowers_custom = has_custom && may_have_custom && !takes(ToolKind::Custom);
    let shell = own_shell.filter(|_| takes(ToolKind::Shell));
    let shell = shell.and_then(|shell| Counterpart::new(chat, format, shell));
    let screen = own_screen.filter(|_| takes(ToolKind::ComputerUse));
    let screen = screen.and_then(|screen| ScreenExchange::new(chat, format, screen));
    if !lowers_custom && shell.is_none() && screen.is_none() {
        return None;
    }
    let (mut chat, mut losses) = (chat.clone(), Losses::new());
    if lowers_custom {
        lower_custom(&mut chat, &mut losses);
    }
    if let Some(shell) = shell {
        shell.apply(&mut chat);
    }
    if let Some(screen) = screen {
        screen.apply(&mut chat, &mut losses);
    }
    Some((chat, losses))
}

/// Makes functions of custom tools.
fn lower_custom(chat: &mut ChatRequest, losses: &mut Losses) {
    for tool in &mut chat.tools {
        if let Tool::Custom { name, description, grammar, extras } = tool {
            losses.add_if(grammar.is_some(), "tools.grammar", TOLD_GRAMMAR);
            let mut function = custom_function(name, description.as_deref(), grammar.as_ref());
            function.extras = std::mem::take(extras);
            *tool = Tool::Function(function);
        }
    }
    for part in chat.turns.iter_mut().flat_map(|turn| &mut turn.parts) {
        if let PartKind::ToolCall(call @ ToolCall { custom: true, .. }) = &mut part.kind {
            call.arguments = json!({"input": call.arguments}).to_string();
            call.custom = false;
        }
    }
}

/// The shell of a lane in place of the caller's.
struct Counterpart<'a> {
    /// Name of the function of the caller's shell.
    name: String,
    tool: ClientTool,
    items: Option<&'a OwnItems>,
}

impl<'a> Counterpart<'a> {
    /// Returns the shell of a format in place of that of another one.
    fn new(chat: &ChatRequest, format: WireFormat, shell: &'a OwnShell) -> Option<Self> {
        let is_shell = |tool: &&ClientTool| match format {
            WireFormat::Messages => {
                matches!(tool.kind, ClientToolKind::Shell | ClientToolKind::LocalShell)
            }
            WireFormat::Responses => tool.kind == ClientToolKind::Bash,
            WireFormat::Chat | WireFormat::Native | WireFormat::Images => false,
        };
        let mut shells = ClientTool::all_in(&chat.tools).filter(is_shell);
        // Two shells would be one tool.
        let (Some(own), None) = (shells.next(), shells.next()) else { return None };
        let has_name = |name: &str| chat.tools.iter().any(|tool| is_named(tool, name));
        let is_impossible = match &shell.items {
            // The format fixes the name.
            None => has_name(BASH_NAME),
            // Results of the format's own shell are text.
            Some(_) => has_media_result(chat),
        };
        if is_impossible {
            return None;
        }
        let (tool, items) = ((shell.tool)()?, shell.items.as_ref());
        Some(Self { name: own.functions.first()?.name.clone(), tool, items })
    }

    fn apply(self, chat: &mut ChatRequest) {
        let Self { name, tool, items } = self;
        let own_name = tool.functions.first().map(|function| function.name.clone());
        let own_name = own_name.unwrap_or_default();
        let is_shell =
            |tool: &ClientTool| tool.functions.iter().any(|function| function.name == name);
        let format = tool.origin;
        for slot in &mut chat.tools {
            if matches!(slot, Tool::Client(tool) if is_shell(tool)) {
                *slot = Tool::Client(Box::new(tool.clone()));
            }
        }
        let chosen = match &mut chat.tool_choice.mode {
            ToolChoiceMode::Tool(chosen) => std::slice::from_mut(chosen),
            ToolChoiceMode::AnyOf { names, .. } => names.as_mut_slice(),
            ToolChoiceMode::Unset
            | ToolChoiceMode::Auto
            | ToolChoiceMode::Disabled
            | ToolChoiceMode::Required => &mut [],
        };
        chosen.iter_mut().filter(|chosen| **chosen == name).for_each(|c| c.clone_from(&own_name));
        let mut ids = HashSet::new();
        for part in chat.turns.iter_mut().flat_map(|turn| &mut turn.parts) {
            match &mut part.kind {
                PartKind::ToolCall(call) if call.name == name => {
                    ids.insert(call.id.clone());
                    call.name.clone_from(&own_name);
                    call.arguments = other_arguments(format, &call.arguments);
                    if let Some(items) = items {
                        (items.note_call)(part);
                    }
                }
                PartKind::ToolResult(ToolResult { call_id, .. }) if ids.contains(&*call_id) => {
                    if let Some(items) = items {
                        (items.note_result)(part);
                    }
                }
                _ => {}
            }
        }
    }
}

fn has_media_result(chat: &ChatRequest) -> bool {
    let has_media = |part: &Part| match &part.kind {
        PartKind::ToolResult(result) => result.parts.iter().any(|part| part.as_text().is_none()),
        _ => false,
    };
    chat.turns.iter().flat_map(|turn| &turn.parts).any(has_media)
}

/// Returns true for a tool whose calls have the name.
pub(crate) fn is_named(tool: &Tool, name: &str) -> bool {
    match tool {
        Tool::Function(tool) => tool.name == name,
        Tool::Custom { name: own, .. } => own == name,
        Tool::Client(tool) => tool.functions.iter().any(|function| function.name == name),
        Tool::WebSearch(_) | Tool::CodeExecution(_) | Tool::UrlFetch(_) | Tool::Foreign { .. } => {
            false
        }
    }
}

/// Returns the arguments of a shell call for the shell of a format.
pub(crate) fn other_arguments(format: WireFormat, arguments: &str) -> String {
    let given = canon::read_value(arguments.as_bytes()).unwrap_or_default();
    let texts = |name: &str| {
        let texts: Option<Vec<&str>> =
            given.get(name)?.as_array()?.iter().map(Value::as_str).collect();
        texts
    };
    let text = |name: &str| given.get(name).and_then(Value::as_str).map(str::to_owned);
    match format {
        WireFormat::Messages => {
            let command = texts("commands").map(|commands| commands.join("\n"));
            let program = || texts("command").map(|words| program_line(&words));
            match command.or_else(program).or_else(|| text("command")) {
                Some(command) => json!({"command": command}).to_string(),
                None => arguments.to_owned(),
            }
        }
        _ => match text("command") {
            Some(command) => json!({"commands": [command]}).to_string(),
            None => arguments.to_owned(),
        },
    }
}

/// Returns a program and its arguments as a line for a shell.
fn program_line(words: &[&str]) -> String {
    match words {
        ["sh" | "bash", "-c" | "-lc", command] => (*command).to_owned(),
        words => words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "),
    }
}

fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./=:,+@%".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_of_a_shell_fit_the_other_one() {
        for (given, bash) in [
            (r#"{"commands":["a","b"]}"#, r#"{"command":"a\nb"}"#),
            (r#"{"command":["bash","-lc","ls -l"]}"#, r#"{"command":"ls -l"}"#),
            (r#"{"command":["echo","it's","a b"]}"#, r#"{"command":"echo 'it'\\''s' 'a b'"}"#),
            (r#"{"x":1}"#, r#"{"x":1}"#),
        ] {
            assert_eq!(other_arguments(WireFormat::Messages, given), bash);
        }
        let shell = other_arguments(WireFormat::Responses, r#"{"command":"ls"}"#);
        assert_eq!(shell, r#"{"commands":["ls"]}"#);
    }
}

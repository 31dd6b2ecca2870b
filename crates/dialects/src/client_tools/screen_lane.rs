//! The computer of a lane's vendor in place of the caller's: declaration, choice, calls and results.

use canon::{
    ChatRequest, ClientTool, ClientToolKind, Losses, Part, PartKind, Tool, ToolCall,
    ToolChoiceMode, ToolResult, Turn, WireFormat,
};
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};

use super::computer_actions::for_messages;
use super::display_size::{DisplaySize, scale_action};
use super::lane::OwnItems;
use super::native_actions::{NativeCalls, added_functions, screen_functions};
use super::screen::{CallerScreen, is_image, note_lost, numbered};

/// The computer of a format, which may stand in place of another vendor's.
#[derive(Debug)]
pub(crate) struct OwnScreen {
    /// Returns its declaration for a screen of that size.
    pub(crate) tool: fn(DisplaySize) -> Option<ClientTool>,
    /// Items of the format for its calls and results; `None` if these are ordinary ones.
    pub(crate) items: Option<OwnItems>,
    /// Header that a provider of the format wants for it.
    pub(crate) header: Option<(&'static str, &'static str)>,
}

/// The computer of a lane in place of the caller's.
pub(super) struct ScreenExchange<'a> {
    screen: CallerScreen,
    caller_size: DisplaySize,
    lane_size: DisplaySize,
    format: WireFormat,
    tool: ClientTool,
    items: Option<&'a OwnItems>,
}

/// Fate of a call in the history.
enum PastCall {
    /// The ids of the calls that stand for it.
    Carried(Vec<String>),
    /// It is told as text.
    Told,
}

impl<'a> ScreenExchange<'a> {
    /// Returns the exchange; `None` if the caller's computer has to stay a function.
    pub(super) fn new(chat: &ChatRequest, format: WireFormat, own: &'a OwnScreen) -> Option<Self> {
        let screen = CallerScreen::new(chat)?;
        let (caller_size, lane_size) = (screen.size?, screen.lane_size(format)?);
        // An output of the responses format's own computer is a screenshot.
        let ids = call_ids(chat, &screen);
        if own.items.is_some() && !chat.turns.iter().all(|turn| has_screenshot(turn, &ids)) {
            return None;
        }
        let (tool, items) = ((own.tool)(lane_size)?, own.items.as_ref());
        Some(Self { screen, caller_size, lane_size, format, tool, items })
    }

    pub(super) fn apply(self, chat: &mut ChatRequest, losses: &mut Losses) {
        self.declare(chat, losses);
        self.choose(&mut chat.tool_choice.mode);
        let mut past = HashMap::new();
        for turn in &mut chat.turns {
            self.convert_turn(turn, &mut past, losses);
        }
    }

    fn declare(&self, chat: &mut ChatRequest, losses: &mut Losses) {
        let mut tools = Vec::with_capacity(chat.tools.len());
        for tool in std::mem::take(&mut chat.tools) {
            match tool {
                Tool::Client(own) if own.kind == self.screen.kind && !own.functions.is_empty() => {
                    let zooms = own.value.get("enable_zoom") == Some(&Value::Bool(true));
                    if zooms && own.kind == ClientToolKind::Computer {
                        note_lost(&json!({"action": "zoom"}), losses);
                    }
                    tools.push(Tool::Client(Box::new(self.tool.clone())));
                    if self.format == WireFormat::Native {
                        tools.extend(added_functions().map(Tool::Function));
                    }
                    let rest = own.functions.into_iter();
                    let rest = rest.filter(|function| !self.screen.replaces(&function.name));
                    tools.extend(rest.map(Tool::Function));
                }
                Tool::Client(own) if own.kind == self.screen.kind => {}
                tool => tools.push(tool),
            }
        }
        chat.tools = tools;
    }

    /// Returns the names of the lane's computer.
    fn lane_names(&self) -> Vec<String> {
        match self.format {
            WireFormat::Native => screen_functions().map(str::to_owned).collect(),
            _ => self.tool.functions.iter().map(|function| function.name.clone()).collect(),
        }
    }

    fn choose(&self, mode: &mut ToolChoiceMode) {
        let (names, required) = match &*mode {
            ToolChoiceMode::Tool(name) => (vec![name.clone()], true),
            ToolChoiceMode::AnyOf { names, required } => (names.clone(), *required),
            ToolChoiceMode::Unset
            | ToolChoiceMode::Auto
            | ToolChoiceMode::Disabled
            | ToolChoiceMode::Required => return,
        };
        let mut chosen: Vec<String> = Vec::new();
        for name in names {
            let lane = if self.screen.replaces(&name) { self.lane_names() } else { vec![name] };
            let new = lane.into_iter().filter(|name| !chosen.contains(name)).collect::<Vec<_>>();
            chosen.extend(new);
        }
        *mode = match (required, chosen.as_slice()) {
            (true, [only]) => ToolChoiceMode::Tool(only.clone()),
            _ => ToolChoiceMode::AnyOf { names: chosen, required },
        };
    }

    fn convert_turn(
        &self,
        turn: &mut Turn,
        past: &mut HashMap<String, PastCall>,
        losses: &mut Losses,
    ) {
        let is_ours = |part: &Part| match &part.kind {
            PartKind::ToolCall(call) => self.screen.replaces(&call.name),
            PartKind::ToolResult(result) => past.contains_key(&result.call_id),
            _ => false,
        };
        if !turn.parts.iter().any(is_ours) {
            return;
        }
        let image = last_image(turn);
        // Results come first in a turn.
        let (mut parts, mut after) = (Vec::with_capacity(turn.parts.len()), Vec::new());
        for part in std::mem::take(&mut turn.parts) {
            match &part.kind {
                PartKind::ToolCall(call) if self.screen.replaces(&call.name) => {
                    let (id, fate, new) = self.convert_call(part, losses);
                    past.insert(id, fate);
                    parts.extend(new);
                }
                PartKind::ToolResult(result) => match past.get(&result.call_id) {
                    Some(PastCall::Carried(ids)) => {
                        parts.extend(self.convert_result(part, ids, image.as_ref(), &mut after));
                    }
                    Some(PastCall::Told) => after.extend(told_result(part)),
                    None => parts.push(part),
                },
                _ => parts.push(part),
            }
        }
        parts.extend(after);
        turn.parts = parts;
    }

    /// Converts a call of the history. One without a counterpart becomes text.
    fn convert_call(&self, part: Part, losses: &mut Losses) -> (String, PastCall, Vec<Part>) {
        let PartKind::ToolCall(call) = &part.kind else {
            return (String::new(), PastCall::Told, vec![part]);
        };
        let id = call.id.clone();
        let Some(calls) = self.lane_calls(call).filter(|calls| !calls.is_empty()) else {
            let given = canon::read_value(call.arguments.as_bytes()).unwrap_or_default();
            note_lost(&given, losses);
            let told = format!("Called {}: {}", call.name, call.arguments);
            return (id, PastCall::Told, vec![Part::text(told)]);
        };
        let (mut ids, mut parts, mut first) = (Vec::new(), Vec::new(), Some(part));
        for ((name, arguments), number) in calls.into_iter().zip(1_usize..) {
            let id = numbered(&id, number);
            ids.push(id.clone());
            let call = ToolCall { id, name, arguments: arguments.to_string(), custom: false };
            let mut part = first.take().unwrap_or_else(|| Part::text(String::new()));
            part.kind = PartKind::ToolCall(call);
            if let Some(items) = self.items {
                (items.note_call)(&mut part);
            }
            parts.push(part);
        }
        (id, PastCall::Carried(ids), parts)
    }

    /// Returns the calls of the lane's computer for one of the caller's.
    fn lane_calls(&self, call: &ToolCall) -> Option<Vec<(String, Value)>> {
        let mut actions = self.screen.read(call)?;
        for action in &mut actions {
            scale_action(action, self.caller_size, self.lane_size);
        }
        let name = self.tool.functions.first()?.name.clone();
        match self.format {
            WireFormat::Messages => {
                let calls = actions.iter().map(|action| for_messages(action.as_object()?));
                calls.map(|given| Some((name.clone(), given?))).collect()
            }
            WireFormat::Native => {
                let mut native =
                    NativeCalls { has_added: true, excluded: &|_| false, cursor: None };
                let calls = actions.iter().map(|action| native.write(action));
                calls.map(|call| call.map(|(name, given)| (name.to_owned(), given))).collect()
            }
            WireFormat::Responses | WireFormat::Chat | WireFormat::Images => {
                Some(vec![(name, json!({"actions": actions}))])
            }
        }
    }

    /// Converts a result. Of several calls in place of one, the last has it.
    fn convert_result(
        &self,
        mut part: Part,
        ids: &[String],
        image: Option<&Part>,
        after: &mut Vec<Part>,
    ) -> Vec<Part> {
        let PartKind::ToolResult(result) = &mut part.kind else { return vec![part] };
        let Some((last, before)) = ids.split_last() else { return vec![part] };
        let done = before.iter().map(|id| {
            let (call_id, parts) = (id.clone(), vec![Part::text("done".to_owned())]);
            let result = ToolResult { call_id, name: None, parts, object: None, is_error: false };
            Part::new(PartKind::ToolResult(result))
        });
        let mut parts: Vec<Part> = done.collect();
        result.call_id.clone_from(last);
        result.name = None;
        let text = result.as_text();
        match self.format {
            WireFormat::Native if result.object.is_none() && !result.is_error => {
                // That format wants the address of the page, which other computers do not have.
                let object = json!({"url": "about:blank", "output": text});
                result.object = Some(object.to_string());
            }
            WireFormat::Responses => {
                if !result.parts.iter().any(is_image) {
                    result.parts.extend(image.cloned());
                }
                let text = match (text.is_empty(), result.is_error) {
                    (_, true) => Some(format!("The action failed. {text}")),
                    (false, false) => Some(text),
                    (true, false) => None,
                };
                after.extend(text.map(Part::text));
            }
            WireFormat::Native | WireFormat::Messages | WireFormat::Chat | WireFormat::Images => {}
        }
        if let Some(items) = self.items {
            (items.note_result)(&mut part);
        }
        parts.push(part);
        parts
    }
}

/// Returns a result as parts of the user's turn.
fn told_result(part: Part) -> Vec<Part> {
    let PartKind::ToolResult(result) = part.kind else { return vec![part] };
    let text = Some(result.as_text()).filter(|text| !text.is_empty()).map(Part::text);
    let media = result.parts.into_iter().filter(|part| part.as_text().is_none());
    text.into_iter().chain(media).collect()
}

fn last_image(turn: &Turn) -> Option<Part> {
    let mut images = turn.parts.iter().rev().filter_map(|part| match &part.kind {
        PartKind::ToolResult(result) => result.parts.iter().rev().find(|part| is_image(part)),
        _ => None,
    });
    images.next().cloned()
}

/// Returns the ids of the calls of the computer.
fn call_ids<'c>(chat: &'c ChatRequest, screen: &CallerScreen) -> HashSet<&'c str> {
    let parts = chat.turns.iter().flat_map(|turn| &turn.parts);
    let ids = parts.filter_map(|part| match &part.kind {
        PartKind::ToolCall(call) if screen.replaces(&call.name) => Some(call.id.as_str()),
        _ => None,
    });
    ids.collect()
}

/// Returns true unless a turn has results of the computer and none of them has an image.
fn has_screenshot(turn: &Turn, ids: &HashSet<&str>) -> bool {
    let is_screen_result = |part: &Part| match &part.kind {
        PartKind::ToolResult(result) => ids.contains(result.call_id.as_str()),
        _ => false,
    };
    last_image(turn).is_some() || !turn.parts.iter().any(is_screen_result)
}

//! The computer of a caller: its measure of positions, and its calls as actions.
//!
//! Actions have the words of the responses format between any two formats. Each side has a measure of its
//! own: a declared size in pixels, the size of the last screenshot, or the grid of the native format.

use canon::{
    ChatRequest, ClientTool, ClientToolKind, Losses, Media, MediaKind, MediaSource, Part, PartKind,
    ToolCall, WireFormat,
};
use serde_json::{Map, Value, json};

use super::computer_actions::{for_messages, for_responses};
use super::display_size::{DisplaySize, scale_action};
use super::lane::is_named;
use super::native_actions::{self, NativeCalls, is_screen_function, screen_functions};

/// The name of the computer of messages, which that format fixes.
pub(super) const COMPUTER_NAME: &str = "computer";

const NO_COUNTERPART: &str = "the other format's computer has no such action";

/// Words of actions, as losses name them.
const ACTION_WORDS: [&str; 12] = [
    "cursor_position",
    "click",
    "double_click",
    "drag",
    "hold_key",
    "left_mouse_down",
    "left_mouse_up",
    "move",
    "scroll",
    "triple_click",
    "type",
    "zoom",
];

/// The computer that the caller declared.
#[derive(Debug)]
pub(super) struct CallerScreen {
    pub(super) kind: ClientToolKind,
    pub(super) format: WireFormat,
    /// Names of its functions.
    pub(super) names: Vec<String>,
    /// Measure of the caller's positions; `None` if nothing tells it.
    pub(super) size: Option<DisplaySize>,
    /// Size of the last screenshot.
    screenshot: Option<DisplaySize>,
    /// The last position in the history of a native caller.
    cursor: Option<(i64, i64)>,
    /// Formats whose computer has a name that another tool has.
    hidden: Vec<WireFormat>,
}

/// A call of a lane's computer, for the caller.
pub(super) enum RaisedCall {
    Calls(Vec<ToolCall>),
    /// The provider wants a person to confirm the call first.
    Question(String),
}

impl CallerScreen {
    /// Returns the only computer of a request.
    pub(super) fn new(chat: &ChatRequest) -> Option<Self> {
        let is_screen = |tool: &&ClientTool| {
            matches!(
                tool.kind,
                ClientToolKind::Computer
                    | ClientToolKind::ComputerCalls
                    | ClientToolKind::ComputerPreview
                    | ClientToolKind::ComputerUse
            ) && !tool.functions.is_empty()
        };
        let mut tools = ClientTool::all_in(&chat.tools).filter(is_screen);
        let (Some(tool), None) = (tools.next(), tools.next()) else { return None };
        let names: Vec<_> = tool.functions.iter().map(|function| function.name.clone()).collect();
        let number = |name: &str| tool.value.get(name).and_then(Value::as_u64);
        let declared =
            |[width, height]: [&str; 2]| DisplaySize::new(number(width)?, number(height)?);
        let screenshot = last_screenshot(chat);
        let size = match tool.kind {
            ClientToolKind::Computer => declared(["display_width_px", "display_height_px"]),
            ClientToolKind::ComputerUse => Some(DisplaySize::GRID),
            _ => declared(["display_width", "display_height"]).or(screenshot),
        };
        let is_free = |name: &str| {
            let mut others = chat.tools.iter().filter(|other| match other {
                canon::Tool::Client(other) => other.kind != tool.kind,
                _ => true,
            });
            others.all(|other| !is_named(other, name))
        };
        let mut hidden = Vec::new();
        hidden.extend((!is_free(COMPUTER_NAME)).then_some(WireFormat::Messages));
        hidden.extend((!screen_functions().all(is_free)).then_some(WireFormat::Native));
        let (kind, format) = (tool.kind, tool.origin);
        let mut screen = Self { kind, format, names, size, screenshot, cursor: None, hidden };
        if kind == ClientToolKind::ComputerUse {
            screen.cursor = screen.last_position(chat);
        }
        Some(screen)
    }

    /// Returns the measure of positions on a lane of a format; `None` if it is not known or the format's
    /// computer cannot stand for this one.
    pub(super) fn lane_size(&self, format: WireFormat) -> Option<DisplaySize> {
        if self.hidden.contains(&format) || format == self.format {
            return None;
        }
        let pixels = self.size.filter(|_| self.format != WireFormat::Native);
        match format {
            WireFormat::Messages => pixels.or(self.screenshot),
            // That computer has no declared size, so its model counts the pixels of what it sees.
            WireFormat::Responses => self.screenshot.or(pixels),
            WireFormat::Native => Some(DisplaySize::GRID),
            WireFormat::Chat | WireFormat::Images => None,
        }
    }

    /// Returns true for a function that the computer of another format can stand for.
    pub(super) fn replaces(&self, name: &str) -> bool {
        let is_own = self.names.iter().any(|own| own == name);
        is_own && (self.format != WireFormat::Native || is_screen_function(name))
    }

    /// Returns the format whose computer made a call; `None` if another tool did.
    pub(super) fn lane_of(&self, name: &str) -> Option<WireFormat> {
        let is_own = self.names.iter().any(|own| own == name);
        let format = match name {
            _ if is_own => self.format,
            COMPUTER_NAME => WireFormat::Messages,
            name if is_screen_function(name) => WireFormat::Native,
            _ => return None,
        };
        let is_whole =
            matches!(self.kind, ClientToolKind::ComputerCalls | ClientToolKind::ComputerUse);
        let is_changed = !(is_own && is_whole);
        (is_changed && !self.hidden.contains(&format)).then_some(format)
    }

    /// Returns the caller's calls for a call of a lane's computer.
    pub(super) fn raise(
        &self,
        lane: WireFormat,
        call: ToolCall,
        losses: &mut Losses,
    ) -> RaisedCall {
        let given = canon::read_value(call.arguments.as_bytes());
        let Some(Value::Object(given)) = given else {
            return RaisedCall::Calls(match self.names.contains(&call.name) {
                true => vec![call],
                false => self.calls(&call.id, &[], losses),
            });
        };
        if let Some(question) = question(&given) {
            return RaisedCall::Question(question);
        }
        let words = match lane {
            // The caller's own function. Its model may have used another vendor's words.
            lane if lane == self.format => {
                let is_own = match self.format {
                    WireFormat::Messages => given.contains_key("action"),
                    _ => !given.get("actions").is_some_and(Value::is_array),
                };
                if is_own {
                    return RaisedCall::Calls(vec![call]);
                }
                WireFormat::Responses
            }
            // The function of `computer` in messages has the same name as that of responses.
            WireFormat::Messages if !given.contains_key("action") => WireFormat::Responses,
            lane => lane,
        };
        let actions = read_actions(words, &call.name, &given);
        let mut actions = actions.unwrap_or_else(|| {
            note_lost(&Value::Object(given), losses);
            Vec::new()
        });
        let sizes = self.lane_size(lane).zip(self.size).filter(|_| lane != self.format);
        if let Some((from, to)) = sizes {
            actions.iter_mut().for_each(|action| scale_action(action, from, to));
        }
        RaisedCall::Calls(self.calls(&call.id, &actions, losses))
    }

    fn calls(&self, id: &str, actions: &[Value], losses: &mut Losses) -> Vec<ToolCall> {
        let calls = self.write(actions, losses).into_iter().zip(1_usize..);
        let calls = calls.map(|((name, arguments), number)| ToolCall {
            id: numbered(id, number),
            name,
            arguments: arguments.to_string(),
            custom: false,
        });
        calls.collect()
    }

    /// Returns the actions of a call of the caller.
    pub(super) fn read(&self, call: &ToolCall) -> Option<Vec<Value>> {
        let given = canon::read_value(call.arguments.as_bytes())?;
        read_actions(self.format, &call.name, given.as_object()?)
    }

    /// Returns the caller's calls for actions. If none has a counterpart, a call without an effect shows the
    /// model the screen.
    fn write(&self, actions: &[Value], losses: &mut Losses) -> Vec<(String, Value)> {
        let name = || self.names.first().cloned().unwrap_or_default();
        let mut calls: Vec<(String, Value)> = Vec::new();
        let mut native = NativeCalls {
            has_added: false,
            excluded: &|name| self.names.iter().all(|own| own != name),
            cursor: self.cursor,
        };
        for action in actions {
            let call = match self.kind {
                ClientToolKind::Computer => {
                    action.as_object().and_then(for_messages).map(|given| (name(), given))
                }
                ClientToolKind::ComputerUse => {
                    native.write(action).map(|(name, given)| (name.to_owned(), given))
                }
                _ => Some((name(), action.clone())),
            };
            if call.is_none() {
                note_lost(action, losses);
            }
            calls.extend(call);
        }
        match self.kind {
            ClientToolKind::Computer if calls.is_empty() => {
                vec![(name(), json!({"action": "screenshot"}))]
            }
            ClientToolKind::ComputerUse if calls.is_empty() => {
                vec![("wait_5_seconds".to_owned(), json!({}))]
            }
            ClientToolKind::ComputerCalls => {
                let actions: Vec<Value> = calls.into_iter().map(|(_, action)| action).collect();
                vec![(name(), json!({"actions": actions}))]
            }
            _ if calls.is_empty() => vec![(name(), json!({"type": "screenshot"}))],
            _ => calls,
        }
    }

    fn last_position(&self, chat: &ChatRequest) -> Option<(i64, i64)> {
        let parts = chat.turns.iter().rev().flat_map(|turn| turn.parts.iter().rev());
        let mut calls = parts.filter_map(|part| match &part.kind {
            PartKind::ToolCall(call) if self.replaces(&call.name) => Some(call),
            _ => None,
        });
        calls.find_map(|call| {
            let given = canon::read_value(call.arguments.as_bytes())?;
            Some((given.get("x")?.as_i64()?, given.get("y")?.as_i64()?))
        })
    }
}

/// Returns the id of one of several calls that stand for one.
pub(super) fn numbered(id: &str, number: usize) -> String {
    if number < 2 { id.to_owned() } else { format!("{id}_{number}") }
}

/// Returns the actions of a call in the words of a format; `None` if it has no counterpart.
fn read_actions(words: WireFormat, name: &str, given: &Map<String, Value>) -> Option<Vec<Value>> {
    match words {
        WireFormat::Messages => Some(vec![for_responses(given)?]),
        WireFormat::Native => native_actions::read_call(name, given),
        WireFormat::Responses | WireFormat::Chat | WireFormat::Images => {
            let list = match given.get("actions") {
                Some(Value::Array(actions)) => actions.clone(),
                _ => vec![Value::Object(given.clone())],
            };
            list.iter().all(|action| action.get("type").is_some()).then_some(list)
        }
    }
}

/// Returns the text of a provider's wish that a person confirms a call:
/// <https://ai.google.dev/gemini-api/docs/computer-use#safety-decisions>.
fn question(given: &Map<String, Value>) -> Option<String> {
    let decision = given.get("safety_decision")?;
    let word = decision.get("decision").and_then(Value::as_str);
    let is_asked = word.is_some_and(|word| word.contains("confirm") || word == "block");
    is_asked.then(|| confirmation(decision.get("explanation").and_then(Value::as_str)))
}

/// Returns the text in place of a call that a person has to confirm.
fn confirmation(why: Option<&str>) -> String {
    let why = why.filter(|why| !why.is_empty()).unwrap_or("no reason is given");
    format!("The next action on the screen needs your confirmation before it is run: {why}")
}

/// Returns the call in an item of the responses format's computer, or the question that it asks first.
pub(super) fn read_item(part: &Part) -> Option<Result<ToolCall, String>> {
    let PartKind::Foreign { origin: WireFormat::Responses, value } = &part.kind else {
        return None;
    };
    let text = |name: &str| value.get(name).and_then(Value::as_str);
    if text("type") != Some("computer_call") {
        return None;
    }
    let checks = value.get("pending_safety_checks").and_then(Value::as_array);
    if let Some(check) = checks.and_then(|checks| checks.first()) {
        return Some(Err(confirmation(check.get("message").and_then(Value::as_str))));
    }
    let actions = match value.get("actions").and_then(Value::as_array) {
        Some(actions) => actions.clone(),
        None => vec![value.get("action")?.clone()],
    };
    Some(Ok(ToolCall {
        id: text("call_id").or_else(|| text("id"))?.to_owned(),
        name: COMPUTER_NAME.to_owned(),
        arguments: json!({"actions": actions}).to_string(),
        custom: false,
    }))
}

/// Names the loss of an action.
pub(crate) fn note_lost(action: &Value, losses: &mut Losses) {
    let word = ["action", "type"].iter().find_map(|name| action.get(name)?.as_str());
    let known = ACTION_WORDS.into_iter().find(|known| Some(*known) == word).unwrap_or("other");
    losses.add(&format!("tools.computer.{known}"), NO_COUNTERPART);
}

/// Returns true for an image that every format can carry.
pub(super) fn is_image(part: &Part) -> bool {
    let PartKind::Media(Media { kind: MediaKind::Image, source, .. }) = &part.kind else {
        return false;
    };
    matches!(source, MediaSource::Inline { .. } | MediaSource::Url { .. })
}

/// Returns the size of the last image that a tool returned, else of the last one of the user.
fn last_screenshot(chat: &ChatRequest) -> Option<DisplaySize> {
    let parts = || chat.turns.iter().rev().flat_map(|turn| turn.parts.iter().rev());
    let returned = parts().find_map(|part| match &part.kind {
        PartKind::ToolResult(result) => result.parts.iter().rev().find_map(image_size),
        _ => None,
    });
    returned.or_else(|| parts().find_map(image_size))
}

fn image_size(part: &Part) -> Option<DisplaySize> {
    let PartKind::Media(Media { source: MediaSource::Inline { data, .. }, .. }) = &part.kind else {
        return None;
    };
    let (width, height) = media::base64_image_info(data)?.size?;
    DisplaySize::new(width.into(), height.into())
}

//! Predefined functions of the native format's computer, as actions in the words of the responses format.
//!
//! See <https://ai.google.dev/gemini-api/docs/computer-use#supported-actions>. The functions in
//! `ADDED_FUNCTIONS` are not predefined. A lane declares them for actions that the others cannot express.

use canon::{FunctionTool, JsonSchema};
use serde_json::{Map, Value, json};

use super::key_names::{KeyWords, join_keys, split_keys};

/// Functions of a browser, which other computers do not have.
pub(crate) const BROWSER_FUNCTIONS: [&str; 5] =
    ["open_web_browser", "go_back", "go_forward", "search", "navigate"];

/// Predefined functions with a counterpart.
const SCREEN_FUNCTIONS: [&str; 8] = [
    "click_at",
    "hover_at",
    "type_text_at",
    "key_combination",
    "scroll_document",
    "scroll_at",
    "drag_and_drop",
    "wait_5_seconds",
];

/// Functions that are declared beside the predefined ones: name, description, and if they have a position.
const ADDED_FUNCTIONS: [(&str, &str, bool); 5] = [
    ("take_screenshot", "Takes a screenshot of the screen.", false),
    ("type_text", "Types text where the cursor is.", false),
    ("double_click_at", "Clicks twice at a point of the screen.", true),
    ("right_click_at", "Clicks with the right button at a point of the screen.", true),
    ("middle_click_at", "Clicks with the middle button at a point of the screen.", true),
];

/// Default distance of a scroll, in cells of the grid.
const USUAL_MAGNITUDE: i64 = 800;
/// Middle of the grid, in both directions.
const MIDDLE: i64 = 500;

/// Returns true for a function that has a counterpart on other computers.
pub(super) fn is_screen_function(name: &str) -> bool {
    SCREEN_FUNCTIONS.contains(&name) || ADDED_FUNCTIONS.iter().any(|(own, ..)| *own == name)
}

/// Returns the names of all functions with a counterpart.
pub(super) fn screen_functions() -> impl Iterator<Item = &'static str> {
    SCREEN_FUNCTIONS.into_iter().chain(ADDED_FUNCTIONS.into_iter().map(|(name, ..)| name))
}

/// Returns the functions to declare beside the predefined ones.
pub(super) fn added_functions() -> impl Iterator<Item = FunctionTool> {
    ADDED_FUNCTIONS.into_iter().map(|(name, about, is_placed)| {
        let place = |edge: &str| {
            let about = format!("Distance from the {edge} edge, from 0 to 999.");
            json!({"type": "integer", "description": about})
        };
        let schema = match (is_placed, name) {
            (true, _) => json!({"type": "object", "required": ["x", "y"],
                "properties": {"x": place("left"), "y": place("top")}}),
            (false, "type_text") => json!({"type": "object", "required": ["text"],
                "properties": {"text": {"type": "string", "description": "The text."}}}),
            (false, _) => json!({"type": "object", "properties": {}}),
        };
        FunctionTool {
            name: name.to_owned(),
            description: Some(about.to_owned()),
            parameters: Some(JsonSchema::new(schema)),
            ..FunctionTool::default()
        }
    })
}

/// Returns the actions of a call, with positions on the grid; `None` if it has no counterpart.
pub(super) fn read_call(name: &str, given: &Map<String, Value>) -> Option<Vec<Value>> {
    let number = |name: &str| {
        let number = given.get(name)?;
        number.as_i64().or_else(|| number.as_f64().map(|number| number.round() as i64))
    };
    let text = |name: &str| given.get(name).and_then(Value::as_str);
    let is_wanted = |name: &str| given.get(name).and_then(Value::as_bool).unwrap_or(true);
    let at = || Some((number("x")?, number("y")?));
    let click = |button: &str| {
        let (x, y) = at()?;
        Some(json!({"type": "click", "button": button, "x": x, "y": y}))
    };
    let placed = |kind: &str| at().map(|(x, y)| json!({"type": kind, "x": x, "y": y}));
    let keypress = |keys: &[&str]| json!({"type": "keypress", "keys": keys});
    let typed = || text("text").map(|text| json!({"type": "type", "text": text}));
    let action = match name {
        "click_at" => click("left")?,
        "right_click_at" => click("right")?,
        "middle_click_at" => click("wheel")?,
        "double_click_at" => placed("double_click")?,
        "hover_at" => placed("move")?,
        "type_text" => typed()?,
        "type_text_at" => {
            let mut actions = vec![click("left")?];
            if is_wanted("clear_before_typing") {
                actions.extend([keypress(&["CTRL", "a"]), keypress(&["BACKSPACE"])]);
            }
            actions.push(typed()?);
            actions.extend(is_wanted("press_enter").then(|| keypress(&["ENTER"])));
            return Some(actions);
        }
        "key_combination" => json!({"type": "keypress", "keys": split_keys(text("keys")?)}),
        "scroll_document" | "scroll_at" => {
            let (x, y) = if name == "scroll_at" { at()? } else { (MIDDLE, MIDDLE) };
            let by = number("magnitude").unwrap_or(USUAL_MAGNITUDE).clamp(0, 999);
            let (across, down) = match text("direction")? {
                "up" => (0, -by),
                "down" => (0, by),
                "left" => (-by, 0),
                "right" => (by, 0),
                _ => return None,
            };
            json!({"type": "scroll", "x": x, "y": y, "scroll_x": across, "scroll_y": down})
        }
        "drag_and_drop" => {
            let (x, y) = at()?;
            let end = json!({"x": number("destination_x")?, "y": number("destination_y")?});
            json!({"type": "drag", "path": [{"x": x, "y": y}, end]})
        }
        "wait_5_seconds" => json!({"type": "wait"}),
        "take_screenshot" => json!({"type": "screenshot"}),
        _ => return None,
    };
    Some(vec![action])
}

/// Writes actions as calls of functions.
pub(super) struct NativeCalls<'a> {
    /// True if the added functions are there.
    pub(super) has_added: bool,
    /// Predefined functions that are not there.
    pub(super) excluded: &'a dyn Fn(&str) -> bool,
    /// The last position, which is that of the cursor.
    pub(super) cursor: Option<(i64, i64)>,
}

impl NativeCalls<'_> {
    /// Returns the call for an action with positions on the grid; `None` if it has no counterpart.
    pub(super) fn write(&mut self, action: &Value) -> Option<(&'static str, Value)> {
        let number = |name: &str| action.get(name).and_then(Value::as_i64);
        let at = || Some((number("x")?, number("y")?));
        let has_held_keys = action.get("keys").and_then(Value::as_array);
        let has_held_keys = has_held_keys.is_some_and(|keys| !keys.is_empty());
        let place = || at().map(|(x, y)| json!({"x": x, "y": y}));
        let kind = action.get("type")?.as_str()?;
        if has_held_keys && kind != "keypress" {
            return None;
        }
        let added = |name: &'static str| self.has_added.then_some(name);
        let call = match kind {
            "click" => {
                let button = action.get("button").and_then(Value::as_str).unwrap_or("left");
                let name = match button {
                    "left" => "click_at",
                    "right" => added("right_click_at")?,
                    "wheel" => added("middle_click_at")?,
                    _ => return None,
                };
                (name, place()?)
            }
            "double_click" => (added("double_click_at")?, place()?),
            "move" => ("hover_at", place()?),
            "type" => {
                let text = action.get("text")?.as_str()?;
                match added("type_text") {
                    Some(name) => (name, json!({"text": text})),
                    // The predefined function clicks first, so it needs the place of the cursor.
                    None => {
                        let (x, y) = self.cursor?;
                        let given = json!({"x": x, "y": y, "text": text, "press_enter": false,
                            "clear_before_typing": false});
                        ("type_text_at", given)
                    }
                }
            }
            "keypress" => {
                let keys = action.get("keys")?.as_array()?.iter().filter_map(Value::as_str);
                ("key_combination", json!({"keys": join_keys(keys, KeyWords::Native)}))
            }
            "scroll" => {
                let (x, y) = at()?;
                let across = number("scroll_x").unwrap_or(0);
                let down = number("scroll_y").unwrap_or(0);
                let is_down = down.unsigned_abs() >= across.unsigned_abs();
                let (by, words) =
                    if is_down { (down, ["up", "down"]) } else { (across, ["left", "right"]) };
                let [back, forth] = words;
                let direction = if by < 0 { back } else { forth };
                let magnitude = by.unsigned_abs().min(999);
                let given = json!({"x": x, "y": y, "direction": direction, "magnitude": magnitude});
                ("scroll_at", given)
            }
            "drag" => {
                let path = action.get("path")?.as_array()?;
                let at =
                    |point: &Value| Some((point.get("x")?.as_i64()?, point.get("y")?.as_i64()?));
                let ((x, y), (end_x, end_y)) = (at(path.first()?)?, at(path.last()?)?);
                let given = json!({"x": x, "y": y, "destination_x": end_x, "destination_y": end_y});
                ("drag_and_drop", given)
            }
            "wait" => ("wait_5_seconds", json!({})),
            // The result of every predefined function has a screenshot.
            "screenshot" => (added("take_screenshot").unwrap_or("wait_5_seconds"), json!({})),
            _ => return None,
        };
        self.cursor = at().or(self.cursor);
        (!(self.excluded)(call.0)).then_some(call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_with_a_counterpart_come_back() {
        let mut calls = NativeCalls { has_added: true, excluded: &|_| false, cursor: None };
        for (name, given) in [
            ("click_at", json!({"x": 1, "y": 2})),
            ("right_click_at", json!({"x": 1, "y": 2})),
            ("middle_click_at", json!({"x": 1, "y": 2})),
            ("double_click_at", json!({"x": 1, "y": 2})),
            ("hover_at", json!({"x": 1, "y": 2})),
            ("type_text", json!({"text": "a"})),
            ("key_combination", json!({"keys": "control+c"})),
            ("scroll_at", json!({"x": 1, "y": 2, "direction": "left", "magnitude": 300})),
            ("scroll_at", json!({"x": 1, "y": 2, "direction": "up", "magnitude": 999})),
            ("drag_and_drop", json!({"x": 1, "y": 2, "destination_x": 3, "destination_y": 4})),
            ("wait_5_seconds", json!({})),
            ("take_screenshot", json!({})),
        ] {
            assert!(is_screen_function(name), "{name}");
            let actions = read_call(name, given.as_object().unwrap()).unwrap();
            let [action] = actions.as_slice() else { panic!("{actions:?}") };
            assert_eq!(calls.write(action), Some((name, given)), "{action}");
        }
    }

    #[test]
    fn text_at_a_point_is_a_click_and_keys() {
        let given = json!({"x": 1, "y": 2, "text": "a"});
        let actions = read_call("type_text_at", given.as_object().unwrap()).unwrap();
        let kinds: Vec<_> = actions.iter().map(|action| action["type"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["click", "keypress", "keypress", "type", "keypress"]);
        let mut calls = NativeCalls { has_added: false, excluded: &|_| false, cursor: None };
        let typed = json!({"type": "type", "text": "a"});
        assert_eq!(calls.write(&typed), None);
        calls.write(&json!({"type": "click", "button": "left", "x": 7, "y": 8}));
        let (name, given) = calls.write(&typed).unwrap();
        assert_eq!(
            (name, &given["x"], &given["press_enter"]),
            ("type_text_at", &json!(7), &json!(false))
        );
        assert_eq!(calls.write(&json!({"type": "double_click", "x": 1, "y": 2})), None);
        let none = NativeCalls { has_added: false, excluded: &|_| true, cursor: None }
            .write(&json!({"type": "wait"}));
        assert_eq!(none, None);
    }
}

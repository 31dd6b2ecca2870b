//! Actions on a screen in the words of the messages and the responses formats.
//!
//! A lane may have the computer of its own vendor in place of the caller's. A model that is offered the
//! caller's own actions may still use those of its vendor. Both have pixels, so that only the words differ.

use serde_json::{Map, Value, json};

use super::key_names::{KeyWords, join_keys, split_keys};

/// Pixels of a step of the wheel.
const WHEEL_STEP: i64 = 100;

/// Clicks that have a counterpart, in the words of messages and as a button of responses.
const CLICKS: [(&str, &str); 3] =
    [("left_click", "left"), ("right_click", "right"), ("middle_click", "wheel")];

/// Returns the action of the responses format for one of the messages format.
pub(crate) fn for_responses(given: &Map<String, Value>) -> Option<Value> {
    let kind = given.get("action")?.as_str()?;
    let text = given.get("text").and_then(Value::as_str);
    let mut action = match kind {
        "screenshot" | "wait" => return Some(json!({"type": kind})),
        "type" => return Some(json!({"type": "type", "text": text?})),
        "key" | "hold_key" => return Some(json!({"type": "keypress", "keys": split_keys(text?)})),
        "left_click_drag" => {
            let path = [point(given, "start_coordinate")?, point(given, "coordinate")?];
            let path = path.map(|(x, y)| json!({"x": x, "y": y}));
            json!({"type": "drag", "path": path})
        }
        "double_click" | "mouse_move" | "scroll" => {
            let (x, y) = point(given, "coordinate")?;
            match kind {
                "double_click" => json!({"type": "double_click", "x": x, "y": y}),
                "mouse_move" => json!({"type": "move", "x": x, "y": y}),
                _ => {
                    let (across, down) = wheel(given)?;
                    json!({"type": "scroll", "x": x, "y": y, "scroll_x": across, "scroll_y": down})
                }
            }
        }
        click => {
            let (_, button) = CLICKS.into_iter().find(|(word, _)| *word == click)?;
            let (x, y) = point(given, "coordinate")?;
            json!({"type": "click", "button": button, "x": x, "y": y})
        }
    };
    if let (Some(text), Value::Object(fields)) = (text, &mut action) {
        fields.insert("keys".to_owned(), split_keys(text).into());
    }
    Some(action)
}

/// Returns the action of the messages format for one of the responses format.
pub(crate) fn for_messages(given: &Map<String, Value>) -> Option<Value> {
    let kind = given.get("type")?.as_str()?;
    let number = |name: &str| given.get(name).and_then(Value::as_i64);
    let place = || Some([number("x")?, number("y")?]);
    let keys = given
        .get("keys")
        .and_then(Value::as_array)
        .map(|keys| join_keys(keys.iter().filter_map(Value::as_str), KeyWords::Messages));
    let mut action = match kind {
        "screenshot" => return Some(json!({"action": "screenshot"})),
        "wait" => return Some(json!({"action": "wait", "duration": 1})),
        "type" => return Some(json!({"action": "type", "text": given.get("text")?.as_str()?})),
        "keypress" => return Some(json!({"action": "key", "text": keys?})),
        "click" => {
            let button = given.get("button").and_then(Value::as_str).unwrap_or("left");
            let (word, _) = CLICKS.into_iter().find(|(_, own)| *own == button)?;
            json!({"action": word, "coordinate": place()?})
        }
        "double_click" => json!({"action": "double_click", "coordinate": place()?}),
        "move" => json!({"action": "mouse_move", "coordinate": place()?}),
        "drag" => {
            let path = given.get("path")?.as_array()?;
            let at = |point: &Value| Some([point.get("x")?.as_i64()?, point.get("y")?.as_i64()?]);
            let (start, end) = (at(path.first()?)?, at(path.last()?)?);
            json!({"action": "left_click_drag", "start_coordinate": start, "coordinate": end})
        }
        "scroll" => {
            let (across, down) = (number("scroll_x").unwrap_or(0), number("scroll_y").unwrap_or(0));
            let (direction, distance) = match () {
                () if down.unsigned_abs() >= across.unsigned_abs() && down < 0 => ("up", down),
                () if down.unsigned_abs() >= across.unsigned_abs() => ("down", down),
                () if across < 0 => ("left", across),
                () => ("right", across),
            };
            let steps = distance.unsigned_abs().div_ceil(WHEEL_STEP.unsigned_abs());
            json!({"action": "scroll", "coordinate": place()?, "scroll_direction": direction,
                "scroll_amount": steps})
        }
        _ => return None,
    };
    if let (Some(keys), Value::Object(fields)) = (keys, &mut action) {
        fields.insert("text".to_owned(), keys.into());
    }
    Some(action)
}

fn point(given: &Map<String, Value>, name: &str) -> Option<(i64, i64)> {
    match given.get(name)?.as_array()?.as_slice() {
        [x, y] => Some((x.as_i64()?, y.as_i64()?)),
        _ => None,
    }
}

/// Returns the pixels to the right and down of a turn of the wheel.
fn wheel(given: &Map<String, Value>) -> Option<(i64, i64)> {
    let steps = given.get("scroll_amount").and_then(Value::as_i64).unwrap_or(3);
    let pixels = steps.checked_mul(WHEEL_STEP)?;
    match given.get("scroll_direction")?.as_str()? {
        "up" => Some((0, pixels.checked_neg()?)),
        "down" => Some((0, pixels)),
        "left" => Some((pixels.checked_neg()?, 0)),
        "right" => Some((pixels, 0)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_with_a_counterpart_come_back() {
        for action in [
            json!({"action": "screenshot"}),
            json!({"action": "type", "text": "a+b"}),
            json!({"action": "key", "text": "ctrl+s"}),
            json!({"action": "left_click", "coordinate": [1, 2], "text": "shift"}),
            json!({"action": "right_click", "coordinate": [1, 2]}),
            json!({"action": "middle_click", "coordinate": [1, 2]}),
            json!({"action": "double_click", "coordinate": [1, 2]}),
            json!({"action": "mouse_move", "coordinate": [1, 2]}),
            json!({"action": "left_click_drag", "start_coordinate": [1, 2], "coordinate": [3, 4]}),
            json!({"action": "scroll", "coordinate": [1, 2], "scroll_direction": "up", "scroll_amount": 2}),
            json!({"action": "scroll", "coordinate": [1, 2], "scroll_direction": "right", "scroll_amount": 1}),
        ] {
            let other = action.as_object().and_then(for_responses).unwrap_or_default();
            let back = other.as_object().and_then(for_messages);
            assert_eq!(back.as_ref(), Some(&action), "{other}");
        }
        for action in [
            json!({"action": "zoom", "region": [0, 0, 1, 1]}),
            json!({"action": "left_click"}),
            json!({"action": "scroll", "coordinate": [1, 2], "scroll_direction": "up", "scroll_amount": i64::MAX}),
        ] {
            assert_eq!(action.as_object().and_then(for_responses), None, "{action}");
        }
    }
}

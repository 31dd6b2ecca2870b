//! Settled calls as CSV, in exports and archives.

use console::csv_line;
use serde_json::Value;

/// Returns the names of the columns.
pub(crate) fn call_header(entry_json: &Value) -> String {
    csv_line(csv_cells(entry_json).map(|(name, _)| name))
}

/// Returns the line of a call.
pub(crate) fn call_line(entry_json: &Value) -> String {
    csv_line(csv_cells(entry_json).map(|(_, value)| value))
}

/// Flattens the JSON of a call into columns. Nested fields get the name of their parent as prefix;
/// lists stay JSON.
fn csv_cells(entry_json: &Value) -> impl Iterator<Item = (String, String)> {
    let mut cells = Vec::new();
    let facts = entry_json.as_object().into_iter().flatten();
    for (name, value) in facts {
        match value {
            Value::Object(parts) => {
                for (part, value) in parts {
                    cells.push((format!("{name}_{part}"), csv_cell(value)));
                }
            }
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_) => cells.push((name.clone(), csv_cell(value))),
        }
    }
    cells.into_iter()
}

fn csv_cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

/// Reads the cells of the next line of a CSV text (RFC 4180) and returns them with the rest of the text. Returns
/// `None` at the end of the text, and if its last line is not complete.
pub(crate) fn read_line(text: &str) -> Option<(Vec<String>, &str)> {
    let mut cells = vec![String::new()];
    let mut letters = text.char_indices().peekable();
    let mut is_quoted = false;
    while let Some((place, letter)) = letters.next() {
        let cell = cells.last_mut()?;
        match letter {
            '"' if is_quoted && letters.next_if(|(_, next)| *next == '"').is_some() => {
                cell.push('"')
            }
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => cells.push(String::new()),
            '\r' if !is_quoted => {}
            '\n' if !is_quoted => return Some((cells, text.get(place + 1..)?)),
            other => cell.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn csv_cells_are_quoted() {
        let entry_json = json!({ "a": 1, "b": { "c": "x,y", "d": null }, "e": ["\"q\"\n"] });
        let names = call_header(&entry_json);
        assert_eq!(names, "a,b_c,b_d,e\r\n");
        let values = call_line(&entry_json);
        assert_eq!(values, "1,\"x,y\",,\"[\"\"\\\"\"q\\\"\"\\n\"\"]\"\r\n");
    }

    #[test]
    fn lines_are_read_as_they_were_written() {
        let cells = ["a", "", "x,y", "\"q\"\r\nz", "ä"];
        let text = format!("{}{}", csv_line(cells), csv_line(["b"]));
        let (line, rest) = read_line(&text).unwrap();
        assert_eq!(line, cells);
        let (line, rest) = read_line(rest).unwrap();
        assert_eq!((line, rest), (vec!["b".to_owned()], ""));
        assert_eq!(read_line(rest), None);
        assert_eq!(read_line("not complete"), None);
        assert_eq!(read_line("\"open\n"), None);
    }
}

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

/// Parts of an error. A call without one has their columns too.
const ERROR_PARTS: [&str; 3] = ["code", "field", "message"];

/// Flattens the JSON of a call into columns, which are the same for every call. Nested fields get the name of
/// their parent as prefix; lists stay JSON, and so do tags, whose names the caller chose.
fn csv_cells(entry_json: &Value) -> impl Iterator<Item = (String, String)> {
    let mut cells = Vec::new();
    let facts = entry_json.as_object().into_iter().flatten();
    for (name, value) in facts {
        match value {
            error if name == "error" => {
                for part in ERROR_PARTS {
                    let cell = error.get(part).map(csv_cell).unwrap_or_default();
                    cells.push((format!("{name}_{part}"), cell));
                }
            }
            tags if name == "tags" => cells.push((name.clone(), csv_cell(tags))),
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
    use canon::{Micros, Money, Usage};
    use ledger::{CallError, LedgerEntry};
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
    fn every_call_has_the_same_columns() {
        let names = |call: &LedgerEntry| call_header(&api::export_json(call, &[]));
        let plain = LedgerEntry::default();
        let labelled = LedgerEntry {
            error: Some(Box::new(CallError::new("timeout", "", "no lane answered"))),
            tags: [("team", "blue"), ("beta", "")].into_iter().collect(),
            end_user: "somebody".into(),
            session: "run".into(),
            first_byte_us: Some(Micros::new(5)),
            held: Some(Money::MAX),
            told: Some(Box::new(Usage { output: 5, ..Usage::default() })),
            service: "flex".into(),
            ..LedgerEntry::default()
        };
        assert_eq!(names(&labelled), names(&plain));
        let line = call_line(&api::export_json(&labelled, &[]));
        let (cells, _) = read_line(&line).unwrap();
        let header = names(&plain);
        let (header, _) = read_line(&header).unwrap();
        let at = |name: &str| &*cells[header.iter().position(|own| own == name).unwrap()];
        assert_eq!(at("tags"), r#"{"beta":"","team":"blue"}"#);
        assert_eq!((at("error_code"), at("error_message")), ("timeout", "no lane answered"));
        assert_eq!(at("end_user"), "somebody");
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

//! CSV lines (RFC 4180) that are safe to open in a spreadsheet.

/// Formats one CSV line.
pub fn csv_line<S: AsRef<str>>(cells: impl IntoIterator<Item = S>) -> String {
    let cells: Vec<String> = cells.into_iter().map(|cell| quote_cell(cell.as_ref())).collect();
    format!("{}\r\n", cells.join(","))
}

/// Quotes a cell. A leading apostrophe keeps spreadsheets from running it as a formula; see
/// <https://owasp.org/www-community/attacks/CSV_Injection>.
fn quote_cell(cell: &str) -> String {
    const STARTS: [char; 10] = ['=', '+', '-', '@', '\t', '\r', '＝', '＋', '－', '＠'];
    let is_number = cell.bytes().all(|byte| byte.is_ascii_digit() || b"+-.e".contains(&byte))
        && cell.parse::<f64>().is_ok();
    let formula = cell.starts_with(STARTS) && !is_number;
    let guard = if formula { "'" } else { "" };
    if formula || cell.contains([',', '"', '\n', '\r']) {
        format!("\"{guard}{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_and_never_formulas() {
        let cells = ["plain", "a,\"b\"", "=1+1", "-0.5", "", "+inf", "＝1"];
        let line = "plain,\"a,\"\"b\"\"\",\"'=1+1\",-0.5,,\"'+inf\",\"'＝1\"\r\n";
        assert_eq!(csv_line(cells), line);
    }
}
